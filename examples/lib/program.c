/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop goes before the handles: after culvert_loop_free() nothing runs that could use them.
 */
#define _GNU_SOURCE
#include "program.h"

#include "number.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

enum { MOST_DEVICE = 1023 };

int program_device(program *p, const char *text)
{
    unsigned long long n = 0;
    if (parse_number(p->name, "--device", text, 0, 0, MOST_DEVICE, &n) != 0)
        return -1;
    p->device = (int)n;
    return 0;
}

int program_options(program *p, int argc, char **argv, const char *usage)
{
    static const struct option longs[] = {{"driver", required_argument, NULL, 'd'},
                                          {"device", required_argument, NULL, 'n'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c;
    p->status = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'd') {
            p->driver = optarg;
        } else if (c == 'h') {
            fputs(usage, stdout);
            p->status = 0;
            return -1;
        } else if (c != 'n') {
            fprintf(stderr, "%s: try --help\n", p->name);
            return -1;
        } else if (program_device(p, optarg) != 0) {
            return -1;
        }
    }
    p->status = 0;
    return optind;
}

void program_fail(program *p, const culvert_error *err)
{
    fprintf(stderr, "%s: %s\n", p->name, err->message);
    p->status = exit_status_of(err);
}

int program_open(program *p, const culvert_image *image)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error_set(&err, CULVERT_ESYSTEM, 0, "no event loop could be made");
    options.driver = p->driver;
    if ((p->ev = ev_default_loop(0)) == NULL ||
        (p->loop = culvert_loop_new(p->ev, &options, &err)) == NULL ||
        (p->gpu = culvert_gpu_open(p->loop, p->device, p->gpu_options, &err)) == NULL) {
        program_fail(p, &err);
        return -1;
    }
    if (image == NULL)
        return 0;
    culvert_future *load = culvert_module_load(p->gpu, image);
    if (culvert_await(load, INFINITY) == CULVERT_OK)
        p->module = culvert_take(load);
    else
        program_fail(p, culvert_get_error(load));
    culvert_unref(load);
    return p->module != NULL ? 0 : -1;
}

culvert_kernel *program_kernel(program *p, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_kernel *kernel = culvert_module_kernel(p->module, name, &err);
    if (kernel == NULL)
        program_fail(p, &err);
    return kernel;
}

static void on_signal(struct ev_loop *ev, ev_signal *w, int events)
{
    program *p = w->data;
    (void)events;
    p->signal = w->signum;
    ev_ref(ev);
    ev_signal_stop(ev, w);
    signal(w->signum, SIG_DFL); /* a second one ends it at once */
    if (p->stop != NULL)
        p->stop(p);
    else
        ev_break(ev, EVBREAK_ALL);
}

void program_stop_on_signals(program *p, void (*stop)(program *))
{
    p->stop = stop;
    ev_signal_init(&p->interrupt, on_signal, SIGINT);
    ev_signal_init(&p->terminate, on_signal, SIGTERM);
    p->interrupt.data = p->terminate.data = p;
    ev_signal_start(p->ev, &p->interrupt);
    ev_signal_start(p->ev, &p->terminate);
    ev_unref(p->ev); /* they do not keep the loop running */
    ev_unref(p->ev);
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is an error of write(), not a death */
}

void program_describe(program *p)
{
    culvert_gpu_description d = {.struct_size = sizeof d};
    if (culvert_gpu_info(p->gpu, &d) == CULVERT_OK)
        fprintf(stderr, "%s: device: %s (%s %d.%d)%s\n", p->name, d.name, d.driver,
                d.driver_version / 1000, d.driver_version % 1000 / 10,
                d.simulated ? ", simulated" : "");
}

int program_close(program *p)
{
    culvert_loop_free(p->loop);
    culvert_module_unref(p->module);
    culvert_gpu_close(p->gpu);
    return p->status == 0 && p->signal != 0 ? 128 + p->signal : p->status;
}
