/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ranges.c: which parts of the address space the driver knows.
 *
 * Invariants: `table` is sorted by base and no two ranges overlap. A freed range of ours stays in it,
 * poisoned and in the quarantine, until MANY_FREED others or MANY_BYTES were freed after it; so a use
 * of it is noticed, and its addresses are not handed out again at once. New memory is of whole pages,
 * which the kernel gives only where they are touched: a buffer of 100 GB costs nothing until then.
 */
#define _GNU_SOURCE
#include "sim/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes)   ASAN_POISON_MEMORY_REGION((void *)(address), bytes)
#define UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION((void *)(address), bytes)
#else
#define POISON(address, bytes)   ((void)0)
#define UNPOISON(address, bytes) ((void)0)
#endif

enum {
    MANY_FREED = 256,
    FRESH = 0xcd,          /* what new memory of up to FILL_BYTES holds */
    FREED = 0xdd,          /* what freed memory of up to FILL_BYTES holds */
    FILL_BYTES = 64 * 1024 /* larger memory is given back at once, and any access to it faults */
};

static struct sim_range **table;
static size_t n, room;
static struct sim_range *freed_first, *freed_last;
static size_t freed_count;

/* The first range that ends after the address. */
static size_t position(uintptr_t address)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sim_range *r = table[middle];
        if (r->base + r->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_range *culvert__sim_range_find(uintptr_t address)
{
    size_t at = position(address);
    return at < n && table[at]->base <= address ? table[at] : NULL;
}

struct sim_range *culvert__sim_range_overlap(uintptr_t first, size_t bytes)
{
    size_t at = position(first);
    return at < n && table[at]->base < first + bytes ? table[at] : NULL;
}

struct sim_range *culvert__sim_range_add(uintptr_t base, size_t bytes, enum sim_range_kind kind,
                                         struct CUctx_st *ctx)
{
    if (n == room) {
        size_t more = room ? 2 * room : 64;
        struct sim_range **grown = realloc(table, more * sizeof *grown);
        if (!grown)
            return NULL;
        table = grown;
        room = more;
    }
    struct sim_range *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct sim_range){.base = base, .bytes = bytes, .kind = kind, .ctx = ctx, .refs = 1};
    r->id = ++culvert__sim.ids;
    size_t at = position(base);
    memmove(table + at + 1, table + at, (n - at) * sizeof *table);
    table[at] = r;
    n++;
    return r;
}

void culvert__sim_range_remove(struct sim_range *r)
{
    size_t at = position(r->base);
    n--;
    memmove(table + at, table + at + 1, (n - at) * sizeof *table);
    free(r);
    if (n == 0) {
        free(table);
        table = NULL;
        room = 0;
    }
}

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

struct sim_range *culvert__sim_range_map(size_t bytes, enum sim_range_kind kind,
                                         struct CUctx_st *ctx)
{
    size_t mapped = whole_pages(bytes);
    void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    struct sim_range *r = culvert__sim_range_add((uintptr_t)p, bytes, kind, ctx);
    if (!r) {
        munmap(p, mapped);
        return NULL;
    }
    r->mapped = mapped;
    if (bytes <= FILL_BYTES) {
        UNPOISON(p, mapped);
        memset(p, FRESH, bytes);
        POISON(r->base + bytes, mapped - bytes);
    }
    return r;
}

static void give_back(struct sim_range *r)
{
    if (r->bytes <= FILL_BYTES)
        UNPOISON(r->base, r->mapped);
    munmap((void *)r->base, r->mapped);
    culvert__sim_range_remove(r);
}

static void forget_oldest(void)
{
    struct sim_range *r = freed_first;
    freed_first = r->next;
    freed_count--;
    give_back(r);
}

void culvert__sim_range_unmap(struct sim_range *r)
{
    if (r->bytes <= FILL_BYTES) {
        memset((void *)r->base, FREED, r->bytes);
        POISON(r->base, r->mapped);
    } else {
        mmap((void *)r->base, r->mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    r->kind = SIM_RANGE_FREED;
    r->ctx = NULL;
    r->next = NULL;
    if (freed_count++ == 0)
        freed_first = r;
    else
        freed_last->next = r;
    freed_last = r;
    while (freed_count > MANY_FREED)
        forget_oldest();
}

void culvert__sim_ranges_of_context(struct CUctx_st *ctx)
{
    for (size_t i = 0; i < n;) {
        struct sim_range *r = table[i];
        if (r->ctx != ctx) {
            i++;
            continue;
        }
        if (r->kind == SIM_RANGE_HOST || r->kind == SIM_RANGE_REGISTERED)
            culvert__sim.pinned_bytes -= r->bytes;
        if (r->mapped > 0)
            give_back(r);
        else
            culvert__sim_range_remove(r);
    }
    ctx->used_bytes = 0;
}

void culvert__sim_ranges_reset(void)
{
    while (freed_count > 0)
        forget_oldest();
}
