/* SPDX-License-Identifier: BSD-2-Clause */
/* layout.cu: indices, parameters, variables, arithmetic. */
#include "kernels/layout.h"
#include "kernels/machine.h"
#include "kernels/suites.h"
#include "layout.culvert.h"

#include <math.h>
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

START_TEST(indices_of_a_grid_in_three_dimensions)
{
    enum { GX = 3, GY = 4, GZ = 2, BX = 5, BY = 6, BZ = 7, BLOCK = BX * BY * BZ };
    static uint32_t out[GX * GY * GZ * BLOCK];
    uint64_t d_out = machine_alloc(m, sizeof out);
    void *params[] = {&d_out};
    struct machine_launch l = {.image = &culvert_image_layout,
                               .kernel = "where_am_i",
                               .grid = {GX, GY, GZ},
                               .block = {BX, BY, BZ}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (uint32_t i = 0; i < GX * GY * GZ * BLOCK; i++) {
        uint32_t b = i / BLOCK, t = i % BLOCK;
        ck_assert_uint_eq(out[i], b % GX | b / GX % GY << 5 | b / GX / GY << 10 | t % BX << 15 |
                                      t / BX % BY << 20 | t / BX / BY << 25);
    }
    machine_free(m, d_out);
}
END_TEST

struct expected_param {
    size_t offset, bytes;
};

START_TEST(parameters_lie_at_their_natural_alignment)
{
    const struct expected_param e[] = {{0, 1},  {8, 8},  {16, 2},  {18, 8}, {28, 4},
                                       {32, 4}, {40, 8}, {48, 16}, {64, 1}, {72, 8}};
    size_t n = sizeof e / sizeof *e;
    for (size_t i = 0; i < n; i++) {
        size_t offset = 0, bytes = 0;
        int got = machine_param(m, &culvert_image_layout, "parameters", i, &offset, &bytes);
        if (got < 0) {
            return; /* an older driver */
        }
        ck_assert_int_eq(got, 1);
        ck_assert_msg(offset == e[i].offset && bytes == e[i].bytes, "%zu: %zu, %zu", i, offset,
                      bytes);
    }
    size_t offset, bytes;
    ck_assert_int_eq(machine_param(m, &culvert_image_layout, "parameters", n, &offset, &bytes), 0);
    ck_assert_int_eq(machine_param(m, &culvert_image_layout, "no_parameters", 0, &offset, &bytes),
                     0);
}
END_TEST

START_TEST(parameters_of_every_kind_arrive)
{
    double out[9];
    const double e[9] = {-7, 2.5, -300, 1 + 10 * 2 + 100 * 5, 0.25, 10, -5000000000.0, 10, 1};
    signed char c = -7;
    double d = 2.5;
    int16_t s = -300;
    struct layout_struct st = {1, 2, {3, 4, 5}};
    float f = 0.25f;
    unsigned char u[4] = {1, 2, 3, 4};
    int64_t l = -5000000000;
    _Alignas(16) float v[4] = {1, 2, 3, 4};
    _Bool b = 1;
    uint64_t d_out = machine_alloc(m, sizeof out);
    void *params[] = {&c, &d, &s, &st, &f, u, &l, v, &b, &d_out};
    struct machine_launch launch = {.image = &culvert_image_layout, .kernel = "parameters"};
    ck_assert_int_eq(machine_run(m, &launch, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(out[i] == e[i], "%d: %g", i, out[i]);
    }
    machine_free(m, d_out);
}
END_TEST

START_TEST(variables_are_found_by_name)
{
    size_t bytes = 0;
    uint32_t counter = 0, table[16], n = 100, in[100], out[100];
    uint64_t d_counter = machine_global(m, &culvert_image_layout, "counter", &bytes);
    ck_assert_uint_eq(bytes, 4);
    uint64_t d_table = machine_global(m, &culvert_image_layout, "table", &bytes);
    ck_assert_uint_eq(bytes, sizeof table);

    counter = 1000;
    machine_put(m, d_counter, &counter, 4);
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = 1000 * i + 5;
    }
    machine_put(m, d_table, table, sizeof table);
    struct machine_launch l = {.image = &culvert_image_layout,
                               .kernel = "no_parameters",
                               .grid = {4},
                               .block = {64}};
    ck_assert_int_eq(machine_run(m, &l, NULL), 0);
    machine_get(m, &counter, d_counter, 4);
    ck_assert_uint_eq(counter, 1000 + 4 * table[3]);

    uint64_t d_in = machine_alloc(m, sizeof in), d_out = machine_alloc(m, sizeof out);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = i * 7;
    }
    machine_put(m, d_in, in, sizeof in);
    void *params[] = {&d_in, &d_out, &n};
    l.kernel = "use_table";
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(out[i], table[in[i] % 16]);
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
}
END_TEST

