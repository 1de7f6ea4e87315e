/* SPDX-License-Identifier: BSD-2-Clause */
/* Faults: sticky errors, and calls that a test makes fail, slow or absent. */
#include "sim_test.h"

#include "lib/clock.h"

START_TEST(a_sticky_error_is_everywhere_and_for_good)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream(), *t;
    struct CUevent_st *done = sim_event(), *pending = sim_event(), *never = sim_event(), *e;
    uint32_t *to = sim_pinned(4);
    culvert__CUdeviceptr d = sim_device(4), more;
    culvert__CUmodule m;
    int value = 0;
    ck_ok(cuEventRecord(done, other));
    culvert_sim_hold(s);
    ck_ok(sim_store(s, to, 1));
    ck_ok(cuEventRecord(pending, s));
    ck_ok(cuStreamWaitEvent(other, pending, 0));
    ck_ok(sim_store(other, to, 2));
    culvert_sim_poison(0, 700);
    ck_result(cuEventQuery(done), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuEventQuery(pending), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuEventQuery(never), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuEventSynchronize(pending), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuStreamQuery(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuEventRecord(done, other), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuStreamWaitEvent(other, done, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuMemsetD8Async(d, 0, 4, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuMemAlloc_v2(&more, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuMemFree_v2(d), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuMemFreeHost(to), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuEventCreate(&e, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuStreamCreateWithPriority(&t, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuModuleLoadDataEx(&m, sim_module(), 0, NULL, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_ok(cuDeviceGetCount(&value)); /* what needs no device still works */
    ck_ok(cuDriverGetVersion(&value));
    ck_assert_uint_eq(*to, 0); /* what was queued never ran */
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
    struct CUctx_st *again;
    ck_ok(cuDevicePrimaryCtxReset_v2(0));
    ck_result(cuDevicePrimaryCtxRetain(&again, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(a_kernel_that_faults_is_a_sticky_error)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *e = sim_event();
    uint32_t result = 719, *to = sim_pinned(4);
    void *params[] = {&result};
    ck_ok(cuStreamWaitEvent(other, e, 0));
    culvert_sim_hold(other);
    ck_ok(sim_store(other, to, 1));
    ck_ok(sim_launch("fault", s, params));
    int seen = cuEventRecord(e, s); /* the fault may have come already */
    if (seen == 0)
        ck_result(cuEventSynchronize(e), CUDA_ERROR_LAUNCH_FAILED);
    ck_result(cuStreamSynchronize(s), CUDA_ERROR_LAUNCH_FAILED);
    ck_result(cuStreamQuery(other), CUDA_ERROR_LAUNCH_FAILED);
    ck_assert_uint_eq(*to, 0);
}
END_TEST

static int synchronize(void *arg)
{
    return cuEventSynchronize(arg);
}

START_TEST(a_sticky_error_stops_kernels_and_wakes_the_blocked)
{
    struct CUstream_st *s = sim_stream();
    _Atomic uint32_t *flag = (_Atomic uint32_t *)sim_pinned(4);
    struct CUevent_st *e = sim_event();
    ck_ok(sim_spin(s, flag)); /* never set */
    ck_ok(cuEventRecord(e, s));
    struct sim_thread_call *call = sim_in_thread(synchronize, e);
    ck_assert(sim_still_runs(call));
    culvert_sim_poison(0, 702);
    ck_result(sim_join(call), CUDA_ERROR_LAUNCH_TIMEOUT);
    sim_until(culvert_sim_live("operation") == 0);
}
END_TEST

START_TEST(a_sticky_error_is_of_one_device)
{
    struct CUctx_st *other;
    ck_ok(cuDevicePrimaryCtxRetain(&other, 1));
    culvert_sim_poison(1, 700);
    ck_ok(sim_launch("nothing", sim_stream(), NULL));
    ck_ok(cuCtxSynchronize());
    ck_ok(cuCtxSetCurrent(other));
    struct CUstream_st *s;
    ck_result(cuStreamCreateWithPriority(&s, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(case_049_one_call_can_be_made_to_fail)
{
    struct CUevent_st *e = sim_event();
    culvert_sim_fail("cuEventQuery", 2, 700);
    culvert_sim_fail("cuEventQuery", 4, 999);
    culvert_sim_fail("cuEventQuery", 5, 4);
    static const int expected[] = {0, 700, 0, 999, 4, 0};
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(cuEventQuery(e), expected[i]);
    ck_assert_uint_eq(culvert_sim_calls("cuEventQuery"), 6);
}
END_TEST

START_TEST(case_038_a_call_that_fails_has_no_effect)
{
    struct CUstream_st *s = sim_stream();
    struct CUevent_st *e = sim_event();
    culvert__CUdeviceptr d = 1;
    culvert_sim_fail("cuMemAlloc", 1, 2);
    ck_result(cuMemAlloc_v2(&d, 16), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(d, 1);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    culvert_sim_fail("cuEventRecord", 1, 2);
    ck_result(cuEventRecord(e, s), CUDA_ERROR_OUT_OF_MEMORY);
    ck_ok(cuEventQuery(e)); /* never recorded */
}
END_TEST

START_TEST(calls_are_counted)
{
    uint64_t all = culvert_sim_calls(NULL), queries = culvert_sim_calls("cuStreamQuery");
    struct CUstream_st *s = sim_stream();
    for (int i = 0; i < 5; i++)
        ck_ok(cuStreamQuery(s));
    ck_assert_uint_eq(culvert_sim_calls("cuStreamQuery"), queries + 5);
    ck_assert_uint_eq(culvert_sim_calls(NULL), all + 6);
}
END_TEST

START_TEST(case_069_a_call_can_be_made_slow)
{
    culvert_sim_delay("cuEventCreate", 0.05);
    double begin = test_now();
    struct CUevent_st *e = sim_event();
    ck_assert(test_now() - begin >= 0.05);
    culvert_sim_delay("cuEventCreate", 0);
    begin = test_now();
    ck_ok(cuEventQuery(e));
    sim_event();
    ck_assert(test_now() - begin < 0.05);
}
END_TEST

START_TEST(case_098_a_function_can_be_absent)
{
    void *pfn = NULL;
    int found = -1;
    ck_ok(cuGetProcAddress_v2("cuFuncLoad", &pfn, 12040, 1, &found));
    ck_assert_ptr_nonnull(pfn);
    ck_assert_int_eq(found, CULVERT__CU_GET_PROC_ADDRESS_SUCCESS);
    culvert_sim_hide("cuFuncLoad");
    ck_ok(cuGetProcAddress_v2("cuFuncLoad", &pfn, 12040, 1, &found));
    ck_assert_ptr_null(pfn);
    ck_assert_int_eq(found, CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    ck_result(cuFuncLoad(sim_kernel("lazy")), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim faults");
    TCase *t = tcase_create("faults");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, a_sticky_error_is_everywhere_and_for_good);
    tcase_add_test(t, a_kernel_that_faults_is_a_sticky_error);
    tcase_add_test(t, a_sticky_error_stops_kernels_and_wakes_the_blocked);
    tcase_add_test(t, case_049_one_call_can_be_made_to_fail);
    tcase_add_test(t, case_038_a_call_that_fails_has_no_effect);
    tcase_add_test(t, calls_are_counted);
    tcase_add_test(t, case_069_a_call_can_be_made_slow);
    tcase_add_test(t, case_098_a_function_can_be_absent);
    suite_add_tcase(s, t);
    t = tcase_create("two devices");
    tcase_add_checked_fixture(t, sim_setup_two, sim_teardown);
    tcase_add_test(t, a_sticky_error_is_of_one_device);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
