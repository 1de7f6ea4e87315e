/* SPDX-License-Identifier: BSD-2-Clause */
/* How the end of work is found out: which events are asked how often, and what an answer means. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"
#include "loop/binding.h"

#include <check.h>
#include <math.h>
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

static uint64_t queries(void)
{
    return culvert_sim_calls("cuEventQuery") + culvert_sim_calls("cuStreamQuery");
}

static bool device_is_idle(void *arg)
{
    (void)arg;
    return culvert_sim_live("operation") == 0;
}

static void wait_for_device(void)
{
    ck_assert(test_eventually(device_is_idle, NULL, 60));
}

/* Holds the stream, and puts n sequences with a waiter each on it. */
typedef struct burst {
    unsigned n, settled;
    bool in_order;
} burst;

typedef struct member {
    burst *burst;
    unsigned number;
} member;

static member members[10000];

static void member_settled(culvert_future *done, void *arg)
{
    member *m = arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    m->burst->in_order &= m->number == m->burst->settled;
    m->burst->settled++;
}

static void submit_burst(culvert_stream *stream, burst *b, member *place, unsigned n)
{
    *b = (burst){.n = n, .in_order = true};
    for (unsigned i = 0; i < n; i++) {
        place[i] = (member){b, i};
        culvert_future *future = culvert_stream_done(stream);
        ck_assert_int_eq(culvert_on_settled(future, member_settled, &place[i], NULL), 0);
    }
}

static bool burst_over(void *arg)
{
    burst *b = arg;
    return b->settled == b->n;
}

/* ---- how often ---- */

START_TEST(far_fewer_queries_than_completions)
{
    enum { N = 200, POLL_MAX = 64 };
    burst b;
    culvert_sim_hold(culvert_stream_native(f.stream));
    submit_burst(f.stream, &b, members, N);
    culvert_sim_release(NULL);
    wait_for_device();
    uint64_t before = queries();
    for (unsigned polls = 1; polls <= 4; polls++) {
        bool more = culvert__completion_poll(f.gpu);
        ck_assert_uint_eq(f.stream->seen - (f.stream->enq - N), polls < 4 ? polls * POLL_MAX : N);
        ck_assert_int_eq(more, polls < 4);
    }
    /* 64 in 1, 2, 4 ... steps take 8 */
    ck_assert_uint_le(queries() - before, 4 * 8);
    gpu_fixture_until(&f, burst_over, &b);
    ck_assert(b.in_order);
}
END_TEST

/* The boundary may be anywhere: what is complete is found, what is not is not. */
START_TEST(the_boundary_is_found_wherever_it_is)
{
    enum { N = 100 };
    culvert_stream *gate = gpu_fixture_stream(&f);
    for (unsigned done = 0; done <= N; done++) {
        burst b, c;
        culvert_sim_hold(culvert_stream_native(gate));
        culvert_future *held = culvert_stream_done(gate);
        submit_burst(f.stream, &b, members, done);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_wait(seq, culvert_ref(held));
        culvert_detach(culvert_seq_submit(seq));
        submit_burst(f.stream, &c, members + done, N - done);
        gpu_fixture_until(&f, burst_over, &b);
        while (f.stream->seen + 1 + N - done != f.stream->enq)
            gpu_fixture_run(&f, 0.0001);
        uint64_t before = queries();
        (void)culvert__completion_poll(f.gpu);
        ck_assert_uint_le(queries() - before, 4);
        ck_assert_uint_eq(c.settled, 0);
        ck_assert(b.in_order);
        culvert_sim_release(NULL);
        gpu_fixture_until(&f, burst_over, &c);
        ck_assert(c.in_order);
        gpu_fixture_ok(held);
    }
    culvert_stream_unref(gate);
}
END_TEST

/* A stream that is armed for what is wanted need not be asked. */
START_TEST(an_armed_stream_is_not_asked)
{
    burst b;
    culvert_sim_hold(culvert_stream_native(f.stream));
    submit_burst(f.stream, &b, members, 50);
    while (f.stream->arm == NULL)
        ev_run(f.ev, EVRUN_NOWAIT);
    double begin = test_now();
    uint64_t before = queries(), turns = 0;
    for (; turns < 2000; turns++)
        ev_run(f.ev, EVRUN_NOWAIT);
    /* but for the watchdog, ten times a second, and the first query when it was armed */
    ck_assert_uint_le(queries() - before, 2 + (uint64_t)((test_now() - begin) * 10 + 1) * 2);
    culvert_sim_release(NULL);
    gpu_fixture_until(&f, burst_over, &b);
    ck_assert(b.in_order);
}
END_TEST

