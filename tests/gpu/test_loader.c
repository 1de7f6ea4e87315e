/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Broken drivers, as a program sees them: culvert_gpu_count and culvert_gpu_open say which of them the
 * program called, what is wrong with the driver and what would mend it, and hold nothing. The drivers
 * are those of tests/driver, where what the loader does with them is tested.
 */
#define _GNU_SOURCE
#include "gpu/gpu_fixture.h"

#include "culvert/sim.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ev_loop *ev;
static culvert_loop *loop;

static void begin(const char *driver)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.driver = driver;
    ev = ev_loop_new(EVFLAG_AUTO);
    loop = culvert_loop_new(ev, &options, &err);
    ck_assert_msg(loop != NULL, "%s", err.message);
}

static void end(void)
{
    ev_run(ev, 0); /* nothing keeps it */
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}

/* ---- what a process holds ---- */

typedef struct holding {
    int64_t blocks;
    int descriptors, threads;
} holding;

static int entries_of(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static holding now_held(void)
{
    return (holding){alloc_fail_live(), entries_of("/proc/self/fd"), entries_of("/proc/self/task")};
}

static void same(const holding *before, const char *what)
{
    holding now = now_held();
    ck_assert_msg(now.blocks == before->blocks, "%s: %lld blocks, before %lld", what,
                  (long long)now.blocks, (long long)before->blocks);
    ck_assert_msg(now.descriptors == before->descriptors, "%s: %d descriptors, before %d", what,
                  now.descriptors, before->descriptors);
    ck_assert_msg(now.threads == before->threads, "%s: %d threads, before %d", what, now.threads,
                  before->threads);
}

/* ---- broken ones ---- */

typedef struct failure {
    const char *driver; /* in FAKES, or the whole path */
    int code, native;
    const char *says[3];
} failure;

static const failure failures[] = {
    {"absent.so", CULVERT_ENODRIVER, 0, {"absent.so", "No such file"}},
    {"stub.so", CULVERT_ENODRIVER, 34, {"stub.so", "Toolkit's stub", "install the NVIDIA driver"}},
    {"late_stub.so", CULVERT_ENODRIVER, 34, {"late_stub.so", "Toolkit's stub"}},
#ifdef CUDA_STUB
    {CUDA_STUB, CULVERT_ENODRIVER, 34, {"Toolkit's stub", "install the NVIDIA driver"}},
#endif
    {"broken/libcuda.so.1", CULVERT_ENODRIVER, 0, {"does not load", "libcuda.so.1"}},
    {"old.so", CULVERT_ENODRIVER, 0, {"11.8", "too old", "12.0 or newer"}},
    {"no_get.so", CULVERT_ENODRIVER, 0, {"cuGetProcAddress_v2", "not a complete CUDA driver"}},
    {"no_version.so", CULVERT_ENODRIVER, 0, {"not a CUDA driver", "cuDriverGetVersion"}},
    {"lacks_one.so", CULVERT_ENODRIVER, 0, {"lacks cuStreamQuery", "incomplete"}},
    {"lacks_all.so", CULVERT_ENODRIVER, 0, {"lacks cuInit", " more"}},
    {"no_device.so", CULVERT_ENODEVICE, 0, {"no device", "count 0"}},
    {"count_999.so", CULVERT_ENODRIVER, 999, {"cuDeviceGetCount", "(999)"}},
    {"init_2.so", CULVERT_ENOMEM, 2, {"cuInit", "(2)", "memory"}},
    {"init_3.so", CULVERT_ENODRIVER, 3, {"cuInit", "(3)", "kernel module"}},
    {"init_100.so", CULVERT_ENODEVICE, 100, {"cuInit", "no GPU", "nvidia-smi"}},
    {"init_802.so", CULVERT_ENODRIVER, 802, {"(802)", "fabricmanager"}},
    {"init_803.so", CULVERT_ENODRIVER, 803, {"(803)", "kernel module differ"}},
    {"init_804.so", CULVERT_ENODRIVER, 804, {"(804)", "cuda-compat"}},
    {"init_805.so", CULVERT_ENODRIVER, 805, {"(805)", "MPS"}},
    {"init_999.so", CULVERT_ENODRIVER, 999, {"(999)", "nvidia-modprobe"}},
};
enum { FAILURES = sizeof failures / sizeof failures[0] };

static void check(const failure *f, const culvert_error *err, const char *op)
{
    ck_assert_msg(err->code == f->code && err->native == f->native, "%s: %s, %d: %s", f->driver,
                  culvert_error_name(err->code), err->native, err->message);
    ck_assert_str_eq(err->op, op);
    for (size_t i = 0; i < 3 && f->says[i] != NULL; i++)
        gpu_fixture_says(err, f->says[i]);
    ck_assert_ptr_null(strstr(err->message, "culvert__")); /* nothing of the library's inside */
}

static void try_both(const failure *f)
{
    culvert_error err = CULVERT_ERROR_INIT;
    ck_assert_int_eq(culvert_gpu_count(loop, &err), f->code);
    check(f, &err, "culvert_gpu_count");
    err = (culvert_error)CULVERT_ERROR_INIT;
    ck_assert_ptr_null(culvert_gpu_open(loop, 0, NULL, &err));
    check(f, &err, "culvert_gpu_open");
    ck_assert_ptr_nonnull(err.where);
    ck_assert_ptr_nonnull(strstr(err.where, "test_loader.c:"));
    ck_assert_int_eq(culvert_gpu_count(loop, NULL), f->code);
    ck_assert_ptr_null(culvert_gpu_open(loop, 0, NULL, NULL));
}

static void path_of(const failure *f, char *out, size_t size)
{
    if (f->driver[0] == '/')
        snprintf(out, size, "%s", f->driver);
    else
        snprintf(out, size, "%s/%s", FAKES, f->driver);
}

START_TEST(case_105_a_broken_driver_is_told_to_the_program_and_nothing_stays)
{
    const failure *f = &failures[_i];
    char path[4096];
    path_of(f, path, sizeof path);
    holding before = now_held();
    begin(path);
    holding bound = now_held();
    for (int attempt = 0; attempt < 3; attempt++) {
        try_both(f);
        same(&bound, f->driver);
    }
    end();
    same(&before, f->driver);
}
END_TEST

/* The same by the environment, with the driver left out of the options. */
START_TEST(case_105_the_environment_names_a_broken_driver)
{
    const failure *f = &failures[_i];
    char path[4096];
    path_of(f, path, sizeof path);
    ck_assert_int_eq(setenv("CULVERT_DRIVER", path, 1), 0);
    begin(NULL);
    try_both(f);
    end();
    ck_assert_int_eq(setenv("CULVERT_DRIVER", "sim", 1), 0);
}
END_TEST

START_TEST(case_105_it_may_be_tried_again)
{
    culvert_error err = CULVERT_ERROR_INIT;
    begin(FAKES "/again_gpu.so");
    ck_assert_int_eq(setenv("FAKE_INIT_NOW", "802", 1), 0);
    ck_assert_int_eq(culvert_gpu_count(loop, &err), CULVERT_ENODRIVER);
    ck_assert_int_eq(err.native, 802);
    ck_assert_int_eq(unsetenv("FAKE_INIT_NOW"), 0);
    ck_assert_int_eq(culvert_gpu_count(loop, &err), 2);
    end();
}
END_TEST

START_TEST(case_103_no_visible_device_is_told_to_the_program)
{
    static const char *const values[] = {"", "-1", "99", "garbage"};
    failure f = {"visible.so", CULVERT_ENODEVICE, 100, {"CUDA_VISIBLE_DEVICES is \""}};
    begin(FAKES "/visible.so");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", values[i], 1), 0);
        try_both(&f);
    }
    ck_assert_int_eq(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    end();
}
END_TEST

START_TEST(an_unknown_name_is_the_callers_mistake)
{
    failure f = {"foo", CULVERT_EINVAL, 0, {"\"foo\"", "cuda, sim, auto", ".driver"}};
    begin("foo");
    holding bound = now_held();
    try_both(&f);
    same(&bound, f.driver);
    end();
}
END_TEST

static void open_body(void *arg)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_error err = CULVERT_ERROR_INIT;
    options.driver = arg;
    ev = ev_loop_new(EVFLAG_AUTO);
    loop = culvert_loop_new(ev, &options, &err);
    if (loop != NULL) {
        ck_assert_ptr_null(culvert_gpu_open(loop, 0, NULL, &err));
        ck_assert_msg(err.code == CULVERT_ENOMEM || err.code == CULVERT_ENODRIVER, "%s",
                      err.message);
        ck_assert_str_eq(err.op, "culvert_gpu_open");
        culvert_loop_free(loop);
    }
    ev_loop_destroy(ev);
}

