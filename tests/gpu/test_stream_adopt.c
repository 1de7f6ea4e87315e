/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams and events that the program made by itself: culvert_stream_adopt, culvert_event_done. */
#include "culvert/sim.h"
#include "driver/table.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"
#include "lib/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static gpu_fixture f;
static const culvert__driver *drv;
static struct CUctx_st *ctx;

static void begin(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_open(&f, NULL, NULL);
    drv = culvert__driver_open(NULL, &err);
    ck_assert_msg(drv != NULL, "%s", err.message);
    ctx = f.gpu->device->ctx;
    ck_assert_int_eq(drv->cuCtxPushCurrent(ctx), 0); /* as a program of the runtime has it */
}

static void end(void)
{
    struct CUctx_st *popped;
    gpu_fixture_close(&f);
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
}

static struct CUstream_st *own_stream(unsigned flags)
{
    struct CUstream_st *s = NULL;
    ck_assert_int_eq(drv->cuStreamCreateWithPriority(&s, flags, 0), 0);
    return s;
}

static struct CUevent_st *own_event(void)
{
    struct CUevent_st *e = NULL;
    ck_assert_int_eq(drv->cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING), 0);
    return e;
}

static void gone(struct CUstream_st *s, struct CUevent_st *e)
{
    if (s != NULL)
        ck_assert_int_eq(drv->cuStreamDestroy(s), 0);
    if (e != NULL)
        ck_assert_int_eq(drv->cuEventDestroy(e), 0);
}

static culvert_stream *adopt(struct CUstream_st *native)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *s = culvert_stream_adopt(f.gpu, native, &err);
    ck_assert_msg(s != NULL, "%s", err.message);
    return s;
}

/* ---- streams ---- */

/* Work of the program's and of sequences, in the order in which it was put there. */
START_TEST(work_is_in_stream_order_whoever_put_it_there)
{
    static const unsigned expected[4] = {1, 2, 3, 3};
    unsigned words[4] = {0};
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    unsigned long long at = culvert_buffer_address(buffer);
    culvert_stream *s = adopt(native);
    ck_assert_ptr_eq(culvert_stream_native(s), native);
    ck_assert_int_eq(drv->cuMemsetD32Async(at, 1, 4, native), 0);
    culvert_detach(culvert_fill(s, buffer, 4, 12, 2, 4));
    ck_assert_int_eq(drv->cuMemsetD32Async(at + 8, 3, 2, native), 0);
    gpu_fixture_ok(culvert_download(s, words, buffer, 0, 16));
    ck_assert_mem_eq(words, expected, 16);
    culvert_stream_unref(s);
    ck_assert_int_eq(drv->cuStreamQuery(native), 0); /* it is the program's still */
    culvert_buffer_unref(buffer);
    gone(native, NULL);
    end();
}
END_TEST

START_TEST(stream_done_waits_for_work_of_the_program)
{
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_stream *s = adopt(native);
    gpu_fixture_hold(&f, s);
    ck_assert_int_eq(drv->cuMemsetD32Async(culvert_buffer_address(buffer), 1, 4, native), 0);
    culvert_future *done = culvert_stream_done(s);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(done), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(done);
    gpu_fixture_idle(&f, s);
    culvert_stream_unref(s);
    culvert_buffer_unref(buffer);
    gone(native, NULL);
    end();
}
END_TEST

/* NULL, the legacy handle and the per-thread one: all are streams of the context that is opened. */
START_TEST(the_default_streams_can_be_adopted)
{
    begin();
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        unsigned words[4] = {0};
        culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
        culvert_stream *s = adopt((struct CUstream_st *)handle);
        ck_assert_uint_eq((uintptr_t)culvert_stream_native(s), handle == 0 ? 1 : handle);
        culvert_seq *seq = culvert_seq_begin(s);
        culvert_seq_fill(seq, buffer, 0, 16, 7, 4);
        gpu_fixture_add(&f, seq, buffer, 1, 2);
        culvert_seq_download(seq, words, buffer, 0, 16);
        gpu_fixture_ok(culvert_seq_submit(seq));
        ck_assert_uint_eq(words[0], 7);
        ck_assert_uint_eq(words[1], 9);
        culvert_stream_unref(s);
        culvert_buffer_unref(buffer);
    }
    end();
}
END_TEST

