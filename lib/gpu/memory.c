/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heaps of a gpu: where their blocks come from, and when they go.
 *
 * Invariants:
 *   - blocks go back to the driver when the device has been idle for a time (trim.c), and when the
 *     memory itself goes: the device was closed and the last buffer is gone. Freeing waits for
 *     running kernels, and stalls the launches of all threads meanwhile, so then too it is put off
 *     while any loop has work on the device: such memory is a spare of the device, of which nothing
 *     is out, and the next gpu of the device has it.
 *   - memory of a lost device is never freed, nor is anything in a child after fork(): the driver
 *     must not be called there.
 *   - aliases only grow, at the front, so they are read without a lock.
 *
 * Device memory comes in blocks of 64 MiB: a cuMemAlloc takes up to a millisecond, and stalls
 * launches meanwhile. Pinned memory comes by 1 MiB, since pinning takes half a millisecond for
 * each.
 */
#include "gpu/gpu_internal.h"

#include <stdlib.h>

enum { MIB = 1024 * 1024, DEVICE_BLOCK = 64 * MIB, DEVICE_GRANULE = 2 * MIB };
enum { PINNED_BLOCK = MIB, PINNED_GRANULE = 64 * 1024 };

/* A pinned block that has another address on the device than on the host. */
struct culvert__alias {
    struct culvert__alias *next;
    unsigned long long host, device;
    size_t bytes;
};

/* ---- device memory ---- */

static int grow_local(void *owner, size_t bytes, unsigned long long *address, culvert_error *err)
{
    const culvert__memory *memory = owner;
    const culvert__driver *drv = memory->device->drv;
    const char *call = "cuCtxPushCurrent";
    culvert__scope scope = culvert__scope_enter(memory->device);
    int result = scope.result;
    if (result == CULVERT__CUDA_SUCCESS) {
        call = "cuMemAlloc";
        result = drv->cuMemAlloc(address, bytes);
    }
    culvert__scope_leave(scope);
    if (result == CULVERT__CUDA_SUCCESS)
        return CULVERT_OK;
    return culvert__driver_error(drv, result, call, err);
}

static void shrink_local(void *owner, unsigned long long address, size_t bytes)
{
    const culvert__memory *memory = owner;
    (void)bytes;
    culvert__scope scope = culvert__scope_enter(memory->device);
    (void)memory->device->drv->cuMemFree(address);
    culvert__scope_leave(scope);
}

/* ---- pinned memory ---- */

/* Where the device sees the block: kept if it is not where the host does. */
static int note_address(culvert__memory *memory, void *host, size_t bytes, const char **call)
{
    unsigned long long device = 0;
    *call = "cuMemHostGetDevicePointer";
    int result = memory->device->drv->cuMemHostGetDevicePointer(&device, host, 0);
    if (result != CULVERT__CUDA_SUCCESS || device == (uintptr_t)host)
        return result;
    struct culvert__alias *alias = malloc(sizeof *alias);
    if (alias == NULL)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    *alias = (struct culvert__alias){atomic_load(&memory->aliases), (uintptr_t)host, device, bytes};
    atomic_store(&memory->aliases, alias); /* the heap's lock is held: nobody else adds */
    return CULVERT__CUDA_SUCCESS;
}

static int grow_pinned(void *owner, size_t bytes, unsigned long long *address, culvert_error *err)
{
    culvert__memory *memory = owner;
    const culvert__driver *drv = memory->device->drv;
    const char *call = "cuCtxPushCurrent";
    void *host = NULL;
    culvert__scope scope = culvert__scope_enter(memory->device);
    int result = scope.result;
    if (result == CULVERT__CUDA_SUCCESS) {
        call = "cuMemHostAlloc";
        result = drv->cuMemHostAlloc(&host, bytes, CULVERT__CU_MEMHOSTALLOC_PORTABLE);
    }
    if (result == CULVERT__CUDA_SUCCESS) {
        result = note_address(memory, host, bytes, &call);
        if (result != CULVERT__CUDA_SUCCESS)
            (void)drv->cuMemFreeHost(host);
    }
    culvert__scope_leave(scope);
    if (result != CULVERT__CUDA_SUCCESS)
        return culvert__driver_error(drv, result, call, err);
    *address = (uintptr_t)host;
    return CULVERT_OK;
}

static void shrink_pinned(void *owner, unsigned long long address, size_t bytes)
{
    const culvert__memory *memory = owner;
    (void)bytes;
    culvert__scope scope = culvert__scope_enter(memory->device);
    (void)memory->device->drv->cuMemFreeHost((void *)(uintptr_t)address);
    culvert__scope_leave(scope);
}

unsigned long long culvert__memory_device_address(culvert__memory *memory, unsigned long long host)
{
    for (const struct culvert__alias *a = atomic_load(&memory->aliases); a != NULL; a = a->next)
        if (host - a->host < a->bytes)
            return a->device + (host - a->host);
    return host;
}

