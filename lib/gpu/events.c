/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools of events, one of each kind a gpu (so one a context: an event is only recorded on streams of
 * the context it was made in).
 *
 * Invariant: an event in the pool is not waited for by an entry of ours. A notifier may still wait
 * for it: that wait took the record of the moment of its call, so recording it anew is safe
 * (completion.md, I1).
 */
#include "gpu/flow.h"

#include <stdlib.h>

static culvert__events *pool_of(culvert_gpu *gpu, bool timed)
{
    return timed ? &gpu->flow->timed_events : &gpu->flow->events;
}

/* Room for every event that was made, so that giving one back never fails. */
static bool make_room(culvert__events *pool, culvert_error *err)
{
    if (pool->made < pool->room)
        return true;
    size_t room = pool->room == 0 ? 64 : pool->room * 2;
    struct CUevent_st **more = realloc(pool->free, room * sizeof *more);
    if (more == NULL) {
        culvert__error_set(err, CULVERT_ENOMEM, 0, "culvert_seq_submit", NULL,
                           "no memory for a pool of %zu events", room);
        return false;
    }
    pool->free = more;
    pool->room = room;
    return true;
}

static struct CUevent_st *make(culvert_gpu *gpu, bool timed, culvert_error *err)
{
    culvert__events *pool = pool_of(gpu, timed);
    struct CUevent_st *event = NULL;
    if (!make_room(pool, err))
        return NULL;
    int r = gpu->drv->cuEventCreate(&event, timed ? CULVERT__CU_EVENT_DEFAULT
                                                  : CULVERT__CU_EVENT_DISABLE_TIMING);
    if (r != CULVERT__CUDA_SUCCESS) {
        culvert__gpu_result(gpu, r, false, "cuEventCreate", "culvert_seq_submit", NULL, err);
        return NULL;
    }
    pool->made++;
    return event;
}

struct CUevent_st *culvert__event_take(culvert_gpu *gpu, bool timed, culvert_error *err)
{
    culvert__events *pool = pool_of(gpu, timed);
    if (pool->nfree > 0)
        return pool->free[--pool->nfree];
    return make(gpu, timed, err);
}

void culvert__event_give(culvert_gpu *gpu, struct CUevent_st *event, bool timed)
{
    culvert__events *pool = pool_of(gpu, timed);
    if (event != NULL)
        pool->free[pool->nfree++] = event;
}

bool culvert__events_reserve(culvert_gpu *gpu, size_t n, culvert_error *err)
{
    while (gpu->flow->events.made < n) {
        struct CUevent_st *event = make(gpu, false, err);
        if (event == NULL)
            return false;
        culvert__event_give(gpu, event, false);
    }
    return true;
}

static void free_pool(culvert_gpu *gpu, culvert__events *pool, bool leak)
{
    for (size_t i = 0; i < pool->nfree && !leak; i++)
        (void)gpu->drv->cuEventDestroy(pool->free[i]);
    free(pool->free);
    *pool = (culvert__events){0};
}

void culvert__events_free(culvert_gpu *gpu, bool leak)
{
    free_pool(gpu, &gpu->flow->events, leak);
    free_pool(gpu, &gpu->flow->timed_events, leak);
}
