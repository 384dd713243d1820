/* Operators into which ONNX Runtime's optimizers have put several, where a library runs the product or the convolution in them:
 *
 *     Y = FusedConv(X, W, B, Z) {activation = "Relu"}   becomes   C = Conv(X, W, B)   S = Add(C, Z)   Y = Relu(S)
 *     Y = FusedMatMul(A, B) {transB = 1, alpha = 0.5}   becomes   P = Product(A, B) {transB = 1}   Y = Affine(P) {alpha = 0.5}
 *
 * What stands around them then joins what follows, and gradients are those of operators that the library has too.  So it is with
 *
 *     Y = STFT(X, step, W)                              becomes   F = Frames(X, step, W)   Y = DFT(F) {axis = 2} */
#include <string.h>

#include "passes/operators.h"

typedef struct {
  const char *op, *domain, *made;
  int since; /* of what is made */
} split_row;

static const split_row rows[] = {
    {"FusedConv", "", "Conv", 11},
    {"FusedGemm", "", "Gemm", 13},
    {"FusedMatMul", "dcml", "Product", 1},
    {"TransposeMatMul", "dcml", "Product", 1},
};

static const split_row *row_of(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_LIBRARY || node->lib.wrt || !node->lib.n_out || !node->lib.out[0] || dc_node_wish(graph, id)) return NULL;
  if (strcmp(dc_name_text(&graph->names, node->lib.domain), "com.microsoft") != 0) return NULL;
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    if (strcmp(dc_name_text(&graph->names, node->lib.op), rows[k].op) == 0) return &rows[k];
  return NULL;
}

static double float_of(const dc_attr *a, double fallback) { return !a ? fallback : a->kind == DC_ATTR_INT ? (double)a->i : a->f; }

/* The k-th number of the activation, of a list or of attributes of their own; false: it is the operator's usual one. */
static bool number_of(const dc_graph *graph, dc_nid node, uint32_t k, double *number) {
  static const char *const own[] = {"activation_alpha", "activation_beta"};
  const dc_attr *list = dc_node_attr(graph, node, "activation_params"), *single = dc_node_attr(graph, node, own[k]);
  const bool is_listed = list && list->kind == DC_ATTR_FLOATS && k < list->n;
  *number = is_listed ? list->floats[k] : float_of(single, 0);
  return is_listed || single;
}

typedef struct {
  const char *op, *names[2]; /* of ONNX's attributes for its numbers */
} activation_row;

static const activation_row activations[] = {
    {"Relu", {NULL, NULL}},
    {"Tanh", {NULL, NULL}},
    {"Sigmoid", {NULL, NULL}},
    {"LeakyRelu", {"alpha", NULL}},
    {"HardSigmoid", {"alpha", "beta"}},
    {"Clip", {"min", "max"}},
};

/* The row of the activation; `known` is false where it has one that we lack. */
static const activation_row *activation_of(const dc_graph *graph, dc_nid node, bool *known) {
  const dc_attr *given = dc_node_attr(graph, node, "activation");
  *known = !given || (given->kind == DC_ATTR_STRING && !*given->s);
  for (size_t k = 0; !*known && given->kind == DC_ATTR_STRING && k < sizeof activations / sizeof *activations; k++)
    if (strcmp(given->s, activations[k].op) == 0) return *known = true, &activations[k];
  return NULL;
}

static dc_nid activate(dc_graph *graph, dc_nid node, const activation_row *row, dc_cid x, dc_cid y) {
  dc_attr attr[2];
  uint32_t n = 0;
  double number;
  for (uint32_t k = 0; k < 2 && row->names[k]; k++)
    if (number_of(graph, node, k, &number)) attr[n++] = dc_attr_float(graph, row->names[k], number);
  return dc_node_library(graph, row->op, "", 6, &x, 1, &y, 1, attr, n);
}

static bool is_product(const split_row *row) { return *row->domain; }

static bool goes_along(const split_row *row, const char *attribute) {
  const bool belongs = strcmp(attribute, "alpha") != 0 && strncmp(attribute, "transBatch", 10) != 0;
  return strncmp(attribute, "activation", 10) != 0 && (belongs || !is_product(row));
}

static bool has_matrices(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  return dc_cont(graph, lib->in[0])->rank > 1 && dc_cont(graph, lib->in[1])->rank > 1 && !dc_node_attr_int(graph, node, "transBatchA", 0) &&
         !dc_node_attr_int(graph, node, "transBatchB", 0);
}

