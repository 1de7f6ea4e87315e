/* SPDX-License-Identifier: BSD-2-Clause */
/* The helpers of the tests do what they say: tests built on one that does nothing would prove nothing. */
#define _POSIX_C_SOURCE 200809L
#include "lib/alloc_fail.h"
#include "lib/alloc_probe.h"
#include "lib/check_main.h"
#include "lib/child.h"
#include "lib/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ways of allocation; the last one of alloc_probe takes two. */
enum { PROBE_ALLOCATIONS = ALLOC_PROBE_BLOCKS + 1 };

START_TEST(alloc_fail_counts_every_way_to_allocate)
{
    alloc_fail_nth(1000);
    ck_assert(alloc_probe(false));
    ck_assert_uint_eq(alloc_fail_count(), PROBE_ALLOCATIONS);
    ck_assert(!alloc_fail_happened());
    ck_assert_int_eq(alloc_fail_live(), 0);
}
END_TEST

START_TEST(alloc_fail_nth_fails_one)
{
    for (unsigned n = 1; n <= PROBE_ALLOCATIONS; n++) {
        alloc_fail_nth(n);
        ck_assert(!alloc_probe(false));
        ck_assert(alloc_fail_happened());
        ck_assert(alloc_probe(false));
    }
    alloc_fail_nth(1);
    alloc_fail_off();
    ck_assert(alloc_probe(false));
    ck_assert_int_eq(alloc_fail_live(), 0);
}
END_TEST

START_TEST(alloc_fail_from_fails_all_after)
{
    alloc_fail_from(PROBE_ALLOCATIONS + 1);
    ck_assert(alloc_probe(false));
    ck_assert(!alloc_probe(false));
    ck_assert(!alloc_probe(false));
    alloc_fail_off();
    ck_assert(alloc_probe(false));
}
END_TEST

static int body_runs;

static void body(void *leak)
{
    body_runs++;
    alloc_probe(leak != NULL);
}

static void body_kept(void *arg)
{
    (void)arg;
    alloc_probe_kept();
}

START_TEST(alloc_fail_each_reaches_every_allocation)
{
    ck_assert_uint_eq(alloc_fail_each(body, NULL), PROBE_ALLOCATIONS);
    ck_assert_int_eq(body_runs, 1 + PROBE_ALLOCATIONS + 1);
    ck_assert_uint_eq(alloc_fail_each(body_kept, NULL), 1);
}
END_TEST

START_TEST(alloc_fail_live_shows_what_is_kept)
{
    int64_t before = alloc_fail_live();
    alloc_fail_nth(5);
    ck_assert(!alloc_probe(true));
    ck_assert_int_eq(alloc_fail_live() - before, 4);
    alloc_probe_release();
    ck_assert_int_eq(alloc_fail_live() - before, 0);
}
END_TEST

static void *probe_on_a_thread(void *ok)
{
    *(bool *)ok = alloc_probe(false);
    return NULL;
}

START_TEST(alloc_fail_can_spare_other_threads)
{
    bool ok = false;
    pthread_t thread;
    alloc_fail_this_thread(true);
    alloc_fail_from(1);
    ck_assert_int_eq(pthread_create(&thread, NULL, probe_on_a_thread, &ok), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(ok);
    ck_assert_uint_eq(alloc_fail_count(), 0);
    ck_assert(!alloc_probe(false));
    alloc_fail_this_thread(false);
    alloc_fail_off();
}
END_TEST

static int return_what(void *arg)
{
    fprintf(stderr, "returns %d\n", *(int *)arg);
    return *(int *)arg;
}

static int abort_with_words(void *arg)
{
    (void)arg;
    fprintf(stderr, "culvert_x: no\n");
    abort();
}

static int sleep_long(void *arg)
{
    (void)arg;
    test_sleep(3600);
    return 0;
}

/* Not a tail call, and the frame is used, so no optimizer makes a loop of it. */
static int recurse(volatile char *above, long depth)
{
    volatile char frame[256];
    memset((void *)(uintptr_t)frame, (int)depth, sizeof frame);
    if (depth == 0)
        return above[0];
    int below = recurse(frame, depth - 1);
    return below + frame[above[0] & 7] - frame[0];
}

static int use_stack(void *arg)
{
    volatile char top[8] = {0};
    return recurse(top, *(long *)arg) & 0;
}

START_TEST(child_tells_how_it_ended)
{
    int seven = 7;
    test_child child = test_child_run(return_what, &seven, 0, 60);
    ck_assert(child.ended);
    ck_assert_int_eq(child.status, 7);
    ck_assert_str_eq(child.output, "returns 7\n");

    child = test_child_run(abort_with_words, NULL, 0, 60);
    ck_assert(!child.ended);
    ck_assert_int_eq(child.signal, SIGABRT);
    ck_assert_ptr_nonnull(strstr(child.output, "culvert_x: no"));

    child = test_child_run(sleep_long, NULL, 0, 0.05);
    ck_assert(child.timed_out && !child.ended);
    ck_assert_int_eq(child.signal, SIGKILL);
}
END_TEST

START_TEST(child_has_the_stack_it_is_given)
{
    long shallow = 100;
    long deep = 3000; /* 3000 frames of 256 bytes and more */
    test_child child = test_child_run(use_stack, &shallow, 256 * 1024, 60);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
    child = test_child_run(use_stack, &deep, 0, 60);
    ck_assert_msg(child.ended && child.status == 0, "%s", child.output);
    child = test_child_run(use_stack, &deep, 256 * 1024, 60);
    ck_assert(!child.ended || child.status != 0);
}
END_TEST

static bool later(void *at)
{
    return test_now() >= *(double *)at;
}

START_TEST(clock_goes_forward)
{
    double start = test_now();
    test_sleep(0.01);
    ck_assert(test_now() - start >= 0.01);
    double soon = test_now() + 0.01;
    double never = test_now() + 3600;
    ck_assert(test_eventually(later, &soon, 60));
    ck_assert(!test_eventually(later, &never, 0.01));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("test helpers");
    TCase *tcase = tcase_create("helpers");
    tcase_add_test(tcase, alloc_fail_counts_every_way_to_allocate);
    tcase_add_test(tcase, alloc_fail_nth_fails_one);
    tcase_add_test(tcase, alloc_fail_from_fails_all_after);
    tcase_add_test(tcase, alloc_fail_each_reaches_every_allocation);
    tcase_add_test(tcase, alloc_fail_live_shows_what_is_kept);
    tcase_add_test(tcase, alloc_fail_can_spare_other_threads);
    tcase_add_test(tcase, child_tells_how_it_ended);
    tcase_add_test(tcase, child_has_the_stack_it_is_given);
    tcase_add_test(tcase, clock_goes_forward);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
