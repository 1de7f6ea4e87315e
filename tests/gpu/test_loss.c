/* SPDX-License-Identifier: BSD-2-Clause */
/* What becomes of everything when a device is lost. */
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

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxReset_v2(int device);

enum {
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    DEINITIALIZED = 4,
    DESTROYED = 709,
    UNKNOWN = 999
};

/* A second is promised; a machine that does other things too may need more. */
static const double soon = 10;

/* ---- one loop with a device and many things under way ---- */

typedef struct party {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *streams[4];
    culvert_buffer *buffer, *pinned;
    culvert_promise *promise; /* what held sequences wait for */
    outcomes all;
    int lost; /* calls of on_lost */
    int lost_frees;
    int logged;          /* lines to on_log */
    size_t settled_then; /* when on_lost was called */
    culvert_error lost_error;
    culvert_module *module;
    char memory[4][200000];
    char small[4][64];
} party;

static void on_log(int level, const char *message, void *arg)
{
    party *p = arg;
    ck_assert_int_eq(level, CULVERT_LOG_ERROR);
    ck_assert_ptr_nonnull(strstr(message, "is lost"));
    p->logged++;
}

static void on_lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    party *p = arg;
    ck_assert_ptr_eq(gpu, p->gpu);
    ck_assert_int_eq(culvert_gpu_state(gpu), CULVERT_GPU_LOST);
    p->lost++;
    p->lost_error = *err;
    p->settled_then = p->all.settled;
}

static void lost_freed(void *arg)
{
    ((party *)arg)->lost_frees++;
}

static void party_open(party *p, int device)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    memset(p, 0, sizeof *p);
    outcomes_begin(&p->all, 400);
    p->ev = ev_loop_new(EVFLAG_AUTO);
    options.close_seconds = 60; /* a device that is lost is not waited for */
    options.on_log = on_log;
    options.arg = p;
    p->loop = culvert_loop_new(p->ev, &options, &err);
    p->gpu = culvert_gpu_open(p->loop, device, NULL, &err);
    ck_assert_msg(p->gpu != NULL, "%s", err.message);
    for (int i = 0; i < 4; i++) {
        p->streams[i] = culvert_stream_new(p->gpu, NULL, &err);
        ck_assert_msg(p->streams[i] != NULL, "%s", err.message);
    }
    p->buffer = culvert_buffer_new(p->gpu, 1 << 20, &err);
    p->pinned = culvert_host_buffer_new(p->gpu, 4096, &err);
    ck_assert_msg(p->buffer != NULL && p->pinned != NULL, "%s", err.message);
    culvert_gpu_on_lost(p->gpu, on_lost, p, lost_freed);
}

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static void add_pending(party *p, bool copy)
{
    culvert_future *gate;
    outcomes_add(&p->all, copy ? culvert_copy(p->streams[0], p->buffer, 0, p->pinned, 0, 64)
                               : culvert_fill(p->streams[0], p->buffer, 0, 64, 1, 1));
    p->promise = culvert_promise_new(p->loop, &gate);
    for (size_t i = 0; i < 4; i++) {
        culvert_stream *s = p->streams[i];
        for (int k = 0; k < 5; k++)
            outcomes_add(&p->all, culvert_fill(s, p->buffer, i * 200000, 64, 1, 1));
        outcomes_add(&p->all, culvert_upload(s, p->buffer, i * 200000, p->memory[i], 200000));
        outcomes_add(&p->all, culvert_download(s, p->small[i], p->buffer, i * 200000, 64));
        outcomes_add(&p->all, culvert_download(s, p->memory[i], p->buffer, i * 200000, 200000));
        outcomes_add(&p->all, culvert_stream_done(s));
        culvert_seq *seq = culvert_seq_begin(s); /* held in the library, and others behind it */
        culvert_seq_wait(seq, culvert_ref(gate));
        culvert_seq_fill(seq, p->buffer, 0, 4, 2, 4);
        outcomes_add(&p->all, culvert_seq_submit(seq));
        outcomes_add(&p->all, culvert_then(culvert_stream_done(s), pass, NULL, NULL));
    }
    culvert_unref(gate);
}

/* New work is refused at once, by name. */
static void refuses_new_work(party *p, int code)
{
    culvert_error err = CULVERT_ERROR_INIT;
    char text[16] = "";
    culvert_future *tries[] = {
        culvert_fill(p->streams[0], p->buffer, 0, 4, 0, 4),
        culvert_upload(p->streams[1], p->buffer, 0, text, sizeof text),
        culvert_download(p->streams[2], text, p->buffer, 0, sizeof text),
        culvert_stream_done(p->streams[3]),
        culvert_copy(p->streams[0], p->buffer, 0, p->pinned, 0, 64),
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        ck_assert_int_eq(culvert_status(tries[i]), code);
        ck_assert_int_eq(culvert_get_error(tries[i])->native, p->lost_error.native);
        culvert_unref(tries[i]);
    }
    ck_assert_ptr_null(culvert_stream_new(p->gpu, NULL, &err));
    ck_assert_int_eq(err.code, code);
    ck_assert_ptr_null(culvert_stream_pick(p->gpu, CULVERT_PRIORITY_NORMAL, &err));
    ck_assert_int_eq(err.code, code);
    ck_assert_ptr_null(culvert_buffer_new(p->gpu, 1 << 30, &err));
    ck_assert_int_eq(err.code, code);
    ck_assert_ptr_null(culvert_host_buffer_new(p->gpu, 1 << 30, &err));
    ck_assert_int_eq(err.code, code);
    gpu_fixture_says(&err, "lost before this call");
    ck_assert_ptr_null(culvert_gpu_open(p->loop, 0, NULL, &err));
    ck_assert_int_eq(err.code, code);
    culvert_seq *seq = culvert_seq_begin(p->streams[0]);
    (void)culvert_seq_scratch(seq, 1 << 30);
    culvert_future *scratch = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_status(scratch), code);
    ck_assert_int_eq(culvert_get_error(scratch)->code, code);
    culvert_unref(scratch);
    ck_assert_ptr_null(culvert_stream_native(p->streams[0]));
    ck_assert_int_eq(culvert_gpu_state(p->gpu), CULVERT_GPU_LOST);
}

