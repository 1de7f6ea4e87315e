/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies and fills: when sources are read, what blocks, pitches, and what is checked. */
#include "sim_test.h"

#include <stdlib.h>

enum { KB = 1024, MB = 1024 * 1024 };

/* What the device memory holds, by a copy to pinned memory. */
static uint32_t word_at(uint64_t address)
{
    uint32_t *p = sim_pinned(4);
    struct CUstream_st *s = sim_stream();
    ck_ok(cuMemcpyDtoHAsync_v2(p, address, 4, s));
    ck_ok(cuStreamSynchronize(s));
    return *p;
}

START_TEST(case_063_a_pinned_source_is_read_when_the_copy_runs)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(4);
    uint32_t *src = sim_pinned(4);
    *src = 1;
    culvert_sim_hold(s);
    ck_ok(cuMemcpyHtoDAsync_v2(d, src, 4, s));
    *src = 2;
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 2);
}
END_TEST

START_TEST(case_061_a_pageable_source_is_read_at_the_call)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(4);
    uint32_t src = 1;
    culvert_sim_hold(s);
    ck_ok(cuMemcpyHtoDAsync_v2(d, &src, 4, s));
    src = 2;
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 1);
}
END_TEST

START_TEST(registered_memory_is_pinned)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(4);
    uint32_t *src = calloc(1, 4);
    ck_ok(cuMemHostRegister_v2(src, 4, 0));
    culvert_sim_hold(s);
    ck_ok(cuMemcpyHtoDAsync_v2(d, src, 4, s));
    *src = 3;
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 3);
    ck_ok(cuMemHostUnregister(src));
    free(src);
}
END_TEST

struct uploads {
    struct CUstream_st *stream;
    uint64_t to;
    const char *from;
    size_t bytes;
    int most;
    _Atomic int n;
};

static int upload(void *arg)
{
    struct uploads *u = arg;
    while (atomic_load(&u->n) < u->most) {
        int result = cuMemcpyHtoDAsync_v2(u->to, u->from, u->bytes, u->stream);
        if (result)
            return result;
        atomic_fetch_add(&u->n, 1);
    }
    return 0;
}

START_TEST(pageable_uploads_block_at_the_63rd_of_64_kb)
{
    char *from = calloc(1, 64 * KB);
    struct uploads u = {.stream = sim_stream(),
                        .to = sim_device(64 * KB),
                        .from = from,
                        .bytes = 64 * KB,
                        .most = 70};
    culvert_sim_hold(u.stream);
    struct sim_thread_call *call = sim_in_thread(upload, &u);
    sim_until(atomic_load(&u.n) == 62);
    ck_assert(sim_still_runs(call));
    ck_assert_int_eq(atomic_load(&u.n), 62);
    culvert_sim_release(u.stream);
    ck_ok(sim_join(call));
    ck_ok(cuStreamSynchronize(u.stream));
    free(from);
}
END_TEST

START_TEST(a_pageable_upload_of_4_mb_blocks_behind_waiting_work_and_arrives_whole)
{
    uint32_t *from = malloc(4 * MB);
    for (uint32_t i = 0; i < MB; i++)
        from[i] = i * 2654435761u;
    struct uploads u = {.stream = sim_stream(),
                        .to = sim_device(4 * MB),
                        .from = (const char *)from,
                        .bytes = 4 * MB,
                        .most = 1};
    culvert_sim_hold(u.stream);
    struct sim_thread_call *call = sim_in_thread(upload, &u);
    ck_assert(sim_still_runs(call));
    culvert_sim_release(u.stream);
    ck_ok(sim_join(call));
    uint32_t *back = sim_pinned(4 * MB);
    ck_ok(cuMemcpyDtoHAsync_v2(back, u.to, 4 * MB, u.stream));
    ck_ok(cuStreamSynchronize(u.stream));
    ck_assert(memcmp(back, from, 4 * MB) == 0);
    free(from);
}
END_TEST

struct download {
    struct CUstream_st *stream;
    uint64_t from;
    uint32_t word;
};

