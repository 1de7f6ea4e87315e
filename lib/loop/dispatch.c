/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The turn of the loop: a prepare watcher that decides whether the loop may sleep and what is to
 * wake it, a check watcher that runs what is ready, and a second check watcher that takes what
 * arrived meanwhile.
 *
 *          +----------- prepare: gather; fire timers; nothing to do? before_sleep, set the timer
 *          |                |
 *          |                v   decided: from here on what makes work must start the idle watcher
 *          |             (poll)
 *          |                |
 *          |                v
 *          |            check: gather; run a bounded batch; fire timers
 *          |                |
 *          |                v
 *          +----------- tail, after the program's own callbacks: drain posts
 *
 * Invariants:
 *   - the loop sleeps only if the ready queue is empty, no post is undrained, no source has more to
 *     do and each has said when to look again at the latest;
 *   - an idle watcher makes the poll return at once (libev looks at it after all prepare watchers);
 *   - no watcher of ours counts for libev; culvert__loop_balance takes one reference while there is
 *     work.
 *
 * libev runs the prepare watchers of one priority last started first, so another one can always run
 * after ours: hence `decided`.
 */
#include "loop/binding.h"

#include <math.h>

/* Longer than any program runs. */
static const double FOREVER = 1e9;

/* A batch ends after so many tasks or nanoseconds, so that sockets and timers have their turn. */
enum { BATCH_TASKS = 256, BATCH_NS = 1000000 };

/* ---- watchers that do not count ---- */

static void idle_on(culvert_loop *loop)
{
    if (ev_is_active(&loop->idle))
        return;
    ev_idle_start(loop->ev, &loop->idle);
    ev_unref(loop->ev);
}

static void idle_off(culvert_loop *loop)
{
    if (!ev_is_active(&loop->idle))
        return;
    ev_ref(loop->ev);
    ev_idle_stop(loop->ev, &loop->idle);
}

static void timer_off(culvert_loop *loop)
{
    loop->armed = 0;
    if (!ev_is_active(&loop->timer))
        return;
    ev_ref(loop->ev);
    ev_timer_stop(loop->ev, &loop->timer);
}

/* The ev_timer repeats, so that libev never stops it by itself, which would upset its count. */
static void timer_on(culvert_loop *loop, uint64_t when, uint64_t now)
{
    const double seconds = when > now ? (double)(when - now) * 1e-9 : 0.0;

    loop->armed = when;
    ev_now_update(loop->ev); /* libev counts from the time at which it last looked */
    if (!ev_is_active(&loop->timer))
        ev_unref(loop->ev); /* before it counts: the sum is the same */
    loop->timer.repeat = seconds > 1e-6 ? seconds : 1e-6;
    ev_timer_again(loop->ev, &loop->timer);
}

void culvert__loop_resume(culvert_loop *loop)
{
    if (loop->decided && culvert__loop_up(loop))
        idle_on(loop);
}

/* ---- sources ---- */

void culvert__source_add(culvert_loop *loop, culvert__source *source)
{
    culvert__list_push(&loop->sources, &source->link);
    culvert__loop_resume(loop);
}

void culvert__source_remove(culvert_loop *loop, culvert__source *source)
{
    if (!culvert__linked(&source->link))
        return;
    if (loop->cursor == &source->link)
        loop->cursor = source->link.next;
    culvert__list_unlink(&source->link);
}

culvert__source *culvert__source_next(culvert_loop *loop, culvert__source *source)
{
    culvert__link *next = source != NULL ? source->link.next : loop->sources.next;

    return next != &loop->sources ? CULVERT__CONTAINER(next, culvert__source, link) : NULL;
}

/* The next source of a walk that is begun with loop->cursor = loop->sources.next; it may be
   removed. */
static culvert__source *next_source(culvert_loop *loop)
{
    culvert__link *l = loop->cursor;

    if (l == &loop->sources)
        return NULL;
    loop->cursor = l->next;
    return CULVERT__CONTAINER(l, culvert__source, link);
}