/* With no context of ours current, the default streams are still of ours. */
START_TEST(the_current_context_does_not_matter)
{
    struct CUctx_st *popped;
    begin();
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    culvert_stream *s = adopt(NULL);
    gpu_fixture_ok(culvert_stream_done(s));
    culvert_stream_unref(s);
    ck_assert_int_eq(drv->cuCtxPushCurrent(popped), 0);
    end();
}
END_TEST

/* Data that is written on the legacy stream: non-blocking streams do not wait for it by themselves. */
START_TEST(case_085_work_of_the_legacy_stream_is_waited_for)
{
    begin();
    for (int by_event = 0; by_event <= 1; by_event++) {
        unsigned words[4] = {0};
        struct CUevent_st *event = own_event();
        culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
        culvert_stream *legacy = adopt(NULL);
        gpu_fixture_hold(&f, legacy);
        ck_assert_int_eq(drv->cuMemsetD32Async(culvert_buffer_address(buffer), 5, 4, NULL), 0);
        ck_assert_int_eq(drv->cuEventRecord(event, NULL), 0);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_wait(seq,
                         by_event ? culvert_event_done(f.gpu, event) : culvert_stream_done(legacy));
        culvert_seq_download(seq, words, buffer, 0, 16);
        culvert_future *future = culvert_seq_submit(seq);
        gpu_fixture_run(&f, 0.02);
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
        ck_assert_uint_eq(words[0], 5);
        ck_assert_uint_eq(words[3], 5);
        gpu_fixture_idle(&f, legacy);
        culvert_stream_unref(legacy);
        culvert_buffer_unref(buffer);
        gone(NULL, event);
    }
    end();
}
END_TEST

START_TEST(a_stream_of_another_context_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    struct CUctx_st *other = NULL, *popped;
    if (!gpu_fixture_simulated())
        return; /* one device, and so one primary context */
    gpu_fixture_reset();
    culvert_sim_devices(2);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    drv = culvert__driver_open(NULL, &err);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&other, 1), 0);
    ck_assert_int_eq(drv->cuCtxPushCurrent(other), 0);
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ck_assert_ptr_null(culvert_stream_adopt(f.gpu, native, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    gpu_fixture_says(&err, "another context");
    ck_assert_str_eq(err.op, "culvert_stream_adopt");
    ck_assert_ptr_nonnull(err.where);
    gone(native, NULL);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(1), 0);
    gpu_fixture_close(&f);
}
END_TEST

static uint64_t fills(void)
{
    return culvert_sim_calls("cuMemsetD32Async");
}

