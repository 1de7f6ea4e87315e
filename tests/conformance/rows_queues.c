/* SPDX-License-Identifier: BSD-2-Clause */
/* Hardware queues: how many operations wait in one, and what streams that share one do to each other. */
#include "conformance.h"

enum { MANY = 3000, DEPTH = 1021, TOLERANCE = 8 };

struct filler {
    struct CUstream_st *stream;
    culvert__CUdeviceptr device;
    char *host;
    struct CUfunc_st *nothing;
    struct CUgraphExec_st *exec;
    int (*one)(struct filler *f);
    _Atomic int n;
};

static int one_launch(struct filler *f)
{
    return d->cuLaunchKernel(f->nothing, 1, 1, 1, 1, 1, 1, 0, f->stream, NULL, NULL);
}
static int one_upload(struct filler *f)
{
    return d->cuMemcpyHtoDAsync(f->device, f->host, 64, f->stream);
}
static int one_fill(struct filler *f)
{
    return d->cuMemsetD8Async(f->device, 1, 64, f->stream);
}
static int one_graph(struct filler *f)
{
    return d->cuGraphLaunch(f->exec, f->stream);
}

static int fill(void *arg)
{
    struct filler *f = arg;
    while (atomic_load(&f->n) < MANY) {
        int result = f->one(f);
        if (result)
            return result;
        atomic_fetch_add(&f->n, 1);
    }
    return 0;
}

/* How many calls return behind a kernel that does not end. */
static void depth_of(int (*one)(struct filler *f))
{
    struct CUgraph_st *g;
    struct CUgraphNode_st *node;
    struct filler f = {.stream = conf_stream(),
                       .device = conf_device(64),
                       .host = (char *)conf_pinned(64),
                       .nothing = conf_kernel("nothing"),
                       .one = one};
    culvert__CUDA_KERNEL_NODE_PARAMS p = {.func = f.nothing,
                                          .gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1};
    NEED(d->cuGraphCreate(&g, 0));
    NEED(d->cuGraphAddKernelNode(&node, g, NULL, 0, &p));
    NEED(d->cuGraphInstantiateWithFlags(&f.exec, g, 0));
    struct spin spin = conf_spin(f.stream);
    struct conf_call *call = conf_async(fill, &f);
    int before = -1;
    for (int i = 0; i < 50 && before != atomic_load(&f.n); i++) { /* until it stands still */
        before = atomic_load(&f.n);
        conf_sleep(0.3);
    }
    conf_true("waits", conf_blocked(call));
    conf_range("calls that did not wait", atomic_load(&f.n), DEPTH - TOLERANCE, DEPTH + TOLERANCE);
    conf_let_go(spin);
    conf_result("result", conf_join(call), 0);
    NEED(d->cuStreamSynchronize(f.stream));
}

static void depth_of_launches(void)
{
    depth_of(one_launch);
}
static void depth_of_uploads(void)
{
    depth_of(one_upload);
}
static void depth_of_fills(void)
{
    depth_of(one_fill);
}
static void depth_of_graphs(void)
{
    depth_of(one_graph);
}

static void do_nothing(void *unused)
{
    (void)unused;
}

struct light {
    struct CUstream_st *stream;
    struct CUevent_st *event, *blocker;
    int kind;
};

static int many_light(void *arg)
{
    struct light *l = arg;
    int result = 0;
    for (int i = 0; i < 20000 && result == 0; i++) {
        if (l->kind == 0)
            result = d->cuEventRecord(l->event, l->stream);
        else if (l->kind == 1)
            result = d->cuStreamWaitEvent(l->stream, l->blocker, 0);
        else
            result = d->cuLaunchHostFunc(l->stream, do_nothing, NULL);
    }
    return result;
}

static void light_does_not_wait(int kind)
{
    struct light l = {conf_stream(), conf_event(), conf_event(), kind};
    struct CUstream_st *other = conf_stream();
    struct spin spin = conf_spin(l.stream), other_spin = conf_spin(other);
    NEED(d->cuEventRecord(l.blocker, other));
    struct conf_call *call = conf_async(many_light, &l);
    conf_true("20000 do not wait", conf_returned(call));
    conf_let_go(spin);
    conf_let_go(other_spin);
    conf_result("result", conf_join(call), 0);
    NEED(d->cuStreamSynchronize(l.stream));
}

