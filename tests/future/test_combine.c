/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets: DESIGN 3, rule 8. */
#include "loop/fixture.h"

enum { N = 3 };

typedef culvert_future *maker(const char *where, culvert_loop *, culvert_future *const *, size_t);

static culvert_promise *p[N];
static culvert_future *c[N]; /* handles of the test's own */

/* A set of N pending futures, of which the test keeps handles where it says so. */
static culvert_future *make(maker *fn, bool keep)
{
    culvert_future *children[N];

    for (int i = 0; i < N; i++) {
        p[i] = fx_promise(&children[i]);
        c[i] = keep ? culvert_ref(children[i]) : NULL;
    }
    culvert_future *set = fn("set.c:1", fx.loop, children, N);
    for (int i = 0; i < N; i++)
        ck_assert_ptr_eq(culvert_child(set, (size_t)i), children[i]);
    ck_assert_ptr_null(culvert_child(set, N));
    ck_assert_uint_eq(culvert_winner(set), SIZE_MAX);
    return set;
}

static void end(culvert_future *set)
{
    culvert_unref(set);
    for (int i = 0; i < N; i++) {
        culvert_unref(c[i]);
        culvert_promise_drop(p[i]);
        p[i] = NULL;
    }
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, 0);
    ck_assert_uint_eq(fx_live(), 0);
}

static void resolve(int i, void *value)
{
    culvert_resolve(p[i], value, NULL);
    p[i] = NULL;
}

static void reject(int i, int native)
{
    culvert_reject(p[i], &(culvert_error){.code = CULVERT_EUSER, .native = native});
    p[i] = NULL;
}

/* ---- all ---- */

START_TEST(all_resolves_with_null_when_each_child_has_and_they_keep_their_values)
{
    int x[N];
    culvert_future *set = make(culvert_all_at, false);

    for (int i = N - 1; i >= 0; i--) {
        ck_assert_int_eq(culvert_status(set), CULVERT_PENDING);
        resolve(i, &x[i]);
        fx_run();
    }
    ck_assert_int_eq(culvert_status(set), CULVERT_OK);
    ck_assert_ptr_null(culvert_value(set));
    for (int i = 0; i < N; i++)
        ck_assert_ptr_eq(culvert_take(culvert_child(set, (size_t)i)), &x[i]);
    end(set);
}
END_TEST

START_TEST(rule_08_the_first_rejection_cancels_the_rest_and_all_settles_when_each_has)
{
    culvert_future *set = make(culvert_all_at, false);

    reject(1, 7);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_EUSER);
    ck_assert_int_eq(culvert_get_error(set)->native, 7);
    ck_assert_uint_eq(culvert_winner(set), 1);
    ck_assert_int_eq(culvert_status(culvert_child(set, 0)), CULVERT_ECANCELED);
    ck_assert_int_eq(culvert_status(culvert_child(set, 2)), CULVERT_ECANCELED);
    end(set);
}
END_TEST

START_TEST(rule_08_all_waits_for_a_child_that_somebody_else_wants)
{
    culvert_future *set = make(culvert_all_at, true);

    reject(0, 1);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_PENDING);
    ck_assert_int_eq(culvert_status(c[1]), CULVERT_PENDING);
    resolve(1, NULL);
    reject(2, 2); /* not the first */
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_EUSER);
    ck_assert_int_eq(culvert_get_error(set)->native, 1);
    end(set);
}
END_TEST

START_TEST(cancelling_a_set_cancels_the_children_that_only_it_wants)
{
    static maker *const makers[] = {culvert_all_at, culvert_all_settled_at, culvert_any_at,
                                    culvert_race_at};

    for (int m = 0; m < 4; m++) {
        for (int keep = 0; keep < 2; keep++) {
            culvert_future *set = make(makers[m], keep != 0);

            culvert_cancel(set);
            ck_assert_int_eq(culvert_status(set), CULVERT_ECANCELED);
            for (size_t i = 0; i < N; i++) {
                ck_assert_int_eq(culvert_status(culvert_child(set, i)),
                                 keep ? CULVERT_PENDING : CULVERT_ECANCELED);
            }
            end(set);
            set = make(makers[m], keep != 0);
            culvert_unref(set);
            for (int i = 0; i < N && keep; i++)
                ck_assert_int_eq(culvert_status(c[i]), CULVERT_PENDING);
            end(NULL);
        }
    }
}
END_TEST

/* ---- all_settled ---- */

