/* One slice for all iterations of a loop inside a node's outermost one:
 *
 *     map c in 0:64 {                         map c in 0:64 {
 *       map n in 0:N {                          sequential n in 0:N {
 *         map s in 0:H { T[n, c, s] = ... }       map s in 0:H { T[c, s] = ... }
 *         map s in 0:H { ... T[n, c, H - s] }     map s in 0:H { ... T[c, H - s] }
 *
 * Threads share the outermost loop, and each runs the loops inside in order; so what an iteration of those fills and reads alone needs
 * memory of one.  The loop is sequential from then on, which is why this comes after all that merges or moves loops.  Where
 * it walks along memory it stays as it is, for vectors; and where a device shares inner loops too, nothing is done. */
#include "passes/fuse.h"

typedef struct {
  dc_graph *graph;
  const dc_use_count *users;
  dc_site_table *t;
  dc_nid top;
} slicing;

/* A temporary of this node alone, of whose elements all accesses tell the indices. */
static bool is_private(const slicing *s, dc_cid root) {
  const dc_container *k = dc_cont(s->graph, root);
  if (k->role != DC_ROLE_TEMP || k->is_output || k->storage != DC_STORE_HEAP || k->known || s->users[root].nodes != 1) return false;
  DC_EACH_SITE(s->t, root, j) {
    const dc_access *a = &s->t->accesses.v[j];
    if (a->container != root || !a->element || dc_node_at(s->graph, a->node)->kind != DC_NODE_TASKLET) return false;
  }
  return true;
}

/* The dimension that all accesses index by p alone; the rank if there is none.  Symbols: iterations of one loop differ in p,
 * whatever its range is. */
static uint32_t dimension_of(const slicing *s, dc_cid root, dc_param p) {
  const dc_pool *pool = &s->graph->pool;
  uint32_t rank = dc_cont(s->graph, root)->rank, d = 0;
  for (bool all = false; d < rank; d++) {
    all = true;
    DC_EACH_SITE(s->t, root, k) {
      const dc_exnode *index = dc_ex_node(pool, dc_ex_arg(pool, s->t->accesses.v[k].element, d));
      all &= index->op == DC_EX_PARAM && index->ref == p;
    }
    if (all) break;
  }
  return d;
}

/* Elements of the container in the dimensions but d. */
static dc_ex elements_without(dc_pool *pool, const dc_container *k, uint32_t d) {
  dc_ex n = dc_ex_int(pool, 1);
  for (uint32_t j = 0; j < k->rank; j++)
    if (j != d) n = dc_ix_mul(pool, n, k->shape[j]);
  return n;
}

/* What is left without the dimension lies together: in rows, or the slices lie one after the other. */
static bool stays_dense(slicing *s, dc_cid root, uint32_t d) {
  const dc_container *k = dc_cont(s->graph, root);
  return !k->strides || k->strides[d] == elements_without(&s->graph->pool, k, d);
}

static bool is_beside(const dc_pool *pool, const dc_container *k, uint32_t d) {
  int64_t stride;
  return k->strides ? dc_ex_is_int(pool, k->strides[d], &stride) && stride == 1 : d + 1 == k->rank;
}

/* Do neighbouring iterations of the loop meet neighbours in memory? */
static bool walks_along(const slicing *s, dc_nid loop, dc_param p) {
  const dc_pool *pool = &s->graph->pool;
  for (uint32_t k = 0; k < s->t->accesses.n; k++) {
    const dc_access *a = &s->t->accesses.v[k];
    const dc_container *c = dc_cont(s->graph, a->container);
    if (!a->element || !dc_site_is_under(s->t, a->node, loop)) continue;
    for (uint32_t d = 0; d < dc_ex_node(pool, a->element)->nargs; d++)
      if (is_beside(pool, c, d) && dc_ex_uses_param(pool, dc_ex_arg(pool, a->element, d), p)) return true;
  }
  return false;
}

/* The loops around all uses of a container, but for the outermost. */
static bool try_slice(slicing *s, dc_cid root) {
  if (!is_private(s, root)) return false;
  for (dc_nid loop = dc_sites_home(s->t, root); loop && s->t->parent[loop]; loop = s->t->parent[loop]) {
    const dc_map *map = &dc_node_at(s->graph, loop)->map;
    bool in_order = map->schedule == DC_MAP_PARALLEL || map->schedule == DC_MAP_SEQUENTIAL;
    bool in_turn = in_order && map->n_params == 1 && dc_map_holds_maps(s->graph, map);
    uint32_t d = in_turn ? dimension_of(s, root, map->params[0]) : dc_cont(s->graph, root)->rank;
    if (d == dc_cont(s->graph, root)->rank || !stays_dense(s, root, d) || walks_along(s, loop, map->params[0])) continue;
    bool dropped[DC_MAX_RANK] = {false};
    dropped[d] = true;
    dc_sites_drop_dims(s->t, s->top, root, dropped);
    return dc_node_at(s->graph, loop)->map.schedule = DC_MAP_SEQUENTIAL, true;
  }
  return false;
}

static bool slice_once(slicing *s) {
  dc_sites_build(s->graph, s->t->arena, &s->top, 1, s->t);
  for (uint32_t k = 0; k < s->t->accesses.n; k++)
    if (s->t->accesses.v[k].writes && try_slice(s, s->t->accesses.v[k].root)) return true;
  return false;
}

dc_status dc_pass_slices(dc_graph *graph) {
  dc_arena arena = {0};
  dc_site_table t = {0};
  if (graph->machine.multiprocessors) return DC_OK;
  slicing s = {graph, dc_fuse_count_users(graph, &arena), &t, 0};
  t.graph = graph, t.arena = &arena;
  for (uint32_t k = 0; k < graph->states.n; k++)
    for (uint32_t j = 0; j < graph->states.v[k].scope.n; j++) {
      s.top = graph->states.v[k].scope.v[j];
      const dc_node *node = dc_node_at(graph, s.top);
      bool shared = node->kind == DC_NODE_MAP && node->map.schedule == DC_MAP_PARALLEL && node->map.n_params;
      while (shared && slice_once(&s)) {}
    }
  dc_graph_drop_unused_views(graph);
  dc_arena_free(&arena);
  return DC_OK;
}
