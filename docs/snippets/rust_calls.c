/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of cust's Stream and Event, in Culvert.
 *
 * Prints:
 *     three priorities, the high one not behind the low one: yes
 *     the default stream: x[3] = 0
 *     step: the work is over
 *     after the step: x[3] = 6
 *     the other stream went on from there: x[3] = 60
 *     all of the stream is over
 *     query: ready
 *     synchronized: x[3] = 120
 *     measured: yes, as long as its parts or longer: yes
 */
#include "snippet.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 16384 };
static float x[N];

static const culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};

/* One launch: x *= by. */
static culvert_future *times(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *dx,
                             float by)
{
    return culvert_launch(stream, scale, &grid,
                          CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(by), CULVERT_U32(N)));
}

static void show(const char *what, culvert_stream *stream, culvert_buffer *dx)
{
    snippet_finish(culvert_download(stream, x, dx, 0, sizeof x));
    printf("%s: x[3] = %g\n", what, x[3]);
}

static culvert_stream *new_stream(culvert_gpu *gpu)
{
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: stream_new */
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT; /* non-blocking: always */
    options.priority = CULVERT_PRIORITY_HIGH;
    culvert_stream *urgent = culvert_stream_new(gpu, &options, &err); /* NULL: err says why */
    /* end region */
    return snippet_must(urgent, &err);
}

static void priorities(culvert_gpu *gpu)
{
    /* region: priority_range */
    culvert_gpu_description gpu_is = {.struct_size = sizeof gpu_is};
    if (culvert_gpu_info(gpu, &gpu_is) == CULVERT_OK)
        printf("three priorities, the high one not behind the low one: %s\n",
               gpu_is.priority_greatest <= gpu_is.priority_least ? "yes" : "no");
    /* end region */
}

static void default_stream(culvert_gpu *gpu, culvert_buffer *dx)
{
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: default_stream */
    /* NULL: the legacy default stream, where other code of this process works. */
    culvert_stream *legacy = culvert_stream_adopt(gpu, NULL, &err);
    /* end region */
    (void)snippet_must(legacy, &err);
    snippet_finish(culvert_fill(legacy, dx, 0, sizeof x, 0, 4));
    show("the default stream", legacy, dx);
    culvert_stream_unref(legacy);
}

/* region: callback */
static culvert_future *after(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    printf("step: the work is over\n"); /* on the loop's thread: every call is allowed here */
    return NULL;
}

static culvert_future *with_callback(culvert_stream *stream, culvert_kernel *scale,
                                     culvert_buffer *dx)
{
    culvert_future *f = times(stream, scale, dx, 2.0f);
    f = culvert_then(f, after, NULL, NULL); /* the stream does not wait for it ... */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_wait(seq, f); /* ... unless it is told to */
    culvert_seq_download(seq, x, dx, 0, sizeof x);
    return culvert_seq_submit(seq);
}
/* end region */

static culvert_future *wait_event(culvert_stream *stream_0, culvert_stream *stream_1,
                                  culvert_kernel *scale, culvert_buffer *dx)
{
    /* region: wait_event */
    culvert_future *event = times(stream_0, scale, dx, 5.0f); /* submitting it is the record */
    culvert_seq *seq = culvert_seq_begin(stream_1);
    culvert_seq_wait(seq, event); /* consumed; culvert_ref(event) where it is needed again */
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(2.0f), CULVERT_U32(N)));
    culvert_future *f = culvert_seq_submit(seq);
    /* end region */
    return f;
}

static void synchronize(culvert_stream *stream)
{
    /* region: stream_synchronize */
    culvert_future *all = culvert_stream_done(stream);
    if (culvert_await(all, 60) == CULVERT_OK) /* a server attaches a step instead */
        printf("all of the stream is over\n");
    culvert_unref(all);
    /* end region */
}

static void event(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *dx)
{
    /* region: event */
    culvert_future *event = times(stream, scale, dx, 2.0f); /* Event::new and record */
    int status;
    while ((status = culvert_await(event, 0)) == CULVERT_PENDING)
        ; /* query: not ready. It is one turn of the loop; in a callback: culvert_status(event) */
    printf("query: %s\n", status == CULVERT_OK ? "ready" : culvert_error_name(status));
    status = culvert_await(event, 60); /* synchronize; it returns at once, as the event is ready */
    /* end region */
    snippet_check(event, status);
    culvert_unref(event);
    show("synchronized", stream, dx);
}

static culvert_future *timed_launch(culvert_stream *stream, culvert_kernel *scale,
                                    culvert_buffer *dx)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(1.0f), CULVERT_U32(N)));
    return culvert_seq_submit(seq);
}

static void elapsed(culvert_stream *stream, culvert_kernel *scale, culvert_buffer *dx)
{
    /* region: elapsed */
    culvert_future *first = timed_launch(stream, scale, dx); /* has culvert_seq_timed(seq) */
    culvert_future *last = timed_launch(stream, scale, dx);
    int a = culvert_await(first, 60), b = culvert_await(last, 60);
    double both = culvert_gpu_elapsed(first, last); /* seconds; NaN: one failed or is not timed */
    double parts = culvert_gpu_seconds(first) + culvert_gpu_seconds(last);
    /* end region */
    snippet_check(first, a);
    snippet_check(last, b);
    /* The driver gives single precision: leave room for its rounding. */
    printf("measured: %s, as long as its parts or longer: %s\n", both > 0 ? "yes" : "no",
           both >= parts - 2e-6 ? "yes" : "no");
    culvert_unref(first);
    culvert_unref(last);
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&s, NULL, NULL);
    culvert_kernel *scale = snippet_kernel(&s, "scale");
    culvert_stream *urgent = new_stream(s.gpu);
    culvert_buffer *dx = snippet_must(culvert_buffer_new(s.gpu, sizeof x, &err), &err);

    priorities(s.gpu);
    default_stream(s.gpu, dx);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    snippet_finish(culvert_upload(s.stream, dx, 0, x, sizeof x));
    snippet_finish(with_callback(s.stream, scale, dx));
    printf("after the step: x[3] = %g\n", x[3]);
    snippet_finish(wait_event(s.stream, urgent, scale, dx));
    show("the other stream went on from there", urgent, dx);
    synchronize(urgent);
    event(s.stream, scale, dx);
    elapsed(s.stream, scale, dx);

    culvert_buffer_unref(dx);
    culvert_stream_unref(urgent);
    snippet_close(&s);
    return 0;
}
