/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening devices, and what can be asked of them. */
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "lib/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);

static struct ev_loop *ev;
static culvert_loop *loop;

static void begin(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_reset();
    ev = ev_loop_new(EVFLAG_AUTO);
    loop = culvert_loop_new(ev, NULL, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
}

static void end(void)
{
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    gpu_fixture_nothing_left();
}

/* Nothing is pending any more but, perhaps, a host function on its way. */
static void until_nothing_left(void)
{
    for (int k = 0; k < 1000 && gpu_fixture_simulated() && culvert_sim_live("stream") > 0; k++)
        trial_turn(ev, 0.01);
    gpu_fixture_nothing_left();
}

static culvert_gpu *open_device(int ordinal, const culvert_gpu_options *options)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_gpu *gpu = culvert_gpu_open(loop, ordinal, options, &err);
    ck_assert_msg(gpu != NULL, "%s", err.message);
    return gpu;
}

static culvert_stream *stream_of(culvert_gpu *gpu)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    return stream;
}

static culvert_error cannot_open(int ordinal, const culvert_gpu_options *options, int code)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert_gpu_open(loop, ordinal, options, NULL)); /* without one, too */
    ck_assert_ptr_null(culvert_gpu_open(loop, ordinal, options, &err));
    ck_assert_msg(err.code == code, "%s, not %s: %s", culvert_error_name(err.code),
                  culvert_error_name(code), err.message);
    ck_assert_ptr_nonnull(err.where);
    ck_assert_ptr_nonnull(strstr(err.where, "test_open.c:"));
    return err;
}

