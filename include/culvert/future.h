/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file future.h
 * Futures and promises.
 *
 * A `culvert_future` is the consumer's end of something that will be there later: a handle that is
 * counted. A `culvert_promise` is the producer's end, used once. Continuations (steps) run on the
 * loop's thread, from inside ev_run, never inside the call that registers, resolves, rejects or
 * cancels.
 *
 * OWNERSHIP. Every `culvert_future *` argument is consumed, on every path, also when the call fails,
 * except by the functions that say "borrows". A function that returns a future never returns NULL:
 * when memory is short it returns a rejected future, so errors are looked at once, at the end of a
 * chain. When a call fails, everything that was given to it (future, argument, value) is released,
 * perhaps before the call returns. A chain ends in culvert_on_settled, culvert_detach,
 * culvert_unref, or by returning it. Functions that release something accept NULL; any other NULL
 * handle aborts the process with a message that names the call.
 *
 * INTEREST. A future is wanted as long as something waits for it or a handle refers to it.
 * Cancelling it, or taking the last interest away, settles it as CULVERT_ECANCELED and travels
 * upstream, only where no other interest is left. Work that has not started never runs. Work that
 * has started (on a device, or on a worker thread) settles with its real outcome when it is over,
 * and what it holds stays alive until then.
 *
 * ERRORS MADE BEFOREHAND. A rejection for want of memory (CULVERT_ENOMEM), one after culvert_loop_free
 * has begun (CULVERT_ESHUTDOWN) and one in a child after fork() (CULVERT_EFORKED) may be a future that
 * was made with the binding and is shared by all who get it, so that it needs no memory. Such an error has
 * the code and a general message, and neither an operation nor a place.
 *
 * ORDER. Continuations run first in, first out by the time their future settled; those of one
 * future in the order in which they were attached. Attaching to a settled future runs the
 * continuation on a later turn.
 *
 * THREADS. All of it belongs to the loop's thread, except what is marked "Thread: any".
 */
#ifndef CULVERT_FUTURE_H
#define CULVERT_FUTURE_H

#include "culvert/error.h"
#include "culvert/version.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A loop binding: see loop.h. Since 0.1.0. */
typedef struct culvert_loop culvert_loop;
/** The consumer's end. Since 0.1.0. */
typedef struct culvert_future culvert_future;
/** The producer's end. Since 0.1.0. */
typedef struct culvert_promise culvert_promise;

/**
 * A step of a chain.
 *
 * @param done borrowed, settled: the future that the step waited for. To return it, take a
 *        reference first (culvert_ref).
 * @param arg the argument given with the step.
 * @return NULL to pass `done`'s outcome through, or a future (consumed) whose outcome becomes that
 *         of the step. To fail, return culvert_fail(...). To give a value, culvert_resolved(...).
 * Thread: the loop's. Since 0.1.0.
 */
typedef culvert_future *culvert_step_fn(culvert_future *done, void *arg);

/**
 * The end of a chain.
 *
 * @param done borrowed, settled.
 * @param arg the argument given with it.
 * Thread: the loop's. Since 0.1.0.
 */
typedef void culvert_settled_fn(culvert_future *done, void *arg);

/** Releases what it is given: an argument, a value, a kept object. Since 0.1.0. */
typedef void culvert_free_fn(void *p);

/* ---------------------------------------------------------------- promises ---- */

/**
 * Makes a promise and its future.
 *
 * A bare promise does not keep the loop running: something else must be going to resolve it.
 *
 * @param loop borrowed; the promise holds a reference of its own to it.
 * @param out receives the future, owned by the caller; never NULL.
 * @return the promise, to be consumed once by culvert_resolve, _reject, _promise_drop or the posted
 *         forms; NULL on failure, and then *out is rejected: CULVERT_ENOMEM, CULVERT_ESHUTDOWN after
 *         culvert_loop_free, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_promise *culvert_promise_new(culvert_loop *loop,
                                                                   culvert_future **out);
CULVERT_API CULVERT_NODISCARD culvert_promise *
culvert_promise_new_at(const char *where, culvert_loop *loop, culvert_future **out);

/**
 * Settles a promise's future with a value. Where it was settled before (cancelled, say), that
 * outcome stays, and the value is released.
 *
 * @param promise consumed.
 * @param value given away; NULL is a value too.
 * @param value_free releases `value` if nobody takes it, when the last future that carries it goes;
 *        NULL: nothing to release.
 * Errors: none. Thread: loop. Re-entrant: yes; no callback runs inside. Since 0.1.0.
 */
