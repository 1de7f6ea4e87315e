/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of the command line, opened for a pipeline: an output that is a file gets its name only when it
 * is complete.
 */
#ifndef CHACHA20_STREAM_IO_H
#define CHACHA20_STREAM_IO_H

#include <culvert/culvert.h>

#include <stdint.h>

typedef struct stream_io {
    int fd;
    int own;                        /* close it */
    culvert_descriptor *descriptor; /* of fd, for the pipeline's stages */
    uint64_t size;                  /* of a regular file's rest; 0: not known */
    const char *name;               /* for messages */
    char *part; /* the output's name while it is not complete; NULL: written in place */
} stream_io;

/* 0, or -1 with err filled. path NULL: standard input or output. */
int stream_io_open_in(stream_io *, culvert_loop *, const char *path, culvert_error *err);
int stream_io_open_out(stream_io *, culvert_loop *, const char *path, culvert_error *err);

void stream_io_close_in(stream_io *);
/* complete: the output gets its name; else it is removed. 0, or -1 with err filled. */
int stream_io_close_out(stream_io *, int complete, culvert_error *err);

#endif
