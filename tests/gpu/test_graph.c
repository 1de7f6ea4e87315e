/* SPDX-License-Identifier: BSD-2-Clause */
/* Compiled sequences: what they do, what a launch may bind, many at once, and what is refused. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64 };

static gpu_fixture f;
static const culvert_grid one = {.blocks = {1}, .threads = {1}};
static const culvert_grid many = {.blocks = {1}, .threads = {WORDS}};

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
}

static void tear_down(void)
{
    gpu_fixture_close(&f);
}

static uint64_t calls(const char *function)
{
    return gpu_fixture_simulated() ? culvert_sim_calls(function) : 0;
}

static culvert_graph *compile(culvert_seq *seq)
{
    culvert_future *future = culvert_seq_compile(seq);
    gpu_fixture_ok(culvert_ref(future));
    culvert_graph *graph = culvert_take(future);
    culvert_unref(future);
    ck_assert_ptr_nonnull(graph);
    return graph;
}

static unsigned word(culvert_buffer *buffer, size_t i)
{
    unsigned value = 0;
    gpu_fixture_ok(culvert_download(f.stream, &value, buffer, i * 4, 4));
    return value;
}

/* ---- a graph that does a little of everything ---- */

typedef struct things {
    culvert_buffer *in, *out; /* of the host */
    culvert_buffer *a, *b;    /* of the device */
} things;

static things things_new(void)
{
    return (things){gpu_fixture_host_buffer(&f, WORDS * 4), gpu_fixture_host_buffer(&f, WORDS * 4),
                    gpu_fixture_buffer(&f, WORDS * 4), gpu_fixture_buffer(&f, WORDS * 4)};
}

static void things_free(things *t)
{
    culvert_buffer *all[] = {t->in, t->out, t->a, t->b};
    for (int i = 0; i < 4; i++)
        culvert_buffer_unref(all[i]);
}

static void fill_words(culvert_buffer *host, unsigned first)
{
    unsigned *words = culvert_buffer_data(host);
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = first + i;
}

/* out = in + value, but for the first word, which is 7. Operations 0 to 4. */
static culvert_seq *work(const things *t, unsigned value)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, t->a, 0, culvert_buffer_data(t->in), WORDS * 4);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &many,
                       CULVERT_ARGS(CULVERT_BUFFER(t->b), CULVERT_BUFFER(t->a), CULVERT_U32(WORDS),
                                    CULVERT_U32(value)));
    culvert_seq_fill(seq, t->b, 0, 4, 7, 4);
    culvert_seq_copy(seq, t->a, 0, t->b, 0, WORDS * 4);
    culvert_seq_download(seq, culvert_buffer_data(t->out), t->a, 0, WORDS * 4);
    return seq;
}

static void check_out(culvert_buffer *out, unsigned first)
{
    const unsigned *words = culvert_buffer_data(out);
    ck_assert_uint_eq(words[0], 7);
    for (unsigned i = 1; i < WORDS; i++)
        ck_assert_uint_eq(words[i], first + i);
}

START_TEST(a_graph_does_what_its_sequence_says_each_time)
{
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 5));
    ck_assert_uint_eq(*(unsigned *)culvert_buffer_data(t.out), 0); /* it was not run */
    uint64_t launches = calls("cuLaunchKernel");
    for (unsigned i = 0; i < 5; i++) {
        fill_words(t.in, 100 * i);
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
        check_out(t.out, 100 * i + 5);
    }
    ck_assert_uint_eq(calls("cuLaunchKernel"), launches);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), 1);
    culvert_graph_unref(graph);
    things_free(&t);
}
END_TEST

START_TEST(a_graph_goes_on_any_stream_and_outlives_the_one_it_was_built_on)
{
    things t = things_new();
    culvert_stream *first = f.stream, *other = gpu_fixture_stream(&f);
    culvert_graph *graph = compile(work(&t, 1));
    f.stream = other;
    culvert_stream_unref(first);
    fill_words(t.in, 40);
    gpu_fixture_ok(culvert_graph_launch(other, graph, NULL, 0));
    check_out(t.out, 41);
    culvert_graph_unref(graph);
    things_free(&t);
}
END_TEST

START_TEST(buffers_and_kernels_of_a_graph_are_held_by_it)
{
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 3));
    culvert_buffer_unref(t.a);
    culvert_buffer_unref(t.b);
    culvert_module_unref(f.module);
    f.module = NULL;
    culvert_buffer *others[8]; /* which would get that memory */
    for (int i = 0; i < 8; i++)
        others[i] = gpu_fixture_buffer(&f, WORDS * 4);
    fill_words(t.in, 9);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    check_out(t.out, 12);
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(word(others[i], 1), 0);
        culvert_buffer_unref(others[i]);
    }
    culvert_graph_unref(graph);
    culvert_buffer_unref(t.in);
    culvert_buffer_unref(t.out);
}
END_TEST

START_TEST(a_graph_may_be_let_go_while_it_runs)
{
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 2));
    fill_words(t.in, 0);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *future = culvert_graph_launch(f.stream, graph, NULL, 0);
    culvert_graph_unref(graph);
    gpu_fixture_run(&f, 0.01);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    check_out(t.out, 2);
    things_free(&t);
}
END_TEST

START_TEST(a_graph_is_part_of_a_sequence_like_other_operations)
{
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 10));
    unsigned last = 0;
    fill_words(t.in, 0);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, t.b, 0, WORDS * 4, 1, 4);
    culvert_seq_graph(seq, graph, NULL, 0);
    gpu_fixture_add(&f, seq, t.a, 1, 1000);
    culvert_seq_graph(seq, graph, NULL, 0); /* again, in order */
    gpu_fixture_add(&f, seq, t.a, 2, 500);
    culvert_seq_download(seq, &last, t.a, 8, 4);
    culvert_graph_unref(graph);
    gpu_fixture_ok(culvert_seq_submit(seq));
    check_out(t.out, 10);
    ck_assert_uint_eq(last, 512);
    things_free(&t);
}
END_TEST

