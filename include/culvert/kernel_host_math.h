/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/kernel_host_math.h: arithmetic by CUDA's names, part of culvert/kernel_host.h, which
 * includes it. The functions of <math.h> are there under their own names.
 */
#ifndef CULVERT_KERNEL_HOST_MATH_H
#define CULVERT_KERNEL_HOST_MATH_H

#ifdef __cplusplus

#include "culvert/kernel_host.h"

#define CULVERT__MIN_MAX(result, a, b)                                                   \
    static inline constexpr result min(a x, b y)                                         \
    {                                                                                    \
        return static_cast<result>(y) < static_cast<result>(x) ? static_cast<result>(y)  \
                                                               : static_cast<result>(x); \
    }                                                                                    \
    static inline constexpr result max(a x, b y)                                         \
    {                                                                                    \
        return static_cast<result>(x) < static_cast<result>(y) ? static_cast<result>(y)  \
                                                               : static_cast<result>(x); \
    }
CULVERT__MIN_MAX(int, int, int)
CULVERT__MIN_MAX(unsigned, unsigned, unsigned)
CULVERT__MIN_MAX(unsigned, int, unsigned)
CULVERT__MIN_MAX(unsigned, unsigned, int)
CULVERT__MIN_MAX(long, long, long)
CULVERT__MIN_MAX(unsigned long, unsigned long, unsigned long)
CULVERT__MIN_MAX(unsigned long, long, unsigned long)
CULVERT__MIN_MAX(unsigned long, unsigned long, long)
CULVERT__MIN_MAX(long long, long long, long long)
CULVERT__MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CULVERT__MIN_MAX(unsigned long long, long long, unsigned long long)
CULVERT__MIN_MAX(unsigned long long, unsigned long long, long long)
#undef CULVERT__MIN_MAX

/* As fmin and fmax: a NaN is passed over. */
static inline float min(float x, float y)
{
    return fminf(x, y);
}
static inline float max(float x, float y)
{
    return fmaxf(x, y);
}
static inline double min(double x, double y)
{
    return fmin(x, y);
}
static inline double max(double x, double y)
{
    return fmax(x, y);
}

/* Bits */

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline unsigned __brev(unsigned x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

static inline unsigned long long __brevll(unsigned long long x)
{
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}

/* Byte i of the result is the byte of y:x that the low three bits of nibble i of s name; the fourth
 * bit asks for that byte's sign instead. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        /* Three bits of each nibble count: the fourth, which replicates a sign in PTX's prmt, is masked. */
        const unsigned pick = s >> 4 * i & 7;
        const unsigned byte = static_cast<unsigned>(bytes >> 8 * pick) & 0xff;
        result |= byte << 8 * i;
    }
    return result;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    shift &= 31;
    return shift ? high << shift | low >> (32 - shift) : high;
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    shift &= 31;
    return shift ? high << (32 - shift) | low >> shift : low;
}

static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift)
{
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}

static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift)
{
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

/* Integers */

static inline int __mulhi(int x, int y)
{
    return static_cast<int>((static_cast<int64_t>(x) * y) >> 32);
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    __extension__ typedef unsigned __int128 wide;
    return static_cast<unsigned long long>((static_cast<wide>(x) * y) >> 64);
}

static inline long long __mul64hi(long long x, long long y)
{
    __extension__ typedef __int128 wide;
    return static_cast<long long>((static_cast<wide>(x) * y) >> 64);
}

/* The low 32 bits of the product of the low 24, as numbers with and without a sign. */
static inline int __mul24(int x, int y)
{
    const int64_t a = static_cast<int32_t>(static_cast<uint32_t>(x) << 8) >> 8;
    const int64_t b = static_cast<int32_t>(static_cast<uint32_t>(y) << 8) >> 8;
    return static_cast<int>(static_cast<uint32_t>(a * b));
}

static inline unsigned __umul24(unsigned x, unsigned y)
{
    return (x & 0xffffffu) * (y & 0xffffffu);
}

static inline unsigned __sad(int x, int y, unsigned z)
{
    const int64_t d = static_cast<int64_t>(x) - y;
    return z + static_cast<unsigned>(d < 0 ? -d : d);
}

static inline unsigned __usad(unsigned x, unsigned y, unsigned z)
{
    return z + (x > y ? x - y : y - x);
}

/* Floating point, rounded to nearest; the host's operators round so too. */

static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dsub_rn(double x, double y)
{
    return x - y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __ddiv_rn(double x, double y)
{
    return x / y;
}
static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
static inline double __drcp_rn(double x)
{
    return 1.0 / x;
}
static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float __frsqrt_rn(float x)
{
    return static_cast<float>(rsqrt(x));
}
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

/* Macros: glibc declares some of these names. */
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __tanf(x)    tanf(x)
#define __expf(x)    expf(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __log10f(x)  log10f(x)
#define __powf(x, y) powf((x), (y))

/* Conversions: as the device's, out of range gives the nearest end, and NaN gives 0. */

template <class T>
static inline T culvert__clamp(double x, double low, double beyond, T lowest, T highest)
{
    return x != x ? T(0) : x < low ? lowest : x >= beyond ? highest : static_cast<T>(x);
}

static inline int culvert__to_int(double x)
{
    return culvert__clamp<int>(x, -2147483648.0, 2147483648.0, -2147483647 - 1, 2147483647);
}

static inline unsigned culvert__to_uint(double x)
{
    return culvert__clamp<unsigned>(x, 0.0, 4294967296.0, 0u, 4294967295u);
}

static inline int __float2int_rz(float x)
{
    return culvert__to_int(truncf(x));
}
static inline int __float2int_rn(float x)
{
    return culvert__to_int(rintf(x));
}
static inline int __float2int_rd(float x)
{
    return culvert__to_int(floorf(x));
}
static inline int __float2int_ru(float x)
{
    return culvert__to_int(ceilf(x));
}
static inline unsigned __float2uint_rz(float x)
{
    return culvert__to_uint(truncf(x));
}
static inline unsigned __float2uint_rn(float x)
{
    return culvert__to_uint(rintf(x));
}
static inline unsigned __float2uint_rd(float x)
{
    return culvert__to_uint(floorf(x));
}
static inline unsigned __float2uint_ru(float x)
{
    return culvert__to_uint(ceilf(x));
}
static inline float __int2float_rn(int x)
{
    return static_cast<float>(x);
}
static inline float __uint2float_rn(unsigned x)
{
    return static_cast<float>(x);
}

#define CULVERT__BITS(name, to, from) \
    static inline to name(from x)     \
    {                                 \
        to y;                         \
        memcpy(&y, &x, sizeof y);     \
        return y;                     \
    }
CULVERT__BITS(__float_as_int, int, float)
CULVERT__BITS(__float_as_uint, unsigned, float)
CULVERT__BITS(__int_as_float, float, int)
CULVERT__BITS(__uint_as_float, float, unsigned)
CULVERT__BITS(__double_as_longlong, long long, double)
CULVERT__BITS(__longlong_as_double, double, long long)
#undef CULVERT__BITS

/* Loads and stores with a hint */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldca(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T value)
{
    *p = value;
}
template <class T> static inline void __stcg(T *p, T value)
{
    *p = value;
}
template <class T> static inline void __stwt(T *p, T value)
{
    *p = value;
}

#endif
#endif
