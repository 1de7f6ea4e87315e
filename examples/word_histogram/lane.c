/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A piece goes round: read by a worker into pinned memory; uploaded, counted and gathered by one sequence; then
 * just as many counts as there are words come back; a worker adds them to the lane's table; the next piece.
 *
 *   next -> [worker: read] -> count -> [GPU] -> fetch -> [GPU: download] -> add -> [worker: merge] -> next ...
 *
 * Each arrow is a continuation on the loop, which never waits. A lane's memory is used by one of them at a time.
 */
#include "lane.h"

#include <stdlib.h>

struct lane {
    work *work;
    corpus_piece piece;
    culvert_stream *stream;
    culvert_buffer *text; /* pinned */
    culvert_buffer *device_text, *slots, *out, *status;
    uint32_t said[WORDS_STATUS]; /* status, brought back */
    struct words_slot *found;    /* said[WORDS_FOUND] of them, brought back */
    size_t room;                 /* of found */
    words words;
};

static culvert_future *next(lane *l);

static culvert_loop *loop_of(const lane *l)
{
    return culvert_gpu_loop(l->work->gpu);
}

/* ---- on worker threads ---- */

static void *read_piece(void *arg, culvert_error *err)
{
    lane *l = arg;
    (void)corpus_read(&l->piece, culvert_buffer_data(l->text), err);
    return NULL;
}

static size_t lower_word(char *letters, const char *end)
{
    size_t n = 0;
    for (; letters + n < end && ((letters[n] | 0x20) >= 'a' && (letters[n] | 0x20) <= 'z'); n++)
        letters[n] |= 0x20;
    return n;
}

static void *merge_counts(void *arg, culvert_error *err)
{
    lane *l = arg;
    char *text = culvert_buffer_data(l->text);
    const char *end = text + l->piece.words.bytes;
    for (uint32_t i = 0; i < l->said[WORDS_FOUND]; i++) {
        char *letters = text + l->found[i].at - 1;
        size_t n = lower_word(letters, end);
        if (words_add(&l->words, letters, n, l->found[i].count) != 0) {
            culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for more than %zu words",
                              words_different(&l->words));
            return NULL;
        }
    }
    return NULL;
}

/* ---- on the loop ---- */

static culvert_future *count(culvert_future *done, void *arg)
{
    lane *l = arg;
    struct words_piece piece = l->piece.words;
    unsigned long long slots = words_slots(piece.own);
    culvert_grid bytes = {.blocks = {words_blocks(piece.own)}, .threads = {WORDS_THREADS}};
    culvert_grid entries = {.blocks = {words_blocks(slots)}, .threads = {WORDS_THREADS}};
    culvert_seq *seq = culvert_seq_begin(l->stream);
    (void)done;
    culvert_seq_copy(seq, l->device_text, 0, l->text, 0, piece.bytes);
    culvert_seq_fill(seq, l->slots, 0, slots * sizeof(struct words_slot), 0, 1);
    culvert_seq_fill(seq, l->status, 0, sizeof l->said, 0, 1);
    culvert_seq_launch(seq, l->work->count, &bytes,
                       CULVERT_ARGS(CULVERT_BUFFER(l->device_text), CULVERT_VALUE(piece),
                                    CULVERT_BUFFER(l->slots), CULVERT_U64(slots - 1),
                                    CULVERT_BUFFER(l->status)));
    culvert_seq_launch(seq, l->work->collect, &entries,
                       CULVERT_ARGS(CULVERT_BUFFER(l->slots), CULVERT_U64(slots),
                                    CULVERT_BUFFER(l->out), CULVERT_BUFFER(l->status)));
    culvert_seq_download(seq, l->said, l->status, 0, sizeof l->said);
    return culvert_seq_submit(seq);
}

static int make_room(lane *l, size_t n)
{
    if (n <= l->room)
        return 0;
    struct words_slot *more = realloc(l->found, n * sizeof *more);
    if (more == NULL)
        return -1;
    l->found = more;
    l->room = n;
    return 0;
}

static culvert_future *fetch(culvert_future *done, void *arg)
{
    lane *l = arg;
    size_t n = l->said[WORDS_FOUND];
    (void)done;
    if (l->said[WORDS_TOO_LONG])
        return culvert_fail(
            loop_of(l), CULVERT_EUSER, 0,
            "%s has, between its bytes %llu and %llu, a word of more than %d letters",
            l->piece.file->name, (unsigned long long)l->piece.offset,
            (unsigned long long)l->piece.offset + l->piece.words.own + CORPUS_TAIL, CORPUS_TAIL);
    if (n == 0)
        return NULL;
    if (make_room(l, n) != 0)
        return culvert_fail(loop_of(l), CULVERT_ENOMEM, 0, "no memory for %zu counts", n);
    return culvert_download(l->stream, l->found, l->out, 0, n * sizeof *l->found);
}

static culvert_future *add(culvert_future *done, void *arg)
{
    lane *l = arg;
    (void)done;
    return culvert_work(loop_of(l), merge_counts, l, NULL, NULL);
}

static culvert_future *again(culvert_future *done, void *arg)
{
    lane *l = arg;
    (void)done;
    l->work->done += l->piece.words.own;
    l->work->progress(l->work->done, l->work->arg);
    return next(l);
}

static culvert_future *next(lane *l)
{
    if (!corpus_next(&l->work->corpus, &l->piece))
        return culvert_resolved(loop_of(l), NULL, NULL);
    culvert_future *f = culvert_work(loop_of(l), read_piece, l, NULL, NULL);
    f = culvert_then(f, count, l, NULL);
    f = culvert_then(f, fetch, l, NULL);
    f = culvert_then(f, add, l, NULL);
    return culvert_then(f, again, l, NULL);
}

culvert_future *lane_run(lane *l)
{
    return next(l);
}

/* ---- life ---- */

lane *lane_new(work *w, culvert_error *err)
{
    lane *l = calloc(1, sizeof *l);
    size_t chunk = w->corpus.chunk, text = corpus_piece_bytes(&w->corpus);
    if (l == NULL) {
        culvert_error_set(err, CULVERT_ENOMEM, 0, "no memory for a lane");
        return NULL;
    }
    l->work = w;
    if ((l->stream = culvert_stream_new(w->gpu, NULL, err)) != NULL &&
        (l->text = culvert_host_buffer_new(w->gpu, text, err)) != NULL &&
        (l->device_text = culvert_buffer_new(w->gpu, text, err)) != NULL &&
        (l->slots = culvert_buffer_new(w->gpu, words_slots(chunk) * sizeof(struct words_slot),
                                       err)) != NULL &&
        (l->out = culvert_buffer_new(w->gpu, words_most(chunk) * sizeof(struct words_slot), err)) !=
            NULL &&
        (l->status = culvert_buffer_new(w->gpu, sizeof l->said, err)) != NULL)
        return l;
    lane_free(l);
    return NULL;
}

words *lane_words(lane *l)
{
    return &l->words;
}

void lane_free(lane *l)
{
    if (l == NULL)
        return;
    culvert_buffer_unref(l->status);
    culvert_buffer_unref(l->out);
    culvert_buffer_unref(l->slots);
    culvert_buffer_unref(l->device_text);
    culvert_buffer_unref(l->text);
    culvert_stream_unref(l->stream);
    words_free(&l->words);
    free(l->found);
    free(l);
}
