/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completion thread (CULVERT_WAKE_THREAD), and the loop that does not sleep (CULVERT_WAKE_SPIN).
 * no_wake_up_is_lost in test_wake.c is run with the thread too, and whole suites with both.
 */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"
#include "loop/binding.h"

#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpu_fixture f;

static void open_with(int wake, double spin_seconds)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = wake;
    options.spin_seconds = spin_seconds;
    gpu_fixture_open(&f, &options, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static uint64_t queries(void)
{
    return culvert_sim_calls("cuEventQuery");
}

static uint64_t arms(void)
{
    return culvert_sim_calls("cuLaunchHostFunc");
}

/* Threads of this process of that name. */
static int threads_named(const char *name)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[300], text[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        if (fgets(text, sizeof text, file) != NULL)
            n += strncmp(text, name, strlen(name)) == 0;
        fclose(file);
    }
    closedir(dir);
    return n;
}

/* ---- the thread ---- */

START_TEST(the_thread_wakes_a_loop_that_sleeps)
{
    enum { N = 100 };
    open_with(CULVERT_WAKE_THREAD, 0);
    uint64_t before = arms();
    unsigned turns = ev_iteration(f.ev);
    for (int i = 0; i < N; i++)
        gpu_fixture_ok(gpu_fixture_busy(&f, 0.002));
    ck_assert_uint_eq(arms(), before);
    /* A turn that submits, one that is woken, one for a timer or so: it neither spins nor ticks. */
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 6 * N);
}
END_TEST

/* Long work costs next to nothing: it is asked for ever less often, and at last every millisecond. */
START_TEST(long_work_is_hardly_asked_for)
{
    open_with(CULVERT_WAKE_THREAD, 0);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    gpu_fixture_run(&f, 0.1); /* by now it is behind the time in which it asks often */
    double begin = test_now();
    uint64_t before = queries();
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_run(&f, 0.5);
    double took = test_now() - begin;
    ck_assert_uint_gt(queries(), before); /* it does look */
    /* once a millisecond, and the watchdog ten times a second */
    ck_assert_uint_le(queries() - before, (uint64_t)(took * 1000 + took * 20 + 10));
    ck_assert_uint_le(ev_iteration(f.ev) - turns, (unsigned)(took * 30 + 10));
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
}
END_TEST

static bool nothing_out(void *arg)
{
    (void)arg;
    return !f.stream->watch.out;
}

START_TEST(it_asks_nothing_where_nothing_is_in_flight)
{
    open_with(CULVERT_WAKE_THREAD, 0);
    for (int i = 0; i < 20; i++)
        gpu_fixture_ok(culvert_stream_done(f.stream));
    gpu_fixture_until(&f, nothing_out, NULL);
    uint64_t before = culvert_sim_calls(NULL);
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_run(&f, 0.3);
    ck_assert_uint_eq(culvert_sim_calls(NULL), before);
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 4);
}
END_TEST

static void expect_post(void)
{
    double end = test_now() + 30;
    while (!culvert__hub_waiting(f.loop->hub) && test_now() < end)
        test_sleep(0.0005);
    ck_assert(culvert__hub_waiting(f.loop->hub));
}

static void ignore(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
}

/* What is wanted becomes an earlier one: it is asked for instead. */
START_TEST(an_earlier_one_takes_the_place)
{
    open_with(CULVERT_WAKE_THREAD, 0);
    culvert_stream *gate = gpu_fixture_stream(&f);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_sim_hold(culvert_stream_native(gate));
    culvert_future *held = culvert_stream_done(gate);
    culvert_future *first = culvert_stream_done(f.stream);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, culvert_ref(held));
    culvert_future *last = culvert_seq_submit(seq);
    ck_assert_double_gt(culvert_loop_arm(f.loop), 0.05);
    ck_assert(f.stream->watch.out);
    ck_assert_uint_eq(f.stream->watch.target, f.stream->enq - 1);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(first), ignore, NULL, NULL), 0);
    ck_assert_double_gt(culvert_loop_arm(f.loop), 0.05);
    ck_assert_uint_eq(f.stream->watch.target, f.stream->enq - 2);
    culvert_sim_release(culvert_stream_native(f.stream));
    expect_post(); /* nothing but the thread makes one: the loop is not turned */
    gpu_fixture_ok(first);
    ck_assert_int_eq(culvert_status(last), CULVERT_PENDING);
    culvert_sim_release(NULL);
    gpu_fixture_ok(last);
    gpu_fixture_ok(held);
    culvert_stream_unref(gate);
}
END_TEST

