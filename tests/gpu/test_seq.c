/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of sequences: what they do, in which order, and what is refused before the driver hears of it. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

static gpu_fixture f;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static uint64_t calls(const char *function)
{
    return gpu_fixture_simulated() ? culvert_sim_calls(function) : 0;
}

/* ---- what they do ---- */

START_TEST(an_upload_and_a_download_carry_bytes)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 1000);
    unsigned char in[100], out[1000];
    for (int i = 0; i < 100; i++)
        in[i] = (unsigned char)(i + 1);
    gpu_fixture_ok(culvert_upload(f.stream, buffer, 333, in, sizeof in));
    gpu_fixture_ok(culvert_download(f.stream, out, buffer, 0, sizeof out));
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(out[i], i >= 333 && i < 433 ? i - 332 : 0);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(pinned_memory_is_copied_directly)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_buffer *host = gpu_fixture_host_buffer(&f, 8192);
    unsigned char *bytes = culvert_buffer_data(host);
    memset(bytes, 7, 4096);
    gpu_fixture_ok(culvert_upload(f.stream, buffer, 0, bytes, 4096));
    gpu_fixture_ok(culvert_download(f.stream, bytes + 4096, buffer, 0, 4096));
    ck_assert_mem_eq(bytes, bytes + 4096, 4096);
    culvert_buffer_unref(host);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_copy_goes_between_any_two_buffers)
{
    culvert_buffer *a = gpu_fixture_buffer(&f, 256), *b = gpu_fixture_buffer(&f, 256);
    culvert_buffer *h = gpu_fixture_host_buffer(&f, 256), *k = gpu_fixture_host_buffer(&f, 256);
    unsigned char *from = culvert_buffer_data(h), *to = culvert_buffer_data(k);
    for (int i = 0; i < 256; i++)
        from[i] = (unsigned char)i;
    gpu_fixture_ok(culvert_copy(f.stream, a, 0, h, 0, 256));
    gpu_fixture_ok(culvert_copy(f.stream, b, 10, a, 20, 100));
    gpu_fixture_ok(culvert_copy(f.stream, b, 200, b, 10, 50));
    gpu_fixture_ok(culvert_copy(f.stream, k, 0, b, 0, 256));
    for (int i = 0; i < 256; i++) {
        int expected = i >= 10 && i < 110 ? i + 10 : i >= 200 && i < 250 ? i - 180 : 0;
        ck_assert_int_eq(to[i], expected);
    }
    gpu_fixture_ok(culvert_copy(f.stream, k, 1, h, 0, 255));
    ck_assert_mem_eq(to + 1, from, 255);
    culvert_buffer *all[] = {a, b, h, k};
    for (int i = 0; i < 4; i++)
        culvert_buffer_unref(all[i]);
}
END_TEST

START_TEST(a_fill_repeats_its_pattern_lowest_byte_first)
{
    static const unsigned char one[] = {0x78}, two[] = {0x78, 0x56},
                               four[] = {0x78, 0x56, 0x34, 0x12};
    static const unsigned char *const patterns[] = {one, two, NULL, four};
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    for (unsigned n = 1; n <= 4; n *= 2) {
        unsigned char out[64];
        gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 0, 1));
        gpu_fixture_ok(culvert_fill(f.stream, buffer, 8, 40, 0x12345678, n));
        gpu_fixture_ok(culvert_download(f.stream, out, buffer, 0, 64));
        for (unsigned i = 0; i < 64; i++)
            ck_assert_uint_eq(out[i], i >= 8 && i < 48 ? patterns[n - 1][i % n] : 0);
    }
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_sequence_runs_its_operations_in_order)
{
    enum { N = 1000 };
    static unsigned in[N], out[N];
    culvert_buffer *a = gpu_fixture_buffer(&f, sizeof in), *b = gpu_fixture_buffer(&f, sizeof in);
    culvert_grid grid = {.blocks = {N / 100}, .threads = {100}};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    for (unsigned i = 0; i < N; i++)
        in[i] = i;
    culvert_seq_upload(seq, a, 0, in, sizeof in);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(b), CULVERT_BUFFER(a), CULVERT_U32(N),
                                    CULVERT_U32(5)));
    culvert_seq_fill(seq, b, 0, 4, 77, 4);
    culvert_seq_copy(seq, a, 0, b, 0, sizeof in);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(b), CULVERT_BUFFER(a), CULVERT_U32(N),
                                    CULVERT_U32(100)));
    culvert_seq_download(seq, out, b, 0, sizeof out);
    culvert_buffer_unref(a); /* the work holds them */
    culvert_buffer_unref(b);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_uint_eq(out[0], 177);
    for (unsigned i = 1; i < N; i++)
        ck_assert_uint_eq(out[i], i + 105);
}
END_TEST

