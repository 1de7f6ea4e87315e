/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules and their kernels; loading is in module_load.c.
 *
 * Invariants:
 *   - a module holds its gpu, and is held by its handles and by the work that launches its kernels
 *   - kernels live as long as their module
 *   - unloading may wait for running kernels, so the driver thread does it. Where that is gone (the
 *     gpu has left its loop), it is done at once if nothing is in flight on the device, else never
 */
#define _POSIX_C_SOURCE 200809L
#include "gpu/flow.h"

#include "culvert/sim_module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

static const struct culvert_sim_kernel *find_twin(const culvert_image *image, const char *name)
{
    const struct culvert_sim_module *twin = culvert__image_twin(image);
    for (size_t i = 0; twin != NULL && i < twin->nkernels; i++)
        if (strcmp(twin->kernels[i]->name, name) == 0)
            return twin->kernels[i];
    return NULL;
}

static void free_kernel(culvert_kernel *kernel)
{
    free(kernel->param_sizes);
    free(kernel->name);
    free(kernel);
}

static bool add_param(culvert_kernel *kernel, size_t size)
{
    int n = kernel->nparams;
    if ((n & (n - 1)) == 0) { /* 0 and powers of two: the room is full */
        size_t room = n == 0 ? 1 : (size_t)n * 2;
        size_t *sizes = realloc(kernel->param_sizes, room * sizeof *sizes);
        if (sizes == NULL)
            return false;
        kernel->param_sizes = sizes;
    }
    kernel->param_sizes[kernel->nparams++] = size;
    return true;
}

/* An older driver does not tell; the compiler of the host-built twin saw the same parameters. */
static int params_of_twin(culvert_kernel *kernel, const struct culvert_sim_kernel *twin)
{
    kernel->nparams = twin == NULL ? -1 : 0;
    for (size_t i = 0; twin != NULL && i < twin->nparams; i++)
        if (!add_param(kernel, twin->param_sizes[i]))
            return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    return CULVERT__CUDA_SUCCESS;
}

/* To the twin's number of parameters, or until the driver says that there are no more: which tools
   such as compute-sanitizer report as a mistake of the program. */
static int read_params(culvert_kernel *kernel, const char **call)
{
    const culvert__driver *drv = kernel->module->gpu->drv;
    const struct culvert_sim_kernel *twin = find_twin(kernel->module->image, kernel->name);
    if (drv->cuFuncGetParamInfo == NULL)
        return params_of_twin(kernel, twin);
    *call = "cuFuncGetParamInfo";
    while (twin == NULL || (size_t)kernel->nparams < twin->nparams) {
        size_t offset = 0, size = 0;
        int result =
            drv->cuFuncGetParamInfo(kernel->function, (size_t)kernel->nparams, &offset, &size);
        if (result == CULVERT__CUDA_ERROR_INVALID_VALUE) /* behind the last one */
            break;
        if (result != CULVERT__CUDA_SUCCESS)
            return result;
        if (!add_param(kernel, size))
            return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CULVERT__CUDA_SUCCESS;
}

static int read_attributes(culvert_kernel *kernel, const char **call)
{
    const struct {
        int which;
        unsigned *out;
    } rows[] = {
        {CULVERT__CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &kernel->max_threads},
        {CULVERT__CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &kernel->static_shared},
        {CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &kernel->dynamic_set},
    };
    *call = "cuFuncGetAttribute";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int value = 0;
        int result =
            kernel->module->gpu->drv->cuFuncGetAttribute(&value, rows[i].which, kernel->function);
        if (result != CULVERT__CUDA_SUCCESS)
            return result;
        *rows[i].out = (unsigned)value;
    }
    return CULVERT__CUDA_SUCCESS;
}

/* The function, in the device's memory from now on: a lazy driver would load it at its first
   launch, when it waits for everything that runs. */
static int find_function(culvert_kernel *kernel, const char **call)
{
    const culvert__driver *drv = kernel->module->gpu->drv;
    *call = "cuModuleGetFunction";
    int result = drv->cuModuleGetFunction(&kernel->function, kernel->module->module, kernel->name);
    if (result != CULVERT__CUDA_SUCCESS || drv->cuFuncLoad == NULL)
        return result;
    *call = "cuFuncLoad";
    return drv->cuFuncLoad(kernel->function);
}

int culvert__kernel_open(culvert_module *module, const char *name, culvert_kernel **out,
                         const char **call)
{
    culvert_kernel *kernel = calloc(1, sizeof *kernel);
    *call = "malloc";
    if (kernel == NULL)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    kernel->module = module;
    kernel->name = strdup(name);
    int result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    if (kernel->name != NULL)
        result = find_function(kernel, call);
    if (result == CULVERT__CUDA_SUCCESS)
        result = read_attributes(kernel, call);
    if (result == CULVERT__CUDA_SUCCESS)
        result = read_params(kernel, call);
    if (result != CULVERT__CUDA_SUCCESS) {
        free_kernel(kernel);
        return result;
    }
    culvert_kernel **end = &module->kernels;
    while (*end != NULL)
        end = &(*end)->next;
    *end = kernel;
    *out = kernel;
    return CULVERT__CUDA_SUCCESS;
}