START_TEST(all_settled_resolves_however_its_children_settle)
{
    culvert_future *set = make(culvert_all_settled_at, false);

    reject(0, 1);
    resolve(1, NULL);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_PENDING);
    ck_assert_int_eq(culvert_status(culvert_child(set, 2)), CULVERT_PENDING);
    culvert_cancel(culvert_child(set, 2));
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_OK);
    ck_assert_int_eq(culvert_status(culvert_child(set, 0)), CULVERT_EUSER);
    ck_assert_int_eq(culvert_status(culvert_child(set, 1)), CULVERT_OK);
    ck_assert_int_eq(culvert_status(culvert_child(set, 2)), CULVERT_ECANCELED);
    end(set);
}
END_TEST

/* ---- any, race ---- */

START_TEST(rule_08_any_takes_the_first_that_resolves_and_lets_go_of_the_others)
{
    int x;
    culvert_future *set = make(culvert_any_at, false);

    reject(0, 1);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_PENDING);
    resolve(2, &x);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_OK);
    ck_assert_ptr_eq(culvert_value(set), &x);
    ck_assert_uint_eq(culvert_winner(set), 2);
    ck_assert_int_eq(culvert_status(culvert_child(set, 1)), CULVERT_ECANCELED);
    end(set);
}
END_TEST

START_TEST(any_rejects_with_the_last_rejection_when_all_did)
{
    culvert_future *set = make(culvert_any_at, false);

    reject(2, 2);
    reject(0, 10);
    fx_run();
    ck_assert_int_eq(culvert_status(set), CULVERT_PENDING);
    reject(1, 11);
    fx_run();
    ck_assert_int_eq(culvert_get_error(set)->native, 11);
    ck_assert_uint_eq(culvert_winner(set), SIZE_MAX);
    end(set);
}
END_TEST

START_TEST(rule_08_race_takes_the_first_that_settles)
{
    int x;
    culvert_future *set = make(culvert_race_at, true);

    reject(1, 5);
    resolve(0, &x); /* in the same turn, second */
    fx_run();
    ck_assert_int_eq(culvert_get_error(set)->native, 5);
    ck_assert_uint_eq(culvert_winner(set), 1);
    ck_assert_int_eq(culvert_status(c[0]), CULVERT_OK);
    ck_assert_int_eq(culvert_status(c[2]), CULVERT_PENDING); /* the test wants it */
    end(set);
}
END_TEST

START_TEST(race_of_settled_futures_is_won_by_the_first_of_the_array)
{
    int x, y;
    culvert_future *children[] = {culvert_resolved(fx.loop, &x, NULL),
                                  culvert_resolved(fx.loop, &y, NULL)};
    culvert_future *set = culvert_race(fx.loop, children, 2);

    fx_run();
    ck_assert_ptr_eq(culvert_value(set), &x);
    ck_assert_uint_eq(culvert_winner(set), 0);
    culvert_unref(set);
}
END_TEST

