/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parameters of the kernel in chacha20.cu, for it and for the host.
 *
 * void chacha20(const unsigned char *in, unsigned char *out, unsigned long long bytes,
 *               struct chacha20_key key, unsigned counter)
 *
 * out = in XOR the keystream of RFC 8439 that starts with block `counter`. `in` and `out` may be
 * the same; otherwise they do not overlap. Fastest where both are aligned to 16 bytes. The counter
 * wraps round after 2^32 - 1: the host makes sure that it does not.
 *
 * Any grid of one dimension does the whole; chacha20_blocks() gives the one that suits.
 */
#ifndef CULVERT_KERNELS_CHACHA20_H
#define CULVERT_KERNELS_CHACHA20_H

#include <stdint.h>

#define CHACHA20_THREADS     256u /* a block */
#define CHACHA20_BLOCK_BYTES 64u  /* of keystream: one value of the counter */

/* Words as in RFC 8439, 2.3: the bytes of key and nonce, read as little-endian numbers. */
struct chacha20_key {
    uint32_t key[8];
    uint32_t nonce[3];
};

static inline uint32_t chacha20_load32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline struct chacha20_key chacha20_make_key(const unsigned char key[32],
                                                    const unsigned char nonce[12])
{
    struct chacha20_key k;
    for (int i = 0; i < 8; i++) {
        k.key[i] = chacha20_load32(key + 4 * i);
    }
    for (int i = 0; i < 3; i++) {
        k.nonce[i] = chacha20_load32(nonce + 4 * i);
    }
    return k;
}

/* How many blocks of CHACHA20_THREADS threads to launch, so that each thread has 64 bytes to do. */
static inline unsigned chacha20_blocks(uint64_t bytes)
{
    const uint64_t each = (uint64_t)CHACHA20_THREADS * CHACHA20_BLOCK_BYTES;
    const uint64_t blocks = bytes / each + (bytes % each != 0);
    return blocks < 0x7fffffffu ? (unsigned)blocks : 0x7fffffffu;
}

#endif
