/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes of graphs: from operations to the driver's parameters, when a graph is made and when an
 * instance gets others.
 *
 * Invariants: nodes stand one behind the other, in the order of the operations. What an action points
 * to is in the arena of the sequence that was compiled, or of the one that launches; the driver copies
 * it at the call.
 */
#include "gpu/graph.h"

/* ---- from operations ---- */

static culvert__place place_in(const culvert_buffer *buffer, size_t offset)
{
    if (buffer->data != NULL)
        return (culvert__place){(uintptr_t)buffer->data + offset, true};
    return (culvert__place){buffer->address + offset, false};
}

static void flat(culvert__action *out, culvert__place dst, culvert__place src, size_t bytes)
{
    out->kind = CULVERT__ACT_COPY;
    out->u.copy.dst = dst;
    out->u.copy.src = src;
    out->u.copy.width = out->u.copy.dst_pitch = out->u.copy.src_pitch = bytes;
    out->u.copy.height = 1;
}

static void host_copy(const culvert__op *op, culvert__action *out)
{
    culvert__place device = place_in(op->u.host.buffer, op->u.host.offset);
    culvert__place host = {(uintptr_t)op->u.host.host, true};
    if (op->kind == CULVERT__OP_UPLOAD)
        flat(out, device, host, op->u.host.bytes);
    else
        flat(out, host, device, op->u.host.bytes);
}

static void pitched(const culvert__op *op, culvert__action *out)
{
    out->kind = CULVERT__ACT_COPY;
    out->u.copy.dst = place_in(op->u.copy2d.dst, op->u.copy2d.dst_offset);
    out->u.copy.src = place_in(op->u.copy2d.src, op->u.copy2d.src_offset);
    out->u.copy.width = op->u.copy2d.width;
    out->u.copy.height = op->u.copy2d.height;
    out->u.copy.dst_pitch = op->u.copy2d.dst_pitch;
    out->u.copy.src_pitch = op->u.copy2d.src_pitch;
}

void culvert__action_of(const culvert__op *op, culvert__action *out)
{
    switch (op->kind) {
    case CULVERT__OP_UPLOAD:
    case CULVERT__OP_DOWNLOAD: host_copy(op, out); break;
    case CULVERT__OP_COPY:
        flat(out, place_in(op->u.copy.dst, op->u.copy.dst_offset),
             place_in(op->u.copy.src, op->u.copy.src_offset), op->u.copy.bytes);
        break;
    case CULVERT__OP_COPY2D: pitched(op, out); break;
    case CULVERT__OP_FILL:
        out->kind = CULVERT__ACT_FILL;
        out->u.fill.dst = op->u.fill.dst->address + op->u.fill.offset;
        out->u.fill.bytes = op->u.fill.bytes;
        out->u.fill.pattern = op->u.fill.pattern;
        out->u.fill.pattern_bytes = op->u.fill.pattern_bytes;
        break;
    case CULVERT__OP_LAUNCH:
        out->kind = CULVERT__ACT_LAUNCH;
        out->u.launch.launch = &op->u.launch;
        out->u.launch.params = op->u.launch.params;
        break;
    case CULVERT__OP_CALL:
    case CULVERT__OP_GRAPH: break;
    }
}

/* ---- to parameters ---- */

static culvert__CUDA_KERNEL_NODE_PARAMS kernel_params(const culvert__action *a)
{
    const culvert__launch *l = a->u.launch.launch;
    return (culvert__CUDA_KERNEL_NODE_PARAMS){.func = l->kernel->function,
                                              .gridDimX = l->blocks[0],
                                              .gridDimY = l->blocks[1],
                                              .gridDimZ = l->blocks[2],
                                              .blockDimX = l->threads[0],
                                              .blockDimY = l->threads[1],
                                              .blockDimZ = l->threads[2],
                                              .sharedMemBytes = l->shared_bytes,
                                              .kernelParams = a->u.launch.params};
}

static culvert__CUDA_MEMCPY3D copy_params(const culvert__action *a)
{
    const culvert__place *dst = &a->u.copy.dst, *src = &a->u.copy.src;
    culvert__CUDA_MEMCPY3D p = {.srcPitch = a->u.copy.src_pitch,
                                .srcHeight = a->u.copy.height,
                                .dstPitch = a->u.copy.dst_pitch,
                                .dstHeight = a->u.copy.height,
                                .WidthInBytes = a->u.copy.width,
                                .Height = a->u.copy.height,
                                .Depth = 1};
    p.srcMemoryType = src->host ? CULVERT__CU_MEMORYTYPE_HOST : CULVERT__CU_MEMORYTYPE_DEVICE;
    p.dstMemoryType = dst->host ? CULVERT__CU_MEMORYTYPE_HOST : CULVERT__CU_MEMORYTYPE_DEVICE;
    if (src->host)
        p.srcHost = (const void *)(uintptr_t)src->at;
    else
        p.srcDevice = src->at;
    if (dst->host)
        p.dstHost = (void *)(uintptr_t)dst->at;
    else
        p.dstDevice = dst->at;
    return p;
}

static culvert__CUDA_MEMSET_NODE_PARAMS fill_params(const culvert__action *a)
{
    unsigned size = a->u.fill.pattern_bytes;
    uint32_t mask = size == 4 ? UINT32_MAX : ((uint32_t)1 << 8 * size) - 1;
    return (culvert__CUDA_MEMSET_NODE_PARAMS){.dst = a->u.fill.dst,
                                              .value = a->u.fill.pattern & mask,
                                              .elementSize = size,
                                              .width = a->u.fill.bytes / size,
                                              .height = 1};
}

