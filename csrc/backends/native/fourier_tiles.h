/* Fourier transforms of a tile: included once for each element type and instruction set by fourier_kernels.c, which defines REAL,
 * VECTOR_BYTES, TARGET and NAME(x); LINES where no tile is to be transformed. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) NAME(index);
typedef NAME(index) NAME(places) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(REAL) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE void NAME(turn)(VEC *re, VEC *im, const REAL *w) {
  VEC x = *re, y = *im;
  *re = x * w[0] - y * w[1], *im = x * w[1] + y * w[0];
}

#ifndef LINES
/* ---- sums of a few numbers ---- */

INLINE void NAME(sum_two)(VEC *re, VEC *im) {
  VEC x = re[0], y = im[0];
  re[0] = x + re[1], im[0] = y + im[1], re[1] = x - re[1], im[1] = y - im[1];
}

INLINE void NAME(sum_four)(VEC *re, VEC *im) {
  VEC ar = re[0] + re[2], ai = im[0] + im[2], br = re[0] - re[2], bi = im[0] - im[2];
  VEC cr = re[1] + re[3], ci = im[1] + im[3], dr = re[1] - re[3], di = im[1] - im[3];
  re[0] = ar + cr, im[0] = ai + ci, re[2] = ar - cr, im[2] = ai - ci;
  re[1] = br + di, im[1] = bi - dr, re[3] = br - di, im[3] = bi + dr;
}

INLINE void NAME(sum_eight)(VEC *re, VEC *im) {
  const REAL half = (REAL)0.70710678118654752440;
  VEC ur[4], ui[4], vr[4], vi[4];
  UNROLL for (int j = 0; j < 4; j++) {
    ur[j] = re[j] + re[j + 4], ui[j] = im[j] + im[j + 4];
    vr[j] = re[j] - re[j + 4], vi[j] = im[j] - im[j + 4];
  }
  VEC x = vr[1], y = vi[1];
  vr[1] = (x + y) * half, vi[1] = (y - x) * half;
  x = vr[2], vr[2] = vi[2], vi[2] = -x;
  x = vr[3], y = vi[3];
  vr[3] = (y - x) * half, vi[3] = (-x - y) * half;
  NAME(sum_four)(ur, ui), NAME(sum_four)(vr, vi);
  UNROLL for (int j = 0; j < 4; j++) re[2 * j] = ur[j], im[2 * j] = ui[j], re[2 * j + 1] = vr[j], im[2 * j + 1] = vi[j];
}

/* An odd number of them: the j-th and the j-th from behind turn alike. */
INLINE void NAME(sum_odd)(int r, VEC *re, VEC *im, const REAL *turns) {
  VEC sr[FOURIER_RADIX / 2 + 1], si[FOURIER_RADIX / 2 + 1], dr[FOURIER_RADIX / 2 + 1], di[FOURIER_RADIX / 2 + 1], x = re[0], y = im[0];
  VEC total_re = x, total_im = y;
  UNROLL for (int j = 1; j <= r / 2; j++) {
    sr[j] = re[j] + re[r - j], si[j] = im[j] + im[r - j], dr[j] = re[j] - re[r - j], di[j] = im[j] - im[r - j];
    total_re += sr[j], total_im += si[j];
  }
  UNROLL for (int k = 1; k <= r / 2; k++) {
    VEC pr = x, pi = y, qr = {0}, qi = {0};
    UNROLL for (int j = 1; j <= r / 2; j++) {
      REAL c = turns[2 * (j * k % r)], s = -turns[2 * (j * k % r) + 1];
      pr += sr[j] * c, pi += si[j] * c, qr += dr[j] * s, qi += di[j] * s;
    }
    re[k] = pr + qi, im[k] = pi - qr, re[r - k] = pr - qi, im[r - k] = pi + qr;
  }
  re[0] = total_re, im[0] = total_im;
}

