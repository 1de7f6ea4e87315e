/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading and writing descriptors chunk by chunk: files, pipes, sockets, and what goes wrong. */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"
#include "lib/check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 300001, CHUNK = 65536 };

typedef struct copy {
    culvert_descriptor *in, *out;
    uint64_t lasts;
} copy;

static gpu_fixture f;
static unsigned char data[BYTES], got[BYTES + 1];

static void setup(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
}

static void teardown(void)
{
    gpu_fixture_close(&f);
}

static culvert_future *read_chunk(culvert_chunk *chunk, void *arg)
{
    return culvert_chunk_read(chunk, ((copy *)arg)->in);
}

static culvert_future *write_chunk(culvert_chunk *chunk, void *arg)
{
    ((copy *)arg)->lasts += (uint64_t)chunk->last;
    return culvert_chunk_write(chunk, ((copy *)arg)->out);
}

static culvert_descriptor *descriptor(int fd, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_descriptor *d = culvert_descriptor_new(f.loop, fd, name, &err);
    ck_assert_msg(d != NULL, "%s", err.message);
    return d;
}

static culvert_future *run(copy *c)
{
    culvert_pipeline_options o = CULVERT_PIPELINE_OPTIONS_INIT;
    o.chunk_bytes = CHUNK;
    o.read = read_chunk;
    o.write = write_chunk;
    o.arg = c;
    return culvert_pipeline_run(f.gpu, &o);
}

/* ---- the other ends ---- */

static void *feed(void *arg)
{
    const int fd = *(int *)arg;
    for (size_t done = 0; done < BYTES;) {
        const size_t n = BYTES - done < 7919 ? BYTES - done : 7919;
        const ssize_t r = write(fd, data + done, n);
        if (r <= 0)
            break;
        done += (size_t)r;
    }
    close(fd);
    return NULL;
}

static void *eat(void *arg)
{
    const int fd = *(int *)arg;
    size_t done = 0;
    for (;;) {
        const ssize_t r = read(fd, got + done, sizeof got - done);
        if (r <= 0)
            break;
        done += (size_t)r;
    }
    ck_assert_uint_eq(done, BYTES);
    return NULL;
}

static int file(void)
{
    char name[] = "/tmp/culvert-test.XXXXXX";
    const int fd = mkstemp(name);
    ck_assert_int_ge(fd, 0);
    unlink(name);
    return fd;
}

START_TEST(files)
{
    copy c = {0};
    const int in = file(), out = file();

    ck_assert_int_eq(write(in, data, BYTES), BYTES);
    ck_assert_int_eq(lseek(in, 0, SEEK_SET), 0);
    c.in = descriptor(in, NULL);
    c.out = descriptor(out, NULL);
    gpu_fixture_ok(run(&c));
    ck_assert_int_eq(pread(out, got, sizeof got, 0), BYTES);
    ck_assert_int_eq(memcmp(got, data, BYTES), 0);
    ck_assert_uint_eq(c.lasts, 1);
    culvert_descriptor_free(c.in);
    culvert_descriptor_free(c.out);
    close(in);
    close(out);
}
END_TEST

