/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels for launches that are more than a grid of blocks, and variables of a module. */
#include <culvert/kernel.h>

/* Every block waits until all have come: that ends only where all run at once. */
extern "C" __global__ void meet(unsigned *came, unsigned *seen)
{
    if (threadIdx.x == 0) {
        atomicAdd(came, 1u);
        while (atomicAdd(came, 0u) < gridDim.x) {
            __nanosleep(100);
        }
        seen[blockIdx.x] = atomicAdd(came, 0u);
    }
    __syncthreads();
}
CULVERT_KERNEL(meet);

/* out[8 b ..]: what block b of a grid in x and y knows of its cluster. */
extern "C" __global__ void cluster_shape(unsigned *out)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    unsigned *to = out + 8 * (blockIdx.x + gridDim.x * blockIdx.y);
    const dim3 n = __clusterDim(), at = __clusterRelativeBlockIdx(), own = __clusterIdx();
    to[0] = n.x;
    to[1] = n.y;
    to[2] = at.x;
    to[3] = at.y;
    to[4] = own.x;
    to[5] = own.y;
    to[6] = __clusterRelativeBlockRank();
    to[7] = __clusterGridDimInClusters().x;
#else
    static_cast<void>(out);
#endif
}
CULVERT_KERNEL(cluster_shape);

/* Sums up so many words of dynamic shared memory, of 64 threads, after all blocks have met. */
extern "C" __global__ void shared_sum(unsigned words, unsigned *out)
{
    CULVERT_DYNAMIC_SHARED(unsigned, word);
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        word[i] = i & 255u;
    }
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        sum += word[words - 1 - i];
    }
    atomicAdd(out, sum);
}
CULVERT_KERNEL(shared_sum);

__device__ unsigned table[4] = {1, 2, 3, 4};
CULVERT_GLOBAL(table);
__constant__ unsigned factor = 10;
CULVERT_GLOBAL(factor);
__device__ unsigned long long counter;
CULVERT_GLOBAL(counter);

/* out[i] = table[i] * factor, and counts its launches. */
extern "C" __global__ void use_table(unsigned *out)
{
    out[threadIdx.x] = table[threadIdx.x] * factor;
    if (threadIdx.x == 0) {
        counter++;
    }
}
CULVERT_KERNEL(use_table);
