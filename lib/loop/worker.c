/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worker threads for blocking functions: a bounded number, started when a job finds none idle, and
 * a queue.
 *
 *   QUEUED --a thread takes it--> RUNNING --fn returned, posted--> settled with its real outcome
 *      |
 *      +--cancelled, or culvert_loop_free--> settled; fn never runs
 *
 * Invariants:
 *   - `queue`, `idle`, `running` and a job's `state` change under the pool's lock only; the loop's
 *     thread holds it for a few instructions, and nothing is called under it;
 *   - everything of a job's future belongs to the loop's thread; a worker has fn, arg, value and
 *     error, while the job is RUNNING;
 *   - a job that is QUEUED or RUNNING keeps the loop alive.
 */
#define _GNU_SOURCE
#include "loop/binding.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum job_state { QUEUED, RUNNING, OVER } job_state;

typedef struct job {
    culvert_future base;
    culvert__link link; /* in the queue */
    culvert__post post;
    job_state state;
    void *(*fn)(void *arg, culvert_error *err);
    void *arg;
    culvert_free_fn *arg_free;
    void *value;
    culvert_free_fn *value_free;
    const char *where;
    culvert_error error;
} job;

struct culvert__pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    culvert__link queue;
    culvert__hub *hub;
    unsigned idle;  /* threads that wait for work and have not been promised any */
    size_t running; /* jobs that have started and whose posts have not been taken */
    bool stop;
    unsigned threads; /* the loop's thread's */
    pthread_t thread[];
};

static job *job_of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, job, base);
}

static culvert__pool *pool_of(const job *j)
{
    return culvert__loop_of(j->base.core)->pool;
}

/* ---- on a worker ---- */

static job *next_job(culvert__pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (culvert__list_empty(&pool->queue) && !pool->stop) {
        pool->idle++;
        pthread_cond_wait(&pool->work, &pool->lock);
        pool->idle--;
    }
    job *j = NULL;
    if (!culvert__list_empty(&pool->queue)) {
        j = CULVERT__CONTAINER(pool->queue.next, job, link);
        culvert__list_unlink(&j->link);
        j->state = RUNNING;
        pool->running++;
    }
    pthread_mutex_unlock(&pool->lock);
    return j;
}

static void *worker(void *arg)
{
    culvert__pool *pool = arg;
    job *j;

    pthread_setname_np(pthread_self(), "culvert-work");
    while ((j = next_job(pool)) != NULL) {
        j->value = j->fn(j->arg, &j->error);
        /* Taken for sure: the hub is closed only when no job is running. */
        (void)culvert__hub_post(pool->hub, &j->post);
    }
    return NULL;
}

/* ---- on the loop ---- */

static void job_over(culvert__post *post)
{
    job *j = CULVERT__CONTAINER(post, job, post);
    culvert__core *core = j->base.core;
    culvert__pool *pool = pool_of(j);

    pthread_mutex_lock(&pool->lock);
    j->state = OVER;
    pool->running--;
    pthread_mutex_unlock(&pool->lock);
    culvert__loop_unkeep(culvert__loop_of(core));

    if (j->error.code == CULVERT_OK) {
        culvert__settle_value(&j->base, j->value, j->value != NULL ? j->value_free : NULL);
    } else {
        if (j->error.op == NULL)
            j->error.op = "culvert_work";
        if (j->error.where == NULL)
            j->error.where = j->where;
        culvert__settle_error(&j->base, &j->error);
        if (j->value != NULL)
            culvert__release_arg(core, j->value_free, j->value);
    }
    culvert__release_later(&j->base);
}

/* A job that has not started leaves the queue and never will. */
static bool withdraw(job *j)
{
    culvert__pool *pool = pool_of(j);

    pthread_mutex_lock(&pool->lock);
    const bool queued = j->state == QUEUED;
    if (queued) {
        culvert__list_unlink(&j->link);
        j->state = OVER;
    }
    pthread_mutex_unlock(&pool->lock);
    if (queued) {
        culvert__loop_unkeep(culvert__loop_of(j->base.core));
        culvert__release_later(&j->base);
    }
    return queued;
}

static void job_cancel(culvert_future *f)
{
    if (withdraw(job_of(f)))
        culvert__settle_canceled(f);
}

static void job_shutdown(culvert_future *f, const culvert_error *err)
{
    job *j = job_of(f);

    if (culvert__forked()) { /* the threads and their lock are the parent's */
        j->state = OVER;
        culvert__release_later(f);
    } else {
        (void)withdraw(j);
    }
    culvert__settle_static(f, err->code);
}

static void job_release(culvert_future *f)
{
    job *j = job_of(f);

    if (j->arg_free != NULL)
        j->arg_free(j->arg);
}

static const culvert__kind job_kind = {.name = "work",
                                       .cancel = job_cancel,
                                       .shutdown = job_shutdown,
                                       .release = job_release};

/* ---- the pool ---- */

static culvert__pool *pool_new(culvert_loop *loop)
{
    const unsigned most = loop->options.workers;
    culvert__pool *pool = calloc(1, sizeof *pool + most * sizeof pool->thread[0]);

    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    culvert__list_init(&pool->queue);
    pool->hub = loop->hub;
    return pool;
}

