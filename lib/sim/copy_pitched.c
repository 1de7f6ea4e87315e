/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy_pitched.c: pitched copies, as a call and as the parameters of a graph's node, and batches.
 */
#include "sim/copy.h"

#include <string.h>

/* One side of a pitched copy as the driver's structs describe it. */
struct side {
    int type;
    const void *host;
    culvert__CUdeviceptr device;
    size_t x, y, z, pitch, height;
};

static int side_address(const struct side *side, size_t width, size_t height, size_t depth,
                        uintptr_t *address, size_t *pitch, size_t *slice, enum sim_side *kind)
{
    uintptr_t base;
    size_t p = side->pitch;
    size_t rows = side->height;
    if (p == 0 && height <= 1 && depth <= 1)
        p = side->x + width;
    if (rows == 0 && depth <= 1)
        rows = side->y + height;
    if (p < side->x + width || (depth > 1 && rows < side->y + height))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    switch (side->type) {
    case CULVERT__CU_MEMORYTYPE_HOST:
        base = (uintptr_t)side->host;
        *kind = SIM_SIDE_ANY;
        break;
    case CULVERT__CU_MEMORYTYPE_DEVICE:
        base = side->device;
        *kind = SIM_SIDE_DEVICE;
        break;
    case CULVERT__CU_MEMORYTYPE_UNIFIED:
        base = side->device;
        *kind = SIM_SIDE_ANY;
        break;
    default: return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = p;
    *slice = p * rows;
    *address = base + side->x + side->y * p + side->z * *slice;
    return 0;
}

static int resolve(const struct side *dst, const struct side *src, size_t width, size_t height,
                   size_t depth, struct sim_copy_work *c, enum sim_side kinds[2])
{
    uintptr_t to, from;
    *c = (struct sim_copy_work){.width = width, .height = height, .depth = depth};
    int result =
        side_address(dst, width, height, depth, &to, &c->dst_pitch, &c->dst_slice, &kinds[0]);
    if (result == 0)
        result =
            side_address(src, width, height, depth, &from, &c->src_pitch, &c->src_slice, &kinds[1]);
    if (result)
        return result;
    c->dst = (char *)to;
    c->src = (const char *)from;
    return 0;
}

int culvert__sim_copy_of_3d(const culvert__CUDA_MEMCPY3D *p, struct sim_copy_work *c,
                            enum sim_side kinds[2])
{
    if (!p || p->srcLOD || p->dstLOD || p->reserved0 || p->reserved1)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct side dst = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
                       p->dstY,          p->dstZ,    p->dstPitch,  p->dstHeight};
    struct side src = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes,
                       p->srcY,          p->srcZ,    p->srcPitch,  p->srcHeight};
    return resolve(&dst, &src, p->WidthInBytes, p->Height, p->Depth, c, kinds);
}

/* Without a pitch the rows lie one behind the other. */
static void close_up(struct side *side, size_t width)
{
    if (side->pitch == 0)
        side->pitch = side->x + width;
}

int cuMemcpy2DAsync_v2(const culvert__CUDA_MEMCPY2D *p, culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpy2DAsync);
    struct sim_copy_work c;
    enum sim_side kinds[2];
    if (!p)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct side dst = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
                       p->dstY,          0,          p->dstPitch,  0};
    struct side src = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes,
                       p->srcY,          0,          p->srcPitch,  0};
    close_up(&dst, p->WidthInBytes);
    close_up(&src, p->WidthInBytes);
    int result = resolve(&dst, &src, p->WidthInBytes, p->Height, 1, &c, kinds);
    if (result)
        return result;
    return culvert__sim_copy_rows(stream, &c, kinds[0], kinds[1], culvert__SIM_cuMemcpy2DAsync);
}

int cuMemcpyBatchAsync(culvert__CUdeviceptr *dsts, culvert__CUdeviceptr *srcs, size_t *sizes,
                       size_t count, culvert__CUmemcpyAttributes *attributes,
                       size_t *attribute_indices, size_t n, size_t *fail_index,
                       culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpyBatchAsync);
    if (fail_index)
        *fail_index = SIZE_MAX;
    if (!dsts || !srcs || !sizes || count == 0 || !attributes || !attribute_indices || n == 0 ||
        n > count || attribute_indices[0] != 0 ||
        (uintptr_t)stream <= (uintptr_t)CULVERT__CU_STREAM_LEGACY)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sim_copy_work c = {.dst = (char *)(uintptr_t)dsts[i],
                                  .src = (const char *)(uintptr_t)srcs[i],
                                  .width = sizes[i],
                                  .height = 1,
                                  .depth = 1};
        int result = culvert__sim_copy_rows(stream, &c, SIM_SIDE_ANY, SIM_SIDE_ANY,
                                            culvert__SIM_cuMemcpyBatchAsync);
        if (result) {
            if (fail_index)
                *fail_index = i;
            return result;
        }
    }
    return 0;
}
