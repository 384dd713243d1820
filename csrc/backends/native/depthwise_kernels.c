/* The routines of depthwise_planes.h for each width of vectors. */
#include <string.h>

#include "backends/native/depthwise.h"

#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 16
#define LANE_NUMBERS 0, 1, 2, 3
#define TARGET
#define NAME(x) plain_##x
#include "backends/native/depthwise_planes.h"
#ifdef __x86_64__
#define VECTOR_BYTES 32
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/depthwise_planes.h"
#define VECTOR_BYTES 64
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_##x
#include "backends/native/depthwise_planes.h"
#endif

const depthwise_routines *depthwise_choose(uint32_t vector_bytes) {
  return DC_BUILT(vector_bytes, &plain_routines, &avx2_routines, &avx512_routines);
}
