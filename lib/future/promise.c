/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Promises: the producer's end.
 *
 * A promise and its future are one block with two sides, the consumers' (memory of the future) and
 * the producer's, because the producer may let go on another thread, also after culvert_loop_free:
 *
 *   both --future freed--> producer only --consumed--> freed
 *   both --consumed------> future only ---future freed--> freed
 *
 * Invariants:
 *   - the producer holds a reference to the core until it lets go;
 *   - the task `told` counts as a side while it is in the ready queue: the producer may let go
 *     meanwhile;
 *   - on_cancel's arg is released once: after fn, or when the promise is consumed, or on shutdown;
 *   - once the future's side is gone, base is settled and only read.
 */
#include "future/promise.h"

#include <stdlib.h>

static culvert_promise *promise_of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, culvert_promise, base);
}

static void side_gone(culvert_promise *p)
{
    if (atomic_fetch_sub(&p->sides, 1) == 1)
        free(p);
}

/* ---- on_cancel ---- */

static void tell_run(culvert__task *task)
{
    culvert_promise *p = CULVERT__CONTAINER(task, culvert_promise, told);
    culvert_free_fn *arg_free = p->arg_free;
    void *arg = p->arg;

    p->listening = false;
    if (!atomic_load(&p->consumed))
        p->on_cancel(arg);
    if (arg_free != NULL)
        arg_free(arg);
    side_gone(p);
}

static void tell(culvert_promise *p)
{
    p->told.run = tell_run;
    atomic_fetch_add(&p->sides, 1);
    culvert__ready_push_later(p->base.core, &p->told);
}

void culvert__promise_stop_listening(culvert_promise *p)
{
    if (!p->listening)
        return;
    p->listening = false;
    if (culvert__linked(&p->told.link)) {
        culvert__ready_unlink(p->base.core, &p->told);
        atomic_fetch_sub(&p->sides, 1); /* never the last: the caller's is there */
    }
    culvert__release_arg(p->base.core, p->arg_free, p->arg);
}

/* ---- the future's side ---- */

static void promise_cancel(culvert_future *f)
{
    culvert_promise *p = promise_of(f);

    culvert__settle_canceled(f);
    if (p->listening)
        tell(p);
}

static void promise_shutdown(culvert_future *f, const culvert_error *err)
{
    culvert__settle_static(f, err->code);
    culvert__promise_stop_listening(promise_of(f));
}

static void promise_dealloc(culvert_future *f)
{
    side_gone(promise_of(f));
}

static const culvert__kind promise_kind = {
    .name = "promise",
    .cancel = promise_cancel,
    .shutdown = promise_shutdown,
    .dealloc = promise_dealloc,
};

/* ---- the producer's side ---- */

void culvert__promise_let_go(culvert_promise *p)
{
    culvert__core *core = p->base.core;

    side_gone(p);
    core->unhold(core);
}

void culvert__promise_break(culvert_promise *p)
{
    culvert__settle_failed(&p->base, CULVERT_EBROKEN, 0, "culvert_promise_drop", p->where, "%s",
                           culvert_error_text(CULVERT_EBROKEN));
}

culvert_promise *culvert_promise_new_at(const char *where, culvert_loop *loop, culvert_future **out)
{
    CULVERT__REQUIRE(loop, "culvert_promise_new", "loop");
    CULVERT__REQUIRE(out, "culvert_promise_new", "out");
    if (culvert__forked()) {
        *out = culvert__future_static(NULL, CULVERT_EFORKED);
        return NULL;
    }
    culvert__core *core = culvert__core_of(loop);
    culvert__check_thread(core, "culvert_promise_new");
    if (core->closing) {
        *out = culvert__future_static(core, CULVERT_ESHUTDOWN);
        return NULL;
    }
    culvert_future *f = culvert__future_alloc(core, &promise_kind, sizeof(culvert_promise));
    if (f == NULL) {
        *out = culvert__future_static(core, CULVERT_ENOMEM);
        return NULL;
    }
    culvert_promise *p = promise_of(f);
    atomic_init(&p->sides, 2);
    atomic_init(&p->consumed, false);
    p->where = where;
    culvert__future_make_root(f);
    core->hold(core);
    *out = f;
    return p;
}

culvert_promise *culvert_promise_new(culvert_loop *loop, culvert_future **out)
{
    return culvert_promise_new_at(NULL, loop, out);
}

/* After the future was settled on the loop's thread. The core stays until the producer has let
   go. */
static void finish(culvert_promise *p)
{
    culvert__promise_stop_listening(p);
    culvert__reap(p->base.core);
    culvert__promise_let_go(p);
}

void culvert_resolve(culvert_promise *promise, void *value, culvert_free_fn *value_free)
{
    CULVERT__REQUIRE(promise, "culvert_resolve", "promise");
    if (culvert__inherited(promise->base.core)) {
        culvert__release_arg(NULL, value_free, value);
        return;
    }
    culvert__check_thread(promise->base.core, "culvert_resolve");
    if (atomic_exchange(&promise->consumed, true)) {
        culvert__release_arg(promise->base.core, value_free, value);
        return;
    }
    culvert__settle_value(&promise->base, value, value_free);
    finish(promise);
}

void culvert_reject(culvert_promise *promise, const culvert_error *err)
{
    CULVERT__REQUIRE(promise, "culvert_reject", "promise");
    CULVERT__REQUIRE(err, "culvert_reject", "err");
    if (culvert__inherited(promise->base.core))
        return;
    culvert__check_thread(promise->base.core, "culvert_reject");
    if (atomic_exchange(&promise->consumed, true))
        return;
    culvert__settle_error(&promise->base, err);
    finish(promise);
}

void culvert_promise_on_cancel(culvert_promise *promise, void (*fn)(void *arg), void *arg,
                               culvert_free_fn *arg_free)
{
    CULVERT__REQUIRE(promise, "culvert_promise_on_cancel", "promise");
    culvert__core *core = promise->base.core;

    if (culvert__inherited(core)) {
        culvert__release_arg(NULL, arg_free, arg);
        return;
    }
    culvert__check_thread(core, "culvert_promise_on_cancel");

    culvert__promise_stop_listening(promise);
    if (fn == NULL ||
        (culvert__settled(&promise->base) && promise->base.status != CULVERT_ECANCELED)) {
        culvert__release_arg(core, arg_free, arg);
    } else {
        promise->on_cancel = fn;
        promise->arg = arg;
        promise->arg_free = arg_free;
        promise->listening = true;
        if (culvert__settled(&promise->base))
            tell(promise);
    }
}
