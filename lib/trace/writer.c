/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records become lines of a file.
 *
 *   loop's thread --put--> ring --take--> writer's thread --page--> file
 *
 * A thread, because a write to a disk may take long; a ring that is there from the beginning, because
 * the loop's thread is neither to allocate nor to wait. It makes no system call: the writer looks every
 * 20 ms. When the ring is full records are left out, and counted.
 *
 * Invariants:
 *   - `head` is the loop's, `tail` the writer's; records [tail, head) are there.
 *   - every line but the first begins with a comma, so that the file is an array at any time, but for
 *     its closing bracket.
 *   - no write goes over a page of the file, and no line over the end of a write: the kernel copies a page
 *     or nothing of it before it looks at a SIGKILL, so no line is ever cut in two. What is left of a
 *     page is filled with blanks.
 */
#define _GNU_SOURCE
#include "trace/writer.h"

#include "loop/loop_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 4096, PAGE = 4096, LINE = 1024, NAP_NS = 20000000 };

struct culvert__writer {
    _Alignas(64) atomic_size_t head;
    uint64_t dropped;
    _Alignas(64) atomic_size_t tail;
    atomic_bool stopping;
    pthread_t thread;
    /* The writer's from here on. */
    int fd, error;
    uint64_t epoch;
    bool any;    /* a line is there */
    size_t room; /* of the file's page, without what is in `page` */
    size_t used;
    char page[PAGE];
    culvert__record ring[RECORDS];
};

/* ---- pages ---- */

