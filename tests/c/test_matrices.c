/* The libraries of matrices and of searches by what their results mean, in plain loops: each width of vectors and element type, alone and
 * side by side, operands that no vector is aligned to, results that were full of NaNs, memory behind which nothing may be written. */
#include <math.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "check.h"

enum { MAX_ARRAYS = 5, MAX_RANK = 3 };

typedef struct {
  dc_dtype type;
  int rank;
  int64_t dims[MAX_RANK];
  char *block; /* the numbers begin one number into it */
} array;

static int64_t count(const array *a) {
  int64_t n = 1;
  for (int d = 0; d < a->rank; d++) n *= a->dims[d];
  return n;
}

static size_t bytes_of(const array *a) { return (size_t)(count(a) + 1) * (size_t)dc_dtype_bytes(a->type); }

static void *data(const array *a) { return a->block + dc_dtype_bytes(a->type); }

static double get(const array *a, int64_t k) {
  if (a->type == DC_F32) return ((float *)data(a))[k];
  if (a->type == DC_F64) return ((double *)data(a))[k];
  return a->type == DC_I32 ? (double)((int32_t *)data(a))[k] : (double)((int64_t *)data(a))[k];
}

static void set(const array *a, int64_t k, double x) {
  if (a->type == DC_F32) ((float *)data(a))[k] = (float)x;
  else if (a->type == DC_F64) ((double *)data(a))[k] = x;
  else if (a->type == DC_I32) ((int32_t *)data(a))[k] = (int32_t)x;
  else ((int64_t *)data(a))[k] = (int64_t)x;
}

/* Exactly as long as it must be, so that the sanitizer sees what lies outside; every byte is one of a NaN, or of -1. */
static array make(dc_dtype type, int rank, int64_t a, int64_t b, int64_t c) {
  array made = {type, rank, {a, b, c}, NULL};
  made.block = malloc(bytes_of(&made));
  memset(made.block, 0xff, bytes_of(&made));
  return made;
}

static double noise(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 33) / 1073741824.0 - 1;
}

static dc_status run(const dc_native_library *library, dc_graph *g, dc_nid node, const array *arrays, int n) {
  void *call = NULL, *buffers[MAX_ARRAYS];
  DC_TRY(library->bind(NULL, g, node, NULL, &call));
  for (int k = 0; k < n; k++) buffers[k] = data(&arrays[k]);
  uint64_t bytes = library->scratch(call);
  void *scratch = dc_host_memory.take(NULL, bytes, NULL);
  dc_status status = library->run(call, buffers, scratch, NULL);
  dc_host_memory.give(NULL, scratch, bytes, NULL);
  library->destroy(call);
  return status;
}

static void apply(const dc_native_library *library, const char *op, uint32_t width, const dc_attr *attr, uint32_t n_attr, dc_graph *g,
                  const array *arrays, int n_in, int n) {
  dc_cid ids[MAX_ARRAYS];
  g->machine.vector_bytes = width;
  for (int k = 0; k < n; k++) {
    dc_ex dims[MAX_RANK];
    for (int d = 0; d < arrays[k].rank; d++) dims[d] = dc_ex_int(&g->pool, arrays[k].dims[d]);
    ids[k] = dc_container_add(g, "t", arrays[k].type, (uint32_t)arrays[k].rank, dims, k < n_in ? DC_ROLE_INPUT : DC_ROLE_TEMP);
  }
  dc_nid node = dc_node_library(g, op, "dcml", 1, ids, (uint32_t)n_in, ids + n_in, (uint32_t)(n - n_in), attr, n_attr);
  const char *why = library->refuses(NULL, g, node);
  CHECK(!why);
  CHECK_OK(run(library, g, node, arrays, n));
  dc_graph_destroy(g);
}

/* The largest distance of sum_k L[i,k] R[k,j] from X[i,j]; NaN where one is NaN. */
static double distance(const array *l, const array *r, const array *x, int64_t m, bool turned) {
  const int64_t rows = x->dims[1], columns = x->dims[2], n = l->dims[2];
  double worst = 0;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      double s = 0;
      for (int64_t k = 0; k < n; k++)
        s += get(l, (m * rows + i) * n + k) * get(r, turned ? (m * columns + j) * n + k : (m * n + k) * columns + j);
      const double d = fabs(s - get(x, (m * rows + i) * columns + j));
      if (!(d <= worst)) worst = d;
    }
  return worst;
}

