/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parsing with getopt_long: every value is checked here, with a message that says what it should be.
 */
#define _GNU_SOURCE
#include "options.h"

#include "exit_status.h"
#include "number.h"

#include <culvert/version.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: culvert-chacha20 --key HEX64 --nonce HEX24 [options] [IN [OUT]]\n"
    "\n"
    "Encrypts or decrypts (it is the same) a stream of bytes with ChaCha20 of RFC 8439, on the GPU.\n"
    "IN and OUT are files; '-' or nothing is standard input and output. An output file appears under\n"
    "its name when it is complete; if anything fails, or on SIGINT and SIGTERM, there is none.\n"
    "\n"
    "  -k, --key HEX64     the key: 64 hexadecimal digits\n"
    "  -n, --nonce HEX24   the nonce: 24 hexadecimal digits; never use one twice with the same key\n"
    "  -c, --counter N     number of the first 64-byte block of the keystream (default 0; RFC 8439's\n"
    "                      examples begin with 1)\n"
    "  -b, --chunk BYTES   how much is on its way as one piece (default 8M; k, M, G may follow): a\n"
    "                      multiple of 64, at most 1G\n"
    "  -d, --depth N       pieces on their way at once (default 4, at most 64); memory is bounded by\n"
    "                      depth x chunk\n"
    "      --driver NAME   cuda, sim (a simulated GPU), auto, or the path of a driver library\n"
    "                      (default: what CULVERT_DRIVER says, else cuda)\n"
    "      --device N      which device (default 0)\n"
    "      --trace FILE    write a timeline of the device work, for https://ui.perfetto.dev\n"
    "  -v, --verbose       say on standard error what was done\n"
    "  -h, --help          this text\n"
    "  -V, --version       the version\n"
    "\n"
    "The counter has 32 bits, so a stream ends 256 GiB after block 0; a longer one is an error before\n"
    "any wrong byte is written. Same as: openssl enc -chacha20 -K KEY -iv COUNTER_LE32||NONCE\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong arguments, 3 the device was lost, 128 + signal when stopped by one.\n";

static int complain(const char *what, const char *value, const char *right)
{
    fprintf(stderr, "culvert-chacha20: %s: '%s': %s\n", what, value, right);
    return EXIT_USAGE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int parse_hex(const char *name, const char *text, unsigned char *out, size_t bytes)
{
    char right[96];
    size_t length = strlen(text);
    snprintf(right, sizeof right, "must be %zu hexadecimal digits, and has %zu characters",
             2 * bytes, length);
    if (length != 2 * bytes)
        return complain(name, "(not shown)", right);
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return complain(name, "(not shown)", "has a character that is no hexadecimal digit");
        out[i] = (unsigned char)(high << 4 | low);
    }
    return -1;
}

static int number(const char *name, int units, unsigned long long least, unsigned long long most,
                  unsigned long long *out)
{
    return parse_number("culvert-chacha20", name, optarg, units, least, most, out) == 0
               ? -1
               : EXIT_USAGE;
}

enum { DRIVER = 256, DEVICE, TRACE };

static const struct option longs[] = {
    {"key", required_argument, NULL, 'k'},       {"nonce", required_argument, NULL, 'n'},
    {"counter", required_argument, NULL, 'c'},   {"chunk", required_argument, NULL, 'b'},
    {"depth", required_argument, NULL, 'd'},     {"driver", required_argument, NULL, DRIVER},
    {"device", required_argument, NULL, DEVICE}, {"trace", required_argument, NULL, TRACE},
    {"verbose", no_argument, NULL, 'v'},         {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},         {NULL, 0, NULL, 0}};

static int parse_one(options *o, int c, unsigned *seen)
{
    unsigned long long n = 0;
    int r = -1;
    switch (c) {
    case 'k': *seen |= 1; return parse_hex("--key", optarg, o->key, sizeof o->key);
    case 'n': *seen |= 2; return parse_hex("--nonce", optarg, o->nonce, sizeof o->nonce);
    case 'c':
        r = number("--counter", 0, 0, UINT32_MAX, &n);
        o->counter = (uint32_t)n;
        return r;
    case 'b':
        r = number("--chunk", 1, 64, 1ull << 30, &n);
        if (r < 0 && n % 64 != 0)
            return complain("--chunk", optarg, "must be a multiple of 64");
        o->chunk = (size_t)n;
        return r;
    case 'd':
        r = number("--depth", 0, 1, 64, &n);
        o->depth = (unsigned)n;
        return r;
    case DRIVER: o->driver = optarg; return -1;
    case TRACE: o->trace = optarg; return -1;
    case DEVICE:
        r = number("--device", 0, 0, 1023, &n);
        o->device = (int)n;
        return r;
    case 'v': o->verbose = 1; return -1;
    case 'h': fputs(usage, stdout); return 0;
    case 'V':
        printf("culvert-chacha20 %d.%d.%d\n", CULVERT_VERSION_MAJOR, CULVERT_VERSION_MINOR,
               CULVERT_VERSION_PATCH);
        return 0;
    default: fputs("Try culvert-chacha20 --help\n", stderr); return EXIT_USAGE;
    }
}

static const char *file_name(const char *text)
{
    return strcmp(text, "-") == 0 ? NULL : text;
}

int options_parse(options *o, int argc, char **argv)
{
    unsigned seen = 0;
    int c;
    *o = (options){.chunk = 8u << 20, .depth = 4};
    while ((c = getopt_long(argc, argv, "k:n:c:b:d:vhV", longs, NULL)) != -1) {
        int r = parse_one(o, c, &seen);
        if (r >= 0)
            return r;
    }
    if (seen != 3) {
        fprintf(stderr, "culvert-chacha20: %s%s%s must be given; try --help\n",
                seen & 1 ? "" : "--key", seen == 0 ? " and " : "", seen & 2 ? "" : "--nonce");
        return EXIT_USAGE;
    }
    if (argc - optind > 2)
        return complain("arguments", argv[optind + 2], "there are two files at most, IN and OUT");
    if (argc - optind > 0)
        o->in = file_name(argv[optind]);
    if (argc - optind > 1)
        o->out = file_name(argv[optind + 1]);
    return -1;
}
