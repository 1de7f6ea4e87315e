/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory pools: stream order, thresholds, running out. */
#include "sim_test.h"

static struct CUmemPoolHandle_st *pool(void)
{
    struct CUmemPoolHandle_st *p = NULL;
    culvert__CUmemPoolProps props = {.allocType = CULVERT__CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CULVERT__CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    ck_ok(cuMemPoolCreate(&p, &props));
    return p;
}

static uint64_t attribute(struct CUmemPoolHandle_st *p, int which)
{
    uint64_t value = 0;
    ck_ok(cuMemPoolGetAttribute(p, which, &value));
    return value;
}

#define RESERVED(p) attribute(p, CULVERT__CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(p)     attribute(p, CULVERT__CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

START_TEST(freeing_is_in_stream_order)
{
    struct CUmemPoolHandle_st *p = pool();
    struct CUstream_st *s = sim_stream();
    culvert__CUdeviceptr a, b;
    uint32_t *word = sim_pinned(4);
    ck_ok(cuMemAllocFromPoolAsync(&a, 1000, p, s));
    ck_assert_uint_eq(USED(p), 1024);
    culvert_sim_hold(s);
    ck_ok(cuMemsetD32Async(a, 3, 1, s));
    ck_ok(cuMemcpyDtoHAsync_v2(word, a, 4, s));
    ck_ok(cuMemFreeAsync(a, s));
    ck_assert_uint_eq(USED(p), 1024);
    ck_ok(cuMemAllocFromPoolAsync(&b, 1000, p, s)); /* not the one that is still in use */
    ck_assert_uint_ne(a, b);
    culvert_sim_release(s);
    uint64_t keep = 1 << 20;
    ck_ok(cuMemPoolSetAttribute(p, CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*word, 3);
    ck_assert_uint_eq(USED(p), 1024);
    ck_assert_uint_eq(RESERVED(p), 2048);
    culvert__CUdeviceptr again;
    ck_ok(cuMemAllocFromPoolAsync(&again, 900, p, s));
    ck_assert_uint_eq(again, a);
    ck_ok(cuMemFreeAsync(again, s));
    ck_ok(cuMemFreeAsync(b, s));
    ck_ok(cuStreamSynchronize(s));
    ck_result(cuMemsetD8Async(a, 0, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_violation(1, "use of freed memory");
    ck_ok(cuMemPoolDestroy(p));
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
}
END_TEST

START_TEST(case_077_the_threshold_is_zero_at_first)
{
    struct CUmemPoolHandle_st *p = pool();
    struct CUstream_st *s = sim_stream();
    culvert__CUdeviceptr a;
    ck_assert_uint_eq(attribute(p, CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    ck_ok(cuMemAllocFromPoolAsync(&a, 512, p, s));
    ck_ok(cuMemFreeAsync(a, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(RESERVED(p), 0);
    ck_assert_uint_eq(attribute(p, CULVERT__CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 512);
}
END_TEST

START_TEST(case_076_memory_is_out_although_the_pool_has_some)
{
    struct CUmemPoolHandle_st *p = pool();
    struct CUstream_st *s = sim_stream();
    culvert__CUdeviceptr a, b;
    uint64_t keep = UINT64_MAX;
    culvert_sim_memory(1 << 20);
    ck_ok(cuMemPoolSetAttribute(p, CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    ck_ok(cuMemAllocFromPoolAsync(&a, 700000, p, s));
    ck_ok(cuMemFreeAsync(a, s));
    ck_ok(cuStreamSynchronize(s));
    ck_result(cuMemAllocFromPoolAsync(&b, 900000, p, s), CUDA_ERROR_OUT_OF_MEMORY);
    ck_ok(cuMemPoolTrimTo(p, 0));
    ck_ok(cuMemAllocFromPoolAsync(&b, 900000, p, s));
}
END_TEST

START_TEST(blocks_can_be_freed_at_once_and_outlive_their_pool)
{
    struct CUmemPoolHandle_st *p = pool();
    struct CUstream_st *s = sim_stream();
    culvert__CUdeviceptr a, b;
    struct CUmemPoolHandle_st *of = NULL;
    ck_ok(cuMemAllocFromPoolAsync(&a, 512, p, s));
    ck_ok(cuMemAllocFromPoolAsync(&b, 512, p, s));
    ck_ok(cuPointerGetAttribute(&of, CULVERT__CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    ck_assert_ptr_eq(of, p);
    ck_ok(cuMemFree_v2(a));
    ck_result(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    ck_violation(1, "was freed before");
    ck_ok(cuMemPoolDestroy(p));
    ck_assert_uint_eq(culvert_sim_live("pool"), 0);
    ck_ok(cuMemsetD8Async(b, 0, 512, s));
    ck_ok(cuMemFreeAsync(b, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
}
END_TEST

START_TEST(arguments_are_checked)
{
    struct CUmemPoolHandle_st *p = pool(), *q;
    culvert__CUdeviceptr a;
    culvert__CUmemPoolProps props = {.allocType = CULVERT__CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CULVERT__CU_MEM_LOCATION_TYPE_DEVICE, 5}};
    culvert__CUmemAccessDesc access = {{CULVERT__CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       CULVERT__CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ck_result(cuMemPoolCreate(&q, &props), CUDA_ERROR_INVALID_DEVICE);
    a = 7;
    ck_ok(cuMemAllocFromPoolAsync(&a, 0, p, NULL));
    ck_assert_uint_eq(a, 0);
    ck_ok(cuMemFreeAsync(0, NULL));
    ck_result(cuMemAllocFromPoolAsync(&a, SIZE_MAX, p, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuMemPoolSetAccess(p, &access, 1));
    access.location.id = 7;
    ck_result(cuMemPoolSetAccess(p, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    ck_result(cuMemFreeAsync(sim_device(16), NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim pools");
    TCase *t = tcase_create("pools");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, freeing_is_in_stream_order);
    tcase_add_test(t, case_077_the_threshold_is_zero_at_first);
    tcase_add_test(t, case_076_memory_is_out_although_the_pool_has_some);
    tcase_add_test(t, blocks_can_be_freed_at_once_and_outlive_their_pool);
    tcase_add_test(t, arguments_are_checked);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
