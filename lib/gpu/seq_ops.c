/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building a sequence: each operation is checked here, before the driver hears of it, and copied
 * into the sequence's arena. What an operation uses is held from here on.
 */
#include "gpu/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- holding ---- */

static culvert__hold *hold_new(culvert_seq *seq)
{
    culvert__hold *hold = culvert__seq_arena(seq, sizeof *hold);
    if (hold == NULL)
        return NULL;
    *hold = (culvert__hold){seq->holds, NULL, NULL, NULL};
    seq->holds = hold;
    return hold;
}

bool culvert__seq_hold_buffer(culvert_seq *seq, culvert_buffer *buffer)
{
    if (seq->holds != NULL && seq->holds->buffer == buffer)
        return true; /* the one used last: common */
    culvert__hold *hold = hold_new(seq);
    if (hold == NULL)
        return false;
    hold->buffer = culvert_buffer_ref(buffer);
    return true;
}

bool culvert__seq_hold_graph(culvert_seq *seq, culvert_graph *graph)
{
    if (seq->holds != NULL && seq->holds->graph == graph)
        return true;
    culvert__hold *hold = hold_new(seq);
    if (hold == NULL)
        return false;
    hold->graph = culvert__graph_ref(graph);
    return true;
}

bool culvert__seq_hold_module(culvert_seq *seq, culvert_module *module)
{
    for (culvert__hold *hold = seq->holds; hold != NULL; hold = hold->next)
        if (hold->module == module)
            return true;
    culvert__hold *hold = hold_new(seq);
    if (hold == NULL)
        return false;
    hold->module = culvert__module_ref(module);
    return true;
}

/* ---- operations ---- */

bool culvert__seq_passes(culvert_seq *seq, const char *op)
{
    CULVERT__REQUIRE(seq, op, "seq");
    return seq->failed || culvert__forked();
}

culvert__op *culvert__op_new(culvert_seq *seq, culvert__op_kind kind, unsigned weight,
                             const char *where)
{
    culvert__op *op = culvert__seq_arena(seq, sizeof *op);
    if (op == NULL)
        return NULL;
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->weight = weight;
    op->where = where;
    return op;
}

void culvert__op_add(culvert_seq *seq, culvert__op *op)
{
    *seq->ops_end = op;
    seq->ops_end = &op->next;
    seq->nops++;
    seq->positions += op->part ? 0 : 1;
    op->position = seq->positions - 1;
}

bool culvert__seq_check_buffer(culvert_seq *seq, const culvert_buffer *buffer, const char *verb,
                               const char *op, const char *where, size_t offset, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert__buffer_check(buffer, seq->gpu->device, verb, op, where, offset, bytes, &err))
        return true;
    culvert__seq_fail_with(seq, &err);
    return false;
}

static culvert__op *host_piece(culvert_seq *seq, culvert__op_kind kind, culvert_buffer *buffer,
                               size_t offset, char *host, size_t bytes, const char *where)
{
    culvert__op *op = culvert__op_new(seq, kind, 1, where);
    if (op == NULL)
        return NULL;
    op->u.host.buffer = buffer;
    op->u.host.offset = offset;
    op->u.host.host = host;
    op->u.host.bytes = bytes;
    op->u.host.fills_end = &op->u.host.fills;
    return op;
}

/* One operation for most; the driver copies over no seam of memory that was pinned in pieces. */
static void add_host_pieces(culvert_seq *seq, culvert__op_kind kind, culvert_buffer *buffer,
                            size_t offset, char *host, size_t bytes, const char *where)
{
    culvert_buffer *owner;
    size_t seam;
    bool direct = culvert__pinned_find(seq->gpu->memory, host, bytes, &seam, &owner);
    bool held = culvert__seq_hold_buffer(seq, buffer) &&
                (!direct || owner == NULL || culvert__seq_hold_buffer(seq, owner));
    culvert_buffer_unref(owner);
    for (size_t done = 0, run; held && done < bytes; done += run) {
        uintptr_t there = (uintptr_t)buffer->address + offset + done;
        run = culvert__seam_run(buffer->seam, there, bytes - done);
        run = culvert__seam_run(seam, (uintptr_t)host + done, run);
        culvert__op *op = host_piece(seq, kind, buffer, offset + done, host + done, run, where);
        if (op == NULL)
            return;
        op->u.host.direct = direct;
        op->part = done > 0;
        culvert__op_add(seq, op);
    }
    if (kind == CULVERT__OP_DOWNLOAD && !direct)
        seq->owes_host = true;
}

