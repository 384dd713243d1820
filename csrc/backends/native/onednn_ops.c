/* From products and convolutions to oneDNN primitives. */
#include <string.h>

#include "backends/native/onednn.h"
#include "backends/native/problem.h"

typedef dc_problem_shape shape;

dc_status dc_onednn_failed(int code, const char *what) { return dc_error(DC_ERR_DEVICE, "oneDNN: %s failed with code %d", what, code); }

/* strides NULL: any layout. */
static void *describe_memory(dnn_call *call, int n, const int64_t *dims, const int64_t *strides) {
  void *desc = NULL;
  int code = strides ? call->lib->desc_strided(&desc, n, dims, call->type, strides)
                     : call->lib->desc_tagged(&desc, n, dims, call->type, DNN_TAG_ANY);
  if (!code) call->temp_descs[call->n_temp_descs++] = desc;
  return code ? NULL : desc;
}

static void add_operand(dnn_call *call, int arg, int buffer, bool output, void *plain, int query) {
  const void *wanted = query ? call->lib->query(call->main.desc, query, 0) : plain;
  call->operands[call->n_operands++] = (dnn_operand){.arg = arg, .buffer = buffer, .output = output, .plain = plain, .wanted = wanted};
}

static void row_major(const shape *s, int64_t *strides) {
  int64_t stride = 1;
  for (int d = s->rank - 1; d >= 0; d--) strides[d] = stride, stride *= s->dims[d];
}

static bool has_bias(const dc_library *lib) { return !lib->wrt && lib->n_in > 2 && lib->in[2]; }

const char *dc_onednn_refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dnn_library *lib = handle;
  dc_dtype type = dc_problem_type(graph, node);
  const char *why = type == DC_F32 || type == DC_BF16 ? dc_problem_refuses(graph, node) : "a type other than f32 and bf16";
  if (why || type == DC_F32) return why;
  if (!lib->multiplies_bf16) return "this processor multiplies f32 quicker than bf16";
  return dc_problem_op_is(graph, node, "ConvTranspose") && has_bias(&dc_node_at(graph, node)->lib) ? "an added bias" : NULL;
}

/* On to the first implementation of the library's list that is named so; false, and the list is at its end: there is none. */
static bool find_implementation(const dnn_library *lib, void *desc, const char *named) {
  const char *name = NULL;
  do
    if (!lib->query_any(desc, DNN_Q_IMPLEMENTATION, 0, &name) && name && strstr(name, named)) return true;
  while (!lib->next_implementation(desc));
  return false;
}

/* A list that has been walked does not begin again: the call is to be described anew. */
static void forget_description(dnn_call *call) {
  call->lib->primitive_desc_destroy(call->main.desc);
  if (call->hint) call->lib->primitive_desc_destroy(call->hint);
  call->main.desc = call->hint = NULL;
}

/* ---- matrix products ---- */

enum { FEW_ROWS = 8, MANY_ROWS = 128, MANY_COLUMNS = 512, CLASHING = 512, LARGE = 256 * 256 * 256 };

/* oneDNN's first choice copies b even for a few rows.  On Intel's processors, which the other one is written for, it also takes up to
 * twice the time where long rows of b lie a power of two apart; the other does where it is an operand to be turned that lies so. */
static bool suits_gemm(const dnn_call *call, const dc_problem_product *p, const shape *left, const shape *right) {
  const int r = left->rank - 1;
  const int64_t m = left->dims[r - 1], k = left->dims[r], n = right->dims[r], batch = dc_problem_elements(left) / (m * k);
  if (call->type != DNN_F32) return false;
  if (batch == 1 && m <= FEW_ROWS) return true;
  if (!dc_machine_is_intel() || (batch > 1 && (double)m * (double)k * (double)n < LARGE)) return false;
  if (p->b.transposed && (m < MANY_ROWS || k % CLASHING == 0)) return false;
  return !p->a.transposed || m % CLASHING != 0 || n > MANY_COLUMNS;
}

