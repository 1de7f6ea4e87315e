/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device of the process: its context, its limits, and what all loops that use it share.
 *
 * Invariants:
 *   - one culvert__device for each driver, ordinal and context; it is in the registry as long as
 *     refs > 0. A lost device is never given up: what it held stays reachable from it, for ever.
 *   - `description`, `drv`, `ctx` are written before the device is in the registry, then only read.
 *   - the registry's lock is held across the opening and closing of a context, so that two threads
 *     that open the same device get the same one; nothing on a hot path takes it.
 *   - `lock` guards `gpus` and `lost_error`; no call of the driver is made while it is held.
 */
#include "gpu/gpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static culvert__device *registry;

static bool attribute(const culvert__driver *drv, int device, int which, unsigned *out)
{
    int value = 0;
    if (drv->cuDeviceGetAttribute(&value, which, device) != CULVERT__CUDA_SUCCESS)
        return false;
    *out = (unsigned)value;
    return true;
}

static void describe_limits(culvert__device *device)
{
    culvert_gpu_description *d = &device->description;
    const culvert__driver *drv = device->drv;
    unsigned major = 0, minor = 0;
    const struct {
        int which;
        unsigned *out;
    } rows[] = {
        {CULVERT__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CULVERT__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d->multiprocessors},
        {CULVERT__CU_DEVICE_ATTRIBUTE_WARP_SIZE, &d->warp_size},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &d->max_threads_per_block},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &d->max_block[0]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &d->max_block[1]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &d->max_block[2]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &d->max_grid[0]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &d->max_grid[1]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &d->max_grid[2]},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &d->max_shared_bytes},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
         &d->max_shared_optin_bytes},
        {CULVERT__CU_DEVICE_ATTRIBUTE_MAX_PITCH, &device->max_pitch},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        (void)attribute(drv, device->handle, rows[i].which, rows[i].out);
    d->compute_major = (int)major;
    d->compute_minor = (int)minor;
    unsigned yes = 0;
    device->has_cooperative =
        attribute(drv, device->handle, CULVERT__CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &yes) &&
        yes != 0;
    yes = 0;
    device->has_clusters =
        attribute(drv, device->handle, CULVERT__CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, &yes) &&
        yes != 0;
}

static void describe(culvert__device *device)
{
    culvert_gpu_description *d = &device->description;
    const culvert__driver *drv = device->drv;
    size_t total = 0;
    culvert__CUuuid uuid = {{0}};
    d->struct_size = sizeof *d;
    d->ordinal = device->ordinal;
    d->simulated = drv->simulated;
    d->driver_version = drv->version;
    snprintf(d->driver, sizeof d->driver, "%s", drv->path);
    if (drv->cuDeviceGetName(d->name, (int)sizeof d->name, device->handle) != 0)
        snprintf(d->name, sizeof d->name, "device %d", device->ordinal);
    if (drv->cuDeviceGetPCIBusId(d->pci_bus_id, (int)sizeof d->pci_bus_id, device->handle) != 0)
        d->pci_bus_id[0] = '\0';
    if (drv->cuDeviceGetUuid(&uuid, device->handle) == 0)
        memcpy(d->uuid, uuid.bytes, sizeof d->uuid);
    if (drv->cuDeviceTotalMem(&total, device->handle) == 0)
        d->total_bytes = total;
    describe_limits(device);
}

/* What can be asked of a context only while it is current. */
static int look_at_context(culvert__device *device, int *own, const char **call)
{
    const culvert__driver *drv = device->drv;
    struct CUctx_st *popped;
    int least = 0, greatest = 0;
    *call = "cuCtxPushCurrent";
    int r = drv->cuCtxPushCurrent(device->ctx);
    if (r != CULVERT__CUDA_SUCCESS)
        return r;
    *call = "cuCtxGetDevice";
    r = drv->cuCtxGetDevice(own);
    if (r == CULVERT__CUDA_SUCCESS) {
        *call = "cuCtxGetStreamPriorityRange";
        r = drv->cuCtxGetStreamPriorityRange(&least, &greatest);
    }
    device->description.priority_least = least;
    device->description.priority_greatest = greatest;
    (void)drv->cuCtxPopCurrent(&popped);
    return r;
}

static bool fail_with_result(const culvert__device *device, int r, const char *call,
                             culvert_error *err)
{
    (void)culvert__driver_error(device->drv, r, call, err);
    return false;
}

