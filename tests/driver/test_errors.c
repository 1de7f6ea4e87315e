/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the results of the driver mean: names, texts, classes, and errors made of them.
 */
#include "driver/table.h"
#include "lib/check_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const int lost[] = {226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
static const int own[] = {1,   200, 201, 209, 218, 222, 400, 401, 701, 703, 720, 801, 900,
                          901, 902, 903, 904, 905, 906, 907, 908, 910, 912, 913, 914, 915};

static bool contains(const int *list, size_t n, int code)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == code)
            return true;
    return false;
}

static culvert__driver_class expected_class(int code)
{
    if (contains(lost, sizeof lost / sizeof lost[0], code))
        return CULVERT__DRIVER_LOST;
    if (contains(own, sizeof own / sizeof own[0], code))
        return CULVERT__DRIVER_OWN;
    switch (code) {
    case 0: return CULVERT__DRIVER_OK;
    case 2: return CULVERT__DRIVER_TRY_AGAIN;
    case 4: return CULVERT__DRIVER_SHUTDOWN;
    case 600: return CULVERT__DRIVER_NOT_READY;
    default: return CULVERT__DRIVER_UNLISTED;
    }
}

START_TEST(every_number_has_the_class_of_the_design)
{
    for (int code = -2; code < 1200; code++)
        ck_assert_msg(culvert__driver_classify(code) == expected_class(code), "%d is of class %d",
                      code, (int)culvert__driver_classify(code));
}
END_TEST

START_TEST(case_049_an_unlisted_answer_of_a_query_is_a_lost_device)
{
    for (int code = -2; code < 1200; code++) {
        culvert__driver_class want = expected_class(code);
        if (want == CULVERT__DRIVER_UNLISTED)
            want = CULVERT__DRIVER_LOST;
        ck_assert_msg(culvert__driver_classify_query(code) == want, "%d", code);
    }
    ck_assert_int_eq(culvert__driver_classify_query(600), CULVERT__DRIVER_NOT_READY);
    ck_assert_int_eq(culvert__driver_classify_query(700), CULVERT__DRIVER_LOST);
    ck_assert_int_eq(culvert__driver_classify_query(999), CULVERT__DRIVER_LOST);
    ck_assert_int_eq(culvert__driver_classify_query(4), CULVERT__DRIVER_SHUTDOWN);
}
END_TEST

START_TEST(names_and_texts_are_the_drivers)
{
    ck_assert_str_eq(culvert__driver_error_name(NULL, 0), "CUDA_SUCCESS");
    ck_assert_str_eq(culvert__driver_error_name(NULL, 700), "CUDA_ERROR_ILLEGAL_ADDRESS");
    ck_assert_str_eq(culvert__driver_error_text(NULL, 700),
                     "an illegal memory access was encountered");
    ck_assert_str_eq(culvert__driver_error_name(NULL, 12345), "CUDA_ERROR_?");
    ck_assert_str_eq(culvert__driver_error_text(NULL, 12345), "unknown to this library");
}
END_TEST

typedef struct listed {
    int code;
    const char *name, *text;
} listed;

START_TEST(listed_codes_are_sorted_and_complete)
{
    static const listed list[] = {
#define X(code, name, class_, text) {code, #name, text},
#include "driver/errors.def"
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ck_assert_str_eq(culvert__driver_error_name(NULL, list[i].code), list[i].name);
        ck_assert_uint_gt(strlen(list[i].text), 0);
        if (i > 0)
            ck_assert_int_lt(list[i - 1].code, list[i].code);
    }
}
END_TEST

static const culvert__driver *good(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert__driver *driver = culvert__driver_open(FAKES "/good.so", &err);
    ck_assert_msg(driver != NULL, "%s", err.message);
    return driver;
}

START_TEST(an_error_names_call_result_and_driver)
{
    culvert_error err;
    memset(&err, 0x5a, sizeof err);
    ck_assert_int_eq(culvert__driver_error(good(), 1, "cuLaunchKernel", &err), CULVERT_EDRIVER);
    ck_assert_int_eq(err.code, CULVERT_EDRIVER);
    ck_assert_int_eq(err.native, 1);
    ck_assert_str_eq(err.op, "cuLaunchKernel");
    ck_assert_ptr_null(err.where);
    ck_assert_str_eq(err.message, "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (1): invalid argument; "
                                  "driver 13.0 (good.so)");
    culvert__driver_error(NULL, 1, "cuInit", &err);
    ck_assert_str_eq(err.message, "cuInit: CUDA_ERROR_INVALID_VALUE (1): invalid argument");
}
END_TEST

