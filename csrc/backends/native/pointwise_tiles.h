/* Products of filters and images for one instruction set: included for each by pointwise_kernels.c, which defines VECTOR_BYTES,
 * LANE_NUMBERS, ROWS (of sums that registers hold, two vectors each), TALL and BROAD (sums of a gradient of filters that
 * registers hold, as many as a vector has lanes), TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float), NAME(STRIP) = 2 * NAME(LANES) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define STRIP NAME(STRIP)
#define INLINE TARGET static inline __attribute__((always_inline))

static const NAME(lane) NAME(numbers) = {LANE_NUMBERS};

/* ---- filters, in panels of some rows ---- */

static int64_t NAME(count)(const pointwise_job *job) { return (job->rows + ROWS - 1) / ROWS; }

/* Rows of a panel, with those that are there only to fill it. */
static int64_t NAME(height)(const pointwise_job *job, int64_t panel) {
  const int64_t rest = job->rows - panel * ROWS;
  return rest > 2 * ROWS / 3 ? ROWS : rest > ROWS / 3 ? 2 * ROWS / 3 : ROWS / 3;
}

/* A panel begins with its bias. */
static int64_t NAME(panel_at)(const pointwise_job *job, int64_t panel) { return panel * ROWS * (job->depth + 1); }
static int64_t NAME(panels)(const pointwise_job *job) { return NAME(panel_at)(job, NAME(count)(job)); }

static void NAME(pack)(const pointwise_job *job, const float *filters, int64_t a, int64_t b, const float *bias, int64_t panel,
                       float *panels) {
  const int64_t first = panel * ROWS, m = NAME(height)(job, panel), rows = job->rows - first < m ? job->rows - first : m;
  float *to = panels + NAME(panel_at)(job, panel);
  for (int64_t r = 0; r < m; r++) {
    to[r] = bias && r < rows ? bias[first + r] : 0;
    for (int64_t k = 0; k < job->depth; k++) to[(k + 1) * m + r] = r < rows ? filters[(first + r) * a + k * b] : 0;
  }
}

/* ---- pixels, in strips of two vectors ---- */

/* The strips of a block, each of all channels; a last one is filled up with zeros. */
TARGET static void NAME(spread)(const pointwise_job *job, const float *from, int64_t n, float *to) {
  for (int64_t k = 0; k < job->depth; k++, from += job->pixels) {
    float *at = to + k * STRIP;
    int64_t i = 0;
    for (; i + STRIP <= n; i += STRIP, at += job->depth * STRIP) {
      *(VEC *)at = *(const VEC *)(from + i), *(VEC *)(at + LANES) = *(const VEC *)(from + i + LANES);
    }
    if (i == n) continue;
    *(VEC *)at = (VEC){0}, *(VEC *)(at + LANES) = (VEC){0};
    memcpy(at, from + i, (size_t)(n - i) * sizeof *at);
  }
}

/* What the next unit reads, on its way while this one is computed: a line of cache for each step of a product. */
typedef struct {
  const float *at;
  int64_t step;
} NAME(ahead);

/* m rows of n pixels, of which `rows` are wanted. */
INLINE void NAME(tile)(int m, int vectors, const float *a, const float *b, int64_t depth, float *to, int64_t to_row, int64_t rows,
                       int64_t n, NAME(ahead) next) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < m; r++)
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = (VEC){0} + a[r];
  for (int64_t k = 0; k < depth; k++) {
    VEC x[2];
    a += m;
    __builtin_prefetch(next.at + k * next.step, 0, 2);
    UNROLL for (int v = 0; v < vectors; v++) x[v] = *(const VEC *)(b + k * STRIP + v * LANES);
    UNROLL for (int r = 0; r < m; r++)
      UNROLL for (int v = 0; v < vectors; v++) s[r][v] += x[v] * a[r];
  }
  const bool is_whole = n == vectors * LANES;
  UNROLL for (int r = 0; r < m; r++) {
    float last[STRIP];
    if (r >= rows) continue;
    UNROLL for (int v = 0; v < vectors; v++) *(VEC *)((is_whole ? to + r * to_row : last) + v * LANES) = s[r][v];
    if (!is_whole) memcpy(to + r * to_row, last, (size_t)n * sizeof *to);
  }
}

