/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cuBLAS in a sequence: C = A B, uploaded, multiplied and downloaded as one future. The library's calls
 * are made by a function that culvert_seq_call calls with the stream; its handle is made before.
 */
#include "program.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>

enum { N = 64, BYTES = N * N * sizeof(float) };

static const char usage[] =
    "usage: with-cublas [--device N]\n"
    "\n"
    "Multiplies two matrices with cuBLAS in a sequence, and compares with the host.\n";

typedef struct product {
    cublasHandle_t blas;
    culvert_buffer *a, *b, *c;
} product;

static float a[N * N], b[N * N], c[N * N];

static float *device(culvert_buffer *buffer)
{
    return (float *)(uintptr_t)culvert_buffer_address(buffer);
}

/* On the loop's thread, while the sequence goes to the driver: it enqueues, and waits for nothing. */
static int multiply(struct CUstream_st *stream, void *arg)
{
    const product *p = arg;
    const float one = 1, zero = 0;
    cublasStatus_t status = cublasSetStream(p->blas, stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSgemm(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, device(p->a), N,
                             device(p->b), N, &zero, device(p->c), N);
    return (int)status;
}

/* Small whole numbers, so the sums are exact in any order. Columns first, as cuBLAS has it. */
static int right(void)
{
    for (int col = 0; col < N; col++)
        for (int row = 0; row < N; row++) {
            float sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[k * N + row] * b[col * N + k];
            if (c[col * N + row] != sum)
                return 0;
        }
    return 1;
}

static void run(program *p, product *m)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_new(p->gpu, NULL, &err);
    if (stream == NULL || (m->a = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL ||
        (m->b = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL ||
        (m->c = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL) {
        program_fail(p, &err);
    } else {
        culvert_seq *seq = culvert_seq_begin(stream);
        culvert_seq_upload(seq, m->a, 0, a, BYTES);
        culvert_seq_upload(seq, m->b, 0, b, BYTES);
        culvert_seq_call(seq, multiply, m, NULL);
        culvert_seq_download(seq, c, m->c, 0, BYTES);
        culvert_future *done = culvert_seq_submit(seq);
        if (culvert_await(done, INFINITY) != CULVERT_OK)
            program_fail(p, culvert_get_error(done));
        else
            printf("cuBLAS: the product of two %d x %d matrices is %s\n", N, N,
                   right() ? "right" : "wrong");
        culvert_unref(done);
    }
    if (p->status == 0 && !right())
        p->status = EXIT_FAILED;
    culvert_buffer_unref(m->a);
    culvert_buffer_unref(m->b);
    culvert_buffer_unref(m->c);
    culvert_stream_unref(stream);
}

int main(int argc, char **argv)
{
    program p = {.name = "with-cublas", .driver = "cuda"};
    product m = {0};
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = (float)(i % 5 - 2);
    }
    if (program_open(&p, NULL) == 0) {
        /* Start-up: it allocates and may block. The runtime's context is the one that Culvert uses. */
        if (cudaSetDevice(p.device) != cudaSuccess ||
            cublasCreate(&m.blas) != CUBLAS_STATUS_SUCCESS) {
            fputs("with-cublas: cublasCreate failed\n", stderr);
            p.status = EXIT_FAILED;
        } else {
            run(&p, &m);
            cublasDestroy(m.blas);
        }
    }
    return program_close(&p);
}
