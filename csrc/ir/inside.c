/* Finding nodes in bodies of maps, and maps that run in order for the sake of what is in them. */
#include "ir/inside.h"

static bool find(const dc_graph *graph, const dc_scope *scope, dc_nid node, dc_place *place) {
  for (uint32_t k = 0; k < scope->n; k++) {
    if (scope->v[k] == node) return place->at = k, true;
    const dc_node *map = dc_node_at(graph, scope->v[k]);
    if (map->kind != DC_NODE_MAP || place->n_maps == DC_MAX_LOOPS) continue;
    place->maps[place->n_maps++] = scope->v[k];
    if (find(graph, &map->map.body, node, place)) return true;
    place->n_maps--;
  }
  return false;
}

bool dc_node_place(const dc_graph *graph, dc_nid node, dc_place *out) {
  *out = (dc_place){0};
  for (out->state = 0; out->state < graph->states.n; out->state++)
    if (find(graph, &graph->states.v[out->state].scope, node, out)) return true;
  return false;
}

dc_scope *dc_place_scope(dc_graph *graph, const dc_place *place) {
  if (!place->n_maps) return &graph->states.v[place->state].scope;
  return &dc_node_at(graph, place->maps[place->n_maps - 1])->map.body;
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
