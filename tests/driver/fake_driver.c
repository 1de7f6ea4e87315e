/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library that imitates so much of a CUDA driver as the loader sees, to be loaded in its place.
 * tests/driver/CMakeLists.txt builds it many times:
 *
 *   FAKE_VERSION=n      of cuDriverGetVersion; default 13000
 *   FAKE_RESULT=n       of cuDriverGetVersion and cuGetProcAddress: 34 makes a stub
 *   FAKE_INIT=n         of cuInit
 *   FAKE_COUNT=n        devices; default 2
 *   FAKE_COUNT_RESULT=n of cuDeviceGetCount
 *   FAKE_NO_GET         has no cuGetProcAddress_v2
 *   FAKE_NO_VERSION     has no cuDriverGetVersion
 *   FAKE_LACKS="a b"    these functions are missing; "*" all of them
 *   FAKE_VISIBLE        cuInit gives 100 unless CUDA_VISIBLE_DEVICES is unset, "0" or a MIG's name
 *   FAKE_SIMULATOR      exports culvert_sim_version
 *
 * While the variable FAKE_INIT_NOW is set, its number is what cuInit answers.
 *
 * As the real driver does, it has several ABIs of many functions: the plain name is the oldest one,
 * _v2 and _v3 came later, and cuGetProcAddress_v2 answers with the newest up to the version that it is
 * asked for. All but those that driver.def names abort when called.
 */
#define _GNU_SOURCE
#include "driver/abi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION 13000
#endif
#ifndef FAKE_RESULT
#define FAKE_RESULT 0
#endif
#ifndef FAKE_INIT
#define FAKE_INIT 0
#endif
#ifndef FAKE_COUNT
#define FAKE_COUNT 2
#endif
#ifndef FAKE_COUNT_RESULT
#define FAKE_COUNT_RESULT 0
#endif
#ifndef FAKE_LACKS
#define FAKE_LACKS ""
#endif

#define EXPORT __attribute__((visibility("default")))

/* ABIs that nobody may call: base name, version, exported as. */
#define WRONG_ABIS(X)                                                        \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid)                                \
    X(cuDeviceTotalMem, 2000, cuDeviceTotalMem)                              \
    X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease)            \
    X(cuCtxPushCurrent, 2000, cuCtxPushCurrent)                              \
    X(cuCtxPopCurrent, 2000, cuCtxPopCurrent)                                \
    X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2)                              \
    X(cuModuleGetGlobal, 2000, cuModuleGetGlobal)                            \
    X(cuStreamDestroy, 2000, cuStreamDestroy)                                \
    X(cuStreamGetCtx, 12050, cuStreamGetCtx_v2)                              \
    X(cuStreamBeginCapture, 10000, cuStreamBeginCapture)                     \
    X(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo)                 \
    X(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3)              \
    X(cuStreamWriteValue32, 8000, cuStreamWriteValue32)                      \
    X(cuStreamWaitValue32, 8000, cuStreamWaitValue32)                        \
    X(cuEventDestroy, 2000, cuEventDestroy)                                  \
    X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2)                      \
    X(cuMemGetInfo, 2000, cuMemGetInfo)                                      \
    X(cuMemAlloc, 2000, cuMemAlloc)                                          \
    X(cuMemFree, 2000, cuMemFree)                                            \
    X(cuMemHostRegister, 4000, cuMemHostRegister)                            \
    X(cuMemHostGetDevicePointer, 2020, cuMemHostGetDevicePointer)            \
    X(cuMemcpyHtoDAsync, 2000, cuMemcpyHtoDAsync)                            \
    X(cuMemcpyDtoHAsync, 2000, cuMemcpyDtoHAsync)                            \
    X(cuMemcpyDtoDAsync, 3000, cuMemcpyDtoDAsync)                            \
    X(cuMemcpy2DAsync, 2000, cuMemcpy2DAsync)                                \
    X(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode)                     \
    X(cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams) \
    X(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2)

