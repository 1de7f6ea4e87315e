/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap of addresses, alone: its blocks are numbers, there is no memory behind them. */
#include "gpu/gpu_internal.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };

/* ---- where the blocks come from ---- */

enum { BLOCKS = 512 };

typedef struct source {
    unsigned long long address[BLOCKS];
    size_t bytes[BLOCKS];
    bool live[BLOCKS];
    unsigned n;
    size_t total;
    size_t memory; /* what there is */
    unsigned calls;
    size_t asked; /* by the last call */
    int broken;   /* if not OK, what every call answers */
} source;

/* Addresses jump up and down, so that blocks do not come in order. */
static unsigned long long next_address(const source *s)
{
    unsigned long long slot = s->n % 2 == 0 ? 1000 + s->n : 1000 - s->n;
    return slot << 40;
}

static int grow(void *owner, size_t bytes, unsigned long long *address, culvert_error *err)
{
    source *s = owner;
    s->calls++;
    s->asked = bytes;
    ck_assert(bytes > 0 && bytes % 256 == 0);
    int code = s->broken;
    if (code == CULVERT_OK && bytes > s->memory - s->total)
        code = CULVERT_ENOMEM;
    if (code != CULVERT_OK) {
        culvert__error_set(err, code, 42, "grow", NULL, "the source is dry");
        return code;
    }
    ck_assert_uint_lt(s->n, BLOCKS);
    *address = s->address[s->n] = next_address(s);
    s->bytes[s->n] = bytes;
    s->live[s->n++] = true;
    s->total += bytes;
    return CULVERT_OK;
}

static void shrink(void *owner, unsigned long long address, size_t bytes)
{
    source *s = owner;
    for (unsigned i = 0; i < s->n; i++) {
        if (s->address[i] != address)
            continue;
        ck_assert(s->live[i]);
        ck_assert_uint_eq(s->bytes[i], bytes);
        s->live[i] = false;
        s->total -= bytes;
        return;
    }
    ck_abort_msg("a block that was never there is given back");
}

static const culvert__heap_ops ops = {grow, shrink};

static culvert__heap *heap_of(source *s, size_t memory, size_t block, size_t limit)
{
    *s = (source){.memory = memory};
    culvert__heap_options options = {.what = "device memory", .block_bytes = block, .limit = limit};
    culvert__heap *heap = culvert__heap_new(&ops, s, &options);
    ck_assert_ptr_nonnull(heap);
    return heap;
}

static culvert__range *take(culvert__heap *heap, size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert__range *range = culvert__heap_take(heap, bytes, true, &err);
    ck_assert_msg(range != NULL, "%s", err.message);
    return range;
}

/* ---- single behaviours ---- */

START_TEST(a_range_is_aligned_and_rounded_up)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    culvert__range *a = take(heap, 1), *b = take(heap, 256), *c = take(heap, 257);
    ck_assert_uint_eq(culvert__range_bytes(a), 256);
    ck_assert_uint_eq(culvert__range_bytes(b), 256);
    ck_assert_uint_eq(culvert__range_bytes(c), 512);
    ck_assert_uint_eq(culvert__range_address(a) % 256, 0);
    ck_assert_uint_eq(culvert__range_address(b) - culvert__range_address(a), 256);
    ck_assert_uint_eq(culvert__range_address(c) - culvert__range_address(b), 256);
    ck_assert_uint_eq(culvert__heap_used(heap), 1024);
    ck_assert_uint_eq(culvert__heap_taken(heap), 64 * KIB);
    ck_assert_uint_eq(s.calls, 1);
    culvert__heap_free(heap, false);
    ck_assert_uint_eq(s.total, 0);
}
END_TEST

