/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building the launch of a graph: what it binds is checked as the operation itself was, and copied into
 * the arena of the sequence that launches.
 *
 * Invariant: graph->marks of this serial name what this launch has bound so far, so that any number of
 * binds, in any order, takes time in proportion to them.
 */
#include "gpu/graph.h"

#include <string.h>

static const char op_name[] = "culvert_seq_graph";

/* What all checks need. */
typedef struct request {
    culvert_seq *seq;
    culvert_graph *graph;
    const culvert_bind *bind;
    const char *where;
} request;

#define FAIL(r, ...) culvert__seq_fail((r)->seq, CULVERT_EINVAL, op_name, (r)->where, __VA_ARGS__)

/* ---- copies and fills ---- */

static const char *side_name(unsigned index)
{
    return index == 0 ? "destination" : "source";
}

static bool fail_kind(const request *r, const culvert__place *was)
{
    FAIL(r, "bind of operation %u: its %s was compiled as %s memory, and must stay that",
         r->bind->op, side_name(r->bind->index), was->host ? "host" : "device");
    return false;
}

/* One node copies over no seam of memory that was registered in pieces. */
static bool check_seam(const request *r, size_t bytes, size_t seam, uintptr_t address)
{
    size_t run = culvert__seam_run(seam, address, bytes);
    if (run == bytes)
        return true;
    FAIL(r,
         "bind of operation %u: its %s, %zu bytes, goes over the end of a piece after %zu: that "
         "memory was registered in pieces of %zu bytes",
         r->bind->op, side_name(r->bind->index), bytes, run, seam);
    return false;
}

static bool bind_buffer(const request *r, size_t bytes, culvert__place *place)
{
    culvert_buffer *buffer = r->bind->value.buffer;
    size_t offset = r->bind->value.offset;
    if (buffer == NULL) {
        FAIL(r, "bind of operation %u: its %s is no buffer (NULL)", r->bind->op,
             side_name(r->bind->index));
        return false;
    }
    if (!culvert__seq_check_buffer(r->seq, buffer, "bind", op_name, r->where, offset, bytes))
        return false;
    if ((buffer->data != NULL) != place->host)
        return fail_kind(r, place);
    place->at = (place->host ? (uintptr_t)buffer->data : buffer->address) + offset;
    return check_seam(r, bytes, buffer->seam, (uintptr_t)buffer->address + offset) &&
           culvert__seq_hold_buffer(r->seq, buffer);
}

static bool bind_host(const request *r, size_t bytes, culvert__place *place)
{
    const void *data = r->bind->value.data;
    culvert_buffer *owner;
    size_t seam;
    if (!place->host)
        return fail_kind(r, place);
    if (!culvert__pinned_find(r->seq->gpu->memory, data, bytes, &seam, &owner)) {
        FAIL(r,
             "bind of operation %u: its %s, %zu bytes at %p, is not in a host buffer: a graph "
             "copies pinned memory only",
             r->bind->op, side_name(r->bind->index), bytes, data);
        return false;
    }
    place->at = (uintptr_t)data;
    bool held = owner == NULL || culvert__seq_hold_buffer(r->seq, owner);
    culvert_buffer_unref(owner);
    return held && check_seam(r, bytes, seam, (uintptr_t)data);
}

static bool bind_place(const request *r, size_t bytes, culvert__place *place)
{
    switch (r->bind->value.kind) {
    case CULVERT_ARG_BUFFER: return bind_buffer(r, bytes, place);
    case CULVERT_ARG_HOST: return bind_host(r, bytes, place);
    default:
        FAIL(r,
             "bind of operation %u: its %s is given by CULVERT_BUFFER, CULVERT_BUFFER_AT or "
             "CULVERT_HOST (not kind %u)",
             r->bind->op, side_name(r->bind->index), r->bind->value.kind);
        return false;
    }
}

static bool bind_copy(const request *r, culvert__action *a)
{
    if (r->bind->index > 1) {
        FAIL(r, "bind of operation %u: index %u of a copy; 0 is the destination, 1 the source",
             r->bind->op, r->bind->index);
        return false;
    }
    if (a->u.copy.height != 1) {
        FAIL(r, "bind of operation %u: the driver cannot change a pitched copy", r->bind->op);
        return false;
    }
    return bind_place(r, a->u.copy.width, r->bind->index == 0 ? &a->u.copy.dst : &a->u.copy.src);
}

static bool bind_fill(const request *r, culvert__action *a)
{
    culvert__place place = {
        .host = r->graph->nodes[r->graph->places[r->bind->op]].op->u.fill.dst->data != NULL};
    if (r->bind->index != 0) {
        FAIL(r, "bind of operation %u: index %u of a fill; 0 is the destination, the only one",
             r->bind->op, r->bind->index);
        return false;
    }
    if (r->bind->value.kind != CULVERT_ARG_BUFFER) {
        FAIL(r,
             "bind of operation %u: the destination of a fill is given by CULVERT_BUFFER or "
             "CULVERT_BUFFER_AT (not kind %u)",
             r->bind->op, r->bind->value.kind);
        return false;
    }
    if (r->bind->value.offset % a->u.fill.pattern_bytes != 0) {
        FAIL(r, "bind of operation %u: offset %zu is no multiple of the %u-byte pattern",
             r->bind->op, r->bind->value.offset, a->u.fill.pattern_bytes);
        return false;
    }
    if (!bind_buffer(r, a->u.fill.bytes, &place))
        return false;
    a->u.fill.dst = r->bind->value.buffer->address + r->bind->value.offset;
    return true;
}

