/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How work flows: a sequence waits in its stream's queue, goes to the driver in segments (entries), and
 * is over when the event behind its last segment is seen to be complete.
 *
 *   seq:  BUILDING -> QUEUED -> PART -> WHOLE -> OVER
 *            |           |        |       |
 *            |           |        |       +- every segment is in the driver; its last entry is known
 *            |           |        +- some segments are; it is the head of its stream's queue
 *            |           +- none is; cancelling takes it out
 *            +- dropped, or failed while it was built: never queued
 *
 * completion.md beside the design has the algorithm; the names here are its names.
 */
#ifndef CULVERT_GPU_FLOW_H
#define CULVERT_GPU_FLOW_H

#include "gpu/gpu_internal.h"

typedef struct culvert__slot culvert__slot;
typedef struct culvert__notifier culvert__notifier;
typedef struct culvert__op culvert__op;
typedef struct culvert__completion_thread culvert__completion_thread;

/* ---- a segment in the driver ---- */
typedef struct culvert__entry {
    culvert_seq *seq;
    struct CUevent_st *event; /* NULL: it could not be recorded; ask the stream */
    culvert__slot *slots;     /* staged copies of this segment, in order */
    culvert__op *graphs;      /* launches of graphs in this segment */
    uint64_t submitted;       /* culvert__now() */
    unsigned units;
} culvert__entry;

/* ---- operations ---- */
typedef enum culvert__op_kind {
    CULVERT__OP_UPLOAD,
    CULVERT__OP_DOWNLOAD,
    CULVERT__OP_COPY,
    CULVERT__OP_FILL,
    CULVERT__OP_LAUNCH,
    CULVERT__OP_CALL,
    CULVERT__OP_COPY2D,
    CULVERT__OP_GRAPH
} culvert__op_kind;

typedef struct culvert__bound culvert__bound;
typedef struct culvert__instance culvert__instance;

struct culvert__op {
    struct culvert__op *next;
    const char *where;
    size_t position; /* among the operations as the program counts them: see culvert_bind */
    culvert__op_kind kind;
    bool part;       /* it goes on with what the one before began: see culvert__seam_run */
    unsigned weight; /* driver operations at most (of one chunk, where it is staged) */
    union {
        struct {
            culvert_buffer *buffer;
            size_t offset;
            char *host; /* an upload's source is only read */
            size_t bytes;
            bool direct;                       /* pinned memory of this gpu: no staging */
            size_t filled;                     /* upload: given to a worker (or copied) so far */
            size_t done;                       /* in the driver so far */
            culvert__slot *fills, **fills_end; /* upload: being filled or filled, oldest first */
            unsigned nfills;
        } host;
        struct {
            culvert_buffer *dst, *src;
            size_t dst_offset, src_offset, bytes;
        } copy;
        struct {
            culvert_buffer *dst, *src;
            size_t dst_offset, dst_pitch, src_offset, src_pitch;
            size_t width, height;
        } copy2d;
        struct {
            culvert_buffer *dst;
            size_t offset, bytes;
            uint32_t pattern;
            unsigned pattern_bytes;
        } fill;
        culvert__launch launch;
        struct {
            culvert_graph *graph;
            culvert__bound *bound;       /* what is not as it was compiled */
            culvert__instance *instance; /* from the launch on */
            struct culvert__op *next;    /* in its entry */
        } graph;
        struct {
            int (*enqueue)(struct CUstream_st *, void *arg);
            void *arg;
            const char *name; /* of the public function */
        } call;
    } u;
};

/* A future that a sequence waits for. */
typedef struct culvert__wait_on {
    culvert__waiter waiter; /* waiter.up is NULL once its outcome was taken */
    culvert_seq *seq;
    struct culvert__wait_on *next;
    culvert__link
        dependents; /* in the awaited sequence's list, while that is not wholly in the driver */
    bool on_device; /* the device waits for it */
} culvert__wait_on;

typedef struct culvert__keep {
    struct culvert__keep *next;
    void *obj;
    culvert_free_fn *obj_free;
} culvert__keep;

typedef struct culvert__hold {
    struct culvert__hold *next;
    culvert_buffer *buffer; /* one of them */
    culvert_module *module;
    culvert_graph *graph;
} culvert__hold;

