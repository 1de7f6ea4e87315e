/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file gpu.h
 * GPU work as futures: devices, streams, buffers, kernels, sequences.
 *
 * No CUDA header is needed: driver handles are named by their struct tags, the same types as
 * CUstream, CUcontext and the runtime's cudaStream_t.
 *
 * SEQUENCES. Work is submitted as sequences: a list of operations for one stream that is built, then
 * submitted as a whole, with one future. A sequence fails as a whole: the first error while it is
 * built makes the rest no-ops, nothing is submitted, and its future rejects with that error. A driver
 * error midway rejects after the part that was enqueued is over. Failure travels by culvert_seq_wait
 * and culvert_then, never by stream order.
 *
 * MEMORY. Raw memory given to an operation (`src`, `dst`) is borrowed until the operation's own
 * future settles; buffers are held by the work that uses them, so they may be released at once. A
 * future of device work settles only when that work is over, also when something downstream was
 * cancelled or timed out.
 *
 * NOTHING BLOCKS. No call here blocks the loop's thread, but those marked "start-up". What does not
 * fit into the driver's queues waits in the library, in order.
 *
 * THREADS. All of it belongs to the loop's thread, except what is marked "Thread: any". The calling
 * thread's current CUDA context is the same after each call as before it.
 */
#ifndef CULVERT_GPU_H
#define CULVERT_GPU_H

#include "culvert/error.h"
#include "culvert/future.h"
#include "culvert/version.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

/** A device, as one binding uses it. Since 0.1.0. */
typedef struct culvert_gpu culvert_gpu;
/** A queue of device work, in order. Since 0.1.0. */
typedef struct culvert_stream culvert_stream;
/** Memory of a device, or pinned memory of the host. Since 0.1.0. */
typedef struct culvert_buffer culvert_buffer;
/** Loaded device code. Since 0.1.0. */
typedef struct culvert_module culvert_module;
/** A function of a module that can be launched. Since 0.1.0. */
typedef struct culvert_kernel culvert_kernel;
/** Work for one stream that is being built. Since 0.1.0. */
typedef struct culvert_seq culvert_seq;
/** A compiled sequence. Since 0.1.0. */
typedef struct culvert_graph culvert_graph;

/* ----------------------------------------------------------------- devices ---- */

/** Options of a device. Zero means the default, for each member. Since 0.1.0. */
typedef struct culvert_gpu_options {
    size_t struct_size;    /**< sizeof(culvert_gpu_options) */
    size_t device_reserve; /**< bytes of device memory taken at open; default 0 */
    size_t pinned_reserve; /**< bytes of pinned memory taken at open; default 8 MiB, at least that
                                  much is needed for copies of ordinary memory */
    size_t device_limit;   /**< bytes of device memory at most; default: what the device has */
    size_t pinned_limit;   /**< bytes of pinned memory at most; default 1 GiB */
    unsigned streams;      /**< streams of the pool (culvert_stream_pick) a priority; default 4 */
    /** Borrowed: a context of this device made elsewhere, also a green one (cuCtxFromGreenCtx); NULL: the
        primary context, which the CUDA runtime uses too. Culvert never destroys it, and makes it current
        on threads of its own as well. Whoever made it may destroy it when the device was closed, its last
        stream, buffer and module released, and its work is over (so, at the latest, when
        culvert_loop_free has returned); not after the device was lost. */
    struct CUctx_st *context;
    double stall_seconds; /**< work that is older than this counts as stalled; default 10 */
    /** The device is stalled: a call of the driver has not returned for a second or more (`what` is the
        call: the loop's thread is stuck in it), or submitted work has not ended for stall_seconds
        (`what` is the operation). Called on a thread of the library's own, once for each stall; it
        must not call Culvert or CUDA. */
    void (*on_stall)(const char *what, double seconds, void *arg);
    void *on_stall_arg;  /**< given to on_stall */
    double trim_seconds; /**< when the device has been idle for so long, memory above the reserves
                              that nobody uses goes back to the driver, a piece a turn; default 5;
                              INFINITY: never before the device is closed */
} culvert_gpu_options;

/** Options that mean the defaults. Since 0.1.0. */
#define CULVERT_GPU_OPTIONS_INIT                                               \
    {                                                                          \
        sizeof(culvert_gpu_options), 0, 0, 0, 0, 0, NULL, 0.0, NULL, NULL, 0.0 \
    }

/** The state of a device. Since 0.1.0. */
typedef enum culvert_gpu_health {
    CULVERT_GPU_OK = 0,
    CULVERT_GPU_STALLED =
        1,               /**< see culvert_gpu_options.on_stall; it ends when the work moves on */
    CULVERT_GPU_LOST = 2 /**< a sticky error: everything pending was rejected, new work is too */
} culvert_gpu_health;

/** What a device is. Since 0.1.0. */
typedef struct culvert_gpu_description {
    size_t struct_size;              /**< set by the caller: sizeof(culvert_gpu_description) */
    char name[128];                  /**< as the driver names it */
    char pci_bus_id[32];             /**< domain:bus:device.function; empty if there is none */
    unsigned char uuid[16];          /**< as the driver reports it */
    int ordinal;                     /**< the number it was opened by */
    int simulated;                   /**< 1: the simulated driver, 0: a real one */
    int driver_version;              /**< 1000 x major + 10 x minor, as cuDriverGetVersion */
    char driver[128];                /**< the library that was loaded */
    int compute_major;               /**< compute capability */
    int compute_minor;               /**< compute capability */
    unsigned multiprocessors;        /**< how many */
    unsigned warp_size;              /**< threads */
    unsigned max_threads_per_block;  /**< limit of the product of a block's sizes */
    unsigned max_block[3];           /**< limits of a block's sizes */
    unsigned max_grid[3];            /**< limits of a grid's sizes */
    unsigned max_shared_bytes;       /**< shared memory of a block without opting in */
    unsigned max_shared_optin_bytes; /**< shared memory of a block at most */
    unsigned long long total_bytes;  /**< memory of the device */
    int priority_least;              /**< stream priority of CULVERT_PRIORITY_LOW */
    int priority_greatest;           /**< stream priority of CULVERT_PRIORITY_HIGH */
} culvert_gpu_description;

/**
 * How many devices the driver shows. Opens the driver if it is not open.
 *
 * @param loop borrowed; its options (or CULVERT_DRIVER) name the driver.
 * @param err filled on failure; may be NULL.
 * @return the count, at least 1; or a negative code: CULVERT_ENODRIVER, CULVERT_ENODEVICE,
 *         CULVERT_EINVAL (no such driver name), CULVERT_EDRIVER, CULVERT_ENOMEM, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Start-up: may block. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_gpu_count(culvert_loop *loop, culvert_error *err);

/**
 * Opens a device for a binding.
 *
 * @param loop borrowed.
 * @param ordinal from 0, as the driver counts (CUDA_VISIBLE_DEVICES is the driver's matter).
 * @param options borrowed for the call; NULL for the defaults.
 * @param err filled on failure; may be NULL.
 * @return the device, to be given to culvert_gpu_close; NULL on failure: CULVERT_ENODRIVER,
 *         CULVERT_ENODEVICE (no such ordinal), CULVERT_EINVAL, CULVERT_ENOMEM, CULVERT_EDRIVER,
 *         CULVERT_ESYSTEM (a thread could not be started; native is the errno), CULVERT_EDEVICELOST,
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Where the process has other devices of the driver open, the new one and each of them are given access
 * to each other's memory if the hardware can (see culvert_seq_copy).
 * Thread: loop. Start-up: may block (a context takes up to some 100 ms). Re-entrant: yes.
 * Since 0.1.0.
 */
