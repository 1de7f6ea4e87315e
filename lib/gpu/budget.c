/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The caps: how many driver operations may be in flight, of a stream and of a device over the whole
 * process. They keep every hardware queue (1,021 launches or copies, shared by streams) from filling
 * up, which would block the loop's thread.
 *
 * Invariants:
 *   - device->units is the sum of what is in flight and of what is being enqueued, over all loops.
 *   - a stream over its cap is `capped` until half of it is free again, so that it is not fed one
 *     operation at a time.
 *   - streams that find the device's cap reached wait in flow->starved, first come first served; the
 *     gpu then counts in device->starving, and whoever gives units back while that is not 0 wakes
 *     the others. (It counts itself first and then tries once more: no wake is lost.)
 */
#include "gpu/flow.h"

enum { FEED_AT = CULVERT__DEVICE_CAP - CULVERT__STREAM_CAP / 2 };

static bool stream_has_room(culvert_stream *s, unsigned least)
{
    if (s->capped && s->units > culvert__units_low())
        return false;
    s->capped = s->units + least > CULVERT__STREAM_CAP;
    return !s->capped;
}

/* As much of `most` as the device has, but not less than `least`; 0: that is not there. */
static unsigned take_of_device(culvert__device *device, unsigned least, unsigned most)
{
    unsigned before = atomic_fetch_add(&device->units, most);
    if (before + most <= CULVERT__DEVICE_CAP)
        return most;
    unsigned room = before < CULVERT__DEVICE_CAP ? CULVERT__DEVICE_CAP - before : 0;
    unsigned got = room >= least ? room : 0;
    atomic_fetch_sub(&device->units, most - got);
    return got;
}

static void starve(culvert_stream *s)
{
    culvert__flow *flow = s->gpu->flow;
    s->wants_units = true;
    if (!culvert__linked(&s->starved))
        culvert__list_push(&flow->starved, &s->starved);
    if (!atomic_exchange(&flow->starving, true))
        atomic_fetch_add(&s->gpu->device->starving, 1);
}

/* It has units, or needs none any more. */
void culvert__starved_leave(culvert_stream *s)
{
    culvert__flow *flow = s->gpu->flow;
    if (culvert__linked(&s->starved))
        culvert__list_unlink(&s->starved);
    if (culvert__list_empty(&flow->starved) && atomic_exchange(&flow->starving, false))
        atomic_fetch_sub(&s->gpu->device->starving, 1);
}

unsigned culvert__units_take(culvert_stream *s, unsigned least, unsigned most)
{
    culvert__flow *flow = s->gpu->flow;
    if (!stream_has_room(s, least))
        return 0;
    if (most > CULVERT__STREAM_CAP - s->units)
        most = CULVERT__STREAM_CAP - s->units;
    bool first = culvert__list_empty(&flow->starved) || flow->starved.next == &s->starved;
    unsigned got = first ? take_of_device(s->gpu->device, least, most) : 0;
    if (got == 0) {
        starve(s);
        got = first ? take_of_device(s->gpu->device, least, most) : 0;
    }
    if (got > 0)
        culvert__starved_leave(s);
    s->units += got;
    return got;
}

static void wake_others(culvert_gpu *gpu)
{
    culvert__device *device = gpu->device;
    pthread_mutex_lock(&device->lock);
    for (culvert__link *l = device->gpus.next; l != &device->gpus; l = l->next) {
        culvert__flow *flow = CULVERT__CONTAINER(l, culvert__flow, device_link);
        if (flow == gpu->flow || !atomic_load(&flow->starving) ||
            atomic_exchange(&flow->budget_posted, true))
            continue;
        if (culvert__hub_post(flow->gpu->hub, &flow->budget_post) != CULVERT_OK)
            atomic_store(&flow->budget_posted, false);
    }
    pthread_mutex_unlock(&device->lock);
}

void culvert__units_give(culvert_stream *s, unsigned units)
{
    culvert__device *device = s->gpu->device;
    if (units == 0)
        return;
    s->units -= units;
    unsigned left = atomic_fetch_sub(&device->units, units) - units;
    if (left <= FEED_AT && atomic_load(&device->starving) > 0)
        wake_others(s->gpu);
}

void culvert__budget_feed(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    while (!culvert__list_empty(&flow->starved)) {
        culvert_stream *s = CULVERT__CONTAINER(flow->starved.next, culvert_stream, starved);
        if (atomic_load_explicit(&gpu->device->units, memory_order_relaxed) > FEED_AT)
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

void culvert__budget_leave(culvert_gpu *gpu)
{
    if (atomic_exchange(&gpu->flow->starving, false))
        atomic_fetch_sub(&gpu->device->starving, 1);
}
