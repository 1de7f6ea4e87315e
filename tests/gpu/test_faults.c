/* SPDX-License-Identifier: BSD-2-Clause */
/* Every function of the driver fails, at its first call, its second, and so on, with several results. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"

#include "culvert/sim.h"
#include "driver/table.h"
#include "fixture.culvert.h"
#include "lib/child.h"
#include "lib/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
enum { CALLS = 2, RESULTS = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { CALLS = 2, RESULTS = 3 };
#else
enum { CALLS = 6, RESULTS = 6 };
#endif

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);

static const char *const functions[] = {
#define X(name, abi, ask, need, symbol) #name,
#include "driver/driver.def"
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* ---- a bit of everything ---- */

enum { BIG = 300000, WORDS = 64, BITS = 12 };

typedef struct bit {
    culvert_future *future; /* an own handle, until the end */
    int calls, frees;
    int status;
} bit;

typedef struct scene {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_module *module;
    culvert_stream *streams[2], *picked;
    culvert_buffer *a, *b, *big, *pinned;
    bit bits[BITS];
    int settled, used, kept, keeps;
    bool lost;
    unsigned in[WORDS], out[WORDS];
    unsigned char big_in[BIG], big_out[BIG];
    unsigned after[2];
} scene;

/* What it is about, for messages. */
static const char *function;
static unsigned nth;
static int result;

#define EXPECT(what)                                                                        \
    do {                                                                                    \
        if (!(what)) {                                                                      \
            fprintf(stderr, "call %u of %s gives %d: line %d: %s\n", nth, function, result, \
                    __LINE__, #what);                                                       \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

static void bit_settled(culvert_future *done, void *arg)
{
    bit *it = arg;
    it->calls++;
    it->status = culvert_status(done);
    (void)culvert_get_error(done);
}

static void bit_freed(void *arg)
{
    ((bit *)arg)->frees++;
}

/* Its number. */
static int add(scene *s, culvert_future *future)
{
    bit *it = &s->bits[s->used];
    EXPECT(s->used < BITS);
    *it = (bit){.future = culvert_ref(future), .status = CULVERT_PENDING};
    if (culvert_on_settled(future, bit_settled, it, bit_freed) != CULVERT_OK)
        it->calls++, it->status = culvert_status(it->future);
    return s->used++;
}

static void keep_freed(void *arg)
{
    ++*(int *)arg;
}

static int enqueue_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    (void)arg;
    return 0;
}

static void on_log(int level, const char *message, void *arg)
{
    (void)level;
    (void)message;
    (void)arg;
}

static bool scene_open(scene *s, int device)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options gpu_options = CULVERT_GPU_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    memset(s, 0, sizeof *s);
    options.on_log = on_log;
    options.wake = nth % 2 == 0 ? CULVERT_WAKE_HOST_FUNC : CULVERT_WAKE_ADAPTIVE;
    gpu_options.pinned_reserve = 8 << 20;
    s->ev = ev_loop_new(EVFLAG_AUTO);
    s->loop = culvert_loop_new(s->ev, &options, &err);
    EXPECT(s->loop != NULL);
    s->gpu = culvert_gpu_open(s->loop, device, &gpu_options, &err);
    EXPECT(s->gpu != NULL || (err.code < 0 && err.message[0] != '\0'));
    s->lost = err.code == CULVERT_EDEVICELOST || err.code == CULVERT_ESHUTDOWN;
    return s->gpu != NULL;
}

/* A thing that could not be made says why. */
static bool made(void *thing, culvert_error *err)
{
    EXPECT(thing != NULL || (err->code < 0 && err->message[0] != '\0' && err->op != NULL));
    return thing != NULL;
}

static bool scene_furnish(scene *s)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *loaded = culvert_module_load(s->gpu, &culvert_image_fixture);
    int status = culvert_await(loaded, 60);
    EXPECT(status != CULVERT_PENDING);
    s->module = culvert_take(loaded);
    culvert_unref(loaded);
    EXPECT((status == CULVERT_OK) == (s->module != NULL));
    for (int i = 0; i < 2; i++)
        if (!made(s->streams[i] = culvert_stream_new(s->gpu, NULL, &err), &err))
            return false;
    if (!made(s->picked = culvert_stream_pick(s->gpu, CULVERT_PRIORITY_HIGH, &err), &err))
        return false;
    return made(s->a = culvert_buffer_new(s->gpu, 4096, &err), &err) &&
           made(s->b = culvert_buffer_new(s->gpu, 4096, &err), &err) &&
           made(s->big = culvert_buffer_new(s->gpu, BIG, &err), &err) &&
           made(s->pinned = culvert_host_buffer_new(s->gpu, 4096, &err), &err);
}

