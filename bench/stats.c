/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Samples and their percentiles.
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void die(const char *what, const char *why)
{
    fprintf(stderr, "culvert-bench: %s: %s\n", what, why);
    exit(1);
}

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void samples_add(samples *s, double us)
{
    if (s->n == s->room) {
        s->room = s->room == 0 ? 1024 : 2 * s->room;
        s->values = realloc(s->values, s->room * sizeof *s->values);
        if (s->values == NULL)
            die("samples", "out of memory");
    }
    s->values[s->n++] = us;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_percentile(samples *s, double percent)
{
    if (s->n == 0)
        return 0;
    qsort(s->values, s->n, sizeof *s->values, compare);
    size_t i = (size_t)(percent / 100.0 * (double)(s->n - 1) + 0.5);
    return s->values[i];
}

void samples_free(samples *s)
{
    free(s->values);
    *s = (samples){0};
}
