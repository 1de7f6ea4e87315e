/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of a warp that work together: shuffles, votes, reductions. */
#include <culvert/kernel.h>

#define FULL 0xffffffffu

/* out[warp] = the sum of the warp's 32 numbers, by shuffles. */
extern "C" __global__ void warp_sum(const int *in, int *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = in[i];
    for (unsigned half = 16; half > 0; half /= 2) {
        sum += __shfl_down_sync(FULL, sum, half);
    }
    if (i % 32 == 0) {
        out[i / 32] = sum;
    }
}
CULVERT_KERNEL(warp_sum);

/* Eight numbers a thread: one for each kind of shuffle, in groups of 32, 16 and 8. */
extern "C" __global__ void shuffles(const float *in, float *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const float v = in[i];
    const int lane = (int)(i % 32);
    out[8 * i + 0] = __shfl_sync(FULL, v, lane * 7 % 32);
    out[8 * i + 1] = __shfl_sync(FULL, v, 3, 8);
    out[8 * i + 2] = __shfl_up_sync(FULL, v, 5);
    out[8 * i + 3] = __shfl_up_sync(FULL, v, 3, 16);
    out[8 * i + 4] = __shfl_down_sync(FULL, v, 5);
    out[8 * i + 5] = __shfl_down_sync(FULL, v, 3, 16);
    out[8 * i + 6] = __shfl_xor_sync(FULL, v, 9);
    out[8 * i + 7] = __shfl_xor_sync(FULL, v, 12, 8);
}
CULVERT_KERNEL(shuffles);

/* Eight bytes at a time. */
extern "C" __global__ void shuffle_wide(const unsigned long long *in, unsigned long long *out)
{
    const unsigned i = threadIdx.x;
    out[i] = __shfl_xor_sync(FULL, in[i], 31);
}
CULVERT_KERNEL(shuffle_wide);

/* Three numbers a thread: ballot, any, all; odd and even lanes apart. */
extern "C" __global__ void votes(const unsigned *in, unsigned limit, unsigned *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const int below = in[i] < limit;
    if (i & 1) {
        out[3 * i] = __ballot_sync(0xaaaaaaaau, below);
        out[3 * i + 1] = __any_sync(0xaaaaaaaau, below) != 0;
        out[3 * i + 2] = __all_sync(0xaaaaaaaau, below) != 0;
    } else {
        out[3 * i] = __ballot_sync(0x55555555u, below);
        out[3 * i + 1] = __any_sync(0x55555555u, below) != 0;
        out[3 * i + 2] = __all_sync(0x55555555u, below) != 0;
    }
}
CULVERT_KERNEL(votes);

/* The last warp of a block may have fewer lanes. */
extern "C" __global__ void partial_warp(unsigned *out)
{
    const unsigned n = blockDim.x - threadIdx.x / 32 * 32;
    const unsigned mask = n >= 32 ? FULL : (1u << n) - 1;
    __syncwarp(mask);
    out[threadIdx.x] = __ballot_sync(mask, threadIdx.x % 3 == 0);
}
CULVERT_KERNEL(partial_warp);

/* Which lanes have the same number. */
extern "C" __global__ void matches(const unsigned *in, unsigned *out)
{
    int all;
    out[2 * threadIdx.x] = __match_any_sync(FULL, in[threadIdx.x]);
    out[2 * threadIdx.x + 1] = __match_all_sync(FULL, in[threadIdx.x] > 1000u ? 0u : 1u, &all);
}
CULVERT_KERNEL(matches);

/* Warp sums, then a sum of these: both kinds of waiting in one kernel. */
extern "C" __global__ void warp_then_block(const int *in, int *out)
{
    __shared__ int sums[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int m = 16; m > 0; m /= 2) {
        v += __shfl_xor_sync(FULL, v, m);
    }
    if (lane == 0) {
        sums[warp] = v;
    }
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? sums[lane] : 0;
        for (int m = 16; m > 0; m /= 2) {
            v += __shfl_xor_sync(FULL, v, m);
        }
        if (lane == 0) {
            out[blockIdx.x] = v;
        }
    }
}
CULVERT_KERNEL(warp_then_block);
