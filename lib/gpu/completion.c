/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the end of work is found out: events are queried, oldest first and then galloping, before the
 * loop sleeps and after it woke; before it sleeps, what is to wake it is armed. completion.md has
 * the algorithm and the reasons; names here are its names.
 *
 * Invariants (I1 to I5 there):
 *   - an entry leaves the ring, and its event goes back to the pool, only once it was seen complete.
 *   - the loop sleeps only if, for each stream with entries, an arm is out whose target is not later
 *     than what is wanted, or the answer to the loop is a short time.
 *   - a stream with such an arm is not queried, but by the watchdog.
 */
#include "gpu/flow.h"

#include <math.h>

enum { POLL_MAX = 64 };
static const double tick_seconds = 0.001;
static const double watchdog_seconds = 0.1;
static const uint64_t watchdog_ns = 100000000;
static const uint64_t late_ns = 50000000;
enum { SPINS_LOST = 2, SPINS_SKIPPED = 16 };

/* ---- what is wanted ---- */

/* Does the end of it give something that is waited for? Slots that somebody lacks, or a download, whose
   memory may be waited for. */
static bool gives_slots(const culvert__entry *entry, bool lacking)
{
    for (const culvert__slot *slot = entry->slots; slot != NULL; slot = slot->next)
        if (lacking || slot->download)
            return true;
    return false;
}

/* The earliest entry whose completion lets anything happen; the stream has some. */
static uint64_t want(const culvert_stream *s)
{
    const culvert__flow *flow = s->gpu->flow;
    bool budget = s->capped || s->wants_units ||
                  atomic_load_explicit(&s->gpu->device->reserve, memory_order_relaxed) > 0;
    bool slots = !culvert__list_empty(&flow->slotless);
    bool memory = culvert__allocs_wait(s->gpu);
    unsigned units = s->units;
    for (uint64_t n = s->seen; n + 1 < s->enq; n++) {
        const culvert__entry *entry = &s->ring[n % CULVERT__STREAM_RING];
        const culvert_seq *seq = entry->seq;
        units -= entry->units;
        if (budget && units <= culvert__units_low(s))
            return n;
        if (gives_slots(entry, slots) || culvert__graphs_wanted(entry))
            return n;
        if (seq->last_entry == n && seq->state == CULVERT__SEQ_WHOLE && seq->future != NULL &&
            (memory || culvert__awaited(&seq->future->base)))
            return n;
    }
    return s->enq - 1; /* ev_run must return when work ends; keeps and buffers go */
}

/* ---- settling ---- */

static void note_latency(culvert_stream *s, uint64_t submitted, uint64_t now)
{
    double took = now > submitted ? (double)(now - submitted) : 0;
    double most = 8e9 * culvert__loop_options(s->gpu->loop)->spin_seconds;
    if (took > most)
        took = most;
    s->latency = s->latency == 0 ? took : s->latency * 0.75 + took * 0.25;
    if (s->spin_end != 0)
        s->spins_lost = 0; /* it came while the loop was spinning for it */
    s->spin_end = 0;
}

static void settle_entry(culvert_stream *s, uint64_t now)
{
    culvert__entry *entry = culvert__entry_at(s, s->seen);
    culvert__bucket(culvert__gpu_core(s->gpu)->counters.latency,
                    now > entry->submitted ? now - entry->submitted : 0);
    culvert_seq *seq = entry->seq;
    culvert__event_give(s->gpu, entry->event, false);
    culvert__units_give(s, entry->units);
    culvert__staging_complete(s, entry);
    culvert__graphs_over(entry);
    s->seen++;
    seq->entries--;
    culvert__seq_try_settle(seq);
}

/* ---- querying ---- */

/* To ask a stream that is being captured would spoil the capture, and would tell nothing. */
static int query_stream(culvert_stream *s)
{
    int status = CULVERT__CU_STREAM_CAPTURE_STATUS_NONE;
    int r = s->exposed ? s->gpu->drv->cuStreamIsCapturing(s->native, &status) : 0;
    if (r == CULVERT__CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || /* the legacy stream, and another's */
        (r == 0 && status != CULVERT__CU_STREAM_CAPTURE_STATUS_NONE))
        return CULVERT__CUDA_ERROR_NOT_READY;
    return s->gpu->drv->cuStreamQuery(s->native);
}

/* One without an event is over when a later one is; the stream is asked where there is none behind it. */
static int query(culvert_stream *s, uint64_t number)
{
    const culvert__driver *drv = s->gpu->drv;
    culvert__gpu_core(s->gpu)->counters.queries++;
    culvert__call_next(s->gpu->flow,
                       "cuEventQuery"); /* the call before may have been another one */
    for (uint64_t n = number; n < s->enq; n++) {
        struct CUevent_st *event = culvert__entry_at(s, n)->event;
        if (event != NULL)
            return drv->cuEventQuery(event);
    }
    return query_stream(s);
}

/* Events of entries before `number` are about to go back to the pool, and to be recorded anew: the
   completion thread must not ask them any more. */
static void watch_ends(culvert_stream *s, uint64_t number)
{
    if (s->watch.out && s->watch.target < number)
        culvert__watch_end(s);
}

