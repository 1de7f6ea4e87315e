/* SPDX-License-Identifier: BSD-2-Clause */
/* The orderly end: what is refused, what is waited for, and for how long. */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static gpu_fixture f;

static void setup(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void teardown(void)
{
    gpu_fixture_close(&f);
}

/* Consumes it. */
static void rejects_now(culvert_future *future, int code)
{
    ck_assert_int_eq(culvert_status(future), code);
    (void)culvert_get_error(future);
    culvert_unref(future);
}

static void *nothing(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    return NULL;
}

static atomic_bool go;

static void *until_go(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    while (!atomic_load(&go))
        usleep(1000);
    return NULL;
}

static culvert_future *resolve(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    (void)batch;
    (void)items;
    (void)n;
    (void)arg;
    return NULL;
}

static culvert_batcher *make_batcher(void)
{
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;

    o.run = resolve;
    return culvert_batcher_new(f.loop, &o, NULL);
}

static culvert_future *end_at_once(culvert_chunk *chunk, void *arg)
{
    (void)chunk;
    (void)arg;
    return NULL;
}

START_TEST(an_idle_binding_drains_at_once)
{
    ck_assert_int_eq(culvert_draining(f.loop), 0);
    culvert_future *d = culvert_drain(f.loop, 3600.0);
    ck_assert_int_eq(culvert_status(d), CULVERT_PENDING);
    ck_assert_int_eq(culvert_draining(f.loop), 1);
    ev_run(f.ev, 0); /* no timer is left */
    ck_assert_int_eq(culvert_status(d), CULVERT_OK);
    culvert_unref(d);
    d = culvert_drain(f.loop, 0.0); /* again */
    gpu_fixture_ok(d);
}
END_TEST

START_TEST(new_work_gets_eshutdown)
{
    culvert_semaphore *s = culvert_semaphore_new(f.loop, 1, 1, NULL);
    culvert_batcher *b = make_batcher();
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);

    o.read = end_at_once;
    culvert_future *d = culvert_drain(f.loop, INFINITY);
    for (int round = 0; round < 2; round++) { /* also after it has drained */
        rejects_now(culvert_work(f.loop, nothing, NULL, NULL, NULL), CULVERT_ESHUTDOWN);
        rejects_now(culvert_fill(f.stream, buffer, 0, 16, 0, 4), CULVERT_ESHUTDOWN);
        rejects_now(culvert_stream_done(f.stream), CULVERT_ESHUTDOWN);
        rejects_now(culvert_module_load(f.gpu, &culvert_image_fixture), CULVERT_ESHUTDOWN);
        rejects_now(culvert_semaphore_acquire(s), CULVERT_ESHUTDOWN);
        rejects_now(culvert_batcher_add(b, NULL, NULL, INFINITY), CULVERT_ESHUTDOWN);
        rejects_now(culvert_pipeline_run(f.gpu, &o), CULVERT_ESHUTDOWN);
        if (round == 0)
            gpu_fixture_ok(culvert_ref(d));
    }
    culvert_unref(d);
    culvert_buffer_unref(buffer);
    culvert_batcher_unref(b);
    culvert_semaphore_unref(s);
}
END_TEST

START_TEST(what_is_refused_has_a_message)
{
    culvert_future *d = culvert_drain(f.loop, INFINITY);
    culvert_future *no = culvert_stream_done(f.stream);

    gpu_fixture_says(culvert_get_error(no), "drains");
    culvert_unref(no);
    gpu_fixture_ok(d);
}
END_TEST

/* ---- what is in flight ---- */

START_TEST(it_waits_for_jobs_and_for_what_they_lead_to)
{
    atomic_store(&go, false);
    culvert_future *job = culvert_work(f.loop, until_go, NULL, NULL, NULL);
    culvert_future *d = culvert_drain(f.loop, INFINITY);

    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(d), CULVERT_PENDING);
    atomic_store(&go, true);
    gpu_fixture_ok(d);
    ck_assert_int_eq(culvert_status(job), CULVERT_OK);
    culvert_unref(job);
}
END_TEST

START_TEST(it_waits_for_device_work)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);

    gpu_fixture_hold(&f, f.stream);
    culvert_future *fill = culvert_fill(f.stream, buffer, 0, 16, 1, 4);
    culvert_future *d = culvert_drain(f.loop, INFINITY);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(d), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(d);
    ck_assert_int_eq(culvert_status(fill), CULVERT_OK);
    culvert_unref(fill);
    culvert_buffer_unref(buffer);
}
END_TEST

typedef struct request {
    culvert_batcher *batcher;
    culvert_buffer *buffer;
    int steps;
} request;

static culvert_future *to_batch(culvert_future *done, void *arg)
{
    request *r = arg;
    (void)done;
    r->steps++;
    return culvert_batcher_add(r->batcher, NULL, NULL, INFINITY);
}

