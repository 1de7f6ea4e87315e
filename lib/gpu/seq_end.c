/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a sequence.
 *
 * It is over when nothing more of it will go to the driver (state WHOLE), none of it is there
 * (entries == 0), no worker copies for it (jobs == 0), and all it waited for has settled. Then its
 * future settles, what it held is let go, and what it kept is released behind the callbacks.
 *
 * Invariants: a live sequence keeps its loop running and pins its future; each is undone once, in
 * `finish`. What the device may still use (after a loss, or when the loop is taken down with work in
 * flight) is buried: it hangs from the device for ever and is never reused.
 */
#include "gpu/flow.h"

#include <stdio.h>
#include <stdlib.h>

enum { POOLED = 256 };

/* ---- letting go ---- */

static void free_chunks(culvert_seq *seq)
{
    while (seq->chunks != NULL) {
        culvert__chunk *next = seq->chunks->next;
        free(seq->chunks);
        seq->chunks = next;
    }
}

/* Keeps the newest chunk (the largest) of a pooled sequence. */
static void trim_chunks(culvert_seq *seq)
{
    culvert__chunk *first = seq->chunks;
    if (first == NULL)
        return;
    seq->chunks = first->next;
    free_chunks(seq);
    first->next = NULL;
    first->used = 0;
    seq->chunks = first;
}

static void release_holds(culvert_seq *seq)
{
    for (culvert__hold *hold = seq->holds; hold != NULL; hold = hold->next) {
        culvert_buffer_unref(hold->buffer);
        culvert_module_unref(hold->module);
        if (hold->graph != NULL)
            culvert__graph_put(hold->graph);
    }
    seq->holds = NULL;
}

static void run_keeps(culvert_seq *seq)
{
    culvert__keep *keep = seq->keeps;
    seq->keeps = NULL;
    for (; keep != NULL; keep = keep->next)
        if (keep->obj_free != NULL)
            keep->obj_free(keep->obj);
}

/* Its memory goes back to the pool. Last of all: the stream, which may hold the gpu. */
static void recycle(culvert_seq *seq)
{
    culvert_stream *stream = seq->stream;
    culvert__flow *flow = seq->gpu->flow;
    bool pool = seq->gpu->attached && flow->nseqs < POOLED;
    trim_chunks(seq);
    if (pool) {
        culvert__list_push(&flow->seqs, &seq->link);
        flow->nseqs++;
    } else {
        free_chunks(seq);
        free(seq);
    }
    if (stream != NULL) /* a compiled one has none */
        culvert__stream_put(stream);
}

static void run_release(culvert__task *task)
{
    culvert_seq *seq = CULVERT__CONTAINER(task, culvert_seq, release);
    run_keeps(seq);
    recycle(seq);
}

void culvert__seq_discard(culvert_seq *seq)
{
    /* What is kept may let go of everything, the binding included. */
    culvert_loop *loop = culvert_loop_ref(seq->gpu->loop);
    culvert__core *core = culvert__core_of(loop);
    culvert__enter(core);
    culvert__seq_drop_waits(seq);
    release_holds(seq);
    run_keeps(seq);
    recycle(seq);
    culvert__leave(core);
    culvert__reap(core); /* what it waited for may have nobody else */
    culvert_loop_unref(loop);
}

/* ---- burying ---- */

static void bury(culvert_seq *seq)
{
    culvert__device *device = seq->gpu->device;
    if (culvert__forked())
        return; /* another thread of the parent may have held the lock */
    pthread_mutex_lock(&device->lock);
    culvert__list_push(&device->graveyard, &seq->link);
    pthread_mutex_unlock(&device->lock);
}

/* ---- settling ---- */

/* When it ran: for the program, where that asked. */
static void measure(culvert_seq *seq)
{
    if (!seq->timed || !culvert__timing_take(seq, &seq->future->timing))
        return;
    if (seq->timed_by_program)
        seq->future->clock = seq->gpu->flow->clock;
}

static void settle(culvert_seq *seq)
{
    culvert_future *future = &seq->future->base;
    culvert__counters *counters = &culvert__gpu_core(seq->gpu)->counters;
    bool awaited = false;
    ++*(seq->canceled ? &counters->canceled
        : seq->failed ? &counters->rejected
                      : &counters->resolved);
    measure(seq);
    if (seq->traced != NULL)
        awaited = culvert__seq_trace_over(seq);
    seq->future->seq = NULL;
    seq->future = NULL;
    if (seq->failed && seq->canceled)
        culvert__settle_canceled(future);
    else if (seq->failed)
        culvert__settle_error(future, &seq->error);
    else
        culvert__settle_value(future, NULL, NULL);
    if (seq->traced != NULL)
        seq->traced->tracer->settled(seq->traced, awaited);
    seq->traced = NULL;
    culvert__unpin(future);
}

static void drop_slots(culvert_seq *seq)
{
    for (culvert__op *op = seq->cursor; op != NULL; op = op->next)
        if (op->kind == CULVERT__OP_UPLOAD)
            culvert__op_drop_slots(seq, op);
}

static void finish(culvert_seq *seq)
{
    culvert_gpu *gpu = seq->gpu;
    if (seq->peer)
        culvert__peers_lost(seq);
    culvert__seq_drop_waits(seq);
    if (seq->in_driver)
        seq->stream->in_flight--;
    else
        seq->stream->queued--;
    seq->state = CULVERT__SEQ_OVER;
    culvert__list_unlink(&seq->live);
    culvert__seq_wake_dependents(seq);
    settle(seq);
    culvert__loop_unkeep(gpu->loop);
    if (seq->buried) {
        bury(seq);
        return;
    }
    culvert__event_give(gpu, seq->start, true);
    culvert__event_give(gpu, seq->end, true);
    release_holds(seq);
    if (seq->keeps == NULL || !gpu->attached) {
        run_keeps(seq); /* the loop runs no more callbacks */
        recycle(seq);
        return;
    }
    seq->release.run = run_release;
    culvert__ready_push(culvert__gpu_core(gpu), &seq->release);
}

