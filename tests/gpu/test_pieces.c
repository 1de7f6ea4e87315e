/* SPDX-License-Identifier: BSD-2-Clause */
/* Host buffers that are pinned in pieces, and what is copied over their seams. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB, N = 3 * MIB + 1000 };

static gpu_fixture f;
static culvert_buffer *host, *device;

static unsigned char *data_of(culvert_buffer *buffer)
{
    return culvert_buffer_data(buffer);
}

/* Bytes that tell their place; the period is prime. */
static void stamp(unsigned char *p, size_t n, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((i + salt) % 251);
}

static void check_stamp(const unsigned char *p, size_t n, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)((i + salt) % 251))
            ck_abort_msg("byte %zu of %zu is %u", i, n, p[i]);
}

static void open_only(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void close_only(void)
{
    gpu_fixture_close(&f);
}

static void set_up(void)
{
    open_only();
    host = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, N));
    device = gpu_fixture_buffer(&f, N);
    memset(data_of(host), 0, N);
    ck_assert_uint_ne(host->seam, 0);
}

static void tear_down(void)
{
    culvert_buffer_unref(host);
    culvert_buffer_unref(device);
    close_only();
}

/* ---- copies ---- */

START_TEST(a_copy_goes_over_seams)
{
    stamp(data_of(host), N, 1);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy(seq, device, 0, host, 0, N);
    culvert_seq_fill(seq, host, 0, N, 0, 1);
    culvert_seq_copy(seq, host, 10, device, 7, N - 10);
    gpu_fixture_ok(culvert_seq_submit(seq));
    check_stamp(data_of(host) + 10, N - 10, 8);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(data_of(host)[i], 0);
}
END_TEST

START_TEST(raw_addresses_inside_are_used_in_place)
{
    uint64_t up = gpu_fixture_simulated() ? culvert_sim_calls("cuMemcpyHtoDAsync") : 0;
    stamp(data_of(host), N, 3);
    gpu_fixture_ok(culvert_upload(f.stream, device, 5, data_of(host) + 9, N - 9));
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuMemcpyHtoDAsync") - up, 4);
    memset(data_of(host), 0, N);
    gpu_fixture_ok(culvert_download(f.stream, data_of(host) + 100, device, 105, N - 109));
    check_stamp(data_of(host) + 100, N - 109, 112);
}
END_TEST

/* Ordinary memory is staged into it, and out of it. */
START_TEST(ordinary_memory_goes_over_seams)
{
    static const size_t at[] = {MIB - 100, 0, 2 * MIB - 1, 12345}, bytes[] = {200, N, 2, MIB};
    unsigned char *from = malloc(N), *to = malloc(N);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        stamp(from, bytes[i], (unsigned)i);
        memset(to, 0, N);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_upload(seq, host, at[i], from, bytes[i]);
        culvert_seq_download(seq, to, host, at[i], bytes[i]);
        gpu_fixture_ok(culvert_seq_submit(seq));
        check_stamp(data_of(host) + at[i], bytes[i], (unsigned)i);
        check_stamp(to, bytes[i], (unsigned)i);
    }
    free(from);
    free(to);
}
END_TEST

START_TEST(from_one_to_another)
{
    culvert_buffer *other = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, N));
    stamp(data_of(host), N, 2);
    memset(data_of(other), 0, N);
    gpu_fixture_ok(culvert_copy(f.stream, other, 1000, host, 300000, 2 * MIB));
    check_stamp(data_of(other) + 1000, 2 * MIB, 300002 % 251);
    ck_assert_uint_eq(data_of(other)[999], 0);
    ck_assert_uint_eq(data_of(other)[1000 + 2 * MIB], 0);
    culvert_buffer_unref(other);
}
END_TEST

START_TEST(fills_go_over_seams)
{
    gpu_fixture_ok(culvert_fill(f.stream, host, 8, N - 8, 0x01020304, 4));
    for (size_t i = 8; i < N; i += 4) {
        uint32_t word;
        memcpy(&word, data_of(host) + i, 4);
        ck_assert_uint_eq(word, 0x01020304);
    }
    ck_assert_uint_eq(data_of(host)[7], 0);
}
END_TEST

