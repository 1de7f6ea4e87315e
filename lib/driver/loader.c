/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drivers that this process has opened, by name.
 *
 * Invariants:
 * - The list of entries only grows, at its head, by compare-and-exchange; an entry and its driver
 *   never change and are never freed once they are in the list. So it is read without a lock.
 * - A key is in the list once. Two keys whose libraries are one share one driver.
 * - No lock is held while a library is loaded or the driver starts. A plug-in's constructor, which
 *   runs under the dynamic linker's lock, may open a driver; had we a lock of our own around
 *   dlopen, the two could wait for each other. Threads that open the same name at once each
 *   prepare a table, which the driver allows; the first to enter its own wins, the others give
 *   theirs back.
 * - Nothing is entered by a failure, so every call after one tries anew.
 *
 * State of a key:  absent --(a table works, entered first)--> open, for good.
 */
#define _GNU_SOURCE
#include "driver/library.h"

#include "future/future_internal.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    const culvert__driver *driver;
    char key[];
} entry;

static _Atomic(entry *) entries;

static const culvert__driver *find_key(const entry *list, const char *key)
{
    for (const entry *e = list; e != NULL; e = e->next)
        if (strcmp(e->key, key) == 0)
            return e->driver;
    return NULL;
}

static const culvert__driver *find_library(const entry *list, const void *library)
{
    for (const entry *e = list; e != NULL; e = e->next)
        if (e->driver->library == library)
            return e->driver;
    return NULL;
}

/*
 * Enters a key for a driver. Returns the key's driver: this one; the one of the same library that was
 * there before; or the one that another thread entered under the key meanwhile. NULL: no memory.
 * *entered: this call made the entry.
 */
static const culvert__driver *enter(const char *key, const culvert__driver *driver, bool *entered)
{
    size_t size = strlen(key) + 1;
    entry *e = malloc(sizeof *e + size);
    *entered = false;
    if (e == NULL)
        return NULL;
    memcpy(e->key, key, size);

    entry *head = atomic_load_explicit(&entries, memory_order_acquire);
    do {
        const culvert__driver *there = find_key(head, key);
        if (there != NULL) {
            free(e);
            return there;
        }
        const culvert__driver *twin = find_library(head, driver->library);
        e->driver = twin != NULL ? twin : driver;
        e->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&entries, &head, e, memory_order_acq_rel,
                                                    memory_order_acquire));
    *entered = true;
    return e->driver;
}

static const culvert__driver *no_memory(culvert_error *err)
{
    culvert__error_set(err, CULVERT_ENOMEM, 0, "malloc", NULL, "no memory to keep the driver");
    return NULL;
}

/* Enters a fresh table, NULL where there is none, and gives it back where it was not needed. */
static const culvert__driver *enter_fresh(const char *key, culvert__driver *fresh,
                                          culvert_error *err)
{
    if (fresh == NULL)
        return NULL;
    bool entered;
    const culvert__driver *driver = enter(key, fresh, &entered);
    if (driver != fresh)
        culvert__library_discard(fresh);
    return driver != NULL ? driver : no_memory(err);
}

/* The key is "cuda", "sim", or that of the library at `path`. */
static const culvert__driver *open_key(const char *key, const char *path, culvert_error *err)
{
    const culvert__driver *there =
        find_key(atomic_load_explicit(&entries, memory_order_acquire), key);
    if (there != NULL)
        return there;
    if (path != NULL)
        return enter_fresh(key, culvert__library_at(path, err), err);
    if (strcmp(key, "cuda") == 0)
        return enter_fresh(key, culvert__library_cuda(err), err);
    return enter_fresh(key, culvert__library_simulator(err), err);
}

/* One line, by the one thread that decided. */
static void report_choice(const culvert__driver *driver, const culvert_error *cuda)
{
    if (cuda != NULL) {
        fprintf(stderr, "culvert: driver auto: the simulator (%s), because: %s\n", driver->path,
                cuda->message);
        return;
    }
    culvert__version_text version;
    int count = 0;
    if (driver->cuDeviceGetCount(&count) != CULVERT__CUDA_SUCCESS)
        count = 0;
    fprintf(stderr, "culvert: driver auto: cuda, because it has %d device%s; driver %s (%s)\n",
            count, count == 1 ? "" : "s", culvert__driver_version_text(driver->version, &version),
            driver->path);
}

static const culvert__driver *open_auto(culvert_error *err)
{
    const culvert__driver *there =
        find_key(atomic_load_explicit(&entries, memory_order_acquire), "auto");
    if (there != NULL)
        return there;

    culvert_error cuda = CULVERT_ERROR_INIT, sim = CULVERT_ERROR_INIT;
    const culvert__driver *driver = open_key("cuda", NULL, &cuda);
    bool have_cuda = driver != NULL;
    if (!have_cuda) {
        /* Short of memory is not the same as no GPU: no simulator in its place. */
        if (cuda.code == CULVERT_ENOMEM) {
            if (err != NULL)
                *err = cuda;
            return NULL;
        }
        driver = open_key("sim", NULL, &sim);
    }
    if (driver == NULL) {
        culvert__error_set(err, sim.code, cuda.native, "dlopen", NULL,
                           "neither the CUDA driver (%.100s) nor the simulator (%.100s)",
                           cuda.message, sim.message);
        return NULL;
    }
    bool entered;
    const culvert__driver *chosen = enter("auto", driver, &entered);
    if (chosen == NULL)
        return no_memory(err);
    if (entered)
        report_choice(chosen, have_cuda ? NULL : &cuda);
    return chosen;
}

static const culvert__driver *open_path(const char *path, culvert_error *err)
{
    /* The key is the file itself, whatever the way to it; it is opened, and named in messages, as the
       caller named it. */
    char real[PATH_MAX];
    return open_key(realpath(path, real) != NULL ? real : path, path, err);
}

const culvert__driver *culvert__driver_open(const char *name, culvert_error *err)
{
    if (name == NULL || name[0] == '\0')
        name = secure_getenv("CULVERT_DRIVER");
    if (name == NULL || name[0] == '\0')
        name = "cuda";
    if (strchr(name, '/') != NULL)
        return open_path(name, err);
    if (strcmp(name, "auto") == 0)
        return open_auto(err);
    if (strcmp(name, "cuda") == 0 || strcmp(name, "sim") == 0)
        return open_key(name, NULL, err);
    culvert__error_set(
        err, CULVERT_EINVAL, 0, NULL, NULL,
        "there is no driver \"%.60s\": use cuda, sim, auto, or the path of a library, "
        "with a slash (in .driver or CULVERT_DRIVER)",
        name);
    return NULL;
}

int culvert__driver_was_opened(void)
{
    return atomic_load_explicit(&entries, memory_order_acquire) != NULL;
}
