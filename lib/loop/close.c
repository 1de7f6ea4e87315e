/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking a binding down.
 *
 *   culvert_loop_free: nothing new is taken (closing)
 *     | (inside a callback: when the outermost one has returned)
 *     v
 *   what is in flight ends, or close_seconds pass; jobs that run are waited for
 *     v
 *   the hub is closed and drained; everything pending is settled; callbacks run until none is left
 *     v
 *   sources are detached; watchers stop, what was taken of the libev loop is given back (closed)
 *
 * In a child after fork() the same without waiting, threads or driver; and whoever comes first,
 * ev_run or culvert_loop_free, does it.
 *
 * Invariant: it ends, because callbacks can add nothing that is not settled.
 */
#define _POSIX_C_SOURCE 200809L
#include "loop/binding.h"

#include <time.h>

static void run_ready(culvert_loop *loop)
{
    culvert__core *core = &loop->core;

    do {
        culvert__turn_begin(core);
        culvert__reap(core);
    } while (culvert__ready_run(core, 1024, UINT64_MAX) || core->doomed != NULL);
}

void culvert__settle_roots(culvert_loop *loop, const culvert_error *err)
{
    culvert__core *core = &loop->core;

    while (!culvert__list_empty(&core->roots)) {
        culvert_future *f = CULVERT__CONTAINER(core->roots.next, culvert_future, roots);

        f->kind->shutdown(f, err);
        culvert__settle_static(f, err->code); /* in case it left that to us */
    }
}

/* ---- waiting for what is in flight ---- */

static bool sources_busy(culvert_loop *loop)
{
    for (culvert__link *l = loop->sources.next; l != &loop->sources; l = l->next) {
        culvert__source *s = CULVERT__CONTAINER(l, culvert__source, link);

        if (s->busy(s))
            return true;
    }
    return false;
}

static void nap(unsigned rounds)
{
    const long ns = rounds < 20 ? 50000 : 1000000;

    nanosleep(&(struct timespec){0, ns}, NULL);
}

/* The program's own watchers do not run: it asked for an end. */
static void let_end(culvert_loop *loop)
{
    const uint64_t start = culvert__now();
    const double limit = loop->options.close_seconds;

    for (unsigned rounds = 0;; rounds++) {
        const bool more = culvert__loop_gather(loop);

        run_ready(loop);
        const bool in_time = (double)(culvert__now() - start) * 1e-9 < limit;
        if (!culvert__pool_busy(loop) && !(in_time && sources_busy(loop)))
            return;
        if (!more && !culvert__hub_waiting(loop->hub))
            nap(rounds);
    }
}

/* ---- the end ---- */

static void detach_sources(culvert_loop *loop, bool forked)
{
    while (!culvert__list_empty(&loop->sources)) {
        culvert__source *s = CULVERT__CONTAINER(loop->sources.next, culvert__source, link);

        culvert__list_unlink(&s->link);
        s->detach(s, forked);
    }
}

static void finish(culvert_loop *loop)
{
    culvert__core *core = &loop->core;

    culvert__timers_free(loop);
    loop->keep = loop->idle_keeps = 0;
    loop->posted = false;
    culvert__loop_balance(loop);
    culvert__dispatch_stop(loop);
    loop->ev = NULL;
    core->closed = true;
    /* The program's reference goes, or passes to the futures that are left. */
    if (core->live > 0)
        core->held = true;
    else
        culvert_loop_unref(loop);
}

void culvert__loop_close(culvert__core *core)
{
    culvert_loop *loop = culvert__loop_of(core);
    const culvert_error *err = culvert__static_error(CULVERT_ESHUTDOWN);

    if (culvert__forked()) {
        culvert__loop_in_child(loop, true);
        return;
    }
    culvert__pool_discard(loop, err);
    let_end(loop);
    culvert__hub_close(loop);
    culvert__pool_join(loop);
    culvert__settle_roots(loop, err);
    run_ready(loop);
    detach_sources(loop, false);
    run_ready(loop);
    if (core->tracer != NULL)
        core->tracer->stop(core->tracer);
    finish(loop);
}

/*
 * Only the thread that forked is in the child. Where that is not the loop's, the loop's thread may
 * have been in the middle of anything, so what it left is not touched.
 */
void culvert__loop_in_child(culvert_loop *loop, bool free)
{
    culvert__core *core = &loop->core;
    const culvert_error *err = culvert__static_error(CULVERT_EFORKED);

    if (core->child_done || core->depth > 0 || !culvert__may_own(core))
        return;
    core->closing = true;
    core->child_done = true;
    core->tracer = NULL; /* the parent's */
    if (!free)
        culvert_loop_ref(loop); /* for the culvert_loop_free that may come */
    /* So that stopping our watchers does not change the parent's epoll set. */
    ev_loop_fork(loop->ev);
    culvert__settle_roots(loop, err);
    culvert__hub_discard(loop);
    run_ready(loop);
    detach_sources(loop, true);
    run_ready(loop);
    culvert__pool_forget(loop);
    finish(loop);
}

static void free_in_child(culvert_loop *loop)
{
    culvert__core *core = &loop->core;

    if (core->child_done) {
        culvert_loop_unref(loop); /* ev_run came first */
    } else if (core->depth > 0) {
        core->closing = true;
        core->close_wanted = true;
    } else {
        culvert__loop_in_child(loop, true);
    }
}

void culvert_loop_free(culvert_loop *loop)
{
    if (loop == NULL)
        return;
    culvert__core *core = &loop->core;

    if (culvert__forked()) {
        free_in_child(loop);
        return;
    }
    if (core->closing)
        return; /* a callback of the one that is going on */
    /* The loop's thread may be over and gone: then it is anybody's. */
    if (ev_depth(loop->ev) > 0)
        culvert__check_thread(core, "culvert_loop_free");
    culvert__claim(core);
    culvert__hub_refuse(loop->hub);
    core->closing = true;
    if (core->depth > 0)
        core->close_wanted = true;
    else
        culvert__loop_close(core);
}
