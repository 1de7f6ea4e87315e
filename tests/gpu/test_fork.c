/* SPDX-License-Identifier: BSD-2-Clause */
/* Children after fork(): every call answers CULVERT_EFORKED or does nothing, and the parent is not disturbed. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "lib/child.h"
#include "lib/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static gpu_fixture f;

/* In a child a failed check says so and ends it. */
#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            _exit(1);                                          \
        }                                                      \
    } while (0)

static void child_says(int (*fn)(void *arg), void *arg)
{
    test_child child = test_child_run(fn, arg, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "status %d, signal %d, %s: %s", child.status,
                  child.signal, child.timed_out ? "timed out" : "in time", child.output);
}

/* What a child inherits. */
typedef struct heirloom {
    culvert_buffer *buffer, *pinned;
    culvert_kernel *kernel;
    culvert_future *pending, *settled, *queued;
    culvert_seq *half_built;
    culvert_promise *promise;
    int callbacks, frees;
    int status;
} heirloom;

static heirloom h;
static int arg_frees;

static void free_arg(void *arg)
{
    ++*(int *)arg;
}

static void settled(culvert_future *done, void *arg)
{
    heirloom *it = arg;
    it->callbacks++;
    it->status = culvert_status(done);
}

static void counted(void *arg)
{
    ((heirloom *)arg)->frees++;
}

static int never(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    abort();
}

static void begin(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    memset(&h, 0, sizeof h);
    h.buffer = gpu_fixture_buffer(&f, 4096);
    h.pinned = gpu_fixture_host_buffer(&f, 4096);
    h.kernel = gpu_fixture_kernel(&f, "empty");
    h.settled = culvert_fill(f.stream, h.buffer, 0, 64, 1, 4);
    gpu_fixture_ok(culvert_ref(h.settled));
    gpu_fixture_hold(&f, f.stream);
    h.pending = culvert_fill(f.stream, h.buffer, 0, 64, 1, 4);
    culvert_future *gate;
    h.promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, gate);
    h.queued = culvert_seq_submit(seq);
    h.half_built = culvert_seq_begin(f.stream);
    culvert_seq_fill(h.half_built, h.buffer, 64, 64, 2, 4);
}

/* What is under way may end. */
static void let_go(void)
{
    gpu_fixture_release(&f);
    if (h.promise != NULL)
        culvert_resolve(h.promise, NULL, NULL);
    h.promise = NULL;
}

static void end(void)
{
    let_go();
    gpu_fixture_ok(h.pending);
    gpu_fixture_ok(h.queued);
    gpu_fixture_ok(culvert_seq_submit(h.half_built));
    unsigned words[2] = {0, 0};
    gpu_fixture_ok(culvert_download(f.stream, words, h.buffer, 60, sizeof words));
    ck_assert_uint_eq(words[0], 1);
    ck_assert_uint_eq(words[1], 2);
    culvert_unref(h.settled);
    culvert_buffer_unref(h.buffer);
    culvert_buffer_unref(h.pinned);
    gpu_fixture_close(&f);
}

/* ---- each call ---- */

static void rejected(culvert_future *future)
{
    CHECK(future != NULL);
    CHECK(culvert_status(future) == CULVERT_EFORKED);
    CHECK(culvert_get_error(future) != NULL);
    CHECK(culvert_get_error(future)->code == CULVERT_EFORKED);
    culvert_unref(future);
}

static void build_all(culvert_seq *seq)
{
    static char memory[100000];
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 60000};
    culvert_seq_wait(seq, culvert_ref(h.pending));
    culvert_seq_upload(seq, h.buffer, 0, memory, 4096);
    culvert_seq_download(seq, memory, h.buffer, 0, 4096);
    culvert_seq_copy(seq, h.buffer, 0, h.pinned, 0, 64);
    culvert_seq_fill(seq, h.buffer, 0, 64, 0, 4);
    culvert_seq_launch(seq, h.kernel, &grid, NULL, 0);
    CHECK(culvert_seq_scratch(seq, 100 << 20) == NULL);
    culvert_seq_use(seq, h.buffer);
    culvert_seq_timed(seq);
    arg_frees = 0;
    culvert_seq_call(seq, never, &arg_frees, free_arg);
    CHECK(arg_frees == 1);
    culvert_seq_keep(seq, &arg_frees, free_arg);
    CHECK(arg_frees == 2);
}

