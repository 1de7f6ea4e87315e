/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who owns what: a handle is consumed, a value is taken, a failed call releases what it was given.
 *
 * Prints:
 *     two waiters: hello, hello
 *     taken: hello
 *     and what is left: nothing
 *     the argument of a step that never runs is released
 *     nobody looked: CULVERT_EUSER: the cat is on the keyboard
 *     CULVERT_ESHUTDOWN: still released
 */
#include "snippet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)arg;
    snippet_print("nobody looked", err);
}

static char *hello(void)
{
    char *text = malloc(6);
    return text != NULL ? strcpy(text, "hello") : NULL;
}

static culvert_future *print_value(culvert_future *done, void *arg)
{
    printf("%s%s", (const char *)arg, (const char *)culvert_value(done));
    return NULL;
}

static void two_waiters(culvert_loop *loop)
{
    /* region: ref */
    culvert_future *f = culvert_resolved(loop, hello(), free);
    culvert_future *first = culvert_then(culvert_ref(f), print_value, "two waiters: ", NULL);
    culvert_future *second = culvert_then(f, print_value, ", ", NULL); /* f is ours no more */
    /* end region */
    culvert_detach(first);
    culvert_await(second, 60);
    printf("\n");
    culvert_unref(second);
}

static void take(culvert_loop *loop)
{
    /* region: take */
    culvert_future *f = culvert_resolved(loop, hello(), free);
    char *text = culvert_take(f); /* ours now */
    printf("taken: %s\n", text);
    free(text);
    printf("and what is left: %s\n", culvert_value(f) == NULL ? "nothing" : "something");
    culvert_unref(f);
    /* end region */
}

static culvert_future *never(culvert_future *done, void *arg)
{
    (void)done;
    printf("%s runs\n", (char *)arg);
    return NULL;
}

static void release(void *arg)
{
    printf("%s released\n", (char *)arg);
}

static void skipped(culvert_loop *loop)
{
    static char arg[] = "the argument of a step that never runs is";
    /* region: skipped */
    culvert_future *f = culvert_fail(loop, CULVERT_EUSER, 7, "no luck");
    f = culvert_then(f, never, arg, release); /* passed by; release(arg) is called */
    culvert_await(f, 60);
    culvert_unref(f);
    /* end region */
}

static void failed_call(culvert_loop *closed)
{
    static char arg[] = "still";
    /* region: failed */
    /* After culvert_loop_free: the call fails, and what it was given is released nevertheless. */
    culvert_future *f = culvert_resolved(closed, NULL, NULL);
    printf("%s: ", culvert_error_name(culvert_status(f)));
    f = culvert_then(f, never, arg, release);
    culvert_unref(f);
    /* end region */
}

int main(void)
{
    snippet s;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.on_unhandled = unhandled;
    snippet_open_loop(&s, &options);
    culvert_loop *kept = culvert_loop_ref(s.loop);
    two_waiters(s.loop);
    take(s.loop);
    skipped(s.loop);
    culvert_detach(culvert_fail(s.loop, CULVERT_EUSER, 0, "the cat is on the keyboard"));
    ev_run(s.ev, 0);
    culvert_loop_free(s.loop);
    failed_call(kept);
    culvert_loop_unref(kept);
    return 0;
}