/* There and back: bytes that only fit if the copy was whole. */
static void round_trip(culvert_gpu *gpu, culvert_stream *stream, unsigned seed)
{
    enum { N = 5000 };
    static unsigned from[N], to[N];
    culvert_error err = CULVERT_ERROR_INIT;
    for (unsigned i = 0; i < N; i++) {
        from[i] = i * 2654435761u + seed;
        to[i] = 0;
    }
    culvert_buffer *buffer = culvert_buffer_new(gpu, sizeof from, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    culvert_detach(culvert_upload(stream, buffer, 0, from, sizeof from));
    gpu_fixture_ok(culvert_download(stream, to, buffer, 0, sizeof to));
    culvert_buffer_unref(buffer);
    ck_assert_mem_eq(from, to, sizeof from);
}

START_TEST(devices_are_counted)
{
    begin();
    culvert_error err = CULVERT_ERROR_INIT;
    int n = culvert_gpu_count(loop, &err);
    ck_assert_msg(n >= 1, "%d: %s", n, err.message);
    ck_assert_int_eq(culvert_gpu_count(loop, NULL), n);
    if (gpu_fixture_simulated())
        ck_assert_int_eq(n, 1);
    end();
}
END_TEST

START_TEST(three_devices_are_counted)
{
    begin();
    culvert_sim_devices(3);
    ck_assert_int_eq(culvert_gpu_count(loop, NULL), 3);
    end();
}
END_TEST

START_TEST(no_device_is_an_error_with_a_name)
{
    begin();
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_devices(0);
    ck_assert_int_eq(culvert_gpu_count(loop, &err), CULVERT_ENODEVICE);
    ck_assert_int_eq(err.code, CULVERT_ENODEVICE);
    ck_assert_int_eq(err.native, 100);
    ck_assert_str_ne(err.message, "");
    err = cannot_open(0, NULL, CULVERT_ENODEVICE);
    ck_assert_int_eq(err.native, 100);
    culvert_sim_devices(1); /* it may be tried again */
    ck_assert_int_eq(culvert_gpu_count(loop, &err), 1);
    end();
}
END_TEST

START_TEST(an_unknown_driver_is_an_error)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.driver = "opencl";
    ev = ev_loop_new(EVFLAG_AUTO);
    loop = culvert_loop_new(ev, &options, &err);
    ck_assert_msg(loop != NULL, "%s",
                  err.message); /* the driver is not opened before a device is */
    ck_assert_int_eq(culvert_gpu_count(loop, &err), CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_gpu_count");
    gpu_fixture_says(&err, "opencl");
    err = cannot_open(0, NULL, CULVERT_EINVAL);
    gpu_fixture_says(&err, "opencl");
    culvert_loop_free(loop);
    options.driver = "/nowhere/libcuda.so.1";
    loop = culvert_loop_new(ev, &options, &err);
    ck_assert_int_eq(culvert_gpu_count(loop, &err), CULVERT_ENODRIVER);
    gpu_fixture_says(&err, "/nowhere/libcuda.so.1");
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

START_TEST(an_ordinal_out_of_range_says_what_there_is)
{
    begin();
    int n = culvert_gpu_count(loop, NULL);
    char figures[40];
    culvert_error err = cannot_open(n, NULL, CULVERT_ENODEVICE);
    snprintf(figures, sizeof figures, "no device %d", n);
    gpu_fixture_says(&err, figures);
    snprintf(figures, sizeof figures, "shows %d", n);
    gpu_fixture_says(&err, figures);
    err = cannot_open(-1, NULL, CULVERT_ENODEVICE);
    gpu_fixture_says(&err, "no device -1");
    err = cannot_open(2147483647, NULL, CULVERT_ENODEVICE);
    gpu_fixture_says(&err, "no device 2147483647");
    end();
}
END_TEST

START_TEST(options_out_of_range_are_errors_with_their_figures)
{
    begin();
    trial_keep_context();
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err;
    options.struct_size = 0;
    err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "struct_size is 0");
    options.struct_size = 3; /* not even the size itself */
    err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "struct_size is 3");
    options.struct_size = sizeof options + 1;
    err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "struct_size");

    options = (culvert_gpu_options)CULVERT_GPU_OPTIONS_INIT;
    options.streams = 17;
    err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "streams is 17");

    const double bad[] = {-1.0, -1e-300, NAN, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options = (culvert_gpu_options)CULVERT_GPU_OPTIONS_INIT;
        options.stall_seconds = bad[i];
        err = cannot_open(0, &options, CULVERT_EINVAL);
        gpu_fixture_says(&err, "stall_seconds");
    }

    options = (culvert_gpu_options)CULVERT_GPU_OPTIONS_INIT;
    options.device_reserve = 2u << 20;
    options.device_limit = 1u << 20;
    err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "device_reserve is 2097152");
    gpu_fixture_says(&err, "1048576");
    gpu_fixture_nothing_left();
    end();
}
END_TEST

