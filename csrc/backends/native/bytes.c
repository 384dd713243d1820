/* MatMulInteger and ConvInteger: products of operands of 8 bits about their zero points,
 *
 *     sum of (a - za) (b - zb) = sum of a b - za (sum of b) - zb (sum of a - za) ,
 *
 * exact, and the same for any number of threads.  Rows are those of A, or filters; columns are those of B, or windows.  What a
 * constant operand is laid out as is held. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/bytes.h"
#include "backends/native/held.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { BLOCK_BYTES = 192 << 10 /* of rows that stay in the second cache */, SMALL_WORK = 1 << 15, MOST_SPACE = 3 };

/* A matrix's rows in groups, with the sum of each; or its columns in panels, with theirs behind. */
typedef struct {
  int64_t n, terms, taps; /* n: rows or columns; terms: of a tap, which begins with a group of its own */
  const bytes_routines *routines;
  int64_t is_rows; /* 64 bits, for no gaps: layouts are compared as bytes */
} bytes_layout;

typedef struct {
  const bytes_routines *routines;
  bool is_conv, a_signed, b_signed;
  int at_a, at_b, at_y, at_za, at_zb; /* buffers; zero points -1: none */
  bool za_each, zb_each;              /* one for each row, or column */
  int threads;
  int64_t batches, m, n, terms, taps; /* of each batch: a group of an image */
  dc_problem_conv conv;
  int64_t space_x, space_y; /* pixels of an image */
  bytes_layout layout;      /* of what may be held: the columns of a product, filters */
  bool held;
  dc_hold hold;
} bytes_call;

static int64_t up(int64_t n, int64_t to) { return dc_quotient_up(n, to) * to; }

static const char *open_bytes(const char *folder, const void *place, void **handle) {
  return (void)folder, (void)place, dc_holder_open(sizeof(bytes_layout), handle);
}

/* ---- binding ---- */

static const dc_container *operand(const dc_graph *graph, dc_nid node, uint32_t k) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  return k < lib->n_in && lib->in[k] ? dc_cont(graph, lib->in[k]) : NULL;
}

static bool is_of_bytes(const dc_container *c) { return (c->dtype == DC_I8 || c->dtype == DC_U8) && !c->strides; }

/* Is a zero point one number, or none, or one for each of `each`, which NULL means there is none of? */
static bool is_zero_point(const dc_graph *graph, const dc_container *zero, const dc_ex *each) {
  int64_t one;
  if (!zero || zero->rank == 0) return true;
  if (zero->rank > 1) return false;
  return (dc_ex_is_int(&graph->pool, zero->shape[0], &one) && one == 1) || (each && zero->shape[0] == *each);
}

static const char *refuses_bytes(void *handle, const dc_graph *graph, dc_nid node) {
  (void)handle;
  const bool is_conv = dc_problem_op_is(graph, node, "ConvInteger");
  const dc_container *a = operand(graph, node, 0), *b = operand(graph, node, 1);
  if (!is_conv && !dc_problem_op_is(graph, node, "MatMulInteger")) return "the operator is not served";
  if (!bytes_choose(graph->machine.vector_bytes)) return "a processor without instructions for it";
  if (!is_of_bytes(a) || !is_of_bytes(b)) return "operands other than of bytes in rows";
  if (is_conv && (a->rank < 3 || a->rank > 5)) return "other than one to three spatial dimensions";
  if (!is_conv && (a->rank < 2 || b->rank != 2)) return "a batch of second matrices, or a vector";
  const bool good = is_zero_point(graph, operand(graph, node, 2), NULL) &&
                    is_zero_point(graph, operand(graph, node, 3), &b->shape[is_conv ? 0 : 1]);
  return good ? NULL : "zero points of its rows";
}

static int64_t extent_of(const dc_graph *graph, const dc_container *c, uint32_t d, const int64_t *symbols) {
  return dc_ix_eval(&graph->pool, c->shape[d], symbols, NULL);
}

