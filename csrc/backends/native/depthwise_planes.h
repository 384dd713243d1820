/* A plane with its filter, in vectors along rows: included once for each instruction set by depthwise_kernels.c, which defines
 * VECTOR_BYTES, TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float) };
typedef float NAME(half) __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(float)), may_alias));
typedef float NAME(quarter) __attribute__((vector_size(VECTOR_BYTES / 4), aligned(sizeof(float)), may_alias));
#define VEC NAME(vec)
#define HALF NAME(half)
#define QUARTER NAME(quarter)
#define LANES NAME(LANES)
#define ROWS DEPTHWISE_ROWS
#define INLINE TARGET static inline __attribute__((always_inline))

static const NAME(lane) NAME(numbers) = {LANE_NUMBERS};

/* ---- to and from rows ---- */

INLINE void NAME(copy)(const float *from, float *to, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) *(VEC *)(to + i) = *(const VEC *)(from + i);
  if (i == n) return;
  if (n >= LANES) {
    *(VEC *)(to + n - LANES) = *(const VEC *)(from + n - LANES);
  } else if (n >= LANES / 2) {
    HALF begin = *(const HALF *)from, end = *(const HALF *)(from + n - LANES / 2);
    *(HALF *)to = begin, *(HALF *)(to + n - LANES / 2) = end;
  } else if (n >= LANES / 4) {
    QUARTER begin = *(const QUARTER *)from, end = *(const QUARTER *)(from + n - LANES / 4);
    *(QUARTER *)to = begin, *(QUARTER *)(to + n - LANES / 4) = end;
  } else {
    for (; i < n; i++) to[i] = from[i];
  }
}

INLINE void NAME(pick)(const depthwise_axis *a, const float *row, int64_t begin, int64_t end, float *to, int64_t length) {
  for (int64_t q = 0; q < a->step; q++)
    for (int64_t i = begin; i < end; i++) {
      int64_t at = i * a->step + q + a->low;
      if (at >= 0 && at < a->read) to[q * length + i] = row[at];
    }
}

/* Rows of one or two vectors, every other place: the lanes of two loads that the residues want, and which of them there are. */
typedef struct {
  bool is_short;
  NAME(lane) from[2], there[2];
} NAME(picks);

TARGET static void NAME(choose_picks)(const depthwise_axis *a, NAME(picks) *p) {
  p->is_short = a->step == 2 && a->read >= LANES && a->read <= 2 * LANES && (a->read - a->low + 1) / 2 <= LANES;
  for (int q = 0; q < 2 && p->is_short; q++) {
    NAME(lane) at = NAME(numbers) * 2 + (int32_t)(q + a->low);
    p->there[q] = (at >= 0) & (at < (int32_t)a->read);
    p->from[q] = at + ((at >= LANES) & (int32_t)(2 * LANES - a->read));
  }
}

INLINE void NAME(part)(const float *from, float *evens, float *odds) {
  NAME(lane) even = NAME(numbers) * 2, odd = even + 1;
  VEC left = *(const VEC *)from, right = *(const VEC *)(from + LANES);
  *(VEC *)evens = __builtin_shuffle(left, right, even), *(VEC *)odds = __builtin_shuffle(left, right, odd);
}

/* Pairs of which both are there, from `begin` on, and how far it came.  The last vector may do some again. */
INLINE int64_t NAME(part_row)(const depthwise_axis *a, const float *row, int64_t begin, int64_t end, float *to, int64_t length) {
  int64_t i = begin, whole = (a->read - a->low) / 2 < end ? (a->read - a->low) / 2 : end;
  while (whole - i >= LANES) {
    NAME(part)(row + 2 * i + a->low, to + i, to + length + i);
    i += LANES;
    if (whole - i > 0 && whole - i < LANES && whole - begin >= LANES) i = whole - LANES;
  }
  return i;
}

