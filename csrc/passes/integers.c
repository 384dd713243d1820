/* Products and convolutions of what has just been dequantized run in whole numbers, where a library does, and are scaled once:
 *
 *     A = DequantizeLinear(a, s, z)   B = DequantizeLinear(b, t)   Y = MatMul(A, B)
 *     becomes   C = MatMulInteger(a, b, z)   Y = FromIntegers(C, s, t)
 *
 * The same sums, but for their rounding.  Operators that hold all of this in one are taken apart in the same way.  Only for graphs
 * that nobody differentiates: whole numbers have no gradient. */
#include <string.h>

#include "passes/operators.h"

/* An operand of bytes, as b - zero, times a scale: one for all, or one for each of `axis`. */
typedef struct {
  dc_cid bytes, scale, zero; /* zero 0: none */
} quantized;

typedef struct {
  const dc_pass_context *context;
  dc_operators o;
} search;

/* ---- operands ---- */

static bool is_one(const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  int64_t extent = 1;
  return k->rank == 0 || (k->rank == 1 && dc_ex_is_int(&graph->pool, k->shape[0], &extent) && extent == 1);
}

static bool is_of(const dc_graph *graph, dc_cid c, dc_ex extent) {
  return is_one(graph, c) || (dc_cont(graph, c)->rank == 1 && dc_cont(graph, c)->shape[0] == extent);
}

/* What a value was dequantized from.  axis: that of its scales, if it has several; -1: it may not. */
static bool read_quantized(const search *s, dc_cid value, int64_t axis, quantized *out) {
  const dc_operators *o = &s->o;
  const dc_graph *graph = o->graph;
  dc_nid node = value < graph->containers.n && o->uses[value] ? dc_operator_making(o, value, "DequantizeLinear") : 0;
  if (!node || dc_node_attr_int(graph, node, "block_size", 0)) return false;
  *out = (quantized){dc_operator_input(o, node, 0), dc_operator_input(o, node, 1), dc_operator_input(o, node, 2)};
  const dc_container *k = dc_cont(graph, out->bytes);
  if ((k->dtype != DC_I8 && k->dtype != DC_U8) || dc_cont(graph, value)->dtype != DC_F32 || dc_cont(graph, out->scale)->dtype != DC_F32)
    return false;
  if (is_one(graph, out->scale)) return !out->zero || is_one(graph, out->zero);
  int64_t of = dc_node_attr_int(graph, node, "axis", 1);
  if (of < 0) of += k->rank;
  if (axis < 0 || of != axis) return false;
  return is_of(graph, out->scale, k->shape[axis]) && (!out->zero || is_of(graph, out->zero, k->shape[axis]));
}

/* Of operators that hold everything in one. */
static bool reads_bytes(const dc_graph *graph, const quantized *q, const dc_ex *extent) {
  const dc_dtype type = (dc_dtype)dc_cont(graph, q->bytes)->dtype;
  const bool fits = extent ? is_of(graph, q->scale, *extent) && (!q->zero || is_of(graph, q->zero, *extent))
                           : is_one(graph, q->scale) && (!q->zero || is_one(graph, q->zero));
  return fits && (type == DC_I8 || type == DC_U8) && dc_cont(graph, q->scale)->dtype == DC_F32;
}

/* ---- what stands for a node ---- */

typedef struct {
  quantized a, b;
  bool is_conv;
  dc_cid bias;             /* 0: none */
  dc_cid y_scale, y_zero;  /* 0: the result is of floats */
} product;

