/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that are read and written chunk by chunk.
 *
 * A transfer reads or writes what can be had, waits, again, until the chunk is whole. On the loop
 * nothing of it runs but inside a call or a step; on a worker its future settles when the call is over.
 * So the chunk is used by nobody once the future has settled.
 *
 * Invariants: a transfer counts the descriptor and the chunk's buffer until it is freed; `fd` is never
 * made non-blocking where somebody else may share its description.
 */
#define _GNU_SOURCE
#include "serve/serve_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct culvert_descriptor {
    culvert_loop *loop; /* its memory is counted */
    size_t refs;        /* the handle, and one a transfer */
    int fd;
    bool reopened; /* fd is our own */
    bool on_loop;  /* it does not block: the loop waits; else a worker does */
    bool is_socket;
    char name[];
};

typedef struct transfer {
    culvert_descriptor *d;  /* counted */
    culvert_buffer *buffer; /* counted */
    culvert_chunk *chunk;
    char *memory;
    size_t bytes, done;
    bool writing;
} transfer;

static void put(culvert_descriptor *d)
{
    if (--d->refs > 0)
        return;
    if (d->reopened)
        close(d->fd);
    culvert_loop_unref(d->loop);
    free(d);
}

static void transfer_free(void *arg)
{
    transfer *t = arg;

    culvert_buffer_unref(t->buffer);
    put(t->d);
    free(t);
}

/* ---- one system call ---- */

/* write() to a pipe that nobody reads raises SIGPIPE, and whether the program ignores that is its own
   matter. One that was pending before stays. */
static ssize_t write_quietly(int fd, const void *from, size_t n)
{
    sigset_t pipe_only, before, pending;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    const ssize_t result = write(fd, from, n);
    const int error = errno;
    if (result < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return result;
}

static ssize_t once(const transfer *t)
{
    const int fd = t->d->fd;
    char *at = t->memory + t->done;
    const size_t n = t->bytes - t->done;

    if (t->writing)
        return t->d->is_socket ? send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                               : write_quietly(fd, at, n);
    return t->d->is_socket ? recv(fd, at, n, MSG_DONTWAIT) : read(fd, at, n);
}

/* 1: whole, or the input has ended; 0: it would block; -1: errno. */
static int advance(transfer *t)
{
    while (t->done < t->bytes) {
        const ssize_t n = once(t);

        if (n > 0) {
            t->done += (size_t)n;
        } else if (n == 0 && !t->writing) {
            break;
        } else if (n == 0) {
            errno = EIO; /* a write() that writes nothing */
            return -1;
        } else if (errno == EAGAIN && t->d->on_loop) {
            return 0;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    if (!t->writing) {
        t->chunk->bytes = t->done;
        t->chunk->last = t->done < t->bytes;
    }
    return 1;
}

static void describe(const transfer *t, int number, culvert_error *err)
{
    culvert__error_set(err, CULVERT_ESYSTEM, number,
                       t->writing ? "culvert_chunk_write" : "culvert_chunk_read", NULL,
                       "cannot %s %s: %s", t->writing ? "write" : "read", t->d->name,
                       strerror(number));
}

/* ---- on a worker ---- */

static void *work(void *arg, culvert_error *err)
{
    if (advance(arg) < 0)
        describe(arg, errno, err);
    return NULL;
}

/* ---- on the loop ---- */

static culvert_future *go_on(transfer *t);

static culvert_future *try_again(culvert_future *ready, void *arg)
{
    (void)ready;
    return go_on(arg);
}

/* The transfer belongs to the last step, which runs also where those before it are cancelled. */
static culvert_future *go_on(transfer *t)
{
    culvert_loop *loop = t->d->loop;
    culvert_error err;
    const int r = advance(t);

    if (r > 0)
        return culvert_resolved(loop, NULL, NULL);
    if (r < 0) {
        describe(t, errno, &err);
        return culvert__future_rejected(culvert__core_of(loop), &err);
    }
    culvert_future *ready =
        t->writing ? culvert_writable(loop, t->d->fd) : culvert_readable(loop, t->d->fd);
    return culvert_then(ready, try_again, t, NULL);
}

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static culvert_future *start(culvert_chunk *chunk, culvert_descriptor *d, bool writing,
                             const char *op)
{
    CULVERT__REQUIRE(chunk, op, "chunk");
    CULVERT__REQUIRE(d, op, "descriptor");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__core *core = culvert__core_of(d->loop);
    culvert__check_thread(core, op);
    transfer *t = malloc(sizeof *t);
    if (t == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    *t = (transfer){.d = d,
                    .buffer = culvert_buffer_ref(chunk->host),
                    .chunk = chunk,
                    .memory = culvert_buffer_data(chunk->host),
                    .bytes = writing ? chunk->bytes : culvert_buffer_size(chunk->host),
                    .writing = writing};
    d->refs++;
    if (!d->on_loop)
        return culvert_work(d->loop, work, t, transfer_free, NULL);
    return culvert_finally(go_on(t), pass, t, transfer_free);
}

culvert_future *culvert_chunk_read(culvert_chunk *chunk, culvert_descriptor *descriptor)
{
    return start(chunk, descriptor, false, "culvert_chunk_read");
}

culvert_future *culvert_chunk_write(culvert_chunk *chunk, culvert_descriptor *descriptor)
{
    return start(chunk, descriptor, true, "culvert_chunk_write");
}

/* ---- life ---- */

/* What kind of descriptor is it, and who waits for it? 0, or an errno. */
static int classify(culvert_descriptor *d)
{
    struct stat st;
    char path[64];

    if (fstat(d->fd, &st) != 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    if (S_ISSOCK(st.st_mode)) {
        d->is_socket = d->on_loop = true;
        return 0;
    }
    if (!S_ISFIFO(st.st_mode) && !isatty(d->fd))
        return 0; /* files, /dev/zero, block devices ...: a worker */
    const int flags = fcntl(d->fd, F_GETFL);
    if (flags < 0)
        return errno;
    if ((flags & O_NONBLOCK) != 0) {
        d->on_loop = true; /* somebody has made it so already */
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", d->fd);
    const int own = open(path, (flags & O_ACCMODE) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (own < 0)
        return 0; /* a worker waits for it */
    d->fd = own;
    d->reopened = d->on_loop = true;
    return 0;
}

culvert_descriptor *culvert_descriptor_new(culvert_loop *loop, int fd, const char *name,
                                           culvert_error *err)
{
    const char *op = "culvert_descriptor_new";
    char number[32];

    CULVERT__REQUIRE(loop, op, "loop");
    if (culvert__loop_refuses(loop, op, err))
        return NULL;
    snprintf(number, sizeof number, "descriptor %d", fd);
    if (name == NULL)
        name = number;
    culvert_descriptor *d = calloc(1, sizeof *d + strlen(name) + 1);
    if (d == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, op, NULL, "no memory for a descriptor");
        return NULL;
    }
    memcpy(d->name, name, strlen(name) + 1);
    d->fd = fd;
    const int error = classify(d);
    if (error != 0) {
        culvert__error_set(err, CULVERT_EINVAL, error, op, NULL, "cannot use %s: %s", name,
                           strerror(error));
        free(d);
        return NULL;
    }
    d->loop = culvert_loop_ref(loop);
    d->refs = 1;
    return d;
}

void culvert_descriptor_free(culvert_descriptor *descriptor)
{
    if (descriptor == NULL || culvert__inherited(culvert__core_of(descriptor->loop)))
        return;
    culvert__check_thread(culvert__core_of(descriptor->loop), "culvert_descriptor_free");
    put(descriptor);
}
