/* SPDX-License-Identifier: BSD-2-Clause */
/* What the library leaves alone: the calling thread's context, its capture mode, and other code's captures. */
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "driver/table.h"
#include "fixture.culvert.h"

#include <stdio.h>
#include <string.h>

/* The simulator's: after a reset, a driver that is open already has to be initialised again. */
int cuInit(unsigned flags);

static gpu_fixture f;
static const culvert__driver *drv;

static void open_fixture(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_open_as_is(&f, NULL, NULL);
    drv = culvert__driver_open(NULL, &err);
    ck_assert_msg(drv != NULL, "%s", err.message);
}

static void begin(void)
{
    gpu_fixture_reset();
    open_fixture();
}

/* ---- the current context ---- */

static struct CUctx_st *expected;
static int expected_mode;

static void unchanged(const char *call)
{
    struct CUctx_st *now = NULL, *below = NULL, *popped = NULL;
    int mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED;
    ck_assert_int_eq(drv->cuCtxGetCurrent(&now), 0);
    ck_assert_msg(now == expected, "after %s another context is current", call);
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&mode), 0);
    ck_assert_msg(mode == expected_mode, "after %s the capture mode is %d, not %d", call, mode,
                  expected_mode);
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&mode), 0);
    if (expected == NULL)
        return;
    /* Nor does anything lie below it. */
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ck_assert_int_eq(drv->cuCtxGetCurrent(&below), 0);
    ck_assert_msg(below == NULL, "after %s there is a context below", call);
    ck_assert_int_eq(drv->cuCtxPushCurrent(popped), 0);
}

static void settled(culvert_future *done, void *arg)
{
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    unchanged("the way to a callback");
    ++*(int *)arg;
}

static void kept(void *arg)
{
    unchanged("the way to a function of culvert_seq_keep");
    ++*(int *)arg;
}

static int enqueue(struct CUstream_st *stream, void *arg)
{
    struct CUctx_st *now = NULL, *own = NULL;
    int mode = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED;
    ck_assert_int_eq(drv->cuCtxGetCurrent(&now), 0);
    ck_assert_int_eq(drv->cuStreamGetCtx(stream, &own), 0);
    ck_assert_ptr_eq(now, own); /* the device's */
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&mode), 0);
    ck_assert_int_eq(mode, expected_mode); /* the thread's own */
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&mode), 0);
    ++*(int *)arg;
    return 0;
}

