/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * @file culvert.h
 * All of Culvert, but the controls of the simulator (sim.h) and the header of kernels (kernel.h).
 */
#ifndef CULVERT_CULVERT_H
#define CULVERT_CULVERT_H

#include "culvert/error.h"
#include "culvert/future.h"
#include "culvert/gpu.h"
#include "culvert/loop.h"
#include "culvert/serve.h"
#include "culvert/trace.h"
#include "culvert/version.h"

#endif
