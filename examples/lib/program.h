/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the example programs have in common: an event loop, a device and kernels opened with clear errors, signals
 * that stop the program in order, and an exit status.
 */
#ifndef EXAMPLES_PROGRAM_H
#define EXAMPLES_PROGRAM_H

#include "exit_status.h"

#include <culvert/culvert.h>
#include <ev.h>

typedef struct program {
    const char *name;   /* for messages */
    const char *driver; /* see culvert_loop_options.driver; NULL: what the environment says */
    int device;
    const culvert_gpu_options *gpu_options; /* for program_open; NULL: the defaults */
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_module *module;
    int signal; /* the one that stopped it, or 0 */
    int status; /* what program_close will return, unless a signal stopped it */
    void (*stop)(struct program *);
    ev_signal interrupt, terminate;
} program;

/* Reads --driver NAME, --device N and --help. Returns the index of the first argument that is no option; or -1: the
   program is over, with `status` (the usage or a message was printed). */
int program_options(program *, int argc, char **argv, const char *usage);

/* Reads the value of --device, for a program that has more options. Returns 0, or -1 after it printed why not. */
int program_device(program *, const char *text);

/* Opens loop and device and loads an image, if there is one. Name, driver and device are set before.
   Returns 0, or -1 after it printed why not. */
int program_open(program *, const culvert_image *);

/* A kernel of the image, or NULL after it printed why not. */
culvert_kernel *program_kernel(program *, const char *name);

/* Calls stop() on the loop at the first SIGINT or SIGTERM; a second one ends the process. NULL: breaks ev_run. The loop
   does not stay alive for it. SIGPIPE is ignored from now on. */
void program_stop_on_signals(program *, void (*stop)(program *));

/* Prints an error and makes the status EXIT_FAILED, or EXIT_LOST where the device was lost. */
void program_fail(program *, const culvert_error *);

/* What the device is, in a line on standard error. */
void program_describe(program *);

/* Takes down what program_open made. Returns the exit status: `status`, or 128 + the
   signal that stopped the program, where that has failed nothing. */
int program_close(program *);

#endif
