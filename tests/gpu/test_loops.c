/* SPDX-License-Identifier: BSD-2-Clause */
/* Several loops, each on a thread of its own, that use the same device. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "lib/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reset(void)
{
    gpu_fixture_reset();
    trial_keep_context();
    if (gpu_fixture_simulated())
        culvert_sim_strict(1);
}

/* ---- a loop on a thread ---- */

typedef struct member {
    pthread_t thread;
    unsigned number;
    unsigned random;
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_module *module;
    culvert_kernel *add_word, *empty, *busy;
    culvert_stream *streams[8]; /* three, but of one that wants everything */
    unsigned nstreams;
    unsigned submitted, settled, failed;
    double until;
} member;

static void member_open(member *m, double close_seconds)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.close_seconds = close_seconds;
    m->ev = ev_loop_new(EVFLAG_AUTO);
    m->loop = culvert_loop_new(m->ev, &options, &err);
    m->gpu = culvert_gpu_open(m->loop, 0, NULL, &err);
    ck_assert_msg(m->gpu != NULL, "%s", err.message);
    if (m->nstreams == 0)
        m->nstreams = 3;
    for (unsigned i = 0; i < m->nstreams; i++) {
        m->streams[i] = culvert_stream_new(m->gpu, NULL, &err);
        ck_assert_msg(m->streams[i] != NULL, "%s", err.message);
    }
}

static void member_load(member *m)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *loaded = culvert_module_load(m->gpu, &culvert_image_fixture);
    ck_assert_int_eq(culvert_await(loaded, 100), CULVERT_OK);
    m->module = culvert_take(loaded);
    culvert_unref(loaded);
    m->add_word = culvert_module_kernel(m->module, "add_word", &err);
    m->empty = culvert_module_kernel(m->module, "empty", &err);
    m->busy = culvert_module_kernel(m->module, "busy", &err);
    ck_assert_ptr_nonnull(m->busy);
}

static void member_close(member *m)
{
    for (unsigned i = 0; i < m->nstreams; i++)
        culvert_stream_unref(m->streams[i]);
    culvert_module_unref(m->module);
    culvert_gpu_close(m->gpu);
    culvert_loop_free(m->loop);
    ev_loop_destroy(m->ev);
}

static unsigned next_random(member *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 17;
    m->random ^= m->random << 5;
    return m->random;
}

/* ---- stress ---- */

enum { WORDS = 25000 }; /* above what is copied by the loop itself */

typedef struct job {
    member *owner;
    unsigned refs; /* of the sequence, whose memory it is, and of the callback */
    unsigned value;
    size_t n;
    unsigned *in, *out;
} job;

static void job_done(culvert_future *done, void *arg)
{
    job *j = arg;
    member *m = j->owner;
    int status = culvert_status(done);
    m->settled++;
    if (status != CULVERT_OK) {
        m->failed++;
        ck_assert_msg(status == CULVERT_ECANCELED || status == CULVERT_ETIMEDOUT, "%s: %s",
                      culvert_error_name(status), culvert_get_error(done)->message);
    } else {
        for (size_t i = 0; i < j->n; i++) {
            unsigned want = j->value + (unsigned)i + (i == 0 ? 1 : 0);
            if (j->out[i] != want) /* an assertion of Check takes long, also when it holds */
                ck_abort_msg("loop %u: word %zu of %zu is %u, not %u", m->number, i, j->n,
                             j->out[i], want);
        }
    }
}

/* The device may use in and out after the outer future has timed out. */
static void job_free(void *arg)
{
    job *j = arg;
    if (--j->refs > 0)
        return;
    free(j->in);
    free(j->out);
    free(j);
}

