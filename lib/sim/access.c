/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.c: what a copy or a fill finds at the addresses that it was given.
 */
#include "sim/memory.h"

static const char *kind_name(const struct sim_range *r)
{
    return r->kind == SIM_RANGE_HOST || r->kind == SIM_RANGE_REGISTERED ? "pinned" : "device";
}

static int outside(const struct sim_range *r, uintptr_t address, size_t bytes)
{
    culvert__sim_violation("%s: %zu bytes at %p run past the end of %zu bytes of %s memory at %p",
                           culvert__sim_current_call(), bytes, (void *)address, r->bytes,
                           kind_name(r), (void *)r->base);
    return CULVERT__CUDA_ERROR_INVALID_VALUE;
}

int culvert__sim_access(uintptr_t address, size_t bytes, enum sim_side side, struct sim_access *out)
{
    struct sim_range *r = culvert__sim_range_find(address);
    *out = (struct sim_access){.range = r};
    if (!r) {
        out->pageable = true;
        return side == SIM_SIDE_DEVICE ? CULVERT__CUDA_ERROR_INVALID_VALUE : 0;
    }
    if (r->kind == SIM_RANGE_FREED || r->unused) {
        culvert__sim_violation("%s: use of freed memory at %p", culvert__sim_current_call(),
                               (void *)address);
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    }
    out->pinned = r->kind == SIM_RANGE_HOST || r->kind == SIM_RANGE_REGISTERED;
    out->device = !out->pinned;
    if (bytes > r->bytes - (address - r->base))
        return outside(r, address, bytes);
    return 0;
}
