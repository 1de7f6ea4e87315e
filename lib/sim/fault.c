/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fault.c: sticky errors.
 *
 * A kernel that faults, or a test, strikes the device: its context has failed, for good. Running
 * kernels are told to stop, and everything queued is dropped (purge.c).
 */
#include "sim/engine.h"

#include <stdio.h>

void culvert__sim_strike(int device, int result, const char *what)
{
    struct CUctx_st *ctx = &culvert__sim.contexts[device];
    if (ctx->sticky)
        return;
    if (what)
        fprintf(stderr, "culvert-sim: device %d is lost: %s failed with %d\n", device, what,
                result);
    ctx->sticky = result;
    atomic_store(&ctx->stop, result);
    culvert__sim_purge(ctx, result);
}
