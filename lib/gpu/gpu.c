/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a culvert_gpu: a device as one binding uses it.
 *
 *   open -> attached (a source of its loop) -> left (culvert__gpu_leave) -> freed at refs == 0
 *
 * It leaves the loop when the last reference goes (handle, streams, modules, work in flight), or at
 * culvert_loop_free; either way everything of the driver's but memory that buffers still hold goes
 * then, on the loop's thread. After that the struct is memory only.
 *
 * Invariant: posts of other threads (budget, loss) name the gpu only while it is in device->gpus,
 * and a posted node keeps the struct until it has run.
 */
#include "gpu/flow.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_STREAMS = 4, MAX_STREAMS = 16, NOTIFIERS = 4, FIRST_EVENTS = 64 };
static const size_t default_pinned = (size_t)8 << 20;
static const size_t default_pinned_limit = (size_t)1 << 30;
static const double default_stall = 10.0, default_trim = 5.0;

/* ---- options ---- */

static bool options_ok(culvert_gpu_options *out, const culvert_gpu_options *in, const char *where,
                       culvert_error *err)
{
    const char *op = "culvert_gpu_open";
    *out = (culvert_gpu_options)CULVERT_GPU_OPTIONS_INIT;
    if (in != NULL && (in->struct_size < sizeof in->struct_size || in->struct_size > sizeof *out)) {
        culvert__error_set(
            err, CULVERT_EINVAL, 0, op, where,
            "options->struct_size is %zu; CULVERT_GPU_OPTIONS_INIT sets it, and this "
            "library knows %zu bytes",
            in->struct_size, sizeof *out);
        return false;
    }
    if (in != NULL)
        memcpy(out, in, in->struct_size);
    if (out->streams > MAX_STREAMS) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options->streams is %u; a pool has at most %d streams a priority",
                           out->streams, MAX_STREAMS);
        return false;
    }
    if (isnan(out->trim_seconds) || out->trim_seconds < 0) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options->trim_seconds is %g; it must be 0 (default) or more",
                           out->trim_seconds);
        return false;
    }
    if (isnan(out->stall_seconds) || out->stall_seconds < 0) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options->stall_seconds is %g; it must be 0 (default) or more",
                           out->stall_seconds);
        return false;
    }
    out->struct_size = sizeof *out;
    if (out->streams == 0)
        out->streams = DEFAULT_STREAMS;
    if (out->pinned_limit == 0)
        out->pinned_limit = default_pinned_limit;
    if (out->pinned_reserve < default_pinned)
        out->pinned_reserve = default_pinned;
    if (out->pinned_limit < out->pinned_reserve)
        out->pinned_limit = out->pinned_reserve;
    if (out->trim_seconds == 0)
        out->trim_seconds = default_trim;
    if (out->stall_seconds == 0)
        out->stall_seconds = default_stall;
    return true;
}

/* ---- the source ---- */

static culvert_gpu *gpu_of(culvert__source *source)
{
    return CULVERT__CONTAINER(source, culvert_gpu, source);
}

static bool source_poll(culvert__source *source)
{
    culvert_gpu *gpu = gpu_of(source);
    culvert__gpu_ref(gpu);
    gpu->flow->polls++;
    bool more = culvert__completion_poll(gpu);
    more |= culvert__allocs_poll(gpu);
    culvert__gpu_unref(gpu);
    return more;
}

static double source_before_sleep(culvert__source *source, bool may_spin)
{
    culvert_gpu *gpu = gpu_of(source);
    culvert__gpu_ref(gpu);
    double memory = culvert__allocs_before_sleep(gpu), trim = INFINITY, work = INFINITY;
    if (memory > 0)
        trim = culvert__trim_before_sleep(gpu);
    if (memory > 0 && trim > 0)
        work = culvert__completion_before_sleep(gpu, may_spin);
    culvert__gpu_unref(gpu);
    double least = memory < trim ? memory : trim;
    return work < least ? work : least;
}

static bool source_busy(culvert__source *source)
{
    culvert_gpu *gpu = gpu_of(source);
    return !culvert__device_is_lost(gpu->device) &&
           (!culvert__list_empty(&gpu->flow->busy) || culvert__notifiers_out(gpu) ||
            culvert__driver_thread_busy(gpu->driver_thread));
}

