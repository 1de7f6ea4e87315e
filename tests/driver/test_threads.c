/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening drivers from several threads, and while the dynamic linker is at work in another one.
 */
#define _GNU_SOURCE
#include "driver/table.h"
#include "lib/check_main.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 200 };

typedef struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    const char *path;
    const culvert__driver *driver;
} racer;

static void *race(void *arg)
{
    racer *r = arg;
    pthread_barrier_wait(r->start);
    r->driver = culvert__driver_open(r->path, NULL);
    return NULL;
}

static void race_all(racer *racers, const char *even, const char *odd)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (racer){.start = &start, .path = i % 2 == 0 ? even : odd};
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(racers[i].thread, NULL);
    pthread_barrier_destroy(&start);
}

START_TEST(threads_that_open_at_once_get_the_same_table)
{
    racer racers[THREADS];
    race_all(racers, FAKES "/threads.so", FAKES "/../fakes/threads.so");
    for (int i = 0; i < THREADS; i++) {
        ck_assert_ptr_nonnull(racers[i].driver);
        ck_assert_ptr_eq(racers[i].driver, racers[0].driver);
    }
    ck_assert_ptr_eq(culvert__driver_open(FAKES "/threads.so", NULL), racers[0].driver);
}
END_TEST

START_TEST(threads_that_open_different_ones_get_each_its_own)
{
    racer racers[THREADS];
    race_all(racers, FAKES "/good.so", FAKES "/other.so");
    ck_assert_ptr_ne(racers[0].driver, racers[1].driver);
    for (int i = 0; i < THREADS; i++)
        ck_assert_ptr_eq(racers[i].driver, racers[i % 2].driver);
}
END_TEST

START_TEST(threads_that_fail_at_once_all_fail)
{
    racer racers[THREADS];
    race_all(racers, FAKES "/init_999.so", FAKES "/stub.so");
    for (int i = 0; i < THREADS; i++)
        ck_assert_ptr_null(racers[i].driver);
}
END_TEST

/* Called by the plug-in's constructor, so under the dynamic linker's lock. */
static atomic_int plugins;
__attribute__((visibility("default"))) void plugin_loaded(void);
void plugin_loaded(void)
{
    culvert__driver_open(FAKES "/no_get.so", NULL);
    atomic_fetch_add(&plugins, 1);
}

static void *load_plugins(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        void *plugin = dlopen(FAKES "/plugin.so", RTLD_NOW);
        if (plugin == NULL)
            return "the plug-in does not load";
        dlclose(plugin);
    }
    return NULL;
}

/* With a lock held around dlopen this never ends: the plug-in waits for that lock, and who has it for
   the dynamic linker's. */
START_TEST(case_108_a_plugin_that_opens_a_driver_while_it_is_loaded)
{
    pthread_t loader;
    ck_assert_int_eq(pthread_create(&loader, NULL, load_plugins, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        ck_assert_ptr_null(culvert__driver_open(FAKES "/no_get.so", NULL));
        ck_assert_ptr_null(culvert__driver_open(FAKES "/init_802.so", NULL));
    }
    void *problem = NULL;
    pthread_join(loader, &problem);
    ck_assert_ptr_null(problem);
    ck_assert_int_eq(atomic_load(&plugins), ROUNDS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver threads");
    TCase *tcase = tcase_create("threads");
    tcase_add_test(tcase, threads_that_open_at_once_get_the_same_table);
    tcase_add_test(tcase, threads_that_open_different_ones_get_each_its_own);
    tcase_add_test(tcase, threads_that_fail_at_once_all_fail);
    tcase_add_test(tcase, case_108_a_plugin_that_opens_a_driver_while_it_is_loaded);
    suite_add_tcase(suite, tcase);
    Suite *suites[] = {suite, NULL};
    return test_main(suites);
}
