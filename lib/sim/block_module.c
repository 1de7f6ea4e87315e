/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding one's way in a host-built module: the program's own data, which nothing here changes. */
#include "sim/block.h"

#include <string.h>

const struct culvert_sim_module *culvert__sim_module(const void *image, int *abi_mismatch)
{
    static const unsigned char magic[] = CULVERT_SIM_MODULE_MAGIC;
    const unsigned char *bytes = image;
    if (abi_mismatch) {
        *abi_mismatch = 0;
    }
    if (!image) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof magic; i++) {
        if (bytes[i] != magic[i]) {
            return NULL;
        }
    }
    const struct culvert_sim_module *m = image;
    if (m->abi != CULVERT_SIM_MODULE_ABI) {
        if (abi_mismatch) {
            *abi_mismatch = 1;
        }
        return NULL;
    }
    return m;
}

const struct culvert_sim_kernel *culvert__sim_module_kernel(const struct culvert_sim_module *m,
                                                            const char *name)
{
    for (size_t i = 0; i < m->nkernels; i++) {
        if (strcmp(m->kernels[i]->name, name) == 0) {
            return m->kernels[i];
        }
    }
    return NULL;
}

const struct culvert_sim_global *culvert__sim_module_global(const struct culvert_sim_module *m,
                                                            const char *name)
{
    for (size_t i = 0; i < m->nglobals; i++) {
        if (strcmp(m->globals[i]->name, name) == 0) {
            return m->globals[i];
        }
    }
    return NULL;
}
