/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.c: what tests steer: the functions of culvert/sim.h, but for those about time.
 */
#include "culvert/sim.h"

#include "sim/engine.h"
#include "sim/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEMORY 150323855360u /* 140 GiB */

enum { DEFAULT_QUEUES = 8, DEFAULT_DEPTH = 1021 };

/* A number from the environment, or `otherwise` if there is none that lies within the bounds. */
static uint64_t number(const char *name, uint64_t least, uint64_t most, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end || value < least || value > most) {
        fprintf(stderr, "culvert-sim: %s is '%s': not a number from %llu to %llu\n", name, text,
                (unsigned long long)least, (unsigned long long)most);
        return otherwise;
    }
    return value;
}

static void hide_listed(void)
{
    const char *list = getenv("CULVERT_SIM_HIDE");
    while (list && *list) {
        size_t length = strcspn(list, ",");
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        int function = culvert__sim_function_find(name);
        if (function >= 0)
            culvert__sim_set_hidden((enum culvert__sim_function)function);
        else if (length > 0)
            fprintf(stderr, "culvert-sim: CULVERT_SIM_HIDE names '%s': no such function\n", name);
        list += length;
        list += *list == ',';
    }
}

void culvert__sim_defaults(void)
{
    struct sim *sim = &culvert__sim;
    const char *loading = getenv("CUDA_MODULE_LOADING");
    sim->ndevices = (int)number("CULVERT_SIM_DEVICES", 0, SIM_MAX_DEVICES, 1);
    sim->nvisible = 0;
    sim->hardware_queues =
        (unsigned)number("CUDA_DEVICE_MAX_CONNECTIONS", 1, SIM_MAX_QUEUES, DEFAULT_QUEUES);
    sim->queue_depth = (unsigned)number("CULVERT_SIM_QUEUE_DEPTH", 1, UINT32_MAX, DEFAULT_DEPTH);
    sim->memory_bytes = number("CULVERT_SIM_MEMORY", 0, UINT64_MAX, DEFAULT_MEMORY);
    sim->eager = loading && strcmp(loading, "EAGER") == 0;
    sim->hold_all = false;
    sim->host_mode = CULVERT_SIM_HOST_RUN;
    sim->peerless = false;
    sim->lazy_waits = false;
    culvert_sim_driver_lock(0);
    sim->virtual_time = false;
    sim->virtual_ns = 1000000000u;
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        struct CUctx_st *ctx = &sim->contexts[d];
        ctx->device = d;
        ctx->refs = ctx->flags = 0;
        ctx->sticky = 0;
        atomic_store(&ctx->stop, 0);
    }
    culvert__sim_set_strict(number("CULVERT_SIM_STRICT", 0, 1, 0) != 0);
    hide_listed();
}

int culvert_sim_version(void)
{
    return CULVERT_VERSION;
}

static void drop_host_functions(void)
{
    struct sim *sim = &culvert__sim;
    while (sim->host_head) {
        struct sim_op *op = sim->host_head;
        sim->host_head = op->host_next;
        sim->operations--;
        culvert__sim_op_free(op);
    }
}

void culvert_sim_reset(void)
{
    struct sim *sim = &culvert__sim;
    if (atomic_load(&sim->forked))
        return;
    culvert__sim_lock();
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        struct CUctx_st *ctx = &sim->contexts[d];
        atomic_store(&ctx->stop, CULVERT__CUDA_ERROR_DEINITIALIZED);
        culvert__sim_context_destroy(ctx);
    }
    drop_host_functions();
    culvert__sim_stop_threads();
    culvert__sim_ranges_reset();
    culvert__sim_durations_reset();
    culvert__sim_calls_reset();
    atomic_store(&sim->loop_threads, 0);
    atomic_store(&sim->initialised, 0);
    atomic_fetch_add(&sim->generation, 1);
    culvert__sim_defaults();
    culvert__sim_unlock();
}

void culvert_sim_devices(int n)
{
    if (n < 0 || n > SIM_MAX_DEVICES)
        culvert__sim_misuse("culvert_sim_devices: %d is not from 0 to %d", n, SIM_MAX_DEVICES);
    culvert__sim_lock();
    culvert__sim.ndevices = n;
    culvert__sim_unlock();
}

void culvert_sim_hardware_queues(int n)
{
    if (n < 1 || n > SIM_MAX_QUEUES)
        culvert__sim_misuse("culvert_sim_hardware_queues: %d is not from 1 to %d", n,
                            SIM_MAX_QUEUES);
    culvert__sim_lock();
    culvert__sim.hardware_queues = (unsigned)n;
    culvert__sim_unpark_all();
    culvert__sim_unlock();
}

void culvert_sim_queue_depth(unsigned n)
{
    if (n == 0)
        culvert__sim_misuse("culvert_sim_queue_depth: 0");
    culvert__sim_lock();
    culvert__sim.queue_depth = n;
    culvert__sim_unlock();
}

void culvert_sim_memory(uint64_t bytes)
{
    culvert__sim_lock();
    culvert__sim.memory_bytes = bytes;
    culvert__sim_unlock();
}

static struct CUstream_st *stream_of(const char *call, struct CUstream_st *handle)
{
    struct CUstream_st *s;
    int result = culvert__sim_stream_of(handle, SIM_NO_CURRENT, &s);
    if (result != 0 && (!handle || s != handle))
        culvert__sim_misuse("%s: %p is no stream", call, (void *)handle);
    return s;
}

void culvert_sim_hold(struct CUstream_st *handle)
{
    culvert__sim_lock();
    if (handle)
        stream_of("culvert_sim_hold", handle)->held = true;
    else
        culvert__sim.hold_all = true;
    culvert__sim_unlock();
}

