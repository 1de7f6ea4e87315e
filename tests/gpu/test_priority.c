/* SPDX-License-Identifier: BSD-2-Clause */
/* Priorities and the pool, by the order of results. */
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include "culvert/sim.h"

#include <stdlib.h>

/* The simulator's. */
int cuStreamGetPriority(struct CUstream_st *stream, int *priority);

static gpu_fixture f;

static culvert_stream *stream_of(int priority)
{
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.priority = priority;
    culvert_stream *stream = culvert_stream_new(f.gpu, &options, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    return stream;
}

static culvert_stream *pick(int priority)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_pick(f.gpu, priority, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    return stream;
}

/* Submitted first, the low one writes last: the word says so. Not ordered, which is what is looked at, so
   the simulator must not be strict. */
START_TEST(case_084_high_is_not_stuck_behind_low)
{
    static const int levels[] = {CULVERT_PRIORITY_LOW, CULVERT_PRIORITY_NORMAL,
                                 CULVERT_PRIORITY_HIGH};
    gpu_fixture_open(&f, NULL, NULL);
    culvert_sim_strict(0);
    f.dirty = true;
    culvert_buffer *word = gpu_fixture_buffer(&f, 4);
    culvert_stream *streams[3];
    for (int i = 0; i < 3; i++)
        streams[i] = stream_of(levels[i]);
    for (int round = 0; round < 60; round++) {
        int first = round % 3; /* each goes first in turn; the order is the same */
        culvert_future *done[3];
        unsigned last = 0;
        culvert_sim_hold(NULL);
        for (int i = 0; i < 3; i++) {
            int k = (first + i) % 3;
            done[k] = culvert_fill(streams[k], word, 0, 4, 100 + (unsigned)k, 4);
        }
        culvert_sim_release(NULL);
        gpu_fixture_ok(culvert_all(f.loop, done, 3));
        gpu_fixture_ok(culvert_download(f.stream, &last, word, 0, 4));
        ck_assert_uint_eq(last, 100);
    }
    for (int i = 0; i < 3; i++)
        culvert_stream_unref(streams[i]);
    culvert_buffer_unref(word);
    gpu_fixture_close(&f);
}
END_TEST

/* More high work than the device has room for, and yet the low work comes to its end. */
START_TEST(case_084_low_is_not_starved)
{
    gpu_fixture_open(&f, NULL, NULL);
    culvert_stream *low = stream_of(CULVERT_PRIORITY_LOW), *high[4];
    culvert_buffer *words = gpu_fixture_buffer(&f, 5 * 4);
    culvert_future *all[4 * 400 + 1];
    size_t n = 0;
    for (int i = 0; i < 4; i++)
        high[i] = stream_of(CULVERT_PRIORITY_HIGH);
    for (int k = 0; k < 400; k++)
        for (size_t i = 0; i < 4; i++)
            all[n++] = culvert_fill(high[i], words, i * 4, 4, 7, 4);
    culvert_future *last = culvert_ref(all[n - 1]);
    all[n++] = culvert_fill(low, words, 16, 4, 9, 4);
    gpu_fixture_ok(culvert_all(f.loop, all, n));
    ck_assert_int_eq(culvert_status(last), CULVERT_OK);
    culvert_unref(last);
    for (int i = 0; i < 4; i++)
        culvert_stream_unref(high[i]);
    culvert_stream_unref(low);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(case_084_high_is_the_numerically_lowest)
{
    culvert_gpu_description d = {.struct_size = sizeof d};
    int native = 0;
    gpu_fixture_open(&f, NULL, NULL);
    ck_assert_int_eq(culvert_gpu_info(f.gpu, &d), CULVERT_OK);
    ck_assert_int_lt(d.priority_greatest, d.priority_least);
    culvert_stream *high = stream_of(CULVERT_PRIORITY_HIGH), *low = stream_of(CULVERT_PRIORITY_LOW);
    ck_assert_int_eq(cuStreamGetPriority(culvert_stream_native(high), &native), 0);
    ck_assert_int_eq(native, d.priority_greatest);
    ck_assert_int_eq(cuStreamGetPriority(culvert_stream_native(low), &native), 0);
    ck_assert_int_eq(native, d.priority_least);
    for (int bad = -2; bad <= 2; bad += 4) {
        culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
        culvert_error err = CULVERT_ERROR_INIT;
        options.priority = bad;
        ck_assert_ptr_null(culvert_stream_new(f.gpu, &options, &err));
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
        ck_assert_ptr_null(culvert_stream_pick(f.gpu, bad, &err));
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
    }
    culvert_stream_unref(high);
    culvert_stream_unref(low);
    gpu_fixture_close(&f);
}
END_TEST

/* A long operation on one stream of the pool: short ones are not put behind it while others are free, nor
   while others have as little to do. */
static void check_short_beside_long(unsigned streams, size_t n)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.streams = streams;
    gpu_fixture_open(&f, NULL, &options);
    culvert_buffer *words = gpu_fixture_buffer(&f, 4 * (n + 1));
    culvert_stream *busy = pick(CULVERT_PRIORITY_NORMAL);
    gpu_fixture_hold(&f, busy);
    culvert_future *slow = culvert_fill(busy, words, 0, 4, 1, 4);
    for (int round = 0; round < 3; round++) {
        culvert_future *quick[8];
        for (size_t i = 0; i < n; i++) {
            culvert_stream *s = pick(CULVERT_PRIORITY_NORMAL);
            ck_assert_ptr_ne(s, busy);
            quick[i] = culvert_fill(s, words, 4 + 4 * i, 4, 2, 4);
            culvert_stream_unref(s);
        }
        gpu_fixture_ok(culvert_all(f.loop, quick, n));
    }
    ck_assert_int_eq(culvert_status(slow), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(slow);
    culvert_stream_unref(busy);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}

START_TEST(case_082_short_work_does_not_share_the_stream_of_long_work)
{
    check_short_beside_long(8, 7); /* one for each */
    check_short_beside_long(4, 6); /* two for each, none behind the long one */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("priority");
    TCase *t = tcase_create("priority");
    tcase_add_test(t, case_084_high_is_not_stuck_behind_low);
    tcase_add_test(t, case_084_low_is_not_starved);
    tcase_add_test(t, case_084_high_is_the_numerically_lowest);
    tcase_add_test(t, case_082_short_work_does_not_share_the_stream_of_long_work);
    suite_add_tcase(s, t);
    Suite *suites[] = {s, NULL};
    return test_main(suites);
}
