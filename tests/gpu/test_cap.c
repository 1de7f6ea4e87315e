/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The caps of what is in the driver: they keep every call from blocking the loop's thread (the simulator
 * aborts if one does), and nobody from his turn.
 */
#define _POSIX_C_SOURCE 200809L
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { MANY = 10000 };
#else
enum { MANY = 100000 };
#endif

static gpu_fixture f;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    if (f.gpu != NULL)
        ck_assert_uint_eq(atomic_load(&f.gpu->device->units), 0); /* all are given back */
    gpu_fixture_close(&f);
}

static void launch(culvert_seq *seq)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &grid, NULL, 0);
}

static culvert_future *launches(culvert_stream *stream, unsigned n)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    for (unsigned i = 0; i < n; i++)
        launch(seq);
    return culvert_seq_submit(seq);
}

static uint64_t launched(void)
{
    return culvert_sim_calls("cuLaunchKernel");
}

typedef struct tally {
    unsigned settled, wanted;
    bool in_order;
    struct tally_item {
        struct tally *tally;
        unsigned number;
    } * items;
} tally;

static void count_item(culvert_future *done, void *arg)
{
    struct tally_item *item = arg;
    ck_assert_int_eq(culvert_status(done), CULVERT_OK);
    item->tally->in_order &= item->number == item->tally->settled;
    item->tally->settled++;
}

static void tally_begin(tally *t, unsigned n)
{
    *t = (tally){.wanted = n, .in_order = true, .items = calloc(n, sizeof *t->items)};
}

static void tally_add(tally *t, unsigned i, culvert_future *future)
{
    t->items[i] = (struct tally_item){t, i};
    ck_assert_int_eq(culvert_on_settled(future, count_item, &t->items[i], NULL), 0);
}

static bool tally_over(void *arg)
{
    tally *t = arg;
    return t->settled == t->wanted;
}

static void tally_end(tally *t)
{
    gpu_fixture_until(&f, tally_over, t);
    ck_assert(t->in_order);
    free(t->items);
}

/* ---- 100,000 at once ---- */

typedef struct flood {
    tally t;
    culvert_buffer *words;
} flood;

static void submit_flood(culvert_future *done, void *arg)
{
    flood *fl = arg;
    (void)done;
    for (unsigned i = 0; i < MANY; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        gpu_fixture_note(&f, seq, fl->words, i);
        tally_add(&fl->t, i, culvert_seq_submit(seq));
    }
}

START_TEST(case_087_a_hundred_thousand_in_one_callback)
{
    static unsigned out[1 + MANY];
    flood fl;
    tally_begin(&fl.t, MANY);
    fl.words = gpu_fixture_buffer(&f, sizeof out);
    gpu_fixture_hold(&f, f.stream);
    uint64_t before = launched(), arms = culvert_sim_calls("cuLaunchHostFunc");
    culvert_future *now = culvert_resolved(f.loop, NULL, NULL);
    ck_assert_int_eq(culvert_on_settled(now, submit_flood, &fl, NULL), 0);
    gpu_fixture_run(&f, 0.01);
    ck_assert_uint_eq(launched() - before, 256);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 256);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), MANY - 256);
    gpu_fixture_release(&f);
    tally_end(&fl.t);
    /* case 14: few wake-ups */
    ck_assert_uint_lt(culvert_sim_calls("cuLaunchHostFunc") - arms, MANY / 20);
    gpu_fixture_ok(culvert_download(f.stream, out, fl.words, 0, sizeof out));
    ck_assert_uint_eq(out[0], MANY);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_uint_eq(out[1 + i], i);
    culvert_buffer_unref(fl.words);
}
END_TEST

/* The worst: all streams share one queue of the hardware, and all of them stand still. */
START_TEST(case_087_one_hardware_queue_for_all_streams)
{
    enum { STREAMS = 12, EACH = 400 };
    culvert_stream *streams[STREAMS];
    tally t[STREAMS];
    gpu_fixture_close(&f);
    gpu_fixture_reset();
    culvert_sim_hardware_queues(1);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        culvert_sim_hold(culvert_stream_native(streams[s]));
        tally_begin(&t[s], EACH);
    }
    uint64_t before = launched();
    for (unsigned i = 0; i < EACH; i++)
        for (int s = 0; s < STREAMS; s++)
            tally_add(&t[s], i, launches(streams[s], 1 + i % 3));
    ck_assert_uint_eq(launched() - before, 768);
    culvert_sim_release(NULL);
    for (int s = 0; s < STREAMS; s++) {
        tally_end(&t[s]);
        culvert_stream_unref(streams[s]);
    }
}
END_TEST

