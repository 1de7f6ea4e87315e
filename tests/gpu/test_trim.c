/* SPDX-License-Identifier: BSD-2-Clause */
/* What goes back to the driver before the end, and when. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

static gpu_fixture f;

static void open_with(double trim_seconds, size_t device_limit)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.trim_seconds = trim_seconds;
    options.device_limit = device_limit;
    options.device_reserve = 64 * MIB;
    gpu_fixture_open(&f, NULL, &options);
}

static void set_up(void)
{
    open_with(0.02, 0);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

/* Four blocks of device memory and some pinned, and all of it free again. */
static void grow_and_release(void)
{
    culvert_buffer *buffers[6];
    for (int i = 0; i < 4; i++)
        buffers[i] = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 60 * MIB));
    buffers[4] = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 3 * MIB));
    buffers[5] = culvert_host_buffer_new(f.gpu, 5 * MIB, NULL);
    for (int i = 0; i < 6; i++)
        culvert_buffer_unref(buffers[i]);
}

static bool at_reserve(void *arg)
{
    (void)arg;
    return culvert_sim_live("device bytes") == 64 * MIB &&
           culvert_sim_live("pinned bytes") == 8 * MIB;
}

START_TEST(what_nobody_uses_goes_back_when_the_device_is_idle)
{
    grow_and_release();
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 256 * MIB);
    ck_assert_uint_gt(culvert_sim_live("pinned bytes"), 15 * MIB);
    gpu_fixture_until(&f, at_reserve, NULL);
    culvert_gpu_memory_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_gpu_memory(f.gpu, &c), CULVERT_OK);
    ck_assert_uint_eq(c.device_taken, 64 * MIB);
    ck_assert_uint_eq(c.pinned_taken, 8 * MIB);
    ck_assert_uint_ge(c.trimmed, 5);
    grow_and_release(); /* and it is had again */
    gpu_fixture_until(&f, at_reserve, NULL);
}
END_TEST

START_TEST(what_is_in_use_stays)
{
    culvert_buffer *keep = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 40 * MIB));
    culvert_buffer *more = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 50 * MIB));
    gpu_fixture_ok(culvert_fill(f.stream, more, 0, 50 * MIB, 0x17, 1));
    grow_and_release();
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 128 * MIB);
    unsigned char byte = 0;
    gpu_fixture_ok(culvert_download(f.stream, &byte, more, 50 * MIB - 1, 1));
    ck_assert_uint_eq(byte, 0x17);
    culvert_buffer_unref(keep);
    culvert_buffer_unref(more);
}
END_TEST

/* The simulator would take a free for a call that blocks the loop. */
START_TEST(nothing_goes_back_while_work_is_in_flight)
{
    grow_and_release();
    culvert_buffer *words = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 64));
    gpu_fixture_hold(&f, f.stream);
    culvert_future *held = culvert_fill(f.stream, words, 0, 64, 1, 4);
    uint64_t frees = culvert_sim_calls("cuMemFree");
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    gpu_fixture_release(&f);
    gpu_fixture_ok(held);
    culvert_buffer_unref(words);
    gpu_fixture_until(&f, at_reserve, NULL);
}
END_TEST

/* Another gpu of the same device: another loop's, say. */
START_TEST(nor_while_somebody_else_works_on_the_device)
{
    culvert_gpu *other = culvert_gpu_open(f.loop, 0, NULL, NULL);
    culvert_stream *stream = culvert_stream_new(other, NULL, NULL);
    culvert_buffer *words = culvert_buffer_new(other, 64, NULL);
    grow_and_release();
    culvert_sim_hold(culvert_stream_native(stream));
    culvert_future *held = culvert_fill(stream, words, 0, 64, 1, 4);
    uint64_t frees = culvert_sim_calls("cuMemFree");
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    gpu_fixture_release(&f);
    gpu_fixture_ok(held);
    culvert_buffer_unref(words);
    culvert_stream_unref(stream);
    culvert_gpu_close(other);
}
END_TEST

/* What others put on a stream has no units; the stream itself is asked. */
START_TEST(nor_while_a_stranger_uses_our_stream)
{
    culvert_buffer *words = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 64));
    struct CUstream_st *native = culvert_stream_native(f.stream);
    grow_and_release();
    culvert_sim_hold(native);
    culvert__scope scope = culvert__scope_enter(f.gpu->device);
    ck_assert_int_eq(f.gpu->drv->cuMemsetD8Async(culvert_buffer_address(words), 1, 64, native), 0);
    culvert__scope_leave(scope);
    uint64_t frees = culvert_sim_calls("cuMemFree");
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    gpu_fixture_release(&f);
    gpu_fixture_until(&f, at_reserve, NULL);
    culvert_buffer_unref(words);
}
END_TEST

static void keep_quiet(int level, const char *message, void *arg)
{
    (void)level;
    (void)message;
    (void)arg;
}

static uint64_t calls_that_wait(void)
{
    return culvert_sim_calls("cuMemFree") + culvert_sim_calls("cuMemFreeHost") +
           culvert_sim_calls("cuMemHostUnregister");
}

