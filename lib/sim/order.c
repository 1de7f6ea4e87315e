/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * order.c: finds memory that one stream writes while another still uses it.
 *
 * Every stream has a slot, and every operation a number in its slot. The clock of a stream says, for
 * each slot, up to which number the operations there come before what is put on this stream next:
 * an event carries the clock of its stream at the record, and who waits for it takes the maximum of
 * the two. Two operations of which neither comes before the other, both of which are not over, and
 * of which at least one writes what the other uses, are a violation.
 *
 * Invariants: the trees hold the uses of all operations that are on a stream, one tree for those
 * that write and one for those that read; they are treaps by first address, each node with the
 * greatest last address below it. A clock that others refer to is copied before it is changed. The
 * numbers of a slot only grow, also when another stream gets it.
 */
#include "sim/memory.h"
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

/* A queue of uses of the same bytes can be long; only some of it is looked at. */
enum { LOOK_AT = 8 };

static struct sim_use *trees[2]; /* reads, writes */
static unsigned nuses;           /* in both */
static uint32_t random_state = 0x9e3779b9u;
static uint64_t *numbers; /* by slot */
static unsigned *free_slots;
static unsigned nslots, nfree, slots_room;

static uint32_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static void update(struct sim_use *u)
{
    u->max_last = u->last;
    if (u->left && u->left->max_last > u->max_last)
        u->max_last = u->left->max_last;
    if (u->right && u->right->max_last > u->max_last)
        u->max_last = u->right->max_last;
}

static bool before(const struct sim_use *a, const struct sim_use *b)
{
    return a->first != b->first ? a->first < b->first : (uintptr_t)a < (uintptr_t)b;
}

static struct sim_use *rotate_right(struct sim_use *u)
{
    struct sim_use *l = u->left;
    u->left = l->right;
    l->right = u;
    update(u);
    update(l);
    return l;
}

static struct sim_use *rotate_left(struct sim_use *u)
{
    struct sim_use *r = u->right;
    u->right = r->left;
    r->left = u;
    update(u);
    update(r);
    return r;
}

static struct sim_use *insert(struct sim_use *root, struct sim_use *u)
{
    if (!root)
        return u;
    if (before(u, root)) {
        root->left = insert(root->left, u);
        if (root->left->weight > root->weight)
            return rotate_right(root);
    } else {
        root->right = insert(root->right, u);
        if (root->right->weight > root->weight)
            return rotate_left(root);
    }
    update(root);
    return root;
}

static struct sim_use *merge(struct sim_use *a, struct sim_use *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->weight > b->weight) {
        a->right = merge(a->right, b);
        update(a);
        return a;
    }
    b->left = merge(a, b->left);
    update(b);
    return b;
}

static struct sim_use *erase(struct sim_use *root, const struct sim_use *u)
{
    if (root == u)
        return merge(root->left, root->right);
    if (before(u, root))
        root->left = erase(root->left, u);
    else
        root->right = erase(root->right, u);
    update(root);
    return root;
}

static bool comes_before(const struct sim_op *op, const struct CUstream_st *s)
{
    const struct CUstream_st *other = op->stream;
    if (other == s)
        return true;
    return s->clock && other->slot < s->clock->n && s->clock->at[other->slot] >= op->seq;
}

/* An operation that uses some of it and that nothing orders before what is put on s now. */
static const struct sim_use *unordered(const struct sim_use *root, uintptr_t first, uintptr_t last,
                                       const struct CUstream_st *s, unsigned *look)
{
    if (!root || root->max_last < first || *look == 0)
        return NULL;
    const struct sim_use *found = unordered(root->left, first, last, s, look);
    if (found || root->first > last)
        return found;
    if (root->last >= first) {
        --*look;
        if (!comes_before(root->op, s))
            return root;
    }
    return unordered(root->right, first, last, s, look);
}

static void check(const struct CUstream_st *s, const struct sim_op *op, const struct sim_use *u)
{
    for (int writes = u->write ? 0 : 1; writes < 2; writes++) {
        unsigned look = LOOK_AT;
        const struct sim_use *other = unordered(trees[writes], u->first, u->last, s, &look);
        if (!other)
            continue;
        culvert__sim_violation(
            "%s %s memory at %p before the end of its last use: %s on another stream %s %zu bytes "
            "at %p, and nothing orders the two",
            culvert__sim_function_name(op->call), u->write ? "writes" : "uses", (void *)u->first,
            culvert__sim_function_name(other->op->call), other->write ? "writes" : "uses",
            (size_t)(other->last - other->first + 1), (void *)other->first);
        return;
    }
}

static void add_use(struct sim_op *op, uintptr_t first, size_t bytes, bool write)
{
    if (op->nuses == SIM_OP_USES || bytes == 0)
        return;
    struct sim_use *u = &op->uses[op->nuses++];
    *u = (struct sim_use){.first = first,
                          .last = first + bytes - 1,
                          .max_last = first + bytes - 1,
                          .weight = next_random(),
                          .write = write,
                          .op = op};
}

