/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pointer.c: the attributes of addresses.
 */
#include "sim/memory.h"

#include <string.h>

static bool is_host(const struct sim_range *r)
{
    return r->kind == SIM_RANGE_HOST || r->kind == SIM_RANGE_REGISTERED;
}

/* Writes one attribute of a known address. */
static int put(void *data, int attribute, const struct sim_range *r, uintptr_t address)
{
    switch (attribute) {
    case CULVERT__CU_POINTER_ATTRIBUTE_CONTEXT: *(struct CUctx_st **)data = r->ctx; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data =
            is_host(r) ? CULVERT__CU_MEMORYTYPE_HOST : CULVERT__CU_MEMORYTYPE_DEVICE;
        return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(culvert__CUdeviceptr *)data = address;
        return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(r))
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)address;
        return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CULVERT__CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)data = 0; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = r->id; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = r->ctx->device; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(culvert__CUdeviceptr *)data = r->base;
        return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = r->bytes; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_MAPPED: *(int *)data = 1; return 0;
    case CULVERT__CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(struct CUmemPoolHandle_st **)data = r->pool;
        return 0;
    default: return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
}

static size_t size_of(int attribute)
{
    switch (attribute) {
    case CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CULVERT__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CULVERT__CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CULVERT__CU_POINTER_ATTRIBUTE_MAPPED: return sizeof(int);
    default: return sizeof(void *);
    }
}

/* Of an address that the driver does not know, almost every attribute is zero. */
static void put_unknown(void *data, int attribute, uintptr_t address)
{
    memset(data, 0, size_of(attribute));
    if (attribute == CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)data = -2;
    else if (attribute == CULVERT__CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *(void **)data = (void *)address;
}

static const struct sim_range *known(culvert__CUdeviceptr address)
{
    const struct sim_range *r = culvert__sim_range_find(address);
    return r && r->kind != SIM_RANGE_FREED ? r : NULL;
}

int cuPointerGetAttribute(void *data, culvert__CUpointer_attribute attribute,
                          culvert__CUdeviceptr address)
{
    CULVERT__SIM_ENTER(cuPointerGetAttribute);
    if (!data)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    const struct sim_range *r = known(address);
    int result = r ? put(data, attribute, r, address) : CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_unlock();
    return result;
}

int cuPointerGetAttributes(unsigned int n, culvert__CUpointer_attribute *attributes, void **data,
                           culvert__CUdeviceptr address)
{
    CULVERT__SIM_ENTER(cuPointerGetAttributes);
    if (n == 0 || !attributes || !data)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    const struct sim_range *r = known(address);
    for (unsigned i = 0; i < n; i++) {
        if (!r)
            put_unknown(data[i], attributes[i], address);
        else if (put(data[i], attributes[i], r, address) != 0)
            memset(data[i], 0, size_of(attributes[i]));
    }
    culvert__sim_unlock();
    return 0;
}
