/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the kernel runtime share: block.c (strands, blocks, grids), where the whole is
 * explained, and block_wait.c (what a running kernel calls). */
#ifndef CULVERT_SIM_BLOCK_INTERNAL_H
#define CULVERT_SIM_BLOCK_INTERNAL_H

#include "sim/block.h"
#include "sim/fiber.h"

#define RESULT_OUT_OF_MEMORY 2   /* CUDA_ERROR_OUT_OF_MEMORY */
#define RESULT_LAUNCH_FAILED 719 /* CUDA_ERROR_LAUNCH_FAILED */

#define MAX_THREADS  CULVERT__BLOCK_MAX_THREADS
#define WARP         CULVERT_SIM_WARP
#define MAX_WARPS    (MAX_THREADS / WARP)
#define SHARED_ALIGN 128u
#define SHARED_FILL  0xa5 /* shared memory is not zero at the start of a block */

enum thread_state { UNSTARTED, RUNNING, IN_BARRIER, IN_WARP, READY, YIELDED, ENDED };

struct strand {
    culvert__fiber *fiber;
    culvert__block_runner *runner;
    struct strand *next; /* in the free list */
    unsigned first;      /* the thread that its plain calls began with */
    unsigned owner;      /* the thread that it belongs to, or NO_OWNER */
    int prepared;
};
#define NO_OWNER (~0u)

struct thread {
    struct strand *strand; /* once it waited */
    uint64_t value;        /* what it gave to a warp operation */
    uint64_t *values;      /* where it wants what the others gave */
    uint32_t mask;
    uint32_t came;
    unsigned kind;
    enum thread_state state;
};

struct queue {
    unsigned short items[MAX_THREADS];
    unsigned head, count;
};

struct culvert__block_runner {
    struct culvert_sim_block block; /* the first member: the kernel gets its address */
    const culvert__grid *grid;
    culvert__fiber_home *home;
    struct strand *idle;
    struct strand *current;
    size_t stack_bytes;

    unsigned nthreads, started, live;
    int any_waited;      /* whether the bookkeeping below is in use in this block */
    int quit;            /* the idle strands are to leave for the last time */
    unsigned in_barrier; /* threads that arrived, and of these with a predicate */
    unsigned predicates;
    unsigned barrier_came; /* the same of the last barrier that was completed */
    unsigned barrier_true;
    struct {
        uint32_t live, waiting;
    } warp[MAX_WARPS];
    struct thread thread[MAX_THREADS];
    struct queue ready, yielded;

    int result;
    char *message;
    size_t message_bytes;
    void *shared;
    size_t shared_bytes;
};

extern const struct culvert_sim_ops culvert__block_ops;

/*
 * The launch ends with `result` and "kernel k, block (0,0,0), thread (1,0,0): " and the text; the
 * first failure stands. thread: NO_OWNER for none.
 */
void culvert__block_fail(culvert__block_runner *r, int result, unsigned thread, const char *format,
                         ...) __attribute__((format(printf, 4, 5)));

/* Not 0: the launch is to stop, and has failed with that. */
int culvert__block_stopped(culvert__block_runner *r);

/* The threads first <= i < end have ended: whoever waits for them need not any more. */
void culvert__block_end_threads(culvert__block_runner *r, unsigned first, unsigned end);

void culvert__block_make_ready(culvert__block_runner *r, unsigned thread);

static inline void queue_push(struct queue *q, unsigned thread)
{
    q->items[(q->head + q->count++) % MAX_THREADS] = (unsigned short)thread;
}

static inline unsigned queue_pop(struct queue *q)
{
    unsigned thread = q->items[q->head];
    q->head = (q->head + 1) % MAX_THREADS;
    q->count--;
    return thread;
}

#endif
