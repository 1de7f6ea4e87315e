/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why a driver did not start, in words that say what would mend it.
 *
 * Invariants: each way to fail has a text of its own; each names the library, and the versions of driver
 * and toolkit where they are known. Texts fit into CULVERT_ERROR_MESSAGE_SIZE with file names of
 * usual length, the most telling part first.
 */
#define _GNU_SOURCE
#include "driver/library.h"

#include "future/future_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct remedy {
    int result;
    int code;
    const char *text;
} remedy;

static const remedy remedies[] = {
    {CULVERT__CUDA_ERROR_OUT_OF_MEMORY, CULVERT_ENOMEM, "no memory to start the driver"},
    {CULVERT__CUDA_ERROR_NOT_INITIALIZED, CULVERT_ENODRIVER,
     "the driver cannot start here: a child of fork() in a process that used CUDA, or the nvidia "
     "kernel module is not loaded"},
    {CULVERT__CUDA_ERROR_DEINITIALIZED, CULVERT_ESHUTDOWN, "the process is exiting"},
    {CULVERT__CUDA_ERROR_NO_DEVICE, CULVERT_ENODEVICE,
     "no GPU to be seen: try nvidia-smi; in a container, pass the GPUs in"},
    {CULVERT__CUDA_ERROR_SYSTEM_NOT_READY, CULVERT_ENODRIVER,
     "the system is not ready: start nvidia-fabricmanager (of the driver's version) and wait for "
     "it"},
    {CULVERT__CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CULVERT_ENODRIVER,
     "libcuda and the kernel module differ: reboot after an update; in a container, drop its own "
     "libcuda"},
    {CULVERT__CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, CULVERT_ENODRIVER,
     "cuda-compat does not support this GPU: remove it from the library path or update the "
     "driver"},
    {CULVERT__CUDA_ERROR_UNKNOWN, CULVERT_ENODRIVER,
     "the driver gives no reason: load nvidia_uvm (nvidia-modprobe -u), look for Xid in dmesg, "
     "reboot"},
};

/* "driver 13.0 (libcuda.so.1), toolkit 13.0", as much of it as is known. */
typedef struct versions_text {
    char text[112];
} versions_text;

static const char *describe(int version, const char *path, versions_text *out)
{
    culvert__version_text number = {"of unknown version"};
    if (version > 0)
        culvert__driver_version_text(version, &number);
    const char *toolkit = culvert__toolkit_version();
    snprintf(out->text, sizeof out->text, "driver %s (%.48s)%s%s", number.text,
             culvert__last_part(path), toolkit != NULL ? ", toolkit " : "",
             toolkit != NULL ? toolkit : "");
    return out->text;
}

/* The variable is only quoted: what it means is the driver's business (indices, UUIDs, MIG). */
static const char *visible_devices(char *out, size_t size)
{
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    if (value == NULL)
        return "";
    snprintf(out, size, "; CUDA_VISIBLE_DEVICES is \"%.40s\"", value);
    return out;
}

const char *culvert__last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const remedy *find_remedy(int result)
{
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (remedies[i].result == result)
            return &remedies[i];
    return NULL;
}

void culvert__start_error(int result, const char *call, int version, const char *path,
                          culvert_error *err)
{
    if (result == CULVERT__CUDA_ERROR_STUB_LIBRARY) {
        culvert__error_set(err, CULVERT_ENODRIVER, result, call, NULL,
                           "%s is the CUDA Toolkit's stub, made to link against, not a driver "
                           "(%s (%d)): take it off the library path and install the NVIDIA driver",
                           path, culvert__driver_error_name(NULL, result), result);
        return;
    }
    const remedy *r = find_remedy(result);
    versions_text versions;
    char visible[80];
    culvert__error_set(err, r != NULL ? r->code : CULVERT_ENODRIVER, result, call, NULL,
                       "%s: %s (%d): %s%s; %s", call, culvert__driver_error_name(NULL, result),
                       result, r != NULL ? r->text : culvert__driver_error_text(NULL, result),
                       result == CULVERT__CUDA_ERROR_NO_DEVICE
                           ? visible_devices(visible, sizeof visible)
                           : "",
                       describe(version, path, &versions));
}

void culvert__no_device_error(int version, const char *path, culvert_error *err)
{
    versions_text versions;
    char visible[80];
    culvert__error_set(err, CULVERT_ENODEVICE, CULVERT__CUDA_SUCCESS, "cuDeviceGetCount", NULL,
                       "the driver started but has no device (count 0)%s; %s",
                       visible_devices(visible, sizeof visible),
                       describe(version, path, &versions));
}
