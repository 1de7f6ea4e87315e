/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels that go wrong. On a GPU each of them costs the process its device. */
#include <culvert/kernel.h>

#include <assert.h>

extern "C" __global__ void trap_at(unsigned thread, unsigned *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x == thread) {
        __trap();
    }
    __syncthreads();
    out[threadIdx.x] = 2;
}
CULVERT_KERNEL(trap_at);

extern "C" __global__ void assert_below(unsigned limit)
{
    assert(threadIdx.x + blockIdx.x * blockDim.x < limit);
}
CULVERT_KERNEL(assert_below);

/* Lane 0 waits for the warp, the others for the block: nobody goes on. */
extern "C" __global__ void cross_wait(unsigned *out)
{
    if (threadIdx.x == 0) {
        __syncwarp();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}
CULVERT_KERNEL(cross_wait);

/* A shuffle whose mask lacks the lane itself. */
extern "C" __global__ void not_in_mask(int *out)
{
    out[threadIdx.x] = __shfl_sync(~(1u << threadIdx.x % 32), (int)threadIdx.x, 0);
}
CULVERT_KERNEL(not_in_mask);

/* Lanes that do not agree about who takes part, or in what. */
extern "C" __global__ void mixed_masks(unsigned *out)
{
    __syncwarp(threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u);
    out[threadIdx.x] = 1;
}
CULVERT_KERNEL(mixed_masks);

extern "C" __global__ void mixed_kinds(unsigned *out)
{
    if (threadIdx.x % 2) {
        out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
    } else {
        out[threadIdx.x] = __shfl_sync(0xffffffffu, 1u, 0);
    }
}
CULVERT_KERNEL(mixed_kinds);

/* For ever, unless it is stopped. */
extern "C" __global__ void spin(volatile unsigned *flag)
{
    while (*flag == 0) {
        __nanosleep(1000);
    }
}
CULVERT_KERNEL(spin);

/* Recursion without end, so that a stack is used up. */
static __device__ __noinline__ unsigned deep(volatile unsigned *p, unsigned n)
{
    volatile unsigned big[64];
    big[n % 64] = *p;
    return n == 0 ? 0 : deep(p, n - 1) + big[n % 64];
}

extern "C" __global__ void recurse(unsigned depth, unsigned *out)
{
    out[0] = deep(out, depth);
}
CULVERT_KERNEL(recurse);
