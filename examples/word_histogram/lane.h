/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One of several rows of work, each on a stream of its own: takes piece after piece of the corpus and counts its words.
 */
#ifndef WORD_HISTOGRAM_LANE_H
#define WORD_HISTOGRAM_LANE_H

#include "corpus.h"
#include "words.h"

#include <culvert/culvert.h>

/* What all lanes share; used on the loop's thread. */
typedef struct work {
    culvert_gpu *gpu;
    culvert_kernel *count, *collect;
    corpus corpus;
    uint64_t done; /* bytes */
    void (*progress)(uint64_t bytes, void *arg);
    void *arg;
} work;

typedef struct lane lane;

/* `work` is borrowed. Takes all memory of a lane, so it may block. NULL with err filled. */
lane *lane_new(work *, culvert_error *err);
/* Resolves when no piece is left. A failure, or a cancellation, ends it. */
culvert_future *lane_run(lane *);
/* What it has counted; borrowed, and nobody else's while the lane runs. */
words *lane_words(lane *);
/* After the loop binding was freed: nothing uses its memory any more. NULL does nothing. */
void lane_free(lane *);

#endif
