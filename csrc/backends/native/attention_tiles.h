/* Attention of one head, in tiles: included once for each element type and instruction set by attention.c, which defines
 * REAL and WHOLE (a number as wide), VECTOR_BYTES, LANE_NUMBERS, ROWS (of sums that registers hold, two vectors each), TARGET and
 * NAME(x), and TURNS where turn.h serves. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef WHOLE NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(REAL), NAME(COLUMNS) = 2 * NAME(LANES) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define COLUMNS NAME(COLUMNS)
#define INLINE TARGET static inline __attribute__((always_inline))

#ifdef TURNS
#include "backends/native/turn.h"
#endif

/* ---- products ---- */

/* The right side of a product: lines of COLUMNS numbers, one for each term, `row` apart; `panel`: from these columns to the next. */
typedef struct {
  const REAL *at;
  int64_t row, panel;
} NAME(panels);

/* c = a b (+ c): a few rows of a, whose elements may lie anyhow, and one or two vectors of columns. */
INLINE void NAME(tile)(int rows, int vectors, int64_t terms, const REAL *a, int64_t a_row, int64_t a_term, const REAL *b, int64_t b_row,
                       REAL *c, int64_t c_row, bool adds) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = adds ? *(const VEC *)(c + r * c_row + v * LANES) : (VEC){0};
  for (int64_t t = 0; t < terms; t++, b += b_row) {
    VEC right[2];
    UNROLL for (int v = 0; v < vectors; v++) right[v] = *(const VEC *)(b + v * LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      REAL x = a[r * a_row + t * a_term];
      UNROLL for (int v = 0; v < vectors; v++) s[r][v] += x * right[v];
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < vectors; v++) *(VEC *)(c + r * c_row + v * LANES) = s[r][v];
}

INLINE void NAME(strip)(int vectors, int64_t rows, int64_t terms, const REAL *a, int64_t a_row, int64_t a_term, const REAL *b,
                        int64_t b_row, REAL *c, int64_t c_row, bool adds) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS) NAME(tile)(ROWS, vectors, terms, a + r * a_row, a_row, a_term, b, b_row, c + r * c_row, c_row, adds);
  for (; r + 4 <= rows; r += 4) NAME(tile)(4, vectors, terms, a + r * a_row, a_row, a_term, b, b_row, c + r * c_row, c_row, adds);
  for (; r < rows; r++) NAME(tile)(1, vectors, terms, a + r * a_row, a_row, a_term, b, b_row, c + r * c_row, c_row, adds);
}

/* All columns of c, whole vectors of them. */
TARGET static void NAME(product)(int64_t rows, int64_t terms, int64_t columns, const REAL *a, int64_t a_row, int64_t a_term, NAME(panels) b,
                                 REAL *c, int64_t c_row, bool adds) {
  for (int64_t n = 0; n < columns; n += COLUMNS, b.at += b.panel, c += COLUMNS) {
    if (columns - n > LANES) NAME(strip)(2, rows, terms, a, a_row, a_term, b.at, b.row, c, c_row, adds);
    else NAME(strip)(1, rows, terms, a, a_row, a_term, b.at, b.row, c, c_row, adds);
  }
}

/* ---- operands ---- */

