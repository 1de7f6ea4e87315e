/* SPDX-License-Identifier: BSD-2-Clause */
/* Host functions: their thread, their order, what they may not do, and what a sticky error does. */
#define _GNU_SOURCE
#include "sim_test.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static void count(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

struct gate {
    _Atomic int entered, open;
    pthread_t thread;
};

static void wait_at(void *arg)
{
    struct gate *g = arg;
    g->thread = pthread_self();
    atomic_store(&g->entered, 1);
    while (!atomic_load(&g->open))
        sim_nap();
}

START_TEST(a_host_function_holds_up_its_stream)
{
    struct CUstream_st *s = sim_stream();
    struct gate g = {0};
    uint32_t *to = sim_pinned(4);
    ck_ok(cuLaunchHostFunc(s, wait_at, &g));
    ck_ok(sim_store(s, to, 1));
    sim_until(atomic_load(&g.entered));
    sim_nap();
    ck_assert_uint_eq(*to, 0);
    atomic_store(&g.open, 1);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 1);
}
END_TEST

START_TEST(case_041_one_thread_runs_all_host_functions)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream(), *third = sim_stream();
    struct gate first = {0}, second = {.open = 1};
    _Atomic int calls = 0;
    ck_ok(cuLaunchHostFunc(s, wait_at, &first));
    sim_until(atomic_load(&first.entered));
    ck_ok(cuLaunchHostFunc(other, wait_at, &second));
    ck_ok(sim_launch("nothing", third, NULL));
    ck_ok(cuStreamSynchronize(third)); /* kernels go on */
    ck_assert_int_eq(atomic_load(&second.entered), 0);
    atomic_store(&first.open, 1);
    ck_ok(cuStreamSynchronize(other));
    ck_assert_int_eq(atomic_load(&second.entered), 1);
    ck_assert(pthread_equal(first.thread, second.thread));
    ck_assert(!pthread_equal(first.thread, pthread_self()));
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_int_eq(atomic_load(&calls), 1);
}
END_TEST

struct nested {
    struct CUstream_st *stream;
    struct CUevent_st *event;
    int results[5];
};

static void call_the_driver(void *arg)
{
    struct nested *n = arg;
    struct CUctx_st *ctx;
    n->results[0] = cuStreamQuery(n->stream);
    n->results[1] = cuEventRecord(n->event, n->stream);
    n->results[2] = cuCtxPushCurrent_v2(sim_context);
    n->results[3] = cuCtxGetCurrent(&ctx);
    n->results[4] = cuEventQuery(n->event);
}

START_TEST(case_032_a_host_function_may_not_call_the_driver)
{
    struct CUstream_st *s = sim_stream();
    struct nested n = {.stream = sim_stream(), .event = sim_event()};
    culvert_sim_hold(n.stream);
    ck_ok(cuLaunchHostFunc(s, call_the_driver, &n));
    ck_ok(cuStreamSynchronize(s));
    ck_violation(5, "cuEventQuery called from a host function");
    ck_assert_int_eq(n.results[0], 0); /* a violation that works */
    ck_assert_int_eq(n.results[1], 0);
    ck_assert_int_eq(n.results[2], CULVERT__CUDA_ERROR_NOT_PERMITTED);
    ck_assert_int_eq(n.results[3], CULVERT__CUDA_ERROR_NOT_PERMITTED);
    ck_assert_int_eq(n.results[4], CULVERT__CUDA_ERROR_NOT_READY);
    culvert_sim_release(n.stream);
    ck_ok(cuEventSynchronize(n.event));
}
END_TEST

START_TEST(the_host_function_thread_can_stand_still)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    _Atomic int calls = 0;
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    ck_ok(sim_launch("nothing", other, NULL));
    ck_ok(cuStreamSynchronize(other));
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_int_eq(atomic_load(&calls), 1);
}
END_TEST

/* A host function on each of 61 streams, which nothing but the first one can hold up. */
struct many {
    struct CUstream_st *streams[61];
    _Atomic int launched, calls;
};

static int launch_on_all(void *arg)
{
    struct many *m = arg;
    for (int i = 0; i < 61; i++) {
        int result = cuLaunchHostFunc(m->streams[i], count, &m->calls);
        if (result)
            return result;
        atomic_fetch_add(&m->launched, 1);
    }
    return 0;
}

static int loop_launches_on_all(void *arg)
{
    culvert_sim_loop_thread();
    return launch_on_all(arg);
}

static void check_the_61st_waits(int (*fn)(void *))
{
    struct many m = {0};
    for (int i = 0; i < 61; i++) {
        m.streams[i] = sim_stream();
        culvert_sim_hold(m.streams[i]);
    }
    struct sim_thread_call *call = sim_in_thread(fn, &m);
    sim_until(atomic_load(&m.launched) == 60);
    ck_assert(sim_still_runs(call));
    for (int i = 0; i < 3; i++)
        ck_ok(cuLaunchHostFunc(m.streams[0], count, &m.calls)); /* more on one that has some */
    culvert_sim_release(m.streams[1]);
    ck_ok(sim_join(call));
    culvert_sim_release(NULL);
    ck_ok(cuCtxSynchronize());
    ck_assert_int_eq(atomic_load(&m.calls), 61 + 3);
}

