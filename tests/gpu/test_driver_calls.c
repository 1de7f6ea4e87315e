/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * docs/driver-calls.md says which functions of the driver each operation calls. Here each is done, its calls
 * are counted, and the rows that come of it must be those of the document, all of them and in this order.
 */
#include "culvert/sim.h"
#include "driver/table.h"
#include "fixture.culvert.h"
#include "gpu/gpu_fixture.h"
#include "gpu/trial.h"
#include "lib/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const functions[] = {
#define X(name, abi, ask, need, symbol) #name,
#include "driver/driver.def"
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0], ROWS = 100, WIDTH = 1200 };

/* Around whatever is done: the context, and how the end of work is found out. */
static const char *const everywhere[] = {"cuCtxGetCurrent",
                                         "cuCtxPushCurrent",
                                         "cuCtxPopCurrent",
                                         "cuCtxSetCurrent",
                                         "cuThreadExchangeStreamCaptureMode",
                                         "cuEventRecord",
                                         "cuEventQuery"};

static uint64_t before[FUNCTIONS];
static char rows[ROWS][WIDTH];
static unsigned nrows;

static void begin_row(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        before[i] = culvert_sim_calls(functions[i]);
}

static bool is_everywhere(const char *name)
{
    for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++)
        if (strcmp(name, everywhere[i]) == 0)
            return true;
    return false;
}

static void end_row_with(const char *what, bool all)
{
    ck_assert_uint_lt(nrows, ROWS);
    char *row = rows[nrows++];
    size_t n = (size_t)snprintf(row, WIDTH, "| %s |", what), begun = n;
    for (int i = 0; i < FUNCTIONS; i++) {
        if (culvert_sim_calls(functions[i]) == before[i] || (!all && is_everywhere(functions[i])))
            continue;
        n += (size_t)snprintf(row + n, WIDTH - n, "%s `%s`", n > begun ? "," : "", functions[i]);
        ck_assert_uint_lt(n, WIDTH - 100);
    }
    snprintf(row + n, WIDTH - n, n > begun ? " |" : " nothing |");
}

static void end_row(const char *what)
{
    end_row_with(what, false);
}

/* ---- the operations ---- */

enum { MIB = 1024 * 1024, BYTES = 4096 };

static struct ev_loop *ev;
static culvert_loop *loop;
static culvert_gpu *gpu, *second;
static culvert_stream *stream, *other;
static culvert_buffer *a, *b, *host, *far;
static culvert_module *module;
static unsigned char memory[BYTES], registered[BYTES];
static const culvert_grid one = {.blocks = {1}, .threads = {1}};

static void *taken(culvert_future *future)
{
    gpu_fixture_ok(culvert_ref(future));
    void *value = culvert_take(future);
    culvert_unref(future);
    ck_assert_ptr_nonnull(value);
    return value;
}

static void until_gone(const char *kind, uint64_t left)
{
    double patience = test_now() + 100;
    while (culvert_sim_live(kind) > left && test_now() < patience)
        trial_turn(ev, 0.01);
    ck_assert_uint_eq(culvert_sim_live(kind), left);
}

static void opening(void)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    culvert_gpu_options gpu_options = CULVERT_GPU_OPTIONS_INIT;
    options.wake = CULVERT_WAKE_SPIN;    /* nothing but queries finds the end of work */
    gpu_options.trim_seconds = INFINITY; /* see going_back() */
    ev = ev_loop_new(EVFLAG_AUTO);
    loop = culvert_loop_new(ev, &options, NULL);
    begin_row();
    ck_assert_int_eq(culvert_gpu_count(loop, NULL), 2);
    end_row("`culvert_gpu_count`, or `culvert_gpu_open`, the first of the process");
    begin_row();
    (void)culvert_gpu_count(loop, NULL);
    end_row("`culvert_gpu_count`, later");
    begin_row();
    gpu = culvert_gpu_open(loop, 0, &gpu_options, NULL);
    ck_assert_ptr_nonnull(gpu);
    end_row("`culvert_gpu_open`");
    begin_row();
    second = culvert_gpu_open(loop, 1, NULL, NULL);
    ck_assert_ptr_nonnull(second);
    end_row("`culvert_gpu_open` of a second device");
    begin_row();
    stream = culvert_stream_new(gpu, NULL, NULL);
    end_row("`culvert_stream_new`; `culvert_stream_pick` while the pool grows");
    other = culvert_stream_new(gpu, NULL, NULL);
}

