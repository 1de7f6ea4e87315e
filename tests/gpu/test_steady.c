/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that has been up for a while: it makes nothing new in the driver, asks for no memory, never waits. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { MANY = 20000 };
#else
enum { MANY = 100000 };
#endif
/* Where AddressSanitizer watches them, futures are not kept for the next ones. */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { FUTURES_FROM_MALLOC = 1 };
#else
enum { FUTURES_FROM_MALLOC = 0 };
#endif
enum { ROUND = 5000, KIB = 1024, MIB = 1024 * KIB, STREAMS = 4, WINDOW = 32, LARGE = 300 * KIB };

static gpu_fixture f;
static culvert_stream *streams[STREAMS];
static culvert_buffer *words[STREAMS]; /* of a stream each */
static unsigned char *in, *out;
static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)arg;
    ck_assert_int_eq(err->code, CULVERT_EINVAL); /* of those that are dropped */
}

static void set_up(void)
{
    culvert_loop_options loop_options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    loop_options.on_unhandled = unhandled;
    options.device_reserve = options.pinned_reserve = 64 * MIB; /* enough for whatever comes */
    gpu_fixture_open(&f, &loop_options, &options);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = gpu_fixture_stream(&f);
        words[s] = gpu_fixture_buffer(&f, MIB);
    }
    in = calloc(1, LARGE);
    out = calloc(STREAMS, LARGE);
    seed = 1;
}

static void tear_down(void)
{
    if (f.gpu == NULL)
        return;
    for (int s = 0; s < STREAMS; s++) {
        culvert_stream_unref(streams[s]);
        culvert_buffer_unref(words[s]);
    }
    gpu_fixture_close(&f);
    free(in);
    free(out);
}

/* ---- a request ---- */

static int call_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 0;
}

static void count_free(void *p)
{
    --*(int *)p;
}

static int kept;

/* Mixed: all operations, waits on the device and by the host, errors, times. */
static culvert_future *request(culvert_future *before)
{
    unsigned s = pick(STREAMS);
    culvert_seq *seq = culvert_seq_begin(streams[s]);
    culvert_buffer *mine = words[s];
    if (before != NULL)
        culvert_seq_wait(seq, before);
    culvert_seq_keep(seq, &kept, count_free);
    kept++;
    for (unsigned n = 1 + pick(3); n > 0; n--)
        switch (pick(9)) {
        case 0: culvert_seq_fill(seq, mine, 64, 64, s, 4); break;
        case 1: gpu_fixture_add(&f, seq, mine, 200, 1); break;
        case 2: culvert_seq_upload(seq, mine, KIB, in, 1 + pick(KIB)); break;
        case 3: culvert_seq_download(seq, out + LARGE * s, mine, KIB, 1 + pick(KIB)); break;
        case 4: culvert_seq_copy(seq, mine, 8192, mine, 64, 64); break;
        case 5: (void)culvert_seq_scratch(seq, 1 + pick(64 * KIB)); break;
        case 6: culvert_seq_call(seq, call_nothing, NULL, NULL); break;
        case 7: culvert_seq_timed(seq); break;
        default:
            if (pick(8) == 0)
                culvert_seq_fill(seq, mine, 1, 3, 0, 2); /* refused */
            else if (pick(8) == 0)
                culvert_seq_upload(seq, mine, 512 * KIB, in, LARGE);
        }
    return culvert_seq_submit(seq);
}

/* The window's oldest is waited for, timed out, cancelled or dropped. */
static void end_request(culvert_future *future)
{
    switch (pick(6)) {
    case 0: culvert_cancel(future); break;
    case 1: culvert_unref(future); return;
    case 2: future = culvert_timeout(future, pick(2) == 0 ? 0 : 10); break;
    default: break;
    }
    (void)culvert_await(future, 60);
    culvert_unref(future);
}

