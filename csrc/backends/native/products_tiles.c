/* Matrix products by vectors of AVX2: tiles of a few rows and two vectors of columns, whose sums registers hold, over operands
 * that are copied so that a block of each stays in a cache.  What lies well already is read where it lies. */
#include <string.h>

#include "backends/native/products.h"

#ifdef __x86_64__
#define UNROLL _Pragma("GCC unroll 16")
#define TARGET __attribute__((target("avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))
typedef float vec __attribute__((vector_size(32), aligned(sizeof(float)), may_alias));
typedef int32_t lane __attribute__((vector_size(32)));
enum {
  LANES = 8,
  ROWS = PRODUCTS_ROWS,
  STRIP = PRODUCTS_STRIP,
  DEEP = 256,     /* terms of a block: a strip of them stays in the first cache */
  HIGH = 24 * ROWS, /* rows of a, a block of which stays in the second cache ... */
  WIDE = 512,     /* ... beside some of b's columns */
  LINE = 16,      /* numbers */
  SIDE_BY_SIDE = 4, /* strips that are copied together, since their lines are neighbours */
};

#define NAME(x) x
#define VEC vec
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#include "backends/native/turn.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t in_strips(int64_t n) { return (n + STRIP - 1) / STRIP * STRIP; }
static int64_t deep_of(const products_job *job) { return least(DEEP, job->k); }

/* ---- tiles ---- */

/* Rows of a, in memory of their own or not; as in products_job. */
typedef struct {
  const float *at;
  int64_t row, step;
} rows_of_a;

/* Rows of numbers that sums begin with, NULL: zeros, and where they go. */
typedef struct {
  const float *from;
  int64_t from_row;
  float *to;
  int64_t to_row;
} sums;

INLINE void tile(int m, int vectors, rows_of_a a, const float *b, int64_t b_row, int64_t terms, sums c) {
  vec s[ROWS][2];
  const float *row[ROWS];
  UNROLL for (int r = 0; r < m; r++) {
    row[r] = a.at + r * a.row;
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = c.from ? *(const vec *)(c.from + r * c.from_row + v * LANES) : (vec){0};
  }
  for (int64_t k = 0, at = 0; k < terms; k++, at += a.step, b += b_row) {
    vec x[2];
    UNROLL for (int v = 0; v < vectors; v++) x[v] = *(const vec *)(b + v * LANES);
    UNROLL for (int r = 0; r < m; r++)
      UNROLL for (int v = 0; v < vectors; v++) s[r][v] += x[v] * row[r][at];
  }
  UNROLL for (int r = 0; r < m; r++)
    UNROLL for (int v = 0; v < vectors; v++) *(vec *)(c.to + r * c.to_row + v * LANES) = s[r][v];
}

#define OF_HEIGHT(m, vectors) case m: tile(m, vectors, a, b, b_row, terms, c); break
#define OF_HEIGHTS(vectors) \
  switch (m) { OF_HEIGHT(1, vectors); OF_HEIGHT(2, vectors); OF_HEIGHT(3, vectors); OF_HEIGHT(4, vectors); OF_HEIGHT(5, vectors); \
               OF_HEIGHT(6, vectors); }

TARGET static void one_tile(int64_t m, bool is_wide, rows_of_a a, const float *b, int64_t b_row, int64_t terms, sums c) {
  if (is_wide) OF_HEIGHTS(2) else OF_HEIGHTS(1)
}

/* Of n columns, fewer than whole vectors. */
static void last_tile(int64_t m, int64_t n, rows_of_a a, const float *b, int64_t b_row, int64_t terms, sums c) {
  float own[ROWS * STRIP] = {0};
  const sums whole = {c.from ? own : NULL, STRIP, own, STRIP};
  for (int64_t r = 0; r < m && c.from; r++) memcpy(own + r * STRIP, c.from + r * c.from_row, (size_t)n * sizeof *own);
  one_tile(m, n > LANES, a, b, b_row, terms, whole);
  for (int64_t r = 0; r < m; r++) memcpy(c.to + r * c.to_row, own + r * STRIP, (size_t)n * sizeof *own);
}

/* ---- copies of b: strips of columns, a row of STRIP numbers for each term ---- */

static int64_t strip_numbers(const products_job *job) { return deep_of(job) * STRIP + LINE; }

/* n columns at most that lie as rows; behind the last one is that one again. */
TARGET static void copy_turned(const float *from, int64_t row, int64_t n, int64_t terms, float *to) {
  int64_t k = 0;
  for (; k + LANES <= terms; k += LANES) {
    vec s[LANES];
    UNROLL for (int r = 0; r < LANES; r++) s[r] = *(const vec *)(from + (r < n ? r : n - 1) * row + k);
    turn(s);
    UNROLL for (int r = 0; r < LANES; r++) *(vec *)(to + (k + r) * STRIP) = s[r];
  }
  for (; k < terms; k++)
    for (int64_t r = 0; r < LANES; r++) to[k * STRIP + r] = from[(r < n ? r : n - 1) * row + k];
}

TARGET static void copy_strips(const float *from, int64_t row, int64_t strips, int64_t terms, float *to, int64_t next) {
  for (int64_t k = 0; k < terms; k++)
    for (int64_t s = 0; s < strips; s++) {
      const float *x = from + k * row + s * STRIP;
      float *at = to + s * next + k * STRIP;
      *(vec *)at = *(const vec *)x, *(vec *)(at + LANES) = *(const vec *)(x + LANES);
    }
}