typedef enum culvert__seq_state {
    CULVERT__SEQ_BUILDING,
    CULVERT__SEQ_QUEUED,
    CULVERT__SEQ_PART,
    CULVERT__SEQ_WHOLE,
    CULVERT__SEQ_OVER
} culvert__seq_state;

/* On the device, in seconds from some time of its gpu. */
typedef struct culvert__timing {
    double start, end;
} culvert__timing;

typedef struct culvert__seq_future {
    culvert_future base;
    culvert_seq *seq; /* NULL once over */
    culvert__timing timing;
    unsigned clock; /* the gpu's; 0: it was not timed */
} culvert__seq_future;

typedef struct culvert__chunk { /* of the arena */
    struct culvert__chunk *next;
    size_t size, used;
} culvert__chunk;

enum { CULVERT__ARENA_FIRST = 1024 };

struct culvert_seq {
    culvert__link link;          /* stream->queue; flow->seqs (pool); device->graveyard */
    culvert__link live;          /* flow->live, from submit until it is over */
    culvert_gpu *gpu;            /* NULL: the one that seq_begin returns in a forked child */
    culvert_stream *stream;      /* counted; NULL: one that could not be made */
    culvert__seq_future *future; /* pinned, from submit until it is over */
    culvert__seq_state state;
    bool failed;    /* error is set */
    bool owes_host; /* it has a staged download: others hold for it, the device cannot wait */
    bool timed;     /* by the program or the trace */
    culvert__traced *traced; /* NULL: it is not traced */
    uint64_t built;          /* culvert__now() of its beginning, where there is a trace */
    bool timed_by_program;   /* culvert_gpu_seconds answers */
    bool peer;               /* it copies from or to another device: see peer.c */
    bool canceled;           /* the failure is a cancellation */
    bool buried;             /* the device may still use what it holds: leaked when it is over */
    bool started;            /* waits are done, timing has begun */
    bool in_driver;          /* some of it is, or was */
    unsigned device_waits;   /* of its waits, those that the device makes and that are not over */
    unsigned entries;        /* of it in the driver */
    unsigned jobs;           /* memory copies of it with the staging workers */
    uint64_t last_entry;     /* number of its newest entry in the stream */
    uint64_t number;         /* submit order in the gpu, for messages */
    culvert__op *ops, **ops_end, *cursor;
    size_t nops;
    size_t positions;     /* operations, those with nothing to do included */
    size_t scratch_grown; /* bytes of scratch for which the heap had to grow */
    bool scratch;         /* it has some */
    culvert__wait_on *waits, **waits_end;
    culvert__keep *keeps, **keeps_end;
    culvert__hold *holds;
    culvert__link dependents;       /* culvert__wait_on.dependents */
    struct CUevent_st *start, *end; /* timed */
    const char *where;
    culvert__task release; /* after the future's callbacks */
    culvert_error error;
    culvert__chunk *chunks;
    size_t first_used;
    _Alignas(16) unsigned char first[CULVERT__ARENA_FIRST];
};

/* ---- streams ---- */

/* What the completion thread asks for a stream: see completion_thread.c. */
typedef struct culvert__watch {
    bool out;        /* the loop's: it was given to the thread and has not come back */
    uint64_t target; /* likewise: number of the entry */
    culvert__post post;
    culvert_stream *stream; /* counted while out */
    uint64_t hot_ns;        /* so long the thread asks without a pause */
    /* under the thread's lock while out: */
    culvert__link link; /* the thread's watches */
    struct CUevent_st *event;
    uint64_t since; /* culvert__now() */
    uint64_t round;
    bool posted;
} culvert__watch;