/* ---- how much is in the driver ---- */

START_TEST(a_stream_has_256_operations_in_the_driver)
{
    static const unsigned sizes[] = {1, 2, 3, 100, 128, 129, 256, 300, 5000};
    unsigned size = sizes[_i];
    culvert_future *last = NULL;
    gpu_fixture_hold(&f, f.stream);
    uint64_t before = launched();
    for (unsigned i = 0; i < 600 / size + 2; i++) {
        if (last != NULL)
            culvert_detach(last);
        last = launches(f.stream, size);
    }
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_le(launched() - before, 256);
    ck_assert_uint_gt(launched() - before, 256 - 128); /* a segment more would not have fitted */
    ck_assert_uint_le(f.stream->units, 256);
    gpu_fixture_release(&f);
    gpu_fixture_ok(last);
    gpu_fixture_idle(&f, f.stream);
    ck_assert_uint_eq(launched() - before, (600 / size + 2) * size);
}
END_TEST

START_TEST(empty_sequences_count_too)
{
    culvert_future *last = NULL;
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 0; i < 1000; i++) {
        if (last != NULL)
            culvert_detach(last);
        last = culvert_stream_done(f.stream);
    }
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 256);
    gpu_fixture_release(&f);
    gpu_fixture_ok(last);
}
END_TEST

START_TEST(a_device_has_768_operations_in_the_driver)
{
    enum { STREAMS = 8 };
    culvert_stream *streams[STREAMS];
    uint64_t before = launched();
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        gpu_fixture_hold(&f, streams[s]);
        for (int i = 0; i < 300; i++)
            culvert_detach(launches(streams[s], 1));
    }
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_eq(launched() - before, 768);
    ck_assert_uint_eq(atomic_load(&f.gpu->device->units), 768);
    gpu_fixture_release(&f);
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_idle(&f, streams[s]);
        culvert_stream_unref(streams[s]);
    }
    ck_assert_uint_eq(launched() - before, 300 * STREAMS);
}
END_TEST

START_TEST(a_long_sequence_goes_in_pieces_and_is_one)
{
    enum { N = 2000 };
    static unsigned out[1 + 2 * N];
    culvert_buffer *words = gpu_fixture_buffer(&f, sizeof out);
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(f.stream), *next = culvert_seq_begin(f.stream);
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 0; i < N; i++)
        gpu_fixture_note(&f, seq, words, i);
    for (unsigned i = N; i < 2 * N; i++)
        gpu_fixture_note(&f, next, words, i);
    culvert_future *first = culvert_seq_submit(seq), *second = culvert_seq_submit(next);
    culvert_seq *after = culvert_seq_begin(other); /* waits for an operation that is in pieces */
    culvert_seq_wait(after, culvert_ref(first));
    culvert_future *third = culvert_seq_submit(after);
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 1);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 1);
    ck_assert_uint_eq(culvert_stream_queued(other), 1);
    gpu_fixture_release(&f);
    gpu_fixture_ok(third);
    ck_assert_int_eq(culvert_status(first), CULVERT_OK);
    culvert_unref(first);
    gpu_fixture_ok(second);
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, sizeof out));
    ck_assert_uint_eq(out[0], 2 * N);
    for (unsigned i = 0; i < 2 * N; i++)
        ck_assert_uint_eq(out[1 + i], i);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

/* ---- calls of other libraries ---- */

static int count_call(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    ++*(unsigned *)arg;
    return 0;
}

START_TEST(a_call_counts_as_its_weight)
{
    static const struct {
        unsigned weight, in_driver;
    } rows[] = {{0, 256 / CULVERT_CALL_WEIGHT}, {1, 256}, {100, 2}, {128, 2}, {129, 1}, {256, 1}};
    unsigned calls = 0, n = 300;
    culvert_future *last = NULL;
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 0; i < n; i++) {
        culvert_seq *seq = culvert_seq_begin(f.stream);
        if (rows[_i].weight == 0)
            culvert_seq_call(seq, count_call, &calls, NULL);
        else
            culvert_seq_call_weighted(seq, count_call, &calls, NULL, rows[_i].weight);
        if (last != NULL)
            culvert_detach(last);
        last = culvert_seq_submit(seq);
    }
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_eq(calls, rows[_i].in_driver);
    gpu_fixture_release(&f);
    gpu_fixture_ok(last);
    ck_assert_uint_eq(calls, n);
}
END_TEST

