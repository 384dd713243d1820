/* Products and convolutions with their gradients as plain loops in double, and nodes of them bound to a library.
 * One reference, Conv's triple (n, output, kernel), gives forward and both gradients; likewise for products. */
#ifndef DCML_TEST_NATIVE_CASES_H
#define DCML_TEST_NATIVE_CASES_H

#include <math.h>
#include <pthread.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "check.h"

enum { MAX_IN = 6 };
static const dc_native_library *library;
static void *handle;

/* How a library meets the numbers, which the loops read as floats. */
static struct {
  dc_dtype type;   /* 0: f32 */
  bool last;       /* images and filters lie channels-last ... */
  bool rows;       /* ... but filters row-major */
  bool leaves_rows; /* ... but results row-major */
  int shift;       /* bytes by which buffers miss an alignment */
  double tolerance; /* 0: that of f32 */
  uint32_t vector_bytes; /* 0: a typical machine's */
  bool insists;          /* what is refused is bound all the same */
  bool params;           /* inputs are parameters, whose contents change between runs */
  bool again;            /* filters change between runs, whatever they are */
  bool trained;          /* the graph has a backward pass */
  const char *refusals; /* reasons that a library may give, in one text; NULL: none */
} meets;

typedef struct {
  int rank;
  int64_t dims[6];
} shape;

static int64_t count(const shape *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dims[d];
  return n;
}

static float *random_floats(int64_t n, uint64_t state) {
  float *data = malloc((size_t)(n + 1) * sizeof *data);
  for (int64_t k = 0; k < n; k++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    data[k] = (float)((double)(state >> 33) / 1073741824.0 - 1);
  }
  return data;
}

/* ---- a node bound to shapes, with its buffers ---- */

typedef struct {
  dc_graph *graph;
  dc_nid node;
  void *call, *buffers[MAX_IN + 1]; /* floats ... */
  char *blocks[MAX_IN + 1];         /* ... as the library meets them */
  shape shapes[MAX_IN + 1];
  int n_in;
  int64_t n_out;
  uint32_t wrt;
  bool refused;
} bound;

static dc_dtype met_type(void) { return meets.type ? meets.type : DC_F32; }

static bool lies_last(const bound *b, int buffer, const shape *s) {
  bool is_filter = buffer == 1 || (buffer == b->n_in && b->wrt == 2);
  return meets.last && s->rank >= 3 && !(meets.rows && is_filter) && !(meets.leaves_rows && buffer == b->n_in);
}

/* Where element k of a channels-last tensor lies. */
static int64_t place_of(const shape *s, int64_t k) {
  int64_t index[6], at = 0;
  for (int d = s->rank - 1; d >= 0; d--) index[d] = k % s->dims[d], k /= s->dims[d];
  at = index[0];
  for (int d = 2; d < s->rank; d++) at = at * s->dims[d] + index[d];
  return at * s->dims[1] + index[1];
}

static void move_element(bool out, float *number, char *at) {
  dc_dtype t = met_type();
  if (t == DC_F32 && out) memcpy(at, number, sizeof *number);
  else if (t == DC_F32) memcpy(number, at, sizeof *number);
  else if (t == DC_F64 && out) memcpy(at, &(double){*number}, sizeof(double));
  else if (t == DC_F64) {
    double wide;
    memcpy(&wide, at, sizeof wide);
    *number = (float)wide;
  } else if (out) memcpy(at, &(uint16_t){t == DC_F16 ? dc_f32_to_f16(*number) : dc_f32_to_bf16(*number)}, sizeof(uint16_t));
  else {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    *number = t == DC_F16 ? dc_f16_to_f32(bits) : dc_bf16_to_f32(bits);
  }
}

