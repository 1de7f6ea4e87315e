/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first address of the name that can be bound is taken.
 */
#define _GNU_SOURCE
#include "listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int bind_first(const struct addrinfo *list)
{
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
            bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
            return fd;
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return -1;
}

/* Into host and port; host is empty where there is none. */
static int split(const char *where, char *host, size_t bytes, const char **port)
{
    const char *colon = strrchr(where, ':'), *end = colon;
    *port = colon != NULL ? colon + 1 : where;
    if (colon != NULL && where[0] == '[' && colon[-1] == ']') {
        where++;
        end--;
    }
    size_t n = colon != NULL ? (size_t)(end - where) : 0;
    if (n >= bytes || **port == '\0' || strspn(*port, "0123456789") != strlen(*port))
        return -1;
    memcpy(host, where, n);
    host[n] = '\0';
    return 0;
}

int listen_on(const char *where, culvert_error *err)
{
    char host[256];
    const char *port;
    struct addrinfo *list, hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    if (split(where, host, sizeof host, &port) != 0) {
        culvert_error_set(err, CULVERT_EINVAL, 0, "'%s' is not HOST:PORT or PORT, a number", where);
        return -1;
    }
    int r = getaddrinfo(host[0] != '\0' ? host : "127.0.0.1", port, &hints, &list);
    if (r != 0) {
        culvert_error_set(err, CULVERT_EINVAL, 0, "'%s': %s", where, gai_strerror(r));
        return -1;
    }
    int fd = bind_first(list), saved = errno;
    freeaddrinfo(list);
    if (fd < 0)
        culvert_error_set(err, CULVERT_ESYSTEM, saved, "cannot listen on %s: %s", where,
                          strerror(saved));
    return fd;
}