START_TEST(an_empty_graph_and_one_with_nothing_to_do_succeed_in_order)
{
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 16);
    culvert_grid none = {.blocks = {0}, .threads = {1}};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    if (_i == 1) {
        culvert_seq_fill(seq, buffer, 0, 0, 0, 4);
        culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &none, NULL, 0);
    }
    culvert_graph *graph = compile(seq);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *before = culvert_fill(f.stream, buffer, 0, 16, 1, 4);
    culvert_future *future = culvert_graph_launch(f.stream, graph, NULL, 0);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(future);
    gpu_fixture_ok(before);
    culvert_graph_unref(graph);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(a_timed_sequence_makes_timed_launches)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &one,
                       CULVERT_ARGS(CULVERT_U64(2000000)));
    culvert_seq_timed(seq);
    culvert_graph *graph = compile(seq);
    culvert_future *future = culvert_graph_launch(f.stream, graph, NULL, 0);
    gpu_fixture_ok(culvert_ref(future));
    ck_assert_double_ge(culvert_gpu_seconds(future), 0.001);
    culvert_unref(future);
    culvert_graph_unref(graph);
}
END_TEST

/* ---- binds ---- */

START_TEST(a_launch_binds_arguments_and_addresses)
{
    things t = things_new(), u = things_new();
    culvert_graph *graph = compile(work(&t, 5));
    const culvert_bind binds[] = {
        {.op = 1, .index = 3, .value = CULVERT_U32(50)},
        {.op = 0, .index = 1, .value = CULVERT_HOST(culvert_buffer_data(u.in))},
        {.op = 4, .index = 0, .value = CULVERT_HOST(culvert_buffer_data(u.out))},
        {.op = 0, .index = 0, .value = CULVERT_BUFFER(u.a)},
        {.op = 1, .index = 1, .value = CULVERT_BUFFER(u.a)},
        {.op = 1, .index = 0, .value = CULVERT_BUFFER(u.b)},
        {.op = 2, .index = 0, .value = CULVERT_BUFFER(u.b)},
        {.op = 3, .index = 1, .value = CULVERT_BUFFER(u.b)},
    };
    fill_words(t.in, 0);
    fill_words(u.in, 1000);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, binds, sizeof binds / sizeof binds[0]));
    check_out(u.out, 1050);
    ck_assert_uint_eq(*(unsigned *)culvert_buffer_data(t.out), 0);
    ck_assert_uint_eq(word(t.b, 1), 0);
    ck_assert_uint_eq(word(u.b, 1), 1051);
    /* what is not bound is as it was compiled */
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    check_out(t.out, 5);
    culvert_graph_unref(graph);
    things_free(&t);
    things_free(&u);
}
END_TEST

START_TEST(offsets_host_buffers_and_the_last_bind_count)
{
    culvert_buffer *device = gpu_fixture_buffer(&f, 256), *host = gpu_fixture_host_buffer(&f, 256);
    unsigned *words = culvert_buffer_data(host);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy(seq, device, 0, host, 0, 8);
    culvert_seq_fill(seq, device, 8, 8, 0x1234, 2);
    culvert_seq_copy(seq, host, 0, device, 0, 16);
    culvert_graph *graph = compile(seq);
    words[10] = 11;
    words[11] = 12;
    const culvert_bind binds[] = {
        {.op = 0, .index = 1, .value = CULVERT_BUFFER_AT(host, 20)},
        {.op = 0, .index = 1, .value = CULVERT_BUFFER_AT(host, 40)},
        {.op = 0, .index = 0, .value = CULVERT_BUFFER_AT(device, 100)},
        {.op = 1, .index = 0, .value = CULVERT_BUFFER_AT(device, 108)},
        {.op = 2, .index = 1, .value = CULVERT_BUFFER_AT(device, 100)},
        {.op = 2, .index = 0, .value = CULVERT_HOST(words + 20)},
    };
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, binds, sizeof binds / sizeof binds[0]));
    ck_assert_uint_eq(words[20], 11);
    ck_assert_uint_eq(words[21], 12);
    ck_assert_uint_eq(words[22], 0x12341234);
    ck_assert_uint_eq(words[23], 0x12341234);
    ck_assert_uint_eq(words[0], 0);
    culvert_graph_unref(graph);
    culvert_buffer_unref(device);
    culvert_buffer_unref(host);
}
END_TEST

START_TEST(positions_count_operations_with_nothing_to_do)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 16), *scratch;
    culvert_grid none = {.blocks = {0}, .threads = {1}};
    culvert_kernel *add = gpu_fixture_kernel(&f, "add_word");
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, words, 0, NULL, 0);                               /* 0 */
    culvert_seq_download(seq, NULL, words, 0, 0);                             /* 1 */
    culvert_seq_copy(seq, words, 0, words, 0, 0);                             /* 2 */
    culvert_seq_fill(seq, words, 0, 0, 0, 1);                                 /* 3 */
    culvert_seq_copy2d(seq, &(culvert_copy2d){.dst = words, .src = words});   /* 4 */
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "empty"), &none, NULL, 0); /* 5 */
    culvert_seq_use(seq, words);
    scratch = culvert_seq_scratch(seq, 4);
    ck_assert_ptr_nonnull(scratch);
    culvert_seq_launch(seq, add, &one,
                       CULVERT_ARGS(CULVERT_BUFFER(words), CULVERT_U32(0), CULVERT_U32(1))); /* 6 */
    culvert_graph *graph = compile(seq);
    culvert_bind bind = {.op = 6, .index = 1, .value = CULVERT_U32(2)};
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, &bind, 1));
    ck_assert_uint_eq(word(words, 0), 0);
    ck_assert_uint_eq(word(words, 2), 1);
    bind.op = 5;
    culvert_error err =
        gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "operation 5: it has nothing to do");
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

/* Memory that was registered while the device worked is pinned in pieces, over whose ends no copy of the
   driver's goes: an operation that does is several nodes, and what is bound must not. */
START_TEST(copies_over_the_ends_of_registered_pieces)
{
    enum { MIB = 1024 * 1024, ROOM = 3 * MIB };
    culvert_error err = CULVERT_ERROR_INIT;
    unsigned char *memory = malloc(ROOM), *out = malloc(ROOM);
    culvert_buffer *device = gpu_fixture_buffer(&f, ROOM);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *busy = culvert_fill(f.stream, device, 0, ROOM, 0, 4);
    culvert_buffer *host = culvert_host_register(f.gpu, memory, ROOM, &err);
    ck_assert_msg(host != NULL, "%s", err.message);
    gpu_fixture_release(&f);
    gpu_fixture_ok(busy);
    if (host->seam != MIB)
        goto out; /* the device was idle again before */
    for (size_t i = 0; i < ROOM; i++)
        memory[i] = (unsigned char)(i % 251);
    unsigned char *end = (unsigned char *)(((uintptr_t)memory + MIB) / MIB * MIB);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, device, 0, 4, 0, 4);
    culvert_seq_upload(seq, device, 0, memory, ROOM); /* 1: in parts */
    culvert_seq_upload(seq, device, 0, end, 8);       /* 2 */
    culvert_graph *graph = compile(seq);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    gpu_fixture_ok(culvert_download(f.stream, out, device, 0, ROOM));
    ck_assert_mem_eq(out + 8, memory + 8, ROOM - 8);
    ck_assert_mem_eq(out, end, 8);
    culvert_bind bind = {.op = 1, .index = 1, .value = CULVERT_BUFFER(host)};
    err = gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "operation 1: it is several copies");
    bind = (culvert_bind){.op = 2, .index = 1, .value = CULVERT_HOST(end - 4)};
    err = gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "8 bytes, goes over the end of a piece after 4");
    bind.value = CULVERT_BUFFER_AT(host, (size_t)(end - memory) - 7);
    err = gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "after 7");
    bind.value = CULVERT_HOST(end - 8);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, &bind, 1));
    gpu_fixture_ok(culvert_download(f.stream, out, device, 0, 8));
    ck_assert_mem_eq(out, end - 8, 8);
    culvert_graph_unref(graph);