/* The node's product or convolution alone, of which `result` comes. */
static dc_nid core_of(dc_graph *graph, dc_nid node, const split_row *row, dc_cid result) {
  const dc_library lib = dc_node_at(graph, node)->lib;
  dc_attr *attr = DC_NEW_ARRAY(&graph->arena, dc_attr, lib.n_attr + 1);
  uint32_t n = 0, n_in = lib.n_in < 3 ? lib.n_in : 3;
  while (!lib.in[n_in - 1]) n_in--;
  for (uint32_t k = 0; k < lib.n_attr; k++)
    if (goes_along(row, dc_name_text(&graph->names, lib.attr[k].name))) attr[n++] = lib.attr[k];
  dc_nid made = dc_node_library(graph, row->made, row->domain, row->since, lib.in, n_in, &result, 1, attr, n);
  dc_node_at(graph, made)->name = dc_node_at(graph, node)->name;
  return made;
}

/* A number of one element that shapes depend on; false where it is not known. */
static bool read_known(dc_graph *graph, dc_cid c, dc_ex *out) {
  const dc_container *k = dc_cont(graph, c);
  int64_t number;
  if (k->known && k->known_count == 1) return *out = k->known[0], true;
  return dc_container_number(graph, c, &number) && (*out = dc_ex_int(&graph->pool, number), true);
}

static bool frame_and_transform(const dc_pass_context *context, dc_graph *graph, dc_nid node, dc_scope *scope) {
  const dc_library lib = dc_node_at(graph, node)->lib;
  const dc_cid window = lib.n_in > 2 ? lib.in[2] : 0, length = lib.n_in > 3 ? lib.in[3] : 0;
  const dc_container signal = *dc_cont(graph, lib.in[0]), result = *dc_cont(graph, lib.out[0]);
  dc_ex extent = window ? dc_cont(graph, window)->shape[0] : signal.shape[1], one = dc_ex_int(&graph->pool, 1);
  if (length && !read_known(graph, length, &extent)) return false;
  const dc_ex shape[] = {result.shape[0], result.shape[1], extent, signal.rank > 2 ? signal.shape[2] : one};
  dc_cid frames = dc_container_after(graph, lib.out[0], "frames", (dc_dtype)result.dtype, 4, shape);
  dc_attr attr[] = {dc_attr_int(graph, "axis", 2), dc_attr_int(graph, "onesided", dc_node_attr_int(graph, node, "onesided", 1))};
  dc_nid transform = dc_node_library(graph, "DFT", "", 17, &frames, 1, lib.out, 1, attr, 2);
  dc_node_at(graph, transform)->name = dc_node_at(graph, node)->name;
  if (!dc_operator_is_served(context, graph, transform)) return false;
  dc_scope_push(graph, scope, dc_node_library(graph, "Frames", "dcml", 1, lib.in, lib.n_in, &frames, 1, NULL, 0));
  return dc_scope_push(graph, scope, transform), true;
}

static bool take_apart(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope) {
  (void)state;
  if (dc_node_at(graph, node)->kind == DC_NODE_LIBRARY && dc_operator_is(graph, node, "STFT"))
    return frame_and_transform(context, graph, node, scope);
  const split_row *row = row_of(graph, node);
  if (!row || (is_product(row) && !has_matrices(graph, node))) return false;
  bool known;
  const activation_row *activation = activation_of(graph, node, &known);
  if (!known) return false;
  const dc_library lib = dc_node_at(graph, node)->lib;
  const double alpha = is_product(row) ? float_of(dc_node_attr(graph, node, "alpha"), 1) : 1;
  const bool adds = lib.n_in > 3 && lib.in[3];
  dc_cid plain = dc_container_like(graph, lib.out[0], "plain"), sum = adds ? dc_container_like(graph, lib.out[0], "sum") : plain;
  dc_nid last = activation ? activate(graph, node, activation, sum, lib.out[0]) : 0;
  if (alpha != 1) {
    dc_attr attr = dc_attr_float(graph, "alpha", alpha);
    last = dc_node_library(graph, "Affine", "", 1, &plain, 1, lib.out, 1, &attr, 1);
  }
  dc_nid core = core_of(graph, node, row, adds || last ? plain : lib.out[0]);
  if (!dc_operator_is_served(context, graph, core)) return false;
  dc_scope_push(graph, scope, core);
  dc_cid operands[] = {plain, adds ? lib.in[3] : 0};
  if (adds) dc_scope_push(graph, scope, dc_node_library(graph, "Add", "", 14, operands, 2, last ? &sum : lib.out, 1, NULL, 0));
  if (last) dc_scope_push(graph, scope, last);
  return true;
}

dc_status dc_pass_apart(const dc_pass_context *context, dc_graph *graph) {
  dc_operators_replace(context, graph, take_apart, NULL);
  return dc_pass_tidy(context->ops, graph);
}
