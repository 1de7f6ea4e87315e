/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building a launch: every check of grid and arguments, and the copy of the values.
 *
 * The driver reads as many values as the kernel has parameters, whatever the caller gave, and a
 * limit that is exceeded comes back as "invalid argument" with no figure, so all of it is checked
 * here, where the call can still be named.
 *
 * Invariant: what a built launch points to is in the sequence's arena: the launch may be deferred,
 * when the caller's arguments are long gone.
 */
#include "gpu/flow.h"

#include <stdio.h>
#include <string.h>

/* No device takes more bytes of parameters than this (4096 before compute capability 7.0). */
enum { PARAMS_AT_MOST = 32764, ALIGNMENT = 16 };

static const char axis[3] = {'x', 'y', 'z'};

/* What all checks need. */
typedef struct request {
    culvert_seq *seq;
    culvert_kernel *kernel;
    const culvert_gpu_description *limits;
    const char *op, *where;
} request;

#define FAIL(r, ...) culvert__seq_fail((r)->seq, CULVERT_EINVAL, (r)->op, (r)->where, __VA_ARGS__)

/* ---- the grid ---- */

/* Members and flags that mean nothing yet must be 0, so that they can mean something later. */
static bool check_reserved(const request *r, const culvert_grid *grid)
{
    const char *name = r->kernel->name;
    if ((grid->flags & ~(unsigned)CULVERT_GRID_COOPERATIVE) != 0) {
        FAIL(r, "kernel %s: grid.flags is %#x; CULVERT_GRID_COOPERATIVE (%#x) is the only flag",
             name, grid->flags, (unsigned)CULVERT_GRID_COOPERATIVE);
        return false;
    }
    for (int i = 0; i < 3; i++) {
        if (grid->reserved[i] != 0) {
            FAIL(r, "kernel %s: grid.reserved[%d] is %u; it must be 0", name, i, grid->reserved[i]);
            return false;
        }
    }
    return true;
}

/* Zero y and z mean 1. */
static void normalise(const unsigned from[3], unsigned to[3])
{
    to[0] = from[0];
    to[1] = from[1] == 0 ? 1 : from[1];
    to[2] = from[2] == 0 ? 1 : from[2];
}

static bool check_sizes(const request *r, const char *what, const unsigned sizes[3],
                        const unsigned limits[3])
{
    for (int i = 0; i < 3; i++) {
        if (sizes[i] <= limits[i])
            continue;
        FAIL(r, "kernel %s: a %s of %u x %u x %u is too large: this device's limit in %c is %u",
             r->kernel->name, what, sizes[0], sizes[1], sizes[2], axis[i], limits[i]);
        return false;
    }
    return true;
}

static bool check_threads(const request *r, const unsigned threads[3])
{
    const char *name = r->kernel->name;
    if (threads[0] == 0) {
        FAIL(r, "kernel %s: grid.threads[0] is 0; a block needs threads", name);
        return false;
    }
    if (!check_sizes(r, "block", threads, r->limits->max_block))
        return false;
    unsigned long long product = (unsigned long long)threads[0] * threads[1] * threads[2];
    unsigned limit = culvert__kernel_most_threads(r->kernel);
    const char *whose =
        limit < r->limits->max_threads_per_block ? "this kernel's" : "this device's";
    if (product > limit) {
        FAIL(r, "kernel %s: a block of %u x %u x %u threads is too large: %s limit is %u", name,
             threads[0], threads[1], threads[2], whose, limit);
        return false;
    }
    return true;
}

static bool driver_failed(const request *r, int result, const char *call)
{
    culvert_error err;
    culvert__gpu_driver_failed(culvert__seq_gpu(r->seq), result, call, r->op, r->where, &err);
    culvert__seq_fail_with(r->seq, &err);
    return false;
}

static bool check_shared(const request *r, const culvert_grid *grid)
{
    const culvert_kernel *kernel = r->kernel;
    const char *call;
    unsigned most = culvert__kernel_most_shared(kernel);
    if (grid->shared_bytes > most) {
        FAIL(
            r,
            "kernel %s: %u bytes of dynamic and %u of static shared memory are above this device's "
            "limit of %u bytes a block",
            kernel->name, grid->shared_bytes, kernel->static_shared, most + kernel->static_shared);
        return false;
    }
    if (grid->blocks[0] == 0 || culvert__device_is_lost(culvert__seq_gpu(r->seq)->device))
        return true; /* the submit will say so */
    int result = culvert__kernel_allow_shared(r->kernel, grid->shared_bytes, &call);
    return result == CULVERT__CUDA_SUCCESS || driver_failed(r, result, call);
}