bool culvert__loop_gather(culvert_loop *loop)
{
    bool more = false;

    culvert__hub_drain(loop);
    loop->cursor = loop->sources.next;
    for (culvert__source *s; (s = next_source(loop)) != NULL;)
        more |= s->poll(s);
    culvert__reap(&loop->core);
    return more;
}

/* Seconds until the sources must be looked at again; 0: keep turning. */
static double sources_sleep(culvert_loop *loop, bool may_spin)
{
    double seconds = INFINITY;

    loop->cursor = loop->sources.next;
    for (culvert__source *s; (s = next_source(loop)) != NULL;) {
        const double its = s->before_sleep(s, may_spin);

        seconds = its < seconds ? its : seconds;
    }
    return seconds;
}

/* ---- prepare ---- */

static bool has_work(const culvert_loop *loop)
{
    return !culvert__list_empty(&loop->core.ready) ||
           (loop->core.doomed != NULL && !loop->core.reaping) || culvert__hub_waiting(loop->hub);
}

/*
 * All that may make work, but callbacks: seconds until the loop must look again, 0 where there is
 * work now.
 */
static double look(culvert_loop *loop, bool may_spin)
{
    const bool more = culvert__loop_gather(loop);

    if (!culvert__loop_up(loop) || more || has_work(loop))
        return 0.0;
    if (loop->timers > 0) {
        culvert__timers_fire(loop, culvert__now());
        culvert__reap(&loop->core);
        if (!culvert__loop_up(loop) || has_work(loop))
            return 0.0;
    }
    const double seconds = sources_sleep(loop, may_spin);
    return has_work(loop) ? 0.0 : seconds;
}

/* Wakes the loop in so many seconds, or when the next timer is due, or earlier. */
static void set_timer(culvert_loop *loop, double seconds)
{
    uint64_t when = culvert__timers_next(loop);

    if (seconds >= FOREVER && when == UINT64_MAX) {
        timer_off(loop);
        return;
    }
    const uint64_t now = culvert__now();
    if (seconds < FOREVER) {
        const uint64_t then = now + (uint64_t)(seconds * 1e9);
        when = then < when ? then : when;
    }
    /* One that rings too early costs a turn; setting it anew each turn costs more. */
    if (loop->armed > now && loop->armed <= when)
        return;
    timer_on(loop, when, now);
}

static void prepare(culvert_loop *loop)
{
    const double seconds = look(loop, true);

    if (!culvert__loop_up(loop))
        return;
    culvert__loop_balance(loop);
    loop->decided = true;
    loop->core.awake = false;
    if (seconds <= 0.0) {
        idle_on(loop);
    } else {
        idle_off(loop);
        loop->core.counters.sleeps++;
        set_timer(loop, seconds);
    }
}

static void on_prepare(struct ev_loop *ev, ev_prepare *w, int revents)
{
    culvert_loop *loop = w->data;

    (void)ev;
    (void)revents;
    culvert_loop_ref(loop); /* what runs in here may free the binding */
    if (culvert__forked()) {
        culvert__loop_in_child(loop, false);
    } else {
        culvert__claim(&loop->core);
        prepare(loop);
    }
    culvert_loop_unref(loop);
}

/* ---- check ---- */

/* The sockets and timers of the program had to wait for so long. */
static void note_batch(culvert__core *core, uint64_t ns)
{
    culvert__bucket(core->counters.stalls, ns);
    if (ns > core->counters.longest_ns)
        core->counters.longest_ns = ns;
}

static void check(culvert_loop *loop)
{
    culvert__core *core = &loop->core;

    loop->decided = false;
    core->awake = loop->alive;
    core->counters.turns++;
    culvert__turn_begin(core);
    culvert__loop_gather(loop);
    if (!culvert__loop_up(loop))
        return;
    if (loop->timers > 0 || !culvert__list_empty(&core->ready)) {
        const uint64_t now = culvert__now();

        const bool any = !culvert__list_empty(&core->ready);
        culvert__ready_run(core, BATCH_TASKS, now + BATCH_NS);
        if (any)
            note_batch(core, culvert__now() - now);
        if (culvert__forked()) /* a callback did, and this is the child: see on_prepare */
            return;
        /* After the batch: what has happened wins over the time being up. */
        culvert__timers_fire(loop, now);
        culvert__reap(core);
    }
    if (culvert__loop_up(loop))
        culvert__loop_balance(loop);
}

