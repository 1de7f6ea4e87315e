/* SPDX-License-Identifier: BSD-2-Clause */
/* Pipelines: order, bounds, overlap, errors, ends. */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, CHUNK = WORDS * 4, DEPTH = 3 };

typedef struct stream {
    unsigned chunks; /* of the input */
    size_t tail;     /* bytes of the last one; 0: a whole one */
    int tell;        /* read sets `last` */
    unsigned reads, processes, writes, live, most_live, progresses;
    uint64_t bytes;
    int freed;
    culvert_buffer *device[DEPTH];
    culvert_kernel *add_all;
    /* what goes wrong, and where: chunk + 1; 0: nothing */
    unsigned fail_read, fail_process, fail_write;
    culvert_promise *held[8]; /* writes that the test ends */
    unsigned nheld;
    int hold_writes;
    culvert_future *self; /* cancelled in a stage */
    int cancel_at, close_at, free_at;
    culvert_future *stuck; /* a read that never ends by itself */
} stream;

static gpu_fixture f;
static stream s;

static void setup(void)
{
    memset(&s, 0, sizeof s);
    gpu_fixture_open(&f, NULL, NULL);
    s.add_all = gpu_fixture_kernel(&f, "add_all");
    for (int i = 0; i < DEPTH; i++)
        s.device[i] = gpu_fixture_buffer(&f, CHUNK);
}

static void teardown(void)
{
    for (int i = 0; i < DEPTH; i++)
        culvert_buffer_unref(s.device[i]);
    gpu_fixture_close(&f);
}

static culvert_future *wrong(int number)
{
    return culvert_fail(f.loop, CULVERT_EUSER, number, "wrong");
}

static culvert_future *read_words(culvert_chunk *c, void *arg)
{
    unsigned *words = culvert_buffer_data(c->host);
    (void)arg;
    ck_assert_uint_eq(c->index, s.reads);
    if (s.reads < s.chunks)
        ck_assert_uint_eq(c->offset, (uint64_t)s.reads * CHUNK);
    ck_assert_uint_eq(c->bytes, 0);
    ck_assert_int_eq(c->last, 0);
    if (s.fail_read == s.reads + 1)
        return wrong(1);
    if (s.reads == s.chunks)
        return NULL; /* the end */
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = s.reads * WORDS + i;
    s.reads++;
    c->bytes = s.reads == s.chunks && s.tail != 0 ? s.tail : CHUNK;
    c->last = s.tell && s.reads == s.chunks;
    if (++s.live > s.most_live)
        s.most_live = s.live;
    return s.reads % 2 == 0 ? culvert_sleep(f.loop, 0.0) : NULL;
}

static culvert_future *add_seven(culvert_chunk *c, void *arg)
{
    culvert_buffer *device = s.device[c->index % DEPTH];
    culvert_grid grid = {.blocks = {1}, .threads = {WORDS}};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    (void)arg;
    ck_assert_uint_eq(c->index, s.processes);
    ck_assert_ptr_eq(c->user, c->index < DEPTH ? NULL : (void *)device);
    c->user = device;
    s.processes++;
    culvert_seq_copy(seq, device, 0, c->host, 0, c->bytes);
    culvert_seq_launch(seq, s.add_all, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(device), CULVERT_BUFFER(device),
                                    CULVERT_U32((unsigned)(c->bytes / 4)), CULVERT_U32(7)));
    culvert_seq_copy(seq, c->host, 0, device, 0, c->bytes);
    if (s.fail_process == s.processes) {
        culvert_seq_drop(seq);
        return wrong(2);
    }
    return culvert_seq_submit(seq);
}

