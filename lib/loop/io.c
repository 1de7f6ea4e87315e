/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Futures of descriptors: readable, writable.
 *
 * Invariant: the ev_io is started, and keeps the loop alive, exactly while the future is pending.
 */
#define _POSIX_C_SOURCE 200809L
#include "loop/binding.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

typedef struct ready_fd {
    culvert_future base;
    ev_io io;
    bool input; /* nobody knows when it comes: not in flight for culvert_drain */
    const char *op, *where;
} ready_fd;

static ready_fd *of(culvert_future *f)
{
    return CULVERT__CONTAINER(f, ready_fd, base);
}

static void stop(ready_fd *r)
{
    culvert_loop *loop = culvert__loop_of(r->base.core);

    ev_io_stop(loop->ev, &r->io);
    if (r->input)
        culvert__loop_unkeep_idle(loop);
    else
        culvert__loop_unkeep(loop);
}

static void io_cancel(culvert_future *f)
{
    stop(of(f));
    culvert__settle_canceled(f);
}

static void io_shutdown(culvert_future *f, const culvert_error *err)
{
    stop(of(f));
    culvert__settle_static(f, err->code);
}

static const culvert__kind io_kind = {.name = "descriptor",
                                      .cancel = io_cancel,
                                      .shutdown = io_shutdown};

static void on_io(struct ev_loop *ev, ev_io *w, int revents)
{
    ready_fd *r = CULVERT__CONTAINER(w, ready_fd, io);

    if (culvert__forked())
        return; /* the prepare watcher settles it */
    (void)ev;
    stop(r);
    if ((revents & EV_ERROR) != 0) {
        culvert__settle_failed(&r->base, CULVERT_ESYSTEM, EBADF, r->op, r->where,
                               "descriptor %d was closed or cannot be waited for", w->fd);
    } else {
        culvert__settle_value(&r->base, NULL, NULL);
    }
}

static culvert_future *wait_for(const char *op, const char *where, culvert_loop *loop, int fd,
                                int events)
{
    CULVERT__REQUIRE(loop, op, "loop");
    if (culvert__forked())
        return culvert__future_static(NULL, CULVERT_EFORKED);
    culvert__core *core = &loop->core;
    culvert__check_thread(core, op);
    if (core->closing)
        return culvert__future_static(core, CULVERT_ESHUTDOWN);
    if (fd < 0 || fcntl(fd, F_GETFD) < 0) {
        return culvert__future_failed(core, CULVERT_EINVAL, fd < 0 ? 0 : errno, op, where,
                                      "descriptor %d is not open", fd);
    }
    culvert_future *f = culvert__future_alloc(core, &io_kind, sizeof(ready_fd));
    if (f == NULL)
        return culvert__future_static(core, CULVERT_ENOMEM);
    ready_fd *r = of(f);
    r->op = op;
    r->where = where;
    ev_io_init(&r->io, on_io, fd, events);
    ev_io_start(loop->ev, &r->io);
    r->input = events == EV_READ;
    if (r->input)
        culvert__loop_keep_idle(loop);
    else
        culvert__loop_keep(loop);
    culvert__future_make_root(f);
    return f;
}

culvert_future *culvert_readable_at(const char *where, culvert_loop *loop, int fd)
{
    return wait_for("culvert_readable", where, loop, fd, EV_READ);
}

culvert_future *culvert_writable_at(const char *where, culvert_loop *loop, int fd)
{
    return wait_for("culvert_writable", where, loop, fd, EV_WRITE);
}

culvert_future *culvert_readable(culvert_loop *loop, int fd)
{
    return culvert_readable_at(NULL, loop, fd);
}

culvert_future *culvert_writable(culvert_loop *loop, int fd)
{
    return culvert_writable_at(NULL, loop, fd);
}
