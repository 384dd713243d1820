/* Products of filters and images for one instruction set: included for each by pointwise_kernels.c, which defines VECTOR_BYTES,
 * LANE_NUMBERS, ROWS (of sums that registers hold, two vectors each), TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t NAME(lane) __attribute__((vector_size(VECTOR_BYTES)));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float), NAME(STRIP) = 2 * NAME(LANES) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define STRIP NAME(STRIP)
#define INLINE TARGET static inline __attribute__((always_inline))

#include "backends/native/turn.h"

/* ---- rows that become columns ---- */

/* A vector of `rows` numbers for each of n places, from rows that lie `apart`; those behind the last row are 0. */
TARGET static void NAME(lay)(const float *from, int64_t apart, int64_t rows, int64_t n, float *to, int64_t step) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int64_t some = n - i < LANES ? n - i : LANES;
    VEC s[LANES];
    UNROLL for (int r = 0; r < LANES; r++) {
      s[r] = (VEC){0};
      if (r < rows && some == LANES) s[r] = *(const VEC *)(from + r * apart + i);
      else if (r < rows) memcpy(&s[r], from + r * apart + i, (size_t)some * sizeof *from);
    }
    NAME(turn)(s);
    UNROLL for (int k = 0; k < LANES; k++)
      if (k < some) *(VEC *)(to + (i + k) * step) = s[k];
  }
}

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

/* A vector is longer than a line of a panel: what is too much of it the next line covers, which has to be there. */
TARGET static void NAME(pack_columns)(const float *from, int64_t row, int64_t m, int64_t lines, float *to) {
  for (int64_t k = 0; k < lines; k++) *(VEC *)(to + k * m) = *(const VEC *)(from + k * row);
}

static void NAME(pack)(const pointwise_job *job, const float *filters, int64_t a, int64_t b, const float *bias, int64_t panel,
                       float *panels) {
  const int64_t first = panel * ROWS, m = NAME(height)(job, panel), rows = job->rows - first < m ? job->rows - first : m;
  float *to = panels + NAME(panel_at)(job, panel), *lines = to + m;
  const float *from = filters + first * a;
  const bool by_vectors = b == 1 || first + LANES <= job->rows;
  const int64_t done = by_vectors ? (job->depth - 1) / LANES * LANES : 0;
  if (by_vectors && b == 1) NAME(lay)(from, a, rows, done, lines, m);
  else if (by_vectors) NAME(pack_columns)(from, b, m, done, lines);
  for (int64_t r = 0; r < m; r++) {
    to[r] = bias && r < rows ? bias[first + r] : 0;
    for (int64_t k = done; k < job->depth; k++) lines[k * m + r] = r < rows ? from[r * a + k * b] : 0;
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

/* Sums lie by rows of whole vectors. */
static int64_t NAME(across)(const pointwise_job *job) { return (job->depth + LANES - 1) / LANES * LANES; }
static int64_t NAME(sums)(const pointwise_job *job) { return NAME(count)(job) * ROWS * NAME(across)(job); }
static int64_t NAME(turned)(const pointwise_job *job) { return job->wide * job->group * NAME(across)(job); }

/* Vectors of a pixel in the strip of channels that begins with `some`. */
static int64_t NAME(vectors)(const pointwise_job *job, int64_t some) { return NAME(across)(job) - some > LANES ? 2 : 1; }

/* Strips of channels, each of all pixels of a unit. */
static void NAME(lay_all)(const pointwise_job *job, const float *read, int64_t n, int64_t images, float *room) {
  for (int64_t c = 0; c < job->depth; c += LANES) {
    const int64_t strip = c / STRIP * STRIP, step = NAME(vectors)(job, strip) * LANES, rows = job->depth - c;
    float *to = room + strip * n * images + c - strip;
    for (int64_t image = 0; image < images; image++, to += n * step)
      NAME(lay)(read + (image * job->depth + c) * job->pixels, job->pixels, rows, n, to, step);
  }
}

/* ROWS rows of n pixels of each image times as many vectors; the rows of the next tile are on their way meanwhile. */
INLINE void NAME(add_tile)(const pointwise_job *job, int vectors, const float **g, const float *x, int64_t n, int64_t images, float *to) {
  VEC s[ROWS][2];
  UNROLL for (int r = 0; r < ROWS; r++)
    UNROLL for (int v = 0; v < vectors; v++) s[r][v] = (VEC){0};
  for (int64_t image = 0; image < images; image++) {
    for (int64_t i = 0; i < n; i += POINTWISE_LINE) {
      const int64_t end = n - i < POINTWISE_LINE ? n : i + POINTWISE_LINE;
      UNROLL for (int r = 0; r < ROWS; r++) __builtin_prefetch(g[r] + ROWS * job->pixels + i, 0, 2);
      for (int64_t k = i; k < end; k++, x += vectors * LANES)
        UNROLL for (int r = 0; r < ROWS; r++)
          UNROLL for (int v = 0; v < vectors; v++) s[r][v] += *(const VEC *)(x + v * LANES) * g[r][k];
    }
    UNROLL for (int r = 0; r < ROWS; r++) g[r] += job->rows * job->pixels;
  }
  UNROLL for (int r = 0; r < ROWS; r++, to += NAME(across)(job))
    UNROLL for (int v = 0; v < vectors; v++) *(VEC *)(to + v * LANES) += s[r][v];
}

/* Rows behind the last one are the last one again: their sums are not looked at. */
static void NAME(choose_rows)(const pointwise_job *job, const float *given, int64_t first, const float **rows) {
  for (int64_t k = 0; k < ROWS; k++) rows[k] = given + (first + k < job->rows ? first + k : job->rows - 1) * job->pixels;
}

/* The p-th part of the channels that the next unit reads. */
static void NAME(fetch)(const pointwise_job *job, const float *next, int64_t n, int64_t p) {
  for (int64_t c = p; c < job->depth; c += NAME(count)(job))
    for (int64_t i = 0; i < n; i += POINTWISE_LINE) __builtin_prefetch(next + c * job->pixels + i, 0, 2);
}

/* Some channels' vectors stay in a cache while all rows of the panels go by. */
TARGET static void NAME(add)(const pointwise_job *job, int64_t unit, int64_t following, pointwise_panels panels, float *sums, float *room) {
  const int64_t image = unit / job->blocks * job->group, first = unit % job->blocks * job->wide;
  const int64_t n = job->pixels - first < job->wide ? job->pixels - first : job->wide;
  const int64_t images = job->images - image < job->group ? job->images - image : job->group;
  const float *given = job->given + image * job->rows * job->pixels + first, *read = job->read + image * job->depth * job->pixels + first;
  const float *next = job->read + following / job->blocks * job->group * job->depth * job->pixels + following % job->blocks * job->wide;
  NAME(lay_all)(job, read, n, images, room);
  for (int64_t some = 0; some < job->depth; some += POINTWISE_SUMMED)
    for (int64_t p = panels.first; p < panels.end; p++) {
      if (some == 0) NAME(fetch)(job, next, n, p);
      for (int64_t c = some; c < job->depth && c < some + POINTWISE_SUMMED; c += STRIP) {
        const float *g[ROWS];
        float *to = sums + p * ROWS * NAME(across)(job) + c;
        NAME(choose_rows)(job, given, p * ROWS, g);
        if (NAME(vectors)(job, c) == 2) NAME(add_tile)(job, 2, g, room + c * n * images, n, images, to);
        else NAME(add_tile)(job, 1, g, room + c * n * images, n, images, to);
      }
    }
}

/* ---- sums of all parts ---- */

INLINE VEC NAME(sum)(const float *from, int64_t parts, int64_t step) {
  VEC sum = *(const VEC *)from;
  for (int64_t p = 1; p < parts; p++) sum += *(const VEC *)(from + p * step);
  return sum;
}

/* Rows [r, r + rows) of a vector of channels, of which n are there; rows and channels change places. */
INLINE void NAME(collect_turned)(const pointwise_job *job, const float *from, int64_t parts, int64_t step, int64_t rows, int64_t n,
                                 float *to) {
  VEC s[LANES];
  UNROLL for (int r = 0; r < LANES; r++) s[r] = r < rows ? NAME(sum)(from + r * NAME(across)(job), parts, step) : (VEC){0};
  NAME(turn)(s);
  UNROLL for (int c = 0; c < LANES; c++) {
    if (c >= n) continue;
    if (rows == LANES) *(VEC *)(to + c * job->rows) = s[c];
    else memcpy(to + c * job->rows, &s[c], (size_t)rows * sizeof *to);
  }
}

TARGET static void NAME(collect)(const pointwise_job *job, const float *sums, int64_t parts, int64_t step, pointwise_panels panels,
                                 float *to) {
  const int64_t across = NAME(across)(job), high = job->is_turned ? LANES : 1;
  const int64_t end = panels.end * ROWS < job->rows ? panels.end * ROWS : job->rows;
  for (int64_t r = panels.first * ROWS; r < end; r += high) {
    const int64_t rows = end - r < high ? end - r : high;
    for (int64_t c = 0; c < job->depth; c += LANES) {
      const int64_t n = job->depth - c < LANES ? job->depth - c : LANES;
      const float *from = sums + r * across + c;
      if (job->is_turned) {
        NAME(collect_turned)(job, from, parts, step, rows, n, to + c * job->rows + r);
      } else {
        const VEC sum = NAME(sum)(from, parts, step);
        memcpy(to + r * job->depth + c, &sum, (size_t)n * sizeof *to);
      }
    }
  }
}

static const pointwise_routines NAME(routines) = {LANES,      NAME(panels), NAME(pack),   NAME(count), NAME(room),
                                                  NAME(make), NAME(sums),   NAME(turned), NAME(add),   NAME(collect)};

#undef VEC
#undef LANES
#undef STRIP
#undef INLINE
#undef LANE_NUMBERS
#undef VECTOR_BYTES
#undef ROWS
#undef TARGET
#undef NAME
