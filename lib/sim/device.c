/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c: the devices: how many, and what they say of themselves. They resemble an H200.
 *
 * Invariants: `visible` are the devices that CUDA_VISIBLE_DEVICES leaves, by ordinal; it is read by
 * the first cuInit that succeeds.
 */
#include "sim/engine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void uuid_of(int device, unsigned char bytes[16])
{
    static const unsigned char base[16] = {0xc0, 0x1e, 0x47, 0x00, 0x51, 0x4d, 0x40, 0x00,
                                           0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    memcpy(bytes, base, sizeof base);
    bytes[15] = (unsigned char)device;
}

/* "GPU-" and the beginning of a device's UUID. -1: none, or several. */
static int device_by_uuid(const char *text, size_t length)
{
    int found = -1;
    for (int d = 0; d < culvert__sim.ndevices; d++) {
        unsigned char u[16];
        char name[48];
        uuid_of(d, u);
        snprintf(name, sizeof name,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                 u[14], u[15]);
        if (length > strlen(name) || strncmp(name, text, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = d;
    }
    return found;
}

/* One entry of CUDA_VISIBLE_DEVICES. -1: it ends the list. */
static int device_by_name(const char *text, size_t length)
{
    if (length >= 4 && strncmp(text, "GPU-", 4) == 0)
        return device_by_uuid(text, length);
    /* A slice of the first device: what it is called does not matter to those who count devices. */
    if (length >= 4 && strncmp(text, "MIG-", 4) == 0)
        return culvert__sim.ndevices > 0 ? 0 : -1;
    char *end;
    if (length == 0 || !isdigit((unsigned char)text[0]))
        return -1;
    long d = strtol(text, &end, 10);
    return end == text + length && d < culvert__sim.ndevices ? (int)d : -1;
}

void culvert__sim_find_devices(void)
{
    struct sim *sim = &culvert__sim;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    sim->nvisible = 0;
    if (!list) {
        for (int d = 0; d < sim->ndevices; d++)
            sim->visible[sim->nvisible++] = d;
        return;
    }
    while (sim->nvisible < SIM_MAX_DEVICES) {
        size_t length = strcspn(list, ",");
        int d = device_by_name(list, length);
        for (int i = 0; i < sim->nvisible; i++) {
            if (sim->visible[i] == d)
                d = -1;
        }
        if (d < 0)
            return;
        sim->visible[sim->nvisible++] = d;
        if (list[length] == 0)
            return;
        list += length + 1;
    }
}

static bool exists(int device)
{
    return device >= 0 && device < culvert__sim.nvisible;
}

int cuDriverGetVersion(int *version)
{
    CULVERT__SIM_ENTER(cuDriverGetVersion);
    if (!version)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return 0;
}

int cuDeviceGet(culvert__CUdevice *device, int ordinal)
{
    CULVERT__SIM_ENTER(cuDeviceGet);
    if (!device)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(ordinal))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    CULVERT__SIM_ENTER(cuDeviceGetCount);
    if (!count)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    *count = culvert__sim.nvisible;
    return 0;
}

int cuDeviceGetName(char *name, int length, culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDeviceGetName);
    if (!name || length <= 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Culvert simulated device");
    return 0;
}

int cuDeviceGetUuid_v2(culvert__CUuuid *uuid, culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDeviceGetUuid);
    unsigned char bytes[16];
    if (!uuid)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    uuid_of(culvert__sim.visible[device], bytes);
    memcpy(uuid->bytes, bytes, sizeof bytes);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDeviceTotalMem);
    if (!bytes)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    culvert__sim_lock();
    *bytes = culvert__sim.memory_bytes;
    culvert__sim_unlock();
    return 0;
}

int cuDeviceGetPCIBusId(char *id, int length, culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDeviceGetPCIBusId);
    char text[16];
    if (!id)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    int n = snprintf(text, sizeof text, "0000:%02X:00.0", 1 + culvert__sim.visible[device]);
    if (length <= n)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    memcpy(id, text, (size_t)n + 1);
    return 0;
}

int cuDeviceCanAccessPeer(int *can, culvert__CUdevice device, culvert__CUdevice peer)
{
    CULVERT__SIM_ENTER(cuDeviceCanAccessPeer);
    if (!can)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device) || !exists(peer))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    culvert__sim_lock();
    *can = device != peer && !culvert__sim.peerless;
    culvert__sim_unlock();
    return 0;
}

