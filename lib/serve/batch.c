/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches: items that run together.
 *
 *   made --run--> running --its future settled, or run returned NULL--> over --callbacks ran--> released
 *
 * Invariants:
 *   - a batch counts its batcher, and pins its items, until it is released;
 *   - each item's future settles when the batch is over (earlier only where the loop goes);
 *   - items are released behind the callbacks of their futures.
 */
#include "serve/serve_internal.h"

#include <stdlib.h>

static void release(culvert__task *task)
{
    culvert_batch *batch = CULVERT__CONTAINER(task, culvert_batch, release);

    for (size_t i = 0; i < batch->n; i++) {
        culvert__item *it = batch->items[i];

        if (it->item_free != NULL)
            it->item_free(it->item);
        culvert__unpin(&it->base);
    }
    culvert__batcher_put(batch->batcher);
    free(batch);
}

static void settle(culvert__item *it, culvert_future *outcome, const culvert_error *err)
{
    if (it->failed)
        culvert__settle_error_owned(&it->base, it->error, CULVERT_ENOMEM);
    else if (err != NULL)
        culvert__settle_error(&it->base, err);
    else if (outcome != NULL)
        culvert__settle_from(&it->base, outcome);
    else
        culvert__settle_value(&it->base, NULL, NULL);
    it->error = NULL;
}

/* outcome: NULL, it resolved with nothing. err: instead of it. */
static void over(culvert_batch *batch, culvert_future *outcome, const culvert_error *err)
{
    culvert_batcher *b = batch->batcher;
    culvert__core *core = culvert__core_of(b->loop);

    b->counters.running--;
    b->counters.running_items -= batch->n;
    for (size_t i = 0; i < batch->n; i++) {
        settle(batch->items[i], outcome, err);
        if (batch->items[i]->base.status == CULVERT_OK)
            b->counters.resolved++;
        else
            b->counters.rejected++;
        culvert__loop_work_end(b->loop);
    }
    culvert__batcher_schedule(b);
    batch->release.run = release;
    culvert__ready_push(core, &batch->release);
}

static void settled(culvert__task *task)
{
    culvert_batch *batch = CULVERT__CONTAINER(task, culvert_batch, w.task);

    over(batch, batch->w.up, NULL);
    culvert__wait_end(&batch->w);
}

/* ---- making one ---- */

static culvert_batch *batch_new(culvert_batcher *b, size_t most)
{
    const size_t each = sizeof(void *) + sizeof(culvert__item *);

    if (most > (SIZE_MAX - sizeof(culvert_batch)) / each)
        return NULL;
    culvert_batch *batch = calloc(1, sizeof *batch + most * each);
    if (batch == NULL)
        return NULL;
    batch->batcher = b;
    batch->items = (culvert__item **)(void *)(batch->args + most);
    batch->w.task.run = settled;
    return batch;
}

/* The items of a batch for which there is no memory. */
static void give_up(culvert_batcher *b, size_t n)
{
    while (n-- > 0) {
        culvert__item *it = culvert__batcher_pop(b);

        b->counters.canceled++;
        culvert__settle_static(&it->base, CULVERT_ENOMEM);
        culvert__item_give_back(it);
    }
}

static void fill(culvert_batch *batch, size_t most, uint64_t now)
{
    culvert_batcher *b = batch->batcher;
    culvert_batcher_counters *c = &b->counters;

    while (batch->n < most && c->queued > 0) {
        culvert__item *it = culvert__batcher_pop(b);

        if (culvert__item_expired(it, now)) {
            c->expired++;
            culvert__item_expire(it);
            continue;
        }
        const double waited = now > it->since ? (double)(now - it->since) * 1e-9 : 0.0;
        c->longest_wait = waited > c->longest_wait ? waited : c->longest_wait;
        culvert__pin(&it->base);
        batch->items[batch->n] = it;
        batch->args[batch->n++] = it->item;
    }
}

static void run(culvert_batch *batch)
{
    culvert_batcher *b = batch->batcher;
    culvert_error err;
    culvert_future *f = b->options.run(batch, batch->args, batch->n, b->options.arg);

    if (f == NULL) {
        over(batch, NULL, NULL);
        return;
    }
    f = culvert__own_future(culvert__core_of(b->loop), f, "culvert_batcher_add", NULL, &err);
    if (f == NULL)
        over(batch, NULL, &err);
    else
        culvert__wait(f, &batch->w);
}

void culvert__batch_start(culvert_batcher *b, uint64_t now)
{
    culvert_batcher_counters *c = &b->counters;
    const size_t most = c->queued < b->options.max_items ? c->queued : b->options.max_items;
    culvert_batch *batch = batch_new(b, most);

    if (batch == NULL) {
        give_up(b, most);
        return;
    }
    fill(batch, most, now);
    if (batch->n == 0) { /* all had expired */
        free(batch);
        return;
    }
    b->refs++;
    c->running++;
    c->running_items += batch->n;
    c->batches++;
    c->batched_items += batch->n;
    c->full_batches += batch->n == b->options.max_items;
    run(batch);
}

void culvert_batch_fail(culvert_batch *batch, size_t index, const culvert_error *err)
{
    const char *op = "culvert_batch_fail";

    CULVERT__REQUIRE(batch, op, "batch");
    CULVERT__REQUIRE(err, op, "err");
    if (culvert__forked())
        return;
    culvert_loop *loop = batch->batcher->loop;
    culvert__check_thread(culvert__core_of(loop), op);
    if (index >= batch->n) {
        culvert__loop_log(loop, CULVERT_LOG_ERROR,
                          "culvert_batch_fail: index %zu of a batch of %zu items", index, batch->n);
        return;
    }
    culvert__item *it = batch->items[index];
    if (it->failed)
        return;
    it->failed = true;
    it->error = culvert__error_copy(err);
}