out:
    culvert_buffer_unref(device);
    gpu_fixture_ok(culvert_host_unregister(f.gpu, host));
    free(memory);
    free(out);
}
END_TEST

/* ---- several at once ---- */

START_TEST(case_080_launches_of_a_running_graph_keep_their_parameters)
{
    enum { N = 20 };
    culvert_buffer *words = gpu_fixture_buffer(&f, 4 * (N + 1));
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_note(&f, seq, words, 0);
    culvert_graph *graph = compile(seq);
    culvert_future *futures[N];
    gpu_fixture_hold(&f, f.stream);
    for (unsigned i = 0; i < N; i++) {
        culvert_bind bind = {.op = 0, .index = 1, .value = CULVERT_U32(i + 1)};
        futures[i] = culvert_graph_launch(f.stream, graph, i % 3 == 2 ? NULL : &bind, i % 3 != 2);
    }
    gpu_fixture_release(&f);
    for (unsigned i = 0; i < N; i++)
        gpu_fixture_ok(futures[i]);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(word(words, i + 1), i % 3 == 2 ? 0 : i + 1);
    if (gpu_fixture_simulated()) /* in order anyway: one instance does */
        ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), 1);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

static bool noted(void *arg)
{
    return *(volatile unsigned *)arg >= 1;
}

/* One stream is held with a run of the graph on it; the other one's goes by. */
START_TEST(runs_on_several_streams_go_side_by_side)
{
    culvert_buffer *a = gpu_fixture_host_buffer(&f, 64), *b = gpu_fixture_host_buffer(&f, 64);
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_note(&f, seq, a, 5);
    culvert_graph *graph = compile(seq);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *held = culvert_graph_launch(f.stream, graph, NULL, 0);
    const culvert_bind binds[] = {{.op = 0, .index = 0, .value = CULVERT_BUFFER(b)},
                                  {.op = 0, .index = 1, .value = CULVERT_U32(6)}};
    culvert_future *free = culvert_graph_launch(other, graph, binds, 2);
    gpu_fixture_ok(free); /* which would hang otherwise */
    ck_assert_uint_eq(((unsigned *)culvert_buffer_data(b))[1], 6);
    ck_assert(!noted(culvert_buffer_data(a)));
    ck_assert_int_eq(culvert_status(held), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(held);
    ck_assert_uint_eq(((unsigned *)culvert_buffer_data(a))[1], 5);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), 2);
    for (int i = 0; i < 4; i++) /* pooled: no more are made */
        gpu_fixture_ok(culvert_graph_launch(i % 2 ? f.stream : other, graph, NULL, 0));
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), 2);
    culvert_graph_unref(graph);
    culvert_stream_unref(other);
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
}
END_TEST

/* More streams than a graph has instances: the rest waits in the library, and then goes. */
START_TEST(more_streams_than_instances_take_turns)
{
    enum { N = 20, MOST = 16 };
    if (!gpu_fixture_simulated())
        return; /* a GPU does not run so many gates beside each other */
    culvert_buffer *words = gpu_fixture_buffer(&f, 4 * N);
    culvert_stream *streams[N];
    culvert_future *futures[N];
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_graph *graph = compile(seq);
    for (unsigned i = 0; i < N; i++) {
        culvert_bind bind = {.op = 0, .index = 1, .value = CULVERT_U32(i)};
        streams[i] = gpu_fixture_stream(&f);
        gpu_fixture_hold(&f, streams[i]);
        futures[i] = culvert_graph_launch(streams[i], graph, &bind, 1);
    }
    gpu_fixture_run(&f, 0.05);
    ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), MOST);
    gpu_fixture_release(&f);
    for (unsigned i = 0; i < N; i++) {
        gpu_fixture_ok(futures[i]);
        ck_assert_uint_eq(word(words, i), 1);
        culvert_stream_unref(streams[i]);
    }
    ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), MOST);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

/* A head that waits for an instance is cancelled: those behind it go on. */
START_TEST(a_launch_that_waits_for_an_instance_can_be_cancelled)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 64), *scratch;
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    scratch = culvert_seq_scratch(seq, 64); /* one run at a time */
    culvert_seq_fill(seq, scratch, 0, 64, 3, 4);
    culvert_seq_copy(seq, words, 0, scratch, 0, 4);
    culvert_graph *graph = compile(seq);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_graph_launch(f.stream, graph, NULL, 0);
    culvert_future *second = culvert_graph_launch(other, graph, NULL, 0);
    culvert_future *behind = culvert_fill(other, words, 8, 4, 9, 4);
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(behind), CULVERT_PENDING);
    ck_assert_uint_eq(culvert_stream_queued(other), 2);
    culvert_cancel(second);
    gpu_fixture_ok(behind);
    (void)gpu_fixture_fails(second, CULVERT_ECANCELED);
    gpu_fixture_release(&f);
    gpu_fixture_ok(first);
    ck_assert_uint_eq(word(words, 0), 3);
    culvert_graph_unref(graph);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(runs_that_share_scratch_follow_each_other)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 64), *scratch;
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    scratch = culvert_seq_scratch(seq, 64);
    culvert_seq_fill(seq, scratch, 0, 64, 3, 4);
    gpu_fixture_add(&f, seq, scratch, 0, 1);
    culvert_seq_copy(seq, words, 0, scratch, 0, 4);
    culvert_graph *graph = compile(seq);
    for (int i = 0; i < 10; i++) {
        culvert_bind bind = {.op = 2, .index = 0, .value = CULVERT_BUFFER_AT(words, 4)};
        culvert_future *a = culvert_graph_launch(f.stream, graph, NULL, 0);
        culvert_future *b = culvert_graph_launch(other, graph, &bind, 1);
        gpu_fixture_ok(a);
        gpu_fixture_ok(b);
        ck_assert_uint_eq(word(words, 0), 4);
        ck_assert_uint_eq(word(words, 1), 4);
        gpu_fixture_ok(culvert_fill(f.stream, words, 0, 64, 0, 1));
    }
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), 1);
    culvert_graph_unref(graph);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

