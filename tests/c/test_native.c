/* Each native library's answers against plain loops in double: each operator and gradient, many attributes,
 * empty tensors, and runs from threads that did not bind.  Libraries are looked for in
 * $DCML_LIBRARIES too; where one is missing the test says so.
 * One reference, Conv's triple (n, output, kernel), gives forward and both gradients; likewise
 * for products. */
#include <math.h>
#include <pthread.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "check.h"

enum { MAX_IN = 6 };
static const dc_native_library *library;
static void *handle;

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
  void *call, *buffers[MAX_IN + 1];
  int n_in;
  int64_t n_out;
} bound;

static bound make(const char *op, const dc_attr *attr, uint32_t n_attr, const shape *in, int n_in, int n_fwd, const shape *out, uint32_t wrt,
                  dc_graph *g) {
  bound b = {.graph = g, .n_in = n_in, .n_out = count(out)};
  dc_cid ids[MAX_IN + 1];
  for (int k = 0; k <= n_in; k++) {
    const shape *s = k < n_in ? &in[k] : out;
    dc_ex dims[6];
    for (int d = 0; d < s->rank; d++) dims[d] = dc_ex_const(&g->pool, DC_I64, (double)s->dims[d]);
    ids[k] = s->rank < 0 ? 0 : dc_container_add(g, "t", DC_F32, (uint32_t)s->rank, dims, k < n_in ? DC_ROLE_INPUT : DC_ROLE_TEMP);
    if (ids[k]) b.buffers[k] = random_floats(count(s), 17u + (unsigned)k);
  }
  b.node = dc_node_library(g, op, "", 13, ids, (uint32_t)n_in, &ids[n_in], 1, attr, n_attr);
  dc_library *lib = &dc_node_at(g, b.node)->lib;
  lib->wrt = wrt, lib->n_fwd_in = (uint32_t)n_fwd, lib->n_fwd_out = 1;
  return b;
}

static void *bind_it(void *opaque) {
  bound *b = opaque;
  const char *why = library->refuses(handle, b->graph, b->node);
  if (why) puts(why);
  CHECK(!why);
  CHECK_OK(library->bind(handle, b->graph, b->node, NULL, &b->call));
  return NULL;
}

static void finish(bound *b) {
  if (b->call) library->destroy(b->call);
  for (int k = 0; k <= b->n_in; k++) free(b->buffers[k]);
  dc_graph_destroy(b->graph);
}

static void compare(const float *got, const double *wanted, int64_t n, const char *what) {
  for (int64_t k = 0; k < n; k++) {
    if (fabs(got[k] - wanted[k]) <= 2e-5 * (4 + fabs(wanted[k]))) continue;
    printf("%s: element %ld is %g instead of %g\n", what, (long)k, (double)got[k], wanted[k]);
    CHECK(!"equal to the loops");
    return;
  }
  CHECK(true);
}

static dc_status run(void *call, void *const *buffers) {
  uint64_t bytes = library->scratch(call);
  void *scratch = dc_host_memory.take(NULL, bytes, NULL);
  dc_status status = library->run(call, buffers, scratch, NULL);
  dc_host_memory.give(NULL, scratch, bytes, NULL);
  return status;
}

