/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Misuse that is told at once: NULL handles (DESIGN 3), and calls on a thread that is not the
 * loop's (rule 15, in debug builds).
 */
#include "lib/child.h"
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static culvert_loop *loop;
static culvert_future *pending;
static culvert_promise *promise;

static void *job(void *arg, culvert_error *err)
{
    (void)err;
    return arg;
}

static void post_fn(void *arg)
{
    (void)arg;
}

/* ---- NULL ---- */

typedef struct misuse {
    const char *call;
    void (*fn)(void);
} misuse;

#define CALL(name, expression)          \
    static void null_##name(void)       \
    {                                   \
        (void)!(uintptr_t)(expression); \
    }
#define VOID(name, statement)     \
    static void null_##name(void) \
    {                             \
        statement;                \
    }

static culvert_future *out;
CALL(promise_new, culvert_promise_new(NULL, &out))
CALL(promise_new_out, culvert_promise_new(loop, NULL))
VOID(resolve, culvert_resolve(NULL, NULL, NULL))
VOID(reject, culvert_reject(NULL, &(culvert_error){.code = -1}))
VOID(promise_on_cancel, culvert_promise_on_cancel(NULL, post_fn, NULL, NULL))
CALL(post, culvert_post(NULL, post_fn, NULL, NULL))
CALL(post_fn, culvert_post(loop, NULL, NULL, NULL))
CALL(post_resolve, culvert_post_resolve(NULL, NULL, NULL))
CALL(post_reject, culvert_post_reject(NULL, &(culvert_error){.code = -1}))
CALL(resolved, culvert_resolved(NULL, NULL, NULL))
CALL(rejected, culvert_rejected(NULL, &(culvert_error){.code = -1}))
CALL(fail, culvert_fail(NULL, -1, 0, "x"))
CALL(then, culvert_then(NULL, fx_step, NULL, NULL))
CALL(then_step, culvert_then(pending, NULL, NULL, NULL))
CALL(catch, culvert_catch(NULL, fx_step, NULL, NULL))
CALL(finally, culvert_finally(NULL, fx_step, NULL, NULL))
CALL(on_settled, culvert_on_settled(NULL, fx_end, NULL, NULL))
CALL(all, culvert_all(NULL, NULL, 0))
CALL(all_futures, culvert_all(loop, NULL, 1))
CALL(all_member, culvert_all(loop, (culvert_future *[]){NULL}, 1))
CALL(all_settled, culvert_all_settled(NULL, NULL, 0))
CALL(any, culvert_any(NULL, NULL, 0))
CALL(race, culvert_race(NULL, NULL, 0))
CALL(child, culvert_child(NULL, 0))
CALL(winner, culvert_winner(NULL))
CALL(timeout, culvert_timeout(NULL, 1.0))
CALL(sleep, culvert_sleep(NULL, 1.0))
CALL(readable, culvert_readable(NULL, 0))
CALL(writable, culvert_writable(NULL, 0))
CALL(work, culvert_work(NULL, job, NULL, NULL, NULL))
CALL(work_fn, culvert_work(loop, NULL, NULL, NULL, NULL))
CALL(ref, culvert_ref(NULL))
VOID(cancel, culvert_cancel(NULL))
CALL(await, culvert_await(NULL, 1.0))
CALL(status, culvert_status(NULL))
CALL(get_error, culvert_get_error(NULL))
CALL(value, culvert_value(NULL))
CALL(take, culvert_take(NULL))
CALL(future_loop, culvert_future_loop(NULL))
CALL(loop_new, culvert_loop_new(NULL, NULL, NULL))
CALL(loop_ref, culvert_loop_ref(NULL))
CALL(loop_ev, culvert_loop_ev(NULL))
VOID(loop_arm, (void)(culvert_loop_arm(NULL) > 0.0))

