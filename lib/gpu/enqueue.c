/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a stream's queue into the driver, in order.
 *
 * The head of the queue starts when what it waits for is there; then it goes to the driver in
 * segments, each with an event behind it and an entry in the stream's ring. A head that cannot go on
 * (held, capped, starved, without a slot) stays, and what it waits for pumps the stream again.
 *
 * Invariants:
 *   - only the head of the queue has anything in the driver; behind it, all are QUEUED.
 *   - an entry's event is recorded before the entry is in the ring. Where it could not be recorded
 *     the entry has none, the sequence has failed, and the stream itself is asked.
 *   - units of the stream and the device count every operation between take and the entry's end.
 *   - a driver error stops the sequence; it rejects when the part that is in the driver is over.
 */
#include "gpu/flow.h"

#include <stdio.h>

enum { SEGMENT_MAX = 128 };

typedef enum advance {
    ADVANCE_NEXT, /* the head is no more in the queue: look at the next one */
    ADVANCE_STAY  /* nothing more can be enqueued now */
} advance;

/* ---- what can go wrong ---- */

static void fail_with_result(culvert__segment *segment)
{
    culvert_seq *seq = segment->seq;
    const culvert__op *op = seq->cursor;
    culvert_error err = CULVERT_ERROR_INIT;
    if (seq->failed)
        return;
    culvert__gpu_result(seq->gpu, segment->result, false, segment->call, culvert__op_name(op),
                        op != NULL && op->where != NULL ? op->where : seq->where, &err);
    culvert__seq_fail_with(seq, &err);
}

/* Rule 8: a stream that others have a handle of may be captured by them. FAIL: it is, or nobody knows. */
static culvert__step look_for_capture(culvert_seq *seq)
{
    culvert__segment segment = {.seq = seq, .call = "cuStreamIsCapturing"};
    int status = CULVERT__CU_STREAM_CAPTURE_STATUS_NONE;
    culvert_stream *s = seq->stream;
    if (!s->exposed)
        return CULVERT__STEP_DONE;
    culvert__call_next(s->gpu->flow, segment.call);
    segment.result = s->gpu->drv->cuStreamIsCapturing(s->native, &status);
    if (segment.result == CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        culvert__seq_fail(seq, CULVERT_EINVAL, "culvert_seq_submit", seq->where,
                          "the stream is the legacy default stream, and a blocking stream of its "
                          "context is being captured into a graph: work put there would break "
                          "that capture");
        return CULVERT__STEP_FAIL;
    }
    if (segment.result != CULVERT__CUDA_SUCCESS) {
        fail_with_result(&segment);
        return CULVERT__STEP_FAIL;
    }
    if (status == CULVERT__CU_STREAM_CAPTURE_STATUS_NONE)
        return CULVERT__STEP_DONE;
    culvert__seq_fail(
        seq, CULVERT_EINVAL, "culvert_seq_submit", seq->where,
        "the stream is being captured into a graph by the program: nothing that has a "
        "future can be put there before the capture ends");
    return CULVERT__STEP_FAIL;
}

/* ---- one operation ---- */

static culvert__step called(culvert__segment *segment, const char *call, int result)
{
    segment->call = call;
    segment->result = result;
    if (result != CULVERT__CUDA_SUCCESS)
        return CULVERT__STEP_FAIL;
    segment->used++;
    return CULVERT__STEP_DONE;
}

/* From or to another device, which may have been lost since. */
static culvert__step peer_copy(culvert__segment *segment, const culvert__op *op)
{
    culvert_seq *seq = segment->seq;
    culvert_stream *s = seq->stream;
    culvert_buffer *dst = op->u.copy.dst, *src = op->u.copy.src;
    seq->peer = true;
    if (culvert__peer_op_lost(seq, op))
        return CULVERT__STEP_FAIL;
    culvert__call_next(s->gpu->flow, "cuMemcpyPeerAsync");
    return called(segment, "cuMemcpyPeerAsync",
                  s->gpu->drv->cuMemcpyPeerAsync(dst->address + op->u.copy.dst_offset,
                                                 dst->memory->device->ctx,
                                                 src->address + op->u.copy.src_offset,
                                                 src->memory->device->ctx, op->u.copy.bytes,
                                                 s->native));
}

