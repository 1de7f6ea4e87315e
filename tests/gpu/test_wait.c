/* SPDX-License-Identifier: BSD-2-Clause */
/* What sequences wait for: on the device where it can wait, held by the host where it cannot. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static gpu_fixture f;
static culvert_stream *other;
static culvert_buffer *words;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    other = gpu_fixture_stream(&f);
    words = gpu_fixture_buffer(&f, 400);
}

static void tear_down(void)
{
    if (f.loop == NULL)
        return;
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}

static uint64_t calls(const char *function)
{
    return gpu_fixture_simulated() ? culvert_sim_calls(function) : 0;
}

/* A sequence on the stream that waits for the future (consumed) and notes a number. */
static culvert_future *note_after(culvert_stream *stream, culvert_future *future, unsigned number)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    if (future != NULL)
        culvert_seq_wait(seq, future);
    gpu_fixture_note(&f, seq, words, number);
    return culvert_seq_submit(seq);
}

/* The numbers noted are 1, 2, ... n, in order. */
static void noted(unsigned n)
{
    unsigned out[100];
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, sizeof out));
    ck_assert_uint_eq(out[0], n);
    for (unsigned i = 1; i <= n; i++)
        ck_assert_uint_eq(out[i], i);
}

/* ---- on the device ---- */

START_TEST(the_device_waits_for_what_is_in_the_driver)
{
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_future *second = note_after(other, culvert_ref(first), 2);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuStreamWaitEvent"), before + 1);
    ck_assert_uint_eq(culvert_stream_in_flight(other), 1);
    ck_assert_uint_eq(culvert_stream_queued(other), 0);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    noted(2);
}
END_TEST

START_TEST(the_same_stream_needs_no_wait)
{
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_future *second = note_after(f.stream, culvert_ref(first), 2);
    ck_assert_uint_eq(calls("cuStreamWaitEvent"), before);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 0);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    noted(2);
}
END_TEST

START_TEST(what_has_settled_needs_no_wait)
{
    culvert_future *first = note_after(f.stream, NULL, 1);
    gpu_fixture_ok(culvert_ref(first));
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_future *second = note_after(other, first, 2);
    ck_assert_uint_eq(calls("cuStreamWaitEvent"), before);
    ck_assert_uint_eq(culvert_stream_queued(other), 0);
    gpu_fixture_ok(second);
    noted(2);
}
END_TEST