START_TEST(out_of_memory_at_every_allocation_before_a_broken_driver)
{
    char path[] = FAKES "/init_802.so";
    ck_assert_uint_ge(alloc_fail_each(open_body, path), 3);
}
END_TEST

/* ---- functions that are not there ---- */

typedef struct symbol {
    const char *name;
    bool required;
} symbol;

#define NEED_R true
#define NEED_O false
static const symbol symbols[] = {
#define X(name, abi, ask, need, symbol) {#name, NEED_##need},
#include "driver/driver.def"
};
enum { SYMBOLS = sizeof symbols / sizeof symbols[0] };

START_TEST(a_driver_that_lacks_a_required_function_is_refused_by_its_name)
{
    failure f = {"sim", CULVERT_ENODRIVER, 0, {"lacks ", NULL}};
    size_t tried = 0;
    begin("sim");
    for (size_t i = 0; i < SYMBOLS; i++) {
        char lacks[120];
        if (!symbols[i].required || strcmp(symbols[i].name, "cuDriverGetVersion") == 0)
            continue; /* that one is found otherwise: see no_version.so */
        culvert_sim_reset();
        culvert_sim_hide(symbols[i].name);
        snprintf(lacks, sizeof lacks, "lacks %s:", symbols[i].name);
        f.says[0] = lacks;
        holding bound = now_held();
        try_both(&f);
        same(&bound, symbols[i].name);
        tried++;
    }
    ck_assert_uint_gt(tried, 50);
    culvert_sim_reset();
    end();
}
END_TEST

