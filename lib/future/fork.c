/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Knows whether this process is a child of one that had made a binding or opened a driver.
 *
 * Invariant: culvert__forked_flag changes from 0 to 1 only, in a child, before fork() returns
 * there.
 */
#define _POSIX_C_SOURCE 200809L
#include "future/future_internal.h"

#include <pthread.h>

int culvert__forked_flag;

static void in_child(void)
{
    culvert__forked_flag = 1;
}

static void register_handler(void)
{
    /* Fails only for want of memory at the very start: then a child is not told, which breaks
       nothing in the parent. */
    (void)pthread_atfork(NULL, NULL, in_child);
}

void culvert__fork_arm(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_handler);
}
