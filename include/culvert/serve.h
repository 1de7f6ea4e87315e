/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file serve.h
 * What servers and pipelines are made of: a semaphore, a batcher, a pipeline, a drain.
 *
 * Each of them has bounds, and says at once (CULVERT_EAGAIN) when one is reached: a server answers
 * "busy" rather than queue without end.
 *
 * FAIRNESS. What waits is served first in, first out: permits go to those who wait in the order in
 * which they asked, items are put into batches in the order in which they were added, chunks are
 * read, processed and written in order. Nobody passes another by, so nobody starves; one who leaves
 * (cancelled, or expired) makes room for those behind.
 *
 * THREADS. All of it belongs to the loop's thread. Callbacks run from the loop, never inside the
 * call that causes them, and may free anything.
 */
#ifndef CULVERT_SERVE_H
#define CULVERT_SERVE_H

#include "culvert/error.h"
#include "culvert/future.h"
#include "culvert/gpu.h"
#include "culvert/version.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Lets so many pass at a time. Since 0.1.0. */
typedef struct culvert_semaphore culvert_semaphore;
/** Collects items and runs them together. Since 0.1.0. */
typedef struct culvert_batcher culvert_batcher;
/** Items that run together. Since 0.1.0. */
typedef struct culvert_batch culvert_batch;
/** A descriptor that is read or written chunk by chunk. Since 0.1.0. */
typedef struct culvert_descriptor culvert_descriptor;

/* -------------------------------------------------------------- semaphores ---- */

/** What a semaphore has done. Since 0.1.0. */
typedef struct culvert_semaphore_counters {
    size_t struct_size; /**< set by the caller: sizeof(culvert_semaphore_counters) */
    size_t permits;     /**< now free */
    size_t held;        /**< now granted and not released */
    size_t waiting;     /**< now waiting for a permit */
    uint64_t granted;   /**< so far: permits that were granted */
    uint64_t refused;   /**< so far: CULVERT_EAGAIN, as max_waiters waited */
    uint64_t canceled;  /**< so far: left before a permit was there */
} culvert_semaphore_counters;

/**
 * Makes a semaphore.
 *
 * @param loop borrowed.
 * @param permits how many may pass at a time; 0: none before somebody releases.
 * @param max_waiters how many may wait for a permit; 0: none does; SIZE_MAX: no limit.
 * @param err filled on failure; may be NULL.
 * @return the semaphore, one reference; NULL on failure: CULVERT_ENOMEM, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_semaphore *culvert_semaphore_new(culvert_loop *loop, size_t permits,
                                                     size_t max_waiters, culvert_error *err);

/**
 * Asks for a permit. It resolves when there is one, first come first served; whoever got it gives it
 * back with culvert_semaphore_release.
 *
 * Cancelling the future while it waits leaves the queue. Once it has resolved the permit is taken,
 * also if nobody reads that: a future that is dropped after the grant keeps the permit. So wait with
 * culvert_on_settled or culvert_finally, which always run, and release there; a culvert_then that is
 * cancelled between the grant and its turn never runs, and its permit stays away.
 *
 * @param semaphore borrowed.
 * @return the future; value NULL. Rejected: CULVERT_EAGAIN at once when max_waiters wait;
 *         CULVERT_ECANCELED when the last reference to the semaphore goes; CULVERT_ENOMEM,
 *         CULVERT_ESHUTDOWN (also during culvert_drain), CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_semaphore_acquire(culvert_semaphore *semaphore);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_semaphore_acquire_at(const char *where, culvert_semaphore *semaphore);

/**
 * Gives a permit back: to the one that has waited longest, if anybody waits. One that was never
 * acquired may be given too, which raises the number of permits.
 *
 * @param semaphore borrowed.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes; no callback runs inside.
 * Since 0.1.0.
 */
CULVERT_API void culvert_semaphore_release(culvert_semaphore *semaphore);

/**
 * One more reference: for somebody who will release after others may have given the semaphore up.
 *
 * @param semaphore borrowed.
 * @return the same semaphore.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_semaphore *culvert_semaphore_ref(culvert_semaphore *semaphore);

/**
 * One reference less. The last one rejects those who wait with CULVERT_ECANCELED.
 *
 * @param semaphore consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes; no callback runs inside.
 * Since 0.1.0.
 */
