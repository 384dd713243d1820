/* The routines of depthwise_last_sums.h for each width of vectors that has enough registers. */
#include <string.h>

#include "backends/native/depthwise_last.h"

enum { DEPTHWISE_LAST_RUN = 7 }; /* taps of a row that are summed up at a time */
enum { FEW_TERMS = 256 }; /* that one accumulator takes, for the sake of the last bits */

#ifdef __x86_64__
#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 32
#define WHOLE 9
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/depthwise_last_sums.h"
#define VECTOR_BYTES 64
#define WHOLE 25
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_##x
#include "backends/native/depthwise_last_sums.h"
#endif

const depthwise_last_routines *depthwise_last_choose(uint32_t vector_bytes) {
  return DC_BUILT(vector_bytes, NULL, &avx2_routines, &avx512_routines);
}
