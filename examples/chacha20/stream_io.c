/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening and closing. How a descriptor is read and written, whatever it is, is the library's matter
 * (culvert_descriptor_new).
 */
#define _GNU_SOURCE
#include "stream_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

static int fail(culvert_error *err, const char *what, const char *name)
{
    culvert_error_set(err, CULVERT_ESYSTEM, errno, "cannot %s %s: %s", what, name, strerror(errno));
    return -1;
}

static int prepare(stream_io *io, culvert_loop *loop, culvert_error *err)
{
    io->descriptor = culvert_descriptor_new(loop, io->fd, io->name, err);
    return io->descriptor != NULL ? 0 : -1;
}

/* What is left to read of a file, for the progress. */
static uint64_t rest_of(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || at < 0 || st.st_size <= at)
        return 0;
    return (uint64_t)(st.st_size - at);
}

int stream_io_open_in(stream_io *io, culvert_loop *loop, const char *path, culvert_error *err)
{
    *io = (stream_io){.fd = STDIN_FILENO, .name = "standard input"};
    if (path != NULL) {
        io->name = path;
        io->own = 1;
        io->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (io->fd < 0)
            return fail(err, "open", path);
        (void)posix_fadvise(io->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    io->size = rest_of(io->fd);
    if (prepare(io, loop, err) == 0)
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
    *io = (stream_io){.fd = STDOUT_FILENO, .name = "standard output"};
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
    if (prepare(io, loop, err) == 0)
        return 0;
    culvert_error ignored;
    (void)stream_io_close_out(io, 0, &ignored);
    return -1;
}

/* ---- closing ---- */

void stream_io_close_in(stream_io *io)
{
    culvert_descriptor_free(io->descriptor);
    io->descriptor = NULL;
    if (io->own && io->fd >= 0)
        close(io->fd);
    io->fd = -1;
}

int stream_io_close_out(stream_io *io, int complete, culvert_error *err)
{
    int r = 0;
    culvert_descriptor_free(io->descriptor);
    io->descriptor = NULL;
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
