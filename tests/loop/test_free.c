/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking the binding down, from anywhere: DESIGN 3, rules 10, 16; cases 7 and 30.
 */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <pthread.h>

static void free_it(void)
{
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
}

/* ---- rule 16 ---- */

START_TEST(rule_16_everything_pending_settles_as_shut_down_and_its_callbacks_run_inside)
{
    enum { N = 8 };
    outcome o[N] = {{0}};
    culvert_future *f, *g;
    culvert_promise *p = fx_promise(&f);
    int freed = 0, told = 0;

    culvert_promise_on_cancel(p, fx_count, &told, NULL);
    g = culvert_ref(f);
    culvert_future *all[N] = {
        f,
        culvert_then(culvert_ref(g), fx_step, &freed, fx_count),
        culvert_finally(culvert_ref(g), fx_step, "f", NULL),
        culvert_sleep(fx.loop, 1000.0),
        culvert_timeout(culvert_ref(g), 1000.0),
        culvert_all(fx.loop, (culvert_future *[]){culvert_ref(g), culvert_sleep(fx.loop, 1000.0)},
                    2),
        culvert_race(fx.loop, (culvert_future *[]){culvert_ref(g), culvert_sleep(fx.loop, 1000.0)},
                     2),
        culvert_sleep(fx.loop, INFINITY),
    };
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(culvert_on_settled(all[i], fx_keep, &o[i], NULL), CULVERT_OK);
    culvert_unref(g);
    free_it();
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(o[i].calls, 1);
        ck_assert_int_eq(o[i].status, CULVERT_ESHUTDOWN);
    }
    ck_assert_str_eq(fx.log, "f");
    ck_assert_int_eq(freed, 1);
    ck_assert_int_eq(told, 0);
    culvert_promise_drop(p);
}
END_TEST

static int statuses[4];

static void ask_for_more(culvert_future *done, void *arg)
{
    culvert_loop *loop = culvert_future_loop(done);
    culvert_future *f;

    (void)arg;
    f = culvert_sleep(loop, 0.0);
    statuses[0] = culvert_status(f);
    culvert_unref(f);
    f = culvert_then(culvert_ref(done), fx_step, "!", NULL);
    statuses[1] = culvert_status(f);
    culvert_unref(f);
    statuses[2] = culvert_on_settled(culvert_ref(done), fx_end, "!", NULL);
    statuses[3] = culvert_post(loop, fx_count, arg, NULL);
    culvert_promise *p = culvert_promise_new(loop, &f);
    ck_assert_ptr_null(p);
    culvert_unref(f);
    culvert_loop_free(loop); /* once more: it is being freed */
}

START_TEST(rule_16_new_work_of_its_callbacks_is_refused)
{
    int posted = 0;

    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 1000.0), ask_for_more, &posted,
                                        NULL),
                     CULVERT_OK);
    free_it();
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(statuses[i], CULVERT_ESHUTDOWN);
    ck_assert_str_eq(fx.log, "");
    ck_assert_int_eq(posted, 0);
}
END_TEST

