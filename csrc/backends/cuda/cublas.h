/* cuBLASLt's C interface as far as we use it, opened at run time: no header of it is needed to build.  Sizes and numbers
 * are those of the binary interface of versions 12 and 13. */
#ifndef DCML_BACKENDS_CUDA_CUBLAS_H
#define DCML_BACKENDS_CUDA_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

enum { LT_R_32F = 0, LT_R_64F = 1, LT_R_16F = 2, LT_R_16BF = 14 };                             /* cudaDataType_t */
enum { LT_COMPUTE_32F = 68, LT_COMPUTE_64F = 70, LT_COMPUTE_32F_FAST_TF32 = 77 };              /* cublasComputeType_t */
enum { LT_LAYOUT_BATCH_COUNT = 5, LT_LAYOUT_BATCH_OFFSET = 6 };                                /* int32_t, int64_t */
enum { LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS_POINTER = 8 }; /* int32_t, uint32_t, pointer */
enum { LT_OP_N = 0, LT_OP_T = 1, LT_EPILOGUE_DEFAULT = 1, LT_EPILOGUE_BIAS = 4 };
enum {
  LT_PREF_WORKSPACE = 1,
  LT_PREF_REDUCTIONS = 3,
  LT_PREF_ALIGN_A = 5,
  LT_PREF_ALIGN_B,
  LT_PREF_ALIGN_C,
  LT_PREF_ALIGN_D
}; /* u64, u32 */
enum { LT_REDUCTION_NONE = 0, LT_REDUCTION_IN_PLACE = 1, LT_REDUCTION_COMPUTE_TYPE = 2 };

typedef struct {
  uint64_t data[8];
} lt_algo;

typedef struct {
  lt_algo algo;
  size_t workspace;
  int state; /* 0: usable */
  float waves;
  int reserved[4];
} lt_choice;
_Static_assert(sizeof(lt_algo) == 64 && sizeof(lt_choice) == 96, "as the library lays them out");

#define LT_FUNCTIONS(X)                                                                                                                  \
  X(size_t, cublasLtGetVersion, (void))                                                                                                  \
  X(int, cublasLtCreate, (void **handle))                                                                                                \
  X(int, cublasLtDestroy, (void *handle))                                                                                                \
  X(int, cublasLtMatmulDescCreate, (void **desc, int compute, int scale))                                                                \
  X(int, cublasLtMatmulDescDestroy, (void *desc))                                                                                        \
  X(int, cublasLtMatmulDescSetAttribute, (void *desc, int attribute, const void *value, size_t bytes))                                   \
  X(int, cublasLtMatrixLayoutCreate, (void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading))                        \
  X(int, cublasLtMatrixLayoutDestroy, (void *layout))                                                                                    \
  X(int, cublasLtMatrixLayoutSetAttribute, (void *layout, int attribute, const void *value, size_t bytes))                               \
  X(int, cublasLtMatmulPreferenceCreate, (void **preference))                                                                            \
  X(int, cublasLtMatmulPreferenceDestroy, (void *preference))                                                                            \
  X(int, cublasLtMatmulPreferenceSetAttribute, (void *preference, int attribute, const void *value, size_t bytes))                       \
  X(int, cublasLtMatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,    \
                                          lt_choice *choices, int *found))                                                               \
  X(int, cublasLtMatmul, (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,     \
                          const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const lt_algo *algo, void *workspace, \
                          size_t workspace_bytes, void *stream))

#endif