/* From the floats to what the library meets, or back. */
static void move_buffer(bound *b, int k, bool out) {
  int bytes = dc_dtype_bytes(met_type());
  const shape *s = &b->shapes[k];
  bool last = lies_last(b, k, s);
  for (int64_t j = 0; b->buffers[k] && j < count(s); j++)
    move_element(out, (float *)b->buffers[k] + j, b->blocks[k] + meets.shift + (last ? place_of(s, j) : j) * bytes);
}

static void make_buffer(bound *b, int k, const shape *s) {
  b->shapes[k] = *s;
  b->buffers[k] = random_floats(count(s), 17u + (unsigned)k);
  b->blocks[k] = aligned_alloc(64, ((size_t)count(s) * 8 + 191) / 64 * 64);
  move_buffer(b, k, true);
  move_buffer(b, k, false); /* rounded */
}

static void lay(dc_graph *g, dc_cid c, const shape *s) {
  dc_ex strides[6], stride = dc_ex_const(&g->pool, DC_I64, (double)s->dims[1]);
  strides[1] = dc_ex_const(&g->pool, DC_I64, 1);
  for (int d = s->rank - 1; d >= 2; d--) strides[d] = stride, stride = dc_ix_mul(&g->pool, stride, dc_cont(g, c)->shape[d]);
  strides[0] = stride;
  dc_cont(g, c)->strides = dc_arena_copy(&g->arena, strides, (size_t)s->rank * sizeof *strides);
}

static bound make(const char *op, const dc_attr *attr, uint32_t n_attr, const shape *in, int n_in, int n_fwd, const shape *out, uint32_t wrt,
                  dc_graph *g) {
  bound b = {.graph = g, .n_in = n_in, .n_out = count(out), .wrt = wrt};
  dc_cid ids[MAX_IN + 1];
  if (meets.vector_bytes) g->machine.vector_bytes = meets.vector_bytes;
  g->trained = meets.trained;
  for (int k = 0; k <= n_in; k++) {
    const shape *s = k < n_in ? &in[k] : out;
    dc_ex dims[6];
    for (int d = 0; d < s->rank; d++) dims[d] = dc_ex_const(&g->pool, DC_I64, (double)s->dims[d]);
    ids[k] = s->rank < 0 ? 0 : dc_container_add(g, "t", met_type(), (uint32_t)s->rank, dims, k == n_in ? DC_ROLE_TEMP : meets.params ? DC_ROLE_PARAM : DC_ROLE_INPUT);
    if (ids[k]) make_buffer(&b, k, s);
    if (ids[k] && lies_last(&b, k, s)) lay(g, ids[k], s);
  }
  b.node = dc_node_library(g, op, "", 13, ids, (uint32_t)n_in, &ids[n_in], 1, attr, n_attr);
  dc_library *lib = &dc_node_at(g, b.node)->lib;
  lib->wrt = wrt, lib->n_fwd_in = (uint32_t)n_fwd, lib->n_fwd_out = 1;
  return b;
}

static void *bind_it(void *opaque) {
  bound *b = opaque;
  const char *why = meets.insists ? NULL : library->refuses(handle, b->graph, b->node);
  b->refused = why && meets.refusals && strstr(meets.refusals, why);
  if (b->refused) return NULL;
  if (why) puts(why);
  CHECK(!why);
  CHECK_OK(library->bind(handle, b->graph, b->node, NULL, &b->call));
  return NULL;
}

static void finish(bound *b) {
  if (b->call) library->destroy(b->call);
  for (int k = 0; k <= b->n_in; k++) free(b->buffers[k]), free(b->blocks[k]);
  dc_graph_destroy(b->graph);
}

static void compare(const float *got, const double *wanted, int64_t n, const char *what) {
  for (int64_t k = 0; k < n; k++) {
    if (fabs(got[k] - wanted[k]) <= (meets.tolerance > 0 ? meets.tolerance : 2e-5) * (4 + fabs(wanted[k]))) continue;
    printf("%s: element %ld is %g instead of %g\n", what, (long)k, (double)got[k], wanted[k]);
    CHECK(!"equal to the loops");
    return;
  }
  CHECK(true);
}

