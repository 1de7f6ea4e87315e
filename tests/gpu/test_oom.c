/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the process runs out at any allocation of whole scenarios: the first fails, then the second,
 * and so on until the scenario passes without a failure; and once more with all allocations failing from
 * the first, the second ... on. Whatever fails:
 *   - each future settles once, with its real outcome or CULVERT_ENOMEM, and each argument is freed once;
 *   - what cannot be made fails with CULVERT_ENOMEM;
 *   - nothing is left: of the library's memory, of the driver's;
 *   - the simulator, in strict mode, sees no violation, and nothing hangs.
 * The failures are of all threads: of workers and of the device's own too.
 */
#include "culvert/sim.h"
#include "fixture.culvert.h"
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"
#include "lib/alloc_fail.h"
#include "lib/child.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The simulator's. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
int __lsan_do_recoverable_leak_check(void);
#else
static int __lsan_do_recoverable_leak_check(void)
{
    return 0;
}
#endif

enum {
    KIB = 1024,
    BIG = 200 * KIB,
    STREAMS = 3,
    ROOM = STREAMS * BIG,
    FUTURES = 900,
    TOKENS = 1200
};
enum { NEVER = 100000 }; /* an allocation that is not reached */

/* ---- what is under way ---- */

typedef struct token { /* given to the library with its free function */
    int calls, frees;
    bool work; /* of device work: it stays with a device that may still use it */
} token;

typedef struct expected {
    token *token;
    int want;       /* the outcome without a failure */
    int or_this;    /* likewise: it depends on what comes first, or on what is in front of it */
    bool unwatched; /* there was no memory for a callback */
    int status;
} expected;

typedef struct party {
    struct ev_loop *ev;
    culvert_loop *loop;
    culvert_gpu *gpu;
    culvert_stream *streams[STREAMS];
    culvert_buffer *device, *pinned;
    culvert_module *module;
    culvert_kernel *add;
    token tokens[TOKENS];
    size_t ntokens;
    expected futures[FUTURES];
    size_t nfutures;
    culvert_promise *promise; /* nobody resolves it */
    int want_end; /* what is rejected at the end of the scenario is rejected with this */
    bool leaks;   /* the device keeps what it was using */
    double close_seconds;
} party;

typedef void scenario(party *p);

static party the_party; /* too large for a stack */
static unsigned char in[BIG], out[STREAMS][BIG];

/* In children too, where an assertion of Check would go on with the other tests. */
static void need(bool holds, const char *fmt, ...)
{
    va_list args;
    if (holds)
        return;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

static token *new_token(party *p)
{
    need(p->ntokens < TOKENS, "too many tokens");
    return &p->tokens[p->ntokens++];
}

static token *work_token(party *p)
{
    token *t = new_token(p);
    t->work = true;
    return t;
}

static void free_token(void *arg)
{
    ((token *)arg)->frees++;
}

static void settled(culvert_future *done, void *arg)
{
    expected *e = arg;
    need(e->token->frees == 0, "freed before it was called");
    e->token->calls++;
    e->status = culvert_status(done);
}

static void free_expected(void *arg)
{
    ((expected *)arg)->token->frees++;
}

/* Consumes the future. */
static expected *expect(party *p, culvert_future *future, int want)
{
    need(future != NULL, "no future");
    need(p->nfutures < FUTURES, "too many futures");
    expected *e = &p->futures[p->nfutures++];
    *e = (expected){.token = new_token(p), .want = want, .or_this = want};
    int code = culvert_on_settled(future, settled, e, free_expected);
    if (code != CULVERT_OK) {
        need(code == CULVERT_ENOMEM, "on_settled: %s", culvert_error_name(code));
        need(e->token->frees == 1, "on_settled failed and freed %d times", e->token->frees);
        e->unwatched = true;
    }
    return e;
}

/* What makes something failed: for want of memory, or the scenario is wrong. */
static void only_memory(const void *made, const culvert_error *err)
{
    need(made != NULL || err->code == CULVERT_ENOMEM, "%s: %s", culvert_error_name(err->code),
         err->message);
}

static void unhandled(culvert_loop *loop, const culvert_error *err, void *arg)
{
    (void)loop;
    const party *p = arg;
    bool wanted = err->code == CULVERT_ENOMEM || err->code == p->want_end ||
                  err->code == CULVERT_EUSER; /* of a sequence that could not be made */
    for (size_t i = 0; i < p->nfutures && !wanted; i++)
        wanted = p->futures[i].unwatched && p->futures[i].want == err->code;
    need(wanted, "nobody looked at this: %s", err->message);
}

static void no_log(int level, const char *message, void *arg)
{
    (void)level;
    (void)message;
    (void)arg;
}

static void on_lost(culvert_gpu *gpu, const culvert_error *err, void *arg)
{
    (void)gpu;
    (void)err;
    ((token *)arg)->calls++;
}

/* ---- open and close ---- */

static void load_module(party *p)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_future *loaded = culvert_module_load(p->gpu, &culvert_image_fixture);
    ev_run(p->ev, 0);
    int status = culvert_status(loaded);
    need(status == CULVERT_OK || status == CULVERT_ENOMEM, "%s", culvert_error_name(status));
    p->module = culvert_take(loaded);
    culvert_unref(loaded);
    if (p->module == NULL)
        return;
    p->add = culvert_module_kernel(p->module, "add_word", &err);
    only_memory(p->add, &err);
}

