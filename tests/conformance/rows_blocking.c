/* SPDX-License-Identifier: BSD-2-Clause */
/* What waits for the device, and what does not. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

enum { KB = 1024, MB = 1024 * 1024 };

/* A call with a kernel running on another stream; whether it waits for its end. */
static void while_busy(const char *what, int (*fn)(void *), void *arg, bool blocks)
{
    struct spin spin = conf_spin(conf_stream());
    struct conf_call *call = conf_async(fn, arg);
    bool waited = blocks ? conf_blocked(call) : !conf_returned(call);
    conf_let_go(spin);
    conf_result(what, conf_join(call), 0);
    conf_true(blocks ? "waits" : "does not wait", waited == blocks);
}

static int mem_free(void *address)
{
    return d->cuMemFree(*(culvert__CUdeviceptr *)address);
}
static int mem_free_host(void *p)
{
    return d->cuMemFreeHost(p);
}
static int mem_alloc(void *unused)
{
    culvert__CUdeviceptr address;
    (void)unused;
    return d->cuMemAlloc(&address, 8 * MB);
}
static int host_alloc(void *unused)
{
    void *p;
    (void)unused;
    return d->cuMemHostAlloc(&p, MB, 0);
}
static int host_register(void *p)
{
    return d->cuMemHostRegister(p, MB, 0);
}
static int host_unregister(void *p)
{
    return d->cuMemHostUnregister(p);
}
static int module_load(void *unused)
{
    culvert__CUmodule m;
    (void)unused;
    return d->cuModuleLoadDataEx(&m, d->simulated ? conf_sim_module() : conf_ptx, 0, NULL, NULL);
}
static int stream_create(void *unused)
{
    struct CUstream_st *s;
    (void)unused;
    return d->cuStreamCreateWithPriority(&s, CULVERT__CU_STREAM_NON_BLOCKING, 0);
}
static int event_create(void *unused)
{
    struct CUevent_st *e;
    (void)unused;
    return d->cuEventCreate(&e, CULVERT__CU_EVENT_DISABLE_TIMING);
}
static int event_destroy(void *e)
{
    return d->cuEventDestroy(e);
}
static int stream_destroy(void *s)
{
    return d->cuStreamDestroy(s);
}
static int launch_nothing(void *s)
{
    return conf_launch("nothing", s, NULL);
}
static int launch_lazy(void *s)
{
    return conf_launch("lazy", s, NULL);
}
static int load_lazy(void *unused)
{
    (void)unused;
    return d->cuFuncLoad ? d->cuFuncLoad(conf_kernel("lazy")) : 0;
}

static void free_waits(void)
{
    culvert__CUdeviceptr address = conf_device(16 * MB);
    while_busy("cuMemFree", mem_free, &address, true);
}

static void free_host_waits(void)
{
    while_busy("cuMemFreeHost", mem_free_host, conf_pinned(MB), true);
}

static void module_load_waits(void)
{
    while_busy("cuModuleLoadDataEx", module_load, NULL, true);
}

static void alloc_does_not_wait(void)
{
    while_busy("cuMemAlloc", mem_alloc, NULL, false);
}

static void host_alloc_does_not_wait(void)
{
    while_busy("cuMemHostAlloc", host_alloc, NULL, false);
}

static void host_register_does_not_wait(void)
{
    void *p = aligned_alloc(4096, MB);
    memset(p, 0, MB);
    while_busy("cuMemHostRegister", host_register, p, false);
    d->cuMemHostUnregister(p);
    free(p);
}

static void host_unregister_waits(void)
{
    void *p = aligned_alloc(4096, MB);
    memset(p, 0, MB);
    NEED(d->cuMemHostRegister(p, MB, 0));
    while_busy("cuMemHostUnregister", host_unregister, p, true);
    free(p);
}

static void stream_create_does_not_wait(void)
{
    while_busy("cuStreamCreateWithPriority", stream_create, NULL, false);
}

static void event_create_does_not_wait(void)
{
    while_busy("cuEventCreate", event_create, NULL, false);
}

