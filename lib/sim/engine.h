/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h: what all of the simulator shares. The design note is at the top of engine.c.
 *
 * Functions marked [lock] are called with the lock held, and those marked [waits] may give it up.
 */
#ifndef CULVERT_SIM_ENGINE_H
#define CULVERT_SIM_ENGINE_H

#include "culvert/sim.h"
#include "driver/abi.h"
#include "sim/block.h"
#include "sim/calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_DEVICES   8
#define SIM_MAX_QUEUES    32
#define SIM_MAX_WORKERS   128
#define SIM_PRIORITIES    6 /* 0 (least) to -5 (greatest) */
#define SIM_CONTEXT_STACK 32

/* Streams of the process with host functions that have not run: see schedule.c. */
#define SIM_MAX_HOST_STREAMS 60

struct sim_capture;
struct sim_op;

/* What all handles start with. The storage is never given back, so a stale handle can be told. */
enum sim_object_kind {
    SIM_CONTEXT = 1,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODULE,
    SIM_FUNCTION,
    SIM_GRAPH,
    SIM_NODE,
    SIM_EXEC,
    SIM_POOL,
    SIM_OBJECT_KINDS
};

struct sim_object {
    uint32_t magic;
    enum sim_object_kind kind;
    struct sim_object *next; /* in the graveyard */
};

void *culvert__sim_object_new(enum sim_object_kind kind); /* [lock] zeroed; NULL: no memory */
void culvert__sim_object_free(struct sim_object *object); /* [lock] */
void culvert__sim_object_init(struct sim_object *object, enum sim_object_kind kind); /* [lock] */
void culvert__sim_object_close(struct sim_object *object); /* [lock] the program may not use it */
void culvert__sim_object_gone(struct sim_object *object);  /* [lock] its context is destroyed */
/* [lock] True: a handle in use. Else *result is CUDA_ERROR_INVALID_HANDLE; a stale one is a violation. */
bool culvert__sim_object_check(const void *handle, enum sim_object_kind kind, int *result);
uint64_t culvert__sim_object_live(enum sim_object_kind kind); /* [lock] */

/* What a stream orders against what on other streams: see order.c. */
struct sim_clock {
    unsigned refs;
    unsigned n;
    uint64_t at[]; /* by stream slot */
};

struct sim_use { /* of memory, by an operation that is not over */
    uintptr_t first, last;
    struct sim_use *left, *right;
    uintptr_t max_last;
    uint32_t weight;
    bool write;
    struct sim_op *op;
};

/* A point in a stream: what one call of cuEventRecord made of an event. */
enum sim_record_state { SIM_RECORD_PENDING, SIM_RECORD_DONE, SIM_RECORD_FAILED };

struct sim_record {
    unsigned refs;
    unsigned host_waiters;
    enum sim_record_state state;
    int result; /* of FAILED */
    uint64_t ns;
    struct CUstream_st *waiting; /* streams, through wait_next */
    struct sim_record *next;     /* free list */
    struct sim_clock *clock;     /* of the stream, but for its own slot */
    unsigned slot;
    uint64_t seq;
};

/* Work: what an operation of a stream, or a node of a graph, does. */
enum sim_work_kind {
    SIM_EMPTY,
    SIM_KERNEL,
    SIM_COPY,
    SIM_FILL,
    SIM_HOST,
    SIM_LAUNCH_GRAPH,
    SIM_RECORD,
    SIM_WAIT,
    SIM_WRITE_VALUE,
    SIM_WAIT_VALUE,
    SIM_POOL_FREE,
    SIM_CHILD
};

struct sim_kernel_work {
    struct CUfunc_st *function; /* holds a reference to its module */
    uint32_t grid[3], block[3], cluster[3];
    uint32_t shared_bytes;
    bool cooperative;
    void *params; /* malloc'ed, or the operation's own room */
};

struct sim_copy_work {
    char *dst;
    const char *src;
    size_t width, height, depth;
    size_t dst_pitch, dst_slice, src_pitch, src_slice;
    void *staged;          /* malloc'ed copy of the source, or NULL */
    size_t staged_bytes;   /* of the ring */
    struct CUctx_st *ring; /* whose */
    bool within_device;
    bool pageable_dst;
};

