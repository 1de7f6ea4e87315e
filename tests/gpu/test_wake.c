/* SPDX-License-Identifier: BSD-2-Clause */
/* How a sleeping loop is woken: arms, spins, idleness, host functions that come late or not at all. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"
#include "loop/binding.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { RUNS = 2000 };
#else
enum { RUNS = 20000 };
#endif

static gpu_fixture f;
static int warnings;

static void count_log(int level, const char *message, void *arg)
{
    (void)message;
    (void)arg;
    if (level == CULVERT_LOG_WARNING)
        warnings++;
}

static void open_with(int wake, double spin_seconds)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = wake;
    options.spin_seconds = spin_seconds;
    options.on_log = count_log;
    warnings = 0;
    gpu_fixture_open(&f, &options, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static uint64_t arms(void)
{
    return culvert_sim_calls("cuLaunchHostFunc");
}

static uint64_t queries(void)
{
    return culvert_sim_calls("cuEventQuery") + culvert_sim_calls("cuStreamQuery");
}

/* One after the other, each waited for. */
static void ping_pong(int n)
{
    for (int i = 0; i < n; i++)
        gpu_fixture_ok(culvert_stream_done(f.stream));
}

/* ---- host functions ---- */

START_TEST(one_wake_up_a_sleep_at_most)
{
    enum { N = 200 };
    open_with(CULVERT_WAKE_HOST_FUNC, 0);
    uint64_t before = arms();
    unsigned turns = ev_iteration(f.ev);
    for (int i = 0; i < N; i++)
        gpu_fixture_ok(gpu_fixture_busy(&f, 0.0005));
    ck_assert_uint_le(arms() - before, N);
    ck_assert_uint_ge(arms() - before, N / 10); /* that is how it is woken */
    /* It sleeps: a turn that submits, one that is woken, one for a timer or so. */
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 6 * N);
}
END_TEST

/* A host function is no part of an operation: it is launched for a sleep, on a stream of its own. */
START_TEST(far_fewer_host_functions_than_operations)
{
    enum { BURSTS = 20, EACH = 500 };
    open_with(_i == 0 ? CULVERT_WAKE_HOST_FUNC : CULVERT_WAKE_ADAPTIVE, 0);
    uint64_t before = arms();
    for (int i = 0; i < BURSTS; i++) {
        culvert_future *last = NULL;
        for (int k = 0; k < EACH; k++) {
            culvert_unref(last != NULL ? culvert_ref(last) : NULL);
            if (last != NULL)
                culvert_detach(last);
            last = culvert_stream_done(f.stream);
        }
        gpu_fixture_ok(last);
    }
    ck_assert_uint_le(arms() - before, BURSTS * EACH / 20);
}
END_TEST

START_TEST(host_func_never_spins)
{
    open_with(CULVERT_WAKE_HOST_FUNC, 0.01);
    ping_pong(20); /* short ones */
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_ok(gpu_fixture_busy(&f, 0.2));
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 30);
}
END_TEST

/* ---- spinning ---- */

START_TEST(adaptive_spins_where_recent_work_was_short)
{
    enum { N = 200 };
    open_with(CULVERT_WAKE_ADAPTIVE, 0.01);
    ping_pong(20);
    uint64_t before = arms();
    ping_pong(N);
    /* An operation takes microseconds and the spin ten milliseconds: hardly ever a sleep. */
    ck_assert_uint_le(arms() - before, N / 2);
}
END_TEST

START_TEST(adaptive_sleeps_where_recent_work_was_long)
{
    open_with(CULVERT_WAKE_ADAPTIVE, 0.001);
    for (int i = 0; i < 10; i++)
        gpu_fixture_ok(gpu_fixture_busy(&f, 0.02));
    for (int i = 0; i < 5; i++) {
        uint64_t before = arms();
        unsigned turns = ev_iteration(f.ev);
        gpu_fixture_ok(gpu_fixture_busy(&f, 0.05));
        ck_assert_uint_ge(arms() - before, 1);
        ck_assert_uint_le(ev_iteration(f.ev) - turns, 30);
    }
}
END_TEST

