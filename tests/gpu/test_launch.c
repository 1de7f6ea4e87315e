/* SPDX-License-Identifier: BSD-2-Clause */
/* Launches: what is checked, and that what is given arrives. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/launches.h"
#include "gpu/rig.h"
#include "launches.culvert.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <stdio.h>
#include <string.h>

static rig r;
static culvert_module *module;
static culvert_gpu_description limits;

static void set_up(void)
{
    rig_fresh();
    rig_open(&r, NULL);
    module = rig_module(&r, &culvert_image_launches);
    limits.struct_size = sizeof limits;
    ck_assert_int_eq(culvert_gpu_info(r.gpu, &limits), CULVERT_OK);
}

static void tear_down(void)
{
    culvert_module_unref(module);
    module = NULL;
    rig_close(&r);
}

static culvert_kernel *kernel(const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_kernel *k = culvert_module_kernel(module, name, &err);
    ck_assert_msg(k != NULL, "%s", err.message);
    return k;
}

static culvert_buffer *buffer(size_t bytes)
{
    culvert_buffer *b = culvert_buffer_new(r.gpu, bytes, NULL);
    ck_assert_ptr_nonnull(b);
    return b;
}

static const culvert_grid one = {.blocks = {1}, .threads = {1}};

/* A launch of `nothing` that must be refused. */
static culvert_error refused(culvert_grid grid)
{
    culvert_error err =
        rig_settle_error(culvert_launch(r.stream, kernel("nothing"), &grid, NULL, 0),
                         CULVERT_EINVAL);
    rig_says(&err, "kernel nothing");
    return err;
}

/* ---- arguments arrive ---- */

