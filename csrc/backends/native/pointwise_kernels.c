/* The routines of pointwise_tiles.h for each width of vectors that has enough registers. */
#include <string.h>

#include "backends/native/pointwise.h"

#ifdef __x86_64__
#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 32
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define ROWS 6
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/pointwise_tiles.h"
#define VECTOR_BYTES 64
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define ROWS 12
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_##x
#include "backends/native/pointwise_tiles.h"
#endif

const pointwise_routines *pointwise_choose(uint32_t vector_bytes) {
  return DC_BUILT(vector_bytes, NULL, &avx2_routines, &avx512_routines);
}