CULVERT_API culvert_gpu *culvert_gpu_open(culvert_loop *loop, int ordinal,
                                          const culvert_gpu_options *options, culvert_error *err);
CULVERT_API culvert_gpu *culvert_gpu_open_at(const char *where, culvert_loop *loop, int ordinal,
                                             const culvert_gpu_options *options,
                                             culvert_error *err);

/**
 * Gives a device handle up. The device lives until its last stream, buffer and module is gone and
 * what is in flight is over; new work on it rejects with CULVERT_ESHUTDOWN.
 *
 * @param gpu consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_gpu_close(culvert_gpu *gpu);

/**
 * What the device is.
 *
 * @param gpu borrowed.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for a struct_size that is 0 or larger than this library knows;
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_gpu_info(culvert_gpu *gpu, culvert_gpu_description *out);

/**
 * How the device is.
 *
 * @param gpu borrowed.
 * @return one of culvert_gpu_health; in a child after fork(), CULVERT_EFORKED.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_gpu_state(const culvert_gpu *gpu);

/**
 * The binding of a device.
 *
 * @param gpu borrowed.
 * @return borrowed.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_loop *culvert_gpu_loop(culvert_gpu *gpu);

/**
 * Asks to be told, once, that the device is lost.
 *
 * @param gpu borrowed.
 * @param fn called on the loop, on a later turn, after everything pending was rejected; err names the
 *        oldest unfinished operations. If the device is lost already it is called on the next turn.
 * @param arg given to fn.
 * @param arg_free releases arg, once: after fn, or when the device goes; may be NULL.
 * A second call takes the place of the first, whose arg is released.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_gpu_on_lost(culvert_gpu *gpu,
                                     void (*fn)(culvert_gpu *gpu, const culvert_error *err,
                                                void *arg),
                                     void *arg, culvert_free_fn *arg_free);

/* ----------------------------------------------------------------- streams ---- */

/** Priorities of streams: mapped on the range that the device has. Since 0.1.0. */
typedef enum culvert_priority {
    CULVERT_PRIORITY_LOW = -1,
    CULVERT_PRIORITY_NORMAL = 0,
    CULVERT_PRIORITY_HIGH = 1
} culvert_priority;

/** Options of a stream. Zero means the default, for each member. Since 0.1.0. */
typedef struct culvert_stream_options {
    size_t struct_size; /**< sizeof(culvert_stream_options) */
    int priority;       /**< culvert_priority */
    size_t max_queued;  /**< sequences that may wait in the library; one more rejects with
                             CULVERT_EAGAIN. Default: no limit */
} culvert_stream_options;

/** Options that mean the defaults. Since 0.1.0. */
#define CULVERT_STREAM_OPTIONS_INIT          \
    {                                        \
        sizeof(culvert_stream_options), 0, 0 \
    }

/**
 * A stream of one's own. It never synchronises with the legacy default stream.
 *
 * @param gpu borrowed.
 * @param options borrowed for the call; NULL for the defaults.
 * @param err filled on failure; may be NULL.
 * @return the stream, one reference; NULL on failure: CULVERT_EINVAL, CULVERT_ENOMEM,
 *         CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Start-up (creating one takes some 10 us, more while others are busy).
 * Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_stream *
culvert_stream_new(culvert_gpu *gpu, const culvert_stream_options *options, culvert_error *err);
CULVERT_API culvert_stream *culvert_stream_new_at(const char *where, culvert_gpu *gpu,
                                                  const culvert_stream_options *options,
                                                  culvert_error *err);

/**
 * The least loaded stream of the device's pool: none whose first sequence waits for something, if it
 * can. The pool has culvert_gpu_options.streams streams a priority, made when first needed; where the
 * driver gives fewer, those are shared, with a warning to on_log.
 *
 * These streams have no max_queued, as they are everybody's. Who uses them bounds himself before: by a
 * culvert_semaphore or a batcher, or by looking at culvert_stream_queued of what was picked, which is the
 * least there is. Or by streams of one's own (culvert_stream_new).
 *
 * @param gpu borrowed.
 * @param priority culvert_priority.
 * @param err filled on failure; may be NULL.
 * @return a new reference; NULL on failure, as culvert_stream_new.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_stream *culvert_stream_pick(culvert_gpu *gpu, int priority, culvert_error *err);
CULVERT_API culvert_stream *culvert_stream_pick_at(const char *where, culvert_gpu *gpu,
                                                   int priority, culvert_error *err);

/**
 * A stream that was made elsewhere: with the runtime (cudaStream_t is the same type) or by another
 * library, as one that takes sequences.
 *
 * The program may go on putting work of its own there, and it is all in stream order. Of such work
 * Culvert knows the end only through culvert_stream_done; and so much of it may stand there that the
 * next launch of anybody blocks, so Culvert has at most half as many operations of its own in flight
 * as on other streams. Adopt a stream once and share that.
 *
 * @param gpu borrowed.
 * @param native borrowed: it must stay until the last reference is gone and what was submitted is
 *        over; Culvert never destroys it. NULL (or 1) is the legacy default stream, which waits for
 *        blocking streams and makes them wait; 2 is the default stream of the calling thread.
 * @param err filled on failure; may be NULL.
 * @return the stream, one reference; NULL on failure: CULVERT_EINVAL (of another context than the
 *         device's), CULVERT_ENOMEM, CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED. While it is being captured into a graph, what is submitted to it rejects
 *         with CULVERT_EINVAL, and nothing of that is in the graph.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_stream *culvert_stream_adopt(culvert_gpu *gpu, struct CUstream_st *native,
                                                 culvert_error *err);
CULVERT_API culvert_stream *culvert_stream_adopt_at(const char *where, culvert_gpu *gpu,
                                                    struct CUstream_st *native, culvert_error *err);

/**
 * The driver's handle, for libraries that take one.
 *
 * Work put there by others is in stream order, but the library only knows of its end through
 * culvert_stream_done.
 *
 * @param stream borrowed.
 * @return borrowed: valid as long as the stream; NULL after the device was lost or closed.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API struct CUstream_st *culvert_stream_native(culvert_stream *stream);

/**
 * The device of a stream.
 *
 * @param stream borrowed.
 * @return borrowed.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_gpu *culvert_stream_gpu(culvert_stream *stream);

/**
 * How many sequences are at least partly in the driver and not seen to be over.
 *
 * @param stream borrowed.
 * @return the count.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_stream_in_flight(const culvert_stream *stream);

/**
 * How many sequences wait in the library, none of their work in the driver.
 *
 * @param stream borrowed.
 * @return the count.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_stream_queued(const culvert_stream *stream);

/**
 * One more reference.
 *
 * @param stream borrowed.
 * @return the same stream.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_stream *culvert_stream_ref(culvert_stream *stream);

/**
 * One reference less. Work that was submitted goes on.
 *
 * @param stream consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_stream_unref(culvert_stream *stream);

/**
 * Resolves when all work so far is over, whoever put it there.
 *
 * @param stream borrowed.
 * @return the future; value NULL. Rejected: CULVERT_EDEVICELOST, CULVERT_ENOMEM, CULVERT_EAGAIN,
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED, CULVERT_EINVAL (the stream is being captured by somebody).
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_stream_done(culvert_stream *stream);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_stream_done_at(const char *where,
                                                                     culvert_stream *stream);

/**
 * Resolves when the work before an event of the program's own is over: the record that the event has
 * at the time of this call. The event may be recorded again, or destroyed, at once.
 *
 * Such futures do not wait for one another. At most 64 a device may be pending.
 *
 * @param gpu borrowed.
 * @param event borrowed for the call. One that was never recorded counts as over.
 * @return the future; value NULL. Rejected: CULVERT_EINVAL (it was recorded on a stream that was being
 *         captured; asking about that may end the capture), CULVERT_EAGAIN (64 are pending),
 *         CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_event_done(culvert_gpu *gpu,
                                                                 struct CUevent_st *event);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_event_done_at(const char *where, culvert_gpu *gpu, struct CUevent_st *event);

/* ----------------------------------------------------------------- buffers ---- */

