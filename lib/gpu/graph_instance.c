/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Instances of graphs, and their launches.
 *
 *   being made (by the driver thread) -> idle -> with runs of one stream -> idle
 *
 * The driver runs one launch of an instance at a time, so runs on several streams get one each. Runs
 * of one stream are in order anyway, and share one. A head that finds none stays in its stream's queue
 * and in the graph's line, first come first served; each that joins the line has one more made, up to
 * graph->most.
 *
 * Invariants:
 *   - an instance has a stream exactly while it has runs in the driver.
 *   - its parameters are those of the compiled sequence, but for the nodes in `changed`, which the next
 *     launch binds or sets back. A launch that is in the driver keeps its own.
 *   - a graph that was handed out has one instance at least.
 */
#include "gpu/graph.h"

#include <stdlib.h>

/* ---- making one ---- */

culvert__instance *culvert__instance_new(culvert_graph *graph)
{
    culvert__instance *instance =
        calloc(1, sizeof *instance + graph->nnodes * sizeof instance->changed[0]);
    if (instance != NULL)
        instance->graph = graph;
    return instance;
}

static void make_work(culvert__driver_job *job)
{
    culvert__instance *instance = CULVERT__CONTAINER(job, culvert__instance, make);
    instance->call = "cuGraphInstantiateWithFlags";
    instance->result = atomic_load(&instance->graph->gpu->device->lost);
    if (instance->result == CULVERT__CUDA_SUCCESS)
        instance->result = culvert__graph_instantiate(instance, &instance->call);
}

static void serve_line(culvert_graph *graph)
{
    if (!culvert__list_empty(&graph->line))
        culvert__stream_schedule(CULVERT__CONTAINER(graph->line.next, culvert_stream, graph_line));
}

/* There will be no more: those that are there have to do. */
static void not_made(culvert_graph *graph, const culvert__instance *instance)
{
    culvert_error err = CULVERT_ERROR_INIT;
    graph->most = --graph->ninstances;
    if (culvert__device_is_lost(graph->gpu->device))
        return;
    culvert__gpu_driver_failed(graph->gpu, instance->result, instance->call, "culvert_seq_graph",
                               NULL, &err);
    if (graph->gpu->attached && !culvert__device_is_lost(graph->gpu->device))
        culvert__loop_log(graph->gpu->loop, CULVERT_LOG_WARNING,
                          "a graph goes on with %u instance%s, since there is no other: %s",
                          graph->most, graph->most == 1 ? "" : "s", err.message);
}

static void make_done(culvert__post *post)
{
    culvert__driver_job *job = CULVERT__CONTAINER(post, culvert__driver_job, post);
    culvert__instance *instance = CULVERT__CONTAINER(job, culvert__instance, make);
    culvert_graph *graph = instance->graph;
    if (instance->result == CULVERT__CUDA_SUCCESS) {
        instance->next = graph->instances;
        graph->instances = instance;
    } else {
        not_made(graph, instance);
        free(instance);
    }
    serve_line(graph);
    culvert__graph_put(graph);
}

static void make_one(culvert_graph *graph)
{
    culvert_gpu *gpu = graph->gpu;
    if (graph->ninstances >= graph->most || gpu->driver_thread == NULL)
        return;
    culvert__instance *instance = culvert__instance_new(graph);
    if (instance == NULL)
        return; /* one that is there will be idle */
    graph->ninstances++;
    culvert__graph_ref(graph);
    instance->make.work = make_work;
    instance->make.post.run = make_done;
    culvert__driver_thread_submit(gpu->driver_thread, &instance->make);
}

/* ---- taking one ---- */

static culvert__instance *find(const culvert_graph *graph, const culvert_stream *stream)
{
    for (culvert__instance *i = graph->instances; i != NULL; i = i->next)
        if (i->stream == stream)
            return i;
    return NULL;
}

/* It needs none any more: the next one in the line looks. */
static void leave_line(culvert_stream *s, culvert_graph *graph)
{
    if (culvert__linked(&s->graph_line))
        culvert__list_unlink(&s->graph_line);
    s->graph_waited = NULL;
    serve_line(graph);
}

void culvert__graph_line_leave(culvert_stream *s)
{
    leave_line(s, s->graph_waited);
}

