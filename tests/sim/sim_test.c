/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "sim_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct CUctx_st *sim_context;
static struct CUmod_st *module;

/* The kernels, as culvert/kernel.h would make them. */

static void run_nothing(struct culvert_sim_block *block, const void *params, unsigned first,
                        unsigned end)
{
    (void)block, (void)params, (void)first, (void)end;
}

struct store_params {
    uint32_t *to;
    uint32_t value;
};

static void run_store(struct culvert_sim_block *block, const void *params, unsigned first,
                      unsigned end)
{
    const struct store_params *p = params;
    (void)block, (void)first, (void)end;
    *p->to = p->value;
}

static void run_add(struct culvert_sim_block *block, const void *params, unsigned first,
                    unsigned end)
{
    const struct store_params *p = params;
    (void)block, (void)first, (void)end;
    *p->to = *p->to * 10 + p->value;
}

static void run_spin(struct culvert_sim_block *block, const void *params, unsigned first,
                     unsigned end)
{
    _Atomic uint32_t *flag = *(_Atomic uint32_t *const *)params;
    (void)end;
    while (atomic_load(flag) == 0) {
        sim_nap();
        block->ops->yield(block, first);
    }
}

static void run_fault(struct culvert_sim_block *block, const void *params, unsigned first,
                      unsigned end)
{
    (void)end;
    block->ops->fault(block, first, (int)*(const uint32_t *)params, "asked to");
}

enum { MANY = 40 };

static void run_many(struct culvert_sim_block *block, const void *params, unsigned first,
                     unsigned end)
{
    const uint64_t *p = params;
    (void)block, (void)first, (void)end;
    *(uint64_t *)(uintptr_t)p[MANY - 1] = p[0];
}

static const size_t store_offsets[] = {0, 8};
static const size_t store_sizes[] = {8, 4};
static const size_t word_offsets[] = {0};
static const size_t pointer_sizes[] = {8};
static const size_t word_sizes[] = {4};
static size_t many_offsets[MANY], many_sizes[MANY];

#define KERNEL(name_, run_, n, offsets, sizes, bytes, threads)                               \
    {                                                                                        \
        .struct_size = sizeof(struct culvert_sim_kernel), .name = name_, .run = run_,        \
        .nparams = n, .param_offsets = offsets, .param_sizes = sizes, .params_bytes = bytes, \
        .max_threads = threads                                                               \
    }

static const struct culvert_sim_kernel kernels[] = {
    KERNEL("nothing", run_nothing, 0, NULL, NULL, 0, 0),
    KERNEL("store", run_store, 2, store_offsets, store_sizes, 12, 0),
    KERNEL("add", run_add, 2, store_offsets, store_sizes, 12, 0),
    KERNEL("spin", run_spin, 1, word_offsets, pointer_sizes, 8, 0),
    KERNEL("fault", run_fault, 1, word_offsets, word_sizes, 4, 0),
    KERNEL("lazy", run_nothing, 0, NULL, NULL, 0, 0),
    KERNEL("many", run_many, MANY, many_offsets, many_sizes, MANY * 8, 0),
    KERNEL("wide", run_nothing, 0, NULL, NULL, 0, 64),
};
enum { NKERNELS = sizeof kernels / sizeof *kernels };
static const struct culvert_sim_kernel *kernel_table[NKERNELS];

static uint32_t counter[4];
static const struct culvert_sim_global counter_global = {.struct_size = sizeof counter_global,
                                                         .name = "counter",
                                                         .address = counter,
                                                         .bytes = sizeof counter};
static const struct culvert_sim_global *const global_table[] = {&counter_global};

static const struct culvert_sim_module image = {
    .magic = CULVERT_SIM_MODULE_MAGIC,
    .abi = CULVERT_SIM_MODULE_ABI,
    .struct_size = sizeof image,
    .name = "sim_test",
    .nkernels = NKERNELS,
    .kernels = kernel_table,
    .nglobals = 1,
    .globals = global_table,
};

const struct culvert_sim_module *sim_module(void)
{
    for (size_t i = 0; i < NKERNELS; i++)
        kernel_table[i] = &kernels[i];
    for (size_t i = 0; i < MANY; i++) {
        many_offsets[i] = 8 * i;
        many_sizes[i] = 8;
    }
    return &image;
}

