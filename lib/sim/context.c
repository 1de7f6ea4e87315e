/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.c: initialisation, primary contexts, and which one is current.
 *
 * Invariants: there is one context a device, its primary one, in static storage: its handle is the
 * same each time it is retained. It is active from the first retain to the last release or a reset.
 * Each thread has a stack of contexts; a thread that set none has an empty one. A sticky error
 * belongs to the device and stays when the context goes.
 */
#define _POSIX_C_SOURCE 200809L
#include "sim/engine.h"
#include "sim/graph.h"
#include "sim/memory.h"
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void at_exit(void)
{
    if (!atomic_load(&culvert__sim.forked))
        atomic_store(&culvert__sim.exiting, 1);
}

static void become_initialised(void)
{
    static pid_t registered; /* a child that starts afresh registers its own, after all others */
    if (registered != getpid())
        atexit(at_exit);
    registered = getpid();
    atomic_store(&culvert__sim.initialised, 1);
}

int cuInit(unsigned int flags)
{
    CULVERT__SIM_ENTER(cuInit);
    int result = 0;
    if (flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (!atomic_load(&culvert__sim.initialised)) {
        culvert__sim_find_devices();
        if (culvert__sim.nvisible == 0)
            result = CULVERT__CUDA_ERROR_NO_DEVICE;
        else
            become_initialised();
    }
    culvert__sim_unlock();
    return result;
}

int culvert__sim_current(struct CUctx_st **out)
{
    struct sim_thread *t = culvert__sim_thread();
    *out = t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    if (!*out)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    if (!(*out)->active)
        return CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*out)->sticky;
}

static bool activate(struct CUctx_st *ctx)
{
    culvert__sim_object_init(&ctx->object, SIM_CONTEXT);
    ctx->id = ++culvert__sim.ids;
    ctx->active = true;
    ctx->next_queue = 0;
    ctx->legacy = culvert__sim_stream_new(ctx, 0, 0);
    if (!ctx->legacy)
        return false;
    culvert__sim_object_close(&ctx->legacy->object); /* it is none of the program's */
    return true;
}

static bool under_way(const struct CUctx_st *ctx)
{
    for (const struct CUstream_st *s = ctx->streams; s; s = s->next) {
        if (s->head || s->state == SIM_STREAM_READY || s->state == SIM_STREAM_RUNNING)
            return true;
    }
    return false;
}

void culvert__sim_context_destroy(struct CUctx_st *ctx)
{
    if (!ctx->active)
        return;
    int result = CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    ctx->active = false;
    if (!ctx->sticky)
        atomic_store(&ctx->stop, result);
    culvert__sim_purge(ctx, result);
    ctx->ending = true;
    while (under_way(ctx)) {
        culvert__sim_tell_changed();
        culvert__sim_wait_changed();
    }
    ctx->ending = false;
    culvert__sim_graphs_of_context(ctx);
    while (ctx->events) {
        struct CUevent_st *e = ctx->events;
        culvert__sim_object_gone(&e->object);
        culvert__sim_event_free(e);
    }
    while (ctx->streams) {
        struct CUstream_st *s = ctx->streams;
        culvert__sim_object_gone(&s->object);
        culvert__sim_stream_free(s);
    }
    while (ctx->modules)
        culvert__sim_module_destroy(ctx->modules);
    culvert__sim_pools_of_context(ctx);
    culvert__sim_ranges_of_context(ctx);
    ctx->legacy = NULL;
    ctx->ring_used = 0;
    memset(ctx->peers, 0, sizeof ctx->peers);
    culvert__sim_object_gone(&ctx->object);
    atomic_store(&ctx->stop, ctx->sticky);
}

int culvert__sim_wait_idle(struct CUctx_st *ctx)
{
    if (ctx->unfinished == 0 || ctx->sticky)
        return ctx->sticky;
    culvert__sim_note_block("it waits for the device");
    if (!culvert__sim_thread()->loop && atomic_load(&culvert__sim.loop_threads) > 0)
        culvert__sim_violation("%s stalls the loop thread from another: it waits for the device",
                               culvert__sim_current_call());
    ctx->stall_call = culvert__sim_current_call();
    ctx->stalls++;
    while (ctx->unfinished > 0 && !ctx->sticky && ctx->active)
        culvert__sim_wait_changed();
    ctx->stalls--;
    culvert__sim_tell_changed();
    return ctx->sticky;
}

static struct CUctx_st *device_context(int device)
{
    if (device < 0 || device >= culvert__sim.nvisible)
        return NULL;
    return &culvert__sim.contexts[device];
}

int cuDevicePrimaryCtxRetain(culvert__CUcontext *out, culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDevicePrimaryCtxRetain);
    if (!out)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    struct CUctx_st *ctx = device_context(device);
    int result = ctx ? ctx->sticky : CULVERT__CUDA_ERROR_INVALID_DEVICE;
    if (result == 0 && !ctx->active && !activate(ctx))
        result = CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    if (result == 0) {
        ctx->refs++;
        *out = ctx;
    }
    culvert__sim_unlock();
    return result;
}

