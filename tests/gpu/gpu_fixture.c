/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/gpu_fixture.h"

#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "lib/clock.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A machine that is busy with other things may be slow; a test that hangs is killed by Check. */
static const double patience = 100.0;

/* The simulator's: after a reset, a driver that is open already has to be initialised again. */
int cuInit(unsigned flags);
/* ... and what the library made and did not destroy would go with its context: the fixture keeps that. */
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);
int cuDevicePrimaryCtxRelease_v2(int device);

int gpu_fixture_ordinal;

bool gpu_fixture_simulated(void)
{
    const char *driver = getenv("CULVERT_DRIVER");
    return driver != NULL && strcmp(driver, "sim") == 0;
}

bool gpu_fixture_arms(void)
{
    const char *wake = getenv("CULVERT_TEST_WAKE");
    return wake == NULL || strcmp(wake, "host-func") == 0;
}

bool gpu_fixture_spins(void)
{
    const char *wake = getenv("CULVERT_TEST_WAKE");
    return wake != NULL && strcmp(wake, "spin") == 0;
}

void gpu_fixture_reset(void)
{
    if (gpu_fixture_simulated())
        culvert_sim_reset();
}

void gpu_fixture_open(gpu_fixture *f, const culvert_loop_options *loop_options,
                      const culvert_gpu_options *gpu_options)
{
    gpu_fixture_reset();
    gpu_fixture_open_as_is(f, loop_options, gpu_options);
}

static void load(gpu_fixture *f)
{
    culvert_future *loaded = culvert_module_load(f->gpu, &culvert_image_fixture);
    gpu_fixture_ok(culvert_ref(loaded));
    f->module = culvert_take(loaded);
    culvert_unref(loaded);
    ck_assert_ptr_nonnull(f->module);
}

void gpu_fixture_open_as_is(gpu_fixture *f, const culvert_loop_options *loop_options,
                            const culvert_gpu_options *gpu_options)
{
    gpu_fixture_open_on(f, ev_loop_new(EVFLAG_AUTO), loop_options, gpu_options);
}

void gpu_fixture_open_on(gpu_fixture *f, struct ev_loop *ev,
                         const culvert_loop_options *loop_options,
                         const culvert_gpu_options *gpu_options)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (gpu_fixture_simulated()) {
        ck_assert_int_eq(cuInit(0), 0);
        culvert_sim_strict(1);
    }
    memset(f, 0, sizeof *f);
    f->ordinal = gpu_fixture_ordinal;
    struct CUctx_st *ctx;
    if (gpu_fixture_simulated())
        ck_assert_int_eq(cuDevicePrimaryCtxRetain(&ctx, f->ordinal), 0);
    f->ev = ev;
    ck_assert_ptr_nonnull(f->ev);
    f->loop = culvert_loop_new(f->ev, loop_options, &err);
    ck_assert_msg(f->loop != NULL, "%s", err.message);
    f->gpu = culvert_gpu_open(f->loop, gpu_fixture_ordinal, gpu_options, &err);
    ck_assert_msg(f->gpu != NULL, "%s", err.message);
    f->stream = gpu_fixture_stream(f);
    load(f);
    if (gpu_fixture_simulated())
        culvert_sim_loop_thread();
}

void gpu_fixture_nothing_left(void)
{
    static const char *const kinds[] = {"event", "stream",       "module",
                                        "graph", "device bytes", "pinned bytes"};
    if (!gpu_fixture_simulated())
        return;
    char text[200] = "";
    culvert_sim_last_violation(text, sizeof text);
    ck_assert_msg(culvert_sim_violations() == 0, "violation: %s", text);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        ck_assert_msg(culvert_sim_live(kinds[i]) == 0, "%llu left: %s",
                      (unsigned long long)culvert_sim_live(kinds[i]), kinds[i]);
}

void gpu_fixture_close(gpu_fixture *f)
{
    if (f->ev == NULL)
        return;
    bool dirty = f->dirty;
    int ordinal = f->ordinal;
    culvert_buffer_unref(f->gate);
    culvert_module_unref(f->module);
    culvert_stream_unref(f->stream);
    culvert_gpu_close(f->gpu);
    culvert_loop_free(f->loop);
    ev_loop_destroy(f->ev);
    memset(f, 0, sizeof *f);
    if (!dirty)
        gpu_fixture_nothing_left();
    if (gpu_fixture_simulated())
        (void)cuDevicePrimaryCtxRelease_v2(ordinal); /* the device may be lost */
}