static int download(void *arg)
{
    struct download *d = arg;
    return cuMemcpyDtoHAsync_v2(&d->word, d->from, 4, d->stream);
}

START_TEST(case_062_a_download_to_pageable_memory_waits_for_its_stream)
{
    struct download d = {.stream = sim_stream(), .from = sim_device(4)};
    culvert_sim_hold(d.stream);
    ck_ok(cuMemsetD32Async(d.from, 77, 1, d.stream));
    struct sim_thread_call *call = sim_in_thread(download, &d);
    ck_assert(sim_still_runs(call));
    culvert_sim_release(d.stream);
    ck_ok(sim_join(call));
    ck_assert_uint_eq(d.word, 77);
}
END_TEST

START_TEST(a_download_to_pinned_memory_does_not_wait)
{
    struct CUstream_st *s = sim_stream();
    uint64_t from = sim_device(4);
    uint32_t *to = sim_pinned(4);
    culvert_sim_hold(s);
    ck_ok(cuMemsetD32Async(from, 78, 1, s));
    ck_ok(cuMemcpyDtoHAsync_v2(to, from, 4, s));
    ck_assert_uint_eq(*to, 0);
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 78);
}
END_TEST

START_TEST(case_091_nothing_to_copy_is_success)
{
    struct CUstream_st *s = sim_stream();
    ck_ok(cuMemcpyHtoDAsync_v2(0, NULL, 0, s));
    ck_ok(cuMemcpyDtoHAsync_v2(NULL, 0, 0, s));
    ck_ok(cuMemcpyDtoDAsync_v2(0, 0, 0, s));
    ck_ok(cuMemsetD8Async(0, 1, 0, s));
    ck_ok(cuMemsetD32Async(0, 1, 0, s));
    ck_ok(cuStreamQuery(s));
    ck_no_violation();
}
END_TEST