INLINE void NAME(sum)(int r, VEC *re, VEC *im, const REAL *turns) {
  if (r == 2) NAME(sum_two)(re, im);
  else if (r == 4) NAME(sum_four)(re, im);
  else if (r == 8) NAME(sum_eight)(re, im);
  else NAME(sum_odd)(r, re, im, turns);
}

/* ---- steps ---- */

/* Blocks of r m numbers: the digit of the result that r stands for goes before the others.  turned: the same the other way round, as the
 * transposed matrix is a product of transposed steps. */
INLINE void NAME(step)(int r, bool turned, VEC *z, int64_t blocks, int64_t m, const REAL *w, const REAL *turns) {
  for (int64_t b = 0; b < blocks; b++, z += 2 * r * m)
    for (int64_t p = 0; p < m; p++) {
      VEC re[FOURIER_RADIX], im[FOURIER_RADIX], *at = z + 2 * p;
      UNROLL for (int j = 0; j < r; j++) re[j] = at[2 * m * j], im[j] = at[2 * m * j + 1];
      const REAL *own = w + 2 * (r - 1) * p - 2;
      if (p && turned) UNROLL for (int j = 1; j < r; j++) NAME(turn)(re + j, im + j, own + 2 * j);
      NAME(sum)(r, re, im, turns);
      if (p && !turned) UNROLL for (int j = 1; j < r; j++) NAME(turn)(re + j, im + j, own + 2 * j);
      UNROLL for (int j = 0; j < r; j++) at[2 * m * j] = re[j], at[2 * m * j + 1] = im[j];
    }
}

#define STEP(r)                                                                     \
  case r:                                                                           \
    return turned ? NAME(step)(r, true, z, blocks, m, w, turns) : NAME(step)(r, false, z, blocks, m, w, turns);
TARGET static void NAME(any_step)(int r, bool turned, VEC *z, int64_t blocks, int64_t m, const REAL *w, const REAL *turns) {
  switch (r) {
    STEP(2)
    STEP(3)
    STEP(4)
    STEP(5)
    STEP(7)
    STEP(8)
    STEP(11)
    STEP(13)
  }
}
#undef STEP

enum { NAME(NEAR_ROWS) = 24576 / (2 * VECTOR_BYTES) /* of a tile that stay in the first cache */ };

/* All steps from one on: block by block until blocks are small. */
TARGET static void NAME(steps)(const fourier_plan *plan, bool turned, VEC *z, int first, int64_t blocks, int64_t n) {
  if (first == plan->n_factors) return;
  const int r = plan->factors[first];
  const int64_t m = n / r;
  if (!turned) NAME(any_step)(r, false, z, blocks, m, plan->twiddles[first], plan->turns[first]);
  if (m <= NAME(NEAR_ROWS) && blocks * n <= NAME(NEAR_ROWS)) NAME(steps)(plan, turned, z, first + 1, blocks * r, m);
  else
    for (int64_t b = 0; b < blocks * r; b++) NAME(steps)(plan, turned, z + 2 * b * m, first + 1, 1, m);
  if (turned) NAME(any_step)(r, true, z, blocks, m, plan->twiddles[first], plan->turns[first]);
}

#endif

/* ---- convolutions ---- */

TARGET static void NAME(chirp)(const fourier_plan *plan, VEC *z, bool swaps) {
  const REAL *c = plan->chirp;
  for (int64_t k = 0; k < plan->n; k++) {
    VEC re = z[2 * k + swaps], im = z[2 * k + 1 - swaps];
    NAME(turn)(&re, &im, c + 2 * k);
    z[2 * k] = re, z[2 * k + 1] = im;
  }
}

/* Parts change places, since what follows is to turn the other way. */
TARGET static void NAME(convolve)(const fourier_plan *plan, void *tile) {
  const REAL *s = plan->spectrum;
  VEC *z = tile;
  for (int64_t k = 0; k < plan->length; k++) {
    VEC re = z[2 * k], im = z[2 * k + 1];
    NAME(turn)(&re, &im, s + 2 * k);
    z[2 * k] = im, z[2 * k + 1] = re;
  }
}

