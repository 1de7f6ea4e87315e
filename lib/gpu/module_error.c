/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is told of an image that the driver did not take: what the image has code for, what the device
 * and the driver are, and what the driver's compiler had to say. A message has room for the first line of
 * that; all of it goes to the loop's log.
 */
#include "gpu/gpu_internal.h"

#include <string.h>

enum { LOG_LINES = 40 };

bool culvert__module_unfit(int result)
{
    switch (result) {
    case CULVERT__CUDA_ERROR_INVALID_IMAGE:
    case CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CULVERT__CUDA_ERROR_INVALID_PTX:
    case CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CULVERT__CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CULVERT__CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CULVERT__CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC:
    case CULVERT__CUDA_ERROR_INVALID_SOURCE:
    case CULVERT__CUDA_ERROR_NOT_SUPPORTED: return true;
    default: return false;
    }
}

/* What it means; the driver's own words for these are a few. */
static const char *meaning(int result)
{
    switch (result) {
    case CULVERT__CUDA_ERROR_INVALID_IMAGE: return "damaged, or no image";
    case CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU: return "no code for this device";
    case CULVERT__CUDA_ERROR_INVALID_PTX: return "its PTX does not compile";
    case CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return "its PTX is newer than the driver";
    case CULVERT__CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        return "its PTX needs the driver's libnvidia-ptxjitcompiler, which is not there";
    case CULVERT__CUDA_ERROR_JIT_COMPILATION_DISABLED:
        return "its PTX may not be compiled (CUDA_DISABLE_PTX_JIT)";
    default: return "not usable here";
    }
}

/* The first line of a log that has something in it; its length. */
static const char *first_line(const char *log, int *length)
{
    log += strspn(log, " \t\r\n");
    *length = (int)strcspn(log, "\r\n");
    return log;
}

void culvert__module_say_unfit(culvert_gpu *gpu, const culvert_image *image, int result,
                               const char *call, const char *log, const char *op, const char *where,
                               culvert_error *err)
{
    const culvert__driver *drv = gpu->drv;
    const culvert_gpu_description *d = &gpu->device->description;
    const char *toolkit = culvert__toolkit_version();
    culvert__version_text version;
    char contents[80] = "";
    int length;
    const char *line = first_line(log, &length);
    if (!drv->simulated)
        culvert__image_contents(image, contents, sizeof contents);
    culvert__error_set(
        err, CULVERT_ENOTSUP, result, op, where,
        "image %s: %s: %s (%d), %s; compute capability %d.%d, driver %s (%s), toolkit %s%s%s%s%.*s",
        culvert__image_name(image), call, culvert__driver_error_name(drv, result), result,
        meaning(result), d->compute_major, d->compute_minor,
        culvert__driver_version_text(drv->version, &version), drv->file,
        toolkit != NULL ? toolkit : "none", contents[0] != '\0' ? "; image: " : "", contents,
        length > 0 ? ": " : "", length, line);
}

void culvert__module_log(culvert_gpu *gpu, const culvert_image *image, int level, const char *log)
{
    int length;
    for (int i = 0; i < LOG_LINES; i++) {
        log = first_line(log, &length);
        if (length == 0)
            return;
        culvert__loop_log(gpu->loop, level, "image %s: %.*s", culvert__image_name(image), length,
                          log);
        log += length;
    }
}
