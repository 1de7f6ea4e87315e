/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Out of memory at every allocation: nothing crashes, hangs or leaks, each item and argument is released
 * once, each future settles.
 */
#include "culvert/serve.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static gpu_fixture f;
static int given, returned;

static void setup(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    given = returned = 0;
}

static void teardown(void)
{
    gpu_fixture_close(&f);
}

static void take_back(void *arg)
{
    (void)arg;
    returned++;
}

static void *thing(void)
{
    given++;
    return &given;
}

/* Consumes it. Whatever happens, it settles. */
static void end(culvert_future *future)
{
    const int status = culvert_await(future, 100.0);

    ck_assert_msg(status == CULVERT_OK || status == CULVERT_ENOMEM || status == CULVERT_ECANCELED ||
                      status == CULVERT_ETIMEDOUT || status == CULVERT_EUSER,
                  "%s", culvert_error_name(status));
    culvert_unref(future);
}

static void settle_all(void)
{
    ev_run(f.ev, 0);
    ck_assert_int_eq(given, returned);
}

/* ---- semaphore ---- */

static void semaphore(void *arg)
{
    culvert_semaphore *s = culvert_semaphore_new(f.loop, 1, 1, NULL);

    (void)arg;
    if (s == NULL)
        return;
    culvert_future *a = culvert_semaphore_acquire(s), *b = culvert_semaphore_acquire(s);
    culvert_future *c = culvert_semaphore_acquire(s);
    (void)culvert_get_error(c);
    culvert_unref(c);
    end(a);
    culvert_semaphore_release(s);
    end(b);
    c = culvert_semaphore_acquire(s);
    culvert_semaphore_unref(s);
    end(c);
    settle_all();
}

/* ---- batcher ---- */

static culvert_future *run(culvert_batch *batch, void *const *items, size_t n, void *arg)
{
    culvert_error err;

    (void)items;
    (void)arg;
    culvert_error_set(&err, CULVERT_EUSER, 1, "not this one");
    culvert_batch_fail(batch, n - 1, &err);
    return culvert_sleep(f.loop, 0.001);
}

static void batcher(void *arg)
{
    culvert_batcher_options o = CULVERT_BATCHER_OPTIONS_INIT;
    culvert_future *all[8];

    (void)arg;
    o.max_items = 3;
    o.max_delay_seconds = 0.0005;
    o.run = run;
    o.arg = thing();
    o.arg_free = take_back;
    culvert_batcher *b = culvert_batcher_new(f.loop, &o, NULL);
    if (b == NULL) {
        ck_assert_int_eq(given, returned);
        return;
    }
    for (int i = 0; i < 8; i++)
        all[i] = culvert_batcher_add(b, thing(), take_back, i == 4 ? 1e-6 : 3600.0);
    culvert_cancel(all[2]);
    for (int i = 0; i < 6; i++)
        end(all[i]);
    culvert_batcher_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_batcher_stats(b, &c), CULVERT_OK);
    ck_assert_uint_eq(c.added, c.queued + c.running_items + c.resolved + c.rejected + c.expired +
                                   c.canceled);
    culvert_batcher_unref(b);
    end(all[6]);
    end(all[7]);
    settle_all();
}

/* ---- pipeline ---- */

static culvert_future *fill(culvert_chunk *chunk, void *arg)
{
    (void)arg;
    memset(culvert_buffer_data(chunk->host), 1, 64);
    chunk->bytes = 64;
    chunk->last = chunk->index == 4;
    return chunk->index % 2 == 0 ? culvert_sleep(f.loop, 0.0) : NULL;
}

static culvert_future *process(culvert_chunk *chunk, void *arg)
{
    return culvert_copy(f.stream, arg, 0, chunk->host, 0, chunk->bytes);
}

static void pipeline(void *arg)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;

    o.depth = 2;
    o.chunk_bytes = 64;
    o.read = fill;
    o.process = process;
    o.arg = arg;
    o.arg_free = take_back;
    (void)thing();
    end(culvert_pipeline_run(f.gpu, &o));
    settle_all();
}

static culvert_future *read_in(culvert_chunk *chunk, void *arg)
{
    return culvert_chunk_read(chunk, arg);
}

static void descriptor(void *arg)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    culvert_error err;
    int fds[2];

    (void)arg;
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(write(fds[1], "some", 4), 4);
    culvert_descriptor *d = culvert_descriptor_new(f.loop, fds[0], NULL, &err);
    if (d != NULL) {
        o.chunk_bytes = 3;
        o.read = read_in;
        o.arg = d;
        culvert_future *run_ = culvert_pipeline_run(f.gpu, &o);
        for (int i = 0; i < 10; i++)
            ev_run(f.ev, EVRUN_NOWAIT);
        close(fds[1]);
        culvert_descriptor_free(d);
        end(run_);
        settle_all();
    } else {
        ck_assert_int_eq(err.code, CULVERT_ENOMEM);
        close(fds[1]);
    }
    close(fds[0]);
}

/* Each time from the beginning: what a binding and a device keep for the next time does not hide anything. */
START_TEST(out_of_memory_at_every_allocation)
{
    static void (*const bodies[])(void *) = {semaphore, batcher, pipeline, descriptor};
    static const uint64_t least[] = {3, 8, 4, 3};
    bool failed = true;
    int64_t live = 0;
    uint64_t n = 0;

    if (!gpu_fixture_simulated())
        return; /* the same, and it would take long */
    alloc_fail_this_thread(true);
    while (failed) {
        gpu_fixture_close(&f);
        if (n > 1)
            ck_assert_int_eq(alloc_fail_live(), live);
        live = alloc_fail_live();
        gpu_fixture_open(&f, NULL, NULL);
        culvert_buffer *device = gpu_fixture_buffer(&f, 64);
        alloc_fail_nth(++n);
        bodies[_i](device);
        failed = alloc_fail_happened();
        alloc_fail_off();
        culvert_buffer_unref(device);
    }
    ck_assert_msg(n > least[_i], "%llu allocations", (unsigned long long)n - 1);
}
END_TEST

/* ---- drain: a loop can be drained once ---- */

static void drain(void *arg)
{
    struct ev_loop *ev = arg;
    culvert_loop *loop = culvert_loop_new(ev, NULL, NULL);

    if (loop == NULL)
        return;
    culvert_future *waits = culvert_sleep(loop, 0.001);
    culvert_future *first = culvert_drain(loop, 100.0), *second = culvert_drain(loop, INFINITY);
    ck_assert_int_eq(culvert_draining(loop), 1);
    end(second);
    end(first);
    end(waits);
    culvert_loop_free(loop);
}

START_TEST(out_of_memory_at_every_allocation_of_a_drain)
{
    struct ev_loop *ev = ev_loop_new(EVFLAG_AUTO);

    alloc_fail_this_thread(true);
    ck_assert_uint_ge(alloc_fail_each(drain, ev), 4);
    ev_loop_destroy(ev);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve, memory");
    TCase *tc = tcase_create("memory");

    tcase_add_checked_fixture(tc, setup, teardown);
    suite_add_tcase(suite, tc);
    tcase_add_loop_test(tc, out_of_memory_at_every_allocation, 0, 4);
    tcase_add_test(tc, out_of_memory_at_every_allocation_of_a_drain);
    return test_main((Suite *[]){suite, NULL});
}