static culvert_kernel *kernel(scene *s, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (s->module == NULL)
        return NULL;
    culvert_kernel *k = culvert_module_kernel(s->module, name, &err);
    (void)made(k, &err);
    return k;
}

/* Upload, kernel, download. */
static int words_bit(scene *s, culvert_kernel *add_all)
{
    culvert_grid grid = {.blocks = {1}, .threads = {WORDS}};
    for (unsigned i = 0; i < WORDS; i++)
        s->in[i] = i * 3;
    culvert_seq *seq = culvert_seq_begin(s->streams[0]);
    culvert_seq_timed(seq);
    culvert_seq_upload(seq, s->a, 0, s->in, sizeof s->in);
    culvert_seq_launch(seq, add_all, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(s->b), CULVERT_BUFFER(s->a), CULVERT_U32(WORDS),
                                    CULVERT_U32(7)));
    culvert_seq_download(seq, s->out, s->b, 0, sizeof s->out);
    culvert_seq_keep(seq, &s->kept, keep_freed);
    s->keeps++;
    return add(s, culvert_seq_submit(seq));
}

/* Large, by workers. */
static int big_bit(scene *s)
{
    for (size_t i = 0; i < BIG; i++)
        s->big_in[i] = (unsigned char)(i * 11 + i / 256);
    culvert_seq *seq = culvert_seq_begin(s->picked);
    culvert_seq_upload(seq, s->big, 0, s->big_in, BIG);
    culvert_seq_download(seq, s->big_out, s->big, 0, BIG);
    culvert_seq_keep(seq, &s->kept, keep_freed);
    s->keeps++;
    return add(s, culvert_seq_submit(seq));
}

/* Behind another one, by the device: what that wrote. */
static int behind_bit(scene *s, culvert_future *first)
{
    culvert_seq *seq = culvert_seq_begin(s->streams[1]);
    culvert_seq_wait(seq, culvert_ref(first));
    culvert_seq_copy(seq, s->pinned, 0, s->a, 1024, 8);
    return add(s, culvert_seq_submit(seq));
}

/* A graph of everything, launched with binds on two streams, in order. Its number; -1: it was not compiled. */
static int graph_bit(scene *s, culvert_kernel *add_all)
{
    culvert_grid grid = {.blocks = {1}, .threads = {2}};
    culvert_copy2d rows = {.dst = s->pinned,
                           .dst_offset = 512,
                           .dst_pitch = 4,
                           .src = s->b,
                           .src_offset = 3072,
                           .src_pitch = 8,
                           .width = 4,
                           .height = 2};
    culvert_seq *seq = culvert_seq_begin(s->streams[0]);
    culvert_seq_fill(seq, s->a, 3072, 16, 5, 4);
    culvert_seq_call(seq, enqueue_nothing, NULL, NULL);
    culvert_seq_copy(seq, s->b, 3072, s->a, 3072, 16);
    if (add_all != NULL)
        culvert_seq_launch(seq, add_all, &grid,
                           CULVERT_ARGS(CULVERT_BUFFER_AT(s->b, 3080),
                                        CULVERT_BUFFER_AT(s->a, 3072), CULVERT_U32(2),
                                        CULVERT_U32(7)));
    culvert_seq_copy2d(seq, &rows);
    culvert_seq_keep(seq, &s->kept, keep_freed);
    s->keeps++;
    culvert_future *compiled = culvert_seq_compile(seq);
    int status = culvert_await(compiled, 60);
    EXPECT(status != CULVERT_PENDING);
    culvert_graph *graph = culvert_take(compiled);
    EXPECT((status == CULVERT_OK) == (graph != NULL));
    culvert_unref(compiled);
    if (graph == NULL)
        return -1;
    const culvert_bind binds[] = {{.op = 0, .index = 0, .value = CULVERT_BUFFER_AT(s->a, 3200)},
                                  {.op = 2, .index = 1, .value = CULVERT_BUFFER_AT(s->a, 3200)},
                                  {.op = 3, .index = 3, .value = CULVERT_U32(70)}};
    int first = add(s, culvert_graph_launch(s->streams[0], graph, NULL, 0));
    seq = culvert_seq_begin(s->streams[1]);
    culvert_seq_wait(seq, culvert_ref(s->bits[first].future));
    culvert_seq_graph(seq, graph, binds, add_all != NULL ? 3 : 2);
    culvert_graph_unref(graph);
    return add(s, culvert_seq_submit(seq));
}

