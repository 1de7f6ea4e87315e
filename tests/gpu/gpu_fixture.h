/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tests of device work share: a loop, a device, a stream, kernels, and a way to hold a stream that
 * works on the simulator and on a GPU.
 *
 *     static gpu_fixture f;
 *
 *     START_TEST(something)
 *     {
 *         gpu_fixture_open(&f, NULL, NULL);
 *         gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 16, 0, 4));
 *         gpu_fixture_close(&f);
 *     }
 *     END_TEST
 *
 * A test that needs the simulator's controls begins with `if (!gpu_fixture_simulated()) return;`, or
 * is in a suite that has the label sim alone.
 */
#ifndef TEST_GPU_FIXTURE_H
#define TEST_GPU_FIXTURE_H

#include "culvert/culvert.h"

#include <ev.h>
#include <stdbool.h>

typedef struct gpu_fixture {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream;
    culvert_module *module; /* fixture.cu */
    culvert_buffer *gate;   /* on a GPU: what held streams look at */
    int ordinal;
    bool dirty; /* close does not look for violations and for what is left */
} gpu_fixture;

/* Whether the driver is the simulator, so that its controls (culvert/sim.h) mean something. */
bool gpu_fixture_simulated(void);

/* Whether the wake that bindings get by default (CULVERT_TEST_WAKE, see wake_wrap.c) uses host functions. */
bool gpu_fixture_arms(void);
/* ... and whether it is one with which the loop never sleeps while work is in flight. */
bool gpu_fixture_spins(void);

/* On the simulator: back to its first state. open does it; call it first where a control is set before
   open, and then open with gpu_fixture_open_as_is. */
void gpu_fixture_reset(void);

/* The device that open opens; 0. A process that has lost one needs another one for its next test. */
extern int gpu_fixture_ordinal;

/* A loop, a binding, a device, a stream, the kernels. The simulator is strict (it aborts on a violation),
   and the calling thread is a loop thread, which must never block in a driver call. */
void gpu_fixture_open(gpu_fixture *f, const culvert_loop_options *loop_options,
                      const culvert_gpu_options *gpu_options);
void gpu_fixture_open_as_is(gpu_fixture *f, const culvert_loop_options *loop_options,
                            const culvert_gpu_options *gpu_options);

/* ... on a loop (consumed) that has watchers already. */
void gpu_fixture_open_on(gpu_fixture *f, struct ev_loop *ev,
                         const culvert_loop_options *loop_options,
                         const culvert_gpu_options *gpu_options);

/* Gives back what is there. On the simulator: fails the test where there was a violation, or where
   something of the driver's is left. */
void gpu_fixture_close(gpu_fixture *f);
void gpu_fixture_nothing_left(void);

/* Things that cannot fail. */
culvert_stream *gpu_fixture_stream(gpu_fixture *f);
culvert_buffer *gpu_fixture_buffer(gpu_fixture *f, size_t bytes);      /* zeroed */
culvert_buffer *gpu_fixture_host_buffer(gpu_fixture *f, size_t bytes); /* zeroed */
culvert_kernel *gpu_fixture_kernel(gpu_fixture *f, const char *name);

/* Runs the loop until the future (consumed) has settled, and it must have resolved ... */
void gpu_fixture_ok(culvert_future *future);
/* ... or rejected with the code. */
culvert_error gpu_fixture_fails(culvert_future *future, int code);
/* The buffer that a future (consumed) resolves to. */
culvert_buffer *gpu_fixture_got(culvert_future *future);
/* A kernel that keeps the stream of the fixture busy for so long. */
culvert_future *gpu_fixture_busy(gpu_fixture *f, double seconds);
/* Runs the loop for a time, whatever there is to do. */
void gpu_fixture_run(gpu_fixture *f, double seconds);
/* Runs the loop until the answer is true; fails the test if that takes too long. */
void gpu_fixture_until(gpu_fixture *f, bool (*holds)(void *arg), void *arg);
/* Until nothing of the stream is in flight or queued. */
void gpu_fixture_idle(gpu_fixture *f, culvert_stream *stream);

/*
 * Holds a stream: what is submitted to it from now on does not start, until gpu_fixture_release, which
 * releases all streams that were held so. On a GPU a kernel does it, which is work of the stream; on the
 * simulator it is none.
 */
void gpu_fixture_hold(gpu_fixture *f, culvert_stream *stream);
void gpu_fixture_release(gpu_fixture *f);

/* One launch of the kernel add_word: words[index] += value. */
void gpu_fixture_add(gpu_fixture *f, culvert_seq *seq, culvert_buffer *words, unsigned index,
                     unsigned value);
/* One launch of the kernel note: words[1 + words[0]++] = value. Shows the order of launches. */
void gpu_fixture_note(gpu_fixture *f, culvert_seq *seq, culvert_buffer *words, unsigned value);

/* Fails the test unless the text is in the message. */
void gpu_fixture_says(const culvert_error *err, const char *text);

#endif
