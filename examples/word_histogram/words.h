/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words and their counts on the host: a hash table (uthash) whose order is made at the end.
 */
#ifndef WORD_HISTOGRAM_WORDS_H
#define WORD_HISTOGRAM_WORDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct word word;

typedef struct words {
    word *table;
} words;

/* Adds to a word's count; its letters are copied where it is new. -1: no memory. */
int words_add(words *, const char *letters, size_t n, uint64_t count);
/* Empties `from` into `into`. -1: no memory; then some are in the one, some in the other. */
int words_merge(words *into, words *from);
/* Puts the most frequent first, and those of equal count in the order of their bytes. */
void words_sort(words *);
void words_free(words *);

size_t words_different(const words *);
uint64_t words_total(const words *);
/* Calls fn for each word in order, until it returns other than 0, which is returned. `letters` ends with a NUL. */
int words_each(const words *, int (*fn)(const char *letters, uint64_t count, void *arg), void *arg);

#endif
