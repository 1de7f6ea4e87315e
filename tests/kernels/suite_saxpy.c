/* SPDX-License-Identifier: BSD-2-Clause */
/* saxpy.cu, bit for bit. */
#include "kernels/machine.h"
#include "kernels/suites.h"
#include "saxpy.culvert.h"

#include <stdlib.h>
#include <string.h>

START_TEST(saxpy_equals_a_loop_bit_for_bit)
{
    const uint32_t sizes[] = {1, 255, 256, 257, 100003};
    machine *m = machine_open();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k];
        size_t bytes = n * sizeof(float);
        float a = 1.1f, *x = malloc(bytes), *y = malloc(bytes), *out = malloc(bytes);
        uint64_t seed = 15 + k, d_x = machine_alloc(m, bytes), d_y = machine_alloc(m, bytes);
        ck_assert(x && y && out);
        for (uint32_t i = 0; i < n; i++) {
            x[i] = (float)(int32_t)machine_random(&seed) / 65536.0f;
            y[i] = (float)(int32_t)machine_random(&seed) / 1048576.0f;
        }
        machine_put(m, d_x, x, bytes);
        machine_put(m, d_y, y, bytes);
        void *params[] = {&n, &a, &d_x, &d_y};
        struct machine_launch l = {.image = &culvert_image_saxpy,
                                   .kernel = "saxpy",
                                   .grid = {(n + 255) / 256},
                                   .block = {256}};
        ck_assert_int_eq(machine_run(m, &l, params), 0);
        machine_get(m, out, d_y, bytes);
        for (uint32_t i = 0; i < n; i++) {
            volatile float product = a * x[i];
            float sum = product + y[i];
            ck_assert_msg(memcmp(&out[i], &sum, sizeof sum) == 0, "%u: %a, not %a", i,
                          (double)out[i], (double)sum);
        }
        machine_free(m, d_x);
        machine_free(m, d_y);
        free(x);
        free(y);
        free(out);
    }
    machine_close(m);
}
END_TEST

Suite *saxpy_suite(void)
{
    Suite *s = suite_create("saxpy");
    TCase *t = tcase_create("saxpy");
    tcase_add_test(t, saxpy_equals_a_loop_bit_for_bit);
    suite_add_tcase(s, t);
    return s;
}