/* A row, its residues apart.  All of `begin` to `end` read something, places beside them perhaps. */
INLINE void NAME(spread)(const depthwise_axis *a, const NAME(picks) *picks, const float *row, int64_t begin, int64_t end, float *to,
                         int64_t length) {
  if (a->step == 1) {
    if (begin < end) NAME(copy)(row + begin + a->low, to + begin, end - begin);
    return;
  }
  if (picks->is_short) {
    VEC left = *(const VEC *)row, right = *(const VEC *)(row + a->read - LANES);
    for (int q = 0; q < 2; q++) {
      VEC residue = __builtin_shuffle(left, right, picks->from[q]);
      *(VEC *)(to + q * length) = (VEC)((NAME(lane))residue & picks->there[q]);
    }
    return;
  }
  int64_t done = a->step == 2 ? NAME(part_row)(a, row, begin, end, to, length) : begin;
  NAME(pick)(a, row, 0, begin < end ? begin : end, to, length);
  NAME(pick)(a, row, done, end, to, length);
}

/* What the rows from `first` on of all phases read. */
TARGET static void NAME(open)(const depthwise_planes *job, const float *plane, int64_t first, int64_t rows, float *to) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  int64_t begin = x->low < 0 ? (x->step - 1 - x->low) / x->step : 0, end = (x->read - x->low + x->step - 1) / x->step;
  NAME(picks) picks;
  NAME(choose_picks)(x, &picks);
  if (end > job->pitch) end = job->pitch;
  for (int64_t q = 0; q < y->step; q++) {
    float *at = to + q * x->step * job->plane_length;
    int64_t row = first * y->step + q + y->low;
    for (int64_t k = 0; k < rows + y->span; k++, row += y->step, at += job->pitch) {
      if (row >= 0 && row < y->read) NAME(spread)(x, &picks, plane + row * x->read, begin, end, at, job->plane_length);
      else if (job->bands > 1) /* else it is zero still */
        for (int64_t r = 0; r < x->step; r++) memset(at + r * job->plane_length, 0, (size_t)job->pitch * sizeof(float));
    }
  }
}

INLINE void NAME(pair)(const float *even, const float *odd, float *to) {
  NAME(lane) low = (NAME(numbers) >> 1) + (NAME(numbers) & 1) * LANES, high = low + LANES / 2;
  VEC a = *(const VEC *)even, b = *(const VEC *)odd;
  *(VEC *)to = __builtin_shuffle(a, b, low), *(VEC *)(to + LANES) = __builtin_shuffle(a, b, high);
}

INLINE void NAME(pair_row)(const float *even, const float *odd, float *row, int64_t n) {
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) NAME(pair)(even + i / 2, odd + i / 2, row + i);
  if (i == n) return;
  VEC a = *(const VEC *)(even + i / 2), b = *(const VEC *)(odd + i / 2);
  NAME(lane) low = (NAME(numbers) >> 1) + (NAME(numbers) & 1) * LANES, behind = NAME(numbers) + (int32_t)(n - i - LANES);
  VEC begin = __builtin_shuffle(a, b, low);
  if (n - i >= LANES) {
    *(VEC *)(row + i) = begin;
    *(VEC *)(row + n - LANES) = __builtin_shuffle(a, b, (behind >> 1) + (behind & 1) * LANES);
  } else {
    float rest[LANES];
    *(VEC *)rest = begin;
    NAME(copy)(rest, row + i, n - i);
  }
}

/* Phases, `length` apart, into a row of n places. */
TARGET static void NAME(weave)(const float *from, int64_t phases, int64_t length, float *row, int64_t n) {
  if (phases == 1) NAME(copy)(from, row, n);
  else if (phases == 2 && n > 1) NAME(pair_row)(from, from + length, row, n);
  else
    for (int64_t q = 0; q < phases; q++)
      for (int64_t i = q; i < n; i += phases) row[i] = from[q * length + i / phases];
}

/* ---- what is made ---- */

/* s += taps that read m rows one behind another. */
INLINE void NAME(add)(VEC (*s)[2], int m, int vectors, int64_t apart, const float *at, int64_t pitch, const float *w) {
  UNROLL for (int k = 0; k < ROWS + m - 1; k++)
    UNROLL for (int v = 0; v < vectors; v++) {
      VEC x = *(const VEC *)(at + k * pitch + v * apart);
      UNROLL for (int r = 0; r < ROWS; r++)
        if (k >= r && k - r < m) s[r][v] += x * w[k - r];
    }
}

