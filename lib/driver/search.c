/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the library of a driver is.
 *
 * Invariants: libcuda.so.1 and paths are for the dynamic linker to find; of the simulator also the
 * folders beside this library and beside the program are searched, so that a build folder and an
 * unpacked tree work without any setting. A file that is there but does not load ends the search with
 * its own error: silently taking another one would hide it.
 */
#define _GNU_SOURCE
#include "driver/library.h"

#include "future/future_internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether the dynamic linker did not find `file` itself (and not, say, a library that it needs). */
static bool was_not_found(const char *file, const char *reason)
{
    size_t length = strlen(file);
    return strncmp(reason, file, length) == 0 &&
           strstr(reason + length, "No such file or directory") != NULL;
}

static const char *reason_of(void)
{
    const char *reason = dlerror();
    return reason != NULL ? reason : "no reason given";
}

culvert__driver *culvert__library_cuda(culvert_error *err)
{
    void *library = culvert__library_open(CULVERT__CUDA_FILE);
    if (library != NULL)
        return culvert__library_start(library, "cuda", CULVERT__CUDA_FILE, err);

    const char *reason = reason_of();
    if (was_not_found(CULVERT__CUDA_FILE, reason))
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL,
                           "no CUDA driver here: %s was not found; install the NVIDIA driver (in a "
                           "container: pass the GPUs in, as with --gpus all), or use the "
                           "simulator: CULVERT_DRIVER=sim",
                           CULVERT__CUDA_FILE);
    else
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL,
                           "the CUDA driver does not load: %s", reason);
    return NULL;
}

culvert__driver *culvert__library_at(const char *path, culvert_error *err)
{
    void *library = culvert__library_open(path);
    if (library != NULL)
        return culvert__library_start(library, path, path, err);
    culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL, "the driver does not load: %s",
                       reason_of());
    return NULL;
}

/* The folder of the file that this code was loaded from: of libculvert.so, or, where it was linked
   statically, of the program (then as it was called, perhaps without a folder). */
static bool own_folder(char *out, size_t size)
{
    static const char anchor = 0;
    Dl_info info;
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
        return false;
    const char *last = culvert__last_part(info.dli_fname);
    size_t length = (size_t)(last - info.dli_fname);
    if (length == 0 || length >= size)
        return false;
    memcpy(out, info.dli_fname, length);
    out[length - 1 > 0 ? length - 1 : 1] = '\0';
    return true;
}

static bool program_folder(char *out, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    if (length <= 0)
        return false;
    out[length] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* The library in folder/below, or NULL where there is none. *broken: there is one, and *err says why it
   does not load. */
static void *open_in(const char *folder, const char *below, bool *broken, culvert_error *err)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s" CULVERT__SIM_FILE, folder, below);
    if (length < 0 || (size_t)length >= sizeof path || access(path, F_OK) != 0)
        return NULL;
    void *library = culvert__library_open(path);
    if (library == NULL) {
        *broken = true;
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL,
                           "the simulator does not load: %s", reason_of());
    }
    return library;
}

/* On the linker's own path: loaded already, LD_LIBRARY_PATH, RUNPATH, the system's folders. */
static void *open_by_name(bool *broken, culvert_error *err)
{
    void *library = culvert__library_open(CULVERT__SIM_FILE);
    if (library != NULL)
        return library;
    const char *reason = reason_of();
    if (!was_not_found(CULVERT__SIM_FILE, reason)) {
        *broken = true;
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL,
                           "the simulator does not load: %s", reason);
    }
    return NULL;
}

culvert__driver *culvert__library_simulator(culvert_error *err)
{
    char own[PATH_MAX] = "?", program[PATH_MAX] = "?";
    bool broken = false;
    void *library = open_by_name(&broken, err);
    if (library == NULL && !broken && own_folder(own, sizeof own))
        library = open_in(own, "", &broken, err);
    if (library == NULL && !broken && program_folder(program, sizeof program)) {
        library = open_in(program, "", &broken, err);
        if (library == NULL && !broken)
            library = open_in(program, "../lib/", &broken, err);
    }
    if (library != NULL)
        return culvert__library_start(library, "sim", CULVERT__SIM_FILE, err);
    if (!broken)
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlopen", NULL,
                           "no simulator: %s is not on the library path, nor beside libculvert, "
                           "nor in %.60s or its ../lib; install it, or give its path",
                           CULVERT__SIM_FILE, program);
    return NULL;
}