static void party_close(party *p)
{
    culvert_promise_drop(p->promise);
    culvert_module_unref(p->module);
    culvert_buffer_unref(p->buffer);
    culvert_buffer_unref(p->pinned);
    for (int i = 0; i < 4; i++)
        culvert_stream_unref(p->streams[i]);
    culvert_gpu_close(p->gpu);
    culvert_loop_free(p->loop);
    ev_loop_destroy(p->ev);
    outcomes_end(&p->all);
}

/* ---- all of it on two loops ---- */

static pthread_barrier_t meet;

static void *second_loop(void *arg)
{
    party *p = arg;
    party_open(p, 0);
    add_pending(p, true);
    trial_turn(p->ev, 0.02);
    pthread_barrier_wait(&meet); /* everything is under way */
    ck_assert(outcomes_wait(&p->all, p->ev, soon));
    trial_turn(p->ev, 0.02);
    pthread_barrier_wait(&meet); /* everything has settled */
    pthread_barrier_wait(&meet); /* the first one has seen that */
    refuses_new_work(p, p->lost_error.code);
    pthread_barrier_wait(&meet);
    party_close(p);
    return NULL;
}

static void check_party(party *p, int result, int code, const char *oldest)
{
    outcomes_all(&p->all, code);
    for (size_t i = 0; i < p->all.n; i++) {
        const culvert_error *err = &p->all.list[i].error;
        ck_assert_msg(err->native == result, "%zu: %d: %s", i, err->native, err->message);
        gpu_fixture_says(err, oldest);
        gpu_fixture_says(err, "test_loss.c:");
    }
    ck_assert_int_eq(p->lost, 1);
    ck_assert_int_eq(p->lost_frees, 1);
    ck_assert_int_eq(p->logged, code == CULVERT_EDEVICELOST ? 1 : 0); /* not at exit */
    ck_assert_uint_ge(p->settled_then, p->all.n - 4); /* all but the steps behind them */
    ck_assert_int_eq(p->lost_error.native, result);
    ck_assert_int_eq(p->lost_error.code, code);
}

static void lose_on_two_loops(int result, int code)
{
    static party first, second;
    pthread_t thread;
    gpu_fixture_reset();
    pthread_barrier_init(&meet, NULL, 2);
    party_open(&first, 0);
    culvert_sim_hold(NULL);
    add_pending(&first, false);
    pthread_create(&thread, NULL, second_loop, &second);
    trial_turn(first.ev, 0.02);
    pthread_barrier_wait(&meet);
    double start = test_now();
    culvert_sim_poison(0, result);
    ck_assert(outcomes_wait(&first.all, first.ev, soon));
    trial_turn(first.ev, 0.02); /* on_lost runs behind the callbacks */
    pthread_barrier_wait(&meet);
    printf("%d: %.3f s until all had settled\n", result, test_now() - start);
    /* Each names what was oldest on its own loop. */
    check_party(&first, result, code, "sequence 1 (1 operation from fill)");
    check_party(&second, result, code, "sequence 1 (1 operation from copy)");

    uint64_t calls = culvert_sim_calls(NULL);
    pthread_barrier_wait(&meet);
    refuses_new_work(&first, code);
    trial_turn(first.ev, 0.3); /* longer than the watchdog and the monitor take */
    pthread_barrier_wait(&meet);
    ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
    start = test_now();
    party_close(&first);
    pthread_join(thread, NULL);
    ck_assert_msg(test_now() - start < soon, "closing took %.3f s", test_now() - start);
    ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
    pthread_barrier_destroy(&meet);
}

START_TEST(case_036_no_host_function_runs_any_more)
{
    lose_on_two_loops(ILLEGAL_ADDRESS, CULVERT_EDEVICELOST);
}
END_TEST

START_TEST(a_launch_failure_rejects_everything)
{
    lose_on_two_loops(LAUNCH_FAILED, CULVERT_EDEVICELOST);
}
END_TEST

START_TEST(an_unlisted_error_from_a_query_rejects_everything)
{
    lose_on_two_loops(UNKNOWN, CULVERT_EDEVICELOST);
}
END_TEST

START_TEST(a_destroyed_context_rejects_everything)
{
    lose_on_two_loops(DESTROYED, CULVERT_EDEVICELOST);
}
END_TEST

START_TEST(a_driver_that_goes_away_rejects_everything_as_shut_down)
{
    lose_on_two_loops(DEINITIALIZED, CULVERT_ESHUTDOWN);
}
END_TEST

/* The end of everything is announced all the same, and yet nothing of it is a success. */
START_TEST(case_037_the_host_functions_run_all_the_same)
{
    static party p;
    if (!gpu_fixture_arms())
        return;
    gpu_fixture_reset();
    culvert_sim_host_functions(CULVERT_SIM_HOST_ALWAYS);
    party_open(&p, 0);
    culvert_sim_hold(NULL);
    add_pending(&p, false);
    trial_turn(p.ev, 0.05); /* armed */
    uint64_t armed = culvert_sim_calls("cuLaunchHostFunc");
    ck_assert_uint_gt(armed, 0);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    for (size_t i = 0; i < p.all.n; i++)
        ck_assert_int_eq(p.all.list[i].error.native, ILLEGAL_ADDRESS);
    trial_turn(p.ev, 0.02);
    ck_assert_int_eq(p.lost, 1);
    party_close(&p);
}
END_TEST

