/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets: all, all_settled, any, race. One allocation: the future, and a member and a waiter for each
 * child.
 *
 *   all          waits for every child; the first rejection takes the interest in the others away,
 *                which cancels those that nobody else wants, but still waits for each
 *   all_settled  waits for every child
 *   any, race    settle with the first that resolves / settles, and let go of the others at once
 *
 * Invariants:
 *   - each child is pinned until the set's memory goes, so that culvert_child stays valid;
 *   - `left` counts the children that have not been seen settled while the set is pending.
 */
#include "future/future_internal.h"

#include <stdlib.h>

typedef enum set_mode { ALL, ALL_SETTLED, ANY, RACE } set_mode;

typedef struct member {
    culvert__waiter w;
    struct set *set;
} member;

typedef struct set {
    culvert_future base;
    size_t n, left, winner;
    set_mode mode;
    culvert_future **children; /* behind the members */
    member members[];
} set;

static void set_cancel(culvert_future *);
static void set_destroy(culvert_future *);
static const culvert__kind set_kind = {.name = "set", .cancel = set_cancel, .destroy = set_destroy};

static const set *set_of(const culvert_future *f)
{
    return f->kind == &set_kind ? (const set *)(const void *)f : NULL;
}

static void let_go_of_all(set *s)
{
    for (size_t i = 0; i < s->n; i++)
        culvert__wait_cancel(&s->members[i].w);
}

static void set_cancel(culvert_future *f)
{
    set *s = CULVERT__CONTAINER(f, set, base);

    culvert__settle_canceled(f);
    let_go_of_all(s);
}

static void set_destroy(culvert_future *f)
{
    set *s = CULVERT__CONTAINER(f, set, base);

    for (size_t i = 0; i < s->n; i++)
        culvert__unpin(s->children[i]);
}

/* The set is decided by child i, whose outcome it takes. */
static void decided_by(set *s, size_t i)
{
    s->winner = i;
    culvert__settle_from(&s->base, s->children[i]);
    let_go_of_all(s);
}

static void all_saw(set *s, size_t i)
{
    if (s->mode == ALL && s->winner == SIZE_MAX && s->children[i]->status < 0) {
        s->winner = i;
        for (size_t k = 0; k < s->n; k++)
            culvert__wait_observe(&s->members[k].w);
    }
    if (s->left > 0)
        return;
    if (s->winner != SIZE_MAX)
        culvert__settle_from(&s->base, s->children[s->winner]);
    else
        culvert__settle_value(&s->base, NULL, NULL);
}

static void any_saw(set *s, size_t i)
{
    if (s->children[i]->status == CULVERT_OK)
        decided_by(s, i);
    else if (s->left == 0)
        culvert__settle_from(&s->base, s->children[i]);
}

static void child_settled(culvert__task *task)
{
    member *m = CULVERT__CONTAINER(task, member, w.task);
    set *s = m->set;
    const size_t i = (size_t)(m - s->members);

    s->left--;
    culvert__wait_end(&m->w);
    if (s->mode == RACE)
        decided_by(s, i);
    else if (s->mode == ANY)
        any_saw(s, i);
    else
        all_saw(s, i);
}

/* ---- making one ---- */

typedef struct call {
    const char *op, *where;
    set_mode mode;
    bool needs_one; /* an empty set is a mistake */
} call;

/* Every handle of the array is consumed; the result stands for them. */
static culvert_future *refuse(culvert__core *core, culvert_future *const *futures, size_t n,
                              culvert_future *result)
{
    for (size_t i = 0; i < n; i++) {
        culvert__core *its = futures[i]->core;

        culvert__unref(futures[i]);
        if (its != NULL && its != core)
            culvert__reap(its);
    }
    culvert__reap(core);
    return result;
}

/* While the binding is taken down: the first rejection there is, as culvert__future_refused; the others are
   losers. */
static culvert_future *refuse_closing(culvert__core *core, culvert_future *const *futures, size_t n)
{
    culvert_future *answer = NULL;

    for (size_t i = 0; i < n; i++) {
        if (answer == NULL && futures[i]->status < 0) {
            answer = futures[i];
            continue;
        }
        if (culvert__settled(futures[i]))
            futures[i]->looked = 1;
        culvert__unref(futures[i]);
    }
    culvert__reap(core);
    return answer != NULL ? answer : culvert__future_static(core, CULVERT_ESHUTDOWN);
}

static set *set_new(culvert__core *core, set_mode mode, size_t n)
{
    const size_t each = sizeof(member) + sizeof(culvert_future *);

    if (n > (SIZE_MAX - sizeof(set)) / each)
        return NULL;
    culvert_future *f = culvert__future_alloc(core, &set_kind, sizeof(set) + n * each);
    if (f == NULL)
        return NULL;
    set *s = CULVERT__CONTAINER(f, set, base);
    s->mode = mode;
    s->n = s->left = n;
    s->winner = SIZE_MAX;
    s->children = (culvert_future **)(void *)(s->members + n);
    return s;
}