/* ---- clusters ---- */

/* The sizes that every device with clusters takes; more needs an attribute of the kernel. */
enum { CLUSTER_MOST = 8 };

static bool check_cluster_sizes(const request *r, const culvert__launch *l)
{
    const char *name = r->kernel->name;
    unsigned long long blocks = 1;
    for (int i = 0; i < 3; i++) {
        if (l->blocks[i] % l->cluster[i] != 0) {
            FAIL(r, "kernel %s: a grid of %u blocks in %c is no multiple of a cluster's %u", name,
                 l->blocks[i], axis[i], l->cluster[i]);
            return false;
        }
        if (l->cluster[i] <= CLUSTER_MOST)
            blocks *= l->cluster[i];
        else
            blocks = CLUSTER_MOST + 1;
    }
    if (blocks > CLUSTER_MOST) {
        FAIL(r, "kernel %s: a cluster of %u x %u x %u blocks is too large: the limit is %d", name,
             l->cluster[0], l->cluster[1], l->cluster[2], (int)CLUSTER_MOST);
        return false;
    }
    return true;
}

static bool check_cluster(const request *r, const culvert_grid *grid, culvert__launch *out)
{
    memset(out->cluster, 0, sizeof out->cluster);
    if (grid->cluster[0] == 0 && (grid->cluster[1] != 0 || grid->cluster[2] != 0)) {
        FAIL(r, "kernel %s: grid.cluster is 0 x %u x %u; without a cluster all are 0",
             r->kernel->name, grid->cluster[1], grid->cluster[2]);
        return false;
    }
    if (grid->cluster[0] == 0)
        return true;
    if (!culvert__seq_gpu(r->seq)->device->has_clusters) {
        FAIL(r,
             "kernel %s: this device (compute capability %d.%d) has no clusters; they begin with "
             "9.0",
             r->kernel->name, r->limits->compute_major, r->limits->compute_minor);
        return false;
    }
    normalise(grid->cluster, out->cluster);
    return check_cluster_sizes(r, out);
}

/* ---- cooperative launches ---- */

/* All blocks must run at once: one that does not fit would be refused by the driver, in mid-sequence. */
static bool check_cooperative(const request *r, const culvert_grid *grid, culvert__launch *out)
{
    const char *call, *name = r->kernel->name;
    const culvert__device *device = culvert__seq_gpu(r->seq)->device;
    unsigned most;
    out->cooperative = (grid->flags & CULVERT_GRID_COOPERATIVE) != 0;
    if (!out->cooperative || grid->blocks[0] == 0 || culvert__device_is_lost(device))
        return true;
    if (!device->has_cooperative) {
        FAIL(r, "kernel %s: this device (compute capability %d.%d) has no cooperative launches",
             name, r->limits->compute_major, r->limits->compute_minor);
        return false;
    }
    unsigned threads = out->threads[0] * out->threads[1] * out->threads[2];
    int result = culvert__kernel_fit(r->kernel, threads, out->shared_bytes, &most, &call);
    if (result != CULVERT__CUDA_SUCCESS)
        return driver_failed(r, result, call);
    /* Two of them, each below 2^32, do not overflow; the third may. */
    unsigned long long layer = (unsigned long long)out->blocks[0] * out->blocks[1];
    if (layer > most || layer * out->blocks[2] > most) {
        FAIL(r,
             "kernel %s: a cooperative launch of %u x %u x %u blocks is too large: %u blocks of %u "
             "threads and %u bytes of dynamic shared memory run at once on this device",
             name, out->blocks[0], out->blocks[1], out->blocks[2], most, threads,
             out->shared_bytes);
        return false;
    }
    return true;
}

/* ---- all of the grid ---- */

static bool check_grid(const request *r, const culvert_grid *grid, culvert__launch *out)
{
    normalise(grid->blocks, out->blocks);
    normalise(grid->threads, out->threads);
    out->shared_bytes = grid->shared_bytes;
    return check_reserved(r, grid) && check_sizes(r, "grid", out->blocks, r->limits->max_grid) &&
           check_threads(r, out->threads) && check_shared(r, grid) && check_cluster(r, grid, out) &&
           check_cooperative(r, grid, out);
}

/* ---- the arguments ---- */

