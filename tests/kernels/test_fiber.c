/* SPDX-License-Identifier: BSD-2-Clause */
/* fiber.c: switches, fresh stacks, guard pages, many threads. */
#define _GNU_SOURCE
#include "lib/check_main.h"
#include "sim/fiber.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct counter {
    culvert__fiber *fiber;
    int value, limit;
    double sum;
};

/* Counts one up at each turn, with numbers in registers that must survive the switches. */
static void count(void *arg)
{
    struct counter *c = arg;
    for (;;) {
        double a = c->value * 0.5, b = c->value * 0.25;
        for (int i = 0; i < c->limit; i++) {
            c->value++;
            culvert__fiber_leave(c->fiber, 0);
            a += 1.0;
            b += 2.0;
        }
        c->sum = a + b;
        culvert__fiber_leave(c->fiber, 1);
    }
}

START_TEST(fibers_keep_their_frames_and_registers)
{
    enum { N = 50, TURNS = 20 };
    struct counter c[N];
    culvert__fiber_home *home = culvert__fiber_home_new();
    ck_assert_ptr_nonnull(home);
    for (int i = 0; i < N; i++) {
        c[i] =
            (struct counter){culvert__fiber_new(home, culvert__fiber_stack_bytes()), i, TURNS, 0};
        ck_assert_ptr_nonnull(c[i].fiber);
        culvert__fiber_prepare(c[i].fiber, count, &c[i]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < N; i++) {
            culvert__fiber_enter(c[i].fiber);
            ck_assert_int_eq(c[i].value, i + turn + 1);
        }
    }
    for (int i = 0; i < N; i++) {
        culvert__fiber_enter(c[i].fiber);
        ck_assert(c[i].sum == i * 0.75 + TURNS * 3.0);
        culvert__fiber_free(c[i].fiber);
    }
    culvert__fiber_home_free(home);
}
END_TEST

START_TEST(a_dead_fiber_starts_afresh)
{
    culvert__fiber_home *home = culvert__fiber_home_new();
    struct counter c = {culvert__fiber_new(home, 65536), 0, 1000, 0};
    for (int life = 0; life < 100; life++) { /* most of them abandoned in the middle */
        c.value = 0;
        culvert__fiber_prepare(c.fiber, count, &c);
        for (int turn = 0; turn < 3; turn++) {
            culvert__fiber_enter(c.fiber);
            ck_assert_int_eq(c.value, turn + 1);
        }
    }
    culvert__fiber_free(c.fiber);
    culvert__fiber_home_free(home);
}
END_TEST

static __attribute__((noinline)) int use_stack(culvert__fiber *f, int depth)
{
    volatile char big[512];
    memset((char *)big, depth, sizeof big);
    if (depth == 0) {
        culvert__fiber_leave(f, 0);
        return big[1];
    }
    return use_stack(f, depth - 1) + big[100];
}

static void go_deep(void *arg)
{
    struct counter *c = arg;
    c->value = use_stack(c->fiber, c->limit);
    culvert__fiber_leave(c->fiber, 1);
    abort();
}

START_TEST(a_deep_stack_survives_a_switch)
{
    culvert__fiber_home *home = culvert__fiber_home_new();
    struct counter c = {culvert__fiber_new(home, culvert__fiber_stack_bytes()), 0, 50, 0};
    culvert__fiber_prepare(c.fiber, go_deep, &c);
    culvert__fiber_enter(c.fiber);
    culvert__fiber_enter(c.fiber);
    ck_assert_int_eq(c.value, 50 * 51 / 2);
    culvert__fiber_free(c.fiber);
    culvert__fiber_home_free(home);
}
END_TEST

/* The page below a stack faults; the neighbour's stack is not touched. */
START_TEST(a_stack_overflow_is_a_fault)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        culvert__fiber_home *home = culvert__fiber_home_new();
        struct counter c = {culvert__fiber_new(home, 65536), 0, 1 << 20, 0};
        culvert__fiber_prepare(c.fiber, go_deep, &c);
        culvert__fiber_enter(c.fiber);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}
END_TEST

START_TEST(the_stack_size_comes_from_the_environment)
{
    unsetenv("CULVERT_SIM_STACK_KB");
    size_t usual = culvert__fiber_stack_bytes();
    ck_assert_uint_ge(usual, 65536);
    setenv("CULVERT_SIM_STACK_KB", "1000", 1);
    ck_assert_uint_ge(culvert__fiber_stack_bytes(), 1000 * 1024);
    setenv("CULVERT_SIM_STACK_KB", "1", 1);
    ck_assert_uint_ge(culvert__fiber_stack_bytes(), 16384);
    ck_assert_uint_le(culvert__fiber_stack_bytes(), 65536);
    setenv("CULVERT_SIM_STACK_KB", "many", 1);
    ck_assert_uint_eq(culvert__fiber_stack_bytes(), usual);
    unsetenv("CULVERT_SIM_STACK_KB");
}
END_TEST

static void *thread_main(void *arg)
{
    int *failures = arg;
    culvert__fiber_home *home = culvert__fiber_home_new();
    struct counter a = {culvert__fiber_new(home, culvert__fiber_stack_bytes()), 0, 200, 0};
    struct counter b = {culvert__fiber_new(home, culvert__fiber_stack_bytes()), 100, 200, 0};
    culvert__fiber_prepare(a.fiber, count, &a);
    culvert__fiber_prepare(b.fiber, count, &b);
    for (int i = 0; i < 200; i++) {
        culvert__fiber_enter(a.fiber);
        culvert__fiber_enter(b.fiber);
        *failures += a.value != i + 1 || b.value != 101 + i;
    }
    culvert__fiber_free(a.fiber);
    culvert__fiber_free(b.fiber);
    culvert__fiber_home_free(home);
    return NULL;
}

START_TEST(threads_have_their_own_fibers)
{
    enum { N = 4 };
    pthread_t threads[N];
    int failures[N] = {0};
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_main, &failures[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(failures[i], 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fiber");
    TCase *t = tcase_create("fiber");
    tcase_add_test(t, fibers_keep_their_frames_and_registers);
    tcase_add_test(t, a_dead_fiber_starts_afresh);
    tcase_add_test(t, a_deep_stack_survives_a_switch);
    tcase_add_test(t, a_stack_overflow_is_a_fault);
    tcase_add_test(t, the_stack_size_comes_from_the_environment);
    tcase_add_test(t, threads_have_their_own_fibers);
    suite_add_tcase(s, t);
    Suite *suites[] = {s, NULL};
    return test_main(suites);
}
