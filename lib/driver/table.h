/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The driver as a table of functions, and what its results mean.
 *
 * Nothing here needs a loop; everything may be called by any thread, but not inside a host function
 * of the driver. Nothing here looks at fork(): a child finds the tables of its parent, and the gpu
 * layer, which knows whether the process was forked, must not use them.
 */
#ifndef CULVERT_DRIVER_TABLE_H
#define CULVERT_DRIVER_TABLE_H

#include "culvert/error.h"
#include "driver/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The oldest driver that is accepted, as cuDriverGetVersion gives it. */
#define CULVERT__DRIVER_OLDEST 12000

/* A driver that works: cuInit succeeded and there is a device. Never changed, never freed. */
typedef struct culvert__driver {
    const char *name; /* "cuda", "sim", or the path that was asked for */
    const char *path; /* the file that was loaded */
    const char *file; /* its last part, for messages: "libcuda.so.1" */
    int version;      /* of cuDriverGetVersion: 13000 for 13.0 */
    int simulated;    /* 1: it is a simulator (exports culvert_sim_version), else 0 */
    void *library;    /* of dlopen, for dlsym of what else it may export; never closed */
#define X(name, abi, ask, need, symbol) culvert__PFN_##name name; /* NULL: optional and absent */
#include "driver/driver.def"
} culvert__driver;

/*
 * The driver of a name, opened once a process.
 *
 *   "cuda"  libcuda.so.1
 *   "sim"   libculvert-sim.so.0: loaded already or on the search path, beside this library, beside
 *           the program, in ../lib of the program
 *   "auto"  "cuda" if it works, else "sim"; one line on stderr says which and why, once
 *   a path  with a slash: that library
 *   NULL or ""  what $CULVERT_DRIVER says; "cuda" where that is unset or empty
 *
 * CUDA_VISIBLE_DEVICES is the driver's own: it is never interpreted here, only quoted in messages.
 *
 * Returns the table, the same one for every call of the same name and for two names of the same
 * file; or NULL with *err filled: CULVERT_EINVAL for another name, CULVERT_ENODRIVER (no library,
 * the toolkit's stub, too old, a required function missing, cuInit failed), CULVERT_ENODEVICE,
 * CULVERT_ENOMEM. After a failure nothing is held and the next call tries anew. May block: start-up.
 */
const culvert__driver *culvert__driver_open(const char *name, culvert_error *err);

/* 1 once culvert__driver_open succeeded in this process or in one it was forked from, else 0. */
int culvert__driver_was_opened(void);

/* What a result means. */
typedef enum culvert__driver_class {
    CULVERT__DRIVER_OK,        /* CUDA_SUCCESS */
    CULVERT__DRIVER_NOT_READY, /* CUDA_ERROR_NOT_READY: a query's "not yet", no error */
    CULVERT__DRIVER_OWN,       /* this operation failed; the device is well */
    CULVERT__DRIVER_LOST,      /* the device is lost to this process */
    CULVERT__DRIVER_TRY_AGAIN, /* out of memory: with less, or later */
    CULVERT__DRIVER_SHUTDOWN,  /* the driver is being taken down: the process exits */
    CULVERT__DRIVER_UNLISTED   /* any other: as OWN from an ordinary call, as LOST from a query */
} culvert__driver_class;

/* The class of a result by the list of errors.def; UNLISTED where that does not decide. */
culvert__driver_class culvert__driver_classify(int result);

/* The class of a result of cuEventQuery, cuStreamQuery or the synchronizing calls: these report the
   failures of earlier work, so a code that is in no list means that the device is lost. Never UNLISTED. */
culvert__driver_class culvert__driver_classify_query(int result);

/* "CUDA_ERROR_INVALID_VALUE" and "invalid argument"; for a code that this library does not know,
   what the driver (NULL: none) says, else "CUDA_ERROR_?" and "unknown to this library". Static. */
const char *culvert__driver_error_name(const culvert__driver *, int result);
const char *culvert__driver_error_text(const culvert__driver *, int result);

/*
 * Fills *err (NULL: nothing) from the result of a driver call.
 *
 * driver: named in the message; NULL where none is open.
 * result: becomes `native`. CUDA_SUCCESS makes *err CULVERT_OK.
 * call: "cuLaunchKernel", a static string, becomes `op`; a query or a synchronizing call is classified
 *       as one.
 *
 * `code` by class: LOST CULVERT_EDEVICELOST, TRY_AGAIN CULVERT_ENOMEM, SHUTDOWN CULVERT_ESHUTDOWN, the
 * others CULVERT_EDRIVER, but CULVERT_ENOTSUP for CUDA_ERROR_NOT_SUPPORTED and CULVERT_ENODEVICE for
 * CUDA_ERROR_NO_DEVICE and _INVALID_DEVICE. `where` is NULL. Calls the driver only for the name of a
 * code that this library does not know. Returns `code`.
 */
int culvert__driver_error(const culvert__driver *driver, int result, const char *call,
                          culvert_error *err);

/* A version number of the driver as text: 12040 is "12.4". Returns out. */
typedef struct culvert__version_text {
    char text[24];
} culvert__version_text;
const char *culvert__driver_version_text(int version, culvert__version_text *out);

/* The CUDA Toolkit that this library was built beside, "13.0"; NULL where there was none. */
const char *culvert__toolkit_version(void);

#ifdef __cplusplus
}
#endif

#endif
