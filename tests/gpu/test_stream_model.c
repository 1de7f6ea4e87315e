/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs over streams, in the simulator's virtual time, against a small model of what may be
 * observed:
 *
 *   - each future settles once, with an outcome that something in the program explains, and the argument
 *     of its callback and what its sequence keeps are released once
 *   - what runs on a stream runs in the order in which it was submitted, and a sequence that waits runs
 *     after what it waits for; a sequence that resolved has run as a whole, one that was cancelled not at all
 *     (or in part, where it has copies that are staged)
 *   - nothing is used after it was released: the simulator is strict. Programs have no races of their own, as
 *     a sequence waits for all on other streams that uses the same place and is not over.
 *
 * A place is a list in pinned memory, in which sequences write their numbers, and a device buffer. Programs
 * run in child processes, many in each, until one fails or loses the device. One that fails is made smaller
 * and printed.
 */
#define _GNU_SOURCE
#include "culvert/sim.h"
#include "gpu/gpu_fixture.h"
#include "gpu/model_program.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { SEEDS = 60 };
#else
enum { SEEDS = 300 };
#endif
enum { STREAMS = 3, PLACES = 3, BATCH = 50, OPS = 4, WAITS = 12, BYTES = 64, LIST_BYTES = 2048 };

typedef struct item {
    model_kind kind;        /* SEQ, TIMEOUT, PROMISE or DONE */
    unsigned number;        /* 1: the first */
    culvert_future *future; /* NULL: dropped */
    culvert_promise *promise;
    unsigned stream;
    struct item *waits[WAITS]; /* of a time-out: what it is of */
    unsigned nwaits;
    bool bad, cancelled, rejects, observed;
    int calls, frees, keeps; /* keeps: not yet released */
    int status;
    unsigned notes[STREAMS + PLACES]; /* that it writes in each list */
    bool uses[PLACES];
    unsigned char out[BYTES];
    bool downloads,
        staged; /* staged: it goes to the driver in parts, and a cancel may come between */
} item;

static gpu_fixture f;
static culvert_stream *streams[STREAMS];
static culvert_buffer *lists[STREAMS + PLACES], *data[PLACES];
static culvert_kernel *kernel; /* which notes; a device that is lost gives none */
static item items[MODEL_MOST];
static unsigned nitems;
static bool faults, lost;
static unsigned char in[MODEL_MOST + 1][BYTES];

/* Check's own assertions belong to the parent. */
#define EXPECT(what, ...)                   \
    do {                                    \
        if (!(what)) {                      \
            fprintf(stderr, "%s: ", #what); \
            fprintf(stderr, __VA_ARGS__);   \
            fprintf(stderr, "\n");          \
            _exit(1);                       \
        }                                   \
    } while (0)

static void unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    (void)err;
    (void)arg;
}

static void quiet(int level, const char *message, void *arg)
{
    (void)level;
    (void)message;
    (void)arg;
}

/* ---- futures ---- */

static void settled(culvert_future *done, void *arg)
{
    item *it = arg;
    it->calls++;
    it->status = culvert_status(done);
    (void)culvert_get_error(done);
}

static void freed(void *arg)
{
    ((item *)arg)->frees++;
}

static void release_kept(void *arg)
{
    item *it = arg;
    EXPECT(it->keeps > 0, "%u released more often than it was kept", it->number);
    it->keeps--;
}

static item *new_item(model_kind kind)
{
    item *it = &items[nitems++];
    it->kind = kind;
    it->number = nitems;
    it->status = CULVERT_PENDING;
    return it;
}

static void add_future(item *it, culvert_future *future, bool observed)
{
    it->future = future;
    it->observed = observed;
    if (observed)
        (void)culvert_on_settled(culvert_ref(future), settled, it, freed);
}

/* What a lost device may go on using is never released. */
static bool is_lost(void)
{
    return culvert_gpu_state(f.gpu) == CULVERT_GPU_LOST;
}

static bool is_over(const item *it)
{
    return (it->keeps == 0 || is_lost()) && (!it->observed || (it->calls > 0 && it->frees > 0));
}

static item *pick_item(unsigned n)
{
    item *it = nitems > 0 ? &items[n % nitems] : NULL;
    return it != NULL && it->future != NULL ? it : NULL;
}

static void drop(item *it)
{
    culvert_unref(it->future);
    it->future = NULL;
}

/* ---- sequences ---- */

static void wait_for(item *it, culvert_seq *seq, item *other)
{
    for (unsigned i = 0; i < it->nwaits; i++)
        if (it->waits[i] == other)
            return;
    it->waits[it->nwaits++] = other;
    culvert_seq_wait(seq, culvert_ref(other->future));
}