CULVERT_API void culvert_semaphore_unref(culvert_semaphore *semaphore);

/**
 * What a semaphore has done, for a metrics page.
 *
 * @param semaphore borrowed.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for a struct_size that is 0 or larger than this library knows.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_semaphore_stats(const culvert_semaphore *semaphore,
                                        culvert_semaphore_counters *out);

/* ---------------------------------------------------------------- batchers ---- */

/** Options of a batcher. Zero means the default, for each member but `run`. Since 0.1.0. */
typedef struct culvert_batcher_options {
    size_t struct_size; /**< sizeof(culvert_batcher_options) */
    size_t max_items;   /**< of one batch; default 32 */
    size_t max_queued;  /**< items that may wait; one more rejects with CULVERT_EAGAIN at once.
                                   Default: no limit */
    size_t max_running; /**< batches at a time, whatever waits; default: no limit */
    double
        max_delay_seconds; /**< the oldest item waits at most so long for others; default 0: not at
                                   all; INFINITY: for max_items, or until nothing is running */
    /** Runs a batch: `n` items (1 to max_items), in the order in which they were added; the array lives
        as long as `batch`. The future (consumed) says when the batch is over, and its outcome is that
        of each item that did not fail by itself. NULL: it is over. The batch, and all of its items, are
        there until that future has settled and what was attached to it by then has run. Called on the
        loop. Must be set. */
    culvert_future *(*run)(culvert_batch *batch, void *const *items, size_t n, void *arg);
    void *arg; /**< given to run */
    culvert_free_fn
        *arg_free; /**< releases arg, once: after the last batch, when the last reference
                                    is gone; or if culvert_batcher_new fails; may be NULL */
} culvert_batcher_options;

/** Options that mean the defaults; `run` must be set. Since 0.1.0. */
#define CULVERT_BATCHER_OPTIONS_INIT                                    \
    {                                                                   \
        sizeof(culvert_batcher_options), 0, 0, 0, 0.0, NULL, NULL, NULL \
    }

/** What a batcher has done. Since 0.1.0. */
typedef struct culvert_batcher_counters {
    size_t struct_size;   /**< set by the caller: sizeof(culvert_batcher_counters) */
    size_t queued;        /**< now: items that wait */
    size_t running;       /**< now: batches that run */
    size_t running_items; /**< now: items of these */
    uint64_t added;    /**< so far: items taken. Each is queued, running, or counted once below */
    uint64_t resolved; /**< so far: items that ran and resolved */
    uint64_t rejected; /**< so far: items that ran and rejected */
    uint64_t expired;  /**< so far: items whose deadline passed while they waited */
    uint64_t canceled; /**< so far: items that left the queue otherwise */
    uint64_t refused;  /**< so far: items not taken, as max_queued waited */
    uint64_t batches;  /**< so far: batches that were run */
    uint64_t batched_items; /**< so far: items of these; divided by batches, the mean size */
    uint64_t full_batches;  /**< so far: batches of max_items */
    double longest_wait;    /**< so far: seconds between an item's arrival and its run, at most */
} culvert_batcher_counters;

