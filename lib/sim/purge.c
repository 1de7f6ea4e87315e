/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * purge.c: what becomes of queued operations when their context fails or ends.
 *
 * Invariants: afterwards nothing is on the context's streams but what is under way at the moment: an
 * operation that a worker or the host function thread is in, which takes itself off when it returns.
 * Records of dropped operations have failed. Host functions are dropped unrun, unless a test wants
 * them to run; callbacks of cuStreamAddCallback run with the error, detached from their stream.
 */
#include "sim/engine.h"

static void forget_timed(struct sim_op *op)
{
    for (struct sim_op **at = &culvert__sim.timed; *at; at = &(*at)->timed_next) {
        if (*at == op) {
            *at = op->timed_next;
            return;
        }
    }
}

static void forget_host(struct sim_op *op)
{
    struct sim *sim = &culvert__sim;
    for (struct sim_op **at = &sim->host_head; *at; at = &(*at)->host_next) {
        if (*at == op) {
            *at = op->host_next;
            if (!op->host_next)
                sim->host_tail = at;
            return;
        }
    }
}

/* Host functions that run although their stream has failed go on without it. */
static bool survives(const struct sim_op *op)
{
    return op->work.kind == SIM_HOST &&
           (op->work.u.host.callback || culvert__sim.host_mode == CULVERT_SIM_HOST_ALWAYS);
}

static void drop(struct CUstream_st *s, struct sim_op **at, int result)
{
    struct sim_op *op = *at;
    bool lives = survives(op) && result != CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *at = op->next;
    if (!*at)
        s->tail = at;
    culvert__sim_unlink(op);
    if (op->record && op->work.kind != SIM_WAIT)
        culvert__sim_record_settle(op->record, result);
    if (lives) {
        op->stream = NULL;
        op->status = result;
        culvert__sim_give_to_host(op);
    } else {
        culvert__sim.operations--;
        culvert__sim_op_free(op);
    }
}

static void purge_stream(struct CUstream_st *s, int result)
{
    struct sim_op *op = s->head;
    struct sim_op **at = &s->head;
    if (!op)
        return;
    bool under_way = s->state == SIM_STREAM_RUNNING ||
                     (s->state == SIM_STREAM_HOST && culvert__sim.host_current == op);
    if (under_way)
        at = &op->next;
    else if (s->state == SIM_STREAM_WAITING)
        culvert__sim_record_forget(op->record, s);
    else if (s->state == SIM_STREAM_TIMED)
        forget_timed(op);
    else if (s->state == SIM_STREAM_HOST)
        forget_host(op);
    if (!under_way && s->state != SIM_STREAM_READY)
        s->state = SIM_STREAM_IDLE;
    culvert__sim_unpark(s);
    while (*at)
        drop(s, at, result);
    culvert__sim_stream_over(s);
}

void culvert__sim_purge(struct CUctx_st *ctx, int result)
{
    struct CUstream_st *next;
    for (struct CUstream_st *s = ctx->streams; s; s = next) {
        next = s->next;
        purge_stream(s, result);
    }
    culvert__sim_unpark_all();
    for (int q = 0; q < SIM_MAX_QUEUES; q++) {
        if (ctx->queues[q].blocked > 0)
            pthread_cond_broadcast(&ctx->queues[q].room);
    }
    culvert__sim_tell_changed();
}