static int64_t NAME(wide)(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
static int64_t NAME(padded)(int64_t n) { return (n + COLUMNS - 1) / COLUMNS * COLUMNS; }

/* Bytes apart that are no multiple of a page: rows of scores that are read across share no places in the first cache. */
static int64_t NAME(score_row)(int64_t keys) { return keys < ATTENTION_KEYS ? NAME(wide)(keys) : ATTENTION_KEYS + LANES; }

/* Rows that lie apart are not seen to come by the processor. */
INLINE void NAME(expect)(const REAL *row, int64_t columns) {
  for (int64_t k = 0; k < columns; k += 64 / (int64_t)sizeof(REAL)) __builtin_prefetch(row + k);
}

/* A matrix as it lies, or where its rows are no whole vectors, or push each other out of the first cache, copied to the room that is
 * given, with zeros behind rows. */
TARGET static NAME(panels) NAME(lying)(attention_rows of, int64_t rows, int64_t columns, REAL *room) {
  const int64_t row = NAME(wide)(columns);
  const REAL *from = of.at;
  const bool clash = of.row != columns && of.row * (int64_t)sizeof(REAL) % ATTENTION_CLASHING == 0;
  if (columns % LANES == 0 && !clash) return (NAME(panels)){from, of.row, COLUMNS};
  for (int64_t r = 0; r < rows; r++, from += of.row) {
    if (of.row != columns) NAME(expect)(from + AHEAD * of.row, columns);
    *(VEC *)(room + (r + 1) * row - LANES) = (VEC){0};
    memcpy(room + r * row, from, (size_t)columns * sizeof(REAL));
  }
  return (NAME(panels)){room, row, COLUMNS};
}

/* Its transpose, times a factor; zeros behind the last column of a vector. */
TARGET static NAME(panels) NAME(turned)(attention_rows of, int64_t rows, int64_t columns, REAL factor, REAL *room) {
  for (int64_t n = 0; n < rows; n += LANES) {
    const REAL *x = (const REAL *)of.at + n * of.row;
    const int64_t some = rows - n < LANES ? rows - n : LANES;
    for (int64_t r = 0; r < LANES && of.row != columns; r++) NAME(expect)(x + (LANES + r) * of.row, columns);
    REAL *to = room + n / COLUMNS * columns * COLUMNS + n % COLUMNS;
    int64_t t = 0;
#ifdef TURNS
    for (; t + LANES <= columns; t += LANES) {
      VEC s[LANES];
      UNROLL for (int r = 0; r < LANES; r++) {
        s[r] = (VEC){0};
        if (r < some) s[r] = *(const VEC *)(x + r * of.row + t) * factor;
      }
      NAME(turn)(s);
      UNROLL for (int r = 0; r < LANES; r++) *(VEC *)(to + (t + r) * COLUMNS) = s[r];
    }
#endif
    for (; t < columns; t++) {
      *(VEC *)(to + t * COLUMNS) = (VEC){0};
      for (int64_t r = 0; r < some; r++) to[t * COLUMNS + r] = x[r * of.row + t] * factor;
    }
  }
  return (NAME(panels)){room, COLUMNS, columns * COLUMNS};
}

static NAME(panels) NAME(from)(NAME(panels) b, int64_t offset) { return b.at += offset, b; }

/* Where rows are summed up: in place, or in the room where they are no whole vectors. */
static attention_rows NAME(sums)(attention_rows of, int64_t columns, REAL *room) {
  return columns % LANES ? (attention_rows){room, NAME(wide)(columns)} : of;
}

static REAL *NAME(row)(attention_rows of, int64_t n) { return (REAL *)of.at + n * of.row; }

static void NAME(clear)(attention_rows of, int64_t first, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) memset(NAME(row)(of, first + r), 0, (size_t)NAME(wide)(columns) * sizeof(REAL));
}

/* ---- weights ---- */

/* To about one unit in the last place; 0 where the result would be no normal number. */
INLINE VEC NAME(exp)(VEC x) {
  const REAL low = sizeof(REAL) == 4 ? (REAL)-87.3 : (REAL)-708.3, magic = sizeof(REAL) == 4 ? (REAL)0x1.8p+23 : (REAL)0x1.8p+52;
  typedef __typeof__(x < x) bits;
  bits tiny = x < low;
  VEC shifted = x * (REAL)1.4426950408889634 + magic, n = shifted - magic, r, p;
  if (sizeof(REAL) == 4) {
    r = x - n * (REAL)0x1.62e4p-1 - n * (REAL)0x1.7f7d1cp-20;
    p = r * (REAL)0x1.6a1aaep-10 + (REAL)0x1.123fc6p-7;
    p = p * r + (REAL)0x1.555916p-5, p = p * r + (REAL)0x1.55548ap-3, p = p * r + (REAL)0x1.fffffcp-2;
  } else {
    r = x - n * (REAL)0x1.62e42feep-1 - n * (REAL)0x1.a39ef35793c76p-33;
    p = r * (REAL)(1.0 / 6227020800) + (REAL)(1.0 / 479001600);
    p = p * r + (REAL)(1.0 / 39916800), p = p * r + (REAL)(1.0 / 3628800);
    p = p * r + (REAL)(1.0 / 362880), p = p * r + (REAL)(1.0 / 40320);
    p = p * r + (REAL)(1.0 / 5040), p = p * r + (REAL)(1.0 / 720), p = p * r + (REAL)(1.0 / 120), p = p * r + (REAL)(1.0 / 24);
    p = p * r + (REAL)(1.0 / 6), p = p * r + (REAL)0.5;
  }
  p = r * r * p + r + 1;
  bits scale = ((bits)shifted - (bits)((VEC){0} + magic) + (sizeof(REAL) == 4 ? 127 : 1023)) << (sizeof(REAL) == 4 ? 23 : 52);
  return (VEC)((bits)(p * (VEC)scale) & ~tiny);
}

