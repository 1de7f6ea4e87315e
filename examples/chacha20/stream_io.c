/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A transfer is an asynchronous loop: read or write what can be had, wait, again, until the chunk is
 * whole. Short transfers and EINTR are part of it.
 *
 * A pipe or terminal is opened once more through /proc, so that the loop has a description of its own
 * that does not block: setting O_NONBLOCK on the one that was inherited would change it for the
 * program at the other end of the shell's line, too.
 */
#define _GNU_SOURCE
#include "stream_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct transfer {
    stream_io *io;
    char *memory;
    size_t bytes, done;
    size_t *got; /* NULL: it is a write */
} transfer;

/* ---- one system call ---- */

static ssize_t once(const transfer *t)
{
    const stream_io *io = t->io;
    char *at = t->memory + t->done;
    size_t n = t->bytes - t->done;
    if (io->is_socket)
        return t->got != NULL ? recv(io->fd, at, n, MSG_DONTWAIT)
                              : send(io->fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return t->got != NULL ? read(io->fd, at, n) : write(io->fd, at, n);
}

/* 1: whole, or the input has ended; 0: would block; -1: errno. */
static int advance(transfer *t)
{
    while (t->done < t->bytes) {
        ssize_t n = once(t);
        if (n > 0) {
            t->done += (size_t)n;
        } else if (n == 0 && t->got != NULL) {
            break;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && t->io->on_loop) {
            return 0;
        } else {
            if (n == 0)
                errno = EIO; /* write() that writes nothing */
            return -1;
        }
    }
    if (t->got != NULL)
        *t->got = t->done;
    return 1;
}

static void describe(const transfer *t, int number, culvert_error *err)
{
    culvert_error_set(err, CULVERT_ESYSTEM, number, "cannot %s %s: %s",
                      t->got != NULL ? "read" : "write", t->io->name, strerror(number));
}

/* ---- on a worker ---- */

static void *work(void *arg, culvert_error *err)
{
    if (advance(arg) < 0)
        describe(arg, errno, err);
    return NULL;
}

/* ---- on the loop ---- */

static culvert_future *try_again(culvert_future *ready, void *arg)
{
    transfer *t = arg;
    culvert_loop *loop = t->io->loop;
    culvert_error err;
    int r = advance(t);
    if (r > 0)
        return culvert_resolved(loop, NULL, NULL);
    if (r < 0) {
        describe(t, errno, &err);
        return culvert_rejected(loop, &err);
    }
    (void)ready;
    culvert_future *wait = t->got != NULL ? culvert_readable(loop, t->io->fd)
                                          : culvert_writable(loop, t->io->fd);
    return culvert_then(wait, try_again, t, NULL); /* t belongs to the first step */
}

static culvert_future *release(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static culvert_future *start(stream_io *io, char *memory, size_t bytes, size_t *got)
{
    transfer *t = malloc(sizeof *t);
    if (t == NULL)
        return culvert_fail(io->loop, CULVERT_ENOMEM, 0, "no memory to transfer %s", io->name);
    *t = (transfer){io, memory, bytes, 0, got};
    if (!io->on_loop)
        return culvert_work(io->loop, work, t, free, NULL);
    culvert_future *loop_turns =
        culvert_then(culvert_resolved(io->loop, NULL, NULL), try_again, t, NULL);
    return culvert_finally(loop_turns, release, t, free);
}

culvert_future *stream_io_read(stream_io *io, void *to, size_t bytes, size_t *got)
{
    *got = 0;
    return start(io, to, bytes, got);
}

culvert_future *stream_io_write(stream_io *io, const void *from, size_t bytes)
{
    union {
        const void *read;
        void *memory;
    } source = {.read = from}; /* only read */
    return start(io, source.memory, bytes, NULL);
}

/* ---- opening ---- */

static int fail(culvert_error *err, const char *what, const char *name)
{
    culvert_error_set(err, CULVERT_ESYSTEM, errno, "cannot %s %s: %s", what, name,
                      strerror(errno));
    return -1;
}

/* What kind of descriptor is it, and how is it waited for? */
static int classify(stream_io *io, int writing, culvert_error *err)
{
    struct stat st;
    char path[64];
    if (fstat(io->fd, &st) != 0)
        return fail(err, "use", io->name);
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return fail(err, "use", io->name);
    }
    if (S_ISREG(st.st_mode)) {
        off_t at = lseek(io->fd, 0, SEEK_CUR);
        if (!writing && at >= 0 && st.st_size > at)
            io->size = (uint64_t)(st.st_size - at);
        return 0;
    }
    if (S_ISSOCK(st.st_mode)) {
        io->is_socket = io->on_loop = 1;
        return 0;
    }
    if (!S_ISFIFO(st.st_mode) && !isatty(io->fd))
        return 0; /* /dev/zero, block devices ...: a worker */
    snprintf(path, sizeof path, "/proc/self/fd/%d", io->fd);
    int own = open(path, (writing ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (own < 0)
        return 0; /* a worker waits for it */
    if (io->own)
        close(io->fd);
    io->fd = own;
    io->own = io->on_loop = 1;
    return 0;
}

int stream_io_open_in(stream_io *io, culvert_loop *loop, const char *path, culvert_error *err)
{
    *io = (stream_io){.loop = loop, .fd = STDIN_FILENO, .name = "standard input"};
    if (path != NULL) {
        io->name = path;
        io->own = 1;
        io->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (io->fd < 0)
            return fail(err, "open", path);
        (void)posix_fadvise(io->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    if (classify(io, 0, err) == 0)
        return 0;
    stream_io_close_in(io);
    return -1;
}

/* A new file beside `path`, that takes its name when it is complete. */
static int open_part(stream_io *io, const char *path, mode_t mode, culvert_error *err)
{
    if (asprintf(&io->part, "%s.XXXXXX", path) < 0) {
        io->part = NULL;
        errno = ENOMEM;
        return fail(err, "create", path);
    }
    io->fd = mkostemp(io->part, O_CLOEXEC);
    if (io->fd < 0) {
        free(io->part);
        io->part = NULL;
        return fail(err, "create", path);
    }
    (void)fchmod(io->fd, mode);
    return 0;
}

int stream_io_open_out(stream_io *io, culvert_loop *loop, const char *path, culvert_error *err)
{
    struct stat st;
    *io = (stream_io){.loop = loop, .fd = STDOUT_FILENO, .name = "standard output"};
    if (path != NULL) {
        mode_t mask = umask(0);
        umask(mask);
        io->name = path;
        io->own = 1;
        int exists = stat(path, &st) == 0;
        if (!exists || S_ISREG(st.st_mode)) {
            if (open_part(io, path, exists ? st.st_mode & 0777 : 0666 & ~mask, err) != 0)
                return -1;
        } else {
            io->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
            if (io->fd < 0)
                return fail(err, "open", path);
        }
    }
    if (classify(io, 1, err) == 0)
        return 0;
    culvert_error ignored;
    (void)stream_io_close_out(io, 0, &ignored);
    return -1;
}

/* ---- closing ---- */

void stream_io_close_in(stream_io *io)
{
    if (io->own && io->fd >= 0)
        close(io->fd);
    io->fd = -1;
}

int stream_io_close_out(stream_io *io, int complete, culvert_error *err)
{
    int r = 0;
    if (io->own && io->fd >= 0 && close(io->fd) != 0 && complete)
        r = fail(err, "finish", io->name); /* a full disk of a network may only be told here */
    io->fd = -1;
    if (io->part != NULL) {
        if (complete && r == 0 && rename(io->part, io->name) != 0)
            r = fail(err, "name", io->name);
        if (!complete || r != 0)
            (void)unlink(io->part);
        free(io->part);
        io->part = NULL;
    }
    return r;
}
