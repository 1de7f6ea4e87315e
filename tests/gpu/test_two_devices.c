/* SPDX-License-Identifier: BSD-2-Clause */
/* Host buffers of one device in the work of another: pinned memory is every device's. */
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "fixture.culvert.h"

#include <stdlib.h>
#include <string.h>

enum { N = 3000, BYTES = N * 4 };

static gpu_fixture f; /* device 0 */
static culvert_gpu *second;

/* False: there is one device only. */
static bool begin(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_reset();
    if (gpu_fixture_simulated())
        culvert_sim_devices(2);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    if (culvert_gpu_count(f.loop, NULL) < 2) {
        gpu_fixture_close(&f);
        return false;
    }
    second = culvert_gpu_open(f.loop, 1, NULL, &err);
    ck_assert_msg(second != NULL, "%s", err.message);
    return true;
}

static void end(void)
{
    culvert_gpu_close(second);
    gpu_fixture_close(&f);
}

static culvert_buffer *host_of_second(unsigned value)
{
    culvert_buffer *host = culvert_host_buffer_new(second, BYTES, NULL);
    ck_assert_ptr_nonnull(host);
    unsigned *words = culvert_buffer_data(host);
    for (unsigned i = 0; i < N; i++)
        words[i] = i + value;
    return host;
}

static void has(const culvert_buffer *host, unsigned value)
{
    const unsigned *words = culvert_buffer_data(host);
    for (unsigned i = 0; i < N; i++)
        if (words[i] != i + value)
            ck_abort_msg("word %u is %u, not %u", i, words[i], i + value);
}

START_TEST(host_buffers_of_another_device_are_source_and_destination)
{
    if (!begin())
        return;
    culvert_buffer *from = host_of_second(7), *to = host_of_second(0), *filled = host_of_second(0);
    culvert_buffer *a = gpu_fixture_buffer(&f, BYTES), *b = gpu_fixture_buffer(&f, BYTES);
    culvert_grid grid = {.blocks = {N / 100}, .threads = {100}};
    culvert_copy2d columns = {
        .dst = to, .dst_pitch = 8, .src = from, .src_pitch = 8, .width = 4, .height = N / 2};

    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_copy(seq, a, 0, from, 0, BYTES);
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(b), CULVERT_BUFFER(a), CULVERT_U32(N),
                                    CULVERT_U32(1)));
    culvert_seq_copy(seq, to, 0, b, 0, BYTES);
    gpu_fixture_ok(culvert_seq_submit(seq));
    has(to, 8);

    seq = culvert_seq_begin(f.stream); /* a kernel reaches them by itself */
    culvert_seq_launch(seq, gpu_fixture_kernel(&f, "add_all"), &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(to), CULVERT_BUFFER(from), CULVERT_U32(N),
                                    CULVERT_U32(100)));
    culvert_seq_fill(seq, filled, 0, BYTES, 3, 4);
    gpu_fixture_ok(culvert_seq_submit(seq));
    has(to, 107);
    ck_assert_uint_eq(((const unsigned *)culvert_buffer_data(filled))[N - 1], 3);

    seq = culvert_seq_begin(f.stream); /* every second word */
    culvert_seq_copy2d(seq, &columns);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_uint_eq(((const unsigned *)culvert_buffer_data(to))[2], 2 + 7);
    ck_assert_uint_eq(((const unsigned *)culvert_buffer_data(to))[3], 3 + 107);

    culvert_buffer *all[] = {from, to, filled, a, b};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        culvert_buffer_unref(all[i]);
    end();
}
END_TEST

/* Device 1 is idle, and its memory in use all the same. */
START_TEST(they_are_held_until_the_other_device_s_work_is_over)
{
    if (!begin())
        return;
    culvert_buffer *from = host_of_second(7), *a = gpu_fixture_buffer(&f, BYTES);
    const void *address = culvert_buffer_data(from);
    unsigned *out = malloc(BYTES);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *copy = culvert_copy(f.stream, a, 0, from, 0, BYTES);
    culvert_buffer_unref(from);
    for (int i = 0; i < 20; i++) {
        culvert_buffer *other = host_of_second(1000);
        ck_assert_ptr_ne(culvert_buffer_data(other), address);
        culvert_buffer_unref(other);
        gpu_fixture_run(&f, 0.001);
    }
    culvert_gpu_close(second); /* it lives until then */
    second = NULL;
    gpu_fixture_run(&f, 0.01);
    gpu_fixture_release(&f);
    gpu_fixture_ok(copy);
    gpu_fixture_ok(culvert_download(f.stream, out, a, 0, BYTES));
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(out[i], i + 7);
    free(out);
    culvert_buffer_unref(a);
    end();
}
END_TEST

static bool is_direct(culvert_buffer *device, culvert_buffer *host)
{
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, device, 0, culvert_buffer_data(host), BYTES);
    ck_assert_ptr_nonnull(seq->ops);
    bool direct = seq->ops->u.host.direct;
    gpu_fixture_ok(culvert_seq_submit(seq));
    culvert_seq_download(seq = culvert_seq_begin(f.stream), culvert_buffer_data(host), device, 0,
                         BYTES);
    ck_assert(seq->ops->u.host.direct == direct);
    gpu_fixture_ok(culvert_seq_submit(seq));
    return direct;
}

/* A mere address is looked up in the device's own pinned memory: what is of another is copied as ordinary
   memory is. */
START_TEST(by_address_they_are_ordinary_memory)
{
    if (!begin())
        return;
    culvert_buffer *a = gpu_fixture_buffer(&f, BYTES);
    culvert_buffer *own = gpu_fixture_host_buffer(&f, BYTES), *other = host_of_second(7);
    ck_assert(is_direct(a, own));
    ck_assert(!is_direct(a, other));
    has(other, 7);
    culvert_buffer_unref(a);
    culvert_buffer_unref(own);
    culvert_buffer_unref(other);
    end();
}
END_TEST

int main(void)
{
    trials *t = trials_new("two_devices");
    TRIAL(t, host_buffers_of_another_device_are_source_and_destination);
    TRIAL(t, they_are_held_until_the_other_device_s_work_is_over);
    TRIAL(t, by_address_they_are_ordinary_memory);
    return trials_run(t);
}
