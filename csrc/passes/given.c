/* Values that the caller has from an earlier run: what makes them is not run again.
 *
 *     H: input   A = Tanh(P)   Y = MatMul(A, W)   with A given in H   becomes   A: view of H   Y = MatMul(A, W)
 *
 * Runs after differentiation, which went through what makes them: gradients flow into what they depend on, not into the
 * inputs that hold them.  Then nothing reads P, and `simplify` drops what made it. */
#include "passes/pipeline.h"

typedef struct {
  dc_graph *graph;
  dc_cid *holder;       /* by container: the input that holds it, 0: none */
  dc_writers *writers;  /* by container */
  bool any, others;     /* what the node at hand writes: something given, something else */
  bool drops;           /* what is given is no longer so, if the node at hand writes it */
} takeover;

static bool same_form(const dc_container *a, const dc_container *b) {
  bool same = a->dtype == b->dtype && a->rank == b->rank && a->shape && b->shape;
  for (uint32_t d = 0; same && d < a->rank; d++) same = a->shape[d] == b->shape[d];
  return same;
}

/* One node makes it, for itself or for the backward graph, or made it in the forward graph. */
static bool may_be_given(const takeover *t, dc_given_value v) {
  const dc_container *c = dc_cont(t->graph, v.value), *holder = dc_cont(t->graph, v.given);
  bool plain = c->storage == DC_STORE_HEAP && !c->alias_of && !c->is_output && !c->strides && !c->known;
  bool made = (c->role == DC_ROLE_TEMP && t->writers[v.value].n == 1) || (c->role == DC_ROLE_SAVED && t->writers[v.value].n <= 1);
  return plain && made && holder->role == DC_ROLE_INPUT && !t->writers[v.given].n && same_form(c, holder);
}

static void note_write(void *context, dc_cid c, dc_use use, dc_nid by) {
  takeover *t = context;
  dc_cid root = dc_container_root(t->graph, c);
  (void)by;
  if (use != DC_USE_WRITE) return;
  if (t->holder[root]) t->any = true;
  else t->others = true;
  if (t->drops) t->holder[root] = 0;
}

static void look_at(takeover *t, dc_nid node, bool drops) {
  t->any = t->others = false, t->drops = drops;
  dc_node_uses(t->graph, node, note_write, t);
}

/* A node that makes other things too is run, and with it all that it makes. */
static bool drop_mixed(takeover *t) {
  bool dropped = false;
  for (uint32_t s = 0; s < t->graph->states.n; s++)
    for (uint32_t k = 0; k < t->graph->states.v[s].scope.n; k++) {
      dc_nid node = t->graph->states.v[s].scope.v[k];
      look_at(t, node, false);
      if (!t->any || !t->others) continue;
      look_at(t, node, true);
      dropped = true;
    }
  return dropped;
}

static void remove_makers(takeover *t) {
  for (uint32_t s = 0; s < t->graph->states.n; s++) {
    dc_scope *scope = &t->graph->states.v[s].scope;
    uint32_t n = 0;
    for (uint32_t k = 0; k < scope->n; k++) {
      look_at(t, scope->v[k], false);
      if (!t->any) scope->v[n++] = scope->v[k];
    }
    scope->n = n;
  }
}

static void take_in(dc_graph *graph, const dc_given_value *values, uint32_t n) {
  takeover t = {.graph = graph};
  if (graph->subgraphs.n) return; /* their captures name containers too */
  t.holder = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->containers.n);
  t.writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  dc_graph_writers(graph, t.writers);
  for (uint32_t k = 0; k < n; k++)
    if (may_be_given(&t, values[k])) t.holder[values[k].value] = values[k].given;
  while (drop_mixed(&t)) {}
  remove_makers(&t);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (t.holder[c]) dc_cont(graph, c)->role = DC_ROLE_TEMP, dc_cont(graph, c)->alias_of = t.holder[c], dc_cont(graph, c)->alias_offset = 0;
}

void dc_pipeline_take_given(dc_graph *forward, dc_graph *backward, const dc_given_value *values, uint32_t n) {
  take_in(forward, values, n);
  if (backward) take_in(backward, values, n);
}
