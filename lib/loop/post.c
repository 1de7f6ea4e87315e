/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hub: posts from any thread, and what travels in them.
 *
 *   open --refuse--> closing (culvert_post, post_resolve ... refused) --close--> closed (all)
 *
 * Invariants:
 *   - a node is on the stack at most once; its poster does not touch it after the push;
 *   - the stack is emptied as a whole and run oldest first, so the posts of one thread keep their
 *     order;
 *   - the thread that makes the stack non-empty sends, so nothing waits on a sleeping loop; all
 *     others need not, so sends are few;
 *   - posting takes no lock and allocates nothing.
 */
#include "future/promise.h"
#include "loop/binding.h"

#include <sched.h>
#include <stdlib.h>

static void on_async(struct ev_loop *ev, ev_async *w, int revents)
{
    /* It only wakes the loop: prepare and check drain. */
    (void)ev;
    (void)w;
    (void)revents;
}

culvert__hub *culvert__hub_new(struct ev_loop *ev)
{
    culvert__hub *hub = malloc(sizeof *hub);

    if (hub == NULL)
        return NULL;
    atomic_init(&hub->head, NULL);
    atomic_init(&hub->pins, 0);
    atomic_init(&hub->closing, false);
    atomic_init(&hub->closed, false);
    atomic_init(&hub->refs, 1);
    hub->ev = ev;
    ev_async_init(&hub->async, on_async);
    ev_set_priority(&hub->async, EV_MAXPRI);
    return hub;
}

culvert__hub *culvert__hub_ref(culvert__hub *hub)
{
    atomic_fetch_add_explicit(&hub->refs, 1, memory_order_relaxed);
    return hub;
}

void culvert__hub_unref(culvert__hub *hub)
{
    if (atomic_fetch_sub(&hub->refs, 1) == 1)
        free(hub);
}

culvert__hub *culvert__loop_hub(culvert_loop *loop)
{
    return loop->hub;
}

static int push(culvert__hub *hub, culvert__post *post, const atomic_bool *gate)
{
    int result = CULVERT_ESHUTDOWN;

    /* Asked before the pin as well: threads that go on posting must not keep the hub from
       closing. */
    if (atomic_load(gate))
        return result;
    atomic_fetch_add(&hub->pins, 1);
    if (!atomic_load(gate)) {
        culvert__post *head = atomic_load_explicit(&hub->head, memory_order_relaxed);

        do
            post->next = head;
        while (!atomic_compare_exchange_weak(&hub->head, &head, post));
        if (head == NULL)
            ev_async_send(hub->ev, &hub->async);
        result = CULVERT_OK;
    }
    atomic_fetch_sub(&hub->pins, 1);
    return result;
}

int culvert__hub_post(culvert__hub *hub, culvert__post *post)
{
    return push(hub, post, &hub->closed);
}

/* The posts that are there, the oldest first. */
static culvert__post *take_all(culvert__hub *hub)
{
    if (!culvert__hub_waiting(hub))
        return NULL;
    culvert__post *newest = atomic_exchange(&hub->head, NULL), *list = NULL;

    while (newest != NULL) {
        culvert__post *next = newest->next;

        newest->next = list;
        list = newest;
        newest = next;
    }
    return list;
}

void culvert__hub_drain(culvert_loop *loop)
{
    culvert__post *list = take_all(loop->hub);

    loop->posted = false;
    if (list == NULL)
        return;
    culvert__enter(&loop->core); /* a node may release something of the user's */
    while (list != NULL) {
        culvert__post *post = list;

        list = post->next;
        post->run(post);
    }
    culvert__leave(&loop->core);
}

void culvert__hub_refuse(culvert__hub *hub)
{
    atomic_store(&hub->closing, true);
}

void culvert__hub_close(culvert_loop *loop)
{
    culvert__hub *hub = loop->hub;

    atomic_store(&hub->closing, true);
    atomic_store(&hub->closed, true);
    while (atomic_load(&hub->pins) != 0)
        sched_yield();
    culvert__hub_drain(loop);
}

/* ---- culvert_post ---- */

typedef struct call {
    culvert__post post;
    culvert__task task;
    culvert__core *core;
    void (*fn)(void *arg);
    void *arg;
    culvert_free_fn *arg_free;
} call;

static void call_run(culvert__task *task)
{
    call *c = CULVERT__CONTAINER(task, call, task);

    if (!culvert__forked())
        c->fn(c->arg);
    if (c->arg_free != NULL)
        c->arg_free(c->arg);
    free(c);
}

static void call_posted(culvert__post *post)
{
    call *c = CULVERT__CONTAINER(post, call, post);

    culvert__ready_push(c->core, &c->task);
}

/* On the loop's thread, outside of the prepare-to-check window, nothing else would keep it
   alive. */
static void posted_here(culvert_loop *loop)
{
    loop->posted = true;
    culvert__loop_resume(loop);
    culvert__loop_balance(loop);
}

