/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a failed driver call means, and the loss of a device.
 *
 *   whoever sees the sticky error -> device->lost (once a process) -> a post to every loop that uses
 *   the device -> there everything pending is rejected, and on_lost is called
 *
 * Invariants: after device->lost is set no call of the driver is made for that device. The rejection
 * is always made from a post, never inside the call that saw the error, so that no structure changes
 * under the feet of the one that enqueues or polls. What was in the driver is buried.
 */
#include "gpu/flow.h"

#include <stdio.h>
#include <string.h>

static bool loses(int result, bool query)
{
    switch (query ? culvert__driver_classify_query(result) : culvert__driver_classify(result)) {
    case CULVERT__DRIVER_LOST:
    case CULVERT__DRIVER_SHUTDOWN: return true;
    default: return false;
    }
}

/* A code that is in no list says of an ordinary call that it failed, of a query that the device is lost: so
   a query is made. (999, say, may come out of the next copy first.) */
static bool query_says_lost(culvert_gpu *gpu, int *result)
{
    if (culvert__driver_classify(*result) != CULVERT__DRIVER_UNLISTED ||
        culvert__device_is_lost(gpu->device))
        return false;
    int answer = culvert__notifier_query(gpu);
    if (!loses(answer, true))
        return false;
    *result = answer;
    return true;
}

/* A sticky error comes out of whatever call is made next: that call is not to blame. */
void culvert__device_say_lost(culvert__device *device, const char *op, const char *where,
                              culvert_error *err)
{
    pthread_mutex_lock(&device->lock);
    culvert_error lost = device->lost_error;
    pthread_mutex_unlock(&device->lock);
    culvert__error_set(err, lost.code, lost.native, op, where,
                       "device %d was lost before this call: %s", device->ordinal, lost.message);
}

void culvert__gpu_result(culvert_gpu *gpu, int result, bool query, const char *call, const char *op,
                         const char *where, culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    if (loses(result, query) || query_says_lost(gpu, &result)) {
        culvert__gpu_lose(gpu, result, call);
        culvert__device_say_lost(gpu->device, op, where, &local);
    } else {
        (void)culvert__driver_error(gpu->drv, result, call, &local);
        local.op = op;
        local.where = where;
    }
    if (err != NULL)
        *err = local;
}

void culvert__gpu_driver_failed(culvert_gpu *gpu, int result, const char *call, const char *op,
                                const char *where, culvert_error *err)
{
    culvert__gpu_result(gpu, result, false, call, op, where, err);
}

/* ---- naming what was under way ---- */

static const culvert_seq *oldest_in_driver(const culvert_gpu *gpu)
{
    const culvert_seq *oldest = NULL;
    const culvert__link *anchor = &gpu->flow->streams;
    for (const culvert__link *l = anchor->next; l != anchor; l = l->next) {
        const culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        if (s->seen == s->enq)
            continue;
        const culvert_seq *seq = s->ring[s->seen % CULVERT__STREAM_RING].seq;
        if (oldest == NULL || seq->number < oldest->number)
            oldest = seq;
    }
    return oldest;
}

static size_t count_in_driver(const culvert_gpu *gpu)
{
    size_t n = 0;
    const culvert__link *anchor = &gpu->flow->streams;
    for (const culvert__link *l = anchor->next; l != anchor; l = l->next)
        n += CULVERT__CONTAINER(l, culvert_stream, all)->in_flight;
    return n;
}

static void compose(culvert_gpu *gpu, int result, const char *call, culvert_error *err)
{
    char what[192] = "none on this loop";
    const culvert_seq *oldest = oldest_in_driver(gpu);
    size_t others = count_in_driver(gpu);
    culvert__driver_error(gpu->drv, result, call, err);
    bool exiting = err->code == CULVERT_ESHUTDOWN;
    if (oldest != NULL)
        culvert__seq_describe(oldest, what, sizeof what);
    culvert__error_set(err, exiting ? CULVERT_ESHUTDOWN : CULVERT_EDEVICELOST, result, call, NULL,
                       "%s (%d) from %s; oldest unfinished work: %s%s",
                       culvert__driver_error_name(gpu->drv, result), result, call, what,
                       others > 1 ? ", and others behind or beside it" : "");
}

