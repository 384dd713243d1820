/* Gives a node of a graph a gradient that somebody else states: the operators of own.c around it.
 *
 *     Y = Op(X, W)   becomes   Y' = Op(X, W)   C = Cotangent(Y')   B, D = dcml.Backward(X, W, Y', C)
 *                              G = GiveGradient(Y', X, B)   H = GiveGradient(G, W, D)   Y = TakeGradient(H, C)
 *
 * The node Backward stands for what the caller puts in its place. */
#include <string.h>

#include "autodiff/autodiff.h"

static dc_cid like(dc_graph *graph, dc_cid c, const char *name) {
  dc_container k = *dc_cont(graph, c);
  return dc_container_add(graph, name, (dc_dtype)k.dtype, k.rank, k.shape, DC_ROLE_TEMP);
}

/* The gradient of c, as a container of its own; gradient_<name> is kept for the array that the caller gives. */
static dc_cid gradient_of(dc_graph *graph, dc_cid c) {
  return like(graph, c, dc_arena_printf(&graph->arena, "d_%s", dc_cont_name(graph, c)));
}

static dc_nid own_node(dc_graph *graph, const char *op, const dc_cid *in, uint32_t n, dc_cid out, dc_scope *scope) {
  dc_nid made = dc_node_library(graph, op, "dcml", 1, in, n, &out, 1, NULL, 0);
  dc_scope_push(graph, scope, made);
  return made;
}

static dc_scope *scope_of(dc_graph *graph, dc_nid node, uint32_t *at) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (*at = 0; *at < graph->states.v[s].scope.n; (*at)++)
      if (graph->states.v[s].scope.v[*at] == node) return &graph->states.v[s].scope;
  return NULL;
}

static void surround(dc_graph *graph, dc_nid node, dc_border *b, dc_scope *scope) {
  dc_library lib = dc_node_at(graph, node)->lib;
  dc_cid *in = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_in + 2 * lib.n_out), *outer = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_out);
  uint32_t n = lib.n_in;
  memcpy(in, lib.in, n * sizeof *in);
  for (uint32_t k = 0; k < b->n_given; k++) {
    dc_cid y = outer[k] = lib.out[b->given[k]];
    lib.out[b->given[k]] = like(graph, y, dc_cont_name(graph, y)); /* the list is the node's */
    b->cotangent[k] = gradient_of(graph, y);
    own_node(graph, "Cotangent", &lib.out[b->given[k]], 1, b->cotangent[k], scope);
    in[n++] = lib.out[b->given[k]], in[n++] = b->cotangent[k];
  }
  for (uint32_t k = 0; k < b->n_required; k++) b->gradient[k] = gradient_of(graph, lib.in[b->required[k]]);
  b->placeholder = dc_node_library(graph, "Backward", "dcml", 1, in, n, b->gradient, b->n_required, NULL, 0);
  dc_scope_push(graph, scope, b->placeholder);
  dc_cid value = lib.out[b->given[0]];
  for (uint32_t k = 0; k < b->n_required; k++) {
    dc_cid next = like(graph, value, "given"), operands[] = {value, lib.in[b->required[k]], b->gradient[k]};
    own_node(graph, "GiveGradient", operands, 3, next, scope);
    value = next;
  }
  for (uint32_t k = 0; k < b->n_given; k++) {
    dc_cid operands[] = {k ? lib.out[b->given[k]] : value, b->cotangent[k]};
    own_node(graph, "TakeGradient", operands, 2, outer[k], scope);
  }
}

dc_status dc_autodiff_border(dc_graph *graph, dc_nid node, dc_border *border) {
  uint32_t at;
  dc_scope *scope = scope_of(graph, node, &at), after = {0};
  if (!scope || dc_node_at(graph, node)->kind != DC_NODE_LIBRARY)
    return dc_error(DC_ERR_VALUE, "node %u is no operator of the graph", node);
  dc_library lib = dc_node_at(graph, node)->lib;
  if (!border->n_given) return dc_error(DC_ERR_VALUE, "%s: no gradient is given", dc_node_describe(graph, node));
  for (uint32_t k = 0; k < border->n_given; k++)
    if (border->given[k] >= lib.n_out || !lib.out[border->given[k]])
      return dc_error(DC_ERR_VALUE, "%s has no output %u", dc_node_describe(graph, node), border->given[k]);
  for (uint32_t k = 0; k < border->n_required; k++)
    if (border->required[k] >= lib.n_in || !lib.in[border->required[k]])
      return dc_error(DC_ERR_VALUE, "%s has no input %u", dc_node_describe(graph, node), border->required[k]);
  border->cotangent = DC_NEW_ARRAY(&graph->arena, dc_cid, border->n_given);
  border->gradient = DC_NEW_ARRAY(&graph->arena, dc_cid, border->n_required);
  for (uint32_t k = 0; k <= at; k++) dc_scope_push(graph, &after, scope->v[k]);
  surround(graph, node, border, &after);
  for (uint32_t k = at + 1; k < scope->n; k++) dc_scope_push(graph, &after, scope->v[k]);
  *scope = after;
  return DC_OK;
}
