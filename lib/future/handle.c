/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program does with a future at hand: count references, read the outcome, cancel, give up;
 * and futures that are settled from the start.
 *
 * Invariant: in a child after fork() a handle that was inherited is read but never changed, unless
 * the child is leaving the binding (core->child_done).
 */
#include "future/future_internal.h"

#include <stdlib.h>

/* Looking at an outcome is noted, although the caller only reads. */
static culvert_future *writable(const culvert_future *f)
{
    return (culvert_future *)(uintptr_t)f;
}

/* ---- settled from the start ---- */

static const culvert__kind settled_kind = {.name = "settled"};

void culvert__release_arg(culvert__core *core, culvert_free_fn *arg_free, void *arg)
{
    if (arg_free == NULL)
        return;
    if (core == NULL) {
        arg_free(arg);
        return;
    }
    culvert__enter(core);
    arg_free(arg);
    culvert__leave(core);
}

culvert_future *culvert_resolved(culvert_loop *loop, void *value, culvert_free_fn *value_free)
{
    CULVERT__REQUIRE(loop, "culvert_resolved", "loop");
    culvert__core *core = culvert__core_of(loop);

    if (culvert__forked()) {
        culvert__release_arg(NULL, value_free, value);
        return culvert__future_static(NULL, CULVERT_EFORKED);
    }
    culvert__check_thread(core, "culvert_resolved");
    culvert_future *f = NULL;
    if (!core->closing)
        f = culvert__future_alloc(core, &settled_kind, sizeof *f);
    if (f == NULL) {
        f = culvert__future_static(core, core->closing ? CULVERT_ESHUTDOWN : CULVERT_ENOMEM);
        culvert__release_arg(core, value_free, value);
        return f;
    }
    culvert__settle_value(f, value, value_free);
    return f;
}

static culvert_future *rejected_owned(culvert__core *core, culvert_error *err)
{
    culvert_future *f = NULL;

    if (err != NULL)
        f = culvert__future_alloc(core, &settled_kind, sizeof *f);
    if (f == NULL) {
        free(err);
        return culvert__future_static(core, CULVERT_ENOMEM);
    }
    culvert__settle_error_owned(f, err, CULVERT_ENOMEM);
    return f;
}

culvert_future *culvert__future_rejected(culvert__core *core, const culvert_error *err)
{
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    return rejected_owned(core, culvert__error_copy(err));
}

static culvert_future *failed(culvert__core *core, int code, int native, const char *op,
                              const char *where, const char *fmt, va_list ap)
{
    culvert_error *err = malloc(sizeof *err);

    if (err != NULL) {
        culvert__error_vset(err, code < 0 ? code : CULVERT_EUSER, native, op, where, fmt, ap);
    }
    return rejected_owned(core, err);
}

culvert_future *culvert__future_failed(culvert__core *core, int code, int native, const char *op,
                                       const char *where, const char *fmt, ...)
{
    va_list ap;

    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    va_start(ap, fmt);
    culvert_future *f = failed(core, code, native, op, where, fmt, ap);
    va_end(ap);
    return f;
}

culvert_future *culvert_rejected(culvert_loop *loop, const culvert_error *err)
{
    CULVERT__REQUIRE(loop, "culvert_rejected", "loop");
    CULVERT__REQUIRE(err, "culvert_rejected", "err");
    if (!culvert__forked())
        culvert__check_thread(culvert__core_of(loop), "culvert_rejected");
    return culvert__future_rejected(culvert__core_of(loop), err);
}

culvert_future *culvert_fail(culvert_loop *loop, int code, int native, const char *fmt, ...)
{
    va_list ap;

    CULVERT__REQUIRE(loop, "culvert_fail", "loop");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__check_thread(culvert__core_of(loop), "culvert_fail");
    va_start(ap, fmt);
    culvert_future *f = failed(culvert__core_of(loop), code, native, NULL, NULL, fmt, ap);
    va_end(ap);
    return f;
}

culvert_future *culvert_fail_at(const char *where, culvert_loop *loop, int code, int native,
                                const char *fmt, ...)
{
    va_list ap;

    CULVERT__REQUIRE(loop, "culvert_fail", "loop");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__check_thread(culvert__core_of(loop), "culvert_fail");
    va_start(ap, fmt);
    culvert_future *f = failed(culvert__core_of(loop), code, native, NULL, where, fmt, ap);
    va_end(ap);
    return f;
}

/* ---- references ---- */

culvert_future *culvert_ref(culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_ref", "future");
    if (culvert__inherited(future->core))
        return future;
    culvert__check_thread(future->core, "culvert_ref");
    return culvert__ref(future);
}

void culvert_unref(culvert_future *future)
{
    if (future == NULL || culvert__inherited(future->core))
        return;
    culvert__core *core = future->core;

    culvert__check_thread(core, "culvert_unref");
    culvert__unref(future);
    culvert__reap(core);
}

void culvert_detach(culvert_future *future)
{
    if (future == NULL || culvert__inherited(future->core))
        return;
    culvert__core *core = future->core;

    culvert__check_thread(core, "culvert_detach");
    if (culvert__settled(future) || future->detached) {
        culvert__unref(future);
    } else {
        future->refs--; /* its interest stays until it has settled */
        future->detached = 1;
    }
    culvert__reap(core);
}

void culvert_cancel(culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_cancel", "future");
    if (culvert__inherited(future->core))
        return;
    culvert__core *core = future->core;

    culvert__check_thread(core, "culvert_cancel");
    culvert__cancel(future);
    culvert__reap(core);
}

void culvert__cancel(culvert_future *f)
{
    if (culvert__settled(f))
        return;
    f->dropped = 1;
    if (f->kind->cancel != NULL)
        f->kind->cancel(f);
    else
        culvert__settle_canceled(f);
}

/* ---- reading ---- */

static culvert_future *owner_of(const culvert_future *f)
{
    return writable(f->outcome != NULL ? f->outcome : f);
}

int culvert_status(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_status", "future");
    if (culvert__inherited(future->core))
        return culvert__settled(future) ? future->status : CULVERT_EFORKED;
    culvert__check_thread(future->core, "culvert_status");
    return future->status;
}

const culvert_error *culvert_get_error(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_get_error", "future");
    if (culvert__inherited(future->core)) {
        return culvert__settled(future) ? culvert__peek_error(future)
                                        : culvert__static_error(CULVERT_EFORKED);
    }
    culvert__check_thread(future->core, "culvert_get_error");
    if (future->status < 0 && !future->looked)
        writable(future)->looked = 1;
    return culvert__peek_error(future);
}

void *culvert_value(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_value", "future");
    if (future->core != NULL)
        culvert__check_thread(future->core, "culvert_value");
    return future->status == CULVERT_OK ? owner_of(future)->value : NULL;
}

void *culvert_take(culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_take", "future");
    if (future->core != NULL)
        culvert__check_thread(future->core, "culvert_take");
    if (culvert__inherited(future->core) || future->status != CULVERT_OK)
        return NULL;

    culvert_future *owner = owner_of(future);
    void *value = owner->value;
    owner->value = NULL;
    owner->value_free = NULL;
    return value;
}

culvert_loop *culvert_future_loop(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_future_loop", "future");
    return future->core != NULL ? culvert__loop_of(future->core) : NULL;
}
