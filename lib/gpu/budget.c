/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The caps: how many driver operations may be in flight, of a stream and of a device over the whole
 * process. They keep every hardware queue (1,021 launches or copies, shared by streams) from filling
 * up, which would block the loop's thread.
 *
 * Invariants:
 *   - device->units is the sum of what is in flight and of what is being enqueued, over all loops.
 *   - a stream's cap is CULVERT__STREAM_CAP, or half of it where it was adopted, as others put work
 *     there too. One operation that weighs more goes alone.
 *   - a stream over its cap is `capped` until half of it is free again, so that it is not fed one
 *     operation at a time.
 *   - streams that find the device's cap reached wait in flow->starved, first come first served; their
 *     gpu then stands in device->line, in which the loops take turns: the first may take what it needs,
 *     up to the cap, the others only what leaves a reserve for it. So a loop that takes at once
 *     whatever it has given back starves no other, and one that is slow to come stops no other.
 *   - whoever gives units back while that line is not empty wakes its first. (A stream joins first and
 *     then tries once more: no wake is lost.)
 */
#include "gpu/flow.h"

enum {
    RESERVE = CULVERT__STREAM_CAP / 2, /* for the first in the line, at least */
    TURN = CULVERT__STREAM_CAP / 4,    /* units after which it goes to the end of the line */
    STEP = CULVERT__STREAM_CAP / 4     /* room that must be there before starved streams are fed */
};

static bool stream_has_room(culvert_stream *s, unsigned least)
{
    if (s->capped && s->units > culvert__units_low(s))
        return false;
    s->capped = s->units > 0 && s->units + least > s->cap;
    return !s->capped;
}

/* ---- the line ---- */

/* How many units may be in flight for this gpu to take more. */
static unsigned limit_of(culvert_gpu *gpu)
{
    culvert__device *device = gpu->device;
    unsigned reserve = atomic_load_explicit(&device->reserve, memory_order_relaxed);
    if (reserve == 0 || atomic_load_explicit(&device->first, memory_order_relaxed) == gpu)
        return CULVERT__DEVICE_CAP;
    return CULVERT__DEVICE_CAP - reserve;
}

/* Under the device's lock, after every change of the line. */
static void line_changed(culvert__device *device)
{
    culvert_gpu *first = NULL;
    unsigned reserve = 0;
    if (!culvert__list_empty(&device->line)) {
        culvert__flow *flow = CULVERT__CONTAINER(device->line.next, culvert__flow, line);
        first = flow->gpu;
        reserve = flow->wanted > RESERVE ? flow->wanted : RESERVE;
    }
    atomic_store(&device->first, first);
    atomic_store(&device->reserve, reserve);
}

/* Under the device's lock: the first in the line looks again, if it is another loop's and there is room. */
static void wake_first(culvert__device *device, const culvert_gpu *me)
{
    unsigned reserve = atomic_load(&device->reserve);
    culvert_gpu *first = atomic_load(&device->first);
    if (first == NULL || first == me ||
        atomic_load(&device->units) > CULVERT__DEVICE_CAP - reserve ||
        atomic_exchange(&first->flow->budget_posted, true))
        return;
    if (culvert__hub_post(first->hub, &first->flow->budget_post) != CULVERT_OK)
        atomic_store(&first->flow->budget_posted,
                     false); /* its loop ends: it leaves the line soon */
}

static void line_join(culvert_gpu *gpu, unsigned least)
{
    culvert__device *device = gpu->device;
    culvert__flow *flow = gpu->flow;
    pthread_mutex_lock(&device->lock);
    flow->wanted = least;
    if (!flow->in_line)
        culvert__list_push(&device->line, &flow->line);
    flow->in_line = true;
    line_changed(device);
    pthread_mutex_unlock(&device->lock);
}

static void line_leave(culvert_gpu *gpu)
{
    culvert__device *device = gpu->device;
    culvert__flow *flow = gpu->flow;
    flow->turn = 0;
    if (!flow->in_line || culvert__forked())
        return;
    flow->in_line = false;
    pthread_mutex_lock(&device->lock);
    culvert__list_unlink(&flow->line);
    line_changed(device);
    wake_first(device, gpu);
    pthread_mutex_unlock(&device->lock);
}

/* It has taken units; after enough of them the next one has its turn. */
static void line_took(culvert_gpu *gpu, unsigned units)
{
    culvert__device *device = gpu->device;
    culvert__flow *flow = gpu->flow;
    if (!flow->in_line)
        return;
    flow->turn += units;
    if (flow->turn < TURN)
        return;
    flow->turn = 0;
    pthread_mutex_lock(&device->lock);
    culvert__list_unlink(&flow->line);
    culvert__list_push(&device->line, &flow->line);
    line_changed(device);
    wake_first(device, gpu);
    pthread_mutex_unlock(&device->lock);
}

/* ---- taking and giving ---- */

