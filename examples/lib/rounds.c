/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * States: a round is on the device; its continuation begins the next, or downloads y; that one's compares.
 */
#include "rounds.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 16, ONE = 0x3f800000 };

static void compare(culvert_future *over, void *arg)
{
    rounds *r = arg;
    if (culvert_get_error(over) != NULL) {
        program_fail(r->p, culvert_get_error(over));
        return;
    }
    r->right = 1;
    for (int i = 0; i < N; i++)
        r->right &= r->result[i] == (float)r->done;
}

static void next(rounds *r);

static void round_over(culvert_future *over, void *arg)
{
    rounds *r = arg;
    if (culvert_get_error(over) != NULL) {
        program_fail(r->p, culvert_get_error(over));
        return;
    }
    r->done++;
    r->left--;
    next(r);
}

static void next(rounds *r)
{
    culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};
    if (r->left > 0)
        culvert_on_settled(culvert_launch(r->stream, r->saxpy, &grid,
                                          CULVERT_ARGS(CULVERT_U32(N), CULVERT_F32(1.0f),
                                                       CULVERT_BUFFER(r->x), CULVERT_BUFFER(r->y))),
                           round_over, r, NULL);
    else
        culvert_on_settled(culvert_download(r->stream, r->result, r->y, 0, N * sizeof(float)),
                           compare, r, NULL);
}

int rounds_begin(rounds *r, program *p, unsigned count)
{
    culvert_error err = CULVERT_ERROR_INIT;
    *r = (rounds){.p = p, .left = count};
    r->saxpy = program_kernel(p, "saxpy");
    if (r->saxpy == NULL)
        return -1;
    culvert_error_set(&err, CULVERT_ENOMEM, 0, "no memory for the result");
    if ((r->result = malloc(N * sizeof(float))) == NULL ||
        (r->stream = culvert_stream_new(p->gpu, NULL, &err)) == NULL ||
        (r->x = culvert_buffer_new(p->gpu, N * sizeof(float), &err)) == NULL ||
        (r->y = culvert_buffer_new(p->gpu, N * sizeof(float), &err)) == NULL) {
        program_fail(p, &err);
        return -1;
    }
    culvert_detach(culvert_fill(r->stream, r->x, 0, N * sizeof(float), ONE, 4));
    culvert_detach(culvert_fill(r->stream, r->y, 0, N * sizeof(float), 0, 4));
    next(r);
    return 0;
}

void rounds_end(rounds *r)
{
    if (r->p->status == 0 && r->p->signal == 0 && !r->right) {
        fprintf(stderr, "%s: the result is wrong\n", r->p->name);
        r->p->status = EXIT_FAILED;
    }
    culvert_buffer_unref(r->x);
    culvert_buffer_unref(r->y);
    culvert_stream_unref(r->stream);
    free(r->result);
}
