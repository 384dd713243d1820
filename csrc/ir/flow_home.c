/* The innermost maps that hold all uses of containers, as the lowest common ancestors of the maps around each use. */
#include "ir/flow_home.h"

typedef struct {
  dc_homes *homes;
  dc_nid map; /* around the node */
} use_place;

void dc_homes_start(dc_homes *homes, const dc_graph *graph, dc_arena *arena) {
  *homes = (dc_homes){graph, DC_NEW_ARRAY(arena, dc_nid, graph->containers.n), DC_NEW_ARRAY(arena, dc_nid, graph->nodes.n),
                      DC_NEW_ARRAY(arena, uint32_t, graph->nodes.n)};
}

static void note_home(const use_place *p, dc_cid c) {
  dc_homes *h = p->homes;
  dc_cid root = dc_container_root(h->graph, c);
  dc_nid a = h->home[root] ? h->home[root] - 1 : p->map, b = p->map;
  while (a != b) {
    if (a && h->level[a] >= h->level[b]) a = h->parent[a];
    else b = h->parent[b];
  }
  h->home[root] = a + 1;
}

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)use, (void)by;
  note_home(context, c);
}

static void note_read(void *context, const dc_pool *pool, dc_ex e) {
  if (dc_ex_node(pool, e)->op == DC_EX_READ) note_home(context, dc_ex_node(pool, e)->ref);
}

/* reduce: the innermost REDUCE map around, which itself sets what tasklets in it combine into. */
static void add(dc_homes *h, const dc_scope *scope, dc_nid map, dc_nid reduce) {
  use_place place = {h, map}, around = {h, h->parent[reduce]};
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k];
    const dc_node *node = dc_node_at(h->graph, id);
    if (node->kind != DC_NODE_MAP) {
      dc_node_uses(h->graph, id, note_use, &place);
      if (reduce && node->kind == DC_NODE_TASKLET && node->tasklet.wcr) note_home(&around, node->tasklet.out);
      continue;
    }
    for (uint32_t j = 0; j < node->map.n_params; j++) {
      dc_parameter p = h->graph->pool.params.v[node->map.params[j]];
      dc_ex_walk(&h->graph->pool, p.begin, note_read, &place);
      dc_ex_walk(&h->graph->pool, p.end, note_read, &place);
    }
    h->parent[id] = map, h->level[id] = map ? h->level[map] + 1 : 1;
    add(h, &node->map.body, id, node->map.schedule == DC_MAP_REDUCE ? id : reduce);
  }
}

void dc_homes_add(dc_homes *homes, const dc_scope *scope) { add(homes, scope, 0, 0); }

bool dc_homes_is_local(const dc_homes *homes, dc_cid c, dc_nid map) {
  dc_cid root = dc_container_root(homes->graph, c);
  const dc_container *k = dc_cont(homes->graph, root);
  if (k->role != DC_ROLE_TEMP || k->is_output || dc_cont(homes->graph, c)->is_output || !homes->home[root]) return false;
  for (dc_nid at = homes->home[root] - 1; at; at = homes->parent[at])
    if (at == map) return true;
  return false;
}
