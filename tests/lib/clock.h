/* SPDX-License-Identifier: BSD-2-Clause */
/* Monotonic time for tests. Bounds belong far from what is expected: test machines are busy. */
#ifndef TEST_LIB_CLOCK_H
#define TEST_LIB_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t test_now_ns(void);

/* CLOCK_MONOTONIC in seconds. */
double test_now(void);

/* Sleeps for so many seconds, through signals. */
void test_sleep(double seconds);

/* Asks every millisecond until the answer is true; false if it was not within so many seconds. */
bool test_eventually(bool (*holds)(void *arg), void *arg, double seconds);

#endif
