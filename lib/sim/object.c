/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * object.c: the storage behind handles.
 *
 * Invariants: a handle is the address of a struct that starts with a struct sim_object. Its storage
 * is never given back to malloc, only kept in a graveyard and used again after MANY_FREED others of
 * its kind, so looking at a stale handle is safe and mostly tells that it is stale.
 *
 *     new -> live -- close (the program's handle ends) --> closed -- free --> graveyard -> new
 */
#include "sim/engine.h"
#include "sim/graph.h"
#include "sim/memory.h"
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

enum { MANY_FREED = 256 };

#define MAGIC_LIVE   0x51ee7a11u
#define MAGIC_CLOSED 0x0dead0bdu
#define MAGIC_GONE   0x0dead0c7u /* closed with its context */

static struct graveyard {
    struct sim_object *first, *last;
    unsigned n;
} graveyards[SIM_OBJECT_KINDS];

static uint64_t live[SIM_OBJECT_KINDS];

static const size_t sizes[SIM_OBJECT_KINDS] = {
    [SIM_CONTEXT] = sizeof(struct CUctx_st),        [SIM_STREAM] = sizeof(struct CUstream_st),
    [SIM_EVENT] = sizeof(struct CUevent_st),        [SIM_MODULE] = sizeof(struct CUmod_st),
    [SIM_FUNCTION] = sizeof(struct CUfunc_st),      [SIM_GRAPH] = sizeof(struct CUgraph_st),
    [SIM_NODE] = sizeof(struct CUgraphNode_st),     [SIM_EXEC] = sizeof(struct CUgraphExec_st),
    [SIM_POOL] = sizeof(struct CUmemPoolHandle_st),
};

static const char *const names[SIM_OBJECT_KINDS] = {
    [SIM_CONTEXT] = "context", [SIM_STREAM] = "stream",         [SIM_EVENT] = "event",
    [SIM_MODULE] = "module",   [SIM_FUNCTION] = "function",     [SIM_GRAPH] = "graph",
    [SIM_NODE] = "graph node", [SIM_EXEC] = "executable graph", [SIM_POOL] = "memory pool",
};

void culvert__sim_object_init(struct sim_object *o, enum sim_object_kind kind)
{
    o->magic = MAGIC_LIVE;
    o->kind = kind;
    live[kind]++;
}

static void close_as(struct sim_object *o, uint32_t magic)
{
    if (o->magic != MAGIC_LIVE)
        return;
    o->magic = magic;
    live[o->kind]--;
}

void culvert__sim_object_close(struct sim_object *o)
{
    close_as(o, MAGIC_CLOSED);
}

void culvert__sim_object_gone(struct sim_object *o)
{
    close_as(o, MAGIC_GONE);
}

void *culvert__sim_object_new(enum sim_object_kind kind)
{
    struct graveyard *g = &graveyards[kind];
    struct sim_object *o;
    if (g->n > MANY_FREED) {
        o = g->first;
        g->first = o->next;
        g->n--;
        memset(o, 0, sizes[kind]);
    } else {
        o = calloc(1, sizes[kind]);
        if (!o)
            return NULL;
    }
    culvert__sim_object_init(o, kind);
    return o;
}

void culvert__sim_object_free(struct sim_object *o)
{
    culvert__sim_object_close(o);
    struct graveyard *g = &graveyards[o->kind];
    o->next = NULL;
    if (g->n == 0)
        g->first = o;
    else
        g->last->next = o;
    g->last = o;
    g->n++;
}

bool culvert__sim_object_check(const void *handle, enum sim_object_kind kind, int *result)
{
    const struct sim_object *o = handle;
    *result = CULVERT__CUDA_ERROR_INVALID_HANDLE;
    if (!o)
        return false;
    if (o->magic == MAGIC_LIVE && o->kind == kind)
        return true;
    if (o->magic == MAGIC_CLOSED)
        culvert__sim_violation("%s: %s %p was destroyed", culvert__sim_current_call(), names[kind],
                               handle);
    if (o->magic == MAGIC_GONE)
        *result = CULVERT__CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return false;
}

uint64_t culvert__sim_object_live(enum sim_object_kind kind)
{
    return live[kind];
}
