/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * function.c: kernels: loading them, their attributes, and how many fit on a multiprocessor.
 *
 * Unless modules are loaded eagerly, the first launch of a function loads it; cuFuncLoad does it
 * beforehand. Neither waits for the device (measured on an H200, driver 580, CUDA 13.0), unless a
 * test asks for what is said of other drivers: then both wait for it and hold up the launches of all
 * threads.
 */
#include "sim/memory.h"
#include "sim/module.h"

enum {
    SHARED_OPTIN = 227 * 1024,
    SHARED_OF_SM = 228 * 1024,
    SHARED_RESERVED = 1024,
    THREADS_OF_SM = 2048,
    BLOCKS_OF_SM = 32,
    SMS = 132,
    WARP = 32
};

int culvert__sim_function_load(struct CUfunc_st *f)
{
    if (f->loaded)
        return 0;
    int result = culvert__sim.lazy_waits ? culvert__sim_wait_idle(f->module->ctx) : 0;
    if (result == 0)
        f->loaded = true;
    return result;
}

/* 0, or what to answer. [lock] */
static int function_of(culvert__CUfunction f)
{
    int result;
    if (!culvert__sim_object_check(f, SIM_FUNCTION, &result))
        return result;
    return f->module->ctx->sticky;
}

int cuFuncLoad(culvert__CUfunction f)
{
    CULVERT__SIM_ENTER(cuFuncLoad);
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0)
        result = culvert__sim_function_load(f);
    culvert__sim_unlock();
    return result;
}

static int max_threads(const struct CUfunc_st *f)
{
    uint32_t own = f->kernel->max_threads;
    return own > 0 && own < CULVERT__BLOCK_MAX_THREADS ? (int)own : (int)CULVERT__BLOCK_MAX_THREADS;
}

static int attribute_of(const struct CUfunc_st *f, int attribute, int *value)
{
    switch (attribute) {
    case CULVERT__CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = max_threads(f); return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)f->kernel->static_shared_bytes;
        return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CULVERT__CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = f->max_dynamic_shared;
        return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = f->carveout;
        return 0;
    default:
        if (attribute < 0 ||
            attribute > CULVERT__CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        *value = 0;
        return 0;
    }
}

int cuFuncGetAttribute(int *value, culvert__CUfunction_attribute attribute, culvert__CUfunction f)
{
    CULVERT__SIM_ENTER(cuFuncGetAttribute);
    if (!value)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0)
        result = attribute_of(f, attribute, value);
    culvert__sim_unlock();
    return result;
}

static int set_attribute(struct CUfunc_st *f, int attribute, int value)
{
    int most = SHARED_OPTIN - (int)f->kernel->static_shared_bytes;
    switch (attribute) {
    case CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > most)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        f->max_dynamic_shared = value;
        return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < CULVERT__CU_SHAREDMEM_CARVEOUT_DEFAULT ||
            value > CULVERT__CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        f->carveout = value;
        return 0;
    case CULVERT__CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: return 0;
    default: return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
}

int cuFuncSetAttribute(culvert__CUfunction f, culvert__CUfunction_attribute attribute, int value)
{
    CULVERT__SIM_ENTER(cuFuncSetAttribute);
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0)
        result = set_attribute(f, attribute, value);
    culvert__sim_unlock();
    return result;
}

int cuFuncGetParamInfo(culvert__CUfunction f, size_t index, size_t *offset, size_t *size)
{
    CULVERT__SIM_ENTER(cuFuncGetParamInfo);
    if (!offset)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0 && index >= f->kernel->nparams)
        result = CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        *offset = f->kernel->param_offsets[index];
        if (size)
            *size = f->kernel->param_sizes[index];
    }
    culvert__sim_unlock();
    return result;
}

int cuFuncGetModule(culvert__CUmodule *module, culvert__CUfunction f)
{
    CULVERT__SIM_ENTER(cuFuncGetModule);
    if (!module)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0)
        *module = f->module;
    culvert__sim_unlock();
    return result;
}

static int blocks_that_fit(const struct CUfunc_st *f, int threads, size_t shared)
{
    if (threads > max_threads(f) || shared > (size_t)f->max_dynamic_shared)
        return 0;
    int warps = (threads + WARP - 1) / WARP;
    int blocks = THREADS_OF_SM / (warps * WARP);
    size_t each = shared + f->kernel->static_shared_bytes + SHARED_RESERVED;
    int by_shared = (int)(SHARED_OF_SM / each);
    if (blocks > by_shared)
        blocks = by_shared;
    return blocks > BLOCKS_OF_SM ? BLOCKS_OF_SM : blocks;
}

uint64_t culvert__sim_blocks_at_once(const struct CUfunc_st *f, uint64_t threads,
                                     uint32_t shared_bytes)
{
    return (uint64_t)blocks_that_fit(f, (int)threads, shared_bytes) * SMS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, culvert__CUfunction f, int block_size,
                                                size_t shared_bytes)
{
    CULVERT__SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    if (!blocks || block_size <= 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = function_of(f);
    if (result == 0)
        *blocks = blocks_that_fit(f, block_size, shared_bytes);
    culvert__sim_unlock();
    return result;
}

int cuOccupancyMaxPotentialBlockSize(int *min_grid_size, int *block_size, culvert__CUfunction f,
                                     culvert__CUoccupancyB2DSize shared_bytes_of,
                                     size_t shared_bytes, int limit)
{
    CULVERT__SIM_ENTER(cuOccupancyMaxPotentialBlockSize);
    if (!min_grid_size || !block_size || limit < 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = function_of(f);
    struct CUfunc_st copy = {0};
    if (result == 0)
        copy = *f;
    culvert__sim_unlock();
    if (result)
        return result;
    int best = 0, most = max_threads(&copy);
    if (limit > 0 && limit < most)
        most = limit;
    for (int threads = most; threads > 0; threads = (threads - 1) / WARP * WARP) {
        size_t shared = shared_bytes_of ? shared_bytes_of(threads) : shared_bytes;
        int blocks = blocks_that_fit(&copy, threads, shared);
        if (blocks * threads > best) {
            best = blocks * threads;
            *block_size = threads;
            *min_grid_size = blocks * SMS;
        }
    }
    return best > 0 ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}