int cuDevicePrimaryCtxRelease_v2(culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDevicePrimaryCtxRelease);
    culvert__sim_lock();
    struct CUctx_st *ctx = device_context(device);
    int result = 0;
    if (!ctx)
        result = CULVERT__CUDA_ERROR_INVALID_DEVICE;
    else if (ctx->refs == 0)
        result = CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    else if (--ctx->refs == 0)
        culvert__sim_context_destroy(ctx);
    culvert__sim_unlock();
    return result;
}

int cuDevicePrimaryCtxReset_v2(culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDevicePrimaryCtxReset);
    culvert__sim_lock();
    struct CUctx_st *ctx = device_context(device);
    if (ctx)
        culvert__sim_context_destroy(ctx);
    culvert__sim_unlock();
    return ctx ? 0 : CULVERT__CUDA_ERROR_INVALID_DEVICE;
}

int cuDevicePrimaryCtxSetFlags_v2(culvert__CUdevice device, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    culvert__sim_lock();
    struct CUctx_st *ctx = device_context(device);
    if (ctx)
        ctx->flags = flags;
    culvert__sim_unlock();
    return ctx ? 0 : CULVERT__CUDA_ERROR_INVALID_DEVICE;
}

int cuDevicePrimaryCtxGetState(culvert__CUdevice device, unsigned int *flags, int *active)
{
    CULVERT__SIM_ENTER(cuDevicePrimaryCtxGetState);
    if (!flags || !active)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    struct CUctx_st *ctx = device_context(device);
    if (ctx) {
        *flags = ctx->flags;
        *active = ctx->active;
    }
    culvert__sim_unlock();
    return ctx ? 0 : CULVERT__CUDA_ERROR_INVALID_DEVICE;
}

/* A context that can be made current. */
static bool usable(culvert__CUcontext ctx)
{
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        if (ctx == &culvert__sim.contexts[d])
            return ctx->active;
    }
    return false;
}

int cuCtxPushCurrent_v2(culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuCtxPushCurrent);
    struct sim_thread *t = culvert__sim_thread();
    if (!ctx)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    bool good = usable(ctx);
    culvert__sim_unlock();
    if (!good)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    if (t->depth == SIM_CONTEXT_STACK)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    t->stack[t->depth++] = ctx;
    return 0;
}

int cuCtxPopCurrent_v2(culvert__CUcontext *out)
{
    CULVERT__SIM_ENTER(cuCtxPopCurrent);
    struct sim_thread *t = culvert__sim_thread();
    if (t->depth == 0)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    t->depth--;
    if (out)
        *out = t->stack[t->depth];
    return 0;
}

int cuCtxGetCurrent(culvert__CUcontext *out)
{
    CULVERT__SIM_ENTER(cuCtxGetCurrent);
    struct sim_thread *t = culvert__sim_thread();
    if (!out)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    *out = t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    return 0;
}

int cuCtxSetCurrent(culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuCtxSetCurrent);
    struct sim_thread *t = culvert__sim_thread();
    if (!ctx) {
        if (t->depth > 0)
            t->depth--;
        return 0;
    }
    culvert__sim_lock();
    bool good = usable(ctx);
    culvert__sim_unlock();
    if (!good)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    if (t->depth == 0)
        t->depth = 1;
    t->stack[t->depth - 1] = ctx;
    return 0;
}

int cuCtxGetDevice(culvert__CUdevice *device)
{
    CULVERT__SIM_ENTER(cuCtxGetDevice);
    struct sim_thread *t = culvert__sim_thread();
    if (!device)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (t->depth == 0)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    *device = t->stack[t->depth - 1]->device;
    return 0;
}

int cuCtxGetId(culvert__CUcontext ctx, unsigned long long *id)
{
    CULVERT__SIM_ENTER(cuCtxGetId);
    if (!id)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = 0;
    if (!ctx)
        result = culvert__sim_current(&ctx);
    else if (!usable(ctx))
        result = CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == 0)
        *id = ctx->id;
    culvert__sim_unlock();
    return result;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CULVERT__SIM_ENTER(cuCtxGetStreamPriorityRange);
    struct CUctx_st *ctx;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    culvert__sim_unlock();
    if (result)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -(SIM_PRIORITIES - 1);
    return 0;
}

int cuCtxEnablePeerAccess(culvert__CUcontext peer, unsigned int flags)
{
    CULVERT__SIM_ENTER(cuCtxEnablePeerAccess);
    struct CUctx_st *ctx;
    if (flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0) {
        if (!usable(peer) || peer == ctx)
            result = CULVERT__CUDA_ERROR_INVALID_CONTEXT;
        else if (culvert__sim.peerless)
            result = CULVERT__CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        else if (ctx->peers[peer->device])
            result = CULVERT__CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        else
            ctx->peers[peer->device] = true;
    }
    culvert__sim_unlock();
    return result;
}

int cuCtxSynchronize(void)
{
    CULVERT__SIM_ENTER(cuCtxSynchronize);
    struct CUctx_st *ctx;
    culvert__sim_lock();
    int result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    for (struct CUstream_st *s = result == 0 ? ctx->streams : NULL; s && result == 0;) {
        if (!s->head) {
            s = s->next;
            continue;
        }
        result = culvert__sim_synchronize(s);
        s = ctx->active ? ctx->streams : NULL; /* the list may have changed meanwhile */
    }
    culvert__sim_unlock();
    return result;
}
