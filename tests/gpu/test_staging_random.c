/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random copies of ordinary memory over a few streams with few slots: whatever they wait for, all of them
 * end (no deadlock), with the right bytes.
 */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB };
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { RUNS = 400 };
#else
enum { RUNS = 2000 };
#endif
enum { STREAMS = 6, COPIES = 12, ROOM = MIB + 100 };

/* A stream with a buffer of its own, and memory to copy from and to. */
typedef struct place {
    culvert_stream *stream;
    culvert_buffer *buffer;
    unsigned char *in, *out;
} place;

typedef struct copy {
    culvert_future *future;
    unsigned stream;
    bool down, cancelled;
    size_t bytes;
} copy;

static gpu_fixture f;
static place places[STREAMS];
static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void set_up(void)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    options.pinned_reserve = options.pinned_limit = 8 * MIB;
    gpu_fixture_open(&f, NULL, &options);
    for (int s = 0; s < STREAMS; s++)
        places[s] = (place){gpu_fixture_stream(&f), gpu_fixture_buffer(&f, ROOM), malloc(ROOM),
                            malloc(ROOM)};
}

static void tear_down(void)
{
    if (f.gpu == NULL)
        return;
    ck_assert(culvert__staging_at_rest(f.gpu));
    for (int s = 0; s < STREAMS; s++) {
        culvert_stream_unref(places[s].stream);
        culvert_buffer_unref(places[s].buffer);
        free(places[s].in);
        free(places[s].out);
    }
    gpu_fixture_close(&f);
}

static size_t pick_size(void)
{
    switch (pick(8)) {
    case 0: return 64 * KIB + pick(3) - 1;
    case 1: return MIB + pick(3) - 1;
    case 2: return 1 + pick(ROOM - 1);
    default: return 1 + pick(100 * KIB);
    }
}

/* Up with one byte, and down again, perhaps in one sequence, perhaps after something else's end. */
static void submit(copy *c, culvert_future *after)
{
    place *p = &places[c->stream];
    culvert_seq *seq = culvert_seq_begin(p->stream);
    if (after != NULL)
        culvert_seq_wait(seq, after);
    culvert_seq_upload(seq, p->buffer, 0, p->in, c->bytes);
    if (c->down)
        culvert_seq_download(seq, p->out, p->buffer, 0, c->bytes);
    c->future = culvert_seq_submit(seq);
}

static void random_run(unsigned run)
{
    copy copies[COPIES];
    unsigned n = 1 + pick(COPIES);
    for (unsigned s = 0; s < STREAMS; s++)
        if (run % 8 == 0)
            memset(places[s].in, (int)(run / 8 + s), ROOM);
    if (gpu_fixture_simulated() && pick(4) == 0)
        culvert_sim_hold(culvert_stream_native(places[pick(STREAMS)].stream));
    for (unsigned i = 0; i < n; i++) {
        copy *c = &copies[i];
        *c = (copy){.stream = pick(STREAMS), .down = pick(2) == 0, .bytes = pick_size()};
        submit(c, i > 0 && pick(3) == 0 ? culvert_ref(copies[pick(i)].future) : NULL);
        if (pick(20) == 0) {
            c->cancelled = true;
            culvert_cancel(c->future);
        }
        if (pick(6) == 0)
            ev_run(f.ev, EVRUN_NOWAIT);
    }
    if (gpu_fixture_simulated())
        culvert_sim_release(NULL);
    int status[COPIES];
    for (unsigned i = 0; i < n; i++) {
        status[i] = culvert_await(copies[i].future, 60);
        ck_assert_msg(status[i] == CULVERT_OK || status[i] == CULVERT_ECANCELED, "%s",
                      culvert_error_name(status[i]));
        culvert_unref(copies[i].future);
    }
    for (int s = 0; s < STREAMS; s++)
        gpu_fixture_idle(&f, places[s].stream);
    for (unsigned i = 0; i < n; i++) {
        const place *p = &places[copies[i].stream];
        if (status[i] == CULVERT_OK && copies[i].down)
            ck_assert_int_eq(memcmp(p->out, p->in, copies[i].bytes), 0);
    }
    ck_assert(culvert__staging_at_rest(f.gpu));
}

START_TEST(random_copies_with_few_slots)
{
    for (unsigned i = 0; i < RUNS / 4; i++) {
        seed = 7919u * (unsigned)_i + i;
        random_run(i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("staging_random");
    TCase *tc = tcase_create("random");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, random_copies_with_few_slots, 0, 4);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
