/* SPDX-License-Identifier: BSD-2-Clause */
/* What is in use is given to nobody else: ranges of memory, and streams of the pool. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <pthread.h>
#include <string.h>

enum { MIB = 1024 * 1024, N = MIB / 4 };

static gpu_fixture f;

static void set_up(void)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_reserve = 64 * MIB;
    options.streams = 8;
    gpu_fixture_open(&f, NULL, &options);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

/* ---- memory ---- */

/* A buffer whose last reference another thread gives up while its sequence is being enqueued: after its
   operations, before its event is recorded. */
typedef struct released {
    culvert_buffer *buffer;
    unsigned long long took; /* what that thread then gets of the same size */
    bool called;
} released;

static void *release_and_take(void *arg)
{
    released *r = arg;
    culvert__heap *heap = f.gpu->memory->local;
    size_t bytes = culvert_buffer_size(r->buffer);
    culvert_buffer_unref(r->buffer);
    culvert__range *range = culvert__heap_take(heap, bytes, false, NULL);
    if (range != NULL) {
        r->took = culvert__range_address(range);
        culvert__heap_give(heap, range);
    }
    return NULL;
}

static int between(struct CUstream_st *stream, void *arg)
{
    released *r = arg;
    pthread_t thread;
    (void)stream;
    if (pthread_create(&thread, NULL, release_and_take, r) != 0)
        return 1;
    r->called = pthread_join(thread, NULL) == 0;
    return 0;
}

static unsigned long long address_of_a_new_one(size_t bytes)
{
    culvert_buffer *buffer = culvert_buffer_new(f.gpu, bytes, NULL);
    ck_assert_ptr_nonnull(buffer);
    unsigned long long address = culvert_buffer_address(buffer);
    culvert_buffer_unref(buffer);
    return address;
}

START_TEST(case_064_not_before_the_event_is_recorded_and_seen)
{
    released r = {.buffer = gpu_fixture_buffer(&f, MIB)};
    unsigned long long address = culvert_buffer_address(r.buffer);
    gpu_fixture_hold(&f, f.stream);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, r.buffer, 0, MIB, 7, 4);
    culvert_seq_call(seq, between, &r, NULL);
    culvert_future *future = culvert_seq_submit(seq);
    ck_assert(r.called);
    ck_assert_uint_ne(r.took, 0);
    ck_assert_uint_ne(r.took, address);
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_ne(address_of_a_new_one(MIB), address);
        gpu_fixture_run(&f, 0.001);
    }
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    gpu_fixture_idle(&f, f.stream);
    gpu_fixture_run(&f, 0.001);
    ck_assert_uint_eq(address_of_a_new_one(MIB), address); /* lowest of the free: now it is there */
}
END_TEST

/* The stream that made it is idle, another one's kernel still reads: the range is written by nobody. */
START_TEST(case_073_a_buffer_that_is_freed_lasts_as_long_as_a_kernel_elsewhere)
{
    enum { OTHERS = 40 };
    culvert_stream *reader = gpu_fixture_stream(&f);
    culvert_buffer *from = gpu_fixture_buffer(&f, MIB), *to = gpu_fixture_buffer(&f, MIB);
    unsigned long long address = culvert_buffer_address(from);
    culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};
    static unsigned words[N];
    gpu_fixture_ok(culvert_fill(f.stream, from, 0, MIB, 5, 4));
    gpu_fixture_hold(&f, reader);
    uint64_t frees = gpu_fixture_simulated() ? culvert_sim_calls("cuMemFree") : 0;
    culvert_future *read = culvert_launch(reader, gpu_fixture_kernel(&f, "add_all"), &grid,
                                          CULVERT_ARGS(CULVERT_BUFFER(to), CULVERT_BUFFER(from),
                                                       CULVERT_U32(N), CULVERT_U32(1)));
    culvert_buffer_unref(from);
    for (int i = 0; i < OTHERS; i++) {
        culvert_buffer *other = culvert_buffer_new(f.gpu, MIB, NULL);
        ck_assert_ptr_nonnull(other);
        ck_assert_uint_ne(culvert_buffer_address(other), address);
        gpu_fixture_ok(culvert_fill(f.stream, other, 0, MIB, 99, 4));
        culvert_buffer_unref(other);
    }
    ck_assert_int_eq(culvert_status(read), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(read);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    gpu_fixture_ok(culvert_download(reader, words, to, 0, MIB));
    for (unsigned i = 0; i < N; i++)
        if (words[i] != 6)
            ck_abort_msg("word %u is %u, not 6", i, words[i]);
    gpu_fixture_idle(&f, reader);
    gpu_fixture_run(&f, 0.001);
    ck_assert_uint_eq(address_of_a_new_one(MIB), address);
    culvert_buffer_unref(to);
    culvert_stream_unref(reader);
}
END_TEST

/* ---- streams ---- */

static culvert_stream *pick(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_pick(f.gpu, CULVERT_PRIORITY_NORMAL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    return stream;
}

/* Eight streams, as many as there are hardware queues: seven short requests beside a long one. */
START_TEST(case_082_short_requests_do_not_share_the_stream_of_a_long_one)
{
    enum { SHORT = 7, ROUNDS = 20 };
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_stream *busy = pick(), *streams[SHORT];
    culvert_future *futures[SHORT];
    gpu_fixture_hold(&f, busy);
    culvert_future *slow = culvert_stream_done(busy);
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SHORT; i++) {
            streams[i] = pick();
            ck_assert_ptr_ne(streams[i], busy);
            for (unsigned k = 0; k < i; k++)
                ck_assert_ptr_ne(streams[i], streams[k]); /* others are free */
            futures[i] = culvert_fill(streams[i], words, 4 * i, 4, i, 4);
        }
        for (unsigned i = 0; i < SHORT; i++) {
            gpu_fixture_ok(futures[i]); /* beside the long one */
            gpu_fixture_idle(&f, streams[i]);
            culvert_stream_unref(streams[i]);
        }
    }
    ck_assert_int_eq(culvert_status(slow), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(slow);
    culvert_stream_unref(busy);
    culvert_buffer_unref(words);
}
END_TEST

static Suite *reuse_suite(void)
{
    Suite *suite = suite_create("reuse");
    TCase *tc = tcase_create("reuse");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_064_not_before_the_event_is_recorded_and_seen);
    tcase_add_test(tc, case_073_a_buffer_that_is_freed_lasts_as_long_as_a_kernel_elsewhere);
    tcase_add_test(tc, case_082_short_requests_do_not_share_the_stream_of_a_long_one);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {reuse_suite(), NULL};
    return test_main(suites);
}