START_TEST(values_of_every_size_arrive)
{
    culvert_buffer *out = buffer(sizeof(launches_record));
    launches_odd odd = {.tag = 'c', .number = 1.5, .list = {1, 2, 3, 4, -5}};
    unsigned char byte = 200;
    culvert_grid grid = {.blocks = {3, 2}, .threads = {8, 1, 4}};
    rig_settle_ok(
        culvert_launch(r.stream, kernel("record_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_I32(-7), CULVERT_F64(0.1),
                                    CULVERT_VALUE(odd), CULVERT_VALUE(byte), CULVERT_F32(0.25f),
                                    CULVERT_I64(INT64_MIN), CULVERT_BUFFER_AT(out, 24))));
    launches_record got;
    rig_settle_ok(culvert_download(r.stream, &got, out, 0, sizeof got));
    ck_assert_int_eq(got.small, -7);
    ck_assert(got.number == 0.1 && got.odd_number == 1.5 && got.single == 0.25f);
    ck_assert_int_eq(got.odd_tag, 'c');
    ck_assert_int_eq(got.odd_last, -5);
    ck_assert_uint_eq(got.byte, 200);
    ck_assert(got.big == INT64_MIN);
    ck_assert_uint_eq(got.pointer, culvert_buffer_address(out) + 24);
    const unsigned blocks[3] = {3, 2, 1}, threads[3] = {8, 1, 4};
    ck_assert_mem_eq(got.blocks, blocks, sizeof blocks);
    ck_assert_mem_eq(got.threads, threads, sizeof threads);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(no_buffer_is_a_null_pointer)
{
    culvert_buffer *out = buffer(sizeof(launches_record));
    launches_odd odd = {0};
    char byte = 0;
    launches_record got;
    rig_settle_ok(
        culvert_launch(r.stream, kernel("record_all"), &one,
                       CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(0), CULVERT_F64(0),
                                    CULVERT_VALUE(odd), CULVERT_VALUE(byte), CULVERT_F32(0),
                                    CULVERT_U64(0), CULVERT_BUFFER(NULL))));
    rig_settle_ok(culvert_download(r.stream, &got, out, 0, sizeof got));
    ck_assert_uint_eq(got.pointer, 0);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(a_kernel_reaches_host_buffers)
{
    culvert_buffer *host = culvert_host_buffer_new(r.gpu, 64, NULL);
    memset(culvert_buffer_data(host), 0, 64);
    rig_settle_ok(culvert_launch(r.stream, kernel("put"), &one,
                                 CULVERT_ARGS(CULVERT_BUFFER_AT(host, 60), CULVERT_U32(77))));
    ck_assert_uint_eq(((unsigned *)culvert_buffer_data(host))[15], 77);
    culvert_buffer_unref(host);
}
END_TEST

/* The launch is put off until a promise is kept; by then the caller's values are others
   (cudarc#29). */
START_TEST(case_100_arguments_are_copied_at_the_call)
{
    culvert_buffer *out = buffer(4);
    culvert_future *gate;
    culvert_promise *promise = culvert_promise_new(r.loop, &gate);
    unsigned value = 5, got = 0;
    culvert_arg args[2] = {CULVERT_BUFFER(out), CULVERT_VALUE(value)};
    culvert_seq *seq = culvert_seq_begin(r.stream);
    culvert_seq_wait(seq, gate);
    culvert_seq_launch(seq, kernel("put"), &one, args, 2);
    culvert_future *done = culvert_seq_submit(seq);
    value = 6;
    memset(args, 0xff, sizeof args);
    culvert_resolve(promise, NULL, NULL);
    rig_settle_ok(done);
    rig_settle_ok(culvert_download(r.stream, &got, out, 0, 4));
    ck_assert_uint_eq(got, 5);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(the_work_holds_buffers_and_module)
{
    culvert_future *gate;
    culvert_promise *promise = culvert_promise_new(r.loop, &gate);
    culvert_buffer *out = culvert_host_buffer_new(r.gpu, 4, NULL);
    culvert_buffer *other = buffer(1024);
    culvert_seq *seq = culvert_seq_begin(r.stream);
    culvert_seq_wait(seq, gate);
    culvert_seq_launch(seq, kernel("put"), &one, CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(9)));
    culvert_seq_launch(seq, kernel("put"), &one,
                       CULVERT_ARGS(CULVERT_BUFFER(other), CULVERT_U32(9)));
    culvert_future *done = culvert_seq_submit(seq);
    culvert_module_unref(module);
    module = NULL;
    culvert_buffer_unref(other);
    ck_assert_uint_eq(culvert__heap_used(r.gpu->memory->local), 1024);
    culvert_resolve(promise, NULL, NULL);
    rig_settle_ok(done);
    ck_assert_uint_eq(*(unsigned *)culvert_buffer_data(out), 9);
    rig_settle_ok(culvert_sleep(r.loop, 0)); /* what the sequence held goes on a later turn */
    ck_assert_uint_eq(culvert__heap_used(r.gpu->memory->local), 0);
    culvert_buffer_unref(out);
}
END_TEST

/* ---- arguments that are wrong ---- */

/* cuLaunchKernel would read behind the array (aprender#2060). */
START_TEST(case_097_too_few_or_too_many_arguments_are_refused)
{
    culvert_buffer *out = buffer(64);
    const culvert_arg args[3] = {CULVERT_BUFFER(out), CULVERT_U32(1), CULVERT_U32(2)};
    if (kernel("put")->nparams >= 0) {
        for (size_t n = 0; n <= 3; n++) {
            if (n == 2)
                continue;
            culvert_error err =
                rig_settle_error(culvert_launch(r.stream, kernel("put"), &one, args, n),
                                 CULVERT_EINVAL);
            rig_says(&err, "kernel put has 2 parameters");
            rig_says(&err, n == 0   ? "0 arguments were given"
                           : n == 1 ? "1 argument was given"
                                    : "3 arguments were given");
            ck_assert_ptr_nonnull(strstr(err.where, "test_launch.c:"));
        }
    }
    culvert_error err =
        rig_settle_error(culvert_launch(r.stream, kernel("put"), &one, NULL, 2), CULVERT_EINVAL);
    rig_says(&err, "args is NULL for 2 arguments");
    culvert_buffer_unref(out);
}
END_TEST

static void wrong_argument(size_t i, culvert_arg arg, const char *says)
{
    culvert_buffer *out = buffer(64);
    culvert_arg args[2] = {CULVERT_BUFFER(out), CULVERT_U32(1)};
    args[i] = arg;
    culvert_error err =
        rig_settle_error(culvert_launch(r.stream, kernel("put"), &one, args, 2), CULVERT_EINVAL);
    char which[40];
    snprintf(which, sizeof which, "argument %zu of kernel put", i);
    rig_says(&err, which);
    rig_says(&err, says);
    culvert_buffer_unref(out);
}

START_TEST(arguments_of_the_wrong_size_are_refused)
{
    culvert_arg bad = CULVERT_U32(1);
    double wide = 1;
    if (kernel("put")->nparams < 0)
        return;
    wrong_argument(1, CULVERT_U64(1), "has 8 bytes; the parameter has 4");
    wrong_argument(1, CULVERT_VALUE(wide), "has 8 bytes; the parameter has 4");
    wrong_argument(0, CULVERT_U32(1), "has 4 bytes; the parameter has 8");
    bad.bytes = 9;
    wrong_argument(1, bad, "an inline value of 9 bytes");
    bad.bytes = 0;
    wrong_argument(1, bad, "an inline value of 0 bytes");
    bad.kind = 0;
    wrong_argument(1, bad, "kind 0");
    bad = culvert_arg_value(NULL, 4);
    wrong_argument(1, bad, "4 bytes at NULL");
    bad = culvert_arg_value(&wide, 0);
    wrong_argument(1, bad, "0 bytes");
}
END_TEST

START_TEST(offsets_past_the_end_are_refused)
{
    culvert_buffer *small = buffer(10000);
    wrong_argument(0, CULVERT_BUFFER_AT(small, 10001),
                   "offset 10001 is past the end of a 10000-byte buffer");
    wrong_argument(0, CULVERT_BUFFER_AT(small, SIZE_MAX), "is past the end");
    wrong_argument(0, CULVERT_BUFFER_AT(NULL, 16), "offset 16 into no buffer");
    culvert_buffer_unref(small);
}
END_TEST

/* ---- grids that are wrong ---- */

START_TEST(case_090_no_blocks_are_nothing_to_do)
{
    culvert_grid none = {.threads = {32}};
    culvert_buffer *out = buffer(4);
    unsigned got = 0;
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &none, NULL, 0));
    culvert_seq *seq = culvert_seq_begin(r.stream);
    culvert_seq_launch(seq, kernel("put"), &one, CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(1)));
    culvert_seq_launch(seq, kernel("put"), &none,
                       CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(2)));
    rig_settle_ok(culvert_seq_submit(seq));
    rig_settle_ok(culvert_download(r.stream, &got, out, 0, 4));
    ck_assert_uint_eq(got, 1);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuLaunchKernel"), 1);
    /* All else is checked as ever. */
    none.threads[0] = 0;
    culvert_error err = refused(none);
    rig_says(&err, "threads[0] is 0");
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(no_threads_are_an_error)
{
    culvert_error err = refused((culvert_grid){.blocks = {1}, .threads = {0, 5, 5}});
    rig_says(&err, "grid.threads[0] is 0");
}
END_TEST

