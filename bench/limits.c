/* What this machine can do at most: fused multiply-adds, and bytes copied.  Prints operations and bytes per second. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float vec __attribute__((vector_size(4 * LANES)));
enum { CHAINS = 12, TURNS = 200000, TRIES = 7 };
static const size_t BYTES = 64u << 20;

/* Chains that do not wait for each other, as many as hide the latency of one. */
static double fma_rate(volatile float *sink) {
  float total = 0;
  double begin = omp_get_wtime();
#pragma omp parallel reduction(+ : total)
  {
    vec acc[CHAINS], x = {1.0f}, y = {1e-9f};
    for (int c = 0; c < CHAINS; c++) acc[c] = y + (float)c;
    for (int t = 0; t < TURNS; t++)
      for (int c = 0; c < CHAINS; c++) acc[c] = acc[c] * x + y;
    for (int c = 0; c < CHAINS; c++) total += acc[c][0];
  }
  double seconds = omp_get_wtime() - begin;
  *sink = total;
  return 2.0 * LANES * CHAINS * TURNS * omp_get_max_threads() / seconds;
}

static double copy_rate(char *to, const char *from) {
  double begin = omp_get_wtime();
#pragma omp parallel
  {
    size_t part = BYTES / (size_t)omp_get_num_threads(), at = part * (size_t)omp_get_thread_num();
    memcpy(to + at, from + at, part);
  }
  return 2.0 * (double)BYTES / (omp_get_wtime() - begin);
}

int main(void) {
  char *a = malloc(BYTES), *b = malloc(BYTES);
  double fma = 0, copy = 0;
  volatile float sink;
  if (!a || !b) return 1;
  memset(a, 1, BYTES), memset(b, 2, BYTES);
  for (int k = 0; k < TRIES; k++) {
    double f = fma_rate(&sink), c = copy_rate(a, b);
    fma = f > fma ? f : fma, copy = c > copy ? c : copy;
  }
  printf("%.0f %.0f\n", fma, copy);
  return 0;
}
