/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random sequences: compiled and launched with random binds, on one stream or on several at once, they
 * leave the same in memory as the same operations submitted one sequence at a time.
 *
 * A world is some memory. Each world that graphs work on has a twin that plain sequences work on, from the
 * same contents; both work in the order of one stream, and are compared in the end.
 */
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

enum { BUFFERS = 3, WORDS = 128, BYTES = WORDS * 4, OPS = 14, WORLDS = 3, LAUNCHES = 12 };
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { ROUNDS = 40 };
#else
enum { ROUNDS = 250 };
#endif

typedef enum kind {
    UPLOAD,
    DOWNLOAD,
    COPY_UP,
    COPY_DOWN,
    COPY_ACROSS,
    COPY_HOST,
    FILL,
    ADD,
    NOTHING,
    /* which cannot be bound: */
    CALL,
    PITCHED,
    INNER,
    KINDS
} kind;

/* One operation, of `bytes` bytes from an offset in one buffer to one in another. */
typedef struct job {
    kind kind;
    unsigned dst, src;
    size_t dst_offset, src_offset, bytes;
    unsigned value, pattern_bytes;
} job;

typedef struct world {
    culvert_buffer *device[BUFFERS], *host[BUFFERS];
} world;

static gpu_fixture f;
static world worlds[WORLDS], twins[WORLDS];
static culvert_stream *streams[WORLDS];
static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void world_open(world *w)
{
    for (int i = 0; i < BUFFERS; i++) {
        w->device[i] = gpu_fixture_buffer(&f, BYTES);
        w->host[i] = gpu_fixture_host_buffer(&f, BYTES);
    }
}

static void world_close(world *w)
{
    for (int i = 0; i < BUFFERS; i++) {
        culvert_buffer_unref(w->device[i]);
        culvert_buffer_unref(w->host[i]);
    }
}

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    for (int i = 0; i < WORLDS; i++) {
        world_open(&worlds[i]);
        world_open(&twins[i]);
        streams[i] = gpu_fixture_stream(&f);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < WORLDS; i++) {
        world_close(&worlds[i]);
        world_close(&twins[i]);
        culvert_stream_unref(streams[i]);
    }
    gpu_fixture_close(&f);
}

/* ---- operations ---- */

static bool of_host_dst(kind k)
{
    return k == DOWNLOAD || k == COPY_DOWN || k == COPY_HOST;
}

static bool of_host_src(kind k)
{
    return k == UPLOAD || k == COPY_UP || k == COPY_HOST;
}

/* Where it goes, and what it computes with; not what kind it is, nor how much of it there is. */
static void vary(job *j)
{
    size_t unit = j->kind == FILL ? j->pattern_bytes : 4;
    size_t room = (BYTES - j->bytes) / unit + 1;
    j->dst = pick(BUFFERS);
    j->src = (j->dst + 1 + pick(BUFFERS - 1)) % BUFFERS;
    j->dst_offset = pick((unsigned)room) * unit;
    j->src_offset = pick((unsigned)room) * unit;
    if (j->kind == ADD)
        j->value = pick(1000);
}

static job random_job(bool bound)
{
    static const unsigned patterns[] = {1, 2, 4};
    job j = {.kind = (kind)pick(bound ? CALL : KINDS), .value = pick(UINT32_MAX)};
    j.pattern_bytes = patterns[pick(3)];
    j.bytes = (1 + pick(WORDS)) * 4;
    vary(&j);
    return j;
}

/* The memory of a call, which outlives its graph with it. */
typedef struct call {
    job job;
    unsigned long long to;
} call;

static int put_fill(struct CUstream_st *stream, void *arg)
{
    const call *c = arg;
    return f.gpu->drv->cuMemsetD32Async(c->to, c->job.value, c->job.bytes / 4, stream);
}

static call calls[OPS * (LAUNCHES + 1)];
static unsigned ncalls;

static void build_pitched(culvert_seq *seq, const job *j, const world *w)
{
    culvert_copy2d c = {.dst = w->device[j->dst],
                        .dst_pitch = 16,
                        .src = w->host[j->src],
                        .src_pitch = 12,
                        .width = 5,
                        .height = 1 + j->bytes / 16};
    if (c.height > BYTES / 16)
        c.height = BYTES / 16;
    culvert_seq_copy2d(seq, &c);
}

