/* LU, Cholesky's factor and triangular systems: included once for each element type and instruction set by matrices_kernels.c, which
 * defines REAL, WHOLE (integers of that size), VECTOR_BYTES, TARGET and NAME(x). */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef WHOLE NAME(mask) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(REAL), NAME(ROWS) = 4 };
#define VEC NAME(vec)
#define MASK NAME(mask)
#define LANES NAME(LANES)
#define ROWS NAME(ROWS) /* at a time, whose sums are in registers */
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE VEC NAME(pick)(MASK which, VEC a, VEC b) { return (VEC)((which & (MASK)a) | (~which & (MASK)b)); }

/* ---- tiles ---- */

/* Lanes behind the last matrix repeat the first one of the tile. */
INLINE void NAME(load)(VEC *tile, const REAL *x, int64_t size, int64_t count) {
  REAL *to = (REAL *)tile;
  for (int64_t lane = 0; lane < LANES; lane++)
    for (int64_t e = 0; e < size; e++) to[e * LANES + lane] = x[(lane < count ? lane : 0) * size + e];
}

INLINE void NAME(store)(const VEC *tile, REAL *y, int64_t size, int64_t count) {
  const REAL *from = (const REAL *)tile;
  for (int64_t lane = 0; lane < count; lane++)
    for (int64_t e = 0; e < size; e++) y[lane * size + e] = from[e * LANES + lane];
}

/* The row of the largest number of column j among those that were no pivots, and where it stands; the first to stand of equals, and NaN
 * counts as infinite. */
INLINE MASK NAME(pivot)(const VEC *w, const MASK *stands, int64_t n, int64_t j, MASK *where) {
  const MASK sign = (MASK)(-(VEC){0});
  const VEC infinite = (VEC){0} + (REAL)__builtin_inf();
  VEC best = (VEC){0} - 2;
  MASK at = {0};
  *where = (MASK){0};
  for (int64_t i = 0; i < n; i++) {
    VEC size = (VEC)((MASK)w[i * n + j] & ~sign);
    size = NAME(pick)((MASK)(size == size), size, infinite);
    size = NAME(pick)((MASK)(stands[i] < (WHOLE)j), (VEC){0} - 1, size);
    const MASK better = (MASK)(size > best) | ((MASK)(size == best) & (MASK)(stands[i] < *where));
    best = NAME(pick)(better, size, best);
    at = (better & (WHOLE)i) | (~better & at);
    *where = (better & stands[i]) | (~better & *where);
  }
  return at;
}

/* w becomes L.  Rows stay where they are; stands: where LAPACK's swaps put them, pivots first. */
INLINE void NAME(lu_of_tile)(VEC *w, VEC *u, MASK *stands, MASK *pivots, int64_t n) {
  for (int64_t i = 0; i < n; i++) stands[i] = (MASK){0} + (WHOLE)i;
  for (int64_t j = 0; j < n; j++) {
    MASK from;
    const MASK at = pivots[j] = NAME(pivot)(w, stands, n, j, &from);
    VEC *row = u + j * n;
    for (int64_t c = 0; c < n; c++) row[c] = (VEC){0};
    for (int64_t i = 0; i < n; i++) {
      const MASK here = (MASK)(at == (WHOLE)i);
      for (int64_t c = j; c < n; c++) row[c] = (VEC)((MASK)row[c] | (here & (MASK)w[i * n + c]));
    }
    const VEC one = (VEC){0} + 1, head = row[j] + (VEC)((MASK)(row[j] == 0) & (MASK)one);
    row[j] = one;
    for (int64_t c = j + 1; c < n; c++) row[c] /= head;
    for (int64_t i = 0; i < n; i++) {
      const MASK left = (MASK)(stands[i] >= (WHOLE)j), pivot = (MASK)(at == (WHOLE)i), moves = (MASK)(stands[i] == (WHOLE)j) & ~pivot;
      const VEC factor = w[i * n + j] = (VEC)(left & (MASK)w[i * n + j]);
      stands[i] = (pivot & (WHOLE)j) | (moves & from) | (~pivot & ~moves & stands[i]);
      for (int64_t c = j + 1; c < n; c++) w[i * n + c] -= factor * row[c];
    }
  }
}

