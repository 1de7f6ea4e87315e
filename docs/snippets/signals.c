/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An orderly end on SIGTERM and SIGINT: no new work, what has begun ends, then everything goes.
 *
 * Prints:
 *     stopped by SIGTERM: CULVERT_ECANCELED
 *     in flight: 0
 */
#define _POSIX_C_SOURCE 200809L
#include "snippet.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef struct job {
    culvert_stream *stream;
    culvert_buffer *buffer;
    unsigned rounds;
} job;

/* Work without end, until it is cancelled. */
static culvert_future *again(culvert_future *done, void *arg)
{
    job *j = arg;
    (void)done;
    if (++j->rounds == 100)
        kill(getpid(), SIGTERM); /* stands for the operator */
    return culvert_then(culvert_fill(j->stream, j->buffer, 0, 64, 0, 4), again, j, NULL);
}

/* region: stop */
static void stop(struct ev_loop *ev, ev_signal *w, int events)
{
    (void)ev;
    (void)events;
    culvert_cancel(w->data);    /* the job: nothing more of it begins */
    signal(w->signum, SIG_DFL); /* a second one ends the program at once */
}
/* end region */

static void ended(culvert_future *done, void *arg)
{
    (void)arg;
    printf("stopped by SIGTERM: %s\n", culvert_error_name(culvert_status(done)));
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&s, NULL, NULL);
    culvert_buffer *b = snippet_must(culvert_buffer_new(s.gpu, 64, &err), &err);
    job j = {s.stream, b, 0};
    culvert_loop *loop = s.loop;
    struct ev_loop *ev = s.ev;
    culvert_future *running = culvert_then(culvert_resolved(loop, NULL, NULL), again, &j, NULL);

    /* region: watch */
    ev_signal terminate;
    ev_signal_init(&terminate, stop, SIGTERM);
    terminate.data = running;
    ev_signal_start(ev, &terminate);
    ev_unref(ev);             /* it does not keep the loop running */
    signal(SIGPIPE, SIG_IGN); /* Culvert leaves all dispositions alone: this one is the program's */

    culvert_on_settled(culvert_ref(running), ended, NULL, NULL);
    ev_run(ev, 0); /* until the job is cancelled and what had begun is over */
    /* end region */

    printf("in flight: %zu\n", culvert_stream_in_flight(s.stream));
    ev_ref(ev);
    ev_signal_stop(ev, &terminate);
    culvert_unref(running);
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
