/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/kernel_host_warp.h: warp functions and atomics, part of culvert/kernel_host.h, which
 * includes it.
 */
#ifndef CULVERT_KERNEL_HOST_WARP_H
#define CULVERT_KERNEL_HOST_WARP_H

#ifdef __cplusplus

#include "culvert/kernel_host.h"

/* What each lane of a mask gave. Lanes that have ended are not in `came`. */
struct culvert__exchange {
    uint64_t values[CULVERT_SIM_WARP];
    uint32_t came;
    unsigned lane;
};

static inline void culvert__warp(culvert__exchange *e, unsigned kind, unsigned mask, uint64_t value)
{
    const uint3 index = threadIdx;
    const unsigned thread = culvert__thread;
    e->came = culvert__block->ops->warp(culvert__block, thread, kind, mask, value, e->values);
    culvert__resume(index, thread);
    e->lane = thread % CULVERT_SIM_WARP;
}

template <class T> static inline uint64_t culvert__to_bits(T value)
{
    static_assert(std::is_arithmetic<T>::value, "warp functions take numbers of at most 8 bytes");
    static_assert(sizeof(T) <= sizeof(uint64_t), "warp functions take numbers of at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> static inline T culvert__from_bits(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_SYNC, mask, 0);
}

/* The threads that run together: here each runs alone, which CUDA allows. */
static inline unsigned __activemask()
{
    return 1u << culvert__thread % CULVERT_SIM_WARP;
}

/* Votes */

static inline unsigned culvert__vote(unsigned mask, int predicate, unsigned *came)
{
    culvert__exchange e;
    unsigned yes = 0;
    culvert__warp(&e, CULVERT_SIM_WARP_VOTE, mask, predicate != 0);
    for (unsigned i = 0; i < CULVERT_SIM_WARP; i++) {
        yes |= static_cast<unsigned>(e.values[i]) << i;
    }
    *came = e.came;
    return yes;
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned came;
    return culvert__vote(mask, predicate, &came);
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    unsigned came;
    const unsigned yes = culvert__vote(mask, predicate, &came);
    return yes == came;
}

template <class T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    culvert__exchange e;
    unsigned same = 0;
    culvert__warp(&e, CULVERT_SIM_WARP_OTHER, mask, culvert__to_bits(value));
    for (unsigned i = 0; i < CULVERT_SIM_WARP; i++) {
        if ((e.came >> i & 1) && e.values[i] == e.values[e.lane]) {
            same |= 1u << i;
        }
    }
    return same;
}

template <class T> static inline unsigned __match_all_sync(unsigned mask, T value, int *all)
{
    culvert__exchange e;
    unsigned same = 0;
    culvert__warp(&e, CULVERT_SIM_WARP_OTHER, mask, culvert__to_bits(value));
    for (unsigned i = 0; i < CULVERT_SIM_WARP; i++) {
        if ((e.came >> i & 1) && e.values[i] == e.values[e.lane]) {
            same |= 1u << i;
        }
    }
    *all = same == e.came;
    return *all ? same : 0;
}

/* Shuffles. From a lane that did not come, as from one out of the group, it is the caller's own. */

template <class T>
static inline T culvert__shuffled(const culvert__exchange &e, unsigned from, T own)
{
    return e.came >> from % CULVERT_SIM_WARP & 1 ? culvert__from_bits<T>(e.values[from % 32]) : own;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_SHUFFLE, mask, culvert__to_bits(value));
    const unsigned w = static_cast<unsigned>(width), group = e.lane & ~(w - 1);
    return culvert__shuffled(e, group | (static_cast<unsigned>(from) & (w - 1)), value);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_SHUFFLE, mask, culvert__to_bits(value));
    const unsigned w = static_cast<unsigned>(width), in_group = e.lane & (w - 1);
    return culvert__shuffled(e, delta > in_group ? e.lane : e.lane - delta, value);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_SHUFFLE, mask, culvert__to_bits(value));
    const unsigned w = static_cast<unsigned>(width), in_group = e.lane & (w - 1);
    return culvert__shuffled(e, delta >= w - in_group ? e.lane : e.lane + delta, value);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_SHUFFLE, mask, culvert__to_bits(value));
    const unsigned w = static_cast<unsigned>(width), last = e.lane | (w - 1);
    const unsigned from = e.lane ^ static_cast<unsigned>(lane_mask);
    return culvert__shuffled(e, from > last ? e.lane : from, value);
}

/* Reductions over the lanes of a mask */