/* Every public call that may call the driver. */
static void all_calls(culvert_loop *loop, struct ev_loop *ev)
{
    static char big[300000];
    int callbacks = 0, keeps = 0, calls = 0;
    char word[8] = "";
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_description d = {.struct_size = sizeof d};
    ck_assert_int_ge(culvert_gpu_count(loop, NULL), 1);
    unchanged("culvert_gpu_count");
    culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    unchanged("culvert_gpu_open");
    ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_OK);
    unchanged("culvert_gpu_info");
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    unchanged("culvert_stream_new");
    culvert_stream *picked = culvert_stream_pick(gpu, CULVERT_PRIORITY_HIGH, &err);
    ck_assert_msg(picked != NULL, "%s", err.message);
    unchanged("culvert_stream_pick");
    culvert_buffer *buffer = culvert_buffer_new(gpu, 70 << 20, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    unchanged("culvert_buffer_new");
    culvert_buffer *pinned = culvert_host_buffer_new(gpu, 20 << 20, &err);
    ck_assert_msg(pinned != NULL, "%s", err.message);
    unchanged("culvert_host_buffer_new");
    culvert_future *loaded = culvert_module_load(gpu, &culvert_image_fixture);
    unchanged("culvert_module_load");
    ck_assert_int_eq(culvert_await(loaded, 60), CULVERT_OK);
    unchanged("culvert_await");
    culvert_module *module = culvert_take(loaded);
    culvert_unref(loaded);
    culvert_kernel *kernel = culvert_module_kernel(module, "empty", &err);
    ck_assert_msg(kernel != NULL, "%s", err.message);
    ck_assert_ptr_null(culvert_module_kernel(module, "no such kernel", &err));
    unchanged("culvert_module_kernel");

    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 50000};
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_seq_upload(seq, buffer, 0, big, sizeof big);
    culvert_seq_launch(seq, kernel, &grid, NULL, 0);
    unchanged("culvert_seq_launch");
    ck_assert_ptr_nonnull(culvert_seq_scratch(seq, 90 << 20));
    unchanged("culvert_seq_scratch");
    culvert_seq_call(seq, enqueue, &calls, NULL);
    culvert_seq_copy(seq, pinned, 0, buffer, 0, 64);
    culvert_seq_fill(seq, buffer, 0, 64, 0, 2);
    culvert_seq_download(seq, big, buffer, 0, sizeof big);
    culvert_seq_keep(seq, &keeps, kept);
    culvert_future *first = culvert_seq_submit(seq);
    unchanged("culvert_seq_submit");
    ck_assert_int_eq(culvert_on_settled(culvert_ref(first), settled, &callbacks, NULL), CULVERT_OK);
    seq = culvert_seq_begin(picked); /* its function is called in a turn of the loop */
    culvert_seq_wait(seq, first);
    culvert_seq_call(seq, enqueue, &calls, NULL);
    ck_assert_int_eq(culvert_on_settled(culvert_seq_submit(seq), settled, &callbacks, NULL),
                     CULVERT_OK);
    unchanged("culvert_seq_wait");
    culvert_detach(culvert_upload(stream, buffer, 0, word, sizeof word));
    unchanged("culvert_upload");
    culvert_detach(culvert_stream_done(stream));
    unchanged("culvert_stream_done");
    ck_assert_ptr_nonnull(culvert_stream_native(stream));
    for (int i = 0; i < 50; i++) {
        ev_run(ev, EVRUN_NOWAIT);
        unchanged("ev_run");
        (void)culvert_loop_arm(loop);
        unchanged("culvert_loop_arm");
    }
    ev_run(ev, 0);
    unchanged("ev_run");
    ck_assert_int_eq(callbacks, 2);
    ck_assert_int_eq(keeps, 1);
    ck_assert_int_eq(calls, 2);

    culvert_stream *many[40];
    for (int i = 0; i < 40; i++) { /* more than are kept for others */
        many[i] = culvert_stream_new(gpu, NULL, &err);
        ck_assert_msg(many[i] != NULL, "%s", err.message);
    }
    for (int i = 0; i < 40; i++) {
        culvert_stream_unref(many[i]);
        unchanged("culvert_stream_unref");
    }
    culvert_module_unref(module);
    unchanged("culvert_module_unref");
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(pinned);
    unchanged("culvert_buffer_unref");
    culvert_stream_unref(picked);
    culvert_stream_unref(stream);
    unchanged("culvert_stream_unref");
    culvert_gpu_close(gpu);
    unchanged("culvert_gpu_close");
    ev_run(ev, 0);
}

/* With a context current and a mode in force, a loop of its own. */
static void with(struct CUctx_st *ctx, int mode)
{
    culvert_error err = CULVERT_ERROR_INIT;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
    struct CUctx_st *popped;
    int before = mode;
    if (ctx != NULL)
        ck_assert_int_eq(drv->cuCtxPushCurrent(ctx), 0);
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&before), 0);
    expected = ctx;
    expected_mode = mode;
    all_calls(loop, ev);
    culvert_loop_free(loop);
    unchanged("culvert_loop_free");
    ck_assert_int_eq(drv->cuThreadExchangeStreamCaptureMode(&before), 0);
    if (ctx != NULL)
        ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ev_loop_destroy(ev);
}

START_TEST(case_058_with_no_context_current)
{
    begin();
    with(NULL, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(case_058_with_the_same_context_current)
{
    struct CUctx_st *own = NULL;
    begin();
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&own, 0), 0);
    with(own, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(0), 0);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(case_058_with_another_context_current)
{
    struct CUctx_st *other = NULL;
    gpu_fixture_reset();
    culvert_sim_devices(2);
    open_fixture();
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&other, 1), 0);
    with(other, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(1), 0);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(the_thread_keeps_its_capture_mode)
{
    begin();
    with(NULL, CULVERT__CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    with(NULL, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED);
    gpu_fixture_close(&f);
}
END_TEST

/* The program takes the context off the thread between submit and the turns of the loop. */
START_TEST(case_058_the_context_is_changed_in_between)
{
    static unsigned words[1000];
    struct CUctx_st *own = NULL, *popped;
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, sizeof words);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&own, 0), 0);
    ck_assert_int_eq(drv->cuCtxPushCurrent(own), 0);
    culvert_detach(culvert_fill(f.stream, buffer, 0, sizeof words, 7, 4));
    ck_assert_int_eq(drv->cuCtxSetCurrent(NULL), 0);
    gpu_fixture_ok(culvert_download(f.stream, words, buffer, 0, sizeof words));
    ck_assert_uint_eq(words[999], 7);
    if (drv->cuCtxGetCurrent(&popped) == 0 && popped != NULL)
        ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(0), 0);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* ---- captures of other code ---- */