START_TEST(rule_16_handles_stay_valid_after_it)
{
    int freed = 0;
    culvert_future *pending, *g;
    culvert_promise *p = fx_promise(&pending);
    culvert_future *value = culvert_resolved(fx.loop, &freed, fx_count);
    culvert_future *error = culvert_fail(fx.loop, CULVERT_EUSER, 3, "before");

    free_it();
    ck_assert_int_eq(culvert_status(pending), CULVERT_ESHUTDOWN);
    ck_assert_ptr_eq(culvert_value(value), &freed);
    ck_assert_str_eq(culvert_get_error(error)->message, "before");
    culvert_loop *loop = culvert_future_loop(value);
    ck_assert_ptr_null(culvert_loop_ev(loop));
    g = culvert_resolved(loop, &freed, fx_count);
    ck_assert_int_eq(culvert_status(g), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(freed, 1);
    culvert_unref(g);
    g = culvert_fail(loop, CULVERT_EUSER, 0, "after"); /* errors can still be made */
    ck_assert_int_eq(culvert_status(g), CULVERT_EUSER);
    culvert_unref(g);
    ck_assert_int_eq(culvert_post(loop, fx_count, &freed, NULL), CULVERT_ESHUTDOWN);
    culvert_cancel(pending);
    culvert_detach(error);
    culvert_unref(pending);
    culvert_resolve(p, &freed, fx_count);
    ck_assert_int_eq(freed, 2);
    culvert_unref(value);
    ck_assert_int_eq(freed, 3);
}
END_TEST

/* The static futures hold the memory too. */
START_TEST(rule_16_the_last_handle_may_be_one_of_a_refusal)
{
    culvert_future *f = culvert_resolved(fx.loop, NULL, NULL);

    free_it();
    f = culvert_then(f, fx_step, "!", NULL);
    f = culvert_catch(f, fx_step, "!", NULL);
    ck_assert_int_eq(culvert_status(f), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(culvert_get_error(f)->code, CULVERT_ESHUTDOWN);
    culvert_unref(f);
}
END_TEST

/* What is made after everything has gone holds the memory itself. */
START_TEST(rule_16_errors_can_be_made_of_a_binding_that_is_down)
{
    culvert_loop *loop = culvert_loop_ref(fx.loop);

    free_it();
    culvert_future *f = culvert_fail(loop, CULVERT_EUSER, 5, "late");
    culvert_future *g = culvert_sleep(loop, 1.0);
    culvert_loop_unref(loop);
    ck_assert_int_eq(culvert_get_error(f)->native, 5);
    ck_assert_int_eq(culvert_status(g), CULVERT_ESHUTDOWN);
    culvert_unref(g);
    culvert_unref(f);
}
END_TEST

/* ---- case 7 ---- */

START_TEST(case_007_completions_that_were_queued_settle_once_inside_and_nothing_runs_later)
{
    outcome o[5] = {{0}};
    int ran = 0;

    for (int i = 0; i < 5; i++) {
        culvert_future *f;
        culvert_promise *p = fx_promise(&f);
        ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o[i], NULL), CULVERT_OK);
        ck_assert_int_eq(culvert_post_resolve(p, &o[i], NULL), CULVERT_OK);
        ck_assert_int_eq(culvert_post(fx.loop, fx_count, &ran, NULL), CULVERT_OK);
    }
    free_it();
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(o[i].calls, 1);
        ck_assert_int_eq(o[i].status, CULVERT_OK); /* it had been accepted: that was its outcome */
    }
    ck_assert_int_eq(ran, 5);
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(o[i].calls, 1);
    ck_assert_int_eq(ran, 5);
}
END_TEST

/* ---- case 30, rule 10 ---- */

typedef struct everything {
    culvert_future *own, *sibling;
    int calls, freed;
} everything;

static void let_everything_go(everything *e)
{
    e->calls++;
    culvert_unref(e->own);
    culvert_unref(e->sibling);
    e->own = e->sibling = NULL;
    if (fx.loop != NULL) {
        culvert_loop_free(fx.loop);
        fx.loop = NULL;
    }
}

static culvert_future *free_all_step(culvert_future *done, void *arg)
{
    let_everything_go(arg);
    ck_assert_int_eq(culvert_status(done), CULVERT_OK); /* still there */
    return NULL;
}

static void free_all_settled(culvert_future *done, void *arg)
{
    let_everything_go(arg);
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
}

static void free_all_post(void *arg)
{
    let_everything_go(arg);
}

static void free_all_arg(void *arg)
{
    everything *e = arg;

    e->freed++;
    let_everything_go(e);
}