culvert_stream *gpu_fixture_stream(gpu_fixture *f)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_new(f->gpu, NULL, &err);
    ck_assert_msg(stream != NULL, "%s", err.message);
    return stream;
}

culvert_buffer *gpu_fixture_buffer(gpu_fixture *f, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_buffer_new(f->gpu, bytes, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    gpu_fixture_ok(culvert_fill(f->stream, buffer, 0, bytes, 0, 1));
    return buffer;
}

culvert_buffer *gpu_fixture_host_buffer(gpu_fixture *f, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_host_buffer_new(f->gpu, bytes, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    memset(culvert_buffer_data(buffer), 0, bytes);
    return buffer;
}

culvert_kernel *gpu_fixture_kernel(gpu_fixture *f, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_kernel *kernel = culvert_module_kernel(f->module, name, &err);
    ck_assert_msg(kernel != NULL, "%s", err.message);
    return kernel;
}

void gpu_fixture_ok(culvert_future *future)
{
    int status = culvert_await(future, patience);
    if (status != CULVERT_OK) {
        char text[512] = "";
        culvert_error_format(culvert_get_error(future), text, sizeof text);
        ck_abort_msg("%s: %s", culvert_error_name(status), text);
    }
    culvert_unref(future);
}

culvert_error gpu_fixture_fails(culvert_future *future, int code)
{
    culvert_error copy = CULVERT_ERROR_INIT;
    int status = culvert_await(future, patience);
    if (culvert_get_error(future) != NULL)
        copy = *culvert_get_error(future);
    culvert_unref(future);
    ck_assert_msg(status == code, "%s, not %s: %s", culvert_error_name(status),
                  culvert_error_name(code), copy.message);
    return copy;
}

void gpu_fixture_run(gpu_fixture *f, double seconds)
{
    culvert_future *time = culvert_sleep(f->loop, seconds);
    gpu_fixture_ok(time);
}

void gpu_fixture_until(gpu_fixture *f, bool (*holds)(void *arg), void *arg)
{
    double end = test_now() + patience;
    while (!holds(arg)) {
        ck_assert_msg(test_now() < end, "it never came true");
        gpu_fixture_run(f, 0.0005);
    }
}

static bool idle(void *arg)
{
    return culvert_stream_in_flight(arg) == 0 && culvert_stream_queued(arg) == 0;
}

void gpu_fixture_idle(gpu_fixture *f, culvert_stream *stream)
{
    gpu_fixture_until(f, idle, stream);
}

culvert_buffer *gpu_fixture_got(culvert_future *future)
{
    gpu_fixture_ok(culvert_ref(future));
    culvert_buffer *buffer = culvert_take(future);
    ck_assert_ptr_nonnull(buffer);
    culvert_unref(future);
    return buffer;
}

culvert_future *gpu_fixture_busy(gpu_fixture *f, double seconds)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    return culvert_launch(f->stream, gpu_fixture_kernel(f, "busy"), &grid,
                          CULVERT_ARGS(CULVERT_U64((uint64_t)(seconds * 1e9))));
}

void gpu_fixture_hold(gpu_fixture *f, culvert_stream *stream)
{
    if (gpu_fixture_simulated()) {
        culvert_sim_hold(culvert_stream_native(stream));
        return;
    }
    if (f->gate == NULL)
        f->gate = gpu_fixture_host_buffer(f, 4);
    unsigned was = *(volatile unsigned *)culvert_buffer_data(f->gate);
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_detach(culvert_launch(stream, gpu_fixture_kernel(f, "gate"), &grid,
                                  CULVERT_ARGS(CULVERT_BUFFER(f->gate), CULVERT_U32(was))));
}

void gpu_fixture_release(gpu_fixture *f)
{
    if (gpu_fixture_simulated())
        culvert_sim_release(NULL);
    else if (f->gate != NULL)
        *(volatile unsigned *)culvert_buffer_data(f->gate) += 1;
}

void gpu_fixture_add(gpu_fixture *f, culvert_seq *seq, culvert_buffer *words, unsigned index,
                     unsigned value)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq_launch(seq, gpu_fixture_kernel(f, "add_word"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(words), CULVERT_U32(index), CULVERT_U32(value)));
}

void gpu_fixture_note(gpu_fixture *f, culvert_seq *seq, culvert_buffer *words, unsigned value)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq_launch(seq, gpu_fixture_kernel(f, "note"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(words), CULVERT_U32(value)));
}

void gpu_fixture_says(const culvert_error *err, const char *text)
{
    ck_assert_msg(strstr(err->message, text) != NULL, "\"%s\" is not in \"%s\"", text,
                  err->message);
}
