/* See problem.h. */
#include "backends/native/problem.h"

#include <math.h>
#include <string.h>

/* ---- reading nodes ---- */

static dc_problem_shape shape_of(const dc_graph *graph, dc_cid c, const int64_t *symbols) {
  const dc_container *k = dc_cont(graph, c);
  dc_problem_shape s = {.rank = (int)k->rank};
  int64_t stride = 1;
  for (int d = s.rank - 1; d >= 0; d--) {
    s.dims[d] = dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
    s.strides[d] = k->strides ? dc_ix_eval(&graph->pool, k->strides[d], symbols, NULL) : stride;
    stride *= s.dims[d];
  }
  return s;
}

void dc_problem_last(const dc_problem_shape *s, int64_t *strides) {
  int64_t stride = s->dims[1];
  strides[1] = 1;
  for (int d = s->rank - 1; d >= 2; d--) strides[d] = stride, stride *= s->dims[d];
  strides[0] = stride;
}

/* Where there is one index, its stride does not matter. */
bool dc_problem_is_last(const dc_problem_shape *s) {
  dc_problem_dims last;
  dc_problem_last(s, last);
  for (int d = 0; d < s->rank; d++)
    if (s->dims[d] != 1 && s->strides[d] != last[d]) return false;
  return true;
}

bool dc_problem_is_row_major(const dc_problem_shape *s) {
  int64_t stride = 1;
  bool rows = true;
  for (int d = s->rank - 1; d >= 0; d--) rows &= s->dims[d] == 1 || s->strides[d] == stride, stride *= s->dims[d];
  return rows;
}

bool dc_problem_conv_is_empty(const dc_problem_conv *c) {
  return dc_problem_elements(&c->x) == 0 || dc_problem_elements(&c->y) == 0 || dc_problem_elements(&c->w) == 0;
}

bool dc_problem_conv_agrees(const dc_problem_conv *c) {
  return c->groups == 1 && c->x.dims[0] == c->y.dims[0] && c->w.dims[0] == c->y.dims[1] && c->w.dims[1] == c->x.dims[1];
}

int64_t dc_problem_elements(const dc_problem_shape *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dims[d];
  return n;
}

/* The same where the product may not fit. */
static double elements(const dc_problem_shape *s) {
  double n = 1;
  for (int d = 0; d < s->rank; d++) n *= (double)s->dims[d];
  return n;
}

/* n elements, each as the first is already: those that are there are copied behind themselves. */
static void repeat(char *first, size_t bytes, size_t n) {
  for (size_t done = 1; done < n; done *= 2) memcpy(first + done * bytes, first, (done < n - done ? done : n - done) * bytes);
}

void dc_problem_fill(void *result, const void *bias, size_t bytes, int64_t outer, int64_t channels, int64_t inner) {
  char *to = result;
  size_t line = (size_t)inner * bytes, rows = (size_t)(outer * channels);
  if (!bias && line && rows) memset(to, 0, rows * line);
  for (size_t row = 0; bias && line && row < rows; row++) {
    memcpy(to + row * line, (const char *)bias + row % (size_t)channels * bytes, bytes);
    repeat(to + row * line, bytes, (size_t)inner);
  }
}

void dc_problem_add(float *result, const float *bias, int64_t outer, int64_t channels, int64_t inner) {
  if (inner == 0) return;
  for (int64_t row = 0; row < outer * channels; row++)
    for (int64_t k = 0; k < inner; k++) result[row * inner + k] += bias[row % channels];
}

static double float_attr(const dc_graph *graph, dc_nid node, const char *name, double fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_FLOAT ? a->f : fallback;
}

static void ints_attr(const dc_graph *graph, dc_nid node, const char *name, int n, int64_t fallback, int64_t *out) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  for (int k = 0; k < n; k++) out[k] = a && a->kind == DC_ATTR_INTS && (int)a->n > k ? a->ints[k] : fallback;
}

bool dc_problem_op_is(const dc_graph *graph, dc_nid node, const char *op) {
  return strcmp(dc_name_text(&graph->names, dc_node_at(graph, node)->lib.op), op) == 0;
}

