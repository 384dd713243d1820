/* From library nodes to oneDNN primitives: Conv, MatMul and Gemm with their gradients. */
#include <string.h>

#include "backends/native/onednn.h"

/* ---- shapes ---- */

typedef struct {
  int rank;
  dnn_dims dims;
} shape;

static shape shape_of(const dc_graph *graph, dc_cid c, const int64_t *symbols) {
  const dc_container *k = dc_cont(graph, c);
  shape s = {.rank = (int)k->rank};
  for (int d = 0; d < s.rank; d++) s.dims[d] = dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
  return s;
}

static void row_major(const shape *s, int64_t *strides) {
  int64_t stride = 1;
  for (int d = s->rank - 1; d >= 0; d--) strides[d] = stride, stride *= s->dims[d];
}

static int64_t elements(const shape *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dims[d];
  return n;
}

/* ---- attributes ---- */

static int64_t int_attr(const dc_graph *graph, dc_nid node, const char *name, int64_t fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_INT ? a->i : fallback;
}

static double float_attr(const dc_graph *graph, dc_nid node, const char *name, double fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_FLOAT ? a->f : fallback;
}

static void ints_attr(const dc_graph *graph, dc_nid node, const char *name, int n, int64_t fallback, int64_t *out) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  for (int k = 0; k < n; k++) out[k] = a && a->kind == DC_ATTR_INTS && (int)a->n > k ? a->ints[k] : fallback;
}

/* ---- acceptance ---- */

static bool op_is(const dc_graph *graph, dc_nid node, const char *op) {
  return strcmp(dc_name_text(&graph->names, dc_node_at(graph, node)->lib.op), op) == 0;
}

static bool all_f32(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  uint32_t n = lib->wrt ? lib->n_fwd_in : lib->n_in;
  for (uint32_t k = 0; k < n; k++)
    if (lib->in[k] && dc_cont(graph, lib->in[k])->dtype != DC_F32) return false;
  return true;
}

static const char *refuses_matmul(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *a = dc_cont(graph, lib->in[0]), *b = dc_cont(graph, lib->in[1]);
  if (a->rank < 2 || b->rank < 2 || a->rank > 6) return "a one-dimensional operand";
  if (b->rank == 2) return NULL;
  if (a->rank != b->rank) return "operands of different ranks";
  for (uint32_t d = 0; d + 2 < a->rank; d++)
    if (a->shape[d] != b->shape[d]) return "a broadcast batch";
  return NULL;
}

static const char *refuses_gemm(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (float_attr(graph, node, "alpha", 1) != 1 || float_attr(graph, node, "beta", 1) != 1) return "alpha or beta other than 1";
  if (lib->wrt == 3) return "the gradient of the added matrix is a plain sum";
  dc_cid c = lib->n_in > 2 && !lib->wrt ? lib->in[2] : 0;
  if (!c) return NULL;
  const dc_container *bias = dc_cont(graph, c), *b = dc_cont(graph, lib->in[1]);
  dc_ex width = b->shape[int_attr(graph, node, "transB", 0) ? 0 : 1];
  return bias->rank == 1 && bias->shape[0] == width ? NULL : "an added matrix that is no row";
}

static const char *refuses_conv(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  uint32_t rank = dc_cont(graph, lib->in[0])->rank;
  if (rank < 3 || rank > 5) return "other than one to three spatial dimensions";
  return lib->wrt == 3 ? "the gradient of the bias is a plain sum" : NULL;
}

const char *dc_onednn_refuses(void *handle, const dc_graph *graph, dc_nid node) {
  (void)handle;
  if (!all_f32(graph, node)) return "a type other than f32";
  if (op_is(graph, node, "MatMul")) return refuses_matmul(graph, node);
  if (op_is(graph, node, "Gemm")) return refuses_gemm(graph, node);
  return op_is(graph, node, "Conv") ? refuses_conv(graph, node) : "the operator is not served";
}

/* ---- matrix products ---- */

/* A matrix (or batch) as operand: which buffer, logical shape, and whether it is read transposed. */
typedef struct {
  int buffer;
  shape stored;
  bool transposed;
} matrix;

static void *matrix_desc(dnn_call *call, const matrix *m, shape *logical) {
  dnn_dims strides;
  row_major(&m->stored, strides);
  *logical = m->stored;
  if (m->transposed) {
    int r = m->stored.rank - 1, c = r - 1;
    int64_t swap = strides[r];
    strides[r] = strides[c], strides[c] = swap;
    logical->dims[r] = m->stored.dims[c], logical->dims[c] = m->stored.dims[r];
  }
  return dc_onednn_desc(call, logical->rank, logical->dims, strides);
}

