/* SPDX-License-Identifier: BSD-2-Clause */
/* Pitched copies: the right bytes and no others, between any two buffers, and what is refused. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

enum { ROOM = 4096 };

static gpu_fixture f;
static culvert_buffer *on_device[2], *on_host[2];
static unsigned char model[2][ROOM]; /* what destination and source hold */

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        on_device[i] = gpu_fixture_buffer(&f, ROOM);
        on_host[i] = gpu_fixture_host_buffer(&f, ROOM);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++) {
        culvert_buffer_unref(on_device[i]);
        culvert_buffer_unref(on_host[i]);
    }
    gpu_fixture_close(&f);
}

static uint64_t calls(const char *function)
{
    return gpu_fixture_simulated() ? culvert_sim_calls(function) : 0;
}

static culvert_future *copy2d(const culvert_copy2d *copy)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy2d(seq, copy);
    return culvert_seq_submit(seq);
}

/* ---- what they do ---- */

static uint64_t seed = 1;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void rectangle(size_t width, size_t height, size_t *pitch, size_t *offset)
{
    *pitch = width + pick(40);
    size_t extent = (height - 1) * *pitch + width;
    ck_assert_uint_le(extent, ROOM);
    *offset = pick((unsigned)(ROOM - extent) + 1);
}

static void one_random_copy(culvert_buffer *dst, culvert_buffer *src)
{
    unsigned char out[ROOM];
    culvert_copy2d c = {.dst = dst, .src = src, .width = 1 + pick(60), .height = 1 + pick(30)};
    rectangle(c.width, c.height, &c.dst_pitch, &c.dst_offset);
    rectangle(c.width, c.height, &c.src_pitch, &c.src_offset);
    for (int i = 0; i < ROOM; i++) {
        model[0][i] = (unsigned char)pick(256);
        model[1][i] = (unsigned char)pick(256);
    }
    gpu_fixture_ok(culvert_upload(f.stream, dst, 0, model[0], ROOM));
    gpu_fixture_ok(culvert_upload(f.stream, src, 0, model[1], ROOM));
    gpu_fixture_ok(copy2d(&c));
    gpu_fixture_ok(culvert_download(f.stream, out, dst, 0, ROOM));
    for (size_t y = 0; y < c.height; y++)
        memcpy(model[0] + c.dst_offset + y * c.dst_pitch, model[1] + c.src_offset + y * c.src_pitch,
               c.width);
    ck_assert_mem_eq(out, model[0], ROOM);
}

START_TEST(case_096_rows_of_any_width_and_pitch_go_between_any_two_buffers)
{
    culvert_buffer *const dsts[] = {on_device[0], on_device[0], on_host[0], on_host[0]};
    culvert_buffer *const srcs[] = {on_device[1], on_host[1], on_device[1], on_host[1]};
    for (int run = 0; run < 100; run++)
        one_random_copy(dsts[run % 4], srcs[run % 4]);
}
END_TEST

START_TEST(rows_side_by_side_are_one_copy)
{
    culvert_copy2d c = {.dst = on_device[0],
                        .dst_pitch = 16,
                        .src = on_host[0],
                        .src_pitch = 16,
                        .width = 16,
                        .height = 8};
    unsigned char out[ROOM], expected[ROOM] = {0};
    memset(culvert_buffer_data(on_host[0]), 7, ROOM);
    memset(expected, 7, 16 * 8);
    uint64_t before = calls("cuMemcpy2DAsync");
    gpu_fixture_ok(copy2d(&c));
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuMemcpy2DAsync"), before);
    gpu_fixture_ok(culvert_download(f.stream, out, on_device[0], 0, ROOM));
    ck_assert_mem_eq(out, expected, ROOM);
}
END_TEST

START_TEST(case_091_no_rows_or_no_width_succeed_in_order)
{
    const culvert_copy2d none[] = {
        {.dst = on_device[0], .src = on_device[0], .width = 8, .dst_pitch = 8, .src_pitch = 8},
        {.dst = on_device[0], .src = on_device[0], .height = 8},
        {.dst = on_device[0], .src = on_device[0]},
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        gpu_fixture_hold(&f, f.stream);
        culvert_detach(culvert_fill(f.stream, on_device[0], 0, 16, 0, 4));
        culvert_future *future = copy2d(&none[i]);
        gpu_fixture_run(&f, 0.01);
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
    }
}
END_TEST

/* One half of every row to the other half: the ranges of bytes overlap, the rectangles do not. */
START_TEST(rectangles_of_one_buffer_may_interleave)
{
    unsigned char in[ROOM], out[ROOM];
    culvert_copy2d c = {.dst = on_device[0],
                        .dst_offset = 32,
                        .dst_pitch = 64,
                        .src = on_device[0],
                        .src_pitch = 64,
                        .width = 32,
                        .height = 64};
    for (int i = 0; i < ROOM; i++)
        in[i] = (unsigned char)(i % 251);
    gpu_fixture_ok(culvert_upload(f.stream, on_device[0], 0, in, ROOM));
    gpu_fixture_ok(copy2d(&c));
    gpu_fixture_ok(culvert_download(f.stream, out, on_device[0], 0, ROOM));
    for (int y = 0; y < 64; y++)
        memcpy(in + 64 * y + 32, in + 64 * y, 32);
    ck_assert_mem_eq(out, in, ROOM);
}
END_TEST

