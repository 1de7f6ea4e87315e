/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread a process that watches whether loops are stuck inside the driver, and whether devices
 * make progress. It makes no call of the driver: a call that does not return blocks the loop's
 * thread, so no timer of the loop could report it.
 *
 * Invariants: it runs while a device is open. `lock` is held while it looks and while it calls
 * on_stall, so that after culvert__monitor_remove nothing of a gpu is touched. The loop's thread
 * writes atomics only (culvert__call_begin and so on).
 */
#define _GNU_SOURCE
#include "gpu/flow.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static culvert__link watched; /* culvert__flow.monitor_link */
static bool running;          /* a thread is there, or is being joined */
static bool stop;
static pthread_t thread;

static const uint64_t period_ns = 250000000;
static const uint64_t call_stall_ns = 1000000000;

static void report(culvert__flow *flow, const char *what, uint64_t for_ns)
{
    if (flow->on_stall != NULL)
        flow->on_stall(what, (double)for_ns / 1e9, flow->on_stall_arg);
}

/* True: stuck in a call. */
static bool look_at_call(culvert__flow *flow, uint64_t now)
{
    const char *call = atomic_load_explicit(&flow->call, memory_order_acquire);
    unsigned long long start = atomic_load_explicit(&flow->call_start, memory_order_relaxed);
    if (call == NULL || now < start || now - start < call_stall_ns)
        return false;
    if (flow->reported_call != start) {
        flow->reported_call = start;
        report(flow, call, now - start);
    }
    return true;
}

static void report_work(culvert__flow *flow, uint64_t for_ns)
{
    const char *what = atomic_load_explicit(&flow->oldest_what, memory_order_relaxed);
    const char *where = atomic_load_explicit(&flow->oldest_where, memory_order_relaxed);
    char text[512];
    if (what == NULL)
        what = "work in flight";
    snprintf(text, sizeof text, "%s%s%s", what, where != NULL ? " at " : "",
             where != NULL ? where : "");
    report(flow, text, for_ns);
}

static bool look_at_work(culvert__flow *flow, uint64_t now)
{
    unsigned long long oldest = atomic_load_explicit(&flow->oldest, memory_order_relaxed);
    if (oldest == 0 || now < oldest || (double)(now - oldest) < flow->stall_seconds * 1e9)
        return false;
    if (flow->reported_oldest != oldest) {
        flow->reported_oldest = oldest;
        report_work(flow, now - oldest);
    }
    return true;
}

static void look(void)
{
    uint64_t now = culvert__now();
    for (culvert__link *l = watched.next; l != &watched; l = l->next) {
        culvert__flow *flow = CULVERT__CONTAINER(l, culvert__flow, monitor_link);
        bool call = look_at_call(flow, now);
        bool work = look_at_work(flow, now);
        atomic_store(&flow->stalled, call || work);
    }
}

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    while (!stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + period_ns;
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        if (pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT && !stop)
            look();
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* 0, or an errno. */
static int start_thread(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
    stop = false;
    int error = culvert__thread_start(&thread, run, NULL, "culvert-monitor");
    running = error == 0;
    if (!running)
        pthread_cond_destroy(&changed);
    return error;
}

int culvert__monitor_add(culvert_gpu *gpu)
{
    pthread_mutex_lock(&lock);
    if (watched.next == NULL)
        culvert__list_init(&watched);
    int error = running ? 0 : start_thread();
    if (error == 0)
        culvert__list_push(&watched, &gpu->flow->monitor_link);
    pthread_mutex_unlock(&lock);
    return error;
}

/* The last one ends the thread; it is joined under the lock's protection of `running`, so that one
   that is being ended and one that is being started do not mix. */
void culvert__monitor_remove(culvert_gpu *gpu)
{
    static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&joining);
    pthread_mutex_lock(&lock);
    bool was = culvert__linked(&gpu->flow->monitor_link);
    if (was)
        culvert__list_unlink(&gpu->flow->monitor_link);
    bool last = was && running && culvert__list_empty(&watched);
    if (last) {
        stop = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_t ending = thread;
    pthread_mutex_unlock(&lock);
    if (last) {
        pthread_join(ending, NULL);
        pthread_mutex_lock(&lock);
        running = false;
        pthread_cond_destroy(&changed);
        if (!culvert__list_empty(&watched)) /* somebody came while it ended */
            (void)start_thread();
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&joining);
}
