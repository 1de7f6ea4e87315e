/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The patterns of concurrent GPU programs with Rust-CUDA, in Culvert.
 *
 * Prints:
 *     basic: x[3] = 6
 *     two streams: a[3] = 6, b[3] = 9
 *     joined: a[3] = 36
 *     pipeline of 8 chunks over 3 streams: right
 *     urgent: 12
 *     16 requests over the pool: right
 *     each took some time: yes, and all of them together: yes
 */
#include "snippet.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 16384, CHUNKS = 8, STREAMS = 3, PART = N / CHUNKS, REQUESTS = 16 };
static float x[N], y[N];

static const culvert_grid whole = {.blocks = {N / 256}, .threads = {256}};
static const culvert_grid part = {.blocks = {PART / 256}, .threads = {256}};

typedef struct work {
    snippet s;
    culvert_kernel *scale;
    culvert_stream *streams[STREAMS];
    culvert_buffer *parts[STREAMS]; /* on the device: one a stream */
    culvert_buffer *a, *b;
    culvert_buffer *pinned; /* of the host */
} work;

static void count_up(float *p)
{
    for (int i = 0; i < N; i++)
        p[i] = (float)i;
}

/* region: basic */
/* Copies and launch of one stream, in order; the call returns at once. */
static culvert_future *scaled(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *on,
                              float *data, float by)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_upload(seq, on, 0, data, N * sizeof *data);
    culvert_seq_launch(seq, scale, &whole,
                       CULVERT_ARGS(CULVERT_BUFFER(on), CULVERT_F32(by), CULVERT_U32(N)));
    culvert_seq_download(seq, data, on, 0, N * sizeof *data);
    return culvert_seq_submit(seq);
}
/* end region */

static void two_streams(work *w)
{
    count_up(x);
    count_up(y);
    /* region: several */
    culvert_future *both[] = {scaled(w->streams[0], w->scale, w->a, x, 2.0f),
                              scaled(w->streams[1], w->scale, w->b, y, 3.0f)};
    culvert_future *f = culvert_all(w->s.loop, both, 2); /* consumes both */
    /* end region */
    snippet_finish(f);
    printf("two streams: a[3] = %g, b[3] = %g\n", x[3], y[3]);
}

static culvert_future *times(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *on,
                             float by)
{
    return culvert_launch(stream, scale, &whole,
                          CULVERT_ARGS(CULVERT_BUFFER(on), CULVERT_F32(by), CULVERT_U32(N)));
}

static culvert_future *join(work *w)
{
    /* region: join */
    /* Two streams work, the third waits for both, without the host. */
    culvert_future *both[] = {times(w->streams[0], w->scale, w->a, 2.0f),
                              times(w->streams[1], w->scale, w->b, 2.0f)};
    culvert_seq *seq = culvert_seq_begin(w->streams[2]);
    culvert_seq_wait(seq, culvert_all(w->s.loop, both, 2));
    culvert_seq_copy(seq, w->b, 0, w->a, 0, sizeof x);
    culvert_seq_launch(seq, w->scale, &whole,
                       CULVERT_ARGS(CULVERT_BUFFER(w->b), CULVERT_F32(3.0f), CULVERT_U32(N)));
    culvert_seq_download(seq, x, w->b, 0, sizeof x);
    return culvert_seq_submit(seq);
    /* end region */
}

/* region: pipeline */
/* Chunk i on stream i mod STREAMS: one is copied in while another computes and a third is copied out. A
   stream's chunks share its memory, as they run one after the other. Pinned memory, so nothing is staged. */
static culvert_future *pipelined(work *w)
{
    culvert_future *chunks[CHUNKS];
    for (size_t i = 0; i < CHUNKS; i++) {
        culvert_buffer *on = w->parts[i % STREAMS];
        size_t bytes = PART * sizeof(float), offset = i * bytes;
        culvert_seq *seq = culvert_seq_begin(w->streams[i % STREAMS]);
        culvert_seq_copy(seq, on, 0, w->pinned, offset, bytes);
        culvert_seq_launch(seq, w->scale, &part,
                           CULVERT_ARGS(CULVERT_BUFFER(on), CULVERT_F32(2.0f), CULVERT_U32(PART)));
        culvert_seq_copy(seq, w->pinned, offset, on, 0, bytes);
        chunks[i] = culvert_seq_submit(seq);
    }
    return culvert_all(w->s.loop, chunks, CHUNKS);
}
/* end region */

static void pipeline(work *w)
{
    float *data = culvert_buffer_data(w->pinned);
    int right = 1;
    count_up(data);
    snippet_finish(pipelined(w));
    for (int i = 0; i < N; i++)
        right = right && data[i] == 2.0f * (float)i;
    printf("pipeline of %d chunks over %d streams: %s\n", CHUNKS, STREAMS,
           right ? "right" : "wrong");
}

