/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices that stall: calls of the driver that do not return, and work that does not end. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "driver/table.h"
#include "fixture.culvert.h"
#include "lib/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpu_fixture f;

/* ---- what on_stall was told ---- */

static atomic_int stalls;
static pthread_t loop_thread;
static char what_was_said[256]; /* read when no more comes */
static double seconds_said;
static atomic_bool on_loop_thread;

static void on_stall(const char *what, double seconds, void *arg)
{
    snprintf(what_was_said, sizeof what_was_said, "%s", what);
    seconds_said = seconds;
    if (pthread_equal(pthread_self(), loop_thread))
        atomic_store(&on_loop_thread, true);
    ck_assert_ptr_eq(arg, &stalls);
    atomic_fetch_add(&stalls, 1);
}

static void begin(double stall_seconds)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.stall_seconds = stall_seconds;
    options.on_stall = on_stall;
    options.on_stall_arg = &stalls;
    loop_thread = pthread_self();
    atomic_store(&stalls, 0);
    gpu_fixture_open(&f, NULL, &options);
}

static bool stalled(void *arg)
{
    (void)arg;
    return culvert_gpu_state(f.gpu) == CULVERT_GPU_STALLED;
}

static bool well(void *arg)
{
    (void)arg;
    return culvert_gpu_state(f.gpu) == CULVERT_GPU_OK;
}

/* ---- calls that do not return ---- */

static void by_fill(culvert_buffer *buffer)
{
    culvert_detach(culvert_fill(f.stream, buffer, 0, 64, 0, 4));
}

static void by_done(culvert_buffer *buffer)
{
    (void)buffer;
    culvert_detach(culvert_stream_done(f.stream));
}

static void by_stream(culvert_buffer *buffer)
{
    (void)buffer;
    culvert_stream_unref(gpu_fixture_stream(&f));
}

static void by_buffer(culvert_buffer *buffer)
{
    culvert_error err = CULVERT_ERROR_INIT;
    (void)buffer;
    culvert_buffer *more = culvert_buffer_new(f.gpu, 100 << 20, &err);
    ck_assert_msg(more != NULL, "%s", err.message);
    culvert_buffer_unref(more);
}

static void by_shared_memory(culvert_buffer *buffer)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 50000};
    (void)buffer;
    culvert_detach(culvert_launch(f.stream, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0));
}

START_TEST(a_call_that_does_not_return_is_reported_from_another_thread)
{
    static const struct {
        const char *call;
        void (*make)(culvert_buffer *);
        const char *said;
    } rows[] = {
        {"cuMemsetD32Async", by_fill, "cuMemset"},
        {"cuEventRecord", by_done, "cuEventRecord"},
        {"cuEventQuery", by_done, "cuEventQuery"},
        {"cuStreamWaitEvent", by_done, "cuStreamWaitEvent"},
        {"cuStreamCreateWithPriority", by_stream, "cuStreamCreateWithPriority"},
        {"cuMemAlloc", by_buffer, "cuMemAlloc"},
        {"cuFuncSetAttribute", by_shared_memory, "cuFuncSetAttribute"},
    };
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    (void)gpu_fixture_kernel(&f, "empty");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].call, "cuStreamWaitEvent") == 0 && !gpu_fixture_arms())
            continue;
        atomic_store(&stalls, 0);
        if (rows[i].make == by_done)
            culvert_sim_hold(NULL); /* so that it is queried, and armed for */
        culvert_sim_delay(rows[i].call, 1.6);
        rows[i].make(buffer);
        double end = test_now() + 20;
        while (atomic_load(&stalls) == 0 && test_now() < end)
            trial_turn(f.ev, 0.001);
        culvert_sim_delay(rows[i].call, 0);
        culvert_sim_release(NULL);
        ck_assert_msg(atomic_load(&stalls) > 0, "%s", rows[i].call);
        ck_assert_msg(strstr(what_was_said, rows[i].said) != NULL, "%s: it was told of %s",
                      rows[i].call, what_was_said);
        ck_assert_msg(seconds_said >= 1.0 && seconds_said < 20, "%g", seconds_said);
        gpu_fixture_until(&f, well, NULL); /* it ends by itself */
        gpu_fixture_idle(&f, f.stream);
    }
    ck_assert(!atomic_load(&on_loop_thread));
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

