/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of a command line, with a message where they are wrong.
 */
#ifndef EXAMPLES_NUMBER_H
#define EXAMPLES_NUMBER_H

/* Reads a decimal number from least to most; with `units`, k, M or G (of 1024) may follow it. Returns 0; or -1 after
   it said on standard error, for `program`, what the option's value should be. */
int parse_number(const char *program, const char *option, const char *text, int units,
                 unsigned long long least, unsigned long long most, unsigned long long *out);

#endif