/* Asked of the device, not known by heart; and it is said which one it was (mlx#2267). */
START_TEST(case_094_limits_are_named_with_the_figures)
{
    static const char axis[3] = {'x', 'y', 'z'};
    for (int i = 0; i < 3; i++) {
        char says[64];
        if (limits.max_grid[i] < UINT32_MAX) {
            culvert_grid grid = one;
            grid.blocks[i] = limits.max_grid[i] + 1;
            culvert_error err = refused(grid);
            snprintf(says, sizeof says, "limit in %c is %u", axis[i], limits.max_grid[i]);
            rig_says(&err, "a grid of");
            rig_says(&err, says);
        }
        culvert_grid grid = one;
        grid.threads[i] = limits.max_block[i] + 1;
        culvert_error err = refused(grid);
        snprintf(says, sizeof says, "limit in %c is %u", axis[i], limits.max_block[i]);
        rig_says(&err, "a block of");
        rig_says(&err, says);
    }
    culvert_grid most = {.blocks = {1}, .threads = {limits.max_block[0]}};
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &most, NULL, 0));
}
END_TEST

START_TEST(a_block_has_a_limit_as_a_whole)
{
    culvert_grid grid = {.blocks = {1}, .threads = {limits.max_threads_per_block / 2, 2, 2}};
    culvert_error err = refused(grid);
    char says[64];
    snprintf(says, sizeof says, "device's limit is %u", limits.max_threads_per_block);
    rig_says(&err, says);
    grid = (culvert_grid){.blocks = {1}};
    memcpy(grid.threads, limits.max_block, sizeof grid.threads);
    refused(grid);
    kernel("nothing")->max_threads = 96; /* as a kernel that needs many registers has */
    grid = (culvert_grid){.blocks = {1}, .threads = {97}};
    err = refused(grid);
    rig_says(&err, "a block of 97 x 1 x 1 threads is too large: this kernel's limit is 96");
    grid.threads[0] = 96;
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &grid, NULL, 0));
}
END_TEST

START_TEST(members_for_later_must_be_zero)
{
    culvert_grid grid = one;
    grid.flags = 2;
    culvert_error err = refused(grid);
    rig_says(&err, "grid.flags is 0x2");
    for (int i = 0; i < 3; i++) {
        char says[40];
        grid = one;
        grid.reserved[i] = 1;
        err = refused(grid);
        snprintf(says, sizeof says, "grid.reserved[%d] is 1", i);
        rig_says(&err, says);
    }
}
END_TEST

/* ---- shared memory ---- */

