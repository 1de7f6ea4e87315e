/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many blocks of a kernel run at once, and the shared memory that a kernel may have.
 *
 * The driver works both out from the kernel's attributes, without asking the device, so nothing here
 * blocks.
 *
 * Invariants:
 *   - `dynamic_set` is what the function is allowed to be launched with; it only grows.
 *   - `fit` of a kernel is the driver's last answer, for that size of a block: a kernel is launched with
 *     the same sizes again and again.
 */
#include "gpu/flow.h"

/* ---- shared memory ---- */

unsigned culvert__kernel_most_shared(const culvert_kernel *kernel)
{
    const culvert_gpu_description *limits = &kernel->module->gpu->device->description;
    unsigned limit = limits->max_shared_bytes;
    if (limits->max_shared_optin_bytes > limit)
        limit = limits->max_shared_optin_bytes;
    return limit > kernel->static_shared ? limit - kernel->static_shared : 0;
}

int culvert__kernel_allow_shared(culvert_kernel *kernel, unsigned bytes, const char **call)
{
    culvert_gpu *gpu = kernel->module->gpu;
    if (bytes <= kernel->dynamic_set)
        return CULVERT__CUDA_SUCCESS;
    culvert__visit visit = culvert__driver_enter(gpu, "cuFuncSetAttribute");
    int result = visit.scope.result;
    *call = "cuCtxPushCurrent";
    if (result == CULVERT__CUDA_SUCCESS) {
        *call = "cuFuncSetAttribute";
        result =
            gpu->drv->cuFuncSetAttribute(kernel->function,
                                         CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)bytes);
    }
    culvert__driver_leave(gpu, visit);
    if (result == CULVERT__CUDA_SUCCESS)
        kernel->dynamic_set = bytes;
    return result;
}

/* ---- blocks ---- */

unsigned culvert__kernel_most_threads(const culvert_kernel *kernel)
{
    unsigned limit = kernel->module->gpu->device->description.max_threads_per_block;
    return kernel->max_threads != 0 && kernel->max_threads < limit ? kernel->max_threads : limit;
}

int culvert__kernel_fit(culvert_kernel *kernel, unsigned threads, unsigned shared_bytes,
                        unsigned *blocks, const char **call)
{
    culvert_gpu *gpu = kernel->module->gpu;
    culvert__fit *fit = &kernel->fit;
    if (fit->threads != threads || fit->shared_bytes != shared_bytes) {
        int of_one = 0;
        culvert__visit visit =
            culvert__driver_enter(gpu, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
        int result = visit.scope.result;
        *call = "cuCtxPushCurrent";
        if (result == CULVERT__CUDA_SUCCESS) {
            *call = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
            result =
                gpu->drv->cuOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, kernel->function,
                                                                      (int)threads, shared_bytes);
        }
        culvert__driver_leave(gpu, visit);
        if (result != CULVERT__CUDA_SUCCESS)
            return result;
        *fit = (culvert__fit){threads, shared_bytes, (unsigned)of_one};
    }
    *blocks = fit->blocks * gpu->device->description.multiprocessors;
    return CULVERT__CUDA_SUCCESS;
}

/* ---- the program asks ---- */

/* A code where the kernel cannot be asked about. */
static int refused(culvert_kernel *kernel, const char *op, size_t shared_bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__check_thread(culvert__gpu_core(kernel->module->gpu), op);
    if (culvert__gpu_refuses(kernel->module->gpu, op, NULL, &err))
        return err.code;
    return shared_bytes > culvert__kernel_most_shared(kernel) ? CULVERT_EINVAL : CULVERT_OK;
}

static int failed(culvert_kernel *kernel, int result, const char *call, const char *op)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (result == CULVERT__CUDA_SUCCESS)
        return CULVERT_OK;
    culvert__gpu_driver_failed(kernel->module->gpu, result, call, op, NULL, &err);
    return err.code;
}

int culvert_kernel_occupancy(culvert_kernel *kernel, size_t shared_bytes, unsigned *blocks,
                             unsigned *threads)
{
    static const char op[] = "culvert_kernel_occupancy";
    const char *call;
    int grid = 0, block = 0;
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(kernel, op, "kernel");
    int code = refused(kernel, op, shared_bytes);
    if (code != CULVERT_OK)
        return code;
    culvert_gpu *gpu = kernel->module->gpu;
    int result = culvert__kernel_allow_shared(kernel, (unsigned)shared_bytes, &call);
    if (result == CULVERT__CUDA_SUCCESS) {
        culvert__visit visit = culvert__driver_enter(gpu, "cuOccupancyMaxPotentialBlockSize");
        result = visit.scope.result;
        call = "cuCtxPushCurrent";
        if (result == CULVERT__CUDA_SUCCESS) {
            call = "cuOccupancyMaxPotentialBlockSize";
            result = gpu->drv->cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel->function,
                                                                NULL, shared_bytes, 0);
        }
        culvert__driver_leave(gpu, visit);
    }
    code = failed(kernel, result, call, op);
    if (code == CULVERT_OK && blocks != NULL)
        *blocks = (unsigned)grid;
    if (code == CULVERT_OK && threads != NULL)
        *threads = (unsigned)block;
    return code;
}

int culvert_kernel_max_blocks(culvert_kernel *kernel, unsigned threads, size_t shared_bytes,
                              unsigned *blocks)
{
    static const char op[] = "culvert_kernel_max_blocks";
    const char *call;
    unsigned most = 0;
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(kernel, op, "kernel");
    CULVERT__REQUIRE(blocks, op, "blocks");
    int code = refused(kernel, op, shared_bytes);
    if (code == CULVERT_OK && (threads == 0 || threads > culvert__kernel_most_threads(kernel)))
        code = CULVERT_EINVAL;
    if (code != CULVERT_OK)
        return code;
    int result = culvert__kernel_allow_shared(kernel, (unsigned)shared_bytes, &call);
    if (result == CULVERT__CUDA_SUCCESS)
        result = culvert__kernel_fit(kernel, threads, (unsigned)shared_bytes, &most, &call);
    code = failed(kernel, result, call, op);
    if (code == CULVERT_OK)
        *blocks = most;
    return code;
}