/* Two spins for nothing, then none for the next sixteen sleeps. False: the machine was too busy to tell. */
static bool lose_spins(culvert_stream *s)
{
    bool as_expected = true;
    s->spins_skip = s->spins_lost = 0;
    for (int i = 0; i <= 2; i++) {
        s->latency = 5e6; /* nanoseconds: as if recent work had been that short */
        culvert_sim_hold(culvert_stream_native(s));
        culvert_future *future = culvert_stream_done(s);
        unsigned turns = ev_iteration(f.ev);
        while (s->arm == NULL)
            ev_run(f.ev, EVRUN_ONCE);
        turns = ev_iteration(f.ev) - turns;
        as_expected &= i < 2 ? turns >= 2 : turns <= 2;
        as_expected &= s->spins_lost == (i == 0 ? 1 : 0);
        as_expected &= s->spins_skip == (i == 0 ? 0 : i == 1 ? 16 : 15);
        culvert_sim_release(NULL);
        gpu_fixture_ok(future);
        while (s->arm != NULL)
            ev_run(f.ev, EVRUN_NOWAIT);
    }
    return as_expected;
}

/* Work that was short and is not any more. */
START_TEST(lost_spins_end_the_spinning)
{
    bool seen = false;
    open_with(CULVERT_WAKE_ADAPTIVE, 0.01);
    ping_pong(50);
    for (int i = 0; i < 20 && !seen; i++)
        seen = lose_spins(f.stream);
    ck_assert(seen);
}
END_TEST

/* ---- nothing to do ---- */

START_TEST(an_idle_loop_asks_nothing_and_does_not_turn)
{
    open_with(_i == 0 ? CULVERT_WAKE_ADAPTIVE : CULVERT_WAKE_HOST_FUNC, 0);
    ping_pong(20);
    gpu_fixture_run(&f, 0.01);
    uint64_t before = culvert_sim_calls(NULL);
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_run(&f, 0.3);
    ck_assert_uint_eq(culvert_sim_calls(NULL), before);
    ck_assert_uint_le(ev_iteration(f.ev) - turns, 4);
}
END_TEST

START_TEST(a_loop_that_waits_for_the_device_hardly_turns)
{
    open_with(_i == 0 ? CULVERT_WAKE_ADAPTIVE : CULVERT_WAKE_HOST_FUNC, 0);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    gpu_fixture_run(&f, 0.05);
    double begin = test_now();
    uint64_t before = queries();
    unsigned turns = ev_iteration(f.ev);
    gpu_fixture_run(&f, 0.3);
    double ticks = (test_now() - begin) * 10 + 2; /* the watchdog */
    ck_assert_uint_le(queries() - before, (uint64_t)ticks * 2);
    ck_assert_uint_le(ev_iteration(f.ev) - turns, (unsigned)ticks * 3);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future);
}
END_TEST

/* ---- late host functions ---- */

static bool late(void *arg)
{
    (void)arg;
    return f.gpu->flow->late;
}

static bool in_time(void *arg)
{
    return !late(arg);
}

/* The driver runs all host functions on one thread, and somebody else's holds it. */
START_TEST(late_host_functions_are_done_without)
{
    open_with(CULVERT_WAKE_HOST_FUNC, 0);
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    while (f.stream->arm == NULL)
        ev_run(f.ev, EVRUN_NOWAIT);
    culvert_sim_release(NULL);
    gpu_fixture_ok(future); /* the watchdog's */
    culvert_stream *gate = gpu_fixture_stream(&f);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *held = culvert_stream_done(f.stream);
    gpu_fixture_until(&f, late, NULL);
    ck_assert_int_eq(warnings, 1);
    ck_assert_uint_eq(f.gpu->flow->late_count, 1);

    /* Now the completion thread looks, and the loop sleeps as before: no millisecond's tick. */
    uint64_t before = arms();
    for (int i = 0; i < 50; i++)
        gpu_fixture_ok(culvert_stream_done(gate));
    ck_assert_uint_eq(arms(), before);
    ck_assert(f.gpu->flow->late);
    double seconds;
    while ((seconds = culvert_loop_arm(f.loop)) == 0)
        ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_double_gt(seconds, 0.001);
    ck_assert(f.stream->watch.out);

    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    gpu_fixture_until(&f, in_time, NULL);
    culvert_sim_release(NULL);
    gpu_fixture_ok(held);
    before = arms();
    gpu_fixture_ok(gpu_fixture_busy(&f, 0.02));
    ck_assert_uint_gt(arms(), before); /* as before */
    ck_assert_int_eq(warnings, 1);
    culvert_stream_unref(gate);
}
END_TEST