/* ---- turns ---- */

START_TEST(max_queued_is_exact)
{
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
    options.max_queued = 3;
    culvert_stream *stream = culvert_stream_new(f.gpu, &options, NULL);
    gpu_fixture_hold(&f, stream);
    for (int i = 0; i < 256 + 3; i++)
        culvert_detach(launches(stream, 1));
    ck_assert_uint_eq(culvert_stream_queued(stream), 3);
    for (int i = 0; i < 2; i++) {
        culvert_error err = gpu_fixture_fails(launches(stream, 1), CULVERT_EAGAIN);
        gpu_fixture_says(&err, "3 sequences wait");
    }
    ck_assert_uint_eq(culvert_stream_queued(stream), 3);
    gpu_fixture_release(&f);
    gpu_fixture_idle(&f, stream);
    gpu_fixture_ok(launches(stream, 1));
    culvert_stream_unref(stream);
}
END_TEST

static unsigned settled[8];

static void count_settled(culvert_future *done, void *arg)
{
    (void)done;
    ++*(unsigned *)arg;
}

/* Others have filled the device and their own queues: one more stream gets its turn nevertheless. */
START_TEST(a_stream_is_not_starved_by_others)
{
    enum { BUSY = 5, EACH = 3000 };
    culvert_stream *streams[BUSY];
    for (int s = 0; s < BUSY; s++) {
        streams[s] = gpu_fixture_stream(&f);
        for (int i = 0; i < EACH; i++)
            culvert_detach(launches(streams[s], 1));
    }
    for (int i = 0; i < 3; i++) {
        uint64_t before = launched();
        culvert_future *future = launches(f.stream, 1);
        while (culvert_stream_queued(f.stream) > 0)
            ev_run(f.ev, EVRUN_ONCE);
        /* what was free when it joined the line, and a turn of each of the others */
        ck_assert_uint_le(launched() - before, 768 + BUSY * 256);
        culvert_detach(future);
    }
    size_t queued = 0;
    for (int s = 0; s < BUSY; s++) {
        queued += culvert_stream_queued(streams[s]);
        gpu_fixture_idle(&f, streams[s]);
        culvert_stream_unref(streams[s]);
    }
    ck_assert_uint_gt(queued, 0);
}
END_TEST

/* Six with the same to do: when the first has done all of it, the last has done a good part. */
START_TEST(streams_share_the_device)
{
    enum { STREAMS = 6, EACH = 2000 };
    culvert_stream *streams[STREAMS];
    bool over = false;
    memset(settled, 0, sizeof settled);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        for (int i = 0; i < EACH; i++)
            ck_assert_int_eq(culvert_on_settled(launches(streams[s], 1), count_settled, &settled[s],
                                                NULL),
                             0);
    }
    while (!over) {
        ev_run(f.ev, EVRUN_ONCE);
        for (int s = 0; s < STREAMS; s++)
            over |= settled[s] == EACH;
    }
    for (int s = 0; s < STREAMS; s++)
        ck_assert_uint_gt(settled[s], EACH / 4);
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_idle(&f, streams[s]);
        culvert_stream_unref(streams[s]);
    }
}
END_TEST

/* ---- two loops, one device ---- */

typedef struct rival {
    pthread_t thread;
    pthread_barrier_t *full, *released;
    unsigned each, settled;
} rival;

static void *run_rival(void *arg)
{
    enum { STREAMS = 4 };
    rival *r = arg;
    gpu_fixture g;
    culvert_stream *streams[STREAMS];
    gpu_fixture_open_as_is(&g, NULL, NULL);
    g.dirty = true; /* the other one is still there */
    culvert_kernel *kernel = gpu_fixture_kernel(&g, "empty");
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    for (int s = 0; s < STREAMS; s++)
        streams[s] = gpu_fixture_stream(&g);
    pthread_barrier_wait(r->full);
    pthread_barrier_wait(r->released); /* the device is held now */
    for (int s = 0; s < STREAMS; s++)
        for (unsigned i = 0; i < r->each; i++)
            ck_assert_int_eq(culvert_on_settled(culvert_launch(streams[s], kernel, &grid, NULL, 0),
                                                count_settled, &r->settled, NULL),
                             0);
    for (int i = 0; i < 5; i++)
        ev_run(g.ev, EVRUN_NOWAIT);
    pthread_barrier_wait(r->full);
    pthread_barrier_wait(r->released);
    ev_run(g.ev, 0);
    for (int s = 0; s < STREAMS; s++)
        culvert_stream_unref(streams[s]);
    pthread_barrier_wait(r->full);
    gpu_fixture_close(&g);
    return NULL;
}

