/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies and fills: when sources are read, nothing to copy, bad arguments, pitches. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static uint32_t word_at(culvert__CUdeviceptr address)
{
    uint32_t *p = conf_pinned(4);
    struct CUstream_st *s = conf_stream();
    NEED(d->cuMemcpyDtoHAsync(p, address, 4, s));
    NEED(d->cuStreamSynchronize(s));
    return *p;
}

static void pinned_source(void)
{
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(4);
    volatile uint32_t *from = conf_pinned(4);
    *from = 1;
    struct spin spin = conf_spin(s);
    NEED(d->cuMemcpyHtoDAsync(to, (void *)from, 4, s));
    *from = 2;
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_range("what was copied", word_at(to), 2, 2);
}

static void registered_source(void)
{
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(4);
    volatile uint32_t *from = aligned_alloc(4096, 4096);
    NEED(d->cuMemHostRegister((void *)from, 4096, 0));
    *from = 1;
    struct spin spin = conf_spin(s);
    NEED(d->cuMemcpyHtoDAsync(to, (void *)from, 4, s));
    *from = 2;
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_range("what was copied", word_at(to), 2, 2);
    NEED(d->cuMemHostUnregister((void *)from));
    free((void *)from);
}

/* That touching registrations are not one is an assumption: the documentation speaks only of regions
 * that are registered in part. */
