/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernels of the guide's programs.
 */
/* region: scale */
#include <culvert/kernel.h>

extern "C" __global__ void scale(float *x, float by, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] *= by;
    }
}
CULVERT_KERNEL(scale);
/* end region */

/* region: shared */
/* sums[b] = the sum of block b's part of x; a block has 2^k threads, at most 256. */
extern "C" __global__ void block_sums(float *sums, const float *x, unsigned n)
{
    __shared__ float part[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;

    part[t] = i < n ? x[i] : 0.0f;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            part[t] += part[t + half];
        }
    }
    if (t == 0) {
        sums[blockIdx.x] = part[0];
    }
}
CULVERT_KERNEL(block_sums);
/* end region */

/* region: variable */
__constant__ float weight = 1.0f;
CULVERT_GLOBAL(weight);
/* end region */

/* Cooperative: work[1] counts the blocks that have added their part to work[0]; the first one waits for all,
   and writes work[2] = the sum times the weight. */
extern "C" __global__ void total(float *work, const float *x, unsigned n)
{
    unsigned *came = reinterpret_cast<unsigned *>(work + 1);
    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    atomicAdd(work, sum);
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    __threadfence();
    atomicAdd(came, 1u);
    if (blockIdx.x == 0) {
        while (atomicAdd(came, 0u) < gridDim.x) {
            __nanosleep(100);
        }
        work[2] = atomicAdd(work, 0.0f) * weight;
    }
}
CULVERT_KERNEL(total);
