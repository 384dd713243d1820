/* Two sums of words with rotations between them, one with carries and one without, in lanes that vectors hold. */
#include "base/fingerprint.h"

#include <string.h>

/* As many sums as registers of any processor hold. */
enum { LANES = 2, VECTORS = 4, STRIPE = VECTORS * LANES * sizeof(uint64_t) };
typedef uint64_t vector __attribute__((vector_size(LANES * sizeof(uint64_t))));

typedef struct {
  vector sums[VECTORS], bits[VECTORS];
} state;

static inline vector rotated(vector x, int by) { return x << by | x >> (64 - by); }

static void absorb(state *s, const unsigned char *data, size_t stripes) {
  state t = *s;
  for (size_t k = 0; k < stripes; k++) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
      vector words;
      memcpy(&words, data + k * STRIPE + (size_t)v * sizeof words, sizeof words);
      t.sums[v] = rotated(t.sums[v], 23) + words, t.bits[v] = rotated(t.bits[v], 41) ^ words;
    }
  }
  *s = t;
}

/* A bijection of either argument, in which each bit of both counts for all. */
static uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a << 27 ^ a >> 37 ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ a >> 32;
}

dc_fingerprint dc_fingerprint_of(const void *data, size_t bytes) {
  const unsigned char *at = data;
  size_t stripes = bytes / STRIPE, rest = bytes % STRIPE;
  unsigned char last[STRIPE] = {0};
  state s = {{{0}}, {{0}}};
  absorb(&s, at, stripes);
  if (rest) memcpy(last, at + stripes * STRIPE, rest);
  absorb(&s, last, 1);
  dc_fingerprint print = {bytes, bytes};
  for (int k = 0; k < VECTORS * LANES; k++)
    print = (dc_fingerprint){mixed(print.sums, s.sums[k / LANES][k % LANES]), mixed(print.bits, s.bits[k / LANES][k % LANES])};
  return print;
}

dc_fingerprint dc_fingerprint_after(dc_fingerprint all, dc_fingerprint next) {
  return (dc_fingerprint){mixed(all.sums, next.sums), mixed(all.bits, next.bits)};
}