struct sim_fill_work {
    char *dst;
    size_t pitch, width, height; /* width in elements */
    uint32_t value;
    unsigned element;
};

struct sim_host_work {
    culvert__CUhostFn fn;
    culvert__sim_stream_callback callback; /* of cuStreamAddCallback, or NULL */
    culvert__CUstream stream;              /* what it is told */
    void *arg;
};

struct sim_value_work {
    uint32_t *address;
    uint32_t value;
    unsigned flags;
};

struct sim_work {
    enum sim_work_kind kind;
    union {
        struct sim_kernel_work kernel;
        struct sim_copy_work copy;
        struct sim_fill_work fill;
        struct sim_host_work host;
        struct sim_value_work value;
        struct sim_plan *plan;    /* SIM_LAUNCH_GRAPH: holds a reference */
        struct CUgraph_st *graph; /* SIM_CHILD: owned */
        void *block;              /* SIM_POOL_FREE */
    } u;
};

#define SIM_INLINE_PARAMS 192
#define SIM_OP_USES       8

struct sim_op {
    struct sim_op *next;                    /* in its stream, or the free list */
    struct sim_op *queue_next, *queue_prev; /* in the context's list */
    struct sim_op *host_next;
    struct CUstream_st *stream;
    struct sim_record *record; /* SIM_RECORD, SIM_WAIT, and what must be told of the end */
    enum culvert__sim_function call;
    bool device;  /* counts in its hardware queue */
    bool queued;  /* counted there at the moment */
    bool listed;  /* in the context's list */
    bool silent;  /* the simulator's own, not the program's */
    bool started; /* its time has begun */
    uint64_t end_ns;
    uint64_t seq;
    uint64_t place; /* among all operations, by when they were put on their streams */
    int status;     /* of a callback that outlived its stream */
    struct sim_op *timed_next;
    size_t plan_at; /* the next node of a graph */
    unsigned nuses;
    struct sim_use uses[SIM_OP_USES];
    struct sim_work work;
    _Alignas(16) unsigned char params[SIM_INLINE_PARAMS];
};

struct sim_hwq {
    unsigned waiting; /* launches, copies, fills, graphs that have not begun */
    unsigned blocked; /* callers */
    pthread_cond_t room;
};

enum sim_stream_state {
    SIM_STREAM_IDLE,    /* nothing to do, or held */
    SIM_STREAM_READY,   /* in the ready queue */
    SIM_STREAM_RUNNING, /* a worker has it */
    SIM_STREAM_WAITING, /* for a record */
    SIM_STREAM_HOST,    /* for a host function */
    SIM_STREAM_TIMED,   /* for a point in time */
    SIM_STREAM_PARKED   /* for its turn: see hardware_queue.c */
};

struct CUstream_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    struct CUstream_st *next, *prev; /* of the context */
    unsigned flags;
    int priority;
    unsigned long long id;
    enum sim_stream_state state;
    bool held, closed;
    struct sim_op *head, **tail;
    struct CUstream_st *ready_next, *wait_next, *parked_next;
    bool in_parked;
    struct sim_hwq *queue;
    uint64_t last_work;     /* the place of the last operation that is not a wait */
    unsigned device_work;   /* launches, copies, fills, graphs on it */
    unsigned host_work;     /* host functions on it */
    uint64_t enqueued;      /* operations so far, without the simulator's own */
    uint64_t joined;        /* of them, those that the legacy stream waits for: see legacy.c */
    uint64_t legacy_joined; /* of the legacy stream's, those that this one waits for */
    struct sim_clock *clock;
    unsigned slot;
    unsigned nuses; /* of memory, by what is queued on it */
    struct sim_capture *capture;
    struct CUstream_st *capture_next;
    struct CUgraphNode_st **capture_tails; /* what the next captured node depends on */
    size_t capture_ntails;
};

