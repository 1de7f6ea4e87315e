/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device is lost: everything pending rejects, new work is refused, the program ends in order.
 *
 * Prints:
 *     a request: CULVERT_EDEVICELOST, native 700
 *     a request: CULVERT_EDEVICELOST, native 700
 *     lost: let another process take over
 *     state: lost
 *     new work: CULVERT_EDEVICELOST
 */
#include "snippet.h"

#include <culvert/sim.h>
#include <stdio.h>

static void answered(culvert_future *done, void *arg)
{
    const culvert_error *err = culvert_get_error(done);
    (void)arg;
    if (err != NULL)
        printf("a request: %s, native %d\n", culvert_error_name(err->code), err->native);
}

/* region: lost */
/* Once, on the loop, after everything pending was rejected. */
static void lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    struct ev_loop *ev = arg;
    (void)gpu;
    (void)err; /* names the oldest unfinished operations: log it */
    printf("lost: let another process take over\n");
    ev_break(ev, EVBREAK_ALL); /* main() goes on to an orderly end, with a status that says so */
}
/* end region */

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.driver = "sim";
    snippet_open(&s, &options, NULL);
    culvert_buffer *b = snippet_must(culvert_buffer_new(s.gpu, 64, &err), &err);
    culvert_stream *stream = s.stream;
    culvert_gpu *gpu = s.gpu;
    struct ev_loop *ev = s.ev;

    culvert_sim_hold(NULL);
    /* region: pending */
    culvert_gpu_on_lost(gpu, lost, ev, NULL);
    culvert_on_settled(culvert_fill(stream, b, 0, 64, 0, 4), answered, NULL, NULL);
    culvert_on_settled(culvert_fill(stream, b, 0, 64, 1, 4), answered, NULL, NULL);
    /* end region */
    culvert_sim_poison(0, 700); /* CUDA_ERROR_ILLEGAL_ADDRESS: a kernel wrote where it must not */
    ev_run(ev, 0);

    printf("state: %s\n", culvert_gpu_state(gpu) == CULVERT_GPU_LOST ? "lost" : "well");
    culvert_future *f = culvert_fill(stream, b, 0, 64, 0, 4);
    printf("new work: %s\n", culvert_error_name(culvert_status(f)));
    culvert_unref(f);
    culvert_buffer_unref(b);
    snippet_close(&s);
    return 0;
}