START_TEST(fills_have_patterns_of_1_2_and_4_bytes)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(16);
    ck_ok(cuMemsetD32Async(d, 0x01020304, 4, s));
    ck_ok(cuMemsetD16Async(d + 4, 0xabcd, 1, s));
    ck_ok(cuMemsetD8Async(d + 8, 0x7f, 3, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 0x01020304);
    ck_assert_uint_eq(word_at(d + 4), 0x0102abcd);
    ck_assert_uint_eq(word_at(d + 8), 0x017f7f7f);
    ck_assert_uint_eq(word_at(d + 12), 0x01020304);
    ck_result(cuMemsetD32Async(d + 2, 0, 1, s), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemsetD16Async(d + 1, 0, 1, s), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(addresses_must_be_known)
{
    struct CUstream_st *s = sim_stream();
    uint32_t here = 0;
    uint64_t d = sim_device(8);
    ck_result(cuMemcpyHtoDAsync_v2((uintptr_t)&here, &here, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemcpyDtoHAsync_v2(&here, (uintptr_t)&here, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemsetD8Async((uintptr_t)&here, 0, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuMemcpyDtoDAsync_v2(d, 64, 4, s), CUDA_ERROR_INVALID_VALUE);
    ck_no_violation();
    ck_result(cuMemsetD8Async(d + 4, 0, 5, s), CUDA_ERROR_INVALID_VALUE);
    ck_violation(1, "run past the end of 8 bytes of device memory");
}
END_TEST

START_TEST(case_096_pitched_copies_copy_rows_and_check_pitches)
{
    enum { W = 5, H = 3, PITCH = 16 };
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(PITCH * H);
    unsigned char *src = (unsigned char *)sim_pinned(W * H),
                  *back = (unsigned char *)sim_pinned(W * H);
    for (int i = 0; i < W * H; i++)
        src[i] = (unsigned char)(i + 1);
    culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                .srcHost = src,
                                .srcPitch = W,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .dstDevice = d,
                                .dstPitch = PITCH,
                                .WidthInBytes = W,
                                .Height = H};
    ck_ok(cuMemcpy2DAsync_v2(&c, s));
    culvert__CUDA_MEMCPY2D b = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .srcDevice = d,
                                .srcPitch = PITCH,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                .dstHost = back,
                                .dstPitch = W,
                                .WidthInBytes = W,
                                .Height = H};
    ck_ok(cuMemcpy2DAsync_v2(&b, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert(memcmp(src, back, W * H) == 0);
    /* A part of it, by its place. */
    b.srcXInBytes = 1;
    b.srcY = 1;
    b.WidthInBytes = 2;
    b.Height = 1;
    ck_ok(cuMemcpy2DAsync_v2(&b, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(back[0], W + 2);
    c.srcPitch = W - 1;
    ck_result(cuMemcpy2DAsync_v2(&c, s), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuMemsetD8Async(d, 0, PITCH * H, s));
    c.srcPitch = 0; /* that of the width */
    ck_ok(cuMemcpy2DAsync_v2(&c, s));
    ck_ok(cuMemcpyDtoHAsync_v2(back, d + PITCH * (H - 1), W, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_mem_eq(back, src + W * (H - 1), W);
    c.srcPitch = W;
    c.dstPitch = 0;
    ck_ok(cuMemcpy2DAsync_v2(&c, s));
    ck_ok(cuMemcpyDtoHAsync_v2(back, d, W * H, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_mem_eq(back, src, W * H);
    c.dstPitch = PITCH;
    c.Height = 0;
    ck_ok(cuMemcpy2DAsync_v2(&c, s));
    c.Height = H;
    c.dstMemoryType = CULVERT__CU_MEMORYTYPE_ARRAY;
    ck_result(cuMemcpy2DAsync_v2(&c, s), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(pitched_pageable_uploads_are_read_at_the_call)
{
    enum { W = 300 * KB, H = 2 };
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(2 * W * H);
    char *src = malloc(W * H);
    memset(src, 1, W * H);
    culvert_sim_hold(s);
    culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                .srcHost = src,
                                .srcPitch = W,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .dstDevice = d,
                                .dstPitch = 2 * W,
                                .WidthInBytes = W,
                                .Height = H};
    ck_ok(cuMemcpy2DAsync_v2(&c, s));
    memset(src, 2, W * H);
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 0x01010101);
    ck_assert_uint_eq(word_at(d + 2 * W), 0x01010101);
    ck_assert_uint_eq(word_at(d + 3 * W - 4), 0x01010101);
    free(src);
}
END_TEST

START_TEST(batches_copy_each_and_name_the_one_that_failed)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(8);
    uint32_t *src = sim_pinned(8);
    src[0] = 5;
    src[1] = 6;
    culvert__CUdeviceptr dsts[] = {d, d + 4}, srcs[] = {(uintptr_t)&src[1], (uintptr_t)&src[0]};
    size_t sizes[] = {4, 4}, indices[] = {0}, failed = 0;
    culvert__CUmemcpyAttributes attributes[] = {
        {.srcAccessOrder = CULVERT__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
    ck_ok(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, indices, 1, &failed, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(d), 6);
    ck_assert_uint_eq(word_at(d + 4), 5);
    sizes[1] = 100;
    ck_result(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, indices, 1, &failed, s),
              CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(failed, 1);
    ck_result(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, indices, 1, &failed, NULL),
              CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(case_092_buffers_above_4_gib_are_sparse)
{
    const uint64_t bytes = 5ull * 1024 * MB;
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(bytes), e = sim_device(64ull * 1024 * MB);
    ck_ok(cuMemsetD32Async(d + bytes - 4, 9, 1, s));
    ck_ok(cuMemcpyDtoDAsync_v2(e + 60ull * 1024 * MB, d + bytes - 4, 4, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(e + 60ull * 1024 * MB), 9);
    size_t left, total;
    ck_ok(cuMemGetInfo_v2(&left, &total));
    ck_assert_uint_eq(total - left, bytes + 64ull * 1024 * MB);
}
END_TEST

START_TEST(values_in_stream_order)
{
    struct CUstream_st *writer = sim_stream(), *waiter = sim_stream();
    uint32_t *word = sim_pinned(8);
    uint64_t d = sim_device(4);
    ck_ok(cuStreamWaitValue32_v2(waiter, (uintptr_t)word, 5, CULVERT__CU_STREAM_WAIT_VALUE_GEQ));
    ck_ok(cuMemsetD32Async(d, 1, 1, waiter));
    for (int i = 0; i < 5; i++)
        sim_nap();
    ck_result(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
    ck_ok(cuStreamWriteValue32_v2(writer, (uintptr_t)word, 6, 0));
    ck_ok(cuStreamSynchronize(waiter));
    ck_ok(cuStreamWaitValue32_v2(waiter, (uintptr_t)word, 6, CULVERT__CU_STREAM_WAIT_VALUE_EQ));
    ck_ok(cuStreamWaitValue32_v2(waiter, (uintptr_t)word, 2, CULVERT__CU_STREAM_WAIT_VALUE_AND));
    ck_ok(cuStreamWaitValue32_v2(waiter, (uintptr_t)word, 1, CULVERT__CU_STREAM_WAIT_VALUE_NOR));
    ck_ok(cuStreamSynchronize(waiter));
    ck_result(cuStreamWriteValue32_v2(writer, (uintptr_t)word + 2, 6, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(synchronous_copies_are_over_when_they_return)
{
    uint64_t d = sim_device(4);
    uint32_t *p = sim_pinned(8);
    p[0] = 41;
    ck_ok(cuMemcpyHtoD_v2(d, &p[0], 4));
    ck_ok(cuMemcpyDtoH_v2(&p[1], d, 4));
    ck_assert_uint_eq(p[1], 41);
}
END_TEST

START_TEST(copies_between_devices)
{
    struct CUctx_st *other;
    struct CUstream_st *s = sim_stream();
    uint64_t here = sim_device(4);
    culvert__CUdeviceptr there;
    int can = 0;
    ck_ok(cuDeviceCanAccessPeer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    ck_ok(cuDevicePrimaryCtxRetain(&other, 1));
    ck_ok(cuCtxPushCurrent_v2(other));
    ck_ok(cuMemAlloc_v2(&there, 4));
    ck_ok(cuCtxPopCurrent_v2(NULL));
    ck_ok(cuMemsetD32Async(here, 1234, 1, s));
    ck_ok(cuMemcpyPeerAsync(there, other, here, sim_context, 4, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(there), 1234);
    ck_ok(cuCtxEnablePeerAccess(other, 0));
    ck_result(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ck_result(cuCtxEnablePeerAccess(sim_context, 0), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim copies");
    TCase *t = tcase_create("copies");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, case_063_a_pinned_source_is_read_when_the_copy_runs);
    tcase_add_test(t, case_061_a_pageable_source_is_read_at_the_call);
    tcase_add_test(t, registered_memory_is_pinned);
    tcase_add_test(t, pageable_uploads_block_at_the_63rd_of_64_kb);
    tcase_add_test(t, a_pageable_upload_of_4_mb_blocks_behind_waiting_work_and_arrives_whole);
    tcase_add_test(t, case_062_a_download_to_pageable_memory_waits_for_its_stream);
    tcase_add_test(t, a_download_to_pinned_memory_does_not_wait);
    tcase_add_test(t, case_091_nothing_to_copy_is_success);
    tcase_add_test(t, fills_have_patterns_of_1_2_and_4_bytes);
    tcase_add_test(t, addresses_must_be_known);
    tcase_add_test(t, case_096_pitched_copies_copy_rows_and_check_pitches);
    tcase_add_test(t, pitched_pageable_uploads_are_read_at_the_call);
    tcase_add_test(t, batches_copy_each_and_name_the_one_that_failed);
    tcase_add_test(t, case_092_buffers_above_4_gib_are_sparse);
    tcase_add_test(t, values_in_stream_order);
    tcase_add_test(t, synchronous_copies_are_over_when_they_return);
    suite_add_tcase(s, t);
    t = tcase_create("two devices");
    tcase_add_checked_fixture(t, sim_setup_two, sim_teardown);
    tcase_add_test(t, copies_between_devices);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
