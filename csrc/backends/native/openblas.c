/* OpenBLAS: matrix products, and convolutions as products with unfolded images.
 *
 * The library runs each product on the thread that asks; rows are shared between threads here, so
 * that they are those of the process's one team.  Others in the process may use the same library: its number of
 * threads is ours only during a call.  A copy is refused that does not know the processor. */
#include <dlfcn.h>
#include <glob.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112, MIN_ROWS = 8 };
static const double WORK_FOR_THREADS = 200e3; /* multiplications */

typedef void (*gemm_f32)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
typedef void (*gemm_f64)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
typedef struct {
  void *handle;
  gemm_f32 f32;
  gemm_f64 f64;
  int (*get_threads)(void);
  void (*set_threads)(int);
  pthread_mutex_t lock; /* of what follows */
  uint32_t n_calls;     /* that run now */
  int threads;          /* what the number was before the first of them */
} blas;

/* ---- opening ---- */

/* Wheels of scipy-openblas32 carry the library and put a prefix before its names. */
static void *symbol(void *handle, const char *name) {
  char prefixed[64];
  void *found = dlsym(handle, name);
  snprintf(prefixed, sizeof prefixed, "scipy_%s", name);
  return found ? found : dlsym(handle, prefixed);
}

static void *open_wheel(const char *folder) {
  char pattern[4096];
  glob_t found = {0};
  void *handle = NULL;
  if (!folder || snprintf(pattern, sizeof pattern, "%s/python3*/site-packages/scipy_openblas32/lib/libscipy_openblas.so", folder) >=
                     (int)sizeof pattern)
    return NULL;
  if (glob(pattern, 0, NULL, &found) == 0) handle = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
  globfree(&found);
  return handle;
}

static const char *unfit(void *handle) {
  static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Katmai", "Generic", "generic"};
  char *(*core)(void) = (char *(*)(void))symbol(handle, "openblas_get_corename");
  if (!symbol(handle, "openblas_set_num_threads") || !core) return "it is not OpenBLAS";
#if defined(__x86_64__)
  for (size_t k = 0; k < sizeof old / sizeof *old; k++)
    if (strcmp(core(), old[k]) == 0 && __builtin_cpu_supports("avx2")) return "it does not know this processor";
#else
  (void)old;
#endif
  return NULL;
}

static const char *open_openblas(const char *folder, const void *place, void **out) {
  (void)place;
  const char *given = getenv("DCML_OPENBLAS");
  void *handle = given && *given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : open_wheel(folder);
  if (!handle && !(given && *given)) handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return "no libopenblas is found";
  const char *why = unfit(handle);
  blas *b = why ? NULL : calloc(1, sizeof *b);
  if (b) {
    *b = (blas){.handle = handle, .f32 = (gemm_f32)symbol(handle, "cblas_sgemm"), .f64 = (gemm_f64)symbol(handle, "cblas_dgemm")};
    b->get_threads = (int (*)(void))symbol(handle, "openblas_get_num_threads");
    b->set_threads = (void (*)(int))symbol(handle, "openblas_set_num_threads");
    pthread_mutex_init(&b->lock, NULL);
  }
  if (!why && (!b || !b->f32 || !b->f64 || !b->get_threads)) why = "it lacks cblas_sgemm, cblas_dgemm or openblas_get_num_threads";
  if (why) {
    free(b);
    dlclose(handle);
    return why;
  }
  *out = b;
  return NULL;
}

static void close_openblas(void *opaque) {
  pthread_mutex_destroy(&((blas *)opaque)->lock);
  dlclose(((blas *)opaque)->handle);
  free(opaque);
}

/* ---- calls ---- */

typedef struct {
  blas *lib;
  bool wide, is_conv; /* wide: f64 */
  int at_once;        /* groups of images that are convolved side by side, each by one thread; 1: by all threads, one after the other */
  dc_problem_product product;
  dc_problem_conv conv;
} blas_call;

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  dc_dtype type = dc_problem_type(graph, node);
  (void)handle;
  if (type != DC_F32 && type != DC_F64) return "a type other than f32 and f64";
  return dc_problem_refuses(graph, node);
}

