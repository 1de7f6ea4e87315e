/* SPDX-License-Identifier: BSD-2-Clause */
/* Loops on threads of their own that share devices, one of which is lost. */
#define _POSIX_C_SOURCE 200809L
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LOOPS = 6, PENDING = 40, ILLEGAL_ADDRESS = 700 };

/* The last one is of the device that is not lost. */
typedef struct member {
    pthread_t thread;
    int device;
    bool waits;         /* its work has not gone to the driver */
    _Atomic bool begun; /* all of it is submitted */
    int lost;           /* calls of on_lost */
    outcomes all;
    int fresh, state; /* what became of new work, and the device's state */
} member;

static member members[LOOPS + 1];
static _Atomic bool released;

static void on_lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    member *m = arg;
    (void)gpu;
    m->lost += err->native == ILLEGAL_ADDRESS ? 1 : 100;
}

static void submit(member *m, culvert_loop *loop, culvert_stream *stream, culvert_buffer *buffer,
                   culvert_promise **promise)
{
    culvert_future *gate;
    *promise = culvert_promise_new(loop, &gate);
    for (size_t i = 0; i < PENDING; i++) {
        culvert_seq *seq = culvert_seq_begin(stream);
        if (m->waits && i == 0)
            culvert_seq_wait(seq, culvert_ref(gate));
        culvert_seq_fill(seq, buffer, i * 4, 4, 1, 4);
        outcomes_add(&m->all, culvert_seq_submit(seq));
    }
    culvert_detach(gate);
}

static void *run_loop(void *arg)
{
    member *m = arg;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_promise *promise;
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);
    culvert_loop *loop = culvert_loop_new(ev, NULL, &err);
    culvert_gpu *gpu = culvert_gpu_open(loop, m->device, NULL, &err);
    culvert_stream *stream = culvert_stream_new(gpu, NULL, &err);
    culvert_buffer *buffer = culvert_buffer_new(gpu, PENDING * 4, &err);
    culvert_gpu_on_lost(gpu, on_lost, m, NULL);
    submit(m, loop, stream, buffer, &promise);
    trial_turn(ev, 0.01);
    atomic_store(&m->begun, true);
    while (m->device != 0 && !atomic_load(&released))
        trial_turn(ev, 0.002);
    (void)outcomes_wait(&m->all, ev, 60);
    trial_turn(ev, 0.01); /* on_lost comes on a turn after that */
    culvert_future *fresh = culvert_fill(stream, buffer, 0, 4, 1, 4);
    (void)culvert_await(fresh, 60);
    m->fresh = culvert_status(fresh);
    culvert_unref(fresh);
    m->state = culvert_gpu_state(gpu);
    culvert_resolve(promise, NULL, NULL);
    culvert_buffer_unref(buffer);
    culvert_stream_unref(stream);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
    return NULL;
}

START_TEST(a_loss_reaches_every_loop_and_no_other_device)
{
    gpu_fixture_reset();
    culvert_sim_devices(2);
    culvert_sim_hold(NULL);
    for (int i = 0; i <= LOOPS; i++) {
        member *m = &members[i];
        m->device = i == LOOPS;
        m->waits = i % 2 == 1 && i != LOOPS;
        outcomes_begin(&m->all, PENDING);
        ck_assert_int_eq(pthread_create(&m->thread, NULL, run_loop, m), 0);
    }
    for (int i = 0; i <= LOOPS; i++)
        while (!atomic_load(&members[i].begun))
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    culvert_sim_poison(0, ILLEGAL_ADDRESS);
    for (int i = 0; i < LOOPS; i++) { /* with the device 1 held: it does not help */
        member *m = &members[i];
        pthread_join(m->thread, NULL);
        outcomes_all(&m->all, CULVERT_EDEVICELOST);
        ck_assert_int_eq(m->lost, 1);
        ck_assert_int_eq(m->fresh, CULVERT_EDEVICELOST);
        ck_assert_int_eq(m->state, CULVERT_GPU_LOST);
        for (size_t k = 0; k < m->all.n; k++)
            ck_assert_int_eq(m->all.list[k].error.native, ILLEGAL_ADDRESS);
        outcomes_end(&m->all);
    }
    member *sound = &members[LOOPS];
    culvert_sim_release(NULL);
    atomic_store(&released, true);
    pthread_join(sound->thread, NULL);
    outcomes_all(&sound->all, CULVERT_OK);
    ck_assert_int_eq(sound->lost, 0);
    ck_assert_int_eq(sound->fresh, CULVERT_OK);
    ck_assert_int_eq(sound->state, CULVERT_GPU_OK);
    outcomes_end(&sound->all);
}
END_TEST

int main(void)
{
    trials *t = trials_new("devices");
    TRIAL(t, a_loss_reaches_every_loop_and_no_other_device);
    return trials_run(t);
}