static void open_gpu(party *p)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.on_unhandled = unhandled;
    options.on_log = no_log;
    options.arg = p;
    options.close_seconds = p->close_seconds;
    p->loop = culvert_loop_new(p->ev, &options, &err);
    only_memory(p->loop, &err);
    if (p->loop == NULL)
        return;
    int count = culvert_gpu_count(p->loop, &err);
    need(count == CULVERT_ENOMEM || count >= 1, "count: %d", count);
    p->gpu = culvert_gpu_open(p->loop, 0, NULL, &err);
    only_memory(p->gpu, &err);
    if (p->gpu == NULL)
        return;
    culvert_gpu_on_lost(p->gpu, on_lost, new_token(p), free_token);
    culvert_stream_options high = CULVERT_STREAM_OPTIONS_INIT;
    high.priority = CULVERT_PRIORITY_HIGH;
    for (int i = 0; i < STREAMS; i++) {
        p->streams[i] = i == 0   ? culvert_stream_new(p->gpu, NULL, &err)
                        : i == 1 ? culvert_stream_new(p->gpu, &high, &err)
                                 : culvert_stream_pick(p->gpu, CULVERT_PRIORITY_NORMAL, &err);
        only_memory(p->streams[i], &err);
    }
    p->device = culvert_buffer_new(p->gpu, ROOM, &err);
    only_memory(p->device, &err);
    p->pinned = culvert_host_buffer_new(p->gpu, ROOM, &err);
    only_memory(p->pinned, &err);
    load_module(p);
}

static bool is_open(const party *p)
{
    for (int i = 0; i < STREAMS; i++)
        if (p->streams[i] == NULL)
            return false;
    return p->device != NULL && p->pinned != NULL && p->add != NULL;
}

static void close_gpu(party *p)
{
    if (p->loop == NULL)
        return;
    culvert_module_unref(p->module);
    culvert_buffer_unref(p->device);
    culvert_buffer_unref(p->pinned);
    for (int i = 0; i < STREAMS; i++)
        culvert_stream_unref(p->streams[i]);
    culvert_gpu_close(p->gpu);
    culvert_loop_free(p->loop);
    culvert_promise_drop(p->promise);
    p->loop = NULL;
}

