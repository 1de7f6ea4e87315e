/* SPDX-License-Identifier: BSD-2-Clause */
/* Where things are: indices, parameters, variables; and arithmetic that must be the same
 * everywhere. */
#include <culvert/kernel.h>

#include "layout.h"

__constant__ unsigned table[16] = {1, 2, 4, 8};
CULVERT_GLOBAL(table);

__device__ unsigned counter = 100;
CULVERT_GLOBAL(counter);

static __device__ unsigned linear(unsigned x, unsigned y, unsigned z, dim3 dim)
{
    return x + dim.x * (y + dim.y * z);
}

/* Each thread of a grid in three dimensions writes to its own place where it is. */
extern "C" __global__ void where_am_i(unsigned *out)
{
    const unsigned block = linear(blockIdx.x, blockIdx.y, blockIdx.z, gridDim);
    const unsigned thread = linear(threadIdx.x, threadIdx.y, threadIdx.z, blockDim);
    const unsigned i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    out[i] = blockIdx.x | blockIdx.y << 5 | blockIdx.z << 10 | threadIdx.x << 15 |
             threadIdx.y << 20 | threadIdx.z << 25;
}
CULVERT_KERNEL(where_am_i);

/* Parameters of every alignment. */
extern "C" __global__ void parameters(char c, double d, short s, layout_struct st, float f,
                                      uchar4 u, long long l, float4 v, bool b, double *out)
{
    out[0] = c;
    out[1] = d;
    out[2] = s;
    out[3] = st.a + 10 * st.b + 100 * st.c[2];
    out[4] = f;
    out[5] = u.x + u.y + u.z + u.w;
    out[6] = (double)l;
    out[7] = v.x + v.y + v.z + v.w;
    out[8] = b ? 1 : 0;
}
CULVERT_KERNEL(parameters);

extern "C" __global__ void no_parameters()
{
    if (threadIdx.x == 0) {
        atomicAdd(&counter, table[3]);
    }
}
CULVERT_KERNEL(no_parameters);

extern "C" __global__ void use_table(const unsigned *in, unsigned *out, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = table[in[i] % 16];
    }
}
CULVERT_KERNEL(use_table);

/* out: LAYOUT_BITS words a thread. */
extern "C" __global__ void bits(const unsigned *in, unsigned *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned a = in[2 * i], b = in[2 * i + 1];
    unsigned *o = out + LAYOUT_BITS * i;
    o[0] = (unsigned)__popc(a);
    o[1] = (unsigned)__clz((int)a);
    o[2] = (unsigned)__ffs((int)a);
    o[3] = __brev(a);
    o[4] = __byte_perm(a, b, (a ^ b) & 0x7777);
    o[5] = __funnelshift_l(a, b, b);
    o[6] = __funnelshift_r(a, b, b);
    o[7] = __umulhi(a, b);
    o[8] = (unsigned)__mulhi((int)a, (int)b);
    o[9] = min(a, b);
    o[10] = (unsigned)max((int)a, (int)b);
    o[11] = (unsigned)__clzll((long long)(((unsigned long long)a << 32) | b));
    o[12] =
        (unsigned)__umul64hi(((unsigned long long)a << 32) | b, ((unsigned long long)b << 32) | a);
    o[13] = __usad(a, b, 7);
    o[14] = (unsigned)__mul24((int)a, (int)b);
    o[15] = __byte_perm(a, b, 0xba98u);
}
CULVERT_KERNEL(bits);

/* out: LAYOUT_FLOATS words a thread: the bits of correctly rounded results. */
extern "C" __global__ void floats(const float *in, unsigned *out)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    unsigned *o = out + LAYOUT_FLOATS * i;
    o[0] = __float_as_uint(a * b + c);
    o[1] = __float_as_uint(fmaf(a, b, c));
    o[2] = __float_as_uint(__fadd_rn(__fmul_rn(a, b), c));
    o[3] = __float_as_uint(a / b);
    o[4] = __float_as_uint(sqrtf(fabsf(a)));
    o[5] = (unsigned)__float2int_rn(a);
    o[6] = (unsigned)__float2int_rz(b);
    o[7] = __float_as_uint(fminf(a, b) - fmaxf(b, c));
    o[8] = (unsigned)(__double_as_longlong((double)a * (double)b + (double)c) >> 20);
    o[9] = __float2uint_rz(c);
}
CULVERT_KERNEL(floats);
