/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time: culvert_sleep, culvert_timeout: DESIGN 3, rules 7, 13; cases 17, 18, 20, 21.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <dlfcn.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a wall clock that can be set ---- */

static _Atomic long wall_shift;

typedef int clock_fn(clockid_t, struct timespec *);

int clock_gettime(clockid_t id, struct timespec *ts)
{
    static _Atomic(clock_fn *) real;
    clock_fn *fn = atomic_load(&real);

    if (fn == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "clock_gettime");
        memcpy(&fn, &symbol, sizeof fn);
        atomic_store(&real, fn);
    }
    const int result = fn(id, ts);
    if (id == CLOCK_REALTIME)
        ts->tv_sec += atomic_load(&wall_shift);
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

/* ---- sleep ---- */

START_TEST(sleep_resolves_after_its_time_and_in_order)
{
    const double before = test_now();

    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.06), fx_end, "c", NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.02), fx_end, "a", NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.04), fx_end, "b", NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "abc");
    ck_assert(test_now() - before >= 0.06);
}
END_TEST

static unsigned started_in;

static void of_next_turn(culvert_future *done, void *arg)
{
    (void)done;
    fx_note(*(const char *)arg);
    ck_assert_uint_gt(ev_iteration(fx.ev), started_in);
}

static void start_zero(culvert_future *done, void *arg)
{
    started_in = ev_iteration(fx.ev);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(culvert_future_loop(done), 0.0), of_next_turn,
                                        arg, NULL),
                     CULVERT_OK);
}

START_TEST(rule_13_zero_seconds_is_the_next_turn)
{
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.0), start_zero, "z", NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "z");
}
END_TEST

START_TEST(equal_deadlines_fire_in_the_order_of_the_calls)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";

    for (int i = 0; i < 26; i++) {
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.0), fx_end,
                                            (void *)(uintptr_t)&names[i], NULL),
                         CULVERT_OK);
    }
    fx_run();
    ck_assert_str_eq(fx.log, names);
}
END_TEST

/* The heap: whatever is started, stopped and started again, deadlines come in order. */
enum { MANY = 2000 };

static culvert__timer timers[MANY];
static uint64_t fired_last;
static int fired;

static void check_order(culvert__timer *t)
{
    ck_assert_uint_eq(t->place, 0);
    ck_assert_uint_ge(t->deadline, fired_last);
    ck_assert_uint_le(t->deadline, culvert__now());
    fired_last = t->deadline;
    fired++;
}

START_TEST(timers_started_and_stopped_at_random_fire_in_order)
{
    uint32_t random = 42;
    int started = 0;

    for (int i = 0; i < 5 * MANY; i++) {
        random = random * 1664525u + 1013904223u;
        culvert__timer *t = &timers[(random >> 8) % MANY];
        t->fire = check_order;
        if ((random >> 20) % 3 == 0)
            culvert__timer_stop(fx.loop, t);
        else
            ck_assert_int_eq(culvert__timer_start(fx.loop, t, 1e-6 * (random >> 16), true),
                             CULVERT_OK);
    }
    for (int i = 0; i < MANY; i++)
        started += timers[i].place != 0;
    ck_assert_int_gt(started, MANY / 4);
    fx_run();
    ck_assert_int_eq(fired, started);
}
END_TEST

/* ---- case 17 ---- */

static void busy_for(double seconds)
{
    const double until = test_now() + seconds;

    while (test_now() < until)
        ;
}

/* libev's own timers would count from before the callback was busy. */
static void busy_then_start(culvert_future *done, void *arg)
{
    culvert_loop *loop = culvert_future_loop(done);

    busy_for(0.3);
    ck_assert_int_eq(culvert_on_settled(culvert_timeout(culvert_sleep(loop, 0.1), 0.2), fx_keep,
                                        arg, NULL),
                     CULVERT_OK);
}

START_TEST(case_017_a_timeout_counts_from_the_call)
{
    outcome o = {0};
    const double before = test_now();

    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), busy_then_start, &o,
                                        NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_eq(o.status, CULVERT_OK);
    ck_assert(test_now() - before >= 0.4);
}
END_TEST

/* Also where the loop is late: an outcome that is there wins. */
static void busy_over_both(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    busy_for(0.1);
}

START_TEST(case_017_an_outcome_that_is_there_wins_over_a_late_timeout)
{
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(culvert_timeout(culvert_sleep(fx.loop, 0.02), 0.05),
                                        fx_keep, &o, NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.01), busy_over_both, NULL, NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_int_eq(o.status, CULVERT_OK);
}
END_TEST

/* ---- case 18 ---- */

