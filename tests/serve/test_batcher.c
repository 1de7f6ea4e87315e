/* SPDX-License-Identifier: BSD-2-Clause */
/* When a batch is run, with what, and how its items settle. */
#include "serve/batcher_fixture.h"

/* ---- when ---- */

START_TEST(with_nothing_running_a_lone_item_runs_at_once)
{
    culvert_batcher_options o = bn_options(8, 0, 3600.0);
    outcome out = {0};

    bn_make(&o);
    bn_add_kept(1, &out);
    ck_assert_uint_eq(bn.batches, 0); /* never inside the call */
    bn_until(1);
    ck_assert_uint_eq(bn.sizes[0], 1);
    ck_assert_int_eq(out.calls, 0);
    bn_end(0);
    fx_run();
    ck_assert_int_eq(out.calls, 1);
    ck_assert_int_eq(out.status, CULVERT_OK);
    ck_assert_int_eq(bn.freed[1], 1);
}
END_TEST

START_TEST(what_is_added_in_one_turn_goes_together)
{
    culvert_batcher_options o = bn_options(8, 0, 3600.0);
    outcome out[3] = {{0}};

    bn.at_once = true;
    bn_make(&o);
    for (int i = 0; i < 3; i++)
        bn_add_kept(i, &out[i]);
    fx_run();
    ck_assert_uint_eq(bn.batches, 1);
    ck_assert_uint_eq(bn.sizes[0], 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(out[i].status, CULVERT_OK);
}
END_TEST

START_TEST(behind_a_running_batch_max_items_start_the_next)
{
    culvert_batcher_options o = bn_options(3, 0, INFINITY);
    outcome out[5] = {{0}};

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_until(1);
    bn_add_kept(1, &out[1]);
    bn_add_kept(2, &out[2]);
    bn_turns(5);
    ck_assert_uint_eq(bn.batches, 1);
    bn_add_kept(3, &out[3]);
    bn_add_kept(4, &out[4]);
    bn_until(2);
    ck_assert_uint_eq(bn.sizes[1], 3);
    ck_assert_int_eq(bn.firsts[1], 1);
    ck_assert_uint_eq(bn_stats().queued, 1);
    ck_assert_uint_eq(bn_stats().full_batches, 1);
    bn_end(0);
    bn_turns(5);
    ck_assert_uint_eq(bn.batches, 2); /* something is running */
    bn_end(1);
    bn_until(3);
    bn_end(2);
    fx_run();
    ck_assert_int_eq(out[4].status, CULVERT_OK);
}
END_TEST

START_TEST(behind_a_running_batch_the_oldest_waits_no_longer_than_the_delay)
{
    culvert_batcher_options o = bn_options(8, 0, 0.02);
    outcome out[3] = {{0}};

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_until(1);
    const double start = test_now();
    bn_add_kept(1, &out[1]);
    bn_add_kept(2, &out[2]);
    bn_until(2); /* although nothing else happens */
    ck_assert_double_ge(bn.started[1] - start, 0.0199);
    ck_assert_uint_eq(bn.sizes[1], 2);
    bn_end(0);
    bn_end(1);
    fx_run();
}
END_TEST

START_TEST(case_112_with_delay_0_those_behind_a_running_batch_go_together)
{
    culvert_batcher_options o = bn_options(8, 1, 0.0);
    outcome out[5] = {{0}};

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_until(1);
    for (int i = 1; i < 5; i++) {
        bn_add_kept(i, &out[i]);
        bn_turns(2); /* one by one, each in a turn of its own */
    }
    ck_assert_uint_eq(bn.batches, 1);
    bn_end(0);
    bn_until(2);
    ck_assert_uint_eq(bn.sizes[0], 1);
    ck_assert_uint_eq(bn.sizes[1], 4);
    bn_end(1);
    fx_run();
    ck_assert_int_eq(out[4].status, CULVERT_OK);
}
END_TEST

/* The stamp is that of the item's own arrival: not of the batch before, nor of the first of the queue. */
START_TEST(case_113_a_lone_item_never_waits_longer_than_its_delay)
{
    culvert_batcher_options o = bn_options(8, 0, 0.05);
    outcome out[4] = {{0}};

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_until(1); /* runs for ever */
    for (int i = 1; i < 4; i++) {
        const double start = test_now();

        bn_add_kept(i, &out[i]);
        bn_until((size_t)i + 1);
        ck_assert_double_ge(bn.started[i] - start, 0.0499);
        ck_assert_double_lt(bn.started[i] - start, 5.0); /* loaded machines are slow */
        ck_assert_uint_eq(bn.sizes[i], 1);
    }
    ck_assert_double_lt(bn_stats().longest_wait, 5.0);
    ck_assert_double_ge(bn_stats().longest_wait, 0.0499);
    for (size_t i = 0; i < 4; i++)
        bn_end(i);
    fx_run();
}
END_TEST

START_TEST(an_older_one_that_leaves_gives_the_next_its_own_delay)
{
    culvert_batcher_options o = bn_options(8, 0, 0.1);
    outcome out[2] = {{0}};

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_until(1);
    culvert_future *leaves = bn_add(2, INFINITY);
    bn_turns(1);
    test_sleep(0.05);
    const double start = test_now();
    bn_add_kept(1, &out[1]);
    culvert_unref(leaves);
    bn_until(2);
    ck_assert_double_ge(bn.started[1] - start, 0.0999);
    ck_assert_int_eq(bn.runs[2], 0);
    bn_end(0);
    bn_end(1);
    fx_run();
}
END_TEST

START_TEST(max_running_bounds_the_batches)
{
    culvert_batcher_options o = bn_options(2, 2, 0.0);
    outcome out[8] = {{0}};

    bn_make(&o);
    for (int i = 0; i < 8; i++)
        bn_add_kept(i, &out[i]);
    bn_until(2);
    bn_turns(5);
    ck_assert_uint_eq(bn.batches, 2);
    ck_assert_uint_eq(bn_stats().running, 2);
    ck_assert_uint_eq(bn_stats().running_items, 4);
    bn_end(1);
    bn_until(3);
    bn_turns(5);
    ck_assert_uint_eq(bn.batches, 3);
    bn_end(0);
    bn_until(4);
    bn_end(2);
    bn_end(3);
    fx_run();
    for (int i = 0; i < 4; i++) /* first in, first out */
        ck_assert_int_eq(bn.firsts[i], 2 * i);
}
END_TEST

/* ---- outcomes ---- */

START_TEST(items_take_the_batchs_outcome)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);
    outcome out[2] = {{0}};
    static int value;
    culvert_error err = CULVERT_ERROR_INIT;

    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_add_kept(1, &out[1]);
    bn_until(1);
    if (_i == 0) {
        culvert_resolve(bn.ends[0], &value, NULL);
    } else {
        culvert_error_set(&err, CULVERT_EUSER, 7, "seven");
        culvert_reject(bn.ends[0], &err);
    }
    fx_run();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(out[i].status, _i == 0 ? CULVERT_OK : CULVERT_EUSER);
        ck_assert_ptr_eq(out[i].value, _i == 0 ? &value : NULL);
        ck_assert_int_eq(out[i].native, _i == 0 ? 0 : 7);
        ck_assert_int_eq(bn.freed[i], 1);
    }
    ck_assert_uint_eq(_i == 0 ? bn_stats().resolved : bn_stats().rejected, 2);
}
END_TEST