/* ---- nothing to do ---- */

typedef struct order {
    int n, first, second;
} order;

static void first_settled(culvert_future *done, void *arg)
{
    order *o = arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    o->first = ++o->n;
}

static void second_settled(culvert_future *done, void *arg)
{
    order *o = arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    o->second = ++o->n;
}

/* What has nothing to do succeeds after what was there before. */
static void succeeds_in_order(void (*build)(culvert_seq *))
{
    order o = {0};
    gpu_fixture_hold(&f, f.stream);
    culvert_seq *before = culvert_seq_begin(f.stream), *seq = culvert_seq_begin(f.stream);
    build(seq);
    ck_assert_int_eq(culvert_on_settled(culvert_seq_submit(before), first_settled, &o, NULL), 0);
    culvert_future *future = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(future), second_settled, &o, NULL), 0);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(o.n, 0);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    ck_assert_int_eq(o.first, 1);
    ck_assert_int_eq(o.second, 2);
}

static void build_nothing(culvert_seq *seq)
{
    (void)seq;
}

START_TEST(an_empty_sequence_succeeds_in_stream_order)
{
    succeeds_in_order(build_nothing);
}
END_TEST

static culvert_buffer *some;

static void build_zero_bytes(culvert_seq *seq)
{
    culvert_seq_upload(seq, some, 16, NULL, 0);
    culvert_seq_download(seq, NULL, some, 3, 0);
    culvert_seq_copy(seq, some, 0, some, 0, 0);
    culvert_seq_fill(seq, some, 4, 0, 1, 4);
}

START_TEST(case_091_zero_bytes_succeed_in_stream_order)
{
    some = gpu_fixture_buffer(&f, 16);
    uint64_t before = calls("cuMemcpyHtoDAsync") + calls("cuMemcpyDtoHAsync") +
                      calls("cuMemcpyDtoDAsync") + calls("cuMemsetD32Async");
    succeeds_in_order(build_zero_bytes);
    ck_assert_uint_eq(calls("cuMemcpyHtoDAsync") + calls("cuMemcpyDtoHAsync") +
                          calls("cuMemcpyDtoDAsync") + calls("cuMemsetD32Async"),
                      before);
    culvert_buffer_unref(some);
}
END_TEST

static void build_zero_grid(culvert_seq *seq)
{
    culvert_grid grid = {.blocks = {0}, .threads = {32}};
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0);
}

START_TEST(case_090_a_zero_grid_succeeds_without_a_launch)
{
    uint64_t before = calls("cuLaunchKernel");
    succeeds_in_order(build_zero_grid);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuLaunchKernel"), before);
}
END_TEST

/* ---- what is refused ---- */

typedef struct refusal {
    void (*build)(culvert_seq *);
    int code;
    const char *op;
    const char *says[4];
} refusal;

static unsigned char bytes[64];

static void upload_past_end(culvert_seq *seq)
{
    culvert_seq_upload(seq, some, 8192, bytes, 4096);
}

static void download_past_end(culvert_seq *seq)
{
    culvert_seq_download(seq, bytes, some, 10000, 1);
}

static void upload_overflows(culvert_seq *seq)
{
    culvert_seq_upload(seq, some, 16, bytes, SIZE_MAX - 8);
}

static void upload_null(culvert_seq *seq)
{
    culvert_seq_upload(seq, some, 0, NULL, 8);
}

static void download_null(culvert_seq *seq)
{
    culvert_seq_download(seq, NULL, some, 0, 8);
}

