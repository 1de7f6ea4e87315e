/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening drivers by path: every way of failing has its own message and holds nothing, another try is
 * possible, and the functions are those of the right version.
 */
#define _GNU_SOURCE
#include "driver/table.h"
#include "lib/check_main.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const culvert__driver *must_open(const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    const culvert__driver *driver = culvert__driver_open(name, &err);
    ck_assert_msg(driver != NULL, "%s: %s", name, err.message);
    return driver;
}

static culvert_error must_fail(const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert__driver_open(name, &err));
    ck_assert_int_lt(err.code, 0);
    return err;
}

static bool is_mapped(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL)
        dlclose(library);
    return library != NULL;
}

typedef struct failure {
    const char *file; /* in FAKES */
    int code, native;
    bool stays; /* mapped, since cuInit was called */
    const char *says[4];
} failure;

static const failure failures[] = {
    {"absent.so", CULVERT_ENODRIVER, 0, false, {"absent.so", "No such file"}},
    {"stub.so", CULVERT_ENODRIVER, 34, false, {"stub.so", "stub", "CUDA_ERROR_STUB_LIBRARY (34)"}},
    {"late_stub.so", CULVERT_ENODRIVER, 34, true, {"late_stub.so", "stub", "install the NVIDIA"}},
    {"old.so", CULVERT_ENODRIVER, 0, false, {"11.8", "too old", "12.0 or newer", "update"}},
    {"old_with_get.so", CULVERT_ENODRIVER, 0, false, {"11.8", "too old", "12.0 or newer"}},
    {"no_get.so", CULVERT_ENODRIVER, 0, false, {"13.0", "cuGetProcAddress_v2"}},
    {"no_version.so", CULVERT_ENODRIVER, 0, false, {"not a CUDA driver", "cuDriverGetVersion"}},
    {"lacks_one.so", CULVERT_ENODRIVER, 0, false, {"13.0", "lacks cuStreamQuery:"}},
    {"lacks_all.so", CULVERT_ENODRIVER, 0, false, {"lacks cuInit, cuDriverGetVersion", " more"}},
    {"no_device.so", CULVERT_ENODEVICE, 0, true, {"no device", "count 0", "13.0"}},
    {"count_999.so", CULVERT_ENODRIVER, 999, true, {"cuDeviceGetCount", "999"}},
    {"init_2.so", CULVERT_ENOMEM, 2, true, {"cuInit", "(2)", "memory"}},
    {"init_3.so", CULVERT_ENODRIVER, 3, true, {"cuInit", "(3)", "fork", "kernel module"}},
    {"init_100.so", CULVERT_ENODEVICE, 100, true, {"cuInit", "(100)", "no GPU", "nvidia-smi"}},
    {"init_802.so", CULVERT_ENODRIVER, 802, true, {"(802)", "fabricmanager", "13.0"}},
    {"init_803.so", CULVERT_ENODRIVER, 803, true, {"(803)", "kernel module differ", "13.0"}},
    {"init_804.so", CULVERT_ENODRIVER, 804, true, {"(804)", "cuda-compat", "13.0"}},
    {"init_805.so", CULVERT_ENODRIVER, 805, true, {"(805)", "MPS", "13.0"}},
    {"init_999.so", CULVERT_ENODRIVER, 999, true, {"cuInit", "(999)", "nvidia-modprobe", "13.0"}},
};
enum { FAILURES = sizeof failures / sizeof failures[0] };

static void path_of(const char *file, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", FAKES, file);
}

START_TEST(case_105_each_way_to_fail_says_what_is_wrong_and_holds_nothing)
{
    const failure *f = &failures[_i];
    char path[4096];
    path_of(f->file, path, sizeof path);
    for (int attempt = 0; attempt < 3; attempt++) {
        culvert_error err = must_fail(path);
        ck_assert_msg(err.code == f->code && err.native == f->native, "%s: %d %d: %s", f->file,
                      err.code, err.native, err.message);
        ck_assert_ptr_nonnull(err.op);
        for (size_t i = 0; i < 4 && f->says[i] != NULL; i++)
            ck_assert_msg(strstr(err.message, f->says[i]) != NULL, "%s: no '%s' in: %s", f->file,
                          f->says[i], err.message);
        ck_assert_int_eq(is_mapped(path), f->stays);
    }
    ck_assert_ptr_null(culvert__driver_open(path, NULL));
}
END_TEST

