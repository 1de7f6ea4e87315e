/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work.c: what operations and graph nodes do to memory.
 *
 * Invariants: running work reads nothing that the lock protects, so it needs no lock; its parameters
 * and references do not change while it runs.
 */
#define _GNU_SOURCE
#include "sim/engine.h"
#include "sim/graph.h"
#include "sim/memory.h"
#include "sim/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less than this is done at once, with the lock held. */
enum { SHORT_BYTES = 4096 };

static size_t copy_bytes(const struct sim_copy_work *c)
{
    return c->width * c->height * c->depth;
}

static size_t fill_bytes(const struct sim_fill_work *f)
{
    return f->width * f->element * f->height;
}

const char *culvert__sim_work_name(const struct sim_work *w)
{
    switch (w->kind) {
    case SIM_KERNEL: return w->u.kernel.function->kernel->name;
    case SIM_COPY: return "a copy";
    case SIM_FILL: return "a fill";
    default: return "an operation";
    }
}

bool culvert__sim_work_is_short(const struct sim_work *w)
{
    switch (w->kind) {
    case SIM_KERNEL: return false;
    case SIM_COPY: return copy_bytes(&w->u.copy) <= SHORT_BYTES;
    case SIM_FILL: return fill_bytes(&w->u.fill) <= SHORT_BYTES;
    default: return true;
    }
}

static uint64_t bytes_ns(size_t bytes, double bytes_a_second)
{
    return 2000 + (uint64_t)((double)bytes * 1e9 / bytes_a_second);
}

static uint64_t plan_ns(const struct sim_plan *plan)
{
    uint64_t sum = 5000;
    const struct sim_work *w;
    for (size_t i = 0; (w = culvert__sim_plan_work(plan, i)); i++)
        sum += culvert__sim_work_ns(w);
    return sum;
}

uint64_t culvert__sim_work_ns(const struct sim_work *w)
{
    uint64_t ns = 0;
    bool set =
        w->kind == SIM_KERNEL && culvert__sim_duration_of(w->u.kernel.function->kernel->name, &ns);
    if (set || !culvert__sim.virtual_time)
        return ns;
    switch (w->kind) {
    case SIM_KERNEL: return 5000;
    case SIM_COPY: return bytes_ns(copy_bytes(&w->u.copy), w->u.copy.within_device ? 2e12 : 50e9);
    case SIM_FILL: return bytes_ns(fill_bytes(&w->u.fill), 2e12);
    case SIM_LAUNCH_GRAPH: return plan_ns(w->u.plan);
    default: return 0;
    }
}

static void run_copy(const struct sim_copy_work *c)
{
    const char *src = c->staged ? c->staged : c->src;
    if (c->height <= 1 && c->depth <= 1) {
        memmove(c->dst, src, copy_bytes(c));
        return;
    }
    for (size_t z = 0; z < c->depth; z++) {
        for (size_t y = 0; y < c->height; y++)
            memmove(c->dst + z * c->dst_slice + y * c->dst_pitch,
                    src + z * c->src_slice + y * c->src_pitch, c->width);
    }
}

static void fill_row(char *dst, uint32_t value, unsigned element, size_t n)
{
    if (element == 1) {
        memset(dst, (int)(value & 0xff), n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(dst + i * element, &value, element);
}

static void run_fill(const struct sim_fill_work *f)
{
    for (size_t y = 0; y < f->height; y++)
        fill_row(f->dst + y * f->pitch, f->value, f->element, f->width);
}

static int run_kernel(const struct sim_kernel_work *k, const _Atomic int *stop,
                      culvert__block_runner *runner)
{
    culvert__grid grid = {
        .kernel = k->function->kernel,
        .params = k->params,
        .grid = {k->grid[0], k->grid[1], k->grid[2]},
        .block = {k->block[0], k->block[1], k->block[2]},
        .cluster = {k->cluster[0], k->cluster[1], k->cluster[2]},
        .dynamic_shared_bytes = k->shared_bytes,
        .stop = stop,
    };
    char message[256] = "";
    if (!runner)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    int result = k->cooperative ? culvert__grid_run_at_once(runner, &grid, message, sizeof message)
                                : culvert__grid_run(runner, &grid, 0, culvert__grid_blocks(&grid),
                                                    message, sizeof message);
    if (result != 0 && result != atomic_load(stop))
        fprintf(stderr, "culvert-sim: %s: %s\n", grid.kernel->name, message);
    return result;
}

static void write_value(const struct sim_value_work *v)
{
    __atomic_store_n(v->address, v->value, __ATOMIC_RELEASE);
}

bool culvert__sim_value_is_there(const struct sim_value_work *v)
{
    uint32_t now = __atomic_load_n(v->address, __ATOMIC_ACQUIRE);
    switch (v->flags & 3u) {
    case CULVERT__CU_STREAM_WAIT_VALUE_EQ: return now == v->value;
    case CULVERT__CU_STREAM_WAIT_VALUE_AND: return (now & v->value) != 0;
    case CULVERT__CU_STREAM_WAIT_VALUE_NOR: return ~(now | v->value) != 0;
    default: return (int32_t)(now - v->value) >= 0;
    }
}

int culvert__sim_work_run(const struct sim_work *w, const _Atomic int *stop,
                          culvert__block_runner *runner)
{
    switch (w->kind) {
    case SIM_KERNEL: return run_kernel(&w->u.kernel, stop, runner);
    case SIM_COPY: run_copy(&w->u.copy); return 0;
    case SIM_FILL: run_fill(&w->u.fill); return 0;
    case SIM_WRITE_VALUE: write_value(&w->u.value); return 0;
    case SIM_POOL_FREE: culvert__sim_pool_take_back(w->u.block); return 0;
    default: return 0;
    }
}

void culvert__sim_work_release(struct sim_work *w)
{
    switch (w->kind) {
    case SIM_KERNEL:
        free(w->u.kernel.params);
        culvert__sim_module_unref(w->u.kernel.function->module);
        break;
    case SIM_COPY:
        free(w->u.copy.staged);
        if (w->u.copy.staged_bytes > 0)
            culvert__sim_ring_give(w->u.copy.ring, w->u.copy.staged_bytes);
        break;
    case SIM_LAUNCH_GRAPH: culvert__sim_plan_unref(w->u.plan); break;
    case SIM_CHILD: culvert__sim_graph_free(w->u.graph); break;
    default: break;
    }
    w->kind = SIM_EMPTY;
}
