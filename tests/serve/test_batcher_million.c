/* SPDX-License-Identifier: BSD-2-Clause */
/* Batchers over a long time: many items, many of which leave; and clients that each wait for their answer. */
#include "culvert/serve.h"
#include "loop/fixture.h"

enum { ITEMS = 1000000, AT_MOST = 2000 };

typedef struct one {
    unsigned char runs, frees, settled, must_leave;
} one;

static one *all;
static culvert_batcher *batcher;
static size_t added, resolved, expired, canceled;
static size_t wrong; /* Check's assertions cost a system call each: so once, at the end */

static culvert_future *run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    (void)batch;
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((one *)items[i])->runs++;
    return culvert_sleep(fx.loop, 0.0);
}

static void free_one(void *item)
{
    ((one *)item)->frees++;
}

static void feed(void);

static void settled(culvert_future *done, void *arg)
{
    one *o = arg;
    const int status = culvert_status(done);

    o->settled++;
    wrong += o->runs != (status == CULVERT_OK);
    resolved += status == CULVERT_OK;
    expired += status == CULVERT_ETIMEDOUT;
    canceled += status == CULVERT_ECANCELED;
    feed();
}

static size_t waiting(void)
{
    culvert_batcher_counters c = {.struct_size = sizeof c};

    wrong += culvert_batcher_stats(batcher, &c) != CULVERT_OK;
    return c.queued;
}

/* One of ten leaves for sure, by its deadline or cancelled; one of ten may. */
static void add_one(size_t i)
{
    double deadline = 3600.0;

    if (i % 20 == 0)
        deadline = 0.0;
    else if (i % 10 == 1)
        deadline = 50e-6;
    all[i].must_leave = i % 10 == 0;
    culvert_future *f = culvert_batcher_add(batcher, &all[i], free_one, deadline);
    wrong += culvert_on_settled(culvert_ref(f), settled, &all[i], NULL) != CULVERT_OK;
    if (i % 20 == 10)
        culvert_cancel(f);
    culvert_unref(f);
}

static void feed(void)
{
    while (added < ITEMS && waiting() < AT_MOST)
        add_one(added++);
}

START_TEST(a_million_items_of_which_one_in_ten_leaves)
{
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;
    culvert_batcher_counters c = {.struct_size = sizeof c};

    all = calloc(ITEMS, sizeof *all);
    ck_assert_ptr_nonnull(all);
    o.max_items = 256;
    o.max_queued = AT_MOST;
    o.max_running = 2;
    o.max_delay_seconds = 1e-4;
    o.run = run;
    batcher = culvert_batcher_new(fx.loop, &o, NULL);
    feed();
    fx_run();
    ck_assert_uint_eq(added, ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        wrong += all[i].settled != 1 || all[i].frees != 1 || all[i].runs > 1;
        wrong += all[i].must_leave && all[i].runs != 0;
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_int_eq(culvert_batcher_stats(batcher, &c), CULVERT_OK);
    ck_assert_uint_eq(c.queued, 0);
    ck_assert_uint_eq(c.running, 0);
    ck_assert_uint_eq(c.running_items, 0);
    ck_assert_uint_eq(c.added, ITEMS);
    ck_assert_uint_eq(c.refused, 0);
    ck_assert_uint_eq(c.resolved, resolved);
    ck_assert_uint_eq(c.expired, expired);
    ck_assert_uint_eq(c.canceled, canceled);
    ck_assert_uint_eq(c.batched_items, resolved);
    ck_assert_uint_eq(resolved + expired + canceled, ITEMS);
    ck_assert_uint_eq(canceled, ITEMS / 20);
    ck_assert_uint_ge(expired, ITEMS / 20);
    culvert_batcher_unref(batcher);
    ck_assert_uint_eq(fx_live(), 0);
    free(all);
}
END_TEST

/* ---- closed loop ---- */

enum { CLIENTS = 500, ANSWERS = 200000 };

static size_t answers, batches[2], items[2];

static culvert_future *count_run(culvert_batch *batch, void *const *its, size_t n, void *arg)
{
    (void)batch;
    (void)its;
    (void)arg;
    if (answers < ANSWERS / 10 || answers >= ANSWERS - ANSWERS / 10) {
        batches[answers >= ANSWERS / 10]++;
        items[answers >= ANSWERS / 10] += n;
    }
    return culvert_sleep(fx.loop, 0.0);
}

static void answered(culvert_future *done, void *arg)
{
    wrong += culvert_status(done) != CULVERT_OK;
    if (++answers + CLIENTS <= ANSWERS)
        culvert_on_settled(culvert_batcher_add(batcher, arg, NULL, INFINITY), answered, arg, NULL);
}

START_TEST(case_114_batches_do_not_shrink_over_time)
{
    static int clients[CLIENTS];
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;

    o.max_items = 64;
    o.max_running = 2;
    o.max_delay_seconds = 1e-3;
    o.run = count_run;
    batcher = culvert_batcher_new(fx.loop, &o, NULL);
    for (int i = 0; i < CLIENTS; i++)
        culvert_on_settled(culvert_batcher_add(batcher, &clients[i], NULL, INFINITY), answered,
                           &clients[i], NULL);
    fx_run();
    ck_assert_uint_eq(answers, ANSWERS);
    ck_assert_uint_eq(wrong, 0);
    const double first = (double)items[0] / (double)batches[0];
    const double last = (double)items[1] / (double)batches[1];
    ck_assert_msg(last >= 0.9 * first, "%g items a batch at first, %g at last", first, last);
    ck_assert_double_gt(first, 32.0);
    culvert_batcher_unref(batcher);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batcher, long");
    TCase *tc = fx_case(suite, "long");

    tcase_add_test(tc, a_million_items_of_which_one_in_ten_leaves);
    tcase_add_test(tc, case_114_batches_do_not_shrink_over_time);
    return test_main((Suite *[]){suite, NULL});
}