INLINE void NAME(tile)(const depthwise_group *g, int64_t n, const float *w, const float *at, int64_t pitch, float bias, int vectors,
                       int64_t apart, float *to, int64_t to_row, int64_t rows) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = (VEC){0} + bias;
  for (int64_t k = 0; k < n; k++, w += DEPTHWISE_RUN) {
    const float *x = at + g[k].at;
    switch (g[k].n) {
      case 1: NAME(add)(s, 1, vectors, apart, x, pitch, w); break;
      case 2: NAME(add)(s, 2, vectors, apart, x, pitch, w); break;
      case 3: NAME(add)(s, 3, vectors, apart, x, pitch, w); break;
      case 4: NAME(add)(s, 4, vectors, apart, x, pitch, w); break;
      case 5: NAME(add)(s, 5, vectors, apart, x, pitch, w); break;
      default: NAME(add)(s, DEPTHWISE_RUN, vectors, apart, x, pitch, w);
    }
  }
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < vectors; v++)
      if (r < rows) *(VEC *)(to + r * to_row + v * apart) = s[r][v];
}

/* Some rows of n places each; is_padded: there is room behind them, else they are no shorter than a vector, and the last one
 * does some places again. */
TARGET static void NAME(rows)(const depthwise_group *g, int64_t n_groups, const float *w, const float *at, int64_t pitch, float bias,
                              float *to, int64_t to_row, int64_t rows, int64_t n, bool is_padded, bool is_row) {
  int64_t i = 0;
  if (is_row) { /* alone: pieces of it take the places of rows */
    int64_t piece = n / (ROWS * LANES) * LANES;
    for (; i < piece; i += LANES) NAME(tile)(g, n_groups, w, at + i, piece, bias, 1, 0, to + i, piece, ROWS);
    i = ROWS * piece;
  }
  for (; n - i > LANES; i += 2 * LANES) {
    int64_t apart = !is_padded && n - i < 2 * LANES ? n - i - LANES : LANES;
    NAME(tile)(g, n_groups, w, at + i, pitch, bias, 2, apart, to + i, to_row, rows);
  }
  if (i >= n) return;
  if (!is_padded) i = n - LANES;
  NAME(tile)(g, n_groups, w, at + i, pitch, bias, 1, 0, to + i, to_row, rows);
}

/* What is read of the plane ahead, on its way while this one is computed. */
INLINE void NAME(fetch)(const float *from, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(from + i, 0, 2);
}

static int64_t NAME(padded)(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
static int64_t NAME(spread_length)(const depthwise_planes *job) { return job->y.step * job->x.step * job->plane_length + DEPTHWISE_LINE; }

/* A row of what is made of each phase, or of what is given. */
static int64_t NAME(line)(const depthwise_planes *job) { return NAME(padded)(depthwise_places(&job->x, 0)); }

static int64_t NAME(room)(const depthwise_planes *job) {
  int64_t rows = job->given ? job->band : ROWS, n = NAME(spread_length)(job) + depthwise_phases(&job->x) * rows * NAME(line)(job);
  return (n + job->n_groups * DEPTHWISE_RUN) * (int64_t)sizeof(float);
}

typedef struct {
  const depthwise_planes *job;
  float *spread, *woven, *w; /* of the thread */
  float *made;               /* of the plane */
  float bias;
  int64_t line, first, last; /* first, last: rows of a phase */
} NAME(unit);

/* Some rows of a phase of rows, all phases of columns. */
INLINE void NAME(phase)(const NAME(unit) *u, int64_t p, int64_t row, const int64_t *places) {
  const depthwise_axis *y = &u->job->y, *x = &u->job->x;
  const int64_t phases = depthwise_phases(x), rows = u->last - row < ROWS ? u->last - row : ROWS, *first = u->job->first + p * phases;
  const bool is_direct = x->phases == 1 && x->made >= LANES;
  const float *at = u->spread + (row - u->first) * u->job->pitch;
  float *to = u->made + (p + row * y->phases) * x->made;
  for (int64_t q = 0; q < phases; q++)
    NAME(rows)(u->job->groups + first[q], first[q + 1] - first[q], u->w + first[q] * DEPTHWISE_RUN, at, u->job->pitch, u->bias,
               is_direct ? to : u->woven + q * ROWS * u->line, is_direct ? y->phases * x->made : u->line, rows, places[q], !is_direct,
               y->made == 1 && y->taps == 1);
  for (int64_t r = 0; !is_direct && r < rows; r++)
    NAME(weave)(u->woven + r * u->line, x->phases, ROWS * u->line, to + r * y->phases * x->made, x->made);
}

TARGET static void NAME(make)(const depthwise_planes *job, int64_t unit, int64_t ahead, bool is_open, void *room) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  const int64_t plane = unit / job->bands, channel = plane % job->channels, size = y->read * x->read, n_groups = job->n_groups;
  const float *weights = job->weights + channel * y->taps * x->taps, *read = job->read + plane / job->each * size;
  const float *next = job->read + ahead / job->each * size;
  NAME(unit) u = {.job = job, .spread = (float *)room + job->shift, .made = job->made + plane * y->made * x->made,
                  .bias = job->bias ? job->bias[channel] : 0, .line = NAME(line)(job), .first = unit % job->bands * job->band};
  int64_t places[DEPTHWISE_PHASES], most = depthwise_places(y, 0) - u.first, fetched = size * (unit % job->bands) / job->bands, step = 0;
  u.woven = (float *)room + NAME(spread_length)(job), u.w = u.woven + depthwise_phases(x) * ROWS * u.line;
  for (int64_t k = 0; k < n_groups; k++)
    for (int r = 0; r < job->groups[k].n; r++) u.w[k * DEPTHWISE_RUN + r] = weights[job->groups[k].weight[r]];
  for (int64_t q = 0; q < depthwise_phases(x); q++) places[q] = depthwise_places(x, q);
  if (most > job->band) most = job->band;
  if (next != read) step = size / job->bands / ((most + ROWS - 1) / ROWS * depthwise_phases(y));
  if (!is_open) NAME(open)(job, read, u.first, most, u.spread);
  for (int64_t p = 0; p < depthwise_phases(y); p++) {
    const int64_t end = depthwise_places(y, p);
    u.last = end < u.first + job->band ? end : u.first + job->band;
    for (int64_t row = u.first; row < u.last; row += ROWS, fetched += step) {
      NAME(fetch)(next + fetched, step);
      NAME(phase)(&u, p, row, places);
    }
  }
}

