/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which library a name stands for. Each try is a process of its own, driver_probe, with a library path of
 * its own: LD_LIBRARY_PATH is read when a process starts.
 *
 * These run on machines with a GPU and on those without: where a test says that a folder has no
 * libcuda.so.1, the system may have one.
 */
#define _GNU_SOURCE
#include "driver/table.h"
#include "lib/check_main.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* What driver_probe wrote: stdout and stderr in the order they were written. */
typedef struct output {
    char text[8192];
    int status;
} output;

/* Runs FAKES/<probe> with `folders` (in FAKES) as the library path; `set` is more of the environment. */
static output run(const char *probe, const char *folder, const char *set, const char *arguments)
{
    char command[4096];
    int length = snprintf(command, sizeof command,
                          "unset CUDA_VISIBLE_DEVICES CULVERT_DRIVER; LD_LIBRARY_PATH=%s/%s %s "
                          "%s/%s %s 2>&1",
                          FAKES, folder, set, FAKES, probe, arguments);
    ck_assert_int_lt(length, (int)sizeof command);
    output out = {.status = -1};
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    out.text[fread(out.text, 1, sizeof out.text - 1, pipe)] = '\0';
    out.status = pclose(pipe);
    ck_assert_msg(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 0, "%s: status %x: %s",
                  command, (unsigned)out.status, out.text);
    return out;
}

static output run_alone(const char *folder, const char *arguments)
{
    return run("alone/driver_probe", folder, "", arguments);
}

static void says(const output *out, const char *text)
{
    ck_assert_msg(strstr(out->text, text) != NULL, "no '%s' in: %s", text, out->text);
}

