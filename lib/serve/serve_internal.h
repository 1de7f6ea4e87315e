/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the serve layer share. This layer knows all below it; nothing below knows it.
 */
#ifndef CULVERT_SERVE_INTERNAL_H
#define CULVERT_SERVE_INTERNAL_H

#include "loop/loop_internal.h" /* first: it sets CULVERT_NO_WHERE */

#include "culvert/serve.h"

/* Options of a program that was built with an older or newer header: what is missing is zero; what is not
   known here must be. `to` is filled (size bytes); false: err (NULL allowed) says what is wrong. */
bool culvert__options_read(void *to, size_t size, const void *from, const char *type,
                           const char *op, const char *where, culvert_error *err);
/* Counters for such a program: CULVERT_OK, or CULVERT_EINVAL where *out says no size, or one not known. */
int culvert__counters_write(void *out, const void *counters, size_t size);
/* Whether nothing can be made for a loop (fork, shutdown): then err (NULL allowed) is filled. */
bool culvert__loop_refuses(culvert_loop *, const char *op, culvert_error *err);
/* The handle that a function of the user returned, to be waited for on the core: NULL, and err filled, where
   it is none of this loop (it is consumed then). */
culvert_future *culvert__own_future(culvert__core *, culvert_future *, const char *op,
                                    const char *where, culvert_error *err);

/* ---- batchers: batcher.c has the queue, batch.c what runs ---- */

typedef struct culvert__item {
    culvert_future base;
    culvert__link link;       /* in the batcher's queue */
    culvert__timer expiry;    /* started while it waits and has a deadline */
    culvert_batcher *batcher; /* NULL: it does not wait any more */
    uint64_t since;           /* culvert__now() of its arrival */
    double deadline;          /* seconds, for the message */
    void *item;
    culvert_free_fn *item_free;
    const char *where;
    culvert_error *error; /* culvert_batch_fail: from malloc; NULL: no memory was left */
    bool failed;
    culvert__task release; /* of one that never ran; it is pinned */
} culvert__item;

struct culvert_batcher {
    culvert_loop *loop; /* its memory is counted */
    size_t handles;     /* 0: nothing is taken any more */
    size_t refs;        /* 1 while handles > 0, and one a batch */
    culvert_batcher_options options;
    uint64_t delay;      /* nanoseconds; UINT64_MAX: none ends the waiting */
    culvert__link queue; /* culvert__item.link, the oldest first */
    culvert__task pump;
    culvert__timer delay_timer;
    culvert_batcher_counters counters;
};

struct culvert_batch {
    culvert__waiter w;
    culvert__task release;    /* behind the callbacks of the items */
    culvert_batcher *batcher; /* counted */
    size_t n;
    culvert__item **items; /* each pinned */
    void *args[];          /* what run gets; the items are behind it */
};

/* batcher.c: the oldest item, out of the queue. */
culvert__item *culvert__batcher_pop(culvert_batcher *);
/* An item that has left the queue and will not run releases what it was given, behind the callbacks of
   its future, which has settled. */
void culvert__item_give_back(culvert__item *);
bool culvert__item_expired(const culvert__item *, uint64_t now);
void culvert__item_expire(culvert__item *); /* popped */
void culvert__batcher_schedule(culvert_batcher *);
void culvert__batcher_put(culvert_batcher *); /* one of refs less */
/* batch.c: takes what waits, at most max_items, and runs it. */
void culvert__batch_start(culvert_batcher *, uint64_t now);

#endif
