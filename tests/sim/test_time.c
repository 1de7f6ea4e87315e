/* SPDX-License-Identifier: BSD-2-Clause */
/* Virtual time, and durations. */
#include "sim_test.h"

#include "lib/child.h"
#include "lib/clock.h"

#include <signal.h>

START_TEST(virtual_time_stands_still_until_it_is_advanced)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    culvert_sim_virtual_time(1);
    ck_ok(sim_store(s, to, 1)); /* 5 us */
    ck_ok(sim_append(s, to, 2));
    for (int i = 0; i < 5; i++)
        sim_nap();
    ck_assert_uint_eq(*to, 0);
    culvert_sim_advance(4.9e-6);
    ck_assert_uint_eq(*to, 0);
    culvert_sim_advance(0.2e-6);
    ck_assert_uint_eq(*to, 1);
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_advance(5e-6);
    ck_assert_uint_eq(*to, 12);
    ck_ok(cuStreamQuery(s));
}
END_TEST

START_TEST(operations_take_the_time_that_is_documented)
{
    enum { BYTES = 50 * 1000 * 1000 };
    struct CUevent_st *e[5];
    struct CUstream_st *s = sim_stream();
    void *p = sim_pinned(BYTES);
    uint64_t d = sim_device(2ull * BYTES);
    static const float expected[] = {5e-3f, 1.002f, 0.027f, 0.027f};
    for (int i = 0; i < 5; i++)
        ck_ok(cuEventCreate(&e[i], 0));
    culvert_sim_virtual_time(1);
    ck_ok(cuEventRecord(e[0], s));
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuEventRecord(e[1], s));
    ck_ok(cuMemcpyHtoDAsync_v2(d, p, BYTES, s));
    ck_ok(cuEventRecord(e[2], s));
    ck_ok(cuMemcpyDtoDAsync_v2(d + BYTES, d, BYTES, s));
    ck_ok(cuEventRecord(e[3], s));
    ck_ok(cuMemsetD8Async(d, 0, BYTES, s));
    ck_ok(cuEventRecord(e[4], s));
    culvert_sim_advance(1);
    for (int i = 0; i < 4; i++) {
        float ms;
        ck_ok(cuEventElapsedTime(&ms, e[i], e[i + 1]));
        ck_assert_float_eq_tol(ms, expected[i], 1e-6f);
    }
}
END_TEST

START_TEST(streams_run_side_by_side)
{
    struct CUstream_st *a = sim_stream(), *b = sim_stream(), *c = sim_stream();
    struct CUevent_st *e = sim_event();
    uint32_t *to = sim_pinned(4);
    culvert_sim_virtual_time(1);
    culvert_sim_duration("nothing", 1e-3);
    culvert_sim_duration("add", 3e-3);
    ck_ok(sim_launch("nothing", a, NULL)); /* ends at 1 ms */
    ck_ok(cuEventRecord(e, a));
    ck_ok(sim_append(b, to, 1)); /* ends at 3 ms */
    ck_ok(cuStreamWaitEvent(c, e, 0));
    ck_ok(sim_append(c, to, 2)); /* ends at 4 ms */
    culvert_sim_advance(2e-3);
    ck_ok(cuStreamQuery(a));
    ck_assert_uint_eq(*to, 0);
    culvert_sim_advance(1e-3);
    ck_ok(cuStreamQuery(b));
    ck_assert_uint_eq(*to, 1);
    culvert_sim_advance(1e-3);
    ck_assert_uint_eq(*to, 12);
}
END_TEST

static void note(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

START_TEST(advancing_awaits_host_functions)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    _Atomic int calls = 0;
    culvert_sim_virtual_time(1);
    for (int i = 0; i < 50; i++) {
        ck_ok(sim_store(s, to, 1));
        ck_ok(cuLaunchHostFunc(s, note, &calls));
    }
    culvert_sim_advance(50 * 5e-6);
    ck_assert_int_eq(atomic_load(&calls), 50);
    ck_ok(cuStreamQuery(s));
}
END_TEST

START_TEST(a_held_stream_takes_no_time)
{
    struct CUstream_st *s = sim_stream();
    culvert_sim_virtual_time(1);
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    culvert_sim_advance(1);
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_release(s);
    culvert_sim_advance(4e-6);
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_advance(2e-6);
    ck_ok(cuStreamQuery(s));
}
END_TEST

START_TEST(durations_hold_in_real_time_too)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    culvert_sim_duration("nothing", 0.05);
    double begin = test_now();
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(sim_launch("nothing", other, NULL)); /* at the same time */
    ck_assert(test_now() - begin < 0.05);
    ck_ok(cuStreamSynchronize(s));
    ck_assert(test_now() - begin >= 0.05);
    ck_ok(cuStreamSynchronize(other));
}
END_TEST

static int advance_real_time(void *unused)
{
    (void)unused;
    culvert_sim_advance(1);
    return 0;
}

START_TEST(only_virtual_time_can_be_advanced)
{
    test_child child = test_child_run(advance_real_time, NULL, 0, 60);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert(strstr(child.output, "time is not virtual") != NULL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim time");
    TCase *t = tcase_create("time");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, virtual_time_stands_still_until_it_is_advanced);
    tcase_add_test(t, operations_take_the_time_that_is_documented);
    tcase_add_test(t, streams_run_side_by_side);
    tcase_add_test(t, advancing_awaits_host_functions);
    tcase_add_test(t, a_held_stream_takes_no_time);
    tcase_add_test(t, durations_hold_in_real_time_too);
    suite_add_tcase(s, t);
    t = tcase_create("misuse");
    tcase_add_checked_fixture(t, NULL, sim_teardown);
    tcase_add_test(t, only_virtual_time_can_be_advanced);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
