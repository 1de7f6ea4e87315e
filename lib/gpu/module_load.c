/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert_module_load: work of the driver thread, whose life driver_work.c has.
 *
 * Invariants:
 *   - a load that is dropped calls no driver
 *   - where the future was settled before load_over (dropped, shutdown), the module is released, which
 *     unloads it
 */
#include "gpu/flow.h"

#include "culvert/sim_module.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 4096 };
typedef struct load {
    culvert__driver_work work;
    culvert_module *module; /* owned; its gpu counts for the load too */
    const char *where;
    char log[LOG_BYTES], error_log[LOG_BYTES];
} load;

static const char op[] = "culvert_module_load";

static load *load_of(culvert__driver_work *work)
{
    return CULVERT__CONTAINER(work, load, work);
}

/* ---- on the driver thread ---- */

/* The driver's number for a size among pointers. */
static void *as_pointer(size_t value)
{
    return (void *)(uintptr_t)value;
}

static int load_image(load *l)
{
    culvert_module *module = l->module;
    const culvert__driver *drv = module->gpu->drv;
    int options[] = {CULVERT__CU_JIT_INFO_LOG_BUFFER, CULVERT__CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                     CULVERT__CU_JIT_ERROR_LOG_BUFFER, CULVERT__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {l->log, as_pointer(sizeof l->log - 1), l->error_log,
                      as_pointer(sizeof l->error_log - 1)};
    const void *code = drv->simulated ? module->image->sim_module : module->image->fatbin;
    int result =
        drv->cuModuleLoadDataEx(&module->module, code,
                                (unsigned)(sizeof options / sizeof options[0]), options, values);
    if (result != CULVERT__CUDA_SUCCESS)
        module->module = NULL;
    return result;
}

/* All that the image names. A kernel that only the host-built twin has is left out. */
static int load_kernels(load *l)
{
    const struct culvert_sim_module *twin = culvert__image_twin(l->module->image);
    for (size_t i = 0; twin != NULL && i < twin->nkernels; i++) {
        culvert_kernel *kernel;
        int result =
            culvert__kernel_open(l->module, twin->kernels[i]->name, &kernel, &l->work.call);
        if (result != CULVERT__CUDA_SUCCESS && result != CULVERT__CUDA_ERROR_NOT_FOUND)
            return result;
    }
    return CULVERT__CUDA_SUCCESS;
}

static void load_work(culvert__driver_work *work)
{
    load *l = load_of(work);
    culvert_module *module = l->module;
    work->call = "cuModuleLoadDataEx";
    work->result = atomic_load(&module->gpu->device->lost);
    if (work->result == CULVERT__CUDA_SUCCESS)
        work->result = load_image(l);
    if (work->result == CULVERT__CUDA_SUCCESS)
        work->result = load_kernels(l);
    if (work->result != CULVERT__CUDA_SUCCESS && module->module != NULL) {
        if (culvert__driver_classify(work->result) !=
            CULVERT__DRIVER_LOST) /* then it only fails too */
            (void)module->gpu->drv->cuModuleUnload(module->module);
        module->module = NULL;
    }
}

/* ---- what came of it ---- */

/* On the loop's thread, for a sticky error changes what is there. */
static void say_failed(load *l, culvert_error *err)
{
    culvert_gpu *gpu = l->module->gpu;
    culvert__device *device = gpu->device;
    if (culvert__module_unfit(l->work.result)) {
        const char *log = l->error_log[0] != '\0' ? l->error_log : l->log;
        culvert__module_say_unfit(gpu, l->module->image, l->work.result, l->work.call, log, op,
                                  l->where, err);
        culvert__module_log(gpu, l->module->image, CULVERT_LOG_ERROR, l->error_log);
    } else if (atomic_load(&device->lost) != 0) {
        pthread_mutex_lock(&device->lock);
        culvert_error lost = device->lost_error;
        pthread_mutex_unlock(&device->lock);
        culvert__error_set(err, CULVERT_EDEVICELOST, lost.native, op, l->where,
                           "the device was lost before the image was loaded: %s", lost.message);
    } else {
        culvert__gpu_driver_failed(gpu, l->work.result, l->work.call, op, l->where, err);
    }
}

/* ---- on the loop's thread ---- */

static void release_module(void *module)
{
    culvert_module_unref(module);
}

static void load_over(culvert__driver_work *work, bool ran)
{
    load *l = load_of(work);
    culvert_future *future = &work->future->base;
    if (l->module->module != NULL) {
        /* what the driver's compiler had to say about an image that it took */
        culvert__module_log(l->module->gpu, l->module->image, CULVERT_LOG_INFO, l->log);
        culvert__settle_value(future, l->module, release_module);
    } else {
        culvert_error err = CULVERT_ERROR_INIT;
        if (ran)
            say_failed(l, &err);
        culvert__settle_error(future, &err); /* settled already where it was dropped */
        culvert_module_unref(l->module);
    }
    free(l);
}

static const culvert__kind kind = {
    .name = "module load",
    .cancel = culvert__driver_future_cancel,
    .shutdown = culvert__driver_future_shut_down,
};

/* ---- starting ---- */

static load *load_new(culvert_gpu *gpu, const culvert_image *image, const char *where)
{
    load *l = calloc(1, sizeof *l);
    culvert_module *module = calloc(1, sizeof *module);
    if (l == NULL || module == NULL) {
        free(l);
        free(module);
        return NULL;
    }
    module->refs = 1;
    module->gpu = culvert__gpu_ref(gpu);
    module->image = image;
    l->module = module;
    l->where = where;
    l->work.run = load_work;
    l->work.over = load_over;
    return l;
}

static culvert_future *begin(culvert_gpu *gpu, const culvert_image *image, const char *where)
{
    culvert__core *core = culvert__gpu_core(gpu);
    culvert_future *future = culvert__future_alloc(core, &kind, sizeof(culvert__driver_future));
    if (future == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    load *l = load_new(gpu, image, where);
    if (l == NULL) {
        culvert__settle_failed(future, CULVERT_ENOMEM, 0, op, where,
                               "no memory for the bookkeeping of a module");
        return future;
    }
    culvert__driver_work_begin(gpu, future, &l->work);
    return future;
}

culvert_future *culvert_module_load_at(const char *where, culvert_gpu *gpu,
                                       const culvert_image *image)
{
    culvert_error err = CULVERT_ERROR_INIT;
    CULVERT__REQUIRE(gpu, op, "gpu");
    CULVERT__REQUIRE(image, op, "image");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    if (culvert__gpu_refuses(gpu, op, where, &err) ||
        !culvert__image_check(image, gpu->drv->simulated != 0, op, where, &err))
        return culvert__future_rejected(culvert__gpu_core(gpu), &err);
    if (culvert__refuses_work(culvert__gpu_core(gpu)))
        return culvert__future_static(culvert__gpu_core(gpu), CULVERT_ESHUTDOWN);
    if (!culvert__driver_work_ready(gpu, op, where, &err))
        return culvert__future_rejected(culvert__gpu_core(gpu), &err);
    return begin(gpu, image, where);
}

culvert_future *culvert_module_load(culvert_gpu *gpu, const culvert_image *image)
{
    return culvert_module_load_at(NULL, gpu, image);
}
