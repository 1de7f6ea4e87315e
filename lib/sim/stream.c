/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stream.c: streams and their handles.
 *
 * Invariants: every stream is in its context's list until it is freed. A destroyed stream (closed)
 * goes when its last operation is off. The handles 0 and 1 mean the context's legacy stream, 2 the
 * calling thread's own, which is made at its first use. The room of the hardware queues is dealt out
 * in turn.
 */
#include "sim/memory.h"

#include <stdlib.h>

struct CUstream_st *culvert__sim_stream_new(struct CUctx_st *ctx, unsigned flags, int priority)
{
    struct CUstream_st *s = culvert__sim_object_new(SIM_STREAM);
    if (!s)
        return NULL;
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->id = ++culvert__sim.ids;
    s->tail = &s->head;
    s->slot = culvert__sim_slot_take();
    s->queue = &ctx->queues[ctx->next_queue++ % culvert__sim.hardware_queues];
    s->next = ctx->streams;
    if (s->next)
        s->next->prev = s;
    ctx->streams = s;
    return s;
}

void culvert__sim_stream_free(struct CUstream_st *s)
{
    culvert__sim_capture_forget_stream(s);
    if (s->prev)
        s->prev->next = s->next;
    else
        s->ctx->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    culvert__sim_clock_unref(s->clock);
    s->clock = NULL;
    culvert__sim_slot_give(s->slot);
    culvert__sim_object_free(&s->object);
}

/* The calling thread's own stream of its current context. */
static struct CUstream_st *thread_stream(struct CUctx_st *ctx)
{
    struct sim_thread *t = culvert__sim_thread();
    int d = ctx->device;
    if (t->streams[d] && t->stream_ids[d] == ctx->id)
        return t->streams[d];
    struct CUstream_st *s = culvert__sim_stream_new(ctx, 0, 0);
    if (!s)
        return NULL;
    culvert__sim_object_close(&s->object);
    t->streams[d] = s;
    t->stream_ids[d] = ctx->id;
    return s;
}

static int special_stream(culvert__CUstream handle, struct CUstream_st **out)
{
    struct CUctx_st *ctx;
    int result = culvert__sim_current(&ctx);
    if (result)
        return result;
    *out = handle == CULVERT__CU_STREAM_PER_THREAD ? thread_stream(ctx) : ctx->legacy;
    return *out ? 0 : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
}

int culvert__sim_stream_of(culvert__CUstream handle, enum sim_needs needs, struct CUstream_st **out)
{
    int result;
    if ((uintptr_t)handle <= (uintptr_t)CULVERT__CU_STREAM_PER_THREAD)
        return special_stream(handle, out);
    if (!culvert__sim_object_check(handle, SIM_STREAM, &result))
        return result;
    *out = handle;
    bool has_none = culvert__sim_thread()->depth == 0;
    if (needs == SIM_CURRENT || (needs == SIM_CURRENT_OR_NONE && !has_none)) {
        struct CUctx_st *ctx;
        result = culvert__sim_current(&ctx);
        if (result)
            return result;
        if (ctx != handle->ctx)
            return CULVERT__CUDA_ERROR_INVALID_HANDLE;
    }
    return handle->ctx->sticky;
}

int culvert__sim_synchronize(struct CUstream_st *s)
{
    if (s != s->ctx->legacy && !s->head)
        return s->ctx->sticky;
    struct sim_op *op = culvert__sim_op_new(SIM_RECORD, culvert__sim_thread()->call);
    struct sim_record *r = culvert__sim_record_new();
    op->silent = true;
    op->record = culvert__sim_record_ref(r);
    int result = culvert__sim_enqueue(s, op);
    if (result == 0 && r->state == SIM_RECORD_PENDING) {
        culvert__sim_note_block("it waits for the stream");
        result = culvert__sim_record_wait(r);
    }
    culvert__sim_record_unref(r);
    return result;
}