bool dc_problem_is_conv(const dc_graph *graph, dc_nid node) {
  return dc_problem_op_is(graph, node, "Conv") || dc_problem_op_is(graph, node, "ConvTranspose");
}

bool dc_problem_is_attention(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool ours = strcmp(dc_name_text(&graph->names, lib->domain), "dcml") == 0 && !lib->wrt;
  return ours && (dc_problem_op_is(graph, node, "Attention") || dc_problem_op_is(graph, node, "AttentionGradient"));
}

dc_dtype dc_problem_type(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  uint32_t n = lib->wrt ? lib->n_fwd_in : lib->n_in;
  dc_dtype type = (dc_dtype)dc_cont(graph, lib->in[0])->dtype;
  for (uint32_t k = 1; k < n; k++)
    if (lib->in[k] && dc_cont(graph, lib->in[k])->dtype != type) return 0;
  return type;
}

/* ---- acceptance ---- */

/* A MatMul, or a Product. */
static const char *refuses_matmul(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *a = dc_cont(graph, lib->in[0]), *b = dc_cont(graph, lib->in[1]);
  if (a->rank < 2 || b->rank < 2 || a->rank > 6) return "a one-dimensional operand";
  if (lib->wrt == 3) return "the gradient of the added row is a plain sum";
  if (b->rank == 2 && (a->rank == 2 || !dc_node_attr_int(graph, node, "transA", 0))) return NULL;
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
  dc_ex width = b->shape[dc_node_attr_int(graph, node, "transB", 0) ? 0 : 1];
  return bias->rank == 1 && bias->shape[0] == width ? NULL : "an added matrix that is no row";
}

/* What the paddings come to is left to the operator's row, unless they are plain numbers. */
static const char *refuses_turned(const dc_graph *graph, dc_nid node, int n) {
  int64_t extra[DC_PROBLEM_DIMS], strides[DC_PROBLEM_DIMS], pads[2 * DC_PROBLEM_DIMS];
  const dc_attr *mode = dc_node_attr(graph, node, "auto_pad"), *extents = dc_node_attr(graph, node, "output_shape");
  if (mode && mode->kind == DC_ATTR_STRING && *mode->s && strcmp(mode->s, "NOTSET") != 0) return "padding by auto_pad";
  if (extents && extents->kind == DC_ATTR_INTS && extents->n) return "padding by output_shape";
  ints_attr(graph, node, "output_padding", n, 0, extra);
  ints_attr(graph, node, "strides", n, 1, strides);
  ints_attr(graph, node, "pads", 2 * n, 0, pads);
  for (int d = 0; d < n; d++)
    if (extra[d] >= strides[d] || pads[d] < 0 || pads[n + d] < 0) return "an output padding of a stride or more, or a negative padding";
  return NULL;
}

static const char *refuses_conv(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  uint32_t rank = dc_cont(graph, lib->in[0])->rank;
  if (rank < 3 || rank > 5) return "other than one to three spatial dimensions";
  if (lib->wrt == 3) return "the gradient of the bias is a plain sum";
  return dc_problem_op_is(graph, node, "Conv") ? NULL : refuses_turned(graph, node, (int)rank - 2);
}

static bool is_row_major(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool strided = false;
  for (uint32_t k = 0; k < lib->n_in + lib->n_out; k++)
    strided |= dc_cont(graph, k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in])->strides != NULL;
  return !strided;
}

/* Does a product add up nothing?  As a map it is computed where it is read. */
static bool is_outer(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *b = dc_cont(graph, lib->in[1]);
  int64_t extent;
  return b->rank >= 2 && dc_ex_is_int(&graph->pool, b->shape[b->rank - (dc_node_attr_int(graph, node, "transB", 0) ? 1 : 2)], &extent) &&
         extent == 1;
}

