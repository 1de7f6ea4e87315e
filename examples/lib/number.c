/* SPDX-License-Identifier: BSD-2-Clause */
#include "number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int scale(const char *suffix, unsigned long long *n)
{
    static const char units[] = "kMG";
    const char *unit = strchr(units, *suffix);
    unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    if (unit == NULL || suffix[1] != '\0' || *n > ~0ull >> shift)
        return -1;
    *n <<= shift;
    return 0;
}

int parse_number(const char *program, const char *option, const char *text, int units,
                 unsigned long long least, unsigned long long most, unsigned long long *out)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    int ok = text[0] >= '0' && text[0] <= '9' && errno == 0;
    if (ok && *end != '\0')
        ok = units && scale(end, &n) == 0;
    if (ok && n >= least && n <= most) {
        *out = n;
        return 0;
    }
    fprintf(stderr, "%s: %s: '%s': must be a number from %llu to %llu\n", program, option, text,
            least, most);
    return -1;
}