static void add_host_copy(culvert_seq *seq, culvert__op_kind kind, culvert_buffer *buffer,
                          size_t offset, void *host, size_t bytes, const char *name,
                          const char *where)
{
    bool up = kind == CULVERT__OP_UPLOAD;
    if (!culvert__seq_check_buffer(seq, buffer, up ? "upload" : "download", name, where, offset,
                                   bytes) ||
        bytes == 0) {
        culvert__op_nothing(seq);
        return;
    }
    if (host == NULL) {
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where, "%s is NULL for %zu bytes",
                          up ? "src" : "dst", bytes);
        return;
    }
    add_host_pieces(seq, kind, buffer, offset, host, bytes, where);
}

void culvert_seq_upload_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                           size_t dst_offset, const void *src, size_t bytes)
{
    const char *name = "culvert_seq_upload";
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(dst, name, "dst");
    union {
        const void *read;
        void *host;
    } source = {.read = src}; /* only read: see culvert__op */
    add_host_copy(seq, CULVERT__OP_UPLOAD, dst, dst_offset, source.host, bytes, name, where);
}

void culvert_seq_download_at(const char *where, culvert_seq *seq, void *dst, culvert_buffer *src,
                             size_t src_offset, size_t bytes)
{
    const char *name = "culvert_seq_download";
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(src, name, "src");
    add_host_copy(seq, CULVERT__OP_DOWNLOAD, src, src_offset, dst, bytes, name, where);
}

static bool overlaps(const culvert_buffer *a, size_t a_offset, const culvert_buffer *b,
                     size_t b_offset, size_t bytes)
{
    return a == b && a_offset < b_offset + bytes && b_offset < a_offset + bytes;
}

bool culvert__seq_add_copy(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset,
                           culvert_buffer *src, size_t src_offset, size_t bytes, bool part,
                           const char *where)
{
    for (size_t done = 0, run; done < bytes; done += run) {
        culvert__op *op = culvert__op_new(seq, CULVERT__OP_COPY, 1, where);
        if (op == NULL)
            return false;
        run =
            culvert__seam_run(dst->seam, (uintptr_t)dst->address + dst_offset + done, bytes - done);
        run = culvert__seam_run(src->seam, (uintptr_t)src->address + src_offset + done, run);
        op->part = part || done > 0;
        op->u.copy.dst = dst;
        op->u.copy.src = src;
        op->u.copy.dst_offset = dst_offset + done;
        op->u.copy.src_offset = src_offset + done;
        op->u.copy.bytes = run;
        culvert__op_add(seq, op);
    }
    return true;
}

/* One side of a copy, given the other: a buffer of this device, or of a peer. */
static bool check_copied(culvert_seq *seq, const culvert_buffer *buffer,
                         const culvert_buffer *other, const char *name, const char *where,
                         size_t offset, size_t bytes)
{
    if (!culvert__peer_allows(seq, buffer, other))
        return culvert__seq_check_buffer(seq, buffer, "copy", name, where, offset, bytes);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__device *device = buffer->memory->device;
    bool good = culvert__buffer_check(buffer, device, "copy", name, where, offset, bytes, &err);
    if (good && culvert__device_is_lost(device)) {
        culvert__device_say_lost(device, name, where, &err);
        good = false;
    }
    if (!good)
        culvert__seq_fail_with(seq, &err);
    return good;
}

void culvert_seq_copy_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                         size_t dst_offset, culvert_buffer *src, size_t src_offset, size_t bytes)
{
    const char *name = "culvert_seq_copy";
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(dst, name, "dst");
    CULVERT__REQUIRE(src, name, "src");
    if (!check_copied(seq, dst, src, name, where, dst_offset, bytes) ||
        !check_copied(seq, src, dst, name, where, src_offset, bytes) || bytes == 0) {
        culvert__op_nothing(seq);
        return;
    }
    if (overlaps(dst, dst_offset, src, src_offset, bytes)) {
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where,
                          "copy of %zu bytes from offset %zu to offset %zu of the same buffer "
                          "overlaps",
                          bytes, src_offset, dst_offset);
        return;
    }
    if (culvert__seq_hold_buffer(seq, dst) && culvert__seq_hold_buffer(seq, src))
        (void)culvert__seq_add_copy(seq, dst, dst_offset, src, src_offset, bytes, false, where);
}

