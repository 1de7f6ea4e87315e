/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that asks events and wakes the loops that wait for them: the wake of
 * CULVERT_WAKE_THREAD, and of every loop while host functions come late. One a device in the
 * process, while somebody needs it.
 *
 *   watch:  idle -> listed -> posted -> (drained) idle
 *             ^       |  \-> refused: the hub was closed; ended by culvert__watch_end
 *             +-------+ withdrawn, or its target exchanged
 *
 * Invariants:
 *   - a stream has one watch; it is listed, posted or refused only while it counts its stream, so
 *     that struct is there when the post arrives.
 *   - under the lock a listed watch is the loop's to change; what the thread was asking meanwhile
 *     is then forgotten (`asking` is not that watch any more). So after the call nothing of an old
 *     target can post, and nothing of an ended watch is touched.
 *   - a watch asks for the record that its entry made: whoever gives that event back ends the watch
 *     or gives it another target first, because an event that is recorded anew would answer for
 *     later work.
 *   - the post is made under the lock: a watch that is not listed any more has its post on the hub,
 *     and that loop does not sleep.
 *   - the thread judges no answer. Any but not-ready posts; the loop asks again, by itself.
 *   - no lock is held in a call of the driver. The thread asks without a pause for `hot_ns` after a
 *     watch began, then ever less often, at last every millisecond. With no watch it stays awake for
 *     that long once more, as the next one is likely to come, then it sleeps.
 */
#define _GNU_SOURCE
#include "gpu/flow.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { PATIENCE_SECONDS = 2 };
static const uint64_t pause_most_ns = 1000000;
static const uint64_t pause_part = 16; /* of what it has waited already */

struct culvert__completion_thread {
    culvert__completion_thread *next; /* device->unreturned */
    culvert__device *device;          /* not counted: its users do */
    unsigned users;                   /* under the device's lock */
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t wake;  /* a watch more, or stop */
    pthread_cond_t quiet; /* a call has returned, or the thread is over */
    culvert__link watches;
    culvert__watch *asking;      /* the watch that the call at hand is for; NULL: none any more */
    const culvert_gpu *asked_of; /* whose event is in the call at hand */
    uint64_t round;
    uint64_t awake_until; /* with nothing to ask */
    bool stop, over;
    atomic_uint given; /* watches and other reasons to look, so far: without the lock */
};

/* ---- the thread ---- */

static void post(culvert__completion_thread *t, culvert__watch *watch)
{
    culvert__list_unlink(&watch->link);
    watch->posted = true;
    t->awake_until = culvert__now() + watch->hot_ns;
    if (culvert__hub_post(watch->stream->gpu->hub, &watch->post) != CULVERT_OK)
        watch->posted = false;
}

/* Called and left with the lock held. */
static void ask(culvert__completion_thread *t, culvert__watch *watch)
{
    struct CUevent_st *event = watch->event;
    t->asking = watch;
    t->asked_of = watch->stream->gpu;
    pthread_mutex_unlock(&t->lock);
    int result = t->device->drv->cuEventQuery(event);
    pthread_mutex_lock(&t->lock);
    if (t->asking == watch && result != CULVERT__CUDA_ERROR_NOT_READY)
        post(t, watch);
    t->asking = NULL;
    t->asked_of = NULL;
    pthread_cond_broadcast(&t->quiet);
}

static bool nothing_to_ask(const culvert__completion_thread *t)
{
    return culvert__list_empty(&t->watches) || culvert__device_is_lost(t->device);
}

/* Every watch once. */
static void ask_all(culvert__completion_thread *t)
{
    t->round++;
    while (!nothing_to_ask(t) && !t->stop) {
        culvert__watch *watch = CULVERT__CONTAINER(t->watches.next, culvert__watch, link);
        if (watch->round == t->round)
            return;
        watch->round = t->round;
        culvert__list_unlink(&watch->link);
        culvert__list_push(&t->watches, &watch->link);
        ask(t, watch);
    }
}