static void copy_b(const products_job *job, int64_t j, int64_t n, int64_t k, int64_t terms, float *to) {
  const int64_t next = strip_numbers(job);
  if (job->b_turned) {
    for (int64_t s = 0; s < n; s += LANES)
      copy_turned(job->b + (j + s) * job->b_row + k, job->b_row, n - s, terms, to + s / STRIP * next + s % STRIP);
    return;
  }
  const float *from = job->b + k * job->b_row + j;
  for (int64_t s = 0; s < n / STRIP; s += SIDE_BY_SIDE)
    copy_strips(from + s * STRIP, job->b_row, least(SIDE_BY_SIDE, n / STRIP - s), terms, to + s * next, next);
  const int64_t rest = n % STRIP;
  for (int64_t t = 0; rest && t < terms; t++) {
    float *at = to + n / STRIP * next + t * STRIP;
    memcpy(at, from + t * job->b_row + n - rest, (size_t)rest * sizeof *at);
    memset(at + rest, 0, (size_t)(STRIP - rest) * sizeof *at);
  }
}

/* ---- copies of a ---- */

/* Rows of one after another keep so; others become panels of ROWS, a line of whose numbers belongs to each term. */
static int64_t row_numbers(const products_job *job) { return deep_of(job) + LINE; }
static int64_t panel_numbers(const products_job *job) { return ROWS * row_numbers(job); }

/* The next term covers what is copied too much of one. */
TARGET static void copy_panel(const float *from, int64_t step, int64_t terms, float *to) {
  for (int64_t k = 0; k < terms; k++) *(vec *)(to + k * ROWS) = *(const vec *)(from + k * step);
}

static void copy_a(const products_job *job, const float *from, int64_t m, int64_t terms, float *to) {
  for (int64_t r = 0; r < m && job->a_step == 1; r++)
    memcpy(to + r * row_numbers(job), from + r * job->a_row, (size_t)terms * sizeof *to);
  for (int64_t i = 0; i < m && job->a_step != 1; i += ROWS, to += panel_numbers(job)) {
    if (i + LANES <= m) copy_panel(from + i, job->a_step, terms, to);
    else
      for (int64_t k = 0; k < terms; k++)
        for (int64_t r = 0; r < least(ROWS, m - i); r++) to[k * ROWS + r] = from[i + r + k * job->a_step];
  }
}

/* ---- products ---- */

/* A copy pays where many tiles read it, or lines lie badly. */
static bool copies_a(const products_job *job) {
  if (job->a_step != 1) return job->n > 2 * STRIP;
  return job->n > 16 * STRIP || (job->n > 4 * STRIP && job->a_row % PRODUCTS_CLASHING == 0);
}

static bool copies_b(const products_job *job) { return job->b_turned || job->m > 2 * ROWS; }

static int64_t a_numbers(const products_job *job) {
  const int64_t panels = (least(HIGH, job->m) + ROWS - 1) / ROWS * panel_numbers(job) + LANES;
  return copies_a(job) ? (panels + LINE - 1) / LINE * LINE : 0;
}

static int64_t room(const products_job *job) { return a_numbers(job) + in_strips(least(WIDE, job->n)) / STRIP * strip_numbers(job); }

/* A block of b: columns [j, j + n) and terms [k, k + terms), copied or where it lies. */
typedef struct {
  int64_t j, n, k, terms;
  float *copy;
} block_of_b;

/* With m rows from i on. */
static void multiply_block(const products_job *job, int64_t i, int64_t m, const block_of_b *b, float *copy) {
  const rows_of_a given = {job->a + i * job->a_row + b->k * job->a_step, job->a_row, job->a_step};
  const rows_of_a whole = {copy, job->a_step == 1 ? row_numbers(job) : 1, job->a_step == 1 ? 1 : ROWS};
  const bool copied = copies_a(job);
  if (copied) copy_a(job, given.at, m, b->terms, copy);
  for (int64_t s = 0; s < b->n; s += STRIP) {
    const int64_t n = least(STRIP, b->n - s), j = b->j + s;
    const bool lies = !copies_b(job) && (n == STRIP || n == LANES);
    const float *strip = lies ? job->b + b->k * job->b_row + j : b->copy + s / STRIP * strip_numbers(job);
    for (int64_t r = 0; r < m; r += ROWS) {
      const int64_t rows = least(ROWS, m - r), b_row = lies ? job->b_row : STRIP;
      float *to = job->c + (i + r) * job->c_row + j;
      const rows_of_a a = {copied ? whole.at + r / ROWS * panel_numbers(job) : given.at + r * given.row,
                           copied ? whole.row : given.row, copied ? whole.step : given.step};
      const sums c = {b->k ? to : job->bias ? job->bias + j : NULL, b->k ? job->c_row : 0, to, job->c_row};
      if (n == STRIP || n == LANES) one_tile(rows, n == STRIP, a, strip, b_row, b->terms, c);
      else last_tile(rows, n, a, strip, b_row, b->terms, c);
    }
  }
}

static void run(const products_job *job, float *scratch) {
  float *strips = scratch + a_numbers(job);
  for (int64_t j = 0; j < job->n; j += WIDE)
    for (int64_t k = 0; k == 0 || k < job->k; k += DEEP) {
      const block_of_b b = {j, least(WIDE, job->n - j), k, least(DEEP, job->k - k), strips};
      const int64_t lying = copies_b(job) ? 0 : b.n % STRIP == LANES ? b.n : b.n / STRIP * STRIP;
      if (lying < b.n) copy_b(job, j + lying, b.n - lying, k, b.terms, strips + lying / STRIP * strip_numbers(job));
      for (int64_t i = 0; i < job->m; i += HIGH) multiply_block(job, i, least(HIGH, job->m - i), &b, scratch);
    }
}

static const products_routines routines = {room, run};
#endif

const products_routines *products_choose(uint32_t vector_bytes) {
#ifdef __x86_64__
  if (vector_bytes == 32 && dc_machine_built_vectors(32) == 32) return &routines;
#endif
  (void)vector_bytes;
  return NULL;
}