START_TEST(a_code_newer_than_the_library_gets_the_drivers_words)
{
    culvert_error err;
    culvert__driver_error(good(), 777, "cuLaunchKernel", &err);
    ck_assert_str_eq(err.message, "cuLaunchKernel: CUDA_ERROR_OF_THE_FUTURE (777): something new; "
                                  "driver 13.0 (good.so)");
    culvert__driver_error(good(), 778, "cuLaunchKernel", &err);
    ck_assert_str_eq(err.message, "cuLaunchKernel: CUDA_ERROR_? (778): unknown to this library; "
                                  "driver 13.0 (good.so)");
}
END_TEST

START_TEST(success_is_no_error)
{
    culvert_error err;
    memset(&err, 0x5a, sizeof err);
    ck_assert_int_eq(culvert__driver_error(good(), 0, "cuInit", &err), CULVERT_OK);
    ck_assert_int_eq(err.code, CULVERT_OK);
    ck_assert_str_eq(err.message, "");
}
END_TEST

typedef struct mapping {
    int result;
    const char *call;
    int code;
} mapping;

static const mapping mappings[] = {
    {1, "cuLaunchKernel", CULVERT_EDRIVER},
    {2, "cuMemAlloc", CULVERT_ENOMEM},
    {3, "cuLaunchKernel", CULVERT_EDRIVER},
    {4, "cuLaunchKernel", CULVERT_ESHUTDOWN},
    {4, "cuEventQuery", CULVERT_ESHUTDOWN},
    {100, "cuDeviceGet", CULVERT_ENODEVICE},
    {101, "cuDeviceGet", CULVERT_ENODEVICE},
    {222, "cuModuleLoadDataEx", CULVERT_EDRIVER},
    {400, "cuEventQuery", CULVERT_EDRIVER},
    {500, "cuModuleGetFunction", CULVERT_EDRIVER},
    {600, "cuEventQuery", CULVERT_EDRIVER},
    {700, "cuEventQuery", CULVERT_EDEVICELOST},
    {700, "cuLaunchKernel", CULVERT_EDEVICELOST},
    {801, "cuStreamWaitValue32", CULVERT_ENOTSUP},
    {999, "cuLaunchKernel", CULVERT_EDRIVER},
    {999, "cuEventQuery", CULVERT_EDEVICELOST},
    {999, "cuStreamQuery", CULVERT_EDEVICELOST},
    {214, "cuStreamSynchronize", CULVERT_EDEVICELOST},
    {806, "cuEventSynchronize", CULVERT_EDEVICELOST},
};

START_TEST(codes_follow_the_classes)
{
    const mapping *m = &mappings[_i];
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_int_eq(culvert__driver_error(good(), m->result, m->call, &err), m->code);
    ck_assert_int_eq(err.code, m->code);
    ck_assert_int_eq(err.native, m->result);
    ck_assert_int_eq(culvert__driver_error(good(), m->result, m->call, NULL), m->code);
}
END_TEST

START_TEST(versions_are_written_as_people_write_them)
{
    culvert__version_text out;
    ck_assert_str_eq(culvert__driver_version_text(13000, &out), "13.0");
    ck_assert_str_eq(culvert__driver_version_text(12040, &out), "12.4");
    ck_assert_str_eq(culvert__driver_version_text(11080, &out), "11.8");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver errors");
    TCase *tcase = tcase_create("errors");
    tcase_add_test(tcase, every_number_has_the_class_of_the_design);
    tcase_add_test(tcase, case_049_an_unlisted_answer_of_a_query_is_a_lost_device);
    tcase_add_test(tcase, names_and_texts_are_the_drivers);
    tcase_add_test(tcase, listed_codes_are_sorted_and_complete);
    tcase_add_test(tcase, an_error_names_call_result_and_driver);
    tcase_add_test(tcase, a_code_newer_than_the_library_gets_the_drivers_words);
    tcase_add_test(tcase, success_is_no_error);
    tcase_add_loop_test(tcase, codes_follow_the_classes, 0,
                        (int)(sizeof mappings / sizeof mappings[0]));
    tcase_add_test(tcase, versions_are_written_as_people_write_them);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
