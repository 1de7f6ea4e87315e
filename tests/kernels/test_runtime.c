/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel runtime (block.c): what goes wrong, parts of grids, several threads, modules. */
#define _GNU_SOURCE
#include "block.culvert.h"
#include "faults.culvert.h"
#include "kernels/machine.h"
#include "layout.culvert.h"
#include "lib/check_main.h"
#include "sim/block.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static culvert__block_runner *runner;
static char message[256];

static void open_runner(void)
{
    runner = culvert__block_runner_new();
    ck_assert_ptr_nonnull(runner);
}

static void close_runner(void)
{
    culvert__block_runner_free(runner);
}

static const struct culvert_sim_kernel *kernel_of(const culvert_image *image, const char *name)
{
    const struct culvert_sim_module *module = culvert__sim_module(image->sim_module, NULL);
    ck_assert_ptr_nonnull(module);
    const struct culvert_sim_kernel *k = culvert__sim_module_kernel(module, name);
    ck_assert_ptr_nonnull(k);
    return k;
}

static int run_on(culvert__block_runner *r, const culvert_image *image, const char *name,
                  unsigned blocks, unsigned threads, const void *params)
{
    culvert__grid g = {.kernel = kernel_of(image, name),
                       .params = params,
                       .grid = {blocks, 1, 1},
                       .block = {threads, 1, 1}};
    return culvert__grid_run(r, &g, 0, blocks, message, sizeof message);
}

static int run(const culvert_image *image, const char *name, unsigned blocks, unsigned threads,
               const void *params)
{
    return run_on(runner, image, name, blocks, threads, params);
}

/* A kernel that works, after whatever went before on the same runner. */
static void check_usable(void)
{
    uint32_t out[100];
    struct {
        uint32_t *out;
        uint32_t alive;
    } p = {out, 100};
    ck_assert_int_eq(run(&culvert_image_block, "early_exit", 1, 128, &p), 0);
    ck_assert_str_eq(message, "");
    for (int i = 0; i < 100; i++) {
        ck_assert_uint_eq(out[i], 5050);
    }
}

START_TEST(a_trap_ends_the_launch)
{
    uint32_t out[64] = {0};
    struct {
        uint32_t thread;
        uint32_t *out;
    } p = {0, out};
    /* the first thread, one in the middle, the last: before, among and after those that wait */
    const uint32_t threads[] = {0, 33, 63};
    for (int k = 0; k < 3; k++) {
        memset(out, 0, sizeof out);
        p.thread = threads[k];
        ck_assert_int_eq(run(&culvert_image_faults, "trap_at", 3, 64, &p), 719);
        ck_assert_ptr_nonnull(strstr(message, "kernel trap_at"));
        ck_assert_ptr_nonnull(strstr(message, "__trap()"));
        for (uint32_t i = 0; i < 64; i++) {
            ck_assert_uint_eq(out[i], i <= p.thread);
        }
        check_usable();
    }
    ck_assert_int_eq(run(&culvert_image_faults, "trap_at", 3, 64, &p), 719);
    ck_assert_ptr_nonnull(strstr(message, "block (0,0,0), thread (63,0,0)"));
}
END_TEST

START_TEST(a_failed_assertion_ends_the_launch_not_the_process)
{
    uint32_t limit = 40;
    ck_assert_int_eq(run(&culvert_image_faults, "assert_below", 2, 20, &limit), 0);
    ck_assert_int_eq(run(&culvert_image_faults, "assert_below", 3, 20, &limit), 710);
    ck_assert_ptr_nonnull(strstr(message, "block (2,0,0), thread (0,0,0)"));
    ck_assert_ptr_nonnull(strstr(message, "faults.cu"));
    ck_assert_ptr_nonnull(strstr(message, "blockIdx.x * blockDim.x < limit"));
    check_usable();
}
END_TEST

START_TEST(a_deadlock_is_found_and_said)
{
    uint32_t out[64] = {0}, *p = out;
    ck_assert_int_eq(run(&culvert_image_faults, "cross_wait", 1, 64, &p), 719);
    ck_assert_ptr_nonnull(strstr(message, "kernel cross_wait, block (0,0,0)"));
    ck_assert_ptr_nonnull(strstr(message, "63 of the 64 threads"));
    ck_assert_ptr_nonnull(strstr(message, "0xffffffff"));
    for (int i = 0; i < 64; i++) {
        ck_assert_uint_eq(out[i], 0);
    }
    check_usable();
}
END_TEST

