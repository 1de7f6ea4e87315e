/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel runtime: runs the blocks of a grid of a host-built kernel (culvert/sim_module.h) on
 * the calling thread. A runner owns the stacks and the shared memory for that; it serves one thread
 * at a time, and a device thread keeps one for its life. Runners share nothing, so several threads
 * may run different kernels, or different blocks of one, at once.
 */
#ifndef CULVERT_SIM_BLOCK_H
#define CULVERT_SIM_BLOCK_H

#include "culvert/sim_module.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The limits of a block, as those of all GPUs since compute capability 5.0. */
#define CULVERT__BLOCK_MAX_THREADS 1024u

typedef struct culvert__block_runner culvert__block_runner;

typedef struct culvert__grid {
    const struct culvert_sim_kernel *kernel;
    const void
        *params;       /* packed as kernel->param_offsets, aligned to 16; NULL without parameters */
    uint32_t grid[3];  /* each at least 1 */
    uint32_t block[3]; /* each at least 1, the product at most CULVERT__BLOCK_MAX_THREADS */
    uint32_t cluster[3];
    uint32_t dynamic_shared_bytes;
    const _Atomic int *stop;   /* NULL, or read at every block, barrier and yield: not 0 ends the
                                launch with that CUresult */
    const _Atomic int *failed; /* likewise: another block's failure; NULL: none can tell */
} culvert__grid;

/*
 * Whether `image` is a module for the simulator that this version can run. Reads no more of another
 * image than tells it apart. *abi_mismatch (unless NULL): it is one, but of another version.
 */
const struct culvert_sim_module *culvert__sim_module(const void *image, int *abi_mismatch);
const struct culvert_sim_kernel *culvert__sim_module_kernel(const struct culvert_sim_module *m,
                                                            const char *name);
const struct culvert_sim_global *culvert__sim_module_global(const struct culvert_sim_module *m,
                                                            const char *name);

/* NULL when out of memory. */
culvert__block_runner *culvert__block_runner_new(void);
void culvert__block_runner_free(culvert__block_runner *r); /* NULL allowed */

/* The number of blocks of a grid, at most 2^31-1 * 65535 * 65535, which fits. */
uint64_t culvert__grid_blocks(const culvert__grid *g);

/*
 * Runs the blocks first <= i < first + count, x running fastest; a whole grid is 0 and
 * culvert__grid_blocks(). Returns 0, or the CUresult that the real driver would report for the
 * launch once it ran (710 assertion, 719 trap or a barrier that can never complete, 2 no memory for
 * stacks, or *stop), then with a message of at most `bytes` in `message`.
 */
int culvert__grid_run(culvert__block_runner *r, const culvert__grid *g, uint64_t first,
                      uint64_t count, char *message, size_t bytes);

/*
 * Runs all blocks of a grid at the same time, each on a thread of its own. Result and message as of
 * culvert__grid_run; the runner runs a grid of one block.
 */
int culvert__grid_run_at_once(culvert__block_runner *r, const culvert__grid *g, char *message,
                              size_t bytes);

#endif
