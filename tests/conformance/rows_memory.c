/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocation, registration, and what the driver says of addresses. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static void sizes_of_zero(void)
{
    culvert__CUdeviceptr address = 0;
    void *p = &address;
    conf_result("cuMemAlloc(0)", d->cuMemAlloc(&address, 0), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemHostAlloc(0)", d->cuMemHostAlloc(&p, 0, 0), 0);
    conf_note(p == NULL ? "gives NULL" : p == &address ? "leaves the pointer" : "gives memory");
    conf_result("cuMemHostRegister(0)", d->cuMemHostRegister(&address, 0, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemHostRegister(NULL)", d->cuMemHostRegister(NULL, 4096, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemFree(0)", d->cuMemFree(0), 0);
    conf_result("cuMemFreeHost(NULL)", d->cuMemFreeHost(NULL), 0);
}

static void registration(void)
{
    enum { PAGE = 4096 };
    char *memory = aligned_alloc(PAGE, 4 * PAGE);
    memset(memory, 0, 4 * PAGE);
    conf_result("a page", d->cuMemHostRegister(memory + PAGE, PAGE, 0), 0);
    conf_result("the same again", d->cuMemHostRegister(memory + PAGE, PAGE, 0),
                CULVERT__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    conf_result("inside it", d->cuMemHostRegister(memory + PAGE + 900, 100, 0),
                CULVERT__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    conf_result("around it", d->cuMemHostRegister(memory, 4 * PAGE, 0),
                CULVERT__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    conf_result("100 bytes, unaligned", d->cuMemHostRegister(memory + 2 * PAGE + 12, 100, 0), 0);
    conf_result("unregister inside", d->cuMemHostUnregister(memory + PAGE + 8),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("unregister ordinary memory", d->cuMemHostUnregister(memory),
                CULVERT__CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    conf_result("unregister NULL", d->cuMemHostUnregister(NULL), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("unregister", d->cuMemHostUnregister(memory + PAGE), 0);
    conf_result("unregister again", d->cuMemHostUnregister(memory + PAGE),
                CULVERT__CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    conf_result("its neighbour on the page", d->cuMemHostRegister(memory + 2 * PAGE + 112, 100, 0),
                0);
    conf_result("unregister it", d->cuMemHostUnregister(memory + 2 * PAGE + 112), 0);
    conf_result("unregister the unaligned", d->cuMemHostUnregister(memory + 2 * PAGE + 12), 0);
    free(memory);
}

static void registration_of_pinned(void)
{
    void *p = conf_pinned(8192);
    conf_result("register", d->cuMemHostRegister(p, 8192, 0), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("unregister", d->cuMemHostUnregister(p), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("free", d->cuMemFreeHost(p), 0);
}

static void wrong_frees(void)
{
    culvert__CUdeviceptr address = conf_device(4 << 20);
    void *p = conf_pinned(8192);
    uint32_t here = 0;
    conf_result("cuMemFree inside", d->cuMemFree(address + 512), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemFree of pinned memory", d->cuMemFree((uintptr_t)p),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemFreeHost of ordinary memory", d->cuMemFreeHost(&here),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemFreeHost inside", d->cuMemFreeHost((char *)p + 64),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuMemFree", d->cuMemFree(address), 0);
    conf_result("cuMemFree again", d->cuMemFree(address), CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void too_much(void)
{
    culvert__CUdeviceptr address;
    size_t free_bytes = 0, total = 0;
    conf_result("cuMemGetInfo", d->cuMemGetInfo(&free_bytes, &total), 0);
    conf_true("free is less than total", free_bytes <= total && total > 0);
    conf_result("cuMemAlloc of a petabyte", d->cuMemAlloc(&address, (size_t)1 << 50),
                CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    conf_result("cuMemAlloc(SIZE_MAX)", d->cuMemAlloc(&address, SIZE_MAX),
                CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    conf_result("the device goes on", d->cuMemAlloc(&address, 1024), 0);
}

static void alignment(void)
{
    bool aligned = true;
    for (int i = 0; i < 8; i++)
        aligned = aligned && conf_device(100) % 256 == 0;
    conf_true("device memory is aligned to 256 bytes", aligned);
}

static void device_pointers(void)
{
    void *p = conf_pinned(4096);
    culvert__CUdeviceptr mapped = 0;
    uint32_t here;
    conf_result("of pinned memory", d->cuMemHostGetDevicePointer(&mapped, p, 0), 0);
    conf_true("is the same address", mapped == (uintptr_t)p);
    conf_result("of ordinary memory", d->cuMemHostGetDevicePointer(&mapped, &here, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void attributes(void)
{
    culvert__CUdeviceptr address = conf_device(1000), start = 0;
    void *p = conf_pinned(4096);
    uint32_t here;
    int type = 0, ordinal = -1;
    size_t bytes = 0;
    struct CUctx_st *ctx = NULL;
    conf_result("type of device memory",
                d->cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
                0);
    conf_range("type", type, CULVERT__CU_MEMORYTYPE_DEVICE, CULVERT__CU_MEMORYTYPE_DEVICE);
    conf_result("type of pinned memory",
                d->cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         (uintptr_t)p),
                0);
    conf_range("type", type, CULVERT__CU_MEMORYTYPE_HOST, CULVERT__CU_MEMORYTYPE_HOST);
    conf_result("type of ordinary memory",
                d->cuPointerGetAttribute(&type, CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         (uintptr_t)&here),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("context",
                d->cuPointerGetAttribute(&ctx, CULVERT__CU_POINTER_ATTRIBUTE_CONTEXT, address), 0);
    conf_true("is this one", ctx == conf_context);
    conf_result("ordinal",
                d->cuPointerGetAttribute(&ordinal, CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                         address),
                0);
    conf_range("ordinal", ordinal, 0, 0);
    conf_result("start",
                d->cuPointerGetAttribute(&start, CULVERT__CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                         address + 7),
                0);
    conf_true("is the allocation's", start == address);
    conf_result("size",
                d->cuPointerGetAttribute(&bytes, CULVERT__CU_POINTER_ATTRIBUTE_RANGE_SIZE, address),
                0);
    conf_range("size", (long long)bytes, 1000, 1000);
}

static void many_attributes(void)
{
    uint32_t here;
    int type = 7, ordinal = 7;
    void *host = NULL;
    culvert__CUpointer_attribute which[] = {CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            CULVERT__CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&type, &ordinal, &host};
    conf_result("of ordinary memory", d->cuPointerGetAttributes(3, which, data, (uintptr_t)&here),
                0);
    conf_range("type", type, 0, 0);
    conf_range("ordinal", ordinal, -2, -2);
    conf_true("the host pointer is the pointer itself", host == &here);
}

static void attributes_of(culvert__CUdeviceptr address, int type, void *host)
{
    int is = 7, ordinal = 7, managed = 7;
    struct CUctx_st *ctx = NULL;
    void *pointer = &is;
    culvert__CUdeviceptr device = 7;
    culvert__CUpointer_attribute which[] = {CULVERT__CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            CULVERT__CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                            CULVERT__CU_POINTER_ATTRIBUTE_CONTEXT,
                                            CULVERT__CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                            CULVERT__CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *data[] = {&is, &ordinal, &managed, &ctx, &device, &pointer};
    conf_result("cuPointerGetAttributes", d->cuPointerGetAttributes(6, which, data, address), 0);
    conf_range("type", is, type, type);
    conf_range("ordinal", ordinal, type ? 0 : -2, type ? 0 : -2);
    conf_range("managed", managed, 0, 0);
    conf_true("context", ctx == (type ? conf_context : NULL));
    conf_true("device pointer", device == (type ? address : 0));
    conf_true("host pointer", pointer == host);
}

static void kinds_of_memory(void)
{
    char *memory = aligned_alloc(4096, 4096), *pinned = (char *)conf_pinned(4096);
    conf_note("device");
    attributes_of(conf_device(4096) + 8, CULVERT__CU_MEMORYTYPE_DEVICE, NULL);
    conf_note("pinned");
    attributes_of((uintptr_t)(pinned + 8), CULVERT__CU_MEMORYTYPE_HOST, pinned + 8);
    conf_note("ordinary");
    attributes_of((uintptr_t)(memory + 8), 0, memory + 8);
    NEED(d->cuMemHostRegister(memory, 4096, CULVERT__CU_MEMHOSTREGISTER_DEVICEMAP));
    conf_note("registered");
    attributes_of((uintptr_t)(memory + 8), CULVERT__CU_MEMORYTYPE_HOST, memory + 8);
    NEED(d->cuMemHostUnregister(memory));
    free(memory);
}

static void pools(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUmemPoolHandle_st *pool;
    culvert__CUmemPoolProps props = {.allocType = CULVERT__CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CULVERT__CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    culvert__CUdeviceptr a = 7, b = 0;
    uint64_t threshold = 1, used = 1;
    if (!d->cuMemPoolCreate || !d->cuMemAllocFromPoolAsync) {
        conf_note("absent");
        return;
    }
    conf_result("cuMemPoolCreate", d->cuMemPoolCreate(&pool, &props), 0);
    NEED(d->cuMemPoolGetAttribute(pool, CULVERT__CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    conf_range("threshold", (long long)threshold, 0, 0);
    conf_result("zero bytes", d->cuMemAllocFromPoolAsync(&a, 0, pool, s), 0);
    conf_true("have the address 0", a == 0);
    conf_result("free them", d->cuMemFreeAsync(a, s), 0);
    conf_result("allocate", d->cuMemAllocFromPoolAsync(&a, 1 << 20, pool, s), 0);
    struct spin spin = conf_spin(s);
    conf_result("free behind a kernel", d->cuMemFreeAsync(a, s), 0);
    conf_result("allocate behind it", d->cuMemAllocFromPoolAsync(&b, 1 << 20, pool, s), 0);
    conf_result("free", d->cuMemFreeAsync(b, s), 0);
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    NEED(d->cuMemPoolGetAttribute(pool, CULVERT__CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    conf_range("used", (long long)used, 0, 0);
    conf_result("cuMemPoolDestroy", d->cuMemPoolDestroy(pool), 0);
}

const struct row conf_memory_rows[] = {
    {"sizes of zero and NULL (case 52)", sizes_of_zero, 0},
    {"registering twice, inside, unaligned (case 52)", registration, 0},
    {"registering and unregistering pinned memory (case 52)", registration_of_pinned, 0},
    {"frees of what is not to be freed", wrong_frees, 0},
    {"more memory than there is", too_much, 0},
    {"alignment of device memory", alignment, 0},
    {"device addresses of pinned memory", device_pointers, 0},
    {"attributes of addresses", attributes, 0},
    {"several attributes at once", many_attributes, 0},
    {"attributes of each kind of memory at once", kinds_of_memory, 0},
    {"memory pools", pools, 0},
    {0},
};
