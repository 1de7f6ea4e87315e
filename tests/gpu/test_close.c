/* SPDX-License-Identifier: BSD-2-Clause */
/* How everything ends: in any order, in any callback, with work that is over, under way, or never over. */
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

static gpu_fixture f;

/* Bounds are far from what is expected: the machine may be busy. */
static const double bounded = 20;

static void begin(double close_seconds)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.close_seconds = close_seconds;
    gpu_fixture_open(&f, &options, NULL);
}

static void count_free(void *p)
{
    ++*(int *)p;
}

/* ---- in any order ---- */

typedef struct pieces {
    culvert_future *future;
    culvert_buffer *buffer;
    culvert_stream *stream;
    culvert_module *module;
    culvert_gpu *gpu;
    culvert_loop *loop;
} pieces;

static void give_up(pieces *p, unsigned which)
{
    switch (which) {
    case 0: culvert_unref(p->future); break;
    case 1: culvert_buffer_unref(p->buffer); break;
    case 2: culvert_stream_unref(p->stream); break;
    case 3: culvert_gpu_close(p->gpu); break;
    case 4: culvert_loop_free(p->loop); break;
    default: culvert_module_unref(p->module); break;
    }
}

/* The order of number n of the 120 of five. */
static void order_of(unsigned n, unsigned order[5])
{
    unsigned left[5] = {0, 1, 2, 3, 4}, size = 5;
    for (unsigned i = 0; i < 5; i++) {
        unsigned k = n % size;
        n /= size;
        order[i] = left[k];
        left[k] = left[--size];
    }
}

static void end_in_order(const unsigned order[5], unsigned where_module, bool turn)
{
    culvert_error err = CULVERT_ERROR_INIT;
    pieces p;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    p.loop = culvert_loop_new(ev, NULL, &err);
    p.gpu = culvert_gpu_open(p.loop, 0, NULL, &err);
    p.stream = culvert_stream_new(p.gpu, NULL, &err);
    p.buffer = culvert_buffer_new(p.gpu, 4096, &err);
    ck_assert_msg(p.buffer != NULL, "%s", err.message);
    culvert_future *loaded = culvert_module_load(p.gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    p.module = culvert_take(loaded);
    culvert_unref(loaded);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_kernel *kernel = culvert_module_kernel(p.module, "add_word", &err);
    culvert_seq *seq = culvert_seq_begin(p.stream);
    culvert_seq_fill(seq, p.buffer, 0, 4096, 0, 4);
    culvert_seq_launch(seq, kernel, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(p.buffer), CULVERT_U32(0), CULVERT_U32(1)));
    p.future = culvert_seq_submit(seq);
    for (unsigned i = 0; i < 5; i++) {
        if (i == where_module)
            give_up(&p, 5);
        give_up(&p, order[i]);
        if (turn && order[i] != 4)
            ev_run(ev, EVRUN_NOWAIT);
    }
    if (where_module >= 5)
        give_up(&p, 5);
    ev_run(ev, EVRUN_NOWAIT);
    ev_loop_destroy(ev);
}

START_TEST(in_every_order_with_work_under_way)
{
    gpu_fixture_reset();
    trial_keep_context();
    unsigned step = gpu_fixture_simulated() ? 1 : 17;
    for (unsigned n = 0; n < 120; n += step) {
        unsigned order[5];
        order_of(n, order);
        end_in_order(order, n % 6, n % 2 == 0);
        if (gpu_fixture_simulated())
            ck_assert_msg(culvert_sim_live("stream") == 0 && culvert_sim_live("event") == 0 &&
                              culvert_sim_live("device bytes") == 0 &&
                              culvert_sim_live("pinned bytes") == 0 &&
                              culvert_sim_live("module") == 0,
                          "order %u (%u %u %u %u %u) leaves %llu streams, %llu events, %llu and "
                          "%llu bytes, %llu modules",
                          n, order[0], order[1], order[2], order[3], order[4],
                          (unsigned long long)culvert_sim_live("stream"),
                          (unsigned long long)culvert_sim_live("event"),
                          (unsigned long long)culvert_sim_live("device bytes"),
                          (unsigned long long)culvert_sim_live("pinned bytes"),
                          (unsigned long long)culvert_sim_live("module"));
    }
    gpu_fixture_nothing_left();
}
END_TEST

