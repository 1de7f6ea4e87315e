/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is waited for: culvert_buffer_alloc and culvert_host_buffer_alloc. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

static gpu_fixture f;

static void open_with(size_t device_limit, size_t pinned_limit)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_limit = device_limit;
    options.pinned_limit = pinned_limit;
    gpu_fixture_open(&f, NULL, &options);
}

static void set_up(void)
{
    open_with(64 * MIB, 16 * MIB);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static culvert_buffer *take(size_t bytes)
{
    return gpu_fixture_got(culvert_buffer_alloc(f.gpu, bytes));
}

/* Work on the buffer that does not begin; the buffer is the work's alone. */
static culvert_future *hold_with(culvert_buffer *buffer)
{
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, buffer, 0, culvert_buffer_size(buffer), 0x5a, 1);
    culvert_buffer_unref(buffer);
    return work;
}

static culvert_gpu_memory_counters counters(void)
{
    culvert_gpu_memory_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_gpu_memory(f.gpu, &c), CULVERT_OK);
    return c;
}

/* ---- at once ---- */

START_TEST(what_is_there_comes_at_once_and_calls_no_driver)
{
    culvert_buffer_unref(take(MIB)); /* the heap has grown */
    uint64_t calls = gpu_fixture_simulated() ? culvert_sim_calls(NULL) : 0;
    culvert_future *device = culvert_buffer_alloc(f.gpu, 1000);
    culvert_future *host = culvert_host_buffer_alloc(f.gpu, 1000);
    ck_assert_int_eq(culvert_status(device), CULVERT_OK);
    ck_assert_int_eq(culvert_status(host), CULVERT_OK);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
    culvert_buffer *a = gpu_fixture_got(device), *b = gpu_fixture_got(host);
    ck_assert_uint_eq(culvert_buffer_size(a), 1000);
    ck_assert_ptr_null(culvert_buffer_data(a));
    memset(culvert_buffer_data(b), 7, 1000);
    gpu_fixture_ok(culvert_copy(f.stream, a, 0, b, 0, 1000));
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
    ck_assert_uint_eq(counters().device_used, 0);
}
END_TEST

START_TEST(growing_is_never_in_the_call)
{
    uint64_t calls = gpu_fixture_simulated() ? culvert_sim_calls(NULL) : 0;
    culvert_future *future = culvert_buffer_alloc(f.gpu, 10 * MIB);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
    culvert_buffer_unref(gpu_fixture_got(future));
    ck_assert_uint_ge(counters().grown, 1);
}
END_TEST

START_TEST(a_value_that_nobody_takes_is_memory_again)
{
    culvert_unref(culvert_buffer_alloc(f.gpu, MIB));  /* before it has memory */
    gpu_fixture_ok(culvert_buffer_alloc(f.gpu, MIB)); /* with */
    culvert_detach(culvert_host_buffer_alloc(f.gpu, 1000));
    gpu_fixture_run(&f, 0.001);
    ck_assert_uint_eq(counters().device_used, 0);
    ck_assert_uint_eq(counters().waiting, 0);
}
END_TEST

START_TEST(case_091_no_bytes_are_a_buffer)
{
    culvert_buffer *a = take(0), *b = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, 0));
    ck_assert_uint_eq(culvert_buffer_size(a), 0);
    ck_assert_ptr_nonnull(culvert_buffer_data(b));
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
}
END_TEST

START_TEST(case_092_what_can_never_be_is_refused_at_once)
{
    culvert_error err = gpu_fixture_fails(culvert_buffer_alloc(f.gpu, SIZE_MAX), CULVERT_EOVERFLOW);
    ck_assert_str_eq(err.op, "culvert_buffer_alloc");
    ck_assert_ptr_nonnull(strstr(err.where, "test_alloc.c:"));
    (void)gpu_fixture_fails(culvert_host_buffer_alloc(f.gpu, SIZE_MAX - 100), CULVERT_EOVERFLOW);
    culvert_future *future = culvert_buffer_alloc(f.gpu, 64 * MIB + 1);
    ck_assert_int_eq(culvert_status(future), CULVERT_ENOMEM);
    err = gpu_fixture_fails(future, CULVERT_ENOMEM);
    gpu_fixture_says(&err, "67108865 bytes of device memory");
    gpu_fixture_says(&err, "limit, which is 67108864");
    err = gpu_fixture_fails(culvert_host_buffer_alloc(f.gpu, 17 * MIB), CULVERT_ENOMEM);
    gpu_fixture_says(&err, "pinned memory");
    gpu_fixture_close(&f);
    gpu_fixture_open(&f, NULL, NULL);
    err = gpu_fixture_fails(culvert_buffer_alloc(f.gpu, (size_t)1 << 50), CULVERT_ENOMEM);
    gpu_fixture_says(&err, "the device has");
}
END_TEST