static void read_product(bytes_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_container *a = operand(graph, node, 0), *b = operand(graph, node, 1);
  call->at_a = 0, call->at_b = 1, call->at_za = operand(graph, node, 2) ? 2 : -1, call->at_zb = operand(graph, node, 3) ? 3 : -1;
  call->batches = call->taps = call->m = 1;
  for (uint32_t d = 0; d + 1 < a->rank; d++) call->m *= extent_of(graph, a, d, symbols);
  call->terms = extent_of(graph, b, 0, symbols), call->n = extent_of(graph, b, 1, symbols);
  call->layout = (bytes_layout){call->n, call->terms, 1, call->routines, false};
}

static void read_conv(bytes_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  dc_problem_conv *c = &call->conv;
  *c = dc_problem_read_conv(graph, node, symbols);
  call->is_conv = true;
  call->at_a = 1, call->at_b = 0, call->at_za = operand(graph, node, 3) ? 3 : -1, call->at_zb = operand(graph, node, 2) ? 2 : -1;
  call->space_x = call->space_y = call->taps = 1;
  for (int d = 0; d < c->n; d++)
    call->space_x *= c->x.dims[2 + d], call->space_y *= c->y.dims[2 + d], call->taps *= c->w.dims[2 + d];
  call->batches = c->x.dims[0] * c->groups, call->m = c->groups ? c->w.dims[0] / c->groups : 0, call->n = call->space_y;
  call->terms = c->w.dims[1];
  call->layout = (bytes_layout){c->w.dims[0], call->terms, call->taps, call->routines, true};
}

static bool is_empty(const bytes_call *call) { return !call->batches || !call->m || !call->n; }

static int64_t groups_of(const bytes_layout *l) { return l->taps * dc_quotient_up(l->terms, l->routines->terms); }

static uint64_t bytes_of(const bytes_layout *l) {
  const int64_t n = l->is_rows ? l->n : up(l->n, l->routines->columns);
  return (uint64_t)n * ((uint64_t)groups_of(l) * BYTES_GROUP + sizeof(int32_t));
}

/* Is there one for each, of more than one? */
static bool is_each(const dc_graph *graph, const dc_container *zero, const int64_t *symbols) {
  return zero && zero->rank == 1 && extent_of(graph, zero, 0, symbols) > 1;
}

static dc_status bind_bytes(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  bytes_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->routines = bytes_choose(graph->machine.vector_bytes);
  call->threads = (int)dc_thread_count();
  if (dc_problem_op_is(graph, node, "ConvInteger")) read_conv(call, graph, node, symbols);
  else read_product(call, graph, node, symbols);
  call->at_y = (int)dc_node_at(graph, node)->lib.n_in;
  call->a_signed = operand(graph, node, (uint32_t)call->at_a)->dtype == DC_I8;
  call->b_signed = operand(graph, node, (uint32_t)call->at_b)->dtype == DC_I8;
  call->za_each = call->at_za >= 0 && is_each(graph, operand(graph, node, (uint32_t)call->at_za), symbols);
  call->zb_each = call->at_zb >= 0 && is_each(graph, operand(graph, node, (uint32_t)call->at_zb), symbols);
  if ((double)call->m * (double)call->n * (double)call->terms < SMALL_WORK) call->threads = 1;
  const int constant = call->is_conv ? call->at_a : call->at_b;
  call->held = !is_empty(call) && dc_hold_pays(graph, node, constant, &call->hold) && !call->hold.changes;
  if (call->held) {
    call->hold.holder = handle, call->hold.layout = &call->layout, call->hold.bytes = bytes_of(&call->layout);
    call->hold.source_bytes = (uint64_t)(call->layout.n * call->terms * call->taps);
  }
  return *out = call, DC_OK;
}

static void destroy_bytes(void *opaque) {
  bytes_call *call = opaque;
  if (call->held) dc_hold_end(&call->hold);
  free(call);
}

/* ---- rows and panels ---- */

static const uint8_t SIGN = 0x80;

