/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of the gpu layer, and who owns what.
 *
 *   culvert__device   one a driver, ordinal and context in the PROCESS: the context, limits, the cap of
 *                     operations in flight, whether it is lost. Counted (atomic); shared by loops.
 *   culvert__memory   one a culvert_gpu: the heaps of device and pinned memory. Counted (atomic) by the gpu
 *                     and by every buffer, so that buffers may be released on any thread, and after the gpu.
 *   culvert_gpu       one an open call: a source of its loop. Its count (loop thread) is held by the handle, by
 *                     streams, modules and whatever is in flight; at 0 it leaves the loop.
 *   culvert_stream    a queue of sequences not wholly in the driver, and a ring of entries (segments) that are.
 *   culvert_seq       operations; from a pool of the gpu. Lives until its work is over and its callbacks ran.
 *   culvert__entry    a segment in the driver, with an event recorded behind it.
 *
 * Everything runs on the loop's thread unless said otherwise. Order of calls between files (no circle):
 *   api (seq*.c stream.c buffer.c module.c) -> enqueue.c -> staging.c -> completion.c -> notify.c, loss.c ->
 *   device.c, heap.c, memory.c
 */
#ifndef CULVERT_GPU_INTERNAL_H
#define CULVERT_GPU_INTERNAL_H

#include "culvert/gpu.h"
#include "driver/table.h"
#include "loop/loop_internal.h"

#include <pthread.h>
#include <stdatomic.h>

/* ------------------------------------------------------------- device.c ---- */

enum {
    CULVERT__STREAM_CAP = 256, /* driver operations in flight: of a stream */
    CULVERT__DEVICE_CAP = 768, /* ... of a device, over the whole process */
    CULVERT__ARM_CAP = 48,     /* host functions pending on as many streams, of a device likewise */
    CULVERT__STREAM_RING =
        256 /* entries a stream; each weighs at least 1, so the cap bounds them */
};

typedef struct culvert__device {
    struct culvert__device *next; /* the registry; under its lock */
    const culvert__driver *drv;
    int ordinal;
    int handle; /* CUdevice */
    struct CUctx_st *ctx;
    bool primary;                      /* ctx was retained by us */
    unsigned refs;                     /* under the registry's lock */
    unsigned max_pitch;                /* of pitched copies, in bytes; 0: not known */
    atomic_uint units;                 /* driver operations in flight, all loops */
    atomic_ullong activity;            /* counts up with every operation's beginning */
    atomic_int lost;                   /* CULVERT_OK, or the sticky CUresult */
    pthread_mutex_t lock;              /* members below; never held across a call of the driver */
    culvert__link gpus;                /* culvert_gpu.device_link */
    culvert_error lost_error;          /* valid once lost */
    const struct culvert_gpu *lost_by; /* whose loop saw it first; only compared */
    culvert__link graveyard; /* culvert_seq.link: what the device may still use, leaked for ever */
    struct culvert__notifier *abandoned;  /* likewise: their host functions may still run */
    struct culvert__driver_thread *stuck; /* likewise: calls that have not come back */
    struct culvert__completion_thread *unreturned; /* likewise */
    struct culvert__completion_thread *thread;     /* NULL: nobody needs it */
    culvert__link line;                  /* culvert__flow.line: gpus that lack units, in turns */
    _Atomic(struct culvert_gpu *) first; /* in the line; NULL: none */
    atomic_uint reserve;                 /* units that are for the first alone; 0: there is none */
    atomic_uint waiting; /* streams that wait for another one on the device, all loops */
    bool has_cooperative, has_clusters; /* launches of these kinds */
    unsigned most_waiting;          /* more would leave others no hardware queue: see seq_wait.c */
    atomic_uint arms;               /* host functions pending, all loops: see notify.c */
    struct culvert__memory *spares; /* of gpus that are gone, while others work */
    void (*free_spares)(struct culvert__device *); /* when the last user has gone */
    culvert_gpu_description description;
} culvert__device;

/* Start-up: may block. NULL and err on failure. */
culvert__device *culvert__device_open(const culvert__driver *, int ordinal, struct CUctx_st *ctx,
                                      culvert_error *err);
