/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * graph_node.c: the calls that add nodes to graphs.
 */
#include "sim/copy.h"
#include "sim/graph.h"
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

int culvert__sim_kernel_node_work(const culvert__CUDA_KERNEL_NODE_PARAMS *p, struct sim_work *w)
{
    int result;
    void *packed;
    if (!p || !culvert__sim_object_check(p->func, SIM_FUNCTION, &result))
        return p ? result : CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct sim_kernel_work k = {.function = p->func,
                                .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                .cluster = {1, 1, 1},
                                .shared_bytes = p->sharedMemBytes};
    result = culvert__sim_launch_check(p->func, k.grid, k.block, k.shared_bytes);
    if (result == 0)
        result = culvert__sim_pack_params(p->func, p->kernelParams, p->extra, NULL, 0, &packed);
    if (result)
        return result;
    k.params = packed;
    culvert__sim_module_ref(p->func->module);
    *w = (struct sim_work){.kind = SIM_KERNEL, .u.kernel = k};
    return 0;
}

int culvert__sim_memcpy_node_work(const culvert__CUDA_MEMCPY3D *p, struct sim_work *w)
{
    struct sim_copy_work c;
    struct sim_access dst, src;
    enum sim_side kinds[2];
    *w = (struct sim_work){.kind = SIM_EMPTY};
    if (p && (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0))
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    int result = culvert__sim_copy_of_3d(p, &c, kinds);
    if (result == 0)
        result = culvert__sim_copy_check(&c, kinds[0], kinds[1], &dst, &src);
    if (result == 0)
        *w = (struct sim_work){.kind = SIM_COPY, .u.copy = c};
    return result;
}

int culvert__sim_memset_node_work(const culvert__CUDA_MEMSET_NODE_PARAMS *p, struct sim_work *w)
{
    *w = (struct sim_work){.kind = SIM_EMPTY};
    if (!p || p->width == 0 || p->height == 0)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct sim_fill_work f = {.dst = (char *)(uintptr_t)p->dst,
                              .pitch = p->pitch,
                              .width = p->width,
                              .height = p->height,
                              .value = p->value,
                              .element = p->elementSize};
    int result = culvert__sim_fill_check(&f);
    if (result == 0)
        *w = (struct sim_work){.kind = SIM_FILL, .u.fill = f};
    return result;
}

/* 0: a graph, and nodes of it, each once. [lock] */
static int check(struct CUgraph_st *g, struct CUgraphNode_st *const *dependencies, size_t n)
{
    int result;
    if (!culvert__sim_object_check(g, SIM_GRAPH, &result))
        return result;
    if (n > 0 && !dependencies)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (!culvert__sim_object_check(dependencies[i], SIM_NODE, &result))
            return result;
        if (dependencies[i]->graph != g)
            return CULVERT__CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++) {
            if (dependencies[j] == dependencies[i])
                return CULVERT__CUDA_ERROR_INVALID_VALUE;
        }
    }
    return 0;
}

static int context_check(struct CUctx_st *ctx)
{
    int result;
    return culvert__sim_object_check(ctx, SIM_CONTEXT, &result)
               ? 0
               : CULVERT__CUDA_ERROR_INVALID_CONTEXT;
}

static int add(culvert__CUgraphNode *out, struct CUgraph_st *g,
               struct CUgraphNode_st *const *dependencies, size_t n, struct sim_work *w, int type)
{
    struct CUgraphNode_st *node = culvert__sim_graph_add(g, w, dependencies, n);
    if (!node)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    node->type = type;
    *out = node;
    return 0;
}

int cuGraphAddKernelNode_v2(culvert__CUgraphNode *node, culvert__CUgraph graph,
                            const culvert__CUgraphNode *dependencies, size_t n,
                            const culvert__CUDA_KERNEL_NODE_PARAMS *params)
{
    CULVERT__SIM_ENTER(cuGraphAddKernelNode);
    struct sim_work w;
    if (!node)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = check(graph, dependencies, n);
    if (result == 0)
        result = culvert__sim_kernel_node_work(params, &w);
    if (result == 0)
        result = add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_KERNEL);
    culvert__sim_unlock();
    return result;
}

int cuGraphAddMemcpyNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                         const culvert__CUgraphNode *dependencies, size_t n,
                         const culvert__CUDA_MEMCPY3D *params, culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuGraphAddMemcpyNode);
    struct sim_work w;
    if (!node)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = check(graph, dependencies, n);
    if (result == 0)
        result = context_check(ctx);
    if (result == 0)
        result = culvert__sim_memcpy_node_work(params, &w);
    if (result == 0)
        result = add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_MEMCPY);
    culvert__sim_unlock();
    return result;
}

int cuGraphAddMemsetNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                         const culvert__CUgraphNode *dependencies, size_t n,
                         const culvert__CUDA_MEMSET_NODE_PARAMS *params, culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuGraphAddMemsetNode);
    struct sim_work w;
    if (!node)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = check(graph, dependencies, n);
    if (result == 0)
        result = context_check(ctx);
    if (result == 0)
        result = culvert__sim_memset_node_work(params, &w);
    if (result == 0)
        result = add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_MEMSET);
    culvert__sim_unlock();
    return result;
}

int cuGraphAddChildGraphNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                             const culvert__CUgraphNode *dependencies, size_t n,
                             culvert__CUgraph child)
{
    CULVERT__SIM_ENTER(cuGraphAddChildGraphNode);
    int result;
    if (!node || child == graph)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(child, SIM_GRAPH, &result))
        result = check(graph, dependencies, n);
    if (result == 0) {
        struct sim_work w = {.kind = SIM_CHILD, .u.graph = culvert__sim_graph_clone(child)};
        result = w.u.graph
                     ? add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_GRAPH)
                     : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    culvert__sim_unlock();
    return result;
}

int cuGraphAddHostNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                       const culvert__CUgraphNode *dependencies, size_t n,
                       const culvert__sim_host_node_params *params)
{
    CULVERT__SIM_ENTER(cuGraphAddHostNode);
    if (!node || !params || !params->fn)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    struct sim_work w = {.kind = SIM_HOST, .u.host = {.fn = params->fn, .arg = params->userData}};
    culvert__sim_lock();
    int result = check(graph, dependencies, n);
    if (result == 0)
        result = add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_HOST);
    culvert__sim_unlock();
    return result;
}

int cuGraphAddEmptyNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                        const culvert__CUgraphNode *dependencies, size_t n)
{
    CULVERT__SIM_ENTER(cuGraphAddEmptyNode);
    struct sim_work w = {.kind = SIM_EMPTY};
    if (!node)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    int result = check(graph, dependencies, n);
    if (result == 0)
        result = add(node, graph, dependencies, n, &w, CULVERT__CU_GRAPH_NODE_TYPE_EMPTY);
    culvert__sim_unlock();
    return result;
}

int cuGraphKernelNodeSetAttribute(culvert__CUgraphNode node, culvert__CUkernelNodeAttrID attribute,
                                  const culvert__CUkernelNodeAttrValue *value)
{
    CULVERT__SIM_ENTER(cuGraphKernelNodeSetAttribute);
    int result;
    if (!value)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(node, SIM_NODE, &result))
        result = node->work.kind == SIM_KERNEL ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && attribute == CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        node->work.u.kernel.cooperative = value->cooperative != 0;
    if (result == 0 && attribute == CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        node->work.u.kernel.cluster[0] = value->clusterDim.x;
        node->work.u.kernel.cluster[1] = value->clusterDim.y;
        node->work.u.kernel.cluster[2] = value->clusterDim.z;
    }
    culvert__sim_unlock();
    return result;
}
