/* SPDX-License-Identifier: BSD-2-Clause */
/* culvert_await: for programs that are not servers. */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <pthread.h>

START_TEST(await_returns_the_status)
{
    culvert_future *f = culvert_sleep(fx.loop, 0.01);

    ck_assert_int_eq(culvert_await(f, INFINITY), CULVERT_OK);
    ck_assert_int_eq(culvert_await(f, 0.0), CULVERT_OK);
    culvert_unref(f);
    f = culvert_then(culvert_fail(fx.loop, CULVERT_EUSER, 0, "x"), fx_step, "x", NULL);
    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_EUSER);
    culvert_unref(f);
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, 0); /* awaiting is looking */
}
END_TEST

START_TEST(await_expires)
{
    culvert_future *f = culvert_sleep(fx.loop, 1000.0);
    const double before = test_now();

    ck_assert_int_eq(culvert_await(f, 0.03), CULVERT_PENDING);
    ck_assert(test_now() - before >= 0.03);
    ck_assert(test_now() - before < 500.0);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(await_keeps_the_loop_for_a_bare_promise)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    const double before = test_now();

    ck_assert_int_eq(culvert_await(f, 0.03), CULVERT_PENDING);
    ck_assert(test_now() - before >= 0.03);
    culvert_unref(f);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(zero_seconds_is_one_turn)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    const unsigned before = ev_iteration(fx.ev);

    ck_assert_int_eq(culvert_await(f, 0.0), CULVERT_PENDING);
    ck_assert_uint_eq(ev_iteration(fx.ev) - before, 1);
    culvert_future *g = culvert_then(culvert_resolved(fx.loop, NULL, NULL), fx_step, "x", NULL);
    ck_assert_int_eq(culvert_await(g, 0.0), CULVERT_OK);
    culvert_unref(g);
    culvert_unref(f);
    culvert_promise_drop(p);
}
END_TEST

static void do_break(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)revents;
    ev_break(ev, w->data != NULL ? EVBREAK_ALL : EVBREAK_ONE);
}

START_TEST(await_is_ended_by_ev_break)
{
    culvert_future *f = culvert_sleep(fx.loop, 1000.0);
    ev_timer timer;

    ev_timer_init(&timer, do_break, 0.01, 0.0);
    timer.data = _i > 0 ? &timer : NULL;
    ev_timer_start(fx.ev, &timer);
    ck_assert_int_eq(culvert_await(f, 500.0), CULVERT_PENDING);
    culvert_unref(f);
}
END_TEST

static int in_callback[3];

static void await_inside(culvert_future *done, void *arg)
{
    culvert_future *pending = arg;

    in_callback[0] = culvert_await(done, 1.0);
    in_callback[1] = culvert_await(pending, 0.0);
    in_callback[2] = culvert_await(pending, INFINITY);
}

START_TEST(await_inside_a_callback_is_refused)
{
    culvert_future *pending = culvert_sleep(fx.loop, 0.02);

    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), await_inside,
                                        pending, NULL),
                     CULVERT_OK);
    fx_run();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(in_callback[i], CULVERT_EDEADLK);
    culvert_unref(pending);
}
END_TEST

static void await_in_release(void *arg)
{
    in_callback[0] = culvert_await(arg, INFINITY);
}

START_TEST(await_inside_a_release_is_refused)
{
    culvert_future *pending = culvert_sleep(fx.loop, 1000.0);
    culvert_future *f = culvert_then(culvert_ref(pending), fx_step, pending, await_in_release);

    culvert_unref(f);
    ck_assert_int_eq(in_callback[0], CULVERT_EDEADLK);
    culvert_unref(pending);
}
END_TEST

/* ---- nesting ---- */

typedef struct nested {
    ev_timer timer;
    culvert_future *f;
    int status;
    double seconds;
} nested;

static void await_nested(struct ev_loop *ev, ev_timer *w, int revents)
{
    nested *n = CULVERT__CONTAINER(w, nested, timer);

    (void)ev;
    (void)revents;
    n->status = culvert_await(n->f, n->seconds);
    fx_note('n');
}

static void start_nested(nested *n, culvert_future *f, double seconds)
{
    *n = (nested){.f = f, .seconds = seconds, .status = 99};
    ev_timer_init(&n->timer, await_nested, 0.001, 0.0);
    ev_timer_start(fx.ev, &n->timer);
}

START_TEST(an_await_inside_a_libev_callback_of_another)
{
    nested n;
    culvert_future *outer = culvert_sleep(fx.loop, 0.05);

    start_nested(&n, culvert_sleep(fx.loop, 0.02), 100.0);
    ck_assert_int_eq(culvert_await(outer, 100.0), CULVERT_OK);
    ck_assert_int_eq(n.status, CULVERT_OK);
    ck_assert_str_eq(fx.log, "n");
    culvert_unref(n.f);
    culvert_unref(outer);
}
END_TEST

