/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The jobs of raw.c with Culvert: each operation has a future, and each future a continuation.
 */
#include "bench.h"

#include "empty.culvert.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

enum { OUTSTANDING = 384, SUBMITS = 128 };

struct library {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream;
    culvert_future *module;
    culvert_kernel *empty;
    /* the run at hand */
    size_t left, out;
    uint64_t start;
    samples *samples;
};

static const culvert_grid one_warp = {.blocks = {1}, .threads = {32}};

static void check(const void *handle, const culvert_error *err, const char *what)
{
    if (handle == NULL)
        die(what, err->message);
}

library *library_open(const char *driver, int device, int wake)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    library *l = calloc(1, sizeof *l);
    if (l == NULL)
        die("library", "out of memory");
    options.driver = driver;
    options.wake = wake;
    l->ev = ev_loop_new(0);
    check(l->loop = culvert_loop_new(l->ev, &options, &err), &err, "culvert_loop_new");
    check(l->gpu = culvert_gpu_open(l->loop, device, NULL, &err), &err, "culvert_gpu_open");
    check(l->stream = culvert_stream_new(l->gpu, NULL, &err), &err, "culvert_stream_new");
    l->module = culvert_module_load(l->gpu, &culvert_image_empty);
    if (culvert_await(l->module, 60) != CULVERT_OK)
        die("culvert_module_load", culvert_get_error(l->module)->message);
    check(l->empty = culvert_module_kernel(culvert_value(l->module), "empty", &err), &err,
          "culvert_module_kernel");
    return l;
}

void library_close(library *l)
{
    culvert_unref(l->module);
    culvert_stream_unref(l->stream);
    culvert_gpu_close(l->gpu);
    culvert_loop_free(l->loop);
    ev_loop_destroy(l->ev);
    free(l);
}

static void well(culvert_future *done)
{
    const culvert_error *err = culvert_get_error(done);
    if (err != NULL)
        die("an operation", err->message);
}

static void must(int result)
{
    if (result != CULVERT_OK)
        die("culvert_on_settled", culvert_error_text(result));
}

/* ---- round trip ---- */

static void trip_over(culvert_future *done, void *arg);

static void next_trip(library *l)
{
    l->start = now_ns();
    must(culvert_on_settled(culvert_launch(l->stream, l->empty, &one_warp, NULL, 0), trip_over, l,
                            NULL));
}

static void trip_over(culvert_future *done, void *arg)
{
    library *l = arg;
    samples_add(l->samples, (double)(now_ns() - l->start) / 1e3);
    well(done);
    if (--l->left > 0)
        next_trip(l);
}

void library_round_trip(void *self, size_t count, samples *out)
{
    library *l = self;
    l->left = count;
    l->samples = out;
    next_trip(l);
    ev_run(l->ev, 0);
}

/* ---- throughput ---- */

static void op_over(culvert_future *done, void *arg);

static void submit_some(library *l)
{
    while (l->left > 0 && l->out < OUTSTANDING) {
        l->left--;
        l->out++;
        must(culvert_on_settled(culvert_launch(l->stream, l->empty, &one_warp, NULL, 0), op_over, l,
                                NULL));
    }
}

static void op_over(culvert_future *done, void *arg)
{
    library *l = arg;
    well(done);
    l->out--;
    submit_some(l);
}

void library_throughput(void *self, size_t count, samples *out)
{
    library *l = self;
    uint64_t start = now_ns();
    l->left = count;
    l->out = 0;
    submit_some(l);
    ev_run(l->ev, 0);
    samples_add(out, (double)(now_ns() - start) / 1e3 / (double)count);
}

static void nothing(culvert_future *done, void *arg)
{
    (void)arg;
    well(done);
}

void library_submit_cost(void *self, size_t count, samples *out)
{
    library *l = self;
    for (size_t i = 0; i < count; i += SUBMITS) {
        uint64_t start = now_ns();
        for (int k = 0; k < SUBMITS; k++)
            must(culvert_on_settled(culvert_launch(l->stream, l->empty, &one_warp, NULL, 0),
                                    nothing, NULL, NULL));
        samples_add(out, (double)(now_ns() - start) / 1e3 / SUBMITS);
        ev_run(l->ev, 0);
    }
}

/* ---- a chain of steps, no GPU ---- */

static culvert_future *step(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

void library_chain(void *self, size_t count, samples *out)
{
    library *l = self;
    uint64_t start = now_ns();
    culvert_future *chain = culvert_resolved(l->loop, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        chain = culvert_then(chain, step, NULL, NULL);
    must(culvert_on_settled(chain, nothing, NULL, NULL));
    ev_run(l->ev, 0);
    samples_add(out, (double)(now_ns() - start) / 1e3 / (double)count);
}
