/* A sequential loop along memory whose elements lie across it, such as a running sum of each row: the elements go outside.
 *
 *     sequential t { map n { S[n, t] = S[n, t - 1] + X[n, t] }  map n { Y[n, t] = S[n, t] } }   becomes
 *     map n { sequential t { S[n, t] = S[n, t - 1] + X[n, t]  Y[n, t] = S[n, t] } }
 *
 * What one iteration leaves for the next is then a row, or a register, and not an array.  Runs before fission and fusion. */
#include "passes/access.h"
#include "passes/passes.h"

enum { MAX_NODES = 16 };

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  dc_nid loop;
  dc_accesses here[MAX_NODES], there[MAX_NODES]; /* by map of the body; there: of a copy of the loop */
  dc_map maps[MAX_NODES], copies[MAX_NODES];
  uint32_t n;
} search;

/* The body is maps over one domain, of tasklets. */
static bool collect(search *s) {
  dc_nid other = dc_node_clone(s->graph, s->loop);
  dc_map map = dc_node_at(s->graph, s->loop)->map, copy = dc_node_at(s->graph, other)->map;
  s->n = map.body.n;
  if (!s->n || s->n > MAX_NODES) return false;
  for (uint32_t k = 0; k < s->n; k++) {
    const dc_node *node = dc_node_at(s->graph, map.body.v[k]);
    if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || !node->map.n_params) return false;
    s->maps[k] = node->map, s->copies[k] = dc_node_at(s->graph, copy.body.v[k])->map;
    if (s->maps[k].n_params != s->maps[0].n_params) return false;
    for (uint32_t p = 0; p < s->maps[0].n_params; p++) {
      dc_parameter range = s->graph->pool.params.v[s->maps[0].params[p]];
      bool data = dc_ex_uses_op(&s->graph->pool, range.end, DC_EX_PARAM) || dc_ex_uses_op(&s->graph->pool, range.end, DC_EX_READ);
      if (data || dc_ex_uses_op(&s->graph->pool, range.begin, DC_EX_PARAM) ||
          !dc_param_same_range(&s->graph->pool, s->maps[k].params[p], s->maps[0].params[p]))
        return false;
    }
    for (uint32_t j = 0; j < s->maps[k].body.n; j++)
      if (dc_node_at(s->graph, s->maps[k].body.v[j])->kind != DC_NODE_TASKLET) return false;
    dc_access_collect(s->graph, &s->arena, map.body.v[k], false, &s->here[k]);
    dc_access_collect(s->graph, &s->arena, copy.body.v[k], false, &s->there[k]);
  }
  return true;
}

/* The sequence moves the last index by one, or not at all, and the maps' parameters move the others. */
static bool lies_along(const search *s, uint32_t map, const dc_access *a, bool *moves) {
  dc_pool *pool = &s->graph->pool;
  dc_param sequence = dc_node_at(s->graph, s->loop)->map.params[0];
  dc_ex by, rest;
  int64_t step;
  uint32_t rank = a->element ? dc_ex_node(pool, a->element)->nargs : 0;
  if (!a->element || dc_cont(s->graph, a->container)->strides) return false;
  for (uint32_t d = 0; d < rank; d++) {
    dc_ex index = dc_ex_arg(pool, a->element, d);
    bool last = d + 1 == rank;
    if (!last && dc_ex_uses_param(pool, index, sequence)) return false;
    for (uint32_t p = 0; p < s->maps[map].n_params && last; p++)
      if (dc_ex_uses_param(pool, index, s->maps[map].params[p])) return false;
    if (!last || !dc_ex_uses_param(pool, index, sequence)) continue;
    if (!dc_ix_split(pool, index, sequence, &by, &rest) || !dc_ex_is_int(pool, by, &step) || (step != 1 && step != -1)) return false;
    *moves = true;
  }
  return true;
}

/* Whatever maps i and j share, in whichever iterations, belongs to one element.  Symbols: extents may be 0 or 1. */
static bool keep_apart(search *s, uint32_t i, uint32_t j) {
  for (uint32_t x = 0; x < s->here[i].n; x++)
    for (uint32_t y = 0; y < s->there[j].n; y++) {
      const dc_access *a = &s->here[i].v[x], *b = &s->there[j].v[y];
      if (!dc_access_conflicts(a, b) || dc_access_disjoint(s->graph, a, b)) continue;
      for (uint32_t p = 0; p < s->maps[i].n_params; p++) {
        dc_param_pair pair = {s->maps[i].params[p], s->copies[j].params[p]};
        if (!dc_access_forces_equal(s->graph, a, b, &pair, NULL, 0)) return false;
      }
    }
  return true;
}

static bool is_wanted(search *s) {
  bool moves = false;
  if (!collect(s)) return false;
  for (uint32_t k = 0; k < s->n; k++)
    for (uint32_t x = 0; x < s->here[k].n; x++)
      if (!lies_along(s, k, &s->here[k].v[x], &moves)) return false;
  for (uint32_t i = 0; i < s->n && moves; i++)
    for (uint32_t j = 0; j < s->n; j++)
      if (!keep_apart(s, i, j)) return false;
  return moves;
}

/* The first map goes around the loop, whose body are the tasklets of all. */
static dc_nid exchange(search *s) {
  dc_graph *graph = s->graph;
  dc_scope maps = dc_node_at(graph, s->loop)->map.body, body = {0}, outside = {0};
  for (uint32_t k = 0; k < s->n; k++) {
    for (uint32_t p = 0; p < s->maps[0].n_params && k; p++)
      dc_node_substitute(graph, maps.v[k], s->maps[k].params[p], dc_ex_par(&graph->pool, s->maps[0].params[p]));
    dc_scope tasklets = dc_node_at(graph, maps.v[k])->map.body;
    for (uint32_t j = 0; j < tasklets.n; j++) dc_scope_push(graph, &body, tasklets.v[j]);
  }
  dc_node_at(graph, s->loop)->map.body = body;
  dc_scope_push(graph, &outside, s->loop);
  dc_node_at(graph, maps.v[0])->map.body = outside;
  return maps.v[0];
}

dc_status dc_pass_exchange(dc_graph *graph) {
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) {
      dc_nid id = graph->states.v[state].scope.v[k];
      const dc_node *node = dc_node_at(graph, id);
      if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_SEQUENTIAL || node->map.n_params != 1) continue;
      search s = {.graph = graph, .loop = id};
      if (is_wanted(&s)) graph->states.v[state].scope.v[k] = exchange(&s);
      dc_arena_free(&s.arena);
    }
  return DC_OK;
}
