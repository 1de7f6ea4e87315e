/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Minutes in the life of a server, in seconds: what deadlocks does so once in a while. The environment's
 * CULVERT_TEST_SOAK says how many seconds each test takes; the suite `slow` has 60.
 */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB, MEMBERS = 4, STREAMS = 3, WINDOW = 16, BUFFER = 8 * KIB };

/* The simulator's: after a reset a driver that is open already has to be initialised again. */
int cuInit(unsigned flags);

static double soak_seconds(void)
{
    const char *text = getenv("CULVERT_TEST_SOAK");
    return text != NULL ? atof(text) : 2.0;
}

static unsigned next_random(unsigned *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- what a host function must not do (linked with --wrap for these, unless a sanitizer has them) ---- */

static _Thread_local bool in_host_function;
static _Atomic unsigned host_functions, host_locks, host_allocations;

#ifdef WRAPPED
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    host_locks += in_host_function;
    return __real_pthread_mutex_lock(mutex);
}

void *__wrap_malloc(size_t bytes)
{
    host_allocations += in_host_function;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    host_allocations += in_host_function;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    host_allocations += in_host_function;
    return __real_realloc(p, bytes);
}
#endif

/* ---- the driver, with host functions that are watched, and frees ---- */

static const culvert__driver *real;
static culvert__driver watched;
static _Atomic(culvert__CUhostFn) host_function; /* the library has one */
static culvert__device *freed_device;
static _Atomic unsigned frees, frees_while_out;

static void watched_host_function(void *arg)
{
    in_host_function = true;
    culvert__CUhostFn fn = atomic_load(&host_function);
    fn(arg);
    in_host_function = false;
    host_functions++;
}

static int launch_host_function(struct CUstream_st *stream, culvert__CUhostFn fn, void *arg)
{
    atomic_store(&host_function, fn);
    return real->cuLaunchHostFunc(stream, watched_host_function, arg);
}

static void note_free(void)
{
    frees++;
    frees_while_out += atomic_load(&freed_device->arms) > 0;
}

static int free_device_memory(unsigned long long address)
{
    note_free();
    return real->cuMemFree(address);
}

static int free_pinned_memory(void *memory)
{
    note_free();
    return real->cuMemFreeHost(memory);
}

/* ---- case 34: four loops, one lock of the driver ---- */

typedef struct member {
    pthread_t thread;
    unsigned number, random;
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_future *module;
    culvert_kernel *busy;
    culvert_stream *streams[STREAMS];
    unsigned submitted, freed;
    double until;
} member;

static member members[MEMBERS];
static pthread_barrier_t all;
static culvert_buffer *_Atomic mailbox; /* somebody's, to be released by another thread */

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;

static void watch(culvert_gpu *gpu)
{
    pthread_mutex_lock(&watch_lock);
    if (real == NULL) {
        real = gpu->drv;
        watched = *real;
        watched.cuLaunchHostFunc = launch_host_function;
    }
    pthread_mutex_unlock(&watch_lock);
    gpu->drv = &watched;
}

static void open_member(member *m)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.wake = m->number % 2 == 0 ? CULVERT_WAKE_HOST_FUNC : CULVERT_WAKE_ADAPTIVE;
    m->ev = ev_loop_new(EVFLAG_AUTO);
    m->loop = culvert_loop_new(m->ev, &options, &err);
    m->gpu = m->loop != NULL ? culvert_gpu_open(m->loop, 0, NULL, &err) : NULL;
    ck_assert_msg(m->gpu != NULL, "%s", err.message);
    watch(m->gpu);
    for (int i = 0; i < STREAMS; i++) {
        m->streams[i] = culvert_stream_new(m->gpu, NULL, &err);
        ck_assert_msg(m->streams[i] != NULL, "%s", err.message);
    }
    m->module = culvert_module_load(m->gpu, &culvert_image_fixture);
    ck_assert_int_eq(culvert_await(m->module, 100), CULVERT_OK);
    m->busy = culvert_module_kernel(culvert_value(m->module), "busy", &err);
    ck_assert_ptr_nonnull(m->busy);
}

static void close_member(member *m)
{
    m->gpu->drv = real; /* before the module goes, on a thread of its own */
    for (int i = 0; i < STREAMS; i++)
        culvert_stream_unref(m->streams[i]);
    culvert_unref(m->module);
    culvert_gpu_close(m->gpu);
    culvert_loop_free(m->loop);
    ev_loop_destroy(m->ev);
}

static void count_free(void *arg)
{
    ((member *)arg)->freed++;
}

static culvert_future *request(member *m)
{
    static const culvert_grid one = {.blocks = {1}, .threads = {1}};
    unsigned r = next_random(&m->random);
    unsigned *words = calloc(1, BUFFER);
    culvert_buffer *buffer = culvert_buffer_new(m->gpu, BUFFER, NULL);
    ck_assert(words != NULL && buffer != NULL);
    culvert_seq *seq = culvert_seq_begin(m->streams[r % STREAMS]);
    culvert_seq_keep(seq, words, free);
    culvert_seq_keep(seq, m, count_free);
    culvert_seq_upload(seq, buffer, 0, words, BUFFER);
    if (r % 4 != 0)
        culvert_seq_launch(seq, m->busy, &one, CULVERT_ARGS(CULVERT_U64(r % 50000)));
    culvert_seq_fill(seq, buffer, 0, 64, r, 4);
    culvert_seq_download(seq, words, buffer, 0, BUFFER);
    m->submitted++;
    if (r % 3 == 0)
        buffer = atomic_exchange(&mailbox,
                                 buffer); /* another thread releases it, and this one another's */
    culvert_buffer_unref(buffer);
    return culvert_seq_submit(seq);
}

