/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A semaphore: permits, and a queue of those who wait for one.
 *
 *   acquire --a permit is free----------------------------> granted (resolved)
 *      |
 *      +----> waiting --release, first come first served--> granted
 *                |
 *                +--cancelled, the semaphore or the loop goes--> rejected
 *
 * Invariants:
 *   - nobody waits while a permit is free;
 *   - a future that waits is in the queue and is a root; one that was granted knows the semaphore no more;
 *   - a grant is taken when it is made, not when it is read: no permit comes back by itself.
 */
#include "serve/serve_internal.h"

#include <stdlib.h>

struct culvert_semaphore {
    culvert_loop *loop; /* its memory is counted */
    size_t refs;
    size_t max_waiters;
    culvert__link queue; /* acquire.link */
    culvert_semaphore_counters counters;
};

typedef struct acquire {
    culvert_future base;
    culvert__link link;
    culvert_semaphore *semaphore;
} acquire;

static culvert__core *core_of(const culvert_semaphore *s)
{
    return culvert__core_of(s->loop);
}

/* ---- those who wait ---- */

static void leave(acquire *a)
{
    culvert__list_unlink(&a->link);
    a->semaphore->counters.waiting--;
    a->semaphore = NULL;
}

static void acquire_cancel(culvert_future *f)
{
    acquire *a = CULVERT__CONTAINER(f, acquire, base);

    a->semaphore->counters.canceled++;
    leave(a);
    culvert__settle_canceled(f);
}

static void acquire_shutdown(culvert_future *f, const culvert_error *err)
{
    acquire *a = CULVERT__CONTAINER(f, acquire, base);

    a->semaphore->counters.canceled++;
    leave(a);
    culvert__settle_static(f, err->code);
}

static const culvert__kind acquire_kind = {.name = "semaphore",
                                           .cancel = acquire_cancel,
                                           .shutdown = acquire_shutdown};

static acquire *first_of(culvert_semaphore *s)
{
    return CULVERT__CONTAINER(s->queue.next, acquire, link);
}

static void grant(culvert_semaphore *s, culvert_future *f)
{
    s->counters.held++;
    s->counters.granted++;
    culvert__settle_value(f, NULL, NULL);
}

culvert_future *culvert_semaphore_acquire_at(const char *where, culvert_semaphore *semaphore)
{
    const char *op = "culvert_semaphore_acquire";

    CULVERT__REQUIRE(semaphore, op, "semaphore");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__core *core = core_of(semaphore);
    culvert_semaphore_counters *c = &semaphore->counters;
    culvert__check_thread(core, op);
    if (culvert__refuses_work(core))
        return culvert__future_static(core, CULVERT_ESHUTDOWN);
    if (c->permits == 0 && c->waiting >= semaphore->max_waiters) {
        c->refused++;
        return culvert__future_failed(core, CULVERT_EAGAIN, 0, op, where,
                                      "%zu wait for a permit, and max_waiters is %zu", c->waiting,
                                      semaphore->max_waiters);
    }
    culvert_future *f = culvert__future_alloc(core, &acquire_kind, sizeof(acquire));
    if (f == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    if (c->permits > 0) {
        c->permits--;
        grant(semaphore, f);
        return f;
    }
    acquire *a = CULVERT__CONTAINER(f, acquire, base);
    a->semaphore = semaphore;
    c->waiting++;
    culvert__list_push(&semaphore->queue, &a->link);
    culvert__future_make_root(f);
    return f;
}

culvert_future *culvert_semaphore_acquire(culvert_semaphore *semaphore)
{
    return culvert_semaphore_acquire_at(NULL, semaphore);
}

void culvert_semaphore_release(culvert_semaphore *semaphore)
{
    CULVERT__REQUIRE(semaphore, "culvert_semaphore_release", "semaphore");
    culvert__core *core = core_of(semaphore);

    if (culvert__inherited(core))
        return;
    culvert__check_thread(core, "culvert_semaphore_release");
    if (semaphore->counters.held > 0)
        semaphore->counters.held--;
    if (culvert__list_empty(&semaphore->queue)) {
        semaphore->counters.permits++;
        return;
    }
    culvert_loop *loop = culvert_loop_ref(semaphore->loop); /* what is reaped may free anything */
    acquire *a = first_of(semaphore);
    leave(a);
    grant(semaphore, &a->base);
    culvert__reap(core);
    culvert_loop_unref(loop);
}

/* ---- life ---- */

culvert_semaphore *culvert_semaphore_new(culvert_loop *loop, size_t permits, size_t max_waiters,
                                         culvert_error *err)
{
    const char *op = "culvert_semaphore_new";

    CULVERT__REQUIRE(loop, op, "loop");
    if (culvert__loop_refuses(loop, op, err))
        return NULL;
    culvert_semaphore *s = calloc(1, sizeof *s);
    if (s == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, op, NULL, "no memory for a semaphore");
        return NULL;
    }
    s->loop = culvert_loop_ref(loop);
    s->refs = 1;
    s->max_waiters = max_waiters;
    s->counters.permits = permits;
    culvert__list_init(&s->queue);
    return s;
}

culvert_semaphore *culvert_semaphore_ref(culvert_semaphore *semaphore)
{
    CULVERT__REQUIRE(semaphore, "culvert_semaphore_ref", "semaphore");
    semaphore->refs++;
    return semaphore;
}

void culvert_semaphore_unref(culvert_semaphore *semaphore)
{
    if (semaphore == NULL || culvert__inherited(core_of(semaphore)))
        return;
    culvert_loop *loop = semaphore->loop;

    culvert__check_thread(core_of(semaphore), "culvert_semaphore_unref");
    if (--semaphore->refs > 0)
        return;
    while (!culvert__list_empty(&semaphore->queue)) {
        acquire *a = first_of(semaphore);

        leave(a);
        culvert__settle_static(&a->base, CULVERT_ECANCELED);
    }
    free(semaphore);
    culvert__reap(culvert__core_of(loop));
    culvert_loop_unref(loop);
}

int culvert_semaphore_stats(const culvert_semaphore *semaphore, culvert_semaphore_counters *out)
{
    CULVERT__REQUIRE(semaphore, "culvert_semaphore_stats", "semaphore");
    CULVERT__REQUIRE(out, "culvert_semaphore_stats", "out");
    return culvert__counters_write(out, &semaphore->counters, sizeof semaphore->counters);
}
