/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A listening TCP socket from what a user wrote.
 */
#ifndef EXAMPLES_LISTEN_H
#define EXAMPLES_LISTEN_H

#include <culvert/error.h>

/* `where`: HOST:PORT, [HOST]:PORT or PORT, which is on 127.0.0.1. Returns a non-blocking descriptor, to be closed
   by the caller; -1: *err says why not. */
int listen_on(const char *where, culvert_error *err);

#endif