/* Rows that end before a seam, go over it, begin behind it. */
START_TEST(rectangles_go_over_seams)
{
    enum { WIDTH = 999, PITCH = 1500, ROWS = (N - WIDTH) / PITCH };
    unsigned char *back = calloc(ROWS, WIDTH);
    stamp(data_of(host), N, 0);
    culvert_copy2d up = {.dst = device,
                         .dst_pitch = WIDTH,
                         .src = host,
                         .src_offset = 13,
                         .src_pitch = PITCH,
                         .width = WIDTH,
                         .height = ROWS};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy2d(seq, &up);
    culvert_seq_download(seq, back, device, 0, (size_t)ROWS * WIDTH);
    gpu_fixture_ok(culvert_seq_submit(seq));
    for (size_t row = 0; row < ROWS; row++)
        check_stamp(back + row * WIDTH, WIDTH, (unsigned)((13 + row * PITCH) % 251));
    memset(data_of(host), 0, N);
    culvert_copy2d down = {.dst = host,
                           .dst_offset = 13,
                           .dst_pitch = PITCH,
                           .src = device,
                           .src_pitch = WIDTH,
                           .width = WIDTH,
                           .height = ROWS};
    seq = culvert_seq_begin(f.stream);
    culvert_seq_copy2d(seq, &down);
    gpu_fixture_ok(culvert_seq_submit(seq));
    for (size_t row = 0; row < ROWS; row++) {
        size_t at = 13 + row * PITCH;
        check_stamp(data_of(host) + at, WIDTH, (unsigned)(at % 251));
        ck_assert_uint_eq(data_of(host)[at - 1], 0);
        ck_assert_uint_eq(data_of(host)[at + WIDTH], 0);
    }
    free(back);
}
END_TEST

/* More pieces than a stream takes at once. */
START_TEST(many_pieces_take_their_turns)
{
    enum { LARGE = 300 };
    culvert_buffer *large = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, (size_t)LARGE * MIB));
    culvert_buffer *there = gpu_fixture_buffer(&f, (size_t)LARGE * MIB);
    for (size_t i = 0; i < LARGE; i++)
        memcpy(data_of(large) + i * MIB + MIB - 4, &i, 4);
    gpu_fixture_ok(culvert_copy(f.stream, there, 0, large, 0, (size_t)LARGE * MIB));
    for (size_t i = 0; i < LARGE; i += 37) {
        uint32_t word = 0;
        gpu_fixture_ok(culvert_download(f.stream, &word, there, i * MIB + MIB - 4, 4));
        ck_assert_uint_eq(word, i);
    }
    culvert_buffer_unref(large);
    culvert_buffer_unref(there);
}
END_TEST

/* ---- growing ---- */

START_TEST(a_mebibyte_is_pinned_a_turn)
{
    uint64_t most = 0, before = culvert_sim_live("pinned bytes");
    uint64_t allocations = culvert_sim_calls("cuMemHostAlloc");
    culvert_future *a = culvert_host_buffer_alloc(f.gpu, 20 * MIB);
    culvert_future *b = culvert_host_buffer_alloc(f.gpu, 700 * KIB);
    unsigned turns = 0;
    for (; culvert_status(b) == CULVERT_PENDING; turns++) {
        uint64_t was = culvert_sim_live("pinned bytes");
        ev_run(f.ev, EVRUN_NOWAIT);
        uint64_t now = culvert_sim_live("pinned bytes");
        most = now - was > most ? now - was : most;
        ck_assert_uint_lt(turns, 1000);
    }
    ck_assert_uint_ge(turns, 20);
    ck_assert_uint_eq(most, MIB);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), before + 20 * MIB);
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostAlloc"), allocations);
    culvert_buffer *large = gpu_fixture_got(a);
    stamp(data_of(large), 20 * MIB, 0);
    culvert_buffer_unref(large);
    culvert_buffer_unref(gpu_fixture_got(b));
    uint64_t pins = culvert_sim_calls("cuMemHostRegister");
    culvert_buffer_unref(
        gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 19 * MIB))); /* the same memory */
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostRegister"), pins);
}
END_TEST

static void turns(int n)
{
    while (n-- > 0)
        ev_run(f.ev, EVRUN_NOWAIT);
}

/* Whoever comes next has it. */
START_TEST(what_is_half_pinned_is_not_lost)
{
    uint64_t before = culvert_sim_live("pinned bytes");
    culvert_future *future = culvert_host_buffer_alloc(f.gpu, 40 * MIB);
    while (culvert_sim_live("pinned bytes") < before + 10 * MIB)
        turns(1);
    culvert_unref(future);
    culvert_buffer *buffer = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 35 * MIB));
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), before + 40 * MIB);
    culvert_buffer_unref(buffer);
    future = culvert_host_buffer_alloc(f.gpu, 60 * MIB);
    while (culvert_sim_live("pinned bytes") < before + 45 * MIB)
        turns(1);
    culvert_unref(future); /* and the end looks for what is left */
}
END_TEST

