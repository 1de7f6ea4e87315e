/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posts from other threads: DESIGN 3, rules 12, 15, 16; cases 1, 2, 4, 14, 16, 24.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { SCALE = 1 };
#else
enum { SCALE = 3 };
#endif

enum { THREADS = 8 };

/* ---- how often libev wakes itself: writes of 8 bytes, which an eventfd takes ---- */

static atomic_int wakes;

typedef ssize_t write_fn(int, const void *, size_t);

ssize_t write(int fd, const void *data, size_t size)
{
    static _Atomic(write_fn *) real;
    write_fn *fn = atomic_load(&real);

    if (fn == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "write");
        memcpy(&fn, &symbol, sizeof fn);
        atomic_store(&real, fn);
    }
    if (size == sizeof(uint64_t))
        atomic_fetch_add(&wakes, 1);
    return fn(fd, data, size);
}

/* ---- posters ---- */

typedef struct poster {
    pthread_t thread;
    culvert_loop *loop;
    int index, posts;
    int next; /* the loop's thread's: which is to run next */
    int accepted, refused, released;
} poster;

typedef struct note {
    poster *from;
    int number;
} note;

static int ran;

static void run_note(void *arg)
{
    note *n = arg;

    ck_assert_int_eq(n->number, n->from->next); /* of one thread: in order */
    n->from->next++;
    ran++;
}

static void free_note(void *arg)
{
    free(arg);
}

static void *post_notes(void *arg)
{
    poster *p = arg;

    for (int i = 0; i < p->posts; i++) {
        note *n = malloc(sizeof *n);

        *n = (note){p, i};
        ck_assert_int_eq(culvert_post(p->loop, run_note, n, free_note), CULVERT_OK);
    }
    return NULL;
}

static void start(poster *p, int n, void *(*fn)(void *), int posts)
{
    for (int i = 0; i < n; i++) {
        p[i] = (poster){.loop = fx.loop, .index = i, .posts = posts};
        ck_assert_int_eq(pthread_create(&p[i].thread, NULL, fn, &p[i]), 0);
    }
}

static void join(poster *p, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(p[i].thread, NULL);
}

/* ---- case 1 ---- */

static poster four[4];

static void post_all_while_held(void *arg)
{
    (void)arg;
    start(four, 4, post_notes, 2500);
    join(four, 4);
    atomic_store(&wakes, 0);
}

START_TEST(case_001_ten_thousand_posts_into_a_held_loop_each_run_once_in_order)
{
    ran = 0;
    ck_assert_int_eq(culvert_post(fx.loop, post_all_while_held, NULL, NULL), CULVERT_OK);
    fx_run();
    ck_assert_int_eq(ran, 10000);
    ck_assert_int_le(atomic_load(&wakes), 10);
}
END_TEST

/* ---- case 2 ---- */

static void *post_once(void *arg)
{
    ck_assert_int_eq(culvert_post(arg, fx_count, &ran, NULL), CULVERT_OK);
    return NULL;
}

static void post_from_thread(culvert_loop *loop)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, post_once, loop), 0);
    pthread_join(thread, NULL);
}

typedef struct hook {
    culvert__post post;
    culvert_loop *loop;
} hook;

/* Inside the drain: the wake-up has been taken, the queue is being emptied. */
static void in_drain(culvert__post *post)
{
    post_from_thread(CULVERT__CONTAINER(post, hook, post)->loop);
}

static void in_prepare(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)revents;
    ev_prepare_stop(ev, w);
    post_from_thread(w->data);
}

static void in_check(struct ev_loop *ev, ev_check *w, int revents)
{
    (void)revents;
    ev_check_stop(ev, w);
    post_from_thread(w->data);
}

START_TEST(case_002_a_post_between_draining_and_sleeping_is_not_lost)
{
    struct ev_loop *ev = ev_loop_new(0);
    ev_prepare prepare;
    ev_check check;

    /* Started before the binding's, so run after it, when it has decided to sleep. */
    ev_prepare_init(&prepare, in_prepare);
    ev_set_priority(&prepare, EV_MINPRI);
    ev_prepare_start(ev, &prepare);
    ev_check_init(&check, in_check);
    ev_set_priority(&check, EV_MINPRI);
    ev_check_start(ev, &check);
    culvert_loop *loop = fx_bind(ev);
    prepare.data = check.data = loop;
    hook h = {.post.run = in_drain, .loop = loop};

    ran = 0;
    culvert__loop_keep(loop); /* no timer, no descriptor: it would sleep for ever */
    ck_assert_int_eq(culvert__hub_post(culvert__loop_hub(loop), &h.post), CULVERT_OK);
    while (ran < 3)
        ev_run(ev, EVRUN_ONCE);
    culvert__loop_unkeep(loop);
    culvert_loop_free(loop);
    ck_assert_int_eq(ev_run(ev, EVRUN_NOWAIT), 0);
    ev_loop_destroy(ev);
}
END_TEST