static dc_status build_product(dnn_call *call, const matrix *a, const matrix *b, int bias, int out) {
  shape left, right;
  void *src = matrix_desc(call, a, &left), *weights = matrix_desc(call, b, &right), *row = NULL;
  shape result = left;
  dnn_dims strides;
  result.dims[result.rank - 1] = right.dims[right.rank - 1];
  row_major(&result, strides);
  void *dst = dc_onednn_desc(call, result.rank, result.dims, strides);
  int64_t columns = result.dims[result.rank - 1];
  call->result = out, call->bias = bias, call->inner = 1, call->channels = columns;
  call->outer = columns ? elements(&result) / columns : 0;
  call->empty = elements(&left) == 0 || elements(&right) == 0;
  if (call->empty) return DC_OK;
  if (bias >= 0) {
    shape one = {.rank = result.rank};
    for (int d = 0; d < one.rank; d++) one.dims[d] = d + 1 < one.rank ? 1 : result.dims[d];
    row_major(&one, strides);
    row = dc_onednn_desc(call, one.rank, one.dims, strides);
  }
  DNN_TRY(call->lib->matmul(&call->main.desc, call->lib->engine, src, weights, row, dst, call->lib->attr), "describing a matrix product");
  dc_onednn_operand(call, DNN_SRC, a->buffer, false, src, 0);
  dc_onednn_operand(call, DNN_WEIGHTS, b->buffer, false, weights, 0);
  dc_onednn_operand(call, DNN_DST, out, true, dst, 0);
  if (bias >= 0) dc_onednn_operand(call, DNN_BIAS, bias, false, row, 0);
  return DC_OK;
}

/* All leading dimensions as rows of one matrix, where the other operand is a plain matrix. */
static shape flattened(const shape *s) {
  shape flat = {.rank = 2, .dims = {1, s->dims[s->rank - 1]}};
  for (int d = 0; d + 1 < s->rank; d++) flat.dims[0] *= s->dims[d];
  return flat;
}

/* Y = op(A) op(B): each gradient is again a product of two of dY, A and B. */
static dc_status build_matmul(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool gemm = op_is(graph, node, "Gemm");
  bool ta = gemm && int_attr(graph, node, "transA", 0), tb = gemm && int_attr(graph, node, "transB", 0);
  shape a = shape_of(graph, lib->in[0], symbols), b = shape_of(graph, lib->in[1], symbols);
  if (b.rank == 2) a = flattened(&a);
  matrix A = {0, a, ta}, B = {1, b, tb};
  if (!lib->wrt) return build_product(call, &A, &B, gemm && lib->n_in > 2 && lib->in[2] ? 2 : -1, (int)lib->n_in);
  int gradient = (int)(lib->n_fwd_in + lib->n_fwd_out), out = (int)lib->n_in;
  shape y = shape_of(graph, lib->in[gradient], symbols);
  if (b.rank == 2) y = flattened(&y);
  matrix dY = {gradient, y, false}, dYt = {gradient, y, true}, Bt = {1, b, !tb}, At = {0, a, !ta};
  if (lib->wrt == 1) return ta ? build_product(call, &B, &dYt, -1, out) : build_product(call, &dY, &Bt, -1, out);
  return tb ? build_product(call, &dYt, &A, -1, out) : build_product(call, &At, &dY, -1, out);
}

/* ---- convolutions ---- */

typedef struct {
  int n; /* spatial dimensions */
  int64_t groups;
  dnn_dims strides, dilates, left, right;
  shape x, w, y, bias;
} convolution;

static void same_padding(const dc_graph *graph, dc_nid node, convolution *c) {
  const dc_attr *a = dc_node_attr(graph, node, "auto_pad");
  if (!a || a->kind != DC_ATTR_STRING || strcmp(a->s, "NOTSET") == 0 || !*a->s) return;
  for (int d = 0; d < c->n; d++) {
    int64_t extent = (c->w.dims[2 + d] - 1) * (c->dilates[d] + 1) + 1, in = c->x.dims[2 + d], s = c->strides[d];
    int64_t total = ((in + s - 1) / s - 1) * s + extent - in;
    if (total < 0 || strcmp(a->s, "VALID") == 0) total = 0;
    c->left[d] = strcmp(a->s, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
    c->right[d] = total - c->left[d];
  }
}

static void read_convolution(const dc_graph *graph, dc_nid node, const int64_t *symbols, convolution *c) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int64_t pads[2 * DNN_MAX_DIMS];
  c->x = shape_of(graph, lib->in[0], symbols), c->w = shape_of(graph, lib->in[1], symbols);
  c->y = shape_of(graph, lib->wrt ? lib->in[lib->n_fwd_in + lib->n_fwd_out] : lib->out[0], symbols);
  c->bias = (shape){.rank = 1, .dims = {c->w.dims[0]}};
  c->n = c->x.rank - 2;
  c->groups = int_attr(graph, node, "group", 1);
  ints_attr(graph, node, "strides", c->n, 1, c->strides);
  ints_attr(graph, node, "dilations", c->n, 1, c->dilates);
  ints_attr(graph, node, "pads", 2 * c->n, 0, pads);
  for (int d = 0; d < c->n; d++) c->dilates[d] -= 1, c->left[d] = pads[d], c->right[d] = pads[c->n + d];
  same_padding(graph, node, c);
  if (c->groups > 1) { /* oneDNN wants the groups as a dimension of their own */
    shape w = {.rank = c->w.rank + 1, .dims = {c->groups, c->w.dims[0] / c->groups}};
    for (int d = 1; d < c->w.rank; d++) w.dims[d + 1] = c->w.dims[d];
    c->w = w;
  }
}

