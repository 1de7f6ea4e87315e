/* SPDX-License-Identifier: BSD-2-Clause */
/* Chains: which steps run, what they pass on, what is released when: DESIGN 3, rules 3, 5, 6,
   10. */
#include "loop/fixture.h"

/* ---- steps ---- */

typedef struct probe {
    int calls, freed;
    char name;
} probe;

static culvert_future *run(culvert_future *done, void *arg)
{
    probe *p = arg;

    (void)done;
    ck_assert_int_eq(p->freed, 0);
    p->calls++;
    fx_note(p->name);
    return NULL;
}

static void released(void *arg)
{
    ((probe *)arg)->freed++;
}

static culvert_future *give(culvert_future *done, void *arg)
{
    return culvert_resolved(culvert_future_loop(done), arg, NULL);
}

static culvert_future *go_wrong(culvert_future *done, void *arg)
{
    return culvert_fail(culvert_future_loop(done), CULVERT_EUSER, *(int *)arg, "step");
}

/* ---- which steps run ---- */

START_TEST(then_runs_on_success_catch_on_failure_finally_always)
{
    static const bool fails[] = {false, true};

    for (int i = 0; i < 2; i++) {
        probe t = {.name = 't'}, c = {.name = 'c'}, f = {.name = 'f'};
        outcome o = {0};
        culvert_promise *p;
        culvert_future *x;

        p = fx_promise(&x);
        x = culvert_then(x, run, &t, released);
        x = culvert_catch(x, run, &c, released);
        x = culvert_finally(x, run, &f, released);
        ck_assert_int_eq(culvert_on_settled(x, fx_keep, &o, NULL), CULVERT_OK);
        if (fails[i])
            culvert_reject(p, &(culvert_error){.code = CULVERT_EUSER, .native = 5});
        else
            culvert_resolve(p, &o, NULL);
        fx_run();
        ck_assert_int_eq(t.calls, !fails[i]);
        ck_assert_int_eq(c.calls, fails[i]);
        ck_assert_int_eq(f.calls, 1);
        ck_assert_int_eq(t.freed + c.freed + f.freed, 3);
        ck_assert_int_eq(o.calls, 1);
        ck_assert_int_eq(o.status, fails[i] ? CULVERT_EUSER : CULVERT_OK);
        ck_assert_ptr_eq(o.value, fails[i] ? NULL : &o);
        ck_assert_int_eq(o.native, fails[i] ? 5 : 0);
    }
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(catch_handles_and_the_chain_goes_on)
{
    int x, number = 3;
    outcome o = {0};
    culvert_future *f = culvert_resolved(fx.loop, NULL, NULL);

    f = culvert_then(f, go_wrong, &number, NULL);
    f = culvert_then(f, fx_step, "!", NULL);
    f = culvert_catch(f, give, &x, NULL);
    f = culvert_then(f, fx_step, "a", NULL);
    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "a");
    ck_assert_int_eq(o.status, CULVERT_OK);
    ck_assert_ptr_eq(o.value, &x);
}
END_TEST

static culvert_future *same(culvert_future *done, void *arg)
{
    (void)arg;
    return culvert_ref(done);
}

