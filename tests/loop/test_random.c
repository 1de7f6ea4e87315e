/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs: everything that a program can do with futures, in any order, also from inside
 * callbacks, also while the binding is being taken down, another thread resolves, and memory is
 * short. Whatever they do:
 *   - a callback never runs inside a call, and not twice;
 *   - each argument and each value is released exactly once, after its callback;
 *   - what has settled stays as it is; each end of a chain is called;
 *   - nothing is left when all handles have been given back.
 */
#include "lib/alloc_fail.h"
#include "loop/fixture.h"
#include "loop/loop_internal.h"

#include <pthread.h>
#include <sched.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { PROGRAMS = 150 };
#else
enum { PROGRAMS = 500 };
#endif

enum { HANDLES = 24, PROMISES = 12, OPERATIONS = 120, MEMBERS = 4 };

/* ---- randomness ---- */

static uint64_t state;

static unsigned pick(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % n);
}

static bool chance(unsigned percent)
{
    return pick(100) < percent;
}

/* ---- what was given away ---- */

typedef struct token {
    int calls, most, freed;
    bool must_run;
} token;

static culvert_loop *loop; /* NULL once freed */
static token *tokens[100000];
static size_t token_count;
static int inside_call; /* a call that must not run callbacks is going on */
static atomic_int values_given;
static atomic_int values_freed;

static token *new_token(int most, bool must_run)
{
    token *t = calloc(1, sizeof *t);

    ck_assert(t != NULL && token_count < sizeof tokens / sizeof tokens[0]);
    t->most = most;
    t->must_run = must_run;
    tokens[token_count++] = t;
    return t;
}

static void called(token *t)
{
    /* Where a release freed the binding, the call that released runs what is left. */
    ck_assert(inside_call == 0 || loop == NULL);
    ck_assert_int_eq(t->freed, 0);
    ck_assert_int_lt(t->calls, t->most);
    t->calls++;
}

static void operate(bool top);

static void free_token(void *arg)
{
    token *t = arg;

    ck_assert_int_eq(t->freed, 0);
    t->freed = 1;
    if (chance(3)) { /* releases may do anything too */
        const int kept = inside_call;
        inside_call = 0;
        operate(false);
        inside_call = kept;
    }
}

static void free_value(void *value)
{
    atomic_fetch_add(&values_freed, 1);
    free(value);
}

static void *new_value(void)
{
    void *value = malloc(8);

    ck_assert_ptr_nonnull(value);
    atomic_fetch_add(&values_given, 1);
    return value;
}

/* ---- the program ---- */

typedef struct handle {
    culvert_future *f;
    int status; /* as last seen */
} handle;

static handle handles[HANDLES];
static culvert_promise *promises[PROMISES];
static bool with_thread;
static int depth, on_cancel_calls;

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static culvert_promise *shared; /* for the other thread to consume */
static bool shared_stop;

static void look(handle *h)
{
    const int status = culvert_status(h->f);

    if (h->status != CULVERT_PENDING)
        ck_assert_int_eq(status, h->status);
    h->status = status;
}

static void keep(culvert_future *f)
{
    ck_assert_ptr_nonnull(f);
    handle *h = &handles[pick(HANDLES)];
    culvert_future *old = h->f;

    *h = (handle){f, CULVERT_PENDING};
    look(h);
    culvert_unref(old);
}

/* One more reference to some future; NULL if there is none. */
static culvert_future *some(void)
{
    handle *h = &handles[pick(HANDLES)];

    if (h->f == NULL)
        return NULL;
    look(h);
    return culvert_ref(h->f);
}

static culvert_promise *take_promise(void)
{
    culvert_promise **p = &promises[pick(PROMISES)], *taken = *p;

    *p = NULL;
    return taken;
}

static void on_cancel(void *arg)
{
    called(arg);
    on_cancel_calls++;
}

static culvert_future *new_promise(void)
{
    culvert_future *f;
    const unsigned i = pick(PROMISES);

    if (promises[i] != NULL)
        return culvert_resolved(loop, NULL, NULL);
    promises[i] = culvert_promise_new(loop, &f);
    if (promises[i] != NULL && chance(50))
        culvert_promise_on_cancel(promises[i], on_cancel, new_token(1, false), free_token);
    return f;
}

static void *job(void *arg, culvert_error *err)
{
    if (arg == NULL)
        culvert_error_set(err, CULVERT_EUSER, 0, "job");
    return NULL;
}

