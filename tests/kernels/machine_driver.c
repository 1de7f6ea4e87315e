/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels run by a driver: the one that CULVERT_DRIVER names. */
#include "driver/table.h"
#include "kernels/machine.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODULES 8

struct machine {
    const culvert__driver *d;
    culvert__CUdevice device;
    culvert__CUcontext context;
    culvert__CUstream stream;
    struct {
        const culvert_image *image;
        culvert__CUmodule module;
    } modules[MAX_MODULES];
    const culvert_image *last_image; /* where `last` comes from: once a launch failed, */
    const char *last_name;           /* no function can be looked up any more */
    culvert__CUfunction last;
};

#define OK(call) ck_assert_int_eq((call), 0)

machine *machine_open(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    machine *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    m->d = culvert__driver_open(NULL, &err);
    ck_assert_msg(m->d != NULL, "%s", err.message);
    OK(m->d->cuDeviceGet(&m->device, 0));
    OK(m->d->cuDevicePrimaryCtxRetain(&m->context, m->device));
    OK(m->d->cuCtxSetCurrent(m->context));
    OK(m->d->cuStreamCreateWithPriority(&m->stream, 1 /* non-blocking */, 0));
    return m;
}

void machine_close(machine *m)
{
    for (int i = 0; i < MAX_MODULES && m->modules[i].image; i++) {
        OK(m->d->cuModuleUnload(m->modules[i].module));
    }
    OK(m->d->cuStreamDestroy(m->stream));
    OK(m->d->cuCtxSetCurrent(NULL));
    OK(m->d->cuDevicePrimaryCtxRelease(m->device));
    free(m);
}

uint64_t machine_alloc(machine *m, size_t bytes)
{
    culvert__CUdeviceptr p = 0;
    OK(m->d->cuMemAlloc(&p, bytes ? bytes : 1));
    OK(m->d->cuMemsetD8Async(p, 0xcd, bytes ? bytes : 1, m->stream));
    OK(m->d->cuStreamSynchronize(m->stream));
    return p;
}

void machine_free(machine *m, uint64_t address)
{
    OK(m->d->cuMemFree(address));
}

void machine_put(machine *m, uint64_t to, const void *from, size_t bytes)
{
    OK(m->d->cuMemcpyHtoDAsync(to, from, bytes, m->stream));
    OK(m->d->cuStreamSynchronize(m->stream));
}

void machine_get(machine *m, void *to, uint64_t from, size_t bytes)
{
    OK(m->d->cuMemcpyDtoHAsync(to, from, bytes, m->stream));
    OK(m->d->cuStreamSynchronize(m->stream));
}

static culvert__CUmodule module_of(machine *m, const culvert_image *image)
{
    int i = 0;
    while (i < MAX_MODULES && m->modules[i].image && m->modules[i].image != image) {
        i++;
    }
    ck_assert_int_lt(i, MAX_MODULES);
    if (!m->modules[i].image) {
        const void *code = m->d->simulated ? image->sim_module : image->fatbin;
        ck_assert_msg(code != NULL, "%s was not built for this driver", image->name);
        OK(m->d->cuModuleLoadDataEx(&m->modules[i].module, code, 0, NULL, NULL));
        m->modules[i].image = image;
    }
    return m->modules[i].module;
}

static culvert__CUfunction function_of(machine *m, const culvert_image *image, const char *name)
{
    if (m->last_image != image || strcmp(m->last_name, name) != 0) {
        OK(m->d->cuModuleGetFunction(&m->last, module_of(m, image), name));
        m->last_image = image;
        m->last_name = name;
    }
    return m->last;
}

uint64_t machine_global(machine *m, const culvert_image *image, const char *name, size_t *bytes)
{
    culvert__CUdeviceptr p = 0;
    OK(m->d->cuModuleGetGlobal(&p, bytes, module_of(m, image), name));
    return p;
}

static unsigned or_one(unsigned n)
{
    return n ? n : 1;
}

int machine_run(machine *m, const struct machine_launch *l, void **params)
{
    culvert__CUfunction f = function_of(m, l->image, l->kernel);
    int result = m->d->cuLaunchKernel(f, or_one(l->grid[0]), or_one(l->grid[1]), or_one(l->grid[2]),
                                      or_one(l->block[0]), or_one(l->block[1]), or_one(l->block[2]),
                                      l->shared_bytes, m->stream, params, NULL);
    return result ? result : m->d->cuStreamSynchronize(m->stream);
}

int machine_param(machine *m, const culvert_image *image, const char *kernel, size_t i,
                  size_t *offset, size_t *bytes)
{
    if (!m->d->cuFuncGetParamInfo) {
        return -1;
    }
    return m->d->cuFuncGetParamInfo(function_of(m, image, kernel), i, offset, bytes) == 0;
}
