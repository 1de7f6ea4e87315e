/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a profiler is to NVTX: a library that NVTX_INJECTION64_PATH names. It writes what it is told on
 * stderr, and numbers ranges from 1, or, where PROFILER_SAME is set, answers the same to all
 * (triton-inference-server#2799).
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

static nvtxDomainHandle_t create(const char *name)
{
    fprintf(stderr, "nvtx domain %s\n", name);
    return NULL;
}

static void destroy(nvtxDomainHandle_t domain)
{
    (void)domain;
    fprintf(stderr, "nvtx destroy\n");
}

static nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    static unsigned long long ids;
    unsigned long long id = getenv("PROFILER_SAME") != NULL ? ~0ull : ++ids;
    (void)domain;
    fprintf(stderr, "nvtx start %llu %s\n", id, attributes->message.ascii);
    return id;
}

static void end(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
    (void)domain;
    fprintf(stderr, "nvtx end %llu\n", (unsigned long long)id);
}

#define SET(slot, function)            \
    do {                               \
        union {                        \
            __typeof__(&(function)) f; \
            NvtxFunctionPointer p;     \
        } u_ = {.f = (function)};      \
        *table[slot] = u_.p;           \
    } while (0)

int __attribute__((visibility("default"))) InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned n;
    if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n) ||
        n <= NVTX_CBID_CORE2_DomainDestroy)
        return 0;
    SET(NVTX_CBID_CORE2_DomainCreateA, create);
    SET(NVTX_CBID_CORE2_DomainDestroy, destroy);
    SET(NVTX_CBID_CORE2_DomainRangeStartEx, start);
    SET(NVTX_CBID_CORE2_DomainRangeEnd, end);
    return 1;
}
