/* SPDX-License-Identifier: BSD-2-Clause */
/* The order of sequences: within a stream first in, first out; between streams none. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static gpu_fixture f;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

/* ---- who settled when ---- */

typedef struct place {
    unsigned *count;
    unsigned at;
    int status;
} place;

static void take_place(culvert_future *done, void *arg)
{
    place *p = arg;
    p->at = ++*p->count;
    p->status = culvert_status(done);
}

static void follow(culvert_future *future, place *p, unsigned *count)
{
    p->count = count;
    p->at = 0;
    ck_assert_int_eq(culvert_on_settled(future, take_place, p, NULL), 0);
}

static bool all_there(void *arg)
{
    unsigned *count = arg;
    return count[0] >= count[1];
}

/* ---- one stream ---- */

/* Short and long sequences, with and without an error while they were built. */
START_TEST(sequences_of_a_stream_run_and_settle_in_order)
{
    enum { N = 400 };
    static place places[N];
    static unsigned out[1 + 2 * N];
    unsigned count[2] = {0, N}, written = 0;
    culvert_buffer *words = gpu_fixture_buffer(&f, sizeof out);
    for (unsigned i = 0; i < N; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        gpu_fixture_note(&f, seq, words, i);
        if (i % 7 == 0)
            for (unsigned k = 0; k < 40; k++)
                culvert_seq_fill(seq, words, sizeof out - 4, 4, k, 4);
        if (i % 10 == 3) {
            culvert_seq_fill(seq, words, 1, 2, 0, 4); /* refused: none of it runs */
            written--;
        }
        written++;
        follow(culvert_seq_submit(seq), &places[i], &count[0]);
    }
    gpu_fixture_until(&f, all_there, count);
    unsigned last = 0;
    for (unsigned i = 0; i < N; i++) {
        if (i % 10 == 3) {
            ck_assert_int_eq(places[i].status, CULVERT_EINVAL);
            continue;
        }
        ck_assert_int_eq(places[i].status, CULVERT_OK);
        ck_assert_uint_gt(places[i].at, last);
        last = places[i].at;
    }
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, sizeof out));
    ck_assert_uint_eq(out[0], written);
    for (unsigned i = 0, at = 1; i < N; i++)
        if (i % 10 != 3)
            ck_assert_uint_eq(out[at++], i);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(a_held_head_holds_its_stream_and_no_other)
{
    unsigned out[4] = {0};
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *head = culvert_seq_begin(f.stream), *behind = culvert_seq_begin(f.stream);
    culvert_seq_wait(head, gate);
    gpu_fixture_note(&f, head, words, 1);
    gpu_fixture_note(&f, behind, words, 2);
    culvert_future *first = culvert_seq_submit(head), *second = culvert_seq_submit(behind);
    gpu_fixture_ok(culvert_stream_done(other));
    gpu_fixture_run(&f, 0.01);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 2);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 0);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    ck_assert_uint_eq(culvert_stream_queued(f.stream) + culvert_stream_in_flight(f.stream), 0);
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, 16));
    ck_assert_uint_eq(out[0], 2);
    ck_assert_uint_eq(out[1], 1);
    ck_assert_uint_eq(out[2], 2);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(streams_do_not_wait_for_each_other)
{
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *held = culvert_fill(f.stream, words, 0, 4, 1, 4);
    for (int i = 0; i < 20; i++)
        gpu_fixture_ok(culvert_fill(other, words, 8, 4, 1, 4));
    ck_assert_int_eq(culvert_status(held), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(held);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

/* One event for two uses would have let go of the first only with the second. */
START_TEST(case_066_a_future_does_not_wait_for_the_next_one_of_its_stream)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    for (int i = 0; i < 20; i++) {
        culvert_future *first = culvert_fill(f.stream, words, 0, 4, 1, 4);
        gpu_fixture_ok(culvert_ref(first));
        gpu_fixture_hold(&f, f.stream);
        culvert_future *second = culvert_fill(f.stream, words, 0, 4, 2, 4);
        ck_assert_int_eq(culvert_status(first), CULVERT_OK);
        culvert_unref(first);
        gpu_fixture_release(&f);
        gpu_fixture_ok(second);
    }
    culvert_buffer_unref(words);
}
END_TEST

/* The same with both in the driver: the stream stands still between them. */
START_TEST(case_066_both_in_the_driver)
{
    if (!gpu_fixture_simulated())
        return;
    culvert_stream *gate = gpu_fixture_stream(&f);
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    culvert_sim_hold(culvert_stream_native(gate));
    culvert_future *held = culvert_fill(gate, words, 12, 4, 1, 4);
    culvert_future *first = culvert_fill(f.stream, words, 0, 4, 1, 4);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, culvert_ref(held)); /* the device waits */
    culvert_seq_fill(seq, words, 4, 4, 2, 4);
    culvert_future *second = culvert_seq_submit(seq);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 2);
    gpu_fixture_ok(first);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    culvert_sim_release(NULL);
    gpu_fixture_ok(second);
    gpu_fixture_ok(held);
    culvert_stream_unref(gate);
    culvert_buffer_unref(words);
}
END_TEST

