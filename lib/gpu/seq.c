/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sequences: begin, arena, the first error, submit, drop. Operations are in seq_ops.c, waiting in
 * seq_wait.c, the end in seq_end.c.
 *
 * Invariants: a sequence that failed while it was built changes no more (every function returns
 * early, releasing what it was given). The one that seq_begin returns when memory is short is
 * shared and never written; so is the one of a forked child. The former is the gpu's: each time it is
 * returned it counts as a reference to the gpu, until it is submitted or dropped.
 */
#include "gpu/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the arena ---- */

static void *chunk_memory(culvert__chunk *chunk)
{
    return (char *)chunk + ((sizeof *chunk + 15) & ~(size_t)15);
}

void *culvert__seq_arena(culvert_seq *seq, size_t bytes)
{
    size_t size = (bytes + 15) & ~(size_t)15;
    if (size < bytes)
        goto fail;
    if (sizeof seq->first - seq->first_used >= size) {
        void *p = seq->first + seq->first_used;
        seq->first_used += size;
        return p;
    }
    culvert__chunk *chunk = seq->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = chunk == NULL ? 4096 : chunk->size * 2;
        if (room < size)
            room = size;
        if (room > SIZE_MAX - 64 || (chunk = malloc(room + 64)) == NULL)
            goto fail;
        *chunk = (culvert__chunk){seq->chunks, room, 0};
        seq->chunks = chunk;
    }
    chunk->used += size;
    return (char *)chunk_memory(chunk) + chunk->used - size;
fail:
    culvert__seq_fail(seq, CULVERT_ENOMEM, "culvert_seq_submit", NULL,
                      "no memory for %zu bytes of a sequence that is being built", bytes);
    return NULL;
}

/* ---- the first error ---- */

void culvert__seq_fail_with(culvert_seq *seq, const culvert_error *err)
{
    if (seq->failed)
        return;
    seq->failed = true;
    seq->error = *err;
}

void culvert__seq_fail(culvert_seq *seq, int code, const char *op, const char *where,
                       const char *fmt, ...)
{
    char message[CULVERT_ERROR_MESSAGE_SIZE];
    va_list args;
    if (seq->failed)
        return;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    seq->failed = true;
    culvert__error_set(&seq->error, code, 0, op, where, "%s", message);
}

culvert_gpu *culvert__seq_gpu(culvert_seq *seq)
{
    return seq->gpu;
}

/* ---- begin ---- */

static void reset(culvert_seq *seq, culvert_gpu *gpu)
{
    culvert__chunk *chunks = seq->chunks;
    memset(seq, 0, offsetof(culvert_seq, first));
    seq->gpu = gpu;
    seq->chunks = chunks;
    seq->ops_end = &seq->ops;
    seq->waits_end = &seq->waits;
    seq->keeps_end = &seq->keeps;
    culvert__list_init(&seq->dependents);
}

culvert_seq *culvert__no_seq_new(culvert_gpu *gpu)
{
    culvert_seq *seq = calloc(1, sizeof *seq);
    if (seq == NULL)
        return NULL;
    reset(seq, gpu);
    culvert__seq_fail(seq, CULVERT_ENOMEM, "culvert_seq_begin", NULL, "no memory for a sequence");
    return seq;
}

/* In a forked child: nothing of the gpu may be touched. */
static culvert_seq *forked_seq(void)
{
    static culvert_seq seq = {.failed = true, .error = {.code = CULVERT_EFORKED}};
    return &seq;
}

bool culvert__seq_is_shared(const culvert_seq *seq)
{
    return seq->gpu == NULL || seq == seq->gpu->flow->no_seq;
}

culvert_seq *culvert_seq_begin_at(const char *where, culvert_stream *stream)
{
    if (culvert__forked())
        return forked_seq();
    CULVERT__REQUIRE(stream, "culvert_seq_begin", "stream");
    culvert_gpu *gpu = stream->gpu;
    culvert__check_thread(culvert__gpu_core(gpu), "culvert_seq_begin");
    culvert__flow *flow = gpu->flow;
    culvert_seq *seq;
    if (!culvert__list_empty(&flow->seqs)) {
        seq = CULVERT__CONTAINER(flow->seqs.next, culvert_seq, link);
        culvert__list_unlink(&seq->link);
        flow->nseqs--;
    } else {
        seq = malloc(sizeof *seq);
        if (seq == NULL) {
            culvert__gpu_ref(gpu);
            return flow->no_seq;
        }
        seq->chunks = NULL;
    }
    reset(seq, gpu);
    seq->where = where;
    if (culvert__gpu_core(gpu)->tracer != NULL)
        seq->built = culvert__now();
    stream->refs++;
    seq->stream = stream;
    return seq;
}

