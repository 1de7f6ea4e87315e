/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices that reach each other's memory, and copies between them. */
#include "conformance.h"

#include <string.h>

enum { BYTES = (1 << 20) + 3 };

static struct CUctx_st *other; /* of device 1, if there is one */

/* False, and says so: there is one device. */
static bool two_devices(void)
{
    int n = 0;
    NEED(d->cuDeviceGetCount(&n));
    if (n < 2) {
        conf_note("skipped: one device");
        return false;
    }
    NEED(d->cuDevicePrimaryCtxRetain(&other, 1));
    return true;
}

static bool reachable(void)
{
    int can = 0;
    NEED(d->cuDeviceCanAccessPeer(&can, 0, 1));
    return can != 0;
}

static void with_itself(void)
{
    int can = 9;
    conf_result("cuDeviceCanAccessPeer", d->cuDeviceCanAccessPeer(&can, 0, 0), 0);
    conf_range("it can", can, 0, 0);
    conf_result("its own context", d->cuCtxEnablePeerAccess(conf_context, 0),
                CULVERT__CUDA_ERROR_INVALID_CONTEXT);
    conf_result("flags", d->cuCtxEnablePeerAccess(conf_context, 1),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    NEED(d->cuCtxSetCurrent(NULL));
    conf_result("without a context", d->cuCtxEnablePeerAccess(conf_context, 0),
                CULVERT__CUDA_ERROR_INVALID_CONTEXT);
}

static void enabled_twice(void)
{
    if (!two_devices())
        return;
    if (!reachable()) {
        conf_result("out of reach", d->cuCtxEnablePeerAccess(other, 0),
                    CULVERT__CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        return;
    }
    conf_result("enable", d->cuCtxEnablePeerAccess(other, 0), 0);
    conf_result("again", d->cuCtxEnablePeerAccess(other, 0),
                CULVERT__CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    NEED(d->cuCtxSetCurrent(other));
    conf_result("the other way", d->cuCtxEnablePeerAccess(conf_context, 0), 0);
}

/* There and back, from memory of this context to that of another, or to its own. */
static void there_and_back(struct CUctx_st *peer)
{
    struct CUstream_st *s = conf_stream();
    unsigned char *from = (unsigned char *)conf_pinned(BYTES);
    unsigned char *back = (unsigned char *)conf_pinned(BYTES);
    culvert__CUdeviceptr here = conf_device(BYTES), again = conf_device(BYTES);
    NEED(d->cuCtxPushCurrent(peer));
    culvert__CUdeviceptr there = conf_device(BYTES);
    NEED(d->cuCtxPopCurrent(NULL));
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i % 251 + 1);
    NEED(d->cuMemcpyHtoDAsync(here, from, BYTES, s));
    conf_result("there", d->cuMemcpyPeerAsync(there, peer, here, conf_context, BYTES, s), 0);
    conf_result("back", d->cuMemcpyPeerAsync(again, conf_context, there, peer, BYTES, s), 0);
    NEED(d->cuMemcpyDtoHAsync(back, again, BYTES, s));
    NEED(d->cuStreamSynchronize(s));
    conf_true("the same bytes", memcmp(from, back, BYTES) == 0);
}

static void within_one(void)
{
    there_and_back(conf_context);
}

static void without_access(void)
{
    if (two_devices())
        there_and_back(other);
}

static void with_access(void)
{
    if (!two_devices())
        return;
    if (!reachable()) {
        conf_note("skipped: out of reach");
        return;
    }
    NEED(d->cuCtxEnablePeerAccess(other, 0));
    there_and_back(other);
}

const struct row conf_peer_rows[] = {
    {"a device is no peer of itself", with_itself, 0},
    {"peer access is enabled once (case 88)", enabled_twice, CONF_TWO_DEVICES},
    {"a peer copy within a device", within_one, 0},
    {"a peer copy without access (case 88)", without_access, CONF_TWO_DEVICES},
    {"a peer copy with access (case 88)", with_access, CONF_TWO_DEVICES},
    {0},
};