/* The work is over, the host function that was to tell of it has not run: another one holds the thread. */
START_TEST(case_042_nor_while_a_host_function_is_out)
{
    culvert_loop_options loop_options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    static unsigned char memory[4096];
    if (!gpu_fixture_arms())
        return;
    tear_down();
    loop_options.wake = CULVERT_WAKE_HOST_FUNC;
    loop_options.on_log = keep_quiet; /* of a host function that is late */
    options.trim_seconds = 0.02;
    options.device_reserve = 64 * MIB;
    gpu_fixture_open(&f, &loop_options, &options);
    culvert_buffer *words = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 64));
    culvert_buffer *pinned = culvert_host_register(f.gpu, memory, sizeof memory, NULL);
    ck_assert_ptr_nonnull(pinned);
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, words, 0, 64, 1, 4);
    gpu_fixture_run(&f, 0.01); /* it sleeps, so one is out */
    gpu_fixture_release(&f);
    gpu_fixture_ok(work);
    grow_and_release();
    culvert_future *ordinary = culvert_host_unregister(f.gpu, pinned);
    uint64_t before = calls_that_wait();
    gpu_fixture_run(&f, 0.3);
    ck_assert_uint_gt(culvert_sim_live("operation"), 0);
    ck_assert_uint_eq(calls_that_wait(), before);
    ck_assert_int_eq(culvert_status(ordinary), CULVERT_PENDING);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    gpu_fixture_ok(ordinary);
    gpu_fixture_until(&f, at_reserve, NULL);
    ck_assert_uint_gt(calls_that_wait(), before);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(a_busy_server_keeps_its_memory)
{
    culvert_buffer *words = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 64));
    grow_and_release();
    uint64_t frees = culvert_sim_calls("cuMemFree");
    for (double end = test_now() + 0.3; test_now() < end;)
        gpu_fixture_ok(culvert_fill(f.stream, words, 0, 64, 1, 4));
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(infinity_is_never)
{
    tear_down();
    open_with(INFINITY, 0);
    grow_and_release();
    gpu_fixture_run(&f, 0.1);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 256 * MIB);
}
END_TEST

START_TEST(bad_times_are_refused)
{
    static const double bad[] = {-1, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
        options.trim_seconds = bad[i];
        ck_assert_ptr_null(culvert_gpu_open(f.loop, 0, &options, &err));
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
        gpu_fixture_says(&err, "trim_seconds");
    }
}
END_TEST

START_TEST(it_keeps_no_loop_alive)
{
    tear_down();
    open_with(100, 0);
    grow_and_release();
    double before = test_now();
    ev_run(f.ev, 0);
    ck_assert_double_lt(test_now() - before, 50);
}
END_TEST

/* Freed and cached is enough in sum, yet in blocks that are too small: back with them, and once more. */
START_TEST(case_076_free_blocks_make_room_for_a_large_request)
{
    tear_down();
    open_with(100, 256 * MIB);
    grow_and_release();
    uint64_t allocations = culvert_sim_calls("cuMemAlloc");
    culvert_buffer *large = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 200 * MIB));
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), allocations + 1);
    ck_assert_uint_le(culvert_sim_live("device bytes"), 256 * MIB);
    (void)gpu_fixture_fails(culvert_buffer_alloc(f.gpu, 100 * MIB), CULVERT_ENOMEM);
    ck_assert_uint_le(culvert_sim_calls("cuMemAlloc"), allocations + 3); /* no storm */
    culvert_buffer_unref(large);
}
END_TEST

START_TEST(case_076_it_waits_for_the_frees_first)
{
    tear_down();
    open_with(100, 256 * MIB);
    culvert_buffer *buffers[4];
    for (int i = 0; i < 4; i++)
        buffers[i] = gpu_fixture_got(culvert_buffer_alloc(f.gpu, 60 * MIB));
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = NULL;
    for (int i = 0; i < 4; i++) {
        if (work != NULL)
            culvert_detach(work);
        work = culvert_fill(f.stream, buffers[i], 0, 64, 1, 1);
        culvert_buffer_unref(buffers[i]);
    }
    uint64_t frees = culvert_sim_calls("cuMemFree");
    culvert_future *future = culvert_buffer_alloc(f.gpu, 200 * MIB);
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees);
    gpu_fixture_release(&f);
    culvert_buffer_unref(gpu_fixture_got(future));
    gpu_fixture_ok(work);
}
END_TEST

/* What the driver itself has no more of. */
START_TEST(a_full_device_is_no_end)
{
    tear_down();
    gpu_fixture_reset();
    culvert_sim_memory(300 * MIB);
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.trim_seconds = 100;
    gpu_fixture_open_as_is(&f, NULL, &options);
    grow_and_release();
    culvert_buffer_unref(gpu_fixture_got(culvert_buffer_alloc(f.gpu, 250 * MIB)));
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_OK);
}
END_TEST

static Suite *trim_suite(void)
{
    Suite *suite = suite_create("trim");
    TCase *tc = tcase_create("trim");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, what_nobody_uses_goes_back_when_the_device_is_idle);
    tcase_add_test(tc, what_is_in_use_stays);
    tcase_add_test(tc, nothing_goes_back_while_work_is_in_flight);
    tcase_add_test(tc, nor_while_somebody_else_works_on_the_device);
    tcase_add_test(tc, nor_while_a_stranger_uses_our_stream);
    tcase_add_test(tc, case_042_nor_while_a_host_function_is_out);
    tcase_add_test(tc, a_busy_server_keeps_its_memory);
    tcase_add_test(tc, infinity_is_never);
    tcase_add_test(tc, bad_times_are_refused);
    tcase_add_test(tc, it_keeps_no_loop_alive);
    tcase_add_test(tc, case_076_free_blocks_make_room_for_a_large_request);
    tcase_add_test(tc, case_076_it_waits_for_the_frees_first);
    tcase_add_test(tc, a_full_device_is_no_end);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {trim_suite(), NULL};
    return test_main(suites);
}
