/* SPDX-License-Identifier: BSD-2-Clause */
/* warp.cu: shuffles, votes, matches. */
#include "kernels/machine.h"
#include "kernels/suites.h"
#include "warp.culvert.h"

#include <string.h>

static machine *m;

static void open_machine(void)
{
    m = machine_open();
}

static void close_machine(void)
{
    machine_close(m);
}

/* Runs a kernel (in, out) on words of one block, or of more. */
static void run_words(const char *kernel, unsigned blocks, unsigned threads, const void *in,
                      size_t in_bytes, void *out, size_t out_bytes)
{
    uint64_t d_in = machine_alloc(m, in_bytes), d_out = machine_alloc(m, out_bytes);
    machine_put(m, d_in, in, in_bytes);
    void *params[] = {&d_in, &d_out};
    struct machine_launch l = {.image = &culvert_image_warp,
                               .kernel = kernel,
                               .grid = {blocks},
                               .block = {threads}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, out_bytes);
    machine_free(m, d_in);
    machine_free(m, d_out);
}

static void fill_random(uint32_t *words, size_t n, uint64_t seed, uint32_t below)
{
    for (size_t i = 0; i < n; i++) {
        words[i] = machine_random(&seed) % below;
    }
}

START_TEST(warp_sums_equal_a_loop)
{
    enum { THREADS = 192, BLOCKS = 5, N = THREADS * BLOCKS };
    uint32_t in[N];
    int32_t out[N / 32];
    fill_random(in, N, 5, 1000000);
    run_words("warp_sum", BLOCKS, THREADS, in, sizeof in, out, sizeof out);
    for (int w = 0; w < N / 32; w++) {
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) {
            sum += (int32_t)in[32 * w + i];
        }
        ck_assert_int_eq(out[w], sum);
    }
}
END_TEST

/* CUDA's rule for the lane that is read; -1: the caller's own. */
static int up(int lane, int delta, int width)
{
    return lane % width >= delta ? lane - delta : lane;
}

static int down(int lane, int delta, int width)
{
    return lane % width + delta < width ? lane + delta : lane;
}

static int xor
    (int lane, int mask, int width) {
        int from = lane ^ mask;
        return from <= (lane | (width - 1)) ? from : lane;
    }

    START_TEST(shuffles_read_the_lane_that_cuda_says)
{
    enum { N = 128 };
    float in[N], out[8 * N];
    for (int i = 0; i < N; i++) {
        in[i] = (float)i * 1.5f;
    }
    run_words("shuffles", 2, N / 2, in, sizeof in, out, sizeof out);
    for (int i = 0; i < N; i++) {
        int lane = i % 32, base = i - lane;
        const int from[8] = {lane * 7 % 32,    lane / 8 * 8 + 3,  up(lane, 5, 32),
                             up(lane, 3, 16),  down(lane, 5, 32), down(lane, 3, 16),
                             xor(lane, 9, 32), xor(lane, 12, 8)};
        for (int k = 0; k < 8; k++) {
            ck_assert_msg(out[8 * i + k] == in[base + from[k]], "thread %d shuffle %d", i, k);
        }
    }
}
END_TEST

START_TEST(a_shuffle_moves_eight_bytes)
{
    uint64_t in[64], out[64], seed = 6;
    for (int i = 0; i < 64; i++) {
        in[i] = (uint64_t)machine_random(&seed) << 32 | machine_random(&seed);
    }
    run_words("shuffle_wide", 1, 64, in, sizeof in, out, sizeof out);
    for (int i = 0; i < 64; i++) {
        ck_assert(out[i] == in[i ^ 31]);
    }
}
END_TEST

