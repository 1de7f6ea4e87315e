/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the library's own: the program's signals are for the program's threads, so that no handler
 * runs on these, and a write to what is closed is an error there and no SIGPIPE.
 */
#define _GNU_SOURCE
#include "loop/loop_internal.h"

#include <signal.h>

int culvert__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *name)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread starts with this mask */
    const int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0 && name != NULL)
        (void)pthread_setname_np(*thread, name);
    return error;
}