START_TEST(a_delay_of_the_driver_changes_nothing_but_time)
{
    open_with(CULVERT_WAKE_HOST_FUNC, 0);
    culvert_sim_delay("cuLaunchHostFunc", 0.002);
    culvert_sim_delay("cuEventQuery", 0.0005);
    ping_pong(50);
}
END_TEST

/* ---- no wake-up is lost ---- */

enum { STREAMS = 5, OPS = 12 };

typedef struct work {
    culvert_future *future;
    int stream;
    bool gated, waited;
} work;

static uint64_t seed;
static culvert_stream *streams[STREAMS], *gate;
static work works[OPS];
static unsigned nworks;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void ignore(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
}

static void wait_for_work(work *w)
{
    if (w->waited)
        return;
    w->waited = true;
    ck_assert_int_eq(culvert_on_settled(culvert_ref(w->future), ignore, NULL, NULL), 0);
}

/* Some of what is behind the gate, on the device. */
static void submit_work(culvert_future *held)
{
    work *w = &works[nworks++];
    *w = (work){.stream = (int)pick(STREAMS), .gated = pick(4) == 0};
    culvert_seq *seq = culvert_seq_begin(streams[w->stream]);
    if (w->gated)
        culvert_seq_wait(seq, culvert_ref(held));
    w->future = culvert_seq_submit(seq);
    for (unsigned i = 0; i + 1 < nworks; i++)
        w->gated |= works[i].stream == w->stream && works[i].gated;
    if (pick(2) == 0)
        wait_for_work(w);
}

/* Is there one that a waiter should be told of, with the gate closed? */
static bool should_wake(bool closed)
{
    for (unsigned i = 0; i < nworks; i++)
        if (works[i].waited && culvert_status(works[i].future) == CULVERT_PENDING &&
            !(closed && works[i].gated))
            return true;
    return false;
}

static void expect_post(void)
{
    double end = test_now() + 30;
    while (!culvert__hub_waiting(f.loop->hub)) {
        ck_assert_msg(test_now() < end, "a wake-up was lost, seed %llu", (unsigned long long)seed);
        sched_yield();
    }
}

static bool streams_held;

/* What is submitted from now on is over at the earliest when the loop sleeps. */
static void hold_streams(void)
{
    for (int i = 0; i < STREAMS; i++)
        culvert_sim_hold(culvert_stream_native(streams[i]));
    streams_held = true;
}

static void release_streams(void)
{
    for (int i = 0; i < STREAMS; i++)
        culvert_sim_release(culvert_stream_native(streams[i]));
    streams_held = false;
}

/* Sleeps as the program of culvert_loop_arm would, but for ever: only a wake-up ends it. */
static void sleep_until_woken(bool closed)
{
    for (;;) {
        double seconds = culvert_loop_arm(f.loop);
        if (seconds > 0 && streams_held)
            release_streams();
        if (seconds > 0 && !should_wake(closed))
            return;
        if (seconds > 0.05) /* or it looks every millisecond: no notifier is free */
            expect_post();
        ev_run(f.ev, EVRUN_NOWAIT);
    }
}

static void random_run(void)
{
    nworks = 0;
    culvert_sim_hold(culvert_stream_native(gate));
    culvert_future *held = culvert_stream_done(gate);
    unsigned n = 1 + pick(OPS);
    while (nworks < n) {
        if (pick(4) == 0 && !streams_held)
            hold_streams();
        submit_work(held);
        switch (pick(8)) {
        case 0: (void)culvert_loop_arm(f.loop); break;
        case 1: wait_for_work(&works[pick(nworks)]); break;
        case 2: ev_run(f.ev, EVRUN_NOWAIT); break;
        case 3: sleep_until_woken(true); break;
        default: break;
        }
    }
    sleep_until_woken(true);
    wait_for_work(&works[pick(nworks)]); /* after it was armed for something later */
    sleep_until_woken(true);
    if (streams_held)
        release_streams();
    culvert_sim_release(culvert_stream_native(gate));
    for (unsigned i = 0; i < nworks; i++)
        wait_for_work(&works[i]);
    sleep_until_woken(false);
    for (unsigned i = 0; i < nworks; i++) {
        ck_assert_int_eq(culvert_status(works[i].future), CULVERT_OK);
        culvert_unref(works[i].future);
    }
    culvert_unref(held);
}

static bool armed_or_watched(const culvert_stream *s)
{
    return s->arm != NULL || s->watch.out;
}