/* ---- gradient of weights ---- */

/* Some groups of m taps, whose sums are in registers: of one group two for each tap, as each waits for the last addition. */
typedef struct {
  const depthwise_group *groups;
  const float *spread, *given;
  int64_t pitch, line, rows, n;
} NAME(strips);

/* s += some rows of what is given times the m rows that begin with each.  In the last vector of a row only `mask` counts. */
INLINE void NAME(multiply)(VEC (*s)[DEPTHWISE_RUN][2], int columns, int m, int rows, bool is_masked, NAME(lane) mask,
                           const depthwise_group *groups, const float *x, int64_t pitch, const float *g, int64_t line) {
  VEC given[ROWS];
  UNROLL for (int r = 0; r < rows; r++) given[r] = *(const VEC *)(g + r * line);
  UNROLL for (int c = 0; c < columns; c++)
    UNROLL for (int k = 0; k < rows + m - 1; k++) {
      VEC read = *(const VEC *)(x + groups[c].at + k * pitch);
      if (is_masked) read = (VEC)((NAME(lane))read & mask);
      UNROLL for (int r = 0; r < rows; r++)
        if (k >= r && k - r < m) s[c][k - r][columns == 1 ? r % 2 : 0] += read * given[r];
    }
}

INLINE void NAME(strip)(VEC (*s)[DEPTHWISE_RUN][2], int columns, int m, bool is_masked, NAME(lane) mask, const NAME(strips) *all,
                        int64_t i) {
  const float *x = all->spread + i, *g = all->given + i;
  int64_t r = 0;
  for (; r + ROWS <= all->rows; r += ROWS)
    NAME(multiply)(s, columns, m, ROWS, is_masked, mask, all->groups, x + r * all->pitch, all->pitch, g + r * all->line, all->line);
  for (; r < all->rows; r++)
    NAME(multiply)(s, columns, m, 1, is_masked, mask, all->groups, x + r * all->pitch, all->pitch, g + r * all->line, all->line);
}

