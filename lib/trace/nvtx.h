/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges for a profiler that is attached: NVTX 3, whose headers come with the CUDA Toolkit. */
#ifndef CULVERT_TRACE_NVTX_H
#define CULVERT_TRACE_NVTX_H

#include <stdbool.h>
#include <stdint.h>

bool culvert__nvtx_built(void); /* false: the library was built without the headers */
void *culvert__nvtx_open(void); /* the domain "culvert"; may be NULL, which is one too */
void culvert__nvtx_close(void *domain);
/* A range is known by its number, whatever that is: it may end on another thread, and cross others. */
uint64_t culvert__nvtx_begin(void *domain, const char *name);
void culvert__nvtx_end(void *domain, uint64_t range);

#endif