static void run_and_compare(bound *b, const double *wanted, const char *what) {
  bind_it(b);
  if (b->call) CHECK_OK(run(b->call, b->buffers));
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

static void convolutions_equal_the_loops(void) {
  for (size_t k = 0; k < sizeof convs / sizeof *convs; k++)
    for (uint32_t wrt = 0; wrt < 3; wrt++) {
      shape y;
      char what[80];
      bound b = make_conv(&convs[k], wrt, &y);
      double *wanted = calloc((size_t)b.n_out + 1, sizeof *wanted);
      conv_reference(&convs[k], (int)wrt, b.buffers, &y, wanted);
      snprintf(what, sizeof what, "Conv, %s, wrt %u", convs[k].name, wrt);
      run_and_compare(&b, wanted, what);
      free(wanted);
    }
}

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

static void products_equal_the_loops(void) {
  for (size_t k = 0; k < sizeof products / sizeof *products; k++)
    for (uint32_t wrt = 0; wrt < 3; wrt++) {
      char what[80];
      bound b = make_product(&products[k], wrt);
      double *wanted = calloc((size_t)b.n_out + 1, sizeof *wanted);
      product_reference(&products[k], wrt, &b, wanted);
      snprintf(what, sizeof what, "%s, %s, wrt %u", products[k].op, products[k].name, wrt);
      run_and_compare(&b, wanted, what);
      free(wanted);
    }
}

/* ---- threads ---- */

typedef struct {
  bound *b;
  const double *wanted;
  float *out;
  bool wrong;
} runner;

static void *run_often(void *opaque) {
  runner *r = opaque;
  void *buffers[MAX_IN + 1];
  memcpy(buffers, r->b->buffers, sizeof buffers);
  buffers[r->b->n_in] = r->out;
  for (int round = 0; round < 40 && !r->wrong; round++) {
    dc_status status = run(r->b->call, buffers);
    r->wrong = status != NULL;
    dc_status_free(status);
    for (int64_t k = 0; k < r->b->n_out && !r->wrong; k++) r->wrong = fabs(r->out[k] - r->wanted[k]) > 1e-3 * (1 + fabs(r->wanted[k]));
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
    for (int t = 0; t < 3; t++) runners[t] = (runner){&b, wanted, malloc((size_t)b.n_out * sizeof(float)), false};
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

static void check_library(const dc_native_library *which) {
  library = which;
  const char *why = library->open(getenv("DCML_LIBRARIES"), NULL, &handle);
  if (why) {
    printf("%s is skipped: %s\n", library->name, why);
    return;
  }
  convolutions_equal_the_loops();
  products_equal_the_loops();
  calls_run_in_threads_that_did_not_bind_them();
  library->close(handle);
}

/* ---- the choice ---- */

static const char conv_text[] = "graph g { symbol N >= 1 input X: %s[1, 2, 5, 5] input W: %s[2, 2, 3, 3] temp Y: %s[1, 2, N, N] outputs Y"
                           " state s { Y = Conv@11(X, W) @first } }";

static dc_graph *stamped(dc_natives *natives, dc_ops *ops, const char *type, const char *only) {
  char text[512];
  dc_graph *g = NULL;
  snprintf(text, sizeof text, conv_text, type, type, type);
  CHECK_OK(dc_graph_parse(text, &g));
  dc_natives_stamp(natives, ops, g, 1, only);
  return g;
}

static void check_stamp(dc_graph *g, const char *line) {
  dc_text once = {0}, again = {0};
  dc_graph *parsed = NULL;
  dc_graph_print(g, &once);
  CHECK(strstr(once.s, line));
  CHECK_OK(dc_graph_parse(once.s, &parsed));
  dc_graph_print(parsed, &again);
  CHECK_TEXT(again.s, once.s);
  dc_graph_destroy(parsed);
  dc_graph_destroy(g);
  dc_text_free(&once);
  dc_text_free(&again);
}

static void a_choice_is_stamped_with_its_reason(void) {
  const dc_native_library *const list[] = {&dc_native_onednn, &dc_native_openblas, NULL};
  dc_natives *all, *none;
  dc_ops *ops;
  dc_native_call *call;
  CHECK_OK(dc_ops_create(&ops));
  CHECK_OK(dc_natives_create(list, NULL, getenv("DCML_LIBRARIES"), NULL, &all));
  CHECK_OK(dc_natives_create(list, "none", NULL, NULL, &none));
  check_stamp(stamped(none, ops, "f32", NULL), "Conv@11(X, W) : none (\"onednn: not loaded; openblas: not loaded\") @first");
  check_stamp(stamped(none, ops, "f32", "other"), "Conv@11(X, W) : none (\"onednn: not asked for; openblas: not asked for\") @first");
  dc_graph *g = stamped(none, ops, "f32", NULL);
  int64_t symbols[] = {0, 3};
  CHECK_ERROR(dc_native_bind(none, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "no library runs it: onednn: not loaded");
  dc_graph_destroy(g);
  g = stamped(all, ops, "f32", "onednn");
  if (dc_node_at(g, 1)->lib.by) { /* it is there */
    CHECK_ERROR(dc_native_bind(none, g, 1, symbols, &call), DC_ERR_UNSUPPORTED, "is to be run by onednn, which is not loaded");
    CHECK_OK(dc_native_bind(all, g, 1, symbols, &call));
    dc_native_call_destroy(call);
    symbols[1] = 4; /* which is not what a window of 3 leaves of 5 */
    CHECK_ERROR(dc_native_bind(all, g, 1, symbols, &call), DC_ERR_DEVICE, "onednn accepted the operator, but not with these sizes");
    check_stamp(stamped(all, ops, "f32", NULL), "Conv@11(X, W) : onednn @first");
    check_stamp(stamped(all, ops, "f64", "onednn"), "Conv@11(X, W) : none (\"onednn: a type other than f32; openblas: not asked for\") @first");
  }
  dc_graph_destroy(g);
  dc_natives_destroy(all);
  dc_natives_destroy(none);
  dc_ops_destroy(ops);
}

int main(void) {
  a_choice_is_stamped_with_its_reason();
  check_library(&dc_native_onednn);
  check_library(&dc_native_openblas);
  return check_report();
}
