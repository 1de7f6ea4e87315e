/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ChaCha20 (RFC 8439): a buffer XOR the keystream. chacha20.h says what the parameters are.
 *
 * On the GPU a thread does one 64-byte block after the other, in registers. On the host it does
 * four at once, one in each lane of a vector: the code is the same, `word` is what differs.
 */
#include <culvert/kernel.h>

#include "chacha20.h"

#ifdef CULVERT_KERNEL_HOST
typedef uint32_t word __attribute__((vector_size(16)));
#define LANES         4
#define LANE(w, lane) ((w)[lane])
#define LANE_NUMBERS  (word{0, 1, 2, 3})
#define UNROLL
#else
typedef uint32_t word;
#define LANES         1
#define LANE(w, lane) (w)
#define LANE_NUMBERS  0u
#define UNROLL        _Pragma("unroll")
#endif

/* Whether accesses of 16 bytes are allowed: the host needs no alignment. */
#ifdef CULVERT_KERNEL_HOST
#define CAN_BE_WIDE(p, q) true
#else
#define CAN_BE_WIDE(p, q) \
    (((reinterpret_cast<uintptr_t>(p) | reinterpret_cast<uintptr_t>(q)) & 15) == 0)
#endif

#define BLOCK ((int)CHACHA20_BLOCK_BYTES)

static __device__ inline word rotate_left(word x, int n)
{
    return x << n | x >> (32 - n);
}

static __device__ inline void quarter_round(word &a, word &b, word &c, word &d)
{
    a += b;
    d = rotate_left(d ^ a, 16);
    c += d;
    b = rotate_left(b ^ c, 12);
    a += b;
    d = rotate_left(d ^ a, 8);
    c += d;
    b = rotate_left(b ^ c, 7);
}

/* Keystream blocks counter, counter + 1, ... of as many as there are lanes. */
static __device__ inline void keystream(word s[16], const chacha20_key &k, uint32_t counter)
{
    const word zero = LANE_NUMBERS ^ LANE_NUMBERS;
    const word initial[16] = {zero + 0x61707865u,     zero + 0x3320646eu, zero + 0x79622d32u,
                              zero + 0x6b206574u,     zero + k.key[0],    zero + k.key[1],
                              zero + k.key[2],        zero + k.key[3],    zero + k.key[4],
                              zero + k.key[5],        zero + k.key[6],    zero + k.key[7],
                              LANE_NUMBERS + counter, zero + k.nonce[0],  zero + k.nonce[1],
                              zero + k.nonce[2]};
    UNROLL
    for (int i = 0; i < 16; i++) {
        s[i] = initial[i];
    }
    UNROLL
    for (int i = 0; i < 10; i++) {
        quarter_round(s[0], s[4], s[8], s[12]);
        quarter_round(s[1], s[5], s[9], s[13]);
        quarter_round(s[2], s[6], s[10], s[14]);
        quarter_round(s[3], s[7], s[11], s[15]);
        quarter_round(s[0], s[5], s[10], s[15]);
        quarter_round(s[1], s[6], s[11], s[12]);
        quarter_round(s[2], s[7], s[8], s[13]);
        quarter_round(s[3], s[4], s[9], s[14]);
    }
    UNROLL
    for (int i = 0; i < 16; i++) {
        s[i] += initial[i];
    }
}

/* A whole block, in accesses of 16 bytes. */
static __device__ inline void xor_block(unsigned char *out, const unsigned char *in,
                                        const word s[16], int lane)
{
    uint4 v[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
#ifdef CULVERT_KERNEL_HOST
        memcpy(&v[i], in + 16 * i, 16);
#else
        v[i] = reinterpret_cast<const uint4 *>(in)[i];
#endif
        v[i].x ^= LANE(s[4 * i], lane);
        v[i].y ^= LANE(s[4 * i + 1], lane);
        v[i].z ^= LANE(s[4 * i + 2], lane);
        v[i].w ^= LANE(s[4 * i + 3], lane);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
#ifdef CULVERT_KERNEL_HOST
        memcpy(out + 16 * i, &v[i], 16);
#else
        reinterpret_cast<uint4 *>(out)[i] = v[i];
#endif
    }
}

/* The first n bytes of a block, one by one. Unrolled, so that s stays in registers. */
static __device__ inline void xor_bytes(unsigned char *out, const unsigned char *in,
                                        const word s[16], int lane, int n)
{
    UNROLL
    for (int i = 0; i < BLOCK; i++) {
        if (i < n) {
            const uint32_t w = LANE(s[i / 4], lane);
            out[i] = static_cast<unsigned char>(in[i] ^ (w >> 8 * (i % 4)));
        }
    }
}

extern "C" __global__ void __launch_bounds__(CHACHA20_THREADS)
    chacha20(const unsigned char *in, unsigned char *out, unsigned long long bytes,
             chacha20_key key, unsigned counter)
{
    const unsigned long long blocks = bytes / BLOCK + (bytes % BLOCK != 0);
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x * LANES;
    const bool wide = CAN_BE_WIDE(in, out);

    unsigned long long b = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (b *= LANES; b < blocks; b += step) {
        word s[16];
        keystream(s, key, counter + static_cast<uint32_t>(b));
        UNROLL
        for (int lane = 0; lane < LANES; lane++) {
            const unsigned long long offset = (b + lane) * BLOCK;
            if (offset + BLOCK <= bytes && wide) {
                xor_block(out + offset, in + offset, s, lane);
            } else if (offset < bytes) {
                const unsigned long long left = bytes - offset;
                xor_bytes(out + offset, in + offset, s, lane,
                          left < BLOCK ? static_cast<int>(left) : BLOCK);
            }
        }
    }
}
CULVERT_KERNEL(chacha20);