/* ---- the handle of the device ---- */

START_TEST(a_closed_device_finishes_and_takes_nothing_new)
{
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_stream *stream = gpu_fixture_stream(&f);
    if (!gpu_fixture_simulated())
        (void)gpu_fixture_kernel(&f, "gate");
    gpu_fixture_hold(&f, stream);
    outcomes all;
    outcomes_begin(&all, 5);
    static unsigned words[2];
    outcomes_add(&all, culvert_fill(stream, buffer, 0, 4096, 3, 4));
    outcomes_add(&all, culvert_download(stream, words, buffer, 4088, 8));
    culvert_gpu_close(f.gpu);
    f.gpu = NULL;
    culvert_future *late = culvert_fill(stream, buffer, 0, 4, 0, 4);
    ck_assert_int_eq(culvert_status(late), CULVERT_ESHUTDOWN);
    culvert_error err = *culvert_get_error(late);
    gpu_fixture_says(&err, "closed");
    culvert_unref(late);
    culvert_seq *seq = culvert_seq_begin(stream);
    late = culvert_seq_submit(seq);
    ck_assert_int_eq(culvert_status(late), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(culvert_get_error(late)->code, CULVERT_ESHUTDOWN);
    culvert_unref(late);
    ck_assert_uint_eq(culvert_buffer_size(buffer), 4096);
    gpu_fixture_release(&f);
    ck_assert(outcomes_wait(&all, f.ev, 60));
    outcomes_all(&all, CULVERT_OK);
    ck_assert_uint_eq(words[0], 3);
    ck_assert_uint_eq(words[1], 3);
    culvert_stream_unref(stream);
    culvert_buffer_unref(buffer);
    outcomes_end(&all);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(a_closed_device_goes_by_itself)
{
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_sim_hold(NULL);
    culvert_detach(culvert_fill(f.stream, buffer, 0, 4096, 3, 4));
    trial_turn(f.ev, 0.01);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(f.gate);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    ck_assert_uint_gt(culvert_sim_live("stream"), 0); /* it works to the last */
    culvert_sim_release(NULL);
    ev_run(f.ev, 0);
    for (int i = 0; i < 1000 && culvert_sim_live("stream") > 0; i++)
        trial_turn(f.ev, 0.005); /* a host function of ours may be on its way */
    gpu_fixture_nothing_left();
    culvert_loop_free(f.loop);
    ev_loop_destroy(f.ev);
}
END_TEST

/* ---- culvert_loop_free ---- */

START_TEST(case_007_completions_that_were_not_drained)
{
    enum { N = 5 };
    outcomes all;
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    outcomes_begin(&all, N);
    culvert_sim_hold(NULL);
    for (size_t i = 0; i < N; i++)
        outcomes_add(&all, culvert_fill(f.stream, buffer, 64 * i, 64, 1, 4));
    trial_turn(f.ev, 0.02); /* armed */
    culvert_sim_release(NULL);
    test_sleep(0.05); /* over, and posted */
    ck_assert_uint_eq(all.settled, 0);
    culvert_loop_free(f.loop);
    ck_assert_uint_eq(all.settled, N); /* inside */
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(all.list[i].calls, 1);
        ck_assert_int_eq(all.list[i].frees, 1);
        ck_assert(all.list[i].status == CULVERT_OK || all.list[i].status == CULVERT_ESHUTDOWN);
    }
    ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_uint_eq(all.clock, N); /* nothing runs afterwards */
    culvert_buffer_unref(buffer);
    f.loop = NULL;
    gpu_fixture_close(&f);
    outcomes_end(&all);
}
END_TEST

static void check_refusals(culvert_buffer *buffer)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *late = culvert_fill(f.stream, buffer, 0, 4, 0, 4);
    ck_assert_int_eq(culvert_status(late), CULVERT_ESHUTDOWN);
    culvert_unref(late);
    late = culvert_module_load(f.gpu, &culvert_image_fixture);
    ck_assert_int_eq(culvert_status(late), CULVERT_ESHUTDOWN);
    culvert_unref(late);
    ck_assert_ptr_null(culvert_stream_new(f.gpu, NULL, &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(culvert_buffer_new(f.gpu, 10, &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(culvert_host_buffer_new(f.gpu, 10, &err));
    ck_assert_ptr_null(culvert_module_kernel(f.module, "empty", &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(culvert_stream_native(f.stream));
    ck_assert_uint_gt(culvert_buffer_size(buffer), 0);
}

/* What the device still holds is leaked and never used again; everything else is as after any end. */
START_TEST(case_035_case_048_work_that_is_held_for_ever)
{
    outcomes all;
    int kept = 0, queued = 0;
    static unsigned char memory[500000], small[64];
    gpu_fixture second;
    begin(0.1);
    gpu_fixture_open_as_is(&second, NULL, NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 1200000);
    culvert_stream *streams[3] = {gpu_fixture_stream(&f), gpu_fixture_stream(&f),
                                  gpu_fixture_stream(&f)};
    culvert_future *gate;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    outcomes_begin(&all, 20);
    for (int i = 0; i < 3; i++)
        culvert_sim_hold(culvert_stream_native(streams[i]));
    culvert_seq *seq = culvert_seq_begin(streams[0]);
    culvert_seq_fill(seq, buffer, 0, 4096, 1, 4);
    culvert_seq_keep(seq, &kept, count_free);
    outcomes_add(&all, culvert_seq_submit(seq));
    seq = culvert_seq_begin(streams[0]); /* in the library: it will never be in the driver */
    culvert_seq_wait(seq, gate);
    culvert_seq_fill(seq, buffer, 0, 4096, 2, 4);
    culvert_seq_keep(seq, &queued, count_free);
    outcomes_add(&all, culvert_seq_submit(seq));
    outcomes_add(&all, culvert_upload(streams[1], buffer, 8192, memory, sizeof memory));
    outcomes_add(&all, culvert_upload(streams[1], buffer, 8192, small, sizeof small));
    outcomes_add(&all, culvert_download(streams[2], memory, buffer, 600064, sizeof memory));
    outcomes_add(&all, culvert_download(streams[2], small, buffer, 600064, sizeof small));
    trial_turn(f.ev, 0.05);
    ck_assert_uint_eq(all.settled, 0);

    double start = test_now();
    culvert_loop_free(f.loop);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    outcomes_all(&all, CULVERT_ESHUTDOWN); /* the callbacks ran inside */
    ck_assert_int_eq(kept, 0);
    ck_assert_int_eq(queued, 1);
    check_refusals(buffer);
    culvert_promise_drop(promise);
    for (int i = 0; i < 3; i++)
        culvert_stream_unref(streams[i]);
    uint64_t bytes = culvert_sim_live("device bytes");
    culvert_buffer_unref(buffer);
    f.loop = NULL;
    f.dirty = true;
    gpu_fixture_close(&f);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), bytes); /* it is in use */
    memset(small, 0x55, sizeof small);

    /* Other users of the device get other memory, and then the work goes on into nobody's. */
    culvert_buffer *other = gpu_fixture_buffer(&second, 600000);
    gpu_fixture_ok(culvert_fill(second.stream, other, 0, 600000, 0x77777777, 4));
    culvert_sim_release(NULL);
    for (int i = 0; i < 2000 && culvert_sim_live("operation") > 0; i++)
        test_sleep(0.005);
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
    static unsigned words[150000];
    gpu_fixture_ok(culvert_download(second.stream, words, other, 0, sizeof words));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        ck_assert_uint_eq(words[i], 0x77777777);
    for (size_t i = 0; i < sizeof small; i++)
        ck_assert_uint_eq(small[i], 0x55); /* dst was the program's again */
    ck_assert_int_eq(kept, 0);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
    culvert_buffer_unref(other);
    second.dirty = true;
    gpu_fixture_close(&second);
    outcomes_end(&all);
}
END_TEST

/* On a GPU: a kernel that does not end before the loop's patience does. */
START_TEST(case_048_a_kernel_that_outlives_the_loop)
{
    outcomes all;
    begin(0.05);
    outcomes_begin(&all, 3);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    if (gpu_fixture_simulated())
        culvert_sim_duration("busy", 1.5);
    outcomes_add(&all, culvert_launch(f.stream, gpu_fixture_kernel(&f, "busy"), &grid,
                                      CULVERT_ARGS(CULVERT_U64(1500000000))));
    outcomes_add(&all, culvert_fill(f.stream, buffer, 0, 4096, 1, 4));
    trial_turn(f.ev, 0.02);
    double start = test_now();
    culvert_loop_free(f.loop);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    outcomes_all(&all, CULVERT_ESHUTDOWN);
    check_refusals(buffer);
    culvert_buffer_unref(buffer);
    f.loop = NULL;
    f.dirty = true;
    gpu_fixture_close(&f);
    outcomes_end(&all);
}
END_TEST

static void not_lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    (void)gpu;
    (void)arg;
    ck_abort_msg("lost: %s", err->message);
}

/* What the device still uses holds the device, for ever; but nobody will be told of its loss. */
START_TEST(the_argument_of_on_lost_is_freed_although_the_work_does_not_end)
{
    int freed = 0;
    begin(0.01);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_gpu_on_lost(f.gpu, not_lost, &freed, count_free);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_detach(culvert_fill(f.stream, buffer, 0, 4096, 1, 4));
    culvert_buffer_unref(buffer);
    culvert_loop_free(f.loop);
    ck_assert_int_eq(freed, 1);
    f.loop = NULL;
    f.dirty = true;
    gpu_fixture_close(&f);
    ck_assert_int_eq(freed, 1);
    culvert_sim_release(NULL);
}
END_TEST

/* The driver does not come back from a load: it waits for what is held, and so does the thread that is in
   it. Others' launches would wait too, so there are none. */
START_TEST(a_module_load_that_is_stuck_in_the_driver)
{
    outcomes all;
    begin(0.1);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    outcomes_begin(&all, 3);
    culvert_sim_strict(0);
    culvert_sim_hold(NULL);
    outcomes_add(&all, culvert_fill(f.stream, buffer, 0, 64, 0, 4));
    outcomes_add(&all, culvert_module_load(f.gpu, &culvert_image_fixture));
    outcomes_add(&all, culvert_module_load(f.gpu, &culvert_image_fixture)); /* not begun */
    trial_turn(f.ev, 0.05);
    ck_assert_uint_eq(all.settled, 0);
    double start = test_now();
    culvert_loop_free(f.loop);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    outcomes_all(&all, CULVERT_ESHUTDOWN);
    check_refusals(buffer);
    culvert_buffer_unref(buffer);
    f.loop = NULL;
    f.dirty = true;
    gpu_fixture_close(&f);
    culvert_sim_release(NULL);
    test_sleep(0.05); /* and then it comes back, to nobody */
    outcomes_end(&all);
}
END_TEST

/* The host function runs when future, stream, device and binding are gone. */
START_TEST(case_035_the_host_function_comes_last)
{
    if (!gpu_fixture_arms())
        return;
    begin(0.1);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    culvert_sim_hold(NULL);
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    culvert_unref(culvert_fill(f.stream, buffer, 0, 64, 0, 4));
    trial_turn(f.ev, 0.02); /* armed */
    ck_assert_uint_gt(culvert_sim_calls("cuLaunchHostFunc"), 0);
    culvert_sim_release(NULL);
    culvert_buffer_unref(buffer);
    double start = test_now();
    f.dirty = true;
    gpu_fixture_close(&f);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    for (int i = 0; i < 2000 && culvert_sim_live("operation") > 0; i++)
        test_sleep(0.005);
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
}
END_TEST

/* ---- inside callbacks: rule 10 ---- */

enum piece {
    THE_LOOP = 1,
    THE_GPU = 2,
    THE_STREAM = 4,
    THE_BUFFER = 8,
    THE_MODULE = 16,
    THE_FUTURE = 32,
    THE_SIBLING = 64,
    EVERYTHING = 127
};

static culvert_buffer *a_buffer;
static culvert_future *the_future, *a_sibling;
static int ends;

/* Each only once. */
static void let_go(unsigned what)
{
    ends++;
    if (what & THE_SIBLING) {
        culvert_unref(a_sibling);
        a_sibling = NULL;
    }
    if (what & THE_FUTURE) {
        culvert_unref(the_future);
        the_future = NULL;
    }
    if (what & THE_BUFFER) {
        culvert_buffer_unref(a_buffer);
        a_buffer = NULL;
    }
    if (what & THE_MODULE) {
        culvert_module_unref(f.module);
        f.module = NULL;
    }
    if (what & THE_STREAM) {
        culvert_stream_unref(f.stream);
        f.stream = NULL;
    }
    if (what & THE_GPU) {
        culvert_gpu_close(f.gpu);
        f.gpu = NULL;
    }
    if (what & THE_LOOP) {
        culvert_loop_free(f.loop);
        f.loop = NULL;
    }
}

static void in_on_settled(culvert_future *done, void *arg)
{
    let_go(*(unsigned *)arg);
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING); /* it is there to the end */
}

static culvert_future *in_step(culvert_future *done, void *arg)
{
    let_go(*(unsigned *)arg);
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
    return NULL;
}

static void in_free(void *arg)
{
    let_go(*(unsigned *)arg);
}

static void nothing(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
}

static void submit_with(unsigned where, unsigned *what, bool fails)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, a_buffer, 0, 64, 1, 4);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0);
    if (fails)
        culvert_sim_fail("cuLaunchKernel", 1, 1);
    if (where == 2)
        culvert_seq_keep(seq, what, in_free);
    culvert_future *future = culvert_seq_submit(seq);
    a_sibling = culvert_fill(f.stream, a_buffer, 64, 64, 2, 4);
    the_future = culvert_ref(future);
    if (where == 0)
        (void)culvert_on_settled(future, in_on_settled, what, NULL);
    else if (where == 1)
        (void)culvert_on_settled(culvert_finally(future, in_step, what, NULL), nothing, NULL, NULL);
    else if (where == 3)
        (void)culvert_on_settled(future, nothing, what, in_free);
    else
        (void)culvert_on_settled(future, nothing, NULL, NULL);
}

