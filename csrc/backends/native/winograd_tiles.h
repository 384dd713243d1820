/* Winograd's products for one instruction set: included for each by winograd.c, which defines VECTOR_BYTES, ROWS (of sums of
 * a product that registers hold, two vectors each), TERM_ROWS (the same for gradients of filters), TARGET and NAME(x), and
 * PAIR, if images and filters are bf16, of which one instruction multiplies and adds pairs.
 *
 * Channels lie in blocks of LANES everywhere but in the images.  Operands of products are terms: a float, or two bf16 that
 * are summed one after the other.  Those are neighbouring channels in what is convolved, [16][channels / LANES][tiles]
 * [LANES / TWO], and neighbouring tiles in what is summed over tiles, [16][channels / LANES][tiles / TWO][LANES]. */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define INLINE TARGET static inline __attribute__((always_inline))

/* ---- elements and terms ---- */

#ifdef PAIR
enum { NAME(TWO) = 2 };
typedef uint16_t NAME(element);
typedef uint32_t NAME(bits) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));

INLINE VEC NAME(load)(const uint16_t *at) {
  return (VEC)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16);
}

INLINE __m256i NAME(rounded)(VEC x) { return (__m256i)_mm512_cvtneps_pbh((__m512)x); }

INLINE void NAME(store)(void *at, VEC x) { _mm256_storeu_si256(at, NAME(rounded)(x)); }

/* The first of each pair at `at`, or the second beside it. */
INLINE void NAME(put)(float *at, bool second, VEC x) {
  NAME(bits) wide = (NAME(bits))_mm512_cvtepu16_epi32(NAME(rounded)(x));
  if (second) *(NAME(bits) *)at |= wide << 16;
  else *(NAME(bits) *)at = wide;
}

/* sum + x f, where x is one term. */
INLINE VEC NAME(plus)(VEC sum, const float *x, VEC f) {
  return (VEC)_mm512_dpbf16_ps((__m512)sum, (__m512bh)f, (__m512bh)_mm512_set1_ps(*x));
}
#else
enum { NAME(TWO) = 1 };
typedef float NAME(element);
INLINE VEC NAME(load)(const float *at) { return *(const VEC *)at; }
INLINE void NAME(store)(void *at, VEC x) { *(VEC *)at = x; }
INLINE void NAME(put)(float *at, bool second, VEC x) { (void)second, *(VEC *)at = x; }
INLINE VEC NAME(plus)(VEC sum, const float *x, VEC f) { return sum + *x * f; }
#endif
#define TWO NAME(TWO)
#define ELEMENT NAME(element)

/* ---- from images to tiles and back ---- */

/* B' d of four numbers, a step apart in both. */
INLINE void NAME(forth)(const VEC *d, int from, VEC *v, int to) {
  v[0] = d[0] - d[2 * from], v[to] = d[from] + d[2 * from], v[2 * to] = d[2 * from] - d[from], v[3 * to] = d[from] - d[3 * from];
}

/* A' m: two numbers of four. */
INLINE void NAME(back)(const VEC *m, int from, VEC *y, int to) {
  y[0] = m[0] + m[from] + m[2 * from], y[to] = m[from] - m[2 * from] - m[3 * from];
}

/* A y: its transpose, for gradients. */
INLINE void NAME(back_turned)(const VEC *y, int from, VEC *m, int to) {
  m[0] = y[0], m[to] = y[0] + y[from], m[2 * to] = y[0] - y[from], m[3 * to] = -y[from];
}

/* The pixels of a square of `side` from (row, column) of image n on; zeros outside. */
INLINE void NAME(square)(const winograd_images *i, const ELEMENT *x, int64_t n, int64_t row, int64_t column, int side, const void *zeros,
                         const ELEMENT **at) {
  for (int a = 0; a < side; a++)
    for (int b = 0; b < side; b++) {
      int64_t r = row + a, c = column + b;
      bool inside = r >= 0 && r < i->height && c >= 0 && c < i->width;
      at[a * side + b] = inside ? x + ((n * i->height + r) * i->width + c) * i->channels : zeros;
    }
}

