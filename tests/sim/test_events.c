/* SPDX-License-Identifier: BSD-2-Clause */
/* Events: what a record is, waiting for it, querying it, and its time. */
#include "sim_test.h"

START_TEST(case_050_an_event_never_recorded_queries_as_success)
{
    struct CUevent_st *e = sim_event();
    ck_ok(cuEventQuery(e));
    ck_ok(cuEventSynchronize(e));
}
END_TEST

START_TEST(waiting_for_an_event_never_recorded_is_no_wait)
{
    struct CUevent_st *e = sim_event();
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    ck_ok(cuStreamWaitEvent(s, e, 0));
    culvert_sim_hold(other);
    ck_ok(cuEventRecord(e, other)); /* later: not waited for */
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

START_TEST(an_event_is_ready_when_what_was_before_it_is_over)
{
    struct CUstream_st *s = sim_stream();
    struct CUevent_st *e = sim_event();
    uint32_t *to = sim_pinned(4);
    culvert_sim_hold(s);
    ck_ok(sim_store(s, to, 3));
    ck_ok(cuEventRecord(e, s));
    ck_result(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    culvert_sim_release(s);
    ck_ok(cuEventSynchronize(e));
    ck_assert_uint_eq(*to, 3);
    ck_ok(cuEventQuery(e));
}
END_TEST

START_TEST(case_066_a_record_is_not_that_of_the_next_step)
{
    struct CUstream_st *s = sim_stream(), *waiter = sim_stream();
    struct CUevent_st *e = sim_event();
    _Atomic uint32_t *flags = (_Atomic uint32_t *)sim_pinned(8);
    ck_ok(sim_spin(s, &flags[0]));
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuStreamWaitEvent(waiter, e, 0)); /* the first record */
    ck_ok(sim_launch("nothing", waiter, NULL));
    ck_ok(sim_spin(s, &flags[1]));
    ck_ok(cuEventRecord(e, s)); /* again, while the waiter waits */
    atomic_store(&flags[0], 1);
    ck_ok(cuStreamSynchronize(waiter));
    ck_result(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    atomic_store(&flags[1], 1);
    ck_ok(cuEventSynchronize(e));
}
END_TEST

START_TEST(case_067_only_the_last_record_counts)
{
    struct CUstream_st *slow = sim_stream(), *fast = sim_stream(), *waiter = sim_stream();
    struct CUevent_st *e = sim_event();
    uint32_t *to = sim_pinned(4);
    culvert_sim_hold(slow);
    ck_ok(sim_store(slow, to, 1));
    ck_ok(cuEventRecord(e, slow));
    ck_ok(cuEventRecord(e, fast));
    ck_ok(cuStreamWaitEvent(waiter, e, 0));
    ck_ok(cuStreamSynchronize(waiter)); /* it does not wait for the slow one */
    ck_ok(cuEventQuery(e));
}
END_TEST

START_TEST(a_chain_of_waits_orders_streams)
{
    enum { N = 20 };
    struct CUstream_st *s[N];
    struct CUevent_st *e[N];
    uint32_t *to = sim_pinned(4);
    for (int i = 0; i < N; i++) {
        s[i] = sim_stream();
        e[i] = sim_event();
    }
    culvert_sim_hold(s[0]);
    for (int i = 0; i < N; i++) {
        if (i > 0)
            ck_ok(cuStreamWaitEvent(s[i], e[i - 1], 0));
        ck_ok(sim_append(s[i], to, (uint32_t)i % 2));
        ck_ok(cuEventRecord(e[i], s[i]));
    }
    culvert_sim_release(s[0]);
    ck_ok(cuEventSynchronize(e[N - 1]));
    uint32_t expected = 0;
    for (int i = 0; i < N; i++)
        expected = expected * 10 + (uint32_t)i % 2;
    ck_assert_uint_eq(*to, expected);
}
END_TEST

START_TEST(many_streams_wait_for_one_event)
{
    struct CUstream_st *first = sim_stream(), *s[32];
    struct CUevent_st *e = sim_event();
    uint32_t *to = sim_pinned(4 * 33);
    culvert_sim_hold(first);
    ck_ok(sim_store(first, to, 1));
    ck_ok(cuEventRecord(e, first));
    for (int i = 0; i < 32; i++) {
        s[i] = sim_stream();
        ck_ok(cuStreamWaitEvent(s[i], e, 0));
        ck_ok(sim_store(s[i], to + 1 + i, 1));
    }
    ck_ok(cuEventDestroy_v2(e)); /* the waits keep what they took */
    culvert_sim_release(first);
    ck_ok(cuCtxSynchronize());
    for (int i = 0; i < 33; i++)
        ck_assert_uint_eq(to[i], 1);
    ck_no_violation();
}
END_TEST

START_TEST(a_destroyed_event_cannot_be_used)
{
    struct CUevent_st *e = sim_event();
    ck_ok(cuEventDestroy_v2(e));
    ck_result(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
    ck_violation(1, "cuEventQuery: event");
    ck_result(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_uint_eq(culvert_sim_violations(), 1);
}
END_TEST

START_TEST(times_lie_apart_as_the_events_do)
{
    struct CUevent_st *a, *b, *untimed = sim_event();
    struct CUstream_st *s = sim_stream();
    float ms = -1;
    ck_ok(cuEventCreate(&a, CULVERT__CU_EVENT_DEFAULT));
    ck_ok(cuEventCreate(&b, CULVERT__CU_EVENT_DEFAULT));
    ck_result(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE); /* never recorded */
    culvert_sim_virtual_time(1);
    culvert_sim_duration("nothing", 2.5e-3);
    ck_ok(cuEventRecord(a, s));
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuEventRecord(b, s));
    ck_result(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    culvert_sim_advance(1);
    ck_ok(cuEventElapsedTime(&ms, a, b));
    ck_assert_float_eq_tol(ms, 2.5f, 1e-5f);
    ck_ok(cuEventElapsedTime(&ms, b, a));
    ck_assert_float_eq_tol(ms, -2.5f, 1e-5f);
    ck_ok(cuEventRecord(untimed, s));
    ck_result(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
    ck_result(cuEventElapsedTime(NULL, a, b), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(flags_are_checked)
{
    struct CUevent_st *e;
    ck_result(cuEventCreate(&e, 8), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuEventCreate(&e, CULVERT__CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuEventCreate(&e, CULVERT__CU_EVENT_INTERPROCESS | CULVERT__CU_EVENT_DISABLE_TIMING));
    ck_result(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuStreamWaitEvent(sim_stream(), e, 2), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(case_068_an_event_is_of_one_context)
{
    struct CUctx_st *other;
    struct CUevent_st *mine = sim_event(), *theirs;
    struct CUstream_st *s = sim_stream(), *t;
    ck_ok(cuDevicePrimaryCtxRetain(&other, 1));
    ck_ok(cuCtxPushCurrent_v2(other));
    ck_ok(cuEventCreate(&theirs, CULVERT__CU_EVENT_DISABLE_TIMING));
    t = sim_stream();
    ck_result(cuEventRecord(mine, t), CUDA_ERROR_INVALID_HANDLE);
    ck_ok(cuEventRecord(theirs, t));
    ck_ok(cuCtxPopCurrent_v2(NULL));
    /* Waiting goes across devices. */
    culvert_sim_hold(t);
    ck_ok(cuMemsetD8Async(sim_device(4), 0, 4, s));
    ck_ok(cuStreamWaitEvent(s, theirs, 0));
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

START_TEST(waiting_goes_across_devices)
{
    struct CUctx_st *other;
    struct CUevent_st *e;
    struct CUstream_st *s = sim_stream(), *t;
    culvert__CUdeviceptr p;
    ck_ok(cuDevicePrimaryCtxRetain(&other, 1));
    ck_ok(cuCtxPushCurrent_v2(other));
    ck_ok(cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING));
    ck_ok(cuMemAlloc_v2(&p, 4));
    t = sim_stream();
    culvert_sim_hold(t);
    ck_ok(cuMemsetD8Async(p, 0, 4, t));
    ck_ok(cuEventRecord(e, t));
    ck_ok(cuCtxPopCurrent_v2(NULL));
    ck_ok(cuStreamWaitEvent(s, e, 0));
    ck_ok(sim_launch("nothing", s, NULL));
    sim_nap();
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_release(t);
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim events");
    TCase *t = tcase_create("events");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, case_050_an_event_never_recorded_queries_as_success);
    tcase_add_test(t, waiting_for_an_event_never_recorded_is_no_wait);
    tcase_add_test(t, an_event_is_ready_when_what_was_before_it_is_over);
    tcase_add_test(t, case_066_a_record_is_not_that_of_the_next_step);
    tcase_add_test(t, case_067_only_the_last_record_counts);
    tcase_add_test(t, a_chain_of_waits_orders_streams);
    tcase_add_test(t, many_streams_wait_for_one_event);
    tcase_add_test(t, a_destroyed_event_cannot_be_used);
    tcase_add_test(t, times_lie_apart_as_the_events_do);
    tcase_add_test(t, flags_are_checked);
    suite_add_tcase(s, t);
    t = tcase_create("two devices");
    tcase_add_checked_fixture(t, sim_setup_two, sim_teardown);
    tcase_add_test(t, case_068_an_event_is_of_one_context);
    tcase_add_test(t, waiting_goes_across_devices);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
