/* Two sums of words with rotations between them, one with carries and one without, in lanes that vectors hold. */
#include "base/fingerprint.h"

#include <string.h>

#include "base/machine.h"

enum { WORDS = 8, STRIPE = WORDS * sizeof(uint64_t) };

typedef struct {
  uint64_t sums[WORDS], bits[WORDS];
} state;

/* The same for vectors of each width: as many of them as make a stripe. */
#define ABSORB(name, BYTES, TARGET)                                                                                     \
  typedef uint64_t name##_vector __attribute__((vector_size(BYTES)));                                                   \
  TARGET static void name(state *s, const unsigned char *data, size_t stripes) {                                        \
    enum { N = STRIPE / (BYTES) };                                                                                      \
    name##_vector sums[N], bits[N];                                                                                     \
    memcpy(sums, s->sums, STRIPE), memcpy(bits, s->bits, STRIPE);                                                       \
    for (size_t k = 0; k < stripes; k++)                                                                                \
      _Pragma("GCC unroll 4") for (int v = 0; v < N; v++) {                                                             \
        name##_vector words;                                                                                            \
        memcpy(&words, data + k * STRIPE + (size_t)v * (BYTES), BYTES);                                                 \
        sums[v] = (sums[v] << 23 | sums[v] >> 41) + words, bits[v] = (bits[v] << 41 | bits[v] >> 23) ^ words;           \
      }                                                                                                                 \
    memcpy(s->sums, sums, STRIPE), memcpy(s->bits, bits, STRIPE);                                                       \
  }

ABSORB(absorb_plain, 16, )
#ifdef __x86_64__
ABSORB(absorb_avx2, 32, __attribute__((target("avx2"))))
ABSORB(absorb_avx512, 64, __attribute__((target("avx512f"))))
#endif

/* A bijection of either argument, in which each bit of both counts for all. */
static uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a << 27 ^ a >> 37 ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ a >> 32;
}

dc_fingerprint dc_fingerprint_of(const void *data, size_t bytes) {
  const unsigned char *at = data;
  size_t stripes = bytes / STRIPE, rest = bytes % STRIPE;
  unsigned char last[STRIPE] = {0};
  void (*absorb)(state *, const unsigned char *, size_t) = DC_BUILT(64, absorb_plain, absorb_avx2, absorb_avx512);
  state s = {{0}, {0}};
  absorb(&s, at, stripes);
  if (rest) memcpy(last, at + stripes * STRIPE, rest);
  absorb(&s, last, 1);
  dc_fingerprint print = {bytes, bytes};
  for (int k = 0; k < WORDS; k++) print = (dc_fingerprint){mixed(print.sums, s.sums[k]), mixed(print.bits, s.bits[k])};
  return print;
}

dc_fingerprint dc_fingerprint_after(dc_fingerprint all, dc_fingerprint next) {
  return (dc_fingerprint){mixed(all.sums, next.sums), mixed(all.bits, next.bits)};
}
