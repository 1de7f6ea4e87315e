/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that allocates in every way that alloc_fail knows. */
#define _GNU_SOURCE
#include "lib/alloc_probe.h"

#include <stdlib.h>
#include <string.h>

static void *stays[ALLOC_PROBE_BLOCKS];
static void *kept;

static void *allocate(int way)
{
    void *block = NULL;
    void *larger = NULL;
    switch (way) {
    case 0: return malloc(100);
    case 1: return calloc(10, 10);
    case 2: return realloc(NULL, 100);
    case 3: return reallocarray(NULL, 10, 10);
    case 4: return aligned_alloc(64, 128);
    case 5: return posix_memalign(&block, 64, 128) == 0 ? block : NULL;
    case 6: return strdup("text");
    case 7: return strndup("text", 2);
    default:
        block = malloc(1);
        if (block == NULL)
            return NULL;
        larger = realloc(block, 1000);
        if (larger == NULL)
            free(block);
        return larger;
    }
}

bool alloc_probe(bool keep)
{
    void *blocks[ALLOC_PROBE_BLOCKS] = {NULL};
    int made = 0;
    while (made < ALLOC_PROBE_BLOCKS && (blocks[made] = allocate(made)) != NULL)
        made++;
    if (keep && made < ALLOC_PROBE_BLOCKS) {
        memcpy(stays, blocks, sizeof blocks);
        return false;
    }
    for (int i = 0; i < made; i++)
        free(blocks[i]);
    return made == ALLOC_PROBE_BLOCKS;
}

void alloc_probe_release(void)
{
    for (int i = 0; i < ALLOC_PROBE_BLOCKS; i++)
        free(stays[i]);
    memset(stays, 0, sizeof stays);
}

bool alloc_probe_kept(void)
{
    if (kept == NULL)
        kept = malloc(10);
    void *volatile block = malloc(10); /* else a compiler may leave both calls out */
    free(block);
    return kept != NULL && block != NULL;
}
