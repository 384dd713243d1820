/* Scattered sums become reductions where the index says which loops they run over:
 *
 *     scatter n, v, j { D[n, j] sum= G[n, v] * R[v, j] }   becomes
 *     map n, j { reduce v { r[n, j] sum= G[n, v] * R[v, j] }  D[n, j] sum= r[n, j] }
 *
 * The loops that move an index of their own stay apart; those that no index names are summed over.  Others keep their order in a
 * slice of their own, which on a processor is then filled, added to and read while a cache holds it:
 *
 *     scatter n, v { D[n, I[v]] sum= G[n, v] }   becomes   map n { scatter v { D[n, I[v]] sum= G[n, v] } } */
#include <string.h>

#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_param apart[DC_MAX_LOOPS], summed[DC_MAX_LOOPS];
  uint32_t n_apart, n_summed;
} parts;

static bool is_used(const dc_pool *pool, const dc_tasklet *t, dc_param p) {
  for (uint32_t d = 0; d < t->rank; d++)
    if (dc_ex_uses_param(pool, t->index[d], p)) return true;
  return false;
}

/* Symbols: loops are apart for all values; where the summed ones run for no iteration, the sum is 0 and adds nothing. */
static bool split(dc_graph *graph, const dc_map *map, const dc_tasklet *t, parts *out) {
  dc_pool *pool = &graph->pool;
  out->n_apart = out->n_summed = 0;
  for (uint32_t k = 0; k < map->n_params; k++) {
    bool apart = is_used(pool, t, map->params[k]);
    if (apart) out->apart[out->n_apart++] = map->params[k];
    else out->summed[out->n_summed++] = map->params[k];
  }
  for (uint32_t k = 0; k < out->n_apart; k++) { /* their extents are those of the sums */
    dc_parameter range = pool->params.v[out->apart[k]];
    int64_t begin;
    if (!dc_ex_is_int(pool, range.begin, &begin) || begin || dc_ex_uses_op(pool, range.end, DC_EX_PARAM) ||
        dc_ex_uses_op(pool, range.end, DC_EX_READ))
      return false;
  }
  bool both = out->n_apart && out->n_summed && out->n_apart <= DC_MAX_RANK;
  return both && dc_ix_apart(pool, t->index, t->rank, out->apart, out->n_apart);
}


static bool is_inside(dc_graph *graph, const dc_tasklet *t) {
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t truth;
    if (!dc_ex_is_int(&graph->pool, dc_ex_in_range(&graph->pool, t->index[d], dc_cont(graph, t->out)->shape[d]), &truth) || !truth)
      return false;
  }
  return true;
}

/* What guards the sum as a whole: the terms' guard where it is the same for all of them. */
static bool find_guard(dc_graph *graph, const dc_tasklet *t, const parts *p, dc_ex *guard) {
  bool follows = false;
  for (uint32_t k = 0; t->guard && k < p->n_summed; k++) follows |= dc_ex_uses_param(&graph->pool, t->guard, p->summed[k]);
  *guard = follows ? 0 : t->guard;
  return *guard || is_inside(graph, t);
}

static void gather(dc_graph *graph, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  parts p;
  dc_ex guard;
  if (map.schedule != DC_MAP_SCATTER || map.body.n != 1) return;
  dc_node inner = *dc_node_at(graph, map.body.v[0]);
  if (inner.kind != DC_NODE_TASKLET || inner.tasklet.wcr != DC_WCR_SUM || !split(graph, &map, &inner.tasklet, &p)) return;
  if (!find_guard(graph, &inner.tasklet, &p, &guard)) return;
  dc_tasklet t = inner.tasklet;
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(graph, t.out)->dtype);
  dc_ex at[DC_MAX_RANK], shape[DC_MAX_RANK];
  for (uint32_t k = 0; k < p.n_apart; k++) at[k] = dc_ex_par(&graph->pool, p.apart[k]), shape[k] = graph->pool.params.v[p.apart[k]].end;
  dc_cid sum = dc_container_add(graph, "r", type, p.n_apart, shape, DC_ROLE_TEMP); /* fusion makes it a register */
  dc_nid term = dc_node_tasklet(graph, sum, DC_WCR_SUM, at, p.n_apart, t.guard, t.value);
  dc_nid add = dc_node_tasklet(graph, t.out, DC_WCR_SUM, t.index, t.rank, guard, dc_ex_read(&graph->pool, type, sum, at, p.n_apart));
  dc_node_take_origin(graph, term, map.body.v[0]);
  dc_node_take_origin(graph, add, map.body.v[0]);
  dc_nid reduce = dc_node_wrap(graph, DC_MAP_REDUCE, p.summed, p.n_summed, term);
  dc_node_at(graph, id)->map.body = (dc_scope){0};
  dc_scope body = {0};
  dc_scope_push(graph, &body, reduce);
  dc_scope_push(graph, &body, add);
  for (uint32_t k = 0; k < p.n_apart; k++) map.params[k] = p.apart[k];
  dc_map *out = &dc_node_at(graph, id)->map;
  out->schedule = DC_MAP_PARALLEL, out->n_params = p.n_apart, out->body = body;
}

