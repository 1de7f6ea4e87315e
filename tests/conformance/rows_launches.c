/* SPDX-License-Identifier: BSD-2-Clause */
/* Modules, kernels and their launches; host functions. */
#include "conformance.h"

#include <pthread.h>

static int launch_as(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared)
{
    return d->cuLaunchKernel(conf_kernel("nothing"), gx, gy, gz, bx, by, bz, shared, NULL, NULL,
                             NULL);
}

static void bounds(void)
{
    const int invalid = CULVERT__CUDA_ERROR_INVALID_VALUE;
    conf_result("no blocks", launch_as(0, 1, 1, 1, 1, 1, 0), invalid);
    conf_result("no threads", launch_as(1, 1, 1, 0, 1, 1, 0), invalid);
    conf_result("65536 blocks in y", launch_as(1, 65536, 1, 1, 1, 1, 0), invalid);
    conf_result("65536 blocks in z", launch_as(1, 1, 65536, 1, 1, 1, 0), invalid);
    conf_result("2^31 blocks in x", launch_as(0x80000000u, 1, 1, 1, 1, 1, 0), invalid);
    conf_result("1025 threads", launch_as(1, 1, 1, 1025, 1, 1, 0), invalid);
    conf_result("2048 threads", launch_as(1, 1, 1, 32, 32, 2, 0), invalid);
    conf_result("65 threads in z", launch_as(1, 1, 1, 1, 1, 65, 0), invalid);
    conf_result("48 KB of shared memory", launch_as(1, 1, 1, 1, 1, 1, 49152), 0);
    conf_result("more", launch_as(1, 1, 1, 1, 1, 1, 49153), invalid);
    conf_result("no function", d->cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                CULVERT__CUDA_ERROR_INVALID_HANDLE);
    conf_result("after all that", d->cuStreamSynchronize(NULL), 0);
}

static void shared_memory(void)
{
    struct CUfunc_st *f = conf_kernel("nothing");
    conf_result("100000 bytes",
                d->cuFuncSetAttribute(f, CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      100000),
                0);
    conf_result("launch", launch_as(1, 1, 1, 1, 1, 1, 100000), 0);
    conf_result("more than the device has",
                d->cuFuncSetAttribute(f, CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      1 << 20),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(NULL), 0);
}

static void parameters(void)
{
    struct CUfunc_st *f = conf_kernel("store");
    size_t offset = 99, size = 99;
    if (!d->cuFuncGetParamInfo) {
        conf_note("absent");
        return;
    }
    conf_result("parameter 0", d->cuFuncGetParamInfo(f, 0, &offset, &size), 0);
    conf_range("offset", (long long)offset, 0, 0);
    conf_range("size", (long long)size, 8, 8);
    conf_result("parameter 1", d->cuFuncGetParamInfo(f, 1, &offset, &size), 0);
    conf_range("offset", (long long)offset, 8, 8);
    conf_range("size", (long long)size, 4, 4);
    conf_result("parameter 2", d->cuFuncGetParamInfo(f, 2, &offset, &size),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

static void parameters_are_copied(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4), value = 1;
    void *to = word, *params[] = {&to, &value};
    struct spin spin = conf_spin(s);
    NEED(conf_launch("store", s, params));
    to = NULL;
    value = 2;
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_range("value", conf_read(word), 1, 1);
}

static void parameters_in_a_block(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4);
    struct {
        void *to;
        uint32_t value;
    } block = {word, 8};
    size_t bytes = 12;
    void *extra[] = {(void *)(uintptr_t)CULVERT__CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, &block,
                     (void *)(uintptr_t)CULVERT__CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, &bytes,
                     (void *)(uintptr_t)CULVERT__CU_LAUNCH_PARAM_END_AS_INT};
    conf_result("launch",
                d->cuLaunchKernel(conf_kernel("store"), 1, 1, 1, 1, 1, 1, 0, s, NULL, extra), 0);
    NEED(d->cuStreamSynchronize(s));
    conf_range("value", conf_read(word), 8, 8);
}

