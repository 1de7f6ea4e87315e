/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children: DESIGN 3, rule 14; cases 8 and 9. What is wrong in a child is said on its stderr.
 */
#include "lib/child.h"
#include "loop/binding.h"
#include "loop/fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                           \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return 1;                                               \
        }                                                           \
    } while (0)

static void in_child(int (*fn)(void *), void *arg)
{
    const test_child child = test_child_run(fn, arg, 0, 60.0);

    ck_assert_msg(child.ended && child.status == 0, "ended %d, status %d, signal %d: %s",
                  child.ended, child.status, child.signal, child.output);
}

static bool is_forked(culvert_future *f)
{
    return f != NULL && culvert_status(f) == CULVERT_EFORKED &&
           culvert_get_error(f)->code == CULVERT_EFORKED && culvert_value(f) == NULL &&
           culvert_take(f) == NULL && culvert_future_loop(f) == NULL;
}

static void *no_job(void *arg, culvert_error *err)
{
    (void)err;
    return arg;
}

/* ---- case 8 ---- */

typedef struct inherited {
    culvert_future *pending, *resolved, *rejected;
    culvert_promise *p[4];
} inherited;

/* Each call, in a child that has not left the binding. */
static int every_call(void *arg)
{
    inherited *in = arg;
    culvert_loop *loop = fx.loop;
    const culvert_error user = {CULVERT_EUSER, 0, NULL, NULL, "x"};
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *f, *two[2];
    int freed = 0;

    EXPECT(culvert_promise_new(loop, &f) == NULL && is_forked(f));
    EXPECT(is_forked(culvert_resolved(loop, &freed, fx_count)) && freed == 1);
    EXPECT(is_forked(culvert_rejected(loop, &user)));
    EXPECT(is_forked(culvert_fail(loop, CULVERT_EUSER, 0, "x")));
    EXPECT(is_forked(culvert_then(in->pending, fx_step, &freed, fx_count)) && freed == 2);
    EXPECT(is_forked(culvert_catch(in->pending, fx_step, &freed, fx_count)) && freed == 3);
    EXPECT(is_forked(culvert_finally(in->resolved, fx_step, &freed, fx_count)) && freed == 4);
    EXPECT(culvert_on_settled(in->pending, fx_end, &freed, fx_count) == CULVERT_EFORKED);
    EXPECT(freed == 5);
    two[0] = in->pending;
    two[1] = in->resolved;
    EXPECT(is_forked(culvert_all(loop, two, 2)));
    EXPECT(is_forked(culvert_all_settled(loop, two, 2)));
    EXPECT(is_forked(culvert_any(loop, two, 2)));
    EXPECT(is_forked(culvert_race(loop, NULL, 0)));
    EXPECT(is_forked(culvert_timeout(in->pending, 1.0)));
    EXPECT(is_forked(culvert_sleep(loop, 1.0)));
    EXPECT(is_forked(culvert_readable(loop, 0)));
    EXPECT(is_forked(culvert_writable(loop, 1)));
    EXPECT(is_forked(culvert_work(loop, no_job, &freed, fx_count, NULL)) && freed == 6);
    EXPECT(culvert_post(loop, fx_count, &freed, fx_count) == CULVERT_EFORKED && freed == 7);
    EXPECT(culvert_post_resolve(in->p[0], &freed, fx_count) == CULVERT_EFORKED && freed == 8);
    EXPECT(culvert_post_reject(in->p[1], &user) == CULVERT_EFORKED);
    culvert_resolve(in->p[2], &freed, fx_count);
    EXPECT(freed == 9);
    culvert_reject(in->p[2], &user);
    culvert_promise_drop(in->p[3]);
    culvert_promise_on_cancel(in->p[3], fx_count, &freed, fx_count);
    EXPECT(freed == 10);
    EXPECT(culvert_await(in->pending, INFINITY) == CULVERT_EFORKED);
    EXPECT(culvert_status(in->pending) == CULVERT_EFORKED);
    EXPECT(culvert_get_error(in->pending)->code == CULVERT_EFORKED);
    EXPECT(culvert_status(in->resolved) == CULVERT_OK);
    EXPECT(culvert_get_error(in->rejected)->native == 7);
    EXPECT(culvert_loop_arm(loop) <= 0.0);
    EXPECT(culvert_loop_new(fx.ev, NULL, &err) == NULL && err.code == CULVERT_EFORKED);
    culvert_cancel(in->pending);
    culvert_detach(in->pending);
    culvert_unref(culvert_ref(in->pending));
    culvert_unref(in->resolved);
    culvert_loop_unref(culvert_loop_ref(loop));
    return 0;
}