START_TEST(the_device_waits_for_each_of_an_all)
{
    enum { N = 4 };
    culvert_stream *streams[N];
    culvert_future *futures[N + 1];
    futures[N] = note_after(f.stream, NULL, 1);
    gpu_fixture_ok(culvert_ref(futures[N])); /* one that is over already */
    for (int i = 0; i < N; i++) {
        streams[i] = gpu_fixture_stream(&f);
        gpu_fixture_hold(&f, streams[i]);
        futures[i] = culvert_fill(streams[i], words, 300 + 4 * (unsigned)i, 4, 9, 4);
    }
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_future *last = note_after(other, culvert_all(f.loop, futures, N + 1), 2);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuStreamWaitEvent"), before + N);
    ck_assert_uint_eq(culvert_stream_in_flight(other), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(last);
    noted(2);
    for (int i = 0; i < N; i++)
        culvert_stream_unref(streams[i]);
}
END_TEST

/* A waiting stream with work behind the wait occupies one of the 8 hardware queues: where all are, every
   other stream stands still (measured). Six wait on the device; who comes later is held. */
START_TEST(waiting_streams_leave_hardware_queues_to_others)
{
    enum { N = 12, MOST = 6 };
    culvert_stream *streams[N];
    culvert_future *futures[N];
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    uint64_t before = calls("cuStreamWaitEvent");
    for (unsigned i = 0; i < N; i++) {
        streams[i] = gpu_fixture_stream(&f);
        culvert_seq *seq = culvert_seq_begin(streams[i]);
        culvert_seq_wait(seq, culvert_ref(first));
        culvert_seq_fill(seq, words, 300 + 4 * i, 4, 9, 4);
        futures[i] = culvert_seq_submit(seq);
        ck_assert_uint_eq(culvert_stream_in_flight(streams[i]), i < MOST);
        ck_assert_uint_eq(culvert_stream_queued(streams[i]), i >= MOST);
    }
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuStreamWaitEvent"), before + MOST);
    gpu_fixture_ok(culvert_fill(other, words, 200, 4, 9, 4)); /* goes on meanwhile */
    gpu_fixture_release(&f);
    gpu_fixture_ok(culvert_all(f.loop, futures, N));
    gpu_fixture_ok(first);
    /* All are over: there is room again. */
    gpu_fixture_hold(&f, f.stream);
    first = note_after(f.stream, NULL, 2);
    culvert_future *second = note_after(streams[0], first, 3);
    ck_assert_uint_eq(culvert_stream_in_flight(streams[0]), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    noted(3);
    for (int i = 0; i < N; i++)
        culvert_stream_unref(streams[i]);
}
END_TEST

/* One event for all streams would tell of the last record only. */
START_TEST(case_067_a_dependent_starts_after_the_slowest_of_four)
{
    enum { N = 4 };
    culvert_stream *streams[N];
    culvert_future *futures[N];
    unsigned out[N];
    for (int slow = 0; slow < N; slow++) {
        gpu_fixture_ok(culvert_fill(f.stream, words, 0, 400, 0, 4));
        for (int i = 0; i < N; i++)
            streams[i] = gpu_fixture_stream(&f);
        gpu_fixture_hold(&f, streams[slow]);
        for (int i = 0; i < N; i++)
            futures[i] = culvert_fill(streams[i], words, 4 * (unsigned)i, 4, 5, 4);
        culvert_seq *seq = culvert_seq_begin(other);
        culvert_seq_wait(seq, culvert_all(f.loop, futures, N));
        culvert_seq_copy(seq, words, 100, words, 0, sizeof out);
        culvert_seq_download(seq, out, words, 100, sizeof out);
        culvert_future *future = culvert_seq_submit(seq);
        gpu_fixture_run(&f, 0.005);
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
        for (int i = 0; i < N; i++) {
            ck_assert_uint_eq(out[i], 5);
            culvert_stream_unref(streams[i]);
        }
    }
}
END_TEST

START_TEST(the_device_waits_for_another_device)
{
    if (!gpu_fixture_simulated())
        return;
    tear_down();
    culvert_sim_reset();
    culvert_sim_devices(2);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    words = gpu_fixture_buffer(&f, 400);
    culvert_gpu *gpu = culvert_gpu_open(f.loop, 1, NULL, NULL);
    other = culvert_stream_new(gpu, NULL, NULL);
    culvert_buffer *far = culvert_buffer_new(gpu, 16, NULL);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_wait(seq, culvert_ref(first));
    culvert_seq_fill(seq, far, 0, 16, 1, 4);
    culvert_future *second = culvert_seq_submit(seq);
    ck_assert_uint_eq(calls("cuStreamWaitEvent"), before + 1);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    culvert_buffer_unref(far);
    culvert_gpu_close(gpu);
}
END_TEST

/* ---- held by the host ---- */

START_TEST(a_staged_download_is_waited_for_by_the_host)
{
    unsigned out[4] = {0}, back[4] = {0};
    gpu_fixture_ok(culvert_fill(f.stream, words, 0, 16, 77, 4));
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_download(f.stream, out, words, 0, 16);
    uint64_t before = calls("cuStreamWaitEvent");
    culvert_seq *seq = culvert_seq_begin(_i == 0 ? other : f.stream); /* the same stream too */
    culvert_seq_wait(seq, culvert_ref(first));
    culvert_seq_upload(seq, words, 32, out, 16); /* what the download brings */
    culvert_seq_download(seq, back, words, 32, 16);
    culvert_future *second = culvert_seq_submit(seq);
    ck_assert_uint_eq(calls("cuStreamWaitEvent"), before);
    ck_assert_uint_eq(culvert_stream_queued(_i == 0 ? other : f.stream), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(back[i], 77);
}
END_TEST

START_TEST(a_direct_download_is_waited_for_by_the_device)
{
    culvert_buffer *host = gpu_fixture_host_buffer(&f, 16);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_download(f.stream, culvert_buffer_data(host), words, 0, 16);
    culvert_future *second = note_after(other, culvert_ref(first), 1);
    ck_assert_uint_eq(culvert_stream_in_flight(other), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    culvert_buffer_unref(host);
}
END_TEST

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

START_TEST(a_step_is_waited_for_by_the_host)
{
    gpu_fixture_hold(&f, f.stream);
    culvert_future *step = culvert_then(note_after(f.stream, NULL, 1), pass, NULL, NULL);
    culvert_future *second = note_after(other, step, 2);
    ck_assert_uint_eq(culvert_stream_queued(other), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    noted(2);
}
END_TEST

/* The awaited one is not in the driver yet. When it is, the device waits: the host's hold ends then. */
START_TEST(a_hold_ends_when_the_awaited_one_is_in_the_driver)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, gate, 1);
    culvert_future *all[] = {culvert_ref(first), culvert_resolved(f.loop, NULL, NULL)};
    culvert_future *second = note_after(other, culvert_all(f.loop, all, 2), 2);
    culvert_stream *third_stream = gpu_fixture_stream(&f);
    culvert_future *third = note_after(third_stream, culvert_ref(second), 3);
    ck_assert_uint_eq(culvert_stream_queued(other), 1);
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_eq(culvert_stream_queued(third_stream), 1);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_run(&f, 0.005);
    ck_assert_int_eq(culvert_status(first), CULVERT_PENDING);
    ck_assert_uint_eq(culvert_stream_queued(other), 0);
    ck_assert_uint_eq(culvert_stream_queued(third_stream), 0);
    ck_assert_uint_eq(culvert_stream_in_flight(third_stream), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(third);
    gpu_fixture_ok(second);
    gpu_fixture_ok(first);
    noted(3);
    culvert_stream_unref(third_stream);
}
END_TEST

START_TEST(a_large_all_is_waited_for_by_the_host)
{
    enum { N = 300 };
    static culvert_future *futures[N];
    for (int i = 0; i < N; i++)
        futures[i] = culvert_stream_done(f.stream);
    culvert_future *last = note_after(other, culvert_all(f.loop, futures, N), 1);
    gpu_fixture_ok(last);
    noted(1);
}
END_TEST

/* A chain that goes from stream to stream, all of it behind one promise. */
START_TEST(a_long_chain_over_streams_needs_no_stack)
{
    enum { N = 4000 };
    culvert_future *gate = NULL, *last;
    unsigned sum = 0;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    last = gate;
    for (unsigned i = 0; i < N; i++) {
        culvert_seq *seq = culvert_seq_begin(i % 2 == 0 ? f.stream : other);
        culvert_seq_wait(seq, last);
        gpu_fixture_add(&f, seq, words, 5, i);
        last = culvert_seq_submit(seq);
    }
    if (_i == 0) {
        culvert_resolve(promise, NULL, NULL);
        gpu_fixture_ok(last);
        gpu_fixture_ok(culvert_download(f.stream, &sum, words, 20, 4));
        ck_assert_uint_eq(sum, N * (N - 1) / 2);
    } else {
        culvert_promise_drop(promise);
        (void)gpu_fixture_fails(last, CULVERT_EBROKEN);
        gpu_fixture_ok(culvert_download(f.stream, &sum, words, 20, 4));
        ck_assert_uint_eq(sum, 0);
    }
}
END_TEST

/* ---- what fails ---- */

static culvert_error user_error(int number)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_error_set(&err, CULVERT_EUSER, number, "the answer is %d", number);
    return err;
}

START_TEST(a_rejection_rejects_who_waits_and_not_the_stream)
{
    culvert_future *gate = NULL;
    culvert_error err = user_error(42);
    if (_i == 0) {
        culvert_promise *promise = culvert_promise_new(f.loop, &gate);
        culvert_future *waits = note_after(f.stream, gate, 7);
        culvert_future *behind = note_after(f.stream, NULL, 1);
        culvert_reject(promise, &err);
        err = gpu_fixture_fails(waits, CULVERT_EUSER);
        gpu_fixture_ok(behind);
    } else { /* rejected before */
        culvert_future *waits = note_after(f.stream, culvert_rejected(f.loop, &err), 7);
        gpu_fixture_ok(note_after(f.stream, NULL, 1));
        err = gpu_fixture_fails(waits, CULVERT_EUSER);
    }
    ck_assert_int_eq(err.native, 42);
    gpu_fixture_says(&err, "the answer is 42");
    noted(1);
}
END_TEST

/* The awaited one never ran; those that wait for the waiting one reject with the same error. */
START_TEST(a_rejection_travels_along_a_chain_of_waits)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_future *a = note_after(f.stream, gate, 7), *b = note_after(other, culvert_ref(a), 8);
    culvert_future *children[] = {culvert_ref(b), culvert_stream_done(f.stream)};
    culvert_future *c = note_after(f.stream, culvert_all(f.loop, children, 2), 9);
    culvert_error err = user_error(3);
    culvert_reject(promise, &err);
    (void)gpu_fixture_fails(c, CULVERT_EUSER);
    (void)gpu_fixture_fails(b, CULVERT_EUSER);
    (void)gpu_fixture_fails(a, CULVERT_EUSER);
    noted(0);
}
END_TEST

/* The device has waited for it and went on: what was built on it is no success. */
START_TEST(who_waited_on_the_device_rejects_when_the_awaited_one_fails)
{
    if (!gpu_fixture_simulated())
        return;
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    culvert_future *second = note_after(other, culvert_ref(first), 2);
    culvert_future *third = note_after(other, NULL, 3);
    ck_assert_uint_eq(culvert_stream_in_flight(other), 2);
    culvert_sim_fail("cuEventQuery", 1, 1); /* no answer about the first */
    gpu_fixture_run(&f, 0.01);
    gpu_fixture_release(&f);
    (void)gpu_fixture_fails(second, CULVERT_EDRIVER);
    (void)gpu_fixture_fails(first, CULVERT_EDRIVER);
    gpu_fixture_ok(third);
    noted(3);
}
END_TEST

START_TEST(a_future_of_another_binding_is_refused)
{
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, NULL);
    culvert_error err =
        gpu_fixture_fails(note_after(f.stream, culvert_resolved(loop, NULL, NULL), 1),
                          CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_seq_wait");
    ck_assert_ptr_nonnull(strstr(err.where, "test_wait.c:"));
    gpu_fixture_says(&err, "another binding");
    noted(0);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

START_TEST(waiting_twice_for_the_same_is_once)
{
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = note_after(f.stream, NULL, 1);
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_wait(seq, culvert_ref(first));
    culvert_seq_wait(seq, first);
    gpu_fixture_note(&f, seq, words, 2);
    culvert_future *second = culvert_seq_submit(seq);
    gpu_fixture_release(&f);
    gpu_fixture_ok(second);
    noted(2);
}
END_TEST

/* ---- cancelled ---- */

START_TEST(cancelling_a_held_sequence_lets_those_behind_it_go)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_future *held = note_after(f.stream, culvert_ref(gate), 7);
    culvert_future *also = note_after(f.stream, gate, 8);
    culvert_future *behind = note_after(f.stream, NULL, 1);
    gpu_fixture_run(&f, 0.002);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 3);
    culvert_cancel(held);
    ck_assert_int_eq(culvert_status(held), CULVERT_ECANCELED);
    culvert_unref(held);
    gpu_fixture_run(&f, 0.002);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 2);
    culvert_unref(also); /* the last interest: the same */
    gpu_fixture_ok(behind);
    noted(1);
    culvert_promise_drop(promise);
}
END_TEST

