/* SPDX-License-Identifier: BSD-2-Clause */
/* Graphs when the device is lost, the loop goes away, or the process forks. The simulator's controls alone. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "lib/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ILLEGAL_ADDRESS = 700 };

static gpu_fixture f;
static int kept;

static void note_free(void *arg)
{
    ++*(int *)arg;
}

static int call_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 0;
}

/* One that counts what it was given, with scratch: one run at a time. */
static culvert_seq *work(culvert_buffer *words, bool scratch)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    gpu_fixture_add(&f, seq, words, 0, 1);
    culvert_seq_call(seq, call_nothing, NULL, NULL);
    if (scratch)
        culvert_seq_fill(seq, culvert_seq_scratch(seq, 16), 0, 16, 1, 4);
    culvert_seq_keep(seq, &kept, note_free);
    return seq;
}

static culvert_graph *compile(culvert_seq *seq)
{
    culvert_future *future = culvert_seq_compile(seq);
    gpu_fixture_ok(culvert_ref(future));
    culvert_graph *graph = culvert_take(future);
    culvert_unref(future);
    return graph;
}

/* On a word of its own. */
static void launch(outcomes *all, culvert_stream *stream, culvert_graph *graph, unsigned i)
{
    culvert_bind bind = {.op = 0, .index = 1, .value = CULVERT_U32(i)};
    outcomes_add(all, culvert_graph_launch(stream, graph, &bind, 1));
}

/* ---- loss ---- */

/* In the driver, queued, waiting for an instance, being made, being compiled: all of it rejects. */
START_TEST(a_lost_device_rejects_all_that_graphs_have_under_way)
{
    enum { RUNS = 8 };
    outcomes all;
    gpu_fixture_open(&f, NULL, NULL);
    f.dirty = true;
    outcomes_begin(&all, RUNS + 2);
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_stream *streams[RUNS];
    culvert_graph *one = compile(work(words, true)), *many = compile(work(words, false));
    culvert_sim_delay("cuGraphInstantiateWithFlags", 0.1);
    for (int i = 0; i < RUNS; i++) {
        streams[i] = gpu_fixture_stream(&f);
        gpu_fixture_hold(&f, streams[i]);
        launch(&all, streams[i], i % 2 ? one : many, (unsigned)i);
    }
    outcomes_add(&all, culvert_seq_compile(work(words, false)));
    culvert_seq *half_built = work(words, false);
    gpu_fixture_run(&f, 0.02);
    ck_assert_uint_eq(all.settled, 0);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    ck_assert(outcomes_wait(&all, f.ev, 10));
    outcomes_all(&all, CULVERT_EDEVICELOST);
    ck_assert_int_eq(all.list[0].error.native, ILLEGAL_ADDRESS);
    uint64_t made = culvert_sim_calls(NULL);
    culvert_future *later = culvert_graph_launch(streams[0], one, NULL, 0);
    ck_assert_int_eq(culvert_status(later), CULVERT_EDEVICELOST);
    (void)culvert_get_error(later);
    culvert_unref(later);
    later = culvert_seq_compile(half_built);
    ck_assert_int_eq(culvert_status(later), CULVERT_EDEVICELOST);
    (void)culvert_get_error(later);
    culvert_unref(later);
    culvert_graph_unref(one);
    culvert_graph_unref(many);
    ck_assert_uint_eq(culvert_sim_calls(NULL), made);
    for (int i = 0; i < RUNS; i++)
        culvert_stream_unref(streams[i]);
    culvert_buffer_unref(words);
    outcomes_end(&all);
    gpu_fixture_close(&f);
}
END_TEST

/* A launch finds the device lost. */
START_TEST(a_sticky_error_of_a_graph_launch_loses_the_device)
{
    gpu_fixture_open(&f, NULL, NULL);
    f.dirty = true;
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    culvert_graph *graph = compile(work(words, false));
    culvert_sim_fail("cuGraphLaunch", 1, ILLEGAL_ADDRESS);
    (void)gpu_fixture_fails(culvert_graph_launch(f.stream, graph, NULL, 0), CULVERT_EDEVICELOST);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_LOST);
    culvert_graph_unref(graph);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}
END_TEST

/* ---- the loop goes away ---- */

