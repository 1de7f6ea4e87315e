/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes back to the driver in service: blocks of which nothing is out, above the reserves, when
 * the device has been idle for a time; and memory of the program that is registered no more.
 *
 * Freeing and unpinning wait for the kernels that run, and stall everybody's launches meanwhile. So
 * the device is claimed first: all of its units, which only succeeds while none is in flight, and
 * which keeps the other loops from beginning anything until it is given back. One piece a turn.
 *
 * Invariants:
 *   - the driver is asked to free or to unpin only while the device is claimed
 *   - the timer runs only while there is more than the reserves; it keeps no loop alive
 */
#include "gpu/flow.h"

#include <math.h>

static const double next_piece = 0.001, next_try = 0.005;

/* ---- idle ---- */

/* Work that others put on a stream that they know of has no units. */
static bool strangers_idle(culvert_gpu *gpu)
{
    const culvert__link *anchor = &gpu->flow->streams;
    for (const culvert__link *l = anchor->next; l != anchor; l = l->next) {
        const culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        int status = CULVERT__CU_STREAM_CAPTURE_STATUS_NONE;
        if (!s->exposed || s->native == NULL)
            continue;
        if (gpu->drv->cuStreamIsCapturing(s->native, &status) != CULVERT__CUDA_SUCCESS ||
            status != CULVERT__CU_STREAM_CAPTURE_STATUS_NONE ||
            gpu->drv->cuStreamQuery(s->native) != CULVERT__CUDA_SUCCESS)
            return false;
    }
    return true;
}

/* Inside culvert__driver_enter. */
static bool claim(culvert_gpu *gpu)
{
    if (culvert__device_is_lost(gpu->device) || culvert__driver_thread_busy(gpu->driver_thread) ||
        !culvert__device_claim(gpu->device))
        return false;
    if (strangers_idle(gpu))
        return true;
    culvert__device_unclaim(gpu);
    return false;
}

/* ---- pieces ---- */

/* One block; false: there is none above what is kept. */
static bool trim_one(culvert__memory *memory, bool pinned, bool all)
{
    size_t keep = all ? 0 : pinned ? memory->pinned_keep : memory->local_keep;
    if (!pinned)
        return culvert__heap_trim(memory->local, keep) > 0;
    if (atomic_load(&memory->aliases) != NULL)
        return false; /* which are kept for good */
    size_t whole = culvert__heap_taken(memory->pinned);
    bool some = culvert__heap_trim(memory->pieced, keep > whole ? keep - whole : 0) > 0 ||
                culvert__heap_trim(memory->pinned, keep) > 0;
    culvert__memory_limit_pinned(memory);
    return some;
}

culvert__trim_result culvert__trim_step(culvert_gpu *gpu, bool pinned)
{
    culvert__trim_result result = CULVERT__TRIM_BUSY;
    culvert__visit visit = culvert__driver_enter(gpu, "cuMemFree");
    if (claim(gpu)) {
        result = CULVERT__TRIM_MORE;
        if (culvert__memory_has_spares(gpu->device))
            culvert__memory_free_spares(gpu->device);
        else if (trim_one(gpu->memory, pinned, true))
            gpu->flow->lines[pinned].trimmed++;
        else
            result = CULVERT__TRIM_NONE;
        culvert__device_unclaim(gpu);
    }
    culvert__driver_leave(gpu, visit);
    return result;
}

/* ---- by time ---- */

static bool above_reserves(culvert__memory *memory)
{
    size_t whole = culvert__heap_taken(memory->pinned);
    size_t pinned = whole + culvert__heap_taken(memory->pieced);
    return culvert__heap_taken(memory->local) > memory->local_keep || pinned > memory->pinned_keep;
}

static void start(culvert_gpu *gpu, double seconds)
{
    culvert__flow *flow = gpu->flow;
    flow->trim_activity = atomic_load(&gpu->device->activity);
    /* Without memory for the timer, memory stays. */
    (void)culvert__timer_start(gpu->loop, &flow->trim_timer, seconds, false);
}

void culvert__trim_watch(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    if (flow->trim_timer.place != 0 || isinf(flow->trim_seconds) || !gpu->attached ||
        !above_reserves(gpu->memory))
        return;
    start(gpu, flow->trim_seconds);
}

static void fire(culvert__timer *timer)
{
    culvert__flow *flow = CULVERT__CONTAINER(timer, culvert__flow, trim_timer);
    culvert_gpu *gpu = flow->gpu;
    bool pinned = true, some = false;
    bool quiet = flow->trim_activity == atomic_load(&gpu->device->activity);
    if (culvert__device_is_lost(gpu->device))
        return;
    if (quiet && !culvert__allocs_wait(gpu)) {
        culvert__visit visit = culvert__driver_enter(gpu, "cuMemFree");
        if (claim(gpu)) {
            some = trim_one(gpu->memory, pinned, false);
            if (!some)
                some = trim_one(gpu->memory, pinned = false, false);
            culvert__device_unclaim(gpu);
        }
        culvert__driver_leave(gpu, visit);
    }
    flow->lines[pinned].trimmed += some;
    if (some)
        start(gpu, next_piece);
    else if (above_reserves(gpu->memory))
        start(gpu, flow->trim_seconds);
}

void culvert__trim_init(culvert_gpu *gpu, double seconds)
{
    gpu->flow->trim_seconds = seconds;
    gpu->flow->trim_timer.fire = fire;
}

void culvert__trim_stop(culvert_gpu *gpu)
{
    if (gpu->flow->trim_timer.place != 0)
        culvert__timer_stop(gpu->loop, &gpu->flow->trim_timer);
}

/* ---- registered memory ---- */

double culvert__trim_before_sleep(culvert_gpu *gpu)
{
    if (atomic_load_explicit(&gpu->memory->nregions, memory_order_relaxed) == 0 ||
        culvert__device_is_lost(gpu->device) || !culvert__regions_unwanted(gpu->memory))
        return INFINITY;
    culvert__gpu_ref(gpu);
    culvert__visit visit = culvert__driver_enter(gpu, "cuMemHostUnregister");
    double seconds = next_try;
    if (claim(gpu)) {
        seconds = culvert__regions_unpin(gpu->memory) ? 0 : INFINITY;
        culvert__device_unclaim(gpu);
    }
    culvert__driver_leave(gpu, visit);
    culvert__gpu_unref(gpu);
    return seconds;
}