static void urgent(work *w)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu *gpu = w->s.gpu;
    count_up(x);
    count_up(y);
    /* region: priorities */
    culvert_stream *slow = culvert_stream_pick(gpu, CULVERT_PRIORITY_LOW, &err);
    culvert_stream *fast = culvert_stream_pick(gpu, CULVERT_PRIORITY_HIGH, &err);
    /* end region */
    (void)snippet_must(slow, &err);
    (void)snippet_must(fast, &err);
    culvert_future *background = scaled(slow, w->scale, w->a, x, 2.0f);
    snippet_finish(scaled(fast, w->scale, w->b, y, 4.0f));
    printf("urgent: %g\n", y[3]);
    snippet_finish(background);
    culvert_stream_unref(slow);
    culvert_stream_unref(fast);
}

/* region: how_many */
/* One request, on whichever stream of the pool has least to do. */
static culvert_future *request(culvert_gpu *gpu, culvert_kernel *scale, culvert_buffer *on,
                               size_t offset, size_t n)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_grid small = {.blocks = {(unsigned)(n + 255) / 256}, .threads = {256}};
    culvert_stream *stream = culvert_stream_pick(gpu, CULVERT_PRIORITY_NORMAL, &err);
    if (stream == NULL)
        return culvert_rejected(culvert_gpu_loop(gpu), &err);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_stream_unref(stream); /* the sequence holds it */
    culvert_seq_launch(seq, scale, &small,
                       CULVERT_ARGS(CULVERT_BUFFER_AT(on, offset), CULVERT_F32(2.0f),
                                    CULVERT_U32((unsigned)n)));
    return culvert_seq_submit(seq);
}
/* end region */

static void requests(work *w)
{
    culvert_future *all[REQUESTS];
    int right = 1;
    count_up(x);
    snippet_finish(culvert_upload(w->s.stream, w->a, 0, x, sizeof x));
    for (size_t i = 0; i < REQUESTS; i++)
        all[i] = request(w->s.gpu, w->scale, w->a, i * sizeof x / REQUESTS, N / REQUESTS);
    snippet_finish(culvert_all(w->s.loop, all, REQUESTS));
    snippet_finish(culvert_download(w->s.stream, x, w->a, 0, sizeof x));
    for (int i = 0; i < N; i++)
        right = right && x[i] == 2.0f * (float)i;
    printf("%d requests over the pool: %s\n", REQUESTS, right ? "right" : "wrong");
}

static culvert_future *timed(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *on)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_seq_launch(seq, scale, &whole,
                       CULVERT_ARGS(CULVERT_BUFFER(on), CULVERT_F32(1.0f), CULVERT_U32(N)));
    return culvert_seq_submit(seq);
}

static void timing(work *w)
{
    /* region: timing */
    culvert_future *one = timed(w->streams[0], w->scale, w->a); /* has culvert_seq_timed(seq) */
    culvert_future *two = timed(w->streams[1], w->scale, w->b);
    int first = culvert_await(one, 60), second = culvert_await(two, 60);
    double each[] = {culvert_gpu_seconds(one), culvert_gpu_seconds(two)};
    double to_two = culvert_gpu_elapsed(one, two), to_one = culvert_gpu_elapsed(two, one);
    /* Whichever began first and whichever ended last: */
    double span = to_two > to_one ? to_two : to_one;
    span = span > each[0] ? span : each[0];
    span = span > each[1] ? span : each[1];
    /* end region */
    snippet_check(one, first);
    snippet_check(two, second);
    printf("each took some time: %s, and all of them together: %s\n",
           each[0] > 0 && each[1] > 0 ? "yes" : "no",
           span >= each[0] && span >= each[1] ? "yes" : "no");
    culvert_unref(one);
    culvert_unref(two);
}

static void open_all(work *w)
{
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&w->s, NULL, NULL);
    w->scale = snippet_kernel(&w->s, "scale");
    w->a = snippet_must(culvert_buffer_new(w->s.gpu, sizeof x, &err), &err);
    w->b = snippet_must(culvert_buffer_new(w->s.gpu, sizeof x, &err), &err);
    w->pinned = snippet_must(culvert_host_buffer_new(w->s.gpu, sizeof x, &err), &err);
    for (int i = 0; i < STREAMS; i++) {
        w->streams[i] = snippet_must(culvert_stream_new(w->s.gpu, NULL, &err), &err);
        w->parts[i] = snippet_must(culvert_buffer_new(w->s.gpu, PART * sizeof x[0], &err), &err);
    }
}

static void close_all(work *w)
{
    for (int i = 0; i < STREAMS; i++) {
        culvert_buffer_unref(w->parts[i]);
        culvert_stream_unref(w->streams[i]);
    }
    culvert_buffer_unref(w->pinned);
    culvert_buffer_unref(w->b);
    culvert_buffer_unref(w->a);
    snippet_close(&w->s);
}

int main(void)
{
    work w;
    open_all(&w);
    count_up(x);
    snippet_finish(scaled(w.streams[0], w.scale, w.a, x, 2.0f));
    printf("basic: x[3] = %g\n", x[3]);
    two_streams(&w);
    snippet_finish(join(&w));
    printf("joined: a[3] = %g\n", x[3]);
    pipeline(&w);
    urgent(&w);
    requests(&w);
    timing(&w);
    close_all(&w);
    return 0;
}
