/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * graph_exec.c: executable graphs: instantiating, launching, changing parameters.
 *
 * Invariants: the steps of a plan stand in an order that respects the edges of the graph. A launch
 * holds the plan of the moment of its call; parameters are only changed in a plan that no launch
 * holds, which is copied for it if need be. One launch of an executable graph runs at a time: each
 * waits for the record of the one before.
 */
#include "sim/graph.h"
#include "sim/memory.h"
#include "sim/module.h"

#include <stdlib.h>
#include <string.h>

static struct CUgraphExec_st *execs;

const struct sim_work *culvert__sim_plan_work(const struct sim_plan *plan, size_t i)
{
    return i < plan->n ? &plan->steps[i].work : NULL;
}

void culvert__sim_plan_unref(struct sim_plan *plan)
{
    if (!plan || --plan->refs > 0)
        return;
    for (size_t i = 0; i < plan->n; i++)
        culvert__sim_work_release(&plan->steps[i].work);
    free(plan);
}

static size_t steps_of(const struct CUgraph_st *g)
{
    size_t n = 0;
    for (const struct CUgraphNode_st *node = g->nodes; node; node = node->next) {
        if (node->work.kind == SIM_CHILD)
            n += steps_of(node->work.u.graph);
        else if (node->work.kind == SIM_LAUNCH_GRAPH)
            n += node->work.u.plan->n;
        else
            n++;
    }
    return n;
}

static bool add_step(struct sim_plan *plan, const struct sim_work *work,
                     struct CUgraphNode_st *node)
{
    if (!culvert__sim_work_copy(&plan->steps[plan->n].work, work))
        return false;
    plan->steps[plan->n++].node = node;
    return true;
}

static bool add_plan(struct sim_plan *plan, const struct sim_plan *inner)
{
    for (size_t i = 0; i < inner->n; i++) {
        if (!add_step(plan, &inner->steps[i].work, NULL))
            return false;
    }
    return true;
}

/* Nodes only depend on those made before them, so the order of creation will do. */
static bool add_graph(struct sim_plan *plan, const struct CUgraph_st *g, bool inner)
{
    for (struct CUgraphNode_st *node = g->nodes; node; node = node->next) {
        bool added;
        if (node->work.kind == SIM_CHILD)
            added = add_graph(plan, node->work.u.graph, true);
        else if (node->work.kind == SIM_LAUNCH_GRAPH)
            added = add_plan(plan, node->work.u.plan);
        else
            added = add_step(plan, &node->work, inner ? NULL : node);
        if (!added)
            return false;
    }
    return true;
}

static struct sim_plan *plan_new(size_t n)
{
    struct sim_plan *plan = calloc(1, sizeof *plan + n * sizeof plan->steps[0]);
    if (plan)
        plan->refs = 1;
    return plan;
}

static struct sim_plan *plan_of(const struct CUgraph_st *g)
{
    struct sim_plan *plan = plan_new(steps_of(g));
    if (plan && !add_graph(plan, g, false)) {
        culvert__sim_plan_unref(plan);
        return NULL;
    }
    return plan;
}

/* The plan of an executable graph, in no launch's hands. NULL: no memory. */
static struct sim_plan *own_plan(struct CUgraphExec_st *exec)
{
    struct sim_plan *old = exec->plan;
    if (old->refs == 1)
        return old;
    struct sim_plan *plan = plan_new(old->n);
    if (!plan || !add_plan(plan, old)) {
        culvert__sim_plan_unref(plan);
        return NULL;
    }
    for (size_t i = 0; i < old->n; i++)
        plan->steps[i].node = old->steps[i].node;
    culvert__sim_plan_unref(old);
    exec->plan = plan;
    return plan;
}

static void exec_free(struct CUgraphExec_st *exec)
{
    if (exec->prev)
        exec->prev->next = exec->next;
    else
        execs = exec->next;
    if (exec->next)
        exec->next->prev = exec->prev;
    culvert__sim_plan_unref(exec->plan);
    culvert__sim_record_unref(exec->last);
    culvert__sim_object_free(&exec->object);
}

void culvert__sim_execs_of_context(struct CUctx_st *ctx)
{
    struct CUgraphExec_st *next;
    for (struct CUgraphExec_st *exec = execs; exec; exec = next) {
        next = exec->next;
        if (exec->ctx != ctx)
            continue;
        culvert__sim_object_gone(&exec->object);
        exec_free(exec);
    }
}

