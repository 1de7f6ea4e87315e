/* SPDX-License-Identifier: BSD-2-Clause */
/* Images that are not what they should be: what is told of them. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/rig.h"
#include "lib/check_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what an image has ---- */

/* As nvcc makes it: kind, size of the entry's header, size of what is in it, PTX version, architecture. */
static size_t entry(unsigned char *to, unsigned kind, unsigned bytes, unsigned major, unsigned arch)
{
    memset(to, 0, 64 + bytes);
    to[0] = (unsigned char)kind;
    to[4] = 64;
    to[8] = (unsigned char)bytes;
    to[26] = (unsigned char)major;
    to[28] = (unsigned char)arch;
    return 64 + bytes;
}

static size_t fatbin(unsigned char *to)
{
    static const unsigned char begin[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    size_t n = sizeof begin;
    memcpy(to, begin, sizeof begin);
    n += entry(to + n, 2, 40, 1, 75);
    n += entry(to + n, 1, 24, 8, 80);
    n += entry(to + n, 2, 16, 1, 120);
    to[8] = (unsigned char)(n - sizeof begin);
    to[9] = (unsigned char)((n - sizeof begin) >> 8);
    return n;
}

static const char *contents(const void *bytes, size_t n)
{
    static char text[80];
    const culvert_image image = {sizeof image, "image", bytes, n, NULL};
    culvert__image_contents(&image, text, sizeof text);
    return text;
}

START_TEST(what_an_image_has_code_for_is_read)
{
    unsigned char bytes[512];
    size_t n = fatbin(bytes);
    ck_assert_str_eq(contents(bytes, n), "machine code for 7.5 12.0, PTX 8.0 for 8.0");
    ck_assert_str_eq(contents(".version 8.3\n.target sm_90a\n", 29), "PTX 8.3 for 9.0");
    ck_assert_str_eq(contents("text", 5), "");
    ck_assert_str_eq(contents("\177ELF", 5), "");
    ck_assert_str_eq(contents(NULL, 0), "");
}
END_TEST

/* Nothing behind the end is read (ASan), whatever is in it, and nothing goes on for ever. */
START_TEST(a_damaged_image_is_read_within_its_bounds)
{
    unsigned char bytes[512];
    size_t n = fatbin(bytes);
    for (size_t i = 0; i < n; i++) {
        unsigned char *part = malloc(i + 1);
        memcpy(part, bytes, i);
        (void)contents(part, i);
        free(part);
    }
    for (size_t i = 0; i < n; i++) {
        for (unsigned value = 0; value < 256; value += 51) {
            unsigned char *copy = malloc(n);
            memcpy(copy, bytes, n);
            copy[i] = (unsigned char)value;
            ck_assert_uint_lt(strlen(contents(copy, n)), 80);
            free(copy);
        }
    }
}
END_TEST

static culvert_error checked(const void *bytes, size_t n, bool good)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert_image image = {sizeof image, "some", bytes, n, NULL};
    ck_assert_int_eq(culvert__image_check(&image, false, "op", "place", &err), good);
    if (!good) {
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
        ck_assert_str_eq(err.where, "place");
        rig_says(&err, "image some");
    }
    return err;
}

/* A driver reads as far as the header says. */
START_TEST(what_is_cut_off_does_not_reach_the_driver)
{
    unsigned char bytes[512];
    char says[80];
    size_t n = fatbin(bytes);
    checked(bytes, n, true);
    culvert_error err = checked(bytes, n - 1, false);
    snprintf(says, sizeof says, "it has %zu bytes, and its header says that there are %zu", n - 1,
             n);
    rig_says(&err, says);
    checked(bytes, 16, false);
    checked(".version 8.0\n", 14, true);
    err = checked(".version 8.0\n", 13, false);
    rig_says(&err, "no zero byte at its end");
}
END_TEST

/* ---- what the driver says ---- */

static rig r;
static char logged[2048];

static void keep_log(int level, const char *message, void *arg)
{
    (void)arg;
    if (level == CULVERT_LOG_ERROR)
        snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", message);
}

static void set_up(void)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    rig_fresh();
    rig_open_loop(&r);
    culvert_loop_free(r.loop);
    options.on_log = keep_log;
    r.loop = culvert_loop_new(r.ev, &options, NULL);
    r.gpu = culvert_gpu_open(r.loop, 0, NULL, NULL);
    r.stream = culvert_stream_new(r.gpu, NULL, NULL);
    ck_assert_ptr_nonnull(r.stream);
    logged[0] = '\0';
}

static void tear_down(void)
{
    rig_close(&r);
}

/* Refused with versions, and then the device works as before. */
static culvert_error refused(const char *ptx)
{
    const culvert_image image = {sizeof image, "bad", ptx, strlen(ptx) + 1, ptx};
    culvert_error err = rig_settle_error(culvert_module_load(r.gpu, &image), CULVERT_ENOTSUP);
    rig_says(&err, "image bad: cuModuleLoadDataEx: CUDA_ERROR_");
    rig_says(&err, "; compute capability ");
    rig_says(&err, ", driver ");
    rig_says(&err, ", toolkit ");
    rig_settle_ok(culvert_stream_done(r.stream));
    return err;
}

START_TEST(case_106_newer_ptx)
{
    culvert_error err = refused(".version 99.9\n.target sm_70\n.address_size 64\n");
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    rig_says(&err, "its PTX is newer than the driver");
    ck_assert_msg(strstr(logged, "99.9") != NULL, "%s", logged);
}
END_TEST

START_TEST(a_failure_of_the_compiler_is_told_with_its_log)
{
    culvert_error err = refused(".version 8.0\n.target sm_70\n.address_size 64\nnonsense\n");
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_INVALID_PTX);
    rig_says(&err, "its PTX does not compile");
    ck_assert_msg(strstr(logged, "image bad: ptxas") != NULL, "%s", logged);
    ck_assert_msg(strstr(logged, "nonsense") != NULL, "%s", logged);
    ck_assert_msg(strstr(logged, "line 4") != NULL, "%s", logged);
}
END_TEST

START_TEST(code_for_another_architecture)
{
    culvert_gpu_description d = {.struct_size = sizeof d};
    char ptx[96];
    ck_assert_int_eq(culvert_gpu_info(r.gpu, &d), CULVERT_OK);
    if (d.compute_major >= 12)
        return;
    snprintf(ptx, sizeof ptx, ".version 8.7\n.target sm_120\n.address_size 64\n");
    (void)refused(ptx);
}
END_TEST

static Suite *image_suite(void)
{
    Suite *suite = suite_create("image");
    TCase *bytes = tcase_create("bytes");
    tcase_add_test(bytes, what_an_image_has_code_for_is_read);
    tcase_add_test(bytes, a_damaged_image_is_read_within_its_bounds);
    tcase_add_test(bytes, what_is_cut_off_does_not_reach_the_driver);
    suite_add_tcase(suite, bytes);
    TCase *any = tcase_create("any driver");
    tcase_add_checked_fixture(any, set_up, tear_down);
    tcase_add_test(any, case_106_newer_ptx);
    tcase_add_test(any, a_failure_of_the_compiler_is_told_with_its_log);
    tcase_add_test(any, code_for_another_architecture);
    suite_add_tcase(suite, any);
    return suite;
}

int main(void)
{
    Suite *suites[] = {image_suite(), NULL};
    return test_main(suites);
}
