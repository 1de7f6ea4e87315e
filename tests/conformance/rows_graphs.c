/* SPDX-License-Identifier: BSD-2-Clause */
/* Graphs of explicit nodes. */
#include "conformance.h"

static culvert__CUDA_KERNEL_NODE_PARAMS params_of(const char *kernel, void **params)
{
    return (culvert__CUDA_KERNEL_NODE_PARAMS){.func = conf_kernel(kernel),
                                              .gridDimX = 1,
                                              .gridDimY = 1,
                                              .gridDimZ = 1,
                                              .blockDimX = 1,
                                              .blockDimY = 1,
                                              .blockDimZ = 1,
                                              .kernelParams = params};
}

static struct CUgraphNode_st *add_append(struct CUgraph_st *g, struct CUgraphNode_st *after,
                                         uint32_t *to, uint32_t digit)
{
    struct CUgraphNode_st *node = NULL;
    void *params[] = {&to, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = params_of("append", params);
    NEED(d->cuGraphAddKernelNode(&node, g, &after, after ? 1 : 0, &p));
    return node;
}

static struct CUgraph_st *graph(void)
{
    struct CUgraph_st *g = NULL;
    NEED(d->cuGraphCreate(&g, 0));
    return g;
}

static struct CUgraphExec_st *instantiate(struct CUgraph_st *g)
{
    struct CUgraphExec_st *exec = NULL;
    NEED(d->cuGraphInstantiateWithFlags(&exec, g, 0));
    return exec;
}

static culvert__CUDA_MEMCPY3D row_copy(culvert__CUdeviceptr dst, const void *src, size_t bytes)
{
    return (culvert__CUDA_MEMCPY3D){.srcMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                    .srcHost = src,
                                    .srcPitch = bytes,
                                    .srcHeight = 1,
                                    .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = dst,
                                    .dstPitch = bytes,
                                    .dstHeight = 1,
                                    .WidthInBytes = bytes,
                                    .Height = 1,
                                    .Depth = 1};
}

static void nodes_in_order(void)
{
    struct CUgraph_st *g = graph(), *child = graph();
    struct CUgraphNode_st *fill, *copy, *sub;
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4), *from = conf_pinned(8);
    culvert__CUdeviceptr to = conf_device(16);
    from[0] = 7;
    culvert__CUDA_MEMSET_NODE_PARAMS f = {
        .dst = to, .value = 0x11, .elementSize = 1, .width = 16, .height = 1};
    culvert__CUDA_MEMCPY3D c = row_copy(to, from, 4);
    NEED(d->cuGraphAddMemsetNode(&fill, g, NULL, 0, &f, conf_context));
    NEED(d->cuGraphAddMemcpyNode(&copy, g, &fill, 1, &c, conf_context));
    struct CUgraphNode_st *one = add_append(g, copy, word, 1);
    add_append(child, add_append(child, NULL, word, 2), word, 3);
    NEED(d->cuGraphAddChildGraphNode(&sub, g, &one, 1, child));
    conf_result("destroy the child", d->cuGraphDestroy(child), 0);
    add_append(g, sub, word, 4);
    struct CUgraphExec_st *exec = instantiate(g);
    conf_result("destroy the graph", d->cuGraphDestroy(g), 0);
    conf_result("upload", d->cuGraphUpload(exec, s), 0);
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    NEED(d->cuMemcpyDtoHAsync(from + 1, to, 4, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("order", conf_read(word), 1234, 1234);
    conf_range("copy after fill", from[1], 7, 7);
    conf_result("destroy", d->cuGraphExecDestroy(exec), 0);
}

static void one_at_a_time(void)
{
    struct CUgraph_st *g = graph();
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    uint32_t *word = conf_pinned(8), *flag = conf_pinned(4);
    struct CUgraphNode_st *spin;
    void *params[] = {&flag};
    culvert__CUDA_KERNEL_NODE_PARAMS p = params_of("spin", params);
    struct CUgraphNode_st *first = add_append(g, NULL, word, 1);
    NEED(d->cuGraphAddKernelNode(&spin, g, &first, 1, &p));
    struct CUgraphExec_st *exec = instantiate(g);
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    conf_result("launch on another stream", d->cuGraphLaunch(exec, other), 0);
    conf_sleep(0.3);
    conf_range("only one runs", conf_read(word), 1, 1);
    conf_write(flag, 1);
    NEED(d->cuStreamSynchronize(other));
    conf_range("then the other", conf_read(word), 11, 11);
}

static void keeps_its_parameters(void)
{
    struct CUgraph_st *g = graph();
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4), digit = 2;
    struct CUgraphNode_st *node = add_append(g, NULL, word, 1);
    struct CUgraphExec_st *exec = instantiate(g);
    struct spin spin = conf_spin(s);
    NEED(d->cuGraphLaunch(exec, s));
    void *params[] = {&word, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = params_of("append", params);
    conf_result("new parameters while it waits", d->cuGraphExecKernelNodeSetParams(exec, node, &p),
                0);
    digit = 9;
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_range("each has its own", conf_read(word), 12, 12);
}

static void goes_while_it_runs(void)
{
    struct CUgraph_st *g = graph();
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4);
    add_append(g, NULL, word, 5);
    struct CUgraphExec_st *exec = instantiate(g);
    struct spin spin = conf_spin(s);
    NEED(d->cuGraphLaunch(exec, s));
    conf_result("destroy the executable graph", d->cuGraphExecDestroy(exec), 0);
    conf_result("destroy the graph", d->cuGraphDestroy(g), 0);
    conf_let_go(spin);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
    conf_range("it ran", conf_read(word), 5, 5);
}

static void other_parameters(void)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *fill, *copy;
    struct CUstream_st *s = conf_stream();
    uint32_t *from = conf_pinned(16);
    culvert__CUdeviceptr to = conf_device(8);
    culvert__CUDA_MEMSET_NODE_PARAMS f = {
        .dst = to, .value = 1, .elementSize = 4, .width = 1, .height = 1};
    culvert__CUDA_MEMCPY3D c = row_copy(to + 4, &from[0], 4);
    NEED(d->cuGraphAddMemsetNode(&fill, g, NULL, 0, &f, conf_context));
    NEED(d->cuGraphAddMemcpyNode(&copy, g, NULL, 0, &c, conf_context));
    struct CUgraphExec_st *exec = instantiate(g);
    from[0] = 10;
    from[1] = 20;
    f.value = 2;
    c.srcHost = &from[1];
    conf_result("fill", d->cuGraphExecMemsetNodeSetParams(exec, fill, &f, conf_context), 0);
    conf_result("copy", d->cuGraphExecMemcpyNodeSetParams(exec, copy, &c, conf_context), 0);
    NEED(d->cuGraphLaunch(exec, s));
    NEED(d->cuMemcpyDtoHAsync(from + 2, to, 8, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("filled", from[2], 2, 2);
    conf_range("copied", from[3], 20, 20);
}

/* What a launch may bind, and what it may not. */
static void what_may_change(void)
{
    enum { W = 4, H = 2, PITCH = 16 };
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *flat, *rows;
    struct CUstream_st *s = conf_stream();
    uint32_t *host = conf_pinned(64);
    culvert__CUdeviceptr to = conf_device(64), other = conf_device(64);
    culvert__CUDA_MEMCPY3D c = row_copy(to, host, 4), r = row_copy(to, host, W);
    r.Height = r.srcHeight = r.dstHeight = H;
    r.srcPitch = r.dstPitch = PITCH;
    NEED(d->cuGraphAddMemcpyNode(&flat, g, NULL, 0, &c, conf_context));
    NEED(d->cuGraphAddMemcpyNode(&rows, g, &flat, 1, &r, conf_context));
    struct CUgraphExec_st *exec = instantiate(g);
    c.dstDevice = other;
    conf_result("another buffer of the device",
                d->cuGraphExecMemcpyNodeSetParams(exec, flat, &c, conf_context), 0);
    c.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE;
    c.srcDevice = to;
    c.srcHost = NULL;
    conf_result("a source on the device instead of the host",
                d->cuGraphExecMemcpyNodeSetParams(exec, flat, &c, conf_context),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    r.dstDevice = other;
    conf_result("a pitched copy", d->cuGraphExecMemcpyNodeSetParams(exec, rows, &r, conf_context),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    host[0] = 77;
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    NEED(d->cuMemcpyDtoHAsync(host + 8, other, 4, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("what was refused has changed nothing", host[8], 77, 77);
}

/* Between buffers of the host, and between buffers of the device. */
static void within_a_side(void)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *node[4];
    struct CUstream_st *s = conf_stream();
    uint32_t *host = conf_pinned(16);
    culvert__CUdeviceptr a = conf_device(8), b = conf_device(8);
    culvert__CUDA_MEMCPY3D c = row_copy(0, &host[0], 4);
    c.dstMemoryType = CULVERT__CU_MEMORYTYPE_HOST;
    c.dstHost = &host[1];
    conf_result("host to host", d->cuGraphAddMemcpyNode(&node[0], g, NULL, 0, &c, conf_context), 0);
    c = row_copy(a, &host[1], 4);
    conf_result("up", d->cuGraphAddMemcpyNode(&node[1], g, &node[0], 1, &c, conf_context), 0);
    c = row_copy(b, NULL, 4);
    c.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE;
    c.srcDevice = a;
    conf_result("across", d->cuGraphAddMemcpyNode(&node[2], g, &node[1], 1, &c, conf_context), 0);
    c.srcDevice = b;
    c.dstMemoryType = CULVERT__CU_MEMORYTYPE_HOST;
    c.dstHost = &host[2];
    conf_result("down", d->cuGraphAddMemcpyNode(&node[3], g, &node[2], 1, &c, conf_context), 0);
    struct CUgraphExec_st *exec = instantiate(g);
    host[0] = 41;
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_range("in the end", host[2], 41, 41);
}

/* Captured with nothing put there: a child of no nodes. */
static void empty_child(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUgraph_st *g = graph(), *child = NULL;
    struct CUgraphNode_st *sub;
    uint32_t *word = conf_pinned(4);
    size_t n = 5;
    NEED(d->cuStreamBeginCapture(s, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED));
    conf_result("end of a capture of nothing", d->cuStreamEndCapture(s, &child), 0);
    conf_true("a graph", child != NULL);
    conf_result("its nodes", d->cuGraphGetNodes(child, NULL, &n), 0);
    conf_range("number of nodes", (long long)n, 0, 0);
    struct CUgraphNode_st *one = add_append(g, NULL, word, 1);
    conf_result("as a child", d->cuGraphAddChildGraphNode(&sub, g, &one, 1, child), 0);
    add_append(g, sub, word, 2);
    struct CUgraphExec_st *exec = instantiate(g);
    NEED(d->cuGraphLaunch(exec, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("order", conf_read(word), 12, 12);
}

struct making {
    struct CUgraph_st *graph;
    struct CUgraphExec_st *exec;
};

static int make(void *arg)
{
    struct making *m = arg;
    int mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)d->cuThreadExchangeStreamCaptureMode(&mode);
    return d->cuGraphInstantiateWithFlags(&m->exec, m->graph, 0);
}

/* While kernels run, and on another thread than the one that launches. */
static void made_beside(void)
{
    struct making m = {graph(), NULL};
    struct CUstream_st *s = conf_stream(), *other = conf_stream();
    struct CUgraphNode_st *last = NULL;
    uint32_t *word = conf_pinned(4);
    for (int i = 0; i < 2000; i++)
        last = add_append(m.graph, last, word, 0);
    struct spin spin = conf_spin(s);
    struct conf_call *call = conf_async(make, &m);
    for (int i = 0; i < 100; i++)
        NEED(conf_launch("nothing", other, NULL));
    conf_true("instantiated while a kernel runs", conf_returned(call));
    conf_result("cuGraphInstantiate", conf_join(call), 0);
    conf_result("launch", d->cuGraphLaunch(m.exec, other), 0);
    conf_result("destroy it while it runs", d->cuGraphExecDestroy(m.exec), 0);
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(other));
}

static _Atomic int calls;

static void note(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

static void host_functions(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUgraph_st *g;
    NEED(d->cuStreamBeginCapture(s, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(d->cuLaunchHostFunc(s, note, NULL));
    NEED(d->cuStreamEndCapture(s, &g));
    conf_range("when captured", atomic_load(&calls), 0, 0);
    struct CUgraphExec_st *exec = instantiate(g);
    for (int i = 0; i < 3; i++)
        NEED(d->cuGraphLaunch(exec, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("after 3 launches", atomic_load(&calls), 3, 3);
}

static void nothing_to_do(void)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *node;
    culvert__CUdeviceptr to = conf_device(16);
    culvert__CUDA_MEMSET_NODE_PARAMS f = {.dst = to, .elementSize = 1, .width = 0, .height = 1};
    culvert__CUDA_MEMCPY3D c = row_copy(to, conf_pinned(16), 0);
    conf_result("a fill of nothing", d->cuGraphAddMemsetNode(&node, g, NULL, 0, &f, conf_context),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("a copy of nothing", d->cuGraphAddMemcpyNode(&node, g, NULL, 0, &c, conf_context),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void empty_graph(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUgraphExec_st *exec = instantiate(graph());
    conf_result("launch", d->cuGraphLaunch(exec, s), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
}

static void bad_arguments(void)
{
    struct CUgraph_st *g = graph(), *other = graph();
    uint32_t *word = conf_pinned(4), digit = 1;
    void *params[] = {&word, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = params_of("append", params);
    struct CUgraphNode_st *node = add_append(g, NULL, word, 1), *twice[] = {node, node}, *out;
    conf_result("a dependency of another graph", d->cuGraphAddKernelNode(&out, other, &node, 1, &p),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("one twice", d->cuGraphAddKernelNode(&out, g, twice, 2, &p),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    p.gridDimX = 0;
    conf_result("no blocks", d->cuGraphAddKernelNode(&out, g, NULL, 0, &p),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("flags", d->cuGraphCreate(&other, 1), CULVERT__CUDA_ERROR_INVALID_VALUE);
    /* Not with itself as a child: the real driver crashes. */
}

const struct row conf_graph_rows[] = {
    {"nodes run in the order of the edges", nodes_in_order, 0},
    {"an executable graph runs one launch at a time (case 80)", one_at_a_time, 0},
    {"a launch keeps its parameters (case 80)", keeps_its_parameters, 0},
    {"an executable graph may be destroyed while it runs", goes_while_it_runs, 0},
    {"parameters of copies and fills can be changed", other_parameters, 0},
    {"what cannot be changed: pitched copies, the kind of memory", what_may_change, 0},
    {"copies within the host and within the device", within_a_side, 0},
    {"a child of no nodes", empty_child, 0},
    {"instantiated by another thread while kernels run", made_beside, 0},
    {"a captured host function runs at every launch", host_functions, 0},
    {"there are no nodes of no bytes (case 91)", nothing_to_do, 0},
    {"a graph without nodes", empty_graph, 0},
    {"bad arguments of graph functions", bad_arguments, 0},
    {0},
};
