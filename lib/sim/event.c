/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.c: events, recording them and waiting for them.
 *
 * Invariants: an event has the record of its last cuEventRecord, or none. Whoever waits took the
 * record of that moment, so recording anew changes nothing for those who wait already. An event that
 * was recorded while its stream was captured has a capture and not a record.
 */
#include "sim/memory.h"

#include <stdlib.h>

void culvert__sim_event_free(struct CUevent_st *e)
{
    culvert__sim_capture_forget_event(e);
    if (e->prev)
        e->prev->next = e->next;
    else
        e->ctx->events = e->next;
    if (e->next)
        e->next->prev = e->prev;
    culvert__sim_record_unref(e->record);
    e->record = NULL;
    culvert__sim_object_free(&e->object);
}

/* 0, or what to answer. [lock] */
static int event_of(culvert__CUevent e)
{
    int result;
    if (!culvert__sim_object_check(e, SIM_EVENT, &result))
        return result;
    return e->ctx->sticky;
}

static bool flags_are_good(unsigned flags)
{
    if (flags & ~7u)
        return false;
    return !(flags & CULVERT__CU_EVENT_INTERPROCESS) || (flags & CULVERT__CU_EVENT_DISABLE_TIMING);
}

int cuEventCreate(culvert__CUevent *out, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuEventCreate);
    struct CUctx_st *ctx;
    if (!out || !flags_are_good(flags))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    struct CUevent_st *e = result == 0 ? culvert__sim_object_new(SIM_EVENT) : NULL;
    if (e) {
        e->ctx = ctx;
        e->flags = flags;
        e->next = ctx->events;
        if (e->next)
            e->next->prev = e;
        ctx->events = e;
        *out = e;
    } else if (result == 0) {
        result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

int cuEventDestroy_v2(culvert__CUevent e)
{
    CULVERT__SIM_ENTER(cuEventDestroy);
    culvert__sim_lock();
    int result = event_of(e);
    if (result == 0)
        culvert__sim_event_free(e);
    culvert__sim_unlock();
    return result;
}

static int record(struct CUevent_st *e, struct CUstream_st *s)
{
    struct sim_op *op = culvert__sim_op_new(SIM_RECORD, culvert__SIM_cuEventRecord);
    struct sim_record *r = culvert__sim_record_new();
    op->record = culvert__sim_record_ref(r);
    int result = culvert__sim_enqueue(s, op);
    if (result) {
        culvert__sim_record_unref(r);
        return result;
    }
    culvert__sim_capture_forget_event(e);
    culvert__sim_record_unref(e->record);
    e->record = r;
    return 0;
}

int cuEventRecord(culvert__CUevent e, culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuEventRecord);
    struct CUstream_st *s;
    culvert__sim_lock();
    int result = event_of(e);
    if (result == 0)
        result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0 && s->ctx != e->ctx)
        result = CULVERT__CUDA_ERROR_INVALID_HANDLE;
    if (result == 0 && s == s->ctx->legacy)
        result = culvert__sim_capture_implicit(s->ctx);
    if (result == 0)
        result = s->capture ? culvert__sim_capture_record(s, e) : record(e, s);
    culvert__sim_unlock();
    return result;
}

/* What the event's record says now. [lock] */
static int state_of(const struct CUevent_st *e)
{
    const struct sim_record *r = e->record;
    if (!r || r->state == SIM_RECORD_DONE)
        return 0;
    return r->state == SIM_RECORD_PENDING ? CULVERT__CUDA_ERROR_NOT_READY : r->result;
}

static int may_look(const struct CUevent_st *e)
{
    if (e->capture)
        return CULVERT__CUDA_ERROR_CAPTURED_EVENT;
    return culvert__sim_capture_unsafe();
}

int cuEventQuery(culvert__CUevent e)
{
    CULVERT__SIM_ENTER(cuEventQuery);
    culvert__sim_lock();
    int result = event_of(e);
    if (result == 0)
        result = may_look(e);
    if (result == 0)
        result = state_of(e);
    culvert__sim_unlock();
    return result;
}

int cuEventSynchronize(culvert__CUevent e)
{
    CULVERT__SIM_ENTER(cuEventSynchronize);
    culvert__sim_lock();
    int result = event_of(e);
    if (result == 0)
        result = may_look(e);
    if (result == 0)
        result = state_of(e);
    if (result == CULVERT__CUDA_ERROR_NOT_READY) {
        culvert__sim_note_block("it waits for the event");
        result = culvert__sim_record_wait(e->record);
    }
    if (result == 0)
        culvert__sim_pools_synchronized();
    culvert__sim_unlock();
    return result;
}

static int elapsed(float *milliseconds, const struct CUevent_st *start,
                   const struct CUevent_st *end)
{
    if (start->capture || end->capture)
        return CULVERT__CUDA_ERROR_CAPTURED_EVENT;
    if (!start->record || !end->record ||
        ((start->flags | end->flags) & CULVERT__CU_EVENT_DISABLE_TIMING))
        return CULVERT__CUDA_ERROR_INVALID_HANDLE;
    int result = state_of(start);
    if (result == 0)
        result = state_of(end);
    if (result == 0)
        *milliseconds = (float)((double)(int64_t)(end->record->ns - start->record->ns) * 1e-6);
    return result;
}

int cuEventElapsedTime(float *milliseconds, culvert__CUevent start, culvert__CUevent end)
{
    CULVERT__SIM_ENTER(cuEventElapsedTime);
    if (!milliseconds)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = event_of(start);
    if (result == 0)
        result = event_of(end);
    if (result == 0 && start->ctx != end->ctx)
        result = CULVERT__CUDA_ERROR_INVALID_HANDLE;
    if (result == 0)
        result = elapsed(milliseconds, start, end);
    culvert__sim_unlock();
    return result;
}

static int wait_for(struct CUstream_st *s, struct CUevent_st *e)
{
    if (state_of(e) != CULVERT__CUDA_ERROR_NOT_READY)
        return 0;
    struct sim_op *op = culvert__sim_op_new(SIM_WAIT, culvert__SIM_cuStreamWaitEvent);
    op->record = culvert__sim_record_ref(e->record);
    return culvert__sim_enqueue(s, op);
}

int cuStreamWaitEvent(culvert__CUstream handle, culvert__CUevent e, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuStreamWaitEvent);
    struct CUstream_st *s;
    if (flags & ~1u)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result == 0)
        result = event_of(e);
    if (result == 0 && s == s->ctx->legacy)
        result = culvert__sim_capture_implicit(s->ctx);
    if (result == 0)
        result = s->capture || e->capture ? culvert__sim_capture_wait(s, e) : wait_for(s, e);
    culvert__sim_unlock();
    return result;
}
