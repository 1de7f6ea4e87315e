/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator as a driver: it loads, it is complete, and it names its results as the table does.
 * The program is not linked with it.
 */
#include "driver/table.h"
#include "lib/check_main.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

static const culvert__driver *simulator(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert__driver *driver = culvert__driver_open(SIMULATOR, &err);
    ck_assert_msg(driver != NULL, "%s", err.message);
    return driver;
}

START_TEST(the_simulator_has_every_function)
{
    const culvert__driver *driver = simulator();
    ck_assert_int_eq(driver->simulated, 1);
    ck_assert_int_ge(driver->version, CULVERT__DRIVER_OLDEST);
    ck_assert_str_eq(driver->file, "libculvert-sim.so.0");
#define X(name, abi, ask, need, symbol) ck_assert_msg(driver->name != NULL, #name);
#include "driver/driver.def"
}
END_TEST

START_TEST(its_functions_are_those_that_it_exports)
{
    const culvert__driver *driver = simulator();
    void *exported, *taken;
#define X(name, abi, ask, need, symbol)          \
    exported = dlsym(driver->library, #symbol);  \
    memcpy(&taken, &driver->name, sizeof taken); \
    ck_assert_msg(exported == taken, #name " is not " #symbol);
#include "driver/driver.def"
}
END_TEST

START_TEST(once_loaded_it_is_sim)
{
    const culvert__driver *driver = simulator();
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert__driver *sim = culvert__driver_open("sim", &err);
    ck_assert_msg(sim == driver, "%s", err.message);
}
END_TEST

START_TEST(its_names_of_results_are_the_tables)
{
    const culvert__driver *driver = simulator();
    const char *said = NULL;
#define X(code, name, class_, text)                                                 \
    ck_assert_int_eq(driver->cuGetErrorName(code, &said), CULVERT__CUDA_SUCCESS);   \
    ck_assert_str_eq(said, #name);                                                  \
    ck_assert_int_eq(driver->cuGetErrorString(code, &said), CULVERT__CUDA_SUCCESS); \
    ck_assert_str_eq(said, text);
#include "driver/errors.def"
    ck_assert_int_eq(driver->cuGetErrorName(12345, &said), CULVERT__CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(it_has_a_device)
{
    const culvert__driver *driver = simulator();
    int count = 0;
    ck_assert_int_eq(driver->cuDeviceGetCount(&count), CULVERT__CUDA_SUCCESS);
    ck_assert_int_ge(count, 1);
    culvert__CUdevice device;
    char name[100] = "";
    ck_assert_int_eq(driver->cuDeviceGet(&device, 0), CULVERT__CUDA_SUCCESS);
    ck_assert_int_eq(driver->cuDeviceGetName(name, sizeof name, device), CULVERT__CUDA_SUCCESS);
    ck_assert_uint_gt(strlen(name), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver simulator");
    TCase *tcase = tcase_create("simulator");
    tcase_add_test(tcase, the_simulator_has_every_function);
    tcase_add_test(tcase, its_functions_are_those_that_it_exports);
    tcase_add_test(tcase, once_loaded_it_is_sim);
    tcase_add_test(tcase, its_names_of_results_are_the_tables);
    tcase_add_test(tcase, it_has_a_device);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