/* rule 9: losers are never unhandled, also those that reject later */
START_TEST(rule_09_losers_never_go_to_on_unhandled)
{
    culvert_future *set = make(culvert_race_at, false);

    resolve(0, NULL);
    reject(1, 1);
    fx_run();
    culvert_unref(set);
    reject(2, 2);
    fx_run();
    ck_assert_int_eq(fx.unhandled_count, 0);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- edges ---- */

START_TEST(rule_08_empty_sets)
{
    culvert_future *set = culvert_all(fx.loop, NULL, 0);
    ck_assert_int_eq(culvert_status(set), CULVERT_OK);
    ck_assert_ptr_null(culvert_child(set, 0));
    culvert_unref(set);
    set = culvert_all_settled(fx.loop, NULL, 0);
    ck_assert_int_eq(culvert_status(set), CULVERT_OK);
    culvert_unref(set);
    set = culvert_any(fx.loop, NULL, 0);
    ck_assert_int_eq(culvert_status(set), CULVERT_EINVAL);
    ck_assert_str_eq(culvert_get_error(set)->op, "culvert_any");
    ck_assert_ptr_nonnull(strstr(culvert_get_error(set)->where, "test_combine.c:"));
    culvert_unref(set);
    set = culvert_race(fx.loop, NULL, 0);
    ck_assert_int_eq(culvert_status(set), CULVERT_EINVAL);
    culvert_unref(culvert_ref(set));
    ck_assert_ptr_nonnull(culvert_get_error(set));
    culvert_unref(set);
}
END_TEST

START_TEST(a_future_may_be_in_a_set_twice)
{
    static maker *const makers[] = {culvert_all_at, culvert_all_settled_at, culvert_any_at,
                                    culvert_race_at};
    int x;

    for (int m = 0; m < 4; m++) {
        culvert_future *f;
        culvert_promise *promise = fx_promise(&f);
        culvert_future *children[] = {f, culvert_ref(f)};
        culvert_future *set = makers[m](NULL, fx.loop, children, 2);

        culvert_resolve(promise, &x, NULL);
        fx_run();
        ck_assert_int_eq(culvert_status(set), CULVERT_OK);
        culvert_unref(set);
        ck_assert_uint_eq(fx_live(), 0);
    }
}
END_TEST

START_TEST(a_future_of_another_loop_is_refused_and_everything_is_released)
{
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *other = fx_bind(ev);
    int freed = 0;
    culvert_future *children[] = {culvert_resolved(fx.loop, &freed, fx_count),
                                  culvert_resolved(other, &freed, fx_count)};
    culvert_future *set = culvert_all_at("x.c:2", fx.loop, children, 2);

    ck_assert_int_eq(culvert_status(set), CULVERT_EINVAL);
    ck_assert_str_eq(culvert_get_error(set)->where, "x.c:2");
    ck_assert_ptr_nonnull(strstr(culvert_get_error(set)->message, "future 1 of 2"));
    ck_assert_int_eq(freed, 2);
    ck_assert_ptr_null(culvert_child(set, 0));
    ck_assert_uint_eq(culvert_winner(set), SIZE_MAX);
    culvert_unref(set);
    culvert_loop_free(other);
    ev_loop_destroy(ev);
}
END_TEST

static void drop_set(culvert_future *done, void *arg)
{
    culvert_future **set = arg;

    (void)done;
    fx_note('d');
    culvert_unref(*set);
    *set = NULL;
}

START_TEST(rule_10_a_callback_of_a_child_may_drop_the_set)
{
    culvert_future *set = make(culvert_all_at, true);

    /* Attached after the set: it runs when the set has seen the first child and waits for two
       more. */
    ck_assert_int_eq(culvert_on_settled(culvert_ref(c[0]), drop_set, &set, NULL), CULVERT_OK);
    resolve(0, NULL);
    resolve(1, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "d");
    end(set);
}
END_TEST

START_TEST(children_of_all_are_known_to_the_layers_above)
{
    size_t n;
    culvert_future *set = make(culvert_all_at, false);
    culvert_future *const *children = culvert__all_children(set, &n);

    ck_assert_uint_eq(n, N);
    ck_assert_ptr_eq(children[1], culvert_child(set, 1));
    end(set);
    set = make(culvert_race_at, false);
    ck_assert_ptr_null(culvert__all_children(set, &n));
    ck_assert_uint_eq(n, 0);
    end(set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("combine");
    TCase *tc = fx_case(suite, "sets");

    tcase_add_test(tc, all_resolves_with_null_when_each_child_has_and_they_keep_their_values);
    tcase_add_test(tc, rule_08_the_first_rejection_cancels_the_rest_and_all_settles_when_each_has);
    tcase_add_test(tc, rule_08_all_waits_for_a_child_that_somebody_else_wants);
    tcase_add_test(tc, cancelling_a_set_cancels_the_children_that_only_it_wants);
    tcase_add_test(tc, all_settled_resolves_however_its_children_settle);
    tcase_add_test(tc, rule_08_any_takes_the_first_that_resolves_and_lets_go_of_the_others);
    tcase_add_test(tc, any_rejects_with_the_last_rejection_when_all_did);
    tcase_add_test(tc, rule_08_race_takes_the_first_that_settles);
    tcase_add_test(tc, race_of_settled_futures_is_won_by_the_first_of_the_array);
    tcase_add_test(tc, rule_09_losers_never_go_to_on_unhandled);

    tc = fx_case(suite, "edges");
    tcase_add_test(tc, rule_08_empty_sets);
    tcase_add_test(tc, a_future_may_be_in_a_set_twice);
    tcase_add_test(tc, a_future_of_another_loop_is_refused_and_everything_is_released);
    tcase_add_test(tc, rule_10_a_callback_of_a_child_may_drop_the_set);
    tcase_add_test(tc, children_of_all_are_known_to_the_layers_above);
    return test_main((Suite *[]){suite, NULL});
}
