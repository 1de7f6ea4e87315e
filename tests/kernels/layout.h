/* SPDX-License-Identifier: BSD-2-Clause */
/* What layout.cu and its tests share. */
#ifndef TESTS_KERNELS_LAYOUT_H
#define TESTS_KERNELS_LAYOUT_H

#define LAYOUT_BITS   16
#define LAYOUT_FLOATS 10

struct layout_struct {
    unsigned char a;
    unsigned short b;
    unsigned char c[3];
};

#endif