START_TEST(case_105_no_two_ways_to_fail_read_alike)
{
    static char messages[FAILURES][CULVERT_ERROR_MESSAGE_SIZE];
    for (int i = 0; i < FAILURES; i++) {
        char path[4096];
        path_of(failures[i].file, path, sizeof path);
        memcpy(messages[i], must_fail(path).message, sizeof messages[i]);
        for (int k = 0; k < i; k++) {
            /* Two stubs are one case, and so are two old drivers. */
            bool twins = (failures[i].native == 34 && failures[k].native == 34) ||
                         (strstr(messages[i], "too old") && strstr(messages[k], "too old"));
            ck_assert_msg(twins || strncmp(messages[i], messages[k], 60) != 0, "%s\n%s",
                          messages[i], messages[k]);
        }
    }
}
END_TEST

START_TEST(case_105_one_call_starts_the_driver_once)
{
    must_fail(FAKES "/init_802.so");
    void *library = dlopen(FAKES "/init_802.so", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    int (*calls)(void);
    void *address = dlsym(library, "fake_init_calls");
    memcpy(&calls, &address, sizeof address);
    int before = calls();
    must_fail(FAKES "/init_802.so");
    ck_assert_int_eq(calls(), before + 1);
    dlclose(library);
}
END_TEST

START_TEST(case_105_a_later_try_may_succeed)
{
    const char *path = FAKES "/again.so";
    setenv("FAKE_INIT_NOW", "802", 1);
    ck_assert_int_eq(must_fail(path).native, 802);
    setenv("FAKE_INIT_NOW", "999", 1);
    ck_assert_int_eq(must_fail(path).native, 999);
    unsetenv("FAKE_INIT_NOW");
    const culvert__driver *driver = must_open(path);

    /* From now on it is open for good: the driver is not asked again. */
    setenv("FAKE_INIT_NOW", "999", 1);
    ck_assert_ptr_eq(must_open(path), driver);
    unsetenv("FAKE_INIT_NOW");
}
END_TEST

#ifdef CUDA_STUB
START_TEST(case_102_the_toolkits_own_stub_is_recognised)
{
    culvert_error err = must_fail(CUDA_STUB);
    ck_assert_int_eq(err.code, CULVERT_ENODRIVER);
    ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_STUB_LIBRARY);
    ck_assert_ptr_nonnull(strstr(err.message, "is the CUDA Toolkit's stub"));
}
END_TEST
#endif

START_TEST(a_table_has_names_and_version)
{
    const culvert__driver *driver = must_open(FAKES "/good.so");
    ck_assert_str_eq(driver->name, FAKES "/good.so");
    ck_assert_str_eq(driver->path, FAKES "/good.so");
    ck_assert_str_eq(driver->file, "good.so");
    ck_assert_int_eq(driver->version, 13000);
    ck_assert_int_eq(driver->simulated, 0);
    ck_assert_ptr_nonnull(driver->library);
    ck_assert_int_eq(culvert__driver_was_opened(), 1);
#define X(name, abi, ask, need, symbol) ck_assert_msg(driver->name != NULL, #name);
#include "driver/driver.def"
}
END_TEST

START_TEST(what_exports_the_simulators_version_is_a_simulator)
{
    ck_assert_int_eq(must_open(FAKES "/simulator.so")->simulated, 1);
}
END_TEST

#define ABSENT_R(name) ck_assert_msg(driver->name != NULL, #name)
/* Of the optional ones a driver of 12.0 has those that came before it. */
#define ABSENT_O(name, ask) ck_assert_msg((driver->name != NULL) == ((ask) <= 12000), #name)