START_TEST(case_008_in_a_child_every_call_is_refused_and_the_parent_is_not_disturbed)
{
    inherited in;

    for (int i = 0; i < 4; i++) {
        culvert_future *f;
        in.p[i] = fx_promise(&f);
        culvert_detach(f);
    }
    in.pending = culvert_sleep(fx.loop, 0.05);
    in.resolved = culvert_resolved(fx.loop, &in, NULL);
    in.rejected = culvert_fail(fx.loop, CULVERT_EUSER, 7, "x");
    if (_i > 0)
        fx_turn();
    in_child(every_call, &in);
    fx_run();
    ck_assert_int_eq(culvert_status(in.pending), CULVERT_OK);
    ck_assert_ptr_eq(culvert_take(in.resolved), &in);
    ck_assert_ptr_nonnull(culvert_get_error(in.rejected));
    culvert_unref(in.pending);
    culvert_unref(in.resolved);
    culvert_unref(in.rejected);
    for (int i = 0; i < 4; i++)
        culvert_resolve(in.p[i], NULL, NULL);
    ck_assert_uint_eq(fx_live(), 0);
}
END_TEST

/* ---- case 8 and 9: leaving the binding ---- */

typedef struct left {
    outcome o[7];
    int freed, posted, posted_freed, value_freed, told;
    culvert_promise *p;
    int ends[2];
} left;

static void pend(left *l)
{
    culvert_future *f;

    memset(l, 0, sizeof *l);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, l->ends), 0);
    l->p = fx_promise(&f);
    culvert_promise_on_cancel(l->p, fx_count, &l->told, NULL);
    culvert_future *all[7] = {
        culvert_then(culvert_ref(f), fx_step, &l->freed, fx_count),
        culvert_sleep(fx.loop, 0.05),
        culvert_readable(fx.loop, l->ends[0]),
        culvert_work(fx.loop, no_job, NULL, NULL, NULL),
        culvert_timeout(culvert_ref(f), 60.0),
        culvert_all(fx.loop, (culvert_future *[]){culvert_ref(f), culvert_sleep(fx.loop, 0.05)}, 2),
        f,
    };
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(culvert_on_settled(all[i], fx_keep, &l->o[i], NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_post(fx.loop, fx_count, &l->posted, NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_post(fx.loop, fx_count, &l->posted_freed, fx_count), CULVERT_OK);
    ck_assert_int_eq(culvert_post_resolve(l->p, &l->value_freed, fx_count), CULVERT_OK);
}

static int expect_forked(left *l)
{
    for (int i = 0; i < 7; i++) {
        EXPECT(l->o[i].calls == 1);
        EXPECT(l->o[i].status == CULVERT_EFORKED);
    }
    EXPECT(l->freed == 1);
    EXPECT(l->posted == 0);       /* what was posted is for the parent to run */
    EXPECT(l->posted_freed == 1); /* released only */
    EXPECT(l->value_freed == 1);
    EXPECT(l->told == 0);
    EXPECT(fx.logged == 0);
    return 0;
}

static int leave_by_free(void *arg)
{
    culvert_loop_free(fx.loop);
    if (expect_forked(arg) != 0)
        return 1;
    EXPECT(ev_run(fx.ev, EVRUN_NOWAIT) == 0);
    return 0;
}

static int leave_by_run(void *arg)
{
    ev_loop_fork(fx.ev);
    EXPECT(ev_run(fx.ev, 0) == 0); /* it ends */
    if (expect_forked(arg) != 0)
        return 1;
    culvert_loop_free(fx.loop);
    return 0;
}

static int leave_by_run_without_telling_libev(void *arg)
{
    EXPECT(ev_run(fx.ev, 0) == 0);
    return expect_forked(arg);
}

START_TEST(case_009_a_child_leaves_what_it_inherited_and_the_parent_goes_on)
{
    static int (*const ways[])(void *) = {leave_by_free, leave_by_run,
                                          leave_by_run_without_telling_libev};
    left l;

    pend(&l);
    in_child(ways[_i], &l);
    ck_assert_int_eq(write(l.ends[1], "x", 1), 1);
    fx_run();
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(l.o[i].calls, 1);
        ck_assert_int_eq(l.o[i].status, CULVERT_OK);
    }
    ck_assert_int_eq(l.posted, 1);
    ck_assert_int_eq(l.posted_freed, 2);
    ck_assert_uint_eq(fx_live(), 0);
    close(l.ends[0]);
    close(l.ends[1]);
}
END_TEST

