/* Fission: what a sequential loop computes only for later, such as the gradients of its weights, leaves it.
 *
 *     sequential t { h[t] = f(h[t - 1], W)   dW sum= g(h[t], x[t]) }   becomes
 *     sequential t { h[t] = f(h[t - 1], W) }   scatter t { dW sum= g(h[t], x[t]) }
 *
 * A node may go behind the loop if whatever it shares with the others belongs to the same iteration, in which
 * they come first; and if its own iterations share nothing, or only sums.  Then one product over all steps
 * takes the place of one a step. */
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  dc_param time, other_time;
  dc_accesses *here, *there; /* by node of the body; there: of a copy of the loop, in another iteration */
  bool *moves;
  uint32_t n;
} fission;

/* Equal elements are touched in the same iteration only.  Symbols: see access.c; a loop of no steps leaves nothing
 * undone, as what moves runs over the same range. */
static bool in_step(fission *f, const dc_access *a, const dc_access *b) {
  dc_param_pair pair = {f->time, f->other_time};
  return !dc_access_conflicts(a, b) || dc_access_disjoint(f->graph, a, b) || dc_access_forces_equal(f->graph, a, b, &pair, NULL, 0);
}

static bool are_in_step(fission *f, const dc_accesses *a, const dc_accesses *b) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++)
      if (!in_step(f, &a->v[i], &b->v[j])) return false;
  return true;
}

static bool is_sum(const fission *f, const dc_access *a) {
  const dc_node *node = dc_node_at(f->graph, a->node);
  return a->reads && a->writes && node->kind == DC_NODE_TASKLET && node->tasklet.wcr == DC_WCR_SUM;
}

/* Its iterations share nothing, or *adds: sums. */
static bool is_free(fission *f, uint32_t k, bool *adds) {
  *adds = false;
  for (uint32_t i = 0; i < f->here[k].n; i++)
    for (uint32_t j = 0; j < f->there[k].n; j++) {
      if (in_step(f, &f->here[k].v[i], &f->there[k].v[j])) continue;
      if (!is_sum(f, &f->here[k].v[i]) || !is_sum(f, &f->there[k].v[j])) return false;
      *adds = true;
    }
  return true;
}

static bool conflicts(const dc_accesses *a, const dc_accesses *b) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++)
      if (dc_access_conflicts(&a->v[i], &b->v[j])) return true;
  return false;
}

/* None of those that stay needs it, nor changes what it needs. */
static bool may_leave(fission *f, uint32_t k) {
  for (uint32_t j = 0; j < f->n; j++) {
    if (j == k || f->moves[j]) continue;
    if (j > k ? conflicts(&f->here[k], &f->here[j]) : !are_in_step(f, &f->here[k], &f->there[j])) return false;
  }
  return true;
}

/* All that moves with the loop moves downwards. */
static bool runs_backwards(fission *f, uint32_t k) {
  dc_pool *pool = &f->graph->pool;
  bool down = false;
  int64_t one;
  if (!dc_ex_is_int(pool, pool->params.v[f->time].step, &one) || one != 1) return false; /* turned round it would meet others */
  for (uint32_t i = 0; i < f->here[k].n; i++) {
    dc_ex element = f->here[k].v[i].element, by, rest;
    for (uint32_t d = 0; element && d < dc_ex_node(pool, element)->nargs; d++) {
      int64_t step;
      if (!dc_ix_split(pool, dc_ex_arg(pool, element, d), f->time, &by, &rest) || !dc_ex_is_int(pool, by, &step) || step > 0) return false;
      down |= step < 0;
    }
  }
  return down;
}

/* The node with the loop among its own. */
static dc_nid widened(fission *f, uint32_t k, dc_nid id, bool adds) {
  dc_graph *graph = f->graph;
  dc_pool *pool = &graph->pool;
  dc_parameter range = pool->params.v[f->time];
  dc_param time = dc_param_new(pool, dc_name_text(&graph->names, range.name), range.begin, range.end, range.step);
  dc_ex at = dc_ex_par(pool, time);
  if (runs_backwards(f, k)) at = dc_ix_sub(pool, dc_ix_sub(pool, dc_ix_add(pool, range.begin, range.end), dc_ex_int(pool, 1)), at);
  dc_node_substitute(graph, id, f->time, at);
  dc_map inner = dc_node_at(graph, id)->map;
  dc_param *params = DC_NEW_ARRAY(&graph->arena, dc_param, inner.n_params + 1);
  params[0] = time;
  for (uint32_t j = 0; j < inner.n_params; j++) params[j + 1] = inner.params[j];
  dc_map *map = &dc_node_at(graph, id)->map;
  map->params = params, map->n_params = inner.n_params + 1;
  if (adds) map->schedule = DC_MAP_SCATTER;
  return id;
}

static bool is_candidate(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP || node->map.body.n != 1 || dc_node_at(graph, node->map.body.v[0])->kind != DC_NODE_TASKLET) return false;
  return node->map.schedule == DC_MAP_PARALLEL || node->map.schedule == DC_MAP_SCATTER;
}

static void collect(fission *f, dc_nid loop) {
  dc_scope body = dc_node_at(f->graph, loop)->map.body;
  dc_nid other = dc_node_clone(f->graph, loop);
  dc_map copy = dc_node_at(f->graph, other)->map;
  f->n = body.n, f->time = dc_node_at(f->graph, loop)->map.params[0], f->other_time = copy.params[0];
  f->here = DC_NEW_ARRAY(&f->arena, dc_accesses, f->n), f->there = DC_NEW_ARRAY(&f->arena, dc_accesses, f->n);
  f->moves = DC_NEW_ARRAY(&f->arena, bool, f->n);
  for (uint32_t k = 0; k < f->n; k++) {
    dc_access_collect(f->graph, &f->arena, body.v[k], false, &f->here[k]);
    dc_access_collect(f->graph, &f->arena, copy.body.v[k], false, &f->there[k]);
  }
}

/* Pushes a loop, if anything is left in it, and what left it. */
static dc_status split(void *context, dc_graph *graph, dc_nid loop, dc_scope *out) {
  (void)context;
  const dc_map *map = &dc_node_at(graph, loop)->map;
  if (map->schedule != DC_MAP_SEQUENTIAL || map->n_params != 1) {
    dc_scope_push(graph, out, loop);
    return DC_OK;
  }
  fission f = {.graph = graph};
  collect(&f, loop);
  dc_scope body = dc_node_at(graph, loop)->map.body, left = {0}, gone = {0};
  bool *adds = DC_NEW_ARRAY(&f.arena, bool, f.n);
  for (uint32_t k = f.n; k-- > 0;) f.moves[k] = is_candidate(graph, body.v[k]) && may_leave(&f, k) && is_free(&f, k, &adds[k]);
  for (uint32_t k = 0; k < f.n; k++)
    if (f.moves[k]) dc_scope_push(graph, &gone, widened(&f, k, body.v[k], adds[k]));
    else dc_scope_push(graph, &left, body.v[k]);
  dc_node_at(graph, loop)->map.body = left;
  if (left.n) dc_scope_push(graph, out, loop);
  for (uint32_t k = 0; k < gone.n; k++) dc_scope_push(graph, out, gone.v[k]);
  dc_arena_free(&f.arena);
  return DC_OK;
}

dc_status dc_pass_fission(dc_graph *graph) { return dc_graph_each_map(graph, split, NULL); }
