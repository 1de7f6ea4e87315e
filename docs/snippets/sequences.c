/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sequences: one future for the whole, waits between streams, the first error spoils all of it.
 *
 * Prints:
 *     first stream: x[3] = 6
 *     second stream: x[3] = 60
 *     refused: CULVERT_EINVAL: download of 65536 bytes at offset 4 runs past the end of a 65536-byte buffer
 *     and nothing of it ran: x[3] = 60
 *     one at a time: x[3] = 7
 *     it took some time: yes
 *     row 1 of the two columns: 32 33
 */
#include "snippet.h"

#include <stdio.h>

enum { N = 16384 };
static float x[N];

static const culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};

/* region: sequence */
static culvert_future *twice(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *dx)
{
    culvert_seq *seq = culvert_seq_begin(stream); /* never NULL */
    culvert_seq_upload(seq, dx, 0, x, sizeof x);
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(2.0f), CULVERT_U32(N)));
    culvert_seq_download(seq, x, dx, 0, sizeof x);
    return culvert_seq_submit(seq); /* takes its place in the stream now */
}
/* end region */

/* region: wait */
/* On another stream, after `before` has resolved; if that rejects, so does this. */
static culvert_future *tenfold(culvert_stream *other, culvert_kernel *scale, culvert_buffer *dx,
                               culvert_future *before)
{
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_wait(seq, before); /* consumed */
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(10.0f), CULVERT_U32(N)));
    culvert_seq_download(seq, x, dx, 0, sizeof x);
    return culvert_seq_submit(seq);
}
/* end region */

static void show(const char *what, culvert_future *f)
{
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("%s: x[3] = %g\n", what, x[3]);
    else
        snippet_print(what, culvert_get_error(f));
    culvert_unref(f);
}

static void refused(snippet *s, culvert_buffer *dx)
{
    culvert_stream *stream = s->stream;
    /* region: error */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_fill(seq, dx, 0, sizeof x, 0, 4);
    culvert_seq_download(seq, x, dx, 4, sizeof x); /* past the end: the whole sequence fails */
    culvert_future *f = culvert_seq_submit(seq);   /* nothing was submitted; f is rejected */
    /* end region */
    show("refused", f);
    show("and nothing of it ran", culvert_download(stream, x, dx, 0, sizeof x));
}

static void one_at_a_time(snippet *s, culvert_buffer *dx)
{
    culvert_stream *stream = s->stream;
    /* region: single */
    float seven = 7.0f;
    culvert_future *up = culvert_upload(stream, dx, 3 * sizeof seven, &seven, sizeof seven);
    culvert_future *down = culvert_download(stream, x, dx, 0, sizeof x); /* behind it, in order */
    /* end region */
    if (culvert_await(up, 60) != CULVERT_OK)
        snippet_print("upload", culvert_get_error(up));
    culvert_unref(up);
    show("one at a time", down);
}

static void timed(snippet *s, culvert_buffer *dx)
{
    culvert_stream *stream = s->stream;
    culvert_kernel *scale = snippet_kernel(s, "scale");
    /* region: timed */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(1.0f), CULVERT_U32(N)));
    culvert_future *f = culvert_seq_submit(seq);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("it took some time: %s\n", culvert_gpu_seconds(f) > 0 ? "yes" : "no");
    culvert_unref(f);
    /* end region */
}

static void columns(snippet *s, culvert_buffer *dx)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = s->stream;
    culvert_buffer *narrow =
        snippet_must(culvert_host_buffer_new(s->gpu, (size_t)2 * 32 * sizeof x[0], &err), &err);
    const float *first = culvert_buffer_data(narrow);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    culvert_detach(culvert_upload(stream, dx, 0, x, sizeof x));
    /* region: copy2d */
    /* The two left columns of a 32 x 32 table become a table of their own. */
    culvert_copy2d columns = {.dst = narrow,
                              .dst_pitch = 2 * sizeof x[0],
                              .src = dx,
                              .src_pitch = 32 * sizeof x[0],
                              .width = 2 * sizeof x[0],
                              .height = 32};
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_copy2d(seq, &columns);
    culvert_future *f = culvert_seq_submit(seq);
    /* end region */
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("row 1 of the two columns: %g %g\n", first[2], first[3]);
    culvert_unref(f);
    culvert_buffer_unref(narrow);
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    snippet_open(&s, NULL, NULL);
    culvert_kernel *scale = snippet_kernel(&s, "scale");
    culvert_stream *other = snippet_must(culvert_stream_new(s.gpu, NULL, &err), &err);
    culvert_buffer *dx = snippet_must(culvert_buffer_new(s.gpu, sizeof x, &err), &err);

    culvert_future *first = twice(s.stream, scale, dx);
    culvert_future *second = tenfold(other, scale, dx, culvert_ref(first));
    show("first stream", first);
    show("second stream", second);
    refused(&s, dx);
    one_at_a_time(&s, dx);
    timed(&s, dx);
    columns(&s, dx);

    culvert_buffer_unref(dx);
    culvert_stream_unref(other);
    snippet_close(&s);
    return 0;
}
