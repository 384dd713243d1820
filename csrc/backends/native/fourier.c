/* Fourier transforms (DFT) and their gradients, which are transforms that turn the other way, of any length.
 *
 * As many lines as a vector has numbers are transformed side by side; they move into a tile and out of it again, where no
 * number meets one of another line.  A long line, or one of few, is split: as a matrix whose columns are transformed, turned, and
 * then its rows. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/fourier.h"
#include "backends/native/library.h"

enum { TILE_BYTES = 512 << 10 /* of a tile, that the second cache holds */, SHORT = 512 /* lines of which even few are not split */,
       LONG = 1 << 19 /* lines that threads share: of a shorter one they hand each other more than they save */ };
static const double WORK_FOR_THREADS = 20e3; /* numbers */

typedef struct {
  fourier_job job, columns, rows;
  fourier_plan *plan, *column_plan, *row_plan; /* the last two: NULL where lines are not split */
  void *half_turns, *twiddles;
  const fourier_routines *routines, *line;
  bool wide;
  int x, y, threads;     /* buffers */
  uint64_t tile, buffer; /* bytes for a thread: of a tile, of a line (there are two) */
} fourier_call;

/* ---- running ---- */

static int64_t tiles_of(const fourier_call *c, const fourier_job *job) {
  return (job->lines + c->routines->lanes - 1) / c->routines->lanes;
}

static uint64_t thread(int threads) { return threads > 1 ? (uint64_t)omp_get_thread_num() : 0; }

static void run_tiles(const fourier_call *c, const fourier_job *job, const void *x, void *y, char *scratch, int threads) {
  const int64_t n = tiles_of(c, job);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t tile = 0; tile < n; tile++) c->routines->tile(job, x, y, tile, scratch + thread(threads) * c->tile);
}

/* The matrix `a` is worked on in place. */
static void run_split(const fourier_call *c, void *a, void *b, char *scratch, int threads) {
  run_tiles(c, &c->columns, a, a, scratch, threads);
  run_tiles(c, &c->rows, a, b, scratch, threads);
}

static void run_line(const fourier_call *c, const void *x, void *y, int64_t line, char *buffers, char *scratch, int threads) {
  void *a = buffers, *b = buffers + c->buffer;
  c->line->open(&c->job, x, line, a);
  run_split(c, a, b, scratch, threads);
  if (c->plan->chirp) {
    c->line->convolve(c->plan, b);
    run_split(c, b, a, scratch, threads);
  }
  c->line->close(&c->job, c->plan->chirp ? a : b, y, line);
}

/* Lines that are split are shared by threads where there are enough, else each of them is: outside any region, since one inside
 * another, even if that has one thread, makes new threads each time. */
