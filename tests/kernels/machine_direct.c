/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels run by the kernel runtime alone: memory is the host's, and a launch is over when it
 * returns. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/machine.h"
#include "sim/block.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct machine {
    culvert__block_runner *runner;
};

machine *machine_open(void)
{
    machine *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    m->runner = culvert__block_runner_new();
    ck_assert_ptr_nonnull(m->runner);
    return m;
}

void machine_close(machine *m)
{
    culvert__block_runner_free(m->runner);
    free(m);
}

uint64_t machine_alloc(machine *m, size_t bytes)
{
    (void)m;
    void *p = NULL;
    ck_assert_int_eq(posix_memalign(&p, 256, bytes), 0); /* no larger, so that overruns are seen */
    memset(p, 0xcd, bytes);
    return (uint64_t)(uintptr_t)p;
}

void machine_free(machine *m, uint64_t address)
{
    (void)m;
    free((void *)(uintptr_t)address);
}

void machine_put(machine *m, uint64_t to, const void *from, size_t bytes)
{
    (void)m;
    memcpy((void *)(uintptr_t)to, from, bytes);
}

void machine_get(machine *m, void *to, uint64_t from, size_t bytes)
{
    (void)m;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
}

static const struct culvert_sim_module *module_of(const culvert_image *image)
{
    const struct culvert_sim_module *module = culvert__sim_module(image->sim_module, NULL);
    ck_assert_ptr_nonnull(module);
    return module;
}

static const struct culvert_sim_kernel *kernel_of(const culvert_image *image, const char *name)
{
    const struct culvert_sim_kernel *k = culvert__sim_module_kernel(module_of(image), name);
    ck_assert_msg(k != NULL, "no kernel %s", name);
    return k;
}

uint64_t machine_global(machine *m, const culvert_image *image, const char *name, size_t *bytes)
{
    (void)m;
    const struct culvert_sim_global *g = culvert__sim_module_global(module_of(image), name);
    ck_assert_msg(g != NULL, "no variable %s", name);
    *bytes = g->bytes;
    return (uint64_t)(uintptr_t)g->address;
}

int machine_run(machine *m, const struct machine_launch *l, void **params)
{
    _Alignas(16) unsigned char packed[4096];
    char message[512];
    const struct culvert_sim_kernel *k = kernel_of(l->image, l->kernel);
    culvert__grid g = {.kernel = k, .params = packed, .dynamic_shared_bytes = l->shared_bytes};
    for (int i = 0; i < 3; i++) {
        g.grid[i] = l->grid[i] ? l->grid[i] : 1;
        g.block[i] = l->block[i] ? l->block[i] : 1;
    }
    ck_assert_uint_le(k->params_bytes, sizeof packed);
    for (size_t i = 0; i < k->nparams; i++) {
        memcpy(packed + k->param_offsets[i], params[i], k->param_sizes[i]);
    }
    return culvert__grid_run(m->runner, &g, 0, culvert__grid_blocks(&g), message, sizeof message);
}

int machine_param(machine *m, const culvert_image *image, const char *kernel, size_t i,
                  size_t *offset, size_t *bytes)
{
    (void)m;
    const struct culvert_sim_kernel *k = kernel_of(image, kernel);
    if (i >= k->nparams) {
        return 0;
    }
    *offset = k->param_offsets[i];
    *bytes = k->param_sizes[i];
    return 1;
}