static int create(culvert__CUstream *out, unsigned flags, int priority)
{
    struct CUctx_st *ctx;
    if (!out || flags > CULVERT__CU_STREAM_NON_BLOCKING)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (priority > 0)
        priority = 0;
    if (priority < -(SIM_PRIORITIES - 1))
        priority = -(SIM_PRIORITIES - 1);
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0) {
        *out = culvert__sim_stream_new(ctx, flags, priority);
        result = *out ? 0 : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

int cuStreamCreateWithPriority(culvert__CUstream *stream, unsigned int flags, int priority)
{
    CULVERT__SIM_ENTER(cuStreamCreateWithPriority);
    return create(stream, flags, priority);
}

int cuStreamCreate(culvert__CUstream *stream, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuStreamCreate);
    return create(stream, flags, 0);
}

int cuStreamDestroy_v2(culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuStreamDestroy);
    int result;
    culvert__sim_lock();
    if ((uintptr_t)handle <= (uintptr_t)CULVERT__CU_STREAM_PER_THREAD)
        result = handle ? CULVERT__CUDA_ERROR_INVALID_HANDLE : CULVERT__CUDA_ERROR_INVALID_VALUE;
    else if (culvert__sim_object_check(handle, SIM_STREAM, &result))
        result = handle->ctx->sticky;
    if (result == 0) {
        culvert__sim_capture_forget_stream(handle);
        culvert__sim_object_close(&handle->object);
        handle->closed = true;
        culvert__sim_stream_over(handle);
    }
    culvert__sim_unlock();
    return result;
}

int cuStreamQuery(culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuStreamQuery);
    struct CUstream_st *s;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_capture_conflict(s);
    if (result == 0 && s == s->ctx->legacy)
        culvert__sim_legacy_order(s);
    if (result == 0 && s->head)
        result = CULVERT__CUDA_ERROR_NOT_READY;
    culvert__sim_unlock();
    return result;
}

int cuStreamSynchronize(culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuStreamSynchronize);
    struct CUstream_st *s;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_capture_conflict(s);
    if (result == 0)
        result = culvert__sim_synchronize(s);
    if (result == 0)
        culvert__sim_pools_synchronized();
    culvert__sim_unlock();
    return result;
}

/* For the functions that read one member into *out: a stream with the lock held, or NULL, the lock not
   held, and *result says why. */
static const struct CUstream_st *lock_to_read(culvert__CUstream handle, const void *out,
                                              int *result)
{
    struct CUstream_st *s = NULL;
    *result = CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!out)
        return NULL;
    culvert__sim_lock();
    *result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (*result == 0)
        return s;
    culvert__sim_unlock();
    return NULL;
}

int cuStreamGetCtx(culvert__CUstream handle, culvert__CUcontext *ctx)
{
    CULVERT__SIM_ENTER(cuStreamGetCtx);
    int result;
    const struct CUstream_st *s = lock_to_read(handle, ctx, &result);
    if (!s)
        return result;
    *ctx = s->ctx;
    culvert__sim_unlock();
    return 0;
}

int cuStreamGetFlags(culvert__CUstream handle, unsigned int *flags)
{
    CULVERT__SIM_ENTER(cuStreamGetFlags);
    int result;
    const struct CUstream_st *s = lock_to_read(handle, flags, &result);
    if (!s)
        return result;
    *flags = s->flags;
    culvert__sim_unlock();
    return 0;
}

int cuStreamGetPriority(culvert__CUstream handle, int *priority)
{
    CULVERT__SIM_ENTER(cuStreamGetPriority);
    int result;
    const struct CUstream_st *s = lock_to_read(handle, priority, &result);
    if (!s)
        return result;
    *priority = s->priority;
    culvert__sim_unlock();
    return 0;
}

int cuStreamGetId(culvert__CUstream handle, unsigned long long *id)
{
    CULVERT__SIM_ENTER(cuStreamGetId);
    int result;
    const struct CUstream_st *s = lock_to_read(handle, id, &result);
    if (!s)
        return result;
    *id = s->id;
    culvert__sim_unlock();
    return 0;
}