static void job_submit(member *m)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    unsigned r = next_random(m);
    job *j = calloc(1, sizeof *j);
    ck_assert_ptr_nonnull(j);
    j->owner = m;
    j->refs = 2;
    j->n = r % 8 == 0 ? WORDS : 1 + r % 200;
    j->value = r;
    j->in = malloc(j->n * sizeof *j->in);
    j->out = malloc(j->n * sizeof *j->out);
    ck_assert(j->in != NULL && j->out != NULL);
    for (size_t i = 0; i < j->n; i++)
        j->in[i] = r + (unsigned)i;
    culvert_buffer *buffer = culvert_buffer_new(m->gpu, j->n * 4, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    culvert_seq *seq = culvert_seq_begin(m->streams[r % 3]);
    culvert_seq_upload(seq, buffer, 0, j->in, j->n * 4);
    culvert_seq_launch(seq, m->add_word, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(buffer), CULVERT_U32(0), CULVERT_U32(1)));
    for (unsigned i = 0; i < r / 8 % 20; i++)
        culvert_seq_launch(seq, m->empty, &grid, NULL, 0);
    culvert_seq_download(seq, j->out, buffer, 0, j->n * 4);
    culvert_seq_keep(seq, j, job_free);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_buffer_unref(buffer);
    m->submitted++;
    if (r % 16 == 3)
        future = culvert_timeout(future, 0.0005);
    if (r % 16 == 5)
        culvert_cancel(future);
    ck_assert_int_eq(culvert_on_settled(future, job_done, j, job_free), CULVERT_OK);
}

static void member_work(member *m, double seconds)
{
    double end = test_now() + seconds;
    while (test_now() < end) {
        while (m->submitted - m->settled < 60)
            job_submit(m);
        trial_turn(m->ev, 0.001);
    }
    ev_run(m->ev, 0);
    ck_assert_uint_eq(m->settled, m->submitted);
}

static void *stress(void *arg)
{
    member *m = arg;
    member_open(m, 0);
    member_load(m);
    member_work(m, 2);
    member_close(m);
    return NULL;
}