/**
 * Memory of the device, 256-byte aligned, contents undefined.
 *
 * @param gpu borrowed.
 * @param bytes 0 is allowed.
 * @param err filled on failure; may be NULL.
 * @return the buffer, one reference; NULL on failure: CULVERT_ENOMEM (the message has the figures),
 *         CULVERT_EOVERFLOW, CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Start-up: blocks about a millisecond when the heap has to grow. Re-entrant: yes.
 * Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_buffer_new(culvert_gpu *gpu, size_t bytes, culvert_error *err);
CULVERT_API culvert_buffer *culvert_buffer_new_at(const char *where, culvert_gpu *gpu, size_t bytes,
                                                  culvert_error *err);

/**
 * Pinned memory of the host, 256-byte aligned, contents undefined: the device copies to and from it
 * at full speed, without staging.
 *
 * So does every other device that the process has opened with the same driver: as a culvert_buffer it may
 * be source, destination and argument in the work of any of them, which holds it. By its mere address
 * (culvert_buffer_data as src or dst) it is known to the culvert_gpu alone that it was made for; in the
 * work of another it is staged, as ordinary memory is.
 *
 * Parameters, result, errors and thread as culvert_buffer_new. Start-up: blocks 0.5 ms for each MB by
 * which the pool has to grow. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_host_buffer_new(culvert_gpu *gpu, size_t bytes,
                                                    culvert_error *err);
CULVERT_API culvert_buffer *culvert_host_buffer_new_at(const char *where, culvert_gpu *gpu,
                                                       size_t bytes, culvert_error *err);

/**
 * Memory of the device, as culvert_buffer_new, in service: the call neither waits nor calls the driver.
 *
 * If the heap has no free range that is large enough, the request waits for memory that work in flight
 * gives back and for the heap to grow, a step a turn. Requests for device memory are served first come
 * first served, and so are those for pinned memory: a large one is not passed by. It rejects with
 * CULVERT_ENOMEM when nothing in flight on this binding can give memory back (sequences of the device,
 * jobs of culvert_work, module loads), or when all of it that was in flight is over and the memory in use
 * has not become less: before, blocks that nobody uses are given back to the driver and one more attempt
 * is made, if the device is idle for a moment. It is not known what the program itself holds and will
 * release later; a culvert_semaphore bounds that.
 *
 * @param gpu borrowed.
 * @param bytes 0 is allowed.
 * @return the future; its value is a culvert_buffer * (one reference: take it, or take a reference by
 *         keeping the future). Cancelling takes a waiting request out of the line. Rejected:
 *         CULVERT_ENOMEM (the message has the figures; at once where it is above device_limit or more
 *         than the device has), CULVERT_EOVERFLOW, CULVERT_EDRIVER, CULVERT_EDEVICELOST,
 *         CULVERT_ESHUTDOWN (also while it waits, when the device is closed), CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_buffer_alloc(culvert_gpu *gpu, size_t bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_buffer_alloc_at(const char *where, culvert_gpu *gpu, size_t bytes);

/**
 * Pinned memory of the host, as culvert_host_buffer_new, in service: see culvert_buffer_alloc. The pool
 * grows by 1 MiB a turn of the loop.
 *
 * A buffer of more than 1 MiB that came about by growing is pinned in pieces of 1 MiB. Culvert copies and
 * fills such memory piece by piece, and kernels reach all of it; code that gives its address to the
 * driver by itself (culvert_seq_call) must not copy over multiples of 1 MiB in one call. Memory of the
 * reserve (culvert_gpu_options.pinned_reserve) comes by 1 MiB too, so larger buffers that are to be whole
 * are made at start-up, by culvert_host_buffer_new.
 *
 * Parameters, result, errors and thread as culvert_buffer_alloc. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_host_buffer_alloc(culvert_gpu *gpu,
                                                                        size_t bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_host_buffer_alloc_at(const char *where, culvert_gpu *gpu, size_t bytes);

/**
 * Device memory that somebody else has made (cudaMalloc, another library), as a buffer.
 *
 * @param gpu borrowed.
 * @param address of the device's memory; the driver is asked whether it is.
 * @param bytes 0 is allowed.
 * @param owner whose memory it is; given to owner_free. On failure it is released at once.
 * @param owner_free called once, on the loop on a later turn, when the last reference and the last
 *        work that uses the buffer are gone; on the releasing thread if the binding is gone. Not called
 *        where the device may still use the memory for ever (it was lost, or the binding was taken down
 *        behind work that does not end). May be NULL.
 * @param err filled on failure; may be NULL.
 * @return the buffer, one reference; NULL on failure: CULVERT_EINVAL (no device memory, or another
 *         device's), CULVERT_EOVERFLOW, CULVERT_ENOMEM, CULVERT_EDRIVER, CULVERT_EDEVICELOST,
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_buffer_adopt(culvert_gpu *gpu, unsigned long long address,
                                                 size_t bytes, void *owner,
                                                 culvert_free_fn *owner_free, culvert_error *err);
CULVERT_API culvert_buffer *culvert_buffer_adopt_at(const char *where, culvert_gpu *gpu,
                                                    unsigned long long address, size_t bytes,
                                                    void *owner, culvert_free_fn *owner_free,
                                                    culvert_error *err);

/**
 * Pins ordinary memory of the program where it is, as a host buffer: copies of it are direct, also by
 * its raw address, as long as they lie in it as a whole (what only overlaps it is staged).
 *
 * A staged copy and a direct one of the same bytes are not put in order by their stream: where a copy
 * crosses the ends of the registered memory, and another one lies within it, let the second begin after
 * the future of the first has settled (culvert_seq_wait does not do, culvert_then does).
 *
 * It is pinned in pieces: of 16 MiB while the device is idle, else of 1 MiB; see
 * culvert_host_buffer_alloc for what that means. Failing leaves ordinary memory, which copies well by
 * staging. It does not count for pinned_limit.
 *
 * Unpinning waits for the kernels that run, so it is put off until the device is idle, and the memory
 * must stay until then: until culvert_host_unregister resolves; or, where the buffer is just released,
 * until all handles of the device are closed and everything that ran there is over.
 *
 * @param gpu borrowed.
 * @param memory the program's, of any alignment. Not registered already, by whomever.
 * @param bytes 0 is allowed.
 * @param err filled on failure; may be NULL.
 * @return the buffer, one reference; NULL on failure: CULVERT_EINVAL, CULVERT_EOVERFLOW, CULVERT_ENOMEM,
 *         CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Start-up: blocks 60 to 400 us a MB. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_host_register(culvert_gpu *gpu, void *memory, size_t bytes,
                                                  culvert_error *err);
CULVERT_API culvert_buffer *culvert_host_register_at(const char *where, culvert_gpu *gpu,
                                                     void *memory, size_t bytes,
                                                     culvert_error *err);

/**
 * Ends what culvert_host_register began.
 *
 * @param gpu borrowed: the device it was registered on.
 * @param buffer consumed, in any case.
 * @return the future; value NULL. It resolves when the last reference is gone, the device was idle for
 *         a moment and the memory is ordinary again: now it may be freed. Cancelling it changes nothing
 *         for the memory, which then must stay. Rejected: CULVERT_EINVAL (not of culvert_host_register, or
 *         called before), CULVERT_ENOMEM, CULVERT_EDEVICELOST (the memory stays registered),
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_host_unregister(culvert_gpu *gpu,
                                                                      culvert_buffer *buffer);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_host_unregister_at(const char *where, culvert_gpu *gpu, culvert_buffer *buffer);

/** The memory of a device that one handle has: see culvert_gpu_memory. Since 0.1.0. */
typedef struct culvert_gpu_memory_counters {
    size_t struct_size;  /**< set by the caller: sizeof(culvert_gpu_memory_counters) */
    size_t device_taken; /**< bytes of device memory taken from the driver */
    size_t device_used;  /**< bytes of these that buffers and scratch have */
    size_t device_limit; /**< as culvert_gpu_options.device_limit; 0: none */
    size_t pinned_taken; /**< bytes of pinned memory taken from the driver */
    size_t pinned_used;  /**< bytes of these that host buffers and staging have */
    size_t pinned_limit; /**< as culvert_gpu_options.pinned_limit */
    size_t registered;   /**< bytes of the program's memory that are pinned */
    size_t waiting;      /**< requests that wait for memory now */
    uint64_t waited;     /**< requests that had to wait, so far */
    uint64_t rejected;   /**< of these, with CULVERT_ENOMEM */
    uint64_t grown;      /**< steps by which memory grew for them */
    uint64_t trimmed;    /**< blocks that went back to the driver before the end */
} culvert_gpu_memory_counters;