static bool check_buffer(const request *r, size_t i, const culvert_arg *arg)
{
    const culvert_buffer *buffer = arg->buffer;
    const culvert__device *device = culvert__seq_gpu(r->seq)->device;
    if (buffer == NULL && arg->offset != 0) {
        FAIL(r, "argument %zu of kernel %s: offset %zu into no buffer (NULL)", i, r->kernel->name,
             arg->offset);
        return false;
    }
    if (buffer == NULL)
        return true;
    if (!culvert__buffer_reaches(buffer, device)) {
        char what[160];
        culvert__buffer_foreign(buffer, device, what, sizeof what);
        FAIL(r, "argument %zu of kernel %s: %s", i, r->kernel->name, what);
        return false;
    }
    if (arg->offset > buffer->bytes) {
        FAIL(r, "argument %zu of kernel %s: offset %zu is past the end of a %zu-byte buffer", i,
             r->kernel->name, arg->offset, buffer->bytes);
        return false;
    }
    return true;
}

/* The size of a value; 0: the argument is wrong, and it has been said. */
static size_t size_of(const request *r, size_t i, const culvert_arg *arg)
{
    const char *name = r->kernel->name;
    switch (arg->kind) {
    case CULVERT_ARG_INLINE:
        if (arg->bytes >= 1 && arg->bytes <= sizeof arg->value)
            return arg->bytes;
        FAIL(r, "argument %zu of kernel %s: an inline value of %u bytes; it has 1 to %zu", i, name,
             arg->bytes, sizeof arg->value);
        return 0;
    case CULVERT_ARG_COPY:
        if (arg->bytes >= 1 && arg->data != NULL)
            return arg->bytes;
        FAIL(r, "argument %zu of kernel %s: a value of %u bytes at %s", i, name, arg->bytes,
             arg->data != NULL ? "an address" : "NULL");
        return 0;
    case CULVERT_ARG_BUFFER: return check_buffer(r, i, arg) ? sizeof(unsigned long long) : 0;
    case CULVERT_ARG_HOST:
        FAIL(r,
             "argument %zu of kernel %s: CULVERT_HOST is for binds of uploads and downloads; a "
             "kernel is given CULVERT_BUFFER of a host buffer",
             i, name);
        return 0;
    default:
        FAIL(r, "argument %zu of kernel %s: kind %u is none of culvert_arg_kind", i, name,
             arg->kind);
        return 0;
    }
}

static bool check_count(const request *r, const culvert_arg *args, size_t nargs)
{
    const culvert_kernel *kernel = r->kernel;
    if (args == NULL && nargs != 0) {
        FAIL(r, "kernel %s: args is NULL for %zu arguments", kernel->name, nargs);
        return false;
    }
    if (kernel->nparams >= 0 && nargs != (size_t)kernel->nparams) {
        FAIL(r, "kernel %s has %d parameter%s; %zu argument%s given", kernel->name, kernel->nparams,
             kernel->nparams == 1 ? "" : "s", nargs, nargs == 1 ? " was" : "s were");
        return false;
    }
    if (nargs > PARAMS_AT_MOST) {
        FAIL(r, "kernel %s: %zu arguments; a kernel has at most %d bytes of them", kernel->name,
             nargs, PARAMS_AT_MOST);
        return false;
    }
    return true;
}

/* Bytes that the copies of all values need, each rounded up to the alignment; 0: something is
   wrong. */