culvert_seq *culvert_seq_begin(culvert_stream *stream)
{
    return culvert_seq_begin_at(NULL, stream);
}

void culvert_seq_timed(culvert_seq *seq)
{
    CULVERT__REQUIRE(seq, "culvert_seq_timed", "seq");
    if (!seq->failed)
        seq->timed = seq->timed_by_program = true;
}

/* ---- submit ---- */

/* Never submitted. */
static void discard(culvert_seq *seq)
{
    if (culvert__seq_is_shared(seq))
        culvert__gpu_unref(seq->gpu);
    else
        culvert__seq_discard(seq);
}

culvert_future *culvert__seq_reject(culvert_seq *seq)
{
    culvert_error err = seq->error;
    culvert_future *future = culvert__future_rejected(culvert__gpu_core(seq->gpu), &err);
    discard(seq); /* last: what it kept may take the binding down */
    return future;
}

/* There was no memory to build it; but why nothing can be submitted counts more. */
culvert_future *culvert__seq_reject_shared(culvert_seq *seq, const char *op, const char *where)
{
    culvert_error err = seq->error;
    err.where = where;
    (void)culvert__gpu_refuses(seq->gpu, op, where, &err);
    culvert_future *future = culvert__future_rejected(culvert__gpu_core(seq->gpu), &err);
    discard(seq);
    return future;
}

bool culvert__seq_refused(culvert_seq *seq, const char *op, const char *where)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert__gpu_refuses(seq->gpu, op, where, &err)) {
        seq->failed =
            false; /* why nothing can be submitted counts more than what is wrong with it */
        culvert__seq_fail_with(seq, &err);
    }
    if (!seq->failed && culvert__refuses_work(culvert__gpu_core(seq->gpu)))
        culvert__seq_fail(seq, CULVERT_ESHUTDOWN, op, where, "the binding drains (culvert_drain)");
    return seq->failed;
}

static bool may_submit(culvert_seq *seq, const char *where)
{
    const char *op = "culvert_seq_submit";
    const culvert_stream *s = seq->stream;
    if (culvert__seq_refused(seq, op, where))
        return false;
    if (s->max_queued != 0 && s->queued >= s->max_queued) {
        culvert__seq_fail(seq, CULVERT_EAGAIN, op, where,
                          "%zu sequence%s in the stream, and max_queued is %zu", s->queued,
                          s->queued == 1 ? " waits" : "s wait", s->max_queued);
        return false;
    }
    return true;
}

culvert_future *culvert_seq_submit_at(const char *where, culvert_seq *seq)
{
    CULVERT__REQUIRE(seq, "culvert_seq_submit", "seq");
    if (seq->gpu == NULL || culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    if (culvert__seq_is_shared(seq))
        return culvert__seq_reject_shared(seq, "culvert_seq_submit", where);
    if (!may_submit(seq, where))
        return culvert__seq_reject(seq);
    culvert__core *core = culvert__gpu_core(seq->gpu);
    culvert_future *future =
        culvert__future_alloc(core, &culvert__seq_kind, sizeof(culvert__seq_future));
    if (future == NULL) {
        culvert__seq_fail(seq, CULVERT_ENOMEM, "culvert_seq_submit", where,
                          "no memory for the sequence's future");
        return culvert__seq_reject(seq);
    }
    culvert__future_make_root(future);
    culvert__pin(future);
    if (seq->where == NULL)
        seq->where = where;
    seq->future = (culvert__seq_future *)(void *)future;
    seq->future->seq = seq;
    seq->number = ++seq->gpu->flow->submitted;
    core->counters.submitted++;
    if (core->tracer != NULL)
        culvert__seq_trace_begin(seq);
    culvert__stream_submit(seq->stream, seq);
    return future;
}

culvert_future *culvert_seq_submit(culvert_seq *seq)
{
    return culvert_seq_submit_at(NULL, seq);
}

void culvert_seq_drop(culvert_seq *seq)
{
    if (seq == NULL || seq->gpu == NULL || culvert__forked())
        return;
    culvert__check_thread(culvert__gpu_core(seq->gpu), "culvert_seq_drop");
    discard(seq);
}