/* Nanoseconds until the next round; 0: at once. */
static uint64_t pause_of(const culvert__completion_thread *t, uint64_t now)
{
    uint64_t least = pause_most_ns;
    for (const culvert__link *l = t->watches.next; l != &t->watches; l = l->next) {
        const culvert__watch *watch = CULVERT__CONTAINER(l, culvert__watch, link);
        uint64_t age = now > watch->since ? now - watch->since : 0;
        uint64_t its = age < watch->hot_ns ? 0 : age / pause_part;
        least = its < least ? its : least;
    }
    return least;
}

static void wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    (void)pthread_cond_timedwait(cond, lock, &until);
}

static void rest(culvert__completion_thread *t)
{
    uint64_t ns = pause_of(t, culvert__now());
    if (ns > 0) {
        wait_for(&t->wake, &t->lock, ns);
        return;
    }
    pthread_mutex_unlock(&t->lock); /* loops want it too */
    sched_yield();
    pthread_mutex_lock(&t->lock);
}

/* With nothing to ask. Called and left with the lock held. */
static void wait_for_watch(culvert__completion_thread *t)
{
    unsigned given = atomic_load(&t->given);
    uint64_t until = t->awake_until;
    if (until == 0 || culvert__device_is_lost(t->device)) {
        pthread_cond_wait(&t->wake, &t->lock);
        return;
    }
    pthread_mutex_unlock(&t->lock);
    while (atomic_load(&t->given) == given && culvert__now() < until)
        sched_yield();
    pthread_mutex_lock(&t->lock);
    t->awake_until = 0;
}

static void look_again(culvert__completion_thread *t)
{
    atomic_fetch_add(&t->given, 1);
    pthread_cond_signal(&t->wake);
}

static void *run(void *arg)
{
    culvert__completion_thread *t = arg;
    const culvert__driver *drv = t->device->drv;
    int mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul); /* its pauses are shorter than the usual slack */
    (void)drv->cuCtxSetCurrent(t->device->ctx);
    (void)drv->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (nothing_to_ask(t)) {
            wait_for_watch(t);
            continue;
        }
        ask_all(t);
        if (!t->stop && !nothing_to_ask(t))
            rest(t);
    }
    t->over = true;
    pthread_cond_broadcast(&t->quiet);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- its life ---- */

static void destroy(culvert__completion_thread *t)
{
    pthread_cond_destroy(&t->quiet);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* NULL: *error says why not. */
static culvert__completion_thread *make(culvert__device *device, int *error)
{
    culvert__completion_thread *t = calloc(1, sizeof *t);
    pthread_condattr_t attr;
    *error = ENOMEM;
    if (t == NULL)
        return NULL;
    t->device = device;
    culvert__list_init(&t->watches);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, &attr);
    pthread_cond_init(&t->quiet, &attr);
    pthread_condattr_destroy(&attr);
    *error = culvert__thread_start(&t->thread, run, t, "culvert-events");
    if (*error == 0)
        return t;
    destroy(t);
    return NULL;
}

int culvert__completion_thread_join(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    culvert__device *device = gpu->device;
    int error = 0;
    if (flow->thread != NULL)
        return 0;
    pthread_mutex_lock(&device->lock);
    if (device->thread == NULL)
        device->thread = make(device, &error);
    flow->thread = device->thread;
    if (flow->thread != NULL)
        flow->thread->users++;
    pthread_mutex_unlock(&device->lock);
    return error;
}

/* Waits until no event of this gpu is in a call. False: it does not return. */
static bool let_return(culvert__completion_thread *t, const culvert_gpu *gpu)
{
    uint64_t end = culvert__now() + PATIENCE_SECONDS * 1000000000ull;
    pthread_mutex_lock(&t->lock);
    for (uint64_t now; t->asked_of == gpu && (now = culvert__now()) < end;)
        wait_for(&t->quiet, &t->lock, end - now);
    bool returned = t->asked_of != gpu;
    pthread_mutex_unlock(&t->lock);
    return returned;
}

