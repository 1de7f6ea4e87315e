/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of futures and of the loop share: a libev loop with a binding, a note of what ran,
 * and the end of both. Each test makes them anew (a checked fixture) and gives all handles back; at
 * the end the libev loop must count nothing.
 */
#ifndef TEST_LOOP_FIXTURE_H
#define TEST_LOOP_FIXTURE_H

#include "culvert/loop.h"
#include "future/future_internal.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <ev.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_error unhandled; /* the last one */
    int unhandled_count;
    char log[4096]; /* what ran, one character each */
    size_t logged;
} fixture;

static fixture fx;

static inline void fx_note(char c)
{
    if (fx.logged + 1 < sizeof fx.log) {
        fx.log[fx.logged++] = c;
        fx.log[fx.logged] = '\0';
    }
}

static inline void fx_unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)arg;
    fx.unhandled = *err;
    fx.unhandled_count++;
}

static inline culvert_loop *fx_bind(struct ev_loop *ev)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;

    options.on_unhandled = fx_unhandled;
    options.workers = 4;
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
    return loop;
}

static inline void fx_setup(void)
{
    memset(&fx, 0, sizeof fx);
    fx.ev = ev_loop_new(EVFLAG_AUTO);
    ck_assert_ptr_nonnull(fx.ev);
    fx.loop = fx_bind(fx.ev);
}

/* A test that frees the binding itself sets fx.loop to NULL. */
static inline void fx_teardown(void)
{
    if (fx.loop != NULL)
        culvert_loop_free(fx.loop);
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0);
    ev_loop_destroy(fx.ev);
}

/* ---- what tests hang on futures ---- */

/* Counts calls of the free function, which gets one of these or a pointer to it. */
static inline void fx_count(void *counter)
{
    ++*(int *)counter;
}

typedef struct outcome {
    int calls, status;
    void *value;
    int native;
} outcome;

/* on_settled: keeps what it saw. */
static inline void fx_keep(culvert_future *done, void *arg)
{
    outcome *o = arg;
    const culvert_error *err = culvert_get_error(done);

    o->calls++;
    o->status = culvert_status(done);
    o->value = culvert_value(done);
    o->native = err != NULL ? err->native : 0;
}

/* A step that does nothing but say that it ran: arg points to a character. */
static inline culvert_future *fx_step(culvert_future *done, void *arg)
{
    (void)done;
    fx_note(*(const char *)arg);
    return NULL;
}

static inline void fx_end(culvert_future *done, void *arg)
{
    (void)done;
    fx_note(*(const char *)arg);
}

static inline void fx_run(void)
{
    ev_run(fx.ev, 0);
}

static inline void fx_turn(void)
{
    ev_run(fx.ev, EVRUN_NOWAIT);
}

static inline culvert_promise *fx_promise(culvert_future **out)
{
    culvert_promise *p = culvert_promise_new(fx.loop, out);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* Handles to nothing but the binding itself: what the futures of the test hold. */
static inline uint64_t fx_live(void)
{
    return culvert__core_of(fx.loop)->live;
}

static inline TCase *fx_case(Suite *suite, const char *name)
{
    TCase *tc = tcase_create(name);

    tcase_add_checked_fixture(tc, fx_setup, fx_teardown);
    suite_add_tcase(suite, tc);
    return tc;
}

#endif
