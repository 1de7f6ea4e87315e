/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert_seq_compile: work of the driver thread, whose life driver_work.c has.
 *
 * What is refused is refused at once, and functions of culvert_seq_call are captured at once, on the
 * loop's thread; nodes are added and the first instance made by the driver thread.
 *
 * Invariants:
 *   - a compile that is dropped calls no driver but to destroy what was captured
 *   - from the submit to compile_over the graph is the driver thread's; the compile has its only reference
 */
#include "gpu/graph.h"

#include <stdlib.h>

typedef struct compile {
    culvert__driver_work work;
    culvert_graph *graph; /* owned */
    const char *where;
    const culvert__node *failed; /* at this one; NULL: at none of them */
} compile;

static const char op_name[] = "culvert_seq_compile";

/* ---- on the driver thread ---- */

static void compile_work(culvert__driver_work *work)
{
    compile *c = CULVERT__CONTAINER(work, compile, work);
    work->call = "cuGraphCreate";
    work->result = atomic_load(&c->graph->gpu->device->lost);
    if (work->result == CULVERT__CUDA_SUCCESS)
        work->result = culvert__graph_build(c->graph, &work->call, &c->failed);
    if (work->result == CULVERT__CUDA_SUCCESS)
        work->result = culvert__graph_instantiate(c->graph->instances, &work->call);
}

/* ---- what came of it ---- */

static void release_graph(void *graph)
{
    culvert_graph_unref(graph);
}

static void say_failed(const compile *c, culvert_error *err)
{
    const char *where = c->where;
    if (c->failed != NULL && c->failed->op->where != NULL)
        where = c->failed->op->where;
    culvert__gpu_driver_failed(c->graph->gpu, c->work.result, c->work.call, op_name, where, err);
}

static void compile_over(culvert__driver_work *work, bool ran)
{
    compile *c = CULVERT__CONTAINER(work, compile, work);
    culvert_future *future = &work->future->base;
    culvert_graph *graph = c->graph;
    bool made = ran && work->result == CULVERT__CUDA_SUCCESS;
    if (made) {
        culvert__settle_value(future, graph, release_graph);
    } else {
        culvert_error err = CULVERT_ERROR_INIT;
        if (ran)
            say_failed(c, &err);
        culvert__settle_error(future, &err); /* settled already where it was dropped */
    }
    free(c);
    if (!made)
        culvert__graph_put(graph);
}

static const culvert__kind kind = {
    .name = "compile",
    .cancel = culvert__driver_future_cancel,
    .shutdown = culvert__driver_future_shut_down,
};

/* ---- what is refused ---- */

static bool op_ok(culvert_seq *seq, const culvert__op *op)
{
    if (op->kind == CULVERT__OP_COPY && culvert__peer_copies(op)) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, op->where,
                          "operation %zu, a copy of %zu bytes between devices %d and %d: a graph "
                          "copies within one device",
                          op->position, op->u.copy.bytes, op->u.copy.src->memory->device->ordinal,
                          op->u.copy.dst->memory->device->ordinal);
        return false;
    }
    if ((op->kind != CULVERT__OP_UPLOAD && op->kind != CULVERT__OP_DOWNLOAD) || op->u.host.direct)
        return true;
    culvert__seq_fail(seq, CULVERT_EINVAL, op_name, op->where,
                      "operation %zu, %s of %zu bytes %s %p: a graph copies pinned memory only "
                      "(culvert_host_buffer_new)",
                      op->position, op->kind == CULVERT__OP_UPLOAD ? "an upload" : "a download",
                      op->u.host.bytes, op->kind == CULVERT__OP_UPLOAD ? "from" : "to",
                      (void *)op->u.host.host);
    return false;
}

static bool may_compile(culvert_seq *seq, const char *where)
{
    if (seq->waits != NULL) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "the sequence waits for a future (culvert_seq_wait), and a graph cannot: "
                          "wait in the sequence that launches it");
        return false;
    }
    if (seq->scratch_grown > 0) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "the heap had to grow for %zu bytes of scratch; a graph takes what is "
                          "there (culvert_gpu_options.device_reserve)",
                          seq->scratch_grown);
        return false;
    }
    for (const culvert__op *op = seq->ops; op != NULL; op = op->next)
        if (!op_ok(seq, op))
            return false;
    return true;
}