static void sum_shared(unsigned bytes)
{
    culvert_buffer *out = buffer(4);
    culvert_grid grid = {.blocks = {1}, .threads = {64}, .shared_bytes = bytes};
    unsigned words = bytes / 4, got = 0;
    rig_settle_ok(culvert_launch(r.stream, kernel("shared_words"), &grid,
                                 CULVERT_ARGS(CULVERT_U32(words), CULVERT_BUFFER(out))));
    rig_settle_ok(culvert_download(r.stream, &got, out, 0, 4));
    ck_assert_uint_eq(got, words == 0 ? 0 : (unsigned)((uint64_t)words * (words - 1) / 2));
    culvert_buffer_unref(out);
}

START_TEST(much_shared_memory_is_opted_in_to)
{
    sum_shared(0);
    sum_shared(48 * 1024);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuFuncSetAttribute"), 0);
    if (limits.max_shared_optin_bytes <= 48 * 1024)
        return;
    unsigned more = limits.max_shared_optin_bytes - 1024;
    sum_shared(more);
    sum_shared(more);
    sum_shared(48 * 1024 + 4);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuFuncSetAttribute"), 1);
    sum_shared(limits.max_shared_optin_bytes);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuFuncSetAttribute"), 2);
}
END_TEST

START_TEST(too_much_shared_memory_is_refused)
{
    unsigned most = limits.max_shared_optin_bytes;
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = most + 1};
    culvert_error err = refused(grid);
    char says[96];
    snprintf(says, sizeof says, "%u bytes of dynamic", most + 1);
    rig_says(&err, says);
    snprintf(says, sizeof says, "limit of %u bytes", most);
    rig_says(&err, says);
    grid.shared_bytes = UINT32_MAX;
    refused(grid);
}
END_TEST

/* ---- the rest ---- */

START_TEST(the_first_error_stays_and_nothing_runs)
{
    culvert_buffer *out = culvert_host_buffer_new(r.gpu, 4, NULL);
    memset(culvert_buffer_data(out), 0, 4);
    culvert_seq *seq = culvert_seq_begin(r.stream);
    culvert_seq_launch(seq, kernel("put"), &one, CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(1)));
    culvert_seq_launch(seq, kernel("put"), &one, CULVERT_ARGS(CULVERT_BUFFER(out)));
    culvert_seq_launch(seq, kernel("nothing"), &(culvert_grid){.blocks = {1}}, NULL, 0);
    culvert_error err = rig_settle_error(culvert_seq_submit(seq), CULVERT_EINVAL);
    rig_says(&err, "kernel put has 2 parameters");
    ck_assert_uint_eq(*(unsigned *)culvert_buffer_data(out), 0);
    culvert_buffer_unref(out);
}
END_TEST

static void launch_body(void *arg)
{
    culvert_buffer *out = arg;
    culvert_future *f = culvert_launch(r.stream, kernel("put"), &one,
                                       CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(4)));
    int status = culvert_await(f, 60);
    ck_assert(status == CULVERT_OK || status == CULVERT_ENOMEM);
    culvert_unref(f);
}

START_TEST(out_of_memory_at_every_allocation)
{
    culvert_buffer *out = buffer(4);
    launch_body(out);
    alloc_fail_this_thread(true);
    alloc_fail_each(launch_body, out);
    alloc_fail_this_thread(false);
    culvert_buffer_unref(out);
}
END_TEST

/* ---- the simulator ---- */

