/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file error.h
 * Errors: one value type, one list of codes.
 *
 * An error is a plain value that can be copied. It says what happened (`code`), what the layer
 * below said (`native`), which call failed (`op`), where in the program that call stands (`where`),
 * and, in a sentence with the figures, what was wrong and what would have been right (`message`).
 * There is no thread-local "last error".
 */
#ifndef CULVERT_ERROR_H
#define CULVERT_ERROR_H

#include "culvert/version.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Success; also the status of a resolved future. Since 0.1.0. */
#define CULVERT_OK 0
/** The status of a future that has not settled. Since 0.1.0. */
#define CULVERT_PENDING 1

/**
 * Every error code: X(name, value, class, text). A program may expand it for tables of its own.
 * Values never change; new codes are added at the end. Since 0.1.0.
 */
#define CULVERT_ERRORS(X)                                                         \
    X(EINVAL, -1, CALLER, "invalid argument")                                     \
    X(EOVERFLOW, -2, CALLER, "a size or an offset is too large for its type")     \
    X(ENOMEM, -3, AGAIN, "out of memory")                                         \
    X(EAGAIN, -4, AGAIN, "a bound is reached; try again later")                   \
    X(ETIMEDOUT, -5, AGAIN, "the time is up")                                     \
    X(ECANCELED, -6, CANCELED, "cancelled")                                       \
    X(EBROKEN, -7, CALLER, "the promise was dropped before it was resolved")      \
    X(ESHUTDOWN, -8, SHUTDOWN, "the loop binding, device or driver is shut down") \
    X(EFORKED, -9, CALLER, "not usable in a child after fork()")                  \
    X(EDEADLK, -10, CALLER, "waiting here would never end")                       \
    X(ENOTSUP, -11, SYSTEM, "not supported by this device, driver or build")      \
    X(ENODRIVER, -12, SYSTEM, "no usable driver")                                 \
    X(ENODEVICE, -13, SYSTEM, "no such device")                                   \
    X(EDEVICELOST, -14, DEVICE_LOST, "the device is lost to this process")        \
    X(EDRIVER, -15, SYSTEM, "the driver reported an error")                       \
    X(ESYSTEM, -16, SYSTEM, "the operating system reported an error")             \
    X(EUSER, -17, USER, "an error of the application")

enum {
#define CULVERT_ERROR_ENUM_(name, value, class_, text) CULVERT_##name = value,
    CULVERT_ERRORS(CULVERT_ERROR_ENUM_)
#undef CULVERT_ERROR_ENUM_
        CULVERT_ERROR_LIST_END_ = -32768
};

/** What a caller can do about an error. Since 0.1.0. */
typedef enum culvert_error_class_id {
    CULVERT_CLASS_NONE = 0,        /**< no error: CULVERT_OK or CULVERT_PENDING */
    CULVERT_CLASS_CALLER = 1,      /**< the caller's mistake: the same call fails again */
    CULVERT_CLASS_AGAIN = 2,       /**< try again later, or with less */
    CULVERT_CLASS_DEVICE_LOST = 3, /**< the process must be replaced to use the device again */
    CULVERT_CLASS_CANCELED = 4,    /**< somebody cancelled it */
    CULVERT_CLASS_SHUTDOWN = 5,    /**< the library is being taken down */
    CULVERT_CLASS_SYSTEM = 6,      /**< driver, device or operating system */
    CULVERT_CLASS_USER = 7         /**< the application's own error, CULVERT_EUSER */
} culvert_error_class_id;

/** The room for an error's message, its terminating zero included. Since 0.1.0. */
#define CULVERT_ERROR_MESSAGE_SIZE 256

/** An error, as a value. Since 0.1.0. */
typedef struct culvert_error {
    int code;          /**< CULVERT_OK, or one of CULVERT_ERRORS */
    int native;        /**< CUresult, errno or the application's number; 0 if there is none */
    const char *op;    /**< the call that failed, a static string, or NULL: an error that was made
                            beforehand (see future.h) knows of no call */
    const char *where; /**< "file:line" of that call, a static string, or NULL */
    char
        message[CULVERT_ERROR_MESSAGE_SIZE]; /**< what was wrong; may be empty, always terminated */
} culvert_error;

/** An error that says nothing yet. Since 0.1.0. */
#define CULVERT_ERROR_INIT         \
    {                              \
        CULVERT_OK, 0, NULL, NULL, \
        {                          \
            0                      \
        }                          \
    }

/**
 * The name of a code.
 *
 * @param code CULVERT_OK, CULVERT_PENDING or one of CULVERT_ERRORS.
 * @return "CULVERT_EINVAL" and the like, a static string; "CULVERT_E?" for an unknown code.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API const char *culvert_error_name(int code);

/**
 * What a code means, in a few words.
 *
 * @param code as for culvert_error_name.
 * @return a static string.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API const char *culvert_error_text(int code);

/**
 * What a caller can do about a code.
 *
 * @param code as for culvert_error_name.
 * @return one of culvert_error_class_id; CULVERT_CLASS_SYSTEM for an unknown code.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_error_class_id culvert_error_class(int code);

/**
 * Writes an error as one line: name, operation, place, message and native number.
 *
 * @param err borrowed; NULL is written as "no error".
 * @param out receives at most `size` bytes, its terminating zero included; may be NULL if size is 0.
 * @param size in bytes.
 * @return the bytes that the whole line needs, without its zero, as snprintf does.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_error_format(const culvert_error *err, char *out, size_t size);

/**
 * Fills an error: for functions given to culvert_work, and for culvert_reject.
 *
 * @param err written as a whole; NULL does nothing.
 * @param code a negative code; CULVERT_EUSER for the application's own errors.
 * @param native the application's number, errno, a CUresult, or 0.
 * @param fmt the message as for printf; a longer message is cut at a character's boundary.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_error_set(culvert_error *err, int code, int native, const char *fmt, ...)
    CULVERT_PRINTF(4, 5);

#ifdef __cplusplus
}
#endif

#endif
