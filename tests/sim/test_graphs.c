/* SPDX-License-Identifier: BSD-2-Clause */
/* Graphs of explicit nodes: building, launching, changing parameters, one launch at a time. */
#include "sim_test.h"

static culvert__CUDA_KERNEL_NODE_PARAMS append_params(void **params)
{
    return (culvert__CUDA_KERNEL_NODE_PARAMS){.func = sim_kernel("add"),
                                              .gridDimX = 1,
                                              .gridDimY = 1,
                                              .gridDimZ = 1,
                                              .blockDimX = 1,
                                              .blockDimY = 1,
                                              .blockDimZ = 1,
                                              .kernelParams = params};
}

static struct CUgraphNode_st *add_append(struct CUgraph_st *g, struct CUgraphNode_st *after,
                                         uint32_t *to, uint32_t digit)
{
    struct CUgraphNode_st *node = NULL;
    void *params[] = {&to, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = append_params(params);
    ck_ok(cuGraphAddKernelNode_v2(&node, g, &after, after ? 1 : 0, &p));
    return node;
}

static struct CUgraph_st *graph(void)
{
    struct CUgraph_st *g = NULL;
    ck_ok(cuGraphCreate(&g, 0));
    return g;
}

static struct CUgraphExec_st *instantiate(struct CUgraph_st *g)
{
    struct CUgraphExec_st *exec = NULL;
    ck_ok(cuGraphInstantiateWithFlags(&exec, g, 0));
    return exec;
}

static culvert__CUDA_MEMCPY3D row_copy(uint64_t dst, const void *src, size_t bytes)
{
    return (culvert__CUDA_MEMCPY3D){.srcMemoryType = CULVERT__CU_MEMORYTYPE_HOST,
                                    .srcHost = src,
                                    .dstMemoryType = CULVERT__CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = dst,
                                    .WidthInBytes = bytes,
                                    .Height = 1,
                                    .Depth = 1};
}

static void note(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

START_TEST(case_091_there_are_no_nodes_of_no_bytes)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *node;
    uint64_t d = sim_device(16);
    culvert__CUDA_MEMSET_NODE_PARAMS f = {.dst = d, .elementSize = 1, .width = 0, .height = 1};
    culvert__CUDA_MEMCPY3D c = row_copy(d, sim_pinned(8), 0);
    ck_result(cuGraphAddMemsetNode(&node, g, NULL, 0, &f, sim_context), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuGraphAddMemcpyNode(&node, g, NULL, 0, &c, sim_context), CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuGraphDestroy(g));
}
END_TEST

START_TEST(nodes_of_all_kinds_run_in_the_order_of_the_edges)
{
    struct CUgraph_st *g = graph(), *child = graph();
    struct CUgraphNode_st *fill, *copy, *host, *empty, *sub;
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4), *src = sim_pinned(8);
    uint64_t d = sim_device(16);
    _Atomic int calls = 0;
    src[0] = 7;
    culvert__CUDA_MEMSET_NODE_PARAMS f = {
        .dst = d, .value = 0x11, .elementSize = 1, .width = 16, .height = 1};
    ck_ok(cuGraphAddMemsetNode(&fill, g, NULL, 0, &f, sim_context));
    culvert__CUDA_MEMCPY3D c = row_copy(d, src, 4);
    ck_ok(cuGraphAddMemcpyNode(&copy, g, &fill, 1, &c, sim_context));
    struct CUgraphNode_st *one = add_append(g, copy, to, 1);
    add_append(child, add_append(child, NULL, to, 2), to, 3);
    ck_ok(cuGraphAddChildGraphNode(&sub, g, &one, 1, child));
    ck_ok(cuGraphDestroy(child)); /* it was copied */
    culvert__sim_host_node_params h = {note, &calls};
    ck_ok(cuGraphAddHostNode(&host, g, &sub, 1, &h));
    ck_ok(cuGraphAddEmptyNode(&empty, g, &host, 1));
    add_append(g, empty, to, 4);
    struct CUgraphExec_st *exec = instantiate(g);
    ck_ok(cuGraphDestroy(g));
    ck_ok(cuGraphUpload(exec, s));
    ck_ok(cuGraphLaunch(exec, s));
    ck_ok(cuMemcpyDtoHAsync_v2(src + 1, d, 4, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 1234);
    ck_assert_uint_eq(src[1], 7);
    ck_assert_int_eq(atomic_load(&calls), 1);
    ck_ok(cuGraphExecDestroy(exec));
    ck_assert_uint_eq(culvert_sim_live("graph"), 0);
}
END_TEST

START_TEST(case_080_a_launch_keeps_its_parameters)
{
    struct CUgraph_st *g = graph();
    struct CUstream_st *s = sim_stream(), *other = sim_stream();
    uint32_t *to = sim_pinned(4), digit = 2;
    struct CUgraphNode_st *node = add_append(g, NULL, to, 1);
    struct CUgraphExec_st *exec = instantiate(g);
    culvert_sim_hold(s);
    ck_ok(cuGraphLaunch(exec, s));
    void *params[] = {&to, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = append_params(params);
    ck_ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &p));
    ck_ok(cuGraphLaunch(exec, other)); /* waits for the first: one at a time */
    digit = 9;
    for (int i = 0; i < 5; i++)
        sim_nap();
    ck_assert_uint_eq(*to, 0);
    ck_result(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(other));
    ck_assert_uint_eq(*to, 12);
    ck_ok(cuGraphExecDestroy(exec));
    ck_ok(cuGraphDestroy(g));
}
END_TEST

