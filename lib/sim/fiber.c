/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fibers: a stack each, an assembly switch (ucontext where there is none for the machine), and what
 * the sanitizers must be told.
 *
 * Invariants:
 * - A fiber is fresh (prepared, not entered), running (home waits in enter), left (it waits in
 *   leave) or dead (left for the last time, or new). Only fresh and left ones are entered.
 * - AddressSanitizer knows the bounds of the stack at hand; a fake stack is kept over a leave, and
 *   dropped by the last one. ThreadSanitizer orders the two sides of a switch. Valgrind, where its
 *   header was there to build with, knows every stack, so it tells a switch from a large frame.
 *
 *            prepare            enter               leave
 *      dead ---------> fresh ----------> running <--------> left
 *        ^                                  | leave(last)    enter
 *        +----------------------------------+
 */
#define _GNU_SOURCE
#include "sim/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(CULVERT_FIBER_UCONTEXT)
#define CULVERT_FIBER_UCONTEXT 1
#endif
#ifdef CULVERT_FIBER_UCONTEXT
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(FIBER_ASAN) && !defined(FIBER_TSAN) && defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#define FIBER_VALGRIND 1
#include <valgrind/valgrind.h>
#endif
#endif

struct culvert__fiber_home {
#ifdef CULVERT_FIBER_UCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
#ifdef FIBER_ASAN
    void *fake_stack;
    const void *stack; /* the thread's own, learnt at the first entry */
    size_t stack_bytes;
#endif
#ifdef FIBER_TSAN
    void *tsan;
#endif
};

struct culvert__fiber {
    culvert__fiber_home *home;
    char *stack; /* the lowest usable byte; the guard page is below */
    size_t stack_bytes;
    size_t guard_bytes;
    culvert__fiber_fn *fn;
    void *arg;
#ifdef CULVERT_FIBER_UCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
#ifdef FIBER_ASAN
    void *fake_stack;
#endif
#ifdef FIBER_TSAN
    void *tsan;
#endif
#ifdef FIBER_VALGRIND
    unsigned valgrind; /* the stack's number */
#endif
};

static size_t page_bytes(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

size_t culvert__fiber_stack_bytes(void)
{
#if defined(FIBER_ASAN) || defined(FIBER_TSAN)
    size_t kb = 256;
#else
    size_t kb = 64;
#endif
    const char *text = getenv("CULVERT_SIM_STACK_KB");
    if (text) {
        char *end;
        unsigned long v = strtoul(text, &end, 10);
        if (end != text && *end == '\0' && v <= 1024ul * 1024ul) {
            kb = v < 16 ? 16 : (size_t)v;
        }
    }
    size_t page = page_bytes();
    return (kb * 1024 + page - 1) / page * page;
}

culvert__fiber_home *culvert__fiber_home_new(void)
{
    return calloc(1, sizeof(culvert__fiber_home));
}

void culvert__fiber_home_free(culvert__fiber_home *h)
{
    free(h);
}

culvert__fiber *culvert__fiber_new(culvert__fiber_home *h, size_t stack_bytes)
{
    size_t guard = page_bytes();
    culvert__fiber *f = calloc(1, sizeof *f);
    if (!f) {
        return NULL;
    }
    void *m = mmap(NULL, guard + stack_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) {
        free(f);
        return NULL;
    }
    if (mprotect(m, guard, PROT_NONE)) {
        munmap(m, guard + stack_bytes);
        free(f);
        return NULL;
    }
    f->home = h;
    f->guard_bytes = guard;
    f->stack = (char *)m + guard;
    f->stack_bytes = stack_bytes;
#ifdef FIBER_VALGRIND
    f->valgrind = VALGRIND_STACK_REGISTER(f->stack, f->stack + stack_bytes - 1);
#endif
    return f;
}

void culvert__fiber_free(culvert__fiber *f)
{
    if (!f) {
        return;
    }
#ifdef FIBER_TSAN
    if (f->tsan) {
        __tsan_destroy_fiber(f->tsan);
    }
#endif
#ifdef FIBER_ASAN
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
#ifdef FIBER_VALGRIND
    VALGRIND_STACK_DEREGISTER(f->valgrind);
#endif
    munmap(f->stack - f->guard_bytes, f->guard_bytes + f->stack_bytes);
    free(f);
}

/*
 * What the sanitizers hear of a switch: before it, and on the other side. ThreadSanitizer notes the
 * entry and the end of functions by fiber, so the call that changes fibers must not be in a
 * function that ends before the stacks change: it is inlined, also without optimisation.
 */
#ifdef FIBER_TSAN
#define FIBER_INLINE static inline __attribute__((always_inline))
#else
#define FIBER_INLINE static inline
#endif

FIBER_INLINE void before_enter(culvert__fiber *f)
{
    (void)f;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&f->home->fake_stack, f->stack, f->stack_bytes);
#endif
#ifdef FIBER_TSAN
    f->home->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
}