/**
 * How much memory there is, and who waits.
 *
 * @param gpu borrowed.
 * @param out filled; its struct_size must be set.
 * @return CULVERT_OK; CULVERT_EINVAL for a struct_size that is 0 or larger than this library knows;
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_gpu_memory(culvert_gpu *gpu, culvert_gpu_memory_counters *out);

/**
 * The size of a buffer.
 *
 * @param buffer borrowed.
 * @return bytes, as asked for.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_buffer_size(const culvert_buffer *buffer);

/**
 * The host address of a host buffer.
 *
 * @param buffer borrowed.
 * @return borrowed: valid as long as the buffer; NULL for a buffer of the device.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void *culvert_buffer_data(const culvert_buffer *buffer);

/**
 * The device address of a buffer (of a host buffer too: what a kernel uses to reach it).
 *
 * @param buffer borrowed.
 * @return the address.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API unsigned long long culvert_buffer_address(const culvert_buffer *buffer);

/**
 * One more reference.
 *
 * @param buffer borrowed.
 * @return the same buffer.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_buffer_ref(culvert_buffer *buffer);

/**
 * One reference less. The memory is used again when the last work that uses it is over.
 *
 * @param buffer consumed; NULL does nothing.
 * Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_buffer_unref(culvert_buffer *buffer);

/* ----------------------------------------------------------------- kernels ---- */

/** Device code built into the program by culvert_add_kernels. Since 0.1.0. */
typedef struct culvert_image {
    size_t struct_size;     /**< sizeof(culvert_image) */
    const char *name;       /**< for messages */
    const void *fatbin;     /**< for a real device; NULL: built without nvcc */
    size_t fatbin_bytes;    /**< its size */
    const void *sim_module; /**< for the simulator; NULL: not built for it */
} culvert_image;

/**
 * Loads device code. It runs on a thread of the device's own, but the driver stalls launches
 * meanwhile (until running kernels end): load before service begins.
 *
 * @param gpu borrowed.
 * @param image borrowed: it must live as long as the module (it is static when made by
 *        culvert_add_kernels).
 * @return the future; its value is a culvert_module * (one reference: take it, or take a reference by
 *         keeping the future). Its kernels are loaded eagerly (those of an image that was not made by
 *         culvert_add_kernels when culvert_module_kernel first names them). Rejected: CULVERT_EINVAL
 *         (not an image, or not all of it), CULVERT_ENOTSUP (not built for this device or driver, or its
 *         PTX does not compile; the message has what the image has code for, the versions, and the
 *         first line of the driver's log, of which the rest goes to on_log), CULVERT_ENOMEM, CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN,
 *         CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_module_load(culvert_gpu *gpu,
                                                                  const culvert_image *image);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_module_load_at(const char *where, culvert_gpu *gpu, const culvert_image *image);

/**
 * A kernel of a module.
 *
 * @param module borrowed.
 * @param name borrowed: the function's name (extern "C" in the source, and for the simulator followed by
 *        CULVERT_KERNEL: a GPU finds it without, the simulator does not).
 * @param err filled on failure; may be NULL.
 * @return borrowed: it lives as long as the module; NULL on failure: CULVERT_EINVAL (no such kernel;
 *         the message has the module's name), CULVERT_ENOMEM, CULVERT_EDRIVER, CULVERT_EDEVICELOST,
 *         CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_kernel *culvert_module_kernel(culvert_module *module, const char *name,
                                                  culvert_error *err);
CULVERT_API culvert_kernel *culvert_module_kernel_at(const char *where, culvert_module *module,
                                                     const char *name, culvert_error *err);

/**
 * A __device__ or __constant__ variable of a module, as a buffer: to be copied to and from, filled, or
 * given to a kernel. It is what the kernels of this module see; another module of the same image has
 * variables of its own (on the simulator all share one).
 *
 * @param module borrowed; the buffer holds it.
 * @param name borrowed: the variable's name, at file scope and not static; for the simulator the
 *        source marks it with CULVERT_GLOBAL.
 * @param err filled on failure; may be NULL.
 * @return the buffer, one reference, of the variable's size; NULL on failure: CULVERT_EINVAL (no such
 *         variable; the message has the module's name), CULVERT_ENOMEM, CULVERT_EDRIVER,
 *         CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED. It is released as any buffer; after
 *         culvert_loop_free on the loop's thread only, for it holds the module.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_module_global(culvert_module *module, const char *name,
                                                  culvert_error *err);
CULVERT_API culvert_buffer *culvert_module_global_at(const char *where, culvert_module *module,
                                                     const char *name, culvert_error *err);

/**
 * The size of a block with which most of the device's threads run at once.
 *
 * @param kernel borrowed.
 * @param shared_bytes dynamic shared memory of a block.
 * @param blocks filled on success: how many blocks of that size run at once on the device, so a grid
 *        that is smaller leaves a part of it idle. NULL allowed.
 * @param threads filled on success: the size. NULL allowed.
 * @return CULVERT_OK; CULVERT_EINVAL (more shared memory than a block of this kernel can have),
 *         CULVERT_EDRIVER, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_kernel_occupancy(culvert_kernel *kernel, size_t shared_bytes,
                                         unsigned *blocks, unsigned *threads);

/**
 * How many blocks of a given size run at once on the device: the most that a cooperative launch may
 * have.
 *
 * @param kernel borrowed.
 * @param threads of a block, all of them.
 * @param shared_bytes dynamic shared memory of a block.
 * @param blocks filled on success.
 * @return as culvert_kernel_occupancy; CULVERT_EINVAL also for 0 threads, and for more than a block
 *         of this kernel can have.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_kernel_max_blocks(culvert_kernel *kernel, unsigned threads,
                                          size_t shared_bytes, unsigned *blocks);

/**
 * One reference less. Work that was submitted holds the module until it is over.
 *
 * @param module consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_module_unref(culvert_module *module);

/** How a kernel is launched. Since 0.1.0. */
typedef struct culvert_grid {
    unsigned blocks[3];  /**< zero y or z means 1; blocks[0] == 0: nothing to do, which succeeds in
                                stream order */
    unsigned threads[3]; /**< of a block; zero y or z means 1; threads[0] == 0: CULVERT_EINVAL */
    unsigned shared_bytes; /**< dynamic shared memory of a block, up to what the device has
                                (culvert_gpu_description.max_shared_optin_bytes) */
    unsigned flags;        /**< CULVERT_GRID_COOPERATIVE, or 0 */
    unsigned
        cluster[3]; /**< blocks of a cluster, at most 8 in all, of which the grid is a multiple;
                                zero y or z means 1; 0, 0, 0: no clusters. Compute capability 9.0 */
    unsigned reserved[3]; /**< 0 */
} culvert_grid;

