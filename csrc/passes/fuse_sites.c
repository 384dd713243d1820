/* Where accesses stand in a tree of maps, and what changes all of one buffer at once. */
#include "passes/fuse.h"

/* ---- places ---- */

static void place(dc_site_table *t, dc_nid id, dc_nid parent, uint32_t *next) {
  t->parent[id] = parent;
  t->order[id] = (*next)++;
  const dc_node *node = dc_node_at(t->graph, id);
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++) place(t, node->map.body.v[k], id, next);
  t->end[id] = *next;
}

static void make_room(dc_site_table *t) {
  uint32_t nodes = t->graph->nodes.n, containers = t->graph->containers.n;
  if (t->n_nodes < nodes) {
    t->order = DC_NEW_ARRAY(t->arena, uint32_t, nodes);
    t->end = DC_NEW_ARRAY(t->arena, uint32_t, nodes);
    t->parent = DC_NEW_ARRAY(t->arena, dc_nid, nodes);
    t->n_nodes = nodes;
  }
  if (t->n_containers < containers) t->first = DC_NEW_ARRAY(t->arena, uint32_t, containers), t->n_containers = containers;
}

void dc_sites_build(dc_graph *graph, dc_arena *arena, const dc_nid *nodes, uint32_t n, dc_site_table *t) {
  uint32_t next = 1;
  t->graph = graph, t->arena = arena;
  for (uint32_t k = 0; k < t->accesses.n; k++) t->first[t->accesses.v[k].root] = 0;
  make_room(t);
  t->accesses.n = t->next.n = 0;
  for (uint32_t k = 0; k < n; k++) {
    place(t, nodes[k], 0, &next);
    dc_access_collect(graph, arena, nodes[k], false, &t->accesses);
  }
  while (t->next.n < t->accesses.n) DC_PUSH(arena, &t->next, 0);
  for (uint32_t k = t->accesses.n; k-- > 0;) {
    uint32_t *first = &t->first[t->accesses.v[k].root];
    t->next.v[k] = *first, *first = k + 1;
  }
}

dc_nid dc_sites_home(const dc_site_table *t, dc_cid root) {
  dc_nid home = 0;
  bool first = true;
  DC_EACH_SITE(t, root, k) {
    const dc_access *a = &t->accesses.v[k];
    if (first) home = t->parent[a->node], first = false;
    while (home && !dc_site_is_under(t, a->node, home)) home = t->parent[home];
  }
  return home;
}

void dc_scope_remove(dc_scope *scope, dc_nid node) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < scope->n; k++)
    if (scope->v[k] != node) scope->v[kept++] = scope->v[k];
  scope->n = kept;
}

/* ---- hazards ---- */

typedef struct {
  const dc_site_table *t;
  uint32_t from, to;
  bool hit;
} hazard;

static void look_for_writer(void *context, const dc_pool *pool, dc_ex e) {
  hazard *h = context;
  if (h->hit || dc_ex_node(pool, e)->op != DC_EX_READ) return;
  dc_cid root = dc_container_root(h->t->graph, dc_ex_node(pool, e)->ref);
  DC_EACH_SITE(h->t, root, k) {
    const dc_access *a = &h->t->accesses.v[k];
    uint32_t at = h->t->order[a->node];
    if (a->writes && at > h->from && at < h->to) h->hit = true;
  }
}

bool dc_sites_overwrite(const dc_site_table *t, dc_ex e, uint32_t from, uint32_t to) {
  hazard h = {t, from, to, false};
  if (e) dc_ex_walk(&t->graph->pool, e, look_for_writer, &h);
  return h.hit;
}

/* Symbols: see access.c; a loop that no index names may be empty. */
bool dc_sites_store_all(const dc_site_table *t, const dc_access *store, dc_nid home) {
  const dc_pool *pool = &t->graph->pool;
  dc_tasklet tasklet = dc_node_at(t->graph, store->node)->tasklet;
  dc_param named[DC_MAX_RANK];
  for (uint32_t d = 0; d < tasklet.rank; d++) {
    const dc_exnode *index = dc_ex_node(pool, tasklet.index[d]);
    if (index->op != DC_EX_PARAM || dc_access_in_set(named, d, index->ref)) return false;
    if (!dc_access_covers(pool, named[d] = index->ref, dc_cont(t->graph, tasklet.out)->shape[d])) return false;
  }
  for (dc_nid m = t->parent[store->node]; m != home; m = t->parent[m])
    for (uint32_t k = 0; k < dc_node_at(t->graph, m)->map.n_params; k++)
      if (!dc_access_in_set(named, tasklet.rank, dc_node_at(t->graph, m)->map.params[k])) return false;
  return true;
}

/* ---- dimensions that go ---- */

typedef struct {
  dc_cid container;
  const bool *dropped;
} shrink;

static uint32_t without(const dc_ex *list, uint32_t n, const bool *dropped, dc_ex *out) {
  uint32_t left = 0;
  for (uint32_t d = 0; d < n; d++)
    if (!dropped[d]) out[left++] = list[d];
  return left;
}

static dc_ex shrink_read(void *context, dc_pool *pool, dc_ex leaf) {
  const shrink *s = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK];
  uint32_t n = 0;
  if (node.op != DC_EX_READ || node.ref != s->container) return leaf;
  for (uint32_t d = 0; d < node.nargs; d++)
    if (!s->dropped[d]) index[n++] = dc_ex_arg(pool, leaf, d);
  return dc_ex_read(pool, (dc_dtype)node.dtype, node.ref, index, n);
}

void dc_sites_drop_dims(const dc_site_table *t, dc_nid top, dc_cid root, const bool *dropped) {
  dc_graph *graph = t->graph;
  dc_node_rewrite(graph, top, shrink_read, &(shrink){root, dropped});
  DC_EACH_SITE(t, root, k) {
    if (!t->accesses.v[k].writes) continue;
    dc_tasklet *write = &dc_node_at(graph, t->accesses.v[k].node)->tasklet;
    write->rank = without(write->index, write->rank, dropped, write->index);
  }
  dc_container *k = dc_cont(graph, root);
  dc_ex *lists = DC_NEW_ARRAY(&graph->arena, dc_ex, 2 * k->rank), *strides = lists + k->rank;
  if (k->strides) without(k->strides, k->rank, dropped, strides), k->strides = strides;
  k->rank = without(k->shape, k->rank, dropped, lists), k->shape = lists;
}

bool dc_fuse_is_empty(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP) return false;
  for (uint32_t k = 0; k < node->map.body.n; k++)
    if (!dc_fuse_is_empty(graph, node->map.body.v[k])) return false;
  return true;
}