static void *work(void *arg)
{
    member *m = arg;
    culvert_future *window[WINDOW] = {NULL};
    open_member(m);
    culvert_sim_loop_thread();
    pthread_barrier_wait(&all); /* opening stalls who works already */
    for (unsigned i = 0; test_now() < m->until; i++) {
        culvert_future **slot = &window[i % WINDOW];
        if (*slot != NULL && i % 5 == 0)
            (void)culvert_await(*slot, 100); /* others are dropped while they run */
        culvert_unref(*slot);
        *slot = request(m);
    }
    for (int i = 0; i < WINDOW; i++)
        culvert_unref(window[i]);
    ev_run(m->ev, 0);
    pthread_barrier_wait(&all);
    close_member(m);
    return NULL;
}

START_TEST(case_034_no_deadlock_with_a_lock_of_the_driver)
{
    if (!gpu_fixture_simulated())
        return;
    gpu_fixture_reset();
    ck_assert_int_eq(cuInit(0), 0);
    culvert_sim_strict(1);
    culvert_sim_driver_lock(1);
    real = NULL;
    pthread_barrier_init(&all, NULL, MEMBERS);
    double until = test_now() + soak_seconds();
    for (unsigned i = 0; i < MEMBERS; i++) {
        members[i] = (member){.number = i, .random = 77 + i, .until = until};
        ck_assert_int_eq(pthread_create(&members[i].thread, NULL, work, &members[i]), 0);
    }
    for (unsigned i = 0; i < MEMBERS; i++) {
        ck_assert_int_eq(pthread_join(members[i].thread, NULL), 0);
        ck_assert_uint_gt(members[i].submitted, 0);
        ck_assert_uint_eq(members[i].freed, members[i].submitted);
    }
    culvert_buffer_unref(atomic_exchange(&mailbox, NULL));
    pthread_barrier_destroy(&all);
    culvert_sim_driver_lock(0);
    ck_assert_uint_gt(host_functions, 10);
    ck_assert_uint_eq(host_locks, 0);
    ck_assert_uint_eq(host_allocations, 0);
    ck_assert_uint_eq(culvert_sim_violations(), 0);
}
END_TEST

/* ---- case 42: memory comes and goes while host functions are out ---- */

static gpu_fixture f;

/* Kernels on four streams, each with memory of its own that is given up at once. */
static void churn(culvert_stream **streams, unsigned *random)
{
    enum { REQUESTS = 60 };
    static const culvert_grid one = {.blocks = {1}, .threads = {1}};
    culvert_future *futures[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        unsigned r = next_random(random);
        culvert_buffer *buffer = culvert_buffer_new(f.gpu, 1 + r % (8 * MIB), NULL);
        culvert_buffer *host = culvert_host_buffer_new(f.gpu, 1 + r % (MIB / 4), NULL);
        ck_assert(buffer != NULL && host != NULL);
        culvert_seq *seq = culvert_seq_begin(streams[r % 4]);
        culvert_seq_fill(seq, buffer, 0, 1, r, 1);
        culvert_seq_launch(seq, gpu_fixture_kernel(&f, "busy"), &one,
                           CULVERT_ARGS(CULVERT_U64(r % 200000)));
        culvert_seq_copy(seq, host, 0, buffer, 0, 1);
        futures[i] = culvert_seq_submit(seq);
        culvert_buffer_unref(buffer);
        culvert_buffer_unref(host);
    }
    for (int i = 0; i < REQUESTS; i++)
        gpu_fixture_ok(futures[i]);
    gpu_fixture_run(&f, 0.03); /* idle for longer than trim_seconds */
}

START_TEST(case_042_memory_churns_on_four_streams)
{
    culvert_loop_options loop_options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    culvert_stream *streams[4];
    unsigned random = 42;
    loop_options.wake = CULVERT_WAKE_HOST_FUNC;
    options.trim_seconds = 0.01;
    gpu_fixture_open(&f, &loop_options, &options);
    for (int i = 0; i < 4; i++)
        streams[i] = gpu_fixture_stream(&f);
    freed_device = f.gpu->device;
    real = freed_device->drv;
    watched = *real;
    watched.cuMemFree = free_device_memory;
    watched.cuMemFreeHost = free_pinned_memory;
    freed_device->drv = &watched;
    if (gpu_fixture_simulated())
        culvert_sim_driver_lock(1);
    for (double until = test_now() + soak_seconds(); test_now() < until;)
        churn(streams, &random);
    ck_assert_uint_gt(frees, 0);
    ck_assert_uint_eq(frees_while_out, 0);
    freed_device->drv = real;
    for (int i = 0; i < 4; i++)
        culvert_stream_unref(streams[i]);
    gpu_fixture_close(&f);
}
END_TEST

static Suite *soak_suite(void)
{
    Suite *suite = suite_create("soak");
    TCase *tc = tcase_create("soak");
    tcase_set_timeout(tc, 60 + soak_seconds());
    tcase_add_test(tc, case_034_no_deadlock_with_a_lock_of_the_driver);
    tcase_add_test(tc, case_042_memory_churns_on_four_streams);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    Suite *suites[] = {soak_suite(), NULL};
    return test_main(suites);
}
