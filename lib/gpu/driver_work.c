/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work of the driver thread that a future stands for: loading a module, compiling a graph.
 *
 *   QUEUED --the thread takes it--> RUNNING --back on the loop--> settled with what came of it
 *      |
 *      '--cancelled, or the binding is taken down--> DROPPED (settled at once; the thread passes it by)
 *
 * Invariants:
 *   - what was taken settles with its real outcome when it is over, but for the end of the binding;
 *   - from the submit to `done` the work is the driver thread's, and it holds a pin of its future;
 *   - the loop is kept alive from the submit until the future has settled.
 */
#include "gpu/gpu_internal.h"

enum { QUEUED, RUNNING, DROPPED };

static culvert__driver_work *work_of(culvert__driver_job *job)
{
    return CULVERT__CONTAINER(job, culvert__driver_work, job);
}

static culvert__driver_work *of_future(culvert_future *future)
{
    return ((culvert__driver_future *)(void *)future)->work;
}

static void unkeep(culvert__driver_work *w)
{
    if (!w->keeps)
        return;
    w->keeps = false;
    culvert__loop_unkeep(w->loop);
}

/* On the driver thread. */
static void run(culvert__driver_job *job)
{
    culvert__driver_work *w = work_of(job);
    int queued = QUEUED;
    if (atomic_compare_exchange_strong(&w->state, &queued, RUNNING))
        w->run(w);
}

static void done(culvert__post *post)
{
    culvert__driver_work *w = work_of(CULVERT__CONTAINER(post, culvert__driver_job, post));
    culvert_future *future = &w->future->base;
    unkeep(w);
    w->future->work = NULL;
    w->over(w, atomic_load(&w->state) == RUNNING);
    culvert__unpin(future);
}

static bool drop(culvert__driver_work *w)
{
    int queued = QUEUED;
    return atomic_compare_exchange_strong(&w->state, &queued, DROPPED);
}

void culvert__driver_future_cancel(culvert_future *future)
{
    culvert__driver_work *w = of_future(future);
    if (w == NULL || !drop(w))
        return; /* it runs: the real outcome comes */
    unkeep(w);
    culvert__settle_canceled(future);
}

void culvert__driver_future_shut_down(culvert_future *future, const culvert_error *err)
{
    culvert__driver_work *w = of_future(future);
    if (w != NULL) {
        (void)drop(w);
        unkeep(w);
    }
    culvert__settle_error(future, err);
}

bool culvert__driver_work_ready(culvert_gpu *gpu, const char *op, const char *where,
                                culvert_error *err)
{
    if (gpu->driver_thread == NULL)
        gpu->driver_thread = culvert__driver_thread_new(gpu, err);
    if (gpu->driver_thread != NULL)
        return true;
    err->op = op;
    err->where = where;
    return false;
}

void culvert__driver_work_begin(culvert_gpu *gpu, culvert_future *future, culvert__driver_work *w)
{
    w->job.work = run;
    w->job.post.run = done;
    w->loop = gpu->loop;
    atomic_init(&w->state, QUEUED);
    w->future = (culvert__driver_future *)(void *)future;
    w->future->work = w;
    culvert__future_make_root(future);
    culvert__pin(future);
    culvert__loop_keep(gpu->loop);
    w->keeps = true;
    culvert__driver_thread_submit(gpu->driver_thread, &w->job);
}
