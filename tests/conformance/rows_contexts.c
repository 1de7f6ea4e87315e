/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts, the table of functions, processes. */
#define _POSIX_C_SOURCE 200809L
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void primary_context(void)
{
    unsigned flags = 99;
    int active = 99;
    struct CUctx_st *ctx = NULL, *again = NULL;
    conf_result("state", d->cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    conf_range("active", active, 0, 0);
    conf_result("release", d->cuDevicePrimaryCtxRelease(0), CULVERT__CUDA_ERROR_INVALID_CONTEXT);
    conf_result("retain", d->cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    conf_result("retain again", d->cuDevicePrimaryCtxRetain(&again, 0), 0);
    conf_true("is the same", ctx == again);
    NEED(d->cuDevicePrimaryCtxGetState(0, &flags, &active));
    conf_range("active", active, 1, 1);
    conf_result("release", d->cuDevicePrimaryCtxRelease(0), 0);
    NEED(d->cuDevicePrimaryCtxGetState(0, &flags, &active));
    conf_range("active", active, 1, 1);
    conf_result("release", d->cuDevicePrimaryCtxRelease(0), 0);
    NEED(d->cuDevicePrimaryCtxGetState(0, &flags, &active));
    conf_range("active", active, 0, 0);
    conf_result("no such device", d->cuDevicePrimaryCtxRetain(&ctx, 99),
                CULVERT__CUDA_ERROR_INVALID_DEVICE);
}

static void stack(void)
{
    struct CUctx_st *ctx = NULL;
    culvert__CUdevice device = -1;
    conf_result("push", d->cuCtxPushCurrent(conf_context), 0);
    conf_result("pop", d->cuCtxPopCurrent(&ctx), 0);
    conf_true("gives it", ctx == conf_context);
    conf_result("get", d->cuCtxGetCurrent(&ctx), 0);
    conf_true("the one below is current", ctx == conf_context);
    conf_result("device", d->cuCtxGetDevice(&device), 0);
    conf_range("device", device, 0, 0);
    conf_result("set NULL", d->cuCtxSetCurrent(NULL), 0);
    conf_result("get", d->cuCtxGetCurrent(&ctx), 0);
    conf_true("none", ctx == NULL);
    conf_result("device without one", d->cuCtxGetDevice(&device),
                CULVERT__CUDA_ERROR_INVALID_CONTEXT);
    conf_result("pop without one", d->cuCtxPopCurrent(&ctx), CULVERT__CUDA_ERROR_INVALID_CONTEXT);
    conf_result("push NULL", d->cuCtxPushCurrent(NULL), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("set", d->cuCtxSetCurrent(conf_context), 0);
}

static int another_threads(void *unused)
{
    struct CUctx_st *ctx = conf_context;
    (void)unused;
    d->cuCtxSetCurrent(NULL);
    return d->cuCtxGetCurrent(&ctx) == 0 && ctx == NULL ? 0 : 1;
}

static void is_the_threads(void)
{
    struct CUctx_st *ctx = NULL;
    conf_result("another thread has none", conf_join(conf_async(another_threads, NULL)), 0);
    NEED(d->cuCtxGetCurrent(&ctx));
    conf_true("this one has its own", ctx == conf_context);
}

static void identity(void)
{
    unsigned long long id = 0, same = 1;
    conf_result("cuCtxGetId", d->cuCtxGetId(conf_context, &id), 0);
    conf_result("of the current one", d->cuCtxGetId(NULL, &same), 0);
    conf_true("the same", id == same);
}

static void devices(void)
{
    int n = 0, value = 0;
    char name[256] = "", small[4], id[32] = "";
    conf_result("count", d->cuDeviceGetCount(&n), 0);
    conf_range("devices", n, 1, 1000);
    conf_result("name", d->cuDeviceGetName(name, sizeof name, 0), 0);
    conf_note("%s", name);
    conf_result("PCI id", d->cuDeviceGetPCIBusId(id, sizeof id, 0), 0);
    conf_note("%s", id);
    conf_result("PCI id, no room", d->cuDeviceGetPCIBusId(small, sizeof small, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("no such device", d->cuDeviceGet(&value, n), CULVERT__CUDA_ERROR_INVALID_DEVICE);
    conf_result("no such attribute", d->cuDeviceGetAttribute(&value, 100000, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("no such device's attribute", d->cuDeviceGetAttribute(&value, 1, 99),
                CULVERT__CUDA_ERROR_INVALID_DEVICE);
}

static void errors(void)
{
    const char *text = NULL;
    conf_result("name", d->cuGetErrorName(700, &text), 0);
    conf_true("CUDA_ERROR_ILLEGAL_ADDRESS",
              text && strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
    conf_result("unknown", d->cuGetErrorName(12345, &text), CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_true("gives NULL", text == NULL);
}

const struct row conf_context_rows[] = {
    {"the primary context is active from the first retain to the last release", primary_context,
     CONF_BARE},
    {"the stack of contexts", stack, 0},
    {"the current context is the thread's own (case 58)", is_the_threads, 0},
    {"ids of contexts", identity, 0},
    {"devices", devices, CONF_BARE},
    {"names of errors", errors, CONF_BARE},
    {0},
};

/* Processes. */

static void after_fork(void)
{
    struct CUevent_st *e = conf_event();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int n;
        int result = d->cuInit(0);
        if (result == 0)
            result = d->cuDeviceGetCount(&n);
        if (result == 0)
            result = d->cuEventQuery(e);
        _exit(result);
    }
    int status = -1;
    waitpid(child, &status, 0);
    conf_true("the child ended by itself", WIFEXITED(status));
    conf_result("in the child", WEXITSTATUS(status), CULVERT__CUDA_ERROR_NOT_INITIALIZED);
    conf_result("in the parent", d->cuEventQuery(e), 0);
}

static void exit_behind_a_kernel(void)
{
    conf_spin(conf_stream()); /* for 20 seconds, unless the exit ends it */
    alarm(10);                /* a signal would fail the row */
}

static void absent_function(void)
{
    void *pfn = &pfn;
    int found = -1;
    culvert__PFN_cuGetProcAddress get = NULL;
    void *symbol = conf_symbol("cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get);
    conf_result("an absent name", get("cuNoSuchFunction", &pfn, 12000, 0, &found), 0);
    conf_true("gives NULL", pfn == NULL);
    conf_range("status", found, CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
               CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    conf_result("a name with its version", get("cuMemAlloc_v2", &pfn, 12000, 0, &found), 0);
    conf_true("gives NULL", pfn == NULL);
    conf_result("an old version", get("cuFuncLoad", &pfn, 12000, 0, &found), 0);
    conf_range("status", found, CULVERT__CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
               CULVERT__CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

const struct row conf_process_rows[] = {
    {"after fork the child cannot use the driver", after_fork, 0},
    {"a process may exit behind a running kernel", exit_behind_a_kernel, 0},
    {"functions that cuGetProcAddress does not find", absent_function, 0},
    {0},
};