/* ---- launches ---- */

static bool bind_launch(const request *r, culvert__action *a)
{
    const culvert__launch *l = a->u.launch.launch;
    void *value =
        culvert__launch_bind(r->seq, l, r->bind->index, &r->bind->value, op_name, r->where);
    if (value == NULL)
        return false;
    const culvert__node *node = &r->graph->nodes[r->graph->places[r->bind->op]];
    if (a->u.launch.params ==
        node->action.u.launch.params) { /* the first one: an array of its own */
        void **params = culvert__seq_arena(r->seq, l->nparams * sizeof *params);
        if (params == NULL)
            return false;
        memcpy(params, a->u.launch.params, l->nparams * sizeof *params);
        a->u.launch.params = params;
    }
    a->u.launch.params[r->bind->index] = value;
    return true;
}

/* ---- all of them ---- */

/* The node that is meant; NULL: there is none. */
static const culvert__node *node_of(const request *r)
{
    const culvert_graph *graph = r->graph;
    unsigned op = r->bind->op;
    if (op >= graph->nplaces) {
        FAIL(r, "bind of operation %u: the graph has %zu operation%s, numbered from 0", op,
             graph->nplaces, graph->nplaces == 1 ? "" : "s");
        return NULL;
    }
    if (graph->places[op] == CULVERT__PLACE_GRAPH) {
        FAIL(r, "bind of operation %u: it is a graph, whose arguments were bound when it was added",
             op);
        return NULL;
    }
    if (graph->places[op] == CULVERT__PLACE_PARTS) {
        FAIL(r,
             "bind of operation %u: it is several copies or fills, since memory of it was "
             "registered in pieces",
             op);
        return NULL;
    }
    if (graph->places[op] == CULVERT__PLACE_NOTHING) {
        FAIL(r, "bind of operation %u: it has nothing to do", op);
        return NULL;
    }
    return &graph->nodes[graph->places[op]];
}

/* What this launch has bound of it, first as it was compiled. */
static culvert__bound *bound_of(const request *r, const culvert__node *node, culvert__op *op)
{
    size_t number = (size_t)(node - r->graph->nodes);
    culvert__mark *mark = &r->graph->marks[number];
    if (mark->serial == r->graph->serial)
        return mark->bound;
    culvert__bound *b = culvert__seq_arena(r->seq, sizeof *b);
    if (b == NULL)
        return NULL;
    *b = (culvert__bound){op->u.graph.bound, number, node->action};
    op->u.graph.bound = b;
    *mark = (culvert__mark){r->graph->serial, b};
    return b;
}

static bool bind_one(const request *r, culvert__op *op)
{
    const culvert__node *node = node_of(r);
    if (node == NULL)
        return false;
    if (node->action.kind == CULVERT__ACT_CHILD) {
        FAIL(r, "bind of operation %u: it is a culvert_seq_call, which has nothing to be bound",
             r->bind->op);
        return false;
    }
    culvert__bound *b = bound_of(r, node, op);
    if (b == NULL)
        return false;
    switch (b->action.kind) {
    case CULVERT__ACT_COPY: return bind_copy(r, &b->action);
    case CULVERT__ACT_FILL: return bind_fill(r, &b->action);
    default: return bind_launch(r, &b->action);
    }
}

/* Both sides of a copy may have been bound. */
static bool check_overlaps(culvert_seq *seq, const culvert__op *op, const culvert_graph *graph)
{
    for (const culvert__bound *b = op->u.graph.bound; b != NULL; b = b->next) {
        const culvert__action *a = &b->action;
        if (a->kind != CULVERT__ACT_COPY)
            continue;
        unsigned long long dst = a->u.copy.dst.at, src = a->u.copy.src.at;
        if (dst >= src + a->u.copy.width || src >= dst + a->u.copy.width)
            continue;
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, op->where,
                          "bind of operation %zu: a copy of %zu bytes overlaps, %llu bytes apart",
                          graph->nodes[b->node].op->position, a->u.copy.width,
                          dst > src ? dst - src : src - dst);
        return false;
    }
    return true;
}

static bool fits(culvert_seq *seq, const culvert_graph *graph, const char *where)
{
    const culvert__device *device = seq->gpu->device;
    if (graph->gpu->device != device) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "the graph was compiled for device %d, or another context of it; the "
                          "stream is of device %d",
                          graph->gpu->device->ordinal, device->ordinal);
        return false;
    }
    if (graph->gpu->loop != seq->gpu->loop) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "the graph was compiled by another binding: each compiles its own");
        return false;
    }
    return true;
}

void culvert_seq_graph_at(const char *where, culvert_seq *seq, culvert_graph *graph,
                          const culvert_bind *binds, size_t nbinds)
{
    if (culvert__seq_passes(seq, op_name))
        return;
    CULVERT__REQUIRE(graph, op_name, "graph");
    if (!fits(seq, graph, where))
        return;
    if (binds == NULL && nbinds != 0) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where, "binds is NULL for %zu binds",
                          nbinds);
        return;
    }
    culvert__op *op = culvert__op_new(seq, CULVERT__OP_GRAPH, graph->weight, where);
    if (op == NULL || !culvert__seq_hold_graph(seq, graph))
        return;
    op->u.graph.graph = graph;
    graph->serial++;
    for (size_t i = 0; i < nbinds; i++) {
        const request r = {seq, graph, &binds[i], where};
        if (!bind_one(&r, op))
            return;
    }
    if (check_overlaps(seq, op, graph))
        culvert__op_add(seq, op);
}
