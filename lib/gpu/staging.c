/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of ordinary (pageable) memory through pinned slots: such memory is never given to the
 * driver, since its copies block the calling thread (staging.md).
 *
 *   upload:    free -> filled (by the loop up to 64 KB, else by a worker) -> in the driver -> free
 *   download:  free -> in the driver -> copied out (by the loop, else by a worker) -> free
 *
 * A slot is granted to the ready head of a stream only, so whoever has one depends on work that is
 * already in the driver and on a worker's memcpy, never on the loop: no deadlock (D1, D2). Streams
 * that find none wait in flow->slotless, first come first served among those that lack the same size.
 *
 * Invariants:
 *   - slots made at open stay slots: staging always has some, whatever host buffers take.
 *   - an upload is not read while a download of the same stream into that memory is owed (F2), nor
 *     is a download begun into memory that another one owes: `conflict`.
 *   - seq->jobs counts the slots of a sequence that are with the workers.
 */
#include "gpu/flow.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_SMALL = 16,
    FIRST_BIG = 4,
    MOST_BIG = 64,    /* of a gpu */
    MOST_SMALL = 512, /* likewise */
    FILLS = 3,        /* of an upload, ahead of the driver */
    GROW_PAUSE_NS = 100000000
};

struct culvert__staging {
    culvert__copiers *copiers;
    culvert__slot *free_small, *free_big;
    culvert__slot *all;
    unsigned small, big;
    uint64_t grow_again; /* not before: it did not work */
};

/* ---- slots ---- */

static void copied(culvert__post *post);

static culvert__slot *slot_new(culvert_gpu *gpu, bool big, culvert_error *err)
{
    culvert__staging *st = gpu->flow->staging;
    size_t bytes = big ? CULVERT__SLOT_BIG : CULVERT__SLOT_SMALL;
    if ((big ? st->big : st->small) >= (big ? MOST_BIG : MOST_SMALL))
        return NULL;
    culvert__slot *slot = calloc(1, sizeof *slot);
    if (slot == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", NULL,
                           "no memory for a staging slot");
        return NULL;
    }
    slot->range = culvert__heap_take(gpu->memory->pinned, bytes, false, err);
    if (slot->range == NULL) {
        free(slot);
        return NULL;
    }
    slot->host = (char *)(uintptr_t)culvert__range_address(slot->range);
    slot->big = big;
    slot->post.run = copied;
    slot->all_next = st->all;
    st->all = slot;
    if (big)
        st->big++;
    else
        st->small++;
    return slot;
}

static culvert__slot **free_list(culvert__staging *st, bool big)
{
    return big ? &st->free_big : &st->free_small;
}

static void push_free(culvert__staging *st, culvert__slot *slot)
{
    culvert__slot **list = free_list(st, slot->big);
    slot->next = *list;
    *list = slot;
}

/* ---- the line ---- */

static void wait_for_slot(culvert_stream *s, bool big)
{
    s->wants_slot = true;
    s->slot_big = big;
    if (!culvert__linked(&s->slotless))
        culvert__list_push(&s->gpu->flow->slotless, &s->slotless);
}

/* The first that lacks one of this size; NULL: none does. */
static culvert_stream *first_in_line(culvert__flow *flow, bool big)
{
    for (culvert__link *l = flow->slotless.next; l != &flow->slotless; l = l->next) {
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, slotless);
        if (s->slot_big == big)
            return s;
    }
    return NULL;
}

static void serve_line(culvert__flow *flow, bool big)
{
    culvert_stream *s = first_in_line(flow, big);
    if (s != NULL)
        culvert__stream_schedule(s);
}

/* The stream has a slot, or needs none any more: the next one in the line looks. */
void culvert__slotless_leave(culvert_stream *s)
{
    culvert__list_unlink(&s->slotless);
    serve_line(s->gpu->flow, s->slot_big);
}

/* NULL: none now; the stream is pumped when one may be there. */
static culvert__slot *slot_take(culvert_seq *seq, bool big)
{
    culvert_stream *s = seq->stream;
    culvert__flow *flow = s->gpu->flow;
    culvert__slot **list = free_list(flow->staging, big), *slot = NULL;
    if (culvert__linked(&s->slotless) && s->slot_big != big)
        culvert__slotless_leave(s); /* that was for something else */
    culvert_stream *first = first_in_line(flow, big);
    if (first == NULL || first == s) {
        slot = *list;
        if (slot != NULL)
            *list = slot->next;
        else
            slot = slot_new(s->gpu, big, NULL);
    }
    if (slot == NULL) {
        wait_for_slot(s, big);
        return NULL;
    }
    if (culvert__linked(&s->slotless))
        culvert__slotless_leave(s);
    slot->next = NULL;
    slot->seq = seq;
    slot->full = slot->dropped = slot->in_driver = false;
    return slot;
}

