/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cancelled, dropped and timed out, in every state that a sequence can be in. What has not started never
 * runs; what has settles when its work is over, and nothing that it uses is free before.
 */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { ORDERS = 10000 };
#else
enum { ORDERS = 100000 };
#endif

enum { KIB = 1024, MIB = 1024 * KIB, BIG = 3 * MIB };

static gpu_fixture f;
static unsigned char *memory; /* ordinary memory of BIG bytes */

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    memory = calloc(1, BIG);
}

static void tear_down(void)
{
    if (f.gpu != NULL) {
        ck_assert_uint_eq(atomic_load(&f.gpu->device->units), 0);
        ck_assert(culvert__staging_at_rest(f.gpu));
    }
    gpu_fixture_close(&f);
    free(memory);
}

static void note_free(void *p)
{
    ++*(int *)p;
}

static bool device_is_idle(void *arg)
{
    (void)arg;
    return culvert_sim_live("operation") == 0;
}

/* ---- states ---- */

enum state {
    QUEUED,
    HELD,
    DEPENDENT,
    PART,
    FILLING,
    FLYING,
    FLYING_UP,
    FLYING_DOWN,
    COPYING,
    STATES
};

typedef struct victim {
    enum state state;
    culvert_future *future;
    culvert_buffer *words; /* [1]: what it adds to */
    culvert_promise *gate; /* of the states that wait for one */
    culvert_future *before;
    culvert_stream *other;
    int kept;
    bool started;
} victim;

static culvert_promise *gate_of(victim *v, culvert_seq *seq)
{
    culvert_future *gate = NULL;
    v->gate = culvert_promise_new(f.loop, &gate);
    culvert_seq_wait(seq, gate);
    return v->gate;
}

static void build(victim *v, culvert_seq *seq)
{
    unsigned adds = v->state == PART ? 2000 : 1;
    culvert_seq_keep(seq, &v->kept, note_free);
    if (v->state == FILLING)
        culvert_seq_upload(seq, v->words, 0, memory, BIG);
    if (v->state == FLYING_UP)
        culvert_seq_upload(seq, v->words, 8, memory, 4096);
    if (v->state == FLYING_DOWN)
        culvert_seq_download(seq, memory, v->words, 0, 4096);
    if (v->state == COPYING)
        culvert_seq_download(seq, memory, v->words, 0, BIG);
    for (unsigned i = 0; i < adds; i++)
        gpu_fixture_add(&f, seq, v->words, 1, 1);
}

static bool is_copying(void *arg)
{
    const culvert_seq *seq = culvert__seq_of(((victim *)arg)->future);
    return seq == NULL || seq->jobs > 0;
}

static void begin(victim *v, enum state state)
{
    *v = (victim){.state = state, .words = gpu_fixture_buffer(&f, BIG)};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    if (state == QUEUED) { /* behind one that is held */
        culvert_seq *head = culvert_seq_begin(f.stream);
        gate_of(v, head);
        v->before = culvert_seq_submit(head);
    } else if (state == HELD) {
        gate_of(v, seq);
    } else if (state == DEPENDENT) { /* of one on another stream that is not in the driver */
        v->other = gpu_fixture_stream(&f);
        culvert_seq *head = culvert_seq_begin(v->other);
        gate_of(v, head);
        v->before = culvert_seq_submit(head);
        culvert_seq_wait(seq, culvert_ref(v->before));
    } else if (state != COPYING) {
        culvert_sim_hold(culvert_stream_native(f.stream));
        v->started = state != FILLING;
    } else {
        v->started = true;
    }
    build(v, seq);
    v->future = culvert_seq_submit(seq);
    if (state == COPYING)
        gpu_fixture_until(&f, is_copying, v);
}

/* Lets what is held go on, and everything end. */
static void end(victim *v)
{
    culvert_sim_release(NULL);
    if (v->gate != NULL)
        culvert_resolve(v->gate, NULL, NULL);
    if (v->before != NULL)
        gpu_fixture_ok(v->before);
    gpu_fixture_idle(&f, f.stream);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(v->kept, 1);
    culvert_stream_unref(v->other);
}

static unsigned added(victim *v)
{
    unsigned out[2];
    gpu_fixture_ok(culvert_download(f.stream, out, v->words, 0, 8));
    return out[1];
}

/* ---- ways ---- */

