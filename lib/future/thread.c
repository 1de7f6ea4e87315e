/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose a binding is.
 *
 * A binding belongs to the thread that runs its loop. Before the loop has run, that is a guess: the
 * thread that made it, unless it handed it over, of which it tells nobody.
 *
 *   guess(maker) --the loop runs on T--> T --the loop runs on U--> U
 *        |  ^
 *        v  |  culvert__own_begin / own_end by the maker: a first run on another thread waits
 *   guess(maker), busy
 *
 * Invariant: `owner` is the thread's id with these states in its low bits, which are zero in an id.
 */
#define _POSIX_C_SOURCE 200809L
#include "future/future_internal.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { GUESS = 1, BUSY = 2, FLAGS = GUESS | BUSY };

/* pthread_t is the address of the thread's descriptor with every libc of Linux. */
static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

void culvert__guess_owner(culvert__core *core)
{
    atomic_store(&core->owner, self() | GUESS);
}

void culvert__claim(culvert__core *core)
{
    const uintptr_t me = self();
    uintptr_t owner = atomic_load_explicit(&core->owner, memory_order_relaxed);

    while (owner != me) {
        if ((owner & BUSY) != 0 && (owner & ~(uintptr_t)FLAGS) != me) {
            sched_yield();
            owner = atomic_load(&core->owner);
        } else if (atomic_compare_exchange_weak(&core->owner, &owner, me)) {
            return;
        }
    }
}

bool culvert__is_owner(const culvert__core *core)
{
    return atomic_load(&core->owner) == self();
}

bool culvert__may_own(const culvert__core *core)
{
    return (atomic_load(&core->owner) & ~(uintptr_t)FLAGS) == self();
}

bool culvert__own_begin(culvert__core *core, bool *taken)
{
    const uintptr_t me = self();
    uintptr_t owner = atomic_load(&core->owner);

    *taken = false;
    if ((owner & ~(uintptr_t)FLAGS) != me)
        return false;
    if (owner == (me | GUESS))
        *taken = atomic_compare_exchange_strong(&core->owner, &owner, me | GUESS | BUSY);
    return (owner & ~(uintptr_t)FLAGS) == me;
}

void culvert__own_end(culvert__core *core, bool taken)
{
    uintptr_t owner = self() | GUESS | BUSY;

    if (taken)
        atomic_compare_exchange_strong(&core->owner, &owner, self() | GUESS);
}

_Noreturn void culvert__abort_null(const char *call, const char *what)
{
    fprintf(stderr, "culvert: %s: %s is NULL\n", call, what);
    abort();
}

#ifndef NDEBUG
void culvert__check_thread(const culvert__core *core, const char *call)
{
    const uintptr_t owner = atomic_load_explicit(&core->owner, memory_order_relaxed);

    if ((owner & ~(uintptr_t)FLAGS) == self() || (owner & GUESS) != 0 || culvert__forked())
        return;
    fprintf(stderr, "culvert: %s: called on a thread that is not the loop's\n", call);
    abort();
}
#endif