static void *matrix_desc(dnn_call *call, const dc_problem_matrix *m, shape *logical) {
  dnn_dims strides;
  row_major(&m->stored, strides);
  *logical = m->stored;
  if (m->transposed) {
    int r = m->stored.rank - 1, c = r - 1;
    int64_t swap = strides[r];
    strides[r] = strides[c], strides[c] = swap;
    logical->dims[r] = m->stored.dims[c], logical->dims[c] = m->stored.dims[r];
  }
  return describe_memory(call, logical->rank, logical->dims, strides);
}

static dc_status describe_product(dnn_call *call, const void *src, const void *weights, const void *row, const void *dst) {
  DNN_TRY(call->lib->matmul(&call->main.desc, call->lib->engine, src, weights, row, dst, call->lib->attr), "describing a matrix product");
  return DC_OK;
}

static dc_status build_product(dnn_call *call, const dc_problem_product *p) {
  shape left, right;
  void *src = matrix_desc(call, &p->a, &left), *weights = matrix_desc(call, &p->b, &right), *row = NULL;
  shape result = left;
  dnn_dims strides;
  result.dims[result.rank - 1] = right.dims[right.rank - 1];
  row_major(&result, strides);
  void *dst = describe_memory(call, result.rank, result.dims, strides);
  int64_t columns = result.dims[result.rank - 1];
  call->result = p->result, call->bias = p->bias, call->inner = 1, call->channels = columns;
  call->outer = columns ? dc_problem_elements(&result) / columns : 0;
  call->empty = dc_problem_elements(&left) == 0 || dc_problem_elements(&right) == 0;
  if (call->empty) return DC_OK;
  if (p->bias >= 0) {
    shape one = {.rank = result.rank};
    for (int d = 0; d < one.rank; d++) one.dims[d] = d + 1 < one.rank ? 1 : result.dims[d];
    row_major(&one, strides);
    row = describe_memory(call, one.rank, one.dims, strides);
  }
  DC_TRY(describe_product(call, src, weights, row, dst));
  if (suits_gemm(call, p, &left, &right) && !find_implementation(call->lib, call->main.desc, "gemm:")) {
    forget_description(call);
    DC_TRY(describe_product(call, src, weights, row, dst));
  }
  add_operand(call, DNN_SRC, p->a.buffer, false, src, 0);
  add_operand(call, DNN_WEIGHTS, p->b.buffer, false, weights, 0);
  add_operand(call, DNN_DST, p->result, true, dst, 0);
  if (p->bias >= 0) add_operand(call, DNN_BIAS, p->bias, false, row, 0);
  return DC_OK;
}

/* ---- convolutions ---- */

/* Is there one pixel along the d-th dimension of images and filters alike? */
static bool is_flat(const dc_problem_conv *c, int d) {
  return c->x.dims[2 + d] == 1 && c->y.dims[2 + d] == 1 && c->w.dims[2 + d] == 1 && c->left[d] == 0 && c->right[d] == 0;
}

static void drop_dim(shape *s, int at) {
  s->rank--;
  for (int d = at; d < s->rank; d++) s->dims[d] = s->dims[d + 1], s->strides[d] = s->strides[d + 1];
}

/* The library makes its blocks along the last dimension: one of a single pixel is left out. */
static void drop_flat(dc_problem_conv *c) {
  for (int d = c->n - 1; d >= 0 && c->n > 1; d--) {
    if (!is_flat(c, d)) continue;
    drop_dim(&c->x, 2 + d), drop_dim(&c->y, 2 + d), drop_dim(&c->w, 2 + d);
    c->n--;
    for (int k = d; k < c->n; k++)
      c->strides[k] = c->strides[k + 1], c->dilations[k] = c->dilations[k + 1], c->left[k] = c->left[k + 1], c->right[k] = c->right[k + 1];
  }
}

/* oneDNN counts dilation from 0, and wants groups as a dimension of the weights. */
static void to_onednn(dc_problem_conv *c) {
  drop_flat(c);
  for (int d = 0; d < c->n; d++) c->dilations[d] -= 1;
  if (c->groups == 1) return;
  shape w = {.rank = c->w.rank + 1, .dims = {c->groups, c->w.dims[0] / c->groups}};
  for (int d = 1; d < c->w.rank; d++) w.dims[d + 1] = c->w.dims[d];
  c->w = w;
}

