/* Products take in what stands around them, where a library runs them so: a Transpose of the last two dimensions of an
 * operand is read where it lies, and a row that is added to the result is added by the library.
 *
 *     T = Transpose(W)   P = MatMul(X, T)   Y = Add(P, bias)   becomes   Y = Product(X, W, bias) {transB = 1}
 *
 * Runs before differentiation, so that gradients are products of the same kind: that of W is stored as W is. */
#include "passes/operators.h"

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
  return row->rank == 1 && row->dtype == y->dtype && row->shape[0] == y->shape[y->rank - 1];
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
    for (uint32_t k = graph->states.v[s].scope.n; k-- > 0;) { /* an Add before its MatMul, which then is read by nobody */
      dc_nid made = product_of(context, &o, graph->states.v[s].scope.v[k]);
      if (made) graph->states.v[s].scope.v[k] = made;
    }
  return dc_pass_tidy(context->ops, graph);
}
