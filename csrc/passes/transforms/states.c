/* States that follow one another become one: a scope is an order of its nodes already. */
#include "passes/transforms/transforms.h"

dc_status dc_transform_state_fusion(const dc_transform *t, uint32_t *count) {
  dc_graph *graph = t->graph;
  for (uint32_t s = 1; s < graph->states.n; s++) {
    const dc_scope *from = &graph->states.v[s].scope;
    for (uint32_t k = 0; k < from->n; k++) dc_scope_push(graph, &graph->states.v[0].scope, from->v[k]);
    ++*count;
  }
  if (graph->states.n) graph->states.n = 1;
  return DC_OK;
}
