/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs for the model test of streams: made from a seed, printed, and made smaller.
 *
 * A program is a list of instructions. Each refers to what there is by numbers that are taken modulo what
 * there is, so that any part of a program is a program too; that is what making it smaller needs.
 */
#ifndef TEST_GPU_MODEL_PROGRAM_H
#define TEST_GPU_MODEL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_INSTRUCTIONS                                              \
    X(SEQ, "submit a sequence: stream, operations, waits, flags", 400)  \
    X(CANCEL, "cancel: future", 50)                                     \
    X(DROP, "drop: future", 50)                                         \
    X(TIMEOUT, "time out: future, when", 50)                            \
    X(PROMISE, "make a promise: whether it is rejected in the end", 40) \
    X(SETTLE, "settle a promise: promise", 40)                          \
    X(ADVANCE, "let device time pass: how much", 100)                   \
    X(TURN, "turn the loop", 100)                                       \
    X(HOLD, "hold a stream: stream", 30)                                \
    X(RELEASE, "release all streams", 30)                               \
    X(FAULT, "a call fails: function, which, result", 25)               \
    X(BUFFER, "another buffer in the place of: buffer", 50)             \
    X(DONE, "ask for the end of a stream: stream", 20)                  \
    X(LOSE, "lose the device", 1)

typedef enum model_kind {
#define X(name, text, weight) MODEL_##name,
    MODEL_INSTRUCTIONS
#undef X
        MODEL_KINDS
} model_kind;

typedef struct model_instruction {
    model_kind kind;
    unsigned a, b, c, d;
} model_instruction;

enum { MODEL_MOST = 60 };

typedef struct model_program {
    uint64_t seed;
    size_t n;
    model_instruction list[MODEL_MOST];
} model_program;

void model_program_make(model_program *, uint64_t seed);
void model_program_print(const model_program *);

/* Leaves instructions out as long as the answer stays true, for so many seconds at most. */
void model_program_shrink(model_program *, bool (*fails)(const model_program *), double seconds);

#endif