/* Others put work there too: half of the cap is for us. */
START_TEST(an_adopted_stream_has_half_the_cap)
{
    enum { N = 600 };
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_stream *s = adopt(native);
    gpu_fixture_hold(&f, s);
    uint64_t before = gpu_fixture_simulated() ? fills() : 0;
    culvert_future *last = NULL;
    for (int i = 0; i < N; i++) {
        if (last != NULL)
            culvert_detach(last);
        last = culvert_fill(s, buffer, 0, 16, (unsigned)i, 4);
    }
    gpu_fixture_run(&f, 0.02);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(fills() - before, CULVERT__STREAM_CAP / 2);
    ck_assert_uint_le(culvert_stream_in_flight(s), CULVERT__STREAM_CAP / 2 + 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(last);
    culvert_stream_unref(s);
    culvert_buffer_unref(buffer);
    gone(native, NULL);
    end();
}
END_TEST

static int count_call(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    ++*(int *)arg;
    return 0;
}

/* One operation that weighs more than that has its turn all the same, alone. */
START_TEST(what_is_heavier_than_the_cap_goes_alone)
{
    int calls = 0;
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_stream *s = adopt(native);
    gpu_fixture_hold(&f, s);
    culvert_detach(culvert_fill(s, buffer, 0, 16, 1, 4));
    culvert_seq *seq = culvert_seq_begin(s);
    culvert_seq_call_weighted(seq, count_call, &calls, NULL, 256);
    culvert_seq_call_weighted(seq, count_call, &calls, NULL, 256);
    culvert_future *heavy = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(calls, 0);
    gpu_fixture_release(&f);
    gpu_fixture_ok(heavy);
    ck_assert_int_eq(calls, 2);
    gpu_fixture_ok(culvert_fill(s, buffer, 0, 16, 1, 4));
    culvert_stream_unref(s);
    culvert_buffer_unref(buffer);
    gone(native, NULL);
    end();
}
END_TEST

/* It is not destroyed with the binding, even where work is in flight, and serves as no other stream. */
START_TEST(it_is_never_destroyed)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.close_seconds = 20;
    gpu_fixture_open(&f, &options, NULL);
    drv = culvert__driver_open(NULL, NULL);
    struct CUctx_st *popped;
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    ck_assert_int_eq(drv->cuCtxPushCurrent(ctx), 0);
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_stream *s = adopt(native);
    culvert_stream_unref(s);
    culvert_stream *another = gpu_fixture_stream(&f);
    ck_assert_ptr_ne(culvert_stream_native(another), native);
    culvert_stream_unref(another);
    s = adopt(native);
    culvert_detach(culvert_stream_done(s));
    culvert_stream_unref(s);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    culvert_loop_free(f.loop);
    f.module = NULL;
    f.stream = NULL;
    f.gpu = NULL;
    f.loop = NULL;
    ck_assert_int_eq(drv->cuStreamSynchronize(native), 0);
    gone(native, NULL);
    gpu_fixture_close(&f);
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(0), 0);
}
END_TEST

/* ---- captures ---- */

static size_t nodes_of(struct CUgraph_st *graph)
{
    size_t n = 12345;
    ck_assert_int_eq(drv->cuGraphGetNodes(graph, NULL, &n), 0);
    return n;
}

START_TEST(case_078_a_captured_stream_takes_no_work)
{
    struct CUgraph_st *graph = NULL;
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    culvert_stream *s = adopt(native);
    ck_assert_int_eq(drv->cuStreamBeginCapture(native, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    culvert_stream *again = adopt(native); /* this is no work */
    culvert_error err = gpu_fixture_fails(culvert_fill(s, buffer, 0, 64, 1, 4), CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    gpu_fixture_fails(culvert_stream_done(s), CULVERT_EINVAL);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4)); /* others go on */
    ck_assert_int_eq(drv->cuStreamEndCapture(native, &graph), 0);
    ck_assert_uint_eq(nodes_of(graph), 0);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_fill(s, buffer, 0, 64, 1, 4));
    culvert_stream_unref(again);
    culvert_stream_unref(s);
    culvert_buffer_unref(buffer);
    gone(native, NULL);
    end();
}
END_TEST