START_TEST(four_loops_at_once)
{
    enum { N = 4 };
    static member members[N];
    reset();
    for (unsigned i = 0; i < N; i++) {
        members[i] = (member){.number = i, .random = 77 + i * 1000};
        pthread_create(&members[i].thread, NULL, stress, &members[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        pthread_join(members[i].thread, NULL);
        printf("loop %u: %u, of which %u cancelled or too late\n", i, members[i].submitted,
               members[i].failed);
        ck_assert_uint_gt(members[i].submitted, 100);
    }
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- what fits into the device is for all ---- */

static atomic_uint hog_done;
static atomic_bool hog_stop, hog_ready;

static void must_be_ok(culvert_future *done)
{
    if (culvert_status(done) != CULVERT_OK)
        ck_abort_msg("%s: %s", culvert_error_name(culvert_status(done)),
                     culvert_get_error(done)->message);
}

static void hog_settled(culvert_future *done, void *arg)
{
    must_be_ok(done);
    --*(unsigned *)arg;
    atomic_fetch_add(&hog_done, 1);
}

/* Streams with far more than fits, for ever. */
static void *hog(void *arg)
{
    member *m = arg;
    unsigned pending[8] = {0};
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    member_open(m, 0);
    member_load(m);
    while (!atomic_load(&hog_stop)) {
        for (unsigned i = 0; i < m->nstreams; i++)
            while (pending[i] < 600) {
                pending[i]++;
                ck_assert_int_eq(culvert_on_settled(culvert_launch(m->streams[i], m->busy, &grid,
                                                                   CULVERT_ARGS(
                                                                       CULVERT_U64(20000))),
                                                    hog_settled, &pending[i], NULL),
                                 CULVERT_OK);
            }
        if (atomic_load(&hog_done) > 2000)
            atomic_store(&hog_ready, true);
        ev_run(m->ev, EVRUN_ONCE);
    }
    ev_run(m->ev, 0);
    member_close(m);
    return NULL;
}

START_TEST(a_loop_that_fills_the_device_starves_no_other)
{
    enum { N = 40 };
    static member big = {.nstreams = 8}, small;
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    unsigned most = 0;
    reset();
    if (gpu_fixture_simulated())
        culvert_sim_duration("busy", 0.00002);
    member_open(&small, 0);
    member_load(&small);
    pthread_create(&big.thread, NULL, hog, &big);
    while (!atomic_load(&hog_ready))
        test_sleep(0.001);
    for (int i = 0; i < N; i++) {
        unsigned before = atomic_load(&hog_done);
        culvert_future *one = culvert_launch(small.streams[0], small.empty, &grid, NULL, 0);
        while (culvert_status(one) == CULVERT_PENDING) {
            trial_turn(small.ev, 0.0005);
            unsigned meanwhile = atomic_load(&hog_done) - before;
            ck_assert_msg(meanwhile < 40000, "%d: %u of the others' went before", i, meanwhile);
        }
        unsigned meanwhile = atomic_load(&hog_done) - before;
        most = meanwhile > most ? meanwhile : most;
        gpu_fixture_ok(one);
    }
    printf("at most %u of the others' went before\n", most);
    atomic_store(&hog_stop, true);
    pthread_join(big.thread, NULL);
    member_close(&small);
    gpu_fixture_nothing_left();
}
END_TEST

/* The same by hand: the loop that has given units back comes first, always. */
START_TEST(the_first_in_the_line_has_its_turn)
{
    enum { EACH = 400 };
    static member big = {.nstreams = 6}, small;
    outcomes all, ones;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&big, 0);
    member_open(&small, 0);
    culvert_buffer *buffer = culvert_buffer_new(big.gpu, 4096, &err);
    culvert_buffer *own = culvert_buffer_new(small.gpu, 4096, &err);
    ck_assert_msg(buffer != NULL && own != NULL, "%s", err.message);
    outcomes_begin(&all, 6 * EACH);
    outcomes_begin(&ones, 1);
    for (unsigned i = 0; i < 6; i++)
        culvert_sim_hold(culvert_stream_native(big.streams[i]));
    for (unsigned i = 0; i < 6; i++)
        for (int k = 0; k < EACH; k++)
            outcomes_add(&all, culvert_fill(big.streams[i], buffer, i * 64, 64, 1, 4));
    uint64_t in_driver = culvert_sim_calls("cuMemsetD32Async");
    ck_assert_uint_eq(in_driver, 768);
    outcomes_add(&ones, culvert_fill(small.streams[0], own, 0, 64, 2, 4));
    trial_turn(small.ev, 0.01);
    ck_assert_uint_eq(culvert_stream_in_flight(small.streams[0]), 0); /* there is no room */
    culvert_sim_release(culvert_stream_native(big.streams[0]));
    for (int i = 0; i < 50; i++) { /* what it gives back it would take again */
        ev_run(big.ev, EVRUN_NOWAIT);
        test_sleep(0.0005);
    }
    ck_assert(outcomes_wait(&ones, small.ev, 60));
    outcomes_all(&ones, CULVERT_OK);
    ck_assert_uint_lt(all.settled, 6 * EACH - 700); /* most of the others' are still held */
    culvert_sim_release(NULL);
    ck_assert(outcomes_wait(&all, big.ev, 60));
    outcomes_all(&all, CULVERT_OK);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(own);
    member_close(&big);
    member_close(&small);
    outcomes_end(&all);
    outcomes_end(&ones);
    gpu_fixture_nothing_left();
}
END_TEST

static int weigh_much(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    ++*(int *)arg;
    return 0;
}

/* What needs much at once is not passed by for ever by what needs little, and others are not stopped. */
START_TEST(the_first_in_the_line_needs_much)
{
    enum { EACH = 400 };
    static member big = {.nstreams = 6}, small;
    outcomes all, ones;
    int calls = 0;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&big, 0);
    member_open(&small, 0);
    culvert_buffer *buffer = culvert_buffer_new(big.gpu, 4096, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    outcomes_begin(&all, 6 * EACH);
    outcomes_begin(&ones, 1);
    for (unsigned i = 0; i < 6; i++)
        culvert_sim_hold(culvert_stream_native(big.streams[i]));
    for (unsigned i = 0; i < 6; i++)
        for (int k = 0; k < EACH; k++)
            outcomes_add(&all, culvert_fill(big.streams[i], buffer, i * 64, 64, 1, 4));
    culvert_seq *seq = culvert_seq_begin(small.streams[0]);
    culvert_seq_call_weighted(seq, weigh_much, &calls, NULL, 256);
    outcomes_add(&ones, culvert_seq_submit(seq));
    trial_turn(small.ev, 0.01);
    ck_assert_int_eq(calls, 0);
    for (unsigned i = 0; i < 2; i++) {
        culvert_sim_release(culvert_stream_native(big.streams[i]));
        for (int k = 0; k < 50; k++) {
            ev_run(big.ev, EVRUN_NOWAIT);
            test_sleep(0.0005);
        }
        ck_assert_uint_gt(culvert_stream_in_flight(big.streams[2 + i]), 0); /* it goes on */
    }
    ck_assert(outcomes_wait(&ones, small.ev, 60));
    outcomes_all(&ones, CULVERT_OK);
    ck_assert_int_eq(calls, 1);
    culvert_sim_release(NULL);
    ck_assert(outcomes_wait(&all, big.ev, 60));
    outcomes_all(&all, CULVERT_OK);
    culvert_buffer_unref(buffer);
    member_close(&big);
    member_close(&small);
    outcomes_end(&all);
    outcomes_end(&ones);
    gpu_fixture_nothing_left();
}
END_TEST

/* A loop that was freed with the device full of its work, which never ends. */
START_TEST(what_a_loop_left_behind_starves_no_other)
{
    enum { EACH = 300 };
    static member big, small;
    outcomes all;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&small, 0);
    member_open(&big, 0.02);
    culvert_buffer *buffer = culvert_buffer_new(big.gpu, 4096, &err);
    culvert_buffer *own = culvert_buffer_new(small.gpu, 4096, &err);
    ck_assert_msg(own != NULL, "%s", err.message);
    outcomes_begin(&all, 3 * EACH);
    for (unsigned i = 0; i < 3; i++) {
        culvert_sim_hold(culvert_stream_native(big.streams[i]));
        for (int k = 0; k < EACH; k++)
            outcomes_add(&all, culvert_fill(big.streams[i], buffer, i * 64, 64, 1, 4));
    }
    culvert_future *one = culvert_fill(small.streams[0], own, 0, 64, 2, 4);
    trial_turn(small.ev, 0.01);
    ck_assert_int_eq(culvert_status(one), CULVERT_PENDING);
    culvert_buffer_unref(buffer);
    member_close(&big);
    outcomes_all(&all, CULVERT_ESHUTDOWN);
    gpu_fixture_ok(one);
    gpu_fixture_ok(culvert_fill(small.streams[1], own, 64, 64, 3, 4));
    culvert_buffer_unref(own);
    member_close(&small); /* without waiting for that work */
    culvert_sim_release(NULL);
    for (int i = 0; i < 2000 && culvert_sim_live("operation") > 0; i++)
        test_sleep(0.005);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
    outcomes_end(&all);
}
END_TEST

/* To free memory waits for all kernels, and stops everybody's launches: not while others work. */
START_TEST(a_loop_that_goes_does_not_stop_the_others)
{
    static member worker, guest;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&worker, 0);
    culvert_buffer *buffer = culvert_buffer_new(worker.gpu, 4096, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    culvert_sim_hold(culvert_stream_native(worker.streams[0]));
    culvert_future *held = culvert_fill(worker.streams[0], buffer, 0, 64, 1, 4);
    uint64_t allocated = 0;
    for (int i = 0; i < 5; i++) {
        guest = (member){.number = 1};
        member_open(&guest, 0);
        culvert_buffer *own = culvert_buffer_new(guest.gpu, 100000, &err);
        ck_assert_msg(own != NULL, "%s", err.message);
        gpu_fixture_ok(culvert_fill(guest.streams[0], own, 0, 100000, 2, 4));
        if (i == 0)
            allocated = culvert_sim_calls("cuMemAlloc") + culvert_sim_calls("cuMemHostAlloc");
        culvert_buffer_unref(own);
        member_close(&guest); /* it would wait for what is held */
        ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), 0);
        ck_assert_uint_eq(culvert_sim_calls("cuMemFreeHost"), 0);
    }
    /* And what it had is taken again, so that nothing grows. */
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc") + culvert_sim_calls("cuMemHostAlloc"),
                      allocated);
    culvert_sim_release(NULL);
    gpu_fixture_ok(held);
    culvert_buffer_unref(buffer);
    member_close(&worker);
    gpu_fixture_nothing_left();
}
END_TEST

