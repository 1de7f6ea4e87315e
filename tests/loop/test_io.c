/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors: culvert_readable, culvert_writable. */
#include "loop/fixture.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static void setup(void)
{
    fx_setup();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

static void teardown(void)
{
    fx_teardown();
    close(ends[0]);
    close(ends[1]);
}

START_TEST(readable_when_data_is_there)
{
    culvert_future *f = culvert_readable(fx.loop, ends[0]);

    fx_turn();
    ck_assert_int_eq(culvert_status(f), CULVERT_PENDING);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    fx_run();
    ck_assert_int_eq(culvert_status(f), CULVERT_OK);
    ck_assert_ptr_null(culvert_value(f));
    culvert_unref(f);
}
END_TEST

START_TEST(readable_at_end_of_file)
{
    culvert_future *f = culvert_readable(fx.loop, ends[0]);

    shutdown(ends[1], SHUT_WR);
    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
    culvert_unref(f);
}
END_TEST

START_TEST(writable_when_there_is_room)
{
    char block[4096] = {0};
    culvert_future *f = culvert_writable(fx.loop, ends[0]);

    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
    culvert_unref(f);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    while (write(ends[0], block, sizeof block) > 0)
        ;
    f = culvert_writable(fx.loop, ends[0]);
    ck_assert_int_eq(culvert_await(f, 0.0), CULVERT_PENDING);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (read(ends[1], block, sizeof block) > 0)
        ;
    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
    culvert_unref(f);
}
END_TEST

START_TEST(several_futures_of_one_descriptor)
{
    outcome o = {0};

    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(culvert_on_settled(culvert_readable(fx.loop, ends[0]), fx_keep, &o, NULL),
                         CULVERT_OK);
    ck_assert_int_eq(culvert_on_settled(culvert_writable(fx.loop, ends[0]), fx_keep, &o, NULL),
                     CULVERT_OK);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    fx_run();
    ck_assert_int_eq(o.calls, 4);
}
END_TEST

START_TEST(cancelled_and_dropped_leave_no_watcher)
{
    culvert_future *f = culvert_readable(fx.loop, ends[0]);

    culvert_cancel(f);
    ck_assert_int_eq(culvert_status(f), CULVERT_ECANCELED);
    culvert_unref(f);
    culvert_unref(culvert_readable(fx.loop, ends[0]));
    ck_assert_uint_eq(fx_live(), 0);
    fx_run();
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0);
}
END_TEST

START_TEST(descriptors_that_are_not_open_are_refused)
{
    static const int bad[] = {-1, 1000000};

    for (int i = 0; i < 2; i++) {
        culvert_future *f = culvert_readable(fx.loop, bad[i]);
        ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
        ck_assert_str_eq(culvert_get_error(f)->op, "culvert_readable");
        ck_assert_ptr_nonnull(strstr(culvert_get_error(f)->where, "test_io.c:"));
        culvert_unref(f);
        f = culvert_writable(fx.loop, bad[i]);
        ck_assert_int_eq(culvert_status(f), CULVERT_EINVAL);
        ck_assert_str_eq(culvert_get_error(f)->op, "culvert_writable");
        culvert_unref(f);
    }
}
END_TEST

START_TEST(files_of_a_disk_are_always_readable)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    culvert_future *f = culvert_readable(fx.loop, fd);

    ck_assert_int_eq(culvert_await(f, 100.0), CULVERT_OK);
    culvert_unref(f);
    close(fd);
}
END_TEST

START_TEST(rule_16_loop_free_settles_them)
{
    outcome o = {0};

    ck_assert_int_eq(culvert_on_settled(culvert_readable(fx.loop, ends[0]), fx_keep, &o, NULL),
                     CULVERT_OK);
    culvert_loop_free(fx.loop);
    fx.loop = NULL;
    ck_assert_int_eq(o.calls, 1);
    ck_assert_int_eq(o.status, CULVERT_ESHUTDOWN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io");
    TCase *tc = tcase_create("descriptors");

    tcase_add_checked_fixture(tc, setup, teardown);
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, readable_when_data_is_there);
    tcase_add_test(tc, readable_at_end_of_file);
    tcase_add_test(tc, writable_when_there_is_room);
    tcase_add_test(tc, several_futures_of_one_descriptor);
    tcase_add_test(tc, cancelled_and_dropped_leave_no_watcher);
    tcase_add_test(tc, descriptors_that_are_not_open_are_refused);
    tcase_add_test(tc, files_of_a_disk_are_always_readable);
    tcase_add_test(tc, rule_16_loop_free_settles_them);
    return test_main((Suite *[]){suite, NULL});
}
