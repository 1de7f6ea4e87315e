/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The results of the driver: names, texts, classes, and errors made of them.
 *
 * Invariants: everything is read from errors.def, so a code that is listed has a name, a text and a
 * class. For listed codes the driver is never called: this runs after a device was lost, too, when
 * a call would only fail again.
 */
#include "driver/table.h"

#include "future/future_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct result_row {
    int code;
    culvert__driver_class class_;
    const char *name;
    const char *text;
} result_row;

static const result_row rows[] = {
#define X(code, name, class_, text) {code, CULVERT__DRIVER_##class_, #name, text},
#include "driver/errors.def"
};

static const result_row *find_row(int result)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == result)
            return &rows[i];
    return NULL;
}

culvert__driver_class culvert__driver_classify(int result)
{
    const result_row *row = find_row(result);
    return row != NULL ? row->class_ : CULVERT__DRIVER_UNLISTED;
}

culvert__driver_class culvert__driver_classify_query(int result)
{
    culvert__driver_class class_ = culvert__driver_classify(result);
    return class_ == CULVERT__DRIVER_UNLISTED ? CULVERT__DRIVER_LOST : class_;
}

const char *culvert__driver_error_name(const culvert__driver *driver, int result)
{
    const result_row *row = find_row(result);
    if (row != NULL)
        return row->name;
    const char *name = NULL;
    if (driver == NULL || driver->cuGetErrorName(result, &name) != CULVERT__CUDA_SUCCESS ||
        name == NULL)
        return "CUDA_ERROR_?";
    return name;
}

const char *culvert__driver_error_text(const culvert__driver *driver, int result)
{
    const result_row *row = find_row(result);
    if (row != NULL)
        return row->text;
    const char *text = NULL;
    if (driver == NULL || driver->cuGetErrorString(result, &text) != CULVERT__CUDA_SUCCESS ||
        text == NULL)
        return "unknown to this library";
    return text;
}

/* Calls whose result tells of earlier work. */
static int is_query(const char *call)
{
    static const char *const queries[] = {"cuEventQuery", "cuEventSynchronize", "cuStreamQuery",
                                          "cuStreamSynchronize"};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        if (strcmp(call, queries[i]) == 0)
            return 1;
    return 0;
}

static int code_of(int result, const char *call)
{
    culvert__driver_class class_ =
        is_query(call) ? culvert__driver_classify_query(result) : culvert__driver_classify(result);
    switch (class_) {
    case CULVERT__DRIVER_OK: return CULVERT_OK;
    case CULVERT__DRIVER_LOST: return CULVERT_EDEVICELOST;
    case CULVERT__DRIVER_TRY_AGAIN: return CULVERT_ENOMEM;
    case CULVERT__DRIVER_SHUTDOWN: return CULVERT_ESHUTDOWN;
    case CULVERT__DRIVER_NOT_READY:
    case CULVERT__DRIVER_OWN:
    case CULVERT__DRIVER_UNLISTED: break;
    }
    switch (result) {
    case CULVERT__CUDA_ERROR_NOT_SUPPORTED: return CULVERT_ENOTSUP;
    case CULVERT__CUDA_ERROR_NO_DEVICE:
    case CULVERT__CUDA_ERROR_INVALID_DEVICE: return CULVERT_ENODEVICE;
    default: return CULVERT_EDRIVER;
    }
}

int culvert__driver_error(const culvert__driver *driver, int result, const char *call,
                          culvert_error *err)
{
    int code = code_of(result, call);
    if (code == CULVERT_OK) {
        if (err != NULL)
            *err = (culvert_error)CULVERT_ERROR_INIT;
        return code;
    }
    const char *name = culvert__driver_error_name(driver, result);
    const char *text = culvert__driver_error_text(driver, result);
    if (driver == NULL) {
        culvert__error_set(err, code, result, call, NULL, "%s: %s (%d): %s", call, name, result,
                           text);
        return code;
    }
    culvert__version_text version;
    culvert__error_set(err, code, result, call, NULL, "%s: %s (%d): %s; driver %s (%s)", call, name,
                       result, text, culvert__driver_version_text(driver->version, &version),
                       driver->file);
    return code;
}

const char *culvert__driver_version_text(int version, culvert__version_text *out)
{
    snprintf(out->text, sizeof out->text, "%d.%d", version / 1000, version % 1000 / 10);
    return out->text;
}

const char *culvert__toolkit_version(void)
{
#ifdef CULVERT__TOOLKIT_VERSION
    return CULVERT__TOOLKIT_VERSION;
#else
    return NULL;
#endif
}