static void busy_callback(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    wait_for_device(); /* the loop stands still, completions pile up */
}

/* Completions that come together are one wake-up, and none is lost. */
START_TEST(case_001_completions_while_the_loop_is_busy)
{
    enum { STREAMS = 4, EACH = 2500 };
    culvert_stream *streams[STREAMS];
    burst bursts[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        submit_burst(streams[s], &bursts[s], members + s * EACH, EACH);
    }
    culvert_future *now = culvert_resolved(f.loop, NULL, NULL);
    ck_assert_int_eq(culvert_on_settled(now, busy_callback, NULL, NULL), 0);
    uint64_t asked = queries(), arms = culvert_sim_calls("cuLaunchHostFunc");
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_until(&f, burst_over, &bursts[s]);
        ck_assert(bursts[s].in_order);
        culvert_stream_unref(streams[s]);
    }
    ck_assert_uint_eq(bursts[0].settled + bursts[1].settled + bursts[2].settled + bursts[3].settled,
                      STREAMS * EACH);
    ck_assert_uint_lt(queries() - asked, STREAMS * EACH / 2);
    ck_assert_uint_lt(culvert_sim_calls("cuLaunchHostFunc") - arms, STREAMS * EACH / 20);
}
END_TEST

/* ---- what an answer means ---- */

/* A process loses a device for good: each test that does has one of its own. */
static void open_device(int ordinal)
{
    tear_down();
    gpu_fixture_reset();
    culvert_sim_devices(8);
    gpu_fixture_ordinal = ordinal;
    gpu_fixture_open_as_is(&f, NULL, NULL);
    gpu_fixture_ordinal = 0;
    f.dirty = true; /* what a lost device holds is leaked */
}

/* An error is no "not ready": a poller that takes it so waits for ever. */
START_TEST(case_049_an_error_from_a_query_rejects_at_that_poll)
{
    static const struct {
        int result, code;
    } rows[] = {{700, CULVERT_EDEVICELOST},
                {999, CULVERT_EDEVICELOST},
                {4, CULVERT_ESHUTDOWN},
                {719, CULVERT_EDEVICELOST},
                {214, CULVERT_EDEVICELOST}};
    open_device(1 + _i);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *a = culvert_fill(f.stream, buffer, 0, 16, 0, 1);
    culvert_future *b = culvert_fill(f.stream, buffer, 0, 16, 0, 1);
    culvert_sim_fail("cuEventQuery", 1, rows[_i].result);
    culvert_error err = gpu_fixture_fails(a, rows[_i].code); /* it is held: no other answer comes */
    ck_assert_int_eq(err.native, rows[_i].result);
    (void)gpu_fixture_fails(b, rows[_i].code);
    culvert_buffer_unref(buffer);
}
END_TEST

/* Not sticky: it is that operation's, and it rejects when its work is over. */
START_TEST(case_049_an_error_that_is_the_operations_own)
{
    enum { N = 5 };
    culvert_future *futures[N];
    gpu_fixture_hold(&f, f.stream);
    for (int i = 0; i < N; i++)
        futures[i] = culvert_stream_done(f.stream);
    /* The first query is of the first, the second of the second, the third of the fourth. */
    culvert_sim_release(NULL);
    wait_for_device();
    culvert_sim_fail("cuEventQuery", 3, 400);
    for (int i = 0; i < N; i++) {
        if (i == 3)
            ck_assert_int_eq(gpu_fixture_fails(futures[i], CULVERT_EDRIVER).native, 400);
        else
            gpu_fixture_ok(futures[i]);
    }
}
END_TEST

/* The host function is called, and knows nothing of the error. */
START_TEST(case_037_a_wake_up_is_no_success)
{
    open_device(6);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_sim_host_functions(CULVERT_SIM_HOST_ALWAYS);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *future = culvert_fill(f.stream, buffer, 0, 16, 0, 1);
    while (f.stream->arm == NULL)
        ev_run(f.ev, EVRUN_NOWAIT);
    culvert_sim_poison(6, 700);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, 700);
    culvert_buffer_unref(buffer);
}
END_TEST