/* Drivers before 12.4 do not tell; the host-built twin of the image does. */
START_TEST(case_098_without_cuFuncGetParamInfo_launches_are_checked_by_the_twin)
{
    static culvert__driver older;
    const culvert__driver *driver = r.gpu->drv;
    older = *driver;
    older.cuFuncGetParamInfo = NULL;
    r.gpu->drv = &older;
    culvert_module_unref(module);
    module = rig_module(&r, &culvert_image_launches);
    ck_assert_int_eq(kernel("record_all")->nparams, 8);
    ck_assert_int_eq(kernel("nothing")->nparams, 0);
    culvert_buffer *out = buffer(4);
    culvert_error err = rig_settle_error(culvert_launch(r.stream, kernel("put"), &one,
                                                        CULVERT_ARGS(CULVERT_BUFFER(out))),
                                         CULVERT_EINVAL);
    rig_says(&err, "kernel put has 2 parameters");
    rig_settle_ok(culvert_launch(r.stream, kernel("put"), &one,
                                 CULVERT_ARGS(CULVERT_BUFFER(out), CULVERT_U32(3))));
    /* And where nobody knows, they are not checked. */
    kernel("nothing")->nparams = -1;
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &one, NULL, 0));
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &one, CULVERT_ARGS(CULVERT_U32(3))));
    const culvert_arg many[2] = {{.kind = 1}, {.kind = 1}};
    err = rig_settle_error(culvert_launch(r.stream, kernel("nothing"), &one, many, 40000),
                           CULVERT_EINVAL);
    rig_says(&err, "40000 arguments");
    r.gpu->drv = driver;
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(a_kernel_or_buffer_of_another_device_is_refused)
{
    tear_down();
    rig_fresh();
    culvert_sim_devices(2);
    rig_open(&r, NULL);
    module = rig_module(&r, &culvert_image_launches);
    culvert_gpu *second = culvert_gpu_open(r.loop, 1, NULL, NULL);
    culvert_stream *stream = culvert_stream_new(second, NULL, NULL);
    culvert_buffer *here = buffer(64), *there = culvert_buffer_new(second, 64, NULL);
    culvert_error err =
        rig_settle_error(culvert_launch(r.stream, kernel("put"), &one,
                                        CULVERT_ARGS(CULVERT_BUFFER(there), CULVERT_U32(1))),
                         CULVERT_EINVAL);
    rig_says(&err, "argument 0 of kernel put: the buffer is of device 1, the stream of device 0");
    err = rig_settle_error(culvert_launch(stream, kernel("put"), &one,
                                          CULVERT_ARGS(CULVERT_BUFFER(there), CULVERT_U32(1))),
                           CULVERT_EINVAL);
    rig_says(&err, "kernel put was loaded for device 0");
    rig_says(&err, "the stream is of device 1");
    culvert_buffer_unref(here);
    culvert_buffer_unref(there);
    culvert_stream_unref(stream);
    culvert_gpu_close(second);
}
END_TEST

START_TEST(a_kernel_of_another_binding_is_refused)
{
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *loop = culvert_loop_new(ev, NULL, NULL);
    culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, NULL);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, NULL);
    culvert_future *future = culvert_launch(stream, kernel("nothing"), &one, NULL, 0);
    ck_assert_int_eq(culvert_await(future, 30), CULVERT_EINVAL);
    rig_says(culvert_get_error(future), "kernel nothing was loaded by another binding");
    culvert_unref(future);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

START_TEST(an_opt_in_that_fails_is_the_sequence_s_error)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 64 * 1024};
    culvert_sim_fail("cuFuncSetAttribute", 1, CULVERT__CUDA_ERROR_INVALID_VALUE);
    culvert_error err =
        rig_settle_error(culvert_launch(r.stream, kernel("nothing"), &grid, NULL, 0),
                         CULVERT_EDRIVER);
    rig_says(&err, "cuFuncSetAttribute");
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_INVALID_VALUE);
    rig_settle_ok(culvert_launch(r.stream, kernel("nothing"), &grid, NULL, 0));
}
END_TEST

static Suite *launch_suite(void)
{
    Suite *suite = suite_create("launch");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, values_of_every_size_arrive);
    tcase_add_test(any, no_buffer_is_a_null_pointer);
    tcase_add_test(any, a_kernel_reaches_host_buffers);
    tcase_add_test(any, case_100_arguments_are_copied_at_the_call);
    tcase_add_test(any, the_work_holds_buffers_and_module);
    tcase_add_test(any, case_097_too_few_or_too_many_arguments_are_refused);
    tcase_add_test(any, arguments_of_the_wrong_size_are_refused);
    tcase_add_test(any, offsets_past_the_end_are_refused);
    tcase_add_test(any, case_090_no_blocks_are_nothing_to_do);
    tcase_add_test(any, no_threads_are_an_error);
    tcase_add_test(any, case_094_limits_are_named_with_the_figures);
    tcase_add_test(any, a_block_has_a_limit_as_a_whole);
    tcase_add_test(any, members_for_later_must_be_zero);
    tcase_add_test(any, much_shared_memory_is_opted_in_to);
    tcase_add_test(any, too_much_shared_memory_is_refused);
    tcase_add_test(any, the_first_error_stays_and_nothing_runs);
    tcase_add_test(any, out_of_memory_at_every_allocation);
    suite_add_tcase(suite, any);
    if (!rig_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, case_098_without_cuFuncGetParamInfo_launches_are_checked_by_the_twin);
    tcase_add_test(sim, a_kernel_or_buffer_of_another_device_is_refused);
    tcase_add_test(sim, a_kernel_of_another_binding_is_refused);
    tcase_add_test(sim, an_opt_in_that_fails_is_the_sequence_s_error);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {launch_suite(), NULL};
    return test_main(suites);
}
