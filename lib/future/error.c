/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors as values: names, texts, classes and formatting.
 *
 * Invariants: everything here is constant or on the stack, so it may be called from any thread; a
 * message is always terminated and never cut inside a UTF-8 character.
 */
#define CULVERT_NO_WHERE
#include "culvert/error.h"

#include "future/future_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct entry {
    int code;
    culvert_error_class_id class_id;
    const char *name;
    culvert_error error;
} entry;

#define ENTRY(name, value, class_, text) \
    {value, CULVERT_CLASS_##class_, "CULVERT_" #name, {value, 0, NULL, NULL, text}},
static const entry entries[] = {CULVERT_ERRORS(ENTRY)};
#undef ENTRY

static const entry *find(int code)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (entries[i].code == code)
            return &entries[i];
    }
    return NULL;
}

const char *culvert_error_name(int code)
{
    const entry *e = find(code);

    if (e != NULL)
        return e->name;
    if (code == CULVERT_OK)
        return "CULVERT_OK";
    return code == CULVERT_PENDING ? "CULVERT_PENDING" : "CULVERT_E?";
}

const char *culvert_error_text(int code)
{
    const entry *e = find(code);

    if (e != NULL)
        return e->error.message;
    if (code == CULVERT_OK)
        return "success";
    return code == CULVERT_PENDING ? "pending" : "unknown error";
}

culvert_error_class_id culvert_error_class(int code)
{
    const entry *e = find(code);

    if (e != NULL)
        return e->class_id;
    return code == CULVERT_OK || code == CULVERT_PENDING ? CULVERT_CLASS_NONE
                                                         : CULVERT_CLASS_SYSTEM;
}

const culvert_error *culvert__static_error(int code)
{
    const entry *e = find(code);

    return e != NULL ? &e->error : &find(CULVERT_EUSER)->error;
}

/* Where snprintf cut a text, half a character may be left at the end. */
static void drop_half_character(char *text, size_t size)
{
    size_t end = size - 1, start = end;

    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;

    const unsigned char lead = (unsigned char)text[start - 1];
    const size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (end - (start - 1) < need)
        text[start - 1] = '\0';
}

static void format_message(culvert_error *err, const char *fmt, va_list ap)
{
    const int n = fmt != NULL ? vsnprintf(err->message, sizeof err->message, fmt, ap) : 0;

    if (n < 0)
        err->message[0] = '\0';
    else if ((size_t)n >= sizeof err->message)
        drop_half_character(err->message, sizeof err->message);
}

void culvert_error_set(culvert_error *err, int code, int native, const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->native = native;
    va_start(ap, fmt);
    format_message(err, fmt, ap);
    va_end(ap);
}

void culvert__error_set(culvert_error *err, int code, int native, const char *op, const char *where,
                        const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return;
    va_start(ap, fmt);
    culvert__error_vset(err, code, native, op, where, fmt, ap);
    va_end(ap);
}

void culvert__error_vset(culvert_error *err, int code, int native, const char *op,
                         const char *where, const char *fmt, va_list ap)
{
    memset(err, 0, sizeof *err);
    err->code = code;
    err->native = native;
    err->op = op;
    err->where = where;
    format_message(err, fmt, ap);
}

size_t culvert_error_format(const culvert_error *err, char *out, size_t size)
{
    if (err == NULL || err->code == CULVERT_OK) {
        const int n = snprintf(out, size, "no error");
        return n < 0 ? 0 : (size_t)n;
    }

    char native[32] = "";
    if (err->native != 0)
        snprintf(native, sizeof native, " (native %d)", err->native);

    const char *text = err->message[0] != '\0' ? err->message : culvert_error_text(err->code);
    const int n = snprintf(out, size, "%s%s%s%s%s: %.*s%s", culvert_error_name(err->code),
                           err->op != NULL ? " in " : "", err->op != NULL ? err->op : "",
                           err->where != NULL ? " at " : "", err->where != NULL ? err->where : "",
                           CULVERT_ERROR_MESSAGE_SIZE - 1, text, native);
    if (n > 0 && size > 0 && (size_t)n >= size)
        drop_half_character(out, size);
    return n < 0 ? 0 : (size_t)n;
}

bool culvert__seconds_ok(double seconds, const char *op, const char *where, culvert_error *err)
{
    if (seconds >= 0.0) /* false for NaN; -0.0 is 0 */
        return true;
    culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                       "seconds is %g; it must be 0 or more, or infinite", seconds);
    return false;
}
