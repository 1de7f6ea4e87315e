/* SPDX-License-Identifier: BSD-2-Clause */
/* Worker threads: culvert_work: DESIGN 3, rules 3, 6, 7, 16. */
#define _GNU_SOURCE
#include "loop/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { WORKERS = 4 }; /* as the fixture's binding has */

/* ---- a gate that jobs wait at ---- */

static atomic_int started, open_gate, running, most;

static void reset(void)
{
    atomic_store(&started, 0);
    atomic_store(&open_gate, 0);
    atomic_store(&running, 0);
    atomic_store(&most, 0);
}

static void *at_gate(void *arg, culvert_error *err)
{
    const int now = atomic_fetch_add(&running, 1) + 1;
    int seen = atomic_load(&most);

    (void)err;
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&open_gate))
        test_sleep(0.0005);
    atomic_fetch_sub(&running, 1);
    return arg;
}

static void until_started(int n)
{
    while (atomic_load(&started) < n)
        test_sleep(0.0005);
}

/* ---- outcomes ---- */

static pthread_t ran_on;
static int signals_blocked;

static void *where_am_i(void *arg, culvert_error *err)
{
    sigset_t set;

    (void)err;
    ran_on = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    signals_blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGUSR1);
    return arg;
}

START_TEST(work_runs_on_another_thread_with_signals_blocked_and_gives_its_value)
{
    int x = 0;
    culvert_future *f = culvert_work(fx.loop, where_am_i, &x, fx_count, NULL);

    fx_run();
    ck_assert_ptr_eq(culvert_value(f), &x);
    ck_assert_int_eq(x, 1); /* released by arg_free, which counts */
    ck_assert(!pthread_equal(ran_on, pthread_self()));
    ck_assert_int_eq(signals_blocked, 1);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

static void *go_wrong(void *arg, culvert_error *err)
{
    culvert_error_set(err, CULVERT_EUSER, 9, "no %s", "luck");
    return arg;
}

START_TEST(work_rejects_where_it_filled_the_error_and_releases_a_value)
{
    int freed = 0;
    culvert_future *f = culvert_work(fx.loop, go_wrong, &freed, NULL, fx_count);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    const culvert_error *err = culvert_get_error(f);
    ck_assert_int_eq(err->native, 9);
    ck_assert_str_eq(err->message, "no luck");
    ck_assert_str_eq(err->op, "culvert_work");
    ck_assert_ptr_nonnull(strstr(err->where, "test_work.c:"));
    ck_assert_int_eq(freed, 1);
    culvert_unref(f);
}
END_TEST

static void *positive(void *arg, culvert_error *err)
{
    err->code = 12;
    return arg;
}

START_TEST(work_with_a_positive_code_rejects)
{
    culvert_future *f = culvert_work(fx.loop, positive, NULL, NULL, fx_count);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_EUSER);
    ck_assert_ptr_nonnull(culvert_get_error(f));
    culvert_unref(f);
}
END_TEST

static void *give(void *arg, culvert_error *err)
{
    (void)err;
    return arg;
}

START_TEST(a_value_that_nobody_takes_is_released_on_the_loop)
{
    int freed = 0;

    culvert_detach(culvert_work(fx.loop, give, &freed, NULL, fx_count));
    fx_run();
    ck_assert_int_eq(freed, 1);
    culvert_detach(culvert_work(fx.loop, give, NULL, NULL, fx_count)); /* not called for NULL */
    fx_run();
}
END_TEST

/* ---- bounds and order ---- */

START_TEST(the_number_of_workers_is_bounded_and_jobs_start_in_order)
{
    enum { JOBS = 20 };
    int args[JOBS];
    culvert_future *f[JOBS];

    reset();
    for (int i = 0; i < JOBS; i++)
        f[i] = culvert_work(fx.loop, at_gate, &args[i], NULL, NULL);
    until_started(WORKERS);
    test_sleep(0.02);
    ck_assert_int_eq(atomic_load(&started), WORKERS);
    atomic_store(&open_gate, 1);
    fx_run();
    for (int i = 0; i < JOBS; i++) {
        ck_assert_ptr_eq(culvert_value(f[i]), &args[i]);
        culvert_unref(f[i]);
    }
    ck_assert_int_eq(atomic_load(&most), WORKERS);
}
END_TEST