INLINE void NAME(lu_tile)(const matrices_job *job, int64_t first, int64_t count, VEC *w) {
  const int64_t n = job->n, size = n * n;
  VEC *u = w + size;
  MASK *stands = (MASK *)(u + size), *pivots = stands + n;
  NAME(load)(w, (const REAL *)job->a + first * size, size, count);
  NAME(lu_of_tile)(w, u, stands, pivots, n);
  if (job->y) NAME(store)(w, (REAL *)job->y + first * size, size, count);
  if (job->u) NAME(store)(u, (REAL *)job->u + first * size, size, count);
  for (int64_t lane = 0; lane < count && job->pivots; lane++)
    for (int64_t j = 0; j < n; j++) job->pivots[(first + lane) * n + j] = ((const WHOLE *)pivots)[j * LANES + lane];
}

#define ROOT(x) (sizeof(REAL) == 4 ? (REAL)__builtin_sqrtf((float)(x)) : (REAL)__builtin_sqrt((double)(x)))

INLINE void NAME(cholesky_tile)(const matrices_job *job, int64_t first, int64_t count, VEC *w) {
  const int64_t n = job->n, size = n * n;
  NAME(load)(w, (const REAL *)job->a + first * size, size, count);
  for (int64_t j = 0; j < n; j++) {
    VEC root;
    for (int lane = 0; lane < LANES; lane++) root[lane] = ROOT(w[j * n + j][lane]);
    w[j * n + j] = root;
    for (int64_t i = j + 1; i < n; i++) {
      const VEC factor = w[i * n + j] = w[i * n + j] / root;
      for (int64_t k = j + 1; k <= i; k++) w[i * n + k] -= factor * w[k * n + j];
      w[j * n + i] = (VEC){0};
    }
  }
  NAME(store)(w, (REAL *)job->y + first * size, size, count);
}

INLINE void NAME(triangular_tile)(const matrices_job *job, int64_t first, int64_t count, VEC *a) {
  const int64_t n = job->n, columns = job->columns;
  VEC *y = a + n * n;
  NAME(load)(a, (const REAL *)job->a + first * n * n, n * n, count);
  NAME(load)(y, (const REAL *)job->x + first * n * columns, n * columns, count);
  for (int64_t t = 0; t < n; t++) {
    const int64_t i = job->upper ? n - 1 - t : t, from = job->upper ? i + 1 : 0, to = job->upper ? n : i;
    for (int64_t k = from; k < to; k++) {
      const VEC factor = a[i * n + k];
      for (int64_t c = 0; c < columns; c++) y[i * columns + c] -= factor * y[k * columns + c];
    }
    for (int64_t c = 0; c < columns && !job->unit; c++) y[i * columns + c] /= a[i * n + i];
  }
  NAME(store)(y, (REAL *)job->y + first * n * columns, n * columns, count);
}

TARGET static void NAME(tile)(const matrices_job *job, int64_t tile, void *scratch) {
  const int64_t first = tile * LANES, count = job->batch - first < LANES ? job->batch - first : LANES;
  if (job->kind == MATRICES_LU) NAME(lu_tile)(job, first, count, scratch);
  else if (job->kind == MATRICES_CHOLESKY) NAME(cholesky_tile)(job, first, count, scratch);
  else NAME(triangular_tile)(job, first, count, scratch);
}

/* ---- one matrix ---- */

/* y -= factor * x */
INLINE void NAME(subtract)(REAL *restrict y, const REAL *restrict x, REAL factor, int64_t n) {
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) *(VEC *)(y + k) -= *(const VEC *)(x + k) * factor;
  for (; k < n; k++) y[k] -= x[k] * factor;
}

INLINE REAL NAME(dot)(const REAL *x, const REAL *y, int64_t n) {
  VEC sum[4] = {{0}};
  REAL all = 0;
  int64_t k = 0;
  for (; k + 4 * LANES <= n; k += 4 * LANES)
    for (int j = 0; j < 4; j++) sum[j] += *(const VEC *)(x + k + j * LANES) * *(const VEC *)(y + k + j * LANES);
  for (; k + LANES <= n; k += LANES) sum[0] += *(const VEC *)(x + k) * *(const VEC *)(y + k);
  sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  for (int lane = 0; lane < LANES; lane++) all += sum[0][lane];
  for (; k < n; k++) all += x[k] * y[k];
  return all;
}

/* y[r][c] -= sum of f[r][k] * x[k][c], in the order of k, for a few rows and the columns from `from` to `to`; x's rows are `width`
 * apart. */