struct CUevent_st {
    struct sim_object object;
    struct CUctx_st *ctx;
    unsigned flags;
    struct sim_record *record; /* NULL: never recorded */
    struct sim_capture *capture;
    struct CUgraphNode_st **capture_tails;
    size_t capture_ntails;
    struct CUevent_st *next, *prev; /* of the context */
};

struct CUctx_st {
    struct sim_object object;
    int device;
    bool active;
    unsigned refs, flags;
    unsigned long long id;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct CUstream_st *legacy;
    struct CUmod_st *modules;
    struct sim_hwq queues[SIM_MAX_QUEUES];
    unsigned next_queue;
    struct sim_op *list_head, *list_tail; /* all that has not begun, in order; with one queue */
    unsigned unfinished;                  /* launches, copies, fills, graphs */
    unsigned waits;                       /* for records, on all streams */
    unsigned stalls; /* calls that wait for the device and hold up everybody's launches */
    const char *stall_call;
    size_t ring_used; /* bytes of the staging ring of pageable uploads */
    int sticky;
    bool ending;       /* somebody waits for its last operation */
    unsigned captures; /* streams that are being captured */
    _Atomic int stop;  /* for running kernels: the sticky error, or a reset */
    uint64_t used_bytes;
    bool peers[SIM_MAX_DEVICES];
};

/* What a thread of the program has. Generation: resets make what is in it void. */
struct sim_thread {
    unsigned generation;
    int depth;
    struct CUctx_st *stack[SIM_CONTEXT_STACK];
    struct CUstream_st *streams[SIM_MAX_DEVICES];   /* handle 2 */
    unsigned long long stream_ids[SIM_MAX_DEVICES]; /* of the contexts that these belong to */
    int capture_mode;
    unsigned captures; /* begun by it, not relaxed */
    bool loop;
    bool host_function;
    bool driver_lock; /* it has it: driver_lock.c */
    enum culvert__sim_function call;
};

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t work;      /* for idle workers: tokens > 0, or a time */
    pthread_cond_t host_work; /* for the host function thread */
    pthread_cond_t changed;   /* for callers that wait for anything but room */

    /* atomics, since every call reads them */
    _Atomic int initialised, forked, exiting;
    _Atomic unsigned generation;
    _Atomic int loop_threads;

    int ndevices, visible[SIM_MAX_DEVICES], nvisible;
    struct CUctx_st contexts[SIM_MAX_DEVICES];
    unsigned hardware_queues, queue_depth;
    uint64_t memory_bytes;
    bool eager;
    bool peerless;   /* devices cannot reach each other */
    bool lazy_waits; /* loading a function waits for the device */
    bool hold_all;
    int host_mode;
    unsigned long long ids;

    /* scheduling */
    struct CUstream_st *ready[SIM_PRIORITIES], **ready_tail[SIM_PRIORITIES];
    unsigned nready;
    pthread_t workers[SIM_MAX_WORKERS];
    unsigned nworkers, idle, tokens, scouts, executing;
    bool stopping, timekeeper;
    struct sim_op *timed; /* sorted by end */
    struct CUstream_st *parked;
    uint64_t places;
    bool virtual_time;
    uint64_t virtual_ns;

    /* host functions */
    pthread_t host_thread;
    bool host_started;
    struct sim_op *host_head, **host_tail; /* through host_next */
    struct sim_op *host_current;
    unsigned host_streams; /* that have host_work */

    unsigned waiters;    /* on `changed`, for quiet or for a context that is idle */
    uint64_t operations; /* queued or running */
    uint64_t pinned_bytes;
};

extern struct sim culvert__sim;

void culvert__sim_lock(void);
void culvert__sim_unlock(void);
struct sim_thread *culvert__sim_thread(void);
uint64_t culvert__sim_monotonic_ns(void);
uint64_t culvert__sim_device_ns(void); /* [lock] */

/* Waits once, as a call of the driver does. [lock] [waits] */
void culvert__sim_wait(pthread_cond_t *cond);
/* Waits for `changed` once. [lock] [waits] */
void culvert__sim_wait_changed(void);
/* Something that a caller may wait for has happened. [lock] */
void culvert__sim_tell_changed(void);
/* The thread is about to wait for the device: a violation on a loop thread. */
void culvert__sim_note_block(const char *why);

