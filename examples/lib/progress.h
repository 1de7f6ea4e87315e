/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A line on standard error that says how far it is, where that is a terminal.
 */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    uint64_t total; /* 0: not known */
    double start, shown;
    int on, drawn;
} progress;

void progress_start(progress *, uint64_t total);
void progress_show(uint64_t bytes, void *progress);
/* Wipes the line. Returns the seconds since the start. */
double progress_end(progress *);

#endif
