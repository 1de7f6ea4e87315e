/* SPDX-License-Identifier: BSD-2-Clause */
/* A kernel that does nothing: what is left is the cost of everything around it. */
#include <culvert/kernel.h>

extern "C" __global__ void empty(void) {}
CULVERT_KERNEL(empty);

/* ... and takes arguments. */
extern "C" __global__ void take(unsigned, const void *) {}
CULVERT_KERNEL(take);