static culvert__step do_copy(culvert__segment *segment, const culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    const culvert__driver *drv = s->gpu->drv;
    culvert_buffer *dst = op->u.copy.dst, *src = op->u.copy.src;
    size_t bytes = op->u.copy.bytes, to = op->u.copy.dst_offset, from = op->u.copy.src_offset;
    if (culvert__peer_copies(op))
        return peer_copy(segment, op);
    if (src->data != NULL && dst->data == NULL) {
        culvert__call_next(s->gpu->flow, "cuMemcpyHtoDAsync");
        return called(segment, "cuMemcpyHtoDAsync",
                      drv->cuMemcpyHtoDAsync(dst->address + to, (char *)src->data + from, bytes,
                                             s->native));
    }
    if (src->data == NULL && dst->data != NULL) {
        culvert__call_next(s->gpu->flow, "cuMemcpyDtoHAsync");
        return called(segment, "cuMemcpyDtoHAsync",
                      drv->cuMemcpyDtoHAsync((char *)dst->data + to, src->address + from, bytes,
                                             s->native));
    }
    /* Host to host too: pinned memory has a device address, and so the copy is the device's. */
    culvert__call_next(s->gpu->flow, "cuMemcpyDtoDAsync");
    return called(segment, "cuMemcpyDtoDAsync",
                  drv->cuMemcpyDtoDAsync(dst->address + to, src->address + from, bytes, s->native));
}

static culvert__step do_copy2d(culvert__segment *segment, const culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    const culvert__CUDA_MEMCPY2D c = {.srcMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                      .srcDevice =
                                          op->u.copy2d.src->address + op->u.copy2d.src_offset,
                                      .srcPitch = op->u.copy2d.src_pitch,
                                      .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                      .dstDevice =
                                          op->u.copy2d.dst->address + op->u.copy2d.dst_offset,
                                      .dstPitch = op->u.copy2d.dst_pitch,
                                      .WidthInBytes = op->u.copy2d.width,
                                      .Height = op->u.copy2d.height};
    culvert__call_next(s->gpu->flow, "cuMemcpy2DAsync");
    return called(segment, "cuMemcpy2DAsync", s->gpu->drv->cuMemcpy2DAsync(&c, s->native));
}

static culvert__step do_fill(culvert__segment *segment, const culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    const culvert__driver *drv = s->gpu->drv;
    unsigned long long at = op->u.fill.dst->address + op->u.fill.offset;
    size_t n = op->u.fill.bytes / op->u.fill.pattern_bytes;
    uint32_t pattern = op->u.fill.pattern;
    culvert__call_next(s->gpu->flow, "cuMemsetAsync");
    switch (op->u.fill.pattern_bytes) {
    case 1:
        return called(segment, "cuMemsetD8Async",
                      drv->cuMemsetD8Async(at, (unsigned char)pattern, n, s->native));
    case 2:
        return called(segment, "cuMemsetD16Async",
                      drv->cuMemsetD16Async(at, (unsigned short)pattern, n, s->native));
    default:
        return called(segment, "cuMemsetD32Async",
                      drv->cuMemsetD32Async(at, pattern, n, s->native));
    }
}

/* A launch that is in clusters, or cooperative. */
static culvert__step do_launch_ex(culvert__segment *segment, const culvert__launch *l)
{
    culvert_stream *s = segment->seq->stream;
    culvert__CUlaunchAttribute attributes[2] = {{.id = 0}};
    culvert__CUlaunchConfig config = {.gridDimX = l->blocks[0],
                                      .gridDimY = l->blocks[1],
                                      .gridDimZ = l->blocks[2],
                                      .blockDimX = l->threads[0],
                                      .blockDimY = l->threads[1],
                                      .blockDimZ = l->threads[2],
                                      .sharedMemBytes = l->shared_bytes,
                                      .hStream = s->native,
                                      .attrs = attributes};
    if (l->cluster[0] != 0) {
        culvert__CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        a->value.clusterDim.x = l->cluster[0];
        a->value.clusterDim.y = l->cluster[1];
        a->value.clusterDim.z = l->cluster[2];
    }
    if (l->cooperative) {
        culvert__CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        a->value.cooperative = 1;
    }
    culvert__call_next(s->gpu->flow, "cuLaunchKernelEx");
    return called(segment, "cuLaunchKernelEx",
                  s->gpu->drv->cuLaunchKernelEx(&config, l->kernel->function, l->params, NULL));
}