static void slot_give(culvert_gpu *gpu, culvert__slot *slot)
{
    culvert__flow *flow = gpu->flow;
    slot->seq = NULL;
    slot->in_driver = false;
    push_free(flow->staging, slot);
    serve_line(flow, slot->big);
}

/* Does somebody in the line lack a slot that more pinned memory would make? */
static bool growth_helps(culvert__flow *flow)
{
    const culvert__staging *st = flow->staging;
    return (st->big < MOST_BIG && first_in_line(flow, true) != NULL) ||
           (st->small < MOST_SMALL && first_in_line(flow, false) != NULL);
}

bool culvert__staging_grow(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    culvert__staging *st = flow->staging;
    culvert_error err = CULVERT_ERROR_INIT;
    if (culvert__list_empty(&flow->slotless) || culvert__device_is_lost(gpu->device) ||
        !growth_helps(flow))
        return false;
    if (st->grow_again != 0 && culvert__now() < st->grow_again)
        return false;
    if (!culvert__may_grow(flow))
        return true;
    culvert__call_next(flow, "cuMemHostAlloc");
    if (culvert__memory_grow_pinned(gpu->memory, &err) != CULVERT_OK) {
        st->grow_again = culvert__now() + GROW_PAUSE_NS;
        return false; /* one will come back */
    }
    serve_line(flow, true);
    serve_line(flow, false);
    return true;
}

/* ---- what is owed to ordinary memory ---- */

static bool overlaps(const char *a, size_t an, const char *b, size_t bn)
{
    return (uintptr_t)a < (uintptr_t)b + bn && (uintptr_t)b < (uintptr_t)a + an;
}

static bool conflict(const culvert_stream *s, const char *memory, size_t bytes)
{
    for (const culvert__slot *slot = s->owed; slot != NULL; slot = slot->owed_next)
        if (overlaps(memory, bytes, slot->memory, slot->bytes))
            return true;
    return false;
}

static void owe(culvert_stream *s, culvert__slot *slot)
{
    slot->owed_next = NULL;
    *s->owed_end = slot;
    s->owed_end = &slot->owed_next;
}

static void paid(culvert_stream *s, culvert__slot *slot)
{
    culvert__slot **at = &s->owed;
    while (*at != slot)
        at = &(*at)->owed_next;
    *at = slot->owed_next;
    if (s->owed_end == &slot->owed_next)
        s->owed_end = at;
    if (!culvert__list_empty(&s->queue))
        culvert__stream_schedule(s); /* its head may have waited for this memory */
}

/* ---- workers ---- */

/* By a worker; where no thread can be had, here: late is better than never. */
static void copy_by_worker(culvert_gpu *gpu, culvert__slot *slot)
{
    slot->copying = true;
    slot->seq->jobs++;
    if (culvert__copiers_give(gpu->flow->staging->copiers, gpu->hub, slot))
        return;
    if (slot->download)
        memcpy(slot->memory, slot->host, slot->bytes);
    else
        memcpy(slot->host, slot->memory, slot->bytes);
    (void)culvert__hub_post(gpu->hub, &slot->post);
}

static void copied(culvert__post *post)
{
    culvert__slot *slot = CULVERT__CONTAINER(post, culvert__slot, post);
    culvert_seq *seq = slot->seq;
    culvert_stream *s = seq->stream;
    culvert_gpu *gpu = s->gpu;
    slot->copying = false;
    seq->jobs--;
    s->refs++;
    if (slot->download) {
        paid(s, slot);
        slot_give(gpu, slot);
    } else if (slot->dropped) {
        slot_give(gpu, slot);
    } else {
        slot->full = true;
    }
    culvert__seq_try_settle(seq);
    culvert__stream_pump(s);
    culvert__stream_put(s);
}

/* ---- uploads ---- */