START_TEST(cancelled_in_every_state)
{
    victim v;
    begin(&v, (enum state)_i);
    culvert_future *behind = culvert_stream_done(f.stream);
    culvert_cancel(v.future);
    if (!v.started) {
        if (v.state != FILLING) /* it settles when the worker has let go of its memory */
            ck_assert_int_eq(culvert_status(v.future), CULVERT_ECANCELED);
        (void)gpu_fixture_fails(v.future, CULVERT_ECANCELED);
        gpu_fixture_run(&f, 0.001);
        ck_assert_int_eq(v.kept, 1);
        if (v.state == HELD || v.state == DEPENDENT)
            gpu_fixture_ok(culvert_ref(behind)); /* those behind it are free to go */
        end(&v);
        ck_assert_uint_eq(added(&v), 0);
    } else {
        if (v.state != COPYING) {
            gpu_fixture_run(&f, 0.01);
            ck_assert_int_eq(culvert_status(v.future), CULVERT_PENDING);
            ck_assert_int_eq(v.kept, 0);
            culvert_sim_release(NULL);
        }
        if (v.state == PART) /* what was not in the driver is left out */
            (void)gpu_fixture_fails(v.future, CULVERT_ECANCELED);
        else
            gpu_fixture_ok(v.future); /* what has started has its real outcome */
        end(&v);
        if (v.state == PART)
            ck_assert(added(&v) <= 256 && added(&v) > 0);
        else
            ck_assert_uint_eq(added(&v), 1);
    }
    gpu_fixture_ok(behind);
    culvert_buffer_unref(v.words);
}
END_TEST

START_TEST(dropped_in_every_state)
{
    victim v;
    begin(&v, (enum state)_i);
    culvert_future *behind = culvert_stream_done(f.stream);
    culvert_unref(v.future);
    gpu_fixture_run(&f, 0.01);
    if (v.state != COPYING && v.state != FILLING)
        ck_assert_int_eq(v.kept, v.started ? 0 : 1);
    end(&v);
    ck_assert_uint_le(added(&v), !v.started ? 0 : v.state == PART ? 256 : 1);
    gpu_fixture_ok(behind);
    culvert_buffer_unref(v.words);
}
END_TEST

START_TEST(case_028_timed_out_in_every_state)
{
    victim v;
    begin(&v, (enum state)_i);
    double start = test_now();
    culvert_future *outer = culvert_timeout(culvert_ref(v.future), 0.02);
    culvert_unref(v.future);
    if (v.state == COPYING) { /* it may be over in time */
        int status = culvert_await(outer, 60);
        ck_assert(status == CULVERT_OK || status == CULVERT_ETIMEDOUT);
        culvert_unref(outer);
        gpu_fixture_run(&f, 0.03);
    } else {
        (void)gpu_fixture_fails(outer, CULVERT_ETIMEDOUT);
        ck_assert_double_ge(test_now() - start, 0.019);
        ck_assert_double_le(test_now() - start, 30);
        gpu_fixture_run(&f, 0.001);
        if (v.state != FILLING) { /* of that a part is in the driver by now */
            ck_assert_int_eq(v.kept, v.started ? 0 : 1); /* what it uses is the operation's still */
            ck_assert_uint_eq(culvert_stream_in_flight(f.stream), v.started ? 1 : 0);
        }
    }
    end(&v);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 0);
    culvert_buffer_unref(v.words);
}
END_TEST

/* ---- memory ---- */

/* The simulator poisons what is freed, and knows who uses what; here: nobody else gets the memory. */
START_TEST(case_071_memory_comes_back_when_the_work_is_over)
{
    culvert_error err = CULVERT_ERROR_INIT;
    unsigned char out[64];
    culvert__heap *heap = f.gpu->memory->local;
    size_t before = culvert__heap_used(heap);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, MIB);
    unsigned long long address = culvert_buffer_address(buffer);
    gpu_fixture_hold(&f, f.stream);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, buffer, 1, 1);
    culvert_seq_fill(seq, buffer, 0, MIB, 7, 1);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_buffer_unref(buffer);
    culvert_cancel(future);
    culvert_unref(future);
    for (int i = 0; i < 50; i++) {
        culvert_buffer *next = culvert_buffer_new(f.gpu, MIB, &err);
        ck_assert_msg(next != NULL, "%s", err.message);
        unsigned long long at = culvert_buffer_address(next);
        ck_assert(at + MIB <= address || at >= address + MIB);
        culvert_buffer_unref(next);
    }
    ck_assert_uint_ge(culvert__heap_used(heap), before + MIB);
    gpu_fixture_release(&f);
    gpu_fixture_idle(&f, f.stream);
    ck_assert_uint_eq(culvert__heap_used(heap), before);
    buffer = culvert_buffer_new(f.gpu, MIB, NULL);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, MIB, 9, 1));
    gpu_fixture_ok(culvert_download(f.stream, out, buffer, 0, sizeof out));
    ck_assert_int_eq(out[63], 9);
    culvert_buffer_unref(buffer);
}
END_TEST

