/* SPDX-License-Identifier: BSD-2-Clause */
/* The version of the library as it runs, for programs built with the headers of another one. */
#include "culvert/version.h"

int culvert_version(void)
{
    return CULVERT_VERSION;
}
