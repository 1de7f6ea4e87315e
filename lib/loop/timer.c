/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers: a heap of deadlines over one ev_timer, and the futures made of them.
 *
 * Time is CLOCK_MONOTONIC, counted from the moment of the call: libev's own timers count from the
 * time at which the loop last looked, which a long callback leaves far behind.
 *
 * Invariants:
 *   - heap[i]->place == i; no timer's deadline is before that of heap[i / 2];
 *   - equal deadlines fire in the order in which the timers were started;
 *   - a started timer that keeps counts once in loop->keep.
 */
#include "loop/binding.h"

#include <math.h>
#include <stdlib.h>

/* ---- the heap ---- */

static bool before(const culvert__timer *a, const culvert__timer *b)
{
    return a->deadline != b->deadline ? a->deadline < b->deadline : a->order < b->order;
}

static void put(culvert_loop *loop, size_t place, culvert__timer *t)
{
    loop->heap[place] = t;
    t->place = place;
}

static void sift_up(culvert_loop *loop, size_t place, culvert__timer *t)
{
    while (place > 1 && before(t, loop->heap[place / 2])) {
        put(loop, place, loop->heap[place / 2]);
        place /= 2;
    }
    put(loop, place, t);
}

static void sift_down(culvert_loop *loop, size_t place, culvert__timer *t)
{
    for (;;) {
        size_t child = 2 * place;

        if (child > loop->timers)
            break;
        if (child < loop->timers && before(loop->heap[child + 1], loop->heap[child]))
            child++;
        if (!before(loop->heap[child], t))
            break;
        put(loop, place, loop->heap[child]);
        place = child;
    }
    put(loop, place, t);
}

static void take_out(culvert_loop *loop, culvert__timer *t)
{
    const size_t place = t->place;
    culvert__timer *last = loop->heap[loop->timers--];

    t->place = 0;
    if (last == t)
        return;
    if (place > 1 && before(last, loop->heap[place / 2]))
        sift_up(loop, place, last);
    else
        sift_down(loop, place, last);
}

static bool make_room(culvert_loop *loop)
{
    if (loop->timers + 1 < loop->room)
        return true;
    const size_t room = loop->room > 0 ? 2 * loop->room : 16;
    if (room > SIZE_MAX / sizeof(culvert__timer *))
        return false;
    culvert__timer **heap = realloc(loop->heap, room * sizeof *heap);
    if (heap == NULL)
        return false;
    loop->heap = heap;
    loop->room = room;
    return true;
}

/* ---- timers ---- */

/* Later than any program runs; so large numbers of seconds do not wrap around. */
static const double LONGEST = 4e9;

int culvert__timer_start(culvert_loop *loop, culvert__timer *t, double seconds, bool keeps)
{
    culvert__timer_stop(loop, t);
    if (isinf(seconds) || !culvert__loop_up(loop))
        return CULVERT_OK;
    if (!make_room(loop))
        return CULVERT_ENOMEM;
    t->deadline = culvert__now() + (uint64_t)((seconds < LONGEST ? seconds : LONGEST) * 1e9);
    t->order = loop->order++;
    t->keeps = keeps;
    if (keeps)
        culvert__loop_keep_idle(loop);
    sift_up(loop, ++loop->timers, t);
    if (t->place == 1)
        culvert__loop_resume(loop); /* it is the nearest one now */
    return CULVERT_OK;
}

void culvert__timer_stop(culvert_loop *loop, culvert__timer *t)
{
    if (t->place == 0)
        return;
    take_out(loop, t);
    if (t->keeps)
        culvert__loop_unkeep_idle(loop);
}

void culvert__timers_fire(culvert_loop *loop, uint64_t now)
{
    /* Strictly before: one that a callback started since `now` was read waits for the next turn. */
    while (loop->timers > 0 && loop->heap[1]->deadline < now) {
        culvert__timer *t = loop->heap[1];

        culvert__timer_stop(loop, t);
        t->fire(t);
    }
}

uint64_t culvert__timers_next(const culvert_loop *loop)
{
    return loop->timers > 0 ? loop->heap[1]->deadline : UINT64_MAX;
}

void culvert__timers_free(culvert_loop *loop)
{
    while (loop->timers > 0)
        culvert__timer_stop(loop, loop->heap[loop->timers]);
    free(loop->heap);
    loop->heap = NULL;
    loop->room = 0;
}

/* ---- culvert_sleep ---- */

typedef struct sleeper {
    culvert_future base;
    culvert__timer timer;
} sleeper;

static void sleep_cancel(culvert_future *f)
{
    sleeper *s = CULVERT__CONTAINER(f, sleeper, base);

    culvert__timer_stop(culvert__loop_of(f->core), &s->timer);
    culvert__settle_canceled(f);
}

static void sleep_shutdown(culvert_future *f, const culvert_error *err)
{
    sleeper *s = CULVERT__CONTAINER(f, sleeper, base);

    culvert__timer_stop(culvert__loop_of(f->core), &s->timer);
    culvert__settle_static(f, err->code);
}