static culvert__step do_launch(culvert__segment *segment, const culvert__op *op)
{
    culvert_stream *s = segment->seq->stream;
    const culvert__launch *l = &op->u.launch;
    if (!culvert__launch_is_plain(l))
        return do_launch_ex(segment, l);
    culvert__call_next(s->gpu->flow, "cuLaunchKernel");
    return called(segment, "cuLaunchKernel",
                  s->gpu->drv->cuLaunchKernel(l->kernel->function, l->blocks[0], l->blocks[1],
                                              l->blocks[2], l->threads[0], l->threads[1],
                                              l->threads[2], l->shared_bytes, s->native, l->params,
                                              NULL));
}

static culvert__step do_call(culvert__segment *segment, const culvert__op *op)
{
    culvert_seq *seq = segment->seq;
    culvert_stream *s = seq->stream;
    int mode = s->gpu->flow->capture_mode;
    s->exposed = true;
    culvert__call_next(s->gpu->flow, "the function of a culvert_seq_call");
    (void)s->gpu->drv->cuThreadExchangeStreamCaptureMode(&mode);
    int status = op->u.call.enqueue(s->native, op->u.call.arg);
    (void)s->gpu->drv->cuThreadExchangeStreamCaptureMode(&mode);
    segment->used += op->weight;
    segment->called = true;
    if (status == 0)
        return look_for_capture(seq); /* it may have begun one */
    culvert__seq_fail(seq, CULVERT_EDRIVER, op->u.call.name, op->where,
                      "the function given to %s returned %d", op->u.call.name, status);
    seq->error.native = status;
    return CULVERT__STEP_FAIL;
}

static culvert__step do_op(culvert__segment *segment, culvert__op *op)
{
    switch (op->kind) {
    case CULVERT__OP_UPLOAD: return culvert__upload_step(segment, op);
    case CULVERT__OP_DOWNLOAD: return culvert__download_step(segment, op);
    case CULVERT__OP_COPY: return do_copy(segment, op);
    case CULVERT__OP_FILL: return do_fill(segment, op);
    case CULVERT__OP_LAUNCH: return do_launch(segment, op);
    case CULVERT__OP_CALL: return do_call(segment, op);
    case CULVERT__OP_COPY2D: return do_copy2d(segment, op);
    case CULVERT__OP_GRAPH: return culvert__graph_step(segment, op);
    }
    return CULVERT__STEP_FAIL;
}

/* ---- a segment ---- */

/* The operations of one segment. The last step tells why it ended; DONE: all are in the driver. */
static culvert__step run_ops(culvert__segment *segment)
{
    culvert_seq *seq = segment->seq;
    while (seq->cursor != NULL) {
        culvert__op *op = seq->cursor;
        if (segment->used + op->weight > segment->reserved)
            return CULVERT__STEP_CUT;
        culvert__step step = do_op(segment, op);
        if (step == CULVERT__STEP_FAIL)
            fail_with_result(segment);
        if (step == CULVERT__STEP_DONE || step == CULVERT__STEP_LAST) {
            culvert__gpu_core(seq->gpu)->counters.operations[op->kind]++;
            seq->cursor = op->next;
        }
        if (step == CULVERT__STEP_LAST && seq->cursor == NULL)
            return CULVERT__STEP_DONE;
        if (step != CULVERT__STEP_DONE)
            return step;
    }
    return CULVERT__STEP_DONE;
}