culvert__device *culvert__device_ref(culvert__device *); /* Thread: any */
void culvert__device_unref(culvert__device *);           /* Thread: any; may call the driver */
/* The error of what is refused, or failed, because the device is lost. Thread: any */
/* peer.c: lets each reach the other's memory where it can. Under the registry's lock. */
void culvert__peers_meet(culvert__device *, culvert__device *);
void culvert__device_say_lost(culvert__device *, const char *op, const char *where,
                              culvert_error *err);
/* From then on no call of the driver is made for it. It is lost to a child after fork(), too: what such a
   child tells the driver reaches the parent's channels, whose memory they share. Thread: any */
static inline bool culvert__device_is_lost(const culvert__device *device)
{
    return atomic_load_explicit(&device->lost, memory_order_relaxed) != 0 || culvert__forked();
}

/* Makes the device's context current for the calling thread, in relaxed capture mode, and brings both back;
   nests. Thread: any. */
typedef struct culvert__scope {
    const culvert__device *device; /* NULL: nothing to undo */
    bool pushed, exchanged;
    int mode; /* the thread's capture mode before */
    int result; /* not 0: the context could not be made current, so what needs it must not be called */
} culvert__scope;
culvert__scope culvert__scope_enter(const culvert__device *);
void culvert__scope_leave(culvert__scope);

/* ------------------------------------------------------------- heap.c ---- */

/*
 * Ranges of large blocks, aligned to 256 bytes, best fit, neighbours joined when given back. It knows
 * addresses only: blocks come from and go to the `ops`. Thread: any (its own lock, which is held across
 * ops->grow, so only callers that may block pass may_grow).
 */
typedef struct culvert__heap culvert__heap;
typedef struct culvert__range culvert__range; /* opaque; freed by heap_give */

typedef struct culvert__heap_ops {
    /* A block of `bytes`; CULVERT_OK, or a code, and then err (never NULL) is filled. */
    int (*grow)(void *owner, size_t bytes, unsigned long long *address, culvert_error *err);
    void (*shrink)(void *owner, unsigned long long address, size_t bytes);
} culvert__heap_ops;

typedef struct culvert__heap_options {
    const char *what; /* in messages: "device memory" */
    size_t
        block_bytes; /* blocks are at least so large (a larger request gets one of its own size) */
    size_t granule;  /* sizes of blocks are multiples of it, where limit and memory allow; 0: 256 */
    size_t limit;    /* bytes of all blocks; 0: none */
} culvert__heap_options;

culvert__heap *culvert__heap_new(const culvert__heap_ops *, void *owner,
                                 const culvert__heap_options *);
/* Blocks go to ops->shrink, or are left where they are (leak). Ranges that are out are forgotten. */
void culvert__heap_free(culvert__heap *, bool leak);
/* NULL: err (may be NULL) says what was asked for, what is taken, free (and the largest free range), and the limit. */
culvert__range *culvert__heap_take(culvert__heap *, size_t bytes, bool may_grow,
                                   culvert_error *err);
void culvert__heap_give(culvert__heap *, culvert__range *);
unsigned long long culvert__range_address(const culvert__range *);
size_t culvert__range_bytes(const culvert__range *);
/* Takes at least `bytes` of blocks in advance, in pieces of `piece` (0: block_bytes). */
int culvert__heap_reserve(culvert__heap *, size_t bytes, size_t piece, culvert_error *err);
/* Is there a free range so large? */
bool culvert__heap_fits(culvert__heap *, size_t bytes);
/* One block more, with room for so many bytes: CULVERT_OK, or a code and err. */
int culvert__heap_grow(culvert__heap *, size_t bytes, culvert_error *err);
/* Gives back one block, the largest, of which nothing is out, if `keep` bytes of blocks are left then. Its size; 0: there
   is none. The lock is not held across ops->shrink. */
size_t culvert__heap_trim(culvert__heap *, size_t keep);
size_t culvert__heap_idle(culvert__heap *, size_t keep); /* bytes that trimming would give back */
void culvert__heap_set_limit(culvert__heap *, size_t limit); /* 0: none; not below what is taken */
size_t culvert__heap_taken(const culvert__heap *);           /* bytes of blocks */
size_t culvert__heap_used(const culvert__heap *);            /* bytes of ranges that are out */
/* Is [p, p + bytes) inside one block? */
bool culvert__heap_contains(culvert__heap *, unsigned long long address, size_t bytes);

