/* SPDX-License-Identifier: BSD-2-Clause */
/* A kernel that never ends: what waits for it, what does not, and the end of the process. */
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "lib/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CANCELLED = 20 };

/* What the library promises is far below; a machine that does other things too may need more. */
static const double bounded = 10;

static gpu_fixture f;
static _Atomic int stalls;
static _Atomic int other_calls; /* of the hook, for a call of the driver */
static int ticks;

static void on_stall(const char *what, double seconds, void *arg)
{
    (void)arg;
    printf("stalled for %.2f s: %s\n", seconds, what);
    if (strncmp(what, "culvert_", 8) != 0)
        atomic_fetch_add(&other_calls, 1);
    atomic_fetch_add(&stalls, 1);
}

static void on_tick(struct ev_loop *ev, ev_timer *w, int events)
{
    (void)ev;
    (void)w;
    (void)events;
    ticks++;
}

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static bool was_reported(void *arg)
{
    (void)arg;
    return atomic_load(&stalls) > 0;
}

static void open_it(void)
{
    culvert_loop_options loop = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options gpu = CULVERT_GPU_OPTIONS_INIT;
    loop.close_seconds = 0.3;
    gpu.stall_seconds = 0.3;
    gpu.on_stall = on_stall;
    gpu_fixture_open(&f, &loop, &gpu);
}

START_TEST(everything_else_goes_on_and_the_end_is_bounded)
{
    outcomes behind, given_up;
    ev_timer tick;
    open_it();
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096), *own = gpu_fixture_buffer(&f, 4096);
    static char out[CANCELLED][64];
    culvert_future *left[CANCELLED];
    outcomes_begin(&behind, CANCELLED);
    outcomes_begin(&given_up, 1 + CANCELLED);
    gpu_fixture_hold(&f, f.stream);

    /* Behind it: some of which a time-out, and some of which the program itself gives up. */
    outcomes_add(&given_up, culvert_timeout(culvert_fill(f.stream, buffer, 0, 4096, 1, 4), 0.05));
    for (int i = 0; i < CANCELLED; i++) {
        culvert_future *own_future = culvert_download(f.stream, out[i], buffer, 64 * (size_t)i, 64);
        left[i] = culvert_then(culvert_ref(own_future), pass, NULL, NULL);
        outcomes_add(&behind, own_future);
        outcomes_add(&given_up, culvert_ref(left[i]));
    }

    /* The loop turns, and other streams work. */
    ev_timer_init(&tick, on_tick, 0.001, 0.001);
    ev_timer_start(f.ev, &tick);
    for (int i = 0; i < CANCELLED; i++) {
        culvert_cancel(left[i]);
        culvert_unref(left[i]);
        gpu_fixture_ok(culvert_fill(other, own, 0, 4096, (uint32_t)i, 4));
    }
    ck_assert(outcomes_wait(&given_up, f.ev, bounded));
    ck_assert_int_eq(given_up.list[0].status, CULVERT_ETIMEDOUT);
    for (size_t i = 1; i < given_up.n; i++)
        ck_assert_int_eq(given_up.list[i].status, CULVERT_ECANCELED);
    ck_assert_uint_eq(behind.settled, 0); /* their memory is the device's */

    /* The monitor tells; no call of the driver hangs. */
    gpu_fixture_until(&f, was_reported, NULL);
    ck_assert_int_eq(atomic_load(&other_calls), 0);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_STALLED);
    ck_assert_int_gt(ticks, 20);
    gpu_fixture_ok(culvert_fill(other, own, 0, 4096, 7, 4));
    ck_assert_uint_eq(behind.settled, 0);

    /* The loop goes: in bounded time, and with everything settled. */
    ev_timer_stop(f.ev, &tick);
    double start = test_now();
    culvert_loop_free(f.loop);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    ck_assert_uint_eq(behind.settled, behind.n);
    outcomes_all(&behind, CULVERT_ESHUTDOWN);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(own);
    culvert_stream_unref(other);
    f.loop = NULL;
    f.dirty = true;
    start = test_now();
    gpu_fixture_close(&f);
    ck_assert_msg(test_now() - start < bounded, "closing took %.3f s", test_now() - start);
    outcomes_end(&behind);
    outcomes_end(&given_up);
}
END_TEST

int main(void)
{
    trials *t = trials_new("endless");
    TRIAL(t, everything_else_goes_on_and_the_end_is_bounded);
    return trials_run(t);
}
