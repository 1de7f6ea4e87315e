/* SPDX-License-Identifier: BSD-2-Clause */
/* Traces: starting and stopping, and what they cost. The file is looked at by trace.py. */
#define _POSIX_C_SOURCE 200809L
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gpu_fixture f;
static char path[] = "/tmp/culvert-trace-XXXXXX";

static void set_up(void)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
    unlink(path);
}

static void start(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_msg(culvert_trace_start(f.loop, path, &err) == CULVERT_OK, "%s", err.message);
}

static size_t count(const char *what)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, file), found = 0;
    fclose(file);
    text[n] = '\0';
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        found++;
    return found;
}

static void work(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        gpu_fixture_ok(culvert_stream_done(f.stream));
}

START_TEST(what_cannot_be_started_is_told)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_int_eq(culvert_trace_start(f.loop, NULL, &err), CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_trace_start");
    ck_assert_int_eq(culvert_trace_start(f.loop, "/nowhere/trace.json", &err), CULVERT_ESYSTEM);
    ck_assert_int_eq(err.native, ENOENT);
    gpu_fixture_says(&err, "/nowhere/trace.json");
    start();
    ck_assert_int_eq(culvert_trace_start(f.loop, path, &err), CULVERT_EINVAL);
    gpu_fixture_says(&err, "culvert_trace_stop");
    culvert_trace_stop(f.loop);
    culvert_trace_stop(f.loop);
    start();
    culvert_trace_stop(f.loop);
}
END_TEST

START_TEST(what_is_traced_is_what_was_submitted_meanwhile)
{
    work(3);
    start();
    work(5);
    culvert_trace_stop(f.loop);
    work(2);
    ck_assert_uint_eq(count("\"where\""), 5);
    ck_assert_uint_eq(count("CULVERT_OK"), 5);
}
END_TEST

/* Begun under one trace, over under none or under the next one. */
START_TEST(a_sequence_may_outlive_its_trace)
{
    start();
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_stream_done(f.stream), *second = culvert_stream_done(f.stream);
    culvert_trace_stop(f.loop);
    size_t begun = count("\"where\"");
    ck_assert_uint_ge(begun, 2);
    ck_assert_uint_eq(count("outcome"), 0);
    start();
    gpu_fixture_release(&f);
    gpu_fixture_ok(first);
    gpu_fixture_ok(second);
    culvert_trace_stop(f.loop);
    ck_assert_uint_eq(count("outcome"), 0); /* it was not theirs */
}
END_TEST

/* A trace's times are its own: the program did not ask. */
START_TEST(a_trace_times_nothing_for_the_program)
{
    start();
    culvert_future *future = culvert_stream_done(f.stream);
    ck_assert_int_eq(culvert_await(future, 60), CULVERT_OK);
    ck_assert(isnan(culvert_gpu_seconds(future)));
    culvert_unref(future);
}
END_TEST

/* ---- the simulator ---- */

/* No trace: no call more than before there was one, and none that tells a time. */
START_TEST(without_a_trace_nothing_is_called_for_it)
{
    uint64_t before[3][2], after[3][2];
    for (int round = 0; round < 3; round++) { /* before, with, after */
        if (round == 1)
            start();
        work(4); /* events are there */
        before[round][0] = culvert_sim_calls("cuEventRecord");
        before[round][1] = culvert_sim_calls("cuEventElapsedTime");
        work(100);
        after[round][0] = culvert_sim_calls("cuEventRecord");
        after[round][1] = culvert_sim_calls("cuEventElapsedTime");
        culvert_trace_stop(f.loop);
    }
    for (int round = 0; round < 3; round += 2) {
        ck_assert_uint_eq(after[round][0] - before[round][0], 100);
        ck_assert_uint_eq(after[round][1] - before[round][1], 0);
    }
    ck_assert_uint_eq(after[1][0] - before[1][0], 300);
    ck_assert_uint_ge(after[1][1] - before[1][1], 100);
}
END_TEST

/* A trace that has no events left goes without; the work does not fail. */
START_TEST(what_cannot_be_timed_runs_nevertheless)
{
    start();
    culvert_sim_fail("cuEventCreate", 1, 2);
    work(3);
    culvert_trace_stop(f.loop);
    ck_assert_uint_eq(count("CULVERT_OK"), 3);
}
END_TEST

static Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, what_cannot_be_started_is_told);
    tcase_add_test(any, what_is_traced_is_what_was_submitted_meanwhile);
    tcase_add_test(any, a_sequence_may_outlive_its_trace);
    tcase_add_test(any, a_trace_times_nothing_for_the_program);
    suite_add_tcase(suite, any);
    if (!gpu_fixture_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, without_a_trace_nothing_is_called_for_it);
    tcase_add_test(sim, what_cannot_be_timed_runs_nevertheless);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {trace_suite(), NULL};
    return test_main(suites);
}
