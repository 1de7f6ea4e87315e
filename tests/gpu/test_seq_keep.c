/* SPDX-License-Identifier: BSD-2-Clause */
/* What sequences hold and give back, calls of other libraries, times, and errors of the driver. */
#include "culvert/sim.h"
#include "driver/table.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static gpu_fixture f;
static culvert_buffer *some;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static uint64_t calls(const char *function)
{
    return gpu_fixture_simulated() ? culvert_sim_calls(function) : 0;
}

static void note_free(void *p)
{
    ++*(int *)p;
}

/* ---- keeps ---- */

typedef struct kept {
    int freed;
    bool callback_first; /* the future's callback had run when it was freed */
    bool called;
} kept;

static void free_kept(void *p)
{
    kept *k = p;
    k->freed++;
    k->callback_first = k->called;
}

static void call_kept(culvert_future *done, void *arg)
{
    kept *k = arg;
    (void)done;
    ck_assert_int_eq(k->freed, 0);
    k->called = true;
}

START_TEST(a_keep_is_freed_once_after_the_callbacks)
{
    kept k = {0}, l = {0};
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &k, free_kept);
    culvert_seq_fill(seq, buffer, 0, 16, 1, 4);
    culvert_seq_keep(seq, &l, free_kept);
    culvert_seq_keep(seq, NULL, NULL); /* nothing to call */
    culvert_future *future = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(future), call_kept, &k, NULL), 0);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(future), call_kept, &l, NULL), 0);
    gpu_fixture_ok(future);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(k.freed, 1);
    ck_assert_int_eq(l.freed, 1);
    ck_assert(k.callback_first && l.callback_first);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(what_was_not_submitted_frees_its_keeps_at_once)
{
    int dropped = 0, failed = 0, after = 0;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &dropped, note_free);
    culvert_seq_fill(seq, buffer, 0, 16, 1, 4);
    culvert_seq_drop(seq);
    ck_assert_int_eq(dropped, 1);
    culvert_seq_drop(NULL);

    seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &failed, note_free);
    culvert_seq_fill(seq, buffer, 1, 16, 1, 4);
    culvert_seq_keep(seq, &after, note_free);
    ck_assert_int_eq(after, 1); /* the sequence has failed: it is of no use any more */
    culvert_future *future = culvert_seq_submit(seq);
    ck_assert_int_eq(failed, 1);
    (void)gpu_fixture_fails(future, CULVERT_EINVAL);
    ck_assert_int_eq(after + failed + dropped, 3);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_refused_sequence_frees_what_it_has)
{
    int freed = 0;
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
    options.max_queued = 1;
    culvert_stream *stream = culvert_stream_new(f.gpu, &options, NULL);
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *held = culvert_seq_begin(stream), *refused = culvert_seq_begin(stream);
    culvert_seq_wait(held, gate);
    culvert_future *first = culvert_seq_submit(held);
    culvert_seq_keep(refused, &freed, note_free);
    culvert_future *second = culvert_seq_submit(refused);
    ck_assert_int_eq(freed, 1);
    culvert_error err = gpu_fixture_fails(second, CULVERT_EAGAIN);
    gpu_fixture_says(&err, "max_queued is 1");
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(first);
    culvert_stream_unref(stream);
}
END_TEST

static void take_loop_down(void *p)
{
    gpu_fixture *fixture = p;
    culvert_loop_free(fixture->loop);
    fixture->loop = NULL;
}

/* Freeing anything inside any callback is legal; obj_free is one, also where it is called at once. */
START_TEST(a_keep_may_take_the_binding_down)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    if (_i == 0) { /* after the work */
        culvert_seq_keep(seq, &f, take_loop_down);
        culvert_detach(culvert_seq_submit(seq));
        while (f.loop != NULL)
            ev_run(f.ev, EVRUN_ONCE);
    } else if (_i == 1) { /* dropped */
        culvert_seq_keep(seq, &f, take_loop_down);
        culvert_seq_drop(seq);
    } else if (_i == 2) { /* refused */
        culvert_seq_keep(seq, &f, take_loop_down);
        culvert_seq_fill(seq, buffer, 1, 4, 0, 4);
        culvert_future *future = culvert_seq_submit(seq);
        ck_assert_int_eq(culvert_status(future), CULVERT_EINVAL);
        culvert_unref(future);
    } else { /* the sequence has failed before */
        culvert_seq_fill(seq, buffer, 1, 4, 0, 4);
        culvert_seq_keep(seq, &f, take_loop_down);
        culvert_seq_drop(seq);
    }
    ck_assert_ptr_null(f.loop);
    culvert_buffer_unref(buffer);
}
END_TEST

