/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cuFFT in a sequence: the transform of a signal as one future, compared with the definition. The plan is
 * made before; the function that culvert_seq_call calls sets the stream and enqueues.
 */
#include "program.h"

#include <cuda_runtime_api.h>
#include <cufft.h>
#include <math.h>
#include <stdio.h>

enum { N = 256, BYTES = N * sizeof(cufftComplex) };
static const double tolerance = 1e-3;

static const char usage[] =
    "usage: with-cufft [--device N]\n"
    "\n"
    "Transforms a signal with cuFFT in a sequence, and compares with the host.\n";

typedef struct transform {
    cufftHandle plan;
    culvert_buffer *data;
} transform;

static cufftComplex in[N], out[N];

/* On the loop's thread, while the sequence goes to the driver: it enqueues, and waits for nothing. */
static int execute(struct CUstream_st *stream, void *arg)
{
    const transform *t = arg;
    cufftComplex *data = (cufftComplex *)(uintptr_t)culvert_buffer_address(t->data);
    cufftResult result = cufftSetStream(t->plan, stream);
    if (result == CUFFT_SUCCESS)
        result = cufftExecC2C(t->plan, data, data, CUFFT_FORWARD);
    return (int)result;
}

static int right(void)
{
    const double turn = 2 * acos(-1.0) / N;
    for (int k = 0; k < N; k++) {
        double re = 0, im = 0;
        for (int n = 0; n < N; n++) {
            double c = cos(turn * (double)(n * k % N)), s = sin(turn * (double)(n * k % N));
            re += in[n].x * c + in[n].y * s;
            im += in[n].y * c - in[n].x * s;
        }
        if (!(fabs(re - out[k].x) < tolerance * N && fabs(im - out[k].y) < tolerance * N))
            return 0;
    }
    return 1;
}

static void run(program *p, transform *t)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_new(p->gpu, NULL, &err);
    if (stream == NULL || (t->data = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL) {
        program_fail(p, &err);
    } else {
        culvert_seq *seq = culvert_seq_begin(stream);
        culvert_seq_upload(seq, t->data, 0, in, BYTES);
        culvert_seq_call(seq, execute, t, NULL);
        culvert_seq_download(seq, out, t->data, 0, BYTES);
        culvert_future *done = culvert_seq_submit(seq);
        if (culvert_await(done, INFINITY) != CULVERT_OK) {
            program_fail(p, culvert_get_error(done));
        } else {
            int ok = right();
            printf("cuFFT: the transform of %d values is %s\n", N, ok ? "right" : "wrong");
            p->status = ok ? p->status : EXIT_FAILED;
        }
        culvert_unref(done);
    }
    culvert_buffer_unref(t->data);
    culvert_stream_unref(stream);
}

int main(int argc, char **argv)
{
    program p = {.name = "with-cufft", .driver = "cuda"};
    transform t = {0};
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    for (int i = 0; i < N; i++)
        in[i] = (cufftComplex){(float)(i % 11 - 5), (float)(i % 3 - 1)};
    if (program_open(&p, NULL) == 0) {
        /* Start-up: it allocates and may block. The runtime's context is the one that Culvert uses. */
        if (cudaSetDevice(p.device) != cudaSuccess ||
            cufftPlan1d(&t.plan, N, CUFFT_C2C, 1) != CUFFT_SUCCESS) {
            fputs("with-cufft: cufftPlan1d failed\n", stderr);
            p.status = EXIT_FAILED;
        } else {
            run(&p, &t);
            cufftDestroy(t.plan);
        }
    }
    return program_close(&p);
}
