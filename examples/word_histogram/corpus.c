/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A piece begins with the byte before it, which says whether its first letter starts a word, and ends with
 * the bytes behind it in which its last word may end. The own bytes of all pieces are the whole file.
 */
#define _GNU_SOURCE
#include "corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(culvert_error *err, const char *what, const char *name)
{
    culvert_error_set(err, CULVERT_ESYSTEM, errno, "cannot %s %s: %s", what, name, strerror(errno));
    return -1;
}

static int look_at(corpus_file *f, culvert_error *err)
{
    struct stat st;
    if (stat(f->name, &st) != 0)
        return fail(err, "open", f->name);
    if (!S_ISREG(st.st_mode)) {
        culvert_error_set(err, CULVERT_EUSER, 0,
                          "%s is no regular file: only those can be read in pieces", f->name);
        return -1;
    }
    if (access(f->name, R_OK) != 0)
        return fail(err, "read", f->name);
    f->bytes = (uint64_t)st.st_size;
    return 0;
}

int corpus_open(corpus *c, char **names, size_t n, size_t chunk, culvert_error *err)
{
    *c = (corpus){.files = calloc(n, sizeof *c->files), .n = n, .chunk = chunk};
    if (c->files == NULL) {
        culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for %zu files", n);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        c->files[i].name = names[i];
        if (look_at(&c->files[i], err) != 0)
            return -1;
        c->bytes += c->files[i].bytes;
    }
    return 0;
}

void corpus_close(corpus *c)
{
    free(c->files);
    c->files = NULL;
    c->n = 0;
}

int corpus_next(corpus *c, corpus_piece *piece)
{
    while (c->at < c->n && c->offset == c->files[c->at].bytes) {
        c->at++;
        c->offset = 0;
    }
    if (c->at == c->n)
        return 0;
    const corpus_file *f = &c->files[c->at];
    uint64_t left = f->bytes - c->offset;
    uint64_t own = left < c->chunk ? left : c->chunk;
    uint64_t tail = left - own < CORPUS_TAIL ? left - own : CORPUS_TAIL;
    uint32_t lead = c->offset > 0;
    *piece = (corpus_piece){.file = f,
                            .offset = c->offset,
                            .words = {.lead = lead,
                                      .own = (uint32_t)own,
                                      .bytes = (uint32_t)(lead + own + tail),
                                      .last = own + tail == left}};
    c->offset += own;
    return 1;
}

static int read_all(int fd, const corpus_piece *p, unsigned char *text, culvert_error *err)
{
    uint64_t from = p->offset - p->words.lead;
    for (size_t done = 0; done < p->words.bytes;) {
        ssize_t n = pread(fd, text + done, p->words.bytes - done, (off_t)(from + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, "read", p->file->name);
        if (n == 0) {
            culvert_error_set(err, CULVERT_EUSER, 0,
                              "%s became shorter while it was read: it had %llu bytes, and now "
                              "ends at %llu",
                              p->file->name, (unsigned long long)p->file->bytes,
                              (unsigned long long)(from + done));
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int corpus_read(const corpus_piece *p, unsigned char *text, culvert_error *err)
{
    int fd = open(p->file->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return fail(err, "open", p->file->name);
    int r = read_all(fd, p, text, err);
    close(fd);
    return r;
}
