/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor: driver calls written by hand for each job, on the same driver.
 */
#include "bench.h"

#include "driver/table.h"

#include "empty.culvert.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_FLIGHT = 256, SUBMITS = 128 };

struct raw {
    const culvert__driver *drv;
    struct CUctx_st *ctx;
    struct CUstream_st *stream, *second;
    struct CUmod_st *module;
    struct CUfunc_st *empty;
    struct CUevent_st *events[IN_FLIGHT];
    struct ev_loop *ev;
    ev_async async;
    char text[256];
};

static void check(const raw *r, int result, const char *call)
{
    if (result != 0)
        die(call, culvert__driver_error_name(r->drv, result));
}

static void on_async(struct ev_loop *ev, ev_async *w, int events)
{
    (void)w;
    (void)events;
    ev_break(ev, EVBREAK_ONE);
}

raw *raw_open(const char *driver, int ordinal)
{
    culvert_error err = CULVERT_ERROR_INIT;
    int device = 0;
    char name[128] = "";
    raw *r = calloc(1, sizeof *r);
    if (r == NULL)
        die("raw", "out of memory");
    r->drv = culvert__driver_open(driver, &err);
    if (r->drv == NULL)
        die("driver", err.message);
    check(r, r->drv->cuDeviceGet(&device, ordinal), "cuDeviceGet");
    check(r, r->drv->cuDevicePrimaryCtxRetain(&r->ctx, device), "cuDevicePrimaryCtxRetain");
    check(r, r->drv->cuCtxSetCurrent(r->ctx), "cuCtxSetCurrent");
    check(r, r->drv->cuStreamCreateWithPriority(&r->stream, 1, 0), "cuStreamCreateWithPriority");
    check(r, r->drv->cuStreamCreateWithPriority(&r->second, 1, 0), "cuStreamCreateWithPriority");
    const void *image =
        r->drv->simulated ? culvert_image_empty.sim_module : culvert_image_empty.fatbin;
    check(r, r->drv->cuModuleLoadDataEx(&r->module, image, 0, NULL, NULL), "cuModuleLoadDataEx");
    check(r, r->drv->cuModuleGetFunction(&r->empty, r->module, "empty"), "cuModuleGetFunction");
    for (int i = 0; i < IN_FLIGHT; i++)
        check(r, r->drv->cuEventCreate(&r->events[i], CULVERT__CU_EVENT_DISABLE_TIMING),
              "cuEventCreate");
    r->ev = ev_loop_new(0);
    ev_async_init(&r->async, on_async);
    ev_async_start(r->ev, &r->async);
    (void)r->drv->cuDeviceGetName(name, sizeof name, device);
    snprintf(r->text, sizeof r->text, "%s, %s, driver %d.%d%s", name, r->drv->file,
             r->drv->version / 1000, r->drv->version % 1000 / 10,
             r->drv->simulated ? " (SIMULATED: no figure of a GPU)" : "");
    return r;
}

const char *raw_describe(raw *r)
{
    return r->text;
}

void raw_close(raw *r)
{
    ev_async_stop(r->ev, &r->async);
    ev_loop_destroy(r->ev);
    for (int i = 0; i < IN_FLIGHT; i++)
        (void)r->drv->cuEventDestroy(r->events[i]);
    (void)r->drv->cuModuleUnload(r->module);
    (void)r->drv->cuStreamDestroy(r->stream);
    (void)r->drv->cuStreamDestroy(r->second);
    (void)r->drv->cuCtxSetCurrent(NULL);
    free(r);
}

static void launch(raw *r, struct CUevent_st *event)
{
    check(r, r->drv->cuLaunchKernel(r->empty, 1, 1, 1, 32, 1, 1, 0, r->stream, NULL, NULL),
          "cuLaunchKernel");
    check(r, r->drv->cuEventRecord(event, r->stream), "cuEventRecord");
}

void raw_round_trip_spin(void *self, size_t count, samples *out)
{
    raw *r = self;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        launch(r, r->events[0]);
        while (r->drv->cuEventQuery(r->events[0]) == CULVERT__CUDA_ERROR_NOT_READY)
            ;
        samples_add(out, (double)(now_ns() - start) / 1e3);
    }
}

static void host_func(void *arg)
{
    raw *r = arg;
    ev_async_send(r->ev, &r->async);
}

void raw_round_trip_host_func(void *self, size_t count, samples *out)
{
    raw *r = self;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        launch(r, r->events[0]);
        check(r, r->drv->cuStreamWaitEvent(r->second, r->events[0], 0), "cuStreamWaitEvent");
        check(r, r->drv->cuLaunchHostFunc(r->second, host_func, r), "cuLaunchHostFunc");
        ev_run(r->ev, 0);
        samples_add(out, (double)(now_ns() - start) / 1e3);
    }
}

static void wait_for(raw *r, struct CUevent_st *event)
{
    int result;
    while ((result = r->drv->cuEventQuery(event)) == CULVERT__CUDA_ERROR_NOT_READY)
        ;
    check(r, result, "cuEventQuery");
}

/* Launch and event each, as many in flight as the library allows; nobody is told of an end. */
void raw_throughput(void *self, size_t count, samples *out)
{
    raw *r = self;
    uint64_t start = now_ns();
    for (size_t i = 0; i < count; i++) {
        if (i >= IN_FLIGHT && i % (IN_FLIGHT / 2) == 0)
            wait_for(r, r->events[(i - IN_FLIGHT / 2) % IN_FLIGHT]);
        launch(r, r->events[i % IN_FLIGHT]);
    }
    wait_for(r, r->events[(count - 1) % IN_FLIGHT]);
    samples_add(out, (double)(now_ns() - start) / 1e3 / (double)count);
}

/* What the calls cost the calling thread while the device is not behind. */
void raw_submit_cost(void *self, size_t count, samples *out)
{
    raw *r = self;
    for (size_t i = 0; i < count; i += SUBMITS) {
        uint64_t start = now_ns();
        for (int k = 0; k < SUBMITS; k++)
            launch(r, r->events[k]);
        samples_add(out, (double)(now_ns() - start) / 1e3 / SUBMITS);
        wait_for(r, r->events[SUBMITS - 1]);
    }
}