INLINE void NAME(update_rows)(const int rows, REAL *const *y, const REAL *const *f, const REAL *x, int64_t width, int64_t terms,
                              int64_t from, int64_t to) {
  int64_t c = from;
  for (; c + 2 * LANES <= to; c += 2 * LANES) {
    VEC left[ROWS], right[ROWS];
    for (int r = 0; r < rows; r++) left[r] = *(const VEC *)(y[r] + c), right[r] = *(const VEC *)(y[r] + c + LANES);
    for (int64_t k = 0; k < terms; k++) {
      const VEC a = *(const VEC *)(x + k * width + c), b = *(const VEC *)(x + k * width + c + LANES);
      for (int r = 0; r < rows; r++) left[r] -= a * f[r][k], right[r] -= b * f[r][k];
    }
    for (int r = 0; r < rows; r++) *(VEC *)(y[r] + c) = left[r], *(VEC *)(y[r] + c + LANES) = right[r];
  }
  for (int r = 0; r < rows && c < to; r++)
    for (int64_t k = 0; k < terms; k++) NAME(subtract)(y[r] + c, x + k * width + c, f[r][k], to - c);
}

INLINE void NAME(update)(int64_t rows, REAL *const *y, const REAL *const *f, const REAL *x, int64_t width, int64_t terms, int64_t from,
                         int64_t to) {
  if (rows == ROWS) NAME(update_rows)(ROWS, y, f, x, width, terms, from, to);
  else
    for (int64_t r = 0; r < rows; r++) NAME(update_rows)(1, y + r, f + r, x, width, terms, from, to);
}

/* The place, from the j-th on, of the row with the largest number in column j; NaN counts as infinite. */
INLINE int64_t NAME(largest)(const REAL *w, int64_t width, const WHOLE *order, int64_t j, int64_t n) {
  REAL best = -1;
  int64_t from = j;
  for (int64_t s = j; s < n; s++) {
    REAL size = w[order[s] * width + j] < 0 ? -w[order[s] * width + j] : w[order[s] * width + j];
    size = size == size ? size : (REAL)__builtin_inf();
    if (size > best) best = size, from = s;
  }
  return from;
}

/* Columns j0 to j1 of all that is left, and U's part in them: row j of U is in the panel's row j - j0. */
INLINE void NAME(lu_panel)(REAL *w, REAL *panel, WHOLE *order, int64_t j0, int64_t j1, int64_t n) {
  const int64_t width = n + MATRICES_PAD;
  for (int64_t j = j0; j < j1; j++) {
    const int64_t from = NAME(largest)(w, width, order, j, n);
    const WHOLE p = order[from];
    order[from] = order[j], order[j] = p;
    REAL *row = panel + (j - j0) * width;
    const REAL head = w[p * width + j] == 0 ? 1 : w[p * width + j];
    for (int64_t c = j + 1; c < j1; c++) row[c] = w[p * width + c] / head;
    for (int64_t s = j + 1; s < n; s++)
      for (int64_t c = j + 1; c < j1; c++) w[order[s] * width + c] -= row[c] * w[order[s] * width + j];
  }
}

/* Rows stay where they are, w has what is left of them; order: which row LAPACK's swaps put at each place, pivots first.  What is right
 * of a panel of columns takes all of its pivots at once. */
INLINE void NAME(lu_alone)(const matrices_job *job, int64_t matrix, REAL *w) {
  const int64_t n = job->n, at = matrix * n * n, width = n + MATRICES_PAD;
  const REAL *x = (const REAL *)job->a + at;
  REAL *panel = w + n * width, *l = job->y ? (REAL *)job->y + at : NULL, *u = job->u ? (REAL *)job->u + at : NULL;
  WHOLE *order = (WHOLE *)(panel + MATRICES_PANEL * width);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t c = 0; c < n; c++) w[i * width + c] = x[i * n + c];
    order[i] = (WHOLE)i;
  }
  for (int64_t j0 = 0, j1; j0 < n; j0 = j1) {
    j1 = j0 + MATRICES_PANEL < n ? j0 + MATRICES_PANEL : n;
    NAME(lu_panel)(w, panel, order, j0, j1, n);
    for (int64_t j = j0; j < j1; j++) {
      REAL *left = w + order[j] * width, *row = panel + (j - j0) * width;
      const REAL head = left[j] == 0 ? 1 : left[j], *factors = left + j0;
      NAME(update)(1, &left, &factors, panel, width, j - j0, j1, n);
      for (int64_t c = j1; c < n; c++) row[c] = left[c] / head;
      for (int64_t c = 0; c < n && u; c++) u[j * n + c] = c < j ? 0 : c == j ? 1 : row[c];
    }
    for (int64_t s = j1; s < n; s += ROWS) {
      REAL *y[ROWS];
      const REAL *f[ROWS];
      const int64_t rows = n - s < ROWS ? n - s : ROWS;
      for (int64_t r = 0; r < rows; r++) y[r] = w + order[s + r] * width, f[r] = y[r] + j0;
      NAME(update)(rows, y, f, panel, width, j1 - j0, j1, n);
    }
  }
  for (int64_t s = 0; s < n; s++) {
    for (int64_t c = 0; c < n && l; c++) l[order[s] * n + c] = c > s ? 0 : w[order[s] * width + c];
    if (job->pivots) job->pivots[matrix * n + s] = order[s];
  }
}