/* Rows, then the sum of each. */
static void lay_rows(const bytes_call *call, const bytes_layout *l, const int8_t *from, char *to) {
  const int64_t row_bytes = groups_of(l) * BYTES_GROUP, tap_bytes = row_bytes / (l->taps ? l->taps : 1), numbers = l->terms * l->taps;
  int32_t *sums = (int32_t *)(to + l->n * row_bytes);
  const uint8_t flip = call->a_signed ? 0 : SIGN;
#pragma omp parallel for schedule(static) num_threads(call->threads) if (call->threads > 1)
  for (int64_t r = 0; r < l->n; r++) {
    const int8_t *row = from + r * numbers;
    uint32_t sum = 0;
    for (int64_t t = 0; t < l->taps; t++) {
      char *at = to + r * row_bytes + t * tap_bytes;
      if (l->taps == 1) sum = (uint32_t)l->routines->lay_row(row, l->terms, flip, at);
      for (int64_t k = 0, n = l->routines->terms; l->taps > 1 && k < l->terms; k += n) {
        int8_t few[BYTES_MOST_TERMS];
        const int64_t left = l->terms - k < n ? l->terms - k : n;
        for (int64_t j = 0; j < left; j++) few[j] = row[(k + j) * l->taps + t];
        sum += (uint32_t)l->routines->lay_row(few, left, flip, at + k / n * BYTES_GROUP);
      }
    }
    sums[r] = (int32_t)sum;
  }
}

/* Panels, then the sum of each column. */
static void lay_panels(const bytes_call *call, const bytes_layout *l, const uint8_t *from, char *to) {
  const bytes_routines *r = l->routines;
  const int64_t panel_bytes = groups_of(l) * r->columns * BYTES_GROUP, panels = dc_quotient_up(l->n, r->columns);
  int32_t *sums = (int32_t *)(to + panels * panel_bytes);
  const uint8_t flip = call->b_signed ? SIGN : 0;
#pragma omp parallel for schedule(static) num_threads(call->threads) if (call->threads > 1)
  for (int64_t p = 0; p < panels; p++) {
    uint8_t some[BYTES_MOST_TERMS][BYTES_MOST_COLUMNS];
    const uint8_t *const lines[BYTES_MOST_TERMS] = {some[0], some[1], some[2], some[3]};
    const int64_t first = p * r->columns, n = l->n - first < r->columns ? l->n - first : r->columns;
    uint32_t sum[BYTES_MOST_COLUMNS] = {0};
    for (int64_t k = 0; k < l->terms; k += r->terms) {
      memset(some, flip, sizeof some);
      for (int64_t t = 0; t < r->terms && k + t < l->terms; t++) memcpy(some[t], from + (k + t) * l->n + first, (size_t)n);
      for (int t = 0; t < r->terms; t++)
        for (int j = 0; j < r->columns; j++) sum[j] += some[t][j] ^ flip;
      r->lay_columns(lines, flip, to + p * panel_bytes + k / r->terms * r->columns * BYTES_GROUP);
    }
    memcpy(sums + first, sum, (size_t)r->columns * sizeof *sum);
  }
}

static dc_status pack(void *self, const void *source, void *to) {
  const bytes_call *call = self;
  if (call->is_conv) lay_rows(call, &call->layout, source, to);
  else lay_panels(call, &call->layout, source, to);
  return DC_OK;
}

/* ---- zero points, as operands are moved ---- */

static int32_t zero_of(const void *zeros, int64_t k, bool is_signed, int32_t move) {
  if (!zeros) return move;
  return (is_signed ? ((const int8_t *)zeros)[k] : ((const uint8_t *)zeros)[k]) + move;
}

static int32_t row_zero(const bytes_call *call, void *const *buffers, int64_t row) {
  return zero_of(call->at_za < 0 ? NULL : buffers[call->at_za], call->za_each ? row : 0, call->a_signed, call->a_signed ? 0 : -128);
}

static int32_t column_zero(const bytes_call *call, void *const *buffers, int64_t column) {
  return zero_of(call->at_zb < 0 ? NULL : buffers[call->at_zb], call->zb_each ? column : 0, call->b_signed, call->b_signed ? 128 : 0);
}

/* Rows [first, end) by one panel. */
typedef struct {
  const char *rows, *panel;
  const int32_t *row_sums, *column_sums, *zeros; /* zeros: of columns */
  int64_t groups, numbers; /* numbers: terms of all taps */
  int64_t columns, row;    /* columns: of the panel that there are; row: elements from a row of the result to the next */
} bytes_product;

