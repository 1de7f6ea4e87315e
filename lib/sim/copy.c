/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.c: copies.
 *
 * A source that the device can read is read when the copy runs. Any other source is read during the
 * call, into the staging ring of the context, in pieces; once the ring is full the call waits for
 * copies to end. A destination in ordinary memory makes the call wait for the copy, and so for all
 * that was before it on the stream.
 *
 * Invariants: ring_used of a context is the sum of the pieces whose copies are not over, at most
 * RING_BYTES. That is 62 pieces of 64 KB: the 63rd has to wait, as measured on the hardware.
 */
#include "sim/copy.h"

#include <stdlib.h>
#include <string.h>

enum { RING_BYTES = 62 * 64 * 1024, PIECE_BYTES = 256 * 1024 };

void culvert__sim_ring_give(struct CUctx_st *ctx, size_t bytes)
{
    ctx->ring_used -= bytes;
    culvert__sim_tell_changed();
}

/* Room for a piece. 0, or an error. [lock] [waits] */
static int ring_take(struct CUctx_st *ctx, size_t bytes)
{
    if (ctx->ring_used + bytes > RING_BYTES)
        culvert__sim_note_block("the staging ring of pageable uploads is full");
    while (ctx->ring_used + bytes > RING_BYTES) {
        if (ctx->sticky || !ctx->active)
            return ctx->sticky ? ctx->sticky : CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
        culvert__sim_wait_changed();
    }
    ctx->ring_used += bytes;
    return 0;
}

/* Bytes from the first to the last that one side of a copy touches. */
static size_t extent(const struct sim_copy_work *c, size_t pitch, size_t slice)
{
    return (c->depth - 1) * slice + (c->height - 1) * pitch + c->width;
}

static size_t rows_bytes(const struct sim_copy_work *c)
{
    return c->width * c->height * c->depth;
}

static bool stage(struct sim_copy_work *c)
{
    char *to = malloc(rows_bytes(c));
    if (!to)
        return false;
    for (size_t z = 0; z < c->depth; z++) {
        for (size_t y = 0; y < c->height; y++)
            memcpy(to + (z * c->height + y) * c->width,
                   c->src + z * c->src_slice + y * c->src_pitch, c->width);
    }
    c->staged = to;
    c->src_pitch = c->width;
    c->src_slice = c->width * c->height;
    return true;
}

static int put(struct CUstream_st *s, const struct sim_copy_work *c,
               enum culvert__sim_function call, struct sim_record *end)
{
    struct sim_op *op = culvert__sim_op_new(SIM_COPY, call);
    op->work.u.copy = *c;
    op->record = end;
    return culvert__sim_submit(s, op);
}

/* One piece of a pageable upload. */
static int put_staged(struct CUstream_st *s, struct sim_copy_work piece,
                      enum culvert__sim_function call)
{
    size_t bytes = rows_bytes(&piece);
    unsigned generation = atomic_load(&culvert__sim.generation);
    int result = ring_take(s->ctx, bytes);
    if (result)
        return result;
    if (generation != atomic_load(&culvert__sim.generation))
        return CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    piece.ring = s->ctx;
    piece.staged_bytes = bytes;
    if (!stage(&piece)) {
        culvert__sim_ring_give(s->ctx, bytes);
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    return put(s, &piece, call, NULL);
}

static int upload_row(struct CUstream_st *s, struct sim_copy_work c,
                      enum culvert__sim_function call)
{
    size_t left = c.width;
    int result = 0;
    while (left > 0 && result == 0) {
        c.width = left < PIECE_BYTES ? left : PIECE_BYTES;
        result = put_staged(s, c, call);
        c.src += c.width;
        c.dst += c.width;
        left -= c.width;
    }
    return result;
}

static int upload(struct CUstream_st *s, const struct sim_copy_work *c,
                  enum culvert__sim_function call)
{
    if (rows_bytes(c) <= PIECE_BYTES)
        return put_staged(s, *c, call);
    int result = 0;
    for (size_t z = 0; z < c->depth && result == 0; z++) {
        for (size_t y = 0; y < c->height && result == 0; y++) {
            struct sim_copy_work row = *c;
            row.height = row.depth = 1;
            row.src += z * c->src_slice + y * c->src_pitch;
            row.dst += z * c->dst_slice + y * c->dst_pitch;
            result = upload_row(s, row, call);
        }
    }
    return result;
}

static int download(struct CUstream_st *s, const struct sim_copy_work *c,
                    enum culvert__sim_function call)
{
    struct sim_record *r = culvert__sim_record_new();
    int result = put(s, c, call, culvert__sim_record_ref(r));
    if (result == 0 && r->state == SIM_RECORD_PENDING) {
        culvert__sim_note_block("a copy to pageable memory waits for its stream");
        result = culvert__sim_record_wait(r);
    }
    culvert__sim_record_unref(r);
    return result;
}

/* Both sides are as the copy's kind demands. */
int culvert__sim_copy_check(struct sim_copy_work *c, enum sim_side dst_side, enum sim_side src_side,
                            struct sim_access *dst, struct sim_access *src)
{
    int result = culvert__sim_access((uintptr_t)c->dst, extent(c, c->dst_pitch, c->dst_slice),
                                     dst_side, dst);
    if (result == 0)
        result = culvert__sim_access((uintptr_t)c->src, extent(c, c->src_pitch, c->src_slice),
                                     src_side, src);
    if (result)
        return result;
    c->within_device = dst->device && src->device;
    c->pageable_dst = dst->pageable;
    return 0;
}

int culvert__sim_copy(struct CUstream_st *s, struct sim_copy_work *c, enum sim_side dst_side,
                      enum sim_side src_side, enum culvert__sim_function call)
{
    struct sim_access dst, src;
    int result = culvert__sim_copy_check(c, dst_side, src_side, &dst, &src);
    if (result)
        return result;
    if (s->capture)
        return put(s, c, call, NULL);
    if (dst.pageable)
        return download(s, c, call);
    return src.pageable ? upload(s, c, call) : put(s, c, call, NULL);
}

int culvert__sim_copy_rows(culvert__CUstream handle, struct sim_copy_work *c,
                           enum sim_side dst_side, enum sim_side src_side,
                           enum culvert__sim_function call)
{
    struct CUstream_st *s;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0 && rows_bytes(c) > 0)
        result = culvert__sim_copy(s, c, dst_side, src_side, call);
    culvert__sim_unlock();
    return result;
}

