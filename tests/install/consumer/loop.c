/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers and library agree, and a future settles on a loop. */
#include <culvert/future.h>
#include <culvert/loop.h>
#include <culvert/version.h>

#include <ev.h>
#include <stdio.h>

int main(void)
{
    if (culvert_version() != CULVERT_VERSION) {
        fprintf(stderr, "headers %d, library %d\n", CULVERT_VERSION, culvert_version());
        return 1;
    }
    culvert_error err;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    if (loop == NULL) {
        fprintf(stderr, "culvert_loop_new: %s\n", err.message);
        return 1;
    }
    culvert_future *future = culvert_sleep(loop, 0.001);
    int status = culvert_await(future, 60);
    culvert_unref(future);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    printf("version %d, status %d\n", culvert_version(), status);
    return status == CULVERT_OK ? 0 : 1;
}
