/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/kernel_host.h: the words of CUDA C++ for the host's C++ compiler (gcc or clang, C++17).
 * Included by culvert/kernel.h, which says what holds; not by programs.
 *
 * A kernel stays a function, called once a thread. What differs by thread is thread-local: the
 * simulator's device threads run different blocks at once, and all threads of a block run on one of
 * them. __shared__ variables are thread-local for the same reason.
 *
 * All is internal to the source's object, which needs neither the C++ library nor exceptions.
 */
#ifndef CULVERT_KERNEL_HOST_H
#define CULVERT_KERNEL_HOST_H

#ifdef __cplusplus

#include "culvert/sim_module.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

/* Words */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n)    __attribute__((aligned(n)))
#define __forceinline__ inline
#define __noinline__    /* may stand in __attribute__((...)) of a system header */

/* Vectors, with CUDA's alignment: pairs and quadruples are aligned to their size, to 16 at most. */

#define CULVERT__VECTORS(name, type, align2, align4)                     \
    struct name##1                                                       \
    {                                                                    \
        type x;                                                          \
    };                                                                   \
    struct alignas(align2) name##2                                       \
    {                                                                    \
        type x, y;                                                       \
    };                                                                   \
    struct name##3                                                       \
    {                                                                    \
        type x, y, z;                                                    \
    };                                                                   \
    struct alignas(align4) name##4                                       \
    {                                                                    \
        type x, y, z, w;                                                 \
    };                                                                   \
    static inline name##1 make_##name##1(type x)                         \
    {                                                                    \
        return name##1 {x};                                              \
    }                                                                    \
    static inline name##2 make_##name##2(type x, type y)                 \
    {                                                                    \
        return name##2 {x, y};                                           \
    }                                                                    \
    static inline name##3 make_##name##3(type x, type y, type z)         \
    {                                                                    \
        return name##3 {x, y, z};                                        \
    }                                                                    \
    static inline name##4 make_##name##4(type x, type y, type z, type w) \
    {                                                                    \
        return name##4 {x, y, z, w};                                     \
    }

CULVERT__VECTORS(char, signed char, 2, 4)
CULVERT__VECTORS(uchar, unsigned char, 2, 4)
CULVERT__VECTORS(short, short, 4, 8)
CULVERT__VECTORS(ushort, unsigned short, 4, 8)
CULVERT__VECTORS(int, int, 8, 16)
CULVERT__VECTORS(uint, unsigned, 8, 16)
CULVERT__VECTORS(long, long, (2 * sizeof(long)), 16)
CULVERT__VECTORS(ulong, unsigned long, (2 * sizeof(long)), 16)
CULVERT__VECTORS(longlong, long long, 16, 16)
CULVERT__VECTORS(ulonglong, unsigned long long, 16, 16)
CULVERT__VECTORS(float, float, 8, 16)
CULVERT__VECTORS(double, double, 16, 16)
#undef CULVERT__VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/* Where the running thread is */

static constexpr int warpSize = CULVERT_SIM_WARP;

[[maybe_unused]] static thread_local uint3 threadIdx;
[[maybe_unused]] static thread_local uint3 blockIdx;
[[maybe_unused]] static thread_local dim3 blockDim;
[[maybe_unused]] static thread_local dim3 gridDim;

static thread_local culvert_sim_block *culvert__block;
static thread_local unsigned culvert__thread; /* its index in the block */
static thread_local bool culvert__waited;     /* it let others run: they changed what is above */

static inline void culvert__resume(uint3 index, unsigned thread)
{
    threadIdx = index;
    culvert__thread = thread;
    culvert__waited = true;
}

[[noreturn]] static inline void culvert__fault(int result, const char *message)
{
    culvert__block->ops->fault(culvert__block, culvert__thread, result, message);
    __builtin_unreachable();
}

[[noreturn]] static inline void __trap()
{
    culvert__fault(719, "__trap()");
}

/*
 * A failed assertion ends the launch with CUDA_ERROR_ASSERT, not the process. <assert.h> may be
 * included again: glibc's assert() calls __assert_fail, which is ours from here on.
 */
