/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libuv program in which Culvert's libev loop is a guest:
 *
 *     prepare  (before libuv sleeps)  turn the guest once, ask how long it may be left alone
 *                                     (culvert_loop_arm), and set a timer for that, or an idle handle
 *                                     where it has something to do at once
 *     timer    only wakes libuv: prepare does the rest
 *
 * libev shows no descriptor for a wake-up that comes outside ev_run, so a program that wants short
 * answers sleeps a millisecond at most while there is work.
 */
#define _GNU_SOURCE /* uv.h needs rwlocks */
#include "program.h"
#include "rounds.h"

#include "saxpy.culvert.h"

#include <math.h>
#include <stdio.h>
#include <uv.h>

enum { ROUNDS = 200, LATENCY_MS = 1, TICK_MS = 2 };

static const char usage[] =
    "usage: embed-uv [--driver NAME] [--device N]\n"
    "\n"
    "Device work in a program whose main loop is libuv's: 200 rounds, one after the other, beside a\n"
    "timer of 2 ms. Prints how many rounds there were.\n";

/* The guest, and what libuv needs to serve it. */
typedef struct guest {
    program *p;
    uv_prepare_t prepare;
    uv_timer_t timer, ticker;
    uv_idle_t idle;
    long ticks;
} guest;

static void only_wake(uv_timer_t *timer)
{
    (void)timer;
}

static void only_turn(uv_idle_t *idle)
{
    (void)idle;
}

static void tick(uv_timer_t *timer)
{
    ((guest *)timer->data)->ticks++;
}

static void before_sleep(uv_prepare_t *prepare)
{
    guest *g = prepare->data;
    ev_run(g->p->ev, EVRUN_NOWAIT); /* continuations run in here */
    double seconds = culvert_loop_arm(g->p->loop);
    uv_idle_stop(&g->idle);
    uv_timer_stop(&g->timer);
    if (seconds ==
        INFINITY) { /* nothing is pending: uv_run returns when nothing of the program's is */
        uv_prepare_stop(prepare);
        uv_timer_stop(&g->ticker);
    } else if (seconds <= 0) {
        uv_idle_start(&g->idle, only_turn);
    } else {
        uv_update_time(prepare->loop);
        uv_timer_start(&g->timer, only_wake, LATENCY_MS, 0);
    }
}

static void serve(guest *g, program *p, uv_loop_t *uv)
{
    g->p = p;
    uv_prepare_init(uv, &g->prepare);
    uv_timer_init(uv, &g->timer);
    uv_timer_init(uv, &g->ticker);
    uv_idle_init(uv, &g->idle);
    g->prepare.data = g->ticker.data = g;
    uv_prepare_start(&g->prepare, before_sleep);
    uv_timer_start(&g->ticker, tick, TICK_MS, TICK_MS); /* something of the program's own */
    uv_run(uv, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&g->prepare, NULL);
    uv_close((uv_handle_t *)&g->timer, NULL);
    uv_close((uv_handle_t *)&g->ticker, NULL);
    uv_close((uv_handle_t *)&g->idle, NULL);
    uv_run(uv, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
    program p = {.name = "embed-uv"};
    rounds r = {.p = &p};
    guest g = {0};
    uv_loop_t uv;
    if (program_options(&p, argc, argv, usage) < 0)
        return p.status;
    int failed = uv_loop_init(&uv);
    if (failed != 0) {
        fprintf(stderr, "%s: %s\n", p.name, uv_strerror(failed));
        p.status = EXIT_FAILED;
    } else {
        if (program_open(&p, &culvert_image_saxpy) == 0 && rounds_begin(&r, &p, ROUNDS) == 0) {
            serve(&g, &p, &uv);
            printf("%u rounds on the device, %s\n", r.done,
                   g.ticks > 0 ? "and the timer was served" : "no tick");
            rounds_end(&r);
        }
        uv_loop_close(&uv);
    }
    return program_close(&p);
}