static void serve(unsigned n)
{
    culvert_future *window[WINDOW] = {NULL};
    for (unsigned i = 0; i < n; i++) {
        culvert_future **slot = &window[i % WINDOW];
        if (*slot != NULL)
            end_request(*slot);
        culvert_future *before = i > 0 ? window[(i - 1) % WINDOW] : NULL;
        *slot = request(before != NULL && pick(4) == 0 ? culvert_ref(before) : NULL);
    }
    for (int i = 0; i < WINDOW; i++)
        if (window[i] != NULL)
            end_request(window[i]);
    for (int s = 0; s < STREAMS; s++)
        gpu_fixture_idle(&f, streams[s]);
    gpu_fixture_run(&f, 0.001);
    ck_assert_int_eq(kept, 0);
}

/* Fills every pool once. */
static void warm_up(void)
{
    culvert_future *futures[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_hold(&f, streams[s]);
        futures[s] = NULL;
        for (int i = 0; i < 300; i++) {
            culvert_seq *seq = culvert_seq_begin(streams[s]);
            culvert_seq_timed(seq);
            if (futures[s] != NULL)
                culvert_detach(futures[s]);
            futures[s] = culvert_seq_submit(seq);
        }
    }
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 20; i++)
            culvert_detach(
                culvert_upload(streams[s], words[s], 512 * KIB, in, i % 2 ? KIB : LARGE));
    gpu_fixture_run(&f, 0.01);
    gpu_fixture_release(&f);
    for (int s = 0; s < STREAMS; s++) {
        gpu_fixture_ok(futures[s]);
        gpu_fixture_idle(&f, streams[s]);
    }
    serve(2000);
}

/* ---- counts ---- */

static const char *const makers[] = {"cuMemHostAlloc",
                                     "cuMemFreeHost",
                                     "cuMemAlloc",
                                     "cuMemFree",
                                     "cuEventCreate",
                                     "cuEventDestroy",
                                     "cuStreamCreateWithPriority",
                                     "cuStreamCreate",
                                     "cuStreamDestroy",
                                     "cuModuleLoadDataEx",
                                     "cuModuleUnload",
                                     "cuMemHostRegister"};
enum { MAKERS = sizeof makers / sizeof makers[0] };

START_TEST(case_065_so_many_requests_make_nothing)
{
    uint64_t before[MAKERS];
    warm_up();
    for (int i = 0; i < MAKERS; i++)
        before[i] = culvert_sim_calls(makers[i]);
    uint64_t calls = culvert_sim_calls(NULL);
    size_t used = culvert__heap_used(f.gpu->memory->local);
    unsigned many = getenv("CULVERT_TEST_SLOW") != NULL ? 10 * MANY : MANY;
    serve(many);
    ck_assert_uint_gt(culvert_sim_calls(NULL) - calls, many);
    for (int i = 0; i < MAKERS; i++)
        ck_assert_msg(culvert_sim_calls(makers[i]) == before[i], "%llu calls of %s",
                      (unsigned long long)(culvert_sim_calls(makers[i]) - before[i]), makers[i]);
    ck_assert_uint_eq(culvert__heap_used(f.gpu->memory->local), used);
    ck_assert(culvert__staging_at_rest(f.gpu));
    ck_assert_uint_eq(atomic_load(&f.gpu->device->units), 0);
    /* case 70: not more events than can be in flight, with those of timed sequences */
    ck_assert_uint_le(culvert_sim_live("event"), 768 + 2 * 768 + 64);
}
END_TEST

/* Making one takes long where the context's lock is contended: it is not made in service. */
START_TEST(case_069_slow_event_creation_does_not_matter)
{
    warm_up();
    uint64_t before = culvert_sim_calls("cuEventCreate");
    culvert_sim_delay("cuEventCreate", 0.01);
    serve(1000);
    ck_assert_uint_eq(culvert_sim_calls("cuEventCreate"), before);
}
END_TEST

START_TEST(case_070_nothing_is_left)
{
    for (int round = 0; round < 3; round++) {
        serve(MANY / 50);
        tear_down(); /* looks for what is left */
        set_up();
    }
}
END_TEST

/* ---- what is never called ---- */

START_TEST(case_044_no_call_that_synchronises)
{
    static const char *const never[] = {"cuCtxSynchronize",   "cuStreamSynchronize",
                                        "cuEventSynchronize", "cuMemcpyHtoD",
                                        "cuMemcpyDtoH",       "cuStreamAddCallback"};
    serve(2000);
    tear_down();
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        ck_assert_msg(culvert_sim_calls(never[i]) == 0, "%s", never[i]);
}
END_TEST

