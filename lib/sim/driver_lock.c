/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * driver_lock.c: a lock that is held during every call of the driver and every host function, where a test
 * asks for it (culvert_sim_driver_lock). It shows who waits for somebody's lock in a host function while
 * that somebody is in the driver.
 *
 * Invariants: it is taken before the engine's lock, never inside it. A thread has it at most once: calls
 * inside of calls, and those that a host function makes, do without. Who waits for the device lets go of
 * it meanwhile, or a call could never wait for a host function.
 */
#include "culvert/sim.h"

#include "sim/engine.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int on;

void culvert_sim_driver_lock(int wanted)
{
    atomic_store(&on, wanted != 0);
}

bool culvert__sim_driver_enter(void)
{
    if (!atomic_load_explicit(&on, memory_order_relaxed) || atomic_load(&culvert__sim.forked))
        return false;
    struct sim_thread *t = culvert__sim_thread();
    if (t->driver_lock)
        return false;
    pthread_mutex_lock(&lock);
    t->driver_lock = true;
    return true;
}

void culvert__sim_driver_leave(const bool *entered)
{
    if (!*entered)
        return;
    culvert__sim_thread()->driver_lock = false;
    pthread_mutex_unlock(&lock);
}

void culvert__sim_wait(pthread_cond_t *cond)
{
    struct sim_thread *t = culvert__sim_thread();
    bool has = t->driver_lock;
    if (has)
        pthread_mutex_unlock(&lock);
    pthread_cond_wait(cond, &culvert__sim.lock);
    if (!has)
        return;
    culvert__sim_unlock();
    pthread_mutex_lock(&lock);
    culvert__sim_lock();
}