/* After the binding is gone nothing is under way any more. */
static void look(const party *p, bool failed)
{
    for (size_t i = 0; i < p->ntokens; i++) {
        const token *t = &p->tokens[i];
        need(t->frees == 1 || (t->frees == 0 && t->work && p->leaks),
             "argument %zu of %zu freed %d times", i, p->ntokens, t->frees);
    }
    for (size_t i = 0; i < p->nfutures; i++) {
        const expected *e = &p->futures[i];
        if (e->unwatched)
            continue;
        need(e->token->calls == 1, "future %zu settled %d times", i, e->token->calls);
        need(e->status == e->want || (failed && e->status == CULVERT_ENOMEM) ||
                 e->status == e->or_this,
             "future %zu: %s, not %s", i, culvert_error_name(e->status),
             culvert_error_name(e->want));
    }
}

/* ---- operations ---- */

static int call_nothing(struct CUstream_st *stream, void *arg)
{
    (void)stream;
    ((token *)arg)->calls++;
    return 0;
}

static void *job(void *arg, culvert_error *err)
{
    (void)arg;
    (void)err;
    return NULL;
}

static culvert_future *pass(culvert_future *done, void *arg)
{
    (void)done;
    ((token *)arg)->calls++;
    return NULL;
}

static void launch(party *p, culvert_seq *seq, int s, unsigned index)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    culvert_seq_launch(seq, p->add, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER_AT(p->device, (size_t)s * BIG),
                                    CULVERT_U32(index), CULVERT_U32(1)));
}

/* Every operation, twenty launches, and one more that has to be in a chunk of its own. */
static void every_operation(party *p, culvert_seq *seq, int s)
{
    size_t at = (size_t)s * BIG;
    culvert_seq_keep(seq, work_token(p), free_token);
    culvert_seq_timed(seq);
    culvert_seq_use(seq, p->pinned);
    culvert_seq_fill(seq, p->device, at, 64, 7, 4);
    culvert_seq_call(seq, call_nothing, work_token(p), free_token);
    culvert_seq_call_weighted(seq, call_nothing, work_token(p), free_token, 2);
    culvert_seq_upload(seq, p->device, at, in, KIB);
    culvert_seq_upload(seq, p->device, at, (char *)culvert_buffer_data(p->pinned) + at, KIB);
    culvert_seq_copy(seq, p->pinned, at, p->device, at, KIB);
    culvert_seq_copy(seq, p->device, at + 1024, p->pinned, at, KIB);
    culvert_seq_copy(seq, p->device, at + 2048, p->device, at, KIB);
    culvert_buffer *scratch = culvert_seq_scratch(seq, 64 * KIB);
    culvert_seq_fill(seq, scratch, 0, 64 * KIB, 0, 1);
    for (unsigned i = 0; i < 20; i++)
        launch(p, seq, s, i);
    culvert_seq_download(seq, out[s], p->device, at, KIB);
    culvert_seq_keep(seq, work_token(p), free_token);
}

static void sequences(party *p)
{
    for (int s = 0; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[s]);
        every_operation(p, seq, s);
        expect(p, culvert_seq_submit(seq), CULVERT_OK);
        seq = culvert_seq_begin(p->streams[s]);
        every_operation(p, seq, s);
        culvert_seq_drop(seq);
    }
    culvert_seq *wrong = culvert_seq_begin(p->streams[0]);
    every_operation(p, wrong, 0);
    culvert_seq_fill(wrong, p->device, 0, ROOM + 4, 0, 4);
    expect(p, culvert_seq_submit(wrong), CULVERT_EINVAL);
    ev_run(p->ev, 0);
}

static void one_at_a_time(party *p)
{
    culvert_grid grid = {.blocks = {1}, .threads = {1}};
    for (int s = 0; s < STREAMS; s++) {
        culvert_stream *stream = p->streams[s];
        size_t at = (size_t)s * BIG;
        expect(p, culvert_upload(stream, p->device, at, in, KIB), CULVERT_OK);
        expect(p, culvert_copy(stream, p->pinned, at, p->device, at, KIB), CULVERT_OK);
        expect(p, culvert_fill(stream, p->device, at, KIB, 1, 1), CULVERT_OK);
        expect(p,
               culvert_launch(stream, p->add, &grid,
                              CULVERT_ARGS(CULVERT_BUFFER_AT(p->device, at), CULVERT_U32(0),
                                           CULVERT_U32(1))),
               CULVERT_OK);
        expect(p, culvert_download(stream, out[s], p->device, at, KIB), CULVERT_OK);
        expect(p, culvert_stream_done(stream), CULVERT_OK);
    }
    ev_run(p->ev, 0);
}

