/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/kernel.h: for .cu sources that are built by culvert_add_kernels(), for the GPU by nvcc
 * and for the simulated driver by the host's C++ compiler. Include it first.
 *
 *     #include <culvert/kernel.h>
 *
 *     extern "C" __global__ void scale(float *x, float by, unsigned n)
 *     {
 *         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
 *         if (i < n) {
 *             x[i] *= by;
 *         }
 *     }
 *     CULVERT_KERNEL(scale);
 *
 * What holds for such a source:
 * - Kernels are extern "C" (checked), so that they have the same name on both sides, and each is
 *   followed by CULVERT_KERNEL. Parameters are passed by value and trivially copyable.
 * - A __device__ or __constant__ variable that the host is to find by name is followed by
 *   CULVERT_GLOBAL. On the simulator there is one of it a process, on the GPU one a loaded module.
 * - Dynamic shared memory is had by CULVERT_DYNAMIC_SHARED, not by `extern __shared__`.
 * - Results are the same on both sides for integers, and for + - * / sqrt and fma on floating-point
 *   numbers: neither side contracts a * b + c; write fmaf() where that is meant. The functions of
 *   <math.h> differ in the last bits, and the approximate ones (__expf and so on) by more.
 * - On the simulator the threads of a block run one after the other, each until it ends or waits
 *   for others: __syncthreads and its relatives, warp functions, __nanosleep. A thread that spins
 *   until another one of its block writes must call __nanosleep in the loop; one must not wait so
 *   for a later block, unless the launch is cooperative: then all blocks run at once. A wait that can
 *   never end is a failed launch, with a message that says so.
 * - A thread's stack there is 64 KiB (environment: CULVERT_SIM_STACK_KB).
 * - Code for one side only goes between #ifdef __CUDA_ARCH__ (the GPU),
 *   or #ifdef CULVERT_KERNEL_HOST (the simulator), and #endif. There are no textures, cooperative
 *   groups or inline PTX on the simulator; of clusters, a block knows its place (__clusterDim and
 *   its relatives, which a GPU has from compute capability 9.0), but shares neither memory nor a
 *   barrier with the others.
 */
#ifndef CULVERT_KERNEL_H
#define CULVERT_KERNEL_H

#ifdef __cplusplus

#if defined(__CUDACC__)

/*
 * CULVERT_KERNEL(name);
 *
 * Makes a kernel known to the simulator: its name and the sizes and offsets of its parameters.
 * At file scope, once, after the kernel. With nvcc it only checks that the kernel is extern "C".
 */
#define CULVERT_KERNEL(name) extern "C" __global__ decltype(name) name

/*
 * CULVERT_GLOBAL(name);
 *
 * Makes a __device__ or __constant__ variable known to the simulator, by the name under which
 * culvert_module_global() finds it. At file scope, once, after the variable, which is not static
 * and in no namespace.
 */
#define CULVERT_GLOBAL(name) static_assert(sizeof(name) > 0, "")

/*
 * CULVERT_DYNAMIC_SHARED(type, name);
 *
 * In a kernel: `type *name`, the shared memory of which the launch says the size, aligned to 16
 * bytes.
 */
#define CULVERT_DYNAMIC_SHARED(type, name)                                   \
    extern __shared__ __align__(16) unsigned char culvert__dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(culvert__dynamic_shared)

#else
#define CULVERT_KERNEL_HOST 1
#include "culvert/kernel_host.h"
#endif

#endif
#endif
