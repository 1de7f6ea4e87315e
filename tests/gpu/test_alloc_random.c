/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is asked for, used, released and given up in random order, on several streams, where there is
 * too little of it: every request settles, each buffer has what was written to it, and nothing is reused
 * before its time (the simulator is strict: it aborts where memory is).
 */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB, STREAMS = 4, JOBS = 60, ROUNDS = 5000 };

static gpu_fixture f;
static culvert_stream *streams[STREAMS];

typedef struct job {
    bool busy;
    culvert_future *end;
    size_t bytes;
    uint32_t mark;
} job;

typedef struct reading { /* it outlives a job that was cancelled */
    uint32_t mark, seen;
} reading;

static job jobs[JOBS];
static uint32_t state;
static double trim_seconds = 0.01;
static unsigned served, refused, given_up;

static uint32_t any(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % n;
}

static void open_with(size_t device_limit, size_t pinned_limit)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_limit = device_limit;
    options.pinned_limit = pinned_limit;
    options.trim_seconds = trim_seconds;
    gpu_fixture_open(&f, NULL, &options);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = gpu_fixture_stream(&f);
    memset(jobs, 0, sizeof jobs);
    served = refused = given_up = 0;
}

static void tear_down(void)
{
    for (int i = 0; i < STREAMS; i++)
        culvert_stream_unref(streams[i]);
    gpu_fixture_close(&f);
}

static void *drop(void *buffer)
{
    culvert_buffer_unref(buffer);
    return NULL;
}

/* On this thread or on another one. */
static void release_somewhere(culvert_buffer *buffer)
{
    pthread_t thread;
    if (any(8) != 0 || pthread_create(&thread, NULL, drop, buffer) != 0)
        culvert_buffer_unref(buffer);
    else
        pthread_join(thread, NULL);
}

static culvert_future *check(culvert_future *done, void *arg)
{
    const reading *r = arg;
    if (culvert_status(done) == CULVERT_OK)
        ck_assert_uint_eq(r->seen, r->mark);
    return NULL;
}

/* Writes all of the buffer on one stream and reads some of it on another; it is released at once. */
static culvert_future *use(culvert_future *done, void *arg)
{
    job *j = arg;
    culvert_buffer *buffer = culvert_take(done);
    culvert_stream *first = streams[any(STREAMS)], *second = streams[any(STREAMS)];
    size_t words = j->bytes / 4;
    reading *r = malloc(sizeof *r);
    ck_assert_ptr_nonnull(r);
    *r = (reading){.mark = j->mark};
    culvert_future *filled = culvert_fill(first, buffer, 0, words * 4, j->mark, 4);
    culvert_seq *seq = culvert_seq_begin(second);
    culvert_seq_wait(seq, filled);
    culvert_seq_keep(seq, r, free);
    culvert_seq_download(seq, &r->seen, buffer, any((uint32_t)words) * 4, 4);
    if (any(4) == 0)
        (void)culvert_seq_scratch(seq, 4 * KIB);
    culvert_future *read = culvert_seq_submit(seq);
    release_somewhere(buffer);
    return culvert_then(read, check, r, NULL);
}

static void over(culvert_future *done, void *arg)
{
    job *j = arg;
    int status = culvert_status(done);
    if (status == CULVERT_OK) {
        served++;
    } else if (status == CULVERT_ENOMEM) {
        refused++;
    } else {
        ck_assert_int_eq(status, CULVERT_ECANCELED);
        given_up++;
    }
    j->busy = false;
}

static void begin(job *j, uint32_t mark)
{
    bool pinned = any(3) == 0;
    j->busy = true;
    j->bytes = 4 + 4 * any(any(4) == 0 ? 2 * MIB : 16 * KIB);
    j->mark = mark;
    culvert_future *asked =
        pinned ? culvert_host_buffer_alloc(f.gpu, j->bytes) : culvert_buffer_alloc(f.gpu, j->bytes);
    j->end = culvert_then(asked, use, j, NULL);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(j->end), over, j, NULL), CULVERT_OK);
}

static void step(uint32_t round)
{
    job *j = &jobs[any(JOBS)];
    if (!j->busy) {
        culvert_unref(j->end);
        j->end = NULL;
        begin(j, round + 1);
    } else if (any(40) == 0) {
        culvert_cancel(j->end);
    }
    if (gpu_fixture_simulated() && any(40) == 0)
        culvert_sim_hold(culvert_stream_native(streams[any(STREAMS)]));
    if (gpu_fixture_simulated() && any(20) == 0)
        culvert_sim_release(NULL);
    if (any(30) == 0)
        gpu_fixture_run(&f, 0.0005); /* the device has time to do something */
    else if (any(3) == 0)
        ev_run(f.ev, EVRUN_NOWAIT);
}

static bool all_over(void *arg)
{
    (void)arg;
    for (int i = 0; i < JOBS; i++)
        if (jobs[i].busy)
            return false;
    return true;
}

START_TEST(every_request_settles_and_no_memory_is_used_twice)
{
    state = 0x9e3779b9u + (uint32_t)_i;
    open_with(24 * MIB, 20 * MIB);
    for (uint32_t round = 0; round < ROUNDS; round++)
        step(round);
    gpu_fixture_release(&f);
    gpu_fixture_until(&f, all_over, NULL);
    for (int i = 0; i < JOBS; i++)
        culvert_unref(jobs[i].end);
    for (int i = 0; i < STREAMS; i++)
        gpu_fixture_idle(&f, streams[i]);
    gpu_fixture_run(&f, 0.001);
    culvert_gpu_memory_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_gpu_memory(f.gpu, &c), CULVERT_OK);
    ck_assert_uint_eq(c.device_used, 0);
    ck_assert_uint_eq(c.waiting, 0);
    ck_assert_uint_gt(c.waited, 0);
    ck_assert_uint_gt(served, 0); /* how many is the speed of the machine */
    ck_assert_uint_gt(given_up, 0);
    tear_down();
}
END_TEST