static void memories(void)
{
    begin_row();
    a = culvert_buffer_new(gpu, BYTES, NULL);
    end_row("`culvert_buffer_new` where the heap grows");
    begin_row();
    b = culvert_buffer_new(gpu, BYTES, NULL);
    host = culvert_host_buffer_new(gpu, BYTES, NULL);
    culvert_buffer_unref(culvert_buffer_new(gpu, BYTES, NULL));
    end_row(
        "`culvert_buffer_new`, `culvert_host_buffer_new` where there is room; `culvert_buffer_unref`");
    begin_row();
    culvert_buffer *large = culvert_host_buffer_new(gpu, 20 * MIB, NULL);
    end_row("`culvert_host_buffer_new` where the pool grows");
    culvert_buffer_unref(large);
    begin_row();
    culvert_buffer_unref(taken(culvert_buffer_alloc(gpu, 100 * MIB)));
    end_row("`culvert_buffer_alloc` where the heap grows");
    begin_row();
    culvert_buffer_unref(taken(culvert_host_buffer_alloc(gpu, 40 * MIB)));
    end_row("`culvert_host_buffer_alloc` where the pool grows");
    begin_row();
    culvert_buffer_unref(
        culvert_buffer_adopt(gpu, culvert_buffer_address(a), 64, NULL, NULL, NULL));
    end_row("`culvert_buffer_adopt`");
    begin_row();
    culvert_buffer *pinned = culvert_host_register(gpu, registered, BYTES, NULL);
    end_row("`culvert_host_register`");
    begin_row();
    gpu_fixture_ok(culvert_host_unregister(gpu, pinned));
    end_row("`culvert_host_unregister`");
    far = culvert_buffer_new(second, BYTES, NULL);
}

static void modules(void)
{
    begin_row();
    module = taken(culvert_module_load(gpu, &culvert_image_fixture));
    end_row("`culvert_module_load`, of which the kernels are loaded");
    begin_row();
    culvert_kernel *kernel = culvert_module_kernel(module, "empty", NULL);
    end_row("`culvert_module_kernel`");
    begin_row();
    ck_assert_ptr_null(culvert_module_kernel(module, "nobody", NULL));
    end_row("`culvert_module_kernel` of one that was not loaded with the module");
    begin_row();
    ck_assert_ptr_null(culvert_module_global(module, "nobody", NULL));
    end_row("`culvert_module_global`");
    begin_row();
    ck_assert_int_eq(culvert_kernel_occupancy(kernel, 0, NULL, NULL), CULVERT_OK);
    end_row("`culvert_kernel_occupancy`");
    unsigned blocks;
    begin_row();
    ck_assert_int_eq(culvert_kernel_max_blocks(kernel, 32, 0, &blocks), CULVERT_OK);
    end_row("`culvert_kernel_max_blocks`; building a cooperative launch");
}

/* Twice, so that what grows once has grown. */
#define WORK(what, future)      \
    do {                        \
        gpu_fixture_ok(future); \
        begin_row();            \
        gpu_fixture_ok(future); \
        end_row(what);          \
    } while (0)

static culvert_future *cooperative(culvert_kernel *kernel)
{
    culvert_grid grid = one;
    grid.flags = CULVERT_GRID_COOPERATIVE;
    return culvert_launch(stream, kernel, &grid, NULL, 0);
}