/* An event that has gone back to the pool and is recorded anew must not answer for what it was. */
START_TEST(an_event_that_is_recorded_anew_is_not_asked_for_the_old_work)
{
    open_with(CULVERT_WAKE_THREAD, 0);
    culvert_sim_delay("cuEventQuery", 0.002); /* so that the loop often sees the end first */
    culvert_stream *other = gpu_fixture_stream(&f);
    for (int i = 0; i < 100; i++) {
        culvert_future *future = culvert_stream_done(f.stream);
        (void)culvert_loop_arm(f.loop);
        (void)culvert__completion_poll(f.gpu);
        f.gpu->flow->watchdog = 0; /* the next look asks all, watched or not */
        (void)culvert__completion_poll(f.gpu);
        ck_assert(!f.stream->watch.out || f.stream->watch.posted ||
                  f.stream->watch.target >= f.stream->seen);
        culvert_sim_hold(culvert_stream_native(other));
        culvert_future *held = culvert_stream_done(other); /* takes the event that came back */
        gpu_fixture_ok(future);
        culvert_sim_release(NULL);
        gpu_fixture_ok(held);
    }
    culvert_sim_delay("cuEventQuery", 0);
    culvert_stream_unref(other);
}
END_TEST

/* The thread judges no answer: the loop asks again, and believes what it is told itself. */
START_TEST(an_error_that_it_is_told_wakes_the_loop)
{
    open_with(CULVERT_WAKE_THREAD, 0);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    ck_assert_double_gt(culvert_loop_arm(f.loop), 0.05);
    culvert_sim_fail("cuEventQuery", 1, 700); /* the thread's: the loop does nothing now */
    expect_post();
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    while (!f.stream->watch.out)
        ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_double_gt(culvert_loop_arm(f.loop), 0.05);
    f.dirty = true;
    culvert_sim_poison(gpu_fixture_ordinal, 700);
    expect_post();
    culvert_error err = gpu_fixture_fails(future, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, 700);
}
END_TEST

static void *another_loop(void *arg)
{
    pthread_barrier_t *barrier = arg;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_THREAD;
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    culvert_gpu *gpu = culvert_gpu_open(loop, gpu_fixture_ordinal, NULL, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    pthread_barrier_wait(barrier);
    int mine = threads_named("culvert-events");
    pthread_barrier_wait(barrier);
    for (int i = 0; i < 300; i++)
        gpu_fixture_ok(culvert_stream_done(stream));
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    return mine == 1 ? NULL : arg;
}

START_TEST(one_for_all_loops_and_only_while_there_are_some)
{
    enum { LOOPS = 4 };
    pthread_t threads[LOOPS];
    pthread_barrier_t barrier;
    open_with(CULVERT_WAKE_THREAD, 0);
    ck_assert_int_eq(threads_named("culvert-events"), 1);
    gpu_fixture_close(&f);
    ck_assert_int_eq(threads_named("culvert-events"), 0);
    open_with(CULVERT_WAKE_HOST_FUNC, 0); /* keeps the device, and needs none */
    ck_assert_int_eq(threads_named("culvert-events"), 0);
    pthread_barrier_init(&barrier, NULL, LOOPS);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < LOOPS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, another_loop, &barrier), 0);
        for (int i = 0; i < LOOPS; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            ck_assert_ptr_null(wrong);
        }
        ck_assert_int_eq(threads_named("culvert-events"), 0);
    }
    pthread_barrier_destroy(&barrier);
}
END_TEST

/* The binding goes while the thread is in the middle of a call for it. */
START_TEST(closed_while_it_asks)
{
    for (int i = 0; i < 20; i++) {
        culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
        options.wake = CULVERT_WAKE_THREAD;
        options.close_seconds = 0.001;
        gpu_fixture_open(&f, &options, NULL);
        culvert_sim_delay("cuEventQuery", 0.02);
        culvert_sim_hold(culvert_stream_native(f.stream));
        culvert_future *future = culvert_stream_done(f.stream);
        (void)culvert_loop_arm(f.loop);
        test_sleep(0.001 * (i % 4));
        culvert_unref(future);
        f.dirty = true; /* what is held is leaked */
        gpu_fixture_close(&f);
        culvert_sim_delay("cuEventQuery", 0);
        culvert_sim_release(NULL);
    }
    ck_assert_int_eq(threads_named("culvert-events"), 0);
}
END_TEST

