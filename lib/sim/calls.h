/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calls.h: the functions that the simulator exports, and what each does first.
 *
 * Every exported function starts with CULVERT__SIM_ENTER(name), which counts the call, sleeps where
 * a test asked for a delay, and returns what has to be answered without doing anything: after a
 * fork, before cuInit, at exit, from a host function, for a fault that a test has set. Until the
 * function returns it has the driver's lock, where there is to be one (driver_lock.c).
 */
#ifndef CULVERT_SIM_CALLS_H
#define CULVERT_SIM_CALLS_H

#include "culvert/version.h"
#include "driver/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Beyond what the library itself calls: what foreign code in the same process, or a test, may. */
typedef void (*culvert__sim_stream_callback)(culvert__CUstream stream, culvert__CUresult status,
                                             void *user_data);

typedef struct culvert__sim_host_node_params {
    culvert__CUhostFn fn;
    void *userData;
} culvert__sim_host_node_params;

typedef int culvert__FN_cuCtxSynchronize(void);
typedef int culvert__FN_cuDevicePrimaryCtxReset(culvert__CUdevice device);
typedef int culvert__FN_cuDevicePrimaryCtxSetFlags(culvert__CUdevice device, unsigned int flags);
typedef int culvert__FN_cuModuleLoadData(culvert__CUmodule *module, const void *image);
typedef int culvert__FN_cuStreamCreate(culvert__CUstream *stream, unsigned int flags);
typedef int culvert__FN_cuStreamAddCallback(culvert__CUstream stream,
                                            culvert__sim_stream_callback fn, void *user_data,
                                            unsigned int flags);
typedef int culvert__FN_cuMemcpyHtoD(culvert__CUdeviceptr dst, const void *src, size_t bytes);
typedef int culvert__FN_cuMemcpyDtoH(void *dst, culvert__CUdeviceptr src, size_t bytes);
typedef int culvert__FN_cuGraphAddHostNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                           const culvert__CUgraphNode *dependencies, size_t n,
                                           const culvert__sim_host_node_params *params);
typedef int culvert__FN_cuGraphAddEmptyNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                            const culvert__CUgraphNode *dependencies, size_t n);

/* One name a function: culvert__SIM_<name>. */
enum culvert__sim_function {
#define X(name, abi, ask, need, symbol) culvert__SIM_##name,
#include "driver/driver.def"
#define X(name, abi, ask, need, symbol) culvert__SIM_##name,
#include "sim/extra.def"
    culvert__SIM_cuGetProcAddress,
    culvert__SIM_FUNCTIONS
};

/* The declarations of what is exported. */
#define X(name, abi, ask, need, symbol) CULVERT_API culvert__FN_##name symbol;
#include "driver/driver.def"
#define X(name, abi, ask, need, symbol) CULVERT_API culvert__FN_##name symbol;
#include "sim/extra.def"
CULVERT_API culvert__FN_cuGetProcAddress cuGetProcAddress_v2;

#define CULVERT__SIM_ENTER(name)                                                \
    int enter_result_;                                                          \
    if (culvert__sim_enter(culvert__SIM_##name, &enter_result_))                \
        return enter_result_;                                                   \
    __attribute__((cleanup(culvert__sim_driver_leave), unused)) bool entered_ = \
        culvert__sim_driver_enter()

/* driver_lock.c. True: taken. */
bool culvert__sim_driver_enter(void);
void culvert__sim_driver_leave(const bool *entered);

/* True: the call is over, with *result. */
bool culvert__sim_enter(enum culvert__sim_function function, int *result);

const char *culvert__sim_function_name(enum culvert__sim_function function);
/* -1 if there is none of that name. */
int culvert__sim_function_find(const char *name);
bool culvert__sim_hidden(enum culvert__sim_function function);
/* The function that the calling thread is in, for messages. */
const char *culvert__sim_current_call(void);

void culvert__sim_set_fault(enum culvert__sim_function function, unsigned nth, int result);
void culvert__sim_set_delay(enum culvert__sim_function function, double seconds);
void culvert__sim_set_hidden(enum culvert__sim_function function);
uint64_t culvert__sim_count(enum culvert__sim_function function);
void culvert__sim_calls_reset(void);

/*
 * Counts a violation, or ends the process in strict mode. With or without the lock: it takes none.
 */
void culvert__sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void culvert__sim_set_strict(bool on);
uint64_t culvert__sim_violation_count(void);
size_t culvert__sim_violation_text(char *text, size_t bytes);
/* A mistake in the use of a control: says so and aborts. */
_Noreturn void culvert__sim_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