static int start_thread(culvert__pool *pool)
{
    const int error = culvert__thread_start(&pool->thread[pool->threads], worker, pool, NULL);

    if (error == 0)
        pool->threads++;
    return error;
}

/* Whether as many threads as there are jobs in the queue are idle. */
static bool enough_idle(culvert__pool *pool)
{
    size_t queued = 0;

    for (culvert__link *l = pool->queue.next; l != &pool->queue && queued < pool->idle; l = l->next)
        queued++;
    return queued < pool->idle;
}

/* 0, or an errno where there is no thread at all that could run it. */
static int enqueue(culvert_loop *loop, job *j)
{
    culvert__pool *pool = loop->pool;

    pthread_mutex_lock(&pool->lock);
    const bool start = !enough_idle(pool) && pool->threads < loop->options.workers;
    pthread_mutex_unlock(&pool->lock);
    const int error = start ? start_thread(pool) : 0;
    if (pool->threads == 0)
        return error;

    pthread_mutex_lock(&pool->lock);
    culvert__list_push(&pool->queue, &j->link);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_signal(&pool->work);
    culvert__loop_keep(loop);
    return 0;
}

bool culvert__loop_jobs(const culvert_loop *loop)
{
    culvert__pool *pool = loop->pool;

    if (pool == NULL)
        return false;
    pthread_mutex_lock(&pool->lock);
    const bool some = pool->running > 0 || !culvert__list_empty(&pool->queue);
    pthread_mutex_unlock(&pool->lock);
    return some;
}

/* The future that stands for work that cannot be taken; NULL where it can. */
static culvert_future *refused(culvert_loop *loop)
{
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__check_thread(&loop->core, "culvert_work");
    if (culvert__refuses_work(&loop->core))
        return culvert__future_static(&loop->core, CULVERT_ESHUTDOWN);
    if (loop->pool == NULL)
        loop->pool = pool_new(loop);
    return loop->pool == NULL ? culvert__future_static(&loop->core, CULVERT_ENOMEM) : NULL;
}

culvert_future *culvert_work_at(const char *where, culvert_loop *loop,
                                void *(*fn)(void *arg, culvert_error *err), void *arg,
                                culvert_free_fn *arg_free, culvert_free_fn *value_free)
{
    CULVERT__REQUIRE(loop, "culvert_work", "loop");
    CULVERT__REQUIRE(fn, "culvert_work", "fn");
    culvert__core *core = &loop->core;
    culvert_future *no = refused(loop);
    culvert_future *f = no == NULL ? culvert__future_alloc(core, &job_kind, sizeof(job)) : NULL;

    if (f == NULL) {
        if (no == NULL)
            no = culvert__future_static(core, CULVERT_ENOMEM);
        culvert__release_arg(culvert__forked() ? NULL : core, arg_free, arg);
        return no;
    }
    job *j = job_of(f);
    j->post.run = job_over;
    j->fn = fn;
    j->arg = arg;
    j->arg_free = arg_free;
    j->value_free = value_free;
    j->where = where;

    const int error = enqueue(loop, j);
    if (error != 0) {
        j->state = OVER;
        culvert__settle_failed(f, CULVERT_ESYSTEM, error, "culvert_work", where,
                               "no worker thread could be started: %s", strerror(error));
        culvert__release_arg(core, arg_free, arg);
        return f;
    }
    culvert__future_make_root(f);
    return f;
}

culvert_future *culvert_work(culvert_loop *loop, void *(*fn)(void *arg, culvert_error *err),
                             void *arg, culvert_free_fn *arg_free, culvert_free_fn *value_free)
{
    return culvert_work_at(NULL, loop, fn, arg, arg_free, value_free);
}

/* ---- taking it down ---- */

void culvert__pool_discard(culvert_loop *loop, const culvert_error *err)
{
    culvert__pool *pool = loop->pool;

    for (;;) {
        job *j = NULL;

        if (pool == NULL)
            return;
        pthread_mutex_lock(&pool->lock);
        if (!culvert__list_empty(&pool->queue))
            j = CULVERT__CONTAINER(pool->queue.next, job, link);
        pthread_mutex_unlock(&pool->lock);
        if (j == NULL)
            return;
        /* A worker may have taken it in between: then it runs, and is waited for. */
        if (withdraw(j))
            culvert__settle_static(&j->base, err->code);
    }
}

bool culvert__pool_busy(const culvert_loop *loop)
{
    culvert__pool *pool = loop->pool;

    if (pool == NULL)
        return false;
    pthread_mutex_lock(&pool->lock);
    const bool busy = pool->running > 0;
    pthread_mutex_unlock(&pool->lock);
    return busy;
}

void culvert__pool_join(culvert_loop *loop)
{
    culvert__pool *pool = loop->pool;

    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_broadcast(&pool->work);
    for (unsigned i = 0; i < pool->threads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    loop->pool = NULL;
}

void culvert__pool_forget(culvert_loop *loop)
{
    free(loop->pool); /* its lock may be held by a thread that is not here: it is not destroyed */
    loop->pool = NULL;
}
