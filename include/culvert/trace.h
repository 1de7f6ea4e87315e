/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file trace.h
 * A timeline of every sequence: when it was built, submitted, in the driver, on the device, seen to be
 * over, and when its callbacks ran.
 *
 * The file is in the JSON array format of Chrome's trace events, which https://ui.perfetto.dev opens:
 * one track a stream with what ran on the device, one track for the loop with the callbacks, and one
 * row for each sequence. It is written by a thread of its own; the loop's thread makes no system call
 * for it. What was written is valid at any time, also after a crash or SIGKILL, but for the closing
 * bracket, which readers of this format do without; of the last 20 ms something may be missing.
 */
#ifndef CULVERT_TRACE_H
#define CULVERT_TRACE_H

#include "culvert/error.h"
#include "culvert/future.h"
#include "culvert/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Traces the sequences that are begun from now on. Each is timed on the device, which costs two events
 * more; without a trace nothing of it does.
 *
 * @param loop borrowed.
 * @param path borrowed for the call: the file, which is made anew.
 * @param err filled on failure; may be NULL.
 * @return CULVERT_OK; CULVERT_EINVAL (a trace is running, or path is NULL), CULVERT_ESYSTEM (the file
 *         cannot be made; native is the errno), CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Start-up: makes a file and a thread. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_trace_start(culvert_loop *loop, const char *path, culvert_error *err);

/**
 * Ends the trace: what is there is written, the file is closed. Sequences that are not over stay open in
 * it. culvert_loop_free does it, too. Without a trace it does nothing.
 *
 * @param loop borrowed.
 * Errors: none; what could not be written, and how many records were left out because the writer was
 * behind, goes to on_log. Thread: loop. Waits for the file to be written. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_trace_stop(culvert_loop *loop);

#ifdef __cplusplus
}
#endif

#endif
