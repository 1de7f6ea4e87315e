/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The conformance suite: what a CUDA driver does, one row a behaviour, run through the driver table
 * on the simulator and on a GPU. Where the two differ, the simulator is wrong.
 *
 * A row is a function that calls the driver and says what it saw and what it should have seen. Each
 * row runs in a process of its own (test_conformance.c), with the driver open, the primary context
 * of device 0 current and the kernels loaded, unless its flags say otherwise; so a row may lose the
 * device, exit, or hang until it is killed.
 */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "driver/table.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONF_BARE = 1,         /* the driver is open, and nothing else has been done */
    CONF_ONE_QUEUE = 2,    /* with CUDA_DEVICE_MAX_CONNECTIONS=1 */
    CONF_32_QUEUES = 8,    /* with 32; otherwise it is not set, which means 8 */
    CONF_TWO_DEVICES = 16, /* the simulator has two; a machine may have one */
    CONF_EXITS = 4         /* ends the process itself, with status 0 if all is well */
};

struct row {
    const char *name;
    void (*run)(void);
    unsigned flags;
};

/* Each file of rows has a table, ended by a row without a name. */
extern const struct row conf_blocking_rows[], conf_queue_rows[], conf_event_rows[],
    conf_stream_rows[], conf_copy_rows[], conf_memory_rows[], conf_launch_rows[],
    conf_launch_kind_rows[], conf_image_rows[], conf_host_function_rows[], conf_context_rows[],
    conf_sticky_rows[], conf_capture_rows[], conf_graph_rows[], conf_process_rows[],
    conf_peer_rows[];

/* The driver, and what the setup has made. */
extern const culvert__driver *d;
extern struct CUctx_st *conf_context;
struct CUfunc_st *
conf_kernel(const char *name); /* nothing lazy store append spin fault meet number_to */

/* What was seen. A want that is not fulfilled fails the row; the row goes on. */
void conf_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void conf_result(const char *what, int result, int expected);
void conf_true(const char *what, bool holds);
void conf_range(const char *what, long long value, long long least, long long most);
/* For what a row needs and does not test: ends the row with a failure. */
#define NEED(call) conf_need(#call, (call))
void conf_need(const char *call, int result);
bool conf_failed(void);
const char *conf_seen(void);

/* Kernels of one thread. */
int conf_launch(const char *kernel, struct CUstream_st *s, void **params);
int conf_store(struct CUstream_st *s, void *to, uint32_t value);
int conf_append(struct CUstream_st *s, void *to, uint32_t digit);

/* A kernel that runs until it is let go; at most 20 seconds. */
struct spin {
    _Atomic uint32_t *flag;
};
struct spin conf_spin(struct CUstream_st *s);
void conf_let_go(struct spin spin);

struct CUstream_st *conf_stream(void); /* non-blocking */
struct CUstream_st *conf_blocking_stream(void);
struct CUevent_st *conf_event(void); /* without timing */
uint32_t *conf_pinned(size_t bytes); /* zeroed */
unsigned long long conf_device(size_t bytes);

/* Words that a kernel, or another thread, may read and write at the same time. */
uint32_t conf_read(const uint32_t *word);
void conf_write(uint32_t *word, uint32_t value);

/* A call on another thread, with the context current. */
struct conf_call;
struct conf_call *conf_async(int (*fn)(void *), void *arg);
bool conf_blocked(struct conf_call *call);  /* it has not returned in 0.4 seconds */
bool conf_returned(struct conf_call *call); /* it has within 10 seconds */
int conf_join(struct conf_call *call);

/* A symbol of the driver's library. */
void *conf_symbol(const char *name);

void conf_nap(void); /* a millisecond */
void conf_sleep(double seconds);

/* kernels_ptx.c and kernels_sim.c */
extern const char conf_ptx[];
const void *conf_sim_module(void);

#endif
