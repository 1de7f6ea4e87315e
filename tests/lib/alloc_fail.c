/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocation functions of the library under test: objcopy has renamed its references as
 * alloc_fail.syms says.
 *
 * Invariants: `count` grows by one for each allocation asked for on a thread that counts; `live` is the
 * number of blocks given and not taken back. A real function is called for every one that does not fail,
 * so sanitizers see each block as always.
 */
#define _GNU_SOURCE
#include "lib/alloc_fail.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_AT_MOST = 100000 };

static _Atomic uint64_t count;
static _Atomic uint64_t first_failing; /* 0: none */
static _Atomic uint64_t last_failing;
static atomic_bool happened;
static _Atomic int64_t live;
static atomic_bool one_thread;
static pthread_t the_thread; /* written before one_thread is set */

void *alloc_fail__malloc(size_t size);
void *alloc_fail__calloc(size_t n, size_t size);
void *alloc_fail__realloc(void *old, size_t size);
void *alloc_fail__reallocarray(void *old, size_t n, size_t size);
void *alloc_fail__aligned_alloc(size_t alignment, size_t size);
int alloc_fail__posix_memalign(void **out, size_t alignment, size_t size);
char *alloc_fail__strdup(const char *text);
char *alloc_fail__strndup(const char *text, size_t n);
void alloc_fail__free(void *block);

static void arm(uint64_t first, uint64_t last)
{
    atomic_store(&first_failing, 0);
    atomic_store(&count, 0);
    atomic_store(&happened, false);
    atomic_store(&last_failing, last);
    atomic_store(&first_failing, first);
}

void alloc_fail_nth(uint64_t n)
{
    arm(n, n);
}

void alloc_fail_from(uint64_t n)
{
    arm(n, UINT64_MAX);
}

void alloc_fail_off(void)
{
    atomic_store(&first_failing, 0);
}

void alloc_fail_this_thread(bool only)
{
    atomic_store(&one_thread, false);
    the_thread = pthread_self();
    atomic_store(&one_thread, only);
}

uint64_t alloc_fail_count(void)
{
    return atomic_load(&count);
}

bool alloc_fail_happened(void)
{
    return atomic_load(&happened);
}

int64_t alloc_fail_live(void)
{
    return atomic_load(&live);
}

/* Counts an allocation; true if it is to fail. */
static bool fails(void)
{
    if (atomic_load(&one_thread) && !pthread_equal(the_thread, pthread_self()))
        return false;
    uint64_t n = atomic_fetch_add(&count, 1) + 1;
    uint64_t first = atomic_load(&first_failing);
    if (first == 0 || n < first || n > atomic_load(&last_failing))
        return false;
    atomic_store(&happened, true);
    errno = ENOMEM;
    return true;
}

static void *given(void *block)
{
    if (block != NULL)
        atomic_fetch_add(&live, 1);
    return block;
}

void *alloc_fail__malloc(size_t size)
{
    return fails() ? NULL : given(malloc(size));
}

void *alloc_fail__calloc(size_t n, size_t size)
{
    return fails() ? NULL : given(calloc(n, size));
}

void *alloc_fail__realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    void *block = realloc(old, size);
    if (old == NULL)
        return given(block);
    if (block == NULL && size == 0) /* glibc has freed it */
        atomic_fetch_sub(&live, 1);
    return block;
}

void *alloc_fail__reallocarray(void *old, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return alloc_fail__realloc(old, n * size);
}

void *alloc_fail__aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : given(aligned_alloc(alignment, size));
}

int alloc_fail__posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails())
        return ENOMEM;
    int result = posix_memalign(out, alignment, size);
    if (result == 0)
        given(*out);
    return result;
}

char *alloc_fail__strdup(const char *text)
{
    return fails() ? NULL : given(strdup(text));
}

char *alloc_fail__strndup(const char *text, size_t n)
{
    return fails() ? NULL : given(strndup(text, n));
}

void alloc_fail__free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub(&live, 1);
    free(block);
}

uint64_t alloc_fail_each(void (*body)(void *arg), void *arg)
{
    alloc_fail_off();
    body(arg);
    int64_t before = alloc_fail_live();
    for (uint64_t n = 1; n <= RUNS_AT_MOST; n++) {
        alloc_fail_nth(n);
        body(arg);
        bool failed = alloc_fail_happened();
        alloc_fail_off();
        int64_t after = alloc_fail_live();
        ck_assert_msg(after == before,
                      "%" PRId64 " blocks before, %" PRId64
                      " after a run in which allocation %" PRIu64 " %s",
                      before, after, n, failed ? "failed" : "would have failed");
        if (!failed)
            return n - 1;
    }
    ck_abort_msg("after %d runs there was still an allocation to fail", RUNS_AT_MOST);
}