static dc_status run(const bound *b, char *const *blocks) {
  void *call = b->call, *buffers[MAX_IN + 1];
  for (int k = 0; k <= b->n_in; k++) buffers[k] = blocks[k] ? blocks[k] + meets.shift : NULL;
  uint64_t bytes = library->scratch(call);
  void *scratch = dc_host_memory.take(NULL, bytes, NULL);
  dc_status status = library->run(call, buffers, scratch, NULL);
  dc_host_memory.give(NULL, scratch, bytes, NULL);
  return status;
}

/* Of which nothing must be left in the next run: filters that lie elsewhere, and those that differ in one number. */
static void run_on_other_filters(bound *b) {
  char *blocks[MAX_IN + 1], *own = b->blocks[1];
  size_t bytes = (size_t)count(&b->shapes[1]) * (size_t)dc_dtype_bytes(met_type());
  memcpy(blocks, b->blocks, sizeof blocks);
  blocks[1] = aligned_alloc(64, (bytes + 191) / 64 * 64);
  memset(blocks[1], 63, (bytes + 191) / 64 * 64);
  CHECK_OK(run(b, blocks));
  free(blocks[1]);
  if (!bytes) return;
  char last = own[meets.shift + (int64_t)bytes - 1];
  own[meets.shift + (int64_t)bytes - 1] ^= 1;
  for (int k = 0; k < 2; k++) CHECK_OK(run(b, b->blocks));
  own[meets.shift + (int64_t)bytes - 1] = last;
}

static void run_and_compare(bound *b, const double *wanted, const char *what) {
  bind_it(b);
  if (b->call && (meets.params || meets.again)) run_on_other_filters(b);
  if (b->call) CHECK_OK(run(b, b->blocks));
  move_buffer(b, b->n_in, false);
  if (b->call) compare(b->buffers[b->n_in], wanted, b->n_out, what);
  finish(b);
}

/* ---- convolutions ---- */

typedef struct {
  const char *name, *auto_pad;
  int n; /* spatial dimensions */
  int64_t batch, in, out, group, size[3], kernel[3], stride[3], dilation[3], left[3], right[3];
  bool bias;
} conv;

