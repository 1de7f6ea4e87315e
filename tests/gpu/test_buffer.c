/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers, and the memory that they are of. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/rig.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "lib/child.h"
#include "lib/clock.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

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

static culvert_buffer *device_buffer(size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_buffer_new(r.gpu, bytes, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    return buffer;
}

static culvert_buffer *host_buffer(size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_host_buffer_new(r.gpu, bytes, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    return buffer;
}

/* ---- any driver ---- */

START_TEST(a_device_buffer_has_an_address_but_no_data)
{
    culvert_buffer *a = device_buffer(1000), *b = device_buffer(1);
    ck_assert_uint_eq(culvert_buffer_size(a), 1000);
    ck_assert_uint_eq(culvert_buffer_size(b), 1);
    ck_assert_ptr_null(culvert_buffer_data(a));
    ck_assert_uint_ne(culvert_buffer_address(a), 0);
    ck_assert_uint_eq(culvert_buffer_address(a) % 256, 0);
    ck_assert_uint_eq(culvert_buffer_address(b) % 256, 0);
    ck_assert_uint_ne(culvert_buffer_address(a), culvert_buffer_address(b));
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
}
END_TEST

START_TEST(a_host_buffer_is_memory_of_the_host)
{
    culvert_buffer *a = host_buffer(100000), *large = host_buffer(5 * MIB + 1);
    ck_assert_uint_eq(culvert_buffer_size(large), 5 * MIB + 1);
    ck_assert_uint_eq((uintptr_t)culvert_buffer_data(a) % 256, 0);
    ck_assert_uint_eq((uintptr_t)culvert_buffer_data(a), culvert_buffer_address(a));
    memset(culvert_buffer_data(a), 1, 100000);
    memset(culvert_buffer_data(large), 2, 5 * MIB + 1);
    ck_assert_int_eq(((unsigned char *)culvert_buffer_data(a))[99999], 1);
    ck_assert_int_eq(((unsigned char *)culvert_buffer_data(large))[5 * MIB], 2);
    culvert_buffer_unref(large);
    culvert_buffer_unref(a);
}
END_TEST

START_TEST(case_091_buffers_of_no_bytes_are_legal)
{
    culvert_buffer *device = device_buffer(0), *host = host_buffer(0);
    ck_assert_uint_eq(culvert_buffer_size(device), 0);
    ck_assert_uint_eq(culvert_buffer_size(host), 0);
    ck_assert_ptr_null(culvert_buffer_data(device));
    ck_assert_ptr_nonnull(culvert_buffer_data(host));
    rig_settle_ok(culvert_copy(r.stream, device, 0, host, 0, 0));
    rig_settle_ok(culvert_upload(r.stream, device, 0, NULL, 0));
    rig_settle_ok(culvert_download(r.stream, NULL, host, 0, 0));
    rig_settle_ok(culvert_fill(r.stream, device, 0, 0, 0, 4));
    culvert_buffer_unref(device);
    culvert_buffer_unref(host);
}
END_TEST

START_TEST(references_are_counted)
{
    culvert_buffer *buffer = host_buffer(64);
    ck_assert_ptr_eq(culvert_buffer_ref(buffer), buffer);
    culvert_buffer_unref(buffer);
    memset(culvert_buffer_data(buffer), 0, 64);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(NULL);
}
END_TEST

/* A product that wrapped, as in BabelStream#136, never reaches the driver. */
START_TEST(case_092_sizes_that_overflow_are_refused)
{
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 1, (size_t)0 - 3 * 8};
    uint64_t calls = rig_simulated() ? culvert_sim_calls(NULL) : 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        ck_assert_ptr_null(culvert_buffer_new(r.gpu, sizes[i], &err));
        ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
        ck_assert_str_eq(err.op, "culvert_buffer_new");
        ck_assert_ptr_nonnull(strstr(err.where, "test_buffer.c:"));
        ck_assert_ptr_null(culvert_host_buffer_new(r.gpu, sizes[i], &err));
        ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
        ck_assert_ptr_null(culvert_buffer_new(r.gpu, sizes[i], NULL));
    }
    if (rig_simulated())
        ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
}
END_TEST

