/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library becomes a table of the driver's functions.
 *
 *     opened --- version, symbols ---> resolved --- cuInit ---> started --- a device ---> usable
 *        |                                |                        |
 *        +------- dlclose: unmapped <-----+                        +--> dlclose: stays mapped
 *
 * Invariants:
 * - A library in which cuInit was called stays mapped until the process ends, whatever cuInit
 *   answered: the driver has threads, atexit and fork handlers in its code by then. The handle is
 *   given back all the same, so that a failed attempt holds nothing.
 * - Every function comes from cuGetProcAddress_v2 in the version that abi.h declares, never by its
 *   plain name, which may be an older ABI. Only cuGetProcAddress_v2 itself and cuDriverGetVersion,
 *   which had one ABI ever, are taken by dlsym.
 * - The legacy-stream flag is explicit: a zero stream is the legacy one, not the thread's own.
 */
#define _GNU_SOURCE
#include "driver/library.h"

#include "future/future_internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of driver.def. */
typedef struct symbol_row {
    const char *name;
    int ask;
    bool required;
    size_t offset; /* of the member in the table */
} symbol_row;

#define NEED_R true
#define NEED_O false
static const symbol_row symbols[] = {
#define X(name, abi, ask, need, symbol) {#name, ask, NEED_##need, offsetof(culvert__driver, name)},
#include "driver/driver.def"
};

/* The names of missing functions, for a message: the first ones, then only counted. */
typedef struct missing_list {
    char names[112];
    size_t used;
    size_t more;
} missing_list;

/* POSIX lets a function's address be kept in a void pointer; C has no cast for it. */
_Static_assert(sizeof(void *) == sizeof(culvert__PFN_cuInit), "dlsym needs it");

static bool take_symbol(void *library, const char *name, void *function_out)
{
    void *address = dlsym(library, name);
    memcpy(function_out, &address, sizeof address);
    return address != NULL;
}

static void missing_add(missing_list *list, const char *name)
{
    size_t length = strlen(name);
    if (list->more > 0 || list->used + length + 2 >= sizeof list->names) {
        list->more++;
        return;
    }
    if (list->used > 0) {
        memcpy(list->names + list->used, ", ", 2);
        list->used += 2;
    }
    memcpy(list->names + list->used, name, length + 1);
    list->used += length;
}

/*
 * Copies the path that the dynamic linker found the library at; leaves `out` empty where it has none.
 * The linker wrote it under its own lock when some thread loaded the library, before our dlopen returned;
 * ThreadSanitizer does not see that lock, so it may not look at these reads.
 */
__attribute__((noinline, no_sanitize("thread"))) static void path_of(void *library, char *out,
                                                                     size_t size)
{
    struct link_map *map = NULL;
    out[0] = '\0';
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return;
    const volatile char *from = map->l_name;
    for (size_t i = 0; i < size; i++) {
        out[i] = from[i];
        if (out[i] == '\0')
            return;
    }
    out[0] = '\0'; /* too long to be a path */
}

static culvert__driver *new_driver(void *library, const char *name, const char *file)
{
    char found[PATH_MAX];
    path_of(library, found, sizeof found);
    if (found[0] != '\0')
        file = found;
    size_t name_size = strlen(name) + 1;
    size_t path_size = strlen(file) + 1;
    culvert__driver *driver = calloc(1, sizeof *driver + name_size + path_size);
    if (driver == NULL)
        return NULL;
    char *strings = (char *)(driver + 1);
    driver->name = memcpy(strings, name, name_size);
    driver->path = memcpy(strings + name_size, file, path_size);
    driver->file = culvert__last_part(driver->path);
    driver->library = library;
    return driver;
}