void culvert__seq_try_settle(culvert_seq *seq)
{
    if (seq->state != CULVERT__SEQ_WHOLE || seq->entries > 0 || seq->jobs > 0)
        return;
    if (culvert__seq_take_waits(seq) || !seq->started || seq->failed)
        finish(seq);
}

void culvert__seq_stop(culvert_seq *seq)
{
    culvert_stream *s = seq->stream;
    if (seq->state >= CULVERT__SEQ_WHOLE)
        return;
    seq->state = CULVERT__SEQ_WHOLE;
    culvert__list_unlink(&seq->link);
    drop_slots(seq);
    culvert__stream_schedule(s);
    culvert__seq_wake_dependents(seq);
    culvert__seq_try_settle(seq);
}

/* ---- the future's side ---- */

static void cancel(culvert_future *future)
{
    culvert_seq *seq = ((culvert__seq_future *)(void *)future)->seq;
    if (seq == NULL || seq->state >= CULVERT__SEQ_WHOLE || culvert__forked())
        return;
    if (!seq->failed) {
        seq->canceled = true;
        culvert__seq_fail(seq, CULVERT_ECANCELED, "culvert_cancel", seq->where, "cancelled%s",
                          seq->in_driver ? " with a part of the sequence in the driver" : "");
    }
    culvert__seq_stop(seq);
}

static void attached(culvert_future *future)
{
    culvert__loop_resume(culvert__loop_of(future->core));
}

static void shut_down(culvert_future *future, const culvert_error *err)
{
    culvert_seq *seq = ((culvert__seq_future *)(void *)future)->seq;
    culvert__settle_error(future, err);
    if (seq == NULL || culvert__forked())
        return;
    culvert__seq_fail_with(seq, err);
    culvert__seq_stop(seq);
}

const culvert__kind culvert__seq_kind = {.name = "sequence",
                                         .cancel = cancel,
                                         .attached = attached,
                                         .shutdown = shut_down};

culvert_seq *culvert__seq_of(const culvert_future *future)
{
    if (future->kind != &culvert__seq_kind)
        return NULL;
    return ((const culvert__seq_future *)(const void *)future)->seq;
}

/* ---- the gpu leaves the loop ---- */

/*
 * Futures have settled (culvert_loop_free did that), workers are joined. Whatever is not in the driver
 * is let go; whatever is stays with the device. In a forked child nothing is touched.
 */
void culvert__seqs_leave(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    while (!culvert__list_empty(&flow->live)) {
        culvert_seq *seq = CULVERT__CONTAINER(flow->live.next, culvert_seq, live);
        seq->buried = seq->buried || seq->entries > 0 || culvert__forked();
        seq->failed = seq->failed || culvert__forked();
        if (seq->state < CULVERT__SEQ_WHOLE)
            culvert__list_unlink(&seq->link);
        seq->state = CULVERT__SEQ_WHOLE;
        seq->entries = seq->jobs = 0;
        finish(seq);
    }
}

void culvert__seqs_free(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    while (!culvert__list_empty(&flow->seqs)) {
        culvert_seq *seq = CULVERT__CONTAINER(flow->seqs.next, culvert_seq, link);
        culvert__list_unlink(&seq->link);
        free_chunks(seq);
        free(seq);
    }
    flow->nseqs = 0;
}

/* ---- for messages ---- */

const char *culvert__op_name(const culvert__op *op)
{
    static const char *const names[] = {"culvert_seq_upload", "culvert_seq_download",
                                        "culvert_seq_copy",   "culvert_seq_fill",
                                        "culvert_seq_launch", NULL, /* it has several names */
                                        "culvert_seq_copy2d", "culvert_seq_graph"};
    if (op == NULL)
        return "culvert_seq_submit";
    return op->kind == CULVERT__OP_CALL ? op->u.call.name : names[op->kind];
}

const char *culvert__seq_name(const culvert_seq *seq)
{
    return culvert__op_name(seq->ops);
}

const char *culvert__seq_where(const culvert_seq *seq)
{
    return seq->ops != NULL && seq->ops->where != NULL ? seq->ops->where : seq->where;
}

static const char *short_name(const culvert__op *op)
{
    static const char *const names[] = {"upload", "download", "copy",         "fill",
                                        "launch", "call",     "pitched copy", "graph"};
    return names[op->kind];
}

void culvert__seq_describe(const culvert_seq *seq, char *out, size_t size)
{
    const culvert__op *op = seq->ops;
    const char *where = culvert__seq_where(seq);
    const char *plural = seq->nops == 1 ? "" : "s";
    if (op == NULL)
        snprintf(out, size, "sequence %llu (empty)", (unsigned long long)seq->number);
    else if (op->kind == CULVERT__OP_LAUNCH)
        snprintf(out, size, "sequence %llu (%zu operation%s from launch of %s)",
                 (unsigned long long)seq->number, seq->nops, plural, op->u.launch.kernel->name);
    else
        snprintf(out, size, "sequence %llu (%zu operation%s from %s)",
                 (unsigned long long)seq->number, seq->nops, plural, short_name(op));
    size_t used = 0;
    while (used < size && out[used] != '\0')
        used++;
    if (where != NULL && used < size)
        snprintf(out + used, size - used, " at %s", where);
}