/** All blocks of the launch run at once, so that they may wait for each other. More than fit on the
    device (culvert_kernel_max_blocks) are CULVERT_EINVAL. Since 0.1.0. */
#define CULVERT_GRID_COOPERATIVE 1u

/** What a culvert_arg is. Since 0.1.0. */
typedef enum culvert_arg_kind {
    CULVERT_ARG_INLINE = 1, /**< a value of at most 8 bytes, in `value` */
    CULVERT_ARG_COPY = 2,   /**< `bytes` bytes at `data`, copied at the call */
    CULVERT_ARG_BUFFER = 3, /**< the device address of `buffer` + `offset`; the work holds it */
    CULVERT_ARG_HOST = 4    /**< in a culvert_bind: pinned memory of the host, at `data` */
} culvert_arg_kind;

/** An argument of a kernel; made by the macros below. Since 0.1.0. */
typedef struct culvert_arg {
    unsigned kind;          /**< culvert_arg_kind */
    unsigned bytes;         /**< size of the value */
    const void *data;       /**< CULVERT_ARG_COPY, CULVERT_ARG_HOST */
    culvert_buffer *buffer; /**< CULVERT_ARG_BUFFER; NULL: a null pointer */
    size_t offset;          /**< CULVERT_ARG_BUFFER: in bytes */
    unsigned char value[8]; /**< CULVERT_ARG_INLINE */
} culvert_arg;

/* ----------------------------------------------------------------- sequences -- */

/**
 * Begins a sequence.
 *
 * @param stream borrowed; the sequence holds it.
 * @return the sequence, to be consumed by culvert_seq_submit or culvert_seq_drop. Never NULL: where it
 *         could not be made, the error comes with the future of culvert_seq_submit.
 * Errors: none here. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_seq *culvert_seq_begin(culvert_stream *stream);
CULVERT_API CULVERT_NODISCARD culvert_seq *culvert_seq_begin_at(const char *where,
                                                                culvert_stream *stream);

/**
 * The sequence starts only when a future has resolved; if that rejects, so does the sequence, with the
 * same error, and (but for the case below) none of it runs.
 *
 * Where `future` is the own future of a sequence (or a culvert_all of such) that is wholly in the
 * driver and owes no work to the host, the device waits, without a detour through the loop. Otherwise
 * the sequence is held in the library, and later ones of its stream behind it. Where the device waits
 * and the awaited work fails, this sequence has run, and rejects.
 *
 * A sequence owes work to the host if it downloads into ordinary memory: the device's part ends in
 * pinned memory of the library, and the library copies from there to dst afterwards, when it has seen
 * that end. The end on the device is then not the end of the sequence, so the device must not go on by
 * itself: what waits may read dst. Downloads into host buffers owe nothing.
 *
 * @param seq borrowed.
 * @param future consumed; of the same binding (else CULVERT_EINVAL).
 * Errors: with the future of culvert_seq_submit. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_wait(culvert_seq *seq, culvert_future *future);
CULVERT_API void culvert_seq_wait_at(const char *where, culvert_seq *seq, culvert_future *future);

/**
 * Copies from the host's memory into a buffer.
 *
 * @param seq borrowed.
 * @param dst borrowed for the call; held by the work.
 * @param dst_offset in bytes.
 * @param src borrowed until the sequence's future settled: it is read at any time between submit and
 *        then, and must not change meanwhile. Ordinary memory is staged through pinned memory of the
 *        library; the data of a host buffer is copied from directly. Of such a pointer no buffer is
 *        known: neither is the buffer held, nor is checked where it ends (of culvert_host_register
 *        alone it is held, and what runs past its end is staged). culvert_seq_copy does both.
 * @param bytes 0 is allowed (src may then be NULL).
 * Errors, with the future of culvert_seq_submit: CULVERT_EINVAL (runs past the end of the buffer, a
 * buffer of another device, src is NULL), CULVERT_EOVERFLOW, CULVERT_ENOMEM. Thread: loop.
 * Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_upload(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset,
                                    const void *src, size_t bytes);
CULVERT_API void culvert_seq_upload_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                                       size_t dst_offset, const void *src, size_t bytes);

/**
 * Copies from a buffer into the host's memory.
 *
 * @param seq borrowed.
 * @param dst borrowed until the sequence's future settled, on every path: it may be written until
 *        then, and holds the result when the future resolved. The data of a host buffer: as of
 *        culvert_seq_upload's src.
 * @param src borrowed for the call; held by the work.
 * @param src_offset in bytes.
 * @param bytes 0 is allowed (dst may then be NULL).
 * Errors, thread, re-entrancy: as culvert_seq_upload. Since 0.1.0.
 */
CULVERT_API void culvert_seq_download(culvert_seq *seq, void *dst, culvert_buffer *src,
                                      size_t src_offset, size_t bytes);
CULVERT_API void culvert_seq_download_at(const char *where, culvert_seq *seq, void *dst,
                                         culvert_buffer *src, size_t src_offset, size_t bytes);

/**
 * Copies from one buffer to another, device or host on either side.
 *
 * One side may be memory of another device of the same driver, if the other side is device memory of
 * the sequence's own: the copy is then work of the sequence's device, in its stream's order, and what
 * the other device does is ordered with it by culvert_seq_wait alone. The sequence holds the buffer
 * of the other device until it is over, on whichever loop that device was opened; closing the other
 * device does not take the memory away. Where the devices can reach each other the copy is direct
 * (culvert_gpu_open sees to that, once a pair), and otherwise the driver takes it through the host.
 * If either device is lost before the end the sequence rejects with CULVERT_EDEVICELOST; if only the
 * other one is, the sequence's device goes on. Such a copy cannot be compiled.
 *
 * @param seq borrowed.
 * @param dst,src borrowed for the call; held by the work. Ranges of one buffer must not overlap.
 * @param dst_offset,src_offset in bytes.
 * @param bytes 0 is allowed.
 * Errors, thread, re-entrancy: as culvert_seq_upload; CULVERT_EINVAL too where neither buffer is
 * device memory of the sequence's own device. Since 0.1.0.
 */
CULVERT_API void culvert_seq_copy(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset,
                                  culvert_buffer *src, size_t src_offset, size_t bytes);
CULVERT_API void culvert_seq_copy_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                                     size_t dst_offset, culvert_buffer *src, size_t src_offset,
                                     size_t bytes);

/**
 * A pitched copy: `height` rows of `width` bytes, each `pitch` bytes behind the one before, on either
 * side. Members that are not named mean 0. Since 0.1.0.
 */
