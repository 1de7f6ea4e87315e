/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is waited for: culvert_buffer_alloc, culvert_host_buffer_alloc.
 *
 *   asked -> has memory at once -> resolved
 *     \----> in the line -> first of it: memory came back, or the heap has grown -> resolved
 *                \                  \--> nothing that is in flight can give it   -> ENOMEM
 *                 \--> cancelled, lost, closed
 *
 * There is a line for device memory and one for pinned memory, first come first served: whoever is
 * behind waits too, also where it would fit, or a large request would starve.
 *
 * The heap grows one step a turn, never in the call itself: device memory by one cuMemAlloc, pinned
 * memory by a MiB. When the driver has no more, the first waits for memory to come back. It is
 * rejected when nothing is in flight that may give some back; or, where there always is something,
 * when all that was in flight is over and the memory in use has not become less since. That ends:
 * each round is finite, and another one begins only after a new low. Before it is rejected, blocks of
 * which nothing is out go back to the driver, if there is a moment in which the device is idle.
 *
 * Invariants:
 *   - the public call makes no call of the driver
 *   - a request in the line is a pending root, pinned, holds the gpu and keeps the loop alive; what
 *     it waits for does not count it as in flight
 *   - memory->watched is set before the last look, and unset only when both lines are empty, so no
 *     buffer that goes on another thread is missed
 */
#include "gpu/flow.h"

#include <stdlib.h>

enum { IDLE_TRIES = 200, IDLE_MS = 5 }; /* for a moment in which the device is idle */

typedef struct request {
    culvert_future base;
    culvert__link link; /* line->requests */
    culvert_gpu *gpu;   /* counted while it is in the line */
    culvert_buffer *buffer;
    const char *where;
    bool pinned;
    bool trimming, trimmed; /* blocks go back for it, all have */
    unsigned tries;         /* to find the device idle */
} request;

static const char *op_of(bool pinned)
{
    return pinned ? "culvert_host_buffer_alloc" : "culvert_buffer_alloc";
}

static request *request_of(culvert_future *future)
{
    return CULVERT__CONTAINER(future, request, base);
}

static request *first_of(const culvert__line *line)
{
    if (culvert__list_empty(&line->requests))
        return NULL;
    return CULVERT__CONTAINER(line->requests.next, request, link);
}

static void release_buffer(void *buffer)
{
    culvert_buffer_unref(buffer);
}

/* ---- the line ---- */

static culvert__line *line_of(culvert_gpu *gpu, bool pinned)
{
    return &gpu->flow->lines[pinned];
}

static void watch(culvert_gpu *gpu)
{
    const culvert__line *lines = gpu->flow->lines;
    bool some = first_of(&lines[0]) != NULL || first_of(&lines[1]) != NULL;
    atomic_store(&gpu->memory->watched, some);
}

/* The first is another one: it tries everything anew. */
static void line_moved(culvert__line *line)
{
    line->marked = line->dry = false;
    line->error = (culvert_error)CULVERT_ERROR_INIT;
}

static void join(request *r)
{
    culvert__line *line = line_of(r->gpu, r->pinned);
    culvert__future_make_root(&r->base);
    culvert__pin(&r->base);
    culvert__gpu_ref(r->gpu);
    culvert__loop_keep_idle(r->gpu->loop);
    culvert__loop_work_begin(r->gpu->loop);
    if (culvert__list_empty(&line->requests))
        line_moved(line);
    culvert__list_push(&line->requests, &r->link);
    line->waited++;
    watch(r->gpu);
    culvert__loop_resume(r->gpu->loop);
}

/* The future has settled. */
static void leave(request *r)
{
    culvert_gpu *gpu = r->gpu;
    culvert__line *line = line_of(gpu, r->pinned);
    if (first_of(line) == r)
        line_moved(line);
    culvert__list_unlink(&r->link);
    free(r->buffer); /* NULL where it was given away */
    r->buffer = NULL;
    watch(gpu);
    culvert__loop_resume(gpu->loop);
    culvert__loop_work_end(gpu->loop);
    culvert__loop_unkeep_idle(gpu->loop);
    culvert__unpin(&r->base);
    culvert__gpu_unref(gpu);
}

