/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels: load, find, launch. vector.cu has them.
 *
 * Prints:
 *     4 blocks: 2016 6112 10208 14304
 *     no such kernel: CULVERT_EINVAL
 *     too few arguments: CULVERT_EINVAL
 *     total 32640, weighted by 2
 */
#include "snippet.h"

#include "vector.culvert.h" /* culvert_image_vector */

#include <stdio.h>

enum { N = 256, THREADS = 64 };

/* Twice the total of x, by blocks that run at once. */
static void weighted_total(snippet s, culvert_module *module, const float *x, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *f;
    float result = 0;
    culvert_kernel *total = culvert_module_kernel(module, "total", &err);
    snippet_must(total, &err);
    /* region: variable */
    culvert_buffer *weight = culvert_module_global(module, "weight", &err);
    const float two = 2.0f;
    f = culvert_upload(s.stream, weight, 0, &two, sizeof two);
    /* end region */
    culvert_await(f, 60);
    culvert_unref(f);
    /* region: cooperative */
    unsigned most = 0; /* blocks that run at once: more could not wait for each other */
    int status = culvert_kernel_max_blocks(total, THREADS, 0, &most);
    culvert_grid at_once = {.blocks = {most < N / THREADS ? most : N / THREADS},
                            .threads = {THREADS},
                            .flags = CULVERT_GRID_COOPERATIVE};
    /* end region */
    culvert_seq *seq = culvert_seq_begin(s.stream);
    culvert_buffer *dx = culvert_seq_scratch(seq, bytes);
    culvert_buffer *work = culvert_seq_scratch(seq, 4 * sizeof(float));
    culvert_seq_upload(seq, dx, 0, x, bytes);
    culvert_seq_fill(seq, work, 0, 4 * sizeof(float), 0, 4);
    culvert_seq_launch(seq, total, &at_once,
                       CULVERT_ARGS(CULVERT_BUFFER(work), CULVERT_BUFFER(dx), CULVERT_U32(N)));
    culvert_seq_download(seq, &result, work, 8, sizeof result);
    f = culvert_seq_submit(seq);
    if (status == CULVERT_OK && culvert_await(f, 60) == CULVERT_OK)
        printf("total %g, weighted by 2\n", (double)result / 2);
    culvert_unref(f);
    culvert_buffer_unref(weight);
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    static float x[N], sums[N / THREADS];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    snippet_open(&s, NULL, NULL);
    culvert_gpu *gpu = s.gpu;

    /* region: load */
    culvert_future *load = culvert_module_load(gpu, &culvert_image_vector); /* before service */
    culvert_kernel *block_sums = NULL;
    if (culvert_await(load, 60) == CULVERT_OK)
        block_sums = culvert_module_kernel(culvert_value(load), "block_sums", &err);
    /* end region */
    snippet_must(block_sums, &err);

    culvert_seq *seq = culvert_seq_begin(s.stream);
    culvert_buffer *dx = culvert_seq_scratch(seq, sizeof x);
    culvert_buffer *dsums = culvert_seq_scratch(seq, sizeof sums);
    culvert_seq_upload(seq, dx, 0, x, sizeof x);
    /* region: launch */
    culvert_grid grid = {.blocks = {N / THREADS}, .threads = {THREADS}};
    culvert_seq_launch(seq, block_sums, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(dsums), CULVERT_BUFFER(dx), CULVERT_U32(N)));
    /* end region */
    culvert_seq_download(seq, sums, dsums, 0, sizeof sums);
    culvert_future *f = culvert_seq_submit(seq);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("4 blocks: %g %g %g %g\n", sums[0], sums[1], sums[2], sums[3]);
    culvert_unref(f);

    if (culvert_module_kernel(culvert_value(load), "no_such", &err) == NULL)
        printf("no such kernel: %s\n", culvert_error_name(err.code));
    f = culvert_launch(s.stream, block_sums, &grid, CULVERT_ARGS(CULVERT_U32(N)));
    printf("too few arguments: %s\n", culvert_error_name(culvert_await(f, 60)));
    culvert_unref(f);

    weighted_total(s, culvert_value(load), x, sizeof x);
    culvert_unref(load); /* and with it the module, when no work needs it any more */
    snippet_close(&s);
    return 0;
}
