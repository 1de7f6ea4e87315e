/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a sequence waits for.
 *
 * Each awaited future has a waiter in the sequence's arena. Its outcome is taken as soon as it is
 * there (waiter.up becomes NULL). A sequence that has not started is held by every outcome that is
 * missing, unless the device can wait: for a sequence that is wholly in the driver, has an event and
 * owes nothing to the host. So the device waits for recorded events only, which lie in the past:
 * there is no cycle.
 *
 * A stream that waits on the device with work behind the wait occupies a hardware queue, and when all
 * are occupied every other stream stands still (measured on an H200, driver 580: with the 8 queues of
 * CUDA_DEVICE_MAX_CONNECTIONS' default, 4 such streams stall nobody, 8 stall all). So at most two less
 * than there are wait at once, over the whole process; further sequences are held.
 *
 * Whatever it waited for and rejected rejects the sequence: before it starts, or, where the device
 * waited, when its own work is over.
 */
#include "gpu/flow.h"

enum { MANY = 256 }; /* members of a culvert_all that the device waits for one by one */

static void take_outcome(culvert__wait_on *wait)
{
    const culvert_error *err = culvert__peek_error(wait->waiter.up);
    if (err == NULL)
        return;
    if (!wait->seq->failed)
        wait->seq->canceled = err->code == CULVERT_ECANCELED;
    culvert__seq_fail_with(wait->seq, err);
}

/* The device waits for it from now on. */
static void occupy(culvert__wait_on *wait)
{
    culvert_seq *seq = wait->seq;
    if (wait->on_device)
        return;
    wait->on_device = true;
    if (seq->device_waits++ == 0 && seq->stream->waiting++ == 0)
        atomic_fetch_add(&seq->gpu->device->waiting, 1);
}

static void vacate(culvert__wait_on *wait)
{
    culvert_seq *seq = wait->seq;
    if (!wait->on_device)
        return;
    wait->on_device = false;
    if (--seq->device_waits == 0 && --seq->stream->waiting == 0)
        atomic_fetch_sub(&seq->gpu->device->waiting, 1);
}

static bool may_occupy(const culvert_seq *seq)
{
    culvert__device *device = seq->gpu->device;
    return seq->stream->waiting > 0 || atomic_load(&device->waiting) < device->most_waiting;
}

static void forget(culvert__wait_on *wait)
{
    wait->waiter.up = NULL;
    vacate(wait);
    if (culvert__linked(&wait->dependents))
        culvert__list_unlink(&wait->dependents);
}

static void awaited_settled(culvert__task *task)
{
    culvert__waiter *waiter = CULVERT__CONTAINER(task, culvert__waiter, task);
    culvert__wait_on *wait = CULVERT__CONTAINER(waiter, culvert__wait_on, waiter);
    culvert_seq *seq = wait->seq;
    take_outcome(wait);
    culvert__wait_end(waiter);
    forget(wait);
    if (seq->state == CULVERT__SEQ_BUILDING)
        return;
    if (seq->state == CULVERT__SEQ_WHOLE)
        culvert__seq_try_settle(seq);
    else if (seq->failed)
        culvert__seq_stop(seq);
    else
        culvert__stream_pump(seq->stream);
}

void culvert__seq_wait_add(culvert_seq *seq, culvert_future *future, const char *where)
{
    if (culvert_future_loop(future) != seq->gpu->loop) {
        culvert__seq_fail(seq, CULVERT_EINVAL, "culvert_seq_wait", where,
                          "the future belongs to another binding than the stream");
        culvert_unref(future);
        return;
    }
    culvert__wait_on *wait = culvert__seq_arena(seq, sizeof *wait);
    if (wait == NULL) {
        culvert_unref(future);
        return;
    }
    *wait = (culvert__wait_on){.seq = seq};
    wait->waiter.task.run = awaited_settled;
    *seq->waits_end = wait;
    seq->waits_end = &wait->next;
    culvert__wait(future, &wait->waiter);
}

bool culvert__seq_take_waits(culvert_seq *seq)
{
    bool all = true;
    for (culvert__wait_on *wait = seq->waits; wait != NULL; wait = wait->next) {
        if (wait->waiter.up == NULL)
            continue;
        if (!culvert__settled(wait->waiter.up)) {
            all = false;
            continue;
        }
        take_outcome(wait);
        culvert__wait_cancel(&wait->waiter);
        forget(wait);
    }
    return all;
}

void culvert__seq_drop_waits(culvert_seq *seq)
{
    for (culvert__wait_on *wait = seq->waits; wait != NULL; wait = wait->next) {
        if (wait->waiter.up == NULL)
            continue;
        culvert__wait_cancel(&wait->waiter);
        forget(wait);
    }
    seq->waits = NULL;
    seq->waits_end = &seq->waits;
}

/* ---- can the device wait for it? ---- */

static bool on_device(const culvert_seq *seq, const culvert_seq *other)
{
    return other->state == CULVERT__SEQ_WHOLE && !other->failed && !other->owes_host &&
           other->gpu->drv == seq->gpu->drv && other->gpu->loop == seq->gpu->loop;
}

/* The event to wait for; NULL: none is needed. *held: only the host can wait. */
static struct CUevent_st *event_of(const culvert_seq *seq, culvert_seq *other, bool *held)
{
    culvert_stream *s = other->stream;
    *held = false;
    if (other->entries == 0 || s == seq->stream)
        return NULL; /* complete, or in order */
    struct CUevent_st *event = culvert__entry_at(s, other->last_entry)->event;
    *held = event == NULL;
    return event;
}

/* Makes the sequence look again when `other` is wholly in the driver. */
static void depend(culvert__wait_on *wait, culvert_seq *other)
{
    if (other->state < CULVERT__SEQ_WHOLE && !culvert__linked(&wait->dependents))
        culvert__list_push(&other->dependents, &wait->dependents);
}

static culvert__step wait_for(culvert__wait_on *wait, culvert_future *future, bool make,
                              culvert__segment *segment)
{
    culvert_seq *other = culvert__seq_of(future);
    bool held;
    if (other == NULL)
        return culvert_status(future) == CULVERT_OK ? CULVERT__STEP_DONE : CULVERT__STEP_WAIT;
    if (!on_device(wait->seq, other)) {
        depend(wait, other);
        return CULVERT__STEP_WAIT;
    }
    struct CUevent_st *event = event_of(wait->seq, other, &held);
    if (held)
        return CULVERT__STEP_WAIT;
    if (event == NULL)
        return CULVERT__STEP_DONE;
    if (!make)
        return may_occupy(wait->seq) ? CULVERT__STEP_DONE : CULVERT__STEP_WAIT;
    segment->call = "cuStreamWaitEvent";
    segment->result = wait->seq->gpu->drv->cuStreamWaitEvent(wait->seq->stream->native, event, 0);
    if (segment->result != CULVERT__CUDA_SUCCESS)
        return CULVERT__STEP_FAIL;
    occupy(wait);
    return CULVERT__STEP_DONE;
}

/* make: false looks whether the device can wait for all of it, true makes it wait. */
static culvert__step wait_for_one(culvert__wait_on *wait, bool make, culvert__segment *segment)
{
    size_t n = 0;
    culvert_future *const *children = culvert__all_children(wait->waiter.up, &n);
    if (children == NULL)
        return wait_for(wait, wait->waiter.up, make, segment);
    if (n > MANY)
        return CULVERT__STEP_WAIT;
    for (size_t i = 0; i < n; i++) {
        culvert__step step = wait_for(wait, children[i], make, segment);
        if (step != CULVERT__STEP_DONE)
            return step;
    }
    return CULVERT__STEP_DONE;
}

culvert__step culvert__seq_start_waits(culvert_seq *seq, culvert__segment *segment)
{
    (void)culvert__seq_take_waits(seq);
    if (seq->failed)
        return CULVERT__STEP_FAIL;
    for (int make = 0; make <= 1; make++) {
        for (culvert__wait_on *wait = seq->waits; wait != NULL; wait = wait->next) {
            if (wait->waiter.up == NULL)
                continue;
            culvert__step step = wait_for_one(wait, make, segment);
            if (step != CULVERT__STEP_DONE)
                return step;
        }
    }
    return CULVERT__STEP_DONE;
}

void culvert__seq_wake_dependents(culvert_seq *seq)
{
    while (!culvert__list_empty(&seq->dependents)) {
        culvert__wait_on *wait =
            CULVERT__CONTAINER(seq->dependents.next, culvert__wait_on, dependents);
        culvert__list_unlink(&wait->dependents);
        culvert__stream_schedule(wait->seq->stream);
    }
}
