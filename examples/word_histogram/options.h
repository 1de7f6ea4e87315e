/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line of word-histogram.
 */
#ifndef WORD_HISTOGRAM_OPTIONS_H
#define WORD_HISTOGRAM_OPTIONS_H

#include "program.h"

typedef struct options {
    size_t chunk; /* bytes */
    unsigned streams;
    unsigned long long top; /* 0: all */
    int verbose;
    char **files; /* borrowed from argv */
    size_t nfiles;
} options;

/* Fills options, and driver and device of the program. Returns 0, or -1: the program is over, with its `status` (the
   usage or a message was printed). */
int options_parse(options *, program *, int argc, char **argv);

#endif
