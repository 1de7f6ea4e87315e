/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server is made of: a semaphore before something scarce, and a batcher that answers many
 * requests with one launch. The device is held for a while, so that it is sure who comes too late.
 *
 * Prints:
 *     2 in, 3 wait, 1 refused
 *     one request: CULVERT_EAGAIN
 *     2 permits are free, 5 were granted
 *     CULVERT_EAGAIN: busy
 *     CULVERT_ETIMEDOUT: too late
 *     10
 *     40
 *     CULVERT_EUSER: refused
 *     3 items in 2 batches
 */
#include "snippet.h"

#include <culvert/sim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a semaphore ---- */

/* region: semaphore */
static culvert_future *give_back(culvert_future *done, void *permits)
{
    (void)done;
    culvert_semaphore_release(permits);
    return NULL;
}

static culvert_future *admitted(culvert_future *permit, void *permits)
{
    if (culvert_status(permit) != CULVERT_OK)
        return NULL; /* CULVERT_EAGAIN: too many wait already. There is no permit to give back */
    culvert_future *work = culvert_sleep(culvert_future_loop(permit), 0.01); /* stands for work */
    return culvert_finally(work, give_back, permits, NULL);
}

/* Always culvert_finally: a culvert_then that is cancelled never runs, and so a permit is lost. */
static culvert_future *one_request(culvert_semaphore *permits)
{
    return culvert_finally(culvert_semaphore_acquire(permits), admitted, permits, NULL);
}
/* end region */

static void over(culvert_future *f, void *arg)
{
    (void)arg;
    if (culvert_status(f) != CULVERT_OK)
        printf("one request: %s\n", culvert_error_name(culvert_status(f)));
}

static void six_requests(snippet *s)
{
    culvert_loop *loop = s->loop;
    culvert_error err = CULVERT_ERROR_INIT;
    /* region: permits */
    culvert_semaphore *permits = culvert_semaphore_new(loop, 2, 3, &err); /* 2 at a time, 3 wait */
    /* end region */
    culvert_semaphore_counters now = {.struct_size = sizeof now};
    snippet_must(permits, &err);
    for (int i = 0; i < 6; i++)
        culvert_on_settled(one_request(permits), over, NULL, NULL);
    culvert_semaphore_stats(permits, &now);
    printf("%zu in, %zu wait, %d refused\n", now.held, now.waiting, (int)now.refused);
    ev_run(s->ev, 0);
    culvert_semaphore_stats(permits, &now);
    printf("%zu permits are free, %d were granted\n", now.permits, (int)now.granted);
    culvert_semaphore_unref(permits);
}

/* ---- a batcher ---- */

/* region: run */
enum { MOST = 32 };

typedef struct request {
    float x, answer;
} request;

typedef struct service {
    culvert_stream *stream;
    culvert_kernel *scale;
    culvert_buffer *device, *host; /* MOST floats each: one batch runs at a time */
    void *const *items;            /* of the batch that runs */
    size_t n;
} service;

static culvert_future *hand_out(culvert_future *done, void *arg)
{
    service *s = arg;
    const float *answers = culvert_buffer_data(s->host);
    (void)done;
    for (size_t i = 0; i < s->n; i++)
        ((request *)s->items[i])->answer = answers[i];
    return NULL; /* the batch is over: each item's future settles */
}

/* One launch for all of them. */
static culvert_future *run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    service *s = arg;
    float *x = culvert_buffer_data(s->host);
    s->items = items;
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        x[i] = ((const request *)items[i])->x;
        if (x[i] < 0) {
            culvert_error err = CULVERT_ERROR_INIT;
            culvert_error_set(&err, CULVERT_EUSER, 0, "%g is negative", x[i]);
            culvert_batch_fail(batch, i, &err); /* this one alone; the others get their answers */
        }
    }
    culvert_seq *seq = culvert_seq_begin(s->stream);
    culvert_seq_copy(seq, s->device, 0, s->host, 0, n * sizeof *x);
    culvert_seq_launch(seq, s->scale, &(culvert_grid){.blocks = {1}, .threads = {MOST}},
                       CULVERT_ARGS(CULVERT_BUFFER(s->device), CULVERT_F32(10.0f),
                                    CULVERT_U32((unsigned)n)));
    culvert_seq_copy(seq, s->host, 0, s->device, 0, n * sizeof *x);
    return culvert_then(culvert_seq_submit(seq), hand_out, s, NULL);
}
/* end region */

/* Tells the client. */
static void refused(int code)
{
    const char *what = code == CULVERT_EAGAIN      ? "busy"
                       : code == CULVERT_ETIMEDOUT ? "too late"
                                                   : "refused";
    printf("%s: %s\n", culvert_error_name(code), what);
    if (code == CULVERT_ETIMEDOUT)
        culvert_sim_release(NULL); /* the device goes on */
}

/* region: item */
static void answered(culvert_future *f, void *arg)
{
    const request *r = arg; /* the batcher's; it is there where the future has resolved */
    if (culvert_status(f) == CULVERT_OK)
        printf("%g\n", r->answer);
    else
        refused(culvert_get_error(f)->code);
}

static void one_item(culvert_batcher *batcher, float x, double deadline)
{
    request *r = malloc(sizeof *r);
    if (r == NULL)
        return;
    r->x = x;
    culvert_on_settled(culvert_batcher_add(batcher, r, free, deadline), answered, r, NULL);
}
/* end region */

static void five_items(snippet *s)
{
    culvert_loop *loop = s->loop;
    culvert_error err = CULVERT_ERROR_INIT;
    service scaling = {.stream = s->stream, .scale = snippet_kernel(s, "scale")};
    scaling.device = snippet_must(culvert_buffer_new(s->gpu, MOST * sizeof(float), &err), &err);
    scaling.host = snippet_must(culvert_host_buffer_new(s->gpu, MOST * sizeof(float), &err), &err);
    /* region: batcher */
    culvert_batcher_options options = CULVERT_BATCHER_OPTIONS_INIT;
    options.max_items = MOST;
    options.max_running = 1; /* the next batch collects items meanwhile */
    options.max_queued = 3;  /* one more is refused at once: CULVERT_EAGAIN */
    options.run = run;
    options.arg = &scaling;
    culvert_batcher *batcher = snippet_must(culvert_batcher_new(loop, &options, &err), &err);
    /* end region */

    culvert_batcher_counters now = {.struct_size = sizeof now};
    culvert_sim_hold(culvert_stream_native(s->stream));
    one_item(batcher, 1, INFINITY);
    while (now.running == 0) {
        ev_run(s->ev, EVRUN_ONCE);
        culvert_batcher_stats(batcher, &now);
    }
    /* region: items */
    one_item(batcher, 9, 0.02); /* its batch must have begun within 20 ms */
    one_item(batcher, 4, INFINITY);
    one_item(batcher, -1, INFINITY);
    one_item(batcher, 5, INFINITY);
    /* end region */
    ev_run(s->ev, 0);
    culvert_batcher_stats(batcher, &now);
    printf("%d items in %d batches\n", (int)now.batched_items, (int)now.batches);
    culvert_batcher_unref(batcher);
    culvert_buffer_unref(scaling.host);
    culvert_buffer_unref(scaling.device);
}

int main(void)
{
    snippet s;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.driver = "sim";
    snippet_open(&s, &options, NULL);
    six_requests(&s);
    five_items(&s);
    snippet_close(&s);
    return 0;
}
