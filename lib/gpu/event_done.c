/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of what the program's own event was recorded behind.
 *
 * The event itself is asked once. If it is not over, a private stream, a lane, is made to wait for
 * it: that takes the record of this moment, so the program may record or destroy the event at once.
 * An empty sequence on the lane is the future.
 *
 * Invariants: a lane serves one event at a time, so that none waits for another one. A lane whose
 * sequence could not be submitted behind the wait is `clogged` until the driver says it is empty.
 * Lanes are kept, and made only where all are in use, LANES at most.
 */
#include "gpu/flow.h"

enum { LANES = 64 };

static const char op[] = "culvert_event_done";

static bool is_free(culvert_stream *s)
{
    if (!s->lane || s->queued + s->in_flight > 0)
        return false;
    if (s->clogged && s->gpu->drv->cuStreamQuery(s->native) == CULVERT__CUDA_SUCCESS)
        s->clogged = false;
    return !s->clogged;
}

/* Borrowed. */
static culvert_stream *take_lane(culvert_gpu *gpu, const char *where, culvert_error *err)
{
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
    unsigned lanes = 0;
    culvert__link *anchor = &gpu->flow->streams;
    for (culvert__link *l = anchor->next; l != anchor; l = l->next) {
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        lanes += s->lane;
        if (is_free(s))
            return s;
    }
    if (lanes >= LANES) {
        culvert__error_set(err, CULVERT_EAGAIN, 0, op, where,
                           "%u events are waited for already, and that is the most", lanes);
        return NULL;
    }
    culvert_stream *s = culvert__stream_make(gpu, &options, op, where, err);
    if (s != NULL)
        s->lane = true;
    return s;
}

/* In the driver. The lane that waits for the event; NULL with err->code 0: it is over; else an error. */
static culvert_stream *wait_in_lane(culvert_gpu *gpu, struct CUevent_st *event, const char *where,
                                    culvert_error *err)
{
    const culvert__driver *drv = gpu->drv;
    const char *call = "cuEventQuery";
    int r = drv->cuEventQuery(event);
    if (r == CULVERT__CUDA_SUCCESS)
        return NULL;
    if (r == CULVERT__CUDA_ERROR_CAPTURED_EVENT) {
        culvert__error_set(err, CULVERT_EINVAL, r, op, where,
                           "the event was recorded on a stream that was being captured into a "
                           "graph: it stands for no work");
        return NULL;
    }
    if (r != CULVERT__CUDA_ERROR_NOT_READY) {
        culvert__gpu_result(gpu, r, true, call, op, where, err);
        return NULL;
    }
    culvert_stream *lane = take_lane(gpu, where, err);
    if (lane == NULL)
        return NULL;
    call = "cuStreamWaitEvent";
    culvert__call_next(gpu->flow, call);
    r = drv->cuStreamWaitEvent(lane->native, event, 0);
    if (r == CULVERT__CUDA_SUCCESS)
        return lane;
    culvert__gpu_result(gpu, r, false, call, op, where, err);
    return NULL;
}

static culvert_future *done(culvert_gpu *gpu, struct CUevent_st *event, const char *where)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *lane = NULL;
    culvert__visit visit = culvert__driver_enter(gpu, "cuEventQuery");
    if (visit.scope.result != CULVERT__CUDA_SUCCESS)
        culvert__gpu_result(gpu, visit.scope.result, false, "cuCtxPushCurrent", op, where, &err);
    else
        lane = wait_in_lane(gpu, event, where, &err);
    culvert__driver_leave(gpu, visit);
    if (err.code != CULVERT_OK)
        return culvert__future_rejected(culvert__gpu_core(gpu), &err);
    if (lane == NULL)
        return culvert_resolved(gpu->loop, NULL, NULL);
    lane->clogged = true;
    culvert_future *future = culvert_seq_submit_at(where, culvert_seq_begin_at(where, lane));
    if (culvert__seq_of(future) != NULL)
        lane->clogged = false; /* its end is the lane's */
    return future;
}

culvert_future *culvert_event_done_at(const char *where, culvert_gpu *gpu, struct CUevent_st *event)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    CULVERT__REQUIRE(gpu, op, "gpu");
    CULVERT__REQUIRE(event, op, "event");
    culvert__core *core = culvert__gpu_core(gpu);
    if (culvert__gpu_refuses(gpu, op, where, &err))
        return culvert__future_rejected(core, &err);
    if (culvert__refuses_work(core)) {
        culvert__error_set(&err, CULVERT_ESHUTDOWN, 0, op, where,
                           "the binding drains (culvert_drain)");
        return culvert__future_rejected(core, &err);
    }
    return done(gpu, event, where);
}

culvert_future *culvert_event_done(culvert_gpu *gpu, struct CUevent_st *event)
{
    return culvert_event_done_at(NULL, gpu, event);
}
