/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * abi.h: the part of the CUDA driver's interface that the library uses, declared by ourselves, so
 * that nothing here needs the CUDA Toolkit. Layouts, values and signatures are those of cuda.h;
 * tests/driver/abi_matches_cuda.cpp compares them with cudaTypedefs.h wherever a toolkit is there.
 *
 * Names are cuda.h's behind `culvert__` or `CULVERT__`. Enums are ints. Handles are pointers to the
 * struct tags that cuda.h uses, so that a handle of either side is the same type. For each row of
 * driver.def there is a function type culvert__FN_<name> (to declare or define one) and a pointer
 * type culvert__PFN_<name> (to hold one), in the ABI version that the row says.
 *
 * C11 and C++17. Linux only: there CUDAAPI and CUDA_CB are empty.
 */
#ifndef CULVERT_DRIVER_ABI_H
#define CULVERT_DRIVER_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. */
typedef struct CUctx_st *culvert__CUcontext;
typedef struct CUmod_st *culvert__CUmodule;
typedef struct CUfunc_st *culvert__CUfunction;
typedef struct CUkern_st *culvert__CUkernel;
typedef struct CUstream_st *culvert__CUstream;
typedef struct CUevent_st *culvert__CUevent;
typedef struct CUarray_st *culvert__CUarray;
typedef struct CUgraph_st *culvert__CUgraph;
typedef struct CUgraphNode_st *culvert__CUgraphNode;
typedef struct CUgraphExec_st *culvert__CUgraphExec;
typedef struct CUmemPoolHandle_st *culvert__CUmemoryPool;

typedef int culvert__CUdevice;
typedef unsigned long long culvert__CUdeviceptr;

/* The two streams that exist without being created. */
#define CULVERT__CU_STREAM_LEGACY     ((culvert__CUstream)0x1)
#define CULVERT__CU_STREAM_PER_THREAD ((culvert__CUstream)0x2)

/* Enums, all int. */
typedef int culvert__CUresult;
typedef int culvert__CUdevice_attribute;
typedef int culvert__CUfunction_attribute;
typedef int culvert__CUpointer_attribute;
typedef int culvert__CUjit_option;
typedef int culvert__CUmemorytype;
typedef int culvert__CUmoduleLoadingMode;
typedef int culvert__CUstreamCaptureStatus;
typedef int culvert__CUstreamCaptureMode;
typedef int culvert__CUgraphNodeType;
typedef int culvert__CUlaunchAttributeID;
typedef int culvert__CUkernelNodeAttrID;
typedef int culvert__CUaccessProperty;
typedef int culvert__CUsynchronizationPolicy;
typedef int culvert__CUclusterSchedulingPolicy;
typedef int culvert__CUlaunchMemSyncDomain;
typedef int culvert__CUmemLocationType;
typedef int culvert__CUmemAllocationType;
typedef int culvert__CUmemAllocationHandleType;
typedef int culvert__CUmemAccess_flags;
typedef int culvert__CUmemPool_attribute;
typedef int culvert__CUmemcpySrcAccessOrder;
typedef int culvert__CUdriverProcAddressQueryResult;

/* Constants. */
enum {
#define X(name, value, compare) CULVERT__##name = (value),
#include "constants.def"
#define X(code, name, class_, text) CULVERT__##name = (code),
#include "errors.def"
    CULVERT__ABI_END_ = 0
};

/* Callbacks. */
typedef void (*culvert__CUhostFn)(void *user_data);
typedef size_t (*culvert__CUoccupancyB2DSize)(int block_size);

/* Structs. Members have cuda.h's names. */
typedef struct culvert__CUuuid {
    char bytes[16];
} culvert__CUuuid;

typedef struct culvert__CUaccessPolicyWindow {
    void *base_ptr;
    size_t num_bytes;
    float hitRatio;
    culvert__CUaccessProperty hitProp;
    culvert__CUaccessProperty missProp;
} culvert__CUaccessPolicyWindow;