static void records_do_not_wait(void)
{
    light_does_not_wait(0);
}
static void waits_do_not_wait(void)
{
    light_does_not_wait(1);
}
static void host_functions_do_not_wait(void)
{
    light_does_not_wait(2);
}

static bool over_within(struct CUstream_st *s, double seconds)
{
    for (int i = 0; i < (int)(seconds * 1000); i++) {
        if (d->cuStreamQuery(s) == 0)
            return true;
        conf_nap();
    }
    return false;
}

enum behind { NOTHING, RECORD, HOST_FUNCTION, KERNEL };

/* Streams that wait for a busy one, and then 16 that wait for nothing: how many of these stand still. */
static int stalled_by(int waiting, enum behind behind)
{
    enum { MOST = 64, INNOCENT = 16 };
    struct CUstream_st *busy = conf_stream(), *s[MOST], *innocent[INNOCENT];
    struct CUevent_st *e = conf_event();
    int stalled = INNOCENT;
    for (int i = 0; i < waiting; i++)
        s[i] = conf_stream();
    for (int i = 0; i < INNOCENT; i++)
        innocent[i] = conf_stream();
    struct spin spin = conf_spin(busy);
    NEED(d->cuEventRecord(e, busy));
    for (int i = 0; i < waiting; i++) {
        NEED(d->cuStreamWaitEvent(s[i], e, 0));
        if (behind == RECORD)
            NEED(d->cuEventRecord(conf_event(), s[i]));
        else if (behind == HOST_FUNCTION)
            NEED(d->cuLaunchHostFunc(s[i], do_nothing, NULL));
        else if (behind == KERNEL)
            NEED(conf_launch("nothing", s[i], NULL));
    }
    for (int i = 0; i < INNOCENT; i++)
        NEED(conf_launch("nothing", innocent[i], NULL));
    for (int tries = 0; tries < 500 && stalled > 0; tries++) {
        stalled = 0;
        for (int i = 0; i < INNOCENT; i++)
            stalled += d->cuStreamQuery(innocent[i]) != 0;
        conf_nap();
    }
    conf_let_go(spin);
    for (int i = 0; i < INNOCENT; i++)
        NEED(d->cuStreamSynchronize(innocent[i]));
    for (int i = 0; i < waiting; i++)
        NEED(d->cuStreamSynchronize(s[i]));
    return stalled;
}

static void stall_nobody(int waiting, enum behind behind)
{
    conf_range("of 16 streams stand still", stalled_by(waiting, behind), 0, 0);
}
static void stall_all(int waiting, enum behind behind)
{
    conf_range("of 16 streams stand still", stalled_by(waiting, behind), 16, 16);
}

static void wait_1(void)
{
    stall_all(1, KERNEL);
}
static void wait_1_with_a_host_function(void)
{
    stall_all(1, HOST_FUNCTION);
}
static void wait_4(void)
{
    stall_nobody(4, KERNEL);
}
static void wait_16(void)
{
    stall_all(16, KERNEL);
}
static void wait_16_of_32(void)
{
    stall_nobody(16, KERNEL);
}
static void wait_64(void)
{
    stall_all(64, KERNEL);
}
static void wait_64_with_nothing(void)
{
    stall_nobody(64, NOTHING);
}
static void wait_64_with_records(void)
{
    stall_nobody(64, RECORD);
}
static void wait_32_with_host_functions(void)
{
    stall_nobody(32, HOST_FUNCTION);
}

/* Streams that wait for an event and then have a host function. */

enum { HOST_STREAMS = 64 };

struct host_streams {
    struct CUstream_st *streams[HOST_STREAMS];
    struct CUevent_st *event;
    int most;
    _Atomic int n;
};

static int host_function_each(void *arg)
{
    struct host_streams *h = arg;
    int result = 0;
    while (result == 0 && atomic_load(&h->n) < h->most) {
        struct CUstream_st *s = h->streams[atomic_load(&h->n)];
        result = d->cuStreamWaitEvent(s, h->event, 0);
        if (result == 0)
            result = d->cuLaunchHostFunc(s, do_nothing, NULL);
        atomic_fetch_add(&h->n, 1);
    }
    return result;
}