/* ... and what a sequence waited for is let go at once. */
START_TEST(dropping_a_sequence_cancels_what_only_it_waited_for)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *first = culvert_seq_begin(f.stream), *second = culvert_seq_begin(f.stream);
    int freed = 0;
    culvert_seq_wait(first, gate);
    culvert_seq_keep(first, &freed, note_free);
    culvert_seq_wait(second, culvert_seq_submit(first));
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 1);
    culvert_seq_drop(second);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 0);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(freed, 1);
    culvert_promise_drop(promise);
}
END_TEST

/* ---- buffers that are held ---- */

START_TEST(scratch_memory_is_the_sequences_alone)
{
    unsigned char out[3000];
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_buffer *a = culvert_seq_scratch(seq, 1000), *b = culvert_seq_scratch(seq, 2000);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(culvert_buffer_size(a), 1000);
    culvert_seq_fill(seq, a, 0, 1000, 1, 1);
    culvert_seq_fill(seq, b, 0, 2000, 2, 1);
    culvert_seq_download(seq, out, a, 0, 1000);
    culvert_seq_download(seq, out + 1000, b, 0, 2000);
    ck_assert_ptr_nonnull(culvert_seq_scratch(seq, 0));
    gpu_fixture_ok(culvert_seq_submit(seq));
    for (int i = 0; i < 3000; i++)
        ck_assert_int_eq(out[i], i < 1000 ? 1 : 2);
}
END_TEST

START_TEST(scratch_that_is_not_there_rejects)
{
    culvert_gpu_description what = {.struct_size = sizeof what};
    ck_assert_int_eq(culvert_gpu_info(f.gpu, &what), 0);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    ck_assert_ptr_null(culvert_seq_scratch(seq, (size_t)what.total_bytes * 2));
    culvert_error err = gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_ENOMEM);
    ck_assert_str_eq(err.op, "culvert_seq_scratch");
    ck_assert_ptr_nonnull(strstr(err.where, "test_seq_keep.c:"));
}
END_TEST

/* The kernel that uses it is known to nobody but the function that launches it. */
typedef struct raw_launch {
    culvert_buffer *buffer;
    unsigned long long address;
    int status, calls;
    struct CUctx_st *current;
} raw_launch;

static const culvert__driver *driver(void)
{
    return culvert__driver_open(NULL, NULL);
}

static int raw_fill(struct CUstream_st *stream, void *arg)
{
    raw_launch *raw = arg;
    raw->calls++;
    driver()->cuCtxGetCurrent(&raw->current);
    int result = driver()->cuMemsetD8Async(raw->address, 9, 100, stream);
    return result != 0 ? result : raw->status;
}

START_TEST(a_buffer_that_only_a_call_names_is_held_by_use)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 100), *other;
    unsigned char out[100];
    raw_launch raw = {.address = culvert_buffer_address(buffer)};
    gpu_fixture_hold(&f, f.stream);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_use(seq, buffer);
    culvert_seq_call(seq, raw_fill, &raw, NULL);
    culvert_buffer_unref(buffer);
    culvert_future *future = culvert_seq_submit(seq);
    other = culvert_buffer_new(f.gpu, 100, NULL); /* not the memory that the call will write to */
    ck_assert_uint_ne(culvert_buffer_address(other), raw.address);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    ck_assert_int_eq(raw.calls, 1);
    gpu_fixture_ok(culvert_fill(f.stream, other, 0, 100, 4, 1));
    gpu_fixture_ok(culvert_download(f.stream, out, other, 0, 100));
    ck_assert_int_eq(out[50], 4);
    culvert_buffer_unref(other);
}
END_TEST

/* ---- calls ---- */

