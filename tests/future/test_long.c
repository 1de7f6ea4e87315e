/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long chains and endless loops: DESIGN 3, rule 5; cases 22 and 23.
 *
 * Everything runs on a thread with a stack of 256 KiB, which holds a thousand frames at most.
 */
#include "loop/fixture.h"

#include <pthread.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { LENGTH = 100000 }; /* it keeps much for each access */
#else
enum { LENGTH = 1000000 };
#endif

static uint64_t ran, freed;

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    ran++;
    return NULL;
}

static void count_free(void *arg)
{
    (void)arg;
    freed++;
}

static void on_small_stack(void *(*fn)(void *))
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    ck_assert_int_eq(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
    ck_assert_int_eq(pthread_create(&thread, &attr, fn, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

static culvert_future *chain_on(culvert_future *f, int length)
{
    for (int i = 0; i < length; i++) {
        switch (i % 4) {
        case 0:
        case 1: f = culvert_then(f, pass, &ran, count_free); break;
        case 2: f = culvert_catch(f, pass, &ran, count_free); break;
        default: f = culvert_finally(f, pass, &ran, count_free); break;
        }
    }
    return f;
}

static void expect_over(int length, int expect_ran)
{
    ck_assert_uint_eq(ran, (uint64_t)expect_ran);
    ck_assert_uint_eq(freed, (uint64_t)length);
    ck_assert_uint_eq(fx_live(), 0);
    ran = freed = 0;
}

static void *succeed(void *arg)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(chain_on(f, LENGTH), fx_keep, &o, NULL), CULVERT_OK);
    culvert_resolve(p, &ran, NULL);
    fx_run();
    ck_assert_ptr_eq(o.value, &ran);
    expect_over(LENGTH, LENGTH / 4 * 3);
    return arg;
}

static void *go_wrong(void *arg)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(chain_on(f, LENGTH), fx_keep, &o, NULL), CULVERT_OK);
    culvert_reject(p, &(culvert_error){.code = CULVERT_EUSER, .native = 9});
    fx_run();
    ck_assert_int_eq(o.native, 9);
    expect_over(LENGTH, LENGTH / 4 * 2);
    return arg;
}

static void *drop(void *arg)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_unref(chain_on(f, LENGTH));
    fx_run(); /* each finally still runs */
    culvert_promise_drop(p);
    expect_over(LENGTH, LENGTH / 4);
    return arg;
}

static void *cancel_head(void *arg)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    culvert_future *head = culvert_ref(f);
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(chain_on(f, LENGTH), fx_keep, &o, NULL), CULVERT_OK);
    culvert_cancel(head);
    culvert_unref(head);
    fx_run();
    culvert_promise_drop(p);
    ck_assert_int_eq(o.status, CULVERT_ECANCELED);
    expect_over(LENGTH, LENGTH / 4 * 2);
    return arg;
}

static void *shut_down(void *arg)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(chain_on(f, LENGTH), fx_keep, &o, NULL), CULVERT_OK);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    culvert_promise_drop(p);
    ck_assert_int_eq(o.status, CULVERT_ESHUTDOWN);
    ck_assert_uint_eq(freed, LENGTH);
    ck_assert_uint_eq(ran, LENGTH / 4 * 2);
    return arg;
}

START_TEST(case_022_a_chain_of_a_million_succeeds_on_a_small_stack)
{
    on_small_stack(succeed);
}
END_TEST

START_TEST(case_022_a_chain_of_a_million_fails_on_a_small_stack)
{
    on_small_stack(go_wrong);
}
END_TEST

START_TEST(case_022_a_chain_of_a_million_is_dropped_on_a_small_stack)
{
    on_small_stack(drop);
}
END_TEST

START_TEST(case_022_a_chain_of_a_million_is_cancelled_on_a_small_stack)
{
    on_small_stack(cancel_head);
}
END_TEST

START_TEST(case_022_a_chain_of_a_million_is_shut_down_on_a_small_stack)
{
    on_small_stack(shut_down);
}
END_TEST

/* Linear: counted in turns of the loop, not in time, which a busy machine stretches. */
static unsigned turns_of(int length)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);
    const unsigned before = ev_iteration(fx.ev);

    culvert_detach(chain_on(f, length));
    culvert_resolve(p, NULL, NULL);
    fx_run();
    ran = freed = 0;
    return ev_iteration(fx.ev) - before;
}

