/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of a block that work together: shared memory and barriers. */
#include <culvert/kernel.h>

#define REDUCE_THREADS 256
#define SCAN_THREADS   512
#define TILE           16

/* out[block] = the sum of the block's part of `in`; wraps. */
extern "C" __global__ void block_sum(const unsigned *in, unsigned *out, unsigned n)
{
    __shared__ unsigned part[REDUCE_THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) {
            part[t] += part[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}
CULVERT_KERNEL(block_sum);

/* Inclusive prefix sums within each block. */
extern "C" __global__ void block_scan(const unsigned *in, unsigned *out, unsigned n)
{
    __shared__ unsigned sums[2][SCAN_THREADS];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    unsigned from = 0;
    sums[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        sums[1 - from][t] = sums[from][t] + (t >= step ? sums[from][t - step] : 0);
        from = 1 - from;
        __syncthreads();
    }
    if (i < n) {
        out[i] = sums[from][t];
    }
}
CULVERT_KERNEL(block_scan);

/* out (columns x rows) = in (rows x columns) transposed; blocks of TILE x TILE. */
extern "C" __global__ void transpose(const float *in, float *out, unsigned rows, unsigned columns)
{
    __shared__ float tile[TILE][TILE + 1];
    unsigned x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < columns && y < rows) {
        tile[threadIdx.y][threadIdx.x] = in[(size_t)y * columns + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < rows && y < columns) {
        out[(size_t)y * rows + x] = tile[threadIdx.x][threadIdx.y];
    }
}
CULVERT_KERNEL(transpose);

/* Dynamic shared memory: the block's part of `in`, reversed. */
extern "C" __global__ void block_reverse(const unsigned *in, unsigned *out)
{
    CULVERT_DYNAMIC_SHARED(unsigned, values);
    const unsigned t = threadIdx.x;
    const size_t base = (size_t)blockIdx.x * blockDim.x;
    values[t] = in[base + t];
    __syncthreads();
    out[base + t] = values[blockDim.x - 1 - t];
}
CULVERT_KERNEL(block_reverse);

/* The barriers that also count: four numbers a block. */
extern "C" __global__ void block_vote(const unsigned *in, unsigned limit, int *out)
{
    const int below = in[blockIdx.x * blockDim.x + threadIdx.x] < limit;
    const int count = __syncthreads_count(below);
    const int all = __syncthreads_and(below);
    const int any = __syncthreads_or(below);
    const int all_of_all = __syncthreads_and(1);
    if (threadIdx.x == 0) {
        out[4 * blockIdx.x] = count;
        out[4 * blockIdx.x + 1] = all != 0;
        out[4 * blockIdx.x + 2] = any != 0;
        out[4 * blockIdx.x + 3] = all_of_all != 0;
    }
}
CULVERT_KERNEL(block_vote);

/* Threads from `alive` on end before the barrier: the others do not wait for them. */
extern "C" __global__ void early_exit(unsigned *out, unsigned alive)
{
    __shared__ unsigned seen[1024];
    const unsigned t = threadIdx.x;
    if (t >= alive) {
        return;
    }
    seen[t] = t + 1;
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = 0; i < alive; i++) {
        sum += seen[i];
    }
    out[t] = sum;
}
CULVERT_KERNEL(early_exit);

/* A thread that waits for what another one of its block writes later; out[2] is not 7 before. */
extern "C" __global__ void hand_over(volatile unsigned *out)
{
    if (threadIdx.x == blockDim.x - 1) {
        out[0] = 42;
        __threadfence();
        out[2] = 7;
    }
    if (threadIdx.x == 0) {
        while (out[2] != 7) {
            __nanosleep(100);
        }
        out[1] = out[0] + 1;
    }
}
CULVERT_KERNEL(hand_over);
