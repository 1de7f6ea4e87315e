/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The binding: options, memory, and what keeps the libev loop alive.
 *
 *   open --culvert_loop_free--> closing --close.c--> down --last reference--> freed
 *
 * Invariants:
 *   - libev counts none of our watchers; `alive` says whether one reference to the loop is taken,
 *     which is so as long as there is work: a keep (device work, jobs, timers, descriptors),
 *     something ready, a post;
 *   - the memory stays until the last reference: the program's (until culvert_loop_free), those of
 *     promises and posting threads, and one while any future's memory is there.
 */
#define _GNU_SOURCE
#include "loop/binding.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- keepalive ---- */

void culvert__loop_balance(culvert_loop *loop)
{
    const bool alive = loop->keep > 0 || loop->posted || !culvert__list_empty(&loop->core.ready);

    if (alive == loop->alive || !culvert__loop_up(loop))
        return;
    loop->alive = alive;
    loop->core.awake = alive && !loop->decided;
    if (alive)
        ev_ref(loop->ev);
    else
        ev_unref(loop->ev);
}

void culvert__loop_keep(culvert_loop *loop)
{
    if (loop->keep++ == 0)
        culvert__loop_balance(loop);
}

static void one_less(culvert_loop *loop)
{
    if (culvert__list_empty(&loop->quiet) || culvert__loop_in_flight(loop) > 0)
        return;
    for (culvert__link *l = loop->quiet.next; l != &loop->quiet; l = l->next) {
        culvert__quiet *q = CULVERT__CONTAINER(l, culvert__quiet, link);

        q->fn(q);
    }
}

void culvert__loop_unkeep(culvert_loop *loop)
{
    if (--loop->keep == 0)
        culvert__loop_balance(loop);
    one_less(loop);
}

void culvert__loop_keep_idle(culvert_loop *loop)
{
    loop->idle_keeps++;
    culvert__loop_keep(loop);
}

void culvert__loop_unkeep_idle(culvert_loop *loop)
{
    loop->idle_keeps--;
    if (--loop->keep == 0)
        culvert__loop_balance(loop);
}

/* ---- what is in flight ---- */

void culvert__loop_work_begin(culvert_loop *loop)
{
    loop->work++;
}

void culvert__loop_work_end(culvert_loop *loop)
{
    loop->work--;
    one_less(loop);
}

size_t culvert__loop_in_flight(const culvert_loop *loop)
{
    return loop->keep - loop->idle_keeps + loop->work;
}

void culvert__loop_quiet_add(culvert_loop *loop, culvert__quiet *q)
{
    culvert__list_push(&loop->quiet, &q->link);
}

static void kick(culvert__core *core)
{
    culvert_loop *loop = culvert__loop_of(core);

    culvert__loop_balance(loop);
    culvert__loop_resume(loop);
}

/* ---- memory ---- */

static void loop_destroy(culvert_loop *loop)
{
    if (loop->hub != NULL)
        culvert__hub_unref(loop->hub);
    culvert__core_fini(&loop->core);
    free(loop->driver);
    free(loop);
}

culvert_loop *culvert_loop_ref(culvert_loop *loop)
{
    CULVERT__REQUIRE(loop, "culvert_loop_ref", "loop");
    atomic_fetch_add_explicit(&loop->refs, 1, memory_order_relaxed);
    return loop;
}

void culvert_loop_unref(culvert_loop *loop)
{
    if (loop != NULL && atomic_fetch_sub(&loop->refs, 1) == 1)
        loop_destroy(loop);
}

static void hold(culvert__core *core)
{
    culvert_loop_ref(culvert__loop_of(core));
}

static void unhold(culvert__core *core)
{
    culvert_loop_unref(culvert__loop_of(core));
}

/* ---- options ---- */

static unsigned processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 4; /* more than the set holds */
    const int n = CPU_COUNT(&set);
    return n > 2 ? (unsigned)n : 2;
}

/* Options of a program that was built with an older or newer header: what is missing is zero; what
   is not known here must be. */
