/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pipelines: chunks of pinned memory go round three stages that overlap.
 *
 *   slot:  FREE --read--> READING --> PROCESSING (several at a time) --> READY --write--> WRITING --> FREE
 *          FREE --no memory yet--> FURNISHING --> FREE
 *
 *   pipeline:  running --the input has ended, all is written--> over
 *                 |
 *                 +--an error, cancelled, the loop goes--> stopped --running stages are over--> over
 *
 * Invariants:
 *   - chunk n is slots[n % depth]; written <= n < read are on their way, read - written <= depth;
 *   - at most one slot is READING and one WRITING; `running` counts the stages whose futures are pending, and
 *     the memory that is waited for;
 *   - once stopped no stage is begun; it is over when running == 0;
 *   - the future is pinned until `release` has run, behind its callbacks: so slots outlive every stage;
 *   - stages are called from the pump alone, so never inside a public call, and a bounded number at a time.
 */
#include "gpu/gpu_internal.h"
#include "serve/serve_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_DEPTH = 4, MOST_DEPTH = 4096, DEFAULT_BYTES = 1 << 20, STEPS = 64 };

static const char op[] = "culvert_pipeline_run";

typedef culvert_future *stage_fn(culvert_chunk *chunk, void *arg);
typedef enum slot_state { FREE, FURNISHING, READING, PROCESSING, READY, WRITING } slot_state;

typedef struct slot {
    culvert__waiter w;
    struct pipeline *pipe;
    slot_state state;
    culvert_chunk chunk;
} slot;

typedef struct pipeline {
    culvert_future base;
    culvert_gpu *gpu; /* counted */
    culvert_pipeline_options options;
    const char *where;
    culvert__task pump, release;
    culvert_pipeline_counters counters;
    size_t running;
    bool reading, writing;
    bool ended; /* the input */
    bool stopped, canceled, over;
    culvert_error
        *error; /* what stopped it; NULL where no memory was left for it, or it is canceled */
    int code;   /* of it */
    slot slots[];
} pipeline;

static pipeline *pipe_of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, pipeline, base);
}

static slot *slot_at(pipeline *p, uint64_t n)
{
    return &p->slots[n % p->options.depth];
}

static void schedule(pipeline *p)
{
    if (!culvert__linked(&p->pump.link) && !p->over)
        culvert__ready_push_later(p->base.core, &p->pump);
}

/* ---- the end ---- */

static void release(culvert__task *task)
{
    pipeline *p = CULVERT__CONTAINER(task, pipeline, release);

    for (size_t i = 0; i < p->options.depth; i++) {
        culvert_buffer_unref(p->slots[i].chunk.host);
        p->slots[i].chunk.host = NULL;
    }
    if (p->options.arg_free != NULL)
        p->options.arg_free(p->options.arg);
    culvert__gpu_unref(p->gpu);
    culvert__unpin(&p->base);
}

static void settle(pipeline *p)
{
    culvert_error *err = p->error;

    p->error = NULL;
    if (p->canceled)
        culvert__settle_canceled(&p->base);
    else if (p->stopped)
        culvert__settle_error_owned(&p->base, err, p->code);
    else
        culvert__settle_value(&p->base, NULL, NULL);
}

static void try_finish(pipeline *p)
{
    const bool done = p->ended && p->counters.in_flight == 0;

    if (p->over || p->running > 0 || !(p->stopped || done))
        return;
    p->over = true;
    p->counters.in_flight = p->counters.processing = 0; /* also of one that was stopped */
    if (culvert__linked(&p->pump.link))
        culvert__ready_unlink(p->base.core, &p->pump);
    settle(p);
    culvert__loop_work_end(culvert__loop_of(p->base.core));
    p->release.run = release;
    culvert__ready_push(p->base.core, &p->release);
}

/* No stage is begun any more; those that run are cancelled, and waited for. Calls nothing of the user's. */
static void stop(pipeline *p)
{
    p->stopped = true;
    for (size_t i = 0; i < p->options.depth; i++) {
        culvert_future *f = p->slots[i].w.up;

        if (f != NULL && !culvert__settled(f))
            culvert__cancel(f);
    }
    schedule(p); /* it may be over */
}

static void fail(pipeline *p, const culvert_error *err)
{
    if (p->stopped)
        return;
    p->error = culvert__error_copy(err);
    p->code = err->code;
    stop(p);
}

static void pipe_cancel(culvert_future *f)
{
    pipeline *p = pipe_of(f);

    if (p->stopped)
        return;
    p->canceled = true;
    stop(p);
    try_finish(p);
}