static int all_calls(void *arg)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_description d = {.struct_size = sizeof d};
    char text[64];
    (void)arg;
    CHECK(culvert_gpu_count(f.loop, &err) == CULVERT_EFORKED);
    CHECK(err.code == CULVERT_EFORKED);
    CHECK(culvert_gpu_open(f.loop, 0, NULL, &err) == NULL && err.code == CULVERT_EFORKED);
    CHECK(culvert_gpu_info(f.gpu, &d) == CULVERT_EFORKED);
    CHECK(culvert_gpu_state(f.gpu) == CULVERT_EFORKED);
    CHECK(culvert_gpu_loop(f.gpu) == f.loop);
    arg_frees = 0;
    culvert_gpu_on_lost(f.gpu, NULL, &arg_frees, free_arg);
    CHECK(arg_frees == 1);
    err.code = 0;
    CHECK(culvert_stream_new(f.gpu, NULL, &err) == NULL && err.code == CULVERT_EFORKED);
    err.code = 0;
    CHECK(culvert_stream_pick(f.gpu, 0, &err) == NULL && err.code == CULVERT_EFORKED);
    CHECK(culvert_stream_native(f.stream) == NULL);
    CHECK(culvert_stream_gpu(f.stream) == f.gpu);
    (void)culvert_stream_in_flight(f.stream);
    (void)culvert_stream_queued(f.stream);
    rejected(culvert_stream_done(f.stream));
    err.code = 0;
    CHECK(culvert_buffer_new(f.gpu, 16, &err) == NULL && err.code == CULVERT_EFORKED);
    err.code = 0;
    CHECK(culvert_host_buffer_new(f.gpu, 16, &err) == NULL && err.code == CULVERT_EFORKED);
    CHECK(culvert_buffer_size(h.buffer) == 4096);
    CHECK(culvert_buffer_data(h.pinned) != NULL);
    CHECK(culvert_buffer_address(h.buffer) != 0);
    rejected(culvert_module_load(f.gpu, &culvert_image_fixture));
    err.code = 0;
    CHECK(culvert_module_kernel(f.module, "empty", &err) == NULL && err.code == CULVERT_EFORKED);
    rejected(culvert_upload(f.stream, h.buffer, 0, text, sizeof text));
    rejected(culvert_download(f.stream, text, h.buffer, 0, sizeof text));
    rejected(culvert_copy(f.stream, h.buffer, 0, h.pinned, 0, 64));
    rejected(culvert_fill(f.stream, h.buffer, 0, 64, 0, 4));
    culvert_seq *seq = culvert_seq_begin(f.stream);
    CHECK(seq != NULL);
    build_all(seq);
    rejected(culvert_seq_submit(seq));
    culvert_seq_drop(culvert_seq_begin(f.stream));
    build_all(h.half_built);
    rejected(culvert_seq_submit(h.half_built));
    culvert_seq_drop(h.half_built);
    CHECK(culvert_gpu_seconds(h.settled) != culvert_gpu_seconds(h.settled)); /* NaN */
    CHECK(culvert_status(h.settled) == CULVERT_OK);
    CHECK(culvert_status(h.pending) == CULVERT_EFORKED);
    CHECK(culvert_await(h.pending, 1) == CULVERT_EFORKED);
    culvert_cancel(h.pending);
    culvert_cancel(h.queued);
    CHECK(culvert_on_settled(culvert_ref(h.pending), settled, &h, counted) == CULVERT_EFORKED);
    culvert_error why = CULVERT_ERROR_INIT;
    CHECK(culvert_stream_adopt(f.gpu, NULL, &why) == NULL && why.code == CULVERT_EFORKED);
    rejected(culvert_event_done(f.gpu, (struct CUevent_st *)(void *)&why));
    CHECK(culvert_loop_arm(f.loop) == 0.0);

    /* Letting go does nothing. */
    culvert_unref(h.pending);
    culvert_unref(h.queued);
    culvert_unref(h.settled);
    culvert_buffer_unref(culvert_buffer_ref(h.buffer));
    culvert_buffer_unref(h.buffer);
    culvert_buffer_unref(h.pinned);
    culvert_module_unref(f.module);
    culvert_stream_unref(culvert_stream_ref(f.stream));
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    return 0;
}