static void uses_of_copy(struct sim_op *op, const struct sim_copy_work *c)
{
    size_t rows = c->height - 1, slices = c->depth - 1;
    add_use(op, (uintptr_t)c->dst, slices * c->dst_slice + rows * c->dst_pitch + c->width, true);
    if (!c->staged)
        add_use(op, (uintptr_t)c->src, slices * c->src_slice + rows * c->src_pitch + c->width,
                false);
}

static void uses_of_kernel(struct sim_op *op, const struct sim_kernel_work *k)
{
    const struct culvert_sim_kernel *kernel = k->function->kernel;
    for (size_t i = 0; i < kernel->nparams; i++) {
        uintptr_t address;
        if (kernel->param_sizes[i] != sizeof address)
            continue;
        memcpy(&address, (const char *)k->params + kernel->param_offsets[i], sizeof address);
        const struct sim_range *r = culvert__sim_range_find(address);
        if (r && (r->kind == SIM_RANGE_FREED || r->unused))
            culvert__sim_violation("%s: parameter %zu of %s points into freed memory at %p",
                                   culvert__sim_function_name(op->call), i, kernel->name,
                                   (void *)address);
        else if (r)
            add_use(op, address, 1, false);
    }
}

void culvert__sim_order_append(struct CUstream_st *s, struct sim_op *op)
{
    op->seq = ++numbers[s->slot];
    const struct sim_work *w = &op->work;
    if (w->kind == SIM_COPY)
        uses_of_copy(op, &w->u.copy);
    else if (w->kind == SIM_FILL)
        add_use(op, (uintptr_t)w->u.fill.dst,
                (w->u.fill.height - 1) * w->u.fill.pitch + w->u.fill.width * w->u.fill.element,
                true);
    else if (w->kind == SIM_KERNEL)
        uses_of_kernel(op, &w->u.kernel);
    /* The usual case: all that is in use is used by this stream. */
    for (unsigned i = 0; i < op->nuses && s->nuses < nuses; i++)
        check(s, op, &op->uses[i]);
    for (unsigned i = 0; i < op->nuses; i++) {
        struct sim_use *u = &op->uses[i];
        trees[u->write] = insert(trees[u->write], u);
    }
    s->nuses += op->nuses;
    nuses += op->nuses;
}

void culvert__sim_order_finish(struct sim_op *op)
{
    for (unsigned i = 0; i < op->nuses; i++) {
        struct sim_use *u = &op->uses[i];
        trees[u->write] = erase(trees[u->write], u);
    }
    op->stream->nuses -= op->nuses;
    nuses -= op->nuses;
    op->nuses = 0;
}

static bool in_tree(const struct sim_use *root, uintptr_t first, uintptr_t last)
{
    if (!root || root->max_last < first)
        return false;
    if (root->first <= last && root->last >= first)
        return true;
    return in_tree(root->left, first, last) || in_tree(root->right, first, last);
}

bool culvert__sim_in_use(uintptr_t first, size_t bytes)
{
    return in_tree(trees[0], first, first + bytes - 1) ||
           in_tree(trees[1], first, first + bytes - 1);
}

void culvert__sim_clock_unref(struct sim_clock *clock)
{
    if (clock && --clock->refs == 0)
        free(clock);
}

void culvert__sim_order_record(struct CUstream_st *s, struct sim_record *r)
{
    r->clock = s->clock;
    if (r->clock)
        r->clock->refs++;
    r->slot = s->slot;
    r->seq = numbers[s->slot];
}

/* The clock of s alone, with room for all slots. */
static struct sim_clock *own_clock(struct CUstream_st *s)
{
    struct sim_clock *old = s->clock;
    if (old && old->refs == 1 && old->n >= nslots)
        return old;
    struct sim_clock *clock = calloc(1, sizeof *clock + nslots * sizeof clock->at[0]);
    if (!clock)
        culvert__sim_misuse("out of memory");
    clock->refs = 1;
    clock->n = nslots;
    if (old)
        memcpy(clock->at, old->at, (old->n < nslots ? old->n : nslots) * sizeof clock->at[0]);
    culvert__sim_clock_unref(old);
    s->clock = clock;
    return clock;
}

static bool covers(const struct sim_clock *clock, unsigned slot, uint64_t number)
{
    return clock && slot < clock->n && clock->at[slot] >= number;
}

void culvert__sim_order_wait(struct CUstream_st *s, const struct sim_record *r)
{
    if (covers(s->clock, r->slot, r->seq))
        return; /* it has seen this or a later one, and so all that came before it */
    struct sim_clock *clock = own_clock(s);
    for (unsigned i = 0; r->clock && i < r->clock->n; i++) {
        if (clock->at[i] < r->clock->at[i])
            clock->at[i] = r->clock->at[i];
    }
    clock->at[r->slot] = r->seq;
}

unsigned culvert__sim_slot_take(void)
{
    if (nfree > 0)
        return free_slots[--nfree];
    if (nslots == slots_room) {
        slots_room = slots_room ? 2 * slots_room : 16;
        numbers = realloc(numbers, slots_room * sizeof *numbers);
        free_slots = realloc(free_slots, slots_room * sizeof *free_slots);
        if (!numbers || !free_slots)
            culvert__sim_misuse("out of memory");
    }
    numbers[nslots] = 0;
    return nslots++;
}

void culvert__sim_slot_give(unsigned slot)
{
    free_slots[nfree++] = slot;
}