static int count_of(const output *out, const char *text)
{
    int count = 0;
    for (const char *at = out->text; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

/* Whether the system has that library outside our folders. */
static bool system_has(const char *file)
{
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (library != NULL)
        dlclose(library);
    return library != NULL;
}

/* The dynamic linker finds an installed simulator before our folders are searched. */
static bool simulator_is_installed(void)
{
    return system("unset CULVERT_DRIVER; LD_LIBRARY_PATH= " FAKES "/alone/driver_probe sim 2>&1 | "
                  "grep -q '^ok'") == 0;
}

START_TEST(case_102_the_driver_is_taken_and_not_the_stub_beside_it)
{
    output out = run_alone("stub_and_real", "cuda");
    says(&out, "ok name=cuda version=13000 simulated=0 opened=1 path=");
    says(&out, "stub_and_real/libcuda.so.1\n");
}
END_TEST

START_TEST(case_102_no_libcuda_so_is_needed)
{
    output out = run_alone("only_real", "cuda");
    says(&out, "only_real/libcuda.so.1\n");
}
END_TEST

START_TEST(case_102_a_stub_alone_is_not_looked_at)
{
    output out = run_alone("only_stub", "cuda");
    ck_assert_int_eq(count_of(&out, "stub"), 0);
    if (system_has("libcuda.so.1"))
        return;
    says(
        &out,
        "error code=-12 native=0 opened=0 message=no CUDA driver here: libcuda.so.1 was not found");
    says(&out, "install the NVIDIA driver");
    says(&out, "CULVERT_DRIVER=sim");
}
END_TEST

START_TEST(case_102_a_stub_in_the_drivers_place_is_named)
{
    output out = run_alone("stub_as_real", "cuda");
    says(&out, "error code=-12 native=34 opened=0 message=");
    says(&out, "stub_as_real/libcuda.so.1 is the CUDA Toolkit's stub");
}
END_TEST

START_TEST(a_driver_that_does_not_load_is_not_called_absent)
{
    output out = run_alone("broken", "cuda");
    says(&out, "error code=-12 native=0 opened=0 message=the CUDA driver does not load: ");
    says(&out, "broken/libcuda.so.1");
}
END_TEST

START_TEST(case_103_the_default_is_cuda_and_says_so_in_one_line)
{
    output out = run("alone/driver_probe", "no_gpu", "CUDA_VISIBLE_DEVICES=", "- -");
    ck_assert_int_eq(count_of(&out, "\n"), 2);
    ck_assert_int_eq(count_of(&out, "error code=-13 native=100 opened=0 message=cuInit"), 2);
    ck_assert_int_eq(count_of(&out, "CUDA_VISIBLE_DEVICES is \"\""), 2);
}
END_TEST

START_TEST(the_environment_names_the_driver)
{
    output out = run("alone/driver_probe", "both", "CULVERT_DRIVER=sim", "- cuda");
    says(&out, "ok name=sim version=13000 simulated=1");
    says(&out, "ok name=cuda version=13000 simulated=0");
    out = run("alone/driver_probe", "both", "CULVERT_DRIVER=", "-");
    says(&out, "ok name=cuda");
    out = run("alone/driver_probe", "both", "CULVERT_DRIVER=gpu", "- sim");
    says(&out, "error code=-1 native=0 opened=0 message=there is no driver \"gpu\"");
    says(&out, "ok name=sim");
}
END_TEST

START_TEST(auto_takes_a_gpu_where_there_is_one)
{
    output out = run_alone("both", "auto auto cuda auto");
    ck_assert_int_eq(count_of(&out, "culvert: driver auto: "), 1);
    says(&out, "culvert: driver auto: cuda, because it has 2 devices; driver 13.0 (");
    ck_assert_int_eq(count_of(&out, "ok name=cuda"), 4);
}
END_TEST

START_TEST(auto_falls_back_to_the_simulator_and_says_why)
{
    output out = run_alone("no_gpu", "auto auto sim auto cuda");
    ck_assert_int_eq(count_of(&out, "culvert: driver auto: "), 1);
    says(&out, "culvert: driver auto: the simulator (");
    says(&out, "because: cuInit: CUDA_ERROR_NO_DEVICE (100)");
    ck_assert_int_eq(count_of(&out, "ok name=sim version=13000 simulated=1"), 4);
    ck_assert_int_eq(count_of(&out, "error code=-13 native=100 opened=1"), 1);
}
END_TEST

START_TEST(auto_speaks_once_when_many_threads_ask)
{
    output out = run_alone("no_gpu", "many:auto many:auto");
    ck_assert_int_eq(count_of(&out, "culvert: driver auto: "), 1);
    ck_assert_int_eq(count_of(&out, "ok name=sim version=13000 simulated=1"), 16);
}
END_TEST

START_TEST(auto_with_neither_says_both_reasons)
{
    output out = run_alone("mismatch", "auto");
    ck_assert_int_eq(count_of(&out, "culvert: driver auto"), 0);
    says(&out, "error code=-12 native=803 opened=0 message=neither the CUDA driver (cuInit: ");
    says(&out, "nor the simulator (no simulator: ");
}
END_TEST

START_TEST(the_simulator_is_found_on_the_library_path)
{
    output out = run_alone("both", "sim");
    says(&out, "ok name=sim version=13000 simulated=1 opened=1 path=");
    says(&out, "both/libculvert-sim.so.0\n");
}
END_TEST

START_TEST(the_simulator_is_found_where_it_is_loaded_already)
{
    output out = run_alone("nowhere", "load:" FAKES "/both/libculvert-sim.so.0 sim");
    says(&out, "ok name=sim");
    says(&out, "both/libculvert-sim.so.0\n");
}
END_TEST

START_TEST(the_simulator_is_found_beside_the_program)
{
    output out = run("beside/driver_probe", "nowhere", "", "sim");
    says(&out, "beside/libculvert-sim.so.0\n");
}
END_TEST

START_TEST(the_simulator_is_found_in_the_lib_folder_of_the_program)
{
    output out = run("tree/bin/driver_probe", "nowhere", "", "sim");
    says(&out, "ok name=sim");
    says(&out, "/lib/libculvert-sim.so.0\n");
}
END_TEST

START_TEST(the_simulator_is_found_beside_the_library)
{
    output out = run_alone("nowhere", "via:" FAKES "/library/driver_probe_library.so sim");
    says(&out, "library/libculvert-sim.so.0\n");
}
END_TEST

START_TEST(a_simulator_that_does_not_load_is_not_called_absent)
{
    output out = run_alone("broken", "sim");
    says(&out, "error code=-12 native=0 opened=0 message=the simulator does not load: ");
    says(&out, "broken/libculvert-sim.so.0");
}
END_TEST

START_TEST(no_simulator_says_where_it_was_looked_for)
{
    output out = run_alone("nowhere", "sim sim");
    ck_assert_int_eq(
        count_of(&out,
                 "error code=-12 native=0 opened=0 message=no simulator: libculvert-sim.so.0"),
        2);
    says(&out, "../lib");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver search");
    TCase *tcase = tcase_create("search");
    tcase_add_test(tcase, case_102_the_driver_is_taken_and_not_the_stub_beside_it);
    tcase_add_test(tcase, case_102_no_libcuda_so_is_needed);
    tcase_add_test(tcase, case_102_a_stub_alone_is_not_looked_at);
    tcase_add_test(tcase, case_102_a_stub_in_the_drivers_place_is_named);
    tcase_add_test(tcase, a_driver_that_does_not_load_is_not_called_absent);
    tcase_add_test(tcase, case_103_the_default_is_cuda_and_says_so_in_one_line);
    tcase_add_test(tcase, the_environment_names_the_driver);
    tcase_add_test(tcase, auto_takes_a_gpu_where_there_is_one);
    tcase_add_test(tcase, auto_falls_back_to_the_simulator_and_says_why);
    tcase_add_test(tcase, auto_speaks_once_when_many_threads_ask);
    tcase_add_test(tcase, the_simulator_is_found_on_the_library_path);
    tcase_add_test(tcase, the_simulator_is_found_where_it_is_loaded_already);
    tcase_add_test(tcase, a_simulator_that_does_not_load_is_not_called_absent);
    if (!simulator_is_installed()) {
        tcase_add_test(tcase, the_simulator_is_found_beside_the_program);
        tcase_add_test(tcase, the_simulator_is_found_in_the_lib_folder_of_the_program);
        tcase_add_test(tcase, the_simulator_is_found_beside_the_library);
        tcase_add_test(tcase, no_simulator_says_where_it_was_looked_for);
        tcase_add_test(tcase, auto_with_neither_says_both_reasons);
    }
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
