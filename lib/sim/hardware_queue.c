/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hardware_queue.c: the hardware's queues: how much fits, and who has to wait for one.
 *
 * Room. A launch, copy, fill or graph launch is counted from append until it begins, in the queue
 * that its stream was given at its creation; its caller waits while the queue is full (schedule.c).
 *
 * Turn. The hardware deals its queues at run time, by a rule that NVIDIA does not tell. Measured on
 * an H200, driver 580, CUDA 13.0, with a long kernel on one stream, W streams that wait for an event
 * behind it, and then 16 fresh streams, each with an empty kernel:
 *
 *     behind each wait stands      n     W                    of the 16 stand still
 *     a kernel                     8     1, 4                 none
 *     a kernel                     8     8, 16, 24, 32, 64    all, until the long kernel's end
 *     a kernel                     32    16                   none
 *     a kernel                     32    64                   all
 *     nothing                      any   up to 64             none
 *     a host function              >= 8  up to 32             none
 *     a host function              1     1                    all
 *
 * So with one queue all that has not begun is in the context's list, in order, and only the first of
 * it may begin; but records, and waits with nothing behind them, are as if they were not there.
 *
 * With n >= 2 a stream occupies a queue when its first operation is a wait for an event that is
 * pending, and it has device work behind it. A device operation does not begin while n streams are
 * occupied by waits that were put there before it. What was there before the waits is never held up
 * by them: so waits for the past cannot deadlock. The silent waits of legacy.c are not counted.
 *
 * Invariants: a stream whose first operation has no turn is PARKED. With n >= 2 it is then in
 * `parked`, and is looked at again whenever a record settles or a stream is purged.
 */
#include "sim/engine.h"

static bool one_queue(void)
{
    return culvert__sim.hardware_queues == 1;
}

void culvert__sim_join_queue(struct sim_op *op)
{
    struct sim_hwq *q = op->stream->queue;
    struct CUctx_st *ctx = op->stream->ctx;
    op->place = ++culvert__sim.places;
    if (op->work.kind != SIM_WAIT && op->work.kind != SIM_RECORD)
        op->stream->last_work = op->place;
    if (op->device) {
        op->queued = true;
        q->waiting++;
    }
    if (!one_queue() || op->work.kind == SIM_RECORD)
        return;
    op->listed = true;
    op->queue_prev = ctx->list_tail;
    op->queue_next = NULL;
    if (ctx->list_tail)
        ctx->list_tail->queue_next = op;
    else
        ctx->list_head = op;
    ctx->list_tail = op;
}

static void try_again(struct CUstream_st *s)
{
    if (s->state != SIM_STREAM_PARKED)
        return;
    s->state = SIM_STREAM_IDLE;
    culvert__sim_kick(s);
}

/* With one queue: what may begin, if it is the first of its stream. */
static struct sim_op *first_of(const struct CUctx_st *ctx)
{
    struct sim_op *op = ctx->list_head;
    while (op && op->work.kind == SIM_WAIT && op->place > op->stream->last_work)
        op = op->queue_next;
    return op;
}

void culvert__sim_leave_queue(struct sim_op *op)
{
    struct sim_hwq *q = op->stream->queue;
    struct CUctx_st *ctx = op->stream->ctx;
    if (op->queued) {
        op->queued = false;
        q->waiting--;
        if (q->blocked > 0)
            pthread_cond_broadcast(&q->room);
    }
    if (!op->listed)
        return;
    op->listed = false;
    if (op->queue_prev)
        op->queue_prev->queue_next = op->queue_next;
    else
        ctx->list_head = op->queue_next;
    if (op->queue_next)
        op->queue_next->queue_prev = op->queue_prev;
    else
        ctx->list_tail = op->queue_prev;
    const struct sim_op *first = first_of(ctx);
    if (first)
        try_again(first->stream);
}

/* By a wait that was put there before `place`. */
static bool occupies(const struct CUstream_st *s, uint64_t place)
{
    const struct sim_op *op = s->head;
    return op && op->work.kind == SIM_WAIT && !op->silent && op->place < place &&
           op->record->state == SIM_RECORD_PENDING && s->device_work > 0;
}

static bool all_are_occupied(const struct sim_op *op)
{
    const struct CUctx_st *ctx = op->stream->ctx;
    unsigned n = culvert__sim.hardware_queues;
    if (ctx->waits < n)
        return false;
    for (const struct CUstream_st *s = ctx->streams; s && n > 0; s = s->next)
        n -= occupies(s, op->place);
    return n == 0;
}

bool culvert__sim_has_turn(const struct sim_op *op)
{
    if (op->listed) /* a wait may as well begin: what is behind it in the list still has no turn */
        return op->work.kind == SIM_WAIT || first_of(op->stream->ctx) == op;
    return !op->queued || one_queue() || !all_are_occupied(op);
}

void culvert__sim_park(struct CUstream_st *s)
{
    s->state = SIM_STREAM_PARKED;
    if (s->head->listed || s->in_parked)
        return;
    s->in_parked = true;
    s->parked_next = culvert__sim.parked;
    culvert__sim.parked = s;
}

void culvert__sim_unpark(struct CUstream_st *s)
{
    if (!s->in_parked)
        return;
    struct CUstream_st **at = &culvert__sim.parked;
    while (*at != s)
        at = &(*at)->parked_next;
    *at = s->parked_next;
    s->in_parked = false;
}

void culvert__sim_unpark_all(void)
{
    struct CUstream_st *next, *s = culvert__sim.parked;
    culvert__sim.parked = NULL;
    for (; s; s = next) {
        next = s->parked_next;
        s->in_parked = false;
        try_again(s);
    }
}