/* An older driver: whatever may be absent is. Last, since this driver stays open. */
START_TEST(case_098_a_driver_with_none_of_the_optional_functions_works)
{
    static gpu_fixture f;
    enum { N = 300000 };
    static unsigned char from[N], to[N];
    unsigned word = 0;
    size_t hidden = 0;
    gpu_fixture_reset();
    for (size_t i = 0; i < SYMBOLS; i++) {
        if (symbols[i].required)
            continue;
        culvert_sim_hide(symbols[i].name);
        hidden++;
    }
    ck_assert_uint_gt(hidden, 0);
    memset(from, 7, sizeof from);
    gpu_fixture_open_as_is(&f, NULL, NULL);
    culvert_gpu_description d = {.struct_size = sizeof d};
    ck_assert_int_eq(culvert_gpu_info(f.gpu, &d), CULVERT_OK);
    ck_assert_int_eq(culvert_gpu_count(f.loop, NULL), 1);
    culvert_buffer *buffer = gpu_fixture_buffer(&f, N), *words = gpu_fixture_buffer(&f, 16);
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_upload(seq, buffer, 0, from, N);
    culvert_seq_download(seq, to, buffer, 0, N);
    gpu_fixture_add(&f, seq, words, 0, 5);
    culvert_seq_download(seq, &word, words, 0, sizeof word);
    culvert_seq_timed(seq);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_mem_eq(from, to, N);
    ck_assert_uint_eq(word, 5);
    for (size_t i = 0; i < SYMBOLS; i++)
        if (!symbols[i].required)
            ck_assert_msg(culvert_sim_calls(symbols[i].name) == 0, "%s was called",
                          symbols[i].name);
    culvert_buffer_unref(buffer);
    culvert_buffer_unref(words);
    gpu_fixture_close(&f);
}
END_TEST

int main(void)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    Suite *suite = suite_create("loader");
    TCase *tc = tcase_create("broken");
    tcase_add_loop_test(tc, case_105_a_broken_driver_is_told_to_the_program_and_nothing_stays, 0,
                        FAILURES);
    tcase_add_loop_test(tc, case_105_the_environment_names_a_broken_driver, 0, FAILURES);
    tcase_add_test(tc, case_105_it_may_be_tried_again);
    tcase_add_test(tc, case_103_no_visible_device_is_told_to_the_program);
    tcase_add_test(tc, an_unknown_name_is_the_callers_mistake);
    tcase_add_test(tc, out_of_memory_at_every_allocation_before_a_broken_driver);
    suite_add_tcase(suite, tc);
    tc = tcase_create("functions");
    tcase_add_test(tc, a_driver_that_lacks_a_required_function_is_refused_by_its_name);
    tcase_add_test(tc, case_098_a_driver_with_none_of_the_optional_functions_works);
    suite_add_tcase(suite, tc);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