/* ---- what is refused ---- */

typedef struct refusal {
    culvert_copy2d copy; /* without buffers */
    int code;
    const char *says[3];
} refusal;

static const refusal refusals[] = {
    {{.dst_pitch = 0, .src_pitch = 16, .width = 16, .height = 2},
     CULVERT_EINVAL,
     {"dst_pitch is 0", "width of 16 bytes"}},
    {{.dst_pitch = 16, .src_pitch = 15, .width = 16, .height = 2},
     CULVERT_EINVAL,
     {"src_pitch is 15", "width of 16 bytes"}},
    {{.dst_pitch = 16, .src_pitch = (size_t)1 << 31, .width = 16, .height = 2},
     CULVERT_EINVAL,
     {"src_pitch is 2147483648", "2147483647"}},
    {{.dst_pitch = 64, .dst_offset = 1, .src_pitch = 32, .width = 64 - 32, .height = 65},
     CULVERT_EINVAL,
     {"pitched copy of 4128 bytes at offset 1", "4096-byte"}},
    {{.dst_pitch = 32, .src_pitch = 64, .src_offset = 65, .width = 32, .height = 64},
     CULVERT_EINVAL,
     {"pitched copy of 4064 bytes at offset 65", "4096-byte"}},
    {{.dst_pitch = 32, .src_pitch = 32, .width = 16, .height = SIZE_MAX / 16},
     CULVERT_EOVERFLOW,
     {"dst_pitch 32"}},
    {{.dst_pitch = 32, .dst_offset = SIZE_MAX - 8, .src_pitch = 32, .width = 16, .height = 2},
     CULVERT_EOVERFLOW,
     {"48 bytes"}},
    {{.dst_pitch = 32, .src_pitch = 32, .width = 16, .height = 2, .reserved = {0, 1}},
     CULVERT_EINVAL,
     {"reserved"}},
};

START_TEST(case_096_what_is_out_of_bounds_is_refused_with_the_figures)
{
    const refusal *r = &refusals[_i];
    culvert_copy2d copy = r->copy;
    copy.dst = on_device[0];
    copy.src = on_device[1];
    uint64_t before = calls(NULL);
    culvert_future *future = copy2d(&copy);
    ck_assert_uint_eq(calls(NULL), before);
    culvert_error err = gpu_fixture_fails(future, r->code);
    ck_assert_str_eq(err.op, "culvert_seq_copy2d");
    for (int i = 0; i < 3 && r->says[i] != NULL; i++)
        gpu_fixture_says(&err, r->says[i]);
    gpu_fixture_ok(culvert_fill(f.stream, on_device[0], 0, 16, 0, 4)); /* nothing was harmed */
}
END_TEST

/* Compared with a map of the bytes. */
static bool share_a_byte(const culvert_copy2d *c)
{
    static unsigned char map[ROOM];
    memset(map, 0, sizeof map);
    for (size_t y = 0; y < c->height; y++)
        memset(map + c->dst_offset + y * c->dst_pitch, 1, c->width);
    for (size_t y = 0; y < c->height; y++)
        for (size_t x = 0; x < c->width; x++)
            if (map[c->src_offset + y * c->src_pitch + x])
                return true;
    return false;
}

START_TEST(rectangles_that_share_a_byte_are_refused_and_no_others)
{
    unsigned refused = 0, taken = 0;
    for (int run = 0; run < 2000; run++) {
        size_t pitch = 8 + pick(40);
        culvert_copy2d c = {.dst = on_device[0],
                            .src = on_device[0],
                            .dst_pitch = pitch,
                            .src_pitch = pitch,
                            .width = 1 + pick((unsigned)pitch),
                            .height = 2 + pick(8)};
        c.dst_offset = pick(600);
        c.src_offset = pick(600);
        if (c.width == pitch)
            c.width--;
        bool shares = share_a_byte(&c);
        culvert_future *future = copy2d(&c);
        if (shares) {
            culvert_error err = gpu_fixture_fails(future, CULVERT_EINVAL);
            gpu_fixture_says(&err, "overlaps");
            refused++;
        } else {
            gpu_fixture_ok(future);
            taken++;
        }
    }
    ck_assert_uint_gt(refused, 100);
    ck_assert_uint_gt(taken, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copy2d");
    TCase *tc = tcase_create("copies");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_096_rows_of_any_width_and_pitch_go_between_any_two_buffers);
    tcase_add_test(tc, rows_side_by_side_are_one_copy);
    tcase_add_test(tc, case_091_no_rows_or_no_width_succeed_in_order);
    tcase_add_test(tc, rectangles_of_one_buffer_may_interleave);
    tcase_add_loop_test(tc, case_096_what_is_out_of_bounds_is_refused_with_the_figures, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tc, rectangles_that_share_a_byte_are_refused_and_no_others);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
