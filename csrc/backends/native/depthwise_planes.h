/* A plane with its filter, in vectors along rows: included once for each instruction set by depthwise_kernels.c, which defines
 * VECTOR_BYTES, TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float) };
typedef float NAME(half) __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(float)), may_alias));
#define VEC NAME(vec)
#define HALF NAME(half)
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

INLINE void NAME(part)(const float *from, float *evens, float *odds) {
  NAME(lane) even = NAME(numbers) * 2, odd = even + 1;
  VEC left = *(const VEC *)from, right = *(const VEC *)(from + LANES);
  *(VEC *)evens = __builtin_shuffle(left, right, even), *(VEC *)odds = __builtin_shuffle(left, right, odd);
}

/* Pairs of which both are there, and how many are done.  The last vector may do some again. */
INLINE int64_t NAME(part_row)(const depthwise_axis *a, const float *row, int64_t begin, int64_t end, float *to, int64_t length) {
  int64_t i = begin, whole = (a->read - a->low) / 2 < end ? (a->read - a->low) / 2 : end;
  if (a->low <= 0 && whole - begin < LANES && a->read - a->low <= 2 * LANES) { /* and zeros in front and behind */
    float line[2 * LANES] = {0};
    NAME(copy)(row, line - a->low, a->read);
    NAME(part)(line, to, to + length);
    return end;
  }
  while (whole - i >= LANES) {
    NAME(part)(row + 2 * i + a->low, to + i, to + length + i);
    i += LANES;
    if (whole - i > 0 && whole - i < LANES) i = whole - LANES;
  }
  return i;
}

/* A row, its residues apart.  All of `begin` to `end` read something, places beside them perhaps. */
INLINE void NAME(spread)(const depthwise_axis *a, const float *row, int64_t begin, int64_t end, float *to, int64_t length) {
  if (a->step == 1) {
    if (begin < end) NAME(copy)(row + begin + a->low, to + begin, end - begin);
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
  if (end > job->pitch) end = job->pitch;
  for (int64_t q = 0; q < y->step; q++) {
    float *at = to + q * x->step * job->plane_length;
    int64_t row = first * y->step + q + y->low;
    for (int64_t k = 0; k < rows + y->span; k++, row += y->step, at += job->pitch) {
      if (row >= 0 && row < y->read) NAME(spread)(x, plane + row * x->read, begin, end, at, job->plane_length);
      else
        for (int64_t r = 0; r < x->step; r++) memset(at + r * job->plane_length, 0, (size_t)job->pitch * sizeof(float));
    }
  }
}

INLINE void NAME(pair)(const float *even, const float *odd, float *to) {
  NAME(lane) low = NAME(numbers) / 2 + NAME(numbers) % 2 * LANES, high = low + LANES / 2;
  VEC a = *(const VEC *)even, b = *(const VEC *)odd;
  *(VEC *)to = __builtin_shuffle(a, b, low), *(VEC *)(to + LANES) = __builtin_shuffle(a, b, high);
}

INLINE void NAME(pair_row)(const float *even, const float *odd, float *row, int64_t n) {
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) NAME(pair)(even + i / 2, odd + i / 2, row + i);
  if (i == n) return;
  float rest[2 * LANES];
  NAME(pair)(even + i / 2, odd + i / 2, rest);
  NAME(copy)(rest, row + i, n - i);
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

INLINE void NAME(tile)(const depthwise_group *g, int64_t n, const float *w, const float *at, int64_t pitch, float bias, int vectors, int64_t apart,
                       float *to, int64_t to_row, int64_t rows) {
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
TARGET static void NAME(rows)(const depthwise_group *g, int64_t n_groups, const float *w, const float *at, int64_t pitch, float bias, float *to,
                              int64_t to_row, int64_t rows, int64_t n, bool is_padded, bool is_row) {
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

/* What the next unit reads, on its way while this one is computed. */
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
  float *to = u->made + (p + row * y->phases) * x->made;
  for (int64_t q = 0; q < phases; q++)
    NAME(rows)(u->job->groups + first[q], first[q + 1] - first[q], u->w + first[q] * DEPTHWISE_RUN, u->spread + (row - u->first) * u->job->pitch,
               u->job->pitch, u->bias, is_direct ? to : u->woven + q * ROWS * u->line, is_direct ? y->phases * x->made : u->line, rows, places[q],
               !is_direct, y->made == 1 && y->taps == 1);
  for (int64_t r = 0; !is_direct && r < rows; r++)
    NAME(weave)(u->woven + r * u->line, x->phases, ROWS * u->line, to + r * y->phases * x->made, x->made);
}

TARGET static void NAME(make)(const depthwise_planes *job, int64_t unit, void *room) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  const int64_t plane = unit / job->bands, channel = plane % job->channels, size = y->read * x->read, n_groups = job->n_groups;
  const float *weights = job->weights + channel * y->taps * x->taps, *read = job->read + plane * size;
  NAME(unit) u = {.job = job, .spread = (float *)room + job->shift, .made = job->made + plane * y->made * x->made, .bias = job->bias ? job->bias[channel] : 0,
                  .line = NAME(line)(job), .first = unit % job->bands * job->band};
  int64_t places[DEPTHWISE_PHASES], most = depthwise_places(y, 0) - u.first, fetched = size * (unit % job->bands) / job->bands, step = 0;
  u.woven = (float *)room + NAME(spread_length)(job), u.w = u.woven + depthwise_phases(x) * ROWS * u.line;
  for (int64_t k = 0; k < n_groups; k++)
    for (int r = 0; r < job->groups[k].n; r++) u.w[k * DEPTHWISE_RUN + r] = weights[job->groups[k].weight[r]];
  for (int64_t q = 0; q < depthwise_phases(x); q++) places[q] = depthwise_places(x, q);
  if (most > job->band) most = job->band;
  if (plane + 1 < job->planes) step = size / job->bands / ((most + ROWS - 1) / ROWS * depthwise_phases(y));
  NAME(open)(job, read, u.first, most, u.spread);
  for (int64_t p = 0; p < depthwise_phases(y); p++) {
    const int64_t end = depthwise_places(y, p);
    u.last = end < u.first + job->band ? end : u.first + job->band;
    for (int64_t row = u.first; row < u.last; row += ROWS, fetched += step) {
      NAME(fetch)(read + size + fetched, step);
      NAME(phase)(&u, p, row, places);
    }
  }
}

/* ---- gradient of weights ---- */

/* s += some rows of what is given times the m rows that begin with each.  In the last vector of a row only `mask` counts. */
INLINE void NAME(multiply)(VEC (*s)[2], int m, int rows, bool is_masked, NAME(lane) mask, const float *x, int64_t pitch, const float *g, int64_t line) {
  VEC given[ROWS];
  UNROLL for (int r = 0; r < rows; r++) given[r] = *(const VEC *)(g + r * line);
  UNROLL for (int k = 0; k < rows + m - 1; k++) {
    VEC read = *(const VEC *)(x + k * pitch);
    if (is_masked) read = (VEC)((NAME(lane))read & mask);
    UNROLL for (int r = 0; r < rows; r++)
      if (k >= r && k - r < m) s[k - r][r % 2] += read * given[r];
  }
}

INLINE void NAME(strip)(VEC (*s)[2], int m, bool is_masked, NAME(lane) mask, const float *x, int64_t pitch, const float *g, int64_t line, int64_t rows) {
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS) NAME(multiply)(s, m, ROWS, is_masked, mask, x + r * pitch, pitch, g + r * line, line);
  for (; r < rows; r++) NAME(multiply)(s, m, 1, is_masked, mask, x + r * pitch, pitch, g + r * line, line);
}

