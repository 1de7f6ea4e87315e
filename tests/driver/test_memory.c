/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening a driver with too little memory.
 */
#include "driver/table.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

START_TEST(out_of_memory_at_every_allocation_of_an_open)
{
    const char *path = FAKES "/oom.so";
    int64_t live = alloc_fail_live();
    uint64_t failed = 0;
    for (;; failed++) {
        culvert_error err = CULVERT_ERROR_INIT;
        alloc_fail_nth(failed + 1);
        const culvert__driver *driver = culvert__driver_open(path, &err);
        bool happened = alloc_fail_happened();
        alloc_fail_off();
        if (!happened) {
            ck_assert_ptr_nonnull(driver);
            break;
        }
        ck_assert_ptr_null(driver);
        ck_assert_int_eq(err.code, CULVERT_ENOMEM);
        ck_assert_int_eq(culvert__driver_was_opened(), 0);
        ck_assert_int_eq(alloc_fail_live(), live);
    }
    ck_assert_uint_ge(failed, 2);
    ck_assert_int_eq(alloc_fail_live(), live + (int64_t)failed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_test(tcase, out_of_memory_at_every_allocation_of_an_open);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