START_TEST(batch_fail_is_for_one_item)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);
    outcome out[3] = {{0}};
    culvert_error err = CULVERT_ERROR_INIT;

    bn_make(&o);
    for (int i = 0; i < 3; i++)
        bn_add_kept(i, &out[i]);
    bn_until(1);
    culvert_error_set(&err, CULVERT_EUSER, 1, "bad item");
    culvert_batch_fail(bn.batch, 1, &err);
    err.native = 2;
    culvert_batch_fail(bn.batch, 1, &err);  /* the first stays */
    culvert_batch_fail(bn.batch, 99, &err); /* logged */
    bn_turns(3);
    ck_assert_int_eq(out[1].calls, 0); /* with its batch */
    bn_end(0);
    fx_run();
    ck_assert_int_eq(out[0].status, CULVERT_OK);
    ck_assert_int_eq(out[1].status, CULVERT_EUSER);
    ck_assert_int_eq(out[1].native, 1);
    ck_assert_int_eq(out[2].status, CULVERT_OK);
    ck_assert_uint_eq(bn_stats().rejected, 1);
}
END_TEST

static culvert_future *fail_second(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    culvert_error err;

    (void)items;
    (void)arg;
    culvert_error_set(&err, CULVERT_EUSER, 5, "second");
    if (n > 1)
        culvert_batch_fail(batch, 1, &err);
    return NULL;
}