TARGET static void NAME(chirp_first)(const fourier_plan *plan, VEC *z) {
  NAME(chirp)(plan, z, false);
  memset(z + 2 * plan->n, 0, (size_t)(plan->length - plan->n) * 2 * sizeof *z);
}

#ifndef LINES
TARGET static void NAME(transform)(const fourier_plan *plan, VEC *z) {
  if (plan->chirp) NAME(chirp_first)(plan, z);
  NAME(steps)(plan, false, z, 0, 1, plan->length);
  if (!plan->chirp) return;
  NAME(convolve)(plan, z);
  NAME(steps)(plan, true, z, 0, 1, plan->length);
  NAME(chirp)(plan, z, true);
}
#endif

/* ---- real numbers ---- */

static bool NAME(pairs)(const fourier_job *job) { return job->kind != FOURIER_COMPLEX && job->plan->n != job->size; }

/* From a transform of pairs to that of real numbers and back: numbers k and half - k, for which the turn is e^(+-2 pi i k/size).
 * `before` and `behind`: where they lie. */
INLINE void NAME(untangle)(VEC *z, const int64_t *before, const int64_t *behind, const REAL *w, bool back, REAL scale) {
  VEC ar = z[2 * before[0]], ai = z[2 * before[0] + 1], br = z[2 * before[1]], bi = z[2 * before[1] + 1];
  VEC sr = ar + br, si = ai - bi, dr = ar - br, di = ai + bi;
  VEC tr = back ? -(w[0] * di + w[1] * dr) : w[0] * di - w[1] * dr, ti = back ? w[0] * dr - w[1] * di : -(w[0] * dr + w[1] * di);
  int first = back; /* what follows turns the other way */
  z[2 * behind[1] + first] = (sr - tr) * scale, z[2 * behind[1] + 1 - first] = (ti - si) * scale;
  z[2 * behind[0] + first] = (sr + tr) * scale, z[2 * behind[0] + 1 - first] = (si + ti) * scale;
}

static int64_t NAME(place)(const fourier_plan *plan, int64_t k) { return plan->chirp ? k : plan->places[k]; }

/* The spectrum of real numbers, from that of their pairs. */
TARGET static void NAME(spread_real)(const fourier_job *job, VEC *z, bool in_order) {
  const int64_t half = job->plan->n;
  for (int64_t k = 0; k <= half / 2; k++) {
    int64_t at[3] = {k, half - k, k ? half - k : 0};
    for (int j = 0; j < 3 && !in_order; j++) at[j] = NAME(place)(job->plan, at[j]);
    NAME(untangle)(z, (int64_t[]){at[0], at[2]}, at, (const REAL *)job->half_turns + 2 * k, false, (REAL)0.5);
  }
}

/* What a real result sees of the numbers given: those up to the middle one, which the others mirror. */
TARGET static void NAME(fold_spectrum)(const fourier_job *job, VEC *z) {
  const REAL im = job->conjugate ? -1 : 1, half = (REAL)0.5;
  z[1] = (VEC){0};
  if (job->size % 2 == 0) z[job->size + 1] = (VEC){0};
  for (int64_t k = 1; 2 * k < job->size && job->whole; k++) {
    const VEC *mirrored = z + 2 * (job->size - k);
    z[2 * k] = (z[2 * k] + mirrored[0]) * half, z[2 * k + 1] = (z[2 * k + 1] - mirrored[1]) * (im * half);
  }
  for (int64_t k = 1; 2 * k < job->size && !job->whole && (job->halves || job->conjugate); k++)
    z[2 * k] *= job->halves ? half : 1, z[2 * k + 1] *= job->halves ? im * half : im;
}