START_TEST(case_092_sizes_above_four_gigabytes_are_whole)
{
    const size_t sizes[] = {(size_t)1 << 31, ((size_t)1 << 32) + 7, (size_t)5 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        culvert_buffer *buffer = device_buffer(sizes[i]);
        ck_assert_uint_eq(culvert_buffer_size(buffer), sizes[i]);
        if (rig_simulated())
            ck_assert_uint_ge(culvert_sim_live("device bytes"), sizes[i]);
        unsigned char sent[8] = "end", got[8] = "";
        rig_settle_ok(culvert_upload(r.stream, buffer, sizes[i] - 4, sent, 4));
        rig_settle_ok(culvert_download(r.stream, got, buffer, sizes[i] - 4, 4));
        ck_assert_mem_eq(sent, got, 4);
        culvert_buffer_unref(buffer);
    }
}
END_TEST

START_TEST(a_range_past_the_end_is_refused_with_the_figures)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = device_buffer(10000);
    culvert__device *device = r.gpu->device;
    ck_assert(culvert__buffer_check(buffer, device, "download", "op", "w", 0, 10000, &err));
    ck_assert(culvert__buffer_check(buffer, device, "download", "op", "w", 10000, 0, &err));
    ck_assert_int_eq(err.code, CULVERT_OK);
    ck_assert(!culvert__buffer_check(buffer, device, "download", "op", "w", 8192, 4096, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_str_eq(
        err.message,
        "download of 4096 bytes at offset 8192 runs past the end of a 10000-byte buffer");
    ck_assert_str_eq(err.op, "op");
    ck_assert_str_eq(err.where, "w");
    ck_assert(!culvert__buffer_check(buffer, device, "upload", "op", "w", 10001, 0, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert(!culvert__buffer_check(buffer, device, "upload", "op", "w", 1, SIZE_MAX, &err));
    ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
    ck_assert(!culvert__buffer_check(buffer, device, "upload", "op", "w", SIZE_MAX - 2, 3, &err));
    ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
    culvert_buffer_unref(buffer);
}
END_TEST

typedef struct drops {
    culvert_buffer **buffers;
    unsigned n;
} drops;

static void *drop_all(void *arg)
{
    drops *d = arg;
    for (unsigned i = 0; i < d->n; i++) {
        culvert_buffer_ref(d->buffers[i]);
        culvert_buffer_unref(d->buffers[i]);
        culvert_buffer_unref(d->buffers[i]);
    }
    return NULL;
}

START_TEST(buffers_may_be_released_on_any_thread)
{
    enum { THREADS = 4, EACH = 200 };
    static culvert_buffer *buffers[THREADS][EACH];
    drops d[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        for (unsigned k = 0; k < EACH; k++)
            buffers[i][k] = k % 2 == 0 ? device_buffer(1 + k * 50) : host_buffer(1 + k * 50);
    for (unsigned i = 0; i < THREADS; i++) {
        d[i] = (drops){buffers[i], EACH};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, drop_all, &d[i]), 0);
    }
    for (unsigned i = 0; i < 200; i++) /* meanwhile the loop's thread goes on */
        culvert_buffer_unref(device_buffer(i + 1));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(culvert__heap_used(r.gpu->memory->local), 0);
}
END_TEST

START_TEST(a_buffer_outlives_its_device_and_its_loop)
{
    culvert_buffer *device = device_buffer(100), *host = host_buffer(100);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    ev_loop_destroy(r.ev);
    r.loop = NULL;
    memset(culvert_buffer_data(host), 7, 100);
    ck_assert_uint_eq(culvert_buffer_size(device), 100);
    pthread_t thread;
    drops d = {&device, 1};
    ck_assert_int_eq(pthread_create(&thread, NULL, drop_all, &d), 0);
    pthread_join(thread, NULL);
    culvert_buffer_unref(host);
    rig_nothing_left();
}
END_TEST

START_TEST(a_closed_device_gives_no_buffers)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_close(r.gpu); /* the stream still holds it */
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, 1, &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    ck_assert_ptr_null(culvert_host_buffer_new(r.gpu, 1, &err));
    ck_assert_int_eq(err.code, CULVERT_ESHUTDOWN);
    r.gpu = NULL;
}
END_TEST

static int use_in_child(void *arg)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = arg;
    if (culvert_buffer_new(r.gpu, 1, &err) != NULL || err.code != CULVERT_EFORKED)
        return 1;
    if (culvert_host_buffer_new(r.gpu, 1, &err) != NULL || err.code != CULVERT_EFORKED)
        return 2;
    culvert_buffer_unref(buffer);
    return 0;
}

