/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CULVERT_TEST_WAKE=host-func, thread or spin: every binding of the program whose options leave the wake
 * open gets that one. So whole suites run with each. (Linked with --wrap=culvert_loop_new.)
 */
#include "culvert/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

culvert_loop *__real_culvert_loop_new(struct ev_loop *ev, const culvert_loop_options *options,
                                      culvert_error *err);
culvert_loop *__wrap_culvert_loop_new(struct ev_loop *ev, const culvert_loop_options *options,
                                      culvert_error *err);

static int wake_of(const char *name)
{
    static const char *const names[] = {"adaptive", "host-func", "thread", "spin"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return CULVERT_WAKE_ADAPTIVE + i;
    fprintf(stderr, "CULVERT_TEST_WAKE is none of adaptive, host-func, thread and spin: %s\n",
            name);
    abort();
}

culvert_loop *__wrap_culvert_loop_new(struct ev_loop *ev, const culvert_loop_options *options,
                                      culvert_error *err)
{
    const char *name = getenv("CULVERT_TEST_WAKE");
    culvert_loop_options mine = CULVERT_LOOP_OPTIONS_INIT;
    if (name == NULL || (options != NULL && options->struct_size != sizeof mine))
        return __real_culvert_loop_new(ev, options, err);
    if (options != NULL)
        mine = *options;
    if (mine.wake == CULVERT_WAKE_DEFAULT)
        mine.wake = wake_of(name);
    return __real_culvert_loop_new(ev, &mine, err);
}
