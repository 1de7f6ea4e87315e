/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables of a module, as buffers.
 *
 * Such a buffer has no range of a heap: its memory is the module's, which it holds. Buffers are
 * released on any thread and modules on the loop's, so the last reference of one that goes elsewhere
 * is a post. Where the hub takes no more posts the binding is down, and the program releases on one
 * thread.
 */
#include "gpu/flow.h"

#include <stdlib.h>

typedef struct global {
    culvert_buffer buffer; /* first */
    culvert__post post;
    culvert_module *module; /* counted */
} global;

static void let_go(global *g)
{
    culvert_module *module = g->module;
    free(g);
    culvert__module_unref(module);
}

static void run_let_go(culvert__post *post)
{
    let_go(CULVERT__CONTAINER(post, global, post));
}

/* Thread: any. */
static void gone(culvert_buffer *buffer)
{
    global *g = (global *)(void *)buffer;
    culvert_gpu *gpu = g->module->gpu;
    culvert__memory_unref(buffer->memory);
    g->post.run = run_let_go;
    if (culvert__is_owner(culvert__gpu_core(gpu)) ||
        culvert__hub_post(gpu->hub, &g->post) != CULVERT_OK)
        let_go(g);
}

static culvert_buffer *wrap(culvert_module *module, unsigned long long address, size_t bytes)
{
    global *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    atomic_init(&g->buffer.refs, 1);
    g->buffer.gone = gone;
    g->buffer.memory = culvert__memory_ref(module->gpu->memory);
    g->buffer.address = address;
    g->buffer.bytes = bytes;
    g->module = culvert__module_ref(module);
    return &g->buffer;
}

static int find(culvert_module *module, const char *name, unsigned long long *address,
                size_t *bytes, const char **call)
{
    culvert_gpu *gpu = module->gpu;
    culvert__visit visit = culvert__driver_enter(gpu, "cuModuleGetGlobal");
    int result = visit.scope.result;
    *call = "cuCtxPushCurrent";
    if (result == CULVERT__CUDA_SUCCESS) {
        *call = "cuModuleGetGlobal";
        result = gpu->drv->cuModuleGetGlobal(address, bytes, module->module, name);
    }
    culvert__driver_leave(gpu, visit);
    return result;
}

culvert_buffer *culvert_module_global_at(const char *where, culvert_module *module,
                                         const char *name, culvert_error *err)
{
    static const char op[] = "culvert_module_global";
    unsigned long long address = 0;
    size_t bytes = 0;
    const char *call;
    CULVERT__REQUIRE(module, op, "module");
    CULVERT__REQUIRE(name, op, "name");
    if (culvert__gpu_refuses(module->gpu, op, where, err))
        return NULL;
    int result = find(module, name, &address, &bytes, &call);
    if (result == CULVERT__CUDA_ERROR_NOT_FOUND) {
        culvert__error_set(err, CULVERT_EINVAL, result, op, where,
                           "module %s has no variable %s (in a namespace, static, or not used by "
                           "any kernel? For the simulator it needs CULVERT_GLOBAL(%s))",
                           culvert__image_name(module->image), name, name);
        return NULL;
    }
    if (result != CULVERT__CUDA_SUCCESS) {
        culvert__gpu_driver_failed(module->gpu, result, call, op, where, err);
        return NULL;
    }
    culvert_buffer *buffer = wrap(module, address, bytes);
    if (buffer == NULL)
        culvert__error_set(err, CULVERT_ENOMEM, 0, op, where,
                           "no memory for the buffer of variable %s", name);
    return buffer;
}

culvert_buffer *culvert_module_global(culvert_module *module, const char *name, culvert_error *err)
{
    return culvert_module_global_at(NULL, module, name, err);
}