static void scene_play(scene *s)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}, .shared_bytes = 50000};
    culvert_kernel *add_all = kernel(s, "add_all"), *empty = kernel(s, "empty");
    int words = add_all != NULL ? words_bit(s, add_all) : -1;
    int big = big_bit(s);
    int graph = graph_bit(s, add_all);
    culvert_seq *seq = culvert_seq_begin(s->streams[0]);
    culvert_seq_fill(seq, s->a, 1024, 8, 0x1234, 4);
    culvert_seq_fill(seq, s->a, 1032, 8, 0x12, 2);
    culvert_seq_fill(seq, s->a, 1040, 8, 0x1, 1);
    culvert_seq_copy(seq, s->b, 2048, s->a, 1024, 8);
    (void)culvert_seq_scratch(seq, 1000);
    culvert_seq_call(seq, enqueue_nothing, NULL, NULL);
    int filled = add(s, culvert_seq_submit(seq));
    int behind = behind_bit(s, s->bits[filled].future);
    (void)culvert_stream_native(s->streams[1]); /* from now on it is asked whether it is captured */
    seq = culvert_seq_begin(s->streams[1]);     /* the loop waits for this one */
    culvert_seq_wait(seq, culvert_sleep(s->loop, 0.0005));
    if (empty != NULL)
        culvert_seq_launch(seq, empty, &grid, NULL, 0);
    culvert_seq_download(seq, s->after, s->b, 2048, 8);
    culvert_seq_wait(seq, culvert_ref(s->bits[filled].future));
    int after = add(s, culvert_seq_submit(seq));
    add(s, culvert_stream_done(s->streams[1]));
    add(s, culvert_timeout(culvert_stream_done(s->streams[0]), 50));

    double end = test_now() + 60;
    for (bool all = false; !all && test_now() < end;) {
        trial_turn(s->ev, 0.001);
        all = true;
        for (int i = 0; i < s->used; i++)
            all &= s->bits[i].calls > 0;
    }
    s->lost = culvert_gpu_state(s->gpu) == CULVERT_GPU_LOST;
    for (int i = 0; i < s->used; i++) {
        EXPECT(s->bits[i].calls == 1); /* it has settled, once */
        EXPECT(s->bits[i].frees == 1);
        EXPECT(s->bits[i].status == CULVERT_OK || s->bits[i].status < 0);
        EXPECT(!s->lost || s->bits[i].status != CULVERT_PENDING);
    }
    /* What is a success is right. */
    if (words >= 0 && s->bits[words].status == CULVERT_OK)
        for (unsigned i = 0; i < WORDS; i++)
            EXPECT(s->out[i] == i * 3 + 7);
    if (s->bits[big].status == CULVERT_OK)
        EXPECT(memcmp(s->big_in, s->big_out, BIG) == 0);
    const unsigned *copied = culvert_buffer_data(s->pinned);
    if (s->bits[behind].status == CULVERT_OK) {
        EXPECT(s->bits[filled].status == CULVERT_OK);
        EXPECT(copied[0] == 0x1234 && copied[1] == 0x1234);
    }
    if (graph >= 0 && s->bits[graph].status == CULVERT_OK)
        EXPECT(copied[128] == 5 && copied[129] == (add_all != NULL ? 75 : 5));
    if (s->bits[after].status == CULVERT_OK) {
        EXPECT(s->bits[filled].status == CULVERT_OK);
        EXPECT(s->after[0] == 0x1234 && s->after[1] == 0x1234);
    }
}