static const culvert__kind sleep_kind = {.name = "sleep",
                                         .cancel = sleep_cancel,
                                         .shutdown = sleep_shutdown};

static void sleep_over(culvert__timer *t)
{
    culvert__settle_value(&CULVERT__CONTAINER(t, sleeper, timer)->base, NULL, NULL);
}

/* A future that could not be made whole: it goes, and the code stands for it. */
static culvert_future *short_of_memory(culvert_future *f)
{
    culvert_future *r = culvert__future_static(f->core, CULVERT_ENOMEM);
    culvert__core *core = f->core;

    culvert__unref(f);
    culvert__reap(core);
    return r;
}

culvert_future *culvert_sleep_at(const char *where, culvert_loop *loop, double seconds)
{
    culvert_error err;

    CULVERT__REQUIRE(loop, "culvert_sleep", "loop");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__core *core = &loop->core;
    culvert__check_thread(core, "culvert_sleep");
    if (core->closing)
        return culvert__future_static(core, CULVERT_ESHUTDOWN);
    if (!culvert__seconds_ok(seconds, "culvert_sleep", where, &err))
        return culvert__future_rejected(core, &err);
    culvert_future *f = culvert__future_alloc(core, &sleep_kind, sizeof(sleeper));
    if (f == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    sleeper *s = CULVERT__CONTAINER(f, sleeper, base);
    s->timer.fire = sleep_over;
    if (culvert__timer_start(loop, &s->timer, seconds, true) != CULVERT_OK)
        return short_of_memory(f);
    culvert__future_make_root(f);
    return f;
}

culvert_future *culvert_sleep(culvert_loop *loop, double seconds)
{
    return culvert_sleep_at(NULL, loop, seconds);
}

/* ---- culvert_timeout ---- */

typedef struct limit {
    culvert_future base;
    culvert__waiter w;
    culvert__timer timer;
    const char *where;
    double seconds;
} limit;

static void limit_cancel(culvert_future *f)
{
    limit *l = CULVERT__CONTAINER(f, limit, base);

    culvert__timer_stop(culvert__loop_of(f->core), &l->timer);
    culvert__settle_canceled(f);
    culvert__wait_cancel(&l->w);
}

static const culvert__kind limit_kind = {.name = "timeout", .cancel = limit_cancel};

static void limit_settled(culvert__task *task)
{
    limit *l = CULVERT__CONTAINER(task, limit, w.task);

    culvert__timer_stop(culvert__loop_of(l->base.core), &l->timer);
    culvert__settle_from(&l->base, l->w.up);
    culvert__wait_end(&l->w);
}

static void limit_over(culvert__timer *t)
{
    limit *l = CULVERT__CONTAINER(t, limit, timer);

    if (culvert__settled(l->w.up))
        return; /* an outcome that is there wins: it is on its way through the ready queue */
    culvert__settle_failed(&l->base, CULVERT_ETIMEDOUT, 0, "culvert_timeout", l->where,
                           "not settled within %g seconds", l->seconds);
    culvert__wait_cancel(&l->w);
}

/* NULL, or the future that stands for the one that could not be made. */
static culvert_future *limit_start(limit *l, const char *where, double seconds)
{
    l->w.task.run = limit_settled;
    l->timer.fire = limit_over;
    l->where = where;
    l->seconds = seconds;
    if (culvert__timer_start(culvert__loop_of(l->base.core), &l->timer, seconds, true) !=
        CULVERT_OK)
        return short_of_memory(&l->base);
    return NULL;
}

culvert_future *culvert_timeout_at(const char *where, culvert_future *future, double seconds)
{
    culvert_error err;
    culvert_future *refused;

    CULVERT__REQUIRE(future, "culvert_timeout", "future");
    if (culvert__forked() || future->core == NULL) {
        culvert__consume_forked(future);
        return culvert__future_static(NULL, CULVERT_EFORKED);
    }
    culvert__core *core = future->core;
    culvert__check_thread(core, "culvert_timeout");
    culvert_future *f = NULL;
    if (core->closing) {
        refused = culvert__future_refused(future, CULVERT_ESHUTDOWN);
        culvert__reap(core);
        return refused;
    }
    if (!culvert__seconds_ok(seconds, "culvert_timeout", where, &err))
        refused = culvert__future_rejected(core, &err);
    else if ((f = culvert__future_alloc(core, &limit_kind, sizeof(limit))) == NULL)
        refused = culvert__future_static(core, CULVERT_ENOMEM);
    else
        refused = limit_start(CULVERT__CONTAINER(f, limit, base), where, seconds);
    if (refused == NULL) {
        culvert__wait(future, &CULVERT__CONTAINER(f, limit, base)->w);
        return f;
    }
    culvert__unref(future);
    culvert__reap(core);
    return refused;
}

culvert_future *culvert_timeout(culvert_future *future, double seconds)
{
    return culvert_timeout_at(NULL, future, seconds);
}