static int load_functions(const struct sim_plan *plan)
{
    int result = 0;
    for (size_t i = 0; i < plan->n && result == 0; i++) {
        if (plan->steps[i].work.kind == SIM_KERNEL)
            result = culvert__sim_function_load(plan->steps[i].work.u.kernel.function);
    }
    return result;
}

static int instantiate(struct CUgraph_st *g, struct CUgraphExec_st **out)
{
    struct sim_plan *plan = plan_of(g);
    if (!plan)
        return CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    struct CUctx_st *ctx = g->ctx;
    int result = load_functions(plan);
    struct CUgraphExec_st *exec = result == 0 ? culvert__sim_object_new(SIM_EXEC) : NULL;
    if (!exec) {
        culvert__sim_plan_unref(plan);
        return result ? result : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->ctx = ctx;
    exec->plan = plan;
    exec->next = execs;
    if (exec->next)
        exec->next->prev = exec;
    execs = exec;
    *out = exec;
    return 0;
}

int cuGraphInstantiateWithFlags(culvert__CUgraphExec *exec, culvert__CUgraph graph,
                                unsigned long long flags)
{
    CULVERT__SIM_ENTER(cuGraphInstantiateWithFlags);
    struct CUctx_st *ctx;
    int result;
    if (!exec || flags > 15)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    culvert__sim_lock();
    if (culvert__sim_object_check(graph, SIM_GRAPH, &result))
        result = culvert__sim_current(&ctx);
    if (result == 0)
        result = culvert__sim_capture_unsafe();
    if (result == 0)
        result = instantiate(graph, exec);
    culvert__sim_unlock();
    return result;
}

int cuGraphExecDestroy(culvert__CUgraphExec exec)
{
    CULVERT__SIM_ENTER(cuGraphExecDestroy);
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(exec, SIM_EXEC, &result)) {
        exec_free(exec);
        result = 0;
    }
    culvert__sim_unlock();
    return result;
}

int cuGraphUpload(culvert__CUgraphExec exec, culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuGraphUpload);
    struct CUstream_st *s;
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(exec, SIM_EXEC, &result))
        result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0)
        result = culvert__sim_capture_conflict(s);
    culvert__sim_unlock();
    return result;
}

/* Memory that was freed since the graph was made is a violation, and an error. */
static int check_memory(const struct sim_plan *plan)
{
    struct sim_access access;
    int result = 0;
    for (size_t i = 0; i < plan->n && result == 0; i++) {
        const struct sim_work *w = &plan->steps[i].work;
        if (w->kind == SIM_COPY) {
            result = culvert__sim_access((uintptr_t)w->u.copy.dst, 1, SIM_SIDE_ANY, &access);
            if (result == 0)
                result = culvert__sim_access((uintptr_t)w->u.copy.src, 1, SIM_SIDE_ANY, &access);
        } else if (w->kind == SIM_FILL) {
            result = culvert__sim_access((uintptr_t)w->u.fill.dst, 1, SIM_SIDE_ANY, &access);
        }
    }
    return result;
}

static int wait_for_last(struct CUgraphExec_st *exec, struct CUstream_st *s)
{
    if (!exec->last || exec->last->state != SIM_RECORD_PENDING)
        return 0;
    struct sim_op *wait = culvert__sim_op_new(SIM_WAIT, culvert__SIM_cuGraphLaunch);
    wait->silent = true;
    wait->record = culvert__sim_record_ref(exec->last);
    return culvert__sim_enqueue(s, wait);
}

static int launch(struct CUgraphExec_st *exec, struct CUstream_st *s)
{
    int result = s->capture ? 0 : wait_for_last(exec, s);
    if (result)
        return result;
    struct sim_op *op = culvert__sim_op_new(SIM_LAUNCH_GRAPH, culvert__SIM_cuGraphLaunch);
    op->work.u.plan = exec->plan;
    exec->plan->refs++;
    if (s->capture)
        return culvert__sim_capture_op(s, op);
    culvert__sim_record_unref(exec->last);
    exec->last = culvert__sim_record_new();
    op->record = culvert__sim_record_ref(exec->last);
    return culvert__sim_submit(s, op);
}

