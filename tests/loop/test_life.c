/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long the loop lives, and options: DESIGN 3, rules 12 and 17; cases 5, 6, 10, 12.
 */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* ---- rule 12 ---- */

static void *nothing(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    test_sleep(0.02);
    return NULL;
}

static void note(void *arg)
{
    fx_note(*(const char *)arg);
}

START_TEST(rule_12_a_loop_with_nothing_to_do_ends)
{
    culvert_future *f;

    fx_run();
    culvert_promise *p = fx_promise(&f);
    culvert_future *g = culvert_then(f, fx_step, "x", NULL);
    fx_run(); /* a bare promise does not count */
    ck_assert_str_eq(fx.log, "");
    culvert_unref(g);
    culvert_promise_drop(p);
}
END_TEST

START_TEST(rule_12_an_accepted_post_counts)
{
    ck_assert_int_eq(culvert_post(fx.loop, note, "p", NULL), CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "p");
}
END_TEST

static void on_timer_post(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    fx_note('t');
    ck_assert_int_eq(culvert_post(fx.loop, note, "p", NULL), CULVERT_OK);
}

/* The last thing that the loop would do before it ends: the post must not be stranded. */
START_TEST(rule_12_a_post_made_by_the_last_callback_counts)
{
    static const int priorities[] = {EV_MAXPRI, 0,
                                     EV_MINPRI}; /* before, and after, the binding's own */
    ev_timer timer;

    ev_timer_init(&timer, on_timer_post, 0.001, 0.0);
    ev_set_priority(&timer, priorities[_i]);
    ev_timer_start(fx.ev, &timer);
    fx_run();
    ck_assert_str_eq(fx.log, "tp");
}
END_TEST

static culvert_promise *last;

static void on_timer_resolve(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    culvert_resolve(last, NULL, NULL);
}

START_TEST(rule_12_a_continuation_made_ready_by_the_last_callback_counts)
{
    culvert_future *f;
    ev_timer timer;

    last = fx_promise(&f);
    ck_assert_int_eq(culvert_on_settled(f, fx_end, "c", NULL), CULVERT_OK);
    ev_timer_init(&timer, on_timer_resolve, 0.001, 0.0);
    ev_timer_start(fx.ev, &timer);
    fx_run();
    ck_assert_str_eq(fx.log, "c");
}
END_TEST

START_TEST(rule_12_timers_jobs_and_descriptors_count)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.02), fx_end, "s", NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "s");
    ck_assert_int_eq(culvert_on_settled(culvert_work(fx.loop, nothing, NULL, NULL, NULL), fx_end,
                                        "w", NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "sw");
    ck_assert_int_eq(culvert_on_settled(culvert_writable(fx.loop, ends[1]), fx_end, "o", NULL),
                     CULVERT_OK);
    fx_run();
    ck_assert_str_eq(fx.log, "swo");
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(rule_12_sleeping_for_ever_does_not_count)
{
    culvert_future *f = culvert_sleep(fx.loop, INFINITY);

    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    culvert_unref(f);
}
END_TEST

/* ---- case 5 ---- */

/* Work that is in flight, as a device's is: the binding is kept, and somebody else resolves. */
static void *resolve_later(void *arg)
{
    test_sleep(0.05);
    ck_assert_int_eq(culvert_post_resolve(arg, NULL, NULL), CULVERT_OK);
    return NULL;
}

static culvert_future *unkeep(culvert_future *done, void *arg)
{
    (void)done;
    culvert__loop_unkeep(arg);
    fx_note('k');
    return NULL;
}

START_TEST(case_005_the_loop_does_not_end_before_work_has_and_then_does_by_itself)
{
    pthread_t thread;
    culvert_future *f;
    culvert_promise *p = fx_promise(&f);

    culvert__loop_keep(fx.loop);
    culvert_detach(culvert_then(culvert_then(f, unkeep, fx.loop, NULL), fx_step, "c", NULL));
    ck_assert_int_eq(pthread_create(&thread, NULL, resolve_later, p), 0);
    fx_run();
    ck_assert_str_eq(fx.log, "kc");
    pthread_join(thread, NULL);
}
END_TEST

/* ---- case 6 ---- */

static void *no_job(void *arg, culvert_error *err)
{
    (void)err;
    return arg;
}

START_TEST(case_006_nothing_is_left_referenced_after_a_thousand_operations)
{
    ev_timer own;

    for (int i = 0; i < 1000; i++) {
        culvert_future *f;

        switch (i % 5) {
        case 0: f = culvert_sleep(fx.loop, 0.0); break;
        case 1: f = culvert_timeout(culvert_sleep(fx.loop, 100.0), 0.0001); break;
        case 2: f = culvert_work(fx.loop, no_job, NULL, NULL, NULL); break;
        case 3: f = culvert_writable(fx.loop, 1); break;
        default: f = culvert_fail(fx.loop, CULVERT_EUSER, 0, "x"); break;
        }
        if (i % 7 == 0)
            culvert_cancel(f);
        if (i % 11 == 0)
            culvert_unref(f);
        else
            culvert_detach(f);
    }
    const double before = test_now();
    fx_run(); /* returns by itself, with the binding still there */
    ck_assert(test_now() - before < 50.0);
    ck_assert_uint_eq(fx_live(), 0);
    /* libev's count is what it was: with one watcher of our own it is 1. */
    ev_timer_init(&own, on_timer_post, 1000.0, 0.0);
    ev_timer_start(fx.ev, &own);
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 1);
    ev_timer_stop(fx.ev, &own);
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0);
}
END_TEST

