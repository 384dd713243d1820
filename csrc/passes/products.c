/* Products take in what stands around them, where a library runs them so: a Transpose of the last two dimensions of an
 * operand is read where it lies, and a row that is added to the result is added by the library.
 *
 *     T = Transpose(W)   P = MatMul(X, T)   Y = Add(P, bias)   becomes   Y = Product(X, W, bias) {transB = 1}
 *
 * Of rows of a result that a Slice leaves out nothing is computed, whoever runs the product: logits of all tokens but the last.
 *
 *     P = MatMul(X, W)   Y = Slice(P, rows)   becomes   R = Slice(X, rows)   Y = MatMul(R, W)
 *
 * Runs before differentiation, so that gradients are products of the same kind: that of W is stored as W is. */
#include <string.h>

#include "passes/operators.h"

/* ---- slices of results ---- */

/* Does a Slice, whose bounds are constants, leave the last dimension alone? */
static bool takes_rows(const dc_graph *graph, const dc_library *slice, uint32_t rank) {
  for (uint32_t k = 1; k < slice->n_in; k++)
    if (slice->in[k] && dc_cont(graph, slice->in[k])->role != DC_ROLE_CONST) return false;
  if (slice->n_in < 4 || !slice->in[3]) return false;
  const dc_container *axes = dc_cont(graph, slice->in[3]);
  if (axes->dtype != DC_I64 || axes->data_bytes > DC_MAX_RANK * sizeof(int64_t)) return false;
  for (uint64_t at = 0; at < axes->data_bytes; at += sizeof(int64_t)) {
    int64_t axis;
    memcpy(&axis, (const char *)axes->data + at, sizeof axis);
    if (axis == -1 || axis == (int64_t)rank - 1) return false;
  }
  return true;
}

/* Slicing the operand, whose rows are no longer than those of the result, moves no more than slicing the result. */
static bool has_short_rows(const dc_graph *graph, const dc_container *operand, const dc_container *result) {
  int64_t before, after;
  const dc_ex width = operand->shape[operand->rank - 1], columns = result->shape[result->rank - 1];
  return dc_ex_is_int(&graph->pool, width, &before) && dc_ex_is_int(&graph->pool, columns, &after) && before <= after;
}

/* The Slice at a place becomes one of the left operand of the MatMul before it, where nobody else reads the result. */
static void slice_operand(const dc_operators *o, dc_scope *scope, uint32_t at) {
  dc_graph *graph = o->graph;
  if (dc_node_at(graph, scope->v[at])->kind != DC_NODE_LIBRARY) return;
  const dc_node slice = *dc_node_at(graph, scope->v[at]);
  dc_cid out = slice.lib.out[0], product = slice.lib.n_in ? slice.lib.in[0] : 0;
  const dc_nid matmul = out && dc_operator_making(o, out, "Slice") == scope->v[at] ? dc_operator_making_only(o, product, "MatMul") : 0;
  uint32_t from = at;
  while (matmul && from && scope->v[from] != matmul) from--;
  if (!matmul || scope->v[from] != matmul) return;
  const dc_node old = *dc_node_at(graph, matmul);
  const dc_container *x = dc_cont(graph, old.lib.in[0]), *y = dc_cont(graph, out);
  const uint32_t rank = x->rank;
  if (rank < 2 || rank != y->rank || dc_cont(graph, old.lib.in[1])->rank != 2) return;
  if (!takes_rows(graph, &slice.lib, rank) || !has_short_rows(graph, x, y)) return;
  dc_ex shape[DC_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) shape[d] = d + 1 < rank ? y->shape[d] : x->shape[d];
  dc_cid rows = dc_container_after(graph, product, "rows", (dc_dtype)x->dtype, rank, shape);
  dc_cid *in = dc_arena_copy(&graph->arena, slice.lib.in, slice.lib.n_in * sizeof *in), operands[] = {rows, old.lib.in[1]};
  in[0] = old.lib.in[0];
  dc_nid first = dc_node_library(graph, "Slice", "", slice.lib.since, in, slice.lib.n_in, &rows, 1, slice.lib.attr, slice.lib.n_attr);
  dc_nid second = dc_node_library(graph, "MatMul", "", old.lib.since, operands, 2, &out, 1, old.lib.attr, old.lib.n_attr);
  dc_node_at(graph, first)->name = slice.name, dc_node_at(graph, second)->name = old.name;
  for (uint32_t k = at; k > from + 1; k--) scope->v[k] = scope->v[k - 1];
  scope->v[from] = first, scope->v[from + 1] = second;
}

