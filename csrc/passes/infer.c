/* Infers all library nodes in order; subgraphs are inferred where they are used. */
#include "passes/passes.h"

/* A value is known where one node writes it, once for all. */
static void forget_what_changes(dc_graph *graph, dc_nid node, const dc_writers *writers) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  for (uint32_t k = 0; k < lib->n_out; k++) {
    dc_container *c = dc_cont(graph, lib->out[k]);
    if (lib->out[k] && (c->role != DC_ROLE_TEMP || writers[dc_container_root(graph, lib->out[k])].n > 1))
      c->known = NULL, c->known_count = 0;
  }
}

static dc_status infer_scope(dc_ops *ops, dc_graph *graph, dc_scope scope, const dc_writers *writers, uint32_t depth, dc_cid *blocked) {
  for (uint32_t k = 0; k < scope.n && !*blocked; k++) {
    const dc_node node = *dc_node_at(graph, scope.v[k]);
    if (node.kind == DC_NODE_MAP && depth < DC_MAX_LOOPS) DC_TRY(infer_scope(ops, graph, node.map.body, writers, depth + 1, blocked));
    if (node.kind != DC_NODE_LIBRARY || node.lib.wrt) continue;
    DC_TRY(dc_ops_infer(ops, graph, scope.v[k], blocked));
    if (!*blocked) forget_what_changes(graph, scope.v[k], writers);
  }
  return DC_OK;
}

dc_status dc_pass_infer(dc_ops *ops, dc_graph *graph, dc_cid *blocked) {
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  *blocked = 0;
  dc_graph_writers(graph, writers);
  for (uint32_t s = 0; s < graph->states.n && !*blocked; s++)
    DC_TRY(infer_scope(ops, graph, graph->states.v[s].scope, writers, 0, blocked));
  return DC_OK;
}
