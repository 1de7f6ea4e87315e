/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel runtime: a grid's blocks one after the other, a block's threads as plain calls until
 * one of them waits, and from then on as fibers.
 *
 * A strand is a fiber that runs threads first, first + 1, ... of the block as plain calls. When one
 * of these waits (barrier, warp operation, yield) the strand belongs to that thread alone, and the
 * next thread that was not started begins in a new strand. So a kernel that never waits costs one
 * strand a block and no switch between its threads, nothing has to be declared, and the order is
 * the same either way.
 *
 * Invariants:
 * - Threads below `started` have begun; those of the current loop strand count as begun one by one.
 * - live counts the threads that have not ended, begun or not; warp[w].live has the same as bits.
 * - A thread in BARRIER, WARP, READY or YIELDED has a strand, which is left (fiber.c).
 * - The barrier is over when every live thread is in BARRIER. A warp operation is over when every
 *   live lane of its mask is in WARP with the same kind and mask. An end may complete either.
 * - Once `result` is set nothing is started; what is left of the block's strands is entered once
 *   more, only to leave for the last time (so that the sanitizers see their ends).
 *
 *               start            wait               complete
 *     unstarted -----> running ---------> BARRIER/WARP ------> READY
 *                       |  ^  \ yield                            |
 *                 end   |  |   +---------> YIELDED               |
 *                       v  +----------------- resume ------------+
 *                     ended
 */
#define _GNU_SOURCE
#include "sim/block_internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Strands */

/* A strand serves one loop, or one thread, after the other; home takes it back between them. */
static void strand_main(void *arg)
{
    struct strand *s = arg;
    culvert__block_runner *r = s->runner;
    while (!r->quit) {
        r->grid->kernel->run(&r->block, r->grid->params, s->first, r->nthreads);
        if (s->owner != NO_OWNER) {
            culvert__block_end_threads(r, s->owner, s->owner + 1);
        } else if (r->any_waited) {
            culvert__block_end_threads(r, s->first, r->nthreads);
        } else {
            r->live = 0;
        }
        s->owner = NO_OWNER;
        s->next = r->idle;
        r->idle = s;
        culvert__fiber_leave(s->fiber, 0);
    }
    s->prepared = 0;
    culvert__fiber_leave(s->fiber, 1);
}

static struct strand *strand_take(culvert__block_runner *r)
{
    struct strand *s = r->idle;
    if (s) {
        r->idle = s->next;
    } else {
        s = calloc(1, sizeof *s);
        if (!s) {
            return NULL;
        }
        s->fiber = culvert__fiber_new(r->home, r->stack_bytes);
        if (!s->fiber) {
            free(s);
            return NULL;
        }
        s->runner = r;
    }
    if (!s->prepared) {
        culvert__fiber_prepare(s->fiber, strand_main, s);
        s->prepared = 1;
    }
    s->owner = NO_OWNER;
    return s;
}

static void enter(culvert__block_runner *r, struct strand *s)
{
    r->current = s;
    culvert__fiber_enter(s->fiber);
    r->current = NULL;
    if (!s->prepared) { /* it left for the last time */
        s->next = r->idle;
        r->idle = s;
    }
}

/* Lets what is left of a failed block leave for the last time. */
static void bury(culvert__block_runner *r)
{
    for (unsigned i = 0; r->any_waited && i < r->nthreads; i++) {
        struct thread *t = &r->thread[i];
        if (t->state == IN_BARRIER || t->state == IN_WARP || t->state == READY ||
            t->state == YIELDED) {
            t->state = ENDED;
            enter(r, t->strand);
        }
    }
}

/* One block */

/* Nobody can go on, and nobody will come. */
static void fail_deadlock(culvert__block_runner *r)
{
    unsigned in_warp = 0, first = 0;
    for (unsigned i = r->nthreads; i-- > 0;) {
        if (r->thread[i].state == IN_WARP) {
            in_warp++;
            first = i;
        }
    }
    if (!in_warp) {
        culvert__block_fail(r, RESULT_LAUNCH_FAILED, NO_OWNER, "no thread can go on");
        return;
    }
    const struct thread *t = &r->thread[first];
    culvert__block_fail(
        r, RESULT_LAUNCH_FAILED, NO_OWNER,
        "a deadlock: %u of the %u threads that have not ended wait at __syncthreads(), and %u in "
        "warp operations that not all lanes of their masks come to (the first is thread %u, mask "
        "0x%08x, of which 0x%08x have not ended)",
        r->in_barrier, r->live, in_warp, first, (unsigned)t->mask,
        (unsigned)(t->mask & r->warp[first / WARP].live));
}