struct culvert_stream {
    unsigned refs;              /* handles + sequences */
    culvert_gpu *gpu;           /* counted */
    struct CUstream_st *native; /* NULL after the gpu left the loop or was lost */
    int level;                  /* culvert_priority */
    size_t max_queued;
    bool pooled;  /* made for culvert_stream_pick: the pool holds a reference */
    bool lane;    /* made for culvert_event_done: likewise */
    bool clogged; /* lane: something else than our work may stand on it */
    bool adopted; /* `native` is the program's */
    bool exposed; /* somebody has the native handle */
    bool capped;  /* over the cap: nothing more until units <= half of it */
    bool pumping;
    bool slot_big;                                /* what kind of slot it waits for */
    bool wants_slot, wants_units, wants_instance; /* the last pump ended for want of one */
    culvert__track track;                         /* of a trace */
    culvert__link all;                            /* flow->streams */
    culvert__link busy;                           /* flow->busy while queue or ring has something */
    culvert__link starved;                        /* flow->starved: waits for the device's budget */
    culvert__link slotless;                       /* flow->slotless: waits for a staging slot */
    culvert__link graph_line;                     /* graph_waited->line */
    culvert_graph *graph_waited; /* its queue's head waits for an instance of it; NULL: for none */
    culvert__link queue;         /* culvert_seq.link, oldest first: not wholly in the driver */
    size_t queued;               /* QUEUED sequences */
    size_t in_flight;            /* PART and WHOLE sequences */
    unsigned units, cap;
    unsigned waiting;                /* sequences with device_waits: it occupies a hardware queue */
    uint64_t seen, enq;              /* entries seen <= n < enq are in the ring */
    culvert__slot *owed, **owed_end; /* staged downloads that have not reached their dst */
    culvert__task pump;              /* scheduled: a pump from the ready queue */

    culvert__notifier *arm; /* NULL: none is out */
    uint64_t arm_target;
    uint64_t arm_done; /* time at which the target was first seen complete, 0: not */
    culvert__watch watch;

    double latency;      /* moving average of submit to observed, nanoseconds */
    uint64_t spin_end;   /* now: no more spin until the next settle */
    unsigned spins_lost; /* in a row */
    unsigned spins_skip; /* sleeps without a spin to come */

    culvert__entry ring[CULVERT__STREAM_RING];
};

static inline culvert__entry *culvert__entry_at(culvert_stream *s, uint64_t number)
{
    return &s->ring[number % CULVERT__STREAM_RING];
}

/* ---- what a gpu has of it ---- */
typedef struct culvert__events {
    struct CUevent_st **free;
    size_t nfree, room;
    size_t made;
} culvert__events;

typedef struct culvert__staging culvert__staging;

/* Who waits for memory, of one kind: see alloc.c. */
typedef struct culvert__line {
    culvert__link requests; /* first come first served */
    bool dry;               /* the heap cannot grow for the first; error says why */
    bool marked;            /* low and mark are valid: for the first */
    size_t low;             /* bytes in use: the least since it is the first */
    uint64_t mark;          /* sequences submitted up to then */
    culvert_error error;
    uint64_t waited, rejected, grown, trimmed; /* counters */
} culvert__line;

typedef struct culvert__flow {
    culvert__link streams;  /* culvert_stream.all */
    culvert__link busy;     /* culvert_stream.busy; rotated */
    culvert__link starved;  /* culvert_stream.starved, first come first served */
    culvert__link slotless; /* culvert_stream.slotless, likewise */
    unsigned pool_size;     /* streams a priority */
    unsigned pooled[3];
    struct CUstream_st *spare[3][16]; /* natives of streams that are gone */
    unsigned nspare[3];
    culvert__link live; /* culvert_seq.live */
    culvert__link seqs; /* pool of sequences */
    size_t nseqs;
    culvert_seq
        *no_seq; /* what seq_begin returns when memory is short: failed, shared, never written */
    uint64_t submitted; /* numbers */
    culvert__events events, timed_events;
    struct CUevent_st *base; /* see timing.c */
    double base_seconds;
    unsigned clock; /* of this gpu, among those of its loop; from 1 */
    culvert__notifier *notifiers;
    culvert__completion_thread *thread; /* counted; NULL: not needed so far */
    bool late; /* host functions come too late: the completion thread takes their place */
    uint64_t late_count;
    culvert__staging *staging;
    uint64_t watchdog;      /* last pass */
    culvert__line lines[2]; /* device memory, pinned memory */
    size_t device_limit;    /* of the options; 0: none */
    uint64_t polls;         /* of the source */
    uint64_t asked, grew;   /* the ones at which memory was to grow, and grew, last */
    culvert__timer trim_timer;
    double trim_seconds;
    uint64_t trim_activity;      /* device->activity when it was started */
    struct CUstream_st *capture; /* private: for compiling culvert_seq_call; NULL: not needed yet */

    /* loss and budget: posts from other threads */
    culvert__link device_link; /* device->gpus */
    culvert_gpu *gpu;
    culvert__post budget_post, loss_post;
    atomic_bool budget_posted, loss_posted;
    culvert__link line;       /* device->line, while streams are starved; under the device's lock */
    unsigned wanted;          /* by the first of them, at least; under that lock */
    bool in_line;             /* it is linked: for the loop's thread, without the lock */
    unsigned turn;            /* units taken in this turn */
    culvert_error lost_error; /* valid once gpu->lost: what everything was rejected with */
    void (*on_lost)(culvert_gpu *, const culvert_error *, void *);
    void *on_lost_arg;
    culvert_free_fn *on_lost_free;
    culvert__task on_lost_task;

    /* the loop's thread, in the driver */
    unsigned entered; /* culvert__driver_enter, nested */
    int capture_mode; /* the thread's own, outside */

    /* monitor */
    culvert__link monitor_link;
    _Atomic(const char *) call; /* the driver call the loop's thread is in, NULL: none */
    atomic_ullong call_start;
    atomic_ullong oldest; /* submit time of the oldest work in flight, 0: none */
    _Atomic(const char *) oldest_what, oldest_where; /* its operation, and the place of that */
    atomic_bool stalled;
    unsigned long long reported_call, reported_oldest; /* monitor's: what on_stall was called for */
    double stall_seconds;
    void (*on_stall)(const char *, double, void *);
    void *on_stall_arg;
} culvert__flow;