static char order[32];
static atomic_int ordered;

static void *note_order(void *arg, culvert_error *err)
{
    (void)err;
    order[atomic_fetch_add(&ordered, 1)] = *(char *)arg;
    return NULL;
}

START_TEST(one_worker_runs_its_jobs_in_order)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    static char names[] = "abcdefghij";

    options.workers = 1;
    culvert_loop *loop = culvert_loop_new(fx.ev, &options, NULL);
    memset(order, 0, sizeof order);
    atomic_store(&ordered, 0);
    for (int i = 0; i < 10; i++)
        culvert_detach(culvert_work(loop, note_order, &names[i], NULL, NULL));
    fx_run();
    ck_assert_str_eq(order, names);
    culvert_loop_free(loop);
}
END_TEST

START_TEST(threads_are_started_only_when_jobs_find_none_idle)
{
    for (int i = 0; i < 50; i++) {
        culvert_future *f = culvert_work(fx.loop, give, NULL, NULL, NULL);
        ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
        culvert_unref(f);
    }
    /* Each job may still find the thread of the last one on its way to be idle; not more. */
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    int threads = 0;
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "Threads: %d", &threads);
    fclose(status);
    ck_assert_int_ge(threads, 2);
    ck_assert_int_le(threads, 1 + WORKERS + 1 /* of a sanitizer */);
}
END_TEST

/* No thread can be started with a stack of 128 TiB. */
static void set_stack_size(size_t size)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, size);
    ck_assert_int_eq(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
}

START_TEST(where_no_thread_can_be_started_work_is_refused_or_waits_for_one_that_is)
{
    int freed = 0;
    pthread_attr_t attr;
    size_t usual;

    pthread_getattr_default_np(&attr);
    pthread_attr_getstacksize(&attr, &usual);
    pthread_attr_destroy(&attr);
    set_stack_size((size_t)1 << 47);
    culvert_future *f = culvert_work(fx.loop, give, &freed, fx_count, fx_count);
    ck_assert_int_eq(culvert_status(f), CULVERT_ESYSTEM);
    ck_assert_int_ne(culvert_get_error(f)->native, 0);
    ck_assert_int_eq(freed, 1);
    culvert_unref(f);
    fx_run();

    set_stack_size(usual);
    reset();
    f = culvert_work(fx.loop, at_gate, NULL, NULL, NULL);
    until_started(1);
    set_stack_size((size_t)1 << 47);
    culvert_future *g = culvert_work(fx.loop, give, &freed, NULL, NULL);
    ck_assert_int_eq(culvert_status(g), CULVERT_PENDING);
    atomic_store(&open_gate, 1);
    fx_run();
    ck_assert_ptr_eq(culvert_value(g), &freed);
    culvert_unref(f);
    culvert_unref(g);
    set_stack_size(usual);
}
END_TEST

/* ---- rule 6 and 7 ---- */

