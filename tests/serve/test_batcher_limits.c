/* SPDX-License-Identifier: BSD-2-Clause */
/* What leaves a batcher's queue, what does not get in, and freeing things. */
#include "serve/batcher_fixture.h"

/* A batch that runs until the test says so; what comes then waits. */
static void occupy(void)
{
    culvert_detach(bn_add(1000, INFINITY));
    bn_until(1);
}

START_TEST(an_expired_item_leaves_and_never_runs)
{
    culvert_batcher_options o = bn_options(8, 1, 0.0);
    outcome out = {0};

    bn_make(&o);
    occupy();
    culvert_future *f = bn_add(1, 0.01);
    culvert_on_settled(culvert_ref(f), fx_keep, &out, NULL);
    while (out.calls == 0)
        ev_run(fx.ev, EVRUN_ONCE); /* its deadline keeps the loop running */
    ck_assert_int_eq(out.status, CULVERT_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(culvert_get_error(f)->message, "0.01 seconds"));
    ck_assert_uint_eq(bn_stats().expired, 1);
    ck_assert_uint_eq(bn_stats().queued, 0);
    culvert_unref(f);
    bn_end(0);
    fx_run();
    ck_assert_int_eq(bn.runs[1], 0);
    ck_assert_int_eq(bn.freed[1], 1);
}
END_TEST

START_TEST(a_deadline_of_0_has_expired_already)
{
    culvert_batcher_options o = bn_options(8, 0, 0.0);
    outcome out = {0};

    bn_make(&o);
    culvert_on_settled(bn_add(1, 0.0), fx_keep, &out, NULL);
    fx_run();
    ck_assert_int_eq(out.status, CULVERT_ETIMEDOUT);
    ck_assert_uint_eq(bn.batches, 0);
    ck_assert_int_eq(bn.freed[1], 1);
}
END_TEST

START_TEST(a_cancelled_item_leaves_and_never_runs)
{
    culvert_batcher_options o = bn_options(8, 0, 3600.0);
    outcome out = {0};

    bn_make(&o);
    occupy();
    culvert_future *f = bn_add(1, 3600.0);
    bn_add_kept(2, &out);
    bn_turns(3);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    ck_assert_int_eq(bn.freed[1], 0); /* no callback inside */
    ck_assert_uint_eq(bn_stats().canceled, 1);
    bn_turns(2);
    ck_assert_int_eq(bn.freed[1], 1);
    bn_end(0);
    bn_until(2);
    bn_end(1);
    fx_run();
    ck_assert_int_eq(bn.runs[1], 0);
    ck_assert_int_eq(out.status, CULVERT_OK);
    culvert_unref(f);
}
END_TEST

/* Neither its deadline nor the delay may keep a loop running for nothing. */
START_TEST(when_all_have_left_the_loop_ends)
{
    culvert_batcher_options o = bn_options(8, 0, 3600.0);

    bn_make(&o);
    occupy();
    culvert_future *f = bn_add(1, 7200.0);
    bn_turns(3);
    culvert_unref(f);
    fx_run(); /* returns: a bare promise is all that is left */
    ck_assert_uint_eq(bn_stats().running, 1);
    bn_end(0);
    fx_run();
}
END_TEST

START_TEST(a_queue_at_its_bound_answers_at_once)
{
    culvert_batcher_options o = bn_options(2, 1, 0.0);
    outcome out[2] = {{0}};

    o.max_queued = 2;
    bn_make(&o);
    occupy();
    bn_add_kept(1, &out[0]);
    bn_add_kept(2, &out[1]);
    culvert_future *no = bn_add(3, INFINITY);
    ck_assert_int_eq(culvert_status(no), CULVERT_EAGAIN);
    ck_assert_ptr_nonnull(strstr(culvert_get_error(no)->message, "max_queued is 2"));
    ck_assert_ptr_nonnull(strstr(culvert_get_error(no)->where, "batcher_fixture.h:"));
    ck_assert_int_eq(bn.freed[3], 1);
    ck_assert_uint_eq(bn_stats().refused, 1);
    culvert_unref(no);
    bn_end(0); /* what runs does not count */
    bn_until(2);
    culvert_future *yes = bn_add(4, INFINITY);
    ck_assert_int_eq(culvert_status(yes), CULVERT_PENDING);
    culvert_detach(yes);
    bn_end(1);
    bn_until(3);
    bn_end(2);
    fx_run();
}
END_TEST

