/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that go wrong, through a driver: what the launch, and every later one, is answered. Each
 * runs in a process of its own, since a GPU is lost to the process then; the parent never touches
 * CUDA.
 */
#include "faults.culvert.h"
#include "kernels/machine.h"
#include "lib/check_main.h"
#include "lib/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The child's exit status where the first answer was not the expected one: 100; the second: 101. */
static int fault_twice(machine *m, const char *kernel, void **params, int expected, int or_else)
{
    struct machine_launch l = {.image = &culvert_image_faults,
                               .kernel = kernel,
                               .grid = {1},
                               .block = {64}};
    int first = machine_run(m, &l, params);
    int second = machine_run(m, &l, params);
    if (first != expected && first != or_else) {
        fprintf(stderr, "%s: %d\n", kernel, first);
        return 100;
    }
    if (second != first) {
        fprintf(stderr, "%s: %d, then %d\n", kernel, first, second);
        return 101;
    }
    return 0;
}

static int fail_assertion(void *arg)
{
    (void)arg;
    unsigned limit = 7;
    void *params[] = {&limit};
    return fault_twice(machine_open(), "assert_below", params, 710, 710);
}

static int fail_trap(void *arg)
{
    (void)arg;
    machine *m = machine_open();
    uint64_t out = machine_alloc(m, 64 * 4);
    unsigned thread = 33;
    void *params[] = {&thread, &out};
    /* 719 in the simulator; GPUs report a trap as that or as an illegal instruction */
    return fault_twice(m, "trap_at", params, 719, 715);
}

static void check_child(int (*fn)(void *arg))
{
    test_child child = test_child_run(fn, NULL, 0, 100);
    ck_assert_msg(child.ended && child.status == 0, "status %d, signal %d: %s", child.status,
                  child.signal, child.output);
}

START_TEST(a_failed_assertion_is_sticky)
{
    check_child(fail_assertion);
}
END_TEST

START_TEST(a_trap_is_sticky)
{
    check_child(fail_trap);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernel_faults");
    TCase *t = tcase_create("kernel_faults");
    tcase_add_test(t, a_failed_assertion_is_sticky);
    tcase_add_test(t, a_trap_is_sticky);
    suite_add_tcase(s, t);
    Suite *suites[] = {s, NULL};
    return test_main(suites);
}