const char *dc_problem_refuses(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (!dc_problem_is_conv(graph, node) && !is_row_major(graph, node)) return "an operand that is not row-major";
  if (!dc_problem_is_conv(graph, node) && lib->n_in > 1 && is_outer(graph, node)) return "an outer product";
  if (dc_problem_op_is(graph, node, "MatMul") || dc_problem_op_is(graph, node, "Product")) return refuses_matmul(graph, node);
  if (dc_problem_op_is(graph, node, "Gemm")) return refuses_gemm(graph, node);
  return dc_problem_is_conv(graph, node) ? refuses_conv(graph, node) : "the operator is not served";
}

/* ---- products ---- */

/* All leading dimensions as rows of one matrix, where the other operand is a plain matrix. */
static dc_problem_shape flattened(const dc_problem_shape *s) {
  dc_problem_shape flat = {.rank = 2, .dims = {1, s->dims[s->rank - 1]}};
  for (int d = 0; d + 1 < s->rank; d++) flat.dims[0] *= s->dims[d];
  return flat;
}

dc_problem_product dc_problem_read_product(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool ta = dc_node_attr_int(graph, node, "transA", 0), tb = dc_node_attr_int(graph, node, "transB", 0);
  dc_problem_shape a = shape_of(graph, lib->in[0], symbols), b = shape_of(graph, lib->in[1], symbols);
  if (b.rank == 2) a = flattened(&a);
  dc_problem_matrix A = {0, a, ta}, B = {1, b, tb};
  int out = (int)lib->n_in;
  if (!lib->wrt) return (dc_problem_product){A, B, lib->n_in > 2 && lib->in[2] ? 2 : -1, out};
  int gradient = (int)(lib->n_fwd_in + lib->n_fwd_out);
  dc_problem_shape y = shape_of(graph, lib->in[gradient], symbols);
  if (b.rank == 2) y = flattened(&y);
  dc_problem_matrix dY = {gradient, y, false}, dYt = {gradient, y, true}, Bt = {1, b, !tb}, At = {0, a, !ta};
  if (lib->wrt == 1) return ta ? (dc_problem_product){B, dYt, -1, out} : (dc_problem_product){dY, Bt, -1, out};
  return tb ? (dc_problem_product){dYt, A, -1, out} : (dc_problem_product){At, dY, -1, out};
}

/* ---- convolutions ---- */