START_TEST(rule_06_a_job_that_has_not_started_never_runs_when_cancelled)
{
    int freed = 0;
    culvert_future *busy[WORKERS], *f, *g;

    reset();
    for (int i = 0; i < WORKERS; i++)
        busy[i] = culvert_work(fx.loop, at_gate, NULL, NULL, NULL);
    until_started(WORKERS);
    f = culvert_work(fx.loop, at_gate, &freed, fx_count, NULL);
    g = culvert_work(fx.loop, at_gate, &freed, fx_count, NULL);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    ck_assert_int_eq(freed, 1);
    culvert_unref(g);
    ck_assert_int_eq(freed, 2);
    atomic_store(&open_gate, 1);
    fx_run();
    ck_assert_int_eq(atomic_load(&started), WORKERS);
    culvert_unref(f);
    for (int i = 0; i < WORKERS; i++)
        culvert_unref(busy[i]);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(rule_07_a_job_that_has_started_settles_with_its_real_outcome)
{
    int x = 0, y = 0;
    culvert_future *f, *g;

    reset();
    f = culvert_work(fx.loop, at_gate, &x, NULL, NULL);
    g = culvert_work(fx.loop, at_gate, &y, NULL, fx_count);
    until_started(2);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    culvert_unref(g); /* dropped: it runs on, and its value is released */
    ck_assert_int_eq(y, 0);
    atomic_store(&open_gate, 1);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    ck_assert_ptr_eq(culvert_value(f), &x);
    ck_assert_int_eq(y, 1);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

static void *go_wrong_at_gate(void *arg, culvert_error *err)
{
    (void)at_gate(arg, err);
    return go_wrong(arg, err);
}

START_TEST(rule_09_a_dropped_job_that_fails_is_not_reported)
{
    reset();
    culvert_future *f = culvert_work(fx.loop, go_wrong_at_gate, NULL, NULL, NULL);
    until_started(1);
    culvert_unref(f);
    atomic_store(&open_gate, 1);
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, 0);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- rule 16 ---- */

static void *open_soon(void *arg)
{
    test_sleep(0.05);
    atomic_store(&open_gate, 1);
    return arg;
}

START_TEST(rule_16_loop_free_waits_for_jobs_that_run_and_discards_the_others)
{
    outcome o[2 * WORKERS] = {{0}};
    int x = 0, ok = 0, shut = 0;
    pthread_t thread;

    reset();
    for (int i = 0; i < 2 * WORKERS; i++) {
        ck_assert_int_eq(culvert_on_settled(culvert_work(fx.loop, at_gate, &x, NULL, NULL), fx_keep,
                                            &o[i], NULL),
                         CULVERT_OK);
    }
    until_started(WORKERS);
    ck_assert_int_eq(pthread_create(&thread, NULL, open_soon, NULL), 0);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    for (int i = 0; i < 2 * WORKERS; i++) {
        ck_assert_int_eq(o[i].calls, 1);
        ok += o[i].status == CULVERT_OK;
        shut += o[i].status == CULVERT_ESHUTDOWN;
    }
    ck_assert_int_eq(ok, WORKERS);
    ck_assert_int_eq(shut, WORKERS);
    ck_assert_int_eq(atomic_load(&started), WORKERS);
    pthread_join(thread, NULL);
}
END_TEST

/* A job may post; it is the loop that is taken down meanwhile. */
static void *post_from_job(void *arg, culvert_error *err)
{
    int *counter = arg;

    (void)err;
    for (int i = 0; i < 100; i++) {
        if (culvert_post(fx.loop, fx_count, counter, NULL) != CULVERT_OK)
            break;
    }
    return NULL;
}

START_TEST(jobs_may_post)
{
    int counter = 0;

    culvert_detach(culvert_work(fx.loop, post_from_job, &counter, NULL, NULL));
    fx_run();
    ck_assert_int_eq(counter, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("work");
    TCase *tc = fx_case(suite, "work");

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, work_runs_on_another_thread_with_signals_blocked_and_gives_its_value);
    tcase_add_test(tc, work_rejects_where_it_filled_the_error_and_releases_a_value);
    tcase_add_test(tc, work_with_a_positive_code_rejects);
    tcase_add_test(tc, a_value_that_nobody_takes_is_released_on_the_loop);
    tcase_add_test(tc, the_number_of_workers_is_bounded_and_jobs_start_in_order);
    tcase_add_test(tc, one_worker_runs_its_jobs_in_order);
    tcase_add_test(tc, threads_are_started_only_when_jobs_find_none_idle);
    tcase_add_test(tc, where_no_thread_can_be_started_work_is_refused_or_waits_for_one_that_is);
    tcase_add_test(tc, rule_06_a_job_that_has_not_started_never_runs_when_cancelled);
    tcase_add_test(tc, rule_07_a_job_that_has_started_settles_with_its_real_outcome);
    tcase_add_test(tc, rule_09_a_dropped_job_that_fails_is_not_reported);
    tcase_add_test(tc, rule_16_loop_free_waits_for_jobs_that_run_and_discards_the_others);
    tcase_add_test(tc, jobs_may_post);
    return test_main((Suite *[]){suite, NULL});
}
