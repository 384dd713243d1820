/* See moments.h. */
#include "passes/moments.h"

#include "passes/access.h"

typedef struct {
  const dc_graph *graph;
  dc_moments moments;
  dc_cid found; /* while looking at what an expression reads */
} search;

/* ---- what is a sum of what ---- */

/* The container of an element, which may be widened; 0: it is no element. */
static dc_cid element_of(const dc_pool *pool, dc_ex e) {
  if (dc_ex_node(pool, e)->op == DC_EX_CAST) e = dc_ex_arg(pool, e, 0);
  return dc_ex_node(pool, e)->op == DC_EX_READ ? dc_ex_node(pool, e)->ref : 0;
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ && node->ref < s->moments.n && s->moments.data[node->ref]) s->found = s->moments.data[node->ref];
}

static dc_cid made_of(search *s, dc_ex e) {
  s->found = 0;
  dc_ex_walk(&s->graph->pool, e, look_at_read, s);
  return s->found;
}

static void visit(search *s, dc_nid id) {
  const dc_node *node = dc_node_at(s->graph, id);
  if (node->kind == DC_NODE_MAP) {
    for (uint32_t k = 0; k < node->map.body.n; k++) visit(s, node->map.body.v[k]);
  } else if (node->kind == DC_NODE_TASKLET) {
    const dc_tasklet *t = &node->tasklet;
    dc_cid data = t->wcr == DC_WCR_SUM ? element_of(&s->graph->pool, t->value) : t->wcr ? 0 : made_of(s, t->value);
    if (data) s->moments.data[t->out] = data;
  }
}

dc_moments dc_moments_find(const dc_graph *graph, dc_arena *arena) {
  search s = {graph, {DC_NEW_ARRAY(arena, dc_cid, graph->containers.n), graph->containers.n}, 0};
  for (uint32_t state = 0; state < graph->states.n; state++) {
    const dc_scope *scope = &graph->states.v[state].scope;
    for (uint32_t k = 0; k < scope->n; k++) visit(&s, scope->v[k]);
  }
  return s.moments;
}

/* ---- squares ---- */

/* Do the loops run over a box? */
static bool is_box(const dc_pool *pool, const dc_map *reduce) {
  for (uint32_t k = 0; k < reduce->n_params; k++) {
    dc_parameter range = pool->params.v[reduce->params[k]];
    if (dc_map_moves(pool, range.begin, reduce) || dc_map_moves(pool, range.end, reduce)) return false;
  }
  return true;
}

bool dc_moment_is(dc_graph *graph, const dc_moments *moments, const dc_map *reduce, const dc_tasklet *t, dc_ex *x, dc_ex *m) {
  dc_pool *pool = &graph->pool;
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(graph, t->out)->dtype);
  if (t->wcr != DC_WCR_SUM || t->guard || dc_ex_dtype(pool, t->value) != type || !dc_dtype_is_float(type)) return false;
  if (dc_ex_term(pool, t->value, x, m) != DC_TERM_SQUARE || !dc_map_moves(pool, *x, reduce) || dc_map_moves(pool, *m, reduce)) return false;
  dc_cid of = element_of(pool, *x);
  search s = {graph, *moments, 0};
  return of && made_of(&s, *m) == of && is_box(pool, reduce);
}

dc_ex dc_moment_first(dc_graph *graph, const dc_map *reduce, dc_ex x) {
  dc_pool *pool = &graph->pool;
  dc_ex begins[DC_MAX_LOOPS];
  for (uint32_t k = 0; k < reduce->n_params; k++) begins[k] = pool->params.v[reduce->params[k]].begin;
  return dc_ex_subst(pool, x, reduce->params, begins, reduce->n_params);
}

dc_ex dc_moment_sum(dc_pool *pool, dc_ex m, dc_ex k, dc_ex squares, dc_ex distances, dc_ex terms) {
  dc_ex some = dc_ix_proves_ge(pool, terms, 1) ? 0 : dc_ex_prim2(pool, DC_LT, dc_ex_int(pool, 0), terms);
  dc_ex d = dc_ex_prim2(pool, DC_SUB, m, k), n = dc_ex_cast(pool, dc_ex_dtype(pool, d), terms);
  dc_ex twice = dc_ex_prim2(pool, DC_ADD, distances, distances);
  dc_ex moved = dc_ex_prim2(pool, DC_MUL, d, dc_ex_prim2(pool, DC_SUB, dc_ex_prim2(pool, DC_MUL, n, d), twice));
  dc_ex sum = dc_ex_prim2(pool, DC_ADD, squares, moved);
  return some ? dc_ex_select(pool, some, sum, squares) : sum;
}