static void run_lines(const fourier_call *c, const void *x, void *y, char *scratch, int threads) {
  const int inside = c->job.size < LONG ? 1 : threads;
  char *buffers = scratch + (uint64_t)c->threads * c->tile;
  if (threads == 1 || c->job.lines < threads) {
    for (int64_t line = 0; line < c->job.lines; line++) run_line(c, x, y, line, buffers, scratch, inside);
    return;
  }
#pragma omp parallel for num_threads(threads)
  for (int64_t line = 0; line < c->job.lines; line++) {
    const uint64_t own = thread(threads);
    run_line(c, x, y, line, buffers + 2 * own * c->buffer, scratch + own * c->tile, 1);
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const fourier_call *c = opaque;
  (void)stream;
  const bool few = (double)c->job.lines * (double)c->job.size < WORK_FOR_THREADS;
  const int threads = omp_in_parallel() || few ? 1 : c->threads;
  const int64_t made = c->job.lines * c->job.out.count * c->job.out.lane;
  if (c->job.size < 1 && made > 0) memset(buffers[c->y], 0, (size_t)made * (c->wide ? 8 : 4));
  if (c->job.size < 1) return DC_OK;
  if (c->row_plan) run_lines(c, buffers[c->x], buffers[c->y], scratch, threads);
  else run_tiles(c, &c->job, buffers[c->x], buffers[c->y], scratch, threads);
  return DC_OK;
}

static uint64_t scratch_of(const void *opaque) {
  const fourier_call *c = opaque;
  return (uint64_t)c->threads * (c->tile + (c->row_plan ? 2 * c->buffer : 0));
}

static void destroy(void *opaque) {
  fourier_call *c = opaque;
  if (!c) return;
  fourier_plan_free(c->plan), fourier_plan_free(c->column_plan), fourier_plan_free(c->row_plan);
  free(c->half_turns), free(c->twiddles), free(c);
}

/* ---- splitting ---- */

/* Rows of a matrix of n numbers: near its root, and so that tiles are full if that can be; 0: there is none. */
static int64_t rows_of(int64_t n, int64_t lanes) {
  int64_t best = 0, best_value = 0, root = (int64_t)sqrt((double)n);
  for (int64_t d = root; d >= 8 && d >= root / 8; d--) {
    const int64_t value = n % d ? 0 : 1 + 2 * (n / d % lanes == 0) + (d % lanes == 0);
    if (value > best_value) best = d, best_value = value;
  }
  return best;
}

static uint64_t bytes_of(const fourier_call *c, const fourier_plan *plan, int lanes) {
  const uint64_t bytes = (uint64_t)fourier_plan_rows(plan) * 2 * (uint64_t)lanes * (c->wide ? 8 : 4);
  return dc_memory_aligned(bytes);
}

/* e^(-2 pi i jk/n) for result k of column j, as tiles have it. */
static dc_status turn_columns(fourier_call *c, int64_t n1, int64_t n2) {
  const int64_t lanes = c->routines->lanes, tiles = tiles_of(c, &c->columns);
  double pair[2];
  c->twiddles = malloc((size_t)(tiles * n1 * lanes) * (c->wide ? 16 : 8));
  if (!c->twiddles) return dc_error(DC_ERR_MEMORY, "out of memory");
  for (int64_t j = 0; j < tiles * lanes; j++)
    for (int64_t k = 0; k < n1; k++) {
      const int64_t at = (j / lanes * n1 + k) * 2 * lanes + j % lanes;
      fourier_turn(j * k, n1 * n2, pair);
      for (int part = 0; part < 2; part++) {
        if (c->wide) ((double *)c->twiddles)[at + part * lanes] = pair[part];
        else ((float *)c->twiddles)[at + part * lanes] = (float)pair[part];
      }
    }
  c->columns.twiddles = c->twiddles;
  return DC_OK;
}

/* Number j1 n2 + j2 of a line, result k1 + n1 k2. */
static dc_status split(fourier_call *c, int64_t n1) {
  const int64_t n2 = c->plan->length / n1;
  DC_TRY(fourier_plan_make(n1, c->wide, true, &c->column_plan));
  DC_TRY(fourier_plan_make(n2, c->wide, true, &c->row_plan));
  const fourier_view down = {.step = 2 * n2, .imaginary = 1, .lane = 2, .count = n1};
  const fourier_view along = {.step = 2, .imaginary = 1, .lane = 2 * n2, .count = n2};
  const fourier_view turned = {.step = 2 * n1, .imaginary = 1, .lane = 2, .count = n2};
  c->columns = (fourier_job){.size = n1, .lines = n2, .inner = n2, .in = down, .out = down, .plan = c->column_plan, .scale = 1};
  c->rows = (fourier_job){.size = n2, .lines = n1, .inner = n1, .in = along, .out = turned, .plan = c->row_plan, .scale = 1};
  const uint64_t column = bytes_of(c, c->column_plan, c->routines->lanes), row = bytes_of(c, c->row_plan, c->routines->lanes);
  c->tile = column > row ? column : row, c->buffer = bytes_of(c, c->plan, 1);
  return turn_columns(c, n1, n2);
}

/* ---- tables ---- */

static dc_status fill_half_turns(fourier_call *c) {
  double pair[2];
  c->half_turns = malloc((size_t)(c->plan->n / 2 + 1) * (c->wide ? 16 : 8));
  if (!c->half_turns) return dc_error(DC_ERR_MEMORY, "out of memory");
  for (int64_t k = 0; k <= c->plan->n / 2; k++) {
    fourier_turn(k, c->job.size, pair);
    pair[1] = -pair[1];
    fourier_put(c->half_turns, c->wide, k, pair);
  }
  c->job.half_turns = c->half_turns;
  return DC_OK;
}

static dc_status prepare(fourier_call *c);

/* The spectrum of the chirp by a transform of the same kind. */
static dc_status fill_spectrum(fourier_call *c) {
  const int64_t n = c->plan->n, m = c->plan->length;
  const fourier_view line = {.step = 2, .imaginary = 1, .lane = 2, .outer = 2, .count = m};
  fourier_call of = {.wide = c->wide, .y = 1, .threads = 1, .routines = c->routines, .line = c->line};
  of.job = (fourier_job){.size = m, .lines = 1, .inner = 1, .in = line, .out = line, .scale = 1 / (double)m};
  dc_status status = prepare(&of);
  const size_t number = c->wide ? 16 : 8, bytes = (size_t)m * number, scratch_bytes = status ? 0 : scratch_of(&of);
  void *b = calloc(1, bytes), *spectrum = malloc(bytes), *scratch = aligned_alloc(DC_MEMORY_ALIGN, scratch_bytes + DC_MEMORY_ALIGN);
  if (!status && (!b || !spectrum || !scratch)) status = dc_error(DC_ERR_MEMORY, "out of memory");
  for (int64_t k = 0, square = 0; k < n && !status; square = (square + 2 * k + 1) % (2 * n), k++) {
    double pair[2];
    fourier_turn(square, 2 * n, pair);
    pair[1] = -pair[1];
    fourier_put(b, c->wide, k, pair);
    if (k) fourier_put(b, c->wide, m - k, pair);
  }
  if (!status) status = run_call(&of, (void *[]){b, spectrum}, scratch, NULL);
  for (int64_t k = 0; k < m && !status && c->plan->places; k++)
    memcpy((char *)b + (size_t)c->plan->places[k] * number, (char *)spectrum + (size_t)k * number, number);
  if (!status) c->plan->spectrum = c->plan->places ? b : spectrum;
  free(c->plan->spectrum == b ? spectrum : b), free(scratch);
  if (status) free(spectrum);
  fourier_plan_free(of.plan), fourier_plan_free(of.column_plan), fourier_plan_free(of.row_plan), free(of.twiddles);
  return status;
}

/* What a job needs besides its sizes. */
static dc_status prepare(fourier_call *c) {
  const int lanes = c->routines->lanes;
  const bool pairs = c->job.kind != FOURIER_COMPLEX && c->job.size % 2 == 0;
  const int64_t n = pairs ? c->job.size / 2 : c->job.size, length = fourier_is_smooth(n) ? n : fourier_good_length(2 * n - 1);
  const bool few = c->job.lines <= lanes / 2 && length >= SHORT, long_line = length * 2 * lanes * (c->wide ? 8 : 4) > TILE_BYTES;
  const int64_t n1 = few || long_line ? rows_of(length, lanes) : 0;
  DC_TRY(fourier_plan_make(n, c->wide, !n1, &c->plan));
  c->job.plan = c->plan;
  c->tile = bytes_of(c, c->plan, lanes);
  if (pairs) DC_TRY(fill_half_turns(c));
  if (c->plan->chirp) DC_TRY(fill_spectrum(c));
  return n1 ? split(c, n1) : DC_OK;
}

/* ---- binding ---- */

static bool known_number(const dc_graph *graph, dc_cid c, dc_ex *known, int64_t *value) {
  const dc_container *k = dc_cont(graph, c);
  *known = 0;
  if (k->known && k->known_count == 1) return *known = k->known[0], true;
  return dc_container_number(graph, c, value);
}

static uint32_t inputs_of(const dc_library *lib) { return lib->wrt ? lib->n_fwd_in : lib->n_in; }
static dc_cid input(const dc_library *lib, uint32_t k) { return k < inputs_of(lib) ? lib->in[k] : 0; }

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *x = dc_cont(graph, lib->in[0]);
  dc_ex known = 0;
  int64_t value;
  (void)handle;
  if (strcmp(dc_name_text(&graph->names, lib->op), "DFT") != 0 || lib->wrt > 1) return "not a Fourier transform";
  if (x->dtype != DC_F32 && x->dtype != DC_F64) return "a type other than f32 and f64";
  if (!dc_ex_is_int(&graph->pool, x->shape[x->rank - 1], &value) || value < 1 || value > 2) return "neither real nor complex numbers";
  for (uint32_t k = 1; k < 3; k++)
    if (input(lib, k) && !known_number(graph, input(lib, k), &known, &value)) return "a length or an axis that is computed";
  if (input(lib, 2) && known) return "a length or an axis that is computed";
  return NULL;
}