START_TEST(case_041_stream_callbacks_are_not_even_in_the_table)
{
    static const char *const table[] = {
#define X(name, abi, ask, need, symbol) #name,
#include "driver/driver.def"
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        ck_assert_ptr_null(strstr(table[i], "AddCallback"));
}
END_TEST

/* ---- memory of the process ---- */

START_TEST(service_asks_for_no_memory)
{
    alloc_fail_this_thread(true);
    warm_up();
    alloc_fail_nth(1000000000); /* none fails, from here they are counted */
    for (int i = 0; i < 1000; i++) {
        culvert_buffer *mine = words[i % STREAMS];
        culvert_seq *seq = culvert_seq_begin(streams[i % STREAMS]);
        gpu_fixture_add(&f, seq, mine, 1, 1);
        culvert_seq_upload(seq, mine, 64 * KIB, in, 1000);
        culvert_seq_download(seq, out, mine, 64 * KIB, 1000);
        culvert_seq_copy(seq, mine, 8, mine, 16, 8);
        gpu_fixture_ok(culvert_seq_submit(seq));
    }
    uint64_t allocations = alloc_fail_count();
    alloc_fail_off();
    ck_assert_msg(allocations <= FUTURES_FROM_MALLOC * 1000, "%llu allocations in 1000 requests",
                  (unsigned long long)allocations);
}
END_TEST

/* The mixed load: the same number, whether it is served for the first time or for the tenth. */
START_TEST(mixed_service_asks_for_the_same_memory_each_time)
{
    uint64_t counts[4];
    alloc_fail_this_thread(true);
    warm_up();
    for (int round = 0; round < 4; round++) {
        seed = 7;
        alloc_fail_nth(1000000000);
        serve(ROUND);
        counts[round] = alloc_fail_count();
    }
    alloc_fail_off();
    /* What was refused, timed out or waited for allocates; which of them did depends a little on times. */
    ck_assert_uint_lt(counts[0], ROUND * (1 + FUTURES_FROM_MALLOC * 8));
    for (int round = 1; round < 4; round++)
        ck_assert_msg(counts[round] <= counts[0] + ROUND / 20,
                      "%llu allocations in round %d, %llu in the first",
                      (unsigned long long)counts[round], round, (unsigned long long)counts[0]);
}
END_TEST

/* ---- threads ---- */

static pthread_t loop_thread;

static void free_on_loop(void *p)
{
    ck_assert(pthread_equal(pthread_self(), loop_thread));
    --*(int *)p;
}

static void buffer_goes(void *p)
{
    ck_assert(pthread_equal(pthread_self(), loop_thread));
    culvert_buffer_unref(p);
}

/* Fifty times, all that there is of it is in flight: buffers of the heap and adopted ones, scratch, what
   is kept, the future. Freed on the loop, and by no call of the driver; the simulator aborts where a host
   function makes one. */
START_TEST(case_033_the_last_reference_goes_on_the_loop_and_never_in_a_host_function)
{
    enum { ROUNDS = 50 };
    static const culvert_grid one = {.blocks = {1}, .threads = {1}};
    int objects = 0, adopted = 0;
    loop_thread = pthread_self();
    gpu_fixture_ok(culvert_stream_done(streams[0]));
    uint64_t host = culvert_sim_calls("cuLaunchHostFunc");
    uint64_t frees = culvert_sim_calls("cuMemFree") + culvert_sim_calls("cuMemFreeHost");
    size_t used = culvert__heap_used(f.gpu->memory->local);
    for (int i = 0; i < ROUNDS; i++) {
        culvert_buffer *buffer = culvert_buffer_new(f.gpu, 4096, NULL);
        culvert_buffer *mine = culvert_buffer_adopt(f.gpu, culvert_buffer_address(words[0]) + 4096,
                                                    4096, &adopted, free_on_loop, NULL);
        culvert_seq *seq = culvert_seq_begin(streams[i % STREAMS]);
        ck_assert_ptr_nonnull(mine);
        culvert_seq_fill(seq, buffer, 0, 4096, 1, 4);
        culvert_seq_use(seq, mine);
        (void)culvert_seq_scratch(seq, 4096);
        culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &one,
                           CULVERT_ARGS(CULVERT_U64(1000000)));
        culvert_seq_keep(seq, culvert_buffer_new(f.gpu, 64, NULL), buffer_goes);
        culvert_seq_keep(seq, &objects, free_on_loop);
        objects++;
        adopted++;
        culvert_buffer_unref(buffer);
        culvert_buffer_unref(mine);
        if (i % 2 == 0)
            culvert_detach(culvert_seq_submit(seq));
        else
            culvert_unref(culvert_seq_submit(seq));
        ck_assert_int_gt(adopted, 0); /* in flight still */
        if (i % 10 == 9)
            ev_run(f.ev, 0);
    }
    ck_assert_uint_gt(culvert_sim_calls("cuLaunchHostFunc"), host);
    ck_assert_int_eq(objects, 0);
    ck_assert_int_eq(adopted, 0);
    ck_assert_uint_eq(culvert__heap_used(f.gpu->memory->local), used);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree") + culvert_sim_calls("cuMemFreeHost"), frees);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
}
END_TEST

