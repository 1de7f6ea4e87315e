/* SPDX-License-Identifier: BSD-2-Clause */
/* What a tracer is told of a sequence. Nothing here is called without one. */
#include "gpu/flow.h"

/* What a sequence is called by: its first kernel, or else its first operation. */
static const culvert__op *main_op(const culvert_seq *seq)
{
    for (const culvert__op *op = seq->ops; op != NULL; op = op->next)
        if (op->kind == CULVERT__OP_LAUNCH)
            return op;
    return seq->ops;
}

void culvert__seq_trace_begin(culvert_seq *seq)
{
    culvert__tracer *tracer = culvert__gpu_core(seq->gpu)->tracer;
    const culvert__op *op = main_op(seq);
    const culvert__trace_begin begin = {.name = culvert__op_name(op),
                                        .detail = op != NULL && op->kind == CULVERT__OP_LAUNCH
                                                      ? op->u.launch.kernel->name
                                                      : "",
                                        .where = culvert__seq_where(seq),
                                        .track = &seq->stream->track,
                                        .device = (unsigned)seq->gpu->device->ordinal,
                                        .built = seq->built};
    seq->traced = tracer->submitted(tracer, &begin);
    if (seq->traced != NULL)
        seq->timed = true;
}

bool culvert__seq_trace_over(culvert_seq *seq)
{
    const culvert_gpu *gpu = seq->gpu;
    const culvert__timing *t = &seq->future->timing;
    culvert__trace_end end = {.code = seq->canceled ? CULVERT_ECANCELED
                                      : seq->failed ? seq->error.code
                                                    : CULVERT_OK,
                              .awaited = gpu->attached && culvert__awaited(&seq->future->base),
                              .start = t->start,
                              .end = t->end};
    if (t->end > t->start || t->end != 0) /* it was measured */
        end.clock = gpu->flow->clock;
    seq->traced->tracer->over(seq->traced, &end);
    return end.awaited;
}