static culvert_future *to_device(culvert_future *done, void *arg)
{
    request *r = arg;
    (void)done;
    r->steps++;
    return culvert_fill(f.stream, r->buffer, 0, 16, 1, 4);
}

static culvert_future *to_worker(culvert_future *done, void *arg)
{
    request *r = arg;
    (void)done;
    r->steps++;
    return culvert_work(f.loop, nothing, NULL, NULL, NULL);
}

/* case 116: those in flight get their answer, although each step begins something. */
START_TEST(case_116_a_request_half_way_gets_its_answer)
{
    request r = {make_batcher(), gpu_fixture_buffer(&f, 16), 0};

    atomic_store(&go, false);
    culvert_future *c = culvert_work(f.loop, until_go, NULL, NULL, NULL);
    c = culvert_then(c, to_batch, &r, NULL);
    c = culvert_then(c, to_device, &r, NULL);
    c = culvert_then(c, to_worker, &r, NULL);
    culvert_future *d = culvert_drain(f.loop, INFINITY);
    atomic_store(&go, true);
    gpu_fixture_ok(d);
    ck_assert_int_eq(r.steps, 3);
    ck_assert_int_eq(culvert_status(c), CULVERT_OK);
    culvert_unref(c);
    culvert_buffer_unref(r.buffer);
    culvert_batcher_unref(r.batcher);
}
END_TEST

START_TEST(it_does_not_wait_for_what_may_never_come)
{
    int fds[2];
    culvert_promise *promise;
    culvert_future *bare;

    ck_assert_int_eq(pipe(fds), 0);
    culvert_semaphore *s = culvert_semaphore_new(f.loop, 0, 1, NULL);
    promise = culvert_promise_new(f.loop, &bare);
    culvert_future *waits[] = {culvert_readable(f.loop, fds[0]), culvert_sleep(f.loop, 3600.0),
                               culvert_timeout(bare, 3600.0), culvert_semaphore_acquire(s)};
    gpu_fixture_ok(culvert_drain(f.loop, 100.0));
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(culvert_status(waits[i]), CULVERT_PENDING);
        culvert_unref(waits[i]);
    }
    culvert_promise_drop(promise);
    culvert_semaphore_unref(s);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(it_waits_for_an_answer_that_is_being_written)
{
    static char some[65536];
    int fds[2];

    ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
    while (write(fds[1], some, sizeof some) > 0)
        ;
    culvert_future *w = culvert_writable(f.loop, fds[1]);
    culvert_future *d = culvert_drain(f.loop, INFINITY);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(d), CULVERT_PENDING);
    while (read(fds[0], some, sizeof some) > 0)
        ;
    gpu_fixture_ok(d);
    ck_assert_int_eq(culvert_status(w), CULVERT_OK);
    culvert_unref(w);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

static void stop_waiting(void *arg)
{
    culvert_cancel(arg);
}

START_TEST(a_post_belongs_to_what_is_in_flight)
{
    culvert_future *s = culvert_sleep(f.loop, 3600.0);

    ck_assert_int_eq(culvert_post(f.loop, stop_waiting, s, NULL), CULVERT_OK);
    gpu_fixture_ok(culvert_drain(f.loop, INFINITY));
    ck_assert_int_eq(culvert_status(s), CULVERT_ECANCELED);
    culvert_unref(s);
}
END_TEST

/* ---- time ---- */

START_TEST(expiry_rejects_with_etimedout)
{
    atomic_store(&go, false);
    culvert_future *job = culvert_work(f.loop, until_go, NULL, NULL, NULL);
    culvert_future *longer = culvert_drain(f.loop, INFINITY);
    culvert_error err = gpu_fixture_fails(culvert_drain(f.loop, _i * 0.02), CULVERT_ETIMEDOUT);

    gpu_fixture_says(&err, "1 operation is in flight");
    ck_assert_int_eq(culvert_status(job), CULVERT_PENDING);
    rejects_now(culvert_work(f.loop, nothing, NULL, NULL, NULL), CULVERT_ESHUTDOWN);
    atomic_store(&go, true);
    gpu_fixture_ok(longer); /* each has a time of its own */
    culvert_unref(job);
}
END_TEST

START_TEST(seconds_that_are_none)
{
    rejects_now(culvert_drain(f.loop, -1.0), CULVERT_EINVAL);
    rejects_now(culvert_drain(f.loop, NAN), CULVERT_EINVAL);
    ck_assert_int_eq(culvert_draining(f.loop), 0);
    gpu_fixture_ok(culvert_work(f.loop, nothing, NULL, NULL, NULL));
}
END_TEST