typedef struct culvert_copy2d {
    culvert_buffer *dst; /**< device or host buffer */
    size_t dst_offset;   /**< of its first row, in bytes */
    size_t dst_pitch;    /**< bytes from row to row: at least width, and within the
                              device's limit (2^31 - 1) */
    culvert_buffer *src; /**< device or host buffer */
    size_t src_offset;   /**< of its first row, in bytes */
    size_t src_pitch;    /**< as dst_pitch */
    size_t width;        /**< bytes of a row */
    size_t height;       /**< rows */
    size_t reserved[2];  /**< 0 */
} culvert_copy2d;

/**
 * Copies a rectangle: rows that lie apart in one of the buffers or in both. Bytes between the rows of
 * dst stay as they are.
 *
 * @param seq borrowed.
 * @param copy borrowed for the call; its buffers are held by the work. Rectangles of one buffer must
 *        not overlap; where they have different pitches, neither must the ranges of bytes from first to
 *        last. Width 0 or height 0 is nothing to do, which succeeds in stream order.
 * Errors, with the future of culvert_seq_submit: CULVERT_EINVAL (a pitch is less than the width, 0
 * included, or above the device's limit; runs past the end of a buffer; overlaps; a buffer of another
 * device), CULVERT_EOVERFLOW, CULVERT_ENOMEM. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_copy2d(culvert_seq *seq, const culvert_copy2d *copy);
CULVERT_API void culvert_seq_copy2d_at(const char *where, culvert_seq *seq,
                                       const culvert_copy2d *copy);

/**
 * Fills part of a buffer with a pattern.
 *
 * @param seq borrowed.
 * @param dst borrowed for the call; held by the work.
 * @param dst_offset in bytes; a multiple of pattern_bytes.
 * @param bytes a multiple of pattern_bytes; 0 is allowed.
 * @param pattern its lowest pattern_bytes bytes, lowest byte first.
 * @param pattern_bytes 1, 2 or 4.
 * Errors, thread, re-entrancy: as culvert_seq_upload. Since 0.1.0.
 */
CULVERT_API void culvert_seq_fill(culvert_seq *seq, culvert_buffer *dst, size_t dst_offset,
                                  size_t bytes, uint32_t pattern, unsigned pattern_bytes);
CULVERT_API void culvert_seq_fill_at(const char *where, culvert_seq *seq, culvert_buffer *dst,
                                     size_t dst_offset, size_t bytes, uint32_t pattern,
                                     unsigned pattern_bytes);

/**
 * Launches a kernel.
 *
 * @param seq borrowed.
 * @param kernel borrowed for the call; its module is held by the work. Loaded by the stream's binding
 *        and device (else CULVERT_EINVAL).
 * @param grid borrowed for the call.
 * @param args,nargs borrowed for the call, values copied; normally CULVERT_ARGS(...), or NULL, 0 for a
 *        kernel without parameters. Count and sizes are checked where the driver tells them.
 * Errors, with the future of culvert_seq_submit: CULVERT_EINVAL (a limit of the device or kernel, with
 * the figures; wrong number or size of arguments; a buffer of another device), CULVERT_ENOMEM.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_launch(culvert_seq *seq, culvert_kernel *kernel,
                                    const culvert_grid *grid, const culvert_arg *args,
                                    size_t nargs);
CULVERT_API void culvert_seq_launch_at(const char *where, culvert_seq *seq, culvert_kernel *kernel,
                                       const culvert_grid *grid, const culvert_arg *args,
                                       size_t nargs);

/** How many driver operations a culvert_seq_call counts as, unless culvert_seq_call_weighted says. */
#define CULVERT_CALL_WEIGHT 16

/**
 * Calls a function that puts work of its own on the stream: cuBLAS, cuFFT, NCCL, own launches.
 *
 * @param seq borrowed.
 * @param enqueue called once, on the loop's thread, during culvert_seq_submit or later, with the
 *        device's context current, in the thread's normal capture mode. It must not block, and must
 *        call Culvert's functions marked "Thread: any" only. It returns 0, or a CUresult or the
 *        library's status: the sequence then rejects with CULVERT_EDRIVER and that as `native`.
 * @param arg given to enqueue.
 * @param arg_free releases arg, once: after the work is over, or if enqueue will not be called; may be
 *        NULL.
 * Errors: with the future of culvert_seq_submit. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_call(culvert_seq *seq, int (*enqueue)(struct CUstream_st *, void *arg),
                                  void *arg, culvert_free_fn *arg_free);
CULVERT_API void culvert_seq_call_at(const char *where, culvert_seq *seq,
                                     int (*enqueue)(struct CUstream_st *, void *arg), void *arg,
                                     culvert_free_fn *arg_free);

/**
 * As culvert_seq_call, for a function that enqueues more or less than CULVERT_CALL_WEIGHT launches,
 * copies and fills.
 *
 * @param weight how many at most; 1 to 256.
 * Errors: CULVERT_EINVAL for another weight; else as culvert_seq_call. Since 0.1.0.
 */
CULVERT_API void culvert_seq_call_weighted(culvert_seq *seq,
                                           int (*enqueue)(struct CUstream_st *, void *arg),
                                           void *arg, culvert_free_fn *arg_free, unsigned weight);
CULVERT_API void culvert_seq_call_weighted_at(const char *where, culvert_seq *seq,
                                              int (*enqueue)(struct CUstream_st *, void *arg),
                                              void *arg, culvert_free_fn *arg_free,
                                              unsigned weight);

/**
 * Device memory for this sequence alone. It is the library's again when the sequence is over. Takes
 * about a millisecond when the heap has to grow: culvert_gpu_options.device_reserve avoids that.
 *
 * @param seq borrowed.
 * @param bytes 0 is allowed.
 * @return borrowed: valid until the sequence's future settled; NULL where there is no memory (the
 *         sequence then rejects with CULVERT_ENOMEM; operations on NULL after it are no-ops).
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API culvert_buffer *culvert_seq_scratch(culvert_seq *seq, size_t bytes);
CULVERT_API culvert_buffer *culvert_seq_scratch_at(const char *where, culvert_seq *seq,
                                                   size_t bytes);

/**
 * Holds a buffer that only the work of a culvert_seq_call names.
 *
 * @param seq borrowed.
 * @param buffer borrowed for the call; held until the work is over.
 * Errors: with the future of culvert_seq_submit. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_use(culvert_seq *seq, culvert_buffer *buffer);
CULVERT_API void culvert_seq_use_at(const char *where, culvert_seq *seq, culvert_buffer *buffer);

/**
 * Gives the sequence something to release when it is over: the owner of a `src` or `dst`.
 *
 * @param seq borrowed.
 * @param obj owned by the sequence from now on.
 * @param obj_free called once with it, on the loop, after the work is over and the callbacks attached
 *        to the sequence's own future have run; at once if nothing was submitted. What stands behind a
 *        culvert_timeout, another step or a set runs later and must not use it: read the result in a
 *        culvert_then on the own future, and put the time-out around that.
 * Errors: with the future of culvert_seq_submit (obj is then released). Thread: loop. Re-entrant: yes.
 * Since 0.1.0.
 */
CULVERT_API void culvert_seq_keep(culvert_seq *seq, void *obj, culvert_free_fn *obj_free);
CULVERT_API void culvert_seq_keep_at(const char *where, culvert_seq *seq, void *obj,
                                     culvert_free_fn *obj_free);

