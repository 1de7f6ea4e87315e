/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels that say what they were launched with. */
#include <culvert/kernel.h>

#include "launches.h"

extern "C" __global__ void nothing() {}
CULVERT_KERNEL(nothing);

extern "C" __global__ void record_all(launches_record *out, int small, double number,
                                      launches_odd odd, unsigned char byte, float single,
                                      long long big, const void *pointer)
{
    if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        out->pointer = (unsigned long long)pointer;
        out->big = big;
        out->number = number;
        out->odd_number = odd.number;
        out->single = single;
        out->small = small;
        out->odd_tag = odd.tag;
        out->odd_last = odd.list[4];
        out->byte = byte;
        out->blocks[0] = gridDim.x;
        out->blocks[1] = gridDim.y;
        out->blocks[2] = gridDim.z;
        out->threads[0] = blockDim.x;
        out->threads[1] = blockDim.y;
        out->threads[2] = blockDim.z;
    }
}
CULVERT_KERNEL(record_all);

/* *out = value, after what came before. */
extern "C" __global__ void put(unsigned *out, unsigned value)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *out = value;
    }
}
CULVERT_KERNEL(put);

/* Writes so many words of dynamic shared memory, and adds up what is there. */
extern "C" __global__ void shared_words(unsigned words, unsigned *out)
{
    CULVERT_DYNAMIC_SHARED(unsigned, word);
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
        word[i] = i;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned i = 0; i < words; i++) {
            sum += word[i];
        }
        *out = sum;
    }
}
CULVERT_KERNEL(shared_words);
