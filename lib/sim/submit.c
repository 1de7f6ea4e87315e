/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * submit.c: where an operation goes: to its stream, or into a graph that is being captured.
 */
#include "sim/engine.h"

int culvert__sim_submit(struct CUstream_st *s, struct sim_op *op)
{
    if (s->capture)
        return culvert__sim_capture_op(s, op);
    int result = s == s->ctx->legacy ? culvert__sim_capture_implicit(s->ctx) : 0;
    if (result) {
        culvert__sim_op_free(op);
        return result;
    }
    return culvert__sim_enqueue(s, op);
}
