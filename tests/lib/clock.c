/* SPDX-License-Identifier: BSD-2-Clause */
/* Monotonic time for tests. */
#define _POSIX_C_SOURCE 200809L
#include "lib/clock.h"

#include <errno.h>
#include <time.h>

uint64_t test_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double test_now(void)
{
    return (double)test_now_ns() * 1e-9;
}

void test_sleep(double seconds)
{
    struct timespec left;
    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

bool test_eventually(bool (*holds)(void *arg), void *arg, double seconds)
{
    double end = test_now() + seconds;
    while (!holds(arg)) {
        if (test_now() >= end)
            return false;
        test_sleep(0.001);
    }
    return true;
}
