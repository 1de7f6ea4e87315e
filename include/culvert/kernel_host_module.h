/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * culvert/kernel_host_module.h: how a kernel becomes an entry of a culvert_sim_module; part of
 * culvert/kernel_host.h, which includes it.
 *
 * Each marker specialises culvert__item for the next value of __COUNTER__, and CULVERT__MODULE,
 * which culvert_add_kernels() puts at the end of the source, collects the items into constant
 * tables. Nothing runs before main, and all but the module itself is internal to the object.
 */
#ifndef CULVERT_KERNEL_HOST_MODULE_H
#define CULVERT_KERNEL_HOST_MODULE_H

#ifdef __cplusplus

#include "culvert/kernel_host.h"

namespace
{

/* Parameters, as CUDA lays them out */

constexpr size_t culvert__round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

template <class... A> struct culvert__params {
    static constexpr size_t count = sizeof...(A);
    size_t offsets[count + 1], sizes[count + 1]; /* one more: no array is empty */
    size_t bytes;

    static constexpr culvert__params make()
    {
        const size_t size[] = {sizeof(A)..., 0}, align[] = {alignof(A)..., 1};
        culvert__params p{};
        for (size_t i = 0; i < count; i++) {
            p.offsets[i] = culvert__round_up(p.bytes, align[i]);
            p.sizes[i] = size[i];
            p.bytes = p.offsets[i] + size[i];
        }
        return p;
    }
};

/* A kernel: its type gives the parameters, its address what runs */

template <class F, F *kernel> struct culvert__launcher;

template <class... A, void (*kernel)(A...)> struct culvert__launcher<void(A...), kernel> {
    static_assert((std::is_trivially_copyable<A>::value && ...),
                  "a kernel's parameters are passed by value and trivially copyable");

    static constexpr culvert__params<A...> params = culvert__params<A...>::make();

    template <size_t... I>
    static inline void call(const unsigned char *p, std::index_sequence<I...>)
    {
        static_cast<void>(p);
        kernel(*reinterpret_cast<const A *>(p + params.offsets[I])...);
    }

    /* A culvert_sim_run_fn */
    static void run(culvert_sim_block *b, const void *packed, unsigned first, unsigned end)
    {
        const unsigned nx = b->block_dim[0], ny = b->block_dim[1];
        uint3 index = {first % nx, first / nx % ny, first / nx / ny};
        culvert__block = b;
        blockIdx = uint3{b->block_idx[0], b->block_idx[1], b->block_idx[2]};
        blockDim = dim3(nx, ny, b->block_dim[2]);
        gridDim = dim3(b->grid_dim[0], b->grid_dim[1], b->grid_dim[2]);
        for (unsigned i = first; i < end; i++) {
            threadIdx = index;
            culvert__thread = i;
            culvert__waited = false;
            call(static_cast<const unsigned char *>(packed), std::index_sequence_for<A...>{});
            if (culvert__waited) {
                return;
            }
            if (++index.x == nx) {
                index.x = 0;
                if (++index.y == ny) {
                    index.y = 0;
                    index.z++;
                }
            }
        }
    }
};

template <class F, F *kernel>
constexpr culvert_sim_kernel culvert__describe_kernel(const char *name)
{
    using launcher = culvert__launcher<F, kernel>;
    return culvert_sim_kernel{sizeof(culvert_sim_kernel),
                              name,
                              &launcher::run,
                              launcher::params.count,
                              launcher::params.offsets,
                              launcher::params.sizes,
                              launcher::params.bytes,
                              0,
                              0,
                              0,
                              0};
}

/* The items of a module; numbers that __COUNTER__ gave to others have none. */

constexpr int culvert__first_item = __COUNTER__ + 1;

template <int number> struct culvert__item {
    static constexpr const culvert_sim_kernel *kernel = nullptr;
    static constexpr const culvert_sim_global *global = nullptr;
};

template <class T, size_t capacity> struct culvert__table {
    const T *entries[capacity + 1];
    size_t count;

    constexpr void add(const T *entry)
    {
        if (entry) {
            entries[count++] = entry;
        }
    }
};

template <class sequence> struct culvert__items;

template <int... number> struct culvert__items<std::integer_sequence<int, number...>> {
    static constexpr auto kernels()
    {
        culvert__table<culvert_sim_kernel, sizeof...(number)> t{};
        (t.add(culvert__item<culvert__first_item + number>::kernel), ...);
        return t;
    }
    static constexpr auto globals()
    {
        culvert__table<culvert_sim_global, sizeof...(number)> t{};
        (t.add(culvert__item<culvert__first_item + number>::global), ...);
        return t;
    }
};

} // namespace

/* See culvert/kernel.h. The last line of each is there for the semicolon. */

#define CULVERT_KERNEL(name)                                                          \
    namespace                                                                         \
    {                                                                                 \
    template <> struct culvert__item<__COUNTER__> {                                   \
        static constexpr culvert_sim_kernel record =                                  \
            culvert__describe_kernel<decltype(name), name>(#name);                    \
        [[maybe_unused]] static constexpr const culvert_sim_kernel *kernel = &record; \
        [[maybe_unused]] static constexpr const culvert_sim_global *global = nullptr; \
    };                                                                                \
    }                                                                                 \
    extern "C" decltype(name) name

#define CULVERT_GLOBAL(name)                                                          \
    namespace                                                                         \
    {                                                                                 \
    template <> struct culvert__item<__COUNTER__> {                                   \
        static constexpr culvert_sim_global record = {                                \
            sizeof(culvert_sim_global), #name, &name, sizeof(name), 0, 0};            \
        [[maybe_unused]] static constexpr const culvert_sim_kernel *kernel = nullptr; \
        [[maybe_unused]] static constexpr const culvert_sim_global *global = &record; \
    };                                                                                \
    }                                                                                 \
    static_assert(sizeof(name) > 0, "")

#define CULVERT__MODULE(identifier, text)                                                    \
    namespace                                                                                \
    {                                                                                        \
    using culvert__all =                                                                     \
        culvert__items<std::make_integer_sequence<int, __COUNTER__ - culvert__first_item>>;  \
    constexpr auto culvert__kernels = culvert__all::kernels();                               \
    constexpr auto culvert__globals = culvert__all::globals();                               \
    }                                                                                        \
    extern "C" {                                                                             \
    extern const culvert_sim_module culvert__sim_module_##identifier;                        \
    const culvert_sim_module culvert__sim_module_##identifier = {CULVERT_SIM_MODULE_MAGIC,   \
                                                                 CULVERT_SIM_MODULE_ABI,     \
                                                                 0,                          \
                                                                 sizeof(culvert_sim_module), \
                                                                 text,                       \
                                                                 culvert__kernels.count,     \
                                                                 culvert__kernels.entries,   \
                                                                 culvert__globals.count,     \
                                                                 culvert__globals.entries};  \
    }                                                                                        \
    static_assert(culvert__all::kernels().count || culvert__all::globals().count,            \
                  "the source has no CULVERT_KERNEL(name) after a kernel")

#endif
#endif