static void *plain_desc(dnn_call *call, const shape *s) {
  dnn_dims strides;
  row_major(s, strides);
  return describe_memory(call, s->rank, s->dims, strides);
}

static void *any_desc(dnn_call *call, const shape *s) { return describe_memory(call, s->rank, s->dims, NULL); }

static void *last_desc(dnn_call *call, const shape *s) {
  dnn_dims strides;
  dc_problem_last(s, strides);
  return describe_memory(call, s->rank, s->dims, strides);
}

/* As it lies in memory. */
static void *given_desc(dnn_call *call, const shape *s) {
  return dc_problem_is_last(s) ? last_desc(call, s) : describe_memory(call, s->rank, s->dims, s->strides);
}

typedef struct {
  void *x, *w, *y; /* of what the primitive is to work on: in most cases the library chooses a layout */
} layouts;

enum { FEW_CHANNELS = 4 };

/* Images that lie channels-last stay so.  A gradient of few channels would leave most of each vector empty: the images are
 * turned row-major for it, where vectors run along the rows. */
static layouts choose(dnn_call *call, const dc_problem_conv *c) {
  if (c->wanted == DC_CONV_X && c->groups == 1 && c->x.dims[1] <= FEW_CHANNELS)
    return (layouts){plain_desc(call, &c->x), any_desc(call, &c->w), plain_desc(call, &c->y)};
  if (dc_problem_is_last(&c->x) || dc_problem_is_last(&c->y))
    return (layouts){last_desc(call, &c->x), any_desc(call, &c->w), last_desc(call, &c->y)};
  return (layouts){any_desc(call, &c->x), any_desc(call, &c->w), any_desc(call, &c->y)};
}

/* The descriptor of the forward convolution; with a bias if that is what is wanted. */
static dc_status describe(dnn_call *call, const dc_problem_conv *c, layouts *l, void **out) {
  shape row = {.rank = 1, .dims = {c->y.dims[1]}};
  void *b = c->bias >= 0 && c->wanted == DC_CONV_Y ? plain_desc(call, &row) : NULL;
  *l = choose(call, c);
  DNN_TRY(call->lib->conv_forward(out, call->lib->engine, DNN_TRAINING, DNN_DIRECT, l->x, l->w, b, l->y, c->strides, c->dilations, c->left,
                                  c->right, call->lib->attr),
          "describing a convolution");
  if (b) add_operand(call, DNN_BIAS, c->bias, false, b, 0);
  return DC_OK;
}

static dc_status describe_gradient(dnn_call *call, const dc_problem_conv *c) {
  const dnn_library *dnn = call->lib;
  layouts l;
  DC_TRY(describe(call, c, &l, &call->hint));
  int code = c->wanted == DC_CONV_X ? dnn->conv_data(&call->main.desc, dnn->engine, DNN_DIRECT, l.x, l.w, l.y, c->strides, c->dilations,
                                                     c->left, c->right, call->hint, dnn->attr)
                                    : dnn->conv_weights(&call->main.desc, dnn->engine, DNN_DIRECT, l.x, l.w, NULL, l.y, c->strides,
                                                        c->dilations, c->left, c->right, call->hint, dnn->attr);
  DNN_TRY(code, "describing a convolution's gradient");
  return DC_OK;
}

static dc_status describe_main(dnn_call *call, const dc_problem_conv *c) {
  layouts l;
  return c->wanted == DC_CONV_Y ? describe(call, c, &l, &call->main.desc) : describe_gradient(call, c);
}

/* For one filter for each channel the library may offer a product of blocks of channels, which leaves most of a block empty:
 * an implementation of its own for such filters, further down its list, is taken where there is one. */
static dc_status describe_depthwise(dnn_call *call, const dc_problem_conv *c) {
  DC_TRY(describe_main(call, c));
  if (find_implementation(call->lib, call->main.desc, "dw")) return DC_OK;
  forget_description(call), call->n_operands = 0;
  return describe_main(call, c);
}