/* The legacy stream, while a blocking stream is captured: anything put there would end that capture. */
START_TEST(case_078_the_legacy_stream_breaks_no_capture)
{
    struct CUgraph_st *graph = NULL;
    begin();
    struct CUstream_st *blocking = own_stream(0);
    culvert_stream *legacy = adopt(NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    ck_assert_int_eq(drv->cuStreamBeginCapture(blocking, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED),
                     0);
    culvert_error err =
        gpu_fixture_fails(culvert_fill(legacy, buffer, 0, 64, 1, 4), CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    ck_assert_int_eq(drv->cuStreamEndCapture(blocking, &graph), 0);
    ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_fill(legacy, buffer, 0, 64, 1, 4));
    culvert_stream_unref(legacy);
    culvert_buffer_unref(buffer);
    gone(blocking, NULL);
    end();
}
END_TEST

/* ---- events ---- */

/* It is the record of the moment of the call: the event may be recorded again, behind work that does not end. */
START_TEST(an_event_is_waited_for_as_it_was_recorded)
{
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUstream_st *other = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUevent_st *event = own_event();
    culvert_stream *first = adopt(native), *second = adopt(other);
    gpu_fixture_hold(&f, first);
    culvert_future *foreign = culvert_stream_done(first); /* something to stand behind */
    ck_assert_int_eq(drv->cuEventRecord(event, native), 0);
    culvert_future *before = culvert_event_done(f.gpu, event);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(before), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(foreign);
    gpu_fixture_hold(&f, second);
    foreign = culvert_stream_done(second);
    ck_assert_int_eq(drv->cuEventRecord(event, other), 0);
    culvert_future *after = culvert_event_done(f.gpu, event);
    gpu_fixture_ok(before);
    ck_assert_int_eq(culvert_status(after), CULVERT_PENDING);
    gone(NULL, event); /* nor is the event needed any more */
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(after), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(after);
    gpu_fixture_ok(foreign);
    culvert_stream_unref(first);
    culvert_stream_unref(second);
    gone(native, NULL);
    gone(other, NULL);
    end();
}
END_TEST

START_TEST(an_event_that_was_never_recorded_is_over)
{
    begin();
    struct CUevent_st *event = own_event();
    culvert_future *future = culvert_event_done(f.gpu, event);
    gone(NULL, event);
    gpu_fixture_ok(future);
    end();
}
END_TEST

/* None waits for another one, and no more streams are made than are waited for at once. */
START_TEST(events_do_not_wait_for_one_another)
{
    enum { MOST = 64 };
    culvert_future *pending[MOST];
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUstream_st *other = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUevent_st *held = own_event(), *quick = own_event();
    culvert_stream *s = adopt(native), *t = adopt(other);
    gpu_fixture_hold(&f, s);
    culvert_future *foreign = culvert_stream_done(s);
    ck_assert_int_eq(drv->cuEventRecord(held, native), 0);
    for (int i = 0; i < MOST - 1; i++)
        pending[i] = culvert_event_done(f.gpu, held);
    for (int i = 0; i < 20; i++) { /* they take turns on the lane that is left */
        culvert_detach(culvert_stream_done(t));
        ck_assert_int_eq(drv->cuEventRecord(quick, other), 0);
        gpu_fixture_ok(culvert_event_done(f.gpu, quick));
    }
    pending[MOST - 1] = culvert_event_done(f.gpu, held);
    culvert_error err = gpu_fixture_fails(culvert_event_done(f.gpu, held), CULVERT_EAGAIN);
    gpu_fixture_says(&err, "64");
    ck_assert_str_eq(err.op, "culvert_event_done");
    gpu_fixture_release(&f);
    for (int i = 0; i < MOST; i++)
        gpu_fixture_ok(pending[i]);
    gpu_fixture_ok(foreign);
    uint64_t made = gpu_fixture_simulated() ? culvert_sim_calls("cuStreamCreateWithPriority") : 0;
    for (int i = 0; i < 100; i++) {
        gpu_fixture_hold(&f, s);
        culvert_detach(culvert_stream_done(s));
        ck_assert_int_eq(drv->cuEventRecord(held, native), 0);
        culvert_future *future = culvert_event_done(f.gpu, held);
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
    }
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuStreamCreateWithPriority"), made);
    gpu_fixture_idle(&f, s);
    culvert_stream_unref(s);
    culvert_stream_unref(t);
    gone(native, held);
    gone(other, quick);
    end();
}
END_TEST

/* An event that was recorded in a capture stands for no work. */
START_TEST(a_captured_event_is_refused)
{
    struct CUgraph_st *graph = NULL;
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUevent_st *event = own_event();
    ck_assert_int_eq(drv->cuStreamBeginCapture(native, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    ck_assert_int_eq(drv->cuEventRecord(event, native), 0);
    culvert_error err = gpu_fixture_fails(culvert_event_done(f.gpu, event), CULVERT_EINVAL);
    gpu_fixture_says(&err, "captured");
    if (drv->cuStreamEndCapture(native, &graph) == 0) /* it may be spoiled: see the header */
        ck_assert_int_eq(drv->cuGraphDestroy(graph), 0);
    gpu_fixture_ok(culvert_stream_done(f.stream));
    gone(native, event);
    end();
}
END_TEST

/* ---- nothing to be had ---- */

START_TEST(after_close_nothing_is_adopted)
{
    culvert_error err = CULVERT_ERROR_INIT;
    begin();
    struct CUstream_st *native = own_stream(CULVERT__CU_STREAM_NON_BLOCKING);
    struct CUevent_st *event = own_event();
    culvert_stream *s = adopt(native); /* holds the device */
    culvert_gpu *gpu = f.gpu;
    culvert_gpu_close(gpu);
    f.gpu = NULL;
    ck_assert_ptr_null(culvert_stream_adopt(gpu, native, &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    gpu_fixture_fails(culvert_event_done(gpu, event), CULVERT_ESHUTDOWN);
    culvert_stream_unref(s);
    gone(native, event);
    end();
}
END_TEST

typedef struct setting {
    struct CUstream_st *native;
    struct CUevent_st *event;
    culvert_stream *stream;
} setting;

static void adopt_one(setting *s)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_adopt(f.gpu, s->native, &err);
    ck_assert_int_eq(err.code, stream != NULL ? CULVERT_OK : CULVERT_ENOMEM);
    culvert_stream_unref(stream);
}

static void wait_for_one(setting *s)
{
    culvert_sim_hold(s->native);
    culvert_future *foreign = culvert_stream_done(s->stream);
    ck_assert_int_eq(drv->cuEventRecord(s->event, s->native), 0);
    culvert_future *done = culvert_event_done(f.gpu, s->event);
    culvert_sim_release(NULL);
    int status = culvert_await(done, 60);
    ck_assert(status == CULVERT_OK || (status == CULVERT_ENOMEM && alloc_fail_happened()));
    status = culvert_await(foreign, 60);
    ck_assert(status == CULVERT_OK || (status == CULVERT_ENOMEM && alloc_fail_happened()));
    culvert_unref(done);
    culvert_unref(foreign);
}

/* All of it may fail, with ENOMEM; what is left serves the next one. How many allocations there were. */
static uint64_t at_each(void (*use)(setting *), setting *s)
{
    uint64_t n = 0;
    for (bool failed = true; failed && n < 200;) {
        alloc_fail_nth(++n);
        use(s);
        failed = alloc_fail_happened();
    }
    alloc_fail_off();
    use(s);
    return n - 1;
}

START_TEST(out_of_memory_at_every_allocation)
{
    begin();
    setting s = {own_stream(CULVERT__CU_STREAM_NON_BLOCKING), own_event(), NULL};
    s.stream = adopt(s.native);
    alloc_fail_this_thread(true);
    ck_assert_uint_ge(at_each(wait_for_one, &s), 1);
    ck_assert_uint_ge(at_each(adopt_one, &s), 1);
    alloc_fail_this_thread(false);
    culvert_stream_unref(s.stream);
    gone(s.native, s.event);
    end();
}
END_TEST

int main(void)
{
    trials *t = trials_new("stream_adopt");
    TRIAL(t, work_is_in_stream_order_whoever_put_it_there);
    TRIAL(t, stream_done_waits_for_work_of_the_program);
    TRIAL(t, the_default_streams_can_be_adopted);
    TRIAL(t, the_current_context_does_not_matter);
    TRIAL(t, case_085_work_of_the_legacy_stream_is_waited_for);
    TRIAL(t, an_adopted_stream_has_half_the_cap);
    TRIAL(t, what_is_heavier_than_the_cap_goes_alone);
    TRIAL(t, it_is_never_destroyed);
    TRIAL(t, case_078_a_captured_stream_takes_no_work);
    TRIAL(t, case_078_the_legacy_stream_breaks_no_capture);
    TRIAL(t, an_event_is_waited_for_as_it_was_recorded);
    TRIAL(t, an_event_that_was_never_recorded_is_over);
    TRIAL(t, events_do_not_wait_for_one_another);
    TRIAL(t, a_captured_event_is_refused);
    TRIAL(t, after_close_nothing_is_adopted);
    if (gpu_fixture_simulated()) {
        TRIAL(t, a_stream_of_another_context_is_refused);
        TRIAL(t, out_of_memory_at_every_allocation);
    }
    return trials_run(t);
}
