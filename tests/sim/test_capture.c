/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream capture: what is captured, what breaks a capture, who may call what meanwhile. */
#include "sim_test.h"

enum {
    GLOBAL = CULVERT__CU_STREAM_CAPTURE_MODE_GLOBAL,
    LOCAL = CULVERT__CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    RELAXED = CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED
};

static int status_of(struct CUstream_st *s)
{
    int status = -1;
    ck_ok(cuStreamIsCapturing(s, &status));
    return status;
}

static void launch_graph(struct CUgraph_st *g, struct CUstream_st *s)
{
    struct CUgraphExec_st *exec;
    ck_ok(cuGraphInstantiateWithFlags(&exec, g, 0));
    ck_ok(cuGraphLaunch(exec, s));
    ck_ok(cuStreamSynchronize(s));
    ck_ok(cuGraphExecDestroy(exec));
}

static void note(void *arg)
{
    ++*(uint32_t *)arg;
}

START_TEST(captured_work_runs_when_the_graph_is_launched)
{
    struct CUstream_st *s = sim_stream();
    struct CUgraph_st *g;
    uint32_t *to = sim_pinned(8), calls = 0;
    uint64_t d = sim_device(4);
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_assert_int_eq(status_of(s), CULVERT__CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_ok(sim_append(s, to, 4));
    ck_ok(cuMemcpyHtoDAsync_v2(d, to, 4, s));
    ck_ok(cuMemcpyDtoHAsync_v2(to + 1, d, 4, s));
    ck_ok(cuLaunchHostFunc(s, note, &calls));
    ck_ok(sim_append(s, to, 2));
    ck_ok(cuMemsetD8Async(d, 0, 4, s));
    ck_ok(cuStreamEndCapture(s, &g));
    ck_assert_int_eq(status_of(s), CULVERT__CU_STREAM_CAPTURE_STATUS_NONE);
    ck_assert_uint_eq(*to, 0);
    size_t n = 0;
    ck_ok(cuGraphGetNodes(g, NULL, &n));
    ck_assert_uint_eq(n, 6);
    struct CUgraphNode_st *nodes[6];
    ck_ok(cuGraphGetNodes(g, nodes, &n));
    static const int types[] = {0, 1, 1, 3, 0, 2};
    for (size_t i = 0; i < n; i++) {
        int type;
        ck_ok(cuGraphNodeGetType(nodes[i], &type));
        ck_assert_int_eq(type, types[i]);
    }
    launch_graph(g, s);
    ck_assert_uint_eq(to[0], 42);
    ck_assert_uint_eq(to[1], 4);
    ck_assert_uint_eq(calls, 1);
    launch_graph(g, s); /* the host function runs at every replay */
    ck_assert_uint_eq(calls, 2);
    ck_ok(cuGraphDestroy(g));
}
END_TEST

START_TEST(events_carry_a_capture_to_other_streams)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *fork_event = sim_event(), *join_event = sim_event();
    struct CUgraph_st *g;
    uint32_t *to = sim_pinned(4);
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_ok(sim_append(s, to, 1));
    ck_ok(cuEventRecord(fork_event, s));
    ck_result(cuEventQuery(fork_event), CUDA_ERROR_CAPTURED_EVENT);
    ck_ok(cuStreamWaitEvent(other, fork_event, 0));
    ck_assert_int_eq(status_of(other), CULVERT__CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_ok(sim_append(other, to, 2));
    ck_ok(cuEventRecord(join_event, other));
    ck_ok(cuStreamWaitEvent(s, join_event, 0));
    ck_ok(sim_append(s, to, 3));
    uint64_t id;
    int status;
    struct CUgraph_st *seen;
    struct CUgraphNode_st *const *tails;
    size_t n;
    ck_ok(cuStreamGetCaptureInfo_v2(s, &status, &id, &seen, (const culvert__CUgraphNode **)&tails,
                                    &n));
    ck_assert_uint_eq(n, 1);
    ck_result(cuStreamEndCapture(other, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_assert_ptr_null(g);
    ck_assert_int_eq(status_of(other), CULVERT__CU_STREAM_CAPTURE_STATUS_NONE);
    ck_ok(cuEventRecord(fork_event, s)); /* an event is itself again when recorded anew */
    ck_ok(cuEventSynchronize(fork_event));
}
END_TEST

START_TEST(a_fork_that_is_joined_runs_in_order)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *e = sim_event();
    struct CUgraph_st *g;
    uint32_t *to = sim_pinned(4);
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_ok(sim_append(s, to, 1));
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuStreamWaitEvent(other, e, 0));
    ck_ok(sim_append(other, to, 2));
    ck_ok(cuEventRecord(e, other));
    ck_ok(cuStreamWaitEvent(s, e, 0));
    ck_ok(sim_append(s, to, 3));
    ck_ok(cuStreamEndCapture(s, &g));
    launch_graph(g, s);
    ck_assert_uint_eq(*to, 123);
    ck_ok(cuGraphDestroy(g));
}
END_TEST

START_TEST(a_fork_that_is_not_joined_is_an_error)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *e = sim_event();
    struct CUgraph_st *g = NULL;
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuStreamWaitEvent(other, e, 0));
    ck_ok(sim_launch("nothing", other, NULL));
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ck_assert_ptr_null(g);
    ck_ok(cuStreamQuery(other));
}
END_TEST

