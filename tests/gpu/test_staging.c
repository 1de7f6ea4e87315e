/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies of ordinary memory: the right bytes, of any size, without the driver or the loop ever waiting. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

static gpu_fixture f;

static void tear_down(void)
{
    if (f.gpu != NULL)
        ck_assert(culvert__staging_at_rest(f.gpu));
    gpu_fixture_close(&f);
}

/* Bytes that tell where they are from: the pattern's length is prime, so no slot's worth of it is another's. */
enum { PERIOD = 65521 };
static unsigned char pattern[PERIOD];

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    for (unsigned i = 0, x = 1; i < PERIOD; i++, x = x * 1103515245u + 12345u)
        pattern[i] = (unsigned char)(x >> 16);
}

/* Calls fn for each piece of p for which the pattern is in one piece. */
static void by_pieces(unsigned char *p, size_t n, unsigned salt,
                      void (*fn)(unsigned char *p, const unsigned char *pattern, size_t n))
{
    for (size_t at = 0, from = salt % PERIOD, piece; at < n; at += piece, from = 0) {
        piece = PERIOD - from < n - at ? PERIOD - from : n - at;
        fn(p + at, pattern + from, piece);
    }
}

static void stamp_piece(unsigned char *p, const unsigned char *from, size_t n)
{
    memcpy(p, from, n);
}

static void stamp(unsigned char *p, size_t n, unsigned salt)
{
    by_pieces(p, n, salt, stamp_piece);
}

static void check_piece(unsigned char *p, const unsigned char *from, size_t n)
{
    if (memcmp(p, from, n) == 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (p[i] != from[i])
            ck_abort_msg("byte %zu of a piece of %zu is %u, not %u", i, n, p[i], from[i]);
}

static void check_stamp(unsigned char *p, size_t n, unsigned salt)
{
    by_pieces(p, n, salt, check_piece);
}

/* Memory that is never pinned, one byte off every alignment; free with the base. */
static unsigned char *ordinary(unsigned char **base, size_t n)
{
    *base = malloc(n + 64);
    ck_assert_ptr_nonnull(*base);
    memset(*base, 0xee, n + 64);
    return *base + 17;
}

/* ---- sizes ---- */

static const size_t sizes[] = {0,       1,   1000,    64 * KIB - 1, 64 * KIB, 64 * KIB + 1,
                               MIB - 1, MIB, MIB + 1, 3 * MIB + 5,  10 * MIB, 100 * MIB};

START_TEST(every_size_goes_up_and_down)
{
    size_t n = sizes[_i];
    unsigned char *in_base, *out_base, *in = ordinary(&in_base, n), *out = ordinary(&out_base, n);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, n + 7);
    stamp(in, n, 3);
    gpu_fixture_ok(culvert_upload(f.stream, buffer, 7, in, n));
    memset(in, 0, n); /* it is the caller's again */
    gpu_fixture_ok(culvert_download(f.stream, out, buffer, 7, n));
    check_stamp(out, n, 3);
    ck_assert_int_eq(out[-1], 0xee);
    ck_assert_int_eq(out[n], 0xee);
    culvert_buffer_unref(buffer);
    free(in_base);
    free(out_base);
}
END_TEST

START_TEST(a_whole_sequence_of_them)
{
    enum { N = 2 * MIB + 11 };
    unsigned char *in_base, *out_base, *in = ordinary(&in_base, N), *out = ordinary(&out_base, N);
    culvert_buffer *a = gpu_fixture_buffer(&f, N), *b = gpu_fixture_buffer(&f, N);
    unsigned char small[100], back[100];
    stamp(in, N, 9);
    stamp(small, sizeof small, 1);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, a, 0, in, N);
    culvert_seq_copy(seq, b, 0, a, 0, N);
    culvert_seq_download(seq, out, b, 0, N);
    culvert_seq_upload(seq, b, 50, small, sizeof small);
    culvert_seq_download(seq, back, b, 0, sizeof back);
    gpu_fixture_ok(culvert_seq_submit(seq));
    check_stamp(out, N, 9);
    check_stamp(back, 50, 9);
    check_stamp(back + 50, 50, 1);
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
    free(in_base);
    free(out_base);
}
END_TEST

/* ---- what is owed to memory ---- */

