/* Loop bounds and order: loops of one iteration go, which also decides conditions on them; the
 * loop that walks memory contiguously comes last, where vectors run. */
#include "passes/loops.h"

#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

/* ---- loops of one iteration ---- */

/* Symbols: one iteration for all their values, as from N to N + 1; a symbol is never taken for 1. */
static bool runs_once(dc_pool *pool, dc_param p) {
  dc_parameter range = pool->params.v[p];
  int64_t extent;
  return dc_ex_is_int(pool, dc_ix_sub(pool, range.end, range.begin), &extent) && extent == 1 &&
         !dc_ex_uses_op(pool, range.begin, DC_EX_READ);
}

static uint32_t drop_params(dc_graph *graph, dc_nid id) {
  uint32_t dropped = 0;
  for (uint32_t k = 0; k < dc_node_at(graph, id)->map.n_params;) {
    dc_map map = dc_node_at(graph, id)->map;
    dc_param p = map.params[k];
    if (!runs_once(&graph->pool, p)) {
      k++;
      continue;
    }
    for (uint32_t j = k; j + 1 < map.n_params; j++) map.params[j] = map.params[j + 1];
    dc_node_at(graph, id)->map.n_params--;
    dc_node_substitute(graph, id, p, graph->pool.params.v[p].begin);
    dropped++;
  }
  return dropped;
}

static uint32_t drop_trivial(dc_graph *graph, dc_scope *scope) {
  dc_scope in = *scope, out = {0};
  uint32_t dropped = 0;
  for (uint32_t k = 0; k < in.n; k++) {
    if (dc_node_at(graph, in.v[k])->kind != DC_NODE_MAP) {
      dc_scope_push(graph, &out, in.v[k]);
      continue;
    }
    dropped += drop_params(graph, in.v[k]);
    dc_scope body = dc_node_at(graph, in.v[k])->map.body;
    dropped += drop_trivial(graph, &body);
    dc_node_at(graph, in.v[k])->map.body = body;
    const dc_map *map = &dc_node_at(graph, in.v[k])->map;
    if (map->n_params || map->schedule == DC_MAP_REDUCE) dc_scope_push(graph, &out, in.v[k]);
    else for (uint32_t j = 0; j < body.n; j++) dc_scope_push(graph, &out, body.v[j]);
  }
  *scope = out;
  return dropped;
}

typedef struct {
  dc_graph *graph;
  dc_nid *user; /* by container: a node of the scope that uses it */
  dc_nid node;
} register_search;

static void note_register(void *context, dc_cid c, dc_use use, dc_nid by) {
  register_search *s = context;
  dc_container *k = dc_cont(s->graph, c);
  (void)use;
  if (k->storage == DC_STORE_REGISTER && (by == s->node || (s->user[c] && s->user[c] != s->node))) k->storage = DC_STORE_HEAP;
  s->user[c] = s->node;
}

/* What lived for an iteration of a map that is gone, in memory from now on. */
static void keep_registers(dc_graph *graph, const dc_scope *scope) {
  dc_arena arena = {0};
  register_search s = {graph, DC_NEW_ARRAY(&arena, dc_nid, graph->containers.n), 0};
  for (uint32_t k = 0; k < scope->n; k++) {
    s.node = scope->v[k];
    dc_node_uses(graph, s.node, note_register, &s);
  }
  dc_arena_free(&arena);
}

uint32_t dc_loops_drop_trivial(dc_graph *graph, dc_scope *scope) {
  uint32_t dropped = drop_trivial(graph, scope);
  if (dropped) keep_registers(graph, scope);
  return dropped;
}

/* ---- order ---- */

/* What the accesses do as p advances: stay, move by one element, or jump; writes count twice. */
typedef struct {
  uint32_t units, jumps;
} moves;