/* False: it is in a call that does not return. */
static bool let_end(culvert__completion_thread *t)
{
    uint64_t end = culvert__now() + PATIENCE_SECONDS * 1000000000ull;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    look_again(t);
    for (uint64_t now; !t->over && (now = culvert__now()) < end;)
        wait_for(&t->quiet, &t->lock, end - now);
    bool over = t->over;
    pthread_mutex_unlock(&t->lock);
    return over;
}

/* Nobody needs it any more. One that the driver does not give back is left alone, where it can be found. */
static void end(culvert__device *device, culvert__completion_thread *t)
{
    if (let_end(t)) {
        pthread_join(t->thread, NULL);
        destroy(t);
        return;
    }
    pthread_detach(t->thread);
    pthread_mutex_lock(&device->lock);
    t->next = device->unreturned;
    device->unreturned = t;
    pthread_mutex_unlock(&device->lock);
}

bool culvert__completion_thread_leave(culvert_gpu *gpu)
{
    culvert__device *device = gpu->device;
    culvert__completion_thread *t = gpu->flow->thread;
    gpu->flow->thread = NULL;
    if (t == NULL || culvert__forked())
        return true;
    bool returned = let_return(t, gpu);
    pthread_mutex_lock(&device->lock);
    bool last = --t->users == 0;
    if (last)
        device->thread = NULL;
    pthread_mutex_unlock(&device->lock);
    if (last)
        end(device, t);
    return returned;
}

/* ---- watches, on the loop's thread ---- */

/* Under the lock: what the thread has in its hand is of no use any more. */
static void forget(culvert__completion_thread *t, const culvert__watch *watch)
{
    if (t->asking == watch)
        t->asking = NULL;
}

static void arrived(culvert__post *node)
{
    culvert__watch *watch = CULVERT__CONTAINER(node, culvert__watch, post);
    watch->posted = false;
    watch->out = false;
    culvert__gpu_core(watch->stream->gpu)->counters.thread_wakes++;
    culvert__stream_put(watch->stream); /* it is polled in this turn: nothing watches it any more */
}

bool culvert__watch_set(culvert_stream *s, uint64_t target, bool *newly)
{
    culvert__completion_thread *t = s->gpu->flow->thread;
    culvert__watch *watch = &s->watch;
    struct CUevent_st *event = culvert__entry_at(s, target)->event;
    *newly = false;
    if (event == NULL) {
        culvert__watch_end(s);
        return watch->out; /* posted: it comes */
    }
    if (watch->out && watch->target == target)
        return true; /* of the same record: it would have ended before the event went back */
    pthread_mutex_lock(&t->lock);
    if (watch->out && !culvert__linked(&watch->link)) {
        pthread_mutex_unlock(&t->lock);
        return true; /* posted: the loop does not sleep */
    }
    forget(t, watch);
    watch->event = event;
    watch->target = target;
    watch->since = culvert__now();
    *newly = !watch->out;
    if (*newly)
        culvert__list_push(&t->watches, &watch->link);
    look_again(t); /* it may be in a long pause */
    pthread_mutex_unlock(&t->lock);
    if (*newly) {
        watch->out = true;
        s->refs++;
    }
    return true;
}

void culvert__watch_end(culvert_stream *s)
{
    culvert__completion_thread *t = s->gpu->flow->thread;
    culvert__watch *watch = &s->watch;
    if (!watch->out)
        return;
    if (!culvert__forked()) {
        pthread_mutex_lock(&t->lock);
        bool posted = watch->posted;
        forget(t, watch);
        if (culvert__linked(&watch->link))
            culvert__list_unlink(&watch->link);
        pthread_mutex_unlock(&t->lock);
        if (posted)
            return; /* it arrives */
    }
    watch->out = false;
    culvert__stream_put(s); /* the caller has a reference of its own */
}

void culvert__watch_init(culvert_stream *s)
{
    const culvert_loop_options *options = culvert__loop_options(s->gpu->loop);
    s->watch.post.run = arrived;
    s->watch.stream = s;
    s->watch.hot_ns = (uint64_t)(options->spin_seconds * 1e9);
}
