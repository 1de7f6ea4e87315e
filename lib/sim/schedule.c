/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * schedule.c: which operation runs when. The picture of a stream's states is in engine.c.
 *
 * Invariants: a stream is in the ready queue exactly in state READY, and has a worker exactly in
 * state RUNNING. Only the first operation of a stream is ever under way, and it is taken off when it
 * is over. `unfinished` of a context counts launches, copies, fills and graphs from append until they
 * are off the stream, and so does `device_work` of a stream. Which of them have their turn on the
 * hardware, hardware_queue.c says.
 *
 * Host functions do not wait for room, but at most SIM_MAX_HOST_STREAMS streams of the process have
 * some that have not run: cuLaunchHostFunc on one more blocks until one of them has none left.
 * Measured on an H200, driver 580, CUDA 13.0, with 8 and with 32 hardware queues: behind a wait each,
 * 56 streams took theirs at once, and a call somewhere from the 57th to the 64th stream blocked.
 */
#include "sim/engine.h"
#include "sim/graph.h"

#include <stdlib.h>
#include <string.h>

static struct sim_op *free_ops;

struct sim_op *culvert__sim_op_new(enum sim_work_kind kind, enum culvert__sim_function call)
{
    struct sim_op *op = free_ops;
    if (op) {
        free_ops = op->next;
    } else {
        op = aligned_alloc(_Alignof(struct sim_op), sizeof *op);
        if (!op)
            culvert__sim_misuse("out of memory");
    }
    memset(op, 0, offsetof(struct sim_op, uses));
    memset(&op->work, 0, sizeof op->work);
    op->work.kind = kind;
    op->call = call;
    op->device =
        kind == SIM_KERNEL || kind == SIM_COPY || kind == SIM_FILL || kind == SIM_LAUNCH_GRAPH;
    return op;
}

void culvert__sim_op_free(struct sim_op *op)
{
    struct sim_work *w = &op->work;
    if (w->kind == SIM_KERNEL && w->u.kernel.params == op->params)
        w->u.kernel.params = NULL;
    culvert__sim_work_release(w);
    culvert__sim_record_unref(op->record);
    op->next = free_ops;
    free_ops = op;
}

/* The ready queue. */

static void make_ready(struct CUstream_st *s)
{
    struct sim *sim = &culvert__sim;
    int level = -s->priority;
    s->state = SIM_STREAM_READY;
    s->ready_next = NULL;
    if (!sim->ready[level])
        sim->ready_tail[level] = &sim->ready[level];
    *sim->ready_tail[level] = s;
    sim->ready_tail[level] = &s->ready_next;
    sim->nready++;
}

struct CUstream_st *culvert__sim_ready_take(void)
{
    struct sim *sim = &culvert__sim;
    if (sim->nready == 0)
        return NULL;
    for (int level = SIM_PRIORITIES - 1; level >= 0; level--) {
        struct CUstream_st *s = sim->ready[level];
        if (!s)
            continue;
        sim->ready[level] = s->ready_next;
        sim->nready--;
        return s;
    }
    return NULL;
}

static bool held(const struct CUstream_st *s)
{
    return s->held || culvert__sim.hold_all;
}

void culvert__sim_kick(struct CUstream_st *s)
{
    if (s->state != SIM_STREAM_IDLE || !s->head)
        return;
    if (!culvert__sim_has_turn(s->head)) {
        culvert__sim_park(s);
        return;
    }
    /* From here on it counts as running, also if the stream is held. */
    if (s->head->queued)
        culvert__sim_leave_queue(s->head);
    if (held(s))
        return;
    make_ready(s);
    culvert__sim_worker_wanted();
}

/* Appending. */

static void link_op(struct CUstream_st *s, struct sim_op *op)
{
    op->stream = s;
    op->next = NULL;
    *s->tail = op;
    s->tail = &op->next;
    culvert__sim_join_queue(op);
    culvert__sim.operations++;
    if (op->device)
        s->ctx->unfinished++;
    s->device_work += op->device;
    s->ctx->waits += op->work.kind == SIM_WAIT;
    if (op->work.kind == SIM_HOST && s->host_work++ == 0)
        culvert__sim.host_streams++;
}

void culvert__sim_unlink(struct sim_op *op)
{
    struct CUstream_st *s = op->stream;
    culvert__sim_leave_queue(op);
    culvert__sim_order_finish(op);
    s->device_work -= op->device;
    s->ctx->waits -= op->work.kind == SIM_WAIT;
    if (op->device && --s->ctx->unfinished == 0)
        culvert__sim_tell_changed();
    if (op->work.kind == SIM_HOST && --s->host_work == 0) {
        culvert__sim.host_streams--;
        culvert__sim_tell_changed();
    }
}

