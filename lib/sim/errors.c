/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * errors.c: the names and texts of results.
 */
#include "sim/engine.h"

static const struct text {
    int code;
    const char *name, *text;
} texts[] = {
#define X(code, name, class_, text) {code, #name, text},
#include "driver/errors.def"
};

static const struct text *find(int code)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].code == code)
            return &texts[i];
    }
    return NULL;
}

int cuGetErrorName(culvert__CUresult error, const char **out)
{
    CULVERT__SIM_ENTER(cuGetErrorName);
    if (!out)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    const struct text *t = find(error);
    *out = t ? t->name : NULL;
    return t ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}

int cuGetErrorString(culvert__CUresult error, const char **out)
{
    CULVERT__SIM_ENTER(cuGetErrorString);
    if (!out)
        return CULVERT__CUDA_ERROR_INVALID_VALUE;
    const struct text *t = find(error);
    *out = t ? t->text : NULL;
    return t ? 0 : CULVERT__CUDA_ERROR_INVALID_VALUE;
}