static void freed_inside(unsigned where, unsigned what, bool fails)
{
    begin(0);
    ends = 0;
    a_buffer = gpu_fixture_buffer(&f, 4096);
    submit_with(where, &what, fails);
    ev_run(f.ev, 0);
    ck_assert_int_eq(ends, 1);
    /* What is left, in the usual order. */
    culvert_unref(a_sibling);
    culvert_unref(the_future);
    culvert_buffer_unref(a_buffer);
    a_sibling = the_future = NULL;
    a_buffer = NULL;
    gpu_fixture_close(&f);
}

START_TEST(everything_is_freed_inside_callbacks)
{
    static const unsigned sets[] = {THE_FUTURE,
                                    THE_SIBLING,
                                    THE_STREAM | THE_BUFFER,
                                    THE_MODULE,
                                    THE_GPU,
                                    THE_GPU | THE_STREAM | THE_MODULE | THE_BUFFER,
                                    THE_LOOP,
                                    THE_LOOP | THE_GPU,
                                    EVERYTHING & ~(unsigned)THE_LOOP,
                                    EVERYTHING};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        for (unsigned where = 0; where < 4; where++)
            freed_inside(where, sets[i], false);
}
END_TEST

START_TEST(everything_is_freed_inside_callbacks_of_what_failed)
{
    for (unsigned where = 0; where < 4; where++) {
        freed_inside(where, EVERYTHING, true);
        freed_inside(where, THE_GPU | THE_STREAM, true);
    }
}
END_TEST