static void source_detach(culvert__source *source, bool forked)
{
    culvert_gpu *gpu = gpu_of(source);
    gpu->attached = false;
    gpu->refs++; /* what leaves may hold the last reference */
    culvert__gpu_leave(gpu, forked);
    culvert__gpu_unref(gpu);
}

/* ---- flow ---- */

static culvert__flow *flow_new(culvert_gpu *gpu, const culvert_gpu_options *options)
{
    culvert__flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL)
        return NULL;
    flow->gpu = gpu;
    culvert__list_init(&flow->streams);
    culvert__list_init(&flow->busy);
    culvert__list_init(&flow->starved);
    culvert__list_init(&flow->slotless);
    culvert__list_init(&flow->lines[0].requests);
    culvert__list_init(&flow->lines[1].requests);
    flow->device_limit = options->device_limit;
    culvert__list_init(&flow->seqs);
    culvert__list_init(&flow->live);
    flow->no_seq = culvert__no_seq_new(gpu);
    if (flow->no_seq == NULL) {
        free(flow);
        return NULL;
    }
    flow->pool_size = options->streams;
    flow->budget_post.run = culvert__budget_posted;
    flow->loss_post.run = culvert__loss_posted;
    flow->stall_seconds = options->stall_seconds;
    flow->on_stall = options->on_stall;
    flow->on_stall_arg = options->on_stall_arg;
    return flow;
}

static void out_of_memory(const char *where, culvert_error *err)
{
    culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", where,
                       "no memory for a device's state");
}

/* The call that failed is the program's; which one of the driver's it was is in the message. */
static void tell(const culvert_error *what, const char *op, const char *where, culvert_error *err)
{
    if (err == NULL)
        return;
    *err = *what;
    err->op = op;
    err->where = where;
}

/* The threads that a device needs from the start. */
static bool start_threads(culvert_gpu *gpu, culvert_error *err)
{
    const char *which = "monitor";
    int error = culvert__monitor_add(gpu);
    if (error == 0 && culvert__loop_options(gpu->loop)->wake == CULVERT_WAKE_THREAD) {
        which = "completion";
        error = culvert__completion_thread_join(gpu);
    }
    if (error == ENOMEM)
        out_of_memory(NULL, err);
    else if (error != 0)
        culvert__error_set(err, CULVERT_ESYSTEM, error, NULL, NULL,
                           "the %s thread could not be started: %s", which, strerror(error));
    return error == 0;
}

/* What needs the driver: memory, events, notifiers, staging. */
static bool furnish(culvert_gpu *gpu, const culvert_gpu_options *options, const char *where,
                    culvert_error *err)
{
    culvert__flow *flow = gpu->flow;
    culvert_error local = CULVERT_ERROR_INIT;
    culvert__scope scope = culvert__scope_enter(gpu->device);
    if (scope.result != CULVERT__CUDA_SUCCESS)
        culvert__gpu_result(gpu, scope.result, false, "cuCtxPushCurrent", "culvert_gpu_open", where,
                            &local);
    else
        gpu->memory = culvert__memory_new(gpu->device, options, &local);
    bool ok = gpu->memory != NULL && culvert__events_reserve(gpu, FIRST_EVENTS, &local) &&
              (flow->notifiers = culvert__notifiers_new(gpu, NOTIFIERS, &local)) != NULL &&
              (flow->staging = culvert__staging_new(gpu, &local)) != NULL;
    culvert__scope_leave(scope);
    if (gpu->memory != NULL)
        culvert__memory_attach(gpu->memory, gpu->hub);
    ok = ok && start_threads(gpu, &local);
    if (!ok)
        tell(&local, "culvert_gpu_open", where, err);
    return ok;
}