/* Retains the primary context, or looks at the one that was given. */
static bool take_context(culvert__device *device, struct CUctx_st *ctx, culvert_error *err)
{
    const char *call = "cuDevicePrimaryCtxRetain";
    int own = device->handle;
    device->ctx = ctx;
    if (ctx == NULL) {
        int r = device->drv->cuDevicePrimaryCtxRetain(&device->ctx, device->handle);
        device->primary = r == CULVERT__CUDA_SUCCESS;
        if (r != CULVERT__CUDA_SUCCESS)
            return fail_with_result(device, r, call, err);
    }
    int r = look_at_context(device, &own, &call);
    if (ctx != NULL && (r == CULVERT__CUDA_ERROR_INVALID_CONTEXT ||
                        r == CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED)) {
        culvert__error_set(err, CULVERT_EINVAL, r, "culvert_gpu_open", NULL,
                           "options->context is no context of driver %s: %s (%d) from %s",
                           device->drv->file, culvert__driver_error_name(device->drv, r), r, call);
        return false;
    }
    if (r != CULVERT__CUDA_SUCCESS)
        return fail_with_result(device, r, call, err);
    if (own != device->handle) {
        culvert__error_set(err, CULVERT_EINVAL, 0, "culvert_gpu_open", NULL,
                           "options->context is of another device than %d, which is opened",
                           device->ordinal);
        return false;
    }
    return true;
}

static void drop_context(culvert__device *device)
{
    if (device->primary)
        (void)device->drv->cuDevicePrimaryCtxRelease(device->handle);
}

/* The driver reads the same variable at its start; 8 queues, unless it says 1 to 32. */
static unsigned most_waiting(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    unsigned long queues = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (queues < 1 || queues > 32)
        queues = 8;
    return queues > 2 ? (unsigned)queues - 2 : 0;
}

static culvert__device *make(const culvert__driver *drv, int ordinal, struct CUctx_st *ctx,
                             culvert_error *err)
{
    int count = 0;
    culvert__device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", NULL,
                           "no memory for %zu bytes of a device's state", sizeof *device);
        return NULL;
    }
    device->drv = drv;
    device->ordinal = ordinal;
    device->refs = 1;
    culvert__list_init(&device->gpus);
    culvert__list_init(&device->graveyard);
    culvert__list_init(&device->line);
    pthread_mutex_init(&device->lock, NULL);
    const char *call = "cuDeviceGetCount";
    int r = drv->cuDeviceGetCount(&count);
    if (r == CULVERT__CUDA_SUCCESS && (ordinal < 0 || ordinal >= count)) {
        culvert__error_set(err, CULVERT_ENODEVICE, 0, "culvert_gpu_open", NULL,
                           "there is no device %d: the driver shows %d, numbered from 0", ordinal,
                           count);
        goto fail;
    }
    if (r == CULVERT__CUDA_SUCCESS) {
        call = "cuDeviceGet";
        r = drv->cuDeviceGet(&device->handle, ordinal);
    }
    if (r != CULVERT__CUDA_SUCCESS) {
        (void)fail_with_result(device, r, call, err);
        goto fail;
    }
    if (!take_context(device, ctx, err)) {
        drop_context(device);
        goto fail;
    }
    describe(device);
    device->most_waiting = most_waiting();
    return device;
fail:
    pthread_mutex_destroy(&device->lock);
    free(device);
    return NULL;
}

culvert__device *culvert__device_open(const culvert__driver *drv, int ordinal, struct CUctx_st *ctx,
                                      culvert_error *err)
{
    culvert__device *device;
    pthread_mutex_lock(&registry_lock);
    for (device = registry; device != NULL; device = device->next) {
        bool same_context = ctx == NULL ? device->primary : device->ctx == ctx;
        if (device->drv == drv && device->ordinal == ordinal && same_context)
            break;
    }
    if (device != NULL) {
        device->refs++;
    } else if ((device = make(drv, ordinal, ctx, err)) != NULL) {
        for (culvert__device *d = registry; d != NULL; d = d->next)
            culvert__peers_meet(device, d);
        device->next = registry;
        registry = device;
    }
    pthread_mutex_unlock(&registry_lock);
    return device;
}

culvert__device *culvert__device_ref(culvert__device *device)
{
    pthread_mutex_lock(&registry_lock);
    device->refs++;
    pthread_mutex_unlock(&registry_lock);
    return device;
}

/* What it held is leaked with it. Nobody else uses it any more. */
static bool holds_something(const culvert__device *device)
{
    return culvert__device_is_lost(device) || !culvert__list_empty(&device->graveyard) ||
           device->abandoned != NULL || device->stuck != NULL || device->unreturned != NULL;
}

void culvert__device_unref(culvert__device *device)
{
    if (device == NULL || culvert__forked())
        return;
    pthread_mutex_lock(&registry_lock);
    if (--device->refs == 0 && !holds_something(device)) {
        for (culvert__device **at = &registry; *at != NULL; at = &(*at)->next) {
            if (*at == device) {
                *at = device->next;
                break;
            }
        }
        if (device->spares != NULL)
            device->free_spares(device);
        drop_context(device);
        pthread_mutex_destroy(&device->lock);
        free(device);
    }
    pthread_mutex_unlock(&registry_lock);
}