/* More slots than there are, by workers. */
static void staged(party *p)
{
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < 3; i++) {
            size_t at = (size_t)s * BIG;
            culvert_seq *seq = culvert_seq_begin(p->streams[s]);
            culvert_seq_upload(seq, p->device, at, in, BIG / 2);
            culvert_seq_download(seq, out[s], p->device, at, BIG / 2);
            expect(p, culvert_seq_submit(seq), CULVERT_OK);
        }
    ev_run(p->ev, 0);
    for (int s = 0; s < STREAMS; s++)
        culvert_sim_hold(culvert_stream_native(p->streams[s]));
    for (int i = 0; i < 24; i++)
        expect(p,
               culvert_upload(p->streams[i % STREAMS], p->device, (size_t)(i % STREAMS) * BIG, in,
                              KIB),
               CULVERT_OK);
    ev_run(p->ev, EVRUN_NOWAIT);
    culvert_sim_release(NULL);
    ev_run(p->ev, 0);
}

/* Held by a promise, by one another, by sets, by steps; work behind them. */
static void held(party *p)
{
    culvert_future *gate, *first[STREAMS], *behind[STREAMS];
    culvert_promise *promise = culvert_promise_new(p->loop, &gate);
    for (int s = 0; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[s]);
        culvert_seq_wait(seq, s == 0 ? culvert_ref(gate) : culvert_ref(first[s - 1]));
        culvert_seq_keep(seq, new_token(p), free_token);
        culvert_seq_upload(seq, p->device, (size_t)s * BIG, in, KIB);
        first[s] = culvert_seq_submit(seq);
        seq = culvert_seq_begin(p->streams[s]);
        culvert_seq_fill(seq, p->device, (size_t)s * BIG, KIB, 2, 1);
        behind[s] = culvert_seq_submit(seq);
    }
    culvert_seq *last = culvert_seq_begin(p->streams[0]);
    culvert_seq_wait(last, culvert_all(p->loop, behind, STREAMS)); /* consumed */
    culvert_seq_wait(last, culvert_then(culvert_ref(first[1]), pass, new_token(p), free_token));
    culvert_seq_wait(last, culvert_work(p->loop, job, new_token(p), free_token, NULL));
    culvert_seq_download(last, out[0], p->device, 0, BIG);
    for (int i = 0; i < 40; i++) /* more than fit into a sequence's first memory */
        culvert_seq_wait(last, i % 2 == 0 ? culvert_ref(first[1]) : culvert_sleep(p->loop, 0));
    expect(p, culvert_timeout(culvert_seq_submit(last), 1000), CULVERT_OK);
    ev_run(p->ev, EVRUN_NOWAIT);
    for (int s = 0; s < STREAMS; s++)
        expect(p, first[s], CULVERT_OK);
    culvert_unref(gate);
    if (promise != NULL)
        culvert_resolve(promise, NULL, NULL);
    ev_run(p->ev, 0);
}

