/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Around every group of driver calls: the device's context is current, and the thread is in relaxed
 * capture mode, so that a call of ours never spoils a capture that somebody else has begun.
 *
 * Invariant: after scope_leave the thread's current context and capture mode are what they were
 * before scope_enter. Scopes nest. A lost device is not touched: calls to it would only fail.
 */
#include "gpu/gpu_internal.h"

culvert__scope culvert__scope_enter(const culvert__device *device)
{
    culvert__scope scope = {.mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED};
    struct CUctx_st *current = NULL;
    const culvert__driver *drv = device->drv;
    if (culvert__device_is_lost(device))
        return scope;
    scope.device = device;
    if (drv->cuCtxGetCurrent(&current) != CULVERT__CUDA_SUCCESS)
        current = NULL;
    if (current != device->ctx)
        scope.result = drv->cuCtxPushCurrent(device->ctx);
    scope.pushed = current != device->ctx && scope.result == CULVERT__CUDA_SUCCESS;
    scope.exchanged = drv->cuThreadExchangeStreamCaptureMode(&scope.mode) == CULVERT__CUDA_SUCCESS;
    return scope;
}

void culvert__scope_leave(culvert__scope scope)
{
    struct CUctx_st *popped;
    if (scope.device == NULL)
        return;
    const culvert__driver *drv = scope.device->drv;
    if (scope.exchanged)
        (void)drv->cuThreadExchangeStreamCaptureMode(&scope.mode);
    if (scope.pushed)
        (void)drv->cuCtxPopCurrent(&popped);
}
