/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stream that the program made: the runtime's, another library's, the default streams.
 *
 * Invariants: it is never destroyed and never serves as another stream. Others put work on it, so it
 * counts as exposed from the beginning (whether it is being captured is asked before anything is
 * put there), and half of the usual cap is for us.
 */
#include "gpu/flow.h"

/* Of this device's context? The default streams are of whatever context is current: that is ours here. */
static bool check_context(culvert_gpu *gpu, struct CUstream_st *native, const char *op,
                          const char *where, culvert_error *err)
{
    struct CUctx_st *ctx = NULL;
    const char *call = "cuCtxPushCurrent";
    culvert__visit visit = culvert__driver_enter(gpu, call);
    int r = visit.scope.result;
    if (r == CULVERT__CUDA_SUCCESS) {
        call = "cuStreamGetCtx";
        r = gpu->drv->cuStreamGetCtx(native, &ctx);
    }
    culvert__driver_leave(gpu, visit);
    if (r != CULVERT__CUDA_SUCCESS) {
        culvert__gpu_result(gpu, r, false, call, op, where, err);
        return false;
    }
    if (ctx == gpu->device->ctx)
        return true;
    culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                       "the stream belongs to another context than the one that device %d was "
                       "opened with (culvert_gpu_options.context; NULL is the primary one)",
                       gpu->device->ordinal);
    return false;
}

culvert_stream *culvert_stream_adopt_at(const char *where, culvert_gpu *gpu,
                                        struct CUstream_st *native, culvert_error *err)
{
    const char *op = "culvert_stream_adopt";
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, op, where,
                           "the device was opened before fork(): a child cannot use it");
        return NULL;
    }
    CULVERT__REQUIRE(gpu, op, "gpu");
    if (native == NULL)
        native = CULVERT__CU_STREAM_LEGACY; /* the same stream; NULL stands for none here */
    if (culvert__gpu_refuses(gpu, op, where, err) || !check_context(gpu, native, op, where, err))
        return NULL;
    culvert_stream *s = culvert__stream_wrap(gpu, native, op, where, err);
    if (s == NULL)
        return NULL;
    s->adopted = s->exposed = true;
    s->cap = CULVERT__STREAM_CAP / 2;
    return s;
}

culvert_stream *culvert_stream_adopt(culvert_gpu *gpu, struct CUstream_st *native,
                                     culvert_error *err)
{
    return culvert_stream_adopt_at(NULL, gpu, native, err);
}
