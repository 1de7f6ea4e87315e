/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files as a row of pieces to be counted, each read by itself.
 */
#ifndef WORD_HISTOGRAM_CORPUS_H
#define WORD_HISTOGRAM_CORPUS_H

#include "../../kernels/words.h"

#include <culvert/error.h>

/* Letters of a word at most: so much of a file is read behind a piece, for a word that crosses its end. */
enum { CORPUS_TAIL = 65536 };

typedef struct corpus_file {
    const char *name; /* borrowed */
    uint64_t bytes;
} corpus_file;

typedef struct corpus {
    corpus_file *files;
    size_t n, at; /* file `at` is next, from `offset` on */
    uint64_t offset;
    uint64_t bytes; /* of all */
    size_t chunk;
} corpus;

typedef struct corpus_piece {
    const corpus_file *file;
    uint64_t offset; /* of the piece's first own byte */
    struct words_piece words;
} corpus_piece;

/* Room for any piece. */
static inline size_t corpus_piece_bytes(const corpus *c)
{
    return 1 + c->chunk + CORPUS_TAIL;
}

/* Looks at the files, which must be regular ones. `names` is borrowed. May block. 0, or -1 with err filled. */
int corpus_open(corpus *, char **names, size_t n, size_t chunk, culvert_error *err);
void corpus_close(corpus *);

/* The next piece; 0: there is none. */
int corpus_next(corpus *, corpus_piece *);

/* Reads all bytes of a piece. Any thread; blocks. 0, or -1 with err filled, also where the file has become shorter. */
int corpus_read(const corpus_piece *, unsigned char *text, culvert_error *err);

#endif
