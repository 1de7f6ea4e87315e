/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs of the guide share, so that each shows its topic: a loop, a device, a stream, and
 * the kernels of vector.cu. Whatever fails here ends the program with the error's line.
 * examples/saxpy.c is the same written out.
 */
#ifndef SNIPPET_H
#define SNIPPET_H

#include <culvert/culvert.h>
#include <ev.h>

typedef struct snippet {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream;
    culvert_future *module; /* keeps it; NULL until snippet_kernel is called first */
} snippet;

/* A loop and its binding. Options: NULL for the defaults. */
void snippet_open_loop(snippet *, const culvert_loop_options *);
/* Device 0 and a stream, too. */
void snippet_open(snippet *, const culvert_loop_options *, const culvert_gpu_options *);
culvert_kernel *snippet_kernel(snippet *, const char *name);
/* Ends the program if handle is NULL. */
void *snippet_must(void *handle, const culvert_error *);
/* Ends the program unless status, which culvert_await gave for the future within 60 s, is CULVERT_OK. */
void snippet_check(culvert_future *, int status);
/* Awaits the future (consumed), which must resolve. */
void snippet_finish(culvert_future *);
/* Prints the name of an error's code, and its message. */
void snippet_print(const char *what, const culvert_error *);
void snippet_close(snippet *);

#endif