INLINE void NAME(cholesky_alone)(const matrices_job *job, int64_t matrix) {
  const int64_t n = job->n;
  const REAL *x = (const REAL *)job->a + matrix * n * n;
  REAL *y = (REAL *)job->y + matrix * n * n;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < i; j++) y[i * n + j] = (x[i * n + j] - NAME(dot)(y + i * n, y + j * n, j)) / y[j * n + j];
    y[i * n + i] = ROOT(x[i * n + i] - NAME(dot)(y + i * n, y + i * n, i));
    for (int64_t j = i + 1; j < n; j++) y[i * n + j] = 0;
  }
}

/* A single right-hand side. */
INLINE void NAME(triangular_single)(const matrices_job *job, const REAL *a, const REAL *x, REAL *y) {
  const int64_t n = job->n;
  for (int64_t t = 0; t < n; t++) {
    const int64_t i = job->upper ? n - 1 - t : t, first = job->upper ? i + 1 : 0, last = job->upper ? n : i;
    y[i] = x[i] - NAME(dot)(a + i * n + first, y + first, last - first);
    if (!job->unit) y[i] /= a[i * n + i];
  }
}

/* A piece of the columns, in scratch until all rows are there: a few rows take what is solved, then one another. */
INLINE void NAME(triangular_alone)(const matrices_job *job, int64_t matrix, int64_t from, int64_t to, REAL *piece) {
  const int64_t n = job->n, columns = job->columns, width = MATRICES_COLUMNS;
  const REAL *a = (const REAL *)job->a + matrix * n * n, *x = (const REAL *)job->x + matrix * n * columns;
  REAL *y = (REAL *)job->y + matrix * n * columns;
  if (columns == 1) {
    NAME(triangular_single)(job, a, x, y);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = from; c < to; c++) piece[i * width + c - from] = x[i * columns + c];
  for (int64_t t = 0; t < n; t += ROWS) {
    REAL *rows[ROWS];
    const REAL *f[ROWS];
    const int64_t count = n - t < ROWS ? n - t : ROWS, solved = job->upper ? n - t : 0;
    for (int64_t r = 0; r < count; r++) {
      const int64_t i = job->upper ? n - 1 - t - r : t + r;
      rows[r] = piece + i * width, f[r] = a + i * n + solved;
    }
    NAME(update)(count, rows, f, piece + solved * width, width, t, 0, to - from);
    for (int64_t r = 0; r < count; r++) {
      const int64_t i = job->upper ? n - 1 - t - r : t + r;
      for (int64_t q = 0; q < r; q++) NAME(subtract)(rows[r], rows[q], a[i * n + (job->upper ? n - 1 - t - q : t + q)], to - from);
      for (int64_t c = 0; c < to - from && !job->unit; c++) rows[r][c] /= a[i * n + i];
    }
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = from; c < to; c++) y[i * columns + c] = piece[i * width + c - from];
}

TARGET static void NAME(alone)(const matrices_job *job, int64_t matrix, int64_t from, int64_t to, void *scratch) {
  if (job->kind == MATRICES_LU) NAME(lu_alone)(job, matrix, scratch);
  else if (job->kind == MATRICES_CHOLESKY) NAME(cholesky_alone)(job, matrix);
  else NAME(triangular_alone)(job, matrix, from, to, scratch);
}

static const matrices_routines NAME(routines) = {LANES, NAME(tile), NAME(alone)};

#undef VEC
#undef MASK
#undef LANES
#undef ROWS
#undef INLINE
#undef ROOT
#undef REAL
#undef WHOLE
#undef VECTOR_BYTES
#undef TARGET
#undef NAME
