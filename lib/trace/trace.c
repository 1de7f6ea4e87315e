/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Follows sequences from submit until their callbacks have run.
 *
 *   submitted -> enqueued (wholly in the driver) -> over (seen to be) -> settled -> [callbacks] -> written
 *
 * The lower layers know a table of functions (culvert__tracer), NULL where nothing is traced: a
 * sequence then costs a few branches that are never taken, and no event more.
 *
 * The callbacks of a sequence's future stand between two tasks of ours in the ready queue, which is
 * first in, first out: one is put there before the future settles and the other one after it.
 *
 * Device times become the loop's by an offset that is kept consistent with what must hold: nothing
 * starts before it was submitted, or ends after it was seen to be over. So it is as exact as the shortest
 * way to the device, some microseconds, and follows a clock that drifts. Spans of one stream are
 * kept apart: none begins before the one before it has ended.
 *
 * Invariants:
 *   - everything runs on the loop's thread; the writer has copies.
 *   - a sequence that is traced has an `op` of the pool; the tracer lives until it has all of them back,
 *     but after it was stopped it only takes them.
 */
#include "culvert/trace.h"

#include "gpu/gpu_internal.h"
#include "trace/nvtx.h"
#include "trace/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPS = 4096, CLOCKS = 16 };

typedef struct tracer tracer;

typedef struct op {
    culvert__traced traced; /* first */
    culvert__task before, after;
    struct op *next; /* in the pool */
    tracer *tracer;
    culvert__track *track;
    uint64_t range; /* of NVTX */
    culvert__record record;
} op;

typedef struct clock_offset {
    unsigned clock; /* 0: none yet */
    double ns;      /* the loop's time less the device's */
} clock_offset;

struct tracer {
    culvert__tracer hooks; /* first */
    culvert__core *core;
    bool stopped;
    culvert__writer *writer; /* NULL: no file, or stopped */
    void *domain;            /* of NVTX; open until the last range is over */
    unsigned serial, tracks;
    uint64_t ids, lost;
    size_t out; /* ops that sequences have */
    clock_offset offsets[CLOCKS];
    op *pool;
    op ops[OPS];
};

/* ---- the pool ---- */

static void destroy_if_over(tracer *t)
{
    if (!t->stopped || t->out > 0)
        return;
    culvert__nvtx_close(t->domain);
    free(t);
}

static op *op_take(tracer *t)
{
    op *o = t->pool;
    if (o == NULL) {
        t->lost++;
        return NULL;
    }
    t->pool = o->next;
    t->out++;
    return o;
}

static void op_give(op *o)
{
    tracer *t = o->tracer;
    culvert__nvtx_end(t->domain, o->range);
    o->next = t->pool;
    t->pool = o;
    t->out--;
    destroy_if_over(t);
}

/* False: there is no room for it. */
static bool put(tracer *t, const culvert__record *r)
{
    return t->writer == NULL || culvert__writer_put(t->writer, r);
}

/* ---- tracks ---- */

static void name_track(tracer *t, unsigned track, const char *name)
{
    culvert__record r = {.kind = CULVERT__RECORD_TRACK, .track = track};
    snprintf(r.name, sizeof r.name, "%s", name);
    (void)put(t, &r);
}

/* A stream's number on this trace; it is named when it is first seen. */
static unsigned track_of(tracer *t, culvert__track *track, unsigned device)
{
    char name[64];
    if (track->serial == t->serial)
        return track->number;
    track->serial = t->serial;
    track->number = CULVERT__TRACE_LOOP + ++t->tracks;
    snprintf(name, sizeof name, "device %u, stream %u", device, t->tracks);
    name_track(t, track->number, name);
    return track->number;
}

/* ---- times of the device ---- */

static clock_offset *offset_of(tracer *t, unsigned clock)
{
    for (size_t i = 0; i < CLOCKS; i++)
        if (t->offsets[i].clock == clock || t->offsets[i].clock == 0)
            return &t->offsets[i];
    return NULL;
}

static void place(op *o, const culvert__trace_end *end)
{
    culvert__record *r = &o->record;
    clock_offset *offset = end->clock != 0 ? offset_of(o->tracer, end->clock) : NULL;
    if (offset == NULL)
        return;
    double first = end->start * 1e9, last = end->end * 1e9;
    double least = (double)r->submitted - first, most = (double)r->detected - last;
    if (offset->clock == 0 || offset->ns < least)
        offset->ns = least;
    if (offset->ns > most)
        offset->ns = most;
    offset->clock = end->clock;
    r->device_start = (uint64_t)(first + offset->ns);
    r->device_end = (uint64_t)(last + offset->ns);
    if (r->device_start < o->track->end)
        r->device_start = o->track->end;
    if (r->device_end < r->device_start)
        r->device_end = r->device_start;
    o->track->end = r->device_end;
}

/* ---- the hooks ---- */

static culvert__traced *submitted(culvert__tracer *hooks, const culvert__trace_begin *begin)
{
    tracer *t = (tracer *)(void *)hooks;
    op *o = op_take(t);
    if (o == NULL)
        return NULL;
    culvert__record *r = &o->record;
    memset(r, 0, sizeof *r);
    o->track = begin->track;
    r->track = track_of(t, begin->track, begin->device);
    r->kind = CULVERT__RECORD_BEGIN;
    r->id = ++t->ids;
    r->submitted = culvert__now();
    r->built = begin->built != 0 ? begin->built : r->submitted;
    snprintf(r->name, sizeof r->name, "%s%s%s", begin->name, begin->detail[0] != '\0' ? " " : "",
             begin->detail);
    if (begin->where != NULL)
        snprintf(r->where, sizeof r->where, "%s", begin->where);
    o->range = culvert__nvtx_begin(t->domain, r->name);
    if (!put(t, r)) {
        op_give(o);
        return NULL;
    }
    return &o->traced;
}

