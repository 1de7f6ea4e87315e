/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * graph.h: graphs, their nodes, and what they are instantiated to.
 *
 * A plan is the nodes of an executable graph in an order that respects the edges, children inlined.
 * It is counted and does not change while a launch holds it: changing the parameters of a node
 * copies the plan first if a launch has it.
 */
#ifndef CULVERT_SIM_GRAPH_H
#define CULVERT_SIM_GRAPH_H

#include "sim/engine.h"

struct CUgraphNode_st {
    struct sim_object object;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next; /* of the graph, in the order of creation */
    struct CUgraphNode_st **dependencies;
    size_t ndependencies;
    struct sim_work work;
    int type; /* CU_GRAPH_NODE_TYPE_... */
    size_t mark;
};

struct CUgraph_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    struct CUgraph_st *next, *prev; /* of all graphs */
    struct CUgraphNode_st *nodes, **tail;
    size_t n;
    bool child; /* belongs to a node, and has no handle */
};

struct sim_plan {
    unsigned refs;
    size_t n;
    struct sim_plan_step {
        struct sim_work work;
        struct CUgraphNode_st *node; /* of the graph at hand; NULL in inlined children */
    } steps[];
};

struct CUgraphExec_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    struct CUgraphExec_st *next, *prev; /* of all */
    struct sim_plan *plan;
    struct sim_record *last; /* of its last launch: the next one waits for it */
};

/* The work of a node from the driver's structs. 0, or what to answer. [lock] */
int culvert__sim_kernel_node_work(const culvert__CUDA_KERNEL_NODE_PARAMS *p, struct sim_work *w);
int culvert__sim_memcpy_node_work(const culvert__CUDA_MEMCPY3D *p, struct sim_work *w);
int culvert__sim_memset_node_work(const culvert__CUDA_MEMSET_NODE_PARAMS *p, struct sim_work *w);

const struct sim_work *culvert__sim_plan_work(const struct sim_plan *plan,
                                              size_t i);         /* NULL: end */
void culvert__sim_plan_unref(struct sim_plan *plan);             /* [lock] */
void culvert__sim_graph_free(struct CUgraph_st *g);              /* [lock] NULL allowed */
struct CUgraph_st *culvert__sim_graph_new(struct CUctx_st *ctx); /* [lock] NULL: no memory */
/* Takes the work, also on failure. NULL: no memory. [lock] */
struct CUgraphNode_st *culvert__sim_graph_add(struct CUgraph_st *g, struct sim_work *work,
                                              struct CUgraphNode_st *const *dependencies, size_t n);
/* A graph of its own with the same nodes. NULL: no memory. [lock] */
struct CUgraph_st *culvert__sim_graph_clone(const struct CUgraph_st *g);
/* A copy that owns what it holds. False: no memory. [lock] */
bool culvert__sim_work_copy(struct sim_work *to, const struct sim_work *from);
void culvert__sim_graphs_of_context(struct CUctx_st *ctx); /* [lock] frees all of it */
void culvert__sim_execs_of_context(struct CUctx_st *ctx);  /* [lock] */

#endif