static bool check_pattern(culvert_seq *seq, size_t offset, size_t bytes, unsigned pattern_bytes,
                          const char *name, const char *where)
{
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4) {
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where,
                          "pattern_bytes is %u; it must be 1, 2 or 4", pattern_bytes);
        return false;
    }
    if (offset % pattern_bytes != 0 || bytes % pattern_bytes != 0) {
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where,
                          "fill of %zu bytes at offset %zu: both must be multiples of the %u-byte "
                          "pattern",
                          bytes, offset, pattern_bytes);
        return false;
    }
    return true;
}

void culvert_seq_fill_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                         size_t dst_offset, size_t bytes, uint32_t pattern, unsigned pattern_bytes)
{
    const char *name = "culvert_seq_fill";
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(dst, name, "dst");
    if (!check_pattern(seq, dst_offset, bytes, pattern_bytes, name, where) ||
        !culvert__seq_check_buffer(seq, dst, "fill", name, where, dst_offset, bytes) ||
        bytes == 0) {
        culvert__op_nothing(seq);
        return;
    }
    if ((dst->address + dst_offset) % pattern_bytes != 0) {
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where,
                          "fill of %zu bytes at address %#llx, which is no multiple of the %u-byte "
                          "pattern",
                          bytes, dst->address + dst_offset, pattern_bytes);
        return;
    }
    bool held = culvert__seq_hold_buffer(seq, dst);
    for (size_t done = 0, run; held && done < bytes; done += run) {
        culvert__op *op = culvert__op_new(seq, CULVERT__OP_FILL, 1, where);
        if (op == NULL)
            return;
        run =
            culvert__seam_run(dst->seam, (uintptr_t)dst->address + dst_offset + done, bytes - done);
        op->part = done > 0;
        op->u.fill.dst = dst;
        op->u.fill.offset = dst_offset + done;
        op->u.fill.bytes = run;
        op->u.fill.pattern = pattern;
        op->u.fill.pattern_bytes = pattern_bytes;
        culvert__op_add(seq, op);
    }
}

void culvert_seq_launch_at(const char *where, culvert_seq *seq, culvert_kernel *kernel,
                           const culvert_grid *grid, const culvert_arg *args, size_t nargs)
{
    const char *name = "culvert_seq_launch";
    culvert__launch launch;
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(kernel, name, "kernel");
    CULVERT__REQUIRE(grid, name, "grid");
    if (!culvert__launch_build(seq, kernel, grid, args, nargs, name, where, &launch) ||
        grid->blocks[0] == 0) {
        culvert__op_nothing(seq);
        return;
    }
    culvert__op *op = culvert__op_new(seq, CULVERT__OP_LAUNCH, 1, where);
    if (op == NULL)
        return;
    op->u.launch = launch;
    culvert__op_add(seq, op);
}

void culvert_seq_keep_at(const char *where, culvert_seq *seq, void *obj, culvert_free_fn *obj_free)
{
    (void)where;
    bool passed = culvert__seq_passes(seq, "culvert_seq_keep");
    culvert__keep *keep = passed ? NULL : culvert__seq_arena(seq, sizeof *keep);
    if (keep == NULL) {
        culvert__release_arg(seq->gpu != NULL ? culvert__gpu_core(seq->gpu) : NULL, obj_free, obj);
        return;
    }
    *keep = (culvert__keep){NULL, obj, obj_free};
    *seq->keeps_end = keep;
    seq->keeps_end = &keep->next;
}

static void seq_call(const char *where, culvert_seq *seq,
                     int (*enqueue)(struct CUstream_st *, void *arg), void *arg,
                     culvert_free_fn *arg_free, unsigned weight, const char *name)
{
    bool passed = culvert__seq_passes(seq, name);
    CULVERT__REQUIRE(enqueue, name, "enqueue");
    if (passed) { /* the argument is released */
        culvert_seq_keep_at(where, seq, arg, arg_free);
        return;
    }
    if (weight == 0 || weight > CULVERT__STREAM_CAP)
        culvert__seq_fail(seq, CULVERT_EINVAL, name, where, "weight is %u; it must be 1 to %d",
                          weight, CULVERT__STREAM_CAP);
    culvert_seq_keep_at(where, seq, arg, arg_free);
    if (seq->failed)
        return;
    culvert__op *op = culvert__op_new(seq, CULVERT__OP_CALL, weight, where);
    if (op == NULL)
        return;
    op->u.call.enqueue = enqueue;
    op->u.call.arg = arg;
    op->u.call.name = name;
    culvert__op_add(seq, op);
}

void culvert_seq_call_weighted_at(const char *where, culvert_seq *seq,
                                  int (*enqueue)(struct CUstream_st *, void *arg), void *arg,
                                  culvert_free_fn *arg_free, unsigned weight)
{
    seq_call(where, seq, enqueue, arg, arg_free, weight, "culvert_seq_call_weighted");
}