/* Where the pixels of a square lie that begins at (down, right) of a tile, whose corners are two apart. */
INLINE void NAME(pixels)(const winograd_images *i, const winograd_grid *g, const ELEMENT *x, int64_t tile, int64_t down, int64_t right,
                         int side, const void *zeros, const ELEMENT **at) {
  int64_t n = tile / (g->rows * g->columns), r = tile / g->columns % g->rows, c = tile % g->columns;
  NAME(square)(i, x, n, 2 * r + down, 2 * c + right, side, zeros, at);
}

/* The sixteen numbers of block b of a tile that is convolved. */
INLINE void NAME(widen_tile)(const ELEMENT *const *at, int64_t b, VEC *v) {
  VEC d[16], e[16];
  UNROLL for (int k = 0; k < 16; k++) d[k] = NAME(load)(at[k] + b * LANES);
  UNROLL for (int k = 0; k < 4; k++) NAME(forth)(d + k, 4, e + k, 4);
  UNROLL for (int k = 0; k < 4; k++) NAME(forth)(e + 4 * k, 1, v + 4 * k, 1);
}

/* The same of the gradient of the result, whose tiles are of two by two. */
INLINE void NAME(widen_result)(const ELEMENT *const *at, int64_t b, VEC *v) {
  VEC d[4], e[8];
  UNROLL for (int k = 0; k < 4; k++) d[k] = NAME(load)(at[k] + b * LANES);
  UNROLL for (int k = 0; k < 2; k++) NAME(back_turned)(d + k, 2, e + k, 2);
  UNROLL for (int k = 0; k < 4; k++) NAME(back_turned)(e + 2 * k, 1, v + 4 * k, 1);
}

/* Tiles of the images, as operands of products over channels. */
TARGET static void NAME(spread)(const winograd_images *i, const winograd_grid *g, const void *x, const void *zeros, winograd_span s,
                                float *v) {
  int64_t next = apart(i->channels / TWO * s.room);
  for (int64_t t = 0; t < s.count; t++) {
    const ELEMENT *at[16];
    NAME(pixels)(i, g, x, s.begin + t, -g->top, -g->left, 4, zeros, at);
    for (int64_t b = 0; b < i->channels / LANES; b++) {
      VEC d[16];
      float *to = v + (b * s.room + s.at + t) * (LANES / TWO);
      NAME(widen_tile)(at, b, d);
      UNROLL for (int k = 0; k < 16; k++) NAME(store)(to + k * next, d[k]);
    }
  }
}

/* The same as operands of sums over tiles. */
INLINE void NAME(spread_term)(const ELEMENT *const *at, bool of_result, int64_t blocks, bool second, int64_t room, int64_t next, float *v) {
  for (int64_t b = 0; b < blocks; b++, v += room / TWO * LANES) {
    VEC d[16];
    if (of_result) NAME(widen_result)(at, b, d);
    else NAME(widen_tile)(at, b, d);
    UNROLL for (int k = 0; k < 16; k++) NAME(put)(v + k * next, second, d[k]);
  }
}

INLINE void NAME(spread_all)(const winograd_images *i, const winograd_grid *g, const void *x, const void *zeros, winograd_span s,
                             bool of_result, float *v) {
  int64_t blocks = i->channels / LANES, next = apart(i->channels * (s.room / TWO));
  for (int64_t t = 0; t < s.count; t++) {
    const ELEMENT *at[16];
    float *to = v + (s.at + t) / TWO * LANES;
    NAME(pixels)(i, g, x, s.begin + t, of_result ? 0 : -g->top, of_result ? 0 : -g->left, of_result ? 2 : 4, zeros, at);
    if ((s.at + t) % TWO) NAME(spread_term)(at, of_result, blocks, true, s.room, next, to);
    else NAME(spread_term)(at, of_result, blocks, false, s.room, next, to);
  }
}

TARGET static void NAME(spread_terms)(const winograd_images *i, const winograd_grid *g, const void *x, const void *zeros, winograd_span s,
                                      float *v) {
  NAME(spread_all)(i, g, x, zeros, s, false, v);
}

TARGET static void NAME(spread_result)(const winograd_images *i, const winograd_grid *g, const void *y, const void *zeros,
                                       winograd_span s, float *v) {
  NAME(spread_all)(i, g, y, zeros, s, true, v);
}

