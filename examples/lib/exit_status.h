/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the example programs exit with, beside 0 and 128 + the signal that stopped them.
 */
#ifndef EXAMPLES_EXIT_STATUS_H
#define EXAMPLES_EXIT_STATUS_H

#include <culvert/error.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOST = 3 /* the device: a new process is needed */ };

static inline int exit_status_of(const culvert_error *err)
{
    return culvert_error_class(err->code) == CULVERT_CLASS_DEVICE_LOST ? EXIT_LOST : EXIT_FAILED;
}

#endif
