/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_CONFORMANCE_ROW_PROCESS_H
#define TESTS_CONFORMANCE_ROW_PROCESS_H

#include "conformance.h"

/* Runs a row in this process and prints what it saw, in one line. Returns the exit status. */
int conf_row_process(const struct row *row);

#endif