/* Weight counts in the caps: a graph of 100 nodes leaves room for one more on a stream, not for two. */
START_TEST(the_weight_of_graphs_counts_in_the_caps)
{
    enum { NODES = 100, RUNS = 6 };
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    for (unsigned i = 0; i < NODES; i++)
        gpu_fixture_add(&f, seq, words, i % 4, 1);
    culvert_graph *graph = compile(seq);
    culvert_future *futures[RUNS];
    gpu_fixture_hold(&f, f.stream);
    size_t gates = culvert_stream_in_flight(f.stream);
    for (int i = 0; i < RUNS; i++)
        futures[i] = culvert_graph_launch(f.stream, graph, NULL, 0);
    ck_assert_uint_eq(culvert_stream_in_flight(f.stream) - gates, 2);
    ck_assert_uint_eq(culvert_stream_queued(f.stream), RUNS - 2);
    gpu_fixture_release(&f);
    for (int i = 0; i < RUNS; i++)
        gpu_fixture_ok(futures[i]);
    ck_assert_uint_eq(word(words, 1), RUNS * NODES / 4);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(a_graph_of_more_nodes_than_the_caps_is_launched_all_the_same)
{
    enum { NODES = 1000 };
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    for (unsigned i = 0; i < NODES; i++)
        gpu_fixture_add(&f, seq, words, 1, 1);
    culvert_graph *graph = compile(seq);
    culvert_bind binds[NODES];
    for (unsigned i = 0; i < NODES; i++)
        binds[i] = (culvert_bind){.op = (i * 7) % NODES, .index = 1, .value = CULVERT_U32(i % 4)};
    culvert_future *first = culvert_graph_launch(f.stream, graph, binds, NODES);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    gpu_fixture_ok(first);
    ck_assert_uint_eq(word(words, 0), NODES / 4);
    ck_assert_uint_eq(word(words, 1), NODES / 4 + NODES);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

/* ---- off the hot path ---- */

/* The loop's thread is marked as one that must not block, and the simulator makes instantiating slow. */
START_TEST(the_loop_goes_on_while_a_graph_is_made)
{
    things t = things_new();
    culvert_stream *other = gpu_fixture_stream(&f);
    if (!gpu_fixture_simulated())
        return;
    culvert_sim_delay("cuGraphInstantiateWithFlags", 0.2);
    culvert_future *compiled = culvert_seq_compile(work(&t, 5));
    for (int i = 0; i < 5; i++)
        gpu_fixture_ok(culvert_fill(other, t.b, 4, 4, 1, 4));
    ck_assert_int_eq(culvert_status(compiled), CULVERT_PENDING);
    gpu_fixture_ok(culvert_ref(compiled));
    culvert_graph *graph = culvert_take(compiled);
    culvert_unref(compiled);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_graph_launch(f.stream, graph, NULL, 0);
    culvert_future *second = culvert_graph_launch(other, graph, NULL, 0); /* needs another one */
    gpu_fixture_ok(culvert_sleep(f.loop, 0.01));
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(first);
    gpu_fixture_ok(second);
    culvert_graph_unref(graph);
    culvert_stream_unref(other);
    things_free(&t);
}
END_TEST

/* What has been made once is enough: launches allocate nothing and make nothing. */
START_TEST(launching_again_makes_nothing)
{
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 5));
    culvert_bind bind = {.op = 1, .index = 3, .value = CULVERT_U32(8)};
    if (!gpu_fixture_simulated())
        return;
    for (int i = 0; i < 10; i++)
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, &bind, 1));
    uint64_t events = calls("cuEventCreate"), execs = calls("cuGraphInstantiateWithFlags");
    uint64_t sets = calls("cuGraphExecKernelNodeSetParams");
    uint64_t copies = calls("cuGraphExecMemcpyNodeSetParams");
    alloc_fail_from(UINT64_MAX);
    for (int i = 0; i < 100; i++)
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, &bind, 1));
    uint64_t allocated = alloc_fail_count();
    alloc_fail_off();
    ck_assert_uint_le(allocated, 100); /* the futures */
    ck_assert_uint_eq(calls("cuEventCreate"), events);
    ck_assert_uint_eq(calls("cuGraphInstantiateWithFlags"), execs);
    ck_assert_uint_eq(calls("cuGraphExecKernelNodeSetParams"),
                      sets + 100); /* what is bound, alone */
    ck_assert_uint_eq(calls("cuGraphExecMemcpyNodeSetParams"), copies);
    culvert_graph_unref(graph);
    things_free(&t);
}
END_TEST

/* ---- functions of the program ---- */

typedef struct filler {
    culvert_buffer *words;
    int calls, frees, expected, status;
    struct CUstream_st *stream;
} filler;

static int fill_two(struct CUstream_st *stream, void *arg)
{
    filler *x = arg;
    x->calls++;
    x->stream = stream;
    (void)f.gpu->drv->cuMemsetD32Async(culvert_buffer_address(x->words), 5, 1, stream);
    (void)f.gpu->drv->cuMemsetD32Async(culvert_buffer_address(x->words) + 4, 6, 1, stream);
    return x->status;
}

static void filler_freed(void *arg)
{
    ((filler *)arg)->frees++;
}

static culvert_seq *with_call(filler *x)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, x->words, 0, 16, 1, 4);
    culvert_seq_use(seq, x->words);
    culvert_seq_call(seq, fill_two, x, filler_freed);
    gpu_fixture_add(&f, seq, x->words, 1, 10);
    return seq;
}

static bool enough(void *arg)
{
    const filler *x = arg;
    return x->frees >= x->expected;
}

/* The argument of its graphs has been released so many times, each behind a turn of the device's thread. */
static void until_freed(filler *x, int n)
{
    x->expected = n;
    gpu_fixture_until(&f, enough, x);
    ck_assert_int_eq(x->frees, n);
}

