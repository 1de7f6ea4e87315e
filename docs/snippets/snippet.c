/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs of the guide share.
 */
#include "snippet.h"

#include "vector.culvert.h"

#include <stdio.h>
#include <stdlib.h>

void snippet_print(const char *what, const culvert_error *err)
{
    printf("%s: %s%s%s\n", what, culvert_error_name(err->code), err->message[0] ? ": " : "",
           err->message);
}

void *snippet_must(void *handle, const culvert_error *err)
{
    char line[512];
    if (handle == NULL) {
        (void)culvert_error_format(err, line, sizeof line);
        fprintf(stderr, "%s\n", line);
        exit(1);
    }
    return handle;
}

void snippet_check(culvert_future *f, int status)
{
    char line[512];
    if (status == CULVERT_OK)
        return;
    if (status == CULVERT_PENDING)
        snprintf(line, sizeof line, "not over within 60 s");
    else
        (void)culvert_error_format(culvert_get_error(f), line, sizeof line);
    fprintf(stderr, "%s\n", line);
    exit(1);
}

void snippet_finish(culvert_future *f)
{
    snippet_check(f, culvert_await(f, 60));
    culvert_unref(f);
}

void snippet_open_loop(snippet *s, const culvert_loop_options *options)
{
    culvert_error err = CULVERT_ERROR_INIT;
    *s = (snippet){.ev = ev_default_loop(0)};
    s->loop = snippet_must(culvert_loop_new(s->ev, options, &err), &err);
}

void snippet_open(snippet *s, const culvert_loop_options *loop_options,
                  const culvert_gpu_options *gpu_options)
{
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open_loop(s, loop_options);
    s->gpu = snippet_must(culvert_gpu_open(s->loop, 0, gpu_options, &err), &err);
    s->stream = snippet_must(culvert_stream_new(s->gpu, NULL, &err), &err);
}

culvert_kernel *snippet_kernel(snippet *s, const char *name)
{
    culvert_error err = CULVERT_ERROR_INIT;
    if (s->module == NULL)
        s->module = culvert_module_load(s->gpu, &culvert_image_vector);
    int r = culvert_await(s->module, 60);
    if (r == CULVERT_PENDING)
        culvert_error_set(&err, CULVERT_ETIMEDOUT, 0, "vector.cu was not loaded within 60 s");
    else if (r != CULVERT_OK)
        err = *culvert_get_error(s->module);
    culvert_module *module = r == CULVERT_OK ? culvert_value(s->module) : NULL;
    culvert_kernel *kernel = module != NULL ? culvert_module_kernel(module, name, &err) : NULL;
    return snippet_must(kernel, &err);
}

void snippet_close(snippet *s)
{
    culvert_unref(s->module);
    culvert_stream_unref(s->stream);
    culvert_gpu_close(s->gpu);
    culvert_loop_free(s->loop);
}
