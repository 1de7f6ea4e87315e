/* SPDX-License-Identifier: BSD-2-Clause */
/* Cooperative launches, clusters, occupancy, and variables of modules. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/rig.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "shapes.culvert.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static rig r;
static culvert_module *module;
static culvert_gpu_description limits;

static void set_up(void)
{
    rig_fresh();
    rig_open(&r, NULL);
    module = rig_module(&r, &culvert_image_shapes);
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

static culvert_buffer *host(size_t bytes)
{
    culvert_buffer *b = culvert_host_buffer_new(r.gpu, bytes, NULL);
    ck_assert_ptr_nonnull(b);
    memset(culvert_buffer_data(b), 0, bytes);
    return b;
}

static const unsigned *words(const culvert_buffer *b)
{
    return culvert_buffer_data(b);
}

/* A launch of `meet` that must be refused. */
static culvert_error refused(culvert_grid grid)
{
    culvert_future *f = culvert_launch(r.stream, kernel("meet"), &grid,
                                       CULVERT_ARGS(CULVERT_BUFFER(NULL), CULVERT_BUFFER(NULL)));
    culvert_error err = rig_settle_error(f, CULVERT_EINVAL);
    rig_says(&err, "kernel meet");
    return err;
}

/* ---- cooperative ---- */

START_TEST(blocks_of_a_cooperative_launch_wait_for_each_other)
{
    enum { BLOCKS = 24 };
    culvert_buffer *came = host(4), *seen = host(BLOCKS * 4);
    culvert_grid grid = {.blocks = {BLOCKS}, .threads = {64}, .flags = CULVERT_GRID_COOPERATIVE};
    for (int i = 0; i < 3; i++) {
        rig_settle_ok(culvert_fill(r.stream, came, 0, 4, 0, 4));
        rig_settle_ok(culvert_launch(r.stream, kernel("meet"), &grid,
                                     CULVERT_ARGS(CULVERT_BUFFER(came), CULVERT_BUFFER(seen))));
        for (int b = 0; b < BLOCKS; b++)
            ck_assert_uint_eq(words(seen)[b], BLOCKS);
    }
    if (rig_simulated()) {
        ck_assert_uint_eq(culvert_sim_calls("cuLaunchKernelEx"), 3);
        ck_assert_uint_eq(culvert_sim_calls("cuLaunchKernel"), 0);
        /* The same sizes again and again are asked about once. */
        ck_assert_uint_eq(culvert_sim_calls("cuOccupancyMaxActiveBlocksPerMultiprocessor"), 1);
    }
    culvert_buffer_unref(came);
    culvert_buffer_unref(seen);
}
END_TEST

START_TEST(more_blocks_than_run_at_once_are_refused_with_the_figures)
{
    unsigned most = 0;
    char says[96];
    ck_assert_int_eq(culvert_kernel_max_blocks(kernel("meet"), 1024, 0, &most), CULVERT_OK);
    ck_assert_uint_ge(most, limits.multiprocessors);
    culvert_grid grid = {.blocks = {most + 1},
                         .threads = {1024},
                         .flags = CULVERT_GRID_COOPERATIVE};
    culvert_error err = refused(grid);
    snprintf(says, sizeof says, "a cooperative launch of %u x 1 x 1 blocks is too large", most + 1);
    rig_says(&err, says);
    snprintf(says, sizeof says, "%u blocks of 1024 threads", most);
    rig_says(&err, says);
    memcpy(grid.blocks, (unsigned[3]){65535, 65535, 65535}, sizeof grid.blocks);
    refused(grid); /* the product is above 2^32 */
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuLaunchKernelEx"), 0);
    /* None at all are nothing to do. */
    grid = (culvert_grid){.threads = {1024}, .flags = CULVERT_GRID_COOPERATIVE};
    rig_settle_ok(culvert_launch(r.stream, kernel("meet"), &grid,
                                 CULVERT_ARGS(CULVERT_BUFFER(NULL), CULVERT_BUFFER(NULL))));
}
END_TEST

