/* Matrix products in f32 by routines of our own, where the vectors are those of AVX2 and oneDNN takes up to three times the
 * time: batches of tiny matrices, and operands whose lines push each other out of a cache and which it reads where they lie.
 *
 * It stands in for the library that a product is stamped with.  Threads share a batch, or the rows and columns of a product;
 * bits do not depend on how many there are. */
#include "backends/native/products.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { LINE_NUMBERS = DC_MEMORY_ALIGN / (int)sizeof(float), MANY = 4 };
enum { COPY_WORK = 4, TINY = 32 * 32 * 32 }; /* multiplications: of an element that is copied; of a matrix, at most */
static const double WORK_FOR_THREADS = 200e3;

typedef struct {
  const products_routines *routines;
  dc_problem_product product;
  products_job job; /* of one product: extents and steps */
  int64_t batch, room; /* room: numbers of scratch of a thread */
  int threads, across, down; /* parts of the columns and of the rows of a product; 1 where threads share a batch of many */
} products_call;

/* ---- binding ---- */

/* Of parts the k-th: whole units, but for the last. */
static int64_t part_at(int64_t n, int64_t unit, int parts, int k) {
  const int64_t at = dc_quotient_up(n, unit) * k / parts * unit;
  return at < n ? at : n;
}

static products_job part_of(const products_call *call, const products_job *whole, int part) {
  const int64_t i = part_at(whole->m, PRODUCTS_ROWS, call->down, part / call->across);
  const int64_t j = part_at(whole->n, PRODUCTS_STRIP, call->across, part % call->across);
  products_job job = *whole;
  job.m = part_at(whole->m, PRODUCTS_ROWS, call->down, part / call->across + 1) - i;
  job.n = part_at(whole->n, PRODUCTS_STRIP, call->across, part % call->across + 1) - j;
  job.a += i * whole->a_row, job.b += j * (whole->b_turned ? whole->b_row : 1), job.c += i * whole->c_row + j;
  if (whole->bias) job.bias += j;
  return job;
}

/* Of as many parts as there are threads those whose largest takes the least time, copies of both operands included. */
static void share(products_call *call) {
  const products_job *job = &call->job;
  const int threads = call->threads;
  double least = 0;
  for (int across = 1; across <= threads; across++) {
    if (threads % across) continue;
    const int64_t columns = dc_quotient_up(dc_quotient_up(job->n, PRODUCTS_STRIP), across) * PRODUCTS_STRIP;
    const int64_t rows = dc_quotient_up(dc_quotient_up(job->m, PRODUCTS_ROWS), threads / across) * PRODUCTS_ROWS;
    const double work = (double)columns * (double)rows + COPY_WORK * ((double)columns + (double)rows);
    if (across == 1 || work < least) least = work, call->across = across, call->down = threads / across;
  }
}

/* False: operands that do not fit, of which another library says so. */
static bool read_extents(products_call *call) {
  const dc_problem_product *p = &call->product;
  const dc_problem_shape *a = &p->a.stored, *b = &p->b.stored;
  if (a->rank != b->rank) return false;
  const int row = a->rank - 2, column = a->rank - 1;
  products_job *job = &call->job;
  call->batch = 1;
  for (int d = 0; d < row; d++) call->batch *= a->dims[d];
  job->m = a->dims[p->a.transposed ? column : row], job->k = a->dims[p->a.transposed ? row : column];
  job->n = b->dims[p->b.transposed ? row : column], job->b_turned = p->b.transposed;
  job->a_row = p->a.transposed ? 1 : job->k, job->a_step = p->a.transposed ? job->m : 1;
  job->b_row = p->b.transposed ? job->k : job->n, job->c_row = job->n;
  return b->dims[p->b.transposed ? column : row] == job->k;
}

/* Are rows and columns too few for oneDNN to copy operands?  A threshold of its version 3. */
static bool is_thin(const products_job *job) { return 1 / (double)job->m + 1 / (double)job->n >= 0.0038; }

static bool pays(const products_call *call) {
  const products_job *job = &call->job;
  if (job->m < PRODUCTS_ROWS || job->n == 0 || job->k == 0) return false;
  const bool clashes = (!job->b_turned && job->n % PRODUCTS_CLASHING == 0) || (job->a_step > 1 && job->m % PRODUCTS_CLASHING == 0);
  return clashes ? is_thin(job) : call->batch > 1 && (double)job->m * (double)job->n * (double)job->k <= TINY;
}

static void lay_out(products_call *call) {
  const products_job *job = &call->job;
  const double work = (double)call->batch * (double)job->m * (double)job->n * (double)job->k;
  const int most = (int)dc_thread_count();
  call->threads = work < WORK_FOR_THREADS ? 1 : most, call->across = call->down = 1;
  if (call->batch % call->threads && call->batch < MANY * call->threads) share(call);
  call->room = dc_quotient_up(call->routines->room(job), LINE_NUMBERS) * LINE_NUMBERS; /* a part needs no more */
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  (void)handle;
  *out = NULL;
  products_call read = {.routines = products_choose(graph->machine.vector_bytes)}, *call;
  bool is_product =
    dc_problem_op_is(graph, node, "MatMul") || dc_problem_op_is(graph, node, "Product") || dc_problem_op_is(graph, node, "Gemm");
  if (!read.routines || !is_product || dc_problem_type(graph, node) != DC_F32 || dc_problem_refuses(graph, node)) return DC_OK;
  read.product = dc_problem_read_product(graph, node, symbols);
  if (!read_extents(&read) || !pays(&read)) return DC_OK;
  lay_out(&read);
  if (!(call = malloc(sizeof *call))) return dc_error(DC_ERR_MEMORY, "out of memory");
  *call = read, *out = call;
  return DC_OK;
}

static uint64_t scratch_of(const void *opaque) {
  const products_call *call = opaque;
  return (uint64_t)(call->threads * call->room) * sizeof(float);
}

/* ---- running ---- */

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const products_call *call = opaque;
  const dc_problem_product *p = &call->product;
  products_job first = call->job;
  (void)stream;
  first.a = buffers[p->a.buffer], first.b = buffers[p->b.buffer], first.c = buffers[p->result];
  first.bias = p->bias >= 0 ? buffers[p->bias] : NULL;
  const int parts = call->across * call->down;
  const int64_t a = first.m * first.k, b = first.k * first.n, c = first.m * first.n;
#pragma omp parallel for num_threads(call->threads) schedule(static) if (call->threads > 1)
  for (int64_t task = 0; task < call->batch * parts; task++) {
    const int64_t s = task / parts;
    products_job job = first;
    job.a += s * a, job.b += s * b, job.c += s * c;
    if (parts > 1) job = part_of(call, &job, (int)(task % parts));
    call->routines->run(&job, (float *)scratch + omp_get_thread_num() * call->room);
  }
  return DC_OK;
}

const dc_native_library dc_native_products = {
    .name = "products",
    .stands_in = true,
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