static void *look_from_outside(void *arg)
{
    double end = test_now() + 20;
    while (!stalled(NULL) && test_now() < end)
        test_sleep(0.005);
    *(bool *)arg = stalled(NULL);
    culvert_sim_release(NULL); /* and so the call returns */
    return NULL;
}

/* Somebody else has filled the hardware queue: the launch of the loop's thread waits until there is room. */
START_TEST(a_launch_that_blocks_behind_foreign_work)
{
    bool seen = false;
    pthread_t thread;
    culvert_error err = CULVERT_ERROR_INIT;
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    const culvert__driver *drv = culvert__driver_open(NULL, &err);
    ck_assert_ptr_nonnull(drv);
    struct CUctx_st *ctx, *popped;
    struct CUstream_st *foreign;
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    ck_assert_int_eq(drv->cuCtxPushCurrent(ctx), 0);
    culvert_sim_hardware_queues(1);
    ck_assert_int_eq(drv->cuStreamCreateWithPriority(&foreign, CULVERT__CU_STREAM_NON_BLOCKING, 0),
                     0);
    culvert_stream *stream = gpu_fixture_stream(&f); /* of the same hardware queue */
    culvert_sim_queue_depth(8);
    culvert_sim_strict(0);
    culvert_sim_hold(foreign);
    for (int i = 0; i < 9; i++) /* the first one counts as running */
        ck_assert_int_eq(drv->cuMemsetD32Async(culvert_buffer_address(buffer), 0, 4, foreign), 0);
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    pthread_create(&thread, NULL, look_from_outside, &seen);
    culvert_future *future = culvert_fill(stream, buffer, 2048, 64, 1, 4); /* blocks */
    pthread_join(thread, NULL);
    ck_assert(seen);
    ck_assert_int_ge(atomic_load(&stalls), 1);
    gpu_fixture_ok(future);
    gpu_fixture_until(&f, well, NULL);
    ck_assert_int_eq(atomic_load(&stalls), 1);
    ck_assert_ptr_nonnull(strstr(what_was_said, "cuMemset"));
    culvert_stream_unref(stream);
    ck_assert_int_eq(drv->cuStreamDestroy(foreign), 0);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(0), 0);
    culvert_buffer_unref(buffer);
    f.dirty = true; /* what blocks is a violation, and it was one */
    gpu_fixture_close(&f);
}
END_TEST

static int sleeps(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    test_sleep(1.5);
    return 0;
}

START_TEST(a_function_of_a_seq_call_that_does_not_return)
{
    begin(0);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_call(seq, sleeps, NULL, NULL);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_int_eq(atomic_load(&stalls), 1);
    ck_assert_ptr_nonnull(strstr(what_was_said, "culvert_seq_call"));
    gpu_fixture_until(&f, well, NULL);
    gpu_fixture_close(&f);
}
END_TEST

/* ---- work that does not end ---- */

