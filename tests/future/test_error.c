/* SPDX-License-Identifier: BSD-2-Clause */
/* Errors as values. */
#include "culvert/error.h"
#include "future/future_internal.h"
#include "lib/check_main.h"

#include <math.h>
#include <string.h>

START_TEST(every_code_has_a_name_a_text_and_a_class)
{
#define ROW(name, value, class_, text)                                    \
    ck_assert_int_eq(CULVERT_##name, value);                              \
    ck_assert_str_eq(culvert_error_name(value), "CULVERT_" #name);        \
    ck_assert_str_eq(culvert_error_text(value), text);                    \
    ck_assert_int_eq(culvert_error_class(value), CULVERT_CLASS_##class_); \
    ck_assert_int_eq(culvert__static_error(value)->code, value);
    CULVERT_ERRORS(ROW)
#undef ROW
    ck_assert_str_eq(culvert_error_name(CULVERT_OK), "CULVERT_OK");
    ck_assert_str_eq(culvert_error_name(CULVERT_PENDING), "CULVERT_PENDING");
    ck_assert_str_eq(culvert_error_name(-9999), "CULVERT_E?");
    ck_assert_int_eq(culvert_error_class(CULVERT_OK), CULVERT_CLASS_NONE);
    ck_assert_int_eq(culvert_error_class(CULVERT_PENDING), CULVERT_CLASS_NONE);
    ck_assert_int_eq(culvert_error_class(-9999), CULVERT_CLASS_SYSTEM);
    ck_assert_str_eq(culvert_error_text(-9999), "unknown error");
}
END_TEST

START_TEST(set_fills_the_whole_error)
{
    culvert_error err;

    memset(&err, 0x55, sizeof err);
    culvert_error_set(&err, CULVERT_EUSER, 42, "%s has %d", "it", 7);
    ck_assert_int_eq(err.code, CULVERT_EUSER);
    ck_assert_int_eq(err.native, 42);
    ck_assert_str_eq(err.message, "it has 7");
    ck_assert_ptr_null(err.op);
    ck_assert_ptr_null(err.where);
    culvert_error_set(NULL, CULVERT_EUSER, 42, "nowhere");
}
END_TEST

/* A message that does not fit ends before a character, not inside it. */
START_TEST(long_message_is_cut_between_characters)
{
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80"};

    for (size_t shift = 0; shift < 4; shift++) {
        for (size_t i = 0; i < 4; i++) {
            char text[600] = "";
            const size_t size = strlen(characters[i]);
            culvert_error err;

            memset(text, 'a', shift);
            while (strlen(text) < 500)
                strcat(text, characters[i]);
            culvert_error_set(&err, CULVERT_EUSER, 0, "%s", text);
            const size_t length = strlen(err.message);
            ck_assert_uint_eq((length - shift) % size, 0);
            ck_assert_uint_gt(length, CULVERT_ERROR_MESSAGE_SIZE - 1 - size);
            ck_assert_uint_lt(length, CULVERT_ERROR_MESSAGE_SIZE);
            ck_assert_mem_eq(err.message, text, length);
        }
    }
}
END_TEST

START_TEST(format_says_all_of_it)
{
    culvert_error err = {CULVERT_EINVAL, 0, NULL, NULL, "too big"};
    char line[256];

    culvert_error_format(&err, line, sizeof line);
    ck_assert_str_eq(line, "CULVERT_EINVAL: too big");
    err.op = "culvert_x";
    err.where = "a.c:3";
    err.native = 700;
    culvert_error_format(&err, line, sizeof line);
    ck_assert_str_eq(line, "CULVERT_EINVAL in culvert_x at a.c:3: too big (native 700)");
    err.message[0] = '\0';
    err.native = 0;
    culvert_error_format(&err, line, sizeof line);
    ck_assert_str_eq(line, "CULVERT_EINVAL in culvert_x at a.c:3: invalid argument");
    ck_assert_uint_eq(culvert_error_format(NULL, line, sizeof line), strlen("no error"));
    ck_assert_str_eq(line, "no error");
}
END_TEST

START_TEST(format_counts_what_it_cuts)
{
    const culvert_error err = {CULVERT_EINVAL, 0, NULL, NULL, "too big"};
    char line[8] = "1234567";

    ck_assert_uint_eq(culvert_error_format(&err, NULL, 0), strlen("CULVERT_EINVAL: too big"));
    ck_assert_uint_eq(culvert_error_format(&err, line, 5), strlen("CULVERT_EINVAL: too big"));
    ck_assert_str_eq(line, "CULV");
}
END_TEST

START_TEST(seconds_are_not_negative_and_a_number)
{
    culvert_error err = CULVERT_ERROR_INIT;

    ck_assert(culvert__seconds_ok(0.0, "f", "w", &err));
    ck_assert(culvert__seconds_ok(-0.0, "f", "w", &err));
    ck_assert(culvert__seconds_ok(INFINITY, "f", "w", &err));
    ck_assert_int_eq(err.code, CULVERT_OK);
    ck_assert(!culvert__seconds_ok(-1.0, "f", "w", &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_str_eq(err.op, "f");
    ck_assert_str_eq(err.where, "w");
    ck_assert_ptr_nonnull(strstr(err.message, "-1"));
    ck_assert(!culvert__seconds_ok(NAN, "f", "w", NULL));
    ck_assert(!culvert__seconds_ok(-INFINITY, "f", "w", NULL));
}
END_TEST

START_TEST(version_is_that_of_the_header)
{
    ck_assert_int_eq(culvert_version(), CULVERT_VERSION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tc = tcase_create("values");

    tcase_add_test(tc, every_code_has_a_name_a_text_and_a_class);
    tcase_add_test(tc, set_fills_the_whole_error);
    tcase_add_test(tc, long_message_is_cut_between_characters);
    tcase_add_test(tc, format_says_all_of_it);
    tcase_add_test(tc, format_counts_what_it_cuts);
    tcase_add_test(tc, seconds_are_not_negative_and_a_number);
    tcase_add_test(tc, version_is_that_of_the_header);
    suite_add_tcase(suite, tc);
    return test_main((Suite *[]){suite, NULL});
}