/* Ready for a transform that is to turn the other way: parts change places. */
TARGET static void NAME(gather_real)(const fourier_job *job, VEC *z) {
  const int64_t half = job->size / 2;
  NAME(fold_spectrum)(job, z);
  if (NAME(pairs)(job)) {
    for (int64_t k = 0; k <= half / 2; k++)
      NAME(untangle)(z, (int64_t[]){k, half - k}, (int64_t[]){k, half - k}, (const REAL *)job->half_turns + 2 * k, true, 1);
    return;
  }
  for (int64_t k = 0; k <= half; k++) {
    VEC re = z[2 * k], im = z[2 * k + 1];
    z[2 * k] = im, z[2 * k + 1] = re;
    if (k) z[2 * (job->size - k)] = -im, z[2 * (job->size - k) + 1] = re;
  }
}

/* ---- memory ---- */

/* Element k of lane l moves to element l of lane k. */
INLINE void NAME(transpose)(VEC *v) {
  UNROLL for (int h = 1; h < LANES; h *= 2) {
    NAME(places) low = {0}, high = {0}; /* of what begins undefined gcc sees no constant */
    UNROLL for (int l = 0; l < LANES; l++) low[l] = l & h ? LANES + l - h : l, high[l] = l & h ? LANES + l : l + h;
    UNROLL for (int k = 0; k < LANES; k++) {
      if (k & h) continue;
      VEC a = v[k], b = v[k + h];
      v[k] = __builtin_shuffle(a, b, low), v[k + h] = __builtin_shuffle(a, b, high);
    }
  }
}

typedef struct {
  int64_t at[NAME(LANES)]; /* where lines begin */
  int lanes;               /* of them, others repeat the last */
  bool adjacent;           /* each begins a step behind the one before */
} NAME(lines);

static NAME(lines) NAME(find_lines)(const fourier_job *job, const fourier_view *view, int64_t tile) {
  NAME(lines) found = {.adjacent = true};
  const int64_t first = tile * LANES, left = job->lines - first;
  found.lanes = left < LANES ? (int)left : LANES;
  for (int l = 0; l < LANES; l++) {
    const int64_t line = first + (l < found.lanes ? l : found.lanes - 1);
    found.at[l] = line / job->inner * view->outer + line % job->inner * view->lane;
    found.adjacent &= l < found.lanes && found.at[l] == found.at[0] + l * view->lane;
  }
  return found;
}

INLINE VEC NAME(collect)(const REAL *x, const NAME(lines) *lines) {
  VEC v;
  for (int l = 0; l < LANES; l++) v[l] = x[lines->at[l]];
  return v;
}

INLINE void NAME(deal)(REAL *y, const NAME(lines) *lines, VEC v) {
  for (int l = 0; l < lines->lanes; l++) y[lines->at[l]] = v[l];
}

/* A vector of every other number from x on, and of those behind them. */
INLINE void NAME(part)(const REAL *x, VEC *even, VEC *odd) {
  VEC a = *(const VEC *)x, b = *(const VEC *)(x + LANES);
  NAME(places) evens = {0}, odds = {0};
  UNROLL for (int l = 0; l < LANES; l++) evens[l] = 2 * l, odds[l] = 2 * l + 1;
  *even = __builtin_shuffle(a, b, evens), *odd = __builtin_shuffle(a, b, odds);
}

INLINE void NAME(weave)(REAL *y, VEC even, VEC odd) {
  NAME(places) low = {0}, high = {0};
  UNROLL for (int l = 0; l < LANES; l++) low[l] = l / 2 + (l & 1) * LANES, high[l] = LANES / 2 + l / 2 + (l & 1) * LANES;
  *(VEC *)y = __builtin_shuffle(even, odd, low), *(VEC *)(y + LANES) = __builtin_shuffle(even, odd, high);
}

/* Vectors of each line on their way.  Lines often begin a page apart, or nearly: visited in turn they push each other out of the first
 * cache, so each visit moves some vectors. */