/* The outer one is over first: it returns when the inner one has, not before and not never. */
START_TEST(an_outer_await_that_is_over_first_waits_for_the_inner_one)
{
    nested n;
    culvert_future *outer = culvert_sleep(fx.loop, 0.02);

    start_nested(&n, culvert_sleep(fx.loop, 0.06), 100.0);
    ck_assert_int_eq(culvert_await(outer, 100.0), CULVERT_OK);
    ck_assert_int_eq(n.status, CULVERT_OK);
    ck_assert_str_eq(fx.log, "n");
    culvert_unref(n.f);
    culvert_unref(outer);
}
END_TEST

START_TEST(an_outer_await_that_expires_first_waits_for_the_inner_one)
{
    nested n;
    culvert_future *outer = culvert_sleep(fx.loop, 1000.0);

    start_nested(&n, culvert_sleep(fx.loop, 0.05), 100.0);
    ck_assert_int_eq(culvert_await(outer, 0.02), CULVERT_PENDING);
    ck_assert_int_eq(n.status, CULVERT_OK);
    culvert_unref(n.f);
    culvert_unref(outer);
}
END_TEST

/* ---- the binding goes meanwhile ---- */

static void free_binding(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
}

START_TEST(a_libev_callback_may_free_the_binding_during_an_await)
{
    culvert_future *f = culvert_sleep(fx.loop, 1000.0);
    ev_timer timer, other;

    ev_timer_init(&timer, free_binding, 0.01, 0.0);
    ev_timer_start(fx.ev, &timer);
    ev_timer_init(&other, do_break, 1000.0, 0.0); /* would keep the loop asleep */
    ev_timer_start(fx.ev, &other);
    ck_assert_int_eq(culvert_await(f, INFINITY), CULVERT_ESHUTDOWN);
    ev_timer_stop(fx.ev, &other);
    culvert_unref(f);
}
END_TEST

static void free_binding_deeper(struct ev_loop *ev, ev_timer *w, int revents)
{
    free_binding(ev, w, revents);
    ev_run(ev, EVRUN_NOWAIT);
}

START_TEST(a_deeper_callback_may_free_the_binding_during_an_await)
{
    nested n;
    culvert_future *outer = culvert_sleep(fx.loop, 1000.0);
    ev_timer timer, other;

    start_nested(&n, culvert_sleep(fx.loop, 1000.0), INFINITY);
    ev_timer_init(&timer, free_binding_deeper, 0.02, 0.0);
    ev_timer_start(fx.ev, &timer);
    ev_timer_init(&other, do_break, 1000.0, 0.0);
    ev_timer_start(fx.ev, &other);
    ck_assert_int_eq(culvert_await(outer, INFINITY), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(n.status, CULVERT_ESHUTDOWN);
    ev_timer_stop(fx.ev, &other);
    culvert_unref(n.f);
    culvert_unref(outer);
}
END_TEST

static void drop_awaited(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)revents;
    culvert_cancel(w->data);
}

START_TEST(a_future_cancelled_during_its_await)
{
    culvert_future *f = culvert_sleep(fx.loop, 1000.0);
    ev_timer timer;

    ev_timer_init(&timer, drop_awaited, 0.01, 0.0);
    timer.data = f;
    ev_timer_start(fx.ev, &timer);
    ck_assert_int_eq(culvert_await(f, INFINITY), CULVERT_ECANCELED);
    culvert_unref(f);
}
END_TEST

/* rule 17: other callbacks of the future may run after await has returned, but they do run */
START_TEST(rule_17_other_callbacks_run_too)
{
    outcome o = {0};
    culvert_future *f = culvert_sleep(fx.loop, 0.005);

    ck_assert_int_eq(culvert_on_settled(culvert_ref(f), fx_keep, &o, NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(o.calls, 2);
}
END_TEST

START_TEST(await_after_loop_free_returns_at_once)
{
    culvert_future *f = culvert_sleep(fx.loop, 1000.0);

    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(culvert_await(f, INFINITY), CULVERT_ESHUTDOWN);
    culvert_unref(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("await");
    TCase *tc = fx_case(suite, "await");

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, await_returns_the_status);
    tcase_add_test(tc, await_expires);
    tcase_add_test(tc, await_keeps_the_loop_for_a_bare_promise);
    tcase_add_test(tc, zero_seconds_is_one_turn);
    tcase_add_loop_test(tc, await_is_ended_by_ev_break, 0, 2);
    tcase_add_test(tc, await_inside_a_callback_is_refused);
    tcase_add_test(tc, await_inside_a_release_is_refused);
    tcase_add_test(tc, an_await_inside_a_libev_callback_of_another);
    tcase_add_test(tc, an_outer_await_that_is_over_first_waits_for_the_inner_one);
    tcase_add_test(tc, an_outer_await_that_expires_first_waits_for_the_inner_one);
    tcase_add_test(tc, a_libev_callback_may_free_the_binding_during_an_await);
    tcase_add_test(tc, a_deeper_callback_may_free_the_binding_during_an_await);
    tcase_add_test(tc, a_future_cancelled_during_its_await);
    tcase_add_test(tc, rule_17_other_callbacks_run_too);
    tcase_add_test(tc, await_after_loop_free_returns_at_once);
    return test_main((Suite *[]){suite, NULL});
}