/* ---- losing ---- */

static void post_loss(culvert__device *device)
{
    for (culvert__link *l = device->gpus.next; l != &device->gpus; l = l->next) {
        culvert__flow *flow = CULVERT__CONTAINER(l, culvert__flow, device_link);
        if (atomic_exchange(&flow->loss_posted, true))
            continue;
        if (culvert__hub_post(flow->gpu->hub, &flow->loss_post) != CULVERT_OK)
            atomic_store(&flow->loss_posted, false);
    }
}

void culvert__gpu_lose(culvert_gpu *gpu, int result, const char *call)
{
    culvert__device *device = gpu->device;
    culvert_error err = CULVERT_ERROR_INIT;
    if (atomic_load(&device->lost) != 0)
        return;
    compose(gpu, result, call, &err);
    pthread_mutex_lock(&device->lock);
    int expected = 0;
    if (atomic_load(&device->lost) == 0) {
        device->lost_error = err;
        device->lost_by = gpu;
        atomic_compare_exchange_strong(&device->lost, &expected, result);
        post_loss(device);
    }
    pthread_mutex_unlock(&device->lock);
}

/* The error that this loop's work rejects with: it names the work of this loop, where there is some. */
static void explain(culvert_gpu *gpu, culvert_error *err)
{
    culvert__device *device = gpu->device;
    pthread_mutex_lock(&device->lock);
    *err = device->lost_error;
    bool own = device->lost_by == gpu;
    pthread_mutex_unlock(&device->lock);
    if (!own && oldest_in_driver(gpu) != NULL)
        compose(gpu, err->native, err->op, err);
}

static void reject_all(culvert_gpu *gpu, const culvert_error *err)
{
    culvert__flow *flow = gpu->flow;
    culvert__link doomed;
    culvert__list_init(&doomed);
    culvert__list_splice(&doomed, &flow->live);
    while (!culvert__list_empty(&doomed)) {
        culvert_seq *seq = CULVERT__CONTAINER(doomed.next, culvert_seq, live);
        culvert__list_unlink(&seq->live);
        culvert__list_push(&flow->live, &seq->live);
        seq->buried = seq->entries > 0;
        seq->entries = 0;
        seq->failed = false; /* the loss is what counts */
        seq->canceled = false;
        culvert__seq_fail_with(seq, err);
        if (seq->state < CULVERT__SEQ_WHOLE)
            culvert__seq_stop(seq);
        else
            culvert__seq_try_settle(seq);
    }
}

/* Rings are given up as they are: their events and slots belong to the device now. */
static void empty_rings(culvert__flow *flow)
{
    atomic_store(&flow->oldest, 0); /* it is lost, which is worse than stalled */
    for (culvert__link *l = flow->streams.next; l != &flow->streams; l = l->next) {
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        s->seen = s->enq;
        s->units = 0;
    }
}

void culvert__loss_posted(culvert__post *post)
{
    culvert__flow *flow = CULVERT__CONTAINER(post, culvert__flow, loss_post);
    culvert_gpu *gpu = flow->gpu;
    atomic_store(&flow->loss_posted, false);
    if (gpu->refs == 0) {
        culvert__gpu_post_done(gpu);
        return;
    }
    if (gpu->lost)
        return;
    gpu->lost = true;
    culvert_error err;
    explain(gpu, &err);
    flow->lost_error = err;
    culvert__gpu_ref(gpu);
    if (err.code == CULVERT_EDEVICELOST)
        culvert__loop_log(gpu->loop, CULVERT_LOG_ERROR, "device %d is lost: %s",
                          gpu->device->ordinal, err.message);
    empty_rings(flow);
    reject_all(gpu, &err);
    culvert__allocs_reject(gpu, &err);
    culvert__on_lost_schedule(gpu);
    culvert__gpu_unref(gpu);
}