START_TEST(case_022_time_is_linear)
{
    /* A turn takes up to 256 steps, fewer when the machine is busy: never more than a turn each. */
    ck_assert_uint_le(turns_of(4000), 4002);
    ck_assert_uint_ge(turns_of(4000), 4000 / 256);
}
END_TEST

/* ---- steps that return the next step for ever ---- */

typedef struct endless {
    int left, form;
    uint64_t most; /* futures alive at once */
} endless;

static culvert_future *next(culvert_future *done, void *arg);

static culvert_future *again(endless *e, culvert_future *f)
{
    switch (e->form) {
    case 0: return culvert_then(f, next, e, NULL);
    case 1: return culvert_finally(f, next, e, NULL);
    /* With a step that only passes on in front. */
    default: return culvert_then(culvert_catch(f, pass, NULL, NULL), next, e, NULL);
    }
}

static culvert_future *next(culvert_future *done, void *arg)
{
    endless *e = arg;
    const uint64_t live = fx_live();

    e->most = live > e->most ? live : e->most;
    if (--e->left == 0)
        return NULL;
    /* Now and then something that is not settled yet, so that adoption is not over at once. */
    culvert_loop *loop = culvert_future_loop(done);
    return again(e, e->left % 1000 == 0 ? culvert_sleep(loop, 0.0)
                                        : culvert_resolved(loop, arg, NULL));
}

static void *endless_loop(void *arg)
{
    endless e = {.left = *(int *)arg == 0 ? LENGTH : LENGTH / 10, .form = *(int *)arg};
    outcome o = {0};
    culvert_future *f = again(&e, culvert_resolved(fx.loop, NULL, NULL));

    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(o.status, CULVERT_OK);
    ck_assert_int_eq(e.left, 0);
    ck_assert_uint_le(e.most, 8);
    ck_assert_uint_eq(fx_live(), 0);
    return NULL;
}

static int form;

static void *endless_form(void *arg)
{
    (void)arg;
    return endless_loop(&form);
}

START_TEST(case_023_a_loop_of_a_million_steps_keeps_few_futures_alive)
{
    form = _i;
    on_small_stack(endless_form);
}
END_TEST

/* Steps that settle on a timer: each adopts a pending future. */
static culvert_future *after_sleep(culvert_future *done, void *arg)
{
    endless *e = arg;
    const uint64_t live = fx_live();

    e->most = live > e->most ? live : e->most;
    if (--e->left == 0)
        return NULL;
    return culvert_then(culvert_sleep(culvert_future_loop(done), 0.0), after_sleep, arg, NULL);
}

START_TEST(case_023_a_loop_over_pending_futures_keeps_few_alive)
{
    endless e = {.left = 20000};
    culvert_future *f = culvert_then(culvert_sleep(fx.loop, 0.0), after_sleep, &e, NULL);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    ck_assert_uint_le(e.most, 5);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(case_023_an_endless_loop_can_be_cancelled)
{
    endless e = {.left = 1000000000};
    culvert_future *f = culvert_then(culvert_sleep(fx.loop, 0.0), after_sleep, &e, NULL);

    for (int i = 0; i < 100; i++)
        fx_turn();
    ck_assert_int_lt(e.left, 1000000000 - 10);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
    fx_run();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("long");
    TCase *tc = fx_case(suite, "chains");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, case_022_a_chain_of_a_million_succeeds_on_a_small_stack);
    tcase_add_test(tc, case_022_a_chain_of_a_million_fails_on_a_small_stack);
    tcase_add_test(tc, case_022_a_chain_of_a_million_is_dropped_on_a_small_stack);
    tcase_add_test(tc, case_022_a_chain_of_a_million_is_cancelled_on_a_small_stack);
    tcase_add_test(tc, case_022_a_chain_of_a_million_is_shut_down_on_a_small_stack);
    tcase_add_test(tc, case_022_time_is_linear);

    tc = fx_case(suite, "loops");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, case_023_a_loop_of_a_million_steps_keeps_few_futures_alive, 0, 3);
    tcase_add_test(tc, case_023_a_loop_over_pending_futures_keeps_few_alive);
    tcase_add_test(tc, case_023_an_endless_loop_can_be_cancelled);
    return test_main((Suite *[]){suite, NULL});
}