static void images(void)
{
    static const unsigned char garbage[64] = {1, 2, 3, 4};
    culvert__CUmodule m;
    culvert__CUfunction f;
    int result = d->cuModuleLoadDataEx(&m, garbage, 0, NULL, NULL);
    conf_result("garbage", result, CULVERT__CUDA_ERROR_INVALID_IMAGE);
    conf_result("NULL", d->cuModuleLoadDataEx(&m, NULL, 0, NULL, NULL),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    NEED(d->cuFuncGetModule(&m, conf_kernel("nothing")));
    conf_result("an absent function", d->cuModuleGetFunction(&f, m, "absent"),
                CULVERT__CUDA_ERROR_NOT_FOUND);
    culvert__CUdeviceptr address;
    size_t bytes;
    conf_result("an absent variable", d->cuModuleGetGlobal(&address, &bytes, m, "absent"),
                CULVERT__CUDA_ERROR_NOT_FOUND);
}

static void occupancy(void)
{
    int blocks = 0, grid = 0, threads = 0;
    struct CUfunc_st *f = conf_kernel("nothing");
    conf_result("active blocks", d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0),
                0);
    conf_range("blocks of 32 threads", blocks, 16, 32);
    conf_result("of no threads", d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("block size", d->cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, NULL, 0, 0),
                0);
    conf_range("threads", threads, 1024, 1024);
}

static void without_a_context(void)
{
    struct CUstream_st *t;
    struct CUevent_st *other;
    culvert__CUdeviceptr more;
    const int no_context = CULVERT__CUDA_ERROR_INVALID_CONTEXT;
    NEED(d->cuCtxSetCurrent(NULL));
    conf_result("cuMemAlloc", d->cuMemAlloc(&more, 16), no_context);
    conf_result("cuStreamCreateWithPriority", d->cuStreamCreateWithPriority(&t, 1, 0), no_context);
    conf_result("cuEventCreate", d->cuEventCreate(&other, 0), no_context);
    conf_result("cuStreamQuery(NULL)", d->cuStreamQuery(NULL), no_context);
}

static void with_only_handles(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUevent_st *e = conf_event();
    struct CUfunc_st *f = conf_kernel("nothing");
    culvert__CUdeviceptr address = conf_device(16);
    NEED(d->cuCtxSetCurrent(NULL));
    conf_result("cuLaunchKernel", d->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), 0);
    conf_result("cuMemsetD8Async", d->cuMemsetD8Async(address, 0, 16, s), 0);
    conf_result("cuEventRecord", d->cuEventRecord(e, s), 0);
    conf_result("cuEventQuery", d->cuEventQuery(e) % CULVERT__CUDA_ERROR_NOT_READY, 0);
    conf_result("cuStreamWaitEvent", d->cuStreamWaitEvent(s, e, 0), 0);
    conf_result("cuEventSynchronize", d->cuEventSynchronize(e), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
    conf_result("cuStreamQuery", d->cuStreamQuery(s), 0);
    conf_result("cuEventDestroy", d->cuEventDestroy(e), 0);
    conf_result("cuStreamDestroy", d->cuStreamDestroy(s), 0);
}

const struct row conf_launch_rows[] = {
    {"bounds of launches (cases 90, 94)", bounds, 0},
    {"shared memory above 48 KB has to be asked for", shared_memory, 0},
    {"parameters of functions (case 97)", parameters, 0},
    {"parameters are copied at the launch (case 100)", parameters_are_copied, 0},
    {"parameters as one block", parameters_in_a_block, 0},
    {"unsuitable images and absent names", images, 0},
    {"occupancy", occupancy, 0},
    {"without a current context, calls that make something fail (case 58)", without_a_context, 0},
    {"calls that go by a handle need none", with_only_handles, 0},
    {0},
};

/* Host functions. */

struct gate {
    _Atomic int entered, open;
    pthread_t thread;
};

static void wait_at(void *arg)
{
    struct gate *g = arg;
    g->thread = pthread_self();
    atomic_store(&g->entered, 1);
    while (!atomic_load(&g->open))
        conf_nap();
}