static void reset_block(culvert__block_runner *r)
{
    r->started = 0;
    r->live = r->nthreads;
    r->any_waited = 0;
    r->in_barrier = r->predicates = 0;
    r->ready.head = r->ready.count = r->yielded.head = r->yielded.count = 0;
    if (r->block.dynamic_shared) {
        memset(r->block.dynamic_shared, SHARED_FILL, r->block.dynamic_shared_bytes);
    }
}

/* Starts the next thread, and with it those after it until one waits. */
static void start(culvert__block_runner *r)
{
    struct strand *s = strand_take(r);
    if (!s) {
        culvert__block_fail(r, RESULT_OUT_OF_MEMORY, r->started,
                            "no memory for the stack of a thread");
        return;
    }
    s->first = r->started;
    r->started = r->nthreads; /* settle_in corrects it */
    enter(r, s);
}

static void run_block(culvert__block_runner *r)
{
    reset_block(r);
    while (r->live && !r->result) {
        if (r->ready.count) {
            enter(r, r->thread[queue_pop(&r->ready)].strand);
        } else if (r->started < r->nthreads) {
            start(r);
        } else if (r->yielded.count) {
            unsigned n = r->yielded.count;
            if (n == r->live) { /* all of them wait for something outside */
                sched_yield();
            }
            while (n--) {
                culvert__block_make_ready(r, queue_pop(&r->yielded));
            }
        } else {
            fail_deadlock(r);
        }
    }
    if (r->result) {
        bury(r);
    }
}

/* Grids */

culvert__block_runner *culvert__block_runner_new(void)
{
    culvert__block_runner *r = calloc(1, sizeof *r);
    if (!r) {
        return NULL;
    }
    r->home = culvert__fiber_home_new();
    if (!r->home) {
        free(r);
        return NULL;
    }
    r->stack_bytes = culvert__fiber_stack_bytes();
    return r;
}

void culvert__block_runner_free(culvert__block_runner *r)
{
    if (!r) {
        return;
    }
    r->quit = 1;
    while (r->idle) {
        struct strand *s = r->idle;
        r->idle = s->next;
        if (s->prepared) {
            culvert__fiber_enter(s->fiber);
        }
        culvert__fiber_free(s->fiber);
        free(s);
    }
    culvert__fiber_home_free(r->home);
    free(r->shared);
    free(r);
}

uint64_t culvert__grid_blocks(const culvert__grid *g)
{
    return (uint64_t)g->grid[0] * g->grid[1] * g->grid[2];
}

static int reserve_shared(culvert__block_runner *r, size_t bytes)
{
    if (bytes <= r->shared_bytes) {
        return 0;
    }
    size_t rounded = (bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN;
    void *m = aligned_alloc(SHARED_ALIGN, rounded);
    if (!m) {
        return -1;
    }
    free(r->shared);
    r->shared = m;
    r->shared_bytes = rounded;
    return 0;
}

static void begin_grid(culvert__block_runner *r, const culvert__grid *g)
{
    struct culvert_sim_block *b = &r->block;
    r->grid = g;
    r->nthreads = g->block[0] * g->block[1] * g->block[2];
    memset(b, 0, sizeof *b);
    b->struct_size = sizeof *b;
    b->ops = &culvert__block_ops;
    for (int i = 0; i < 3; i++) {
        b->grid_dim[i] = g->grid[i];
        b->block_dim[i] = g->block[i];
        b->cluster_dim[i] = g->cluster[i] ? g->cluster[i] : 1;
    }
}

int culvert__grid_run(culvert__block_runner *r, const culvert__grid *g, uint64_t first,
                      uint64_t count, char *message, size_t bytes)
{
    begin_grid(r, g);
    r->result = 0;
    r->message = message;
    r->message_bytes = bytes;
    if (bytes) {
        message[0] = '\0';
    }
    if (reserve_shared(r, g->dynamic_shared_bytes)) {
        culvert__block_fail(r, RESULT_OUT_OF_MEMORY, NO_OWNER,
                            "no memory for %u bytes of shared memory",
                            (unsigned)g->dynamic_shared_bytes);
        return r->result;
    }
    r->block.dynamic_shared = g->dynamic_shared_bytes ? r->shared : NULL;
    r->block.dynamic_shared_bytes = g->dynamic_shared_bytes;
    for (uint64_t i = first; i < first + count && !culvert__block_stopped(r); i++) {
        r->block.block_idx[0] = (uint32_t)(i % g->grid[0]);
        r->block.block_idx[1] = (uint32_t)(i / g->grid[0] % g->grid[1]);
        r->block.block_idx[2] = (uint32_t)(i / g->grid[0] / g->grid[1]);
        run_block(r);
        if (r->result) {
            break;
        }
    }
    r->grid = NULL;
    return r->result;
}