static void on_check(struct ev_loop *ev, ev_check *w, int revents)
{
    culvert_loop *loop = w->data;

    (void)ev;
    (void)revents;
    if (culvert__forked())
        return;
    culvert_loop_ref(loop);
    check(loop);
    culvert_loop_unref(loop);
}

static void on_tail(struct ev_loop *ev, ev_check *w, int revents)
{
    culvert_loop *loop = w->data;

    (void)ev;
    (void)revents;
    if (culvert__forked() || !culvert__hub_waiting(loop->hub))
        return;
    culvert_loop_ref(loop);
    culvert__hub_drain(loop);
    if (culvert__loop_up(loop))
        culvert__loop_balance(loop);
    culvert_loop_unref(loop);
}

static void on_idle(struct ev_loop *ev, ev_idle *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
}

static void on_timer(struct ev_loop *ev, ev_timer *w, int revents)
{
    culvert_loop *loop = w->data;

    (void)ev;
    (void)revents;
    loop->armed = 0; /* it has rung: check or prepare looks, and sets it anew */
}

void culvert__dispatch_start(culvert_loop *loop)
{
    struct ev_loop *ev = loop->ev;

    ev_prepare_init(&loop->prepare, on_prepare);
    ev_set_priority(&loop->prepare, EV_MINPRI);
    ev_check_init(&loop->check, on_check);
    ev_set_priority(&loop->check, EV_MAXPRI);
    ev_check_init(&loop->tail, on_tail);
    ev_set_priority(&loop->tail, EV_MINPRI);
    ev_idle_init(&loop->idle, on_idle);
    ev_set_priority(&loop->idle, EV_MINPRI);
    ev_init(&loop->timer, on_timer);
    ev_set_priority(&loop->timer, EV_MAXPRI);
    loop->prepare.data = loop->check.data = loop->tail.data = loop->timer.data = loop;
    ev_prepare_start(ev, &loop->prepare);
    ev_check_start(ev, &loop->check);
    ev_check_start(ev, &loop->tail);
    ev_async_start(ev, &loop->hub->async);
    for (int i = 0; i < 4; i++)
        ev_unref(ev);
}

void culvert__dispatch_stop(culvert_loop *loop)
{
    struct ev_loop *ev = loop->ev;

    idle_off(loop);
    timer_off(loop);
    for (int i = 0; i < 4; i++)
        ev_ref(ev);
    ev_async_stop(ev, &loop->hub->async);
    ev_check_stop(ev, &loop->tail);
    ev_check_stop(ev, &loop->check);
    ev_prepare_stop(ev, &loop->prepare);
}

/* ---- loops that are not run by ev_run ---- */

double culvert_loop_arm(culvert_loop *loop)
{
    CULVERT__REQUIRE(loop, "culvert_loop_arm", "loop");
    if (culvert__forked() || !culvert__loop_up(loop))
        return 0.0;
    culvert__check_thread(&loop->core, "culvert_loop_arm");
    culvert_loop_ref(loop);
    double seconds = look(loop, false);
    if (loop->keep == 0) {
        /* Timers that keep no loop alive, as for memory that nobody uses, are no reason to look. */
        seconds = seconds < FOREVER ? seconds : INFINITY;
    } else if (seconds > 0.0) {
        const uint64_t when = culvert__timers_next(loop), now = culvert__now();

        if (when != UINT64_MAX) {
            const double its = when > now ? (double)(when - now) * 1e-9 : 0.0;
            seconds = its < seconds ? its : seconds;
        }
        /* Jobs and descriptors: nothing wakes the program, so it must ask. */
        if (seconds >= FOREVER)
            seconds = 1e-3;
    }
    culvert_loop_unref(loop);
    return seconds;
}
