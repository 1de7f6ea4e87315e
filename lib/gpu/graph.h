/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compiled sequences.
 *
 *   culvert_graph      the operations of a sequence as nodes of a graph of the driver's, one behind the
 *                      other. Keeps the sequence, whose arena has the operations and which holds and keeps
 *                      what they use; and the driver's graph, whose nodes name what is to be changed.
 *   culvert__instance  the graph instantiated: runs one launch at a time. A launch takes one that is idle,
 *                      or the one whose runs are on its stream already, in order with them.
 *   culvert__action    what a node does: as it was compiled, or with what a launch has bound.
 *
 * Graphs are made, instantiated and destroyed on the driver thread; everything else is the loop's.
 */
#ifndef CULVERT_GPU_GRAPH_H
#define CULVERT_GPU_GRAPH_H

#include "gpu/flow.h"

enum {
    CULVERT__GRAPH_WEIGHT = 128, /* driver operations that a launch counts as, at most */
    CULVERT__INSTANCES = 16      /* of a graph, at most */
};

/* One side of a copy. */
typedef struct culvert__place {
    unsigned long long at; /* the host's address, or the device's */
    bool host;
} culvert__place;

typedef enum culvert__action_kind {
    CULVERT__ACT_LAUNCH,
    CULVERT__ACT_COPY,
    CULVERT__ACT_FILL,
    CULVERT__ACT_CHILD
} culvert__action_kind;

typedef struct culvert__action {
    culvert__action_kind kind;
    union {
        struct {
            const culvert__launch *launch;
            void **params;
        } launch;
        struct {
            culvert__place dst, src;
            size_t width, height, dst_pitch, src_pitch; /* height 1: `width` bytes, no pitches */
        } copy;
        struct {
            unsigned long long dst;
            size_t bytes;
            uint32_t pattern;
            unsigned pattern_bytes;
        } fill;
        struct {
            struct CUgraph_st *graph; /* captured; owned by the graph whose operation it is */
            size_t nodes;
        } child;
    } u;
} culvert__action;

typedef struct culvert__node {
    culvert__action action;
    const culvert__op *op; /* which it does, for messages and binds */
    struct CUgraphNode_st *native;
    bool owned; /* the child is this graph's own */
} culvert__node;

struct culvert__bound {
    culvert__bound *next;
    size_t node;
    culvert__action action;
};

/* What a launch, while it is built or made, knows of a node. */
typedef struct culvert__mark {
    uint64_t serial;       /* of graph->serial: else the mark is an old one */
    culvert__bound *bound; /* while it is built */
} culvert__mark;

struct culvert__instance {
    culvert__instance *next; /* graph->instances */
    culvert_graph *graph;
    struct CUgraphExec_st *exec;
    const culvert_stream *stream; /* of its runs; NULL: it is idle */
    unsigned runs;                /* in the driver */
    culvert__driver_job make;     /* holds the graph */
    int result;                   /* of making it */
    const char *call;
    size_t nchanged;
    size_t changed[]; /* nodes that are not as they were compiled, perhaps */
};

/* In graph->places: operations that have not one node. */
#define CULVERT__PLACE_NOTHING SIZE_MAX
#define CULVERT__PLACE_GRAPH   (SIZE_MAX - 1)
#define CULVERT__PLACE_PARTS   (SIZE_MAX - 2) /* it has several */

struct culvert_graph {
    unsigned refs;    /* handles, sequences that launch it, instances that are being made */
    culvert_gpu *gpu; /* counted */
    culvert_seq *seq; /* of no stream */
    struct CUgraph_st *native;
    culvert__node *nodes;
    size_t nnodes;
    size_t *places; /* of the operations: the number of the node */
    size_t nplaces;
    culvert__mark *marks; /* of the nodes */
    uint64_t serial;
    unsigned weight;
    bool timed;
    culvert__instance *instances;
    unsigned ninstances, most; /* those that are being made included */
    culvert__link line;        /* culvert_stream.graph_line: heads that wait for an instance */
    culvert__driver_job gone;
};

/* graph.c */
/* From a sequence, which it owns once it is complete. NULL: no memory. Its children are to be captured. */
culvert_graph *culvert__graph_new(culvert_seq *);
void culvert__graph_abandon(culvert_graph *); /* one without a driver's graph; the sequence stays */

/* graph_node.c: results are the driver's, and `call` is the one that gave it. The context is current. */
void culvert__action_of(const culvert__op *, culvert__action *out); /* not of a call or graph */
/* Makes the driver's graph. *failed: the node at hand. Thread: the driver thread */
int culvert__graph_build(culvert_graph *, const char **call, const culvert__node **failed);
int culvert__graph_instantiate(culvert__instance *, const char **call); /* likewise */
/* Of the next launches of the instance. */
int culvert__node_set(const culvert__instance *, const culvert__node *, const culvert__action *,
                      const char **call);

/* graph_instance.c */
culvert__instance *culvert__instance_new(culvert_graph *); /* NULL: no memory */
/* What is the matter with a driver's graph and its instances; they go. Thread: any */
void culvert__graph_destroy(culvert_graph *);

#endif