static void reject(request *r, const culvert_error *err)
{
    culvert_error local = *err;
    if (local.code == CULVERT_ENOMEM)
        line_of(r->gpu, r->pinned)->rejected++;
    local.op = op_of(r->pinned);
    local.where = r->where;
    culvert__settle_error(&r->base, &local);
    leave(r);
}

void culvert__allocs_reject(culvert_gpu *gpu, const culvert_error *err)
{
    for (int pinned = 0; pinned < 2; pinned++)
        for (request *r; (r = first_of(line_of(gpu, pinned))) != NULL;)
            reject(r, err);
}

bool culvert__allocs_wait(const culvert_gpu *gpu)
{
    return atomic_load_explicit(&gpu->memory->watched, memory_order_relaxed);
}

static void cancel(culvert_future *future)
{
    culvert__settle_canceled(future);
    if (!culvert__forked())
        leave(request_of(future));
}

static void shut_down(culvert_future *future, const culvert_error *err)
{
    culvert__settle_error(future, err);
    if (!culvert__forked())
        leave(request_of(future));
}

static const culvert__kind kind = {.name = "allocation", .cancel = cancel, .shutdown = shut_down};

/* ---- giving ---- */

static bool fits(culvert_gpu *gpu, bool pinned, size_t bytes)
{
    culvert__memory *memory = gpu->memory;
    if (bytes == 0)
        return true;
    if (!pinned)
        return culvert__heap_fits(memory->local, bytes);
    return culvert__heap_fits(memory->pinned, bytes) || culvert__heap_fits(memory->pieced, bytes);
}

/* Memory that is there. False: there is none. */
static bool give(request *r, culvert_error *err)
{
    *err = (culvert_error)CULVERT_ERROR_INIT;
    if (!fits(r->gpu, r->pinned, r->buffer->bytes))
        return false;
    if (!culvert__buffer_fill(r->buffer, r->gpu, false, r->pinned, err)) /* no bookkeeping */
        return err->code != CULVERT_OK;
    culvert_buffer *buffer = r->buffer;
    r->buffer = NULL;
    culvert__settle_value(&r->base, buffer, release_buffer);
    return true;
}

/* One step. What failed for good is in line->error. */
static int grow(culvert_gpu *gpu, bool pinned, size_t bytes, culvert_error *err)
{
    culvert__memory *memory = gpu->memory;
    const char *outer = culvert__call_begin(gpu->flow, pinned ? "cuMemHostAlloc" : "cuMemAlloc");
    int code;
    if (!pinned)
        code = culvert__heap_grow(memory->local, bytes, err);
    else if (bytes <= CULVERT__PIN_STEP && memory->growing.bytes == 0)
        code = culvert__memory_grow_pinned(memory, err);
    else
        code = culvert__pieced_grow(memory, bytes, err);
    if (code != CULVERT_OK && err->native == CULVERT__CUDA_ERROR_NOT_SUPPORTED)
        code = culvert__heap_grow(memory->pinned, bytes, err); /* then in one piece, at once */
    culvert__call_end(gpu->flow, outer);
    if (code == CULVERT_EDEVICELOST)
        culvert__gpu_driver_failed(gpu, err->native, err->op, op_of(pinned), NULL, err);
    line_of(gpu, pinned)->grown += code == CULVERT_OK;
    culvert__trim_watch(gpu);
    return code;
}