/* The names of x, w and y as arguments and queries of the primitive that finds each of them. */
static const struct {
  int x, qx, w, qw, y, qy;
} roles[] = {
    [DC_CONV_Y] = {DNN_SRC, DNN_Q_SRC, DNN_WEIGHTS, DNN_Q_WEIGHTS, DNN_DST, DNN_Q_DST},
    [DC_CONV_X] = {DNN_DIFF_SRC, DNN_Q_DIFF_SRC, DNN_WEIGHTS, DNN_Q_WEIGHTS, DNN_DIFF_DST, DNN_Q_DIFF_DST},
    [DC_CONV_W] = {DNN_SRC, DNN_Q_SRC, DNN_DIFF_WEIGHTS, DNN_Q_DIFF_WEIGHTS, DNN_DIFF_DST, DNN_Q_DIFF_DST},
};

/* ---- convolutions with windows of one pixel ---- */

static bool has_windows_of_a_pixel(const dc_problem_conv *c) {
  bool each = c->groups == 1;
  for (int d = 0; d < c->n; d++) each &= c->w.dims[2 + d] == 1 && c->strides[d] == 1 && c->left[d] == 0 && c->right[d] == 0;
  return each;
}

/* Where channels lie side by side, all pixels are the rows of one matrix. */
static dc_problem_product pixels_as_rows(const dc_problem_conv *c) {
  int64_t from = c->x.dims[1], to = c->y.dims[1], pixels = dc_problem_elements(&c->x) / from;
  shape x = {.rank = 2, .dims = {pixels, from}}, w = {.rank = 2, .dims = {to, from}}, y = {.rank = 2, .dims = {pixels, to}};
  dc_problem_matrix X = {c->at_x, x, false}, W = {c->at_w, w, c->wanted == DC_CONV_Y}, Y = {c->at_y, y, c->wanted == DC_CONV_W};
  if (c->wanted == DC_CONV_Y) return (dc_problem_product){X, W, c->bias, c->at_y};
  return c->wanted == DC_CONV_X ? (dc_problem_product){Y, W, c->bias, c->at_x} : (dc_problem_product){Y, X, c->bias, c->at_w};
}

/* Where the pixels of a channel do, each image is a matrix of its own.  Those of a gradient of filters are summed up at the
 * end, in f32, which must not be more work than reading the images. */
static bool is_product_per_image(const dnn_call *call, const dc_problem_conv *c) {
  bool rows = dc_problem_is_row_major(&c->x) && dc_problem_is_row_major(&c->y) && c->bias < 0;
  double sums = (double)c->x.dims[0] * (double)dc_problem_elements(&c->w);
  double images = (double)dc_problem_elements(&c->x) + (double)dc_problem_elements(&c->y);
  return rows && (c->wanted != DC_CONV_W || (call->type == DNN_F32 && sums <= images));
}

/* n matrices that lie behind one another; n 1: the same one for all. */
static void *stack_desc(dnn_call *call, int64_t n, int64_t rows, int64_t columns, bool transposed) {
  dnn_dims dims = {n, transposed ? columns : rows, transposed ? rows : columns};
  dnn_dims strides = {rows * columns, transposed ? 1 : columns, transposed ? columns : 1};
  return describe_memory(call, 3, dims, strides);
}

static dc_status build_product_per_image(dnn_call *call, const dc_problem_conv *c) {
  int64_t n = c->x.dims[0], from = c->x.dims[1], to = c->y.dims[1], pixels = dc_problem_elements(&c->x) / (n * from);
  bool sums = c->wanted == DC_CONV_W;
  void *x = stack_desc(call, n, from, pixels, sums), *y = stack_desc(call, n, to, pixels, false);
  void *w = sums ? stack_desc(call, n, to, from, false) : stack_desc(call, 1, to, from, c->wanted == DC_CONV_X);
  void *left = sums ? y : w, *right = c->wanted == DC_CONV_X ? y : x, *made = sums ? w : c->wanted == DC_CONV_X ? x : y;
  int code = call->lib->matmul(&call->main.desc, call->lib->engine, left, right, NULL, made, call->lib->attr);
  DNN_TRY(code, "describing a product of images");
  add_operand(call, DNN_SRC, sums ? c->at_y : c->at_w, false, left, 0);
  add_operand(call, DNN_WEIGHTS, c->wanted == DC_CONV_X ? c->at_y : c->at_x, false, right, 0);
  add_operand(call, DNN_DST, sums ? c->at_w : c->wanted == DC_CONV_X ? c->at_x : c->at_y, true, made, 0);
  if (sums) call->parts = n, call->part = to * from;
  return DC_OK;
}