START_TEST(case_018_odd_seconds)
{
    static const double bad[] = {-1.0, -DBL_MIN, -INFINITY, NAN, -1e300};
    static const double next[] = {0.0, -0.0, DBL_TRUE_MIN, 1e-12};
    static const double never[] = {INFINITY, 1e300, DBL_MAX, 1e12};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        culvert_future *f = culvert_sleep(fx.loop, bad[i]);
        ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
        ck_assert_str_eq(culvert_get_error(f)->op, "culvert_sleep");
        ck_assert_ptr_nonnull(strstr(culvert_get_error(f)->where, "test_timer.c:"));
        culvert_unref(f);
        f = culvert_timeout(culvert_sleep(fx.loop, INFINITY), bad[i]);
        ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
        ck_assert_str_eq(culvert_get_error(f)->op, "culvert_timeout");
        ck_assert_uint_eq(fx_live(), 1); /* the inner one is gone */
        culvert_unref(f);
        f = culvert_sleep(fx.loop, INFINITY);
        ck_assert_int_eq(culvert_await(f, bad[i]), CULVERT_EINVAL);
        culvert_unref(f);
    }
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++) {
        culvert_future *f = culvert_sleep(fx.loop, next[i]);
        culvert_future *g = culvert_timeout(culvert_sleep(fx.loop, INFINITY), next[i]);
        fx_run();
        ck_assert_int_eq(culvert_status(f), CULVERT_OK);
        ck_assert_int_eq(culvert_status(g), CULVERT_ETIMEDOUT);
        ck_assert_ptr_nonnull(culvert_get_error(g));
        culvert_unref(f);
        culvert_unref(g);
    }
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        culvert_future *f = culvert_sleep(fx.loop, never[i]);
        culvert_future *g = culvert_timeout(culvert_sleep(fx.loop, 0.001), never[i]);
        ck_assert_int_eq(culvert_await(g, 100.0), CULVERT_OK);
        ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
        culvert_unref(f);
        culvert_unref(g);
    }
}
END_TEST

/* ---- timeout ---- */

static void never_called(void *arg)
{
    (void)arg;
    ck_abort_msg("called");
}

START_TEST(timeout_rejects_drops_its_interest_and_names_its_place)
{
    outcome o = {0};
    int told = 0;
    culvert_future *inner;
    culvert_promise *p = fx_promise(&inner);

    culvert_promise_on_cancel(p, fx_count, &told, NULL);
    culvert_future *f = culvert_timeout_at("place.c:1", inner, 0.01);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(f), fx_keep, &o, NULL), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_eq(o.status, CULVERT_ETIMEDOUT);
    ck_assert_str_eq(culvert_get_error(f)->where, "place.c:1");
    ck_assert_ptr_nonnull(strstr(culvert_get_error(f)->message, "0.01"));
    ck_assert_int_eq(told, 1);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(a_timeout_of_something_others_want_leaves_it_alone)
{
    culvert_future *inner;
    culvert_promise *p = fx_promise(&inner);

    culvert_promise_on_cancel(p, never_called, NULL, NULL);
    culvert_future *f = culvert_timeout(culvert_ref(inner), 0.001);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_ETIMEDOUT);
    ck_assert_int_eq(culvert_status(inner), CULVERT_PENDING);
    culvert_resolve(p, NULL, NULL);
    fx_run();
    ck_assert_ptr_nonnull(culvert_get_error(f));
    culvert_unref(f);
    culvert_unref(inner);
}
END_TEST

START_TEST(timeout_passes_the_outcome_through)
{
    int freed = 0;
    culvert_future *f = culvert_timeout(culvert_resolved(fx.loop, &freed, fx_count), 1000.0);
    const double before = test_now();

    fx_run(); /* and does not keep the loop for 1000 s */
    ck_assert(test_now() - before < 500.0);
    ck_assert_ptr_eq(culvert_value(f), &freed);
    culvert_unref(f);
    ck_assert_int_eq(freed, 1);
}
END_TEST

