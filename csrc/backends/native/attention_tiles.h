/* Attention of one head, in tiles: included once for each element type and instruction set by attention.c, which defines
 * REAL, VECTOR_BYTES, ROWS (of sums that registers hold, two vectors each), TARGET and NAME(x). */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(REAL), NAME(COLUMNS) = 2 * NAME(LANES) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define COLUMNS NAME(COLUMNS)
#define INLINE TARGET static inline __attribute__((always_inline))

/* ---- products ---- */

/* c = a b (+ c): a few rows of a, whose elements may lie anyhow, and a panel of b, a row of COLUMNS for each term. */
INLINE void NAME(tile)(int rows, int64_t terms, const REAL *a, int64_t a_row, int64_t a_term, const REAL *b, REAL *c, int64_t c_row,
                       bool adds) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2; v++) s[r][v] = adds ? *(const VEC *)(c + r * c_row + v * LANES) : (VEC){0};
  for (int64_t t = 0; t < terms; t++) {
    VEC left = *(const VEC *)(b + t * COLUMNS), right = *(const VEC *)(b + t * COLUMNS + LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      REAL x = a[r * a_row + t * a_term];
      s[r][0] += x * left, s[r][1] += x * right;
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < 2; v++) *(VEC *)(c + r * c_row + v * LANES) = s[r][v];
}

/* All columns of c; panels of b lie `b_panel` apart. */
TARGET static void NAME(product)(int64_t rows, int64_t terms, int64_t columns, const REAL *a, int64_t a_row, int64_t a_term, const REAL *b,
                                 int64_t b_panel, REAL *c, int64_t c_row, bool adds) {
  for (int64_t n = 0; n < columns; n += COLUMNS, b += b_panel, c += COLUMNS) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) NAME(tile)(ROWS, terms, a + r * a_row, a_row, a_term, b, c + r * c_row, c_row, adds);
    for (; r + 2 <= rows; r += 2) NAME(tile)(2, terms, a + r * a_row, a_row, a_term, b, c + r * c_row, c_row, adds);
    if (r < rows) NAME(tile)(1, terms, a + r * a_row, a_row, a_term, b, c + r * c_row, c_row, adds);
  }
}

static int64_t NAME(padded)(int64_t n) { return (n + COLUMNS - 1) / COLUMNS * COLUMNS; }

/* Panels of a matrix as it lies, and of its transpose; zeros behind the last column. */
TARGET static void NAME(pack)(const REAL *from, int64_t rows, int64_t columns, int64_t row, REAL *to) {
  for (int64_t n = 0; n < columns; n += COLUMNS)
    for (int64_t r = 0; r < rows; r++, to += COLUMNS) {
      const REAL *x = from + r * row + n;
      if (n + COLUMNS <= columns) *(VEC *)to = *(const VEC *)x, *(VEC *)(to + LANES) = *(const VEC *)(x + LANES);
      else
        for (int64_t k = 0; k < COLUMNS; k++) to[k] = n + k < columns ? x[k] : 0;
    }
}

TARGET static void NAME(pack_turned)(const REAL *from, int64_t rows, int64_t columns, int64_t row, REAL *to) {
  for (int64_t n = 0; n < rows; n += COLUMNS, to += columns * COLUMNS)
    for (int64_t k = 0; k < COLUMNS; k++)
      for (int64_t t = 0; t < columns; t++) to[t * COLUMNS + k] = n + k < rows ? from[(n + k) * row + t] : 0;
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

INLINE VEC NAME(larger)(VEC a, VEC b) {
  typedef __typeof__(a > b) bits;
  bits first = a > b;
  return (VEC)(((bits)a & first) | ((bits)b & ~first));
}

INLINE REAL NAME(total)(VEC x) {
  REAL sum = 0;
  UNROLL for (int k = 0; k < LANES; k++) sum += x[k];
  return sum;
}

INLINE REAL NAME(dot)(const REAL *a, const REAL *b, int64_t n) {
  VEC sums = {0};
  REAL rest = 0;
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) sums += *(const VEC *)(a + k) * *(const VEC *)(b + k);
  for (; k < n; k++) rest += a[k] * b[k];
  return NAME(total)(sums) + rest;
}

/* A row of scores from its products: scaled, with the mask, -inf where it is not to be seen; `width` of them, a multiple of
 * COLUMNS, of which the first `seen` count. */
INLINE void NAME(score)(REAL *s, int64_t width, int64_t seen, REAL scale, const attention_mask *mask, int64_t at) {
  const REAL hidden = -(REAL)__builtin_inff();
  for (int64_t k = 0; k < width; k += LANES) *(VEC *)(s + k) *= scale;
  if (mask->is_float)
    for (int64_t k = 0; k < seen; k++) s[k] += ((const REAL *)mask->data)[at + k * mask->column];
  else if (mask->data)
    for (int64_t k = 0; k < seen; k++) s[k] = mask->data[at + k * mask->column] ? s[k] : hidden;
  for (int64_t k = seen; k < width; k++) s[k] = hidden;
}