START_TEST(best_fit_takes_the_smallest_hole)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    culvert__range *big = take(heap, 4096), *wall1 = take(heap, 256);
    culvert__range *small = take(heap, 1024), *wall2 = take(heap, 256);
    culvert__range *middle = take(heap, 2048), *wall3 = take(heap, 256);
    unsigned long long at = culvert__range_address(small);
    unsigned long long middle_at = culvert__range_address(middle);
    culvert__heap_give(heap, big);
    culvert__heap_give(heap, small);
    culvert__heap_give(heap, middle);
    ck_assert_uint_eq(culvert__range_address(take(heap, 900)), at);
    ck_assert_uint_eq(culvert__range_address(take(heap, 1100)), middle_at);
    (void)wall1, (void)wall2, (void)wall3;
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(neighbours_are_joined_in_every_order)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        source s;
        culvert__heap *heap = heap_of(&s, 3 * KIB, 3 * KIB, 0);
        culvert__range *r[3] = {take(heap, KIB), take(heap, KIB), take(heap, KIB)};
        ck_assert_ptr_null(culvert__heap_take(heap, 256, true, NULL));
        for (int k = 0; k < 3; k++)
            culvert__heap_give(heap, r[orders[i][k]]);
        culvert__range *all = culvert__heap_take(heap, 3 * KIB, false, NULL);
        ck_assert_ptr_nonnull(all);
        ck_assert_uint_eq(s.n, 1);
        culvert__heap_free(heap, false);
    }
}
END_TEST