/* Nothing is killed: the stream is as good as before. */
START_TEST(case_054_the_next_one_on_the_stream_is_right)
{
    unsigned out[2];
    culvert_buffer *words = gpu_fixture_buffer(&f, 8);
    for (int i = 0; i < 20; i++) {
        gpu_fixture_hold(&f, f.stream);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        gpu_fixture_add(&f, seq, words, 0, 1);
        culvert_future *running = culvert_seq_submit(seq);
        culvert_cancel(running);
        culvert_unref(running);
        seq = culvert_seq_begin(f.stream);
        gpu_fixture_add(&f, seq, words, 1, 1);
        culvert_seq_download(seq, out, words, 0, 8);
        culvert_future *next = culvert_seq_submit(seq);
        gpu_fixture_release(&f);
        gpu_fixture_ok(next);
        ck_assert_uint_eq(out[0], (unsigned)i + 1);
        ck_assert_uint_eq(out[1], (unsigned)i + 1);
    }
    culvert_buffer_unref(words);
}
END_TEST

/* ---- races ---- */

static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

typedef struct race {
    int settled, freed, status;
} race;

static void race_settled(culvert_future *done, void *arg)
{
    race *r = arg;
    r->settled++;
    r->status = culvert_status(done);
}

static void race_freed(void *arg)
{
    ((race *)arg)->freed++;
}

/* Completed, posted or not, drained or not; then cancelled or timed out in the same turn. */
static void one_order(culvert_buffer *buffer)
{
    static unsigned char in[300], out[300];
    race r = {0};
    int kept = 0;
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_keep(seq, &kept, note_free);
    if (pick(2) == 0)
        culvert_seq_upload(seq, buffer, 0, in, sizeof in);
    if (pick(2) == 0)
        culvert_seq_fill(seq, buffer, 0, 64, 1, 1);
    if (pick(2) == 0)
        culvert_seq_download(seq, out, buffer, 0, sizeof out);
    culvert_future *future = culvert_seq_submit(seq), *outer;
    outer = pick(3) == 0 ? culvert_timeout(culvert_ref(future), 0) : culvert_ref(future);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(outer), race_settled, &r, race_freed), 0);
    bool handle = true;
    for (unsigned steps = pick(5); steps > 0; steps--)
        switch (pick(5)) {
        case 0: culvert_cancel(outer); break;
        case 1: culvert_cancel(future); break;
        case 2: ev_run(f.ev, EVRUN_NOWAIT); break;
        case 3: (void)culvert_loop_arm(f.loop); break;
        default:
            for (int i = 0; i < 1000 && culvert_sim_live("operation") > 0; i++) {}
        }
    if (pick(2) == 0) {
        culvert_unref(future);
        handle = false;
    }
    culvert_unref(outer);
    ev_run(f.ev, 0); /* until nothing is pending */
    ck_assert_int_eq(r.settled, 1);
    ck_assert_int_eq(r.freed, 1);
    ck_assert_int_eq(kept, 1);
    ck_assert(r.status == CULVERT_OK || r.status == CULVERT_ECANCELED ||
              r.status == CULVERT_ETIMEDOUT);
    if (handle) {
        ck_assert_int_ne(culvert_status(future), CULVERT_PENDING);
        culvert_unref(future);
    }
    ck_assert_uint_eq(f.stream->in_flight + f.stream->queued, 0);
    ck_assert_uint_eq(f.stream->units, 0);
}

START_TEST(case_027_completion_racing_with_cancel_and_timeout)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    size_t used = culvert__heap_used(f.gpu->memory->local);
    for (unsigned i = 0; i < ORDERS / 4; i++) {
        seed = 4 * i + (unsigned)_i;
        one_order(buffer);
        ck_assert(culvert__staging_at_rest(f.gpu));
    }
    ck_assert_uint_eq(culvert__heap_used(f.gpu->memory->local), used);
    culvert_buffer_unref(buffer);
}
END_TEST

typedef struct pair {
    culvert_future *other;
    int calls, status;
} pair;

static void cancel_other(culvert_future *done, void *arg)
{
    pair *p = arg;
    (void)done;
    culvert_cancel(p->other);
    culvert_unref(p->other);
    p->other = NULL;
}

static void other_settled(culvert_future *done, void *arg)
{
    pair *p = arg;
    p->calls++;
    p->status = culvert_status(done);
}

