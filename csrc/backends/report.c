/* What a program does, for people: how much each step computes and moves.
 *
 * A library call is as much work as its definition, so its node is expanded in a copy of the graph and counted there. */
#include "backends/report.h"

#include "passes/passes.h"

enum { ASSUMED_TRIPS = 4 }; /* of a loop whose bounds depend on data or on an outer loop */

/* Comparisons and choices count where they look at data; those of bounds are how an operator is written, not its work. */
static void count_operation(void *context, const dc_pool *pool, dc_ex e) {
  uint8_t op = dc_ex_node(pool, e)->op;
  bool chooses = op == DC_EX_SELECT || (op < DC_PRIM_COUNT && (dc_prims[op].kind == DC_PRIM_TEST || dc_prims[op].kind == DC_PRIM_LOGIC));
  if (chooses) *(double *)context += dc_ex_uses_op(pool, op == DC_EX_SELECT ? dc_ex_arg(pool, e, 0) : e, DC_EX_READ);
  else *(double *)context += op < DC_PRIM_COUNT;
}

static double trips_of(const dc_pool *pool, dc_param id, const int64_t *symbols) {
  dc_parameter p = pool->params.v[id];
  static const dc_op unknown[] = {DC_EX_PARAM, DC_EX_READ};
  for (uint32_t k = 0; k < 2; k++)
    if (dc_ex_uses_op(pool, p.begin, unknown[k]) || dc_ex_uses_op(pool, p.end, unknown[k])) return ASSUMED_TRIPS;
  double trips = (double)(dc_ix_eval(pool, p.end, symbols, NULL) - dc_ix_eval(pool, p.begin, symbols, NULL));
  return trips > 0 ? trips : 0;
}

static double map_operations(const dc_graph *graph, dc_nid id, const int64_t *symbols) {
  const dc_node *n = dc_node_at(graph, id);
  double sum = 0, trips = 1;
  if (n->kind == DC_NODE_TASKLET) {
    dc_ex_walk(&graph->pool, n->tasklet.value, count_operation, &sum);
    return sum + (n->tasklet.wcr != DC_WCR_NONE);
  }
  if (n->kind != DC_NODE_MAP) return 0;
  for (uint32_t k = 0; k < n->map.body.n; k++) sum += map_operations(graph, n->map.body.v[k], symbols);
  for (uint32_t k = 0; k < n->map.n_params; k++) trips *= trips_of(&graph->pool, n->map.params[k], symbols);
  return sum * trips;
}

double dc_node_operations(dc_ops *ops, dc_graph *copy, dc_nid node, const int64_t *symbols) {
  if (dc_node_at(copy, node)->kind != DC_NODE_LIBRARY) return map_operations(copy, node, symbols);
  dc_scope made = {0};
  double sum = 0;
  dc_status status = dc_pass_expand_node(ops, copy, node, &made);
  for (uint32_t k = 0; k < made.n && !status; k++) sum += map_operations(copy, made.v[k], symbols);
  dc_status_free(status); /* a report says 0 rather than nothing at all */
  return sum;
}

/* ---- bytes ---- */

typedef struct {
  dc_nid node, *seen;
  const dc_plan *plan;
  uint64_t sum;
} traffic;

static void count_bytes(void *context, dc_cid c, dc_use use, dc_nid by) {
  traffic *t = context;
  (void)use, (void)by;
  if (!c || t->seen[c] == t->node) return;
  t->seen[c] = t->node;
  t->sum += t->plan->bytes[c];
}

uint64_t dc_node_bytes(const dc_graph *graph, dc_nid node, const dc_plan *plan, dc_nid *seen) {
  traffic t = {node, seen, plan, 0};
  dc_node_uses(graph, node, count_bytes, &t);
  return t.sum;
}