#define X(name, abi, symbol)                                                                  \
    EXPORT void symbol(void);                                                                 \
    EXPORT void symbol(void)                                                                  \
    {                                                                                         \
        fprintf(stderr, "fake driver: " #symbol ", an ABI of another version, was called\n"); \
        abort();                                                                              \
    }
WRONG_ABIS(X)
#undef X

/* The right ones that tests call. */
EXPORT culvert__FN_cuInit cuInit;
EXPORT culvert__FN_cuDriverGetVersion cuDriverGetVersion;
EXPORT culvert__FN_cuDeviceGetCount cuDeviceGetCount;
EXPORT culvert__FN_cuGetErrorName cuGetErrorName;
EXPORT culvert__FN_cuGetErrorString cuGetErrorString;
EXPORT culvert__FN_cuMemAlloc cuMemAlloc_v2;
EXPORT culvert__FN_cuMemFree cuMemFree_v2;
EXPORT culvert__FN_cuStreamDestroy cuStreamDestroy_v2;
EXPORT culvert__FN_cuEventDestroy cuEventDestroy_v2;
EXPORT culvert__FN_cuCtxPushCurrent cuCtxPushCurrent_v2;
EXPORT culvert__FN_cuCtxPopCurrent cuCtxPopCurrent_v2;
EXPORT culvert__FN_cuGetProcAddress cuGetProcAddress_v2;

/* How often cuInit was called, of all threads, and what it saw of the environment. */
EXPORT int fake_init_calls(void);
EXPORT const char *fake_visible_devices(void);
static int init_calls;

int fake_init_calls(void)
{
    return __atomic_load_n(&init_calls, __ATOMIC_RELAXED);
}

const char *fake_visible_devices(void)
{
    return getenv("CUDA_VISIBLE_DEVICES");
}

culvert__CUresult cuInit(unsigned int flags)
{
    __atomic_add_fetch(&init_calls, 1, __ATOMIC_RELAXED);
    if (flags != 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    const char *now = getenv("FAKE_INIT_NOW");
    if (now != NULL)
        return atoi(now);
#ifdef FAKE_VISIBLE
    const char *visible = fake_visible_devices();
    if (visible != NULL && strcmp(visible, "0") != 0 && strncmp(visible, "MIG-", 4) != 0)
        return CULVERT__CUDA_ERROR_NO_DEVICE;
#endif
    return FAKE_INIT;
}

#ifndef FAKE_NO_VERSION
culvert__CUresult cuDriverGetVersion(int *version)
{
    if (FAKE_RESULT != 0)
        return FAKE_RESULT;
    *version = FAKE_VERSION;
    return CULVERT__CUDA_SUCCESS;
}
#endif

culvert__CUresult cuDeviceGetCount(int *count)
{
    *count = FAKE_COUNT;
    return FAKE_COUNT_RESULT;
}

culvert__CUresult cuGetErrorName(culvert__CUresult error, const char **text)
{
    *text = error == 777 ? "CUDA_ERROR_OF_THE_FUTURE" : NULL;
    return error == 777 ? CULVERT__CUDA_SUCCESS : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

culvert__CUresult cuGetErrorString(culvert__CUresult error, const char **text)
{
    *text = error == 777 ? "something new" : NULL;
    return error == 777 ? CULVERT__CUDA_SUCCESS : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

culvert__CUresult cuMemAlloc_v2(culvert__CUdeviceptr *address, size_t bytes)
{
    *address = 0x700000000000ULL + bytes;
    return CULVERT__CUDA_SUCCESS;
}

culvert__CUresult cuMemFree_v2(culvert__CUdeviceptr address)
{
    return address > 0xffffffffULL ? CULVERT__CUDA_SUCCESS : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

culvert__CUresult cuStreamDestroy_v2(culvert__CUstream stream)
{
    (void)stream;
    return CULVERT__CUDA_SUCCESS;
}

culvert__CUresult cuEventDestroy_v2(culvert__CUevent event)
{
    (void)event;
    return CULVERT__CUDA_SUCCESS;
}

culvert__CUresult cuCtxPushCurrent_v2(culvert__CUcontext ctx)
{
    (void)ctx;
    return CULVERT__CUDA_SUCCESS;
}

culvert__CUresult cuCtxPopCurrent_v2(culvert__CUcontext *ctx)
{
    *ctx = NULL;
    return CULVERT__CUDA_SUCCESS;
}

#ifdef FAKE_SIMULATOR
EXPORT int culvert_sim_version(void);
int culvert_sim_version(void)
{
    return 100;
}
#endif

#ifndef FAKE_NO_GET

/* Rows of driver.def that no test calls have one function for all: only its address is looked at. */
static void uncalled(void)
{
    fprintf(stderr, "fake driver: a function that has no imitation was called\n");
    abort();
}

typedef void any_function(void);

typedef struct abi_row {
    const char *name;
    int abi;
    any_function *wrong; /* else the right one: see right_address */
} abi_row;

static const abi_row abis[] = {
#define X(name, abi, symbol) {#name, abi, symbol},
    WRONG_ABIS(X)
#undef X
#define X(name, abi, ask, need, symbol) {#name, abi, NULL},
#include "driver/driver.def"
};

#define RIGHT(base, symbol)                          \
    if (strcmp(name, #base) == 0) {                  \
        culvert__PFN_##base function = symbol;       \
        memcpy(&address, &function, sizeof address); \
    }

static void *right_address(const char *name)
{
    any_function *other = uncalled;
    void *address;
    memcpy(&address, &other, sizeof address);
#ifndef FAKE_NO_VERSION
    RIGHT(cuDriverGetVersion, cuDriverGetVersion)
#endif
    RIGHT(cuInit, cuInit)
    RIGHT(cuDeviceGetCount, cuDeviceGetCount)
    RIGHT(cuGetErrorName, cuGetErrorName)
    RIGHT(cuGetErrorString, cuGetErrorString)
    RIGHT(cuMemAlloc, cuMemAlloc_v2)
    RIGHT(cuMemFree, cuMemFree_v2)
    RIGHT(cuStreamDestroy, cuStreamDestroy_v2)
    RIGHT(cuEventDestroy, cuEventDestroy_v2)
    RIGHT(cuCtxPushCurrent, cuCtxPushCurrent_v2)
    RIGHT(cuCtxPopCurrent, cuCtxPopCurrent_v2)
    return address;
}

/* Whether a word is in a list of words. */
static bool lists(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

culvert__CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                                      culvert__CUdriverProcAddressQueryResult *found)
{
    if (FAKE_RESULT != 0)
        return FAKE_RESULT;
    *pfn = NULL;
    *found = CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (flags != CULVERT__CU_GET_PROC_ADDRESS_LEGACY_STREAM)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (strcmp(FAKE_LACKS, "*") == 0 || lists(FAKE_LACKS, symbol))
        return CULVERT__CUDA_ERROR_NOT_FOUND;

    const abi_row *best = NULL;
    for (size_t i = 0; i < sizeof abis / sizeof abis[0]; i++) {
        const abi_row *row = &abis[i];
        if (strcmp(row->name, symbol) != 0 || row->abi > FAKE_VERSION)
            continue;
        *found = CULVERT__CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (row->abi <= version && (best == NULL || row->abi > best->abi))
            best = row;
    }
    if (best == NULL)
        return CULVERT__CUDA_ERROR_NOT_FOUND;
    *found = CULVERT__CU_GET_PROC_ADDRESS_SUCCESS;
    if (best->wrong != NULL)
        memcpy(pfn, &best->wrong, sizeof *pfn);
    else
        *pfn = right_address(symbol);
    return CULVERT__CUDA_SUCCESS;
}

#endif