/* ---- waiting ---- */

START_TEST(it_waits_for_the_work_that_holds_the_memory)
{
    culvert_future *work = hold_with(take(64 * MIB));
    culvert_future *future = culvert_buffer_alloc(f.gpu, 40 * MIB);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    ck_assert_uint_eq(counters().waiting, 1);
    gpu_fixture_release(&f);
    culvert_buffer *buffer = gpu_fixture_got(future);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 40 * MIB, 1, 1));
    culvert_buffer_unref(buffer);
    gpu_fixture_ok(work);
    ck_assert_uint_eq(counters().waited, 2);
    ck_assert_uint_eq(counters().rejected, 0);
}
END_TEST

START_TEST(pinned_memory_is_waited_for_too)
{
    culvert_buffer *all[16];
    unsigned n = 0;
    for (; n < 16 && counters().pinned_used + MIB <= 16 * MIB; n++)
        all[n] = gpu_fixture_got(culvert_host_buffer_alloc(f.gpu, MIB));
    ck_assert_uint_gt(n, 2);
    culvert_future *work = hold_with(all[--n]);
    culvert_future *future = culvert_host_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    culvert_buffer_unref(gpu_fixture_got(future));
    gpu_fixture_ok(work);
    while (n > 0)
        culvert_buffer_unref(all[--n]);
}
END_TEST

/* Others' memory is not taken for the small ones behind it. */
START_TEST(a_large_request_is_not_passed_by)
{
    culvert_buffer *half = take(32 * MIB);
    culvert_future *work = hold_with(take(32 * MIB));
    culvert_buffer_unref(half); /* room for all but the first in the line */
    culvert_future *large = culvert_buffer_alloc(f.gpu, 48 * MIB);
    culvert_future *small[4];
    for (int i = 0; i < 4; i++)
        small[i] = culvert_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(large), CULVERT_PENDING);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(culvert_status(small[i]), CULVERT_PENDING);
    gpu_fixture_release(&f);
    culvert_buffer_unref(gpu_fixture_got(large));
    for (int i = 0; i < 4; i++)
        culvert_buffer_unref(gpu_fixture_got(small[i]));
    gpu_fixture_ok(work);
}
END_TEST

START_TEST(one_that_is_cancelled_lets_the_next_pass)
{
    culvert_buffer *half = take(32 * MIB);
    culvert_future *work = hold_with(take(32 * MIB));
    culvert_buffer_unref(half);
    culvert_future *large = culvert_buffer_alloc(f.gpu, 48 * MIB);
    culvert_future *dropped = culvert_buffer_alloc(f.gpu, 48 * MIB);
    culvert_future *small = culvert_buffer_alloc(f.gpu, MIB);
    culvert_future *late = culvert_timeout(culvert_buffer_alloc(f.gpu, 60 * MIB), 0.01);
    gpu_fixture_run(&f, 0.001);
    culvert_cancel(large);
    culvert_unref(dropped);
    (void)gpu_fixture_fails(large, CULVERT_ECANCELED);
    culvert_buffer_unref(gpu_fixture_got(small));
    (void)gpu_fixture_fails(late, CULVERT_ETIMEDOUT);
    gpu_fixture_run(&f, 0.001);
    ck_assert_uint_eq(counters().waiting, 0);
    gpu_fixture_release(&f);
    gpu_fixture_ok(work);
}
END_TEST

/* What the program's own callback releases counts: the work in flight leads there. */
static culvert_future *release_in_step(culvert_future *done, void *arg)
{
    (void)done;
    culvert_buffer_unref(arg);
    return NULL;
}