static culvert_future *fresh(void)
{
    switch (pick(8)) {
    case 0: return culvert_resolved(loop, new_value(), free_value);
    case 1: return culvert_fail(loop, CULVERT_EUSER, 1, "random");
    case 2: return culvert_sleep(loop, chance(50) ? 0.0 : 0.0001);
    case 3: return culvert_work(loop, job, chance(50) ? &loop : NULL, NULL, NULL);
    case 4: return culvert_sleep(loop, INFINITY);
    default: return new_promise();
    }
}

static culvert_future *step(culvert_future *done, void *arg)
{
    called(arg);
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
    depth++;
    for (unsigned n = pick(3); n > 0 && depth < 4; n--)
        operate(false);
    depth--;
    if (loop == NULL)
        return NULL;
    switch (pick(4)) {
    case 0: return fresh();
    case 1: return culvert_then(fresh(), step, new_token(1, false), free_token);
    case 2: return culvert_ref(done);
    default: return NULL;
    }
}

static void end(culvert_future *done, void *arg)
{
    called(arg);
    ck_assert_int_ne(culvert_status(done), CULVERT_PENDING);
    (void)culvert_get_error(done);
    depth++;
    if (depth < 4 && chance(30))
        operate(false);
    depth--;
}

static void posted(void *arg)
{
    called(arg);
    if (chance(30))
        operate(false);
}

static void attach(void)
{
    culvert_future *f = some();

    if (f == NULL)
        return;
    switch (pick(5)) {
    case 0: keep(culvert_then(f, step, new_token(1, false), free_token)); break;
    case 1: keep(culvert_catch(f, step, new_token(1, false), free_token)); break;
    case 2: keep(culvert_finally(f, step, new_token(1, false), free_token)); break;
    case 3: keep(culvert_timeout(f, chance(50) ? 0.0 : 1000.0)); break;
    default: {
        token *t = new_token(1, true);
        if (culvert_on_settled(f, end, t, free_token) != CULVERT_OK)
            t->must_run = false;
        break;
    }
    }
}

static void combine(void)
{
    static culvert_future *(*const makers[])(const char *, culvert_loop *, culvert_future *const *,
                                             size_t) = {culvert_all_at, culvert_all_settled_at,
                                                        culvert_any_at, culvert_race_at};
    culvert_future *members[MEMBERS];
    size_t n = 0;

    for (unsigned want = pick(MEMBERS + 1); want > 0; want--) {
        if ((members[n] = some()) != NULL)
            n++;
    }
    keep(makers[pick(4)](NULL, loop, members, n));
}

static void consume(void)
{
    culvert_promise *p = take_promise();
    const culvert_error err = {CULVERT_EUSER, 0, NULL, NULL, "rejected"};

    if (p == NULL)
        return;
    switch (pick(with_thread ? 7 : 5)) {
    case 0: culvert_resolve(p, new_value(), free_value); break;
    case 1: culvert_reject(p, &err); break;
    case 2: culvert_promise_drop(p); break;
    case 3: (void)culvert_post_resolve(p, new_value(), free_value); break;
    case 4: (void)culvert_post_reject(p, &err); break;
    default:
        pthread_mutex_lock(&shared_lock);
        if (shared == NULL) {
            shared = p;
            p = NULL;
        }
        pthread_mutex_unlock(&shared_lock);
        culvert_promise_drop(p);
        break;
    }
}

static void give_up(void)
{
    handle *h = &handles[pick(HANDLES)];
    culvert_future *f = h->f;

    if (f == NULL)
        return;
    h->f = NULL;
    if (chance(50))
        culvert_detach(f);
    else
        culvert_unref(f);
}

static void read_it(void)
{
    culvert_future *f = some();

    if (f == NULL)
        return;
    (void)culvert_get_error(f);
    (void)culvert_value(f);
    void *value = chance(30) ? culvert_take(f) : NULL;
    if (value != NULL)
        free_value(value);
    (void)culvert_winner(f);
    culvert_future *child = culvert_child(f, pick(MEMBERS));
    if (child != NULL && chance(30))
        keep(culvert_ref(child));
    culvert_unref(f);
}

static void post_one(void)
{
    token *t = new_token(1, true);

    if (culvert_post(loop, posted, t, free_token) != CULVERT_OK)
        t->must_run = false;
}

static void turn(bool top)
{
    culvert_future *f = top && chance(20) ? some() : NULL;

    if (f != NULL)
        (void)culvert_await(f, 0.0);
    else if (top || chance(5))
        ev_run(fx.ev, EVRUN_NOWAIT);
    culvert_unref(f);
}