static uint32_t reverse_bits(uint32_t x)
{
    uint32_t y = 0;
    for (int i = 0; i < 32; i++) {
        y |= (x >> i & 1) << (31 - i);
    }
    return y;
}

static uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t s)
{
    uint64_t all = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        r |= (uint32_t)(all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return r;
}

static int highest(uint64_t x)
{
    int n = -1;
    for (; x; x >>= 1) {
        n++;
    }
    return n;
}

static int32_t low24(uint32_t x)
{
    x &= 0xffffff;
    return (int32_t)(x & 0x800000 ? x | 0xff000000 : x);
}

/* The high half of a 64 x 64 bit product, by halves. */
static uint64_t high64(uint64_t x, uint64_t y)
{
    uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)y, y1 = y >> 32;
    uint64_t middle = x1 * y0 + (x0 * y0 >> 32);
    return x1 * y1 + (middle >> 32) + ((x0 * y1 + (uint32_t)middle) >> 32);
}

static void expected_bits(uint32_t a, uint32_t b, uint32_t *o)
{
    uint32_t shift = b & 31;
    uint64_t ab = (uint64_t)a << 32 | b, ba = (uint64_t)b << 32 | a;
    o[0] = 0;
    o[2] = 0;
    for (int i = 31; i >= 0; i--) {
        o[0] += a >> i & 1;
        o[2] = a >> i & 1 ? (uint32_t)i + 1 : o[2];
    }
    o[1] = (uint32_t)(31 - highest(a));
    o[3] = reverse_bits(a);
    o[4] = permute_bytes(a, b, (a ^ b) & 0x7777);
    o[5] = (uint32_t)(ba << shift >> 32);
    o[6] = (uint32_t)(ba >> shift);
    o[7] = (uint32_t)((uint64_t)a * b >> 32);
    o[8] = (uint32_t)((uint64_t)((int64_t)(int32_t)a * (int32_t)b) >> 32);
    o[9] = a < b ? a : b;
    o[10] = (int32_t)a > (int32_t)b ? a : b;
    o[11] = (uint32_t)(63 - highest(ab));
    o[12] = (uint32_t)high64(ab, ba);
    o[13] = (a > b ? a - b : b - a) + 7;
    o[14] = (uint32_t)((int64_t)low24(a) * low24(b));
    o[15] = a; /* 0xba98: bits 3 of the nibbles do not count, as on a GPU */
}

