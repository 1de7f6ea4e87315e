/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way of a stream through the GPU: depth pieces at once, in order.
 */
#ifndef CHACHA20_PIPELINE_H
#define CHACHA20_PIPELINE_H

#include "options.h"
#include "stream_io.h"

#include <culvert/culvert.h>

typedef struct pipeline pipeline;

/* May block: takes memory, loads the kernel. NULL with err filled. Everything is borrowed. */
pipeline *pipeline_new(culvert_gpu *, const options *, stream_io *in, stream_io *out,
                       void (*progress)(uint64_t bytes, void *arg), void *arg, culvert_error *err);
/* Resolves when all is written; the first failure, or a cancellation, stops it. */
culvert_future *pipeline_run(pipeline *);
uint64_t pipeline_bytes(const pipeline *); /* written so far */
/* After the loop binding was freed: nothing uses its memory any more. */
void pipeline_free(pipeline *);

#endif