static int check_version(culvert__driver *driver, culvert__PFN_cuGetProcAddress *get,
                         culvert_error *err)
{
    culvert__PFN_cuDriverGetVersion get_version;
    if (!take_symbol(driver->library, "cuDriverGetVersion", &get_version)) {
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlsym", NULL,
                           "%s is not a CUDA driver: it has no cuDriverGetVersion", driver->path);
        return CULVERT_ENODRIVER;
    }
    int result = get_version(&driver->version);
    if (result != CULVERT__CUDA_SUCCESS) {
        culvert__start_error(result, "cuDriverGetVersion", 0, driver->path, err);
        return CULVERT_ENODRIVER;
    }
    bool has_get = take_symbol(driver->library, "cuGetProcAddress_v2", get);
    if (has_get && driver->version >= CULVERT__DRIVER_OLDEST)
        return CULVERT_OK;

    culvert__version_text has, wants;
    culvert__driver_version_text(driver->version, &has);
    culvert__driver_version_text(CULVERT__DRIVER_OLDEST, &wants);
    const char *toolkit = culvert__toolkit_version();
    if (driver->version >= CULVERT__DRIVER_OLDEST)
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "dlsym", NULL,
                           "driver %s (%s) has no cuGetProcAddress_v2, as every driver from %s on "
                           "should: not a complete CUDA driver",
                           has.text, driver->path, wants.text);
    else
        culvert__error_set(err, CULVERT_ENODRIVER, 0, "cuDriverGetVersion", NULL,
                           "driver %s (%s) is too old: %s or newer is needed (this library was "
                           "built with %s%s); update the NVIDIA driver to release 525 or newer",
                           has.text, driver->file, wants.text,
                           toolkit != NULL ? "toolkit " : "no toolkit",
                           toolkit != NULL ? toolkit : "");
    return CULVERT_ENODRIVER;
}

static int take_symbols(culvert__driver *driver, culvert__PFN_cuGetProcAddress get,
                        culvert_error *err)
{
    missing_list missing = {.used = 0};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        const symbol_row *row = &symbols[i];
        void *address = NULL;
        int found = CULVERT__CU_GET_PROC_ADDRESS_SUCCESS;
        int result =
            get(row->name, &address, row->ask, CULVERT__CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result == CULVERT__CUDA_SUCCESS && found == CULVERT__CU_GET_PROC_ADDRESS_SUCCESS &&
            address != NULL)
            memcpy((char *)driver + row->offset, &address, sizeof address);
        else if (row->required)
            missing_add(&missing, row->name);
    }
    if (missing.used == 0)
        return CULVERT_OK;
    culvert__version_text version;
    char more[40] = "";
    if (missing.more > 0)
        snprintf(more, sizeof more, " and %zu more", missing.more);
    culvert__error_set(err, CULVERT_ENODRIVER, 0, "cuGetProcAddress", NULL,
                       "driver %s (%s) lacks %s%s: a damaged or incomplete installation",
                       culvert__driver_version_text(driver->version, &version), driver->file,
                       missing.names, more);
    return CULVERT_ENODRIVER;
}

/* From here on the library may never be unmapped. RTLD_NODELETE sets that for good; the reference that
   it takes is given back. */
static void keep_mapped(const culvert__driver *driver)
{
    void *again = dlopen(driver->path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (again != NULL)
        dlclose(again);
}

static int start(culvert__driver *driver, culvert_error *err)
{
    keep_mapped(driver);
    int result = driver->cuInit(0);
    if (result != CULVERT__CUDA_SUCCESS) {
        culvert__start_error(result, "cuInit", driver->version, driver->path, err);
        return CULVERT_ENODRIVER;
    }
    int count = 0;
    result = driver->cuDeviceGetCount(&count);
    if (result != CULVERT__CUDA_SUCCESS) {
        culvert__start_error(result, "cuDeviceGetCount", driver->version, driver->path, err);
        return CULVERT_ENODRIVER;
    }
    if (count < 1) {
        culvert__no_device_error(driver->version, driver->path, err);
        return CULVERT_ENODEVICE;
    }
    return CULVERT_OK;
}

void *culvert__library_open(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

culvert__driver *culvert__library_start(void *library, const char *name, const char *file,
                                        culvert_error *err)
{
    culvert__driver *driver = new_driver(library, name, file);
    if (driver == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "malloc", NULL,
                           "no memory for the driver's table");
        dlclose(library);
        return NULL;
    }
    culvert__PFN_cuGetProcAddress get;
    if (check_version(driver, &get, err) != CULVERT_OK ||
        take_symbols(driver, get, err) != CULVERT_OK || start(driver, err) != CULVERT_OK) {
        culvert__library_discard(driver);
        return NULL;
    }
    driver->simulated = dlsym(library, "culvert_sim_version") != NULL;
    return driver;
}

void culvert__library_discard(culvert__driver *driver)
{
    dlclose(driver->library);
    free(driver);
}
