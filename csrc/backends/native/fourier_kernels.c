/* The tiles of fourier_tiles.h for each element type and width of vectors. */
#include <string.h>

#include "backends/native/fourier.h"

#define UNROLL _Pragma("GCC unroll 16")
#define LINES
#define REAL float
#define VECTOR_BYTES 4
#define TARGET
#define NAME(x) line_f32_##x
#include "backends/native/fourier_tiles.h"
#define REAL double
#define VECTOR_BYTES 8
#define TARGET
#define NAME(x) line_f64_##x
#include "backends/native/fourier_tiles.h"
#undef LINES
#define REAL float
#define VECTOR_BYTES 16
#define TARGET
#define NAME(x) plain_f32_##x
#include "backends/native/fourier_tiles.h"
#define REAL double
#define VECTOR_BYTES 16
#define TARGET
#define NAME(x) plain_f64_##x
#include "backends/native/fourier_tiles.h"
#ifdef __x86_64__
#define REAL float
#define VECTOR_BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f32_##x
#include "backends/native/fourier_tiles.h"
#define REAL double
#define VECTOR_BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f64_##x
#include "backends/native/fourier_tiles.h"
#define REAL float
#define VECTOR_BYTES 64
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f32_##x
#include "backends/native/fourier_tiles.h"
#define REAL double
#define VECTOR_BYTES 64
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f64_##x
#include "backends/native/fourier_tiles.h"
#endif

const fourier_routines *fourier_choose(bool wide, uint32_t vector_bytes) {
  return wide ? DC_BUILT(vector_bytes, &plain_f64_routines, &avx2_f64_routines, &avx512_f64_routines)
              : DC_BUILT(vector_bytes, &plain_f32_routines, &avx2_f32_routines, &avx512_f32_routines);
}

const fourier_routines *fourier_line_routines(bool wide) { return wide ? &line_f64_routines : &line_f32_routines; }
