/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with an epoll loop of its own, in which Culvert's libev loop is a guest:
 *
 *     turn the guest once (ev_run with EVRUN_NOWAIT), ask how long it may be left alone
 *     (culvert_loop_arm), sleep in epoll_wait for that long at most, serve the own descriptors
 *
 * libev shows no descriptor for a wake-up that comes outside ev_run, so the time is all there is: the
 * program that wants short answers sleeps a millisecond at most while there is work.
 */
#define _GNU_SOURCE
#include "program.h"
#include "rounds.h"

#include "saxpy.culvert.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { ROUNDS = 200, LATENCY_MS = 1, TICK_NS = 2000000 };

static const char usage[] =
    "usage: embed-epoll [--driver NAME] [--device N]\n"
    "\n"
    "Device work in a program whose main loop is epoll's: 200 rounds, one after the other, beside a\n"
    "timer of 2 ms. Prints how many rounds and how many ticks there were.\n";

/* A descriptor of the program's own that is ready every now and then. */
static int ticker(int epoll)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct itimerspec every = {{0, TICK_NS}, {0, TICK_NS}};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || timerfd_settime(fd, 0, &every, NULL) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static int milliseconds(double seconds)
{
    double ms = ceil(seconds * 1e3);
    return ms < LATENCY_MS ? (int)ms : LATENCY_MS;
}

/* The program's own main loop. The number of ticks; -1: epoll failed. */
static long main_loop(program *p, int epoll)
{
    long ticks = 0;
    for (;;) {
        struct epoll_event ready[8];
        ev_run(p->ev, EVRUN_NOWAIT); /* continuations run in here */
        double seconds = culvert_loop_arm(p->loop);
        if (seconds == INFINITY)
            return ticks; /* nothing is pending */
        int n = epoll_wait(epoll, ready, 8, milliseconds(seconds));
        if (n < 0 && errno != EINTR)
            return -1;
        for (int i = 0; i < n; i++) {
            uint64_t expired;
            if (read(ready[i].data.fd, &expired, sizeof expired) == sizeof expired)
                ticks += (long)expired;
        }
    }
}

int main(int argc, char **argv)
{
    program p = {.name = "embed-epoll"};
    rounds r = {.p = &p};
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = epoll >= 0 ? ticker(epoll) : -1;
    if (timer < 0) {
        fprintf(stderr, "%s: %s\n", p.name, strerror(errno));
        p.status = EXIT_FAILED;
    } else if (program_open(&p, &culvert_image_saxpy) == 0 && rounds_begin(&r, &p, ROUNDS) == 0) {
        long ticks = main_loop(&p, epoll);
        printf("%u rounds on the device, %s\n", r.done,
               ticks > 0 ? "and the timer was served" : "no tick");
        rounds_end(&r);
    }
    if (timer >= 0)
        close(timer);
    if (epoll >= 0)
        close(epoll);
    return program_close(&p);
}