static culvert__step upload_from(culvert__segment *segment, culvert__op *op, culvert__slot *slot,
                                 const char *host, size_t bytes)
{
    culvert_stream *s = segment->seq->stream;
    unsigned long long to = op->u.host.buffer->address + op->u.host.offset + op->u.host.done;
    culvert__call_next(s->gpu->flow, "cuMemcpyHtoDAsync");
    segment->call = "cuMemcpyHtoDAsync";
    segment->result = s->gpu->drv->cuMemcpyHtoDAsync(to, host, bytes, s->native);
    if (segment->result != CULVERT__CUDA_SUCCESS) {
        if (slot != NULL)
            slot_give(s->gpu, slot);
        return CULVERT__STEP_FAIL;
    }
    segment->used++;
    op->u.host.done += bytes;
    if (slot != NULL) {
        slot->in_driver = true;
        *segment->slots_end = slot;
        segment->slots_end = &slot->next;
    }
    return CULVERT__STEP_DONE;
}

static culvert__step upload_small(culvert__segment *segment, culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    if (conflict(s, op->u.host.host, op->u.host.bytes))
        return CULVERT__STEP_WAIT;
    culvert__slot *slot = slot_take(segment->seq, false);
    if (slot == NULL)
        return CULVERT__STEP_WAIT;
    slot->download = false;
    slot->memory = op->u.host.host;
    slot->bytes = op->u.host.bytes;
    memcpy(slot->host, op->u.host.host, op->u.host.bytes);
    return upload_from(segment, op, slot, slot->host, op->u.host.bytes);
}

static void start_fills(culvert_seq *seq, culvert__op *op)
{
    while (op->u.host.nfills < FILLS && op->u.host.filled < op->u.host.bytes) {
        char *from = op->u.host.host + op->u.host.filled;
        size_t bytes = op->u.host.bytes - op->u.host.filled;
        if (bytes > CULVERT__SLOT_BIG)
            bytes = CULVERT__SLOT_BIG;
        if (conflict(seq->stream, from, bytes))
            return;
        culvert__slot *slot = slot_take(seq, true);
        if (slot == NULL)
            return;
        slot->download = false;
        slot->memory = from;
        slot->bytes = bytes;
        *op->u.host.fills_end = slot;
        op->u.host.fills_end = &slot->next;
        op->u.host.nfills++;
        op->u.host.filled += bytes;
        copy_by_worker(seq->gpu, slot);
    }
}

static culvert__slot *next_fill(culvert__op *op)
{
    culvert__slot *slot = op->u.host.fills;
    op->u.host.fills = slot->next;
    if (op->u.host.fills == NULL)
        op->u.host.fills_end = &op->u.host.fills;
    op->u.host.nfills--;
    slot->next = NULL;
    return slot;
}

static culvert__step upload_big(culvert__segment *segment, culvert__op *op)
{
    start_fills(segment->seq, op);
    if (op->u.host.fills == NULL || !op->u.host.fills->full)
        return CULVERT__STEP_WAIT;
    culvert__slot *slot = next_fill(op);
    culvert__step step = upload_from(segment, op, slot, slot->host, slot->bytes);
    if (step != CULVERT__STEP_DONE)
        return step;
    return op->u.host.done == op->u.host.bytes ? CULVERT__STEP_LAST : CULVERT__STEP_CUT;
}

culvert__step culvert__upload_step(culvert__segment *segment, culvert__op *op)
{
    if (op->u.host.direct)
        return upload_from(segment, op, NULL, op->u.host.host, op->u.host.bytes);
    if (op->u.host.bytes <= CULVERT__SLOT_SMALL)
        return upload_small(segment, op);
    return upload_big(segment, op);
}

void culvert__op_drop_slots(culvert_seq *seq, culvert__op *op)
{
    while (op->u.host.fills != NULL) {
        culvert__slot *slot = next_fill(op);
        if (slot->copying)
            slot->dropped = true;
        else
            slot_give(seq->gpu, slot);
    }
}

/* ---- downloads ---- */

static culvert__step download_direct(culvert__segment *segment, culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    culvert__call_next(s->gpu->flow, "cuMemcpyDtoHAsync");
    segment->call = "cuMemcpyDtoHAsync";
    segment->result = s->gpu->drv->cuMemcpyDtoHAsync(op->u.host.host,
                                                     op->u.host.buffer->address + op->u.host.offset,
                                                     op->u.host.bytes, s->native);
    if (segment->result != CULVERT__CUDA_SUCCESS)
        return CULVERT__STEP_FAIL;
    segment->used++;
    return CULVERT__STEP_DONE;
}