START_TEST(case_030_a_continuation_may_free_everything_and_the_binding)
{
    everything e = {0};
    outcome o = {0};
    int posted = 0;

    e.sibling = culvert_then(culvert_sleep(fx.loop, 1000.0), fx_step, "!", NULL);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 1000.0), fx_keep, &o, NULL),
                     CULVERT_OK);
    switch (_i) {
    case 0:
        e.own = culvert_then(culvert_resolved(fx.loop, NULL, NULL), free_all_step, &e, NULL);
        break;
    case 1: e.own = culvert_finally(culvert_sleep(fx.loop, 0.0), free_all_step, &e, NULL); break;
    case 2:
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.0), free_all_settled, &e,
                                            NULL),
                         CULVERT_OK);
        break;
    case 3: ck_assert_int_eq(culvert_post(fx.loop, free_all_post, &e, NULL), CULVERT_OK); break;
    case 4: /* a release after a step */
        e.own = culvert_then(culvert_resolved(fx.loop, NULL, NULL), fx_step, &e, free_all_arg);
        break;
    case 5: /* a release of a step that is passed by */
        e.own = culvert_catch(culvert_resolved(fx.loop, NULL, NULL), fx_step, &e, free_all_arg);
        break;
    case 6: /* a value that nobody took */
        culvert_unref(culvert_resolved(fx.loop, &e, free_all_arg));
        break;
    case 7: /* a release inside a call */
        culvert_unref(culvert_then(culvert_sleep(fx.loop, 1000.0), fx_step, &e, free_all_arg));
        break;
    case 8: { /* of a promise's on_cancel */
        culvert_future *f;
        culvert_promise *p = fx_promise(&f);
        culvert_promise_on_cancel(p, free_all_post, &e, NULL);
        culvert_unref(f);
        fx_run();
        culvert_promise_drop(p);
        break;
    }
    case 9: { /* on_cancel's release when the promise is consumed */
        culvert_future *f;
        culvert_promise *p = fx_promise(&f);
        culvert_promise_on_cancel(p, free_all_post, &e, free_all_arg);
        culvert_resolve(p, NULL, NULL);
        culvert_unref(f);
        break;
    }
    case 10: { /* the same by a post, in the middle of draining */
        culvert_future *f;
        culvert_promise *p = fx_promise(&f);
        culvert_promise_on_cancel(p, free_all_post, &e, free_all_arg);
        ck_assert_int_eq(culvert_post_resolve(p, NULL, NULL), CULVERT_OK);
        ck_assert_int_eq(culvert_post(fx.loop, fx_count, &posted, NULL), CULVERT_OK);
        culvert_unref(f);
        break;
    }
    case 11: { /* a value that comes too late */
        culvert_future *f;
        culvert_promise *p = fx_promise(&f);
        culvert_cancel(f);
        culvert_resolve(p, &e, free_all_arg);
        culvert_unref(f);
        break;
    }
    default:
        ck_assert_int_eq(culvert_post(fx.loop, fx_count, &posted, NULL), CULVERT_OK);
        e.own = culvert_then(culvert_resolved(fx.loop, NULL, NULL), free_all_step, &e, NULL);
        break;
    }
    fx_run();
    ck_assert_int_eq(e.calls, 1);
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_eq(o.status, CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(fx.loop);
}
END_TEST

/* The rest of the batch settles as shut down, after the callback and not in it. */
static void free_and_note(culvert_future *done, void *arg)
{
    (void)arg;
    fx_note('<');
    culvert_loop_free(culvert_future_loop(done));
    fx.loop = NULL;
    culvert_future *f = culvert_resolved(culvert_future_loop(done), NULL, NULL);
    ck_assert_int_eq(culvert_status(f), CULVERT_ESHUTDOWN);
    culvert_unref(f);
    fx_note('>');
}

START_TEST(rule_10_loop_free_inside_a_callback_is_put_off_until_it_has_returned)
{
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), fx_end, "a", NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), free_and_note, NULL,
                                        NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), fx_end, "b", NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 1000.0), fx_keep, &o, NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "a<>b");
    ck_assert_int_eq(o.status, CULVERT_ESHUTDOWN);
}
END_TEST

static culvert_future *run_then_free(culvert_future *done, void *arg)
{
    (void)done;
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.001), free_and_note, NULL, NULL),
                     CULVERT_OK);
    ev_run(fx.ev, 0);
    fx_note(*(const char *)arg);
    return NULL;
}

START_TEST(rule_10_loop_free_in_a_nested_callback_waits_for_the_outermost)
{
    outcome o = {0};

    culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), run_then_free, "n", NULL));
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.02), fx_keep, &o, NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "<>n");
    ck_assert_int_eq(o.calls, 1);
}
END_TEST

static void free_in_prepare(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)revents;
    ev_prepare_stop(ev, w);
    free_it();
}

static void free_in_check(struct ev_loop *ev, ev_check *w, int revents)
{
    (void)revents;
    ev_check_stop(ev, w);
    free_it();
}