/* ---- whichever call it comes out of ---- */

typedef struct surprise {
    const char *call;
    culvert_future *(*provoke)(party *, culvert_error *err); /* NULL: err, or nothing at all */
    bool blames;                                             /* there is a call that fails */
} surprise;

static culvert_future *by_fill(party *p, culvert_error *err)
{
    (void)err;
    return culvert_fill(p->streams[1], p->buffer, 0, 4, 0, 1);
}

static culvert_future *by_upload(party *p, culvert_error *err)
{
    (void)err;
    return culvert_upload(p->streams[1], p->buffer, 0, p->small[0], 64);
}

static culvert_future *by_big_upload(party *p, culvert_error *err)
{
    (void)err;
    return culvert_upload(p->streams[1], p->buffer, 0, p->memory[0], 200000);
}

static culvert_future *by_download(party *p, culvert_error *err)
{
    (void)err;
    return culvert_download(p->streams[1], p->small[0], p->buffer, 0, 64);
}

static culvert_future *by_copy(party *p, culvert_error *err)
{
    (void)err;
    return culvert_copy(p->streams[1], p->buffer, 0, p->buffer, 4096, 64);
}

static culvert_kernel *kernel(party *p, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_kernel *k = culvert_module_kernel(p->module, name, &err);
    ck_assert_msg(k != NULL, "%s", err.message);
    return k;
}

static culvert_future *by_launch(party *p, culvert_error *err)
{
    (void)err;
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    return culvert_launch(p->streams[1], kernel(p, "empty"), &grid, NULL, 0);
}

static culvert_future *by_shared_memory(party *p, culvert_error *err)
{
    (void)err;
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 60000};
    return culvert_launch(p->streams[1], kernel(p, "empty"), &grid, NULL, 0);
}

static culvert_future *by_done(party *p, culvert_error *err)
{
    (void)err;
    return culvert_stream_done(p->streams[1]);
}

static culvert_future *by_timed(party *p, culvert_error *err)
{
    (void)err;
    culvert_seq *seq = culvert_seq_begin(p->streams[1]);
    culvert_seq_timed(seq);
    return culvert_seq_submit(seq);
}

static culvert_future *by_device_wait(party *p, culvert_error *err)
{
    (void)err;
    culvert_seq *seq = culvert_seq_begin(p->streams[1]);
    culvert_seq_wait(seq, culvert_fill(p->streams[2], p->buffer, 0, 4, 0, 4));
    return culvert_seq_submit(seq);
}

static culvert_future *by_exposed(party *p, culvert_error *err)
{
    (void)err;
    ck_assert_ptr_nonnull(culvert_stream_native(p->streams[1]));
    return culvert_stream_done(p->streams[1]);
}

static culvert_future *by_waiting(party *p, culvert_error *err)
{
    (void)p;
    (void)err;
    return NULL;
}

static culvert_future *by_buffer(party *p, culvert_error *err)
{
    ck_assert_ptr_null(culvert_buffer_new(p->gpu, 1 << 30, err));
    return NULL;
}

static culvert_future *by_host_buffer(party *p, culvert_error *err)
{
    ck_assert_ptr_null(culvert_host_buffer_new(p->gpu, 64 << 20, err));
    return NULL;
}

static culvert_future *by_scratch(party *p, culvert_error *err)
{
    (void)err;
    culvert_seq *seq = culvert_seq_begin(p->streams[1]);
    ck_assert_ptr_null(culvert_seq_scratch(seq, 1 << 30));
    return culvert_seq_submit(seq);
}

static culvert_future *by_stream(party *p, culvert_error *err)
{
    ck_assert_ptr_null(culvert_stream_new(p->gpu, NULL, err));
    return NULL;
}

static culvert_future *by_pick(party *p, culvert_error *err)
{
    ck_assert_ptr_null(culvert_stream_pick(p->gpu, CULVERT_PRIORITY_HIGH, err));
    return NULL;
}

static culvert_future *by_module(party *p, culvert_error *err)
{
    (void)err;
    return culvert_module_load(p->gpu, &culvert_image_fixture);
}

static culvert_future *by_kernel(party *p, culvert_error *err)
{
    ck_assert_ptr_null(culvert_module_kernel(p->module, "nothing_of_that_name", err));
    return NULL;
}

static culvert_future *by_many(party *p, culvert_error *err)
{
    (void)err;
    for (int i = 0; i < 70; i++) /* more than there are events to begin with */
        outcomes_add(&p->all, culvert_stream_done(p->streams[1 + i % 3]));
    return NULL;
}

static void check_blamed(const culvert_error *err, const char *call)
{
    ck_assert_msg(err->code == CULVERT_EDEVICELOST && err->native == ILLEGAL_ADDRESS, "%s: %s, %d",
                  call, culvert_error_name(err->code), err->native);
    /* It is not its fault, and it says whose it may be. */
    gpu_fixture_says(err, "lost before this call");
    gpu_fixture_says(err, "sequence 1 (");
    gpu_fixture_says(err, call);
    ck_assert_ptr_nonnull(err->op);
    ck_assert_ptr_eq(strstr(err->op, "culvert_"), err->op);
}

