/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * record.c: points in streams, which events, waits and blocked callers refer to.
 *
 * Invariants: a record settles once, by the operation that carries it or by a purge. `waiting` holds
 * the streams whose first operation waits for it, and is empty once it has settled. Its clock is of
 * the moment when it was appended.
 *
 *     PENDING -- settle(0) --> DONE
 *        `------ settle(e) --> FAILED
 */
#include "sim/engine.h"

#include <stdlib.h>
#include <string.h>

static struct sim_record *free_records;

struct sim_record *culvert__sim_record_new(void)
{
    struct sim_record *r = free_records;
    if (r) {
        free_records = r->next;
        memset(r, 0, sizeof *r);
    } else {
        r = calloc(1, sizeof *r);
        if (!r)
            culvert__sim_misuse("out of memory");
    }
    r->refs = 1;
    return r;
}

struct sim_record *culvert__sim_record_ref(struct sim_record *r)
{
    r->refs++;
    return r;
}

void culvert__sim_record_unref(struct sim_record *r)
{
    if (!r || --r->refs > 0)
        return;
    culvert__sim_clock_unref(r->clock);
    r->clock = NULL;
    r->next = free_records;
    free_records = r;
}

void culvert__sim_record_settle(struct sim_record *r, int result)
{
    if (r->state != SIM_RECORD_PENDING)
        return;
    r->state = result == 0 ? SIM_RECORD_DONE : SIM_RECORD_FAILED;
    r->result = result;
    r->ns = culvert__sim_device_ns();
    while (r->waiting) {
        struct CUstream_st *s = r->waiting;
        r->waiting = s->wait_next;
        s->wait_next = NULL;
        s->state = SIM_STREAM_IDLE;
        culvert__sim_kick(s);
    }
    if (culvert__sim.parked)
        culvert__sim_unpark_all();
    if (r->host_waiters > 0)
        culvert__sim_tell_changed();
}

void culvert__sim_record_forget(struct sim_record *r, struct CUstream_st *s)
{
    for (struct CUstream_st **at = &r->waiting; *at; at = &(*at)->wait_next) {
        if (*at == s) {
            *at = s->wait_next;
            s->wait_next = NULL;
            return;
        }
    }
}

int culvert__sim_record_wait(struct sim_record *r)
{
    culvert__sim_record_ref(r);
    r->host_waiters++;
    while (r->state == SIM_RECORD_PENDING)
        culvert__sim_wait_changed();
    r->host_waiters--;
    int result = r->state == SIM_RECORD_FAILED ? r->result : 0;
    culvert__sim_record_unref(r);
    return result;
}
