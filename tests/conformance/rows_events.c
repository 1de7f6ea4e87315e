/* SPDX-License-Identifier: BSD-2-Clause */
/* Events. */
#include "conformance.h"

static void never_recorded(void)
{
    struct CUevent_st *e = conf_event();
    conf_result("cuEventQuery", d->cuEventQuery(e), 0);
    conf_result("cuEventSynchronize", d->cuEventSynchronize(e), 0);
}

static void wait_for_never_recorded(void)
{
    struct CUstream_st *s = conf_stream(), *busy = conf_stream();
    struct CUevent_st *e = conf_event();
    struct spin spin = conf_spin(busy);
    conf_result("cuStreamWaitEvent", d->cuStreamWaitEvent(s, e, 0), 0);
    NEED(d->cuEventRecord(e, busy)); /* later */
    NEED(conf_launch("nothing", s, NULL));
    conf_result("cuStreamSynchronize, no wait", d->cuStreamSynchronize(s), 0);
    conf_result("cuEventQuery", d->cuEventQuery(e), CULVERT__CUDA_ERROR_NOT_READY);
    conf_let_go(spin);
}

static void pending(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUevent_st *e = conf_event();
    struct spin spin = conf_spin(s);
    NEED(d->cuEventRecord(e, s));
    conf_result("cuEventQuery, pending", d->cuEventQuery(e), CULVERT__CUDA_ERROR_NOT_READY);
    conf_result("cuStreamQuery, pending", d->cuStreamQuery(s), CULVERT__CUDA_ERROR_NOT_READY);
    conf_let_go(spin);
    conf_result("cuEventSynchronize", d->cuEventSynchronize(e), 0);
    conf_result("cuEventQuery", d->cuEventQuery(e), 0);
    conf_result("cuStreamQuery", d->cuStreamQuery(s), 0);
}

static void wait_takes_the_record_of_the_call(void)
{
    struct CUstream_st *s = conf_stream(), *busy = conf_stream();
    struct CUevent_st *e = conf_event();
    NEED(d->cuEventRecord(e, s)); /* over at once */
    NEED(d->cuStreamSynchronize(s));
    struct CUstream_st *waiter = conf_stream();
    NEED(d->cuStreamWaitEvent(waiter, e, 0));
    struct spin spin = conf_spin(busy);
    NEED(d->cuEventRecord(e, busy)); /* recorded anew, elsewhere */
    NEED(conf_launch("nothing", waiter, NULL));
    conf_result("the waiter goes by the first record", d->cuStreamSynchronize(waiter), 0);
    conf_let_go(spin);
}

static void record_again_while_waited_for(void)
{
    struct CUstream_st *s = conf_stream(), *waiter = conf_stream();
    struct CUevent_st *e = conf_event();
    struct spin first = conf_spin(s);
    NEED(d->cuEventRecord(e, s));
    NEED(d->cuStreamWaitEvent(waiter, e, 0));
    uint32_t *flag = conf_pinned(4);
    void *params[] = {&flag};
    NEED(conf_launch("spin", s, params));
    NEED(d->cuEventRecord(e, s));
    NEED(conf_launch("nothing", waiter, NULL));
    conf_let_go(first);
    conf_result("the waiter goes on with the first", d->cuStreamSynchronize(waiter), 0);
    conf_result("cuEventQuery of the second", d->cuEventQuery(e), CULVERT__CUDA_ERROR_NOT_READY);
    conf_write(flag, 1);
    conf_result("cuEventSynchronize", d->cuEventSynchronize(e), 0);
}

static void only_the_last_record_counts(void)
{
    struct CUstream_st *busy = conf_stream(), *s = conf_stream();
    struct CUevent_st *e = conf_event();
    struct spin spin = conf_spin(busy);
    NEED(d->cuEventRecord(e, busy));
    NEED(d->cuEventRecord(e, s));
    conf_result("cuEventSynchronize", d->cuEventSynchronize(e), 0);
    conf_let_go(spin);
}

static void times(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUevent_st *a, *b, *untimed = conf_event();
    float ms = -1;
    NEED(d->cuEventCreate(&a, CULVERT__CU_EVENT_DEFAULT));
    NEED(d->cuEventCreate(&b, CULVERT__CU_EVENT_DEFAULT));
    conf_result("never recorded", d->cuEventElapsedTime(&ms, a, b),
                CULVERT__CUDA_ERROR_INVALID_HANDLE);
    NEED(d->cuEventRecord(a, s));
    struct spin spin = conf_spin(s);
    NEED(d->cuEventRecord(b, s));
    conf_result("pending", d->cuEventElapsedTime(&ms, a, b), CULVERT__CUDA_ERROR_NOT_READY);
    conf_sleep(0.1);
    conf_let_go(spin);
    NEED(d->cuStreamSynchronize(s));
    conf_result("cuEventElapsedTime", d->cuEventElapsedTime(&ms, a, b), 0);
    conf_range("milliseconds", (long long)ms, 90, 10000);
    conf_result("backwards", d->cuEventElapsedTime(&ms, b, a), 0);
    conf_true("negative", ms < -90);
    NEED(d->cuEventRecord(untimed, s));
    NEED(d->cuStreamSynchronize(s));
    conf_result("without timing", d->cuEventElapsedTime(&ms, a, untimed),
                CULVERT__CUDA_ERROR_INVALID_HANDLE);
}

static void bad_arguments(void)
{
    struct CUevent_st *e = conf_event(), *f;
    struct CUstream_st *s = conf_stream();
    conf_result("cuEventQuery(NULL)", d->cuEventQuery(NULL), CULVERT__CUDA_ERROR_INVALID_HANDLE);
    conf_result("cuEventRecord(NULL)", d->cuEventRecord(NULL, s),
                CULVERT__CUDA_ERROR_INVALID_HANDLE);
    conf_result("cuEventCreate, flags 8", d->cuEventCreate(&f, 8),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("interprocess with timing", d->cuEventCreate(&f, CULVERT__CU_EVENT_INTERPROCESS),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuStreamWaitEvent, flags 2", d->cuStreamWaitEvent(s, e, 2),
                CULVERT__CUDA_ERROR_INVALID_VALUE);
    conf_result("cuStreamWaitEvent(NULL)", d->cuStreamWaitEvent(s, NULL, 0),
                CULVERT__CUDA_ERROR_INVALID_HANDLE);
}

const struct row conf_event_rows[] = {
    {"an event never recorded queries as success (case 50)", never_recorded, 0},
    {"waiting for an event never recorded is no wait", wait_for_never_recorded, 0},
    {"a pending event and its stream are not ready", pending, 0},
    {"a wait takes the record of the moment of the call", wait_takes_the_record_of_the_call, 0},
    {"an event may be recorded again while it is waited for", record_again_while_waited_for, 0},
    {"only the last record of an event counts (case 67)", only_the_last_record_counts, 0},
    {"times of events", times, 0},
    {"bad arguments of event functions", bad_arguments, 0},
    {0},
};