/* What a download brings is what a later upload from there carries: not what was there before. */
START_TEST(case_061_an_upload_of_memory_that_a_download_owes)
{
    static const size_t bytes[] = {100, 64 * KIB, 3 * MIB};
    size_t n = bytes[_i % 3];
    bool one_sequence = _i >= 3;
    unsigned char *base, *shared = ordinary(&base, n), *out = malloc(n);
    culvert_buffer *from = gpu_fixture_buffer(&f, n), *to = gpu_fixture_buffer(&f, n);
    stamp(shared, n, 5);
    gpu_fixture_ok(culvert_upload(f.stream, from, 0, shared, n));
    memset(shared, 0xaa, n);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = NULL;
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_download(seq, shared, from, 0, n);
    if (!one_sequence) {
        first = culvert_seq_submit(seq);
        seq = culvert_seq_begin(f.stream);
    }
    culvert_seq_upload(seq, to, 10, shared + 10, n - 10); /* a part of it */
    culvert_future *second = culvert_seq_submit(seq);
    culvert_future *third = culvert_download(f.stream, out, to, 0, n);
    gpu_fixture_run(&f, 0.01);
    gpu_fixture_release(&f);
    gpu_fixture_ok(third);
    gpu_fixture_ok(second);
    if (first != NULL)
        gpu_fixture_ok(first);
    for (size_t i = 0; i < 10; i++)
        ck_assert_uint_eq(out[i], 0);
    check_stamp(out + 10, n - 10, 5 + 10);
    culvert_buffer_unref(from);
    culvert_buffer_unref(to);
    free(base);
    free(out);
}
END_TEST

/* The source is read between submit and settle, and is the caller's when the future has settled; what the
   driver has is a copy. */
START_TEST(case_061_the_source_is_staged)
{
    unsigned char in[4096], out[4096];
    if (!gpu_fixture_simulated())
        return;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, sizeof in);
    stamp(in, sizeof in, 8);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *up = culvert_upload(f.stream, buffer, 0, in, sizeof in);
    gpu_fixture_run(&f, 0.005);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream), 1);
    memset(in, 0, sizeof in); /* against the rules; it shows who reads when */
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    gpu_fixture_ok(culvert_download(f.stream, out, buffer, 0, sizeof out));
    check_stamp(out, sizeof out, 8);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(of_overlapping_downloads_the_later_one_stays)
{
    enum { N = 2 * MIB };
    unsigned char *base, *out = ordinary(&base, N);
    culvert_buffer *one = gpu_fixture_buffer(&f, N), *two = gpu_fixture_buffer(&f, N);
    gpu_fixture_ok(culvert_fill(f.stream, one, 0, N, 1, 1));
    gpu_fixture_ok(culvert_fill(f.stream, two, 0, N, 2, 1));
    for (int i = 0; i < 10; i++) {
        culvert_future *a = culvert_download(f.stream, out, one, 0, N);
        culvert_future *b = culvert_download(f.stream, out + 100, two, 0, 1000); /* a small one */
        culvert_future *c = culvert_download(f.stream, out + MIB, two, 0, 100 * KIB);
        culvert_future *d = culvert_download(f.stream, out + MIB + 50, one, 0, 50);
        gpu_fixture_ok(d);
        gpu_fixture_ok(c);
        gpu_fixture_ok(b);
        gpu_fixture_ok(a);
        for (size_t k = 0; k < N; k++) {
            bool second = (k >= 100 && k < 1100) ||
                          (k >= MIB && k < MIB + 100 * KIB && !(k >= MIB + 50 && k < MIB + 100));
            if (out[k] != (second ? 2 : 1))
                ck_abort_msg("byte %zu is %u", k, out[k]);
        }
        memset(out, 0, N);
    }
    culvert_buffer_unref(one);
    culvert_buffer_unref(two);
    free(base);
}
END_TEST

/* ---- the driver never waits, the loop neither ---- */

/* A copy of pageable memory would block here at once: the simulator aborts if one does. */
START_TEST(case_062_no_ordinary_memory_is_given_to_the_driver)
{
    enum { N = 20 * MIB };
    unsigned char *base, *memory = ordinary(&base, 2 * (size_t)N), out[1000];
    culvert_buffer *a = gpu_fixture_buffer(&f, N);
    stamp(memory, N, 2);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *up = culvert_upload(f.stream, a, 0, memory, N);
    culvert_future *down = culvert_download(f.stream, memory + N, a, 0, N);
    culvert_future *small = culvert_download(f.stream, out, a, 0, sizeof out);
    for (int i = 0; i < 200; i++)
        culvert_detach(culvert_upload(f.stream, a, 0, memory, 60 * KIB));
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(up), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    gpu_fixture_ok(down);
    gpu_fixture_ok(small);
    gpu_fixture_idle(&f, f.stream);
    check_stamp(memory + N, N, 2);
    check_stamp(out, sizeof out, 2);
    culvert_buffer_unref(a);
    free(base);
}
END_TEST