START_TEST(a_shorter_options_struct_of_an_older_program_is_taken)
{
    begin();
    culvert_gpu_options options;
    memset(&options, 0xff, sizeof options); /* what is behind its end is not read */
    options.struct_size = offsetof(culvert_gpu_options, device_limit);
    options.device_reserve = 0;
    options.pinned_reserve = 0;
    culvert_gpu *gpu = open_device(0, &options);
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(reserves_are_taken_at_open_and_given_back_at_close)
{
    begin();
    trial_keep_context();
    culvert_gpu *gpu = open_device(0, NULL);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 8u << 20); /* as documented */
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 0);
    culvert_gpu_close(gpu);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 0);

    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.device_reserve = 96u << 20;
    options.pinned_reserve = 12u << 20;
    gpu = open_device(0, &options);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), 12u << 20);
    ck_assert_uint_eq(culvert_sim_live("device bytes"), 96u << 20);
    uint64_t calls = culvert_sim_calls("cuMemAlloc");
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *all = culvert_buffer_new(gpu, 96u << 20, &err); /* one buffer may have it all */
    ck_assert_msg(all != NULL, "%s", err.message);
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), calls);
    culvert_buffer_unref(all);
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(limits_of_memory_hold)
{
    begin();
    trial_keep_context();
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.device_limit = 3u << 20;
    options.pinned_limit = 10u << 20;
    culvert_gpu *gpu = open_device(0, &options);
    ck_assert_ptr_null(culvert_buffer_new(gpu, 4u << 20, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    gpu_fixture_says(&err, "4194304");
    gpu_fixture_says(&err, "3145728");
    culvert_buffer *some = culvert_buffer_new(gpu, 3u << 20, &err);
    ck_assert_msg(some != NULL, "%s", err.message);
    ck_assert_ptr_null(culvert_buffer_new(gpu, 1, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    culvert_buffer_unref(some);
    ck_assert_ptr_null(culvert_host_buffer_new(gpu, 11u << 20, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    gpu_fixture_says(&err, "11534336");
    culvert_stream *stream = stream_of(gpu);
    round_trip(gpu, stream, 1); /* staging has what it needs */
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(the_pool_has_as_many_streams_as_the_option_says)
{
    begin();
    trial_keep_context();
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *picked[6];
    options.streams = 3;
    culvert_gpu *gpu = open_device(0, &options);
    uint64_t before = culvert_sim_live("stream");
    culvert_sim_hold(NULL);
    for (int i = 0; i < 6; i++) { /* each is busy, so the next one is made, up to 3 */
        picked[i] = culvert_stream_pick(gpu, CULVERT_PRIORITY_NORMAL, &err);
        ck_assert_msg(picked[i] != NULL, "%s", err.message);
        culvert_detach(culvert_stream_done(picked[i]));
        for (int k = 0; k < i && i < 3; k++)
            ck_assert_ptr_ne(picked[i], picked[k]);
    }
    ck_assert_uint_eq(culvert_sim_live("stream"), before + 3);
    culvert_sim_release(NULL);
    for (int i = 0; i < 6; i++)
        culvert_stream_unref(picked[i]);
    culvert_gpu_close(gpu);
    ev_run(ev, 0);
    end();
}
END_TEST

START_TEST(the_description_is_complete)
{
    begin();
    culvert_gpu_description d;
    memset(&d, 0xff, sizeof d);
    culvert_gpu *gpu = open_device(0, NULL);
    d.struct_size = sizeof d;
    ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_OK);
    ck_assert_uint_eq(d.struct_size, sizeof d);
    ck_assert_uint_gt(strlen(d.name), 0);
    ck_assert_int_eq(d.ordinal, 0);
    ck_assert_int_eq(d.simulated, gpu_fixture_simulated());
    ck_assert_int_ge(d.driver_version, 12000);
    ck_assert_uint_gt(strlen(d.driver), 0);
    ck_assert_ptr_nonnull(strstr(d.driver, gpu_fixture_simulated() ? "culvert-sim" : "libcuda"));
    ck_assert_ptr_nonnull(strchr(d.pci_bus_id, ':'));
    unsigned char none[16] = {0};
    ck_assert_mem_ne(d.uuid, none, sizeof none);
    ck_assert_int_ge(d.compute_major, 5);
    ck_assert_int_le(d.compute_major, 99);
    ck_assert_uint_ge(d.multiprocessors, 1);
    ck_assert_uint_eq(d.warp_size, 32);
    ck_assert_uint_ge(d.max_threads_per_block, 1024);
    ck_assert_uint_ge(d.max_block[0], 1024);
    ck_assert_uint_ge(d.max_block[2], 64);
    ck_assert_uint_eq(d.max_grid[0], 2147483647);
    ck_assert_uint_eq(d.max_grid[1], 65535);
    ck_assert_uint_ge(d.max_shared_bytes, 48 * 1024);
    ck_assert_uint_ge(d.max_shared_optin_bytes, d.max_shared_bytes);
    ck_assert(d.total_bytes > (1u << 30));
    ck_assert_int_ge(d.priority_least, d.priority_greatest);
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(a_description_of_another_size)
{
    begin();
    culvert_gpu_description d;
    culvert_gpu *gpu = open_device(0, NULL);
    d.struct_size = 0;
    ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_EINVAL);
    d.struct_size = sizeof d + 1;
    ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_EINVAL);
    memset(&d, 0x55, sizeof d);
    d.struct_size = offsetof(culvert_gpu_description, uuid);
    ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_OK);
    ck_assert_uint_eq(d.struct_size, offsetof(culvert_gpu_description, uuid));
    ck_assert_uint_gt(strlen(d.name), 0);
    for (size_t i = 0; i < sizeof d.uuid; i++)
        ck_assert_uint_eq(d.uuid[i], 0x55); /* behind its end nothing is written */
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(a_device_knows_its_loop_and_is_well)
{
    begin();
    culvert_gpu *gpu = open_device(0, NULL);
    ck_assert_ptr_eq(culvert_gpu_loop(gpu), loop);
    ck_assert_int_eq(culvert_gpu_state(gpu), CULVERT_GPU_OK);
    culvert_stream *stream = stream_of(gpu);
    ck_assert_ptr_eq(culvert_stream_gpu(stream), gpu);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    end();
}
END_TEST

START_TEST(opened_again_after_close_twenty_times)
{
    begin();
    trial_keep_context();
    for (unsigned i = 0; i < 20; i++) {
        culvert_gpu *gpu = open_device(0, NULL);
        culvert_stream *stream = stream_of(gpu);
        round_trip(gpu, stream, i);
        culvert_stream_unref(stream);
        culvert_gpu_close(gpu);
        until_nothing_left();
    }
    end();
}
END_TEST

START_TEST(opened_twice_they_are_independent)
{
    begin();
    trial_keep_context();
    culvert_gpu *a = open_device(0, NULL), *b = open_device(0, NULL);
    ck_assert_ptr_ne(a, b);
    culvert_stream *on_a = stream_of(a), *on_b = stream_of(b);
    round_trip(a, on_a, 1);
    round_trip(b, on_b, 2);
    culvert_stream_unref(on_a);
    culvert_gpu_close(a);
    round_trip(b, on_b, 3);
    culvert_stream_unref(on_b);
    culvert_gpu_close(b);
    end();
}
END_TEST

START_TEST(both_handles_of_a_device_share_what_fits_into_it)
{
    begin();
    trial_keep_context();
    culvert_gpu *a = open_device(0, NULL), *b = open_device(0, NULL);
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *on_a = stream_of(a), *on_b = stream_of(b);
    culvert_buffer *buffer = culvert_buffer_new(a, 1 << 20, &err);
    unsigned word = 0;
    ck_assert_msg(buffer != NULL, "%s", err.message);
    culvert_detach(culvert_fill(on_a, buffer, 0, 1 << 20, 7, 4));
    culvert_future *filled = culvert_stream_done(on_a);
    culvert_seq *seq = culvert_seq_begin(on_b); /* the same device: the same memory */
    culvert_seq_wait(seq, filled);
    culvert_seq_download(seq, &word, buffer, 4096, sizeof word);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_uint_eq(word, 7);
    culvert_buffer_unref(buffer);
    culvert_stream_unref(on_a);
    culvert_stream_unref(on_b);
    culvert_gpu_close(a);
    culvert_gpu_close(b);
    end();
}
END_TEST

START_TEST(case_068_two_devices_interleaved)
{
    enum { N = 200 };
    begin();
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_sim_devices(2);
    culvert_gpu *gpus[2] = {open_device(0, NULL), open_device(1, NULL)};
    culvert_stream *streams[2];
    culvert_buffer *buffers[2];
    static unsigned words[2][N];
    outcomes all;
    outcomes_begin(&all, 2 * N);
    for (int d = 0; d < 2; d++) {
        culvert_gpu_description info = {.struct_size = sizeof info};
        ck_assert_int_eq(culvert_gpu_info(gpus[d], &info), CULVERT_OK);
        ck_assert_int_eq(info.ordinal, d);
        streams[d] = stream_of(gpus[d]);
        buffers[d] = culvert_buffer_new(gpus[d], N * sizeof(unsigned), &err);
        ck_assert_msg(buffers[d] != NULL, "%s", err.message);
    }
    for (size_t i = 0; i < N; i++) {
        for (unsigned d = 0; d < 2; d++) {
            culvert_seq *seq = culvert_seq_begin(streams[d]);
            culvert_seq_fill(seq, buffers[d], i * 4, 4, (uint32_t)i * 2 + d, 4);
            culvert_seq_download(seq, &words[d][i], buffers[d], i * 4, 4);
            outcomes_add(&all, culvert_seq_submit(seq));
        }
    }
    ck_assert(outcomes_wait(&all, ev, 60));
    outcomes_all(&all, CULVERT_OK);
    for (unsigned d = 0; d < 2; d++)
        for (unsigned i = 0; i < N; i++)
            ck_assert_uint_eq(words[d][i], i * 2 + d);
    for (int d = 0; d < 2; d++) {
        culvert_buffer_unref(buffers[d]);
        culvert_stream_unref(streams[d]);
        culvert_gpu_close(gpus[d]);
    }
    outcomes_end(&all);
    end();
}
END_TEST

START_TEST(two_devices_wait_for_each_other)
{
    begin();
    culvert_sim_devices(2);
    culvert_gpu *a = open_device(0, NULL), *b = open_device(1, NULL);
    culvert_stream *on_a = stream_of(a), *on_b = stream_of(b);
    culvert_sim_hold(culvert_stream_native(on_a));
    culvert_future *first = culvert_stream_done(on_a);
    culvert_seq *seq = culvert_seq_begin(on_b);
    culvert_seq_wait(seq, culvert_ref(first));
    culvert_future *second = culvert_seq_submit(seq);
    trial_turn(ev, 0.02);
    ck_assert_int_eq(culvert_status(second), CULVERT_PENDING);
    culvert_sim_release(NULL);
    gpu_fixture_ok(second);
    ck_assert_int_eq(culvert_status(first), CULVERT_OK);
    culvert_unref(first);
    culvert_stream_unref(on_a);
    culvert_stream_unref(on_b);
    culvert_gpu_close(a);
    culvert_gpu_close(b);
    end();
}
END_TEST

START_TEST(a_context_made_elsewhere_is_used_and_left_alone)
{
    begin();
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    unsigned flags;
    int active = 0;
    ck_assert_int_ge(culvert_gpu_count(loop, NULL), 1); /* opens the driver */
    ck_assert_int_eq(cuInit(0), 0);
    ck_assert_int_eq(cuDevicePrimaryCtxRetain(&options.context, 0), 0);
    uint64_t retained = culvert_sim_calls("cuDevicePrimaryCtxRetain");
    culvert_gpu *gpu = open_device(0, &options);
    ck_assert_uint_eq(culvert_sim_calls("cuDevicePrimaryCtxRetain"), retained);
    culvert_stream *stream = stream_of(gpu);
    round_trip(gpu, stream, 4);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    ck_assert_uint_eq(culvert_sim_calls("cuDevicePrimaryCtxRelease"), 0);
    ck_assert_int_eq(cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    ck_assert_int_eq(active, 1);
    until_nothing_left();
    ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(0), 0);
    end();
}
END_TEST

START_TEST(a_context_that_does_not_fit_is_an_error)
{
    begin();
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_sim_devices(2);
    ck_assert_int_eq(culvert_gpu_count(loop, NULL), 2);
    ck_assert_int_eq(cuDevicePrimaryCtxRetain(&options.context, 1), 0);
    culvert_error err = cannot_open(0, &options, CULVERT_EINVAL);
    gpu_fixture_says(&err, "another device");
    ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(1), 0);
    err = cannot_open(1, &options, CULVERT_EINVAL); /* it is gone */
    gpu_fixture_says(&err, "options->context");
    end();
}
END_TEST

START_TEST(the_primary_context_goes_with_its_last_user)
{
    begin();
    unsigned flags;
    int active = 0;
    culvert_gpu *a = open_device(0, NULL), *b = open_device(0, NULL);
    culvert_gpu_close(a);
    ck_assert_int_eq(cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    ck_assert_int_eq(active, 1);
    culvert_gpu_close(b);
    ck_assert_int_eq(cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    ck_assert_int_eq(active, 0);
    end();
}
END_TEST

typedef struct after_free {
    culvert_error count, open;
    bool opened;
} after_free;

static culvert_future *free_then_try(culvert_future *done, void *arg)
{
    after_free *seen = arg;
    (void)done;
    culvert_loop_free(loop);
    (void)culvert_gpu_count(loop, &seen->count);
    seen->opened = culvert_gpu_open(loop, 0, NULL, &seen->open) != NULL;
    return NULL;
}

START_TEST(nothing_is_opened_once_the_loop_is_freed)
{
    begin();
    after_free seen = {CULVERT_ERROR_INIT, CULVERT_ERROR_INIT, true};
    culvert_detach(culvert_then(culvert_resolved(loop, NULL, NULL), free_then_try, &seen, NULL));
    ev_run(ev, 0);
    ck_assert_int_eq(seen.count.code, CULVERT_ESHUTDOWN);
    ck_assert_int_eq(seen.open.code, CULVERT_ESHUTDOWN);
    ck_assert(!seen.opened);
    ev_loop_destroy(ev);
}
END_TEST

/* What the driver refuses while a device is opened comes out as it is, and leaves nothing behind. */
START_TEST(what_fails_while_opening_is_reported_and_undone)
{
    static const struct {
        const char *call;
        int result, code;
    } rows[] = {
        {"cuDeviceGetCount", 999, CULVERT_EDRIVER},
        {"cuDeviceGet", 101, CULVERT_ENODEVICE},
        {"cuDevicePrimaryCtxRetain", 2, CULVERT_ENOMEM},
        {"cuDevicePrimaryCtxRetain", 216, CULVERT_EDRIVER},
        {"cuDevicePrimaryCtxRetain", 700, CULVERT_EDEVICELOST},
        {"cuCtxPushCurrent", 201, CULVERT_EDRIVER},
        {"cuCtxGetDevice", 201, CULVERT_EDRIVER},
        {"cuMemHostAlloc", 2, CULVERT_ENOMEM},
        {"cuMemHostGetDevicePointer", 801, CULVERT_ENOTSUP},
        {"cuEventCreate", 2, CULVERT_ENOMEM},
        {"cuStreamCreateWithPriority", 2, CULVERT_ENOMEM},
        {"cuStreamCreateWithPriority", 801, CULVERT_ENOTSUP},
    };
    begin();
    trial_keep_context();
    ck_assert_int_ge(culvert_gpu_count(loop, NULL), 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        culvert_sim_fail(rows[i].call, 1, rows[i].result);
        culvert_gpu *gpu = culvert_gpu_open(loop, 0, NULL, &err);
        ck_assert_msg(gpu == NULL, "%s", rows[i].call);
        ck_assert_msg(err.code == rows[i].code && err.native == rows[i].result, "%s %d: %s, %d: %s",
                      rows[i].call, rows[i].result, culvert_error_name(err.code), err.native,
                      err.message);
        gpu_fixture_says(&err, rows[i].call);
        ck_assert_str_eq(err.op, "culvert_gpu_open");
        ck_assert_ptr_nonnull(strstr(err.where, "test_open.c:"));
        gpu_fixture_nothing_left();
    }
    culvert_gpu_close(open_device(0, NULL));
    end();
}
END_TEST

START_TEST(what_only_describes_a_device_may_fail)
{
    static const char *const calls[] = {"cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceGetPCIBusId",
                                        "cuDeviceTotalMem"};
    begin();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        culvert_gpu_description d = {.struct_size = sizeof d};
        ck_assert_int_ge(culvert_gpu_count(loop, NULL), 1);
        culvert_sim_fail(calls[i], 1, 999);
        culvert_gpu *gpu = open_device(0, NULL);
        ck_assert_int_eq(culvert_gpu_info(gpu, &d), CULVERT_OK);
        ck_assert_uint_gt(strlen(d.name), 0);
        culvert_gpu_close(gpu);
    }
    end();
}
END_TEST

/* As sim.h says: culvert_sim_reset is the end of the devices that the process has. */
START_TEST(a_reset_of_the_simulator_ends_the_devices)
{
    begin();
    culvert_gpu *gpu = open_device(0, NULL);
    culvert_stream *stream = stream_of(gpu);
    culvert_buffer *buffer = culvert_buffer_new(gpu, 64, NULL);
    culvert_sim_reset();
    culvert_future *f = culvert_fill(stream, buffer, 0, 64, 0, 1);
    ck_assert_int_lt(culvert_await(f, 100), 0);
    culvert_unref(f);
    culvert_buffer_unref(buffer);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop); /* all of it can be released still */

    culvert_error err = CULVERT_ERROR_INIT;
    loop = culvert_loop_new(ev, NULL, &err);
    ck_assert_int_eq(cuInit(0), 0);
    err = cannot_open(0, NULL, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, 3);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

START_TEST(after_a_reset_the_program_initialises_the_driver)
{
    begin();
    culvert_gpu_close(open_device(0, NULL));
    culvert_sim_reset();
    culvert_error err = cannot_open(0, NULL, CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 3);
    ck_assert_int_eq(cuInit(0), 0);
    culvert_gpu_close(open_device(0, NULL));
    end();
}
END_TEST

int main(void)
{
    bool sim = gpu_fixture_simulated();
    trials *t = trials_new("open");
    TRIAL(t, devices_are_counted);
    TRIAL(t, an_unknown_driver_is_an_error);
    TRIAL(t, an_ordinal_out_of_range_says_what_there_is);
    TRIAL(t, options_out_of_range_are_errors_with_their_figures);
    TRIAL(t, a_shorter_options_struct_of_an_older_program_is_taken);
    TRIAL(t, limits_of_memory_hold);
    TRIAL(t, the_description_is_complete);
    TRIAL(t, a_description_of_another_size);
    TRIAL(t, a_device_knows_its_loop_and_is_well);
    TRIAL(t, opened_again_after_close_twenty_times);
    TRIAL(t, opened_twice_they_are_independent);
    TRIAL(t, both_handles_of_a_device_share_what_fits_into_it);
    TRIAL(t, nothing_is_opened_once_the_loop_is_freed);
    if (sim) {
        TRIAL(t, three_devices_are_counted);
        TRIAL(t, no_device_is_an_error_with_a_name);
        TRIAL(t, reserves_are_taken_at_open_and_given_back_at_close);
        TRIAL(t, the_pool_has_as_many_streams_as_the_option_says);
        TRIAL(t, case_068_two_devices_interleaved);
        TRIAL(t, two_devices_wait_for_each_other);
        TRIAL(t, a_context_made_elsewhere_is_used_and_left_alone);
        TRIAL(t, a_context_that_does_not_fit_is_an_error);
        TRIAL(t, the_primary_context_goes_with_its_last_user);
        TRIAL(t, what_fails_while_opening_is_reported_and_undone);
        TRIAL(t, what_only_describes_a_device_may_fail);
        TRIAL(t, a_reset_of_the_simulator_ends_the_devices);
        TRIAL(t, after_a_reset_the_program_initialises_the_driver);
    }
    return trials_run(t);
}