/* ----------------------------------------------------------- memory.c ---- */

/* Host memory that is pinned in registrations of their own, one behind the other. They end at multiples
   of `piece`, the last one at the end. */
typedef struct culvert__pinning {
    uintptr_t base;
    size_t bytes, piece;
    size_t done; /* bytes that are pinned, from the beginning */
} culvert__pinning;

/* The heaps of a gpu. */
typedef struct culvert__memory {
    struct culvert__memory *next; /* device->spares */
    atomic_uint refs;
    culvert__device *device; /* counted */
    culvert__heap *local;    /* device memory */
    culvert__heap *pinned;   /* host memory: its addresses are the host's */
    culvert__heap *pieced;   /* likewise, of blocks that were pinned in pieces: see pinned.c */
    size_t pinned_limit;     /* bytes of both */
    size_t local_keep, pinned_keep; /* what stays when the device is idle: the reserves */
    culvert__hub *hub;              /* counted: of the loop that has this memory; NULL: a spare */
    culvert__post changed_post;
    atomic_bool changed, watched;    /* the post is under way; the loop waits for memory */
    culvert__pinning growing;        /* the next block of `pieced`; bytes == 0: none */
    pthread_mutex_t lock;            /* regions */
    struct culvert__region *regions; /* ordinary memory that was registered: see register.c */
    atomic_uint nregions;
    _Atomic(struct culvert__alias *)
        aliases; /* blocks of it that the device has elsewhere: normally none */
} culvert__memory;
/* Options as in force (no zeroes meaning a default). Takes the reserves: start-up. */
culvert__memory *culvert__memory_new(culvert__device *, const culvert_gpu_options *,
                                     culvert_error *err);
culvert__memory *culvert__memory_ref(culvert__memory *); /* Thread: any */
/* Thread: any. The last one frees blocks with the driver where the device is idle, keeps them for the
   next gpu where it is not, and leaks them where it is lost or this is a forked child. */
void culvert__memory_unref(culvert__memory *);
/* Grows the pinned heap by one block of at most 1 MiB. Not more than once a turn of the loop. */
int culvert__memory_grow_pinned(culvert__memory *, culvert_error *err);
/* From now on it is of this loop, which is told of changes. */
void culvert__memory_attach(culvert__memory *, culvert__hub *);
/* Makes the loop turn: some memory came back. Thread: any */
void culvert__memory_changed(culvert__memory *);
/* Frees the spares of a device that is idle (culvert__device_claim). */
bool culvert__memory_has_spares(culvert__device *);
void culvert__memory_free_spares(culvert__device *);
void culvert__memory_limit_pinned(culvert__memory *); /* after `pieced` or `growing` changed */
/* The device's address of pinned memory: the same, under unified addressing. Thread: any */
unsigned long long culvert__memory_device_address(culvert__memory *, unsigned long long host);

/* ----------------------------------------------------------- pinned.c ---- */

enum {
    CULVERT__PIN_STEP = 1024 * 1024,      /* pinned at once while the device works: 0.5 ms */
    CULVERT__PIN_LARGE = 16 * 1024 * 1024 /* ... at start-up, while it does not */
};
/* Pins, or unpins, one piece more; CUDA_SUCCESS, or a result and the call that gave it. Unpinning waits for
   the kernels that run. The context is current. */
int culvert__pin_next(const culvert__device *, culvert__pinning *, const char **call);
int culvert__unpin_next(const culvert__device *, culvert__pinning *);
/* One piece more of the next block of `pieced`, which is to have `bytes`; when all are pinned it is there.
   CULVERT_OK, or a code and err. A block that cannot be finished is as large as what is pinned of it. */
