/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * word-histogram: the words of files and how often each is there, counted on the GPU.
 *
 * As many lanes as there are streams run at once; culvert_all waits for them; a worker puts their tables
 * together and in order. Everything is taken down in the reverse order, on every path.
 */
#define _POSIX_C_SOURCE 200809L
#include "lane.h"
#include "options.h"
#include "program.h"
#include "progress.h"
#include "words.culvert.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct histogram {
    program program; /* first: stop() is given it */
    options options;
    work work;
    progress progress;
    culvert_future *job;
    unsigned long long left; /* of --top */
    unsigned nlanes;
    lane *lanes[64];
    culvert_future *running[64];
} histogram;

static void stop(program *p)
{
    culvert_cancel(((histogram *)p)->job);
}

/* On a worker thread: what each lane has counted, in the table of the first. */
static void *put_together(void *arg, culvert_error *err)
{
    histogram *h = arg;
    words *all = lane_words(h->lanes[0]);
    for (unsigned i = 1; i < h->nlanes; i++) {
        if (words_merge(all, lane_words(h->lanes[i])) != 0) {
            culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for more than %zu words",
                              words_different(all));
            return NULL;
        }
    }
    words_sort(all);
    return NULL;
}

static culvert_future *all_counted(culvert_future *done, void *arg)
{
    histogram *h = arg;
    (void)done;
    return culvert_work(h->program.loop, put_together, h, NULL, NULL);
}

static int open_all(histogram *h)
{
    program *p = &h->program;
    culvert_error err = CULVERT_ERROR_INIT;
    options *o = &h->options;
    if (corpus_open(&h->work.corpus, o->files, o->nfiles, o->chunk, &err) != 0) {
        program_fail(p, &err);
        return -1;
    }
    if (program_open(p, &culvert_image_words) != 0 ||
        (h->work.count = program_kernel(p, "count_words")) == NULL ||
        (h->work.collect = program_kernel(p, "collect_words")) == NULL)
        return -1;
    h->work.gpu = p->gpu;
    for (; h->nlanes < o->streams; h->nlanes++) {
        if ((h->lanes[h->nlanes] = lane_new(&h->work, &err)) == NULL) {
            program_fail(p, &err);
            return -1;
        }
    }
    return 0;
}

static int count_all(histogram *h)
{
    progress_start(&h->progress, h->work.corpus.bytes);
    h->work.progress = progress_show;
    h->work.arg = &h->progress;
    for (unsigned i = 0; i < h->nlanes; i++)
        h->running[i] = lane_run(h->lanes[i]);
    h->job = culvert_all(h->program.loop, h->running, h->nlanes);
    h->job = culvert_then(h->job, all_counted, h, NULL);
    program_stop_on_signals(&h->program, stop);
    int r = culvert_await(h->job, INFINITY);
    double seconds = progress_end(&h->progress);
    if (h->program.signal != 0) {
        fprintf(stderr, "%s: stopped by %s\n", h->program.name, strsignal(h->program.signal));
        return -1;
    }
    if (r != CULVERT_OK) {
        program_fail(&h->program, culvert_get_error(h->job));
        return -1;
    }
    if (h->options.verbose) {
        const words *all = lane_words(h->lanes[0]);
        double mb = (double)h->work.done / 1e6;
        program_describe(&h->program);
        fprintf(stderr, "%s: %llu words, %zu different, %.1f MB in %.3f s, %.1f MB/s\n",
                h->program.name, (unsigned long long)words_total(all), words_different(all), mb,
                seconds, mb / seconds);
    }
    return 0;
}

static int print_word(const char *letters, uint64_t count, void *arg)
{
    histogram *h = arg;
    if (h->options.top != 0 && h->left-- == 0)
        return 1;
    return printf("%7llu %s\n", (unsigned long long)count, letters) < 0 ? -1 : 0;
}

static void print_all(histogram *h)
{
    culvert_error err = CULVERT_ERROR_INIT;
    h->left = h->options.top;
    if (words_each(lane_words(h->lanes[0]), print_word, h) < 0 || fflush(stdout) != 0) {
        culvert_error_set(&err, CULVERT_ESYSTEM, errno, "cannot write to standard output: %s",
                          strerror(errno));
        program_fail(&h->program, &err);
    }
}

int main(int argc, char **argv)
{
    histogram h = {.program = {.name = "word-histogram"}};
    if (options_parse(&h.options, &h.program, argc, argv) != 0)
        return h.program.status;
    if (open_all(&h) == 0 && count_all(&h) == 0)
        print_all(&h);
    culvert_unref(h.job);
    int status = program_close(&h.program);
    for (unsigned i = 0; i < h.nlanes; i++)
        lane_free(h.lanes[i]);
    corpus_close(&h.work.corpus);
    return status;
}