static void multiply(const bytes_call *call, const bytes_product *p, void *const *buffers, int64_t of_zero, int64_t first, int64_t end,
                     int32_t *to) {
  const bytes_routines *r = call->routines;
  int32_t sums[BYTES_MOST_ROWS * BYTES_MOST_COLUMNS];
  for (int64_t i = first; i < end; i += r->rows) {
    const int n = end - i < r->rows ? (int)(end - i) : r->rows;
    r->multiply(p->rows + i * p->groups * BYTES_GROUP, p->groups * BYTES_GROUP, n, p->panel, p->groups, sums);
    for (int k = 0; k < n; k++) {
      const int32_t zero = row_zero(call, buffers, of_zero + i + k);
      const uint32_t row = (uint32_t)p->row_sums[i + k] - (uint32_t)p->numbers * (uint32_t)zero;
      r->finish(sums + k * r->columns, zero, p->column_sums, (int32_t)row, p->zeros, p->columns, to + (i + k) * p->row);
    }
  }
}

/* ---- products of matrices ---- */

static void fill_zeros(const bytes_call *call, void *const *buffers, int64_t n, int32_t *zeros) {
  for (int64_t j = 0; j < n; j++) zeros[j] = j < call->n ? column_zero(call, buffers, j) : 0;
}

static void run_product(const bytes_call *call, void *const *buffers, const char *panels, char *rows, int32_t *zeros) {
  const bytes_routines *r = call->routines;
  const bytes_layout of_rows = {call->m, call->terms, 1, r, true};
  const int64_t groups = groups_of(&of_rows), count = dc_quotient_up(call->n, r->columns), panel_bytes = groups * r->columns * BYTES_GROUP;
  const int64_t tall = up(BLOCK_BYTES / (groups * BYTES_GROUP + 1) + 1, r->rows), blocks = dc_quotient_up(call->m, tall);
  lay_rows(call, &of_rows, buffers[call->at_a], rows);
  fill_zeros(call, buffers, count * r->columns, zeros);
  const int32_t *column_sums = (const int32_t *)(panels + count * panel_bytes), *row_sums = (const int32_t *)(rows + call->m * groups * BYTES_GROUP);
  int32_t *y = buffers[call->at_y];
#pragma omp parallel for collapse(2) schedule(static) num_threads(call->threads) if (call->threads > 1)
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t p = 0; p < count; p++) {
      const int64_t column = p * r->columns, left = call->n - column, end = (b + 1) * tall < call->m ? (b + 1) * tall : call->m;
      const bytes_product product = {rows, panels + p * panel_bytes, row_sums, column_sums + column, zeros + column,
                                     groups, call->terms, left < r->columns ? left : r->columns, call->n};
      multiply(call, &product, buffers, 0, b * tall, end, y + column);
    }
}

/* ---- convolutions ---- */

/* Where the windows of a panel begin: before the image's first pixel, where that is padding. */
typedef struct {
  int64_t at[BYTES_MOST_COLUMNS][MOST_SPACE];
  int n;
} windows;

static void find_windows(const bytes_call *call, int64_t first, int n, windows *w) {
  const dc_problem_conv *c = &call->conv;
  w->n = n;
  for (int j = 0; j < n; j++) {
    int64_t rest = first + j;
    for (int d = c->n - 1; d >= 0; d--) w->at[j][d] = rest % c->y.dims[2 + d] * c->strides[d] - c->left[d], rest /= c->y.dims[2 + d];
  }
}

/* By window, the pixel that a tap reads; -1: padding. */
static void find_pixels(const bytes_call *call, const windows *w, int64_t tap, int64_t *pixels) {
  const dc_problem_conv *c = &call->conv;
  int64_t step[MOST_SPACE];
  for (int d = c->n - 1; d >= 0; d--) step[d] = tap % c->w.dims[2 + d] * c->dilations[d], tap /= c->w.dims[2 + d];
  for (int j = 0; j < w->n; j++) {
    int64_t pixel = 0;
    for (int d = 0; d < c->n && pixel >= 0; d++) {
      const int64_t i = w->at[j][d] + step[d];
      pixel = i >= 0 && i < c->x.dims[2 + d] ? pixel * c->x.dims[2 + d] + i : -1;
    }
    pixels[j] = pixel;
  }
}

/* Neighbouring windows that read pixels a step apart, or padding. */
typedef struct {
  int32_t at, n;
  int64_t pixel, step; /* pixel -1: padding */
} run;

