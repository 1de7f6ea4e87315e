/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap of addresses: ranges of large blocks, best fit, neighbours joined when given back.
 *
 * It never touches the memory it hands out, which may be a device's: what it knows of a range
 * stands in a struct of its own.
 *
 * Invariants, whenever the lock is free:
 *   - the ranges of a block cover it without gap, in a list by address; sizes and addresses are
 *     multiples of 256
 *   - no two neighbours are both free; a free range is in the tree, one that is out is not
 *   - taken is the sum of all blocks, used the sum of the ranges that are out; taken <= limit
 *   - the blocks are in an array sorted by address
 *
 * The tree is a treap (a search tree by size and address, a heap by a random priority): it gives
 * the smallest range that is large enough, the lowest among equals, in O(log n). Giving back
 * allocates nothing, so it cannot fail; taking allocates before it changes anything.
 */
#include "gpu/gpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 256 };

typedef struct block {
    unsigned long long address;
    size_t bytes;
    culvert__range *first; /* lowest */
} block;

struct culvert__range {
    unsigned long long address;
    size_t bytes;
    block *block;
    culvert__range *prev, *next;  /* neighbours in the block */
    culvert__range *left, *right; /* the tree */
    uint32_t priority;
    bool out;
};

struct culvert__heap {
    pthread_mutex_t lock;
    culvert__heap_ops ops;
    void *owner;
    culvert__heap_options options;
    block **blocks;
    size_t nblocks, room;
    culvert__range *tree;
    size_t taken, used;
    uint32_t random;
};

/* ---- the tree ---- */