static void host_functions_of(int streams, bool blocks)
{
    struct host_streams h = {.event = conf_event(), .most = streams};
    struct CUstream_st *busy = conf_stream();
    for (int i = 0; i < streams; i++)
        h.streams[i] = conf_stream();
    struct spin spin = conf_spin(busy);
    NEED(d->cuEventRecord(h.event, busy));
    struct conf_call *call = conf_async(host_function_each, &h);
    bool waited = blocks ? conf_blocked(call) : !conf_returned(call);
    conf_true(blocks ? "one waits" : "none waits", waited == blocks);
    conf_range("streams whose call returned", atomic_load(&h.n), blocks ? 56 : streams,
               blocks ? streams - 1 : streams);
    conf_let_go(spin);
    conf_result("result", conf_join(call), 0);
    for (int i = 0; i < streams; i++)
        NEED(d->cuStreamSynchronize(h.streams[i]));
}

static void host_functions_of_48(void)
{
    host_functions_of(48, false);
}
static void host_functions_of_64(void)
{
    host_functions_of(64, true);
}

/* With one queue: two operations of a busy stream, then another stream. */
static void one_queue_behind_a_kernel(void)
{
    struct CUstream_st *busy = conf_stream(), *innocent = conf_stream();
    struct spin spin = conf_spin(busy);
    NEED(conf_launch("nothing", innocent, NULL));
    conf_true("a kernel behind a running one of another stream runs", over_within(innocent, 2));
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(busy));
}

static void one_queue_behind_two_kernels(void)
{
    struct CUstream_st *busy = conf_stream(), *innocent = conf_stream();
    struct spin spin = conf_spin(busy);
    NEED(conf_launch("nothing", busy, NULL));
    NEED(conf_launch("nothing", innocent, NULL));
    conf_true("a kernel behind a waiting one of another stream stands still",
              !over_within(innocent, 1));
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(innocent));
}

static void kernels_run_at_once(void)
{
    enum { N = 16 };
    struct CUstream_st *s[N];
    struct spin spins[N];
    for (int i = 0; i < N; i++)
        s[i] = conf_stream();
    for (int i = 0; i < N; i++)
        spins[i] = conf_spin(s[i]);
    for (int i = N - 1; i >= 0; i--) { /* each ends only if it runs */
        conf_let_go(spins[i]);
        conf_result("kernel", d->cuStreamSynchronize(s[i]), 0);
    }
}

const struct row conf_queue_rows[] = {
    {"a launch waits behind 1021 launches", depth_of_launches, 0},
    {"a copy waits behind 1021 copies", depth_of_uploads, 0},
    {"a fill waits behind 1021 fills", depth_of_fills, 0},
    {"a graph launch waits behind 1021 graph launches", depth_of_graphs, 0},
    {"cuEventRecord never waits", records_do_not_wait, 0},
    {"cuStreamWaitEvent never waits", waits_do_not_wait, 0},
    {"cuLaunchHostFunc never waits on one stream", host_functions_do_not_wait, 0},
    {"nor where 48 streams have a host function that has not run", host_functions_of_48, 0},
    {"where 64 streams do, it waits", host_functions_of_64, 0},
    {"with one hardware queue a waiting stream with a kernel stalls others", wait_1,
     CONF_ONE_QUEUE},
    {"so does one with a host function", wait_1_with_a_host_function, CONF_ONE_QUEUE},
    {"64 waiting streams with nothing do not", wait_64_with_nothing, CONF_ONE_QUEUE},
    {"with 8 hardware queues 4 waiting streams with kernels stall nobody", wait_4, 0},
    {"16 do", wait_16, 0},
    {"64 with nothing do not", wait_64_with_nothing, 0},
    {"64 with a record do not", wait_64_with_records, 0},
    {"32 with host functions do not", wait_32_with_host_functions, 0},
    {"with 32 hardware queues 16 waiting streams with kernels stall nobody", wait_16_of_32,
     CONF_32_QUEUES},
    {"64 do", wait_64, CONF_32_QUEUES},
    {"with one hardware queue kernels of two streams run at once", one_queue_behind_a_kernel,
     CONF_ONE_QUEUE},
    {"with one hardware queue a second kernel of a stream stalls others",
     one_queue_behind_two_kernels, CONF_ONE_QUEUE},
    {"kernels of 16 streams run at once", kernels_run_at_once, 0},
    {0},
};