/* ---- decompositions ---- */

static array random_matrices(dc_dtype type, int64_t batch, int64_t n, double diagonal) {
  array a = make(type, 3, batch, n, n);
  uint64_t state = 7;
  for (int64_t k = 0; k < count(&a); k++) set(&a, k, noise(&state) + (k % (n * n) % (n + 1) == 0 ? diagonal : 0));
  return a;
}

static double limit(dc_dtype type, int64_t n) { return (type == DC_F32 ? 1e-5 : 1e-13) * (double)(n * n + 1); }

static void release(array *arrays, int n) {
  for (int k = 0; k < n; k++) free(arrays[k].block);
}

static void check_lu(dc_dtype type, uint32_t width, int64_t batch, int64_t n) {
  array t[] = {random_matrices(type, batch, n, 0), make(type, 3, batch, n, n), make(type, 3, batch, n, n), make(DC_I64, 2, batch, n, 0)};
  apply(&dc_native_matrices, "LU", width, NULL, 0, dc_graph_create("g"), t, 1, 4);
  bool good = true;
  for (int64_t m = 0; m < batch; m++) {
    good &= distance(&t[1], &t[2], &t[0], m, false) <= limit(type, n);
    for (int64_t j = 0; j < n; j++) {
      const int64_t p = (int64_t)get(&t[3], m * n + j);
      good &= p >= 0 && p < n && get(&t[2], (m * n + j) * n + j) == 1;
      for (int64_t c = 0; c < j; c++) good &= get(&t[2], (m * n + j) * n + c) == 0;
      for (int64_t c = j + 1; good && c < n; c++) good &= get(&t[1], (m * n + p) * n + c) == 0; /* what was a pivot is done */
      for (int64_t i = 0; good && i < n; i++) good &= fabs(get(&t[1], (m * n + i) * n + j)) <= fabs(get(&t[1], (m * n + p) * n + j));
    }
  }
  CHECK(good);
  release(t, 4);
}

static void check_cholesky(dc_dtype type, uint32_t width, int64_t batch, int64_t n) {
  array t[] = {random_matrices(type, batch, n, 2 * (double)n), make(type, 3, batch, n, n)};
  for (int64_t k = 0; k < count(&t[0]); k++) { /* symmetric */
    const int64_t m = k / (n * n), i = k / n % n, j = k % n;
    if (i < j) set(&t[0], k, get(&t[0], (m * n + j) * n + i));
  }
  apply(&dc_native_matrices, "Cholesky", width, NULL, 0, dc_graph_create("g"), t, 1, 2);
  bool good = true;
  for (int64_t m = 0; m < batch; m++) {
    good &= distance(&t[1], &t[1], &t[0], m, true) <= 4 * limit(type, n);
    for (int64_t k = 0; k < n * n; k++) good &= k / n >= k % n || get(&t[1], m * n * n + k) == 0;
  }
  CHECK(good);
  release(t, 2);
}

/* What a system does not read is NaN. */
static void check_triangular(dc_dtype type, uint32_t width, int64_t batch, int64_t n, int64_t columns, bool upper, bool unit) {
  array t[] = {random_matrices(type, batch, n, 4), make(type, 3, batch, n, columns), make(type, 3, batch, n, columns)};
  dc_graph *g = dc_graph_create("g");
  dc_attr attr[] = {dc_attr_int(g, "upper", upper), dc_attr_int(g, "unit", unit)};
  uint64_t state = 3;
  for (int64_t k = 0; k < count(&t[1]); k++) set(&t[1], k, noise(&state));
  for (int64_t k = 0; k < count(&t[0]); k++) {
    const int64_t i = k / n % n, j = k % n;
    set(&t[0], k, (i == j && unit) || (upper ? i > j : i < j) ? NAN : get(&t[0], k) / (i == j ? 1 : (double)n));
  }
  apply(&dc_native_matrices, "SolveTriangular", width, attr, 2, g, t, 2, 3);
  for (int64_t k = 0; k < count(&t[0]); k++)
    if (isnan(get(&t[0], k))) set(&t[0], k, k / n % n == k % n);
  bool good = true;
  for (int64_t m = 0; m < batch; m++) good &= distance(&t[0], &t[2], &t[1], m, false) <= limit(type, n);
  CHECK(good);
  release(t, 3);
}

