/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that is traced: two streams with sequences that overlap, callbacks, a failure, a cancellation.
 *
 *     trace_load FILE end|abort|stop|forever        FILE -: none, for a profiler
 *
 * Prints how many sequences there were; with `forever` it says "going", and goes on until it is killed.
 */
#define _POSIX_C_SOURCE 200809L
#include "culvert/culvert.h"
#include "fixture.culvert.h"

#include <ev.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { ROUNDS = 40 };

static struct {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream, *other;
    culvert_buffer *buffer;
    culvert_future *load; /* the module's */
    culvert_kernel *busy;
} f;

static const culvert_grid one = {.blocks = {1}, .threads = {1}};

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "trace_load: %s\n", what);
    exit(1);
}

static void settles(culvert_future *future, int code)
{
    need(culvert_await(future, 60) == code, "a sequence has another outcome");
    culvert_unref(future);
}

static bool open_all(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    f.ev = ev_loop_new(0);
    f.loop = culvert_loop_new(f.ev, NULL, &err);
    f.gpu = culvert_gpu_open(f.loop, 0, NULL, &err);
    if (f.gpu == NULL && (err.code == CULVERT_ENODRIVER || err.code == CULVERT_ENODEVICE))
        return false;
    need(f.gpu != NULL, err.message);
    f.stream = culvert_stream_new(f.gpu, NULL, &err);
    f.other = culvert_stream_new(f.gpu, NULL, &err);
    f.buffer = culvert_buffer_new(f.gpu, 256, &err);
    f.load = culvert_module_load(f.gpu, &culvert_image_fixture);
    need(culvert_await(f.load, 60) == CULVERT_OK, "the module was not loaded");
    f.busy = culvert_module_kernel(culvert_value(f.load), "busy", &err);
    need(f.busy != NULL && f.other != NULL && f.buffer != NULL, err.message);
    return true;
}

static void close_all(void)
{
    culvert_buffer_unref(f.buffer);
    culvert_stream_unref(f.other);
    culvert_stream_unref(f.stream);
    culvert_unref(f.load);
    culvert_gpu_close(f.gpu);
    culvert_loop_free(f.loop);
    ev_loop_destroy(f.ev);
}

static void count(culvert_future *done, void *arg)
{
    need(culvert_status(done) == CULVERT_OK, "a callback sees a failure");
    ++*(unsigned *)arg;
}

/* Something on each stream; the second waits for nothing, so they overlap. */
static void one_round(unsigned *called)
{
    char bytes[256] = "x";
    culvert_future *a = culvert_launch(f.stream, f.busy, &one, CULVERT_ARGS(CULVERT_U64(300000)));
    culvert_future *b = culvert_launch(f.other, f.busy, &one, CULVERT_ARGS(CULVERT_U64(200000)));
    culvert_future *c = culvert_upload(f.stream, f.buffer, 0, bytes, sizeof bytes);
    need(culvert_on_settled(a, count, called, NULL) == CULVERT_OK, "no callback");
    need(culvert_on_settled(culvert_ref(b), count, called, NULL) == CULVERT_OK, "no callback");
    settles(c, CULVERT_OK);
    settles(b, CULVERT_OK);
}

/* One that never starts, behind a future that nobody resolves. */
static void one_cancelled(void)
{
    culvert_future *never;
    culvert_promise *promise = culvert_promise_new(f.loop, &never);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_wait(seq, never);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_cancel(future);
    settles(future, CULVERT_ECANCELED);
    culvert_promise_drop(promise);
}

/* Until the thread that writes has got so far that a reader has something to look at: a machine that does
   other things lets it wait. */
static void wait_for_file(const char *path)
{
    enum { ENOUGH = 16384, TRIES = 60000 };
    struct stat st = {.st_size = 0};
    for (int i = 0; i < TRIES && stat(path, &st) == 0 && st.st_size < ENOUGH; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv)
{
    culvert_error err = CULVERT_ERROR_INIT;
    unsigned called = 0, rounds = 0;
    if (argc != 3)
        return 2;
    if (!open_all())
        return 77;
    const char *path = strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    if (culvert_trace_start(f.loop, path, &err) != CULVERT_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    bool forever = strcmp(argv[2], "forever") == 0;
    for (; forever || rounds < ROUNDS; rounds++) {
        one_round(&called);
        if (rounds == 20 && forever) {
            wait_for_file(path);
            printf("going\n");
            fflush(stdout);
        }
    }
    one_cancelled();
    printf("%u\n", rounds * 3 + 1);
    fflush(stdout);
    if (strcmp(argv[2], "abort") == 0) {
        wait_for_file(path);
        abort();
    }
    if (strcmp(argv[2], "stop") == 0)
        culvert_trace_stop(f.loop); /* else culvert_loop_free does it */
    close_all();
    return 0;
}
