/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/sim_module.h: what a kernel module built for the host tells the simulated driver.
 *
 * culvert_add_kernels() compiles a .cu source twice: for the GPU, and with the host's C++ compiler.
 * The second yields a `struct culvert_sim_module`, data only: kernels with the layout of their
 * parameters, and variables. `culvert_image.sim_module` points to it, and it is what is handed to
 * the simulator's cuModuleLoadDataEx in the place of a fatbin.
 *
 * A kernel calls the simulator only through the table in `struct culvert_sim_block`, so a program
 * with host-built kernels in it has no undefined symbol and does not link the simulator.
 *
 * Programs have no need of this header: culvert/kernel.h fills these structures, and the simulator
 * reads them. C11 and C++17.
 */
#ifndef CULVERT_SIM_MODULE_H
#define CULVERT_SIM_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The first bytes of a module. No fatbin (50 ed 55 ba), no ELF file (7f 45 4c 46) and no PTX text
 * (which is ASCII) starts with the first of them, so compare byte by byte and stop at the first
 * that differs: an image of another kind may be shorter than these eight.
 */
/* clang-format off */
#define CULVERT_SIM_MODULE_MAGIC_SIZE 8
#define CULVERT_SIM_MODULE_MAGIC {0xc5, 'c', 'u', 'l', 'v', 'e', 'r', 't'}
/* clang-format on */

/*
 * The version of every structure below. A module of another version is refused as an image of an
 * unsuitable kind is: CUDA_ERROR_NO_BINARY_FOR_GPU (209).
 */
#define CULVERT_SIM_MODULE_ABI 1

/* The lanes of a warp: threads 32 k to 32 k + 31 of a block, x running fastest. */
#define CULVERT_SIM_WARP 32

/* What the lanes of a warp do together; those that meet must all name the same. */
enum culvert_sim_warp_kind {
    CULVERT_SIM_WARP_SYNC = 0,
    CULVERT_SIM_WARP_VOTE = 1,
    CULVERT_SIM_WARP_SHUFFLE = 2,
    CULVERT_SIM_WARP_OTHER = 3
};

struct culvert_sim_block;

/*
 * The functions that the simulator lends to a running kernel. `thread` is the calling thread's
 * index in its block, x + y * block_dim[0] + z * block_dim[0] * block_dim[1]. Every function may
 * run other threads of the same block, on the same operating system thread, before it returns: the
 * caller restores whatever it keeps per thread.
 */
struct culvert_sim_ops {
    size_t struct_size;

    /*
     * Waits until every thread of the block that has not ended is here. Returns how many of those
     * that came gave a predicate other than 0, and in *arrived (unless NULL) how many came.
     */
    unsigned (*barrier)(struct culvert_sim_block *block, unsigned thread, int predicate,
                        unsigned *arrived);

    /*
     * Waits until every lane in `mask` that has not ended has called with the same kind and mask.
     * Returns the mask of the lanes that came, and values[i] (unless NULL; all 32) what lane i
     * gave, 0 where it did not come. A mask without the caller's own lane is a fault.
     */
    uint32_t (*warp)(struct culvert_sim_block *block, unsigned thread, unsigned kind, uint32_t mask,
                     uint64_t value, uint64_t *values);

    /* Lets the other threads of the block run: for one that waits for what another one writes. */
    void (*yield)(struct culvert_sim_block *block, unsigned thread);

    /*
     * Ends the whole launch with `result`, a CUresult: 710 for a failed assertion, 719 for a trap.
     * Does not return. The message is copied, and should say what was wrong; the simulator adds the
     * names of kernel, block and thread.
     */
    void (*fault)(struct culvert_sim_block *block, unsigned thread, int result,
                  const char *message);

    /* The device's clock, in nanoseconds. */
    uint64_t (*clock_ns)(struct culvert_sim_block *block);
};

/* One block of a launch, as the kernel's code sees it. Indices are x, y, z. */
struct culvert_sim_block {
    size_t struct_size;
    const struct culvert_sim_ops *ops;
    uint32_t grid_dim[3];
    uint32_t block_dim[3];
    uint32_t cluster_dim[3]; /* 1, 1, 1 without clusters */
    uint32_t block_idx[3];
    void *dynamic_shared;          /* aligned to 128 bytes; NULL where there are none */
    uint32_t dynamic_shared_bytes; /* as launched */
};

/*
 * Runs the threads first <= i < end of a block, in that order, as plain calls. If the thread at
 * hand called barrier, warp or yield, the function returns once that thread ends, and runs no later
 * one: the simulator has started those elsewhere. (So a kernel that never waits is a loop of calls,
 * and only a thread that waits costs a stack of its own.)
 *
 * params: the parameters, laid out as `param_offsets` say, aligned to 16 bytes.
 */
typedef void culvert_sim_run_fn(struct culvert_sim_block *block, const void *params, unsigned first,
                                unsigned end);

/* CUDA's layout of parameters: each at the next multiple of its natural alignment. */
struct culvert_sim_kernel {
    size_t struct_size;
    const char *name; /* as in the source: kernels are extern "C" */
    culvert_sim_run_fn *run;
    size_t nparams;
    const size_t *param_offsets; /* nparams of each; NULL where there are none */
    const size_t *param_sizes;
    size_t params_bytes;          /* the end of the last one */
    uint32_t static_shared_bytes; /* 0: none, or not known */
    uint32_t max_threads;         /* a block may have; 0: no bound of its own */
    uint32_t flags;               /* 0 so far */
    uint32_t reserved;
};

/*
 * A __device__ or __constant__ variable. There is one copy of it a process, whatever the number of
 * devices and of times that the module is loaded: its address on the device is its address here.
 */
struct culvert_sim_global {
    size_t struct_size;
    const char *name;
    void *address;
    size_t bytes;
    uint32_t flags; /* 0 so far */
    uint32_t reserved;
};

/* The tables are arrays of pointers, so that a structure may grow at its end. */
struct culvert_sim_module {
    unsigned char magic[CULVERT_SIM_MODULE_MAGIC_SIZE];
    uint32_t abi;
    uint32_t flags; /* 0 so far */
    size_t struct_size;
    const char *name; /* the source's stem */
    size_t nkernels;
    const struct culvert_sim_kernel *const *kernels;
    size_t nglobals;
    const struct culvert_sim_global *const *globals;
};

#ifdef __cplusplus
}
#endif

#endif
