/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.c: memory pools: device memory that is allocated and freed in stream order.
 *
 * Invariants: `reserved` of a pool is the memory that it has from the device, `used` the part of it
 * that the program has. A block that was freed is unused once its stream has come to that point, and
 * then goes to the next allocation that it fits. Unused blocks above the release threshold go back
 * to the device when the program waits for the device. A destroyed pool goes with its last block.
 */
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>

enum { GRAIN = 512 };

static struct CUmemPoolHandle_st *pools;

static void pool_free(struct CUmemPoolHandle_st *p)
{
    struct CUmemPoolHandle_st **at = &pools;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    culvert__sim_object_free(&p->object);
}

/* Unused blocks go back to the device until only that much is left in the pool. */
static void trim(struct CUmemPoolHandle_st *p, uint64_t keep)
{
    while (p->unused && p->reserved > keep) {
        struct sim_range *r = p->unused;
        p->unused = r->next;
        p->reserved -= r->bytes;
        p->ctx->used_bytes -= r->bytes;
        culvert__sim_range_unmap(r);
    }
    if (p->closed && p->reserved == 0)
        pool_free(p);
}

void culvert__sim_pools_synchronized(void)
{
    struct CUmemPoolHandle_st *next;
    for (struct CUmemPoolHandle_st *p = pools; p; p = next) {
        next = p->next;
        trim(p, p->closed ? 0 : p->threshold);
    }
}

void culvert__sim_pool_take_back(void *block)
{
    struct sim_range *r = block;
    struct CUmemPoolHandle_st *p = r->pool;
    r->unused = true;
    r->next = p->unused;
    p->unused = r;
    p->used -= r->bytes;
    if (p->closed)
        trim(p, 0);
}

void culvert__sim_pools_of_context(struct CUctx_st *ctx)
{
    struct CUmemPoolHandle_st *next;
    for (struct CUmemPoolHandle_st *p = pools; p; p = next) {
        next = p->next;
        if (p->ctx != ctx)
            continue;
        culvert__sim_object_gone(&p->object);
        pool_free(p); /* its blocks go with the context's other memory */
    }
}

static struct sim_range *take_unused(struct CUmemPoolHandle_st *p, size_t bytes)
{
    for (struct sim_range **at = &p->unused; *at; at = &(*at)->next) {
        struct sim_range *r = *at;
        if (r->bytes < bytes || r->bytes / 2 > bytes)
            continue;
        *at = r->next;
        r->unused = false;
        return r;
    }
    return NULL;
}

static struct sim_range *take_new(struct CUmemPoolHandle_st *p, size_t bytes)
{
    uint64_t all = culvert__sim.memory_bytes;
    struct CUctx_st *ctx = p->ctx;
    if (ctx->used_bytes > all || bytes > all - ctx->used_bytes)
        return NULL;
    struct sim_range *r = culvert__sim_range_map(bytes, SIM_RANGE_POOL, ctx);
    if (!r)
        return NULL;
    r->pool = p;
    ctx->used_bytes += bytes;
    p->reserved += bytes;
    if (p->reserved > p->reserved_high)
        p->reserved_high = p->reserved;
    return r;
}

int cuMemPoolCreate(culvert__CUmemoryPool *out, const culvert__CUmemPoolProps *props)
{
    CULVERT__SIM_ENTER(cuMemPoolCreate);
    if (!out || !props || props->allocType != CULVERT__CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CULVERT__CU_MEM_LOCATION_TYPE_DEVICE)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    int device = props->location.id;
    if (device < 0 || device >= culvert__sim.nvisible)
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    culvert__sim_lock();
    struct CUctx_st *ctx = &culvert__sim.contexts[device];
    int result = ctx->active ? ctx->sticky : CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    struct CUmemPoolHandle_st *p = result == 0 ? culvert__sim_object_new(SIM_POOL) : NULL;
    if (p) {
        p->ctx = ctx;
        p->reuse_event = p->reuse_opportunistic = p->reuse_internal = 1;
        p->next = pools;
        pools = p;
        *out = p;
    } else if (result == 0) {
        result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

int cuMemPoolDestroy(culvert__CUmemoryPool p)
{
    CULVERT__SIM_ENTER(cuMemPoolDestroy);
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result)) {
        culvert__sim_object_close(&p->object);
        p->closed = true;
        trim(p, 0);
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}

static int set(struct CUmemPoolHandle_st *p, int attribute, const void *value)
{
    switch (attribute) {
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        p->reuse_event = *(const int *)value;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        p->reuse_opportunistic = *(const int *)value;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        p->reuse_internal = *(const int *)value;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        p->threshold = *(const uint64_t *)value;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CULVERT__CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const uint64_t *)value != 0)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        if (attribute == CULVERT__CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            p->used_high = p->used;
        else
            p->reserved_high = p->reserved;
        return 0;
    default: return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
}

static int get(const struct CUmemPoolHandle_st *p, int attribute, void *value)
{
    switch (attribute) {
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *(int *)value = p->reuse_event;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *(int *)value = p->reuse_opportunistic;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = p->reuse_internal;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t *)value = p->threshold; return 0;
    case CULVERT__CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(uint64_t *)value = p->reserved; return 0;
    case CULVERT__CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(uint64_t *)value = p->reserved_high;
        return 0;
    case CULVERT__CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t *)value = p->used; return 0;
    case CULVERT__CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t *)value = p->used_high; return 0;
    default: return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
}

