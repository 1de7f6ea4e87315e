/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that allocates in every way, for the test of alloc_fail. */
#ifndef TEST_LIB_ALLOC_PROBE_H
#define TEST_LIB_ALLOC_PROBE_H

#include <stdbool.h>

enum { ALLOC_PROBE_BLOCKS = 9 };

/* Allocates ALLOC_PROBE_BLOCKS blocks, one each way, and frees them. False if one failed; with `keep` the
 * ones before it then stay, for alloc_probe_release. */
bool alloc_probe(bool keep);
void alloc_probe_release(void);

/* An allocation that is kept for the process, and then another one, which is freed. */
bool alloc_probe_kept(void);

#endif