/**
 * Asks for the device time of this sequence: culvert_gpu_seconds of its future.
 *
 * @param seq borrowed.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_timed(culvert_seq *seq);

/**
 * Submits a sequence: it takes its place in the stream now. An empty one succeeds in stream order.
 *
 * Cancelling the future before any of the sequence is in the driver takes it out of the stream. After
 * that the future settles with the real outcome when the work is over; of a long sequence that is not
 * wholly in the driver the rest is left out, and it rejects with CULVERT_ECANCELED.
 *
 * From here on until it has settled the sequence keeps ev_run from returning, also while it is held in
 * the library. One that waits for a bare promise, which by itself keeps nothing alive, does so until
 * somebody settles the promise or cancels the sequence. One that is being built counts for nothing.
 *
 * @param seq consumed.
 * @return the future; value NULL. Rejected: the first error of building it; CULVERT_EAGAIN
 *         (max_queued), CULVERT_EDEVICELOST, CULVERT_ENOMEM, CULVERT_ESHUTDOWN, CULVERT_EFORKED at
 *         once; CULVERT_EDRIVER, CULVERT_EINVAL or what it waited for later.
 * Thread: loop. Re-entrant: yes; no callback but those of culvert_seq_call runs inside. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_seq_submit(culvert_seq *seq);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_seq_submit_at(const char *where,
                                                                    culvert_seq *seq);

/* ------------------------------------------------------------------ graphs ---- */

/**
 * What a launch of a graph changes, for itself alone, of what was compiled: an argument of a kernel, or
 * where a copy or fill goes to or comes from. Since 0.1.0.
 */
typedef struct culvert_bind {
    unsigned op; /**< which operation: its position in the compiled sequence, from 0. Uploads,
                            downloads, copies, fills, launches, calls and graphs count, also those of
                            no bytes or blocks; waits, scratch, use and keep do not */
    unsigned
        index; /**< of a launch: the argument, from 0; else 0: the destination, 1: the source */
    culvert_arg
        value; /**< of a launch: as in CULVERT_ARGS, of the same size. Else CULVERT_BUFFER or
                            CULVERT_BUFFER_AT, of the same kind (device or host) as was compiled; or
                            CULVERT_HOST, pinned memory, for the host's side of an upload or download */
} culvert_bind;

/**
 * Compiles a sequence into a graph, which the driver launches as one: much cheaper than its operations
 * one by one, and as often as one likes. Nothing of it runs now. It may take milliseconds, on a thread
 * of the device's own, while the loop goes on.
 *
 * What goes on being used by the graph: its buffers and kernels, which it holds; what culvert_seq_keep
 * was given, which is released when the graph is gone; and host memory that uploads and downloads name,
 * which is borrowed until then. A culvert_seq_call is called once, inside this call, on a private stream
 * that is being captured: what it puts there is part of the graph (a host function: once each launch).
 * Runs share scratch memory, so a graph with culvert_seq_scratch has one run at a time. With
 * culvert_seq_timed, each culvert_graph_launch is timed.
 *
 * @param seq consumed.
 * @return the future; its value is a culvert_graph * (one reference: take it, or keep the future).
 *         Rejected: the first error of building it; CULVERT_EINVAL (it has a culvert_seq_wait, an upload
 *         or download of ordinary memory, or scratch for which the heap had to grow); CULVERT_EDRIVER
 *         (also where a function of culvert_seq_call fails, or puts there what cannot be captured),
 *         CULVERT_ENOMEM, CULVERT_ESYSTEM, CULVERT_EDEVICELOST, CULVERT_ESHUTDOWN, CULVERT_EFORKED.
 * Thread: loop. Re-entrant: yes; no callback but those of culvert_seq_call runs inside. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_seq_compile(culvert_seq *seq);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_seq_compile_at(const char *where,
                                                                     culvert_seq *seq);

/**
 * A launch of a graph as an operation of a sequence, on any stream of the device and binding.
 *
 * Runs on several streams go side by side: the graph has an instance for each, made when first needed,
 * on the device's own thread (the sequence, and later ones of its stream, are held meanwhile), at most
 * 16. A run has what it was given here whatever is launched later. In a sequence that is compiled, the
 * graph's operations become part of that.
 *
 * @param seq borrowed.
 * @param graph borrowed for the call; held by the work.
 * @param binds,nbinds borrowed for the call, values copied; NULL, 0 for none. What is not bound is as it
 *        was compiled. Buffers are held by the work; memory given by CULVERT_HOST is borrowed until the
 *        sequence's future settled. The last of several for the same place counts.
 * Errors, with the future of culvert_seq_submit: CULVERT_EINVAL (another device or binding than the
 * stream's; no such operation or argument; a bind of a culvert_seq_call, of a pitched copy, of a graph in
 * the graph or of an operation with nothing to do; another size of argument or kind of memory; past the
 * end of a buffer; an overlap; memory that is not pinned), CULVERT_EOVERFLOW, CULVERT_ENOMEM.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_graph(culvert_seq *seq, culvert_graph *graph,
                                   const culvert_bind *binds, size_t nbinds);
CULVERT_API void culvert_seq_graph_at(const char *where, culvert_seq *seq, culvert_graph *graph,
                                      const culvert_bind *binds, size_t nbinds);

/**
 * One launch of a graph: a sequence of a culvert_seq_graph.
 *
 * @param stream borrowed.
 * @param graph,binds,nbinds as of culvert_seq_graph.
 * @return the future, as culvert_seq_submit.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_graph_launch(culvert_stream *stream,
                                                                   culvert_graph *graph,
                                                                   const culvert_bind *binds,
                                                                   size_t nbinds);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_graph_launch_at(const char *where, culvert_stream *stream, culvert_graph *graph,
                        const culvert_bind *binds, size_t nbinds);

/**
 * One reference less. Work that was submitted holds the graph until it is over.
 *
 * @param graph consumed; NULL does nothing.
 * Errors: none. Thread: loop, also after culvert_loop_free. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_graph_unref(culvert_graph *graph);

/**
 * Gives a sequence up; nothing was submitted.
 *
 * @param seq consumed; NULL does nothing.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_seq_drop(culvert_seq *seq);

/**
 * The device time of a sequence that was asked for (culvert_seq_timed).
 *
 * @param future borrowed; the own future of a sequence.
 * @return seconds between the start of its first operation and the end of its last; NaN if it is not
 *         resolved, was not timed, or is not a sequence's.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API double culvert_gpu_seconds(const culvert_future *future);

/**
 * The device time from the start of one timed sequence to the end of another, on whatever streams.
 *
 * @param from borrowed; the own future of a sequence of the same culvert_gpu as `to`.
 * @param to borrowed; likewise.
 * @return seconds; negative where `to` ended before `from` began; of one and the same sequence its
 *         culvert_gpu_seconds. NaN where either is not resolved, was not timed, or is not a
 *         sequence's, and for two culvert_gpus.
 * Errors: none. Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API double culvert_gpu_elapsed(const culvert_future *from, const culvert_future *to);

/* ------------------------------------------------------- one at a time ---- */

