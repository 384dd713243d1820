/* cuDNN's C interface as far as we use it, opened at run time: no header of it is needed to build.  The numbers are those
 * of the 9.x binary interface. */
#ifndef DCML_BACKENDS_CUDA_CUDNN_H
#define DCML_BACKENDS_CUDA_CUDNN_H

#include <pthread.h>
#include <stddef.h>

#include "backends/cuda/natives.h"
#include "backends/native/problem.h"

enum { DN_FLOAT = 0, DN_DOUBLE = 1, DN_HALF = 2, DN_BFLOAT16 = 9 }; /* cudnnDataType_t */
enum {
  DN_T_HANDLE = 0,
  DN_T_DATA_TYPE = 1,
  DN_T_INT64 = 3,
  DN_T_FLOAT = 4,
  DN_T_DOUBLE = 5,
  DN_T_POINTER = 6,
  DN_T_CONV_MODE = 7,
  DN_T_HEUR_MODE = 8,
  DN_T_NOTE = 11,
  DN_T_DESCRIPTOR = 15
}; /* cudnnBackendAttributeType_t */
enum { DN_CONVOLUTION = 1, DN_ENGINE = 2, DN_ENGINECFG = 3, DN_ENGINEHEUR = 4, DN_PLAN = 5, DN_FORWARD = 10, DN_BACKWARD_FILTER = 11,
       DN_BACKWARD_DATA = 12, DN_GRAPH = 15, DN_PACK = 16, DN_TENSOR = 17 }; /* cudnnBackendDescriptorType_t */
enum { /* cudnnBackendAttributeName_t */
  DN_A_CONV_TYPE = 100, DN_A_CONV_MODE, DN_A_CONV_DILATIONS, DN_A_CONV_STRIDES, DN_A_CONV_POST, DN_A_CONV_PRE, DN_A_CONV_DIMS,
  DN_A_HEUR_MODE = 200, DN_A_HEUR_GRAPH, DN_A_HEUR_RESULTS,
  DN_A_CFG_ENGINE = 300,
  DN_A_PLAN_HANDLE = 400, DN_A_PLAN_CFG, DN_A_PLAN_WORKSPACE,
  DN_A_FWD_ALPHA = 700, DN_A_FWD_BETA, DN_A_FWD_CONV, DN_A_FWD_W, DN_A_FWD_X, DN_A_FWD_Y,
  DN_A_BWD_X_ALPHA = 706, DN_A_BWD_X_BETA, DN_A_BWD_X_CONV, DN_A_BWD_X_W, DN_A_BWD_X_X, DN_A_BWD_X_Y,
  DN_A_BWD_W_ALPHA = 712, DN_A_BWD_W_BETA, DN_A_BWD_W_CONV, DN_A_BWD_W_W, DN_A_BWD_W_X, DN_A_BWD_W_Y,
  DN_A_GRAPH_HANDLE = 800, DN_A_GRAPH_OPS,
  DN_A_TENSOR_ALIGNMENT = 900, DN_A_TENSOR_TYPE, DN_A_TENSOR_DIMS, DN_A_TENSOR_STRIDES, DN_A_TENSOR_ID = 906,
  DN_A_PACK_IDS = 1000, DN_A_PACK_POINTERS, DN_A_PACK_WORKSPACE = 1003,
  DN_A_ENGINE_NOTES = 1303,
};
enum { DN_CROSS_CORRELATION = 1, DN_HEUR_FALLBACK = 2, DN_HEUR_A = 3 };
enum { DN_NOTE_TENSOR_CORE = 0, DN_NOTE_DOWN_CONVERT = 1, DN_NOTE_NONDETERMINISTIC = 4, DN_NOTES = 16 };

#define DN_FUNCTIONS(X)                                                                                                                    \
  X(size_t, cudnnGetVersion, (void))                                                                                                       \
  X(int, cudnnCreate, (void **handle))                                                                                                     \
  X(int, cudnnDestroy, (void *handle))                                                                                                     \
  X(int, cudnnSetStream, (void *handle, void *stream))                                                                                     \
  X(int, cudnnBackendCreateDescriptor, (int kind, void **descriptor))                                                                      \
  X(int, cudnnBackendDestroyDescriptor, (void *descriptor))                                                                                \
  X(int, cudnnBackendFinalize, (void *descriptor))                                                                                         \
  X(int, cudnnBackendSetAttribute, (void *descriptor, int name, int type, int64_t n, const void *values))                                  \
  X(int, cudnnBackendGetAttribute, (const void *descriptor, int name, int type, int64_t wanted, int64_t *n, void *values))                 \
  X(int, cudnnBackendExecute, (void *handle, void *plan, void *pack))                                                                      \
  X(int, cudnnCreateTensorDescriptor, (void **descriptor))                                                                                 \
  X(int, cudnnDestroyTensorDescriptor, (void *descriptor))                                                                                 \
  X(int, cudnnSetTensorNdDescriptor, (void *descriptor, int type, int rank, const int *dims, const int *strides))                          \
  X(int, cudnnTransformTensor,                                                                                                             \
    (void *handle, const void *alpha, void *from_layout, const void *from, const void *beta, void *to_layout, void *to))

typedef struct {
#define X(result, name, parameters) result(*name) parameters;
  DN_FUNCTIONS(X)
#undef X
  void *library, *handle;
  pthread_mutex_t lock; /* of the handle, which has one stream and is one thread's at a time */
  dc_cuda_place place;
} dn_library;

/* x, w or y, with at least two spatial dimensions. */
typedef struct {
  int buffer;
  dc_problem_shape given, used; /* how it lies for the caller and for the library ... */
  bool moved;                   /* ... if that is not the same: then a copy lies in scratch memory, there: */
  uint64_t offset;
  void *given_layout, *used_layout;
} dn_operand;

/* What runs a convolution whose operands are aligned so. */
typedef struct {
  void *plan;
  uint64_t workspace;
} dn_plan;

enum { DN_X, DN_W, DN_Y, DN_OPERANDS, DN_FIRST_ID = 1 };
typedef struct {
  dn_library *lib;
  dc_problem_conv conv;
  dc_dtype type;
  bool tf32, empty;
  dn_operand operands[DN_OPERANDS];
  int result;           /* of the operands */
  uint64_t moved_bytes; /* of copies, before the workspace */
  dn_plan fast, any;    /* for operands aligned to vectors; for others, made when such come */
  DC_VEC(void *) kept;  /* descriptors that plans refer to */
  dc_arena arena;
} dn_call;

DC_MUST_USE dc_status dc_cudnn_failed(int code, const char *what);
#define DN_TRY(call, what)                                \
  do {                                                    \
    int dn_code = (call);                                 \
    if (dn_code) return dc_cudnn_failed(dn_code, (what)); \
  } while (0)

/* cudnn_plan.c: the best plan that the library has whose operands are aligned to `alignment` bytes, and which works in `limit`
 * bytes.  None: out->plan is NULL. */
DC_MUST_USE dc_status dc_cudnn_plan(dn_call *call, int64_t alignment, uint64_t limit, dn_plan *out);
int dc_cudnn_type(dc_dtype type);

#endif