/* timing.c */
void culvert__timing_start(culvert_seq *); /* takes its events; failed: it had to */
bool culvert__timing_take(culvert_seq *, culvert__timing *out); /* it is over: when it ran */
void culvert__timing_leave(culvert_gpu *);
/* seq_trace.c: what a tracer is told of a sequence. Only where there is one. */
void culvert__seq_trace_begin(culvert_seq *);
bool culvert__seq_trace_over(
    culvert_seq *); /* before its future settles; true: callbacks will run */
/* events.c: pools, per context. NULL: err filled. */
struct CUevent_st *culvert__event_take(culvert_gpu *, bool timed, culvert_error *err);
void culvert__event_give(culvert_gpu *, struct CUevent_st *, bool timed);
bool culvert__events_reserve(culvert_gpu *, size_t n, culvert_error *err);
void culvert__events_free(culvert_gpu *, bool leak);

/* enqueue.c */
void culvert__stream_submit(culvert_stream *, culvert_seq *); /* QUEUED; pumps */
void culvert__stream_pump(culvert_stream *);                  /* enqueues what fits, in order */
void culvert__stream_schedule(culvert_stream *);              /* pumps from the ready queue */

/* A segment that is being enqueued. */
typedef struct culvert__segment {
    culvert_seq *seq;
    unsigned reserved, used; /* driver operations */
    culvert__slot *slots, **slots_end;
    culvert__op *graphs;
    bool called; /* a function of the program's */
    int result;  /* of the call that failed */
    const char *call;
} culvert__segment;

typedef enum culvert__step {
    CULVERT__STEP_DONE, /* the operation is wholly in the driver */
    CULVERT__STEP_CUT,  /* a piece of it is, and the segment ends here */
    CULVERT__STEP_LAST, /* the last piece is, and the segment ends here */
    CULVERT__STEP_WAIT, /* it needs something that will come: the stream is pumped then */
    CULVERT__STEP_FAIL  /* segment->result, ->call; or the sequence has failed */
} culvert__step;

/* budget.c: the caps. 0: not now; the stream is pumped when there is room. */
unsigned culvert__units_take(culvert_stream *, unsigned least, unsigned most);
void culvert__units_give(culvert_stream *, unsigned units);
void culvert__budget_feed(culvert_gpu *); /* pumps starved streams */
void culvert__budget_posted(culvert__post *);
void culvert__starved_leave(culvert_stream *);
void culvert__budget_leave(culvert_gpu *); /* it starves no more */
/* Takes all units of the device, if it is idle: nothing can begin then, on any loop, until it is given back. */
bool culvert__device_claim(culvert__device *);
void culvert__device_unclaim(culvert_gpu *);
static inline unsigned culvert__units_low(const culvert_stream *s)
{
    return s->cap / 2;
}

