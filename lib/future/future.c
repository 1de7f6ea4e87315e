/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a future: settle, interest, memory.
 *
 *   pending --settle--> resolved | rejected    (once; later settles only release what they bring)
 *   pending --last interest lost--> doomed --reap--> kind->cancel: settled as cancelled, or pending
 *                                                    until the work that has started is over
 *   settled --last interest and pin gone--> doomed --reap--> freed
 *
 * Invariants:
 *   - interest = handles + interested waiters + 1 while detached and pending;
 *   - a waiter is in the list of a pending future, or in the ready queue, or (w->up NULL) nowhere;
 *   - nothing of the user's runs in here but from culvert__reap_now, by the outermost call only. So
 *     neither a chain of any length nor releases that release more need stack;
 *   - an outcome that was passed through belongs to the future in `outcome`, which has none itself.
 */
#include "future/future_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the core ---- */

static const int static_codes[CULVERT__STATICS] = {CULVERT_ENOMEM, CULVERT_ESHUTDOWN,
                                                   CULVERT_EFORKED, CULVERT_ECANCELED,
                                                   CULVERT_EINVAL};

static const culvert__kind static_kind = {.name = "error"};

static const culvert_error forked_error = {CULVERT_EFORKED, 0, NULL, NULL,
                                           "not usable in a child after fork()"};

/* Never written: everything looks at `core` first. */
static culvert_future forked_future = {
    .kind = &static_kind,
    .waiters = {&forked_future.waiters, &forked_future.waiters},
    .refs = 1,
    .interest = 1,
    .status = CULVERT_EFORKED,
    .immortal = 1,
    .error = &forked_error,
};

int culvert__core_init(culvert__core *core)
{
    memset(core, 0, sizeof *core);
    culvert__list_init(&core->ready);
    culvert__list_init(&core->roots);
    culvert__guess_owner(core);
    for (size_t i = 0; i < CULVERT__STATICS; i++) {
        culvert_future *f = &core->statics[i];

        f->core = core;
        f->kind = &static_kind;
        culvert__list_init(&f->waiters);
        f->status = static_codes[i];
        f->error = culvert__static_error(static_codes[i]);
        f->immortal = 1;
    }
    return CULVERT_OK;
}

void culvert__core_fini(culvert__core *core)
{
    culvert__blocks_free(core); /* the statics are part of it */
}

static void live_add(culvert__core *core)
{
    if (core->live++ == 0 && core->closed && !core->held) {
        core->held = true;
        core->hold(core);
    }
}

void culvert__leave(culvert__core *core)
{
    if (--core->depth == 0 && core->close_wanted) {
        core->close_wanted = false;
        core->close(core);
    }
}

/* ---- memory ---- */

culvert_future *culvert__future_alloc(culvert__core *core, const culvert__kind *kind, size_t size)
{
    const unsigned block =
        kind->dealloc == NULL ? culvert__block_class(size) : CULVERT__BLOCK_CLASSES;
    culvert_future *f = culvert__block_alloc(core, block, size);

    if (f == NULL)
        return NULL;
    *f = (culvert_future){
        .core = core, .kind = kind, .refs = 1, .interest = 1, .status = CULVERT_PENDING};
    f->block = block & 3u;
    culvert__list_init(&f->waiters);
    memset((char *)f + sizeof *f, 0, size - sizeof *f);
    live_add(core);
    return f;
}

void culvert__future_make_root(culvert_future *f)
{
    culvert__list_push(&f->core->roots, &f->roots);
}

culvert_future *culvert__future_static(culvert__core *core, int code)
{
    if (core == NULL)
        return &forked_future;
    for (size_t i = 0; i < CULVERT__STATICS; i++) {
        if (static_codes[i] == code)
            return culvert__ref(&core->statics[i]);
    }
    return culvert__ref(&core->statics[0]);
}

static void doom(culvert_future *f)
{
    culvert__core *core = f->core;

    if (f->doomed)
        return;
    f->doomed = 1;
    f->doom_next = NULL;
    if (core->doomed == NULL)
        core->doomed = f;
    else
        core->doomed_last->doom_next = f;
    core->doomed_last = f;
}

void culvert__release_later(culvert_future *f)
{
    f->release_due = 1;
    doom(f);
}