/* No answer, yet not a sticky error: that event will never tell. What is behind it will. */
static void query_failed(culvert_stream *s, uint64_t number, int result)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__gpu_result(s->gpu, result, true, "cuEventQuery", "culvert_seq_submit", NULL, &err);
    if (culvert__device_is_lost(s->gpu->device))
        return;
    while (number < s->enq && culvert__entry_at(s, number)->event == NULL)
        number++; /* the one that was asked */
    if (number == s->enq)
        return;
    culvert__entry *entry = culvert__entry_at(s, number);
    culvert__seq_fail_with(entry->seq, &err);
    watch_ends(s, number + 1);
    culvert__event_give(s->gpu, entry->event, false);
    entry->event = NULL;
}

/* The number behind the last entry that is complete: at most POLL_MAX from `seen`. */
static uint64_t gallop(culvert_stream *s)
{
    uint64_t end = s->enq, done = s->seen, next = s->seen, step = 1;
    if (end > s->seen + POLL_MAX)
        end = s->seen + POLL_MAX;
    while (done < end) {
        int r = query(s, next);
        if (r == CULVERT__CUDA_SUCCESS) {
            step = next == s->seen ? 1 : step * 2;
            done = next + 1;
        } else if (r != CULVERT__CUDA_ERROR_NOT_READY) {
            query_failed(s, next, r);
            break;
        } else if (next == done) {
            break; /* the very next one is not: that is the boundary */
        } else {
            step = 1;
        }
        next = done + step - 1 < end - 1 ? done + step - 1 : end - 1;
    }
    return done;
}

/* True: there may be more at once. The caller holds the stream. */
static bool poll_stream(culvert_stream *s)
{
    if (s->seen == s->enq)
        return false;
    uint64_t end = gallop(s);
    if (end == s->seen || culvert__device_is_lost(s->gpu->device))
        return false;
    uint64_t count = end - s->seen;
    uint64_t now = culvert__now();
    note_latency(s, culvert__entry_at(s, end - 1)->submitted, now);
    watch_ends(s, end);
    while (s->seen < end)
        settle_entry(s, now);
    culvert__stream_pump(s);
    return count >= POLL_MAX && s->seen != s->enq;
}

/* I5 */
static bool armed(const culvert_stream *s)
{
    if (s->watch.out)
        return s->watch.target <= want(s);
    return s->arm != NULL && !s->gpu->flow->late && s->arm_target >= s->seen &&
           s->arm_target <= want(s);
}

/* ---- the watchdog ---- */

static void watch_arm(culvert_stream *s, uint64_t now)
{
    culvert__flow *flow = s->gpu->flow;
    if (s->arm == NULL || s->arm_target >= s->seen || flow->late)
        return;
    if (s->arm_done == 0) {
        s->arm_done = now;
    } else if (now - s->arm_done > late_ns) {
        flow->late = true;
        flow->late_count++;
        bool thread = culvert__completion_thread_join(s->gpu) == 0;
        culvert__loop_log(s->gpu->loop, CULVERT_LOG_WARNING,
                          "device %d: a host function has not run for %.0f ms after its event: "
                          "something else's host function holds the driver's thread; %s until it "
                          "comes",
                          s->gpu->device->ordinal, (double)(now - s->arm_done) / 1e6,
                          thread ? "a thread looks" : "looking every millisecond");
    }
}

static void watch_oldest(culvert__flow *flow)
{
    uint64_t oldest = 0;
    const culvert_seq *seq = NULL;
    for (culvert__link *l = flow->busy.next; l != &flow->busy; l = l->next) {
        const culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, busy);
        if (s->seen == s->enq)
            continue;
        const culvert__entry *entry = &s->ring[s->seen % CULVERT__STREAM_RING];
        if (seq != NULL && entry->submitted >= oldest)
            continue;
        oldest = entry->submitted;
        seq = entry->seq;
    }
    if (seq != NULL) { /* static strings: the monitor looks whenever it likes */
        atomic_store_explicit(&flow->oldest_what, culvert__seq_name(seq), memory_order_relaxed);
        atomic_store_explicit(&flow->oldest_where, culvert__seq_where(seq), memory_order_relaxed);
    }
    atomic_store_explicit(&flow->oldest, oldest, memory_order_relaxed);
}

static bool watchdog_due(culvert__flow *flow, uint64_t now)
{
    if (now - flow->watchdog < watchdog_ns)
        return false;
    flow->watchdog = now;
    return true;
}

/* ---- the source ---- */

static bool idle(const culvert_stream *s)
{
    return s->seen == s->enq && culvert__list_empty(&s->queue);
}