START_TEST(case_048_work_that_does_not_end)
{
    enum { N = 10 };
    static outcomes all;
    begin(0.3);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_future *requests[N];
    if (!gpu_fixture_simulated())
        (void)gpu_fixture_kernel(&f, "gate");
    gpu_fixture_hold(&f, f.stream);
    culvert_future *stuck = culvert_fill(f.stream, buffer, 0, 64, 1, 4);
    culvert_future *gate, *never;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    for (int i = 0; i < N; i++) { /* they wait in the library */
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_wait(seq, culvert_ref(gate));
        culvert_seq_fill(seq, buffer, 64, 64, 2, 4);
        requests[i] = culvert_seq_submit(seq);
    }
    culvert_unref(gate);
    gpu_fixture_until(&f, stalled, NULL);
    ck_assert_int_eq(atomic_load(&stalls), 1);
    if (gpu_fixture_simulated()) { /* on a GPU what holds the stream is the oldest */
        ck_assert_msg(strstr(what_was_said, "culvert_seq_fill at ") == what_was_said, "%s",
                      what_was_said);
        ck_assert_ptr_nonnull(strstr(what_was_said, "test_monitor.c:"));
    }
    ck_assert(seconds_said >= 0.3);

    /* Cancels take effect at once. */
    for (int i = 0; i < N / 2; i++) {
        culvert_cancel(requests[i]);
        ck_assert_int_eq(culvert_status(requests[i]), CULVERT_ECANCELED);
    }
    /* Deadlines do, and sockets and timers are served. */
    gpu_fixture_fails(culvert_timeout(culvert_ref(stuck), 0.05), CULVERT_ETIMEDOUT);
    never = culvert_timeout(culvert_ref(requests[N - 1]), 0.05);
    gpu_fixture_fails(never, CULVERT_ETIMEDOUT);
    gpu_fixture_ok(culvert_sleep(f.loop, 0.01));
    ck_assert_int_eq(culvert_status(stuck), CULVERT_PENDING); /* the device still works on it */

    /* Another stream goes on. */
    culvert_stream *other = gpu_fixture_stream(&f);
    gpu_fixture_ok(culvert_fill(other, buffer, 1024, 64, 3, 4));
    culvert_stream_unref(other);
    ck_assert(stalled(NULL));
    ck_assert_int_eq(atomic_load(&stalls), 1); /* once for this one */

    gpu_fixture_release(&f);
    culvert_resolve(promise, NULL, NULL);
    outcomes_begin(&all, N);
    for (int i = N / 2; i < N; i++)
        outcomes_add(&all, requests[i]);
    gpu_fixture_ok(stuck);
    ck_assert(outcomes_wait(&all, f.ev, 60));
    outcomes_all(&all, CULVERT_OK);
    for (int i = 0; i < N / 2; i++)
        culvert_unref(requests[i]);
    gpu_fixture_until(&f, well, NULL);
    culvert_buffer_unref(buffer);
    outcomes_end(&all);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(each_stall_is_reported_once)
{
    begin(0.2);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    for (int i = 1; i <= 2; i++) {
        gpu_fixture_hold(&f, f.stream);
        culvert_future *future = culvert_fill(f.stream, buffer, 0, 64, 1, 4);
        gpu_fixture_until(&f, stalled, NULL);
        gpu_fixture_run(&f, 0.6); /* some looks of the monitor */
        ck_assert_int_eq(atomic_load(&stalls), i);
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
        gpu_fixture_until(&f, well, NULL);
    }
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* Each is short, but there is always one. */
START_TEST(a_stream_that_is_always_busy_is_not_stalled)
{
    begin(2);
    culvert_sim_duration("busy", 0.02);
    culvert_kernel *busy = gpu_fixture_kernel(&f, "busy");
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    double end = test_now() + 3;
    while (test_now() < end) {
        while (culvert_stream_in_flight(f.stream) < 3)
            culvert_detach(
                culvert_launch(f.stream, busy, &grid, CULVERT_ARGS(CULVERT_U64(20000000))));
        trial_turn(f.ev, 0.005);
    }
    gpu_fixture_idle(&f, f.stream);
    ck_assert_int_eq(atomic_load(&stalls), 0);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(what_waits_in_the_library_is_not_stalled)
{
    begin(0.2);
    culvert_future *gate;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, gate);
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.8);
    ck_assert_int_eq(atomic_load(&stalls), 0);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_OK);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(future);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(a_lost_device_is_not_stalled)
{
    begin(0.2);
    culvert_sim_hold(NULL);
    culvert_future *future = culvert_stream_done(f.stream);
    gpu_fixture_run(&f, 0.01);
    culvert_sim_poison(0, 700);
    gpu_fixture_fails(future, CULVERT_EDEVICELOST);
    gpu_fixture_run(&f, 0.8);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_LOST);
    ck_assert_int_eq(atomic_load(&stalls), 0);
    f.dirty = true;
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(nothing_is_reported_after_close)
{
    begin(2);
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options stall = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.close_seconds = 0.05;
    stall.stall_seconds = 2; /* a loaded machine closes within that */
    stall.on_stall = on_stall;
    stall.on_stall_arg = &stalls;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    culvert_gpu *gpu = culvert_gpu_open(loop, 0, &stall, &err);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    culvert_sim_hold(culvert_stream_native(stream));
    culvert_detach(culvert_stream_done(stream));
    trial_turn(ev, 0.01);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    gpu_fixture_run(&f, 3);
    ck_assert_int_eq(atomic_load(&stalls), 0);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_OK); /* nor is the other one blamed */
    culvert_sim_release(NULL);
    f.dirty = true; /* what was in flight at the end stays */
    gpu_fixture_close(&f);
}
END_TEST

/* ---- the thread ---- */

static int monitors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        if (fgets(name, sizeof name, file) != NULL && strcmp(name, "culvert-monitor\n") == 0)
            n++;
        fclose(file);
    }
    closedir(dir);
    return n;
}

static bool one_monitor(void *arg)
{
    return monitors() == *(int *)arg;
}

