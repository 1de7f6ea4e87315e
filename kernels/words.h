/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parameters of the kernels in words.cu, for them and for the host.
 *
 * A word is a run of the letters A-Z and a-z, its case ignored: what `tr -cs A-Za-z '\n' | tr A-Z a-z` makes of
 * a text. A piece of text is `lead` bytes that come before it (0 or 1), `own` bytes whose words are counted, and what
 * follows them, so that a word that starts among the own bytes can end behind them.
 *
 * void count_words(const unsigned char *text, struct words_piece piece, struct words_slot *slots,
 *                  unsigned long long mask, unsigned *status)
 *   Counts each word that starts in the own bytes. `slots`: mask + 1 of them, a power of two, at least as many as own
 *   bytes, all zero before. status[WORDS_TOO_LONG] is set where a word has no end in the piece: it must be zero
 *   before. One thread a byte.
 *
 * void collect_words(const struct words_slot *slots, unsigned long long count, struct words_slot *out,
 *                    unsigned *status)
 *   Gathers the slots in use, in any order, at the beginning of `out`, which has room for words_most(own);
 *   status[WORDS_FOUND] is how many, and must be zero before. One thread a slot.
 */
#ifndef CULVERT_KERNELS_WORDS_H
#define CULVERT_KERNELS_WORDS_H

#include <stddef.h>
#include <stdint.h>

#define WORDS_THREADS 256u /* a block */

enum { WORDS_FOUND = 0, WORDS_TOO_LONG = 1, WORDS_STATUS = 2 /* how many */ };

struct words_piece {
    uint32_t lead;  /* bytes before the own ones */
    uint32_t own;   /* bytes */
    uint32_t bytes; /* all of them: lead, own, and what follows */
    uint32_t last;  /* 1: the text ends with them; 0: it goes on */
};

/* A word and how often it was found. */
struct words_slot {
    uint32_t at; /* where it starts in the text, plus one; 0: the slot is free */
    uint32_t count;
};

/* How many different words can start in so many bytes: each takes a letter, and a byte between two. */
static inline size_t words_most(size_t own)
{
    return own / 2 + 1;
}

static inline size_t words_slots(size_t own)
{
    size_t n = 64;
    while (n < own)
        n *= 2;
    return n;
}

static inline unsigned words_blocks(size_t n)
{
    return (unsigned)((n + WORDS_THREADS - 1) / WORDS_THREADS);
}

#endif
