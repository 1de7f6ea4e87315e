/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the program that is pinned where it is: culvert_host_register.
 *
 *   registered -> unwanted (its buffer has gone) -> unpinned, a piece at a time, when the device is idle
 *
 * Unpinning waits for the kernels that run, so it is put off until none does. The program must not
 * free the memory before: culvert_host_unregister tells when.
 *
 * Invariants, under memory->lock:
 *   - a region is in the list as long as any of it is pinned; region->buffer is NULL once unwanted
 *   - work that uses the memory in place holds the buffer, so an unwanted region is used by none
 *   - nregions is the length of the list: read without the lock, it tells the many that have none
 */
#include "gpu/flow.h"

#include <stdlib.h>

typedef struct told told;

typedef struct culvert__region {
    struct culvert__region *next;
    culvert__pinning pin;
    culvert_buffer *buffer; /* not counted */
    told *told;             /* the loop's thread's: whom to tell; NULL: nobody */
} culvert__region;

typedef struct registered {
    culvert_buffer buffer; /* first */
    culvert__region *region;
} registered;

/* The future of culvert_host_unregister. */
struct told {
    culvert_future base;
    culvert_gpu *gpu;        /* counted */
    culvert__region *region; /* NULL: settled */
};

/* ---- regions ---- */

static bool try_ref(culvert_buffer *buffer)
{
    unsigned refs = atomic_load(&buffer->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&buffer->refs, &refs, refs + 1))
            return true;
    return false;
}