/* Sums of whole numbers, of the result's shape, and what makes the result of them. */
static bool push(const search *s, dc_nid node, const product *p, dc_scope *scope) {
  dc_graph *graph = s->o.graph;
  const dc_library lib = dc_node_at(graph, node)->lib;
  const dc_container y = *dc_cont(graph, lib.out[0]);
  dc_cid sums = dc_container_after(graph, lib.out[0], "sums", DC_I32, y.rank, y.shape);
  const dc_cid in[] = {p->a.bytes, p->b.bytes, p->a.zero, p->b.zero};
  const uint32_t n = p->b.zero ? 4 : p->a.zero ? 3 : 2;
  dc_nid core = p->is_conv ? dc_node_library(graph, "ConvInteger", "", 10, in, n, &sums, 1, lib.attr, lib.n_attr)
                           : dc_node_library(graph, "MatMulInteger", "", 10, in, n, &sums, 1, NULL, 0);
  dc_node_at(graph, core)->name = dc_node_at(graph, node)->name;
  if (!dc_operator_is_served(s->context, graph, core)) return false;
  dc_attr axis = dc_attr_int(graph, "axis", p->is_conv ? 1 : -1);
  const dc_cid floats[] = {sums, p->a.scale, p->b.scale, p->bias}, bytes[] = {sums, p->a.scale, p->b.scale, p->y_scale, p->y_zero, p->bias};
  dc_scope_push(graph, scope, core);
  dc_nid last = p->y_scale ? dc_node_library(graph, "ToBytes", "dcml", 1, bytes, p->bias ? 6 : 5, lib.out, 1, &axis, 1)
                           : dc_node_library(graph, "FromIntegers", "dcml", 1, floats, p->bias ? 4 : 3, lib.out, 1, &axis, 1);
  return dc_scope_push(graph, scope, last), true;
}

/* ---- between floats ---- */

static dc_cid input(const search *s, dc_nid node, uint32_t k) { return dc_operator_input(&s->o, node, k); }
static uint32_t rank_of(const search *s, dc_cid c) { return dc_cont(s->o.graph, c)->rank; }

static bool conv(const search *s, dc_nid node, dc_scope *scope) {
  product p = {.is_conv = true, .bias = input(s, node, 2)};
  return read_quantized(s, input(s, node, 0), -1, &p.a) && read_quantized(s, input(s, node, 1), 0, &p.b) && push(s, node, &p, scope);
}

static bool matmul(const search *s, dc_nid node, dc_scope *scope) {
  product p = {0};
  if (rank_of(s, input(s, node, 0)) < 2 || rank_of(s, input(s, node, 1)) != 2) return false;
  return read_quantized(s, input(s, node, 0), -1, &p.a) && read_quantized(s, input(s, node, 1), 1, &p.b) && push(s, node, &p, scope);
}

static bool is_plain(const search *s, dc_nid node) {
  const dc_attr *alpha = dc_node_attr(s->o.graph, node, "alpha"), *beta = dc_node_attr(s->o.graph, node, "beta");
  return (!alpha || alpha->f == 1) && (!beta || beta->f == 1) && !dc_node_attr_int(s->o.graph, node, "transA", 0);
}

static dc_cid turned(dc_graph *graph, dc_cid matrix, dc_scope *scope) {
  const dc_container k = *dc_cont(graph, matrix);
  const dc_ex shape[] = {k.shape[1], k.shape[0]};
  dc_cid out = dc_container_after(graph, matrix, "turned", (dc_dtype)k.dtype, 2, shape);
  return dc_scope_push(graph, scope, dc_node_library(graph, "Transpose", "", 13, &matrix, 1, &out, 1, NULL, 0)), out;
}

static bool gemm(const search *s, dc_nid node, dc_scope *scope) {
  dc_graph *graph = s->o.graph;
  const bool turns = dc_node_attr_int(graph, node, "transB", 0);
  product p = {.bias = input(s, node, 2)};
  if (!is_plain(s, node) || !read_quantized(s, input(s, node, 0), -1, &p.a) || !read_quantized(s, input(s, node, 1), turns ? 0 : 1, &p.b))
    return false;
  if (p.bias && (rank_of(s, p.bias) != 1 || dc_cont(graph, p.bias)->shape[0] != dc_cont(graph, p.b.bytes)->shape[turns ? 0 : 1])) return false;
  dc_scope all = {0};
  if (turns) p.b.bytes = turned(graph, p.b.bytes, &all);
  if (!push(s, node, &p, &all)) return false;
  for (uint32_t k = 0; k < all.n; k++) dc_scope_push(graph, scope, all.v[k]);
  return true;
}

/* ---- all in one ---- */

