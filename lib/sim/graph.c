/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * graph.c: graphs and their nodes, as things. graph_node.c has the calls that make them,
 * graph_exec.c what they are instantiated to.
 *
 * Invariants: a node's dependencies are nodes of its graph, made before it; so there is no cycle. A
 * node owns its work, and the node of a child graph that graph, which has no handle.
 */
#include "sim/graph.h"

#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

static struct CUgraph_st *graphs;

struct CUgraph_st *culvert__sim_graph_new(struct CUctx_st *ctx)
{
    struct CUgraph_st *g = culvert__sim_object_new(SIM_GRAPH);
    if (!g)
        return NULL;
    g->ctx = ctx;
    g->tail = &g->nodes;
    g->next = graphs;
    if (g->next)
        g->next->prev = g;
    graphs = g;
    return g;
}

void culvert__sim_graph_free(struct CUgraph_st *g)
{
    if (!g)
        return;
    while (g->nodes) {
        struct CUgraphNode_st *n = g->nodes;
        g->nodes = n->next;
        free(n->dependencies);
        culvert__sim_work_release(&n->work);
        culvert__sim_object_free(&n->object);
    }
    if (g->prev)
        g->prev->next = g->next;
    else
        graphs = g->next;
    if (g->next)
        g->next->prev = g->prev;
    culvert__sim_object_free(&g->object);
}

static int type_of(enum sim_work_kind kind)
{
    switch (kind) {
    case SIM_KERNEL: return CULVERT__CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_COPY: return CULVERT__CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_FILL: return CULVERT__CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_HOST: return CULVERT__CU_GRAPH_NODE_TYPE_HOST;
    case SIM_CHILD:
    case SIM_LAUNCH_GRAPH: return CULVERT__CU_GRAPH_NODE_TYPE_GRAPH;
    default: return CULVERT__CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

struct CUgraphNode_st *culvert__sim_graph_add(struct CUgraph_st *g, struct sim_work *work,
                                              struct CUgraphNode_st *const *dependencies, size_t n)
{
    struct CUgraphNode_st *node = culvert__sim_object_new(SIM_NODE);
    struct CUgraphNode_st **copy = n > 0 ? malloc(n * sizeof *copy) : NULL;
    if (!node || (n > 0 && !copy)) {
        if (node)
            culvert__sim_object_free(&node->object);
        free(copy);
        culvert__sim_work_release(work);
        return NULL;
    }
    if (n > 0)
        memcpy(copy, dependencies, n * sizeof *copy);
    node->graph = g;
    node->dependencies = copy;
    node->ndependencies = n;
    node->work = *work;
    node->type = type_of(work->kind);
    *g->tail = node;
    g->tail = &node->next;
    g->n++;
    return node;
}

static bool copy_kernel(struct sim_work *to)
{
    struct sim_kernel_work *k = &to->u.kernel;
    if (k->params) {
        size_t bytes = (k->function->kernel->params_bytes + 15) / 16 * 16;
        void *params = aligned_alloc(16, bytes);
        if (!params) {
            to->kind = SIM_EMPTY;
            return false;
        }
        memcpy(params, k->params, bytes);
        k->params = params;
    }
    culvert__sim_module_ref(k->function->module);
    return true;
}

bool culvert__sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
    *to = *from;
    if (from->kind == SIM_KERNEL)
        return copy_kernel(to);
    if (from->kind == SIM_LAUNCH_GRAPH)
        to->u.plan->refs++;
    if (from->kind == SIM_CHILD) {
        to->u.graph = culvert__sim_graph_clone(from->u.graph);
        if (!to->u.graph)
            to->kind = SIM_EMPTY;
        return to->u.graph != NULL;
    }
    return true;
}

/* `mark` of the nodes of g: their place, to find their copies by. */
static bool clone_nodes(struct CUgraph_st *to, const struct CUgraph_st *g,
                        struct CUgraphNode_st **copies, struct CUgraphNode_st **dependencies)
{
    size_t at = 0;
    for (struct CUgraphNode_st *n = g->nodes; n; n = n->next) {
        struct sim_work work;
        n->mark = at;
        for (size_t i = 0; i < n->ndependencies; i++)
            dependencies[i] = copies[n->dependencies[i]->mark];
        if (!culvert__sim_work_copy(&work, &n->work))
            return false;
        copies[at] = culvert__sim_graph_add(to, &work, dependencies, n->ndependencies);
        if (!copies[at])
            return false;
        copies[at++]->type = n->type;
    }
    return true;
}

struct CUgraph_st *culvert__sim_graph_clone(const struct CUgraph_st *g)
{
    struct CUgraph_st *to = culvert__sim_graph_new(g->ctx);
    struct CUgraphNode_st **room = calloc(2 * g->n + 1, sizeof *room);
    if (to) {
        to->child = true;
        culvert__sim_object_close(&to->object);
    }
    if (!to || !room || !clone_nodes(to, g, room, room + g->n)) {
        culvert__sim_graph_free(to);
        to = NULL;
    }
    free(room);
    return to;
}

static struct CUgraph_st *first_of(const struct CUctx_st *ctx)
{
    for (struct CUgraph_st *g = graphs; g; g = g->next) {
        if (g->ctx == ctx && !g->child)
            return g;
    }
    return NULL;
}

void culvert__sim_graphs_of_context(struct CUctx_st *ctx)
{
    struct CUgraph_st *g;
    while ((g = first_of(ctx)) != NULL) {
        culvert__sim_object_gone(&g->object);
        culvert__sim_graph_free(g);
    }
    culvert__sim_execs_of_context(ctx);
}

int cuGraphCreate(culvert__CUgraph *graph, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuGraphCreate);
    struct CUctx_st *ctx;
    if (!graph || flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0) {
        *graph = culvert__sim_graph_new(ctx);
        result = *graph ? 0 : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

int cuGraphDestroy(culvert__CUgraph g)
{
    CULVERT__SIM_ENTER(cuGraphDestroy);
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(g, SIM_GRAPH, &result)) {
        culvert__sim_graph_free(g);
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}

int cuGraphGetNodes(culvert__CUgraph g, culvert__CUgraphNode *nodes, size_t *n)
{
    CULVERT__SIM_ENTER(cuGraphGetNodes);
    int result;
    if (!n)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(g, SIM_GRAPH, &result)) {
        size_t room = *n, i = 0;
        for (struct CUgraphNode_st *node = g->nodes; nodes && node && i < room; node = node->next)
            nodes[i++] = node;
        for (; nodes && i < room; i++)
            nodes[i] = NULL;
        if (!nodes || g->n < room)
            *n = g->n;
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}

int cuGraphNodeGetType(culvert__CUgraphNode node, culvert__CUgraphNodeType *type)
{
    CULVERT__SIM_ENTER(cuGraphNodeGetType);
    int result;
    if (!type)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(node, SIM_NODE, &result)) {
        *type = node->type;
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}
