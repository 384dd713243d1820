/* The gradients of a call as a function of what they depend on, which can be differentiated in turn. */
#include <stdlib.h>

#include "function.h"

/* What the call was given where the graph leaves even the number of dimensions open: else nothing would be known of gradients. */
static void take_shapes(const dc_call *call, dc_graph *graph) {
  const dc_function *f = call->function;
  for (uint32_t k = 0; k < f->n_args; k++) {
    dc_array given;
    if (!f->by_shape[k]) continue;
    dc_call_describe(call->plan->forward, call->forward, f->args[k], &given);
    dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, given.rank);
    for (uint32_t d = 0; d < given.rank; d++) shape[d] = dc_ex_int(&graph->pool, given.dims[d]);
    dc_cont(graph, f->args[k])->shape = shape, dc_cont(graph, f->args[k])->rank = given.rank;
  }
}

uint32_t dc_call_derivative_kind(const dc_call *call) {
  for (uint32_t k = 0; k < call->function->n_args; k++)
    if (call->function->by_shape[k]) return call->plan->id + 1;
  return 0;
}

/* The graph as it was given, with types as far as they follow from it: of what a call is compiled for nothing else is fixed. */
static dc_status open_graph(const dc_call *call, dc_graph **out) {
  const dc_function *f = call->function;
  dc_cid blocked;
  *out = dc_graph_clone(f->graph);
  take_shapes(call, *out);
  dc_status status = dc_pass_infer(f->session.ops, *out, &blocked);
  if (!status && !blocked) return DC_OK;
  dc_graph_destroy(*out);
  *out = status ? NULL : dc_graph_clone(f->graph);
  if (*out) take_shapes(call, *out);
  return status;
}

static dc_cid add_like(dc_graph *graph, dc_cid c, dc_dtype dtype, dc_role role) {
  dc_container k = *dc_cont(graph, c);
  char *name = dc_arena_printf(&graph->arena, "gradient_%s", dc_cont_name(graph, c));
  dc_cid made = dc_container_add(graph, name, dtype, k.shape ? k.rank : 0, k.shape, role);
  if (!k.shape) dc_cont(graph, made)->shape = NULL;
  return made;
}

static void add_node(dc_graph *graph, const char *op, const dc_cid *in, uint32_t n, dc_cid out) {
  dc_scope_push(graph, dc_graph_scope(graph), dc_node_library(graph, op, "dcml", 1, in, n, &out, 1, NULL, 0));
}

/* An input for the gradient of each output that is given one. */
static void add_seeds(const dc_call *call, dc_graph *graph, const bool *given) {
  for (uint32_t k = 0; k < graph->outputs.n; k++) {
    dc_array output;
    dc_cid y = graph->outputs.v[k];
    if (!given[k]) continue;
    dc_call_output(call, k, &output);
    dc_cid seed = add_like(graph, y, output.dtype, DC_ROLE_INPUT), unread = add_like(graph, y, output.dtype, DC_ROLE_TEMP);
    add_node(graph, "SeedGradient", (dc_cid[]){y, seed}, 2, unread);
  }
}

static void give_gradients(const dc_function *f, dc_graph *graph, const bool *wanted) {
  for (uint32_t k = 0; k < graph->outputs.n; k++) dc_cont(graph, graph->outputs.v[k])->is_output = false;
  graph->outputs.n = 0;
  for (uint32_t k = 0; k < f->options.n_wrt; k++) {
    if (!wanted[k]) continue;
    dc_cid x = dc_container_find(graph, f->options.wrt[k]), gradient = add_like(graph, x, (dc_dtype)dc_cont(graph, x)->dtype, DC_ROLE_TEMP);
    add_node(graph, "GradientOf", &x, 1, gradient);
    dc_graph_mark_output(graph, gradient);
  }
}

dc_status dc_call_derivative(const dc_call *call, const bool *given, const bool *wanted, dc_graph **out) {
  if (call->function->n_writes) return dc_error(DC_ERR_UNSUPPORTED, "a function that writes its arguments in place is differentiated once");
  DC_TRY(open_graph(call, out));
  add_seeds(call, *out, given);
  give_gradients(call->function, *out, wanted);
  return DC_OK;
}
