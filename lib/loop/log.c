/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the library has to say: log messages, and rejections that nobody looked at.
 */
#include "loop/binding.h"

#include <stdarg.h>
#include <stdio.h>

void culvert__loop_log(culvert_loop *loop, int level, const char *fmt, ...)
{
    char message[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (loop->options.on_log != NULL)
        loop->options.on_log(level, message, loop->options.arg);
    else if (level <= CULVERT_LOG_WARNING)
        fprintf(stderr, "culvert: %s: %s\n", level == CULVERT_LOG_ERROR ? "error" : "warning",
                message);
}

void culvert__loop_unhandled(culvert__core *core, const culvert_error *err)
{
    culvert_loop *loop = culvert__loop_of(core);
    char text[1024];

    if (loop->options.on_unhandled != NULL) {
        loop->options.on_unhandled(loop, err, loop->options.arg);
        return;
    }
    culvert_error_format(err, text, sizeof text);
    fprintf(stderr, "culvert: nobody looked at this rejection: %s\n", text);
}