static atomic_int answered;

static void answer(void *arg)
{
    (void)arg;
    atomic_fetch_add(&answered, 1);
}

/* One post at a time, the next when it was answered: each may find the loop anywhere on its way to
   sleep. */
static void *ping(void *arg)
{
    poster *p = arg;
    uint32_t random = 12345u + (uint32_t)p->index;

    for (int i = 0; i < p->posts; i++) {
        const int before = atomic_load(&answered);

        ck_assert_int_eq(culvert_post(p->loop, answer, NULL, NULL), CULVERT_OK);
        while (atomic_load(&answered) == before)
            sched_yield();
        random = random * 1664525u + 1013904223u;
        for (unsigned spin = (random >> 16) % 300; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
    }
    culvert_post(p->loop, fx_count, &ran, NULL);
    return NULL;
}

START_TEST(case_002_random_interleavings_lose_no_post)
{
    poster p[1];

    ran = 0;
    atomic_store(&answered, 0);
    culvert__loop_keep(fx.loop);
    start(p, 1, ping, 5000 * SCALE);
    while (ran == 0)
        ev_run(fx.ev, EVRUN_ONCE);
    join(p, 1);
    ck_assert_int_eq(atomic_load(&answered), 5000 * SCALE);
    culvert__loop_unkeep(fx.loop);
}
END_TEST

/* ---- case 4 ---- */

static atomic_bool stop;
static atomic_int
    outstanding; /* so that they do not fill the memory while the loop's thread waits */

static void take(void *arg)
{
    (void)arg;
    ran++;
    atomic_fetch_sub(&outstanding, 1);
}

static void *post_until_stopped(void *arg)
{
    poster *p = arg;

    while (!atomic_load(&stop)) {
        if (atomic_load(&outstanding) > 2000) {
            sched_yield();
            continue;
        }
        const int result = culvert_post(p->loop, take, NULL, NULL);
        if (result == CULVERT_OK) {
            atomic_fetch_add(&outstanding, 1);
            p->accepted++;
        } else {
            ck_assert_int_eq(result, CULVERT_ESHUTDOWN);
            p->refused++;
        }
    }
    culvert_loop_unref(p->loop);
    return NULL;
}

START_TEST(case_004_posts_racing_with_teardown_are_run_or_refused)
{
    for (int round = 0; round < 10 * SCALE; round++) {
        poster p[THREADS];
        struct ev_loop *ev = ev_loop_new(0);
        int accepted = 0;

        culvert_loop *loop = fx.loop;
        fx.loop = fx_bind(ev);
        ran = 0;
        atomic_store(&stop, false);
        atomic_store(&outstanding, 0);
        for (int i = 0; i < THREADS; i++)
            culvert_loop_ref(fx.loop);
        start(p, THREADS, post_until_stopped, 0);
        for (int i = 0; i < 1 + round % 5; i++)
            ev_run(ev, EVRUN_NOWAIT);
        culvert_loop_free(fx.loop);
        const int ran_inside = ran;
        ck_assert_int_eq(ev_run(ev, EVRUN_NOWAIT), 0);
        ev_loop_destroy(ev);
        sched_yield(); /* they go on: into nothing */
        atomic_store(&stop, true);
        join(p, THREADS);
        for (int i = 0; i < THREADS; i++)
            accepted += p[i].accepted;
        ck_assert_int_eq(ran, ran_inside);
        ck_assert_int_eq(ran, accepted);
        fx.loop = loop;
    }
}
END_TEST

/* Promises resolved by other threads while the binding goes: each value is released once, each
   future settles once. */
enum { PROMISES = 400 };

typedef struct racer {
    pthread_t thread;
    culvert_promise *p[PROMISES];
    atomic_int freed;
    int index;
} racer;

static void count_atomic(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void *resolve_all(void *arg)
{
    racer *r = arg;
    const culvert_error err = {CULVERT_EUSER, 0, NULL, NULL, "other thread"};

    for (int i = 0; i < PROMISES; i++) {
        switch ((i + r->index) % 3) {
        case 0: (void)culvert_post_resolve(r->p[i], &r->freed, count_atomic); break;
        case 1: (void)culvert_post_reject(r->p[i], &err); break;
        default: culvert_promise_drop(r->p[i]); break;
        }
    }
    return NULL;
}

static int settled;

static void count_settled(culvert_future *done, void *arg)
{
    (void)arg;
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
    (void)culvert_get_error(done);
    settled++;
}

START_TEST(case_004_promises_racing_with_teardown_settle_once)
{
    static racer r[4];

    for (int round = 0; round < 3 * SCALE; round++) {
        struct ev_loop *ev = ev_loop_new(0);
        culvert_loop *loop = fx_bind(ev);
        int told = 0;

        settled = 0;
        for (int i = 0; i < 4; i++) {
            r[i].index = i;
            atomic_store(&r[i].freed, 0);
            for (int k = 0; k < PROMISES; k++) {
                culvert_future *f;

                r[i].p[k] = culvert_promise_new(loop, &f);
                culvert_promise_on_cancel(r[i].p[k], fx_count, &told, NULL);
                ck_assert_int_eq(culvert_on_settled(f, count_settled, NULL, NULL), CULVERT_OK);
            }
        }
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(pthread_create(&r[i].thread, NULL, resolve_all, &r[i]), 0);
        for (int i = 0; i < round % 4; i++)
            ev_run(ev, EVRUN_NOWAIT);
        culvert_loop_free(loop);
        ck_assert_int_eq(settled, 4 * PROMISES);
        ev_loop_destroy(ev);
        for (int i = 0; i < 4; i++) {
            pthread_join(r[i].thread, NULL);
            const int values = (PROMISES + 2 - i % 3) / 3;
            ck_assert_int_ge(atomic_load(&r[i].freed), values - 1);
            ck_assert_int_le(atomic_load(&r[i].freed), values + 1);
        }
        ck_assert_int_eq(settled, 4 * PROMISES);
        ck_assert_int_eq(told, 0);
    }
}
END_TEST

/* ---- case 14 ---- */

/* Each burst finds the loop in a callback, as the completions of a busy server do. */
static void burst(void *arg)
{
    static poster p[4];

    start(p, 4, post_notes, *(int *)arg);
    join(p, 4);
}

START_TEST(case_014_bursts_wake_the_loop_a_few_times_and_strand_nothing)
{
    int each = 250 * SCALE;

    ran = 0;
    atomic_store(&wakes, 0);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(culvert_post(fx.loop, burst, &each, NULL), CULVERT_OK);
        fx_run();
        ck_assert_int_eq(ran, (i + 1) * 4 * each);
    }
    ck_assert_int_le(atomic_load(&wakes), 10 * 4 * each / 20);
}
END_TEST

/* ---- case 16 ---- */

static void *from_elsewhere(void *arg)
{
    culvert_promise **p = arg;

    culvert_promise_drop(p[0]);
    ck_assert_int_eq(culvert_post_resolve(p[1], NULL, NULL), CULVERT_OK);
    return NULL;
}

START_TEST(case_016_what_may_be_called_from_any_thread_goes_through_the_wake_path)
{
    pthread_t thread;
    culvert_promise *p[2];
    outcome o[2] = {{0}, {0}};

    fx_turn(); /* from now on the binding knows its thread */
    for (int i = 0; i < 2; i++) {
        culvert_future *f;
        p[i] = fx_promise(&f);
        ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o[i], NULL), CULVERT_OK);
    }
    culvert__loop_keep(fx.loop);
    ck_assert_int_eq(pthread_create(&thread, NULL, from_elsewhere, p), 0);
    while (o[0].calls + o[1].calls < 2)
        ev_run(fx.ev, EVRUN_ONCE);
    pthread_join(thread, NULL);
    culvert__loop_unkeep(fx.loop);
    ck_assert_int_eq(o[0].status, CULVERT_EBROKEN);
    ck_assert_int_eq(o[1].status, CULVERT_OK);
}
END_TEST

