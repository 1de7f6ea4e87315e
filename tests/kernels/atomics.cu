/* SPDX-License-Identifier: BSD-2-Clause */
/* Many threads, one word. */
#include <culvert/kernel.h>

/* bins[256] += how often each byte is in `in`, counted by block first. */
extern "C" __global__ void histogram(const unsigned char *in, unsigned n, unsigned *bins)
{
    __shared__ unsigned local[256];
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
        local[i] = 0;
    }
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[in[i]], 1u);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
        atomicAdd(&bins[i], local[i]);
    }
}
CULVERT_KERNEL(histogram);

struct atomic_words {
    int add, sub, min, max;
    unsigned band, bor, bxor, inc, dec, umax;
    unsigned long long wide, exchanged, cas;
    float sum;
};

extern "C" __global__ void every_atomic(atomic_words *w, const int *in)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const int v = in[i];
    atomicAdd(&w->add, v);
    atomicSub(&w->sub, v);
    atomicMin(&w->min, v);
    atomicMax(&w->max, v);
    atomicAnd(&w->band, ~(1u << i % 31));
    atomicOr(&w->bor, 1u << i % 32);
    atomicXor(&w->bxor, (unsigned)v);
    atomicInc(&w->inc, 9u);
    atomicDec(&w->dec, 9u);
    atomicMax(&w->umax, (unsigned)v);
    atomicAdd(&w->wide, 1ull << 33);
    atomicExch(&w->exchanged, 5ull);
    atomicAdd(&w->sum, 0.5f); /* exact: small multiples of a half */
    unsigned long long old = 0, seen;
    while ((seen = atomicCAS(&w->cas, old, old + 3)) != old) {
        old = seen;
    }
}
CULVERT_KERNEL(every_atomic);