/* ---- heaps ---- */

static bool make_heaps(culvert__memory *memory, const culvert_gpu_options *options)
{
    static const culvert__heap_ops local_ops = {grow_local, shrink_local};
    static const culvert__heap_ops pinned_ops = {grow_pinned, shrink_pinned};
    const culvert__heap_options local = {.what = "device memory",
                                         .block_bytes = DEVICE_BLOCK,
                                         .granule = DEVICE_GRANULE,
                                         .limit = options->device_limit};
    const culvert__heap_options pinned = {.what = "pinned memory",
                                          .block_bytes = PINNED_BLOCK,
                                          .granule = PINNED_GRANULE,
                                          .limit = options->pinned_limit};
    const culvert__heap_options pieced = {.what = "pinned memory",
                                          .block_bytes = CULVERT__PIN_STEP,
                                          .granule = CULVERT__PIN_STEP};
    memory->local = culvert__heap_new(&local_ops, memory, &local);
    memory->pinned = culvert__heap_new(&pinned_ops, memory, &pinned);
    memory->pieced = culvert__heap_new(&culvert__pieced_ops, memory, &pieced);
    return memory->local != NULL && memory->pinned != NULL && memory->pieced != NULL;
}

static int reserve_too_large(const char *name, size_t reserve, size_t limit, culvert_error *err)
{
    culvert__error_set(err, CULVERT_EINVAL, 0, "culvert_gpu_open", NULL,
                       "options->%s_reserve is %zu bytes, above %s_limit, which is %zu", name,
                       reserve, name, limit);
    return CULVERT_EINVAL;
}

/* Device memory as one block, so that one buffer may have all of it; pinned memory in pieces that
   do not stop the launches of others for long. */
static int take_reserves(culvert__memory *memory, const culvert_gpu_options *options,
                         culvert_error *err)
{
    size_t local = options->device_reserve, pinned = options->pinned_reserve;
    if (options->device_limit != 0 && local > options->device_limit)
        return reserve_too_large("device", local, options->device_limit, err);
    if (options->pinned_limit != 0 && pinned > options->pinned_limit)
        return reserve_too_large("pinned", pinned, options->pinned_limit, err);
    int code = CULVERT_OK;
    if (local > 0 && !culvert__heap_fits(memory->local, local)) /* a spare may have it */
        code = culvert__heap_reserve(memory->local, local, local, err);
    size_t taken = culvert__heap_taken(memory->pinned);
    if (code == CULVERT_OK && taken < pinned)
        code = culvert__heap_reserve(memory->pinned, pinned - taken, PINNED_BLOCK, err);
    if (code != CULVERT_OK)
        err->op = "culvert_gpu_open";
    return code;
}

static void free_memory(culvert__memory *memory, bool leak)
{
    culvert__pieced_give_up(memory, leak);
    culvert__heap_free(memory->local, leak);
    culvert__heap_free(memory->pinned, leak);
    culvert__heap_free(memory->pieced, leak);
    culvert__regions_free(memory, leak);
    pthread_mutex_destroy(&memory->lock);
    for (struct culvert__alias *a = atomic_load(&memory->aliases), *next; a != NULL; a = next) {
        next = a->next;
        free(a);
    }
    free(memory);
}

/* ---- spares ---- */

/* Would freeing wait for work of this library, of whatever loop? Under the device's lock. */
static bool in_use(const culvert__device *device)
{
    return atomic_load(&device->units) != 0 || !culvert__list_empty(&device->graveyard) ||
           device->abandoned != NULL || device->stuck != NULL;
}

static size_t pinned_taken(const culvert__memory *memory)
{
    return culvert__heap_taken(memory->pinned) + culvert__heap_taken(memory->pieced) +
           memory->growing.bytes;
}

/* What the one heap of pinned memory has, the other cannot have. */
void culvert__memory_limit_pinned(culvert__memory *memory)
{
    size_t others = culvert__heap_taken(memory->pieced) + memory->growing.bytes;
    size_t limit = memory->pinned_limit;
    if (limit != 0)
        culvert__heap_set_limit(memory->pinned, limit > others ? limit - others : 1);
}

static bool fits(const culvert__memory *memory, const culvert_gpu_options *options)
{
    return (options->device_limit == 0 ||
            culvert__heap_taken(memory->local) <= options->device_limit) &&
           (options->pinned_limit == 0 || pinned_taken(memory) <= options->pinned_limit);
}

