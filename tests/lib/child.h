/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a function in a child process: with a small stack, to see it abort, or after fork().
 *
 *     test_child child = test_child_run(drop_a_long_chain, &length, 256 * 1024, 60);
 *     ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
 */
#ifndef TEST_LIB_CHILD_H
#define TEST_LIB_CHILD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct test_child {
    bool ended;        /* by itself, in time and without a signal: status is what it is */
    bool timed_out;    /* it ran too long and was killed */
    int status;        /* what the function returned, 0 to 255; -1 where it did not end by itself */
    int signal;        /* the signal that ended it, as SIGABRT or SIGSEGV; 0 where none did */
    char output[8192]; /* the beginning of what it wrote on stderr, as a string */
} test_child;

/*
 * Forks a child that returns fn(arg) as its exit status, without any exit handler.
 *
 * stack_bytes: the limit of its stack (as `ulimit -s`); 0: as it is. Not below what is in use now,
 *              some 16 KiB in a test; sanitizers make frames larger.
 * seconds:     how long it may run; it is killed with SIGKILL then.
 *
 * Aborts where there can be no child.
 */
test_child test_child_run(int (*fn)(void *arg), void *arg, size_t stack_bytes, double seconds);

#endif