static void scene_close(scene *s)
{
    for (int i = 0; i < s->used; i++)
        culvert_unref(s->bits[i].future);
    culvert_buffer_unref(s->a);
    culvert_buffer_unref(s->b);
    culvert_buffer_unref(s->big);
    culvert_buffer_unref(s->pinned);
    culvert_module_unref(s->module);
    culvert_stream_unref(s->streams[0]);
    culvert_stream_unref(s->streams[1]);
    culvert_stream_unref(s->picked);
    culvert_gpu_close(s->gpu);
    double start = test_now();
    culvert_loop_free(s->loop);
    EXPECT(test_now() - start < 30);
    EXPECT(s->lost || s->kept == s->keeps);
    ev_loop_destroy(s->ev);
}

static const char *const kinds[] = {"event", "stream",       "module",
                                    "graph", "device bytes", "pinned bytes"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* What a call that destroys something did not destroy is left, once. */
static bool may_leave(void)
{
    static const char *const destroyers[] = {
        "cuEventDestroy",     "cuStreamDestroy", "cuMemFree",
        "cuMemFreeHost",      "cuModuleUnload",  "cuGraphDestroy",
        "cuGraphExecDestroy", "cuCtxPushCurrent" /* and so the call goes to another context, or none */};
    for (size_t i = 0; i < sizeof destroyers / sizeof destroyers[0]; i++)
        if (strcmp(function, destroyers[i]) == 0)
            return true;
    return false;
}

/* False: the function is not called so often. */
static bool run_once(int device)
{
    static scene s;
    uint64_t live[KINDS];
    for (int i = 0; i < KINDS; i++)
        live[i] = culvert_sim_live(kinds[i]);
    uint64_t before = culvert_sim_calls(function);
    culvert_sim_fail(function, nth, result);
    if (scene_open(&s, device)) {
        if (scene_furnish(&s))
            scene_play(&s);
        s.lost = culvert_gpu_state(s.gpu) == CULVERT_GPU_LOST;
    }
    scene_close(&s);
    if (culvert_sim_calls(function) - before < nth)
        return false;
    if (!s.lost && !may_leave())
        for (int i = 0; i < KINDS; i++)
            if (culvert_sim_live(kinds[i]) != live[i]) {
                fprintf(stderr, "call %u of %s gives %d: %llu left of %s\n", nth, function, result,
                        (unsigned long long)(culvert_sim_live(kinds[i]) - live[i]), kinds[i]);
                _exit(1);
            }
    /* A graph that is left names a module that is unloaded: it is launched no more. */
    EXPECT(culvert_sim_violations() == 0 || (may_leave() && strstr(function, "Graph") != NULL));
    return true;
}

/* In a process of its own: calls 1 to CALLS of the function, each on a device of its own, since one may be
   lost. Without a failure at the end, to see that nothing is broken. */
static int run_function(void *arg)
{
    struct CUctx_st *ctx;
    function = functions[*(const int *)arg];
    culvert_sim_devices(8);
    if (cuInit(0) != 0)
        return 1;
    for (int d = 0; d < 8; d++)
        if (cuDevicePrimaryCtxRetain(&ctx, d) != 0) /* what is left is seen */
            return 1;
    bool more = true;
    for (nth = 1; nth <= CALLS && more; nth++)
        more = run_once((int)nth - 1);
    exit(0); /* so that a leak is found */
}

/* Tells which functions there are calls of at all. */
static int run_without(void *arg)
{
    (void)arg;
    function = functions[0];
    if (cuInit(0) != 0)
        return 1;
    nth = 1000000;
    result = 0;
    (void)run_once(0);
    for (int i = 0; i < FUNCTIONS; i++)
        if (culvert_sim_calls(functions[i]) > 0)
            fprintf(stderr, "<%s>", functions[i]);
    return 0;
}

static void each_function(int with)
{
    int failed = 0, run = 0;
    test_child without = test_child_run(run_without, NULL, 0, 100);
    ck_assert_msg(without.ended && without.status == 0, "%s", without.output);
    ck_assert_ptr_nonnull(strstr(without.output, "<cuMemcpyDtoHAsync>"));
    ck_assert_ptr_nonnull(strstr(without.output, "<cuGraphExecKernelNodeSetParams>"));
    result = with;
    for (int i = 0; i < FUNCTIONS; i++) {
        char name[96];
        snprintf(name, sizeof name, "<%s>", functions[i]);
        /* They are called once a process, and what they give has tests of its own. */
        if (strcmp(functions[i], "cuInit") == 0 ||
            strcmp(functions[i], "cuDriverGetVersion") == 0 || strstr(without.output, name) == NULL)
            continue;
        test_child child = test_child_run(run_function, &i, 0, 100);
        run++;
        if (child.ended && child.status == 0)
            continue;
        failed++;
        printf("%s gives %d: status %d, signal %d%s: %s\n", functions[i], with, child.status,
               child.signal, child.timed_out ? ", too late" : "", child.output);
    }
    ck_assert_msg(failed == 0, "%d of %d functions", failed, run);
    ck_assert_int_gt(run, 30);
}

START_TEST(each_call_fails_with_invalid_value)
{
    each_function(1);
}
END_TEST

START_TEST(each_call_fails_for_want_of_memory)
{
    each_function(2);
}
END_TEST

START_TEST(each_call_fails_with_a_sticky_error)
{
    each_function(700);
}
END_TEST

START_TEST(each_call_fails_with_an_unknown_error)
{
    each_function(999);
}
END_TEST

START_TEST(each_call_is_not_supported)
{
    each_function(801);
}
END_TEST

START_TEST(each_call_finds_the_driver_gone)
{
    each_function(4);
}
END_TEST

/* ---- the cases ---- */

static gpu_fixture f;

/* The address that a buffer of this size gets now. */
static unsigned long long next_address(size_t bytes)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *b = culvert_buffer_new(f.gpu, bytes, &err);
    ck_assert_msg(b != NULL, "%s", err.message);
    unsigned long long address = culvert_buffer_address(b);
    culvert_buffer_unref(b);
    return address;
}