static const conv convs[] = {
    {"plain", "", 2, 2, 3, 5, 1, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"one channel in, padded, bias", "", 2, 3, 1, 16, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"stride 2, asymmetric pads", "", 2, 2, 8, 16, 1, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {0, 1}, {2, 0}, true},
    {"dilation 2", "", 2, 1, 4, 4, 1, {9, 9}, {3, 2}, {1, 1}, {2, 2}, {2, 1}, {2, 1}, false},
    {"groups", "", 2, 2, 6, 4, 2, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true},
    {"depthwise", "", 2, 1, 7, 7, 7, {6, 5}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}, false},
    {"1x1", "", 2, 2, 16, 8, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"1x1, an image at a time", "", 2, 3, 5, 4, 1, {7, 9}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"1x1, more filters than pixels", "", 2, 3, 17, 9, 1, {1, 2}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"a pixel wide", "", 2, 2, 5, 4, 1, {9, 1}, {3, 1}, {2, 1}, {1, 1}, {1, 0}, {1, 0}, true},
    {"a pixel between others", "", 3, 2, 4, 6, 2, {5, 1, 7}, {2, 1, 3}, {1, 1, 1}, {2, 1, 1}, {0, 0, 1}, {0, 0, 1}, false},
    {"one-dimensional", "", 1, 2, 3, 4, 1, {11}, {4}, {3}, {1}, {1}, {2}, true},
    {"three-dimensional", "", 3, 1, 2, 3, 1, {4, 5, 4}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}, false},
    {"SAME_UPPER", "SAME_UPPER", 2, 1, 3, 2, 1, {7, 6}, {2, 3}, {2, 1}, {1, 1}, {0, 1}, {1, 1}, false},
    {"SAME_LOWER", "SAME_LOWER", 2, 1, 3, 2, 1, {7, 6}, {2, 3}, {2, 1}, {1, 1}, {1, 1}, {0, 1}, false},
    {"VALID", "VALID", 2, 1, 3, 2, 1, {7, 6}, {2, 3}, {2, 1}, {1, 1}, {0, 0}, {0, 0}, false},
    {"empty batch", "", 2, 0, 3, 2, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {"no channels in: the bias remains", "", 2, 2, 0, 3, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
};

static void conv_shapes(const conv *c, shape *x, shape *w, shape *y) {
  *x = (shape){c->n + 2, {c->batch, c->in}}, *w = (shape){c->n + 2, {c->out, c->in / c->group}}, *y = (shape){c->n + 2, {c->batch, c->out}};
  for (int d = 0; d < c->n; d++) {
    x->dims[2 + d] = c->size[d], w->dims[2 + d] = c->kernel[d];
    y->dims[2 + d] = (c->size[d] + c->left[d] + c->right[d] - (c->kernel[d] - 1) * c->dilation[d] - 1) / c->stride[d] + 1;
  }
}

/* Adds the product that links y[i], x[*a] and w[*b]; false where the window lies in the padding. */
static bool conv_term(const conv *c, const shape *y, int64_t i, int64_t ic, int64_t k, int64_t *a, int64_t *b) {
  int64_t at[3], spot[3], rest = i, window = k;
  for (int d = c->n - 1; d >= 0; d--) at[d] = rest % y->dims[2 + d], rest /= y->dims[2 + d], spot[d] = window % c->kernel[d], window /= c->kernel[d];
  int64_t oc = rest % c->out, per = c->in / c->group;
  *a = (rest / c->out) * c->in + oc / (c->out / c->group) * per + ic, *b = oc * per + ic;
  for (int d = 0; d < c->n; d++) {
    int64_t p = at[d] * c->stride[d] + spot[d] * c->dilation[d] - c->left[d];
    if (p < 0 || p >= c->size[d]) return false;
    *a = *a * c->size[d] + p, *b = *b * c->kernel[d] + spot[d];
  }
  return true;
}

static void conv_reference(const conv *c, int wrt, void *const *in, const shape *y, double *out) {
  const float *x = in[0], *w = in[1], *bias = in[2], *dy = in[4];
  int64_t window = 1, plane = 1;
  for (int d = 0; d < c->n; d++) window *= c->kernel[d], plane *= y->dims[2 + d];
  for (int64_t i = 0; i < count(y); i++) {
    if (!wrt && bias) out[i] = bias[i / plane % c->out];
    for (int64_t ic = 0; ic < c->in / c->group; ic++)
      for (int64_t k = 0, a, b; k < window; k++) {
        if (!conv_term(c, y, i, ic, k, &a, &b)) continue;
        if (!wrt) out[i] += (double)x[a] * w[b];
        else if (wrt == 1) out[a] += (double)dy[i] * w[b];
        else out[b] += (double)dy[i] * x[a];
      }
  }
}

static bound make_conv(const conv *c, uint32_t wrt, shape *y) {
  dc_graph *g = dc_graph_create("g");
  shape x, w, none = {.rank = -1}, bias = {1, {c->out}};
  conv_shapes(c, &x, &w, y);
  int64_t pads[6];
  for (int d = 0; d < c->n; d++) pads[d] = c->left[d], pads[c->n + d] = c->right[d];
  uint32_t n = (uint32_t)c->n;
  dc_attr attr[] = {dc_attr_ints(g, "strides", c->stride, n), dc_attr_ints(g, "dilations", c->dilation, n), dc_attr_int(g, "group", c->group),
                    *c->auto_pad ? dc_attr_string(g, "auto_pad", c->auto_pad, strlen(c->auto_pad)) : dc_attr_ints(g, "pads", pads, 2 * n)};
  shape in[] = {x, w, c->bias ? bias : none, *y, *y};
  return make("Conv", attr, 4, in, wrt ? 5 : 3, 3, !wrt ? y : wrt == 1 ? &x : &w, wrt, g);
}

/* The convolution and its gradients. */
static void result_equals_the_loops(const conv *c, uint32_t wrt) {
  shape y;
  char what[80];
  bound b = make_conv(c, wrt, &y);
  double *wanted = calloc((size_t)b.n_out + 1, sizeof *wanted);
  conv_reference(c, (int)wrt, b.buffers, &y, wanted);
  snprintf(what, sizeof what, "Conv, %s, wrt %u", c->name, wrt);
  run_and_compare(&b, wanted, what);
  free(wanted);
}

static void one_equals_the_loops(const conv *c) {
  for (uint32_t wrt = 0; wrt < 3; wrt++) result_equals_the_loops(c, wrt);
}

static void convolutions_of(const conv *list, size_t n) {
  for (size_t k = 0; k < n; k++) one_equals_the_loops(&list[k]);
}

static void convolutions_equal_the_loops(void) { convolutions_of(convs, sizeof convs / sizeof *convs); }

/* ---- products ---- */

typedef struct {
  const char *name, *op;
  int64_t batch, m, k, n; /* batch 0: plain matrices */
  bool shared;            /* the right operand is one matrix for the whole batch */
  bool ta, tb, bias;
} product;

static const product products[] = {
    {"matrices", "MatMul", 0, 5, 7, 3, false, false, false, false},
    {"a batch", "MatMul", 4, 5, 7, 3, false, false, false, false},
    {"a batch times one matrix", "MatMul", 4, 5, 7, 3, true, false, false, false},
    {"plain", "Gemm", 0, 6, 4, 5, false, false, false, false},
    {"A transposed", "Gemm", 0, 6, 4, 5, false, true, false, true},
    {"B transposed", "Gemm", 0, 6, 4, 5, false, false, true, true},
    {"both transposed", "Gemm", 0, 6, 4, 5, false, true, true, false},
    {"nothing to sum up: the bias remains", "Gemm", 0, 3, 0, 4, false, false, false, true},
    {"no rows", "Gemm", 0, 0, 3, 4, false, false, false, true},
    {"one row of many", "Gemm", 0, 1, 70, 130, false, false, true, true},
    {"many rows", "Gemm", 0, 133, 38, 70, false, false, false, true},
    {"many rows, B transposed", "Gemm", 0, 131, 40, 65, false, false, true, true},
    {"many rows, A transposed", "Gemm", 0, 130, 36, 70, false, true, false, true},
    {"rows of A that clash", "Gemm", 0, 512, 20, 33, false, true, false, false},
    {"a batch of large ones", "MatMul", 2, 260, 258, 257, false, false, false, false},
};

static bound make_product(const product *p, uint32_t wrt) {
  dc_graph *g = dc_graph_create("g");
  bool gemm = p->op[0] == 'G';
  shape a = {2, {p->ta ? p->k : p->m, p->ta ? p->m : p->k}}, b = {2, {p->tb ? p->n : p->k, p->tb ? p->k : p->n}}, y = {2, {p->m, p->n}};
  shape bias = {1, {p->n}}, none = {.rank = -1};
  if (p->batch) a = (shape){3, {p->batch, p->m, p->k}}, y = (shape){3, {p->batch, p->m, p->n}};
  if (p->batch && !p->shared) b = (shape){3, {p->batch, p->k, p->n}};
  dc_attr attr[] = {dc_attr_int(g, "transA", p->ta), dc_attr_int(g, "transB", p->tb)};
  shape in[] = {a, b, p->bias ? bias : none, y, y}, plain[] = {a, b, y, y};
  int n_fwd = gemm ? 3 : 2;
  return make(p->op, attr, gemm ? 2 : 0, gemm ? in : plain, wrt ? n_fwd + 2 : n_fwd, n_fwd, !wrt ? &y : wrt == 1 ? &a : &b, wrt, g);
}

static void product_reference(const product *p, uint32_t wrt, const bound *t, double *out) {
  const float *A = t->buffers[0], *B = t->buffers[1], *bias = p->bias ? t->buffers[2] : NULL, *dy = wrt ? t->buffers[t->n_in - 1] : NULL;
  for (int64_t s = 0; s < (p->batch ? p->batch : 1); s++)
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++) {
        int64_t y = (s * p->m + i) * p->n + j;
        if (!wrt && bias) out[y] = bias[j];
        for (int64_t q = 0; q < p->k; q++) {
          int64_t a = s * p->m * p->k + (p->ta ? q * p->m + i : i * p->k + q);
          int64_t b = (p->shared ? 0 : s * p->k * p->n) + (p->tb ? j * p->k + q : q * p->n + j);
          if (!wrt) out[y] += (double)A[a] * B[b];
          else if (wrt == 1) out[a] += (double)dy[y] * B[b];
          else out[b] += (double)dy[y] * A[a];
        }
      }
}

