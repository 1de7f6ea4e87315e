/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert-chacha20: encrypts a stream with ChaCha20 (RFC 8439) on the GPU.
 *
 * main() opens loop, device and files, starts the pipeline, and lets libev run until its future has
 * settled or a signal came. Everything is taken down in the reverse order, on every path.
 */
#define _POSIX_C_SOURCE 200809L
#include "exit_status.h"
#include "options.h"
#include "pipeline.h"
#include "progress.h"
#include "stream_io.h"

#include <culvert/culvert.h>
#include <ev.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct program {
    options options;
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    stream_io in, out;
    pipeline *pipe;
    culvert_future *job;
    progress progress;
    ev_signal interrupt, terminate;
    int signal; /* that stopped it */
    culvert_error err;
} program;

static void stop(struct ev_loop *ev, ev_signal *w, int events)
{
    program *p = w->data;
    (void)ev;
    (void)events;
    p->signal = w->signum;
    culvert_cancel(p->job);
    signal(w->signum, SIG_DFL); /* a second one ends it at once */
}

/* Signals stop it in order; a reader that goes away is an error of write(), not a death. */
static void handle_signals(program *p)
{
    ev_signal_init(&p->interrupt, stop, SIGINT);
    ev_signal_init(&p->terminate, stop, SIGTERM);
    p->interrupt.data = p->terminate.data = p;
    ev_signal_start(p->ev, &p->interrupt);
    ev_signal_start(p->ev, &p->terminate);
    ev_unref(p->ev); /* they do not keep the loop running */
    ev_unref(p->ev);
    signal(SIGPIPE, SIG_IGN);
}

static int open_all(program *p)
{
    culvert_loop_options lo = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error_set(&p->err, CULVERT_ESYSTEM, 0, "no event loop could be made");
    lo.driver = p->options.driver;
    lo.workers = 2; /* one reads, one writes */
    if ((p->ev = ev_default_loop(0)) == NULL ||
        (p->loop = culvert_loop_new(p->ev, &lo, &p->err)) == NULL ||
        stream_io_open_in(&p->in, p->loop, p->options.in, &p->err) != 0)
        return -1;
    p->gpu = culvert_gpu_open(p->loop, p->options.device, NULL, &p->err);
    if (p->gpu == NULL || stream_io_open_out(&p->out, p->loop, p->options.out, &p->err) != 0)
        return -1;
    if (p->options.trace != NULL &&
        culvert_trace_start(p->loop, p->options.trace, &p->err) != CULVERT_OK)
        return -1;
    progress_start(&p->progress, p->in.size);
    p->pipe =
        pipeline_new(p->gpu, &p->options, &p->in, &p->out, progress_show, &p->progress, &p->err);
    return p->pipe != NULL ? 0 : -1;
}

static int run(program *p)
{
    handle_signals(p);
    p->job = pipeline_run(p->pipe);
    int r = culvert_await(p->job, 1e9);
    if (r != CULVERT_OK && r != CULVERT_PENDING)
        p->err = *culvert_get_error(p->job);
    return r == CULVERT_OK ? 0 : -1;
}

static void report(program *p, double seconds)
{
    culvert_gpu_description d = {.struct_size = sizeof d};
    uint64_t bytes = pipeline_bytes(p->pipe);
    if (!p->options.verbose || culvert_gpu_info(p->gpu, &d) != CULVERT_OK)
        return;
    fprintf(stderr, "culvert-chacha20: device: %s (%s %d.%d)%s\n", d.name, d.driver,
            d.driver_version / 1000, d.driver_version % 1000 / 10,
            d.simulated ? ", simulated" : "");
    fprintf(stderr, "culvert-chacha20: %llu bytes in %.3f s, %.1f MB/s\n",
            (unsigned long long)bytes, seconds, seconds > 0 ? (double)bytes / 1e6 / seconds : 0);
}

/* The loop first: after it nothing runs that could use files and buffers. */
static int close_all(program *p, int r)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_unref(p->job);
    culvert_loop_free(p->loop);
    pipeline_free(p->pipe);
    culvert_gpu_close(p->gpu);
    stream_io_close_in(&p->in);
    if (stream_io_close_out(&p->out, r == 0, &err) != 0 && r == 0) {
        p->err = err;
        r = -1;
    }
    return r;
}

int main(int argc, char **argv)
{
    program p = {.in = {.fd = -1}, .out = {.fd = -1}, .err = CULVERT_ERROR_INIT};
    int r = options_parse(&p.options, argc, argv);
    if (r >= 0)
        return r;
    r = open_all(&p);
    if (r == 0)
        r = run(&p);
    double seconds = progress_end(&p.progress);
    if (r == 0)
        report(&p, seconds);
    r = close_all(&p, r);
    if (p.signal != 0) {
        fprintf(stderr, "culvert-chacha20: stopped by %s; no output was kept\n",
                p.signal == SIGINT ? "SIGINT" : "SIGTERM");
        return 128 + p.signal;
    }
    if (r != 0)
        fprintf(stderr, "culvert-chacha20: %s\n", p.err.message);
    return r == 0 ? 0 : exit_status_of(&p.err);
}
