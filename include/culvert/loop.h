/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file loop.h
 * The binding of futures to a libev loop.
 *
 * A binding adds a handful of watchers to a loop that the program owns. The loop stays alive
 * (ev_run does not return by itself) exactly as long as work is pending: device work, workers'
 * jobs, timers, descriptors waited for, accepted posts, continuations that have not run. A bare
 * promise does not count: something else must be going to resolve it.
 *
 * The binding belongs to the thread that runs the loop. Several loops, each with a binding and a
 * thread of its own, may use the same device.
 */
#ifndef CULVERT_LOOP_H
#define CULVERT_LOOP_H

#include "culvert/error.h"
#include "culvert/future.h"
#include "culvert/version.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ev_loop;

/** How a loop that sleeps is woken by the end of device work. Since 0.1.0. */
typedef enum culvert_wake {
    CULVERT_WAKE_DEFAULT = 0,  /**< CULVERT_WAKE_ADAPTIVE */
    CULVERT_WAKE_ADAPTIVE = 1, /**< turns the loop for up to spin_seconds where recent work was that
                                     short, then arms a host function and sleeps */
    CULVERT_WAKE_HOST_FUNC = 2, /**< arms a host function and sleeps, at once */
    CULVERT_WAKE_THREAD = 3, /**< sleeps at once; a thread of the library's own, one a device in the
                                     process, looks at what is in flight: without a pause for
                                     spin_seconds, then ever less often, every millisecond in the end.
                                     No host function is used */
    CULVERT_WAKE_SPIN = 4    /**< does not sleep while device work is in flight: the loop turns,
                                     sockets and timers are served, and a processor is busy */
} culvert_wake;

/** Severity of a log message. Since 0.1.0. */
typedef enum culvert_log_level {
    CULVERT_LOG_ERROR = 1,
    CULVERT_LOG_WARNING = 2,
    CULVERT_LOG_INFO = 3
} culvert_log_level;

/** Options of a binding. Zero means the default, for each member. Since 0.1.0. */
typedef struct culvert_loop_options {
    size_t struct_size;   /**< sizeof(culvert_loop_options) */
    int wake;             /**< culvert_wake */
    double spin_seconds;  /**< at most so long a spin before a sleep (or of the thread of
                               CULVERT_WAKE_THREAD); default 50e-6; at most 0.01 */
    unsigned workers;     /**< threads of culvert_work at most, started when needed; default: the
                               processors this process may use, at least 2; at most 1024 */
    double close_seconds; /**< how long culvert_loop_free waits for what is in flight; default 5 */
    const char *driver;   /**< "cuda", "sim", "auto" or a path with a slash, borrowed for the call;
                               NULL: the environment's CULVERT_DRIVER, else "cuda" */
    /** A rejection that nobody waited for and nobody looked at; on the loop, never inside the call
        that rejects. NULL: one line on stderr. */
    void (*on_unhandled)(culvert_loop *loop, const culvert_error *err, void *arg);
    /** What the library has to say (culvert_log_level). May be called from any thread of the
        library. NULL: errors and warnings go to stderr. */
    void (*on_log)(int level, const char *message, void *arg);
    void *arg; /**< given to both */
} culvert_loop_options;

/** Options that mean the defaults. Since 0.1.0. */
#define CULVERT_LOOP_OPTIONS_INIT                                            \
    {                                                                        \
        sizeof(culvert_loop_options), 0, 0.0, 0, 0.0, NULL, NULL, NULL, NULL \
    }

/**
 * Binds a libev loop.
 *
 * @param ev borrowed: it must outlive culvert_loop_free. One binding a loop is enough; several are
 *        allowed.
 * @param options borrowed for the call; NULL for the defaults. The driver is not opened before a
 *        device is (culvert_gpu_open, culvert_gpu_count).
 * @param err filled on failure; may be NULL.
 * @return the binding, to be given to culvert_loop_free; NULL on failure: CULVERT_EINVAL (an option
 *         is out of its range), CULVERT_ENOMEM, CULVERT_ESYSTEM, CULVERT_EFORKED.
 * Thread: the one that will run the loop, or one that hands it over before the loop runs; the
 * binding then belongs to the thread that runs ev_run. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_loop *culvert_loop_new(struct ev_loop *ev, const culvert_loop_options *options,
                                           culvert_error *err);

/**
 * Takes the binding down: stops accepting posts and new work (CULVERT_ESHUTDOWN), lets what is in
 * flight end for up to close_seconds, then settles everything that is still pending with
 * CULVERT_ESHUTDOWN and runs its callbacks, before it returns. Memory that a device still uses is
 * leaked, never reused. Handles (futures, streams, buffers) stay valid: release functions remain
 * legal, everything else fails with CULVERT_ESHUTDOWN.
 *
 * So it comes first at the end of a program, and the handles are released after it: the callbacks that
 * it runs may still use them. (The other order is legal too, where no callback does.) The libev loop
 * goes last; culvert_loop_ev is NULL by then, so the program keeps a pointer of its own.
 *
 * It is the only call, but those marked start-up, that may wait for the device. Jobs of culvert_work
 * that have started are waited for until they return.
 *
 * Inside a callback of Culvert the binding is freed when that callback has returned; the call itself
 * only stops new work.
 *
 * In a child after fork() it settles everything pending with CULVERT_EFORKED, runs the callbacks,
 * and touches neither driver nor threads: it is how such a child leaves a binding that it inherited.
 *
 * @param loop consumed; NULL does nothing.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_loop_free(culvert_loop *loop);

/**
 * One more reference to the binding's memory, for a thread that posts into it. It does not keep the
 * binding open.
 *
 * @param loop borrowed.
 * @return the same binding.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_loop *culvert_loop_ref(culvert_loop *loop);

/**
 * One reference less.
 *
 * @param loop consumed; NULL does nothing.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_loop_unref(culvert_loop *loop);

/**
 * The libev loop of a binding.
 *
 * @param loop borrowed.
 * @return borrowed; NULL after culvert_loop_free.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API struct ev_loop *culvert_loop_ev(culvert_loop *loop);

/**
 * For programs that call ev_run(EVRUN_NOWAIT) and sleep by themselves: arms the wake-up of all that
 * is in flight, as the loop does before it sleeps, and tells how long the program may sleep.
 *
 * libev shows no descriptor for a wake-up that arrives outside ev_run, so nothing wakes such a
 * sleeper sooner: it looks again (ev_run(EVRUN_NOWAIT)) after the time returned, or earlier. That time
 * is a bound (0.1 s while device work is in flight), not a guess at the end of the work.
 *
 * @param loop borrowed.
 * @return seconds: 0 if something is ready now; finite while work is in flight or a timer runs;
 *         INFINITY if nothing is pending. What keeps no loop alive does not count: memory that could go
 *         back to the driver after a while (culvert_gpu_options.trim_seconds) does so at a later look.
 * Errors: none; 0 after culvert_loop_free and in a child after fork(). Thread: loop. Re-entrant:
 * yes. Since 0.1.0.
 */
CULVERT_API double culvert_loop_arm(culvert_loop *loop);

#ifdef __cplusplus
}
#endif

#endif
