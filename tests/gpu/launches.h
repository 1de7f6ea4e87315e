/* SPDX-License-Identifier: BSD-2-Clause */
/* What launches.cu and its tests share. */
#ifndef TEST_GPU_LAUNCHES_H
#define TEST_GPU_LAUNCHES_H

typedef struct launches_odd {
    char tag;
    double number;
    short list[5];
} launches_odd;

/* What the kernel `record_all` writes. */
typedef struct launches_record {
    unsigned long long pointer;
    long long big;
    double number;
    double odd_number;
    float single;
    int small;
    int odd_tag;
    int odd_last;
    unsigned byte;
    unsigned blocks[3];
    unsigned threads[3];
} launches_record;

#endif