START_TEST(cancelling_who_waits_lets_the_awaited_one_go_where_nobody_else_wants_it)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_future *wanted = note_after(f.stream, culvert_ref(gate), 1);
    culvert_future *unwanted = note_after(f.stream, gate, 7);
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_wait(seq, culvert_ref(wanted));
    culvert_seq_wait(seq, unwanted);
    culvert_future *waits = culvert_seq_submit(seq);
    culvert_cancel(waits);
    ck_assert_int_eq(culvert_status(waits), CULVERT_ECANCELED);
    culvert_unref(waits);
    ck_assert_int_eq(culvert_status(wanted), CULVERT_PENDING);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 1);
    culvert_resolve(promise, NULL, NULL);
    gpu_fixture_ok(wanted);
    noted(1);
}
END_TEST

/* It is cancelled as who waits for it sees; that it was cancelled is told, not reported. */
START_TEST(waiting_for_what_is_cancelled_is_being_cancelled)
{
    culvert_future *gate = NULL;
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_future *first = note_after(f.stream, gate, 7);
    culvert_future *second = note_after(other, culvert_ref(first), 8);
    culvert_future *behind = note_after(other, NULL, 1);
    culvert_cancel(first);
    (void)gpu_fixture_fails(second, CULVERT_ECANCELED);
    culvert_unref(first);
    gpu_fixture_ok(behind);
    noted(1);
    culvert_promise_drop(promise);
}
END_TEST

