/* SPDX-License-Identifier: BSD-2-Clause */
/* Traces: starting and stopping, and what they cost. The file is looked at by trace.py. */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "trace/nvtx.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
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
    if (!culvert__nvtx_built())
        ck_assert_int_eq(culvert_trace_start(f.loop, NULL, &err), CULVERT_ENOTSUP);
    else
        ck_assert_int_eq(culvert_trace_start(f.loop, "", &err), CULVERT_ESYSTEM);
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

/* ---- numbers ---- */

static culvert_loop_statistics stats(void)
{
    culvert_loop_statistics s = {.struct_size = sizeof s};
    ck_assert_int_eq(culvert_loop_stats(f.loop, &s), CULVERT_OK);
    return s;
}

static uint64_t sum(const uint64_t *buckets)
{
    uint64_t n = 0;
    for (int i = 0; i < CULVERT_STATS_BUCKETS; i++)
        n += buckets[i];
    return n;
}

/* 16 ms and more */
static uint64_t long_ones(const culvert_loop_statistics *s)
{
    uint64_t n = 0;
    for (int i = 15; i < CULVERT_STATS_BUCKETS; i++)
        n += s->stalls[i];
    return n;
}

static void sleep_in_it(culvert_future *done, void *arg)
{
    (void)done, (void)arg;
    usleep(20000);
}

START_TEST(what_has_happened_is_counted)
{
    char bytes[4096] = "";
    const culvert_grid one = {.blocks = {1}, .threads = {1}};
    culvert_buffer *a = gpu_fixture_buffer(&f, 4096), *b = gpu_fixture_buffer(&f, 4096);
    culvert_loop_statistics before = stats();
    for (int i = 0; i < 3; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_upload(seq, a, 0, bytes, sizeof bytes);
        culvert_seq_copy(seq, b, 0, a, 0, 4096);
        culvert_seq_fill(seq, b, 0, 16, 1, 4);
        culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &one, NULL, 0);
        culvert_seq_download(seq, bytes, b, 0, sizeof bytes);
        gpu_fixture_ok(culvert_seq_submit(seq));
    }
    culvert_promise *promise;
    culvert_future *never;
    promise = culvert_promise_new(f.loop, &never);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, never);
    culvert_future *held = culvert_seq_submit(seq);
    ck_assert_uint_eq(stats().queued, 1);
    culvert_cancel(held);
    gpu_fixture_fails(held, CULVERT_ECANCELED);
    culvert_promise_drop(promise);
    culvert_loop_statistics now = stats();
    ck_assert_uint_eq(now.submitted - before.submitted, 4);
    ck_assert_uint_eq(now.resolved - before.resolved, 3);
    ck_assert_uint_eq(now.canceled - before.canceled, 1);
    ck_assert_uint_eq(now.rejected, before.rejected);
    ck_assert_uint_eq(now.uploads - before.uploads, 3);
    ck_assert_uint_eq(now.copies - before.copies, 3);
    ck_assert_uint_eq(now.fills - before.fills, 3);
    ck_assert_uint_eq(now.launches - before.launches, 3);
    ck_assert_uint_eq(now.downloads - before.downloads, 3);
    ck_assert_uint_eq(now.calls + now.graphs, 0);
    ck_assert_uint_eq(sum(now.latency) - sum(before.latency), 3);
    ck_assert_uint_gt(now.turns, before.turns);
    ck_assert_uint_gt(now.queries, before.queries);
    ck_assert_uint_eq(now.gpus, 1);
    ck_assert_uint_ge(now.streams, 1);
    ck_assert_uint_eq(now.in_flight + now.queued, 0);
    ck_assert_uint_ge(now.device_bytes_used, 2 * 4096);
    ck_assert_uint_ge(now.device_bytes, now.device_bytes_used);
    ck_assert_uint_ge(now.pinned_bytes, now.pinned_bytes_used);
    ck_assert_uint_eq(now.events, now.events_free);
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
}
END_TEST

START_TEST(a_callback_that_holds_the_loop_shows)
{
    culvert_loop_statistics before = stats();
    culvert_future *done = culvert_stream_done(f.stream);
    ck_assert_int_eq(culvert_on_settled(done, sleep_in_it, NULL, NULL), CULVERT_OK);
    gpu_fixture_idle(&f, f.stream);
    gpu_fixture_ok(culvert_sleep(f.loop, 0));
    culvert_loop_statistics now = stats();
    ck_assert_double_ge(now.longest_stall_seconds, 0.02);
    ck_assert_uint_gt(long_ones(&now), long_ones(&before));
}
END_TEST

START_TEST(a_struct_of_another_size_is_refused_or_filled_in_part)
{
    culvert_loop_statistics s;
    memset(&s, 0x55, sizeof s);
    s.struct_size = 0;
    ck_assert_int_eq(culvert_loop_stats(f.loop, &s), CULVERT_EINVAL);
    s.struct_size = sizeof s + 1;
    ck_assert_int_eq(culvert_loop_stats(f.loop, &s), CULVERT_EINVAL);
    s.struct_size = offsetof(culvert_loop_statistics, spins);
    ck_assert_int_eq(culvert_loop_stats(f.loop, &s), CULVERT_OK);
    ck_assert_uint_eq(s.spins, 0x5555555555555555u);
    ck_assert_uint_ne(s.turns, 0x5555555555555555u);
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

static void trace_body(void *arg)
{
    culvert_error err = CULVERT_ERROR_INIT;
    (void)arg;
    int code = culvert_trace_start(f.loop, path, &err);
    ck_assert_msg(code == CULVERT_OK || code == CULVERT_ENOMEM, "%s", err.message);
    ck_assert_int_eq(err.code, code);
    culvert_trace_stop(f.loop);
}

START_TEST(out_of_memory_at_every_allocation)
{
    trace_body(NULL);
    alloc_fail_this_thread(true);
    ck_assert_uint_ge(alloc_fail_each(trace_body, NULL), 1);
    alloc_fail_this_thread(false);
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
    tcase_add_test(any, what_has_happened_is_counted);
    tcase_add_test(any, a_callback_that_holds_the_loop_shows);
    tcase_add_test(any, a_struct_of_another_size_is_refused_or_filled_in_part);
    suite_add_tcase(suite, any);
    if (!gpu_fixture_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, without_a_trace_nothing_is_called_for_it);
    tcase_add_test(sim, out_of_memory_at_every_allocation);
    tcase_add_test(sim, what_cannot_be_timed_runs_nevertheless);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {trace_suite(), NULL};
    return test_main(suites);
}
