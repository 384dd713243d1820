/* LU, Cholesky's factor and triangular systems: included once for each element type and instruction set by matrices_kernels.c, which
 * defines REAL, WHOLE (integers of that size), VECTOR_BYTES, TARGET and NAME(x). */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef WHOLE NAME(mask) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(REAL) };
#define VEC NAME(vec)
#define MASK NAME(mask)
#define LANES NAME(LANES)
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

/* Rows stay where they are, w has what is left of them; order: which row LAPACK's swaps put at each place, pivots first. */
INLINE void NAME(lu_alone)(const matrices_job *job, int64_t matrix, REAL *w) {
  const int64_t n = job->n, at = matrix * n * n;
  const REAL *x = (const REAL *)job->a + at;
  REAL *row = w + n * n, *l = job->y ? (REAL *)job->y + at : NULL, *u = job->u ? (REAL *)job->u + at : NULL;
  WHOLE *order = (WHOLE *)(row + n);
  for (int64_t e = 0; e < n * n; e++) w[e] = x[e];
  for (int64_t i = 0; i < n; i++) order[i] = (WHOLE)i;
  for (int64_t j = 0; j < n; j++) {
    REAL best = -1;
    int64_t from = j;
    for (int64_t s = j; s < n; s++) {
      REAL size = w[order[s] * n + j] < 0 ? -w[order[s] * n + j] : w[order[s] * n + j];
      size = size == size ? size : (REAL)__builtin_inf();
      if (size > best) best = size, from = s;
    }
    const WHOLE p = order[from];
    order[from] = order[j], order[j] = p;
    const REAL head = w[p * n + j] == 0 ? 1 : w[p * n + j];
    for (int64_t c = 0; c < n; c++) row[c] = c < j ? 0 : w[p * n + c] / head;
    row[j] = 1;
    for (int64_t s = j; s < n && l; s++) l[order[s] * n + j] = w[order[s] * n + j];
    for (int64_t c = j + 1; c < n && l; c++) l[p * n + c] = 0;
    for (int64_t s = j + 1; s < n; s++)
      NAME(subtract)(w + order[s] * n + j + 1, row + j + 1, w[order[s] * n + j], n - j - 1);
    for (int64_t c = 0; c < n && u; c++) u[j * n + c] = row[c];
    if (job->pivots) job->pivots[matrix * n + j] = p;
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

INLINE void NAME(triangular_alone)(const matrices_job *job, int64_t matrix, int64_t from, int64_t to) {
  const int64_t n = job->n, columns = job->columns;
  const REAL *a = (const REAL *)job->a + matrix * n * n, *x = (const REAL *)job->x + matrix * n * columns;
  REAL *y = (REAL *)job->y + matrix * n * columns;
  for (int64_t t = 0; t < n; t++) {
    const int64_t i = job->upper ? n - 1 - t : t, first = job->upper ? i + 1 : 0, last = job->upper ? n : i;
    REAL *row = y + i * columns;
    if (columns == 1) row[0] = x[i] - NAME(dot)(a + i * n + first, y + first, last - first);
    else
      for (int64_t c = from; c < to; c++) row[c] = x[i * columns + c];
    for (int64_t k = first; k < last && columns > 1; k++) NAME(subtract)(row + from, y + k * columns + from, a[i * n + k], to - from);
    for (int64_t c = from; c < to && !job->unit; c++) row[c] /= a[i * n + i];
  }
}

TARGET static void NAME(alone)(const matrices_job *job, int64_t matrix, int64_t from, int64_t to, void *scratch) {
  if (job->kind == MATRICES_LU) NAME(lu_alone)(job, matrix, scratch);
  else if (job->kind == MATRICES_CHOLESKY) NAME(cholesky_alone)(job, matrix);
  else NAME(triangular_alone)(job, matrix, from, to);
}

static const matrices_routines NAME(routines) = {LANES, NAME(tile), NAME(alone)};

#undef VEC
#undef MASK
#undef LANES
#undef INLINE
#undef ROOT
#undef REAL
#undef WHOLE
#undef VECTOR_BYTES
#undef TARGET
#undef NAME