enum { NAME(VISIT) = 4 };
typedef struct {
  _Alignas(VECTOR_BYTES) VEC v[NAME(LANES)][NAME(VISIT) + 1];
} NAME(visits);

INLINE int NAME(visit)(int64_t vectors) { return vectors < NAME(VISIT) ? (int)vectors : NAME(VISIT); }

INLINE void NAME(move)(VEC *to, const VEC *from, int vectors) {
  if (vectors == NAME(VISIT)) UNROLL for (int d = 0; d < NAME(VISIT); d++) to[d] = from[d];
  else for (int d = 0; d < vectors; d++) to[d] = from[d];
}

/* Rows of a tile from `count` numbers of each line. */
TARGET static void NAME(load)(const fourier_view *v, int64_t count, const REAL *x, const NAME(lines) *lines, bool swaps, VEC *z) {
  int64_t k = 0;
  const int re = swaps, im = 1 - swaps;
  const int64_t together = v->imaginary ? LANES / 2 : LANES; /* numbers in a vector of a line */
  if (LANES > 1 && v->step == (v->imaginary ? 2 : 1) && v->imaginary < 2)
    while (k + together <= count) {
      const int vectors = NAME(visit)((count - k) / together);
      NAME(visits) some;
      for (int l = 0; l < LANES; l++) NAME(move)(some.v[l], (const VEC *)(x + lines->at[l] + k * v->step), vectors);
      for (int d = 0; d < vectors; d++, k += together) {
        VEC t[LANES];
        UNROLL for (int l = 0; l < LANES; l++) t[l] = some.v[l][d];
        NAME(transpose)(t);
        if (v->imaginary) UNROLL for (int j = 0; j < LANES / 2; j++) z[2 * (k + j) + re] = t[2 * j], z[2 * (k + j) + im] = t[2 * j + 1];
        else UNROLL for (int j = 0; j < LANES; j++) z[2 * (k + j) + re] = t[j], z[2 * (k + j) + im] = (VEC){0};
      }
    }
  else if (LANES > 1 && lines->adjacent && v->lane == 2 && v->imaginary == 1)
    for (; k < count; k++) NAME(part)(x + lines->at[0] + k * v->step, z + 2 * k + re, z + 2 * k + im);
  else if (LANES > 1 && lines->adjacent && v->lane == 1)
    for (; k < count; k++) {
      const REAL *at = x + lines->at[0] + k * v->step;
      z[2 * k + re] = *(const VEC *)at, z[2 * k + im] = v->imaginary ? *(const VEC *)(at + v->imaginary) : (VEC){0};
    }
  for (; k < count; k++) {
    z[2 * k + re] = NAME(collect)(x + k * v->step, lines);
    z[2 * k + im] = v->imaginary ? NAME(collect)(x + k * v->step + v->imaginary, lines) : (VEC){0};
  }
}

/* Result k: of a tile in order or by the plan's places. */
typedef struct {
  const fourier_job *job;
  const int64_t *places; /* NULL: in order */
  const VEC *z, *turned; /* turned: numbers by which results are multiplied */
  bool swaps, mirrors;   /* mirrors: numbers behind the middle one are conjugates of those before it */
  bool conjugate;
} NAME(results);

INLINE void NAME(fetch)(const NAME(results) *from, int64_t k, VEC *re, VEC *im) {
  const fourier_job *job = from->job;
  const bool mirrored = from->mirrors && 2 * k > job->size;
  int64_t at = mirrored ? job->size - k : k;
  REAL scale = (REAL)(job->doubles && k && 2 * k != job->size ? 2 * job->scale : job->scale);
  if (from->places) at = from->places[at];
  *re = from->z[2 * at + from->swaps] * scale, *im = from->z[2 * at + 1 - from->swaps] * scale;
  if (mirrored != from->conjugate) *im = -*im;
  if (!from->turned) return;
  VEC x = *re, y = *im, wr = from->turned[2 * k], wi = from->turned[2 * k + 1];
  *re = x * wr - y * wi, *im = x * wi + y * wr;
}