/* ---- slices ---- */

/* Does the map do nothing but add to one container, which it does not read? */
static bool only_adds(dc_graph *graph, dc_nid id, const dc_map *map) {
  const dc_node *first = dc_node_at(graph, map->body.v[0]);
  for (uint32_t k = 0; k < map->body.n; k++) {
    const dc_node *node = dc_node_at(graph, map->body.v[k]);
    if (node->kind != DC_NODE_TASKLET || node->tasklet.wcr != DC_WCR_SUM || node->tasklet.out != first->tasklet.out) return false;
  }
  const dc_cid root = dc_container_root(graph, first->tasklet.out);
  dc_arena arena = {0};
  dc_accesses all = {0};
  bool reads = false;
  dc_access_collect(graph, &arena, id, false, &all);
  for (uint32_t k = 0; k < all.n; k++) reads |= all.v[k].root == root && !all.v[k].writes;
  dc_arena_free(&arena);
  return !reads;
}

/* The loop that alone is index d of all sums, one by one from 0 on; 0: there is none. */
static dc_param loop_of(const dc_graph *graph, const dc_map *map, uint32_t d) {
  const dc_ex index = dc_node_at(graph, map->body.v[0])->tasklet.index[d];
  const dc_exnode *node = dc_ex_node(&graph->pool, index);
  for (uint32_t k = 1; k < map->body.n; k++)
    if (dc_node_at(graph, map->body.v[k])->tasklet.index[d] != index) return 0;
  const bool ours = node->op == DC_EX_PARAM && dc_access_in_set(map->params, map->n_params, node->ref);
  return ours && dc_param_counts(&graph->pool, node->ref) ? node->ref : 0;
}

/* Symbols: how many slices there are decides about time only. */
static void part(dc_graph *graph, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  if (map.schedule != DC_MAP_SCATTER || !map.body.n || graph->machine.teams || !only_adds(graph, id, &map)) return;
  dc_param outer[DC_MAX_LOOPS], inner[DC_MAX_LOOPS], p;
  uint32_t n = 0, rest = 0;
  double slices = 1;
  for (uint32_t d = 0; d < dc_node_at(graph, map.body.v[0])->tasklet.rank && (p = loop_of(graph, &map, d)); d++) {
    if (dc_access_in_set(outer, n, p)) break;
    slices *= dc_param_trips(&graph->pool, outer[n++] = p);
  }
  for (uint32_t k = 0; k < map.n_params; k++)
    if (!dc_access_in_set(outer, n, map.params[k])) inner[rest++] = map.params[k];
  if (!n || !rest || slices < graph->machine.few_tasks) return;
  dc_nid slice = dc_node_map(graph, DC_MAP_SCATTER, inner, rest);
  dc_node_take_origin(graph, slice, id);
  dc_node_at(graph, slice)->map.body = map.body;
  dc_map *out = &dc_node_at(graph, id)->map;
  memcpy(out->params, outer, n * sizeof *outer);
  out->schedule = DC_MAP_PARALLEL, out->n_params = n, out->body = (dc_scope){0};
  dc_scope_push(graph, &out->body, slice);
}

static void visit(dc_graph *graph, dc_nid id) {
  if (dc_node_at(graph, id)->kind != DC_NODE_MAP) return;
  gather(graph, id);
  dc_scope body = dc_node_at(graph, id)->map.body;
  for (uint32_t k = 0; k < body.n; k++) visit(graph, body.v[k]);
}

dc_status dc_pass_gather(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope *scope = &graph->states.v[s].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      visit(graph, scope->v[k]);
      if (dc_node_at(graph, scope->v[k])->kind == DC_NODE_MAP) part(graph, scope->v[k]);
    }
  }
  return DC_OK;
}
