/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 * The one source of random numbers: a function of (seed, counter), so that a backward pass can
 * draw a forward's numbers again and any backend gives the same ones. */
#ifndef DCML_BACKENDS_PHILOX_H
#define DCML_BACKENDS_PHILOX_H

/* Uniform in [0, 1) with 24 bits. */
static inline float dc_philox_uniform(unsigned long long seed, unsigned long long counter) {
  unsigned int c0 = (unsigned int)(counter >> 2), c1 = (unsigned int)(counter >> 34), c2 = 0, c3 = 0;
  unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    unsigned int n0 = (unsigned int)(p1 >> 32) ^ c1 ^ k0, n2 = (unsigned int)(p0 >> 32) ^ c3 ^ k1;
    c1 = (unsigned int)p1, c3 = (unsigned int)p0, c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  unsigned int lane = (unsigned int)counter & 3u;
  unsigned int bits = lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
  return (float)(bits >> 8) * 0x1p-24f;
}

#endif
