/* The driver of NVIDIA's GPUs and its run-time compiler, as tables of functions that are looked up when first wanted.
 *
 * dcml is neither built nor linked against CUDA: types stand here as far as the functions need them, and both libraries
 * are opened at run time.  The tables list all that dcml calls, so that another library can stand in for either one. */
#ifndef DCML_BACKENDS_CUDA_DRIVER_H
#define DCML_BACKENDS_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* ---- types: names, sizes and values as in the driver's interface ---- */

typedef int CUresult; /* 0: success */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct {
  int result;
  void *node, *from;
} CUgraphExecUpdateResultInfo;
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

enum { /* CUresult */
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};
enum { /* CUdevice_attribute */
  CU_SHARED_BYTES_PER_BLOCK = 8,
  CU_WARP_SIZE = 10,
  CU_CLOCK_KHZ = 13,
  CU_MULTIPROCESSORS = 16,
  CU_MEMORY_CLOCK_KHZ = 36,
  CU_MEMORY_BUS_BITS = 37,
  CU_L2_BYTES = 38,
  CU_THREADS_PER_MULTIPROCESSOR = 39,
  CU_CAPABILITY_MAJOR = 75,
  CU_CAPABILITY_MINOR = 76,
  CU_SHARED_BYTES_PER_BLOCK_OPTIN = 97,
  CU_MEMORY_POOLS = 115,
};
enum { CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8 }; /* CUfunction_attribute */
enum { CU_MEMPOOL_RELEASE_THRESHOLD = 4 };     /* CUmemPool_attribute, of a uint64_t */
enum { CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };

/* ---- functions: X(name, parameters) ---- */

#define DC_DRIVER_FUNCTIONS(X)                                                                                                  \
  X(cuInit, (unsigned flags))                                                                                                   \
  X(cuDriverGetVersion, (int *version)) /* 1000 * major + 10 * minor of CUDA */                                                 \
  X(cuGetErrorName, (CUresult error, const char **text))                                                                        \
  X(cuGetErrorString, (CUresult error, const char **text))                                                                      \
  X(cuDeviceGetCount, (int *count))                                                                                             \
  X(cuDeviceGet, (CUdevice *device, int ordinal))                                                                               \
  X(cuDeviceGetName, (char *name, int length, CUdevice device))                                                                 \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                                         \
  X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                                                      \
  X(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device))                                                           \
  X(cuMemPoolSetAttribute, (CUmemoryPool pool, int attribute, void *value))                                                     \
  X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                                                            \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                            \
  X(cuCtxGetCurrent, (CUcontext *context))                                                                                      \
  X(cuCtxPushCurrent_v2, (CUcontext context))                                                                                   \
  X(cuCtxPopCurrent_v2, (CUcontext *context))                                                                                   \
  X(cuCtxSynchronize, (void))                                                                                                   \
  X(cuMemAllocAsync, (CUdeviceptr *memory, size_t bytes, CUstream stream))                                                      \
  X(cuMemFreeAsync, (CUdeviceptr memory, CUstream stream))                                                                      \
  X(cuMemGetInfo_v2, (size_t *free, size_t *total))                                                                             \
  X(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                                                              \
  X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *device, void *memory, unsigned flags))                                          \
  X(cuMemFreeHost, (void *memory))                                                                                              \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                                    \
  X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                          \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                    \
  X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream stream))                                          \
  X(cuStreamCreate, (CUstream *stream, unsigned flags))                                                                         \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                                      \
  X(cuStreamSynchronize, (CUstream stream))                                                                                     \
  X(cuStreamQuery, (CUstream stream))                                                                                           \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                                        \
  X(cuStreamIsCapturing, (CUstream stream, int *status)) /* 0: it is not */                                                     \
  X(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                                       \
  X(cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                                                      \
  X(cuEventCreate, (CUevent *event, unsigned flags))                                                                            \
  X(cuEventDestroy_v2, (CUevent event))                                                                                         \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                                            \
  X(cuEventQuery, (CUevent event))                                                                                              \
  X(cuEventSynchronize, (CUevent event))                                                                                        \
  X(cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end))                                                      \
  X(cuModuleLoadData, (CUmodule *module, const void *image))                                                                    \
  X(cuModuleUnload, (CUmodule module))                                                                                          \
  X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))                                             \
  X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function))                                                       \
  X(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                                        \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
                     unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra))                \
  X(cuGraphInstantiateWithFlags, (CUgraphExec *made, CUgraph graph, unsigned long long flags))                                  \
  X(cuGraphExecUpdate_v2, (CUgraphExec made, CUgraph graph, CUgraphExecUpdateResultInfo *info))                                 \
  X(cuGraphLaunch, (CUgraphExec made, CUstream stream))                                                                         \
  X(cuGraphExecDestroy, (CUgraphExec made))                                                                                     \
  X(cuGraphDestroy, (CUgraph graph))

#define DC_NVRTC_FUNCTIONS(X)                                                                                               \
  X(nvrtcVersion, (int *major, int *minor))                                                                                 \
  X(nvrtcCreateProgram, (nvrtcProgram *program, const char *text, const char *name, int n_headers, const char *const *headers, \
                         const char *const *names))                                                                         \
  X(nvrtcCompileProgram, (nvrtcProgram program, int n_options, const char *const *options))                                 \
  X(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes))                                                          \
  X(nvrtcGetProgramLog, (nvrtcProgram program, char *log))                                                                  \
  X(nvrtcGetCUBINSize, (nvrtcProgram program, size_t *bytes))                                                               \
  X(nvrtcGetCUBIN, (nvrtcProgram program, char *cubin))                                                                     \
  X(nvrtcGetNumSupportedArchs, (int *n))                                                                                    \
  X(nvrtcGetSupportedArchs, (int *architectures))                                                                           \
  X(nvrtcDestroyProgram, (nvrtcProgram *program))

typedef struct {
#define X(name, parameters) CUresult (*name) parameters;
  DC_DRIVER_FUNCTIONS(X)
#undef X
} dc_driver;

typedef struct {
#define X(name, parameters) nvrtcResult (*name) parameters;
  DC_NVRTC_FUNCTIONS(X)
#undef X
  const char *(*nvrtcGetErrorString)(nvrtcResult error);
  const char *path; /* of its file */
  int major, minor;
} dc_nvrtc;

/* $DCML_CUDA_DRIVER or the system's, started.  DC_ERR_DEVICE says what is missing and what to do about it. */
DC_MUST_USE dc_status dc_driver_open(dc_driver *out);
/* $DCML_NVRTC, what the process has loaded, a package's under the folder, the system's.  Its path is put into the arena. */
/* architecture: 10 * major + minor of the device that it is to compile for. */
DC_MUST_USE dc_status dc_nvrtc_open(const dc_driver *driver, const char *folder, int architecture, dc_arena *arena, dc_nvrtc *out);
/* DC_OK, or an error: what could not be done, and what the driver says of it.  DC_ERR_MEMORY where memory is short. */
DC_MUST_USE dc_status dc_driver_status(const dc_driver *driver, CUresult result, const char *format, ...) DC_PRINTF(3, 4);

#endif