START_TEST(a_cancelled_timeout_cancels_what_it_waits_for_and_leaves_no_timer)
{
    int told = 0;
    culvert_future *inner;
    culvert_promise *p = fx_promise(&inner);

    culvert_promise_on_cancel(p, fx_count, &told, NULL);
    culvert_unref(culvert_timeout(inner, 1000.0));
    fx_run();
    ck_assert_int_eq(told, 1);
    culvert_promise_drop(p);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* rule 7: started work settles with its real outcome, however early the outer future did */
static atomic_bool may_end;

static void *slow_job(void *arg, culvert_error *err)
{
    (void)err;
    while (!atomic_load(&may_end))
        test_sleep(0.001);
    return arg;
}

START_TEST(rule_07_the_timeout_settles_early_the_work_when_it_is_over)
{
    int x;
    outcome inner = {0}, outer = {0};
    culvert_future *work = culvert_work(fx.loop, slow_job, &x, NULL, NULL);
    culvert_future *f = culvert_timeout(culvert_ref(work), 0.01);

    ck_assert_int_eq(culvert_on_settled(work, fx_keep, &inner, NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &outer, NULL), CULVERT_OK);
    while (outer.calls == 0)
        ev_run(fx.ev, EVRUN_ONCE);
    ck_assert_int_eq(outer.status, CULVERT_ETIMEDOUT);
    ck_assert_int_eq(inner.calls, 0);
    atomic_store(&may_end, true);
    fx_run();
    ck_assert_int_eq(inner.calls, 1);
    ck_assert_ptr_eq(inner.value, &x);
}
END_TEST

/* ---- case 20 ---- */

static culvert_future *step_clock(culvert_future *done, void *arg)
{
    (void)done;
    atomic_store(&wall_shift, *(long *)arg);
    ev_now_update(fx.ev);
    return NULL;
}

START_TEST(case_020_stepping_the_wall_clock_changes_no_timer)
{
    static long shifts[] = {3600, -3600};
    outcome o = {0}, p = {0};
    const double before = test_now();

    culvert_detach(culvert_then(culvert_sleep(fx.loop, 0.01), step_clock, &shifts[_i], NULL));
    ck_assert_int_eq(culvert_on_settled(culvert_timeout(culvert_sleep(fx.loop, 500.0), 0.1),
                                        fx_keep, &o, NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_timeout(culvert_sleep(fx.loop, 0.1), 500.0),
                                        fx_keep, &p, NULL),
                     CULVERT_OK);
    fx_run();
    atomic_store(&wall_shift, 0);
    ck_assert_int_eq(o.status, CULVERT_ETIMEDOUT);
    ck_assert_int_eq(p.status, CULVERT_OK);
    ck_assert(test_now() - before >= 0.1);
    ck_assert(test_now() - before < 60.0);
}
END_TEST

/* ---- case 21 ---- */

static atomic_int alarms;

static void on_alarm(int signal)
{
    (void)signal;
    atomic_fetch_add(&alarms, 1);
}

static void *resolver(void *arg)
{
    culvert_promise **p = arg;

    for (int i = 0; i < 200; i++) {
        usleep(1000);
        ck_assert_int_eq(culvert_post_resolve(p[i], NULL, NULL), CULVERT_OK);
    }
    return NULL;
}

START_TEST(case_021_signals_interrupt_nothing)
{
    static culvert_promise *p[200];
    struct sigaction action = {.sa_handler = on_alarm}, old; /* no SA_RESTART */
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    pthread_t thread;
    int settled = 0;

    ck_assert_int_eq(sigaction(SIGALRM, &action, &old), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
    outcome o[200] = {{0}}, slept = {0};
    for (int i = 0; i < 200; i++) {
        culvert_future *f;
        p[i] = fx_promise(&f);
        ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o[i], NULL), CULVERT_OK);
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.001 * i), fx_keep, &slept,
                                            NULL),
                         CULVERT_OK);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, resolver, p), 0);
    culvert__loop_keep(fx.loop);
    while (settled < 200) {
        ev_run(fx.ev, EVRUN_ONCE);
        settled = 0;
        for (int i = 0; i < 200; i++)
            settled += o[i].calls;
    }
    culvert__loop_unkeep(fx.loop);
    fx_run();
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_join(thread, NULL);
    sigaction(SIGALRM, &old, NULL);
    ck_assert_int_gt(atomic_load(&alarms), 10);
    ck_assert_int_eq(slept.calls, 200);
}
END_TEST

/* Stopped for a while, and continued, again and again: a second process does it. */
START_TEST(case_021_a_process_that_is_stopped_and_continued_loses_nothing)
{
    const pid_t self = getpid(), child = fork();
    outcome o = {0};
    int status;

    if (child == 0) {
        for (int i = 0; i < 5; i++) {
            test_sleep(0.01);
            kill(self, SIGSTOP);
            test_sleep(0.01);
            kill(self, SIGCONT);
        }
        _exit(0);
    }
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.001 * i), fx_keep, &o, NULL),
                         CULVERT_OK);
    }
    fx_run();
    ck_assert_int_eq(o.calls, 100);
    ck_assert_int_eq(o.status, CULVERT_OK);
    waitpid(child, &status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timer");
    TCase *tc = fx_case(suite, "sleep");

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, sleep_resolves_after_its_time_and_in_order);
    tcase_add_test(tc, rule_13_zero_seconds_is_the_next_turn);
    tcase_add_test(tc, equal_deadlines_fire_in_the_order_of_the_calls);
    tcase_add_test(tc, timers_started_and_stopped_at_random_fire_in_order);
    tcase_add_test(tc, case_017_a_timeout_counts_from_the_call);
    tcase_add_test(tc, case_017_an_outcome_that_is_there_wins_over_a_late_timeout);
    tcase_add_test(tc, case_018_odd_seconds);

    tc = fx_case(suite, "timeout");
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, timeout_rejects_drops_its_interest_and_names_its_place);
    tcase_add_test(tc, a_timeout_of_something_others_want_leaves_it_alone);
    tcase_add_test(tc, timeout_passes_the_outcome_through);
    tcase_add_test(tc, a_cancelled_timeout_cancels_what_it_waits_for_and_leaves_no_timer);
    tcase_add_test(tc, rule_07_the_timeout_settles_early_the_work_when_it_is_over);

    tc = fx_case(suite, "clocks and signals");
    tcase_set_timeout(tc, 100);
    tcase_add_loop_test(tc, case_020_stepping_the_wall_clock_changes_no_timer, 0, 2);
    tcase_add_test(tc, case_021_signals_interrupt_nothing);
    tcase_add_test(tc, case_021_a_process_that_is_stopped_and_continued_loses_nothing);
    return test_main((Suite *[]){suite, NULL});
}