static const misuse nulls[] = {
    {"culvert_promise_new: loop", null_promise_new},
    {"culvert_promise_new: out", null_promise_new_out},
    {"culvert_resolve: promise", null_resolve},
    {"culvert_reject: promise", null_reject},
    {"culvert_promise_on_cancel: promise", null_promise_on_cancel},
    {"culvert_post: loop", null_post},
    {"culvert_post: fn", null_post_fn},
    {"culvert_post_resolve: promise", null_post_resolve},
    {"culvert_post_reject: promise", null_post_reject},
    {"culvert_resolved: loop", null_resolved},
    {"culvert_rejected: loop", null_rejected},
    {"culvert_fail: loop", null_fail},
    {"culvert_then: future", null_then},
    {"culvert_then: step", null_then_step},
    {"culvert_catch: future", null_catch},
    {"culvert_finally: future", null_finally},
    {"culvert_on_settled: future", null_on_settled},
    {"culvert_all: loop", null_all},
    {"culvert_all: futures", null_all_futures},
    {"culvert_all: a future of the array", null_all_member},
    {"culvert_all_settled: loop", null_all_settled},
    {"culvert_any: loop", null_any},
    {"culvert_race: loop", null_race},
    {"culvert_child: set", null_child},
    {"culvert_winner: set", null_winner},
    {"culvert_timeout: future", null_timeout},
    {"culvert_sleep: loop", null_sleep},
    {"culvert_readable: loop", null_readable},
    {"culvert_writable: loop", null_writable},
    {"culvert_work: loop", null_work},
    {"culvert_work: fn", null_work_fn},
    {"culvert_ref: future", null_ref},
    {"culvert_cancel: future", null_cancel},
    {"culvert_await: future", null_await},
    {"culvert_status: future", null_status},
    {"culvert_get_error: future", null_get_error},
    {"culvert_value: future", null_value},
    {"culvert_take: future", null_take},
    {"culvert_future_loop: future", null_future_loop},
    {"culvert_loop_new: ev", null_loop_new},
    {"culvert_loop_ref: loop", null_loop_ref},
    {"culvert_loop_ev: loop", null_loop_ev},
    {"culvert_loop_arm: loop", null_loop_arm},
};

/* In a child that makes believe that it was not forked. */
static void make(void)
{
    culvert__forked_flag = 0;
    loop = culvert_loop_new(ev_loop_new(0), NULL, NULL);
    promise = culvert_promise_new(loop, &pending);
}

static int call_null(void *arg)
{
    make();
    ((const misuse *)arg)->fn();
    return 0;
}

START_TEST(null_handles_abort_with_a_message_that_names_the_call)
{
    misuse m = nulls[_i];
    char expected[128];
    const test_child child = test_child_run(call_null, &m, 0, 60.0);

    snprintf(expected, sizeof expected, "culvert: %s is NULL\n", m.call);
    ck_assert_msg(child.signal == SIGABRT, "%s: signal %d, status %d", m.call, child.signal,
                  child.status);
    ck_assert_msg(strstr(child.output, expected) != NULL, "%s: %s", m.call, child.output);
}
END_TEST

static int release_null(void *arg)
{
    (void)arg;
    culvert_unref(NULL);
    culvert_detach(NULL);
    culvert_promise_drop(NULL);
    culvert_loop_unref(NULL);
    culvert_loop_free(NULL);
    return 0;
}

START_TEST(release_functions_accept_null)
{
    const test_child child = test_child_run(release_null, NULL, 0, 60.0);

    ck_assert_int_eq(child.status, 0);
}
END_TEST

/* ---- threads ---- */

#ifndef NDEBUG
static culvert_error user_error = {.code = CULVERT_EUSER};

