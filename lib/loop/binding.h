/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The binding as the files of this layer share it: loop_internal.h is what the layers above see.
 */
#ifndef CULVERT_LOOP_BINDING_H
#define CULVERT_LOOP_BINDING_H

#include "loop/loop_internal.h"

#include <ev.h>
#include <stdatomic.h>

/*
 * How other threads reach the loop. It outlives the binding: whoever posts holds a reference, of
 * its own or the binding's memory's.
 *
 * A post is: look whether it is closed, pin, look again, push, send if the stack was empty, unpin.
 * Closing is: close, wait until no pin is left, drain. So a post is either refused or drained, and
 * ev_async_send is never called for a watcher that has been stopped.
 */
struct culvert__hub {
    _Atomic(culvert__post *) head; /* the newest first */
    atomic_uint pins;
    atomic_bool closing; /* refuses culvert_post and the like */
    atomic_bool closed;  /* refuses everything */
    atomic_size_t refs;
    struct ev_loop *ev;
    ev_async async;
};

typedef struct culvert__pool culvert__pool;

struct culvert_loop {
    culvert__core core; /* first: culvert__core_of */
    atomic_size_t refs; /* of the memory */
    culvert_loop_options options;
    char *driver;

    /* The loop's thread's from here on. */
    struct ev_loop *ev; /* NULL once the binding is down */
    ev_prepare prepare;
    ev_check check;
    ev_check tail; /* after the program's own callbacks */
    ev_idle idle;
    ev_timer timer;
    culvert__hub *hub;

    size_t keep;         /* culvert__loop_keep, ..._keep_idle */
    size_t idle_keeps;   /* of these: culvert__loop_keep_idle */
    size_t work;         /* culvert__loop_work_begin */
    culvert__link quiet; /* culvert__quiet.link */
    bool alive;          /* an ev_ref is taken */
    bool posted;         /* a post was made on the loop's thread and not drained */
    bool decided;        /* between prepare and check: what wakes the loop has been decided */
    uint64_t armed;      /* `timer` is set for then; 0: it is not */

    culvert__timer **heap; /* [1 .. timers], the nearest first */
    size_t timers, room;
    uint64_t order;

    culvert__link sources;
    culvert__link *cursor; /* the next source to look at, while they are looked at */
    culvert__pool *pool;   /* NULL before the first culvert_work */
};

/* What depends on the watchers being there is a no-op where they are not. */
static inline bool culvert__loop_up(const culvert_loop *loop)
{
    return loop->ev != NULL;
}

/* loop.c: takes or drops the ev_ref, as there is something that keeps the loop alive or not. */
void culvert__loop_balance(culvert_loop *);

/* dispatch.c */
void culvert__dispatch_start(culvert_loop *);
void culvert__dispatch_stop(culvert_loop *);
/* Drains posts, polls sources, reaps. True if a source has more to do at once. */
bool culvert__loop_gather(culvert_loop *);

/* post.c */
culvert__hub *culvert__hub_new(struct ev_loop *);
void culvert__hub_drain(culvert_loop *);
static inline bool culvert__hub_waiting(const culvert__hub *hub)
{
    return atomic_load_explicit(&hub->head, memory_order_relaxed) != NULL;
}
void culvert__hub_refuse(culvert__hub *);  /* culvert_post and the like */
void culvert__hub_close(culvert_loop *);   /* everything; drains what was taken */
void culvert__hub_discard(culvert_loop *); /* in a child after fork: releases, runs nothing */

/* timer.c */
void culvert__timers_fire(culvert_loop *, uint64_t now); /* those due before then */
uint64_t culvert__timers_next(const culvert_loop *);     /* UINT64_MAX: none */
void culvert__timers_free(culvert_loop *);               /* those left are as stopped */

/* worker.c */
void culvert__pool_discard(culvert_loop *, const culvert_error *); /* jobs that have not started */
bool culvert__pool_busy(const culvert_loop *);
void culvert__pool_join(culvert_loop *);   /* when none is running */
void culvert__pool_forget(culvert_loop *); /* in a child after fork */

/* log.c */
void culvert__loop_unhandled(culvert__core *, const culvert_error *);

/* close.c, fork.c */
void culvert__loop_close(culvert__core *);
/* free: by culvert_loop_free, which gives up the program's reference. */
void culvert__loop_in_child(culvert_loop *, bool free);
void culvert__settle_roots(culvert_loop *, const culvert_error *);

#endif