/* engine.c: threads */
void culvert__sim_worker_wanted(void); /* [lock] something is ready */
void culvert__sim_worker_timed(void);  /* [lock] the first point in time has changed */
void culvert__sim_host_wanted(void);   /* [lock] */
void culvert__sim_quiesce(void);      /* [lock] [waits] nothing is ready, running or calling back */
void culvert__sim_stop_threads(void); /* [lock] [waits] ends all threads */
void culvert__sim_execute_begin(void); /* [lock] [waits] a worker leaves the lock for long */
void culvert__sim_execute_end(void);   /* takes the lock again */

/* control.c: as the environment says. [lock] */
void culvert__sim_defaults(void);
/* device.c: which devices the process sees. [lock] */
void culvert__sim_find_devices(void);

/* schedule.c */
/* The host function that an operation on the host function thread's queue is about. */
const struct sim_host_work *culvert__sim_host_work_of(const struct sim_op *op);
struct sim_op *culvert__sim_op_new(enum sim_work_kind kind,
                                   enum culvert__sim_function call); /* [lock] */
void culvert__sim_op_free(struct sim_op *op);                        /* [lock] */
/*
 * Appends to a stream that is not being captured, after the driver's own waits: for a full hardware
 * queue, and for a call of another thread that stalls launches. Takes the operation, also on
 * failure. [lock] [waits]
 */
int culvert__sim_enqueue(struct CUstream_st *s, struct sim_op *op);
void culvert__sim_append(struct CUstream_st *s, struct sim_op *op); /* [lock] without those waits */
void culvert__sim_kick(struct CUstream_st *s); /* [lock] let it run if it can */
void culvert__sim_run_stream(struct CUstream_st *s,
                             culvert__block_runner *runner); /* [lock] [waits] */
void culvert__sim_host_done(struct sim_op *op);              /* [lock] a host function returned */
void culvert__sim_time_passed(void);                         /* [lock] start what is due */
struct CUstream_st *culvert__sim_ready_take(void);           /* [lock] NULL: none */
void culvert__sim_unlink(struct sim_op *op); /* [lock] it is over, or dropped: undoes the counts */
void culvert__sim_give_to_host(struct sim_op *op);    /* [lock] for the host function thread */
void culvert__sim_stream_over(struct CUstream_st *s); /* [lock] frees it if nothing needs it */

/* hardware_queue.c. All: [lock] */
void culvert__sim_join_queue(struct sim_op *op);
void culvert__sim_leave_queue(struct sim_op *op);    /* it begins, or is dropped */
bool culvert__sim_has_turn(const struct sim_op *op); /* the first one of its stream may begin */
void culvert__sim_park(struct CUstream_st *s);       /* until it may */
void culvert__sim_unpark(struct CUstream_st *s);     /* it is being emptied */
void culvert__sim_unpark_all(void);                  /* look again who may begin */

/* purge.c. Drops everything queued on the context's streams; pending records fail with `result`. [lock] */
void culvert__sim_purge(struct CUctx_st *ctx, int result);

/* record.c */
struct sim_record *culvert__sim_record_new(void);                  /* [lock] one reference */
struct sim_record *culvert__sim_record_ref(struct sim_record *r);  /* [lock] */
void culvert__sim_record_unref(struct sim_record *r);              /* [lock] NULL allowed */
void culvert__sim_record_settle(struct sim_record *r, int result); /* [lock] 0: done */
int culvert__sim_record_wait(struct sim_record *r);                /* [lock] [waits] */
void culvert__sim_record_forget(struct sim_record *r, struct CUstream_st *s); /* [lock] */

/* work.c */
const char *culvert__sim_work_name(const struct sim_work *w); /* for messages */
bool culvert__sim_value_is_there(const struct sim_value_work *w);
uint64_t
culvert__sim_work_ns(const struct sim_work *w); /* modelled duration, 0: as long as it takes */
bool culvert__sim_work_is_short(const struct sim_work *w);
/* Does it. Returns 0 or the sticky error. Without the lock, or with it for what is short. */
int culvert__sim_work_run(const struct sim_work *w, const _Atomic int *stop,
                          culvert__block_runner *runner);