/* The device waits; what it waited for fails. */
static void rejected(party *p)
{
    culvert_sim_hold(culvert_stream_native(p->streams[0]));
    culvert_future *first = culvert_fill(p->streams[0], p->device, 0, 64, 1, 1);
    for (int s = 1; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[s]);
        culvert_seq_wait(seq, culvert_ref(first));
        culvert_seq_fill(seq, p->device, (size_t)s * BIG, 64, 1, 1);
        culvert_seq_keep(seq, new_token(p), free_token);
        expect(p, culvert_seq_submit(seq), CULVERT_OK);
    }
    expect(p, first, CULVERT_OK);
    culvert_error err = {CULVERT_EUSER, 3, NULL, NULL, "no more"};
    culvert_seq *seq = culvert_seq_begin(p->streams[1]);
    culvert_seq_wait(seq, culvert_rejected(p->loop, &err));
    every_operation(p, seq, 1);
    expect(p, culvert_seq_submit(seq), CULVERT_EUSER);
    culvert_sim_fail("cuLaunchKernel", 5, 701);
    seq = culvert_seq_begin(p->streams[2]);
    every_operation(p, seq, 2);
    expect(p, culvert_seq_submit(seq), CULVERT_EDRIVER);
    culvert_sim_release(NULL);
    ev_run(p->ev, 0);
}

/* Queued, partly in the driver, wholly in the driver, behind a time-out. */
static void cancelled(party *p)
{
    culvert_future *gate, *futures[6];
    culvert_promise *promise = culvert_promise_new(p->loop, &gate);
    culvert_sim_hold(culvert_stream_native(p->streams[0]));
    culvert_sim_hold(culvert_stream_native(p->streams[1]));
    for (int i = 0; i < 6; i++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[i / 2]);
        if (i >= 4)
            culvert_seq_wait(seq, culvert_ref(gate));
        every_operation(p, seq, i / 2);
        for (unsigned k = 0; k < 300; k++) /* more than fits */
            launch(p, seq, i / 2, k);
        futures[i] = culvert_seq_submit(seq);
    }
    culvert_unref(gate);
    ev_run(p->ev, EVRUN_NOWAIT);
    expect(p, culvert_timeout(culvert_ref(futures[1]), 0), CULVERT_ETIMEDOUT)->or_this =
        CULVERT_ECANCELED;
    for (int i = 0; i < 6; i++) {
        if (i % 3 != 0)
            culvert_cancel(futures[i]);
        if (i % 3 == 2)
            culvert_unref(futures[i]);
        else
            expect(p, futures[i], i % 3 == 1 ? CULVERT_ECANCELED : CULVERT_OK);
    }
    ev_run(p->ev, EVRUN_NOWAIT);
    culvert_sim_release(NULL);
    if (promise != NULL)
        culvert_resolve(promise, NULL, NULL);
    ev_run(p->ev, 0);
}

/* With everything under way. */
static void pending(party *p, int want)
{
    culvert_future *gate;
    p->promise = culvert_promise_new(p->loop, &gate);
    p->want_end = want;
    for (int s = 0; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[s]);
        every_operation(p, seq, s);
        expect(p, culvert_seq_submit(seq), want);
        expect(p, culvert_upload(p->streams[s], p->device, (size_t)s * BIG, in, BIG), want);
        seq = culvert_seq_begin(p->streams[s]);
        culvert_seq_wait(seq, culvert_ref(gate));
        every_operation(p, seq, s);
        expect(p, culvert_then(culvert_seq_submit(seq), pass, new_token(p), free_token), want);
        expect(p, culvert_download(p->streams[s], out[s], p->device, (size_t)s * BIG, BIG), want);
        culvert_detach(culvert_stream_done(p->streams[s]));
    }
    culvert_unref(gate);
    ev_run(p->ev, EVRUN_NOWAIT);
}

/* Until only what is held is left. */
static void let_end(party *p)
{
    bool busy = true;
    while (busy) {
        ev_run(p->ev, EVRUN_NOWAIT);
        busy = culvert_sim_live("operation") > 0 || culvert_loop_arm(p->loop) == 0;
        for (int s = 0; s < STREAMS; s++)
            busy = busy || culvert_stream_in_flight(p->streams[s]) > 0;
    }
    ev_run(p->ev, EVRUN_NOWAIT);
}

