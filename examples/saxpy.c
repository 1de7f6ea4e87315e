/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shortest complete program: y = a * x + y on the GPU, awaited on a libev loop.
 *
 *     saxpy                       on the GPU
 *     CULVERT_DRIVER=sim saxpy    on the simulated driver, where there is no GPU
 */
#include <culvert/culvert.h>
#include <ev.h>
#include <math.h>
#include <stdio.h>

#include "saxpy.culvert.h" /* culvert_image_saxpy, made from kernels/saxpy.cu */

enum { N = 1 << 20 };
static float x[N], y[N];

static void finished(culvert_future *done, void *arg)
{
    const culvert_error *err = culvert_get_error(done);
    char line[512];
    if (err != NULL && culvert_error_format(err, line, sizeof line) > 0)
        fprintf(stderr, "saxpy: %s\n", line);
    else
        printf("y[1] = %g, y[%d] = %g\n", y[1], N - 1, y[N - 1]);
    *(int *)arg = err != NULL;
}

int main(void)
{
    int failed = 1;
    culvert_error err = CULVERT_ERROR_INIT;
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 1.0f;
    }

    struct ev_loop *ev = ev_default_loop(0);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    culvert_gpu *gpu = loop ? culvert_gpu_open(loop, 0, NULL, &err) : NULL;
    culvert_stream *stream = gpu ? culvert_stream_new(gpu, NULL, &err) : NULL;
    culvert_buffer *dx = stream ? culvert_buffer_new(gpu, sizeof x, &err) : NULL;
    culvert_buffer *dy = dx ? culvert_buffer_new(gpu, sizeof y, &err) : NULL;
    culvert_future *load = dy ? culvert_module_load(gpu, &culvert_image_saxpy) : NULL;
    culvert_kernel *saxpy = NULL;
    if (load != NULL && culvert_await(load, INFINITY) == CULVERT_OK)
        saxpy = culvert_module_kernel(culvert_value(load), "saxpy", &err);
    else if (load != NULL && culvert_get_error(load) != NULL)
        err = *culvert_get_error(load);

    if (saxpy != NULL) {
        culvert_seq *seq = culvert_seq_begin(stream);
        culvert_seq_upload(seq, dx, 0, x, sizeof x);
        culvert_seq_upload(seq, dy, 0, y, sizeof y);
        culvert_seq_launch(seq, saxpy, &(culvert_grid){.blocks = {N / 256}, .threads = {256}},
                           CULVERT_ARGS(CULVERT_U32(N), CULVERT_F32(2.0f), CULVERT_BUFFER(dx),
                                        CULVERT_BUFFER(dy)));
        culvert_seq_download(seq, y, dy, 0, sizeof y);
        culvert_on_settled(culvert_seq_submit(seq), finished, &failed, NULL);
        ev_run(ev, 0); /* returns when nothing is pending any more */
    } else {
        fprintf(stderr, "saxpy: %s\n", err.message);
    }

    culvert_unref(load); /* and with it the module */
    culvert_buffer_unref(dy);
    culvert_buffer_unref(dx);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    return failed;
}
