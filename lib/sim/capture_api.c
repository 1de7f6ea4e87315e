/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capture_api.c: the beginning and the end of captures, and asking about them.
 */
#include "sim/capture.h"

#include <stdlib.h>

static int begin(struct CUstream_st *s, int mode)
{
    if (s == s->ctx->legacy)
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture)
        return CULVERT__CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *c = calloc(1, sizeof *c);
    struct CUgraph_st *g = c ? culvert__sim_graph_new(s->ctx) : NULL;
    if (!g) {
        free(c);
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->ctx = s->ctx;
    c->origin = s;
    c->thread = culvert__sim_thread();
    c->graph = g;
    c->mode = mode;
    c->id = ++culvert__sim.ids;
    c->next = culvert__sim_captures;
    if (c->next)
        c->next->prev = c;
    culvert__sim_captures = c;
    culvert__sim_capture_join(c, s);
    return 0;
}

int cuStreamBeginCapture_v2(culvert__CUstream handle, culvert__CUstreamCaptureMode mode)
{
    CULVERT__SIM_ENTER(cuStreamBeginCapture);
    struct CUstream_st *s;
    if (mode < CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL ||
        mode > CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = begin(s, mode);
    culvert__sim_unlock();
    return result;
}

static void mark(struct CUgraphNode_st *node)
{
    if (node->mark)
        return;
    node->mark = 1;
    for (size_t i = 0; i < node->ndependencies; i++)
        mark(node->dependencies[i]);
}

/* Whether all work of the other streams comes before the end of the first one. */
static bool joined(const struct sim_capture *c)
{
    for (struct CUgraphNode_st *n = c->graph->nodes; n; n = n->next)
        n->mark = 0;
    for (size_t i = 0; i < c->origin->capture_ntails; i++)
        mark(c->origin->capture_tails[i]);
    for (const struct CUstream_st *s = c->streams; s; s = s->capture_next) {
        for (size_t i = 0; i < s->capture_ntails; i++) {
            if (!s->capture_tails[i]->mark)
                return false;
        }
    }
    return true;
}

/* Ends the capture of which s is a part, if this thread may. */
static int end(struct CUstream_st *s, struct CUgraph_st **out)
{
    struct sim_capture *c = s->capture;
    *out = NULL;
    if (!c)
        return CULVERT__CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) {
        c->invalid = true;
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != culvert__sim_thread())
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    int result = 0;
    if (c->invalid)
        result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(c))
        result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    struct CUgraph_st *g = culvert__sim_capture_end(c);
    if (result)
        culvert__sim_graph_free(g);
    else
        *out = g;
    return result;
}

int cuStreamEndCapture(culvert__CUstream handle, culvert__CUgraph *graph)
{
    CULVERT__SIM_ENTER(cuStreamEndCapture);
    struct CUstream_st *s;
    if (!graph)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = end(s, graph);
    culvert__sim_unlock();
    return result;
}

static int status_of(const struct CUstream_st *s)
{
    if (!s->capture)
        return CULVERT__CU_STREAM_CAPTURE_STATUS_NONE;
    return s->capture->invalid ? CULVERT__CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CULVERT__CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Asking about the legacy stream is an error while a stream that it would wait for is captured. */
static int may_ask(struct CUstream_st *s)
{
    if (s != s->ctx->legacy)
        return 0;
    for (const struct CUstream_st *t = s->ctx->streams; t; t = t->next) {
        if (t->capture && !(t->flags & CULVERT__CU_STREAM_NON_BLOCKING))
            return CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return 0;
}

int cuStreamIsCapturing(culvert__CUstream handle, culvert__CUstreamCaptureStatus *status)
{
    CULVERT__SIM_ENTER(cuStreamIsCapturing);
    struct CUstream_st *s;
    if (!status)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = may_ask(s);
    if (result == 0)
        *status = status_of(s);
    culvert__sim_unlock();
    return result;
}

int cuStreamGetCaptureInfo_v2(culvert__CUstream handle, culvert__CUstreamCaptureStatus *status,
                              uint64_t *id, culvert__CUgraph *graph,
                              const culvert__CUgraphNode **dependencies, size_t *n)
{
    CULVERT__SIM_ENTER(cuStreamGetCaptureInfo);
    struct CUstream_st *s;
    if (!status)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = may_ask(s);
    if (result == 0) {
        *status = status_of(s);
        if (*status == CULVERT__CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            if (id)
                *id = s->capture->id;
            if (graph)
                *graph = s->capture->graph;
            if (dependencies)
                *dependencies = s->capture_tails;
            if (n)
                *n = s->capture_ntails;
        }
    }
    culvert__sim_unlock();
    return result;
}

int cuThreadExchangeStreamCaptureMode(culvert__CUstreamCaptureMode *mode)
{
    CULVERT__SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    struct sim_thread *t = culvert__sim_thread();
    if (!mode || *mode < CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    int before = t->capture_mode;
    t->capture_mode = *mode;
    *mode = before;
    return 0;
}
