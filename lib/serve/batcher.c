/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue of a batcher, and when a batch is made of it.
 *
 *   item:  waiting --a batch takes it--> running --its batch is over--> settled, released
 *             |
 *             +--cancelled, expired, the batcher or the loop goes--> settled, released; it never runs
 *
 * Invariants:
 *   - an item that waits is in the queue, is a root, and its `batcher` is set; leaving clears it, so an item
 *     leaves once, and runs once or not at all;
 *   - while something waits and may not run yet there is something that looks again: the pump in the ready
 *     queue, the delay's timer, or the end of a batch;
 *   - an item that waits or runs is in flight for culvert_drain;
 *   - counters: added = queued + running_items + resolved + rejected + expired + canceled.
 */
#include "serve/serve_internal.h"

#include <stdlib.h>

/* Batches a pump: a run that adds items and is done at once must not keep the loop. */
enum { DEFAULT_ITEMS = 32, BATCHES = 64 };

static culvert__core *core_of(const culvert_batcher *b)
{
    return culvert__core_of(b->loop);
}

static culvert__item *item_of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, culvert__item, base);
}

/* ---- leaving the queue ---- */

static void unqueue(culvert__item *it)
{
    culvert_batcher *b = it->batcher;

    culvert__list_unlink(&it->link);
    culvert__timer_stop(b->loop, &it->expiry);
    it->batcher = NULL;
    if (--b->counters.queued == 0)
        culvert__timer_stop(b->loop, &b->delay_timer); /* it keeps the loop alive */
}

static void release_item(culvert__task *task)
{
    culvert__item *it = CULVERT__CONTAINER(task, culvert__item, release);

    it->item_free(it->item);
    culvert__unpin(&it->base);
}

void culvert__item_give_back(culvert__item *it)
{
    culvert__loop_work_end(culvert__loop_of(it->base.core));
    if (it->item_free == NULL)
        return;
    culvert__pin(&it->base);
    it->release.run = release_item;
    culvert__ready_push_later(it->base.core, &it->release);
}

static void leave(culvert__item *it)
{
    it->batcher->counters.canceled++;
    unqueue(it);
}

culvert__item *culvert__batcher_pop(culvert_batcher *b)
{
    culvert__item *it = CULVERT__CONTAINER(b->queue.next, culvert__item, link);

    unqueue(it);
    return it;
}

/* ---- deadlines ---- */

