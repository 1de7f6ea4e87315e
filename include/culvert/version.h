/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file version.h
 * The version of Culvert, and the macros that every public header uses.
 */
#ifndef CULVERT_VERSION_H
#define CULVERT_VERSION_H

#define CULVERT_VERSION_MAJOR 0
#define CULVERT_VERSION_MINOR 1
#define CULVERT_VERSION_PATCH 0

/** The version as one number: 10000 x major + 100 x minor + patch. Since 0.1.0. */
#define CULVERT_VERSION \
    (CULVERT_VERSION_MAJOR * 10000 + CULVERT_VERSION_MINOR * 100 + CULVERT_VERSION_PATCH)

/* Symbols are hidden unless they carry CULVERT_API. */
#if defined(__GNUC__)
#define CULVERT_API                __attribute__((visibility("default")))
#define CULVERT_NODISCARD          __attribute__((warn_unused_result))
#define CULVERT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define CULVERT_API
#define CULVERT_NODISCARD
#define CULVERT_PRINTF(fmt, first)
#endif

/*
 * Where a call was made. A function whose errors should name a place in the program exists twice:
 * `culvert_x(...)`, and `culvert_x_at(where, ...)`, which takes the place of the call as a string
 * that outlives the process (a literal), or NULL. A macro named like the function calls the second one with CULVERT_WHERE, so
 * that errors name the file and line that made the call. With CULVERT_NO_WHERE defined before the
 * first include there are no such macros, and errors have no place.
 */
#define CULVERT_WHERE_TEXT_(line) #line
#define CULVERT_WHERE_LINE_(line) CULVERT_WHERE_TEXT_(line)
#define CULVERT_WHERE             __FILE__ ":" CULVERT_WHERE_LINE_(__LINE__)

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The version of the library that is loaded, as CULVERT_VERSION.
 *
 * @return the number; compare it with CULVERT_VERSION to find a header and library that differ.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_version(void);

#ifdef __cplusplus
}
#endif

#endif
