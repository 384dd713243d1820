/* Factor: what all terms of a sum are multiplied by is multiplied once.
 *
 *     map a { reduce r in 0:768 { s[a] sum= neg(d[a] * X[a, r]) } }   becomes
 *     map a { reduce r in 0:768 { s_terms[a] sum= X[a, r] }  s[a] = neg(d[a]) * s_terms[a] }
 *
 * Beside the products this saves a pass over the terms where the factor comes of other sums over them: without it, they can
 * share one loop.  Gradients of normalisations are full of such sums.  Runs before fusion. */
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_graph *graph;
  dc_map reduce;
} search;

static bool is_invariant(const search *s, dc_ex e) {
  for (uint32_t k = 0; k < s->reduce.n_params; k++)
    if (dc_ex_uses_param(&s->graph->pool, e, s->reduce.params[k])) return false;
  return true;
}

/* More terms than unrolling makes one expression of, whatever symbols are: an extent that is one counts as 1. */
static bool is_long(const search *s) {
  dc_pool *pool = &s->graph->pool;
  const int64_t enough = s->graph->machine.unrolled_trips + 1;
  int64_t trips = 1;
  for (uint32_t k = 0; k < s->reduce.n_params; k++) {
    dc_parameter range = pool->params.v[s->reduce.params[k]];
    int64_t extent;
    if (!dc_ex_is_int(pool, dc_ix_extent(pool, range.begin, range.end, range.step), &extent)) continue;
    if (extent <= 0) return false;
    trips = extent > enough || trips * extent > enough ? enough : trips * extent;
  }
  return trips >= enough;
}

/* The sum of no terms is 0, whatever the factor is: it may be infinite.  0: there is always a term. */
static dc_ex has_terms(const search *s) {
  dc_pool *pool = &s->graph->pool;
  dc_ex all = 0;
  for (uint32_t k = 0; k < s->reduce.n_params; k++) {
    dc_parameter range = pool->params.v[s->reduce.params[k]];
    dc_ex extent = dc_ix_extent(pool, range.begin, range.end, range.step);
    if (!dc_ix_proves_ge(pool, extent, 1)) all = dc_ex_and(pool, dc_ex_prim2(pool, DC_LT, dc_ex_int(pool, 0), extent), all);
  }
  return all;
}

/* The factors of e that stay the same while the sum runs, multiplied with *factor (0: none yet); returns what is left, 0 where
 * that is 1. */
static dc_ex take_factors(const search *s, dc_ex e, dc_ex *factor) {
  dc_pool *pool = &s->graph->pool;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (is_invariant(s, e)) {
    *factor = *factor ? dc_ex_prim2(pool, DC_MUL, *factor, e) : e;
    return 0;
  }
  if (node->op == DC_NEG) {
    dc_ex rest = take_factors(s, dc_ex_arg(pool, e, 0), factor);
    *factor = *factor ? dc_ex_prim1(pool, DC_NEG, *factor) : dc_ex_const(pool, dc_ex_dtype(pool, e), -1);
    return rest;
  }
  if (node->op == DC_ADD && dc_ex_arg(pool, e, 0) == dc_ex_arg(pool, e, 1)) {
    dc_ex two = dc_ex_const(pool, dc_ex_dtype(pool, e), 2), rest = take_factors(s, dc_ex_arg(pool, e, 0), factor);
    *factor = *factor ? dc_ex_prim2(pool, DC_MUL, *factor, two) : two;
    return rest;
  }
  if (node->op == DC_DIV && is_invariant(s, dc_ex_arg(pool, e, 1))) {
    dc_ex divisor = dc_ex_arg(pool, e, 1), rest = take_factors(s, dc_ex_arg(pool, e, 0), factor);
    *factor = dc_ex_prim2(pool, DC_DIV, *factor ? *factor : dc_ex_const(pool, dc_ex_dtype(pool, e), 1), divisor);
    return rest;
  }
  if (node->op != DC_MUL) return e;
  dc_ex left = dc_ex_arg(pool, e, 0), right = dc_ex_arg(pool, e, 1);
  dc_ex a = take_factors(s, left, factor), b = take_factors(s, right, factor);
  return !a ? b : !b ? a : a == left && b == right ? e : dc_ex_prim2(pool, DC_MUL, a, b);
}

/* The reduction's only term, an unguarded float sum into an element that the loops outside choose; 0: it is no such. */
static dc_nid single_term(const search *s) {
  if (s->reduce.body.n != 1 || !is_long(s)) return 0;
  const dc_node *node = dc_node_at(s->graph, s->reduce.body.v[0]);
  if (node->kind != DC_NODE_TASKLET || node->tasklet.wcr != DC_WCR_SUM || node->tasklet.guard) return 0;
  dc_dtype type = (dc_dtype)dc_cont(s->graph, node->tasklet.out)->dtype;
  bool is_wide = type == DC_F32 || type == DC_F64; /* small floats would overflow */
  if (!is_wide || dc_ex_dtype(&s->graph->pool, node->tasklet.value) != type) return 0;
  for (uint32_t d = 0; d < node->tasklet.rank; d++)
    if (!is_invariant(s, node->tasklet.index[d])) return 0;
  return s->reduce.body.v[0];
}

/* Takes factors out of a reduction; returns what multiplies by them, which stands behind it, 0 if there are none. */
static dc_nid take_out(dc_graph *graph, dc_nid reduce) {
  search s = {graph, dc_node_at(graph, reduce)->map};
  dc_pool *pool = &graph->pool;
  dc_nid term = single_term(&s);
  if (!term) return 0;
  dc_tasklet t = dc_node_at(graph, term)->tasklet;
  dc_ex factor = 0, rest = take_factors(&s, t.value, &factor);
  if (!factor || !rest) return 0;
  dc_cid terms = dc_container_like(graph, t.out, "terms");
  dc_ex value = dc_ex_prim2(pool, DC_MUL, factor, dc_ex_read(pool, dc_ex_dtype(pool, rest), terms, t.index, t.rank));
  dc_ex some = has_terms(&s);
  if (some) value = dc_ex_select(pool, some, value, dc_ex_const(pool, dc_ex_dtype(pool, value), 0));
  dc_nid whole = dc_node_tasklet(graph, t.out, DC_WCR_NONE, t.index, t.rank, 0, value);
  dc_nid sum = dc_node_tasklet(graph, terms, DC_WCR_SUM, t.index, t.rank, 0, rest);
  dc_node_take_origin(graph, whole, term), dc_node_take_origin(graph, sum, term);
  dc_node_at(graph, reduce)->map.body.v[0] = sum;
  return whole;
}

static bool is_map(const dc_graph *graph, dc_nid id, dc_schedule schedule) {
  return dc_node_at(graph, id)->kind == DC_NODE_MAP && dc_node_at(graph, id)->map.schedule == schedule;
}

dc_status dc_pass_factor(dc_graph *graph) {
  for (uint32_t state = 0; state < graph->states.n; state++) {
    dc_scope scope = graph->states.v[state].scope;
    for (uint32_t k = 0; k < scope.n; k++) {
      if (!is_map(graph, scope.v[k], DC_MAP_PARALLEL)) continue;
      dc_scope body = dc_node_at(graph, scope.v[k])->map.body;
      dc_nid whole = body.n == 1 && is_map(graph, body.v[0], DC_MAP_REDUCE) ? take_out(graph, body.v[0]) : 0;
      if (whole) dc_scope_push(graph, &dc_node_at(graph, scope.v[k])->map.body, whole);
    }
  }
  return DC_OK;
}