START_TEST(bits_by_cudas_names)
{
    enum { N = 512 };
    static uint32_t in[2 * N], out[LAYOUT_BITS * N];
    const uint32_t special[] = {0, 1, 0x80000000, 0xffffffff, 0x7fffffff, 32, 31, 0x00800000};
    uint64_t seed = 13;
    for (int i = 0; i < 2 * N; i++) {
        in[i] = i < 128 ? special[i % 2 ? i / 2 % 8 : i / 16] : machine_random(&seed);
    }
    uint64_t d_in = machine_alloc(m, sizeof in), d_out = machine_alloc(m, sizeof out);
    machine_put(m, d_in, in, sizeof in);
    void *params[] = {&d_in, &d_out};
    struct machine_launch l = {.image = &culvert_image_layout,
                               .kernel = "bits",
                               .grid = {N / 64},
                               .block = {64}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (int i = 0; i < N; i++) {
        uint32_t e[LAYOUT_BITS];
        expected_bits(in[2 * i], in[2 * i + 1], e);
        for (int k = 0; k < LAYOUT_BITS; k++) {
            ck_assert_msg(out[LAYOUT_BITS * i + k] == e[k], "%08x, %08x, result %d: %08x, not %08x",
                          in[2 * i], in[2 * i + 1], k, out[LAYOUT_BITS * i + k], e[k]);
        }
    }
    machine_free(m, d_in);
    machine_free(m, d_out);
}
END_TEST

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static int64_t clamp(double x, double low, double high)
{
    return isnan(x) ? 0 : (int64_t)(x < low ? low : x > high ? high : x);
}

/* volatile: whatever this file's own flags are, each operation is rounded. */
static void expected_floats(float a, float b, float c, uint32_t *o)
{
    volatile float product = a * b, quotient = a / b, small = fminf(a, b), large = fmaxf(b, c);
    volatile double wide = (double)a * (double)b;
    double sum = wide + (double)c;
    int64_t sum_bits;
    memcpy(&sum_bits, &sum, sizeof sum);
    o[0] = bits_of(product + c);
    o[1] = bits_of(fmaf(a, b, c));
    o[2] = o[0];
    o[3] = bits_of(quotient);
    o[4] = bits_of(sqrtf(fabsf(a)));
    o[5] = (uint32_t)clamp(rint(a), -2147483648.0, 2147483647.0);
    o[6] = (uint32_t)clamp(trunc(b), -2147483648.0, 2147483647.0);
    o[7] = bits_of(small - large);
    o[8] = (uint32_t)(sum_bits >> 20);
    o[9] = (uint32_t)clamp(trunc(c), 0.0, 4294967295.0);
}

START_TEST(floats_are_rounded_and_not_contracted)
{
    enum { N = 4096 };
    static float in[3 * N];
    static uint32_t out[LAYOUT_FLOATS * N];
    int contraction_would_show = 0;
    uint64_t seed = 14;
    for (int i = 0; i < 3 * N; i++) {
        int exponent = (int)(machine_random(&seed) % 48) - 12;
        in[i] = ldexpf((float)machine_random(&seed) / 4294967296.0f - 0.5f, exponent);
    }
    uint64_t d_in = machine_alloc(m, sizeof in), d_out = machine_alloc(m, sizeof out);
    machine_put(m, d_in, in, sizeof in);
    void *params[] = {&d_in, &d_out};
    struct machine_launch l = {.image = &culvert_image_layout,
                               .kernel = "floats",
                               .grid = {N / 128},
                               .block = {128}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d_out, sizeof out);
    for (int i = 0; i < N; i++) {
        uint32_t e[LAYOUT_FLOATS];
        expected_floats(in[3 * i], in[3 * i + 1], in[3 * i + 2], e);
        contraction_would_show += e[0] != e[1];
        for (int k = 0; k < LAYOUT_FLOATS; k++) {
            ck_assert_msg(out[LAYOUT_FLOATS * i + k] == e[k],
                          "%a, %a, %a, result %d: %08x, not %08x", (double)in[3 * i],
                          (double)in[3 * i + 1], (double)in[3 * i + 2], k,
                          out[LAYOUT_FLOATS * i + k], e[k]);
        }
    }
    ck_assert_int_gt(contraction_would_show, N / 100);
    machine_free(m, d_in);
    machine_free(m, d_out);
}
END_TEST

Suite *layout_suite(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_checked_fixture(t, open_machine, close_machine);
    tcase_add_test(t, indices_of_a_grid_in_three_dimensions);
    tcase_add_test(t, parameters_lie_at_their_natural_alignment);
    tcase_add_test(t, parameters_of_every_kind_arrive);
    tcase_add_test(t, variables_are_found_by_name);
    tcase_add_test(t, bits_by_cudas_names);
    tcase_add_test(t, floats_are_rounded_and_not_contracted);
    suite_add_tcase(s, t);
    return s;
}
