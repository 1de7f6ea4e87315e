/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a stream: made, counted by handles and by the sequences on it, given back.
 *
 * Invariants: a stream with something in its queue or ring has references (each sequence holds one),
 * so at refs == 0 nothing of ours is on it and its native stream can serve as another one. `native`
 * is NULL once the gpu left its loop; from then on the struct is memory only.
 */
#include "gpu/flow.h"

#include <stdlib.h>
#include <string.h>

enum { LEVELS = 3 };

static int level_index(int level)
{
    return level + 1;
}

/* CUDA: the lower the number, the higher the priority. */
static int native_priority(const culvert_gpu *gpu, int level)
{
    int least = gpu->device->description.priority_least;
    int greatest = gpu->device->description.priority_greatest;
    if (level == CULVERT_PRIORITY_HIGH)
        return greatest;
    return level == CULVERT_PRIORITY_LOW ? least : (least + greatest) / 2;
}

static bool options_ok(culvert_stream_options *out, const culvert_stream_options *in,
                       const char *op, const char *where, culvert_error *err)
{
    *out = (culvert_stream_options)CULVERT_STREAM_OPTIONS_INIT;
    if (in != NULL && (in->struct_size < sizeof in->struct_size || in->struct_size > sizeof *out)) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options->struct_size is %zu; CULVERT_STREAM_OPTIONS_INIT sets it, and "
                           "this library knows %zu bytes",
                           in->struct_size, sizeof *out);
        return false;
    }
    if (in != NULL)
        memcpy(out, in, in->struct_size);
    if (out->priority < CULVERT_PRIORITY_LOW || out->priority > CULVERT_PRIORITY_HIGH) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "priority %d is none of CULVERT_PRIORITY_LOW (%d), _NORMAL (%d) and "
                           "_HIGH (%d)",
                           out->priority, CULVERT_PRIORITY_LOW, CULVERT_PRIORITY_NORMAL,
                           CULVERT_PRIORITY_HIGH);
        return false;
    }
    return true;
}

static struct CUstream_st *take_native(culvert_gpu *gpu, int level, const char *op,
                                       const char *where, culvert_error *err)
{
    culvert__flow *flow = gpu->flow;
    int i = level_index(level);
    struct CUstream_st *native = NULL;
    if (flow->nspare[i] > 0)
        return flow->spare[i][--flow->nspare[i]];
    culvert__visit visit = culvert__driver_enter(gpu, "cuStreamCreateWithPriority");
    const char *call = "cuCtxPushCurrent";
    int r = visit.scope.result;
    if (r == CULVERT__CUDA_SUCCESS) {
        call = "cuStreamCreateWithPriority";
        r = gpu->drv->cuStreamCreateWithPriority(&native, CULVERT__CU_STREAM_NON_BLOCKING,
                                                 native_priority(gpu, level));
    }
    culvert__driver_leave(gpu, visit);
    if (r != CULVERT__CUDA_SUCCESS)
        culvert__gpu_result(gpu, r, false, call, op, where, err);
    return r == CULVERT__CUDA_SUCCESS ? native : NULL;
}

static void give_native(culvert_gpu *gpu, struct CUstream_st *native, int level)
{
    culvert__flow *flow = gpu->flow;
    int i = level_index(level);
    if (native == NULL || culvert__device_is_lost(gpu->device))
        return;
    if (flow->nspare[i] < sizeof flow->spare[i] / sizeof flow->spare[i][0]) {
        flow->spare[i][flow->nspare[i]++] = native;
    } else {
        culvert__visit visit = culvert__driver_enter(gpu, "cuStreamDestroy");
        (void)gpu->drv->cuStreamDestroy(native);
        culvert__driver_leave(gpu, visit);
    }
}

culvert_stream *culvert__stream_wrap(culvert_gpu *gpu, struct CUstream_st *native, const char *op,
                                     const char *where, culvert_error *err)
{
    culvert_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, op, where,
                           "no memory for %zu bytes of a stream's state", sizeof *s);
        return NULL;
    }
    s->native = native;
    s->refs = 1;
    s->gpu = culvert__gpu_ref(gpu);
    s->cap = CULVERT__STREAM_CAP;
    s->owed_end = &s->owed;
    culvert__watch_init(s);
    culvert__list_init(&s->queue);
    culvert__list_push(&gpu->flow->streams, &s->all);
    return s;
}

