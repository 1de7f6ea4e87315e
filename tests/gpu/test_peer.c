/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies between devices. On machines with one GPU there is nothing to copy to: skipped. */
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "lib/check_main.h"

#include <stdlib.h>
#include <string.h>

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(struct CUctx_st *ctx);
int cuCtxPopCurrent_v2(struct CUctx_st **ctx);
int cuCtxEnablePeerAccess(struct CUctx_st *ctx, unsigned flags);

enum { BYTES = 1 << 20, ILLEGAL_ADDRESS = 700 };

static gpu_fixture f;
static culvert_gpu *other;
static culvert_stream *beside;
static culvert_buffer *here, *there;

static culvert_buffer *device_buffer(culvert_gpu *gpu, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_buffer_new(gpu, bytes, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    return buffer;
}

/* The simulator is set up. */
static void open_both(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_open_as_is(&f, NULL, NULL);
    other = culvert_gpu_open(f.loop, 1, NULL, &err);
    ck_assert_msg(other != NULL, "%s", err.message);
    beside = culvert_stream_new(other, NULL, &err);
    ck_assert_msg(beside != NULL, "%s", err.message);
    here = device_buffer(f.gpu, BYTES);
    there = device_buffer(other, BYTES);
}

static void begin(void)
{
    gpu_fixture_reset();
    if (gpu_fixture_simulated())
        culvert_sim_devices(2);
}

static void end(void)
{
    culvert_buffer_unref(here);
    culvert_buffer_unref(there);
    culvert_stream_unref(beside);
    culvert_gpu_close(other);
    gpu_fixture_close(&f);
}

/* There and back again, by work of either device: what arrives is what was sent. */
static void check_round_trip(void)
{
    unsigned *in = malloc(BYTES), *out = calloc(1, BYTES);
    ck_assert(in != NULL && out != NULL);
    for (unsigned i = 0; i < BYTES / 4; i++)
        in[i] = i * 2654435761u;
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, here, 0, in, BYTES);
    culvert_seq_copy(seq, there, 0, here, 0, BYTES);
    culvert_seq_fill(seq, here, 0, BYTES, 0, 4);
    culvert_future *sent = culvert_seq_submit(seq);
    seq = culvert_seq_begin(beside);
    culvert_seq_wait(seq, sent);
    culvert_seq_copy(seq, here, 0, there, 0, BYTES);
    culvert_future *back = culvert_seq_submit(seq);
    seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, back);
    culvert_seq_download(seq, out, here, 0, BYTES);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert(memcmp(in, out, BYTES) == 0);
    free(in);
    free(out);
}

START_TEST(copies_go_both_ways)
{
    begin();
    open_both();
    check_round_trip();
    if (gpu_fixture_simulated()) {
        ck_assert_uint_eq(culvert_sim_calls("cuCtxEnablePeerAccess"), 2); /* once a way */
        ck_assert_uint_eq(culvert_sim_calls("cuMemcpyPeerAsync"), 2);
        check_round_trip();
        ck_assert_uint_eq(culvert_sim_calls("cuCtxEnablePeerAccess"), 2);
    }
    end();
}
END_TEST

START_TEST(case_088_without_access_the_driver_stages_the_copy)
{
    begin();
    culvert_sim_peer_access(0);
    open_both();
    check_round_trip();
    ck_assert_uint_eq(culvert_sim_calls("cuCtxEnablePeerAccess"), 0);
    ck_assert_uint_eq(culvert_sim_calls("cuMemcpyPeerAsync"), 2);
    end();
}
END_TEST

START_TEST(case_088_access_that_the_program_enabled_is_no_error)
{
    struct CUctx_st *ctx[2];
    begin();
    ck_assert_int_eq(cuInit(0), 0);
    for (int d = 0; d < 2; d++)
        ck_assert_int_eq(cuDevicePrimaryCtxRetain(&ctx[d], d), 0);
    ck_assert_int_eq(cuCtxPushCurrent_v2(ctx[0]), 0);
    ck_assert_int_eq(cuCtxEnablePeerAccess(ctx[1], 0), 0);
    ck_assert_int_eq(cuCtxPopCurrent_v2(NULL), 0);
    open_both();
    check_round_trip();
    end();
    for (int d = 0; d < 2; d++)
        ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(d), 0);
}
END_TEST

