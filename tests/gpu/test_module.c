/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading of images, kernels, and the driver thread that does it. */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/rig.h"
#include "launches.culvert.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "lib/child.h"
#include "lib/clock.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 4 }; /* of launches.cu */

static rig r;

static void set_up(void)
{
    rig_fresh();
    rig_open(&r, NULL);
}

static void tear_down(void)
{
    if (r.loop != NULL)
        rig_close(&r);
}

static const culvert_grid one = {.blocks = {1}, .threads = {1}};

static culvert_future *load(void)
{
    return culvert_module_load(r.gpu, &culvert_image_launches);
}

/* ---- any driver ---- */

START_TEST(a_module_has_its_kernels)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_kernel *put = culvert_module_kernel(module, "put", &err);
    ck_assert_ptr_nonnull(put);
    ck_assert_ptr_eq(culvert_module_kernel(module, "put", NULL), put);
    ck_assert_ptr_ne(culvert_module_kernel(module, "nothing", &err), put);
    ck_assert_int_eq(err.code, CULVERT_OK);
    rig_settle_ok(
        culvert_launch(r.stream, culvert_module_kernel(module, "nothing", NULL), &one, NULL, 0));
    culvert_module_unref(module);
    culvert_module_unref(NULL);
}
END_TEST

START_TEST(a_name_that_is_not_there_is_an_error_that_names_the_module)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    ck_assert_ptr_null(culvert_module_kernel(module, "putt", &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_module_kernel");
    ck_assert_ptr_nonnull(strstr(err.where, "test_module.c:"));
    rig_says(&err, "module launches has no kernel putt");
    rig_says(&err, "CULVERT_KERNEL(putt)");
    rig_says(&err, "nothing, record_all, put, shared_words");
    ck_assert_ptr_null(culvert_module_kernel(module, "", NULL));
    culvert_module_unref(module);
}
END_TEST

START_TEST(the_future_s_own_reference_keeps_the_module)
{
    culvert_future *future = load();
    ck_assert_int_eq(culvert_await(future, 60), CULVERT_OK);
    culvert_module *module = culvert_value(future);
    ck_assert_ptr_nonnull(culvert_module_kernel(module, "put", NULL));
    culvert_unref(future); /* nobody took it: it is unloaded */
}
END_TEST

START_TEST(an_image_may_be_loaded_twice)
{
    culvert_module *a = rig_module(&r, &culvert_image_launches);
    culvert_module *b = rig_module(&r, &culvert_image_launches);
    ck_assert_ptr_ne(a, b);
    ck_assert_ptr_ne(culvert_module_kernel(a, "put", NULL), culvert_module_kernel(b, "put", NULL));
    culvert_module_unref(a);
    ck_assert_ptr_nonnull(culvert_module_kernel(b, "put", NULL));
    culvert_module_unref(b);
}
END_TEST

static void settled(culvert_future *future, void *arg)
{
    *(int *)arg = culvert_status(future);
}

START_TEST(the_loop_stays_alive_until_it_is_loaded)
{
    int status = CULVERT_PENDING;
    ck_assert_int_eq(culvert_on_settled(load(), settled, &status, NULL), CULVERT_OK);
    ev_run(r.ev, 0);
    ck_assert_int_eq(status, CULVERT_OK);
}
END_TEST

START_TEST(what_is_no_image_is_refused)
{
    culvert_image image = culvert_image_launches;
    image.struct_size = 0;
    culvert_error err = rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_EINVAL);
    rig_says(&err, "struct_size is 0");
    image.struct_size = sizeof image + 8;
    rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_EINVAL);
    if (rig_simulated())
        return;
    image = culvert_image_launches;
    image.fatbin_bytes = 0;
    err = rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_EINVAL);
    rig_says(&err, "fatbin_bytes is 0");
}
END_TEST

START_TEST(an_image_without_code_for_the_driver_says_how_to_build_it)
{
    culvert_image image = culvert_image_launches;
    image.name = "half";
    image.sim_module = rig_simulated() ? NULL : image.sim_module;
    image.fatbin = rig_simulated() ? image.fatbin : NULL;
    culvert_error err = rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_ENOTSUP);
    ck_assert_str_eq(err.op, "culvert_module_load");
    ck_assert_ptr_nonnull(strstr(err.where, "test_module.c:"));
    rig_says(&err, "image half has no code for");
    rig_says(&err, rig_simulated() ? "culvert_add_kernels" : "-DCULVERT_CUDA=ON");
}
END_TEST

