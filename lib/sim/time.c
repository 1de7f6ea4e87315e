/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * time.c: virtual time, and the durations that tests give to kernels.
 *
 * Invariants: virtual time only moves in culvert_sim_advance(), from one modelled end to the next,
 * and only when everything that can happen at the present moment has happened.
 */
#define _GNU_SOURCE
#include "sim/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct duration {
    struct duration *next;
    char *kernel;
    uint64_t ns;
} * durations;

bool culvert__sim_duration_of(const char *kernel, uint64_t *ns)
{
    for (const struct duration *d = durations; d; d = d->next) {
        if (strcmp(d->kernel, kernel) == 0) {
            *ns = d->ns;
            return true;
        }
    }
    return false;
}

void culvert__sim_durations_reset(void)
{
    while (durations) {
        struct duration *d = durations;
        durations = d->next;
        free(d->kernel);
        free(d);
    }
}

static uint64_t nanoseconds(const char *call, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e9)
        culvert__sim_misuse("%s: %g is not a number of seconds", call, seconds);
    return (uint64_t)llround(seconds * 1e9);
}

void culvert_sim_duration(const char *kernel, double seconds)
{
    struct duration *d = malloc(sizeof *d);
    char *name = strdup(kernel);
    if (!d || !name)
        culvert__sim_misuse("culvert_sim_duration: out of memory");
    *d = (struct duration){.kernel = name, .ns = nanoseconds("culvert_sim_duration", seconds)};
    culvert__sim_lock();
    d->next = durations;
    durations = d;
    culvert__sim_unlock();
}

void culvert_sim_virtual_time(int on)
{
    culvert__sim_lock();
    culvert__sim.virtual_time = on != 0;
    culvert__sim_unlock();
}

void culvert_sim_advance(double seconds)
{
    struct sim *sim = &culvert__sim;
    uint64_t ns = nanoseconds("culvert_sim_advance", seconds);
    culvert__sim_lock();
    if (!sim->virtual_time)
        culvert__sim_misuse("culvert_sim_advance: time is not virtual");
    uint64_t end = sim->virtual_ns + ns;
    culvert__sim_quiesce();
    while (sim->timed && sim->timed->end_ns <= end) {
        sim->virtual_ns = sim->timed->end_ns;
        culvert__sim_time_passed();
        culvert__sim_quiesce();
    }
    sim->virtual_ns = end;
    culvert__sim_unlock();
}
