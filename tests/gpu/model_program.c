/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/model_program.h"

#include "lib/clock.h"

#include <stdio.h>
#include <string.h>

/* ---- making ---- */

static unsigned pick(uint64_t *state, unsigned n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % n;
}

/* How often each kind comes, in a thousand or so. */
static const unsigned weights[MODEL_KINDS] = {
#define X(name, text, weight) weight,
    MODEL_INSTRUCTIONS
#undef X
};

static model_kind pick_kind(uint64_t *state)
{
    unsigned sum = 0, k;
    for (k = 0; k < MODEL_KINDS; k++)
        sum += weights[k];
    unsigned at = pick(state, sum);
    for (k = 0; at >= weights[k]; k++)
        at -= weights[k];
    return (model_kind)k;
}

void model_program_make(model_program *p, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 12345;
    p->seed = seed;
    p->n = 3 + pick(&state, MODEL_MOST - 2);
    bool faults = pick(&state, 3) == 0;
    for (size_t i = 0; i < p->n; i++) {
        model_instruction *in = &p->list[i];
        do
            in->kind = pick_kind(&state);
        while (in->kind == MODEL_FAULT && !faults);
        in->a = pick(&state, 1 << 16);
        in->b = pick(&state, 1 << 24);
        in->c = pick(&state, 1 << 24);
        in->d = pick(&state, 1 << 24);
    }
}

/* ---- printing ---- */

void model_program_print(const model_program *p)
{
    static const char *const texts[MODEL_KINDS] = {
#define X(name, text, weight) text,
        MODEL_INSTRUCTIONS
#undef X
    };
    printf("seed %llu, %zu instructions:\n", (unsigned long long)p->seed, p->n);
    for (size_t i = 0; i < p->n; i++) {
        const model_instruction *in = &p->list[i];
        printf("  %2zu  %-52s  %5u %#8x %#8x %#8x\n", i, texts[in->kind], in->a, in->b, in->c,
               in->d);
    }
    fflush(stdout);
}

/* ---- making smaller ---- */

static void leave_out(model_program *p, size_t from, size_t count)
{
    memmove(&p->list[from], &p->list[from + count], (p->n - from - count) * sizeof p->list[0]);
    p->n -= count;
}

/* Whether a piece of that size could be left out. */
static bool pass(model_program *p, size_t size, bool (*fails)(const model_program *), double end)
{
    bool smaller = false;
    for (size_t from = 0; from + size <= p->n;) {
        model_program without = *p;
        if (test_now() > end)
            return false;
        leave_out(&without, from, size);
        if (fails(&without)) {
            *p = without;
            smaller = true;
        } else {
            from += size;
        }
    }
    return smaller;
}

void model_program_shrink(model_program *p, bool (*fails)(const model_program *), double seconds)
{
    double end = test_now() + seconds;
    for (size_t size = p->n / 2; size > 0; size /= 2)
        while (pass(p, size, fails, end))
            ;
}