/* Waits for all that uses the place on other streams; false: it cannot wait for some of it. */
static bool enter(item *it, culvert_seq *seq, unsigned place)
{
    item *others[MODEL_MOST];
    unsigned n = 0;
    if (it->uses[place])
        return true;
    for (item *other = items; other < it; other++) {
        if (!other->uses[place] || other->stream == it->stream || is_over(other))
            continue;
        if (other->future == NULL)
            return false;
        others[n++] = other;
    }
    if (it->nwaits + n > WAITS)
        return false;
    while (n > 0)
        wait_for(it, seq, others[--n]);
    it->uses[place] = true;
    return true;
}

static void note(item *it, culvert_seq *seq, unsigned list)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq_launch(seq, kernel, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(lists[list]), CULVERT_U32(it->number)));
    it->notes[list]++;
}

static void operation(item *it, culvert_seq *seq, unsigned how)
{
    unsigned place = how % PLACES, kind = how / PLACES % 5;
    if (kind == 0 || !enter(it, seq, place)) {
        note(it, seq, it->stream);
        return;
    }
    switch (kind) {
    case 1: note(it, seq, STREAMS + place); break;
    case 2: culvert_seq_fill(seq, data[place], 0, BYTES, it->number, 1); break;
    case 3:
        it->staged = true;
        culvert_seq_upload(seq, data[place], 0, in[it->number], BYTES);
        break;
    default:
        it->staged = true;
        culvert_seq_download(seq, it->out, data[place], 0, BYTES);
        it->downloads = true;
    }
}

static void submit(const model_instruction *instruction)
{
    unsigned ops = instruction->b, flags = instruction->d;
    item *it = new_item(MODEL_SEQ);
    it->stream = instruction->a % STREAMS;
    culvert_seq *seq = culvert_seq_begin(streams[it->stream]);
    it->keeps = 1;
    culvert_seq_keep(seq, it, release_kept);
    for (unsigned n = instruction->c % 3, from = instruction->c / 3; n > 0; n--, from /= 64) {
        item *other = pick_item(from % 64);
        if (other != NULL && other != it)
            wait_for(it, seq, other);
    }
    for (unsigned n = ops % (OPS + 1); n > 0; n--, ops /= 16)
        operation(it, seq, ops / 8);
    it->bad = flags % 20 == 0;
    if (it->bad)
        culvert_seq_fill(seq, data[0], 0, 2 * LIST_BYTES, 0, 1);
    add_future(it, culvert_seq_submit(seq), flags / 32 % 4 != 0);
}

/* ---- instructions ---- */

static void time_out(item *inner, unsigned how)
{
    static const double when[] = {0, 0.0005, 1000};
    if (inner == NULL)
        return;
    item *it = new_item(MODEL_TIMEOUT);
    it->waits[it->nwaits++] = inner;
    culvert_future *future = how % 2 == 0 ? culvert_ref(inner->future) : inner->future;
    if (how % 2 != 0)
        inner->future = NULL; /* as if dropped */
    add_future(it, culvert_timeout(future, when[how / 2 % 3]), true);
}

static void settle(item *it)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_promise *promise = it->promise;
    it->promise = NULL;
    culvert_error_set(&err, CULVERT_EUSER, 0, "it rejects");
    if (promise != NULL && it->rejects)
        culvert_reject(promise, &err);
    else if (promise != NULL)
        culvert_resolve(promise, NULL, NULL);
}

static void make_promise(unsigned how)
{
    item *it = new_item(MODEL_PROMISE);
    culvert_future *future;
    it->promise = culvert_promise_new(f.loop, &future);
    it->rejects = how % 4 == 0;
    add_future(it, future, how / 4 % 2 == 0);
}

static void ask_done(unsigned stream)
{
    item *it = new_item(MODEL_DONE);
    it->stream = stream;
    add_future(it, culvert_stream_done(streams[stream]), true);
}

static void fault(const model_instruction *instruction)
{
    static const char *const functions[] = {"cuLaunchKernel",    "cuMemsetD8Async",
                                            "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                                            "cuEventRecord",     "cuStreamWaitEvent",
                                            "cuLaunchHostFunc"};
    culvert_sim_fail(functions[instruction->b % 7], 1 + instruction->c % 4,
                     instruction->d % 2 ? 1 : 2);
    faults = true;
}

static void replace(unsigned place)
{
    culvert_buffer *other = culvert_buffer_new(f.gpu, BYTES, NULL);
    if (other == NULL)
        return; /* the device is lost */
    culvert_buffer_unref(data[place]);
    data[place] = other;
}

