/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calls.c: the beginning of every driver call, and the record of violations.
 *
 * Invariants: the counters and the `armed` bits are atomics, so that a call which no test tampers
 * with takes no lock here; what the bits announce is under `table_lock`, which is taken last of all
 * locks and never held across anything that waits. Nothing here takes the engine's lock.
 */
#define _GNU_SOURCE
#include "sim/calls.h"

#include "sim/engine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARMED_FAULT = 1, ARMED_DELAY = 2, ARMED_HIDDEN = 4 };

struct fault {
    struct fault *next;
    enum culvert__sim_function function;
    unsigned countdown;
    int result;
};

static const char *const names[] = {
#define X(name, abi, ask, need, symbol) #name,
#include "driver/driver.def"
#define X(name, abi, ask, need, symbol) #name,
#include "sim/extra.def"
    "cuGetProcAddress",
};

static _Atomic uint64_t counts[culvert__SIM_FUNCTIONS];
static _Atomic int armed[culvert__SIM_FUNCTIONS];

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static double delays[culvert__SIM_FUNCTIONS];
static struct fault *faults;

static _Atomic int strict;
static _Atomic uint64_t violations;
static char last_violation[512];

const char *culvert__sim_function_name(enum culvert__sim_function function)
{
    return names[function];
}

int culvert__sim_function_find(const char *name)
{
    for (int i = 0; i < culvert__SIM_FUNCTIONS; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    return -1;
}

bool culvert__sim_hidden(enum culvert__sim_function function)
{
    return (atomic_load(&armed[function]) & ARMED_HIDDEN) != 0;
}

const char *culvert__sim_current_call(void)
{
    return names[culvert__sim_thread()->call];
}

/* True: a test wants this call to fail with *result. */
static bool take_fault(enum culvert__sim_function function, int *result)
{
    bool hit = false;
    pthread_mutex_lock(&table_lock);
    int left = 0;
    for (struct fault **at = &faults; *at;) {
        struct fault *f = *at;
        if (f->function == function && --f->countdown == 0) {
            hit = true;
            *result = f->result;
            *at = f->next;
            free(f);
            continue;
        }
        left += f->function == function;
        at = &f->next;
    }
    if (left == 0)
        atomic_fetch_and(&armed[function], ~ARMED_FAULT);
    pthread_mutex_unlock(&table_lock);
    return hit;
}

static void sleep_for(double seconds)
{
    struct timespec t;
    t.tv_sec = (time_t)seconds;
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) != 0) {}
}

/* What a test has set for this function; true: the call is over. */
static bool tampered(enum culvert__sim_function function, int bits, int *result)
{
    if (bits & ARMED_DELAY) {
        pthread_mutex_lock(&table_lock);
        double seconds = delays[function];
        pthread_mutex_unlock(&table_lock);
        sleep_for(seconds);
    }
    if (bits & ARMED_HIDDEN) {
        *result = CULVERT__CUDA_ERROR_NOT_SUPPORTED;
        return true;
    }
    return (bits & ARMED_FAULT) && take_fault(function, result);
}

static bool works_uninitialised(enum culvert__sim_function function)
{
    return function == culvert__SIM_cuInit || function == culvert__SIM_cuDriverGetVersion ||
           function == culvert__SIM_cuGetErrorName || function == culvert__SIM_cuGetErrorString ||
           function == culvert__SIM_cuGetProcAddress;
}

/* Against the manual: measured on an H200, driver 580, CUDA 13.0. It is a violation all the same. */
static bool works_in_host_functions(enum culvert__sim_function function)
{
    return function == culvert__SIM_cuStreamQuery || function == culvert__SIM_cuEventQuery ||
           function == culvert__SIM_cuEventRecord;
}

bool culvert__sim_enter(enum culvert__sim_function function, int *result)
{
    struct sim_thread *t = culvert__sim_thread();
    atomic_fetch_add_explicit(&counts[function], 1, memory_order_relaxed);
    t->call = function;
    if (atomic_load_explicit(&culvert__sim.forked, memory_order_relaxed)) {
        *result = CULVERT__CUDA_ERROR_NOT_INITIALIZED;
        return !works_uninitialised(function) || function == culvert__SIM_cuInit;
    }
    if (t->host_function && !works_uninitialised(function)) {
        culvert__sim_violation("%s called from a host function", names[function]);
        *result = CULVERT__CUDA_ERROR_NOT_PERMITTED;
        if (!works_in_host_functions(function))
            return true;
    }
    int bits = atomic_load_explicit(&armed[function], memory_order_relaxed);
    if (bits != 0 && tampered(function, bits, result))
        return true;
    if (works_uninitialised(function))
        return false;
    if (atomic_load_explicit(&culvert__sim.exiting, memory_order_relaxed)) {
        *result = CULVERT__CUDA_ERROR_DEINITIALIZED;
        return true;
    }
    if (!atomic_load_explicit(&culvert__sim.initialised, memory_order_acquire)) {
        *result = CULVERT__CUDA_ERROR_NOT_INITIALIZED;
        return true;
    }
    return false;
}

void culvert__sim_set_fault(enum culvert__sim_function function, unsigned nth, int result)
{
    struct fault *f = malloc(sizeof *f);
    if (!f)
        culvert__sim_misuse("culvert_sim_fail: out of memory");
    *f = (struct fault){.function = function, .countdown = nth, .result = result};
    pthread_mutex_lock(&table_lock);
    f->next = faults;
    faults = f;
    atomic_fetch_or(&armed[function], ARMED_FAULT);
    pthread_mutex_unlock(&table_lock);
}

void culvert__sim_set_delay(enum culvert__sim_function function, double seconds)
{
    pthread_mutex_lock(&table_lock);
    delays[function] = seconds;
    if (seconds > 0)
        atomic_fetch_or(&armed[function], ARMED_DELAY);
    else
        atomic_fetch_and(&armed[function], ~ARMED_DELAY);
    pthread_mutex_unlock(&table_lock);
}

void culvert__sim_set_hidden(enum culvert__sim_function function)
{
    atomic_fetch_or(&armed[function], ARMED_HIDDEN);
}

uint64_t culvert__sim_count(enum culvert__sim_function function)
{
    return atomic_load_explicit(&counts[function], memory_order_relaxed);
}

void culvert__sim_calls_reset(void)
{
    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < culvert__SIM_FUNCTIONS; i++) {
        atomic_store(&counts[i], 0);
        atomic_store(&armed[i], 0);
        delays[i] = 0;
    }
    while (faults) {
        struct fault *f = faults;
        faults = f->next;
        free(f);
    }
    atomic_store(&violations, 0);
    last_violation[0] = 0;
    pthread_mutex_unlock(&table_lock);
}

void culvert__sim_violation(const char *format, ...)
{
    char text[sizeof last_violation];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (atomic_load(&strict)) {
        fprintf(stderr, "culvert-sim: violation: %s\n", text);
        abort();
    }
    atomic_fetch_add(&violations, 1);
    pthread_mutex_lock(&table_lock);
    memcpy(last_violation, text, sizeof text);
    pthread_mutex_unlock(&table_lock);
}

void culvert__sim_set_strict(bool on)
{
    atomic_store(&strict, on);
}

uint64_t culvert__sim_violation_count(void)
{
    return atomic_load(&violations);
}

size_t culvert__sim_violation_text(char *text, size_t bytes)
{
    pthread_mutex_lock(&table_lock);
    size_t length = strlen(last_violation);
    if (bytes > 0)
        snprintf(text, bytes, "%s", last_violation);
    pthread_mutex_unlock(&table_lock);
    return length;
}

void culvert__sim_misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("culvert-sim: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
