/* SPDX-License-Identifier: BSD-2-Clause */
/* Promises and what a future at hand answers: DESIGN 3, rules 1, 2, 3, 4, 9, 17; cases 25 and
   26. */
#include "loop/fixture.h"

/* ---- rule 1: nothing runs inside ---- */

START_TEST(rule_01_nothing_runs_inside_a_call)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    ck_assert_int_eq(culvert_on_settled(culvert_ref(f), fx_end, "a", NULL), CULVERT_OK);
    culvert_resolve(p, NULL, NULL);
    ck_assert_str_eq(fx.log, "");
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(f, fx_end, "b", NULL), CULVERT_OK);
    ck_assert_str_eq(fx.log, "");
    fx_run();
    ck_assert_str_eq(fx.log, "ab");

    p = fx_promise(&f);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(f), fx_end, "c", NULL), CULVERT_OK);
    culvert_cancel(f);
    ck_assert_str_eq(fx.log, "ab");
    culvert_unref(f);
    culvert_promise_drop(p);
    fx_run();
    ck_assert_str_eq(fx.log, "abc");

    p = fx_promise(&f);
    ck_assert_int_eq(culvert_on_settled(f, fx_end, "d", NULL), CULVERT_OK);
    culvert_reject(p, &(culvert_error){.code = CULVERT_EUSER});
    ck_assert_str_eq(fx.log, "abc");
    fx_run();
    ck_assert_str_eq(fx.log, "abcd");
}
END_TEST

/* ---- case 26 ---- */

static culvert_future *shared;
static unsigned turn_of_attach, turn_of_run;

static void third(culvert_future *done, void *arg)
{
    turn_of_run = ev_iteration(fx.ev);
    fx_end(done, arg);
}

static void first(culvert_future *done, void *arg)
{
    fx_end(done, arg);
    turn_of_attach = ev_iteration(fx.ev);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(done), third, "3", NULL), CULVERT_OK);
    ck_assert_str_eq(fx.log, "1");
}

START_TEST(case_026_attaching_to_a_settled_future_runs_on_a_later_turn)
{
    culvert_promise *p = fx_promise(&shared);

    culvert_resolve(p, NULL, NULL);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(shared), first, "1", NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(shared, fx_end, "2", NULL), CULVERT_OK);
    ck_assert_str_eq(fx.log, "");
    fx_run();
    ck_assert_str_eq(fx.log, "123");
    ck_assert_uint_gt(turn_of_run, turn_of_attach);
}
END_TEST

/* ---- rule 2 ---- */

START_TEST(rule_02_callbacks_run_in_the_order_of_settling_then_of_attaching)
{
    culvert_future *f[3];
    culvert_promise *p[3];

    for (int i = 0; i < 3; i++)
        p[i] = fx_promise(&f[i]);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "c"}, *const again[] = {"A", "B", "C"};
        ck_assert_int_eq(culvert_on_settled(culvert_ref(f[i]), fx_end, (void *)(uintptr_t)names[i],
                                            NULL),
                         CULVERT_OK);
        ck_assert_int_eq(culvert_on_settled(f[i], fx_end, (void *)(uintptr_t)again[i], NULL),
                         CULVERT_OK);
    }
    culvert_resolve(p[2], NULL, NULL);
    culvert_promise_drop(p[0]);
    culvert_resolve(p[1], NULL, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "cCaAbB");
}
END_TEST

/* A continuation attached late to a settled future keeps its place before those that settle
   later. */
static void settle_other(culvert_future *done, void *arg)
{
    fx_note('x');
    ck_assert_int_eq(culvert_on_settled(culvert_ref(done), fx_end, "y", NULL), CULVERT_OK);
    culvert_resolve(arg, NULL, NULL);
}