void culvert__sim_append(struct CUstream_st *s, struct sim_op *op)
{
    if (!op->silent)
        s->enqueued++;
    if (op->work.kind == SIM_WAIT)
        culvert__sim_order_wait(s, op->record);
    else
        culvert__sim_order_append(s, op);
    if (op->record && op->work.kind != SIM_WAIT)
        culvert__sim_order_record(s, op->record);
    /* The usual case of a record: everything before it is over, so no worker need look at it. */
    if (op->work.kind == SIM_RECORD && !s->head && !held(s)) {
        culvert__sim_record_settle(op->record, 0);
        culvert__sim_op_free(op);
        return;
    }
    link_op(s, op);
    culvert__sim_kick(s);
}

/* Waits as the driver does before it takes a launch. False: the stream is gone. */
static bool wait_for_room(struct CUstream_st *s)
{
    struct CUctx_st *ctx = s->ctx;
    struct sim_hwq *q = s->queue;
    unsigned generation = atomic_load(&culvert__sim.generation);
    bool noted = false;
    while (!ctx->sticky && (ctx->stalls > 0 || q->waiting >= culvert__sim.queue_depth)) {
        if (!noted && ctx->stalls > 0 && culvert__sim_thread()->loop)
            culvert__sim_violation("%s on the loop thread is stalled by %s on another",
                                   culvert__sim_current_call(), ctx->stall_call);
        else if (!noted)
            culvert__sim_note_block("its hardware queue is full");
        noted = true;
        if (ctx->stalls > 0) {
            culvert__sim_wait_changed();
        } else {
            q->blocked++;
            culvert__sim_wait(&q->room);
            q->blocked--;
        }
        if (generation != atomic_load(&culvert__sim.generation) || s->closed)
            return false;
    }
    return true;
}

/*
 * Waits as the driver does before it takes a host function while too many streams have one that has
 * not run. False: the stream is gone.
 */
static bool wait_for_host_room(struct CUstream_st *s)
{
    const struct CUctx_st *ctx = s->ctx;
    unsigned generation = atomic_load(&culvert__sim.generation);
    bool noted = false;
    while (!ctx->sticky && s->host_work == 0 && culvert__sim.host_streams >= SIM_MAX_HOST_STREAMS) {
        if (!noted)
            culvert__sim_note_block("too many streams have a host function that has not run");
        noted = true;
        culvert__sim_wait_changed();
        if (generation != atomic_load(&culvert__sim.generation) || !ctx->active || s->closed)
            return false;
    }
    return true;
}