START_TEST(a_call_is_in_order_with_its_context_current)
{
    struct CUctx_st *before = NULL, *after = NULL;
    unsigned char out[100];
    int freed = 0;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 100);
    raw_launch raw = {.address = culvert_buffer_address(buffer)};
    driver()->cuCtxSetCurrent(NULL);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, buffer, 0, 100, 3, 1);
    culvert_seq_call(seq, raw_fill, &raw, NULL);
    culvert_seq_call(seq, raw_fill, &raw, NULL);
    culvert_seq_fill(seq, buffer, 0, 10, 5, 1);
    culvert_seq_keep(seq, &freed, note_free);
    culvert_seq_download(seq, out, buffer, 0, 100);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_int_eq(raw.calls, 2);
    ck_assert_ptr_nonnull(raw.current);
    driver()->cuCtxGetCurrent(&after);
    ck_assert_ptr_eq(after, before);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(out[i], i < 10 ? 5 : 9);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(what_a_call_returns_rejects)
{
    int freed = 0;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 100);
    raw_launch raw = {.address = culvert_buffer_address(buffer), .status = 13};
    uint64_t before = calls("cuMemsetD32Async");
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &freed, note_free);
    culvert_seq_call(seq, raw_fill, &raw, NULL);
    culvert_seq_fill(seq, buffer, 0, 100, 1, 4); /* never submitted */
    culvert_error err = gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 13);
    ck_assert_str_eq(err.op, "culvert_seq_call");
    ck_assert_ptr_nonnull(strstr(err.where, "test_seq_keep.c:"));
    gpu_fixture_says(&err, "given to culvert_seq_call returned 13");
    ck_assert_uint_eq(calls("cuMemsetD32Async"), before);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(freed, 1);
    seq = culvert_seq_begin(f.stream);
    culvert_seq_call_weighted(seq, raw_fill, &raw, NULL, 3);
    err = gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EDRIVER);
    ck_assert_str_eq(err.op, "culvert_seq_call_weighted");
    gpu_fixture_says(&err, "given to culvert_seq_call_weighted returned 13");
    culvert_buffer_unref(buffer);
}
END_TEST

typedef struct owned {
    raw_launch raw; /* first */
    int *freed;
} owned;

static void free_owned(void *p)
{
    ++*((owned *)p)->freed;
}

START_TEST(the_argument_of_a_call_is_released_once_on_each_way)
{
    int freed = 0;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 100);
    owned arg = {{.address = culvert_buffer_address(buffer)}, &freed};
    culvert_seq *seq = culvert_seq_begin(f.stream); /* success: after the work */
    culvert_seq_call(seq, raw_fill, &arg, free_owned);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(arg.raw.calls, gpu_fixture_simulated() ? 1 : arg.raw.calls);
    ck_assert_int_eq(freed, 0);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(freed, 1);

    seq = culvert_seq_begin(f.stream); /* dropped */
    culvert_seq_call(seq, raw_fill, &arg, free_owned);
    culvert_seq_drop(seq);
    ck_assert_int_eq(freed, 2);

    seq = culvert_seq_begin(f.stream); /* a bad weight */
    culvert_seq_call_weighted(seq, raw_fill, &arg, free_owned, 0);
    ck_assert_int_eq(freed, 3);
    (void)gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EINVAL);

    seq = culvert_seq_begin(f.stream); /* the work in front of it fails */
    culvert_seq_fill(seq, buffer, 3, 8, 0, 4);
    culvert_seq_call(seq, raw_fill, &arg, free_owned);
    ck_assert_int_eq(freed, 4);
    (void)gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_EINVAL);
    ck_assert_int_eq(arg.raw.calls, 1);
    culvert_buffer_unref(buffer);
}
END_TEST

/* ---- arguments, contexts, times ---- */