INLINE VEC NAME(choose)(NAME(lane) first, VEC a, VEC b) { return (VEC)(((NAME(lane))a & first) | ((NAME(lane))b & ~first)); }

INLINE VEC NAME(larger)(VEC a, VEC b) { return NAME(choose)(a > b, a, b); }

/* Each lane of the result is the sum, or the largest, of all. */
INLINE VEC NAME(total)(VEC x) {
  const NAME(lane) number = {LANE_NUMBERS};
  UNROLL for (int n = LANES / 2; n; n /= 2) x += __builtin_shuffle(x, number ^ n);
  return x;
}

INLINE VEC NAME(largest)(VEC x) {
  const NAME(lane) number = {LANE_NUMBERS};
  UNROLL for (int n = LANES / 2; n; n /= 2) x = NAME(larger)(x, __builtin_shuffle(x, number ^ n));
  return x;
}

INLINE REAL NAME(dot)(const REAL *a, const REAL *b, int64_t n) {
  VEC sums = {0};
  REAL rest = 0;
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) sums += *(const VEC *)(a + k) * *(const VEC *)(b + k);
  for (; k < n; k++) rest += a[k] * b[k];
  return NAME(total)(sums)[0] + rest;
}

/* A row of scores with what the mask adds or hides: `width` of them, whole vectors, of which the first `seen` count; the others
 * are -inf. */
INLINE void NAME(hide)(REAL *s, int64_t width, int64_t seen, const attention_mask *mask, int64_t at) {
  typedef char bytes __attribute__((vector_size(LANES)));
  const NAME(lane) number = {LANE_NUMBERS};
  const REAL hidden = -(REAL)__builtin_inff(), *added = (const REAL *)mask->data + at;
  const char *shown = mask->data + at;
  const int64_t whole = mask->data && mask->column == 1 ? seen / LANES * LANES : 0;
  for (int64_t k = 0; k < whole; k += LANES) {
    if (mask->is_float) *(VEC *)(s + k) += *(const VEC *)(added + k);
    else {
      bytes some;
      memcpy(&some, shown + k, LANES);
      *(VEC *)(s + k) = NAME(choose)(__builtin_convertvector(some, NAME(lane)) != 0, *(VEC *)(s + k), (VEC){0} + hidden);
    }
  }
  for (int64_t k = whole; k < seen && mask->data; k++) {
    if (mask->is_float) s[k] += added[k * mask->column];
    else s[k] = shown[k * mask->column] ? s[k] : hidden;
  }
  for (int64_t k = seen / LANES * LANES; k < width; k += LANES)
    *(VEC *)(s + k) = NAME(choose)(number < (WHOLE)(seen - k), *(VEC *)(s + k), (VEC){0} + hidden);
}

/* Query n sees this many of the keys from m on. */
static int64_t NAME(seen)(const attention_head *h, int64_t n, int64_t m, int64_t keys) {
  int64_t limit = h->is_causal ? n + 1 - m : keys;
  return limit < 0 ? 0 : limit < keys ? limit : keys;
}

/* ---- forward ---- */

/* Scores of a block of queries with a block of keys become weights by the largest score so far; what was summed up before
 * is scaled to it. */
TARGET static void NAME(weigh)(const attention_head *h, int64_t n, int64_t rows, int64_t m, int64_t keys, REAL *s, int64_t s_row,
                               REAL *most, REAL *sum, attention_rows o) {
  const REAL hidden = -(REAL)__builtin_inff();
  const int64_t width = NAME(wide)(keys);
  for (int64_t r = 0; r < rows; r++, s += s_row) {
    REAL *x = NAME(row)(o, r);
    NAME(hide)(s, width, NAME(seen)(h, n + r, m, keys), &h->mask, h->mask.at + (n + r) * h->mask.row + m * h->mask.column);
    VEC top = (VEC){0} + most[r], add = {0};
    for (int64_t k = 0; k < width; k += LANES) top = NAME(larger)(*(VEC *)(s + k), top);
    REAL now = NAME(largest)(top)[0], base = now == hidden ? 0 : now;
    for (int64_t k = 0; k < width; k += LANES) {
      VEC w = NAME(exp)(*(VEC *)(s + k) - base);
      *(VEC *)(s + k) = w, add += w;
    }
    REAL factor = m ? NAME(exp)((VEC){0} + (most[r] - base))[0] : 0;
    for (int64_t k = 0; k < h->values && m && factor != 1; k += LANES) *(VEC *)(x + k) *= factor;
    sum[r] = sum[r] * factor + NAME(total)(add)[0], most[r] = now;
  }
}

