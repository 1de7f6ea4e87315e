/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * image.c: images that are no host-built modules, and what the driver and its compiler say of them.
 *
 * The simulator runs none of them. But a program is to meet the errors that the driver would give, so
 * PTX is looked at as far as its directives: a version that driver 13.0 does not know, a target beyond
 * the device, and text that is no PTX are told as the driver's compiler tells them, with a log. What
 * passes that has no code for this device.
 */
#include "sim/module.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What driver 13.0 compiles, and for what. */
enum { PTX_MAJOR = 9, PTX_MINOR = 0, SM = 90 };

/* ---- the log ---- */

struct log {
    char *text;
    size_t room;
};

static struct log find_log(unsigned n, const int *options, void **values)
{
    struct log log = {NULL, 0};
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == CULVERT__CU_JIT_ERROR_LOG_BUFFER)
            log.text = values[i];
        else if (options[i] == CULVERT__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            log.room = (size_t)(uintptr_t)values[i];
    }
    return log;
}

static void write_log(struct log log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void write_log(struct log log, const char *format, ...)
{
    va_list args;
    if (!log.text || log.room == 0)
        return;
    va_start(args, format);
    vsnprintf(log.text, log.room, format, args);
    va_end(args);
}

/* ---- PTX ---- */

struct reader {
    const char *at;
    int line;
};

/* Over blanks and comments. */
static void skip(struct reader *r)
{
    for (;;) {
        if (isspace((unsigned char)*r->at)) {
            r->line += *r->at == '\n';
            r->at++;
        } else if (r->at[0] == '/' && r->at[1] == '/') {
            r->at += strcspn(r->at, "\n");
        } else if (r->at[0] == '/' && r->at[1] == '*') {
            for (r->at += 2; *r->at && (r->at[0] != '*' || r->at[1] != '/'); r->at++)
                r->line += *r->at == '\n';
            r->at += *r->at ? 2 : 0;
        } else {
            return;
        }
    }
}

static int fail(struct log log, int line, const char *what)
{
    write_log(log,
              "ptxas application ptx input, line %d; fatal   : %s\n"
              "ptxas fatal   : Ptx assembly aborted due to errors\n",
              line, what);
    return CULVERT__CUDA_ERROR_INVALID_PTX;
}

/* At the top level every statement begins with a directive; a body is taken as it is. */
static int check_statements(struct log log, struct reader r)
{
    char what[96];
    int depth = 0, parens = 0, begins = r.line;
    bool open = false; /* a statement that may go on in the next line */
    for (skip(&r); *r.at; skip(&r)) {
        char c = *r.at;
        bool starts = depth == 0 && parens == 0 && (!open || r.line != begins);
        if (starts && c != '.' && c != '{' && c != '(' && c != ')') {
            snprintf(what, sizeof what, "Parsing error near '%.*s': syntax error",
                     (int)strcspn(r.at, " \t\r\n;(){}"), r.at);
            return fail(log, r.line, what);
        }
        begins = r.line;
        depth += (c == '{') - (c == '}');
        parens += (c == '(') - (c == ')');
        open = depth > 0 || parens > 0 || (c != ';' && c != '}');
        r.at++;
    }
    return depth == 0 && parens == 0 ? 0 : fail(log, r.line, "Parsing error near '': syntax error");
}

/* 0: it is PTX that this driver and device take. */
static int check_ptx(const char *text, struct log log)
{
    struct reader r = {text, 1};
    int major, minor, sm;
    char what[96];
    skip(&r);
    if (sscanf(r.at, ".version %d.%d", &major, &minor) != 2)
        return fail(log, r.line, "Missing .version directive at start of file");
    if (major > PTX_MAJOR || (major == PTX_MAJOR && minor > PTX_MINOR)) {
        snprintf(what, sizeof what, "Unsupported .version %d.%d; current version is '%d.%d'", major,
                 minor, PTX_MAJOR, PTX_MINOR);
        (void)fail(log, r.line, what);
        return CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    const char *target = strstr(r.at, ".target");
    if (!target || sscanf(target, ".target sm_%d", &sm) != 1)
        return fail(log, r.line, "Missing .target directive");
    if (sm > SM) {
        write_log(log, "ptxas fatal   : SM version specified by .target is higher than default SM "
                       "version assumed\n");
        return CULVERT__CUDA_ERROR_INVALID_PTX;
    }
    return check_statements(log, r);
}

/* ---- all kinds ---- */

int culvert__sim_image_refuse(const void *image, int other_version, unsigned n, const int *options,
                              void **values)
{
    const unsigned char *bytes = image;
    struct log log = find_log(n, options, values);
    if (other_version) {
        write_log(log, "the kernels were built for another version of Culvert");
        return CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    bool fatbin = bytes[0] == 0x50 && bytes[1] == 0xed;
    bool elf = bytes[0] == 0x7f && bytes[1] == 'E';
    bool ptx = (isprint(bytes[0]) || isspace(bytes[0])) && strstr(image, ".version");
    if (!fatbin && !elf && !ptx)
        return CULVERT__CUDA_ERROR_INVALID_IMAGE;
    int result = ptx && !fatbin ? check_ptx(image, log) : 0;
    if (result == 0) {
        write_log(log, "the simulator runs host-built kernels only");
        result = CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return result;
}