/* Work that is in the driver, with nothing that would tell of its end: the loop looks by itself. */
START_TEST(case_038_the_host_function_cannot_be_registered)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_HOST_FUNC;
    gpu_fixture_open(&f, &options, NULL);
    for (int round = 0; round < 2; round++) {
        culvert_buffer *buffer = gpu_fixture_buffer(&f, 100000);
        unsigned long long address = culvert_buffer_address(buffer);
        gpu_fixture_hold(&f, f.stream);
        for (unsigned i = 1; i < 50; i++)
            culvert_sim_fail(round == 0 ? "cuLaunchHostFunc" : "cuStreamWaitEvent", i, 2);
        culvert_future *future = culvert_fill(f.stream, buffer, 0, 100000, 1, 4);
        culvert_buffer_unref(buffer);
        gpu_fixture_run(&f, 0.02);
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        ck_assert_uint_ne(next_address(100000), address); /* it is in use */
        gpu_fixture_release(&f);
        gpu_fixture_ok(future);
        ck_assert_uint_eq(next_address(100000), address); /* and now it is not */
    }
    gpu_fixture_close(&f);
}
END_TEST

/* The work is in the driver, and nothing tells where it ends but the stream. */
START_TEST(case_038_case_050_the_event_cannot_be_recorded)
{
    static const int results[] = {1, 2, 400, 801, 999};
    gpu_fixture_open(&f, NULL, NULL);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        culvert_buffer *buffer = gpu_fixture_buffer(&f, 100000);
        unsigned long long address = culvert_buffer_address(buffer);
        unsigned word = 0;
        gpu_fixture_hold(&f, f.stream);
        culvert_sim_fail("cuEventRecord", 1, results[i]);
        culvert_future *future = culvert_fill(f.stream, buffer, 0, 100000, 1, 4);
        culvert_buffer_unref(buffer);
        gpu_fixture_run(&f, 0.02);
        /* An event that was never recorded says that it is complete: it is not asked. */
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        ck_assert_uint_ne(next_address(100000), address);
        /* One that follows, and has an event, does not change that. */
        culvert_buffer *other = culvert_buffer_new(f.gpu, 4, NULL);
        culvert_future *behind = culvert_fill(f.stream, other, 0, 4, 5, 4);
        gpu_fixture_run(&f, 0.02);
        ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
        ck_assert_int_eq(culvert_status(behind), CULVERT_PENDING);
        gpu_fixture_release(&f);
        int status = culvert_await(future, 60);
        ck_assert_msg(status < 0, "%s", culvert_error_name(status));
        ck_assert_int_eq(culvert_get_error(future)->native, results[i]);
        gpu_fixture_says(culvert_get_error(future), "cuEventRecord");
        culvert_unref(future);
        gpu_fixture_ok(behind);
        gpu_fixture_ok(culvert_download(f.stream, &word, other, 0, 4));
        ck_assert_uint_eq(word, 5);
        culvert_buffer_unref(other);
    }
    gpu_fixture_close(&f);
}
END_TEST