static int refuse(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 5;
}

/* Functions that run inside a public call: of what is dropped, or cannot be submitted. */
START_TEST(everything_is_freed_while_a_sequence_is_given_up)
{
    for (unsigned how = 0; how < 4; how++) {
        unsigned what = EVERYTHING & ~(unsigned)(THE_FUTURE | THE_SIBLING);
        begin(0);
        ends = 0;
        a_buffer = gpu_fixture_buffer(&f, 4096);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_fill(seq, a_buffer, 0, 64, 1, 4);
        culvert_seq_keep(seq, &what, in_free);
        culvert_future *future = NULL;
        if (how == 0) {
            culvert_seq_drop(seq);
        } else if (how == 1) {
            culvert_seq_fill(seq, a_buffer, 4096, 64, 1, 4); /* past the end */
            future = culvert_seq_submit(seq);
            ck_assert_int_eq(culvert_status(future), CULVERT_EINVAL);
            ck_assert_int_eq(culvert_get_error(future)->code, CULVERT_EINVAL);
        } else if (how == 2) {
            culvert_seq_call(seq, refuse, NULL, NULL); /* in the driver, and then it fails */
            future = culvert_seq_submit(seq);
        } else {
            culvert_gpu_close(f.gpu);
            f.gpu = NULL;
            what &= ~(unsigned)THE_GPU;
            future = culvert_seq_submit(seq);
            ck_assert_int_eq(culvert_status(future), CULVERT_ESHUTDOWN);
            ck_assert_int_eq(culvert_get_error(future)->code, CULVERT_ESHUTDOWN);
        }
        if (future != NULL)
            (void)culvert_on_settled(future, nothing, NULL, NULL);
        ev_run(f.ev, 0);
        ck_assert_int_eq(ends, 1);
        gpu_fixture_close(&f);
    }
}
END_TEST