static size_t check_args(const request *r, const culvert_arg *args, size_t nargs)
{
    size_t sum = 0;
    for (size_t i = 0; i < nargs; i++) {
        size_t bytes = size_of(r, i, &args[i]);
        if (bytes == 0)
            return 0;
        if (r->kernel->nparams >= 0 && bytes != r->kernel->param_sizes[i]) {
            FAIL(r, "argument %zu of kernel %s has %zu bytes; the parameter has %zu", i,
                 r->kernel->name, bytes, r->kernel->param_sizes[i]);
            return 0;
        }
        if (bytes > PARAMS_AT_MOST) {
            FAIL(r,
                 "argument %zu of kernel %s has %zu bytes; a kernel has at most %d of all together",
                 i, r->kernel->name, bytes, PARAMS_AT_MOST);
            return 0;
        }
        sum += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return sum;
}

/* What each argument has to measure when another one is bound in its place. */
static bool keep_sizes(const request *r, const culvert_arg *args, size_t nargs,
                       culvert__launch *out)
{
    out->nparams = nargs;
    out->sizes = r->kernel->param_sizes;
    if (r->kernel->nparams >= 0 || nargs == 0)
        return true;
    size_t *sizes = culvert__seq_arena(r->seq, nargs * sizeof *sizes);
    if (sizes == NULL)
        return false;
    for (size_t i = 0; i < nargs; i++)
        sizes[i] = args[i].kind == CULVERT_ARG_BUFFER ? sizeof(unsigned long long) : args[i].bytes;
    out->sizes = sizes;
    return true;
}

static size_t copy_value(void *to, const culvert_arg *arg)
{
    unsigned long long address = 0;
    switch (arg->kind) {
    case CULVERT_ARG_INLINE: memcpy(to, arg->value, arg->bytes); return arg->bytes;
    case CULVERT_ARG_COPY: memcpy(to, arg->data, arg->bytes); return arg->bytes;
    default:
        if (arg->buffer != NULL)
            address = arg->buffer->address + arg->offset;
        memcpy(to, &address, sizeof address);
        return sizeof address;
    }
}

static bool hold_buffers(const request *r, const culvert_arg *args, size_t nargs)
{
    for (size_t i = 0; i < nargs; i++) {
        if (args[i].kind != CULVERT_ARG_BUFFER || args[i].buffer == NULL)
            continue;
        if (!culvert__seq_hold_buffer(r->seq, args[i].buffer))
            return false;
    }
    return true;
}

/* The values and, for cuLaunchKernel, an array that points to each. The arena is aligned to 16. */
static bool copy_args(const request *r, const culvert_arg *args, size_t nargs, culvert__launch *out)
{
    out->params = NULL;
    if (nargs == 0)
        return true;
    size_t sum = check_args(r, args, nargs);
    if (sum == 0 || !hold_buffers(r, args, nargs))
        return false;
    char *at = culvert__seq_arena(r->seq, sum);
    out->params = at == NULL ? NULL : culvert__seq_arena(r->seq, nargs * sizeof *out->params);
    if (out->params == NULL)
        return false;
    for (size_t i = 0; i < nargs; i++) {
        out->params[i] = at;
        at += (copy_value(at, &args[i]) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return true;
}

/* ---- the launch ---- */

bool culvert__launch_build(culvert_seq *seq, culvert_kernel *kernel, const culvert_grid *grid,
                           const culvert_arg *args, size_t nargs, const char *op, const char *where,
                           culvert__launch *out)
{
    const culvert__device *device = culvert__seq_gpu(seq)->device;
    const request r = {seq, kernel, &device->description, op, where};
    if (kernel->module->gpu->device != device) {
        FAIL(&r,
             "kernel %s was loaded for device %d, or another context of it; the stream is of "
             "device %d",
             kernel->name, kernel->module->gpu->device->ordinal, device->ordinal);
        return false;
    }
    if (kernel->module->gpu->loop != culvert__seq_gpu(seq)->loop) {
        FAIL(&r, "kernel %s was loaded by another binding: each loads its own modules",
             kernel->name);
        return false;
    }
    out->kernel = kernel;
    return check_grid(&r, grid, out) && check_count(&r, args, nargs) &&
           copy_args(&r, args, nargs, out) && keep_sizes(&r, args, nargs, out) &&
           culvert__seq_hold_module(seq, kernel->module);
}

void *culvert__launch_bind(culvert_seq *seq, const culvert__launch *launch, size_t index,
                           const culvert_arg *arg, const char *op, const char *where)
{
    const culvert__device *device = culvert__seq_gpu(seq)->device;
    const request r = {seq, launch->kernel, &device->description, op, where};
    if (index >= launch->nparams) {
        FAIL(&r, "kernel %s has %zu argument%s; there is no argument %zu to be bound",
             launch->kernel->name, launch->nparams, launch->nparams == 1 ? "" : "s", index);
        return NULL;
    }
    size_t bytes = size_of(&r, index, arg);
    if (bytes == 0)
        return NULL;
    if (bytes != launch->sizes[index]) {
        FAIL(&r, "argument %zu of kernel %s has %zu bytes; the parameter has %zu", index,
             launch->kernel->name, bytes, launch->sizes[index]);
        return NULL;
    }
    void *value = culvert__seq_arena(seq, bytes);
    if (value == NULL || (arg->kind == CULVERT_ARG_BUFFER && arg->buffer != NULL &&
                          !culvert__seq_hold_buffer(seq, arg->buffer)))
        return NULL;
    (void)copy_value(value, arg);
    return value;
}