static void set_fill(set *s, culvert_future *const *futures)
{
    for (size_t i = 0; i < s->n; i++) {
        s->children[i] = futures[i];
        culvert__pin(futures[i]);
    }
    for (size_t i = 0; i < s->n; i++) {
        s->members[i].set = s;
        s->members[i].w.task.run = child_settled;
        culvert__wait(futures[i], &s->members[i].w);
    }
}

static culvert_future *combine(const call *c, culvert_loop *loop, culvert_future *const *futures,
                               size_t n)
{
    CULVERT__REQUIRE(loop, c->op, "loop");
    if (n > 0)
        CULVERT__REQUIRE(futures, c->op, "futures");
    if (culvert__forked()) {
        for (size_t i = 0; i < n; i++)
            culvert__consume_forked(futures[i]);
        return culvert__future_static(NULL, CULVERT_EFORKED);
    }
    culvert__core *core = culvert__core_of(loop);
    culvert__check_thread(core, c->op);
    for (size_t i = 0; i < n; i++)
        CULVERT__REQUIRE(futures[i], c->op, "a future of the array");
    for (size_t i = 0; i < n; i++) {
        if (futures[i]->core != core) {
            return refuse(core, futures, n,
                          culvert__future_failed(core, CULVERT_EINVAL, 0, c->op, c->where,
                                                 "future %zu of %zu belongs to another loop", i,
                                                 n));
        }
    }
    if (core->closing)
        return refuse_closing(core, futures, n);
    if (n == 0 && c->needs_one) {
        return culvert__future_failed(core, CULVERT_EINVAL, 0, c->op, c->where,
                                      "the set is empty: nothing could settle it");
    }
    set *s = set_new(core, c->mode, n);
    if (s == NULL)
        return refuse(core, futures, n, culvert__future_static(core, CULVERT_ENOMEM));
    set_fill(s, futures);
    if (n == 0)
        culvert__settle_value(&s->base, NULL, NULL);
    return &s->base;
}

culvert_future *culvert_all_at(const char *where, culvert_loop *loop,
                               culvert_future *const *futures, size_t n)
{
    return combine(&(call){"culvert_all", where, ALL, false}, loop, futures, n);
}

culvert_future *culvert_all_settled_at(const char *where, culvert_loop *loop,
                                       culvert_future *const *futures, size_t n)
{
    return combine(&(call){"culvert_all_settled", where, ALL_SETTLED, false}, loop, futures, n);
}

culvert_future *culvert_any_at(const char *where, culvert_loop *loop,
                               culvert_future *const *futures, size_t n)
{
    return combine(&(call){"culvert_any", where, ANY, true}, loop, futures, n);
}

culvert_future *culvert_race_at(const char *where, culvert_loop *loop,
                                culvert_future *const *futures, size_t n)
{
    return combine(&(call){"culvert_race", where, RACE, true}, loop, futures, n);
}

culvert_future *culvert_all(culvert_loop *loop, culvert_future *const *futures, size_t n)
{
    return culvert_all_at(NULL, loop, futures, n);
}

culvert_future *culvert_all_settled(culvert_loop *loop, culvert_future *const *futures, size_t n)
{
    return culvert_all_settled_at(NULL, loop, futures, n);
}

culvert_future *culvert_any(culvert_loop *loop, culvert_future *const *futures, size_t n)
{
    return culvert_any_at(NULL, loop, futures, n);
}

culvert_future *culvert_race(culvert_loop *loop, culvert_future *const *futures, size_t n)
{
    return culvert_race_at(NULL, loop, futures, n);
}

/* ---- looking into one ---- */

culvert_future *culvert_child(const culvert_future *future, size_t i)
{
    CULVERT__REQUIRE(future, "culvert_child", "set");
    const set *s = set_of(future);

    if (future->core != NULL)
        culvert__check_thread(future->core, "culvert_child");
    return s != NULL && i < s->n ? s->children[i] : NULL;
}

size_t culvert_winner(const culvert_future *future)
{
    CULVERT__REQUIRE(future, "culvert_winner", "set");
    const set *s = set_of(future);

    if (future->core != NULL)
        culvert__check_thread(future->core, "culvert_winner");
    return s != NULL && culvert__settled(future) ? s->winner : SIZE_MAX;
}

culvert_future *const *culvert__all_children(const culvert_future *future, size_t *n)
{
    const set *s = set_of(future);

    if (s == NULL || s->mode != ALL) {
        *n = 0;
        return NULL;
    }
    *n = s->n;
    return s->children;
}
