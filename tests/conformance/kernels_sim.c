/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernels of the rows on the simulator: a module as culvert/kernel.h would make it. */
#include "conformance.h"

#include "culvert/sim_module.h"

#include <stdatomic.h>

static void run_nothing(struct culvert_sim_block *block, const void *params, unsigned first,
                        unsigned end)
{
    (void)block, (void)params, (void)first, (void)end;
}

struct word_params {
    _Atomic uint32_t *to;
    uint32_t value;
};

static void run_store(struct culvert_sim_block *block, const void *params, unsigned first,
                      unsigned end)
{
    const struct word_params *p = params;
    (void)block, (void)first, (void)end;
    atomic_store(p->to, p->value);
}

static void run_append(struct culvert_sim_block *block, const void *params, unsigned first,
                       unsigned end)
{
    const struct word_params *p = params;
    (void)block, (void)first, (void)end;
    atomic_store(p->to, atomic_load(p->to) * 10 + p->value);
}

static void run_spin(struct culvert_sim_block *block, const void *params, unsigned first,
                     unsigned end)
{
    const struct word_params *p = params;
    uint64_t begin = block->ops->clock_ns(block);
    (void)end;
    while (atomic_load(p->to) == 0 && block->ops->clock_ns(block) - begin < 20000000000u) {
        conf_nap();
        block->ops->yield(block, first);
    }
}

static void run_meet(struct culvert_sim_block *block, const void *params, unsigned first,
                     unsigned end)
{
    const struct word_params *p = params;
    uint64_t begin = block->ops->clock_ns(block);
    (void)end;
    atomic_fetch_add(p->to, 1);
    while (atomic_load(p->to) < p->value && block->ops->clock_ns(block) - begin < 20000000000u) {
        conf_nap();
        block->ops->yield(block, first);
    }
}

static _Atomic uint32_t number = 7;

static void run_number_to(struct culvert_sim_block *block, const void *params, unsigned first,
                          unsigned end)
{
    const struct word_params *p = params;
    (void)block, (void)first, (void)end;
    atomic_store(p->to, atomic_load(&number));
}

static void run_fault(struct culvert_sim_block *block, const void *params, unsigned first,
                      unsigned end)
{
    (void)params, (void)end;
    block->ops->fault(block, first, CULVERT__CUDA_ERROR_ILLEGAL_ADDRESS, "a write to address 64");
}

static const size_t offsets[] = {0, 8}, sizes[] = {8, 4};

#define KERNEL(variable, name_, run_, n, bytes)           \
    static const struct culvert_sim_kernel variable = {   \
        .struct_size = sizeof(struct culvert_sim_kernel), \
        .name = name_,                                    \
        .run = run_,                                      \
        .nparams = n,                                     \
        .param_offsets = offsets,                         \
        .param_sizes = sizes,                             \
        .params_bytes = bytes,                            \
    }

KERNEL(nothing, "nothing", run_nothing, 0, 0);
KERNEL(lazy, "lazy", run_nothing, 0, 0);
KERNEL(store, "store", run_store, 2, 12);
KERNEL(append, "append", run_append, 2, 12);
KERNEL(spin, "spin", run_spin, 1, 8);
KERNEL(fault, "fault", run_fault, 0, 0);
KERNEL(meet, "meet", run_meet, 2, 12);
KERNEL(number_to, "number_to", run_number_to, 1, 8);

static const struct culvert_sim_kernel *const kernels[] = {&nothing, &lazy,  &store, &append,
                                                           &spin,    &fault, &meet,  &number_to};

static const struct culvert_sim_global number_global = {
    .struct_size = sizeof(struct culvert_sim_global),
    .name = "number",
    .address = (void *)&number,
    .bytes = sizeof number,
};
static const struct culvert_sim_global *const globals[] = {&number_global};

static const struct culvert_sim_module module = {
    .magic = CULVERT_SIM_MODULE_MAGIC,
    .abi = CULVERT_SIM_MODULE_ABI,
    .struct_size = sizeof module,
    .name = "conformance",
    .nkernels = sizeof kernels / sizeof *kernels,
    .kernels = kernels,
    .nglobals = sizeof globals / sizeof *globals,
    .globals = globals,
};

const void *conf_sim_module(void)
{
    return &module;
}
