/* A sequential loop whose elements keep to themselves, such as the sequences of a batch: blocks of them go outside.
 *
 *     sequential t { map n in 0:32, h { .. }  map n in 0:32, v { .. } }   becomes
 *     map b in 0:32:8 { sequential t { map n in b:b+8, h { .. }  map n in b:b+8, v { .. } } }
 *
 * Threads then run whole sequences and never wait for each other.  A block rather than one element, so that what
 * all elements read, the weights, is fetched once for several rows of a product.  Runs after fusion. */
#include "passes/access.h"
#include "passes/passes.h"

enum { MAX_NODES = 64 };

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  dc_accesses here[MAX_NODES], there[MAX_NODES]; /* by node of the body; there: of a copy of the loop */
  dc_map maps[MAX_NODES], copies[MAX_NODES];
  uint32_t chosen[MAX_NODES]; /* which parameter of each map */
  uint32_t n;
} search;

static bool is_private_register(const search *s, const dc_access *a, uint32_t i, uint32_t j) {
  return i == j && dc_cont(s->graph, a->root)->storage == DC_STORE_REGISTER;
}

/* Whatever nodes i and j share, in whichever iterations, belongs to one element. */
static bool keep_apart(search *s, uint32_t i, uint32_t j) {
  dc_param_pair pair = {s->maps[i].params[s->chosen[i]], s->copies[j].params[s->chosen[j]]};
  for (uint32_t x = 0; x < s->here[i].n; x++)
    for (uint32_t y = 0; y < s->there[j].n; y++) {
      const dc_access *a = &s->here[i].v[x], *b = &s->there[j].v[y];
      if (!dc_access_conflicts(a, b) || is_private_register(s, a, i, j) || dc_access_disjoint(s->graph, a, b)) continue;
      if (!dc_access_forces_equal(s->graph, a, b, &pair, NULL, 0)) return false;
    }
  return true;
}

/* Node k's parameter that goes with those chosen for the nodes before. */
static bool choose(search *s, uint32_t k) {
  dc_param first = s->maps[0].params[s->chosen[0]];
  for (uint32_t p = 0; p < s->maps[k].n_params; p++) {
    if (!dc_param_same_range(&s->graph->pool, s->maps[k].params[p], first)) continue;
    bool good = true;
    s->chosen[k] = p;
    for (uint32_t j = 0; j <= k && good; j++) good = keep_apart(s, j, k) && keep_apart(s, k, j);
    if (good) return true;
  }
  return false;
}

/* Of a nest, the deepest: one more must not be too many for a graph. */
static uint32_t loops_in(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  uint32_t deepest = 0;
  if (node->kind != DC_NODE_MAP) return 0;
  for (uint32_t k = 0; k < node->map.body.n; k++) {
    uint32_t inner = loops_in(graph, node->map.body.v[k]);
    if (inner > deepest) deepest = inner;
  }
  return deepest + (node->map.n_params ? node->map.n_params : 1);
}

/* A constant range from 0 of two blocks and more, or one that may be.  Symbols: a symbolic one may be shorter than a
 * block, or empty: the last block ends with it. */
static bool is_long(dc_pool *pool, dc_param p, int64_t block) {
  dc_parameter range = pool->params.v[p];
  int64_t begin, end, step;
  if (!dc_ex_is_int(pool, range.begin, &begin) || begin || !dc_ex_is_int(pool, range.step, &step) || step != 1) return false;
  if (dc_ex_uses_op(pool, range.end, DC_EX_PARAM) || dc_ex_uses_op(pool, range.end, DC_EX_READ)) return false;
  return !dc_ex_is_int(pool, range.end, &end) || end >= 2 * block;
}

static bool find(search *s) {
  for (uint32_t p = 0; p < s->maps[0].n_params; p++) {
    bool good = is_long(&s->graph->pool, s->maps[0].params[p], s->graph->machine.block_rows);
    s->chosen[0] = p;
    for (uint32_t k = 0; k < s->n && good; k++) good = k ? choose(s, k) : keep_apart(s, 0, 0);
    if (good) return true;
  }
  return false;
}

static bool collect(search *s, dc_nid loop) {
  dc_nid other = dc_node_clone(s->graph, loop);
  dc_map map = dc_node_at(s->graph, loop)->map, copy = dc_node_at(s->graph, other)->map;
  s->n = map.body.n;
  if (!s->n || s->n > MAX_NODES) return false;
  for (uint32_t k = 0; k < s->n; k++) {
    const dc_node *node = dc_node_at(s->graph, map.body.v[k]);
    if (node->kind != DC_NODE_MAP || (node->map.schedule != DC_MAP_PARALLEL && node->map.schedule != DC_MAP_SCATTER)) return false;
    s->maps[k] = node->map, s->copies[k] = dc_node_at(s->graph, copy.body.v[k])->map;
    dc_access_collect(s->graph, &s->arena, map.body.v[k], false, &s->here[k]);
    dc_access_collect(s->graph, &s->arena, copy.body.v[k], false, &s->there[k]);
  }
  return true;
}

/* Node k of the body runs over one block: new, of begin .. end. */
static void restrict_to(search *s, dc_nid id, uint32_t k, dc_ex begin, dc_ex end) {
  dc_pool *pool = &s->graph->pool;
  dc_param old = s->maps[k].params[s->chosen[k]];
  dc_param fresh = dc_param_new(pool, dc_name_text(&s->graph->names, pool->params.v[old].name), begin, end, 0);
  dc_node_substitute(s->graph, id, old, dc_ex_par(pool, fresh));
  dc_node_at(s->graph, id)->map.params[s->chosen[k]] = fresh;
}

static dc_nid blocked(search *s, dc_nid loop) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  dc_scope body = dc_node_at(graph, loop)->map.body;
  dc_parameter range = pool->params.v[s->maps[0].params[s->chosen[0]]];
  dc_ex size = dc_ex_int(pool, graph->machine.block_rows);
  dc_param block = dc_param_new(pool, "b", range.begin, range.end, size);
  dc_ex begin = dc_ex_par(pool, block), end = dc_ix_add(pool, begin, size);
  if (dc_ix_mod(pool, range.end, size) != dc_ex_int(pool, 0)) end = dc_ix_min(pool, end, range.end);
  for (uint32_t k = 0; k < s->n; k++) restrict_to(s, body.v[k], k, begin, end);
  return dc_node_wrap(graph, DC_MAP_PARALLEL, &block, 1, loop);
}

dc_status dc_pass_batches(dc_graph *graph) {
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) {
      dc_nid id = graph->states.v[state].scope.v[k];
      const dc_node *node = dc_node_at(graph, id);
      if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_SEQUENTIAL || node->map.n_params != 1) continue;
      search s = {.graph = graph};
      if (loops_in(graph, id) < DC_MAX_LOOPS && collect(&s, id) && find(&s)) graph->states.v[state].scope.v[k] = blocked(&s, id);
      dc_arena_free(&s.arena);
    }
  return DC_OK;
}