static bool take_options(culvert_loop_options *to, const culvert_loop_options *from,
                         culvert_error *err)
{
    *to = (culvert_loop_options)CULVERT_LOOP_OPTIONS_INIT;
    if (from == NULL)
        return true;
    const size_t size = from->struct_size;
    if (size < sizeof from->struct_size || size > 65536) {
        culvert__error_set(err, CULVERT_EINVAL, 0, "culvert_loop_new", NULL,
                           "options.struct_size is %zu; it must be sizeof(culvert_loop_options)",
                           size);
        return false;
    }
    for (size_t i = sizeof *to; i < size; i++) {
        if (((const unsigned char *)from)[i] != 0) {
            culvert__error_set(err, CULVERT_EINVAL, 0, "culvert_loop_new", NULL,
                               "an option at offset %zu is not known to this version", i);
            return false;
        }
    }
    memcpy(to, from, size < sizeof *to ? size : sizeof *to);
    to->struct_size = sizeof *to;
    return true;
}

static bool check_options(const culvert_loop_options *o, culvert_error *err)
{
    const char *op = "culvert_loop_new";

    if (o->wake < CULVERT_WAKE_DEFAULT || o->wake > CULVERT_WAKE_SPIN)
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL,
                           "options.wake is %d; it is none of "
                           "culvert_wake",
                           o->wake);
    else if (!(o->spin_seconds >= 0.0 && o->spin_seconds <= 0.01))
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL,
                           "options.spin_seconds is %g; it must be from 0 to 0.01",
                           o->spin_seconds);
    else if (o->workers > 1024)
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL,
                           "options.workers is %u; it must be at most 1024", o->workers);
    else if (!(o->close_seconds >= 0.0))
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL,
                           "options.close_seconds is %g; it must be 0 or more", o->close_seconds);
    else
        return true;
    return false;
}

static void fill_defaults(culvert_loop_options *o)
{
    if (o->wake == CULVERT_WAKE_DEFAULT)
        o->wake = CULVERT_WAKE_ADAPTIVE;
    if (o->spin_seconds <= 0.0)
        o->spin_seconds = 50e-6;
    if (o->workers == 0)
        o->workers = processors();
    if (o->close_seconds <= 0.0)
        o->close_seconds = 5.0;
}

const culvert_loop_options *culvert__loop_options(culvert_loop *loop)
{
    return &loop->options;
}

/* ---- making one ---- */

static culvert_loop *loop_make(struct ev_loop *ev, const culvert_loop_options *options)
{
    culvert_loop *loop = calloc(1, sizeof *loop);

    if (loop == NULL)
        return NULL;
    culvert__core_init(&loop->core);
    loop->core.kick = kick;
    loop->core.hold = hold;
    loop->core.unhold = unhold;
    loop->core.close = culvert__loop_close;
    loop->core.unhandled = culvert__loop_unhandled;
    atomic_init(&loop->refs, 1);
    loop->options = *options;
    culvert__list_init(&loop->sources);
    culvert__list_init(&loop->quiet);
    loop->cursor = &loop->sources;
    loop->hub = culvert__hub_new(ev);
    loop->driver = options->driver != NULL ? strdup(options->driver) : NULL;
    if (loop->hub == NULL || (options->driver != NULL && loop->driver == NULL)) {
        loop_destroy(loop);
        return NULL;
    }
    loop->options.driver = loop->driver;
    loop->ev = ev;
    return loop;
}

culvert_loop *culvert_loop_new(struct ev_loop *ev, const culvert_loop_options *options,
                               culvert_error *err)
{
    culvert_loop_options mine;

    CULVERT__REQUIRE(ev, "culvert_loop_new", "ev");
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, "culvert_loop_new", NULL, "%s",
                           culvert_error_text(CULVERT_EFORKED));
        return NULL;
    }
    if (!take_options(&mine, options, err) || !check_options(&mine, err))
        return NULL;
    fill_defaults(&mine);
    culvert_loop *loop = loop_make(ev, &mine);
    if (loop == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_loop_new", NULL, "%s",
                           culvert_error_text(CULVERT_ENOMEM));
        return NULL;
    }
    culvert__fork_arm();
    culvert__dispatch_start(loop);
    return loop;
}

struct ev_loop *culvert_loop_ev(culvert_loop *loop)
{
    CULVERT__REQUIRE(loop, "culvert_loop_ev", "loop");
    if (!culvert__forked())
        culvert__check_thread(&loop->core, "culvert_loop_ev");
    return loop->ev;
}
