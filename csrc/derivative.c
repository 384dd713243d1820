/* The gradients of a call as a function of what they depend on, which can be differentiated in turn. */
#include <stdlib.h>
#include <string.h>

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

enum { OF_PLAN = 1u << 31 };

uint32_t dc_call_derivative_kind(const dc_call *call, bool shares) {
  if (shares) return OF_PLAN | call->plan->id;
  for (uint32_t k = 0; k < call->function->n_args; k++)
    if (call->function->by_shape[k]) return call->plan->id + 1;
  return 0;
}

/* The graph as it was given, with types as far as they follow from it: of what a call is compiled for nothing else is fixed.
 * known: all do. */
static dc_status open_graph(const dc_call *call, dc_graph **out, bool *known) {
  const dc_function *f = call->function;
  dc_cid blocked;
  *out = dc_graph_clone(f->graph);
  take_shapes(call, *out);
  dc_status status = dc_pass_infer(f->session.ops, *out, &blocked);
  *known = !status && !blocked;
  if (*known) return DC_OK;
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

/* ---- values that the call has saved ---- */

/* Is it, in the saved block as in the graph, the value that one operator makes? */
static bool is_shared(const dc_graph *forward, const dc_graph *graph, const dc_writers *writers, dc_cid c) {
  const dc_container *saved = dc_cont(forward, c), *value = dc_cont(graph, c);
  bool same = strcmp(dc_cont_name(forward, c), dc_cont_name(graph, c)) == 0;
  if (!same || saved->role != DC_ROLE_SAVED || saved->strides || saved->alias_of || saved->is_output) return false;
  return value->role == DC_ROLE_TEMP && !value->alias_of && value->shape && writers[c].n == 1 && saved->dtype == value->dtype &&
         saved->rank == value->rank && dc_dtype_is_float((dc_dtype)value->dtype);
}

/* An input for each of them, and those that the function was given itself. */
static void add_given(const dc_call *call, dc_derivative *out) {
  const dc_function *f = call->function;
  const dc_graph *forward = dc_program_graph(call->plan->forward);
  dc_graph *graph = out->graph;
  uint32_t n = f->graph->containers.n, own = f->options.n_given;
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  bool *seen = DC_NEW_ARRAY(&graph->arena, bool, n);
  dc_graph_writers(graph, writers);
  dc_given_value *all = DC_NEW_ARRAY(&graph->arena, dc_given_value, own + n);
  out->given = all;
  for (uint32_t k = 0; k < own; k++) all[k] = f->options.given[k], seen[f->options.given[k].value] = true;
  out->n_given = own;
  for (dc_cid c = 1; c < n; c++) {
    if (seen[c] || !is_shared(forward, graph, writers, c)) continue;
    dc_container like = *dc_cont(graph, c);
    const char *name = dc_arena_printf(&graph->arena, "given_%s", dc_cont_name(graph, c));
    dc_cid given = dc_container_add(graph, name, (dc_dtype)like.dtype, like.rank, like.shape, DC_ROLE_INPUT);
    all[out->n_given++] = (dc_given_value){c, given};
    out->n_shared++;
  }
}

void dc_call_saved(const dc_call *call, dc_cid c, dc_array *out, uint64_t *offset) {
  dc_call_describe(call->plan->forward, call->forward, c, out);
  *offset = dc_binding_saved_offset(call->forward, c);
}

dc_status dc_call_derivative(const dc_call *call, const bool *given, const bool *wanted, bool shares, dc_derivative *out) {
  bool known;
  *out = (dc_derivative){0};
  if (call->function->n_writes) return dc_error(DC_ERR_UNSUPPORTED, "a function that writes its arguments in place is differentiated once");
  DC_TRY(open_graph(call, &out->graph, &known));
  add_seeds(call, out->graph, given);
  give_gradients(call->function, out->graph, wanted);
  if (shares && known && !out->graph->subgraphs.n) add_given(call, out);
  else out->given = call->function->options.given, out->n_given = call->function->options.n_given;
  return DC_OK;
}

/* As maps: of an operator's results, not each depends on all that it reads.  NULL where that cannot be said yet. */
static dc_graph *expanded(const dc_function *f) {
  const dc_pass_context context = {.ops = f->session.ops};
  dc_graph *graph = dc_graph_clone(f->graph);
  dc_cid blocked = 0;
  dc_status status = DC_OK;
  if (graph->subgraphs.n) status = dc_error(DC_ERR_UNSUPPORTED, "captures are read, too");
  else status = dc_pass_infer(context.ops, graph, &blocked);
  if (!status && !blocked) status = dc_pass_gradient(&context, graph);
  if (!status && !blocked) status = dc_pass_expand(context.ops, graph);
  if (!status && !blocked) return graph;
  dc_status_free(status);
  dc_graph_destroy(graph);
  return NULL;
}

void dc_function_influences(const dc_function *f, const bool *outputs, bool *args) {
  dc_graph *graph = expanded(f);
  bool *wanted = graph ? DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n) : NULL;
  for (uint32_t k = 0; graph && k < graph->outputs.n; k++) wanted[dc_container_root(graph, graph->outputs.v[k])] |= outputs[k];
  for (uint32_t s = graph ? graph->states.n : 0; s-- > 0;)
    for (uint32_t k = graph->states.v[s].scope.n; k-- > 0;) {
      dc_nid node = graph->states.v[s].scope.v[k];
      if (dc_node_touches(graph, node, DC_USE_WRITE, wanted)) dc_node_mark(graph, node, DC_USE_READ, wanted);
    }
  for (uint32_t k = 0; k < f->n_args; k++) args[k] = !graph || wanted[f->args[k]];
  dc_graph_destroy(graph);
}