/* ---- case 10 ---- */

static void *post_one(void *arg)
{
    ck_assert_int_eq(culvert_post(arg, note, "t", NULL), CULVERT_OK);
    return NULL;
}

START_TEST(case_010_a_post_before_the_first_run_arrives)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, post_one, fx.loop), 0);
    pthread_join(thread, NULL);
    fx_run();
    ck_assert_str_eq(fx.log, "t");
}
END_TEST

/* ---- case 12 ---- */

static void on_prepare_resolve(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)revents;
    if (last != NULL) {
        culvert_resolve(last, NULL, NULL);
        last = NULL;
    }
    ev_prepare_stop(ev, w);
}

static double ran_at;

static void stop_timer(culvert_future *done, void *arg)
{
    (void)done;
    ran_at = test_now();
    ev_timer_stop(fx.ev, arg);
}

/* Prepare watchers of the same priority run last started first: one that is started before the
   binding's runs after it, when it has decided that the loop may sleep. */
START_TEST(case_012_what_is_settled_after_the_decision_to_sleep_runs_at_once)
{
    struct ev_loop *ev = ev_loop_new(0);
    ev_prepare late;
    ev_timer minute;
    culvert_future *f;

    ev_prepare_init(&late, on_prepare_resolve);
    if (_i > 0)
        ev_set_priority(&late, EV_MINPRI);
    ev_prepare_start(ev, &late);
    culvert_loop *loop = fx_bind(ev);
    ev_timer_init(&minute, on_timer_post, 60.0, 0.0);
    ev_timer_start(ev, &minute);
    struct ev_loop *kept = fx.ev;
    fx.ev = ev;
    last = culvert_promise_new(loop, &f);
    ck_assert_int_eq(culvert_on_settled(f, stop_timer, &minute, NULL), CULVERT_OK);
    const double before = test_now();
    ev_run(ev, 0);
    ck_assert(ran_at - before < 10.0); /* and not after 60 s */
    fx.ev = kept;
    culvert_loop_free(loop);
    ck_assert_int_eq(ev_run(ev, EVRUN_NOWAIT), 0);
    ev_loop_destroy(ev);
}
END_TEST

/* The same with a timer that becomes the nearest. */
static void on_prepare_sleep(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)revents;
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(w->data, 0.005), stop_timer, last, NULL),
                     CULVERT_OK);
    ev_prepare_stop(ev, w);
}

START_TEST(case_012_a_timer_started_after_the_decision_to_sleep_is_in_time)
{
    struct ev_loop *ev = ev_loop_new(0), *kept = fx.ev;
    ev_prepare late;
    ev_timer minute;

    ev_prepare_init(&late, on_prepare_sleep);
    ev_set_priority(&late, EV_MINPRI);
    ev_prepare_start(ev, &late);
    culvert_loop *loop = fx_bind(ev);
    late.data = loop;
    fx.ev = ev;
    ev_timer_init(&minute, on_timer_post, 60.0, 0.0);
    ev_timer_start(ev, &minute);
    last = (culvert_promise *)(void *)&minute; /* for stop_timer */
    const double before = test_now();
    ev_run(ev, 0);
    ck_assert(ran_at - before < 10.0);
    fx.ev = kept;
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}
END_TEST

/* ---- several bindings, nested loops ---- */

START_TEST(several_bindings_on_one_loop)
{
    culvert_loop *more[5];

    for (int i = 0; i < 5; i++)
        more[i] = fx_bind(fx.ev);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(culvert_on_settled(culvert_sleep(more[i], 0.001 * (i + 1)), fx_end, "s",
                                            NULL),
                         CULVERT_OK);
    }
    fx_run();
    ck_assert_str_eq(fx.log, "sssss");
    for (int i = 0; i < 5; i++)
        culvert_loop_free(more[i]);
}
END_TEST

