/* Fourier transforms as plain numbers: what fourier.c binds, fourier_plan.c prepares and fourier_tiles.h runs. */
#ifndef DCML_BACKENDS_NATIVE_FOURIER_H
#define DCML_BACKENDS_NATIVE_FOURIER_H

#include "backends/backend.h"

enum { FOURIER_FACTORS = 64, FOURIER_RADIX = 13 /* greater prime factors make a convolution of it */ };

/* y[k] = sum of x[j] e^(-2 pi i jk/n).  By factors, each step leaves its digit of k in front; `places` says where a result
 * then lies (one more of them than results, the last one's is behind).  A length with a great prime factor is a convolution with the chirp
 * e^(pi i jj/n) (Bluestein), computed by transforms of a `length` with small factors. */
typedef struct {
  bool wide; /* tables are of double */
  int64_t n, length;
  int n_factors, factors[FOURIER_FACTORS];
  void *turns[FOURIER_FACTORS], *twiddles[FOURIER_FACTORS]; /* numbers as pairs; twiddles: radix - 1 for each place of a block */
  int64_t *places;
  void *chirp, *spectrum; /* NULL: there is none; the spectrum in the order in which results lie, divided by `length` */
} fourier_plan;

/* Where a line's numbers lie, in reals: element k at k * step, its imaginary part behind it; 0: it has none. */
typedef struct {
  int64_t step, imaginary, lane, outer, count; /* line l begins at l / inner * outer + l % inner * lane; others than `count` are 0 */
} fourier_view;

typedef enum { FOURIER_COMPLEX, FOURIER_FROM_REAL, FOURIER_TO_REAL } fourier_kind;

/* Transforms of `size` numbers along lines.  Of an even size and real numbers, neighbours are made one complex number, and the
 * plan's length is half the size. */
typedef struct {
  fourier_kind kind;
  int64_t size, lines, inner;
  fourier_view in, out;
  const fourier_plan *plan;
  const void *half_turns; /* e^(2 pi i k/size), where numbers are paired */
  bool inverse;           /* of complex numbers: e^(+2 pi i jk/n) */
  bool conjugate;         /* the complex numbers, whether given or made */
  bool whole;             /* TO_REAL: all of `size` numbers are given, which need not mirror one another */
  bool halves;            /* TO_REAL: numbers but the first and the middle one count half */
  bool doubles;           /* FROM_REAL: they count twice */
  double scale;
  const void *twiddles; /* NULL: none; else results are multiplied by these, vectors for each tile */
} fourier_job;

/* A tile is as many lines as a vector has numbers: a row of it is their real parts, then their imaginary parts. */
typedef struct {
  int lanes;
  void (*tile)(const fourier_job *job, const void *x, void *y, int64_t tile, void *scratch);
  /* Line by line, for what is split: before the transform (z gets numbers in order) and behind it. */
  void (*open)(const fourier_job *job, const void *x, int64_t line, void *z);
  void (*convolve)(const fourier_plan *plan, void *z); /* between the two transforms of a convolution */
  void (*close)(const fourier_job *job, void *z, void *y, int64_t line);
} fourier_routines;

/* by_steps: it is for tiles; else for lines that are split, which need no tables of steps. */
DC_MUST_USE dc_status fourier_plan_make(int64_t n, bool wide, bool by_steps, fourier_plan **out);
void fourier_plan_free(fourier_plan *plan);
int64_t fourier_plan_rows(const fourier_plan *plan); /* of a tile */
/* The product of small primes from n on whose transform costs least. */
int64_t fourier_good_length(int64_t n);
bool fourier_is_smooth(int64_t n);
void fourier_turn(int64_t k, int64_t n, double *pair); /* e^(-2 pi i k/n) */
void fourier_put(void *table, bool wide, int64_t at, const double *pair);
const fourier_routines *fourier_choose(bool wide, uint32_t vector_bytes);
const fourier_routines *fourier_line_routines(bool wide);

#endif