START_TEST(it_waits_for_what_a_callback_releases)
{
    culvert_buffer *buffer = take(64 * MIB);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work =
        culvert_then(culvert_fill(f.stream, buffer, 0, 64, 1, 1), release_in_step, buffer, NULL);
    culvert_future *future = culvert_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    culvert_buffer_unref(gpu_fixture_got(future));
    gpu_fixture_ok(work);
}
END_TEST

static void *release_on_worker(void *arg, culvert_error *err)
{
    (void)err;
    test_sleep(0.02);
    culvert_buffer_unref(arg);
    return NULL;
}

START_TEST(it_waits_for_a_job_on_a_worker)
{
    culvert_buffer *buffer = take(64 * MIB);
    culvert_future *job = culvert_work(f.loop, release_on_worker, buffer, NULL, NULL);
    culvert_buffer_unref(take(MIB));
    gpu_fixture_ok(job);
}
END_TEST

static void *release_on_thread(void *arg)
{
    test_sleep(0.02);
    culvert_buffer_unref(arg);
    return NULL;
}

/* The loop sleeps meanwhile, and nothing but the buffer wakes it. */
START_TEST(a_buffer_that_goes_on_another_thread_wakes_the_loop)
{
    pthread_t thread;
    culvert_buffer *buffer = take(48 * MIB);
    culvert_future *work = hold_with(take(16 * MIB));
    culvert_future *future = culvert_buffer_alloc(f.gpu, 40 * MIB);
    ck_assert_int_eq(pthread_create(&thread, NULL, release_on_thread, buffer), 0);
    culvert_buffer_unref(gpu_fixture_got(future)); /* the work is held all the time */
    pthread_join(thread, NULL);
    ck_assert_int_eq(culvert_status(work), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(work);
}
END_TEST

/* ---- giving up ---- */

START_TEST(nothing_in_flight_means_no)
{
    culvert_buffer *buffer = take(60 * MIB);
    culvert_error err = gpu_fixture_fails(culvert_buffer_alloc(f.gpu, 10 * MIB), CULVERT_ENOMEM);
    ck_assert_str_eq(err.op, "culvert_buffer_alloc");
    gpu_fixture_says(&err, "10485760 bytes of device memory asked for");
    gpu_fixture_says(&err, "67108864 taken");
    gpu_fixture_says(&err, "62914560 of these in use");
    gpu_fixture_says(&err, "largest free range 4194304");
    gpu_fixture_says(&err, "limit 67108864");
    ck_assert_uint_eq(counters().rejected, 1);
    culvert_buffer_unref(take(4 * MIB)); /* what fits fits */
    culvert_buffer_unref(buffer);
}
END_TEST

typedef struct server {
    unsigned left;
    culvert_buffer *words;
} server;

static void again(culvert_future *done, void *arg)
{
    server *s = arg;
    (void)done;
    if (s->left == 0)
        return;
    s->left--;
    ck_assert_int_eq(culvert_on_settled(culvert_fill(f.stream, s->words, 0, 1024, 1, 4), again, s,
                                        NULL),
                     CULVERT_OK);
}

/* There is always something in flight, but it is never what holds the memory. */
START_TEST(a_busy_device_does_not_make_it_wait_for_ever)
{
    server s = {1000000, take(MIB)};
    culvert_buffer *rest = take(60 * MIB);
    for (int i = 0; i < 3; i++)
        again(NULL, &s);
    (void)gpu_fixture_fails(culvert_buffer_alloc(f.gpu, 10 * MIB), CULVERT_ENOMEM);
    ck_assert_uint_gt(s.left, 0); /* it went on */
    s.left = 0;
    gpu_fixture_idle(&f, f.stream);
    culvert_buffer_unref(rest);
    culvert_buffer_unref(s.words);
}
END_TEST

/* Neither counts as what the other may get memory from. */
START_TEST(two_that_wait_do_not_wait_for_each_other)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_limit = 8 * MIB;
    culvert_gpu *other = culvert_gpu_open(f.loop, f.ordinal, &options, NULL);
    ck_assert_ptr_nonnull(other);
    culvert_buffer *mine = take(64 * MIB),
                   *its = gpu_fixture_got(culvert_buffer_alloc(other, 8 * MIB));
    culvert_future *a = culvert_buffer_alloc(f.gpu, MIB), *b = culvert_buffer_alloc(other, MIB);
    (void)gpu_fixture_fails(a, CULVERT_ENOMEM);
    (void)gpu_fixture_fails(b, CULVERT_ENOMEM);
    culvert_buffer_unref(mine);
    culvert_buffer_unref(its);
    culvert_gpu_close(other);
}
END_TEST

