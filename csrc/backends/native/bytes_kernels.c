/* The routines of bytes_tiles.h: by the instructions for bytes of AVX-512 (VNNI), and by those for 16 bits of AVX2, whose products
 * of bytes fit as well; its own ones for bytes cut sums off. */
#include "backends/native/bytes.h"

#include <string.h>

#include "base/machine.h"

#ifdef __x86_64__
#include <immintrin.h>
#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 32
#define ROWS 4
#define TERMS 2
#define TERM int16_t
#define DOT(sums, a, b) (sums) += (avx2_vector)_mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#define WIDENED(from, flip) (avx2_vector)_mm256_cvtepi8_epi16(_mm_xor_si128(_mm_loadu_si128((const __m128i *)(from)), _mm_set1_epi8((char)(flip))))
#define ONES _mm256_set1_epi16(1)
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/bytes_tiles.h"
#define VECTOR_BYTES 64
#define ROWS 12
#define TERMS 4
#define TERM int8_t
#define DOT(sums, a, b) (sums) = (vnni_vector)_mm512_dpbusd_epi32((__m512i)(sums), (__m512i)(b), (__m512i)(a))
#define WIDENED(from, flip) (vnni_vector)_mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8((char)(flip)))
#define ONES _mm512_set1_epi8(1)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vnni")))
#define NAME(x) vnni_##x
#include "backends/native/bytes_tiles.h"

const bytes_routines *bytes_choose(uint32_t vector_bytes) {
  const uint32_t built = dc_machine_built_vectors(vector_bytes);
  const bool multiplies_bytes = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
  return built == 64 && multiplies_bytes ? &vnni_routines : built >= 32 ? &avx2_routines : NULL;
}
#else
const bytes_routines *bytes_choose(uint32_t vector_bytes) { return (void)vector_bytes, NULL; }
#endif