START_TEST(a_call_is_captured_once_on_a_stream_of_its_own)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    culvert_graph *graph = compile(with_call(&x));
    ck_assert_int_eq(x.calls, 1);
    ck_assert_ptr_ne(x.stream, culvert_stream_native(f.stream));
    ck_assert_uint_eq(word(x.words, 0), 0); /* nothing ran */
    for (int i = 0; i < 3; i++) {
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
        ck_assert_uint_eq(word(x.words, 0), 5);
        ck_assert_uint_eq(word(x.words, 1), 16);
        ck_assert_uint_eq(word(x.words, 2), 1);
        gpu_fixture_ok(culvert_fill(f.stream, x.words, 0, 16, 0, 4));
    }
    ck_assert_int_eq(x.calls, 1);
    ck_assert_int_eq(x.frees, 0);
    culvert_bind bind = {.op = 1, .index = 0, .value = CULVERT_BUFFER(x.words)};
    culvert_error err =
        gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "operation 1: it is a culvert_seq_call");
    culvert_graph_unref(graph);
    until_freed(&x, 1);
    culvert_buffer_unref(x.words);
}
END_TEST

START_TEST(a_call_that_fails_rejects_the_compile)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16), .status = 77};
    culvert_error err = gpu_fixture_fails(culvert_seq_compile(with_call(&x)), CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 77);
    ck_assert_int_eq(x.frees, 1);
    x.status = 0; /* the private stream can be used again */
    culvert_graph_unref(compile(with_call(&x)));
    until_freed(&x, 2);
    culvert_buffer_unref(x.words);
}
END_TEST

static int spoil(struct CUstream_st *stream, void *arg)
{
    (void)arg;
    (void)f.gpu->drv->cuStreamSynchronize(stream); /* which a captured stream cannot do */
    return 0;
}

static int end_it(struct CUstream_st *stream, void *arg)
{
    struct CUgraph_st *graph = NULL;
    (void)arg;
    (void)f.gpu->drv->cuStreamEndCapture(stream, &graph);
    if (graph != NULL)
        (void)f.gpu->drv->cuGraphDestroy(graph);
    return 0;
}

START_TEST(a_call_that_cannot_be_captured_rejects_the_compile)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_call(seq, _i == 0 ? spoil : end_it, &x, filler_freed);
    culvert_error err = gpu_fixture_fails(culvert_seq_compile(seq), CULVERT_EDRIVER);
    gpu_fixture_says(&err, "cuStreamEndCapture");
    ck_assert_int_eq(x.frees, 1);
    culvert_graph *graph = compile(with_call(&x)); /* nothing was harmed */
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    ck_assert_uint_eq(word(x.words, 1), 16);
    culvert_graph_unref(graph);
    until_freed(&x, 2);
    culvert_buffer_unref(x.words);
}
END_TEST