static void enqueued(culvert__traced *traced)
{
    op *o = (op *)(void *)traced;
    if (!o->tracer->stopped)
        o->record.enqueued = culvert__now();
}

static void run_before(culvert__task *task)
{
    op *o = CULVERT__CONTAINER(task, op, before);
    o->record.callbacks = culvert__now();
}

static void write_end(op *o)
{
    tracer *t = o->tracer;
    culvert__record *r = &o->record;
    r->kind = CULVERT__RECORD_END;
    r->end = culvert__now();
    if (!t->stopped)
        (void)put(t, r);
    op_give(o);
}

static void run_after(culvert__task *task)
{
    write_end(CULVERT__CONTAINER(task, op, after));
}

static void over(culvert__traced *traced, const culvert__trace_end *end)
{
    op *o = (op *)(void *)traced;
    tracer *t = o->tracer;
    if (t->stopped)
        return;
    o->record.detected = culvert__now();
    o->record.code = culvert_error_name(end->code);
    place(o, end);
    if (end->awaited)
        culvert__ready_push(t->core, &o->before);
}

static void settled(culvert__traced *traced, bool awaited)
{
    op *o = (op *)(void *)traced;
    if (awaited && !o->tracer->stopped)
        culvert__ready_push(o->tracer->core, &o->after);
    else
        write_end(o);
}

static void stop(culvert__tracer *hooks)
{
    tracer *t = (tracer *)(void *)hooks;
    uint64_t dropped = 0;
    int error = t->writer != NULL ? culvert__writer_free(t->writer, &dropped) : 0;
    culvert_loop *loop = culvert__loop_of(t->core);
    t->writer = NULL;
    t->stopped = true;
    t->core->tracer = NULL;
    dropped += t->lost;
    if (error != 0)
        culvert__loop_log(loop, CULVERT_LOG_WARNING, "the trace is not whole: %s", strerror(error));
    if (dropped != 0)
        culvert__loop_log(loop, CULVERT_LOG_WARNING,
                          "the trace lacks %llu records: more was going on than was written",
                          (unsigned long long)dropped);
    destroy_if_over(t);
}

/* ---- starting and stopping ---- */

static tracer *tracer_new(culvert__core *core, const char *path, int *error)
{
    tracer *t = calloc(1, sizeof *t);
    *error = ENOMEM;
    if (t == NULL)
        return NULL;
    if (path != NULL)
        t->writer = culvert__writer_new(path, culvert__now(), error);
    if (path != NULL && t->writer == NULL) {
        free(t);
        return NULL;
    }
    t->domain = culvert__nvtx_open();
    t->core = core;
    t->serial = ++core->traces;
    t->hooks = (culvert__tracer){.submitted = submitted,
                                 .enqueued = enqueued,
                                 .over = over,
                                 .settled = settled,
                                 .stop = stop};
    for (size_t i = 0; i < OPS; i++) {
        t->ops[i].tracer = t;
        t->ops[i].traced.tracer = &t->hooks;
        t->ops[i].before.run = run_before;
        t->ops[i].after.run = run_after;
        t->ops[i].next = t->pool;
        t->pool = &t->ops[i];
    }
    name_track(t, CULVERT__TRACE_LOOP, "loop: callbacks");
    return t;
}

static int refused(culvert_loop *loop, const char *path, culvert_error *err)
{
    static const char call[] = "culvert_trace_start";
    culvert__core *core = culvert__core_of(loop);
    if (core->closing)
        culvert__error_set(err, CULVERT_ESHUTDOWN, 0, call, NULL, "culvert_loop_free has begun");
    else if (core->tracer != NULL)
        culvert__error_set(err, CULVERT_EINVAL, 0, call, NULL,
                           "a trace is running: culvert_trace_stop ends it");
    else if (path == NULL && !culvert__nvtx_built())
        culvert__error_set(err, CULVERT_ENOTSUP, 0, call, NULL,
                           "no file was named, and the library was built without NVTX (a part of "
                           "the CUDA Toolkit), which would tell a profiler");
    else
        return CULVERT_OK;
    return core->closing          ? CULVERT_ESHUTDOWN
           : core->tracer != NULL ? CULVERT_EINVAL
                                  : CULVERT_ENOTSUP;
}

int culvert_trace_start(culvert_loop *loop, const char *path, culvert_error *err)
{
    static const char call[] = "culvert_trace_start";
    int error = 0;
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, call, NULL, "in a child after fork()");
        return CULVERT_EFORKED;
    }
    CULVERT__REQUIRE(loop, call, "loop");
    culvert__core *core = culvert__core_of(loop);
    culvert__check_thread(core, call);
    int code = refused(loop, path, err);
    if (code != CULVERT_OK)
        return code;
    tracer *t = tracer_new(core, path, &error);
    if (t == NULL) {
        code = error == ENOMEM ? CULVERT_ENOMEM : CULVERT_ESYSTEM;
        culvert__error_set(err, code, error, call, NULL, "%s: %s", path, strerror(error));
        return code;
    }
    core->tracer = &t->hooks;
    return CULVERT_OK;
}

void culvert_trace_stop(culvert_loop *loop)
{
    CULVERT__REQUIRE(loop, "culvert_trace_stop", "loop");
    culvert__core *core = culvert__core_of(loop);
    if (culvert__forked() || core->tracer == NULL)
        return;
    culvert__check_thread(core, "culvert_trace_stop");
    core->tracer->stop(core->tracer);
}