static int with_driver_calls(void *arg)
{
    uint64_t calls = gpu_fixture_simulated() ? culvert_sim_calls(NULL) : 0;
    int status = all_calls(arg);
    if (gpu_fixture_simulated())
        CHECK(culvert_sim_calls(NULL) == calls); /* the driver was not touched */
    return status;
}

START_TEST(case_008_each_call_answers_that_this_is_a_child)
{
    begin();
    child_says(with_driver_calls, NULL);
    end();
}
END_TEST

/* ---- how a child leaves what it inherited ---- */

static int free_the_loop(void *arg)
{
    uint64_t calls = gpu_fixture_simulated() ? culvert_sim_calls(NULL) : 0;
    double start = test_now();
    (void)arg;
    culvert_loop_free(f.loop);
    CHECK(test_now() - start < 30); /* it waits for nothing */
    CHECK(h.callbacks == 1);
    CHECK(h.status == CULVERT_EFORKED);
    CHECK(h.frees == 1);
    CHECK(culvert_status(h.queued) == CULVERT_EFORKED);
    culvert_unref(h.pending);
    culvert_unref(h.queued);
    culvert_buffer_unref(h.buffer);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    if (gpu_fixture_simulated())
        CHECK(culvert_sim_calls(NULL) == calls);
    return 0;
}

START_TEST(case_009_a_child_frees_the_binding)
{
    begin();
    ck_assert_int_eq(culvert_on_settled(culvert_ref(h.pending), settled, &h, counted), CULVERT_OK);
    child_says(free_the_loop, NULL);
    ck_assert_int_eq(h.callbacks, 0);
    end();
    ck_assert_int_eq(h.callbacks, 1);
    ck_assert_int_eq(h.status, CULVERT_OK);
    ck_assert_int_eq(h.frees, 1);
}
END_TEST

static int run_the_loop(void *arg)
{
    (void)arg;
    ev_loop_fork(f.ev);
    ev_run(f.ev, 0); /* ends by itself */
    CHECK(h.callbacks == 1);
    CHECK(h.status == CULVERT_EFORKED);
    CHECK(h.frees == 1);
    return all_calls(NULL);
}

START_TEST(case_009_a_child_runs_the_loop_with_posts_undrained)
{
    begin();
    ck_assert_int_eq(culvert_on_settled(culvert_ref(h.pending), settled, &h, counted), CULVERT_OK);
    gpu_fixture_run(&f, 0.02); /* armed */
    gpu_fixture_release(&f);
    test_sleep(0.05); /* the host function has posted; the loop has not looked */
    child_says(run_the_loop, NULL);
    ck_assert_int_eq(h.callbacks, 0);
    end();
    ck_assert_int_eq(h.callbacks, 1);
    ck_assert_int_eq(h.status, CULVERT_OK);
}
END_TEST

/* ---- the parent ---- */

static int do_a_little(void *arg)
{
    culvert_error err = CULVERT_ERROR_INIT;
    (void)arg;
    /* Not one call: on a GPU the child's would go into the channels of its parent. */
    uint64_t calls = gpu_fixture_simulated() ? culvert_sim_calls(NULL) : 0;
    CHECK(culvert_buffer_new(f.gpu, 16, &err) == NULL && err.code == CULVERT_EFORKED);
    rejected(culvert_fill(f.stream, h.buffer, 0, 64, 0, 4));
    culvert_buffer_unref(h.buffer);
    culvert_loop_free(f.loop);
    CHECK(!gpu_fixture_simulated() || culvert_sim_calls(NULL) == calls);
    return 0;
}

START_TEST(case_008_the_parent_gets_all_its_completions)
{
    enum { N = 300 };
    static unsigned words[N];
    outcomes all;
    begin();
    let_go();
    outcomes_begin(&all, N);
    for (unsigned i = 0; i < N; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_fill(seq, h.buffer, 1024, 4, i + 1, 4);
        culvert_seq_download(seq, &words[i], h.buffer, 1024, 4);
        outcomes_add(&all, culvert_seq_submit(seq));
        if (i % 30 == 7)
            child_says(do_a_little, NULL);
        if (i % 30 == 20)
            trial_turn(f.ev, 0.001);
    }
    ck_assert(outcomes_wait(&all, f.ev, 60));
    outcomes_all(&all, CULVERT_OK);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(words[i], i + 1);
    outcomes_end(&all);
    end();
}
END_TEST