static void execute(const model_instruction *instruction)
{
    unsigned a = instruction->a;
    item *it = pick_item(a);
    switch (instruction->kind) {
    case MODEL_SEQ: submit(instruction); break;
    case MODEL_CANCEL:
        if (it != NULL) {
            it->cancelled = true;
            culvert_cancel(it->future);
        }
        break;
    case MODEL_DROP:
        if (it != NULL)
            drop(it);
        break;
    case MODEL_TIMEOUT: time_out(it, instruction->b); break;
    case MODEL_PROMISE: make_promise(instruction->b); break;
    case MODEL_SETTLE:
        if (it != NULL)
            settle(it);
        break;
    case MODEL_ADVANCE: culvert_sim_advance((1 + a % 30) * 1e-6); break;
    case MODEL_TURN: ev_run(f.ev, EVRUN_NOWAIT); break;
    case MODEL_HOLD:
        if (!lost)
            gpu_fixture_hold(&f, streams[a % STREAMS]);
        break;
    case MODEL_RELEASE: gpu_fixture_release(&f); break;
    case MODEL_FAULT: fault(instruction); break;
    case MODEL_BUFFER: replace(a % PLACES); break;
    case MODEL_DONE: ask_done(a % STREAMS); break;
    case MODEL_LOSE:
        lost = true;
        culvert_sim_poison(0, 700);
        break;
    default: break;
    }
}

/* ---- what may be observed ---- */

static bool cancelled(const item *it)
{
    for (unsigned i = 0; i < it->nwaits; i++)
        if (cancelled(it->waits[i]))
            return true;
    return it->cancelled;
}

static bool inherited(const item *it)
{
    for (unsigned i = 0; i < it->nwaits; i++) /* of what nobody looked at it is not known */
        if (!it->waits[i]->observed || it->waits[i]->status == it->status)
            return true;
    return false;
}

static bool all_resolved(const item *it)
{
    for (unsigned i = 0; i < it->nwaits; i++)
        if (it->waits[i]->observed && it->waits[i]->status != CULVERT_OK)
            return false;
    return true;
}

static bool explained(const item *it)
{
    switch (it->status) {
    case CULVERT_OK: return !it->bad && !it->rejects && all_resolved(it);
    case CULVERT_ECANCELED: return cancelled(it) || inherited(it);
    case CULVERT_EINVAL: return it->bad || inherited(it);
    case CULVERT_EUSER: return it->rejects || inherited(it);
    case CULVERT_ETIMEDOUT: return it->kind == MODEL_TIMEOUT || inherited(it);
    case CULVERT_EDEVICELOST: return lost || inherited(it);
    default: return false;
    }
}

static void check_outcome(const item *it)
{
    EXPECT(it->keeps == 0 || is_lost(), "%u is still kept", it->number);
    if (it->downloads && it->observed && it->status == CULVERT_OK)
        EXPECT(memcmp(it->out, it->out + 1, BYTES - 1) == 0, "%u got a torn buffer", it->number);
    if (!it->observed)
        return;
    EXPECT(it->calls == 1, "%u settled %d times", it->number, it->calls);
    EXPECT(it->frees == 1, "the argument of %u was freed %d times", it->number, it->frees);
    EXPECT(it->future == NULL || culvert_status(it->future) == it->status, "%u changed",
           it->number);
    EXPECT(explained(it) || (faults && it->status < 0), "%u: %s", it->number,
           culvert_error_name(it->status));
}

/* How many of its notes it may have written. */
static bool count_allowed(const item *it, unsigned list, unsigned count)
{
    unsigned all = it->notes[list];
    if (it->observed && it->status == CULVERT_OK)
        return count == all;
    if (it->bad || (it->observed && it->status == CULVERT_ECANCELED && !it->staged && !faults))
        return count == 0;
    return count == 0 || count == all || ((it->staged || faults || lost) && count < all);
}

static void check_list(unsigned list)
{
    const unsigned *words = culvert_buffer_data(lists[list]);
    unsigned at = 1, end = 1 + words[0];
    for (const item *it = items; it < items + nitems; it++) {
        unsigned count = 0;
        for (; at < end && words[at] == it->number; at++)
            count++;
        EXPECT(count_allowed(it, list, count), "list %u has %u of the %u notes of %u (%s)", list,
               count, it->notes[list], it->number,
               it->observed ? culvert_error_name(it->status) : "dropped");
    }
    EXPECT(at == end, "list %u: %u at %u is out of order", list, words[at], at);
}

/* ---- a program ---- */