static void setup(int devices)
{
    int device;
    culvert_sim_reset();
    culvert_sim_devices(devices);
    ck_ok(cuInit(0));
    for (int d = devices - 1; d >= 0; d--) {
        ck_ok(cuDeviceGet(&device, d));
        ck_ok(cuDevicePrimaryCtxRetain(&sim_context, device));
    }
    ck_ok(cuCtxSetCurrent(sim_context));
    ck_ok(cuModuleLoadDataEx(&module, sim_module(), 0, NULL, NULL));
    for (size_t i = 0; i < NKERNELS; i++) {
        struct CUfunc_st *f;
        ck_ok(cuModuleGetFunction(&f, module, kernels[i].name));
        if (strcmp(kernels[i].name, "lazy") != 0)
            ck_ok(cuFuncLoad(f));
    }
}

void sim_setup(void)
{
    setup(1);
}

void sim_setup_two(void)
{
    setup(2);
}

void sim_teardown(void)
{
    culvert_sim_reset();
    ck_assert_uint_eq(culvert_sim_live("event"), 0);
    ck_assert_uint_eq(culvert_sim_live("stream"), 0);
    ck_assert_uint_eq(culvert_sim_live("module"), 0);
    ck_assert_uint_eq(culvert_sim_live("graph"), 0);
    ck_assert_uint_eq(culvert_sim_live("pool"), 0);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
    ck_assert_uint_eq(culvert_sim_live("operation"), 0);
}

struct CUfunc_st *sim_kernel(const char *name)
{
    struct CUfunc_st *f = NULL;
    ck_ok(cuModuleGetFunction(&f, module, name));
    return f;
}

int sim_launch(const char *kernel, struct CUstream_st *stream, void **params)
{
    return cuLaunchKernel(sim_kernel(kernel), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

int sim_store(struct CUstream_st *stream, void *to, uint32_t value)
{
    void *params[] = {&to, &value};
    return sim_launch("store", stream, params);
}

int sim_append(struct CUstream_st *stream, void *to, uint32_t digit)
{
    void *params[] = {&to, &digit};
    return sim_launch("add", stream, params);
}

int sim_spin(struct CUstream_st *stream, _Atomic uint32_t *flag)
{
    void *params[] = {&flag};
    return sim_launch("spin", stream, params);
}

struct CUstream_st *sim_stream(void)
{
    struct CUstream_st *s = NULL;
    ck_ok(cuStreamCreateWithPriority(&s, CULVERT__CU_STREAM_NON_BLOCKING, 0));
    return s;
}

struct CUstream_st *sim_blocking_stream(void)
{
    struct CUstream_st *s = NULL;
    ck_ok(cuStreamCreateWithPriority(&s, CULVERT__CU_STREAM_DEFAULT, 0));
    return s;
}

struct CUevent_st *sim_event(void)
{
    struct CUevent_st *e = NULL;
    ck_ok(cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING));
    return e;
}

uint32_t *sim_pinned(size_t bytes)
{
    void *p = NULL;
    ck_ok(cuMemHostAlloc(&p, bytes, 0));
    memset(p, 0, bytes);
    return p;
}

uint64_t sim_device(size_t bytes)
{
    culvert__CUdeviceptr p = 0;
    ck_ok(cuMemAlloc_v2(&p, bytes));
    return p;
}

struct sim_thread_call {
    pthread_t thread;
    int (*fn)(void *);
    void *arg;
    int result;
    _Atomic int done;
};

static void *thread_main(void *arg)
{
    struct sim_thread_call *call = arg;
    if (sim_context)
        cuCtxSetCurrent(sim_context);
    call->result = call->fn(call->arg);
    atomic_store(&call->done, 1);
    return NULL;
}

struct sim_thread_call *sim_in_thread(int (*fn)(void *), void *arg)
{
    struct sim_thread_call *call = calloc(1, sizeof *call);
    ck_assert_ptr_nonnull(call);
    call->fn = fn;
    call->arg = arg;
    ck_assert_int_eq(pthread_create(&call->thread, NULL, thread_main, call), 0);
    return call;
}

bool sim_still_runs(struct sim_thread_call *call)
{
    for (int i = 0; i < 50 && !atomic_load(&call->done); i++)
        sim_nap();
    return !atomic_load(&call->done);
}

int sim_join(struct sim_thread_call *call)
{
    pthread_join(call->thread, NULL);
    int result = call->result;
    free(call);
    return result;
}

void sim_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
