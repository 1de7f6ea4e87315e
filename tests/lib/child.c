/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A function in a child process. The parent reads the child's stderr to its end, and so always takes all
 * that is written: a child never blocks on the pipe.
 */
#define _GNU_SOURCE
#include "lib/child.h"
#include "lib/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    abort();
}

static void run_child(int (*fn)(void *arg), void *arg, size_t stack_bytes, int err)
{
    struct rlimit core = {0, 0};
    setrlimit(RLIMIT_CORE, &core);
    if (dup2(err, STDERR_FILENO) < 0)
        _exit(125);
    if (stack_bytes != 0) {
        struct rlimit stack;
        if (getrlimit(RLIMIT_STACK, &stack) != 0)
            _exit(125);
        stack.rlim_cur = stack_bytes;
        if (setrlimit(RLIMIT_STACK, &stack) != 0)
            _exit(125);
    }
    _exit(fn(arg));
}

/* Reads until the end of the pipe (true) or of the time (false). */
static bool read_all(int fd, test_child *child, double end)
{
    size_t used = 0;
    for (;;) {
        double left = end - test_now();
        if (left <= 0)
            return false;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, left > 0.1 ? 100 : (int)(left * 1000) + 1) <= 0)
            continue;
        char rest[4096];
        ssize_t got = read(fd, rest, sizeof rest);
        if (got <= 0)
            return true;
        size_t room = sizeof child->output - 1 - used;
        size_t kept = (size_t)got < room ? (size_t)got : room;
        memcpy(child->output + used, rest, kept);
        used += kept;
    }
}

static bool reap(pid_t pid, double end, int *status)
{
    for (;;) {
        pid_t done = waitpid(pid, status, WNOHANG);
        if (done == pid)
            return true;
        if (done < 0)
            die("waitpid");
        if (test_now() >= end)
            return false;
        test_sleep(0.001);
    }
}

test_child test_child_run(int (*fn)(void *arg), void *arg, size_t stack_bytes, double seconds)
{
    test_child child = {.status = -1};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        die("pipe");
    fflush(NULL);
    double end = test_now() + seconds;
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        run_child(fn, arg, stack_bytes, ends[1]);
    close(ends[1]);

    /* The pipe may outlive the child, in a process that it forked: so the child is waited for, too. */
    int status = 0;
    child.timed_out = !read_all(ends[0], &child, end) || !reap(pid, end, &status);
    if (child.timed_out) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    close(ends[0]);
    if (WIFSIGNALED(status))
        child.signal = WTERMSIG(status);
    child.ended = !child.timed_out && WIFEXITED(status);
    if (child.ended)
        child.status = WEXITSTATUS(status);
    return child;
}
