/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs each row of the conformance suite in a process of its own and prints the table of what was
 * seen. CULVERT_DRIVER says on which driver. With `--row <number>` it is the process of one row.
 */
#define _GNU_SOURCE
#include "lib/check_main.h"
#include "lib/clock.h"
#include "row_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW_SECONDS = 60, MAX_ROWS = 400 };

static const struct row *const tables[] = {
    conf_blocking_rows, conf_queue_rows,         conf_event_rows,   conf_stream_rows,
    conf_copy_rows,     conf_memory_rows,        conf_launch_rows,  conf_launch_kind_rows,
    conf_image_rows,    conf_host_function_rows, conf_context_rows, conf_sticky_rows,
    conf_capture_rows,  conf_graph_rows,         conf_process_rows, conf_peer_rows,
};

static const struct row *rows[MAX_ROWS];
static int nrows;

static void collect(void)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const struct row *r = tables[t]; r->name; r++)
            rows[nrows++] = r;
    }
}

/* The child's output; false: it took too long. */
static bool read_to_end(int fd, char *text, size_t bytes)
{
    double end = test_now() + ROW_SECONDS;
    size_t used = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        double left = end - test_now();
        if (left <= 0)
            return false;
        if (poll(&ready, 1, (int)(left * 1000) + 1) <= 0)
            continue;
        char more[512];
        ssize_t got = read(fd, more, sizeof more);
        if (got <= 0)
            break;
        size_t kept = (size_t)got < bytes - 1 - used ? (size_t)got : bytes - 1 - used;
        memcpy(text + used, more, kept);
        used += kept;
    }
    text[used] = 0;
    text[strcspn(text, "\n")] = 0;
    return true;
}

/* ThreadSanitizer makes every process wait for a second at its end, unless told otherwise. */
static void do_not_linger(void)
{
    char options[512];
    const char *before = getenv("TSAN_OPTIONS");
    snprintf(options, sizeof options, "%s:atexit_sleep_ms=0", before ? before : "");
    setenv("TSAN_OPTIONS", options, 1);
}

static pid_t start(int row, int *out)
{
    int ends[2];
    char number[16];
    snprintf(number, sizeof number, "%d", row);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        if (rows[row]->flags & CONF_ONE_QUEUE)
            setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
        else if (rows[row]->flags & CONF_32_QUEUES)
            setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
        else
            unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        if (rows[row]->flags & CONF_TWO_DEVICES)
            setenv("CULVERT_SIM_DEVICES", "2", 1);
        unsetenv("CUDA_MODULE_LOADING");
        do_not_linger();
        execl("/proc/self/exe", "test_conformance", "--row", number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return child;
}

/* Writes what it saw; true: as it should be. */
static bool run_row(int row, char *text, size_t bytes)
{
    int out, status = -1;
    pid_t child = start(row, &out);
    ck_assert_int_gt(child, 0);
    bool ended = read_to_end(out, text, bytes);
    close(out);
    if (!ended) {
        kill(child, SIGKILL);
        snprintf(text, bytes, "it did not end within %d seconds", ROW_SECONDS);
    }
    waitpid(child, &status, 0);
    if (ended && WIFSIGNALED(status))
        snprintf(text, bytes, "it was ended by signal %d", WTERMSIG(status));
    else if (ended && WEXITSTATUS(status) > 1)
        snprintf(text, bytes, "it ended with status %d", WEXITSTATUS(status));
    return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(row_holds)
{
    char text[2048] = "";
    const struct row *row = rows[_i];
    bool good = run_row(_i, text, sizeof text);
    printf("%s %s | %s\n", good ? "ok  " : "DIFF", row->name, text);
    fflush(stdout);
    ck_assert_msg(good, "%s: %s", row->name, text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("conformance");
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, ROW_SECONDS + 30);
    tcase_add_loop_test(t, row_holds, 0, nrows);
    suite_add_tcase(s, t);
    return s;
}

int main(int argc, char **argv)
{
    collect();
    if (argc == 3 && strcmp(argv[1], "--row") == 0)
        return conf_row_process(rows[atoi(argv[2])]);
    Suite *suites[] = {suite(), NULL};
    return test_main(suites);
}