/* Query n sees this many of the keys from m on. */
static int64_t NAME(seen)(const attention_head *h, int64_t n, int64_t m, int64_t keys) {
  int64_t limit = h->is_causal ? n + 1 - m : keys;
  return limit < 0 ? 0 : limit < keys ? limit : keys;
}

/* ---- forward ---- */

/* Scores of a block of queries with a block of keys become weights by the largest score so far; what was summed up before
 * is scaled to it. */
TARGET static void NAME(weigh)(const attention_head *h, int64_t n, int64_t rows, int64_t m, int64_t keys, REAL *s, REAL *most, REAL *sum,
                               REAL *o, int64_t o_row) {
  const REAL hidden = -(REAL)__builtin_inff();
  int64_t width = NAME(padded)(keys);
  for (int64_t r = 0; r < rows; r++, s += ATTENTION_KEYS, o += o_row) {
    NAME(score)(s, width, NAME(seen)(h, n + r, m, keys), (REAL)h->scale, &h->mask, h->mask.at + (n + r) * h->mask.row + m * h->mask.column);
    VEC top = *(VEC *)s, add = {0};
    for (int64_t k = LANES; k < width; k += LANES) top = NAME(larger)(*(VEC *)(s + k), top);
    REAL now = most[r];
    UNROLL for (int k = 0; k < LANES; k++) now = top[k] > now ? top[k] : now;
    REAL base = now == hidden ? 0 : now;
    for (int64_t k = 0; k < width; k += LANES) {
      VEC w = NAME(exp)(*(VEC *)(s + k) - base);
      *(VEC *)(s + k) = w, add += w;
    }
    REAL factor = m ? NAME(exp)((VEC){0} + (most[r] - base))[0] : 0;
    for (int64_t k = 0; k < o_row && m && factor != 1; k += LANES) *(VEC *)(o + k) *= factor;
    sum[r] = sum[r] * factor + NAME(total)(add), most[r] = now;
  }
}