START_TEST(one_thread_for_all_devices_and_only_while_there_are_some)
{
    int one = 1, none = 0;
    gpu_fixture second;
    ck_assert_int_eq(monitors(), 0);
    begin(0);
    ck_assert(test_eventually(one_monitor, &one, 20)); /* it gives itself its name */
    gpu_fixture_open_as_is(&second, NULL, NULL);
    ck_assert(test_eventually(one_monitor, &one, 20));
    f.dirty = true; /* the other one is there */
    gpu_fixture_close(&f);
    ck_assert(test_eventually(one_monitor, &one, 20));
    gpu_fixture_close(&second);
    ck_assert(test_eventually(one_monitor, &none, 20));
    begin(0); /* and again */
    ck_assert(test_eventually(one_monitor, &one, 20));
    gpu_fixture_close(&f);
    ck_assert(test_eventually(one_monitor, &none, 20));
}
END_TEST

enum { OPENERS = 4, OPENINGS = 15 };

static void *open_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < OPENINGS; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
        culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
        culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, &err);
        ck_assert_msg(gpu != NULL, "%s", err.message);
        culvert_gpu_close(gpu);
        culvert_loop_free(loop);
        ev_loop_destroy(ev);
    }
    return NULL;
}

START_TEST(devices_come_and_go_on_many_threads)
{
    int none = 0;
    pthread_t threads[OPENERS];
    gpu_fixture_reset();
    for (int i = 0; i < OPENERS; i++)
        pthread_create(&threads[i], NULL, open_and_close, NULL);
    for (int i = 0; i < OPENERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(test_eventually(one_monitor, &none, 20));
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- a late host function ---- */

typedef struct lines {
    int warnings;
    char last[256];
} lines;

static void on_log(int level, const char *message, void *arg)
{
    lines *l = arg;
    l->warnings += level == CULVERT_LOG_WARNING;
    snprintf(l->last, sizeof l->last, "%s", message);
}

/* Somebody else's host function sits on the driver's thread: the loop looks by itself, and says so once. */
START_TEST(a_host_function_that_does_not_come)
{
    static lines said;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.on_log = on_log;
    options.arg = &said;
    options.wake = CULVERT_WAKE_HOST_FUNC;
    gpu_fixture_open(&f, &options, NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    culvert_stream *held = gpu_fixture_stream(&f);
    culvert_sim_hold(culvert_stream_native(held));
    culvert_future *stuck =
        culvert_stream_done(held); /* so that there is always something in flight */
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    double end = test_now() + 30;
    int rounds = 0;
    while (said.warnings == 0 && test_now() < end) {
        gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
        gpu_fixture_run(&f, 0.01);
        rounds++;
    }
    ck_assert_int_eq(said.warnings, 1);
    ck_assert_ptr_nonnull(strstr(said.last, "host function"));
    for (int i = 0; i < 20; i++)
        gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    ck_assert_int_eq(said.warnings, 1);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    culvert_sim_release(NULL);
    gpu_fixture_ok(stuck);
    gpu_fixture_run(&f, 0.02);
    uint64_t arms = culvert_sim_calls("cuLaunchHostFunc");
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *again = culvert_stream_done(f.stream);
    gpu_fixture_run(&f, 0.02);
    ck_assert_uint_gt(culvert_sim_calls("cuLaunchHostFunc"), arms); /* it is trusted again */
    culvert_sim_release(NULL);
    gpu_fixture_ok(again);
    culvert_stream_unref(held);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
    ck_assert_int_ge(rounds, 1);
}
END_TEST

int main(void)
{
    bool sim = gpu_fixture_simulated();
    trials *t = trials_new("monitor");
    TRIAL(t, case_048_work_that_does_not_end);
    TRIAL(t, each_stall_is_reported_once);
    TRIAL(t, what_waits_in_the_library_is_not_stalled);
    TRIAL(t, a_function_of_a_seq_call_that_does_not_return);
    TRIAL(t, one_thread_for_all_devices_and_only_while_there_are_some);
    if (sim) {
        TRIAL(t, a_call_that_does_not_return_is_reported_from_another_thread);
        TRIAL(t, a_launch_that_blocks_behind_foreign_work);
        TRIAL(t, a_stream_that_is_always_busy_is_not_stalled);
        TRIAL(t, a_lost_device_is_not_stalled);
        TRIAL(t, nothing_is_reported_after_close);
        TRIAL(t, devices_come_and_go_on_many_threads);
        TRIAL(t, a_host_function_that_does_not_come);
    }
    return trials_run(t);
}