/* Four notifiers; with _i == 1 one of them never comes back. 2 and 3: likewise, with the completion thread. */
START_TEST(no_wake_up_is_lost)
{
    culvert_future *never = NULL;
    open_with(_i < 2 ? CULVERT_WAKE_HOST_FUNC : CULVERT_WAKE_THREAD, 0);
    gate = gpu_fixture_stream(&f);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = gpu_fixture_stream(&f);
    if (_i % 2 == 1) {
        culvert_sim_hold(culvert_stream_native(f.stream));
        never = culvert_stream_done(f.stream);
        while (!armed_or_watched(f.stream))
            ev_run(f.ev, EVRUN_NOWAIT);
    }
    for (unsigned i = 0; i < RUNS / 2; i++) {
        seed = 2 * i + (unsigned)_i;
        random_run();
    }
    for (int i = 0; i < STREAMS; i++)
        culvert_stream_unref(streams[i]);
    culvert_stream_unref(gate);
    culvert_sim_release(NULL);
    if (never != NULL)
        gpu_fixture_ok(never);
}
END_TEST

/* With host functions pending on some 60 streams the driver's cuLaunchHostFunc blocks (measured). Loops
   that find the bound reached look every millisecond instead, and miss nothing. */
START_TEST(pending_host_functions_are_bounded)
{
    enum { LOOPS = 14, EACH = 4 };
    struct {
        struct ev_loop *ev;
        culvert_loop *loop;
        culvert_gpu *gpu;
        culvert_stream *streams[EACH];
        culvert_future *futures[EACH];
    } at[LOOPS];
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_HOST_FUNC;
    open_with(CULVERT_WAKE_HOST_FUNC, 0);
    uint64_t before = arms();
    culvert_sim_hold(NULL);
    for (int i = 0; i < LOOPS; i++) {
        at[i].ev = ev_loop_new(0);
        at[i].loop = culvert_loop_new(at[i].ev, &options, NULL);
        at[i].gpu = culvert_gpu_open(at[i].loop, gpu_fixture_ordinal, NULL, NULL);
        ck_assert_ptr_nonnull(at[i].gpu);
        for (int k = 0; k < EACH; k++) {
            at[i].streams[k] = culvert_stream_new(at[i].gpu, NULL, NULL);
            at[i].futures[k] = culvert_stream_done(at[i].streams[k]);
        }
        double seconds = culvert_loop_arm(at[i].loop);
        ck_assert(seconds > 0);
        if ((i + 1) * EACH > CULVERT__ARM_CAP)
            ck_assert(seconds <= 0.001);
    }
    ck_assert_uint_eq(arms() - before, CULVERT__ARM_CAP);
    culvert_sim_release(NULL);
    for (int i = 0; i < LOOPS; i++) {
        for (int k = 0; k < EACH; k++) {
            ck_assert_int_eq(culvert_await(at[i].futures[k], 30), CULVERT_OK);
            culvert_unref(at[i].futures[k]);
            culvert_stream_unref(at[i].streams[k]);
        }
        culvert_gpu_close(at[i].gpu);
        culvert_loop_free(at[i].loop);
        ev_loop_destroy(at[i].ev);
    }
}
END_TEST

static Suite *wake_suite(void)
{
    Suite *suite = suite_create("wake");
    TCase *tc = tcase_create("arms");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, one_wake_up_a_sleep_at_most);
    tcase_add_loop_test(tc, far_fewer_host_functions_than_operations, 0, 2);
    tcase_add_test(tc, host_func_never_spins);
    tcase_add_test(tc, pending_host_functions_are_bounded);
    suite_add_tcase(suite, tc);

    tc = tcase_create("spins");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, adaptive_spins_where_recent_work_was_short);
    tcase_add_test(tc, adaptive_sleeps_where_recent_work_was_long);
    tcase_add_test(tc, lost_spins_end_the_spinning);
    suite_add_tcase(suite, tc);

    tc = tcase_create("idle");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_loop_test(tc, an_idle_loop_asks_nothing_and_does_not_turn, 0, 2);
    tcase_add_loop_test(tc, a_loop_that_waits_for_the_device_hardly_turns, 0, 2);
    suite_add_tcase(suite, tc);

    tc = tcase_create("late");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, late_host_functions_are_done_without);
    tcase_add_test(tc, a_delay_of_the_driver_changes_nothing_but_time);
    suite_add_tcase(suite, tc);

    tc = tcase_create("lost");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_loop_test(tc, no_wake_up_is_lost, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {wake_suite(), NULL};
    return test_main(suites);
}