/* Queries [begin, end) of a head. */
TARGET static void NAME(forward)(const attention_head *h, int64_t begin, int64_t end, void *scratch) {
  int64_t M = h->keys, D = h->width, E = h->values, EP = NAME(padded)(E);
  REAL *kt = scratch, *v = kt + NAME(padded)(M) * D, *s = v + M * EP, *o = s + ATTENTION_QUERIES * ATTENTION_KEYS;
  REAL most[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
  NAME(pack_turned)(h->k, M, D, D, kt);
  NAME(pack)(h->v, M, E, E, v);
  for (int64_t n = begin, rows; n < end; n += rows) {
    rows = end - n < ATTENTION_QUERIES ? end - n : ATTENTION_QUERIES;
    const REAL *q = (const REAL *)h->q + n * D;
    REAL *y = (REAL *)h->y + n * E, *l = (REAL *)h->l + n;
    int64_t reach = NAME(seen)(h, n + rows - 1, 0, M);
    for (int64_t r = 0; r < rows; r++) most[r] = -(REAL)__builtin_inff(), sum[r] = 0;
    for (int64_t m = 0, keys; m < reach; m += keys) {
      keys = reach - m < ATTENTION_KEYS ? reach - m : ATTENTION_KEYS;
      NAME(product)(rows, D, keys, q, D, 1, kt + m * D, D * COLUMNS, s, ATTENTION_KEYS, false);
      NAME(weigh)(h, n, rows, m, keys, s, most, sum, o, EP);
      NAME(product)(rows, keys, EP, s, ATTENTION_KEYS, 1, v + m * COLUMNS, M * COLUMNS, o, EP, m > 0);
    }
    for (int64_t r = 0; r < rows; r++) {
      REAL factor = (h->is_safe && sum[r] == 0) || !M ? 0 : 1 / sum[r];
      for (int64_t e = 0; e < E; e++) y[r * E + e] = M ? o[r * EP + e] * factor : 0;
      l[r] = most[r] + (REAL)__builtin_log((double)sum[r]);
    }
  }
}

static int64_t NAME(forward_room)(const attention_head *h) {
  int64_t M = h->keys, EP = NAME(padded)(h->values);
  return (NAME(padded)(M) * h->width + M * EP + ATTENTION_QUERIES * (ATTENTION_KEYS + EP)) * (int64_t)sizeof(REAL);
}

/* ---- backward ---- */

/* Weights from scores, and gradients of scores from those of weights. */
TARGET static void NAME(turn_back)(const attention_head *h, int64_t n, int64_t rows, int64_t m, int64_t keys, REAL *s, REAL *g,
                                   const REAL *dot) {
  int64_t width = NAME(padded)(keys);
  for (int64_t r = 0; r < rows; r++, s += ATTENTION_KEYS, g += ATTENTION_KEYS) {
    REAL l = ((const REAL *)h->l)[n + r], base = h->is_safe && l == -(REAL)__builtin_inff() ? 0 : l;
    NAME(score)(s, width, NAME(seen)(h, n + r, m, keys), (REAL)h->scale, &h->mask, h->mask.at + (n + r) * h->mask.row + m * h->mask.column);
    for (int64_t k = 0; k < width; k += LANES) {
      VEC w = NAME(exp)(*(VEC *)(s + k) - base);
      *(VEC *)(s + k) = w, *(VEC *)(g + k) = w * (*(VEC *)(g + k) - dot[r]) * (REAL)h->scale;
    }
  }
}

static void NAME(unpad)(const REAL *from, int64_t rows, int64_t columns, REAL *to) {
  for (int64_t r = 0; r < rows; r++) memcpy(to + r * columns, from + r * NAME(padded)(columns), (size_t)columns * sizeof(REAL));
}

TARGET static void NAME(backward)(const attention_head *h, void *scratch) {
  int64_t N = h->queries, M = h->keys, D = h->width, E = h->values, DP = NAME(padded)(D), EP = NAME(padded)(E), MP = NAME(padded)(M);
  REAL *kt = scratch, *vt = kt + MP * D, *k = vt + MP * E, *q = k + M * DP, *g = q + N * DP, *dk = g + N * EP, *dv = dk + M * DP;
  REAL *s = dv + M * EP, *ds = s + ATTENTION_QUERIES * ATTENTION_KEYS, *dq = ds + ATTENTION_QUERIES * ATTENTION_KEYS;
  REAL dot[ATTENTION_QUERIES];
  NAME(pack_turned)(h->k, M, D, D, kt);
  NAME(pack_turned)(h->v, M, E, E, vt);
  NAME(pack)(h->k, M, D, D, k);
  NAME(pack)(h->q, N, D, D, q);
  NAME(pack)(h->g, N, E, E, g);
  memset(dk, 0, (size_t)(M * (DP + EP)) * sizeof(REAL));
  for (int64_t n = 0, rows; n < N; n += rows) {
    rows = N - n < ATTENTION_QUERIES ? N - n : ATTENTION_QUERIES;
    const REAL *dy = (const REAL *)h->g + n * E, *y = (const REAL *)h->y + n * E;
    int64_t reach = NAME(seen)(h, n + rows - 1, 0, M);
    for (int64_t r = 0; r < rows; r++) dot[r] = NAME(dot)(dy + r * E, y + r * E, E);
    for (int64_t m = 0, keys; m < reach; m += keys) {
      keys = reach - m < ATTENTION_KEYS ? reach - m : ATTENTION_KEYS;
      NAME(product)(rows, D, keys, (const REAL *)h->q + n * D, D, 1, kt + m * D, D * COLUMNS, s, ATTENTION_KEYS, false);
      NAME(product)(rows, E, keys, dy, E, 1, vt + m * E, E * COLUMNS, ds, ATTENTION_KEYS, false);
      NAME(turn_back)(h, n, rows, m, keys, s, ds, dot);
      NAME(product)(keys, rows, EP, s, 1, ATTENTION_KEYS, g + n * COLUMNS, N * COLUMNS, dv + m * EP, EP, true);
      NAME(product)(keys, rows, DP, ds, 1, ATTENTION_KEYS, q + n * COLUMNS, N * COLUMNS, dk + m * DP, DP, true);
      NAME(product)(rows, keys, DP, ds, ATTENTION_KEYS, 1, k + m * COLUMNS, M * COLUMNS, dq, DP, m > 0);
    }
    if (!reach) memset(dq, 0, (size_t)(rows * DP) * sizeof(REAL));
    NAME(unpad)(dq, rows, D, (REAL *)h->dq + n * D);
  }
  NAME(unpad)(dk, M, D, h->dk);
  NAME(unpad)(dv, M, E, h->dv);
}

static int64_t NAME(backward_room)(const attention_head *h) {
  int64_t N = h->queries, M = h->keys, DP = NAME(padded)(h->width), EP = NAME(padded)(h->values), MP = NAME(padded)(M);
  int64_t panels = MP * (h->width + h->values) + 2 * M * DP + M * EP + N * (DP + EP);
  return (panels + ATTENTION_QUERIES * (2 * ATTENTION_KEYS + DP)) * (int64_t)sizeof(REAL);
}

static const attention_routines NAME(routines) = {NAME(forward), NAME(backward), NAME(forward_room), NAME(backward_room)};

#undef VEC
#undef LANES
#undef COLUMNS
#undef INLINE
#undef REAL
#undef VECTOR_BYTES
#undef ROWS
#undef TARGET
#undef NAME
