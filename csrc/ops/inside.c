/* Operators inside maps: replaced by what their rows say, in the body. */
#include "ir/inside.h"
#include "ops/ops.h"

static dc_status expand_body(dc_ops *ops, dc_graph *graph, dc_nid map, uint32_t depth, bool *any);

/* *any is set where the node was, or holds, an operator. */
static dc_status expand_in(dc_ops *ops, dc_graph *graph, dc_nid id, uint32_t depth, dc_scope *after, bool *any) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind == DC_NODE_LIBRARY) {
    *any = true;
    if (node->lib.wrt) return dc_error(DC_ERR_UNSUPPORTED, "%s: a gradient inside a map", dc_node_describe(graph, id));
    return dc_ops_expand(ops, graph, id, after);
  }
  if (node->kind == DC_NODE_MAP) DC_TRY(expand_body(ops, graph, id, depth + 1, any));
  dc_scope_push(graph, after, id);
  return DC_OK;
}

static dc_status expand_body(dc_ops *ops, dc_graph *graph, dc_nid map, uint32_t depth, bool *any) {
  dc_scope before = dc_node_at(graph, map)->map.body, after = {0};
  bool found = false;
  if (depth > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d nested maps", DC_MAX_LOOPS);
  dc_scope_separate(graph, &before);
  for (uint32_t k = 0; k < before.n; k++) DC_TRY(expand_in(ops, graph, before.v[k], depth, &after, &found));
  if (!found) return DC_OK;
  *any = true;
  dc_node_at(graph, map)->map.body = after;
  return dc_map_run_in_order(graph, map); /* arrays that hold the operator's steps are shared by all iterations */
}

dc_status dc_ops_expand_inside(dc_ops *ops, dc_graph *graph, dc_nid map) {
  bool any = false;
  return expand_body(ops, graph, map, 1, &any);
}