/* The program captures on a stream of its own, in the strictest mode, while graphs are made and launched. */
START_TEST(case_078_a_capture_of_the_programs_stays_valid)
{
    const culvert__driver *drv = f.gpu->drv;
    filler x = {.words = gpu_fixture_buffer(&f, 16)}, y = x;
    struct CUstream_st *own;
    struct CUgraph_st *captured = NULL;
    struct CUctx_st *popped;
    ck_assert_int_eq(drv->cuCtxPushCurrent(f.gpu->device->ctx), 0);
    ck_assert_int_eq(drv->cuStreamCreateWithPriority(&own, CULVERT__CU_STREAM_NON_BLOCKING, 0), 0);
    ck_assert_int_eq(drv->cuStreamBeginCapture(own, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    ck_assert_int_eq(drv->cuMemsetD32Async(culvert_buffer_address(y.words) + 8, 9, 1, own), 0);
    culvert_graph *graph = compile(with_call(&x));
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    ck_assert_int_eq(drv->cuMemsetD32Async(culvert_buffer_address(y.words) + 12, 9, 1, own), 0);
    ck_assert_int_eq(drv->cuStreamEndCapture(own, &captured), 0);
    size_t nodes = 0;
    ck_assert_int_eq(drv->cuGraphGetNodes(captured, NULL, &nodes), 0);
    ck_assert_uint_eq(nodes, 2); /* what the program put there, and no more */
    ck_assert_uint_eq(word(x.words, 1), 16);
    ck_assert_uint_eq(word(x.words, 2), 1);
    ck_assert_int_eq(drv->cuGraphDestroy(captured), 0);
    ck_assert_int_eq(drv->cuStreamDestroy(own), 0);
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    culvert_graph_unref(graph);
    until_freed(&x, 1);
    culvert_buffer_unref(x.words);
}
END_TEST

static int call_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 0;
}

START_TEST(a_call_may_put_nothing_there)
{
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_seq_call(seq, call_nothing, NULL, NULL);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_graph *graph = compile(seq);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    ck_assert_uint_eq(word(words, 0), 2);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
}
END_TEST

/* ---- graphs in graphs ---- */

START_TEST(a_graph_in_a_compiled_sequence_becomes_part_of_it)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    culvert_buffer *words = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_graph *inner = compile(seq), *captured = compile(with_call(&x));
    culvert_bind bind = {.op = 0, .index = 2, .value = CULVERT_U32(100)};
    seq = culvert_seq_begin(f.stream);
    culvert_seq_graph(seq, inner, NULL, 0);  /* 0 */
    culvert_seq_graph(seq, inner, &bind, 1); /* 1 */
    culvert_seq_graph(seq, captured, NULL, 0);
    gpu_fixture_add(&f, seq, words, 0, 1000); /* 3 */
    culvert_graph *outer = compile(seq);
    culvert_graph_unref(inner);
    culvert_graph_unref(captured);
    gpu_fixture_ok(culvert_graph_launch(f.stream, outer, NULL, 0));
    ck_assert_uint_eq(word(words, 0), 1101);
    ck_assert_uint_eq(word(x.words, 1), 16);
    culvert_bind later = {.op = 3, .index = 2, .value = CULVERT_U32(2000)};
    gpu_fixture_ok(culvert_graph_launch(f.stream, outer, &later, 1));
    ck_assert_uint_eq(word(words, 0), 1101 + 2101);
    later.op = 1;
    culvert_error err =
        gpu_fixture_fails(culvert_graph_launch(f.stream, outer, &later, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "operation 1: it is a graph");
    culvert_graph_unref(outer);
    until_freed(&x, 1);
    culvert_buffer_unref(words);
    culvert_buffer_unref(x.words);
}
END_TEST

START_TEST(pitched_copies_are_part_of_graphs)
{
    culvert_buffer *from = gpu_fixture_host_buffer(&f, 256), *to = gpu_fixture_buffer(&f, 256);
    culvert_buffer *back = gpu_fixture_host_buffer(&f, 64);
    culvert_copy2d up = {
        .dst = to, .dst_pitch = 32, .src = from, .src_pitch = 16, .width = 8, .height = 4};
    culvert_copy2d down = {
        .dst = back, .dst_pitch = 8, .src = to, .src_pitch = 32, .width = 8, .height = 4};
    for (int i = 0; i < 256; i++)
        ((unsigned char *)culvert_buffer_data(from))[i] = (unsigned char)i;
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy2d(seq, &up);
    culvert_seq_copy2d(seq, &down);
    culvert_graph *graph = compile(seq);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    for (int i = 0; i < 32; i++)
        ck_assert_uint_eq(((unsigned char *)culvert_buffer_data(back))[i], i / 8 * 16 + i % 8);
    culvert_bind bind = {.op = 1, .index = 0, .value = CULVERT_BUFFER(back)};
    culvert_error err =
        gpu_fixture_fails(culvert_graph_launch(f.stream, graph, &bind, 1), CULVERT_EINVAL);
    gpu_fixture_says(&err, "pitched copy");
    culvert_graph_unref(graph);
    culvert_buffer *all[] = {from, to, back};
    for (int i = 0; i < 3; i++)
        culvert_buffer_unref(all[i]);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(what_a_graph_cannot_do_is_refused_when_it_is_compiled)
{
    static unsigned char ordinary[64];
    static const char *const says[] = {"culvert_seq_wait",
                                       "operation 1, an upload of 64 bytes from",
                                       "operation 1, a download of 64 bytes to", "bytes of scratch",
                                       "10-byte buffer"};
    culvert_buffer *words = gpu_fixture_buffer(&f, 64), *small = gpu_fixture_buffer(&f, 10);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    int released = 0;
    gpu_fixture_add(&f, seq, words, 0, 1);
    switch (_i) {
    case 0: culvert_seq_wait(seq, culvert_fill(f.stream, words, 0, 4, 0, 4)); break;
    case 1: culvert_seq_upload(seq, words, 0, ordinary, 64); break;
    case 2: culvert_seq_download(seq, ordinary, words, 0, 64); break;
    case 3: (void)culvert_seq_scratch(seq, 64 << 20); break;
    default: culvert_seq_fill(seq, small, 8, 4, 0, 4); break;
    }
    culvert_seq_keep(seq, &released, NULL);
    culvert_error err = gpu_fixture_fails(culvert_seq_compile(seq), CULVERT_EINVAL);
    ck_assert_str_eq(err.op, _i < 4 ? "culvert_seq_compile" : "culvert_seq_fill");
    gpu_fixture_says(&err, says[_i]);
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(calls("cuGraphCreate"), 0);
    gpu_fixture_idle(&f, f.stream);
    culvert_buffer_unref(words);
    culvert_buffer_unref(small);
}
END_TEST

typedef struct refusal {
    culvert_bind bind;
    int code;
    const char *says[3];
} refusal;

START_TEST(binds_that_do_not_fit_are_refused_with_the_figures)
{
    static unsigned char ordinary[WORDS * 4];
    things t = things_new();
    culvert_graph *graph = compile(work(&t, 5));
    culvert_buffer *small = gpu_fixture_buffer(&f, 100);
    const refusal all[] = {
        {{5, 0, CULVERT_U32(1)}, CULVERT_EINVAL, {"operation 5", "5 operations"}},
        {{1, 4, CULVERT_U32(1)}, CULVERT_EINVAL, {"add_all has 4 arguments", "argument 4"}},
        {{1, 3, CULVERT_U64(1)}, CULVERT_EINVAL, {"argument 3", "8 bytes", "has 4"}},
        {{1, 0, CULVERT_HOST(ordinary)}, CULVERT_EINVAL, {"argument 0", "CULVERT_HOST"}},
        {{1, 0, CULVERT_BUFFER_AT(small, 101)}, CULVERT_EINVAL, {"101", "100-byte"}},
        {{0, 2, CULVERT_BUFFER(t.a)}, CULVERT_EINVAL, {"index 2"}},
        {{0, 0, CULVERT_BUFFER(small)}, CULVERT_EINVAL, {"256 bytes at offset 0", "100-byte"}},
        {{0, 0, CULVERT_BUFFER_AT(t.b, 4)}, CULVERT_EINVAL, {"256 bytes at offset 4"}},
        {{0, 0, CULVERT_BUFFER_AT(t.b, SIZE_MAX)}, CULVERT_EOVERFLOW, {"256 bytes"}},
        {{0, 0, CULVERT_BUFFER(t.in)}, CULVERT_EINVAL, {"destination", "device memory"}},
        {{0, 0, CULVERT_BUFFER(NULL)}, CULVERT_EINVAL, {"NULL"}},
        {{0, 0, CULVERT_HOST(ordinary)}, CULVERT_EINVAL, {"destination", "device memory"}},
        {{0, 1, CULVERT_HOST(ordinary)}, CULVERT_EINVAL, {"source", "256 bytes", "pinned"}},
        {{0, 1, CULVERT_HOST(NULL)}, CULVERT_EINVAL, {"source", "pinned"}},
        {{0, 1, CULVERT_BUFFER(t.b)}, CULVERT_EINVAL, {"source", "host memory"}},
        {{0, 1, CULVERT_U32(4)}, CULVERT_EINVAL, {"source", "CULVERT_BUFFER"}},
        {{2, 1, CULVERT_BUFFER(t.b)}, CULVERT_EINVAL, {"index 1 of a fill"}},
        {{2, 0, CULVERT_U32(1)}, CULVERT_EINVAL, {"destination of a fill"}},
        {{2, 0, CULVERT_BUFFER_AT(t.b, 2)}, CULVERT_EINVAL, {"offset 2", "4-byte"}},
        {{2, 0, CULVERT_BUFFER_AT(t.b, 256)}, CULVERT_EINVAL, {"4 bytes at offset 256"}},
        {{3, 0, CULVERT_BUFFER(t.b)}, CULVERT_EINVAL, {"operation 3", "overlaps"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t launches = calls("cuGraphLaunch");
        culvert_future *future = culvert_graph_launch(f.stream, graph, &all[i].bind, 1);
        culvert_error err = gpu_fixture_fails(future, all[i].code);
        ck_assert_uint_eq(calls("cuGraphLaunch"), launches);
        ck_assert_str_eq(err.op, "culvert_seq_graph");
        for (int k = 0; k < 3 && all[i].says[k] != NULL; k++)
            gpu_fixture_says(&err, all[i].says[k]);
    }
    culvert_error err =
        gpu_fixture_fails(culvert_graph_launch(f.stream, graph, NULL, 3), CULVERT_EINVAL);
    gpu_fixture_says(&err, "binds is NULL for 3");
    fill_words(t.in, 0);
    gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
    check_out(t.out, 5);
    culvert_graph_unref(graph);
    culvert_buffer_unref(small);
    things_free(&t);
}
END_TEST

START_TEST(a_graph_of_another_binding_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_graph *graph = compile(seq);
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    culvert_gpu *gpu = culvert_gpu_open(loop, f.ordinal, NULL, &err);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    culvert_future *future = culvert_graph_launch(stream, graph, NULL, 0);
    ck_assert_int_eq(culvert_status(future), CULVERT_EINVAL);
    gpu_fixture_says(culvert_get_error(future), "another binding");
    culvert_unref(future);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    culvert_graph_unref(graph);
}
END_TEST

/* ---- failure, cancelling, the end ---- */

START_TEST(errors_of_the_driver_reject_and_leave_nothing)
{
    static const char *const functions[] = {"cuGraphCreate", "cuGraphAddKernelNode",
                                            "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode",
                                            "cuGraphInstantiateWithFlags"};
    things t = things_new();
    if (gpu_fixture_simulated()) {
        culvert_sim_fail(functions[_i], 1, 801);
        culvert_error err = gpu_fixture_fails(culvert_seq_compile(work(&t, 1)), CULVERT_ENOTSUP);
        gpu_fixture_says(&err, functions[_i]);
        ck_assert_str_eq(err.op, "culvert_seq_compile");
        gpu_fixture_ok(culvert_fill(f.stream, t.a, 0, 4, 0, 4));
    }
    things_free(&t);
}
END_TEST

START_TEST(errors_of_a_launch_reject_it_alone)
{
    static const char *const functions[] = {"cuGraphExecKernelNodeSetParams",
                                            "cuGraphExecMemcpyNodeSetParams",
                                            "cuGraphExecMemsetNodeSetParams", "cuGraphLaunch"};
    things t = things_new();
    if (!gpu_fixture_simulated()) {
        things_free(&t);
        return;
    }
    culvert_graph *graph = compile(work(&t, 5));
    const culvert_bind binds[] = {{1, 3, CULVERT_U32(9)},
                                  {0, 1, CULVERT_HOST(culvert_buffer_data(t.in))},
                                  {2, 0, CULVERT_BUFFER_AT(t.b, 4)}};
    for (int bound = 0; bound < 2; bound++) { /* while setting, and while setting back */
        fill_words(t.in, 0);
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, binds, bound ? 3 : 0));
        culvert_sim_fail(functions[_i], 1, 801);
        culvert_error err =
            gpu_fixture_fails(culvert_graph_launch(f.stream, graph, binds, bound ? 0 : 3),
                              CULVERT_ENOTSUP);
        gpu_fixture_says(&err, functions[_i]);
        gpu_fixture_ok(culvert_graph_launch(f.stream, graph, NULL, 0));
        check_out(t.out, 5);
    }
    culvert_graph_unref(graph);
    things_free(&t);
}
END_TEST

static void on_log(int level, const char *message, void *arg)
{
    ck_assert_int_eq(level, CULVERT_LOG_WARNING);
    ck_assert_ptr_nonnull(strstr(message, "a graph goes on with 1 instance,"));
    ++*(int *)arg;
}

START_TEST(without_another_instance_runs_take_turns)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    int logged = 0;
    options.on_log = on_log;
    options.arg = &logged;
    if (!gpu_fixture_simulated())
        return;
    gpu_fixture_close(&f);
    gpu_fixture_open(&f, &options, NULL);
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_stream *other = gpu_fixture_stream(&f);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_graph *graph = compile(seq);
    culvert_sim_fail("cuGraphInstantiateWithFlags", 1, 2);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *first = culvert_graph_launch(f.stream, graph, NULL, 0);
    culvert_future *second = culvert_graph_launch(other, graph, NULL, 0);
    while (logged == 0)
        gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(first);
    gpu_fixture_ok(second);
    ck_assert_uint_eq(word(words, 0), 2);
    culvert_graph_unref(graph);
    culvert_stream_unref(other);
    culvert_buffer_unref(words);
}
END_TEST

START_TEST(a_compile_can_be_cancelled_or_dropped)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    if (gpu_fixture_simulated())
        culvert_sim_delay("cuGraphInstantiateWithFlags", 0.05);
    for (int i = 0; i < 6; i++) { /* some wait for the thread, one is being made */
        culvert_future *future = culvert_seq_compile(with_call(&x));
        if (i % 2 == 0)
            culvert_cancel(future);
        culvert_unref(future);
    }
    culvert_graph_unref(compile(with_call(&x)));
    until_freed(&x, 7);
    culvert_buffer_unref(x.words);
}
END_TEST