static void await_entry(struct gate *g)
{
    for (int i = 0; i < 10000 && !atomic_load(&g->entered); i++)
        conf_nap();
}

static void holds_up_its_stream(void)
{
    struct CUstream_st *s = conf_stream();
    struct gate g = {0};
    uint32_t *word = conf_pinned(4);
    NEED(d->cuLaunchHostFunc(s, wait_at, &g));
    NEED(conf_store(s, word, 1));
    await_entry(&g);
    conf_sleep(0.1);
    conf_range("word, while it runs", conf_read(word), 0, 0);
    atomic_store(&g.open, 1);
    NEED(d->cuStreamSynchronize(s));
    conf_range("word, afterwards", conf_read(word), 1, 1);
}

static void one_thread(void)
{
    struct CUstream_st *s = conf_stream(), *other = conf_stream(), *third = conf_stream();
    struct gate first = {0}, second = {.open = 1};
    NEED(d->cuLaunchHostFunc(s, wait_at, &first));
    await_entry(&first);
    NEED(d->cuLaunchHostFunc(other, wait_at, &second));
    NEED(conf_launch("nothing", third, NULL));
    conf_result("kernels go on", d->cuStreamSynchronize(third), 0);
    conf_sleep(0.1);
    conf_range("another stream's has begun", atomic_load(&second.entered), 0, 0);
    atomic_store(&first.open, 1);
    NEED(d->cuStreamSynchronize(other));
    conf_true("one thread ran both", pthread_equal(first.thread, second.thread));
    conf_true("not this one", !pthread_equal(first.thread, pthread_self()));
}

struct inner {
    struct CUstream_st *stream;
    struct CUevent_st *event;
    struct CUfunc_st *nothing;
    int query, record, event_query, launch, alloc, create, current, pushed;
};

static void call_the_driver(void *arg)
{
    struct inner *in = arg;
    struct CUevent_st *e;
    struct CUctx_st *ctx;
    culvert__CUdeviceptr address;
    in->query = d->cuStreamQuery(in->stream);
    in->event_query = d->cuEventQuery(in->event);
    in->record = d->cuEventRecord(in->event, in->stream);
    in->launch = d->cuLaunchKernel(in->nothing, 1, 1, 1, 1, 1, 1, 0, in->stream, NULL, NULL);
    in->alloc = d->cuMemAlloc(&address, 1024);
    in->create = d->cuEventCreate(&e, 0);
    in->current = d->cuCtxGetCurrent(&ctx);
    d->cuCtxPushCurrent(conf_context);
    in->pushed = d->cuCtxGetCurrent(&ctx);
}

static void calls_the_driver(void)
{
    struct CUstream_st *s = conf_stream();
    const int not_permitted = CULVERT__CUDA_ERROR_NOT_PERMITTED;
    struct inner in = {.stream = conf_stream(), .event = conf_event()};
    in.nothing = conf_kernel("nothing");
    NEED(d->cuLaunchHostFunc(s, call_the_driver, &in));
    NEED(d->cuStreamSynchronize(s));
    conf_result("cuStreamQuery", in.query, 0);
    conf_result("cuEventQuery", in.event_query, 0);
    conf_result("cuEventRecord", in.record, 0);
    conf_result("cuLaunchKernel", in.launch, not_permitted);
    conf_result("cuMemAlloc", in.alloc, not_permitted);
    conf_result("cuEventCreate", in.create, not_permitted);
    conf_result("cuCtxGetCurrent", in.current, not_permitted);
    conf_result("after cuCtxPushCurrent", in.pushed, not_permitted);
    conf_result("the recorded event", d->cuEventSynchronize(in.event), 0);
}

static void host_arguments(void)
{
    conf_result("no function", d->cuLaunchHostFunc(conf_stream(), NULL, NULL),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

const struct row conf_host_function_rows[] = {
    {"a host function holds up its stream", holds_up_its_stream, 0},
    {"one thread runs all host functions", one_thread, 0},
    {"of the driver's functions, some fail in a host function (case 32)", calls_the_driver, 0},
    {"bad arguments of cuLaunchHostFunc", host_arguments, 0},
    {0},
};
