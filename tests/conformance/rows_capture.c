/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream capture. */
#include "conformance.h"

#include <stdio.h>

enum {
    GLOBAL = CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL,
    LOCAL = CULVERT__CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    RELAXED = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED
};

static int end(struct CUstream_st *s)
{
    struct CUgraph_st *g = NULL;
    int result = d->cuStreamEndCapture(s, &g);
    if (g)
        d->cuGraphDestroy(g);
    return result;
}

static void runs_later(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUgraph_st *g;
    struct CUgraphExec_st *exec;
    uint32_t *word = conf_pinned(4);
    int status = -1;
    conf_result("begin", d->cuStreamBeginCapture(s, LOCAL), 0);
    NEED(d->cuStreamIsCapturing(s, &status));
    conf_range("status", status, 1, 1);
    NEED(conf_append(s, word, 1));
    NEED(conf_append(s, word, 2));
    conf_result("end", d->cuStreamEndCapture(s, &g), 0);
    size_t n = 0;
    NEED(d->cuGraphGetNodes(g, NULL, &n));
    conf_range("nodes", (long long)n, 2, 2);
    conf_range("word", conf_read(word), 0, 0);
    NEED(d->cuGraphInstantiateWithFlags(&exec, g, 0));
    NEED(d->cuGraphLaunch(exec, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("word", conf_read(word), 12, 12);
}

static void wrong_ends(void)
{
    struct CUstream_st *s = conf_stream();
    conf_result("end without begin", end(s), CULVERT__CUDA_ERROR_ILLEGAL_STATE);
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    conf_result("begin twice", d->cuStreamBeginCapture(s, LOCAL),
                CULVERT__CUDA_ERROR_ILLEGAL_STATE);
    conf_result("end", end(s), 0);
    conf_result("begin on the legacy stream", d->cuStreamBeginCapture(NULL, LOCAL),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static void unjoined(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    int status = -1;
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    NEED(conf_launch("nothing", s, NULL));
    NEED(d->cuEventRecord(e, s));
    NEED(d->cuStreamWaitEvent(other, e, 0));
    NEED(d->cuStreamIsCapturing(other, &status));
    conf_range("the other stream is captured", status, 1, 1);
    NEED(conf_launch("nothing", other, NULL));
    conf_result("end", end(s), CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    conf_result("the other stream afterwards", d->cuStreamSynchronize(other), 0);
}

static void unmatched(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    NEED(d->cuEventRecord(e, s));
    NEED(d->cuStreamWaitEvent(other, e, 0));
    conf_result("end on the other stream", end(other),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    conf_result("end", end(s), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void isolation(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    int status = -1;
    NEED(d->cuEventRecord(e, other));
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    conf_result("wait for work outside", d->cuStreamWaitEvent(s, e, 0),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    NEED(d->cuStreamIsCapturing(s, &status));
    conf_range("status", status, 2, 2);
    conf_result("a launch", conf_launch("nothing", s, NULL),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    conf_result("end", end(s), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    conf_result("afterwards", d->cuStreamSynchronize(s), 0);
}

static void merging(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUevent_st *e = conf_event();
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    NEED(d->cuStreamBeginCapture(other, LOCAL));
    NEED(d->cuEventRecord(e, s));
    conf_result("wait for another capture", d->cuStreamWaitEvent(other, e, 0),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_MERGE);
    conf_result("end", end(other), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    conf_note("the other one: %d", end(s));
}

static void captured_event(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUevent_st *e = conf_event();
    NEED(d->cuStreamBeginCapture(s, RELAXED));
    NEED(d->cuEventRecord(e, s));
    conf_result("cuEventQuery", d->cuEventQuery(e), CULVERT__CUDA_ERROR_CAPTURED_EVENT);
    conf_note("end: %d", end(s));
    NEED(d->cuEventRecord(e, s));
    conf_result("recorded again", d->cuEventSynchronize(e), 0);
}

static void captured_stream(void)
{
    struct CUstream_st *s = conf_stream();
    NEED(d->cuStreamBeginCapture(s, RELAXED));
    conf_result("cuStreamQuery", d->cuStreamQuery(s),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    conf_result("end", end(s), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    NEED(d->cuStreamBeginCapture(s, RELAXED));
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    conf_result("end", end(s), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void implicit(void)
{
    struct CUstream_st *blocking = conf_blocking_stream(), *free_stream = conf_stream();
    int status = -1;
    NEED(d->cuStreamBeginCapture(free_stream, RELAXED));
    conf_result("beside a non-blocking stream's", conf_launch("nothing", NULL, NULL), 0);
    conf_result("end", end(free_stream), 0);
    NEED(d->cuStreamBeginCapture(blocking, RELAXED));
    conf_result("cuStreamIsCapturing(NULL)", d->cuStreamIsCapturing(NULL, &status),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    conf_result("a launch on the legacy stream", conf_launch("nothing", NULL, NULL),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    conf_result("end", end(blocking), CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* An unsafe call by another thread. */
struct unsafe {
    int mode;
    int (*call)(struct CUevent_st *e);
    struct CUevent_st *event;
};

static int allocate(struct CUevent_st *e)
{
    culvert__CUdeviceptr address;
    (void)e;
    return d->cuMemAlloc(&address, 1 << 20);
}

static int query(struct CUevent_st *e)
{
    return d->cuEventQuery(e);
}

static int in_mode(void *arg)
{
    struct unsafe *u = arg;
    int mode = u->mode;
    int result = d->cuThreadExchangeStreamCaptureMode(&mode);
    return result ? result : u->call(u->event);
}

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

static void by_modes(int (*call)(struct CUevent_st *e))
{
    struct CUstream_st *s = conf_stream();
    struct unsafe u = {.call = call, .event = conf_event()};
    for (int capture = GLOBAL; capture <= RELAXED; capture++) {
        for (u.mode = GLOBAL; u.mode <= RELAXED; u.mode++) {
            bool breaks = capture == GLOBAL && u.mode == GLOBAL;
            char what[64];
            NEED(d->cuStreamBeginCapture(s, capture));
            int result = conf_join(conf_async(in_mode, &u));
            snprintf(what, sizeof what, "%s, caller %s", mode_names[capture], mode_names[u.mode]);
            conf_result(what, result, breaks ? CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0);
            conf_result("end", end(s), breaks ? CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : 0);
        }
    }
}

static void allocating(void)
{
    by_modes(allocate);
}
static void querying(void)
{
    by_modes(query);
}

/* Calls by the capturing thread itself, in global mode. */
static void own(const char *what, int (*call)(void *), void *arg, bool unsafe)
{
    struct CUstream_st *s = conf_stream();
    NEED(d->cuStreamBeginCapture(s, GLOBAL));
    conf_result(what, call(arg), unsafe ? CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0);
    conf_result("end", end(s), unsafe ? CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : 0);
}

static int own_alloc(void *unused)
{
    (void)unused;
    return allocate(NULL);
}
static int own_free(void *address)
{
    return d->cuMemFree(*(culvert__CUdeviceptr *)address);
}
static int own_host_alloc(void *unused)
{
    void *p;
    (void)unused;
    return d->cuMemHostAlloc(&p, 1 << 20, 0);
}
static int own_event_query(void *e)
{
    return d->cuEventQuery(e);
}
static int own_event_synchronize(void *e)
{
    return d->cuEventSynchronize(e);
}
static int own_stream_query(void *s)
{
    return d->cuStreamQuery(s);
}
static int own_stream_synchronize(void *s)
{
    return d->cuStreamSynchronize(s);
}
static int own_event_create(void *unused)
{
    struct CUevent_st *e;
    (void)unused;
    return d->cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING);
}
static int own_event_destroy(void *e)
{
    return d->cuEventDestroy(e);
}
static int own_event_record(void *e)
{
    return d->cuEventRecord(e, conf_stream());
}
static int own_stream_create(void *unused)
{
    struct CUstream_st *s;
    (void)unused;
    return d->cuStreamCreateWithPriority(&s, 1, 0);
}
static int own_launch(void *s)
{
    return conf_launch("nothing", s, NULL);
}
static int own_info(void *unused)
{
    size_t a, b;
    (void)unused;
    return d->cuMemGetInfo(&a, &b);
}

static void own_unsafe_calls(void)
{
    culvert__CUdeviceptr address = conf_device(1 << 20);
    own("cuMemAlloc", own_alloc, NULL, true);
    own("cuMemFree", own_free, &address, true);
    own("cuMemHostAlloc", own_host_alloc, NULL, true);
    own("cuEventQuery", own_event_query, conf_event(), true);
    own("cuEventSynchronize", own_event_synchronize, conf_event(), true);
    own("cuStreamQuery of another", own_stream_query, conf_stream(), true);
    own("cuStreamSynchronize of another", own_stream_synchronize, conf_stream(), true);
}

static void own_safe_calls(void)
{
    own("cuEventCreate", own_event_create, NULL, false);
    own("cuEventRecord elsewhere", own_event_record, conf_event(), false);
    own("cuEventDestroy", own_event_destroy, conf_event(), false);
    own("cuStreamCreateWithPriority", own_stream_create, NULL, false);
    own("cuLaunchKernel elsewhere", own_launch, conf_stream(), false);
    own("cuMemGetInfo", own_info, NULL, false);
}

static int end_elsewhere(void *s)
{
    return end(s);
}

static void wrong_thread(void)
{
    struct CUstream_st *s = conf_stream();
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    conf_result("another thread ends a thread-local one", conf_join(conf_async(end_elsewhere, s)),
                CULVERT__CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    conf_note("end: %d", end(s));
    NEED(d->cuStreamBeginCapture(s, RELAXED));
    conf_result("a relaxed one", conf_join(conf_async(end_elsewhere, s)), 0);
}

static void nothing_to_copy(void)
{
    struct CUstream_st *s = conf_stream();
    NEED(d->cuStreamBeginCapture(s, LOCAL));
    conf_result("cuMemcpyHtoDAsync", d->cuMemcpyHtoDAsync(0, NULL, 0, s), 0);
    conf_result("cuMemsetD8Async", d->cuMemsetD8Async(0, 0, 0, s), 0);
    conf_result("end", end(s), 0);
}

const struct row conf_capture_rows[] = {
    {"captured work runs when the graph is launched", runs_later, 0},
    {"captures that cannot begin or end", wrong_ends, 0},
    {"a captured fork has to be joined", unjoined, 0},
    {"a capture is ended where it began", unmatched, 0},
    {"a capture does not wait for work outside", isolation, 0},
    {"captures are not merged", merging, 0},
    {"an event recorded in a capture cannot be queried", captured_event, 0},
    {"a captured stream cannot be waited for", captured_stream, 0},
    {"the legacy stream breaks captures of blocking streams", implicit, 0},
    {"allocating breaks captures of other threads by mode (case 78)", allocating, 0},
    {"querying an event breaks captures of other threads by mode", querying, 0},
    {"unsafe calls by the capturing thread", own_unsafe_calls, 0},
    {"safe calls by the capturing thread", own_safe_calls, 0},
    {"another thread ends only relaxed captures", wrong_thread, 0},
    {"nothing to copy in a capture is success (case 91)", nothing_to_copy, 0},
    {0},
};