START_TEST(votes_of_different_masks_do_not_mix)
{
    enum { N = 128, LIMIT = 100 };
    uint32_t in[N], out[3 * N], limit = LIMIT;
    fill_random(in, N, 7, 200);
    for (int i = 64; i < 96; i++) {
        in[i] = i & 1 ? 0 : 199; /* all odd ones, and no even one */
    }
    uint64_t d_in = machine_alloc(m, sizeof in), d_out = machine_alloc(m, sizeof out);
    machine_put(m, d_in, in, sizeof in);
    void *params[] = {&d_in, &limit, &d_out};
    struct machine_launch l = {.image = &culvert_image_warp,
                               .kernel = "votes",
                               .grid = {1},
                               .block = {N}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (int i = 0; i < N; i++) {
        uint32_t ballot = 0, mask = i & 1 ? 0xaaaaaaaa : 0x55555555;
        for (int lane = 0; lane < 32; lane++) {
            ballot |= (uint32_t)(in[i / 32 * 32 + lane] < LIMIT) << lane;
        }
        ballot &= mask;
        ck_assert_uint_eq(out[3 * i], ballot);
        ck_assert_uint_eq(out[3 * i + 1], ballot != 0);
        ck_assert_uint_eq(out[3 * i + 2], ballot == mask);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
}
END_TEST

START_TEST(the_last_warp_may_have_fewer_lanes)
{
    enum { N = 77 };
    uint32_t out[N];
    uint64_t d_out = machine_alloc(m, sizeof out);
    void *params[] = {&d_out};
    struct machine_launch l = {.image = &culvert_image_warp,
                               .kernel = "partial_warp",
                               .grid = {1},
                               .block = {N}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (int i = 0; i < N; i++) {
        uint32_t ballot = 0;
        for (int lane = 0; lane < 32 && i / 32 * 32 + lane < N; lane++) {
            ballot |= (uint32_t)((i / 32 * 32 + lane) % 3 == 0) << lane;
        }
        ck_assert_uint_eq(out[i], ballot);
    }
    machine_free(m, d_out);
}
END_TEST

START_TEST(matches_find_equal_lanes)
{
    enum { N = 64 };
    uint32_t in[N], out[2 * N];
    fill_random(in, 32, 8, 5);
    fill_random(in + 32, 32, 9, 2000);
    in[32] = 5;
    in[33] = 1999; /* the second warp does not agree */
    run_words("matches", 1, N, in, sizeof in, out, sizeof out);
    for (int i = 0; i < N; i++) {
        uint32_t same = 0;
        for (int lane = 0; lane < 32; lane++) {
            same |= (uint32_t)(in[i / 32 * 32 + lane] == in[i]) << lane;
        }
        ck_assert_uint_eq(out[2 * i], same);
        ck_assert_uint_eq(out[2 * i + 1], i < 32 ? 0xffffffff : 0);
    }
}
END_TEST

START_TEST(warps_and_barriers_work_together)
{
    enum { THREADS = 1024, BLOCKS = 3, N = THREADS * BLOCKS };
    uint32_t in[N];
    int32_t out[BLOCKS];
    fill_random(in, N, 10, 100000);
    run_words("warp_then_block", BLOCKS, THREADS, in, sizeof in, out, sizeof out);
    for (int b = 0; b < BLOCKS; b++) {
        int32_t sum = 0;
        for (int i = 0; i < THREADS; i++) {
            sum += (int32_t)in[b * THREADS + i];
        }
        ck_assert_int_eq(out[b], sum);
    }
}
END_TEST

Suite *warp_suite(void)
{
    Suite *s = suite_create("warp");
    TCase *t = tcase_create("warp");
    tcase_add_checked_fixture(t, open_machine, close_machine);
    tcase_add_test(t, warp_sums_equal_a_loop);
    tcase_add_test(t, shuffles_read_the_lane_that_cuda_says);
    tcase_add_test(t, a_shuffle_moves_eight_bytes);
    tcase_add_test(t, votes_of_different_masks_do_not_mix);
    tcase_add_test(t, the_last_warp_may_have_fewer_lanes);
    tcase_add_test(t, matches_find_equal_lanes);
    tcase_add_test(t, warps_and_barriers_work_together);
    suite_add_tcase(s, t);
    return s;
}