/* The same where nothing is mirrored, doubled or turned: `imaginary` is `scale` with the sign of imaginary parts. */
INLINE void NAME(fetch_plain)(const NAME(results) *from, int64_t k, REAL scale, REAL imaginary, VEC *re, VEC *im) {
  const VEC *at = from->z + 2 * (from->places ? from->places[k] : k);
  *re = at[from->swaps] * scale, *im = at[1 - from->swaps] * imaginary;
}

/* As many results as make whole vectors of lines that lie in memory one number after another; returns how many. */
INLINE int64_t NAME(store_across)(const fourier_view *v, int64_t count, const NAME(results) *from, bool plain, REAL *y,
                                  const NAME(lines) *lines) {
  const int64_t together = v->imaginary ? LANES / 2 : LANES;
  const REAL scale = (REAL)from->job->scale, imaginary = from->conjugate ? -scale : scale;
  int64_t k = 0;
  while (k + together <= count) {
    const int vectors = NAME(visit)((count - k) / together);
    REAL *at = y + k * v->step;
    NAME(visits) some;
    for (int d = 0; d < vectors; d++, k += together) {
      VEC t[LANES], unused;
      if (v->imaginary)
        UNROLL for (int j = 0; j < LANES / 2; j++) {
          if (plain) NAME(fetch_plain)(from, k + j, scale, imaginary, t + 2 * j, t + 2 * j + 1);
          else NAME(fetch)(from, k + j, t + 2 * j, t + 2 * j + 1);
        }
      else
        UNROLL for (int j = 0; j < LANES; j++) {
          if (plain) NAME(fetch_plain)(from, k + j, scale, imaginary, t + j, &unused);
          else NAME(fetch)(from, k + j, t + j, &unused);
        }
      NAME(transpose)(t);
      UNROLL for (int l = 0; l < LANES; l++) some.v[l][d] = t[l];
    }
    for (int l = 0; l < lines->lanes; l++) NAME(move)((VEC *)(at + lines->at[l]), some.v[l], vectors);
  }
  return k;
}

TARGET static void NAME(store)(const fourier_view *v, int64_t count, const NAME(results) *from, REAL *y, const NAME(lines) *lines) {
  int64_t k = 0;
  const bool plain = !from->turned && !from->job->doubles && !(from->mirrors && 2 * (count - 1) > from->job->size);
  if (LANES > 1 && v->step == (v->imaginary ? 2 : 1) && v->imaginary < 2)
    k = plain ? NAME(store_across)(v, count, from, true, y, lines) : NAME(store_across)(v, count, from, false, y, lines);
  const bool adjacent = LANES > 1 && lines->adjacent, pairs = adjacent && v->lane == 2 && v->imaginary == 1,
             vectors = adjacent && v->lane == 1;
  for (; k < count; k++) {
    VEC re, im;
    REAL *at = y + k * v->step;
    NAME(fetch)(from, k, &re, &im);
    if (pairs) NAME(weave)(at + lines->at[0], re, im);
    else if (vectors) {
      *(VEC *)(at + lines->at[0]) = re;
      if (v->imaginary) *(VEC *)(at + lines->at[0] + v->imaginary) = im;
    } else {
      NAME(deal)(at, lines, re);
      if (v->imaginary) NAME(deal)(at + v->imaginary, lines, im);
    }
  }
}

/* ---- lines ---- */

/* The same numbers in pairs. */
static fourier_view NAME(paired)(fourier_view v) {
  return (fourier_view){.step = 2 * v.step, .imaginary = v.step, .lane = v.lane, .outer = v.outer, .count = v.count / 2};
}

static int64_t NAME(less)(int64_t a, int64_t b) { return a < b ? a : b; }