/* "a, b, c", as many as there is room for. */
static void list_kernels(const culvert_module *module, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (const culvert_kernel *k = module->kernels; k != NULL; k = k->next) {
        int n = snprintf(out + used, size - used, "%s%s", used == 0 ? "" : ", ", k->name);
        if (n < 0 || (size_t)n >= size - used) {
            out[used] = '\0';
            return;
        }
        used += (size_t)n;
    }
}

/* Not one of those that were loaded with the module: the driver may know it nevertheless. */
static culvert_kernel *open_now(culvert_module *module, const char *name, const char *op,
                                const char *where, culvert_error *err)
{
    culvert_gpu *gpu = module->gpu;
    culvert_kernel *kernel = NULL;
    culvert__visit visit = culvert__driver_enter(gpu, "cuModuleGetFunction");
    const char *call = "cuCtxPushCurrent";
    int result = visit.scope.result;
    if (result == CULVERT__CUDA_SUCCESS)
        result = culvert__kernel_open(module, name, &kernel, &call);
    culvert__driver_leave(gpu, visit);
    if (result == CULVERT__CUDA_SUCCESS)
        return kernel;
    if (result == CULVERT__CUDA_ERROR_NOT_FOUND) {
        char known[120];
        list_kernels(module, known, sizeof known);
        culvert__error_set(err, CULVERT_EINVAL, result, op, where,
                           "module %s has no kernel %s (extern \"C\"? For the simulator it needs "
                           "CULVERT_KERNEL(%s))%s%s",
                           culvert__image_name(module->image), name, name,
                           known[0] == '\0' ? "" : "; it has ", known);
        return NULL;
    }
    if (culvert__module_unfit(result)) /* of what was to be compiled only now */
        culvert__module_say_unfit(gpu, module->image, result, call, "", op, where, err);
    else
        culvert__gpu_driver_failed(gpu, result, call, op, where, err);
    return NULL;
}

culvert_kernel *culvert_module_kernel_at(const char *where, culvert_module *module,
                                         const char *name, culvert_error *err)
{
    static const char op[] = "culvert_module_kernel";
    CULVERT__REQUIRE(module, op, "module");
    CULVERT__REQUIRE(name, op, "name");
    if (culvert__gpu_refuses(module->gpu, op, where, err))
        return NULL;
    for (culvert_kernel *k = module->kernels; k != NULL; k = k->next)
        if (strcmp(k->name, name) == 0)
            return k;
    return open_now(module, name, op, where, err);
}

culvert_kernel *culvert_module_kernel(culvert_module *module, const char *name, culvert_error *err)
{
    return culvert_module_kernel_at(NULL, module, name, err);
}

/* ---- life ---- */

culvert_module *culvert__module_ref(culvert_module *module)
{
    module->refs++;
    return module;
}

static void free_module(culvert_module *module)
{
    culvert_gpu *gpu = module->gpu;
    for (culvert_kernel *k = module->kernels, *next; k != NULL; k = next) {
        next = k->next;
        free_kernel(k);
    }
    free(module);
    culvert__gpu_unref(gpu);
}

static void unload_work(culvert__driver_job *job)
{
    culvert_module *module = CULVERT__CONTAINER(job, culvert_module, unload);
    (void)module->gpu->drv->cuModuleUnload(module->module);
}

static void unload_done(culvert__post *post)
{
    culvert__driver_job *job = CULVERT__CONTAINER(post, culvert__driver_job, post);
    free_module(CULVERT__CONTAINER(job, culvert_module, unload));
}

static void unload_here(culvert_module *module)
{
    culvert__scope scope = culvert__scope_enter(module->gpu->device);
    (void)module->gpu->drv->cuModuleUnload(module->module);
    culvert__scope_leave(scope);
}

void culvert__module_unref(culvert_module *module)
{
    culvert_gpu *gpu = module->gpu;
    if (--module->refs > 0)
        return;
    if (module->module != NULL && !culvert__device_is_lost(gpu->device)) {
        if (gpu->driver_thread != NULL) {
            module->unload.work = unload_work;
            module->unload.post.run = unload_done;
            culvert__driver_thread_submit(gpu->driver_thread, &module->unload);
            return;
        }
        if (atomic_load(&gpu->device->units) == 0)
            unload_here(module);
    }
    free_module(module);
}

void culvert_module_unref(culvert_module *module)
{
    if (module == NULL || culvert__forked())
        return;
    culvert__check_thread(culvert__gpu_core(module->gpu), "culvert_module_unref");
    culvert__module_unref(module);
}
