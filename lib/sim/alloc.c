/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alloc.c: device memory, pinned memory, and what the driver says of an address.
 *
 * Giving memory back, and no longer pinning it, waits until the context's kernels and copies are
 * over, and holds up launches meanwhile: cuMemFree, cuMemFreeHost and cuMemHostUnregister did so on
 * an H200, driver 580, CUDA 13.0.
 */
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>

/* More than this in one call makes everybody wait for too long: 0.5 ms a MB. */
enum { PIN_BYTES = 1024 * 1024 };

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CULVERT__SIM_ENTER(cuMemGetInfo);
    struct CUctx_st *ctx;
    if (!free_bytes || !total)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0) {
        uint64_t all = culvert__sim.memory_bytes;
        *total = all;
        *free_bytes = ctx->used_bytes < all ? all - ctx->used_bytes : 0;
    }
    culvert__sim_unlock();
    return result;
}

int cuMemAlloc_v2(culvert__CUdeviceptr *address, size_t bytes)
{
    CULVERT__SIM_ENTER(cuMemAlloc);
    struct CUctx_st *ctx;
    if (!address || bytes == 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    struct sim_range *r = NULL;
    uint64_t all = culvert__sim.memory_bytes;
    if (result == 0 && ctx->used_bytes <= all && bytes <= all - ctx->used_bytes)
        r = culvert__sim_range_map(bytes, SIM_RANGE_DEVICE, ctx);
    if (r) {
        ctx->used_bytes += bytes;
        *address = r->base;
    } else if (result == 0) {
        result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

/* The range that starts at an address, if it may be freed. */
static int freeable(uintptr_t address, enum sim_range_kind kind, struct sim_range **out)
{
    struct sim_range *r = culvert__sim_range_find(address);
    *out = r;
    if (r && r->base == address && r->kind == kind)
        return 0;
    if (r && r->kind == SIM_RANGE_FREED)
        culvert__sim_violation("%s: memory at %p was freed before", culvert__sim_current_call(),
                               (void *)address);
    return CULVERT__CUDA_ERROR_INVALID_VALUE;
}

/* Waits as the driver does, then finds the range again: it may be another thread's meanwhile. */
static int wait_and_find(uintptr_t address, enum sim_range_kind kind, struct sim_range **out)
{
    struct CUctx_st *ctx;
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0)
        result = freeable(address, kind, out);
    if (result == 0)
        result = culvert__sim_wait_idle((*out)->ctx);
    if (result == 0)
        result = freeable(address, kind, out);
    return result;
}

int cuMemFree_v2(culvert__CUdeviceptr address)
{
    CULVERT__SIM_ENTER(cuMemFree);
    struct sim_range *r;
    if (address == 0)
        return 0;
    culvert__sim_lock();
    r = culvert__sim_range_find(address);
    if (r && r->kind == SIM_RANGE_POOL) {
        int pool_result = culvert__sim_pool_free_now(r, address);
        culvert__sim_unlock();
        return pool_result;
    }
    int result = wait_and_find(address, SIM_RANGE_DEVICE, &r);
    if (result == 0) {
        r->ctx->used_bytes -= r->bytes;
        culvert__sim_range_unmap(r);
    }
    culvert__sim_unlock();
    return result;
}

/* Pinning holds up the launches of all threads, so a large piece of it is a violation in service. */
static void note_pin(const struct CUctx_st *ctx, size_t bytes)
{
    if (bytes > PIN_BYTES && ctx->unfinished > 0 && atomic_load(&culvert__sim.loop_threads) > 0)
        culvert__sim_violation("%s pins %zu bytes at once while work is in flight",
                               culvert__sim_current_call(), bytes);
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuMemHostAlloc);
    struct CUctx_st *ctx;
    if (!out || flags > 7)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0 && bytes == 0) {
        *out = NULL;
    } else if (result == 0) {
        note_pin(ctx, bytes);
        struct sim_range *r = culvert__sim_range_map(bytes, SIM_RANGE_HOST, ctx);
        if (r) {
            r->flags = flags;
            culvert__sim.pinned_bytes += bytes;
            *out = (void *)r->base;
        } else {
            result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    culvert__sim_unlock();
    return result;
}

int cuMemFreeHost(void *p)
{
    CULVERT__SIM_ENTER(cuMemFreeHost);
    struct sim_range *r;
    if (!p)
        return 0;
    culvert__sim_lock();
    int result = wait_and_find((uintptr_t)p, SIM_RANGE_HOST, &r);
    if (result == 0) {
        culvert__sim.pinned_bytes -= r->bytes;
        culvert__sim_range_unmap(r);
    }
    culvert__sim_unlock();
    return result;
}

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuMemHostRegister);
    struct CUctx_st *ctx;
    if (!p || bytes == 0 || flags > 15)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if ((uintptr_t)p + bytes < (uintptr_t)p)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    const struct sim_range *there = culvert__sim_range_overlap((uintptr_t)p, bytes);
    if (result == 0 && there && there->kind == SIM_RANGE_REGISTERED)
        result = CULVERT__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (result == 0 && there)
        result = CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        note_pin(ctx, bytes);
        struct sim_range *r =
            culvert__sim_range_add((uintptr_t)p, bytes, SIM_RANGE_REGISTERED, ctx);
        if (r) {
            r->flags = flags;
            culvert__sim.pinned_bytes += bytes;
        } else {
            result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    culvert__sim_unlock();
    return result;
}

/* The registration that starts at an address. */
static int registration(uintptr_t address, struct sim_range **out)
{
    struct sim_range *r = culvert__sim_range_find(address);
    *out = r;
    if (!r || r->kind == SIM_RANGE_FREED)
        return CULVERT__CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (r->kind != SIM_RANGE_REGISTERED || r->base != address)
        return CULVERT__CUDA_ERROR_INVALID_VALUE; /* something else that the driver knows */
    return 0;
}

int cuMemHostUnregister(void *p)
{
    CULVERT__SIM_ENTER(cuMemHostUnregister);
    struct CUctx_st *ctx;
    struct sim_range *r;
    if (!p)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0)
        result = registration((uintptr_t)p, &r);
    if (result == 0 && culvert__sim_in_use(r->base, r->bytes))
        culvert__sim_violation("cuMemHostUnregister: queued work uses the memory at %p", p);
    if (result == 0)
        result = culvert__sim_wait_idle(r->ctx);
    if (result == 0)
        result = registration((uintptr_t)p, &r);
    if (result == 0) {
        culvert__sim.pinned_bytes -= r->bytes;
        culvert__sim_range_remove(r);
    }
    culvert__sim_unlock();
    return result;
}

int cuMemHostGetDevicePointer_v2(culvert__CUdeviceptr *address, void *p, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuMemHostGetDevicePointer);
    if (!address || flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    const struct sim_range *r = culvert__sim_range_find((uintptr_t)p);
    bool host = r && (r->kind == SIM_RANGE_HOST || r->kind == SIM_RANGE_REGISTERED);
    if (host)
        *address = (uintptr_t)p;
    culvert__sim_unlock();
    return host ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}