/* Ends in time, or is cut off; everything settles, what was kept is released unless the device has it. */
START_TEST(freeing_the_loop_settles_all_that_graphs_have_under_way)
{
    enum { RUNS = 6 };
    static const bool cut_off[] = {false, true};
    for (int k = 0; k < 2; k++) {
        outcomes all;
        culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
        options.close_seconds = cut_off[k] ? 0.01 : 60;
        gpu_fixture_open(&f, &options, NULL);
        f.dirty = cut_off[k];
        kept = 0;
        outcomes_begin(&all, RUNS + 1);
        culvert_buffer *words = gpu_fixture_buffer(&f, 64);
        culvert_stream *streams[RUNS];
        culvert_graph *one = compile(work(words, true)), *many = compile(work(words, false));
        for (int i = 0; i < RUNS; i++) {
            streams[i] = gpu_fixture_stream(&f);
            if (cut_off[k])
                gpu_fixture_hold(&f, streams[i]);
            launch(&all, streams[i], i % 2 ? one : many, (unsigned)i);
        }
        culvert_future *compiling = culvert_seq_compile(work(words, false));
        outcomes_add(&all, compiling);
        for (int i = 0; i < RUNS; i++)
            culvert_stream_unref(streams[i]);
        culvert_buffer_unref(words);
        culvert_module_unref(f.module);
        culvert_stream_unref(f.stream);
        culvert_gpu_close(f.gpu);
        culvert_loop_free(f.loop);
        f.module = NULL, f.stream = NULL, f.gpu = NULL, f.loop = NULL;
        ck_assert_uint_eq(all.settled, RUNS + 1);
        if (cut_off[k])
            ck_assert_int_eq(all.list[0].status, CULVERT_ESHUTDOWN);
        culvert_graph_unref(one);
        culvert_graph_unref(many);
        outcomes_end(&all);
        if (!cut_off[k])
            ck_assert_int_eq(kept, 3);
        gpu_fixture_release(&f);
        gpu_fixture_close(&f);
    }
}
END_TEST

/* ---- fork ---- */

static culvert_graph *inherited;

#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            _exit(1);                                          \
        }                                                      \
    } while (0)

static int in_a_child(void *arg)
{
    culvert_seq *half_built = arg;
    uint64_t calls = culvert_sim_calls(NULL);
    culvert_bind bind = {.op = 0, .index = 2, .value = CULVERT_U32(5)};
    culvert_future *future = culvert_graph_launch(f.stream, inherited, &bind, 1);
    CHECK(culvert_status(future) == CULVERT_EFORKED);
    culvert_unref(future);
    culvert_seq_graph(half_built, inherited, &bind, 1);
    future = culvert_seq_compile(half_built);
    CHECK(culvert_status(future) == CULVERT_EFORKED);
    culvert_unref(future);
    culvert_graph_unref(inherited);
    CHECK(culvert_sim_calls(NULL) == calls);
    return 0;
}

START_TEST(a_child_can_neither_compile_nor_launch)
{
    gpu_fixture_open(&f, NULL, NULL);
    culvert_buffer *words = gpu_fixture_buffer(&f, 64);
    inherited = compile(work(words, false));
    culvert_seq *half_built = work(words, false);
    test_child child = test_child_run(in_a_child, half_built, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "status %d, signal %d: %s", child.status,
                  child.signal, child.output);
    culvert_graph *second = compile(half_built);
    gpu_fixture_ok(culvert_graph_launch(f.stream, inherited, NULL, 0));
    gpu_fixture_ok(culvert_graph_launch(f.stream, second, NULL, 0));
    unsigned count = 0;
    gpu_fixture_ok(culvert_download(f.stream, &count, words, 0, 4));
    ck_assert_uint_eq(count, 2);
    culvert_graph_unref(inherited);
    culvert_graph_unref(second);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}
END_TEST

int main(void)
{
    trials *t = trials_new("graph_end");
    TRIAL(t, a_lost_device_rejects_all_that_graphs_have_under_way);
    TRIAL(t, a_sticky_error_of_a_graph_launch_loses_the_device);
    TRIAL(t, freeing_the_loop_settles_all_that_graphs_have_under_way);
    TRIAL(t, a_child_can_neither_compile_nor_launch);
    return trials_run(t);
}
