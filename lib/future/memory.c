/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of futures: a few blocks that were freed are kept for the next ones, so that steps which
 * make steps do not go through malloc each time.
 *
 * Invariants:
 *   - at most KEEP blocks of each class are kept, and all are given back with the core;
 *   - with AddressSanitizer none is kept, so that it sees each use of freed memory.
 *
 * The loop's thread only: what another thread may free (a promise) is malloc's.
 */
#include "future/future_internal.h"

#include <stdlib.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { KEEP = 0 };
#else
enum { KEEP = 512 };
#endif

/* A bare future; a step, a timer or a descriptor. */
static const size_t sizes[CULVERT__BLOCK_CLASSES] = {128, 192};

struct culvert__block {
    struct culvert__block *next;
};

unsigned culvert__block_class(size_t size)
{
    unsigned c = 0;

    while (c < CULVERT__BLOCK_CLASSES && size > sizes[c])
        c++;
    return c;
}

void *culvert__block_alloc(culvert__core *core, unsigned c, size_t size)
{
    if (c >= CULVERT__BLOCK_CLASSES)
        return malloc(size);
    culvert__block *block = core->blocks[c];
    if (block == NULL)
        return malloc(sizes[c]);
    core->blocks[c] = block->next;
    core->kept[c]--;
    return block;
}

void culvert__block_free(culvert__core *core, unsigned c, void *memory)
{
    culvert__block *block = memory;

    if (c >= CULVERT__BLOCK_CLASSES || core->kept[c] + 1 > KEEP) {
        free(memory);
        return;
    }
    block->next = core->blocks[c];
    core->blocks[c] = block;
    core->kept[c]++;
}

void culvert__blocks_free(culvert__core *core)
{
    for (unsigned c = 0; c < CULVERT__BLOCK_CLASSES; c++) {
        while (core->blocks[c] != NULL) {
            culvert__block *block = core->blocks[c];

            core->blocks[c] = block->next;
            free(block);
        }
        core->kept[c] = 0;
    }
}
