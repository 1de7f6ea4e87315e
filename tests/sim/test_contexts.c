/* SPDX-License-Identifier: BSD-2-Clause */
/* Initialisation, devices, contexts and which one is current; fork and exit. */
#define _POSIX_C_SOURCE 200809L
#include "sim_test.h"

#include "lib/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(nothing_works_before_cuinit)
{
    int n;
    culvert_sim_reset();
    ck_result(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    ck_ok(cuDriverGetVersion(&n));
    ck_assert_int_ge(n, 12000);
    ck_result(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuInit(0));
    ck_ok(cuInit(0));
    ck_ok(cuDeviceGetCount(&n));
    ck_assert_int_eq(n, 1);
}
END_TEST

START_TEST(case_105_cuinit_can_fail_and_work_later)
{
    static const int codes[] = {802, 803, 804, 999};
    culvert_sim_reset();
    for (int i = 0; i < 4; i++)
        culvert_sim_fail("cuInit", (unsigned)i + 1, codes[i]);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(cuInit(0), codes[i]);
    ck_ok(cuInit(0));
}
END_TEST

START_TEST(there_can_be_no_device)
{
    culvert_sim_reset();
    culvert_sim_devices(0);
    ck_result(cuInit(0), CUDA_ERROR_NO_DEVICE);
    culvert_sim_devices(2);
    ck_ok(cuInit(0));
}
END_TEST

static int visible(const char *list, int devices)
{
    int n = -1;
    culvert_sim_reset();
    culvert_sim_devices(devices);
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    int result = cuInit(0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (result)
        return -result;
    ck_ok(cuDeviceGetCount(&n));
    return n;
}

START_TEST(case_103_visible_devices_are_those_of_the_list)
{
    ck_assert_int_eq(visible("", 2), -100);
    ck_assert_int_eq(visible("-1", 2), -100);
    ck_assert_int_eq(visible("99", 2), -100);
    ck_assert_int_eq(visible("garbage", 2), -100);
    ck_assert_int_eq(visible("1", 2), 1);
    ck_assert_int_eq(visible("1,0", 2), 2);
    ck_assert_int_eq(visible("0,-1,1", 2), 1);
    ck_assert_int_eq(visible("1,1", 2), 1);
    char id[2][32];
    ck_assert_int_eq(visible("1,0", 2), 2);
    ck_ok(cuDeviceGetPCIBusId(id[0], 32, 0));
    ck_ok(cuDeviceGetPCIBusId(id[1], 32, 1));
    ck_assert_str_eq(id[0], "0000:02:00.0");
    ck_assert_str_eq(id[1], "0000:01:00.0");
    ck_assert_int_eq(visible("GPU-c01e4700-514d-4000-8000-000000000001", 2), 1);
    ck_assert_int_eq(visible("GPU-", 2), -100); /* of both */
}
END_TEST

START_TEST(case_104_a_slice_is_a_device)
{
    ck_assert_int_eq(visible("MIG-377e0000-0000-0000-0000-000000000000", 2), 1);
}
END_TEST

START_TEST(devices_say_what_they_are)
{
    char name[64], id[16], small[4];
    int value;
    culvert__CUuuid a, b;
    size_t bytes;
    ck_ok(cuDeviceGetName(name, sizeof name, 0));
    ck_assert_str_eq(name, "Culvert simulated device");
    ck_ok(cuDeviceGetName(small, sizeof small, 0));
    ck_assert_str_eq(small, "Cul");
    ck_ok(cuDeviceGetAttribute(&value, CULVERT__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    ck_assert_int_eq(value, 9);
    ck_ok(cuDeviceGetAttribute(&value, CULVERT__CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 1));
    ck_assert_int_eq(value, 65535);
    ck_result(cuDeviceGetAttribute(&value, 100000, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuDeviceGetAttribute(&value, CULVERT__CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
              CUDA_ERROR_INVALID_DEVICE);
    ck_ok(cuDeviceGetUuid_v2(&a, 0));
    ck_ok(cuDeviceGetUuid_v2(&b, 1));
    ck_assert(memcmp(&a, &b, sizeof a) != 0);
    ck_ok(cuDeviceTotalMem_v2(&bytes, 1));
    ck_assert_uint_gt(bytes, 1u << 30);
    ck_result(cuDeviceGetPCIBusId(small, sizeof small, 0), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuDeviceGetPCIBusId(id, sizeof id, 0));
    ck_result(cuDeviceGet(&value, 2), CUDA_ERROR_INVALID_DEVICE);
    ck_result(cuDeviceGet(&value, -1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

static int current_is_null(void *unused)
{
    struct CUctx_st *ctx = sim_context;
    struct CUstream_st *s;
    culvert__CUdevice device;
    (void)unused;
    cuCtxSetCurrent(NULL);
    if (cuCtxGetCurrent(&ctx) != 0 || ctx)
        return 1;
    if (cuCtxGetDevice(&device) != CULVERT__CUDA_ERROR_INVALID_CONTEXT)
        return 2;
    if (cuStreamCreateWithPriority(&s, 0, 0) != CULVERT__CUDA_ERROR_INVALID_CONTEXT)
        return 3;
    return 0;
}

START_TEST(case_058_the_current_context_is_the_threads_own)
{
    struct CUctx_st *other, *ctx;
    culvert__CUdevice device;
    unsigned long long a, b;
    ck_ok(sim_join(sim_in_thread(current_is_null, NULL)));
    ck_ok(cuDevicePrimaryCtxRetain(&other, 1));
    ck_ok(cuCtxPushCurrent_v2(other));
    ck_ok(cuCtxGetDevice(&device));
    ck_assert_int_eq(device, 1);
    ck_ok(cuCtxGetId(other, &a));
    ck_ok(cuCtxGetId(sim_context, &b));
    ck_assert(a != b);
    ck_ok(cuCtxPopCurrent_v2(&ctx));
    ck_assert_ptr_eq(ctx, other);
    ck_ok(cuCtxGetCurrent(&ctx));
    ck_assert_ptr_eq(ctx, sim_context);
    ck_ok(cuCtxPopCurrent_v2(NULL));
    ck_result(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
    ck_result(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    /* Without one a launch goes by its stream; with another it is refused. */
    ck_ok(cuCtxSetCurrent(sim_context));
    struct CUstream_st *s = sim_stream();
    struct CUfunc_st *f = sim_kernel("nothing");
    culvert__CUdeviceptr d = sim_device(16), more;
    ck_ok(cuCtxSetCurrent(NULL));
    ck_ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    ck_ok(cuMemsetD8Async(d, 0, 16, s));
    ck_ok(cuStreamSynchronize(s));
    ck_result(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_CONTEXT);
    ck_result(cuMemAlloc_v2(&more, 16), CUDA_ERROR_INVALID_CONTEXT);
    ck_ok(cuCtxSetCurrent(other));
    ck_result(cuMemsetD8Async(d, 0, 16, s), CUDA_ERROR_INVALID_HANDLE);
    ck_result(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(the_last_release_ends_the_context)
{
    struct CUctx_st *again;
    struct CUstream_st *s = sim_stream();
    unsigned flags;
    int active;
    ck_ok(cuDevicePrimaryCtxRetain(&again, 0));
    ck_assert_ptr_eq(again, sim_context);
    ck_ok(cuDevicePrimaryCtxRelease_v2(0));
    ck_ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    ck_assert_int_eq(active, 1);
    ck_ok(cuStreamQuery(s));
    sim_device(16);
    sim_pinned(16);
    sim_event();
    ck_ok(cuDevicePrimaryCtxRelease_v2(0));
    ck_ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    ck_assert_int_eq(active, 0);
    ck_assert_uint_eq(culvert_sim_live("stream"), 0);
    ck_assert_uint_eq(culvert_sim_live("event"), 0);
    ck_assert_uint_eq(culvert_sim_live("module"), 0);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
    ck_result(cuStreamQuery(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    ck_result(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    ck_no_violation();
    ck_ok(cuDevicePrimaryCtxRetain(&again, 0)); /* a new one */
    ck_ok(cuCtxSetCurrent(again));
    ck_ok(cuStreamQuery(sim_stream()));
}
END_TEST

static int query_until_over(void *arg)
{
    int result;
    while ((result = cuEventQuery(arg)) == CULVERT__CUDA_ERROR_NOT_READY)
        sim_nap();
    return result;
}

START_TEST(case_056_a_reset_ends_pending_work_with_an_error)
{
    struct CUstream_st *s = sim_stream();
    struct CUevent_st *e = sim_event();
    _Atomic uint32_t *flag = (_Atomic uint32_t *)sim_pinned(4);
    ck_ok(sim_spin(sim_stream(), flag));
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuEventRecord(e, s));
    struct sim_thread_call *call = sim_in_thread(query_until_over, e);
    ck_ok(cuDevicePrimaryCtxReset_v2(0));
    ck_result(sim_join(call), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    /* The device is sound. */
    ck_ok(cuDevicePrimaryCtxRetain(&sim_context, 0));
    ck_ok(cuCtxSetCurrent(sim_context));
    ck_ok(cuStreamSynchronize(sim_stream()));
}
END_TEST

START_TEST(after_fork_the_child_has_no_driver)
{
    struct CUevent_st *e = sim_event();
    struct CUstream_st *s = sim_stream();
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int n;
        bool good = cuEventQuery(e) == CULVERT__CUDA_ERROR_NOT_INITIALIZED &&
                    cuInit(0) == CULVERT__CUDA_ERROR_NOT_INITIALIZED &&
                    cuDeviceGetCount(&n) == CULVERT__CUDA_ERROR_NOT_INITIALIZED &&
                    cuStreamSynchronize(s) == CULVERT__CUDA_ERROR_NOT_INITIALIZED;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    culvert_sim_release(s); /* the parent goes on */
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

static int use_afresh(void *unused)
{
    int n = 0;
    (void)unused;
    return cuInit(0) != 0 || cuDeviceGetCount(&n) != 0 || n != 1;
}

START_TEST(a_child_of_a_process_without_the_driver_starts_afresh)
{
    test_child child = test_child_run(use_afresh, NULL, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
}
END_TEST

static struct CUevent_st *late_event;

static void use_late(void)
{
    _exit(cuEventQuery(late_event) == 4 ? 0 : 1);
}

static int exit_while_in_use(void *unused)
{
    (void)unused;
    atexit(use_late); /* runs after the driver's own, which cuInit registers */
    sim_setup();
    late_event = sim_event();
    struct CUstream_st *s = sim_stream();
    culvert_sim_hold(s);
    sim_launch("nothing", s, NULL);
    exit(2);
}

START_TEST(case_057_at_exit_the_driver_is_gone)
{
    test_child child = test_child_run(exit_while_in_use, NULL, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
    ck_assert_str_eq(child.output, "");
}
END_TEST

START_TEST(errors_have_names_and_texts)
{
    const char *text = NULL;
    ck_ok(cuGetErrorName(700, &text));
    ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    ck_ok(cuGetErrorString(0, &text));
    ck_assert_str_eq(text, "no error");
    ck_result(cuGetErrorName(12345, &text), CUDA_ERROR_INVALID_VALUE);
    ck_assert_ptr_null(text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim contexts");
    TCase *t = tcase_create("initialisation");
    tcase_add_checked_fixture(t, NULL, sim_teardown);
    tcase_add_test(t, nothing_works_before_cuinit);
    tcase_add_test(t, case_105_cuinit_can_fail_and_work_later);
    tcase_add_test(t, there_can_be_no_device);
    tcase_add_test(t, case_103_visible_devices_are_those_of_the_list);
    tcase_add_test(t, case_104_a_slice_is_a_device);
    tcase_add_test(t, a_child_of_a_process_without_the_driver_starts_afresh);
    tcase_add_test(t, case_057_at_exit_the_driver_is_gone);
    tcase_add_test(t, errors_have_names_and_texts);
    suite_add_tcase(s, t);
    t = tcase_create("contexts");
    tcase_add_checked_fixture(t, sim_setup_two, sim_teardown);
    tcase_add_test(t, devices_say_what_they_are);
    tcase_add_test(t, case_058_the_current_context_is_the_threads_own);
    tcase_add_test(t, case_056_a_reset_ends_pending_work_with_an_error);
    tcase_add_test(t, after_fork_the_child_has_no_driver);
    suite_add_tcase(s, t);
    t = tcase_create("one context");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, the_last_release_ends_the_context);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