static REAL NAME(log)(REAL x) { return sizeof(REAL) == 4 ? (REAL)__builtin_logf((float)x) : (REAL)__builtin_log((double)x); }

/* Sums of weighted values become means, in place or from the room where they were summed up. */
TARGET static void NAME(divide)(const attention_head *h, int64_t rows, const REAL *most, const REAL *sum, attention_rows o, attention_rows to,
                                REAL *l) {
  for (int64_t r = 0; r < rows; r++) {
    REAL factor = h->is_safe && sum[r] == 0 ? 0 : 1 / sum[r], *x = NAME(row)(o, r);
    for (int64_t e = 0; e < h->values; e += LANES) *(VEC *)(x + e) *= factor;
    if (o.at != to.at) memcpy(NAME(row)(to, r), x, (size_t)h->values * sizeof(REAL));
    l[r] = most[r] + NAME(log)(sum[r]);
  }
}

/* Queries [begin, end) of a head. */
TARGET static void NAME(forward)(const attention_head *h, int64_t begin, int64_t end, void *scratch) {
  int64_t M = h->keys, D = h->width, E = h->values, EP = NAME(wide)(E), S = NAME(score_row)(M);
  REAL *turned = scratch, *values = turned + NAME(padded)(M) * D, *s = values + M * EP, *room = s + ATTENTION_QUERIES * S;
  REAL most[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
  const NAME(panels) k = NAME(turned)(h->k, M, D, (REAL)h->scale, turned), v = NAME(lying)(h->v, M, E, values);
  for (int64_t n = begin, rows; n < end; n += rows) {
    rows = end - n < ATTENTION_QUERIES ? end - n : ATTENTION_QUERIES;
    const attention_rows to = {NAME(row)(h->y, n), h->y.row}, o = NAME(sums)(to, E, room);
    int64_t reach = NAME(seen)(h, n + rows - 1, 0, M);
    for (int64_t r = 0; r < rows; r++) most[r] = -(REAL)__builtin_inff(), sum[r] = 0;
    if (!reach) NAME(clear)(o, 0, rows, E);
    for (int64_t m = 0, keys; m < reach; m += keys) {
      keys = reach - m < ATTENTION_KEYS ? reach - m : ATTENTION_KEYS;
      NAME(product)(rows, D, NAME(wide)(keys), NAME(row)(h->q, n), h->q.row, 1, NAME(from)(k, m * D), s, S, false);
      NAME(weigh)(h, n, rows, m, keys, s, S, most, sum, o);
      NAME(product)(rows, keys, EP, s, S, 1, NAME(from)(v, m * v.row), o.at, o.row, m > 0);
    }
    NAME(divide)(h, rows, most, sum, o, to, (REAL *)h->l + n);
  }
}

static int64_t NAME(forward_room)(const attention_head *h) {
  int64_t M = h->keys, EP = NAME(wide)(h->values);
  return (NAME(padded)(M) * h->width + M * EP + ATTENTION_QUERIES * (NAME(score_row)(M) + EP)) * (int64_t)sizeof(REAL);
}

/* ---- backward ---- */

/* The first n numbers of a vector, all where there are more. */
INLINE void NAME(store)(REAL *to, VEC x, int64_t n) {
  if (n >= LANES) *(VEC *)to = x;
  else memcpy(to, &x, (size_t)n * sizeof *to);
}

/* Weights from scores, and gradients of products from those of weights. */
TARGET static void NAME(turn_back)(const attention_head *h, int64_t n, int64_t rows, int64_t m, int64_t keys, REAL *s, REAL *g, int64_t row,
                                   const REAL *dot) {
  int64_t width = NAME(wide)(keys);
  for (int64_t r = 0; r < rows; r++, s += row, g += row) {
    REAL l = ((const REAL *)h->l)[n + r], base = h->is_safe && l == -(REAL)__builtin_inff() ? 0 : l;
    NAME(hide)(s, width, NAME(seen)(h, n + r, m, keys), &h->mask, h->mask.at + (n + r) * h->mask.row + m * h->mask.column);
    for (int64_t k = 0; k < width; k += LANES) {
      VEC w = NAME(exp)(*(VEC *)(s + k) - base);
      VEC of_score = w * (*(VEC *)(g + k) - dot[r]);
      *(VEC *)(s + k) = w, *(VEC *)(g + k) = of_score * (REAL)h->scale;
      if (h->ds) NAME(store)((REAL *)h->ds + (n + r) * h->keys + m + k, of_score, keys - k);
    }
  }
}

static void NAME(unpad)(attention_rows from, int64_t rows, int64_t columns, REAL *to, int64_t to_row) {
  for (int64_t r = 0; r < rows && from.at != to; r++) memcpy(to + r * to_row, NAME(row)(from, r), (size_t)columns * sizeof(REAL));
}

TARGET static void NAME(backward)(const attention_head *h, void *scratch) {
  int64_t N = h->queries, M = h->keys, D = h->width, E = h->values, DP = NAME(wide)(D), EP = NAME(wide)(E), MP = NAME(padded)(M);
  int64_t S = NAME(score_row)(M);
  REAL *room = scratch, *s = room + MP * (D + E) + M * DP + N * (DP + EP), *ds = s + ATTENTION_QUERIES * S;
  REAL *rest = ds + ATTENTION_QUERIES * S, dot[ATTENTION_QUERIES];
  const attention_rows dk = NAME(sums)(h->dk, D, rest), dv = NAME(sums)(h->dv, E, rest + M * DP);
  const NAME(panels) kt = NAME(turned)(h->k, M, D, (REAL)h->scale, room), vt = NAME(turned)(h->v, M, E, 1, room += MP * D);
  const NAME(panels) k = NAME(lying)(h->k, M, D, room += MP * E), q = NAME(lying)(h->q, N, D, room += M * DP);
  const NAME(panels) g = NAME(lying)(h->g, N, E, room += N * DP);
  NAME(clear)(dk, 0, M, D), NAME(clear)(dv, 0, M, E);
  if (h->ds && h->is_causal) memset(h->ds, 0, (size_t)(N * M) * sizeof(REAL));
  for (int64_t n = 0, rows; n < N; n += rows) {
    rows = N - n < ATTENTION_QUERIES ? N - n : ATTENTION_QUERIES;
    const attention_rows to = {NAME(row)(h->dq, n), h->dq.row}, dq = NAME(sums)(to, D, rest + M * (DP + EP));
    const REAL *x = q.at + n * q.row, *dy = g.at + n * g.row;
    int64_t reach = NAME(seen)(h, n + rows - 1, 0, M);
    for (int64_t r = 0; r < rows; r++) dot[r] = NAME(dot)(dy + r * g.row, NAME(row)(h->y, n + r), E);
    for (int64_t m = 0, keys; m < reach; m += keys) {
      keys = reach - m < ATTENTION_KEYS ? reach - m : ATTENTION_KEYS;
      NAME(product)(rows, D, NAME(wide)(keys), x, q.row, 1, NAME(from)(kt, m * D), s, S, false);
      NAME(product)(rows, E, NAME(wide)(keys), dy, g.row, 1, NAME(from)(vt, m * E), ds, S, false);
      NAME(turn_back)(h, n, rows, m, keys, s, ds, S, dot);
      NAME(product)(keys, rows, EP, s, 1, S, NAME(from)(g, n * g.row), NAME(row)(dv, m), dv.row, true);
      NAME(product)(keys, rows, DP, ds, 1, S, NAME(from)(q, n * q.row), NAME(row)(dk, m), dk.row, true);
      NAME(product)(rows, keys, DP, ds, S, 1, NAME(from)(k, m * k.row), dq.at, dq.row, m > 0);
    }
    if (!reach) NAME(clear)(dq, 0, rows, D);
    NAME(unpad)(dq, rows, D, to.at, to.row);
  }
  NAME(unpad)(dk, M, D, h->dk.at, h->dk.row);
  NAME(unpad)(dv, M, E, h->dv.at, h->dv.row);
}

static int64_t NAME(backward_room)(const attention_head *h) {
  int64_t N = h->queries, M = h->keys, DP = NAME(wide)(h->width), EP = NAME(wide)(h->values), MP = NAME(padded)(M);
  int64_t operands = MP * (h->width + h->values) + M * DP + N * (DP + EP), results = M * (DP + EP) + ATTENTION_QUERIES * DP;
  return (operands + results + ATTENTION_QUERIES * 2 * NAME(score_row)(M)) * (int64_t)sizeof(REAL);
}

static const attention_routines NAME(routines) = {NAME(forward), NAME(backward), NAME(forward_room), NAME(backward_room)};

#undef VEC
#undef LANES
#undef COLUMNS
#undef INLINE
#undef REAL
#undef WHOLE
#undef VECTOR_BYTES
#undef LANE_NUMBERS
#undef TURNS
#undef ROWS
#undef TARGET
#undef NAME