int culvert__sim_enqueue(struct CUstream_st *s, struct sim_op *op)
{
    if ((op->device && !wait_for_room(s)) ||
        (op->work.kind == SIM_HOST && !wait_for_host_room(s))) {
        culvert__sim_op_free(op);
        return CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    int sticky = s->ctx->sticky;
    if (sticky) {
        culvert__sim_op_free(op);
        return sticky;
    }
    culvert__sim_legacy_order(s);
    culvert__sim_append(s, op);
    return 0;
}

/* Running. */

void culvert__sim_stream_over(struct CUstream_st *s)
{
    if (s->closed && !s->head && s->state == SIM_STREAM_IDLE)
        culvert__sim_stream_free(s);
}

/* The first operation of its stream is over, or dropped. */
static void take_off(struct CUstream_st *s, struct sim_op *op, int result)
{
    struct CUctx_st *ctx = s->ctx;
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    culvert__sim.operations--;
    culvert__sim_unlink(op);
    if (op->record && op->work.kind != SIM_WAIT)
        culvert__sim_record_settle(op->record, result);
    culvert__sim_op_free(op);
    if (ctx->ending)
        culvert__sim_tell_changed();
}

static void insert_timed(struct sim_op *op)
{
    struct sim_op **at = &culvert__sim.timed;
    while (*at && (*at)->end_ns <= op->end_ns)
        at = &(*at)->timed_next;
    op->timed_next = *at;
    *at = op;
    op->stream->state = SIM_STREAM_TIMED;
    if (culvert__sim.timed == op)
        culvert__sim_worker_timed();
}

void culvert__sim_time_passed(void)
{
    struct sim *sim = &culvert__sim;
    if (!sim->timed)
        return;
    uint64_t now = culvert__sim_device_ns();
    while (sim->timed && sim->timed->end_ns <= now) {
        struct sim_op *op = sim->timed;
        sim->timed = op->timed_next;
        op->stream->state = SIM_STREAM_IDLE;
        culvert__sim_kick(op->stream);
    }
}

void culvert__sim_give_to_host(struct sim_op *op)
{
    struct sim *sim = &culvert__sim;
    op->host_next = NULL;
    if (!sim->host_head)
        sim->host_tail = &sim->host_head;
    *sim->host_tail = op;
    sim->host_tail = &op->host_next;
    culvert__sim_host_wanted();
}

const struct sim_host_work *culvert__sim_host_work_of(const struct sim_op *op)
{
    if (op->work.kind == SIM_LAUNCH_GRAPH)
        return &culvert__sim_plan_work(op->work.u.plan, op->plan_at)->u.host;
    return &op->work.u.host;
}

void culvert__sim_host_done(struct sim_op *op)
{
    struct CUstream_st *s = op->stream;
    if (!s) {
        culvert__sim.operations--;
        culvert__sim_op_free(op);
        return;
    }
    s->state = SIM_STREAM_IDLE;
    if (op->work.kind == SIM_LAUNCH_GRAPH && !s->ctx->sticky)
        op->plan_at++;
    else
        take_off(s, op, s->ctx->sticky);
    culvert__sim_kick(s);
    culvert__sim_stream_over(s);
}

/* A kernel that was stopped with its context has not failed. */
static void note_result(struct CUctx_st *ctx, const struct sim_work *w, int result)
{
    if (result != 0 && ctx->active && !ctx->sticky)
        culvert__sim_strike(ctx->device, result, culvert__sim_work_name(w));
}

static int run_work(struct CUctx_st *ctx, const struct sim_work *w, culvert__block_runner *runner)
{
    if (culvert__sim_work_is_short(w))
        return culvert__sim_work_run(w, &ctx->stop, runner);
    culvert__sim_execute_begin();
    int result = culvert__sim_work_run(w, &ctx->stop, runner);
    culvert__sim_execute_end();
    return result;
}

/* True: the graph is over. False: it waits for one of its host functions. */
static bool run_graph(struct CUstream_st *s, struct sim_op *op, culvert__block_runner *runner)
{
    const struct sim_work *w;
    while (s->ctx->active && !s->ctx->sticky &&
           (w = culvert__sim_plan_work(op->work.u.plan, op->plan_at))) {
        if (w->kind == SIM_HOST) {
            s->state = SIM_STREAM_HOST;
            culvert__sim_give_to_host(op);
            return false;
        }
        note_result(s->ctx, w, run_work(s->ctx, w, runner));
        op->plan_at++;
    }
    return true;
}

/* False: the operation waits, and the stream has left the state RUNNING. */
static bool wait_for_time(struct sim_op *op)
{
    uint64_t ns = culvert__sim_work_ns(&op->work);
    if (ns == 0 || op->started)
        return true;
    op->started = true;
    op->end_ns = culvert__sim_device_ns() + ns;
    insert_timed(op);
    return false;
}

static bool run_device_op(struct CUstream_st *s, struct sim_op *op, culvert__block_runner *runner)
{
    if (!wait_for_time(op))
        return false;
    if (op->work.kind == SIM_LAUNCH_GRAPH) {
        if (!run_graph(s, op, runner))
            return false;
    } else {
        note_result(s->ctx, &op->work, run_work(s->ctx, &op->work, runner));
    }
    take_off(s, op, s->ctx->sticky);
    return true;
}

/* A value in memory that the program may change at any time: look again after a while. */
static bool run_wait_value(struct CUstream_st *s, struct sim_op *op)
{
    if (!culvert__sim_value_is_there(&op->work.u.value)) {
        op->end_ns = culvert__sim_device_ns() + 1000000;
        insert_timed(op);
        return false;
    }
    take_off(s, op, 0);
    return true;
}

static bool run_first(struct CUstream_st *s, struct sim_op *op, culvert__block_runner *runner)
{
    switch (op->work.kind) {
    case SIM_WAIT:
        if (op->record->state == SIM_RECORD_PENDING) {
            s->state = SIM_STREAM_WAITING;
            s->wait_next = op->record->waiting;
            op->record->waiting = s;
            return false;
        }
        take_off(s, op, 0);
        return true;
    case SIM_HOST:
        s->state = SIM_STREAM_HOST;
        culvert__sim_give_to_host(op);
        return false;
    case SIM_WAIT_VALUE: return run_wait_value(s, op);
    case SIM_KERNEL:
    case SIM_COPY:
    case SIM_FILL:
    case SIM_LAUNCH_GRAPH: return run_device_op(s, op, runner);
    default:
        culvert__sim_work_run(&op->work, &s->ctx->stop, runner);
        take_off(s, op, 0);
        return true;
    }
}

void culvert__sim_run_stream(struct CUstream_st *s, culvert__block_runner *runner)
{
    s->state = SIM_STREAM_RUNNING;
    for (;;) {
        struct sim_op *op = s->head;
        if (!op)
            break;
        if (!culvert__sim_has_turn(op)) {
            culvert__sim_park(s);
            return;
        }
        if (op->queued)
            culvert__sim_leave_queue(op);
        if (held(s))
            break;
        if (!run_first(s, op, runner))
            return;
        if (culvert__sim.nready > 0 && s->head) {
            make_ready(s);
            return;
        }
    }
    s->state = SIM_STREAM_IDLE;
    culvert__sim_stream_over(s);
}
