/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels for tests of device work. */
#include <culvert/kernel.h>

extern "C" __global__ void empty() {}
CULVERT_KERNEL(empty);

/* words[index] += value, by one thread. */
extern "C" __global__ void add_word(unsigned *words, unsigned index, unsigned value)
{
    words[index] += value;
}
CULVERT_KERNEL(add_word);

/* words[1 + words[0]++] = value, by one thread: a list of who was there, in order. */
extern "C" __global__ void note(unsigned *words, unsigned value)
{
    unsigned n = words[0];
    words[1 + n] = value;
    words[0] = n + 1;
}
CULVERT_KERNEL(note);

/* to[i] = from[i] + value */
extern "C" __global__ void add_all(unsigned *to, const unsigned *from, unsigned n, unsigned value)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        to[i] = from[i] + value;
    }
}
CULVERT_KERNEL(add_all);

/* out[0] = 1 + the largest of in[0 .. n): a step of a graph of sequences. */
extern "C" __global__ void one_more(unsigned *out, const unsigned *in0, const unsigned *in1,
                                    const unsigned *in2)
{
    unsigned most = 0;
    if (in0 != nullptr && *in0 > most) {
        most = *in0;
    }
    if (in1 != nullptr && *in1 > most) {
        most = *in1;
    }
    if (in2 != nullptr && *in2 > most) {
        most = *in2;
    }
    *out = most + 1;
}
CULVERT_KERNEL(one_more);

/* A GPU only: holds the stream until the word, in pinned memory, is not what it was. */
extern "C" __global__ void gate(const volatile unsigned *word, unsigned was)
{
#ifdef __CUDA_ARCH__
    while (*word == was) {
        __nanosleep(1000);
    }
#else
    static_cast<void>(word);
    static_cast<void>(was);
#endif
}
CULVERT_KERNEL(gate);

/* Keeps the stream busy for so long. */
extern "C" __global__ void busy(unsigned long long nanoseconds)
{
#ifdef __CUDA_ARCH__
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
#else
    long long begin = clock64();
    while (static_cast<unsigned long long>(clock64() - begin) < nanoseconds) {}
#endif
}
CULVERT_KERNEL(busy);