static bool goes_on(const run *last, int64_t pixel) {
  if (pixel < 0 || last->pixel < 0) return pixel < 0 && last->pixel < 0;
  return last->n == 1 ? pixel > last->pixel : pixel == last->pixel + last->n * last->step;
}

/* A run of no window is the end. */
static void find_runs(const int64_t *pixels, int n, run *runs) {
  run *last = NULL;
  for (int j = 0; j < n; j++) {
    if (!last || !goes_on(last, pixels[j])) *(last = last ? last + 1 : runs) = (run){j, 1, pixels[j], 0};
    else if (last->n++ == 1) last->step = pixels[j] - last->pixel;
  }
  (last ? last + 1 : runs)->n = 0;
}

static void read_line(const run *runs, const uint8_t *channel, uint8_t zero, uint8_t *line) {
  for (const run *r = runs; r->n; r++) {
    uint8_t *to = line + r->at;
    const uint8_t *from = channel + r->pixel;
    if (r->pixel < 0) memset(to, zero, (size_t)r->n);
    else if (r->step == 1) memcpy(to, from, (size_t)r->n);
    else
      for (int32_t k = 0; k < r->n; k++) to[k] = from[k * r->step];
  }
}

enum { MOST_RUNS = BYTES_MOST_COLUMNS + 1 };

/* By tap, what windows [first, first + n) read. */
static void find_taps(const bytes_call *call, int64_t first, int n, run *taps) {
  int64_t pixels[BYTES_MOST_COLUMNS];
  windows w;
  find_windows(call, first, n, &w);
  for (int64_t tap = 0; tap < call->taps; tap++) {
    find_pixels(call, &w, tap, pixels);
    find_runs(pixels, n, taps + tap * MOST_RUNS);
  }
}

static void unfold(const bytes_call *call, const run *taps, const uint8_t *x, uint8_t zero, char *panel) {
  const bytes_routines *r = call->routines;
  const uint8_t flip = call->b_signed ? SIGN : 0;
  uint8_t some[BYTES_MOST_TERMS][BYTES_MOST_COLUMNS];
  const uint8_t *const lines[BYTES_MOST_TERMS] = {some[0], some[1], some[2], some[3]};
  memset(some, zero, sizeof some);
  for (int64_t tap = 0; tap < call->taps; tap++)
    for (int64_t c = 0; c < call->terms; c += r->terms, panel += r->columns * BYTES_GROUP) {
      for (int64_t t = 0; t < r->terms && c + t < call->terms; t++)
        read_line(taps + tap * MOST_RUNS, x + (c + t) * call->space_x, zero, some[t]);
      r->lay_columns(lines, flip, panel);
    }
}

/* A row of ones, whose product with a panel are the sums of its columns. */
static void lay_ones(const bytes_call *call, char *to) {
  const int64_t tap_bytes = dc_quotient_up(call->terms, call->routines->terms) * BYTES_GROUP;
  const int8_t ones[BYTES_MOST_TERMS] = {1, 1, 1, 1};
  for (int64_t tap = 0; tap < call->taps; tap++)
    for (int64_t c = 0, n = call->routines->terms; c < call->terms; c += n)
      call->routines->lay_row(ones, call->terms - c < n ? call->terms - c : n, 0, to + tap * tap_bytes + c / n * BYTES_GROUP);
}

/* What a thread works in. */
typedef struct {
  char *panel;
  run *taps;
} conv_room;

/* Windows from the first one on, by the share-th part of each group's filters. */
static void run_windows(const bytes_call *call, void *const *buffers, const char *filters, const char *ones, conv_room room, int64_t image,
                        int64_t first, int64_t share, int64_t shares) {
  const bytes_routines *r = call->routines;
  const int64_t groups = groups_of(&call->layout), row_bytes = groups * BYTES_GROUP, left = call->n - first;
  const int32_t zero = column_zero(call, buffers, 0), *row_sums = (const int32_t *)(filters + call->layout.n * row_bytes);
  const uint8_t padding = (uint8_t)(zero - (call->b_signed ? 128 : 0)), *x = buffers[call->at_b];
  const int n = left < r->columns ? (int)left : r->columns;
  int32_t *y = buffers[call->at_y], column_sums[BYTES_MOST_COLUMNS], zeros[BYTES_MOST_COLUMNS];
  for (int j = 0; j < r->columns; j++) zeros[j] = zero;
  find_taps(call, first, n, room.taps);
  for (int64_t g = 0; g < call->conv.groups; g++) {
    const int64_t batch = image * call->conv.groups + g, row = g * call->m;
    unfold(call, room.taps, x + batch * call->terms * call->space_x, padding, room.panel);
    r->multiply(ones, row_bytes, 1, room.panel, groups, column_sums);
    const bytes_product product = {filters + row * row_bytes, room.panel, row_sums + row, column_sums, zeros,
                                   groups, call->terms * call->taps, n, call->n};
    multiply(call, &product, buffers, row, call->m * share / shares, call->m * (share + 1) / shares, y + batch * call->m * call->n + first);
  }
}