static culvert_future *check_words(culvert_chunk *c, void *arg)
{
    const unsigned *words = culvert_buffer_data(c->host);
    (void)arg;
    ck_assert_uint_eq(c->index, s.writes);
    for (unsigned i = 0; i < c->bytes / 4; i++)
        ck_assert_uint_eq(words[i], s.writes * WORDS + i + 7);
    if (s.fail_write == s.writes + 1)
        return wrong(3);
    s.writes++;
    s.live--;
    s.bytes += c->bytes;
    if (s.hold_writes) {
        culvert_future *end = NULL;
        s.held[s.nheld++] = culvert_promise_new(f.loop, &end);
        return end;
    }
    return s.writes % 3 == 0 ? culvert_sleep(f.loop, 0.0) : NULL;
}

static void see_progress(uint64_t bytes, void *arg)
{
    (void)arg;
    s.progresses++;
    ck_assert_uint_eq(bytes, s.bytes);
}

static void free_arg(void *arg)
{
    ((stream *)arg)->freed++;
}

static culvert_pipeline_options options(unsigned chunks)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    s.chunks = chunks;
    o.depth = DEPTH;
    o.chunk_bytes = CHUNK;
    o.read = read_words;
    o.process = add_seven;
    o.write = check_words;
    o.progress = see_progress;
    o.arg = &s;
    o.arg_free = free_arg;
    return o;
}

static culvert_pipeline_counters stats(const culvert_future *run)
{
    culvert_pipeline_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_pipeline_stats(run, &c), CULVERT_OK);
    return c;
}

START_TEST(chunks_go_through_in_order)
{
    static const unsigned lengths[] = {0, 1, 2, 3, 4, 100};
    culvert_pipeline_options o = options(lengths[_i / 2]);

    s.tell = _i % 2;
    s.tail = 20;
    culvert_future *run = culvert_pipeline_run(f.gpu, &o);
    ck_assert_uint_eq(s.reads, 0); /* nothing inside the call */
    gpu_fixture_ok(culvert_ref(run));
    ck_assert_uint_eq(s.writes, s.chunks);
    ck_assert_uint_eq(s.processes, s.chunks);
    ck_assert_uint_eq(s.progresses, s.chunks);
    ck_assert_uint_le(s.most_live, DEPTH);
    if (s.chunks >= 100)
        ck_assert_uint_ge(s.most_live, 2); /* they overlap */
    culvert_pipeline_counters c = stats(run);
    ck_assert_uint_eq(c.in_flight, 0);
    ck_assert_uint_eq(c.processing, 0);
    ck_assert_uint_eq(c.chunks_read, s.chunks);
    ck_assert_uint_eq(c.chunks_written, s.chunks);
    ck_assert_uint_eq(c.bytes_read, s.bytes);
    ck_assert_uint_eq(c.bytes_written, s.bytes);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(s.freed, 1);
    culvert_unref(run);
}
END_TEST

START_TEST(never_more_than_depth_chunks_are_on_their_way)
{
    culvert_pipeline_options o = options(20);

    s.hold_writes = 1;
    culvert_future *run = culvert_pipeline_run(f.gpu, &o);
    gpu_fixture_run(&f, 0.02);
    ck_assert_uint_eq(s.reads, DEPTH);
    ck_assert_uint_eq(s.writes, 1); /* one at a time */
    ck_assert_uint_eq(stats(run).in_flight, DEPTH);
    culvert_resolve(s.held[0], NULL, NULL);
    gpu_fixture_run(&f, 0.02);
    ck_assert_uint_eq(s.reads, DEPTH + 1);
    ck_assert_uint_eq(s.writes, 2);
    s.hold_writes = 0;
    culvert_resolve(s.held[1], NULL, NULL);
    gpu_fixture_ok(run);
    ck_assert_uint_eq(s.writes, 20);
}
END_TEST

static culvert_future *forever(culvert_chunk *c, void *arg)
{
    culvert_pipeline_options *o = arg;
    (void)o;
    c->bytes = 1;
    if (++s.reads == 100000)
        culvert_cancel(s.self);
    return NULL;
}