typedef struct culvert__CUlaunchMemSyncDomainMap {
    unsigned char default_;
    unsigned char remote;
} culvert__CUlaunchMemSyncDomainMap;

typedef union culvert__CUlaunchAttributeValue {
    char pad[64];
    culvert__CUaccessPolicyWindow accessPolicyWindow;
    int cooperative;
    culvert__CUsynchronizationPolicy syncPolicy;
    struct {
        unsigned int x;
        unsigned int y;
        unsigned int z;
    } clusterDim;
    culvert__CUclusterSchedulingPolicy clusterSchedulingPolicyPreference;
    int programmaticStreamSerializationAllowed;
    struct {
        culvert__CUevent event;
        int flags;
        int triggerAtBlockStart;
    } programmaticEvent;
    int priority;
    culvert__CUlaunchMemSyncDomainMap memSyncDomainMap;
    culvert__CUlaunchMemSyncDomain memSyncDomain;
} culvert__CUlaunchAttributeValue;

typedef culvert__CUlaunchAttributeValue culvert__CUkernelNodeAttrValue;

typedef struct culvert__CUlaunchAttribute {
    culvert__CUlaunchAttributeID id;
    char pad[4];
    culvert__CUlaunchAttributeValue value;
} culvert__CUlaunchAttribute;

typedef struct culvert__CUlaunchConfig {
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    culvert__CUstream hStream;
    culvert__CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} culvert__CUlaunchConfig;

typedef struct culvert__CUDA_MEMCPY2D {
    size_t srcXInBytes;
    size_t srcY;
    culvert__CUmemorytype srcMemoryType;
    const void *srcHost;
    culvert__CUdeviceptr srcDevice;
    culvert__CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes;
    size_t dstY;
    culvert__CUmemorytype dstMemoryType;
    void *dstHost;
    culvert__CUdeviceptr dstDevice;
    culvert__CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes;
    size_t Height;
} culvert__CUDA_MEMCPY2D;

typedef struct culvert__CUDA_MEMCPY3D {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    culvert__CUmemorytype srcMemoryType;
    const void *srcHost;
    culvert__CUdeviceptr srcDevice;
    culvert__CUarray srcArray;
    void *reserved0;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    culvert__CUmemorytype dstMemoryType;
    void *dstHost;
    culvert__CUdeviceptr dstDevice;
    culvert__CUarray dstArray;
    void *reserved1;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} culvert__CUDA_MEMCPY3D;

/* Version 2, of CUDA 12.0: version 1 lacks kern and ctx. */
typedef struct culvert__CUDA_KERNEL_NODE_PARAMS {
    culvert__CUfunction func;
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
    culvert__CUkernel kern;
    culvert__CUcontext ctx;
} culvert__CUDA_KERNEL_NODE_PARAMS;

typedef struct culvert__CUDA_MEMSET_NODE_PARAMS {
    culvert__CUdeviceptr dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width;
    size_t height;
} culvert__CUDA_MEMSET_NODE_PARAMS;

typedef struct culvert__CUmemLocation {
    culvert__CUmemLocationType type;
    int id;
} culvert__CUmemLocation;

typedef struct culvert__CUmemAccessDesc {
    culvert__CUmemLocation location;
    culvert__CUmemAccess_flags flags;
} culvert__CUmemAccessDesc;

/* Before CUDA 12.2 maxSize and usage were part of reserved, which must be zero. */
typedef struct culvert__CUmemPoolProps {
    culvert__CUmemAllocationType allocType;
    culvert__CUmemAllocationHandleType handleTypes;
    culvert__CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} culvert__CUmemPoolProps;

typedef struct culvert__CUmemcpyAttributes {
    culvert__CUmemcpySrcAccessOrder srcAccessOrder;
    culvert__CUmemLocation srcLocHint;
    culvert__CUmemLocation dstLocHint;
    unsigned int flags;
} culvert__CUmemcpyAttributes;

