/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Futures without a GPU: a chain, a promise around a callback, combinators, an asynchronous loop.
 *
 * Prints:
 *     no such file; an empty one will do
 *     0 bytes
 *     settled: CULVERT_OK
 *     answer 42
 *     both: CULVERT_OK, the first was 1 and the second 2
 *     faster: 0
 *     counted to 100000
 */
#include "snippet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* region: steps */
/* On a worker thread: it may block. */
static void *measure(void *path, culvert_error *err)
{
    struct stat st;
    long long *bytes = malloc(sizeof *bytes);
    if (bytes == NULL || stat(path, &st) != 0) {
        int number = errno;
        free(bytes);
        culvert_error_set(err, CULVERT_ESYSTEM, number, "%s: %s", (char *)path, strerror(number));
        return NULL;
    }
    *bytes = st.st_size;
    return bytes;
}

/* All others on the loop's thread: they must not block. */
static culvert_future *instead(culvert_future *done, void *arg)
{
    static long long nothing = 0;
    (void)arg;
    if (culvert_get_error(done)->native != ENOENT)
        return NULL; /* another failure goes on down the chain */
    printf("no such file; an empty one will do\n");
    return culvert_resolved(culvert_future_loop(done), &nothing, NULL);
}

static culvert_future *announce(culvert_future *done, void *arg)
{
    (void)arg;
    printf("%lld bytes\n", *(long long *)culvert_value(done));
    return NULL; /* pass the outcome through */
}

static void ended(culvert_future *done, void *arg)
{
    (void)arg;
    printf("settled: %s\n", culvert_error_name(culvert_status(done)));
}
/* end region */

static void chain(snippet *s)
{
    char path[] = "/no/such/file";
    culvert_loop *loop = s->loop;
    struct ev_loop *ev = s->ev;
    /* region: chain */
    culvert_future *f = culvert_work(loop, measure, path, NULL, free);
    f = culvert_catch(f, instead, NULL, NULL);
    f = culvert_then(f, announce, NULL, NULL);
    culvert_on_settled(f, ended, NULL, NULL); /* the end: no handle is left */
    ev_run(ev, 0);                            /* returns when nothing is pending any more */
    /* end region */
}

/* ---- a promise ---- */

/* Stands for a library that calls back: here from a timer. */
static struct {
    ev_timer timer;
    void (*fn)(int answer, void *arg);
    void *arg;
} question;

static void think(struct ev_loop *ev, ev_timer *w, int events)
{
    (void)ev;
    (void)w;
    (void)events;
    question.fn(42, question.arg);
}

static void library_ask(struct ev_loop *ev, void (*fn)(int answer, void *arg), void *arg)
{
    question.fn = fn;
    question.arg = arg;
    ev_timer_init(&question.timer, think, 0.001, 0.0);
    ev_timer_start(ev, &question.timer);
}

/* region: promise */
static void answered(int answer, void *arg)
{
    int *value = malloc(sizeof *value);
    if (value != NULL)
        *value = answer;
    culvert_resolve(arg, value, free); /* consumes the promise; runs no continuation in here */
}

static culvert_future *ask(culvert_loop *loop)
{
    culvert_future *future;
    culvert_promise *promise = culvert_promise_new(loop, &future);
    if (promise != NULL)
        library_ask(culvert_loop_ev(loop), answered, promise);
    return future; /* where there is no promise it is rejected: look at it at the chain's end */
}
/* end region */

static culvert_future *print_answer(culvert_future *done, void *arg)
{
    (void)arg;
    printf("answer %d\n", *(int *)culvert_value(done));
    return NULL;
}

/* ---- combinators ---- */

static void *number(void *arg, culvert_error *err)
{
    (void)err;
    return arg;
}

/* region: all */
static void both(culvert_future *set, void *arg)
{
    (void)arg;
    printf("both: %s, the first was %s and the second %s\n",
           culvert_error_name(culvert_status(set)), (char *)culvert_value(culvert_child(set, 0)),
           (char *)culvert_value(culvert_child(set, 1)));
}

static void ask_two(culvert_loop *loop)
{
    static char one[] = "1", two[] = "2";
    culvert_future *set[] = {culvert_work(loop, number, one, NULL, NULL),
                             culvert_work(loop, number, two, NULL, NULL)};
    culvert_on_settled(culvert_all(loop, set, 2), both, NULL, NULL);
}
/* end region */

static void faster(culvert_future *set, void *arg)
{
    (void)arg;
    printf("faster: %zu\n", culvert_winner(set));
}

static void race(culvert_loop *loop)
{
    culvert_future *set[] = {culvert_sleep(loop, 0.001), culvert_sleep(loop, 3600)};
    culvert_on_settled(culvert_race(loop, set, 2), faster, NULL, NULL);
}

/* ---- a loop ---- */

/* region: loop */
static culvert_future *count(culvert_future *done, void *arg)
{
    culvert_loop *loop = culvert_future_loop(done);
    unsigned *n = arg;
    if (*n == 100000)
        return culvert_resolved(loop, NULL, NULL);
    ++*n;
    return culvert_then(culvert_resolved(loop, NULL, NULL), count, n, NULL);
}
/* end region */

static void counted(culvert_future *done, void *arg)
{
    (void)done;
    printf("counted to %u\n", *(unsigned *)arg);
}

int main(void)
{
    snippet s;
    unsigned n = 0;
    snippet_open_loop(&s, NULL);
    chain(&s);
    culvert_detach(culvert_then(ask(s.loop), print_answer, NULL, NULL));
    ev_run(s.ev, 0);
    ask_two(s.loop);
    ev_run(s.ev, 0);
    race(s.loop);
    ev_run(s.ev, 0);
    culvert_on_settled(culvert_then(culvert_resolved(s.loop, NULL, NULL), count, &n, NULL), counted,
                       &n, NULL);
    ev_run(s.ev, 0);
    snippet_close(&s);
    return 0;
}