static void *plain_desc(dnn_call *call, const shape *s) {
  dnn_dims strides;
  row_major(s, strides);
  return dc_onednn_desc(call, s->rank, s->dims, strides);
}

static void *any_desc(dnn_call *call, const shape *s) { return dc_onednn_desc(call, s->rank, s->dims, NULL); }

typedef struct {
  void *x, *w, *y; /* descriptors of any layout: the library chooses */
} layouts;

static dc_status describe(dnn_call *call, const convolution *c, bool bias, layouts *l, void **out) {
  void *b = bias ? plain_desc(call, &c->bias) : NULL;
  *l = (layouts){any_desc(call, &c->x), any_desc(call, &c->w), any_desc(call, &c->y)};
  DNN_TRY(call->lib->conv_forward(out, call->lib->engine, DNN_TRAINING, DNN_DIRECT, l->x, l->w, b, l->y, c->strides, c->dilates, c->left, c->right,
                                  call->lib->attr),
          "describing a convolution");
  if (bias) dc_onednn_operand(call, DNN_BIAS, 2, false, b, 0);
  return DC_OK;
}

static dc_status build_conv(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dnn_library *dnn = call->lib;
  convolution c = {0};
  layouts l;
  read_convolution(graph, node, symbols, &c);
  const shape *result = !lib->wrt ? &c.y : lib->wrt == 1 ? &c.x : &c.w;
  bool bias = !lib->wrt && lib->n_in > 2 && lib->in[2];
  call->result = (int)lib->n_in, call->bias = bias ? 2 : -1;
  call->outer = result->dims[0], call->channels = result->dims[1];
  call->inner = call->outer && call->channels ? elements(result) / (call->outer * call->channels) : 0;
  call->empty = elements(&c.x) == 0 || elements(&c.w) == 0 || elements(&c.y) == 0;
  if (call->empty) return DC_OK;
  int gradient = (int)(lib->n_fwd_in + lib->n_fwd_out), out = (int)lib->n_in;
  if (!lib->wrt) {
    DC_TRY(describe(call, &c, bias, &l, &call->main.desc));
    dc_onednn_operand(call, DNN_SRC, 0, false, plain_desc(call, &c.x), DNN_Q_SRC);
    dc_onednn_operand(call, DNN_WEIGHTS, 1, false, plain_desc(call, &c.w), DNN_Q_WEIGHTS);
    dc_onednn_operand(call, DNN_DST, out, true, plain_desc(call, &c.y), DNN_Q_DST);
    return DC_OK;
  }
  DC_TRY(describe(call, &c, false, &l, &call->hint));
  if (lib->wrt == 1) {
    DNN_TRY(dnn->conv_data(&call->main.desc, dnn->engine, DNN_DIRECT, l.x, l.w, l.y, c.strides, c.dilates, c.left,
                           c.right, call->hint, dnn->attr),
            "describing a convolution's gradient");
    dc_onednn_operand(call, DNN_DIFF_DST, gradient, false, plain_desc(call, &c.y), DNN_Q_DIFF_DST);
    dc_onednn_operand(call, DNN_WEIGHTS, 1, false, plain_desc(call, &c.w), DNN_Q_WEIGHTS);
    dc_onednn_operand(call, DNN_DIFF_SRC, out, true, plain_desc(call, &c.x), DNN_Q_DIFF_SRC);
    return DC_OK;
  }
  DNN_TRY(dnn->conv_weights(&call->main.desc, dnn->engine, DNN_DIRECT, l.x, l.w, NULL, l.y, c.strides, c.dilates,
                            c.left, c.right, call->hint, dnn->attr),
          "describing a convolution's gradient");
  dc_onednn_operand(call, DNN_DIFF_DST, gradient, false, plain_desc(call, &c.y), DNN_Q_DIFF_DST);
  dc_onednn_operand(call, DNN_SRC, 0, false, plain_desc(call, &c.x), DNN_Q_SRC);
  dc_onednn_operand(call, DNN_DIFF_WEIGHTS, out, true, plain_desc(call, &c.w), DNN_Q_DIFF_WEIGHTS);
  return DC_OK;
}

dc_status dc_onednn_build(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  return op_is(graph, node, "Conv") ? build_conv(call, graph, node, symbols) : build_matmul(call, graph, node, symbols);
}
