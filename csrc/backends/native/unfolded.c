/* Convolutions of few pixels by many filters, where images lie channels-last: what each window reads becomes a column, and filters
 * are multiplied with the columns where they lie.  A library brings filters that may change into a layout of its own, or looks at
 * all of them to see whether they did, which takes about as long as to convolve the few pixels of a network's last layers.
 *
 * Sums have one order for any number of threads.  It stands in for the library that a convolution is stamped with. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/held.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum {
  LINE = 16,           /* numbers of a line of cache */
  UNFOLDED_LINES = 32, /* of a row, whose terms are summed before they are added to the others */
  MOST_LANES = 16,
  MOST_PIXELS = 64,
  LEAST_FILTERS = 1 << 20, /* numbers: fewer stay in a cache while they are brought into another layout */
};

/* Some filters' next terms. */
typedef struct {
  const float *at, *next; /* next: what is read after them */
  int64_t depth, terms;   /* depth: numbers of a filter */
  int rows;
  bool adds; /* to the sums of the terms before */
} unfolded_rows;

typedef struct {
  int rows, lanes;
  void (*lay)(const float *const *pixels, int64_t channels, float *to, int64_t step);
  void (*multiply)(const unfolded_rows *rows, bool is_wide, const float *strip, float *to, int64_t to_row); /* wide: of two vectors */
  void (*multiply_one)(const unfolded_rows *rows, const float *column, float *to, int64_t to_row);
} unfolded_routines;

#ifdef __x86_64__
#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 32
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define ROWS 6
#define OF_LAST_HEIGHTS(vectors)
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/unfolded_tiles.h"
#define VECTOR_BYTES 64
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define ROWS 14
#define OF_LAST_HEIGHTS(vectors) \
  OF_HEIGHT(7, vectors) OF_HEIGHT(8, vectors) OF_HEIGHT(9, vectors) OF_HEIGHT(10, vectors) OF_HEIGHT(11, vectors) \
  OF_HEIGHT(12, vectors) OF_HEIGHT(13, vectors) OF_HEIGHT(14, vectors)
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_##x
#include "backends/native/unfolded_tiles.h"
#endif

typedef struct {
  const unfolded_routines *routines;
  dc_problem_conv conv;
  int threads;
  int64_t pixels, channels, taps, depth, filters; /* pixels: of results, one for each window */
  int64_t vectors, columns; /* of windows; columns: of whole strips */
  bool has_single;          /* the last pixel is one more than fill the vectors: 7 x 7 are */
  int64_t panels;           /* of filters, as many rows each but for one */
  /* Of a run: */
  const float *x, **read; /* read: by tap, what each window does */
  float *strips, *single; /* single: the column of the last pixel */
  float *sums, *nothing;  /* nothing: a pixel of zeros, which windows read outside the image */
} unfolded_call;

/* ---- binding ---- */

static bool fits(const dc_problem_conv *c) {
  if (c->wanted != DC_CONV_Y || c->n != 2 || !dc_problem_conv_agrees(c) || dc_problem_conv_is_empty(c)) return false;
  if (c->w.dims[2] * c->w.dims[3] == 1) return false;
  return dc_problem_is_last(&c->x) && dc_problem_is_last(&c->y) && dc_problem_is_row_major(&c->w);
}

static int64_t pixels_of(const dc_problem_conv *c) { return dc_problem_elements(&c->y) / c->y.dims[1]; }

/* A library turns what never changes only once. */
static bool pays(const dc_problem_conv *c, const dc_graph *graph, dc_nid node) {
  dc_hold hold = {0};
  const bool is_constant = dc_hold_pays(graph, node, c->at_w, &hold) && !hold.changes && !hold.moves;
  return pixels_of(c) <= MOST_PIXELS && dc_problem_elements(&c->w) >= LEAST_FILTERS && !is_constant;
}

static void lay_out(unfolded_call *call) {
  const dc_problem_conv *c = &call->conv;
  const int64_t strip = 2 * call->routines->lanes;
  call->threads = (int)dc_thread_count();
  call->pixels = pixels_of(c), call->channels = c->x.dims[1], call->taps = c->w.dims[2] * c->w.dims[3];
  call->depth = call->channels * call->taps, call->filters = c->w.dims[0];
  call->has_single = call->pixels % call->routines->lanes == 1 && call->pixels > 1;
  call->vectors = dc_quotient_up(call->pixels - call->has_single, call->routines->lanes);
  call->columns = dc_quotient_up(call->pixels, strip) * strip;
  call->panels = dc_quotient_up(dc_quotient_up(call->filters, call->routines->rows), call->threads) * call->threads;
  if (call->panels > call->filters) call->panels = call->filters;
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  (void)handle;
  *out = NULL;
#ifdef __x86_64__
  if (!dc_problem_is_conv(graph, node) || dc_problem_type(graph, node) != DC_F32 || dc_problem_refuses(graph, node)) return DC_OK;
  const unfolded_routines *routines = DC_BUILT(graph->machine.vector_bytes, NULL, &avx2_routines, &avx512_routines);
  const dc_problem_conv conv = dc_problem_read_conv(graph, node, symbols);
  if (!routines || !fits(&conv) || !pays(&conv, graph, node)) return DC_OK;
  unfolded_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->routines = routines, call->conv = conv;
  lay_out(call);
  *out = call;
#else
  (void)graph, (void)node, (void)symbols;
#endif
  return DC_OK;
}