START_TEST(flags_that_are_not_known_are_refused)
{
    culvert_error err = refused((culvert_grid){.blocks = {1}, .threads = {1}, .flags = 4});
    rig_says(&err, "grid.flags is 0x4");
    rig_says(&err, "CULVERT_GRID_COOPERATIVE (0x1) is the only flag");
}
END_TEST

/* ---- clusters ---- */

START_TEST(a_cluster_reaches_the_kernel)
{
    if (limits.compute_major < 9)
        return;
    culvert_buffer *out = host((size_t)6 * 4 * 8 * 4);
    culvert_grid grid = {.blocks = {6, 4}, .threads = {32}, .cluster = {3, 2}};
    rig_settle_ok(culvert_launch(r.stream, kernel("cluster_shape"), &grid,
                                 CULVERT_ARGS(CULVERT_BUFFER(out))));
    for (unsigned y = 0; y < 4; y++) {
        for (unsigned x = 0; x < 6; x++) {
            const unsigned want[8] = {3, 2, x % 3, y % 2, x / 3, y / 2, x % 3 + 3 * (y % 2), 2};
            ck_assert_mem_eq(words(out) + 8 * (y * 6 + x), want, sizeof want);
        }
    }
    /* Both at once, and without: the block is its own cluster. */
    grid.flags = CULVERT_GRID_COOPERATIVE;
    rig_settle_ok(culvert_launch(r.stream, kernel("cluster_shape"), &grid,
                                 CULVERT_ARGS(CULVERT_BUFFER(out))));
    ck_assert_uint_eq(words(out)[0], 3);
    grid = (culvert_grid){.blocks = {6, 4}, .threads = {32}};
    rig_settle_ok(culvert_launch(r.stream, kernel("cluster_shape"), &grid,
                                 CULVERT_ARGS(CULVERT_BUFFER(out))));
    ck_assert_uint_eq(words(out)[0], 1);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuLaunchKernelEx"), 2);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(clusters_that_do_not_fit_are_refused_with_the_figures)
{
    if (limits.compute_major < 9) {
        culvert_error no = refused((culvert_grid){.blocks = {8}, .threads = {1}, .cluster = {2}});
        rig_says(&no, "has no clusters");
        return;
    }
    culvert_error err =
        refused((culvert_grid){.blocks = {8, 3}, .threads = {1}, .cluster = {2, 2}});
    rig_says(&err, "a grid of 3 blocks in y is no multiple of a cluster's 2");
    err = refused((culvert_grid){.blocks = {16}, .threads = {1}, .cluster = {16}});
    rig_says(&err, "a cluster of 16 x 1 x 1 blocks is too large: the limit is 8");
    err = refused((culvert_grid){.blocks = {4, 4}, .threads = {1}, .cluster = {4, 4}});
    rig_says(&err, "a cluster of 4 x 4 x 1 blocks is too large");
    err = refused((culvert_grid){.blocks = {65536}, .threads = {1}, .cluster = {65536}});
    rig_says(&err, "is too large");
    err = refused((culvert_grid){.blocks = {8}, .threads = {1}, .cluster = {0, 2}});
    rig_says(&err, "grid.cluster is 0 x 2 x 0");
}
END_TEST

START_TEST(a_device_without_clusters_or_cooperative_launches_says_so)
{
    bool clusters = r.gpu->device->has_clusters, cooperative = r.gpu->device->has_cooperative;
    ck_assert(cooperative);
    ck_assert_int_eq(clusters, limits.compute_major >= 9);
    r.gpu->device->has_clusters = r.gpu->device->has_cooperative = false;
    culvert_error err = refused((culvert_grid){.blocks = {8}, .threads = {1}, .cluster = {2}});
    rig_says(&err, "has no clusters; they begin with 9.0");
    err = refused((culvert_grid){.blocks = {8}, .threads = {1}, .flags = CULVERT_GRID_COOPERATIVE});
    rig_says(&err, "has no cooperative launches");
    r.gpu->device->has_clusters = clusters;
    r.gpu->device->has_cooperative = cooperative;
}
END_TEST

/* ---- occupancy ---- */

START_TEST(occupancy_gives_a_size_that_can_be_launched)
{
    unsigned blocks = 0, threads = 0, most = 0;
    culvert_buffer *out = host(4);
    ck_assert_int_eq(culvert_kernel_occupancy(kernel("shared_sum"), 1024, &blocks, &threads),
                     CULVERT_OK);
    ck_assert_uint_gt(threads, 0);
    ck_assert_uint_eq(threads % limits.warp_size, 0);
    ck_assert_uint_ge(blocks, limits.multiprocessors);
    ck_assert_int_eq(culvert_kernel_max_blocks(kernel("shared_sum"), threads, 1024, &most),
                     CULVERT_OK);
    ck_assert_uint_eq(most, blocks);
    culvert_grid grid = {.blocks = {2}, .threads = {threads}, .shared_bytes = 1024};
    rig_settle_ok(culvert_launch(r.stream, kernel("shared_sum"), &grid,
                                 CULVERT_ARGS(CULVERT_U32(256), CULVERT_BUFFER(out))));
    ck_assert_uint_eq(words(out)[0], 2 * 255 * 256 / 2);
    ck_assert_int_eq(culvert_kernel_occupancy(kernel("shared_sum"), 0, NULL, NULL), CULVERT_OK);
    culvert_buffer_unref(out);
}
END_TEST

/* The driver answers 0 for what the function is not allowed yet. */
START_TEST(occupancy_with_much_shared_memory_opts_in_first)
{
    unsigned blocks = 0, threads = 0, most = 0;
    if (limits.max_shared_optin_bytes <= 64 * 1024)
        return;
    size_t all = limits.max_shared_optin_bytes - 1024;
    ck_assert_int_eq(culvert_kernel_occupancy(kernel("shared_sum"), all, &blocks, &threads),
                     CULVERT_OK);
    ck_assert_uint_eq(blocks, limits.multiprocessors); /* one each */
    ck_assert_int_eq(culvert_kernel_max_blocks(kernel("shared_sum"), 32, all, &most), CULVERT_OK);
    ck_assert_uint_eq(most, limits.multiprocessors);
    culvert_buffer *out = host(4);
    culvert_grid grid = {.blocks = {1},
                         .threads = {64},
                         .shared_bytes = (unsigned)all,
                         .flags = CULVERT_GRID_COOPERATIVE};
    rig_settle_ok(
        culvert_launch(r.stream, kernel("shared_sum"), &grid,
                       CULVERT_ARGS(CULVERT_U32((unsigned)all / 4), CULVERT_BUFFER(out))));
    unsigned want = 0;
    for (unsigned i = 0; i < all / 4; i++)
        want += i & 255u;
    ck_assert_uint_eq(words(out)[0], want);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(occupancy_of_what_cannot_be_launched_is_an_error)
{
    unsigned blocks = 77, threads = 77;
    culvert_kernel *k = kernel("meet");
    size_t most = limits.max_shared_optin_bytes > limits.max_shared_bytes
                      ? limits.max_shared_optin_bytes
                      : limits.max_shared_bytes;
    ck_assert_int_eq(culvert_kernel_occupancy(k, most + 1, &blocks, &threads), CULVERT_EINVAL);
    ck_assert_int_eq(culvert_kernel_occupancy(k, SIZE_MAX, &blocks, &threads), CULVERT_EINVAL);
    ck_assert_int_eq(culvert_kernel_max_blocks(k, 0, 0, &blocks), CULVERT_EINVAL);
    ck_assert_int_eq(culvert_kernel_max_blocks(k, limits.max_threads_per_block + 1, 0, &blocks),
                     CULVERT_EINVAL);
    ck_assert_int_eq(culvert_kernel_max_blocks(k, 32, most + 1, &blocks), CULVERT_EINVAL);
    ck_assert_uint_eq(blocks, 77);
    ck_assert_uint_eq(threads, 77);
}
END_TEST

START_TEST(a_closed_device_answers_nothing)
{
    unsigned blocks, threads;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_kernel *k = kernel("meet");
    culvert_gpu_close(r.gpu);
    r.gpu = NULL;
    ck_assert_int_eq(culvert_kernel_occupancy(k, 0, &blocks, &threads), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(culvert_kernel_max_blocks(k, 32, 0, &blocks), CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(culvert_module_global(module, "table", &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
}
END_TEST

/* ---- variables ---- */

static culvert_buffer *variable(const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *b = culvert_module_global(module, name, &err);
    ck_assert_msg(b != NULL, "%s", err.message);
    return b;
}

START_TEST(a_variable_is_read_and_written)
{
    culvert_buffer *table = variable("table"), *factor = variable("factor");
    culvert_buffer *counter = variable("counter"), *out = host(16);
    unsigned got[4], by = 3;
    const unsigned values[4] = {5, 6, 7, 8};
    unsigned long long launches = 0;
    ck_assert_uint_eq(culvert_buffer_size(table), 16);
    ck_assert_uint_eq(culvert_buffer_size(factor), 4);
    ck_assert_uint_eq(culvert_buffer_size(counter), 8);
    ck_assert_ptr_null(culvert_buffer_data(table));
    culvert_grid grid = {.blocks = {1}, .threads = {4}};
    culvert_seq *seq = culvert_seq_begin(r.stream);
    culvert_seq_upload(seq, table, 0, values, sizeof values);
    culvert_seq_upload(seq, factor, 0, &by, 4);
    culvert_seq_fill(seq, counter, 0, 8, 0, 4);
    culvert_seq_launch(seq, kernel("use_table"), &grid, CULVERT_ARGS(CULVERT_BUFFER(out)));
    culvert_seq_launch(seq, kernel("use_table"), &grid, CULVERT_ARGS(CULVERT_BUFFER(out)));
    culvert_seq_download(seq, got, table, 0, sizeof got);
    culvert_seq_download(seq, &launches, counter, 0, 8);
    rig_settle_ok(culvert_seq_submit(seq));
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(words(out)[i], values[i] * 3);
    ck_assert_mem_eq(got, values, sizeof got);
    ck_assert_uint_eq(launches, 2);
    /* It is a buffer as any other, for bounds too. */
    culvert_error err =
        rig_settle_error(culvert_download(r.stream, got, table, 8, 16), CULVERT_EINVAL);
    rig_says(&err, "past the end of a 16-byte buffer");
    culvert_buffer_unref(out);
    culvert_buffer_unref(counter);
    culvert_buffer_unref(factor);
    culvert_buffer_unref(table);
}
END_TEST

START_TEST(a_variable_that_is_not_there_is_an_error_that_names_the_module)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert_module_global(module, "tables", &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_module_global");
    ck_assert_ptr_nonnull(strstr(err.where, "test_launch_kinds.c:"));
    rig_says(&err, "module shapes has no variable tables");
    rig_says(&err, "CULVERT_GLOBAL(tables)");
    ck_assert_ptr_null(culvert_module_global(module, "", NULL));
}
END_TEST

START_TEST(a_variable_holds_its_module)
{
    culvert_buffer *table = variable("table");
    unsigned got[4] = {0};
    culvert_module_unref(module);
    module = NULL;
    rig_settle_ok(culvert_fill(r.stream, table, 0, 16, 9, 4));
    rig_settle_ok(culvert_download(r.stream, got, table, 0, 16));
    ck_assert_uint_eq(got[3], 9);
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_live("module"), 1);
    culvert_buffer_unref(table);
}
END_TEST

static void *drop(void *buffer)
{
    culvert_buffer_unref(buffer);
    return NULL;
}

START_TEST(a_variable_is_released_on_another_thread)
{
    pthread_t thread;
    culvert_buffer *table = variable("table"), *again = variable("table");
    ck_assert_uint_eq(culvert_buffer_address(table), culvert_buffer_address(again));
    culvert_module_unref(module);
    module = NULL;
    culvert_buffer_unref(again);
    ck_assert_int_eq(pthread_create(&thread, NULL, drop, table), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    rig_settle_ok(culvert_sleep(r.loop, 0)); /* the post has come; close looks for what is left */
}
END_TEST

START_TEST(a_variable_outlives_the_loop)
{
    culvert_buffer *table = variable("table");
    culvert_module_unref(module);
    module = NULL;
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    culvert_buffer_unref(table);
    ev_loop_destroy(r.ev);
    rig_nothing_left();
    rig_open(&r, NULL);
}
END_TEST

/* ---- the simulator ---- */

static void body(void *arg)
{
    culvert_buffer *out = arg;
    culvert_buffer *table = culvert_module_global(module, "table", NULL);
    culvert_buffer_unref(table);
    culvert_grid grid = {.blocks = {2}, .threads = {32}, .flags = CULVERT_GRID_COOPERATIVE};
    culvert_future *f =
        culvert_launch(r.stream, kernel("cluster_shape"), &grid, CULVERT_ARGS(CULVERT_BUFFER(out)));
    int status = culvert_await(f, 60);
    ck_assert(status == CULVERT_OK || status == CULVERT_ENOMEM);
    culvert_unref(f);
}

START_TEST(out_of_memory_at_every_allocation)
{
    culvert_buffer *out = host((size_t)2 * 8 * 4);
    body(out);
    alloc_fail_this_thread(true);
    alloc_fail_each(body, out);
    alloc_fail_this_thread(false);
    culvert_buffer_unref(out);
}
END_TEST

START_TEST(calls_that_fail_are_told)
{
    unsigned blocks, threads;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_grid grid = {.blocks = {2}, .threads = {32}, .flags = CULVERT_GRID_COOPERATIVE};
    culvert_sim_fail("cuOccupancyMaxPotentialBlockSize", 1, CULVERT__CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(culvert_kernel_occupancy(kernel("meet"), 0, &blocks, &threads),
                     CULVERT_EDRIVER);
    culvert_sim_fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, 1);
    ck_assert_int_eq(culvert_kernel_max_blocks(kernel("meet"), 32, 0, &blocks), CULVERT_EDRIVER);
    culvert_sim_fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, 1);
    err = rig_settle_error(culvert_launch(r.stream, kernel("cluster_shape"), &grid,
                                          CULVERT_ARGS(CULVERT_BUFFER(NULL))),
                           CULVERT_EDRIVER);
    rig_says(&err, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    culvert_sim_fail("cuModuleGetGlobal", 1, CULVERT__CUDA_ERROR_INVALID_VALUE);
    ck_assert_ptr_null(culvert_module_global(module, "table", &err));
    ck_assert_int_eq(err.code, CULVERT_EDRIVER);
    culvert_sim_fail("cuLaunchKernelEx", 1, CULVERT__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    err = rig_settle_error(culvert_launch(r.stream, kernel("cluster_shape"), &grid,
                                          CULVERT_ARGS(CULVERT_BUFFER(NULL))),
                           CULVERT_EDRIVER);
    rig_says(&err, "cuLaunchKernelEx");
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}
END_TEST

static Suite *launch_kinds_suite(void)
{
    Suite *suite = suite_create("launch kinds");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, blocks_of_a_cooperative_launch_wait_for_each_other);
    tcase_add_test(any, more_blocks_than_run_at_once_are_refused_with_the_figures);
    tcase_add_test(any, flags_that_are_not_known_are_refused);
    tcase_add_test(any, a_cluster_reaches_the_kernel);
    tcase_add_test(any, clusters_that_do_not_fit_are_refused_with_the_figures);
    tcase_add_test(any, a_device_without_clusters_or_cooperative_launches_says_so);
    tcase_add_test(any, occupancy_gives_a_size_that_can_be_launched);
    tcase_add_test(any, occupancy_with_much_shared_memory_opts_in_first);
    tcase_add_test(any, occupancy_of_what_cannot_be_launched_is_an_error);
    tcase_add_test(any, a_closed_device_answers_nothing);
    tcase_add_test(any, a_variable_is_read_and_written);
    tcase_add_test(any, a_variable_that_is_not_there_is_an_error_that_names_the_module);
    tcase_add_test(any, a_variable_holds_its_module);
    tcase_add_test(any, a_variable_is_released_on_another_thread);
    tcase_add_test(any, a_variable_outlives_the_loop);
    suite_add_tcase(suite, any);
    if (!rig_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, out_of_memory_at_every_allocation);
    tcase_add_test(sim, calls_that_fail_are_told);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {launch_kinds_suite(), NULL};
    return test_main(suites);
}