static void operate(bool top)
{
    const int kept = inside_call;

    if (loop == NULL) {
        give_up();
        return;
    }
    inside_call++;
    switch (pick(14)) {
    case 0:
    case 1: keep(fresh()); break;
    case 2:
    case 3:
    case 4: attach(); break;
    case 5: combine(); break;
    case 6:
    case 7: consume(); break;
    case 8: give_up(); break;
    case 9: read_it(); break;
    case 10: {
        culvert_future *f = some();
        if (f != NULL)
            culvert_cancel(f);
        culvert_unref(f);
        break;
    }
    case 11: post_one(); break;
    case 12:
        inside_call = 0;
        turn(top);
        break;
    default:
        if (chance(2)) {
            culvert_loop *going = loop;
            loop = NULL;
            if (top)
                inside_call = 0; /* it runs callbacks */
            culvert_loop_free(going);
        }
        break;
    }
    inside_call = kept;
}

static void *other_thread(void *arg)
{
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&shared_lock);
        culvert_promise *p = shared;
        shared = NULL;
        stop = shared_stop;
        pthread_mutex_unlock(&shared_lock);
        if (p == NULL)
            sched_yield();
        else if ((uintptr_t)p / 64 % 2 == 0)
            culvert_promise_drop(p);
        else
            (void)culvert_post_resolve(p, new_value(), free_value);
    }
    return arg;
}

static void drop_promises(void)
{
    for (int i = 0; i < PROMISES; i++) {
        culvert_promise *p = promises[i];

        promises[i] = NULL;
        culvert_promise_drop(p);
    }
}

static void run_program(uint64_t seed, bool short_of_memory)
{
    state = seed * 0x9e3779b97f4a7c15u + 1;
    loop = fx_bind(fx.ev);
    if (short_of_memory)
        alloc_fail_nth(1 + pick(300));
    for (int i = 0; i < OPERATIONS; i++)
        operate(true);
    alloc_fail_off();
    if (chance(50))
        drop_promises();
    if (loop != NULL && chance(50)) {
        for (int i = 0; i < 3; i++)
            ev_run(fx.ev, EVRUN_NOWAIT);
    }
    if (loop != NULL) {
        culvert_loop *going = loop;
        loop = NULL;
        culvert_loop_free(going);
    }
    drop_promises();
    for (int i = 0; i < HANDLES; i++) {
        culvert_unref(handles[i].f);
        handles[i].f = NULL;
    }
}

static void expect_all_back(uint64_t seed)
{
    for (size_t i = 0; i < token_count; i++) {
        const token *t = tokens[i];

        ck_assert_msg(t->freed == 1, "seed %llu: argument %zu released %d times",
                      (unsigned long long)seed, i, t->freed);
        ck_assert_msg(!t->must_run || t->calls == 1, "seed %llu: callback %zu ran %d times",
                      (unsigned long long)seed, i, t->calls);
        free(tokens[i]);
    }
    token_count = 0;
    ck_assert_int_eq(ev_run(fx.ev, EVRUN_NOWAIT), 0);
}

static void programs(uint64_t first, bool short_of_memory)
{
    pthread_t thread;

    with_thread = !short_of_memory && first % 2 == 1;
    shared_stop = false;
    alloc_fail_this_thread(true);
    if (with_thread)
        ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    const int64_t live = alloc_fail_live();
    for (uint64_t seed = first; seed < first + PROGRAMS; seed++) {
        run_program(seed, short_of_memory);
        expect_all_back(seed);
        if (!with_thread) {
            ck_assert_msg(alloc_fail_live() == live, "seed %llu: %lld blocks are left",
                          (unsigned long long)seed, (long long)(alloc_fail_live() - live));
        }
    }
    if (with_thread) {
        pthread_mutex_lock(&shared_lock);
        shared_stop = true;
        pthread_mutex_unlock(&shared_lock);
        pthread_join(thread, NULL);
        ck_assert_int_eq(alloc_fail_live(), live);
    }
    ck_assert_int_eq(atomic_load(&values_freed), atomic_load(&values_given));
}

START_TEST(random_programs)
{
    programs(1000000u * (unsigned)_i, false);
}
END_TEST

START_TEST(random_programs_beside_a_thread_that_resolves)
{
    programs(1000000u * (unsigned)_i + 500001u, false);
}
END_TEST

START_TEST(random_programs_short_of_memory)
{
    programs(1000000u * (unsigned)_i + 800000u, true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("random");
    TCase *tc = fx_case(suite, "programs");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, random_programs, 1, 3);
    tcase_add_loop_test(tc, random_programs_beside_a_thread_that_resolves, 1, 3);
    tcase_add_loop_test(tc, random_programs_short_of_memory, 1, 3);
    return test_main((Suite *[]){suite, NULL});
}
