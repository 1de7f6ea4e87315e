/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a running kernel calls: barriers, warp operations, yields, faults. The invariants and the
 * states of a thread are at the top of block.c.
 *
 * Each runs on the strand of the calling thread. An operation that others are still to come to
 * leaves for home, and goes on when home enters the strand again.
 */
#define _GNU_SOURCE
#include "sim/block_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static culvert__block_runner *runner_of(struct culvert_sim_block *block)
{
    return (culvert__block_runner *)(void *)block;
}

/* The end of the launch */

void culvert__block_fail(culvert__block_runner *r, int result, unsigned thread, const char *format,
                         ...)
{
    if (r->result) {
        return;
    }
    r->result = result;
    if (!r->message_bytes) {
        return;
    }
    const struct culvert_sim_block *b = &r->block;
    int n = snprintf(r->message, r->message_bytes, "kernel %s, block (%u,%u,%u)",
                     r->grid->kernel->name, b->block_idx[0], b->block_idx[1], b->block_idx[2]);
    if (thread != NO_OWNER && n >= 0 && (size_t)n < r->message_bytes) {
        unsigned x = b->block_dim[0], xy = x * b->block_dim[1];
        n += snprintf(r->message + n, r->message_bytes - (size_t)n, ", thread (%u,%u,%u)",
                      thread % x, thread % xy / x, thread / xy);
    }
    if (n >= 0 && (size_t)n + 2 < r->message_bytes) {
        memcpy(r->message + n, ": ", 3);
        va_list ap;
        va_start(ap, format);
        vsnprintf(r->message + n + 2, r->message_bytes - (size_t)n - 2, format, ap);
        va_end(ap);
    }
}

int culvert__block_stopped(culvert__block_runner *r)
{
    const _Atomic int *stop = r->grid->stop;
    const _Atomic int *failed = r->grid->failed;
    int result = stop ? atomic_load_explicit(stop, memory_order_acquire) : 0;
    if (!result && failed)
        result = atomic_load_explicit(failed, memory_order_acquire);
    if (result) {
        culvert__block_fail(r, result, NO_OWNER, "stopped");
    }
    return result;
}

/* Leaves the running strand, for ever if the launch has failed. */
static void leave(culvert__block_runner *r)
{
    struct strand *s = r->current;
    if (!r->result) {
        culvert__fiber_leave(s->fiber, 0);
    }
    if (r->result) {
        s->prepared = 0;
        culvert__fiber_leave(s->fiber, 1);
        abort();
    }
}

/* Completion of barriers and warp operations */

void culvert__block_make_ready(culvert__block_runner *r, unsigned thread)
{
    r->thread[thread].state = READY;
    queue_push(&r->ready, thread);
}

static void check_barrier(culvert__block_runner *r)
{
    if (!r->in_barrier || r->in_barrier != r->live) {
        return;
    }
    r->barrier_came = r->in_barrier;
    r->barrier_true = r->predicates;
    r->in_barrier = r->predicates = 0;
    for (unsigned i = 0; i < r->nthreads; i++) {
        if (r->thread[i].state == IN_BARRIER) {
            culvert__block_make_ready(r, i);
        }
    }
}

/* Completes the warp operation that `thread` waits in, if all of it are there. */
static void check_warp_of(culvert__block_runner *r, unsigned thread)
{
    unsigned base = thread / WARP * WARP;
    const struct thread *t = &r->thread[thread];
    uint32_t came = t->mask & r->warp[base / WARP].live;
    uint64_t values[WARP] = {0};
    if (came & ~r->warp[base / WARP].waiting) {
        return;
    }
    for (unsigned i = 0; i < WARP; i++) {
        if (came >> i & 1) {
            const struct thread *u = &r->thread[base + i];
            if (u->kind != t->kind || u->mask != t->mask) {
                return;
            }
            values[i] = u->value;
        }
    }
    for (unsigned i = 0; i < WARP; i++) {
        if (came >> i & 1) {
            struct thread *u = &r->thread[base + i];
            if (u->values) {
                memcpy(u->values, values, sizeof values);
            }
            u->came = came;
            culvert__block_make_ready(r, base + i);
        }
    }
    r->warp[base / WARP].waiting &= ~came;
}

