/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device time: of timed sequences, and between two of them.
 *
 * The driver tells the time between two events as a float of milliseconds, so that a long time is told
 * coarsely. All times of a gpu are therefore counted from a base, an event that was recorded not long
 * ago; when the base is old, the end of a sequence takes its place, at the time that was measured for it.
 *
 * Invariants:
 *   - the base is complete, is in no pool and is nobody's start or end.
 *   - a sequence's start is recorded behind its waits, and its end behind its last operation.
 */
#include "gpu/flow.h"

static const double rebase_seconds = 0.5;

void culvert__timing_start(culvert_seq *seq)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu *gpu = seq->gpu;
    seq->start = culvert__event_take(gpu, true, &err);
    seq->end = seq->start != NULL ? culvert__event_take(gpu, true, &err) : NULL;
    if (seq->end != NULL)
        return;
    culvert__event_give(gpu, seq->start, true);
    seq->start = NULL;
    seq->timed = false;
    if (seq->timed_by_program) /* else it is the trace's alone, which goes without */
        culvert__seq_fail_with(seq, &err);
}

static bool between(culvert_gpu *gpu, struct CUevent_st *from, struct CUevent_st *to,
                    double *seconds)
{
    float ms = 0;
    if (gpu->drv->cuEventElapsedTime(&ms, from, to) != CULVERT__CUDA_SUCCESS)
        return false;
    *seconds = (double)ms / 1e3;
    return true;
}

/* The events become the base where that is missing or old. */
static void move_base(culvert_seq *seq, culvert__timing *t)
{
    culvert__flow *flow = seq->gpu->flow;
    if (flow->base == NULL) {
        flow->base = seq->start;
        flow->base_seconds = t->start;
        seq->start = NULL;
    } else if (t->end - flow->base_seconds > rebase_seconds) {
        struct CUevent_st *old = flow->base;
        flow->base = seq->end;
        flow->base_seconds = t->end;
        seq->end = old; /* it goes to the pool in its place */
    }
}

bool culvert__timing_take(culvert_seq *seq, culvert__timing *out)
{
    culvert_gpu *gpu = seq->gpu;
    culvert__flow *flow = gpu->flow;
    culvert__timing t = {0, 0};
    double length;
    if (seq->start == NULL || seq->end == NULL || seq->failed ||
        culvert__device_is_lost(gpu->device))
        return false;
    culvert__scope scope = culvert__scope_enter(gpu->device);
    bool good = between(gpu, seq->start, seq->end, &length);
    if (good && flow->base != NULL)
        good = between(gpu, flow->base, seq->start, &t.start);
    culvert__scope_leave(scope);
    if (!good)
        return false;
    t.start += flow->base_seconds;
    t.end = t.start + length;
    move_base(seq, &t);
    *out = t;
    return true;
}

void culvert__timing_leave(culvert_gpu *gpu)
{
    culvert__event_give(gpu, gpu->flow->base, true);
    gpu->flow->base = NULL;
}

/* ---- the program asks ---- */

static const culvert__seq_future *timed(const culvert_future *future)
{
    if (future->kind != &culvert__seq_kind || future->status != CULVERT_OK)
        return NULL;
    const culvert__seq_future *f = (const culvert__seq_future *)(const void *)future;
    return f->clock != 0 ? f : NULL;
}

double culvert_gpu_seconds(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_gpu_seconds", "future");
    const culvert__seq_future *f = timed(future);
    return f != NULL ? f->timing.end - f->timing.start : __builtin_nan("");
}

double culvert_gpu_elapsed(const culvert_future *from, const culvert_future *to)
{
    CULVERT__REQUIRE(from, "culvert_gpu_elapsed", "from");
    CULVERT__REQUIRE(to, "culvert_gpu_elapsed", "to");
    const culvert__seq_future *a = timed(from), *b = timed(to);
    if (a == NULL || b == NULL || a->base.core != b->base.core || a->clock != b->clock)
        return __builtin_nan("");
    return b->timing.end - a->timing.start;
}
