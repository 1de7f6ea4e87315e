/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * module.c: modules, their functions and variables.
 *
 * Invariants: a module is a table in the program (culvert/sim_module.h), which outlives it. It has a
 * reference for its handle and one for each queued launch. A variable's range is shared by all
 * modules of the same table, and is there while one of them is.
 */
#include "sim/module.h"

#include "sim/memory.h"

#include <stdint.h>
#include <string.h>

enum { DEFAULT_DYNAMIC_SHARED = 48 * 1024 };

void culvert__sim_module_ref(struct CUmod_st *m)
{
    m->refs++;
}

static void drop_globals(const struct CUmod_st *m)
{
    for (size_t i = 0; i < m->image->nglobals; i++) {
        const struct culvert_sim_global *g = m->image->globals[i];
        struct sim_range *r = culvert__sim_range_find((uintptr_t)g->address);
        if (r && r->kind == SIM_RANGE_GLOBAL && --r->refs == 0)
            culvert__sim_range_remove(r);
    }
}

static int add_globals(const struct CUmod_st *m)
{
    for (size_t i = 0; i < m->image->nglobals; i++) {
        const struct culvert_sim_global *g = m->image->globals[i];
        struct sim_range *r = culvert__sim_range_overlap((uintptr_t)g->address, g->bytes);
        if (r && r->kind == SIM_RANGE_GLOBAL && r->base == (uintptr_t)g->address)
            r->refs++;
        else if (r ||
                 !culvert__sim_range_add((uintptr_t)g->address, g->bytes, SIM_RANGE_GLOBAL, m->ctx))
            return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    return 0;
}

static void free_functions(struct CUmod_st *m)
{
    while (m->functions) {
        struct CUfunc_st *f = m->functions;
        m->functions = f->next;
        culvert__sim_object_free(&f->object);
    }
}

void culvert__sim_module_unref(struct CUmod_st *m)
{
    if (--m->refs > 0)
        return;
    free_functions(m);
    culvert__sim_object_free(&m->object);
}

/* The program's handles of it end. */
static void unload(struct CUmod_st *m)
{
    struct CUmod_st **at = &m->ctx->modules;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    drop_globals(m);
    for (struct CUfunc_st *f = m->functions; f; f = f->next)
        culvert__sim_object_close(&f->object);
    culvert__sim_object_close(&m->object);
    culvert__sim_module_unref(m);
}

void culvert__sim_module_destroy(struct CUmod_st *m)
{
    for (struct CUfunc_st *f = m->functions; f; f = f->next)
        culvert__sim_object_gone(&f->object);
    culvert__sim_object_gone(&m->object);
    unload(m);
}

static int load(struct CUctx_st *ctx, const struct culvert_sim_module *image, struct CUmod_st **out)
{
    struct CUmod_st *m = culvert__sim_object_new(SIM_MODULE);
    if (!m)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    m->ctx = ctx;
    m->image = image;
    m->refs = 1;
    m->next = ctx->modules;
    ctx->modules = m;
    for (size_t i = 0; i < image->nkernels; i++) {
        struct CUfunc_st *f = culvert__sim_object_new(SIM_FUNCTION);
        if (!f) {
            unload(m);
            return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
        }
        f->module = m;
        f->kernel = image->kernels[i];
        f->loaded = culvert__sim.eager;
        f->max_dynamic_shared = DEFAULT_DYNAMIC_SHARED - (int)f->kernel->static_shared_bytes;
        f->carveout = CULVERT__CU_SHAREDMEM_CARVEOUT_DEFAULT;
        f->next = m->functions;
        m->functions = f;
    }
    int result = add_globals(m);
    if (result)
        unload(m);
    else
        *out = m;
    return result;
}

static int load_data(culvert__CUmodule *out, const void *image, unsigned n, const int *options,
                     void **values)
{
    struct CUctx_st *ctx;
    int other_version = 0;
    if (!out || !image)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    const struct culvert_sim_module *m = culvert__sim_module(image, &other_version);
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0 && !m)
        result = culvert__sim_image_refuse(image, other_version, n, options, values);
    if (result == 0)
        result = culvert__sim_wait_idle(ctx);
    if (result == 0)
        result = load(ctx, m, out);
    culvert__sim_unlock();
    return result;
}

int cuModuleLoadDataEx(culvert__CUmodule *module, const void *image, unsigned int n,
                       culvert__CUjit_option *options, void **values)
{
    CULVERT__SIM_ENTER(cuModuleLoadDataEx);
    if (n > 0 && (!options || !values))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    return load_data(module, image, n, options, values);
}

int cuModuleLoadData(culvert__CUmodule *module, const void *image)
{
    CULVERT__SIM_ENTER(cuModuleLoadData);
    return load_data(module, image, 0, NULL, NULL);
}

int cuModuleUnload(culvert__CUmodule m)
{
    CULVERT__SIM_ENTER(cuModuleUnload);
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(m, SIM_MODULE, &result))
        result = m->ctx->sticky;
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0) {
        if (m->refs > 1)
            culvert__sim_violation("cuModuleUnload: queued work uses kernels of module %s",
                                   m->image->name);
        unload(m);
    }
    culvert__sim_unlock();
    return result;
}

int cuModuleGetFunction(culvert__CUfunction *function, culvert__CUmodule m, const char *name)
{
    CULVERT__SIM_ENTER(cuModuleGetFunction);
    int result;
    if (!function || !name)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(m, SIM_MODULE, &result)) {
        struct CUfunc_st *f = m->functions;
        while (f && strcmp(f->kernel->name, name) != 0)
            f = f->next;
        result = f ? m->ctx->sticky : CULVERT__CUDA_ERROR_NOT_FOUND;
        if (result == 0)
            *function = f;
    }
    culvert__sim_unlock();
    return result;
}

int cuModuleGetGlobal_v2(culvert__CUdeviceptr *address, size_t *bytes, culvert__CUmodule m,
                         const char *name)
{
    CULVERT__SIM_ENTER(cuModuleGetGlobal);
    int result;
    if (!name || (!address && !bytes))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(m, SIM_MODULE, &result)) {
        const struct culvert_sim_global *g = culvert__sim_module_global(m->image, name);
        result = g ? m->ctx->sticky : CULVERT__CUDA_ERROR_NOT_FOUND;
        if (result == 0 && address)
            *address = (uintptr_t)g->address;
        if (result == 0 && bytes)
            *bytes = g->bytes;
    }
    culvert__sim_unlock();
    return result;
}

int cuModuleGetLoadingMode(culvert__CUmoduleLoadingMode *mode)
{
    CULVERT__SIM_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    *mode = culvert__sim.eager ? CULVERT__CU_MODULE_EAGER_LOADING : CULVERT__CU_MODULE_LAZY_LOADING;
    culvert__sim_unlock();
    return 0;
}