typedef struct ticking {
    ev_timer timer; /* first */
    unsigned ticks;
} ticking;

static void on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)revents;
    ((ticking *)(void *)w)->ticks++;
}

START_TEST(case_062_the_loop_is_served_meanwhile)
{
    enum { N = 100 * MIB };
    unsigned char *base, *memory = ordinary(&base, N);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, N);
    ticking t = {.ticks = 0};
    ev_timer_init(&t.timer, on_tick, 0.001, 0.001);
    ev_timer_start(f.ev, &t.timer);
    double begin = test_now();
    for (int i = 0; i < 2; i++) {
        culvert_future *up = culvert_upload(f.stream, buffer, 0, memory, N);
        culvert_future *down = culvert_download(f.stream, memory, buffer, 0, N);
        gpu_fixture_ok(up);
        gpu_fixture_ok(down);
    }
    double took = test_now() - begin;
    ev_timer_stop(f.ev, &t.timer);
    /* One a millisecond; the machine may be busy, but the loop was not. */
    ck_assert_msg(t.ticks >= (unsigned)(took * 1000) / 50 && t.ticks >= 5, "%u ticks in %g s",
                  t.ticks, took);
    culvert_buffer_unref(buffer);
    free(base);
}
END_TEST

/* ---- few slots ---- */

static void open_with_little(void)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.pinned_reserve = options.pinned_limit = 8 * MIB;
    gpu_fixture_close(&f);
    gpu_fixture_open(&f, NULL, &options);
}

/* A slot is filled anew when its copy is over, and not before. */
START_TEST(case_063_no_slot_is_refilled_while_it_is_in_use)
{
    enum { COPIES = 60, N = 500 * KIB };
    static culvert_buffer *buffers[COPIES];
    static culvert_future *futures[COPIES];
    unsigned char *base, *memory = ordinary(&base, (size_t)COPIES * N), *out = malloc(N);
    open_with_little();
    for (unsigned i = 0; i < COPIES; i++) {
        stamp(memory + (size_t)i * N, N, i);
        buffers[i] = gpu_fixture_buffer(&f, N);
    }
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 0; i < COPIES; i++)
        futures[i] = culvert_upload(f.stream, buffers[i], 0, memory + (size_t)i * N, N);
    gpu_fixture_run(&f, 0.05);
    if (gpu_fixture_simulated()) /* 8 MB of slots, and no more */
        ck_assert_uint_le(culvert_stream_in_flight(f.stream), 8);
    gpu_fixture_release(&f);
    for (unsigned i = 0; i < COPIES; i++)
        gpu_fixture_ok(futures[i]);
    for (unsigned i = 0; i < COPIES; i++) {
        gpu_fixture_ok(culvert_download(f.stream, out, buffers[i], 0, N));
        check_stamp(out, N, i);
        culvert_buffer_unref(buffers[i]);
    }
    free(base);
    free(out);
}
END_TEST

START_TEST(many_streams_share_few_slots)
{
    enum { STREAMS = 20, N = 3 * MIB + 100 };
    culvert_stream *streams[STREAMS];
    culvert_buffer *buffers[STREAMS];
    culvert_future *futures[STREAMS];
    unsigned char *base, *in = ordinary(&base, N), *out = malloc((size_t)STREAMS * N);
    open_with_little();
    stamp(in, N, 4);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        buffers[s] = gpu_fixture_buffer(&f, N);
    }
    for (int s = 0; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(streams[s]);
        culvert_seq_upload(seq, buffers[s], 0, in, N);
        culvert_seq_fill(seq, buffers[s], 0, 4, (unsigned)s, 4);
        culvert_seq_download(seq, out + (size_t)s * N, buffers[s], 0, N);
        futures[s] = culvert_seq_submit(seq);
    }
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_ok(futures[s]);
        unsigned char *mine = out + (size_t)s * N;
        ck_assert_int_eq(mine[0], s);
        check_stamp(mine + 4, N - 4, 4 + 4);
        culvert_stream_unref(streams[s]);
        culvert_buffer_unref(buffers[s]);
    }
    free(base);
    free(out);
}
END_TEST