/* Stages that are done at once do not keep the loop from its other work. */
START_TEST(stages_that_are_done_at_once_leave_the_loop_its_turns)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    const unsigned before = ev_iteration(f.ev);

    o.read = forever;
    s.self = culvert_pipeline_run(f.gpu, &o);
    (void)gpu_fixture_fails(culvert_ref(s.self), CULVERT_ECANCELED);
    ck_assert_uint_eq(s.reads, 100000);
    ck_assert_uint_ge(ev_iteration(f.ev) - before, 500);
    ck_assert_uint_eq(stats(s.self).bytes_written, 100000 - 1);
    culvert_unref(s.self);
}
END_TEST

START_TEST(the_first_error_stops_it)
{
    culvert_pipeline_options o = options(50);

    s.fail_read = _i == 0 ? 10 : 0;
    s.fail_process = _i == 1 ? 10 : 0;
    s.fail_write = _i == 2 ? 10 : 0;
    culvert_future *run = culvert_pipeline_run(f.gpu, &o);
    culvert_error err = gpu_fixture_fails(culvert_ref(run), CULVERT_EUSER);
    ck_assert_int_eq(err.native, _i + 1);
    ck_assert_uint_eq(stats(run).in_flight + stats(run).processing, 0);
    culvert_unref(run);
    ck_assert_uint_lt(s.reads, 10 + DEPTH);
    ck_assert_uint_lt(s.writes, 11);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(s.freed, 1);
}
END_TEST

static culvert_future *fail_now(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    ck_assert_ptr_nonnull(s.stuck);
    return wrong(3);
}

static culvert_future *fail_later(culvert_chunk *c, void *arg)
{
    (void)c;
    return culvert_then(culvert_sleep(f.loop, 0.01), fail_now, arg, NULL);
}

static culvert_future *read_then_stick(culvert_chunk *c, void *arg)
{
    culvert_promise *promise;
    (void)arg;
    if (c->index == 0) {
        c->bytes = 4;
        return NULL;
    }
    promise = culvert_promise_new(f.loop, &s.stuck);
    s.held[0] = promise;
    return s.stuck;
}

/* A write fails while a read waits for input that never comes: that is cancelled. */
START_TEST(an_error_cancels_the_stages_that_run)
{
    culvert_pipeline_options o = options(1);

    o.read = read_then_stick;
    o.process = NULL;
    o.write = fail_later;
    culvert_error err = gpu_fixture_fails(culvert_pipeline_run(f.gpu, &o), CULVERT_EUSER);
    ck_assert_int_eq(err.native, 3);
    culvert_promise_drop(s.held[0]);
}
END_TEST

/* Device work that runs is waited for, whatever else happens. */
START_TEST(it_settles_after_the_running_stages)
{
    culvert_pipeline_options o = options(1);

    s.tell = 1;
    gpu_fixture_hold(&f, f.stream);
    culvert_future *run = culvert_pipeline_run(f.gpu, &o);
    gpu_fixture_run(&f, 0.02);
    ck_assert_uint_eq(s.processes, 1);
    culvert_cancel(run);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(run), CULVERT_PENDING);
    ck_assert_int_eq(s.freed, 0);
    gpu_fixture_release(&f);
    (void)gpu_fixture_fails(run, CULVERT_ECANCELED);
    ck_assert_uint_eq(s.writes, 0);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(s.freed, 1);
}
END_TEST

START_TEST(cancelled_before_it_began)
{
    culvert_pipeline_options o = options(1);

    culvert_unref(culvert_pipeline_run(f.gpu, &o));
    gpu_fixture_run(&f, 0.001);
    ck_assert_uint_eq(s.reads, 0);
    ck_assert_int_eq(s.freed, 1);
}
END_TEST

static culvert_future *too_much(culvert_chunk *c, void *arg)
{
    (void)arg;
    c->bytes = CHUNK + 1;
    return NULL;
}