/* In the callbacks by which a child leaves, handles are read and released as ever. */
static culvert_promise *left_promise;
static culvert_future *left_future;

static void use_handles(culvert_future *done, void *arg)
{
    int *seen = arg;

    if (!culvert__forked())
        return; /* the parent's own end */
    if (culvert_status(done) == CULVERT_EFORKED && culvert_get_error(done)->code == CULVERT_EFORKED)
        *seen += 1;
    culvert_future *f = culvert_then(culvert_ref(done), fx_step, "!", NULL);
    if (is_forked(f))
        *seen += 10;
    culvert_unref(f);
    /* What a call consumes is released also where the call is refused. */
    culvert_future *two[2] = {culvert_ref(done), culvert_ref(left_future)};
    if (is_forked(culvert_all(fx.loop, two, 2)))
        *seen += 1000;
    if (is_forked(culvert_timeout(culvert_ref(done), 1.0)))
        *seen += 10000;
    if (culvert_on_settled(culvert_ref(done), fx_end, NULL, NULL) == CULVERT_EFORKED)
        *seen += 100000;
    culvert_unref(left_future);
    culvert_resolve(left_promise, seen, fx_count); /* 1 more */
    if (is_forked(culvert_sleep(fx.loop, 0.0)))
        *seen += 100;
}

static int leave_and_use(void *arg)
{
    culvert_loop_free(fx.loop);
    EXPECT(*(int *)arg == 111112);
    EXPECT(fx_live() == 0);
    return 0;
}

START_TEST(rule_14_callbacks_of_a_child_that_leaves_may_use_handles)
{
    int seen = 0;

    left_promise = fx_promise(&left_future);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.01), use_handles, &seen, NULL),
                     CULVERT_OK);
    culvert_loop_ref(fx.loop); /* for the child to look at what is left */
    in_child(leave_and_use, &seen);
    culvert_loop_unref(fx.loop);
    culvert_unref(left_future);
    culvert_promise_drop(left_promise);
}
END_TEST

/* ---- a fork inside a callback ---- */

static int forked_status = -1;

static void fork_here(void *arg)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        forked_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        return;
    }
    fx_note('C'); /* the child goes on, in the middle of a batch */
    if (arg != NULL)
        culvert_loop_free(fx.loop); /* put off, as in the parent, until this has returned */
}

static int expect_child_log(const outcome *o, int value_freed)
{
    EXPECT(strcmp(fx.log, "C") == 0); /* "b" is for the parent */
    EXPECT(value_freed == 1);         /* by a callback that was ready: it ran when the child left */
    EXPECT(o->calls == 1);
    EXPECT(o->status == CULVERT_EFORKED);
    return 0;
}

static void note_b(void *arg)
{
    fx_note(*(const char *)arg);
}

static void unref_it(culvert_future *done, void *arg)
{
    (void)done;
    culvert_unref(arg);
}

START_TEST(rule_14_a_fork_inside_a_callback)
{
    outcome o = {0};
    int value_freed = 0;

    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.02), fx_keep, &o, NULL),
                     CULVERT_OK);
    ck_assert_int_eq(culvert_post(fx.loop, fork_here, _i > 0 ? &o : NULL, NULL), CULVERT_OK);
    ck_assert_int_eq(culvert_post(fx.loop, note_b, "b", NULL), CULVERT_OK);
    culvert__hub_drain(fx.loop); /* so that what comes next is behind it */
    ck_assert_int_eq(culvert_on_settled(culvert_resolved(fx.loop, NULL, NULL), unref_it,
                                        culvert_resolved(fx.loop, &value_freed, fx_count), NULL),
                     CULVERT_OK);
    fx_run();
    if (fx.log[0] == 'C')
        _exit(expect_child_log(&o, value_freed));
    ck_assert_int_eq(value_freed, 1);
    ck_assert_int_eq(forked_status, 0);
    ck_assert_str_eq(fx.log, "b");
    ck_assert_int_eq(o.status, CULVERT_OK);
}
END_TEST

