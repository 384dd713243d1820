/* Algebra on scalar expressions: forms that cost less and lose nothing.
 *
 * A rule looks at one node whose arguments are rewritten already and returns an equal expression, or
 * the node itself.  Every rule makes the expression's nesting of functions less deep, so rewriting ends. */
#include "passes/passes.h"

static dc_ex constant(dc_pool *pool, dc_ex like, double value) { return dc_ex_const(pool, dc_ex_dtype(pool, like), value); }

/* tanh(softplus x) = n / (n + 2) with n = e^x (e^x + 2); from x = 20 on it is 1 in every type. */
static dc_ex tanh_of_softplus(dc_pool *pool, dc_ex e) {
  dc_ex inner = dc_ex_arg(pool, e, 0);
  dc_dtype type = dc_ex_dtype(pool, e);
  if (dc_ex_node(pool, inner)->op != DC_SOFTPLUS || (type != DC_F32 && type != DC_F64)) return e;
  dc_ex x = dc_ex_prim2(pool, DC_MIN, dc_ex_arg(pool, inner, 0), constant(pool, e, 20)), two = constant(pool, e, 2);
  dc_ex power = dc_ex_prim1(pool, DC_EXP, x);
  dc_ex n = dc_ex_prim2(pool, DC_MUL, power, dc_ex_prim2(pool, DC_ADD, power, two));
  return dc_ex_prim2(pool, DC_DIV, n, dc_ex_prim2(pool, DC_ADD, n, two));
}

/* log(sigmoid x) = -softplus(-x), which does not underflow. */
static dc_ex log_of_sigmoid(dc_pool *pool, dc_ex e) {
  dc_ex inner = dc_ex_arg(pool, e, 0);
  if (dc_ex_node(pool, inner)->op != DC_SIGMOID) return e;
  return dc_ex_prim1(pool, DC_NEG, dc_ex_prim1(pool, DC_SOFTPLUS, dc_ex_prim1(pool, DC_NEG, dc_ex_arg(pool, inner, 0))));
}

static const struct {
  uint8_t op;
  dc_ex (*rule)(dc_pool *, dc_ex);
} rules[] = {{DC_TANH, tanh_of_softplus}, {DC_LOG, log_of_sigmoid}};

static dc_ex apply_rules(void *context, dc_pool *pool, dc_ex e) {
  (void)context;
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
    if (dc_ex_node(pool, e)->op == rules[k].op) e = rules[k].rule(pool, e);
  return e;
}

static void rewrite_node(dc_graph *graph, dc_nid id) {
  if (dc_node_at(graph, id)->kind == DC_NODE_MAP)
    for (uint32_t k = 0; k < dc_node_at(graph, id)->map.body.n; k++) rewrite_node(graph, dc_node_at(graph, id)->map.body.v[k]);
  if (dc_node_at(graph, id)->kind != DC_NODE_TASKLET) return;
  dc_ex value = dc_ex_transform(&graph->pool, dc_node_at(graph, id)->tasklet.value, apply_rules, NULL);
  dc_node_at(graph, id)->tasklet.value = value;
}

dc_status dc_pass_rewrite(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) rewrite_node(graph, graph->states.v[s].scope.v[k]);
  return DC_OK;
}