/* Pipes and sockets, slow at both ends; the flags of the descriptors stay as they are. */
START_TEST(pipes_and_sockets)
{
    copy c = {0};
    int in[2], out[2];
    pthread_t feeder, eater;

    if (_i == 0) {
        ck_assert_int_eq(pipe(in), 0);
        ck_assert_int_eq(pipe(out), 0);
    } else {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, in), 0);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, out), 0);
    }
    c.in = descriptor(in[0], "input");
    c.out = descriptor(out[1], "output");
    ck_assert_int_eq(fcntl(in[0], F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_eq(fcntl(out[1], F_GETFL) & O_NONBLOCK, 0);
    pthread_create(&feeder, NULL, feed, &in[1]);
    pthread_create(&eater, NULL, eat, &out[0]);
    gpu_fixture_ok(run(&c));
    culvert_descriptor_free(c.in);
    culvert_descriptor_free(c.out);
    close(out[1]);
    pthread_join(feeder, NULL);
    pthread_join(eater, NULL);
    ck_assert_int_eq(memcmp(got, data, BYTES), 0);
    close(in[0]);
    close(out[0]);
}
END_TEST

/* case 117: the program did not ask for SIGPIPE to be ignored, and lives. */
START_TEST(case_117_a_reader_that_has_gone_is_an_error)
{
    copy c = {0};
    int out[2];
    const int in = file();
    sigset_t pending;

    signal(SIGPIPE, SIG_DFL);
    ck_assert_int_eq(_i == 0 ? pipe(out) : socketpair(AF_UNIX, SOCK_STREAM, 0, out), 0);
    ck_assert_int_eq(write(in, data, BYTES), BYTES);
    ck_assert_int_eq(lseek(in, 0, SEEK_SET), 0);
    c.in = descriptor(in, NULL);
    c.out = descriptor(out[1], "the peer");
    close(out[0]);
    culvert_error err = gpu_fixture_fails(run(&c), CULVERT_ESYSTEM);
    ck_assert_int_eq(err.native, EPIPE);
    gpu_fixture_says(&err, "cannot write the peer");
    sigpending(&pending);
    ck_assert_int_eq(sigismember(&pending, SIGPIPE), 0);
    culvert_descriptor_free(c.in);
    culvert_descriptor_free(c.out);
    close(out[1]);
    close(in);
}
END_TEST

START_TEST(a_read_that_waits_is_cancelled_with_the_pipeline)
{
    copy c = {0};
    int in[2];
    const int out = file();

    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(write(in[1], data, 100), 100);
    c.in = descriptor(in[0], NULL);
    c.out = descriptor(out, NULL);
    culvert_future *r = run(&c);
    gpu_fixture_run(&f, 0.02);
    culvert_cancel(r);
    (void)gpu_fixture_fails(r, CULVERT_ECANCELED);
    gpu_fixture_run(&f, 0.001);
    culvert_descriptor_free(c.in);
    culvert_descriptor_free(c.out);
    close(in[0]);
    close(in[1]);
    close(out);
}
END_TEST

START_TEST(what_is_no_descriptor)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const int folder = open("/tmp", O_RDONLY | O_DIRECTORY);

    ck_assert_ptr_null(culvert_descriptor_new(f.loop, -1, NULL, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_int_eq(err.native, EBADF);
    gpu_fixture_says(&err, "descriptor -1");
    ck_assert_ptr_null(culvert_descriptor_new(f.loop, folder, "the folder", &err));
    ck_assert_int_eq(err.native, EISDIR);
    gpu_fixture_says(&err, "the folder");
    culvert_descriptor_free(NULL);
    close(folder);
}
END_TEST

START_TEST(errors_of_reading_and_of_a_full_disk)
{
    copy c = {0};
    const int in = open("/dev/zero", O_RDONLY), out = open("/dev/full", O_WRONLY);
    const int closed = open("/dev/null", O_WRONLY);

    c.in = descriptor(in, NULL);
    c.out = descriptor(out, "/dev/full");
    culvert_error err = gpu_fixture_fails(run(&c), CULVERT_ESYSTEM);
    ck_assert_int_eq(err.native, ENOSPC);
    gpu_fixture_says(&err, "/dev/full");
    culvert_descriptor_free(c.in);
    c.in = descriptor(closed, "write-only");
    err = gpu_fixture_fails(run(&c), CULVERT_ESYSTEM);
    ck_assert_int_eq(err.native, EBADF);
    gpu_fixture_says(&err, "cannot read write-only");
    culvert_descriptor_free(c.in);
    culvert_descriptor_free(c.out);
    close(in);
    close(out);
    close(closed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptor");
    TCase *tc = tcase_create("descriptor");

    tcase_add_checked_fixture(tc, setup, teardown);
    suite_add_tcase(suite, tc);
    tcase_add_test(tc, files);
    tcase_add_loop_test(tc, pipes_and_sockets, 0, 2);
    tcase_add_loop_test(tc, case_117_a_reader_that_has_gone_is_an_error, 0, 2);
    tcase_add_test(tc, a_read_that_waits_is_cancelled_with_the_pipeline);
    tcase_add_test(tc, what_is_no_descriptor);
    tcase_add_test(tc, errors_of_reading_and_of_a_full_disk);
    return test_main((Suite *[]){suite, NULL});
}