static void pipe_shutdown(culvert_future *f, const culvert_error *err)
{
    pipeline *p = pipe_of(f);

    culvert__settle_static(f, err->code);
    if (!p->stopped)
        stop(p);
}

static const culvert__kind pipe_kind = {.name = "pipeline",
                                        .cancel = pipe_cancel,
                                        .shutdown = pipe_shutdown};

/* ---- stages ---- */

static void stage_over(culvert__task *task);

/* True: the stage was over when it returned. */
static bool call(slot *s, stage_fn *fn, slot_state state)
{
    pipeline *p = s->pipe;
    culvert_error err;

    s->state = state;
    if (fn == NULL)
        return true;
    culvert_future *f = fn(&s->chunk, p->options.arg);
    if (f == NULL)
        return true;
    f = culvert__own_future(p->base.core, f, op, p->where, &err);
    if (f == NULL) {
        fail(p, &err);
        return true;
    }
    p->running++;
    s->w.task.run = stage_over;
    culvert__wait(f, &s->w);
    if (p->stopped) /* by itself, while it ran */
        culvert__cancel(f);
    return false;
}

static void processed(slot *s)
{
    s->state = READY;
    s->pipe->counters.processing--;
}

static void was_read(slot *s)
{
    pipeline *p = s->pipe;
    culvert_chunk *chunk = &s->chunk;
    culvert_error err;

    p->reading = false;
    if (chunk->bytes > p->options.chunk_bytes) {
        culvert__error_set(&err, CULVERT_EINVAL, 0, op, p->where,
                           "read set %zu bytes in a chunk of %zu", chunk->bytes,
                           p->options.chunk_bytes);
        fail(p, &err);
        return;
    }
    p->ended = chunk->last || chunk->bytes == 0;
    if (chunk->bytes == 0) {
        s->state = FREE;
        p->counters.in_flight--;
        return;
    }
    p->counters.chunks_read++;
    p->counters.bytes_read += chunk->bytes;
    p->counters.processing++;
    if (call(s, p->options.process, PROCESSING))
        processed(s);
}

static void written(slot *s)
{
    pipeline *p = s->pipe;

    p->writing = false;
    s->state = FREE;
    p->counters.in_flight--;
    p->counters.chunks_written++;
    p->counters.bytes_written += s->chunk.bytes;
    if (p->options.progress != NULL)
        p->options.progress(p->counters.bytes_written, p->options.arg);
}

/* A stage is over, and well. What it did is of no use in a pipeline that was stopped. */
static void advance(slot *s)
{
    if (s->pipe->stopped)
        return;
    if (s->state == READING)
        was_read(s);
    else if (s->state == PROCESSING)
        processed(s);
    else
        written(s);
}

static void stage_over(culvert__task *task)
{
    slot *s = CULVERT__CONTAINER(task, slot, w.task);
    pipeline *p = s->pipe;
    const culvert_error *err = culvert__peek_error(s->w.up);

    if (err != NULL)
        fail(p, err);
    culvert__wait_end(&s->w);
    p->running--;
    advance(s);
    schedule(p);
}

/* ---- what can go on ---- */

static void has_memory(slot *s, culvert_future *done)
{
    const culvert_error *err = culvert_get_error(done);

    if (err != NULL)
        fail(s->pipe, err);
    else
        s->chunk.host = culvert_take(done);
}

static void memory_came(culvert__task *task)
{
    slot *s = CULVERT__CONTAINER(task, slot, w.task);
    pipeline *p = s->pipe;

    has_memory(s, s->w.up);
    culvert__wait_end(&s->w);
    s->state = FREE;
    p->running--;
    schedule(p);
}

/* A chunk has memory from its first turn on; it waits for it, as the pool may have to grow. False: not now. */
static bool furnish(pipeline *p, slot *s)
{
    if (s->chunk.host != NULL)
        return true;
    if (s->state == FURNISHING)
        return false;
    culvert_future *f = culvert_host_buffer_alloc_at(p->where, p->gpu, p->options.chunk_bytes);

    if (culvert__settled(f)) {
        has_memory(s, f);
        culvert__unref(f);
        return s->chunk.host != NULL;
    }
    s->state = FURNISHING;
    p->running++;
    s->w.task.run = memory_came;
    culvert__wait(f, &s->w);
    return false;
}

