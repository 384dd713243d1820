/* Finding nodes in bodies of maps, and maps that run in order for the sake of what is in them. */
#include "ir/inside.h"

static bool find(const dc_graph *graph, const dc_scope *scope, dc_nid node, dc_way *way) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (scope->v[k] == node) return way->at = k, true;
    const dc_node *map = dc_node_at(graph, scope->v[k]);
    if (map->kind != DC_NODE_MAP || way->n_maps == DC_MAX_LOOPS) continue;
    way->maps[way->n_maps++] = scope->v[k];
    if (find(graph, &map->map.body, node, way)) return true;
    way->n_maps--;
  }
  return false;
}

bool dc_node_way(const dc_graph *graph, dc_nid node, dc_way *out) {
  *out = (dc_way){0};
  for (out->state = 0; out->state < graph->states.n; out->state++)
    if (find(graph, &graph->states.v[out->state].scope, node, out)) return true;
  return false;
}

dc_scope *dc_way_scope(dc_graph *graph, const dc_way *way) {
  if (!way->n_maps) return &graph->states.v[way->state].scope;
  return &dc_node_at(graph, way->maps[way->n_maps - 1])->map.body;
}

dc_status dc_map_run_in_order(dc_graph *graph, dc_nid id) {
  dc_map map = dc_node_at(graph, id)->map;
  if (map.schedule == DC_MAP_REDUCE)
    return dc_error(DC_ERR_UNSUPPORTED, "%s: an operator inside a reduction", dc_node_describe(graph, id));
  dc_node_at(graph, id)->map.schedule = DC_MAP_SEQUENTIAL;
  if (map.n_params < 2) return DC_OK;
  dc_nid inner = dc_node_map(graph, DC_MAP_SEQUENTIAL, map.params + 1, map.n_params - 1);
  dc_node *of = dc_node_at(graph, inner), *around = dc_node_at(graph, id);
  of->map.body = map.body, of->name = around->name, of->tag_op = around->tag_op, of->tag_wrt = around->tag_wrt;
  around->map.n_params = 1, around->map.body = (dc_scope){0};
  dc_scope body = {0};
  dc_scope_push(graph, &body, inner);
  dc_node_at(graph, id)->map.body = body;
  return dc_map_run_in_order(graph, inner);
}

/* ---- states as bodies ---- */

typedef struct {
  dc_sym symbol;
  dc_ex value;
} binding;

static dc_ex bind_symbol(void *context, dc_pool *pool, dc_ex leaf) {
  const binding *b = context;
  const dc_exnode *node = dc_ex_node(pool, leaf);
  return node->op == DC_EX_SYM && node->ref == b->symbol ? b->value : leaf;
}

static dc_status check_shapes(dc_graph *graph, const dc_scope *body, const binding *b) {
  bool *used = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t k = 0; k < body->n; k++) dc_node_mark(graph, body->v[k], DC_USE_READ | DC_USE_WRITE, used);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    for (uint32_t d = 0; used[dc_container_root(graph, c)] && dc_cont(graph, c)->shape && d < dc_cont(graph, c)->rank; d++)
      if (dc_ex_rewrite(&graph->pool, dc_cont(graph, c)->shape[d], bind_symbol, (void *)b) != dc_cont(graph, c)->shape[d])
        return dc_error(DC_ERR_UNSUPPORTED, "the shape of '%s' changes with the loop around its states", dc_cont_name(graph, c));
  return DC_OK;
}

dc_status dc_states_enclose(dc_graph *graph, const uint32_t *states, uint32_t n, dc_sym symbol) {
  dc_scope first = graph->states.v[states[0]].scope, body = {0}, around = {0};
  dc_nid map = first.n ? first.v[first.n - 1] : 0;
  if (!map || dc_node_at(graph, map)->kind != DC_NODE_MAP || dc_node_at(graph, map)->map.body.n ||
      dc_node_at(graph, map)->map.n_params != 1)
    return dc_error(DC_ERR_VALUE, "state '%s' does not end with an empty map",
                    dc_name_text(&graph->names, graph->states.v[states[0]].name));
  binding b = {symbol, dc_ex_par(&graph->pool, dc_node_at(graph, map)->map.params[0])};
  for (uint32_t k = 0; k < n; k++) {
    const dc_scope *scope = &graph->states.v[states[k]].scope;
    for (uint32_t j = 0; j < scope->n; j++)
      if (scope->v[j] != map) dc_scope_push(graph, &body, scope->v[j]);
  }
  if (symbol) DC_TRY(check_shapes(graph, &body, &b));
  for (uint32_t k = 0; k < body.n && symbol; k++) dc_node_rewrite(graph, body.v[k], bind_symbol, &b);
  dc_scope_push(graph, &around, map);
  dc_node_at(graph, map)->map.body = body;
  for (uint32_t k = 0; k < n; k++) graph->states.v[states[k]].scope = (dc_scope){0};
  graph->states.v[states[0]].scope = around;
  return DC_OK;
}

typedef struct {
  dc_sym symbol;
  bool found;
} symbol_search;

static dc_ex see_symbol(void *context, dc_pool *pool, dc_ex leaf) {
  symbol_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, leaf);
  s->found |= node->op == DC_EX_SYM && node->ref == s->symbol;
  return leaf;
}

bool dc_graph_uses_symbol(dc_graph *graph, dc_sym symbol) {
  symbol_search s = {symbol, false};
  for (uint32_t k = 0; k < graph->states.n; k++)
    for (uint32_t j = 0; j < graph->states.v[k].scope.n; j++) dc_node_rewrite(graph, graph->states.v[k].scope.v[j], see_symbol, &s);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    for (uint32_t d = 0; dc_cont(graph, c)->shape && d < dc_cont(graph, c)->rank; d++)
      (void)dc_ex_rewrite(&graph->pool, dc_cont(graph, c)->shape[d], see_symbol, &s);
  for (uint32_t k = 0; k < graph->equalities.n; k++) {
    (void)dc_ex_rewrite(&graph->pool, graph->equalities.v[k].a, see_symbol, &s);
    (void)dc_ex_rewrite(&graph->pool, graph->equalities.v[k].b, see_symbol, &s);
  }
  return s.found;
}