/* The value stays with the future where nobody takes it. */
START_TEST(a_graph_that_nobody_takes_goes_with_its_future)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    gpu_fixture_ok(culvert_seq_compile(with_call(&x)));
    until_freed(&x, 1);
    culvert_buffer_unref(x.words);
}
END_TEST

/* Handles outlive the binding, and work in flight is cut off by it. */
START_TEST(a_graph_may_outlive_its_binding)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    culvert_graph *graph = compile(with_call(&x));
    culvert_future *future = culvert_graph_launch(f.stream, graph, NULL, 0);
    if (_i == 1)
        gpu_fixture_ok(culvert_ref(future));
    culvert_buffer_unref(x.words);
    culvert_module_unref(f.module);
    culvert_stream_unref(f.stream);
    culvert_gpu_close(f.gpu);
    culvert_loop_free(f.loop);
    f.module = NULL, f.stream = NULL, f.gpu = NULL, f.loop = NULL;
    culvert_unref(future);
    ck_assert_int_eq(x.frees, 0);
    culvert_graph_unref(graph);
    ck_assert_int_eq(x.frees, 1);
}
END_TEST

START_TEST(a_closed_or_draining_device_compiles_nothing)
{
    filler x = {.words = gpu_fixture_buffer(&f, 16)};
    culvert_seq *seq = with_call(&x);
    culvert_gpu_close(f.gpu);
    culvert_future *future = culvert_seq_compile(seq);
    ck_assert_int_eq(culvert_status(future), CULVERT_ESHUTDOWN);
    ck_assert_str_eq(culvert_get_error(future)->op, "culvert_seq_compile");
    culvert_unref(future);
    ck_assert_int_eq(x.calls, 0);
    ck_assert_int_eq(x.frees, 1);
    f.gpu = NULL;
    culvert_buffer_unref(x.words);
}
END_TEST

/* ---- out of memory ---- */