/* Of an array whose lines run along an axis, the last one being the parts of a number. */
static fourier_view view_of(const dc_graph *graph, dc_cid c, uint32_t axis, const int64_t *symbols, int64_t *lines, int64_t *inner) {
  const dc_container *k = dc_cont(graph, c);
  const uint32_t last = k->rank - 1;
  const int64_t parts = dc_ix_eval(&graph->pool, k->shape[last], symbols, NULL);
  const int64_t n = dc_ix_eval(&graph->pool, k->shape[axis], symbols, NULL);
  *lines = *inner = 1;
  for (uint32_t d = 0; d < last; d++) {
    const int64_t extent = d == axis ? 1 : dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
    *lines *= extent;
    if (d > axis) *inner *= extent;
  }
  return (fourier_view){.step = *inner * parts, .imaginary = parts > 1, .lane = parts, .outer = n * *inner * parts, .count = n};
}

static int64_t value_of(const dc_graph *graph, dc_cid c, const int64_t *symbols) {
  dc_ex known;
  int64_t value = 0;
  return known_number(graph, c, &known, &value) && known ? dc_ix_eval(&graph->pool, known, symbols, NULL) : value;
}

/* The adjoint of a transform turns the other way: of real numbers it makes such, of a real result all that it stands for. */
static void describe(fourier_call *c, bool gradient, bool inverse, bool onesided) {
  fourier_job *job = &c->job;
  const bool folded = inverse && onesided, complex = (gradient ? job->out.imaginary : job->in.imaginary) != 0;
  job->scale = inverse ? 1 / (double)job->size : 1;
  if (folded) {
    job->kind = gradient ? FOURIER_FROM_REAL : FOURIER_TO_REAL, job->doubles = gradient;
  } else if (complex) {
    job->kind = FOURIER_COMPLEX, job->inverse = inverse != gradient;
  } else {
    job->kind = gradient ? FOURIER_TO_REAL : FOURIER_FROM_REAL, job->conjugate = inverse;
    job->whole = gradient && !onesided, job->halves = gradient && onesided;
  }
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *x = dc_cont(graph, lib->in[0]);
  const bool inverse = dc_node_attr_int(graph, node, "inverse", 0), onesided = dc_node_attr_int(graph, node, "onesided", 0);
  const int64_t usual = lib->since < 20 ? dc_node_attr_int(graph, node, "axis", 1) : (int64_t)x->rank - 2;
  const int64_t axis = input(lib, 2) ? value_of(graph, input(lib, 2), symbols) : usual;
  const uint32_t at = (uint32_t)(axis < 0 ? axis + x->rank : axis);
  fourier_call *c = calloc(1, sizeof *c);
  int64_t lines, inner;
  (void)handle;
  if (!c) return dc_error(DC_ERR_MEMORY, "out of memory");
  c->wide = x->dtype == DC_F64, c->x = lib->wrt ? (int)lib->n_fwd_in + 1 : 0, c->y = (int)lib->n_in, c->threads = omp_get_max_threads();
  c->routines = fourier_choose(c->wide, graph->machine.vector_bytes), c->line = fourier_line_routines(c->wide);
  c->job.in = view_of(graph, lib->in[c->x], at, symbols, &lines, &inner);
  c->job.out = view_of(graph, lib->out[0], at, symbols, &lines, &inner);
  const int64_t n = lib->wrt ? c->job.out.count : c->job.in.count;
  c->job.size = input(lib, 1) ? value_of(graph, input(lib, 1), symbols) : inverse && onesided ? 2 * (n - 1) : n;
  c->job.lines = lines, c->job.inner = inner;
  describe(c, lib->wrt, inverse, onesided);
  dc_status status = c->job.size > 0 && lines > 0 ? prepare(c) : DC_OK;
  if (status) destroy(c);
  else *out = c;
  return status;
}

const dc_native_library dc_native_fourier = {
    .name = "fourier",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy,
};