static culvert_future *pitched(void)
{
    culvert_copy2d rectangle = {
        .dst = a, .dst_pitch = 16, .src = b, .src_pitch = 16, .width = 8, .height = 4};
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_copy2d(seq, &rectangle);
    return culvert_seq_submit(seq);
}

/* A wait of the device. */
static culvert_future *waiting(void)
{
    culvert_sim_hold(NULL);
    culvert_future *first = culvert_stream_done(other);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_wait(seq, first);
    culvert_future *future = culvert_seq_submit(seq);
    culvert_sim_release(NULL);
    return future;
}

static culvert_future *timed(void)
{
    trial_turn(ev, 0.001); /* the one before has gone */
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_timed(seq);
    culvert_future *future = culvert_seq_submit(seq);
    gpu_fixture_ok(culvert_ref(future));
    ck_assert(!isnan(culvert_gpu_seconds(future)));
    return future;
}

static void works(void)
{
    culvert_kernel *kernel = culvert_module_kernel(module, "empty", NULL);
    gpu_fixture_ok(culvert_stream_done(stream));
    begin_row();
    gpu_fixture_ok(culvert_stream_done(stream));
    end_row_with("the end of a sequence, or of each 256 operations of it; `culvert_stream_done`",
                 true);
    WORK("an upload", culvert_upload(stream, a, 0, memory, BYTES));
    WORK("a download", culvert_download(stream, memory, a, 0, BYTES));
    WORK("a copy from device to device", culvert_copy(stream, a, 0, b, 0, BYTES));
    WORK("a copy from a host buffer", culvert_copy(stream, a, 0, host, 0, BYTES));
    WORK("a copy into a host buffer", culvert_copy(stream, host, 0, a, 0, BYTES));
    WORK("a copy from or to another device", culvert_copy(stream, a, 0, far, 0, BYTES));
    WORK("`culvert_seq_copy2d`", pitched());
    WORK("a fill, pattern of 1 byte", culvert_fill(stream, a, 0, BYTES, 1, 1));
    WORK("a fill, pattern of 2 bytes", culvert_fill(stream, a, 0, BYTES, 1, 2));
    WORK("a fill, pattern of 4 bytes", culvert_fill(stream, a, 0, BYTES, 1, 4));
    WORK("a launch", culvert_launch(stream, kernel, &one, NULL, 0));
    WORK("a cooperative launch, or one in clusters", cooperative(kernel));
    WORK("`culvert_seq_wait` where the device waits", waiting());
    gpu_fixture_ok(timed()); /* one event stays */
    WORK("`culvert_seq_timed`, and `culvert_gpu_seconds`", timed());
    (void)culvert_stream_native(other);
    WORK("anything on a stream of which `culvert_stream_native` was asked for",
         culvert_stream_done(other));
}

static culvert_future *launch_graph(culvert_graph *graph, const culvert_bind *binds, size_t n)
{
    return culvert_graph_launch(stream, graph, binds, n);
}

static void graphs(void)
{
    culvert_kernel *kernel = culvert_module_kernel(module, "add_word", NULL);
    culvert_seq *seq = culvert_seq_begin(stream);
    culvert_seq_launch(seq, kernel, &one,
                       CULVERT_ARGS(CULVERT_BUFFER(a), CULVERT_U32(0), CULVERT_U32(1)));
    culvert_seq_fill(seq, b, 0, 64, 1, 4);
    culvert_seq_copy(seq, a, 64, b, 64, 64);
    begin_row();
    culvert_graph *graph = taken(culvert_seq_compile(seq));
    end_row("`culvert_seq_compile` of a launch, a fill and a copy");
    WORK("`culvert_graph_launch`, `culvert_seq_graph`", launch_graph(graph, NULL, 0));
    culvert_bind binds[] = {{.op = 0, .index = 1, .value = CULVERT_U32(1)},
                            {.op = 1, .index = 0, .value = CULVERT_BUFFER_AT(b, 128)},
                            {.op = 2, .index = 0, .value = CULVERT_BUFFER_AT(a, 256)}};
    begin_row();
    gpu_fixture_ok(launch_graph(graph, binds, 3));
    end_row("... with binds of these");
    begin_row();
    culvert_graph_unref(graph);
    until_gone("graph", 0);
    end_row("`culvert_graph_unref`");
}