static Suite *wait_suite(void)
{
    Suite *suite = suite_create("wait");
    TCase *tc = tcase_create("device");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_device_waits_for_what_is_in_the_driver);
    tcase_add_test(tc, the_same_stream_needs_no_wait);
    tcase_add_test(tc, what_has_settled_needs_no_wait);
    tcase_add_test(tc, the_device_waits_for_each_of_an_all);
    tcase_add_test(tc, waiting_streams_leave_hardware_queues_to_others);
    tcase_add_test(tc, case_067_a_dependent_starts_after_the_slowest_of_four);
    tcase_add_test(tc, the_device_waits_for_another_device);
    suite_add_tcase(suite, tc);

    tc = tcase_create("host");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_staged_download_is_waited_for_by_the_host, 0, 2);
    tcase_add_test(tc, a_direct_download_is_waited_for_by_the_device);
    tcase_add_test(tc, a_step_is_waited_for_by_the_host);
    tcase_add_test(tc, a_hold_ends_when_the_awaited_one_is_in_the_driver);
    tcase_add_test(tc, a_large_all_is_waited_for_by_the_host);
    tcase_add_loop_test(tc, a_long_chain_over_streams_needs_no_stack, 0, 2);
    suite_add_tcase(suite, tc);

    tc = tcase_create("failure");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_rejection_rejects_who_waits_and_not_the_stream, 0, 2);
    tcase_add_test(tc, a_rejection_travels_along_a_chain_of_waits);
    tcase_add_test(tc, who_waited_on_the_device_rejects_when_the_awaited_one_fails);
    tcase_add_test(tc, a_future_of_another_binding_is_refused);
    tcase_add_test(tc, waiting_twice_for_the_same_is_once);
    tcase_add_test(tc, cancelling_a_held_sequence_lets_those_behind_it_go);
    tcase_add_test(tc, cancelling_who_waits_lets_the_awaited_one_go_where_nobody_else_wants_it);
    tcase_add_test(tc, waiting_for_what_is_cancelled_is_being_cancelled);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {wait_suite(), NULL};
    return test_main(suites);
}
