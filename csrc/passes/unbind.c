/* Gathers that take all slices of an array along an axis, each once, become a Split, whose gradient writes every slice once: theirs
 * fill an array with zeros and add slice after slice to it.
 *
 *     A = Gather(X, 0) {axis = 0}   B = Gather(X, 1) {axis = 0}          with   X: f32[2, N]   becomes
 *     P, Q = Split(X) {axis = 0}   A = Reshape(P, [N])   B = Reshape(Q, [N])
 *
 * Queries, keys and values of torch's attention are such slices.  Runs before differentiation. */
#include <string.h>

#include "passes/operators.h"

enum { MOST_PARTS = 16 };

/* The slices that are taken of an array. */
typedef struct {
  int64_t axis, extent;
  uint32_t n, state; /* n: Gathers along the axis; state: of all of them */
  dc_cid slice[MOST_PARTS];
  bool whole, done; /* whole: each is taken once */
} slices;

typedef struct {
  dc_operators operators;
  dc_writers *writers;
  slices **of; /* by container; NULL: none are taken */
} search;

/* What a Gather takes of which slice; false: it takes something else, or of an array that is too long. */
static bool reads_slice(const dc_operators *o, dc_nid node, dc_cid *array, int64_t *axis, int64_t *extent, int64_t *at) {
  dc_graph *graph = o->graph;
  if (!dc_operator_is(graph, node, "Gather")) return false;
  *array = dc_operator_input(o, node, 0);
  const dc_cid index = dc_operator_input(o, node, 1);
  const dc_container *k = *array ? dc_cont(graph, *array) : NULL;
  if (!k || !k->shape || !k->rank || k->dtype == DC_STRING) return false;
  if (!index || dc_cont(graph, index)->rank || !dc_container_number(graph, index, at)) return false;
  *axis = dc_node_attr_int(graph, node, "axis", 0);
  if (*axis < 0) *axis += k->rank;
  if (*axis < 0 || *axis >= k->rank || !dc_ex_is_int(&graph->pool, k->shape[*axis], extent)) return false;
  if (*at < 0) *at += *extent;
  return *extent > 1 && *extent <= MOST_PARTS && *at >= 0 && *at < *extent;
}

/* Written once, or given and never written: the same for all who read it. */
static bool is_one_value(const search *s, dc_cid c) { return s->writers[c].n <= (dc_cont(s->operators.graph, c)->role == DC_ROLE_TEMP); }

static void note_slice(search *s, uint32_t state, dc_nid node) {
  dc_graph *graph = s->operators.graph;
  dc_cid array;
  int64_t axis, extent, at;
  if (!reads_slice(&s->operators, node, &array, &axis, &extent, &at) || !is_one_value(s, array)) return;
  if (!s->of[array]) {
    s->of[array] = DC_NEW(&graph->arena, slices);
    *s->of[array] = (slices){.axis = axis, .extent = extent, .state = state, .whole = true};
  }
  slices *p = s->of[array];
  if (p->axis != axis) return;
  p->whole &= !p->slice[at] && p->state == state;
  p->slice[at] = dc_node_at(graph, node)->lib.out[0], p->n++;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope) {
  search *s = state;
  dc_cid array, out[MOST_PARTS];
  int64_t axis, extent, at;
  (void)context;
  if (!reads_slice(&s->operators, node, &array, &axis, &extent, &at)) return false;
  slices *p = s->of[array];
  if (!p || p->axis != axis || !p->whole || p->n != extent) return false;
  if (p->done) return true;
  const dc_container k = *dc_cont(graph, array);
  dc_ex shape[DC_MAX_RANK];
  memcpy(shape, k.shape, k.rank * sizeof *shape);
  shape[axis] = dc_ex_int(&graph->pool, 1);
  for (int64_t j = 0; j < extent; j++) out[j] = dc_container_after(graph, p->slice[j], "part", (dc_dtype)k.dtype, k.rank, shape);
  dc_attr attr = dc_attr_int(graph, "axis", axis);
  dc_nid made = dc_node_library(graph, "Split", "", 13, &array, 1, out, (uint32_t)extent, &attr, 1);
  dc_node_at(graph, made)->name = dc_node_at(graph, node)->name;
  dc_scope_push(graph, scope, made);
  for (int64_t j = 0; j < extent; j++) dc_operator_reshape(graph, out[j], p->slice[j], scope);
  return p->done = true;
}

dc_status dc_pass_unbind(const dc_pass_context *context, dc_graph *graph) {
  search s = {.of = DC_NEW_ARRAY(&graph->arena, slices *, graph->containers.n)};
  s.writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  dc_graph_writers(graph, s.writers);
  dc_operators_look(&s.operators, graph);
  for (uint32_t k = 0; k < graph->states.n; k++)
    for (uint32_t j = 0; j < graph->states.v[k].scope.n; j++) note_slice(&s, k, graph->states.v[k].scope.v[j]);
  dc_operators_replace(context, graph, replace, &s);
  return dc_pass_tidy(context->ops, graph);
}