CULVERT_API void culvert_resolve(culvert_promise *promise, void *value,
                                 culvert_free_fn *value_free);

/**
 * Settles a promise's future with an error. Where it was settled before, that outcome stays.
 *
 * @param promise consumed.
 * @param err borrowed, copied; its code must be negative (any other becomes CULVERT_EUSER).
 * Errors: none; where no memory is left for the copy, the future rejects with CULVERT_ENOMEM.
 * Thread: loop. Re-entrant: yes; no callback runs inside. Since 0.1.0.
 */
CULVERT_API void culvert_reject(culvert_promise *promise, const culvert_error *err);

/**
 * Gives a promise up: its future rejects with CULVERT_EBROKEN if it has not settled.
 *
 * @param promise consumed; NULL does nothing.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_promise_drop(culvert_promise *promise);

/**
 * Asks to be told when the promise's future is cancelled or nobody wants it any more. The promise
 * must still be consumed.
 *
 * @param promise borrowed.
 * @param fn called at most once, on a later turn of the loop; not called after the promise was
 *        consumed.
 * @param arg given to fn.
 * @param arg_free releases arg, once: after fn, or when fn can no longer run; may be NULL.
 * A second call takes the place of the first, whose arg is released.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_promise_on_cancel(culvert_promise *promise, void (*fn)(void *arg),
                                           void *arg, culvert_free_fn *arg_free);

/**
 * Runs a function on the loop's thread, on a later turn. An accepted post keeps the loop running.
 *
 * @param loop borrowed; must be alive: a thread that may post after culvert_loop_free holds a
 *        reference (culvert_loop_ref).
 * @param fn called once with arg. Posts of one thread run in the order in which they were made.
 * @param arg given to fn.
 * @param arg_free releases arg, once, on the loop's thread after fn; where the post is refused, on
 *        the calling thread before this returns; may be NULL.
 * @return CULVERT_OK; CULVERT_ENOMEM; CULVERT_ESHUTDOWN after culvert_loop_free began;
 *         CULVERT_EFORKED.
 * Thread: any; takes no lock. Not to be called from a signal handler (use ev_signal).
 * Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_post(culvert_loop *loop, void (*fn)(void *arg), void *arg,
                             culvert_free_fn *arg_free);

/**
 * As culvert_resolve, from any thread. The future settles when the loop takes the post; where it
 * was cancelled before that, the cancellation stays and the value is released.
 *
 * @param promise consumed, on every path.
 * @param value given away.
 * @param value_free as for culvert_resolve; where the post is refused it runs on the calling thread.
 * @return CULVERT_OK; CULVERT_ESHUTDOWN after culvert_loop_free began (the future was rejected by
 *         it); CULVERT_EFORKED. Never fails for want of memory.
 * Thread: any; takes no lock and allocates nothing. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_post_resolve(culvert_promise *promise, void *value,
                                     culvert_free_fn *value_free);

/**
 * As culvert_reject, from any thread.
 *
 * @param promise consumed, on every path.
 * @param err borrowed, copied.
 * @return as culvert_post_resolve. Where no memory is left for the copy, the future rejects with
 *         CULVERT_ENOMEM.
 * Thread: any; takes no lock. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_post_reject(culvert_promise *promise, const culvert_error *err);

/**
 * A future that is resolved already.
 *
 * @param loop borrowed.
 * @param value given away.
 * @param value_free as for culvert_resolve.
 * @return a future, resolved; or rejected: CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED (and
 *         then value is released).
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_resolved(culvert_loop *loop, void *value,
                                                               culvert_free_fn *value_free);

/**
 * A future that is rejected already.
 *
 * @param loop borrowed.
 * @param err borrowed, copied.
 * @return a future, rejected with it; or with CULVERT_ENOMEM, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_rejected(culvert_loop *loop,
                                                               const culvert_error *err);

/**
 * A future that is rejected already, with a message made here: how a step fails.
 *
 * @param loop borrowed.
 * @param code negative; CULVERT_EUSER for the application's own.
 * @param native the application's number, errno, a CUresult, or 0.
 * @param fmt as for printf.
 * @return a future, rejected with that; or with CULVERT_ENOMEM, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_fail(culvert_loop *loop, int code, int native,
                                                           const char *fmt, ...)
    CULVERT_PRINTF(4, 5);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_fail_at(const char *where, culvert_loop *loop,
                                                              int code, int native, const char *fmt,
                                                              ...) CULVERT_PRINTF(5, 6);

/* ------------------------------------------------------------------ chains ---- */