int culvert__pieced_grow(culvert__memory *, size_t bytes, culvert_error *err);
int culvert__pieced_finish(culvert__memory *, culvert_error *err); /* as large as it is by now */
void culvert__pieced_give_up(culvert__memory *, bool leak);        /* the memory goes */
extern const culvert__heap_ops culvert__pieced_ops;
/* Bytes from the address to the end of its piece, but not more than `bytes`. A copy must not go over such a
   seam: the driver knows each registration alone. seam: its multiples are the ends; 0: there are none. */
static inline size_t culvert__seam_run(size_t seam, uintptr_t address, size_t bytes)
{
    size_t run = seam != 0 ? seam - address % seam : bytes;
    return run < bytes ? run : bytes;
}
/* Is all of [host, host + bytes) pinned by this gpu's memory, so that the device may be given it? Then
   *seam, and in *owner (a new reference, or NULL) the registered memory that it lies in. What is so only
   in part is ordinary memory, and staged. */
bool culvert__pinned_find(culvert__memory *, const void *host, size_t bytes, size_t *seam,
                          culvert_buffer **owner);

/* --------------------------------------------------------- register.c ---- */

bool culvert__regions_find(culvert__memory *, const void *host, size_t bytes, size_t *seam,
                           culvert_buffer **owner); /* for culvert__pinned_find */
bool culvert__regions_unwanted(culvert__memory *);  /* is there something to unpin? */
size_t culvert__regions_bytes(culvert__memory *);
/* One piece of memory that is no more wanted; true: there is more. Waits for kernels that run. */
bool culvert__regions_unpin(culvert__memory *);
void culvert__regions_free(culvert__memory *, bool leak); /* of memory that nobody uses */

/* ------------------------------------------------------------- buffer.c ---- */

struct culvert_buffer {
    atomic_uint refs;
    culvert__memory *memory; /* counted */
    culvert__heap *heap;     /* of the range */
    culvert__range *range;   /* NULL: zero bytes, or not of a heap */
    void (*gone)(
        struct culvert_buffer *); /* instead of giving the range back and free(); may be NULL */
    unsigned long long address;
    void *data;  /* host address, or NULL */
    size_t seam; /* see culvert__seam_run; 0 for most */
    size_t bytes;
};
/* Without memory yet; freed by free(). */
culvert_buffer *culvert__buffer_blank(size_t bytes, const char *op, const char *where,
                                      culvert_error *err);
/* Gives it some. False: there is none, and err (never NULL) says why. */
bool culvert__buffer_fill(culvert_buffer *, culvert_gpu *, bool grow, bool pinned,
                          culvert_error *err);
/* A device buffer from what the heap has, without growing: for scratch. NULL if there is none. */
culvert_buffer *culvert__buffer_take(culvert_gpu *, size_t bytes, bool may_grow, bool pinned,
                                     const char *op, const char *where, culvert_error *err);
/* offset + bytes inside the buffer, the buffer of this device? Else err with the figures ("upload of 4096 bytes at
   offset 8192 runs past the end of a 10000-byte buffer") and false. verb: "upload", "fill" ... */
bool culvert__buffer_check(const culvert_buffer *, const culvert__device *, const char *verb,
                           const char *op, const char *where, size_t offset, size_t bytes,
                           culvert_error *err);
/* May work on the device use it? If not, culvert__buffer_foreign says why, in a few words. */
bool culvert__buffer_reaches(const culvert_buffer *, const culvert__device *);
void culvert__buffer_foreign(const culvert_buffer *, const culvert__device *, char *out,
                             size_t size);

/* ------------------------------------------------------ driver_thread.c ---- */

/* One thread a gpu for calls of the driver that block (module load). It has the context current and relaxed
   capture mode for life; started when first needed. */
typedef struct culvert__driver_job {
    culvert__post post;                         /* run on the loop when `work` has returned */
    void (*work)(struct culvert__driver_job *); /* on the driver thread */
    struct culvert__driver_job *next;
} culvert__driver_job;
typedef struct culvert__driver_thread culvert__driver_thread;
culvert__driver_thread *culvert__driver_thread_new(culvert_gpu *,
                                                   culvert_error *err); /* starts it */