static void record(culvert__segment *segment, struct CUevent_st *event, const char *what)
{
    culvert_seq *seq = segment->seq;
    culvert__call_next(seq->gpu->flow, what);
    segment->call = "cuEventRecord";
    segment->result = seq->gpu->drv->cuEventRecord(event, seq->stream->native);
    if (segment->result != CULVERT__CUDA_SUCCESS)
        fail_with_result(segment);
}

static void push_entry(culvert__segment *segment, struct CUevent_st *event, bool last)
{
    culvert_seq *seq = segment->seq;
    culvert_stream *s = seq->stream;
    /* In a capture, an event would become a part of that. */
    bool good = !segment->called || look_for_capture(seq) == CULVERT__STEP_DONE;
    if (good && last && seq->timed && seq->end != NULL)
        record(segment, seq->end, "cuEventRecord");
    if (good) {
        record(segment, event, "cuEventRecord");
        good = segment->result == CULVERT__CUDA_SUCCESS;
    }
    if (!good) {
        culvert__event_give(s->gpu, event, false);
        event = NULL;
    }
    if (!seq->in_driver) {
        seq->in_driver = true;
        s->queued--;
        s->in_flight++;
    }
    seq->last_entry = s->enq;
    seq->entries++;
    *culvert__entry_at(s, s->enq++) = (culvert__entry){.seq = seq,
                                                       .event = event,
                                                       .slots = segment->slots,
                                                       .graphs = segment->graphs,
                                                       .submitted = culvert__now(),
                                                       .units = segment->reserved};
}

/* What the rest of the sequence needs at most, from its cursor, up to a segment's size. */
static unsigned weigh(const culvert_seq *seq, unsigned *least)
{
    unsigned sum = 0;
    *least = seq->cursor != NULL ? seq->cursor->weight : 1;
    for (const culvert__op *op = seq->cursor; op != NULL && sum + op->weight <= SEGMENT_MAX;
         op = op->next)
        sum += op->weight;
    return sum > *least ? sum : *least;
}

/* Gives back what was reserved for more than there is; an entry weighs 1 at least. */
static void settle_units(culvert__segment *segment)
{
    unsigned keep = segment->used > 0 ? segment->used : 1;
    if (keep > segment->reserved)
        keep = segment->reserved; /* a call's weight is an upper bound that cannot be exceeded */
    culvert__units_give(segment->seq->stream, segment->reserved - keep);
    segment->reserved = keep;
}

static culvert__step enqueue_segment(culvert_seq *seq)
{
    culvert_stream *s = seq->stream;
    culvert_error err = CULVERT_ERROR_INIT;
    unsigned least, most = weigh(seq, &least);
    culvert__segment segment = {.seq = seq};
    segment.slots_end = &segment.slots;
    segment.reserved = culvert__units_take(s, least, most);
    if (segment.reserved == 0)
        return CULVERT__STEP_WAIT;
    struct CUevent_st *event = culvert__event_take(s->gpu, false, &err);
    if (event == NULL) {
        culvert__units_give(s, segment.reserved);
        culvert__seq_fail_with(seq, &err);
        return CULVERT__STEP_FAIL;
    }
    culvert__step step = run_ops(&segment);
    bool empty = segment.used == 0 && segment.slots == NULL;
    if (empty && step != CULVERT__STEP_DONE) {
        culvert__event_give(s->gpu, event, false);
        culvert__units_give(s, segment.reserved);
        return step;
    }
    settle_units(&segment);
    push_entry(&segment, event, step == CULVERT__STEP_DONE);
    return seq->failed ? CULVERT__STEP_FAIL : step;
}

/* ---- a sequence ---- */

static void start_timing(culvert_seq *seq, culvert__segment *segment)
{
    culvert__timing_start(seq);
    if (seq->start != NULL)
        record(segment, seq->start, "cuEventRecord");
}

static culvert__step start(culvert_seq *seq)
{
    culvert__segment segment = {.seq = seq};
    culvert__step step = culvert__seq_start_waits(seq, &segment);
    if (step == CULVERT__STEP_FAIL && !seq->failed)
        fail_with_result(&segment);
    if (step != CULVERT__STEP_DONE)
        return step;
    seq->started = true;
    seq->state = CULVERT__SEQ_PART;
    if (seq->timed)
        start_timing(seq, &segment);
    return seq->failed ? CULVERT__STEP_FAIL : CULVERT__STEP_DONE;
}