static void surprise_with(party *p, int device, const surprise *row)
{
    culvert_error err = CULVERT_ERROR_INIT;
    party_open(p, device);
    culvert_future *loaded = culvert_module_load(p->gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    p->module = culvert_take(loaded);
    culvert_unref(loaded);
    culvert_sim_hold(NULL);
    outcomes_add(&p->all, culvert_fill(p->streams[0], p->buffer, 0, 4, 0, 2));
    if (row->provoke != by_waiting)
        trial_turn(p->ev, 0.01); /* armed, so that nothing but the provocation makes calls */
    uint64_t before = culvert_sim_calls(row->call);
    culvert_sim_fail(row->call, 1, ILLEGAL_ADDRESS);
    culvert_future *future = row->provoke(p, &err);
    if (future != NULL && row->blames) {
        int status = culvert_await(future, soon);
        ck_assert_msg(status == CULVERT_EDEVICELOST, "%s: %s", row->call,
                      culvert_error_name(status));
        if (culvert_get_error(future)->where != NULL) /* it was told by the call itself */
            check_blamed(culvert_get_error(future), row->call);
        culvert_unref(future);
    } else if (row->blames) {
        check_blamed(&err, row->call);
    }
    ck_assert_msg(outcomes_wait(&p->all, p->ev, soon), "%s", row->call);
    outcomes_all(&p->all, CULVERT_EDEVICELOST);
    ck_assert_uint_ge(culvert_sim_calls(row->call), before + 1);
    trial_turn(p->ev, 0.01);
    ck_assert_int_eq(p->lost, 1);
    gpu_fixture_says(&p->lost_error, row->call);
    gpu_fixture_says(&p->lost_error, "sequence 1 (");
    uint64_t calls = culvert_sim_calls(NULL);
    refuses_new_work(p, CULVERT_EDEVICELOST);
    trial_turn(p->ev, 0.15);
    ck_assert_msg(culvert_sim_calls(NULL) == calls, "calls after the loss by %s", row->call);
    party_close(p);
    ck_assert_msg(culvert_sim_calls(NULL) == calls, "calls at close after the loss by %s",
                  row->call);
    culvert_sim_release(NULL);
}

/* Each on a device of its own: a process can lose one once. */
static void surprises(const surprise *rows, size_t n)
{
    static party p;
    gpu_fixture_reset();
    culvert_sim_devices(8);
    for (size_t i = 0; i < n; i++)
        if (rows[i].provoke != by_waiting || gpu_fixture_arms())
            surprise_with(&p, (int)i, &rows[i]);
}

START_TEST(case_053_it_comes_out_of_a_submit)
{
    static const surprise rows[] = {
        {"cuMemsetD8Async", by_fill, true},
        {"cuMemcpyHtoDAsync", by_upload, true},
        {"cuMemcpyHtoDAsync", by_big_upload, true},
        {"cuMemcpyDtoHAsync", by_download, true},
        {"cuMemcpyDtoDAsync", by_copy, true},
        {"cuLaunchKernel", by_launch, true},
        {"cuFuncSetAttribute", by_shared_memory, true},
    };
    surprises(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(case_053_it_comes_out_of_an_event)
{
    static const surprise rows[] = {
        {"cuEventRecord", by_done, true},
        {"cuEventRecord", by_timed, true},
        {"cuStreamWaitEvent", by_device_wait, true},
        {"cuStreamIsCapturing", by_exposed, true},
        {"cuEventCreate", by_many, false},
        {"cuStreamWaitEvent", by_waiting, false},
        {"cuLaunchHostFunc", by_waiting, false},
        {"cuEventQuery", by_waiting, false},
    };
    surprises(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

START_TEST(case_053_it_comes_out_of_an_allocation_or_a_module)
{
    static const surprise rows[] = {
        {"cuMemAlloc", by_buffer, true},
        {"cuMemHostAlloc", by_host_buffer, true},
        {"cuMemAlloc", by_scratch, true},
        {"cuStreamCreateWithPriority", by_stream, true},
        {"cuStreamCreateWithPriority", by_pick, true},
        {"cuModuleLoadDataEx", by_module, true},
        {"cuModuleGetFunction", by_kernel, true},
    };
    surprises(rows, sizeof rows / sizeof rows[0]);
}
END_TEST

/* On a thread of the library's, with nothing else to notice it by. */
START_TEST(case_053_it_comes_out_of_the_end_of_a_module_load)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_sim_fail("cuModuleGetFunction", 1, ILLEGAL_ADDRESS);
    outcomes_add(&p.all, culvert_module_load(p.gpu, &culvert_image_fixture));
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(p.lost, 1);
    gpu_fixture_says(&p.lost_error, "cuModuleGetFunction");
    uint64_t calls = culvert_sim_calls(NULL);
    refuses_new_work(&p, CULVERT_EDEVICELOST);
    party_close(&p);
    ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
}
END_TEST

/* ---- what a query answers ---- */

START_TEST(case_049_an_answer_that_is_neither_yes_nor_not_yet_rejects)
{
    static const struct {
        int result, code;
    } rows[] = {
        {700, CULVERT_EDEVICELOST}, {999, CULVERT_EDEVICELOST},   {4, CULVERT_ESHUTDOWN},
        {214, CULVERT_EDEVICELOST}, {220, CULVERT_EDEVICELOST},   {806, CULVERT_EDEVICELOST},
        {719, CULVERT_EDEVICELOST}, {12345, CULVERT_EDEVICELOST},
    };
    static party p;
    gpu_fixture_reset();
    culvert_sim_devices(8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        party_open(&p, (int)i);
        culvert_sim_hold(NULL);
        culvert_sim_fail("cuEventQuery", 1, rows[i].result);
        uint64_t before = culvert_sim_calls("cuEventQuery");
        outcomes_add(&p.all, culvert_fill(p.streams[0], p.buffer, 0, 4, 0, 4));
        ck_assert_msg(outcomes_wait(&p.all, p.ev, soon), "%d", rows[i].result);
        ck_assert_uint_eq(culvert_sim_calls("cuEventQuery"), before + 1); /* at that very poll */
        outcomes_all(&p.all, rows[i].code);
        ck_assert_int_eq(p.all.list[0].error.native, rows[i].result);
        party_close(&p);
        culvert_sim_release(NULL);
    }
}
END_TEST

/* One that is the query's own trouble: the work goes on, so it is over before its future settles. */
START_TEST(a_query_that_fails_for_itself_rejects_when_the_work_is_over)
{
    static const int results[] = {1, 2, 400, 801, 900};
    static party p;
    gpu_fixture_reset();
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        party_open(&p, 0);
        culvert_sim_hold(NULL);
        culvert_sim_fail("cuEventQuery", 1, results[i]);
        outcomes_add(&p.all, culvert_fill(p.streams[0], p.buffer, 0, 4, 0, 4));
        trial_turn(p.ev, 0.03);
        ck_assert_uint_eq(p.all.settled, 0);
        outcomes_add(&p.all, culvert_stream_done(p.streams[0]));
        trial_turn(p.ev, 0.03);
        ck_assert_uint_eq(p.all.settled, 0);
        culvert_sim_release(NULL);
        ck_assert(outcomes_wait(&p.all, p.ev, soon));
        ck_assert_int_lt(p.all.list[0].status, 0);
        ck_assert_int_eq(p.all.list[0].error.native, results[i]);
        ck_assert_int_eq(p.all.list[1].status, CULVERT_OK);
        ck_assert_int_eq(p.lost, 0);
        ck_assert_int_eq(culvert_gpu_state(p.gpu), CULVERT_GPU_OK);
        party_close(&p);
        gpu_fixture_nothing_left();
    }
}
END_TEST

/* ---- contexts that are taken away ---- */

START_TEST(case_056_the_program_resets_the_primary_context)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_sim_hold(NULL);
    for (int i = 0; i < 10; i++)
        outcomes_add(&p.all, culvert_fill(p.streams[i % 4], p.buffer, (size_t)i * 64, 4, 0, 4));
    trial_turn(p.ev, 0.03);
    ck_assert_int_eq(cuDevicePrimaryCtxReset_v2(0), 0);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(p.lost, 1);
    uint64_t calls = culvert_sim_calls(NULL);
    refuses_new_work(&p, CULVERT_EDEVICELOST);
    trial_turn(p.ev, 0.15);
    party_close(&p);
    ck_assert_uint_eq(culvert_sim_calls(NULL), calls); /* none with a handle that is gone */
    char text[200];
    culvert_sim_last_violation(text, sizeof text);
    ck_assert_msg(culvert_sim_violations() == 0, "%s", text);
}
END_TEST

/* ---- in the middle of things ---- */

static int poison_here(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    return 0;
}

START_TEST(lost_inside_the_function_of_a_seq_call)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_sim_hold(NULL);
    add_pending(&p, false);
    outcome *last;
    culvert_seq *seq = culvert_seq_begin(p.streams[0]);
    culvert_seq_call(seq, poison_here, NULL, NULL);
    culvert_seq_fill(seq, p.buffer, 0, 4, 0, 4);
    last = &p.all.list[outcomes_add(&p.all, culvert_seq_submit(seq))];
    /* It waits behind the held ones: let these go on. */
    culvert_resolve(p.promise, NULL, NULL);
    p.promise = NULL;
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    ck_assert_int_eq(last->error.native, ILLEGAL_ADDRESS);
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(p.lost, 1);
    party_close(&p);
}
END_TEST

/* 20 requests, each an upload, a kernel, a download: none that was not over is a success. */
START_TEST(case_046_nothing_is_a_success_after_the_kernel_failed)
{
    enum { N = 20 };
    static party p;
    static unsigned words[N];
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_future *loaded = culvert_module_load(p.gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    p.module = culvert_take(loaded);
    culvert_unref(loaded);
    culvert_sim_hold(NULL);
    for (unsigned i = 0; i < N; i++) {
        culvert_grid grid = {.blocks = {1}, .threads = {1}};
        culvert_seq *seq = culvert_seq_begin(p.streams[i % 4]);
        words[i] = 0xabcd0000u + i;
        culvert_seq_upload(seq, p.buffer, i * 256, &words[i], 4);
        culvert_seq_launch(seq, kernel(&p, "add_word"), &grid,
                           CULVERT_ARGS(CULVERT_BUFFER_AT(p.buffer, i * 256), CULVERT_U32(0),
                                        CULVERT_U32(1)));
        culvert_seq_download(seq, &words[i], p.buffer, i * 256, 4);
        outcomes_add(&p.all, culvert_seq_submit(seq));
    }
    trial_turn(p.ev, 0.01);
    culvert_sim_poison(0, LAUNCH_FAILED);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(words[i], 0xabcd0000u + i); /* and nothing was written */
    party_close(&p);
}
END_TEST

static void count_free(void *p)
{
    ++*(int *)p;
}

/* What is in flight stays with the device; what never went there is let go. */
START_TEST(what_the_device_may_still_use_is_kept_from_everybody)
{
    static party p;
    int in_flight = 0, queued = 0;
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *used = culvert_buffer_new(p.gpu, 4096, &err);
    unsigned long long address = culvert_buffer_address(used);
    culvert_future *gate;
    p.promise = culvert_promise_new(p.loop, &gate);
    culvert_sim_hold(NULL);
    culvert_seq *seq = culvert_seq_begin(p.streams[0]);
    culvert_seq_fill(seq, used, 0, 4, 0, 4);
    culvert_seq_keep(seq, &in_flight, count_free);
    outcomes_add(&p.all, culvert_seq_submit(seq));
    seq = culvert_seq_begin(p.streams[0]);
    culvert_seq_wait(seq, gate);
    culvert_seq_keep(seq, &queued, count_free);
    outcomes_add(&p.all, culvert_seq_submit(seq));
    culvert_buffer_unref(used);
    trial_turn(p.ev, 0.01);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(in_flight, 0);
    ck_assert_int_eq(queued, 1);
    ck_assert_uint_ne(address, 0);
    uint64_t bytes = culvert_sim_live("device bytes");
    party_close(&p);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), bytes); /* not given back either */
    ck_assert_int_eq(in_flight, 0);
    ck_assert_int_eq(queued, 1);
}
END_TEST

