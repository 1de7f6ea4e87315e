/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * launch.c: kernel launches. The parameters are copied during the call, by the sizes that the
 * module's table has of them.
 */
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_GRID_YZ = 65535, MAX_BLOCK_Z = 64, MAX_CLUSTER = 8 };

int culvert__sim_launch_check(const struct CUfunc_st *f, const uint32_t grid[3],
                              const uint32_t block[3], uint32_t shared_bytes)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    uint32_t most = f->kernel->max_threads;
    if (most == 0 || most > CULVERT__BLOCK_MAX_THREADS)
        most = CULVERT__BLOCK_MAX_THREADS;
    bool good = grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && threads > 0 && grid[0] <= INT32_MAX &&
                grid[1] <= MAX_GRID_YZ && grid[2] <= MAX_GRID_YZ && block[0] <= 1024 &&
                block[1] <= 1024 && block[2] <= MAX_BLOCK_Z && threads <= most &&
                f->max_dynamic_shared >= 0 && shared_bytes <= (uint32_t)f->max_dynamic_shared;
    return good ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

/* The block of parameters that `extra` points to. */
static int find_buffer(void **extra, const void **buffer, size_t *bytes)
{
    for (size_t i = 0; (uintptr_t)extra[i] != CULVERT__CU_LAUNCH_PARAM_END_AS_INT; i += 2) {
        if ((uintptr_t)extra[i] == CULVERT__CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
            *buffer = extra[i + 1];
        else if ((uintptr_t)extra[i] == CULVERT__CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)
            *bytes = *(const size_t *)extra[i + 1];
        else
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
    return 0;
}

int culvert__sim_pack_params(const struct CUfunc_st *f, void **params, void **extra, void *room,
                             size_t room_bytes, void **out)
{
    const struct culvert_sim_kernel *k = f->kernel;
    const void *buffer = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (params && extra)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (k->nparams == 0)
        return 0;
    if (extra && find_buffer(extra, &buffer, &bytes) != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!params && (!buffer || bytes < k->params_bytes))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; params && i < k->nparams; i++) {
        if (!params[i])
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
    size_t whole = (k->params_bytes + 15) / 16 * 16;
    char *to = whole <= room_bytes ? room : aligned_alloc(16, whole);
    if (!to)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    if (buffer)
        memcpy(to, buffer, k->params_bytes);
    for (size_t i = 0; params && i < k->nparams; i++)
        memcpy(to + k->param_offsets[i], params[i], k->param_sizes[i]);
    *out = to;
    return 0;
}

struct launch {
    uint32_t grid[3], block[3], cluster[3];
    uint32_t shared_bytes;
    bool cooperative;
};

static int check(const struct launch *l, const struct CUfunc_st *f)
{
    int result = culvert__sim_launch_check(f, l->grid, l->block, l->shared_bytes);
    if (result)
        return result;
    uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    if (l->cooperative && blocks > culvert__sim_blocks_at_once(f, threads, l->shared_bytes))
        return CULVERT__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    for (int i = 0; i < 3; i++) {
        if (l->cluster[i] == 0 || l->grid[i] % l->cluster[i] != 0)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
    if ((uint64_t)l->cluster[0] * l->cluster[1] * l->cluster[2] > MAX_CLUSTER)
        return CULVERT__CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return 0;
}

/* [lock] [waits] */
static int submit(struct CUstream_st *s, struct CUfunc_st *f, const struct launch *l, void **params,
                  void **extra, enum culvert__sim_function call)
{
    void *packed;
    struct sim_op *op = culvert__sim_op_new(SIM_EMPTY, call);
    int result = culvert__sim_pack_params(f, params, extra, op->params, sizeof op->params, &packed);
    if (result) {
        culvert__sim_op_free(op);
        return result;
    }
    struct sim_kernel_work *k = &op->work.u.kernel;
    *k = (struct sim_kernel_work){.function = f,
                                  .shared_bytes = l->shared_bytes,
                                  .cooperative = l->cooperative,
                                  .params = packed};
    memcpy(k->grid, l->grid, sizeof k->grid);
    memcpy(k->block, l->block, sizeof k->block);
    memcpy(k->cluster, l->cluster, sizeof k->cluster);
    op->work.kind = SIM_KERNEL;
    op->device = true;
    culvert__sim_module_ref(f->module);
    return culvert__sim_submit(s, op);
}

static int launch(culvert__CUfunction f, const struct launch *l, culvert__CUstream handle,
                  void **params, void **extra, enum culvert__sim_function call)
{
    struct CUstream_st *s;
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(f, SIM_FUNCTION, &result))
        result = culvert__sim_stream_of(handle, SIM_CURRENT_OR_NONE, &s);
    if (result == 0 && s->ctx != f->module->ctx)
        result = CULVERT__CUDA_ERROR_INVALID_HANDLE;
    if (result == 0)
        result = check(l, f);
    if (result == 0 && !s->capture)
        result = culvert__sim_function_load(f);
    if (result == 0)
        result = submit(s, f, l, params, extra, call);
    culvert__sim_unlock();
    return result;
}

int cuLaunchKernel(culvert__CUfunction f, unsigned int grid_x, unsigned int grid_y,
                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                   unsigned int block_z, unsigned int shared_bytes, culvert__CUstream stream,
                   void **params, void **extra)
{
    CULVERT__SIM_ENTER(cuLaunchKernel);
    struct launch l = {.grid = {grid_x, grid_y, grid_z},
                       .block = {block_x, block_y, block_z},
                       .cluster = {1, 1, 1},
                       .shared_bytes = shared_bytes};
    return launch(f, &l, stream, params, extra, culvert__SIM_cuLaunchKernel);
}

static void apply(struct launch *l, const culvert__CUlaunchAttribute *a)
{
    if (a->id == CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        l->cooperative = a->value.cooperative != 0;
    } else if (a->id == CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        l->cluster[0] = a->value.clusterDim.x;
        l->cluster[1] = a->value.clusterDim.y;
        l->cluster[2] = a->value.clusterDim.z;
    }
}

int cuLaunchKernelEx(const culvert__CUlaunchConfig *c, culvert__CUfunction f, void **params,
                     void **extra)
{
    CULVERT__SIM_ENTER(cuLaunchKernelEx);
    if (!c || (c->numAttrs > 0 && !c->attrs))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct launch l = {.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                       .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
                       .cluster = {1, 1, 1},
                       .shared_bytes = c->sharedMemBytes};
    for (unsigned i = 0; i < c->numAttrs; i++)
        apply(&l, &c->attrs[i]);
    return launch(f, &l, c->hStream, params, extra, culvert__SIM_cuLaunchKernelEx);
}
