/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the layers above (loop, gpu, serve) and the files of this layer share about futures.
 *
 * This layer knows neither libev nor CUDA. All state of a binding that futures need is in
 * culvert__core, the first member of struct culvert_loop (which lib/loop defines), so that a
 * culvert_loop pointer converts to a culvert__core pointer.
 *
 * Everything here runs on the loop's thread unless said otherwise.
 */
#ifndef CULVERT_FUTURE_INTERNAL_H
#define CULVERT_FUTURE_INTERNAL_H

/* The library defines the functions behind the macros that add the place of a call. */
#ifndef CULVERT_NO_WHERE
#define CULVERT_NO_WHERE
#endif
#include "culvert/error.h"
#include "culvert/future.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- lists: circular, doubly linked, with an anchor; unlinking needs no knowledge of the list ---- */

typedef struct culvert__link {
    struct culvert__link *next, *prev; /* both NULL where it is in no list */
} culvert__link;

static inline void culvert__list_init(culvert__link *anchor)
{
    anchor->next = anchor->prev = anchor;
}

static inline bool culvert__list_empty(const culvert__link *anchor)
{
    return anchor->next == anchor;
}

static inline bool culvert__linked(const culvert__link *l)
{
    return l->next != NULL;
}

static inline void culvert__list_push(culvert__link *anchor, culvert__link *l)
{
    l->prev = anchor->prev;
    l->next = anchor;
    anchor->prev->next = l;
    anchor->prev = l;
}

static inline void culvert__list_unlink(culvert__link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->next = l->prev = NULL;
}

/* Moves all of `from` to the end of `anchor`, in order. */
static inline void culvert__list_splice(culvert__link *anchor, culvert__link *from)
{
    if (culvert__list_empty(from))
        return;
    from->next->prev = anchor->prev;
    anchor->prev->next = from->next;
    from->prev->next = anchor;
    anchor->prev = from->prev;
    culvert__list_init(from);
}

#define CULVERT__CONTAINER(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* ---- tasks: what the ready queue holds ---- */

typedef struct culvert__task {
    culvert__link link; /* first member */
    void (*run)(
        struct culvert__task *); /* called unlinked, at dispatch depth > 0; may free itself */
} culvert__task;

/* Something that waits for a future. Embedded in whatever waits: no allocation of its own. */
typedef struct culvert__waiter {
    culvert__task
        task; /* in up's list, then in the ready queue; task.run is called after up settled
                            and must call culvert__wait_end once it is done with up */
    culvert_future *up; /* what it waits for; holds one interest in it while `interested` */
    bool interested;    /* false: an observer; does not keep `up` from being cancelled */
} culvert__waiter;

/* ---- futures ---- */

typedef struct culvert__kind {
    const char *name; /* for messages: "then", "sequence" ... */
    /* The pending future is cancelled, or its last interest is gone (refs == 0 and nobody waits). It
       may settle it as cancelled (culvert__settle_canceled), or leave it pending where work has
       started. May run inside any public call, so it runs no callback of the user. May be called
       again for one that stays pending. NULL: settle it as cancelled. */
    void (*cancel)(culvert_future *);
    /* A waiter was attached to the pending future. May be NULL. */
    void (*attached)(culvert_future *);
    /* culvert_loop_free: settle it now with `err` (ESHUTDOWN, or EFORKED in a child). Only futures
       made with culvert__future_make_root need it. */
    void (*shutdown)(culvert_future *, const culvert_error *err);
    /* Releases what was put off to the outermost call (culvert__release_later): here functions of the user
       may run. May be NULL. */
    void (*release)(culvert_future *);
    /* The memory goes: release the kind's own members (not the outcome). May be NULL. */
    void (*destroy)(culvert_future *);
    /* Takes the place of free(), after destroy. NULL: free(). */
    void (*dealloc)(culvert_future *);
} culvert__kind;

typedef struct culvert__core culvert__core;

/*
 * A kind's struct begins with this and is allocated in one piece (culvert__future_alloc).
 *
 * Memory: a future stays as long as it is pending, or interest or pins are above 0. When the last of these
 * is gone it is put on core->doomed, and culvert__reap cancels it (pending) or frees it (settled).
 */
