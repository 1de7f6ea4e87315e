/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line of culvert-chacha20.
 */
#ifndef CHACHA20_OPTIONS_H
#define CHACHA20_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct options {
    unsigned char key[32];
    unsigned char nonce[12];
    uint32_t counter;
    size_t chunk; /* bytes, a multiple of 64 */
    unsigned depth;
    const char *driver; /* NULL: the environment's choice */
    const char *trace;  /* NULL: none */
    int device;
    int verbose;
    const char *in, *out; /* NULL: standard input, output */
} options;

/* EXIT_USAGE, or -1: go on; 0: all is said (--help, --version). Complains on stderr itself. */
int options_parse(options *, int argc, char **argv);

#endif