static void build_call(culvert_seq *seq, const job *j, const world *w)
{
    call *c = &calls[ncalls++];
    *c = (call){*j, culvert_buffer_address(w->device[j->dst]) + j->dst_offset};
    culvert_seq_use(seq, w->device[j->dst]);
    culvert_seq_call(seq, put_fill, c, NULL);
}

static void build_add(culvert_seq *seq, const job *j, const world *w)
{
    culvert_grid grid = {.blocks = {1}, .threads = {WORDS}};
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER_AT(w->device[j->dst], j->dst_offset),
                                    CULVERT_BUFFER_AT(w->device[j->src], j->src_offset),
                                    CULVERT_U32((unsigned)(j->bytes / 4)), CULVERT_U32(j->value)));
}

static void build(culvert_seq *seq, const job *j, const world *w, culvert_graph *inner);

static void build_copy(culvert_seq *seq, const job *j, const world *w)
{
    culvert_buffer *dst = of_host_dst(j->kind) ? w->host[j->dst] : w->device[j->dst];
    culvert_buffer *src = of_host_src(j->kind) ? w->host[j->src] : w->device[j->src];
    char *host_dst = culvert_buffer_data(dst), *host_src = culvert_buffer_data(src);
    if (j->kind == UPLOAD)
        culvert_seq_upload(seq, dst, j->dst_offset, host_src + j->src_offset, j->bytes);
    else if (j->kind == DOWNLOAD)
        culvert_seq_download(seq, host_dst + j->dst_offset, src, j->src_offset, j->bytes);
    else
        culvert_seq_copy(seq, dst, j->dst_offset, src, j->src_offset, j->bytes);
}

/* What a graph in the graph does: two operations. */
static void build_inner(culvert_seq *seq, const job *j, const world *w)
{
    job first = *j, second = *j;
    first.kind = COPY_UP;
    second.kind = ADD;
    build(seq, &first, w, NULL);
    build(seq, &second, w, NULL);
}

static void build(culvert_seq *seq, const job *j, const world *w, culvert_graph *inner)
{
    switch (j->kind) {
    case FILL:
        culvert_seq_fill(seq, w->device[j->dst], j->dst_offset, j->bytes, j->value,
                         j->pattern_bytes);
        break;
    case ADD: build_add(seq, j, w); break;
    case NOTHING: culvert_seq_fill(seq, w->device[j->dst], 0, 0, 0, 1); break;
    case CALL: build_call(seq, j, w); break;
    case PITCHED: build_pitched(seq, j, w); break;
    case INNER:
        if (inner != NULL)
            culvert_seq_graph(seq, inner, NULL, 0);
        else
            build_inner(seq, j, w);
        break;
    default: build_copy(seq, j, w); break;
    }
}

static culvert_graph *compile(culvert_seq *seq)
{
    culvert_future *future = culvert_seq_compile(seq);
    gpu_fixture_ok(culvert_ref(future));
    culvert_graph *graph = culvert_take(future);
    culvert_unref(future);
    return graph;
}

static culvert_graph *compile_jobs(const job *jobs, unsigned n, const world *w)
{
    culvert_seq *seq = culvert_seq_begin(streams[0]);
    for (unsigned i = 0; i < n; i++) {
        culvert_graph *inner = NULL;
        if (jobs[i].kind == INNER) {
            culvert_seq *part = culvert_seq_begin(streams[pick(WORLDS)]);
            build_inner(part, &jobs[i], w);
            inner = compile(part);
        }
        build(seq, &jobs[i], w, inner);
        culvert_graph_unref(inner);
    }
    return compile(seq);
}

/* ---- binds ---- */

static culvert_bind *bind(culvert_bind *b, unsigned op, unsigned index, culvert_arg value)
{
    *b = (culvert_bind){op, index, value};
    return b + 1;
}

static culvert_arg place(const world *w, bool host, unsigned buffer, size_t offset)
{
    if (!host)
        return CULVERT_BUFFER_AT(w->device[buffer], offset);
    if (pick(2))
        return CULVERT_BUFFER_AT(w->host[buffer], offset);
    return CULVERT_HOST((char *)culvert_buffer_data(w->host[buffer]) + offset);
}

