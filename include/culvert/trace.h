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

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Traces the sequences that are begun from now on. Each is timed on the device, which costs two events
 * more; without a trace nothing of it does.
 *
 * @param loop borrowed.
 * Where the library was built beside a CUDA Toolkit, a profiler that is attached (one that sets
 * NVTX_INJECTION64_PATH, as Nsight Systems does) is told each sequence as an NVTX range of the domain
 * "culvert", from its submit until its callbacks have run.
 *
 * @param path borrowed for the call: the file, which is made anew; NULL: none, for a profiler alone.
 * @param err filled on failure; may be NULL.
 * @return CULVERT_OK; CULVERT_EINVAL (a trace is running), CULVERT_ENOTSUP (path is NULL, and
 *         the library was built without NVTX), CULVERT_ESYSTEM (the file
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

/* -------------------------------------------------------------- numbers ---- */

/** Buckets of a histogram: bucket i counts what took less than 2^i microseconds and not less than the
    bucket before it says; the last one all that took longer. Since 0.1.0. */
#define CULVERT_STATS_BUCKETS 32

/** What a metrics page shows of a binding and its devices. Counts are since culvert_loop_new. Since 0.1.0. */
typedef struct culvert_loop_statistics {
    size_t struct_size; /**< set by the caller: sizeof(culvert_loop_statistics) */

    uint64_t turns;  /**< of the loop */
    uint64_t spins;  /**< of these: those that did not sleep, for work was about to end */
    uint64_t sleeps; /**< those that slept, or would have, had nothing come up */
    uint64_t ticks;  /**< those with a millisecond at most: no wake could be arranged */
    uint64_t host_function_wakes; /**< wakes by a host function of the driver */
    uint64_t thread_wakes;        /**< wakes by the completion thread */
    uint64_t late_host_functions; /**< how often they came so late that the loop did without */
    uint64_t queries;             /**< of events and streams, by the loop's thread */

    uint64_t submitted; /**< sequences */
    uint64_t resolved;  /**< of these */
    uint64_t rejected;  /**< of these, but for what was cancelled */
    uint64_t canceled;  /**< of these */
    uint64_t uploads;   /**< operations given to the driver, likewise below */
    uint64_t downloads; /**< ... */
    uint64_t copies;    /**< ..., pitched ones too */
    uint64_t fills;     /**< ... */
    uint64_t launches;  /**< ... of kernels */
    uint64_t graphs;    /**< ... launches of graphs */
    uint64_t calls;     /**< functions of culvert_seq_call that were called */

    double
        longest_stall_seconds; /**< the longest that callbacks of futures held the loop in one turn */
    uint64_t stalls[CULVERT_STATS_BUCKETS]; /**< turns with callbacks, by how long these took */
    uint64_t
        latency[CULVERT_STATS_BUCKETS]; /**< sequences (long ones in segments), by the time from the
                                                driver until they were seen to be over */

    size_t gpus;              /**< now: devices of this binding */
    size_t streams;           /**< now: their streams */
    size_t in_flight;         /**< now: sequences in the driver */
    size_t queued;            /**< now: sequences that wait in the library */
    size_t device_bytes;      /**< now: device memory taken from the driver */
    size_t device_bytes_used; /**< of that: in buffers */
    size_t pinned_bytes;      /**< now: pinned memory taken from the driver */
    size_t pinned_bytes_used; /**< of that: in buffers and staging */
    size_t events;            /**< now: events of the pools */
    size_t events_free;       /**< of these: not in use */
} culvert_loop_statistics;

/**
 * The numbers of a binding.
 *
 * @param loop borrowed.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for a struct_size that is too small or larger than this library
 *         knows; CULVERT_EFORKED.
 * Thread: loop, also after culvert_loop_free while a reference is held. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_loop_stats(culvert_loop *loop, culvert_loop_statistics *out);

#ifdef __cplusplus
}
#endif

#endif
