/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.h: what the simulator knows of the address space. Device memory is the process's own
 * memory, so an address means the same on both sides.
 */
#ifndef CULVERT_SIM_MEMORY_H
#define CULVERT_SIM_MEMORY_H

#include "sim/engine.h"

enum sim_range_kind {
    SIM_RANGE_DEVICE,     /* cuMemAlloc */
    SIM_RANGE_POOL,       /* cuMemAllocFromPoolAsync */
    SIM_RANGE_GLOBAL,     /* a module's variable */
    SIM_RANGE_HOST,       /* cuMemHostAlloc */
    SIM_RANGE_REGISTERED, /* cuMemHostRegister */
    SIM_RANGE_FREED       /* was device or host memory; kept for a while, to catch its use */
};

struct sim_range {
    uintptr_t base;
    size_t bytes;
    size_t mapped; /* at base, by mmap; 0: not ours */
    enum sim_range_kind kind;
    struct CUctx_st *ctx;
    unsigned flags;
    unsigned refs; /* of a variable: how often it is loaded */
    unsigned long long id;
    struct CUmemPoolHandle_st *pool;
    bool unused;            /* of a pool: the program has freed it */
    struct sim_range *next; /* freed: the next one to be forgotten; pool: the next unused one */
};

/* ranges.c. All: [lock]. */
struct sim_range *culvert__sim_range_find(uintptr_t address);                /* NULL: in none */
struct sim_range *culvert__sim_range_overlap(uintptr_t first, size_t bytes); /* NULL: with none */
struct sim_range *culvert__sim_range_add(uintptr_t base, size_t bytes, enum sim_range_kind kind,
                                         struct CUctx_st *ctx); /* NULL: no memory */
void culvert__sim_range_remove(struct sim_range *r);            /* and frees it */
/* New memory in a range of its own. NULL: no memory. */
struct sim_range *culvert__sim_range_map(size_t bytes, enum sim_range_kind kind,
                                         struct CUctx_st *ctx);
void culvert__sim_range_unmap(struct sim_range *r); /* poisoned, and a while later given back */
void culvert__sim_ranges_of_context(struct CUctx_st *ctx); /* removes all of it */
void culvert__sim_ranges_reset(void);                      /* and the freed ones */

/* access.c */
enum sim_side { SIM_SIDE_ANY, SIM_SIDE_DEVICE };
struct sim_access {
    bool device;   /* device memory */
    bool pinned;   /* host memory that the device can read */
    bool pageable; /* anything else of the host */
    struct sim_range *range;
};
/*
 * What a copy or fill finds at an address. SIM_SIDE_DEVICE: must be memory that the device knows. 0,
 * or what the driver answers; a use of freed memory is a violation too. [lock]
 */
int culvert__sim_access(uintptr_t address, size_t bytes, enum sim_side side,
                        struct sim_access *out);

/* copy.c: the staging ring of pageable uploads */
void culvert__sim_ring_give(struct CUctx_st *ctx, size_t bytes); /* [lock] */

/* order.c: whether queued work uses some of it. [lock] */
bool culvert__sim_in_use(uintptr_t first, size_t bytes);

/* pool.c */
int culvert__sim_pool_free_now(struct sim_range *r,
                               uintptr_t address); /* cuMemFree. [lock] [waits] */
void culvert__sim_pools_synchronized(void); /* [lock] the program has waited for the device */
void culvert__sim_pools_of_context(struct CUctx_st *ctx); /* [lock] */
void culvert__sim_pool_take_back(void *block);            /* [lock] */

struct CUmemPoolHandle_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    struct CUmemPoolHandle_st *next; /* of all pools */
    struct sim_range *unused;
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse_event, reuse_opportunistic, reuse_internal;
    bool closed;
};

#endif
