/* SPDX-License-Identifier: BSD-2-Clause */
/* Violations: what is one, what is none, and strict mode. */
#define _POSIX_C_SOURCE 200809L
#include "sim_test.h"

#include "lib/child.h"

#include <signal.h>
#include <stdlib.h>

/* On the loop thread. */

static int loop_launches_into_a_full_queue(void *unused)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(4);
    (void)unused;
    culvert_sim_loop_thread();
    for (int i = 0; i < 10; i++) {
        int result = cuMemsetD8Async(d, 0, 4, s);
        if (result)
            return result;
    }
    return 0;
}

static int loop_synchronizes(void *event)
{
    culvert_sim_loop_thread();
    return cuEventSynchronize(event);
}

static int loop_downloads_to_pageable_memory(void *stream)
{
    uint32_t here;
    culvert_sim_loop_thread();
    return cuMemcpyDtoHAsync_v2(&here, sim_device(4), 4, stream);
}

static int loop_frees(void *address)
{
    culvert_sim_loop_thread();
    return cuMemFree_v2(*(uint64_t *)address);
}

static int loop_unregisters(void *memory)
{
    culvert_sim_loop_thread();
    return cuMemHostUnregister(memory);
}

static int loop_launches_lazily(void *stream)
{
    culvert_sim_loop_thread();
    return sim_launch("lazy", stream, NULL);
}

/* fn blocks in a thread that calls itself a loop thread, until everything is released. */
static void check_loop_blocks(int (*fn)(void *), void *arg, const char *says)
{
    struct sim_thread_call *call = sim_in_thread(fn, arg);
    ck_assert(sim_still_runs(call));
    ck_violation(1, says);
    culvert_sim_release(NULL);
    ck_ok(sim_join(call));
}

static struct CUstream_st *busy_stream(void)
{
    struct CUstream_st *s = sim_stream();
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    return s;
}

START_TEST(case_087_a_loop_thread_must_not_launch_into_a_full_queue)
{
    culvert_sim_queue_depth(4);
    culvert_sim_hold(NULL);
    check_loop_blocks(loop_launches_into_a_full_queue, NULL,
                      "cuMemsetD8Async blocks the loop thread: its hardware queue is full");
}
END_TEST

START_TEST(case_044_a_loop_thread_must_not_synchronize)
{
    struct CUevent_st *e = sim_event();
    ck_ok(cuEventRecord(e, busy_stream()));
    check_loop_blocks(loop_synchronizes, e, "cuEventSynchronize blocks the loop thread");
}
END_TEST

START_TEST(a_loop_thread_must_not_download_to_pageable_memory)
{
    check_loop_blocks(loop_downloads_to_pageable_memory, busy_stream(),
                      "cuMemcpyDtoHAsync blocks the loop thread: a copy to pageable memory");
}
END_TEST

START_TEST(a_loop_thread_must_not_free_while_work_is_in_flight)
{
    uint64_t d = sim_device(16);
    busy_stream();
    check_loop_blocks(loop_frees, &d, "cuMemFree blocks the loop thread");
}
END_TEST

START_TEST(a_loop_thread_must_not_unregister_while_work_is_in_flight)
{
    void *memory = malloc(64);
    ck_ok(cuMemHostRegister_v2(memory, 64, 0));
    busy_stream();
    check_loop_blocks(loop_unregisters, memory,
                      "cuMemHostUnregister blocks the loop thread: it waits for the device");
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
    free(memory);
}
END_TEST

START_TEST(a_loop_thread_must_not_load_lazily_while_work_is_in_flight)
{
    struct CUstream_st *s = sim_stream();
    culvert_sim_lazy_loading_waits(1);
    busy_stream();
    check_loop_blocks(loop_launches_lazily, s, "cuLaunchKernel blocks the loop thread");
}
END_TEST

static int free_it(void *address)
{
    return cuMemFree_v2(*(uint64_t *)address);
}

START_TEST(another_thread_must_not_stall_the_loop_thread)
{
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(16), to = sim_device(4);
    culvert_sim_loop_thread();
    busy_stream();
    struct sim_thread_call *call = sim_in_thread(free_it, &d);
    sim_until(culvert_sim_violations() == 1);
    ck_violation(1, "cuMemFree stalls the loop thread from another");
    culvert_sim_release(NULL);
    ck_ok(sim_join(call));
    ck_ok(cuMemsetD8Async(to, 0, 4, s)); /* nothing stalls it now */
    ck_assert_uint_eq(culvert_sim_violations(), 1);
}
END_TEST

START_TEST(waiting_on_other_threads_and_calls_that_do_not_wait_are_fine)
{
    struct CUstream_st *s = sim_stream();
    struct CUevent_st *e = sim_event();
    uint64_t d = sim_device(16);
    culvert_sim_loop_thread();
    ck_ok(cuMemsetD8Async(d, 0, 4, s));
    sim_until(cuStreamQuery(s) == 0);
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuEventSynchronize(e)); /* over: it does not wait */
    ck_ok(cuStreamSynchronize(s));
    ck_ok(cuMemFree_v2(d));
    ck_no_violation();
}
END_TEST