TARGET static void NAME(read)(const fourier_job *job, const REAL *x, int64_t tile, VEC *z) {
  const NAME(lines) lines = NAME(find_lines)(job, &job->in, tile);
  const bool pairs = NAME(pairs)(job) && job->kind == FOURIER_FROM_REAL;
  const int64_t all = job->kind == FOURIER_TO_REAL && !job->whole ? job->size / 2 + 1 : job->size, given = NAME(less)(job->in.count, all);
  const fourier_view view = pairs ? NAME(paired)(job->in) : job->in;
  int64_t rows = pairs ? given / 2 : given;
  NAME(load)(&view, rows, x, &lines, job->inverse && job->kind == FOURIER_COMPLEX, z);
  if (pairs && given % 2) z[2 * rows] = NAME(collect)(x + (given - 1) * job->in.step, &lines), z[2 * rows++ + 1] = (VEC){0};
  const int64_t wanted = pairs ? job->plan->n : all;
  if (rows < wanted) memset(z + 2 * rows, 0, (size_t)(wanted - rows) * 2 * sizeof *z);
  if (job->kind == FOURIER_TO_REAL) NAME(gather_real)(job, z);
}

/* in_order: what the transform left needs no places. */
TARGET static void NAME(write)(const fourier_job *job, VEC *z, REAL *y, int64_t tile, bool in_order) {
  const NAME(lines) lines = NAME(find_lines)(job, &job->out, tile);
  const bool pairs = NAME(pairs)(job), real = job->kind == FOURIER_TO_REAL, from_real = job->kind == FOURIER_FROM_REAL;
  if (pairs && from_real) NAME(spread_real)(job, z, in_order);
  const int64_t made = NAME(less)(job->out.count, job->doubles ? job->size / 2 + 1 : job->size);
  NAME(results) from = {.job = job, .places = in_order || job->plan->chirp ? NULL : job->plan->places, .z = z,
                        .swaps = real || (job->inverse && !from_real), .mirrors = pairs && from_real, .conjugate = job->conjugate && !real};
  if (job->twiddles) from.turned = (const VEC *)job->twiddles + 2 * tile * job->plan->n;
  const fourier_view view = pairs && real ? NAME(paired)(job->out) : job->out;
  NAME(store)(&view, pairs && real ? made / 2 : made, &from, y, &lines);
  if (pairs && real && made % 2) {
    VEC re, im;
    NAME(fetch)(&from, made / 2, &re, &im);
    NAME(deal)(y + (made - 1) * job->out.step, &lines, re);
  }
  for (int64_t k = made; k < job->out.count; k++) {
    NAME(deal)(y + k * job->out.step, &lines, (VEC){0});
    if (job->out.imaginary) NAME(deal)(y + k * job->out.step + job->out.imaginary, &lines, (VEC){0});
  }
}

#ifdef LINES
#define TILE NULL
#else
#define TILE NAME(tile)
TARGET static void NAME(tile)(const fourier_job *job, const void *x, void *y, int64_t tile, void *scratch) {
  VEC *z = scratch;
  NAME(read)(job, x, tile, z);
  NAME(transform)(job->plan, z);
  NAME(write)(job, z, y, tile, false);
}
#endif

TARGET static void NAME(open)(const fourier_job *job, const void *x, int64_t line, void *z) {
  NAME(read)(job, x, line, z);
  if (job->plan->chirp) NAME(chirp_first)(job->plan, z);
}

TARGET static void NAME(close)(const fourier_job *job, void *z, void *y, int64_t line) {
  if (job->plan->chirp) NAME(chirp)(job->plan, z, true);
  NAME(write)(job, z, y, line, true);
}

static const fourier_routines NAME(routines) = {NAME(LANES), TILE, NAME(open), NAME(convolve), NAME(close)};

#undef TILE
#undef INLINE
#undef LANES
#undef VEC
#undef NAME
#undef TARGET
#undef VECTOR_BYTES
#undef REAL