/**
 * One operation as a sequence of its own: parameters as of the culvert_seq_ function of the same
 * name, with the stream (borrowed) first; result and errors as culvert_seq_submit. An error names the
 * culvert_seq_ function as its `op`.
 * Thread: loop. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_upload(culvert_stream *stream,
                                                             culvert_buffer *dst, size_t dst_offset,
                                                             const void *src, size_t bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_upload_at(const char *where, culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                  const void *src, size_t bytes);
/** As culvert_upload says. Since 0.1.0. */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_download(culvert_stream *stream, void *dst,
                                                               culvert_buffer *src,
                                                               size_t src_offset, size_t bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_download_at(const char *where,
                                                                  culvert_stream *stream, void *dst,
                                                                  culvert_buffer *src,
                                                                  size_t src_offset, size_t bytes);
/** As culvert_upload says. Since 0.1.0. */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_copy(culvert_stream *stream,
                                                           culvert_buffer *dst, size_t dst_offset,
                                                           culvert_buffer *src, size_t src_offset,
                                                           size_t bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_copy_at(const char *where, culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                culvert_buffer *src, size_t src_offset, size_t bytes);
/** As culvert_upload says. Since 0.1.0. */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_fill(culvert_stream *stream,
                                                           culvert_buffer *dst, size_t dst_offset,
                                                           size_t bytes, uint32_t pattern,
                                                           unsigned pattern_bytes);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_fill_at(const char *where, culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                size_t bytes, uint32_t pattern, unsigned pattern_bytes);
/** As culvert_upload says. Since 0.1.0. */
CULVERT_API CULVERT_NODISCARD culvert_future *culvert_launch(culvert_stream *stream,
                                                             culvert_kernel *kernel,
                                                             const culvert_grid *grid,
                                                             const culvert_arg *args, size_t nargs);
CULVERT_API CULVERT_NODISCARD culvert_future *
culvert_launch_at(const char *where, culvert_stream *stream, culvert_kernel *kernel,
                  const culvert_grid *grid, const culvert_arg *args, size_t nargs);

/* ------------------------------------------------------- arguments of kernels -- */

/* The functions behind the macros. Thread: any. Since 0.1.0. */
static inline culvert_arg culvert_arg_inline(const void *value, unsigned bytes)
{
    culvert_arg arg = {CULVERT_ARG_INLINE, bytes, NULL, NULL, 0, {0}};
    const unsigned char *from = (const unsigned char *)value;
    for (unsigned i = 0; i < bytes && i < sizeof arg.value; i++)
        arg.value[i] = from[i];
    return arg;
}
static inline culvert_arg culvert_arg_value(const void *data, size_t bytes)
{
    culvert_arg arg = {CULVERT_ARG_COPY, (unsigned)bytes, data, NULL, 0, {0}};
    return arg;
}
static inline culvert_arg culvert_arg_buffer(culvert_buffer *buffer, size_t offset)
{
    culvert_arg arg = {CULVERT_ARG_BUFFER, 8, NULL, buffer, offset, {0}};
    return arg;
}
static inline culvert_arg culvert_arg_host(const void *data)
{
    culvert_arg arg = {CULVERT_ARG_HOST, 8, data, NULL, 0, {0}};
    return arg;
}
static inline culvert_arg culvert_arg_i32(int32_t v)
{
    return culvert_arg_inline(&v, 4);
}
static inline culvert_arg culvert_arg_u32(uint32_t v)
{
    return culvert_arg_inline(&v, 4);
}
static inline culvert_arg culvert_arg_i64(int64_t v)
{
    return culvert_arg_inline(&v, 8);
}
static inline culvert_arg culvert_arg_u64(uint64_t v)
{
    return culvert_arg_inline(&v, 8);
}
static inline culvert_arg culvert_arg_f32(float v)
{
    return culvert_arg_inline(&v, 4);
}
static inline culvert_arg culvert_arg_f64(double v)
{
    return culvert_arg_inline(&v, 8);
}

/** An lvalue of any type, by value: a struct, say. Copied at the call. Since 0.1.0. */
#define CULVERT_VALUE(lvalue) culvert_arg_value(&(lvalue), sizeof(lvalue))
#define CULVERT_I32(v)        culvert_arg_i32(v) /**< int32_t. Since 0.1.0. */
#define CULVERT_U32(v)        culvert_arg_u32(v) /**< uint32_t. Since 0.1.0. */
#define CULVERT_I64(v)        culvert_arg_i64(v) /**< int64_t. Since 0.1.0. */
#define CULVERT_U64(v)        culvert_arg_u64(v) /**< uint64_t. Since 0.1.0. */
#define CULVERT_F32(v)        culvert_arg_f32(v) /**< float. Since 0.1.0. */
#define CULVERT_F64(v)        culvert_arg_f64(v) /**< double. Since 0.1.0. */
/** A pointer to a buffer's start; the work holds the buffer. Since 0.1.0. */
#define CULVERT_BUFFER(buffer) culvert_arg_buffer(buffer, 0)
/** A pointer into a buffer, `offset` bytes from its start. Since 0.1.0. */
#define CULVERT_BUFFER_AT(buffer, offset) culvert_arg_buffer(buffer, offset)
/** In a culvert_bind alone: the host's side of an upload or download. As every raw address it is not
    checked: not whether the bytes that the copy was compiled with fit behind it. Since 0.1.0. */
#define CULVERT_HOST(pointer) culvert_arg_host(pointer)

#ifdef __cplusplus
}
/* In C++ there are no compound literals: an aggregate that lives until the end of the call. */
template <typename... Args> struct culvert_args_pack_ {
    culvert_arg args[sizeof...(Args)];
    static constexpr size_t count = sizeof...(Args);
};
template <typename... Args> inline culvert_args_pack_<Args...> culvert_args_make_(Args... args)
{
    return culvert_args_pack_<Args...>{{args...}};
}
#define CULVERT_ARGS(...) \
    culvert_args_make_(__VA_ARGS__).args, decltype(culvert_args_make_(__VA_ARGS__))::count
extern "C" {
#else
/** The arguments of a kernel, in order: array and count. Since 0.1.0. */
#define CULVERT_ARGS(...)               \
    (const culvert_arg[]){__VA_ARGS__}, \
        sizeof((const culvert_arg[]){__VA_ARGS__}) / sizeof(culvert_arg)
#endif

#ifndef CULVERT_NO_WHERE
#define culvert_gpu_open(...)          culvert_gpu_open_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_stream_new(...)        culvert_stream_new_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_stream_pick(...)       culvert_stream_pick_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_stream_adopt(...)      culvert_stream_adopt_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_event_done(...)        culvert_event_done_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_stream_done(...)       culvert_stream_done_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_buffer_new(...)        culvert_buffer_new_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_host_buffer_new(...)   culvert_host_buffer_new_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_buffer_alloc(...)      culvert_buffer_alloc_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_host_buffer_alloc(...) culvert_host_buffer_alloc_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_buffer_adopt(...)      culvert_buffer_adopt_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_host_register(...)     culvert_host_register_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_host_unregister(...)   culvert_host_unregister_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_module_load(...)       culvert_module_load_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_module_kernel(...)     culvert_module_kernel_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_module_global(...)     culvert_module_global_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_begin(...)         culvert_seq_begin_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_wait(...)          culvert_seq_wait_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_upload(...)        culvert_seq_upload_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_download(...)      culvert_seq_download_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_copy(...)          culvert_seq_copy_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_copy2d(...)        culvert_seq_copy2d_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_fill(...)          culvert_seq_fill_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_launch(...)        culvert_seq_launch_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_call(...)          culvert_seq_call_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_call_weighted(...) culvert_seq_call_weighted_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_scratch(...)       culvert_seq_scratch_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_use(...)           culvert_seq_use_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_keep(...)          culvert_seq_keep_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_graph(...)         culvert_seq_graph_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_compile(...)       culvert_seq_compile_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_graph_launch(...)      culvert_graph_launch_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_seq_submit(...)        culvert_seq_submit_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_upload(...)            culvert_upload_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_download(...)          culvert_download_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_copy(...)              culvert_copy_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_fill(...)              culvert_fill_at(CULVERT_WHERE, __VA_ARGS__)
#define culvert_launch(...)            culvert_launch_at(CULVERT_WHERE, __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif
