/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file sim.h
 * The simulated driver, and how a test steers it.
 *
 * `libculvert-sim.so` exports the CUDA driver's own functions, so that a program built with Culvert
 * runs on a machine without a GPU: with `.driver = "sim"` in the loop's options, or with
 * `CULVERT_DRIVER=sim` in the environment. It runs streams, events, copies, host functions, memory
 * and graphs asynchronously on threads of its own, and what blocks on the hardware blocks here.
 *
 * A test links the library (Culvert::sim) and calls the functions below; they may be called before
 * the driver is initialised. `function` is always a name of the driver's interface as cuda.h
 * documents it, "cuMemAlloc" and not "cuMemAlloc_v2"; an unknown name aborts with a message.
 * Results are numbers of CUresult.
 *
 * Environment, read when the library is loaded and again by culvert_sim_reset():
 *
 *     CULVERT_SIM_DEVICES           number of devices (1)
 *     CULVERT_SIM_MEMORY            bytes of memory of each device (150323855360)
 *     CULVERT_SIM_QUEUE_DEPTH       operations that a hardware queue holds (1021)
 *     CULVERT_SIM_HIDE              functions that do not exist, with commas between
 *     CULVERT_SIM_STRICT            1: abort on a violation
 *     CULVERT_SIM_STACK_KB          stack of a kernel's thread in KiB, at least 16 (64; with a sanitizer
 *                                   256), read when a kernel first runs
 *     CUDA_DEVICE_MAX_CONNECTIONS   number of hardware queues, 1 to 32 (8)
 *     CUDA_MODULE_LOADING           EAGER or LAZY (LAZY)
 *     CUDA_VISIBLE_DEVICES          as for the real driver; read by cuInit
 *
 * What the driver's manual does not tell, or tells otherwise, is as it was measured on an H200, driver
 * 580, CUDA 13.0. Most of it is rows of tests/conformance; what matters most to a server:
 *
 *   - cuMemFree, cuMemFreeHost, cuMemHostUnregister and cuModuleLoadDataEx wait until the kernels that
 *     run are over, and meanwhile nobody can launch
 *   - 1021 operations fit in a hardware queue; the next one blocks its caller
 *   - n streams that wait for events, with device work behind the wait, occupy n hardware queues; when
 *     all are occupied, no other stream's work begins (culvert_sim_hardware_queues)
 *   - 60 streams of the process may have host functions that have not run; cuLaunchHostFunc on one more
 *     stream blocks its caller. (From the 57th to the 64th; 60 is the simulator's number.)
 *   - loading a function lazily does not wait (but see culvert_sim_lazy_loading_waits)
 *   - in a host function cuStreamQuery, cuEventQuery and cuEventRecord work, and what else was tried is
 *     CUDA_ERROR_NOT_PERMITTED
 *   - without a current context a launch or a fill takes its stream's
 *
 * A violation is something that the driver allows, or does not notice, and that loses data, hangs or
 * stalls a server on the hardware:
 *
 *   - a driver call from a host function
 *   - a use of freed memory, of memory that was never allocated, or of a destroyed handle
 *   - memory that one stream writes while an operation on another stream, which nothing orders
 *     before it, still uses it. Copies and fills use their whole ranges; of a kernel only the
 *     addresses that it gets as parameters are known, and they count as read
 *   - memory unregistered, or a module unloaded, while queued work uses it
 *   - on a loop thread (culvert_sim_loop_thread): a call that has to wait for the device
 *   - on another thread while a loop thread exists: a call that stalls everybody's launches because
 *     it has to wait for the device; and on any thread, pinning of more than 1 MB in one call while
 *     work is in flight
 *
 * Violations are counted; in strict mode the first one ends the process.
 *
 * FAULTY KERNELS run as code of this process. __trap(), a failed assert() and a wait that can never end
 * strike the device as on the hardware (719, 710, 719), with a line on stderr. But an access outside of
 * its memory is one of the process: it ends it with SIGSEGV, or hits other memory unnoticed. No error 700
 * comes of it; to test a server's answer to that, strike with culvert_sim_poison(). To find such an
 * access, build program and kernels with -fsanitize=address (culvert_add_kernels passes it on; it sees
 * __shared__ and local arrays, not the bounds of device memory), or use compute-sanitizer on a GPU. A
 * thread has a stack of CULVERT_SIM_STACK_KB with a guard page below; one that needs more ends the process
 * with SIGSEGV. A kernel that loops for ever is stopped at its next block, barrier or __nanosleep() only.
 */
#ifndef CULVERT_SIM_H
#define CULVERT_SIM_H

#include "culvert/version.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/**
 * The version of the simulator, as CULVERT_VERSION. That a library exports this function is how one
 * tells the simulator from a real driver.
 *
 * @return the number. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API int culvert_sim_version(void);

/**
 * Back to the state that the library had when it was loaded: queued work is dropped unrun, a running
 * kernel is stopped at its next block or barrier, a running host function is awaited; contexts,
 * streams, events, memory, modules and graphs are gone, controls and counters are as the environment
 * says, and the driver is not initialised. Handles from before are invalid. The simulator's threads
 * have ended.
 *
 * It ends the devices that the process has opened with Culvert, too: those that are open are lost to the
 * process for good (CULVERT_EDEVICELOST, native 3), and only their release functions do what they did.
 * Where all were closed before, a device opens again once the program has called cuInit() itself, which
 * the library does once a process. So a test has one case a process, with controls set before the device
 * is opened, and needs no reset; frameworks that run each test in a child process (Check does) come to
 * that by themselves, if the parent opens no device.
 *
 * @return nothing. Errors: none. Does not return while a kernel never reaches the end of a block.
 * Thread: any but a host function's; nobody else may be inside a driver call that can return.
 * Re-entrant: no. Since 0.1.0.
 */
CULVERT_API void culvert_sim_reset(void);

/**
 * How many devices there are, from the next cuInit() on.
 *
 * @param n 0 to 8; with 0, cuInit answers CUDA_ERROR_NO_DEVICE. Other numbers abort.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_devices(int n);

/**
 * How many hardware queues there are. With one, what waits at its head holds up whatever was put on
 * any stream later; a wait counts only if something stands behind it. With n of them, a launch, copy,
 * fill or graph launch is held up while n streams wait for events since before it was put on its
 * stream; of these count those that have a launch, copy, fill or graph launch behind the wait. (How
 * many operations fit, culvert_sim_queue_depth(), is by queue, and the queues are dealt in turn to the
 * streams made from now on.)
 *
 * @param n 1 to 32. Other numbers abort.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_hardware_queues(int n);

/**
 * How many launches, copies, fills and graph launches may wait in a hardware queue before the next
 * one blocks its caller.
 *
 * @param n at least 1. 0 aborts.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_queue_depth(unsigned n);

/**
 * The memory of every device. What is allocated stays.
 *
 * @param bytes the total, in bytes.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_memory(uint64_t bytes);

/**
 * Holds a stream: nothing more of it starts, as behind a kernel that does not end.
 *
 * @param stream a live stream, or one of the handles 1 and 2; NULL: all streams, also those that are
 * made later. A handle that is not a live stream aborts.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_hold(struct CUstream_st *stream);

/**
 * Lets a held stream go on.
 *
 * @param stream as for culvert_sim_hold(); NULL releases everything that is held, by whatever call.
 * A single stream stays held while all are.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_release(struct CUstream_st *stream);

/**
 * Whether the devices can reach each other's memory. Initially they can. Where they cannot,
 * cuDeviceCanAccessPeer says so and cuCtxEnablePeerAccess fails with
 * CUDA_ERROR_PEER_ACCESS_UNSUPPORTED; cuMemcpyPeerAsync works all the same.
 *
 * @param on 0: they cannot.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_peer_access(int on);

/**
 * Whether loading a function, by its first launch or by cuFuncLoad, waits for the device and holds up
 * the launches of all threads meanwhile. Some drivers were reported to; an H200 with driver 580, CUDA
 * 13.0 does not, and that is the initial state. With CUDA_MODULE_LOADING=EAGER it makes no difference.
 *
 * @param on not 0: it waits.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_lazy_loading_waits(int on);

/**
 * Whether the driver has one lock, which is held during each call and during each host function. A host
 * function that waits for something which another thread has while it is in the driver (a lock of the
 * program's, held over a launch) then never returns, as it may happen on the hardware. A call that waits
 * for the device lets go of the lock meanwhile. Initially there is none.
 *
 * @param on not 0: there is one.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_driver_lock(int on);

/** What becomes of host functions. Since 0.1.0. */
typedef enum culvert_sim_host_mode {
    CULVERT_SIM_HOST_RUN = 0,   /**< they run in their turn; none runs after a sticky error */
    CULVERT_SIM_HOST_HOLD = 1,  /**< the thread that runs them stands still */
    CULVERT_SIM_HOST_ALWAYS = 2 /**< as RUN, but those queued at a sticky error run nevertheless */
} culvert_sim_host_mode;

/**
 * What becomes of host functions from now on.
 *
 * @param mode one of the modes. Others abort.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_host_functions(culvert_sim_host_mode mode);

/**
 * Makes one call of a function fail. The call has no effect but its result, and the device stays
 * sound whatever the result is. Several calls of one function may be set to fail. Which functions an
 * operation of Culvert calls: docs/driver-calls.md.
 *
 * @param function the function.
 * @param nth which of its calls from now on: 1 is the next one. 0 aborts.
 * @param result what the call answers; 0 is possible: success without effect.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_fail(const char *function, unsigned nth, int result);

/**
 * Makes every call of a function take longer: the caller sleeps at its beginning, holding nothing.
 *
 * @param function the function.
 * @param seconds how much longer; 0 undoes it. Negative or NaN aborts.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_delay(const char *function, double seconds);

/**
 * Makes a function unknown, as in an older driver: cuGetProcAddress does not find it, and a call
 * through an address got before answers CUDA_ERROR_NOT_SUPPORTED.
 *
 * @param function the function.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_hide(const char *function);

/**
 * Strikes a device with a sticky error: queued work is dropped, kernels end, every event of every
 * stream queries as the error, host functions in the queue never run, and all calls that need the
 * device answer with the error. Only culvert_sim_reset() cures it.
 *
 * @param device its ordinal, with or without a context. One that does not exist aborts.
 * @param result the error, say 700. 0 aborts.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_poison(int device, int result);

/**
 * Whether the device's time is virtual. If so, it stands still but for culvert_sim_advance(), and
 * each operation takes the time that follows; its effect happens at the end of it:
 *
 *     kernel          5 us, or what culvert_sim_duration() says
 *     copy            2 us and 1 second for 50e9 bytes; within a device, for 2e12 bytes
 *     fill            2 us and 1 second for 2e12 bytes
 *     graph           5 us and the sum of its nodes
 *     other           nothing
 *
 * If not (the initial state), operations take as long as it takes to do them, and events have the
 * time of the monotonic clock. Change it only while no device work is queued.
 *
 * @param on not 0: virtual.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_virtual_time(int on);

/**
 * Lets virtual time pass. Returns when the devices have done all that ends by then, host functions
 * included. Aborts where time is not virtual.
 *
 * @param seconds how much. Negative or NaN aborts.
 * @return nothing. Errors: none. Thread: any but a host function's. Re-entrant: no. Since 0.1.0.
 */
CULVERT_API void culvert_sim_advance(double seconds);

/**
 * The device time that a kernel takes, in virtual time and (then as a lower bound) without.
 *
 * @param kernel its name.
 * @param seconds how long. Negative or NaN aborts.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_duration(const char *kernel, double seconds);

/**
 * How often a function was called since the library was loaded or reset.
 *
 * @param function the function; NULL: the sum over all functions.
 * @return the number. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API uint64_t culvert_sim_calls(const char *function);

/**
 * How much of a kind there is at the moment.
 *
 * @param kind "event", "stream", "graph" (graphs and executable graphs), "module", "pool", all made
 * and not destroyed by the program; "device bytes" (allocated), "pinned bytes" (allocated or
 * registered); "operation" (queued or running on any device, host functions included). Others abort.
 * @return the number. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API uint64_t culvert_sim_live(const char *kind);

/**
 * Whether a violation ends the process with abort() and a line on stderr that names it.
 *
 * @param on not 0: it does.
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_strict(int on);

/**
 * How many violations there were since the library was loaded or reset.
 *
 * @return the number. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API uint64_t culvert_sim_violations(void);

/**
 * What the last violation was.
 *
 * @param text receives a line, cut to fit and terminated; empty if there was none. NULL if bytes is 0.
 * @param bytes the room.
 * @return the length of the whole line without its terminating zero. Errors: none. Thread: any.
 * Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API size_t culvert_sim_last_violation(char *text, size_t bytes);

/**
 * Makes the calling thread a loop thread: it must never wait in a driver call, nor be made to wait
 * by another thread's. In force until the thread ends or culvert_sim_reset().
 *
 * @return nothing. Errors: none. Thread: any. Re-entrant: yes. Since 0.1.0.
 */
CULVERT_API void culvert_sim_loop_thread(void);

#ifdef __cplusplus
}
#endif

#endif
