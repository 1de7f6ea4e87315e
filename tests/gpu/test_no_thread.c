/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that the system does not start. A device that is opened needs some and says which; a completion
 * thread that would only have helped is done without.
 * (Linked with --wrap=pthread_create; the simulator is a library of its own and gets its threads.)
 */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "loop/binding.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);

static gpu_fixture f;
static unsigned asked;      /* for a thread, since the counting began */
static unsigned refused_at; /* this one and all after it; 0: none */
static int warnings;
static char warning[300];

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    if (++asked >= refused_at && refused_at != 0)
        return EAGAIN;
    return __real_pthread_create(thread, attr, fn, arg);
}

static void refuse(unsigned from)
{
    asked = 0;
    refused_at = from;
}

static void note_log(int level, const char *message, void *arg)
{
    (void)arg;
    if (level != CULVERT_LOG_WARNING)
        return;
    warnings++;
    strncpy(warning, message, sizeof warning - 1);
}

static void open_with(int wake)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = wake;
    options.on_log = note_log;
    warnings = 0;
    refuse(0);
    gpu_fixture_open(&f, &options, NULL);
}

static void tear_down(void)
{
    refuse(0);
    gpu_fixture_close(&f);
}

/* ---- opening ---- */

/* The nth thread that a device starts is refused, and all after it. */
static void refused_open(culvert_loop *loop, unsigned nth, const char *which)
{
    culvert_error err = CULVERT_ERROR_INIT;
    refuse(nth);
    ck_assert_ptr_null(culvert_gpu_open(loop, 0, NULL, &err));
    ck_assert_uint_eq(asked, nth);
    ck_assert_int_eq(err.code, CULVERT_ESYSTEM);
    ck_assert_int_eq(err.native, EAGAIN);
    ck_assert_str_eq(err.op, "culvert_gpu_open");
    gpu_fixture_says(&err, which);
    gpu_fixture_says(&err, strerror(EAGAIN));
    gpu_fixture_nothing_left();

    refuse(0); /* what was refused can be had later */
    culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    ck_assert_uint_ge(asked, nth);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    gpu_fixture_ok(culvert_stream_done(stream));
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
}

START_TEST(open_says_which_thread_was_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    gpu_fixture_reset();
    options.wake = CULVERT_WAKE_THREAD;
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
    refused_open(loop, 1, "the monitor thread could not be started");
    refused_open(loop, 2, "the completion thread could not be started");
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    gpu_fixture_nothing_left();
}
END_TEST

/* Where the loop is woken by host functions, the second thread is not even asked for. */
START_TEST(open_asks_for_no_thread_that_it_does_not_need)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    gpu_fixture_reset();
    options.wake = CULVERT_WAKE_HOST_FUNC;
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
    refuse(2);
    culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    ck_assert_uint_eq(asked, 1);
    refuse(0);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- late host functions, and no thread that could look instead ---- */

static bool late(void *arg)
{
    (void)arg;
    return f.gpu->flow->late;
}

static bool in_time(void *arg)
{
    return !late(arg);
}

/* Somebody else's host function holds the driver's thread; the watchdog sees it. */
static void become_late(void)
{
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    while (f.stream->arm == NULL)
        ev_run(f.ev, EVRUN_NOWAIT);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
    culvert_sim_hold(culvert_stream_native(f.stream));
    future = culvert_stream_done(f.stream);
    gpu_fixture_until(&f, late, NULL);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
}

START_TEST(the_millisecond_tick_takes_over)
{
    open_with(CULVERT_WAKE_HOST_FUNC);
    refuse(1);
    become_late();
    ck_assert_uint_ge(asked, 1);
    ck_assert_ptr_null(f.gpu->flow->thread);
    ck_assert_int_eq(warnings, 1);
    ck_assert_ptr_nonnull(strstr(warning, "looking every millisecond"));

    unsigned long long ticks = culvert__gpu_core(f.gpu)->counters.ticks;
    uint64_t arms = culvert_sim_calls("cuLaunchHostFunc");
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    double seconds;
    while ((seconds = culvert_loop_arm(f.loop)) == 0)
        ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_double_le(seconds, 0.001);
    ck_assert(!f.stream->watch.out);
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
    ck_assert_uint_gt(culvert__gpu_core(f.gpu)->counters.ticks, ticks);
    ck_assert_uint_eq(culvert_sim_calls("cuLaunchHostFunc"), arms);

    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN); /* and back */
    gpu_fixture_until(&f, in_time, NULL);
    culvert_sim_hold(culvert_stream_native(f.stream));
    future = culvert_stream_done(f.stream);
    while (f.stream->arm == NULL)
        ev_run(f.ev, EVRUN_NOWAIT);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
    ck_assert_uint_gt(culvert_sim_calls("cuLaunchHostFunc"), arms);
    ck_assert_int_eq(warnings, 1);
}
END_TEST

/* The next time that they are late a thread is asked for again, and had. */
START_TEST(a_refused_thread_is_asked_for_the_next_time)
{
    open_with(CULVERT_WAKE_HOST_FUNC);
    refuse(1);
    become_late();
    ck_assert_ptr_null(f.gpu->flow->thread);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    gpu_fixture_until(&f, in_time, NULL);
    refuse(0);
    become_late();
    ck_assert_ptr_nonnull(f.gpu->flow->thread);
    ck_assert_int_eq(warnings, 2);
    ck_assert_ptr_nonnull(strstr(warning, "a thread looks"));
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    gpu_fixture_until(&f, in_time, NULL);
}
END_TEST

static Suite *no_thread_suite(void)
{
    Suite *suite = suite_create("no_thread");
    TCase *tc = tcase_create("open");
    tcase_add_test(tc, open_says_which_thread_was_refused);
    tcase_add_test(tc, open_asks_for_no_thread_that_it_does_not_need);
    suite_add_tcase(suite, tc);
    tc = tcase_create("late");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, the_millisecond_tick_takes_over);
    tcase_add_test(tc, a_refused_thread_is_asked_for_the_next_time);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {no_thread_suite(), NULL};
    return test_main(suites);
}