static void products_of(const product *list, size_t n) {
  for (size_t k = 0; k < n; k++)
    for (uint32_t wrt = 0; wrt < 3; wrt++) {
      char what[80];
      bound b = make_product(&list[k], wrt);
      double *wanted = calloc((size_t)b.n_out + 1, sizeof *wanted);
      product_reference(&list[k], wrt, &b, wanted);
      snprintf(what, sizeof what, "%s, %s, wrt %u", list[k].op, list[k].name, wrt);
      run_and_compare(&b, wanted, what);
      free(wanted);
    }
}

static void products_equal_the_loops(void) { products_of(products, sizeof products / sizeof *products); }

/* ---- threads ---- */

typedef struct {
  bound *b;
  const double *wanted;
  char *out;
  bool wrong;
} runner;

static void *run_often(void *opaque) {
  runner *r = opaque;
  char *blocks[MAX_IN + 1];
  memcpy(blocks, r->b->blocks, sizeof blocks);
  blocks[r->b->n_in] = r->out;
  for (int round = 0; round < 40 && !r->wrong; round++) {
    dc_status status = run(r->b, blocks);
    r->wrong = status != NULL;
    dc_status_free(status);
    for (int64_t k = 0; k < r->b->n_out && !r->wrong; k++) r->wrong = fabs(((float *)r->out)[k] - r->wanted[k]) > 1e-3 * (1 + fabs(r->wanted[k]));
  }
  return NULL;
}

static void calls_run_in_threads_that_did_not_bind_them(void) {
  static const conv c = {"threads", "", 2, 2, 16, 16, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false};
  for (uint32_t wrt = 0; wrt < 3; wrt++) {
    shape y;
    bound b = make_conv(&c, wrt, &y);
    pthread_t binder, threads[3];
    pthread_create(&binder, NULL, bind_it, &b); /* and it ends: what it owned is gone */
    pthread_join(binder, NULL);
    double *wanted = calloc((size_t)b.n_out, sizeof *wanted);
    conv_reference(&c, (int)wrt, b.buffers, &y, wanted);
    runner runners[3];
    for (int t = 0; t < 3; t++) runners[t] = (runner){&b, wanted, aligned_alloc(64, ((size_t)b.n_out * sizeof(float) + 63) / 64 * 64), false};
    for (int t = 0; t < 3 && b.call; t++) pthread_create(&threads[t], NULL, run_often, &runners[t]);
    for (int t = 0; t < 3 && b.call; t++) pthread_join(threads[t], NULL);
    for (int t = 0; t < 3; t++) {
      CHECK(!runners[t].wrong);
      free(runners[t].out);
    }
    free(wanted);
    finish(&b);
  }
}

#endif