static void join_line(culvert_stream *s, culvert_graph *graph)
{
    s->wants_instance = true;
    if (s->graph_waited == graph)
        return;
    if (s->graph_waited != NULL)
        culvert__graph_line_leave(s); /* that was for another sequence */
    s->graph_waited = graph;
    culvert__list_push(&graph->line, &s->graph_line);
    make_one(graph);
}

/* NULL: none now; the stream is pumped when there is one. */
static culvert__instance *take(culvert_graph *graph, culvert_stream *s)
{
    bool first = culvert__list_empty(&graph->line) || graph->line.next == &s->graph_line;
    culvert__instance *instance = find(graph, s);
    if (instance == NULL && first)
        instance = find(graph, NULL);
    if (instance == NULL)
        join_line(s, graph);
    else if (s->graph_waited != NULL)
        culvert__graph_line_leave(s);
    return instance;
}

/* ---- launching it ---- */

static culvert__step fail(culvert__segment *segment, const char *call, int result)
{
    segment->call = call;
    segment->result = result;
    return CULVERT__STEP_FAIL;
}

/* What the last launch had changed, and this one does not. */
static int set_back(culvert__instance *instance, const char **call)
{
    const culvert_graph *graph = instance->graph;
    for (size_t i = 0; i < instance->nchanged; i++) {
        const culvert__node *node = &graph->nodes[instance->changed[i]];
        if (graph->marks[instance->changed[i]].serial == graph->serial)
            continue;
        int result = culvert__node_set(instance, node, &node->action, call);
        if (result != CULVERT__CUDA_SUCCESS)
            return result;
    }
    return CULVERT__CUDA_SUCCESS;
}

static int set_parameters(culvert__instance *instance, const culvert__bound *bound,
                          const char **call)
{
    culvert_graph *graph = instance->graph;
    graph->serial++;
    for (const culvert__bound *b = bound; b != NULL; b = b->next)
        graph->marks[b->node].serial = graph->serial;
    int result = set_back(instance, call);
    if (result != CULVERT__CUDA_SUCCESS)
        return result;
    instance->nchanged = 0;
    for (const culvert__bound *b = bound; b != NULL; b = b->next)
        instance->changed[instance->nchanged++] = b->node;
    for (const culvert__bound *b = bound; b != NULL && result == CULVERT__CUDA_SUCCESS; b = b->next)
        result = culvert__node_set(instance, &graph->nodes[b->node], &b->action, call);
    return result;
}

culvert__step culvert__graph_step(culvert__segment *segment, culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    culvert_graph *graph = op->u.graph.graph;
    const char *call = NULL;
    culvert__instance *instance = take(graph, s);
    if (instance == NULL)
        return CULVERT__STEP_WAIT;
    culvert__call_next(s->gpu->flow, "cuGraphExecKernelNodeSetParams");
    int result = set_parameters(instance, op->u.graph.bound, &call);
    if (result != CULVERT__CUDA_SUCCESS)
        return fail(segment, call, result);
    culvert__call_next(s->gpu->flow, "cuGraphLaunch");
    result = s->gpu->drv->cuGraphLaunch(instance->exec, s->native);
    if (result != CULVERT__CUDA_SUCCESS)
        return fail(segment, "cuGraphLaunch", result);
    segment->used += op->weight;
    instance->stream = s; /* before the next one in the line looks for an idle one */
    instance->runs++;
    op->u.graph.instance = instance;
    op->u.graph.next = segment->graphs;
    segment->graphs = op;
    return CULVERT__STEP_DONE;
}

/* ---- the end of launches ---- */

void culvert__graphs_over(culvert__entry *entry)
{
    for (culvert__op *op = entry->graphs; op != NULL; op = op->u.graph.next) {
        culvert__instance *instance = op->u.graph.instance;
        if (--instance->runs > 0)
            continue;
        instance->stream = NULL;
        serve_line(instance->graph);
    }
    entry->graphs = NULL;
}

bool culvert__graphs_wanted(const culvert__entry *entry)
{
    for (const culvert__op *op = entry->graphs; op != NULL; op = op->u.graph.next)
        if (!culvert__list_empty(&op->u.graph.graph->line))
            return true;
    return false;
}