static uint64_t nanoseconds(double seconds)
{
    return seconds < 9e9 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

bool culvert__item_expired(const culvert__item *it, uint64_t now)
{
    const uint64_t limit = nanoseconds(it->deadline);

    return limit != UINT64_MAX && now >= it->since + limit;
}

void culvert__item_expire(culvert__item *it)
{
    culvert__settle_failed(&it->base, CULVERT_ETIMEDOUT, 0, "culvert_batcher_add", it->where,
                           "it was in no batch within %g seconds", it->deadline);
    culvert__item_give_back(it);
}

static void on_expiry(culvert__timer *timer)
{
    culvert__item *it = CULVERT__CONTAINER(timer, culvert__item, expiry);

    it->batcher->counters.expired++;
    unqueue(it);
    culvert__item_expire(it);
}

/* ---- the future's side ---- */

static void item_cancel(culvert_future *f)
{
    culvert__item *it = item_of(f);

    if (it->batcher == NULL)
        return; /* it runs: its outcome is what becomes of it */
    leave(it);
    culvert__settle_canceled(f);
    culvert__item_give_back(it);
}

static void item_shutdown(culvert_future *f, const culvert_error *err)
{
    culvert__item *it = item_of(f);

    const bool waits = it->batcher != NULL;
    if (waits)
        leave(it);
    culvert__settle_static(f, err->code);
    if (waits)
        culvert__item_give_back(it);
}

static const culvert__kind item_kind = {.name = "item",
                                        .cancel = item_cancel,
                                        .shutdown = item_shutdown};

/* ---- when a batch is made ---- */

void culvert__batcher_schedule(culvert_batcher *b)
{
    if (!culvert__linked(&b->pump.link) && b->counters.queued > 0)
        culvert__ready_push(core_of(b), &b->pump);
}

static uint64_t oldest(const culvert_batcher *b)
{
    return CULVERT__CONTAINER(b->queue.next, culvert__item, link)->since;
}

static bool has_slot(const culvert_batcher *b)
{
    return b->options.max_running == 0 || b->counters.running < b->options.max_running;
}

static bool delay_is_over(const culvert_batcher *b, uint64_t now)
{
    return b->delay != UINT64_MAX && now >= oldest(b) + b->delay;
}

static bool may_start(const culvert_batcher *b, uint64_t now)
{
    if (b->counters.queued == 0 || !has_slot(b) || core_of(b)->closing)
        return false;
    return b->counters.running == 0 || b->counters.queued >= b->options.max_items ||
           delay_is_over(b, now);
}

/* Looks again when the oldest has waited long enough. False: there is no memory for a timer. */
static bool wait_for_delay(culvert_batcher *b, uint64_t now)
{
    if (b->counters.queued == 0 || !has_slot(b) || b->delay == UINT64_MAX || core_of(b)->closing)
        return true; /* nothing to wait for, or a batch's end comes first */
    const double seconds = (double)(oldest(b) + b->delay - now) * 1e-9;
    return culvert__timer_start(b->loop, &b->delay_timer, seconds, true) == CULVERT_OK;
}

static void on_delay(culvert__timer *timer)
{
    culvert__batcher_schedule(CULVERT__CONTAINER(timer, culvert_batcher, delay_timer));
}

static void pump(culvert__task *task)
{
    culvert_batcher *b = CULVERT__CONTAINER(task, culvert_batcher, pump);
    uint64_t now = culvert__now();

    if (culvert__forked())
        return;
    b->refs++; /* run may let go of it */
    culvert__timer_stop(b->loop, &b->delay_timer);
    for (int n = 0;; n++) {
        if (!may_start(b, now) && wait_for_delay(b, now))
            break;
        if (n == BATCHES) {
            culvert__batcher_schedule(b);
            break;
        }
        culvert__batch_start(b, now);
        now = culvert__now();
    }
    culvert__batcher_put(b);
}

/* ---- adding ---- */

static culvert_future *refuse(culvert__core *core, void *item, culvert_free_fn *item_free,
                              culvert_future *with)
{
    culvert__release_arg(core, item_free, item);
    return with;
}

/* NULL where it can be taken, else the future that stands for it. */
static culvert_future *refusal(culvert_batcher *b, const char *op, const char *where,
                               double deadline)
{
    culvert__core *core = core_of(b);
    culvert_error err;

    culvert__check_thread(core, op);
    if (culvert__refuses_work(core))
        return culvert__future_static(core, CULVERT_ESHUTDOWN);
    if (!culvert__seconds_ok(deadline, op, where, &err))
        return culvert__future_rejected(core, &err);
    if (b->options.max_queued == 0 || b->counters.queued < b->options.max_queued)
        return NULL;
    b->counters.refused++;
    return culvert__future_failed(core, CULVERT_EAGAIN, 0, op, where,
                                  "%zu items wait, and max_queued is %zu", b->counters.queued,
                                  b->options.max_queued);
}

/* NULL: no memory is left. */
static culvert__item *item_new(culvert_batcher *b, const char *where, double deadline)
{
    culvert__core *core = core_of(b);
    culvert_future *f = culvert__future_alloc(core, &item_kind, sizeof(culvert__item));

    if (f == NULL)
        return NULL;
    culvert__item *it = item_of(f);
    it->since = culvert__now();
    it->deadline = deadline;
    it->where = where;
    it->expiry.fire = on_expiry;
    if (culvert__timer_start(b->loop, &it->expiry, deadline, true) == CULVERT_OK)
        return it;
    culvert__settle_static(f, CULVERT_ENOMEM);
    f->looked = 1;
    culvert__unref(f);
    culvert__reap(core);
    return NULL;
}

culvert_future *culvert_batcher_add_at(const char *where, culvert_batcher *batcher, void *item,
                                       culvert_free_fn *item_free, double deadline_seconds)
{
    const char *op = "culvert_batcher_add";

    CULVERT__REQUIRE(batcher, op, "batcher");
    if (culvert__forked())
        return refuse(NULL, item, item_free, culvert__future_static(NULL, CULVERT_EFORKED));
    culvert__core *core = core_of(batcher);
    culvert_future *refused = refusal(batcher, op, where, deadline_seconds);
    culvert__item *it = refused == NULL ? item_new(batcher, where, deadline_seconds) : NULL;
    if (it == NULL) {
        if (refused == NULL)
            refused = culvert__future_static(core, CULVERT_ENOMEM);
        return refuse(core, item, item_free, refused);
    }
    it->item = item;
    it->item_free = item_free;
    it->batcher = batcher;
    culvert__list_push(&batcher->queue, &it->link);
    batcher->counters.queued++;
    batcher->counters.added++;
    culvert__loop_work_begin(batcher->loop);
    culvert__future_make_root(&it->base);
    culvert__batcher_schedule(batcher);
    return &it->base;
}

culvert_future *culvert_batcher_add(culvert_batcher *batcher, void *item,
                                    culvert_free_fn *item_free, double deadline_seconds)
{
    return culvert_batcher_add_at(NULL, batcher, item, item_free, deadline_seconds);
}

/* ---- life ---- */

static bool options_ok(culvert_batcher_options *to, const culvert_batcher_options *from,
                       const char *op, culvert_error *err)
{
    if (!culvert__options_read(to, sizeof *to, from, "culvert_batcher_options", op, NULL, err))
        return false;
    if (to->run == NULL) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL, "options.run is NULL");
        return false;
    }
    if (!(to->max_delay_seconds >= 0.0)) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, NULL,
                           "options.max_delay_seconds is %g; it must be 0 or more, or infinite",
                           to->max_delay_seconds);
        return false;
    }
    if (to->max_items == 0)
        to->max_items = DEFAULT_ITEMS;
    return true;
}