/* The launch is put off: what the arguments were when it was asked for is what counts. */
START_TEST(case_100_arguments_are_copied_at_the_call)
{
    culvert_future *gate = NULL;
    unsigned out[2] = {0};
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_buffer *words = gpu_fixture_buffer(&f, 8);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    unsigned index = 1, value = 42;
    culvert_arg args[] = {CULVERT_BUFFER(words), CULVERT_VALUE(index), CULVERT_VALUE(value)};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, gate);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_word"), &grid, args, 3);
    memset(args, 0xff, sizeof args);
    memset(&grid, 0xff, sizeof grid);
    index = 1000000;
    value = 7;
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.001);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(future);
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, 8));
    ck_assert_uint_eq(out[1], 42);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(case_058_the_threads_context_is_as_before_each_call)
{
    const culvert__driver *drv = driver();
    struct CUctx_st *primary = NULL, *now = NULL, *contexts[2] = {NULL, NULL};
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&primary, 0), 0);
    contexts[1] = primary;
    for (int i = 0; i < 2; i++) {
        unsigned char out[16];
        drv->cuCtxSetCurrent(contexts[i]);
        culvert_future *future = culvert_fill(f.stream, buffer, 0, 16, (uint32_t)i, 1);
        drv->cuCtxGetCurrent(&now);
        ck_assert_ptr_eq(now, contexts[i]);
        gpu_fixture_ok(future);
        gpu_fixture_ok(culvert_download(f.stream, out, buffer, 0, 16));
        ck_assert_int_eq(out[3], i);
        culvert_stream *stream = culvert_stream_new(f.gpu, NULL, NULL);
        culvert_stream_unref(stream);
        culvert_stream_unref(culvert_stream_pick(f.gpu, 0, NULL));
        culvert_buffer_unref(culvert_buffer_new(f.gpu, 100, NULL));
        drv->cuCtxGetCurrent(&now);
        ck_assert_ptr_eq(now, contexts[i]);
    }
    drv->cuDevicePrimaryCtxRelease(0);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_timed_sequence_tells_its_device_time)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    for (int timed = 0; timed <= 1; timed++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &grid,
                           CULVERT_ARGS(CULVERT_U64(2000000)));
        if (timed)
            culvert_seq_timed(seq);
        culvert_future *future = culvert_seq_submit(seq);
        ck_assert(isnan(culvert_gpu_seconds(future)));
        gpu_fixture_ok(culvert_ref(future));
        double seconds = culvert_gpu_seconds(future);
        if (timed) {
            ck_assert_msg(seconds >= 0.002 && seconds < 60, "%g", seconds);
        } else {
            ck_assert(isnan(seconds));
        }
        culvert_unref(future);
    }
    culvert_future *other = culvert_resolved(f.loop, NULL, NULL);
    ck_assert(isnan(culvert_gpu_seconds(other)));
    culvert_unref(other);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_timed_sequence_counts_its_own_work_alone)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    if (!gpu_fixture_simulated())
        return;
    culvert_sim_virtual_time(1);
    culvert_sim_duration("empty", 0.25);
    culvert_future *futures[2];
    for (int i = 0; i < 2; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        for (int k = 0; k <= i; k++)
            culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0);
        culvert_seq_timed(seq);
        futures[i] = culvert_seq_submit(seq);
    }
    culvert_sim_advance(1.0);
    for (int i = 0; i < 2; i++) {
        gpu_fixture_ok(culvert_ref(futures[i]));
        ck_assert_double_eq_tol(culvert_gpu_seconds(futures[i]), 0.25 * (i + 1), 1e-4);
        culvert_unref(futures[i]);
    }
    culvert_sim_virtual_time(0);
}
END_TEST

/* ---- out of memory ---- */

static int call_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 0;
}

/* Waiting for a future needs memory too. */
static int await_all_the_same(culvert_future *future)
{
    int status;
    do
        status = culvert_await(future, 60);
    while (status == CULVERT_ENOMEM && culvert_status(future) == CULVERT_PENDING);
    return status;
}

/* All that a sequence can have; it is released once, whatever fails. Returns how it settled. */
static int everything(culvert_buffer *buffer, int *released)
{
    enum { BIG = 200000 };
    static unsigned char in[BIG], out[BIG];
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *first = culvert_seq_begin(f.stream), *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(first, gate);
    for (int i = 0; i < 3; i++) {
        culvert_seq_keep(seq, released, note_free);
        culvert_seq_call(seq, call_nothing, released, note_free);
    }
    culvert_seq_upload(seq, buffer, 0, in, 16);
    culvert_seq_upload(seq, buffer, 0, in, BIG);
    for (unsigned i = 0; i < 40; i++)
        gpu_fixture_add(&f, seq, buffer, i % 4, 1);
    culvert_seq_download(seq, out, buffer, 0, 16);
    culvert_seq_download(seq, out, buffer, 0, BIG);
    culvert_seq_timed(seq);
    culvert_future *before = culvert_seq_submit(first);
    culvert_seq_wait(seq, culvert_ref(before));
    culvert_future *future = culvert_seq_submit(seq);
    if (promise != NULL)
        culvert_resolve(promise, NULL, NULL);
    int status = await_all_the_same(future);
    (void)await_all_the_same(before);
    culvert_unref(before);
    culvert_unref(future);
    alloc_fail_off();
    gpu_fixture_run(&f, 0); /* keeps go behind the callbacks */
    return status;
}

START_TEST(out_of_memory_at_every_allocation_of_a_sequence)
{
    bool failed = true;
    int64_t live = 0;
    if (!gpu_fixture_simulated())
        return; /* the same, and it would take long */
    alloc_fail_this_thread(true);
    for (uint64_t n = 1; failed; n++) {
        int released = 0;
        gpu_fixture_close(&f);
        if (n > 2)
            ck_assert_int_eq(alloc_fail_live(), live);
        live = alloc_fail_live();
        gpu_fixture_open(&f, NULL, NULL);
        culvert_buffer *buffer = gpu_fixture_buffer(&f, 200000);
        alloc_fail_nth(n);
        int status = everything(buffer, &released);
        failed = alloc_fail_happened();
        if (!failed)
            ck_assert_int_eq(status, CULVERT_OK);
        else
            ck_assert_msg(status == CULVERT_OK || status == CULVERT_ENOMEM, "%s",
                          culvert_error_name(status));
        ck_assert_int_eq(released, 6);
        culvert_buffer_unref(buffer);
        if (!failed)
            ck_assert_uint_ge(n, 6); /* there was something to fail */
    }
}
END_TEST

/* The sequence that stands for one without memory is its device's: it holds that, as others do by their
   stream, until it is submitted or dropped. */
START_TEST(a_sequence_without_memory_holds_its_device)
{
    bool submit = _i % 2 == 0, before_loop_free = _i < 2;
    int freed = 0;
    gpu_fixture_close(&f);
    int64_t live = alloc_fail_live();
    gpu_fixture_open(&f, NULL, NULL);
    alloc_fail_this_thread(true);
    alloc_fail_nth(1);
    culvert_seq *seq = culvert_seq_begin(f.stream), *other = culvert_seq_begin(f.stream);
    ck_assert(alloc_fail_happened());
    alloc_fail_off();
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    culvert_seq_drop(other);
    f.module = NULL, f.stream = NULL, f.gpu = NULL;
    if (!before_loop_free) {
        culvert_loop_free(f.loop);
        f.loop = NULL;
    }
    culvert_seq_timed(seq);
    culvert_seq_keep(seq, &freed, note_free);
    ck_assert_int_eq(freed, 1);
    if (submit) {
        culvert_future *future = culvert_seq_submit(seq);
        ck_assert_int_eq(culvert_status(future), CULVERT_ESHUTDOWN); /* that counts more */
        (void)culvert_get_error(future);
        culvert_unref(future);
    } else {
        culvert_seq_drop(seq);
    }
    gpu_fixture_close(&f);
    ck_assert_int_eq(alloc_fail_live(), live);
}
END_TEST

/* ---- errors of the driver ---- */

START_TEST(an_error_of_the_driver_says_which_call_and_where)
{
    if (!gpu_fixture_simulated())
        return;
    some = gpu_fixture_buffer(&f, 100);
    culvert_sim_fail("cuMemsetD32Async", 1, 1);
    culvert_error err =
        gpu_fixture_fails(culvert_fill(f.stream, some, 0, 8, 0, 4), CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 1);
    ck_assert_str_eq(err.op, "culvert_seq_fill");
    ck_assert_ptr_nonnull(strstr(err.where, "test_seq_keep.c:"));
    gpu_fixture_says(&err, "cuMemsetD32Async");
    gpu_fixture_says(&err, "CUDA_ERROR_INVALID_VALUE");
    culvert_sim_fail("cuLaunchKernel", 1, 2);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, some, 0, 1);
    err = gpu_fixture_fails(culvert_seq_submit(seq), CULVERT_ENOMEM);
    ck_assert_int_eq(err.native, 2);
    culvert_buffer_unref(some);
}
END_TEST

/* It rejects when the part that is in the driver is over, and not earlier: that part uses the memory. */
START_TEST(an_error_midway_rejects_after_the_part_before_it)
{
    int freed = 0;
    unsigned out[4];
    if (!gpu_fixture_simulated())
        return;
    some = gpu_fixture_buffer(&f, 16);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &freed, note_free);
    for (unsigned i = 0; i < 4; i++)
        gpu_fixture_add(&f, seq, some, i, 1);
    culvert_sim_fail("cuLaunchKernel", 3, 701);
    uint64_t before = calls("cuLaunchKernel");
    culvert_future *future = culvert_seq_submit(seq);
    culvert_future *next = culvert_download(f.stream, out, some, 0, 16);
    ck_assert_uint_eq(calls("cuLaunchKernel"), before + 3);
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    ck_assert_int_eq(freed, 0);
    culvert_sim_release(NULL);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 701);
    gpu_fixture_ok(next); /* failure does not travel by stream order */
    ck_assert_int_eq(freed, 1);
    ck_assert_uint_eq(out[0] + out[1], 2);
    ck_assert_uint_eq(out[2] + out[3], 0);
    culvert_buffer_unref(some);
}
END_TEST

/* An event that was not recorded would answer "complete" at once. */
START_TEST(case_050_an_event_that_was_not_recorded_is_not_asked)
{
    if (!gpu_fixture_simulated())
        return;
    some = gpu_fixture_buffer(&f, 16);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_sim_fail("cuEventRecord", 1, 1);
    culvert_future *future = culvert_fill(f.stream, some, 0, 16, 0, 1);
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    culvert_sim_release(NULL);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EDRIVER);
    gpu_fixture_says(&err, "cuEventRecord");
    culvert_buffer_unref(some);
}
END_TEST

static Suite *seq_keep_suite(void)
{
    Suite *suite = suite_create("seq_keep");
    TCase *tc = tcase_create("holds");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_keep_is_freed_once_after_the_callbacks);
    tcase_add_test(tc, what_was_not_submitted_frees_its_keeps_at_once);
    tcase_add_test(tc, a_refused_sequence_frees_what_it_has);
    tcase_add_loop_test(tc, a_keep_may_take_the_binding_down, 0, 4);
    tcase_add_test(tc, dropping_a_sequence_cancels_what_only_it_waited_for);
    tcase_add_test(tc, scratch_memory_is_the_sequences_alone);
    tcase_add_test(tc, scratch_that_is_not_there_rejects);
    tcase_add_test(tc, a_buffer_that_only_a_call_names_is_held_by_use);
    suite_add_tcase(suite, tc);

    tc = tcase_create("calls");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_call_is_in_order_with_its_context_current);
    tcase_add_test(tc, what_a_call_returns_rejects);
    tcase_add_test(tc, the_argument_of_a_call_is_released_once_on_each_way);
    tcase_add_test(tc, case_100_arguments_are_copied_at_the_call);
    tcase_add_test(tc, case_058_the_threads_context_is_as_before_each_call);
    tcase_add_test(tc, a_timed_sequence_tells_its_device_time);
    tcase_add_test(tc, a_timed_sequence_counts_its_own_work_alone);
    suite_add_tcase(suite, tc);

    tc = tcase_create("errors");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, an_error_of_the_driver_says_which_call_and_where);
    tcase_add_test(tc, an_error_midway_rejects_after_the_part_before_it);
    tcase_add_test(tc, case_050_an_event_that_was_not_recorded_is_not_asked);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_a_sequence);
    tcase_add_loop_test(tc, a_sequence_without_memory_holds_its_device, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {seq_keep_suite(), NULL};
    return test_main(suites);
}