START_TEST(two_loops_share_the_devices_cap)
{
    enum { RIVALS = 2, EACH = 1000 };
    rival rivals[RIVALS];
    pthread_barrier_t full, released;
    pthread_barrier_init(&full, NULL, RIVALS + 1);
    pthread_barrier_init(&released, NULL, RIVALS + 1);
    for (int i = 0; i < RIVALS; i++) {
        rivals[i] = (rival){.full = &full, .released = &released, .each = EACH};
        ck_assert_int_eq(pthread_create(&rivals[i].thread, NULL, run_rival, &rivals[i]), 0);
    }
    pthread_barrier_wait(&full);
    culvert_sim_hold(NULL);
    uint64_t before = launched();
    pthread_barrier_wait(&released);
    pthread_barrier_wait(&full);
    ck_assert_uint_eq(launched() - before, 768);
    culvert_sim_release(NULL);
    pthread_barrier_wait(&released);
    pthread_barrier_wait(&full);
    for (int i = 0; i < RIVALS; i++) {
        pthread_join(rivals[i].thread, NULL);
        ck_assert_uint_eq(rivals[i].settled, 4 * EACH);
    }
    ck_assert_uint_eq(launched() - before, RIVALS * 4 * EACH);
    pthread_barrier_destroy(&full);
    pthread_barrier_destroy(&released);
}
END_TEST

static void ignore_unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)arg;
    ck_assert_int_eq(err->code, CULVERT_ESHUTDOWN);
}

/* A binding that was taken down with work in flight: its part of the cap is for others again. */
START_TEST(a_closed_loop_gives_its_part_back)
{
    gpu_fixture g;
    culvert_stream *streams[3];
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.close_seconds = 0.01;
    options.on_unhandled = ignore_unhandled;
    gpu_fixture_open_as_is(&g, &options, NULL);
    g.dirty = true;
    for (int s = 0; s < 3; s++) {
        streams[s] = gpu_fixture_stream(&g);
        culvert_sim_hold(culvert_stream_native(streams[s]));
        for (int i = 0; i < 300; i++)
            culvert_detach(culvert_stream_done(streams[s]));
        culvert_stream_unref(streams[s]);
    }
    ck_assert_uint_eq(atomic_load(&f.gpu->device->units), 768);
    culvert_future *future = launches(f.stream, 1);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), 1);
    gpu_fixture_close(&g);
    gpu_fixture_ok(future);
    for (int i = 0; i < 100; i++)
        gpu_fixture_ok(launches(f.stream, 20));
    culvert_sim_release(NULL);
    f.dirty = true; /* what the device held is leaked */
}
END_TEST

static Suite *cap_suite(void)
{
    Suite *suite = suite_create("cap");
    TCase *tc = tcase_create("floods");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_087_a_hundred_thousand_in_one_callback);
    tcase_add_test(tc, case_087_one_hardware_queue_for_all_streams);
    suite_add_tcase(suite, tc);

    tc = tcase_create("caps");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_stream_has_256_operations_in_the_driver, 0, 9);
    tcase_add_test(tc, empty_sequences_count_too);
    tcase_add_test(tc, a_device_has_768_operations_in_the_driver);
    tcase_add_test(tc, a_long_sequence_goes_in_pieces_and_is_one);
    tcase_add_loop_test(tc, a_call_counts_as_its_weight, 0, 6);
    suite_add_tcase(suite, tc);

    tc = tcase_create("turns");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, max_queued_is_exact);
    tcase_add_test(tc, a_stream_is_not_starved_by_others);
    tcase_add_test(tc, streams_share_the_device);
    tcase_add_test(tc, two_loops_share_the_devices_cap);
    tcase_add_test(tc, a_closed_loop_gives_its_part_back);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {cap_suite(), NULL};
    return test_main(suites);
}