static void flush(culvert__writer *w)
{
    size_t done = 0;
    while (done < w->used && w->error == 0) {
        ssize_t n = write(w->fd, w->page + done, w->used - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            w->error = errno;
    }
    w->room -= w->used;
    if (w->room == 0)
        w->room = PAGE;
    w->used = 0;
}

static void add(culvert__writer *w, const char *text, size_t n)
{
    if (w->used + n > w->room) { /* the next page */
        memset(w->page + w->used, ' ', w->room - w->used);
        w->used = w->room;
        flush(w);
    }
    memcpy(w->page + w->used, text, n);
    w->used += n;
}

/* ---- lines ---- */

static void line(culvert__writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(culvert__writer *w, const char *format, ...)
{
    char text[LINE];
    va_list args;
    text[0] = w->any ? ',' : ' ';
    va_start(args, format);
    int n = vsnprintf(text + 1, sizeof text - 2, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text - 2)
        return; /* names are bounded: it does not come to that */
    text[n + 1] = '\n';
    w->any = true;
    add(w, text, (size_t)n + 2);
}

/* As a JSON string has it; cut where it does not fit. */
static const char *escape(const char *from, char *to, size_t size)
{
    size_t n = 0;
    for (; *from != '\0' && n + 7 < size; from++) {
        unsigned char c = (unsigned char)*from;
        if (c == '"' || c == '\\')
            to[n++] = '\\';
        if (c < 0x20 || c >= 0x7f)
            n += (size_t)snprintf(to + n, size - n, "\\u%04x", c);
        else
            to[n++] = (char)c;
    }
    to[n] = '\0';
    return to;
}

static double us(const culvert__writer *w, uint64_t ns)
{
    return (double)(int64_t)(ns - w->epoch) / 1e3;
}

/* A part of a sequence's row. */
static void part(culvert__writer *w, const culvert__record *r, const char *name, uint64_t from,
                 uint64_t to)
{
    if (from == 0 || to < from)
        return;
    line(
        w,
        "{\"name\":\"%s\",\"cat\":\"sequence\",\"ph\":\"b\",\"id\":%llu,\"pid\":1,\"tid\":%u,\"ts\":%.3f}",
        name, (unsigned long long)r->id, r->track, us(w, from));
    line(
        w,
        "{\"name\":\"%s\",\"cat\":\"sequence\",\"ph\":\"e\",\"id\":%llu,\"pid\":1,\"tid\":%u,\"ts\":%.3f}",
        name, (unsigned long long)r->id, r->track, us(w, to));
}

/* A span of a track. */
static void span(culvert__writer *w, const culvert__record *r, const char *name, unsigned track,
                 uint64_t from, uint64_t to)
{
    line(
        w,
        "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"id\":%llu}}",
        name, track, us(w, from), (double)(to - from) / 1e3, (unsigned long long)r->id);
}

static void over(culvert__writer *w, const culvert__record *r, const char *name)
{
    part(w, r, "building", r->built, r->submitted);
    part(w, r, "queued", r->submitted, r->enqueued != 0 ? r->enqueued : r->detected);
    part(w, r, "in flight", r->enqueued, r->detected);
    part(w, r, "waiting for its turn", r->callbacks != 0 ? r->detected : 0, r->callbacks);
    part(w, r, "callbacks", r->callbacks, r->end);
    line(w,
         "{\"name\":\"%s\",\"cat\":\"sequence\",\"ph\":\"e\",\"id\":%llu,\"pid\":1,\"tid\":%u,"
         "\"ts\":%.3f,\"args\":{\"outcome\":\"%s\"}}",
         name, (unsigned long long)r->id, r->track, us(w, r->end), r->code);
    if (r->device_end != 0)
        span(w, r, name, r->track, r->device_start, r->device_end);
    if (r->callbacks != 0)
        span(w, r, name, CULVERT__TRACE_LOOP, r->callbacks, r->end);
}

static void write_record(culvert__writer *w, const culvert__record *r)
{
    char name[2 * sizeof r->name], where[2 * sizeof r->where];
    escape(r->name, name, sizeof name);
    switch (r->kind) {
    case CULVERT__RECORD_TRACK:
        line(
            w,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
            r->track, name);
        break;
    case CULVERT__RECORD_BEGIN:
        line(w,
             "{\"name\":\"%s\",\"cat\":\"sequence\",\"ph\":\"b\",\"id\":%llu,\"pid\":1,\"tid\":%u,"
             "\"ts\":%.3f,\"args\":{\"where\":\"%s\"}}",
             name, (unsigned long long)r->id, r->track, us(w, r->built),
             escape(r->where, where, sizeof where));
        break;
    case CULVERT__RECORD_END: over(w, r, name); break;
    }
}

/* ---- the ring ---- */

bool culvert__writer_put(culvert__writer *w, const culvert__record *r)
{
    size_t head = atomic_load_explicit(&w->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&w->tail, memory_order_acquire) == RECORDS) {
        w->dropped++;
        return false;
    }
    w->ring[head % RECORDS] = *r;
    atomic_store_explicit(&w->head, head + 1, memory_order_release);
    return true;
}

static void take_all(culvert__writer *w)
{
    size_t tail = atomic_load_explicit(&w->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&w->head, memory_order_acquire);
    for (; tail != head; tail++) {
        write_record(w, &w->ring[tail % RECORDS]);
        atomic_store_explicit(&w->tail, tail + 1, memory_order_release);
    }
    if (w->used > 0)
        flush(w);
}

static void *run(void *arg)
{
    culvert__writer *w = arg;
    bool last = false;
    while (!last) {
        const struct timespec nap = {0, NAP_NS};
        last = atomic_load(&w->stopping);
        take_all(w);
        if (!last)
            nanosleep(&nap, NULL);
    }
    return NULL;
}

/* ---- life ---- */

culvert__writer *culvert__writer_new(const char *path, uint64_t epoch, int *error)
{
    culvert__writer *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    *error = ENOMEM;
    if (w == NULL)
        return NULL;
    memset(w, 0, sizeof *w);
    atomic_init(&w->head, 0);
    atomic_init(&w->tail, 0);
    atomic_init(&w->stopping, false);
    w->epoch = epoch;
    w->room = PAGE;
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    *error = w->fd < 0 ? errno : 0;
    if (*error == 0) {
        add(w, "[\n", 2);
        flush(w);
        *error =
            w->error != 0 ? w->error : culvert__thread_start(&w->thread, run, w, "culvert-trace");
    }
    if (*error == 0)
        return w;
    if (w->fd >= 0)
        close(w->fd);
    free(w);
    return NULL;
}

int culvert__writer_free(culvert__writer *w, uint64_t *dropped)
{
    atomic_store(&w->stopping, true);
    pthread_join(w->thread, NULL);
    add(w, "]\n", 2);
    flush(w);
    int error = w->error;
    if (close(w->fd) != 0 && error == 0)
        error = errno;
    *dropped = w->dropped;
    free(w);
    return error;
}