static bool before(const culvert__range *a, const culvert__range *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

static uint32_t next_random(culvert__heap *heap)
{
    uint32_t x = heap->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return heap->random = x;
}

static void tree_insert(culvert__heap *heap, culvert__range *range)
{
    range->priority = next_random(heap);
    culvert__range **at = &heap->tree;
    while (*at != NULL && (*at)->priority >= range->priority)
        at = before(range, *at) ? &(*at)->left : &(*at)->right;
    /* What hangs there is split into what is before the range and what is after it. */
    culvert__range *rest = *at, **low = &range->left, **high = &range->right;
    while (rest != NULL) {
        if (before(rest, range)) {
            *low = rest;
            low = &rest->right;
            rest = rest->right;
        } else {
            *high = rest;
            high = &rest->left;
            rest = rest->left;
        }
    }
    *low = *high = NULL;
    *at = range;
}

static void tree_remove(culvert__heap *heap, culvert__range *range)
{
    culvert__range **at = &heap->tree;
    while (*at != range)
        at = before(range, *at) ? &(*at)->left : &(*at)->right;
    culvert__range *low = range->left, *high = range->right;
    while (low != NULL && high != NULL) {
        if (low->priority >= high->priority) {
            *at = low;
            at = &low->right;
            low = low->right;
        } else {
            *at = high;
            at = &high->left;
            high = high->left;
        }
    }
    *at = low != NULL ? low : high;
    range->left = range->right = NULL;
}

static culvert__range *tree_best(const culvert__heap *heap, size_t bytes)
{
    culvert__range *best = NULL;
    for (culvert__range *r = heap->tree; r != NULL;) {
        if (r->bytes >= bytes) {
            best = r;
            r = r->left;
        } else {
            r = r->right;
        }
    }
    return best;
}

static size_t tree_largest(const culvert__heap *heap)
{
    size_t bytes = 0;
    for (const culvert__range *r = heap->tree; r != NULL; r = r->right)
        bytes = r->bytes;
    return bytes;
}

/* ---- blocks ---- */

/* Index of the first block whose address is above. */
static size_t block_after(const culvert__heap *heap, unsigned long long address)
{
    size_t low = 0, high = heap->nblocks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (heap->blocks[middle]->address > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool make_room(culvert__heap *heap)
{
    if (heap->nblocks < heap->room)
        return true;
    size_t room = heap->room == 0 ? 8 : heap->room * 2;
    block **blocks = realloc(heap->blocks, room * sizeof(*blocks));
    if (blocks == NULL)
        return false;
    heap->blocks = blocks;
    heap->room = room;
    return true;
}

static int no_bookkeeping(culvert_error *err)
{
    culvert__error_set(err, CULVERT_ENOMEM, 0, NULL, NULL, "no memory for the heap's bookkeeping");
    return CULVERT_ENOMEM;
}

/* One block of exactly so many bytes, free as a whole. */
static int add_block(culvert__heap *heap, size_t bytes, culvert_error *err)
{
    culvert__range *range = calloc(1, sizeof(*range));
    block *b = calloc(1, sizeof(*b));
    if (range == NULL || b == NULL || !make_room(heap)) {
        free(range);
        free(b);
        return no_bookkeeping(err);
    }
    int code = heap->ops.grow(heap->owner, bytes, &b->address, err);
    if (code != CULVERT_OK) {
        free(range);
        free(b);
        return code;
    }
    b->bytes = range->bytes = bytes;
    b->first = range;
    range->address = b->address;
    range->block = b;
    size_t at = block_after(heap, b->address);
    memmove(heap->blocks + at + 1, heap->blocks + at, (heap->nblocks - at) * sizeof(*heap->blocks));
    heap->blocks[at] = b;
    heap->nblocks++;
    heap->taken += bytes;
    tree_insert(heap, range);
    return CULVERT_OK;
}

/* Never 0 for bytes > 0; SIZE_MAX where it overflows. */
static size_t round_up(size_t bytes, size_t unit)
{
    size_t rest = bytes % unit;
    if (rest == 0)
        return bytes;
    return bytes > SIZE_MAX - (unit - rest) ? SIZE_MAX : bytes + (unit - rest);
}

/* A message with the figures; what the driver said, if anything, behind them. */
static void figures(const culvert__heap *heap, size_t bytes, const char *why, culvert_error *err)
{
    char said[CULVERT_ERROR_MESSAGE_SIZE], limit[32] = "none";
    snprintf(said, sizeof(said), "%s", why);
    if (heap->options.limit != 0)
        snprintf(limit, sizeof(limit), "%zu", heap->options.limit);
    culvert__error_set(
        err, CULVERT_ENOMEM, err->native, NULL, NULL,
        "%zu bytes of %s asked for; %zu taken, %zu of these in use, largest free range "
        "%zu, limit %s: %s",
        bytes, heap->options.what, heap->taken, heap->used, tree_largest(heap), limit, said);
}

/*
 * A block with a free range of at least `need` bytes (a multiple of UNIT). Where there is not
 * enough for a block of the usual size, one of just that size.
 */
static int grow(culvert__heap *heap, size_t need, culvert_error *err)
{
    const culvert__heap_options *o = &heap->options;
    size_t bytes = round_up(need > o->block_bytes ? need : o->block_bytes, o->granule);
    if (o->limit != 0) {
        size_t left = (o->limit - heap->taken) / UNIT * UNIT;
        if (left < need) {
            culvert__error_set(err, CULVERT_ENOMEM, 0, NULL, NULL, "the limit is reached");
            return CULVERT_ENOMEM;
        }
        if (bytes > left)
            bytes = left;
    }
    int code = add_block(heap, bytes, err);
    if (code == CULVERT_ENOMEM && bytes > need)
        code = add_block(heap, need, err);
    return code;
}

/* ---- ranges ---- */

/* Cuts the end off a free range that is not in the tree; `rest` becomes that end, free. */
static void split(culvert__heap *heap, culvert__range *range, size_t bytes, culvert__range *rest)
{
    rest->address = range->address + bytes;
    rest->bytes = range->bytes - bytes;
    rest->block = range->block;
    rest->prev = range;
    rest->next = range->next;
    if (rest->next != NULL)
        rest->next->prev = rest;
    range->next = rest;
    range->bytes = bytes;
    tree_insert(heap, rest);
}

static culvert__range *take_locked(culvert__heap *heap, size_t bytes, bool may_grow,
                                   culvert_error *err)
{
    culvert__range *range = tree_best(heap, bytes);
    if (range == NULL && !may_grow) {
        figures(heap, bytes, "no free range is large enough", err);
        return NULL;
    }
    if (range == NULL) {
        int code = grow(heap, bytes, err);
        if (code != CULVERT_OK) {
            if (code == CULVERT_ENOMEM)
                figures(heap, bytes, err->message, err);
            return NULL;
        }
        range = tree_best(heap, bytes);
    }
    culvert__range *rest = NULL;
    if (range->bytes > bytes && (rest = calloc(1, sizeof(*rest))) == NULL) {
        no_bookkeeping(err);
        return NULL;
    }
    tree_remove(heap, range);
    if (rest != NULL)
        split(heap, range, bytes, rest);
    range->out = true;
    heap->used += bytes;
    return range;
}

/* Makes `range` and the one behind it, both out of the tree, one. */
static void join(culvert__range *range)
{
    culvert__range *next = range->next;
    range->bytes += next->bytes;
    range->next = next->next;
    if (range->next != NULL)
        range->next->prev = range;
    free(next);
}

static void give_locked(culvert__heap *heap, culvert__range *range)
{
    heap->used -= range->bytes;
    range->out = false;
    if (range->next != NULL && !range->next->out) {
        tree_remove(heap, range->next);
        join(range);
    }
    if (range->prev != NULL && !range->prev->out) {
        range = range->prev;
        tree_remove(heap, range);
        join(range);
    }
    tree_insert(heap, range);
}

/* ---- interface ---- */

culvert__heap *culvert__heap_new(const culvert__heap_ops *ops, void *owner,
                                 const culvert__heap_options *options)
{
    culvert__heap *heap = calloc(1, sizeof(*heap));
    if (heap == NULL)
        return NULL;
    if (pthread_mutex_init(&heap->lock, NULL) != 0) {
        free(heap);
        return NULL;
    }
    heap->ops = *ops;
    heap->owner = owner;
    heap->options = *options;
    heap->options.granule = round_up(options->granule == 0 ? UNIT : options->granule, UNIT);
    heap->random = 0x9e3779b9;
    return heap;
}

void culvert__heap_free(culvert__heap *heap, bool leak)
{
    if (heap == NULL)
        return;
    for (size_t i = 0; i < heap->nblocks; i++) {
        block *b = heap->blocks[i];
        if (!leak)
            heap->ops.shrink(heap->owner, b->address, b->bytes);
        for (culvert__range *r = b->first, *next; r != NULL; r = next) {
            next = r->next;
            free(r);
        }
        free(b);
    }
    free(heap->blocks);
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

culvert__range *culvert__heap_take(culvert__heap *heap, size_t bytes, bool may_grow,
                                   culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    size_t need = round_up(bytes == 0 ? 1 : bytes, UNIT);
    if (need > PTRDIFF_MAX) {
        culvert__error_set(err, CULVERT_EOVERFLOW, 0, NULL, NULL,
                           "%zu bytes of %s asked for: more than there can be", bytes,
                           heap->options.what);
        return NULL;
    }
    pthread_mutex_lock(&heap->lock);
    culvert__range *range = take_locked(heap, need, may_grow, &local);
    pthread_mutex_unlock(&heap->lock);
    if (range == NULL && err != NULL)
        *err = local;
    return range;
}

void culvert__heap_give(culvert__heap *heap, culvert__range *range)
{
    pthread_mutex_lock(&heap->lock);
    give_locked(heap, range);
    pthread_mutex_unlock(&heap->lock);
}

unsigned long long culvert__range_address(const culvert__range *range)
{
    return range->address;
}

size_t culvert__range_bytes(const culvert__range *range)
{
    return range->bytes;
}

/* The size of the next block of a reserve of which `rest` is missing; 0: the limit allows none. */
static size_t reserve_step(const culvert__heap *heap, size_t piece, size_t rest)
{
    size_t limit = heap->options.limit;
    size_t left = limit == 0 ? PTRDIFF_MAX : limit - heap->taken;
    if (piece <= left)
        return piece;
    rest = round_up(rest, UNIT);
    return rest < piece && rest <= left ? rest : 0;
}

int culvert__heap_reserve(culvert__heap *heap, size_t bytes, size_t piece, culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    int code = CULVERT_OK;
    piece = round_up(piece == 0 ? heap->options.block_bytes : piece, UNIT);
    pthread_mutex_lock(&heap->lock);
    for (size_t done = 0, step; done < bytes && code == CULVERT_OK; done += step) {
        step = reserve_step(heap, piece, bytes - done);
        if (step == 0) {
            code = CULVERT_ENOMEM;
            culvert__error_set(&local, code, 0, NULL, NULL, "the limit is reached");
        } else {
            code = add_block(heap, step, &local);
        }
        if (code == CULVERT_ENOMEM)
            figures(heap, bytes, local.message, &local);
    }
    pthread_mutex_unlock(&heap->lock);
    if (code != CULVERT_OK && err != NULL)
        *err = local;
    return code;
}

bool culvert__heap_fits(culvert__heap *heap, size_t bytes)
{
    size_t need = round_up(bytes == 0 ? 1 : bytes, UNIT);
    pthread_mutex_lock(&heap->lock);
    bool fits = tree_best(heap, need) != NULL;
    pthread_mutex_unlock(&heap->lock);
    return fits;
}

int culvert__heap_grow(culvert__heap *heap, size_t bytes, culvert_error *err)
{
    pthread_mutex_lock(&heap->lock);
    int code = grow(heap, round_up(bytes == 0 ? 1 : bytes, UNIT), err);
    if (code == CULVERT_ENOMEM)
        figures(heap, bytes, err->message, err);
    pthread_mutex_unlock(&heap->lock);
    return code;
}

/* ---- giving blocks back ---- */

static bool is_idle(const block *b)
{
    return !b->first->out && b->first->next == NULL;
}

/* Out of the heap, with its only range. */
static void remove_block(culvert__heap *heap, size_t i)
{
    block *b = heap->blocks[i];
    tree_remove(heap, b->first);
    heap->taken -= b->bytes;
    heap->nblocks--;
    memmove(heap->blocks + i, heap->blocks + i + 1, (heap->nblocks - i) * sizeof(*heap->blocks));
}

size_t culvert__heap_trim(culvert__heap *heap, size_t keep)
{
    block *idle = NULL;
    size_t at = 0;
    pthread_mutex_lock(&heap->lock);
    for (size_t i = 0; i < heap->nblocks; i++) {
        block *b = heap->blocks[i];
        if (!is_idle(b) || heap->taken - b->bytes < keep ||
            (idle != NULL && b->bytes <= idle->bytes))
            continue;
        idle = b;
        at = i;
    }
    if (idle != NULL)
        remove_block(heap, at);
    pthread_mutex_unlock(&heap->lock);
    if (idle == NULL)
        return 0;
    size_t bytes = idle->bytes;
    heap->ops.shrink(heap->owner, idle->address, bytes);
    free(idle->first);
    free(idle);
    return bytes;
}

size_t culvert__heap_idle(culvert__heap *heap, size_t keep)
{
    size_t bytes = 0;
    pthread_mutex_lock(&heap->lock);
    for (size_t i = heap->nblocks; i > 0; i--) {
        const block *b = heap->blocks[i - 1];
        if (is_idle(b) && heap->taken - bytes - b->bytes >= keep)
            bytes += b->bytes;
    }
    pthread_mutex_unlock(&heap->lock);
    return bytes;
}

void culvert__heap_set_limit(culvert__heap *heap, size_t limit)
{
    pthread_mutex_lock(&heap->lock);
    heap->options.limit = limit;
    pthread_mutex_unlock(&heap->lock);
}

size_t culvert__heap_taken(const culvert__heap *heap)
{
    culvert__heap *h = (culvert__heap *)heap; /* for the lock only */
    pthread_mutex_lock(&h->lock);
    size_t bytes = h->taken;
    pthread_mutex_unlock(&h->lock);
    return bytes;
}

size_t culvert__heap_used(const culvert__heap *heap)
{
    culvert__heap *h = (culvert__heap *)heap; /* for the lock only */
    pthread_mutex_lock(&h->lock);
    size_t bytes = h->used;
    pthread_mutex_unlock(&h->lock);
    return bytes;
}

bool culvert__heap_contains(culvert__heap *heap, unsigned long long address, size_t bytes)
{
    pthread_mutex_lock(&heap->lock);
    size_t after = block_after(heap, address);
    const block *b = after == 0 ? NULL : heap->blocks[after - 1];
    bool inside =
        b != NULL && address - b->address < b->bytes && bytes <= b->bytes - (address - b->address);
    pthread_mutex_unlock(&heap->lock);
    return inside;
}