int culvert_post(culvert_loop *loop, void (*fn)(void *arg), void *arg, culvert_free_fn *arg_free)
{
    CULVERT__REQUIRE(loop, "culvert_post", "loop");
    CULVERT__REQUIRE(fn, "culvert_post", "fn");
    if (culvert__forked()) {
        culvert__release_arg(NULL, arg_free, arg);
        return CULVERT_EFORKED;
    }
    const bool here = culvert__is_owner(&loop->core);
    int result = CULVERT_ENOMEM;
    call *c = malloc(sizeof *c);

    if (c != NULL) {
        *c = (call){.post.run = call_posted,
                    .task.run = call_run,
                    .core = &loop->core,
                    .fn = fn,
                    .arg = arg,
                    .arg_free = arg_free};
        result = push(loop->hub, &c->post, &loop->hub->closing);
    }
    if (result != CULVERT_OK) {
        free(c);
        culvert__release_arg(here ? &loop->core : NULL, arg_free, arg);
    } else if (here) {
        posted_here(loop);
    }
    return result;
}

/* ---- promises ---- */

static void outcome_release(culvert_promise *p)
{
    if (p->value_free != NULL)
        p->value_free(p->value);
    free(p->error);
}

static void outcome_posted(culvert__post *post)
{
    culvert_promise *p = CULVERT__CONTAINER(post, culvert_promise, post);

    if (culvert__forked())
        outcome_release(p);
    else if (p->rejects)
        culvert__settle_error_owned(&p->base, p->error, CULVERT_ENOMEM);
    else
        culvert__settle_value(&p->base, p->value, p->value_free);
    culvert__promise_stop_listening(p);
    culvert__promise_let_go(p);
}

/* The promise is consumed, with the outcome in it. */
static int post_outcome(culvert_promise *p)
{
    culvert_loop *loop = culvert__loop_of(p->base.core);
    const bool here = culvert__is_owner(&loop->core);

    p->post.run = outcome_posted;
    if (push(loop->hub, &p->post, &loop->hub->closing) == CULVERT_OK) {
        if (here)
            posted_here(loop); /* it has not been drained: this is the thread that does */
        return CULVERT_OK;
    }
    outcome_release(p);
    culvert__promise_let_go(p);
    return CULVERT_ESHUTDOWN;
}

int culvert_post_resolve(culvert_promise *promise, void *value, culvert_free_fn *value_free)
{
    CULVERT__REQUIRE(promise, "culvert_post_resolve", "promise");
    if (culvert__forked()) {
        culvert__release_arg(NULL, value_free, value);
        return CULVERT_EFORKED;
    }
    if (atomic_exchange(&promise->consumed, true)) {
        culvert__release_arg(NULL, value_free, value);
        return CULVERT_OK;
    }
    promise->value = value;
    promise->value_free = value_free;
    return post_outcome(promise);
}

int culvert_post_reject(culvert_promise *promise, const culvert_error *err)
{
    CULVERT__REQUIRE(promise, "culvert_post_reject", "promise");
    CULVERT__REQUIRE(err, "culvert_post_reject", "err");
    if (culvert__forked())
        return CULVERT_EFORKED;
    if (atomic_exchange(&promise->consumed, true))
        return CULVERT_OK;
    promise->rejects = true;
    promise->error = culvert__error_copy(err);
    return post_outcome(promise);
}

static void broken_posted(culvert__post *post)
{
    culvert_promise *p = CULVERT__CONTAINER(post, culvert_promise, post);

    if (!culvert__forked())
        culvert__promise_break(p);
    culvert__promise_stop_listening(p);
    culvert__promise_let_go(p);
}

void culvert_promise_drop(culvert_promise *promise)
{
    bool taken;

    if (promise == NULL || culvert__inherited(promise->base.core))
        return;
    culvert__core *core = promise->base.core;
    culvert_loop *loop = culvert__loop_of(core);

    if (atomic_exchange(&promise->consumed, true))
        return;
    if (culvert__own_begin(core, &taken)) {
        culvert_loop_ref(loop);
        culvert__promise_break(promise);
        culvert__promise_stop_listening(promise);
        culvert__reap(core);
        culvert__promise_let_go(promise);
        culvert__own_end(core, taken);
        culvert_loop_unref(loop);
        return;
    }
    promise->post.run = broken_posted;
    if (push(loop->hub, &promise->post, &loop->hub->closing) != CULVERT_OK)
        culvert__promise_let_go(promise);
}

/* ---- a child after fork ---- */

void culvert__hub_discard(culvert_loop *loop)
{
    culvert__post *list = take_all(loop->hub);

    atomic_store(&loop->hub->closing, true);
    atomic_store(&loop->hub->closed, true);
    culvert__enter(&loop->core);
    while (list != NULL) {
        culvert__post *post = list;

        list = post->next;
        if (post->run == call_posted)
            call_run(&CULVERT__CONTAINER(post, call, post)->task);
        else if (post->run == outcome_posted || post->run == broken_posted)
            post->run(post);
    }
    culvert__leave(&loop->core);
}
