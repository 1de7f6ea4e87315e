/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * More work than the device can take: what waits where, and what is refused. The device is held, so
 * that the figures are exact.
 *
 * Prints:
 *     in the library 10, refused some: CULVERT_EAGAIN
 *     done or refused: 300
 *     bounded by the program: 1000 done, at most 32 at once
 */
#include "snippet.h"

#include <culvert/sim.h>
#include <stdio.h>

static size_t done, refused;
static int refusal;

static void over(culvert_future *f, void *arg)
{
    (void)arg;
    if (culvert_status(f) == CULVERT_OK) {
        done++;
    } else {
        refused++;
        refusal = culvert_status(f);
    }
}

static void too_much(snippet *s, culvert_buffer *b)
{
    culvert_gpu *gpu = s->gpu;
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: max queued */
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT;
    options.max_queued = 10; /* wait in the library; one more is refused with CULVERT_EAGAIN */
    culvert_stream *stream = snippet_must(culvert_stream_new(gpu, &options, &err), &err);
    /* end region */
    culvert_sim_hold(culvert_stream_native(stream));
    for (int i = 0; i < 300; i++)
        culvert_on_settled(culvert_fill(stream, b, 0, 64, 0, 4), over, NULL, NULL);
    ev_run(s->ev, EVRUN_NOWAIT);
    printf("in the library %zu, refused %s: %s\n", culvert_stream_queued(stream),
           refused > 0 ? "some" : "none", culvert_error_name(refusal));
    culvert_sim_release(NULL);
    ev_run(s->ev, 0);
    printf("done or refused: %zu\n", done + refused);
    culvert_stream_unref(stream);
}

/* region: bounded */
typedef struct producer {
    culvert_stream *stream;
    culvert_buffer *buffer;
    size_t left, out, most;
} producer;

static void go_on(producer *p);

static void one_over(culvert_future *f, void *arg)
{
    producer *p = arg;
    (void)f;
    p->out--;
    go_on(p);
}

/* Never more than 32 at once: each that ends makes room for the next. */
static void go_on(producer *p)
{
    while (p->left > 0 && p->out < 32) {
        p->left--;
        p->out++;
        culvert_on_settled(culvert_fill(p->stream, p->buffer, 0, 64, 0, 4), one_over, p, NULL);
    }
    if (p->out > p->most)
        p->most = p->out;
}
/* end region */

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.driver = "sim";
    snippet_open(&s, &options, NULL);
    culvert_buffer *b = snippet_must(culvert_buffer_new(s.gpu, 64, &err), &err);
    too_much(&s, b);
    producer p = {s.stream, b, 1000, 0, 0};
    go_on(&p);
    ev_run(s.ev, 0);
    printf("bounded by the program: %zu done, at most %zu at once\n", 1000 - p.left, p.most);
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
