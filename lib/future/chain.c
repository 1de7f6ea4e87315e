/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains: then, catch, finally, on_settled. One allocation a step: the future, its waiter and the
 * step.
 *
 *               up settled            fn returned a pending future
 *   WAITING -----------------> RUNNING -----------------------------------> ADOPTING
 *      |  \__ does not apply __    | fn returned NULL or a settled one          | it settled
 *      | cancelled             \   v                                            v
 *      +-----------------------> DONE <-----------------------------------------+
 *
 * A cancelled `finally` stays WAITING, as an observer that keeps its own memory: its future is
 * settled, its step still runs.
 *
 * Invariants:
 *   - the waiter waits for `up` while WAITING and RUNNING, for the returned future while ADOPTING;
 *   - arg is released when fn has returned, or when it will not be called;
 *   - adopters do not nest: a step that returns the next step for ever keeps two futures alive.
 *     When a step that only another adopter waits for is to adopt a future, that adopter waits for
 *     it instead.
 */
#include "future/future_internal.h"

#include <stdlib.h>

typedef enum step_mode { THEN, CATCH, FINALLY } step_mode;
typedef enum step_state { WAITING, RUNNING, ADOPTING, DONE } step_state;

typedef struct step {
    culvert_future base;
    culvert__waiter w;
    culvert_step_fn *fn;
    void *arg;
    culvert_free_fn *arg_free;
    uint8_t mode, state;
    bool observing; /* a cancelled finally: base is pinned until fn has run */
} step;

static step *step_of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, step, base);
}

static void step_cancel(culvert_future *f)
{
    step *s = step_of(f);

    if (s->state == WAITING && s->mode == FINALLY) {
        s->observing = true;
        culvert__pin(f);
        culvert__wait_observe(&s->w);
    } else if (s->state == WAITING || s->state == ADOPTING) {
        if (s->state == WAITING && s->arg_free != NULL)
            culvert__release_later(f);
        s->state = DONE;
        culvert__wait_cancel(&s->w);
    }
    culvert__settle_canceled(f);
}

static void step_release(culvert_future *f)
{
    step *s = step_of(f);

    s->arg_free(s->arg);
}

static const culvert__kind step_kind = {.name = "step",
                                        .cancel = step_cancel,
                                        .release = step_release};

static bool applies(const step *s, const culvert_future *up)
{
    return s->mode == FINALLY || (s->mode == THEN) == (up->status == CULVERT_OK);
}

/* ---- adoption ---- */

static void adopted(culvert__task *task)
{
    step *s = CULVERT__CONTAINER(task, step, w.task);

    s->state = DONE;
    culvert__settle_from(&s->base, s->w.up);
    culvert__wait_end(&s->w);
}

/* The adopter that is the only one interested in a future; else NULL. */
static culvert__waiter *lone_adopter(const culvert_future *f)
{
    culvert__link *first = f->waiters.next;

    if (f->interest != 1 || first == &f->waiters || first->next != &f->waiters)
        return NULL;
    culvert__waiter *w = CULVERT__CONTAINER(first, culvert__waiter, task.link);
    return w->interested && w->task.run == adopted ? w : NULL;
}

/* Whether `f`, seen through the steps that it waits for, is waiting for `s`. Bounded: it finds
   mistakes as they are made, such as a step that waits for its own future, not every circle. */
static bool waits_for(culvert_future *f, const step *s)
{
    for (int hops = 0; hops < 16; hops++) {
        if (f == &s->base)
            return true;
        if (f == NULL || f->kind != &step_kind || culvert__settled(f))
            return false;
        f = step_of(f)->w.up;
    }
    return false;
}

static void refuse(step *s, culvert_future *r, int code, const char *why)
{
    static const char *const ops[] = {"culvert_then", "culvert_catch", "culvert_finally"};

    s->state = DONE;
    culvert__settle_failed(&s->base, code, 0, ops[s->mode], NULL, "%s", why);
    culvert__unref(r);
}

static void adopt(step *s, culvert_future *r)
{
    if (r->core != NULL && r->core != s->base.core) {
        refuse(s, r, CULVERT_EINVAL, "a step returned a future of another loop");
        return;
    }
    if (waits_for(r, s)) {
        refuse(s, r, CULVERT_EDEADLK, "a step returned a future that waits for the step's own");
        return;
    }
    if (culvert__settled(r)) {
        s->state = DONE;
        culvert__settle_from(&s->base, r);
        if (!r->immortal)
            r->looked = 1;
        culvert__unref(r);
        return;
    }
    culvert__waiter *outer = lone_adopter(&s->base);
    if (outer == NULL) {
        s->state = ADOPTING;
        s->w.task.run = adopted;
        culvert__wait(r, &s->w);
        return;
    }
    s->state = DONE;
    culvert__wait_cancel(outer);
    culvert__wait(r, outer);
    culvert__settle_canceled(&s->base); /* nobody is left to see it */
}