/* Text that no driver can compile: its log says why (cudarc#434). */
START_TEST(case_106_what_the_driver_cannot_use_is_told_with_versions_and_log)
{
    static const char ptx[] = ".version 99.9\n.target sm_90\n.address_size 64\nnonsense\n";
    culvert_image image = {sizeof image, "newer", ptx, sizeof ptx, ptx};
    culvert_error err = rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_ENOTSUP);
    ck_assert_int_ne(err.native, 0);
    rig_says(&err, "image newer: cuModuleLoadDataEx: CUDA_ERROR_");
    rig_says(&err, "compute capability ");
    rig_says(&err, "driver ");
    rig_says(&err, "toolkit ");
    rig_says(&err, "Unsupported .version 99.9");
    if (!rig_simulated())
        rig_says(&err, "image: PTX 99.9 for 9.0");
    rig_settle_ok(culvert_stream_done(r.stream)); /* no harm was done */
}
END_TEST

START_TEST(a_closed_device_loads_nothing_but_ends_what_began)
{
    culvert_future *begun = load();
    culvert_gpu *gpu = r.gpu;
    culvert_gpu_close(r.gpu);
    r.gpu = NULL;
    rig_settle_error(culvert_module_load(gpu, &culvert_image_launches), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(culvert_await(begun, 60), CULVERT_OK);
    culvert_module *module = culvert_take(begun);
    culvert_unref(begun);
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert_module_kernel(module, "put", &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    culvert_module_unref(module);
}
END_TEST

START_TEST(a_module_outlives_the_loop)
{
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    r.loop = NULL;
    culvert_module_unref(module);
    ev_loop_destroy(r.ev);
    rig_nothing_left();
}
END_TEST

START_TEST(loop_free_ends_a_load)
{
    int status = CULVERT_PENDING;
    ck_assert_int_eq(culvert_on_settled(load(), settled, &status, NULL), CULVERT_OK);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    r.loop = NULL;
    ck_assert(status == CULVERT_ESHUTDOWN || status == CULVERT_OK);
    ev_loop_destroy(r.ev);
    rig_nothing_left();
}
END_TEST

static int load_in_child(void *arg)
{
    culvert_module *module = arg;
    culvert_future *future = load();
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert_status(future) != CULVERT_EFORKED)
        return 1;
    culvert_unref(future);
    if (culvert_module_kernel(module, "put", &err) != NULL || err.code != CULVERT_EFORKED)
        return 2;
    culvert_module_unref(module);
    return 0;
}

START_TEST(a_child_after_fork_loads_nothing)
{
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    test_child child = test_child_run(load_in_child, module, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%d %s", child.status, child.output);
    ck_assert_ptr_nonnull(culvert_module_kernel(module, "put", NULL));
    culvert_module_unref(module);
}
END_TEST

static int null_module(void *arg)
{
    (void)arg;
    return culvert_module_kernel(NULL, "put", NULL) == NULL;
}

START_TEST(null_handles_abort_with_the_name_of_the_call)
{
    test_child child = test_child_run(null_module, NULL, 0, 60);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_ptr_nonnull(strstr(child.output, "culvert_module_kernel"));
}
END_TEST

/* A line of /proc/self/task/<id>/status of the thread with that name; false: there is none. */
static bool thread_line(const char *thread, const char *key, char *value, size_t size)
{
    DIR *tasks = opendir("/proc/self/task");
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(tasks)) != NULL;) {
        char path[300], line[256], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            (void)sscanf(line, "Name: %63s", name);
            if (strcmp(name, thread) == 0 && strncmp(line, key, strlen(key)) == 0) {
                snprintf(value, size, "%s", line + strlen(key));
                found = true;
            }
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

START_TEST(the_driver_thread_blocks_signals)
{
    char blocked[256];
    ck_assert(!thread_line("culvert-driver", "SigBlk:", blocked, sizeof blocked));
    culvert_module_unref(rig_module(&r, &culvert_image_launches));
    ck_assert(thread_line("culvert-driver", "SigBlk:", blocked, sizeof blocked));
    unsigned long long mask = strtoull(blocked, NULL, 16);
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGALRM, SIGPIPE};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        ck_assert_msg(mask >> (signals[i] - 1) & 1, "signal %d: %s", signals[i], blocked);
}
END_TEST

/* Somebody's capture in global mode, which forbids such calls to the thread that began it. */
START_TEST(case_078_loading_breaks_no_capture)
{
    const culvert__driver *drv = r.gpu->drv;
    struct CUstream_st *stream = culvert_stream_native(r.stream);
    struct CUgraph_st *graph = NULL;
    culvert_future *future = NULL;
    culvert__scope scope = culvert__scope_enter(r.gpu->device);
    ck_assert_int_eq(drv->cuStreamBeginCapture(stream, CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    future = load();
    culvert_module *module = NULL;
    if (culvert_await(future, 60) == CULVERT_OK)
        module = culvert_take(future);
    culvert_unref(future);
    ck_assert_int_eq(drv->cuStreamEndCapture(stream, &graph), 0);
    (void)drv->cuGraphDestroy(graph);
    culvert__scope_leave(scope);
    ck_assert_ptr_nonnull(module);
    culvert_module_unref(module);
}
END_TEST

/* ---- the simulator ---- */

/* A lazy driver loads a kernel at its first launch, and some stop everybody meanwhile
   (torchcomms#2334). */
START_TEST(case_086_kernels_are_loaded_before_their_first_launch)
{
    culvert_sim_lazy_loading_waits(1);
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    ck_assert_uint_eq(culvert_sim_calls("cuFuncLoad"), KERNELS);
    culvert_stream *other = culvert_stream_new(r.gpu, NULL, NULL);
    culvert_buffer *buffer = culvert_buffer_new(r.gpu, 64, NULL);
    culvert_sim_loop_thread();
    culvert_sim_strict(1);
    culvert_sim_hold(culvert_stream_native(other));
    culvert_future *held = culvert_fill(other, buffer, 0, 64, 0, 4);
    rig_settle_ok(
        culvert_launch(r.stream, culvert_module_kernel(module, "nothing", NULL), &one, NULL, 0));
    culvert_sim_release(NULL);
    rig_settle_ok(held);
    ck_assert_uint_eq(culvert_sim_calls("cuFuncLoad"), KERNELS);
    culvert_module_unref(module);
    culvert_stream_unref(other);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(case_098_without_optional_functions_it_loads_as_well)
{
    static culvert__driver older;
    const culvert__driver *driver = r.gpu->drv;
    older = *driver;
    older.cuFuncLoad = NULL;
    older.cuFuncGetParamInfo = NULL;
    r.gpu->drv = &older;
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    rig_settle_ok(
        culvert_launch(r.stream, culvert_module_kernel(module, "nothing", NULL), &one, NULL, 0));
    ck_assert_uint_eq(culvert_sim_calls("cuFuncLoad"), 0);
    r.gpu->drv = driver;
    culvert_module_unref(module);
}
END_TEST

/* A driver may compile when a function is asked for, not when its module is loaded (candle#2498). */
START_TEST(case_106_an_error_of_the_compiler_that_comes_late_is_told_as_one)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_fail("cuModuleGetFunction", 2, CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    err = rig_settle_error(load(), CULVERT_ENOTSUP);
    rig_says(&err, "image launches: cuModuleGetFunction: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)");
    rig_says(&err, "driver ");
    ck_assert_uint_eq(culvert_sim_live("module"), 0);
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_sim_fail("cuModuleGetFunction", 1, CULVERT__CUDA_ERROR_INVALID_PTX);
    ck_assert_ptr_null(culvert_module_kernel(module, "other", &err));
    ck_assert_int_eq(err.code, CULVERT_ENOTSUP);
    rig_says(&err, "its PTX does not compile");
    ck_assert_int_eq(culvert_gpu_state(r.gpu), CULVERT_GPU_OK);
    culvert_module_unref(module);
}
END_TEST

/* One question too many is an error of the driver's, which tools report. */
START_TEST(the_driver_is_asked_for_no_parameter_that_is_not_there)
{
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    int params = 0;
    for (const culvert_kernel *k = module->kernels; k != NULL; k = k->next)
        params += k->nparams;
    ck_assert_int_eq(params, 0 + 8 + 2 + 2);
    ck_assert_uint_eq(culvert_sim_calls("cuFuncGetParamInfo"), (unsigned)params);
    culvert_module_unref(module);
}
END_TEST

START_TEST(without_a_twin_the_driver_says_where_the_parameters_end)
{
    culvert_image image = culvert_image_launches;
    culvert_sim_fail("cuModuleGetFunction", 3, CULVERT__CUDA_ERROR_NOT_FOUND); /* put */
    culvert_module *module = rig_module(&r, &image);
    image.sim_module = NULL;
    uint64_t calls = culvert_sim_calls("cuFuncGetParamInfo");
    const culvert_kernel *put = culvert_module_kernel(module, "put", NULL);
    ck_assert_ptr_nonnull(put);
    ck_assert_int_eq(put->nparams, 2);
    ck_assert_uint_eq(put->param_sizes[0], 8);
    ck_assert_uint_eq(put->param_sizes[1], 4);
    ck_assert_uint_eq(culvert_sim_calls("cuFuncGetParamInfo"), calls + 3);
    culvert_module_unref(module);
}
END_TEST

START_TEST(a_kernel_that_only_the_twin_has_is_looked_for_when_asked_for)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_fail("cuModuleGetFunction", 3, CULVERT__CUDA_ERROR_NOT_FOUND); /* put */
    culvert_sim_fail("cuModuleGetFunction", KERNELS + 1, CULVERT__CUDA_ERROR_NOT_FOUND);
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    uint64_t calls = culvert_sim_calls("cuModuleGetFunction");
    ck_assert_uint_eq(calls, KERNELS);
    ck_assert_ptr_nonnull(culvert_module_kernel(module, "record_all", NULL));
    ck_assert_uint_eq(culvert_sim_calls("cuModuleGetFunction"), calls);
    ck_assert_ptr_null(culvert_module_kernel(module, "put", &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    culvert_kernel *put = culvert_module_kernel(module, "put", NULL);
    ck_assert_ptr_nonnull(put);
    ck_assert_int_eq(put->nparams, 2);
    ck_assert_ptr_eq(culvert_module_kernel(module, "put", NULL), put);
    culvert_module_unref(module);
}
END_TEST

START_TEST(case_106_each_result_has_its_error)
{
    static const struct {
        int result, code;
        const char *says;
    } rows[] = {
        {CULVERT__CUDA_ERROR_INVALID_IMAGE, CULVERT_ENOTSUP, "CUDA_ERROR_INVALID_IMAGE (200)"},
        {CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU, CULVERT_ENOTSUP, "NO_BINARY_FOR_GPU (209)"},
        {CULVERT__CUDA_ERROR_INVALID_PTX, CULVERT_ENOTSUP, "INVALID_PTX (218)"},
        {CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CULVERT_ENOTSUP, "PTX_VERSION (222)"},
        {CULVERT__CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CULVERT_ENOTSUP, "libnvidia-ptxjitcompiler"},
        {CULVERT__CUDA_ERROR_JIT_COMPILATION_DISABLED, CULVERT_ENOTSUP, "CUDA_DISABLE_PTX_JIT"},
        {CULVERT__CUDA_ERROR_OUT_OF_MEMORY, CULVERT_ENOMEM, "cuModuleLoadDataEx"},
        {CULVERT__CUDA_ERROR_INVALID_CONTEXT, CULVERT_EDRIVER, "INVALID_CONTEXT"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        culvert_sim_fail("cuModuleLoadDataEx", 1, rows[i].result);
        culvert_error err = rig_settle_error(load(), rows[i].code);
        ck_assert_int_eq(err.native, rows[i].result);
        ck_assert_str_eq(err.op, "culvert_module_load");
        rig_says(&err, rows[i].says);
    }
    ck_assert_int_eq(culvert_gpu_state(r.gpu), CULVERT_GPU_OK);
    culvert_module_unref(rig_module(&r, &culvert_image_launches));
}
END_TEST

START_TEST(an_error_after_the_load_unloads)
{
    static const char *const calls[] = {"cuModuleGetFunction", "cuFuncLoad", "cuFuncGetAttribute",
                                        "cuFuncGetParamInfo"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        culvert_sim_fail(calls[i], 2, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
        culvert_error err = rig_settle_error(load(), CULVERT_ENOMEM);
        rig_says(&err, calls[i]);
        ck_assert_uint_eq(culvert_sim_live("module"), 0);
    }
}
END_TEST

START_TEST(a_sticky_error_loses_the_device)
{
    culvert_error err = CULVERT_ERROR_INIT;
    rig_close(&r);
    rig_fresh();
    culvert_sim_devices(2);
    rig_open_device(&r, 1, NULL); /* a loss is for ever: the other tests use device 0 */
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_sim_poison(1, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS);
    err = rig_settle_error(load(), CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(culvert_gpu_state(r.gpu), CULVERT_GPU_LOST);
    uint64_t calls = culvert_sim_calls("cuModuleLoadDataEx");
    rig_settle_error(load(), CULVERT_EDEVICELOST);
    ck_assert_uint_eq(culvert_sim_calls("cuModuleLoadDataEx"), calls);
    ck_assert_ptr_null(culvert_module_kernel(module, "put", &err));
    ck_assert_int_eq(err.code, CULVERT_EDEVICELOST);
    culvert_module_unref(module);
    ck_assert_uint_eq(culvert_sim_calls("cuModuleUnload"), 0);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    ev_loop_destroy(r.ev);
    r.loop = NULL;
    ck_assert_uint_eq(culvert_sim_calls("cuModuleUnload"), 0);
}
END_TEST

static bool loading(void *arg)
{
    return culvert_sim_calls("cuModuleLoadDataEx") > *(uint64_t *)arg;
}

/* A load that is with the driver, and stays there for a while. */
static culvert_future *slow_load(double seconds)
{
    uint64_t before = culvert_sim_calls("cuModuleLoadDataEx");
    culvert_sim_delay("cuModuleLoadDataEx", seconds);
    culvert_future *future = load();
    ck_assert(test_eventually(loading, &before, 60));
    culvert_sim_delay("cuModuleLoadDataEx", 0);
    return future;
}

START_TEST(a_load_that_has_not_begun_is_cancelled_and_never_runs)
{
    int status = CULVERT_PENDING;
    culvert_future *first = slow_load(0.3);
    culvert_future *second = load(), *third = load();
    ck_assert_int_eq(culvert_on_settled(culvert_ref(second), settled, &status, NULL), CULVERT_OK);
    culvert_cancel(second);
    ck_assert_int_eq(culvert_status(second), CULVERT_ECANCELED);
    culvert_unref(second);
    culvert_unref(third); /* nobody wants it: the same */
    rig_settle_ok(first);
    ev_run(r.ev, 0);
    ck_assert_int_eq(status, CULVERT_ECANCELED);
    ck_assert_uint_eq(culvert_sim_calls("cuModuleLoadDataEx"), 1);
}
END_TEST

START_TEST(a_load_that_runs_settles_with_its_outcome_when_cancelled)
{
    culvert_future *future = slow_load(0.2);
    culvert_cancel(future);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    ck_assert_int_eq(culvert_await(future, 60), CULVERT_OK);
    ck_assert_ptr_nonnull(culvert_value(future));
    culvert_unref(future);
}
END_TEST

static bool no_module(void *arg)
{
    (void)arg;
    return culvert_sim_live("module") == 0;
}

START_TEST(a_module_that_nobody_wants_any_more_is_unloaded)
{
    culvert_unref(slow_load(0.2));
    ev_run(r.ev, 0); /* work that has begun is waited for */
    ck_assert_uint_eq(culvert_sim_calls("cuModuleLoadDataEx"), 1);
    ck_assert(test_eventually(no_module, NULL, 60));
    ck_assert_uint_eq(culvert_sim_calls("cuModuleUnload"), 1);
}
END_TEST

START_TEST(loop_free_during_a_load_rejects_and_unloads)
{
    int status[2] = {CULVERT_PENDING, CULVERT_PENDING};
    culvert_on_settled(slow_load(0.3), settled, &status[0], NULL);
    culvert_on_settled(load(), settled, &status[1], NULL);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    r.loop = NULL;
    ck_assert(status[0] == CULVERT_ESHUTDOWN || status[0] == CULVERT_OK);
    ck_assert_int_ne(status[1], CULVERT_PENDING);
    ev_loop_destroy(r.ev);
    rig_nothing_left();
}
END_TEST

/* The load ends after the hub was closed, so that it cannot be posted any more. */
START_TEST(a_load_that_outlasts_close_seconds_is_put_away)
{
    int status = CULVERT_PENDING;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    tear_down();
    rig_fresh();
    rig_open_loop(&r);
    culvert_loop_free(r.loop);
    options.close_seconds = 0.05;
    r.loop = culvert_loop_new(r.ev, &options, NULL);
    r.gpu = culvert_gpu_open(r.loop, 0, NULL, NULL);
    ck_assert_ptr_nonnull(r.gpu);
    culvert_on_settled(slow_load(0.3), settled, &status, NULL);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    r.loop = NULL;
    ck_assert(status == CULVERT_ESHUTDOWN || status == CULVERT_OK);
    ck_assert_uint_eq(culvert_sim_calls("cuModuleUnload"), 1);
    ev_loop_destroy(r.ev);
    rig_nothing_left();
}
END_TEST

START_TEST(a_load_that_waits_when_the_device_is_lost_never_runs)
{
    tear_down();
    rig_fresh();
    culvert_sim_devices(3);
    rig_open_device(&r, 2, NULL);
    culvert_future *first = slow_load(0.3), *second = load();
    culvert_sim_poison(2, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, (size_t)1 << 30, NULL)); /* which finds it out */
    rig_settle_error(first, CULVERT_EDEVICELOST);
    rig_settle_error(second, CULVERT_EDEVICELOST);
    ck_assert_uint_eq(culvert_sim_calls("cuModuleLoadDataEx"), 1);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    ev_loop_destroy(r.ev);
    r.loop = NULL;
}
END_TEST

/* The thread is left alone, and with it all that it holds; but the program goes on. */
START_TEST(loop_free_does_not_hang_behind_a_driver_that_does)
{
    int status = CULVERT_PENDING;
    double before = test_now();
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    tear_down();
    rig_fresh();
    rig_open_loop(&r);
    culvert_loop_free(r.loop);
    options.close_seconds = 0.1;
    r.loop = culvert_loop_new(r.ev, &options, NULL);
    r.gpu = culvert_gpu_open(r.loop, 0, NULL, NULL);
    culvert_on_settled(slow_load(1000), settled, &status, NULL);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    r.loop = NULL;
    ck_assert_int_eq(status, CULVERT_ESHUTDOWN);
    ck_assert(test_now() - before < 100);
    ev_loop_destroy(r.ev);
}
END_TEST

START_TEST(a_module_is_unloaded_behind_its_last_launch)
{
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_kernel *nothing = culvert_module_kernel(module, "nothing", NULL);
    culvert_sim_strict(1);
    culvert_sim_hold(culvert_stream_native(r.stream));
    culvert_future *done = culvert_launch(r.stream, nothing, &one, NULL, 0);
    culvert_module_unref(module);
    ck_assert_uint_eq(culvert_sim_live("module"), 1);
    culvert_sim_release(NULL);
    rig_settle_ok(done);
    rig_settle_ok(culvert_sleep(r.loop, 0));
    ck_assert(test_eventually(no_module, NULL, 60));
}
END_TEST

/* An unload may wait for what runs; the loop's thread does not. */
START_TEST(unloading_is_not_the_loop_s_work)
{
    culvert_module *module = rig_module(&r, &culvert_image_launches);
    culvert_sim_delay("cuModuleUnload", 0.2);
    culvert_module_unref(module);
    ck_assert_uint_eq(culvert_sim_live("module"), 1); /* it has only been asked for */
    culvert_gpu_close(r.gpu);
    r.gpu = NULL;
}
END_TEST

static bool thread_idle(void *arg)
{
    (void)arg;
    return !culvert__driver_thread_busy(r.gpu->driver_thread);
}

static void load_body(void *arg)
{
    (void)arg;
    culvert_future *future = load();
    int status = culvert_await(future, 60);
    ck_assert_msg(status == CULVERT_OK || status == CULVERT_ENOMEM, "%s",
                  culvert_error_name(status));
    culvert_unref(future);
    for (int i = 0; i < 3; i++) { /* what was given to the driver thread comes back */
        ck_assert(test_eventually(thread_idle, NULL, 60));
        ev_run(r.ev, EVRUN_NOWAIT);
    }
    ck_assert_uint_eq(culvert_sim_live("module"), 0);
}

START_TEST(out_of_memory_at_every_allocation)
{
    load_body(NULL); /* the driver thread is there */
    ck_assert_uint_ge(alloc_fail_each(load_body, NULL), 3 + KERNELS * 2);
}
END_TEST

static Suite *module_suite(void)
{
    Suite *suite = suite_create("module");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, a_module_has_its_kernels);
    tcase_add_test(any, a_name_that_is_not_there_is_an_error_that_names_the_module);
    tcase_add_test(any, the_future_s_own_reference_keeps_the_module);
    tcase_add_test(any, an_image_may_be_loaded_twice);
    tcase_add_test(any, the_loop_stays_alive_until_it_is_loaded);
    tcase_add_test(any, what_is_no_image_is_refused);
    tcase_add_test(any, an_image_without_code_for_the_driver_says_how_to_build_it);
    tcase_add_test(any, case_106_what_the_driver_cannot_use_is_told_with_versions_and_log);
    tcase_add_test(any, a_closed_device_loads_nothing_but_ends_what_began);
    tcase_add_test(any, a_module_outlives_the_loop);
    tcase_add_test(any, loop_free_ends_a_load);
    tcase_add_test(any, a_child_after_fork_loads_nothing);
    tcase_add_test(any, null_handles_abort_with_the_name_of_the_call);
    tcase_add_test(any, the_driver_thread_blocks_signals);
    tcase_add_test(any, case_078_loading_breaks_no_capture);
    suite_add_tcase(suite, any);
    if (!rig_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, case_086_kernels_are_loaded_before_their_first_launch);
    tcase_add_test(sim, case_098_without_optional_functions_it_loads_as_well);
    tcase_add_test(sim, case_106_an_error_of_the_compiler_that_comes_late_is_told_as_one);
    tcase_add_test(sim, the_driver_is_asked_for_no_parameter_that_is_not_there);
    tcase_add_test(sim, without_a_twin_the_driver_says_where_the_parameters_end);
    tcase_add_test(sim, a_kernel_that_only_the_twin_has_is_looked_for_when_asked_for);
    tcase_add_test(sim, case_106_each_result_has_its_error);
    tcase_add_test(sim, an_error_after_the_load_unloads);
    tcase_add_test(sim, a_sticky_error_loses_the_device);
    tcase_add_test(sim, a_load_that_waits_when_the_device_is_lost_never_runs);
    tcase_add_test(sim, a_load_that_has_not_begun_is_cancelled_and_never_runs);
    tcase_add_test(sim, a_load_that_runs_settles_with_its_outcome_when_cancelled);
    tcase_add_test(sim, a_module_that_nobody_wants_any_more_is_unloaded);
    tcase_add_test(sim, loop_free_during_a_load_rejects_and_unloads);
    tcase_add_test(sim, a_load_that_outlasts_close_seconds_is_put_away);
    tcase_add_test(sim, a_module_is_unloaded_behind_its_last_launch);
    tcase_add_test(sim, unloading_is_not_the_loop_s_work);
    tcase_add_test(sim, out_of_memory_at_every_allocation);
    suite_add_tcase(suite, sim);
    /* Last: it leaves a thread behind, which a program that goes on (CK_FORK=no) ends with. */
    TCase *hang = tcase_create("hang");
    tcase_add_checked_fixture(hang, set_up, tear_down);
    tcase_add_test(hang, loop_free_does_not_hang_behind_a_driver_that_does);
    suite_add_tcase(suite, hang);
    return suite;
}

int main(void)
{
    Suite *suites[] = {module_suite(), NULL};
    return test_main(suites);
}
