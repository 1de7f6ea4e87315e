/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the structs of this layer's interface have in common: options and counters of a program that was
 * built with another version, and the checks at the door.
 */
#include "serve/serve_internal.h"

#include <string.h>

bool culvert__options_read(void *to, size_t size, const void *from, const char *type,
                           const char *op, const char *where, culvert_error *err)
{
    size_t theirs = 0;

    if (from != NULL)
        memcpy(&theirs, from, sizeof theirs);
    if (theirs < sizeof theirs || theirs > 65536) {
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "options.struct_size is %zu; it must be sizeof(%s)", theirs, type);
        return false;
    }
    for (size_t i = size; i < theirs; i++) {
        if (((const unsigned char *)from)[i] != 0) {
            culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                               "an option at offset %zu is not known to this version", i);
            return false;
        }
    }
    memset(to, 0, size);
    memcpy(to, from, theirs < size ? theirs : size);
    return true;
}

int culvert__counters_write(void *out, const void *counters, size_t size)
{
    size_t theirs;

    memcpy(&theirs, out, sizeof theirs);
    if (theirs < sizeof theirs || theirs > size)
        return CULVERT_EINVAL;
    memcpy(out, counters, theirs);
    memcpy(out, &theirs, sizeof theirs);
    return CULVERT_OK;
}

bool culvert__loop_refuses(culvert_loop *loop, const char *op, culvert_error *err)
{
    if (culvert__forked()) {
        culvert__error_set(err, CULVERT_EFORKED, 0, op, NULL, "%s",
                           culvert_error_text(CULVERT_EFORKED));
        return true;
    }
    culvert__check_thread(culvert__core_of(loop), op);
    if (!culvert__core_of(loop)->closing)
        return false;
    culvert__error_set(err, CULVERT_ESHUTDOWN, 0, op, NULL,
                       "culvert_loop_free has begun for this binding");
    return true;
}

culvert_future *culvert__own_future(culvert__core *core, culvert_future *f, const char *op,
                                    const char *where, culvert_error *err)
{
    if (f->core == core)
        return f;
    if (f->core == NULL)
        culvert__error_set(err, CULVERT_EFORKED, 0, op, where, "%s",
                           culvert_error_text(CULVERT_EFORKED));
    else
        culvert__error_set(err, CULVERT_EINVAL, 0, op, where,
                           "a callback returned a future of another loop");
    culvert__unref(f);
    return NULL;
}
