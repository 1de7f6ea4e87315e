/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert_module_load: a future whose work is done by the driver thread.
 *
 *              cancel, shutdown              load_done
 *   QUEUED ----------------------> DROPPED ------------> (freed)
 *      |  the driver thread begins              load_done +-------------------------> RUNNING
 *      -------------> (freed; the future settles with the outcome)
 *
 * Invariants:
 *   - the state leaves QUEUED once, by whoever exchanges it first: a load that is dropped calls no
 *     driver, one that runs settles with its real outcome when it is over
 *   - between submit and load_done the load holds a pin of its future, so that settling it then is
 *     safe: where it was settled before (dropped, shutdown), the module is released, which unloads
 *     it
 *   - the loop is kept alive from submit until the future has settled
 */
#include "gpu/flow.h"

#include "culvert/sim_module.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 4096 };
enum { QUEUED, RUNNING, DROPPED };

typedef struct load load;

typedef struct load_future {
    culvert_future base;
    load *load; /* NULL once it is over */
} load_future;

struct load {
    culvert__driver_job job;
    load_future *future;    /* pinned */
    culvert_module *module; /* owned; its gpu counts for the load too */
    const char *where;
    atomic_int state;
    bool keeps; /* the loop's thread: the loop is kept alive for it */
    int result; /* written by the driver thread: CUDA_SUCCESS, or what `call` gave */
    const char *call;
    char log[LOG_BYTES], error_log[LOG_BYTES];
};

static const char op[] = "culvert_module_load";

static load *load_of(culvert__driver_job *job)
{
    return CULVERT__CONTAINER(job, load, job);
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
        int result = culvert__kernel_open(l->module, twin->kernels[i]->name, &kernel, &l->call);
        if (result != CULVERT__CUDA_SUCCESS && result != CULVERT__CUDA_ERROR_NOT_FOUND)
            return result;
    }
    return CULVERT__CUDA_SUCCESS;
}

static void load_work(culvert__driver_job *job)
{
    load *l = load_of(job);
    culvert_module *module = l->module;
    int queued = QUEUED;
    if (!atomic_compare_exchange_strong(&l->state, &queued, RUNNING))
        return;
    l->call = "cuModuleLoadDataEx";
    l->result = atomic_load(&module->gpu->device->lost);
    if (l->result == CULVERT__CUDA_SUCCESS)
        l->result = load_image(l);
    if (l->result == CULVERT__CUDA_SUCCESS)
        l->result = load_kernels(l);
    if (l->result != CULVERT__CUDA_SUCCESS && module->module != NULL) {
        if (culvert__driver_classify(l->result) !=
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
    if (culvert__module_unfit(l->result)) {
        const char *log = l->error_log[0] != '\0' ? l->error_log : l->log;
        culvert__module_say_unfit(gpu, l->module->image, l->result, l->call, log, op, l->where,
                                  err);
        culvert__module_log(gpu, l->module->image, CULVERT_LOG_ERROR, l->error_log);
    } else if (atomic_load(&device->lost) != 0) {
        pthread_mutex_lock(&device->lock);
        culvert_error lost = device->lost_error;
        pthread_mutex_unlock(&device->lock);
        culvert__error_set(err, CULVERT_EDEVICELOST, lost.native, op, l->where,
                           "the device was lost before the image was loaded: %s", lost.message);
    } else {
        culvert__gpu_driver_failed(gpu, l->result, l->call, op, l->where, err);
    }
}

/* ---- on the loop's thread ---- */

static void unkeep(load *l)
{
    if (l->keeps)
        culvert__loop_unkeep(l->module->gpu->loop);
    l->keeps = false;
}

static void release_module(void *module)
{
    culvert_module_unref(module);
}

static void load_done(culvert__post *post)
{
    load *l = load_of(CULVERT__CONTAINER(post, culvert__driver_job, post));
    culvert_future *future = &l->future->base;
    unkeep(l);
    l->future->load = NULL;
    if (l->module->module != NULL) {
        /* what the driver's compiler had to say about an image that it took */
        culvert__module_log(l->module->gpu, l->module->image, CULVERT_LOG_INFO, l->log);
        culvert__settle_value(future, l->module, release_module);
    } else {
        culvert_error err = CULVERT_ERROR_INIT;
        if (atomic_load(&l->state) == RUNNING)
            say_failed(l, &err);
        culvert__settle_error(future, &err); /* settled already where it was dropped */
        culvert_module_unref(l->module);
    }
    culvert__unpin(future);
    free(l);
}

static bool drop(load *l)
{
    int queued = QUEUED;
    return atomic_compare_exchange_strong(&l->state, &queued, DROPPED);
}

static void cancel(culvert_future *future)
{
    load *l = ((load_future *)(void *)future)->load;
    if (!drop(l))
        return; /* it runs: the real outcome comes */
    unkeep(l);
    culvert__settle_canceled(future);
}

static void shut_down(culvert_future *future, const culvert_error *err)
{
    load *l = ((load_future *)(void *)future)->load;
    (void)drop(l);
    unkeep(l);
    culvert__settle_error(future, err);
}

static const culvert__kind kind = {
    .name = "module load",
    .cancel = cancel,
    .shutdown = shut_down,
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
    l->job.work = load_work;
    l->job.post.run = load_done;
    atomic_init(&l->state, QUEUED);
    return l;
}

static culvert_future *begin(culvert_gpu *gpu, const culvert_image *image, const char *where)
{
    culvert__core *core = culvert__gpu_core(gpu);
    culvert_future *future = culvert__future_alloc(core, &kind, sizeof(load_future));
    if (future == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    load *l = load_new(gpu, image, where);
    if (l == NULL) {
        culvert__settle_failed(future, CULVERT_ENOMEM, 0, op, where,
                               "no memory for the bookkeeping of a module");
        return future;
    }
    l->future = (load_future *)(void *)future;
    l->future->load = l;
    culvert__future_make_root(future);
    culvert__pin(future);
    culvert__loop_keep(gpu->loop);
    l->keeps = true;
    culvert__driver_thread_submit(gpu->driver_thread, &l->job);
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
    if (gpu->driver_thread == NULL)
        gpu->driver_thread = culvert__driver_thread_new(gpu, &err);
    if (gpu->driver_thread == NULL) {
        err.op = op;
        err.where = where;
        return culvert__future_rejected(culvert__gpu_core(gpu), &err);
    }
    return begin(gpu, image, where);
}

culvert_future *culvert_module_load(culvert_gpu *gpu, const culvert_image *image)
{
    return culvert_module_load_at(NULL, gpu, image);
}