typedef struct capture {
    struct CUstream_st *stream;
    struct CUctx_st *ctx;
} capture;

static void with_context(capture *c, bool on)
{
    struct CUctx_st *popped;
    if (on)
        ck_assert_int_eq(drv->cuCtxPushCurrent(c->ctx), 0);
    else
        ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
}

/* A stream of the program's that is captured in global mode: unsafe calls of any thread would spoil it. */
static void capture_begin(capture *c)
{
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&c->ctx, 0), 0);
    with_context(c, true);
    ck_assert_int_eq(drv->cuStreamCreateWithPriority(&c->stream, CULVERT__CU_STREAM_NON_BLOCKING,
                                                     0),
                     0);
    ck_assert_int_eq(drv->cuStreamBeginCapture(c->stream, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    with_context(c, false);
}

static void still_valid(capture *c)
{
    int status = -1;
    ck_assert_int_eq(drv->cuStreamIsCapturing(c->stream, &status), 0);
    ck_assert_int_eq(status, CULVERT__CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

static void capture_end(capture *c)
{
    struct CUgraph_st *graph = NULL;
    with_context(c, true);
    ck_assert_int_eq(drv->cuStreamEndCapture(c->stream, &graph), 0);
    ck_assert_ptr_nonnull(graph);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    ck_assert_int_eq(drv->cuStreamDestroy(c->stream), 0);
    with_context(c, false);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(0), 0);
}

START_TEST(case_078_the_program_captures_while_the_loop_serves)
{
    enum { N = 100, BYTES = 150000 };
    static unsigned char from[BYTES], to[N][BYTES / N];
    capture c = {NULL, NULL};
    culvert_error err = CULVERT_ERROR_INIT;
    begin();
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    capture_begin(&c);
    outcomes all;
    outcomes_begin(&all, 2 * N + 2);
    culvert_buffer *buffer = culvert_buffer_new(f.gpu, 80 << 20, &err); /* the heap grows */
    ck_assert_msg(buffer != NULL, "%s", err.message);
    still_valid(&c);
    culvert_buffer *pinned = culvert_host_buffer_new(f.gpu, 10 << 20, &err);
    ck_assert_msg(pinned != NULL, "%s", err.message);
    still_valid(&c);
    culvert_stream *stream = culvert_stream_new(f.gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    still_valid(&c);
    culvert_kernel *kernel = gpu_fixture_kernel(&f, "empty"); /* a module is loaded */
    still_valid(&c);
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 50000};
    outcomes_add(&all, culvert_upload(f.stream, buffer, 0, from, BYTES));
    outcomes_add(&all, culvert_stream_done(f.stream));
    ck_assert(outcomes_wait(&all, f.ev, 60));
    still_valid(&c);
    for (size_t i = 0; i < N; i++) {
        size_t part = BYTES / N;
        culvert_seq *seq = culvert_seq_begin(i % 2 == 0 ? stream : f.stream);
        culvert_seq_timed(seq);
        culvert_seq_launch(seq, kernel, &grid, NULL, 0);
        culvert_seq_download(seq, to[i], buffer, i * part, part);
        outcomes_add(&all, culvert_seq_submit(seq));
        outcomes_add(&all, culvert_copy(stream, pinned, i * 64, buffer, 0, 64));
        trial_turn(f.ev, 0.0002);
        still_valid(&c);
    }
    ck_assert(outcomes_wait(&all, f.ev, 60));
    still_valid(&c);
    outcomes_all(&all, CULVERT_OK);
    for (size_t i = 0; i < N; i++)
        ck_assert_mem_eq(to[i], from + i * (BYTES / N), BYTES / N);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(pinned);
    culvert_stream_unref(stream);
    still_valid(&c);
    capture_end(&c);
    outcomes_end(&all);
    gpu_fixture_close(&f);
}
END_TEST

static size_t nodes_of(struct CUgraph_st *graph)
{
    size_t n = 12345;
    ck_assert_int_eq(drv->cuGraphGetNodes(graph, NULL, &n), 0);
    return n;
}

START_TEST(a_stream_that_is_captured_takes_no_work)
{
    struct CUgraph_st *graph = NULL;
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    struct CUstream_st *native = culvert_stream_native(f.stream);
    gpu_fixture_ok(culvert_stream_done(f.stream));
    ck_assert_int_eq(drv->cuStreamBeginCapture(native, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    culvert_error err =
        gpu_fixture_fails(culvert_fill(f.stream, buffer, 0, 64, 1, 4), CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    ck_assert_ptr_nonnull(err.where);
    gpu_fixture_fails(culvert_stream_done(f.stream), CULVERT_EINVAL);
    ck_assert_int_eq(drv->cuStreamEndCapture(native, &graph), 0);
    ck_assert_uint_eq(nodes_of(graph), 0);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* The capture begins when a part of a long sequence is in the driver. */
START_TEST(a_capture_that_begins_in_the_middle_gets_nothing)
{
    enum { OPS = 600 };
    struct CUgraph_st *graph = NULL;
    static unsigned words[OPS];
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, sizeof words);
    struct CUstream_st *native = culvert_stream_native(f.stream);
    gpu_fixture_hold(&f, f.stream);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    for (unsigned i = 0; i < OPS; i++)
        culvert_seq_fill(seq, buffer, i * 4, 4, i + 1, 4);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_future *behind = culvert_stream_done(f.stream);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(drv->cuStreamBeginCapture(native, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    gpu_fixture_release(&f);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    gpu_fixture_fails(behind, CULVERT_EINVAL);
    ck_assert_int_eq(drv->cuStreamEndCapture(native, &graph), 0);
    ck_assert_uint_eq(nodes_of(graph), 0);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_download(f.stream, words, buffer, 0, sizeof words));
    ck_assert_uint_eq(words[0], 1); /* a part of it has run */
    ck_assert_uint_eq(words[OPS - 1], 0);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(a_stream_that_was_never_handed_out_is_not_asked)
{
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    ck_assert_uint_eq(culvert_sim_calls("cuStreamIsCapturing"), 0);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(nobody_knows_whether_it_is_captured)
{
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    (void)culvert_stream_native(f.stream);
    uint64_t fills = culvert_sim_calls("cuMemsetD32Async");
    culvert_sim_fail("cuStreamIsCapturing", 1, 801);
    culvert_error err =
        gpu_fixture_fails(culvert_fill(f.stream, buffer, 0, 64, 1, 4), CULVERT_ENOTSUP);
    ck_assert_int_eq(err.native, 801);
    ck_assert_uint_eq(culvert_sim_calls("cuMemsetD32Async"), fills);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

static int begin_capture(struct CUstream_st *stream, void *arg)
{
    *(struct CUstream_st **)arg = stream;
    return drv->cuStreamBeginCapture(stream, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* A function that was called by a sequence has the handle too. */
START_TEST(a_seq_call_that_leaves_a_capture_behind)
{
    struct CUgraph_st *graph = NULL;
    struct CUstream_st *native = NULL;
    begin();
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_call(seq, begin_capture, &native, NULL);
    culvert_seq_fill(seq, buffer, 0, 64, 1, 4);
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_fails(culvert_fill(f.stream, buffer, 0, 64, 1, 4), CULVERT_EINVAL);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING); /* it cannot be known before */
    ck_assert_int_eq(drv->cuStreamEndCapture(native, &graph), 0);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    ck_assert_uint_eq(nodes_of(graph), 0);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* ---- the legacy stream ---- */

START_TEST(case_085_the_legacy_stream_is_never_used)
{
    begin();
    for (int i = 0; i < 30; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        culvert_stream *s = culvert_stream_pick(f.gpu, i % 3 - 1, &err);
        ck_assert_msg(s != NULL, "%s", err.message);
        struct CUstream_st *native = culvert_stream_native(s);
        unsigned flags = 0;
        ck_assert_uint_gt((uintptr_t)native, 2);
        ck_assert_int_eq(drv->cuStreamGetFlags(native, &flags), 0);
        ck_assert_uint_eq(flags, CULVERT__CU_STREAM_NON_BLOCKING);
        culvert_stream_unref(s);
    }
    gpu_fixture_close(&f);
}
END_TEST

int main(void)
{
    bool sim = gpu_fixture_simulated();
    trials *t = trials_new("context");
    TRIAL(t, case_058_with_no_context_current);
    TRIAL(t, case_058_with_the_same_context_current);
    TRIAL(t, the_thread_keeps_its_capture_mode);
    TRIAL(t, case_058_the_context_is_changed_in_between);
    TRIAL(t, case_078_the_program_captures_while_the_loop_serves);
    TRIAL(t, a_stream_that_is_captured_takes_no_work);
    TRIAL(t, a_capture_that_begins_in_the_middle_gets_nothing);
    TRIAL(t, a_seq_call_that_leaves_a_capture_behind);
    TRIAL(t, case_085_the_legacy_stream_is_never_used);
    if (sim) {
        TRIAL(t, case_058_with_another_context_current);
        TRIAL(t, a_stream_that_was_never_handed_out_is_not_asked);
        TRIAL(t, nobody_knows_whether_it_is_captured);
    }
    return trials_run(t);
}
