/* SPDX-License-Identifier: BSD-2-Clause */
/* Interest and cancellation: DESIGN 3, rule 6; cases 27 and 30; releases that release more. */
#include "loop/fixture.h"

static culvert_future *no_step(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

/* ---- interest ---- */

START_TEST(rule_06_the_last_unref_of_a_pending_future_cancels_upstream)
{
    culvert_future *f, *watch;
    culvert_promise *p = fx_promise(&f);
    int freed = 0;

    watch = culvert_ref(f);
    culvert_future *g = culvert_then(f, fx_step, &freed, fx_count);
    g = culvert_catch(g, fx_step, &freed, fx_count);
    culvert_unref(g);
    ck_assert_int_eq(freed, 2);
    ck_assert_int_eq(culvert_status(watch), CULVERT_PENDING); /* watched: still wanted */
    g = culvert_then(watch, fx_step, &freed, fx_count);
    culvert_unref(g);
    ck_assert_int_eq(freed, 3);
    ck_assert_uint_eq(fx_live(), 0); /* not wanted any more: cancelled and gone */
    fx_run();
    ck_assert_str_eq(fx.log, "");
    ck_assert_int_eq(fx.unhandled_count, 0);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(rule_06_cancel_settles_downstream_and_travels_upstream_where_nobody_else_is)
{
    culvert_future *root, *mid, *left, *right;
    culvert_promise *p = fx_promise(&root);
    outcome o = {0};

    mid = culvert_then(culvert_ref(root), no_step, NULL, NULL);
    left = culvert_then(culvert_ref(mid), no_step, NULL, NULL);
    right = culvert_then(mid, no_step, NULL, NULL);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(left), fx_keep, &o, NULL), CULVERT_OK);
    culvert_cancel(left);
    ck_assert_int_eq(culvert_status(left), CULVERT_ECANCELED);
    ck_assert_int_eq(culvert_status(right), CULVERT_PENDING);
    ck_assert_int_eq(o.calls, 0);
    fx_run();
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_eq(o.status, CULVERT_ECANCELED);
    culvert_cancel(right);
    ck_assert_int_eq(culvert_status(root), CULVERT_PENDING); /* our handle */
    culvert_unref(root);
    culvert_unref(left);
    culvert_unref(right);
    ck_assert_uint_eq(fx_live(), 0);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(cancelling_the_root_runs_catch_downstream)
{
    culvert_future *root;
    culvert_promise *p = fx_promise(&root);
    outcome o = {0};
    culvert_future *f = culvert_then(culvert_ref(root), fx_step, "t", NULL);

    f = culvert_catch(f, fx_step, "c", NULL);
    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
    culvert_cancel(root);
    culvert_unref(root);
    fx_run();
    ck_assert_str_eq(fx.log, "c");
    ck_assert_int_eq(o.status, CULVERT_ECANCELED);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(cancelling_a_settled_future_changes_nothing)
{
    culvert_future *f = culvert_resolved(fx.loop, &f, NULL);

    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    culvert_unref(f);
}
END_TEST

/* ---- finally ---- */

START_TEST(rule_06_a_cancelled_finally_settles_at_once_and_its_step_still_runs_once)
{
    culvert_future *root, *watch;
    culvert_promise *p = fx_promise(&root);
    int freed = 0;

    watch = culvert_ref(root); /* so that the upstream goes on */
    culvert_future *f = culvert_finally(root, fx_step, "f", NULL);
    culvert_future *g = culvert_finally(culvert_ref(watch), fx_step, "g", NULL);
    culvert_future *h = culvert_finally(culvert_ref(watch), fx_step, &freed, fx_count);
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_unref(g);
    culvert_unref(h);
    fx_run();
    ck_assert_str_eq(fx.log, "");
    ck_assert_int_eq(freed, 0);
    freed = 'h'; /* the step notes it, then the free function counts */
    culvert_resolve(p, NULL, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "fgh");
    ck_assert_int_eq(freed, 'h' + 1);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    ck_assert_int_eq(culvert_status(watch), CULVERT_OK);
    culvert_unref(f);
    culvert_unref(watch);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(a_dropped_finally_cancels_upstream_and_runs_with_that)
{
    culvert_future *root;
    culvert_promise *p = fx_promise(&root);

    culvert_unref(culvert_finally(root, fx_step, "f", NULL));
    fx_run();
    ck_assert_str_eq(fx.log, "f");
    ck_assert_uint_eq(fx_live(), 0);
    culvert_promise_drop(p);
}
END_TEST

static culvert_future *fails(culvert_future *done, void *arg)
{
    (void)arg;
    return culvert_fail(culvert_future_loop(done), CULVERT_EUSER, 0, "clean-up");
}

START_TEST(a_finally_cancelled_when_ready_runs_once_and_its_result_is_dropped)
{
    culvert_future *root;
    culvert_promise *p = fx_promise(&root);
    culvert_future *f = culvert_finally(root, fails, NULL, NULL);

    culvert_resolve(p, NULL, NULL);
    culvert_cancel(f);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_unref(f);
    fx_run();
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- detach ---- */

START_TEST(detach_keeps_a_future_running)
{
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    f = culvert_then(f, fx_step, "d", NULL);
    culvert_detach(culvert_ref(f));
    culvert_detach(f);
    ck_assert_uint_eq(fx_live(), 2);
    culvert_resolve(p, NULL, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "d");
    ck_assert_uint_eq(fx_live(), 0);
    culvert_detach(NULL);
    culvert_unref(NULL);
}
END_TEST

/* ---- case 27 ---- */

static uint32_t random_state;

static unsigned pick(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 16) % n;
}

/* A completion is posted, not drained; then cancel, timeout and drop race with it in some order. */
static void one_race(void)
{
    int freed = 0, told = 0;
    outcome o = {0};
    culvert_future *inner, *f;
    culvert_promise *p = fx_promise(&inner);
    const bool with_value = pick(2) == 0;
    const culvert_error err = {CULVERT_EUSER, 0, NULL, NULL, "late"};
    bool consumed = false, dropped = false;

    culvert_promise_on_cancel(p, fx_count, &told, NULL);
    f = culvert_timeout(culvert_ref(inner), pick(2) == 0 ? 0.0 : 1000.0);
    ck_assert_int_eq(culvert_on_settled(culvert_ref(f), fx_keep, &o, NULL), CULVERT_OK);
    for (unsigned steps = 1 + pick(6); steps > 0; steps--) {
        switch (pick(6)) {
        case 0:
            if (consumed)
                break;
            consumed = true;
            if (with_value)
                ck_assert_int_eq(culvert_post_resolve(p, &freed, fx_count), CULVERT_OK);
            else
                ck_assert_int_eq(culvert_post_reject(p, &err), CULVERT_OK);
            break;
        case 1:
            if (!consumed && with_value)
                culvert_resolve(p, &freed, fx_count);
            else if (!consumed)
                culvert_reject(p, &err);
            consumed = true;
            break;
        case 2: culvert_cancel(f); break;
        case 3: culvert_cancel(inner); break;
        case 4:
            if (!dropped)
                culvert_unref(f);
            dropped = true;
            break;
        default: fx_turn(); break;
        }
        if (dropped)
            break;
    }
    if (!consumed && with_value)
        culvert_resolve(p, &freed, fx_count);
    else if (!consumed)
        culvert_promise_drop(p);
    if (!dropped)
        culvert_unref(f);
    culvert_unref(inner);
    while (o.calls == 0)
        fx_turn();
    fx_turn();
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_ne(o.status, CULVERT_PENDING);
    ck_assert_int_eq(freed, with_value ? 1 : 0);
    ck_assert_int_le(told, 1);
    ck_assert_uint_eq(fx_live(), 0);
}

START_TEST(case_027_completion_racing_with_cancel_and_timeout_has_one_winner)
{
    for (random_state = 1; random_state < 100001; random_state++) {
        const uint32_t seed = random_state;

        one_race();
        random_state = seed;
    }
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0); /* nothing keeps the loop */
}
END_TEST

/* ---- releases that release more ---- */

typedef struct nest {
    int depth, max, freed;
    culvert_future *next;
} nest;

static int nest_depth, nest_max;
static bool nest_cancels;

/* Releases another chain, whose argument releases another chain ... */
static void release_next(void *arg)
{
    nest *n = arg;

    nest_depth++;
    nest_max = nest_depth > nest_max ? nest_depth : nest_max;
    if (nest_cancels)
        culvert_cancel(n->next);
    culvert_unref(n->next);
    n->freed = 1;
    nest_depth--;
}

START_TEST(rule_05_releases_that_release_more_do_not_nest)
{
    enum { N = 10000 };
    nest *nests = calloc(N, sizeof *nests);
    culvert_promise **promises = calloc(N, sizeof(culvert_promise *));

    ck_assert(nests != NULL && promises != NULL);
    for (int i = 0; i < N; i++) {
        culvert_future *f;

        promises[i] = fx_promise(&f);
        nests[i].next = i > 0 ? culvert_then(f, no_step, &nests[i - 1], release_next) : f;
    }
    nest_depth = nest_max = 0;
    nest_cancels = _i > 0;
    culvert_unref(nests[N - 1].next);
    ck_assert_int_eq(nest_max, 1);
    for (int i = 0; i + 1 < N; i++)
        ck_assert_int_eq(nests[i].freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
    for (int i = 0; i < N; i++)
        culvert_promise_drop(promises[i]);
    free(promises);
    free(nests);
}
END_TEST

static void value_release(void *value)
{
    release_next(value);
}

START_TEST(rule_05_values_that_hold_futures_do_not_nest)
{
    enum { N = 10000 };
    nest *nests = calloc(N, sizeof *nests);

    ck_assert_ptr_nonnull(nests);
    nests[0].next = culvert_resolved(fx.loop, NULL, NULL);
    for (int i = 1; i < N; i++)
        nests[i].next = culvert_resolved(fx.loop, &nests[i - 1], value_release);
    nest_depth = nest_max = 0;
    culvert_unref(nests[N - 1].next);
    ck_assert_int_eq(nest_max, 1);
    ck_assert_uint_eq(fx_live(), 0);
    free(nests);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cancel");
    TCase *tc = fx_case(suite, "interest");

    tcase_add_test(tc, rule_06_the_last_unref_of_a_pending_future_cancels_upstream);
    tcase_add_test(tc, rule_06_cancel_settles_downstream_and_travels_upstream_where_nobody_else_is);
    tcase_add_test(tc, cancelling_the_root_runs_catch_downstream);
    tcase_add_test(tc, cancelling_a_settled_future_changes_nothing);
    tcase_add_test(tc, rule_06_a_cancelled_finally_settles_at_once_and_its_step_still_runs_once);
    tcase_add_test(tc, a_dropped_finally_cancels_upstream_and_runs_with_that);
    tcase_add_test(tc, a_finally_cancelled_when_ready_runs_once_and_its_result_is_dropped);
    tcase_add_test(tc, detach_keeps_a_future_running);

    tc = fx_case(suite, "races");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, case_027_completion_racing_with_cancel_and_timeout_has_one_winner);

    tc = fx_case(suite, "releases");
    tcase_add_loop_test(tc, rule_05_releases_that_release_more_do_not_nest, 0, 2);
    tcase_add_test(tc, rule_05_values_that_hold_futures_do_not_nest);
    return test_main((Suite *[]){suite, NULL});
}
