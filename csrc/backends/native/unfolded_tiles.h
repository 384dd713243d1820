/* Products of filters and unfolded pixels for one instruction set: included for each by unfolded.c, which defines VECTOR_BYTES,
 * LANE_NUMBERS, ROWS (of sums that registers hold, two vectors each), OF_LAST_HEIGHTS (cases for more than 6), TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float), NAME(STRIP) = 2 * NAME(LANES) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define STRIP NAME(STRIP)
#define INLINE TARGET static inline __attribute__((always_inline))

#include "backends/native/turn.h"

/* The channels of as many pixels as a vector has lanes become vectors of pixels, `step` numbers apart. */
TARGET static void NAME(lay)(const float *const *pixels, int64_t channels, float *to, int64_t step) {
  int64_t c = 0;
  for (; c + LANES <= channels; c += LANES) {
    VEC s[LANES];
    UNROLL for (int r = 0; r < LANES; r++) s[r] = *(const VEC *)(pixels[r] + c);
    NAME(turn)(s);
    UNROLL for (int r = 0; r < LANES; r++) *(VEC *)(to + (c + r) * step) = s[r];
  }
  for (; c < channels; c++)
    for (int r = 0; r < LANES; r++) to[c * step + r] = pixels[r][c];
}

/* The sums of m filters, whose rows are `depth` numbers long, for a strip of pixels.  Three rows each are found from one address;
 * with each term a line of cache of the rows that come next is on its way. */
INLINE void NAME(tile)(int m, int vectors, const unfolded_rows *f, const float *strip, float *to, int64_t to_row) {
  VEC s[ROWS][2];
  const float *row[(ROWS + 2) / 3];
  const int64_t one = f->depth, two = 2 * f->depth;
  UNROLL for (int r = 0; r < m; r += 3) row[r / 3] = f->at + r * f->depth;
  UNROLL for (int r = 0; r < m; r++)
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = (VEC){0};
  for (int64_t k = 0; k < f->terms; k++, strip += STRIP) {
    VEC x[2];
    __builtin_prefetch(f->next + k / UNFOLDED_LINES * f->depth + k % UNFOLDED_LINES * LINE, 0, 2);
    UNROLL for (int v = 0; v < vectors; v++) x[v] = *(const VEC *)(strip + v * LANES);
    UNROLL for (int r = 0; r < m; r++)
      UNROLL for (int v = 0; v < vectors; v++) s[r][v] += x[v] * row[r / 3][r % 3 == 2 ? two : r % 3 ? one : 0];
    UNROLL for (int r = 0; r < m; r += 3) row[r / 3]++;
  }
  UNROLL for (int r = 0; r < m; r++)
    UNROLL for (int v = 0; v < vectors; v++) {
      VEC *sum = (VEC *)(to + r * to_row + v * LANES);
      if (f->adds) *sum += s[r][v];
      else *sum = s[r][v];
    }
}

/* The same for one pixel, whose terms lie side by side. */
INLINE void NAME(dot)(int m, const unfolded_rows *f, const float *column, float *to, int64_t to_row) {
  VEC s[ROWS];
  UNROLL for (int r = 0; r < m; r++) s[r] = (VEC){0};
  int64_t k = 0;
  for (; k + LANES <= f->terms; k += LANES) {
    const VEC x = *(const VEC *)(column + k);
    UNROLL for (int r = 0; r < m; r++) s[r] += x * *(const VEC *)(f->at + r * f->depth + k);
  }
  UNROLL for (int r = 0; r < m; r++) {
    float sum = f->adds ? to[r * to_row] : 0;
    UNROLL for (int l = 0; l < LANES; l++) sum += s[r][l];
    for (int64_t i = k; i < f->terms; i++) sum += column[i] * f->at[r * f->depth + i];
    to[r * to_row] = sum;
  }
}

#define OF_HEIGHT(m, vectors) case m: NAME(tile)(m, vectors, f, strip, to, to_row); break;
#define OF_HEIGHTS(vectors) \
  switch (f->rows) { OF_HEIGHT(1, vectors) OF_HEIGHT(2, vectors) OF_HEIGHT(3, vectors) OF_HEIGHT(4, vectors) OF_HEIGHT(5, vectors) \
                     OF_HEIGHT(6, vectors) OF_LAST_HEIGHTS(vectors) }

TARGET static void NAME(multiply)(const unfolded_rows *f, bool is_wide, const float *strip, float *to, int64_t to_row) {
  if (is_wide) OF_HEIGHTS(2) else OF_HEIGHTS(1)
}

TARGET static void NAME(multiply_one)(const unfolded_rows *f, const float *column, float *to, int64_t to_row) {
  if (f->rows == ROWS) NAME(dot)(ROWS, f, column, to, to_row);
  else NAME(dot)(f->rows, f, column, to, to_row);
}

static const unfolded_routines NAME(routines) = {ROWS, LANES, NAME(lay), NAME(multiply), NAME(multiply_one)};

#undef VECTOR_BYTES
#undef LANE_NUMBERS
#undef ROWS
#undef OF_LAST_HEIGHTS
#undef TARGET
#undef NAME
#undef VEC
#undef LANES
#undef STRIP
#undef INLINE
#undef OF_HEIGHT
#undef OF_HEIGHTS
