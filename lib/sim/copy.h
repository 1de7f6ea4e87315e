/* SPDX-License-Identifier: BSD-2-Clause */
/* copy.h: copies and fills, for calls and for the nodes of graphs. */
#ifndef CULVERT_SIM_COPY_H
#define CULVERT_SIM_COPY_H

#include "sim/memory.h"

/* Checks the addresses, and fills in what depends on them. 0, or what to answer. [lock] */
int culvert__sim_copy_check(struct sim_copy_work *c, enum sim_side dst_side, enum sim_side src_side,
                            struct sim_access *dst, struct sim_access *src);
/* Submits a copy of some bytes. [lock] [waits] */
int culvert__sim_copy(struct CUstream_st *s, struct sim_copy_work *c, enum sim_side dst_side,
                      enum sim_side src_side, enum culvert__sim_function call);
/* The same for a handle; nothing to do for a copy of no bytes. Takes the lock. */
int culvert__sim_copy_rows(culvert__CUstream handle, struct sim_copy_work *c,
                           enum sim_side dst_side, enum sim_side src_side,
                           enum culvert__sim_function call);
/* kinds: of destination and source. 0, or what to answer. */
int culvert__sim_copy_of_3d(const culvert__CUDA_MEMCPY3D *p, struct sim_copy_work *c,
                            enum sim_side kinds[2]);

/* Checks a fill. 0, or what to answer. [lock] */
int culvert__sim_fill_check(const struct sim_fill_work *f);

#endif