/* Workers of the library are in the middle of copying: once the future has settled, nothing is read from
   src and nothing written to dst any more. */
START_TEST(lost_while_ordinary_memory_is_copied)
{
    enum { BYTES = 24 << 20 };
    static party p;
    gpu_fixture_reset();
    culvert_sim_devices(8);
    for (int d = 0; d < 8; d++) {
        party_open(&p, d);
        culvert_error err = CULVERT_ERROR_INIT;
        culvert_buffer *big = culvert_buffer_new(p.gpu, BYTES, &err);
        culvert_buffer *from = culvert_buffer_new(p.gpu, BYTES, &err); /* nothing orders the two */
        ck_assert_msg(big != NULL && from != NULL, "%s", err.message);
        char *src = calloc(1, BYTES), *dst = malloc(BYTES);
        ck_assert_ptr_nonnull(src);
        ck_assert_ptr_nonnull(dst);
        outcomes_add(&p.all, culvert_upload(p.streams[0], big, 0, src, BYTES));
        outcomes_add(&p.all, culvert_download(p.streams[1], dst, from, 0, BYTES));
        for (int turns = 0; turns < 1 + d * 3; turns++)
            ev_run(p.ev, EVRUN_NOWAIT);
        culvert_sim_poison(d, ILLEGAL_ADDRESS);
        ck_assert(outcomes_wait(&p.all, p.ev, soon));
        outcomes_all(&p.all, CULVERT_EDEVICELOST);
        memset(src, 0xff, BYTES); /* both are the program's again (sanitizers look) */
        memset(dst, 0x77, BYTES);
        trial_turn(p.ev, 0.02);
        for (size_t i = 0; i < BYTES; i++)
            if (dst[i] != 0x77)
                ck_abort_msg("byte %zu was written after the rejection", i);
        free(src);
        free(dst);
        culvert_buffer_unref(big);
        culvert_buffer_unref(from);
        party_close(&p);
    }
}
END_TEST