/* ---- capture ---- */

static int private_stream(culvert_gpu *gpu, struct CUstream_st **out)
{
    culvert__flow *flow = gpu->flow;
    int result = CULVERT__CUDA_SUCCESS;
    if (flow->capture == NULL)
        result = gpu->drv->cuStreamCreateWithPriority(&flow->capture,
                                                      CULVERT__CU_STREAM_NON_BLOCKING, 0);
    if (result != CULVERT__CUDA_SUCCESS)
        flow->capture = NULL;
    *out = flow->capture;
    return result;
}

/* A function that has left the stream in a state that nobody understands: it is used no more. */
static void give_up_stream(culvert_gpu *gpu)
{
    (void)gpu->drv->cuStreamDestroy(gpu->flow->capture);
    gpu->flow->capture = NULL;
}

static void driver_failed(culvert_seq *seq, const culvert__op *op, int result, const char *call)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__gpu_driver_failed(seq->gpu, result, call, op_name, op->where, &err);
    culvert__seq_fail_with(seq, &err);
}

/* The program's function, as it would be called for a stream that runs. Its status; else 0. */
static int call_function(culvert_gpu *gpu, const culvert__op *op, struct CUstream_st *stream)
{
    int mode = gpu->flow->capture_mode;
    culvert__call_next(gpu->flow, "the function of a culvert_seq_call");
    (void)gpu->drv->cuThreadExchangeStreamCaptureMode(&mode);
    int status = op->u.call.enqueue(stream, op->u.call.arg);
    (void)gpu->drv->cuThreadExchangeStreamCaptureMode(&mode);
    culvert__call_next(gpu->flow, "cuStreamEndCapture");
    return status;
}