START_TEST(mistakes)
{
    culvert_pipeline_options o = options(1);
    const char *says = "257 bytes in a chunk of 256";

    if (_i == 0) {
        o.read = NULL;
        says = "read is NULL";
    } else if (_i == 1) {
        o.depth = 5000;
        says = "depth is 5000";
    } else if (_i == 2) {
        o.read = too_much;
    } else {
        o.struct_size = 1;
        says = "struct_size";
        s.freed = 1; /* where its options end is not known */
    }
    culvert_error err = gpu_fixture_fails(culvert_pipeline_run(f.gpu, &o), CULVERT_EINVAL);
    gpu_fixture_says(&err, says);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(s.freed, 1);
    culvert_future *other = culvert_sleep(f.loop, 0.0);
    culvert_pipeline_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_pipeline_stats(other, &c), CULVERT_EINVAL);
    culvert_unref(other);
}
END_TEST

START_TEST(a_chunk_too_large_for_the_pool)
{
    culvert_pipeline_options o = options(1);

    o.chunk_bytes = (size_t)1 << 40;
    (void)gpu_fixture_fails(culvert_pipeline_run(f.gpu, &o), CULVERT_ENOMEM);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(s.freed, 1);
}
END_TEST

/* ---- freeing in callbacks ---- */

static culvert_future *free_in_stage(culvert_chunk *c, void *arg)
{
    (void)arg;
    c->bytes = 4;
    if (c->index < 2)
        return NULL;
    culvert_unref(s.self);
    s.self = NULL;
    culvert_gpu_close(f.gpu);
    f.gpu = NULL;
    if (s.free_at) {
        culvert_loop_free(f.loop);
        f.loop = NULL;
    }
    return NULL;
}

static void free_in_progress(uint64_t bytes, void *arg)
{
    (void)bytes;
    (void)arg;
    if (s.self == NULL)
        return;
    culvert_unref(s.self);
    s.self = NULL;
    culvert_loop_free(f.loop);
    f.loop = NULL;
}

START_TEST(everything_may_be_freed_in_a_callback)
{
    culvert_pipeline_options o = options(10);

    s.free_at = _i % 2;
    if (_i < 2) {
        o.read = free_in_stage;
        o.process = o.write = NULL;
        o.progress = NULL;
    } else {
        o.progress = free_in_progress;
    }
    s.self = culvert_pipeline_run(f.gpu, &o);
    ev_run(f.ev, 0);
    ck_assert_ptr_null(s.self);
    ck_assert_int_eq(s.freed, 1);
}
END_TEST

START_TEST(loop_free_ends_it)
{
    culvert_pipeline_options o = options(20);

    s.hold_writes = 1;
    culvert_future *run = culvert_pipeline_run(f.gpu, &o);
    gpu_fixture_run(&f, 0.01);
    culvert_loop_free(f.loop);
    f.loop = NULL;
    ck_assert_int_eq(culvert_status(run), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(s.freed, 1);
    culvert_promise_drop(s.held[0]);
    culvert_unref(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tc = tcase_create("pipeline");

    tcase_add_checked_fixture(tc, setup, teardown);
    suite_add_tcase(suite, tc);
    tcase_add_loop_test(tc, chunks_go_through_in_order, 0, 12);
    tcase_add_test(tc, never_more_than_depth_chunks_are_on_their_way);
    tcase_add_test(tc, stages_that_are_done_at_once_leave_the_loop_its_turns);
    tcase_add_loop_test(tc, the_first_error_stops_it, 0, 3);
    tcase_add_test(tc, an_error_cancels_the_stages_that_run);
    tcase_add_test(tc, it_settles_after_the_running_stages);
    tcase_add_test(tc, cancelled_before_it_began);
    tcase_add_loop_test(tc, mistakes, 0, 4);
    tcase_add_test(tc, a_chunk_too_large_for_the_pool);
    tcase_add_loop_test(tc, everything_may_be_freed_in_a_callback, 0, 3);
    tcase_add_test(tc, loop_free_ends_it);
    return test_main((Suite *[]){suite, NULL});
}