/* seq_ops.c: for the functions that build operations. */
/* True where there is nothing to do: the sequence has failed, or this is a child after fork(), where another
   thread of the parent may have held a heap's lock. Aborts on NULL. */
bool culvert__seq_passes(culvert_seq *, const char *op);
bool culvert__seq_check_buffer(culvert_seq *, const culvert_buffer *, const char *verb,
                               const char *op, const char *where, size_t offset, size_t bytes);
/* Zeroed, in the arena; NULL: the sequence has failed. It is part of the sequence once it was added. */
culvert__op *culvert__op_new(culvert_seq *, culvert__op_kind, unsigned weight, const char *where);
void culvert__op_add(culvert_seq *, culvert__op *);
/* A copy that was checked, of buffers that are held; in pieces where it goes over seams. part: it goes on
   with what the operation before began. False: the sequence failed. */
/* peer.c: copies between devices */
bool culvert__peer_allows(const culvert_seq *, const culvert_buffer *, const culvert_buffer *other);
bool culvert__peer_copies(const culvert__op *); /* of a CULVERT__OP_COPY */
/* Is the other device lost? Then the sequence fails. For one operation, and for all. */
bool culvert__peer_op_lost(culvert_seq *, const culvert__op *);
void culvert__peers_lost(culvert_seq *);

bool culvert__seq_add_copy(culvert_seq *, culvert_buffer *dst, size_t dst_offset,
                           culvert_buffer *src, size_t src_offset, size_t bytes, bool part,
                           const char *where);
bool culvert__seq_hold_graph(culvert_seq *, culvert_graph *);
static inline void culvert__op_nothing(culvert_seq *seq) /* one of no bytes or blocks */
{
    seq->positions++;
}

/* seq.c, seq_ops.c, seq_wait.c, seq_end.c */
extern const culvert__kind culvert__seq_kind;
culvert_seq *culvert__seq_of(const culvert_future *); /* NULL: not a sequence's, or over */
void culvert__seq_wait_add(culvert_seq *, culvert_future *, const char *where); /* consumed */
bool culvert__seq_take_waits(culvert_seq *); /* outcomes that are there; false: some are pending */
void culvert__seq_drop_waits(culvert_seq *);
/* Can it start? The device waits are made then. WAIT: held; FAIL: segment->... as of a step. */
culvert__step culvert__seq_start_waits(culvert_seq *, culvert__segment *);
void culvert__seq_wake_dependents(culvert_seq *);
void culvert__seq_stop(culvert_seq *);       /* failed: nothing more of it goes to the driver */
void culvert__seq_try_settle(culvert_seq *); /* settles it if its work is over */
void culvert__seq_discard(culvert_seq *);    /* never submitted: releases everything now */
bool culvert__seq_refused(culvert_seq *, const char *op, const char *where); /* fails it then */
culvert_future *culvert__seq_reject(culvert_seq *);                          /* failed; consumed */
culvert_future *culvert__seq_reject_shared(culvert_seq *, const char *op, const char *where);
/* The one that seq_begin returns when memory is short. */
bool culvert__seq_is_shared(const culvert_seq *);
culvert_seq *culvert__no_seq_new(culvert_gpu *);
void culvert__seqs_leave(culvert_gpu *); /* the gpu leaves: finishes or buries what is live */
void culvert__seqs_free(culvert_gpu *);  /* the pool */
void culvert__seq_describe(const culvert_seq *, char *out, size_t size);
const char *culvert__op_name(const culvert__op *); /* "culvert_seq_launch"; NULL: of the submit */
const char *
culvert__seq_name(const culvert_seq *); /* of its first operation: "culvert_seq_launch" */
const char *culvert__seq_where(const culvert_seq *); /* likewise; may be NULL */

