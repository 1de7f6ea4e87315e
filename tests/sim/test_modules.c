/* SPDX-License-Identifier: BSD-2-Clause */
/* Modules, kernels, launches, occupancy, and the table of functions. */
#define _POSIX_C_SOURCE 200809L
#include "sim_test.h"

#include "lib/child.h"

#include <signal.h>
#include <stdlib.h>

START_TEST(images_of_other_kinds_are_refused)
{
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0};
    static const unsigned char garbage[] = {1, 2, 3, 4};
    struct culvert_sim_module old = *sim_module();
    culvert__CUmodule m;
    char log[64] = "";
    culvert__CUjit_option options[] = {CULVERT__CU_JIT_ERROR_LOG_BUFFER,
                                       CULVERT__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    ck_result(cuModuleLoadDataEx(&m, fatbin, 0, NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    ck_result(cuModuleLoadDataEx(&m, elf, 0, NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    ck_result(cuModuleLoadDataEx(&m, garbage, 0, NULL, NULL), CUDA_ERROR_INVALID_IMAGE);
    ck_result(cuModuleLoadData(&m, "no module"), CUDA_ERROR_INVALID_IMAGE);
    ck_result(cuModuleLoadDataEx(&m, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    old.abi = CULVERT_SIM_MODULE_ABI + 1;
    ck_result(cuModuleLoadDataEx(&m, &old, 2, options, values), CUDA_ERROR_NO_BINARY_FOR_GPU);
    ck_assert(strstr(log, "another version") != NULL);
}
END_TEST

/* What the driver's compiler says. */
START_TEST(case_106_ptx_is_refused_with_a_log)
{
    static const struct {
        const char *ptx;
        int result;
        const char *says;
    } rows[] = {
        {".version 99.9\n.target sm_90\n.address_size 64\n",
         CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
         "line 1; fatal   : Unsupported .version 99.9; current version is '9.0'"},
        {"// text\n.version 9.1\n.target sm_90\n", CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
         "line 2;"},
        {".version 8.0\n", CULVERT__CUDA_ERROR_INVALID_PTX, ".target"},
        {".version 8.0\n.target sm_120\n", CULVERT__CUDA_ERROR_INVALID_PTX, "higher than"},
        {".version 8.0\n.target sm_70\nnonsense\n", CULVERT__CUDA_ERROR_INVALID_PTX,
         "line 3; fatal   : Parsing error near 'nonsense'"},
        {".version 8.0\n.target sm_70\n.visible .entry k()\n{\n  ret;\n",
         CULVERT__CUDA_ERROR_INVALID_PTX, "Parsing error"},
        {"/* a\n*/ .version 8.0\n.target sm_70\n.address_size 64\n.global .u32 x = 1;\n"
         ".visible .entry k(\n.param .u64 a\n)\n{\n  ret;\n}\n",
         CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU, "host-built kernels only"},
    };
    culvert__CUmodule m;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char log[256] = "";
        culvert__CUjit_option options[] = {CULVERT__CU_JIT_ERROR_LOG_BUFFER,
                                           CULVERT__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)(uintptr_t)sizeof log};
        ck_assert_int_eq(cuModuleLoadDataEx(&m, rows[i].ptx, 2, options, values), rows[i].result);
        ck_assert_msg(strstr(log, rows[i].says) != NULL, "%zu: %s", i, log);
        ck_assert_int_eq(cuModuleLoadDataEx(&m, rows[i].ptx, 0, NULL, NULL), rows[i].result);
    }
}
END_TEST

START_TEST(functions_and_variables_are_found_by_name)
{
    culvert__CUmodule m, again;
    culvert__CUfunction f, same;
    culvert__CUdeviceptr address;
    size_t bytes;
    uint32_t *word = sim_pinned(4);
    struct CUstream_st *s = sim_stream();
    ck_ok(cuModuleLoadData(&m, sim_module()));
    ck_assert_uint_eq(culvert_sim_live("module"), 2);
    ck_ok(cuModuleGetFunction(&f, m, "store"));
    ck_ok(cuModuleGetFunction(&same, m, "store"));
    ck_assert_ptr_eq(f, same);
    ck_ok(cuFuncGetModule(&again, f));
    ck_assert_ptr_eq(again, m);
    ck_result(cuModuleGetFunction(&f, m, "absent"), CUDA_ERROR_NOT_FOUND);
    ck_ok(cuModuleGetGlobal_v2(&address, &bytes, m, "counter"));
    ck_assert_uint_eq(bytes, 16);
    ck_result(cuModuleGetGlobal_v2(&address, NULL, m, "absent"), CUDA_ERROR_NOT_FOUND);
    ck_ok(cuMemsetD32Async(address, 11, 4, s));
    ck_ok(cuMemcpyDtoHAsync_v2(word, address + 12, 4, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*word, 11);
    ck_ok(cuModuleUnload(m));
    ck_ok(cuMemsetD32Async(address, 12, 4, s)); /* the other module still has it */
    ck_result(cuModuleGetFunction(&f, m, "store"), CUDA_ERROR_INVALID_HANDLE);
    ck_violation(1, "module");
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

START_TEST(a_module_is_not_unloaded_under_its_kernels)
{
    culvert__CUmodule m;
    culvert__CUfunction f;
    struct CUstream_st *s = sim_stream();
    ck_ok(cuModuleLoadData(&m, sim_module()));
    ck_ok(cuModuleGetFunction(&f, m, "nothing"));
    ck_ok(cuFuncLoad(f));
    culvert_sim_hold(s);
    ck_ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    ck_ok(cuModuleUnload(m));
    ck_violation(1, "cuModuleUnload: queued work uses kernels of module sim_test");
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
}
END_TEST

START_TEST(case_097_parameters_are_known)
{
    struct CUfunc_st *f = sim_kernel("store");
    size_t offset, size;
    ck_ok(cuFuncGetParamInfo(f, 0, &offset, &size));
    ck_assert_uint_eq(offset, 0);
    ck_assert_uint_eq(size, 8);
    ck_ok(cuFuncGetParamInfo(f, 1, &offset, &size));
    ck_assert_uint_eq(offset, 8);
    ck_assert_uint_eq(size, 4);
    ck_result(cuFuncGetParamInfo(f, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    uint64_t address = 0;
    void *too_few[] = {&address, NULL};
    ck_result(sim_launch("store", sim_stream(), too_few), CUDA_ERROR_INVALID_VALUE);
    ck_result(sim_launch("store", sim_stream(), NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(case_100_parameters_are_copied_at_the_call)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4), value = 1;
    uint64_t *many_to = (uint64_t *)sim_pinned(8), words[40] = {99};
    void *params[] = {&to, &value}, *many[40];
    culvert_sim_hold(s);
    ck_ok(sim_launch("store", s, params));
    value = 2;
    to = NULL;
    words[39] = (uintptr_t)many_to;
    for (int i = 0; i < 40; i++)
        many[i] = &words[i];
    ck_ok(sim_launch("many", s, many));
    memset(words, 0, sizeof words);
    uint32_t *seen = *(uint32_t **)params[0];
    ck_assert_ptr_null(seen);
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*many_to, 99);
}
END_TEST

START_TEST(parameters_can_be_one_block)
{
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    struct {
        void *to;
        uint32_t value;
    } block = {to, 8};
    size_t bytes = 12;
    void *extra[] = {(void *)1, &block, (void *)2, &bytes, (void *)0};
    struct CUfunc_st *f = sim_kernel("store");
    ck_ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 8);
    bytes = 8;
    ck_result(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static int launch_as(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                     unsigned by, unsigned bz, unsigned shared)
{
    return cuLaunchKernel(sim_kernel(name), gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL);
}

START_TEST(case_090_and_094_bounds_of_launches)
{
    ck_result(launch_as("nothing", 0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 1, 0, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 65536, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 65536, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 0x80000000u, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 1, 1025, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 1, 32, 32, 2, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
    ck_result(launch_as("nothing", 1, 1, 1, 1, 1, 1, 49153), CUDA_ERROR_INVALID_VALUE);
    ck_ok(launch_as("nothing", 1, 1, 1, 1, 1, 1, 49152));
    ck_ok(launch_as("nothing", 2, 3, 4, 32, 8, 4, 0));
    ck_result(launch_as("wide", 1, 1, 1, 65, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    ck_ok(launch_as("wide", 1, 1, 1, 64, 1, 1, 0));
    ck_result(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
              CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *f = sim_kernel("nothing");
    ck_ok(cuFuncSetAttribute(f, CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    ck_ok(launch_as("nothing", 1, 1, 1, 1, 1, 1, 100000));
    ck_result(cuFuncSetAttribute(f, CULVERT__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 300000),
              CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(launches_with_attributes)
{
    culvert__CUlaunchAttribute attributes[2] = {
        {.id = CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}},
        {.id = CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
    attributes[1].value.clusterDim.x = 2;
    attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z = 1;
    culvert__CUlaunchConfig c = {.gridDimX = 4,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 32,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .attrs = attributes,
                                 .numAttrs = 2};
    struct CUfunc_st *f = sim_kernel("nothing");
    ck_ok(cuLaunchKernelEx(&c, f, NULL, NULL));
    c.gridDimX = 3; /* no multiple of the cluster */
    ck_result(cuLaunchKernelEx(&c, f, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    c.gridDimX = 1000000;
    ck_result(cuLaunchKernelEx(&c, f, NULL, NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(occupancy_is_that_of_the_attributes)
{
    int blocks = 0, threads = 0, grid = 0;
    struct CUfunc_st *f = sim_kernel("nothing");
    ck_ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
    ck_assert_int_eq(blocks, 2);
    ck_ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0));
    ck_assert_int_eq(blocks, 32);
    ck_ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 48 * 1024));
    ck_assert_int_eq(blocks, 4);
    ck_ok(cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, NULL, 0, 0));
    ck_assert_int_eq(threads, 1024);
    ck_assert_int_eq(grid, 2 * 132);
    ck_ok(cuOccupancyMaxPotentialBlockSize(&grid, &threads, sim_kernel("wide"), NULL, 0, 0));
    ck_assert_int_eq(threads, 64);
    ck_result(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0),
              CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuFuncGetAttribute(&threads, CULVERT__CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                             sim_kernel("wide")));
    ck_assert_int_eq(threads, 64);
    ck_result(cuFuncGetAttribute(&threads, 99, f), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static int launch_lazy(void *stream)
{
    return sim_launch("lazy", stream, NULL);
}

START_TEST(the_first_launch_of_a_function_does_not_wait_for_the_device)
{
    struct CUstream_st *s = sim_stream();
    int mode;
    ck_ok(cuModuleGetLoadingMode(&mode));
    ck_assert_int_eq(mode, CULVERT__CU_MODULE_LAZY_LOADING);
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(sim_launch("lazy", sim_stream(), NULL));
    ck_ok(cuFuncLoad(sim_kernel("wide")));
    culvert_sim_release(s);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(case_086_the_first_launch_waits_where_the_driver_does)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    culvert_sim_lazy_loading_waits(1);
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    struct sim_thread_call *call = sim_in_thread(launch_lazy, other);
    ck_assert(sim_still_runs(call));
    culvert_sim_release(s);
    ck_ok(sim_join(call));
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(sim_join(sim_in_thread(launch_lazy, other))); /* it is loaded now */
    culvert_sim_release(s);
    ck_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(with_eager_loading_it_does_not)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    sim_setup();
    unsetenv("CUDA_MODULE_LOADING");
    culvert_sim_lazy_loading_waits(1);
    struct CUstream_st *s = sim_stream();
    int mode;
    ck_ok(cuModuleGetLoadingMode(&mode));
    ck_assert_int_eq(mode, CULVERT__CU_MODULE_EAGER_LOADING);
    culvert_sim_hold(s);
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(sim_launch("lazy", sim_stream(), NULL));
}
END_TEST

START_TEST(functions_are_found_by_name_and_version)
{
    void *pfn, *symbol;
    int found;
    culvert__FN_cuMemAlloc *alloc = cuMemAlloc_v2;
    memcpy(&symbol, &alloc, sizeof symbol);
    ck_ok(cuGetProcAddress_v2("cuMemAlloc", &pfn, 12000, 0, &found));
    ck_assert_ptr_eq(pfn, symbol);
    ck_ok(cuGetProcAddress_v2("cuMemAlloc", &pfn, 2000, 0, &found));
    ck_assert_ptr_null(pfn);
    ck_assert_int_eq(found, CULVERT__CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ck_ok(cuGetProcAddress_v2("cuMemAlloc_v2", &pfn, 12000, 0, &found));
    ck_assert_ptr_null(pfn);
    ck_assert_int_eq(found, CULVERT__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    ck_result(cuGetProcAddress_v2(NULL, &pfn, 12000, 0, &found), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

void cuMemAlloc(void); /* the old entry point, whatever its signature */

static int call_an_old_entry(void *unused)
{
    (void)unused;
    cuMemAlloc();
    return 0;
}

START_TEST(case_101_old_entry_points_abort)
{
    test_child child = test_child_run(call_an_old_entry, NULL, 0, 60);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_msg(strstr(child.output, "cuMemAlloc is an old entry point") != NULL, "%s",
                  child.output);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim modules");
    TCase *t = tcase_create("modules");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, images_of_other_kinds_are_refused);
    tcase_add_test(t, case_106_ptx_is_refused_with_a_log);
    tcase_add_test(t, functions_and_variables_are_found_by_name);
    tcase_add_test(t, a_module_is_not_unloaded_under_its_kernels);
    tcase_add_test(t, case_097_parameters_are_known);
    tcase_add_test(t, case_100_parameters_are_copied_at_the_call);
    tcase_add_test(t, parameters_can_be_one_block);
    tcase_add_test(t, case_090_and_094_bounds_of_launches);
    tcase_add_test(t, launches_with_attributes);
    tcase_add_test(t, occupancy_is_that_of_the_attributes);
    tcase_add_test(t, the_first_launch_of_a_function_does_not_wait_for_the_device);
    tcase_add_test(t, case_086_the_first_launch_waits_where_the_driver_does);
    tcase_add_test(t, functions_are_found_by_name_and_version);
    suite_add_tcase(s, t);
    t = tcase_create("processes");
    tcase_add_checked_fixture(t, NULL, sim_teardown);
    tcase_add_test(t, with_eager_loading_it_does_not);
    tcase_add_test(t, case_101_old_entry_points_abort);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