START_TEST(a_piece_that_cannot_be_pinned_ends_the_block)
{
    uint64_t before = culvert_sim_live("pinned bytes");
    culvert_sim_fail("cuMemHostRegister", 5, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    culvert_buffer_unref(
        gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 10 * MIB))); /* at the second try */
    ck_assert_uint_le(culvert_sim_live("pinned bytes"), before + 10 * MIB);
    culvert_sim_fail("cuMemHostRegister", 5, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    culvert_sim_fail("cuMemHostRegister", 6, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    culvert_error err =
        gpu_fixture_fails(culvert_host_buffer_alloc(f.gpu, 20 * MIB), CULVERT_ENOMEM);
    gpu_fixture_says(&err, "cuMemHostRegister");
    ck_assert_uint_le(culvert_sim_live("pinned bytes"), before); /* given back: it was no use */
    culvert_buffer_unref(gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 20 * MIB)));
}
END_TEST

START_TEST(the_limit_counts_both_kinds)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    close_only();
    options.pinned_limit = 16 * MIB;
    gpu_fixture_open(&f, NULL, &options);
    uint64_t before = culvert_sim_live("pinned bytes");
    ck_assert_uint_eq(before, 8 * MIB);
    culvert_buffer *large = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 5 * MIB));
    (void)gpu_fixture_fails(culvert_host_buffer_alloc(f.gpu, 9 * MIB), CULVERT_ENOMEM);
    ck_assert_ptr_null(culvert_host_buffer_new(f.gpu, 8 * MIB, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_uint_le(culvert_sim_live("pinned bytes"), 16 * MIB);
    culvert_buffer_unref(large);
}
END_TEST

/* Without unified addressing pieces are no range of the device's addresses. */
static int elsewhere(unsigned long long *address, void *p, unsigned flags)
{
    (void)flags;
    *address = (uintptr_t)p + 0x100000000000u;
    return CULVERT__CUDA_SUCCESS;
}

START_TEST(where_pieces_are_of_no_use_it_grows_in_one)
{
    static culvert__driver other;
    const culvert__driver *real = f.gpu->device->drv;
    other = *real;
    other.cuMemHostGetDevicePointer = elsewhere;
    f.gpu->device->drv = &other;
    uint64_t allocations = culvert_sim_calls("cuMemHostAlloc");
    culvert_buffer *buffer = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 3 * MIB));
    f.gpu->device->drv = real;
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostAlloc"), allocations + 1);
    ck_assert_uint_eq(buffer->seam, 0);
    ck_assert_uint_eq(culvert_buffer_address(buffer),
                      (uintptr_t)culvert_buffer_data(buffer) + 0x100000000000u);
    culvert_buffer_unref(buffer);
}
END_TEST

static Suite *pieces_suite(void)
{
    Suite *suite = suite_create("pieces");
    TCase *copies = tcase_create("copies");
    tcase_add_checked_fixture(copies, set_up, tear_down);
    tcase_add_test(copies, a_copy_goes_over_seams);
    tcase_add_test(copies, raw_addresses_inside_are_used_in_place);
    tcase_add_test(copies, ordinary_memory_goes_over_seams);
    tcase_add_test(copies, from_one_to_another);
    tcase_add_test(copies, fills_go_over_seams);
    tcase_add_test(copies, rectangles_go_over_seams);
    tcase_add_test(copies, many_pieces_take_their_turns);
    suite_add_tcase(suite, copies);
    if (!gpu_fixture_simulated())
        return suite;
    TCase *growing = tcase_create("growing");
    tcase_add_checked_fixture(growing, open_only, close_only);
    tcase_add_test(growing, a_mebibyte_is_pinned_a_turn);
    tcase_add_test(growing, what_is_half_pinned_is_not_lost);
    tcase_add_test(growing, a_piece_that_cannot_be_pinned_ends_the_block);
    tcase_add_test(growing, the_limit_counts_both_kinds);
    tcase_add_test(growing, where_pieces_are_of_no_use_it_grows_in_one);
    suite_add_tcase(suite, growing);
    return suite;
}

int main(void)
{
    Suite *suites[] = {pieces_suite(), NULL};
    return test_main(suites);
}