static culvert_gpu *make(culvert_loop *loop, culvert__device *device,
                         const culvert_gpu_options *options, const char *where, culvert_error *err)
{
    culvert_gpu *gpu = calloc(1, sizeof *gpu);
    culvert__flow *flow = gpu != NULL ? flow_new(gpu, options) : NULL;
    if (flow == NULL) {
        free(gpu);
        culvert__device_unref(device);
        out_of_memory(where, err);
        return NULL;
    }
    gpu->flow = flow;
    gpu->loop = culvert_loop_ref(loop);
    flow->clock = ++culvert__core_of(loop)->clocks;
    gpu->hub = culvert__hub_ref(culvert__loop_hub(loop));
    gpu->device = device;
    gpu->drv = device->drv;
    gpu->refs = 1;
    gpu->source = (culvert__source){.poll = source_poll,
                                    .before_sleep = source_before_sleep,
                                    .busy = source_busy,
                                    .detach = source_detach};
    if (!furnish(gpu, options, where, err)) {
        culvert__gpu_unref(gpu);
        return NULL;
    }
    pthread_mutex_lock(&device->lock);
    culvert__list_push(&device->gpus, &flow->device_link);
    pthread_mutex_unlock(&device->lock);
    culvert__source_add(loop, &gpu->source);
    gpu->attached = true;
    culvert__trim_init(gpu, options->trim_seconds);
    culvert__trim_watch(gpu);
    return gpu;
}

/* ---- open, close ---- */

static bool loop_refuses(culvert_loop *loop, const char *op, const char *where, culvert_error *err)
{
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, op, where,
                           "the binding was made before fork(): a child cannot use its devices");
        return true;
    }
    CULVERT__REQUIRE(loop, op, "loop");
    culvert__check_thread(culvert__core_of(loop), op);
    if (culvert__core_of(loop)->closing) {
        culvert__error_set(err, CULVERT_ESHUTDOWN, 0, op, where,
                           "culvert_loop_free has begun for this binding");
        return true;
    }
    return false;
}

culvert_gpu *culvert_gpu_open_at(const char *where, culvert_loop *loop, int ordinal,
                                 const culvert_gpu_options *options, culvert_error *err)
{
    culvert_gpu_options in_force;
    const char *op = "culvert_gpu_open";
    if (loop_refuses(loop, op, where, err) || !options_ok(&in_force, options, where, err))
        return NULL;
    culvert_error local = CULVERT_ERROR_INIT;
    const culvert__driver *drv = culvert__driver_open(culvert__loop_options(loop)->driver, &local);
    if (drv == NULL) {
        tell(&local, op, where, err);
        return NULL;
    }
    culvert__fork_arm();
    culvert__device *device = culvert__device_open(drv, ordinal, in_force.context, &local);
    if (device == NULL) {
        tell(&local, op, where, err);
        return NULL;
    }
    if (culvert__device_is_lost(device)) {
        culvert__device_say_lost(device, op, where, err);
        culvert__device_unref(device);
        return NULL;
    }
    return make(loop, device, &in_force, where, err);
}

culvert_gpu *culvert_gpu_open(culvert_loop *loop, int ordinal, const culvert_gpu_options *options,
                              culvert_error *err)
{
    return culvert_gpu_open_at(NULL, loop, ordinal, options, err);
}

int culvert_gpu_count(culvert_loop *loop, culvert_error *err)
{
    const char *op = "culvert_gpu_count";
    culvert_error local = CULVERT_ERROR_INIT;
    int count = 0;
    if (loop_refuses(loop, op, NULL, &local))
        goto fail;
    const culvert__driver *drv = culvert__driver_open(culvert__loop_options(loop)->driver, &local);
    if (drv == NULL)
        goto fail;
    culvert__fork_arm();
    int r = drv->cuDeviceGetCount(&count);
    if (r == CULVERT__CUDA_SUCCESS && count > 0)
        return count;
    if (r == CULVERT__CUDA_SUCCESS)
        r = CULVERT__CUDA_ERROR_NO_DEVICE;
    culvert__driver_error(drv, r, "cuDeviceGetCount", &local);
fail:
    tell(&local, op, NULL, err);
    return local.code;
}

culvert_gpu *culvert__gpu_ref(culvert_gpu *gpu)
{
    gpu->refs++;
    return gpu;
}