/* Who waits for such a one waits for its outcome, not for an event. */
START_TEST(case_050_who_waits_for_what_has_no_event)
{
    gpu_fixture_open(&f, NULL, NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    culvert_stream *other = gpu_fixture_stream(&f);
    gpu_fixture_hold(&f, f.stream);
    culvert_sim_fail("cuEventRecord", 1, 2);
    culvert_seq *seq = culvert_seq_begin(other);
    culvert_seq_wait(seq, culvert_fill(f.stream, buffer, 0, 4096, 1, 4));
    culvert_seq_fill(seq, buffer, 0, 4096, 2, 4);
    uint64_t fills = culvert_sim_calls("cuMemsetD32Async");
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_fails(future, CULVERT_ENOMEM);
    ck_assert_uint_eq(culvert_sim_calls("cuMemsetD32Async"), fills);
    culvert_stream_unref(other);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* A middle one of many fails: what is in the driver ends first, and the ones behind go on. */
START_TEST(a_sequence_that_fails_midway_ends_before_it_rejects)
{
    static unsigned words[1024];
    gpu_fixture_open(&f, NULL, NULL);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    gpu_fixture_hold(&f, f.stream);
    culvert_sim_fail("cuMemsetD32Async", 3, 1);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    for (unsigned i = 0; i < 6; i++)
        culvert_seq_fill(seq, buffer, i * 4, 4, i + 1, 4);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_future *behind = culvert_fill(f.stream, buffer, 24, 4, 77, 4);
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(culvert_status(future), CULVERT_PENDING);
    gpu_fixture_release(&f);
    culvert_error err = gpu_fixture_fails(future, CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 1);
    gpu_fixture_says(&err, "cuMemsetD32Async");
    ck_assert_str_eq(err.op, "culvert_seq_fill");
    gpu_fixture_ok(behind);
    gpu_fixture_ok(culvert_download(f.stream, words, buffer, 0, 4096));
    ck_assert_uint_eq(words[0], 1);
    ck_assert_uint_eq(words[1], 2);
    ck_assert_uint_eq(words[2], 0);
    ck_assert_uint_eq(words[5], 0);
    ck_assert_uint_eq(words[6], 77);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

START_TEST(case_076_out_of_device_memory)
{
    culvert_error err = CULVERT_ERROR_INIT;
    gpu_fixture_open(&f, NULL, NULL);
    uint64_t calls = culvert_sim_calls("cuMemAlloc");
    culvert_sim_memory(80 << 20);
    ck_assert_ptr_null(culvert_buffer_new(f.gpu, 100 << 20, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_int_eq(culvert_error_class(err.code), CULVERT_CLASS_AGAIN);
    gpu_fixture_says(&err, "104857600");
    ck_assert_uint_le(culvert_sim_calls("cuMemAlloc") - calls, 2); /* no storm */
    ck_assert_int_eq(culvert_gpu_state(f.gpu), CULVERT_GPU_OK);
    /* What fits is given, in a smaller block where there is no room for one of the usual size. */
    culvert_buffer *little = culvert_buffer_new(f.gpu, 70 << 20, &err);
    ck_assert_msg(little != NULL, "%s", err.message);
    gpu_fixture_ok(culvert_fill(f.stream, little, 0, 64, 1, 4));
    culvert_sim_memory(300 << 20);
    culvert_buffer_unref(little);
    culvert_buffer *buffer = culvert_buffer_new(f.gpu, 100 << 20, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 64, 1, 4));
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

/* Another device's context is current, and the own one cannot be made so: nothing goes to that other one. */
START_TEST(nothing_goes_to_the_context_of_another)
{
    culvert_error err = CULVERT_ERROR_INIT;
    struct CUctx_st *other, *popped;
    gpu_fixture_reset();
    culvert_sim_devices(2);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    const culvert__driver *drv = culvert__driver_open(NULL, &err);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRetain(&other, 1), 0);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, 4096);
    ck_assert_int_eq(drv->cuCtxPushCurrent(other), 0);
    uint64_t allocs = culvert_sim_calls("cuMemAlloc"), pins = culvert_sim_calls("cuMemHostAlloc");
    uint64_t streams = culvert_sim_calls("cuStreamCreateWithPriority");
    uint64_t fills = culvert_sim_calls("cuMemsetD32Async");
    culvert_sim_fail("cuCtxPushCurrent", 1, 201);
    ck_assert_ptr_null(culvert_buffer_new(f.gpu, 200 << 20, &err));
    ck_assert_int_eq(err.native, 201);
    culvert_sim_fail("cuCtxPushCurrent", 1, 201);
    ck_assert_ptr_null(culvert_host_buffer_new(f.gpu, 20 << 20, &err));
    ck_assert_int_eq(err.native, 201);
    culvert_sim_fail("cuCtxPushCurrent", 1, 201);
    ck_assert_ptr_null(culvert_stream_new(f.gpu, NULL, &err));
    ck_assert_int_eq(err.native, 201);
    ck_assert_uint_eq(culvert_sim_calls("cuMemAlloc"), allocs);
    ck_assert_uint_eq(culvert_sim_calls("cuMemHostAlloc"), pins);
    ck_assert_uint_eq(culvert_sim_calls("cuStreamCreateWithPriority"), streams);
    culvert_sim_fail("cuCtxPushCurrent", 1, 201);
    culvert_error why =
        gpu_fixture_fails(culvert_fill(f.stream, buffer, 0, 4, 1, 4), CULVERT_EDRIVER);
    ck_assert_int_eq(why.native, 201);
    gpu_fixture_says(&why, "cuCtxPushCurrent");
    ck_assert_uint_eq(culvert_sim_calls("cuMemsetD32Async"), fills);
    gpu_fixture_ok(culvert_fill(f.stream, buffer, 0, 4, 1, 4));
    ck_assert_int_eq(drv->cuCtxPopCurrent(&popped), 0);
    ck_assert_ptr_eq(popped, other);
    ck_assert_int_eq(drv->cuDevicePrimaryCtxRelease(1), 0);
    culvert_buffer_unref(buffer);
    gpu_fixture_close(&f);
}
END_TEST

int main(void)
{
    trials *t = trials_new("faults");
    TRIAL_TIMEOUT(t, each_call_fails_for_want_of_memory, 250);
    TRIAL_TIMEOUT(t, each_call_fails_with_a_sticky_error, 250);
    if (RESULTS > 2)
        TRIAL_TIMEOUT(t, each_call_fails_with_invalid_value, 250);
    if (RESULTS > 3) {
        TRIAL_TIMEOUT(t, each_call_fails_with_an_unknown_error, 250);
        TRIAL_TIMEOUT(t, each_call_is_not_supported, 250);
        TRIAL_TIMEOUT(t, each_call_finds_the_driver_gone, 250);
    }
    TRIAL(t, case_038_the_host_function_cannot_be_registered);
    TRIAL(t, case_038_case_050_the_event_cannot_be_recorded);
    TRIAL(t, case_050_who_waits_for_what_has_no_event);
    TRIAL(t, a_sequence_that_fails_midway_ends_before_it_rejects);
    TRIAL(t, case_076_out_of_device_memory);
    TRIAL(t, nothing_goes_to_the_context_of_another);
    return trials_run(t);
}