START_TEST(a_child_after_fork_gets_no_buffers)
{
    culvert_buffer *buffer = host_buffer(64);
    test_child child = test_child_run(use_in_child, buffer, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%d %s", child.status, child.output);
    memset(culvert_buffer_data(buffer), 0, 64);
    culvert_buffer_unref(buffer);
}
END_TEST

static int null_gpu(void *arg)
{
    (void)arg;
    return culvert_buffer_new(NULL, 1, NULL) == NULL;
}

static int null_buffer(void *arg)
{
    (void)arg;
    return (int)culvert_buffer_size(NULL);
}

START_TEST(null_handles_abort_with_the_name_of_the_call)
{
    test_child child = test_child_run(null_gpu, NULL, 0, 60);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_ptr_nonnull(strstr(child.output, "culvert_buffer_new"));
    child = test_child_run(null_buffer, NULL, 0, 60);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_ptr_nonnull(strstr(child.output, "culvert_buffer_size"));
}
END_TEST

static void buffers_body(void *arg)
{
    (void)arg;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *a = culvert_buffer_new(r.gpu, 300, &err);
    ck_assert(a != NULL || err.code == CULVERT_ENOMEM);
    culvert_buffer *b = culvert_host_buffer_new(r.gpu, 3000, &err);
    ck_assert(b != NULL || err.code == CULVERT_ENOMEM);
    culvert_buffer_unref(a);
    culvert_buffer_unref(b);
}

START_TEST(out_of_memory_at_every_allocation)
{
    buffers_body(NULL); /* the blocks are there */
    alloc_fail_this_thread(true);
    ck_assert_uint_ge(alloc_fail_each(buffers_body, NULL), 4);
    alloc_fail_this_thread(false);
}
END_TEST

/* ---- the simulator ---- */

/* cuMemAlloc and its like are for start-up (cuCascade#185, cutorch#618). */
START_TEST(case_065_no_memory_of_the_driver_is_taken_in_the_steady_state)
{
    static const char *const calls[] = {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc",
                                        "cuMemFreeHost"};
    uint64_t before[4] = {0};
    for (int i = 0; i < 3000; i++) {
        if (i == 100)
            for (int k = 0; k < 4; k++)
                before[k] = culvert_sim_calls(calls[k]);
        culvert_buffer *a = device_buffer(1 + (size_t)i % 100 * 1000);
        culvert_buffer *b = host_buffer(1 + (size_t)i % 100 * 1000);
        culvert_buffer_unref(a);
        culvert_buffer_unref(b);
    }
    for (int k = 0; k < 4; k++)
        ck_assert_uint_eq(culvert_sim_calls(calls[k]), before[k]);
}
END_TEST

/* A free of the driver's waits for running kernels (nixl#965). */
START_TEST(case_074_a_release_calls_no_driver)
{
    culvert_buffer *used = device_buffer(256), *other = device_buffer(8 * MIB);
    culvert_buffer *host = host_buffer(8 * MIB);
    culvert_sim_loop_thread();
    culvert_sim_strict(1);
    culvert_sim_hold(culvert_stream_native(r.stream));
    culvert_future *fill = culvert_fill(r.stream, used, 0, 256, 0, 4);
    uint64_t calls = culvert_sim_calls(NULL);
    culvert_buffer_unref(other);
    culvert_buffer_unref(host);
    culvert_buffer_unref(used);
    ck_assert_uint_eq(culvert_sim_calls(NULL), calls);
    culvert_sim_release(NULL);
    rig_settle_ok(fill);
}
END_TEST

/* The memory of what is in flight is nobody else's, though its handle is gone (cuda-oxide#99). */
START_TEST(case_071_memory_in_flight_is_not_given_out)
{
    culvert_buffer *used = device_buffer(4096);
    unsigned long long at = culvert_buffer_address(used);
    culvert_sim_hold(culvert_stream_native(r.stream));
    culvert_future *fill = culvert_fill(r.stream, used, 0, 4096, 0, 4);
    culvert_buffer_unref(used);
    culvert_buffer *next = device_buffer(4096);
    ck_assert_uint_ne(culvert_buffer_address(next), at);
    culvert_sim_release(NULL);
    rig_settle_ok(fill);
    culvert_buffer_unref(next);
    ck_assert_uint_eq(culvert__heap_used(r.gpu->memory->local), 0);
}
END_TEST

static void *grow_slowly(void *arg)
{
    culvert__heap *heap = arg;
    culvert__heap_give(heap, culvert__heap_take(heap, (size_t)1 << 30, true, NULL));
    return NULL;
}

static bool growing(void *arg)
{
    return culvert_sim_calls("cuMemAlloc") > *(uint64_t *)arg;
}

static int release_in_child(void *arg)
{
    culvert_buffer_unref(arg);
    return 0;
}

/* Its lock is held by a thread that the child does not have. */
START_TEST(a_child_after_fork_does_not_wait_for_the_heap)
{
    pthread_t thread;
    culvert_buffer *buffer = device_buffer(64);
    uint64_t before = culvert_sim_calls("cuMemAlloc");
    culvert_sim_delay("cuMemAlloc", 1.0);
    ck_assert_int_eq(pthread_create(&thread, NULL, grow_slowly, r.gpu->memory->local), 0);
    ck_assert(test_eventually(growing, &before, 60));
    test_child child = test_child_run(release_in_child, buffer, 0, 20);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
    pthread_join(thread, NULL);
    culvert_buffer_unref(buffer);
}
END_TEST

START_TEST(blocks_go_back_when_the_last_buffer_goes)
{
    culvert_buffer *a = device_buffer(100 * MIB), *b = device_buffer(100);
    culvert_buffer_unref(a);
    ck_assert_uint_ge(culvert_sim_live("device bytes"), 100 * MIB);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    ck_assert_uint_ge(culvert_sim_live("device bytes"), 100 * MIB);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), 0);
    culvert_buffer_unref(b);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);
    culvert_loop_free(r.loop);
    ev_loop_destroy(r.ev);
    r.loop = NULL;
}
END_TEST