/* Filters' gradients are summed over the images, in their order. */
static int groups_at_once(const dc_problem_conv *c) {
  const int threads = (int)dc_thread_count();
  return c->wanted != DC_CONV_W && c->x.dims[0] * c->groups >= threads ? threads : 1;
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  blas_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->lib = handle, call->wide = dc_problem_type(graph, node) == DC_F64, call->is_conv = dc_problem_is_conv(graph, node);
  if (call->is_conv) call->conv = dc_problem_read_conv(graph, node, symbols), call->at_once = groups_at_once(&call->conv);
  else call->product = dc_problem_read_product(graph, node, symbols);
  *out = call;
  return DC_OK;
}

/* c[m,n] = a[m,k] b[k,n] (+ c), each perhaps stored transposed; `lines` is a row's length in memory. */
typedef struct {
  int64_t m, n, k;
  const char *a, *b;
  char *c;
  bool ta, tb, adds;
} gemm;

static int leading(int64_t extent) { return extent > 0 ? (int)extent : 1; }

static void multiply_rows(const blas_call *call, const gemm *g, int64_t from, int64_t rows) {
  int ta = g->ta ? TRANSPOSED : AS_IT_IS, tb = g->tb ? TRANSPOSED : AS_IT_IS, size = call->wide ? 8 : 4;
  int lda = leading(g->ta ? g->m : g->k), ldb = leading(g->tb ? g->k : g->n), ldc = leading(g->n);
  const char *a = g->a + from * (g->ta ? 1 : g->k) * size;
  char *c = g->c + from * g->n * size;
  int m = (int)rows, n = (int)g->n, k = (int)g->k;
  if (call->wide)
    call->lib->f64(ROW_MAJOR, ta, tb, m, n, k, 1, (const double *)a, lda, (const double *)g->b, ldb, g->adds, (double *)c, ldc);
  else
    call->lib->f32(ROW_MAJOR, ta, tb, m, n, k, 1, (const float *)a, lda, (const float *)g->b, ldb, g->adds ? 1.0f : 0.0f, (float *)c, ldc);
}

static void multiply(const blas_call *call, const gemm *g) {
  if (!g->m || !g->n) return;
  int threads = omp_in_parallel() || (double)g->m * (double)g->n * (double)g->k < WORK_FOR_THREADS ? 1 : omp_get_max_threads();
  if (threads > g->m / MIN_ROWS) threads = g->m < MIN_ROWS ? 1 : (int)(g->m / MIN_ROWS);
  if (threads == 1) {
    multiply_rows(call, g, 0, g->m);
    return;
  }
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    int64_t from = g->m * part / threads, to = g->m * (part + 1) / threads;
    multiply_rows(call, g, from, to - from);
  }
}

/* ---- products ---- */

static void fill_bias(char *c, const char *bias, int64_t rows, size_t row_bytes) {
  for (int64_t r = 0; r < rows; r++) memcpy(c + (size_t)r * row_bytes, bias, row_bytes);
}

static dc_status run_product(const blas_call *call, void *const *buffers) {
  const dc_problem_product *p = &call->product;
  const dc_problem_shape *a = &p->a.stored, *b = &p->b.stored;
  int64_t size = call->wide ? 8 : 4, batch = 1;
  int r = a->rank - 1;
  for (int d = 0; d < r - 1; d++) batch *= a->dims[d];
  int64_t m = a->dims[p->a.transposed ? r : r - 1], k = a->dims[p->a.transposed ? r - 1 : r], n = b->dims[p->b.transposed ? r - 1 : r];
  if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
    return dc_error(DC_ERR_UNSUPPORTED, "OpenBLAS: a matrix of more than 2^31 rows or columns");
  gemm g = {m, n, k, buffers[p->a.buffer], buffers[p->b.buffer], buffers[p->result], p->a.transposed, p->b.transposed, p->bias >= 0};
  if (p->bias >= 0) fill_bias(g.c, buffers[p->bias], batch * m, (size_t)(n * size));
  if (k == 0 && p->bias < 0 && batch * m * n > 0) memset(g.c, 0, (size_t)(batch * m * n * size));
  for (int64_t s = 0; s < batch && k > 0; s++) {
    multiply(call, &g);
    g.a += m * k * size, g.b += k * n * size, g.c += m * n * size;
  }
  return DC_OK;
}

