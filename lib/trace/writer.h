/* SPDX-License-Identifier: BSD-2-Clause */
/* The file of a trace, and the thread that writes it: see writer.c. */
#ifndef CULVERT_TRACE_WRITER_H
#define CULVERT_TRACE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

enum { CULVERT__TRACE_LOOP = 1 }; /* the loop's track */

typedef enum culvert__record_kind {
    CULVERT__RECORD_TRACK, /* a track's name */
    CULVERT__RECORD_BEGIN, /* a sequence was submitted */
    CULVERT__RECORD_END    /* it is over */
} culvert__record_kind;

/* Times are those of culvert__now(); 0: it has not come to that. */
typedef struct culvert__record {
    culvert__record_kind kind;
    unsigned track;
    uint64_t id;
    uint64_t built, submitted, enqueued, detected;
    uint64_t device_start, device_end;
    uint64_t callbacks, end; /* callbacks 0: nobody waited */
    const char *code;        /* static */
    char name[64];
    char where[64];
} culvert__record;

typedef struct culvert__writer culvert__writer;

/* An errno in *error where it fails; ENOMEM too. */
culvert__writer *culvert__writer_new(const char *path, uint64_t epoch, int *error);
/* One thread. False: the ring is full, and the record is left out. */
bool culvert__writer_put(culvert__writer *, const culvert__record *);
/* Writes what is there, ends the file and the thread. What went wrong: an errno, or 0. */
int culvert__writer_free(culvert__writer *, uint64_t *dropped);

#endif
