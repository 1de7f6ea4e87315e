/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Graphs with Culvert and by hand: as one launch beside 16, launched again with another argument, and
 * what the first launch of an instance costs. Both sides have the same device, kernel and binding; the
 * driver's functions are called on a stream that the library uses for nothing.
 */
#include "bench.h"

#include "gpu/graph.h"

#include "empty.culvert.h"

#include <ev.h>
#include <stdlib.h>

enum { KERNELS = 16, BATCH = 12, LARGE = 1000 };

struct graphs {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream, *other;
    culvert_future *module;
    culvert_kernel *take;
    culvert_graph *graph;
    const culvert__driver *drv;
    struct CUstream_st *raw; /* of `other` */
    struct CUevent_st *event;
    struct CUgraph_st *raw_graph;
    struct CUgraphNode_st *first;
    struct CUgraphExec_st *exec;
    uint64_t start;
    samples *samples;
};

static const culvert_grid one_warp = {.blocks = {1}, .threads = {32}};
static const void *const nowhere = NULL;

static void check(const graphs *g, int result, const char *call)
{
    if (result != 0)
        die(call, culvert__driver_error_name(g->drv, result));
}

static void made(const void *handle, const culvert_error *err, const char *what)
{
    if (handle == NULL)
        die(what, err->message);
}

/* ---- by hand ---- */

static culvert__CUDA_KERNEL_NODE_PARAMS params_of(const graphs *g, void **params)
{
    return (culvert__CUDA_KERNEL_NODE_PARAMS){.func = g->take->function,
                                              .gridDimX = 1,
                                              .gridDimY = 1,
                                              .gridDimZ = 1,
                                              .blockDimX = 32,
                                              .blockDimY = 1,
                                              .blockDimZ = 1,
                                              .kernelParams = params};
}

static struct CUgraph_st *raw_graph(const graphs *g, unsigned kernels,
                                    struct CUgraphNode_st **first)
{
    struct CUgraph_st *graph;
    struct CUgraphNode_st *last = NULL;
    unsigned value = 0;
    const void *address = nowhere;
    void *params[] = {&value, &address};
    culvert__CUDA_KERNEL_NODE_PARAMS p = params_of(g, params);
    check(g, g->drv->cuGraphCreate(&graph, 0), "cuGraphCreate");
    for (unsigned i = 0; i < kernels; i++) {
        struct CUgraphNode_st *node;
        check(g, g->drv->cuGraphAddKernelNode(&node, graph, &last, i > 0 ? 1 : 0, &p),
              "cuGraphAddKernelNode");
        if (i == 0)
            *first = node;
        last = node;
    }
    return graph;
}

static struct CUgraphExec_st *raw_instance(const graphs *g, struct CUgraph_st *graph)
{
    struct CUgraphExec_st *exec;
    check(g, g->drv->cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    return exec;
}

static void raw_end(const graphs *g)
{
    int result;
    check(g, g->drv->cuEventRecord(g->event, g->raw), "cuEventRecord");
    while ((result = g->drv->cuEventQuery(g->event)) == CULVERT__CUDA_ERROR_NOT_READY)
        ;
    check(g, result, "cuEventQuery");
}

void graphs_raw_graph(void *self, size_t count, samples *out)
{
    graphs *g = self;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        check(g, g->drv->cuGraphLaunch(g->exec, g->raw), "cuGraphLaunch");
        raw_end(g);
        samples_add(out, (double)(now_ns() - start) / 1e3);
    }
}

void graphs_raw_launches(void *self, size_t count, samples *out)
{
    graphs *g = self;
    unsigned value = 0;
    const void *address = nowhere;
    void *params[] = {&value, &address};
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        for (int k = 0; k < KERNELS; k++)
            check(g,
                  g->drv->cuLaunchKernel(g->take->function, 1, 1, 1, 32, 1, 1, 0, g->raw, params,
                                         NULL),
                  "cuLaunchKernel");
        raw_end(g);
        samples_add(out, (double)(now_ns() - start) / 1e3);
    }
}

void graphs_raw_again(void *self, size_t count, samples *out)
{
    graphs *g = self;
    const void *address = nowhere;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t start = now_ns();
        for (unsigned k = 0; k < BATCH; k++) {
            void *params[] = {&k, &address};
            culvert__CUDA_KERNEL_NODE_PARAMS p = params_of(g, params);
            check(g, g->drv->cuGraphExecKernelNodeSetParams(g->exec, g->first, &p),
                  "cuGraphExecKernelNodeSetParams");
            check(g, g->drv->cuGraphLaunch(g->exec, g->raw), "cuGraphLaunch");
            check(g, g->drv->cuEventRecord(g->event, g->raw), "cuEventRecord");
        }
        samples_add(out, (double)(now_ns() - start) / 1e3 / BATCH);
        raw_end(g);
    }
}

