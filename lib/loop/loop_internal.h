/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the gpu layer needs of the binding: a way to keep the loop alive, posts from other threads,
 * timers, and sources (things that are polled before the loop sleeps and after it woke).
 *
 * Everything here runs on the loop's thread unless said otherwise.
 */
#ifndef CULVERT_LOOP_INTERNAL_H
#define CULVERT_LOOP_INTERNAL_H

#include "future/future_internal.h" /* first: it sets CULVERT_NO_WHERE */

#include "culvert/loop.h"

#include <pthread.h>

/* ---- threads of the library's own ---- */
/* Starts one that takes none of the program's signals. name: for debuggers, at most 15 letters; NULL: as the
   program's. 0, or an errno. Thread: any. */
int culvert__thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *name);

/* ---- keepalive: ev_run does not return while the count is above 0 ---- */
void culvert__loop_keep(culvert_loop *);
void culvert__loop_unkeep(culvert_loop *);
/* The same, for what may go on for ever (a time, input that may come): it is not in flight. */
void culvert__loop_keep_idle(culvert_loop *);
void culvert__loop_unkeep_idle(culvert_loop *);

/* ---- what is in flight, for culvert_drain: all that keeps the loop alive and is not idle, and work that
   something else brings forward (items of batchers ...), which does not keep it alive ---- */
void culvert__loop_work_begin(culvert_loop *);
void culvert__loop_work_end(culvert_loop *);
size_t culvert__loop_in_flight(const culvert_loop *);
/* Is a job of culvert_work under way? */
bool culvert__loop_jobs(const culvert_loop *);
/* Told whenever the last of what is in flight is over, inside whatever call that happens in: it settles
   nothing, and leaves the list as it is. */
typedef struct culvert__quiet {
    culvert__link link;
    void (*fn)(struct culvert__quiet *);
} culvert__quiet;
void culvert__loop_quiet_add(culvert_loop *, culvert__quiet *);

/* Something changed that the decision to sleep was based on (a submit, a waiter): look again before
   sleeping. Cheap: only does something between prepare and check. */
void culvert__loop_resume(culvert_loop *);

/* The options as they are in force (defaults filled in). options->driver is a copy that lives as long
   as the binding. */
const culvert_loop_options *culvert__loop_options(culvert_loop *);

/* Thread: any. */
void culvert__loop_log(culvert_loop *, int level, const char *fmt, ...) CULVERT_PRINTF(3, 4);

/* ---- the hub: posts from any thread; outlives the binding ---- */
typedef struct culvert__hub culvert__hub;

culvert__hub *culvert__loop_hub(culvert_loop *); /* borrowed */
culvert__hub *culvert__hub_ref(culvert__hub *);  /* Thread: any */
void culvert__hub_unref(culvert__hub *);         /* Thread: any */
/* Thread: any, host functions of the driver too: takes no lock, allocates nothing, calls no driver.
   CULVERT_OK, or CULVERT_ESHUTDOWN once culvert_loop_free closed the hub: the node was not taken. A node
   that was taken is run, also by culvert_loop_free. */
int culvert__hub_post(culvert__hub *, culvert__post *);

/* ---- timers: monotonic, counted from now ---- */
typedef struct culvert__timer {
    size_t place;                          /* in the heap, from 1; 0: not started */
    uint64_t deadline;                     /* culvert__now() */
    void (*fire)(struct culvert__timer *); /* started again or freed at will */
    uint64_t order;                        /* of the start: equal deadlines fire in it */
    bool keeps;                            /* it keeps the loop alive */
} culvert__timer;
/* seconds >= 0 (INFINITY allowed: never fires and keeps nothing). CULVERT_OK or CULVERT_ENOMEM. */
int culvert__timer_start(culvert_loop *, culvert__timer *, double seconds, bool keeps);
void culvert__timer_stop(culvert_loop *, culvert__timer *);

/* ---- sources: one a culvert_gpu ---- */
typedef struct culvert__source {
    culvert__link link;
    /* In prepare and in check: finds out what is over and settles it, bounded a call. True if more is to
       be done at once (the loop then does not sleep). */
    bool (*poll)(struct culvert__source *);
    /* In prepare, when neither poll nor the ready queue has anything: returns 0 to keep the loop
       turning (spin; only where may_spin), else arms what is to wake the loop and returns the seconds after
       which it must look again at the latest (INFINITY: nothing in flight). It may settle futures. */
    double (*before_sleep)(struct culvert__source *, bool may_spin);
    /* culvert_loop_free, first: true if something is in flight that can still end. */
    bool (*busy)(struct culvert__source *);
    /* culvert_loop_free, last, after the roots were settled: let go of everything that belongs to the
       loop; the source has been unlinked. forked: touch neither driver nor threads. */
    void (*detach)(struct culvert__source *, bool forked);
} culvert__source;
/* For a walk over all of them; NULL: the first, and behind the last. */
culvert__source *culvert__source_next(culvert_loop *, culvert__source *);
void culvert__source_add(culvert_loop *, culvert__source *);
void culvert__source_remove(culvert_loop *, culvert__source *); /* not after detach */

/* ---- tracing: the table that the trace layer sets as core->tracer ---- */

/* A stream's row, kept with the stream. */
typedef struct culvert__track {
    unsigned serial, number; /* of the tracer that has named it */
    uint64_t end;            /* of the last span */
} culvert__track;

typedef struct culvert__trace_begin {
    const char *name, *detail; /* copied; detail "" where there is none */
    const char *where;         /* copied; may be NULL */
    culvert__track *track;     /* lives until `settled` */
    unsigned device;
    uint64_t built; /* culvert__now(); 0: it was begun before the trace */
} culvert__trace_begin;

typedef struct culvert__trace_end {
    int code;
    bool awaited;      /* callbacks are going to run */
    unsigned clock;    /* of the times below; 0: it was not on the device */
    double start, end; /* seconds of that clock */
} culvert__trace_end;

typedef struct culvert__tracer culvert__tracer;
/* What a tracer has of a sequence; it may be told of it also after it was stopped. */
typedef struct culvert__traced {
    const culvert__tracer *tracer;
} culvert__traced;
struct culvert__tracer {
    /* NULL: this one is not traced. */
    culvert__traced *(*submitted)(culvert__tracer *, const culvert__trace_begin *);
    void (*enqueued)(culvert__traced *);                         /* wholly in the driver */
    void (*over)(culvert__traced *, const culvert__trace_end *); /* before its future settles */
    void (*settled)(culvert__traced *, bool awaited);            /* after that; it is gone */
    void (*stop)(culvert__tracer *);
};

#endif
