/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread for calls of the driver that block: loading and unloading of modules.
 *
 *   job:  waiting -> running -> posted -> (run on the loop's thread)
 *                          \--> returned: the hub was closed; run by culvert__driver_thread_free
 *
 * Invariants:
 *   - jobs run one at a time, in the order submitted; every one is run
 *   - a job belongs to this thread from submit until it is posted or returned, then to the loop's
 *     thread
 *   - the state is counted by the thread and by its owner, so that a thread which the driver does
 *     not give back can be left alone
 *   - the thread makes no signal handler run, and is in relaxed capture mode for life, so that its
 *     calls break nobody's capture
 */
#define _GNU_SOURCE
#include "gpu/gpu_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_SECONDS = 2 };

struct culvert__driver_thread {
    culvert__driver_thread *next; /* device->stuck */
    culvert_gpu *gpu;             /* not counted: the gpu owns this */
    const culvert__driver *drv;
    struct CUctx_st *ctx;
    culvert__hub *hub; /* counted */
    pthread_t thread;
    atomic_uint refs;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t wake;  /* something to do, or stop */
    pthread_cond_t ended;
    culvert__driver_job *first, **last;
    culvert__post *returned, **returned_last;
    bool running, stop, over;
};

static void release(culvert__driver_thread *t)
{
    if (atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    pthread_cond_destroy(&t->ended);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    culvert__hub_unref(t->hub);
    free(t);
}

/* ---- the thread ---- */

/* Called and left with the lock held. */
static void run_job(culvert__driver_thread *t)
{
    culvert__driver_job *job = t->first;
    t->first = job->next;
    if (t->first == NULL)
        t->last = &t->first;
    t->running = true;
    pthread_mutex_unlock(&t->lock);
    job->work(job);
    bool posted = culvert__hub_post(t->hub, &job->post) == CULVERT_OK;
    pthread_mutex_lock(&t->lock);
    t->running = false;
    if (posted)
        return;
    job->post.next = NULL;
    *t->returned_last = &job->post;
    t->returned_last = &job->post.next;
}

static void *thread_main(void *arg)
{
    culvert__driver_thread *t = arg;
    int mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)t->drv->cuCtxSetCurrent(t->ctx); /* where it fails, so does the first call of a job */
    (void)t->drv->cuThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&t->lock);
    for (;;) {
        if (t->first != NULL)
            run_job(t);
        else if (t->stop)
            break;
        else
            pthread_cond_wait(&t->wake, &t->lock);
    }
    t->over = true;
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
    release(t);
    return NULL;
}

/* ---- the loop's side ---- */

culvert__driver_thread *culvert__driver_thread_new(culvert_gpu *gpu, culvert_error *err)
{
    culvert__driver_thread *t = calloc(1, sizeof *t);
    if (t == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, NULL, NULL, "no memory for the driver thread");
        return NULL;
    }
    t->gpu = gpu;
    t->drv = gpu->drv;
    t->ctx = gpu->device->ctx;
    t->hub = culvert__hub_ref(gpu->hub);
    t->last = &t->first;
    t->returned_last = &t->returned;
    atomic_init(&t->refs, 2);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int error = culvert__thread_start(&t->thread, thread_main, t, "culvert-driver");
    if (error != 0) {
        culvert__error_set(err, CULVERT_ESYSTEM, error, NULL, NULL,
                           "the driver thread did not start: %s", strerror(error));
        atomic_store(&t->refs, 1);
        release(t);
        return NULL;
    }
    return t;
}

void culvert__driver_thread_submit(culvert__driver_thread *t, culvert__driver_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&t->lock);
    *t->last = job;
    t->last = &job->next;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

bool culvert__driver_thread_busy(culvert__driver_thread *t)
{
    if (t == NULL)
        return false;
    pthread_mutex_lock(&t->lock);
    bool busy = t->running || t->first != NULL;
    pthread_mutex_unlock(&t->lock);
    return busy;
}

/* True once the thread has nothing more to do; false if it does not come to its end. */
static bool wait_for_end(culvert__driver_thread *t)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_SECONDS;
    int error = 0;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    while (!t->over && error == 0)
        error = pthread_cond_timedwait(&t->ended, &t->lock, &until);
    bool over = t->over;
    pthread_mutex_unlock(&t->lock);
    return over;
}

/* The driver may give it back or not: what its jobs hold stays, where it can be found. */
static void abandon(culvert__driver_thread *t)
{
    culvert__device *device = t->gpu->device;
    pthread_mutex_lock(&device->lock);
    t->next = device->stuck;
    device->stuck = t;
    pthread_mutex_unlock(&device->lock);
}

void culvert__driver_thread_free(culvert__driver_thread *t)
{
    if (t == NULL)
        return;
    t->gpu->driver_thread = NULL; /* what runs below must not submit */
    if (!wait_for_end(t)) {
        pthread_detach(t->thread);
        abandon(t);
        return;
    }
    pthread_join(t->thread, NULL);
    for (culvert__post *post = t->returned, *next; post != NULL; post = next) {
        next = post->next;
        post->run(post);
    }
    release(t);
}
