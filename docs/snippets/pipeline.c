/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pipeline from descriptor to descriptor: reading, the device and writing overlap.
 *
 * Prints:
 *     wrote 1000000 bytes in 16 chunks
 *     all of them tenfold: yes
 */
#define _POSIX_C_SOURCE 200809L
#include "snippet.h"

#include <stdio.h>

enum { N = 250000, CHUNK = 65536 };

/* region: stages */
typedef struct scaling {
    culvert_gpu *gpu;
    culvert_kernel *scale;
    culvert_descriptor *in, *out;
} scaling;

static culvert_future *read_chunk(culvert_chunk *chunk, void *arg)
{
    const scaling *s = arg;
    return culvert_chunk_read(chunk, s->in);
}

static culvert_future *process(culvert_chunk *chunk, void *arg)
{
    const scaling *s = arg;
    culvert_error err = CULVERT_ERROR_INIT;
    unsigned n = (unsigned)(chunk->bytes / sizeof(float));
    culvert_stream *stream = culvert_stream_pick(s->gpu, CULVERT_PRIORITY_NORMAL, &err);
    if (stream == NULL)
        return culvert_rejected(culvert_gpu_loop(s->gpu), &err);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_stream_unref(stream);
    culvert_buffer *x = culvert_seq_scratch(seq, chunk->bytes);
    culvert_seq_copy(seq, x, 0, chunk->host, 0, chunk->bytes);
    culvert_seq_launch(seq, s->scale, &(culvert_grid){.blocks = {n / 256 + 1}, .threads = {256}},
                       CULVERT_ARGS(CULVERT_BUFFER(x), CULVERT_F32(10.0f), CULVERT_U32(n)));
    culvert_seq_copy(seq, chunk->host, 0, x, 0, chunk->bytes);
    return culvert_seq_submit(seq); /* its own future: only then is the chunk's memory free */
}

static culvert_future *write_chunk(culvert_chunk *chunk, void *arg)
{
    const scaling *s = arg;
    return culvert_chunk_write(chunk, s->out);
}
/* end region */

static void fill(FILE *file)
{
    for (int i = 0; i < N; i++) {
        float x = (float)i;
        fwrite(&x, sizeof x, 1, file);
    }
    fflush(file);
    rewind(file);
}

static int is_tenfold(FILE *file)
{
    float x;
    int i = 0;
    rewind(file);
    while (fread(&x, sizeof x, 1, file) == 1 && x == 10.0f * (float)i)
        i++;
    return i == N;
}

static void run(snippet *snip, scaling *s, int from, int to)
{
    culvert_loop *loop = snip->loop;
    culvert_gpu *gpu = snip->gpu;
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_pipeline_counters counters = {.struct_size = sizeof counters};
    /* region: run */
    s->in = snippet_must(culvert_descriptor_new(loop, from, "the input", &err), &err);
    s->out = snippet_must(culvert_descriptor_new(loop, to, "the output", &err), &err);

    culvert_pipeline_options options = CULVERT_PIPELINE_OPTIONS_INIT;
    options.chunk_bytes = CHUNK;
    options.depth = 4; /* chunks on their way at most */
    options.read = read_chunk;
    options.process = process;
    options.write = write_chunk;
    options.arg = s;
    culvert_future *done = culvert_pipeline_run(gpu, &options);
    /* end region */

    if (culvert_await(done, 60) != CULVERT_OK)
        snippet_print("pipeline", culvert_get_error(done));
    culvert_pipeline_stats(done, &counters);
    printf("wrote %d bytes in %d chunks\n", (int)counters.bytes_written,
           (int)counters.chunks_written);
    culvert_unref(done);
    culvert_descriptor_free(s->in);
    culvert_descriptor_free(s->out);
}

int main(void)
{
    snippet s;
    snippet_open(&s, NULL, NULL);
    scaling scale = {.gpu = s.gpu, .scale = snippet_kernel(&s, "scale")};
    FILE *from = tmpfile(), *to = tmpfile();
    if (from == NULL || to == NULL) {
        perror("a temporary file");
        return 1;
    }
    fill(from);
    run(&s, &scale, fileno(from), fileno(to));
    printf("all of them tenfold: %s\n", is_tenfold(to) ? "yes" : "no");
    fclose(from);
    fclose(to);
    snippet_close(&s);
    return 0;
}
