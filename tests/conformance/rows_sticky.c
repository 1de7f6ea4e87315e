/* SPDX-License-Identifier: BSD-2-Clause */
/* Sticky errors: each row loses its device. */
#include "conformance.h"

static _Atomic int calls;

static void note(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

enum { LOST = CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS };

/* A kernel that writes where nothing is, and what comes of it. */
static void lose(struct CUstream_st *s)
{
    NEED(conf_launch("fault", s, NULL));
    conf_result("the stream of the fault", d->cuStreamSynchronize(s), LOST);
}

static void events(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *done = conf_event(), *never = conf_event(), *pending = conf_event();
    NEED(d->cuEventRecord(done, other));
    NEED(d->cuEventSynchronize(done));
    struct spin spin = conf_spin(other);
    NEED(d->cuEventRecord(pending, other));
    lose(s);
    conf_result("an event that was over", d->cuEventQuery(done), LOST);
    conf_result("an event never recorded", d->cuEventQuery(never), LOST);
    conf_result("a pending event of another stream", d->cuEventQuery(pending), LOST);
    conf_result("cuEventSynchronize", d->cuEventSynchronize(pending), LOST);
    conf_result("another stream", d->cuStreamQuery(other), LOST);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(other), LOST);
    (void)spin;
}

static void calls_after(void)
{
    struct CUstream_st *s = conf_stream(), *t;
    struct CUevent_st *e = conf_event(), *f;
    struct CUfunc_st *nothing = conf_kernel("nothing");
    culvert__CUdeviceptr address = conf_device(16), more;
    void *p = conf_pinned(4096), *q;
    culvert__CUmodule m;
    int n;
    lose(s);
    conf_result("cuLaunchKernel", d->cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL),
                LOST);
    conf_result("cuMemsetD8Async", d->cuMemsetD8Async(address, 0, 16, s), LOST);
    conf_result("cuMemcpyHtoDAsync", d->cuMemcpyHtoDAsync(address, p, 16, s), LOST);
    conf_result("cuLaunchHostFunc", d->cuLaunchHostFunc(s, note, NULL), LOST);
    conf_result("cuEventRecord", d->cuEventRecord(e, s), LOST);
    conf_result("cuStreamWaitEvent", d->cuStreamWaitEvent(s, e, 0), LOST);
    conf_result("cuMemAlloc", d->cuMemAlloc(&more, 16), LOST);
    conf_result("cuMemHostAlloc", d->cuMemHostAlloc(&q, 16, 0), LOST);
    conf_result("cuStreamCreateWithPriority", d->cuStreamCreateWithPriority(&t, 1, 0), LOST);
    conf_result("cuEventCreate", d->cuEventCreate(&f, 0), LOST);
    conf_result("cuModuleLoadDataEx",
                d->cuModuleLoadDataEx(&m, d->simulated ? conf_sim_module() : conf_ptx, 0, NULL,
                                      NULL),
                LOST);
    conf_result("cuDeviceGetCount", d->cuDeviceGetCount(&n), 0);
    conf_result("cuCtxSetCurrent", d->cuCtxSetCurrent(conf_context), 0);
}

static void releases_after(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    culvert__CUdeviceptr address = conf_device(16);
    void *p = conf_pinned(4096);
    lose(s);
    conf_result("cuMemFree", d->cuMemFree(address), LOST);
    conf_result("cuMemFreeHost", d->cuMemFreeHost(p), LOST);
    conf_result("cuEventDestroy", d->cuEventDestroy(e), LOST);
    conf_result("cuStreamDestroy", d->cuStreamDestroy(other), LOST);
}

static void host_functions(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    NEED(d->cuStreamWaitEvent(other, e, 0));
    struct spin spin = conf_spin(other);
    NEED(d->cuLaunchHostFunc(other, note, NULL));
    NEED(conf_launch("fault", s, NULL));
    int result = d->cuLaunchHostFunc(s, note, NULL); /* the fault may have come already */
    conf_true("queued behind it", result == 0 || result == LOST);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), LOST);
    conf_let_go(spin);
    conf_sleep(1);
    conf_range("host functions that ran", atomic_load(&calls), 0, 0);
}

static void no_way_back(void)
{
    struct CUstream_st *s = conf_stream(), *t = NULL;
    struct CUctx_st *again = NULL;
    lose(s);
    d->cuDevicePrimaryCtxRelease(0);
    int result = d->cuDevicePrimaryCtxRetain(&again, 0);
    if (result == 0) {
        d->cuCtxSetCurrent(again);
        result = d->cuStreamCreateWithPriority(&t, 1, 0);
    }
    conf_true("a new context does not work", result != 0);
    conf_note("%d", result);
}

static int synchronize(void *s)
{
    return d->cuStreamSynchronize(s);
}

static void wakes_the_blocked(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    conf_spin(other);
    struct conf_call *call = conf_async(synchronize, other);
    conf_true("another stream is waited for", conf_blocked(call));
    lose(s);
    conf_true("the wait ends", conf_returned(call));
    conf_result("with", conf_join(call), LOST);
}

const struct row conf_sticky_rows[] = {
    {"after a sticky error every event and stream queries as it", events, 0},
    {"after a sticky error all calls that need the device return it", calls_after, 0},
    {"after a sticky error so do releases", releases_after, 0},
    {"host functions behind a sticky error never run (case 36)", host_functions, 0},
    {"nothing brings the device back in this process", no_way_back, 0},
    {"a sticky error ends waits", wakes_the_blocked, 0},
    {0},
};
