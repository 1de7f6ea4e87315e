/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of the batcher share: items that are numbers, a run function that notes what it got, and
 * the promises by which the test says that a batch is over.
 */
#ifndef TEST_SERVE_BATCHER_FIXTURE_H
#define TEST_SERVE_BATCHER_FIXTURE_H

#include "culvert/serve.h"
#include "loop/fixture.h"

enum { MOST = 64 };

typedef struct bench {
    culvert_batcher *batcher;
    size_t batches;       /* that were run */
    size_t sizes[MOST];   /* of each */
    int firsts[MOST];     /* first item of each */
    double started[MOST]; /* test_now() */
    culvert_batch *batch; /* the last one */
    culvert_promise *ends[MOST];
    int runs[1024];  /* of each item */
    int freed[1024]; /* of each item */
    int arg_freed;
    bool at_once; /* run returns NULL */
} bench;

static bench bn;
static int numbers[1024];

static inline culvert_future *bn_run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    bench *b = arg;
    const size_t i = b->batches++ % MOST;
    culvert_future *f = NULL;

    b->batch = batch;
    b->sizes[i] = n;
    b->firsts[i] = *(int *)items[0];
    b->started[i] = test_now();
    for (size_t k = 0; k < n; k++)
        b->runs[*(int *)items[k]]++;
    if (b->at_once)
        return NULL;
    b->ends[i] = culvert_promise_new(fx.loop, &f);
    return f;
}

static inline void bn_free_item(void *item)
{
    bn.freed[*(int *)item]++;
}

static inline void bn_free_arg(void *arg)
{
    ((bench *)arg)->arg_freed++;
}

static inline culvert_batcher_options bn_options(size_t max_items, size_t max_running, double delay)
{
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;

    o.max_items = max_items;
    o.max_running = max_running;
    o.max_delay_seconds = delay;
    o.run = bn_run;
    o.arg = &bn;
    o.arg_free = bn_free_arg;
    return o;
}

static inline void bn_make(const culvert_batcher_options *o)
{
    culvert_error err = CULVERT_ERROR_INIT;

    bn.batcher = culvert_batcher_new(fx.loop, o, &err);
    ck_assert_msg(bn.batcher != NULL, "%s", err.message);
}

static inline void bn_setup(void)
{
    fx_setup();
    memset(&bn, 0, sizeof bn);
    for (int i = 0; i < 1024; i++)
        numbers[i] = i;
}

static inline void bn_drop(void)
{
    culvert_batcher_unref(bn.batcher);
    bn.batcher = NULL;
}

static inline void bn_teardown(void)
{
    if (bn.batcher != NULL)
        bn_drop();
    fx_teardown();
    ck_assert_int_eq(bn.arg_freed, 1);
    for (int i = 0; i < 1024; i++)
        ck_assert_int_le(bn.runs[i], 1);
}

static inline culvert_future *bn_add(int number, double deadline)
{
    return culvert_batcher_add(bn.batcher, &numbers[number], bn_free_item, deadline);
}

static inline void bn_add_kept(int number, outcome *o)
{
    ck_assert_int_eq(culvert_on_settled(bn_add(number, INFINITY), fx_keep, o, NULL), CULVERT_OK);
}

static inline void bn_end(size_t batch)
{
    culvert_resolve(bn.ends[batch], NULL, NULL);
}

static inline culvert_batcher_counters bn_stats(void)
{
    culvert_batcher_counters c = {.struct_size = sizeof c};

    ck_assert_int_eq(culvert_batcher_stats(bn.batcher, &c), CULVERT_OK);
    return c;
}

/* Turns until so many batches have been run; fails the test if they are not. */
static inline void bn_until(size_t batches)
{
    const double start = test_now();

    while (bn.batches < batches) {
        ck_assert_msg(test_now() - start < 60.0, "%zu batches, not %zu", bn.batches, batches);
        ev_run(fx.ev, EVRUN_ONCE);
    }
}

static inline void bn_turns(int n)
{
    while (n-- > 0)
        fx_turn();
}

static inline TCase *bn_case(Suite *suite, const char *name)
{
    TCase *tc = tcase_create(name);

    tcase_add_checked_fixture(tc, bn_setup, bn_teardown);
    suite_add_tcase(suite, tc);
    return tc;
}

#endif