START_TEST(a_lost_device_keeps_its_memory)
{
    culvert_error err = CULVERT_ERROR_INIT;
    tear_down();
    rig_fresh();
    culvert_sim_devices(2);
    rig_open_device(&r, 1, NULL); /* a loss is for ever: the other tests use device 0 */
    culvert_buffer *buffer = device_buffer(100), *host = host_buffer(100);
    culvert_sim_poison(1, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Found by this very call, which has to ask the driver for a block. */
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, (size_t)1 << 30, &err));
    ck_assert_int_eq(err.code, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(culvert_gpu_state(r.gpu), CULVERT_GPU_LOST);
    uint64_t asked = culvert_sim_calls("cuMemAlloc");
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, 1, &err));
    ck_assert_int_eq(err.code, CULVERT_EDEVICELOST);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(host);
    culvert_stream_unref(r.stream);
    culvert_gpu_close(r.gpu);
    culvert_loop_free(r.loop);
    ev_loop_destroy(r.ev);
    r.loop = NULL;
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), asked);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), 0);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFreeHost"), 0);
}
END_TEST

START_TEST(out_of_memory_has_the_figures)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_memory(100 * MIB);
    culvert_buffer *first = device_buffer(MIB); /* a block of 64 MiB */
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 64 * MIB);
    culvert_buffer *second = device_buffer(63 * MIB);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 64 * MIB);
    uint64_t asked = culvert_sim_calls("cuMemAlloc");
    culvert_buffer *third = device_buffer(30 * MIB); /* no room for 64: just what is needed */
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 94 * MIB);
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), asked + 2);
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, 20 * MIB, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.op, "culvert_buffer_new");
    rig_says(&err, "20971520 bytes of device memory");
    rig_says(&err, "98566144 taken");
    rig_says(&err, "98566144 of these in use");
    rig_says(&err, "largest free range 0");
    rig_says(&err, "cuMemAlloc");
    ck_assert_int_eq(culvert_gpu_state(r.gpu), CULVERT_GPU_OK);
    culvert_buffer_unref(first);
    culvert_buffer_unref(second);
    culvert_buffer *joined = device_buffer(64 * MIB); /* the same memory */
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 94 * MIB);
    culvert_buffer_unref(joined);
    culvert_buffer_unref(third);
}
END_TEST