START_TEST(a_larger_request_gets_a_block_of_its_own_size)
{
    source s;
    culvert__heap *heap = heap_of(&s, 8 * MIB, 64 * KIB, 0);
    take(heap, 100);
    ck_assert_uint_eq(s.asked, 64 * KIB);
    take(heap, 3 * MIB + 1);
    ck_assert_uint_eq(s.asked, 3 * MIB + 256);
    ck_assert_uint_eq(s.n, 2);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(sizes_of_blocks_are_multiples_of_the_granule)
{
    source s = {.memory = 16 * MIB};
    culvert__heap_options options = {.what = "pinned memory",
                                     .block_bytes = 100 * KIB,
                                     .granule = 64 * KIB,
                                     .limit = MIB};
    culvert__heap *heap = culvert__heap_new(&ops, &s, &options);
    take(heap, 100);
    ck_assert_uint_eq(s.asked, 128 * KIB);
    take(heap, 300 * KIB);
    ck_assert_uint_eq(s.asked, 320 * KIB);
    /* 576 KiB are left, which is less than a multiple that has room for this. */
    take(heap, 570 * KIB);
    ck_assert_uint_eq(s.asked, 576 * KIB);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(with_little_memory_left_a_block_is_just_as_large_as_needed)
{
    source s;
    culvert__heap *heap = heap_of(&s, 100 * KIB, 64 * KIB, 0);
    take(heap, 64 * KIB);
    take(heap, 20 * KIB); /* 64 KiB fail, 20 KiB do not */
    ck_assert_uint_eq(s.calls, 3);
    ck_assert_uint_eq(culvert__heap_taken(heap), 84 * KIB);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(near_the_limit_a_block_is_as_large_as_may_be)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 100 * KIB + 17);
    take(heap, 64 * KIB);
    take(heap, 20 * KIB);
    ck_assert_uint_eq(s.asked, 36 * KIB);
    ck_assert_uint_eq(culvert__heap_taken(heap), 100 * KIB);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(the_message_has_the_figures)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 100 * KIB);
    culvert__range *first = take(heap, 60 * KIB);
    take(heap, KIB);
    culvert__heap_give(heap, first);
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert__heap_take(heap, 70000, true, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    const char *figures[] = {"70144 bytes of device memory asked for",
                             "65536 taken",
                             "1024 of these",
                             "largest free range 61440",
                             "limit 102400",
                             "limit is reached"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        ck_assert_msg(strstr(err.message, figures[i]) != NULL, "%s: %s", figures[i], err.message);
    ck_assert_uint_eq(s.calls, 1); /* the source was not even asked */
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(the_message_has_what_the_source_said)
{
    source s;
    culvert__heap *heap = heap_of(&s, 10 * KIB, 64 * KIB, 0);
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert__heap_take(heap, 20 * KIB, true, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_int_eq(err.native, 42);
    ck_assert_ptr_nonnull(strstr(err.message, "20480 bytes"));
    ck_assert_ptr_nonnull(strstr(err.message, "the source is dry"));
    ck_assert_ptr_nonnull(strstr(err.message, "limit none")); /* not 0: there is no limit */
    ck_assert_uint_eq(s.calls, 2);
    s.broken = CULVERT_EDEVICELOST; /* not a matter of size: passed through, not tried again */
    ck_assert_ptr_null(culvert__heap_take(heap, 256, true, &err));
    ck_assert_int_eq(err.code, CULVERT_EDEVICELOST);
    ck_assert_str_eq(err.message, "the source is dry");
    ck_assert_uint_eq(s.calls, 3);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(it_grows_only_where_it_may)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert__heap_take(heap, 256, false, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_ptr_null(culvert__heap_take(heap, 256, false, NULL));
    ck_assert_uint_eq(s.calls, 0);
    culvert__heap_give(heap, take(heap, 256));
    ck_assert_ptr_nonnull(culvert__heap_take(heap, 64 * KIB, false, &err));
    ck_assert_uint_eq(s.calls, 1);
    culvert__heap_free(heap, false);
}
END_TEST

/* A product that wrapped (BabelStream#136 asked for 1.8e19 bytes) reaches nobody. */
START_TEST(case_092_a_size_that_overflows_is_refused)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 254, SIZE_MAX - 255, (size_t)PTRDIFF_MAX + 1,
                            (size_t)PTRDIFF_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        ck_assert_ptr_null(culvert__heap_take(heap, sizes[i], true, &err));
        ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
    }
    ck_assert_uint_eq(s.calls, 0);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(reserve_takes_blocks_in_pieces)
{
    source s;
    culvert__heap *heap = heap_of(&s, 64 * MIB, 64 * KIB, 10 * MIB);
    ck_assert_int_eq(culvert__heap_reserve(heap, 0, MIB, NULL), CULVERT_OK);
    ck_assert_uint_eq(s.calls, 0);
    ck_assert_int_eq(culvert__heap_reserve(heap, 8 * MIB - 5, MIB, NULL), CULVERT_OK);
    ck_assert_uint_eq(s.calls, 8);
    ck_assert_uint_eq(s.asked, MIB);
    ck_assert_int_eq(culvert__heap_reserve(heap, 1, 0, NULL), CULVERT_OK);
    ck_assert_uint_eq(s.asked, 64 * KIB);
    ck_assert_uint_eq(culvert__heap_used(heap), 0);
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_int_eq(culvert__heap_reserve(heap, 2 * MIB, MIB, &err), CULVERT_ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.message, "limit 10485760"));
    ck_assert_ptr_nonnull(culvert__heap_take(heap, MIB, false, NULL));
    culvert__heap_free(heap, false);
    ck_assert_uint_eq(s.total, 0);
}
END_TEST

START_TEST(a_reserve_up_to_the_limit_ends_with_a_smaller_piece)
{
    source s;
    culvert__heap *heap = heap_of(&s, 64 * MIB, 64 * KIB, 2 * MIB + 300 * KIB);
    ck_assert_int_eq(culvert__heap_reserve(heap, 2 * MIB + 300 * KIB, MIB, NULL), CULVERT_OK);
    ck_assert_uint_eq(s.calls, 3);
    ck_assert_uint_eq(s.asked, 300 * KIB);
    ck_assert_int_eq(culvert__heap_reserve(heap, 1, MIB, NULL), CULVERT_ENOMEM);
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(contains_knows_the_edges_of_blocks)
{
    source s;
    culvert__heap *heap = heap_of(&s, 64 * MIB, 64 * KIB, 0);
    ck_assert(!culvert__heap_contains(heap, 4096, 1));
    for (int i = 0; i < 20; i++)
        take(heap, 64 * KIB);
    ck_assert_uint_eq(s.n, 20);
    for (unsigned i = 0; i < s.n; i++) {
        unsigned long long at = s.address[i];
        ck_assert(culvert__heap_contains(heap, at, 64 * KIB));
        ck_assert(culvert__heap_contains(heap, at + 64 * KIB - 1, 1));
        ck_assert(!culvert__heap_contains(heap, at + 64 * KIB, 1));
        ck_assert(!culvert__heap_contains(heap, at - 1, 2));
        ck_assert(!culvert__heap_contains(heap, at + 1, 64 * KIB));
        ck_assert(!culvert__heap_contains(heap, at + 1, SIZE_MAX));
    }
    culvert__heap_free(heap, false);
}
END_TEST

START_TEST(a_leaked_heap_leaves_its_blocks)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    take(heap, 256);
    culvert__heap_free(heap, true);
    ck_assert_uint_eq(s.total, 64 * KIB);
    culvert__heap_free(NULL, false);
}
END_TEST

/* ---- against a model ---- */

enum { OUT = 400, STEPS = 20000 };

typedef struct model {
    culvert__range *out[OUT];
    unsigned char live[OUT];
    size_t bytes[OUT];
    unsigned n;
    size_t used;
    uint64_t random;
} model;

static uint64_t draw(model *m, uint64_t below)
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (m->random >> 33) % below;
}

/* ck_assert tells the parent each time: too slow for what is asked so often. */
#define HOLDS(condition)                            \
    do {                                            \
        if (!(condition))                           \
            ck_abort_msg("not so: %s", #condition); \
    } while (0)

static void check_place(const model *m, const source *s, unsigned at)
{
    unsigned long long begin = culvert__range_address(m->out[at]);
    unsigned long long end = begin + culvert__range_bytes(m->out[at]);
    HOLDS(begin % 256 == 0);
    HOLDS(end - begin >= m->bytes[at] && end - begin < m->bytes[at] + 256);
    bool inside_a_block = false;
    for (unsigned i = 0; i < s->n; i++)
        if (begin >= s->address[i] && end <= s->address[i] + s->bytes[i])
            inside_a_block = true;
    HOLDS(inside_a_block);
    for (unsigned i = 0; i < m->n; i++) {
        unsigned long long other = culvert__range_address(m->out[i]);
        bool apart = end <= other || other + culvert__range_bytes(m->out[i]) <= begin;
        HOLDS(i == at || apart);
    }
}

static size_t draw_size(model *m)
{
    switch (draw(m, 8)) {
    case 0: return 1 + draw(m, 200 * KIB);
    case 1:
    case 2: return 1 + draw(m, 20 * KIB);
    default: return 1 + draw(m, 2 * KIB);
    }
}

static void step(model *m, culvert__heap *heap, const source *s, unsigned bias)
{
    if (m->n < OUT && draw(m, 100) < bias) {
        size_t bytes = draw_size(m);
        culvert__range *range = culvert__heap_take(heap, bytes, true, NULL);
        if (range == NULL) { /* so there is no hole either */
            HOLDS(culvert__heap_take(heap, bytes, false, NULL) == NULL);
            return;
        }
        m->out[m->n] = range;
        m->bytes[m->n] = bytes;
        m->used += culvert__range_bytes(range);
        check_place(m, s, m->n++);
    } else if (m->n > 0) {
        unsigned at = (unsigned)draw(m, m->n);
        m->used -= culvert__range_bytes(m->out[at]);
        culvert__heap_give(heap, m->out[at]);
        m->out[at] = m->out[--m->n];
        m->bytes[at] = m->bytes[m->n];
    }
    HOLDS(culvert__heap_used(heap) == m->used);
    HOLDS(culvert__heap_taken(heap) == s->total);
}

START_TEST(random_takes_and_gives_agree_with_a_model)
{
    source s;
    culvert__heap *heap = heap_of(&s, 3 * MIB, 256 * KIB, 2 * MIB + 300 * KIB);
    model m = {.random = (uint64_t)(unsigned)_i * 977 + 5};
    for (unsigned i = 0; i < STEPS; i++)
        step(&m, heap, &s, i / 2000 % 2 == 0 ? 65 : 35);
    while (m.n > 0)
        culvert__heap_give(heap, m.out[--m.n]);
    ck_assert_uint_eq(culvert__heap_used(heap), 0);
    ck_assert_uint_le(s.total, 2 * MIB + 300 * KIB);
    /* Everything has grown together again: each block can be taken as a whole. */
    unsigned before = s.calls;
    for (unsigned i = 0; i < s.n; i++)
        ck_assert_ptr_nonnull(culvert__heap_take(heap, s.bytes[i], false, NULL));
    ck_assert_uint_eq(s.calls, before);
    culvert__heap_free(heap, false);
    ck_assert_uint_eq(s.total, 0);
}
END_TEST

/* ---- memory for the bookkeeping, threads ---- */

static void whole_life(void *arg)
{
    (void)arg;
    source s = {.memory = 4 * MIB};
    culvert__heap_options options = {.what = "device memory", .block_bytes = 4 * KIB};
    culvert__heap *heap = culvert__heap_new(&ops, &s, &options);
    if (heap == NULL)
        return;
    culvert__range *out[40];
    size_t used = 0;
    for (unsigned i = 0; i < 40; i++) {
        culvert_error err = CULVERT_ERROR_INIT;
        out[i] = culvert__heap_take(heap, 1 + i * 100, true, &err);
        if (out[i] == NULL)
            ck_assert_int_eq(err.code, CULVERT_ENOMEM);
        else
            used += culvert__range_bytes(out[i]);
    }
    ck_assert_uint_eq(culvert__heap_used(heap), used);
    ck_assert_uint_eq(culvert__heap_taken(heap), s.total);
    for (unsigned i = 0; i < 40; i++)
        if (out[i] != NULL)
            culvert__heap_give(heap, out[i]);
    ck_assert_uint_eq(culvert__heap_used(heap), 0);
    culvert__heap_free(heap, false);
    ck_assert_uint_eq(s.total, 0);
}

START_TEST(out_of_memory_at_every_allocation)
{
    ck_assert_uint_ge(alloc_fail_each(whole_life, NULL), 40);
}
END_TEST

START_TEST(giving_back_allocates_nothing)
{
    source s;
    culvert__heap *heap = heap_of(&s, MIB, 64 * KIB, 0);
    culvert__range *out[10];
    for (int i = 0; i < 10; i++)
        out[i] = take(heap, 256);
    alloc_fail_from(1);
    for (int i = 0; i < 10; i++)
        culvert__heap_give(heap, out[(i * 7) % 10]);
    ck_assert_uint_eq(alloc_fail_count(), 0);
    alloc_fail_off();
    culvert__heap_free(heap, false);
}
END_TEST

static void *churn(void *arg)
{
    culvert__heap *heap = arg;
    culvert__range *out[8] = {NULL};
    for (unsigned i = 0; i < 4000; i++) {
        culvert__range **place = &out[i * 5 % 8];
        if (*place != NULL)
            culvert__heap_give(heap, *place);
        *place = culvert__heap_take(heap, 100 + i % 3000, true, NULL);
        culvert__heap_contains(heap, 1000ull << 40, 1);
    }
    for (unsigned i = 0; i < 8; i++)
        if (out[i] != NULL)
            culvert__heap_give(heap, out[i]);
    return NULL;
}

START_TEST(threads_may_share_it)
{
    source s;
    culvert__heap *heap = heap_of(&s, 4 * MIB, 64 * KIB, 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, heap), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(culvert__heap_used(heap), 0);
    culvert__heap_free(heap, false);
    ck_assert_uint_eq(s.total, 0);
}
END_TEST

static Suite *heap_suite(void)
{
    Suite *suite = suite_create("heap");
    TCase *ranges = tcase_create("ranges");
    tcase_add_test(ranges, a_range_is_aligned_and_rounded_up);
    tcase_add_test(ranges, best_fit_takes_the_smallest_hole);
    tcase_add_test(ranges, neighbours_are_joined_in_every_order);
    tcase_add_test(ranges, contains_knows_the_edges_of_blocks);
    tcase_add_loop_test(ranges, random_takes_and_gives_agree_with_a_model, 0, 4);
    tcase_add_test(ranges, threads_may_share_it);
    suite_add_tcase(suite, ranges);
    TCase *blocks = tcase_create("blocks");
    tcase_add_test(blocks, a_larger_request_gets_a_block_of_its_own_size);
    tcase_add_test(blocks, sizes_of_blocks_are_multiples_of_the_granule);
    tcase_add_test(blocks, with_little_memory_left_a_block_is_just_as_large_as_needed);
    tcase_add_test(blocks, near_the_limit_a_block_is_as_large_as_may_be);
    tcase_add_test(blocks, it_grows_only_where_it_may);
    tcase_add_test(blocks, reserve_takes_blocks_in_pieces);
    tcase_add_test(blocks, a_reserve_up_to_the_limit_ends_with_a_smaller_piece);
    tcase_add_test(blocks, a_leaked_heap_leaves_its_blocks);
    suite_add_tcase(suite, blocks);
    TCase *errors = tcase_create("errors");
    tcase_add_test(errors, the_message_has_the_figures);
    tcase_add_test(errors, the_message_has_what_the_source_said);
    tcase_add_test(errors, case_092_a_size_that_overflows_is_refused);
    tcase_add_test(errors, out_of_memory_at_every_allocation);
    tcase_add_test(errors, giving_back_allocates_nothing);
    suite_add_tcase(suite, errors);
    return suite;
}

int main(void)
{
    Suite *suites[] = {heap_suite(), NULL};
    return test_main(suites);
}