/**
 * Runs a step when a future resolved. A rejection passes the step by.
 *
 * @param future consumed.
 * @param step called at most once, on the loop, never inside this call.
 * @param arg given to step.
 * @param arg_free releases arg, once: after step, or when it is passed by, cancelled or dropped;
 *        may be NULL. `arg` must not own memory that an operation upstream still uses: that is what
 *        culvert_seq_keep and host buffers are for.
 * @return the future of the step's outcome. Rejected with CULVERT_ENOMEM, CULVERT_ESHUTDOWN or
 *         CULVERT_EFORKED where the step could not be attached: it never runs then. (Once
 *         culvert_loop_free has begun, a `future` that has rejected is returned itself, with its error.
 *         So do the functions below that return a future for one or more that they are given.)
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_then(culvert_future *future, culvert_step_fn *step, void *arg, culvert_free_fn *arg_free);

/**
 * Runs a step when a future rejected (a cancellation is a rejection too). A resolved future passes
 * the step by. To handle the error return culvert_resolved(...); to pass it on return NULL.
 *
 * Parameters, result, thread and re-entrancy as for culvert_then. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_catch(culvert_future *future, culvert_step_fn *step, void *arg, culvert_free_fn *arg_free);

/**
 * Runs a step when a future settled, either way. When the future returned here is cancelled, it
 * settles at once as CULVERT_ECANCELED, and the step still runs, once, after what it waits for
 * settled; what the step returns is then dropped.
 *
 * Parameters, result, thread and re-entrancy as for culvert_then. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_finally(culvert_future *future,
                                                              culvert_step_fn *step, void *arg,
                                                              culvert_free_fn *arg_free);

/**
 * Ends a chain: calls a function when the future settled, either way. It counts as looking at the
 * outcome.
 *
 * @param future consumed.
 * @param fn called once, on the loop, never inside this call.
 * @param arg given to fn.
 * @param arg_free releases arg, once, after fn; may be NULL.
 * @return CULVERT_OK; or CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED: fn will never run,
 *         arg_free has, and the future is released.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_on_settled(culvert_future *future, culvert_settled_fn *fn, void *arg,
                                   culvert_free_fn *arg_free);

/* ------------------------------------------------------------- combinators ---- */

