/* The operator Gradient (ai.onnx.preview.training): the adjoint of the nodes before it, by the names of values.
 *
 * Runs after inference and leaves no such node.  What follows the node sees gradients like any other value. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

static bool is_gradient(const dc_graph *graph, dc_nid id) {
  const dc_node *n = dc_node_at(graph, id);
  return n->kind == DC_NODE_LIBRARY && strcmp(dc_name_text(&graph->names, n->lib.op), "Gradient") == 0 &&
         strcmp(dc_name_text(&graph->names, n->lib.domain), "ai.onnx.preview.training") == 0;
}

static dc_status named(const dc_graph *graph, const char *name, dc_cid *out) {
  *out = dc_container_find(graph, name);
  return *out ? DC_OK : dc_error(DC_ERR_MODEL, "there is no value '%s' to differentiate", name);
}

static void add_node(dc_graph *graph, uint32_t state, const char *op, const char *domain, dc_cid in, dc_cid out) {
  dc_nid node = dc_node_library(graph, op, domain, 1, &in, 1, &out, 1, NULL, 0);
  dc_scope_push(graph, &graph->states.v[state].scope, node);
}

static dc_status replace(dc_ops *ops, dc_graph *graph, uint32_t state, dc_nid id) {
  dc_library lib = dc_node_at(graph, id)->lib;
  const dc_attr *y = dc_node_attr(graph, id, "y"), *xs = dc_node_attr(graph, id, "xs");
  dc_cid output, *wrt = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_out), *gradients = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_out);
  if (!y || !xs || y->kind != DC_ATTR_STRING || xs->kind != DC_ATTR_STRINGS || xs->n != lib.n_out)
    return dc_error(DC_ERR_MODEL, "expected a value y, and as many values xs as outputs");
  DC_TRY(named(graph, y->s, &output));
  for (uint32_t k = 0; k < xs->n; k++) {
    DC_TRY(named(graph, xs->strings[k], &wrt[k]));
    if (k >= lib.n_in || lib.in[k] != wrt[k]) return dc_error(DC_ERR_UNSUPPORTED, "a gradient at another point than '%s' is not supported", xs->strings[k]);
  }
  dc_container c = *dc_cont(graph, output);
  dc_cid seed = dc_container_add(graph, "seed", (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_TEMP);
  add_node(graph, state, "OnesLike", "dcml", output, seed);
  DC_TRY(dc_autodiff_inline(ops, graph, state, output, seed, wrt, xs->n, gradients));
  for (uint32_t k = 0; k < lib.n_out; k++)
    if (lib.out[k]) add_node(graph, state, "Identity", "", gradients[k], lib.out[k]);
  return DC_OK;
}

dc_status dc_pass_gradient(dc_ops *ops, dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_scope before = graph->states.v[s].scope, rest = {0};
      dc_nid id = before.v[k];
      if (!is_gradient(graph, id)) continue;
      for (uint32_t j = k + 1; j < before.n; j++) dc_scope_push(graph, &rest, before.v[j]);
      graph->states.v[s].scope.n = k;
      DC_TRY(dc_error_at(replace(ops, graph, s, id), "%s", dc_node_describe(graph, id)));
      k = graph->states.v[s].scope.n - 1;
      for (uint32_t j = 0; j < rest.n; j++) dc_scope_push(graph, &graph->states.v[s].scope, rest.v[j]);
    }
  return DC_OK;
}