/* The calling thread's time in the launch of a new instance of a large graph. */
static void first_launches(graphs *g, size_t count, samples *out, bool upload)
{
    struct CUgraphNode_st *first;
    struct CUgraph_st *graph = raw_graph(g, LARGE, &first);
    for (size_t i = 0; i < count; i++) {
        struct CUgraphExec_st *exec = raw_instance(g, graph);
        if (upload)
            check(g, g->drv->cuGraphUpload(exec, g->raw), "cuGraphUpload");
        raw_end(g);
        uint64_t start = now_ns();
        check(g, g->drv->cuGraphLaunch(exec, g->raw), "cuGraphLaunch");
        samples_add(out, (double)(now_ns() - start) / 1e3);
        raw_end(g);
        check(g, g->drv->cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    }
    check(g, g->drv->cuGraphDestroy(graph), "cuGraphDestroy");
}

void graphs_raw_first(void *self, size_t count, samples *out)
{
    first_launches(self, count, out, false);
}

void graphs_raw_uploaded(void *self, size_t count, samples *out)
{
    first_launches(self, count, out, true);
}

void graphs_raw_later(void *self, size_t count, samples *out)
{
    graphs *g = self;
    struct CUgraphNode_st *first;
    struct CUgraph_st *graph = raw_graph(g, LARGE, &first);
    struct CUgraphExec_st *exec = raw_instance(g, graph);
    for (size_t i = 0; i <= count; i++) {
        uint64_t start = now_ns();
        check(g, g->drv->cuGraphLaunch(exec, g->raw), "cuGraphLaunch");
        if (i > 0)
            samples_add(out, (double)(now_ns() - start) / 1e3);
        raw_end(g);
    }
    check(g, g->drv->cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    check(g, g->drv->cuGraphDestroy(graph), "cuGraphDestroy");
}

/* ---- with Culvert ---- */

static void add_kernels(const graphs *g, culvert_seq *seq)
{
    for (int i = 0; i < KERNELS; i++)
        culvert_seq_launch(seq, g->take, &one_warp,
                           CULVERT_ARGS(CULVERT_U32(0), CULVERT_BUFFER(NULL)));
}

static void over(culvert_future *done, void *arg)
{
    graphs *g = arg;
    const culvert_error *err = culvert_get_error(done);
    if (err != NULL)
        die("a graph", err->message);
    if (g->samples != NULL)
        samples_add(g->samples, (double)(now_ns() - g->start) / 1e3);
}

static void submit(graphs *g, culvert_future *future)
{
    if (culvert_on_settled(future, over, g, NULL) != CULVERT_OK)
        die("culvert_on_settled", "no memory");
}

void graphs_graph(void *self, size_t count, samples *out)
{
    graphs *g = self;
    g->samples = out;
    for (size_t i = 0; i < count; i++) {
        g->start = now_ns();
        submit(g, culvert_graph_launch(g->stream, g->graph, NULL, 0));
        ev_run(g->ev, 0);
    }
}

void graphs_launches(void *self, size_t count, samples *out)
{
    graphs *g = self;
    g->samples = out;
    for (size_t i = 0; i < count; i++) {
        g->start = now_ns();
        culvert_seq *seq = culvert_seq_begin(g->stream);
        add_kernels(g, seq);
        submit(g, culvert_seq_submit(seq));
        ev_run(g->ev, 0);
    }
}

void graphs_again(void *self, size_t count, samples *out)
{
    graphs *g = self;
    g->samples = NULL;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t start = now_ns();
        for (unsigned k = 0; k < BATCH; k++) {
            const culvert_bind bind = {.op = 0, .index = 0, .value = CULVERT_U32(k)};
            submit(g, culvert_graph_launch(g->stream, g->graph, &bind, 1));
        }
        samples_add(out, (double)(now_ns() - start) / 1e3 / BATCH);
        ev_run(g->ev, 0);
    }
}

/* ---- life ---- */

static void open_raw(graphs *g)
{
    g->drv = g->gpu->drv;
    g->raw = culvert_stream_native(g->other);
    check(g, g->drv->cuCtxSetCurrent(g->gpu->device->ctx), "cuCtxSetCurrent");
    check(g, g->drv->cuEventCreate(&g->event, CULVERT__CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    g->raw_graph = raw_graph(g, KERNELS, &g->first);
    g->exec = raw_instance(g, g->raw_graph);
}

graphs *graphs_open(const char *driver, int device)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    graphs *g = calloc(1, sizeof *g);
    if (g == NULL)
        die("graphs", "out of memory");
    options.driver = driver;
    g->ev = ev_loop_new(0);
    made(g->loop = culvert_loop_new(g->ev, &options, &err), &err, "culvert_loop_new");
    made(g->gpu = culvert_gpu_open(g->loop, device, NULL, &err), &err, "culvert_gpu_open");
    made(g->stream = culvert_stream_new(g->gpu, NULL, &err), &err, "culvert_stream_new");
    made(g->other = culvert_stream_new(g->gpu, NULL, &err), &err, "culvert_stream_new");
    g->module = culvert_module_load(g->gpu, &culvert_image_empty);
    if (culvert_await(g->module, 60) != CULVERT_OK)
        die("culvert_module_load", culvert_get_error(g->module)->message);
    made(g->take = culvert_module_kernel(culvert_value(g->module), "take", &err), &err,
         "culvert_module_kernel");
    culvert_seq *seq = culvert_seq_begin(g->stream);
    add_kernels(g, seq);
    culvert_future *compiled = culvert_seq_compile(seq);
    if (culvert_await(compiled, 60) != CULVERT_OK)
        die("culvert_seq_compile", culvert_get_error(compiled)->message);
    g->graph = culvert_take(compiled);
    culvert_unref(compiled);
    open_raw(g);
    return g;
}

void graphs_close(graphs *g)
{
    (void)g->drv->cuGraphExecDestroy(g->exec);
    (void)g->drv->cuGraphDestroy(g->raw_graph);
    (void)g->drv->cuEventDestroy(g->event);
    culvert_graph_unref(g->graph);
    culvert_unref(g->module);
    culvert_stream_unref(g->stream);
    culvert_stream_unref(g->other);
    culvert_gpu_close(g->gpu);
    culvert_loop_free(g->loop);
    ev_loop_destroy(g->ev);
    free(g);
}
