/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random graphs of sequences over eight streams. Each node writes one more than the largest of what its
 * parents wrote; so one that began too early, or whose parent failed, shows.
 */
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 1000, NODES = 24, STREAMS = 8, PARENTS = 3 };

typedef struct node {
    culvert_future *future;
    unsigned stream, parents[PARENTS], nparents;
    bool cancelled;
    unsigned out; /* a staged download of what it wrote, where it makes one */
    bool downloads;
    int status;
} node;

static gpu_fixture f;
static culvert_stream *streams[STREAMS];
static culvert_buffer *words;
static node nodes[NODES];
static uint64_t seed;

/* The same numbers in every run. */
static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = gpu_fixture_stream(&f);
    words = gpu_fixture_buffer(&f, NODES * 4);
}

static void tear_down(void)
{
    if (f.loop == NULL)
        return;
    for (int i = 0; i < STREAMS; i++)
        culvert_stream_unref(streams[i]);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static void wait_for_parents(culvert_seq *seq, const node *n)
{
    culvert_future *futures[PARENTS];
    bool together = n->nparents > 0 && pick(3) == 0;
    for (unsigned i = 0; i < n->nparents; i++) {
        futures[i] = culvert_ref(nodes[n->parents[i]].future);
        if (pick(8) == 0)
            futures[i] = culvert_then(futures[i], pass, NULL, NULL); /* by the host */
        if (!together)
            culvert_seq_wait(seq, futures[i]);
    }
    if (together)
        culvert_seq_wait(seq, culvert_all(f.loop, futures, n->nparents));
}

static void submit(unsigned index)
{
    node *n = &nodes[index];
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_arg args[1 + PARENTS];
    *n = (node){.stream = pick(STREAMS), .nparents = index == 0 ? 0 : pick(PARENTS + 1)};
    for (unsigned i = 0; i < n->nparents; i++)
        n->parents[i] = pick(index);
    culvert_seq *seq = culvert_seq_begin(streams[n->stream]);
    wait_for_parents(seq, n);
    culvert_buffer *scratch = culvert_seq_scratch(seq, 4);
    args[0] = CULVERT_BUFFER(scratch);
    for (unsigned i = 0; i < PARENTS; i++)
        args[1 + i] =
            i < n->nparents ? CULVERT_BUFFER_AT(words, 4 * n->parents[i]) : CULVERT_BUFFER(NULL);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "one_more"), &grid, args, 1 + PARENTS);
    culvert_seq_copy(seq, words, 4 * (size_t)index, scratch, 0, 4);
    n->downloads = pick(4) == 0;
    if (n->downloads)
        culvert_seq_download(seq, &n->out, words, 4 * (size_t)index, 4);
    n->future = culvert_seq_submit(seq);
    if (pick(25) == 0) {
        n->cancelled = true;
        culvert_cancel(n->future);
    }
}

static void check(unsigned index, unsigned *value)
{
    const node *n = &nodes[index];
    bool excused = n->cancelled;
    value[index] = 1;
    for (unsigned i = 0; i < n->nparents; i++) {
        const node *p = &nodes[n->parents[i]];
        excused |= p->status == CULVERT_ECANCELED;
        if (n->status == CULVERT_OK)
            ck_assert_int_eq(p->status, CULVERT_OK);
        if (value[n->parents[i]] + 1 > value[index])
            value[index] = value[n->parents[i]] + 1;
    }
    if (n->status != CULVERT_OK) {
        ck_assert_int_eq(n->status, CULVERT_ECANCELED);
        ck_assert(excused);
    }
}

static void one_graph(void)
{
    unsigned out[NODES], value[NODES];
    gpu_fixture_ok(culvert_fill(f.stream, words, 0, sizeof out, 0, 4));
    for (unsigned held = pick(3); gpu_fixture_simulated() && held > 0; held--)
        culvert_sim_hold(culvert_stream_native(streams[pick(STREAMS)]));
    for (unsigned i = 0; i < NODES; i++) {
        submit(i);
        if (pick(12) == 0)
            ev_run(f.ev, EVRUN_NOWAIT);
        if (gpu_fixture_simulated() && pick(30) == 0)
            culvert_sim_release(NULL);
    }
    if (gpu_fixture_simulated())
        culvert_sim_release(NULL);
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i].status = culvert_await(nodes[i].future, 60);
        culvert_unref(nodes[i].future);
    }
    gpu_fixture_ok(culvert_download(f.stream, out, words, 0, sizeof out));
    for (unsigned i = 0; i < NODES; i++) {
        check(i, value);
        if (nodes[i].status != CULVERT_OK)
            continue;
        ck_assert_msg(out[i] == value[i], "node %u has %u, not %u", i, out[i], value[i]);
        if (nodes[i].downloads)
            ck_assert_uint_eq(nodes[i].out, value[i]);
    }
}

START_TEST(random_graphs_over_eight_streams)
{
    for (unsigned i = 0; i < GRAPHS / 4; i++) {
        seed = 1000003u * (unsigned)_i + i;
        one_graph();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_graph");
    TCase *tc = tcase_create("graphs");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, random_graphs_over_eight_streams, 0, 4);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