/* Products m of some blocks of channels, from block `first` on, become pixels of the result. */
TARGET static void NAME(collect)(const winograd_images *i, const winograd_grid *g, const float *m, winograd_span s, int64_t first,
                                 int64_t blocks, const void *bias, void *y) {
  int64_t next = apart(WINOGRAD_BLOCKS * LANES * s.room);
  for (int64_t t = 0; t < s.count; t++) {
    int64_t tile = s.begin + t, n = tile / (g->rows * g->columns), r = tile / g->columns % g->rows * 2, c = tile % g->columns * 2;
    ELEMENT *at = (ELEMENT *)y + ((n * i->height + r) * i->width + c) * i->channels + first * LANES;
    bool below = r + 1 < i->height, beside = c + 1 < i->width;
    for (int64_t b = 0; b < blocks; b++, at += LANES) {
      const float *from = m + (b * s.room + t) * LANES;
      VEC d[16], e[8], p[4], add = bias ? NAME(load)((const ELEMENT *)bias + (first + b) * LANES) : (VEC){0};
      UNROLL for (int k = 0; k < 16; k++) d[k] = *(const VEC *)(from + k * next);
      UNROLL for (int k = 0; k < 4; k++) NAME(back)(d + k, 4, e + k, 4);
      UNROLL for (int k = 0; k < 2; k++) NAME(back)(e + 4 * k, 1, p + 2 * k, 1);
      NAME(store)(at, p[0] + add);
      if (beside) NAME(store)(at + i->channels, p[1] + add);
      if (below) NAME(store)(at + i->width * i->channels, p[2] + add);
      if (below && beside) NAME(store)(at + (i->width + 1) * i->channels, p[3] + add);
    }
  }
}

/* ---- filters ---- */

/* G g of three numbers, and its transpose of four. */
INLINE void NAME(widen)(const VEC *g, int from, VEC *u, int to) {
  VEC outer = g[0] + g[2 * from];
  u[0] = g[0], u[to] = (outer + g[from]) * 0.5f, u[2 * to] = (outer - g[from]) * 0.5f, u[3 * to] = g[2 * from];
}

INLINE void NAME(widen_turned)(const VEC *u, int from, VEC *g, int to) {
  VEC sum = (u[from] + u[2 * from]) * 0.5f, difference = (u[from] - u[2 * from]) * 0.5f;
  g[0] = u[0] + sum, g[to] = difference, g[2 * to] = sum + u[3 * from];
}

INLINE void NAME(widen_filters)(const ELEMENT *nine, int step, bool second, float *u, int64_t next) {
  VEC g[9], e[12], f[16];
  UNROLL for (int k = 0; k < 9; k++) g[k] = NAME(load)(nine + step * k * LANES);
  UNROLL for (int k = 0; k < 3; k++) NAME(widen)(g + k, 3, e + k, 3);
  UNROLL for (int k = 0; k < 4; k++) NAME(widen)(e + 3 * k, 1, f + 4 * k, 1);
  UNROLL for (int k = 0; k < 16; k++) NAME(put)(u + k * next, second, f[k]);
}

/* Where block b of the result's channels begins among u[16]: panels of two blocks, a row for each term of channels. */
INLINE float *NAME(panel)(const winograd_filters *f, float *u, int64_t b) {
  return u + b / 2 * 2 * LANES * (f->from / TWO) + b % 2 * LANES;
}

INLINE int64_t NAME(panel_row)(const winograd_filters *f, int64_t b) { return b / 2 * 2 * LANES + LANES < f->to ? 2 * LANES : LANES; }

/* Block b of the result's channels, whose filters are w[to][from][9]. */
TARGET static void NAME(turn_filters)(const winograd_filters *f, const void *filters, int64_t b, float *u) {
  const ELEMENT *w = filters;
  ELEMENT lines[9 * LANES * LANES];
  float *to = NAME(panel)(f, u, b);
  int64_t row = NAME(panel_row)(f, b), next = apart(f->from / TWO * f->to);
  for (int64_t c = 0; c < f->from; c += LANES) {
    for (int l = 0; l < LANES; l++)
      for (int k = 0; k < 9 * LANES; k++) lines[k * LANES + l] = w[((b * LANES + l) * f->from + c) * 9 + k];
    for (int k = 0; k < LANES; k++) NAME(widen_filters)(lines + k * 9 * LANES, 1, k % TWO, to + (c + k) / TWO * row, next);
  }
}

