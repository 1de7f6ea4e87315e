/* SPDX-License-Identifier: BSD-2-Clause */
#include "words.h"

#include <stdlib.h>
#include <string.h>

/* A word that finds no memory is not added, and says so, instead of ending the process. */
#define HASH_NONFATAL_OOM      1
#define uthash_nonfatal_oom(w) ((w)->added = 0)
#include <uthash.h>

struct word {
    UT_hash_handle hh;
    uint64_t count;
    int added;
    char letters[];
};

static word *find(const words *ws, const char *letters, size_t n)
{
    word *w;
    HASH_FIND(hh, ws->table, letters, n, w);
    return w;
}

static int add(words *ws, word *w, size_t n)
{
    w->added = 1;
    HASH_ADD_KEYPTR(hh, ws->table, w->letters, n, w);
    return w->added ? 0 : -1;
}

int words_add(words *ws, const char *letters, size_t n, uint64_t count)
{
    word *w = find(ws, letters, n);
    if (w == NULL) {
        if ((w = malloc(sizeof *w + n + 1)) == NULL)
            return -1;
        memcpy(w->letters, letters, n);
        w->letters[n] = '\0';
        w->count = 0;
        if (add(ws, w, n) != 0) {
            free(w);
            return -1;
        }
    }
    w->count += count;
    return 0;
}

int words_merge(words *into, words *from)
{
    word *w, *next;
    HASH_ITER(hh, from->table, w, next)
    {
        size_t n = w->hh.keylen;
        word *same = find(into, w->letters, n);
        HASH_DEL(from->table, w);
        if (same != NULL) {
            same->count += w->count;
            free(w);
        } else if (add(into, w, n) != 0) {
            free(w);
            return -1;
        }
    }
    return 0;
}

static int by_count(const word *a, const word *b)
{
    return a->count != b->count ? (a->count < b->count ? 1 : -1) : strcmp(a->letters, b->letters);
}

void words_sort(words *ws)
{
    HASH_SORT(ws->table, by_count);
}

void words_free(words *ws)
{
    word *w, *next;
    HASH_ITER(hh, ws->table, w, next)
    {
        HASH_DEL(ws->table, w);
        free(w);
    }
}

size_t words_different(const words *ws)
{
    return HASH_COUNT(ws->table);
}

uint64_t words_total(const words *ws)
{
    uint64_t n = 0;
    for (const word *w = ws->table; w != NULL; w = w->hh.next)
        n += w->count;
    return n;
}

int words_each(const words *ws, int (*fn)(const char *, uint64_t, void *), void *arg)
{
    int r = 0;
    for (const word *w = ws->table; w != NULL && r == 0; w = w->hh.next)
        r = fn(w->letters, w->count, arg);
    return r;
}