/* Of a panel: all windows. */
static int64_t sums_numbers(const unfolded_call *call) { return call->routines->rows * call->columns; }

static uint64_t scratch_of(const void *opaque) {
  const unfolded_call *call = opaque;
  const int64_t numbers = (call->columns + 1) * call->depth + call->threads * sums_numbers(call) + call->channels;
  return (uint64_t)(call->taps * call->columns) * sizeof *call->read + (uint64_t)numbers * sizeof(float);
}

/* ---- running ---- */

/* What each window's taps read: the channels of a pixel. */
static const float *pixel_at(const unfolded_call *call, int64_t window, int64_t tap) {
  const dc_problem_conv *c = &call->conv;
  const int64_t *x = c->x.dims, *y = c->y.dims;
  if (window >= call->pixels) return call->nothing;
  const int64_t image = window / (y[2] * y[3]), row = window / y[3] % y[2], column = window % y[3];
  const int64_t i = row * c->strides[0] - c->left[0] + tap / c->w.dims[3] * c->dilations[0];
  const int64_t j = column * c->strides[1] - c->left[1] + tap % c->w.dims[3] * c->dilations[1];
  const bool inside = i >= 0 && i < x[2] && j >= 0 && j < x[3];
  return inside ? call->x + ((image * x[2] + i) * x[3] + j) * call->channels : call->nothing;
}

static void find_pixels(const unfolded_call *call) {
  for (int64_t tap = 0; tap < call->taps; tap++)
    for (int64_t w = 0; w < call->columns; w++) call->read[tap * call->columns + w] = pixel_at(call, w, tap);
}

/* Some channels of all windows, which lie together. */
static void unfold(const unfolded_call *call, int64_t first) {
  const int64_t lanes = call->routines->lanes, strip = 2 * lanes, left = call->channels - first, n = left < lanes ? left : lanes;
  const float *pixels[MOST_LANES];
  for (int64_t tap = 0; tap < call->taps; tap++) {
    const float *const *read = call->read + tap * call->columns;
    const int64_t term = first * call->taps + tap;
    for (int64_t v = 0; v < call->vectors; v++) {
      for (int64_t k = 0; k < lanes; k++) pixels[k] = read[v * lanes + k] + first;
      call->routines->lay(pixels, n, call->strips + v / 2 * strip * call->depth + v % 2 * lanes + term * strip, call->taps * strip);
    }
    for (int64_t c = 0; c < n && call->has_single; c++) call->single[term + c * call->taps] = read[call->pixels - 1][first + c];
  }
}

static void multiply(const unfolded_call *call, const float *filters, int64_t first, int64_t end, float *sums) {
  enum { DEEP = UNFOLDED_LINES * LINE };
  const int64_t depth = call->depth, strip = 2 * call->routines->lanes;
  const float *rows = filters + first * depth;
  for (int64_t k = 0; k < depth; k += DEEP) {
    const bool is_last = k + DEEP >= depth;
    unfolded_rows some = {rows + k, is_last ? filters + end * depth : rows + k + DEEP, depth, is_last ? depth - k : DEEP,
                          (int)(end - first), k > 0};
    const int64_t filled = call->vectors * call->routines->lanes;
    for (int64_t i = 0; i < filled; i += strip)
      call->routines->multiply(&some, filled - i >= strip, call->strips + i * depth + k * strip, sums + i, call->columns);
    if (call->has_single) call->routines->multiply_one(&some, call->single + k, sums + call->pixels - 1, call->columns);
  }
}

static void collect(const unfolded_call *call, const float *sums, int64_t first, int64_t end, const float *bias, float *y) {
  for (int64_t p = 0; p < call->pixels; p++)
    for (int64_t f = first; f < end; f++)
      y[p * call->filters + f] = sums[(f - first) * call->columns + p] + (bias ? bias[f] : 0);
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  unfolded_call call = *(const unfolded_call *)opaque;
  const dc_problem_conv *c = &call.conv;
  const float *bias = c->bias >= 0 ? buffers[c->bias] : NULL;
  (void)stream;
  call.x = buffers[c->at_x], call.read = scratch, call.strips = (float *)(call.read + call.taps * call.columns);
  call.single = call.strips + call.columns * call.depth, call.sums = call.single + call.depth;
  call.nothing = call.sums + call.threads * sums_numbers(&call);
  memset(call.nothing, 0, (size_t)call.channels * sizeof *call.nothing);
  find_pixels(&call);
#pragma omp parallel num_threads(call.threads) if (call.threads > 1)
  {
#pragma omp for schedule(static)
    for (int64_t k = 0; k < call.channels; k += call.routines->lanes) unfold(&call, k);
    float *sums = call.sums + omp_get_thread_num() * sums_numbers(&call);
#pragma omp for schedule(static)
    for (int64_t p = 0; p < call.panels; p++) {
      const int64_t first = call.filters * p / call.panels, end = call.filters * (p + 1) / call.panels;
      multiply(&call, buffers[c->at_w], first, end, sums);
      collect(&call, sums, first, end, bias, buffers[c->at_y]);
    }
  }
  return DC_OK;
}

const dc_native_library dc_native_unfolded = {
    .name = "unfolded",
    .stands_in = true,
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