static void t_promise_new(void)
{
    (void)!(uintptr_t)culvert_promise_new(loop, &out);
}
static void t_resolve(void)
{
    culvert_resolve(promise, NULL, NULL);
}
static void t_reject(void)
{
    culvert_reject(promise, &user_error);
}
static void t_on_cancel(void)
{
    culvert_promise_on_cancel(promise, post_fn, NULL, NULL);
}
static void t_resolved(void)
{
    (void)!(uintptr_t)culvert_resolved(loop, NULL, NULL);
}
static void t_rejected(void)
{
    (void)!(uintptr_t)culvert_rejected(loop, &user_error);
}
static void t_fail(void)
{
    (void)!(uintptr_t)culvert_fail(loop, -1, 0, "x");
}
static void t_then(void)
{
    (void)!(uintptr_t)culvert_then(pending, fx_step, NULL, NULL);
}
static void t_catch(void)
{
    (void)!(uintptr_t)culvert_catch(pending, fx_step, NULL, NULL);
}
static void t_finally(void)
{
    (void)!(uintptr_t)culvert_finally(pending, fx_step, NULL, NULL);
}
static void t_on_settled(void)
{
    (void)culvert_on_settled(pending, fx_end, NULL, NULL);
}
static void t_all(void)
{
    (void)!(uintptr_t)culvert_all(loop, NULL, 0);
}
static void t_any(void)
{
    (void)!(uintptr_t)culvert_any(loop, NULL, 0);
}
static void t_child(void)
{
    (void)culvert_child(pending, 0);
}
static void t_winner(void)
{
    (void)culvert_winner(pending);
}
static void t_timeout(void)
{
    (void)!(uintptr_t)culvert_timeout(pending, 1.0);
}
static void t_sleep(void)
{
    (void)!(uintptr_t)culvert_sleep(loop, 1.0);
}
static void t_readable(void)
{
    (void)!(uintptr_t)culvert_readable(loop, 0);
}
static void t_work(void)
{
    (void)!(uintptr_t)culvert_work(loop, job, NULL, NULL, NULL);
}
static void t_ref(void)
{
    (void)culvert_ref(pending);
}
static void t_unref(void)
{
    culvert_unref(pending);
}
static void t_detach(void)
{
    culvert_detach(pending);
}
static void t_cancel(void)
{
    culvert_cancel(pending);
}
static void t_await(void)
{
    (void)culvert_await(pending, 0.0);
}
static void t_status(void)
{
    (void)culvert_status(pending);
}
static void t_get_error(void)
{
    (void)culvert_get_error(pending);
}
static void t_value(void)
{
    (void)culvert_value(pending);
}
static void t_take(void)
{
    (void)culvert_take(pending);
}
static void t_loop_ev(void)
{
    (void)culvert_loop_ev(loop);
}
static void t_loop_arm(void)
{
    (void)culvert_loop_arm(loop);
}

static const misuse strangers[] = {
    {"culvert_promise_new", t_promise_new},
    {"culvert_resolve", t_resolve},
    {"culvert_reject", t_reject},
    {"culvert_promise_on_cancel", t_on_cancel},
    {"culvert_resolved", t_resolved},
    {"culvert_rejected", t_rejected},
    {"culvert_fail", t_fail},
    {"culvert_then", t_then},
    {"culvert_catch", t_catch},
    {"culvert_finally", t_finally},
    {"culvert_on_settled", t_on_settled},
    {"culvert_all", t_all},
    {"culvert_any", t_any},
    {"culvert_child", t_child},
    {"culvert_winner", t_winner},
    {"culvert_timeout", t_timeout},
    {"culvert_sleep", t_sleep},
    {"culvert_readable", t_readable},
    {"culvert_work", t_work},
    {"culvert_ref", t_ref},
    {"culvert_unref", t_unref},
    {"culvert_detach", t_detach},
    {"culvert_cancel", t_cancel},
    {"culvert_await", t_await},
    {"culvert_status", t_status},
    {"culvert_get_error", t_get_error},
    {"culvert_value", t_value},
    {"culvert_take", t_take},
    {"culvert_loop_ev", t_loop_ev},
    {"culvert_loop_arm", t_loop_arm},
};