static bool qlinear(const search *s, dc_nid node, bool is_conv, dc_scope *scope) {
  const dc_graph *graph = s->o.graph;
  product p = {{input(s, node, 0), input(s, node, 1), input(s, node, 2)},
               {input(s, node, 3), input(s, node, 4), input(s, node, 5)},
               is_conv, is_conv ? input(s, node, 8) : 0, input(s, node, 6), input(s, node, 7)};
  const dc_container *b = dc_cont(graph, p.b.bytes);
  if (!is_conv && (rank_of(s, p.a.bytes) < 2 || b->rank != 2)) return false;
  const bool good = is_one(graph, p.y_scale) && is_one(graph, p.y_zero) && reads_bytes(graph, &p.a, NULL);
  return good && reads_bytes(graph, &p.b, &b->shape[is_conv ? 0 : 1]) && push(s, node, &p, scope);
}

/* com.microsoft's */
static bool scaled(const search *s, dc_nid node, dc_scope *scope) {
  const dc_graph *graph = s->o.graph;
  product p = {{input(s, node, 0), input(s, node, 2), input(s, node, 4)}, {input(s, node, 1), input(s, node, 3), input(s, node, 5)},
               .bias = input(s, node, 6)};
  const dc_container *b = dc_cont(graph, p.b.bytes);
  return b->rank == 2 && reads_bytes(graph, &p.a, NULL) && reads_bytes(graph, &p.b, &b->shape[1]) && push(s, node, &p, scope);
}

static bool quantizing(const search *s, dc_nid node, dc_scope *scope) {
  dc_graph *graph = s->o.graph;
  const dc_cid a = input(s, node, 0), b = input(s, node, 1), scale = input(s, node, 2), zero = input(s, node, 3);
  const dc_container floats = *dc_cont(graph, a);
  if (floats.dtype != DC_F32 || floats.rank < 2 || dc_cont(graph, b)->rank != 2) return false;
  dc_cid out[] = {dc_container_after(graph, a, "bytes", DC_U8, floats.rank, floats.shape), dc_container_after(graph, a, "scale", DC_F32, 0, NULL),
                  dc_container_after(graph, a, "zero", DC_U8, 0, NULL)};
  product p = {{out[0], out[1], out[2]}, {b, scale, zero}, .bias = input(s, node, 4)};
  if (!reads_bytes(graph, &p.b, &dc_cont(graph, b)->shape[1])) return false;
  dc_scope all = {0};
  dc_scope_push(graph, &all, dc_node_library(graph, "DynamicQuantizeLinear", "", 11, &a, 1, out, 3, NULL, 0));
  if (!push(s, node, &p, &all)) return false;
  for (uint32_t k = 0; k < all.n; k++) dc_scope_push(graph, scope, all.v[k]);
  return true;
}

static bool is_microsofts(const dc_graph *graph, dc_nid node, const char *op) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  return !lib->wrt && !dc_node_wish(graph, node) && strcmp(dc_name_text(&graph->names, lib->domain), "com.microsoft") == 0 &&
         strcmp(dc_name_text(&graph->names, lib->op), op) == 0;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope) {
  const search *s = state;
  (void)context;
  if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY) return false;
  if (dc_operator_is(graph, node, "Conv")) return conv(s, node, scope);
  if (dc_operator_is(graph, node, "MatMul")) return matmul(s, node, scope);
  if (dc_operator_is(graph, node, "Gemm")) return gemm(s, node, scope);
  if (dc_operator_is(graph, node, "QLinearConv")) return qlinear(s, node, true, scope);
  if (dc_operator_is(graph, node, "QLinearMatMul")) return qlinear(s, node, false, scope);
  if (is_microsofts(graph, node, "MatMulIntegerToFloat")) return scaled(s, node, scope);
  return is_microsofts(graph, node, "DynamicQuantizeMatMul") && quantizing(s, node, scope);
}

dc_status dc_pass_integers(const dc_pass_context *context, dc_graph *graph) {
  search s = {.context = context};
  if (graph->subgraphs.n) return DC_OK; /* their captures name containers too */
  dc_operators_look(&s.o, graph);
  dc_operators_replace(context, graph, replace, &s);
  return dc_pass_tidy(context->ops, graph);
}
