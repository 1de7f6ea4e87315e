/* SPDX-License-Identifier: BSD-2-Clause */
/* capture.h: a capture under way: capture.c. */
#ifndef CULVERT_SIM_CAPTURE_H
#define CULVERT_SIM_CAPTURE_H

#include "sim/graph.h"

struct sim_capture {
    struct sim_capture *next, *prev; /* of all */
    struct CUctx_st *ctx;
    struct CUstream_st *origin;
    struct CUstream_st *streams; /* all that take part, through capture_next */
    struct sim_thread *thread;   /* that began it; NULL once that is gone */
    struct CUgraph_st *graph;
    int mode;
    uint64_t id;
    bool invalid;
    unsigned refs; /* the streams that take part, and the events recorded in it */
};

extern struct sim_capture *culvert__sim_captures; /* [lock] */

void culvert__sim_capture_unref(struct sim_capture *c);                       /* [lock] */
void culvert__sim_capture_join(struct sim_capture *c, struct CUstream_st *s); /* [lock] */
/* No stream is in it any more. Returns its graph, now the caller's. [lock] */
struct CUgraph_st *culvert__sim_capture_end(struct sim_capture *c);

#endif
