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
