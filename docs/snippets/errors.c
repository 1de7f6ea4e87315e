/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors: code, class, native number, the call and its place; what to do by class.
 *
 * Prints:
 *     code:    CULVERT_EINVAL (the caller's mistake)
 *     native:  0
 *     op:      culvert_seq_download
 *     where:   errors.c, with the line
 *     message: download of 4096 bytes at offset 8192 runs past the end of a 10000-byte buffer
 *     the step failed: CULVERT_EUSER: 3 of 4 lamps are lit
 *     give up, again, replace, give up
 */
#include "snippet.h"

#include <stdio.h>
#include <string.h>

/* region: class */
/* What a server may do about a failed request. */
static const char *what_to_do(const culvert_error *err)
{
    switch (culvert_error_class(err->code)) {
    case CULVERT_CLASS_AGAIN: return "again";         /* later, or with less */
    case CULVERT_CLASS_DEVICE_LOST: return "replace"; /* this process, by a new one */
    case CULVERT_CLASS_CANCELED:
    case CULVERT_CLASS_SHUTDOWN: return "nothing"; /* it was asked for */
    default: return "give up";                     /* the same call would fail again */
    }
}
/* end region */

static void look(const culvert_error *err)
{
    int callers = culvert_error_class(err->code) == CULVERT_CLASS_CALLER;
    const char *place = err->where != NULL ? strstr(err->where, "errors.c:") : NULL;
    printf("code:    %s%s\n", culvert_error_name(err->code),
           callers ? " (the caller's mistake)" : "");
    printf("native:  %d\n", err->native);
    printf("op:      %s\n", err->op);
    printf("where:   %s\n", place != NULL ? "errors.c, with the line" : "not known");
    printf("message: %s\n", err->message);
}

static void past_the_end(snippet *s)
{
    culvert_stream *stream = s->stream;
    culvert_error err = CULVERT_ERROR_INIT;
    static char memory[4096];
    culvert_buffer *buffer = snippet_must(culvert_buffer_new(s->gpu, 10000, &err), &err);
    /* region: look */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_download(seq, memory, buffer, 8192, sizeof memory);
    culvert_future *f = culvert_seq_submit(seq);
    if (culvert_await(f, 60) != CULVERT_OK)
        look(culvert_get_error(f)); /* borrowed: valid as long as f */
    culvert_unref(f);
    /* end region */
    culvert_buffer_unref(buffer);
}

/* region: fail */
static culvert_future *check(culvert_future *done, void *arg)
{
    int lit = *(int *)arg;
    if (lit < 4)
        return culvert_fail(culvert_future_loop(done), CULVERT_EUSER, lit, "%d of 4 lamps are lit",
                            lit);
    return NULL;
}
/* end region */

int main(void)
{
    snippet s;
    int lit = 3;
    culvert_error errs[] = {{.code = CULVERT_EINVAL},
                            {.code = CULVERT_EAGAIN},
                            {.code = CULVERT_EDEVICELOST},
                            {.code = CULVERT_EUSER}};
    snippet_open(&s, NULL, NULL);
    past_the_end(&s);
    culvert_future *f = culvert_then(culvert_resolved(s.loop, NULL, NULL), check, &lit, NULL);
    if (culvert_await(f, 60) != CULVERT_OK)
        snippet_print("the step failed", culvert_get_error(f));
    culvert_unref(f);
    printf("%s, %s, %s, %s\n", what_to_do(&errs[0]), what_to_do(&errs[1]), what_to_do(&errs[2]),
           what_to_do(&errs[3]));
    snippet_close(&s);
    return 0;
}