static void same_padding(const dc_graph *graph, dc_nid node, dc_problem_conv *c) {
  const dc_attr *a = dc_node_attr(graph, node, "auto_pad");
  if (!a || a->kind != DC_ATTR_STRING || strcmp(a->s, "NOTSET") == 0 || !*a->s) return;
  for (int d = 0; d < c->n; d++) {
    int64_t extent = (c->w.dims[2 + d] - 1) * c->dilations[d] + 1, in = c->x.dims[2 + d], s = c->strides[d];
    int64_t total = ((in + s - 1) / s - 1) * s + extent - in;
    if (total < 0 || strcmp(a->s, "VALID") == 0) total = 0;
    c->left[d] = strcmp(a->s, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
    c->right[d] = total - c->left[d];
  }
}

/* Of a transposed convolution: y has the extents of the operator's input, x those of its result. */
static int64_t right_padding(const dc_problem_conv *c, int d) {
  int64_t extent = (c->w.dims[2 + d] - 1) * c->dilations[d] + 1;
  int64_t exact = (c->y.dims[2 + d] - 1) * c->strides[d] + extent - c->x.dims[2 + d] - c->left[d];
  int64_t spare = exact < 0 ? -exact : 0; /* elements of x that no window covers */
  return exact + (spare < c->strides[d] ? spare : c->strides[d] - 1);
}

/* An operand by its position in the call. */
static dc_problem_shape operand(const dc_graph *graph, const dc_library *lib, int at, const int64_t *symbols) {
  return shape_of(graph, at < (int)lib->n_in ? lib->in[at] : lib->out[0], symbols);
}

dc_problem_conv dc_problem_read_conv(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  static const dc_problem_unknown wanted[2][3] = {{DC_CONV_Y, DC_CONV_X, DC_CONV_W}, {DC_CONV_X, DC_CONV_Y, DC_CONV_W}};
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool turned = dc_problem_op_is(graph, node, "ConvTranspose");
  int64_t pads[2 * DC_PROBLEM_DIMS];
  int made = (int)lib->n_in, input = lib->wrt == 1 ? made : 0, output = lib->wrt ? (int)(lib->n_fwd_in + lib->n_fwd_out) : made;
  dc_problem_conv c = {.groups = dc_node_attr_int(graph, node, "group", 1),
                       .wanted = wanted[turned][lib->wrt],
                       .at_x = turned ? output : input,
                       .at_w = lib->wrt == 2 ? made : 1,
                       .at_y = turned ? input : output,
                       .bias = !lib->wrt && lib->n_in > 2 && lib->in[2] ? 2 : -1};
  c.x = operand(graph, lib, c.at_x, symbols), c.w = operand(graph, lib, c.at_w, symbols), c.y = operand(graph, lib, c.at_y, symbols);
  c.n = c.x.rank - 2;
  ints_attr(graph, node, "strides", c.n, 1, c.strides);
  ints_attr(graph, node, "dilations", c.n, 1, c.dilations);
  ints_attr(graph, node, "pads", 2 * c.n, 0, pads);
  for (int d = 0; d < c.n; d++) c.left[d] = pads[d], c.right[d] = turned ? right_padding(&c, d) : pads[c.n + d];
  if (!turned) same_padding(graph, node, &c);
  return c;
}

int dc_problem_conv_result(const dc_problem_conv *c, dc_problem_shape *shape) {
  *shape = c->wanted == DC_CONV_Y ? c->y : c->wanted == DC_CONV_X ? c->x : c->w;
  return c->wanted == DC_CONV_Y ? c->at_y : c->wanted == DC_CONV_X ? c->at_x : c->at_w;
}

/* Two products in the forward direction, five in the other. */
static double attention_steps(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  dc_problem_shape q = shape_of(graph, lib->in[0], symbols), v = shape_of(graph, lib->in[2], symbols);
  double keys = (double)v.dims[v.rank - 2], width = (double)q.dims[q.rank - 1], values = (double)v.dims[v.rank - 1];
  return elements(&q) * keys * (1 + values / fmax(width, 1)) * (dc_problem_op_is(graph, node, "Attention") ? 1 : 2.5);
}

static double conv_steps(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  dc_problem_conv c = dc_problem_read_conv(graph, node, symbols);
  return elements(&c.y) * elements(&c.w) / fmax((double)c.y.dims[1], 1);
}

static double bytes_steps(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  dc_problem_shape a = shape_of(graph, lib->in[0], symbols), b = shape_of(graph, lib->in[1], symbols);
  return elements(&a) * (double)b.dims[b.rank - 1];
}

double dc_native_steps(const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  if (dc_problem_is_attention(graph, node)) return attention_steps(graph, node, symbols);
  if (dc_problem_op_is(graph, node, "ConvInteger")) return conv_steps(graph, node, symbols);
  if (dc_problem_op_is(graph, node, "MatMulInteger")) return bytes_steps(graph, node, symbols);
  if (dc_problem_refuses(graph, node)) return 0; /* another kind of library runs it */
  if (dc_problem_is_conv(graph, node)) return conv_steps(graph, node, symbols);
  dc_problem_product p = dc_problem_read_product(graph, node, symbols);
  return elements(&p.a.stored) * (double)p.b.stored.dims[p.b.stored.rank - (p.b.transposed ? 2 : 1)];
}

int64_t dc_problem_lines(const dc_graph *graph, dc_cid c, uint32_t n, const int64_t *symbols) {
  const dc_container *k = dc_cont(graph, c);
  int64_t lines = 1;
  for (uint32_t d = 0; d < k->rank; d++)
    if (dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL) == 0) return 0;
  for (uint32_t d = 0; d < n; d++) lines *= dc_ix_eval(&graph->pool, k->shape[d], symbols, NULL);
  return lines;
}