/* Work is in the driver and nothing will tell of its end: look. */
START_TEST(case_038_no_notification_can_be_had)
{
    static const char *const functions[] = {"cuLaunchHostFunc", "cuStreamWaitEvent"};
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 1; i <= 50; i++)
        culvert_sim_fail(functions[_i], i, 2);
    uint64_t before = culvert_sim_calls(functions[_i]);
    culvert_future *future = culvert_fill(f.stream, buffer, 0, 16, 0, 1);
    culvert_buffer_unref(buffer);
    gpu_fixture_run(&f, 0.01);
    ck_assert_uint_gt(culvert_sim_calls(functions[_i]), before);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    gpu_fixture_run(&f, 0.1); /* the failures that are left */
    while (culvert_sim_calls(functions[_i]) < before + 50) {
        culvert_future *next = culvert_stream_done(f.stream);
        gpu_fixture_hold(&f, f.stream);
        culvert_future *held = culvert_stream_done(f.stream);
        gpu_fixture_run(&f, 0.01);
        gpu_fixture_release(&f);
        gpu_fixture_ok(next);
        gpu_fixture_ok(held);
    }
}
END_TEST

/* ---- changes after the decision to sleep ---- */

typedef struct late_comer {
    ev_prepare prepare; /* first */
    int turns;
    culvert_future *submitted;
    bool settled;
    bool attach;
} late_comer;

static void late_settled(culvert_future *done, void *arg)
{
    (void)done;
    ((late_comer *)arg)->settled = true;
}

/* Runs after the library's own prepare watcher, which has decided that the loop may sleep. */
static void after_the_decision(struct ev_loop *ev, ev_prepare *w, int revents)
{
    late_comer *l = (late_comer *)(void *)w;
    (void)ev;
    (void)revents;
    if (++l->turns != 5)
        return;
    if (!l->attach)
        l->submitted = culvert_stream_done(f.stream);
    ck_assert(f.loop->decided);
    ck_assert_int_eq(culvert_on_settled(l->submitted, late_settled, l, NULL), 0);
    ck_assert(ev_is_active(
        &f.loop->idle)); /* the loop turns once more: it does not wait for the watchdog */
}

static void minute_over(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)w;
    (void)revents;
    ev_break(ev, EVBREAK_ALL);
}

START_TEST(what_comes_after_the_decision_to_sleep_is_not_slept_over)
{
    late_comer l = {.attach = _i == 1};
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_future *last = NULL;
    ev_timer minute;
    tear_down();
    gpu_fixture_reset();
    /* Of one priority, the watcher that was started first runs last. */
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    ev_prepare_init(&l.prepare, after_the_decision);
    ev_set_priority(&l.prepare, EV_MINPRI);
    ev_prepare_start(ev, &l.prepare);
    options.wake = CULVERT_WAKE_HOST_FUNC;
    gpu_fixture_open_on(&f, ev, &options, NULL);
    l.turns = 0;
    if (l.attach) { /* a waiter of an earlier one than is armed */
        culvert_sim_hold(culvert_stream_native(f.stream));
        l.submitted = culvert_stream_done(f.stream);
        culvert_stream *gate = gpu_fixture_stream(&f);
        culvert_sim_hold(culvert_stream_native(gate));
        culvert_future *held = culvert_stream_done(gate);
        culvert_seq *seq = culvert_seq_begin(f.stream);
        culvert_seq_wait(seq, held);
        last = culvert_seq_submit(seq);
        l.turns = 0;
        while (f.stream->arm == NULL || l.turns < 4)
            ev_run(ev, EVRUN_NOWAIT);
        ck_assert_uint_eq(f.stream->arm_target, f.stream->enq - 1);
        culvert_sim_release(culvert_stream_native(f.stream));
        culvert_stream_unref(gate);
    }
    ev_timer_init(&minute, minute_over, 60, 0);
    ev_timer_start(ev, &minute);
    while (l.turns < 4)
        ev_run(ev, EVRUN_NOWAIT);
    double begin = test_now();
    while (!l.settled && test_now() < begin + 50)
        ev_run(ev, EVRUN_ONCE);
    ck_assert(l.settled);
    ck_assert_double_lt(test_now() - begin, 30);
    ev_timer_stop(ev, &minute);
    culvert_sim_release(NULL);
    if (last != NULL)
        gpu_fixture_ok(last);
    ev_prepare_stop(ev, &l.prepare);
}
END_TEST

