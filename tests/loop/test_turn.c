/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turns of the loop: bounded batches and sources: DESIGN 3, rule 11; cases 11 and 13.
 */
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <sys/socket.h>
#include <unistd.h>

/* ---- case 11 ---- */

typedef struct busy {
    bool stop;
    int steps, ticks, pongs;
    int fd; /* the client's end */
    ev_timer timer;
    ev_io server, client;
} busy;

static culvert_future *again(culvert_future *done, void *arg)
{
    busy *b = arg;
    culvert_loop *loop = culvert_future_loop(done);

    b->steps++;
    return b->stop ? NULL : culvert_then(culvert_resolved(loop, NULL, NULL), again, b, NULL);
}

/* The same with no pause: each settles the next one, which is ready in the same turn. */
static culvert_future *and_again(culvert_future *done, void *arg)
{
    busy *b = arg;
    culvert_future *f;
    culvert_promise *p = culvert_promise_new(culvert_future_loop(done), &f);

    b->steps++;
    f = b->stop ? f : culvert_then(f, and_again, b, NULL);
    culvert_resolve(p, NULL, NULL);
    return f;
}

static void post_again(void *arg)
{
    busy *b = arg;

    b->steps++;
    if (!b->stop)
        ck_assert_int_eq(culvert_post(fx.loop, post_again, b, NULL), CULVERT_OK);
}

static void tick(struct ev_loop *ev, ev_timer *w, int revents)
{
    busy *b = w->data;

    (void)revents;
    b->ticks++;
    if (b->ticks >= 50 && b->pongs >= 50) {
        b->stop = true;
        ev_timer_stop(ev, w);
        ev_io_stop(ev, &b->server);
        ev_io_stop(ev, &b->client);
    }
}

static void echo(struct ev_loop *ev, ev_io *w, int revents)
{
    char c;

    (void)ev;
    (void)revents;
    ck_assert_int_eq(read(w->fd, &c, 1), 1);
    ck_assert_int_eq(write(w->fd, &c, 1), 1);
}

static void pong(struct ev_loop *ev, ev_io *w, int revents)
{
    busy *b = w->data;

    b->pongs++;
    echo(ev, w, revents);
}

static void serve_beside(busy *b)
{
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ev_timer_init(&b->timer, tick, 0.001, 0.001);
    ev_io_init(&b->server, echo, ends[0], EV_READ);
    ev_io_init(&b->client, pong, ends[1], EV_READ);
    b->timer.data = b->client.data = b;
    ev_timer_start(fx.ev, &b->timer);
    ev_io_start(fx.ev, &b->server);
    ev_io_start(fx.ev, &b->client);
    ck_assert_int_eq(write(ends[1], "p", 1), 1);
    fx_run();
    close(ends[0]);
    close(ends[1]);
    ck_assert_int_ge(b->ticks, 50);
    ck_assert_int_ge(b->pongs, 50);
    ck_assert_int_ge(b->steps, 50);
}

START_TEST(case_011_continuations_that_make_continuations_do_not_starve_sockets_and_timers)
{
    busy b = {0};

    culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), again, &b, NULL));
    serve_beside(&b);
}
END_TEST

START_TEST(rule_11_steps_ready_in_the_same_turn_do_not_starve_sockets_and_timers)
{
    busy b = {0};

    for (int i = 0; i < 500; i++)
        culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), and_again, &b, NULL));
    serve_beside(&b);
}
END_TEST

START_TEST(rule_11_posts_that_post_do_not_starve_sockets_and_timers)
{
    busy b = {0};

    ck_assert_int_eq(culvert_post(fx.loop, post_again, &b, NULL), CULVERT_OK);
    serve_beside(&b);
}
END_TEST

/* Slow steps: the batch ends by time, not only by number. */
static int longest, in_row;

static void other_turn(struct ev_loop *ev, ev_prepare *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
    longest = in_row > longest ? in_row : longest;
    in_row = 0;
}

static culvert_future *slow(culvert_future *done, void *arg)
{
    const double until = test_now() + 0.002;

    (void)done;
    (void)arg;
    in_row++;
    while (test_now() < until)
        ;
    return NULL;
}

