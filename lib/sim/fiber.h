/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fibers: stacks of their own on one operating system thread, for the threads of a block that wait.
 *
 * A star: a thread's own stack is the home, and switches go from home to a fiber and back, never
 * from fiber to fiber. A fiber is only ever run by the thread that is its home at the time.
 */
#ifndef CULVERT_SIM_FIBER_H
#define CULVERT_SIM_FIBER_H

#include <stddef.h>

typedef struct culvert__fiber culvert__fiber;
typedef struct culvert__fiber_home culvert__fiber_home;

typedef void culvert__fiber_fn(void *arg); /* must not return: it ends in culvert__fiber_leave */

/*
 * The bytes of a new fiber's stack: 64 KiB (256 KiB with a sanitizer, whose frames are larger), or
 * what the environment's CULVERT_SIM_STACK_KB says, rounded up to pages, at least 16 KiB.
 */
size_t culvert__fiber_stack_bytes(void);

/* NULL when out of memory. The home holds no stack; make one a thread that runs fibers. */
culvert__fiber_home *culvert__fiber_home_new(void);
void culvert__fiber_home_free(culvert__fiber_home *h); /* NULL allowed; after its fibers */

/* NULL when out of memory. Below the stack is a page that cannot be touched. */
culvert__fiber *culvert__fiber_new(culvert__fiber_home *h, size_t stack_bytes);
void culvert__fiber_free(culvert__fiber *f); /* NULL allowed; not the running one */

/* The next enter begins fn(arg) on a fresh stack; what the fiber was in the middle of is gone. */
void culvert__fiber_prepare(culvert__fiber *f, culvert__fiber_fn *fn, void *arg);

/* From home: runs the fiber until it calls leave. */
void culvert__fiber_enter(culvert__fiber *f);

/*
 * From a fiber: back to home. Returns at the next enter. With `last` it never does: the fiber's
 * frames are dead, and prepare must come before it is entered again.
 */
void culvert__fiber_leave(culvert__fiber *f, int last);

#endif