static void open_all(void)
{
    culvert_loop_options loop_options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    loop_options.on_unhandled = unhandled;
    loop_options.on_log = quiet;
    options.device_reserve = 1 << 20;
    options.trim_seconds = INFINITY;
    options.stall_seconds = 1000;
    gpu_fixture_open(&f, &loop_options, &options);
    memset(items, 0, sizeof items);
    nitems = 0;
    faults = lost = false;
    for (unsigned i = 0; i < STREAMS; i++)
        streams[i] = gpu_fixture_stream(&f);
    for (unsigned i = 0; i < STREAMS + PLACES; i++)
        lists[i] = gpu_fixture_host_buffer(&f, LIST_BYTES);
    for (unsigned i = 0; i < PLACES; i++)
        data[i] = gpu_fixture_buffer(&f, BYTES);
    for (unsigned i = 0; i <= MODEL_MOST; i++)
        memset(in[i], (int)i, BYTES);
    kernel = gpu_fixture_kernel(&f, "note");
    gpu_fixture_idle(&f, f.stream);
    culvert_sim_virtual_time(1);
}

static void run_to_the_end(void)
{
    double end = test_now() + 5;
    gpu_fixture_release(&f);
    for (unsigned i = 0; i < nitems; i++)
        settle(&items[i]);
    for (unsigned i = 0; i < nitems; i++) {
        while (!is_over(&items[i])) {
            EXPECT(test_now() < end, "%u does not end", items[i].number);
            culvert_sim_advance(1e-3);
            ev_run(f.ev, EVRUN_NOWAIT);
        }
    }
    for (int i = 0; i < 3; i++) { /* what settles or is released twice */
        culvert_sim_advance(1e-3);
        ev_run(f.ev, EVRUN_NOWAIT);
    }
}

static void close_all(void)
{
    for (unsigned i = 0; i < nitems; i++)
        culvert_unref(items[i].future);
    for (unsigned i = 0; i < STREAMS; i++)
        culvert_stream_unref(streams[i]);
    for (unsigned i = 0; i < STREAMS + PLACES; i++)
        culvert_buffer_unref(lists[i]);
    for (unsigned i = 0; i < PLACES; i++)
        culvert_buffer_unref(data[i]);
    gpu_fixture_close(&f);
}

/* Whether the process can run another. */
static bool run_program(const model_program *p)
{
    open_all();
    for (size_t i = 0; i < p->n; i++)
        execute(&p->list[i]);
    run_to_the_end();
    if (is_lost())
        EXPECT(lost || faults, "the device is lost");
    for (unsigned i = 0; i < nitems; i++)
        check_outcome(&items[i]);
    for (unsigned i = 0; i < STREAMS + PLACES; i++)
        check_list(i);
    if (lost || is_lost())
        return false;
    close_all();
    return true;
}

/* ---- processes ---- */

/* Ends this process, should it hang. (Check has a handler that ends others.) */
static void end_in(unsigned seconds)
{
    signal(SIGALRM, SIG_DFL);
    alarm(seconds);
}

static unsigned *current; /* shared: the seed that runs */

static bool child_failed(pid_t child)
{
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static bool program_fails(const model_program *p)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        end_in(10);
        (void)run_program(p);
        _exit(0);
    }
    return child_failed(child);
}

/* Runs seeds from *current on; it is the one after the last that ran. */
static bool batch_fails(unsigned end)
{
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        bool more = true;
        for (; more && *current < end; ++*current) {
            model_program p;
            model_program_make(&p, *current);
            end_in(30);
            more = run_program(&p);
        }
        _exit(0);
    }
    return child_failed(child);
}

static void report(unsigned seed)
{
    model_program p;
    model_program_make(&p, seed);
    if (program_fails(&p))
        model_program_shrink(&p, program_fails, 20);
    model_program_print(&p);
    ck_abort_msg("the program of seed %u fails", seed);
}

START_TEST(programs_do_what_the_model_allows)
{
    const char *first = getenv("CULVERT_TEST_SEED");
    unsigned begin = first != NULL ? (unsigned)strtoul(first, NULL, 10) : 1;
    unsigned end = begin + (first != NULL ? 1 : SEEDS);
    if (getenv("CULVERT_TEST_SLOW") != NULL)
        end = begin + 50 * SEEDS;
    current =
        mmap(NULL, sizeof *current, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(current, MAP_FAILED);
    *current = begin;
    printf("seeds %u to %u\n", begin, end - 1);
    while (*current < end) {
        unsigned to = *current + BATCH < end ? *current + BATCH : end;
        if (batch_fails(to))
            report(*current);
    }
    munmap(current, sizeof *current);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream_model");
    TCase *tc = tcase_create("random");
    tcase_set_timeout(tc, 800);
    tcase_add_test(tc, programs_do_what_the_model_allows);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