static void free_future(culvert_future *f)
{
    culvert__core *core = f->core;

    if (f->immortal) {
        f->counted = 0;
        core->live--;
        return;
    }
    if (f->kind->destroy != NULL)
        f->kind->destroy(f);
    if (f->outcome != NULL)
        culvert__unpin(f->outcome);
    if (f->error_owned) {
        free((void *)(uintptr_t)f->error);
    } else if (f->value_free != NULL) {
        culvert_free_fn *value_free = f->value_free;

        f->value_free = NULL;
        value_free(f->value);
    }
    core->live--;
    if (f->kind->dealloc != NULL)
        f->kind->dealloc(f);
    else
        culvert__block_free(core, f->block, f);
}

static void reap_one(culvert_future *f)
{
    if (!culvert__settled(f) && f->interest == 0 && !culvert__inherited(f->core)) {
        f->dropped = 1;
        if (f->kind->cancel != NULL)
            f->kind->cancel(f);
        else
            culvert__settle_canceled(f);
    }
    if (f->release_due) {
        f->release_due = 0;
        culvert__pin(f);
        f->kind->release(f);
        f->pins--;
    }
    if (culvert__settled(f) && f->interest == 0 && f->pins == 0 && !f->doomed)
        free_future(f);
}

void culvert__reap_now(culvert__core *core)
{
    if (core->reaping)
        return;
    core->reaping = true;
    culvert__enter(core);
    while (core->doomed != NULL) {
        culvert_future *f = core->doomed;

        core->doomed = f->doom_next;
        f->doomed = 0;
        reap_one(f);
    }
    core->reaping = false;

    /* The reference stays until the end: leaving may take the binding down. */
    const bool last = core->held && core->live == 0;
    if (last)
        core->held = false;
    culvert__leave(core);
    if (last)
        core->unhold(core);
}

/* ---- rejections that nobody looked at ---- */

static void report_run(culvert__task *task)
{
    culvert_future *f = CULVERT__CONTAINER(task, culvert_future, report);
    const culvert_error copy = *culvert__peek_error(f);

    f->core->unhandled(f->core, &copy);
    culvert__unpin(f);
}

static void report(culvert_future *f)
{
    culvert__pin(f);
    f->looked = 1;
    f->report.run = report_run;
    culvert__ready_push_later(f->core, &f->report);
}

static bool is_unhandled(const culvert_future *f)
{
    return f->status < 0 && f->status != CULVERT_ECANCELED && !f->looked && !f->dropped &&
           !f->core->closed;
}

/*
 * A preallocated rejection is shared by all who got it, so who looked is not known exactly: a look
 * excuses the next handle that goes.
 */
static void immortal_dropped(culvert_future *f)
{
    if (is_unhandled(f) && !f->core->closing && !culvert__linked(&f->report.link))
        report(f);
    f->looked = 0;
}

culvert_future *culvert__future_refused(culvert_future *f, int code)
{
    culvert__core *core = f->core;

    if (core->closing && f->status < 0)
        return f;
    culvert_future *answer = culvert__future_static(core, core->closing ? CULVERT_ESHUTDOWN : code);
    culvert__unref(f);
    return answer;
}

/* ---- interest ---- */

static void interest_lost(culvert_future *f)
{
    if (culvert__settled(f) && !f->immortal && is_unhandled(f))
        report(f);
    if (!culvert__settled(f) || f->pins == 0)
        doom(f);
}

static void drop_interest(culvert_future *f)
{
    if (--f->interest == 0)
        interest_lost(f);
}

void culvert__unpin(culvert_future *f)
{
    if (--f->pins == 0 && f->interest == 0 && culvert__settled(f))
        doom(f);
}

culvert_future *culvert__ref(culvert_future *f)
{
    if (f->core == NULL)
        return f;
    if (f->immortal && !f->counted) {
        f->counted = 1;
        live_add(f->core);
    }
    f->refs++;
    f->interest++;
    return f;
}

void culvert__unref(culvert_future *f)
{
    if (f == NULL || f->core == NULL)
        return;
    f->refs--;
    if (f->immortal)
        immortal_dropped(f);
    drop_interest(f);
}

/* ---- settling ---- */

static void settle(culvert_future *f, int status)
{
    culvert__core *core = f->core;

    f->status = status;
    if (culvert__linked(&f->roots))
        culvert__list_unlink(&f->roots);
    if (!culvert__list_empty(&f->waiters)) {
        const bool was_empty = culvert__list_empty(&core->ready);

        culvert__list_splice(&core->ready, &f->waiters);
        if (was_empty)
            culvert__ready_filled(core);
    }
    if (f->detached) {
        f->detached = 0;
        f->interest--;
    }
    if (f->interest == 0)
        interest_lost(f);
}

