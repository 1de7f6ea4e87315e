/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs Check suites. Nothing here touches the CUDA driver in the test program's own process: with Check's
 * fork mode its children could not use it any more.
 */
#include "lib/check_main.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What cuInit and cuDeviceGetCount are, so that no CUDA header is needed. */
typedef int driver_init_fn(unsigned flags);
typedef int driver_count_fn(int *count);

static int count_in_child(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL)
        return 0;
    driver_init_fn *init = NULL;
    driver_count_fn *count = NULL;
    void *symbol = dlsym(driver, "cuInit");
    memcpy(&init, &symbol, sizeof init);
    symbol = dlsym(driver, "cuDeviceGetCount");
    memcpy(&count, &symbol, sizeof count);
    int devices = 0;
    if (init == NULL || count == NULL || init(0) != 0 || count(&devices) != 0)
        return 0;
    return devices;
}

int test_gpu_count(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return 0;
    if (child == 0)
        _exit(count_in_child());
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 0;
    return WEXITSTATUS(status);
}

int test_main(Suite *const *suites)
{
    SRunner *runner = srunner_create(NULL);
    for (; *suites != NULL; suites++)
        srunner_add_suite(runner, *suites);

    const char *driver = getenv("CULVERT_DRIVER");
    int result = TEST_SKIPPED;
    if (driver != NULL && strcmp(driver, "cuda") == 0 && test_gpu_count() == 0) {
        printf("skipped: the CUDA driver finds no device\n");
    } else {
        srunner_run_all(runner, CK_ENV);
        result = srunner_ntests_failed(runner) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    srunner_free(runner);
    return result;
}
