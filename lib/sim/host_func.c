/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host_func.c: functions of the program in a stream. One thread runs those of the whole process
 * (engine.c), and the stream goes on when the function has returned.
 */
#include "sim/engine.h"

static int submit(culvert__CUstream handle, enum culvert__sim_function call,
                  struct sim_host_work work)
{
    struct CUstream_st *s;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0) {
        struct sim_op *op = culvert__sim_op_new(SIM_HOST, call);
        work.stream = handle;
        op->work.u.host = work;
        result = culvert__sim_submit(s, op);
    }
    culvert__sim_unlock();
    return result;
}

int cuLaunchHostFunc(culvert__CUstream handle, culvert__CUhostFn fn, void *arg)
{
    CULVERT__SIM_ENTER(cuLaunchHostFunc);
    if (!fn)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    return submit(handle, culvert__SIM_cuLaunchHostFunc,
                  (struct sim_host_work){.fn = fn, .arg = arg});
}

int cuStreamAddCallback(culvert__CUstream handle, culvert__sim_stream_callback fn, void *arg,
                        unsigned int flags)
{
    CULVERT__SIM_ENTER(cuStreamAddCallback);
    struct CUstream_st *s;
    if (!fn || flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_capture_conflict(s);
    culvert__sim_unlock();
    if (result)
        return result;
    return submit(handle, culvert__SIM_cuStreamAddCallback,
                  (struct sim_host_work){.callback = fn, .arg = arg});
}
