/* SPDX-License-Identifier: BSD-2-Clause */
/* The suites that run on every machine. */
#ifndef TESTS_KERNELS_SUITES_H
#define TESTS_KERNELS_SUITES_H

#include <check.h>

Suite *block_suite(void);
Suite *warp_suite(void);
Suite *atomics_suite(void);
Suite *layout_suite(void);
Suite *saxpy_suite(void);
Suite *chacha20_suite(void);

#endif
