/* Operators that stand for gradients: the adjoint of the nodes before them.
 *
 * Gradient (ai.onnx.preview.training) names its values: y, differentiated in xs.  A run of dcml.SeedGradient(Y, C) and
 * dcml.GradientOf(X) is the product with a Jacobian: C is the gradient of Y, and each X has the gradient that the node
 * gives.  Runs after inference and leaves no such node.  What follows sees gradients like any other value, so that they
 * can be differentiated in turn. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

static bool is_node(const dc_graph *graph, dc_nid id, const char *domain, const char *op) {
  const dc_node *n = dc_node_at(graph, id);
  return n->kind == DC_NODE_LIBRARY && strcmp(dc_name_text(&graph->names, n->lib.op), op) == 0 &&
         strcmp(dc_name_text(&graph->names, n->lib.domain), domain) == 0;
}

static bool is_by_name(const dc_graph *graph, dc_nid id) { return is_node(graph, id, "ai.onnx.preview.training", "Gradient"); }
static bool is_seed(const dc_graph *graph, dc_nid id) { return is_node(graph, id, "dcml", "SeedGradient"); }
static bool is_sought(const dc_graph *graph, dc_nid id) { return is_node(graph, id, "dcml", "GradientOf"); }

static dc_status named(const dc_graph *graph, const char *name, dc_cid *out) {
  *out = dc_container_find(graph, name);
  return *out ? DC_OK : dc_error(DC_ERR_MODEL, "there is no value '%s' to differentiate", name);
}

static void add_node(dc_graph *graph, uint32_t state, const char *op, const char *domain, dc_cid in, dc_cid out) {
  dc_nid node = dc_node_library(graph, op, domain, 1, &in, 1, &out, 1, NULL, 0);
  dc_scope_push(graph, &graph->states.v[state].scope, node);
}

static dc_status replace_by_name(dc_ops *ops, dc_graph *graph, uint32_t state, dc_nid id) {
  dc_library lib = dc_node_at(graph, id)->lib;
  const dc_attr *y = dc_node_attr(graph, id, "y"), *xs = dc_node_attr(graph, id, "xs");
  dc_cid output, *wrt = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_out), *gradients = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_out);
  if (!y || !xs || y->kind != DC_ATTR_STRING || xs->kind != DC_ATTR_STRINGS || xs->n != lib.n_out)
    return dc_error(DC_ERR_MODEL, "expected a value y, and as many values xs as outputs");
  DC_TRY(named(graph, y->s, &output));
  for (uint32_t k = 0; k < xs->n; k++) {
    DC_TRY(named(graph, xs->strings[k], &wrt[k]));
    if (k >= lib.n_in || lib.in[k] != wrt[k])
      return dc_error(DC_ERR_UNSUPPORTED, "a gradient at another point than '%s' is not supported", xs->strings[k]);
  }
  dc_container c = *dc_cont(graph, output);
  dc_cid seed = dc_container_add(graph, "seed", (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_TEMP);
  add_node(graph, state, "OnesLike", "dcml", output, seed);
  DC_TRY(dc_autodiff_inline(ops, graph, state, &output, &seed, 1, wrt, xs->n, gradients));
  for (uint32_t k = 0; k < lib.n_out; k++)
    if (lib.out[k]) add_node(graph, state, "Identity", "", gradients[k], lib.out[k]);
  return DC_OK;
}

/* A run of n nodes. */
static dc_status replace_by_value(dc_ops *ops, dc_graph *graph, uint32_t state, const dc_nid *run, uint32_t n) {
  dc_cid *of[2], *is[2]; /* outputs and their seeds; inputs and their gradients */
  uint32_t count[2] = {0};
  for (int k = 0; k < 2; k++) of[k] = DC_NEW_ARRAY(&graph->arena, dc_cid, n), is[k] = DC_NEW_ARRAY(&graph->arena, dc_cid, n);
  for (uint32_t k = 0; k < n; k++) {
    bool seed = is_seed(graph, run[k]);
    const dc_library *lib = &dc_node_at(graph, run[k])->lib;
    uint32_t at = count[!seed]++;
    of[!seed][at] = lib->in[0], is[!seed][at] = seed ? lib->in[1] : lib->out[0];
  }
  dc_cid *gradients = DC_NEW_ARRAY(&graph->arena, dc_cid, count[1]);
  for (uint32_t k = 0; k < count[0]; k++) { /* a copy, into which others may be added */
    dc_container c = *dc_cont(graph, is[0][k]);
    dc_cid copy = dc_container_add(graph, "seed", (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_TEMP);
    add_node(graph, state, "Identity", "", is[0][k], copy);
    is[0][k] = copy;
  }
  DC_TRY(dc_autodiff_inline(ops, graph, state, of[0], is[0], count[0], of[1], count[1], gradients));
  for (uint32_t k = 0; k < count[1]; k++) add_node(graph, state, "Identity", "", gradients[k], is[1][k]);
  return DC_OK;
}

static dc_status replace_run(const dc_pass_context *context, dc_graph *graph, uint32_t state, const dc_nid *run, uint32_t n) {
  dc_pass_natives(context, graph); /* what a library runs, it may differentiate */
  return is_by_name(graph, *run) ? replace_by_name(context->ops, graph, state, *run) : replace_by_value(context->ops, graph, state, run, n);
}

/* How many nodes from the k-th on are replaced together: cotangents, then gradients; 0: it stands for no gradient. */
static uint32_t run_length(const dc_graph *graph, const dc_scope *scope, uint32_t k) {
  uint32_t end = k;
  if (is_by_name(graph, scope->v[k])) return 1;
  while (end < scope->n && is_seed(graph, scope->v[end])) end++;
  while (end < scope->n && is_sought(graph, scope->v[end])) end++;
  return end - k;
}

/* *at: the run's place, then that of the last node which replaces it. */
static dc_status replace_at(const dc_pass_context *context, dc_graph *graph, uint32_t state, uint32_t *at, uint32_t n) {
  dc_scope *scope = &graph->states.v[state].scope, rest = {0};
  dc_nid *run = dc_arena_copy(&graph->arena, scope->v + *at, n * sizeof *run);
  for (uint32_t k = *at + n; k < scope->n; k++) dc_scope_push(graph, &rest, scope->v[k]);
  scope->n = *at;
  DC_TRY(dc_error_at(replace_run(context, graph, state, run, n), "%s", dc_node_describe(graph, *run)));
  *at = graph->states.v[state].scope.n - 1;
  for (uint32_t k = 0; k < rest.n; k++) dc_scope_push(graph, &graph->states.v[state].scope, rest.v[k]);
  return DC_OK;
}

dc_status dc_pass_gradient(const dc_pass_context *context, dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      uint32_t n = run_length(graph, &graph->states.v[s].scope, k);
      if (n) DC_TRY(replace_at(context, graph, s, &k, n));
    }
  return DC_OK;
}