static int linear(culvert__CUstream handle, uintptr_t dst, enum sim_side dst_side, uintptr_t src,
                  enum sim_side src_side, size_t bytes, enum culvert__sim_function call)
{
    struct sim_copy_work c = {
        .dst = (char *)dst, .src = (const char *)src, .width = bytes, .height = 1, .depth = 1};
    return culvert__sim_copy_rows(handle, &c, dst_side, src_side, call);
}

int cuMemcpyHtoDAsync_v2(culvert__CUdeviceptr dst, const void *src, size_t bytes,
                         culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpyHtoDAsync);
    return linear(stream, dst, SIM_SIDE_DEVICE, (uintptr_t)src, SIM_SIDE_ANY, bytes,
                  culvert__SIM_cuMemcpyHtoDAsync);
}

int cuMemcpyDtoHAsync_v2(void *dst, culvert__CUdeviceptr src, size_t bytes,
                         culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpyDtoHAsync);
    return linear(stream, (uintptr_t)dst, SIM_SIDE_ANY, src, SIM_SIDE_DEVICE, bytes,
                  culvert__SIM_cuMemcpyDtoHAsync);
}

int cuMemcpyDtoDAsync_v2(culvert__CUdeviceptr dst, culvert__CUdeviceptr src, size_t bytes,
                         culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpyDtoDAsync);
    return linear(stream, dst, SIM_SIDE_DEVICE, src, SIM_SIDE_DEVICE, bytes,
                  culvert__SIM_cuMemcpyDtoDAsync);
}

/* With unified addressing the driver may get by with a wrong context; a program should not rely on it. */
static void check_context_of(culvert__CUdeviceptr address, const struct CUctx_st *ctx,
                             const char *side)
{
    const struct sim_range *r = culvert__sim_range_find((uintptr_t)address);
    if (r && r->kind != SIM_RANGE_FREED && r->ctx != ctx)
        culvert__sim_violation("cuMemcpyPeerAsync: %s is no memory of its context", side);
}

int cuMemcpyPeerAsync(culvert__CUdeviceptr dst, culvert__CUcontext dst_context,
                      culvert__CUdeviceptr src, culvert__CUcontext src_context, size_t bytes,
                      culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemcpyPeerAsync);
    int result;
    culvert__sim_lock();
    bool good = culvert__sim_object_check(dst_context, SIM_CONTEXT, &result) &&
                culvert__sim_object_check(src_context, SIM_CONTEXT, &result);
    if (good && bytes > 0) {
        check_context_of(dst, dst_context, "dst");
        check_context_of(src, src_context, "src");
    }
    culvert__sim_unlock();
    if (!good)
        return CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    return linear(stream, dst, SIM_SIDE_DEVICE, src, SIM_SIDE_DEVICE, bytes,
                  culvert__SIM_cuMemcpyPeerAsync);
}

/* The synchronous forms, on the legacy stream. */
static int synchronous(int result)
{
    struct CUstream_st *s;
    if (result)
        return result;
    culvert__sim_lock();
    result = culvert__sim_stream_of(NULL, SIM_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_synchronize(s);
    culvert__sim_unlock();
    return result;
}

int cuMemcpyHtoD_v2(culvert__CUdeviceptr dst, const void *src, size_t bytes)
{
    CULVERT__SIM_ENTER(cuMemcpyHtoD);
    return synchronous(linear(NULL, dst, SIM_SIDE_DEVICE, (uintptr_t)src, SIM_SIDE_ANY, bytes,
                              culvert__SIM_cuMemcpyHtoD));
}

int cuMemcpyDtoH_v2(void *dst, culvert__CUdeviceptr src, size_t bytes)
{
    CULVERT__SIM_ENTER(cuMemcpyDtoH);
    return synchronous(linear(NULL, (uintptr_t)dst, SIM_SIDE_ANY, src, SIM_SIDE_DEVICE, bytes,
                              culvert__SIM_cuMemcpyDtoH));
}