/* ---- running ---- */

static void pass_by(step *s)
{
    culvert_free_fn *arg_free = s->arg_free;
    void *arg = s->arg;

    s->state = DONE;
    culvert__settle_from(&s->base, s->w.up);
    culvert__wait_end(&s->w);
    if (arg_free != NULL)
        arg_free(arg); /* s may be gone when it returns */
}

static void step_run(culvert__task *task)
{
    step *s = CULVERT__CONTAINER(task, step, w.task);
    culvert_future *up = s->w.up;

    if (!applies(s, up)) {
        pass_by(s);
        return;
    }
    s->state = RUNNING;
    culvert__pin(&s->base);
    culvert_future *r = s->fn(up, s->arg);
    if (s->arg_free != NULL)
        s->arg_free(s->arg);
    if (s->observing)
        culvert__unpin(&s->base);

    if (r == NULL)
        culvert__settle_from(&s->base, up);
    culvert__wait_end(&s->w);
    if (r == NULL || culvert__settled(&s->base)) { /* cancelled meanwhile */
        s->state = DONE;
        culvert__unref(r);
    } else {
        adopt(s, r);
    }
    culvert__unpin(&s->base);
}

static culvert_future *attach(const char *call, culvert_future *up, culvert_step_fn *fn, void *arg,
                              culvert_free_fn *arg_free, step_mode mode)
{
    CULVERT__REQUIRE(up, call, "future");
    CULVERT__REQUIRE(fn, call, "step");
    if (culvert__forked() || up->core == NULL) {
        culvert__release_arg(NULL, arg_free, arg);
        culvert__consume_forked(up);
        return culvert__future_static(NULL, CULVERT_EFORKED);
    }
    culvert__core *core = up->core;
    culvert__check_thread(core, call);

    culvert_future *f = NULL;
    if (!core->closing)
        f = culvert__future_alloc(core, &step_kind, sizeof(step));
    if (f == NULL) {
        f = culvert__future_refused(up, CULVERT_ENOMEM);
        culvert__release_arg(core, arg_free, arg);
        culvert__reap(core);
        return f;
    }
    step *s = step_of(f);
    s->fn = fn;
    s->arg = arg;
    s->arg_free = arg_free;
    s->mode = (uint8_t)mode;
    s->state = WAITING;
    s->w.task.run = step_run;
    culvert__wait(up, &s->w);
    return f;
}

culvert_future *culvert_then(culvert_future *future, culvert_step_fn *fn, void *arg,
                             culvert_free_fn *arg_free)
{
    return attach("culvert_then", future, fn, arg, arg_free, THEN);
}

culvert_future *culvert_catch(culvert_future *future, culvert_step_fn *fn, void *arg,
                              culvert_free_fn *arg_free)
{
    return attach("culvert_catch", future, fn, arg, arg_free, CATCH);
}

culvert_future *culvert_finally(culvert_future *future, culvert_step_fn *fn, void *arg,
                                culvert_free_fn *arg_free)
{
    return attach("culvert_finally", future, fn, arg, arg_free, FINALLY);
}

/* ---- the end of a chain ---- */

typedef struct end {
    culvert__waiter w;
    culvert_settled_fn *fn;
    void *arg;
    culvert_free_fn *arg_free;
} end;

static void end_run(culvert__task *task)
{
    end *e = CULVERT__CONTAINER(task, end, w.task);

    e->fn(e->w.up, e->arg);
    if (e->arg_free != NULL)
        e->arg_free(e->arg);
    culvert__wait_end(&e->w);
    free(e);
}

int culvert_on_settled(culvert_future *future, culvert_settled_fn *fn, void *arg,
                       culvert_free_fn *arg_free)
{
    CULVERT__REQUIRE(future, "culvert_on_settled", "future");
    CULVERT__REQUIRE(fn, "culvert_on_settled", "fn");
    if (culvert__forked() || future->core == NULL) {
        culvert__release_arg(NULL, arg_free, arg);
        culvert__consume_forked(future);
        return CULVERT_EFORKED;
    }
    culvert__core *core = future->core;
    culvert__check_thread(core, "culvert_on_settled");

    const int refused = core->closing ? CULVERT_ESHUTDOWN : CULVERT_ENOMEM;
    end *e = core->closing ? NULL : malloc(sizeof *e);
    if (e == NULL) {
        culvert__release_arg(core, arg_free, arg);
        culvert__unref(future);
        culvert__reap(core);
        return refused;
    }
    *e = (end){.w.task.run = end_run, .fn = fn, .arg = arg, .arg_free = arg_free};
    culvert__wait(future, &e->w);
    return CULVERT_OK;
}