START_TEST(sixty_streams_have_host_functions_and_the_next_one_waits)
{
    check_the_61st_waits(launch_on_all);
    ck_no_violation();
}
END_TEST

START_TEST(a_loop_thread_must_not_wait_for_host_functions_of_others)
{
    check_the_61st_waits(loop_launches_on_all);
    ck_violation(1,
                 "cuLaunchHostFunc blocks the loop thread: too many streams have a host function");
}
END_TEST

START_TEST(case_036_none_runs_after_a_sticky_error)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct gate g = {0};
    _Atomic int calls = 0;
    ck_ok(cuLaunchHostFunc(s, wait_at, &g)); /* running: it ends */
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    sim_until(atomic_load(&g.entered));
    ck_ok(cuLaunchHostFunc(other, count, &calls));
    culvert_sim_poison(0, 700);
    atomic_store(&g.open, 1);
    sim_until(culvert_sim_live("operation") == 0);
    ck_assert_int_eq(atomic_load(&calls), 0);
    ck_result(cuLaunchHostFunc(s, count, &calls), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(case_037_they_can_be_made_to_run_all_the_same)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    _Atomic int calls = 0;
    culvert_sim_host_functions(CULVERT_SIM_HOST_ALWAYS);
    culvert_sim_hold(s);
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    ck_ok(cuLaunchHostFunc(other, count, &calls));
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    culvert_sim_poison(0, 700);
    sim_until(culvert_sim_live("operation") == 0);
    ck_assert_int_eq(atomic_load(&calls), 3);
    ck_result(cuStreamQuery(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

static _Atomic int statuses;

static void note_status(culvert__CUstream stream, culvert__CUresult status, void *arg)
{
    (void)stream;
    atomic_store(&statuses, status);
    atomic_fetch_add((_Atomic int *)arg, 1);
}

START_TEST(callbacks_run_with_the_status)
{
    struct CUstream_st *s = sim_stream();
    _Atomic int calls = 0;
    atomic_store(&statuses, -1);
    ck_ok(cuStreamAddCallback(s, note_status, &calls, 0));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_int_eq(atomic_load(&statuses), 0);
    culvert_sim_hold(s);
    ck_ok(cuStreamAddCallback(s, note_status, &calls, 0));
    culvert_sim_poison(0, 719);
    sim_until(atomic_load(&calls) == 2);
    ck_assert_int_eq(atomic_load(&statuses), 719);
}
END_TEST

START_TEST(reset_awaits_a_running_host_function)
{
    struct CUstream_st *s = sim_stream();
    struct gate g = {.open = 1};
    _Atomic int calls = 0;
    ck_ok(cuLaunchHostFunc(s, wait_at, &g));
    culvert_sim_hold(s);
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    culvert_sim_reset();
    ck_assert_int_eq(atomic_load(&calls), 0);
}
END_TEST

/* Somebody's lock. */
struct taken {
    pthread_mutex_t lock;
    _Atomic int entered;
    int result;
};

static void take_lock(void *arg)
{
    struct taken *t = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    atomic_store(&t->entered, 1);
    t->result = pthread_mutex_timedlock(&t->lock, &until);
    if (t->result == 0)
        pthread_mutex_unlock(&t->lock);
}

/* A host function wants a lock that is held over a call of the driver. */
static int want_a_lock_held_over_a_call(struct CUstream_st *s)
{
    struct taken t = {.lock = PTHREAD_MUTEX_INITIALIZER};
    unsigned flags;
    pthread_mutex_lock(&t.lock);
    ck_ok(cuLaunchHostFunc(s, take_lock, &t));
    sim_until(atomic_load(&t.entered));
    ck_ok(cuStreamGetFlags(s, &flags));
    pthread_mutex_unlock(&t.lock);
    ck_ok(cuStreamSynchronize(s)); /* lets go of the driver's lock */
    return t.result;
}

START_TEST(case_034_a_lock_of_the_driver_in_calls_and_host_functions)
{
    struct CUstream_st *s = sim_stream();
    ck_assert_int_eq(want_a_lock_held_over_a_call(s), 0);
    culvert_sim_driver_lock(1);
    ck_assert_int_eq(want_a_lock_held_over_a_call(s), ETIMEDOUT);
    culvert_sim_driver_lock(0);
    ck_assert_int_eq(want_a_lock_held_over_a_call(s), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim host functions");
    TCase *t = tcase_create("host functions");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, a_host_function_holds_up_its_stream);
    tcase_add_test(t, case_041_one_thread_runs_all_host_functions);
    tcase_add_test(t, case_032_a_host_function_may_not_call_the_driver);
    tcase_add_test(t, the_host_function_thread_can_stand_still);
    tcase_add_test(t, sixty_streams_have_host_functions_and_the_next_one_waits);
    tcase_add_test(t, a_loop_thread_must_not_wait_for_host_functions_of_others);
    tcase_add_test(t, case_036_none_runs_after_a_sticky_error);
    tcase_add_test(t, case_037_they_can_be_made_to_run_all_the_same);
    tcase_add_test(t, callbacks_run_with_the_status);
    tcase_add_test(t, reset_awaits_a_running_host_function);
    tcase_add_test(t, case_034_a_lock_of_the_driver_in_calls_and_host_functions);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