static bool begin_read(pipeline *p)
{
    culvert_pipeline_counters *c = &p->counters;
    slot *s = slot_at(p, c->chunks_read);

    if (p->reading || p->ended || c->in_flight == p->options.depth || !furnish(p, s))
        return false;
    p->reading = true;
    c->in_flight++;
    s->chunk.bytes = 0;
    s->chunk.last = 0;
    s->chunk.index = c->chunks_read;
    s->chunk.offset = c->bytes_read;
    if (call(s, p->options.read, READING))
        advance(s);
    return true;
}

static bool begin_write(pipeline *p)
{
    slot *s = slot_at(p, p->counters.chunks_written);

    if (p->writing || s->state != READY)
        return false;
    p->writing = true;
    if (call(s, p->options.write, WRITING))
        advance(s);
    return true;
}

static void pump(culvert__task *task)
{
    pipeline *p = CULVERT__CONTAINER(task, pipeline, pump);
    bool more = true;

    if (culvert__forked() && !p->stopped)
        return; /* a callback forked: it is stopped later */
    for (int n = 0; n < STEPS && more && !p->stopped; n++) {
        more = begin_write(p);
        if (!p->stopped)
            more |= begin_read(p);
    }
    if (more && !p->stopped)
        schedule(p);
    try_finish(p);
}

/* ---- beginning ---- */

static bool options_ok(culvert_pipeline_options *to, const culvert_pipeline_options *from,
                       const char *where, culvert_error *err)
{
    if (!culvert__options_read(to, sizeof *to, from, "culvert_pipeline_options", op, where, err))
        return false;
    if (to->read == NULL) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where, "options.read is NULL");
        return false;
    }
    if (to->depth > MOST_DEPTH) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options.depth is %zu; it must be at most %d", to->depth, MOST_DEPTH);
        return false;
    }
    if (to->depth == 0)
        to->depth = DEFAULT_DEPTH;
    if (to->chunk_bytes == 0)
        to->chunk_bytes = DEFAULT_BYTES;
    return true;
}

static culvert_future *begin(culvert_gpu *gpu, const culvert_pipeline_options *options,
                             const char *where)
{
    culvert__core *core = culvert__core_of(gpu->loop);
    culvert_future *f =
        culvert__future_alloc(core, &pipe_kind, sizeof(pipeline) + options->depth * sizeof(slot));

    if (f == NULL)
        return NULL;
    pipeline *p = pipe_of(f);
    p->gpu = culvert__gpu_ref(gpu);
    p->options = *options;
    p->where = where;
    p->pump.run = pump;
    for (size_t i = 0; i < options->depth; i++)
        p->slots[i].pipe = p;
    culvert__pin(f);
    culvert__future_make_root(f);
    culvert__loop_work_begin(gpu->loop);
    schedule(p);
    return f;
}

culvert_future *culvert_pipeline_run_at(const char *where, culvert_gpu *gpu,
                                        const culvert_pipeline_options *options)
{
    culvert_pipeline_options mine = CULVERT_PIPELINE_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *f = NULL;

    CULVERT__REQUIRE(gpu, op, "gpu");
    culvert__core *core = culvert__forked() ? NULL : culvert__core_of(gpu->loop);
    if (core == NULL) {
        f = culvert__future_static(NULL, CULVERT_EFORKED);
    } else if (culvert__gpu_refuses(gpu, op, where, &err) ||
               !options_ok(&mine, options, where, &err)) {
        f = culvert__future_rejected(core, &err);
    } else if (culvert__refuses_work(core)) {
        f = culvert__future_static(core, CULVERT_ESHUTDOWN);
    } else {
        f = begin(gpu, &mine, where);
        if (f != NULL)
            return f;
        f = culvert__future_static(core, CULVERT_ENOMEM);
    }
    if (options != NULL && options->struct_size >= sizeof *options)
        culvert__release_arg(core, options->arg_free, options->arg);
    return f;
}

culvert_future *culvert_pipeline_run(culvert_gpu *gpu, const culvert_pipeline_options *options)
{
    return culvert_pipeline_run_at(NULL, gpu, options);
}

int culvert_pipeline_stats(const culvert_future *run, culvert_pipeline_counters *out)
{
    CULVERT__REQUIRE(run, "culvert_pipeline_stats", "run");
    CULVERT__REQUIRE(out, "culvert_pipeline_stats", "out");
    if (run->kind != &pipe_kind)
        return CULVERT_EINVAL;
    const pipeline *p = (const pipeline *)(const void *)run;
    return culvert__counters_write(out, &p->counters, sizeof p->counters);
}
