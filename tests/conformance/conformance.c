/* SPDX-License-Identifier: BSD-2-Clause */
/* What rows share, and the process of a row. */
#define _POSIX_C_SOURCE 200809L
#include "conformance.h"

#include "row_process.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const culvert__driver *d;
struct CUctx_st *conf_context;
static struct CUmod_st *module;

static char seen[2048];
static bool failed;

static void add(const char *format, va_list args)
{
    size_t used = strlen(seen);
    if (used > 0 && used + 2 < sizeof seen) {
        strcat(seen, "; ");
        used += 2;
    }
    vsnprintf(seen + used, sizeof seen - used, format, args);
}

void conf_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(format, args);
    va_end(args);
}

void conf_result(const char *what, int result, int expected)
{
    if (result == expected) {
        conf_note("%s: %d", what, result);
        return;
    }
    failed = true;
    conf_note("%s: %d, NOT %d", what, result, expected);
}

void conf_true(const char *what, bool holds)
{
    failed |= !holds;
    conf_note("%s: %s", what, holds ? "yes" : "NO");
}

void conf_range(const char *what, long long value, long long least, long long most)
{
    if (value >= least && value <= most) {
        conf_note("%s: %lld", what, value);
        return;
    }
    failed = true;
    conf_note("%s: %lld, NOT FROM %lld TO %lld", what, value, least, most);
}

bool conf_failed(void)
{
    return failed;
}

const char *conf_seen(void)
{
    return seen;
}

static void finish_row(void)
{
    printf("%s\n", seen);
    fflush(stdout);
}

void conf_need(const char *call, int result)
{
    if (result == 0)
        return;
    conf_note("%s: %d, NEEDED 0", call, result);
    finish_row();
    _Exit(1);
}

struct CUfunc_st *conf_kernel(const char *name)
{
    struct CUfunc_st *f = NULL;
    NEED(d->cuModuleGetFunction(&f, module, name));
    return f;
}

int conf_launch(const char *kernel, struct CUstream_st *s, void **params)
{
    return d->cuLaunchKernel(conf_kernel(kernel), 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

int conf_store(struct CUstream_st *s, void *to, uint32_t value)
{
    void *params[] = {&to, &value};
    return conf_launch("store", s, params);
}

int conf_append(struct CUstream_st *s, void *to, uint32_t digit)
{
    void *params[] = {&to, &digit};
    return conf_launch("append", s, params);
}

struct spin conf_spin(struct CUstream_st *s)
{
    struct spin spin = {(_Atomic uint32_t *)conf_pinned(4)};
    void *params[] = {&spin.flag};
    NEED(conf_launch("spin", s, params));
    return spin;
}

void conf_let_go(struct spin spin)
{
    atomic_store(spin.flag, 1);
}

struct CUstream_st *conf_stream(void)
{
    struct CUstream_st *s = NULL;
    NEED(d->cuStreamCreateWithPriority(&s, CULVERT__CU_STREAM_NON_BLOCKING, 0));
    return s;
}

struct CUstream_st *conf_blocking_stream(void)
{
    struct CUstream_st *s = NULL;
    NEED(d->cuStreamCreateWithPriority(&s, CULVERT__CU_STREAM_DEFAULT, 0));
    return s;
}

struct CUevent_st *conf_event(void)
{
    struct CUevent_st *e = NULL;
    NEED(d->cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING));
    return e;
}

uint32_t *conf_pinned(size_t bytes)
{
    void *p = NULL;
    NEED(d->cuMemHostAlloc(&p, bytes, CULVERT__CU_MEMHOSTALLOC_DEVICEMAP));
    memset(p, 0, bytes);
    return p;
}

unsigned long long conf_device(size_t bytes)
{
    culvert__CUdeviceptr address = 0;
    NEED(d->cuMemAlloc(&address, bytes));
    return address;
}

uint32_t conf_read(const uint32_t *word)
{
    return atomic_load((const _Atomic uint32_t *)word);
}

void conf_write(uint32_t *word, uint32_t value)
{
    atomic_store((_Atomic uint32_t *)word, value);
}

struct conf_call {
    pthread_t thread;
    int (*fn)(void *);
    void *arg;
    int result;
    _Atomic int done;
};

static void *call_main(void *arg)
{
    struct conf_call *call = arg;
    d->cuCtxSetCurrent(conf_context);
    call->result = call->fn(call->arg);
    atomic_store(&call->done, 1);
    return NULL;
}

struct conf_call *conf_async(int (*fn)(void *), void *arg)
{
    struct conf_call *call = calloc(1, sizeof *call);
    if (!call)
        abort();
    call->fn = fn;
    call->arg = arg;
    if (pthread_create(&call->thread, NULL, call_main, call) != 0)
        abort();
    return call;
}

static bool done_within(struct conf_call *call, int milliseconds)
{
    for (int i = 0; i < milliseconds && !atomic_load(&call->done); i++)
        conf_nap();
    return atomic_load(&call->done);
}

bool conf_blocked(struct conf_call *call)
{
    return !done_within(call, 400);
}

bool conf_returned(struct conf_call *call)
{
    return done_within(call, 10000);
}

int conf_join(struct conf_call *call)
{
    pthread_join(call->thread, NULL);
    int result = call->result;
    free(call);
    return result;
}

void *conf_symbol(const char *name)
{
    void *symbol = dlsym(d->library, name);
    if (!symbol)
        conf_need(name, -1);
    return symbol;
}

void conf_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void conf_sleep(double seconds)
{
    for (int i = 0; i < (int)(seconds * 1000); i++)
        conf_nap();
}

/* The process of a row. */

static void set_up(void)
{
    static const char *const loaded[] = {"nothing", "store", "append", "spin", "fault"};
    culvert__CUdevice device;
    NEED(d->cuDeviceGet(&device, 0));
    NEED(d->cuDevicePrimaryCtxRetain(&conf_context, device));
    NEED(d->cuCtxSetCurrent(conf_context));
    const void *image = d->simulated ? conf_sim_module() : conf_ptx;
    NEED(d->cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
    for (size_t i = 0; d->cuFuncLoad && i < sizeof loaded / sizeof *loaded; i++)
        NEED(d->cuFuncLoad(conf_kernel(loaded[i])));
}

int conf_row_process(const struct row *row)
{
    culvert_error err = CULVERT_ERROR_INIT;
    d = culvert__driver_open(NULL, &err);
    if (!d) {
        printf("%s\n", err.message);
        return 1;
    }
    if (!(row->flags & CONF_BARE))
        set_up();
    row->run();
    finish_row();
    return failed ? 1 : 0;
}