/* True: look again at once. */
static bool serve(culvert_gpu *gpu, bool pinned)
{
    culvert__line *line = line_of(gpu, pinned);
    culvert_error err;
    for (request *r; (r = first_of(line)) != NULL;) {
        if (give(r, &err)) {
            if (err.code == CULVERT_OK)
                leave(r);
            else
                reject(r, &err);
            continue;
        }
        if (line->dry)
            return false;
        if (!culvert__may_grow(gpu->flow))
            return true;
        int code = grow(gpu, pinned, r->buffer->bytes, &err);
        if (code == CULVERT_ENOMEM) {
            line->dry = true;
            line->error = err;
        } else if (code != CULVERT_OK) {
            reject(r, &err); /* lost, or the driver has something else against it */
        }
    }
    return false;
}

bool culvert__allocs_poll(culvert_gpu *gpu)
{
    bool more = false;
    if (!culvert__allocs_wait(gpu) || culvert__device_is_lost(gpu->device))
        return false;
    more |= serve(gpu, false);
    more |= serve(gpu, true);
    return more;
}

/* ---- giving up ---- */

static size_t used_of(const culvert__memory *memory, bool pinned)
{
    if (!pinned)
        return culvert__heap_used(memory->local);
    return culvert__heap_used(memory->pinned) + culvert__heap_used(memory->pieced);
}

static uint64_t oldest_live(const culvert__flow *flow)
{
    if (culvert__list_empty(&flow->live))
        return UINT64_MAX;
    return CULVERT__CONTAINER(flow->live.next, culvert_seq, live)->number;
}

/* May something that is in flight give memory back? */
static bool hope(culvert_gpu *gpu, culvert__line *line, bool pinned)
{
    culvert__flow *flow = gpu->flow;
    size_t used = used_of(gpu->memory, pinned);
    if (culvert__loop_jobs(gpu->loop) > 0 || culvert__driver_thread_busy(gpu->driver_thread))
        return true;
    if (culvert__list_empty(&flow->live))
        return false;
    if (!line->marked || used < line->low) {
        line->marked = true;
        line->low = used;
        line->mark = flow->submitted;
        return true;
    }
    return oldest_live(flow) <= line->mark;
}

static size_t idle_bytes(culvert__memory *memory, bool pinned)
{
    if (!pinned)
        return culvert__heap_idle(memory->local, 0);
    return culvert__heap_idle(memory->pinned, 0) + culvert__heap_idle(memory->pieced, 0);
}

static void say_no(request *r)
{
    culvert__line *line = line_of(r->gpu, r->pinned);
    culvert_error err = line->error;
    culvert__error_set(&err, CULVERT_ENOMEM, line->error.native, NULL, NULL,
                       "%s (nothing in flight gives back enough; %zu bytes are in free blocks%s)",
                       line->error.message, idle_bytes(r->gpu->memory, r->pinned),
                       r->tries >= IDLE_TRIES ? ", which need an idle device to be joined" : "");
    reject(r, &err);
}

/*
 * Blocks of which nothing is out may make one that is large enough, once the driver has them again.
 * Seconds until it is tried again, 0: look again now.
 */
static double last_resort(request *r)
{
    culvert_gpu *gpu = r->gpu;
    culvert__line *line = line_of(gpu, r->pinned);
    bool helps = !r->trimmed && (r->trimming || idle_bytes(gpu->memory, r->pinned) > 0 ||
                                 culvert__memory_has_spares(gpu->device));
    if (!helps || r->tries >= IDLE_TRIES) {
        say_no(r);
        return 0;
    }
    r->trimming = true;
    switch (culvert__trim_step(gpu, r->pinned)) {
    case CULVERT__TRIM_BUSY: r->tries++; return IDLE_MS / 1e3;
    case CULVERT__TRIM_MORE: return 0;
    case CULVERT__TRIM_NONE: break;
    }
    r->trimmed = true;
    line->dry = false; /* once more */
    return 0;
}

static double consider(culvert_gpu *gpu, bool pinned)
{
    culvert__line *line = line_of(gpu, pinned);
    request *r = first_of(line);
    if (r == NULL)
        return __builtin_inf();
    if (!line->dry)
        return 0;
    if (hope(gpu, line, pinned))
        return __builtin_inf();
    return last_resort(r);
}

