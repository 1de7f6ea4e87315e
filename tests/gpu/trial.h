/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests that leave a process behind in which devices cannot be used any more, or that count what is
 * left: each in a process of its own, with Check's fork mode and without it (there it starts this program
 * again, so that it works under ThreadSanitizer and with a real driver). And a list of outcomes: what became
 * of many futures.
 *
 *     int main(void)
 *     {
 *         trials *t = trials_new("loss");
 *         TRIAL(t, case_036_no_host_function_runs);
 *         return trials_run(t);
 *     }
 */
#ifndef TEST_GPU_TRIAL_H
#define TEST_GPU_TRIAL_H

#include "culvert/culvert.h"

#include <check.h>
#include <ev.h>
#include <stdbool.h>

typedef struct trials trials;

trials *trials_new(const char *suite);
/* timeout: seconds that it may run; 0: 120. */
void trials_add(trials *t, const char *name, const TTest *test, double timeout);
#define TRIAL(t, test)                  trials_add(t, #test, test, 0)
#define TRIAL_TIMEOUT(t, test, seconds) trials_add(t, #test, test, seconds)
/* As test_main. Consumes t. */
int trials_run(trials *t);

/* What became of a future. */
typedef struct outcome {
    struct outcomes *all;
    int calls;      /* of its callback */
    int frees;      /* of the callback's argument */
    int status;     /* CULVERT_PENDING until then */
    unsigned order; /* 1: the first of all */
    culvert_error error;
} outcome;

typedef struct outcomes {
    outcome *list;
    size_t n, room, settled;
    unsigned clock;
} outcomes;

/* n: at most so many. */
void outcomes_begin(outcomes *o, size_t n);
/* Consumes the future; its number. */
size_t outcomes_add(outcomes *o, culvert_future *future);
/* Runs the loop until all have settled: false if that takes longer. Each must have settled once. */
bool outcomes_wait(outcomes *o, struct ev_loop *ev, double seconds);
/* Each settled once, and with this status. */
void outcomes_all(const outcomes *o, int status);
void outcomes_end(outcomes *o);

/* On the simulator: from now on the context of device 0 stays, so that what is left in it is seen. Without
   that the last one who closes the device takes everything away. */
void trial_keep_context(void);

/* Runs the loop so long, whether or not there is anything to do. */
void trial_turn(struct ev_loop *ev, double seconds);

#endif