START_TEST(deadlines_that_are_none)
{
    static const double wrong[] = {-1.0, -INFINITY, NAN};
    culvert_batcher_options o = bn_options(2, 1, 0.0);

    bn_make(&o);
    culvert_future *f = bn_add(1, wrong[_i]);
    ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
    ck_assert_ptr_nonnull(culvert_get_error(f));
    ck_assert_int_eq(bn.freed[1], 1);
    culvert_unref(f);
    fx_run();
    ck_assert_uint_eq(bn.batches, 0);
}
END_TEST

START_TEST(options_that_are_none)
{
    culvert_batcher_options o = bn_options(2, 1, _i == 0 ? -1.0 : _i == 1 ? NAN : 0.0);
    culvert_error err = CULVERT_ERROR_INIT;
    const char *says = "max_delay_seconds";

    if (_i == 2) {
        o.run = NULL;
        says = "run is NULL";
    } else if (_i == 3) {
        o.struct_size = 0;
        says = "struct_size";
        bn.arg_freed = 1; /* where its options end is not known */
    }
    ck_assert_ptr_null(culvert_batcher_new(fx.loop, &o, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.message, says));
    ck_assert_int_eq(bn.arg_freed, 1);
    ck_assert_ptr_null(culvert_batcher_new(fx.loop, NULL, NULL));
}
END_TEST

START_TEST(unref_rejects_what_waits_and_leaves_what_runs)
{
    culvert_batcher_options o = bn_options(8, 1, 0.0);
    outcome runs = {0}, waits = {0};

    bn_make(&o);
    bn_add_kept(1, &runs);
    bn_until(1);
    bn_add_kept(2, &waits);
    culvert_batcher_unref(culvert_batcher_ref(bn.batcher));
    ck_assert_uint_eq(bn_stats().queued, 1);
    bn_drop();
    ck_assert_int_eq(waits.calls, 0);
    bn_turns(3);
    ck_assert_int_eq(waits.status, CULVERT_ECANCELED);
    ck_assert_int_eq(bn.freed[2], 1);
    ck_assert_int_eq(runs.calls, 0);
    ck_assert_int_eq(bn.arg_freed, 0);
    bn_end(0);
    fx_run();
    ck_assert_int_eq(runs.status, CULVERT_OK);
    ck_assert_int_eq(bn.arg_freed, 1);
}
END_TEST

