/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * legacy.c: the order that the legacy stream makes.
 *
 * What is put on the legacy stream waits for all that is on the context's blocking streams, and what
 * is put on a blocking stream waits for all that is on the legacy stream; non-blocking streams have
 * no part in it. It is made of silent records and waits, put in front of the operation at hand.
 *
 * Invariants: `joined` of a stream is how many of its operations the legacy stream waits for
 * already, `legacy_joined` how many of the legacy stream's it waits for itself; so neither is made
 * to wait twice for the same.
 */
#include "sim/engine.h"

static void wait_for_all_of(struct CUstream_st *waiter, struct CUstream_st *other)
{
    struct sim_record *r = culvert__sim_record_new();
    struct sim_op *end = culvert__sim_op_new(SIM_RECORD, culvert__sim_thread()->call);
    struct sim_op *wait = culvert__sim_op_new(SIM_WAIT, culvert__sim_thread()->call);
    end->silent = wait->silent = true;
    end->record = culvert__sim_record_ref(r);
    wait->record = r;
    culvert__sim_append(other, end);
    culvert__sim_append(waiter, wait);
}

static bool blocking(const struct CUstream_st *s)
{
    return !(s->flags & CULVERT__CU_STREAM_NON_BLOCKING) && s != s->ctx->legacy && !s->capture;
}

void culvert__sim_legacy_order(struct CUstream_st *s)
{
    struct CUstream_st *legacy = s->ctx->legacy;
    if (s != legacy) {
        if (legacy && blocking(s) && legacy->head && s->legacy_joined < legacy->enqueued) {
            s->legacy_joined = legacy->enqueued;
            wait_for_all_of(s, legacy);
        }
        return;
    }
    for (struct CUstream_st *t = s->ctx->streams; t; t = t->next) {
        if (blocking(t) && t->head && t->joined < t->enqueued) {
            t->joined = t->enqueued;
            wait_for_all_of(s, t);
        }
    }
}