void culvert__driver_thread_submit(culvert__driver_thread *, culvert__driver_job *);
/* Does a job run or wait? For the gpu's `busy`. */
bool culvert__driver_thread_busy(culvert__driver_thread *);
/* Lets the job that runs end, drops none: jobs not begun are run too. Joins; then runs the posts that the hub
   did not take any more, on the calling thread. A job that does not end within two seconds (the driver waits for a
   kernel that does not) is left alone, with its thread and all that it holds. NULL allowed. gpu->driver_thread is
   NULL from the beginning of the call on. */
void culvert__driver_thread_free(culvert__driver_thread *);

/* -------------------------------------------------------- driver_work.c ---- */

/* Work of the driver thread with a future, which has this kind: cancel and shutdown are the two below. */
typedef struct culvert__driver_work culvert__driver_work;
typedef struct culvert__driver_future {
    culvert_future base;
    culvert__driver_work *work; /* NULL once it is over */
} culvert__driver_future;
struct culvert__driver_work {
    culvert__driver_job job;
    culvert__driver_future *future; /* pinned */
    culvert_loop *loop;
    atomic_int state;
    bool keeps; /* the loop's thread: the loop is kept alive for it */
    int result; /* written by `run`: CUDA_SUCCESS, or what `call` gave */
    const char *call;
    void (*run)(culvert__driver_work *); /* on the driver thread */
    /* On the loop's thread: settles the future with what came of it (in vain where it was dropped: `ran` is
       false), and frees what the work is part of. */
    void (*over)(culvert__driver_work *, bool ran);
};
/* Whether there is a driver thread; else err says why not. */
bool culvert__driver_work_ready(culvert_gpu *, const char *op, const char *where, culvert_error *);
/* The future is new; `run` and `over` are set, all else is zero. */
void culvert__driver_work_begin(culvert_gpu *, culvert_future *, culvert__driver_work *);
void culvert__driver_future_cancel(culvert_future *);
void culvert__driver_future_shut_down(culvert_future *, const culvert_error *);

/* ------------------ module.c, module_load.c, launch.c, occupancy.c ---- */

/* How many blocks of this size run at once on a multiprocessor; threads 0: not asked yet. */
typedef struct culvert__fit {
    unsigned threads, shared_bytes, blocks;
} culvert__fit;

struct culvert_kernel {
    culvert_kernel *next;
    culvert_module *module;
    struct CUfunc_st *function;
    char *name;
    int nparams; /* -1: not known (cuFuncGetParamInfo absent, no host-built twin) */
    size_t *param_sizes;
    unsigned max_threads; /* a block, of this kernel */
    unsigned static_shared;
    unsigned dynamic_set; /* dynamic shared bytes allowed so far */
    culvert__fit fit;     /* what was asked last */
};

struct culvert_module {
    unsigned refs;           /* handles + sequences in flight */
    culvert_gpu *gpu;        /* counted */
    struct CUmod_st *module; /* NULL: not loaded */
    const culvert_image *image;
    culvert_kernel *kernels; /* in the order they were asked for */
    culvert__driver_job unload;
};
culvert_module *culvert__module_ref(culvert_module *);
void culvert__module_unref(
    culvert_module *); /* without the checks; Thread: the loop's, or the last */
/* image.c */
const char *culvert__image_name(const culvert_image *);
/* The host-built twin, which has the kernels' names: in builds for real devices too. NULL: there is none. */
struct culvert_sim_module;
const struct culvert_sim_module *culvert__image_twin(const culvert_image *);
/* "machine code for 7.5 9.0, PTX 9.0 for 9.0", or less. */
void culvert__image_contents(const culvert_image *, char *out, size_t size);
/* Can it be given to such a driver? False: err says why not. */
bool culvert__image_check(const culvert_image *, bool simulated, const char *op, const char *where,
                          culvert_error *err);
/* module_error.c: results that say that an image is not for this device or driver, and have nothing to do
   with the device's state. */
bool culvert__module_unfit(int result);
void culvert__module_say_unfit(culvert_gpu *, const culvert_image *, int result, const char *call,
                               const char *log, const char *op, const char *where, culvert_error *);
void culvert__module_log(culvert_gpu *, const culvert_image *, int level,
                         const char *log); /* by lines */
/* A kernel of a loaded module, and what the driver knows of it; the context is current. CUDA_SUCCESS, or a
   result and the call that gave it. Thread: the one that has the module for itself. */
