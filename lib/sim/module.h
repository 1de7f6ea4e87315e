/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * module.h: modules and their functions. Both are objects (object.c); a module lives until it was
 * unloaded and no queued work uses its functions.
 */
#ifndef CULVERT_SIM_MODULE_INTERNAL_H
#define CULVERT_SIM_MODULE_INTERNAL_H

#include "sim/engine.h"

struct CUfunc_st {
    struct sim_object object;
    struct CUmod_st *module;
    const struct culvert_sim_kernel *kernel;
    struct CUfunc_st *next; /* of the module */
    bool loaded;
    int max_dynamic_shared;
    int carveout;
};

struct CUmod_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    struct CUmod_st *next; /* of the context */
    const struct culvert_sim_module *image;
    struct CUfunc_st *functions;
    unsigned refs; /* the handle, and each queued launch */
    bool unloaded;
};

void culvert__sim_module_ref(struct CUmod_st *m);     /* [lock] */
void culvert__sim_module_unref(struct CUmod_st *m);   /* [lock] */
void culvert__sim_module_destroy(struct CUmod_st *m); /* [lock] with its context */
/* The first launch of a function that nobody loaded loads it. 0, or an error. [lock] [waits] */
int culvert__sim_function_load(struct CUfunc_st *f);
/* image.c: what the driver answers to an image that is no module of ours, and its log. */
int culvert__sim_image_refuse(const void *image, int other_version, unsigned n, const int *options,
                              void **values);
/* How many blocks of such a size run at once on a device. [lock] */
uint64_t culvert__sim_blocks_at_once(const struct CUfunc_st *f, uint64_t threads,
                                     uint32_t shared_bytes);
/* Bounds of a launch. 0, or what the driver answers. [lock] */
int culvert__sim_launch_check(const struct CUfunc_st *f, const uint32_t grid[3],
                              const uint32_t block[3], uint32_t shared_bytes);
/*
 * Packs a launch's parameters into `room`, or into memory of its own: in *out. NULL params with
 * `extra` as for cuLaunchKernel. 0, or what the driver answers. [lock]
 */
int culvert__sim_pack_params(const struct CUfunc_st *f, void **params, void **extra, void *room,
                             size_t room_bytes, void **out);

#endif
