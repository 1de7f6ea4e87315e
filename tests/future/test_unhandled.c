/* SPDX-License-Identifier: BSD-2-Clause */
/* Rejections that nobody looked at: DESIGN 3, rule 9. */
#include "loop/fixture.h"

static culvert_future *rejected(int native)
{
    return culvert_fail(fx.loop, CULVERT_EUSER, native, "oh");
}

static void expect(int count, int native)
{
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, count);
    if (count > 0)
        ck_assert_int_eq(fx.unhandled.native, native);
    ck_assert_uint_eq(fx_live(), 0);
}

START_TEST(rule_09_dropped_unseen_is_reported_once_on_a_later_turn)
{
    culvert_future *f = rejected(1), *more = culvert_ref(f);

    culvert_unref(f);
    culvert_unref(more);
    ck_assert_int_eq(fx.unhandled_count, 0);
    expect(1, 1);
    ck_assert_str_eq(fx.unhandled.message, "oh");
    expect(1, 1);
}
END_TEST

START_TEST(rule_09_detached_rejections_are_reported)
{
    culvert_future *f;
    culvert_promise *p;

    culvert_detach(rejected(2));
    expect(1, 2);
    p = fx_promise(&f);
    culvert_detach(f);
    culvert_reject(p, &(culvert_error){.code = CULVERT_EUSER, .native = 3});
    ck_assert_int_eq(fx.unhandled_count, 1);
    expect(2, 3);
}
END_TEST

START_TEST(rule_09_the_end_of_a_chain_is_reported_not_each_step)
{
    culvert_future *f = rejected(4);

    for (int i = 0; i < 10; i++)
        f = culvert_then(f, fx_step, "x", NULL);
    culvert_detach(f);
    expect(1, 4);
}
END_TEST

START_TEST(rule_09_waited_for_or_looked_at_is_not_reported)
{
    outcome o = {0};
    culvert_future *f;

    ck_assert_int_eq(culvert_on_settled(rejected(1), fx_keep, &o, NULL), CULVERT_OK);
    expect(0, 0);
    f = rejected(2);
    ck_assert_ptr_nonnull(culvert_get_error(f));
    culvert_unref(f);
    expect(0, 0);
    f = rejected(3);
    ck_assert_int_eq(culvert_await(f, 0.0), CULVERT_EUSER);
    culvert_unref(f);
    expect(0, 0);
}
END_TEST

START_TEST(status_is_no_look)
{
    culvert_future *f = rejected(5);

    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    culvert_unref(f);
    expect(1, 5);
}
END_TEST

START_TEST(rule_09_cancellations_are_never_reported)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_cancel(f);
    culvert_unref(f);
    culvert_promise_drop(p);
    p = fx_promise(&f);
    culvert_unref(f);
    culvert_reject(p, &(culvert_error){.code = CULVERT_EUSER});
    culvert_detach(culvert_fail(fx.loop, CULVERT_ECANCELED, 0, "mine"));
    expect(0, 0);
}
END_TEST

START_TEST(broken_promises_are_reported)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_detach(f);
    culvert_promise_drop(p);
    fx_run();
    ck_assert_int_eq(fx.unhandled.code, CULVERT_EBROKEN);
    ck_assert_ptr_nonnull(strstr(fx.unhandled.where, "fixture.h:"));
    expect(1, 0);
}
END_TEST

/* The preallocated rejection for want of memory: the handle of whoever looked is excused. */
START_TEST(preallocated_rejections_are_reported_too)
{
    culvert__core *core = culvert__core_of(fx.loop);

    culvert_detach(culvert__future_static(core, CULVERT_ENOMEM));
    expect(1, 0);
    ck_assert_int_eq(fx.unhandled.code, CULVERT_ENOMEM);
    culvert_future *f = culvert__future_static(core, CULVERT_ENOMEM);
    ck_assert_int_eq(culvert_get_error(f)->code, CULVERT_ENOMEM);
    culvert_unref(f);
    expect(1, 0);
    f = culvert_then(culvert__future_static(core, CULVERT_ENOMEM), fx_step, "x", NULL);
    f = culvert_catch(f, fx_step, "c", NULL);
    fx_run();
    ck_assert_int_eq(culvert_get_error(f)->code, CULVERT_ENOMEM);
    culvert_unref(f);
    expect(1, 0);
    ck_assert_str_eq(fx.log, "c");
}
END_TEST

static void free_loop(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)err;
    ck_assert_ptr_eq(arg, &fx);
    fx.unhandled_count++;
    culvert_loop_free(loop);
}

START_TEST(rule_10_on_unhandled_may_free_the_binding)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;

    options.on_unhandled = free_loop;
    options.arg = &fx;
    culvert_loop *loop = culvert_loop_new(fx.ev, &options, NULL);
    culvert_detach(culvert_fail(loop, CULVERT_EUSER, 0, "bye"));
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unhandled");
    TCase *tc = fx_case(suite, "unhandled");

    tcase_add_test(tc, rule_09_dropped_unseen_is_reported_once_on_a_later_turn);
    tcase_add_test(tc, rule_09_detached_rejections_are_reported);
    tcase_add_test(tc, rule_09_the_end_of_a_chain_is_reported_not_each_step);
    tcase_add_test(tc, rule_09_waited_for_or_looked_at_is_not_reported);
    tcase_add_test(tc, status_is_no_look);
    tcase_add_test(tc, rule_09_cancellations_are_never_reported);
    tcase_add_test(tc, broken_promises_are_reported);
    tcase_add_test(tc, preallocated_rejections_are_reported_too);
    tcase_add_test(tc, rule_10_on_unhandled_may_free_the_binding);
    return test_main((Suite *[]){suite, NULL});
}