bool culvert__regions_find(culvert__memory *memory, const void *host, size_t bytes, size_t *seam,
                           culvert_buffer **owner)
{
    uintptr_t at = (uintptr_t)host;
    bool found = false;
    if (atomic_load_explicit(&memory->nregions, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&memory->lock);
    for (culvert__region *r = memory->regions; r != NULL && !found; r = r->next) {
        if (at - r->pin.base >= r->pin.bytes || bytes > r->pin.bytes - (at - r->pin.base) ||
            r->buffer == NULL || !try_ref(r->buffer))
            continue;
        found = true;
        *owner = r->buffer;
        *seam = r->pin.piece;
    }
    pthread_mutex_unlock(&memory->lock);
    return found;
}

static void remove_region(culvert__memory *memory, culvert__region *region)
{
    for (culvert__region **at = &memory->regions; *at != NULL; at = &(*at)->next) {
        if (*at != region)
            continue;
        *at = region->next;
        atomic_fetch_sub(&memory->nregions, 1);
        return;
    }
}

/* Thread: any. */
static void gone(culvert_buffer *buffer)
{
    registered *reg = (registered *)(void *)buffer;
    culvert__memory *memory = buffer->memory;
    pthread_mutex_lock(&memory->lock);
    reg->region->buffer = NULL;
    pthread_mutex_unlock(&memory->lock);
    free(reg);
    culvert__memory_changed(memory);
    culvert__memory_unref(memory);
}

static culvert__region *unwanted(culvert__memory *memory)
{
    culvert__region *r = NULL;
    if (atomic_load_explicit(&memory->nregions, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&memory->lock);
    for (r = memory->regions; r != NULL && r->buffer != NULL; r = r->next)
        continue;
    pthread_mutex_unlock(&memory->lock);
    return r;
}

bool culvert__regions_unwanted(culvert__memory *memory)
{
    return unwanted(memory) != NULL;
}

size_t culvert__regions_bytes(culvert__memory *memory)
{
    size_t bytes = 0;
    pthread_mutex_lock(&memory->lock);
    for (const culvert__region *r = memory->regions; r != NULL; r = r->next)
        bytes += r->pin.done;
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}

/* ---- telling ---- */

static void tell_end(told *t)
{
    culvert_gpu *gpu = t->gpu;
    if (t->region != NULL)
        t->region->told = NULL;
    t->region = NULL;
    t->gpu = NULL;
    culvert__loop_work_end(gpu->loop);
    culvert__loop_unkeep_idle(gpu->loop);
    culvert__unpin(&t->base);
    culvert__gpu_unref(gpu);
}

static told *told_of(culvert_future *future)
{
    return CULVERT__CONTAINER(future, told, base);
}

static void cancel(culvert_future *future)
{
    culvert__settle_canceled(future);
    if (!culvert__forked())
        tell_end(told_of(future));
}

static void shut_down(culvert_future *future, const culvert_error *err)
{
    culvert__settle_error(future, err);
    if (!culvert__forked())
        tell_end(told_of(future));
}

static const culvert__kind told_kind = {.name = "unregister",
                                        .cancel = cancel,
                                        .shutdown = shut_down};

static void unpinned(culvert__memory *memory, culvert__region *region)
{
    told *t = region->told;
    pthread_mutex_lock(&memory->lock);
    remove_region(memory, region);
    pthread_mutex_unlock(&memory->lock);
    free(region);
    if (t == NULL)
        return;
    t->region = NULL;
    culvert__settle_value(&t->base, NULL, NULL);
    tell_end(t);
}

bool culvert__regions_unpin(culvert__memory *memory)
{
    culvert__region *region = unwanted(memory);
    if (region == NULL)
        return false;
    (void)culvert__unpin_next(memory->device, &region->pin);
    if (region->pin.done == 0)
        unpinned(memory, region);
    return unwanted(memory) != NULL;
}

void culvert__regions_free(culvert__memory *memory, bool leak)
{
    culvert__scope scope = leak ? (culvert__scope){0} : culvert__scope_enter(memory->device);
    for (culvert__region *r = memory->regions, *next; r != NULL; r = next) {
        next = r->next;
        while (!leak && r->pin.done > 0)
            (void)culvert__unpin_next(memory->device, &r->pin);
        free(r);
    }
    memory->regions = NULL;
    if (!leak)
        culvert__scope_leave(scope);
}

/* ---- registering ---- */

static const char register_op[] = "culvert_host_register";

static bool check(culvert_gpu *gpu, const void *host, size_t bytes, const char *where,
                  culvert_error *err)
{
    uintptr_t at = (uintptr_t)host;
    bool overlap = false;
    if (host == NULL && bytes > 0) {
        culvert__error_set(err, CULVERT_EINVAL, 0, register_op, where,
                           "memory is NULL for %zu bytes", bytes);
        return false;
    }
    if (bytes > PTRDIFF_MAX || at + bytes < at) {
        culvert__error_set(err, CULVERT_EOVERFLOW, 0, register_op, where,
                           "%zu bytes at %p: more than there can be", bytes, host);
        return false;
    }
    pthread_mutex_lock(&gpu->memory->lock);
    for (culvert__region *r = gpu->memory->regions; r != NULL && !overlap; r = r->next)
        overlap = at < r->pin.base + r->pin.bytes && r->pin.base < at + bytes;
    pthread_mutex_unlock(&gpu->memory->lock);
    if (overlap)
        culvert__error_set(err, CULVERT_EINVAL, 0, register_op, where,
                           "%zu bytes at %p: some of it is registered already, or was and will be "
                           "unregistered when the device is idle (culvert_host_unregister tells)",
                           bytes, host);
    return !overlap;
}

/* As a whole, or not at all: then what was pinned is unpinned, which may wait. */
static int pin(culvert_gpu *gpu, culvert__pinning *p, const char **call)
{
    culvert__visit visit = culvert__driver_enter(gpu, "cuMemHostRegister");
    int result = visit.scope.result;
    *call = "cuCtxPushCurrent";
    while (result == CULVERT__CUDA_SUCCESS && p->done < p->bytes)
        result = culvert__pin_next(gpu->device, p, call);
    while (result != CULVERT__CUDA_SUCCESS && p->done > 0)
        (void)culvert__unpin_next(gpu->device, p);
    culvert__driver_leave(gpu, visit);
    return result;
}

static void add(culvert__memory *memory, culvert__region *region)
{
    pthread_mutex_lock(&memory->lock);
    region->next = memory->regions;
    memory->regions = region;
    atomic_fetch_add(&memory->nregions, 1);
    pthread_mutex_unlock(&memory->lock);
}

static registered *make(culvert_gpu *gpu, void *host, size_t bytes)
{
    registered *reg = calloc(1, sizeof *reg);
    culvert__region *region = calloc(1, sizeof *region);
    if (reg == NULL || region == NULL) {
        free(reg);
        free(region);
        return NULL;
    }
    bool busy = atomic_load(&gpu->device->units) != 0;
    region->pin = (culvert__pinning){.base = (uintptr_t)host,
                                     .bytes = bytes,
                                     .piece = busy ? CULVERT__PIN_STEP : CULVERT__PIN_LARGE};
    region->buffer = &reg->buffer;
    reg->region = region;
    atomic_init(&reg->buffer.refs, 1);
    reg->buffer.gone = gone;
    reg->buffer.data = host;
    reg->buffer.address = (uintptr_t)host;
    reg->buffer.bytes = bytes;
    reg->buffer.seam = region->pin.piece;
    return reg;
}

static void driver_said(culvert_gpu *gpu, int result, const char *call, void *host, size_t bytes,
                        const char *where, culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    culvert__gpu_result(gpu, result, false, call, register_op, where, &local);
    if (local.code == CULVERT_EDEVICELOST || err == NULL) {
        if (err != NULL)
            *err = local;
        return;
    }
    culvert__error_set(err, local.code, local.native, register_op, where, "%zu bytes at %p: %s",
                       bytes, host, local.message);
}

culvert_buffer *culvert_host_register_at(const char *where, culvert_gpu *gpu, void *memory,
                                         size_t bytes, culvert_error *err)
{
    const char *call;
    CULVERT__REQUIRE(gpu, register_op, "gpu");
    if (culvert__gpu_refuses(gpu, register_op, where, err))
        return NULL;
    if (bytes == 0)
        return culvert__buffer_take(gpu, 0, false, true, register_op, where, err);
    if (!check(gpu, memory, bytes, where, err))
        return NULL;
    registered *reg = make(gpu, memory, bytes);
    if (reg == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, register_op, where,
                           "no memory for the bookkeeping of registered memory");
        return NULL;
    }
    int result = pin(gpu, &reg->region->pin, &call);
    if (result != CULVERT__CUDA_SUCCESS) {
        driver_said(gpu, result, call, memory, bytes, where, err);
        free(reg->region);
        free(reg);
        return NULL;
    }
    reg->buffer.memory = culvert__memory_ref(gpu->memory);
    add(gpu->memory, reg->region);
    return &reg->buffer;
}

culvert_buffer *culvert_host_register(culvert_gpu *gpu, void *memory, size_t bytes,
                                      culvert_error *err)
{
    return culvert_host_register_at(NULL, gpu, memory, bytes, err);
}

/* ---- unregistering ---- */

static const char unregister_op[] = "culvert_host_unregister";

static culvert_future *watch(culvert_gpu *gpu, culvert__region *region)
{
    culvert__core *core = culvert__gpu_core(gpu);
    culvert_future *future = culvert__future_alloc(core, &told_kind, sizeof(told));
    if (future == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    told *t = told_of(future);
    t->gpu = culvert__gpu_ref(gpu);
    t->region = region;
    region->told = t;
    culvert__future_make_root(future);
    culvert__pin(future);
    culvert__loop_keep_idle(gpu->loop);
    culvert__loop_work_begin(gpu->loop);
    return future;
}

culvert_future *culvert_host_unregister_at(const char *where, culvert_gpu *gpu,
                                           culvert_buffer *buffer)
{
    culvert_error err = CULVERT_ERROR_INIT;
    CULVERT__REQUIRE(buffer, unregister_op, "buffer");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    CULVERT__REQUIRE(gpu, unregister_op, "gpu");
    culvert__core *core = culvert__gpu_core(gpu);
    registered *reg = buffer->gone == gone ? (registered *)(void *)buffer : NULL;
    culvert_future *future;
    if (culvert__gpu_refuses(gpu, unregister_op, where, &err)) {
        future = culvert__future_rejected(core, &err);
    } else if (reg == NULL || buffer->memory != gpu->memory) {
        future =
            culvert__future_failed(core, CULVERT_EINVAL, 0, unregister_op, where,
                                   "the buffer is not of culvert_host_register on this device");
    } else if (reg->region->told != NULL) {
        future = culvert__future_failed(core, CULVERT_EINVAL, 0, unregister_op, where,
                                        "it was called for this memory before");
    } else {
        future = watch(gpu, reg->region);
    }
    culvert_buffer_unref(buffer);
    return future;
}

culvert_future *culvert_host_unregister(culvert_gpu *gpu, culvert_buffer *buffer)
{
    return culvert_host_unregister_at(NULL, gpu, buffer);
}