/* Both are over in the same batch. */
START_TEST(case_029_a_callback_cancels_a_sibling_of_the_same_turn)
{
    for (int i = 0; i < 50; i++) {
        pair p = {0};
        gpu_fixture_hold(&f, f.stream);
        culvert_future *a = culvert_stream_done(f.stream);
        p.other = culvert_stream_done(f.stream);
        ck_assert_int_eq(culvert_on_settled(a, cancel_other, &p, NULL), 0);
        ck_assert_int_eq(culvert_on_settled(culvert_ref(p.other), other_settled, &p, NULL), 0);
        gpu_fixture_release(&f);
        ck_assert(test_eventually(device_is_idle, NULL, 60));
        ev_run(f.ev, 0);
        ck_assert_int_eq(p.calls, 1); /* work that was over: its real outcome */
        ck_assert_int_eq(p.status, CULVERT_OK);
        ck_assert_ptr_null(p.other);
    }
}
END_TEST

typedef struct all_of_it {
    culvert_future *future;
    culvert_stream *stream;
    int calls;
} all_of_it;

static void free_all_of_it(culvert_future *done, void *arg)
{
    all_of_it *a = arg;
    a->calls++;
    ck_assert_ptr_eq(done, a->future);
    culvert_unref(a->future);
    culvert_stream_unref(a->stream);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    culvert_loop_free(f.loop);
    f.loop = NULL;
    f.gpu = NULL;
    f.stream = NULL;
    f.module = NULL;
}

START_TEST(case_030_a_callback_frees_all_of_it)
{
    all_of_it a = {.stream = gpu_fixture_stream(&f)};
    a.future = culvert_stream_done(a.stream);
    culvert_detach(culvert_stream_done(f.stream)); /* something else is under way */
    ck_assert_int_eq(culvert_on_settled(culvert_ref(a.future), free_all_of_it, &a, NULL), 0);
    ev_run(f.ev, 0);
    ck_assert_int_eq(a.calls, 1);
}
END_TEST

/* ---- handles that go before the host function comes ---- */

static void ignore_unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)err;
    (void)arg;
}

/* The host function finds nothing but its own record. */
START_TEST(case_035_all_handles_are_dropped_before_the_host_function)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_HOST_FUNC;
    options.close_seconds = 0.01;
    options.on_unhandled = ignore_unhandled;
    gpu_fixture_close(&f);
    gpu_fixture_reset();
    culvert_sim_devices(8);
    gpu_fixture_ordinal = 1 + _i; /* it is not given back */
    gpu_fixture_open_as_is(&f, &options, NULL);
    gpu_fixture_ordinal = 0;
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    if (_i == 1)
        culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_fill(f.stream, buffer, 0, 16, 1, 1);
    while (f.stream->arm == NULL && culvert_status(future) == CULVERT_PENDING)
        (void)culvert_loop_arm(f.loop);
    culvert_unref(future);
    culvert_buffer_unref(buffer);
    f.dirty = true; /* a notifier is out: leaked with what it names */
    gpu_fixture_close(&f);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    culvert_sim_release(NULL);
    ck_assert(test_eventually(device_is_idle, NULL, 60));
}
END_TEST

/* The loop lives on: the device goes when its last host function has come. */
START_TEST(case_035_the_loop_lives_on)
{
    if (!gpu_fixture_arms())
        return;
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    while (f.stream->arm == NULL)
        (void)culvert_loop_arm(f.loop);
    culvert_unref(future);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    f.gpu = NULL;
    f.stream = NULL;
    f.module = NULL;
    culvert_sim_release(NULL);
    gpu_fixture_run(&f, 0.2);
    culvert_sim_host_functions(CULVERT_SIM_HOST_RUN);
    gpu_fixture_run(&f, 0.2);
    ck_assert_uint_eq(culvert_sim_live("stream"), 0);
    ck_assert_uint_eq(culvert_sim_live("event"), 0);
}
END_TEST

static Suite *cancel_suite(void)
{
    Suite *suite = suite_create("cancel");
    TCase *tc = tcase_create("states");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, cancelled_in_every_state, 0, STATES);
    tcase_add_loop_test(tc, dropped_in_every_state, 0, STATES);
    tcase_add_loop_test(tc, case_028_timed_out_in_every_state, 0, STATES);
    tcase_add_test(tc, case_071_memory_comes_back_when_the_work_is_over);
    tcase_add_test(tc, case_054_the_next_one_on_the_stream_is_right);
    suite_add_tcase(suite, tc);

    tc = tcase_create("races");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, case_027_completion_racing_with_cancel_and_timeout, 0, 4);
    tcase_add_test(tc, case_029_a_callback_cancels_a_sibling_of_the_same_turn);
    tcase_add_test(tc, case_030_a_callback_frees_all_of_it);
    tcase_add_loop_test(tc, case_035_all_handles_are_dropped_before_the_host_function, 0, 2);
    tcase_add_test(tc, case_035_the_loop_lives_on);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {cancel_suite(), NULL};
    return test_main(suites);
}