static void note_moves(dc_graph *graph, const dc_access *a, dc_param p, moves *m) {
  uint32_t rank = a->element ? dc_ex_node(&graph->pool, a->element)->nargs : 0, weight = a->writes ? 2 : 1;
  dc_ex coefficient, rest;
  int64_t step;
  if (!rank || !dc_ex_uses_param(&graph->pool, a->element, p)) return;
  uint32_t d = dc_contiguous_dimension(graph, a->container);
  bool is_unit = d < rank && dc_ix_split(&graph->pool, dc_ex_arg(&graph->pool, a->element, d), p, &coefficient, &rest) &&
                 dc_ex_is_int(&graph->pool, coefficient, &step) && step == 1;
  *(is_unit ? &m->units : &m->jumps) += weight;
}

static moves moves_along(dc_graph *graph, const dc_accesses *accesses, dc_param p) {
  moves m = {0};
  for (uint32_t k = 0; k < accesses->n; k++) note_moves(graph, &accesses->v[k], p, &m);
  return m;
}

/* A read that stays costs nothing, so that vectors of each channel do not outvote the image. */
static bool is_better(moves a, moves b) {
  if (!a.units) return false;
  return !b.units || a.jumps < b.jumps || (a.jumps == b.jumps && a.units > b.units);
}

/* No other parameter of the map has p in its range, so that p may become the last.  Symbols: any order visits the same. */
static bool is_free(const dc_graph *graph, const dc_map *map, dc_param p) {
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter range = graph->pool.params.v[map->params[k]];
    if (dc_ex_uses_param(&graph->pool, range.begin, p) || dc_ex_uses_param(&graph->pool, range.end, p)) return false;
  }
  return true;
}

static bool is_innermost(const dc_graph *graph, const dc_map *map) {
  for (uint32_t k = 0; k < map->body.n; k++)
    if (dc_node_at(graph, map->body.v[k])->kind == DC_NODE_MAP) return false;
  return true;
}

/* The dimension of what the map writes first in which p stands; UINT32_MAX: none, or ranges hang together. */
static uint32_t written_dimension(const dc_graph *graph, const dc_map *map, const dc_accesses *accesses, dc_param p) {
  for (uint32_t k = 0; k < accesses->n; k++) {
    if (!accesses->v[k].writes || !accesses->v[k].element || !is_free(graph, map, p)) continue;
    for (uint32_t d = 0; d < dc_ex_node(&graph->pool, accesses->v[k].element)->nargs; d++)
      if (dc_ex_uses_param(&graph->pool, dc_ex_arg(&graph->pool, accesses->v[k].element, d), p)) return d;
    break;
  }
  return UINT32_MAX;
}

/* The loops around the last one in the order of the dimensions that they write: neighbours in memory follow one another, and
 * those that lie one after the other can become one. */
static bool order_outer(const dc_graph *graph, const dc_map *map, const dc_accesses *accesses) {
  uint32_t dimensions[DC_MAX_MAP_PARAMS];
  bool moved = false;
  for (uint32_t k = 0; k + 1 < map->n_params; k++) {
    const dc_param p = map->params[k];
    const uint32_t d = dimensions[k] = written_dimension(graph, map, accesses, p);
    if (d == UINT32_MAX) return moved;
    uint32_t at = k;
    for (; at && dimensions[at - 1] > d; at--) dimensions[at] = dimensions[at - 1], map->params[at] = map->params[at - 1];
    dimensions[at] = d, map->params[at] = p;
    moved |= at != k;
  }
  return moved;
}

static void put_last(const dc_map *map, uint32_t at) {
  const dc_param chosen = map->params[at];
  for (uint32_t k = at; k + 1 < map->n_params; k++) map->params[k] = map->params[k + 1];
  map->params[map->n_params - 1] = chosen;
}

