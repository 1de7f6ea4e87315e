/* SPDX-License-Identifier: BSD-2-Clause */
/* Device time: of a sequence, and between two. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <math.h>

static gpu_fixture f;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static const culvert_grid one = {.blocks = {1}, .threads = {1}};

/* A kernel that keeps the stream busy for so long; its future has resolved. */
static culvert_future *busy(culvert_stream *stream, unsigned long long ns, bool timed)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &one, CULVERT_ARGS(CULVERT_U64(ns)));
    if (timed)
        culvert_seq_timed(seq);
    culvert_future *future = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_await(future, 60), CULVERT_OK);
    return future;
}

START_TEST(a_timed_sequence_has_its_device_time)
{
    culvert_future *a = busy(f.stream, 3000000, true), *b = busy(f.stream, 3000000, false);
    ck_assert_double_ge(culvert_gpu_seconds(a), 0.0029);
    ck_assert_double_lt(culvert_gpu_seconds(a), 30);
    ck_assert(isnan(culvert_gpu_seconds(b)));
    ck_assert(isnan(culvert_gpu_elapsed(a, b)) && isnan(culvert_gpu_elapsed(b, a)));
    culvert_unref(a);
    culvert_unref(b);
}
END_TEST

START_TEST(time_between_sequences_is_from_the_first_start_to_the_last_end)
{
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_future *a = busy(f.stream, 2000000, true), *b = busy(other, 3000000, true);
    double one_a = culvert_gpu_seconds(a), one_b = culvert_gpu_seconds(b);
    ck_assert_double_eq(culvert_gpu_elapsed(a, a), one_a);
    ck_assert_double_eq(culvert_gpu_elapsed(b, b), one_b);
    /* One after the other: awaited in between. */
    ck_assert_double_ge(culvert_gpu_elapsed(a, b), one_a + one_b - 1e-6);
    ck_assert_double_le(culvert_gpu_elapsed(b, a), 1e-6);
    culvert_unref(a);
    culvert_unref(b);
    culvert_stream_unref(other);
}
END_TEST

START_TEST(what_has_no_device_time_is_no_number)
{
    culvert_future *a = busy(f.stream, 0, true), *sleep = culvert_sleep(f.loop, 0);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_timed(seq);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &one, NULL, 0);
    culvert_future *failed = culvert_seq_submit(seq);
    ck_assert(isnan(culvert_gpu_elapsed(a, failed)) && isnan(culvert_gpu_elapsed(failed, a)));
    ck_assert(isnan(culvert_gpu_elapsed(a, sleep)) && isnan(culvert_gpu_seconds(sleep)));
    ck_assert_int_eq(culvert_await(failed, 60), CULVERT_EINVAL);
    culvert_unref(failed);
    culvert_unref(sleep);
    culvert_unref(a);
}
END_TEST

START_TEST(another_gpu_has_another_clock)
{
    culvert_gpu *second = culvert_gpu_open(f.loop, f.ordinal, NULL, NULL);
    culvert_stream *stream = culvert_stream_new(second, NULL, NULL);
    culvert_future *a = busy(f.stream, 0, true);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_future *b = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_await(b, 60), CULVERT_OK);
    ck_assert_double_ge(culvert_gpu_seconds(b), 0);
    ck_assert(isnan(culvert_gpu_elapsed(a, b)));
    culvert_unref(a);
    culvert_unref(b);
    culvert_stream_unref(stream);
    culvert_gpu_close(second);
}
END_TEST

/* ---- the simulator: exact times ---- */

static culvert_future *stepped(double seconds)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &one, NULL, 0);
    culvert_seq_timed(seq);
    culvert_sim_duration("empty", seconds);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_sim_advance(seconds + 0.25); /* and a pause */
    ck_assert_int_eq(culvert_await(future, 60), CULVERT_OK);
    return future;
}

/* Hours: as exact as the parts, for the times are not all counted from one event. */
START_TEST(long_times_stay_exact)
{
    enum { STEPS = 60 };
    culvert_future *all[STEPS];
    culvert_sim_virtual_time(1);
    for (int i = 0; i < STEPS; i++)
        all[i] = stepped(0.001 * (i + 1));
    for (int i = 0; i < STEPS; i++) {
        double want = 0;
        ck_assert_double_eq_tol(culvert_gpu_seconds(all[i]), 0.001 * (i + 1), 1e-7);
        for (int k = i; k < STEPS; k++) {
            want += 0.001 * (k + 1);
            ck_assert_double_eq_tol(culvert_gpu_elapsed(all[i], all[k]), want, 1e-5);
            want += 0.25;
        }
    }
    for (int i = 0; i < STEPS; i++)
        culvert_unref(all[i]);
    culvert_sim_virtual_time(0);
}
END_TEST

/* Two events each, and one for all that is the base. */
START_TEST(events_are_used_again)
{
    for (int i = 0; i < 5; i++)
        culvert_unref(busy(f.stream, 0, true));
    uint64_t made = culvert_sim_calls("cuEventCreate");
    for (int i = 0; i < 100; i++)
        culvert_unref(busy(f.stream, 0, true));
    ck_assert_uint_eq(culvert_sim_calls("cuEventCreate"), made);
    uint64_t asked = culvert_sim_calls("cuEventElapsedTime");
    for (int i = 0; i < 100; i++)
        culvert_unref(busy(f.stream, 0, false));
    ck_assert_uint_eq(culvert_sim_calls("cuEventElapsedTime"), asked);
}
END_TEST

static Suite *timing_suite(void)
{
    Suite *suite = suite_create("timing");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, a_timed_sequence_has_its_device_time);
    tcase_add_test(any, time_between_sequences_is_from_the_first_start_to_the_last_end);
    tcase_add_test(any, what_has_no_device_time_is_no_number);
    tcase_add_test(any, another_gpu_has_another_clock);
    suite_add_tcase(suite, any);
    if (!gpu_fixture_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, long_times_stay_exact);
    tcase_add_test(sim, events_are_used_again);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {timing_suite(), NULL};
    return test_main(suites);
}
