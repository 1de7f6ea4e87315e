/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a sleeping loop is woken, and a program that sleeps by itself.
 *
 * Prints:
 *     woken by a host function: CULVERT_OK
 *     by hand: CULVERT_OK
 *     nothing pending: may sleep for ever
 */
#define _GNU_SOURCE
#include "snippet.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

static void print_status(culvert_future *done, void *arg)
{
    printf("%s: %s\n", (char *)arg, culvert_error_name(culvert_status(done)));
}

static void by_host_function(culvert_buffer *(*make)(snippet *))
{
    static char what[] = "woken by a host function";
    snippet s;
    /* region: options */
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_HOST_FUNC; /* no spinning: the processor is for others */
    options.spin_seconds = 20e-6;          /* for CULVERT_WAKE_ADAPTIVE: how long at most */
    /* end region */
    snippet_open(&s, &options, NULL);
    culvert_buffer *b = make(&s);
    culvert_on_settled(culvert_fill(s.stream, b, 0, 4096, 0, 4), print_status, what, NULL);
    ev_run(s.ev, 0);
    culvert_buffer_unref(b);
    snippet_close(&s);
}

/* region: by hand */
/* A program with a loop of its own, which it does not want to give up for ev_run. */
static void run_by_hand(struct ev_loop *ev, culvert_loop *loop, struct pollfd *fds, nfds_t n)
{
    for (;;) {
        ev_run(ev, EVRUN_NOWAIT); /* what is ready now; continuations run in here */
        double seconds = culvert_loop_arm(loop);
        if (seconds == INFINITY)
            return;
        struct timespec most = {0, (long)(1e9 * fmin(seconds, 0.01))}; /* in some hurry */
        ppoll(fds, n, &most, NULL);
        /* ... the program's own descriptors ... */
    }
}
/* end region */

static culvert_buffer *make_buffer(snippet *s)
{
    culvert_error err = CULVERT_ERROR_INIT;
    return snippet_must(culvert_buffer_new(s->gpu, 4096, &err), &err);
}

int main(void)
{
    static char what[] = "by hand";
    snippet s;
    by_host_function(make_buffer);
    snippet_open(&s, NULL, NULL);
    culvert_buffer *b = make_buffer(&s);
    culvert_on_settled(culvert_fill(s.stream, b, 0, 4096, 0, 4), print_status, what, NULL);
    run_by_hand(s.ev, s.loop, NULL, 0);
    printf("nothing pending: may sleep %s\n",
           culvert_loop_arm(s.loop) == INFINITY ? "for ever" : "a while");
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