static void on_timer_nested(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)w;
    (void)revents;
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.005), fx_end, "i", NULL),
                     CULVERT_OK);
    ev_run(ev, 0);
    fx_note('n');
}

START_TEST(ev_run_inside_a_libev_callback)
{
    ev_timer timer;

    ev_timer_init(&timer, on_timer_nested, 0.001, 0.0);
    ev_timer_start(fx.ev, &timer);
    fx_run();
    ck_assert_str_eq(fx.log, "in");
}
END_TEST

static culvert_future *run_nested(culvert_future *done, void *arg)
{
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(culvert_future_loop(done), 0.005), fx_end,
                                        "i", NULL),
                     CULVERT_OK);
    ev_run(fx.ev, 0);
    fx_note(*(const char *)arg);
    return NULL;
}

START_TEST(ev_run_inside_a_step)
{
    culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), run_nested, "n", NULL));
    fx_run();
    ck_assert_str_eq(fx.log, "in");
}
END_TEST

/* ---- an idle loop sleeps ---- */

static int polls;

static void count_poll(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    polls++;
}

START_TEST(a_loop_that_waits_sleeps)
{
    ev_prepare count;

    culvert_detach(culvert_sleep(fx.loop, 0.0));
    fx_run();
    ev_prepare_init(&count, count_poll);
    ev_prepare_start(fx.ev, &count);
    ev_unref(fx.ev);
    culvert_detach(culvert_sleep(fx.loop, 0.2));
    fx_run();
    ck_assert_int_lt(polls, 20);
    ev_ref(fx.ev);
    ev_prepare_stop(fx.ev, &count);
}
END_TEST

/* ---- options ---- */