static void event_destroy_does_not_wait(void)
{
    struct CUstream_st *s = conf_stream();
    struct CUevent_st *e = conf_event();
    struct spin spin = conf_spin(s);
    NEED(d->cuEventRecord(e, s));
    struct conf_call *call = conf_async(event_destroy, e);
    conf_true("of a pending record, does not wait", conf_returned(call));
    conf_let_go(spin);
    conf_result("cuEventDestroy", conf_join(call), 0);
}

static void stream_destroy_does_not_wait(void)
{
    struct CUstream_st *s = conf_stream();
    uint32_t *word = conf_pinned(4);
    struct spin spin = conf_spin(s);
    NEED(conf_store(s, word, 1));
    struct conf_call *call = conf_async(stream_destroy, s);
    conf_true("with queued work, does not wait", conf_returned(call));
    conf_let_go(spin);
    conf_result("cuStreamDestroy", conf_join(call), 0);
    for (int i = 0; i < 5000 && conf_read(word) == 0; i++)
        conf_nap();
    conf_true("the work runs", conf_read(word) == 1);
}

/* Others' launches while a thread is in such a call. */
static void stalls(const char *what, int (*fn)(void *), void *arg)
{
    struct CUstream_st *other = conf_stream();
    struct spin spin = conf_spin(conf_stream());
    struct conf_call *blocked = conf_async(fn, arg);
    conf_true("it waits", conf_blocked(blocked));
    struct conf_call *launch = conf_async(launch_nothing, other);
    conf_true("a launch by another thread waits with it", conf_blocked(launch));
    conf_let_go(spin);
    conf_result(what, conf_join(blocked), 0);
    conf_result("the launch", conf_join(launch), 0);
}

static void free_stalls_launches(void)
{
    culvert__CUdeviceptr address = conf_device(16 * MB);
    stalls("cuMemFree", mem_free, &address);
}

static void free_host_stalls_launches(void)
{
    stalls("cuMemFreeHost", mem_free_host, conf_pinned(MB));
}

static void module_load_stalls_launches(void)
{
    stalls("cuModuleLoadDataEx", module_load, NULL);
}

static void first_launch_does_not_wait(void)
{
    struct CUstream_st *s = conf_stream();
    int mode = 0;
    NEED(d->cuModuleGetLoadingMode(&mode));
    conf_range("lazy loading", mode, CULVERT__CU_MODULE_LAZY_LOADING,
               CULVERT__CU_MODULE_LAZY_LOADING);
    while_busy("the first launch of a function", launch_lazy, s, false);
    while_busy("the second", launch_lazy, s, false);
}

static void func_load_does_not_wait(void)
{
    struct CUstream_st *s = conf_stream();
    while_busy("cuFuncLoad", load_lazy, NULL, false);
    while_busy("the first launch after it", launch_lazy, s, false);
}

/* Copies. */

struct copy {
    struct CUstream_st *stream;
    culvert__CUdeviceptr device;
    char *host;
    size_t bytes;
    int most;
    _Atomic int n;
};

static int uploads(void *arg)
{
    struct copy *c = arg;
    while (atomic_load(&c->n) < c->most) {
        int result = d->cuMemcpyHtoDAsync(c->device, c->host, c->bytes, c->stream);
        if (result)
            return result;
        atomic_fetch_add(&c->n, 1);
    }
    return 0;
}

static int download(void *arg)
{
    struct copy *c = arg;
    return d->cuMemcpyDtoHAsync(c->host, c->device, c->bytes, c->stream);
}

static struct copy pageable(size_t bytes, int most)
{
    struct copy c = {.stream = conf_stream(),
                     .device = conf_device(bytes),
                     .host = malloc(bytes),
                     .bytes = bytes,
                     .most = most};
    memset(c.host, 1, bytes);
    return c;
}

static void behind_spin(struct copy *c, int (*fn)(void *), bool blocks)
{
    struct spin spin = conf_spin(c->stream);
    struct conf_call *call = conf_async(fn, c);
    bool waited = blocks ? conf_blocked(call) : !conf_returned(call);
    conf_true(blocks ? "waits" : "does not wait", waited == blocks);
    conf_note("%d calls returned", atomic_load(&c->n));
    conf_let_go(spin);
    conf_result("result", conf_join(call), 0);
    conf_result("synchronize", d->cuStreamSynchronize(c->stream), 0);
}