static int await_it(culvert_future *future)
{
    int status = culvert_await(future, 100);
    while (status == CULVERT_ENOMEM && culvert_status(future) == CULVERT_PENDING)
        status = culvert_await(future, 100); /* waiting needs memory, too */
    return status;
}

/* Compiles and launches; a code that is not CULVERT_OK is CULVERT_ENOMEM. */
static int compile_and_launch(filler *x, culvert_stream *other)
{
    culvert_future *compiled = culvert_seq_compile(with_call(x));
    int status = await_it(compiled);
    culvert_graph *graph = status == CULVERT_OK ? culvert_take(compiled) : NULL;
    culvert_unref(compiled);
    if (graph == NULL)
        return status;
    culvert_bind bind = {.op = 2, .index = 2, .value = CULVERT_U32(3)};
    culvert_future *a = culvert_graph_launch(f.stream, graph, &bind, 1);
    culvert_seq *seq = culvert_seq_begin(other); /* the device waits: it takes another instance */
    culvert_seq_wait(seq, culvert_ref(a));
    culvert_seq_graph(seq, graph, NULL, 0);
    culvert_future *b = culvert_seq_submit(seq);
    culvert_graph_unref(graph);
    status = await_it(a);
    int second = await_it(b);
    culvert_unref(a);
    culvert_unref(b);
    return status != CULVERT_OK ? status : second;
}

START_TEST(out_of_memory_at_every_allocation_of_a_graph)
{
    bool failed = true;
    int64_t live = 0;
    if (!gpu_fixture_simulated())
        return; /* the same, and it would take long */
    alloc_fail_this_thread(true);
    for (uint64_t n = 1; failed; n++) {
        gpu_fixture_close(&f);
        if (n > 2)
            ck_assert_int_eq(alloc_fail_live(), live);
        live = alloc_fail_live();
        gpu_fixture_open(&f, NULL, NULL);
        filler x = {.words = gpu_fixture_buffer(&f, 16)};
        culvert_stream *other = gpu_fixture_stream(&f);
        alloc_fail_nth(n);
        int status = compile_and_launch(&x, other);
        failed = alloc_fail_happened();
        alloc_fail_off();
        if (!failed)
            ck_assert_int_eq(status, CULVERT_OK);
        else
            ck_assert_msg(status == CULVERT_OK || status == CULVERT_ENOMEM, "%s",
                          culvert_error_name(status));
        until_freed(&x, 1);
        culvert_stream_unref(other);
        culvert_buffer_unref(x.words);
        if (!failed)
            ck_assert_uint_ge(n, 8); /* there was something to fail */
    }
}
END_TEST

static TCase *tests_of_work(void)
{
    TCase *tc = tcase_create("work");
    tcase_add_test(tc, a_graph_does_what_its_sequence_says_each_time);
    tcase_add_test(tc, a_graph_goes_on_any_stream_and_outlives_the_one_it_was_built_on);
    tcase_add_test(tc, buffers_and_kernels_of_a_graph_are_held_by_it);
    tcase_add_test(tc, a_graph_may_be_let_go_while_it_runs);
    tcase_add_test(tc, a_graph_is_part_of_a_sequence_like_other_operations);
    tcase_add_loop_test(tc, an_empty_graph_and_one_with_nothing_to_do_succeed_in_order, 0, 2);
    tcase_add_test(tc, a_timed_sequence_makes_timed_launches);
    tcase_add_test(tc, a_launch_binds_arguments_and_addresses);
    tcase_add_test(tc, offsets_host_buffers_and_the_last_bind_count);
    tcase_add_test(tc, positions_count_operations_with_nothing_to_do);
    tcase_add_test(tc, copies_over_the_ends_of_registered_pieces);
    tcase_add_test(tc, a_call_is_captured_once_on_a_stream_of_its_own);
    tcase_add_test(tc, a_call_that_fails_rejects_the_compile);
    tcase_add_loop_test(tc, a_call_that_cannot_be_captured_rejects_the_compile, 0, 2);
    tcase_add_test(tc, case_078_a_capture_of_the_programs_stays_valid);
    tcase_add_test(tc, a_call_may_put_nothing_there);
    tcase_add_test(tc, a_graph_in_a_compiled_sequence_becomes_part_of_it);
    tcase_add_test(tc, pitched_copies_are_part_of_graphs);
    return tc;
}

static TCase *tests_of_runs(void)
{
    TCase *tc = tcase_create("runs");
    tcase_add_test(tc, case_080_launches_of_a_running_graph_keep_their_parameters);
    tcase_add_test(tc, runs_on_several_streams_go_side_by_side);
    tcase_add_test(tc, more_streams_than_instances_take_turns);
    tcase_add_test(tc, a_launch_that_waits_for_an_instance_can_be_cancelled);
    tcase_add_test(tc, runs_that_share_scratch_follow_each_other);
    tcase_add_test(tc, the_weight_of_graphs_counts_in_the_caps);
    tcase_add_test(tc, a_graph_of_more_nodes_than_the_caps_is_launched_all_the_same);
    tcase_add_test(tc, the_loop_goes_on_while_a_graph_is_made);
    tcase_add_test(tc, launching_again_makes_nothing);
    return tc;
}

static TCase *tests_of_failure(void)
{
    TCase *tc = tcase_create("failure");
    tcase_add_loop_test(tc, what_a_graph_cannot_do_is_refused_when_it_is_compiled, 0, 5);
    tcase_add_test(tc, binds_that_do_not_fit_are_refused_with_the_figures);
    tcase_add_test(tc, a_graph_of_another_binding_is_refused);
    tcase_add_loop_test(tc, errors_of_the_driver_reject_and_leave_nothing, 0, 5);
    tcase_add_loop_test(tc, errors_of_a_launch_reject_it_alone, 0, 4);
    tcase_add_test(tc, without_another_instance_runs_take_turns);
    tcase_add_test(tc, a_compile_can_be_cancelled_or_dropped);
    tcase_add_test(tc, a_graph_that_nobody_takes_goes_with_its_future);
    tcase_add_loop_test(tc, a_graph_may_outlive_its_binding, 0, 2);
    tcase_add_test(tc, a_closed_or_draining_device_compiles_nothing);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_a_graph);
    return tc;
}

int main(void)
{
    Suite *suite = suite_create("graph");
    TCase *cases[] = {tests_of_work(), tests_of_runs(), tests_of_failure()};
    for (int i = 0; i < 3; i++) {
        tcase_add_checked_fixture(cases[i], set_up, tear_down);
        suite_add_tcase(suite, cases[i]);
    }
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