static void release_all(void)
{
    culvert__sim.hold_all = false;
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        for (struct CUstream_st *s = culvert__sim.contexts[d].streams; s; s = s->next)
            s->held = false;
    }
    for (int d = 0; d < SIM_MAX_DEVICES; d++) {
        for (struct CUstream_st *s = culvert__sim.contexts[d].streams; s; s = s->next)
            culvert__sim_kick(s);
    }
}

void culvert_sim_release(struct CUstream_st *handle)
{
    culvert__sim_lock();
    if (handle) {
        struct CUstream_st *s = stream_of("culvert_sim_release", handle);
        s->held = false;
        culvert__sim_kick(s);
    } else {
        release_all();
    }
    culvert__sim_unlock();
}

void culvert_sim_host_functions(culvert_sim_host_mode mode)
{
    if ((int)mode < CULVERT_SIM_HOST_RUN || (int)mode > CULVERT_SIM_HOST_ALWAYS)
        culvert__sim_misuse("culvert_sim_host_functions: %d is no mode", (int)mode);
    culvert__sim_lock();
    culvert__sim.host_mode = (int)mode;
    culvert__sim_host_wanted();
    culvert__sim_unlock();
}

void culvert_sim_peer_access(int on)
{
    culvert__sim_lock();
    culvert__sim.peerless = on == 0;
    culvert__sim_unlock();
}

void culvert_sim_lazy_loading_waits(int on)
{
    culvert__sim_lock();
    culvert__sim.lazy_waits = on != 0;
    culvert__sim_unlock();
}

static enum culvert__sim_function function_of(const char *call, const char *name)
{
    int function = name ? culvert__sim_function_find(name) : -1;
    if (function < 0)
        culvert__sim_misuse(
            "%s: '%s' is no function of the driver that the simulator has; the name is as cuda.h documents it, without _v2",
            call, name ? name : "(null)");
    return (enum culvert__sim_function)function;
}

void culvert_sim_fail(const char *function, unsigned nth, int result)
{
    if (nth == 0)
        culvert__sim_misuse("culvert_sim_fail: the first call is number 1");
    culvert__sim_set_fault(function_of("culvert_sim_fail", function), nth, result);
}

void culvert_sim_delay(const char *function, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e6)
        culvert__sim_misuse("culvert_sim_delay: %g is not a number of seconds", seconds);
    culvert__sim_set_delay(function_of("culvert_sim_delay", function), seconds);
}

void culvert_sim_hide(const char *function)
{
    culvert__sim_set_hidden(function_of("culvert_sim_hide", function));
}

void culvert_sim_poison(int device, int result)
{
    if (result == 0)
        culvert__sim_misuse("culvert_sim_poison: 0 is success");
    culvert__sim_lock();
    if (device < 0 || device >= culvert__sim.ndevices)
        culvert__sim_misuse("culvert_sim_poison: there is no device %d", device);
    culvert__sim_strike(device, result, NULL);
    culvert__sim_unlock();
}

uint64_t culvert_sim_calls(const char *function)
{
    if (function)
        return culvert__sim_count(function_of("culvert_sim_calls", function));
    uint64_t sum = 0;
    for (int i = 0; i < culvert__SIM_FUNCTIONS; i++)
        sum += culvert__sim_count((enum culvert__sim_function)i);
    return sum;
}

static uint64_t device_bytes(void)
{
    uint64_t sum = 0;
    for (int d = 0; d < SIM_MAX_DEVICES; d++)
        sum += culvert__sim.contexts[d].used_bytes;
    return sum;
}

uint64_t culvert_sim_live(const char *kind)
{
    static const struct kind {
        const char *name;
        enum sim_object_kind kinds[2];
    } kinds[] = {
        {"event", {SIM_EVENT, SIM_OBJECT_KINDS}}, {"stream", {SIM_STREAM, SIM_OBJECT_KINDS}},
        {"graph", {SIM_GRAPH, SIM_EXEC}},         {"module", {SIM_MODULE, SIM_OBJECT_KINDS}},
        {"pool", {SIM_POOL, SIM_OBJECT_KINDS}},
    };
    uint64_t n = 0;
    culvert__sim_lock();
    bool known = true;
    if (strcmp(kind, "device bytes") == 0) {
        n = device_bytes();
    } else if (strcmp(kind, "pinned bytes") == 0) {
        n = culvert__sim.pinned_bytes;
    } else if (strcmp(kind, "operation") == 0) {
        n = culvert__sim.operations;
    } else {
        known = false;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            if (strcmp(kinds[i].name, kind) != 0)
                continue;
            known = true;
            for (int k = 0; k < 2 && kinds[i].kinds[k] != SIM_OBJECT_KINDS; k++)
                n += culvert__sim_object_live(kinds[i].kinds[k]);
        }
    }
    culvert__sim_unlock();
    if (!known)
        culvert__sim_misuse("culvert_sim_live: '%s' is no kind", kind);
    return n;
}

void culvert_sim_strict(int on)
{
    culvert__sim_set_strict(on != 0);
}

uint64_t culvert_sim_violations(void)
{
    return culvert__sim_violation_count();
}

size_t culvert_sim_last_violation(char *text, size_t bytes)
{
    return culvert__sim_violation_text(text, bytes);
}

void culvert_sim_loop_thread(void)
{
    struct sim_thread *t = culvert__sim_thread();
    if (!t->loop)
        atomic_fetch_add(&culvert__sim.loop_threads, 1);
    t->loop = true;
}
