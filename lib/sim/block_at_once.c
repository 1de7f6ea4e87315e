/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All blocks of a grid at once, for cooperative launches: a thread and a runner for each, so that
 * blocks may wait for each other, in loops that call __nanosleep().
 *
 * Invariant: the first block that fails sets `failed`, which stops the others as the device's own stop
 * does; the launch has that block's result and message.
 */
#include "sim/block.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Kernels run on stacks of their own. */
enum { STACK_BYTES = 512 * 1024, OUT_OF_MEMORY = 2 };

struct launch {
    culvert__grid grid;
    _Atomic int failed;
    pthread_mutex_t lock; /* `message` */
    char *message;
    size_t bytes;
};

struct part {
    struct launch *launch;
    uint64_t block;
    pthread_t thread;
};

static void fail(struct launch *l, int result, const char *message)
{
    int none = 0;
    pthread_mutex_lock(&l->lock);
    if (atomic_compare_exchange_strong(&l->failed, &none, result) && l->bytes > 0)
        snprintf(l->message, l->bytes, "%s", message);
    pthread_mutex_unlock(&l->lock);
}

static void *run_part(void *arg)
{
    struct part *p = arg;
    struct launch *l = p->launch;
    char message[256] = "no memory for a block";
    culvert__block_runner *runner = culvert__block_runner_new();
    int result = OUT_OF_MEMORY;
    if (runner)
        result = culvert__grid_run(runner, &l->grid, p->block, 1, message, sizeof message);
    if (result != 0)
        fail(l, result, message);
    culvert__block_runner_free(runner);
    return NULL;
}

static void run_parts(struct launch *l, struct part *parts, uint64_t n)
{
    pthread_attr_t attr;
    uint64_t started = 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (; started < n; started++) {
        struct part *p = &parts[started];
        p->launch = l;
        p->block = started;
        if (pthread_create(&p->thread, &attr, run_part, p) != 0) {
            fail(l, OUT_OF_MEMORY, "no thread for a block of a cooperative launch");
            break;
        }
    }
    pthread_attr_destroy(&attr);
    for (uint64_t i = 0; i < started; i++)
        pthread_join(parts[i].thread, NULL);
}

int culvert__grid_run_at_once(culvert__block_runner *r, const culvert__grid *g, char *message,
                              size_t bytes)
{
    uint64_t n = culvert__grid_blocks(g);
    if (n == 1)
        return culvert__grid_run(r, g, 0, 1, message, bytes);
    struct launch l = {.grid = *g, .message = message, .bytes = bytes};
    struct part *parts = calloc(n, sizeof *parts);
    if (!parts)
        return OUT_OF_MEMORY;
    if (bytes > 0)
        message[0] = '\0';
    pthread_mutex_init(&l.lock, NULL);
    l.grid.failed = &l.failed;
    run_parts(&l, parts, n);
    pthread_mutex_destroy(&l.lock);
    free(parts);
    return atomic_load(&l.failed);
}