/* Sequences that wait in the library and one that is being built, when the binding goes. */
static void open_ended(party *p)
{
    culvert_future *gate;
    p->promise = culvert_promise_new(p->loop, &gate);
    p->want_end = CULVERT_ESHUTDOWN;
    for (int s = 0; s < STREAMS; s++) {
        culvert_seq *seq = culvert_seq_begin(p->streams[s]);
        culvert_seq_wait(seq, culvert_ref(gate));
        every_operation(p, seq, s);
        expect(p, culvert_seq_submit(seq), CULVERT_ESHUTDOWN);
        expect(p, culvert_upload(p->streams[s], p->device, (size_t)s * BIG, in, KIB),
               CULVERT_ESHUTDOWN)
            ->or_this = CULVERT_OK; /* where the one in front of it could not be made */
    }
    culvert_seq *seq = culvert_seq_begin(p->streams[0]);
    culvert_seq_wait(seq, gate);
    every_operation(p, seq, 0);
    let_end(p);
    close_gpu(p);
    culvert_seq_drop(seq);
}

static void lost(party *p)
{
    token *told = &p->tokens[0];
    culvert_sim_hold(NULL);
    pending(p, CULVERT_EDEVICELOST);
    culvert_sim_poison(0, 700);
    ev_run(p->ev, 0);
    /* Nobody finds it out where no memory was had for anything. */
    need(told->calls == 1 ||
             (alloc_fail_happened() && culvert_gpu_state(p->gpu) != CULVERT_GPU_LOST),
         "on_lost was called %d times", told->calls);
    expect(p, culvert_fill(p->streams[0], p->device, 0, 64, 0, 1), CULVERT_EDEVICELOST);
    expect(p, culvert_upload(p->streams[1], p->device, 0, in, BIG), CULVERT_EDEVICELOST);
    ev_run(p->ev, 0);
}

/* Taken down with work in the driver that does not end. */
static void stuck(party *p)
{
    culvert_sim_hold(NULL);
    pending(p, CULVERT_ESHUTDOWN);
    close_gpu(p);
}

/* ---- each allocation ---- */

typedef struct attempt {
    scenario *body; /* NULL: it is opening that is short of memory */
    uint64_t first; /* the allocation that fails */
    bool all;       /* and all after it */
    bool leaks;
    double close_seconds;
} attempt;

static void fail_allocations(const attempt *a)
{
    if (a->all)
        alloc_fail_from(a->first);
    else
        alloc_fail_nth(a->first);
}

/* From a simulator that was reset to a binding that is gone. Whether an allocation failed. */
static bool run(const attempt *a)
{
    struct CUctx_st *ctx;
    party *p = &the_party;
    memset(p, 0, sizeof *p);
    p->close_seconds = a->close_seconds;
    p->leaks = a->leaks;
    culvert_sim_reset();
    need(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&ctx, 0) == 0, "no device"); /* it stays */
    culvert_sim_strict(1);
    p->ev = ev_loop_new(EVFLAG_AUTO);
    need(p->ev != NULL, "no loop");
    if (a->body == NULL)
        fail_allocations(a);
    open_gpu(p);
    if (a->body != NULL) {
        need(is_open(p), "it could not be opened");
        culvert_sim_loop_thread();
        fail_allocations(a);
        a->body(p);
    }
    close_gpu(p);
    bool failed = alloc_fail_happened();
    alloc_fail_off();
    ev_loop_destroy(p->ev);
    look(p, failed);
    return failed;
}

/* In this process, which does it again and again. */
static uint64_t each_allocation(attempt a)
{
    a.first = NEVER;
    (void)run(&a); /* what stays with the process is made */
    int64_t live = alloc_fail_live();
    for (a.first = 1;; a.first++) {
        bool failed = run(&a);
        gpu_fixture_nothing_left();
        ck_assert_msg(alloc_fail_live() == live,
                      "%" PRId64 " blocks are left when allocation %" PRIu64 " fails%s",
                      alloc_fail_live() - live, a.first, a.all ? ", and all after it" : "");
        if (!failed)
            return a.first - 1;
    }
}

enum { NONE_FAILED = 0, ONE_FAILED = 10, LEAKED = 20 };

