/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing whole chunks of a descriptor as futures, whatever it is:
 * files of a disk on a worker thread, pipes, sockets and terminals when the loop says they are ready.
 */
#ifndef CHACHA20_STREAM_IO_H
#define CHACHA20_STREAM_IO_H

#include <culvert/culvert.h>

#include <stdint.h>

typedef struct stream_io {
    culvert_loop *loop;
    int fd;
    int own;           /* close it */
    int on_loop;       /* not blocking: wait for it on the loop; else on a worker */
    int is_socket;
    uint64_t size;     /* of a regular file's rest; 0: not known */
    const char *name;  /* for messages */
    char *part;        /* the output's name while it is not complete; NULL: written in place */
} stream_io;

/* 0, or -1 with err filled. path NULL: standard input or output. */
int stream_io_open_in(stream_io *, culvert_loop *, const char *path, culvert_error *err);
int stream_io_open_out(stream_io *, culvert_loop *, const char *path, culvert_error *err);

/* Reads until `bytes` are there or the input ends. Resolves; *got has how many (0: the end). */
culvert_future *stream_io_read(stream_io *, void *to, size_t bytes, size_t *got);
/* Writes all of it. */
culvert_future *stream_io_write(stream_io *, const void *from, size_t bytes);

void stream_io_close_in(stream_io *);
/* complete: the output gets its name; else it is removed. 0, or -1 with err filled. */
int stream_io_close_out(stream_io *, int complete, culvert_error *err);

#endif