START_TEST(pinning_much_at_once_is_for_quiet_times)
{
    void *p;
    culvert_sim_loop_thread();
    ck_ok(cuMemHostAlloc(&p, 8 << 20, 0));
    ck_no_violation();
    busy_stream();
    ck_ok(cuMemHostAlloc(&p, 1 << 20, 0));
    ck_no_violation();
    ck_ok(cuMemHostAlloc(&p, (1 << 20) + 1, 0));
    ck_violation(1, "cuMemHostAlloc pins 1048577 bytes at once while work is in flight");
}
END_TEST

/* Memory. */

START_TEST(case_072_memory_is_not_written_before_its_last_use_is_over)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    uint64_t d = sim_device(4096);
    uint32_t *p = sim_pinned(4096);
    culvert_sim_hold(s);
    ck_ok(cuMemcpyDtoHAsync_v2(p, d + 1024, 1024, s));
    ck_ok(cuMemsetD8Async(d, 0, 1024, other)); /* beside it */
    ck_ok(cuMemcpyHtoDAsync_v2(d + 2048, p + 512, 1024, other));
    ck_no_violation();
    ck_ok(cuMemsetD8Async(d + 2047, 0, 1, other)); /* its last byte */
    ck_violation(1, "cuMemsetD8Async writes memory");
    ck_violation(1, "before the end of its last use: cuMemcpyDtoHAsync on another stream uses");
    ck_ok(cuMemcpyHtoDAsync_v2(d, p, 16, other)); /* reads what is written there */
    ck_violation(2, "cuMemcpyHtoDAsync uses memory");
    culvert_sim_release(s);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(what_an_event_orders_is_fine)
{
    struct CUstream_st *a = sim_stream(), *b = sim_stream(), *c = sim_stream();
    struct CUevent_st *e = sim_event(), *f = sim_event();
    uint64_t d = sim_device(64);
    culvert_sim_hold(a);
    ck_ok(cuMemsetD8Async(d, 1, 64, a));
    ck_ok(cuEventRecord(e, a));
    ck_ok(cuStreamWaitEvent(b, e, 0));
    ck_ok(cuEventRecord(f, b));
    ck_ok(cuStreamWaitEvent(c, f, 0)); /* through b */
    ck_ok(cuMemsetD8Async(d, 2, 64, c));
    ck_no_violation();
    ck_ok(cuMemsetD8Async(d, 3, 64, a)); /* after the event: not ordered with c's */
    ck_violation(1, "cuMemsetD8Async");
    culvert_sim_release(a);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(what_the_legacy_stream_orders_is_fine)
{
    struct CUstream_st *a = sim_blocking_stream(), *b = sim_blocking_stream();
    uint64_t d = sim_device(64);
    culvert_sim_hold(a);
    ck_ok(cuMemsetD8Async(d, 1, 64, a));
    ck_ok(cuMemsetD8Async(d, 2, 64, NULL));
    ck_ok(cuMemsetD8Async(d, 3, 64, b));
    ck_no_violation();
    culvert_sim_release(a);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(what_is_over_is_fine)
{
    struct CUstream_st *a = sim_stream(), *b = sim_stream();
    uint64_t d = sim_device(64);
    for (int i = 0; i < 100; i++) {
        ck_ok(cuMemsetD8Async(d, 1, 64, i % 2 ? a : b));
        ck_ok(cuStreamSynchronize(i % 2 ? a : b));
    }
    ck_no_violation();
}
END_TEST

START_TEST(kernels_use_what_their_parameters_point_to)
{
    struct CUstream_st *a = sim_stream(), *b = sim_stream();
    uint32_t *p = sim_pinned(64);
    culvert_sim_hold(a);
    ck_ok(sim_store(a, p, 1));
    ck_ok(sim_store(b, p, 2)); /* two kernels: not known to write */
    ck_no_violation();
    ck_ok(cuStreamSynchronize(b));
    ck_ok(cuMemcpyDtoHAsync_v2(p, sim_device(4), 4, b));
    ck_violation(1, "before the end of its last use: cuLaunchKernel on another stream");
    ck_ok(cuStreamSynchronize(b)); /* or they would really write at the same time */
    culvert_sim_release(a);
    ck_ok(cuCtxSynchronize());
}
END_TEST

static int unregister(void *memory)
{
    return cuMemHostUnregister(memory);
}

START_TEST(memory_in_use_is_not_unregistered)
{
    struct CUstream_st *s = sim_stream();
    void *memory = malloc(64);
    uint64_t d = sim_device(64);
    ck_ok(cuMemHostRegister_v2(memory, 64, 0));
    culvert_sim_hold(s);
    ck_ok(cuMemcpyHtoDAsync_v2(d, memory, 64, s));
    struct sim_thread_call *call = sim_in_thread(unregister, memory);
    ck_assert(sim_still_runs(call)); /* it waits for the device */
    ck_violation(1, "cuMemHostUnregister: queued work uses the memory");
    culvert_sim_release(s);
    ck_ok(sim_join(call));
    ck_ok(cuStreamSynchronize(s));
    free(memory);
}
END_TEST

/* Strict mode. */

static int strict_use_of_freed_memory(void *unused)
{
    (void)unused;
    sim_setup();
    culvert_sim_strict(1);
    uint64_t d = sim_device(64);
    cuMemFree_v2(d);
    cuMemsetD8Async(d, 0, 1, sim_stream());
    return 0;
}

static int strict_destroyed_event(void *unused)
{
    (void)unused;
    sim_setup();
    culvert_sim_strict(1);
    struct CUevent_st *e = sim_event();
    cuEventDestroy_v2(e);
    cuEventQuery(e);
    return 0;
}

static void query(void *event)
{
    cuEventQuery(event);
}

static int strict_host_function(void *unused)
{
    (void)unused;
    setenv("CULVERT_SIM_STRICT", "1", 1);
    sim_setup();
    struct CUstream_st *s = sim_stream();
    cuLaunchHostFunc(s, query, sim_event());
    cuStreamSynchronize(s);
    return 0;
}

static int strict_and_clean(void *unused)
{
    (void)unused;
    sim_setup();
    culvert_sim_strict(1);
    struct CUstream_st *s = sim_stream();
    uint64_t d = sim_device(64);
    cuMemsetD8Async(d, 0, 64, s);
    cuStreamSynchronize(s);
    cuMemFree_v2(d);
    culvert_sim_reset();
    return 0;
}

static void check_aborts(int (*fn)(void *), const char *says)
{
    test_child child = test_child_run(fn, NULL, 0, 60);
    ck_assert_msg(child.signal == SIGABRT, "%s", child.output);
    ck_assert_msg(strstr(child.output, says) != NULL, "%s", child.output);
}

START_TEST(strict_mode_ends_the_process_and_names_the_violation)
{
    check_aborts(strict_use_of_freed_memory,
                 "violation: cuMemsetD8Async: use of freed memory at 0x");
    check_aborts(strict_destroyed_event, "violation: cuEventQuery: event");
    check_aborts(strict_host_function, "violation: cuEventQuery called from a host function");
    test_child child = test_child_run(strict_and_clean, NULL, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
}
END_TEST

static int hold_garbage(void *unused)
{
    (void)unused;
    sim_setup();
    struct CUstream_st *s = sim_stream();
    cuStreamDestroy_v2(s);
    culvert_sim_hold(s);
    return 0;
}

static int name_no_function(void *unused)
{
    (void)unused;
    culvert_sim_fail("cuMemAlloc_v2", 1, 2);
    return 0;
}

START_TEST(misuse_of_the_controls_aborts)
{
    check_aborts(hold_garbage, "is no stream");
    check_aborts(name_no_function,
                 "'cuMemAlloc_v2' is no function of the driver that the simulator has");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim hazards");
    TCase *t = tcase_create("loop thread");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, case_087_a_loop_thread_must_not_launch_into_a_full_queue);
    tcase_add_test(t, case_044_a_loop_thread_must_not_synchronize);
    tcase_add_test(t, a_loop_thread_must_not_download_to_pageable_memory);
    tcase_add_test(t, a_loop_thread_must_not_free_while_work_is_in_flight);
    tcase_add_test(t, a_loop_thread_must_not_unregister_while_work_is_in_flight);
    tcase_add_test(t, a_loop_thread_must_not_load_lazily_while_work_is_in_flight);
    tcase_add_test(t, another_thread_must_not_stall_the_loop_thread);
    tcase_add_test(t, waiting_on_other_threads_and_calls_that_do_not_wait_are_fine);
    tcase_add_test(t, pinning_much_at_once_is_for_quiet_times);
    suite_add_tcase(s, t);
    t = tcase_create("memory");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, case_072_memory_is_not_written_before_its_last_use_is_over);
    tcase_add_test(t, what_an_event_orders_is_fine);
    tcase_add_test(t, what_the_legacy_stream_orders_is_fine);
    tcase_add_test(t, what_is_over_is_fine);
    tcase_add_test(t, kernels_use_what_their_parameters_point_to);
    tcase_add_test(t, memory_in_use_is_not_unregistered);
    suite_add_tcase(s, t);
    t = tcase_create("strict");
    tcase_add_checked_fixture(t, NULL, sim_teardown);
    tcase_add_test(t, strict_mode_ends_the_process_and_names_the_violation);
    tcase_add_test(t, misuse_of_the_controls_aborts);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