/* As much of `most` as there is, but not less than `least`; 0: that is not there. */
static unsigned take_of_device(culvert_gpu *gpu, unsigned least, unsigned most)
{
    culvert__device *device = gpu->device;
    unsigned limit = limit_of(gpu);
    unsigned before = atomic_fetch_add(&device->units, most);
    if (before + most <= limit)
        return most;
    unsigned room = before < limit ? limit - before : 0;
    unsigned got = room >= least ? room : 0;
    atomic_fetch_sub(&device->units, most - got);
    return got;
}

static void starve(culvert_stream *s, unsigned least)
{
    culvert__flow *flow = s->gpu->flow;
    s->wants_units = true;
    if (!culvert__linked(&s->starved))
        culvert__list_push(&flow->starved, &s->starved);
    if (flow->starved.next == &s->starved)
        line_join(s->gpu, least);
}

/* It has units, or needs none any more. */
void culvert__starved_leave(culvert_stream *s)
{
    culvert__flow *flow = s->gpu->flow;
    if (culvert__linked(&s->starved))
        culvert__list_unlink(&s->starved);
    if (culvert__list_empty(&flow->starved))
        line_leave(s->gpu);
}

unsigned culvert__units_take(culvert_stream *s, unsigned least, unsigned most)
{
    culvert__flow *flow = s->gpu->flow;
    if (!stream_has_room(s, least))
        return 0;
    if (most > s->cap - s->units)
        most = s->cap - s->units;
    if (most < least) /* heavier than the cap: it goes alone */
        most = least;
    bool first = culvert__list_empty(&flow->starved) || flow->starved.next == &s->starved;
    unsigned got = first ? take_of_device(s->gpu, least, most) : 0;
    if (got == 0) {
        starve(s, least);
        got = first ? take_of_device(s->gpu, least, most) : 0;
    }
    if (got > 0) {
        atomic_fetch_add_explicit(&s->gpu->device->activity, 1, memory_order_relaxed);
        line_took(s->gpu, got);
        culvert__starved_leave(s);
    }
    s->units += got;
    return got;
}

void culvert__units_give(culvert_stream *s, unsigned units)
{
    culvert_gpu *gpu = s->gpu;
    culvert__device *device = gpu->device;
    if (units == 0)
        return;
    s->units -= units;
    unsigned left = atomic_fetch_sub(&device->units, units) - units;
    unsigned reserve = atomic_load(&device->reserve);
    if (reserve == 0 || left > CULVERT__DEVICE_CAP - reserve)
        return;
    if (!culvert__list_empty(
            &gpu->flow->starved)) /* this loop's own, whether it is the first or not */
        culvert__stream_schedule(
            CULVERT__CONTAINER(gpu->flow->starved.next, culvert_stream, starved));
    pthread_mutex_lock(&device->lock);
    wake_first(device, gpu);
    pthread_mutex_unlock(&device->lock);
}

void culvert__budget_feed(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    while (!culvert__list_empty(&flow->starved)) {
        culvert_stream *s = CULVERT__CONTAINER(flow->starved.next, culvert_stream, starved);
        if (atomic_load_explicit(&gpu->device->units, memory_order_relaxed) + STEP > limit_of(gpu))
            return;
        culvert__stream_pump(s);
        if (flow->starved.next == &s->starved)
            return; /* not enough for the first: nobody passes it by */
    }
}

void culvert__budget_posted(culvert__post *post)
{
    culvert__flow *flow = CULVERT__CONTAINER(post, culvert__flow, budget_post);
    culvert_gpu *gpu = flow->gpu;
    atomic_store(&flow->budget_posted, false);
    if (gpu->refs == 0) {
        culvert__gpu_post_done(gpu);
        return;
    }
    culvert__budget_feed(gpu);
}

/* ---- all of it ---- */

bool culvert__device_claim(culvert__device *device)
{
    unsigned none = 0;
    if (!atomic_compare_exchange_strong(&device->units, &none, CULVERT__DEVICE_CAP))
        return false;
    pthread_mutex_lock(&device->lock);
    bool idle = atomic_load(&device->arms) == 0 && culvert__list_empty(&device->graveyard) &&
                device->abandoned == NULL && device->stuck == NULL;
    pthread_mutex_unlock(&device->lock);
    if (!idle)
        atomic_fetch_sub(&device->units, CULVERT__DEVICE_CAP);
    return idle;
}

void culvert__device_unclaim(culvert_gpu *gpu)
{
    culvert__device *device = gpu->device;
    atomic_fetch_sub(&device->units, CULVERT__DEVICE_CAP);
    pthread_mutex_lock(&device->lock);
    wake_first(device, gpu); /* another loop that found nothing left meanwhile */
    pthread_mutex_unlock(&device->lock);
}

void culvert__budget_leave(culvert_gpu *gpu)
{
    line_leave(gpu);
}