START_TEST(limits_of_the_options_hold)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    tear_down();
    options.device_limit = 10 * MIB;
    options.pinned_limit = 12 * MIB;
    options.pinned_reserve = 8 * MIB;
    rig_fresh();
    rig_open(&r, &options);
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, 11 * MIB, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    rig_says(&err, "limit 10485760");
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), 0);
    culvert_buffer *all = device_buffer(10 * MIB);
    ck_assert_ptr_null(culvert_buffer_new(r.gpu, 1, &err));
    culvert_buffer_unref(all);
    ck_assert_ptr_null(culvert_host_buffer_new(r.gpu, 5 * MIB, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    rig_says(&err, "pinned memory");
    culvert_buffer_unref(host_buffer(4 * MIB));
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 12 * MIB);
}
END_TEST

START_TEST(reserves_are_taken_at_open)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    tear_down();
    options.device_reserve = 100 * MIB;
    options.pinned_reserve = 10 * MIB;
    rig_fresh();
    rig_open(&r, &options);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 100 * MIB);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 10 * MIB);
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), 1);
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostAlloc"),
                      10); /* by 1 MiB, that nobody is stalled */
    culvert_buffer_unref(device_buffer(100 * MIB));
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), 1);
}
END_TEST

START_TEST(a_reserve_above_its_limit_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_reserve = 2 * MIB;
    options.device_limit = MIB;
    ck_assert_ptr_null(culvert_gpu_open(r.loop, 0, &options, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    rig_says(&err, "device_reserve is 2097152");
}
END_TEST

START_TEST(a_reserve_that_is_not_there_fails_the_open_and_leaks_nothing)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    tear_down();
    rig_fresh();
    culvert_sim_memory(64 * MIB);
    rig_open_loop(&r);
    options.device_reserve = 100 * MIB;
    ck_assert_ptr_null(culvert_gpu_open(r.loop, 0, &options, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    rig_says(&err, "104857600 bytes");
    options.device_reserve = 0;
    culvert_sim_fail("cuMemHostAlloc", 5, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(culvert_gpu_open(r.loop, 0, &options, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    rig_nothing_left();
}
END_TEST

START_TEST(memory_of_another_device_is_refused_but_pinned_memory_is_not)
{
    tear_down();
    rig_fresh();
    culvert_sim_devices(2);
    rig_open(&r, NULL);
    culvert_gpu *second = culvert_gpu_open(r.loop, 1, NULL, NULL);
    ck_assert_ptr_nonnull(second);
    culvert_buffer *there = culvert_buffer_new(second, 64, NULL);
    culvert_buffer *host = culvert_host_buffer_new(second, 64, NULL);
    memset(culvert_buffer_data(host), 3, 64);
    culvert_error err =
        rig_settle_error(culvert_fill(r.stream, there, 0, 64, 0, 1), CULVERT_EINVAL);
    rig_says(&err, "fill of 64 bytes: the buffer is of device 1, the stream of device 0");
    culvert_buffer *here = device_buffer(64);
    unsigned char got[64];
    rig_settle_ok(culvert_copy(r.stream, here, 0, host, 0, 64));
    rig_settle_ok(culvert_download(r.stream, got, here, 0, 64));
    ck_assert_int_eq(got[63], 3);
    culvert_buffer_unref(here);
    culvert_buffer_unref(there);
    culvert_buffer_unref(host);
    culvert_gpu_close(second);
}
END_TEST

/* A driver without unified addressing: what the device calls pinned memory is not what the host
   does. */
static int elsewhere(unsigned long long *address, void *host, unsigned flags)
{
    (void)flags;
    *address = (uintptr_t)host + 0x100000000000u;
    return CULVERT__CUDA_SUCCESS;
}

START_TEST(the_device_address_of_pinned_memory_is_kept_where_it_differs)
{
    static culvert__driver other;
    culvert_buffer *plain = host_buffer(64);
    const culvert__driver *real = r.gpu->device->drv;
    other = *real;
    other.cuMemHostGetDevicePointer = elsewhere;
    r.gpu->device->drv = &other;
    culvert_buffer *first = host_buffer(3 * MIB), *second = host_buffer(5 * MIB);
    culvert_buffer *inside = host_buffer(64 * KIB - 256); /* what is left over of one of these */
    r.gpu->device->drv = real;
    ck_assert_uint_eq(culvert_buffer_address(plain), (uintptr_t)culvert_buffer_data(plain));
    ck_assert_uint_eq(culvert_buffer_address(first),
                      (uintptr_t)culvert_buffer_data(first) + 0x100000000000u);
    ck_assert_uint_eq(culvert_buffer_address(second),
                      (uintptr_t)culvert_buffer_data(second) + 0x100000000000u);
    ck_assert_uint_eq(culvert__memory_device_address(r.gpu->memory,
                                                     (uintptr_t)culvert_buffer_data(first) + 100),
                      culvert_buffer_address(first) + 100);
    culvert_buffer_unref(inside);
    culvert_buffer_unref(plain);
    culvert_buffer_unref(first);
    culvert_buffer_unref(second);
}
END_TEST

START_TEST(pinned_memory_grows_by_a_mebibyte)
{
    uint64_t before = culvert_sim_live("pinned bytes");
    ck_assert_int_eq(culvert__memory_grow_pinned(r.gpu->memory, NULL), CULVERT_OK);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), before + MIB);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_fail("cuMemHostAlloc", 1, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(culvert__memory_grow_pinned(r.gpu->memory, &err), CULVERT_ENOMEM);
    rig_says(&err, "cuMemHostAlloc");
    culvert_sim_fail("cuMemHostGetDevicePointer", 1, CULVERT__CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(culvert__memory_grow_pinned(r.gpu->memory, &err), CULVERT_EDRIVER);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), before + MIB);
}
END_TEST

static Suite *buffer_suite(void)
{
    Suite *suite = suite_create("buffer");
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, a_device_buffer_has_an_address_but_no_data);
    tcase_add_test(any, a_host_buffer_is_memory_of_the_host);
    tcase_add_test(any, case_091_buffers_of_no_bytes_are_legal);
    tcase_add_test(any, references_are_counted);
    tcase_add_test(any, case_092_sizes_that_overflow_are_refused);
    tcase_add_test(any, case_092_sizes_above_four_gigabytes_are_whole);
    tcase_add_test(any, a_range_past_the_end_is_refused_with_the_figures);
    tcase_add_test(any, buffers_may_be_released_on_any_thread);
    tcase_add_test(any, a_buffer_outlives_its_device_and_its_loop);
    tcase_add_test(any, a_closed_device_gives_no_buffers);
    tcase_add_test(any, a_child_after_fork_gets_no_buffers);
    tcase_add_test(any, null_handles_abort_with_the_name_of_the_call);
    tcase_add_test(any, out_of_memory_at_every_allocation);
    suite_add_tcase(suite, any);
    if (!rig_simulated())
        return suite;
    TCase *sim = tcase_create("simulator");
    tcase_add_checked_fixture(sim, set_up, tear_down);
    tcase_add_test(sim, case_065_no_memory_of_the_driver_is_taken_in_the_steady_state);
    tcase_add_test(sim, case_071_memory_in_flight_is_not_given_out);
    tcase_add_test(sim, case_074_a_release_calls_no_driver);
    tcase_add_test(sim, a_child_after_fork_does_not_wait_for_the_heap);
    tcase_add_test(sim, blocks_go_back_when_the_last_buffer_goes);
    tcase_add_test(sim, out_of_memory_has_the_figures);
    tcase_add_test(sim, limits_of_the_options_hold);
    tcase_add_test(sim, reserves_are_taken_at_open);
    tcase_add_test(sim, a_reserve_above_its_limit_is_refused);
    tcase_add_test(sim, a_reserve_that_is_not_there_fails_the_open_and_leaks_nothing);
    tcase_add_test(sim, memory_of_another_device_is_refused_but_pinned_memory_is_not);
    tcase_add_test(sim, the_device_address_of_pinned_memory_is_kept_where_it_differs);
    tcase_add_test(sim, pinned_memory_grows_by_a_mebibyte);
    tcase_add_test(sim, a_lost_device_keeps_its_memory);
    suite_add_tcase(suite, sim);
    return suite;
}

int main(void)
{
    Suite *suites[] = {buffer_suite(), NULL};
    return test_main(suites);
}
