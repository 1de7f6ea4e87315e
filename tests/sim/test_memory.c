/* SPDX-License-Identifier: BSD-2-Clause */
/* Device and pinned memory: what is refused, what blocks, what becomes of freed memory. */
#include "sim_test.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif

START_TEST(case_052_sizes_of_zero_and_registrations)
{
    culvert__CUdeviceptr d;
    void *p = &d;
    char *memory = aligned_alloc(4096, 4 * 4096);
    ck_result(cuMemAlloc_v2(&d, 0), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuMemHostAlloc(&p, 0, 0));
    ck_assert_ptr_null(p);
    ck_result(cuMemHostRegister_v2(memory, 0, 0), CUDA_ERROR_INVALID_VALUE); /* case 89 */
    ck_ok(cuMemHostRegister_v2(memory + 4096, 4096, 0));
    ck_result(cuMemHostRegister_v2(memory + 4096, 4096, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ck_result(cuMemHostRegister_v2(memory + 5000, 100, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ck_result(cuMemHostRegister_v2(memory, 4 * 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ck_ok(cuMemHostRegister_v2(memory + 8192 + 12, 100, 0)); /* no alignment is asked for */
    ck_result(cuMemHostUnregister(memory + 4096 + 8), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuMemHostUnregister(memory + 4096));
    ck_result(cuMemHostUnregister(memory + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ck_ok(cuMemHostUnregister(memory + 8192 + 12));
    p = sim_pinned(16);
    ck_result(cuMemHostUnregister(p), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemHostRegister_v2(p, 16, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuMemFreeHost(p));
    ck_ok(cuMemFree_v2(0));
    ck_ok(cuMemFreeHost(NULL));
    free(memory);
}
END_TEST

START_TEST(memory_is_counted_and_runs_out)
{
    size_t left, total;
    culvert__CUdeviceptr a, b;
    culvert_sim_memory(1000000);
    ck_ok(cuDeviceTotalMem_v2(&total, 0));
    ck_assert_uint_eq(total, 1000000);
    ck_ok(cuMemAlloc_v2(&a, 600000));
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 600000);
    ck_ok(cuMemGetInfo_v2(&left, &total));
    ck_assert_uint_eq(left, 400000);
    ck_result(cuMemAlloc_v2(&b, 400001), CUDA_ERROR_OUT_OF_MEMORY);
    ck_ok(cuMemAlloc_v2(&b, 400000));
    ck_result(cuMemAlloc_v2(&b, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    ck_ok(cuMemFree_v2(a));
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 400000);
    void *p = sim_pinned(100);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 100);
    ck_ok(cuMemFreeHost(p));
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
}
END_TEST

START_TEST(case_071_freed_memory_is_poisoned_and_its_use_is_noticed)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(4096);
    ck_ok(cuMemFree_v2(d));
    ck_result(cuMemsetD8Async(d + 100, 0, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_violation(1, "cuMemsetD8Async: use of freed memory");
    ck_result(cuMemFree_v2(d), CUDA_ERROR_INVALID_VALUE);
    ck_violation(2, "was freed before");
    ck_ok(sim_store(s, sim_pinned(4), 1)); /* a good parameter */
    ck_assert_uint_eq(culvert_sim_violations(), 2);
    struct CUstream_st *held = sim_stream(); /* the kernel never runs */
    culvert_sim_hold(held);
    ck_ok(sim_store(held, (void *)(uintptr_t)d, 1));
    ck_violation(3, "parameter 0 of store points into freed memory");
}
END_TEST

#ifndef ADDRESS_SANITIZER /* which reports any look at it */
START_TEST(small_freed_memory_holds_a_pattern)
{
    uint64_t d = sim_device(64);
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)d;
    ck_assert_uint_eq(bytes[0], 0xcd); /* fresh memory is not zero */
    ck_ok(cuMemFree_v2(d));
    ck_assert_uint_eq(bytes[0], 0xdd);
    ck_assert_uint_eq(bytes[63], 0xdd);
}
END_TEST
#endif

START_TEST(freed_addresses_are_not_handed_out_again_at_once)
{
    uint64_t d = sim_device(4096);
    ck_ok(cuMemFree_v2(d));
    for (int i = 0; i < 100; i++)
        ck_assert_uint_ne(sim_device(4096), d);
}
END_TEST

static int free_device(void *arg)
{
    return cuMemFree_v2(*(uint64_t *)arg);
}
static int free_host(void *arg)
{
    return cuMemFreeHost(*(void **)arg);
}

static int load_module(void *arg)
{
    return cuModuleLoadDataEx((culvert__CUmodule *)arg, sim_module(), 0, NULL, NULL);
}

static int launch_nothing(void *arg)
{
    return sim_launch("nothing", arg, NULL);
}

static int alloc_a_little(void *arg)
{
    return cuMemAlloc_v2((culvert__CUdeviceptr *)arg, 16);
}

/* fn waits for a running kernel, and nobody can launch meanwhile. */
static void check_waits_and_stalls(int (*fn)(void *), void *arg)
{
    _Atomic uint32_t *flag = (_Atomic uint32_t *)sim_pinned(4);
    culvert__CUdeviceptr d;
    struct CUevent_st *e = sim_event();
    struct CUstream_st *other = sim_stream();
    ck_ok(sim_spin(sim_stream(), flag));
    struct sim_thread_call *blocked = sim_in_thread(fn, arg);
    ck_assert(sim_still_runs(blocked));
    struct sim_thread_call *stalled = sim_in_thread(launch_nothing, other);
    ck_assert(sim_still_runs(stalled));
    ck_ok(sim_join(sim_in_thread(alloc_a_little, &d))); /* allocating is not held up */
    ck_ok(cuEventRecord(e, other));
    atomic_store(flag, 1);
    ck_ok(sim_join(blocked));
    ck_ok(sim_join(stalled));
    ck_ok(cuCtxSynchronize());
}

START_TEST(case_074_freeing_device_memory_waits_for_kernels_and_stalls_launches)
{
    uint64_t d = sim_device(16);
    check_waits_and_stalls(free_device, &d);
}
END_TEST

START_TEST(freeing_pinned_memory_waits_for_kernels_and_stalls_launches)
{
    void *p = sim_pinned(16);
    check_waits_and_stalls(free_host, &p);
}
END_TEST

START_TEST(loading_a_module_waits_for_kernels_and_stalls_launches)
{
    culvert__CUmodule m;
    check_waits_and_stalls(load_module, &m);
}
END_TEST

START_TEST(freeing_does_not_wait_when_nothing_runs)
{
    struct CUstream_st *s = sim_stream();
    struct CUevent_st *e = sim_event();
    uint64_t d = sim_device(16);
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuStreamSynchronize(s));
    culvert_sim_hold(s); /* with nothing on it but an event */
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuMemFree_v2(d));
    ck_result(cuEventQuery(e), CUDA_ERROR_NOT_READY);
}
END_TEST

START_TEST(pointers_have_attributes)
{
    uint64_t d = sim_device(100), value64 = 0;
    void *p = sim_pinned(50);
    int here = 0, type = 0, ordinal = -1;
    struct CUctx_st *ctx = NULL;
    size_t bytes = 0;
    ck_ok(cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
    ck_assert_int_eq(type, CULVERT__CU_MEMORYTYPE_DEVICE);
    ck_ok(cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)p));
    ck_assert_int_eq(type, CULVERT__CU_MEMORYTYPE_HOST);
    ck_ok(cuPointerGetAttribute(&ctx, CULVERT__CU_POINTER_ATTRIBUTE_CONTEXT, d));
    ck_assert_ptr_eq(ctx, sim_context);
    ck_ok(cuPointerGetAttribute(&value64, CULVERT__CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, d + 7));
    ck_assert_uint_eq(value64, d);
    ck_ok(cuPointerGetAttribute(&bytes, CULVERT__CU_POINTER_ATTRIBUTE_RANGE_SIZE, d + 7));
    ck_assert_uint_eq(bytes, 100);
    ck_result(cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (uintptr_t)&here),
              CUDA_ERROR_INVALID_VALUE);
    culvert__CUpointer_attribute attributes[] = {CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                 CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                 CULVERT__CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *host = &here, *data[] = {&type, &ordinal, &host};
    ck_ok(cuPointerGetAttributes(3, attributes, data, (uintptr_t)p));
    ck_assert_int_eq(type, CULVERT__CU_MEMORYTYPE_HOST);
    ck_assert_int_eq(ordinal, 0);
    ck_assert_ptr_eq(host, p);
    ck_ok(cuPointerGetAttributes(3, attributes, data, (uintptr_t)&here));
    ck_assert_int_eq(type, 0);
    ck_assert_int_eq(ordinal, -2);
    ck_assert_ptr_eq(host, &here);
    culvert__CUdeviceptr mapped;
    ck_ok(cuMemHostGetDevicePointer_v2(&mapped, p, 0));
    ck_assert_uint_eq(mapped, (uintptr_t)p);
    ck_result(cuMemHostGetDevicePointer_v2(&mapped, &here, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim memory");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, case_052_sizes_of_zero_and_registrations);
    tcase_add_test(t, memory_is_counted_and_runs_out);
    tcase_add_test(t, case_071_freed_memory_is_poisoned_and_its_use_is_noticed);
#ifndef ADDRESS_SANITIZER
    tcase_add_test(t, small_freed_memory_holds_a_pattern);
#endif
    tcase_add_test(t, freed_addresses_are_not_handed_out_again_at_once);
    tcase_add_test(t, case_074_freeing_device_memory_waits_for_kernels_and_stalls_launches);
    tcase_add_test(t, freeing_pinned_memory_waits_for_kernels_and_stalls_launches);
    tcase_add_test(t, loading_a_module_waits_for_kernels_and_stalls_launches);
    tcase_add_test(t, freeing_does_not_wait_when_nothing_runs);
    tcase_add_test(t, pointers_have_attributes);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