double culvert__allocs_before_sleep(culvert_gpu *gpu)
{
    if (!culvert__allocs_wait(gpu) || culvert__device_is_lost(gpu->device))
        return __builtin_inf();
    culvert__gpu_ref(gpu);
    double local = consider(gpu, false), pinned = consider(gpu, true);
    culvert__gpu_unref(gpu);
    return local < pinned ? local : pinned;
}

/* ---- asking ---- */

/* What cannot be had however long one waits. */
static bool impossible(culvert_gpu *gpu, size_t bytes, bool pinned, const char *where,
                       culvert_error *err)
{
    unsigned long long total = gpu->device->description.total_bytes;
    size_t limit = pinned ? gpu->memory->pinned_limit : gpu->flow->device_limit;
    if (bytes > PTRDIFF_MAX - 255) {
        culvert__error_set(err, CULVERT_EOVERFLOW, 0, op_of(pinned), where,
                           "%zu bytes of %s asked for: more than there can be", bytes,
                           pinned ? "pinned memory" : "device memory");
        return true;
    }
    if (limit != 0 && bytes > limit)
        culvert__error_set(err, CULVERT_ENOMEM, 0, op_of(pinned), where,
                           "%zu bytes of %s asked for: above the limit, which is %zu", bytes,
                           pinned ? "pinned memory" : "device memory", limit);
    else if (!pinned && total != 0 && bytes > total)
        culvert__error_set(err, CULVERT_ENOMEM, 0, op_of(pinned), where,
                           "%zu bytes of device memory asked for: the device has %llu", bytes,
                           total);
    else
        return false;
    return true;
}

static culvert_future *ask(culvert_gpu *gpu, size_t bytes, bool pinned, const char *where)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__core *core = culvert__gpu_core(gpu);
    culvert_buffer *buffer = culvert__buffer_blank(bytes, op_of(pinned), where, &err);
    if (buffer == NULL)
        return culvert__future_rejected(core, &err);
    culvert_future *future = culvert__future_alloc(core, &kind, sizeof(request));
    if (future == NULL) {
        free(buffer);
        return culvert__future_static(core, CULVERT_ENOMEM);
    }
    request *r = request_of(future);
    r->gpu = gpu;
    r->buffer = buffer;
    r->where = where;
    r->pinned = pinned;
    if (!culvert__list_empty(&line_of(gpu, pinned)->requests) || !give(r, &err)) {
        join(r);
        return future;
    }
    if (err.code != CULVERT_OK) {
        err.op = op_of(pinned);
        err.where = where;
        culvert__settle_error(future, &err);
        free(r->buffer);
    }
    r->buffer = NULL;
    return future;
}

static culvert_future *alloc(const char *where, culvert_gpu *gpu, size_t bytes, bool pinned)
{
    culvert_error err = CULVERT_ERROR_INIT;
    CULVERT__REQUIRE(gpu, op_of(pinned), "gpu");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    if (culvert__gpu_refuses(gpu, op_of(pinned), where, &err) ||
        impossible(gpu, bytes, pinned, where, &err))
        return culvert__future_rejected(culvert__gpu_core(gpu), &err);
    if (culvert__refuses_work(culvert__gpu_core(gpu)))
        return culvert__future_static(culvert__gpu_core(gpu), CULVERT_ESHUTDOWN);
    return ask(gpu, bytes, pinned, where);
}

culvert_future *culvert_buffer_alloc_at(const char *where, culvert_gpu *gpu, size_t bytes)
{
    return alloc(where, gpu, bytes, false);
}

culvert_future *culvert_buffer_alloc(culvert_gpu *gpu, size_t bytes)
{
    return alloc(NULL, gpu, bytes, false);
}

culvert_future *culvert_host_buffer_alloc_at(const char *where, culvert_gpu *gpu, size_t bytes)
{
    return alloc(where, gpu, bytes, true);
}

culvert_future *culvert_host_buffer_alloc(culvert_gpu *gpu, size_t bytes)
{
    return alloc(NULL, gpu, bytes, true);
}