/* ---- forked on another thread, in the middle of anything ---- */

static atomic_bool stop;
static atomic_int forks;

static void *fork_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        pid_t child = fork();
        if (child == 0) {
            culvert_error err = CULVERT_ERROR_INIT;
            alarm(60); /* a lock that nobody gives back */
            if (culvert_buffer_new(f.gpu, 16, &err) != NULL || err.code != CULVERT_EFORKED)
                _exit(1);
            culvert_buffer_unref(h.buffer);
            culvert_seq *seq = culvert_seq_begin(f.stream);
            culvert_seq_upload(seq, h.buffer, 0, &err, sizeof err);
            culvert_future *future = culvert_seq_submit(seq);
            if (culvert_status(future) != CULVERT_EFORKED)
                _exit(2);
            if (culvert_gpu_open(f.loop, 0, NULL, &err) != NULL)
                _exit(3);
            culvert_stream_unref(f.stream);
            culvert_gpu_close(f.gpu);
            _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        ck_assert_msg(status == 0, "child: %d", status);
        atomic_fetch_add(&forks, 1);
    }
    return NULL;
}

START_TEST(a_child_of_another_thread_meets_no_lock)
{
    pthread_t thread;
    culvert_error err = CULVERT_ERROR_INIT;
    static char memory[300000];
    begin();
    let_go();
    pthread_create(&thread, NULL, fork_on, NULL);
    double end_time = test_now() + 1.5;
    while (test_now() < end_time || atomic_load(&forks) < 3) {
        culvert_buffer *b = culvert_buffer_new(f.gpu, 300000, &err);
        ck_assert_msg(b != NULL, "%s", err.message);
        culvert_detach(culvert_upload(f.stream, b, 0, memory, sizeof memory));
        culvert_buffer_unref(b);
        gpu_fixture_ok(culvert_stream_done(f.stream));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    end();
}
END_TEST

/* ---- forked inside a callback ---- */

static culvert_future *fork_here(culvert_future *done, void *arg)
{
    (void)done;
    child_says(all_calls, NULL);
    ++*(int *)arg;
    return NULL;
}

START_TEST(forked_inside_a_callback)
{
    int forked = 0;
    begin();
    gpu_fixture_ok(culvert_then(culvert_resolved(f.loop, NULL, NULL), fork_here, &forked, NULL));
    ck_assert_int_eq(forked, 1);
    end();
}
END_TEST

static int fork_in_it(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    child_says(all_calls, NULL);
    ++*(int *)arg;
    return 0;
}

START_TEST(forked_inside_a_seq_call)
{
    int forked = 0;
    begin();
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_call(seq, fork_in_it, &forked, NULL);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_int_eq(forked, 1);
    culvert_stream_unref(other);
    end();
}
END_TEST

/* ---- a child of a process that had not begun ---- */

static int starts_afresh(void *arg)
{
    unsigned word = 0;
    (void)arg;
    gpu_fixture_open(&f, NULL, NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    culvert_detach(culvert_fill(f.stream, buffer, 0, 64, 9, 4));
    gpu_fixture_ok(culvert_download(f.stream, &word, buffer, 60, 4));
    CHECK(word == 9);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
    return 0;
}

START_TEST(a_child_of_a_process_that_had_not_begun_starts_afresh)
{
    child_says(starts_afresh, NULL);
    ck_assert_int_eq(starts_afresh(NULL), 0); /* and the parent may begin later */
}
END_TEST

int main(void)
{
    trials *t = trials_new("fork");
    TRIAL(t, case_008_each_call_answers_that_this_is_a_child);
    TRIAL(t, case_009_a_child_frees_the_binding);
    TRIAL(t, case_009_a_child_runs_the_loop_with_posts_undrained);
    TRIAL(t, case_008_the_parent_gets_all_its_completions);
    TRIAL(t, a_child_of_another_thread_meets_no_lock);
    TRIAL(t, forked_inside_a_callback);
    TRIAL(t, forked_inside_a_seq_call);
    TRIAL(t, a_child_of_a_process_that_had_not_begun_starts_afresh);
    return trials_run(t);
}