/* ---- operands and added rows ---- */

/* What stands before an operand's Transpose; the operand itself, and false, where there is none of the last two. */
static bool transposed(const dc_operators *o, dc_cid *operand) {
  int64_t perm[DC_MAX_RANK];
  dc_nid node = dc_operator_making(o, *operand, "Transpose");
  uint32_t rank = dc_cont(o->graph, *operand)->rank;
  if (!node || rank < 2 || !dc_operator_permutation(o, node, perm)) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (perm[d] != (d + 2 < rank ? d : 2 * rank - 3 - d)) return false;
  *operand = dc_operator_input(o, node, 0);
  return true;
}

static bool is_row(const dc_graph *graph, dc_cid c, dc_cid product) {
  const dc_container *row = dc_cont(graph, c), *y = dc_cont(graph, product);
  return row->rank == 1 && y->rank && row->dtype == y->dtype && row->shape[0] == y->shape[y->rank - 1];
}

/* The MatMul whose result an Add takes alone, with the row that it adds; 0: none. */
static dc_nid under_add(const dc_operators *o, dc_nid add, dc_cid *row) {
  for (uint32_t k = 0; k < 2; k++) {
    dc_cid product = dc_operator_input(o, add, k);
    dc_nid matmul = dc_operator_making_only(o, product, "MatMul");
    *row = dc_operator_input(o, add, 1 - k);
    if (matmul && is_row(o->graph, *row, product)) return matmul;
  }
  return 0;
}

/* The Product that stands for the node; 0: it is no product, has nothing around it, or no library runs it so. */
static dc_nid product_of(const dc_pass_context *context, const dc_operators *o, dc_nid node) {
  dc_graph *graph = o->graph;
  dc_cid out = dc_node_at(graph, node)->kind == DC_NODE_LIBRARY ? dc_node_at(graph, node)->lib.out[0] : 0, row = 0;
  dc_nid matmul = !out ? 0 : dc_operator_making(o, out, "Add") == node ? under_add(o, node, &row) : dc_operator_making(o, out, "MatMul");
  if (!matmul || (matmul != node && !row)) return 0;
  dc_cid in[] = {dc_operator_input(o, matmul, 0), dc_operator_input(o, matmul, 1), row};
  bool ta = transposed(o, &in[0]), tb = transposed(o, &in[1]);
  if ((!ta && !tb && !row) || dc_cont(graph, in[0])->rank < 2 || dc_cont(graph, in[1])->rank < 2) return 0;
  dc_attr attr[] = {dc_attr_int(graph, "transA", ta), dc_attr_int(graph, "transB", tb)};
  dc_nid made = dc_node_library(graph, "Product", "dcml", 1, in, row ? 3 : 2, &out, 1, attr, 2);
  dc_node_at(graph, made)->name = dc_node_at(graph, matmul)->name;
  return dc_operator_is_served(context, graph, made) ? made : 0;
}

dc_status dc_pass_products(const dc_pass_context *context, dc_graph *graph) {
  dc_operators o;
  if (graph->subgraphs.n) return DC_OK; /* their captures name containers too */
  dc_operators_look(&o, graph);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) slice_operand(&o, &graph->states.v[s].scope, k);
  dc_operators_look(&o, graph);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = graph->states.v[s].scope.n; k-- > 0;) { /* an Add before its MatMul, which then is read by nobody */
      dc_nid made = product_of(context, &o, graph->states.v[s].scope.v[k]);
      if (made) graph->states.v[s].scope.v[k] = made;
    }
  return dc_pass_tidy(context->ops, graph);
}
