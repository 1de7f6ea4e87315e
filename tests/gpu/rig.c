/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/rig.h"

#include "culvert/sim.h"
#include "driver/abi.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A machine that is busy with other things may be slow; a test that hangs is killed by Check. */
static const double patience = 60.0;

/* The simulator's own. */
extern culvert__FN_cuInit cuInit;

bool rig_simulated(void)
{
    const char *driver = getenv("CULVERT_DRIVER");
    return driver != NULL && strcmp(driver, "sim") == 0;
}

void rig_fresh(void)
{
    if (rig_simulated())
        culvert_sim_reset();
}

void rig_open_loop(rig *r)
{
    culvert_error err = CULVERT_ERROR_INIT;
    memset(r, 0, sizeof *r);
    /* The library initialises a driver once a process; a reset of the simulator undoes it. */
    if (rig_simulated())
        ck_assert_int_eq(cuInit(0), CULVERT__CUDA_SUCCESS);
    r->ev = ev_loop_new(EVFLAG_AUTO);
    ck_assert_ptr_nonnull(r->ev);
    r->loop = culvert_loop_new(r->ev, NULL, &err);
    ck_assert_msg(r->loop != NULL, "%s", err.message);
}

void rig_open(rig *r, const culvert_gpu_options *options)
{
    rig_open_device(r, 0, options);
}

void rig_open_device(rig *r, int ordinal, const culvert_gpu_options *options)
{
    culvert_error err = CULVERT_ERROR_INIT;
    rig_open_loop(r);
    r->gpu = culvert_gpu_open(r->loop, ordinal, options, &err);
    ck_assert_msg(r->gpu != NULL, "%s", err.message);
    r->stream = culvert_stream_new(r->gpu, NULL, &err);
    ck_assert_msg(r->stream != NULL, "%s", err.message);
}

void rig_nothing_left(void)
{
    static const char *const kinds[] = {"event", "stream", "module", "device bytes",
                                        "pinned bytes"};
    if (!rig_simulated())
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        ck_assert_msg(culvert_sim_live(kinds[i]) == 0, "%llu left: %s",
                      (unsigned long long)culvert_sim_live(kinds[i]), kinds[i]);
}

void rig_close(rig *r)
{
    culvert_stream_unref(r->stream);
    culvert_gpu_close(r->gpu);
    culvert_loop_free(r->loop);
    ev_loop_destroy(r->ev);
    memset(r, 0, sizeof *r);
    rig_nothing_left();
}

void rig_settle_ok(culvert_future *future)
{
    int status = culvert_await(future, patience);
    if (status != CULVERT_OK) {
        const culvert_error *err = culvert_get_error(future);
        ck_abort_msg("%s: %s", culvert_error_name(status), err != NULL ? err->message : "");
    }
    culvert_unref(future);
}

culvert_error rig_settle_error(culvert_future *future, int code)
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

culvert_module *rig_module(rig *r, const culvert_image *image)
{
    culvert_future *future = culvert_module_load(r->gpu, image);
    int status = culvert_await(future, patience);
    if (status != CULVERT_OK) {
        const culvert_error *err = culvert_get_error(future);
        ck_abort_msg("%s: %s", culvert_error_name(status), err != NULL ? err->message : "");
    }
    culvert_module *module = culvert_take(future);
    ck_assert_ptr_nonnull(module);
    culvert_unref(future);
    return module;
}

void rig_says(const culvert_error *err, const char *text)
{
    ck_assert_msg(strstr(err->message, text) != NULL, "\"%s\" is not in \"%s\"", text,
                  err->message);
}