template <class T, class F> static inline T culvert__reduce(unsigned mask, T value, F combine)
{
    culvert__exchange e;
    culvert__warp(&e, CULVERT_SIM_WARP_OTHER, mask, culvert__to_bits(value));
    T sum = value;
    for (unsigned i = 0; i < CULVERT_SIM_WARP; i++) {
        if (i != e.lane && (e.came >> i & 1)) {
            sum = combine(sum, culvert__from_bits<T>(e.values[i]));
        }
    }
    return sum;
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return culvert__reduce(mask, value, [](unsigned a, unsigned b) { return a + b; });
}

static inline int __reduce_add_sync(unsigned mask, int value)
{
    return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}

#define CULVERT__REDUCE(name, type, expression)                                         \
    static inline type __reduce_##name##_sync(unsigned mask, type value)                \
    {                                                                                   \
        return culvert__reduce(mask, value, [](type a, type b) { return expression; }); \
    }
CULVERT__REDUCE(min, unsigned, (a < b ? a : b))
CULVERT__REDUCE(min, int, (a < b ? a : b))
CULVERT__REDUCE(max, unsigned, (a > b ? a : b))
CULVERT__REDUCE(max, int, (a > b ? a : b))
CULVERT__REDUCE(and, unsigned, (a & b))
CULVERT__REDUCE(or, unsigned, (a | b))
CULVERT__REDUCE(xor, unsigned, (a ^ b))
#undef CULVERT__REDUCE

/*
 * Atomics: on memory that several blocks, the host and other devices may use at once. Ordering is
 * stronger than CUDA's relaxed, so that __threadfence around them is enough for every tool.
 */

#define CULVERT__ATOMIC(name, type, expression)                                      \
    static inline type name(type *address, type value)                               \
    {                                                                                \
        return culvert__update(address, value,                                       \
                               [](type old, type v) -> type { return expression; }); \
    }                                                                                \
    static inline type name##_block(type *address, type value)                       \
    {                                                                                \
        return name(address, value);                                                 \
    }                                                                                \
    static inline type name##_system(type *address, type value)                      \
    {                                                                                \
        return name(address, value);                                                 \
    }

template <class T, class F> static inline T culvert__update(T *address, T value, F combine)
{
    T old, sum;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        sum = combine(old, value);
    } while (
        !__atomic_compare_exchange(address, &old, &sum, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return old;
}

#define CULVERT__ATOMIC_INTEGER(type)                                                  \
    static inline type atomicAdd(type *address, type value)                            \
    {                                                                                  \
        return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);                   \
    }                                                                                  \
    static inline type atomicAdd_block(type *address, type value)                      \
    {                                                                                  \
        return atomicAdd(address, value);                                              \
    }                                                                                  \
    static inline type atomicAdd_system(type *address, type value)                     \
    {                                                                                  \
        return atomicAdd(address, value);                                              \
    }                                                                                  \
    CULVERT__ATOMIC(atomicMin, type, (old < v ? old : v))                              \
    CULVERT__ATOMIC(atomicMax, type, (old > v ? old : v))                              \
    CULVERT__ATOMIC(atomicAnd, type, (old & v))                                        \
    CULVERT__ATOMIC(atomicOr, type, (old | v))                                         \
    CULVERT__ATOMIC(atomicXor, type, (old ^ v))                                        \
    CULVERT__ATOMIC(atomicExch, type, (static_cast<void>(old), v))                     \
    static inline type atomicCAS(type *address, type compare, type value)              \
    {                                                                                  \
        __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_ACQ_REL, \
                                    __ATOMIC_ACQUIRE);                                 \
        return compare;                                                                \
    }                                                                                  \
    static inline type atomicCAS_block(type *address, type compare, type value)        \
    {                                                                                  \
        return atomicCAS(address, compare, value);                                     \
    }                                                                                  \
    static inline type atomicCAS_system(type *address, type compare, type value)       \
    {                                                                                  \
        return atomicCAS(address, compare, value);                                     \
    }

CULVERT__ATOMIC_INTEGER(int)
CULVERT__ATOMIC_INTEGER(unsigned)
CULVERT__ATOMIC_INTEGER(unsigned long long)
CULVERT__ATOMIC(atomicMin, long long, (old < v ? old : v))
CULVERT__ATOMIC(atomicMax, long long, (old > v ? old : v))
CULVERT__ATOMIC(atomicAdd, float, (old + v))
CULVERT__ATOMIC(atomicAdd, double, (old + v))
CULVERT__ATOMIC(atomicExch, float, (static_cast<void>(old), v))
CULVERT__ATOMIC(atomicSub, int,
                (static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(v))))
CULVERT__ATOMIC(atomicSub, unsigned, (old - v))
CULVERT__ATOMIC(atomicInc, unsigned, (old >= v ? 0 : old + 1))
CULVERT__ATOMIC(atomicDec, unsigned, (old == 0 || old > v ? v : old - 1))
#undef CULVERT__ATOMIC_INTEGER
#undef CULVERT__ATOMIC

#endif
#endif