static uint64_t panel_room(const bytes_call *call) {
  return dc_memory_aligned((uint64_t)(groups_of(&call->layout) * call->routines->columns * BYTES_GROUP));
}

static uint64_t thread_room(const bytes_call *call) {
  return panel_room(call) + dc_memory_aligned((uint64_t)(call->taps * MOST_RUNS) * sizeof(run));
}

static void run_conv(const bytes_call *call, void *const *buffers, const char *filters, char *ones, char *rooms) {
  const int64_t count = dc_quotient_up(call->n, call->routines->columns), images = call->batches / call->conv.groups;
  const int64_t shares = dc_quotient_up(call->threads, images * count); /* of few panels each thread lays out its own */
  lay_ones(call, ones);
#pragma omp parallel for collapse(3) schedule(static) num_threads(call->threads) if (call->threads > 1)
  for (int64_t image = 0; image < images; image++)
    for (int64_t p = 0; p < count; p++)
      for (int64_t share = 0; share < shares; share++) {
        char *own = rooms + (uint64_t)omp_get_thread_num() * thread_room(call);
        const conv_room room = {own, (run *)(void *)(own + panel_room(call))};
        run_windows(call, buffers, filters, ones, room, image, p * call->routines->columns, share, shares);
      }
}

/* ---- running ---- */

/* What is laid out for a run: what could be held, then the rest. */
static uint64_t layout_room(const bytes_call *call) { return call->held ? 0 : dc_memory_aligned(bytes_of(&call->layout)); }

static uint64_t scratch_of(const void *opaque) {
  const bytes_call *call = opaque;
  const bytes_routines *r = call->routines;
  if (is_empty(call)) return 0;
  const uint64_t row_bytes = (uint64_t)groups_of(&call->layout) * BYTES_GROUP;
  const bytes_layout of_rows = {call->m, call->terms, 1, r, true};
  const uint64_t of_conv = dc_memory_aligned(row_bytes) + (uint64_t)call->threads * thread_room(call);
  const uint64_t of_product = dc_memory_aligned(bytes_of(&of_rows)) + (uint64_t)up(call->n, r->columns) * sizeof(int32_t);
  return layout_room(call) + (call->is_conv ? of_conv : of_product);
}

static dc_status run_bytes(void *opaque, void *const *buffers, void *scratch, void *stream) {
  bytes_call *call = opaque;
  (void)stream;
  if (is_empty(call)) return DC_OK;
  const void *source = buffers[call->is_conv ? call->at_a : call->at_b];
  dc_held *held = NULL;
  void *laid = scratch;
  if (call->held) DC_TRY(dc_held_take(&call->hold, source, pack, call, &held, &laid));
  else DC_TRY(pack(call, source, laid));
  char *rest = (char *)scratch + layout_room(call);
  const bytes_layout of_rows = {call->m, call->terms, 1, call->routines, true};
  const uint64_t own = dc_memory_aligned(call->is_conv ? (uint64_t)groups_of(&call->layout) * BYTES_GROUP : bytes_of(&of_rows));
  if (call->is_conv) run_conv(call, buffers, laid, rest, rest + own);
  else run_product(call, buffers, laid, rest, (int32_t *)(void *)(rest + own));
  if (held) dc_held_give(&call->hold, held);
  return DC_OK;
}

const dc_native_library dc_native_bytes = {
    .name = "bytes",
    .open = open_bytes,
    .close = dc_holder_close,
    .refuses = refuses_bytes,
    .bind = bind_bytes,
    .scratch = scratch_of,
    .run = run_bytes,
    .destroy = destroy_bytes,
};