int culvert__kernel_open(culvert_module *, const char *name, culvert_kernel **out,
                         const char **call);

/* A launch that was checked, in a sequence's arena. */
typedef struct culvert__launch {
    culvert_kernel *kernel;
    unsigned blocks[3], threads[3], shared_bytes;
    unsigned cluster[3]; /* blocks; cluster[0] == 0: none */
    bool cooperative;
    void **params; /* for cuLaunchKernel; NULL without parameters */
    size_t nparams;
    const size_t *sizes; /* of each */
} culvert__launch;
/* Neither: cuLaunchKernel does it. */
static inline bool culvert__launch_is_plain(const culvert__launch *l)
{
    return !l->cooperative && l->cluster[0] == 0;
}
/* Checks grid and arguments, copies values, makes the sequence hold module and buffers. False: the error is in the
   sequence (culvert__seq_fail). */
bool culvert__launch_build(culvert_seq *, culvert_kernel *, const culvert_grid *,
                           const culvert_arg *args, size_t nargs, const char *op, const char *where,
                           culvert__launch *out);

/* Another value for one argument of a launch that was built: checked likewise, and copied into the arena of this
   sequence, which holds its buffer. NULL: the error is in the sequence. */
void *culvert__launch_bind(culvert_seq *, const culvert__launch *, size_t index,
                           const culvert_arg *, const char *op, const char *where);

/* occupancy.c. Results are the driver's, and `call` is the one that gave it. Thread: the loop's */
unsigned culvert__kernel_most_shared(const culvert_kernel *);  /* dynamic bytes of a block */
unsigned culvert__kernel_most_threads(const culvert_kernel *); /* of a block */
/* More than 48 KB must be allowed for a function first; that stays. */
int culvert__kernel_allow_shared(culvert_kernel *, unsigned bytes, const char **call);
/* Blocks of such a size that run at once on the device. */
int culvert__kernel_fit(culvert_kernel *, unsigned threads, unsigned shared_bytes, unsigned *blocks,
                        const char **call);

/* ------------------------------------------------------------- seq.c ---- */

/* For the files that build operations. Memory that lives as long as the sequence; NULL: failed with ENOMEM. */
void *culvert__seq_arena(culvert_seq *, size_t bytes);
void culvert__seq_fail(culvert_seq *, int code, const char *op, const char *where, const char *fmt,
                       ...) CULVERT_PRINTF(5, 6); /* the first error stays */
void culvert__seq_fail_with(culvert_seq *, const culvert_error *);
bool culvert__seq_hold_buffer(culvert_seq *, culvert_buffer *); /* takes a reference of its own */
bool culvert__seq_hold_module(culvert_seq *, culvert_module *); /* once for each module at most */
culvert_gpu *culvert__seq_gpu(culvert_seq *);

/* ------------------------------------------------------------- gpu.c ---- */

struct culvert_gpu {
    culvert__source source; /* first member */
    culvert_loop *loop;     /* its memory is counted */
    culvert__hub *hub;      /* counted */
    culvert__device *device;
    const culvert__driver *drv;
    culvert__memory *memory;
    unsigned refs; /* see above */
    bool closed;   /* the handle was given up: new work is ESHUTDOWN */
    bool attached; /* in the loop's list of sources */
    bool lost;     /* this gpu has rejected what was pending */
    culvert__driver_thread *driver_thread;
    struct culvert__flow *flow; /* streams, events, notifiers, staging: see flow.h */
};

culvert_gpu *culvert__gpu_ref(culvert_gpu *);
void culvert__gpu_unref(culvert_gpu *);

/* Why new work is refused now: NULL if it is not, else a code (ESHUTDOWN, EDEVICELOST, EFORKED) and err filled. */
bool culvert__gpu_refuses(culvert_gpu *, const char *op, const char *where, culvert_error *err);

/* A call of the driver failed: fills err (class, name, text) and, where the error is one that loses the device,
   starts that. Thread: any; off the loop's thread pass the device's gpu still. */
void culvert__gpu_driver_failed(culvert_gpu *, int result, const char *call, const char *op,
                                const char *where, culvert_error *err);

#endif