static void free_loop_now(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    culvert_loop_free(f.loop);
    f.loop = NULL;
}

/* Others are pending, and one is held for ever. */
START_TEST(the_loop_is_freed_inside_a_callback_with_work_under_way)
{
    outcomes all;
    begin(0.1);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_stream *held = gpu_fixture_stream(&f);
    culvert_sim_hold(culvert_stream_native(held));
    outcomes_begin(&all, 4);
    outcomes_add(&all, culvert_fill(held, buffer, 0, 64, 1, 4));
    outcomes_add(&all, culvert_sleep(f.loop, 1000));
    ck_assert_int_eq(culvert_on_settled(culvert_fill(f.stream, buffer, 64, 64, 1, 4), free_loop_now,
                                        NULL, NULL),
                     CULVERT_OK);
    outcomes_add(&all, culvert_fill(f.stream, buffer, 128, 64, 1, 4));
    double start = test_now();
    ev_run(f.ev, 0);
    ck_assert_msg(test_now() - start < bounded, "it took %.3f s", test_now() - start);
    ck_assert_uint_eq(all.settled, 3);
    ck_assert_int_eq(all.list[0].status, CULVERT_ESHUTDOWN);
    ck_assert_int_eq(all.list[1].status, CULVERT_ESHUTDOWN);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(all.list[i].calls, 1);
    culvert_buffer_unref(buffer);
    culvert_stream_unref(held);
    f.dirty = true;
    gpu_fixture_close(&f);
    culvert_sim_release(NULL);
    outcomes_end(&all);
}
END_TEST

/* ---- the process ends ---- */

static int exit_now(void *arg)
{
    unsigned how = *(unsigned *)arg;
    static char memory[2000000];
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, sizeof memory);
    (void)gpu_fixture_kernel(&f, "gate");
    if (how == 3 && gpu_fixture_simulated())
        culvert_sim_poison(0, 700);
    gpu_fixture_hold(&f, f.stream);
    for (int i = 0; i < 10; i++)
        culvert_detach(culvert_fill(f.stream, buffer, 0, 4096, 1, 4));
    culvert_detach(culvert_upload(f.stream, buffer, 0, memory, sizeof memory));
    culvert_detach(culvert_download(f.stream, memory, buffer, 0, sizeof memory));
    if (how == 1 && gpu_fixture_simulated())
        culvert_sim_strict(0); /* a load stalls the loop's launches */
    if (how == 1)
        culvert_detach(culvert_module_load(f.gpu, &culvert_image_fixture));
    if (how != 1 && how != 3)
        trial_turn(f.ev, 0.02);
    if (how == 2) {
        culvert_gpu_close(f.gpu);
        culvert_stream_unref(f.stream);
    }
    exit(0); /* exit handlers and destructors run, threads of the library too */
}

START_TEST(case_057_the_process_ends_with_work_pending)
{
    for (unsigned how = 0; how < 4; how++) {
        test_child child = test_child_run(exit_now, &how, 0, 60);
        ck_assert_msg(child.ended && child.status == 0, "%u: status %d, signal %d%s: %s", how,
                      child.status, child.signal, child.timed_out ? ", too late" : "",
                      child.output);
        ck_assert_msg(child.output[0] == '\0' || how == 3, "%u: it said: %s", how, child.output);
    }
}
END_TEST

/* ---- the life of the loop ---- */

static void *release_later(void *arg)
{
    (void)arg;
    test_sleep(0.1);
    gpu_fixture_release(&f);
    return NULL;
}

START_TEST(case_005_the_loop_lives_as_long_as_the_work)
{
    pthread_t thread;
    outcomes all;
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    outcomes_begin(&all, 1);
    gpu_fixture_hold(&f, f.stream);
    outcomes_add(&all, culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    pthread_create(&thread, NULL, release_later, NULL);
    ev_run(f.ev, 0); /* no other watcher is there */
    ck_assert_uint_eq(all.settled, 1);
    ck_assert_int_eq(all.list[0].status, CULVERT_OK);
    pthread_join(thread, NULL);
    culvert_buffer_unref(buffer);
    outcomes_end(&all);
    gpu_fixture_close(&f);
}
END_TEST

static void never_fires(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    ck_abort_msg("the loop was kept alive");
}

/* A watcher that does not count tells whether the loop ends by itself. */
static void ends_by_itself(void)
{
    ev_timer timer;
    ev_now_update(f.ev);
    ev_timer_init(&timer, never_fires, 50., 0.);
    ev_timer_start(f.ev, &timer);
    ev_unref(f.ev);
    ev_run(f.ev, 0);
    ev_ref(f.ev);
    ev_timer_stop(f.ev, &timer);
}

/* One of each kind of ending; how many of them there are. */
enum { KINDS = 6 };

static culvert_future *one_of_each(culvert_buffer *buffer, unsigned i)
{
    culvert_seq *seq;
    culvert_future *future;
    size_t at = i % 64 * 64;
    switch (i % KINDS) {
    case 0: return culvert_fill(f.stream, buffer, at, 64, i, 4);
    case 1: /* cancelled at once: it is in the driver, or not yet */
        future = culvert_fill(f.stream, buffer, at, 64, i, 4);
        culvert_cancel(future);
        return future;
    case 2: return culvert_timeout(culvert_fill(f.stream, buffer, at, 64, i, 4), 0.0);
    case 3: return culvert_fill(f.stream, buffer, 4096, 64, i, 4); /* past the end */
    case 4:
        seq = culvert_seq_begin(f.stream);
        culvert_seq_fill(seq, buffer, at, 64, i, 4);
        culvert_seq_call(seq, refuse, NULL, NULL);
        return culvert_seq_submit(seq);
    default:
        seq = culvert_seq_begin(f.stream);
        culvert_seq_timed(seq);
        culvert_seq_wait(seq, culvert_stream_done(f.stream));
        culvert_seq_fill(seq, buffer, at, 64, i, 4);
        return culvert_seq_submit(seq);
    }
}

static void settled_somehow(culvert_future *done, void *arg)
{
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
    (void)culvert_get_error(done);
    ++*(unsigned *)arg;
}

START_TEST(case_006_the_loop_ends_when_the_work_does)
{
    enum { N = 1000 };
    unsigned done = 0;
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    for (int round = 0; round < 3; round++) {
        done = 0;
        for (unsigned i = 0; i < N; i++)
            ck_assert_int_eq(culvert_on_settled(one_of_each(buffer, i), settled_somehow, &done,
                                                NULL),
                             CULVERT_OK);
        ends_by_itself();
        ck_assert_uint_eq(done, N);
        ends_by_itself(); /* with nothing at all, at once */
    }
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* ---- what steady work makes of the driver ---- */

static const char *const makers[] = {"cuMemHostAlloc",  "cuMemFreeHost",
                                     "cuMemAlloc",      "cuMemFree",
                                     "cuEventCreate",   "cuStreamCreateWithPriority",
                                     "cuStreamDestroy", "cuEventDestroy"};
enum { MAKERS = sizeof makers / sizeof makers[0] };

/* A request as a server makes it: memory of its own, upload, kernel, download, timed. */
static culvert_future *request(culvert_kernel *kernel, const unsigned *in, unsigned *out,
                               unsigned n)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_grid grid = {.blocks = {(n + 63) / 64}, .threads = {64}};
    culvert_buffer *a = culvert_buffer_new(f.gpu, n * sizeof *in, &err);
    culvert_buffer *b = culvert_buffer_new(f.gpu, n * sizeof *in, &err);
    ck_assert_msg(a != NULL && b != NULL, "%s", err.message);
    culvert_stream *s = culvert_stream_pick(f.gpu, CULVERT_PRIORITY_NORMAL, &err);
    ck_assert_msg(s != NULL, "%s", err.message);
    culvert_seq *seq = culvert_seq_begin(s);
    culvert_seq_timed(seq);
    culvert_seq_upload(seq, a, 0, in, n * sizeof *in);
    culvert_seq_launch(seq, kernel, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(b), CULVERT_BUFFER(a), CULVERT_U32(n),
                                    CULVERT_U32(7)));
    culvert_seq_download(seq, out, b, 0, n * sizeof *in);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
    culvert_stream_unref(s);
    return future;
}

