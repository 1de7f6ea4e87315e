/* SPDX-License-Identifier: BSD-2-Clause */
/* block.cu: shared memory and barriers. */
#include "block.culvert.h"
#include "kernels/machine.h"
#include "kernels/suites.h"

#include <stdlib.h>
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

static uint32_t *random_words(size_t n, uint64_t seed)
{
    uint32_t *words = malloc(n * sizeof *words + 1);
    ck_assert_ptr_nonnull(words);
    for (size_t i = 0; i < n; i++) {
        words[i] = machine_random(&seed);
    }
    return words;
}

static uint64_t put_words(const uint32_t *words, size_t n)
{
    uint64_t p = machine_alloc(m, n * sizeof *words);
    machine_put(m, p, words, n * sizeof *words);
    return p;
}

static uint32_t *get_words(uint64_t p, size_t n)
{
    uint32_t *words = malloc(n * sizeof *words + 1);
    ck_assert_ptr_nonnull(words);
    machine_get(m, words, p, n * sizeof *words);
    return words;
}

START_TEST(block_sums_equal_a_loop)
{
    enum { N = 10007, THREADS = 256, BLOCKS = (N + THREADS - 1) / THREADS };
    uint32_t *in = random_words(N, 1), n = N;
    uint64_t d_in = put_words(in, N), d_out = machine_alloc(m, BLOCKS * 4);
    void *params[] = {&d_in, &d_out, &n};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "block_sum",
                               .grid = {BLOCKS},
                               .block = {THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, BLOCKS);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t sum = 0;
        for (uint32_t i = b * THREADS; i < n && i < (b + 1) * THREADS; i++) {
            sum += in[i];
        }
        ck_assert_uint_eq(out[b], sum);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(in);
    free(out);
}
END_TEST

START_TEST(block_scans_equal_a_loop)
{
    enum { N = 3001, THREADS = 512, BLOCKS = (N + THREADS - 1) / THREADS };
    uint32_t *in = random_words(N, 2), n = N, sum = 0;
    uint64_t d_in = put_words(in, N), d_out = machine_alloc(m, N * 4);
    void *params[] = {&d_in, &d_out, &n};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "block_scan",
                               .grid = {BLOCKS},
                               .block = {THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, N);
    for (uint32_t i = 0; i < n; i++) {
        sum = i % THREADS ? sum + in[i] : in[i];
        ck_assert_uint_eq(out[i], sum);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(in);
    free(out);
}
END_TEST

START_TEST(a_transpose_in_two_dimensions_is_exact)
{
    enum { ROWS = 75, COLUMNS = 131, TILE = 16 };
    uint32_t *in = random_words(ROWS * COLUMNS, 3), rows = ROWS, columns = COLUMNS;
    uint64_t d_in = put_words(in, ROWS * COLUMNS), d_out = machine_alloc(m, ROWS * COLUMNS * 4);
    void *params[] = {&d_in, &d_out, &rows, &columns};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "transpose",
                               .grid = {(COLUMNS + TILE - 1) / TILE, (ROWS + TILE - 1) / TILE},
                               .block = {TILE, TILE}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, ROWS * COLUMNS);
    for (uint32_t y = 0; y < rows; y++) {
        for (uint32_t x = 0; x < columns; x++) {
            ck_assert_uint_eq(out[x * ROWS + y], in[y * COLUMNS + x]);
        }
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(in);
    free(out);
}
END_TEST

START_TEST(dynamic_shared_memory_is_as_large_as_the_launch_says)
{
    enum { THREADS = 1024, BLOCKS = 3, N = THREADS * BLOCKS };
    uint32_t *in = random_words(N, 4);
    uint64_t d_in = put_words(in, N), d_out = machine_alloc(m, N * 4);
    void *params[] = {&d_in, &d_out};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "block_reverse",
                               .grid = {BLOCKS},
                               .block = {THREADS},
                               .shared_bytes = THREADS * 4};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, N);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_uint_eq(out[i], in[i / THREADS * THREADS + THREADS - 1 - i % THREADS]);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(in);
    free(out);
}
END_TEST

START_TEST(barriers_that_count_give_every_thread_the_same)
{
    enum { THREADS = 96, BLOCKS = 3, N = THREADS * BLOCKS };
    uint32_t in[N], limit = 50;
    for (uint32_t i = 0; i < N; i++) {
        in[i] = i / THREADS == 0 ? i % 100 : i / THREADS == 1 ? 49 : 50; /* some, all, none */
    }
    uint64_t d_in = put_words(in, N), d_out = machine_alloc(m, 16 * BLOCKS);
    void *params[] = {&d_in, &limit, &d_out};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "block_vote",
                               .grid = {BLOCKS},
                               .block = {THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, 4 * BLOCKS);
    const uint32_t expected[4 * BLOCKS] = {50, 0, 1, 1, 96, 1, 1, 1, 0, 0, 0, 1};
    for (int i = 0; i < 4 * BLOCKS; i++) {
        ck_assert_uint_eq(out[i], expected[i]);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(out);
}
END_TEST

START_TEST(a_barrier_does_not_wait_for_threads_that_ended)
{
    const uint32_t alive[] = {1, 31, 32, 33, 100, 256};
    for (size_t k = 0; k < sizeof alive / sizeof *alive; k++) {
        uint32_t n = alive[k];
        uint64_t d_out = machine_alloc(m, 256 * 4);
        void *params[] = {&d_out, &n};
        struct machine_launch l = {.image = &culvert_image_block,
                                   .kernel = "early_exit",
                                   .grid = {1},
                                   .block = {256}};
        ck_assert_int_eq(machine_run(m, &l, params), 0);
        uint32_t *out = get_words(d_out, 256);
        for (uint32_t i = 0; i < 256; i++) {
            ck_assert_uint_eq(out[i], i < n ? n * (n + 1) / 2 : 0xcdcdcdcd);
        }
        machine_free(m, d_out);
        free(out);
    }
}
END_TEST

START_TEST(a_thread_can_wait_for_another_ones_write)
{
    uint64_t d_out = machine_alloc(m, 12);
    void *params[] = {&d_out};
    struct machine_launch l = {.image = &culvert_image_block,
                               .kernel = "hand_over",
                               .grid = {1},
                               .block = {128}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    uint32_t *out = get_words(d_out, 2);
    ck_assert_uint_eq(out[0], 42);
    ck_assert_uint_eq(out[1], 43);
    machine_free(m, d_out);
    free(out);
}
END_TEST

Suite *block_suite(void)
{
    Suite *s = suite_create("block");
    TCase *t = tcase_create("block");
    tcase_add_checked_fixture(t, open_machine, close_machine);
    tcase_add_test(t, block_sums_equal_a_loop);
    tcase_add_test(t, block_scans_equal_a_loop);
    tcase_add_test(t, a_transpose_in_two_dimensions_is_exact);
    tcase_add_test(t, dynamic_shared_memory_is_as_large_as_the_launch_says);
    tcase_add_test(t, barriers_that_count_give_every_thread_the_same);
    tcase_add_test(t, a_barrier_does_not_wait_for_threads_that_ended);
    tcase_add_test(t, a_thread_can_wait_for_another_ones_write);
    suite_add_tcase(s, t);
    return s;
}
