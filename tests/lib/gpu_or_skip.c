/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a program that is no Check program as a test on a GPU: gpu_or_skip PROGRAM [ARGUMENT...]. Where
 * there is no GPU its status is the one that ctest takes for "skipped". */
#define _POSIX_C_SOURCE 200809L
#include "lib/check_main.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: gpu_or_skip PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    if (test_gpu_count() == 0) {
        puts("skipped: the CUDA driver finds no device");
        return TEST_SKIPPED;
    }
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