/* The last look, after everything is armed, may find something: then what is armed may be wrong by now. */
START_TEST(what_the_last_look_before_the_sleep_finds_is_looked_at_again)
{
    culvert_future *future = culvert_stream_done(f.stream); /* no callback is to run for it */
    wait_for_device();
    culvert_sim_fail("cuEventQuery", 1, 600); /* it was not ready when the first look was taken */
    ck_assert_double_eq(culvert_loop_arm(f.loop), 0);
    ck_assert_int_eq(culvert_status(future), CULVERT_OK);
    culvert_unref(future);
}
END_TEST

/* Nobody waits for the download's future, but the head of the queue does for its memory. */
START_TEST(the_end_of_a_download_that_owes_memory_is_wanted)
{
    unsigned char in[16] = {0}, shared[16];
    culvert_stream *gate = gpu_fixture_stream(&f);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 64);
    culvert_sim_hold(culvert_stream_native(gate));
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *held = culvert_stream_done(gate);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, buffer, 0, in, 16);
    culvert_seq_download(seq, shared, buffer, 0, 16);
    culvert_detach(culvert_seq_submit(seq));
    uint64_t wanted = f.stream->enq - 1;
    seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, culvert_ref(held)); /* the device stands still behind the download */
    culvert_detach(culvert_seq_submit(seq));
    ck_assert_uint_eq(f.stream->enq - 1, wanted + 1);
    culvert_future *last = culvert_upload(f.stream, buffer, 32, shared, 16);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 1);
    while (f.stream->arm == NULL)
        (void)culvert_loop_arm(f.loop);
    ck_assert_uint_eq(f.stream->arm_target, wanted);
    culvert_sim_release(NULL);
    gpu_fixture_ok(last);
    gpu_fixture_ok(held);
    culvert_stream_unref(gate);
    culvert_buffer_unref(buffer);
}
END_TEST

/* ---- programs that sleep by themselves ---- */

START_TEST(a_loop_that_is_armed_by_its_program)
{
    ck_assert_double_eq(culvert_loop_arm(f.loop), INFINITY);
    culvert_sim_hold(culvert_stream_native(f.stream));
    culvert_future *future = culvert_stream_done(f.stream);
    double seconds;
    while ((seconds = culvert_loop_arm(f.loop)) == 0)
        ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_double_gt(seconds, 0.0);
    ck_assert_double_lt(seconds, 1.0);
    ck_assert_ptr_nonnull(f.stream->arm); /* no spin: it was asked to arm */
    culvert_sim_release(NULL);
    double begin = test_now();
    while (culvert_status(future) == CULVERT_PENDING) {
        seconds = culvert_loop_arm(f.loop);
        if (culvert_status(future) != CULVERT_PENDING)
            break; /* the end was seen in there, and nothing is pending any more */
        ck_assert_double_lt(seconds, 1.0);
        test_sleep(seconds);
        ev_run(f.ev, EVRUN_NOWAIT);
        ck_assert_double_lt(test_now() - begin, 60);
    }
    culvert_unref(future);
    while ((seconds = culvert_loop_arm(f.loop)) == 0)
        ev_run(f.ev, EVRUN_NOWAIT);
    while (f.stream->arm != NULL) /* its host function is on its way */
        ev_run(f.ev, EVRUN_NOWAIT);
    ck_assert_double_eq(culvert_loop_arm(f.loop), INFINITY);
}
END_TEST

static Suite *completion_suite(void)
{
    Suite *suite = suite_create("completion");
    TCase *tc = tcase_create("queries");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, far_fewer_queries_than_completions);
    tcase_add_test(tc, the_boundary_is_found_wherever_it_is);
    tcase_add_test(tc, an_armed_stream_is_not_asked);
    tcase_add_test(tc, case_001_completions_while_the_loop_is_busy);
    suite_add_tcase(suite, tc);

    tc = tcase_create("answers");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, case_049_an_error_from_a_query_rejects_at_that_poll, 0, 5);
    tcase_add_test(tc, case_049_an_error_that_is_the_operations_own);
    tcase_add_test(tc, case_037_a_wake_up_is_no_success);
    tcase_add_loop_test(tc, case_038_no_notification_can_be_had, 0, 2);
    suite_add_tcase(suite, tc);

    tc = tcase_create("sleep");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, what_comes_after_the_decision_to_sleep_is_not_slept_over, 0, 2);
    tcase_add_test(tc, what_the_last_look_before_the_sleep_finds_is_looked_at_again);
    tcase_add_test(tc, the_end_of_a_download_that_owes_memory_is_wanted);
    tcase_add_test(tc, a_loop_that_is_armed_by_its_program);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {completion_suite(), NULL};
    return test_main(suites);
}
