/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers: a counted range of a heap.
 *
 * Invariants: size and addresses never change, so they are read on any thread without a lock. A
 * buffer holds the memory it is of, which therefore outlives the gpu. Work that uses a buffer holds
 * a reference until the library has seen the end of it, so a range that is given back is used by no
 * stream.
 */
#include "gpu/flow.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- making ---- */

/* The host address of no bytes at all: not NULL, which says that a buffer is the device's. */
static _Alignas(256) unsigned char nothing[1];

/* The heap's error, with the call's name; a device that was lost is told so. */
static void failed(culvert_gpu *gpu, bool pinned, const char *op, const char *where,
                   culvert_error *heap_error, culvert_error *err)
{
    if (heap_error->code == CULVERT_EDEVICELOST)
        culvert__gpu_driver_failed(gpu, heap_error->native,
                                   pinned ? "cuMemHostAlloc" : "cuMemAlloc", op, where, heap_error);
    heap_error->op = op;
    heap_error->where = where;
    if (err != NULL)
        *err = *heap_error;
}

/* The heap that such memory comes from, without and (where `grow`) with growing. The monitor watches the
   latter, for the driver may not return from it. */
static culvert__range *take_range(culvert_gpu *gpu, size_t bytes, bool grow, bool pinned,
                                  culvert__heap **heap, culvert_error *err)
{
    culvert__memory *memory = gpu->memory;
    *heap = pinned ? memory->pinned : memory->local;
    culvert__range *range = culvert__heap_take(*heap, bytes, false, err);
    if (range == NULL && pinned && culvert__heap_fits(memory->pieced, bytes)) {
        *heap = memory->pieced;
        range = culvert__heap_take(*heap, bytes, false, err);
    }
    if (range != NULL || !grow)
        return range;
    *heap = pinned ? memory->pinned : memory->local;
    const char *outer = culvert__call_begin(gpu->flow, pinned ? "cuMemHostAlloc" : "cuMemAlloc");
    range = culvert__heap_take(*heap, bytes, true, err);
    culvert__call_end(gpu->flow, outer);
    culvert__trim_watch(gpu);
    return range;
}

bool culvert__buffer_fill(culvert_buffer *buffer, culvert_gpu *gpu, bool grow, bool pinned,
                          culvert_error *err)
{
    size_t bytes = buffer->bytes;
    if (bytes > 0) {
        buffer->range = take_range(gpu, bytes, grow, pinned, &buffer->heap, err);
        if (buffer->range == NULL)
            return false;
        buffer->address = culvert__range_address(buffer->range);
    }
    buffer->memory = culvert__memory_ref(gpu->memory);
    if (!pinned)
        return true;
    buffer->data = bytes > 0 ? (void *)(uintptr_t)buffer->address : nothing;
    if (bytes > 0 && buffer->heap == gpu->memory->pieced &&
        culvert__seam_run(CULVERT__PIN_STEP, (uintptr_t)buffer->address, bytes) < bytes)
        buffer->seam = CULVERT__PIN_STEP;
    buffer->address = culvert__memory_device_address(gpu->memory, buffer->address);
    return true;
}

culvert_buffer *culvert__buffer_blank(size_t bytes, const char *op, const char *where,
                                      culvert_error *err)
{
    culvert_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, op, where,
                           "no memory for a buffer's bookkeeping");
        return NULL;
    }
    atomic_init(&buffer->refs, 1);
    buffer->bytes = bytes;
    return buffer;
}

culvert_buffer *culvert__buffer_take(culvert_gpu *gpu, size_t bytes, bool may_grow, bool pinned,
                                     const char *op, const char *where, culvert_error *err)
{
    culvert_error local = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert__buffer_blank(bytes, op, where, err);
    if (buffer == NULL || culvert__buffer_fill(buffer, gpu, may_grow, pinned, &local))
        return buffer;
    free(buffer);
    failed(gpu, pinned, op, where, &local, err);
    return NULL;
}

culvert_buffer *culvert_buffer_new_at(const char *where, culvert_gpu *gpu, size_t bytes,
                                      culvert_error *err)
{
    static const char op[] = "culvert_buffer_new";
    CULVERT__REQUIRE(gpu, op, "gpu");
    if (culvert__gpu_refuses(gpu, op, where, err))
        return NULL;
    return culvert__buffer_take(gpu, bytes, true, false, op, where, err);
}