struct culvert_future {
    culvert__core *core; /* holds the core's memory; NULL for the one of a forked child */
    const culvert__kind *kind;
    culvert__link waiters; /* culvert__waiter.task.link, in the order attached */
    union {
        culvert__link roots;  /* in core->roots while it is a pending root */
        culvert__task report; /* settled: to on_unhandled, on a later turn */
    };
    culvert_future *doom_next; /* in core->doomed, while `doomed` */
    uint32_t refs;             /* handles */
    uint32_t interest;         /* handles + interested waiters + 1 while detached and pending */
    uint32_t pins;             /* internal: memory must stay (observers, outcomes passed through) */
    int32_t status;            /* CULVERT_PENDING, CULVERT_OK, or negative */
    unsigned looked : 1;       /* somebody waited for it or looked at its error: never unhandled */
    unsigned dropped : 1;      /* cancelled, or all interest was lost, while pending */
    unsigned detached : 1;     /* pending, and kept running with no handle */
    unsigned immortal : 1;     /* a preallocated one: its memory is the core's */
    unsigned counted : 1;      /* an immortal one that somebody holds: counted in core->live */
    unsigned doomed : 1;
    unsigned error_owned : 1;
    unsigned release_due : 1; /* culvert__reap is to call kind->release */
    unsigned block : 2;       /* its memory's class; see memory.c */
    culvert_future *outcome;  /* NULL: its own below; else pinned: the future it was passed through
                                   from (always a final owner: chains of these are collapsed) */
    union {
        void *value;                /* resolved */
        const culvert_error *error; /* rejected: heap (error_owned) or static */
    };
    culvert_free_fn *value_free;
};

/* Allocates `size` bytes (>= sizeof(culvert_future)), zeroed, as a pending future of a kind, with one
   reference for the caller. NULL where memory is short. Counts against the core's memory. */
culvert_future *culvert__future_alloc(culvert__core *, const culvert__kind *, size_t size);
/* A pending future that depends on no other one: settled by kind->shutdown at culvert_loop_free. */
void culvert__future_make_root(culvert_future *);
/* The preallocated rejected future for a code (CULVERT_ENOMEM, _ESHUTDOWN, _EFORKED, _ECANCELED, _EINVAL);
   core may be NULL only for CULVERT_EFORKED. */
culvert_future *culvert__future_static(culvert__core *, int code);
/*
 * The answer of a refused call that was given `f` (consumed), and would have returned a future for it: a
 * preallocated rejection; but while the binding is taken down, if f has rejected, f itself, since that is
 * what the program would see at the end of its chain, and would be told of twice otherwise.
 */
culvert_future *culvert__future_refused(culvert_future *f, int code);
/* A rejected future with that error, as culvert_rejected, but never refused for shutdown. */
culvert_future *culvert__future_rejected(culvert__core *, const culvert_error *);
culvert_future *culvert__future_failed(culvert__core *, int code, int native, const char *op,
                                       const char *where, const char *fmt, ...)
    CULVERT_PRINTF(6, 7);

static inline void culvert__pin(culvert_future *f)
{
    f->pins++;
}
void culvert__unpin(culvert_future *); /* may free it, in culvert__reap */

/* As culvert_ref and culvert_unref, for the library itself: no thread check, no reaping. */
culvert_future *culvert__ref(culvert_future *);
void culvert__unref(culvert_future *); /* NULL does nothing */

/* As culvert_cancel, likewise. */
void culvert__cancel(culvert_future *);
/* Calls arg_free(arg) unless arg_free is NULL, as a callback; core NULL: in a child after fork. */
void culvert__release_arg(culvert__core *, culvert_free_fn *arg_free, void *arg);

/* Asks for kind->release in culvert__reap. */
void culvert__release_later(culvert_future *);

/* Settle a pending future; on a settled one each only releases what it was given. Waiters move to the
   ready queue, in order; nothing runs inside. */
void culvert__settle_value(culvert_future *, void *value, culvert_free_fn *);
void culvert__settle_error(culvert_future *, const culvert_error *); /* copied */
void culvert__settle_canceled(culvert_future *);                     /* allocates nothing */
void culvert__settle_static(culvert_future *, int code);             /* as culvert__future_static */
void culvert__settle_from(culvert_future *, culvert_future *settled); /* pass its outcome through */
/* With a message; where no memory is left for it, with the code alone. */
void culvert__settle_failed(culvert_future *, int code, int native, const char *op,
                            const char *where, const char *fmt, ...) CULVERT_PRINTF(6, 7);
/* The error, from malloc, is given away; NULL (no memory was left): with the code `otherwise`. */
void culvert__settle_error_owned(culvert_future *, culvert_error *, int otherwise);
culvert_error *
culvert__error_copy(const culvert_error *); /* from malloc; NULL where memory is short */

/* The handle `future` (consumed) becomes w's interest; w runs once from the ready queue after it has
   settled, on a later turn also if it has already. w->task.run must be set. */
void culvert__wait(culvert_future *, culvert__waiter *w);
/* Withdraws a waiter that has not run: unlinks it and drops its interest (which may cancel upstream). */
void culvert__wait_cancel(culvert__waiter *);
/* Called by task.run when it has read up's outcome: drops the interest. */
void culvert__wait_end(culvert__waiter *);
/* Turns an interested waiter into an observer (may cancel upstream). */
void culvert__wait_observe(culvert__waiter *);