culvert_stream *culvert__stream_make(culvert_gpu *gpu, const culvert_stream_options *options,
                                     const char *op, const char *where, culvert_error *err)
{
    struct CUstream_st *native = take_native(gpu, options->priority, op, where, err);
    culvert_stream *s = native != NULL ? culvert__stream_wrap(gpu, native, op, where, err) : NULL;
    if (s == NULL) {
        give_native(gpu, native, options->priority);
        return NULL;
    }
    s->level = options->priority;
    s->max_queued = options->max_queued;
    return s;
}

culvert_stream *culvert_stream_new_at(const char *where, culvert_gpu *gpu,
                                      const culvert_stream_options *options, culvert_error *err)
{
    const char *op = "culvert_stream_new";
    culvert_stream_options in_force;
    CULVERT__REQUIRE(gpu, op, "gpu");
    if (culvert__gpu_refuses(gpu, op, where, err) ||
        !options_ok(&in_force, options, op, where, err))
        return NULL;
    return culvert__stream_make(gpu, &in_force, op, where, err);
}

culvert_stream *culvert_stream_new(culvert_gpu *gpu, const culvert_stream_options *options,
                                   culvert_error *err)
{
    return culvert_stream_new_at(NULL, gpu, options, err);
}

/* ---- the pool ---- */

/* Of equals, the one whose oldest work is younger: what is there longest is the likeliest to stay. */
static bool younger(const culvert_stream *a, const culvert_stream *b)
{
    if (a->seen == a->enq || b->seen == b->enq)
        return a->seen == a->enq && b->seen != b->enq;
    return a->ring[a->seen % CULVERT__STREAM_RING].submitted >
           b->ring[b->seen % CULVERT__STREAM_RING].submitted;
}

static bool better(const culvert_stream *a, const culvert_stream *b)
{
    bool a_held = a->queued > 0, b_held = b->queued > 0;
    size_t a_load = a->queued + a->in_flight, b_load = b->queued + b->in_flight;
    if (a_held != b_held)
        return b_held;
    return a_load != b_load ? a_load < b_load : younger(a, b);
}

static culvert_stream *least_loaded(culvert_gpu *gpu, int level)
{
    culvert_stream *best = NULL;
    culvert__link *anchor = &gpu->flow->streams;
    for (culvert__link *l = anchor->next; l != anchor; l = l->next) {
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        if (s->pooled && s->level == level && (best == NULL || better(s, best)))
            best = s;
    }
    return best;
}

culvert_stream *culvert_stream_pick_at(const char *where, culvert_gpu *gpu, int priority,
                                       culvert_error *err)
{
    const char *op = "culvert_stream_pick";
    culvert_stream_options options = CULVERT_STREAM_OPTIONS_INIT, in_force;
    culvert_error local = CULVERT_ERROR_INIT;
    CULVERT__REQUIRE(gpu, op, "gpu");
    options.priority = priority;
    if (culvert__gpu_refuses(gpu, op, where, err) ||
        !options_ok(&in_force, &options, op, where, err))
        return NULL;
    culvert__flow *flow = gpu->flow;
    culvert_stream *best = least_loaded(gpu, priority);
    unsigned *pooled = &flow->pooled[level_index(priority)];
    bool idle = best != NULL && best->queued + best->in_flight == 0;
    if (idle || *pooled >= flow->pool_size)
        return culvert_stream_ref(best);
    culvert_stream *made = culvert__stream_make(gpu, &in_force, op, where, &local);
    if (made != NULL) {
        made->pooled = true;
        ++*pooled;
        return culvert_stream_ref(made);
    }
    if (best == NULL || gpu->lost) {
        if (err != NULL)
            *err = local;
        return NULL;
    }
    culvert__loop_log(gpu->loop, CULVERT_LOG_WARNING,
                      "the pool of %u streams stays at %u: %s; they are shared", flow->pool_size,
                      *pooled, local.message);
    flow->pool_size = *pooled;
    return culvert_stream_ref(best);
}

culvert_stream *culvert_stream_pick(culvert_gpu *gpu, int priority, culvert_error *err)
{
    return culvert_stream_pick_at(NULL, gpu, priority, err);
}