int cuMemPoolSetAttribute(culvert__CUmemoryPool p, culvert__CUmemPool_attribute attribute,
                          void *value)
{
    CULVERT__SIM_ENTER(cuMemPoolSetAttribute);
    int result;
    if (!value)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result))
        result = set(p, attribute, value);
    culvert__sim_unlock();
    return result;
}

int cuMemPoolGetAttribute(culvert__CUmemoryPool p, culvert__CUmemPool_attribute attribute,
                          void *value)
{
    CULVERT__SIM_ENTER(cuMemPoolGetAttribute);
    int result;
    if (!value)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result))
        result = get(p, attribute, value);
    culvert__sim_unlock();
    return result;
}

int cuMemPoolTrimTo(culvert__CUmemoryPool p, size_t keep)
{
    CULVERT__SIM_ENTER(cuMemPoolTrimTo);
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result)) {
        trim(p, keep);
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}

int cuMemPoolSetAccess(culvert__CUmemoryPool p, const culvert__CUmemAccessDesc *map, size_t count)
{
    CULVERT__SIM_ENTER(cuMemPoolSetAccess);
    int result;
    if (count > 0 && !map)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CULVERT__CU_MEM_LOCATION_TYPE_DEVICE ||
            map[i].location.id < 0 || map[i].location.id >= culvert__sim.nvisible)
            return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    }
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result))
        result = 0;
    culvert__sim_unlock();
    return result;
}

/* Nothing lies at the address 0, and may be freed. */
static int take(struct CUmemPoolHandle_st *p, size_t bytes, culvert__CUdeviceptr *address)
{
    size_t whole = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (bytes == 0) {
        *address = 0;
        return 0;
    }
    struct sim_range *r = take_unused(p, whole);
    if (!r)
        r = take_new(p, whole);
    if (!r)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    p->used += r->bytes;
    if (p->used > p->used_high)
        p->used_high = p->used;
    *address = r->base;
    return 0;
}

int cuMemAllocFromPoolAsync(culvert__CUdeviceptr *address, size_t bytes, culvert__CUmemoryPool p,
                            culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuMemAllocFromPoolAsync);
    struct CUstream_st *s;
    int result;
    if (!address || bytes > SIZE_MAX - GRAIN)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(p, SIM_POOL, &result))
        result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0 && s->capture)
        result = culvert__sim_capture_conflict(s);
    if (result == 0)
        result = take(p, bytes, address);
    culvert__sim_unlock();
    return result;
}

/* A block of a pool that the program has. */
static int block_at(uintptr_t address, struct sim_range **out)
{
    struct sim_range *r = culvert__sim_range_find(address);
    if (r && r->kind == SIM_RANGE_POOL && r->base == address && !r->unused) {
        *out = r;
        return 0;
    }
    if (r && (r->kind == SIM_RANGE_FREED || r->kind == SIM_RANGE_POOL))
        culvert__sim_violation("%s: memory at %p was freed before", culvert__sim_current_call(),
                               (void *)address);
    return CULVERT__CUDA_ERROR_INVALID_VALUE;
}

int culvert__sim_pool_free_now(struct sim_range *r, uintptr_t address)
{
    int result = block_at(address, &r);
    if (result == 0)
        result = culvert__sim_wait_idle(r->ctx);
    if (result == 0)
        result = block_at(address, &r);
    if (result == 0)
        culvert__sim_pool_take_back(r);
    return result;
}

int cuMemFreeAsync(culvert__CUdeviceptr address, culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuMemFreeAsync);
    struct CUstream_st *s;
    struct sim_range *r;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0 && address != 0)
        result = block_at(address, &r);
    if (result == 0 && address != 0) {
        struct sim_op *op = culvert__sim_op_new(SIM_POOL_FREE, culvert__SIM_cuMemFreeAsync);
        op->work.u.block = r;
        result = culvert__sim_submit(s, op);
    }
    culvert__sim_unlock();
    return result;
}