/* In relaxed mode, so that what others do on other threads does not end it, nor it theirs. */
static struct CUgraph_st *capture(culvert_seq *seq, const culvert__op *op)
{
    culvert_gpu *gpu = seq->gpu;
    struct CUstream_st *stream;
    struct CUgraph_st *graph = NULL;
    const char *call = "cuStreamCreateWithPriority";
    int result = private_stream(gpu, &stream);
    if (result == CULVERT__CUDA_SUCCESS) {
        call = "cuStreamBeginCapture";
        result = gpu->drv->cuStreamBeginCapture(stream, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    if (result != CULVERT__CUDA_SUCCESS) {
        driver_failed(seq, op, result, call);
        return NULL;
    }
    int status = call_function(gpu, op, stream);
    result = gpu->drv->cuStreamEndCapture(stream, &graph);
    if (status != 0) {
        culvert__seq_fail(seq, CULVERT_EDRIVER, op->u.call.name, op->where,
                          "the function given to %s returned %d", op->u.call.name, status);
        seq->error.native = status;
    } else if (result != CULVERT__CUDA_SUCCESS) {
        driver_failed(seq, op, result, "cuStreamEndCapture");
    }
    if (result != CULVERT__CUDA_SUCCESS && !culvert__device_is_lost(gpu->device))
        give_up_stream(gpu);
    if (seq->failed && result == CULVERT__CUDA_SUCCESS && graph != NULL)
        (void)gpu->drv->cuGraphDestroy(graph);
    return seq->failed ? NULL : graph;
}

static bool capture_one(culvert_seq *seq, culvert__node *node)
{
    size_t n = 0;
    struct CUgraph_st *child = capture(seq, node->op);
    if (child == NULL)
        return false;
    node->action.kind = CULVERT__ACT_CHILD;
    node->action.u.child.graph = child;
    node->owned = true;
    int result = seq->gpu->drv->cuGraphGetNodes(child, NULL, &n);
    if (result != CULVERT__CUDA_SUCCESS)
        driver_failed(seq, node->op, result, "cuGraphGetNodes");
    node->action.u.child.nodes = n;
    return result == CULVERT__CUDA_SUCCESS;
}

static bool capture_calls(culvert_seq *seq, culvert_graph *graph)
{
    bool ok = true;
    culvert__visit visit = culvert__driver_enter(seq->gpu, "cuStreamBeginCapture");
    for (size_t i = 0; i < graph->nnodes && ok; i++) {
        culvert__node *node = &graph->nodes[i];
        if (node->op->kind != CULVERT__OP_CALL)
            continue;
        if (visit.scope.result != CULVERT__CUDA_SUCCESS) {
            driver_failed(seq, node->op, visit.scope.result, "cuCtxPushCurrent");
            ok = false;
        } else {
            ok = capture_one(seq, node);
        }
    }
    culvert__driver_leave(seq->gpu, visit);
    return ok;
}

/* ---- starting ---- */

static void weigh(culvert_graph *graph)
{
    size_t sum = 0;
    for (size_t i = 0; i < graph->nnodes && sum < CULVERT__GRAPH_WEIGHT; i++)
        sum += graph->nodes[i].action.kind == CULVERT__ACT_CHILD
                   ? graph->nodes[i].action.u.child.nodes
                   : 1;
    graph->weight = sum > CULVERT__GRAPH_WEIGHT ? CULVERT__GRAPH_WEIGHT : (unsigned)sum;
    if (graph->weight == 0)
        graph->weight = 1;
}

/* The graph owns the sequence from now on, which is of no stream any more. */
static void adopt(culvert_graph *graph, culvert_seq *seq)
{
    culvert_stream *stream = seq->stream;
    seq->stream = NULL;
    graph->seq = seq;
    culvert__stream_put(stream); /* the graph holds the gpu */
}

static culvert_graph *graph_of(culvert_seq *seq)
{
    culvert_graph *graph = culvert__graph_new(seq);
    culvert__instance *first = graph != NULL ? culvert__instance_new(graph) : NULL;
    if (first != NULL) {
        graph->instances = first;
        graph->ninstances = 1;
        if (capture_calls(seq, graph)) {
            weigh(graph);
            return graph;
        }
    } else {
        culvert__seq_fail(seq, CULVERT_ENOMEM, op_name, seq->where,
                          "no memory for a graph of %zu operations", seq->nops);
    }
    if (graph != NULL)
        culvert__graph_abandon(graph);
    return NULL;
}

static bool driver_thread(culvert_seq *seq, const char *where)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert__driver_work_ready(seq->gpu, op_name, where, &err))
        return true;
    culvert__seq_fail_with(seq, &err);
    return false;
}

/* NULL: the sequence has failed. */
static culvert_future *begin(culvert_seq *seq, const char *where)
{
    culvert_gpu *gpu = seq->gpu;
    culvert_future *future =
        culvert__future_alloc(culvert__gpu_core(gpu), &kind, sizeof(culvert__driver_future));
    compile *c = future != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL)
        culvert__seq_fail(seq, CULVERT_ENOMEM, op_name, where, "no memory for compiling a graph");
    culvert_graph *graph = c != NULL ? graph_of(seq) : NULL;
    if (graph == NULL) {
        if (future != NULL) {
            culvert__settle_error(future, &seq->error);
            culvert__seq_discard(seq);
        }
        free(c);
        return future;
    }
    adopt(graph, seq);
    c->graph = graph;
    c->where = where;
    c->work.run = compile_work;
    c->work.over = compile_over;
    culvert__driver_work_begin(gpu, future, &c->work);
    return future;
}

culvert_future *culvert_seq_compile_at(const char *where, culvert_seq *seq)
{
    CULVERT__REQUIRE(seq, op_name, "seq");
    if (seq->gpu == NULL || culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    if (culvert__seq_is_shared(seq))
        return culvert__seq_reject_shared(seq, op_name, where);
    if (culvert__seq_refused(seq, op_name, where) || !may_compile(seq, where) ||
        !driver_thread(seq, where))
        return culvert__seq_reject(seq);
    culvert_future *future = begin(seq, where);
    return future != NULL ? future : culvert__seq_reject(seq);
}

culvert_future *culvert_seq_compile(culvert_seq *seq)
{
    return culvert_seq_compile_at(NULL, seq);
}