void culvert__settle_value(culvert_future *f, void *value, culvert_free_fn *value_free)
{
    if (!culvert__settled(f)) {
        f->value = value;
        f->value_free = value_free;
        settle(f, CULVERT_OK);
    } else if (value_free != NULL) {
        culvert__core *core = f->core;

        culvert__enter(core);
        value_free(value);
        culvert__leave(core);
    }
}

void culvert__settle_static(culvert_future *f, int code)
{
    if (culvert__settled(f))
        return;
    f->error = culvert__static_error(code);
    settle(f, f->error->code);
}

void culvert__settle_canceled(culvert_future *f)
{
    if (culvert__settled(f))
        return;
    f->dropped = 1;
    culvert__settle_static(f, CULVERT_ECANCELED);
}

void culvert__settle_error_owned(culvert_future *f, culvert_error *err, int otherwise)
{
    if (culvert__settled(f)) {
        free(err);
    } else if (err == NULL) {
        culvert__settle_static(f, otherwise);
    } else {
        f->error = err;
        f->error_owned = 1;
        settle(f, err->code);
    }
}

culvert_error *culvert__error_copy(const culvert_error *err)
{
    culvert_error *copy = malloc(sizeof *copy);

    if (copy == NULL)
        return NULL;
    *copy = *err;
    copy->message[sizeof copy->message - 1] = '\0';
    if (copy->code >= 0)
        copy->code = CULVERT_EUSER;
    return copy;
}

void culvert__settle_error(culvert_future *f, const culvert_error *err)
{
    if (!culvert__settled(f))
        culvert__settle_error_owned(f, culvert__error_copy(err), CULVERT_ENOMEM);
}

void culvert__settle_failed(culvert_future *f, int code, int native, const char *op,
                            const char *where, const char *fmt, ...)
{
    va_list ap;

    if (culvert__settled(f))
        return;
    culvert_error *err = malloc(sizeof *err);
    if (err != NULL) {
        va_start(ap, fmt);
        culvert__error_vset(err, code, native, op, where, fmt, ap);
        va_end(ap);
    }
    culvert__settle_error_owned(f, err, code);
}

void culvert__settle_from(culvert_future *f, culvert_future *settled)
{
    if (culvert__settled(f))
        return;

    culvert_future *owner = settled->outcome != NULL ? settled->outcome : settled;
    /* What nobody owns is copied, so that chains do not keep each other's memory. */
    if (owner->status != CULVERT_OK && !owner->error_owned) {
        f->error = owner->error;
    } else if (owner->status != CULVERT_OK || owner->value != NULL || owner->value_free != NULL) {
        culvert__pin(owner);
        f->outcome = owner;
    }
    settle(f, settled->status);
}

const culvert_error *culvert__peek_error(const culvert_future *f)
{
    if (f->status >= 0)
        return NULL;
    return f->outcome != NULL ? f->outcome->error : f->error;
}

/* ---- waiters ---- */

void culvert__wait(culvert_future *f, culvert__waiter *w)
{
    culvert__core *core = f->core;

    w->up = f;
    w->interested = true;
    f->refs--; /* the handle's interest is the waiter's from now on */
    if (!f->immortal)
        f->looked = 1;
    if (culvert__settled(f)) {
        culvert__ready_push_later(core, &w->task);
        return;
    }
    culvert__list_push(&f->waiters, &w->task.link);
    if (f->kind->attached != NULL)
        f->kind->attached(f);
}

static void let_go(culvert__waiter *w)
{
    culvert_future *up = w->up;

    w->up = NULL;
    if (w->interested)
        drop_interest(up);
    else
        culvert__unpin(up);
}

void culvert__wait_cancel(culvert__waiter *w)
{
    if (w->up == NULL)
        return;
    if (culvert__linked(&w->task.link))
        culvert__ready_unlink(w->up->core, &w->task);
    let_go(w);
}

void culvert__wait_end(culvert__waiter *w)
{
    if (w->up != NULL)
        let_go(w);
}

void culvert__wait_observe(culvert__waiter *w)
{
    if (w->up == NULL || !w->interested)
        return;
    culvert__pin(w->up);
    w->interested = false;
    drop_interest(w->up);
}
