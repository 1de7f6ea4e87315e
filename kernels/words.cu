/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting words in a hash table with open addressing. words.h says what the parameters are.
 *
 * A slot is named by the place where its word was seen first: taken by one atomicCAS, never given back. Whoever
 * finds it taken compares the texts themselves, so no two words are ever counted as one.
 */
#include <culvert/kernel.h>

#include "words.h"

/* The letter in lower case; 0: no letter. */
static __device__ inline unsigned letter(unsigned char c)
{
    const unsigned low = c | 0x20u;
    return low - 'a' < 26u ? low : 0;
}

/* FNV-1a (Fowler, Noll, Vo; RFC 9923) over the letters, with the end of the word; 0 length: it has none. */
static __device__ inline unsigned hash_word(const unsigned char *text, uint32_t bytes, uint32_t at,
                                            uint32_t *length)
{
    unsigned h = 2166136261u;
    uint32_t i = at;
    for (; i < bytes && letter(text[i]) != 0; i++) {
        h = (h ^ letter(text[i])) * 16777619u;
    }
    *length = i - at;
    return h ^ h >> 15;
}

/* Whether the same word is at p, as the one of so many letters at q. */
static __device__ inline bool same_word(const unsigned char *text, uint32_t bytes, uint32_t p,
                                        uint32_t q, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        if (p + i >= bytes || letter(text[p + i]) != letter(text[q + i])) {
            return false;
        }
    }
    return p + length == bytes || letter(text[p + length]) == 0;
}

extern "C" __global__ void count_words(const unsigned char *text, words_piece piece,
                                       words_slot *slots, unsigned long long mask, unsigned *status)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t at = piece.lead + i;
    if (i >= piece.own || letter(text[at]) == 0 || (at > 0 && letter(text[at - 1]) != 0)) {
        return; /* no word starts here */
    }
    uint32_t length;
    unsigned long long s = hash_word(text, piece.bytes, at, &length) & mask;
    if (at + length == piece.bytes && !piece.last) {
        atomicOr(&status[WORDS_TOO_LONG], 1u);
        return;
    }
    for (;; s = (s + 1) & mask) {
        const uint32_t first = atomicCAS(&slots[s].at, 0u, at + 1);
        if (first == 0 || same_word(text, piece.bytes, first - 1, at, length)) {
            atomicAdd(&slots[s].count, 1u);
            return;
        }
    }
}
CULVERT_KERNEL(count_words);

extern "C" __global__ void collect_words(const words_slot *slots, unsigned long long count,
                                         words_slot *out, unsigned *status)
{
    const unsigned long long i =
        static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count && slots[i].at != 0) {
        out[atomicAdd(&status[WORDS_FOUND], 1u)] = slots[i];
    }
}
CULVERT_KERNEL(collect_words);