static void after_enter(culvert__fiber *f)
{
    (void)f;
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, &f->home->stack, &f->home->stack_bytes);
#endif
}

FIBER_INLINE void before_leave(culvert__fiber *f, int last)
{
    (void)f;
    (void)last;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &f->fake_stack, f->home->stack,
                                   f->home->stack_bytes);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(f->home->tsan, 0);
#endif
}

static void after_leave(culvert__fiber *f)
{
    (void)f;
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->home->fake_stack, NULL, NULL);
#endif
}

/* Frames that a dead fiber left behind may have poisoned the stack, and its call stack is stale. */
static void forget_frames(culvert__fiber *f)
{
    (void)f;
#ifdef FIBER_ASAN
    f->fake_stack = NULL;
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
#ifdef FIBER_TSAN
    if (f->tsan) {
        __tsan_destroy_fiber(f->tsan);
    }
    f->tsan = __tsan_create_fiber(0);
#endif
}

static void fiber_main(void *arg)
{
    culvert__fiber *f = arg;
    after_enter(f);
    f->fn(f->arg);
    abort();
}

#ifdef CULVERT_FIBER_UCONTEXT

/* makecontext passes ints only. */
static void fiber_main_split(unsigned high, unsigned low)
{
    uintptr_t p = (uintptr_t)low;
    if (sizeof p > 4) {
        p |= (uintptr_t)((uint64_t)high << 32);
    }
    fiber_main((void *)p);
}

static void lay_first_frame(culvert__fiber *f)
{
    uint64_t p = (uint64_t)(uintptr_t)f;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->stack_bytes;
    f->context.uc_link = NULL;
    /* the one cast that makecontext's type asks for */
    makecontext(&f->context, (void (*)(void))fiber_main_split, 2, (unsigned)(p >> 32), (unsigned)p);
}

static void switch_in(culvert__fiber *f)
{
    swapcontext(&f->home->context, &f->context);
}

static void switch_out(culvert__fiber *f)
{
    swapcontext(&f->context, &f->home->context);
}

#else

extern void culvert__fiber_switch(void **save, void *load);
extern void culvert__fiber_start(void);

/* As culvert__fiber_switch in fiber_switch.S pops it. */
#ifdef __x86_64__
struct first_frame {
    uint32_t mxcsr, x87;
    void *r15, *r14;
    void *r13; /* arg */
    culvert__fiber_fn *r12;
    void *rbx, *rbp;
    void (*ret)(void);
    void *end[2]; /* zeros where a caller's frame would be; 16-aligned for culvert__fiber_start */
};
#else
struct first_frame {
    culvert__fiber_fn *x19;
    void *x20; /* arg */
    void *x21[9];
    void (*x30)(void);
    uint64_t d8[8];
    uint64_t fpcr, pad;
};
#endif

static void lay_first_frame(culvert__fiber *f)
{
    struct first_frame *frame = (struct first_frame *)(void *)(f->stack + f->stack_bytes) - 1;
    memset(frame, 0, sizeof *frame);
#ifdef __x86_64__
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(frame->mxcsr), "=m"(x87));
    frame->x87 = x87;
    frame->r12 = fiber_main;
    frame->r13 = f;
    frame->ret = culvert__fiber_start;
#else
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    frame->fpcr = fpcr;
    frame->x19 = fiber_main;
    frame->x20 = f;
    frame->x30 = culvert__fiber_start;
#endif
    f->sp = frame;
}

static void switch_in(culvert__fiber *f)
{
    culvert__fiber_switch(&f->home->sp, f->sp);
}

static void switch_out(culvert__fiber *f)
{
    culvert__fiber_switch(&f->sp, f->home->sp);
}

#endif

void culvert__fiber_prepare(culvert__fiber *f, culvert__fiber_fn *fn, void *arg)
{
    f->fn = fn;
    f->arg = arg;
    forget_frames(f);
    lay_first_frame(f);
}

void culvert__fiber_enter(culvert__fiber *f)
{
    before_enter(f);
    switch_in(f);
    after_leave(f);
}

void culvert__fiber_leave(culvert__fiber *f, int last)
{
    before_leave(f, last);
    switch_out(f);
    after_enter(f);
}
