/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * abi_matches_cuda.cpp: compares lib/driver/abi.h with the cuda.h and cudaTypedefs.h of a CUDA
 * Toolkit, 12.0 or newer. Everything is checked while it compiles; a difference does not compile.
 *
 * - every constant and error code has cuda.h's value;
 * - every struct has cuda.h's size and alignment, every member its offset, size and type;
 * - every function has the parameters and the result of its PFN_ typedef, in the version that
 *   driver.def says. Types must be the same, but for three allowances: an enum of cuda.h is an int
 *   of ours, a struct of cuda.h is the struct of ours that is compared with it here, and pointers
 *   to either.
 *
 * What came after the toolkit's version is skipped.
 */
#include "driver/abi.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <type_traits>

namespace
{

/* Structs that are compared member by member below, and so count as the same. */
template <typename Ours, typename Theirs> struct paired : std::false_type {
};

/* An enum of cuda.h is an int of ours. */
template <typename Ours, typename Theirs, bool = std::is_enum_v<Theirs>>
struct int_of_enum : std::false_type {
};
template <typename Theirs>
struct int_of_enum<int, Theirs, true> : std::bool_constant<sizeof(int) == sizeof(Theirs)> {
};

template <typename Ours, typename Theirs>
struct same : std::bool_constant<std::is_same_v<Ours, Theirs> || paired<Ours, Theirs>::value ||
                                 int_of_enum<Ours, Theirs>::value> {
};
template <typename Ours, typename Theirs>
struct same<const Ours, const Theirs> : same<Ours, Theirs> {
};
template <typename Ours, typename Theirs> struct same<Ours *, Theirs *> : same<Ours, Theirs> {
};
template <typename Ours, typename Theirs, std::size_t n>
struct same<Ours[n], Theirs[n]> : same<Ours, Theirs> {
};

/* A function: as many parameters, each the same. */
template <typename Ours, typename Theirs> struct same_function : std::false_type {
};
template <typename R, typename... Ours, typename S, typename... Theirs>
struct same_function<R (*)(Ours...), S (*)(Theirs...)> {
    template <typename... T> struct list {
    };
    template <typename A, typename B> struct all : std::false_type {
    };
    template <typename... A, typename... B>
    struct all<list<A...>, list<B...>> : std::bool_constant<(same<A, B>::value && ...)> {
    };
    static constexpr bool compare()
    {
        if constexpr (sizeof...(Ours) == sizeof...(Theirs))
            return same<R, S>::value && all<list<Ours...>, list<Theirs...>>::value;
        else
            return false;
    }
    static constexpr bool value = compare();
};

/* The comparison itself is tested: it must be able to say no. */
static_assert(same_function<int (*)(int, void *), CUresult (*)(int, void *)>::value, "");
static_assert(!same_function<int (*)(int), CUresult (*)(int, void *)>::value, "arity");
static_assert(!same_function<int (*)(unsigned), CUresult (*)(int)>::value, "signedness");
static_assert(!same_function<int (*)(int *), CUresult (*)(size_t *)>::value, "width");
static_assert(!same_function<int (*)(void *), CUresult (*)(const void *)>::value, "const");
static_assert(!same_function<int (*)(CUevent), CUresult (*)(CUstream)>::value, "handle");
static_assert(!same_function<int (*)(CUevent *), CUresult (*)(CUevent)>::value, "pointer");
static_assert(!same_function<void (*)(int), CUresult (*)(int)>::value, "result");

} // namespace