static void refuse(const culvert_loop_options *options, const char *word)
{
    culvert_error err = CULVERT_ERROR_INIT;

    ck_assert_ptr_null(culvert_loop_new(fx.ev, options, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "culvert_loop_new");
    ck_assert_msg(strstr(err.message, word) != NULL, "%s", err.message);
    ck_assert_ptr_null(culvert_loop_new(fx.ev, options, NULL));
}

START_TEST(options_out_of_range_are_refused)
{
    const culvert_loop_options init = CULVERT_LOOP_OPTIONS_INIT;
    culvert_loop_options o = init;

    o.struct_size = 0;
    refuse(&o, "struct_size");
    o = init;
    o.wake = 99;
    refuse(&o, "wake");
    o.wake = -1;
    refuse(&o, "wake");
    o = init;
    o.spin_seconds = 1.0;
    refuse(&o, "spin_seconds");
    o.spin_seconds = NAN;
    refuse(&o, "spin_seconds");
    o = init;
    o.workers = 1025;
    refuse(&o, "workers");
    o = init;
    o.close_seconds = -1.0;
    refuse(&o, "close_seconds");
    o.close_seconds = NAN;
    refuse(&o, "close_seconds");
}
END_TEST

START_TEST(rule_17_defaults_and_sizes_of_options)
{
    struct {
        culvert_loop_options known;
        char more[64];
    } o = {.known = CULVERT_LOOP_OPTIONS_INIT};
    culvert_loop *loop = culvert_loop_new(fx.ev, NULL, NULL);
    const culvert_loop_options *used = culvert__loop_options(loop);

    ck_assert_int_eq(used->wake, CULVERT_WAKE_ADAPTIVE);
    ck_assert_uint_ge(used->workers, 2);
    ck_assert(used->spin_seconds > 0.0 && used->close_seconds > 0.0);
    culvert_loop_free(loop);

    /* Of a newer header: fine as long as it asks for nothing that is not known. */
    o.known.struct_size = sizeof o;
    o.known.workers = 7;
    loop = culvert_loop_new(fx.ev, &o.known, NULL);
    ck_assert_uint_eq(culvert__loop_options(loop)->workers, 7);
    culvert_loop_free(loop);
    o.more[60] = 1;
    refuse(&o.known, "not known");

    /* Of an older one, which ended earlier. */
    o.known.struct_size = offsetof(culvert_loop_options, workers);
    loop = culvert_loop_new(fx.ev, &o.known, NULL);
    ck_assert_uint_ne(culvert__loop_options(loop)->workers, 7);
    culvert_loop_free(loop);
}
END_TEST

START_TEST(the_driver_name_is_copied)
{
    char name[] = "sim";
    culvert_loop_options o = CULVERT_LOOP_OPTIONS_INIT;

    o.driver = name;
    culvert_loop *loop = culvert_loop_new(fx.ev, &o, NULL);
    name[0] = 'x';
    ck_assert_str_eq(culvert__loop_options(loop)->driver, "sim");
    ck_assert_ptr_eq(culvert_loop_ev(loop), fx.ev);
    culvert_loop_ref(loop);
    culvert_loop_free(loop);
    ck_assert_ptr_null(culvert_loop_ev(loop));
    culvert_loop_unref(loop);
    culvert_loop_unref(NULL);
    culvert_loop_free(NULL);
}
END_TEST

static char logged[512];
static int logged_level;

static void on_log(int level, const char *message, void *arg)
{
    ck_assert_ptr_eq(arg, logged);
    logged_level = level;
    snprintf(logged, sizeof logged, "%s", message);
}

START_TEST(log_messages_go_to_on_log)
{
    culvert_loop_options o = CULVERT_LOOP_OPTIONS_INIT;

    o.on_log = on_log;
    o.arg = logged;
    culvert_loop *loop = culvert_loop_new(fx.ev, &o, NULL);
    culvert__loop_log(loop, CULVERT_LOG_INFO, "%d apples", 3);
    ck_assert_int_eq(logged_level, CULVERT_LOG_INFO);
    ck_assert_str_eq(logged, "3 apples");
    culvert_loop_free(loop);
}
END_TEST

/* ---- without the macros that add the place of a call ---- */

START_TEST(the_functions_behind_the_macros)
{
    culvert_future *f, *all[7];
    culvert_promise *p = (culvert_promise_new)(fx.loop, &f);

    culvert_promise_drop(p);
    ck_assert_ptr_null(culvert_get_error(f)->where);
    culvert_unref(f);
    f = (culvert_fail)(fx.loop, CULVERT_EUSER, 0, "x");
    ck_assert_ptr_null(culvert_get_error(f)->where);
    culvert_unref(f);
    for (int i = 0; i < 4; i++)
        all[i] = (culvert_sleep)(fx.loop, 0.0);
    all[0] = (culvert_all)(fx.loop, &all[0], 1);
    all[1] = (culvert_all_settled)(fx.loop, &all[1], 1);
    all[2] = (culvert_any)(fx.loop, &all[2], 1);
    all[3] = (culvert_race)(fx.loop, &all[3], 1);
    all[4] = (culvert_timeout)((culvert_work)(fx.loop, no_job, NULL, NULL, NULL), 100.0);
    all[5] = (culvert_writable)(fx.loop, 1);
    all[6] = (culvert_readable)(fx.loop, -1);
    fx_run();
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(culvert_status(all[i]), i < 6 ? CULVERT_OK : CULVERT_EINVAL);
        if (i == 6)
            ck_assert_ptr_null(culvert_get_error(all[i])->where);
        culvert_unref(all[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("life");
    TCase *tc = fx_case(suite, "keepalive");

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, rule_12_a_loop_with_nothing_to_do_ends);
    tcase_add_test(tc, rule_12_an_accepted_post_counts);
    tcase_add_loop_test(tc, rule_12_a_post_made_by_the_last_callback_counts, 0, 3);
    tcase_add_test(tc, rule_12_a_continuation_made_ready_by_the_last_callback_counts);
    tcase_add_test(tc, rule_12_timers_jobs_and_descriptors_count);
    tcase_add_test(tc, rule_12_sleeping_for_ever_does_not_count);
    tcase_add_test(tc, case_005_the_loop_does_not_end_before_work_has_and_then_does_by_itself);
    tcase_add_test(tc, case_006_nothing_is_left_referenced_after_a_thousand_operations);
    tcase_add_test(tc, case_010_a_post_before_the_first_run_arrives);
    tcase_add_loop_test(tc, case_012_what_is_settled_after_the_decision_to_sleep_runs_at_once, 0,
                        2);
    tcase_add_test(tc, case_012_a_timer_started_after_the_decision_to_sleep_is_in_time);
    tcase_add_test(tc, several_bindings_on_one_loop);
    tcase_add_test(tc, ev_run_inside_a_libev_callback);
    tcase_add_test(tc, ev_run_inside_a_step);
    tcase_add_test(tc, a_loop_that_waits_sleeps);

    tcase_add_test(tc, the_functions_behind_the_macros);

    tc = fx_case(suite, "options");
    tcase_add_test(tc, options_out_of_range_are_refused);
    tcase_add_test(tc, rule_17_defaults_and_sizes_of_options);
    tcase_add_test(tc, the_driver_name_is_copied);
    tcase_add_test(tc, log_messages_go_to_on_log);
    return test_main((Suite *[]){suite, NULL});
}
