/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "options.h"

#include "number.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "usage: word-histogram [options] FILE...\n"
    "\n"
    "Counts the words of files on the GPU and prints them, the most frequent first. A word is a run of\n"
    "the letters A-Z and a-z, its case ignored; the output is that of\n"
    "\n"
    "  cat FILE... | tr -cs A-Za-z '\\n' | tr A-Z a-z | grep . | sort | uniq -c | sort -k1,1nr -k2\n"
    "\n"
    "but that a word ends where its file does. Files are read by worker threads, their words found and\n"
    "counted on the GPU, on several streams at once, and the counts put together by worker threads.\n"
    "\n"
    "  -b, --chunk BYTES   how much of a file is counted as one piece (default 1M; k, M may follow),\n"
    "                      from 1 to 256M; a piece takes 13 to 21 times as much memory of the device\n"
    "  -s, --streams N     pieces at once, each on a stream of its own (default 4, at most 64)\n"
    "  -t, --top N         print the N most frequent words (default 0: all)\n"
    "      --driver NAME   cuda, sim (a simulated GPU), auto, or the path of a driver library\n"
    "                      (default: what CULVERT_DRIVER says, else cuda)\n"
    "      --device N      which device (default 0)\n"
    "  -v, --verbose       say on standard error what was done\n"
    "  -h, --help          this text\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong arguments, 3 the device was lost, 128 + signal when\n"
    "stopped by one. Nothing is printed unless all was counted.\n";

enum { DRIVER = 256, DEVICE };

static const struct option longs[] = {{"chunk", required_argument, NULL, 'b'},
                                      {"streams", required_argument, NULL, 's'},
                                      {"top", required_argument, NULL, 't'},
                                      {"driver", required_argument, NULL, DRIVER},
                                      {"device", required_argument, NULL, DEVICE},
                                      {"verbose", no_argument, NULL, 'v'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

static int parse_one(options *o, program *p, int c)
{
    unsigned long long n = 0;
    int r = -1;
    switch (c) {
    case 'b':
        r = parse_number(p->name, "--chunk", optarg, 1, 1, 256u << 20, &n);
        o->chunk = (size_t)n;
        return r;
    case 's':
        r = parse_number(p->name, "--streams", optarg, 0, 1, 64, &n);
        o->streams = (unsigned)n;
        return r;
    case 't': return parse_number(p->name, "--top", optarg, 0, 0, ~0ull, &o->top);
    case DRIVER: p->driver = optarg; return 0;
    case DEVICE: return program_device(p, optarg);
    case 'v': o->verbose = 1; return 0;
    case 'h':
        fputs(usage, stdout);
        p->status = 0;
        return -1;
    default: fprintf(stderr, "%s: try --help\n", p->name); return -1;
    }
}

int options_parse(options *o, program *p, int argc, char **argv)
{
    int c;
    *o = (options){.chunk = 1u << 20, .streams = 4};
    p->status = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "b:s:t:vh", longs, NULL)) != -1)
        if (parse_one(o, p, c) != 0)
            return -1;
    if (optind == argc) {
        fprintf(stderr, "%s: no file was given; try --help\n", p->name);
        return -1;
    }
    o->files = argv + optind;
    o->nfiles = (size_t)(argc - optind);
    p->status = 0;
    return 0;
}