[[noreturn]] [[maybe_unused]] static void culvert__assert_fail(const char *what, const char *file,
                                                               unsigned line, const char *function)
{
    char text[512];
    snprintf(text, sizeof text, "%s:%u: %s: Assertion `%s` failed.", file, line, function, what);
    fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
            file, line, function, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
            threadIdx.z, what);
    culvert__fault(710, text);
}
#define __assert_fail culvert__assert_fail
#ifndef NDEBUG
#undef assert
#define assert(x) ((x) ? (void)0 : culvert__assert_fail(#x, __FILE__, __LINE__, __func__))
#endif

/* Clusters, as of compute capability 9.0: where the running block is in its own */

static inline dim3 __clusterDim()
{
    const uint32_t *n = culvert__block->cluster_dim;
    return dim3(n[0], n[1], n[2]);
}

static inline unsigned __clusterSizeInBlocks()
{
    const uint32_t *n = culvert__block->cluster_dim;
    return n[0] * n[1] * n[2];
}

static inline dim3 __clusterIdx()
{
    const uint32_t *n = culvert__block->cluster_dim;
    return dim3(blockIdx.x / n[0], blockIdx.y / n[1], blockIdx.z / n[2]);
}

static inline dim3 __clusterRelativeBlockIdx()
{
    const uint32_t *n = culvert__block->cluster_dim;
    return dim3(blockIdx.x % n[0], blockIdx.y % n[1], blockIdx.z % n[2]);
}

static inline unsigned __clusterRelativeBlockRank()
{
    const uint32_t *n = culvert__block->cluster_dim;
    const dim3 i = __clusterRelativeBlockIdx();
    return i.x + n[0] * (i.y + n[1] * i.z);
}

static inline dim3 __clusterGridDimInClusters()
{
    const uint32_t *n = culvert__block->cluster_dim;
    return dim3(gridDim.x / n[0], gridDim.y / n[1], gridDim.z / n[2]);
}

/* Dynamic shared memory: see culvert/kernel.h */
#define CULVERT_DYNAMIC_SHARED(type, name) \
    type *name = static_cast<type *>(culvert__block->dynamic_shared)

/* Barriers and fences */

static inline unsigned culvert__barrier(int predicate, unsigned *came)
{
    const uint3 index = threadIdx;
    const unsigned thread = culvert__thread;
    const unsigned n = culvert__block->ops->barrier(culvert__block, thread, predicate, came);
    culvert__resume(index, thread);
    return n;
}

static inline void __syncthreads()
{
    culvert__barrier(0, nullptr);
}

static inline int __syncthreads_count(int predicate)
{
    return static_cast<int>(culvert__barrier(predicate, nullptr));
}

static inline int __syncthreads_or(int predicate)
{
    return culvert__barrier(predicate, nullptr) != 0;
}

static inline int __syncthreads_and(int predicate)
{
    unsigned came;
    const unsigned n = culvert__barrier(predicate, &came);
    return n == came;
}

/* Stands where a thread waits for another's write: the others of its block get to run. */
static inline void __nanosleep(unsigned)
{
    const uint3 index = threadIdx;
    const unsigned thread = culvert__thread;
    culvert__block->ops->yield(culvert__block, thread);
    culvert__resume(index, thread);
}

/* ThreadSanitizer knows no fences, and gcc says so; the atomics below order as well. */
#if defined(__SANITIZE_THREAD__)
static inline void __threadfence()
{
    __asm__ volatile("" ::: "memory");
}
#else
static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#endif
static inline void __threadfence_block()
{
    __threadfence();
}
static inline void __threadfence_system()
{
    __threadfence();
}

static inline long long clock64()
{
    return static_cast<long long>(culvert__block->ops->clock_ns(culvert__block));
}

#include "culvert/kernel_host_math.h"
#include "culvert/kernel_host_module.h"
#include "culvert/kernel_host_warp.h"

#endif
#endif
