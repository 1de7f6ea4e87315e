/* SPDX-License-Identifier: BSD-2-Clause */
/* atomics.cu: a histogram, and each atomic once. */
#include "atomics.culvert.h"
#include "kernels/machine.h"
#include "kernels/suites.h"

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

START_TEST(a_histogram_counts_every_byte_once)
{
    enum { N = 50001 };
    static unsigned char in[N];
    uint32_t bins[256] = {0}, expected[256] = {0}, n = N;
    uint64_t seed = 11;
    for (int i = 0; i < N; i++) {
        in[i] = (unsigned char)(machine_random(&seed) & machine_random(&seed));
        expected[in[i]]++;
    }
    uint64_t d_in = machine_alloc(m, N), d_bins = machine_alloc(m, sizeof bins);
    machine_put(m, d_in, in, N);
    machine_put(m, d_bins, bins, sizeof bins);
    void *params[] = {&d_in, &n, &d_bins};
    struct machine_launch l = {.image = &culvert_image_atomics,
                               .kernel = "histogram",
                               .grid = {13},
                               .block = {128}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, bins, d_bins, sizeof bins);
    for (int i = 0; i < 256; i++) {
        ck_assert_uint_eq(bins[i], expected[i]);
    }
    machine_free(m, d_in);
    machine_free(m, d_bins);
}
END_TEST

/* As struct atomic_words in atomics.cu. */
struct words {
    int32_t add, sub, min, max;
    uint32_t band, bor, bxor, inc, dec, umax;
    uint64_t wide, exchanged, cas;
    float sum;
};

START_TEST(every_atomic_loses_nothing)
{
    enum { THREADS = 256, BLOCKS = 8, N = THREADS * BLOCKS };
    static int32_t in[N];
    uint64_t seed = 12;
    struct words w = {.min = 2147483647, .max = -2147483647, .band = 0xffffffff}, e = w;
    for (int i = 0; i < N; i++) {
        in[i] = (int32_t)(machine_random(&seed) % 2001) - 1000;
        e.add += in[i];
        e.sub -= in[i];
        e.min = in[i] < e.min ? in[i] : e.min;
        e.max = in[i] > e.max ? in[i] : e.max;
        e.bxor ^= (uint32_t)in[i];
        e.umax = (uint32_t)in[i] > e.umax ? (uint32_t)in[i] : e.umax;
        e.inc = e.inc >= 9 ? 0 : e.inc + 1;
        e.dec = e.dec == 0 || e.dec > 9 ? 9 : e.dec - 1;
    }
    uint64_t d_in = machine_alloc(m, sizeof in), d_w = machine_alloc(m, sizeof w);
    machine_put(m, d_in, in, sizeof in);
    machine_put(m, d_w, &w, sizeof w);
    void *params[] = {&d_w, &d_in};
    struct machine_launch l = {.image = &culvert_image_atomics,
                               .kernel = "every_atomic",
                               .grid = {BLOCKS},
                               .block = {THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, &w, d_w, sizeof w);
    ck_assert_int_eq(w.add, e.add);
    ck_assert_int_eq(w.sub, e.sub);
    ck_assert_int_eq(w.min, e.min);
    ck_assert_int_eq(w.max, e.max);
    ck_assert_uint_eq(w.band, 0x80000000);
    ck_assert_uint_eq(w.bor, 0xffffffff);
    ck_assert_uint_eq(w.bxor, e.bxor);
    ck_assert_uint_eq(w.inc, e.inc);
    ck_assert_uint_eq(w.dec, e.dec);
    ck_assert_uint_eq(w.umax, e.umax);
    ck_assert(w.wide == (uint64_t)N << 33);
    ck_assert(w.exchanged == 5);
    ck_assert(w.cas == 3 * (uint64_t)N);
    ck_assert(w.sum == 0.5f * N);
    machine_free(m, d_in);
    machine_free(m, d_w);
}
END_TEST

Suite *atomics_suite(void)
{
    Suite *s = suite_create("atomics");
    TCase *t = tcase_create("atomics");
    tcase_add_checked_fixture(t, open_machine, close_machine);
    tcase_add_test(t, a_histogram_counts_every_byte_once);
    tcase_add_test(t, every_atomic_loses_nothing);
    suite_add_tcase(s, t);
    return s;
}
