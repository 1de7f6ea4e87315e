/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams: order within one, independence of several, hardware queues, priorities, holding. */
#include "sim_test.h"

#include <stdlib.h>

enum { DEPTH = 1021 };

START_TEST(operations_of_a_stream_run_in_order)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    for (uint32_t i = 1; i <= 9; i++)
        ck_ok(sim_append(s, to, i));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 123456789);
    ck_ok(cuStreamQuery(s));
}
END_TEST

START_TEST(a_held_stream_does_nothing_and_then_all)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    uint32_t *to = sim_pinned(8);
    culvert_sim_hold(s);
    ck_ok(sim_store(s, to, 7));
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    ck_ok(sim_store(other, to + 1, 8));
    ck_ok(cuStreamSynchronize(other));
    ck_assert_uint_eq(to[0], 0);
    ck_assert_uint_eq(to[1], 8);
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(to[0], 7);
}
END_TEST

START_TEST(holding_all_covers_streams_made_later)
{
    culvert_sim_hold(NULL);
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    ck_ok(sim_store(s, to, 1));
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_release(s);
    sim_nap();
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_release(NULL);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 1);
}
END_TEST

START_TEST(kernels_of_different_streams_run_at_once)
{
    _Atomic uint32_t *flags = (_Atomic uint32_t *)sim_pinned(64 * 4);
    struct CUstream_st *s[64];
    for (int i = 0; i < 64; i++) {
        s[i] = sim_stream();
        ck_ok(sim_spin(s[i], &flags[i]));
    }
    /* Each ends only when its own flag is set, whatever the order. */
    for (int i = 63; i >= 0; i--) {
        atomic_store(&flags[i], 1);
        ck_ok(cuStreamSynchronize(s[i]));
    }
}
END_TEST

START_TEST(a_destroyed_stream_ends_its_work)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    struct CUevent_st *e = sim_event();
    culvert_sim_hold(s);
    ck_ok(sim_store(s, to, 5));
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuStreamDestroy_v2(s));
    ck_assert_uint_eq(culvert_sim_live("stream"), 0);
    ck_result(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    culvert_sim_release(NULL);
    ck_ok(cuEventSynchronize(e));
    ck_assert_uint_eq(*to, 5);
    ck_no_violation();
}
END_TEST

START_TEST(a_destroyed_stream_cannot_be_used)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    ck_ok(cuStreamDestroy_v2(s));
    ck_result(sim_store(s, to, 1), CUDA_ERROR_INVALID_HANDLE);
    ck_violation(1, "was destroyed");
    ck_result(cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_HANDLE);
    ck_violation(2, "cuStreamDestroy");
}
END_TEST

struct filler {
    struct CUstream_st *stream;
    void *to;
    _Atomic int n;
    int most;
};

static int fill(void *arg)
{
    struct filler *f = arg;
    while (atomic_load(&f->n) < f->most) {
        int result = cuMemsetD32Async((uintptr_t)f->to, 1, 1, f->stream);
        if (result)
            return result;
        atomic_fetch_add(&f->n, 1);
    }
    return 0;
}

START_TEST(a_full_hardware_queue_blocks_its_caller)
{
    struct filler f = {.stream = sim_stream(), .to = sim_pinned(4), .most = 3 * DEPTH};
    culvert_sim_hold(f.stream);
    struct sim_thread_call *call = sim_in_thread(fill, &f);
    sim_until(atomic_load(&f.n) >= DEPTH);
    ck_assert(sim_still_runs(call));
    /* One counts as running; the rest waits. */
    ck_assert_int_eq(atomic_load(&f.n), DEPTH + 1);
    culvert_sim_release(f.stream);
    ck_ok(sim_join(call));
    ck_ok(cuStreamSynchronize(f.stream));
}
END_TEST

