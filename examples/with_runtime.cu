/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the CUDA runtime that shares streams and memory with Culvert: a kernel launched with <<<>>>
 * on a cudaStream_t, into memory of cudaMalloc; Culvert's fill and download on the same stream and the
 * same memory; and the end of an event that the runtime recorded.
 */
#include <culvert/culvert.h>
#include <ev.h>

#include <cmath>
#include <cstdio>

static const unsigned N = 1 << 16;

__global__ static void add(unsigned *values, unsigned n, unsigned more)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += i + more;
}

static int failed(const char *what, const char *why)
{
    std::fprintf(stderr, "with-runtime: %s: %s\n", what, why);
    return 1;
}

static int await(culvert_future *future, const char *what)
{
    int status = culvert_await(future, INFINITY);
    if (status != CULVERT_OK)
        (void)failed(what, culvert_error_text(status));
    culvert_unref(future);
    return status;
}

static int share(culvert_gpu *gpu, cudaStream_t native, cudaEvent_t event, unsigned *values)
{
    static unsigned result[N];
    culvert_error err = CULVERT_ERROR_INIT;
    culvert_stream *stream = culvert_stream_adopt(gpu, native, &err);
    if (stream == nullptr)
        return failed("culvert_stream_adopt", err.message);
    culvert_buffer *buffer = culvert_buffer_adopt(gpu, (unsigned long long)(size_t)values,
                                                  N * sizeof *values, nullptr, nullptr, &err);
    if (buffer == nullptr) {
        culvert_stream_unref(stream);
        return failed("culvert_buffer_adopt", err.message);
    }
    culvert_detach(culvert_fill(stream, buffer, 0, N * sizeof *values, 5, 4));
    add<<<N / 256, 256, 0, native>>>(values, N, 2); /* in stream order, behind the fill */
    int bad = cudaGetLastError() != cudaSuccess || cudaEventRecord(event, native) != cudaSuccess;
    bad |= await(culvert_event_done(gpu, event), "culvert_event_done") != CULVERT_OK;
    bad |=
        await(culvert_download(stream, result, buffer, 0, sizeof result), "download") != CULVERT_OK;
    for (unsigned i = 0; i < N; i++)
        bad |= result[i] != i + 7;
    std::printf("runtime and Culvert on one stream: the result is %s\n", bad ? "wrong" : "right");
    culvert_buffer_unref(buffer);
    culvert_stream_unref(stream);
    return bad;
}

int main(int argc, char **)
{
    culvert_error err = CULVERT_ERROR_INIT;
    cudaStream_t native = nullptr;
    cudaEvent_t event = nullptr;
    unsigned *values = nullptr;
    if (argc > 1) {
        std::puts(
            "usage: with-runtime\n\nShares a stream, memory and an event of the CUDA runtime with Culvert.");
        return 0;
    }
    if (cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess ||
        cudaMalloc(&values, N * sizeof *values) != cudaSuccess)
        return failed("CUDA runtime", cudaGetErrorString(cudaGetLastError()));
    culvert_loop_options options = CULVERT_LOOP_OPTIONS_INIT;
    options.driver = "cuda";
    culvert_loop *loop = culvert_loop_new(ev_default_loop(0), &options, &err);
    culvert_gpu *gpu = loop != nullptr ? culvert_gpu_open(loop, 0, nullptr, &err) : nullptr;
    int bad = gpu != nullptr ? share(gpu, native, event, values) : failed("culvert", err.message);
    culvert_gpu_close(gpu);
    culvert_loop_free(loop);
    cudaFree(values);
    cudaEventDestroy(event);
    cudaStreamDestroy(native);
    return bad;
}
