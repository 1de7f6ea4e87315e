/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Out of memory at every allocation of whole programs: nothing crashes or leaks, each argument and
 * value is released exactly once, each chain ends, with CULVERT_ENOMEM where it could not be made.
 */
#include "lib/alloc_fail.h"
#include "loop/fixture.h"

/* What was given away and what came back. */
static int given, returned;

static void take_back(void *arg)
{
    returned++;
    free(arg);
}

static void *thing(void)
{
    void *p = malloc(16);

    ck_assert_ptr_nonnull(p);
    given++;
    return p;
}

typedef struct seen {
    int calls, refused;
} seen;

static void keep(culvert_future *done, void *arg)
{
    const int status = culvert_status(done);

    (void)culvert_get_error(done);
    ck_assert(status == CULVERT_OK || status == CULVERT_ENOMEM || status == CULVERT_EUSER ||
              status == CULVERT_ETIMEDOUT || status == CULVERT_ECANCELED ||
              status == CULVERT_EINVAL);
    ((seen *)arg)->calls++;
}

static void end(culvert_future *f, seen *s)
{
    const int result = culvert_on_settled(f, keep, s, NULL);

    ck_assert(result == CULVERT_OK || result == CULVERT_ENOMEM);
    s->refused += result != CULVERT_OK;
}

static culvert_loop *open_loop(struct ev_loop *ev)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;

    options.driver = "sim";
    options.on_unhandled = fx_unhandled;
    options.workers = 1;
    culvert_loop *loop = culvert_loop_new(ev, &options, &err);
    if (loop == NULL)
        ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    return loop;
}

static void run_and_close(struct ev_loop *ev, culvert_loop *loop)
{
    if (loop != NULL) {
        ev_run(ev, 0);
        ck_assert_uint_eq(culvert__core_of(loop)->live, 0);
        culvert_loop_free(loop);
    }
    ck_assert_int_eq(given, returned);
}

/* ---- steps ---- */

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    (void)arg;
    return NULL;
}

static culvert_future *value(culvert_future *done, void *arg)
{
    (void)arg;
    return culvert_resolved(culvert_future_loop(done), thing(), take_back);
}

static culvert_future *wrong(culvert_future *done, void *arg)
{
    (void)arg;
    return culvert_fail(culvert_future_loop(done), CULVERT_EUSER, 1, "wrong");
}

static culvert_future *longer(culvert_future *done, void *arg)
{
    culvert_loop *loop = culvert_future_loop(done);
    culvert_future *f = culvert_then(culvert_sleep(loop, 0.0), value, thing(), take_back);

    (void)arg;
    return culvert_finally(f, pass, thing(), take_back);
}

/* ---- programs ---- */

static void chain(void *arg)
{
    culvert_loop *loop = open_loop(arg);
    seen s = {0};

    if (loop != NULL) {
        culvert_future *f;
        culvert_promise *p = culvert_promise_new(loop, &f);

        f = culvert_then(f, value, thing(), take_back);
        f = culvert_then(f, longer, thing(), take_back);
        f = culvert_then(f, wrong, thing(), take_back);
        f = culvert_catch(f, longer, thing(), take_back);
        f = culvert_finally(f, pass, thing(), take_back);
        end(f, &s);
        if (p != NULL)
            culvert_resolve(p, thing(), take_back);
    }
    run_and_close(arg, loop);
    ck_assert_int_eq(s.calls + s.refused, loop != NULL);
}

static void promises(void *arg)
{
    culvert_loop *loop = open_loop(arg);

    for (int i = 0; loop != NULL && i < 5; i++) {
        culvert_future *f;
        culvert_promise *p = culvert_promise_new(loop, &f);
        const culvert_error err = {CULVERT_EUSER, 0, NULL, NULL, "x"};

        if (p == NULL)
            ck_assert_int_eq(culvert_status(f), CULVERT_ENOMEM);
        else if (i == 0)
            culvert_reject(p, &err);
        else if (i == 1)
            ck_assert_int_eq(culvert_post_reject(p, &err), CULVERT_OK);
        else if (i == 2)
            ck_assert_int_eq(culvert_post_resolve(p, thing(), take_back), CULVERT_OK);
        else
            culvert_promise_drop(p);
        culvert_detach(f);
    }
    run_and_close(arg, loop);
}