START_TEST(rule_11_a_batch_of_slow_steps_ends_early)
{
    ev_prepare prepare;

    for (int i = 0; i < 100; i++)
        culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), slow, NULL, NULL));
    ev_prepare_init(&prepare, other_turn);
    ev_prepare_start(fx.ev, &prepare);
    ev_unref(fx.ev);
    fx_run();
    other_turn(fx.ev, &prepare, 0);
    ck_assert_int_le(longest, 8);
    ev_ref(fx.ev);
    ev_prepare_stop(fx.ev, &prepare);
}
END_TEST

/* A loop that is to turn again must not wait for a timer's millisecond. */
START_TEST(what_is_ready_makes_the_loop_turn_at_once)
{
    enum { TURNS = 20000 };
    busy b = {0};

    culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), again, &b, NULL));
    const double before = test_now();
    while (b.steps < TURNS)
        ev_run(fx.ev, EVRUN_ONCE);
    ck_assert(test_now() - before < TURNS * 0.0005);
    b.stop = true;
    fx_run();
}
END_TEST

START_TEST(rule_11_a_batch_is_bounded)
{
    enum { N = 5000 };
    int ran = 0;

    for (int i = 0; i < N; i++)
        ck_assert_int_eq(culvert_post(fx.loop, fx_count, &ran, NULL), CULVERT_OK);
    fx_turn();
    ck_assert_int_gt(ran, 0);
    ck_assert_int_lt(ran, N / 2);
    fx_run();
    ck_assert_int_eq(ran, N);
}
END_TEST

/* ---- case 13 ---- */

/* The work of a wake-up must not grow with what waits: looked at by counting what the sources are
   asked. */
START_TEST(case_013_ten_thousand_pending_futures_cost_no_turns)
{
    enum { N = 10000 };
    static culvert_promise *p[N];
    unsigned turns[2];

    for (int round = 0; round < 2; round++) {
        const int n = round == 0 ? 10 : N;
        outcome o = {0};

        for (int i = 0; i < n; i++) {
            culvert_future *f;
            p[i] = fx_promise(&f);
            ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
        }
        const unsigned before = ev_iteration(fx.ev);
        culvert_resolve(p[n / 2], NULL, NULL);
        fx_run();
        turns[round] = ev_iteration(fx.ev) - before;
        ck_assert_int_eq(o.calls, 1);
        for (int i = 0; i < n; i++) {
            if (i != n / 2)
                culvert_promise_drop(p[i]);
        }
        fx_run();
    }
    ck_assert_uint_eq(turns[0], turns[1]);
}
END_TEST

/* ---- sources ---- */

typedef struct fake {
    culvert__source source;
    culvert_loop *loop;
    int polls, sleeps, spins, busy, detached;
    int more;       /* so many polls ask for another turn */
    int spin;       /* so many before_sleep do */
    double seconds; /* then this */
    culvert_promise *settle;
    struct fake *remove;
} fake;

static bool fake_poll(culvert__source *s)
{
    fake *f = CULVERT__CONTAINER(s, fake, source);

    f->polls++;
    if (f->remove != NULL) {
        culvert__source_remove(f->loop, &f->remove->source);
        f->remove = NULL;
    }
    return f->more > 0 && f->more-- > 0;
}

static double fake_sleep(culvert__source *s, bool may_spin)
{
    fake *f = CULVERT__CONTAINER(s, fake, source);

    f->sleeps++;
    if (may_spin && f->spin > 0) {
        f->spin--;
        f->spins++;
        return 0.0;
    }
    if (f->settle != NULL) {
        culvert_promise *p = f->settle;
        f->settle = NULL;
        culvert_resolve(p, NULL, NULL);
    }
    return f->seconds;
}

static bool fake_busy(culvert__source *s)
{
    fake *f = CULVERT__CONTAINER(s, fake, source);

    return f->busy > 0 && f->busy-- > 0;
}

static void fake_detach(culvert__source *s, bool forked)
{
    fake *f = CULVERT__CONTAINER(s, fake, source);

    ck_assert(!forked);
    ck_assert(!culvert__linked(&s->link));
    f->detached++;
}

static void add(fake *f)
{
    f->source = (culvert__source){.poll = fake_poll,
                                  .before_sleep = fake_sleep,
                                  .busy = fake_busy,
                                  .detach = fake_detach};
    f->loop = fx.loop;
    culvert__source_add(fx.loop, &f->source);
}