/* ---- on_lost ---- */

START_TEST(on_lost_that_is_replaced_or_late)
{
    static party p;
    int replaced = 0;
    gpu_fixture_reset();
    party_open(&p, 0);
    culvert_gpu_on_lost(p.gpu, on_lost, &replaced, count_free);
    ck_assert_int_eq(p.lost_frees, 1); /* the first one's argument */
    ck_assert_int_eq(replaced, 0);
    culvert_gpu_on_lost(p.gpu, on_lost, &p, lost_freed);
    ck_assert_int_eq(replaced, 1);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    outcomes_add(&p.all, culvert_stream_done(p.streams[0]));
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(p.lost, 1);
    ck_assert_int_eq(p.lost_frees, 2);
    culvert_gpu_on_lost(p.gpu, on_lost, &p, lost_freed); /* it is lost already */
    ck_assert_int_eq(p.lost, 1);                         /* never inside the call */
    ev_run(p.ev, 0);
    ck_assert_int_eq(p.lost, 2);
    ck_assert_int_eq(p.lost_frees, 3);
    culvert_gpu_on_lost(p.gpu, NULL, NULL, NULL);
    trial_turn(p.ev, 0.01);
    ck_assert_int_eq(p.lost, 2);
    party_close(&p);
}
END_TEST

START_TEST(on_lost_that_never_came_releases_its_argument)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    party_close(&p);
    ck_assert_int_eq(p.lost, 0);
    ck_assert_int_eq(p.lost_frees, 1);
    gpu_fixture_nothing_left();
}
END_TEST

static void free_all_in_it(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    party *p = arg;
    (void)gpu;
    ck_assert_int_eq(err->code, CULVERT_EDEVICELOST);
    p->lost++;
    party_close(p);
}

START_TEST(everything_is_freed_inside_on_lost)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    struct ev_loop *ev = p.ev, *spare = ev_loop_new(EVFLAG_AUTO);
    culvert_gpu_on_lost(p.gpu, free_all_in_it, &p, NULL);
    culvert_sim_hold(NULL);
    outcomes_add(&p.all, culvert_fill(p.streams[0], p.buffer, 0, 4, 0, 4));
    culvert_promise_drop(p.promise);
    trial_turn(ev, 0.01);
    p.ev = spare; /* the loop that runs cannot go */
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ev_run(ev, 0);
    ck_assert_int_eq(p.lost, 1);
    ev_loop_destroy(ev);
}
END_TEST

