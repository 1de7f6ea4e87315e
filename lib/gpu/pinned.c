/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Host memory that is pinned in pieces, and how pinned memory is recognised.
 *
 * Pinning takes half a millisecond a MiB and stalls the launches of all threads meanwhile, so in
 * service it is done by a MiB a turn. A block of more than that is ordinary memory of which one
 * piece after the other is registered; blocks of that kind are in a heap of their own, for the
 * driver takes no copy that goes over the seam of two registrations.
 *
 *   growing:  none -> mapped -> pinned in part -> all pinned -> a block of `pieced`
 *                                     \------ given up: what is pinned ----/
 *
 * Invariants:
 *   - of memory->growing the first `done` bytes are pinned; it counts as a whole for the limit
 *   - no range of `pinned` crosses a seam, so neither staging nor small buffers know of them
 *   - pinned memory has the same address on the device as on the host, where it is pinned in pieces
 */
#define _GNU_SOURCE
#include "gpu/flow.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- pieces ---- */

int culvert__pin_next(const culvert__device *device, culvert__pinning *p, const char **call)
{
    const culvert__driver *drv = device->drv;
    unsigned long long address = 0;
    uintptr_t at = p->base + p->done;
    size_t bytes = culvert__seam_run(p->piece, at, p->bytes - p->done);
    void *host = (void *)at; /* an address from mmap, or the program's */
    *call = "cuMemHostRegister";
    int result = drv->cuMemHostRegister(host, bytes, CULVERT__CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CULVERT__CUDA_SUCCESS)
        return result;
    *call = "cuMemHostGetDevicePointer";
    result = drv->cuMemHostGetDevicePointer(&address, host, 0);
    if (result == CULVERT__CUDA_SUCCESS && address != at)
        result = CULVERT__CUDA_ERROR_NOT_SUPPORTED;
    if (result != CULVERT__CUDA_SUCCESS)
        (void)drv->cuMemHostUnregister(host);
    else
        p->done += bytes;
    return result;
}

int culvert__unpin_next(const culvert__device *device, culvert__pinning *p)
{
    if (p->done == 0)
        return CULVERT__CUDA_SUCCESS;
    uintptr_t last = p->base + p->done - 1;
    uintptr_t at = last - last % p->piece;
    if (at < p->base)
        at = p->base;
    p->done = at - p->base;
    return device->drv->cuMemHostUnregister((void *)at);
}

static void unpin_all(const culvert__device *device, culvert__pinning *p)
{
    culvert__scope scope = culvert__scope_enter(device);
    while (p->done > 0)
        (void)culvert__unpin_next(device, p);
    culvert__scope_leave(scope);
}

/* ---- blocks of pieces ---- */

/* The block is there already: it is what has grown. */
static int take_grown(void *owner, size_t bytes, unsigned long long *address, culvert_error *err)
{
    culvert__memory *memory = owner;
    (void)bytes;
    (void)err;
    *address = memory->growing.base;
    memory->growing = (culvert__pinning){0};
    return CULVERT_OK;
}

static void shrink(void *owner, unsigned long long address, size_t bytes)
{
    const culvert__memory *memory = owner;
    culvert__pinning p = {(uintptr_t)address, bytes, CULVERT__PIN_STEP, bytes};
    unpin_all(memory->device, &p);
    (void)munmap((void *)(uintptr_t)address, bytes);
}

const culvert__heap_ops culvert__pieced_ops = {take_grown, shrink};