static void free_memory(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    if (atomic_load(&flow->budget_posted) || atomic_load(&flow->loss_posted))
        return; /* the post frees it */
    culvert__memory_unref(gpu->memory);
    culvert__device_unref(gpu->device);
    culvert__hub_unref(gpu->hub);
    culvert_loop *loop = gpu->loop;
    free(flow->no_seq);
    free(flow);
    free(gpu);
    culvert_loop_unref(loop);
}

void culvert__gpu_unref(culvert_gpu *gpu)
{
    if (--gpu->refs > 0)
        return;
    if (gpu->attached) {
        gpu->attached = false;
        culvert__source_remove(gpu->loop, &gpu->source);
    }
    gpu->refs++; /* releases inside come here again */
    culvert__gpu_leave(gpu, culvert__forked());
    gpu->refs--;
    free_memory(gpu);
}

void culvert__gpu_post_done(culvert_gpu *gpu)
{
    if (gpu->refs == 0)
        free_memory(gpu);
}

void culvert_gpu_close(culvert_gpu *gpu)
{
    if (gpu == NULL || culvert__forked())
        return;
    culvert__check_thread(culvert__gpu_core(gpu), "culvert_gpu_close");
    gpu->closed = true;
    if (culvert__allocs_wait(gpu)) {
        culvert_error err;
        culvert__error_set(&err, CULVERT_ESHUTDOWN, 0, "culvert_gpu_close", NULL,
                           "the device was closed (culvert_gpu_close)");
        culvert__allocs_reject(gpu, &err);
    }
    culvert__pool_drop(gpu);
    culvert__gpu_unref(gpu);
}

/* It will not be called any more; buried work may hold the gpu for ever. */
static void forget_on_lost(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    culvert_free_fn *arg_free = flow->on_lost_free;
    if (culvert__linked(&flow->on_lost_task.link))
        culvert__ready_unlink(culvert__gpu_core(gpu), &flow->on_lost_task);
    flow->on_lost = NULL;
    flow->on_lost_free = NULL;
    if (arg_free != NULL)
        arg_free(flow->on_lost_arg);
}

void culvert__gpu_leave(culvert_gpu *gpu, bool forked)
{
    culvert__flow *flow = gpu->flow;
    bool leak = forked || culvert__device_is_lost(gpu->device);
    culvert__trim_stop(gpu);
    if (!forked) {
        pthread_mutex_lock(&gpu->device->lock);
        if (culvert__linked(&flow->device_link))
            culvert__list_unlink(&flow->device_link);
        pthread_mutex_unlock(&gpu->device->lock);
        culvert__monitor_remove(gpu);
        culvert__budget_leave(gpu);
        culvert__driver_thread_free(gpu->driver_thread);
    }
    gpu->driver_thread = NULL;
    culvert__pool_drop(gpu);
    culvert__scope scope = leak ? (culvert__scope){0} : culvert__scope_enter(gpu->device);
    culvert__streams_leave(gpu, leak);
    bool asked = !culvert__completion_thread_leave(gpu);
    culvert__staging_stop(gpu);
    culvert__seqs_leave(gpu);
    culvert__staging_free(gpu);
    culvert__notifiers_free(gpu, leak);
    culvert__timing_leave(gpu);
    culvert__events_free(gpu, leak || asked);
    culvert__graphs_leave(gpu, leak);
    culvert__seqs_free(gpu);
    if (!leak)
        culvert__scope_leave(scope);
    forget_on_lost(gpu);
}

bool culvert__gpu_refuses(culvert_gpu *gpu, const char *op, const char *where, culvert_error *err)
{
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, op, where,
                           "the device was opened before fork(): a child cannot use it");
        return true;
    }
    culvert__check_thread(culvert__gpu_core(gpu), op);
    if (culvert__gpu_core(gpu)->closing || !gpu->attached) {
        culvert__error_set(err, CULVERT_ESHUTDOWN, 0, op, where,
                           "culvert_loop_free has begun for the device's binding");
        return true;
    }
    if (gpu->closed) {
        culvert__error_set(err, CULVERT_ESHUTDOWN, 0, op, where,
                           "the device was closed (culvert_gpu_close)");
        return true;
    }
    if (culvert__device_is_lost(gpu->device)) {
        culvert__device_say_lost(gpu->device, op, where, err);
        return true;
    }
    return false;
}
