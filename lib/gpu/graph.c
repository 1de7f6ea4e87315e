/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a graph, and launching one.
 *
 * Invariants:
 *   - a sequence that launches a graph holds it until it is over, so one that nobody holds has no run
 *     in the driver, and no stream stands in its line.
 *   - destroying may take the driver some time, so the driver thread does it. Where that is gone (the
 *     gpu has left its loop), whoever drops the last reference does.
 *   - what the sequence kept is released by the loop, when the driver's graph is gone.
 */
#include "gpu/graph.h"

#include <stdlib.h>

/* ---- made ---- */

static size_t count_nodes(const culvert_seq *seq)
{
    size_t n = 0;
    for (const culvert__op *op = seq->ops; op != NULL; op = op->next)
        n += op->kind == CULVERT__OP_GRAPH ? op->u.graph.graph->nnodes : 1;
    return n;
}

/* The operations of a graph in a graph, with what is bound there. */
static void add_inner(culvert_graph *graph, const culvert__op *op)
{
    const culvert_graph *inner = op->u.graph.graph;
    culvert__node *first = &graph->nodes[graph->nnodes];
    for (size_t i = 0; i < inner->nnodes; i++)
        first[i] = (culvert__node){.action = inner->nodes[i].action, .op = op};
    for (const culvert__bound *b = op->u.graph.bound; b != NULL; b = b->next)
        first[b->node].action = b->action;
    graph->nnodes += inner->nnodes;
}

static void add_op(culvert_graph *graph, const culvert__op *op)
{
    if (op->kind == CULVERT__OP_GRAPH) {
        graph->places[op->position] = CULVERT__PLACE_GRAPH;
        add_inner(graph, op);
        return;
    }
    graph->places[op->position] = op->part ? CULVERT__PLACE_PARTS : graph->nnodes;
    culvert__node *node = &graph->nodes[graph->nnodes++];
    node->op = op;
    culvert__action_of(op, &node->action);
}

culvert_graph *culvert__graph_new(culvert_seq *seq)
{
    size_t n = count_nodes(seq);
    culvert_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->nodes = calloc(n + 1, sizeof *graph->nodes);
    graph->marks = calloc(n + 1, sizeof *graph->marks);
    graph->places = calloc(seq->positions + 1, sizeof *graph->places);
    graph->refs = 1;
    graph->gpu = culvert__gpu_ref(seq->gpu);
    graph->timed = seq->timed_by_program;
    graph->most = seq->scratch ? 1 : CULVERT__INSTANCES;
    graph->nplaces = seq->positions;
    culvert__list_init(&graph->line);
    if (graph->nodes == NULL || graph->marks == NULL || graph->places == NULL) {
        culvert__graph_abandon(graph);
        return NULL;
    }
    for (size_t i = 0; i < graph->nplaces; i++)
        graph->places[i] = CULVERT__PLACE_NOTHING;
    for (const culvert__op *op = seq->ops; op != NULL; op = op->next)
        add_op(graph, op);
    return graph;
}

/* ---- gone ---- */

static void free_memory(culvert_graph *graph)
{
    culvert_gpu *gpu = graph->gpu;
    for (culvert__instance *i = graph->instances, *next; i != NULL; i = next) {
        next = i->next;
        free(i);
    }
    free(graph->nodes);
    free(graph->marks);
    free(graph->places);
    free(graph);
    culvert__gpu_unref(gpu);
}

void culvert__graph_abandon(culvert_graph *graph)
{
    culvert__scope scope = culvert__scope_enter(graph->gpu->device);
    culvert__graph_destroy(graph); /* what was captured */
    culvert__scope_leave(scope);
    free_memory(graph);
}

void culvert__graph_destroy(culvert_graph *graph)
{
    const culvert__driver *drv = graph->gpu->drv;
    if (culvert__device_is_lost(graph->gpu->device))
        return;
    for (culvert__instance *i = graph->instances; i != NULL; i = i->next)
        if (i->exec != NULL)
            (void)drv->cuGraphExecDestroy(i->exec);
    if (graph->native != NULL)
        (void)drv->cuGraphDestroy(graph->native);
    for (size_t i = 0; i < graph->nnodes; i++)
        if (graph->nodes[i].owned)
            (void)drv->cuGraphDestroy(graph->nodes[i].action.u.child.graph);
}

static void gone_work(culvert__driver_job *job)
{
    culvert__graph_destroy(CULVERT__CONTAINER(job, culvert_graph, gone));
}

static void gone(culvert_graph *graph)
{
    culvert_gpu *gpu = culvert__gpu_ref(graph->gpu);
    culvert_seq *seq = graph->seq;
    free_memory(graph);
    if (seq != NULL)
        culvert__seq_discard(seq);
    culvert__gpu_unref(gpu);
}

static void gone_done(culvert__post *post)
{
    culvert__driver_job *job = CULVERT__CONTAINER(post, culvert__driver_job, post);
    gone(CULVERT__CONTAINER(job, culvert_graph, gone));
}

culvert_graph *culvert__graph_ref(culvert_graph *graph)
{
    graph->refs++;
    return graph;
}

void culvert__graph_put(culvert_graph *graph)
{
    culvert_gpu *gpu = graph->gpu;
    if (--graph->refs > 0)
        return;
    while (!culvert__list_empty(&graph->line)) { /* what waited there was given up */
        culvert_stream *s = CULVERT__CONTAINER(graph->line.next, culvert_stream, graph_line);
        culvert__list_unlink(&s->graph_line);
        s->graph_waited = NULL;
    }
    if (gpu->driver_thread != NULL && !culvert__device_is_lost(gpu->device)) {
        graph->gone.work = gone_work;
        graph->gone.post.run = gone_done;
        culvert__driver_thread_submit(gpu->driver_thread, &graph->gone);
        return;
    }
    if (!culvert__device_is_lost(gpu->device)) {
        culvert__scope scope = culvert__scope_enter(gpu->device);
        culvert__graph_destroy(graph);
        culvert__scope_leave(scope);
    }
    gone(graph);
}

void culvert_graph_unref(culvert_graph *graph)
{
    if (graph == NULL || culvert__forked())
        return;
    culvert__check_thread(culvert__gpu_core(graph->gpu), "culvert_graph_unref");
    culvert__graph_put(graph);
}

/* The private stream. */
void culvert__graphs_leave(culvert_gpu *gpu, bool leak)
{
    culvert__flow *flow = gpu->flow;
    if (flow->capture != NULL && !leak)
        (void)gpu->drv->cuStreamDestroy(flow->capture);
    flow->capture = NULL;
}

/* ---- launched ---- */

culvert_future *culvert_graph_launch_at(const char *where, culvert_stream *stream,
                                        culvert_graph *graph, const culvert_bind *binds,
                                        size_t nbinds)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_graph_at(where, seq, graph, binds, nbinds);
    if (!culvert__forked() && graph->timed)
        culvert_seq_timed(seq);
    return culvert_seq_submit_at(where, seq);
}

/* ---- the same without a place ---- */

culvert_future *culvert_graph_launch(culvert_stream *stream, culvert_graph *graph,
                                     const culvert_bind *binds, size_t nbinds)
{
    return culvert_graph_launch_at(NULL, stream, graph, binds, nbinds);
}

void culvert_seq_graph(culvert_seq *seq, culvert_graph *graph, const culvert_bind *binds,
                       size_t nbinds)
{
    culvert_seq_graph_at(NULL, seq, graph, binds, nbinds);
}