void culvert__block_end_threads(culvert__block_runner *r, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        r->thread[i].state = ENDED;
        r->warp[i / WARP].live &= ~(1u << i % WARP);
    }
    r->live -= end - first;
    for (unsigned w = first / WARP; first < end && w <= (end - 1) / WARP; w++) {
        for (unsigned i = 0; i < WARP && r->warp[w].waiting; i++) {
            if (r->warp[w].waiting >> i & 1) {
                check_warp_of(r, w * WARP + i);
            }
        }
    }
    check_barrier(r);
}

/* What a running kernel calls */

/* The states of the threads, which only a block in which one waited looks at. */
static void reset_threads(culvert__block_runner *r)
{
    for (unsigned i = 0; i < r->nthreads; i++) {
        r->thread[i].state = UNSTARTED;
        r->thread[i].strand = NULL;
    }
    for (unsigned w = 0; w * WARP < r->nthreads; w++) {
        unsigned n = r->nthreads - w * WARP;
        r->warp[w].live = n >= WARP ? ~0u : (1u << n) - 1;
        r->warp[w].waiting = 0;
    }
}

/* The first wait of a thread: the strand is its own from now on. */
static struct thread *settle_in(culvert__block_runner *r, unsigned thread)
{
    struct strand *s = r->current;
    if (s->owner == NO_OWNER) {
        if (!r->any_waited) {
            r->any_waited = 1;
            reset_threads(r);
        }
        s->owner = thread;
        r->thread[thread].strand = s;
        r->started = thread + 1;
        culvert__block_end_threads(r, s->first, thread);
    }
    return &r->thread[thread];
}

static void wait_until_ready(culvert__block_runner *r, struct thread *t)
{
    if (t->state == READY && r->ready.count == 1) { /* nobody else to run: no switch */
        queue_pop(&r->ready);
    } else {
        leave(r);
    }
    t->state = RUNNING;
}

static unsigned op_barrier(struct culvert_sim_block *block, unsigned thread, int predicate,
                           unsigned *arrived)
{
    culvert__block_runner *r = runner_of(block);
    struct thread *t = settle_in(r, thread);
    if (culvert__block_stopped(r)) {
        leave(r);
    }
    t->state = IN_BARRIER;
    r->in_barrier++;
    r->predicates += predicate != 0;
    check_barrier(r);
    wait_until_ready(r, t);
    if (arrived) {
        *arrived = r->barrier_came;
    }
    return r->barrier_true;
}

static uint32_t op_warp(struct culvert_sim_block *block, unsigned thread, unsigned kind,
                        uint32_t mask, uint64_t value, uint64_t *values)
{
    culvert__block_runner *r = runner_of(block);
    struct thread *t = settle_in(r, thread);
    if (!(mask >> thread % WARP & 1)) {
        culvert__block_fail(
            r, RESULT_LAUNCH_FAILED, thread,
            "a warp operation with mask 0x%08x, which lacks the caller's own lane %u",
            (unsigned)mask, thread % WARP);
        leave(r);
    }
    t->state = IN_WARP;
    t->kind = kind;
    t->mask = mask;
    t->value = value;
    t->values = values;
    r->warp[thread / WARP].waiting |= 1u << thread % WARP;
    check_warp_of(r, thread);
    wait_until_ready(r, t);
    return t->came;
}

static void op_yield(struct culvert_sim_block *block, unsigned thread)
{
    culvert__block_runner *r = runner_of(block);
    struct thread *t = settle_in(r, thread);
    if (!culvert__block_stopped(r)) {
        t->state = YIELDED;
        queue_push(&r->yielded, thread);
    }
    leave(r);
    t->state = RUNNING;
}

static void op_fault(struct culvert_sim_block *block, unsigned thread, int result,
                     const char *message)
{
    culvert__block_runner *r = runner_of(block);
    culvert__block_fail(r, result ? result : RESULT_LAUNCH_FAILED, thread, "%s", message);
    leave(r);
}

static uint64_t op_clock_ns(struct culvert_sim_block *block)
{
    (void)block;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const struct culvert_sim_ops culvert__block_ops = {
    .struct_size = sizeof culvert__block_ops,
    .barrier = op_barrier,
    .warp = op_warp,
    .yield = op_yield,
    .fault = op_fault,
    .clock_ns = op_clock_ns,
};