culvert_buffer *culvert_buffer_new(culvert_gpu *gpu, size_t bytes, culvert_error *err)
{
    return culvert_buffer_new_at(NULL, gpu, bytes, err);
}

culvert_buffer *culvert_host_buffer_new_at(const char *where, culvert_gpu *gpu, size_t bytes,
                                           culvert_error *err)
{
    static const char op[] = "culvert_host_buffer_new";
    CULVERT__REQUIRE(gpu, op, "gpu");
    if (culvert__gpu_refuses(gpu, op, where, err))
        return NULL;
    return culvert__buffer_take(gpu, bytes, true, true, op, where, err);
}

culvert_buffer *culvert_host_buffer_new(culvert_gpu *gpu, size_t bytes, culvert_error *err)
{
    return culvert_host_buffer_new_at(NULL, gpu, bytes, err);
}

/* ---- counting: any thread ---- */

culvert_buffer *culvert_buffer_ref(culvert_buffer *buffer)
{
    CULVERT__REQUIRE(buffer, "culvert_buffer_ref", "buffer");
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

/* In a child after fork() the heap's lock may be held by a thread that is not there: all of it
   stays. */
void culvert_buffer_unref(culvert_buffer *buffer)
{
    if (buffer == NULL || culvert__forked())
        return;
    if (atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1)
        return;
    culvert__memory *memory = buffer->memory;
    if (buffer->gone != NULL) {
        buffer->gone(buffer);
        return;
    }
    if (buffer->range != NULL)
        culvert__heap_give(buffer->heap, buffer->range);
    free(buffer);
    if (atomic_load(&memory->watched)) /* somebody waits for it */
        culvert__memory_changed(memory);
    culvert__memory_unref(memory);
}

/* ---- asking: any thread ---- */

size_t culvert_buffer_size(const culvert_buffer *buffer)
{
    CULVERT__REQUIRE(buffer, "culvert_buffer_size", "buffer");
    return buffer->bytes;
}

void *culvert_buffer_data(const culvert_buffer *buffer)
{
    CULVERT__REQUIRE(buffer, "culvert_buffer_data", "buffer");
    return buffer->data;
}

unsigned long long culvert_buffer_address(const culvert_buffer *buffer)
{
    CULVERT__REQUIRE(buffer, "culvert_buffer_address", "buffer");
    return buffer->address;
}

/* ---- checking ---- */

/* Pinned memory is portable: every device of the same driver reaches it. */
bool culvert__buffer_reaches(const culvert_buffer *buffer, const culvert__device *device)
{
    const culvert__device *own = buffer->memory->device;
    return own == device || (buffer->data != NULL && own->drv == device->drv);
}

void culvert__buffer_foreign(const culvert_buffer *buffer, const culvert__device *device, char *out,
                             size_t size)
{
    const culvert__device *own = buffer->memory->device;
    if (own->drv != device->drv)
        snprintf(out, size, "the buffer is of driver %s, the stream of driver %s", own->drv->file,
                 device->drv->file);
    else if (own->ordinal != device->ordinal)
        snprintf(out, size, "the buffer is of device %d, the stream of device %d", own->ordinal,
                 device->ordinal);
    else
        snprintf(out, size, "the buffer is of another context of device %d than the stream",
                 device->ordinal);
}

bool culvert__buffer_check(const culvert_buffer *buffer, const culvert__device *device,
                           const char *verb, const char *op, const char *where, size_t offset,
                           size_t bytes, culvert_error *err)
{
    if (!culvert__buffer_reaches(buffer, device)) {
        char what[160];
        culvert__buffer_foreign(buffer, device, what, sizeof what);
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where, "%s of %zu bytes: %s", verb, bytes,
                           what);
        return false;
    }
    if (bytes > SIZE_MAX - offset) {
        culvert__error_set(err, CULVERT_EOVERFLOW, 0, op, where,
                           "%s of %zu bytes at offset %zu: the sum is above %zu, the largest size",
                           verb, bytes, offset, (size_t)SIZE_MAX);
        return false;
    }
    if (offset + bytes > buffer->bytes) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "%s of %zu bytes at offset %zu runs past the end of a %zu-byte buffer",
                           verb, bytes, offset, buffer->bytes);
        return false;
    }
    return true;
}
