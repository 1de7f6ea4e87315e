/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * proc.c: cuGetProcAddress, and the old entry points.
 *
 * A driver exports a function's first form under its plain name and later ones with _v2 and so on.
 * Code that takes the plain name where cuda.h means a later form gets a function of another
 * signature. Here those plain names end the process with a message.
 */
#include "sim/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLD(name)                                                                        \
    CULVERT_API void name(void);                                                         \
    void name(void)                                                                      \
    {                                                                                    \
        fprintf(stderr, "culvert-sim: %s is an old entry point of the driver\n", #name); \
        abort();                                                                         \
    }

OLD(cuDeviceGetUuid)
OLD(cuDeviceTotalMem)
OLD(cuDevicePrimaryCtxRelease)
OLD(cuDevicePrimaryCtxReset)
OLD(cuDevicePrimaryCtxSetFlags)
OLD(cuCtxPushCurrent)
OLD(cuCtxPopCurrent)
OLD(cuModuleGetGlobal)
OLD(cuStreamDestroy)
OLD(cuStreamBeginCapture)
OLD(cuStreamGetCaptureInfo)
OLD(cuStreamWriteValue32)
OLD(cuStreamWaitValue32)
OLD(cuEventDestroy)
OLD(cuMemGetInfo)
OLD(cuMemAlloc)
OLD(cuMemFree)
OLD(cuMemHostRegister)
OLD(cuMemHostGetDevicePointer)
OLD(cuMemcpyHtoD)
OLD(cuMemcpyDtoH)
OLD(cuMemcpyHtoDAsync)
OLD(cuMemcpyDtoHAsync)
OLD(cuMemcpyDtoDAsync)
OLD(cuMemcpy2DAsync)
OLD(cuGraphAddKernelNode)
OLD(cuGraphExecKernelNodeSetParams)
OLD(cuGetProcAddress)

static const int abis[] = {
#define X(name, abi, ask, need, symbol) abi,
#include "driver/driver.def"
#define X(name, abi, ask, need, symbol) abi,
#include "sim/extra.def"
    12000,
};

/* A function's address as a pointer to data: they have one representation where this runs. */
#define PUT(name, symbol)                      \
    if (function == culvert__SIM_##name) {     \
        culvert__FN_##name *address_ = symbol; \
        memcpy(pfn, &address_, sizeof *pfn);   \
        return;                                \
    }

static void address_of(int function, void **pfn)
{
#define X(name, abi, ask, need, symbol) PUT(name, symbol)
#include "driver/driver.def"
#define X(name, abi, ask, need, symbol) PUT(name, symbol)
#include "sim/extra.def"
    PUT(cuGetProcAddress, cuGetProcAddress_v2)
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                        culvert__CUdriverProcAddressQueryResult *found)
{
    CULVERT__SIM_ENTER(cuGetProcAddress);
    int status = CULVERT__CU_GET_PROC_ADDRESS_SUCCESS;
    if (!symbol || !pfn || flags > CULVERT__CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    int function = culvert__sim_function_find(symbol);
    if (function < 0 || culvert__sim_hidden((enum culvert__sim_function)function))
        status = CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    else if (version < abis[function])
        status = CULVERT__CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    else
        address_of(function, pfn);
    if (found)
        *found = status;
    return 0;
}