static culvert_batcher *make(culvert_loop *loop, const culvert_batcher_options *options)
{
    culvert_batcher *b = calloc(1, sizeof *b);

    if (b == NULL)
        return NULL;
    b->loop = culvert_loop_ref(loop);
    b->handles = b->refs = 1;
    b->options = *options;
    b->delay = nanoseconds(options->max_delay_seconds);
    culvert__list_init(&b->queue);
    b->pump.run = pump;
    b->delay_timer.fire = on_delay;
    return b;
}

culvert_batcher *culvert_batcher_new(culvert_loop *loop, const culvert_batcher_options *options,
                                     culvert_error *err)
{
    const char *op = "culvert_batcher_new";
    culvert_batcher_options mine = CULVERT_BATCHER_OPTIONS_INIT;
    culvert_batcher *b = NULL;

    CULVERT__REQUIRE(loop, op, "loop");
    const bool refused = culvert__loop_refuses(loop, op, err);
    if (!refused && options_ok(&mine, options, op, err)) {
        b = make(loop, &mine);
        if (b == NULL)
            culvert__error_set(err, CULVERT_ENOMEM, 0, op, NULL, "no memory for a batcher");
    }
    if (b == NULL && options != NULL && options->struct_size >= sizeof *options)
        culvert__release_arg(culvert__forked() ? NULL : culvert__core_of(loop), options->arg_free,
                             options->arg);
    return b;
}

culvert_batcher *culvert_batcher_ref(culvert_batcher *batcher)
{
    CULVERT__REQUIRE(batcher, "culvert_batcher_ref", "batcher");
    batcher->handles++;
    return batcher;
}

void culvert__batcher_put(culvert_batcher *b)
{
    culvert_loop *loop = b->loop;

    if (--b->refs > 0)
        return;
    culvert__timer_stop(loop, &b->delay_timer);
    if (culvert__linked(&b->pump.link))
        culvert__ready_unlink(core_of(b), &b->pump);
    const culvert_batcher_options options = b->options;
    free(b);
    culvert__release_arg(culvert__core_of(loop), options.arg_free, options.arg);
    culvert_loop_unref(loop);
}

void culvert_batcher_unref(culvert_batcher *batcher)
{
    if (batcher == NULL || culvert__inherited(core_of(batcher)))
        return;
    culvert_loop *loop = batcher->loop;

    culvert__check_thread(core_of(batcher), "culvert_batcher_unref");
    if (--batcher->handles > 0)
        return;
    culvert_loop_ref(loop); /* what is released may free anything */
    while (!culvert__list_empty(&batcher->queue)) {
        culvert__item *it = culvert__batcher_pop(batcher);

        batcher->counters.canceled++;
        culvert__settle_static(&it->base, CULVERT_ECANCELED);
        culvert__item_give_back(it);
    }
    culvert__batcher_put(batcher);
    culvert__reap(culvert__core_of(loop));
    culvert_loop_unref(loop);
}

int culvert_batcher_stats(const culvert_batcher *batcher, culvert_batcher_counters *out)
{
    CULVERT__REQUIRE(batcher, "culvert_batcher_stats", "batcher");
    CULVERT__REQUIRE(out, "culvert_batcher_stats", "out");
    return culvert__counters_write(out, &batcher->counters, sizeof batcher->counters);
}
