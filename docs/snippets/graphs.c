/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Graphs: a sequence that is compiled once and launched with other arguments each time.
 *
 * Prints:
 *     first request: 0 2 4
 *     second request: 100 110 120
 *     refused: CULVERT_EINVAL: argument 1 of kernel scale has 8 bytes; the parameter has 4
 */
#include "snippet.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 4096 };

static const culvert_grid grid = {.blocks = {N / 256}, .threads = {256}};

/* Memory of one request. */
typedef struct request {
    culvert_buffer *host, *device;
} request;

static request request_new(culvert_gpu *gpu, float first)
{
    culvert_error err = CULVERT_ERROR_INIT;
    request r = {
        .host = snippet_must(culvert_host_buffer_new(gpu, N * sizeof(float), &err), &err),
        .device = snippet_must(culvert_buffer_new(gpu, N * sizeof(float), &err), &err),
    };
    float *x = culvert_buffer_data(r.host);
    for (int i = 0; i < N; i++)
        x[i] = first + (float)i;
    return r;
}

static void request_free(request *r)
{
    culvert_buffer_unref(r->host);
    culvert_buffer_unref(r->device);
}

/* region: compile */
/* Once, before service. Operations: 0 the upload, 1 the launch, 2 the download. */
static culvert_future *compile(culvert_stream *stream, culvert_kernel *scale, const request *r)
{
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_upload(seq, r->device, 0, culvert_buffer_data(r->host), N * sizeof(float));
    culvert_seq_launch(seq, scale, &grid,
                       CULVERT_ARGS(CULVERT_BUFFER(r->device), CULVERT_F32(2), CULVERT_U32(N)));
    culvert_seq_download(seq, culvert_buffer_data(r->host), r->device, 0, N * sizeof(float));
    return culvert_seq_compile(seq); /* value: culvert_graph * */
}
/* end region */

/* region: launch */
/* Each time, with memory and arguments of its own, on any stream of the device. */
static culvert_future *launch(culvert_stream *stream, culvert_graph *graph, const request *r,
                              float by)
{
    float *x = culvert_buffer_data(r->host);
    const culvert_bind binds[] = {
        {.op = 0, .index = 0, .value = CULVERT_BUFFER(r->device)}, /* destination of the upload */
        {.op = 0, .index = 1, .value = CULVERT_HOST(x)},           /* its source */
        {.op = 1, .index = 0, .value = CULVERT_BUFFER(r->device)}, /* arguments of the kernel */
        {.op = 1, .index = 1, .value = CULVERT_F32(by)},
        {.op = 2, .index = 0, .value = CULVERT_HOST(x)}, /* destination of the download */
        {.op = 2, .index = 1, .value = CULVERT_BUFFER(r->device)},
    };
    return culvert_graph_launch(stream, graph, binds, sizeof binds / sizeof binds[0]);
}
/* end region */

static void show(const char *what, culvert_future *f, const request *r)
{
    const float *x = culvert_buffer_data(r->host);
    if (culvert_await(f, 60) == CULVERT_OK)
        printf("%s: %g %g %g\n", what, x[0], x[1], x[2]);
    else
        snippet_print(what, culvert_get_error(f));
    culvert_unref(f);
}

int main(void)
{
    snippet s;
    culvert_error err = CULVERT_ERROR_INIT;
    snippet_open(&s, NULL, NULL);
    culvert_kernel *scale = snippet_kernel(&s, "scale");
    culvert_stream *other = snippet_must(culvert_stream_new(s.gpu, NULL, &err), &err);
    request first = request_new(s.gpu, 0), second = request_new(s.gpu, 10);

    culvert_future *compiled = compile(s.stream, scale, &first);
    if (culvert_await(compiled, 60) != CULVERT_OK)
        snippet_print("compile", culvert_get_error(compiled));
    culvert_graph *graph = snippet_must(culvert_take(compiled), &err);
    culvert_unref(compiled);

    culvert_future *a = launch(s.stream, graph, &first, 2);
    culvert_future *b = launch(other, graph, &second, 10); /* beside the first one */
    show("first request", a, &first);
    show("second request", b, &second);
    const culvert_bind wrong = {.op = 1, .index = 1, .value = CULVERT_F64(3)};
    show("refused", culvert_graph_launch(other, graph, &wrong, 1), &second);

    culvert_graph_unref(graph);
    request_free(&first);
    request_free(&second);
    culvert_stream_unref(other);
    snippet_close(&s);
    return 0;
}
