/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The main function of a Check program:
 *
 *     int main(void)
 *     {
 *         Suite *suites[] = {chain_suite(), combine_suite(), NULL};
 *         return test_main(suites);
 *     }
 *
 * Whether each test runs in a process of its own is for the environment to say (CK_FORK, which ctest
 * sets as the build and the test need); CK_RUN_SUITE, CK_RUN_CASE and CK_VERBOSITY work as in Check.
 */
#ifndef TEST_LIB_CHECK_MAIN_H
#define TEST_LIB_CHECK_MAIN_H

#include <check.h>

/* What ctest takes for "skipped". */
#define TEST_SKIPPED 77

/*
 * Runs the suites of a list that NULL ends, and frees them. Returns the exit status: 0, 1 where a test
 * failed, TEST_SKIPPED where CULVERT_DRIVER is "cuda" and there is no usable GPU.
 */
int test_main(Suite *const *suites);

/*
 * The number of GPUs that the CUDA driver finds; 0 where there is no driver. A child process asks, so
 * that this one has not touched CUDA and may still fork.
 */
int test_gpu_count(void);

#endif
