/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert_await: runs the loop until a future has settled.
 *
 * Awaits nest (a libev callback may await while its caller does), so each remembers the depth of
 * the ev_run that it made, and breaks only an ev_run of that depth: where an outer one is over
 * first, its prepare watcher breaks it when the inner ones have returned. That watcher is the
 * await's own: it works, and keeps the loop alive, also when a callback has freed the binding.
 */
#include "loop/binding.h"

#include <math.h>

typedef struct waiting {
    ev_prepare prepare;
    culvert__waiter w;
    culvert__timer timer;
    struct ev_loop *ev;
    unsigned depth; /* of its ev_run */
    bool over;
} waiting;

static void look(waiting *a)
{
    if (a->over && ev_depth(a->ev) == a->depth)
        ev_break(a->ev, EVBREAK_ONE);
}

static void on_prepare(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)ev;
    (void)revents;
    look(w->data);
}

static void await_settled(culvert__task *task)
{
    waiting *a = CULVERT__CONTAINER(task, waiting, w.task);

    culvert__wait_end(&a->w);
    a->over = true;
    look(a);
}

static void await_expired(culvert__timer *t)
{
    waiting *a = CULVERT__CONTAINER(t, waiting, timer);

    a->over = true;
    look(a);
}

static int await_run(culvert_loop *loop, culvert_future *f, double seconds)
{
    struct ev_loop *ev = loop->ev;
    waiting a = {.ev = ev, .depth = ev_depth(ev) + 1};

    a.timer.fire = await_expired;
    a.w.task.run = await_settled;
    if (seconds > 0.0 && culvert__timer_start(loop, &a.timer, seconds, false) != CULVERT_OK)
        return CULVERT_ENOMEM;
    ev_prepare_init(&a.prepare, on_prepare);
    a.prepare.data = &a;
    ev_prepare_start(ev, &a.prepare);
    culvert__wait(culvert__ref(f), &a.w);

    ev_run(ev, seconds > 0.0 ? 0 : EVRUN_NOWAIT);

    culvert__wait_cancel(&a.w);
    culvert__timer_stop(loop, &a.timer);
    ev_prepare_stop(ev, &a.prepare);
    return f->status;
}

int culvert_await(culvert_future *future, double seconds)
{
    CULVERT__REQUIRE(future, "culvert_await", "future");
    if (culvert__inherited(future->core))
        return CULVERT_EFORKED;
    culvert__core *core = future->core;
    culvert__check_thread(core, "culvert_await");
    if (core->depth > 0)
        return CULVERT_EDEADLK;
    if (!(seconds >= 0.0)) /* also NaN */
        return CULVERT_EINVAL;
    if (!future->immortal)
        future->looked = 1;
    if (culvert__settled(future))
        return future->status;

    culvert_loop *loop = culvert__loop_of(core);
    culvert_loop_ref(loop); /* a callback may free the binding */
    const int status = await_run(loop, future, seconds);
    culvert__reap(core);
    culvert_loop_unref(loop);
    return status;
}