enum { SIDE_BY_SIDE = 8, WORDS = 500 };

static void requests(culvert_kernel *kernel, unsigned n)
{
    static unsigned in[WORDS], out[SIDE_BY_SIDE][WORDS];
    for (unsigned i = 0; i < WORDS; i++)
        in[i] = i * 3;
    for (unsigned done = 0; done < n; done += SIDE_BY_SIDE) {
        culvert_future *set[SIDE_BY_SIDE];
        for (unsigned k = 0; k < SIDE_BY_SIDE; k++)
            set[k] = request(kernel, in, out[k], WORDS);
        gpu_fixture_ok(culvert_all(f.loop, set, SIDE_BY_SIDE));
        for (unsigned k = 0; k < SIDE_BY_SIDE; k++)
            ck_assert_uint_eq(out[k][WORDS - 1], (WORDS - 1) * 3 + 7);
        memset(out, 0, sizeof out);
    }
}

START_TEST(case_065_steady_work_makes_nothing)
{
    uint64_t before[MAKERS];
    begin(0);
    culvert_kernel *kernel = gpu_fixture_kernel(&f, "add_all");
    requests(kernel, 104);
    for (int i = 0; i < MAKERS; i++)
        before[i] = culvert_sim_calls(makers[i]);
    requests(kernel, 10000);
    for (int i = 0; i < MAKERS; i++)
        ck_assert_msg(culvert_sim_calls(makers[i]) == before[i], "%s was called %llu times",
                      makers[i], (unsigned long long)(culvert_sim_calls(makers[i]) - before[i]));
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(case_070_nothing_is_left_of_a_hundred_thousand_operations)
{
    enum { N = 100002, IN_FLIGHT = 96 };
    unsigned done = 0;
    uint64_t peak = 0;
    begin(0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    uint64_t first = culvert_sim_live("event");
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(culvert_on_settled(one_of_each(buffer, i), settled_somehow, &done, NULL),
                         CULVERT_OK);
        while (i + 1 - done > IN_FLIGHT)
            ev_run(f.ev, EVRUN_NOWAIT);
        if (i % 64 == 0 && culvert_sim_live("event") > peak)
            peak = culvert_sim_live("event");
    }
    ev_run(f.ev, 0);
    ck_assert_uint_eq(done, N);
    /* An operation has one event, and two more if it is timed. */
    ck_assert_msg(peak <= first + 3 * (IN_FLIGHT + CULVERT_CALL_WEIGHT),
                  "%llu events at most, %llu "
                  "in the beginning",
                  (unsigned long long)peak, (unsigned long long)first);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

int main(void)
{
    bool sim = gpu_fixture_simulated();
    trials *t = trials_new("close");
    TRIAL(t, in_every_order_with_work_under_way);
    TRIAL(t, a_closed_device_finishes_and_takes_nothing_new);
    TRIAL(t, case_048_a_kernel_that_outlives_the_loop);
    TRIAL(t, everything_is_freed_inside_callbacks);
    TRIAL(t, everything_is_freed_while_a_sequence_is_given_up);
    TRIAL(t, case_057_the_process_ends_with_work_pending);
    TRIAL(t, case_005_the_loop_lives_as_long_as_the_work);
    TRIAL(t, case_006_the_loop_ends_when_the_work_does);
    if (sim) {
        TRIAL(t, a_closed_device_goes_by_itself);
        TRIAL(t, case_007_completions_that_were_not_drained);
        TRIAL(t, case_035_case_048_work_that_is_held_for_ever);
        TRIAL(t, the_argument_of_on_lost_is_freed_although_the_work_does_not_end);
        TRIAL(t, a_module_load_that_is_stuck_in_the_driver);
        TRIAL(t, case_035_the_host_function_comes_last);
        TRIAL(t, everything_is_freed_inside_callbacks_of_what_failed);
        TRIAL(t, the_loop_is_freed_inside_a_callback_with_work_under_way);
        TRIAL(t, case_065_steady_work_makes_nothing);
        TRIAL(t, case_070_nothing_is_left_of_a_hundred_thousand_operations);
    }
    return trials_run(t);
}