static void matrices_come_apart_and_systems_are_solved(dc_dtype type, uint32_t width) {
  static const int64_t batches[] = {0, 1, 3, 8, 37}, sizes[] = {0, 1, 2, 5, 17, 41};
  for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      check_lu(type, width, batches[b], sizes[s]);
      check_cholesky(type, width, batches[b], sizes[s]);
      for (int flags = 0; flags < 4; flags++)
        for (int64_t columns = 0; columns < 4; columns++)
          check_triangular(type, width, batches[b], sizes[s], columns, flags & 1, flags & 2);
      check_triangular(type, width, batches[b], sizes[s], 131, true, false); /* pieces of columns */
    }
}

/* Of singular ones, a NaN among the others, and zeros. */
static void what_is_special_stays_in_its_matrix(dc_dtype type, uint32_t width) {
  enum { BATCH = 19, N = 4, SIZE = N * N };
  array plain[] = {random_matrices(type, BATCH, N, 0), make(type, 3, BATCH, N, N), make(type, 3, BATCH, N, N),
                 make(DC_I64, 2, BATCH, N, 0)};
  array odd[] = {random_matrices(type, BATCH, N, 0), make(type, 3, BATCH, N, N), make(type, 3, BATCH, N, N),
                 make(DC_I64, 2, BATCH, N, 0)};
  set(&odd[0], 5 * SIZE + 6, NAN);
  for (int64_t k = 0; k < SIZE; k++) set(&odd[0], 7 * SIZE + k, 0), set(&odd[0], 8 * SIZE + k, 1);
  apply(&dc_native_matrices, "LU", width, NULL, 0, dc_graph_create("g"), plain, 1, 4);
  apply(&dc_native_matrices, "LU", width, NULL, 0, dc_graph_create("g"), odd, 1, 4);
  bool same = true, zero = true;
  for (int64_t k = 0; k < BATCH * SIZE; k++) {
    const int64_t m = k / SIZE;
    same &= m == 5 || m == 7 || m == 8 || (get(&plain[1], k) == get(&odd[1], k) && get(&plain[2], k) == get(&odd[2], k));
    zero &= m != 7 || (get(&odd[1], k) == 0 && get(&odd[2], k) == (k % SIZE % (N + 1) == 0));
  }
  for (int64_t m = 0; m < BATCH; m++) { /* pivots are an order of rows, whatever the numbers */
    int64_t rows = 0;
    for (int64_t j = 0; j < N; j++) rows |= 1 << (int64_t)get(&odd[3], m * N + j);
    CHECK(rows == (1 << N) - 1);
  }
  CHECK(same && zero);
  CHECK(distance(&odd[1], &odd[2], &odd[0], 8, false) == 0);
  release(plain, 4), release(odd, 4);
}

/* ---- searches ---- */

static void check_search(dc_dtype type, uint32_t width, int64_t lines, int64_t n, int64_t m, bool right) {
  array t[] = {make(type, 2, lines, n, 0), make(type, 2, lines, m, 0), make(DC_I64, 2, lines, m, 0)};
  dc_graph *g = dc_graph_create("g");
  dc_attr attr = dc_attr_int(g, "right", right);
  const bool real = type == DC_F32 || type == DC_F64;
  uint64_t state = 5;
  for (int64_t k = 0; k < lines * n; k++) set(&t[0], k, (double)(k % n / 2) - (k < n ? 0 : 3));
  for (int64_t k = 0; k < lines * m; k++) set(&t[1], k, floor(noise(&state) * (double)(n / 2 + 2)));
  for (int64_t k = 0; k < 3 && k < m && lines && real; k++) set(&t[1], k, k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY);
  apply(&dc_native_search, "SearchSorted", width, &attr, 1, g, t, 2, 3);
  bool good = true;
  for (int64_t k = 0; k < lines * m; k++) {
    int64_t place = 0;
    const double x = get(&t[1], k);
    for (int64_t e = 0; e < n; e++) place += isnan(x) || (right ? get(&t[0], k / m * n + e) <= x : get(&t[0], k / m * n + e) < x);
    good &= (int64_t)get(&t[2], k) == place;
  }
  CHECK(good);
  release(t, 3);
}

static void places_are_those_that_counting_finds(dc_dtype type, uint32_t width) {
  static const int64_t edges[] = {17, 18, 31, 64, 1000}, values[] = {0, 1, 7, 255, 256, 257, 3000};
  for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
      for (int64_t lines = 0; lines < 4; lines++) check_search(type, width, lines, edges[e], values[v], lines & 1);
}