static void across_registrations(void)
{
    enum { PAGE = 4096 };
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr there = conf_device(PAGE);
    char *memory = aligned_alloc(PAGE, 3 * PAGE), *middle = memory + PAGE - 8;
    memset(memory, 0, 3 * PAGE);
    NEED(d->cuMemHostRegister(memory, PAGE, CULVERT__CU_MEMHOSTREGISTER_DEVICEMAP));
    NEED(d->cuMemHostRegister(memory + PAGE, PAGE, CULVERT__CU_MEMHOSTREGISTER_DEVICEMAP));
    conf_result("up to the end", d->cuMemcpyHtoDAsync(there, middle, 8, s), 0);
    conf_result("upload across", d->cuMemcpyHtoDAsync(there, middle, 16, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("download across", d->cuMemcpyDtoHAsync(middle, there, 16, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("fill up to the end", d->cuMemsetD8Async((uintptr_t)middle, 5, 8, s), 0);
    conf_result("fill across", d->cuMemsetD8Async((uintptr_t)middle, 6, 16, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("upload past the second", d->cuMemcpyHtoDAsync(there, memory + 2 * PAGE - 8, 16, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    NEED(d->cuStreamSynchronize(s));
    conf_range("the last byte", middle[7], 5, 5);
    NEED(d->cuMemHostUnregister(memory));
    NEED(d->cuMemHostUnregister(memory + PAGE));
    free(memory);
}

static void pageable_source(void)
{
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(4);
    volatile uint32_t from = 1;
    struct spin spin = conf_spin(s);
    NEED(d->cuMemcpyHtoDAsync(to, (void *)&from, 4, s));
    from = 2;
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_range("what was copied", word_at(to), 1, 1);
}

static void nothing_to_copy(void)
{
    struct CUstream_st *s = conf_stream();
    conf_result("cuMemcpyHtoDAsync", d->cuMemcpyHtoDAsync(0, NULL, 0, s), 0);
    conf_result("cuMemcpyDtoHAsync", d->cuMemcpyDtoHAsync(NULL, 0, 0, s), 0);
    conf_result("cuMemcpyDtoDAsync", d->cuMemcpyDtoDAsync(0, 0, 0, s), 0);
    conf_result("cuMemsetD8Async", d->cuMemsetD8Async(0, 1, 0, s), 0);
    conf_result("cuMemsetD32Async", d->cuMemsetD32Async(0, 1, 0, s), 0);
    culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE};
    conf_result("cuMemcpy2DAsync", d->cuMemcpy2DAsync(&c, s), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
}

static void unknown_addresses(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t here = 0;
    culvert__CUdeviceptr there = conf_device(16);
    conf_result("upload to a host address", d->cuMemcpyHtoDAsync((uintptr_t)&here, &here, 4, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("download from one", d->cuMemcpyDtoHAsync(&here, (uintptr_t)&here, 4, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("fill of one", d->cuMemsetD8Async((uintptr_t)&here, 0, 4, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("copy from nowhere", d->cuMemcpyDtoDAsync(there, 64, 4, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void past_the_end(void)
{
    struct CUstream_st *s = conf_stream();
    enum { BYTES = 2 * 1024 * 1024 }; /* the driver's own granularity */
    culvert__CUdeviceptr there = conf_device(BYTES);
    void *here = conf_pinned(2 * BYTES);
    conf_result("upload", d->cuMemcpyHtoDAsync(there, here, 2 * BYTES, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("fill", d->cuMemsetD8Async(there, 0, 2 * BYTES, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void fills(void)
{
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(16);
    conf_result("D32", d->cuMemsetD32Async(to, 0x01020304, 4, s), 0);
    conf_result("D16", d->cuMemsetD16Async(to + 4, 0xabcd, 1, s), 0);
    conf_result("D8", d->cuMemsetD8Async(to + 8, 0x7f, 3, s), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_range("word 0", word_at(to), 0x01020304, 0x01020304);
    conf_range("word 1", word_at(to + 4), 0x0102abcd, 0x0102abcd);
    conf_range("word 2", word_at(to + 8), 0x017f7f7f, 0x017f7f7f);
    conf_result("D32 at an odd address", d->cuMemsetD32Async(to + 2, 0, 1, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("D16 at an odd address", d->cuMemsetD16Async(to + 1, 0, 1, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void pitches(void)
{
    enum { W = 5, H = 3, PITCH = 512 };
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(PITCH * H);
    unsigned char *from = (unsigned char *)conf_pinned(W * H);
    unsigned char *back = (unsigned char *)conf_pinned(W * H);
    for (int i = 0; i < W * H; i++)
        from[i] = (unsigned char)(i + 1);
    culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                .srcHost = from,
                                .srcPitch = W,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .dstDevice = to,
                                .dstPitch = PITCH,
                                .WidthInBytes = W,
                                .Height = H};
    conf_result("up", d->cuMemcpy2DAsync(&c, s), 0);
    culvert__CUDA_MEMCPY2D b = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                .srcDevice = to,
                                .srcPitch = PITCH,
                                .dstMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                .dstHost = back,
                                .dstPitch = W,
                                .WidthInBytes = W,
                                .Height = H};
    conf_result("down", d->cuMemcpy2DAsync(&b, s), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_true("the same", memcmp(from, back, W * H) == 0);
    c.srcPitch = W - 1;
    conf_result("a pitch less than the width", d->cuMemcpy2DAsync(&c, s),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    memset(back, 0, W * H);
    NEED(d->cuMemsetD8Async(to, 0, PITCH * H, s));
    c.srcPitch = b.dstPitch = 0;
    conf_result("up, without a pitch", d->cuMemcpy2DAsync(&c, s), 0);
    conf_result("down, without a pitch", d->cuMemcpy2DAsync(&b, s), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_true("the pitch is the width", memcmp(from, back, W * H) == 0);
    c.srcPitch = W;
    c.Height = 0;
    conf_result("no rows", d->cuMemcpy2DAsync(&c, s), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
}

/* Pitches and widths that no cuMemAllocPitch would give, by device addresses on either side. */
static void odd_pitches(void)
{
    enum { W = 5, H = 7, FROM = 13, TO = 11, ROOM = 128 };
    struct CUstream_st *s = conf_stream();
    unsigned char *from = (unsigned char *)conf_pinned(ROOM);
    unsigned char *back = (unsigned char *)conf_pinned(ROOM);
    culvert__CUdeviceptr on_device = conf_device(ROOM), other = conf_device(ROOM);
    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i + 1);
    const culvert__CUdeviceptr path[] = {(uintptr_t)from, on_device, other, (uintptr_t)back,
                                         (uintptr_t)from};
    static const size_t pitch[] = {FROM, TO, FROM, TO, FROM};
    static const char *const names[] = {"up", "across", "down", "host to host"};
    for (int i = 0; i < 4; i++) {
        culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = path[i] + 1,
                                    .srcPitch = pitch[i],
                                    .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = path[i + 1] + 1,
                                    .dstPitch = pitch[i + 1],
                                    .WidthInBytes = W,
                                    .Height = H};
        conf_result(names[i], d->cuMemcpy2DAsync(&c, s), 0);
        NEED(d->cuStreamSynchronize(s));
        if (i == 2)
            memset(from, 0, ROOM);
    }
    bool same = true;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            same = same && from[1 + y * FROM + x] == 2 + y * FROM + x &&
                   back[1 + y * TO + x] == 2 + y * FROM + x;
    conf_true("the right bytes", same);
    conf_true("and no others", from[1 + W] == 0 && from[0] == 0);
}

static void batches(void)
{
    struct CUstream_st *s = conf_stream();
    culvert__CUdeviceptr to = conf_device(8);
    uint32_t *from = conf_pinned(8);
    if (!d->cuMemcpyBatchAsync) {
        conf_note("absent");
        return;
    }
    from[0] = 5;
    from[1] = 6;
    culvert__CUdeviceptr dsts[] = {to, to + 4};
    culvert__CUdeviceptr srcs[] = {(uintptr_t)&from[1], (uintptr_t)&from[0]};
    size_t sizes[] = {4, 4}, indices[] = {0}, failed = 0;
    culvert__CUmemcpyAttributes attributes[] = {
        {.srcAccessOrder = CULVERT__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
    conf_result("cuMemcpyBatchAsync",
                d->cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, indices, 1, &failed, s), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_range("word 0", word_at(to), 6, 6);
    conf_range("word 1", word_at(to + 4), 5, 5);
    conf_result("on the legacy stream",
                d->cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, indices, 1, &failed, NULL),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void values(void)
{
    struct CUstream_st *s = conf_stream(), *writer = conf_stream();
    culvert__CUdeviceptr word = conf_device(4);
    if (!d->cuStreamWaitValue32 || !d->cuStreamWriteValue32) {
        conf_note("absent");
        return;
    }
    NEED(d->cuMemsetD32Async(word, 0, 1, s));
    NEED(d->cuStreamSynchronize(s));
    conf_result("cuStreamWaitValue32", d->cuStreamWaitValue32(s, word, 5, 0), 0);
    conf_sleep(0.05);
    conf_result("cuStreamQuery", d->cuStreamQuery(s), CULVERT__CUDA_ERROR_NOT_READY);
    conf_result("cuStreamWriteValue32", d->cuStreamWriteValue32(writer, word, 6, 0), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
    conf_range("value", word_at(word), 6, 6);
    conf_result("at an odd address", d->cuStreamWriteValue32(writer, word + 2, 6, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

const struct row conf_copy_rows[] = {
    {"a pinned source is read when the copy runs", pinned_source, 0},
    {"so is a registered one", registered_source, 0},
    {"copies and fills across touching registrations", across_registrations, 0},
    {"a pageable source is read at the call (case 61)", pageable_source, 0},
    {"nothing to copy is success (case 91)", nothing_to_copy, 0},
    {"unknown addresses are refused", unknown_addresses, 0},
    {"copies and fills past the end are refused", past_the_end, 0},
    {"fills", fills, 0},
    {"pitched copies (case 96)", pitches, 0},
    {"odd pitches, by device addresses (case 96)", odd_pitches, 0},
    {"batches of copies", batches, 0},
    {"values in memory", values, 0},
    {0},
};