START_TEST(an_executable_graph_may_go_while_it_runs)
{
    struct CUgraph_st *g = graph();
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    add_append(g, NULL, to, 5);
    struct CUgraphExec_st *exec = instantiate(g);
    culvert_sim_hold(s);
    ck_ok(cuGraphLaunch(exec, s));
    ck_ok(cuGraphExecDestroy(exec));
    ck_ok(cuGraphDestroy(g));
    culvert_sim_release(s);
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 5);
}
END_TEST

START_TEST(parameters_of_copies_and_fills_can_be_changed)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *fill, *copy;
    struct CUstream_st *s = sim_stream();
    uint32_t *src = sim_pinned(12);
    uint64_t d = sim_device(8);
    culvert__CUDA_MEMSET_NODE_PARAMS f = {
        .dst = d, .value = 1, .elementSize = 4, .width = 1, .height = 1};
    culvert__CUDA_MEMCPY3D c = row_copy(d + 4, &src[0], 4);
    ck_ok(cuGraphAddMemsetNode(&fill, g, NULL, 0, &f, sim_context));
    ck_ok(cuGraphAddMemcpyNode(&copy, g, NULL, 0, &c, sim_context));
    struct CUgraphExec_st *exec = instantiate(g);
    src[0] = 10;
    src[1] = 20;
    f.value = 2;
    c.srcHost = &src[1];
    ck_ok(cuGraphExecMemsetNodeSetParams(exec, fill, &f, sim_context));
    ck_ok(cuGraphExecMemcpyNodeSetParams(exec, copy, &c, sim_context));
    ck_result(cuGraphExecMemsetNodeSetParams(exec, copy, &f, sim_context),
              CUDA_ERROR_INVALID_VALUE);
    ck_ok(cuGraphLaunch(exec, s));
    ck_ok(cuMemcpyDtoHAsync_v2(src, d, 8, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(src[0], 2);
    ck_assert_uint_eq(src[1], 20);
    ck_ok(cuGraphExecDestroy(exec));
    ck_ok(cuGraphDestroy(g));
}
END_TEST

START_TEST(case_081_a_node_ends_with_its_graph)
{
    struct CUgraph_st *g = graph();
    uint32_t *to = sim_pinned(4), digit = 1;
    struct CUgraphNode_st *node = add_append(g, NULL, to, 1);
    struct CUgraphExec_st *exec = instantiate(g);
    ck_ok(cuGraphDestroy(g));
    void *params[] = {&to, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = append_params(params);
    ck_result(cuGraphExecKernelNodeSetParams_v2(exec, node, &p), CUDA_ERROR_INVALID_HANDLE);
    ck_violation(1, "graph node");
    ck_ok(cuGraphExecDestroy(exec));
}
END_TEST

START_TEST(arguments_are_checked)
{
    struct CUgraph_st *g = graph(), *other = graph();
    uint32_t *to = sim_pinned(4), digit = 1;
    void *params[] = {&to, &digit};
    culvert__CUDA_KERNEL_NODE_PARAMS p = append_params(params);
    struct CUgraphNode_st *node = add_append(g, NULL, to, 1), *twice[] = {node, node}, *out;
    ck_result(cuGraphAddKernelNode_v2(&out, other, &node, 1, &p), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuGraphAddKernelNode_v2(&out, g, twice, 2, &p), CUDA_ERROR_INVALID_VALUE);
    p.gridDimX = 0;
    ck_result(cuGraphAddKernelNode_v2(&out, g, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuGraphCreate(&other, 1), CUDA_ERROR_INVALID_VALUE);
    ck_result(cuGraphAddChildGraphNode(&out, g, NULL, 0, g), CUDA_ERROR_INVALID_VALUE);
    culvert__CUDA_MEMCPY3D c = row_copy(64, to, 4);
    ck_result(cuGraphAddMemcpyNode(&out, g, NULL, 0, &c, sim_context), CUDA_ERROR_INVALID_VALUE);
    culvert__CUkernelNodeAttrValue value = {.cooperative = 1};
    ck_ok(cuGraphKernelNodeSetAttribute(node, CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
}
END_TEST

START_TEST(memory_that_was_freed_since_is_noticed)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *node;
    uint64_t d = sim_device(16);
    culvert__CUDA_MEMSET_NODE_PARAMS f = {.dst = d, .elementSize = 1, .width = 16, .height = 1};
    ck_ok(cuGraphAddMemsetNode(&node, g, NULL, 0, &f, sim_context));
    struct CUgraphExec_st *exec = instantiate(g);
    ck_ok(cuMemFree_v2(d));
    ck_result(cuGraphLaunch(exec, sim_stream()), CUDA_ERROR_INVALID_VALUE);
    ck_violation(1, "cuGraphLaunch: use of freed memory");
}
END_TEST

START_TEST(a_graph_launch_is_captured_as_its_nodes)
{
    struct CUgraph_st *g = graph(), *outer;
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4);
    add_append(g, add_append(g, NULL, to, 1), to, 2);
    struct CUgraphExec_st *exec = instantiate(g);
    ck_ok(cuStreamBeginCapture_v2(s, CULVERT__CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_ok(cuGraphLaunch(exec, s));
    ck_ok(sim_append(s, to, 3));
    ck_ok(cuStreamEndCapture(s, &outer));
    struct CUgraphExec_st *outer_exec = instantiate(outer);
    ck_ok(cuGraphExecDestroy(exec));
    ck_ok(cuGraphLaunch(outer_exec, s));
    ck_ok(cuStreamSynchronize(s));
    ck_assert_uint_eq(*to, 123);
}
END_TEST

START_TEST(a_fault_in_a_graph_is_sticky)
{
    struct CUgraph_st *g = graph();
    struct CUgraphNode_st *node;
    struct CUstream_st *s = sim_stream();
    uint32_t *to = sim_pinned(4), code = 710;
    void *params[] = {&code};
    culvert__CUDA_KERNEL_NODE_PARAMS p = append_params(params);
    p.func = sim_kernel("fault");
    ck_ok(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &p));
    add_append(g, node, to, 1);
    struct CUgraphExec_st *exec = instantiate(g);
    ck_ok(cuGraphLaunch(exec, s));
    ck_result(cuStreamSynchronize(s), CUDA_ERROR_ASSERT);
    ck_assert_uint_eq(*to, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim graphs");
    TCase *t = tcase_create("graphs");
    tcase_add_checked_fixture(t, sim_setup, sim_teardown);
    tcase_add_test(t, nodes_of_all_kinds_run_in_the_order_of_the_edges);
    tcase_add_test(t, case_091_there_are_no_nodes_of_no_bytes);
    tcase_add_test(t, case_080_a_launch_keeps_its_parameters);
    tcase_add_test(t, an_executable_graph_may_go_while_it_runs);
    tcase_add_test(t, parameters_of_copies_and_fills_can_be_changed);
    tcase_add_test(t, case_081_a_node_ends_with_its_graph);
    tcase_add_test(t, arguments_are_checked);
    tcase_add_test(t, memory_that_was_freed_since_is_noticed);
    tcase_add_test(t, a_graph_launch_is_captured_as_its_nodes);
    tcase_add_test(t, a_fault_in_a_graph_is_sticky);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