bool culvert__completion_poll(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    bool more = false, watch = false;
    if (culvert__list_empty(&flow->busy) || culvert__device_is_lost(gpu->device))
        return false;
    uint64_t now = culvert__now();
    watch = watchdog_due(flow, now);
    culvert__gpu_ref(gpu);
    culvert__visit visit = culvert__driver_enter(gpu, "cuEventQuery");
    for (culvert__link *l = flow->busy.next, *next; l != &flow->busy; l = next) {
        next = l->next;
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, busy);
        if (culvert__device_is_lost(gpu->device))
            break;
        s->refs++; /* its last sequence may hold the last reference */
        if (s->seen != s->enq && (watch || !armed(s)))
            more |= poll_stream(s);
        if (watch)
            watch_arm(s, now);
        if (idle(s) && culvert__linked(&s->busy))
            culvert__list_unlink(&s->busy);
        culvert__stream_put(s);
    }
    if (watch || culvert__list_empty(&flow->busy))
        watch_oldest(flow);
    culvert__budget_feed(gpu);
    more |= culvert__staging_grow(gpu);
    culvert__driver_leave(gpu, visit);
    culvert__gpu_unref(gpu);
    return more;
}

static bool should_spin(culvert_stream *s, uint64_t wanted, uint64_t now)
{
    const culvert_loop_options *options = culvert__loop_options(s->gpu->loop);
    double most = options->spin_seconds * 1e9;
    if (options->wake != CULVERT_WAKE_ADAPTIVE || s->spins_skip > 0 || s->latency > most)
        return false;
    if (s->spin_end == 0) {
        double expect = s->latency == 0 ? most : 2 * s->latency;
        uint64_t until = culvert__entry_at(s, wanted)->submitted + (uint64_t)expect;
        uint64_t latest = now + (uint64_t)most;
        if (until <= now)
            return false; /* overdue already: that is no spin that was lost */
        s->spin_end = until < latest ? until : latest;
    }
    return now < s->spin_end;
}

/* The stream's spin (if it had one) ended without a result. */
static void spin_lost(culvert_stream *s)
{
    if (s->spins_skip > 0) {
        s->spins_skip--;
        return;
    }
    if (s->spin_end == 0)
        return;
    s->spin_end = 0;
    if (++s->spins_lost >= SPINS_LOST) {
        s->spins_lost = 0;
        s->spins_skip = SPINS_SKIPPED;
    }
}

/* False: only a look after a millisecond will tell. */
static bool ensure_armed(culvert_stream *s, bool *newly)
{
    const culvert__flow *flow = s->gpu->flow;
    bool own = culvert__loop_options(s->gpu->loop)->wake == CULVERT_WAKE_THREAD;
    uint64_t wanted = want(s);
    *newly = false;
    if (flow->late || own)
        return flow->thread != NULL && culvert__watch_set(s, wanted, newly);
    if (s->watch.out) { /* from the time when host functions were late */
        if (s->watch.target <= wanted)
            return true;
        culvert__watch_end(s);
        if (s->watch.out)
            return true; /* its post is on its way */
    }
    if (s->arm != NULL)
        return s->arm_target <= wanted;
    spin_lost(s);
    *newly = culvert__arm(s, wanted);
    return *newly;
}

/* Is anything in the driver, so that CULVERT_WAKE_SPIN does not sleep? */
static bool spins(culvert_gpu *gpu)
{
    const culvert__flow *flow = gpu->flow;
    if (culvert__loop_options(gpu->loop)->wake != CULVERT_WAKE_SPIN)
        return false;
    for (const culvert__link *l = flow->busy.next; l != &flow->busy; l = l->next) {
        const culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, busy);
        if (s->seen != s->enq)
            return true;
    }
    return false;
}

static bool some_spin(culvert_gpu *gpu)
{
    culvert__flow *flow = gpu->flow;
    uint64_t now = culvert__now();
    for (culvert__link *l = flow->busy.next; l != &flow->busy; l = l->next) {
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, busy);
        if (s->seen != s->enq && s->arm == NULL && !s->watch.out && should_spin(s, want(s), now))
            return true;
    }
    return false;
}

double culvert__completion_before_sleep(culvert_gpu *gpu, bool may_spin)
{
    culvert__flow *flow = gpu->flow;
    bool tick = false, in_flight = false, moved = false;
    if (culvert__list_empty(&flow->busy) || culvert__device_is_lost(gpu->device))
        return INFINITY; /* lost: what rejects it all is a post */
    if (spins(gpu) || (may_spin && some_spin(gpu))) {
        culvert__gpu_core(gpu)->counters.spins++;
        return 0;
    }
    culvert__gpu_ref(gpu);
    culvert__visit visit = culvert__driver_enter(gpu, "cuEventQuery");
    for (culvert__link *l = flow->busy.next, *next; l != &flow->busy; l = next) {
        next = l->next;
        culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, busy);
        bool newly;
        if (s->seen == s->enq)
            continue;
        in_flight = true;
        s->refs++;
        tick |= !ensure_armed(s, &newly);
        if (newly) { /* it may have ended meanwhile: an arm on a finished event fires late */
            uint64_t seen = s->seen;
            (void)poll_stream(s);
            moved |= s->seen != seen;
        }
        culvert__stream_put(s);
    }
    culvert__driver_leave(gpu, visit);
    culvert__gpu_unref(gpu);
    if (moved)
        return 0; /* what the other streams are armed for may be too late now */
    if (tick) {
        culvert__gpu_core(gpu)->counters.ticks++;
        return tick_seconds;
    }
    return in_flight ? watchdog_seconds : INFINITY;
}