/* ... and a call that does not return: the events stay, and nothing waits for ever. */
START_TEST(closed_while_a_call_does_not_return)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_THREAD;
    options.close_seconds = 0.001;
    gpu_fixture_open(&f, &options, NULL);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_detach(culvert_stream_done(f.stream));
    (void)culvert_loop_arm(f.loop);
    culvert_sim_delay("cuEventQuery", 8);
    test_sleep(0.02); /* the thread is in it */
    culvert_sim_loop_thread();
    culvert_stream_unref(f.stream);
    culvert_module_unref(f.module);
    f.stream = NULL;
    f.module = NULL;
    f.dirty = true;
    double begin = test_now();
    culvert_sim_delay("cuEventQuery", 0); /* for the others */
    gpu_fixture_close(&f);
    ck_assert_double_lt(test_now() - begin, 7.5);
    ck_assert_int_eq(threads_named("culvert-events"), 1); /* left alone */
    culvert_sim_release(NULL);
}
END_TEST

/* ---- no sleep ---- */

START_TEST(spin_does_not_sleep_while_work_is_in_flight)
{
    open_with(CULVERT_WAKE_SPIN, 0);
    gpu_fixture_ok(culvert_stream_done(f.stream));
    uint64_t before = arms();
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    unsigned turns = ev_iteration(f.ev);
    ev_run(f.ev, EVRUN_NOWAIT);
    for (int i = 0; i < 1000; i++)
        ev_run(f.ev, EVRUN_ONCE); /* would sleep for 0.1 s each */
    ck_assert_uint_ge(ev_iteration(f.ev) - turns, 1000);
    ck_assert_uint_eq(arms(), before);
    ck_assert_double_eq(culvert_loop_arm(f.loop), 0);
    ck_assert_ptr_null(f.stream->arm);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
    ck_assert_uint_eq(arms(), before);
}
END_TEST

/* What waits in the library only is no reason to turn. */
START_TEST(spin_sleeps_where_nothing_is_in_flight)
{
    open_with(CULVERT_WAKE_SPIN, 0);
    culvert_future *waits;
    culvert_promise *promise = culvert_promise_new(f.loop, &waits);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, waits);
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.01);
    uint64_t before = culvert_sim_calls(NULL);
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_le(culvert_sim_calls(NULL) - before, 40); /* the watchdog's look */
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 10);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(future);
}
END_TEST

static int ticks;

static void on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    ticks++;
}

START_TEST(spin_serves_timers_meanwhile)
{
    ev_timer timer;
    open_with(CULVERT_WAKE_SPIN, 0);
    ticks = 0;
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    ev_timer_init(&timer, on_tick, 0.001, 0.001);
    ev_timer_start(f.ev, &timer);
    double end = test_now() + 60;
    while (ticks < 20 && test_now() < end)
        ev_run(f.ev, EVRUN_ONCE);
    ck_assert_int_ge(ticks, 20);
    ev_timer_stop(f.ev, &timer);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
}
END_TEST

static Suite *thread_suite(void)
{
    Suite *suite = suite_create("wake_thread");
    TCase *tc = tcase_create("thread");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, the_thread_wakes_a_loop_that_sleeps);
    tcase_add_test(tc, long_work_is_hardly_asked_for);
    tcase_add_test(tc, it_asks_nothing_where_nothing_is_in_flight);
    tcase_add_test(tc, an_earlier_one_takes_the_place);
    tcase_add_test(tc, an_event_that_is_recorded_anew_is_not_asked_for_the_old_work);
    tcase_add_test(tc, one_for_all_loops_and_only_while_there_are_some);
    suite_add_tcase(suite, tc);

    tc = tcase_create("spin");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, spin_does_not_sleep_while_work_is_in_flight);
    tcase_add_test(tc, spin_sleeps_where_nothing_is_in_flight);
    tcase_add_test(tc, spin_serves_timers_meanwhile);
    suite_add_tcase(suite, tc);

    tc = tcase_create("end"); /* they leave something behind */
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, closed_while_it_asks);
    tcase_add_test(tc, closed_while_a_call_does_not_return);
    tcase_add_test(tc, an_error_that_it_is_told_wakes_the_loop); /* last: the device is lost */
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {thread_suite(), NULL};
    return test_main(suites);
}
