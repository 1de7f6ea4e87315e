/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building a pitched copy: rows of `width` bytes that lie `pitch` bytes apart.
 *
 * The driver answers a bad pitch, or rows past the end, with "invalid argument" at best, so all of it
 * is checked here, with the figures. Rows that lie side by side are one range of bytes, and copied as
 * such: that has no limit of the pitch.
 */
#include "gpu/flow.h"

typedef struct rectangle {
    const char *name;
    culvert_buffer *buffer;
    size_t offset, pitch;
} rectangle;

static const char op_name[] = "culvert_seq_copy2d";

static bool check_pitch(culvert_seq *seq, const culvert_copy2d *copy, const rectangle *side,
                        const char *where)
{
    if (side->pitch < copy->width) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "%s_pitch is %zu, less than the width of %zu bytes", side->name,
                          side->pitch, copy->width);
        return false;
    }
    unsigned limit = seq->gpu->device->max_pitch;
    if (copy->height > 1 && side->pitch != copy->width && limit != 0 && side->pitch > limit) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                          "%s_pitch is %zu; the device's limit is %u", side->name, side->pitch,
                          limit);
        return false;
    }
    return true;
}

/* From the first byte to behind the last; false: that is above what a size can be. */
static bool extent_of(const culvert_copy2d *copy, size_t pitch, size_t *bytes)
{
    *bytes = 0;
    if (copy->width == 0 || copy->height == 0)
        return true;
    return !__builtin_mul_overflow(copy->height - 1, pitch, bytes) &&
           !__builtin_add_overflow(*bytes, copy->width, bytes);
}

static bool check_side(culvert_seq *seq, const culvert_copy2d *copy, const rectangle *side,
                       const char *where)
{
    size_t bytes;
    if (!check_pitch(seq, copy, side, where))
        return false;
    if (!extent_of(copy, side->pitch, &bytes)) {
        culvert__seq_fail(seq, CULVERT_EOVERFLOW, op_name, where,
                          "%zu rows of %s_pitch %zu: the product is above %zu, the largest size",
                          copy->height, side->name, side->pitch, (size_t)SIZE_MAX);
        return false;
    }
    return culvert__seq_check_buffer(seq, side->buffer, "pitched copy", op_name, where,
                                     side->offset, bytes);
}

/* Do the rectangles have a byte in common? Both lie inside their buffer. */
static bool overlap(const culvert_copy2d *c)
{
    size_t low = c->dst_offset, high = c->src_offset;
    size_t low_bytes, high_bytes, pitch = c->dst_pitch;
    if (c->dst != c->src)
        return false;
    (void)extent_of(c, c->dst_pitch, &low_bytes);
    (void)extent_of(c, c->src_pitch, &high_bytes);
    if (low > high) {
        size_t swap = low;
        low = high;
        high = swap;
        low_bytes = high_bytes;
    }
    if (high - low >= low_bytes)
        return false;
    if (c->dst_pitch != c->src_pitch)
        return true; /* not worth finding out */
    /* The higher one is so many whole rows, and so many bytes, further on. */
    size_t rows = (high - low) / pitch, bytes = (high - low) % pitch;
    return (bytes < c->width && rows < c->height) ||
           (pitch - bytes < c->width && rows + 1 < c->height);
}

static bool check(culvert_seq *seq, const culvert_copy2d *copy, const char *where)
{
    const rectangle dst = {"dst", copy->dst, copy->dst_offset, copy->dst_pitch};
    const rectangle src = {"src", copy->src, copy->src_offset, copy->src_pitch};
    if (copy->reserved[0] != 0 || copy->reserved[1] != 0) {
        culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where, "copy->reserved must be 0");
        return false;
    }
    if (!check_side(seq, copy, &dst, where) || !check_side(seq, copy, &src, where))
        return false;
    if (copy->width == 0 || copy->height == 0 || !overlap(copy))
        return true;
    culvert__seq_fail(seq, CULVERT_EINVAL, op_name, where,
                      "copy of %zu rows of %zu bytes from offset %zu (pitch %zu) to offset %zu "
                      "(pitch %zu) of the same buffer overlaps",
                      copy->height, copy->width, copy->src_offset, copy->src_pitch,
                      copy->dst_offset, copy->dst_pitch);
    return false;
}

static bool side_by_side(const culvert_copy2d *copy)
{
    return copy->height == 1 || (copy->dst_pitch == copy->width && copy->src_pitch == copy->width);
}

/* How many rows there are before a seam of the buffer (culvert__seam_run); 0: the first goes over one. */
static size_t rows_before_seam(const culvert_buffer *buffer, size_t offset, size_t pitch,
                               size_t width, size_t rows)
{
    if (buffer->seam == 0)
        return rows;
    size_t run = culvert__seam_run(buffer->seam, (uintptr_t)buffer->address + offset, SIZE_MAX);
    if (run < width)
        return 0;
    size_t fit = 1 + (run - width) / pitch;
    return fit < rows ? fit : rows;
}

static bool add_rows(culvert_seq *seq, const culvert_copy2d *copy, size_t first, size_t rows,
                     const char *where)
{
    culvert__op *op = culvert__op_new(seq, CULVERT__OP_COPY2D, 1, where);
    if (op == NULL)
        return false;
    op->part = first > 0;
    op->u.copy2d.dst = copy->dst;
    op->u.copy2d.src = copy->src;
    op->u.copy2d.dst_offset = copy->dst_offset + first * copy->dst_pitch;
    op->u.copy2d.src_offset = copy->src_offset + first * copy->src_pitch;
    op->u.copy2d.dst_pitch = copy->dst_pitch;
    op->u.copy2d.src_pitch = copy->src_pitch;
    op->u.copy2d.width = copy->width;
    op->u.copy2d.height = rows;
    culvert__op_add(seq, op);
    return true;
}

/* One operation for most. */
static void add_all_rows(culvert_seq *seq, const culvert_copy2d *c, const char *where)
{
    for (size_t first = 0, rows; first < c->height; first += rows) {
        size_t to = c->dst_offset + first * c->dst_pitch;
        size_t from = c->src_offset + first * c->src_pitch;
        rows = rows_before_seam(c->dst, to, c->dst_pitch, c->width, c->height - first);
        rows = rows_before_seam(c->src, from, c->src_pitch, c->width, rows);
        bool added = rows > 0 ? add_rows(seq, c, first, rows, where)
                              : culvert__seq_add_copy(seq, c->dst, to, c->src, from, c->width,
                                                      first > 0, where);
        if (!added)
            return;
        rows += rows == 0;
    }
}

void culvert_seq_copy2d_at(const char *where, culvert_seq *seq, const culvert_copy2d *copy)
{
    if (culvert__seq_passes(seq, op_name))
        return;
    CULVERT__REQUIRE(copy, op_name, "copy");
    CULVERT__REQUIRE(copy->dst, op_name, "copy->dst");
    CULVERT__REQUIRE(copy->src, op_name, "copy->src");
    if (!check(seq, copy, where) || copy->width == 0 || copy->height == 0) {
        culvert__op_nothing(seq);
        return;
    }
    if (!culvert__seq_hold_buffer(seq, copy->dst) || !culvert__seq_hold_buffer(seq, copy->src))
        return;
    if (side_by_side(copy))
        (void)culvert__seq_add_copy(seq, copy->dst, copy->dst_offset, copy->src, copy->src_offset,
                                    copy->width * copy->height, false, where);
    else
        add_all_rows(seq, copy, where);
}

void culvert_seq_copy2d(culvert_seq *seq, const culvert_copy2d *copy)
{
    culvert_seq_copy2d_at(NULL, seq, copy);
}
