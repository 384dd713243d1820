/* Decompositions of matrices: LU with pivots, Cholesky's factor, triangular systems.
 *
 * Many small matrices are worked on side by side, one in each number of a vector; few or large ones one by one.  A matrix has the same
 * bits wherever it stands among the others. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/matrices.h"
#include "backends/native/problem.h"

enum { TILE_BYTES = 256 << 10 /* of a tile, that the second cache holds */, COLUMNS = MATRICES_COLUMNS };
static const double WORK_FOR_THREADS = 20e3; /* multiplications */

typedef struct {
  matrices_job job;
  const matrices_routines *routines;
  bool tiled;
  int a, x, y, u, pivots; /* buffers; -1: there is none, or nobody wants it */
  int64_t tasks, pieces;  /* what threads share; pieces of the columns of a matrix */
  int threads;
  uint64_t own; /* bytes of scratch for a thread */
} matrices_call;

static void *buffer(void *const *buffers, int at) { return at < 0 ? NULL : buffers[at]; }

static void run_task(const matrices_call *c, const matrices_job *job, int64_t task, void *scratch) {
  const int64_t from = task % c->pieces * COLUMNS;
  if (c->tiled) c->routines->tile(job, task, scratch);
  else c->routines->alone(job, task / c->pieces, from, from + COLUMNS < job->columns ? from + COLUMNS : job->columns, scratch);
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const matrices_call *c = opaque;
  matrices_job job = c->job;
  (void)stream;
  if (job.batch == 0) return DC_OK;
  job.a = buffer(buffers, c->a), job.x = buffer(buffers, c->x), job.y = buffer(buffers, c->y), job.u = buffer(buffers, c->u);
  job.pivots = buffer(buffers, c->pivots);
  const double work = (double)job.batch * (double)job.n * (double)job.n * (double)(job.kind == MATRICES_TRIANGULAR ? job.columns : job.n);
  const int threads = omp_in_parallel() || work < WORK_FOR_THREADS ? 1 : c->threads;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int part = 0; part < threads; part++)
    for (int64_t task = c->tasks * part / threads; task < c->tasks * (part + 1) / threads; task++)
      run_task(c, &job, task, (char *)scratch + (uint64_t)part * c->own);
  return DC_OK;
}

/* ---- binding ---- */

static const struct {
  const char *op;
  matrices_kind kind;
} KINDS[] = {{"LU", MATRICES_LU}, {"Cholesky", MATRICES_CHOLESKY}, {"SolveTriangular", MATRICES_TRIANGULAR}};

static int kind_of(const dc_graph *graph, const dc_library *lib) {
  for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
    if (strcmp(dc_name_text(&graph->names, lib->op), KINDS[k].op) == 0) return (int)KINDS[k].kind;
  return -1;
}

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_dtype type = (dc_dtype)dc_cont(graph, lib->in[0])->dtype;
  (void)handle;
  if (lib->wrt || kind_of(graph, lib) < 0) return "not a decomposition of a matrix";
  return type == DC_F32 || type == DC_F64 ? NULL : "a type other than f32 and f64";
}

static int wanted(const dc_library *lib, uint32_t k) { return k < lib->n_out && lib->out[k] ? (int)(lib->n_in + k) : -1; }

static uint64_t numbers(const matrices_job *job, bool tiled) {
  const uint64_t n = (uint64_t)job->n;
  if (job->kind == MATRICES_LU) return tiled ? 2 * n * n + 2 * n : (n + MATRICES_PANEL) * (n + MATRICES_PAD) + n;
  if (!tiled) return job->kind == MATRICES_CHOLESKY ? 0 : n * COLUMNS;
  return job->kind == MATRICES_CHOLESKY ? n * n : n * n + n * (uint64_t)job->columns;
}

/* Tiles that are half full are better than matrices one by one. */
static void choose_form(matrices_call *c, uint64_t size) {
  const int64_t lanes = c->routines->lanes, most = omp_get_max_threads();
  c->tiled = 2 * c->job.batch >= lanes && numbers(&c->job, true) * (uint64_t)lanes * size <= TILE_BYTES;
  c->pieces = c->tiled || c->job.kind != MATRICES_TRIANGULAR ? 1 : (c->job.columns + COLUMNS - 1) / COLUMNS;
  c->tasks = c->tiled ? (c->job.batch + lanes - 1) / lanes : c->job.batch * c->pieces;
  c->threads = (int)(c->tasks < most ? c->tasks : most);
  c->own = numbers(&c->job, c->tiled) * (c->tiled ? (uint64_t)lanes : 1) * size;
  c->own = dc_memory_aligned(c->own);
}

/* Right-hand sides are as many rows for each matrix as it has. */
static dc_status bind_sides(matrices_call *c, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_cid x = dc_node_at(graph, node)->lib.in[1];
  const uint32_t rank = dc_cont(graph, x)->rank;
  const int64_t rows = dc_ix_eval(&graph->pool, dc_cont(graph, x)->shape[rank - 2], symbols, NULL);
  c->x = 1, c->job.columns = dc_ix_eval(&graph->pool, dc_cont(graph, x)->shape[rank - 1], symbols, NULL);
  c->job.upper = dc_node_attr_int(graph, node, "upper", 0) != 0, c->job.unit = dc_node_attr_int(graph, node, "unit", 0) != 0;
  const int64_t batch = dc_problem_lines(graph, x, rank - 2, symbols);
  if (c->job.n == 0 || c->job.columns == 0) c->job.batch = 0;
  if (rows == c->job.n && batch == c->job.batch) return DC_OK;
  return dc_error(DC_ERR_SHAPE, "%lld times %lld rows of right-hand sides do not go with %lld matrices of %lld rows", (long long)batch,
                  (long long)rows, (long long)c->job.batch, (long long)c->job.n);
}

static dc_status bind_job(matrices_call *c, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *a = dc_cont(graph, lib->in[0]);
  const int64_t rows = dc_ix_eval(&graph->pool, a->shape[a->rank - 2], symbols, NULL);
  c->job.kind = (matrices_kind)kind_of(graph, lib), c->job.n = dc_ix_eval(&graph->pool, a->shape[a->rank - 1], symbols, NULL);
  if (rows != c->job.n)
    return dc_error(DC_ERR_SHAPE, "a matrix of %lld rows and %lld columns is not square", (long long)rows, (long long)c->job.n);
  c->job.batch = dc_problem_lines(graph, lib->in[0], a->rank - 2, symbols);
  c->a = 0, c->x = -1, c->y = wanted(lib, 0), c->u = wanted(lib, 1), c->pivots = wanted(lib, 2);
  if (c->job.kind == MATRICES_TRIANGULAR) DC_TRY(bind_sides(c, graph, node, symbols));
  c->routines = matrices_choose(a->dtype == DC_F64, graph->machine.vector_bytes);
  if (c->job.batch) choose_form(c, (uint64_t)dc_dtype_bytes((dc_dtype)a->dtype));
  return DC_OK;
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  matrices_call *c = calloc(1, sizeof *c);
  (void)handle;
  if (!c) return dc_error(DC_ERR_MEMORY, "out of memory");
  dc_status status = bind_job(c, graph, node, symbols);
  if (status) free(c);
  else *out = c;
  return status;
}

static uint64_t scratch_of(const void *opaque) {
  const matrices_call *c = opaque;
  return (uint64_t)c->threads * c->own;
}

const dc_native_library dc_native_matrices = {
    .name = "matrices",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