INLINE void NAME(sum_groups)(int columns, int m, const NAME(strips) *all, float *to) {
  VEC s[DEPTHWISE_COLUMNS][DEPTHWISE_RUN][2];
  NAME(lane) mask = NAME(numbers) < (int32_t)(all->n % LANES);
  UNROLL for (int c = 0; c < columns; c++)
    UNROLL for (int k = 0; k < m; k++) s[c][k][0] = s[c][k][1] = (VEC){0};
  int64_t i = 0;
  if (m == 1 && all->rows == 1) { /* pieces of a row take the places of rows */
    int64_t piece = all->n / (ROWS * LANES) * LANES;
    for (; i < piece; i += LANES)
      NAME(multiply)(s, columns, m, ROWS, false, mask, all->groups, all->spread + i, piece, all->given + i, piece);
    i = ROWS * piece;
  }
  for (; i + LANES <= all->n; i += LANES) NAME(strip)(s, columns, m, false, mask, all, i);
  if (i < all->n) NAME(strip)(s, columns, m, true, mask, all, i);
  UNROLL for (int c = 0; c < columns; c++)
    UNROLL for (int k = 0; k < m; k++) {
      VEC sum = s[c][k][0] + s[c][k][1];
      UNROLL for (int h = LANES / 2; h; h /= 2) {
        NAME(lane) turned = (NAME(numbers) + h) % LANES;
        sum += __builtin_shuffle(sum, turned);
      }
      to[all->groups[c].weight[k]] = sum[0];
    }
}

/* Those of the first groups; how many groups. */
TARGET static int64_t NAME(sum_some)(const NAME(strips) *all, int64_t n, float *to) {
  const depthwise_group *g = all->groups;
  if (n >= DEPTHWISE_COLUMNS && g[0].n <= 3 && g[0].n == g[1].n && g[0].n == g[2].n) {
    if (g[0].n == 1) NAME(sum_groups)(DEPTHWISE_COLUMNS, 1, all, to);
    else if (g[0].n == 2) NAME(sum_groups)(DEPTHWISE_COLUMNS, 2, all, to);
    else NAME(sum_groups)(DEPTHWISE_COLUMNS, 3, all, to);
    return DEPTHWISE_COLUMNS;
  }
  switch (g[0].n) {
    case 1: NAME(sum_groups)(1, 1, all, to); break;
    case 2: NAME(sum_groups)(1, 2, all, to); break;
    case 3: NAME(sum_groups)(1, 3, all, to); break;
    case 4: NAME(sum_groups)(1, 4, all, to); break;
    case 5: NAME(sum_groups)(1, 5, all, to); break;
    default: NAME(sum_groups)(1, DEPTHWISE_RUN, all, to);
  }
  return 1;
}

TARGET static void NAME(sum)(const depthwise_planes *job, int64_t unit, int64_t ahead, bool is_open, void *room) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  const int64_t plane = unit / job->bands, band = unit % job->bands, first = band * job->band, line = NAME(line)(job), n = x->made;
  const int64_t rows = y->made - first < job->band ? y->made - first : job->band, read_size = y->read * x->read, made_size = y->made * n;
  float *spread = (float *)room + job->shift, *g = (float *)room + NAME(spread_length)(job), *to = job->parts + unit * y->taps * x->taps;
  const float *read = job->read + plane / job->each * read_size, *next = job->read + ahead / job->each * read_size;
  const float *given = job->given + plane * made_size + first * n;
  int64_t read_step = read_size / job->bands / job->n_groups, given_step = made_size / job->bands / job->n_groups;
  if (next == read) read_step = 0;
  if (ahead == plane) given_step = 0;
  if (!is_open) NAME(open)(job, read, first, rows, spread);
  for (int64_t r = 0; r < rows; r++) NAME(copy)(given + r * n, g + r * line, n);
  for (int64_t k = 0, some; k < job->n_groups; k += some) {
    NAME(strips) all = {job->groups + k, spread, g, job->pitch, line, rows, n};
    some = NAME(sum_some)(&all, job->n_groups - k, to);
    NAME(fetch)(next + read_size * band / job->bands + k * read_step, some * read_step);
    NAME(fetch)(job->given + ahead * made_size + first * n + k * given_step, some * given_step);
  }
}

static const depthwise_routines NAME(routines) = {LANES, NAME(room), NAME(make), NAME(sum)};

#undef VEC
#undef HALF
#undef QUARTER
#undef LANES
#undef ROWS
#undef INLINE
#undef LANE_NUMBERS
#undef VECTOR_BYTES
#undef TARGET
#undef NAME
