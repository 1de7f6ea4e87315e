/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a metrics page shows of a binding: counters that the layers below keep, and what there is now of
 * each device.
 */
#include "culvert/trace.h"

#include "gpu/flow.h"

#include <string.h>

_Static_assert(CULVERT_STATS_BUCKETS == CULVERT__BUCKETS, "the histograms are copied");
_Static_assert(CULVERT__OP_GRAPH + 1 == CULVERT__OP_KINDS, "every kind is counted");

static void copy_counters(const culvert__counters *c, culvert_loop_statistics *out)
{
    const uint64_t *op = c->operations;
    out->turns = c->turns;
    out->spins = c->spins;
    out->sleeps = c->sleeps;
    out->ticks = c->ticks;
    out->host_function_wakes = c->host_function_wakes;
    out->thread_wakes = c->thread_wakes;
    out->queries = c->queries;
    out->submitted = c->submitted;
    out->resolved = c->resolved;
    out->rejected = c->rejected;
    out->canceled = c->canceled;
    out->uploads = op[CULVERT__OP_UPLOAD];
    out->downloads = op[CULVERT__OP_DOWNLOAD];
    out->copies = op[CULVERT__OP_COPY] + op[CULVERT__OP_COPY2D];
    out->fills = op[CULVERT__OP_FILL];
    out->launches = op[CULVERT__OP_LAUNCH];
    out->graphs = op[CULVERT__OP_GRAPH];
    out->calls = op[CULVERT__OP_CALL];
    out->longest_stall_seconds = (double)c->longest_ns * 1e-9;
    memcpy(out->latency, c->latency, sizeof out->latency);
    memcpy(out->stalls, c->stalls, sizeof out->stalls);
}

static void add_gpu(culvert_gpu *gpu, culvert_loop_statistics *out)
{
    culvert__flow *flow = gpu->flow;
    for (culvert__link *l = flow->streams.next; l != &flow->streams; l = l->next) {
        const culvert_stream *s = CULVERT__CONTAINER(l, culvert_stream, all);
        out->streams++;
        out->in_flight += s->in_flight;
        out->queued += s->queued;
    }
    out->device_bytes += culvert__heap_taken(gpu->memory->local);
    out->device_bytes_used += culvert__heap_used(gpu->memory->local);
    out->pinned_bytes += culvert__heap_taken(gpu->memory->pinned);
    out->pinned_bytes_used += culvert__heap_used(gpu->memory->pinned);
    out->events += flow->events.made + flow->timed_events.made;
    out->events_free += flow->events.nfree + flow->timed_events.nfree;
    out->late_host_functions += flow->late_count;
    out->gpus++;
}

int culvert_loop_stats(culvert_loop *loop, culvert_loop_statistics *out)
{
    static const char call[] = "culvert_loop_stats";
    culvert_loop_statistics all = {0};
    CULVERT__REQUIRE(out, call, "out");
    if (culvert__forked())
        return CULVERT_EFORKED;
    CULVERT__REQUIRE(loop, call, "loop");
    culvert__check_thread(culvert__core_of(loop), call);
    size_t size = out->struct_size;
    if (size < sizeof out->struct_size || size > sizeof *out)
        return CULVERT_EINVAL;
    copy_counters(&culvert__core_of(loop)->counters, &all);
    for (culvert__source *s = NULL; (s = culvert__source_next(loop, s)) != NULL;)
        add_gpu((culvert_gpu *)(void *)s, &all); /* a source is the first member of a gpu */
    all.struct_size = size;
    memcpy(out, &all, size);
    return CULVERT_OK;
}