/* ---- the steady state ---- */

static const char *const makers[] = {"cuMemAlloc",    "cuMemFree",         "cuMemHostAlloc",
                                     "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister"};
enum { MAKERS = sizeof makers / sizeof makers[0] };

static void serve(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        job j = {.bytes = 64 * KIB, .mark = i + 1};
        culvert_future *asked = i % 2 == 0 ? culvert_buffer_alloc(f.gpu, j.bytes)
                                           : culvert_host_buffer_alloc(f.gpu, j.bytes);
        gpu_fixture_ok(culvert_then(asked, use, &j, NULL));
    }
}

START_TEST(case_065_in_the_steady_state_no_memory_is_asked_of_the_driver)
{
    uint64_t before[MAKERS];
    if (!gpu_fixture_simulated())
        return;
    state = 7;
    open_with(0, 0);
    serve(200);
    for (int i = 0; i < MAKERS; i++)
        before[i] = culvert_sim_calls(makers[i]);
    serve(5000);
    for (int i = 0; i < MAKERS; i++)
        ck_assert_msg(culvert_sim_calls(makers[i]) == before[i], "%s", makers[i]);
    tear_down();
}
END_TEST

/* ---- no memory for the bookkeeping ---- */

static void ask_and_wait(void *arg)
{
    culvert_buffer *all = arg;
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, all, 0, 64, 1, 1);
    culvert_future *asked[6];
    for (int i = 0; i < 6; i++)
        asked[i] = i % 2 == 0 ? culvert_buffer_alloc(f.gpu, 3 * MIB + (size_t)i)
                              : culvert_host_buffer_alloc(f.gpu, 2 * MIB + (size_t)i);
    for (int i = 0; i < 20; i++)
        ev_run(f.ev, EVRUN_NOWAIT);
    gpu_fixture_release(&f);
    for (int i = 0; i < 6; i++) {
        int status = culvert_await(asked[i], 60);
        ck_assert(status == CULVERT_OK || status == CULVERT_ENOMEM);
        culvert_unref(asked[i]);
    }
    (void)culvert_await(work, 60);
    culvert_unref(work);
    gpu_fixture_idle(&f, f.stream);
}

START_TEST(out_of_memory_at_every_allocation_of_requests)
{
    if (!gpu_fixture_simulated())
        return;
    trim_seconds = 1000; /* blocks stay, so what is left is the same each time */
    open_with(16 * MIB, 16 * MIB);
    trim_seconds = 0.01;
    culvert_buffer *all = gpu_fixture_buffer(&f, 9 * MIB);
    alloc_fail_this_thread(true);
    /* How many blocks the heaps keep depends on the order in which things end, and where memory was short
       free ones go back: no leak is what does not go beyond the most of some runs. */
    int64_t before = 0;
    for (int i = 0; i < 8; i++) {
        ask_and_wait(all);
        if (alloc_fail_live() > before)
            before = alloc_fail_live();
    }
    uint64_t n = 0;
    for (bool failed = true; failed;) {
        ck_assert_uint_lt(n, 10000);
        alloc_fail_nth(++n);
        ask_and_wait(all);
        failed = alloc_fail_happened();
        alloc_fail_off();
        ck_assert_int_le(alloc_fail_live(), before + 4);
    }
    ck_assert_uint_ge(n - 1, 6);
    culvert_buffer_unref(all);
    tear_down();
}
END_TEST

/* ---- the device goes ---- */

START_TEST(a_lost_device_rejects_who_waits)
{
    if (!gpu_fixture_simulated())
        return;
    open_with(16 * MIB, 16 * MIB);
    f.dirty = true;
    culvert_buffer *all = gpu_fixture_buffer(&f, 16 * MIB);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, all, 0, 64, 1, 1);
    culvert_buffer_unref(all);
    culvert_future *asked = culvert_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.005);
    ck_assert_int_eq(culvert_status(asked), CULVERT_PENDING);
    culvert_sim_poison(0, 700);
    culvert_error err = gpu_fixture_fails(asked, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, 700);
    (void)gpu_fixture_fails(work, CULVERT_EDEVICELOST);
    tear_down();
}
END_TEST

static Suite *random_suite(void)
{
    Suite *suite = suite_create("alloc, random");
    TCase *tc = tcase_create("model");
    tcase_add_loop_test(tc, every_request_settles_and_no_memory_is_used_twice, 0, 4);
    suite_add_tcase(suite, tc);
    TCase *rest = tcase_create("service");
    tcase_add_test(rest, case_065_in_the_steady_state_no_memory_is_asked_of_the_driver);
    tcase_add_test(rest, out_of_memory_at_every_allocation_of_requests);
    if (gpu_fixture_simulated()) /* the last: the device is gone then */
        tcase_add_test(rest, a_lost_device_rejects_who_waits);
    suite_add_tcase(suite, rest);
    return suite;
}

int main(void)
{
    Suite *suites[] = {random_suite(), NULL};
    return test_main(suites);
}