/* The same where they are w[from][all][9], turned by half a turn: for the gradient of images. */
TARGET static void NAME(turn_filters_back)(const winograd_filters *f, const void *filters, int64_t b, float *u) {
  const ELEMENT *w = filters;
  ELEMENT lines[9 * LANES];
  float *to = NAME(panel)(f, u, b);
  int64_t row = NAME(panel_row)(f, b), next = apart(f->from / TWO * f->to);
  for (int64_t c = 0; c < f->from; c++) {
    const ELEMENT *at = w + (c * f->all + b * LANES) * 9;
    for (int l = 0; l < LANES; l++)
      for (int k = 0; k < 9; k++) lines[k * LANES + l] = at[l * 9 + k];
    NAME(widen_filters)(lines + 8 * LANES, -1, c % TWO, to + c / TWO * row, next);
  }
}

/* Sums s[16][to / LANES][from][LANES] become the gradient of w[to][from][9], for block b of `to`. */
TARGET static void NAME(narrow)(const winograd_filters *f, const float *s, int64_t b, void *filters) {
  ELEMENT *w = filters;
  ELEMENT lines[9 * LANES * LANES];
  int64_t next = apart(f->from * f->to);
  for (int64_t c = 0; c < f->from; c += LANES) {
    for (int l = 0; l < LANES; l++) {
      VEC u[16], e[12], g[9];
      UNROLL for (int k = 0; k < 16; k++) u[k] = *(const VEC *)(s + k * next + (b * f->from + c + l) * LANES);
      UNROLL for (int k = 0; k < 4; k++) NAME(widen_turned)(u + k, 4, e + k, 4);
      UNROLL for (int k = 0; k < 3; k++) NAME(widen_turned)(e + 4 * k, 1, g + 3 * k, 1);
      UNROLL for (int k = 0; k < 9; k++) NAME(store)(lines + (l * 9 + k) * LANES, g[k]);
    }
    for (int l = 0; l < LANES; l++)
      for (int k = 0; k < 9 * LANES; k++) w[((b * LANES + l) * f->from + c) * 9 + k] = lines[k * LANES + l];
  }
}

/* ---- products ---- */

/* Some tiles by one or two blocks of filters: m[vectors][m_room][LANES] = v[blocks][v_room][LANES / TWO] u[blocks LANES / TWO]
 * [vectors][LANES]. */
INLINE void NAME(tile)(int rows, int vectors, int64_t blocks, int64_t v_room, int64_t m_room, const float *v, const float *u, float *m) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int k = 0; k < vectors; k++) s[r][k] = (VEC){0};
  for (int64_t b = 0; b < blocks; b++, v += v_room * (LANES / TWO))
    for (int c = 0; c < LANES / TWO; c++, u += vectors * LANES) {
      VEC f[2];
      UNROLL for (int k = 0; k < vectors; k++) f[k] = *(const VEC *)(u + k * LANES);
      UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int k = 0; k < vectors; k++) s[r][k] = NAME(plus)(s[r][k], v + r * (LANES / TWO) + c, f[k]);
    }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int k = 0; k < vectors; k++) *(VEC *)(m + (k * m_room + r) * LANES) = s[r][k];
}

/* The spans differ in room. */
INLINE void NAME(tiles)(int vectors, int64_t blocks, winograd_span of_v, const float *v, const float *u, winograd_span of_m, float *m) {
  enum { HALF = ROWS > 8 ? 8 : ROWS, QUARTER = ROWS > 4 ? 4 : ROWS };
  int64_t t = 0, in = of_v.room, out = of_m.room, count = of_m.count;
  for (; t + ROWS <= count; t += ROWS) NAME(tile)(ROWS, vectors, blocks, in, out, v + t * (LANES / TWO), u, m + t * LANES);
  for (; t + HALF <= count; t += HALF) NAME(tile)(HALF, vectors, blocks, in, out, v + t * (LANES / TWO), u, m + t * LANES);
  for (; t + QUARTER <= count; t += QUARTER) NAME(tile)(QUARTER, vectors, blocks, in, out, v + t * (LANES / TWO), u, m + t * LANES);
  for (; t < count; t++) NAME(tile)(1, vectors, blocks, in, out, v + t * (LANES / TWO), u, m + t * LANES);
}