/* ---- many streams ---- */

/* Each of many streams writes a list. */
START_TEST(many_streams_each_keep_their_order)
{
    enum { STREAMS = 16, STEPS = 60 };
    culvert_stream *streams[STREAMS];
    culvert_buffer *lists[STREAMS];
    static unsigned out[STREAMS][1 + STEPS];
    static place places[STREAMS][STEPS];
    unsigned counts[STREAMS][2];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        lists[s] = gpu_fixture_buffer(&f, sizeof out[s]);
        counts[s][0] = 0;
        counts[s][1] = STEPS;
    }
    srand(7);
    for (int i = 0; i < STEPS; i++)
        for (int s = 0; s < STREAMS; s++) {
            culvert_seq *seq = culvert_seq_begin(streams[s]);
            gpu_fixture_note(&f, seq, lists[s], (unsigned)i);
            follow(culvert_seq_submit(seq), &places[s][i], &counts[s][0]);
            if (rand() % 40 == 0)
                gpu_fixture_run(&f, 0);
        }
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_until(&f, all_there, counts[s]);
        gpu_fixture_ok(culvert_download(streams[s], out[s], lists[s], 0, sizeof out[s]));
        ck_assert_uint_eq(out[s][0], STEPS);
        for (unsigned i = 0; i < STEPS; i++) {
            ck_assert_uint_eq(out[s][1 + i], i);
            ck_assert_uint_eq(places[s][i].at, i + 1);
        }
        culvert_stream_unref(streams[s]);
        culvert_buffer_unref(lists[s]);
    }
}
END_TEST

/* ---- stream_done ---- */

static int native_note(struct CUstream_st *stream, void *arg)
{
    *(struct CUstream_st **)arg = stream;
    return 0;
}

START_TEST(stream_done_is_after_all_that_was_there)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    struct CUstream_st *seen = NULL;
    gpu_fixture_ok(culvert_stream_done(f.stream));
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, words, 0, 16, 1, 4);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_call(seq, native_note, &seen, NULL);
    culvert_detach(culvert_seq_submit(seq));
    culvert_future *done = culvert_stream_done(f.stream);
    ck_assert_ptr_eq(seen, culvert_stream_native(f.stream));
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(done), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(done);
    ck_assert_int_eq(culvert_status(work), CULVERT_OK);
    culvert_unref(work);
    culvert_buffer_unref(words);
}
END_TEST

/* ---- the loop lives exactly as long as there is work ---- */

static void set_true(culvert_future *done, void *arg)
{
    (void)done;
    *(bool *)arg = true;
}

static void release_later(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)revents;
    gpu_fixture_release(w->data);
}

START_TEST(case_005_the_loop_lives_until_the_held_work_is_over)
{
    bool called = false;
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *future = culvert_fill(f.stream, words, 0, 16, 1, 4);
    ck_assert_int_eq(culvert_on_settled(future, set_true, &called, NULL), 0);
    ev_timer timer;
    ev_timer_init(&timer, release_later, 0.05, 0);
    timer.data = &f;
    ev_timer_start(f.ev, &timer);
    ev_run(f.ev, 0); /* the timer alone would let it return after 50 ms with the work undone */
    ck_assert(called);
    ev_run(f.ev, 0);
    culvert_buffer_unref(words);
}
END_TEST

/* Nobody waits for it, and yet it is pending work: buffers are to come back. */
START_TEST(case_006_the_loop_ends_after_a_thousand_operations)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    for (int i = 0; i < 1000; i++)
        culvert_detach(culvert_fill(f.stream, words, 0, 16, 1, 4));
    culvert_buffer_unref(words);
    ev_run(f.ev, 0);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream) + culvert_stream_queued(f.stream), 0);
    ev_run(f.ev, 0);
}
END_TEST

static Suite *order_suite(void)
{
    Suite *suite = suite_create("order");
    TCase *tc = tcase_create("order");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, sequences_of_a_stream_run_and_settle_in_order);
    tcase_add_test(tc, a_held_head_holds_its_stream_and_no_other);
    tcase_add_test(tc, streams_do_not_wait_for_each_other);
    tcase_add_test(tc, case_066_a_future_does_not_wait_for_the_next_one_of_its_stream);
    tcase_add_test(tc, case_066_both_in_the_driver);
    tcase_add_test(tc, many_streams_each_keep_their_order);
    tcase_add_test(tc, stream_done_is_after_all_that_was_there);
    tcase_add_test(tc, case_005_the_loop_lives_until_the_held_work_is_over);
    tcase_add_test(tc, case_006_the_loop_ends_after_a_thousand_operations);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {order_suite(), NULL};
    return test_main(suites);
}
