/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Some device work, one piece after the other, for the programs that show how to run a binding: y = x + y on the
 * device, again and again, each round begun by the continuation of the one before.
 */
#ifndef EXAMPLES_ROUNDS_H
#define EXAMPLES_ROUNDS_H

#include "program.h"

typedef struct rounds {
    program *p;
    culvert_kernel *saxpy;
    culvert_stream *stream;
    culvert_buffer *x, *y;
    float *result;
    unsigned left, done;
    int right; /* once it is over: whether y is what it must be */
} rounds;

/* Begins; nothing blocks from here on. 0, or -1 after it printed why not. */
int rounds_begin(rounds *, program *, unsigned count);

/* Releases. Prints and sets the program's status where the result is wrong. */
void rounds_end(rounds *);

#endif
