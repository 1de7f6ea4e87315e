/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies between devices.
 *
 * A sequence that copies from or to another device is work of its own stream's device. It holds the
 * other device's buffer like any other: the range, the memory and the device below it stay until this
 * loop has seen the end of the copy, whichever loop they belong to.
 *
 * Invariants:
 *   - two contexts of one driver meet once, when the second of them is opened, under the registry's
 *     lock: neither can go meanwhile. Enabling access is never on a hot path. Where it cannot be
 *     enabled the driver stages the copies itself, so no answer is an error.
 *   - no call is made for a copy whose other device is known to be lost, and no copy is a success if
 *     that was lost before its end was seen. The sequence's own device is not lost with it.
 */
#include "gpu/flow.h"

/* One way: work of `device` reaches the memory of `other`. */
static void reach(culvert__device *device, culvert__device *other)
{
    const culvert__driver *drv = device->drv;
    struct CUctx_st *popped;
    int can = 0;
    if (drv->cuDeviceCanAccessPeer(&can, device->handle, other->handle) != CULVERT__CUDA_SUCCESS ||
        can == 0)
        return;
    if (drv->cuCtxPushCurrent(device->ctx) != CULVERT__CUDA_SUCCESS)
        return;
    (void)drv->cuCtxEnablePeerAccess(other->ctx, 0); /* the program may have done it already */
    (void)drv->cuCtxPopCurrent(&popped);
}

void culvert__peers_meet(culvert__device *a, culvert__device *b)
{
    if (a->drv != b->drv || a->ordinal == b->ordinal || culvert__device_is_lost(a) ||
        culvert__device_is_lost(b))
        return;
    reach(a, b);
    reach(b, a);
}

bool culvert__peer_allows(const culvert_seq *seq, const culvert_buffer *buffer,
                          const culvert_buffer *other)
{
    const culvert__device *own = seq->gpu->device, *its = buffer->memory->device;
    return buffer->data == NULL && its->drv == own->drv && its->ordinal != own->ordinal &&
           other->data == NULL && other->memory->device == own;
}

bool culvert__peer_copies(const culvert__op *op)
{
    const culvert_buffer *dst = op->u.copy.dst, *src = op->u.copy.src;
    return dst->data == NULL && src->data == NULL && dst->memory->device != src->memory->device;
}

/* One side. */
static bool fails_with(culvert_seq *seq, const culvert__op *op, const culvert_buffer *buffer)
{
    culvert__device *device = buffer->memory->device;
    culvert_error err = CULVERT_ERROR_INIT;
    if (device == seq->gpu->device || !culvert__device_is_lost(device))
        return false;
    culvert__device_say_lost(device, "culvert_seq_copy", op->where, &err);
    culvert__seq_fail_with(seq, &err);
    return true;
}

bool culvert__peer_op_lost(culvert_seq *seq, const culvert__op *op)
{
    return fails_with(seq, op, op->u.copy.dst) || fails_with(seq, op, op->u.copy.src);
}

void culvert__peers_lost(culvert_seq *seq)
{
    for (const culvert__op *op = seq->ops; op != NULL && !seq->failed; op = op->next)
        if (op->kind == CULVERT__OP_COPY && culvert__peer_copies(op))
            (void)culvert__peer_op_lost(seq, op);
}
