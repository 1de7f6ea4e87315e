/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert-bench: measures the library beside raw driver calls in one run, and prints the ratios.
 *
 * Variants of a scenario take turns in rounds; what is printed is the median and the 99th percentile
 * over all rounds, and the median's ratio to the first variant, the floor.
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANTS = 6 };

typedef struct settings {
    const char *driver;
    int device;
    unsigned rounds;
    size_t count; /* of a round; 0: the scenario's own */
    int json;
} settings;

typedef struct scenario {
    const char *name, *unit;
    size_t count; /* of a round */
    size_t warm;  /* before the first */
    variant variants[MAX_VARIANTS];
    unsigned n;
} scenario;

static void measure(scenario *s, const settings *set)
{
    samples ignored = {0};
    size_t count = set->count != 0 ? set->count : s->count;
    for (unsigned v = 0; v < s->n; v++)
        s->variants[v].run(s->variants[v].self, s->warm, &ignored);
    samples_free(&ignored);
    for (unsigned round = 0; round < set->rounds; round++)
        for (unsigned v = 0; v < s->n; v++)
            s->variants[v].run(s->variants[v].self, count, &s->variants[v].samples);
}

static void print(scenario *s, const settings *set)
{
    double floor = samples_percentile(&s->variants[0].samples, 50);
    if (!set->json)
        printf("\n%s (%s)\n", s->name, s->unit);
    for (unsigned v = 0; v < s->n; v++) {
        variant *x = &s->variants[v];
        double p50 = samples_percentile(&x->samples, 50), p99 = samples_percentile(&x->samples, 99);
        if (set->json)
            printf("{\"scenario\":\"%s\",\"variant\":\"%s\",\"unit\":\"%s\",\"p50\":%.3f,"
                   "\"p99\":%.3f,\"ratio\":%.3f,\"samples\":%zu}\n",
                   s->name, x->name, s->unit, p50, p99, floor > 0 ? p50 / floor : 0, x->samples.n);
        else
            printf("  %-46s p50 %9.3f  p99 %9.3f  ratio %6.3f\n", x->name, p50, p99,
                   floor > 0 ? p50 / floor : 0);
        samples_free(&x->samples);
    }
}

static const char usage[] =
    "usage: culvert-bench [--driver NAME] [--device N] [--rounds N] [--count N] [--json] [SCENARIO...]\n"
    "\n"
    "Scenarios (default: all): future-chain, round-trip, throughput, submit, graph,\n"
    "graph-again, graph-first\n"
    "Figures are microseconds: the median and the 99th percentile, and the ratio of the median to that\n"
    "of the first line of the scenario.\n";

static int wanted(int argc, char **argv, const char *name)
{
    for (int i = optind; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return 1;
    return optind == argc;
}

static int parse(settings *set, int argc, char **argv)
{
    static const struct option longs[] = {{"driver", required_argument, NULL, 'd'},
                                          {"device", required_argument, NULL, 'D'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"count", required_argument, NULL, 'c'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c;
    *set = (settings){.rounds = 10};
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        switch (c) {
        case 'd': set->driver = optarg; break;
        case 'D': set->device = atoi(optarg); break;
        case 'r': set->rounds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': set->count = strtoul(optarg, NULL, 10); break;
        case 'j': set->json = 1; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (set->rounds == 0) {
        fputs("culvert-bench: --rounds must be 1 or more\n", stderr);
        return 2;
    }
    return -1;
}

int main(int argc, char **argv)
{
    settings set;
    int done = parse(&set, argc, argv);
    if (done >= 0)
        return done;
    raw *r = raw_open(set.driver, set.device);
    library *adaptive = library_open(set.driver, set.device, CULVERT_WAKE_ADAPTIVE);
    library *host = library_open(set.driver, set.device, CULVERT_WAKE_HOST_FUNC);
    library *thread = library_open(set.driver, set.device, CULVERT_WAKE_THREAD);
    library *spin = library_open(set.driver, set.device, CULVERT_WAKE_SPIN);
    graphs *graph = graphs_open(set.driver, set.device);
    scenario scenarios[] = {
        {"future-chain",
         "us a step",
         10000,
         1000,
         {{"then + run", library_chain, adaptive, {0}}},
         1},
        {"round-trip",
         "us from launch until the waiter runs",
         2000,
         500,
         {{"raw: event-query spin", raw_round_trip_spin, r, {0}},
          {"culvert: adaptive wake", library_round_trip, adaptive, {0}},
          {"culvert: spin wake", library_round_trip, spin, {0}},
          {"culvert: thread wake", library_round_trip, thread, {0}},
          {"raw: host function on a 2nd stream + ev_async", raw_round_trip_host_func, r, {0}},
          {"culvert: host-function wake", library_round_trip, host, {0}}},
         6},
        {"throughput",
         "us an operation, launch + event, continuation each",
         20000,
         2000,
         {{"raw: launch + event, no continuation", raw_throughput, r, {0}},
          {"culvert: adaptive wake", library_throughput, adaptive, {0}},
          {"culvert: spin wake", library_throughput, spin, {0}},
          {"culvert: thread wake", library_throughput, thread, {0}},
          {"culvert: host-function wake", library_throughput, host, {0}}},
         5},
        {"submit",
         "us of the calling thread an operation",
         12800,
         1280,
         {{"raw: launch + event", raw_submit_cost, r, {0}},
          {"culvert: launch + on_settled", library_submit_cost, adaptive, {0}}},
         2},
        {"graph",
         "us from launch of 16 empty kernels until the waiter runs",
         2000,
         500,
         {{"raw: a graph + event, spin", graphs_raw_graph, graph, {0}},
          {"culvert: a graph", graphs_graph, graph, {0}},
          {"raw: 16 launches + event, spin", graphs_raw_launches, graph, {0}},
          {"culvert: a sequence of 16 launches", graphs_launches, graph, {0}}},
         4},
        {"graph-again",
         "us of the calling thread a launch with another argument, 12 under way",
         1200,
         120,
         {{"raw: new parameters + launch + event", graphs_raw_again, graph, {0}},
          {"culvert: launch with a bind + on_settled", graphs_again, graph, {0}}},
         2},
        {"graph-first",
         "us of the calling thread in cuGraphLaunch of 1,000 kernels",
         20,
         2,
         {{"raw: an instance launched before", graphs_raw_later, graph, {0}},
          {"raw: a new instance", graphs_raw_first, graph, {0}},
          {"raw: a new instance after cuGraphUpload", graphs_raw_uploaded, graph, {0}}},
         3}};
    if (!set.json)
        printf("%s; %u rounds\n", raw_describe(r), set.rounds);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (!wanted(argc, argv, scenarios[i].name))
            continue;
        measure(&scenarios[i], &set);
        print(&scenarios[i], &set);
        fflush(stdout);
    }
    graphs_close(graph);
    library_close(spin);
    library_close(thread);
    library_close(host);
    library_close(adaptive);
    raw_close(r);
    return 0;
}
