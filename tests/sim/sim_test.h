/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the simulator's tests share: a fixture, kernels, and checks of results.
 *
 * The tests call the driver's functions themselves, and link the simulator for it.
 */
#ifndef TESTS_SIM_SIM_TEST_H
#define TESTS_SIM_SIM_TEST_H

#include "culvert/sim.h"
#include "culvert/sim_module.h"
#include "lib/check_main.h"
#include "sim/calls.h"

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ck_result(call, result) ck_assert_int_eq((call), CULVERT__##result)
#define ck_ok(call)             ck_assert_int_eq((call), 0)
/* There were n violations, and the last one's text has `part` in it. */
#define ck_violation(n, part)                                                             \
    do {                                                                                  \
        char text_[512];                                                                  \
        culvert_sim_last_violation(text_, sizeof text_);                                  \
        ck_assert_msg(culvert_sim_violations() == (n), "%d violations, the last one: %s", \
                      (int)culvert_sim_violations(), text_);                              \
        ck_assert_msg(strstr(text_, part) != NULL, "the violation says: %s", text_);      \
    } while (0)
#define ck_no_violation()                                                     \
    do {                                                                      \
        char text_[512];                                                      \
        culvert_sim_last_violation(text_, sizeof text_);                      \
        ck_assert_msg(culvert_sim_violations() == 0, "violation: %s", text_); \
    } while (0)

/* Driver initialised, the context of device 0 current. */
void sim_setup(void);
/* The same with two devices; device 0 is current. */
void sim_setup_two(void);
/* Everything that a test made is gone; then back to the initial state. */
void sim_teardown(void);

extern struct CUctx_st *sim_context;

/*
 * The kernels, loaded:
 *   nothing()
 *   store(uint32_t *to, uint32_t value)
 *   add(uint32_t *to, uint32_t value)      adds, for order: *to = *to * 10 + value
 *   spin(uint32_t *flag)                   until it is not 0
 *   fault(uint32_t result)                 ends with that CUresult
 *   lazy()                                 the same as nothing, but not loaded by the fixture
 *   many(...)                              40 parameters of 8 bytes; the last is where to store the first
 *   wide()                                 blocks of up to 64 threads
 */
struct CUfunc_st *sim_kernel(const char *name);
const struct culvert_sim_module *sim_module(void);

/* One block of one thread. */
int sim_launch(const char *kernel, struct CUstream_st *stream, void **params);
int sim_store(struct CUstream_st *stream, void *to, uint32_t value);
int sim_append(struct CUstream_st *stream, void *to, uint32_t digit);
int sim_spin(struct CUstream_st *stream, _Atomic uint32_t *flag);

struct CUstream_st *sim_stream(void); /* non-blocking */
struct CUstream_st *sim_blocking_stream(void);
struct CUevent_st *sim_event(void);
uint32_t *sim_pinned(size_t bytes); /* zeroed */
uint64_t sim_device(size_t bytes);

/* Another thread with the context current. */
struct sim_thread_call;
struct sim_thread_call *sim_in_thread(int (*fn)(void *), void *arg);
/* Whether it is still running after some 50 ms; it is blocked, then, unless the machine is slow. */
bool sim_still_runs(struct sim_thread_call *call);
int sim_join(struct sim_thread_call *call); /* what fn returned */

/* Waits until `condition` holds: forever, that is until Check's time limit. */
#define sim_until(condition) \
    do {                     \
        while (!(condition)) \
            sim_nap();       \
    } while (0)
void sim_nap(void); /* a millisecond */

#endif