/* The one function that is taken with dlsym; all others come through it. */
typedef culvert__CUresult
culvert__FN_cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags,
                             culvert__CUdriverProcAddressQueryResult *found);
typedef culvert__FN_cuGetProcAddress *culvert__PFN_cuGetProcAddress;

/* Start-up and errors. */
typedef culvert__CUresult culvert__FN_cuInit(unsigned int flags);
typedef culvert__CUresult culvert__FN_cuDriverGetVersion(int *version);
typedef culvert__CUresult culvert__FN_cuGetErrorName(culvert__CUresult error, const char **text);
typedef culvert__CUresult culvert__FN_cuGetErrorString(culvert__CUresult error, const char **text);

/* Devices. */
typedef culvert__CUresult culvert__FN_cuDeviceGet(culvert__CUdevice *device, int ordinal);
typedef culvert__CUresult culvert__FN_cuDeviceGetCount(int *count);
typedef culvert__CUresult culvert__FN_cuDeviceGetName(char *name, int len,
                                                      culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDeviceGetUuid(culvert__CUuuid *uuid,
                                                      culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDeviceTotalMem(size_t *bytes, culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDeviceGetAttribute(int *value,
                                                           culvert__CUdevice_attribute attribute,
                                                           culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDeviceGetPCIBusId(char *id, int len,
                                                          culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDeviceCanAccessPeer(int *can_access,
                                                            culvert__CUdevice device,
                                                            culvert__CUdevice peer);

/* Contexts. */
typedef culvert__CUresult culvert__FN_cuDevicePrimaryCtxRetain(culvert__CUcontext *ctx,
                                                               culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDevicePrimaryCtxRelease(culvert__CUdevice device);
typedef culvert__CUresult culvert__FN_cuDevicePrimaryCtxGetState(culvert__CUdevice device,
                                                                 unsigned int *flags, int *active);
typedef culvert__CUresult culvert__FN_cuCtxPushCurrent(culvert__CUcontext ctx);
typedef culvert__CUresult culvert__FN_cuCtxPopCurrent(culvert__CUcontext *ctx);
typedef culvert__CUresult culvert__FN_cuCtxGetCurrent(culvert__CUcontext *ctx);
typedef culvert__CUresult culvert__FN_cuCtxSetCurrent(culvert__CUcontext ctx);
typedef culvert__CUresult culvert__FN_cuCtxGetDevice(culvert__CUdevice *device);
typedef culvert__CUresult culvert__FN_cuCtxGetId(culvert__CUcontext ctx, unsigned long long *id);
typedef culvert__CUresult culvert__FN_cuCtxGetStreamPriorityRange(int *least, int *greatest);
typedef culvert__CUresult culvert__FN_cuCtxEnablePeerAccess(culvert__CUcontext peer,
                                                            unsigned int flags);

/* Modules and functions. */
typedef culvert__CUresult culvert__FN_cuModuleLoadDataEx(culvert__CUmodule *module,
                                                         const void *image,
                                                         unsigned int num_options,
                                                         culvert__CUjit_option *options,
                                                         void **option_values);
typedef culvert__CUresult culvert__FN_cuModuleUnload(culvert__CUmodule module);
typedef culvert__CUresult culvert__FN_cuModuleGetFunction(culvert__CUfunction *function,
                                                          culvert__CUmodule module,
                                                          const char *name);
typedef culvert__CUresult culvert__FN_cuModuleGetGlobal(culvert__CUdeviceptr *address,
                                                        size_t *bytes, culvert__CUmodule module,
                                                        const char *name);
typedef culvert__CUresult culvert__FN_cuModuleGetLoadingMode(culvert__CUmoduleLoadingMode *mode);
typedef culvert__CUresult culvert__FN_cuFuncGetAttribute(int *value,
                                                         culvert__CUfunction_attribute attribute,
                                                         culvert__CUfunction function);
typedef culvert__CUresult culvert__FN_cuFuncSetAttribute(culvert__CUfunction function,
                                                         culvert__CUfunction_attribute attribute,
                                                         int value);
typedef culvert__CUresult culvert__FN_cuFuncLoad(culvert__CUfunction function);
typedef culvert__CUresult culvert__FN_cuFuncGetParamInfo(culvert__CUfunction function, size_t index,
                                                         size_t *offset, size_t *size);
typedef culvert__CUresult culvert__FN_cuFuncGetModule(culvert__CUmodule *module,
                                                      culvert__CUfunction function);

/* Launches. */
typedef culvert__CUresult
culvert__FN_cuLaunchKernel(culvert__CUfunction function, unsigned int grid_x, unsigned int grid_y,
                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                           unsigned int block_z, unsigned int shared_bytes,
                           culvert__CUstream stream, void **params, void **extra);
typedef culvert__CUresult culvert__FN_cuLaunchKernelEx(const culvert__CUlaunchConfig *config,
                                                       culvert__CUfunction function, void **params,
                                                       void **extra);
typedef culvert__CUresult culvert__FN_cuLaunchHostFunc(culvert__CUstream stream,
                                                       culvert__CUhostFn fn, void *user_data);
typedef culvert__CUresult
culvert__FN_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, culvert__CUfunction function,
                                                        int block_size, size_t shared_bytes);
typedef culvert__CUresult culvert__FN_cuOccupancyMaxPotentialBlockSize(
    int *min_grid_size, int *block_size, culvert__CUfunction function,
    culvert__CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes, int block_size_limit);

/* Streams. */
typedef culvert__CUresult culvert__FN_cuStreamCreateWithPriority(culvert__CUstream *stream,
                                                                 unsigned int flags, int priority);
typedef culvert__CUresult culvert__FN_cuStreamDestroy(culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuStreamQuery(culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuStreamSynchronize(culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuStreamWaitEvent(culvert__CUstream stream,
                                                        culvert__CUevent event, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuStreamGetCtx(culvert__CUstream stream,
                                                     culvert__CUcontext *ctx);
typedef culvert__CUresult culvert__FN_cuStreamGetFlags(culvert__CUstream stream,
                                                       unsigned int *flags);
typedef culvert__CUresult culvert__FN_cuStreamGetPriority(culvert__CUstream stream, int *priority);
typedef culvert__CUresult culvert__FN_cuStreamGetId(culvert__CUstream stream,
                                                    unsigned long long *id);

/* Capture. */
typedef culvert__CUresult culvert__FN_cuStreamIsCapturing(culvert__CUstream stream,
                                                          culvert__CUstreamCaptureStatus *status);
typedef culvert__CUresult culvert__FN_cuStreamBeginCapture(culvert__CUstream stream,
                                                           culvert__CUstreamCaptureMode mode);
typedef culvert__CUresult culvert__FN_cuStreamEndCapture(culvert__CUstream stream,
                                                         culvert__CUgraph *graph);
typedef culvert__CUresult culvert__FN_cuStreamGetCaptureInfo(
    culvert__CUstream stream, culvert__CUstreamCaptureStatus *status, uint64_t *id,
    culvert__CUgraph *graph, const culvert__CUgraphNode **dependencies, size_t *num_dependencies);
typedef culvert__CUresult
culvert__FN_cuThreadExchangeStreamCaptureMode(culvert__CUstreamCaptureMode *mode);

/* Values in memory. */
typedef culvert__CUresult culvert__FN_cuStreamWriteValue32(culvert__CUstream stream,
                                                           culvert__CUdeviceptr address,
                                                           uint32_t value, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuStreamWaitValue32(culvert__CUstream stream,
                                                          culvert__CUdeviceptr address,
                                                          uint32_t value, unsigned int flags);

/* Events. */
typedef culvert__CUresult culvert__FN_cuEventCreate(culvert__CUevent *event, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuEventDestroy(culvert__CUevent event);
typedef culvert__CUresult culvert__FN_cuEventRecord(culvert__CUevent event,
                                                    culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuEventQuery(culvert__CUevent event);
typedef culvert__CUresult
culvert__FN_cuEventElapsedTime(float *milliseconds, culvert__CUevent start, culvert__CUevent end);
typedef culvert__CUresult culvert__FN_cuEventSynchronize(culvert__CUevent event);

/* Memory. */
typedef culvert__CUresult culvert__FN_cuMemGetInfo(size_t *free, size_t *total);
typedef culvert__CUresult culvert__FN_cuMemAlloc(culvert__CUdeviceptr *address, size_t bytes);
typedef culvert__CUresult culvert__FN_cuMemFree(culvert__CUdeviceptr address);
typedef culvert__CUresult culvert__FN_cuMemHostAlloc(void **p, size_t bytes, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuMemFreeHost(void *p);
typedef culvert__CUresult culvert__FN_cuMemHostRegister(void *p, size_t bytes, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuMemHostUnregister(void *p);
typedef culvert__CUresult culvert__FN_cuMemHostGetDevicePointer(culvert__CUdeviceptr *address,
                                                                void *p, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuPointerGetAttribute(void *data,
                                                            culvert__CUpointer_attribute attribute,
                                                            culvert__CUdeviceptr address);
typedef culvert__CUresult
culvert__FN_cuPointerGetAttributes(unsigned int num_attributes,
                                   culvert__CUpointer_attribute *attributes, void **data,
                                   culvert__CUdeviceptr address);

/* Copies and fills. */
typedef culvert__CUresult culvert__FN_cuMemcpyHtoDAsync(culvert__CUdeviceptr dst, const void *src,
                                                        size_t bytes, culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemcpyDtoHAsync(void *dst, culvert__CUdeviceptr src,
                                                        size_t bytes, culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemcpyDtoDAsync(culvert__CUdeviceptr dst,
                                                        culvert__CUdeviceptr src, size_t bytes,
                                                        culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemcpyPeerAsync(culvert__CUdeviceptr dst,
                                                        culvert__CUcontext dst_context,
                                                        culvert__CUdeviceptr src,
                                                        culvert__CUcontext src_context,
                                                        size_t bytes, culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemcpy2DAsync(const culvert__CUDA_MEMCPY2D *copy,
                                                      culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemsetD8Async(culvert__CUdeviceptr dst, unsigned char value,
                                                      size_t count, culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemsetD16Async(culvert__CUdeviceptr dst,
                                                       unsigned short value, size_t count,
                                                       culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemsetD32Async(culvert__CUdeviceptr dst, unsigned int value,
                                                       size_t count, culvert__CUstream stream);

/* Pools. */
typedef culvert__CUresult culvert__FN_cuMemPoolCreate(culvert__CUmemoryPool *pool,
                                                      const culvert__CUmemPoolProps *props);
typedef culvert__CUresult culvert__FN_cuMemPoolDestroy(culvert__CUmemoryPool pool);
typedef culvert__CUresult culvert__FN_cuMemPoolSetAttribute(culvert__CUmemoryPool pool,
                                                            culvert__CUmemPool_attribute attribute,
                                                            void *value);
typedef culvert__CUresult culvert__FN_cuMemPoolGetAttribute(culvert__CUmemoryPool pool,
                                                            culvert__CUmemPool_attribute attribute,
                                                            void *value);
typedef culvert__CUresult culvert__FN_cuMemPoolTrimTo(culvert__CUmemoryPool pool,
                                                      size_t bytes_to_keep);
typedef culvert__CUresult culvert__FN_cuMemPoolSetAccess(culvert__CUmemoryPool pool,
                                                         const culvert__CUmemAccessDesc *map,
                                                         size_t count);
typedef culvert__CUresult culvert__FN_cuMemAllocFromPoolAsync(culvert__CUdeviceptr *address,
                                                              size_t bytes,
                                                              culvert__CUmemoryPool pool,
                                                              culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuMemFreeAsync(culvert__CUdeviceptr address,
                                                     culvert__CUstream stream);

/* Graphs. */
typedef culvert__CUresult culvert__FN_cuGraphCreate(culvert__CUgraph *graph, unsigned int flags);
typedef culvert__CUresult culvert__FN_cuGraphDestroy(culvert__CUgraph graph);
typedef culvert__CUresult
culvert__FN_cuGraphAddKernelNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                 const culvert__CUgraphNode *dependencies, size_t num_dependencies,
                                 const culvert__CUDA_KERNEL_NODE_PARAMS *params);
typedef culvert__CUresult
culvert__FN_cuGraphAddMemcpyNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                 const culvert__CUgraphNode *dependencies, size_t num_dependencies,
                                 const culvert__CUDA_MEMCPY3D *params, culvert__CUcontext ctx);
typedef culvert__CUresult
culvert__FN_cuGraphAddMemsetNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                 const culvert__CUgraphNode *dependencies, size_t num_dependencies,
                                 const culvert__CUDA_MEMSET_NODE_PARAMS *params,
                                 culvert__CUcontext ctx);
typedef culvert__CUresult
culvert__FN_cuGraphAddChildGraphNode(culvert__CUgraphNode *node, culvert__CUgraph graph,
                                     const culvert__CUgraphNode *dependencies,
                                     size_t num_dependencies, culvert__CUgraph child);
typedef culvert__CUresult culvert__FN_cuGraphInstantiateWithFlags(culvert__CUgraphExec *exec,
                                                                  culvert__CUgraph graph,
                                                                  unsigned long long flags);
typedef culvert__CUresult culvert__FN_cuGraphExecDestroy(culvert__CUgraphExec exec);
typedef culvert__CUresult culvert__FN_cuGraphUpload(culvert__CUgraphExec exec,
                                                    culvert__CUstream stream);
typedef culvert__CUresult culvert__FN_cuGraphLaunch(culvert__CUgraphExec exec,
                                                    culvert__CUstream stream);
typedef culvert__CUresult
culvert__FN_cuGraphGetNodes(culvert__CUgraph graph, culvert__CUgraphNode *nodes, size_t *num_nodes);
typedef culvert__CUresult culvert__FN_cuGraphNodeGetType(culvert__CUgraphNode node,
                                                         culvert__CUgraphNodeType *type);
typedef culvert__CUresult
culvert__FN_cuGraphExecKernelNodeSetParams(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                           const culvert__CUDA_KERNEL_NODE_PARAMS *params);
typedef culvert__CUresult
culvert__FN_cuGraphExecMemcpyNodeSetParams(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                           const culvert__CUDA_MEMCPY3D *params,
                                           culvert__CUcontext ctx);
typedef culvert__CUresult
culvert__FN_cuGraphExecMemsetNodeSetParams(culvert__CUgraphExec exec, culvert__CUgraphNode node,
                                           const culvert__CUDA_MEMSET_NODE_PARAMS *params,
                                           culvert__CUcontext ctx);
typedef culvert__CUresult
culvert__FN_cuGraphKernelNodeSetAttribute(culvert__CUgraphNode node,
                                          culvert__CUkernelNodeAttrID attribute,
                                          const culvert__CUkernelNodeAttrValue *value);

/* Batches of copies. */
typedef culvert__CUresult
culvert__FN_cuMemcpyBatchAsync(culvert__CUdeviceptr *dsts, culvert__CUdeviceptr *srcs,
                               size_t *sizes, size_t count, culvert__CUmemcpyAttributes *attrs,
                               size_t *attr_indices, size_t num_attrs, size_t *fail_index,
                               culvert__CUstream stream);

/* The pointer types. */
#define X(name, abi, ask, need, symbol) typedef culvert__FN_##name *culvert__PFN_##name;
#include "driver.def"

#ifdef __cplusplus
}
#endif

#endif