/* ---- convolutions ---- */

/* One group of one image, unfolded: row (channel, window) holds the input under each output, 0 outside. */
typedef struct {
  const dc_problem_conv *c;
  int64_t channels, window, plane, outputs; /* input channels of a group, extents of kernel, image and output */
  int64_t size;                             /* bytes of a number */
} unfolding;

static unfolding unfold_sizes(const blas_call *call) {
  const dc_problem_conv *c = &call->conv;
  unfolding u = {c, c->w.dims[1], 1, 1, 1, call->wide ? sizeof(double) : sizeof(float)};
  for (int d = 0; d < c->n; d++) u.window *= c->w.dims[2 + d], u.plane *= c->x.dims[2 + d], u.outputs *= c->y.dims[2 + d];
  return u;
}

/* n numbers of a line from the image, where they are `step` apart; `fold` adds them back instead. */
#define MOVE(type)                                                        \
  static void move_##type(type *image, int64_t step, type *line, int64_t n, bool fold) { \
    for (int64_t o = 0; o < n && fold; o++) image[o * step] += line[o];    \
    for (int64_t o = 0; o < n && !fold; o++) line[o] = image[o * step];    \
  }
MOVE(float)
MOVE(double)

static int64_t between(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* One line of outputs (the last dimension) of one window position; base: of the line of the image, -1 outside. */
static void move_line(const unfolding *u, int64_t base, int64_t shift, char *image, char *line, bool fold) {
  const dc_problem_conv *c = u->c;
  const int last = c->n - 1;
  const int64_t n = c->y.dims[2 + last], step = c->strides[last], at = shift - c->left[last], room = c->x.dims[2 + last] - at;
  const int64_t end = base < 0 || room <= 0 ? 0 : between(dc_quotient_up(room, step), 0, n);
  const int64_t first = at < 0 ? between(dc_quotient_up(-at, step), 0, end) : 0;
  if (!fold) memset(line, 0, (size_t)(first * u->size)), memset(line + end * u->size, 0, (size_t)((n - end) * u->size));
  if (first == end) return;
  image += (base + at + first * step) * u->size, line += first * u->size;
  if (u->size == sizeof(double)) move_double((double *)image, step, (double *)line, end - first, fold);
  else move_float((float *)image, step, (float *)line, end - first, fold);
}

/* Row `row` of the unfolded matrix, from or into the image. */
static void move_row(const unfolding *u, int64_t row, char *image, char *unfolded, bool fold) {
  const dc_problem_conv *c = u->c;
  int64_t spot[DC_PROBLEM_DIMS], at[DC_PROBLEM_DIMS] = {0}, rest = row % u->window, lines = 1;
  for (int d = c->n - 1; d >= 0; d--) spot[d] = rest % c->w.dims[2 + d] * c->dilations[d], rest /= c->w.dims[2 + d];
  for (int d = 0; d + 1 < c->n; d++) lines *= c->y.dims[2 + d];
  image += row / u->window * u->plane * u->size, unfolded += row * u->outputs * u->size;
  for (int64_t l = 0; l < lines; l++) {
    int64_t base = 0;
    for (int d = 0; d + 1 < c->n; d++) {
      int64_t p = at[d] * c->strides[d] + spot[d] - c->left[d];
      base = base < 0 || p < 0 || p >= c->x.dims[2 + d] ? -1 : (base + p) * c->x.dims[3 + d];
    }
    move_line(u, base, spot[c->n - 1], image, unfolded + l * c->y.dims[1 + c->n] * u->size, fold);
    for (int d = c->n - 2; d >= 0 && ++at[d] == c->y.dims[2 + d]; d--) at[d] = 0;
  }
}

/* Rows of one channel fold into one part of the image, so channels are what threads share. */
static void move_image(const unfolding *u, char *image, char *unfolded, bool fold) {
  bool threads = !omp_in_parallel() && (double)u->channels * (double)u->window * (double)u->outputs * 8 > WORK_FOR_THREADS;
#pragma omp parallel for if (threads)
  for (int64_t channel = 0; channel < u->channels; channel++)
    for (int64_t w = 0; w < u->window; w++) move_row(u, channel * u->window + w, image, unfolded, fold);
}

/* Group k of all images' groups. */
static void run_group(const blas_call *call, const unfolding *u, int64_t k, char *unfolded, void *const *buffers) {
  const dc_problem_conv *c = &call->conv;
  const int64_t image = k / c->groups, group = k % c->groups;
  int64_t filters = c->w.dims[0] / c->groups, rows = u->channels * u->window;
  char *x = (char *)buffers[c->at_x] + k * u->channels * u->plane * u->size;
  char *w = (char *)buffers[c->at_w] + group * filters * rows * u->size;
  char *y = (char *)buffers[c->at_y] + k * filters * u->outputs * u->size;
  if (c->wanted != DC_CONV_X) move_image(u, x, unfolded, false);
  gemm forward = {filters, u->outputs, rows, w, unfolded, y, false, false, c->bias >= 0};
  gemm to_image = {rows, u->outputs, filters, w, y, unfolded, true, false, false};
  gemm to_weights = {filters, rows, u->outputs, y, unfolded, w, false, true, image > 0};
  multiply(call, c->wanted == DC_CONV_Y ? &forward : c->wanted == DC_CONV_X ? &to_image : &to_weights);
  if (c->wanted == DC_CONV_X) move_image(u, x, unfolded, true);
}

/* Bytes of one unfolded group. */
static int64_t room_of(const unfolding *u) {
  return (int64_t)dc_memory_aligned((uint64_t)(u->channels * u->window * u->outputs * u->size));
}

/* None where there is nothing to sum up. */
static uint64_t scratch_of(const void *opaque) {
  const blas_call *call = opaque;
  const dc_problem_conv *c = &call->conv;
  if (!call->is_conv || !dc_problem_elements(&c->x) || !dc_problem_elements(&c->w) || !dc_problem_elements(&c->y)) return 0;
  unfolding u = unfold_sizes(call);
  return (uint64_t)(call->at_once * room_of(&u));
}

static dc_status run_conv(const blas_call *call, void *const *buffers, char *unfolded) {
  const dc_problem_conv *c = &call->conv;
  unfolding u = unfold_sizes(call);
  int64_t rows = u.channels * u.window;
  dc_problem_shape result;
  void *into = buffers[dc_problem_conv_result(c, &result)];
  if (rows > INT32_MAX || u.outputs > INT32_MAX) return dc_error(DC_ERR_UNSUPPORTED, "OpenBLAS: an image of more than 2^31 elements");
  bool empty = !dc_problem_elements(&c->x) || !dc_problem_elements(&c->w) || !dc_problem_elements(&c->y);
  int64_t inner = c->wanted == DC_CONV_Y ? u.outputs : c->wanted == DC_CONV_X ? u.plane : u.window;
  if (empty || c->bias >= 0 || c->wanted == DC_CONV_X)
    dc_problem_fill(into, c->bias < 0 ? NULL : buffers[c->bias], (uint64_t)u.size, result.dims[0], result.dims[1], inner);
  if (empty) return DC_OK;
#pragma omp parallel for num_threads(call->at_once) schedule(static) if (call->at_once > 1)
  for (int64_t k = 0; k < c->x.dims[0] * c->groups; k++)
    run_group(call, &u, k, unfolded + omp_get_thread_num() * room_of(&u), buffers);
  return DC_OK;
}

static void take_threads(blas *b) {
  pthread_mutex_lock(&b->lock);
  if (!b->n_calls++) {
    b->threads = b->get_threads();
    b->set_threads(1);
  }
  pthread_mutex_unlock(&b->lock);
}

static void give_threads_back(blas *b) {
  pthread_mutex_lock(&b->lock);
  if (!--b->n_calls) b->set_threads(b->threads);
  pthread_mutex_unlock(&b->lock);
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  const blas_call *call = opaque;
  take_threads(call->lib);
  dc_status status = call->is_conv ? run_conv(call, buffers, scratch) : run_product(call, buffers);
  give_threads_back(call->lib);
  return status;
}

const dc_native_library dc_native_openblas = {
    .name = "openblas",
    .open = open_openblas,
    .close = close_openblas,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