void culvert__sim_work_release(
    struct sim_work *w); /* [lock] what it holds; not the parameters' room */

/* stream.c */
/* A stream of the context, with no handle yet. NULL: out of memory. [lock] */
struct CUstream_st *culvert__sim_stream_new(struct CUctx_st *ctx, unsigned flags, int priority);
void culvert__sim_stream_free(struct CUstream_st *s); /* [lock] empty, and nobody runs it */
/*
 * The stream behind a handle, 0, 1 and 2 included, whose context must not have failed. Which context
 * the calling thread must have made current. 0, or what to answer. [lock]
 */
enum sim_needs {
    SIM_NO_CURRENT,      /* any or none, unless the handle is 0, 1 or 2 */
    SIM_CURRENT_OR_NONE, /* the stream's, if it has one */
    SIM_CURRENT          /* the stream's */
};
int culvert__sim_stream_of(culvert__CUstream handle, enum sim_needs needs,
                           struct CUstream_st **out);
int culvert__sim_synchronize(struct CUstream_st *s); /* [lock] [waits] */

/* event.c */
void culvert__sim_event_free(struct CUevent_st *e); /* [lock] */

/* context.c */
/* The calling thread's context, sound. 0, or what to answer. [lock] */
int culvert__sim_current(struct CUctx_st **out);
/* Everything in it goes. [lock] [waits] */
void culvert__sim_context_destroy(struct CUctx_st *ctx);
/*
 * Waits until the context's launches, copies and fills are over, and holds up new ones of other
 * threads meanwhile, as cuMemFree does. 0, or the sticky error. [lock] [waits]
 */
int culvert__sim_wait_idle(struct CUctx_st *ctx);

/* submit.c */
/*
 * The operation goes to the stream, or, as a node, into the graph that the stream is captured to.
 * Takes the operation, also on failure. [lock] [waits]
 */
int culvert__sim_submit(struct CUstream_st *s, struct sim_op *op);

/* capture.c. All: [lock] */
int culvert__sim_capture_op(struct CUstream_st *s, struct sim_op *op); /* takes it */
int culvert__sim_capture_record(struct CUstream_st *s, struct CUevent_st *e);
int culvert__sim_capture_wait(struct CUstream_st *s, struct CUevent_st *e);
void culvert__sim_capture_forget_event(struct CUevent_st *e);
void culvert__sim_capture_forget_stream(struct CUstream_st *s);
/* An unsafe call: prohibited while some captures are going on. 0, or what to answer. */
int culvert__sim_capture_unsafe(void);
/* A call about a stream that may not be made while it is captured. 0, or what to answer. */
int culvert__sim_capture_conflict(struct CUstream_st *s);
/* The legacy stream is used, by which streams that are being captured would be waited for. */
int culvert__sim_capture_implicit(struct CUctx_st *ctx);

/* legacy.c: before something is appended to s, what the legacy stream's rules put before it. [lock] */
void culvert__sim_legacy_order(struct CUstream_st *s);

/* order.c */
void culvert__sim_order_append(struct CUstream_st *s,
                               struct sim_op *op); /* [lock] checks, remembers */
void culvert__sim_order_finish(struct sim_op *op); /* [lock] */
void culvert__sim_order_record(struct CUstream_st *s,
                               struct sim_record *r); /* [lock] r comes after all in s */
void culvert__sim_order_wait(struct CUstream_st *s, const struct sim_record *r); /* [lock] */
void culvert__sim_clock_unref(struct sim_clock *clock); /* [lock] NULL allowed */
unsigned culvert__sim_slot_take(void);                  /* [lock] */
void culvert__sim_slot_give(unsigned slot);             /* [lock] */

/* fault.c */
void culvert__sim_strike(int device, int result, const char *what); /* [lock] a sticky error */

/* time.c */
bool culvert__sim_duration_of(const char *kernel, uint64_t *ns); /* [lock] */
void culvert__sim_durations_reset(void);                         /* [lock] */

#endif
