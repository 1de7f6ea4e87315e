/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The staging workers: threads that run memcpy between slots and ordinary memory, nothing else: no
 * call of the driver, no code of the program's, no lock but their queue's (staging.md, D3).
 *
 * Invariants: a slot is `copying` from the moment it is given until its post has run on the loop;
 * nobody else touches its memory meanwhile. Started when first needed; all copies that were given
 * are made before the threads end.
 */
#define _GNU_SOURCE
#include "gpu/flow.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS = 2 };

struct culvert__copiers {
    pthread_mutex_t lock;
    pthread_cond_t more;
    culvert__slot *first, **end;
    pthread_t threads[THREADS];
    unsigned nthreads;
    unsigned waiting; /* threads with nothing to do */
    bool stop;
};

static void copy(culvert__slot *slot)
{
    if (slot->download)
        memcpy(slot->memory, slot->host, slot->bytes);
    else
        memcpy(slot->host, slot->memory, slot->bytes);
    (void)culvert__hub_post(slot->hub, &slot->post); /* refused: the loop is gone, and joins us */
}

static void *run(void *arg)
{
    culvert__copiers *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        culvert__slot *slot = c->first;
        if (slot == NULL && c->stop)
            break;
        if (slot == NULL) {
            c->waiting++;
            pthread_cond_wait(&c->more, &c->lock);
            c->waiting--;
            continue;
        }
        c->first = slot->job_next;
        if (c->first == NULL)
            c->end = &c->first;
        pthread_mutex_unlock(&c->lock);
        copy(slot);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

culvert__copiers *culvert__copiers_new(void)
{
    culvert__copiers *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->end = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    return c;
}

static bool start_thread(culvert__copiers *c)
{
    if (culvert__thread_start(&c->threads[c->nthreads], run, c, "culvert-copy") != 0)
        return false;
    c->nthreads++;
    return true;
}

bool culvert__copiers_give(culvert__copiers *c, culvert__hub *hub, culvert__slot *slot)
{
    slot->hub = hub;
    slot->job_next = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->waiting == 0 && c->nthreads < THREADS)
        (void)start_thread(c);
    bool ok = c->nthreads > 0;
    if (ok) {
        *c->end = slot;
        c->end = &slot->job_next;
        pthread_cond_signal(&c->more);
    }
    pthread_mutex_unlock(&c->lock);
    return ok;
}

void culvert__copiers_free(culvert__copiers *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->nthreads; i++)
        pthread_join(c->threads[i], NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->more);
    free(c);
}