START_TEST(case_045_under_load_the_hook_is_called_once)
{
    static party p;
    gpu_fixture_reset();
    party_open(&p, 0);
    double end = test_now() + 30;
    size_t next = 0;
    while (p.lost == 0 && test_now() < end) {
        while (p.all.n - p.all.settled < 32 && p.all.n < p.all.room)
            outcomes_add(&p.all, culvert_fill(p.streams[next++ % 4], p.buffer, 0, 4, 0, 4));
        if (p.all.settled >= 200)
            culvert_sim_poison(0, ILLEGAL_ADDRESS);
        ev_run(p.ev, EVRUN_NOWAIT);
    }
    ck_assert_int_eq(p.lost, 1);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    bool lost = false;
    for (size_t i = 0; i < p.all.n; i++) {
        ck_assert_int_eq(p.all.list[i].calls, 1);
        lost |= p.all.list[i].status == CULVERT_EDEVICELOST;
        ck_assert(p.all.list[i].status == CULVERT_EDEVICELOST ||
                  p.all.list[i].status == CULVERT_OK);
    }
    ck_assert(lost);
    ck_assert_int_eq(culvert_gpu_state(p.gpu), CULVERT_GPU_LOST);
    trial_turn(p.ev, 0.2);
    ck_assert_int_eq(p.lost, 1);
    party_close(&p);
}
END_TEST

/* ---- the other device ---- */

START_TEST(the_other_device_goes_on)
{
    static party a, b;
    gpu_fixture_reset();
    culvert_sim_devices(2);
    party_open(&a, 0);
    party_open(&b, 1);
    culvert_sim_hold(NULL);
    add_pending(&a, false);
    outcomes_add(&b.all, culvert_fill(b.streams[0], b.buffer, 0, 4, 5, 4));
    trial_turn(b.ev, 0.01);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ck_assert(outcomes_wait(&a.all, a.ev, soon));
    outcomes_all(&a.all, CULVERT_EDEVICELOST);
    ck_assert_int_eq(culvert_gpu_state(b.gpu), CULVERT_GPU_OK);
    culvert_sim_release(NULL);
    ck_assert(outcomes_wait(&b.all, b.ev, soon));
    outcomes_all(&b.all, CULVERT_OK);
    ck_assert_int_eq(b.lost, 0);
    party_close(&a);
    party_close(&b);
}
END_TEST

/* One loop, two devices: work of the sound one that waits for the lost one rejects as that. */
START_TEST(who_waits_for_the_lost_device_rejects_too)
{
    static party p;
    gpu_fixture_reset();
    culvert_sim_devices(2);
    party_open(&p, 0);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu *sound = culvert_gpu_open(p.loop, 1, NULL, &err);
    culvert_stream *stream = culvert_stream_new(sound, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    culvert_sim_hold(culvert_stream_native(p.streams[0]));
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_wait(seq, culvert_fill(p.streams[0], p.buffer, 0, 4, 0, 4));
    outcomes_add(&p.all, culvert_seq_submit(seq));
    culvert_future *after = culvert_stream_done(stream);
    trial_turn(p.ev, 0.01);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    outcomes_all(&p.all, CULVERT_EDEVICELOST);
    gpu_fixture_ok(after); /* failure does not travel by stream order */
    ck_assert_int_eq(culvert_gpu_state(sound), CULVERT_GPU_OK);
    culvert_stream_unref(stream);
    culvert_gpu_close(sound);
    party_close(&p);
}
END_TEST

/* ---- a real one ---- */

/* A kernel that writes where there is nothing, with 100 futures behind and beside it. On the simulator it
   would write to the test's own memory. */
START_TEST(case_036_a_kernel_that_writes_through_a_bad_pointer)
{
    enum { N = 100 };
    static party p;
    static char out[N][64];
    party_open(&p, 0);
    culvert_future *loaded = culvert_module_load(p.gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    p.module = culvert_take(loaded);
    culvert_unref(loaded);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    /* Everything waits behind a kernel of a tenth of a second, so that all of it is pending at the fault. */
    for (int i = 0; i < 4; i++)
        outcomes_add(&p.all, culvert_launch(p.streams[i], kernel(&p, "busy"), &grid,
                                            CULVERT_ARGS(CULVERT_U64(100000000))));
    size_t bad =
        outcomes_add(&p.all,
                     culvert_launch(p.streams[0], kernel(&p, "add_word"), &grid,
                                    CULVERT_ARGS(CULVERT_U64(64), CULVERT_U32(0), CULVERT_U32(1))));
    size_t first = p.all.n;
    for (size_t i = 0; i < N; i++) {
        culvert_seq *seq = culvert_seq_begin(p.streams[i % 4]);
        culvert_seq_upload(seq, p.buffer, i * 64, out[i], 64);
        culvert_seq_download(seq, out[i], p.buffer, i * 64, 64);
        outcomes_add(&p.all, culvert_seq_submit(seq));
    }
    double start = test_now();
    ck_assert(outcomes_wait(&p.all, p.ev, soon));
    printf("%.3f s until all had settled\n", test_now() - start);
    ck_assert_int_eq(p.all.list[bad].status, CULVERT_EDEVICELOST);
    ck_assert_int_eq(p.all.list[bad].error.native, ILLEGAL_ADDRESS);
    size_t rejected = 0;
    for (size_t i = first; i < p.all.n; i++) {
        ck_assert_int_eq(p.all.list[i].calls, 1);
        rejected += p.all.list[i].status == CULVERT_EDEVICELOST;
    }
    ck_assert_uint_ge(rejected, N / 4); /* those behind it, whatever the other streams did */
    trial_turn(p.ev, 0.05);
    ck_assert_int_eq(p.lost, 1);
    ck_assert_int_eq(p.lost_error.native, ILLEGAL_ADDRESS);
    refuses_new_work(&p, CULVERT_EDEVICELOST);
    start = test_now();
    party_close(&p);
    ck_assert_msg(test_now() - start < soon, "closing took %.3f s", test_now() - start);
}
END_TEST

/* ---- a real one, on two loops ---- */

enum { EACH = 50 }; /* futures pending, on four streams of each loop */

/* A kernel of a fifth of a second on each stream, and everything behind it. Returns the number of the first
   that is pending. `bad`: the kernel behind the first one writes where there is nothing. */
static size_t add_behind_kernels(party *p, bool bad, char out[EACH][64])
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_future *loaded = culvert_module_load(p->gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    p->module = culvert_take(loaded);
    culvert_unref(loaded);
    pthread_barrier_wait(&meet); /* both have loaded: that waits for kernels */
    for (int i = 0; i < 4; i++)
        outcomes_add(&p->all, culvert_launch(p->streams[i], kernel(p, "busy"), &grid,
                                             CULVERT_ARGS(CULVERT_U64(200000000))));
    if (bad)
        outcomes_add(&p->all,
                     culvert_launch(p->streams[0], kernel(p, "add_word"), &grid,
                                    CULVERT_ARGS(CULVERT_U64(64), CULVERT_U32(0), CULVERT_U32(1))));
    size_t first = p->all.n;
    for (size_t i = 0; i < EACH; i++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[i % 4]);
        culvert_seq_launch(seq, kernel(p, "busy"), &grid, CULVERT_ARGS(CULVERT_U64(50000000)));
        culvert_seq_download(seq, out[i], p->buffer, i * 64, 64);
        outcomes_add(&p->all, culvert_seq_submit(seq));
    }
    return first;
}

/* Everything settles in time, and is said to be lost: those of streams that had gone on for some
   milliseconds, too, but what was over before the fault. */
static void lose_for_real(party *p, bool bad, char out[EACH][64])
{
    party_open(p, 0);
    size_t first = add_behind_kernels(p, bad, out), rejected = 0;
    double start = test_now();
    ck_assert(outcomes_wait(&p->all, p->ev, soon));
    printf("%.3f s until all had settled\n", test_now() - start);
    for (size_t i = first; i < p->all.n; i++) {
        const outcome *o = &p->all.list[i];
        ck_assert_int_eq(o->calls, 1);
        rejected += o->status == CULVERT_EDEVICELOST;
        if (o->status == CULVERT_EDEVICELOST) {
            ck_assert_int_eq(o->error.native, ILLEGAL_ADDRESS);
            gpu_fixture_says(&o->error, "from launch of ");
            gpu_fixture_says(&o->error, "test_loss.c:");
        }
    }
    ck_assert_uint_ge(rejected, EACH - 12); /* three a stream may have ended before */
    trial_turn(p->ev, 0.05);
    ck_assert_int_eq(p->lost, 1);
    ck_assert_int_eq(p->lost_error.native, ILLEGAL_ADDRESS);
    refuses_new_work(p, CULVERT_EDEVICELOST);
    pthread_barrier_wait(&meet);
    start = test_now();
    party_close(p);
    ck_assert_msg(test_now() - start < soon, "closing took %.3f s", test_now() - start);
}

static void *real_second_loop(void *arg)
{
    static char out[EACH][64];
    lose_for_real(arg, false, out);
    return NULL;
}

START_TEST(case_036_100_futures_on_8_streams_and_2_loops)
{
    static party first, second;
    static char out[EACH][64];
    pthread_t thread;
    pthread_barrier_init(&meet, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, real_second_loop, &second), 0);
    lose_for_real(&first, true, out);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&meet);
}
END_TEST

