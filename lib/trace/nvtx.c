/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NVTX is a header: each call goes through a pointer that is NULL unless a profiler has asked to be told
 * (NVTX_INJECTION64_PATH), so that without one it costs a comparison.
 *
 * Invariant: no answer of it is looked at. A profiler may give any number for a range, also the same one for
 * all.
 */
#include "trace/nvtx.h"

#include <stddef.h>

#ifdef CULVERT__NVTX

#include <nvtx3/nvToolsExt.h>

bool culvert__nvtx_built(void)
{
    return true;
}

void *culvert__nvtx_open(void)
{
    return nvtxDomainCreateA("culvert");
}

void culvert__nvtx_close(void *domain)
{
    nvtxDomainDestroy(domain);
}

uint64_t culvert__nvtx_begin(void *domain, const char *name)
{
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name};
    return nvtxDomainRangeStartEx(domain, &attributes);
}

void culvert__nvtx_end(void *domain, uint64_t range)
{
    nvtxDomainRangeEnd(domain, range);
}

#else

bool culvert__nvtx_built(void)
{
    return false;
}

void *culvert__nvtx_open(void)
{
    return NULL;
}

void culvert__nvtx_close(void *domain)
{
    (void)domain;
}

uint64_t culvert__nvtx_begin(void *domain, const char *name)
{
    (void)domain;
    (void)name;
    return 0;
}

void culvert__nvtx_end(void *domain, uint64_t range)
{
    (void)domain;
    (void)range;
}

#endif
