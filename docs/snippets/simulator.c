/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's function, tested on the simulator: what it answers when all is well, when the device is
 * slow, when a launch fails, and when the device is lost.
 *
 * Prints:
 *     well: CULVERT_OK, 20
 *     slow: CULVERT_ETIMEDOUT
 *     refused: CULVERT_EDRIVER, native 701
 *     lost: CULVERT_EDEVICELOST, native 719
 *     launches that went through: 2
 *     waits for the device 0, violations 0
 */
#include "snippet.h"

#include <culvert/sim.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the server's function ---- */

typedef struct server {
    culvert_loop *loop;
    culvert_stream *stream;
    culvert_kernel *scale;
    double seconds; /* that an answer may take */
} server;

static culvert_future *answer(culvert_future *done, void *x)
{
    float *result = malloc(sizeof *result);
    if (result == NULL)
        return culvert_fail(culvert_future_loop(done), CULVERT_ENOMEM, 0, "no memory");
    *result = *(float *)x;
    return culvert_resolved(culvert_future_loop(done), result, free);
}

/* Ten times the value. */
static culvert_future *handle(server *s, float value)
{
    float *x = malloc(sizeof *x);
    if (x == NULL)
        return culvert_fail(s->loop, CULVERT_ENOMEM, 0, "no memory for a request");
    *x = value;
    culvert_seq *seq = culvert_seq_begin(s->stream);
    culvert_buffer *dx = culvert_seq_scratch(seq, sizeof *x);
    culvert_seq_keep(seq, x, free); /* the device may use it after the time-out */
    culvert_seq_upload(seq, dx, 0, x, sizeof *x);
    culvert_seq_launch(seq, s->scale, &(culvert_grid){.blocks = {1}, .threads = {1}},
                       CULVERT_ARGS(CULVERT_BUFFER(dx), CULVERT_F32(10.0f), CULVERT_U32(1)));
    culvert_seq_download(seq, x, dx, 0, sizeof *x);
    return culvert_timeout(culvert_then(culvert_seq_submit(seq), answer, x, NULL), s->seconds);
}

/* ---- its test ---- */

static void test(server *s, const char *name)
{
    culvert_future *f = handle(s, 2.0f);
    int status = culvert_await(f, 60);
    printf("%s: %s", name, culvert_error_name(status));
    if (status == CULVERT_OK)
        printf(", %g\n", *(float *)culvert_value(f));
    else if (culvert_get_error(f)->native != 0)
        printf(", native %d\n", culvert_get_error(f)->native);
    else
        printf("\n");
    culvert_unref(f);
}

static void quiet(int level, const char *message, void *arg)
{
    (void)level;
    (void)message;
    (void)arg;
}

int main(void)
{
    snippet opened;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.on_log = quiet;
    /* region: open */
    options.driver = "sim";
    culvert_sim_strict(1);     /* a violation ends the program, with a line that names it */
    culvert_sim_loop_thread(); /* this thread must never wait in a call of the driver */
    /* end region */
    snippet_open(&opened, &options, NULL);
    server s = {opened.loop, opened.stream, snippet_kernel(&opened, "scale"), 30};

    /* region: cases */
    test(&s, "well");

    s.seconds = 0.05;
    culvert_sim_hold(NULL); /* as behind a kernel that does not end */
    test(&s, "slow");
    culvert_sim_release(NULL);
    s.seconds = 30;

    culvert_sim_fail("cuLaunchKernel", 1, 701); /* CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, once */
    test(&s, "refused");

    culvert_sim_poison(0, 719); /* CUDA_ERROR_LAUNCH_FAILED: the device is lost */
    test(&s, "lost");
    /* end region */

    snippet_close(&opened);
    printf("launches that went through: %llu\n",
           (unsigned long long)culvert_sim_calls("cuLaunchKernel") - 1);
    /* region: counts */
    printf("waits for the device %llu, violations %llu\n",
           (unsigned long long)culvert_sim_calls("cuStreamSynchronize"),
           (unsigned long long)culvert_sim_violations());
    /* end region */
    return 0;
}
