/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "gpu/trial.h"

#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);

/* ---- processes ---- */

enum { MOST = 100 };
static const double default_timeout = 120;

struct trials {
    Suite *suite;
    size_t n;
    const char *names[MOST];
    double timeouts[MOST];
};

trials *trials_new(const char *suite)
{
    trials *t = calloc(1, sizeof *t);
    if (t == NULL)
        abort();
    t->suite = suite_create(suite);
    return t;
}

void trials_add(trials *t, const char *name, const TTest *test, double timeout)
{
    if (t->n == MOST)
        abort();
    TCase *tc = tcase_create(name);
    t->names[t->n] = name;
    t->timeouts[t->n] = timeout > 0 ? timeout : default_timeout;
    tcase_set_timeout(tc, t->timeouts[t->n++]);
    tcase_add_test(tc, test);
    suite_add_tcase(t->suite, tc);
}

/* The exit status; 1 for anything unusual. */
static int wait_for(pid_t child, double seconds)
{
    int status = 0;
    double end = test_now() + seconds;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (test_now() > end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            printf("killed: it ran for more than %.0f s\n", seconds);
            return 1;
        }
        test_sleep(0.002);
    }
    if (WIFSIGNALED(status))
        printf("ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* This program again, for one test. */
static int run_again(const char *name, double timeout)
{
    pid_t child;
    char *argv[] = {program_invocation_name, NULL}, self[4096];
    setenv("CULVERT_TRIAL", name, 1);
    setenv("CK_RUN_CASE", name, 1);
    fflush(NULL);
    /* Where the program lies: under Valgrind the link itself leads to Valgrind, its name does not. */
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        printf("/proc/self/exe: %s\n", strerror(errno));
        return 1;
    }
    self[length] = '\0';
    int error = posix_spawn(&child, self, NULL, NULL, argv, environ);
    if (error != 0) {
        printf("posix_spawn: %s\n", strerror(error));
        return 1;
    }
    return wait_for(child, timeout);
}

static int run_each(trials *t)
{
    const char *only = getenv("CK_RUN_CASE");
    size_t failed = 0, skipped = 0, run = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (only != NULL && strcmp(only, t->names[i]) != 0)
            continue;
        int status = run_again(t->names[i], t->timeouts[i]);
        run++;
        skipped += status == TEST_SKIPPED;
        if (status == EXIT_SUCCESS || status == TEST_SKIPPED)
            continue;
        failed++;
        printf("%s: FAILED (%d)\n", t->names[i], status);
    }
    printf("%zu tests in processes of their own, %zu failed\n", run, failed);
    if (run > 0 && skipped == run)
        return TEST_SKIPPED;
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int trials_run(trials *t)
{
    const char *fork_mode = getenv("CK_FORK");
    bool forks = fork_mode == NULL || strcmp(fork_mode, "no") != 0;
    int result;
    if (forks || getenv("CULVERT_TRIAL") != NULL) {
        Suite *suites[] = {t->suite, NULL};
        result = test_main(suites);
    } else {
        result = run_each(t);
        srunner_free(srunner_create(t->suite));
    }
    free(t);
    return result;
}

/* ---- outcomes ---- */

void outcomes_begin(outcomes *o, size_t n)
{
    *o = (outcomes){.room = n, .list = calloc(n, sizeof *o->list)};
    ck_assert_ptr_nonnull(o->list);
}

static void settled(culvert_future *done, void *arg)
{
    outcome *it = arg;
    const culvert_error *err = culvert_get_error(done);
    if (it->calls++ == 0)
        it->all->settled++;
    it->status = culvert_status(done);
    it->order = ++it->all->clock;
    if (err != NULL)
        it->error = *err;
}

static void freed(void *arg)
{
    ((outcome *)arg)->frees++;
}

size_t outcomes_add(outcomes *o, culvert_future *future)
{
    ck_assert_uint_lt(o->n, o->room);
    outcome *it = &o->list[o->n];
    *it = (outcome){.all = o, .status = CULVERT_PENDING};
    o->n++;
    int code = culvert_on_settled(future, settled, it, freed);
    if (code != CULVERT_OK && it->calls++ == 0) {
        o->settled++;
        it->status = code;
    }
    return o->n - 1;
}

void trial_keep_context(void)
{
    struct CUctx_st *ctx;
    if (!gpu_fixture_simulated())
        return;
    ck_assert_int_eq(cuInit(0), 0);
    ck_assert_int_eq(cuDevicePrimaryCtxRetain(&ctx, 0), 0);
}

static void on_time(struct ev_loop *ev, ev_timer *w, int revents)
{
    (void)w;
    (void)revents;
    ev_break(ev, EVBREAK_ONE);
}

void trial_turn(struct ev_loop *ev, double seconds)
{
    ev_timer timer;
    ev_now_update(ev);
    ev_timer_init(&timer, on_time, seconds, 0.);
    ev_timer_start(ev, &timer);
    ev_run(ev, 0);
    ev_timer_stop(ev, &timer);
}

bool outcomes_wait(outcomes *o, struct ev_loop *ev, double seconds)
{
    double end = test_now() + seconds;
    while (o->settled < o->n && test_now() < end)
        trial_turn(ev, 0.002);
    return o->settled == o->n;
}

void outcomes_all(const outcomes *o, int status)
{
    for (size_t i = 0; i < o->n; i++) {
        const outcome *it = &o->list[i];
        ck_assert_msg(it->calls == 1, "future %zu settled %d times", i, it->calls);
        ck_assert_msg(it->frees == 1, "the argument of future %zu was freed %d times", i,
                      it->frees);
        ck_assert_msg(it->status == status, "future %zu: %s, not %s: %s", i,
                      culvert_error_name(it->status), culvert_error_name(status),
                      it->error.message);
    }
}

void outcomes_end(outcomes *o)
{
    free(o->list);
    *o = (outcomes){0};
}