/* Of what is as it was compiled, some is bound nevertheless. */
static culvert_bind *bind_job(culvert_bind *b, unsigned op, const job *was, const job *j,
                              const world *w, bool elsewhere)
{
    if (j->kind >= NOTHING)
        return b;
    if (elsewhere || was->dst != j->dst || was->dst_offset != j->dst_offset || pick(4) == 0)
        b = bind(b, op, 0, place(w, of_host_dst(j->kind), j->dst, j->dst_offset));
    if (j->kind != FILL &&
        (elsewhere || was->src != j->src || was->src_offset != j->src_offset || pick(4) == 0))
        b = bind(b, op, 1, place(w, of_host_src(j->kind), j->src, j->src_offset));
    if (j->kind == ADD && (was->value != j->value || pick(4) == 0))
        b = bind(b, op, 3, CULVERT_U32(j->value));
    return b;
}

static void shuffle(culvert_bind *binds, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = pick((unsigned)i);
        culvert_bind swap = binds[k];
        binds[k] = binds[i - 1];
        binds[i - 1] = swap;
    }
}

/* ---- a round ---- */

static void fill_world(world *w, unsigned first)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        unsigned *words = culvert_buffer_data(w->host[i]);
        for (unsigned k = 0; k < WORDS; k++)
            words[k] = first + 1000 * i + k;
        gpu_fixture_ok(culvert_upload(f.stream, w->device[i], 0, words, BYTES));
    }
}

static void compare(const world *w, const world *twin, unsigned round)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        unsigned a[WORDS], b[WORDS];
        gpu_fixture_ok(culvert_download(f.stream, a, w->device[i], 0, BYTES));
        gpu_fixture_ok(culvert_download(f.stream, b, twin->device[i], 0, BYTES));
        ck_assert_msg(memcmp(a, b, BYTES) == 0, "round %u: device buffer %u differs", round, i);
        ck_assert_msg(memcmp(culvert_buffer_data(w->host[i]), culvert_buffer_data(twin->host[i]),
                             BYTES) == 0,
                      "round %u: host buffer %u differs", round, i);
    }
}

/* One launch of the graph, and the same as a plain sequence on the twin. */
static void launch_both(culvert_graph *graph, const job *jobs, unsigned n, unsigned to, bool bound,
                        culvert_future **futures)
{
    job varied[OPS];
    culvert_bind binds[3 * OPS], *end = binds;
    for (unsigned i = 0; i < n; i++) {
        varied[i] = jobs[i];
        if (jobs[i].kind < NOTHING && pick(2) && (bound || pick(3) == 0))
            vary(&varied[i]);
        end = bind_job(end, i, &jobs[i], &varied[i], &worlds[to], to != 0);
    }
    shuffle(binds, (size_t)(end - binds));
    futures[0] = culvert_graph_launch(streams[to], graph, binds, (size_t)(end - binds));
    memset(binds, 0x5a, sizeof binds); /* they were copied */
    culvert_seq *seq = culvert_seq_begin(streams[to]);
    for (unsigned i = 0; i < n; i++)
        build(seq, &varied[i], &twins[to], NULL);
    futures[1] = culvert_seq_submit(seq);
}

/* several: on several streams at once, each with memory of its own, so that all of it is bound. */
static void random_round(unsigned round, bool several)
{
    job jobs[OPS];
    culvert_future *futures[2 * LAUNCHES];
    unsigned n = pick(OPS + 1), launches = 1 + pick(LAUNCHES);
    ncalls = 0;
    for (unsigned i = 0; i < WORLDS; i++) {
        fill_world(&worlds[i], round + i);
        fill_world(&twins[i], round + i);
    }
    for (unsigned i = 0; i < n; i++)
        jobs[i] = random_job(several);
    culvert_graph *graph = compile_jobs(jobs, n, &worlds[0]);
    for (unsigned i = 0; i < launches; i++) {
        launch_both(graph, jobs, n, several ? pick(WORLDS) : 0, several, &futures[2 * i]);
        if (pick(5) == 0)
            ev_run(f.ev, EVRUN_NOWAIT);
    }
    culvert_graph_unref(graph);
    for (unsigned i = 0; i < 2 * launches; i++)
        gpu_fixture_ok(futures[i]);
    for (unsigned i = 0; i < WORLDS; i++)
        compare(&worlds[i], &twins[i], round);
}

START_TEST(compiled_sequences_do_what_plain_ones_do)
{
    for (unsigned i = 0; i < ROUNDS / 2; i++) {
        seed = 104729u * (unsigned)_i + i;
        random_round(i, _i % 2 == 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_random");
    TCase *tc = tcase_create("random");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, compiled_sequences_do_what_plain_ones_do, 0, 4);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
