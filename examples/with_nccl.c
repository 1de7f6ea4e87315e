/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL in a sequence: an all-reduce of one rank, whose result is what went in. The communicator is made
 * before, which blocks; the function that culvert_seq_call calls enqueues.
 */
#include "program.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <stdio.h>

enum { N = 4096, BYTES = N * sizeof(float) };

static const char usage[] = "usage: with-nccl [--device N]\n"
                            "\n"
                            "Sums over one rank with NCCL in a sequence, and compares.\n";

typedef struct reduction {
    ncclComm_t comm;
    culvert_buffer *in, *out;
} reduction;

static float in[N], out[N];

/* On the loop's thread, while the sequence goes to the driver: it enqueues, and waits for nothing. */
static int reduce(struct CUstream_st *stream, void *arg)
{
    const reduction *r = arg;
    const void *from = (const void *)(uintptr_t)culvert_buffer_address(r->in);
    void *to = (void *)(uintptr_t)culvert_buffer_address(r->out);
    return (int)ncclAllReduce(from, to, N, ncclFloat, ncclSum, r->comm, stream);
}

static int right(void)
{
    for (int i = 0; i < N; i++)
        if (in[i] != out[i])
            return 0;
    return 1;
}

static void run(program *p, reduction *r)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_new(p->gpu, NULL, &err);
    if (stream == NULL || (r->in = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL ||
        (r->out = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL) {
        program_fail(p, &err);
    } else {
        culvert_seq *seq = culvert_seq_begin(stream);
        culvert_seq_upload(seq, r->in, 0, in, BYTES);
        culvert_seq_call(seq, reduce, r, NULL);
        culvert_seq_download(seq, out, r->out, 0, BYTES);
        culvert_future *done = culvert_seq_submit(seq);
        if (culvert_await(done, INFINITY) != CULVERT_OK) {
            program_fail(p, culvert_get_error(done));
        } else {
            int ok = right();
            printf("NCCL: the sum of %d values over one rank is %s\n", N, ok ? "right" : "wrong");
            p->status = ok ? p->status : EXIT_FAILED;
        }
        culvert_unref(done);
    }
    culvert_buffer_unref(r->in);
    culvert_buffer_unref(r->out);
    culvert_stream_unref(stream);
}

int main(int argc, char **argv)
{
    program p = {.name = "with-nccl", .driver = "cuda"};
    reduction r = {0};
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    if (program_open(&p, NULL) == 0) {
        /* Start-up: it allocates and may block. The runtime's context is the one that Culvert uses. */
        if (cudaSetDevice(p.device) != cudaSuccess ||
            ncclCommInitAll(&r.comm, 1, &p.device) != ncclSuccess) {
            fputs("with-nccl: ncclCommInitAll failed\n", stderr);
            p.status = EXIT_FAILED;
        } else {
            run(&p, &r);
            ncclCommDestroy(r.comm);
        }
    }
    return program_close(&p);
}
