/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that a signal interrupts a thousand times a second, with a handler that does not restart
 * calls: nothing fails of it, and nothing is lost.
 */
#define _GNU_SOURCE
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { KIB = 1024, LARGE = 2500 * KIB, STREAMS = 3, BATCH = 12, WORDS = 1024 };

static const double seconds = 1.5;

static gpu_fixture f;
static culvert_stream *streams[STREAMS];
static culvert_buffer *buffers[STREAMS], *lists[STREAMS];
static unsigned char *in[STREAMS], *out[STREAMS];
static _Atomic unsigned interrupts, on_loop;
static pthread_t loop_thread;

static void no_op(int number)
{
    (void)number;
    atomic_fetch_add(&interrupts, 1);
    if (pthread_equal(pthread_self(), loop_thread))
        atomic_fetch_add(&on_loop, 1);
}

static void interrupt_every(unsigned microseconds)
{
    struct sigaction action = {.sa_handler = no_op}; /* without SA_RESTART */
    struct itimerval every = {{0, (suseconds_t)microseconds}, {0, (suseconds_t)microseconds}};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    loop_thread = pthread_self();
    for (unsigned s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        buffers[s] = gpu_fixture_buffer(&f, LARGE);
        lists[s] = gpu_fixture_host_buffer(&f, WORDS * sizeof(unsigned));
        in[s] = malloc(LARGE);
        out[s] = malloc(LARGE);
        ck_assert(in[s] != NULL && out[s] != NULL);
    }
    interrupt_every(1000);
}

static void tear_down(void)
{
    for (unsigned s = 0; s < STREAMS; s++) {
        culvert_stream_unref(streams[s]);
        culvert_buffer_unref(buffers[s]);
        culvert_buffer_unref(lists[s]);
        free(in[s]);
        free(out[s]);
    }
    gpu_fixture_close(&f);
    interrupt_every(0);
}

/* Whether the loop's thread was interrupted, too; else the test says nothing. */
static void ck_interrupted(void)
{
    ck_assert_uint_gt(interrupts, 50);
    ck_assert_uint_gt(on_loop, 10);
}

START_TEST(launches_are_all_there_and_in_order)
{
    double end = test_now() + seconds;
    for (unsigned round = 0; test_now() < end; round++) {
        culvert_future *futures[STREAMS * BATCH];
        for (unsigned s = 0; s < STREAMS; s++)
            *(unsigned *)culvert_buffer_data(lists[s]) = 0;
        for (unsigned i = 0; i < STREAMS * BATCH; i++) {
            culvert_seq *seq = culvert_seq_begin(streams[i % STREAMS]);
            gpu_fixture_note(&f, seq, lists[i % STREAMS], round + i);
            if (i >= STREAMS && i % 5 == 0)
                culvert_seq_wait(seq, culvert_ref(futures[i - 2]));
            futures[i] = culvert_seq_submit(seq);
        }
        for (unsigned i = 0; i < STREAMS * BATCH; i++)
            gpu_fixture_ok(futures[i]);
        for (unsigned i = 0; i < STREAMS * BATCH; i++) {
            const unsigned *words = culvert_buffer_data(lists[i % STREAMS]);
            ck_assert_uint_eq(words[0], BATCH);
            ck_assert_uint_eq(words[1 + i / STREAMS], round + i);
        }
    }
    ck_interrupted();
}
END_TEST

/* Of ordinary memory, so that they are staged, by worker threads for what is large. */
START_TEST(staged_copies_are_whole)
{
    double end = test_now() + seconds;
    for (unsigned round = 1; test_now() < end; round++) {
        culvert_future *futures[2 * STREAMS];
        for (unsigned s = 0; s < STREAMS; s++) {
            size_t bytes = round % 2 ? LARGE : 10 * KIB + s;
            for (size_t i = 0; i < bytes; i++)
                in[s][i] = (unsigned char)(i * 31 + (i >> 8) + round * 7 + s);
            memset(out[s], 0, bytes);
            futures[2 * s] = culvert_upload(streams[s], buffers[s], 0, in[s], bytes);
            futures[2 * s + 1] = culvert_download(streams[s], out[s], buffers[s], 0, bytes);
        }
        for (unsigned i = 0; i < 2 * STREAMS; i++)
            gpu_fixture_ok(futures[i]);
        for (unsigned s = 0; s < STREAMS; s++)
            ck_assert(memcmp(in[s], out[s], round % 2 ? LARGE : 10 * KIB + s) == 0);
    }
    ck_assert(culvert__staging_at_rest(f.gpu));
    ck_interrupted();
}
END_TEST

static void *twice(void *arg, culvert_error *err)
{
    unsigned *number = arg;
    (void)err;
    if (*number % 3 == 0)
        test_sleep(0.0005);
    *number *= 2;
    return number;
}

static void *refuse(void *arg, culvert_error *err)
{
    (void)arg;
    culvert_error_set(err, CULVERT_EUSER, 42, "refused");
    return NULL;
}

START_TEST(worker_jobs_all_run)
{
    double end = test_now() + seconds;
    for (unsigned round = 0; test_now() < end; round++) {
        unsigned numbers[BATCH];
        culvert_future *futures[BATCH], *refused;
        for (unsigned i = 0; i < BATCH; i++) {
            numbers[i] = round + i;
            futures[i] = culvert_work(f.loop, twice, &numbers[i], NULL, NULL);
        }
        refused = culvert_work(f.loop, refuse, NULL, NULL, NULL);
        gpu_fixture_ok(culvert_sleep(f.loop, 0.001));
        for (unsigned i = 0; i < BATCH; i++)
            gpu_fixture_ok(futures[i]);
        ck_assert_int_eq(gpu_fixture_fails(refused, CULVERT_EUSER).native, 42);
        for (unsigned i = 0; i < BATCH; i++)
            ck_assert_uint_eq(numbers[i], 2 * (round + i));
    }
    ck_interrupted();
}
END_TEST

/* Memory that grows, modules, and a device that is opened and closed: the threads that do these begin and
   end under fire. */
START_TEST(devices_come_and_go)
{
    double end = test_now() + seconds;
    do {
        culvert_error err = CULVERT_ERROR_INIT;
        culvert_gpu *gpu = culvert_gpu_open(f.loop, 0, NULL, &err);
        ck_assert_msg(gpu != NULL, "%s", err.message);
        culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
        ck_assert_msg(stream != NULL, "%s", err.message);
        culvert_future *future = culvert_buffer_alloc(gpu, LARGE);
        gpu_fixture_ok(culvert_ref(future));
        culvert_buffer *buffer = culvert_take(future);
        culvert_unref(future);
        gpu_fixture_ok(culvert_upload(stream, buffer, 0, in[0], LARGE));
        culvert_buffer_unref(buffer);
        culvert_stream_unref(stream);
        culvert_gpu_close(gpu);
        gpu_fixture_run(&f, 0.01);
    } while (test_now() < end);
    ck_interrupted();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("signals");
    TCase *tc = tcase_create("signals");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, launches_are_all_there_and_in_order);
    tcase_add_test(tc, staged_copies_are_whole);
    tcase_add_test(tc, worker_jobs_all_run);
    tcase_add_test(tc, devices_come_and_go);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
