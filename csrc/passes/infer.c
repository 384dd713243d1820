/* Infers all library nodes in order; subgraphs are inferred where they are used. */
#include "passes/passes.h"

dc_status dc_pass_infer(dc_ops *ops, dc_graph *graph, dc_cid *blocked) {
  *blocked = 0;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid node = graph->states.v[s].scope.v[k];
      if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY || dc_node_at(graph, node)->lib.wrt) continue;
      DC_TRY(dc_ops_infer(ops, graph, node, blocked));
      if (*blocked) return DC_OK;
    }
  return DC_OK;
}