static void *call_stranger(void *arg)
{
    ((const misuse *)arg)->fn();
    return NULL;
}

static int call_on_thread(void *arg)
{
    pthread_t thread;

    make();
    ev_run(culvert_loop_ev(loop), EVRUN_NOWAIT);
    pthread_create(&thread, NULL, call_stranger, arg);
    pthread_join(thread, NULL);
    return 0;
}

START_TEST(rule_15_debug_builds_check_the_thread)
{
    misuse m = strangers[_i];
    char expected[128];
    const test_child child = test_child_run(call_on_thread, &m, 0, 60.0);

    snprintf(expected, sizeof expected, "culvert: %s: called on a thread that is not the loop's\n",
             m.call);
    ck_assert_msg(child.signal == SIGABRT, "%s: signal %d, status %d", m.call, child.signal,
                  child.status);
    ck_assert_msg(strstr(child.output, expected) != NULL, "%s: %s", m.call, child.output);
}
END_TEST

/* culvert_loop_free too, where the loop is running. */
static void *free_stranger(void *arg)
{
    culvert_loop_free(loop);
    return arg;
}

/* On the loop: it runs, and stays there until the process has ended. */
static void meet_stranger(void *arg)
{
    pthread_t thread;
    pthread_create(&thread, NULL, free_stranger, arg);
    pthread_join(thread, NULL);
}

static int free_while_running(void *arg)
{
    make();
    culvert__loop_keep(loop);
    culvert_post(loop, meet_stranger, arg, NULL);
    ev_run(culvert_loop_ev(loop), 0);
    return 0;
}

START_TEST(rule_15_a_running_loop_is_not_taken_down_by_another_thread)
{
    const test_child child = test_child_run(free_while_running, NULL, 0, 60.0);

    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_ptr_nonnull(strstr(child.output, "culvert_loop_free: called on a thread"));
}
END_TEST
#endif

/* Before the loop has run it may be handed over; what may be called from any thread always may
   be. */
static void *hand_over(void *arg)
{
    culvert_promise_drop(promise);
    culvert_detach(culvert_then(culvert_sleep(loop, 0.0), fx_step, arg, NULL));
    ev_run(culvert_loop_ev(loop), 0);
    culvert_loop_unref(culvert_loop_ref(loop));
    culvert_unref(pending);
    culvert_loop_free(loop);
    return NULL;
}

static int hand_over_to_thread(void *arg)
{
    pthread_t thread;

    make();
    struct ev_loop *ev = culvert_loop_ev(loop);
    pthread_create(&thread, NULL, hand_over, arg);
    pthread_join(thread, NULL);
    ev_loop_destroy(ev);
    return strcmp(fx.log, "h") != 0;
}

START_TEST(rule_15_a_binding_may_be_handed_over_before_the_loop_runs)
{
    const test_child child = test_child_run(hand_over_to_thread, (void *)(uintptr_t) "h", 0, 60.0);

    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("misuse");
    TCase *tc = tcase_create("null");

    tcase_set_timeout(tc, 100);
    tcase_add_loop_test(tc, null_handles_abort_with_a_message_that_names_the_call, 0,
                        (int)(sizeof nulls / sizeof nulls[0]));
    tcase_add_test(tc, release_functions_accept_null);
    suite_add_tcase(suite, tc);

    tc = tcase_create("threads");
    tcase_set_timeout(tc, 100);
#ifndef NDEBUG
    tcase_add_loop_test(tc, rule_15_debug_builds_check_the_thread, 0,
                        (int)(sizeof strangers / sizeof strangers[0]));
    tcase_add_test(tc, rule_15_a_running_loop_is_not_taken_down_by_another_thread);
#endif
    tcase_add_test(tc, rule_15_a_binding_may_be_handed_over_before_the_loop_runs);
    suite_add_tcase(suite, tc);
    return test_main((Suite *[]){suite, NULL});
}