/**
 * Makes a batcher.
 *
 * A batch is run when max_items wait, or when the oldest has waited max_delay_seconds, or when nothing
 * is running; never more than max_running at a time. It is made on a later turn of the loop than the
 * items' culvert_batcher_add, so what is added in one turn goes together.
 *
 * @param loop borrowed.
 * @param options borrowed for the call.
 * @param err filled on failure; may be NULL.
 * @return the batcher, one reference; NULL on failure: CULVERT_EINVAL (no run; a delay that is negative
 *         or NaN; struct_size), CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_batcher *
culvert_batcher_new(culvert_loop *loop, const culvert_batcher_options *options, culvert_error *err);

/**
 * Adds an item.
 *
 * An item whose future is cancelled, or whose deadline passes, while it waits leaves and never runs.
 * Once its batch runs neither changes anything: it settles with its batch.
 *
 * @param batcher borrowed.
 * @param item given away; given to run.
 * @param item_free releases the item, once: after its batch is over and its own callbacks ran; soon
 *        after it left; on failure, perhaps before this returns. May be NULL.
 * @param deadline_seconds from now: it must have begun to run by then; 0: it has expired already;
 *        INFINITY: no deadline.
 * @return the future of the item: it settles with its batch's outcome, or with that of
 *         culvert_batch_fail. A value is shared by the whole batch. Rejected: CULVERT_EAGAIN at once when
 *         max_queued wait; CULVERT_EINVAL (negative or NaN deadline), CULVERT_ENOMEM,
 *         CULVERT_ESHUTDOWN (also during culvert_drain), CULVERT_EFORKED at once; CULVERT_ETIMEDOUT when
 *         the deadline passes; CULVERT_ECANCELED when the last reference to the batcher goes.
 * Thread: loop. Re-entrant: yes; run is never called inside. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_batcher_add(culvert_batcher *batcher,
                                                                  void *item,
                                                                  culvert_free_fn *item_free,
                                                                  double deadline_seconds);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_batcher_add_at(const char *where, culvert_batcher *batcher, void *item,
                       culvert_free_fn *item_free, double deadline_seconds);

/**
 * Makes one item of a batch fail. It rejects with its batch, whatever becomes of that; the others are
 * as they were.
 *
 * @param batch borrowed: while it is there.
 * @param index of the item in run's array; one that is out of range is logged, and ignored.
 * @param err borrowed, copied; its code must be negative (any other becomes CULVERT_EUSER). The first
 *        error of an item stays.
 * Errors: none; where no memory is left for the copy, the item rejects with CULVERT_ENOMEM.
 * Thread: loop. Re-entrant: yes; no callback runs inside. Since 0.1.0.
 */
CULVERT_API void culvert_batch_fail(culvert_batch *batch, size_t index, const culvert_error *err);

/**
 * One more reference.
 *
 * @param batcher borrowed.
 * @return the same batcher.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_batcher *culvert_batcher_ref(culvert_batcher *batcher);

/**
 * One reference less. The last one rejects what waits with CULVERT_ECANCELED; batches that run go on.
 *
 * @param batcher consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes; items may be released
 * inside. Since 0.1.0.
 */
CULVERT_API void culvert_batcher_unref(culvert_batcher *batcher);

/**
 * What a batcher has done, for a metrics page.
 *
 * @param batcher borrowed.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for a struct_size that is 0 or larger than this library knows.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_batcher_stats(const culvert_batcher *batcher,
                                      culvert_batcher_counters *out);

/* --------------------------------------------------------------- pipelines ---- */

/**
 * A piece of a stream on its way through a pipeline. Chunk n and chunk n + depth are the same one: its
 * memory goes round.
 *
 * Since 0.1.0.
 */
typedef struct culvert_chunk {
    culvert_buffer *host; /**< borrowed: chunk_bytes of pinned memory */
    size_t bytes;    /**< how many of these are used: set by read, from 0; later stages may change
                               it: the next one has what the one before left */
    uint64_t index;  /**< number of the chunk, from 0 */
    uint64_t offset; /**< of its first byte in what was read */
    int last;        /**< read sets it where it knows that no chunk will follow */
    void *user;      /**< the stages' own: NULL at first, then as they left it `depth` chunks ago */
} culvert_chunk;

/**
 * Options of a pipeline. Zero means the default, for each member but `read`.
 *
 * A stage returns a future (consumed), or NULL: it is done. The chunk is its own until that future has
 * settled; the future must not settle as long as anything uses the chunk's memory, also when it is
 * cancelled, which happens when the pipeline stops. That is so for the own futures of device work and of
 * culvert_work; a culvert_then behind one of these settles at once when it is cancelled, so then the
 * work must hold the memory by itself: sequences hold their buffers, a job's arg can (culvert_buffer_ref).
 *
 * Since 0.1.0.
 */
