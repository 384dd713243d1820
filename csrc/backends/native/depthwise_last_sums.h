/* Sums of a band in vectors of channels, for one instruction set: included for each by depthwise_last_kernels.c, which defines
 * VECTOR_BYTES, WHOLE (taps whose sums registers hold), TARGET and NAME(x). */
typedef float NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(float)), may_alias));
enum { NAME(LANES) = VECTOR_BYTES / (int)sizeof(float) };
#define VEC NAME(vec)
#define LANES NAME(LANES)
#define INLINE TARGET static inline __attribute__((always_inline))

static int64_t NAME(room)(const depthwise_last_job *job) { return (job->rows * job->columns + job->band * job->x.given) * LANES; }

/* n places of some channels, which lie `apart`, side by side; channels that are not there are 0. */
TARGET static void NAME(copy)(const float *from, int64_t apart, int64_t n, int64_t channels, float *to) {
  for (int64_t i = 0; i < n; i++, from += apart, to += LANES) {
    if (channels == LANES) {
      *(VEC *)to = *(const VEC *)from;
    } else {
      *(VEC *)to = (VEC){0};
      memcpy(to, from, (size_t)channels * sizeof *to);
    }
  }
}

/* What a band reads, with its padding. */
static void NAME(open)(const depthwise_last_job *job, const float *image, int64_t first, int64_t rows, int64_t channels, float *to) {
  const depthwise_last_axis *x = &job->x;
  const int64_t left = x->before < job->columns ? x->before : job->columns, rest = job->columns - left;
  const int64_t there = x->read < rest ? x->read : rest, line = x->read * job->channels;
  for (int64_t k = 0, row = first; k < rows; k++, row++, to += job->columns * LANES) {
    const bool is_row = row >= 0 && row < job->y.read;
    memset(to, 0, (size_t)((is_row ? left : job->columns) * LANES) * sizeof *to);
    if (!is_row) continue;
    NAME(copy)(image + row * line, job->channels, there, channels, to + left * LANES);
    memset(to + (left + there) * LANES, 0, (size_t)((rest - there) * LANES) * sizeof *to);
  }
}

typedef struct {
  const float *read, *given;
  int64_t rows, n, apart;        /* apart: of what is given, from a place to the next */
  int64_t line, step, down, across; /* numbers from a row, a place, a tap's row and a tap's column to the next */
} NAME(band);

/* high x wide taps, whose sums stay in registers. */
INLINE void NAME(add_taps)(const NAME(band) *b, int high, int wide, int64_t across, float *sums, int64_t row) {
  VEC s[WHOLE];
  UNROLL for (int k = 0; k < high * wide; k++) s[k] = (VEC){0};
  const float *given = b->given;
  for (int64_t r = 0; r < b->rows; r++) {
    const float *read = b->read + r * b->line;
    for (int64_t i = 0; i < b->n; i++, read += b->step, given += b->apart) {
      const VEC g = *(const VEC *)given;
      UNROLL for (int h = 0; h < high; h++)
        UNROLL for (int w = 0; w < wide; w++) s[h * wide + w] += g * *(const VEC *)(read + h * b->down + w * across);
    }
  }
  UNROLL for (int h = 0; h < high; h++)
    UNROLL for (int w = 0; w < wide; w++) *(VEC *)(sums + h * row + w * LANES) += s[h * wide + w];
}

/* Some taps of one row. */
TARGET static void NAME(add_row)(const NAME(band) *b, int64_t taps, float *sums) {
  switch (taps) {
    case 1: NAME(add_taps)(b, 1, 1, b->across, sums, 0); break;
    case 2: NAME(add_taps)(b, 1, 2, b->across, sums, 0); break;
    case 3: NAME(add_taps)(b, 1, 3, b->across, sums, 0); break;
    case 4: NAME(add_taps)(b, 1, 4, b->across, sums, 0); break;
    case 5: NAME(add_taps)(b, 1, 5, b->across, sums, 0); break;
    case 6: NAME(add_taps)(b, 1, 6, b->across, sums, 0); break;
    default: NAME(add_taps)(b, 1, DEPTHWISE_LAST_RUN, b->across, sums, 0);
  }
}

TARGET static void NAME(add_band)(const NAME(band) *all, int64_t high, int64_t wide, float *sums) {
  const bool is_dense = all->across == LANES;
  if (is_dense && high == 3 && wide == 3) {
    NAME(add_taps)(all, 3, 3, LANES, sums, 3 * LANES);
  } else if (WHOLE >= 25 && is_dense && high == 5 && wide == 5) {
    NAME(add_taps)(all, 5, 5, LANES, sums, 5 * LANES);
  } else {
    for (int64_t h = 0; h < high; h++)
      for (int64_t w = 0; w < wide; w += DEPTHWISE_LAST_RUN) {
        NAME(band) b = *all;
        b.read += h * b.down + w * b.across;
        NAME(add_row)(&b, wide - w < DEPTHWISE_LAST_RUN ? wide - w : DEPTHWISE_LAST_RUN, sums + (h * wide + w) * LANES);
      }
  }
}

static void NAME(add)(const depthwise_last_job *job, int64_t band, int64_t vector, float *sums, float *room) {
  const depthwise_last_axis *y = &job->y, *x = &job->x;
  const int64_t image = band / job->bands, first = band % job->bands * job->band, c = vector * LANES;
  const int64_t rows = y->given - first < job->band ? y->given - first : job->band;
  const int64_t channels = job->channels - c < LANES ? job->channels - c : LANES;
  const float *read = job->read + image * y->read * x->read * job->channels + c;
  const float *given = job->given + (image * y->given + first) * x->given * job->channels + c;
  float *beside = room + job->rows * job->columns * LANES;
  NAME(open)(job, read, first * y->step - y->before, (rows - 1) * y->step + (y->taps - 1) * y->dilation + 1, channels, room);
  if (channels < LANES) NAME(copy)(given, job->channels, rows * x->given, channels, beside);
  NAME(band) b = {.read = room, .given = channels < LANES ? beside : given, .n = x->given,
                  .apart = channels < LANES ? LANES : job->channels, .line = y->step * job->columns * LANES,
                  .step = x->step * LANES, .down = y->dilation * job->columns * LANES, .across = x->dilation * LANES};
  const int64_t few = x->given < FEW_TERMS ? FEW_TERMS / x->given : 1;
  for (int64_t r = 0; r < rows; r += few, b.read += few * b.line, b.given += few * b.n * b.apart) {
    b.rows = rows - r < few ? rows - r : few;
    NAME(add_band)(&b, y->taps, x->taps, sums);
  }
}

static const depthwise_last_routines NAME(routines) = {LANES, NAME(room), NAME(add)};

#undef VEC
#undef LANES
#undef INLINE
#undef VECTOR_BYTES
#undef WHOLE
#undef TARGET
#undef NAME