START_TEST(a_drain_may_be_cancelled_and_the_loop_freed)
{
    atomic_store(&go, false);
    culvert_future *job = culvert_work(f.loop, until_go, NULL, NULL, NULL);
    culvert_unref(culvert_drain(f.loop, 3600.0));
    ck_assert_int_eq(culvert_draining(f.loop), 1);
    culvert_future *d = culvert_drain(f.loop, 3600.0);
    culvert_unref(job);
    atomic_store(&go, true);
    culvert_loop_free(f.loop);
    ck_assert(culvert_status(d) == CULVERT_ESHUTDOWN || culvert_status(d) == CULVERT_OK);
    culvert_unref(d);
    f.loop = NULL;
}
END_TEST

static void free_loop(culvert_future *done, void *arg)
{
    (void)arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    culvert_loop_free(f.loop);
    f.loop = NULL;
}

START_TEST(the_end_of_a_server)
{
    culvert_on_settled(culvert_drain(f.loop, 10.0), free_loop, NULL, NULL);
    ev_run(f.ev, 0);
    ck_assert_ptr_null(f.loop);
}
END_TEST

/* ---- a stream that never ends ---- */

static culvert_future *on_device(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    (void)batch;
    (void)items;
    (void)n;
    return culvert_fill(f.stream, arg, 0, 16, 1, 4);
}

static void note_turn(struct ev_loop *ev, ev_timer *w, int events)
{
    (void)ev;
    (void)events;
    ++*(int *)w->data;
}

START_TEST(case_048_a_kernel_that_never_ends_does_not_hold_up_the_rest)
{
    culvert_gpu_options go_ = CULVERT_GPU_OPTIONS_INIT;
    culvert_loop_options lo = CULVERT_LOOP_OPTIONS_INIT;
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;
    culvert_future *requests[10];
    ev_timer tick;
    int ticks = 0;

    gpu_fixture_close(&f);
    go_.stall_seconds = 0.05;
    lo.close_seconds = 0.1;
    gpu_fixture_open(&f, &lo, &go_);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    o.max_items = 1;
    o.max_running = 1;
    o.run = on_device;
    o.arg = buffer;
    culvert_batcher *b = culvert_batcher_new(f.loop, &o, NULL);
    culvert_sim_hold(culvert_stream_native(f.stream));
    for (int i = 0; i < 10; i++)
        requests[i] = culvert_timeout(culvert_batcher_add(b, NULL, NULL, 0.3), 0.3);
    gpu_fixture_run(&f, 0.01);
    for (int i = 5; i < 10; i++) {
        culvert_cancel(requests[i]);
        ck_assert_int_eq(culvert_status(requests[i]), CULVERT_ECANCELED);
    }
    ev_timer_init(&tick, note_turn, 0.0, 0.01);
    tick.data = &ticks;
    ev_timer_start(f.ev, &tick);
    for (int i = 0; i < 5; i++)
        (void)gpu_fixture_fails(requests[i], CULVERT_ETIMEDOUT);
    ev_timer_stop(f.ev, &tick);
    for (int i = 5; i < 10; i++)
        culvert_unref(requests[i]);
    ck_assert_int_ge(ticks, 3); /* the loop went on */
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_STALLED);
    (void)gpu_fixture_fails(culvert_drain(f.loop, 0.05), CULVERT_ETIMEDOUT);
    culvert_batcher_unref(b);
    culvert_buffer_unref(buffer);
    f.dirty = true; /* what the device holds is leaked */
    const double start = test_now();
    culvert_loop_free(f.loop);
    ck_assert_double_lt(test_now() - start, 20.0);
    f.loop = NULL;
    culvert_sim_release(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drain");
    TCase *tc = tcase_create("drain");

    tcase_add_checked_fixture(tc, setup, teardown);
    suite_add_tcase(suite, tc);
    tcase_add_test(tc, an_idle_binding_drains_at_once);
    tcase_add_test(tc, new_work_gets_eshutdown);
    tcase_add_test(tc, what_is_refused_has_a_message);
    tcase_add_test(tc, it_waits_for_jobs_and_for_what_they_lead_to);
    tcase_add_test(tc, it_waits_for_device_work);
    tcase_add_test(tc, case_116_a_request_half_way_gets_its_answer);
    tcase_add_test(tc, it_does_not_wait_for_what_may_never_come);
    tcase_add_test(tc, it_waits_for_an_answer_that_is_being_written);
    tcase_add_test(tc, a_post_belongs_to_what_is_in_flight);
    tcase_add_loop_test(tc, expiry_rejects_with_etimedout, 0, 2);
    tcase_add_test(tc, seconds_that_are_none);
    tcase_add_test(tc, a_drain_may_be_cancelled_and_the_loop_freed);
    tcase_add_test(tc, the_end_of_a_server);
    if (gpu_fixture_simulated())
        tcase_add_test(tc, case_048_a_kernel_that_never_ends_does_not_hold_up_the_rest);
    return test_main((Suite *[]){suite, NULL});
}