static void closing(void)
{
    culvert_buffer *buffers[] = {a, b, host, far};
    begin_row();
    culvert_stream_unref(other);
    end_row("`culvert_stream_unref`");
    begin_row();
    culvert_module_unref(module);
    until_gone("module", 0);
    end_row("`culvert_module_unref`");
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        culvert_buffer_unref(buffers[i]);
    culvert_gpu_close(second);
    culvert_stream_unref(stream);
    begin_row();
    culvert_gpu_close(gpu);
    end_row("`culvert_gpu_close`, when all else has gone");
    culvert_loop_free(loop);
    ev_loop_destroy(ev);
}

/* The loop that sleeps, with a kernel that takes longer than it would spin. */
static void sleeping(void)
{
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    gpu_fixture f;
    options.wake = CULVERT_WAKE_HOST_FUNC;
    gpu_fixture_open_as_is(&f, &options, NULL);
    culvert_kernel *busy = culvert_module_kernel(f.module, "busy", NULL);
    begin_row();
    gpu_fixture_ok(culvert_launch(f.stream, busy, &one, CULVERT_ARGS(CULVERT_U64(50000000))));
    end_row("a launch behind which the loop goes to sleep");
    gpu_fixture_close(&f);
}

static void going_back(void)
{
    culvert_gpu_options options = CULVERT_GPU_OPTIONS_INIT;
    gpu_fixture f;
    options.trim_seconds = 0.02;
    gpu_fixture_open_as_is(&f, NULL, &options);
    ev = f.ev;
    culvert_buffer *pieces = taken(culvert_host_buffer_alloc(f.gpu, 40 * MIB));
    culvert_buffer *whole = culvert_host_buffer_new(f.gpu, 60 * MIB, NULL);
    culvert_buffer *device = culvert_buffer_new(f.gpu, 100 * MIB, NULL);
    begin_row();
    culvert_buffer_unref(pieces);
    culvert_buffer_unref(whole);
    culvert_buffer_unref(device);
    until_gone("device bytes", 0);
    until_gone("pinned bytes", 8 * MIB);
    end_row("a device that is idle gives memory back");
    gpu_fixture_close(&f);
}

/* ---- the document ---- */

static void compare(void)
{
    static char line[WIDTH];
    unsigned found = 0, wrong = 0;
    FILE *file = fopen(DOCUMENT, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "| ", 2) != 0 || strncmp(line, "| operation", 11) == 0)
            continue;
        if (found >= nrows || strcmp(line, rows[found]) != 0)
            wrong++;
        found++;
    }
    fclose(file);
    if (wrong == 0 && found == nrows)
        return;
    fprintf(stderr, "%s: %u rows differ; the calls are\n", DOCUMENT, wrong);
    for (unsigned i = 0; i < nrows; i++)
        fprintf(stderr, "%s\n", rows[i]);
    ck_abort_msg("%u of %u rows of the document differ from the %u that there are", wrong, found,
                 nrows);
}

START_TEST(the_document_has_the_calls_of_each_operation)
{
    gpu_fixture_reset();
    culvert_sim_devices(2);
    opening();
    memories();
    modules();
    works();
    graphs();
    closing();
    sleeping();
    going_back();
    compare();
}
END_TEST

int main(void)
{
    trials *t = trials_new("driver_calls");
    TRIAL(t, the_document_has_the_calls_of_each_operation);
    return trials_run(t);
}