static inline bool culvert__settled(const culvert_future *f)
{
    return f->status != CULVERT_PENDING;
}
static inline bool culvert__awaited(const culvert_future *f)
{
    return !culvert__list_empty(&f->waiters);
}
/* The error of a rejected future without marking it as looked at; NULL if it is not rejected. */
const culvert_error *culvert__peek_error(const culvert_future *);
/* The members of a culvert_all; NULL (and *n 0) for any other future. */
culvert_future *const *culvert__all_children(const culvert_future *, size_t *n);

/* ---- the core: one a binding ---- */

enum { CULVERT__STATICS = 5, CULVERT__BLOCK_CLASSES = 2 };

typedef struct culvert__block culvert__block;

enum { CULVERT__BUCKETS = 32, CULVERT__OP_KINDS = 8 };

/* What has happened so far: culvert_loop_stats. The loop's thread counts, and nobody else looks. */
typedef struct culvert__counters {
    uint64_t turns;                /* of the loop */
    uint64_t spins, sleeps, ticks; /* turns that kept turning, slept, slept a millisecond */
    uint64_t host_function_wakes, thread_wakes;       /* arms that came back */
    uint64_t queries;                                 /* of events and streams */
    uint64_t submitted, resolved, rejected, canceled; /* sequences */
    uint64_t operations[CULVERT__OP_KINDS];           /* in the driver, by kind */
    uint64_t longest_ns;                              /* batch of callbacks */
    uint64_t latency[CULVERT__BUCKETS];               /* segments, from the driver to seen over */
    uint64_t stalls[CULVERT__BUCKETS];                /* batches of callbacks */
} culvert__counters;
/* Bucket i has what took less than 2^i microseconds, and not less than the one before. */
static inline void culvert__bucket(uint64_t *buckets, uint64_t ns)
{
    uint64_t us = ns / 1000;
    unsigned i = us == 0 ? 0 : 64u - (unsigned)__builtin_clzll(us);
    buckets[i < CULVERT__BUCKETS ? i : CULVERT__BUCKETS - 1]++;
}

struct culvert__core {
    culvert__link ready;    /* culvert__task.link */
    culvert__link *barrier; /* in ready: from here on not in this turn; NULL: none */
    culvert__link roots;    /* culvert_future.roots: pending, settled by shutdown */
    /* Releases put off to the outermost call, so that dropping a long chain needs no stack: a queue. */
    culvert_future *doomed, *doomed_last;
    uint64_t live;                                  /* futures whose memory is there */
    culvert__block *blocks[CULVERT__BLOCK_CLASSES]; /* freed ones that are kept; see memory.c */
    unsigned kept[CULVERT__BLOCK_CLASSES];
    unsigned depth; /* > 0: inside a callback (culvert__enter) */
    bool reaping;
    bool closing;      /* culvert_loop_free began: new work is ESHUTDOWN */
    bool awake;        /* the loop looks at the ready queue before it sleeps or ends: no kick */
    bool draining;     /* culvert_drain began: see culvert__refuses_work */
    bool closed;       /* it is over */
    bool held;         /* closed, and `live` holds a reference to the core's memory */
    bool close_wanted; /* culvert_loop_free was called inside a callback */
    bool child_done;   /* in a child: the inherited futures are (being) settled */
    void (*kick)(
        culvert__core *); /* the ready queue became non-empty, and not `awake`: make the loop
                                       turn */
    void (*hold)(
        culvert__core *); /* takes and drops a reference to the core's memory. Thread: any */
    void (*unhold)(culvert__core *);
    void (*close)(
        culvert__core *); /* what culvert_loop_free put off, from the outermost culvert__leave */
    void (*unhandled)(culvert__core *, const culvert_error *);
    unsigned clocks; /* numbers of gpus: see timing.c there */
    unsigned traces; /* numbers of tracers */
    culvert__counters counters;
    struct culvert__tracer *tracer; /* NULL: nothing is traced. See loop_internal.h */
    _Atomic uintptr_t owner; /* the loop's thread, or the one that made the binding; see thread.c */
    culvert_future statics[CULVERT__STATICS];
};

unsigned culvert__block_class(size_t size);
void *culvert__block_alloc(culvert__core *, unsigned block_class, size_t size);
void culvert__block_free(culvert__core *, unsigned block_class, void *memory);
void culvert__blocks_free(culvert__core *);

int culvert__core_init(
    culvert__core *); /* CULVERT_OK or CULVERT_ENOMEM; hooks are set by the caller */
void culvert__core_fini(culvert__core *); /* when the last memory reference goes */
static inline culvert__core *culvert__core_of(culvert_loop *loop)
{
    return (culvert__core *)(void *)loop;
}
static inline culvert_loop *culvert__loop_of(culvert__core *core)
{
    return (culvert_loop *)(void *)core;
}