/* ---- a fork while other threads post and work ---- */

static atomic_bool stop;
static atomic_int outstanding;
static int posted;

static void take_post(void *arg)
{
    (void)arg;
    posted++;
    atomic_fetch_sub(&outstanding, 1);
}

static void *keep_posting(void *arg)
{
    while (!atomic_load(&stop)) {
        if (atomic_load(&outstanding) > 1000) {
            test_sleep(0.0001);
            continue;
        }
        atomic_fetch_add(&outstanding, 1);
        if (culvert_post(arg, take_post, NULL, NULL) != CULVERT_OK)
            break;
    }
    culvert_loop_unref(arg);
    return NULL;
}

static int leave_quietly(void *arg)
{
    if (arg == NULL) {
        ev_loop_fork(fx.ev);
        EXPECT(ev_run(fx.ev, 0) == 0);
    }
    culvert_loop_free(fx.loop);
    return 0;
}

START_TEST(case_008_forks_while_threads_post_and_work)
{
    pthread_t thread[2];

    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++) {
        culvert_loop_ref(fx.loop);
        ck_assert_int_eq(pthread_create(&thread[i], NULL, keep_posting, fx.loop), 0);
    }
    for (int i = 0; i < 20; i++) {
        outcome o = {0};
        ck_assert_int_eq(culvert_on_settled(culvert_work(fx.loop, no_job, NULL, NULL, NULL),
                                            fx_keep, &o, NULL),
                         CULVERT_OK);
        in_child(leave_quietly, i % 2 == 0 ? &o : NULL);
        while (o.calls == 0)
            ev_run(fx.ev, EVRUN_NOWAIT);
        ck_assert_int_eq(o.status, CULVERT_OK);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    fx_run();
    ck_assert_int_gt(posted, 0);
}
END_TEST

/* A child of a thread that is not the loop's leaves everything as it is. */
static void *fork_elsewhere(void *arg)
{
    in_child(leave_quietly, arg);
    return NULL;
}

START_TEST(rule_14_a_child_of_another_thread)
{
    pthread_t thread;
    outcome o = {0};

    fx_turn();
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.01), fx_keep, &o, NULL),
                     CULVERT_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_elsewhere, &o), 0);
    pthread_join(thread, NULL);
    fx_run();
    ck_assert_int_eq(o.status, CULVERT_OK);
}
END_TEST

/* ---- a child of a process that had made no binding starts afresh ---- */

static int start_afresh(void *arg)
{
    struct ev_loop *ev = ev_loop_new(0);
    culvert_loop *loop = culvert_loop_new(ev, NULL, NULL);
    outcome o = {0};

    (void)arg;
    EXPECT(loop != NULL);
    EXPECT(culvert_on_settled(culvert_sleep(loop, 0.001), fx_keep, &o, NULL) == CULVERT_OK);
    ev_run(ev, 0);
    EXPECT(o.calls == 1 && o.status == CULVERT_OK);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    return 0;
}

START_TEST(rule_14_a_child_of_a_process_without_a_binding_starts_afresh)
{
    if (culvert__forked())
        return; /* the tests share a process, and another one has made a binding */
    in_child(start_afresh, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fork");
    TCase *tc = tcase_create("no binding");

    tcase_add_test(tc, rule_14_a_child_of_a_process_without_a_binding_starts_afresh);
    suite_add_tcase(suite, tc);
    tc = fx_case(suite, "children");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc,
                        case_008_in_a_child_every_call_is_refused_and_the_parent_is_not_disturbed,
                        0, 2);
    tcase_add_loop_test(tc, case_009_a_child_leaves_what_it_inherited_and_the_parent_goes_on, 0, 3);
    tcase_add_test(tc, rule_14_callbacks_of_a_child_that_leaves_may_use_handles);
    tcase_add_loop_test(tc, rule_14_a_fork_inside_a_callback, 0, 2);
    tcase_add_test(tc, case_008_forks_while_threads_post_and_work);
    tcase_add_test(tc, rule_14_a_child_of_another_thread);
    return test_main((Suite *[]){suite, NULL});
}