START_TEST(closing_the_device_rejects_who_waits)
{
    culvert_future *work = hold_with(take(64 * MIB));
    culvert_future *future = culvert_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.001);
    culvert_gpu *gpu = f.gpu;
    f.gpu = NULL;
    culvert_gpu_close(gpu);
    ck_assert_int_eq(culvert_get_error(future)->code, CULVERT_ESHUTDOWN);
    culvert_unref(future);
    gpu_fixture_release(&f);
    gpu_fixture_ok(work);
}
END_TEST

START_TEST(taking_the_loop_down_rejects_who_waits)
{
    culvert_future *work = hold_with(take(64 * MIB));
    culvert_future *future = culvert_buffer_alloc(f.gpu, MIB);
    gpu_fixture_run(&f, 0.001);
    gpu_fixture_release(&f);
    culvert_buffer_unref(f.gate);
    f.gate = NULL;
    culvert_loop_free(f.loop); /* the work ends, and so there is memory; or there is not: in time */
    ck_assert_int_ne(culvert_status(future), CULVERT_PENDING);
    culvert_unref(future);
    culvert_unref(work);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    ev_loop_destroy(f.ev);
    memset(&f, 0, sizeof f);
}
END_TEST

START_TEST(a_drained_binding_takes_no_request)
{
    culvert_future *drained = culvert_drain(f.loop, 10);
    culvert_future *future = culvert_buffer_alloc(f.gpu, MIB);
    ck_assert_int_eq(culvert_get_error(future)->code, CULVERT_ESHUTDOWN);
    culvert_unref(future);
    gpu_fixture_ok(drained);
}
END_TEST

START_TEST(a_request_is_in_flight_for_a_drain)
{
    culvert_future *work = hold_with(take(64 * MIB));
    culvert_future *future = culvert_buffer_alloc(f.gpu, MIB);
    culvert_future *drained = culvert_drain(f.loop, 60);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(drained), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(drained);
    ck_assert_int_eq(culvert_status(future), CULVERT_OK);
    culvert_unref(future);
    culvert_unref(work);
}
END_TEST

static Suite *alloc_suite(void)
{
    Suite *suite = suite_create("alloc");
    TCase *tc = tcase_create("any driver");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, what_is_there_comes_at_once_and_calls_no_driver);
    tcase_add_test(tc, growing_is_never_in_the_call);
    tcase_add_test(tc, a_value_that_nobody_takes_is_memory_again);
    tcase_add_test(tc, case_091_no_bytes_are_a_buffer);
    tcase_add_test(tc, case_092_what_can_never_be_is_refused_at_once);
    tcase_add_test(tc, it_waits_for_the_work_that_holds_the_memory);
    tcase_add_test(tc, pinned_memory_is_waited_for_too);
    tcase_add_test(tc, a_large_request_is_not_passed_by);
    tcase_add_test(tc, one_that_is_cancelled_lets_the_next_pass);
    tcase_add_test(tc, it_waits_for_what_a_callback_releases);
    tcase_add_test(tc, it_waits_for_a_job_on_a_worker);
    tcase_add_test(tc, a_buffer_that_goes_on_another_thread_wakes_the_loop);
    tcase_add_test(tc, nothing_in_flight_means_no);
    tcase_add_test(tc, a_busy_device_does_not_make_it_wait_for_ever);
    tcase_add_test(tc, two_that_wait_do_not_wait_for_each_other);
    tcase_add_test(tc, closing_the_device_rejects_who_waits);
    tcase_add_test(tc, taking_the_loop_down_rejects_who_waits);
    tcase_add_test(tc, a_drained_binding_takes_no_request);
    tcase_add_test(tc, a_request_is_in_flight_for_a_drain);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {alloc_suite(), NULL};
    return test_main(suites);
}
