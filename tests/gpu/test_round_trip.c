/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Case 43: from the submission of a short kernel to its continuation, with each wake. The times are printed,
 * for a reader: they are a matter of the machine. What is tested is that none gets lost, neither while the
 * loop spins for it nor when it has just decided to sleep: what is lost is only found by the watchdog, a
 * tenth of a second later.
 */
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 1500, SHORT = 10000, LONG = 400000 }; /* nanoseconds */
/* The watchdog looks where a machine that is busy with other things lets the process stand still, too. */
enum { STOOD_STILL = ROUNDS / 50 };

static gpu_fixture f;

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static const struct {
    int wake;
    const char *name;
} wakes[] = {{CULVERT_WAKE_ADAPTIVE, "adaptive"},
             {CULVERT_WAKE_HOST_FUNC, "host function"},
             {CULVERT_WAKE_THREAD, "thread"},
             {CULVERT_WAKE_SPIN, "spin"}};
enum { WAKES = sizeof wakes / sizeof wakes[0] };

static void at(culvert_future *done, void *arg)
{
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    *(double *)arg = test_now();
}

/* Mostly short ones. Some long ones among them, so that the adaptive wake changes its mind. */
static uint64_t length_of(int i)
{
    return i % 50 >= 47 ? LONG : SHORT;
}

static double round_trip(culvert_kernel *busy, int i)
{
    static const culvert_grid one = {.blocks = {1}, .threads = {1}};
    double end = 0, begin = test_now();
    culvert_future *future =
        culvert_launch(f.stream, busy, &one, CULVERT_ARGS(CULVERT_U64(length_of(i))));
    ck_assert_int_eq(culvert_on_settled(future, at, &end, NULL), CULVERT_OK);
    ev_run(f.ev, 0); /* to the end of the work, and of the continuation */
    ck_assert_double_gt(end, 0);
    return end - begin;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

START_TEST(case_043_short_work_is_never_lost)
{
    static double times[ROUNDS];
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    unsigned by_watchdog = 0;
    int n = 0;
    options.wake = wakes[_i].wake;
    gpu_fixture_open(&f, &options, NULL);
    culvert_kernel *busy = gpu_fixture_kernel(&f, "busy");
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t since = f.gpu->flow->watchdog = culvert__now();
        double seconds = round_trip(busy, i);
        by_watchdog += f.gpu->flow->watchdog != since;
        ck_assert_uint_le(by_watchdog, STOOD_STILL);
        if (length_of(i) == SHORT)
            times[n++] = seconds;
    }
    qsort(times, (size_t)n, sizeof times[0], by_size);
    printf("10 us kernel, %s: p50 %.1f us, p99 %.1f us\n", wakes[_i].name, 1e6 * times[n / 2],
           1e6 * times[n * 99 / 100]);
    fflush(stdout);
}
END_TEST

static Suite *round_trip_suite(void)
{
    Suite *suite = suite_create("round trip");
    TCase *tc = tcase_create("round trip");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_loop_test(tc, case_043_short_work_is_never_lost, 0, WAKES);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {round_trip_suite(), NULL};
    return test_main(suites);
}
