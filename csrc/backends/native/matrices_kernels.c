/* The routines of matrices_tiles.h for each element type and width of vectors. */
#include "backends/native/matrices.h"

#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 16
#define TARGET
#define NAME(x) plain_f32_##x
#include "backends/native/matrices_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 16
#define TARGET
#define NAME(x) plain_f64_##x
#include "backends/native/matrices_tiles.h"
#ifdef __x86_64__
#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f32_##x
#include "backends/native/matrices_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f64_##x
#include "backends/native/matrices_tiles.h"
#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 64
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f32_##x
#include "backends/native/matrices_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 64
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f64_##x
#include "backends/native/matrices_tiles.h"
#endif

const matrices_routines *matrices_choose(bool wide, uint32_t vector_bytes) {
  return wide ? DC_BUILT(vector_bytes, &plain_f64_routines, &avx2_f64_routines, &avx512_f64_routines)
              : DC_BUILT(vector_bytes, &plain_f32_routines, &avx2_f32_routines, &avx512_f32_routines);
}