/* staging.c */
enum { CULVERT__SLOT_SMALL = 64 * 1024, CULVERT__SLOT_BIG = 1024 * 1024 };
struct culvert__slot {
    culvert__slot *next;      /* free list, an entry's list, an operation's fills */
    culvert__slot *owed_next; /* stream->owed */
    culvert__slot *all_next;  /* every slot of the staging */
    culvert__slot *job_next;  /* with the workers */
    culvert__post post;       /* from a worker */
    culvert__hub *hub;        /* of the post; borrowed */
    culvert__range *range;
    char *host;
    bool big;
    bool full;      /* upload: filled */
    bool copying;   /* with a worker */
    bool in_driver; /* a copy to or from it is in flight */
    bool dropped;   /* given up while it was with a worker */
    bool download;
    culvert_seq *seq;
    char *memory; /* upload: source; download: destination */
    size_t bytes;
};
culvert__staging *culvert__staging_new(culvert_gpu *, culvert_error *err);
void culvert__staging_stop(culvert_gpu *); /* joins the workers */
void culvert__staging_free(
    culvert_gpu *); /* slots that the device may still use stay with their memory */
void culvert__slotless_leave(culvert_stream *);
culvert__step culvert__upload_step(culvert__segment *, culvert__op *);
culvert__step culvert__download_step(culvert__segment *, culvert__op *);
void culvert__op_drop_slots(culvert_seq *, culvert__op *); /* of an operation that is given up */
/* An entry is complete: copies out what was downloaded, gives slots back. */
void culvert__staging_complete(culvert_stream *, culvert__entry *);
bool culvert__staging_at_rest(const culvert_gpu *); /* for tests: nobody has a slot */
bool culvert__staging_grow(culvert_gpu *); /* one step, where somebody waits; true: look again */
/* staging_copy.c: the workers */
typedef struct culvert__copiers culvert__copiers;
culvert__copiers *culvert__copiers_new(void);
void culvert__copiers_free(culvert__copiers *); /* copies that were given are done first */
bool culvert__copiers_give(culvert__copiers *, culvert__hub *,
                           culvert__slot *); /* false: no thread could be started */

/* alloc.c */
bool culvert__allocs_poll(culvert_gpu *);           /* true: look again at once */
double culvert__allocs_before_sleep(culvert_gpu *); /* seconds; 0: look again at once */
bool culvert__allocs_wait(const culvert_gpu *);     /* does somebody wait for memory? */
void culvert__allocs_reject(culvert_gpu *, const culvert_error *); /* all who wait */
/* Memory grows a step a turn, which has two polls, and not at the first poll that would have it grow: some
   may come back meanwhile. True: now, and no more in this turn. */
static inline bool culvert__may_grow(culvert__flow *flow)
{
    bool first = flow->polls > flow->asked + 1;
    flow->asked = flow->polls;
    if (first || flow->polls < flow->grew + 2)
        return false;
    flow->grew = flow->polls;
    return true;
}

/* trim.c */
typedef enum culvert__trim_result {
    CULVERT__TRIM_BUSY, /* the device is not idle */
    CULVERT__TRIM_MORE, /* something went back; there may be more */
    CULVERT__TRIM_NONE  /* there is nothing left that could */
} culvert__trim_result;
/* One piece of what nothing is out of, reserves too, goes back to the driver. */
culvert__trim_result culvert__trim_step(culvert_gpu *, bool pinned);
void culvert__trim_init(culvert_gpu *, double seconds);
void culvert__trim_watch(culvert_gpu *); /* memory has grown */
void culvert__trim_stop(culvert_gpu *);
double culvert__trim_before_sleep(culvert_gpu *); /* unregisters; seconds; 0: look again at once */
/* graph*.c */
culvert__step culvert__graph_step(culvert__segment *, culvert__op *);
void culvert__graphs_over(culvert__entry *);         /* the launches of an entry that is complete */
bool culvert__graphs_wanted(const culvert__entry *); /* somebody waits for the end of one of them */
void culvert__graph_line_leave(culvert_stream *);
culvert_graph *culvert__graph_ref(culvert_graph *);
void culvert__graph_put(culvert_graph *); /* culvert_graph_unref without its checks */
void culvert__graphs_leave(culvert_gpu *, bool leak);

/* completion.c */
bool culvert__completion_poll(culvert_gpu *);
double culvert__completion_before_sleep(culvert_gpu *, bool may_spin);

