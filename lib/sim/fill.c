/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.c: fills of memory with a pattern of 1, 2 or 4 bytes, and single values in stream order.
 */
#include "sim/copy.h"

int culvert__sim_fill_check(const struct sim_fill_work *f)
{
    struct sim_access access;
    size_t row = f->width * f->element;
    if ((f->element != 1 && f->element != 2 && f->element != 4) ||
        (uintptr_t)f->dst % f->element != 0 || (f->height > 1 && f->pitch < row))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    return culvert__sim_access((uintptr_t)f->dst, (f->height - 1) * f->pitch + row, SIM_SIDE_DEVICE,
                               &access);
}

static int fill(culvert__CUdeviceptr dst, uint32_t value, unsigned element, size_t count,
                culvert__CUstream handle, enum culvert__sim_function call)
{
    struct CUstream_st *s;
    struct sim_fill_work f = {.dst = (char *)(uintptr_t)dst,
                              .width = count,
                              .height = 1,
                              .value = value,
                              .element = element};
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_CURRENT_OR_NONE, &s);
    if (result == 0 && count > 0) {
        result = culvert__sim_fill_check(&f);
        if (result == 0) {
            struct sim_op *op = culvert__sim_op_new(SIM_FILL, call);
            op->work.u.fill = f;
            result = culvert__sim_submit(s, op);
        }
    }
    culvert__sim_unlock();
    return result;
}

int cuMemsetD8Async(culvert__CUdeviceptr dst, unsigned char value, size_t count,
                    culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemsetD8Async);
    return fill(dst, value, 1, count, stream, culvert__SIM_cuMemsetD8Async);
}

int cuMemsetD16Async(culvert__CUdeviceptr dst, unsigned short value, size_t count,
                     culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemsetD16Async);
    return fill(dst, value, 2, count, stream, culvert__SIM_cuMemsetD16Async);
}

int cuMemsetD32Async(culvert__CUdeviceptr dst, unsigned int value, size_t count,
                     culvert__CUstream stream)
{
    CULVERT__SIM_ENTER(cuMemsetD32Async);
    return fill(dst, value, 4, count, stream, culvert__SIM_cuMemsetD32Async);
}

static int value_op(enum sim_work_kind kind, enum culvert__sim_function call,
                    culvert__CUstream handle, culvert__CUdeviceptr address, uint32_t value,
                    unsigned flags)
{
    struct CUstream_st *s;
    struct sim_access access;
    if (address % 4 != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_capture_conflict(s);
    if (result == 0)
        result = culvert__sim_access(address, 4, SIM_SIDE_DEVICE, &access);
    if (result == 0) {
        struct sim_op *op = culvert__sim_op_new(kind, call);
        op->work.u.value = (struct sim_value_work){(uint32_t *)(uintptr_t)address, value, flags};
        result = culvert__sim_enqueue(s, op);
    }
    culvert__sim_unlock();
    return result;
}

int cuStreamWriteValue32_v2(culvert__CUstream stream, culvert__CUdeviceptr address, uint32_t value,
                            unsigned int flags)
{
    CULVERT__SIM_ENTER(cuStreamWriteValue32);
    return value_op(SIM_WRITE_VALUE, culvert__SIM_cuStreamWriteValue32, stream, address, value,
                    flags);
}

int cuStreamWaitValue32_v2(culvert__CUstream stream, culvert__CUdeviceptr address, uint32_t value,
                           unsigned int flags)
{
    CULVERT__SIM_ENTER(cuStreamWaitValue32);
    return value_op(SIM_WAIT_VALUE, culvert__SIM_cuStreamWaitValue32, stream, address, value,
                    flags);
}