START_TEST(captures_do_not_mix_with_other_work)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *outside = sim_event(), *a = sim_event();
    struct CUgraph_st *g;
    ck_ok(cuEventRecord(outside, other));
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_result(cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    ck_assert_int_eq(status_of(s), CULVERT__CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    ck_result(sim_launch("nothing", s, NULL), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_ok(cuStreamBeginCapture_v2(other, LOCAL));
    ck_ok(cuEventRecord(a, s));
    ck_result(cuStreamWaitEvent(other, a, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_result(cuStreamEndCapture(other, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_ILLEGAL_STATE);
}
END_TEST

START_TEST(a_captured_stream_cannot_be_waited_for)
{
    struct CUstream_st *s = sim_stream();
    struct CUgraph_st *g;
    ck_ok(cuStreamBeginCapture_v2(s, RELAXED));
    ck_result(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_ok(cuStreamBeginCapture_v2(s, RELAXED));
    ck_result(cuStreamBeginCapture_v2(s, RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    ck_result(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ck_result(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_result(cuStreamBeginCapture_v2(NULL, RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
END_TEST

START_TEST(the_legacy_stream_breaks_captures_of_blocking_streams)
{
    struct CUstream_st *blocking = sim_blocking_stream(), *free_stream = sim_stream();
    struct CUgraph_st *g;
    int status;
    ck_ok(cuStreamBeginCapture_v2(free_stream, RELAXED));
    ck_ok(sim_launch("nothing", NULL, NULL));
    ck_ok(cuStreamEndCapture(free_stream, &g));
    ck_ok(cuGraphDestroy(g));
    ck_ok(cuStreamBeginCapture_v2(blocking, RELAXED));
    ck_result(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ck_result(sim_launch("nothing", NULL, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ck_result(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

/* An unsafe call by another thread, in a mode. */
static int allocate_in_mode(void *mode)
{
    culvert__CUdeviceptr d;
    int before = *(int *)mode;
    int result = cuThreadExchangeStreamCaptureMode(&before);
    if (result == 0 && before != GLOBAL)
        return -1; /* every thread starts in it */
    return result ? result : cuMemAlloc_v2(&d, 16);
}

START_TEST(case_078_unsafe_calls_break_captures_by_mode)
{
    static const struct row {
        int capture, caller;
        bool breaks;
    } rows[] = {
        {GLOBAL, GLOBAL, true},   {GLOBAL, LOCAL, false},  {GLOBAL, RELAXED, false},
        {LOCAL, GLOBAL, false},   {LOCAL, LOCAL, false},   {LOCAL, RELAXED, false},
        {RELAXED, GLOBAL, false}, {RELAXED, LOCAL, false}, {RELAXED, RELAXED, false},
    };
    struct CUstream_st *s = sim_stream();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct CUgraph_st *g = NULL;
        int mode = rows[i].caller;
        ck_ok(cuStreamBeginCapture_v2(s, rows[i].capture));
        int result = sim_join(sim_in_thread(allocate_in_mode, &mode));
        int end = cuStreamEndCapture(s, &g);
        ck_assert_msg(result == (rows[i].breaks ? 900 : 0), "row %d: the call: %d", (int)i, result);
        ck_assert_msg(end == (rows[i].breaks ? 901 : 0), "row %d: the capture: %d", (int)i, end);
        if (g)
            ck_ok(cuGraphDestroy(g));
    }
}
END_TEST

START_TEST(unsafe_calls_by_the_capturing_thread_itself)
{
    struct CUstream_st *s = sim_stream();
    struct CUgraph_st *g;
    culvert__CUdeviceptr d;
    struct CUevent_st *e = sim_event();
    for (int mode = GLOBAL; mode <= RELAXED; mode++) {
        int expected = mode == RELAXED ? 0 : CULVERT__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        ck_ok(cuStreamBeginCapture_v2(s, mode));
        ck_assert_int_eq(cuMemAlloc_v2(&d, 16), expected);
        ck_assert_int_eq(cuEventQuery(e), expected);
        ck_assert_int_eq(cuStreamEndCapture(s, &g), mode == RELAXED ? 0 : 901);
    }
    ck_ok(cuGraphDestroy(g));
    int mode = RELAXED;
    ck_ok(cuThreadExchangeStreamCaptureMode(&mode));
    ck_ok(cuStreamBeginCapture_v2(s, GLOBAL));
    ck_ok(cuMemAlloc_v2(&d, 16));
    ck_ok(cuStreamEndCapture(s, &g));
    ck_ok(cuGraphDestroy(g));
    ck_ok(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, RELAXED);
    mode = 3;
    ck_result(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static int end_capture(void *stream)
{
    struct CUgraph_st *g = NULL;
    int result = cuStreamEndCapture(stream, &g);
    if (g)
        cuGraphDestroy(g);
    return result;
}

START_TEST(another_thread_ends_only_relaxed_captures)
{
    struct CUstream_st *s = sim_stream();
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_result(sim_join(sim_in_thread(end_capture, s)), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    ck_ok(end_capture(s));
    ck_ok(cuStreamBeginCapture_v2(s, RELAXED));
    ck_ok(sim_join(sim_in_thread(end_capture, s)));
}
END_TEST

START_TEST(destroying_what_is_captured)
{
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    struct CUevent_st *e = sim_event();
    ck_ok(cuStreamBeginCapture_v2(s, LOCAL));
    ck_ok(sim_launch("nothing", s, NULL));
    ck_ok(cuEventRecord(e, s));
    ck_ok(cuStreamWaitEvent(other, e, 0));
    ck_ok(cuStreamDestroy_v2(s));
    ck_ok(cuStreamQuery(other));
    ck_assert_uint_eq(culvert_sim_live("graph"), 0);
    ck_result(cuStreamWaitEvent(other, e, 0), CUDA_ERROR_CAPTURED_EVENT);
    ck_ok(cuEventDestroy_v2(e));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim capture");
    TCase *t = tcase_create("capture");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, captured_work_runs_when_the_graph_is_launched);
    tcase_add_test(t, events_carry_a_capture_to_other_streams);
    tcase_add_test(t, a_fork_that_is_joined_runs_in_order);
    tcase_add_test(t, a_fork_that_is_not_joined_is_an_error);
    tcase_add_test(t, captures_do_not_mix_with_other_work);
    tcase_add_test(t, a_captured_stream_cannot_be_waited_for);
    tcase_add_test(t, the_legacy_stream_breaks_captures_of_blocking_streams);
    tcase_add_test(t, case_078_unsafe_calls_break_captures_by_mode);
    tcase_add_test(t, unsafe_calls_by_the_capturing_thread_itself);
    tcase_add_test(t, another_thread_ends_only_relaxed_captures);
    tcase_add_test(t, destroying_what_is_captured);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