/* Before the loop has run nobody can tell whether it was handed over: the one who made it may
   drop. */
static void *run_it(void *arg)
{
    fx_run();
    return arg;
}

START_TEST(case_016_a_promise_dropped_while_another_thread_begins_to_run_the_loop)
{
    for (int round = 0; round < 20 * SCALE; round++) {
        struct ev_loop *ev = ev_loop_new(0), *kept_ev = fx.ev;
        culvert_loop *kept = fx.loop;
        pthread_t thread;
        culvert_future *f;
        outcome o = {0};

        fx.ev = ev;
        fx.loop = fx_bind(ev);
        culvert_promise *p = fx_promise(&f);
        ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
        culvert__loop_keep(fx.loop);
        culvert__loop_unkeep(fx.loop);
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.001), fx_end, "", NULL),
                         CULVERT_OK);
        ck_assert_int_eq(pthread_create(&thread, NULL, run_it, NULL), 0);
        culvert_promise_drop(p);
        pthread_join(thread, NULL);
        ev_run(ev, 0); /* where the other one had ended before the drop */
        ck_assert_int_eq(o.calls, 1);
        ck_assert_int_eq(o.status, CULVERT_EBROKEN);
        culvert_loop_free(fx.loop);
        ev_loop_destroy(ev);
        fx.ev = kept_ev;
        fx.loop = kept;
    }
}
END_TEST