/* notify.c */
culvert__notifier *culvert__notifiers_new(culvert_gpu *, unsigned n, culvert_error *err);
void culvert__notifiers_free(culvert_gpu *, bool leak);
bool culvert__notifiers_out(culvert_gpu *);           /* a host function of ours is to come */
int culvert__notifier_query(culvert_gpu *);           /* cuStreamQuery of one: how the context is */
bool culvert__arm(culvert_stream *, uint64_t target); /* false: look again after a millisecond */

/* completion_thread.c */
/* Makes the device's thread serve this gpu, once and for all. 0, or the errno of a thread that could not be
   started: then nothing has changed, and a later call tries again. */
int culvert__completion_thread_join(culvert_gpu *);
/* After the watches of its streams have ended. False: an event of this gpu is in a call that does not
   return, so none may be destroyed. */
bool culvert__completion_thread_leave(culvert_gpu *);
void culvert__watch_init(culvert_stream *);
/* The thread wakes the loop when the target is over. False: look again after a millisecond. */
bool culvert__watch_set(culvert_stream *, uint64_t target, bool *newly);
/* Does nothing where its post is on its way. */
void culvert__watch_end(culvert_stream *);

/* loss.c */
/* The device is lost: rejects everything pending of this gpu, tells the other loops. */
void culvert__gpu_lose(culvert_gpu *, int result, const char *call);
void culvert__loss_posted(culvert__post *);
/* The result of a call for the sequence at hand failed; fills err; loses the device if it is that kind.
   query: an unlisted code loses the device too. */
void culvert__gpu_result(culvert_gpu *, int result, bool query, const char *call, const char *op,
                         const char *where, culvert_error *err);

/* monitor.c */
int culvert__monitor_add(culvert_gpu *); /* 0, or the errno of a thread that could not be started */
void culvert__monitor_remove(culvert_gpu *);
/* What the loop's thread is in, for the monitor; nests: the outer one is what begin returns. */
static inline const char *culvert__call_begin(culvert__flow *flow, const char *call)
{
    const char *outer = atomic_load_explicit(&flow->call, memory_order_relaxed);
    if (outer == NULL)
        atomic_store_explicit(&flow->call_start, culvert__now(), memory_order_relaxed);
    atomic_store_explicit(&flow->call, call, memory_order_release);
    return outer;
}
static inline void culvert__call_next(culvert__flow *flow, const char *call)
{
    atomic_store_explicit(&flow->call, call, memory_order_relaxed);
}
static inline void culvert__call_end(culvert__flow *flow, const char *outer)
{
    atomic_store_explicit(&flow->call, outer, memory_order_release);
}

/* The loop's thread in the driver: scope and call, and what functions of the program have to find as it was. */
typedef struct culvert__visit {
    culvert__scope scope;
    const char *outer;
} culvert__visit;
static inline culvert__visit culvert__driver_enter(culvert_gpu *gpu, const char *call)
{
    culvert__visit visit = {.outer = culvert__call_begin(gpu->flow, call)};
    visit.scope = culvert__scope_enter(gpu->device);
    if (gpu->flow->entered++ == 0)
        gpu->flow->capture_mode = visit.scope.mode;
    return visit;
}
static inline void culvert__driver_leave(culvert_gpu *gpu, culvert__visit visit)
{
    gpu->flow->entered--;
    culvert__scope_leave(visit.scope);
    culvert__call_end(gpu->flow, visit.outer);
}

/* gpu.c */
void culvert__gpu_leave(culvert_gpu *,
                        bool forked);       /* out of the loop: streams, events, notifiers go */
void culvert__gpu_post_done(culvert_gpu *); /* a post of another thread has run */
/* info.c */
void culvert__on_lost_schedule(culvert_gpu *);
/* stream.c */
culvert_stream *culvert__stream_make(culvert_gpu *, const culvert_stream_options *, const char *op,
                                     const char *where, culvert_error *err);
/* Of a native stream, with one reference. */
culvert_stream *culvert__stream_wrap(culvert_gpu *, struct CUstream_st *native, const char *op,
                                     const char *where, culvert_error *err);
void culvert__stream_put(culvert_stream *); /* culvert_stream_unref without its checks */
void culvert__pool_drop(culvert_gpu *);     /* the pool's references */
void culvert__streams_leave(culvert_gpu *, bool leak);
static inline culvert__core *culvert__gpu_core(culvert_gpu *gpu)
{
    return culvert__core_of(gpu->loop);
}
#endif