typedef struct culvert_pipeline_options {
    size_t struct_size; /**< sizeof(culvert_pipeline_options) */
    size_t depth;       /**< chunks on their way at most; default 4; at most 4096 */
    size_t chunk_bytes; /**< memory of a chunk; default 1 MiB */
    /** Fills the chunk: at most chunk_bytes, and sets `bytes`. Leaving 0 there, or setting `last`, ends
        the input; a chunk of 0 bytes goes no further. One at a time, in order. Must be set. */
    culvert_future *(*read)(culvert_chunk *chunk, void *arg);
    /** Begun in order, up to `depth` of them at a time, which may end in any order. NULL: nothing to do. */
    culvert_future *(*process)(culvert_chunk *chunk, void *arg);
    /** Takes the chunk's bytes away. One at a time, in order. NULL: nothing to do. */
    culvert_future *(*write)(culvert_chunk *chunk, void *arg);
    void *arg; /**< given to the stages and to progress */
    culvert_free_fn
        *arg_free; /**< releases arg, once, after the last stage is over and the callbacks of
                                    the pipeline's future ran; if the pipeline could not be begun, perhaps
                                    before culvert_pipeline_run returns; may be NULL */
    /** After each chunk that has gone all the way: bytes so far. May be NULL. */
    void (*progress)(uint64_t bytes, void *arg);
} culvert_pipeline_options;

/** Options that mean the defaults; `read` must be set. Since 0.1.0. */
#define CULVERT_PIPELINE_OPTIONS_INIT                                              \
    {                                                                              \
        sizeof(culvert_pipeline_options), 0, 0, NULL, NULL, NULL, NULL, NULL, NULL \
    }

/** What a pipeline has done. Since 0.1.0. */
typedef struct culvert_pipeline_counters {
    size_t struct_size;      /**< set by the caller: sizeof(culvert_pipeline_counters) */
    size_t in_flight;        /**< now: chunks between the beginning of read and the end of write */
    size_t processing;       /**< now: chunks that are being processed */
    uint64_t chunks_read;    /**< so far */
    uint64_t chunks_written; /**< so far: chunks that have gone all the way */
    uint64_t bytes_read;     /**< so far */
    uint64_t bytes_written;  /**< so far: as progress reports */
} culvert_pipeline_counters;

/**
 * Runs a stream through three stages that overlap: read, process (on the device, say) and write.
 *
 * The first error of a stage stops it: no stage is begun any more, those that run are cancelled and
 * waited for, and the future rejects with that error. Cancelling the future stops it in the same way.
 *
 * Each chunk gets its memory when it is first read, one chunk a turn of the loop. Where the device's pinned
 * pool has to grow for it, that blocks 0.5 ms for each MB, so a server reserves enough at start-up
 * (culvert_gpu_options.pinned_reserve).
 *
 * @param gpu borrowed.
 * @param options borrowed for the call.
 * @return the future, which settles after the last stage; value NULL. Rejected: CULVERT_EINVAL (no
 *         read; a depth or struct_size that is too large), CULVERT_ENOMEM, CULVERT_ESHUTDOWN (also
 *         during culvert_drain), CULVERT_EDEVICELOST, CULVERT_EFORKED; CULVERT_EINVAL where read set
 *         more bytes than the chunk has; or what a stage rejected with.
 * Thread: loop. Re-entrant: yes; no stage is called inside. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_pipeline_run(culvert_gpu *gpu, const culvert_pipeline_options *options);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_pipeline_run_at(const char *where, culvert_gpu *gpu,
                        const culvert_pipeline_options *options);

/**
 * What a pipeline has done.
 *
 * @param run borrowed: the own future of a culvert_pipeline_run, pending or settled.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for another future, or for a struct_size that is 0 or larger than
 *         this library knows.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_pipeline_stats(const culvert_future *run, culvert_pipeline_counters *out);

/**
 * Prepares a descriptor for culvert_chunk_read or culvert_chunk_write.
 *
 * Files of a disk are read and written on a worker. Pipes, sockets and terminals are waited for on the
 * loop, and the flags of `fd` stay as they are: a pipe or a terminal is opened once more (through
 * /proc), so that O_NONBLOCK is not set for others who share it; where that is not possible a worker
 * waits for it.
 *
 * @param loop borrowed.
 * @param fd borrowed: it must stay open until culvert_descriptor_free and until the last transfer is over.
 * @param name borrowed for the call: for messages; NULL: its number.
 * @param err filled on failure; may be NULL.
 * @return the descriptor, to be given to culvert_descriptor_free; NULL on failure: CULVERT_EINVAL (not
 *         open, or a folder), CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_descriptor *culvert_descriptor_new(culvert_loop *loop, int fd, const char *name,
                                                       culvert_error *err);

/**
 * Gives a descriptor up. A transfer that runs goes on. `fd` is not closed.
 *
 * @param descriptor consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_descriptor_free(culvert_descriptor *descriptor);

/**
 * Fills a chunk from a descriptor: reads until the chunk is full or the input ends, which sets `last`.
 *
 * Its future settles when nothing uses the chunk any more, also if it is cancelled: at once where the loop
 * waits for the descriptor, when the call has returned where a worker reads.
 *
 * @param chunk borrowed until the future settled.
 * @param descriptor borrowed; one transfer at a time.
 * @return the future; value NULL. Rejected: CULVERT_ESYSTEM (native is errno; the message has the
 *         name), CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_chunk_read(culvert_chunk *chunk,
                                                                 culvert_descriptor *descriptor);

/**
 * Writes all bytes of a chunk to a descriptor. A reader that has gone is an error (errno EPIPE), never
 * a SIGPIPE.
 *
 * Parameters, result and errors as culvert_chunk_read. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_chunk_write(culvert_chunk *chunk,
                                                                  culvert_descriptor *descriptor);

/* ------------------------------------------------------------------- drain ---- */

