/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading, encrypting and writing overlap: culvert_pipeline_run takes each chunk from the descriptor into
 * pinned memory, has it encrypted, and writes it, all in order. What is left for this file is the
 * middle stage: upload, kernel, download, as one sequence on one of a few streams.
 */
#include "pipeline.h"

#include "../../kernels/chacha20.h"
#include "chacha20.culvert.h"

#include <stdlib.h>

enum { MAX_STREAMS = 4 };

struct pipeline {
    culvert_gpu *gpu;
    stream_io *in, *out;
    size_t chunk;
    unsigned depth;
    struct chacha20_key key;
    uint64_t first;         /* counter of the first block */
    uint64_t counter;       /* of the next chunk; 2^32: the end of the keystream */
    culvert_future *module; /* holds it */
    culvert_kernel *kernel; /* borrowed */
    culvert_stream *streams[MAX_STREAMS];
    unsigned nstreams;
    uint64_t written;
    void (*progress)(uint64_t, void *);
    void *progress_arg;
    culvert_buffer *device[]; /* of chunk n: device[n % depth] */
};

/* ---- the stages ---- */

static culvert_future *read_chunk(culvert_chunk *chunk, void *arg)
{
    const pipeline *p = arg;
    return culvert_chunk_read(chunk, p->in->descriptor);
}

static culvert_future *too_long(pipeline *p)
{
    return culvert_fail(culvert_gpu_loop(p->gpu), CULVERT_EOVERFLOW, 0,
                        "%s is too long: the 32-bit block counter would start again, and with it "
                        "the keystream; from this --counter on there is room for %llu bytes",
                        p->in->name,
                        (unsigned long long)(((1ull << 32) - p->first) * CHACHA20_BLOCK_BYTES));
}

static culvert_future *encrypt(culvert_chunk *chunk, void *arg)
{
    pipeline *p = arg;
    size_t n = chunk->bytes;
    uint64_t blocks = (n + CHACHA20_BLOCK_BYTES - 1) / CHACHA20_BLOCK_BYTES;
    uint32_t counter = (uint32_t)p->counter;
    if (p->counter + blocks > 1ull << 32)
        return too_long(p);
    p->counter += blocks;
    culvert_buffer *device = p->device[chunk->index % p->depth];
    culvert_grid grid = {.blocks = {chacha20_blocks(n)}, .threads = {CHACHA20_THREADS}};
    culvert_seq *seq = culvert_seq_begin(p->streams[chunk->index % p->nstreams]);
    culvert_seq_copy(seq, device, 0, chunk->host, 0, n);
    culvert_seq_launch(seq, p->kernel, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(device), CULVERT_BUFFER(device), CULVERT_U64(n),
                                    CULVERT_VALUE(p->key), CULVERT_U32(counter)));
    culvert_seq_copy(seq, chunk->host, 0, device, 0, n);
    return culvert_seq_submit(seq);
}

static culvert_future *write_chunk(culvert_chunk *chunk, void *arg)
{
    const pipeline *p = arg;
    return culvert_chunk_write(chunk, p->out->descriptor);
}

static void progress(uint64_t bytes, void *arg)
{
    pipeline *p = arg;
    p->written = bytes;
    if (p->progress != NULL)
        p->progress(bytes, p->progress_arg);
}

culvert_future *pipeline_run(pipeline *p)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    o.depth = p->depth;
    o.chunk_bytes = p->chunk;
    o.read = read_chunk;
    o.process = encrypt;
    o.write = write_chunk;
    o.progress = progress;
    o.arg = p;
    return culvert_pipeline_run(p->gpu, &o);
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
    for (unsigned i = 0; i < p->depth; i++)
        if ((p->device[i] = culvert_buffer_new(p->gpu, p->chunk, err)) == NULL)
            return -1;
    return load_kernel(p, err);
}

/* A chunk need not be larger than the whole input, rounded up to a block. */
static size_t fit_chunk(const options *o, const stream_io *in)
{
    if (in->size == 0 || in->size >= o->chunk)
        return o->chunk;
    return (size_t)(in->size / CHACHA20_BLOCK_BYTES + 1) * CHACHA20_BLOCK_BYTES;
}

pipeline *pipeline_new(culvert_gpu *gpu, const options *o, stream_io *in, stream_io *out,
                       void (*progress_fn)(uint64_t bytes, void *arg), void *arg,
                       culvert_error *err)
{
    pipeline *p = calloc(1, sizeof *p + o->depth * sizeof p->device[0]);
    if (p == NULL) {
        culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for %u chunks", o->depth);
        return NULL;
    }
    p->gpu = gpu;
    p->in = in;
    p->out = out;
    p->chunk = fit_chunk(o, in);
    p->depth = o->depth;
    p->key = chacha20_make_key(o->key, o->nonce);
    p->first = p->counter = o->counter;
    p->progress = progress_fn;
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
    for (unsigned i = 0; i < p->depth; i++)
        culvert_buffer_unref(p->device[i]);
    for (unsigned i = 0; i < p->nstreams; i++)
        culvert_stream_unref(p->streams[i]);
    culvert_unref(p->module);
    free(p);
}