/* Images that come channels-last and leave in rows: their reorder would take several times as long as the product. */
static bool turns_images(const dc_problem_conv *c) {
  return c->wanted == DC_CONV_Y && c->bias < 0 && dc_problem_is_last(&c->x) && dc_problem_is_row_major(&c->y);
}

static dc_status build_turning_product(dnn_call *call, const dc_problem_conv *c) {
  const int64_t n = c->x.dims[0], from = c->x.dims[1], to = c->y.dims[1], pixels = dc_problem_elements(&c->x) / (n * from);
  void *w = stack_desc(call, 1, to, from, false), *x = stack_desc(call, n, pixels, from, true), *y = stack_desc(call, n, to, pixels, false);
  DNN_TRY(call->lib->matmul(&call->main.desc, call->lib->engine, w, x, NULL, y, call->lib->attr), "describing a product of images");
  add_operand(call, DNN_SRC, c->at_w, false, w, 0);
  add_operand(call, DNN_WEIGHTS, c->at_x, false, x, 0);
  add_operand(call, DNN_DST, c->at_y, true, y, 0);
  return DC_OK;
}

static dc_status build_conv(dnn_call *call, dc_problem_conv c) {
  shape result;
  call->result = dc_problem_conv_result(&c, &result), call->bias = c.bias, call->channels = result.dims[1];
  int64_t pixels = call->channels ? dc_problem_elements(&result) / call->channels : 0;
  bool is_last = c.wanted != DC_CONV_W && dc_problem_is_last(&result);
  call->outer = is_last ? pixels : result.dims[0], call->inner = !call->outer ? 0 : is_last ? 1 : pixels / call->outer;
  call->empty = dc_problem_conv_is_empty(&c);
  if (call->empty) return DC_OK;
  if (has_windows_of_a_pixel(&c) && dc_problem_is_last(&c.x) && dc_problem_is_last(&c.y)) {
    dc_problem_product product = pixels_as_rows(&c);
    return build_product(call, &product);
  }
  if (has_windows_of_a_pixel(&c) && is_product_per_image(call, &c)) return build_product_per_image(call, &c);
  if (has_windows_of_a_pixel(&c) && turns_images(&c)) return build_turning_product(call, &c);
  to_onednn(&c);
  DC_TRY(c.groups > 1 && c.w.dims[1] == 1 && c.w.dims[2] == 1 ? describe_depthwise(call, &c) : describe_main(call, &c));
  call->adds_bias = c.bias >= 0 && c.wanted != DC_CONV_Y;
  add_operand(call, roles[c.wanted].x, c.at_x, c.wanted == DC_CONV_X, given_desc(call, &c.x), roles[c.wanted].qx);
  add_operand(call, roles[c.wanted].w, c.at_w, c.wanted == DC_CONV_W, plain_desc(call, &c.w), roles[c.wanted].qw);
  add_operand(call, roles[c.wanted].y, c.at_y, c.wanted == DC_CONV_Y, given_desc(call, &c.y), roles[c.wanted].qy);
  return DC_OK;
}

dc_status dc_onednn_build(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  call->type = dc_problem_type(graph, node) == DC_BF16 ? DNN_BF16 : DNN_F32;
  if (dc_problem_is_conv(graph, node)) return build_conv(call, dc_problem_read_conv(graph, node, symbols));
  dc_problem_product product = dc_problem_read_product(graph, node, symbols);
  return build_product(call, &product);
}