INLINE void NAME(sum_group)(int m, const int32_t *weight, const float *x, int64_t pitch, const float *g, int64_t line, int64_t rows, int64_t n, float *to) {
  VEC s[DEPTHWISE_RUN][2];
  NAME(lane) mask = NAME(numbers) < (int32_t)(n % LANES);
  UNROLL for (int k = 0; k < m; k++) s[k][0] = s[k][1] = (VEC){0};
  int64_t i = 0;
  if (m == 1 && rows == 1) { /* pieces of a row take the places of rows */
    int64_t piece = n / (ROWS * LANES) * LANES;
    for (; i < piece; i += LANES) NAME(multiply)(s, m, ROWS, false, mask, x + i, piece, g + i, piece);
    i = ROWS * piece;
  }
  for (; i + LANES <= n; i += LANES) NAME(strip)(s, m, false, mask, x + i, pitch, g + i, line, rows);
  if (n % LANES) NAME(strip)(s, m, true, mask, x + n - n % LANES, pitch, g + n - n % LANES, line, rows);
  UNROLL for (int k = 0; k < m; k++) {
    VEC all = s[k][0] + s[k][1];
    float part[LANES];
    memcpy(part, &all, sizeof part);
    UNROLL for (int h = LANES / 2; h; h /= 2)
      UNROLL for (int j = 0; j < h; j++) part[j] += part[j + h];
    to[weight[k]] = part[0];
  }
}

TARGET static void NAME(sum)(const depthwise_planes *job, int64_t unit, void *room) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  int64_t plane = unit / job->bands, first = unit % job->bands * job->band, line = NAME(line)(job), pitch = job->pitch, n = x->made;
  int64_t rows = y->made - first < job->band ? y->made - first : job->band;
  float *spread = (float *)room + job->shift, *g = (float *)room + NAME(spread_length)(job), *to = job->parts + unit * y->taps * x->taps;
  const float *given = job->given + (plane * y->made + first) * n;
  NAME(open)(job, job->read + plane * y->read * x->read, first, rows, spread);
  for (int64_t r = 0; r < rows; r++) NAME(copy)(given + r * n, g + r * line, n);
  for (int64_t k = 0; k < job->n_groups; k++) {
    const depthwise_group *group = &job->groups[k];
    switch (group->n) {
      case 1: NAME(sum_group)(1, group->weight, spread + group->at, pitch, g, line, rows, n, to); break;
      case 2: NAME(sum_group)(2, group->weight, spread + group->at, pitch, g, line, rows, n, to); break;
      case 3: NAME(sum_group)(3, group->weight, spread + group->at, pitch, g, line, rows, n, to); break;
      case 4: NAME(sum_group)(4, group->weight, spread + group->at, pitch, g, line, rows, n, to); break;
      case 5: NAME(sum_group)(5, group->weight, spread + group->at, pitch, g, line, rows, n, to); break;
      default: NAME(sum_group)(DEPTHWISE_RUN, group->weight, spread + group->at, pitch, g, line, rows, n, to);
    }
  }
}

static const depthwise_routines NAME(routines) = {LANES, NAME(room), NAME(make), NAME(sum)};

#undef VEC
#undef HALF
#undef LANES
#undef ROWS
#undef INLINE
#undef LANE_NUMBERS
#undef VECTOR_BYTES
#undef TARGET
#undef NAME
