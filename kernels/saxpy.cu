/* SPDX-License-Identifier: BSD-2-Clause */
/* y = a * x + y, each product rounded before it is added: nowhere is it contracted. */
#include <culvert/kernel.h>

extern "C" __global__ void saxpy(unsigned n, float a, const float *x, float *y)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}
CULVERT_KERNEL(saxpy);
