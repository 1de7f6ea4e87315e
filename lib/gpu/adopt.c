/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory that somebody else has made, as a buffer.
 *
 * Such a buffer has no range of a heap. When its last reference goes, which is that of the last work
 * that used it if there is any, the owner is released: on the loop, on a later turn, so that the
 * function of the program runs inside no call; where the loop is gone, at once.
 */
#include "gpu/flow.h"

#include <stdlib.h>

typedef struct adopted {
    culvert_buffer buffer; /* first */
    culvert__post post;    /* from another thread */
    culvert__task task;    /* on the loop's */
    culvert_loop *loop;    /* its memory is counted */
    void *owner;
    culvert_free_fn *owner_free;
} adopted;

static const char op[] = "culvert_buffer_adopt";

static void let_go(adopted *a)
{
    culvert__memory *memory = a->buffer.memory;
    culvert_loop *loop = a->loop;
    if (a->owner_free != NULL)
        a->owner_free(a->owner);
    free(a);
    culvert__memory_unref(memory);
    culvert_loop_unref(loop);
}

static void run_task(culvert__task *task)
{
    let_go(CULVERT__CONTAINER(task, adopted, task));
}

static void run_post(culvert__post *post)
{
    let_go(CULVERT__CONTAINER(post, adopted, post));
}

/* Thread: any. */
static void gone(culvert_buffer *buffer)
{
    adopted *a = (adopted *)(void *)buffer;
    culvert__core *core = culvert__core_of(a->loop);
    bool here = culvert__is_owner(core);
    a->post.run = run_post;
    a->task.run = run_task;
    if (a->owner_free != NULL && here && !core->closed)
        culvert__ready_push(core, &a->task);
    else if (a->owner_free == NULL || here ||
             culvert__hub_post(culvert__loop_hub(a->loop), &a->post) != CULVERT_OK)
        let_go(a);
}

/* What the driver says of an address; false: it does not know it. */
static int look(culvert_gpu *gpu, unsigned long long address, unsigned *type, int *ordinal)
{
    int attributes[] = {CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                        CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {type, ordinal};
    culvert__visit visit = culvert__driver_enter(gpu, "cuPointerGetAttributes");
    int result = visit.scope.result;
    if (result == CULVERT__CUDA_SUCCESS)
        result = gpu->drv->cuPointerGetAttributes(2, attributes, values, address);
    culvert__driver_leave(gpu, visit);
    return result;
}

static bool check_at(culvert_gpu *gpu, unsigned long long address, size_t offset, size_t bytes,
                     const char *where, culvert_error *err)
{
    unsigned type = 0;
    int ordinal = -1;
    int result = look(gpu, address + offset, &type, &ordinal);
    if (result != CULVERT__CUDA_SUCCESS) {
        culvert__gpu_driver_failed(gpu, result, "cuPointerGetAttributes", op, where, err);
        return false;
    }
    if (type != CULVERT__CU_MEMORYTYPE_DEVICE) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "%zu bytes at %#llx: byte %zu is no device memory%s", bytes, address,
                           offset,
                           type == CULVERT__CU_MEMORYTYPE_HOST ? " but pinned memory of the host"
                                                               : " that the driver knows");
        return false;
    }
    if (ordinal != gpu->device->ordinal) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "%zu bytes at %#llx: the memory is of device %d, not of device %d",
                           bytes, address, ordinal, gpu->device->ordinal);
        return false;
    }
    return true;
}

static bool check(culvert_gpu *gpu, unsigned long long address, size_t bytes, const char *where,
                  culvert_error *err)
{
    if (culvert__gpu_refuses(gpu, op, where, err))
        return false;
    if (bytes == 0)
        return true;
    if (bytes > PTRDIFF_MAX || address + bytes < address) {
        culvert__error_set(err, CULVERT_EOVERFLOW, 0, op, where,
                           "%zu bytes at %#llx: more than there can be", bytes, address);
        return false;
    }
    return check_at(gpu, address, 0, bytes, where, err) &&
           check_at(gpu, address, bytes - 1, bytes, where, err);
}

culvert_buffer *culvert_buffer_adopt_at(const char *where, culvert_gpu *gpu,
                                        unsigned long long address, size_t bytes, void *owner,
                                        culvert_free_fn *owner_free, culvert_error *err)
{
    adopted *a = NULL;
    CULVERT__REQUIRE(gpu, op, "gpu");
    if (check(gpu, address, bytes, where, err)) {
        a = calloc(1, sizeof *a);
        if (a == NULL)
            culvert__error_set(err, CULVERT_ENOMEM, 0, op, where,
                               "no memory for a buffer's bookkeeping");
    }
    if (a == NULL) {
        culvert__release_arg(culvert__forked() ? NULL : culvert__gpu_core(gpu), owner_free, owner);
        return NULL;
    }
    atomic_init(&a->buffer.refs, 1);
    a->buffer.memory = culvert__memory_ref(gpu->memory);
    a->loop = culvert_loop_ref(gpu->loop);
    a->buffer.gone = gone;
    a->buffer.address = address;
    a->buffer.bytes = bytes;
    a->owner = owner;
    a->owner_free = owner_free;
    return &a->buffer;
}

culvert_buffer *culvert_buffer_adopt(culvert_gpu *gpu, unsigned long long address, size_t bytes,
                                     void *owner, culvert_free_fn *owner_free, culvert_error *err)
{
    return culvert_buffer_adopt_at(NULL, gpu, address, bytes, owner, owner_free, err);
}