START_TEST(lanes_that_do_not_agree_are_a_deadlock)
{
    uint32_t out[32], *p = out;
    const char *const kernels[] = {"mixed_masks", "mixed_kinds"};
    for (int k = 0; k < 2; k++) {
        memset(out, 0, sizeof out);
        ck_assert_int_eq(run(&culvert_image_faults, kernels[k], 1, 32, &p), 719);
        ck_assert_ptr_nonnull(strstr(message, "32 in warp operations"));
        for (int i = 0; i < 32; i++) {
            ck_assert_uint_eq(out[i], 0);
        }
        check_usable();
    }
}
END_TEST

START_TEST(a_mask_without_the_caller_is_a_fault)
{
    int32_t out[32], *p = out;
    ck_assert_int_eq(run(&culvert_image_faults, "not_in_mask", 1, 32, &p), 719);
    ck_assert_ptr_nonnull(strstr(message, "0xfffffffe"));
    check_usable();
}
END_TEST

START_TEST(messages_fit_the_room_they_are_given)
{
    uint32_t limit = 0;
    char room[16];
    culvert__grid g = {.kernel = kernel_of(&culvert_image_faults, "assert_below"),
                       .params = &limit,
                       .grid = {1, 1, 1},
                       .block = {1, 1, 1}};
    for (size_t n = 0; n < sizeof room; n++) {
        memset(room, '#', sizeof room);
        ck_assert_int_eq(culvert__grid_run(runner, &g, 0, 1, room, n), 710);
        ck_assert(n == 0 || strlen(room) < n);
        ck_assert_int_eq(room[n], '#');
    }
}
END_TEST

struct spinner {
    const _Atomic int *stop;
    uint32_t *flag;
    int result;
};

static void *spin_main(void *arg)
{
    struct spinner *s = arg;
    culvert__block_runner *r = culvert__block_runner_new();
    culvert__grid g = {.kernel = kernel_of(&culvert_image_faults, "spin"),
                       .params = &s->flag,
                       .grid = {2, 1, 1},
                       .block = {64, 1, 1},
                       .stop = s->stop};
    s->result = culvert__grid_run(r, &g, 0, 2, NULL, 0);
    culvert__block_runner_free(r);
    return NULL;
}

START_TEST(a_kernel_without_end_can_be_stopped)
{
    static _Atomic int stop;
    uint32_t flag = 0;
    struct spinner s = {&stop, &flag, 0};
    pthread_t thread;
    atomic_store(&stop, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, spin_main, &s), 0);
    atomic_store(&stop, 999);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(s.result, 999);
}
END_TEST

/* Block 0 fails, or counts; the others wait until it has counted. */
struct waits {
    _Atomic unsigned *came;
    unsigned fails;
};

static void run_waits(struct culvert_sim_block *block, const void *params, unsigned first,
                      unsigned end)
{
    const struct waits *w = params;
    (void)end;
    if (block->block_idx[0] == 0 && w->fails) {
        block->ops->fault(block, first, 719, "on purpose");
    }
    atomic_fetch_add(w->came, 1);
    while (atomic_load(w->came) < block->grid_dim[0]) {
        block->ops->yield(block, first);
    }
}

static const struct culvert_sim_kernel waits_kernel = {.struct_size = sizeof waits_kernel,
                                                       .name = "waits",
                                                       .run = run_waits};

static int run_at_once(unsigned blocks, bool fails, const _Atomic int *stop, char *text,
                       size_t bytes)
{
    _Atomic unsigned came = 0;
    _Alignas(16) struct waits params = {&came, fails};
    culvert__grid g = {.kernel = &waits_kernel,
                       .params = &params,
                       .grid = {blocks, 1, 1},
                       .block = {1, 1, 1},
                       .stop = stop};
    return culvert__grid_run_at_once(runner, &g, text, bytes);
}

START_TEST(blocks_that_run_at_once_wait_for_each_other)
{
    strcpy(message, "x");
    ck_assert_int_eq(run_at_once(1, false, NULL, message, sizeof message), 0);
    ck_assert_int_eq(run_at_once(50, false, NULL, message, sizeof message), 0);
    ck_assert_str_eq(message, "");
}
END_TEST

START_TEST(the_failure_of_one_block_ends_those_that_wait_for_it)
{
    _Atomic int stop = 999;
    ck_assert_int_eq(run_at_once(20, true, NULL, message, sizeof message), 719);
    ck_assert_ptr_nonnull(strstr(message, "kernel waits, block (0,0,0)"));
    ck_assert_ptr_nonnull(strstr(message, "on purpose"));
    ck_assert_int_eq(run_at_once(20, true, NULL, NULL, 0), 719);
    ck_assert_int_eq(run_at_once(20, false, &stop, message, sizeof message), 999);
}
END_TEST

struct part {
    uint64_t first, count;
    const void *params;
    int result;
};

static void *part_main(void *arg)
{
    struct part *p = arg;
    culvert__block_runner *r = culvert__block_runner_new();
    culvert__grid g = {.kernel = kernel_of(&culvert_image_block, "block_scan"),
                       .params = p->params,
                       .grid = {40, 1, 1},
                       .block = {512, 1, 1}};
    p->result = culvert__grid_run(r, &g, p->first, p->count, NULL, 0);
    culvert__block_runner_free(r);
    return NULL;
}

/* The __shared__ variables of blocks that run at once are not the same. */
START_TEST(parts_of_a_grid_run_on_several_threads)
{
    enum { PARTS = 4, N = 40 * 512 };
    static uint32_t in[N], out[N];
    struct {
        const uint32_t *in;
        uint32_t *out;
        uint32_t n;
    } params = {in, out, N};
    struct part parts[PARTS];
    pthread_t threads[PARTS];
    uint64_t seed = 21;
    uint32_t sum = 0, wrong = 0;
    for (int i = 0; i < N; i++) {
        in[i] = machine_random(&seed);
    }
    for (int i = 0; i < PARTS; i++) {
        parts[i] = (struct part){(uint64_t)i * 10, 10, &params, -1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, part_main, &parts[i]), 0);
    }
    for (int i = 0; i < PARTS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(parts[i].result, 0);
    }
    for (int i = 0; i < N; i++) {
        sum = i % 512 ? sum + in[i] : in[i];
        wrong += out[i] != sum;
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

START_TEST(a_stack_overflow_does_not_pass_unnoticed)
{
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        uint32_t out[1] = {0};
        struct {
            uint32_t depth;
            uint32_t *out;
        } p = {1u << 20, out};
        signal(SIGSEGV, SIG_DFL);
        run(&culvert_image_faults, "recurse", 1, 1, &p);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}
END_TEST

/* Shared memory holds no zeros by accident, and is that of the launch. */
static void look_at_shared(struct culvert_sim_block *b, const void *params, unsigned first,
                           unsigned end)
{
    unsigned char *const *seen = params;
    (void)first;
    (void)end;
    ck_assert_uint_eq((uintptr_t)b->dynamic_shared % 128, 0);
    ck_assert_uint_eq(b->dynamic_shared_bytes, 1000);
    for (int i = 0; i < 1000; i++) {
        (*seen)[i] = ((unsigned char *)b->dynamic_shared)[i];
    }
    memset(b->dynamic_shared, 0, 1000);
}

START_TEST(shared_memory_is_not_zero_at_the_start)
{
    unsigned char seen[1000] = {0}, *p = seen;
    struct culvert_sim_kernel k = {.struct_size = sizeof k,
                                   .name = "look",
                                   .run = look_at_shared,
                                   .nparams = 0};
    culvert__grid g = {.kernel = &k,
                       .params = &p,
                       .grid = {2, 1, 1},
                       .block = {1, 1, 1},
                       .dynamic_shared_bytes = 1000};
    ck_assert_int_eq(culvert__grid_run(runner, &g, 0, 2, message, sizeof message), 0);
    for (int i = 0; i < 1000; i++) {
        ck_assert_uint_ne(seen[i], 0);
    }
}
END_TEST

START_TEST(only_modules_are_taken_for_modules)
{
    int other = 7;
    ck_assert_ptr_null(culvert__sim_module(NULL, NULL));
    ck_assert_ptr_null(culvert__sim_module("", &other));
    ck_assert_int_eq(other, 0);
    char *ptx = malloc(2); /* shorter than a module's magic */
    memcpy(ptx, "\xc5", 2);
    ck_assert_ptr_null(culvert__sim_module(ptx, NULL));
    free(ptx);
    struct culvert_sim_module m = {.magic = CULVERT_SIM_MODULE_MAGIC,
                                   .abi = CULVERT_SIM_MODULE_ABI + 1};
    ck_assert_ptr_null(culvert__sim_module(&m, &other));
    ck_assert_int_eq(other, 1);
    m.abi--;
    ck_assert_ptr_eq(culvert__sim_module(&m, &other), &m);
    ck_assert_int_eq(other, 0);
}
END_TEST

START_TEST(a_module_has_what_was_marked_and_no_more)
{
    const struct culvert_sim_module *m = culvert__sim_module(culvert_image_layout.sim_module, NULL);
    ck_assert_str_eq(m->name, "layout");
    ck_assert_str_eq(culvert_image_layout.name, "layout");
    ck_assert_uint_eq(culvert_image_layout.struct_size, sizeof(culvert_image));
    ck_assert_uint_eq(m->nkernels, 6);
    ck_assert_uint_eq(m->nglobals, 2);
    ck_assert_str_eq(m->kernels[0]->name, "where_am_i");
    ck_assert_str_eq(m->kernels[5]->name, "floats");
    ck_assert_str_eq(m->globals[1]->name, "counter");
    ck_assert_ptr_null(culvert__sim_module_kernel(m, "block_sum"));
    ck_assert_ptr_null(culvert__sim_module_global(m, "linear"));
}
END_TEST

/* Each GPU family runs the machine code of its first member. */
START_TEST(a_fatbin_has_machine_code_and_ptx)
{
    const unsigned char magic[4] = {0x50, 0xed, 0x55, 0xba};
    const culvert_image *image = &culvert_image_block;
    if (!image->fatbin) {
        ck_assert_uint_eq(image->fatbin_bytes, 0);
        return;
    }
    ck_assert_uint_ge(image->fatbin_bytes, 64);
    ck_assert(memcmp(image->fatbin, magic, 4) == 0);
    ck_assert_uint_eq((uintptr_t)image->fatbin % 8, 0);

    /* A 16-byte header; then entries: kind (u16), ., header size (u32), size (u64), ., ., ., the
     * architecture (u32 at 28). */
    const unsigned char *p = image->fatbin;
    uint16_t header;
    uint64_t total;
    memcpy(&header, p + 6, 2);
    memcpy(&total, p + 8, 8);
    ck_assert_uint_eq(header + total, image->fatbin_bytes);
    unsigned ptx = 0, code = 0, majors = 0;
    for (uint64_t at = header; at < header + total;) {
        uint16_t kind;
        uint32_t entry_header, arch;
        uint64_t size;
        memcpy(&kind, p + at, 2);
        memcpy(&entry_header, p + at + 4, 4);
        memcpy(&size, p + at + 8, 8);
        memcpy(&arch, p + at + 28, 4);
        ptx += kind == 1;
        code += kind == 2;
        majors |= kind == 2 ? 1u << arch / 10 : 0;
        at += entry_header + size;
    }
    ck_assert_uint_ge(ptx, 1);
    ck_assert_uint_ge(code, 3);
    ck_assert_uint_ne(majors & 1u << 8, 0); /* Ampere */
    ck_assert_uint_ne(majors & 1u << 9, 0); /* Hopper */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runtime");
    TCase *t = tcase_create("runtime");
    tcase_add_checked_fixture(t, open_runner, close_runner);
    tcase_add_test(t, a_trap_ends_the_launch);
    tcase_add_test(t, a_failed_assertion_ends_the_launch_not_the_process);
    tcase_add_test(t, a_deadlock_is_found_and_said);
    tcase_add_test(t, lanes_that_do_not_agree_are_a_deadlock);
    tcase_add_test(t, a_mask_without_the_caller_is_a_fault);
    tcase_add_test(t, messages_fit_the_room_they_are_given);
    tcase_add_test(t, a_kernel_without_end_can_be_stopped);
    tcase_add_test(t, parts_of_a_grid_run_on_several_threads);
    tcase_add_test(t, blocks_that_run_at_once_wait_for_each_other);
    tcase_add_test(t, the_failure_of_one_block_ends_those_that_wait_for_it);
    tcase_add_test(t, a_stack_overflow_does_not_pass_unnoticed);
    tcase_add_test(t, shared_memory_is_not_zero_at_the_start);
    tcase_add_test(t, only_modules_are_taken_for_modules);
    tcase_add_test(t, a_module_has_what_was_marked_and_no_more);
    tcase_add_test(t, a_fatbin_has_machine_code_and_ptx);
    suite_add_tcase(s, t);
    Suite *suites[] = {s, NULL};
    return test_main(suites);
}