/**
 * Ends the work of a binding in an orderly way: from now on new work gets CULVERT_ESHUTDOWN, and the
 * future returned resolves when what is in flight is over. What follows is culvert_loop_free: a binding
 * that drains takes no new work again, also after the future has settled or was dropped.
 *
 * New is what the program begins outside of Culvert's callbacks: in its own watchers (a request that
 * comes in), or before it runs the loop. What a callback of Culvert begins (a step, a batch, a stage, a
 * post) continues what is in flight, and is taken: a request between decoding, GPU and encoding gets its
 * answer. So a chain that feeds itself for ever, such as one that accepts connections with
 * culvert_readable, has to ask culvert_draining and end.
 *
 * New work that is refused: culvert_work, culvert_seq_submit (and so every operation),
 * culvert_module_load, culvert_semaphore_acquire, culvert_batcher_add, culvert_pipeline_run. Not
 * refused: memory, streams, promises, times, descriptors.
 *
 * In flight is: device work, module loads, jobs of workers, items of batchers, pipelines, descriptors
 * waited for with culvert_writable (an answer that is being written), posts, and callbacks that are to
 * run. Not in flight, as nobody knows when it ends: culvert_readable, culvert_sleep, culvert_timeout,
 * promises, waiters of semaphores, and the program's own watchers. An idle binding drains on the next
 * turn of the loop.
 *
 * @param loop borrowed.
 * @param seconds at most so long, from now; INFINITY: no limit.
 * @return the future; value NULL. Rejected: CULVERT_ETIMEDOUT when the time is up (the message says how
 *         much is still in flight; it goes on); CULVERT_EINVAL (negative or NaN; nothing changes),
 *         CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes; may be called again, each future has a time of its own. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_drain(culvert_loop *loop, double seconds);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_drain_at(const char *where,
                                                               culvert_loop *loop, double seconds);

/**
 * Whether culvert_drain, or culvert_loop_free, has begun: for chains that feed themselves, and for a page
 * that says whether the server is ready.
 *
 * @param loop borrowed.
 * @return 1 or 0; in a child after fork(), 1.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_draining(const culvert_loop *loop);

#ifndef CULVERT_NO_WHERE
#define culvert_semaphore_acquire(...) culvert_semaphore_acquire_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_batcher_add(...)       culvert_batcher_add_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_pipeline_run(...)      culvert_pipeline_run_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_drain(...)             culvert_drain_at(CULVERT_WHERE, __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif
