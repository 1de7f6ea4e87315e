/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads: a job on a worker, a thread of the program's own that posts into the loop and resolves a
 * promise.
 *
 * Prints:
 *     the worker's sum: 5000000050000000
 *     25 %
 *     50 %
 *     75 %
 *     100 %
 *     the thread's result: 4
 *     after culvert_loop_free: CULVERT_ESHUTDOWN
 */
#include "snippet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* region: work */
static void *sum(void *arg, culvert_error *err)
{
    unsigned long long n = *(unsigned *)arg, *result = malloc(sizeof *result);
    if (result == NULL) {
        culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for a sum");
        return NULL;
    }
    *result = 0;
    for (unsigned long long i = 1; i <= n; i++)
        *result += i;
    return result;
}

static culvert_future *sum_to(culvert_loop *loop, unsigned n)
{
    unsigned *arg = malloc(sizeof *arg);
    if (arg == NULL)
        return culvert_fail(loop, CULVERT_ENOMEM, 0, "no memory for an argument");
    *arg = n;
    return culvert_work(loop, sum, arg, free, free); /* arg, and the value if nobody takes it */
}
/* end region */

/* region: thread */
typedef struct job {
    culvert_loop *loop; /* a reference of the thread's own */
    culvert_promise *promise;
} job;

static void show(void *percent) /* on the loop's thread */
{
    printf("%s %%\n", (const char *)percent);
}

static void *run(void *arg) /* on a thread of the program's own */
{
    static char percent[4][4] = {"25", "50", "75", "100"};
    static int result = 4;
    job *j = arg;
    for (int i = 0; i < 4; i++)
        (void)culvert_post(j->loop, show, percent[i], NULL); /* CULVERT_ESHUTDOWN: nobody listens */
    (void)culvert_post_resolve(j->promise, &result, NULL);
    culvert_loop_unref(j->loop);
    free(j);
    return NULL;
}

static culvert_future *start(culvert_loop *loop, pthread_t *thread)
{
    culvert_future *future;
    culvert_promise *promise = culvert_promise_new(loop, &future);
    job *j = malloc(sizeof *j);
    if (promise != NULL && j != NULL) {
        *j = (job){culvert_loop_ref(loop), promise};
        if (pthread_create(thread, NULL, run, j) == 0)
            return future;
        culvert_loop_unref(loop);
    }
    free(j);
    culvert_promise_drop(promise); /* the future rejects with CULVERT_EBROKEN */
    return future;
}
/* end region */

static void nothing(void *arg)
{
    (void)arg;
}

int main(void)
{
    snippet s;
    pthread_t thread;
    snippet_open_loop(&s, NULL);

    culvert_future *f = sum_to(s.loop, 100000000);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("the worker's sum: %llu\n", *(unsigned long long *)culvert_value(f));
    culvert_unref(f);

    /* A bare promise does not keep ev_run from returning; culvert_await does. */
    f = start(s.loop, &thread);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("the thread's result: %d\n", *(int *)culvert_value(f));
    culvert_unref(f);
    pthread_join(thread, NULL);

    culvert_loop *kept = culvert_loop_ref(s.loop);
    snippet_close(&s);
    printf("after culvert_loop_free: %s\n",
           culvert_error_name(culvert_post(kept, nothing, NULL, NULL)));
    culvert_loop_unref(kept);
    return 0;
}
