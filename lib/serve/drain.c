/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The orderly end of a binding's work.
 *
 *   waiting --look: nothing in flight, nothing ready--> resolved
 *      |  ^ look: something is ready: again on the next turn
 *      |  | quiet (the last of what was in flight is over): look
 *      |  +-- look: something is in flight
 *      +--the time is up--> rejected
 *
 * Invariants:
 *   - a drain that is pending is among the loop's `quiet` ones, and looks once after each time that the
 *     loop became quiet, so none is forgotten;
 *   - looking is a task of the ready queue, behind the callbacks of what was the last one: they may begin
 *     something that belongs to it.
 */
#include "serve/serve_internal.h"

typedef struct drain {
    culvert_future base;
    culvert__quiet quiet;
    culvert__task look;
    culvert__timer timer;
    double seconds;
    const char *where;
} drain;

static culvert_loop *loop_of(const drain *d)
{
    return culvert__loop_of(d->base.core);
}

static void leave(drain *d)
{
    culvert__list_unlink(&d->quiet.link);
    culvert__timer_stop(loop_of(d), &d->timer);
    if (culvert__linked(&d->look.link))
        culvert__ready_unlink(d->base.core, &d->look);
}

static void drain_cancel(culvert_future *f)
{
    leave(CULVERT__CONTAINER(f, drain, base));
    culvert__settle_canceled(f);
}

static void drain_shutdown(culvert_future *f, const culvert_error *err)
{
    leave(CULVERT__CONTAINER(f, drain, base));
    culvert__settle_static(f, err->code);
}

static const culvert__kind drain_kind = {.name = "drain",
                                         .cancel = drain_cancel,
                                         .shutdown = drain_shutdown};

static void schedule(drain *d)
{
    if (!culvert__linked(&d->look.link))
        culvert__ready_push_later(d->base.core, &d->look);
}

static void on_quiet(culvert__quiet *q)
{
    schedule(CULVERT__CONTAINER(q, drain, quiet));
}

static void look(culvert__task *task)
{
    drain *d = CULVERT__CONTAINER(task, drain, look);
    culvert__core *core = d->base.core;

    if (culvert__loop_in_flight(loop_of(d)) > 0)
        return; /* on_quiet comes */
    for (culvert__link *l = core->ready.next; l != &core->ready; l = l->next) {
        if (CULVERT__CONTAINER(l, culvert__task, link)->run != look) {
            schedule(d);
            return;
        }
    }
    leave(d);
    culvert__settle_value(&d->base, NULL, NULL);
}

static void time_is_up(culvert__timer *timer)
{
    drain *d = CULVERT__CONTAINER(timer, drain, timer);
    const size_t left = culvert__loop_in_flight(loop_of(d));

    leave(d);
    culvert__settle_failed(&d->base, CULVERT_ETIMEDOUT, 0, "culvert_drain", d->where,
                           "%zu operation%s in flight after %g seconds", left,
                           left == 1 ? " is" : "s are", d->seconds);
}

/* False: no memory is left. */
static bool begin(drain *d, const char *where, double seconds)
{
    d->quiet.fn = on_quiet;
    d->look.run = look;
    d->timer.fire = time_is_up;
    d->seconds = seconds;
    d->where = where;
    if (culvert__timer_start(loop_of(d), &d->timer, seconds, true) != CULVERT_OK)
        return false;
    culvert__loop_quiet_add(loop_of(d), &d->quiet);
    culvert__future_make_root(&d->base);
    schedule(d);
    return true;
}

culvert_future *culvert_drain_at(const char *where, culvert_loop *loop, double seconds)
{
    culvert_error err;

    CULVERT__REQUIRE(loop, "culvert_drain", "loop");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__core *core = culvert__core_of(loop);
    culvert__check_thread(core, "culvert_drain");
    if (core->closing)
        return culvert__future_static(core, CULVERT_ESHUTDOWN);
    if (!culvert__seconds_ok(seconds, "culvert_drain", where, &err))
        return culvert__future_rejected(core, &err);
    core->draining = true; /* also if no memory is left to say when it is over */
    culvert_future *f = culvert__future_alloc(core, &drain_kind, sizeof(drain));
    if (f == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    if (!begin(CULVERT__CONTAINER(f, drain, base), where, seconds))
        culvert__settle_static(f, CULVERT_ENOMEM);
    return f;
}

culvert_future *culvert_drain(culvert_loop *loop, double seconds)
{
    return culvert_drain_at(NULL, loop, seconds);
}

int culvert_draining(const culvert_loop *loop)
{
    CULVERT__REQUIRE(loop, "culvert_draining", "loop");
    const culvert__core *core = (const culvert__core *)(const void *)loop;

    if (culvert__forked())
        return 1;
    culvert__check_thread(core, "culvert_draining");
    return core->draining || core->closing;
}