START_TEST(rule_02_a_later_turn_does_not_change_the_order)
{
    culvert_future *f, *other;
    culvert_promise *p = fx_promise(&f), *q = fx_promise(&other);

    ck_assert_int_eq(culvert_on_settled(f, settle_other, q, NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(other, fx_end, "z", NULL), CULVERT_OK);
    culvert_resolve(p, NULL, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "xyz");
}
END_TEST

/* ---- rule 4: settles once; case 25 ---- */

START_TEST(case_025_second_settle_is_ignored)
{
    const culvert_error err = {CULVERT_EUSER, 1, NULL, NULL, "no"};
    int freed = 0, x, y;
    culvert_future *f;

    culvert_promise *p = fx_promise(&f);
    culvert_resolve(p, &x, NULL);
    culvert_resolve(p, &freed, fx_count);
    ck_assert_int_eq(freed, 1);
    ck_assert_ptr_eq(culvert_value(f), &x);
    culvert_unref(f);

    p = fx_promise(&f);
    culvert_resolve(p, &y, NULL);
    culvert_reject(p, &err);
    culvert_promise_drop(p);
    ck_assert_int_eq(culvert_post_resolve(p, &freed, fx_count), CULVERT_OK);
    ck_assert_int_eq(freed, 2);
    ck_assert_int_eq(culvert_post_reject(p, &err), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    ck_assert_ptr_eq(culvert_value(f), &y);
    culvert_unref(f);

    p = fx_promise(&f);
    culvert_reject(p, &err);
    culvert_cancel(f);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    ck_assert_int_eq(culvert_get_error(f)->native, 1);
    culvert_unref(f);
}
END_TEST

START_TEST(rule_04_cancelled_first_stays_cancelled)
{
    int freed = 0;
    culvert_future *f;

    culvert_promise *p = fx_promise(&f);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_resolve(p, &freed, fx_count);
    ck_assert_int_eq(freed, 1);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    ck_assert_ptr_null(culvert_value(f));
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- values ---- */

START_TEST(value_is_released_once_when_nobody_takes_it)
{
    int freed = 0;
    culvert_future *f = culvert_resolved(fx.loop, &freed, fx_count), *more = culvert_ref(f);

    ck_assert_ptr_eq(culvert_value(f), &freed);
    culvert_unref(f);
    ck_assert_int_eq(freed, 0);
    culvert_unref(more);
    ck_assert_int_eq(freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

static culvert_future *no_step(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

START_TEST(rule_17_a_value_passed_through_is_shared_and_the_first_take_gets_it)
{
    int freed = 0;
    culvert_future *f = culvert_resolved(fx.loop, &freed, fx_count);
    culvert_future *g = culvert_then(culvert_ref(f), no_step, NULL, NULL);
    culvert_future *h = culvert_catch(culvert_ref(g), no_step, NULL, NULL);

    fx_run();
    ck_assert_ptr_eq(culvert_value(f), &freed);
    ck_assert_ptr_eq(culvert_value(g), &freed);
    ck_assert_ptr_eq(culvert_value(h), &freed);
    culvert_unref(f);
    culvert_unref(g);
    ck_assert_int_eq(freed, 0); /* h still carries it */
    g = culvert_then(culvert_ref(h), no_step, NULL, NULL);
    fx_run();
    ck_assert_ptr_eq(culvert_take(g), &freed);
    ck_assert_ptr_null(culvert_take(g));
    ck_assert_ptr_null(culvert_take(h));
    ck_assert_ptr_null(culvert_value(h));
    culvert_unref(g);
    culvert_unref(h);
    ck_assert_int_eq(freed, 0);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(error_passed_through_outlives_where_it_came_from)
{
    culvert_future *f = culvert_fail(fx.loop, CULVERT_EUSER, 7, "number %d", 7);

    for (int i = 0; i < 10; i++)
        f = culvert_then(f, no_step, NULL, NULL);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    ck_assert_str_eq(culvert_get_error(f)->message, "number 7");
    ck_assert_uint_le(fx_live(), 2);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(status_of_each_state)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    ck_assert_ptr_null(culvert_get_error(f));
    ck_assert_ptr_null(culvert_value(f));
    ck_assert_ptr_null(culvert_take(f));
    ck_assert_ptr_eq(culvert_future_loop(f), fx.loop);
    culvert_reject(p, &(culvert_error){.code = 5, .message = "positive"});
    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    ck_assert_str_eq(culvert_get_error(f)->message, "positive");
    ck_assert_ptr_null(culvert_value(f));
    culvert_unref(f);

    f = culvert_rejected(fx.loop, &(culvert_error){.code = CULVERT_EAGAIN});
    ck_assert_int_eq(culvert_status(f), CULVERT_EAGAIN);
    culvert_unref(f);
    f = culvert_resolved(fx.loop, NULL, NULL);
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    culvert_unref(f);
}
END_TEST

START_TEST(fail_names_the_place_of_the_call)
{
    culvert_future *f = culvert_fail_at("here.c:1", fx.loop, CULVERT_EUSER, 3, "%s", "why");
    const culvert_error *err = culvert_get_error(f);

    ck_assert_str_eq(err->where, "here.c:1");
    ck_assert_str_eq(err->message, "why");
    ck_assert_int_eq(err->native, 3);
    culvert_unref(f);
}
END_TEST

/* ---- rule 9: dropped promises ---- */

START_TEST(rule_09_a_dropped_promise_rejects_as_broken)
{
    culvert_future *f;
    culvert_promise *p = culvert_promise_new_at("made.c:9", fx.loop, &f);

    culvert_promise_drop(p);
    ck_assert_int_eq(culvert_status(f), CULVERT_EBROKEN);
    ck_assert_str_eq(culvert_get_error(f)->where, "made.c:9");
    culvert_unref(f);
    culvert_promise_drop(NULL);
}
END_TEST

/* ---- on_cancel ---- */

typedef struct told {
    int calls, freed;
    culvert_promise *consume;
} told;

static void tell(void *arg)
{
    told *t = arg;

    t->calls++;
    ck_assert_int_eq(t->freed, 0);
    if (t->consume != NULL)
        culvert_resolve(t->consume, NULL, NULL);
}

static void told_free(void *arg)
{
    ((told *)arg)->freed++;
}

START_TEST(rule_06_on_cancel_runs_on_a_later_turn_and_the_promise_is_consumed_after)
{
    told t = {0};
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_promise_on_cancel(p, tell, &t, told_free);
    culvert_cancel(f);
    ck_assert_int_eq(t.calls, 0);
    fx_run();
    ck_assert_int_eq(t.calls, 1);
    ck_assert_int_eq(t.freed, 1);
    culvert_cancel(f);
    culvert_unref(f);
    fx_run();
    ck_assert_int_eq(t.calls, 1);
    culvert_resolve(p, NULL, NULL);
    ck_assert_int_eq(t.freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(on_cancel_hears_of_lost_interest_and_may_consume_the_promise)
{
    told t = {0};
    culvert_future *f;

    t.consume = fx_promise(&f);
    culvert_promise_on_cancel(t.consume, tell, &t, told_free);
    culvert_unref(f);
    fx_run();
    ck_assert_int_eq(t.calls, 1);
    ck_assert_int_eq(t.freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(on_cancel_is_not_called_after_the_promise_was_consumed)
{
    told t = {0}, u = {0}, v = {0};
    culvert_future *f;

    culvert_promise *p = fx_promise(&f);
    culvert_promise_on_cancel(p, tell, &t, told_free);
    culvert_resolve(p, NULL, NULL);
    ck_assert_int_eq(t.freed, 1);
    culvert_unref(f);

    p = fx_promise(&f); /* told already, but not run */
    culvert_promise_on_cancel(p, tell, &u, told_free);
    culvert_unref(f);
    culvert_promise_drop(p);
    ck_assert_int_eq(u.freed, 1);

    p = fx_promise(&f);
    culvert_promise_on_cancel(p, tell, &v, told_free);
    culvert_unref(f);
    ck_assert_int_eq(culvert_post_resolve(p, NULL, NULL), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(t.calls + u.calls + v.calls, 0);
    ck_assert_int_eq(v.freed, 1);
}
END_TEST

/* Consumed by a post that has not been drained when on_cancel's turn comes. */
static culvert_promise *to_post;
static culvert_future *to_cancel;

static void post_it(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    ck_assert_int_eq(culvert_post_resolve(to_post, NULL, NULL), CULVERT_OK);
}

static void cancel_it(culvert_future *done, void *arg)
{
    ck_assert_int_eq(culvert_on_settled(culvert_ref(done), post_it, arg, NULL), CULVERT_OK);
    culvert_cancel(to_cancel); /* on_cancel is queued behind post_it */
}

START_TEST(on_cancel_is_not_called_after_a_post_that_is_under_way)
{
    told t = {0};

    to_post = fx_promise(&to_cancel);
    culvert_promise_on_cancel(to_post, tell, &t, told_free);
    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), cancel_it, NULL,
                                        NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_int_eq(t.calls, 0);
    ck_assert_int_eq(t.freed, 1);
    culvert_unref(to_cancel);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(on_cancel_given_late_and_given_again)
{
    told t = {0}, u = {0}, v = {0};
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_promise_on_cancel(p, tell, &t, told_free);
    culvert_promise_on_cancel(p, tell, &u, told_free);
    ck_assert_int_eq(t.freed, 1);
    culvert_unref(f); /* the future's memory may go: the promise's stays */
    fx_run();
    ck_assert_int_eq(u.calls, 1);
    culvert_promise_on_cancel(p, tell, &v, told_free);
    ck_assert_int_eq(v.calls, 0);
    fx_run();
    ck_assert_int_eq(v.calls, 1);
    culvert_promise_on_cancel(p, NULL, NULL, NULL);
    culvert_promise_drop(p);
    ck_assert_int_eq(t.calls, 0);
    ck_assert_int_eq(t.freed + u.freed + v.freed, 3);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("promise");
    TCase *tc = fx_case(suite, "settling");

    tcase_add_test(tc, rule_01_nothing_runs_inside_a_call);
    tcase_add_test(tc, case_026_attaching_to_a_settled_future_runs_on_a_later_turn);
    tcase_add_test(tc, rule_02_callbacks_run_in_the_order_of_settling_then_of_attaching);
    tcase_add_test(tc, rule_02_a_later_turn_does_not_change_the_order);
    tcase_add_test(tc, case_025_second_settle_is_ignored);
    tcase_add_test(tc, rule_04_cancelled_first_stays_cancelled);
    tcase_add_test(tc, rule_09_a_dropped_promise_rejects_as_broken);

    tc = fx_case(suite, "outcomes");
    tcase_add_test(tc, value_is_released_once_when_nobody_takes_it);
    tcase_add_test(tc, rule_17_a_value_passed_through_is_shared_and_the_first_take_gets_it);
    tcase_add_test(tc, error_passed_through_outlives_where_it_came_from);
    tcase_add_test(tc, status_of_each_state);
    tcase_add_test(tc, fail_names_the_place_of_the_call);

    tc = fx_case(suite, "on_cancel");
    tcase_add_test(tc, rule_06_on_cancel_runs_on_a_later_turn_and_the_promise_is_consumed_after);
    tcase_add_test(tc, on_cancel_hears_of_lost_interest_and_may_consume_the_promise);
    tcase_add_test(tc, on_cancel_is_not_called_after_the_promise_was_consumed);
    tcase_add_test(tc, on_cancel_is_not_called_after_a_post_that_is_under_way);
    tcase_add_test(tc, on_cancel_given_late_and_given_again);
    return test_main((Suite *[]){suite, NULL});
}
