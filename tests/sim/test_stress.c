/* SPDX-License-Identifier: BSD-2-Clause */
/* Many threads, many streams, random work: nothing is lost, out of order or left over. */
#include "sim_test.h"

#include <stdlib.h>

enum { THREADS = 4, STREAMS = 6, ROUNDS = 3000 };

static _Atomic uint32_t seeds;
static struct CUfunc_st *store;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void note(void *arg)
{
    ++*(uint32_t *)arg;
}

struct lane { /* a stream and what it must have counted */
    struct CUstream_st *stream;
    struct CUevent_st *event;
    uint32_t *count, expected;
    uint32_t calls, expected_calls;
    uint64_t device;
};

static int step(struct lane *l, struct lane *other, uint32_t *state)
{
    void *params[] = {&l->count, &l->expected};
    switch (next(state) % 8) {
    case 0: return cuEventRecord(l->event, l->stream);
    case 1: return cuStreamWaitEvent(l->stream, other->event, 0);
    case 2: l->expected_calls++; return cuLaunchHostFunc(l->stream, note, &l->calls);
    case 3: return cuMemsetD8Async(l->device, 1, 256, l->stream);
    case 4: {
        int result = cuEventQuery(other->event);
        return result == CULVERT__CUDA_ERROR_NOT_READY ? 0 : result;
    }
    default:
        l->expected++;
        return cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, l->stream, params, NULL);
    }
}

static int work(void *arg)
{
    struct lane *lanes = arg;
    uint32_t state = atomic_fetch_add(&seeds, 1) * 7919u + 1;
    memset(lanes, 0, STREAMS * sizeof *lanes);
    for (int i = 0; i < STREAMS; i++) {
        void *p;
        culvert__CUdeviceptr d;
        if (cuStreamCreateWithPriority(&lanes[i].stream, 1, -(i % 3)) ||
            cuEventCreate(&lanes[i].event, 2) || cuMemHostAlloc(&p, 4, 0) || cuMemAlloc_v2(&d, 256))
            return 1;
        lanes[i].count = p;
        *lanes[i].count = 0;
        lanes[i].device = d;
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct lane *l = &lanes[next(&state) % STREAMS];
        int result = step(l, &lanes[next(&state) % STREAMS], &state);
        if (result)
            return result;
    }
    for (int i = 0; i < STREAMS; i++) {
        struct lane *l = &lanes[i];
        if (cuStreamSynchronize(l->stream) || *l->count != l->expected ||
            l->calls != l->expected_calls)
            return 2;
        if (cuStreamDestroy_v2(l->stream) || cuEventDestroy_v2(l->event) ||
            cuMemFreeHost(l->count) || cuMemFree_v2(l->device))
            return 3;
    }
    return 0;
}

/* Not on a stack: after an error, a host function may still run when its thread has given up. */
static struct lane all_lanes[THREADS][STREAMS];

START_TEST(threads_with_streams_of_their_own)
{
    struct sim_thread_call *calls[THREADS];
    store = sim_kernel("store");
    for (int i = 0; i < THREADS; i++)
        calls[i] = sim_in_thread(work, all_lanes[i]);
    for (int i = 0; i < THREADS; i++)
        ck_ok(sim_join(calls[i]));
    ck_ok(cuCtxSynchronize());
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
    ck_assert_uint_eq(culvert_sim_live("stream"), 0);
    ck_assert_uint_eq(culvert_sim_live("event"), 0);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
    ck_no_violation();
}
END_TEST

START_TEST(the_same_with_one_hardware_queue)
{
    culvert_sim_hardware_queues(1);
    struct sim_thread_call *calls[THREADS];
    store = sim_kernel("store");
    for (int i = 0; i < THREADS; i++)
        calls[i] = sim_in_thread(work, all_lanes[i]);
    for (int i = 0; i < THREADS; i++)
        ck_ok(sim_join(calls[i]));
    ck_no_violation();
}
END_TEST

static int work_until_lost(void *lanes)
{
    int result;
    while ((result = work(lanes)) == 0) {}
    return result;
}

START_TEST(a_sticky_error_in_the_midst_of_it)
{
    struct sim_thread_call *calls[THREADS];
    store = sim_kernel("store");
    for (int i = 0; i < THREADS; i++)
        calls[i] = sim_in_thread(work_until_lost, all_lanes[i]);
    for (int i = 0; i < 20; i++)
        sim_nap();
    culvert_sim_poison(0, 700);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_ne(sim_join(calls[i]), 0);
    sim_until(culvert_sim_live("operation") == 0);
}
END_TEST

START_TEST(resets_in_a_row)
{
    for (int i = 0; i < 20; i++) {
        struct CUstream_st *s = sim_stream();
        uint32_t *p = sim_pinned(4), calls = 0;
        uint64_t d = sim_device(4);
        for (int k = 0; k < 50; k++) {
            ck_ok(sim_store(s, p, 1));
            ck_ok(cuMemcpyHtoDAsync_v2(d, p, 4, s));
            if (k % 10 == 0)
                ck_ok(cuLaunchHostFunc(s, note, &calls));
        }
        culvert_sim_reset();
        sim_setup();
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim stress");
    TCase *t = tcase_create("stress");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, threads_with_streams_of_their_own);
    tcase_add_test(t, the_same_with_one_hardware_queue);
    tcase_add_test(t, a_sticky_error_in_the_midst_of_it);
    tcase_add_test(t, resets_in_a_row);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