/* The other device's buffer is let go, and its handle closed, with the copy not begun. */
START_TEST(the_other_devices_memory_stays_until_the_end)
{
    begin();
    open_both();
    gpu_fixture_ok(culvert_fill(beside, there, 0, BYTES, 0x5a5a5a5a, 4));
    gpu_fixture_hold(&f, f.stream);
    culvert_future *copied = culvert_copy(f.stream, here, 0, there, 0, BYTES);
    culvert_buffer_unref(there);
    culvert_stream_unref(beside);
    culvert_gpu_close(other);
    there = NULL;
    beside = NULL;
    other = NULL;
    gpu_fixture_run(&f, 0.01);
    ck_assert_int_eq(culvert_status(copied), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(copied);
    unsigned last = 0;
    gpu_fixture_ok(culvert_download(f.stream, &last, here, BYTES - 4, 4));
    ck_assert_uint_eq(last, 0x5a5a5a5a);
    end();
}
END_TEST

START_TEST(a_lost_source_rejects_the_copy_and_nothing_else)
{
    begin();
    open_both();
    gpu_fixture_hold(&f, f.stream);
    culvert_future *copied = culvert_copy(f.stream, here, 0, there, 0, 64);
    culvert_future *filled = culvert_fill(f.stream, here, 0, 64, 0, 4);
    culvert_sim_poison(1, ILLEGAL_ADDRESS);
    (void)gpu_fixture_fails(culvert_stream_done(beside), CULVERT_EDEVICELOST);
    ck_assert_int_eq(culvert_status(copied), CULVERT_PENDING); /* its work is not over */
    uint64_t calls = culvert_sim_calls("cuMemcpyPeerAsync");
    culvert_error err =
        gpu_fixture_fails(culvert_copy(f.stream, here, 0, there, 0, 64), CULVERT_EDEVICELOST);
    gpu_fixture_says(&err, "device 1 was lost before this call");
    ck_assert_uint_eq(culvert_sim_calls("cuMemcpyPeerAsync"), calls);
    gpu_fixture_release(&f);
    err = gpu_fixture_fails(copied, CULVERT_EDEVICELOST);
    ck_assert_int_eq(err.native, ILLEGAL_ADDRESS);
    gpu_fixture_ok(filled);
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_OK);
    f.dirty = true; /* what the lost device held */
    end();
}
END_TEST

/* ... also one that had not gone to the driver when it was lost. */
START_TEST(a_copy_that_waits_while_the_other_device_is_lost)
{
    culvert_future *gate;
    begin();
    open_both();
    culvert_promise *promise = culvert_promise_new(f.loop, &gate);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, gate);
    culvert_seq_copy(seq, there, 0, here, 0, 64);
    culvert_future *copied = culvert_seq_submit(seq);
    culvert_sim_poison(1, ILLEGAL_ADDRESS);
    (void)gpu_fixture_fails(culvert_stream_done(beside), CULVERT_EDEVICELOST);
    culvert_resolve(promise, NULL, NULL);
    (void)gpu_fixture_fails(copied, CULVERT_EDEVICELOST);
    ck_assert_uint_eq(culvert_sim_calls("cuMemcpyPeerAsync"), 0);
    gpu_fixture_ok(culvert_fill(f.stream, here, 0, 64, 0, 4));
    f.dirty = true;
    end();
}
END_TEST

START_TEST(the_lost_device_of_the_sequence_rejects_it)
{
    begin();
    open_both();
    gpu_fixture_hold(&f, f.stream);
    culvert_future *copied = culvert_copy(f.stream, here, 0, there, 0, 64);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    (void)gpu_fixture_fails(copied, CULVERT_EDEVICELOST);
    gpu_fixture_ok(culvert_fill(beside, there, 64, 64, 0, 4)); /* the other one goes on */
    ck_assert_int_eq(culvert_gpu_state(other), CULVERT_GPU_OK);
    f.dirty = true;
    end();
}
END_TEST

START_TEST(what_cannot_be_copied_is_refused)
{
    begin();
    open_both();
    culvert_buffer *second = device_buffer(other, 64);
    culvert_error err =
        gpu_fixture_fails(culvert_copy(f.stream, second, 0, there, 0, 64), CULVERT_EINVAL);
    gpu_fixture_says(&err, "copy of 64 bytes: the buffer is of device 1, the stream of device 0");
    err = gpu_fixture_fails(culvert_copy(f.stream, here, 0, second, 32, 64), CULVERT_EINVAL);
    gpu_fixture_says(&err, "copy of 64 bytes at offset 32 runs past the end of a 64-byte buffer");
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy(seq, here, 0, second, 0, 64);
    err = gpu_fixture_fails(culvert_seq_compile(seq), CULVERT_EINVAL);
    gpu_fixture_says(&err, "a copy of 64 bytes between devices 1 and 0");
    gpu_fixture_ok(culvert_copy(f.stream, here, 0, second, 64, 0)); /* no bytes */
    culvert_buffer_unref(second);
    end();
}
END_TEST

int main(void)
{
    if (!gpu_fixture_simulated() && test_gpu_count() < 2)
        return TEST_SKIPPED;
    trials *t = trials_new("peer");
    TRIAL(t, copies_go_both_ways);
    TRIAL(t, the_other_devices_memory_stays_until_the_end);
    TRIAL(t, what_cannot_be_copied_is_refused);
    if (!gpu_fixture_simulated())
        return trials_run(t);
    TRIAL(t, case_088_without_access_the_driver_stages_the_copy);
    TRIAL(t, case_088_access_that_the_program_enabled_is_no_error);
    TRIAL(t, a_lost_source_rejects_the_copy_and_nothing_else);
    TRIAL(t, a_copy_that_waits_while_the_other_device_is_lost);
    TRIAL(t, the_lost_device_of_the_sequence_rejects_it);
    return trials_run(t);
}