START_TEST(loop_free_in_watchers_of_the_program)
{
    outcome o = {0};
    ev_prepare prepare;
    ev_check check;

    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 1000.0), fx_keep, &o, NULL),
                     CULVERT_OK);
    ev_prepare_init(&prepare, free_in_prepare);
    ev_check_init(&check, free_in_check);
    if (_i % 2 == 0)
        ev_prepare_start(fx.ev, &prepare);
    else
        ev_check_start(fx.ev, &check);
    if (_i / 2 == 0)
        culvert_detach(culvert_sleep(fx.loop, 0.0));
    fx_turn();
    fx_run();
    ck_assert_ptr_null(fx.loop);
    ck_assert_int_eq(o.status, CULVERT_ESHUTDOWN);
}
END_TEST

/* ---- threads: the loop's is over, another one takes it down ---- */

static void *run_elsewhere(void *arg)
{
    fx_run();
    return arg;
}

START_TEST(the_thread_of_the_loop_may_be_gone)
{
    pthread_t thread;

    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.005), fx_end, "s", NULL),
                     CULVERT_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, run_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(fx.log, "s");
    free_it();
}
END_TEST

/* A chain that feeds itself and that nobody holds: each round ends it with the next one, until that is
   refused. The program hears of it once. */
static int chain_kind;

static culvert_future *next_round(void);

static void *some_work(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    test_sleep(0.002);
    return NULL;
}

static culvert_future *round_over(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return fx.logged > 100 ? NULL : next_round();
}

static culvert_future *next_round(void)
{
    culvert_loop *loop = fx.loop;
    culvert_future *work = culvert__core_of(loop)->closing
                               ? culvert_fail(loop, CULVERT_ESHUTDOWN, 7, "no more")
                               : culvert_work(loop, some_work, NULL, NULL, NULL);

    fx_note('n');
    switch (chain_kind) {
    case 0: break;
    case 1: work = culvert_timeout(work, 100.0); break;
    case 2: work = culvert_all(loop, (culvert_future *[]){work, culvert_sleep(loop, 0)}, 2); break;
    case 3:
        work = culvert_all_settled(
            loop, (culvert_future *[]){work, culvert_fail(loop, CULVERT_EUSER, 8, "other")}, 2);
        break;
    case 4: return culvert_catch(culvert_then(work, round_over, NULL, NULL), fx_step, "c", NULL);
    default: return culvert_finally(work, round_over, NULL, NULL);
    }
    return culvert_then(work, round_over, NULL, NULL);
}

START_TEST(rule_16_a_chain_that_feeds_itself_is_reported_once)
{
    chain_kind = _i;
    culvert_detach(next_round());
    for (int i = 0; i < 3; i++) {
        test_sleep(0.002);
        fx_turn();
    }
    ck_assert_int_eq(fx.unhandled_count, 0);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(fx.unhandled_count, 1);
    ck_assert_int_eq(fx.unhandled.code, CULVERT_ESHUTDOWN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("free");
    TCase *tc = fx_case(suite, "shutdown");

    tcase_add_test(tc,
                   rule_16_everything_pending_settles_as_shut_down_and_its_callbacks_run_inside);
    tcase_add_test(tc, rule_16_new_work_of_its_callbacks_is_refused);
    tcase_add_test(tc, rule_16_handles_stay_valid_after_it);
    tcase_add_test(tc, rule_16_the_last_handle_may_be_one_of_a_refusal);
    tcase_add_test(tc,
                   case_007_completions_that_were_queued_settle_once_inside_and_nothing_runs_later);
    tcase_add_test(tc, rule_16_errors_can_be_made_of_a_binding_that_is_down);
    tcase_add_test(tc, the_thread_of_the_loop_may_be_gone);
    tcase_add_loop_test(tc, rule_16_a_chain_that_feeds_itself_is_reported_once, 0, 6);

    tc = fx_case(suite, "from inside");
    tcase_add_loop_test(tc, case_030_a_continuation_may_free_everything_and_the_binding, 0, 13);
    tcase_add_test(tc, rule_10_loop_free_inside_a_callback_is_put_off_until_it_has_returned);
    tcase_add_test(tc, rule_10_loop_free_in_a_nested_callback_waits_for_the_outermost);
    tcase_add_loop_test(tc, loop_free_in_watchers_of_the_program, 0, 4);
    return test_main((Suite *[]){suite, NULL});
}