int main(void)
{
    trials *t = trials_new("loss");
    if (!gpu_fixture_simulated()) {
        TRIAL(t, case_036_a_kernel_that_writes_through_a_bad_pointer);
        TRIAL(t, case_036_100_futures_on_8_streams_and_2_loops);
        TRIAL(t, on_lost_that_never_came_releases_its_argument);
        return trials_run(t);
    }
    TRIAL(t, case_036_no_host_function_runs_any_more);
    TRIAL(t, a_launch_failure_rejects_everything);
    TRIAL(t, an_unlisted_error_from_a_query_rejects_everything);
    TRIAL(t, a_destroyed_context_rejects_everything);
    TRIAL(t, a_driver_that_goes_away_rejects_everything_as_shut_down);
    TRIAL(t, case_037_the_host_functions_run_all_the_same);
    TRIAL(t, case_053_it_comes_out_of_a_submit);
    TRIAL(t, case_053_it_comes_out_of_an_event);
    TRIAL(t, case_053_it_comes_out_of_an_allocation_or_a_module);
    TRIAL(t, case_053_it_comes_out_of_the_end_of_a_module_load);
    TRIAL(t, case_049_an_answer_that_is_neither_yes_nor_not_yet_rejects);
    TRIAL(t, a_query_that_fails_for_itself_rejects_when_the_work_is_over);
    TRIAL(t, case_056_the_program_resets_the_primary_context);
    TRIAL(t, lost_inside_the_function_of_a_seq_call);
    TRIAL(t, case_046_nothing_is_a_success_after_the_kernel_failed);
    TRIAL(t, what_the_device_may_still_use_is_kept_from_everybody);
    TRIAL(t, lost_while_ordinary_memory_is_copied);
    TRIAL(t, on_lost_that_is_replaced_or_late);
    TRIAL(t, on_lost_that_never_came_releases_its_argument);
    TRIAL(t, everything_is_freed_inside_on_lost);
    TRIAL(t, case_045_under_load_the_hook_is_called_once);
    TRIAL(t, the_other_device_goes_on);
    TRIAL(t, who_waits_for_the_lost_device_rejects_too);
    return trials_run(t);
}