/* Tiles by the filters of blocks [first, first + blocks), first even. */
TARGET static void NAME(product)(const winograd_filters *f, winograd_span of_v, const float *v, float *u, int64_t first, int64_t blocks,
                                 winograd_span of_m, float *m) {
  int64_t from = f->from / LANES, next_v = apart(f->from / TWO * of_v.room), next_u = apart(f->from / TWO * f->to);
  int64_t next_m = apart(WINOGRAD_BLOCKS * LANES * of_m.room);
  v += of_v.at * (LANES / TWO);
  for (int k = 0; k < POINTS; k++, v += next_v, u += next_u, m += next_m)
    for (int64_t b = 0; b < blocks; b += 2) {
      float *to = m + b * of_m.room * LANES;
      if (b + 2 <= blocks) NAME(tiles)(2, from, of_v, v, NAME(panel)(f, u, first + b), of_m, to);
      else NAME(tiles)(1, from, of_v, v, NAME(panel)(f, u, first + b), of_m, to);
    }
}

/* Sums over tiles: s[vectors][from][LANES] (+)= v[tiles / TWO][LANES]' d[vectors][tiles / TWO][LANES], some rows of them. */
INLINE void NAME(sum)(int vectors, winograd_span j, int64_t from, const float *v, const float *d, bool adds, float *s) {
  VEC t[TERM_ROWS][2];
  UNROLL for (int r = 0; r < TERM_ROWS; r++)
    UNROLL for (int k = 0; k < vectors; k++) t[r][k] = adds ? *(const VEC *)(s + (k * from + r) * LANES) : (VEC){0};
  for (int64_t n = 0; n < j.count; n += TWO, v += LANES, d += LANES) {
    VEC f[2];
    UNROLL for (int k = 0; k < vectors; k++) f[k] = *(const VEC *)(d + k * (j.room / TWO) * LANES);
    UNROLL for (int r = 0; r < TERM_ROWS; r++)
      UNROLL for (int k = 0; k < vectors; k++) t[r][k] = NAME(plus)(t[r][k], v + r, f[k]);
  }
  UNROLL for (int r = 0; r < TERM_ROWS; r++)
    UNROLL for (int k = 0; k < vectors; k++) *(VEC *)(s + (k * from + r) * LANES) = t[r][k];
}

/* The k-th of the sixteen products, for blocks b and, if it is there, b + 1 of the filters', which block `first` of the result begins. */
TARGET static void NAME(sums)(const winograd_filters *f, winograd_span j, const float *v, const float *d, int64_t k, int64_t first,
                              int64_t b, bool adds, float *s) {
  int64_t room = j.room / TWO;
  v += k * apart(f->from * room), d += k * apart(f->all * room) + (first + b) * LANES * room;
  s += k * apart(f->from * f->to) + b * LANES * f->from;
  for (int64_t c = 0; c < f->from; c += TERM_ROWS) {
    const float *at = v + c / LANES * room * LANES + c % LANES;
    if ((b + 1) * LANES < f->to) NAME(sum)(2, j, f->from, at, d, adds, s + c * LANES);
    else NAME(sum)(1, j, f->from, at, d, adds, s + c * LANES);
  }
}

static const winograd_routines NAME(routines) = {
    LANES,        TWO,           NAME(turn_filters), NAME(turn_filters_back), NAME(spread), NAME(spread_terms), NAME(spread_result),
    NAME(product), NAME(collect), NAME(sums),         NAME(narrow)};

#undef VEC
#undef LANES
#undef TWO
#undef ELEMENT
#undef PAIR
#undef INLINE
#undef VECTOR_BYTES
#undef ROWS
#undef TERM_ROWS
#undef TARGET
#undef NAME
