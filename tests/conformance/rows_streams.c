/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams: order, the legacy stream, priorities, handles. */
#include "conformance.h"

static void order(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4);
    for (uint32_t i = 1; i <= 9; i++)
        NEED(conf_append(s, word, i));
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(s), 0);
    conf_range("order", *word, 123456789, 123456789);
}

static void legacy(void)
{
    struct CUstream_st *blocking = conf_blocking_stream(), *later = conf_blocking_stream();
    struct CUstream_st *free_stream = conf_stream();
    uint32_t *word = conf_pinned(4), *other = conf_pinned(4);
    struct spin spin = conf_spin(blocking);
    NEED(conf_append(blocking, word, 1));
    NEED(conf_append(NULL, word, 2));
    NEED(conf_append(later, word, 3));
    NEED(conf_append(free_stream, other, 4));
    conf_result("a non-blocking stream goes on", d->cuStreamSynchronize(free_stream), 0);
    conf_result("the legacy stream", d->cuStreamQuery(NULL), CULVERT__CUDA_ERROR_NOT_READY);
    conf_result("a blocking stream", d->cuStreamQuery(later), CULVERT__CUDA_ERROR_NOT_READY);
    conf_range("so far", conf_read(word), 0, 0);
    conf_let_go(spin);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(later), 0);
    conf_range("order", *word, 123, 123);
}

static void legacy_handle(void)
{
    struct CUstream_st *blocking = conf_blocking_stream();
    uint32_t *word = conf_pinned(4);
    struct spin spin = conf_spin(blocking);
    NEED(conf_append(blocking, word, 1));
    NEED(conf_append(CULVERT__CU_STREAM_LEGACY, word, 2));
    conf_result("handle 1", d->cuStreamQuery(CULVERT__CU_STREAM_LEGACY),
                CULVERT__CUDA_ERROR_NOT_READY);
    conf_let_go(spin);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(CULVERT__CU_STREAM_LEGACY), 0);
    conf_range("order", *word, 12, 12);
}

static void per_thread_handle(void)
{
    struct CUstream_st *mine = CULVERT__CU_STREAM_PER_THREAD;
    uint32_t *word = conf_pinned(4);
    struct spin spin = conf_spin(NULL);
    NEED(conf_append(mine, word, 2));
    conf_result("it waits for the legacy stream", d->cuStreamQuery(mine),
                CULVERT__CUDA_ERROR_NOT_READY);
    conf_let_go(spin);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(mine), 0);
    conf_range("word", *word, 2, 2);
}

static int query_own(void *unused)
{
    (void)unused;
    return d->cuStreamQuery(CULVERT__CU_STREAM_PER_THREAD);
}

static void per_thread_is_each_threads(void)
{
    struct spin spin = conf_spin(CULVERT__CU_STREAM_PER_THREAD);
    conf_result("another thread's", conf_join(conf_async(query_own, NULL)), 0);
    conf_result("this one's", query_own(NULL), CULVERT__CUDA_ERROR_NOT_READY);
    conf_let_go(spin);
}

static void priorities(void)
{
    int least, greatest, priority;
    struct CUstream_st *s;
    conf_result("range", d->cuCtxGetStreamPriorityRange(&least, &greatest), 0);
    conf_range("least", least, 0, 0);
    conf_range("greatest", greatest, -10, -1);
    conf_result("out of range", d->cuStreamCreateWithPriority(&s, 1, greatest - 100), 0);
    NEED(d->cuStreamGetPriority(s, &priority));
    conf_range("is clamped to", priority, greatest, greatest);
    conf_result("out of range", d->cuStreamCreateWithPriority(&s, 1, 100), 0);
    NEED(d->cuStreamGetPriority(s, &priority));
    conf_range("is clamped to", priority, least, least);
}

static void what_they_are(void)
{
    struct CUstream_st *s = conf_stream(), *t = conf_stream();
    struct CUctx_st *ctx;
    unsigned flags;
    unsigned long long a = 0, b = 0;
    conf_result("cuStreamGetCtx", d->cuStreamGetCtx(s, &ctx), 0);
    conf_true("the context", ctx == conf_context);
    conf_result("cuStreamGetFlags", d->cuStreamGetFlags(s, &flags), 0);
    conf_range("flags", flags, 1, 1);
    conf_result("cuStreamGetId", d->cuStreamGetId(s, &a), 0);
    NEED(d->cuStreamGetId(t, &b));
    conf_true("ids differ", a != b);
    conf_result("flags 2", d->cuStreamCreateWithPriority(&s, 2, 0),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
}

const struct row conf_stream_rows[] = {
    {"operations of a stream run in order", order, 0},
    {"the legacy stream and blocking streams wait for each other (case 85)", legacy, 0},
    {"handle 1 is the legacy stream", legacy_handle, 0},
    {"handle 2 is a blocking stream", per_thread_handle, 0},
    {"handle 2 is each thread's own", per_thread_is_each_threads, 0},
    {"priorities are clamped to the range (case 84)", priorities, 0},
    {"streams say what they are", what_they_are, 0},
    {0},
};