/* ---- shapes that do not go together ---- */

static void bind_refuses(const dc_native_library *library, const char *op, array *t, int n_in, int n, const char *part) {
  dc_graph *g = dc_graph_create("g");
  dc_cid ids[MAX_ARRAYS];
  void *call = NULL;
  for (int k = 0; k < n; k++) {
    dc_ex dims[MAX_RANK];
    for (int d = 0; d < t[k].rank; d++) dims[d] = dc_ex_int(&g->pool, t[k].dims[d]);
    ids[k] = dc_container_add(g, "t", t[k].type, (uint32_t)t[k].rank, dims, k < n_in ? DC_ROLE_INPUT : DC_ROLE_TEMP);
  }
  dc_nid node = dc_node_library(g, op, "dcml", 1, ids, (uint32_t)n_in, ids + n_in, (uint32_t)(n - n_in), NULL, 0);
  CHECK_ERROR(library->bind(NULL, g, node, NULL, &call), DC_ERR_SHAPE, part);
  dc_graph_destroy(g);
}

static void shapes_that_do_not_go_together_are_errors(void) {
  array oblong[] = {{DC_F32, 3, {2, 3, 4}, NULL}, {DC_F32, 3, {2, 3, 4}, NULL}};
  bind_refuses(&dc_native_matrices, "Cholesky", oblong, 1, 2, "3 rows and 4 columns");
  array few[] = {{DC_F32, 3, {2, 3, 3}, NULL}, {DC_F32, 3, {1, 3, 5}, NULL}, {DC_F32, 3, {2, 3, 5}, NULL}};
  bind_refuses(&dc_native_matrices, "SolveTriangular", few, 2, 3, "right-hand sides");
  array shallow[] = {{DC_F32, 3, {2, 3, 3}, NULL}, {DC_F32, 3, {2, 2, 5}, NULL}, {DC_F32, 3, {2, 2, 5}, NULL}};
  bind_refuses(&dc_native_matrices, "SolveTriangular", shallow, 2, 3, "right-hand sides");
  array lines[] = {{DC_F32, 2, {2, 30}, NULL}, {DC_F32, 2, {3, 7}, NULL}, {DC_I64, 2, {3, 7}, NULL}};
  bind_refuses(&dc_native_search, "SearchSorted", lines, 2, 3, "3 lines of values");
}

/* Products of extents beyond all bounds, of arrays without elements. */
static void what_is_empty_may_be_of_any_extent(void) {
  const int64_t many = (int64_t)1 << 40;
  array t[] = {{DC_F64, 3, {0, many, many}, NULL}, {DC_F64, 3, {0, many, many}, NULL}};
  for (int k = 0; k < 2; k++) t[k].block = malloc(16);
  apply(&dc_native_matrices, "Cholesky", 64, NULL, 0, dc_graph_create("g"), t, 1, 2);
  release(t, 2);
  array flat[] = {{DC_F64, 3, {many, 0, 0}, NULL}, {DC_F64, 3, {many, 0, many}, NULL}, {DC_F64, 3, {many, 0, many}, NULL}};
  for (int k = 0; k < 3; k++) flat[k].block = malloc(16);
  apply(&dc_native_matrices, "SolveTriangular", 64, NULL, 0, dc_graph_create("g"), flat, 2, 3);
  release(flat, 3);
  array values[] = {{DC_F64, 2, {many, 17}, NULL}, {DC_F64, 2, {many, 0}, NULL}, {DC_I64, 2, {many, 0}, NULL}};
  for (int k = 0; k < 3; k++) values[k].block = malloc(16);
  apply(&dc_native_search, "SearchSorted", 64, NULL, 0, dc_graph_create("g"), values, 2, 3);
  release(values, 3);
}

int main(void) {
  static const uint32_t widths[] = {16, 32, 64};
  static const dc_dtype types[] = {DC_F32, DC_F64, DC_I32, DC_I64};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (int t = 0; t < 4; t++) {
      places_are_those_that_counting_finds(types[t], widths[w]);
      if (t >= 2) continue;
      matrices_come_apart_and_systems_are_solved(types[t], widths[w]);
      what_is_special_stays_in_its_matrix(types[t], widths[w]);
    }
  shapes_that_do_not_go_together_are_errors();
  what_is_empty_may_be_of_any_extent();
  return check_report();
}