/* A struct's size and alignment. The pair is the same type only if this holds. */
#define STRUCT(ours, theirs)                                                \
    static_assert(sizeof(ours) == sizeof(theirs), "size of " #ours);        \
    static_assert(alignof(ours) == alignof(theirs), "alignment of " #ours); \
    template <> struct paired<ours, theirs> : std::true_type {              \
    }
#define MEMBER(ours, theirs, member)                                                      \
    static_assert(offsetof(ours, member) == offsetof(theirs, member), #ours "." #member); \
    static_assert(sizeof(ours::member) == sizeof(theirs::member), #ours "." #member);     \
    static_assert(same<decltype(ours::member), decltype(theirs::member)>::value, #ours "." #member)
/* A part of a member that has a struct without a name. */
#define PART(ours, theirs, member, part)                                                     \
    static_assert(offsetof(ours, member.part) == offsetof(theirs, member.part),              \
                  #ours "." #member "." #part);                                              \
    static_assert(same<decltype(ours{}.member.part), decltype(theirs{}.member.part)>::value, \
                  #ours "." #member "." #part)

namespace
{

#define M(member) MEMBER(culvert__CUuuid, CUuuid, member)
STRUCT(culvert__CUuuid, CUuuid);
M(bytes);
#undef M

#define M(member) MEMBER(culvert__CUaccessPolicyWindow, CUaccessPolicyWindow_v1, member)
STRUCT(culvert__CUaccessPolicyWindow, CUaccessPolicyWindow_v1);
M(base_ptr);
M(num_bytes);
M(hitRatio);
M(hitProp);
M(missProp);
#undef M

#define M(member) MEMBER(culvert__CUlaunchMemSyncDomainMap, CUlaunchMemSyncDomainMap, member)
STRUCT(culvert__CUlaunchMemSyncDomainMap, CUlaunchMemSyncDomainMap);
M(default_);
M(remote);
#undef M

#define M(member)       MEMBER(culvert__CUlaunchAttributeValue, CUlaunchAttributeValue, member)
#define P(member, part) PART(culvert__CUlaunchAttributeValue, CUlaunchAttributeValue, member, part)
STRUCT(culvert__CUlaunchAttributeValue, CUlaunchAttributeValue);
M(pad);
M(accessPolicyWindow);
M(cooperative);
M(syncPolicy);
P(clusterDim, x);
P(clusterDim, y);
P(clusterDim, z);
M(clusterSchedulingPolicyPreference);
M(programmaticStreamSerializationAllowed);
P(programmaticEvent, event);
P(programmaticEvent, flags);
P(programmaticEvent, triggerAtBlockStart);
M(priority);
M(memSyncDomainMap);
M(memSyncDomain);
static_assert(std::is_same_v<culvert__CUkernelNodeAttrValue, culvert__CUlaunchAttributeValue> &&
                  std::is_same_v<CUkernelNodeAttrValue_v1, CUlaunchAttributeValue>,
              "the two names are one type");
#undef P
#undef M

#define M(member) MEMBER(culvert__CUlaunchAttribute, CUlaunchAttribute, member)
STRUCT(culvert__CUlaunchAttribute, CUlaunchAttribute);
M(id);
M(pad);
M(value);
#undef M

#define M(member) MEMBER(culvert__CUlaunchConfig, CUlaunchConfig, member)
STRUCT(culvert__CUlaunchConfig, CUlaunchConfig);
M(gridDimX);
M(gridDimY);
M(gridDimZ);
M(blockDimX);
M(blockDimY);
M(blockDimZ);
M(sharedMemBytes);
M(hStream);
M(attrs);
M(numAttrs);
#undef M

#define M(member) MEMBER(culvert__CUDA_MEMCPY2D, CUDA_MEMCPY2D_v2, member)
STRUCT(culvert__CUDA_MEMCPY2D, CUDA_MEMCPY2D_v2);
M(srcXInBytes);
M(srcY);
M(srcMemoryType);
M(srcHost);
M(srcDevice);
M(srcArray);
M(srcPitch);
M(dstXInBytes);
M(dstY);
M(dstMemoryType);
M(dstHost);
M(dstDevice);
M(dstArray);
M(dstPitch);
M(WidthInBytes);
M(Height);
#undef M

#define M(member) MEMBER(culvert__CUDA_MEMCPY3D, CUDA_MEMCPY3D_v2, member)
STRUCT(culvert__CUDA_MEMCPY3D, CUDA_MEMCPY3D_v2);
M(srcXInBytes);
M(srcY);
M(srcZ);
M(srcLOD);
M(srcMemoryType);
M(srcHost);
M(srcDevice);
M(srcArray);
M(reserved0);
M(srcPitch);
M(srcHeight);
M(dstXInBytes);
M(dstY);
M(dstZ);
M(dstLOD);
M(dstMemoryType);
M(dstHost);
M(dstDevice);
M(dstArray);
M(reserved1);
M(dstPitch);
M(dstHeight);
M(WidthInBytes);
M(Height);
M(Depth);
#undef M

#define M(member) MEMBER(culvert__CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2, member)
STRUCT(culvert__CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2);
M(func);
M(gridDimX);
M(gridDimY);
M(gridDimZ);
M(blockDimX);
M(blockDimY);
M(blockDimZ);
M(sharedMemBytes);
M(kernelParams);
M(extra);
M(kern);
M(ctx);
#undef M

#define M(member) MEMBER(culvert__CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v1, member)
STRUCT(culvert__CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v1);
M(dst);
M(pitch);
M(value);
M(elementSize);
M(width);
M(height);
#undef M

#define M(member) MEMBER(culvert__CUmemLocation, CUmemLocation_v1, member)
STRUCT(culvert__CUmemLocation, CUmemLocation_v1);
M(type);
M(id);
#undef M

#define M(member) MEMBER(culvert__CUmemAccessDesc, CUmemAccessDesc_v1, member)
STRUCT(culvert__CUmemAccessDesc, CUmemAccessDesc_v1);
M(location);
M(flags);
#undef M

#define M(member) MEMBER(culvert__CUmemPoolProps, CUmemPoolProps_v1, member)
STRUCT(culvert__CUmemPoolProps, CUmemPoolProps_v1);
M(allocType);
M(handleTypes);
M(location);
M(win32SecurityAttributes);
#if CUDA_VERSION >= 13000
M(maxSize);
M(usage);
M(reserved);
#endif
#undef M

#if CUDA_VERSION >= 12080
#define M(member) MEMBER(culvert__CUmemcpyAttributes, CUmemcpyAttributes_v1, member)
STRUCT(culvert__CUmemcpyAttributes, CUmemcpyAttributes_v1);
M(srcAccessOrder);
M(srcLocHint);
M(dstLocHint);
M(flags);
#undef M
#endif

static_assert(sizeof(culvert__CUdevice_attribute) == sizeof(CUdevice_attribute), "enums are ints");
static_assert(std::is_same_v<culvert__CUdeviceptr, CUdeviceptr_v2>, "device pointers");
static_assert(std::is_same_v<culvert__CUdevice, CUdevice_v1>, "device ordinals");

/* Constants, errors and functions, by the lists. */
#define SINCE_12000(...) __VA_ARGS__
#if CUDA_VERSION >= 12040
#define SINCE_12040(...) __VA_ARGS__
#else
#define SINCE_12040(...)
#endif
#if CUDA_VERSION >= 12080
#define SINCE_12080(...) __VA_ARGS__
#else
#define SINCE_12080(...)
#endif
#if CUDA_VERSION >= 13000
#define SINCE_13000(...) __VA_ARGS__
#else
#define SINCE_13000(...)
#endif

#define X(name, number, compare)                                   \
    static_assert(CULVERT__##name == (number), #name " in abi.h"); \
    SINCE_##compare(static_assert(static_cast<int>(name) == (number), #name);)
#include "driver/constants.def"

#if CUDA_VERSION >= 13000
#define X(code, name, class_, text) static_assert(static_cast<int>(name) == (code), #name);
#include "driver/errors.def"
#endif

#define X(name, abi, ask, need, symbol) \
    SINCE_##ask(                        \
        static_assert(same_function<culvert__PFN_##name, PFN_##name##_v##abi>::value, #name);)
#include "driver/driver.def"

static_assert(same_function<culvert__PFN_cuGetProcAddress, PFN_cuGetProcAddress_v12000>::value,
              "cuGetProcAddress");
static_assert(same_function<culvert__CUhostFn, CUhostFn>::value, "host functions");
static_assert(same_function<culvert__CUoccupancyB2DSize, CUoccupancyB2DSize>::value, "occupancy");

} // namespace

int main()
{
    return 0;
}
