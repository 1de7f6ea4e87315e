/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork(): the child of a process that has a binding cannot use it; the parent goes on as before.
 *
 * Prints:
 *     child: a new call: CULVERT_EFORKED
 *     child: what was pending: CULVERT_EFORKED
 *     parent: CULVERT_OK
 */
#define _POSIX_C_SOURCE 200809L
#include "snippet.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *who = "parent";

static void print_status(culvert_future *done, void *arg)
{
    (void)arg;
    printf("%s: %s\n", who, culvert_error_name(culvert_status(done)));
}

/* region: child */
/* In the child. To run another program it needs none of this: exec, or _exit. */
static void child(culvert_loop *loop)
{
    who = "child: what was pending";
    culvert_future *f = culvert_sleep(loop, 1);
    printf("child: a new call: %s\n", culvert_error_name(culvert_status(f)));
    culvert_unref(f);
    culvert_loop_free(loop); /* settles what was inherited with CULVERT_EFORKED; no driver call */
    fflush(stdout);
    _exit(0); /* what the parent has registered with atexit() is the parent's */
}
/* end region */

int main(void)
{
    snippet s;
    snippet_open(&s, NULL, NULL);
    culvert_on_settled(culvert_sleep(s.loop, 0.05), print_status, NULL, NULL);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        child(s.loop);
    waitpid(pid, NULL, 0);
    ev_run(s.ev, 0);
    snippet_close(&s);
    return 0;
}
