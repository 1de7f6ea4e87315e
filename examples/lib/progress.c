/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drawn at most five times a second; wiped before anything else is written.
 */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void progress_start(progress *p, uint64_t total)
{
    *p = (progress){.total = total, .start = now(), .on = isatty(STDERR_FILENO)};
}

void progress_show(uint64_t bytes, void *arg)
{
    progress *p = arg;
    double t = now();
    if (!p->on || t - p->shown < 0.2)
        return;
    p->shown = t;
    p->drawn = 1;
    double rate = t > p->start ? (double)bytes / (t - p->start) : 0;
    fprintf(stderr, "\r\033[K%.1f MB, %.1f MB/s", (double)bytes / 1e6, rate / 1e6);
    if (p->total > 0 && rate > 0) {
        double left = bytes < p->total ? (double)(p->total - bytes) / rate : 0;
        fprintf(stderr, ", %.0f%%, %.0f s left", 100.0 * (double)bytes / (double)p->total, left);
    }
    fflush(stderr);
}

double progress_end(progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = 0;
    return now() - p->start;
}