void culvert_seq_call_at(const char *where, culvert_seq *seq,
                         int (*enqueue)(struct CUstream_st *, void *arg), void *arg,
                         culvert_free_fn *arg_free)
{
    seq_call(where, seq, enqueue, arg, arg_free, CULVERT_CALL_WEIGHT, "culvert_seq_call");
}

culvert_buffer *culvert_seq_scratch_at(const char *where, culvert_seq *seq, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const char *name = "culvert_seq_scratch";
    if (culvert__seq_passes(seq, name))
        return NULL;
    culvert_buffer *buffer = NULL;
    culvert__heap *heap = seq->gpu->memory->local;
    size_t taken = culvert__heap_taken(heap);
    if (!culvert__gpu_refuses(seq->gpu, name, where, &err))
        buffer = culvert__buffer_take(seq->gpu, bytes, true, false, name, where, &err);
    if (buffer == NULL) {
        culvert__seq_fail_with(seq, &err);
        return NULL;
    }
    seq->scratch = true;
    if (culvert__heap_taken(heap) > taken)
        seq->scratch_grown += bytes;
    bool held = culvert__seq_hold_buffer(seq, buffer);
    culvert_buffer_unref(buffer);
    return held ? buffer : NULL;
}

void culvert_seq_use_at(const char *where, culvert_seq *seq, culvert_buffer *buffer)
{
    const char *name = "culvert_seq_use";
    if (culvert__seq_passes(seq, name))
        return;
    CULVERT__REQUIRE(buffer, name, "buffer");
    if (culvert__seq_check_buffer(seq, buffer, "use", name, where, 0, 0))
        (void)culvert__seq_hold_buffer(seq, buffer);
}

void culvert_seq_wait_at(const char *where, culvert_seq *seq, culvert_future *future)
{
    const char *name = "culvert_seq_wait";
    bool passed = culvert__seq_passes(seq, name);
    CULVERT__REQUIRE(future, name, "future");
    if (passed)
        culvert_unref(future);
    else
        culvert__seq_wait_add(seq, future, where);
}

/* ---- the same without a place ---- */

void culvert_seq_upload(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset, const void *src,
                        size_t bytes)
{
    culvert_seq_upload_at(NULL, seq, dst, dst_offset, src, bytes);
}

void culvert_seq_download(culvert_seq *seq, void *dst, culvert_buffer *src, size_t src_offset,
                          size_t bytes)
{
    culvert_seq_download_at(NULL, seq, dst, src, src_offset, bytes);
}

void culvert_seq_copy(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset, culvert_buffer *src,
                      size_t src_offset, size_t bytes)
{
    culvert_seq_copy_at(NULL, seq, dst, dst_offset, src, src_offset, bytes);
}

void culvert_seq_fill(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset, size_t bytes,
                      uint32_t pattern, unsigned pattern_bytes)
{
    culvert_seq_fill_at(NULL, seq, dst, dst_offset, bytes, pattern, pattern_bytes);
}

void culvert_seq_launch(culvert_seq *seq, culvert_kernel *kernel, const culvert_grid *grid,
                        const culvert_arg *args, size_t nargs)
{
    culvert_seq_launch_at(NULL, seq, kernel, grid, args, nargs);
}

void culvert_seq_call(culvert_seq *seq, int (*enqueue)(struct CUstream_st *, void *arg), void *arg,
                      culvert_free_fn *arg_free)
{
    culvert_seq_call_at(NULL, seq, enqueue, arg, arg_free);
}

void culvert_seq_call_weighted(culvert_seq *seq, int (*enqueue)(struct CUstream_st *, void *arg),
                               void *arg, culvert_free_fn *arg_free, unsigned weight)
{
    culvert_seq_call_weighted_at(NULL, seq, enqueue, arg, arg_free, weight);
}

culvert_buffer *culvert_seq_scratch(culvert_seq *seq, size_t bytes)
{
    return culvert_seq_scratch_at(NULL, seq, bytes);
}

void culvert_seq_use(culvert_seq *seq, culvert_buffer *buffer)
{
    culvert_seq_use_at(NULL, seq, buffer);
}

void culvert_seq_keep(culvert_seq *seq, void *obj, culvert_free_fn *obj_free)
{
    culvert_seq_keep_at(NULL, seq, obj, obj_free);
}

void culvert_seq_wait(culvert_seq *seq, culvert_future *future)
{
    culvert_seq_wait_at(NULL, seq, future);
}
