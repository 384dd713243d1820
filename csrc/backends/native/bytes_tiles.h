/* The routines of bytes.h for one width of vectors; see bytes_kernels.c.
 *   VECTOR_BYTES, ROWS, TERMS  of a vector, a tile and a group
 *   TERM                       the type of a term as it is multiplied
 *   DOT(sums, a, b)            adds to each 32-bit lane of `sums` the products of the terms of a and b
 *   WIDENED(from, flip), ONES  a vector of terms of a row, moved by `flip`, and one of ones, as b
 *   TARGET, NAME               instructions that may be used, and a name for these routines */
#define LANES (VECTOR_BYTES / 4)
#define V NAME(vector)
#define VU NAME(unaligned)

typedef int32_t V __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t VU __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* The sum goes along: of the row times a row of ones. */
TARGET static int32_t NAME(lay_row)(const int8_t *from, int64_t n, uint8_t flip, void *to) {
  TERM *row = to;
  V sums = {0};
  int64_t k = 0;
  for (; k + LANES * TERMS <= n; k += LANES * TERMS) {
    const V terms = WIDENED(from + k, flip);
    DOT(sums, terms, ONES);
    *(VU *)(row + k) = terms;
  }
  int32_t sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
  for (; k < n; k++) sum += row[k] = (int8_t)((uint8_t)from[k] ^ flip);
  for (; k % TERMS; k++) row[k] = 0;
  return sum;
}

TARGET static void NAME(lay_columns)(const uint8_t *const *lines, uint8_t flip, void *to) {
  uint32_t *group = to;
  const uint8_t *const a = lines[0], *const b = lines[1], *const c = lines[TERMS - 2], *const d = lines[TERMS - 1];
  for (int j = 0; j < 2 * LANES; j++) {
    if (TERMS == 4)
      group[j] = (uint32_t)(a[j] ^ flip) | (uint32_t)(b[j] ^ flip) << 8 | (uint32_t)(c[j] ^ flip) << 16 | (uint32_t)(d[j] ^ flip) << 24;
    else group[j] = (uint32_t)(a[j] ^ flip) | (uint32_t)(b[j] ^ flip) << 16;
  }
}

#define TILE(n)                                                                                                                    \
  TARGET static void NAME(tile_##n)(const char *rows, int64_t row_bytes, const char *panel, int64_t groups, int32_t *sums) {       \
    V acc[n][2];                                                                                                                   \
    UNROLL for (int r = 0; r < n; r++) acc[r][0] = acc[r][1] = (V){0};                                                             \
    for (int64_t k = 0; k < groups; k++) {                                                                                         \
      const V b0 = *(const VU *)(panel + 2 * k * VECTOR_BYTES), b1 = *(const VU *)(panel + (2 * k + 1) * VECTOR_BYTES);            \
      UNROLL for (int r = 0; r < n; r++) {                                                                                         \
        int32_t group;                                                                                                             \
        memcpy(&group, rows + r * row_bytes + k * BYTES_GROUP, sizeof group);                                                      \
        const V a = group - (V){0};                                                                                                \
        DOT(acc[r][0], a, b0);                                                                                                     \
        DOT(acc[r][1], a, b1);                                                                                                     \
      }                                                                                                                            \
    }                                                                                                                              \
    UNROLL for (int r = 0; r < n; r++) {                                                                                           \
      *(VU *)(sums + 2 * r * LANES) = acc[r][0];                                                                                   \
      *(VU *)(sums + (2 * r + 1) * LANES) = acc[r][1];                                                                             \
    }                                                                                                                              \
  }
TILE(1)
TILE(2)
TILE(4)
#if ROWS == 12
TILE(8)
TILE(12)
#endif
#undef TILE

/* The tallest tile that fits, again and again. */
TARGET static void NAME(multiply)(const char *rows, int64_t row_bytes, int n_rows, const char *panel, int64_t groups, int32_t *sums) {
  while (n_rows > 0) {
#if ROWS == 12
    const int n = n_rows >= 12 ? 12 : n_rows >= 8 ? 8 : n_rows >= 4 ? 4 : n_rows >= 2 ? 2 : 1;
    if (n == 12) NAME(tile_12)(rows, row_bytes, panel, groups, sums);
    else if (n == 8) NAME(tile_8)(rows, row_bytes, panel, groups, sums);
    else
#else
    const int n = n_rows >= 4 ? 4 : n_rows >= 2 ? 2 : 1;
#endif
    if (n == 4) NAME(tile_4)(rows, row_bytes, panel, groups, sums);
    else if (n == 2) NAME(tile_2)(rows, row_bytes, panel, groups, sums);
    else NAME(tile_1)(rows, row_bytes, panel, groups, sums);
    rows += n * row_bytes, sums += n * 2 * LANES, n_rows -= n;
  }
}

/* Sums wrap around, as the operators' do. */
TARGET static void NAME(finish)(const int32_t *sums, int32_t zero, const int32_t *by_column, int32_t row, const int32_t *by_zero,
                                int64_t columns, int32_t *to) {
  int32_t all[2 * LANES], *const out = columns == 2 * LANES ? to : all;
  UNROLL for (int j = 0; j < 2 * LANES; j += LANES)
    *(VU *)(out + j) = *(const VU *)(sums + j) - *(const VU *)(by_column + j) * zero - *(const VU *)(by_zero + j) * row;
  if (out == all) memcpy(to, all, (size_t)columns * sizeof *to);
}

static const bytes_routines NAME(routines) = {ROWS, 2 * LANES, TERMS, NAME(lay_row), NAME(lay_columns), NAME(multiply), NAME(finish)};

#undef LANES
#undef V
#undef VU
#undef VECTOR_BYTES
#undef ROWS
#undef TERMS
#undef TERM
#undef DOT
#undef WIDENED
#undef ONES
#undef TARGET
#undef NAME
