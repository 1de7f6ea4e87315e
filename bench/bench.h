/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the variants of culvert-bench share. A variant measures the same job as another one, in rounds
 * that take turns, so that a drift of the machine meets all of them.
 */
#ifndef CULVERT_BENCH_H
#define CULVERT_BENCH_H

#include <culvert/culvert.h>

#include <stddef.h>
#include <stdint.h>

typedef struct samples {
    double *values; /* microseconds */
    size_t n, room;
} samples;

void samples_add(samples *, double us);
double samples_percentile(samples *, double percent); /* sorts */
void samples_free(samples *);
uint64_t now_ns(void);

/* One way of doing a job. run() does `count` of them and adds the time of each (round trip) or one
   mean of the whole (throughput). */
typedef struct variant {
    const char *name;
    void (*run)(void *self, size_t count, samples *out);
    void *self;
    samples samples;
} variant;

/* raw.c: driver calls written by hand. */
typedef struct raw raw;
raw *raw_open(const char *driver, int device);
void raw_close(raw *);
const char *raw_describe(raw *);
void raw_round_trip_spin(void *raw, size_t count, samples *);
void raw_round_trip_host_func(void *raw, size_t count, samples *);
void raw_throughput(void *raw, size_t count, samples *);
void raw_submit_cost(void *raw, size_t count, samples *);

/* library.c: the same with Culvert. */
typedef struct library library;
library *library_open(const char *driver, int device, int wake);
void library_close(library *);
void library_round_trip(void *library, size_t count, samples *);
void library_throughput(void *library, size_t count, samples *);
void library_submit_cost(void *library, size_t count, samples *);
void library_chain(void *library, size_t count, samples *);

/* graph.c: graphs, by hand (raw) and with Culvert. */
typedef struct graphs graphs;
graphs *graphs_open(const char *driver, int device);
void graphs_close(graphs *);
void graphs_raw_graph(void *graphs, size_t count, samples *);
void graphs_raw_launches(void *graphs, size_t count, samples *);
void graphs_raw_again(void *graphs, size_t count, samples *);
void graphs_raw_first(void *graphs, size_t count, samples *);
void graphs_raw_uploaded(void *graphs, size_t count, samples *);
void graphs_raw_later(void *graphs, size_t count, samples *);
void graphs_graph(void *graphs, size_t count, samples *);
void graphs_launches(void *graphs, size_t count, samples *);
void graphs_again(void *graphs, size_t count, samples *);

void die(const char *what, const char *why);

#endif