static culvert__memory *take_spare(culvert__device *device, const culvert_gpu_options *options)
{
    culvert__memory *memory = NULL;
    pthread_mutex_lock(&device->lock);
    for (culvert__memory **at = &device->spares; *at != NULL; at = &(*at)->next) {
        if (!fits(*at, options))
            continue;
        memory = *at;
        *at = memory->next;
        break;
    }
    pthread_mutex_unlock(&device->lock);
    if (memory != NULL) {
        culvert__heap_set_limit(memory->local, options->device_limit);
        memory->pinned_limit = options->pinned_limit;
        culvert__memory_limit_pinned(memory);
    }
    return memory;
}

static void free_all(culvert__memory *memory)
{
    while (memory != NULL) {
        culvert__memory *next = memory->next;
        free_memory(memory, false);
        memory = next;
    }
}

/* The last user of the device has gone. */
static void free_spares(culvert__device *device)
{
    culvert__memory *spares = device->spares;
    device->spares = NULL;
    free_all(spares);
}

/* Becomes a spare; where the device is idle, all of them are freed. */
static void put_away(culvert__memory *memory)
{
    culvert__device *device = memory->device;
    culvert__memory *idle = NULL;
    pthread_mutex_lock(&device->lock);
    device->free_spares = free_spares;
    memory->next = device->spares;
    device->spares = memory;
    if (!in_use(device)) {
        idle = device->spares;
        device->spares = NULL;
    }
    pthread_mutex_unlock(&device->lock);
    free_all(idle);
}

bool culvert__memory_has_spares(culvert__device *device)
{
    pthread_mutex_lock(&device->lock);
    bool has = device->spares != NULL;
    pthread_mutex_unlock(&device->lock);
    return has;
}

void culvert__memory_free_spares(culvert__device *device)
{
    pthread_mutex_lock(&device->lock);
    culvert__memory *spares = device->spares;
    device->spares = NULL;
    pthread_mutex_unlock(&device->lock);
    free_all(spares);
}

/* ---- telling the loop ---- */

static void on_changed(culvert__post *post)
{
    culvert__memory *memory = CULVERT__CONTAINER(post, culvert__memory, changed_post);
    atomic_store(&memory->changed, false);
    culvert__memory_unref(memory); /* the sources are polled next */
}

void culvert__memory_changed(culvert__memory *memory)
{
    if (memory->hub == NULL || atomic_exchange(&memory->changed, true))
        return;
    culvert__memory_ref(memory);
    if (culvert__hub_post(memory->hub, &memory->changed_post) == CULVERT_OK)
        return;
    atomic_store(&memory->changed, false); /* its loop is gone */
    culvert__memory_unref(memory);
}

void culvert__memory_attach(culvert__memory *memory, culvert__hub *hub)
{
    memory->changed_post.run = on_changed;
    memory->hub = culvert__hub_ref(hub);
}

static void detach(culvert__memory *memory)
{
    if (memory->hub != NULL)
        culvert__hub_unref(memory->hub);
    memory->hub = NULL;
    atomic_store(&memory->watched, false);
}

/* ---- life ---- */

static culvert__memory *make_memory(culvert__device *device, const culvert_gpu_options *options)
{
    culvert__memory *memory = take_spare(device, options);
    if (memory == NULL) {
        memory = calloc(1, sizeof *memory);
        if (memory == NULL)
            return NULL;
        pthread_mutex_init(&memory->lock, NULL);
        memory->pinned_limit = options->pinned_limit;
    }
    atomic_store(&memory->refs, 1);
    memory->next = NULL;
    memory->local_keep = options->device_reserve;
    memory->pinned_keep = options->pinned_reserve;
    memory->device = device;
    if (memory->local == NULL && !make_heaps(memory, options)) {
        free_memory(memory, false);
        return NULL;
    }
    culvert__device_ref(device);
    return memory;
}

culvert__memory *culvert__memory_new(culvert__device *device, const culvert_gpu_options *options,
                                     culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    culvert__memory *memory = make_memory(device, options);
    if (memory == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", NULL,
                           "no memory for the bookkeeping of the device's memory");
        return NULL;
    }
    if (take_reserves(memory, options, &local) != CULVERT_OK) {
        culvert__memory_unref(memory);
        if (err != NULL)
            *err = local;
        return NULL;
    }
    return memory;
}

culvert__memory *culvert__memory_ref(culvert__memory *memory)
{
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
    return memory;
}

void culvert__memory_unref(culvert__memory *memory)
{
    if (memory == NULL || culvert__forked())
        return;
    if (atomic_fetch_sub_explicit(&memory->refs, 1, memory_order_acq_rel) != 1)
        return;
    culvert__device *device = memory->device;
    detach(memory);
    if (culvert__device_is_lost(device))
        free_memory(memory, true);
    else
        put_away(memory);
    culvert__device_unref(device);
}

int culvert__memory_grow_pinned(culvert__memory *memory, culvert_error *err)
{
    return culvert__heap_reserve(memory->pinned, PINNED_BLOCK, PINNED_BLOCK, err);
}