/* next: of a strip of the next block the vector that is fetched with each panel, NULL behind the last. */
INLINE void NAME(line)(const pointwise_job *job, int m, const float *a, const float *strips, int64_t n, float *to, int64_t rows,
                       const float *next) {
  for (int64_t i = 0; i < n; i += STRIP, strips += job->depth * STRIP) {
    const NAME(ahead) ahead = next ? (NAME(ahead)){next + i, job->pixels} : (NAME(ahead)){a, 0};
    const int64_t rest = n - i < STRIP ? n - i : STRIP;
    if (rest > LANES) NAME(tile)(m, 2, a, strips, job->depth, to + i, job->pixels, rows, rest, ahead);
    else NAME(tile)(m, 1, a, strips, job->depth, to + i, job->pixels, rows, rest, ahead);
  }
}

static int64_t NAME(room)(const pointwise_job *job) { return (job->wide + STRIP - 1) / STRIP * STRIP * job->depth; }

static const float *NAME(read_at)(const pointwise_job *job, int64_t unit) {
  return job->read + unit / job->blocks * job->depth * job->pixels + unit % job->blocks * job->wide;
}

TARGET static void NAME(make)(const pointwise_job *job, int64_t unit, int64_t following, float *room) {
  const int64_t image = unit / job->blocks, first = unit % job->blocks * job->wide;
  const float *ahead = NAME(read_at)(job, following);
  const int64_t n = job->pixels - first < job->wide ? job->pixels - first : job->wide;
  float *made = job->made + image * job->rows * job->pixels + first;
  NAME(spread)(job, NAME(read_at)(job, unit), n, room);
  for (int64_t p = 0; p < NAME(count)(job); p++, made += ROWS * job->pixels) {
    const float *a = job->panels + NAME(panel_at)(job, p);
    const int64_t rows = job->rows - p * ROWS;
    const float *next = p * LANES < STRIP ? ahead + p * LANES : NULL;
    switch (NAME(height)(job, p)) {
      case ROWS: NAME(line)(job, ROWS, a, room, n, made, rows, next); break;
      case 2 * ROWS / 3: NAME(line)(job, 2 * ROWS / 3, a, room, n, made, rows, next); break;
      default: NAME(line)(job, ROWS / 3, a, room, n, made, rows, next);
    }
  }
}

/* ---- gradient of filters ---- */

static int64_t NAME(tall)(const pointwise_job *job) { return (job->rows + TALL - 1) / TALL; }
static int64_t NAME(broad)(const pointwise_job *job) { return (job->depth + BROAD - 1) / BROAD; }
static int64_t NAME(sums)(const pointwise_job *job) { return NAME(tall)(job) * NAME(broad)(job) * LANES; }

/* Rows behind the last one are the last one again: their sums are not looked at. */
static void NAME(choose_rows)(const float *from, int64_t pixels, int64_t first, int64_t n, int count, const float **rows) {
  for (int k = 0; k < count; k++) rows[k] = from + (first + k < n ? first + k : n - 1) * pixels;
}

/* The sums of all vectors, side by side: pairs of neighbours are added, until one vector is left. */
INLINE VEC NAME(sum_each)(VEC *s) {
  const NAME(lane) even = NAME(numbers) * 2, odd = even + 1;
  UNROLL for (int n = LANES; n > 1; n /= 2)
    UNROLL for (int k = 0; k < n / 2; k++)
      s[k] = __builtin_shuffle(s[2 * k], s[2 * k + 1], even) + __builtin_shuffle(s[2 * k], s[2 * k + 1], odd);
  return s[0];
}

INLINE void NAME(multiply)(VEC *s, const float *const *g, const float *const *x, int64_t at, bool is_masked, NAME(lane) mask) {
  VEC read[BROAD];
  UNROLL for (int c = 0; c < BROAD; c++) {
    read[c] = *(const VEC *)(x[c] + at);
    if (is_masked) read[c] = (VEC)((NAME(lane))read[c] & mask);
  }
  UNROLL for (int r = 0; r < TALL; r++) {
    VEC given = *(const VEC *)(g[r] + at);
    if (is_masked) given = (VEC)((NAME(lane))given & mask);
    UNROLL for (int c = 0; c < BROAD; c++) s[r * BROAD + c] += read[c] * given;
  }
}