START_TEST(a_source_that_has_more_or_spins_keeps_the_loop_turning)
{
    fake f = {.more = 5, .spin = 7, .seconds = INFINITY};

    add(&f);
    culvert__loop_keep(fx.loop);
    ck_assert_int_eq(culvert_on_settled(culvert_sleep(fx.loop, 0.05), fx_end, "s", NULL),
                     CULVERT_OK);
    while (fx.logged == 0)
        ev_run(fx.ev, EVRUN_ONCE);
    ck_assert_int_eq(f.more, 0);
    ck_assert_int_eq(f.spins, 7);
    culvert__loop_unkeep(fx.loop);
    culvert__source_remove(fx.loop, &f.source);
    culvert__source_remove(fx.loop, &f.source);
}
END_TEST

START_TEST(a_source_says_when_it_must_be_asked_again)
{
    fake f = {.seconds = 0.002};
    ev_timer minute;

    add(&f);
    culvert__loop_keep(fx.loop);
    ev_timer_init(&minute, tick, 60.0, 0.0);
    ev_timer_start(fx.ev, &minute);
    const double before = test_now();
    while (f.sleeps < 10)
        ev_run(fx.ev, EVRUN_ONCE);
    ck_assert(test_now() - before < 30.0);
    ev_timer_stop(fx.ev, &minute);
    culvert__loop_unkeep(fx.loop);
    culvert__source_remove(fx.loop, &f.source);
}
END_TEST

START_TEST(what_a_source_settles_before_the_sleep_runs_at_once)
{
    fake f = {.seconds = 60.0};
    culvert_future *future;

    f.settle = fx_promise(&future);
    ck_assert_int_eq(culvert_on_settled(future, fx_end, "f", NULL), CULVERT_OK);
    add(&f);
    const double before = test_now();
    culvert__loop_keep(fx.loop);
    while (fx.logged == 0)
        ev_run(fx.ev, EVRUN_ONCE);
    culvert__loop_unkeep(fx.loop);
    ck_assert(test_now() - before < 30.0);
    culvert__source_remove(fx.loop, &f.source);
}
END_TEST

START_TEST(sources_may_go_while_they_are_asked)
{
    fake f[3] = {{.seconds = INFINITY}, {.seconds = INFINITY}, {.seconds = INFINITY}};

    for (int i = 0; i < 3; i++)
        add(&f[i]);
    f[0].remove = &f[1];
    f[2].remove = &f[2];
    fx_turn();
    ck_assert_int_eq(f[1].polls, 0);
    ck_assert_int_gt(f[2].polls, 0);
    const int polls = f[2].polls;
    fx_turn();
    ck_assert_int_eq(f[2].polls, polls);
    culvert__source_remove(fx.loop, &f[0].source);
}
END_TEST

START_TEST(rule_16_loop_free_waits_while_a_source_is_busy_then_detaches_it)
{
    fake f = {.busy = 5, .seconds = INFINITY};

    add(&f);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(f.busy, 0);
    ck_assert_int_eq(f.detached, 1);
}
END_TEST

START_TEST(rule_16_loop_free_waits_no_longer_than_close_seconds)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    fake f = {.busy = 1000000000, .seconds = INFINITY};

    options.close_seconds = 0.05;
    culvert_loop *kept = fx.loop;
    fx.loop = culvert_loop_new(fx.ev, &options, NULL);
    add(&f);
    const double before = test_now();
    culvert_loop_free(fx.loop);
    ck_assert(test_now() - before >= 0.05);
    ck_assert(test_now() - before < 30.0);
    ck_assert_int_eq(f.detached, 1);
    fx.loop = kept;
}
END_TEST

/* ---- culvert_loop_arm ---- */

START_TEST(arm_tells_how_long_a_program_may_sleep)
{
    fake f = {.spin = 100, .seconds = 0.1};

    ck_assert(isinf(culvert_loop_arm(fx.loop)));
    culvert_future *s = culvert_sleep(fx.loop, 50.0);
    const double seconds = culvert_loop_arm(fx.loop);
    ck_assert(seconds > 1.0 && seconds <= 50.0);
    add(&f);
    ck_assert(culvert_loop_arm(fx.loop) <= 0.1);
    ck_assert_int_eq(f.spins, 0); /* armed, not spun */
    culvert__source_remove(fx.loop, &f.source);
    culvert_detach(culvert_then(culvert_resolved(fx.loop, NULL, NULL), fx_step, "x", NULL));
    ck_assert(culvert_loop_arm(fx.loop) <= 0.0);
    fx_turn();
    ck_assert_str_eq(fx.log, "x");
    culvert_unref(s);
    ck_assert(isinf(culvert_loop_arm(fx.loop)));
    culvert__loop_keep(fx.loop);
    ck_assert(!isinf(culvert_loop_arm(fx.loop)));
    culvert__loop_unkeep(fx.loop);
    int ran = 0;
    ck_assert_int_eq(culvert_post(fx.loop, fx_count, &ran, NULL), CULVERT_OK);
    ck_assert(culvert_loop_arm(fx.loop) <= 0.0);
    culvert_loop *loop = culvert_loop_ref(fx.loop);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert(culvert_loop_arm(loop) <= 0.0);
    culvert_loop_unref(loop);
}
END_TEST

static void never(culvert__timer *timer)
{
    (void)timer;
}

/* A timer that keeps no loop alive is nothing that a program has to wait for. */
START_TEST(arm_does_not_count_what_keeps_no_loop_alive)
{
    culvert__timer housekeeping = {.fire = never};

    ck_assert_int_eq(culvert__timer_start(fx.loop, &housekeeping, 5.0, false), CULVERT_OK);
    ck_assert(isinf(culvert_loop_arm(fx.loop)));
    culvert_future *s = culvert_sleep(fx.loop, 50.0);
    ck_assert(culvert_loop_arm(fx.loop) <=
              5.0); /* but it is not late for it where it wakes anyway */
    culvert_unref(s);
    culvert__timer_stop(fx.loop, &housekeeping);
}
END_TEST

/* A program that sleeps by itself and asks again in time sees everything through. */
START_TEST(a_program_may_sleep_by_itself)
{
    outcome o = {0};
    culvert_future *f = culvert_timeout(culvert_sleep(fx.loop, 0.02), 50.0);

    ck_assert_int_eq(culvert_on_settled(f, fx_keep, &o, NULL), CULVERT_OK);
    for (int i = 0; o.calls == 0; i++) {
        ck_assert_int_lt(i, 1000);
        ev_run(fx.ev, EVRUN_NOWAIT);
        const double seconds = culvert_loop_arm(fx.loop);
        if (seconds > 0.0 && !isinf(seconds))
            test_sleep(seconds);
    }
    ck_assert_int_eq(o.status, CULVERT_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("turn");
    TCase *tc = fx_case(suite, "batches");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc,
                   case_011_continuations_that_make_continuations_do_not_starve_sockets_and_timers);
    tcase_add_test(tc, rule_11_steps_ready_in_the_same_turn_do_not_starve_sockets_and_timers);
    tcase_add_test(tc, rule_11_posts_that_post_do_not_starve_sockets_and_timers);
    tcase_add_test(tc, rule_11_a_batch_of_slow_steps_ends_early);
    tcase_add_test(tc, rule_11_a_batch_is_bounded);
    tcase_add_test(tc, what_is_ready_makes_the_loop_turn_at_once);
    tcase_add_test(tc, case_013_ten_thousand_pending_futures_cost_no_turns);

    tc = fx_case(suite, "sources");
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, a_source_that_has_more_or_spins_keeps_the_loop_turning);
    tcase_add_test(tc, a_source_says_when_it_must_be_asked_again);
    tcase_add_test(tc, what_a_source_settles_before_the_sleep_runs_at_once);
    tcase_add_test(tc, sources_may_go_while_they_are_asked);
    tcase_add_test(tc, rule_16_loop_free_waits_while_a_source_is_busy_then_detaches_it);
    tcase_add_test(tc, rule_16_loop_free_waits_no_longer_than_close_seconds);

    tc = fx_case(suite, "arm");
    tcase_add_test(tc, arm_tells_how_long_a_program_may_sleep);
    tcase_add_test(tc, arm_does_not_count_what_keeps_no_loop_alive);
    tcase_add_test(tc, a_program_may_sleep_by_itself);
    return test_main((Suite *[]){suite, NULL});
}
