/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading, upload, kernel, download and writing overlap: each piece has a pinned host buffer and a
 * device buffer of its own, and goes round:
 *
 *     free -> being read -> on the GPU -> ready -> being written -> free
 *
 * At most one piece is being read and one being written, both in order; up to `depth` are on their
 * way. Reading goes on as soon as a piece is free, writing as soon as the next piece in order is
 * ready. Nothing here waits: each future's end (step) says what can go on.
 */
#include "pipeline.h"

#include "../../kernels/chacha20.h"
#include "chacha20.culvert.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_STREAMS = 4 };

typedef enum state { FREE, READING, ON_GPU, READY, WRITING } state;

typedef struct piece {
    pipeline *pipe;
    state state;
    culvert_buffer *host, *device;
    culvert_stream *stream; /* borrowed */
    size_t bytes;
} piece;

struct pipeline {
    culvert_loop *loop;
    culvert_gpu *gpu;
    stream_io *in, *out;
    size_t chunk;
    unsigned depth;
    struct chacha20_key key;
    uint64_t first;         /* counter of the first block */
    uint64_t counter;       /* of the next piece to be read; 2^32: the end of the keystream */
    culvert_future *module; /* holds it */
    culvert_kernel *kernel; /* borrowed */
    culvert_stream *streams[MAX_STREAMS];
    unsigned nstreams;
    uint64_t reads, writes; /* pieces: piece n is pieces[n % depth] */
    int ended;              /* the input */
    int over;               /* settled */
    culvert_promise *promise;
    uint64_t written;
    void (*progress)(uint64_t, void *);
    void *progress_arg;
    piece pieces[];
};

static void go_on(pipeline *);

/* ---- the end ---- */

static void finish(pipeline *p, const culvert_error *err)
{
    if (p->over)
        return;
    p->over = 1;
    culvert_promise *promise = p->promise;
    p->promise = NULL;
    if (err == NULL)
        culvert_resolve(promise, NULL, NULL);
    else
        culvert_reject(promise, err);
}

static void cancelled(void *arg)
{
    pipeline *p = arg;
    p->over = 1;
    culvert_promise_drop(p->promise);
    p->promise = NULL;
}

/* Whether to go on after a step: not after an error, and not when all is over. */
static int went_well(pipeline *p, culvert_future *done)
{
    const culvert_error *err = culvert_get_error(done);
    if (err != NULL)
        finish(p, err);
    return !p->over;
}

/* ---- writing ---- */

static void written(culvert_future *done, void *arg)
{
    piece *one = arg;
    pipeline *p = one->pipe;
    if (!went_well(p, done))
        return;
    one->state = FREE;
    p->writes++;
    p->written += one->bytes;
    if (p->progress != NULL)
        p->progress(p->written, p->progress_arg);
    go_on(p);
}

static void write_piece(pipeline *p, piece *one)
{
    one->state = WRITING;
    culvert_on_settled(stream_io_write(p->out, culvert_buffer_data(one->host), one->bytes),
                       written, one, NULL);
}

/* ---- the GPU ---- */

static void encrypted(culvert_future *done, void *arg)
{
    piece *one = arg;
    if (!went_well(one->pipe, done))
        return;
    one->state = READY;
    go_on(one->pipe);
}

static void encrypt(pipeline *p, piece *one)
{
    uint32_t counter = (uint32_t)p->counter;
    size_t n = one->bytes;
    culvert_grid grid = {.blocks = {chacha20_blocks(n)}, .threads = {CHACHA20_THREADS}};
    culvert_seq *seq = culvert_seq_begin(one->stream);
    culvert_seq_copy(seq, one->device, 0, one->host, 0, n);
    culvert_seq_launch(seq, p->kernel, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(one->device), CULVERT_BUFFER(one->device),
                                    CULVERT_U64(n), CULVERT_VALUE(p->key), CULVERT_U32(counter)));
    culvert_seq_copy(seq, one->host, 0, one->device, 0, n);
    one->state = ON_GPU;
    p->counter += (n + CHACHA20_BLOCK_BYTES - 1) / CHACHA20_BLOCK_BYTES;
    culvert_on_settled(culvert_seq_submit(seq), encrypted, one, NULL);
}

/* ---- reading ---- */

static void too_long(pipeline *p)
{
    culvert_error err;
    culvert_error_set(&err, CULVERT_EOVERFLOW, 0,
                      "%s is too long: the 32-bit block counter would start again, and with it the "
                      "keystream; from this --counter on there is room for %llu bytes",
                      p->in->name,
                      (unsigned long long)(((1ull << 32) - p->first) * CHACHA20_BLOCK_BYTES));
    finish(p, &err);
}

static void was_read(culvert_future *done, void *arg)
{
    piece *one = arg;
    pipeline *p = one->pipe;
    if (!went_well(p, done))
        return;
    uint64_t blocks = (one->bytes + CHACHA20_BLOCK_BYTES - 1) / CHACHA20_BLOCK_BYTES;
    if (p->counter + blocks > 1ull << 32) {
        too_long(p);
        return;
    }
    p->reads++;
    p->ended = one->bytes < p->chunk;
    if (one->bytes > 0) {
        encrypt(p, one);
    } else {
        one->state = FREE;
        p->reads--;
    }
    go_on(p);
}

static void read_piece(pipeline *p, piece *one)
{
    one->state = READING;
    culvert_on_settled(stream_io_read(p->in, culvert_buffer_data(one->host), p->chunk,
                                      &one->bytes),
                       was_read, one, NULL);
}

/* ---- what can go on now ---- */

static void go_on(pipeline *p)
{
    piece *to_read = &p->pieces[p->reads % p->depth];
    piece *to_write = &p->pieces[p->writes % p->depth];
    if (p->over)
        return;
    if (p->ended && p->writes == p->reads) {
        finish(p, NULL);
        return;
    }
    if (p->writes < p->reads && to_write->state == READY)
        write_piece(p, to_write);
    if (!p->ended && to_read->state == FREE)
        read_piece(p, to_read);
}

culvert_future *pipeline_run(pipeline *p)
{
    culvert_future *future;
    p->promise = culvert_promise_new(p->loop, &future);
    if (p->promise == NULL)
        return future;
    culvert_promise_on_cancel(p->promise, cancelled, p, NULL);
    go_on(p);
    return future;
}

uint64_t pipeline_bytes(const pipeline *p)
{
    return p->written;
}

/* ---- life ---- */

static int load_kernel(pipeline *p, culvert_error *err)
{
    p->module = culvert_module_load(p->gpu, &culvert_image_chacha20);
    int r = culvert_await(p->module, 120);
    if (r == CULVERT_OK) {
        p->kernel = culvert_module_kernel(culvert_value(p->module), "chacha20", err);
        return p->kernel != NULL ? 0 : -1;
    }
    if (r == CULVERT_PENDING)
        culvert_error_set(err, CULVERT_ETIMEDOUT, 0, "the kernel was not loaded within 120 s");
    else
        *err = *culvert_get_error(p->module);
    return -1;
}

static int furnish(pipeline *p, culvert_error *err)
{
    p->nstreams = p->depth < MAX_STREAMS ? p->depth : MAX_STREAMS;
    for (unsigned i = 0; i < p->nstreams; i++)
        if ((p->streams[i] = culvert_stream_new(p->gpu, NULL, err)) == NULL)
            return -1;
    for (unsigned i = 0; i < p->depth; i++) {
        piece *one = &p->pieces[i];
        one->pipe = p;
        one->stream = p->streams[i % p->nstreams];
        one->host = culvert_host_buffer_new(p->gpu, p->chunk, err);
        one->device = one->host != NULL ? culvert_buffer_new(p->gpu, p->chunk, err) : NULL;
        if (one->device == NULL)
            return -1;
    }
    return load_kernel(p, err);
}

/* A piece need not be larger than the whole input, rounded up to a block. */
static size_t fit_chunk(const options *o, const stream_io *in)
{
    if (in->size == 0 || in->size >= o->chunk)
        return o->chunk;
    return (size_t)(in->size / CHACHA20_BLOCK_BYTES + 1) * CHACHA20_BLOCK_BYTES;
}

pipeline *pipeline_new(culvert_gpu *gpu, const options *o, stream_io *in, stream_io *out,
                       void (*progress)(uint64_t bytes, void *arg), void *arg, culvert_error *err)
{
    pipeline *p = calloc(1, sizeof *p + o->depth * sizeof p->pieces[0]);
    if (p == NULL) {
        culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for %u pieces", o->depth);
        return NULL;
    }
    p->loop = culvert_gpu_loop(gpu);
    p->gpu = gpu;
    p->in = in;
    p->out = out;
    p->chunk = fit_chunk(o, in);
    p->depth = o->depth;
    p->key = chacha20_make_key(o->key, o->nonce);
    p->first = p->counter = o->counter;
    p->progress = progress;
    p->progress_arg = arg;
    if (furnish(p, err) == 0)
        return p;
    pipeline_free(p);
    return NULL;
}

void pipeline_free(pipeline *p)
{
    if (p == NULL)
        return;
    culvert_promise_drop(p->promise);
    for (unsigned i = 0; i < p->depth; i++) {
        culvert_buffer_unref(p->pieces[i].host);
        culvert_buffer_unref(p->pieces[i].device);
    }
    for (unsigned i = 0; i < p->nstreams; i++)
        culvert_stream_unref(p->streams[i]);
    culvert_unref(p->module);
    free(p);
}