START_TEST(loop_free_settles_all)
{
    culvert_batcher_options o = bn_options(8, 1, 0.0);

    bn_make(&o);
    culvert_future *runs = bn_add(1, INFINITY);
    bn_until(1);
    culvert_future *waits = bn_add(2, 3600.0);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(culvert_status(runs), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(culvert_status(waits), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(bn.runs[2], 0);
    ck_assert_int_eq(bn.freed[1], 1);
    ck_assert_int_eq(bn.freed[2], 1);
    ck_assert_uint_eq(bn_stats().queued + bn_stats().running + bn_stats().running_items, 0);
    culvert_future *no = bn_add(3, INFINITY);
    ck_assert_int_eq(culvert_status(no), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(bn.freed[3], 1);
    culvert_unref(no);
    culvert_promise_drop(bn.ends[0]);
    culvert_unref(runs);
    culvert_unref(waits);
}
END_TEST

/* ---- freeing in callbacks ---- */

static culvert_future *other;

static culvert_future *free_in_run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    (void)batch;
    (void)arg;
    for (size_t i = 0; i < n; i++)
        bn.runs[*(int *)items[i]]++;
    bn_drop();
    culvert_unref(other);
    other = NULL;
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    return NULL;
}

static void free_in_end(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    bn_drop();
    culvert_unref(other);
    other = NULL;
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
}

static void free_with_item(void *item)
{
    bn_free_item(item);
    if (bn.batcher == NULL)
        return;
    free_in_end(NULL, NULL);
}

START_TEST(everything_may_be_freed_in_a_callback)
{
    culvert_batcher_options o = bn_options(1, 1, 0.0);

    if (_i == 0)
        o.run = free_in_run;
    bn.at_once = true;
    bn_make(&o);
    culvert_future *first = culvert_batcher_add(bn.batcher, &numbers[1],
                                                _i == 2 ? free_with_item : bn_free_item, INFINITY);
    if (_i == 1)
        culvert_on_settled(first, free_in_end, NULL, NULL);
    else
        culvert_detach(first);
    other = bn_add(2, 100.0);
    fx_run();
    ck_assert_ptr_null(other);
    ck_assert_int_eq(bn.freed[1], 1);
    ck_assert_int_eq(bn.freed[2], 1);
}
END_TEST

static void add_more(culvert_future *done, void *arg)
{
    int *left = arg;

    (void)done;
    if (--*left > 0)
        culvert_on_settled(bn_add(*left, INFINITY), add_more, left, NULL);
}

START_TEST(a_callback_may_add)
{
    culvert_batcher_options o = bn_options(4, 1, 0.0);
    int left = 100;

    bn.at_once = true;
    bn_make(&o);
    culvert_on_settled(bn_add(100, INFINITY), add_more, &left, NULL);
    fx_run();
    ck_assert_int_eq(left, 0);
    ck_assert_uint_eq(bn_stats().resolved, 100);
}
END_TEST

static culvert_future *add_in_run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    (void)batch;
    (void)items;
    (void)n;
    (void)arg;
    if (++bn.batches < 10000)
        culvert_detach(culvert_batcher_add(bn.batcher, NULL, NULL, INFINITY));
    return NULL;
}

static void tick(struct ev_loop *ev, ev_timer *w, int events)
{
    (void)ev;
    (void)w;
    (void)events;
    fx_note('t');
}

START_TEST(a_run_that_adds_leaves_the_loop_its_turns)
{
    culvert_batcher_options o = bn_options(4, 0, 0.0);
    ev_timer timer;

    ev_timer_init(&timer, tick, 0.0, 1e-6);
    ev_timer_start(fx.ev, &timer);
    ev_unref(fx.ev);
    o.run = add_in_run;
    bn_make(&o);
    culvert_detach(culvert_batcher_add(bn.batcher, NULL, NULL, INFINITY));
    fx_run();
    ck_assert_uint_eq(bn.batches, 10000);
    ck_assert_uint_ge(fx.logged, 10);
    ev_ref(fx.ev);
    ev_timer_stop(fx.ev, &timer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batcher limits");
    TCase *tc = bn_case(suite, "limits");

    tcase_add_test(tc, an_expired_item_leaves_and_never_runs);
    tcase_add_test(tc, a_deadline_of_0_has_expired_already);
    tcase_add_test(tc, a_cancelled_item_leaves_and_never_runs);
    tcase_add_test(tc, when_all_have_left_the_loop_ends);
    tcase_add_test(tc, a_queue_at_its_bound_answers_at_once);
    tcase_add_loop_test(tc, deadlines_that_are_none, 0, 3);
    tcase_add_loop_test(tc, options_that_are_none, 0, 4);
    tc = bn_case(suite, "freeing");
    tcase_add_test(tc, unref_rejects_what_waits_and_leaves_what_runs);
    tcase_add_test(tc, loop_free_settles_all);
    tcase_add_loop_test(tc, everything_may_be_freed_in_a_callback, 0, 3);
    tcase_add_test(tc, a_callback_may_add);
    tcase_add_test(tc, a_run_that_adds_leaves_the_loop_its_turns);
    return test_main((Suite *[]){suite, NULL});
}