culvert__step culvert__download_step(culvert__segment *segment, culvert__op *op)
{
    culvert_seq *seq = segment->seq;
    culvert_stream *s = seq->stream;
    if (op->u.host.direct)
        return download_direct(segment, op);
    bool big = op->u.host.bytes > CULVERT__SLOT_SMALL;
    char *to = op->u.host.host + op->u.host.done;
    size_t bytes = op->u.host.bytes - op->u.host.done;
    if (big && bytes > CULVERT__SLOT_BIG)
        bytes = CULVERT__SLOT_BIG;
    if (conflict(s, to, bytes))
        return CULVERT__STEP_WAIT;
    culvert__slot *slot = slot_take(seq, big);
    if (slot == NULL)
        return CULVERT__STEP_WAIT;
    culvert__call_next(s->gpu->flow, "cuMemcpyDtoHAsync");
    segment->call = "cuMemcpyDtoHAsync";
    segment->result = s->gpu->drv->cuMemcpyDtoHAsync(slot->host,
                                                     op->u.host.buffer->address +
                                                         op->u.host.offset + op->u.host.done,
                                                     bytes, s->native);
    if (segment->result != CULVERT__CUDA_SUCCESS) {
        slot_give(s->gpu, slot);
        return CULVERT__STEP_FAIL;
    }
    segment->used++;
    slot->download = true;
    slot->in_driver = true;
    slot->memory = to;
    slot->bytes = bytes;
    *segment->slots_end = slot;
    segment->slots_end = &slot->next;
    owe(s, slot);
    op->u.host.done += bytes;
    if (!big)
        return CULVERT__STEP_DONE;
    return op->u.host.done == op->u.host.bytes ? CULVERT__STEP_LAST : CULVERT__STEP_CUT;
}

/* ---- completion ---- */

void culvert__staging_complete(culvert_stream *s, culvert__entry *entry)
{
    culvert__slot *slot = entry->slots;
    entry->slots = NULL;
    while (slot != NULL) {
        culvert__slot *next = slot->next;
        slot->in_driver = false;
        if (slot->download && slot->big) {
            copy_by_worker(s->gpu, slot);
        } else {
            if (slot->download) {
                memcpy(slot->memory, slot->host, slot->bytes);
                paid(s, slot);
            }
            slot_give(s->gpu, slot);
        }
        slot = next;
    }
}

bool culvert__staging_at_rest(const culvert_gpu *gpu)
{
    const culvert__staging *st = gpu->flow->staging;
    unsigned n = 0;
    for (const culvert__slot *slot = st->free_small; slot != NULL; slot = slot->next)
        n++;
    for (const culvert__slot *slot = st->free_big; slot != NULL; slot = slot->next)
        n++;
    return n == st->small + st->big;
}

/* ---- life ---- */

static bool first_slots(culvert_gpu *gpu, bool big, int n, culvert_error *err)
{
    for (int i = 0; i < n; i++) {
        culvert__slot *slot = slot_new(gpu, big, err);
        if (slot == NULL)
            return false;
        push_free(gpu->flow->staging, slot);
    }
    return true;
}

culvert__staging *culvert__staging_new(culvert_gpu *gpu, culvert_error *err)
{
    culvert__staging *st = calloc(1, sizeof *st);
    if (st == NULL || (st->copiers = culvert__copiers_new()) == NULL) {
        free(st);
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_gpu_open", NULL,
                           "no memory for the staging of copies");
        return NULL;
    }
    gpu->flow->staging = st;
    if (first_slots(gpu, true, FIRST_BIG, err) && first_slots(gpu, false, FIRST_SMALL, err))
        return st;
    culvert__staging_stop(gpu);
    culvert__staging_free(gpu);
    return NULL;
}

void culvert__staging_stop(culvert_gpu *gpu)
{
    culvert__staging *st = gpu->flow->staging;
    if (st == NULL || culvert__forked())
        return; /* a child has no such threads */
    culvert__copiers_free(st->copiers);
    st->copiers = NULL;
}

void culvert__staging_free(culvert_gpu *gpu)
{
    culvert__staging *st = gpu->flow->staging;
    if (st == NULL)
        return;
    for (culvert__slot *slot = st->all, *next; slot != NULL; slot = next) {
        next = slot->all_next;
        if (slot->in_driver || culvert__forked())
            continue; /* named by the entry of a buried sequence */
        culvert__heap_give(gpu->memory->pinned, slot->range);
        free(slot);
    }
    gpu->flow->staging = NULL;
    free(st);
}
