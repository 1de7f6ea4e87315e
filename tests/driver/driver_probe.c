/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens drivers in a process of its own, so that tests can set LD_LIBRARY_PATH and the like for it.
 * One argument after the other:
 *
 *   via:FILE   the rest is done by the library FILE, which has this code and Culvert's in it
 *   load:FILE  loads that library first
 *   many:NAME  opens that driver in eight threads at once
 *   -          opens the driver of NULL
 *   NAME       opens that driver
 *
 * One line on stdout for each that is opened:
 *
 *   ok name=... version=... simulated=... opened=... path=...
 *   error code=... native=... opened=... message=...
 */
#define _GNU_SOURCE
#include "driver/table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef int probe_fn(int count, char **names);

__attribute__((visibility("default"))) probe_fn probe;

static void *load(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "driver_probe: %s\n", dlerror());
    return library;
}

static int go_via(const char *file, int count, char **names)
{
    void *library = load(file);
    void *address = library != NULL ? dlsym(library, "probe") : NULL;
    if (address == NULL)
        return 3;
    probe_fn *their_probe;
    memcpy(&their_probe, &address, sizeof address);
    return their_probe(count, names);
}

static void open_one(const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert__driver *driver = culvert__driver_open(name, &err);
    if (driver != NULL)
        printf("ok name=%s version=%d simulated=%d opened=%d path=%s\n", driver->name,
               driver->version, driver->simulated, culvert__driver_was_opened(), driver->path);
    else
        printf("error code=%d native=%d opened=%d message=%s\n", err.code, err.native,
               culvert__driver_was_opened(), err.message);
    fflush(stdout);
}

static void *open_in_thread(void *arg)
{
    open_one(arg);
    return NULL;
}

static int open_many(char *name)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, open_in_thread, name) != 0)
            return 3;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int probe(int count, char **names)
{
    for (int i = 0; i < count; i++) {
        if (strncmp(names[i], "via:", 4) == 0)
            return go_via(names[i] + 4, count - i - 1, names + i + 1);
        if (strncmp(names[i], "load:", 5) == 0) {
            if (load(names[i] + 5) == NULL)
                return 3;
        } else if (strncmp(names[i], "many:", 5) == 0) {
            if (open_many(names[i] + 5) != 0)
                return 3;
        } else {
            open_one(strcmp(names[i], "-") == 0 ? NULL : names[i]);
        }
    }
    return 0;
}

#ifndef PROBE_LIBRARY
int main(int argc, char **argv)
{
    return probe(argc - 1, argv + 1);
}
#endif
