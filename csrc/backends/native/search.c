/* Places in ordered lines (SearchSorted), by halves: no branch depends on a value, so that the searches of neighbours run side by side.
 * NaN stands behind all numbers. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"
#include "backends/native/problem.h"

enum { BLOCK = 256 /* searches side by side */, FEW = 16 /* edges, which are compared one by one */ };
static const double WORK_FOR_THREADS = 5e3; /* searches */

typedef struct {
  const void *edges, *values;
  int64_t *places;
  int64_t n, count;
} search_line;

typedef struct {
  void (*line)(const search_line *s);
  int64_t lines, n, count, size; /* edges, values of each; bytes of a value */
  int threads;
} search_call;

/* How many edges of a line lie below a value (or on it); a step leaves half of the line, the same number for all values. */
#define SEARCH(name, type, index, target, below)                                              \
  target static void name(const search_line *s) {                                             \
    const type *e = s->edges;                                                                 \
    for (int64_t first = 0; first < s->count; first += BLOCK) {                               \
      const int64_t n = s->count - first < BLOCK ? s->count - first : BLOCK;                  \
      const type *v = (const type *)s->values + first;                                        \
      index at[BLOCK] = {0};                                                                  \
      for (int64_t left = s->n, half; left > 0; left = left > 1 ? left - half : 0) {          \
        half = left > 1 ? left / 2 : 1;                                                       \
        _Pragma("omp simd") for (int64_t k = 0; k < n; k++) {                                 \
          const type x = v[k], edge = e[(int64_t)at[k] + half - 1];                           \
          at[k] = at[k] + ((below) | (x != x) ? (index)half : (index)0);                      \
        }                                                                                     \
      }                                                                                       \
      for (int64_t k = 0; k < n; k++) s->places[first + k] = at[k];                           \
    }                                                                                         \
  }
#define SIDES(name, type, index, target)            \
  SEARCH(name##_left, type, index, target, edge < x) \
  SEARCH(name##_right, type, index, target, edge <= x)
#define TYPES(name, target)                      \
  SIDES(name##_f32, float, int32_t, target)      \
  SIDES(name##_f64, double, int64_t, target)     \
  SIDES(name##_i32, int32_t, int32_t, target)    \
  SIDES(name##_i64, int64_t, int64_t, target)    \
  static void (*const name##_lines[][2])(const search_line *) = {{name##_f32_left, name##_f32_right}, \
                                                                 {name##_f64_left, name##_f64_right}, \
                                                                 {name##_i32_left, name##_i32_right}, \
                                                                 {name##_i64_left, name##_i64_right}};
TYPES(plain, )
#ifdef __x86_64__
TYPES(avx2, __attribute__((target("avx2,fma"))))
TYPES(avx512, __attribute__((target("avx512f,avx512dq,fma"))))
#endif

static int column_of(dc_dtype type) { return type == DC_F32 ? 0 : type == DC_F64 ? 1 : type == DC_I32 ? 2 : type == DC_I64 ? 3 : -1; }

static void (*routine(dc_dtype type, bool right, uint32_t vector_bytes))(const search_line *) {
  return DC_BUILT(vector_bytes, plain_lines, avx2_lines, avx512_lines)[column_of(type)][right];
}

/* ---- running ---- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Piece `task` of the values, which are cut where lines end and into blocks. */
static void run_task(const search_call *c, void *const *buffers, int64_t task, int64_t pieces) {
  const int64_t line = task / pieces, blocks = (c->count + BLOCK - 1) / BLOCK,
                from = smaller(blocks * (task % pieces) / pieces * BLOCK, c->count);
  const int64_t at = line * c->count + from;
  search_line s = {.edges = (const char *)buffers[0] + line * c->n * c->size, .values = (const char *)buffers[1] + at * c->size};
  s.places = (int64_t *)buffers[2] + at, s.n = c->n;
  s.count = smaller(blocks * (task % pieces + 1) / pieces * BLOCK, c->count) - from;
  c->line(&s);
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const search_call *c = opaque;
  (void)scratch, (void)stream;
  if (c->lines == 0) return DC_OK;
  const int threads = omp_in_parallel() || (double)c->lines * (double)c->count < WORK_FOR_THREADS ? 1 : c->threads;
  const int64_t pieces = c->lines < threads ? threads : 1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t task = 0; task < c->lines * pieces; task++) run_task(c, buffers, task, pieces);
  return DC_OK;
}

/* ---- binding ---- */

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  (void)handle;
  if (lib->wrt || strcmp(dc_name_text(&graph->names, lib->op), "SearchSorted") != 0) return "not a search";
  const dc_container *edges = dc_cont(graph, lib->in[0]);
  int64_t n;
  if (dc_ex_is_int(&graph->pool, edges->shape[edges->rank - 1], &n) && n <= FEW) return "few edges, which are compared one by one";
  return column_of((dc_dtype)edges->dtype) < 0 ? "a type other than f32, f64, i32 and i64" : NULL;
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *edges = dc_cont(graph, lib->in[0]), *values = dc_cont(graph, lib->in[1]);
  const dc_dtype type = (dc_dtype)edges->dtype;
  search_call *c = calloc(1, sizeof *c);
  (void)handle;
  if (!c) return dc_error(DC_ERR_MEMORY, "out of memory");
  *c = (search_call){.size = dc_dtype_bytes(type), .threads = omp_get_max_threads()};
  c->line = routine(type, dc_node_attr_int(graph, node, "right", 0) != 0, graph->machine.vector_bytes);
  c->lines = dc_problem_lines(graph, lib->in[1], values->rank - 1, symbols);
  c->n = dc_ix_eval(&graph->pool, edges->shape[edges->rank - 1], symbols, NULL);
  c->count = dc_ix_eval(&graph->pool, values->shape[values->rank - 1], symbols, NULL);
  const int64_t given = dc_problem_lines(graph, lib->in[0], edges->rank - 1, symbols);
  dc_status status = DC_OK;
  if (c->n > INT32_MAX) status = dc_error(DC_ERR_SHAPE, "SearchSorted of %lld edges: at most 2147483647", (long long)c->n);
  else if (c->lines && c->n && given != c->lines)
    status = dc_error(DC_ERR_SHAPE, "SearchSorted of %lld lines of values among %lld of edges", (long long)c->lines, (long long)given);
  if (status) free(c);
  else *out = c;
  return status;
}

static uint64_t scratch_of(const void *call) { return (void)call, 0; }
const dc_native_library dc_native_search = {
    .name = "search",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
