/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that ends in an orderly way: on SIGTERM it takes no new request, answers those that it has, and
 * ends.
 *
 * Prints:
 *     drained: CULVERT_OK
 *     a request that was there: CULVERT_OK
 *     one that came later: CULVERT_ESHUTDOWN
 */
#define _POSIX_C_SOURCE 200809L
#include "snippet.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef struct server {
    culvert_loop *loop;
    culvert_stream *stream;
    culvert_buffer *buffer;
    ev_io arrivals;
    int outcome;
} server;

/* On a worker. */
static void *decode(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    kill(getpid(), SIGTERM); /* stands for the operator */
    return NULL;
}

static culvert_future *compute(culvert_future *decoded, void *arg)
{
    server *s = arg;
    (void)decoded;
    return culvert_fill(s->stream, s->buffer, 0, 64, 0, 4); /* continues a request: is taken */
}

static void answer(culvert_future *done, void *arg)
{
    server *s = arg;
    s->outcome = culvert_status(done);
}

static void serve_one(server *s)
{
    culvert_future *f = culvert_work(s->loop, decode, NULL, NULL, NULL);
    f = culvert_then(f, compute, s, NULL);
    culvert_on_settled(f, answer, s, NULL);
}

static void arrived(struct ev_loop *ev, ev_io *w, int events)
{
    char byte;
    (void)ev;
    (void)events;
    if (read(w->fd, &byte, 1) == 1)
        serve_one(w->data);
}

/* region: drain */
static void drained(culvert_future *f, void *arg)
{
    /* CULVERT_ETIMEDOUT: something goes on still; culvert_loop_free waits for it up to close_seconds */
    printf("drained: %s\n", culvert_error_name(culvert_status(f)));
    ev_break(arg, EVBREAK_ALL); /* main() goes on to culvert_loop_free */
}

static void terminate(struct ev_loop *ev, ev_signal *w, int events)
{
    server *s = w->data;
    (void)events;
    ev_io_stop(ev, &s->arrivals); /* who comes now may go to another server */
    culvert_on_settled(culvert_drain(s->loop, 30), drained, ev, NULL);
    signal(w->signum, SIG_DFL); /* a second one ends the program at once */
}
/* end region */

int main(void)
{
    snippet s;
    int ends[2];
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&s, NULL, NULL);
    culvert_buffer *b = snippet_must(culvert_buffer_new(s.gpu, 64, &err), &err);
    server all = {.loop = s.loop, .stream = s.stream, .buffer = b, .outcome = CULVERT_PENDING};
    if (pipe(ends) != 0 || write(ends[1], "1", 1) != 1) {
        perror("a pipe");
        return 1;
    }
    ev_io_init(&all.arrivals, arrived, ends[0], EV_READ);
    all.arrivals.data = &all;
    ev_io_start(s.ev, &all.arrivals);
    ev_signal watcher;
    ev_signal_init(&watcher, terminate, SIGTERM);
    watcher.data = &all;
    ev_signal_start(s.ev, &watcher);

    ev_run(s.ev, 0);
    printf("a request that was there: %s\n", culvert_error_name(all.outcome));
    serve_one(&all);
    ev_run(s.ev, EVRUN_NOWAIT);
    printf("one that came later: %s\n", culvert_error_name(all.outcome));

    ev_signal_stop(s.ev, &watcher);
    close(ends[0]);
    close(ends[1]);
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
