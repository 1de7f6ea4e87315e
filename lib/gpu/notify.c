/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the end of work wakes a sleeping loop: a notifier, a stream of its own, waits for an event,
 * and a host function behind that wait posts into the loop. Not on the working stream: that would
 * stand still while the host function runs.
 *
 *   notifier:  free -> busy (wait and host function are in the driver) -> posted -> free
 *
 * Invariants:
 *   - a notifier is in order, so it carries one arm at most; a stream has one arm out at most.
 *   - the host function touches the notifier and the hub only (I4). Both outlive the binding while
 *     one is out: the notifier counts the hub, and is leaked with its stream if it never comes back.
 *   - at most CULVERT__ARM_CAP are out of a device: with host functions pending on some 60 streams
 *     (56 measured, 64 not; H200, driver 580) cuLaunchHostFunc blocks its caller.
 *   - a busy notifier counts its stream, so that struct is there when the post arrives.
 */
#include "gpu/flow.h"

#include <stdlib.h>

struct culvert__notifier {
    culvert__post post; /* first: what the host function posts */
    culvert__hub *hub;  /* counted while busy */
    culvert__notifier *next;
    struct CUstream_st *native;
    culvert_stream *stream; /* counted while busy; NULL: free */
    culvert_gpu *gpu;
};

/* On the driver's thread: no lock, no allocation, no call of the driver. */
static void on_fire(void *arg)
{
    culvert__notifier *n = arg;
    culvert__hub *hub = n->hub;
    if (culvert__hub_post(hub, &n->post) != CULVERT_OK)
        culvert__hub_unref(hub); /* the binding is gone: this was the last to need the hub */
}

/* On the loop. */
static void arrived(culvert__post *post)
{
    culvert__notifier *n = CULVERT__CONTAINER(post, culvert__notifier, post);
    culvert_stream *s = n->stream;
    n->stream = NULL;
    culvert__hub_unref(n->hub);
    if (s == NULL)
        return;
    atomic_fetch_sub(&n->gpu->device->arms, 1);
    n->gpu->flow->late = false;
    culvert__gpu_core(n->gpu)->counters.host_function_wakes++;
    if (s->arm == n) {
        s->arm = NULL;
        s->arm_done = 0;
    }
    culvert__stream_put(s); /* it is polled in this turn: it is armed no more */
}

static culvert__notifier *free_notifier(culvert__flow *flow)
{
    culvert__notifier *n = flow->notifiers;
    while (n != NULL && n->stream != NULL)
        n = n->next;
    return n;
}

static bool arm_failed(culvert_gpu *gpu, int result, const char *call)
{
    atomic_fetch_sub(&gpu->device->arms, 1);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__gpu_result(gpu, result, false, call, "culvert_seq_submit", NULL, &err);
    return false;
}

bool culvert__arm(culvert_stream *s, uint64_t target)
{
    culvert_gpu *gpu = s->gpu;
    struct CUevent_st *event = culvert__entry_at(s, target)->event;
    culvert__notifier *n = event != NULL ? free_notifier(gpu->flow) : NULL;
    if (n == NULL)
        return false;
    if (atomic_fetch_add(&gpu->device->arms, 1) >= CULVERT__ARM_CAP) {
        atomic_fetch_sub(&gpu->device->arms, 1);
        return false;
    }
    culvert__call_next(gpu->flow, "cuStreamWaitEvent");
    int r = gpu->drv->cuStreamWaitEvent(n->native, event, 0);
    if (r != CULVERT__CUDA_SUCCESS)
        return arm_failed(gpu, r, "cuStreamWaitEvent");
    n->stream = culvert_stream_ref(s);
    culvert__hub_ref(n->hub);
    culvert__call_next(gpu->flow, "cuLaunchHostFunc");
    r = gpu->drv->cuLaunchHostFunc(n->native, on_fire, n);
    if (r != CULVERT__CUDA_SUCCESS) {
        n->stream = NULL;
        culvert__hub_unref(n->hub);
        culvert__stream_put(s);
        return arm_failed(gpu, r, "cuLaunchHostFunc");
    }
    s->arm = n;
    s->arm_target = target;
    s->arm_done = 0;
    return true;
}

int culvert__notifier_query(culvert_gpu *gpu)
{
    const culvert__notifier *n = gpu->flow->notifiers;
    return n != NULL ? gpu->drv->cuStreamQuery(n->native) : CULVERT__CUDA_SUCCESS;
}

static culvert__notifier *notifier_new(culvert_gpu *gpu, culvert_error *err)
{
    culvert__notifier *n = calloc(1, sizeof *n);
    if (n == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", NULL,
                           "no memory for a notifier");
        return NULL;
    }
    int r = gpu->drv->cuStreamCreateWithPriority(&n->native, CULVERT__CU_STREAM_NON_BLOCKING,
                                                 gpu->device->description.priority_greatest);
    if (r != CULVERT__CUDA_SUCCESS) {
        culvert__gpu_result(gpu, r, false, "cuStreamCreateWithPriority", "culvert_gpu_open", NULL,
                            err);
        free(n);
        return NULL;
    }
    n->post.run = arrived;
    n->hub = gpu->hub;
    n->gpu = gpu;
    return n;
}

culvert__notifier *culvert__notifiers_new(culvert_gpu *gpu, unsigned count, culvert_error *err)
{
    for (unsigned i = 0; i < count; i++) {
        culvert__notifier *n = notifier_new(gpu, err);
        if (n == NULL) {
            culvert__notifiers_free(gpu, false);
            return NULL;
        }
        n->next = gpu->flow->notifiers;
        gpu->flow->notifiers = n;
    }
    return gpu->flow->notifiers;
}

bool culvert__notifiers_out(culvert_gpu *gpu)
{
    for (const culvert__notifier *n = gpu->flow->notifiers; n != NULL; n = n->next)
        if (n->stream != NULL)
            return true;
    return false;
}

/* Its host function may still come, or never: it and its stream stay, where they can be found. */
static void abandon(culvert__device *device, culvert__notifier *n)
{
    if (culvert__forked())
        return;
    pthread_mutex_lock(&device->lock);
    n->next = device->abandoned;
    device->abandoned = n;
    pthread_mutex_unlock(&device->lock);
}

void culvert__notifiers_free(culvert_gpu *gpu, bool leak)
{
    culvert__flow *flow = gpu->flow;
    while (flow->notifiers != NULL) {
        culvert__notifier *n = flow->notifiers;
        culvert_stream *s = n->stream;
        flow->notifiers = n->next;
        if (s != NULL) {
            abandon(gpu->device, n);
            culvert__stream_put(s);
            continue;
        }
        if (!leak)
            (void)gpu->drv->cuStreamDestroy(n->native);
        free(n);
    }
}
