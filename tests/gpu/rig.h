/* SPDX-License-Identifier: BSD-2-Clause */
/* What most tests of the gpu layer begin with: a loop, a binding, a device, a stream. */
#ifndef TEST_GPU_RIG_H
#define TEST_GPU_RIG_H

#include "culvert/culvert.h"

#include <ev.h>
#include <stdbool.h>

typedef struct rig {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *stream;
} rig;

/* Whether the driver is the simulator, so that its controls (culvert/sim.h) mean something. */
bool rig_simulated(void);

/* All of it, on device 0. On the simulator from a clean state: call rig_fresh for controls before. */
void rig_fresh(void);
void rig_open(rig *r, const culvert_gpu_options *options);
void rig_open_device(rig *r, int ordinal, const culvert_gpu_options *options);

/* A binding alone, with no device. */
void rig_open_loop(rig *r);

/* What is there, in the usual order. On the simulator, checks that nothing of the driver's is left. */
void rig_close(rig *r);
void rig_nothing_left(void);

/* Runs the loop until the future (consumed) has settled. */
void rig_settle_ok(culvert_future *future);
/* ... and it must reject with the code. */
culvert_error rig_settle_error(culvert_future *future, int code);

culvert_module *rig_module(rig *r, const culvert_image *image);

/* Fails the test unless the text is in the message. */
void rig_says(const culvert_error *err, const char *text);

#endif