START_TEST(a_step_may_return_its_upstream)
{
    int freed = 0;
    culvert_future *f = culvert_then(culvert_resolved(fx.loop, &freed, fx_count), same, NULL, NULL);

    fx_run();
    ck_assert_ptr_eq(culvert_value(f), &freed);
    ck_assert_int_eq(freed, 0);
    culvert_unref(f);
    ck_assert_int_eq(freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- adoption ---- */

static culvert_future *hand_out(culvert_future *done, void *arg)
{
    culvert_future **later = arg, *f = *later;

    (void)done;
    *later = NULL;
    return f;
}

START_TEST(a_step_adopts_the_future_that_it_returns)
{
    int x;
    culvert_future *later;
    culvert_promise *p = fx_promise(&later);
    culvert_future *f = culvert_then(culvert_resolved(fx.loop, NULL, NULL), hand_out, &later, NULL);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    culvert_resolve(p, &x, NULL);
    fx_run();
    ck_assert_ptr_eq(culvert_value(f), &x);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

START_TEST(cancelling_an_adopter_cancels_what_it_adopted)
{
    culvert_future *later;
    culvert_promise *p = fx_promise(&later);
    culvert_future *watch = culvert_ref(later);
    culvert_future *f = culvert_then(culvert_resolved(fx.loop, NULL, NULL), hand_out, &later, NULL);

    fx_run();
    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    ck_assert_int_eq(culvert_status(watch), CULVERT_PENDING); /* somebody else wants it */
    culvert_unref(watch);
    culvert_unref(f);
    ck_assert_uint_eq(fx_live(), 0);
    culvert_promise_drop(p);
}
END_TEST

static culvert_future *own; /* the future of the step that is to return it */

static culvert_future *return_own(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return culvert_ref(own);
}

static culvert_future *return_own_chain(culvert_future *done, void *arg)
{
    (void)done;
    return culvert_then(culvert_catch(culvert_ref(own), fx_step, arg, NULL), fx_step, arg, NULL);
}

START_TEST(a_step_that_waits_for_itself_is_told)
{
    own = culvert_then(culvert_resolved(fx.loop, NULL, NULL), return_own, NULL, NULL);
    fx_run();
    ck_assert_int_eq(culvert_status(own), CULVERT_EDEADLK);
    culvert_unref(own);

    own = culvert_then(culvert_resolved(fx.loop, NULL, NULL), return_own_chain, "!", NULL);
    fx_run();
    ck_assert_int_eq(culvert_status(own), CULVERT_EDEADLK);
    culvert_unref(own);
    fx_run();
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

static culvert_future *return_foreign(culvert_future *done, void *arg)
{
    (void)done;
    return culvert_resolved(arg, NULL, NULL);
}

START_TEST(a_step_that_returns_a_future_of_another_loop_is_told)
{
    culvert_loop *other = fx_bind(fx.ev);
    culvert_future *f =
        culvert_then(culvert_resolved(fx.loop, NULL, NULL), return_foreign, other, NULL);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
    culvert_unref(f);
    culvert_loop_free(other);
}
END_TEST

/* ---- rule 3: arg_free runs once, whatever happens ---- */

enum { KINDS = 3, ENDINGS = 6 };

static culvert_future *attach(int kind, culvert_future *f, probe *p)
{
    switch (kind) {
    case 0: return culvert_then(f, run, p, released);
    case 1: return culvert_catch(f, run, p, released);
    default: return culvert_finally(f, run, p, released);
    }
}

START_TEST(rule_03_arg_free_runs_exactly_once)
{
    const int kind = _i % KINDS, ending = _i / KINDS;
    probe p = {.name = 'x'};
    culvert_future *up;
    culvert_promise *promise = fx_promise(&up);
    culvert_future *f = attach(kind, up, &p);

    switch (ending) {
    case 0: culvert_resolve(promise, NULL, NULL); break;
    case 1: culvert_reject(promise, &(culvert_error){.code = CULVERT_EUSER}); break;
    case 2: /* cancelled before */
        culvert_cancel(f);
        culvert_resolve(promise, NULL, NULL);
        break;
    case 3: /* cancelled when it is ready to run */
        culvert_resolve(promise, NULL, NULL);
        culvert_cancel(f);
        break;
    case 4: /* dropped */
        culvert_unref(f);
        f = NULL;
        culvert_promise_drop(promise);
        break;
    default: /* loop_free */
        culvert_loop_free(fx.loop);
        fx.loop = NULL;
        culvert_promise_drop(promise);
        break;
    }
    if (fx.loop != NULL)
        fx_run();
    const bool finally = kind == 2;
    const bool rejected = ending == 1 || ending == 5;
    const bool skipped = ending == 2 || ending == 3 || ending == 4;
    ck_assert_int_eq(p.freed, 1);
    ck_assert_int_eq(p.calls, finally || (!skipped && (kind == 1) == rejected) ? 1 : 0);
    if (f != NULL && skipped)
        ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_unref(f);
    if (fx.loop != NULL) {
        fx_run(); /* a rejection that nobody looked at is reported */
        ck_assert_uint_eq(fx_live(), 0);
    }
}
END_TEST

START_TEST(rule_03_arg_of_a_refused_step_is_released)
{
    probe p = {.name = 'x'};
    culvert_future *f = culvert_resolved(fx.loop, NULL, NULL), *more = culvert_ref(f);

    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    culvert_future *g = culvert_then(f, run, &p, released);
    ck_assert_int_eq(culvert_status(g), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(p.freed, 1);
    ck_assert_int_eq(culvert_on_settled(more, fx_end, &p, released), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(p.freed, 2);
    ck_assert_int_eq(p.calls, 0);
    culvert_unref(g);
}
END_TEST

/* ---- rule 10: freeing anything inside a callback ---- */

static culvert_future *drop_future(culvert_future *done, void *arg)
{
    culvert_future **f = arg;

    (void)done;
    culvert_unref(*f);
    *f = NULL;
    fx_note('d');
    return NULL;
}

START_TEST(rule_10_a_step_may_drop_its_own_future)
{
    int freed = 0;
    culvert_future *f;

    f = culvert_then(culvert_resolved(fx.loop, &freed, fx_count), drop_future, &f, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "d");
    ck_assert_ptr_null(f);
    ck_assert_int_eq(freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

static culvert_future *drop_and_return(culvert_future *done, void *arg)
{
    drop_future(done, arg);
    return culvert_sleep(culvert_future_loop(done), 100.0);
}

START_TEST(what_a_step_returns_after_it_was_cancelled_is_dropped)
{
    culvert_future *f;
    const double before = test_now();

    f = culvert_then(culvert_resolved(fx.loop, NULL, NULL), drop_and_return, &f, NULL);
    fx_run();
    ck_assert(test_now() - before < 50.0);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* case 29: both complete in one batch; the first one's continuation drops the second */
START_TEST(case_029_a_dropped_sibling_of_the_same_turn_does_not_run)
{
    probe p = {.name = 'b'};
    culvert_future *a, *b;
    culvert_promise *pa = fx_promise(&a), *pb = fx_promise(&b);

    b = culvert_then(b, run, &p, released);
    culvert_detach(culvert_then(a, drop_future, &b, NULL));
    culvert_resolve(pa, NULL, NULL);
    culvert_resolve(pb, NULL, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "d");
    ck_assert_int_eq(p.calls, 0);
    ck_assert_int_eq(p.freed, 1);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chain");
    TCase *tc = fx_case(suite, "steps");

    tcase_add_test(tc, then_runs_on_success_catch_on_failure_finally_always);
    tcase_add_test(tc, catch_handles_and_the_chain_goes_on);
    tcase_add_test(tc, a_step_may_return_its_upstream);
    tcase_add_test(tc, a_step_adopts_the_future_that_it_returns);
    tcase_add_test(tc, cancelling_an_adopter_cancels_what_it_adopted);
    tcase_add_test(tc, a_step_that_waits_for_itself_is_told);
    tcase_add_test(tc, a_step_that_returns_a_future_of_another_loop_is_told);

    tc = fx_case(suite, "releases");
    tcase_add_loop_test(tc, rule_03_arg_free_runs_exactly_once, 0, KINDS * ENDINGS);
    tcase_add_test(tc, rule_03_arg_of_a_refused_step_is_released);
    tcase_add_test(tc, rule_10_a_step_may_drop_its_own_future);
    tcase_add_test(tc, what_a_step_returns_after_it_was_cancelled_is_dropped);
    tcase_add_test(tc, case_029_a_dropped_sibling_of_the_same_turn_does_not_run);
    return test_main((Suite *[]){suite, NULL});
}