/* So many bytes of ordinary memory, a multiple of the step, as is the address. 0: there are none. */
static uintptr_t map(size_t bytes)
{
    void *p = mmap(NULL, bytes + CULVERT__PIN_STEP, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    uintptr_t from = (uintptr_t)p, all_end = from + bytes + CULVERT__PIN_STEP;
    uintptr_t base = (from + CULVERT__PIN_STEP - 1) / CULVERT__PIN_STEP * CULVERT__PIN_STEP;
    if (base > from)
        (void)munmap(p, base - from);
    if (all_end > base + bytes)
        (void)munmap((void *)(base + bytes), all_end - (base + bytes));
    /* The device's pages stay this process's, also where it writes to them after a fork(). */
    (void)madvise((void *)base, bytes, MADV_DONTFORK);
    return base;
}

static int begin(culvert__memory *memory, size_t bytes, culvert_error *err)
{
    size_t limit = memory->pinned_limit == 0 ? PTRDIFF_MAX : memory->pinned_limit;
    size_t taken = culvert__heap_taken(memory->pinned) + culvert__heap_taken(memory->pieced);
    size_t all = (bytes + CULVERT__PIN_STEP - 1) / CULVERT__PIN_STEP * CULVERT__PIN_STEP;
    uintptr_t base = taken <= limit && all <= limit - taken ? map(all) : 0;
    if (base == 0) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, NULL, NULL,
                           "%zu bytes of pinned memory asked for; %zu taken, limit %zu: %s", bytes,
                           taken, memory->pinned_limit,
                           taken > limit || all > limit - taken ? "the limit is reached"
                                                                : "the system has no memory");
        return CULVERT_ENOMEM;
    }
    memory->growing = (culvert__pinning){base, all, CULVERT__PIN_STEP, 0};
    culvert__memory_limit_pinned(memory);
    return CULVERT_OK;
}

int culvert__pieced_finish(culvert__memory *memory, culvert_error *err)
{
    culvert__pinning *g = &memory->growing;
    int code = CULVERT_OK;
    if (g->done < g->bytes)
        (void)munmap((void *)(g->base + g->done), g->bytes - g->done);
    g->bytes = g->done;
    if (g->bytes > 0) /* without memory for the bookkeeping it stays as it is, and is tried again */
        code = culvert__heap_reserve(memory->pieced, g->bytes, g->bytes, err);
    culvert__memory_limit_pinned(memory);
    return code;
}

int culvert__pieced_grow(culvert__memory *memory, size_t bytes, culvert_error *err)
{
    culvert__pinning *g = &memory->growing;
    const culvert__device *device = memory->device;
    if (g->bytes == 0 && begin(memory, bytes, err) != CULVERT_OK)
        return CULVERT_ENOMEM;
    if (g->done == g->bytes)
        return culvert__pieced_finish(memory, err);
    const char *call = "cuCtxPushCurrent";
    culvert__scope scope = culvert__scope_enter(device);
    int result = scope.result;
    if (result == CULVERT__CUDA_SUCCESS)
        result = culvert__pin_next(device, g, &call);
    culvert__scope_leave(scope);
    if (result != CULVERT__CUDA_SUCCESS) {
        int code = culvert__driver_error(device->drv, result, call, err);
        (void)culvert__pieced_finish(memory, NULL);
        return code;
    }
    return g->done == g->bytes ? culvert__pieced_finish(memory, err) : CULVERT_OK;
}

void culvert__pieced_give_up(culvert__memory *memory, bool leak)
{
    culvert__pinning *g = &memory->growing;
    if (g->bytes == 0 || leak)
        return;
    unpin_all(memory->device, g);
    (void)munmap((void *)g->base, g->bytes);
    *g = (culvert__pinning){0};
}

/* ---- recognising ---- */

bool culvert__pinned_find(culvert__memory *memory, const void *host, size_t bytes, size_t *seam,
                          culvert_buffer **owner)
{
    *seam = 0;
    *owner = NULL;
    if (culvert__heap_contains(memory->pinned, (uintptr_t)host, bytes))
        return true;
    if (culvert__heap_contains(memory->pieced, (uintptr_t)host, bytes)) {
        *seam = CULVERT__PIN_STEP;
        return true;
    }
    return culvert__regions_find(memory, host, bytes, seam, owner);
}