/* Does the last loop have unit stride now?  *moved: the order was another one before. */
static bool order_params(dc_graph *graph, dc_nid id, bool *moved) {
  dc_arena arena = {0};
  dc_accesses accesses = {0};
  dc_map map = dc_node_at(graph, id)->map;
  dc_access_collect(graph, &arena, id, false, &accesses);
  uint32_t last = map.n_params - 1, best = last;
  moves least = moves_along(graph, &accesses, map.params[last]);
  for (uint32_t k = 0; k < last; k++) {
    moves m = moves_along(graph, &accesses, map.params[k]);
    if (is_better(m, least) && is_free(graph, &map, map.params[k])) least = m, best = k;
  }
  put_last(&map, best);
  *moved = (map.schedule == DC_MAP_PARALLEL && last < DC_MAX_MAP_PARAMS && order_outer(graph, &map, &accesses)) || best != last;
  dc_arena_free(&arena);
  return least.units > 0;
}

uint32_t dc_loops_order(dc_graph *graph, dc_nid id) {
  if (dc_node_at(graph, id)->kind != DC_NODE_MAP) return 0;
  dc_map map = dc_node_at(graph, id)->map;
  uint32_t n = 0;
  bool moved = false, any_order = map.schedule == DC_MAP_PARALLEL || map.schedule == DC_MAP_REDUCE;
  if (any_order && map.n_params) n = (order_params(graph, id, &moved) && is_innermost(graph, &map)) || moved;
  for (uint32_t k = 0; k < map.body.n; k++) n += dc_loops_order(graph, map.body.v[k]);
  return n;
}

/* ---- short loops of functions ---- */

enum { SHORT = 8, LONG = 64 }; /* iterations */
static const double DEAR_NS = 0.5; /* of an iteration, for what it reads and each value that it writes: more than steps cost */

static bool is_dear(const dc_graph *graph, const dc_map *map) {
  double cost = 0;
  for (uint32_t k = 0; k < map->body.n; k++) {
    const dc_node *node = dc_node_at(graph, map->body.v[k]);
    if (node->kind != DC_NODE_TASKLET) return false;
    cost += dc_ex_work(&graph->pool, node->tasklet.value).cost;
  }
  return cost >= DEAR_NS * (1 + map->body.n);
}

/* A last loop of a few iterations leaves vectors idle: where functions are most of the work a long loop takes its place, however that
 * walks memory.  Symbols: a loop over one is long, which is a guess about time only. */
static void lengthen(dc_graph *graph, dc_nid id) {
  if (dc_node_at(graph, id)->kind != DC_NODE_MAP) return;
  const dc_map map = dc_node_at(graph, id)->map;
  const uint32_t last = map.n_params - 1;
  for (uint32_t k = 0; k < map.body.n; k++) lengthen(graph, map.body.v[k]);
  if (map.schedule != DC_MAP_PARALLEL || map.n_params < 2 || dc_param_trips(&graph->pool, map.params[last]) >= SHORT) return;
  uint32_t longest = last;
  for (uint32_t k = 0; k < last; k++) {
    const double trips = dc_param_trips(&graph->pool, map.params[k]);
    if (trips >= LONG && trips > dc_param_trips(&graph->pool, map.params[longest]) && is_free(graph, &map, map.params[k])) longest = k;
  }
  if (longest == last || !is_dear(graph, &map)) return;
  put_last(&map, longest);
}

/* ---- the passes ---- */

static void order_all(dc_graph *graph, bool is_final) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      (void)dc_loops_order(graph, graph->states.v[s].scope.v[k]);
      if (is_final && !graph->machine.multiprocessors) lengthen(graph, graph->states.v[s].scope.v[k]);
    }
}

dc_status dc_pass_order(dc_graph *graph) {
  order_all(graph, true);
  return DC_OK;
}

dc_status dc_pass_loops(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope scope = graph->states.v[s].scope;
    (void)dc_loops_drop_trivial(graph, &scope);
    graph->states.v[s].scope = scope;
  }
  order_all(graph, false);
  return DC_OK;
}
