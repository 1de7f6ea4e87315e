/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time-outs, cancelling, interest. The device is held, as by a kernel that does not end, so that it is
 * sure who is first.
 *
 * Prints:
 *     the answer is late: CULVERT_ETIMEDOUT
 *     and the work goes on: 1 operation
 *     cancelled before it began: CULVERT_ECANCELED
 *     cancelled after it began: CULVERT_PENDING
 *     cleaned up
 *     its own future, at the end: CULVERT_OK
 *     one of two waiters has gone: CULVERT_PENDING
 *     both have: cancelled
 */
#include "snippet.h"

#include <culvert/sim.h>
#include <stdio.h>

static culvert_future *fill(snippet *s, culvert_buffer *b)
{
    return culvert_fill(s->stream, b, 0, culvert_buffer_size(b), 0, 4);
}

static void late(snippet *s, culvert_buffer *b)
{
    culvert_future *work = fill(s, b);
    /* region: timeout */
    /* Settles with the work, or after 20 ms as CULVERT_ETIMEDOUT; the work then goes on, unwatched. */
    culvert_future *answer = culvert_timeout(work, 0.02);
    /* end region */
    printf("the answer is late: %s\n", culvert_error_name(culvert_await(answer, 60)));
    culvert_unref(answer);
    printf("and the work goes on: %zu operation\n", culvert_stream_in_flight(s->stream));
}

static culvert_future *clean_up(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    printf("cleaned up\n");
    return NULL;
}

static void cancel(snippet *s, culvert_buffer *b)
{
    culvert_loop *loop = s->loop;
    /* region: cancel */
    culvert_future *gate;
    culvert_promise *opens = culvert_promise_new(loop, &gate);
    culvert_seq *seq = culvert_seq_begin(s->stream);
    culvert_seq_wait(seq, gate); /* held in the library: it has not begun */
    culvert_seq_fill(seq, b, 0, 4, 1, 4);
    culvert_future *held = culvert_seq_submit(seq);
    culvert_cancel(held);
    /* end region */
    printf("cancelled before it began: %s\n", culvert_error_name(culvert_status(held)));
    culvert_unref(held);
    culvert_promise_drop(opens);

    /* region: started */
    culvert_future *begun = fill(s, b); /* in the driver now: it cannot be taken back */
    culvert_future *end = culvert_finally(culvert_ref(begun), clean_up, NULL, NULL);
    culvert_cancel(end);   /* settles at once; clean_up runs when `begun` has settled */
    culvert_cancel(begun); /* settles with its real outcome, when it is over */
    /* end region */
    printf("cancelled after it began: %s\n", culvert_error_name(culvert_status(begun)));
    culvert_unref(end);
    culvert_sim_release(NULL);
    culvert_await(begun, 60);
    printf("its own future, at the end: %s\n", culvert_error_name(culvert_status(begun)));
    culvert_unref(begun);
}

static void on_cancel(void *arg)
{
    culvert_promise **promise = arg;
    printf("both have: cancelled\n");
    culvert_promise_drop(*promise);
}

static void interest(snippet *s)
{
    /* region: interest */
    culvert_future *first;
    culvert_promise *promise = culvert_promise_new(s->loop, &first);
    culvert_promise_on_cancel(promise, on_cancel, &promise, NULL);
    culvert_future *second = culvert_ref(first);
    culvert_unref(first); /* somebody is interested still */
    /* end region */
    printf("one of two waiters has gone: %s\n", culvert_error_name(culvert_status(second)));
    culvert_unref(second); /* nobody is: it is cancelled */
    ev_run(s->ev, 0);
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.driver = "sim";
    snippet_open(&s, &options, NULL);
    culvert_buffer *b = snippet_must(culvert_buffer_new(s.gpu, 4096, &err), &err);
    culvert_sim_hold(culvert_stream_native(s.stream));
    late(&s, b);
    cancel(&s, b);
    interest(&s);
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
