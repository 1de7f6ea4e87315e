/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program can ask about a device: description, state, loss.
 */
#include "gpu/flow.h"

#include <string.h>

int culvert_gpu_info(culvert_gpu *gpu, culvert_gpu_description *out)
{
    CULVERT__REQUIRE(out, "culvert_gpu_info", "out");
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(gpu, "culvert_gpu_info", "gpu");
    size_t size = out->struct_size;
    if (size < sizeof out->struct_size || size > sizeof *out)
        return CULVERT_EINVAL;
    memcpy(out, &gpu->device->description, size);
    out->struct_size = size;
    return CULVERT_OK;
}

static void count_line(const culvert__line *line, culvert_gpu_memory_counters *to)
{
    for (const culvert__link *l = line->requests.next; l != &line->requests; l = l->next)
        to->waiting++;
    to->waited += line->waited;
    to->rejected += line->rejected;
    to->grown += line->grown;
    to->trimmed += line->trimmed;
}

int culvert_gpu_memory(culvert_gpu *gpu, culvert_gpu_memory_counters *out)
{
    CULVERT__REQUIRE(out, "culvert_gpu_memory", "out");
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(gpu, "culvert_gpu_memory", "gpu");
    size_t size = out->struct_size;
    if (size < sizeof out->struct_size || size > sizeof *out)
        return CULVERT_EINVAL;
    culvert__memory *memory = gpu->memory;
    culvert_gpu_memory_counters now = {
        .struct_size = size,
        .device_taken = culvert__heap_taken(memory->local),
        .device_used = culvert__heap_used(memory->local),
        .device_limit = gpu->flow->device_limit,
        .pinned_taken = culvert__heap_taken(memory->pinned) + culvert__heap_taken(memory->pieced) +
                        memory->growing.done,
        .pinned_used = culvert__heap_used(memory->pinned) + culvert__heap_used(memory->pieced),
        .pinned_limit = memory->pinned_limit,
        .registered = culvert__regions_bytes(memory),
    };
    count_line(&gpu->flow->lines[0], &now);
    count_line(&gpu->flow->lines[1], &now);
    memcpy(out, &now, size);
    return CULVERT_OK;
}

int culvert_gpu_state(const culvert_gpu *gpu)
{
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(gpu, "culvert_gpu_state", "gpu");
    if (culvert__device_is_lost(gpu->device))
        return CULVERT_GPU_LOST;
    return atomic_load(&gpu->flow->stalled) ? CULVERT_GPU_STALLED : CULVERT_GPU_OK;
}

culvert_loop *culvert_gpu_loop(culvert_gpu *gpu)
{
    CULVERT__REQUIRE(gpu, "culvert_gpu_loop", "gpu");
    return gpu->loop;
}

static void run_on_lost(culvert__task *task)
{
    culvert__flow *flow = CULVERT__CONTAINER(task, culvert__flow, on_lost_task);
    culvert_gpu *gpu = flow->gpu;
    void (*fn)(culvert_gpu *, const culvert_error *, void *) = flow->on_lost;
    void *arg = flow->on_lost_arg;
    culvert_free_fn *arg_free = flow->on_lost_free;
    if (fn == NULL)
        return;
    culvert_error err = flow->lost_error;
    flow->on_lost = NULL;
    flow->on_lost_free = NULL;
    culvert__gpu_ref(gpu);
    fn(gpu, &err, arg);
    if (arg_free != NULL)
        arg_free(arg);
    culvert__gpu_unref(gpu);
}

void culvert__on_lost_schedule(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    if (flow->on_lost == NULL || culvert__linked(&flow->on_lost_task.link))
        return;
    flow->on_lost_task.run = run_on_lost;
    culvert__ready_push(culvert__gpu_core(gpu), &flow->on_lost_task);
}

void culvert_gpu_on_lost(culvert_gpu *gpu,
                         void (*fn)(culvert_gpu *gpu, const culvert_error *err, void *arg),
                         void *arg, culvert_free_fn *arg_free)
{
    culvert_error ignored;
    CULVERT__REQUIRE(gpu, "culvert_gpu_on_lost", "gpu");
    bool refused = culvert__gpu_refuses(gpu, "culvert_gpu_on_lost", NULL, &ignored);
    if (refused && ignored.code != CULVERT_EDEVICELOST) {
        if (arg_free != NULL)
            arg_free(arg);
        return;
    }
    culvert__flow *flow = gpu->flow;
    culvert_free_fn *old_free = flow->on_lost_free;
    void *old_arg = flow->on_lost_arg;
    flow->on_lost = fn;
    flow->on_lost_arg = arg;
    flow->on_lost_free = arg_free;
    if (old_free != NULL)
        old_free(old_arg);
    if (gpu->lost)
        culvert__on_lost_schedule(gpu);
}
