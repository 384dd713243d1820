/* Products and convolutions of 16-bit floats that no library runs so are run in f32, where one does, between casts.
 *
 *     Y = MatMul(A, B)   of bf16   becomes   V = Cast(A)   W = Cast(B)   Z = MatMul(V, W)   Y = Cast(Z)
 *
 * That is what the operator means: sums of such numbers are f32, rounded once.  Processors without instructions for these
 * types are no slower in f32, and generated loops are far behind a library.  Runs before differentiation, so that gradients
 * are products of f32 too. */
#include "passes/operators.h"

static bool is_narrow(const dc_graph *graph, dc_cid c) {
  dc_dtype type = (dc_dtype)dc_cont(graph, c)->dtype;
  return c && (type == DC_BF16 || type == DC_F16);
}

static dc_nid cast(dc_graph *graph, dc_cid from, dc_cid to) {
  dc_attr type = dc_attr_int(graph, "to", dc_cont(graph, to)->dtype);
  return dc_node_library(graph, "Cast", "", 13, &from, 1, &to, 1, &type, 1);
}

static dc_cid wide_like(dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  return dc_container_after(graph, c, "wide", DC_F32, k->rank, k->shape);
}

/* The same operator of wide operands; 0: no library runs it. */
static dc_nid widened(const dc_pass_context *context, dc_graph *graph, dc_nid node) {
  dc_library lib = dc_node_at(graph, node)->lib;
  dc_cid *in = dc_arena_copy(&graph->arena, lib.in, lib.n_in * sizeof *in),
         *out = dc_arena_copy(&graph->arena, lib.out, lib.n_out * sizeof *out);
  for (uint32_t k = 0; k < lib.n_in; k++)
    if (is_narrow(graph, in[k])) in[k] = wide_like(graph, in[k]);
  for (uint32_t k = 0; k < lib.n_out; k++)
    if (is_narrow(graph, out[k])) out[k] = wide_like(graph, out[k]);
  dc_nid made = dc_node_library(graph, dc_name_text(&graph->names, lib.op), dc_name_text(&graph->names, lib.domain), lib.since, in,
                                lib.n_in, out, lib.n_out, lib.attr, lib.n_attr);
  dc_node_at(graph, made)->name = dc_node_at(graph, node)->name;
  return dc_operator_is_served(context, graph, made) ? made : 0;
}

/* Does a library multiply for this operator, and none as it is? */
static bool is_wanted(const dc_pass_context *context, dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_LIBRARY || node->lib.wrt || !node->lib.n_in || !is_narrow(graph, node->lib.in[0]) || dc_node_wish(graph, id))
    return false;
  const dc_row *row = dc_ops_row_of(context->ops, graph, &node->lib);
  return row && dc_row_native(row, 0) && dc_row_is_linear(row, 0) && !(context->stamp && dc_operator_is_served(context, graph, id));
}

static bool widen(const dc_pass_context *context, dc_graph *graph, dc_nid old, void *state, dc_scope *scope) {
  (void)state;
  dc_nid made = is_wanted(context, graph, old) ? widened(context, graph, old) : 0;
  if (!made) return false;
  dc_library narrow = dc_node_at(graph, old)->lib, wide = dc_node_at(graph, made)->lib;
  for (uint32_t k = 0; k < narrow.n_in; k++)
    if (narrow.in[k] != wide.in[k]) dc_scope_push(graph, scope, cast(graph, narrow.in[k], wide.in[k]));
  dc_scope_push(graph, scope, made);
  for (uint32_t k = 0; k < narrow.n_out; k++)
    if (narrow.out[k] != wide.out[k]) dc_scope_push(graph, scope, cast(graph, wide.out[k], narrow.out[k]));
  return true;
}

dc_status dc_pass_widen(const dc_pass_context *context, dc_graph *graph) {
  dc_operators_replace(context, graph, widen, NULL);
  return dc_pass_tidy(context->ops, graph);
}
