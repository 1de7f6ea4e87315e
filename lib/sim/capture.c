/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capture.c: what captures under way mean for other calls. capture_api.c has their begin and end.
 *
 * Invariants: a stream that is captured belongs to one capture, whose graph gets what is put on it;
 * its tails are the nodes that the next one depends on. An event recorded there has the tails of
 * that moment instead of a record. A capture ends with cuStreamEndCapture, or with its first stream;
 * events may refer to it longer. An invalid one takes nothing more and ends with an error.
 */
#include "sim/capture.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture *culvert__sim_captures;

void culvert__sim_capture_unref(struct sim_capture *c)
{
    if (--c->refs == 0)
        free(c);
}

static bool set_tails(struct CUgraphNode_st ***tails, size_t *n, struct CUgraphNode_st *const *to,
                      size_t count)
{
    struct CUgraphNode_st **copy = NULL;
    if (count > 0) {
        copy = malloc(count * sizeof *copy);
        if (!copy)
            return false;
        memcpy(copy, to, count * sizeof *copy);
    }
    free(*tails);
    *tails = copy;
    *n = count;
    return true;
}

static bool add_tails(struct CUstream_st *s, struct CUgraphNode_st *const *more, size_t count)
{
    size_t n = s->capture_ntails;
    struct CUgraphNode_st **all = realloc(s->capture_tails, (n + count + 1) * sizeof *all);
    if (!all)
        return false;
    s->capture_tails = all;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < n && all[at] != more[i])
            at++;
        if (at == n)
            all[n++] = more[i];
    }
    s->capture_ntails = n;
    return true;
}

/* Parameters in the operation's own room get memory of their own. */
static bool detach_params(struct sim_op *op)
{
    struct sim_kernel_work *k = &op->work.u.kernel;
    if (op->work.kind != SIM_KERNEL || k->params != op->params)
        return true;
    void *copy = aligned_alloc(16, sizeof op->params);
    if (!copy)
        return false;
    memcpy(copy, op->params, sizeof op->params);
    k->params = copy;
    return true;
}

int culvert__sim_capture_op(struct CUstream_st *s, struct sim_op *op)
{
    struct sim_capture *c = s->capture;
    int result = 0;
    if (c->invalid) {
        result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (op->work.kind == SIM_POOL_FREE ||
               (op->work.kind == SIM_HOST && !op->work.u.host.fn)) {
        c->invalid = true;
        result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (!detach_params(op)) {
        result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == 0) {
        struct CUgraphNode_st *node =
            culvert__sim_graph_add(c->graph, &op->work, s->capture_tails, s->capture_ntails);
        op->work.kind = SIM_EMPTY; /* the node has it */
        if (!node || !set_tails(&s->capture_tails, &s->capture_ntails, &node, 1))
            result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_op_free(op);
    return result;
}

void culvert__sim_capture_forget_event(struct CUevent_st *e)
{
    if (!e->capture)
        return;
    culvert__sim_capture_unref(e->capture);
    e->capture = NULL;
    free(e->capture_tails);
    e->capture_tails = NULL;
    e->capture_ntails = 0;
}

int culvert__sim_capture_record(struct CUstream_st *s, struct CUevent_st *e)
{
    struct sim_capture *c = s->capture;
    if (c->invalid)
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    culvert__sim_capture_forget_event(e);
    if (!set_tails(&e->capture_tails, &e->capture_ntails, s->capture_tails, s->capture_ntails))
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    culvert__sim_record_unref(e->record);
    e->record = NULL;
    e->capture = c;
    c->refs++;
    return 0;
}

void culvert__sim_capture_join(struct sim_capture *c, struct CUstream_st *s)
{
    s->capture = c;
    s->capture_next = c->streams;
    c->streams = s;
    c->refs++;
    s->ctx->captures++;
}

/* Waiting for an event that was not recorded in a capture, on a stream that is captured. */
static int wait_for_outside(struct CUstream_st *s, const struct CUevent_st *e)
{
    if (!e->record)
        return 0;
    s->capture->invalid = true;
    return CULVERT__CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

int culvert__sim_capture_wait(struct CUstream_st *s, struct CUevent_st *e)
{
    struct sim_capture *c = e->capture;
    if (s->capture && s->capture->invalid)
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!c)
        return wait_for_outside(s, e);
    if (!c->origin)
        return CULVERT__CUDA_ERROR_CAPTURED_EVENT; /* that capture has ended */
    if (s->capture && s->capture != c) {
        s->capture->invalid = c->invalid = true;
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (c->invalid)
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s == s->ctx->legacy) {
        c->invalid = true;
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!s->capture)
        culvert__sim_capture_join(c, s);
    return add_tails(s, e->capture_tails, e->capture_ntails) ? 0
                                                             : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
}

static void leave(struct CUstream_st *s)
{
    struct sim_capture *c = s->capture;
    struct CUstream_st **at = &c->streams;
    while (*at != s)
        at = &(*at)->capture_next;
    *at = s->capture_next;
    s->capture = NULL;
    free(s->capture_tails);
    s->capture_tails = NULL;
    s->capture_ntails = 0;
    s->ctx->captures--;
    culvert__sim_capture_unref(c);
}

struct CUgraph_st *culvert__sim_capture_end(struct sim_capture *c)
{
    struct CUgraph_st *g = c->graph;
    if (c->prev)
        c->prev->next = c->next;
    else
        culvert__sim_captures = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->graph = NULL;
    c->origin = NULL;
    c->refs++;
    while (c->streams)
        leave(c->streams);
    culvert__sim_capture_unref(c);
    return g;
}

void culvert__sim_capture_forget_stream(struct CUstream_st *s)
{
    struct sim_capture *c = s->capture;
    if (!c)
        return;
    c->invalid = true;
    if (c->origin == s)
        culvert__sim_graph_free(culvert__sim_capture_end(c));
    else
        leave(s);
}

int culvert__sim_capture_unsafe(void)
{
    const struct sim_thread *t = culvert__sim_thread();
    int result = 0;
    for (struct sim_capture *c = culvert__sim_captures; c; c = c->next) {
        if (c->mode == CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED ||
            t->capture_mode == CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED)
            continue;
        bool own = c->thread == t;
        bool global = c->mode == CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      t->capture_mode == CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || global) {
            c->invalid = true;
            result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

int culvert__sim_capture_implicit(struct CUctx_st *ctx)
{
    int result = 0;
    if (ctx->captures == 0)
        return 0;
    for (struct CUstream_st *s = ctx->streams; s; s = s->next) {
        if (s->capture && !(s->flags & CULVERT__CU_STREAM_NON_BLOCKING)) {
            s->capture->invalid = true;
            result = CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

int culvert__sim_capture_conflict(struct CUstream_st *s)
{
    if (s->capture) {
        s->capture->invalid = true;
        return CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    int result = s == s->ctx->legacy ? culvert__sim_capture_implicit(s->ctx) : 0;
    return result ? result : culvert__sim_capture_unsafe();
}