START_TEST(streams_share_hardware_queues)
{
    struct CUstream_st *s[9];
    for (int i = 0; i < 9; i++)
        s[i] = sim_stream();
    uint32_t *to = sim_pinned(4);
    culvert_sim_hold(NULL);
    struct filler first = {.stream = s[0], .to = to, .most = DEPTH + 1};
    ck_ok(fill(&first));
    struct filler others = {.stream = s[1], .to = to + 1, .most = DEPTH + 1};
    others.to = (void *)(uintptr_t)sim_device(4);
    ck_ok(fill(&others)); /* another queue */
    struct filler shared = {.stream = s[8], .to = (void *)(uintptr_t)sim_device(4), .most = 2};
    struct sim_thread_call *call = sim_in_thread(fill, &shared); /* the first stream's queue */
    ck_assert(sim_still_runs(call));
    culvert_sim_release(NULL);
    ck_ok(sim_join(call));
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(the_depth_can_be_set)
{
    culvert_sim_queue_depth(16);
    struct filler f = {.stream = sim_stream(), .to = sim_pinned(4), .most = 20};
    culvert_sim_hold(f.stream);
    struct sim_thread_call *call = sim_in_thread(fill, &f);
    sim_until(atomic_load(&f.n) >= 16);
    ck_assert(sim_still_runs(call));
    ck_assert_int_eq(atomic_load(&f.n), 17);
    culvert_sim_release(f.stream);
    ck_ok(sim_join(call));
    ck_ok(cuStreamSynchronize(f.stream));
}
END_TEST

static void count(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

START_TEST(events_waits_and_host_functions_do_not_block_at_20000)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *e = sim_event(), *blocker = sim_event();
    _Atomic int calls = 0;
    uint32_t *to = sim_pinned(8);
    culvert_sim_hold(s);
    culvert_sim_hold(other);
    ck_ok(sim_store(other, to, 1));
    ck_ok(cuEventRecord(blocker, other));
    ck_ok(sim_store(s, to + 1, 1));
    for (int i = 0; i < 20000; i++) {
        ck_ok(cuEventRecord(e, s));
        ck_ok(cuStreamWaitEvent(s, blocker, 0));
        ck_ok(cuLaunchHostFunc(s, count, &calls));
    }
    culvert_sim_release(NULL);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_int_eq(atomic_load(&calls), 20000);
}
END_TEST

enum behind { NOTHING, HOST_FUNCTION, WORK };

/* Streams that wait for a busy one, before an innocent one; whether the innocent one runs. */
static bool innocent_runs(int queues, int waiting, enum behind behind)
{
    struct CUstream_st *busy = sim_stream(), *innocent = sim_stream(), *s[64];
    struct CUevent_st *e = sim_event();
    uint32_t *to = sim_pinned(66 * 4);
    _Atomic int calls = 0;
    culvert_sim_hardware_queues(queues);
    culvert_sim_hold(busy);
    ck_ok(sim_store(busy, to, 1));
    ck_ok(cuEventRecord(e, busy));
    for (int i = 0; i < waiting; i++) {
        s[i] = sim_stream();
        ck_ok(cuStreamWaitEvent(s[i], e, 0));
        if (behind == HOST_FUNCTION)
            ck_ok(cuLaunchHostFunc(s[i], count, &calls));
        else if (behind == WORK)
            ck_ok(sim_store(s[i], to + 2 + i, 1));
    }
    ck_ok(sim_store(innocent, to + 1, 1));
    bool ran = false;
    for (int i = 0; i < 50 && !ran; i++) {
        sim_nap();
        ran = cuStreamQuery(innocent) == 0;
    }
    culvert_sim_release(busy);
    ck_ok(cuStreamSynchronize(innocent));
    ck_ok(cuCtxSynchronize());
    ck_assert_uint_eq(to[0] + to[1], 2);
    for (int i = 0; i < waiting && behind == WORK; i++)
        ck_assert_uint_eq(to[2 + i], 1);
    ck_assert_int_eq(atomic_load(&calls), behind == HOST_FUNCTION ? waiting : 0);
    return ran;
}

START_TEST(with_one_hardware_queue_a_waiting_stream_stalls_others)
{
    ck_assert(!innocent_runs(1, 1, WORK));
    ck_assert(!innocent_runs(1, 1, HOST_FUNCTION));
    ck_assert(innocent_runs(1, 64, NOTHING));
}
END_TEST

START_TEST(as_many_waiting_streams_as_hardware_queues_stall_others)
{
    static const int queues[] = {2, 7, 8, 32};
    int n = queues[_i];
    ck_assert(innocent_runs(n, n - 1, WORK));
    ck_assert(!innocent_runs(n, n, WORK));
    ck_assert(!innocent_runs(n, 64, WORK));
    ck_assert(innocent_runs(n, 64, NOTHING));
    ck_assert(innocent_runs(n, 48, HOST_FUNCTION));
}
END_TEST

START_TEST(waits_do_not_stall_what_was_there_before)
{
    struct CUstream_st *busy = sim_stream(), *first = sim_stream(), *s[16];
    struct CUevent_st *e = sim_event(), *f = sim_event();
    uint32_t *to = sim_pinned(18 * 4);
    _Atomic uint32_t *flag = (_Atomic uint32_t *)sim_pinned(4);
    ck_ok(sim_spin(busy, flag));
    ck_ok(cuEventRecord(e, busy));
    ck_ok(sim_store(busy, to, 1)); /* what the other waits are for comes behind a kernel */
    ck_ok(cuEventRecord(f, busy));
    ck_ok(cuStreamWaitEvent(first, e, 0));
    ck_ok(sim_store(first, to + 1, 1));
    for (int i = 0; i < 16; i++) {
        s[i] = sim_stream();
        ck_ok(cuStreamWaitEvent(s[i], f, 0));
        ck_ok(sim_store(s[i], to + 2 + i, 1));
    }
    atomic_store(flag, 1);
    ck_ok(cuCtxSynchronize());
    for (int i = 0; i < 18; i++)
        ck_assert_uint_eq(to[i], 1);
}
END_TEST

START_TEST(stalled_work_goes_with_its_context)
{
    struct CUstream_st *busy = sim_stream();
    struct CUevent_st *e = sim_event();
    uint64_t d = sim_device(4096);
    culvert_sim_hold(busy);
    ck_ok(cuMemsetD8Async(d, 0, 1, busy));
    ck_ok(cuEventRecord(e, busy));
    for (unsigned i = 0; i < 24; i++) {
        struct CUstream_st *s = sim_stream();
        if (i < 8)
            ck_ok(cuStreamWaitEvent(s, e, 0));
        ck_ok(cuMemsetD8Async(d + 1 + i, 0, 1, s));
        ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    }
    culvert_sim_poison(0, 700);
    sim_until(culvert_sim_live("operation") == 0);
    ck_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(stalled_work_goes_on_when_there_are_more_queues)
{
    struct CUstream_st *busy = sim_stream(), *s = NULL;
    struct CUevent_st *e = sim_event();
    uint64_t d = sim_device(4096);
    culvert_sim_hold(busy);
    ck_ok(cuMemsetD8Async(d, 0, 1, busy));
    ck_ok(cuEventRecord(e, busy));
    for (unsigned i = 0; i < 9; i++) {
        s = sim_stream();
        if (i < 8)
            ck_ok(cuStreamWaitEvent(s, e, 0));
        ck_ok(cuMemsetD8Async(d + 1 + i, 0, 1, s));
    }
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    culvert_sim_hardware_queues(9);
    ck_ok(cuStreamSynchronize(s));
    culvert_sim_release(busy);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(case_084_a_ready_stream_of_higher_priority_goes_first)
{
    struct CUstream_st *low, *high;
    int least, greatest, priority;
    uint32_t *seen = sim_pinned(4);
    uint64_t word = sim_device(4);
    ck_ok(cuCtxGetStreamPriorityRange(&least, &greatest));
    ck_assert_int_lt(greatest, least);
    ck_ok(cuStreamCreateWithPriority(&high, 1, greatest - 10)); /* clamped */
    ck_ok(cuStreamGetPriority(high, &priority));
    ck_assert_int_eq(priority, greatest);
    ck_ok(cuStreamCreateWithPriority(&low, 1, least));
    for (int round = 0; round < 50; round++) {
        culvert_sim_hold(NULL);
        ck_ok(cuMemsetD32Async(word, 1, 1, low)); /* first in time, last to run */
        ck_ok(cuMemsetD32Async(word, 2, 1, high));
        culvert_sim_release(NULL);
        ck_ok(cuCtxSynchronize());
        ck_ok(cuMemcpyDtoHAsync_v2(seen, word, 4, low));
        ck_ok(cuStreamSynchronize(low));
        ck_assert_uint_eq(*seen, 1);
    }
}
END_TEST

START_TEST(case_085_the_legacy_stream_and_blocking_streams_wait_for_each_other)
{
    struct CUstream_st *blocking = sim_blocking_stream(), *free_stream = sim_stream();
    uint32_t *to = sim_pinned(4), *other = sim_pinned(4);
    culvert_sim_hold(blocking);
    ck_ok(sim_append(blocking, to, 1));
    ck_ok(sim_append(NULL, to, 2));                  /* legacy: after the blocking stream */
    ck_ok(sim_append(sim_blocking_stream(), to, 3)); /* after the legacy stream */
    ck_ok(sim_append(free_stream, other, 4));        /* no part in it */
    ck_ok(cuStreamSynchronize(free_stream));
    ck_assert_uint_eq(*to, 0);
    ck_assert_uint_eq(*other, 4);
    ck_result(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    culvert_sim_release(blocking);
    ck_ok(cuCtxSynchronize());
    ck_assert_uint_eq(*to, 123);
}
END_TEST

START_TEST(the_per_thread_stream_is_a_blocking_stream)
{
    struct CUstream_st *mine = CULVERT__CU_STREAM_PER_THREAD;
    uint32_t *to = sim_pinned(4);
    unsigned flags = 7;
    culvert_sim_hold(CULVERT__CU_STREAM_LEGACY);
    ck_ok(sim_append(CULVERT__CU_STREAM_LEGACY, to, 1));
    ck_ok(sim_append(mine, to, 2));
    ck_ok(cuStreamGetFlags(mine, &flags));
    ck_assert_uint_eq(flags, CULVERT__CU_STREAM_DEFAULT);
    ck_result(cuStreamQuery(mine), CUDA_ERROR_NOT_READY);
    culvert_sim_release(NULL);
    ck_ok(cuStreamSynchronize(mine));
    ck_assert_uint_eq(*to, 12);
}
END_TEST

static int query_mine(void *unused)
{
    (void)unused;
    return cuStreamQuery(CULVERT__CU_STREAM_PER_THREAD);
}

START_TEST(each_thread_has_its_own_per_thread_stream)
{
    uint32_t *to = sim_pinned(4);
    culvert_sim_hold(CULVERT__CU_STREAM_PER_THREAD);
    ck_ok(sim_store(CULVERT__CU_STREAM_PER_THREAD, to, 1));
    ck_ok(sim_join(sim_in_thread(query_mine, NULL)));
    ck_result(cuStreamQuery(CULVERT__CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
}
END_TEST

START_TEST(streams_say_what_they_are)
{
    struct CUstream_st *s = sim_stream(), *t = sim_stream();
    struct CUctx_st *ctx;
    unsigned flags;
    unsigned long long a, b;
    ck_ok(cuStreamGetCtx(s, &ctx));
    ck_assert_ptr_eq(ctx, sim_context);
    ck_ok(cuStreamGetFlags(s, &flags));
    ck_assert_uint_eq(flags, CULVERT__CU_STREAM_NON_BLOCKING);
    ck_ok(cuStreamGetId(s, &a));
    ck_ok(cuStreamGetId(t, &b));
    ck_assert(a != b);
    ck_result(cuStreamCreateWithPriority(&s, 2, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuStreamCreateWithPriority(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(reset_drops_held_work)
{
    struct CUstream_st *s = sim_stream();
    static uint32_t seen;
    static _Atomic int calls;
    _Atomic uint32_t *flag = (_Atomic uint32_t *)sim_pinned(4);
    ck_ok(sim_spin(sim_stream(), flag)); /* stops at its next yield */
    culvert_sim_hold(s);
    ck_ok(cuLaunchHostFunc(s, count, &calls));
    ck_ok(cuMemcpyDtoHAsync_v2(&seen, sim_device(4), 0, s));
    culvert_sim_reset();
    ck_assert_int_eq(atomic_load(&calls), 0);
    ck_result(cuStreamQuery(s), CUDA_ERROR_NOT_INITIALIZED);
    sim_setup();
    ck_result(cuStreamQuery(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    ck_ok(sim_launch("nothing", sim_stream(), NULL));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim streams");
    TCase *t = tcase_create("streams");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, operations_of_a_stream_run_in_order);
    tcase_add_test(t, a_held_stream_does_nothing_and_then_all);
    tcase_add_test(t, holding_all_covers_streams_made_later);
    tcase_add_test(t, kernels_of_different_streams_run_at_once);
    tcase_add_test(t, a_destroyed_stream_ends_its_work);
    tcase_add_test(t, a_destroyed_stream_cannot_be_used);
    tcase_add_test(t, a_full_hardware_queue_blocks_its_caller);
    tcase_add_test(t, streams_share_hardware_queues);
    tcase_add_test(t, the_depth_can_be_set);
    tcase_add_test(t, events_waits_and_host_functions_do_not_block_at_20000);
    tcase_add_test(t, with_one_hardware_queue_a_waiting_stream_stalls_others);
    tcase_add_loop_test(t, as_many_waiting_streams_as_hardware_queues_stall_others, 0, 4);
    tcase_add_test(t, waits_do_not_stall_what_was_there_before);
    tcase_add_test(t, stalled_work_goes_with_its_context);
    tcase_add_test(t, stalled_work_goes_on_when_there_are_more_queues);
    tcase_add_test(t, case_084_a_ready_stream_of_higher_priority_goes_first);
    tcase_add_test(t, case_085_the_legacy_stream_and_blocking_streams_wait_for_each_other);
    tcase_add_test(t, the_per_thread_stream_is_a_blocking_stream);
    tcase_add_test(t, each_thread_has_its_own_per_thread_stream);
    tcase_add_test(t, streams_say_what_they_are);
    tcase_add_test(t, reset_drops_held_work);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
