/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What runs the kernels of these tests, so that one suite serves all of them: the kernel runtime
 * itself (machine_direct.c), or a driver, simulated or real (machine_driver.c).
 *
 * Every failure fails the test, but for what machine_run returns. One machine at a time.
 */
#ifndef TESTS_KERNELS_MACHINE_H
#define TESTS_KERNELS_MACHINE_H

#include "culvert/gpu.h"

#include <stddef.h>
#include <stdint.h>

typedef struct machine machine;

machine *machine_open(void);
void machine_close(machine *m);

uint64_t machine_alloc(machine *m, size_t bytes); /* filled with 0xcd */
void machine_free(machine *m, uint64_t address);
void machine_put(machine *m, uint64_t to, const void *from, size_t bytes);
void machine_get(machine *m, void *to, uint64_t from, size_t bytes);

/* The address of a variable of an image, and its size in *bytes. */
uint64_t machine_global(machine *m, const culvert_image *image, const char *name, size_t *bytes);

struct machine_launch {
    const culvert_image *image;
    const char *kernel;
    unsigned grid[3], block[3]; /* 0 means 1 */
    unsigned shared_bytes;
};

/* Launches and waits until it is over. params: the address of each. Returns a CUresult. */
int machine_run(machine *m, const struct machine_launch *l, void **params);

/* The offset and size of parameter i; 0 where there is none, -1 where the machine cannot tell. */
int machine_param(machine *m, const culvert_image *image, const char *kernel, size_t i,
                  size_t *offset, size_t *bytes);

/* Deterministic numbers. */
static inline uint32_t machine_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 29;
    return (uint32_t)(x * 0x9e3779b97f4a7c15u >> 32);
}

#endif
