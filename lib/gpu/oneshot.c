/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One operation at a time: each is a sequence of one.
 */
#include "gpu/flow.h"

culvert_future *culvert_upload_at(const char *where, culvert_stream *stream, culvert_buffer *dst,
                                  size_t dst_offset, const void *src, size_t bytes)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_upload_at(where, seq, dst, dst_offset, src, bytes);
    return culvert_seq_submit_at(where, seq);
}

culvert_future *culvert_download_at(const char *where, culvert_stream *stream, void *dst,
                                    culvert_buffer *src, size_t src_offset, size_t bytes)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_download_at(where, seq, dst, src, src_offset, bytes);
    return culvert_seq_submit_at(where, seq);
}

culvert_future *culvert_copy_at(const char *where, culvert_stream *stream, culvert_buffer *dst,
                                size_t dst_offset, culvert_buffer *src, size_t src_offset,
                                size_t bytes)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_copy_at(where, seq, dst, dst_offset, src, src_offset, bytes);
    return culvert_seq_submit_at(where, seq);
}

culvert_future *culvert_fill_at(const char *where, culvert_stream *stream, culvert_buffer *dst,
                                size_t dst_offset, size_t bytes, uint32_t pattern,
                                unsigned pattern_bytes)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_fill_at(where, seq, dst, dst_offset, bytes, pattern, pattern_bytes);
    return culvert_seq_submit_at(where, seq);
}

culvert_future *culvert_launch_at(const char *where, culvert_stream *stream, culvert_kernel *kernel,
                                  const culvert_grid *grid, const culvert_arg *args, size_t nargs)
{
    culvert_seq *seq = culvert_seq_begin_at(where, stream);
    culvert_seq_launch_at(where, seq, kernel, grid, args, nargs);
    return culvert_seq_submit_at(where, seq);
}

culvert_future *culvert_stream_done_at(const char *where, culvert_stream *stream)
{
    return culvert_seq_submit_at(where, culvert_seq_begin_at(where, stream));
}

/* ---- the same without a place ---- */

culvert_future *culvert_upload(culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                               const void *src, size_t bytes)
{
    return culvert_upload_at(NULL, stream, dst, dst_offset, src, bytes);
}

culvert_future *culvert_download(culvert_stream *stream, void *dst, culvert_buffer *src,
                                 size_t src_offset, size_t bytes)
{
    return culvert_download_at(NULL, stream, dst, src, src_offset, bytes);
}

culvert_future *culvert_copy(culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                             culvert_buffer *src, size_t src_offset, size_t bytes)
{
    return culvert_copy_at(NULL, stream, dst, dst_offset, src, src_offset, bytes);
}

culvert_future *culvert_fill(culvert_stream *stream, culvert_buffer *dst, size_t dst_offset,
                             size_t bytes, uint32_t pattern, unsigned pattern_bytes)
{
    return culvert_fill_at(NULL, stream, dst, dst_offset, bytes, pattern, pattern_bytes);
}

culvert_future *culvert_launch(culvert_stream *stream, culvert_kernel *kernel,
                               const culvert_grid *grid, const culvert_arg *args, size_t nargs)
{
    return culvert_launch_at(NULL, stream, kernel, grid, args, nargs);
}

culvert_future *culvert_stream_done(culvert_stream *stream)
{
    return culvert_stream_done_at(NULL, stream);
}
