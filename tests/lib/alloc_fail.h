/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation failures: makes the n-th allocation of the library under test fail, and counts the blocks
 * that it holds.
 *
 * A test program that gives ALLOC_FAIL to culvert_add_test() links a copy of the static library in which
 * malloc, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, strdup, strndup
 * and free are these ones. Only the library's own calls are counted and fail: not those of the
 * test, of Check, of libev, of the simulator or of the C library. All this works with the sanitizers.
 *
 * A test at every allocation:
 *
 *     static void whole_chain(void *arg)
 *     {
 *         ...  make a loop, a chain, run it, free it; all of it may fail with CULVERT_ENOMEM, and
 *         ...  nothing may crash or hang
 *     }
 *
 *     START_TEST(out_of_memory_at_every_allocation_of_a_chain)
 *     {
 *         ck_assert_uint_ge(alloc_fail_each(whole_chain, NULL), 10);
 *     }
 *     END_TEST
 *
 * Counts are of the whole process: with Check's fork mode, of one test.
 */
#ifndef TEST_LIB_ALLOC_FAIL_H
#define TEST_LIB_ALLOC_FAIL_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the n-th allocation fails, once; 1 is the next one. Starts the count anew. */
void alloc_fail_nth(uint64_t n);

/* From now on the n-th allocation and all after it fail; 1: from the next one on. Starts the count anew. */
void alloc_fail_from(uint64_t n);

/* No allocation fails any more. The count goes on. */
void alloc_fail_off(void);

/*
 * With true, only allocations of the calling thread are counted and fail, from the next alloc_fail_nth or
 * alloc_fail_from on: so other threads, whose allocations come at any moment, do not change which one is
 * the n-th. With false, the default, those of all threads.
 */
void alloc_fail_this_thread(bool only);

/* Allocations asked for, failed ones included, since the count started. */
uint64_t alloc_fail_count(void);

/* Whether one has failed since the count started. */
bool alloc_fail_happened(void);

/*
 * Blocks that the library has allocated and not freed, of all threads. A block that the library allocates
 * and the test frees by itself, or the other way round, makes it wrong.
 */
int64_t alloc_fail_live(void);

/*
 * Runs the body once with no failure; then again and again, with the first allocation failing, the
 * second, and so on, until a run in which none was left to fail. Fails the test where the number of live
 * blocks after a run is not what it was after the first. Returns the number of runs with a failure, which
 * is the number of allocations. The body must free all that it makes, but for what stays with the process.
 */
uint64_t alloc_fail_each(void (*body)(void *arg), void *arg);

#endif