/* What is left for the next one fits its options, or is not taken. */
START_TEST(what_a_loop_leaves_obeys_the_next_ones_limits)
{
    enum { MIB = 1 << 20 };
    static member worker, guest;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_options small = CULVERT_GPU_OPTIONS_INIT, large = CULVERT_GPU_OPTIONS_INIT;
    reset();
    member_open(&worker, 0);
    culvert_sim_hold(culvert_stream_native(worker.streams[0]));
    culvert_future *held = culvert_stream_done(worker.streams[0]);
    member_open(&guest, 0);
    culvert_buffer_unref(culvert_buffer_new(guest.gpu, 100, &err)); /* a block of 64 MiB */
    member_close(&guest);

    small.device_limit = 4 * MIB;
    culvert_gpu *gpu = culvert_gpu_open(worker.loop, 0, &small, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    culvert_buffer *buffer = culvert_buffer_new(gpu, 4 * MIB, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    ck_assert_ptr_null(culvert_buffer_new(gpu, 1, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    culvert_buffer_unref(buffer);
    culvert_gpu_close(gpu);

    large.device_limit = 200 * MIB;
    large.device_reserve = 100 * MIB;
    large.pinned_reserve = 12 * MIB;
    uint64_t pinned = culvert_sim_live("pinned bytes");
    gpu = culvert_gpu_open(worker.loop, 0, &large, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), pinned + 4 * MIB);
    uint64_t calls = culvert_sim_calls("cuMemAlloc");
    buffer = culvert_buffer_new(gpu, 100 * MIB, &err); /* the reserve is one piece */
    ck_assert_msg(buffer != NULL, "%s", err.message);
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), calls);
    ck_assert_ptr_null(culvert_buffer_new(gpu, 101 * MIB, &err));
    culvert_buffer_unref(buffer);
    culvert_gpu_close(gpu);
    culvert_sim_release(NULL);
    gpu_fixture_ok(held);
    member_close(&worker);
    gpu_fixture_nothing_left();
}
END_TEST

/* Work of many operations each, on three loops of which each would fill the device: all get their share. */
static atomic_uint shares[3];
static atomic_bool share_stop;

static void share_settled(culvert_future *done, void *arg)
{
    member *m = arg;
    must_be_ok(done);
    m->settled++;
    if (!atomic_load(&share_stop))
        atomic_fetch_add(&shares[m->number], 1);
}

static void *share(void *arg)
{
    member *m = arg;
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    member_open(m, 0);
    member_load(m);
    while (!atomic_load(&share_stop)) {
        while (m->submitted - m->settled < 60) {
            culvert_seq *seq = culvert_seq_begin(m->streams[m->submitted % 3]);
            for (int i = 0; i < 100; i++)
                culvert_seq_launch(seq, m->busy, &grid, CULVERT_ARGS(CULVERT_U64(10000)));
            m->submitted++;
            ck_assert_int_eq(culvert_on_settled(culvert_seq_submit(seq), share_settled, m, NULL),
                             CULVERT_OK);
        }
        ev_run(m->ev, EVRUN_ONCE);
    }
    ev_run(m->ev, 0);
    ck_assert_uint_eq(m->settled, m->submitted);
    member_close(m);
    return NULL;
}

START_TEST(loops_that_all_want_more_than_there_is_share_it)
{
    static member members[3];
    reset();
    for (unsigned i = 0; i < 3; i++) {
        members[i] = (member){.number = i};
        pthread_create(&members[i].thread, NULL, share, &members[i]);
    }
    double end = test_now() + 60;
    for (;;) { /* until each has had something more than a few times */
        test_sleep(0.05);
        unsigned least = atomic_load(&shares[0]);
        for (int i = 1; i < 3; i++)
            if (atomic_load(&shares[i]) < least)
                least = atomic_load(&shares[i]);
        if (least >= 60)
            break;
        ck_assert_msg(test_now() < end, "%u, %u and %u", atomic_load(&shares[0]),
                      atomic_load(&shares[1]), atomic_load(&shares[2]));
    }
    atomic_store(&share_stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(members[i].thread, NULL);
    printf("%u, %u and %u sequences\n", atomic_load(&shares[0]), atomic_load(&shares[1]),
           atomic_load(&shares[2]));
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- one goes while the others work ---- */

static atomic_bool come_and_go_stop;

static void *come_and_go(void *arg)
{
    member *m = arg;
    unsigned rounds = 0;
    while (!atomic_load(&come_and_go_stop)) {
        culvert_error err = CULVERT_ERROR_INIT;
        m->submitted = m->settled = 0;
        member_open(m, 0);
        m->module = NULL;
        culvert_buffer *buffer = culvert_buffer_new(m->gpu, 4096, &err);
        ck_assert_msg(buffer != NULL, "%s", err.message);
        for (size_t i = 0; i < 1 + next_random(m) % 60; i++)
            culvert_detach(culvert_fill(m->streams[i % 3], buffer, i % 3 * 64, 64, 1, 4));
        for (unsigned i = 0; i < next_random(m) % 8; i++)
            ev_run(m->ev, EVRUN_NOWAIT); /* armed, at times */
        culvert_buffer_unref(buffer);
        member_close(m);
        rounds++;
    }
    m->settled = rounds;
    return NULL;
}

static void *steady(void *arg)
{
    member *m = arg;
    member_open(m, 0);
    member_load(m);
    member_work(m, 2);
    member_close(m);
    return NULL;
}

START_TEST(case_004_loops_go_while_others_work)
{
    static member members[4];
    reset();
    /* While one is there the context stays. */
    for (unsigned i = 0; i < 4; i++) {
        members[i] = (member){.number = i, .random = 1234 + i * 99};
        pthread_create(&members[i].thread, NULL, i < 2 ? steady : come_and_go, &members[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(members[i].thread, NULL);
    atomic_store(&come_and_go_stop, true);
    for (int i = 2; i < 4; i++)
        pthread_join(members[i].thread, NULL);
    printf("%u and %u rounds\n", members[2].settled, members[3].settled);
    ck_assert_uint_gt(members[2].settled, 3);
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- torn down under fire ---- */

static atomic_bool flicker_stop;

/* Holds everything and lets it go, over and over: host functions come at any moment. */
static void *flicker(void *arg)
{
    (void)arg;
    while (!atomic_load(&flicker_stop)) {
        culvert_sim_hold(NULL);
        test_sleep(0.0005);
        culvert_sim_release(NULL);
        test_sleep(0.0002);
    }
    return NULL;
}

static void *torn_down(void *arg)
{
    member *m = arg;
    for (unsigned round = 0; round < 40; round++) {
        culvert_error err = CULVERT_ERROR_INIT;
        outcomes all;
        member_open(m, 0.0003); /* it does not wait for long */
        m->module = NULL;
        outcomes_begin(&all, 64);
        culvert_buffer *buffer = culvert_buffer_new(m->gpu, 4096, &err);
        ck_assert_msg(buffer != NULL, "%s", err.message);
        for (size_t i = 0; i < 1 + next_random(m) % 30; i++)
            outcomes_add(&all, culvert_fill(m->streams[i % 3], buffer, i % 3 * 64, 64, 1, 4));
        for (unsigned i = 0; i < 1 + next_random(m) % 5; i++)
            trial_turn(m->ev, 0.0003);
        culvert_buffer_unref(buffer);
        member_close(m);
        for (size_t i = 0; i < all.n; i++) {
            ck_assert_int_eq(all.list[i].calls, 1);
            ck_assert(all.list[i].status == CULVERT_OK || all.list[i].status == CULVERT_ESHUTDOWN);
        }
        outcomes_end(&all);
    }
    return NULL;
}

START_TEST(case_004_torn_down_while_host_functions_come)
{
    static member members[3];
    pthread_t fire;
    reset();
    culvert_gpu *keeper;
    culvert_error err = CULVERT_ERROR_INIT;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    keeper = culvert_gpu_open(loop, 0, NULL, &err); /* the context stays */
    ck_assert_msg(keeper != NULL, "%s", err.message);
    pthread_create(&fire, NULL, flicker, NULL);
    for (unsigned i = 0; i < 3; i++) {
        members[i] = (member){.number = i, .random = 4321 + i * 77};
        pthread_create(&members[i].thread, NULL, torn_down, &members[i]);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(members[i].thread, NULL);
    atomic_store(&flicker_stop, true);
    pthread_join(fire, NULL);
    culvert_sim_release(NULL);
    for (int i = 0; i < 2000 && culvert_sim_live("operation") > 0; i++)
        test_sleep(0.005);
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
    culvert_gpu_close(keeper);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

/* ---- buffers on other threads ---- */

typedef struct parcel {
    culvert_buffer *buffers[200];
} parcel;

static void *unref_all(void *arg)
{
    parcel *p = arg;
    for (size_t i = 0; i < 200; i++) {
        (void)culvert_buffer_size(p->buffers[i]);
        culvert_buffer_unref(culvert_buffer_ref(p->buffers[i]));
        culvert_buffer_unref(p->buffers[i]);
    }
    return NULL;
}

START_TEST(buffers_are_released_on_any_thread)
{
    static member m;
    static parcel first, last;
    pthread_t thread;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&m, 0);
    for (int i = 0; i < 200; i++) {
        first.buffers[i] = culvert_buffer_new(m.gpu, 1000, &err);
        last.buffers[i] = i % 2 == 0 ? culvert_buffer_new(m.gpu, 1000, &err)
                                     : culvert_host_buffer_new(m.gpu, 1000, &err);
        ck_assert_msg(last.buffers[i] != NULL, "%s", err.message);
        culvert_detach(culvert_fill(m.streams[i % 3], first.buffers[i], 0, 1000, 1, 1));
    }
    pthread_create(&thread, NULL, unref_all, &first); /* the device works on them */
    for (int i = 0; i < 300; i++) {
        culvert_buffer *b = culvert_buffer_new(m.gpu, 500, &err);
        ck_assert_msg(b != NULL, "%s", err.message);
        culvert_detach(culvert_fill(m.streams[i % 3], b, 0, 500, 2, 1));
        culvert_buffer_unref(b);
        ev_run(m.ev, EVRUN_NOWAIT);
    }
    pthread_join(thread, NULL);
    ev_run(m.ev, 0);
    pthread_create(&thread, NULL, unref_all, &last);
    member_close(&m); /* at the same time */
    pthread_join(thread, NULL);
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- from one loop to the other ---- */

typedef struct handover {
    culvert_promise *promise; /* of the second loop */
    culvert_buffer *buffer;
} handover;

static void hand_over(culvert_future *done, void *arg)
{
    handover *h = arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    ck_assert_int_eq(culvert_post_resolve(h->promise, NULL, NULL), CULVERT_OK);
}

static void *first_writes(void *arg)
{
    handover *h = arg;
    member m = {.number = 1};
    member_open(&m, 0);
    ck_assert_int_eq(culvert_on_settled(culvert_fill(m.streams[0], h->buffer, 0, 4096, 0xabcd, 4),
                                        hand_over, h, NULL),
                     CULVERT_OK);
    ev_run(m.ev, 0);
    member_close(&m);
    return NULL;
}

START_TEST(what_one_loop_wrote_the_other_reads)
{
    static member m;
    static unsigned words[1024];
    pthread_t thread;
    handover h;
    culvert_error err = CULVERT_ERROR_INIT;
    reset();
    member_open(&m, 0);
    h.buffer = culvert_buffer_new(m.gpu, sizeof words, &err);
    culvert_future *written;
    h.promise = culvert_promise_new(m.loop, &written);
    culvert_seq *seq = culvert_seq_begin(m.streams[0]);
    culvert_seq_wait(seq, written);
    culvert_seq_download(seq, words, h.buffer, 0, sizeof words);
    culvert_future *read = culvert_seq_submit(seq);
    pthread_create(&thread, NULL, first_writes, &h);
    gpu_fixture_ok(read);
    pthread_join(thread, NULL);
    for (int i = 0; i < 1024; i++)
        ck_assert_uint_eq(words[i], 0xabcd);
    culvert_buffer_unref(h.buffer);
    member_close(&m);
    gpu_fixture_nothing_left();
}
END_TEST

int main(void)
{
    trials *t = trials_new("loops");
    TRIAL(t, four_loops_at_once);
    TRIAL(t, a_loop_that_fills_the_device_starves_no_other);
    TRIAL(t, loops_that_all_want_more_than_there_is_share_it);
    TRIAL(t, case_004_loops_go_while_others_work);
    TRIAL(t, buffers_are_released_on_any_thread);
    TRIAL(t, what_one_loop_wrote_the_other_reads);
    if (gpu_fixture_simulated()) {
        TRIAL(t, the_first_in_the_line_has_its_turn);
        TRIAL(t, the_first_in_the_line_needs_much);
        TRIAL(t, what_a_loop_left_behind_starves_no_other);
        TRIAL(t, a_loop_that_goes_does_not_stop_the_others);
        TRIAL(t, what_a_loop_leaves_obeys_the_next_ones_limits);
        TRIAL(t, case_004_torn_down_while_host_functions_come);
    }
    return trials_run(t);
}