/* Every attribute that is not here is 0. */
#define DEVICE(name) CULVERT__CU_DEVICE_ATTRIBUTE_##name
static const struct attribute {
    int id, value;
} attributes[] = {
    {DEVICE(MAX_THREADS_PER_BLOCK), 1024},
    {DEVICE(MAX_BLOCK_DIM_X), 1024},
    {DEVICE(MAX_BLOCK_DIM_Y), 1024},
    {DEVICE(MAX_BLOCK_DIM_Z), 64},
    {DEVICE(MAX_GRID_DIM_X), 2147483647},
    {DEVICE(MAX_GRID_DIM_Y), 65535},
    {DEVICE(MAX_GRID_DIM_Z), 65535},
    {DEVICE(MAX_SHARED_MEMORY_PER_BLOCK), 49152},
    {DEVICE(TOTAL_CONSTANT_MEMORY), 65536},
    {DEVICE(WARP_SIZE), 32},
    {DEVICE(MAX_PITCH), 2147483647},
    {DEVICE(MAX_REGISTERS_PER_BLOCK), 65536},
    {DEVICE(CLOCK_RATE), 1980000},
    {DEVICE(TEXTURE_ALIGNMENT), 512},
    {DEVICE(GPU_OVERLAP), 1},
    {DEVICE(MULTIPROCESSOR_COUNT), 132},
    {DEVICE(CAN_MAP_HOST_MEMORY), 1},
    {DEVICE(CONCURRENT_KERNELS), 1},
    {DEVICE(ECC_ENABLED), 1},
    {DEVICE(MEMORY_CLOCK_RATE), 3201000},
    {DEVICE(GLOBAL_MEMORY_BUS_WIDTH), 6144},
    {DEVICE(L2_CACHE_SIZE), 62914560},
    {DEVICE(MAX_THREADS_PER_MULTIPROCESSOR), 2048},
    {DEVICE(ASYNC_ENGINE_COUNT), 3},
    {DEVICE(UNIFIED_ADDRESSING), 1},
    {DEVICE(COMPUTE_CAPABILITY_MAJOR), 9},
    {DEVICE(COMPUTE_CAPABILITY_MINOR), 0},
    {DEVICE(STREAM_PRIORITIES_SUPPORTED), 1},
    {DEVICE(GLOBAL_L1_CACHE_SUPPORTED), 1},
    {DEVICE(LOCAL_L1_CACHE_SUPPORTED), 1},
    {DEVICE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), 233472},
    {DEVICE(MAX_REGISTERS_PER_MULTIPROCESSOR), 65536},
    {DEVICE(COMPUTE_PREEMPTION_SUPPORTED), 1},
    {DEVICE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1},
    {DEVICE(COOPERATIVE_LAUNCH), 1},
    {DEVICE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 232448},
    {DEVICE(HOST_REGISTER_SUPPORTED), 1},
    {DEVICE(MAX_BLOCKS_PER_MULTIPROCESSOR), 32},
    {DEVICE(RESERVED_SHARED_MEMORY_PER_BLOCK), 1024},
    {DEVICE(READ_ONLY_HOST_REGISTER_SUPPORTED), 1},
    {DEVICE(MEMORY_POOLS_SUPPORTED), 1},
    {DEVICE(CLUSTER_LAUNCH), 1},
    {DEVICE(CAN_USE_64_BIT_STREAM_MEM_OPS), 1},
    {DEVICE(CAN_USE_STREAM_WAIT_VALUE_NOR), 1},
    {DEVICE(UNIFIED_FUNCTION_POINTERS), 1},
};

int cuDeviceGetAttribute(int *value, culvert__CUdevice_attribute attribute,
                         culvert__CUdevice device)
{
    CULVERT__SIM_ENTER(cuDeviceGetAttribute);
    if (!value || attribute < DEVICE(MAX_THREADS_PER_BLOCK) ||
        attribute > DEVICE(ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (!exists(device))
        return CULVERT__CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    if (attribute == DEVICE(PCI_BUS_ID))
        *value = 1 + culvert__sim.visible[device];
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        if (attributes[i].id == attribute)
            *value = attributes[i].value;
    }
    return 0;
}