/* A kernel that does not end; freeing something else goes to the library's heap, not to the driver. */
START_TEST(case_074_freeing_does_not_wait_for_a_kernel)
{
    gpu_fixture_hold(&f, streams[0]);
    culvert_future *held = culvert_fill(streams[0], words[0], 0, 64, 1, 4);
    culvert_buffer *buffers[20];
    for (int i = 0; i < 20; i++)
        buffers[i] = culvert_buffer_new(f.gpu, MIB, NULL);
    uint64_t frees = culvert_sim_calls("cuMemFree"), hosts = culvert_sim_calls("cuMemFreeHost");
    for (int i = 0; i < 20; i++)
        culvert_buffer_unref(buffers[i]);
    culvert_buffer_unref(culvert_host_buffer_new(f.gpu, 100, NULL));
    gpu_fixture_run(&f, 0.01);
    ck_assert_uint_eq(culvert_sim_calls("cuMemFree"), frees); /* case 42 too */
    ck_assert_uint_eq(culvert_sim_calls("cuMemFreeHost"), hosts);
    gpu_fixture_release(&f);
    gpu_fixture_ok(held);
}
END_TEST

/* Non-blocking streams of its own: the handles 0, 1 and 2 are somebody else's business. */
START_TEST(case_085_the_legacy_stream_is_never_used)
{
    culvert__scope scope = culvert__scope_enter(f.gpu->device); /* it is a context's */
    culvert_sim_hold((struct CUstream_st *)(uintptr_t)1);
    culvert__scope_leave(scope);
    serve(500);
    culvert_sim_release(NULL);
    for (int s = 0; s < STREAMS; s++)
        ck_assert_uint_gt((uintptr_t)culvert_stream_native(streams[s]), 2);
}
END_TEST

static Suite *steady_suite(void)
{
    Suite *suite = suite_create("steady");
    TCase *many = tcase_create("requests"), *tc = tcase_create("service");
    tcase_add_checked_fixture(many, set_up, tear_down);
    tcase_set_timeout(many, 600);
    tcase_add_test(many, case_065_so_many_requests_make_nothing);
    suite_add_tcase(suite, many);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, case_069_slow_event_creation_does_not_matter);
    tcase_add_test(tc, case_070_nothing_is_left);
    tcase_add_test(tc, case_044_no_call_that_synchronises);
    tcase_add_test(tc, case_041_stream_callbacks_are_not_even_in_the_table);
    tcase_add_test(tc, service_asks_for_no_memory);
    tcase_add_test(tc, mixed_service_asks_for_the_same_memory_each_time);
    tcase_add_test(tc, case_033_the_last_reference_goes_on_the_loop_and_never_in_a_host_function);
    tcase_add_test(tc, case_074_freeing_does_not_wait_for_a_kernel);
    tcase_add_test(tc, case_085_the_legacy_stream_is_never_used);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {steady_suite(), NULL};
    return test_main(suites);
}