static void copy_past_end(culvert_seq *seq)
{
    culvert_seq_copy(seq, some, 0, some, 9999, 2);
}

static void copy_to_past_end(culvert_seq *seq)
{
    culvert_seq_copy(seq, some, 9000, some, 0, 1001);
}

static void copy_overlaps(culvert_seq *seq)
{
    culvert_seq_copy(seq, some, 100, some, 50, 51);
}

static void fill_past_end(culvert_seq *seq)
{
    culvert_seq_fill(seq, some, 0, 10004, 1, 4);
}

static void fill_odd_offset(culvert_seq *seq)
{
    culvert_seq_fill(seq, some, 2, 8, 1, 4);
}

static void fill_odd_bytes(culvert_seq *seq)
{
    culvert_seq_fill(seq, some, 2, 7, 1, 2);
}

static void fill_odd_pattern(culvert_seq *seq)
{
    culvert_seq_fill(seq, some, 0, 6, 1, 3);
}

static void launch_bad_block(culvert_seq *seq)
{
    culvert_grid grid = {.blocks = {1}, .threads = {0}};
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0);
}

static void call_no_weight(culvert_seq *seq)
{
    culvert_seq_call_weighted(seq, (int (*)(struct CUstream_st *, void *))(uintptr_t)1, NULL, NULL,
                              0);
}

static void call_much_weight(culvert_seq *seq)
{
    culvert_seq_call_weighted(seq, (int (*)(struct CUstream_st *, void *))(uintptr_t)1, NULL, NULL,
                              257);
}

static const refusal refusals[] = {
    {upload_past_end,
     CULVERT_EINVAL,
     "culvert_seq_upload",
     {"upload of 4096 bytes at offset 8192", "10000-byte"}},
    {download_past_end,
     CULVERT_EINVAL,
     "culvert_seq_download",
     {"download of 1 bytes at offset 10000", "10000-byte"}},
    {upload_overflows, CULVERT_EOVERFLOW, "culvert_seq_upload", {"18446744073709551607", "16"}},
    {upload_null, CULVERT_EINVAL, "culvert_seq_upload", {"src is NULL", "8 bytes"}},
    {download_null, CULVERT_EINVAL, "culvert_seq_download", {"dst is NULL", "8 bytes"}},
    {copy_past_end,
     CULVERT_EINVAL,
     "culvert_seq_copy",
     {"copy of 2 bytes at offset 9999", "10000-byte"}},
    {copy_to_past_end,
     CULVERT_EINVAL,
     "culvert_seq_copy",
     {"copy of 1001 bytes at offset 9000", "10000-byte"}},
    {copy_overlaps, CULVERT_EINVAL, "culvert_seq_copy", {"51 bytes", "50", "100", "overlap"}},
    {fill_past_end,
     CULVERT_EINVAL,
     "culvert_seq_fill",
     {"fill of 10004 bytes at offset 0", "10000-byte"}},
    {fill_odd_offset, CULVERT_EINVAL, "culvert_seq_fill", {"8 bytes", "offset 2", "4-byte"}},
    {fill_odd_bytes, CULVERT_EINVAL, "culvert_seq_fill", {"7 bytes", "offset 2", "2-byte"}},
    {fill_odd_pattern, CULVERT_EINVAL, "culvert_seq_fill", {"3", "1, 2 or 4"}},
    {launch_bad_block, CULVERT_EINVAL, "culvert_seq_launch", {"threads[0] is 0"}},
    {call_no_weight, CULVERT_EINVAL, "culvert_seq_call_weighted", {"weight is 0", "256"}},
    {call_much_weight, CULVERT_EINVAL, "culvert_seq_call_weighted", {"weight is 257", "256"}},
};

START_TEST(what_is_wrong_is_refused_with_the_figures)
{
    const refusal *r = &refusals[_i];
    some = gpu_fixture_buffer(&f, 10000);
    uint64_t before = calls(NULL);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    r->build(seq);
    culvert_error err = gpu_fixture_fails(culvert_seq_submit(seq), r->code);
    ck_assert_uint_eq(calls(NULL), before); /* the driver has not heard of it */
    ck_assert_str_eq(err.op, r->op);
    ck_assert_ptr_nonnull(strstr(err.where, "test_seq.c:"));
    for (int i = 0; i < 4 && r->says[i] != NULL; i++)
        gpu_fixture_says(&err, r->says[i]);
    culvert_buffer_unref(some);
}
END_TEST

