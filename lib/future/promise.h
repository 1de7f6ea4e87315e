/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A promise, for the file that settles it on the loop's thread (promise.c) and the one that does so
 * from any other (loop/post.c).
 */
#ifndef CULVERT_FUTURE_PROMISE_H
#define CULVERT_FUTURE_PROMISE_H

#include "future/future_internal.h"

struct culvert_promise {
    culvert_future base; /* the consumer's side: the loop's thread's */
    culvert__post post;  /* the posted forms */
    atomic_int
        sides; /* who has not let go: the consumers, the producer, `told` while it is queued */
    /* Consuming it twice is a mistake, which does no harm as long as the future is there. */
    atomic_bool consumed;
    const char *where;

    /* culvert_promise_on_cancel: the loop's thread's. */
    void (*on_cancel)(void *arg);
    void *arg;
    culvert_free_fn *arg_free;
    culvert__task told; /* in the ready queue: on_cancel is to be called */
    bool listening;     /* on_cancel, arg, arg_free are set */

    /* The outcome that a posted form brings; the producer's until the post was taken. */
    void *value;
    culvert_free_fn *value_free;
    culvert_error *error; /* from malloc; NULL: CULVERT_ENOMEM */
    bool rejects;
};

/* The loop's thread: on_cancel will not be called (any more); its arg is released. */
void culvert__promise_stop_listening(culvert_promise *);
/* Thread: any. The producer lets go: the promise, and the core, may be gone. */
void culvert__promise_let_go(culvert_promise *);
/* The loop's thread: settles with CULVERT_EBROKEN. */
void culvert__promise_break(culvert_promise *);

#endif