/* ---- case 24 ---- */

static atomic_int round_open;
static culvert_promise *round_promise;

static void *complete_rounds(void *arg)
{
    const int rounds = *(int *)arg;

    for (int i = 1; i <= rounds; i++) {
        while (atomic_load(&round_open) < i)
            sched_yield();
        ck_assert_int_eq(culvert_post_resolve(round_promise, NULL, NULL), CULVERT_OK);
    }
    return NULL;
}

START_TEST(case_024_attaching_while_another_thread_completes_runs_exactly_once)
{
    int rounds = 2000 * SCALE;
    pthread_t thread;

    atomic_store(&round_open, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, complete_rounds, &rounds), 0);
    culvert__loop_keep(fx.loop);
    for (int i = 1; i <= rounds; i++) {
        culvert_future *f;
        outcome o = {0};

        round_promise = fx_promise(&f);
        atomic_store(&round_open, i);
        if (i % 2 == 0)
            ev_run(fx.ev, EVRUN_NOWAIT); /* perhaps it settles before it is attached to */
        ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
        while (o.calls == 0) {
            sched_yield();
            ev_run(fx.ev, EVRUN_NOWAIT);
        }
        ev_run(fx.ev, EVRUN_NOWAIT);
        ck_assert_int_eq(o.calls, 1);
        ck_assert_int_eq(o.status, CULVERT_OK);
    }
    culvert__loop_unkeep(fx.loop);
    pthread_join(thread, NULL);
}
END_TEST

/* ---- refused posts ---- */

START_TEST(rule_16_posts_after_loop_free_are_refused_and_released)
{
    int freed = 0, called = 0;
    culvert_future *f;
    culvert_promise *p = fx_promise(&f), *q, *r;
    culvert_future *g, *h;

    q = fx_promise(&g);
    r = fx_promise(&h);
    culvert_loop *loop = culvert_loop_ref(fx.loop);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(culvert_post(loop, fx_count, &called, fx_count), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(called, 1); /* by arg_free: the same counter */
    ck_assert_int_eq(culvert_post_resolve(p, &freed, fx_count), CULVERT_ESHUTDOWN);
    ck_assert_int_eq(freed, 1);
    ck_assert_int_eq(culvert_post_reject(q, &(culvert_error){.code = CULVERT_EUSER}),
                     CULVERT_ESHUTDOWN);
    culvert_promise_drop(r);
    ck_assert_int_eq(culvert_status(f), CULVERT_ESHUTDOWN);
    culvert_unref(f);
    culvert_unref(g);
    culvert_unref(h);
    culvert_loop_unref(loop);
}
END_TEST

/* The last reference of a promise may be on another thread, after everything else is gone. */
static void *drop_late(void *arg)
{
    culvert_promise_drop(arg);
    return NULL;
}

START_TEST(the_producer_may_be_the_last)
{
    pthread_t thread;
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert_unref(f);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(pthread_create(&thread, NULL, drop_late, p), 0);
    pthread_join(thread, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("post");
    TCase *tc = fx_case(suite, "wakes");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, case_001_ten_thousand_posts_into_a_held_loop_each_run_once_in_order);
    tcase_add_test(tc, case_002_a_post_between_draining_and_sleeping_is_not_lost);
    tcase_add_test(tc, case_002_random_interleavings_lose_no_post);
    tcase_add_test(tc, case_014_bursts_wake_the_loop_a_few_times_and_strand_nothing);

    tc = fx_case(suite, "teardown");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, case_004_posts_racing_with_teardown_are_run_or_refused);
    tcase_add_test(tc, case_004_promises_racing_with_teardown_settle_once);
    tcase_add_test(tc, rule_16_posts_after_loop_free_are_refused_and_released);
    tcase_add_test(tc, the_producer_may_be_the_last);

    tc = fx_case(suite, "threads");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, case_016_what_may_be_called_from_any_thread_goes_through_the_wake_path);
    tcase_add_test(tc, case_016_a_promise_dropped_while_another_thread_begins_to_run_the_loop);
    tcase_add_test(tc, case_024_attaching_while_another_thread_completes_runs_exactly_once);
    return test_main((Suite *[]){suite, NULL});
}