/* Held copies have all large slots; small ones are for others nevertheless. */
START_TEST(a_lack_of_large_slots_is_none_of_small_ones)
{
    enum { N = 30 * MIB };
    unsigned char *base, *in = ordinary(&base, N), mine[100], out[100];
    open_with_little();
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_buffer *large = gpu_fixture_buffer(&f, N), *small = gpu_fixture_buffer(&f, 100);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *up = culvert_upload(f.stream, large, 0, in, N);
    gpu_fixture_run(&f, 0.05); /* it has taken what there is, and waits */
    stamp(mine, 100, 6);
    gpu_fixture_ok(culvert_upload(other, small, 0, mine, 100));
    gpu_fixture_ok(culvert_download(other, out, small, 0, 100));
    check_stamp(out, 100, 6);
    ck_assert_int_eq(culvert_status(up), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    culvert_stream_unref(other);
    culvert_buffer_unref(large);
    culvert_buffer_unref(small);
    free(base);
}
END_TEST

/* Waiting for a slot that does not come is no work: the loop looks every millisecond at most. */
START_TEST(waiting_for_a_slot_does_not_turn_the_loop)
{
    enum { N = 30 * MIB };
    unsigned char *base, *in;
    if (!gpu_fixture_simulated() || gpu_fixture_spins())
        return;
    in = ordinary(&base, N);
    open_with_little();
    culvert_buffer *large = gpu_fixture_buffer(&f, N);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *up = culvert_upload(f.stream, large, 0, in, N);
    gpu_fixture_run(&f, 0.2);
    uint64_t calls = culvert_sim_calls(NULL);
    unsigned turns = ev_iteration(f.ev);
    double begin = test_now();
    gpu_fixture_run(&f, 0.3);
    double ticks = (test_now() - begin) * 1000 + 10;
    ck_assert_uint_le(ev_iteration(f.ev) - turns, (unsigned)(ticks * 2));
    ck_assert_uint_le(culvert_sim_calls(NULL) - calls, (uint64_t)(ticks * 20));
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    culvert_buffer_unref(large);
    free(base);
}
END_TEST

/* Pinning stalls everybody's launches: a megabyte a turn, and none once there is enough. */
START_TEST(the_pool_grows_a_megabyte_a_turn)
{
    enum { N = 40 * MIB };
    unsigned char *base, *in;
    if (!gpu_fixture_simulated())
        return;
    in = ordinary(&base, N);
    culvert_buffer *large = gpu_fixture_buffer(&f, N);
    gpu_fixture_hold(&f, f.stream);
    uint64_t most = 0, pinned = culvert_sim_live("pinned bytes");
    culvert_future *up = culvert_upload(f.stream, large, 0, in, N);
    /* a slot for each piece, beside the MiB of small ones */
    for (double end = test_now() + 30;
         test_now() < end && culvert_sim_live("pinned bytes") < N + MIB;) {
        uint64_t before = culvert_sim_live("pinned bytes");
        ev_run(f.ev, EVRUN_NOWAIT);
        uint64_t grown = culvert_sim_live("pinned bytes") - before;
        most = grown > most ? grown : most;
    }
    ck_assert_uint_gt(culvert_sim_live("pinned bytes"), pinned);
    ck_assert_uint_eq(most, MIB);
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    uint64_t allocations = culvert_sim_calls("cuMemHostAlloc");
    for (int i = 0; i < 3; i++)
        gpu_fixture_ok(culvert_upload(f.stream, large, 0, in, N));
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostAlloc"), allocations);
    culvert_buffer_unref(large);
    free(base);
}
END_TEST

/* Where no more can be pinned, what there is goes round. */
START_TEST(a_pool_that_cannot_grow_goes_round)
{
    enum { N = 30 * MIB };
    unsigned char *base, *in = ordinary(&base, N), *out = malloc(N);
    if (!gpu_fixture_simulated())
        return;
    culvert_buffer *large = gpu_fixture_buffer(&f, N);
    for (unsigned i = 1; i <= 50; i++)
        culvert_sim_fail("cuMemHostAlloc", i, 2);
    stamp(in, N, 12);
    uint64_t before = culvert_sim_calls("cuMemHostAlloc");
    double begin = test_now();
    gpu_fixture_ok(culvert_upload(f.stream, large, 0, in, N));
    gpu_fixture_ok(culvert_download(f.stream, out, large, 0, N));
    /* and the driver is not asked all the time */
    ck_assert_uint_le(culvert_sim_calls("cuMemHostAlloc") - before,
                      2 + (uint64_t)((test_now() - begin) * 10));
    check_stamp(out, N, 12);
    culvert_buffer_unref(large);
    free(base);
    free(out);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(an_error_midway_gives_the_slots_back)
{
    enum { N = 8 * MIB };
    unsigned char *base, *in = ordinary(&base, N);
    if (!gpu_fixture_simulated())
        return;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, N);
    for (unsigned i = 1; i < 8; i++) {
        culvert_sim_fail(_i == 0 ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", i, 1);
        culvert_future *future = _i == 0 ? culvert_upload(f.stream, buffer, 0, in, N)
                                         : culvert_download(f.stream, in, buffer, 0, N);
        culvert_error err = gpu_fixture_fails(future, CULVERT_EDRIVER);
        ck_assert_int_eq(err.native, 1);
        ck_assert(culvert__staging_at_rest(f.gpu));
        ck_assert_uint_eq(f.stream->units, 0);
    }
    culvert_buffer_unref(buffer);
    free(base);
}
END_TEST

/* ---- notifications and slots ---- */

/* A chunk is no reason for a host function of its own on the stream that copies. */
START_TEST(case_040_host_functions_of_a_long_copy)
{
    enum { N = 64 * MIB };
    unsigned char *base, *in = ordinary(&base, N);
    if (!gpu_fixture_simulated())
        return;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.pinned_reserve = 80 * MIB; /* as after a while of service */
    gpu_fixture_close(&f);
    gpu_fixture_open(&f, NULL, &options);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, N);
    gpu_fixture_hold(&f, f.stream); /* so that nothing ends before all of it is there */
    uint64_t before = culvert_sim_calls("cuLaunchHostFunc");
    culvert_future *up = culvert_upload(f.stream, buffer, 0, in, N);
    while (culvert_sim_calls("cuMemcpyHtoDAsync") < 64)
        ev_run(f.ev, EVRUN_ONCE);
    gpu_fixture_release(&f);
    gpu_fixture_ok(up);
    ck_assert_uint_le(culvert_sim_calls("cuLaunchHostFunc") - before, 8);
    culvert_buffer_unref(buffer);
    free(base);
}
END_TEST

/* The old use's notification comes when the slot has a new one. */
START_TEST(case_040_a_late_notification_says_nothing_of_a_slots_new_use)
{
    unsigned char in[3000], out[3000];
    if (!gpu_fixture_simulated())
        return;
    culvert_buffer *buffer = gpu_fixture_buffer(&f, sizeof in);
    culvert_sim_host_functions(CULVERT_SIM_HOST_HOLD);
    for (unsigned i = 0; i < 100; i++) {
        if (i == 50)
            culvert_sim_host_functions(CULVERT_SIM_HOST_RUN); /* all that were held, in a new use */
        stamp(in, sizeof in, i);
        culvert_future *up = culvert_upload(f.stream, buffer, 0, in, sizeof in);
        culvert_future *down = culvert_download(f.stream, out, buffer, 0, sizeof out);
        gpu_fixture_ok(down);
        gpu_fixture_ok(up);
        check_stamp(out, sizeof out, i);
    }
    culvert_buffer_unref(buffer);
}
END_TEST

static Suite *staging_suite(void)
{
    Suite *suite = suite_create("staging");
    TCase *tc = tcase_create("sizes");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, every_size_goes_up_and_down, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_test(tc, a_whole_sequence_of_them);
    tcase_add_loop_test(tc, case_061_an_upload_of_memory_that_a_download_owes, 0, 6);
    tcase_add_test(tc, case_061_the_source_is_staged);
    tcase_add_test(tc, of_overlapping_downloads_the_later_one_stays);
    suite_add_tcase(suite, tc);

    tc = tcase_create("waiting");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_062_no_ordinary_memory_is_given_to_the_driver);
    tcase_add_test(tc, case_062_the_loop_is_served_meanwhile);
    suite_add_tcase(suite, tc);

    tc = tcase_create("slots");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_063_no_slot_is_refilled_while_it_is_in_use);
    tcase_add_test(tc, many_streams_share_few_slots);
    tcase_add_test(tc, a_lack_of_large_slots_is_none_of_small_ones);
    tcase_add_test(tc, waiting_for_a_slot_does_not_turn_the_loop);
    tcase_add_test(tc, the_pool_grows_a_megabyte_a_turn);
    tcase_add_test(tc, a_pool_that_cannot_grow_goes_round);
    tcase_add_loop_test(tc, an_error_midway_gives_the_slots_back, 0, 2);
    tcase_add_test(tc, case_040_host_functions_of_a_long_copy);
    tcase_add_test(tc, case_040_a_late_notification_says_nothing_of_a_slots_new_use);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {staging_suite(), NULL};
    return test_main(suites);
}