/**
 * Resolves when all of a set resolved. The first rejection cancels the others; the set then settles
 * with that rejection when every one of them has settled. The value is NULL: each child keeps its
 * own (culvert_child). An empty set resolves.
 *
 * @param loop borrowed.
 * @param futures an array of n futures, each consumed; the array itself is borrowed. All belong to
 *        `loop` (another loop's: rejected with CULVERT_EINVAL).
 * @param n how many; 0 is allowed, and `futures` may then be NULL.
 * @return the future of the set; or rejected: CULVERT_ENOMEM, CULVERT_EINVAL, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_all(culvert_loop *loop,
                                                          culvert_future *const *futures, size_t n);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_all_at(const char *where, culvert_loop *loop, culvert_future *const *futures, size_t n);

/**
 * Resolves, with NULL, when every one of a set settled, however. Look at each through
 * culvert_child. An empty set resolves.
 *
 * Parameters, thread and re-entrancy as for culvert_all.
 * @return as culvert_all; the rejection of a child is not one of the set, and counts as looked at.
 * Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_all_settled(culvert_loop *loop, culvert_future *const *futures, size_t n);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_all_settled_at(const char *where,
                                                                     culvert_loop *loop,
                                                                     culvert_future *const *futures,
                                                                     size_t n);

/**
 * Resolves with the value of the first of a set that resolves; the others are cancelled, and the
 * set does not wait for them. Rejects when all rejected, with the last rejection.
 *
 * Parameters, thread and re-entrancy as for culvert_all.
 * @return as culvert_all; an empty set rejects with CULVERT_EINVAL. culvert_winner tells which.
 * Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_any(culvert_loop *loop,
                                                          culvert_future *const *futures, size_t n);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_any_at(const char *where, culvert_loop *loop, culvert_future *const *futures, size_t n);

/**
 * Settles with the outcome of the first of a set that settles; the others are cancelled, and the
 * set does not wait for them.
 *
 * Parameters, thread and re-entrancy as for culvert_all.
 * @return as culvert_all; an empty set rejects with CULVERT_EINVAL. culvert_winner tells which.
 * Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_race(culvert_loop *loop, culvert_future *const *futures, size_t n);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_race_at(const char *where, culvert_loop *loop, culvert_future *const *futures, size_t n);

/**
 * A member of a set.
 *
 * @param set borrowed; made by culvert_all, _all_settled, _any or _race.
 * @param i its place in the array, from 0.
 * @return borrowed: valid as long as the set; NULL where `set` is no set, has no such member, or
 *         could not be made.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_future *culvert_child(const culvert_future *set, size_t i);

/**
 * Which member decided.
 *
 * @param set borrowed; made by culvert_any or culvert_race (or by culvert_all, and rejected).
 * @return its place in the array; SIZE_MAX where none has.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_winner(const culvert_future *set);

/**
 * Limits the wait for a future. The future returned settles with the outcome of `future`, or, when
 * the time is up first, rejects with CULVERT_ETIMEDOUT; it then drops its interest in `future`,
 * which goes on, with all it holds, if it is started device or worker work. Where both happen in
 * one turn of the loop, an outcome that is there wins.
 *
 * @param future consumed.
 * @param seconds from now, by the monotonic clock; 0: on the next turn; INFINITY: no limit.
 *        Negative or NaN: rejected with CULVERT_EINVAL.
 * @return the outer future; or rejected: CULVERT_ENOMEM, CULVERT_EINVAL, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_timeout(culvert_future *future,
                                                              double seconds);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_timeout_at(const char *where, culvert_future *future, double seconds);

/* --------------------------------------------------------- what is on a loop ---- */

/**
 * Resolves with NULL after a time.
 *
 * @param loop borrowed.
 * @param seconds from now, by the monotonic clock; 0: on the next turn; INFINITY: never (it does
 *        not keep the loop running then). Negative or NaN: rejected with CULVERT_EINVAL.
 * @return the future; or rejected: CULVERT_ENOMEM, CULVERT_EINVAL, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_sleep(culvert_loop *loop, double seconds);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_sleep_at(const char *where,
                                                               culvert_loop *loop, double seconds);

/**
 * Resolves with NULL when a descriptor can be read without blocking (data, end of file or an error
 * to be fetched).
 *
 * @param loop borrowed.
 * @param fd borrowed; it must stay open until the future settled. Files of a disk are always
 *        readable: read those on a worker (culvert_work).
 * @return the future; or rejected: CULVERT_EINVAL (fd is negative or not open), CULVERT_ENOMEM,
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_readable(culvert_loop *loop, int fd);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_readable_at(const char *where,
                                                                  culvert_loop *loop, int fd);

/**
 * As culvert_readable, for writing. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_writable(culvert_loop *loop, int fd);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_writable_at(const char *where,
                                                                  culvert_loop *loop, int fd);

/**
 * Runs a blocking function on a worker thread of the binding (culvert_loop_options.workers many).
 * Jobs start in the order in which they were given. A job that is cancelled before it started never
 * runs; one that has started settles with its real outcome.
 *
 * @param loop borrowed.
 * @param fn called on a worker thread. It returns the value, or fills *err (see culvert_error_set)
 *        to reject. It must not call Culvert but for what is marked "Thread: any".
 * @param arg given to fn; fn may use it on its thread.
 * @param arg_free releases arg, once, on the loop's thread, after fn or when fn will never run;
 *        may be NULL.
 * @param value_free releases the value if nobody takes it, on the loop's thread; may be NULL. It is
 *        also called for a value (not NULL) that fn returned together with an error.
 * @return the future of the value; rejected if and only if err->code was set, or with CULVERT_ENOMEM,
 *         CULVERT_ESYSTEM (no thread could be started; native is errno), CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_work(culvert_loop *loop, void *(*fn)(void *arg, culvert_error *err), void *arg,
             culvert_free_fn *arg_free, culvert_free_fn *value_free);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_work_at(const char *where, culvert_loop *loop, void *(*fn)(void *arg, culvert_error *err),
                void *arg, culvert_free_fn *arg_free, culvert_free_fn *value_free);

/* ----------------------------------------------------------------- handles ---- */

