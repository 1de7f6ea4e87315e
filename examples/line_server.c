/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A line server on plain libev sockets: to a line "a x1 ... xn" it answers "a*x1 ... a*xn", from the GPU.
 * A client is read from, or its line is on the GPU, or its answer is written: one that sends faster than
 * it reads is not read from meanwhile, costs one buffer, and TCP makes it wait.
 */
#define _GNU_SOURCE
#include "listen.h"
#include "program.h"
#include "saxpy.culvert.h" /* culvert_image_saxpy, made from kernels/saxpy.cu */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 256, LINE = 8192, GRACE_SECONDS = 5 };
typedef struct client {
    ev_io io;
    size_t in_bytes, out_bytes, n;
    char in[LINE], out[16 * MOST + 600];
    float x[MOST], y[MOST]; /* lent to the device until the line's future settled */
} client;
static const char usage[] =
    "usage: line-server [--driver NAME] [--device N] [[HOST:]PORT]   (default: 127.0.0.1:7007)\n";
static program p = {.name = "line-server"};
static culvert_stream *stream;
static culvert_kernel *saxpy;

static culvert_future *compute(client *c, char *text)
{
    char *rest;
    float a = strtof(text, &rest);
    for (c->n = 0; rest != text && c->n < MOST; c->n += rest != text)
        c->x[c->n] = strtof(text = rest, &rest);
    if (c->n == 0 || rest[strspn(rest, " \t\r")] != '\0')
        return culvert_fail(p.loop, CULVERT_EUSER, 0, "a line is a and 1 to %d numbers x", MOST);
    size_t bytes = c->n * sizeof *c->x;
    culvert_seq *seq = culvert_seq_begin(stream); /* never NULL: an error comes with the future */
    culvert_buffer *x = culvert_seq_scratch(seq, bytes), *y = culvert_seq_scratch(seq, bytes);
    culvert_seq_upload(seq, x, 0, c->x, bytes);
    culvert_seq_fill(seq, y, 0, bytes, 0, 1);
    culvert_seq_launch(seq, saxpy, &(culvert_grid){.blocks = {1}, .threads = {MOST}},
                       CULVERT_ARGS(CULVERT_U32((uint32_t)c->n), CULVERT_F32(a), CULVERT_BUFFER(x),
                                    CULVERT_BUFFER(y)));
    culvert_seq_download(seq, c->y, y, 0, bytes);
    return culvert_seq_submit(seq);
}

static culvert_future *format(culvert_future *done, void *arg)
{
    client *c = arg;
    for (size_t i = 0; i < c->n; i++)
        c->out_bytes += (size_t)sprintf(c->out + c->out_bytes, "%g ", (double)c->y[i]);
    c->out[c->out_bytes - 1] = '\n';
    return (void)done, NULL; /* the outcome stays as it is */
}

static void ready(struct ev_loop *ev, ev_io *w, int events);

static void answer(culvert_future *done, void *arg)
{
    client *c = arg;
    const culvert_error *err = culvert_get_error(done);
    if (err != NULL)
        c->out_bytes = (size_t)snprintf(c->out, sizeof c->out, "error: %s\n", err->message);
    ev_io_modify(&c->io, EV_WRITE);
    ev_io_start(p.ev, &c->io);
    ready(p.ev, &c->io, EV_WRITE); /* what the socket takes at once need not wait */
}

static void ready(struct ev_loop *ev, ev_io *w, int events)
{
    client *c = (client *)w;
    ssize_t n = events & EV_WRITE ? send(w->fd, c->out, c->out_bytes, MSG_NOSIGNAL)
                                  : read(w->fd, c->in + c->in_bytes, LINE - c->in_bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    ev_io_stop(ev, w);
    if (n <= 0) { /* it has gone, or its line leaves no room to read into */
        close(w->fd);
        free(c);
        return;
    }
    if (events & EV_WRITE)
        memmove(c->out, c->out + n, c->out_bytes -= (size_t)n);
    else
        c->in_bytes += (size_t)n;
    char *end = c->out_bytes == 0 ? memchr(c->in, '\n', c->in_bytes) : NULL;
    if (end == NULL) {
        ev_io_modify(w, c->out_bytes > 0 ? EV_WRITE : EV_READ);
        ev_io_start(ev, w);
        return;
    }
    *end = '\0';
    if (culvert_on_settled(culvert_then(compute(c, c->in), format, c, NULL), answer, c, NULL) < 0)
        abort(); /* no memory for it: `answer` will not be called */
    c->in_bytes -= (size_t)(end + 1 - c->in);
    memmove(c->in, end + 1, c->in_bytes);
}

static void incoming(struct ev_loop *ev, ev_io *w, int events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    client *c = fd >= 0 ? calloc(1, sizeof *c) : NULL;
    (void)events;
    if (c == NULL) {
        close(fd); /* or there was none */
        return;
    }
    ev_io_init(&c->io, ready, fd, EV_READ);
    ev_io_start(ev, &c->io);
}

static void device_lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    (void)gpu, (void)arg;
    program_fail(&p, err); /* the exit status asks for a new process */
    ev_break(p.ev, EVBREAK_ALL);
}

int main(int argc, char **argv)
{
    ev_io accepting;
    culvert_error err = CULVERT_ERROR_INIT;
    int fd = -1, i = program_options(&p, argc, argv, usage);
    if (i < 0)
        return p.status;
    if (program_open(&p, &culvert_image_saxpy) != 0 || !(saxpy = program_kernel(&p, "saxpy")))
        return program_close(&p);
    if ((stream = culvert_stream_new(p.gpu, NULL, &err)) == NULL ||
        (fd = listen_on(i < argc ? argv[i] : "7007", &err)) < 0) {
        program_fail(&p, &err);
    } else {
        culvert_gpu_on_lost(p.gpu, device_lost, NULL, NULL);
        program_stop_on_signals(&p, NULL);
        ev_io_init(&accepting, incoming, fd, EV_READ);
        ev_io_start(p.ev, &accepting);
        ev_run(p.ev, 0);
        close(fd);
        culvert_future *drained = culvert_drain(p.loop, GRACE_SECONDS);
        culvert_await(drained, INFINITY);
        culvert_unref(drained);
    }
    culvert_stream_unref(stream);
    return program_close(&p);
}