static void pageable_download_waits(void)
{
    struct copy c = pageable(4 * KB, 1);
    behind_spin(&c, download, true);
    free(c.host);
}

static void pageable_download_of_4_bytes_waits(void)
{
    struct copy c = pageable(4, 1);
    behind_spin(&c, download, true);
    free(c.host);
}

static void pinned_download_does_not_wait(void)
{
    struct copy c = {.stream = conf_stream(),
                     .device = conf_device(4 * KB),
                     .host = (char *)conf_pinned(4 * KB),
                     .bytes = 4 * KB};
    behind_spin(&c, download, false);
}

static void small_pageable_upload_does_not_wait(void)
{
    struct copy c = pageable(64 * KB, 1);
    behind_spin(&c, uploads, false);
    free(c.host);
}

static void pageable_uploads_fill_the_ring(void)
{
    struct copy c = pageable(64 * KB, 200);
    struct spin spin = conf_spin(c.stream);
    struct conf_call *call = conf_async(uploads, &c);
    conf_true("waits", conf_blocked(call));
    conf_range("uploads of 64 KB that did not wait", atomic_load(&c.n), 60, 64);
    conf_let_go(spin);
    conf_result("result", conf_join(call), 0);
    NEED(d->cuStreamSynchronize(c.stream));
    free(c.host);
}

static void large_pageable_upload_waits(void)
{
    struct copy c = pageable(4 * MB, 1);
    behind_spin(&c, uploads, true);
    free(c.host);
}

static void large_pinned_upload_does_not_wait(void)
{
    struct copy c = {.stream = conf_stream(),
                     .device = conf_device(16 * MB),
                     .host = (char *)conf_pinned(16 * MB),
                     .bytes = 16 * MB,
                     .most = 4};
    behind_spin(&c, uploads, false);
}

const struct row conf_blocking_rows[] = {
    {"cuMemFree waits for running kernels", free_waits, 0},
    {"cuMemFreeHost waits for running kernels", free_host_waits, 0},
    {"cuMemHostUnregister waits for running kernels", host_unregister_waits, 0},
    {"cuModuleLoadDataEx waits for running kernels", module_load_waits, 0},
    {"cuMemFree stalls the launches of other threads", free_stalls_launches, 0},
    {"cuMemFreeHost stalls the launches of other threads", free_host_stalls_launches, 0},
    {"cuModuleLoadDataEx stalls the launches of other threads", module_load_stalls_launches, 0},
    {"cuMemAlloc does not wait", alloc_does_not_wait, 0},
    {"cuMemHostAlloc does not wait", host_alloc_does_not_wait, 0},
    {"cuMemHostRegister does not wait", host_register_does_not_wait, 0},
    {"cuStreamCreateWithPriority does not wait", stream_create_does_not_wait, 0},
    {"cuEventCreate does not wait", event_create_does_not_wait, 0},
    {"cuEventDestroy does not wait for a pending record", event_destroy_does_not_wait, 0},
    {"cuStreamDestroy does not wait for queued work", stream_destroy_does_not_wait, 0},
    {"the first launch of a function does not wait for the device (case 86)",
     first_launch_does_not_wait, 0},
    {"nor does cuFuncLoad", func_load_does_not_wait, 0},
    {"a download to pageable memory waits for its stream", pageable_download_waits, 0},
    {"so does one of 4 bytes", pageable_download_of_4_bytes_waits, 0},
    {"a download to pinned memory does not", pinned_download_does_not_wait, 0},
    {"an upload of 64 KB from pageable memory does not wait", small_pageable_upload_does_not_wait,
     0},
    {"uploads from pageable memory wait once the staging ring is full",
     pageable_uploads_fill_the_ring, 0},
    {"an upload of 4 MB from pageable memory waits", large_pageable_upload_waits, 0},
    {"uploads of 16 MB from pinned memory do not", large_pinned_upload_does_not_wait, 0},
    {0},
};
