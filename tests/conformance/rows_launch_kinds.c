/* SPDX-License-Identifier: BSD-2-Clause */
/* Cooperative launches and clusters; occupancy; variables of modules. */
#include "conformance.h"

static int device_attribute(int which)
{
    int value = 0;
    NEED(d->cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static int launch_ex(const char *kernel, struct CUstream_st *s, unsigned blocks, unsigned threads,
                     const culvert__CUlaunchAttribute *attribute, void **params)
{
    culvert__CUlaunchAttribute copy = *attribute;
    culvert__CUlaunchConfig config = {.gridDimX = blocks,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = threads,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .hStream = s,
                                      .attrs = &copy,
                                      .numAttrs = 1};
    return d->cuLaunchKernelEx(&config, conf_kernel(kernel), params, NULL);
}

static const culvert__CUlaunchAttribute cooperative = {.id =
                                                           CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                                       .value.cooperative = 1};

static unsigned blocks_at_once(const char *kernel, int threads, size_t shared)
{
    int blocks = 0;
    NEED(d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, conf_kernel(kernel), threads,
                                                        shared));
    return (unsigned)blocks *
           (unsigned)device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

static void cooperative_limit(void)
{
    struct CUstream_st *s = conf_stream();
    unsigned most = blocks_at_once("nothing", 1024, 0);
    conf_range("the device has them",
               device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), 1, 1);
    conf_result("as many blocks as run at once",
                launch_ex("nothing", s, most, 1024, &cooperative, NULL), 0);
    conf_result("one more", launch_ex("nothing", s, most + 1, 1024, &cooperative, NULL),
                CULVERT__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
}

static void cooperative_blocks_meet(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t n = blocks_at_once("meet", 1024, 0);
    unsigned long long count = conf_device(4);
    uint32_t *came = conf_pinned(4);
    void *params[] = {&count, &n};
    n = n > 40 ? 40 : n;
    NEED(d->cuMemsetD32Async(count, 0, 1, s));
    conf_result("launch", launch_ex("meet", s, n, 1, &cooperative, params), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
    NEED(d->cuMemcpyDtoHAsync(came, count, 4, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("blocks that came", conf_read(came), n, n);
}

static int launch_clusters(struct CUstream_st *s, unsigned blocks, unsigned cluster)
{
    culvert__CUlaunchAttribute a = {.id = CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    a.value.clusterDim.x = cluster;
    a.value.clusterDim.y = a.value.clusterDim.z = 1;
    return launch_ex("nothing", s, blocks, 32, &a, NULL);
}

/* What is refused is; by which code is noted. */
static void clusters(void)
{
    struct CUstream_st *s = conf_stream();
    int has = device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    int major = device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    conf_range("the device has them", has, major >= 9, major >= 9);
    if (!has)
        return;
    conf_result("16 blocks in clusters of 8", launch_clusters(s, 16, 8), 0);
    conf_result("3 blocks in clusters of 1", launch_clusters(s, 3, 1), 0);
    int odd = launch_clusters(s, 9, 2), large = launch_clusters(s, 32, 16);
    conf_note("9 blocks in clusters of 2: %d; clusters of 16: %d", odd, large);
    conf_true("both are refused", odd != 0 && large != 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
}

static void occupancy_and_shared_memory(void)
{
    struct CUfunc_st *f = conf_kernel("nothing");
    int grid = 0, threads = 0, most;
    int sms = device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    most = device_attribute(CULVERT__CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    NEED(d->cuFuncSetAttribute(f, CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    conf_range("blocks with all of it", blocks_at_once("nothing", 32, (size_t)most), sms, sms);
    conf_range("with a quarter of it", blocks_at_once("nothing", 32, (size_t)most / 4), 2LL * sms,
               4LL * sms);
    conf_result("block size",
                d->cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, NULL, (size_t)most, 0), 0);
    conf_range("threads", threads, 1024, 1024);
    conf_range("blocks", grid, sms, sms);
}

static void variables(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUmod_st *m;
    culvert__CUdeviceptr address = 0;
    size_t bytes = 0;
    uint32_t *word = conf_pinned(8);
    void *params[] = {&word};
    NEED(d->cuFuncGetModule(&m, conf_kernel("nothing")));
    conf_result("cuModuleGetGlobal", d->cuModuleGetGlobal(&address, &bytes, m, "number"), 0);
    conf_range("bytes", (long long)bytes, 4, 4);
    conf_true("address", address != 0);
    NEED(conf_launch("number_to", s, params));
    NEED(d->cuStreamSynchronize(s));
    conf_range("what the kernel sees", conf_read(word), 7, 7);
    NEED(d->cuMemsetD32Async(address, 1234, 1, s));
    NEED(conf_launch("number_to", s, params));
    NEED(d->cuMemcpyDtoHAsync(word + 1, address, 4, s));
    NEED(d->cuStreamSynchronize(s));
    conf_range("after a fill", conf_read(word), 1234, 1234);
    conf_range("copied", conf_read(word + 1), 1234, 1234);
    conf_result("the size alone", d->cuModuleGetGlobal(NULL, &bytes, m, "number"), 0);
    conf_result("no name", d->cuModuleGetGlobal(&address, &bytes, m, NULL),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

const struct row conf_launch_kind_rows[] = {
    {"a cooperative launch has at most the blocks that run at once", cooperative_limit, 0},
    {"blocks of a cooperative launch run at once", cooperative_blocks_meet, 0},
    {"clusters", clusters, 0},
    {"occupancy with much shared memory", occupancy_and_shared_memory, 0},
    {"variables of a module", variables, 0},
    {0},
};