static void whole(culvert_seq *seq)
{
    seq->state = CULVERT__SEQ_WHOLE;
    culvert__list_unlink(&seq->link);
    if (seq->traced != NULL)
        seq->traced->tracer->enqueued(seq->traced);
    culvert__seq_wake_dependents(seq);
}

static advance advance_head(culvert_seq *seq)
{
    culvert__step step = look_for_capture(seq);
    if (step == CULVERT__STEP_DONE && !seq->started)
        step = start(seq);
    if (step == CULVERT__STEP_WAIT)
        return ADVANCE_STAY;
    while (step != CULVERT__STEP_FAIL) {
        step = enqueue_segment(seq);
        if (step == CULVERT__STEP_WAIT)
            return ADVANCE_STAY;
        if (step == CULVERT__STEP_DONE) {
            whole(seq);
            return ADVANCE_NEXT;
        }
    }
    culvert__seq_stop(seq);
    return ADVANCE_NEXT;
}

/* Another context may be current, and must not get what is meant for ours. */
static void no_context(culvert_seq *seq, int result)
{
    culvert__segment segment = {.seq = seq, .call = "cuCtxPushCurrent", .result = result};
    fail_with_result(&segment);
    culvert__seq_stop(seq);
}

/* ---- a stream ---- */

/* It stands in a line only while its head needs what is waited for there. */
static void leave_lines(culvert_stream *s)
{
    if (!s->wants_slot && culvert__linked(&s->slotless))
        culvert__slotless_leave(s);
    if (!s->wants_units && culvert__linked(&s->starved))
        culvert__starved_leave(s);
    if (!s->wants_instance && culvert__linked(&s->graph_line))
        culvert__graph_line_leave(s);
}

void culvert__stream_pump(culvert_stream *s)
{
    if (s->pumping || s->native == NULL || culvert__device_is_lost(s->gpu->device))
        return;
    s->wants_slot = s->wants_units = s->wants_instance = false;
    if (culvert__list_empty(&s->queue)) {
        leave_lines(s);
        return;
    }
    s->pumping = true;
    s->refs++;
    culvert__visit visit = culvert__driver_enter(s->gpu, "cuLaunchKernel");
    while (!culvert__list_empty(&s->queue)) {
        culvert_seq *seq = CULVERT__CONTAINER(s->queue.next, culvert_seq, link);
        if (visit.scope.result != CULVERT__CUDA_SUCCESS) {
            no_context(seq, visit.scope.result);
            break; /* the others are tried again */
        }
        if (advance_head(seq) == ADVANCE_STAY)
            break;
        if (culvert__device_is_lost(s->gpu->device))
            break;
    }
    culvert__driver_leave(s->gpu, visit);
    leave_lines(s);
    s->pumping = false;
    culvert__loop_resume(s->gpu->loop);
    culvert__stream_put(s);
}

static void run_pump(culvert__task *task)
{
    culvert_stream *s = CULVERT__CONTAINER(task, culvert_stream, pump);
    culvert__stream_pump(s);
}

void culvert__stream_schedule(culvert_stream *s)
{
    if (culvert__linked(&s->pump.link) || s->native == NULL || !s->gpu->attached)
        return;
    s->pump.run = run_pump;
    culvert__ready_push(culvert__gpu_core(s->gpu), &s->pump);
}

void culvert__stream_submit(culvert_stream *s, culvert_seq *seq)
{
    culvert__flow *flow = s->gpu->flow;
    seq->state = CULVERT__SEQ_QUEUED;
    seq->cursor = seq->ops;
    s->queued++;
    culvert__list_push(&s->queue, &seq->link);
    culvert__list_push(&flow->live, &seq->live);
    if (!culvert__linked(&s->busy))
        culvert__list_push(&flow->busy, &s->busy);
    culvert__loop_keep(s->gpu->loop);
    if (s->queue.next == &seq->link)
        culvert__stream_pump(s);
}