/* ---- making a graph ---- */

static int set_attributes(const culvert__driver *drv, const culvert__node *node, const char **call)
{
    const culvert__launch *l = node->action.u.launch.launch;
    culvert__CUkernelNodeAttrValue value = {0};
    int result = CULVERT__CUDA_SUCCESS;
    *call = "cuGraphKernelNodeSetAttribute";
    if (l->cluster[0] != 0) {
        value.clusterDim.x = l->cluster[0];
        value.clusterDim.y = l->cluster[1];
        value.clusterDim.z = l->cluster[2];
        result = drv->cuGraphKernelNodeSetAttribute(node->native,
                                                    CULVERT__CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                    &value);
    }
    if (result == CULVERT__CUDA_SUCCESS && l->cooperative) {
        value = (culvert__CUkernelNodeAttrValue){.cooperative = 1};
        result =
            drv->cuGraphKernelNodeSetAttribute(node->native,
                                               CULVERT__CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
    }
    return result;
}

static int add_kernel(culvert_graph *graph, culvert__node *node,
                      struct CUgraphNode_st *const *after, size_t n, const char **call)
{
    const culvert__driver *drv = graph->gpu->drv;
    culvert__CUDA_KERNEL_NODE_PARAMS p = kernel_params(&node->action);
    *call = "cuGraphAddKernelNode";
    int result = drv->cuGraphAddKernelNode(&node->native, graph->native, after, n, &p);
    if (result != CULVERT__CUDA_SUCCESS || culvert__launch_is_plain(node->action.u.launch.launch))
        return result;
    return set_attributes(drv, node, call);
}

static int add(culvert_graph *graph, culvert__node *node, struct CUgraphNode_st *const *after,
               size_t n, const char **call)
{
    const culvert__driver *drv = graph->gpu->drv;
    struct CUctx_st *ctx = graph->gpu->device->ctx;
    switch (node->action.kind) {
    case CULVERT__ACT_LAUNCH: return add_kernel(graph, node, after, n, call);
    case CULVERT__ACT_COPY: {
        culvert__CUDA_MEMCPY3D p = copy_params(&node->action);
        *call = "cuGraphAddMemcpyNode";
        return drv->cuGraphAddMemcpyNode(&node->native, graph->native, after, n, &p, ctx);
    }
    case CULVERT__ACT_FILL: {
        culvert__CUDA_MEMSET_NODE_PARAMS p = fill_params(&node->action);
        *call = "cuGraphAddMemsetNode";
        return drv->cuGraphAddMemsetNode(&node->native, graph->native, after, n, &p, ctx);
    }
    case CULVERT__ACT_CHILD:
        *call = "cuGraphAddChildGraphNode";
        return drv->cuGraphAddChildGraphNode(&node->native, graph->native, after, n,
                                             node->action.u.child.graph);
    }
    return CULVERT__CUDA_ERROR_INVALID_VALUE;
}

int culvert__graph_build(culvert_graph *graph, const char **call, const culvert__node **failed)
{
    *failed = NULL;
    *call = "cuGraphCreate";
    int result = graph->gpu->drv->cuGraphCreate(&graph->native, 0);
    if (result != CULVERT__CUDA_SUCCESS) {
        graph->native = NULL;
        return result;
    }
    for (size_t i = 0; i < graph->nnodes; i++) {
        struct CUgraphNode_st *const *after = i > 0 ? &graph->nodes[i - 1].native : NULL;
        result = add(graph, &graph->nodes[i], after, i > 0 ? 1 : 0, call);
        if (result != CULVERT__CUDA_SUCCESS) {
            *failed = &graph->nodes[i];
            return result;
        }
    }
    return CULVERT__CUDA_SUCCESS;
}

int culvert__graph_instantiate(culvert__instance *instance, const char **call)
{
    culvert_graph *graph = instance->graph;
    *call = "cuGraphInstantiateWithFlags";
    int result = graph->gpu->drv->cuGraphInstantiateWithFlags(&instance->exec, graph->native, 0);
    if (result != CULVERT__CUDA_SUCCESS)
        instance->exec = NULL;
    return result;
}

/* ---- other parameters ---- */

int culvert__node_set(const culvert__instance *instance, const culvert__node *node,
                      const culvert__action *action, const char **call)
{
    const culvert_gpu *gpu = instance->graph->gpu;
    const culvert__driver *drv = gpu->drv;
    struct CUctx_st *ctx = gpu->device->ctx;
    switch (action->kind) {
    case CULVERT__ACT_LAUNCH: {
        culvert__CUDA_KERNEL_NODE_PARAMS p = kernel_params(action);
        *call = "cuGraphExecKernelNodeSetParams";
        return drv->cuGraphExecKernelNodeSetParams(instance->exec, node->native, &p);
    }
    case CULVERT__ACT_COPY: {
        culvert__CUDA_MEMCPY3D p = copy_params(action);
        *call = "cuGraphExecMemcpyNodeSetParams";
        return drv->cuGraphExecMemcpyNodeSetParams(instance->exec, node->native, &p, ctx);
    }
    case CULVERT__ACT_FILL: {
        culvert__CUDA_MEMSET_NODE_PARAMS p = fill_params(action);
        *call = "cuGraphExecMemsetNodeSetParams";
        return drv->cuGraphExecMemsetNodeSetParams(instance->exec, node->native, &p, ctx);
    }
    case CULVERT__ACT_CHILD: break;
    }
    return CULVERT__CUDA_ERROR_INVALID_VALUE;
}
