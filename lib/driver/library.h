/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the driver layer share: making a table from a library.
 */
#ifndef CULVERT_DRIVER_LIBRARY_H
#define CULVERT_DRIVER_LIBRARY_H

#include "driver/table.h"

/* The driver's file name, and the simulator's. Never "libcuda.so": where a toolkit is installed, that
   is the stub that programs are linked against. */
#define CULVERT__CUDA_FILE "libcuda.so.1"
#define CULVERT__SIM_FILE  "libculvert-sim.so.0"

/* dlopen with the flags that all drivers are opened with. NULL: dlerror() has the reason. */
void *culvert__library_open(const char *file);

/*
 * Makes a table of an opened library: checks its version, takes every symbol, calls cuInit, counts
 * the devices. `name` and `file` are copied; `file` is only used where the library has no path.
 * The library's handle is consumed: it is the table's, or given back. NULL: *err is filled.
 */
culvert__driver *culvert__library_start(void *library, const char *name, const char *file,
                                        culvert_error *err);

/* Gives back a table that nobody has seen. */
void culvert__library_discard(culvert__driver *);

/* Opens and starts the CUDA driver, and the library at a path. */
culvert__driver *culvert__library_cuda(culvert_error *err);
culvert__driver *culvert__library_at(const char *path, culvert_error *err);

/* Finds and starts the simulator. */
culvert__driver *culvert__library_simulator(culvert_error *err);

/* Fills *err from a failure of the driver's start: `call` answered `result`. version 0: not known.
   `path` is the library's file. */
void culvert__start_error(int result, const char *call, int version, const char *path,
                          culvert_error *err);

/* Fills *err: the driver started but has no device. */
void culvert__no_device_error(int version, const char *path, culvert_error *err);

/* The last part of a path, within it. */
const char *culvert__last_part(const char *path);

#endif