/* The first error counts, the rest is passed by, and nothing of it goes to the driver. */
START_TEST(the_first_error_of_a_sequence_wins)
{
    some = gpu_fixture_buffer(&f, 10000);
    uint64_t before = calls(NULL);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, some, 0, 16, 1, 4);
    fill_odd_pattern(seq);
    upload_past_end(seq);
    culvert_seq_fill(seq, some, 0, 16, 1, 4);
    ck_assert_ptr_null(culvert_seq_scratch(seq, 16));
    culvert_seq_upload(seq, NULL, 0, bytes, 16); /* as the scratch memory above would be used */
    culvert_error err = gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EINVAL);
    gpu_fixture_says(&err, "pattern_bytes is 3");
    ck_assert_uint_eq(calls(NULL), before);
    ck_assert_uint_eq(culvert_stream_queued(f.stream) + culvert_stream_in_flight(f.stream), 0);
    gpu_fixture_ok(culvert_fill(f.stream, some, 0, 16, 1, 4)); /* the stream is as good as ever */
    culvert_buffer_unref(some);
}
END_TEST

START_TEST(a_buffer_of_another_device_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (!gpu_fixture_simulated())
        return;
    gpu_fixture_close(&f);
    culvert_sim_reset();
    culvert_sim_devices(2);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    culvert_gpu *other = culvert_gpu_open(f.loop, 1, NULL, &err);
    ck_assert_msg(other != NULL, "%s", err.message);
    culvert_buffer *far = culvert_buffer_new(other, 100, &err);
    ck_assert_ptr_nonnull(far);
    some = gpu_fixture_buffer(&f, 100);

    err = gpu_fixture_fails(culvert_upload(f.stream, far, 0, bytes, 8), CULVERT_EINVAL);
    gpu_fixture_says(&err, "device 1");
    gpu_fixture_says(&err, "device 0");
    /* A copy may have one side there (test_peer), and not both. */
    culvert_buffer *farther = culvert_buffer_new(other, 100, &err);
    ck_assert_ptr_nonnull(farther);
    err = gpu_fixture_fails(culvert_copy(f.stream, farther, 0, far, 0, 8), CULVERT_EINVAL);
    gpu_fixture_says(&err, "device 1");
    culvert_buffer_unref(farther);
    (void)gpu_fixture_fails(culvert_fill(f.stream, far, 0, 8, 0, 1), CULVERT_EINVAL);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_use(seq, far);
    (void)gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EINVAL);
    seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, far, 0, 1);
    (void)gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EINVAL);

    culvert_buffer_unref(far);
    culvert_buffer_unref(some);
    culvert_gpu_close(other);
}
END_TEST

static Suite *seq_suite(void)
{
    Suite *suite = suite_create("seq");
    TCase *tc = tcase_create("operations");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, an_upload_and_a_download_carry_bytes);
    tcase_add_test(tc, pinned_memory_is_copied_directly);
    tcase_add_test(tc, a_copy_goes_between_any_two_buffers);
    tcase_add_test(tc, a_fill_repeats_its_pattern_lowest_byte_first);
    tcase_add_test(tc, a_sequence_runs_its_operations_in_order);
    tcase_add_test(tc, an_empty_sequence_succeeds_in_stream_order);
    tcase_add_test(tc, case_091_zero_bytes_succeed_in_stream_order);
    tcase_add_test(tc, case_090_a_zero_grid_succeeds_without_a_launch);
    suite_add_tcase(suite, tc);

    tc = tcase_create("refusals");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, what_is_wrong_is_refused_with_the_figures, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tc, the_first_error_of_a_sequence_wins);
    tcase_add_test(tc, a_buffer_of_another_device_is_refused);
    suite_add_tcase(suite, tc);

    return suite;
}

int main(void)
{
    Suite *suites[] = {seq_suite(), NULL};
    return test_main(suites);
}