/**
 * One more reference.
 *
 * @param future borrowed.
 * @return the same future, to be consumed once more.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_future *culvert_ref(culvert_future *future);

/**
 * One reference less. When it was the last interest in a pending future, that is cancelled. When it
 * was the last of a rejected one at which nobody looked, the rejection goes to on_unhandled (not after
 * culvert_loop_free).
 *
 * @param future consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes; no callback runs
 * inside, but values and arguments may be released. Since 0.1.0.
 */
CULVERT_API void culvert_unref(culvert_future *future);

/**
 * Lets a future run on with nobody waiting. A rejection goes to on_unhandled (a cancellation does
 * not).
 *
 * @param future consumed; NULL does nothing.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_detach(culvert_future *future);

/**
 * Cancels a future, whoever else waits for it: everything downstream settles as CULVERT_ECANCELED,
 * and upstream is cancelled where no other interest is left. A future of started device or worker
 * work settles with its real outcome when the work is over. A settled future is left as it is.
 *
 * @param future borrowed.
 * Errors: none. Thread: loop. Re-entrant: yes; no callback runs inside. Since 0.1.0.
 */
CULVERT_API void culvert_cancel(culvert_future *future);

/**
 * Runs the loop until a future settled: for programs that are not servers. It counts as looking at
 * the outcome, and keeps the loop running meanwhile.
 *
 * @param future borrowed.
 * @param seconds at most so long, from now; INFINITY: no limit; 0: one turn.
 * @return the future's status: CULVERT_OK or the code of its rejection; CULVERT_PENDING when the
 *         time is up or somebody called ev_break; CULVERT_EDEADLK inside a callback of Culvert;
 *         CULVERT_EINVAL for negative or NaN seconds; CULVERT_EFORKED.
 * Thread: loop. Re-entrant: from a libev callback (it nests ev_run), not from a callback of
 * Culvert. Since 0.1.0.
 */
CULVERT_API int culvert_await(culvert_future *future, double seconds);

/**
 * The state of a future.
 *
 * @param future borrowed.
 * @return CULVERT_PENDING (1), CULVERT_OK (0), or the negative code of its rejection.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_status(const culvert_future *future);

/**
 * The error of a rejected future. It counts as looking at the outcome.
 *
 * @param future borrowed.
 * @return borrowed: valid as long as the future; NULL if it is pending or resolved.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API const culvert_error *culvert_get_error(const culvert_future *future);

/**
 * The value of a resolved future. A value passed through a chain is shared: it stays owned by the
 * futures that carry it, until somebody takes it.
 *
 * @param future borrowed.
 * @return borrowed: valid as long as the future, and until it is taken; NULL if it is pending,
 *         rejected, taken, or resolved with NULL.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void *culvert_value(const culvert_future *future);

/**
 * Moves the value out: the caller owns it from now on. The first take wins, of all futures that
 * share it.
 *
 * @param future borrowed.
 * @return the value, owned by the caller; NULL as for culvert_value.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void *culvert_take(culvert_future *future);

/**
 * The binding a future belongs to.
 *
 * @param future borrowed.
 * @return borrowed; NULL for the futures that calls return in a child after fork().
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_loop *culvert_future_loop(const culvert_future *future);

#ifndef CULVERT_NO_WHERE
#define culvert_promise_new(...) culvert_promise_new_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_fail(...)        culvert_fail_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_all(...)         culvert_all_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_all_settled(...) culvert_all_settled_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_any(...)         culvert_any_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_race(...)        culvert_race_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_timeout(...)     culvert_timeout_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_sleep(...)       culvert_sleep_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_readable(...)    culvert_readable_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_writable(...)    culvert_writable_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_work(...)        culvert_work_at(CULVERT_WHERE, __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif
