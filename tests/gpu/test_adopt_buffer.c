/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of others: device memory as a buffer, ordinary memory that is pinned where it is. */
#include "culvert/sim.h"
#include "gpu/flow.h"
#include "gpu/gpu_fixture.h"
#include "lib/alloc_fail.h"
#include "lib/check_main.h"
#include "lib/clock.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB, N = 3 * MIB + 77 };

static gpu_fixture f;
static unsigned long long foreign; /* memory that the test allocated by itself */
static pthread_t loop_thread;
static int released;

static void set_up(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    culvert__scope scope = culvert__scope_enter(f.gpu->device);
    ck_assert_int_eq(f.gpu->drv->cuMemAlloc(&foreign, 64 * KIB), 0);
    culvert__scope_leave(scope);
    loop_thread = pthread_self();
    released = 0;
}

static void tear_down(void)
{
    gpu_fixture_idle(&f, f.stream);
    culvert__scope scope = culvert__scope_enter(f.gpu->device);
    ck_assert_int_eq(f.gpu->drv->cuMemFree(foreign), 0);
    culvert__scope_leave(scope);
    gpu_fixture_close(&f);
}

static void release(void *owner)
{
    ck_assert(pthread_equal(pthread_self(), loop_thread));
    ++*(int *)owner;
}

static culvert_buffer *adopt(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer =
        culvert_buffer_adopt(f.gpu, foreign, 64 * KIB, &released, release, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    return buffer;
}

static bool was_released(void *arg)
{
    (void)arg;
    return released > 0;
}

/* ---- adopted ---- */

START_TEST(adopted_memory_is_a_buffer)
{
    uint32_t word = 0;
    culvert_buffer *buffer = adopt();
    ck_assert_uint_eq(culvert_buffer_size(buffer), 64 * KIB);
    ck_assert_uint_eq(culvert_buffer_address(buffer), foreign);
    ck_assert_ptr_null(culvert_buffer_data(buffer));
    culvert_seq *seq = culvert_seq_begin(f.stream);
    culvert_seq_fill(seq, buffer, 0, 64 * KIB, 41, 4);
    gpu_fixture_add(&f, seq, buffer, 3, 1);
    culvert_seq_download(seq, &word, buffer, 12, 4);
    gpu_fixture_ok(culvert_seq_submit(seq));
    ck_assert_uint_eq(word, 42);
    (void)gpu_fixture_fails(culvert_fill(f.stream, buffer, 64 * KIB, 4, 0, 4), CULVERT_EINVAL);
    culvert_buffer_unref(buffer);
    ck_assert_int_eq(released, 0); /* in no call */
    gpu_fixture_until(&f, was_released, NULL);
    ck_assert_int_eq(released, 1);
}
END_TEST

START_TEST(case_071_the_owner_is_released_after_the_last_use)
{
    culvert_buffer *buffer = adopt();
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_fill(f.stream, buffer, 0, 64, 1, 4);
    culvert_buffer_unref(buffer);
    culvert_unref(culvert_timeout(work, 0.001)); /* dropped, and it is in flight */
    gpu_fixture_run(&f, 0.02);
    ck_assert_int_eq(released, 0);
    gpu_fixture_release(&f);
    gpu_fixture_until(&f, was_released, NULL);
    ck_assert_int_eq(released, 1);
}
END_TEST

static void *drop(void *buffer)
{
    culvert_buffer_unref(buffer);
    return NULL;
}

START_TEST(released_by_another_thread_it_is_let_go_on_the_loop)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, drop, adopt()), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(released, 0);
    gpu_fixture_until(&f, was_released, NULL);
    ck_assert_int_eq(released, 1);
}
END_TEST

START_TEST(what_is_no_memory_of_the_device_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *host = gpu_fixture_host_buffer(&f, 4096);
    int here = 0;
    const unsigned long long bad[] = {0, (uintptr_t)&here, culvert_buffer_address(host)};
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_null(culvert_buffer_adopt(f.gpu, bad[i], 64, &released, release, &err));
        ck_assert_int_eq(err.code, CULVERT_EINVAL);
        ck_assert_str_eq(err.op, "culvert_buffer_adopt");
        ck_assert_int_eq(released, i + 1); /* its owner, too */
    }
    gpu_fixture_says(&err, "pinned memory of the host");
    ck_assert_ptr_null(culvert_buffer_adopt(f.gpu, foreign, SIZE_MAX, NULL, NULL, &err));
    ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
    culvert_buffer_unref(host);
}
END_TEST

static void adopt_and_use(void *arg)
{
    (void)arg;
    culvert_buffer *buffer =
        culvert_buffer_adopt(f.gpu, foreign, 64 * KIB, &released, release, NULL);
    if (buffer == NULL)
        return;
    culvert_buffer_unref(buffer);
    int before = released;
    for (int i = 0; i < 10 && released == before; i++)
        ev_run(f.ev, EVRUN_NOWAIT);
}

START_TEST(out_of_memory_at_every_allocation_of_an_adoption)
{
    alloc_fail_this_thread(true);
    uint64_t runs = alloc_fail_each(adopt_and_use, NULL);
    ck_assert_uint_ge(runs, 1);
    ck_assert_int_eq(released, (int)runs + 2); /* each of them, failed or not */
}
END_TEST

/* ---- registered ---- */

static unsigned char *memory; /* of no alignment */

static void set_up_memory(void)
{
    gpu_fixture_open(&f, NULL, NULL);
    memory = malloc(N + 64);
    ck_assert_ptr_nonnull(memory);
    memory += 33;
    for (size_t i = 0; i < N; i++)
        memory[i] = (unsigned char)(i % 251);
}

static void tear_down_memory(void)
{
    gpu_fixture_close(&f);
    free(memory - 33);
}

/* Whether these bytes are what set_up_memory wrote: one check, not one a byte, which takes seconds. */
static bool as_written(size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (memory[i] != i % 251)
            return false;
    return true;
}

static culvert_buffer *registered(void)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = culvert_host_register(f.gpu, memory, N, &err);
    ck_assert_msg(buffer != NULL, "%s", err.message);
    return buffer;
}

START_TEST(registered_memory_is_a_host_buffer)
{
    culvert_buffer *buffer = registered(), *device = gpu_fixture_buffer(&f, N);
    culvert_gpu_memory_counters c = {.struct_size = sizeof c};
    ck_assert_int_eq(culvert_gpu_memory(f.gpu, &c), CULVERT_OK);
    ck_assert_uint_eq(c.registered, N);
    ck_assert_ptr_eq(culvert_buffer_data(buffer), memory);
    ck_assert_uint_eq(culvert_buffer_size(buffer), N);
    gpu_fixture_ok(culvert_copy(f.stream, device, 0, buffer, 0, N));
    memset(memory, 0, N);
    gpu_fixture_ok(culvert_download(f.stream, memory + 5, device, 5, N - 5)); /* in place */
    for (size_t i = 0; i < 5; i++)
        ck_assert_uint_eq(memory[i], 0);
    ck_assert(as_written(5, N));
    gpu_fixture_ok(culvert_host_unregister(f.gpu, buffer));
    if (gpu_fixture_simulated())
        ck_assert_uint_eq(culvert_sim_calls("cuMemHostUnregister"),
                          culvert_sim_calls("cuMemHostRegister"));
    culvert_buffer_unref(device);
}
END_TEST

START_TEST(a_range_half_in_and_half_out_is_staged)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *device = gpu_fixture_buffer(&f, N);
    culvert_buffer *half = culvert_host_register(f.gpu, memory, N / 2, &err);
    ck_assert_msg(half != NULL, "%s", err.message);
    gpu_fixture_ok(culvert_upload(f.stream, device, 0, memory, N)); /* strict: no pageable copy */
    memset(memory, 0, N);
    gpu_fixture_ok(culvert_download(f.stream, memory + N / 4, device, N / 4, N / 2));
    ck_assert(as_written(N / 4, N / 4 + N / 2));
    gpu_fixture_ok(culvert_host_unregister(f.gpu, half));
    culvert_buffer_unref(device);
}
END_TEST

/* The simulator takes it for a violation to unregister what queued work uses. */
START_TEST(work_in_flight_holds_the_registration)
{
    culvert_buffer *buffer = registered(), *device = gpu_fixture_buffer(&f, N);
    gpu_fixture_hold(&f, f.stream);
    culvert_future *work = culvert_upload(f.stream, device, 0, memory, N); /* by its raw address */
    culvert_future *gone = culvert_host_unregister(f.gpu, buffer);
    gpu_fixture_run(&f, 0.05);
    ck_assert_int_eq(culvert_status(gone), CULVERT_PENDING);
    ck_assert_int_eq(culvert_status(work), CULVERT_PENDING);
    gpu_fixture_release(&f);
    gpu_fixture_ok(work);
    gpu_fixture_ok(gone);
    culvert_buffer_unref(device);
}
END_TEST

START_TEST(released_only_it_is_unpinned_by_and_by)
{
    culvert_buffer_unref(registered());
    gpu_fixture_run(&f, 0.05);
    culvert_buffer_unref(registered()); /* so it can be registered again; and the close takes it */
}
END_TEST

START_TEST(what_cannot_be_registered_is_refused)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *buffer = registered();
    ck_assert_ptr_null(culvert_host_register(f.gpu, memory + 100, 100, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_ptr_null(culvert_host_register(f.gpu, NULL, 100, &err));
    ck_assert_int_eq(err.code, CULVERT_EINVAL);
    ck_assert_ptr_null(culvert_host_register(f.gpu, memory, SIZE_MAX, &err));
    ck_assert_int_eq(err.code, CULVERT_EOVERFLOW);
    culvert_buffer *device = gpu_fixture_buffer(&f, 64);
    (void)gpu_fixture_fails(culvert_host_unregister(f.gpu, culvert_buffer_ref(device)),
                            CULVERT_EINVAL);
    culvert_buffer_unref(device);
    culvert_future *gone = culvert_host_unregister(f.gpu, culvert_buffer_ref(buffer));
    (void)gpu_fixture_fails(culvert_host_unregister(f.gpu, buffer), CULVERT_EINVAL);
    gpu_fixture_ok(gone);
}
END_TEST

START_TEST(case_089_no_bytes_and_a_driver_that_says_no)
{
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_buffer *none = culvert_host_register(f.gpu, memory, 0, &err);
    ck_assert_ptr_nonnull(none);
    culvert_buffer_unref(none);
    if (!gpu_fixture_simulated())
        return;
    culvert_sim_fail("cuMemHostRegister", 1, CULVERT__CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t pinned = culvert_sim_live("pinned bytes");
    ck_assert_ptr_null(culvert_host_register(f.gpu, memory, N, &err));
    ck_assert_int_eq(err.code, CULVERT_ENOMEM);
    ck_assert_uint_eq(culvert_sim_live("pinned bytes"), pinned);
    culvert_buffer *device = gpu_fixture_buffer(&f, N); /* plain memory, and it is staged */
    gpu_fixture_ok(culvert_upload(f.stream, device, 0, memory, N));
    culvert_buffer_unref(device);
}
END_TEST

static void register_and_end(void *arg)
{
    (void)arg;
    culvert_buffer *buffer = culvert_host_register(f.gpu, memory, N, NULL);
    if (buffer == NULL)
        return;
    culvert_future *gone = culvert_host_unregister(f.gpu, buffer);
    (void)culvert_await(gone, 10);
    culvert_unref(gone);
    while (atomic_load(&f.gpu->memory->nregions) > 0)
        ev_run(f.ev, EVRUN_NOWAIT);
}

START_TEST(out_of_memory_at_every_allocation_of_a_registration)
{
    alloc_fail_this_thread(true);
    register_and_end(NULL);
    ck_assert_uint_ge(alloc_fail_each(register_and_end, NULL), 2);
}
END_TEST

static Suite *adopt_suite(void)
{
    Suite *suite = suite_create("memory of others");
    TCase *adopted = tcase_create("adopted");
    tcase_add_checked_fixture(adopted, set_up, tear_down);
    tcase_add_test(adopted, adopted_memory_is_a_buffer);
    tcase_add_test(adopted, case_071_the_owner_is_released_after_the_last_use);
    tcase_add_test(adopted, released_by_another_thread_it_is_let_go_on_the_loop);
    tcase_add_test(adopted, what_is_no_memory_of_the_device_is_refused);
    tcase_add_test(adopted, out_of_memory_at_every_allocation_of_an_adoption);
    suite_add_tcase(suite, adopted);
    TCase *reg = tcase_create("registered");
    tcase_add_checked_fixture(reg, set_up_memory, tear_down_memory);
    tcase_add_test(reg, registered_memory_is_a_host_buffer);
    tcase_add_test(reg, a_range_half_in_and_half_out_is_staged);
    tcase_add_test(reg, work_in_flight_holds_the_registration);
    tcase_add_test(reg, released_only_it_is_unpinned_by_and_by);
    tcase_add_test(reg, what_cannot_be_registered_is_refused);
    tcase_add_test(reg, case_089_no_bytes_and_a_driver_that_says_no);
    tcase_add_test(reg, out_of_memory_at_every_allocation_of_a_registration);
    suite_add_tcase(suite, reg);
    return suite;
}

int main(void)
{
    Suite *suites[] = {adopt_suite(), NULL};
    return test_main(suites);
}