START_TEST(batch_fail_inside_run_that_returns_null)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);
    outcome out[2] = {{0}};

    o.run = fail_second;
    bn_make(&o);
    bn_add_kept(0, &out[0]);
    bn_add_kept(1, &out[1]);
    fx_run();
    ck_assert_int_eq(out[0].status, CULVERT_OK);
    ck_assert_int_eq(out[1].native, 5);
}
END_TEST

static void see_alive(culvert_future *done, void *arg)
{
    (void)done;
    ck_assert_int_eq(bn.freed[*(int *)arg], 0);
    fx_note('c');
}

START_TEST(items_live_until_their_batch_is_over_and_their_callbacks_ran)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);

    bn_make(&o);
    culvert_future *f = bn_add(1, INFINITY), *g = bn_add(2, INFINITY);
    culvert_on_settled(culvert_ref(f), see_alive, &numbers[1], NULL);
    bn_until(1);
    culvert_unref(f);
    culvert_unref(g); /* nobody waits for it: it runs on */
    bn_turns(3);
    ck_assert_int_eq(bn.freed[1] + bn.freed[2], 0);
    bn_end(0);
    fx_run();
    ck_assert_str_eq(fx.log, "c");
    ck_assert_int_eq(bn.freed[1] + bn.freed[2], 2);
}
END_TEST

START_TEST(cancelling_a_running_item_does_not_change_its_outcome)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);

    bn_make(&o);
    culvert_future *f = bn_add(1, 0.05);
    bn_until(1);
    culvert_cancel(f);
    test_sleep(0.06); /* nor does its deadline */
    bn_turns(3);
    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    bn_end(0);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    culvert_unref(f);
}
END_TEST

static culvert_loop *other_loop;

static culvert_future *of_another_loop(culvert_batch *batch, void *const *items, size_t n,
                                       void *arg)
{
    (void)batch;
    (void)items;
    (void)n;
    (void)arg;
    return culvert_resolved(other_loop, NULL, NULL);
}

START_TEST(a_future_of_another_loop_is_a_mistake)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);
    outcome out = {0};
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);

    other_loop = fx_bind(ev);
    o.run = of_another_loop;
    bn_make(&o);
    bn_add_kept(1, &out);
    fx_run();
    ck_assert_int_eq(out.status, CULVERT_EINVAL);
    culvert_loop_free(other_loop);
    ev_loop_destroy(ev);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batcher");
    TCase *tc = bn_case(suite, "when");

    tcase_add_test(tc, with_nothing_running_a_lone_item_runs_at_once);
    tcase_add_test(tc, what_is_added_in_one_turn_goes_together);
    tcase_add_test(tc, behind_a_running_batch_max_items_start_the_next);
    tcase_add_test(tc, behind_a_running_batch_the_oldest_waits_no_longer_than_the_delay);
    tcase_add_test(tc, case_112_with_delay_0_those_behind_a_running_batch_go_together);
    tcase_add_test(tc, case_113_a_lone_item_never_waits_longer_than_its_delay);
    tcase_add_test(tc, an_older_one_that_leaves_gives_the_next_its_own_delay);
    tcase_add_test(tc, max_running_bounds_the_batches);
    tc = bn_case(suite, "outcomes");
    tcase_add_loop_test(tc, items_take_the_batchs_outcome, 0, 2);
    tcase_add_test(tc, batch_fail_is_for_one_item);
    tcase_add_test(tc, batch_fail_inside_run_that_returns_null);
    tcase_add_test(tc, items_live_until_their_batch_is_over_and_their_callbacks_ran);
    tcase_add_test(tc, cancelling_a_running_item_does_not_change_its_outcome);
    tcase_add_test(tc, a_future_of_another_loop_is_a_mistake);
    return test_main((Suite *[]){suite, NULL});
}