START_TEST(optional_functions_are_null_where_the_driver_is_older)
{
    const culvert__driver *driver = must_open(FAKES "/oldest.so");
    ck_assert_int_eq(driver->version, 12000);
    bool some = false;
#define X(name, abi, ask, need, symbol) \
    if (#need[0] == 'R')                \
        ABSENT_R(name);                 \
    else                                \
        ABSENT_O(name, ask);            \
    some |= driver->name == NULL;
#include "driver/driver.def"
    ck_assert_msg(some, "nothing was absent");
}
END_TEST

/* The address that the fake driver exports under a name, or NULL. */
static void *exported(const culvert__driver *driver, const char *symbol)
{
    return dlsym(driver->library, symbol);
}

START_TEST(case_101_functions_are_of_the_version_that_they_are_declared_in)
{
    const culvert__driver *driver = must_open(FAKES "/other.so");
    void *address;
    int different = 0;
    /* Of those with more than one ABI, only ours is not one that aborts: the fake driver exports the
       plain name of these as an old one. */
#define X(name, abi, ask, need, symbol)                                                  \
    memcpy(&address, &driver->name, sizeof address);                                     \
    if (strcmp(#name, #symbol) != 0) {                                                   \
        ck_assert_msg(exported(driver, #name) != NULL, "the fake lacks the old " #name); \
        ck_assert_msg(address != exported(driver, #name), #name " is the old one");      \
        different++;                                                                     \
    }
#include "driver/driver.def"
    ck_assert_int_ge(different, 20);
    static const char *const newer[] = {"cuCtxGetDevice_v2", "cuStreamGetCtx_v2",
                                        "cuStreamGetCaptureInfo_v3", "cuEventElapsedTime_v2",
                                        "cuMemcpyBatchAsync_v2"};
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++) {
        void *wrong = exported(driver, newer[i]);
        ck_assert_ptr_nonnull(wrong);
#define X(name, abi, ask, need, symbol)              \
    memcpy(&address, &driver->name, sizeof address); \
    ck_assert_msg(address != wrong, #name " is a newer one");
#include "driver/driver.def"
    }
}
END_TEST

START_TEST(case_101_calling_them_reaches_the_right_ones)
{
    const culvert__driver *driver = must_open(FAKES "/other.so");
    culvert__CUdeviceptr address = 0;
    ck_assert_int_eq(driver->cuMemAlloc(&address, 4096), 0);
    ck_assert_msg(address == 0x700000001000ULL, "%llx", address);
    ck_assert_int_eq(driver->cuMemFree(address), 0);
    culvert__CUcontext ctx;
    ck_assert_int_eq(driver->cuCtxPushCurrent(NULL), 0);
    ck_assert_int_eq(driver->cuCtxPopCurrent(&ctx), 0);
    ck_assert_int_eq(driver->cuStreamDestroy(NULL), 0);
    ck_assert_int_eq(driver->cuEventDestroy(NULL), 0);
}
END_TEST

/* What the fake driver gave as its cuInit's answer, with the variable as the user has set it. */
static culvert_error open_with_devices(const char *value)
{
    setenv("CUDA_VISIBLE_DEVICES", value, 1);
    culvert_error err = must_fail(FAKES "/visible.so");
    ck_assert_str_eq(getenv("CUDA_VISIBLE_DEVICES"), value);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return err;
}

START_TEST(case_103_no_visible_device_is_an_error_with_the_variable_in_it)
{
    static const char *const values[] = {"", "-1", "99", "garbage"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        culvert_error err = open_with_devices(values[i]);
        ck_assert_int_eq(err.code, CULVERT_ENODEVICE);
        ck_assert_int_eq(err.native, CULVERT__CUDA_ERROR_NO_DEVICE);
        char quoted[80];
        snprintf(quoted, sizeof quoted, "CUDA_VISIBLE_DEVICES is \"%s\"", values[i]);
        ck_assert_msg(strstr(err.message, quoted) != NULL, "%s", err.message);
    }
    ck_assert_ptr_null(strstr(must_fail(FAKES "/init_100.so").message, "CUDA_VISIBLE_DEVICES"));
}
END_TEST

START_TEST(case_103_a_long_value_does_not_push_the_rest_out)
{
    char value[2000];
    memset(value, '7', sizeof value);
    value[sizeof value - 1] = '\0';
    culvert_error err = open_with_devices(value);
    ck_assert_msg(strstr(err.message, "driver 13.0") != NULL, "%s", err.message);
}
END_TEST

START_TEST(case_104_the_name_of_a_mig_is_left_to_the_driver)
{
    const char *mig = "MIG-377e5ed0-1c5d-5b2b-8a5c-6c9e7f6b1d2a";
    setenv("CUDA_VISIBLE_DEVICES", mig, 1);
    const culvert__driver *driver = must_open(FAKES "/visible_mig.so");
    int count = 0;
    ck_assert_int_eq(driver->cuDeviceGetCount(&count), 0);
    ck_assert_int_eq(count, 2);
    const char *(*seen)(void);
    void *address = dlsym(driver->library, "fake_visible_devices");
    memcpy(&seen, &address, sizeof address);
    ck_assert_str_eq(seen(), mig);
    unsetenv("CUDA_VISIBLE_DEVICES");
}
END_TEST

START_TEST(an_unknown_name_is_refused_with_the_names_there_are)
{
    static const char *const names[] = {"nvidia", "CUDA", "simulator", "libcuda.so.1", "sim "};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        culvert_error err = must_fail(names[i]);
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
        ck_assert_ptr_nonnull(strstr(err.message, names[i]));
        ck_assert_ptr_nonnull(strstr(err.message, "cuda, sim, auto"));
        ck_assert_ptr_nonnull(strstr(err.message, "path"));
    }
}
END_TEST

START_TEST(without_a_name_the_environment_says_which)
{
    const culvert__driver *driver = must_open(FAKES "/good.so");
    setenv("CULVERT_DRIVER", FAKES "/good.so", 1);
    ck_assert_ptr_eq(must_open(NULL), driver);
    ck_assert_ptr_eq(must_open(""), driver);
    setenv("CULVERT_DRIVER", "no such", 1);
    ck_assert_int_eq(must_fail(NULL).code, CULVERT_EINVAL);
    ck_assert_ptr_eq(must_open(FAKES "/good.so"), driver);
    unsetenv("CULVERT_DRIVER");
}
END_TEST

START_TEST(one_file_by_two_names_is_one_driver)
{
    const culvert__driver *driver = must_open(FAKES "/twin.so");
    ck_assert_ptr_eq(must_open(FAKES "/./twin.so"), driver);
    ck_assert_str_eq(driver->file, "twin.so");
    ck_assert_ptr_eq(must_open(FAKES "/both/../twin.so"), driver);

    const char *link_name = FAKES "/twin_link.so";
    unlink(link_name);
    ck_assert_int_eq(symlink("twin.so", link_name), 0);
    ck_assert_ptr_eq(must_open(link_name), driver);
    unlink(link_name);
    ck_assert_ptr_ne(must_open(FAKES "/good.so"), driver);
}
END_TEST

int main(void)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    Suite *suite = suite_create("driver loader");
    TCase *tcase = tcase_create("loader");
    tcase_add_loop_test(tcase, case_105_each_way_to_fail_says_what_is_wrong_and_holds_nothing, 0,
                        FAILURES);
    tcase_add_test(tcase, case_105_no_two_ways_to_fail_read_alike);
    tcase_add_test(tcase, case_105_one_call_starts_the_driver_once);
    tcase_add_test(tcase, case_105_a_later_try_may_succeed);
#ifdef CUDA_STUB
    tcase_add_test(tcase, case_102_the_toolkits_own_stub_is_recognised);
#endif
    tcase_add_test(tcase, a_table_has_names_and_version);
    tcase_add_test(tcase, what_exports_the_simulators_version_is_a_simulator);
    tcase_add_test(tcase, optional_functions_are_null_where_the_driver_is_older);
    tcase_add_test(tcase, case_101_functions_are_of_the_version_that_they_are_declared_in);
    tcase_add_test(tcase, case_101_calling_them_reaches_the_right_ones);
    tcase_add_test(tcase, case_103_no_visible_device_is_an_error_with_the_variable_in_it);
    tcase_add_test(tcase, case_103_a_long_value_does_not_push_the_rest_out);
    tcase_add_test(tcase, case_104_the_name_of_a_mig_is_left_to_the_driver);
    tcase_add_test(tcase, an_unknown_name_is_refused_with_the_names_there_are);
    tcase_add_test(tcase, without_a_name_the_environment_says_which);
    tcase_add_test(tcase, one_file_by_two_names_is_one_driver);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
