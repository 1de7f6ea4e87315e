/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ready queue: what runs next on the loop's thread, first in, first out.
 *
 * Invariants:
 *   - a task in the queue runs once, unless it is unlinked first;
 *   - tasks from `barrier` on were put there, by something that ran in this turn, for a later turn:
 *     the turn ends there, so the order in the queue is kept;
 *   - the queue knows no loop: when it becomes non-empty it calls core->kick.
 *
 * A turn is bounded by a count and by a time, so that tasks which make tasks never keep the loop
 * from its sockets and timers.
 */
#define _POSIX_C_SOURCE 200809L
#include "future/future_internal.h"

#include <time.h>

uint64_t culvert__now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void culvert__ready_push(culvert__core *core, culvert__task *task)
{
    const bool was_empty = culvert__list_empty(&core->ready);

    culvert__list_push(&core->ready, &task->link);
    if (was_empty)
        culvert__ready_filled(core);
}

void culvert__ready_push_later(culvert__core *core, culvert__task *task)
{
    culvert__ready_push(core, task);
    if (core->depth > 0 && core->barrier == NULL)
        core->barrier = &task->link;
}

void culvert__ready_unlink(culvert__core *core, culvert__task *task)
{
    if (core->barrier == &task->link)
        core->barrier = task->link.next != &core->ready ? task->link.next : NULL;
    culvert__list_unlink(&task->link);
}

void culvert__turn_begin(culvert__core *core)
{
    core->barrier = NULL;
}

/* What ends a batch at once: the binding is to be taken down as soon as the outermost callback has
   returned; or a callback forked, and this is the child. */
static bool batch_is_over(const culvert__core *core)
{
    return (core->close_wanted && core->depth == 1) || culvert__inherited(core);
}

/* How many tasks may run before the clock is read again: reading it costs as much as a short
   task. */
enum { CLOCK_EVERY = 8 };

bool culvert__ready_run(culvert__core *core, unsigned max, uint64_t until)
{
    unsigned check = 1, stride = 1;

    culvert__enter(core);
    for (unsigned n = 0; n < max && !batch_is_over(core); n++) {
        culvert__link *first = core->ready.next;

        if (first == &core->ready || first == core->barrier)
            break;
        if (n == check) {
            if (culvert__now() >= until)
                break;
            stride = stride < CLOCK_EVERY ? 2 * stride : CLOCK_EVERY;
            check += stride;
        }
        culvert__list_unlink(first);
        culvert__task *task = CULVERT__CONTAINER(first, culvert__task, link);
        task->run(task);
        culvert__reap(core);
    }

    const bool left = !culvert__list_empty(&core->ready);
    culvert__leave(core);
    return left;
}