void culvert__pool_drop(culvert_gpu *gpu)
{
    culvert__link *anchor = &gpu->flow->streams;
    culvert__gpu_ref(gpu);
    for (culvert__link *l = anchor->next, *next; l != anchor; l = next) {
        next = l->next;
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        if (!s->pooled && !s->lane)
            continue;
        s->pooled = s->lane = false;
        culvert__stream_put(s);
    }
    memset(gpu->flow->pooled, 0, sizeof gpu->flow->pooled);
    culvert__gpu_unref(gpu);
}

/* ---- handles ---- */

struct CUstream_st *culvert_stream_native(culvert_stream *stream)
{
    CULVERT__REQUIRE(stream, "culvert_stream_native", "stream");
    if (culvert__forked() || culvert__device_is_lost(stream->gpu->device))
        return NULL;
    stream->exposed = true;
    return stream->native;
}

culvert_gpu *culvert_stream_gpu(culvert_stream *stream)
{
    CULVERT__REQUIRE(stream, "culvert_stream_gpu", "stream");
    return stream->gpu;
}

size_t culvert_stream_in_flight(const culvert_stream *stream)
{
    CULVERT__REQUIRE(stream, "culvert_stream_in_flight", "stream");
    return stream->in_flight;
}

size_t culvert_stream_queued(const culvert_stream *stream)
{
    CULVERT__REQUIRE(stream, "culvert_stream_queued", "stream");
    return stream->queued;
}

culvert_stream *culvert_stream_ref(culvert_stream *stream)
{
    CULVERT__REQUIRE(stream, "culvert_stream_ref", "stream");
    stream->refs++;
    return stream;
}

/* Out of every list but flow->streams. What it waited for is for the next one in the line. */
static void leave_lines(culvert_stream *s)
{
    if (culvert__linked(&s->pump.link))
        culvert__ready_unlink(culvert__gpu_core(s->gpu), &s->pump);
    if (culvert__linked(&s->busy))
        culvert__list_unlink(&s->busy);
    if (culvert__linked(&s->starved))
        culvert__starved_leave(s);
    if (culvert__linked(&s->slotless))
        culvert__slotless_leave(s);
    if (culvert__linked(&s->graph_line))
        culvert__graph_line_leave(s);
}

void culvert__stream_put(culvert_stream *s)
{
    if (--s->refs > 0)
        return;
    culvert_gpu *gpu = s->gpu;
    leave_lines(s);
    if (culvert__linked(&s->all)) {
        culvert__list_unlink(&s->all);
        if (!s->adopted)
            give_native(gpu, s->native, s->level);
        s->native = NULL;
    }
    free(s);
    culvert__gpu_unref(gpu);
}

void culvert_stream_unref(culvert_stream *stream)
{
    if (stream == NULL || culvert__forked())
        return;
    culvert__check_thread(culvert__gpu_core(stream->gpu), "culvert_stream_unref");
    culvert__stream_put(stream);
}

/* ---- the gpu leaves the loop ---- */

static void leave(culvert_gpu *gpu, culvert_stream *s, bool leak)
{
    bool in_use = s->seen != s->enq; /* the ring stays as it is: it names slots that are leaked */
    s->arm = NULL;
    culvert__watch_end(s);
    leave_lines(s);
    if (!leak)
        culvert__units_give(s, s->units); /* for the other loops: they are not to wait for ever */
    if (!leak && !in_use && !s->adopted && s->native != NULL)
        (void)gpu->drv->cuStreamDestroy(s->native);
    s->native = NULL;
}

void culvert__streams_leave(culvert_gpu *gpu, bool leak)
{
    culvert__flow *flow = gpu->flow;
    while (!culvert__list_empty(&flow->streams)) {
        culvert_stream *s = CULVERT__CONTAINER(flow->streams.next, culvert_stream, all);
        culvert__list_unlink(&s->all);
        s->refs++;
        leave(gpu, s, leak);
        culvert__stream_put(s);
    }
    for (int i = 0; i < LEVELS; i++)
        while (flow->nspare[i] > 0) {
            struct CUstream_st *native = flow->spare[i][--flow->nspare[i]];
            if (!leak)
                (void)gpu->drv->cuStreamDestroy(native);
        }
}
