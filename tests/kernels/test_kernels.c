/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels against plain C, on whatever machine this is linked with. */
#include "kernels/suites.h"
#include "lib/check_main.h"

int main(void)
{
    Suite *suites[] = {
        block_suite(),    warp_suite(), atomics_suite(), layout_suite(), saxpy_suite(),
        chacha20_suite(), NULL};
    return test_main(suites);
}