static void sets(void *arg)
{
    static culvert_future *(*const makers[])(const char *, culvert_loop *, culvert_future *const *,
                                             size_t) = {culvert_all_at, culvert_all_settled_at,
                                                        culvert_any_at, culvert_race_at};
    culvert_loop *loop = open_loop(arg);
    seen s = {0};

    for (int i = 0; loop != NULL && i < 4; i++) {
        culvert_future *children[3] = {
            culvert_sleep(loop, 0.0),
            culvert_resolved(loop, thing(), take_back),
            culvert_timeout(culvert_sleep(loop, 100.0), 0.0),
        };
        end(makers[i]("here", loop, children, 3), &s);
    }
    for (int i = 0; loop != NULL && i < 4; i++)
        end(makers[i]("here", loop, NULL, 0), &s);
    run_and_close(arg, loop);
    ck_assert_int_eq(s.calls + s.refused, loop != NULL ? 8 : 0);
}

static void post_fn(void *arg)
{
    (void)arg;
}

static void *work_fn(void *arg, culvert_error *err)
{
    if (arg == NULL)
        culvert_error_set(err, CULVERT_EUSER, 0, "no");
    return NULL;
}

static void rest(void *arg)
{
    culvert_loop *loop = open_loop(arg);
    seen s = {0};

    if (loop != NULL) {
        const int posted = culvert_post(loop, post_fn, thing(), take_back);
        ck_assert(posted == CULVERT_OK || posted == CULVERT_ENOMEM);
        end(culvert_work(loop, work_fn, thing(), take_back, NULL), &s);
        end(culvert_work(loop, work_fn, NULL, NULL, NULL), &s);
        culvert_unref(culvert_readable(loop, 0));
        end(culvert_readable(loop, -1), &s);
        end(culvert_sleep(loop, -1.0), &s);
        end(culvert_timeout(culvert_sleep(loop, 0.0), NAN), &s);
        culvert_future *f = culvert_sleep(loop, 0.001);
        const int status = culvert_await(f, 100.0);
        ck_assert(status == CULVERT_OK || status == CULVERT_ENOMEM);
        culvert_unref(f);
    }
    run_and_close(arg, loop);
}

static void many_timers(void *arg)
{
    culvert_loop *loop = open_loop(arg);
    seen s = {0};

    for (int i = 0; loop != NULL && i < 40; i++) /* the heap grows twice */
        end(culvert_sleep(loop, 0.0), &s);
    run_and_close(arg, loop);
    ck_assert_int_eq(s.calls + s.refused, loop != NULL ? 40 : 0);
}

/* With one libev loop for all runs. */
static void at_each(void (*program)(void *), unsigned at_least)
{
    struct ev_loop *ev = ev_loop_new(0);

    ck_assert_ptr_nonnull(ev);
    alloc_fail_this_thread(true);
    ck_assert_uint_ge(alloc_fail_each(program, ev), at_least);
    alloc_fail_off();
    ck_assert_int_eq(ev_run(ev, EVRUN_NOWAIT), 0);
    ev_loop_destroy(ev);
}

START_TEST(out_of_memory_at_every_allocation_of_a_chain)
{
    at_each(chain, 15);
}
END_TEST

START_TEST(out_of_memory_at_every_allocation_of_promises)
{
    at_each(promises, 10);
}
END_TEST

START_TEST(out_of_memory_at_every_allocation_of_sets)
{
    at_each(sets, 20);
}
END_TEST

START_TEST(out_of_memory_at_every_allocation_of_the_rest)
{
    at_each(rest, 10);
}
END_TEST

START_TEST(out_of_memory_at_every_allocation_of_many_timers)
{
    at_each(many_timers, 80);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tc = tcase_create("out of memory");

    tcase_add_test(tc, out_of_memory_at_every_allocation_of_a_chain);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_promises);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_sets);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_the_rest);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_many_timers);
    suite_add_tcase(suite, tc);
    return test_main((Suite *[]){suite, NULL});
}
