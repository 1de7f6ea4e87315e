/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory: ordinary memory, host buffers, what is freed when.
 *
 * Prints:
 *     a buffer may go at once: 1 2 3 4
 *     through a host buffer: 10 20 30 40
 *     scratch: 15
 *     memory that was waited for: zeroed
 *     the kept copy is freed
 */
#include "snippet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4 };

/* region: alloc */
static culvert_future *zero(culvert_future *allocated, void *arg)
{
    culvert_buffer *buffer = culvert_take(allocated);
    culvert_future *zeroed = culvert_fill(arg, buffer, 0, culvert_buffer_size(buffer), 0, 4);
    culvert_buffer_unref(buffer); /* the work holds it */
    return zeroed;
}

static culvert_future *zeros(culvert_gpu *gpu, culvert_stream *stream, size_t bytes)
{
    return culvert_then(culvert_buffer_alloc(gpu, bytes), zero, stream, NULL);
}
/* end region */

static void waited_for(snippet *s)
{
    culvert_future *f = zeros(s->gpu, s->stream, 1 << 20);
    printf("memory that was waited for: %s\n",
           culvert_await(f, 60) == CULVERT_OK ? "zeroed" : "no");
    culvert_unref(f);
}

static void ordinary(snippet *s)
{
    culvert_gpu *gpu = s->gpu;
    culvert_stream *stream = s->stream;
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: ordinary */
    float from[N] = {1, 2, 3, 4}, to[N]; /* borrowed until the sequence's future has settled */
    culvert_buffer *buffer = snippet_must(culvert_buffer_new(gpu, sizeof from, &err), &err);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_upload(seq, buffer, 0, from, sizeof from);
    culvert_seq_download(seq, to, buffer, 0, sizeof to);
    culvert_future *f = culvert_seq_submit(seq);
    culvert_buffer_unref(buffer); /* the work holds it */
    culvert_await(f, INFINITY);   /* from and to must stay where they are until here */
    /* end region */
    printf("a buffer may go at once: %g %g %g %g\n", to[0], to[1], to[2], to[3]);
    culvert_unref(f);
}

static void host_buffer(snippet *s)
{
    culvert_gpu *gpu = s->gpu;
    culvert_stream *stream = s->stream;
    culvert_kernel *scale = snippet_kernel(s, "scale");
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: host */
    culvert_buffer *host = snippet_must(culvert_host_buffer_new(gpu, N * 4, &err), &err);
    culvert_buffer *device = snippet_must(culvert_buffer_new(gpu, N * 4, &err), &err);
    float *x = culvert_buffer_data(host);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i + 1);

    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_copy(seq, device, 0, host, 0, N * 4); /* no staging: the device reads x itself */
    culvert_seq_launch(seq, scale, &(culvert_grid){.blocks = {1}, .threads = {N}},
                       CULVERT_ARGS(CULVERT_BUFFER(device), CULVERT_F32(10.0f), CULVERT_U32(N)));
    culvert_seq_copy(seq, host, 0, device, 0, N * 4);
    culvert_future *f = culvert_seq_submit(seq);
    /* end region */
    culvert_buffer_unref(device);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("through a host buffer: %g %g %g %g\n", x[0], x[1], x[2], x[3]);
    culvert_unref(f);
    culvert_buffer_unref(host);
}

static void scratch(snippet *s)
{
    culvert_stream *stream = s->stream;
    culvert_kernel *block_sums = snippet_kernel(s, "block_sums");
    float from[N] = {1, 2, 4, 8}, sum = 0;
    /* region: scratch */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_buffer *x = culvert_seq_scratch(seq, sizeof from); /* this sequence's alone; borrowed */
    culvert_buffer *sums = culvert_seq_scratch(seq, sizeof sum);
    culvert_seq_upload(seq, x, 0, from, sizeof from);
    culvert_seq_launch(seq, block_sums, &(culvert_grid){.blocks = {1}, .threads = {256}},
                       CULVERT_ARGS(CULVERT_BUFFER(sums), CULVERT_BUFFER(x), CULVERT_U32(N)));
    culvert_seq_download(seq, &sum, sums, 0, sizeof sum);
    culvert_future *f = culvert_seq_submit(seq);
    /* end region */
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("scratch: %g\n", sum);
    else
        snippet_print("scratch", culvert_get_error(f));
    culvert_unref(f);
}

static void freed(void *memory)
{
    printf("the kept copy is freed\n");
    free(memory);
}

/* region: keep */
/* Sends a copy of the text; the caller may forget both text and future. */
static culvert_future *send_text(culvert_stream *stream, culvert_buffer *to, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    culvert_loop *loop = culvert_gpu_loop(culvert_stream_gpu(stream));
    if (copy == NULL)
        return culvert_fail(loop, CULVERT_ENOMEM, 0, "no memory for a copy of %zu bytes", bytes);
    memcpy(copy, text, bytes);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_keep(seq, copy, freed); /* when the work is over, not when the future is dropped */
    culvert_seq_upload(seq, to, 0, copy, bytes);
    return culvert_seq_submit(seq);
}
/* end region */

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&s, NULL, NULL);
    ordinary(&s);
    host_buffer(&s);
    scratch(&s);
    waited_for(&s);
    culvert_buffer *to = snippet_must(culvert_buffer_new(s.gpu, 64, &err), &err);
    culvert_detach(send_text(s.stream, to, "forget me"));
    culvert_buffer_unref(to);
    ev_run(s.ev, 0);
    snippet_close(&s);
    return 0;
}