/*
 * Around every call of a function of the user. culvert_loop_free inside is put off until the outermost
 * leave, which runs it: after a leave the core's memory may be gone, unless the caller holds it.
 */
static inline void culvert__enter(culvert__core *core)
{
    core->depth++;
}
void culvert__leave(culvert__core *);

/* Whether new work gets ESHUTDOWN. While draining, what a callback begins is not new: it continues what is in
   flight. */
static inline bool culvert__refuses_work(const culvert__core *core)
{
    return core->closing || (core->draining && core->depth == 0);
}

/*
 * Cancels and frees what has lost its last interest or pin: here functions of the user run (arg_free,
 * value_free). Every public call that may drop something ends with it; inside another one's it does
 * nothing. The loop calls it after each task, each poll and each post. After it the core's memory may be
 * gone, unless the caller holds it.
 */
void culvert__reap_now(culvert__core *);
static inline void culvert__reap(culvert__core *core)
{
    if (core->doomed != NULL)
        culvert__reap_now(core);
}

/* The ready queue has become non-empty. */
static inline void culvert__ready_filled(culvert__core *core)
{
    if (!core->awake)
        core->kick(core);
}
void culvert__ready_push(culvert__core *, culvert__task *);
/* As ready_push, but the task does not run in the turn (culvert__turn_begin) that is going on. */
void culvert__ready_push_later(culvert__core *, culvert__task *);
void culvert__ready_unlink(culvert__core *, culvert__task *);
void culvert__turn_begin(culvert__core *);
/* Runs at most `max` tasks, and stops soon after `until` (culvert__now); true if some are left. */
bool culvert__ready_run(culvert__core *, unsigned max, uint64_t until);

uint64_t culvert__now(void); /* CLOCK_MONOTONIC, nanoseconds. Thread: any */

/* ---- posts: how other threads reach the loop (loop layer); a promise carries one ---- */

typedef struct culvert__post {
    struct culvert__post *next;
    void (*run)(struct culvert__post *); /* on the loop's thread; may free or post the node again */
} culvert__post;

/* ---- checks ---- */

/* Nonzero in a child of a process that had made a binding or opened a driver (pthread_atfork). */
extern int culvert__forked_flag;
static inline bool culvert__forked(void)
{
    return __builtin_expect(culvert__forked_flag != 0, 0);
}
/* In such a child, handles that it inherited are left alone but in the callbacks by which it leaves them. */
static inline bool culvert__inherited(const culvert__core *core)
{
    return culvert__forked() && (core == NULL || !core->child_done);
}
/* A handle that a call consumes and that is refused in a forked child: released if that has left. */
static inline void culvert__consume_forked(culvert_future *future)
{
    if (future != NULL && future->core != NULL)
        culvert_unref(future);
}
/* Called once by culvert_loop_new and by whoever opens a driver: from now on a child is "forked". */
void culvert__fork_arm(void);

_Noreturn void culvert__abort_null(const char *call, const char *what);
#define CULVERT__REQUIRE(ptr, call, what)        \
    do {                                         \
        if ((ptr) == NULL)                       \
            culvert__abort_null((call), (what)); \
    } while (0)

void culvert__guess_owner(culvert__core *); /* by culvert__core_init */
/* The calling thread is the one that runs the loop from now on (or takes it down). */
void culvert__claim(culvert__core *);
/* Thread: any. Whether this is surely the loop's thread. */
bool culvert__is_owner(const culvert__core *);
/* Thread: any. As far as is known. */
bool culvert__may_own(const culvert__core *);
/* Thread: any. True: this thread may act as the loop's until own_end. */
bool culvert__own_begin(culvert__core *, bool *taken);
void culvert__own_end(culvert__core *, bool taken);

#ifndef NDEBUG
/* Aborts with a message that names the call if this is not the loop's thread. */
void culvert__check_thread(const culvert__core *, const char *call);
#else
static inline void culvert__check_thread(const culvert__core *core, const char *call)
{
    (void)core;
    (void)call;
}
#endif

/* Fills *err (NULL allowed) as a whole. */
void culvert__error_set(culvert_error *err, int code, int native, const char *op, const char *where,
                        const char *fmt, ...) CULVERT_PRINTF(6, 7);
void culvert__error_vset(culvert_error *err, int code, int native, const char *op,
                         const char *where, const char *fmt, va_list ap);

/* The error that stands for a code where there is no memory for one of its own: static. */
const culvert_error *culvert__static_error(int code);

/* NaN or negative seconds -> false and err is filled; the message names the call and the figure. */
bool culvert__seconds_ok(double seconds, const char *op, const char *where, culvert_error *err);

#endif