/* Of some images n pixels from `first` on; there are no fewer of an image than a vector has lanes. */
TARGET static void NAME(add_tile)(const pointwise_job *job, const float **g, const float **x, int64_t first, int64_t n, int64_t images,
                                  const float *ahead, float *to) {
  const NAME(lane) mask = NAME(numbers) >= (int32_t)(LANES - n % LANES);
  VEC s[LANES];
  UNROLL for (int k = 0; k < LANES; k++) s[k] = (VEC){0};
  for (int64_t image = 0; image < images; image++) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
      __builtin_prefetch(ahead + i, 0, 2);
      NAME(multiply)(s, g, x, first + i, false, mask);
    }
    if (i < n) NAME(multiply)(s, g, x, first + n - LANES, true, mask); /* the vector that ends with the last pixel */
    UNROLL for (int r = 0; r < TALL; r++) g[r] += job->rows * job->pixels;
    UNROLL for (int c = 0; c < BROAD; c++) x[c] += job->depth * job->pixels;
  }
  *(VEC *)to += NAME(sum_each)(s);
}

/* A row of what the next unit reads for each tile of sums, as far as they go. */
static const float *NAME(row_ahead)(const pointwise_job *job, int64_t unit, int64_t tile) {
  const int64_t image = unit / job->blocks * job->group, first = unit % job->blocks * job->wide;
  const int64_t row = tile % (job->rows + job->depth);
  if (row < job->depth) return job->read + (image * job->depth + row) * job->pixels + first;
  return job->given + (image * job->rows + row - job->depth) * job->pixels + first;
}

/* Tiles of a few channels of what is read, which stay in the second cache while the others go by. */
TARGET static void NAME(add)(const pointwise_job *job, int64_t unit, int64_t following, float *sums) {
  const int64_t image = unit / job->blocks * job->group, first = unit % job->blocks * job->wide, broad = NAME(broad)(job);
  const int64_t n = job->pixels - first < job->wide ? job->pixels - first : job->wide;
  const int64_t images = job->images - image < job->group ? job->images - image : job->group;
  const float *given = job->given + image * job->rows * job->pixels, *read = job->read + image * job->depth * job->pixels;
  int64_t tile = 0;
  for (int64_t some = 0; some < broad; some += POINTWISE_SUMMED / BROAD) {
    const int64_t end = broad - some < POINTWISE_SUMMED / BROAD ? broad : some + POINTWISE_SUMMED / BROAD;
    for (int64_t r = 0; r < NAME(tall)(job); r++)
      for (int64_t c = some; c < end; c++, tile++) {
        const float *g[TALL], *x[BROAD], *ahead = NAME(row_ahead)(job, job->fetches ? following : unit, tile);
        NAME(choose_rows)(given, job->pixels, r * TALL, job->rows, TALL, g);
        NAME(choose_rows)(read, job->pixels, c * BROAD, job->depth, BROAD, x);
        NAME(add_tile)(job, g, x, first, n, images, ahead, sums + (r * broad + c) * LANES);
      }
  }
}

static void NAME(collect)(const pointwise_job *job, const float *sums, int64_t parts, float *to) {
  const int64_t all = NAME(sums)(job), broad = NAME(broad)(job);
  for (int64_t r = 0; r < job->rows; r++)
    for (int64_t c = 0; c < job->depth; c++) {
      const float *from = sums + (r / TALL * broad + c / BROAD) * LANES + r % TALL * BROAD + c % BROAD;
      float sum = from[0];
      for (int64_t p = 1; p < parts; p++) sum += from[p * all];
      to[r * job->depth + c] = sum;
    }
}

static const pointwise_routines NAME(routines) = {LANES,      NAME(panels), NAME(pack), NAME(count),  NAME(room),
                                                  NAME(make), NAME(sums),   NAME(add),  NAME(collect)};

#undef VEC
#undef LANES
#undef STRIP
#undef INLINE
#undef LANE_NUMBERS
#undef VECTOR_BYTES
#undef ROWS
#undef TALL
#undef BROAD
#undef TARGET
#undef NAME