static int run_in_child(void *arg)
{
    bool failed = run(arg);
    if (__lsan_do_recoverable_leak_check() != 0)
        return LEAKED;
    return failed ? ONE_FAILED : NONE_FAILED;
}

/* In a process each, whose device cannot be used any more. */
static uint64_t each_allocation_in_a_child(attempt a)
{
    for (a.first = 1;; a.first++) {
        test_child child = test_child_run(run_in_child, &a, 0, 60);
        ck_assert_msg(child.ended && (child.status == NONE_FAILED || child.status == ONE_FAILED),
                      "allocation %" PRIu64 "%s: %s, status %d, signal %d: %s", a.first,
                      a.all ? " and all after it" : "", child.timed_out ? "hangs" : "ended",
                      child.status, child.signal, child.output);
        if (child.status == NONE_FAILED)
            return a.first - 1;
    }
}

static void at_every_allocation(scenario *body, double close_seconds, unsigned at_least)
{
    for (int all = 0; all <= 1; all++) {
        attempt a = {.body = body, .all = all != 0, .close_seconds = close_seconds};
        uint64_t n = each_allocation(a);
        ck_assert_msg(n >= at_least, "%" PRIu64 " allocations", n);
    }
}

static void at_every_allocation_in_a_child(scenario *body, double close_seconds, unsigned at_least)
{
    for (int all = 0; all <= 1; all++) {
        attempt a = {.body = body, .all = all != 0, .leaks = true, .close_seconds = close_seconds};
        uint64_t n = each_allocation_in_a_child(a);
        ck_assert_msg(n >= at_least, "%" PRIu64 " allocations", n);
    }
}

START_TEST(out_of_memory_while_a_device_is_opened)
{
    at_every_allocation(NULL, 60, 20);
}
END_TEST

START_TEST(out_of_memory_in_sequences_of_every_operation)
{
    at_every_allocation(sequences, 60, 10);
}
END_TEST

START_TEST(out_of_memory_in_operations_one_at_a_time)
{
    at_every_allocation(one_at_a_time, 60, 10);
}
END_TEST

START_TEST(out_of_memory_in_staged_copies)
{
    at_every_allocation(staged, 60, 10);
}
END_TEST

START_TEST(out_of_memory_in_sequences_that_are_held)
{
    at_every_allocation(held, 60, 10);
}
END_TEST

START_TEST(out_of_memory_where_what_is_waited_for_fails)
{
    at_every_allocation(rejected, 60, 10);
}
END_TEST

START_TEST(out_of_memory_while_work_is_cancelled)
{
    at_every_allocation(cancelled, 60, 10);
}
END_TEST

START_TEST(out_of_memory_when_the_binding_goes)
{
    at_every_allocation(open_ended, 0.002, 10);
}
END_TEST

START_TEST(out_of_memory_when_the_device_is_lost)
{
    at_every_allocation_in_a_child(lost, 60, 10);
}
END_TEST

START_TEST(out_of_memory_when_the_binding_goes_and_the_work_does_not_end)
{
    at_every_allocation_in_a_child(stuck, 0.01, 10);
}
END_TEST

int main(void)
{
    trials *t = trials_new("oom");
    TRIAL(t, out_of_memory_while_a_device_is_opened);
    TRIAL(t, out_of_memory_in_sequences_of_every_operation);
    TRIAL(t, out_of_memory_in_operations_one_at_a_time);
    TRIAL(t, out_of_memory_in_staged_copies);
    TRIAL(t, out_of_memory_in_sequences_that_are_held);
    TRIAL(t, out_of_memory_where_what_is_waited_for_fails);
    TRIAL(t, out_of_memory_while_work_is_cancelled);
    TRIAL(t, out_of_memory_when_the_binding_goes);
    TRIAL(t, out_of_memory_when_the_device_is_lost);
    TRIAL(t, out_of_memory_when_the_binding_goes_and_the_work_does_not_end);
    return trials_run(t);
}
