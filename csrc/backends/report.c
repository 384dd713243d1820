/* See report.h. */
#include "backends/report.h"

#include "ir/work.h"
#include "passes/passes.h"

double dc_node_operations(dc_ops *ops, dc_graph *copy, dc_nid node, const int64_t *symbols) {
  dc_scope made = {0};
  if (dc_node_at(copy, node)->kind != DC_NODE_LIBRARY) dc_scope_push(copy, &made, node);
  else dc_status_free(dc_pass_expand_node(ops, copy, node, &made)); /* a report says 0 rather than nothing at all */
  dc_work *work = DC_NEW_ARRAY(&copy->arena, dc_work, made.n);
  dc_work_count(copy, made.v, made.n, symbols, true, work);
  double sum = 0;
  for (uint32_t k = 0; k < made.n; k++) sum += work[k].operations;
  return sum;
}
