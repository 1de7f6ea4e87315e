/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.c: the simulator's lock and threads.
 *
 * Design
 *
 * One lock for everything (`culvert__sim.lock`). A driver call takes it once, a worker once or twice
 * an operation, and neither holds it while it runs a kernel, a large copy or a host function. There
 * is no lock order to get wrong, and what the program sees is consistent. A small lock is taken inside it
 * and never the other way round, table_lock of calls.c; and one before it, that of driver_lock.c.
 *
 * A stream is a queue of operations (struct sim_op). An operation that has the stream to itself and
 * waits for nothing makes the stream ready; a worker takes the ready stream of the highest priority
 * (schedule.c) and runs its operations until one has to wait. So operations of one stream never run
 * at the same time, and those of several do.
 *
 *     stream:  IDLE -> READY -> RUNNING -> IDLE        nothing more to do, or held
 *                ^                 |-> WAITING         for a record (an event of another stream)
 *                |                 |-> HOST            for the host function thread
 *                |                 |-> TIMED           for the modelled end of the operation
 *                `-----------------|-> PARKED          for its turn on the hardware (hardware_queue.c)
 *
 * Workers. `scouts` counts those that are awake and not in an operation, plus those that have been
 * sent for. Whenever something is ready there is a scout, unless all workers there may be are in
 * operations: who makes a stream ready, or leaves for a long operation, sends for one if there is
 * none. So one worker serves a stream of short operations without waking anybody, and a kernel that
 * does not end holds up nobody else. Idle workers sleep; one of them until the first modelled end.
 *
 * The host function thread runs all host functions of the process, one after the other.
 *
 * What the model does where the driver's manual is silent or wrong was measured on an H200, driver
 * 580, CUDA 13.0: sim.h lists what matters most, hardware_queue.c and schedule.c have the numbers, and
 * the rows of tests/conformance hold on both.
 *
 * Callers of blocking functions wait on `changed`, or on their hardware queue's `room`. `changed` is
 * only broadcast when somebody waits for what has happened.
 *
 * Lifetimes. Handles: see object.c. Operations and records are pooled and belong to the lock. A
 * record is counted: by its event, by the operation that will settle it, by those that wait for it.
 * Streams live until they were destroyed and are empty. reset (control.c) purges, stops all threads
 * and frees what is left; the next call starts threads again when it needs them.
 *
 * After fork() the child touches none of this: `forked` answers every call. At exit() `exiting` does
 * (context.c).
 */
#define _GNU_SOURCE
#include "sim/engine.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sim culvert__sim = {
    .lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
};

void culvert__sim_lock(void)
{
    pthread_mutex_lock(&culvert__sim.lock);
}

void culvert__sim_unlock(void)
{
    pthread_mutex_unlock(&culvert__sim.lock);
}

struct sim_thread *culvert__sim_thread(void)
{
    static _Thread_local struct sim_thread thread;
    struct sim_thread *t = &thread;
    unsigned generation = atomic_load_explicit(&culvert__sim.generation, memory_order_relaxed);
    if (t->generation != generation) {
        bool host_function = t->host_function, driver_lock = t->driver_lock;
        enum culvert__sim_function call = t->call;
        memset(t, 0, sizeof *t);
        t->generation = generation;
        t->host_function = host_function;
        t->driver_lock = driver_lock;
        t->call = call;
    }
    return t;
}

uint64_t culvert__sim_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t culvert__sim_device_ns(void)
{
    return culvert__sim.virtual_time ? culvert__sim.virtual_ns : culvert__sim_monotonic_ns();
}

void culvert__sim_wait_changed(void)
{
    culvert__sim.waiters++;
    culvert__sim_wait(&culvert__sim.changed);
    culvert__sim.waiters--;
}

void culvert__sim_tell_changed(void)
{
    if (culvert__sim.waiters > 0)
        pthread_cond_broadcast(&culvert__sim.changed);
}

void culvert__sim_note_block(const char *why)
{
    if (culvert__sim_thread()->loop)
        culvert__sim_violation("%s blocks the loop thread: %s", culvert__sim_current_call(), why);
}

/* The program's signals are for its own threads. */
static bool start_thread(pthread_t *thread, void *(*fn)(void *))
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, fn, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void wait_for_end_of(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&culvert__sim.work, &culvert__sim.lock, &t);
}

/* Sleeps until the worker is sent for, or the first modelled end has come. */
static void worker_sleep(void)
{
    struct sim *sim = &culvert__sim;
    sim->scouts--;
    sim->idle++;
    culvert__sim_tell_changed();
    while (sim->tokens == 0 && !sim->stopping) {
        if (sim->timed && !sim->virtual_time && !sim->timekeeper) {
            if (sim->timed->end_ns <= culvert__sim_monotonic_ns())
                break;
            sim->timekeeper = true;
            wait_for_end_of(sim->timed->end_ns);
            sim->timekeeper = false;
        } else {
            pthread_cond_wait(&sim->work, &sim->lock);
        }
    }
    sim->idle--;
    if (sim->tokens > 0)
        sim->tokens--; /* whoever sent has counted the scout */
    else
        sim->scouts++;
}

static void *worker(void *unused)
{
    (void)unused;
    culvert__block_runner *runner = culvert__block_runner_new();
    culvert__sim_lock();
    while (!culvert__sim.stopping) {
        if (!culvert__sim.virtual_time)
            culvert__sim_time_passed();
        struct CUstream_st *s = culvert__sim_ready_take();
        if (s)
            culvert__sim_run_stream(s, runner);
        else
            worker_sleep();
    }
    culvert__sim.scouts--;
    culvert__sim_unlock();
    culvert__block_runner_free(runner);
    return NULL;
}

void culvert__sim_worker_wanted(void)
{
    struct sim *sim = &culvert__sim;
    if (sim->scouts > 0 || sim->stopping)
        return;
    if (sim->idle > sim->tokens) {
        sim->tokens++;
        sim->scouts++;
        pthread_cond_signal(&sim->work);
    } else if (sim->nworkers < SIM_MAX_WORKERS &&
               start_thread(&sim->workers[sim->nworkers], worker)) {
        sim->nworkers++;
        sim->scouts++;
    } else if (sim->nworkers == 0) {
        culvert__sim_misuse("cannot start a thread");
    }
}

void culvert__sim_worker_timed(void)
{
    if (culvert__sim.virtual_time)
        return;
    if (culvert__sim.timekeeper)
        pthread_cond_broadcast(&culvert__sim.work);
    else
        culvert__sim_worker_wanted();
}

void culvert__sim_execute_begin(void)
{
    struct sim *sim = &culvert__sim;
    sim->scouts--;
    sim->executing++;
    if (sim->nready > 0 || (sim->timed && !sim->virtual_time && !sim->timekeeper))
        culvert__sim_worker_wanted();
    culvert__sim_unlock();
}

void culvert__sim_execute_end(void)
{
    culvert__sim_lock();
    culvert__sim.executing--;
    culvert__sim.scouts++;
}

static bool host_work_there(void)
{
    return culvert__sim.host_head && culvert__sim.host_mode != CULVERT_SIM_HOST_HOLD;
}

static void *host_function_thread(void *unused)
{
    struct sim *sim = &culvert__sim;
    (void)unused;
    culvert__sim_lock();
    while (!sim->stopping) {
        if (!host_work_there()) {
            culvert__sim_tell_changed();
            pthread_cond_wait(&sim->host_work, &sim->lock);
            continue;
        }
        struct sim_op *op = sim->host_head;
        sim->host_head = op->host_next;
        if (!sim->host_head)
            sim->host_tail = &sim->host_head;
        sim->host_current = op;
        struct sim_host_work work = *culvert__sim_host_work_of(op);
        int status = op->stream ? op->stream->ctx->sticky : op->status;
        culvert__sim_unlock();
        culvert__sim_thread()->host_function = true;
        bool entered = culvert__sim_driver_enter();
        if (work.callback)
            work.callback(work.stream, status, work.arg);
        else
            work.fn(work.arg);
        culvert__sim_driver_leave(&entered);
        culvert__sim_lock();
        sim->host_current = NULL;
        culvert__sim_host_done(op);
    }
    culvert__sim_unlock();
    return NULL;
}

void culvert__sim_host_wanted(void)
{
    struct sim *sim = &culvert__sim;
    if (!host_work_there() || sim->stopping)
        return;
    if (sim->host_started)
        pthread_cond_signal(&sim->host_work);
    else if (start_thread(&sim->host_thread, host_function_thread))
        sim->host_started = true;
    else
        culvert__sim_misuse("cannot start a thread");
}

void culvert__sim_quiesce(void)
{
    struct sim *sim = &culvert__sim;
    while (sim->nready > 0 || sim->executing > 0 || sim->scouts > 0 || sim->host_current ||
           host_work_there())
        culvert__sim_wait_changed();
}

void culvert__sim_stop_threads(void)
{
    struct sim *sim = &culvert__sim;
    sim->stopping = true;
    pthread_cond_broadcast(&sim->work);
    pthread_cond_broadcast(&sim->host_work);
    culvert__sim_unlock();
    for (unsigned i = 0; i < sim->nworkers; i++)
        pthread_join(sim->workers[i], NULL);
    if (sim->host_started)
        pthread_join(sim->host_thread, NULL);
    culvert__sim_lock();
    sim->nworkers = sim->idle = sim->tokens = sim->scouts = 0;
    sim->host_started = false;
    sim->stopping = false;
}

static void in_child(void)
{
    if (atomic_load(&culvert__sim.initialised))
        atomic_store(&culvert__sim.forked, 1);
}

__attribute__((constructor)) static void load(void)
{
    struct sim *sim = &culvert__sim;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sim->work, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&sim->host_work, NULL);
    pthread_cond_init(&sim->changed, NULL);
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        for (int q = 0; q < SIM_MAX_QUEUES; q++)
            pthread_cond_init(&sim->contexts[d].queues[q].room, NULL);
    }
    pthread_atfork(NULL, NULL, in_child);
    culvert__sim_lock();
    culvert__sim_defaults();
    culvert__sim_unlock();
}