int cuGraphLaunch(culvert__CUgraphExec exec, culvert__CUstream handle)
{
    CULVERT__SIM_ENTER(cuGraphLaunch);
    struct CUstream_st *s;
    int result;
    culvert__sim_lock();
    if (culvert__sim_object_check(exec, SIM_EXEC, &result))
        result = culvert__sim_stream_of(handle, SIM_CURRENT, &s);
    if (result == 0 && s->ctx != exec->ctx)
        result = CULVERT__CUDA_ERROR_INVALID_HANDLE;
    if (result == 0)
        result = check_memory(exec->plan);
    if (result == 0)
        result = launch(exec, s);
    culvert__sim_unlock();
    return result;
}

/* Do both addresses lie on the device, or both on the host? */
static bool same_side(const void *a, const void *b)
{
    struct sim_access x = {.device = false}, y = {.device = false};
    return culvert__sim_access((uintptr_t)a, 1, SIM_SIDE_ANY, &x) == 0 &&
           culvert__sim_access((uintptr_t)b, 1, SIM_SIDE_ANY, &y) == 0 && x.device == y.device;
}

/* Copies and fills of several rows cannot be changed, and each side stays on the device or the host. What is
   set for a kernel's node by attributes stays. */
static bool may_replace(const struct sim_work *old, struct sim_work *w)
{
    switch (w->kind) {
    case SIM_COPY:
        return old->u.copy.height == 1 && old->u.copy.depth == 1 && w->u.copy.height == 1 &&
               w->u.copy.depth == 1 && same_side(old->u.copy.dst, w->u.copy.dst) &&
               same_side(old->u.copy.src, w->u.copy.src);
    case SIM_FILL:
        return old->u.fill.height == 1 && w->u.fill.height == 1 &&
               same_side(old->u.fill.dst, w->u.fill.dst);
    case SIM_KERNEL:
        memcpy(w->u.kernel.cluster, old->u.kernel.cluster, sizeof w->u.kernel.cluster);
        w->u.kernel.cooperative = old->u.kernel.cooperative;
        return true;
    default: return true;
    }
}

/* Takes the work, also on failure. */
static int replace(struct CUgraphExec_st *exec, struct CUgraphNode_st *node, struct sim_work *w)
{
    struct sim_plan *plan = own_plan(exec);
    int result = plan ? CULVERT__CUDA_ERROR_INVALID_VALUE : CULVERT__CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; plan && i < plan->n; i++) {
        struct sim_plan_step *step = &plan->steps[i];
        if (step->node != node)
            continue;
        if (!may_replace(&step->work, w))
            break;
        culvert__sim_work_release(&step->work);
        step->work = *w;
        return 0;
    }
    culvert__sim_work_release(w);
    return result;
}

static int check(culvert__CUgraphExec exec, culvert__CUgraphNode node, int type)
{
    int result;
    if (!culvert__sim_object_check(exec, SIM_EXEC, &result) ||
        !culvert__sim_object_check(node, SIM_NODE, &result))
        return result;
    return node->type == type ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

int cuGraphExecKernelNodeSetParams_v2(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                      const culvert__CUDA_KERNEL_NODE_PARAMS *params)
{
    CULVERT__SIM_ENTER(cuGraphExecKernelNodeSetParams);
    struct sim_work w;
    culvert__sim_lock();
    int result = check(exec, node, CULVERT__CU_GRAPH_NODE_TYPE_KERNEL);
    if (result == 0)
        result = culvert__sim_kernel_node_work(params, &w);
    if (result == 0)
        result = replace(exec, node, &w);
    culvert__sim_unlock();
    return result;
}

int cuGraphExecMemcpyNodeSetParams(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                   const culvert__CUDA_MEMCPY3D *params, culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
    struct sim_work w;
    (void)ctx;
    culvert__sim_lock();
    int result = check(exec, node, CULVERT__CU_GRAPH_NODE_TYPE_MEMCPY);
    if (result == 0)
        result = culvert__sim_memcpy_node_work(params, &w);
    if (result == 0)
        result = replace(exec, node, &w);
    culvert__sim_unlock();
    return result;
}

int cuGraphExecMemsetNodeSetParams(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                   const culvert__CUDA_MEMSET_NODE_PARAMS *params,
                                   culvert__CUcontext ctx)
{
    CULVERT__SIM_ENTER(cuGraphExecMemsetNodeSetParams);
    struct sim_work w;
    (void)ctx;
    culvert__sim_lock();
    int result = check(exec, node, CULVERT__CU_GRAPH_NODE_TYPE_MEMSET);
    if (result == 0)
        result = culvert__sim_memset_node_work(params, &w);
    if (result == 0)
        result = replace(exec, node, &w);
    culvert__sim_unlock();
    return result;
}
