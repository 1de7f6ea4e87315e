/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A green context, that is a part of the device's multiprocessors, given to Culvert: what is submitted
 * runs on those. The program makes the context and destroys it, after everything of Culvert's is gone.
 *
 * libcuda is not linked: the functions are asked for as of CUDA 12.4, the first that has them. A driver
 * or a device without ends the program with 77.
 */
#include "program.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "saxpy.culvert.h"

enum { N = 1 << 20, BYTES = N * sizeof(float), WANTED = 16, SINCE = 12040, EXIT_WITHOUT = 77 };

static const char usage[] =
    "usage: with-green-context [--device N]\n"
    "\n"
    "Runs a kernel in a green context of some 16 multiprocessors, and compares.\n";

typedef struct driver {
    PFN_cuInit_v2000 init;
    PFN_cuDeviceGet_v2000 device_get;
    PFN_cuDeviceGetDevResource_v12040 resource;
    PFN_cuDevSmResourceSplitByCount_v12040 split;
    PFN_cuDevResourceGenerateDesc_v12040 describe;
    PFN_cuGreenCtxCreate_v12040 create;
    PFN_cuCtxFromGreenCtx_v12040 convert;
    PFN_cuGreenCtxDestroy_v12040 destroy;
} driver;

static float x[N], y[N];

_Static_assert(sizeof(void *) == sizeof(PFN_cuInit_v2000), "what dlsym returns is copied");

/* Returns 0, or -1 where the driver is not there or too old. */
static int find_functions(driver *d)
{
    const struct {
        const char *name;
        void *function;
    } rows[] = {{"cuInit", &d->init},
                {"cuDeviceGet", &d->device_get},
                {"cuDeviceGetDevResource", &d->resource},
                {"cuDevSmResourceSplitByCount", &d->split},
                {"cuDevResourceGenerateDesc", &d->describe},
                {"cuGreenCtxCreate", &d->create},
                {"cuCtxFromGreenCtx", &d->convert},
                {"cuGreenCtxDestroy", &d->destroy}};
    PFN_cuGetProcAddress_v12000 look_up;
    void *library = dlopen("libcuda.so.1", RTLD_NOW); /* stays open, as Culvert's does */
    void *address = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (address == NULL)
        return -1;
    memcpy(&look_up, &address, sizeof look_up);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (look_up(rows[i].name, &address, SINCE, CU_GET_PROC_ADDRESS_DEFAULT, NULL) !=
                CUDA_SUCCESS ||
            address == NULL)
            return -1;
        memcpy(rows[i].function, &address, sizeof address);
    }
    return 0;
}

/* Start-up: it may block. NULL after it printed which call failed; *status is the exit status then. */
static CUgreenCtx make_context(const driver *d, int ordinal, CUcontext *context, int *status)
{
    CUdevice device;
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx green = NULL;
    unsigned groups = 1;
    const char *call = "cuInit";
    CUresult r = d->init(0);
    if (r == CUDA_SUCCESS)
        call = "cuDeviceGet", r = d->device_get(&device, ordinal);
    if (r == CUDA_SUCCESS)
        call = "cuDeviceGetDevResource", r = d->resource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (r == CUDA_SUCCESS)
        call = "cuDevSmResourceSplitByCount", r = d->split(&part, &groups, &all, NULL, 0, WANTED);
    if (r == CUDA_SUCCESS)
        call = "cuDevResourceGenerateDesc", r = d->describe(&desc, &part, 1);
    if (r == CUDA_SUCCESS)
        call = "cuGreenCtxCreate", r = d->create(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (r == CUDA_SUCCESS)
        call = "cuCtxFromGreenCtx", r = d->convert(context, green);
    if (r == CUDA_SUCCESS) {
        printf("green context: %u of %u multiprocessors\n", part.sm.smCount, all.sm.smCount);
        return green;
    }
    fprintf(stderr, "with-green-context: %s failed with %d\n", call, (int)r);
    *status = r == CUDA_ERROR_NOT_SUPPORTED ? EXIT_WITHOUT : EXIT_FAILED;
    if (green != NULL)
        (void)d->destroy(green);
    return NULL;
}

static int open_in(program *p, CUcontext context)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.context = context;
    p->gpu_options = &options;
    int r = program_open(p, &culvert_image_saxpy);
    p->gpu_options = NULL;
    return r;
}

static int right(void)
{
    for (int i = 0; i < N; i++)
        if (y[i] != 2.0f * x[i] + 1.0f)
            return 0;
    return 1;
}

static void run(program *p)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *dx = NULL, *dy = NULL;
    culvert_kernel *saxpy = program_kernel(p, "saxpy");
    if (saxpy == NULL)
        return;
    culvert_stream *stream = culvert_stream_new(p->gpu, NULL, &err);
    if (stream == NULL || (dx = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL ||
        (dy = culvert_buffer_new(p->gpu, BYTES, &err)) == NULL) {
        program_fail(p, &err);
    } else {
        culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};
        culvert_seq *seq = culvert_seq_begin(stream);
        culvert_seq_upload(seq, dx, 0, x, BYTES);
        culvert_seq_upload(seq, dy, 0, y, BYTES);
        culvert_seq_launch(seq, saxpy, &grid,
                           CULVERT_ARGS(CULVERT_U32(N), CULVERT_F32(2.0f), CULVERT_BUFFER(dx),
                                        CULVERT_BUFFER(dy)));
        culvert_seq_download(seq, y, dy, 0, BYTES);
        culvert_future *done = culvert_seq_submit(seq);
        if (culvert_await(done, INFINITY) != CULVERT_OK) {
            program_fail(p, culvert_get_error(done));
        } else {
            int ok = right();
            printf("green context: %d results are %s\n", N, ok ? "right" : "wrong");
            p->status = ok ? p->status : EXIT_FAILED;
        }
        culvert_unref(done);
    }
    culvert_buffer_unref(dy);
    culvert_buffer_unref(dx);
    culvert_stream_unref(stream);
}

int main(int argc, char **argv)
{
    program p = {.name = "with-green-context", .driver = "cuda"};
    driver d;
    CUcontext context = NULL;
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 1000);
        y[i] = 1.0f;
    }
    if (find_functions(&d) != 0) {
        fputs("with-green-context: no driver of CUDA 12.4 or newer\n", stderr);
        return EXIT_WITHOUT;
    }
    CUgreenCtx green = make_context(&d, p.device, &context, &p.status);
    if (green == NULL)
        return p.status;
    if (open_in(&p, context) == 0)
        run(&p);
    int status = program_close(&p); /* nothing of Culvert's is in the context any more */
    if (status == EXIT_LOST)
        return status; /* the device keeps what it has: only the end of the process helps */
    CUresult r = d.destroy(green);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "with-green-context: cuGreenCtxDestroy failed with %d\n", (int)r);
        return EXIT_FAILED;
    }
    return status;
}
