/* Exponents: a sum of exponentials about a maximum over the same long row, or what is made of it, is taken in one pass over the row.
 *
 *     map n { reduce c in 0:32768 { M[n] max= X[n, c] } }
 *     map n { reduce c in 0:32768 { r[n] sum= exp(X[n, c] - M[n]) } }            becomes
 *
 *     map p in 0:8, n { reduce c in 0:4096 { m[p, n] max= X[n, 4096*p + c] } }
 *     map n { reduce p in 0:8 { M[n] max= m[p, n] } }
 *     map p in 0:8, n { reduce c in 0:4096 { s[p, n] sum= exp(X[n, 4096*p + c] - m[p, n]) } }
 *     map n { reduce p in 0:8 { r[n] sum= s[p, n] * exp(m[p, n] - M[n]) } }
 *
 * The maps over parts merge: registers of a team hold a part, but no longer row (Milakov and Gimelshein, 2018).  Where the maximum of
 * a part is infinite, its sum is about 0: of nothing but -inf that is 0.  Runs before fusion, and does nothing where machine->teams
 * is 0: a processor's caches hold a row. */
#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

enum { MOST = 4 }; /* times the best length of a row for registers: shorter ones they hold */

/* map outer { reduce param { term } ... } */
typedef struct {
  dc_map outer;
  dc_param param;
  dc_nid reduce;
  dc_tasklet term;
  int64_t size, parts; /* of blocks, whose number is 0 where the row stays whole */
} row;

typedef struct {
  dc_graph *graph;
  row *maxima;      /* by container that a row's maximum is written to */
  uint32_t *writes; /* by container: nodes that write it */
  dc_cid *from;     /* by container: the first that a statement reads to make it */
  bool *wanted;     /* by container: a sum of exponentials about this maximum can be taken by parts */
  dc_cid *parts;    /* by container: the maxima of parts */
} search;

/* ---- rows ---- */

/* Equal parts of a row that is too long for registers.  Symbols: rows of unknown length stay whole. */
static void cut(const search *s, row *r) {
  const int64_t best = s->graph->machine.row_elements;
  int64_t extent;
  if (!best || !dc_ex_is_int(&s->graph->pool, s->graph->pool.params.v[r->param].end, &extent) || extent < MOST * best) return;
  const int64_t least = (extent + best - 1) / best;
  for (int64_t n = least; n < 2 * least && !r->parts; n++)
    if (extent % n == 0) r->parts = n, r->size = extent / n;
}

static bool read_row(const search *s, dc_nid id, row *out) {
  const dc_graph *graph = s->graph;
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || !node->map.body.n) return false;
  const dc_node *reduce = dc_node_at(graph, node->map.body.v[0]);
  if (reduce->kind != DC_NODE_MAP || reduce->map.schedule != DC_MAP_REDUCE) return false;
  if (reduce->map.n_params != 1 || reduce->map.body.n != 1) return false;
  const dc_node *term = dc_node_at(graph, reduce->map.body.v[0]);
  if (term->kind != DC_NODE_TASKLET || term->tasklet.guard || node->map.n_params >= DC_MAX_RANK) return false;
  *out = (row){node->map, reduce->map.params[0], node->map.body.v[0], term->tasklet, 0, 0};
  for (uint32_t k = 0; k < node->map.n_params; k++)
    if (!dc_param_counts(&graph->pool, node->map.params[k])) return false;
  if (!dc_param_counts(&graph->pool, out->param)) return false;
  for (uint32_t d = 0; d < out->term.rank; d++)
    if (dc_ex_uses_param(&graph->pool, out->term.index[d], out->param)) return false;
  dc_dtype type = (dc_dtype)dc_cont(graph, out->term.out)->dtype;
  if (!dc_dtype_is_float(type) || dc_dtype_compute(type) != type || dc_ex_dtype(&graph->pool, out->term.value) != type) return false;
  cut(s, out);
  return out->parts > 0;
}

/* x and z of exp(x - z), 0 if it is none. */
static dc_ex exponent(const dc_pool *pool, dc_ex e, dc_ex *z) {
  if (dc_ex_node(pool, e)->op != DC_EXP) return 0;
  dc_ex inner = dc_ex_arg(pool, e, 0);
  if (dc_ex_node(pool, inner)->op != DC_SUB) return 0;
  return *z = dc_ex_arg(pool, inner, 1), dc_ex_arg(pool, inner, 0);
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex e) {
  dc_cid *first = context;
  if (dc_ex_node(pool, e)->op == DC_EX_READ && !*first) *first = dc_ex_node(pool, e)->ref;
}

static dc_cid first_read(const dc_pool *pool, dc_ex e) {
  dc_cid first = 0;
  dc_ex_walk(pool, e, look_at_read, &first);
  return first;
}

/* An expression of one row, as the other says it. */
static dc_ex as_in(const search *s, const row *from, const row *to, dc_ex e) {
  dc_param params[DC_MAX_RANK + 1];
  dc_ex values[DC_MAX_RANK + 1];
  uint32_t n = from->outer.n_params;
  for (uint32_t k = 0; k < n; k++) params[k] = from->outer.params[k], values[k] = dc_ex_par(&s->graph->pool, to->outer.params[k]);
  params[n] = from->param, values[n] = dc_ex_par(&s->graph->pool, to->param);
  return dc_ex_subst(&s->graph->pool, e, params, values, n + 1);
}

/* The maximum that z is, or is made of; 0: of none.  Any z that stays the same for the row would do: this is where to look. */
static dc_cid maximum_of(const search *s, dc_ex z) {
  dc_cid c = first_read(&s->graph->pool, z);
  if (c && !s->maxima[c].parts && s->writes[c] == 1) c = s->from[c];
  return c && s->maxima[c].parts && s->writes[c] == 1 ? c : 0;
}

/* Is it a sum of exp(x - z), z of the maximum of the same x?  The container of that, else 0. */
static dc_cid about_maximum(const search *s, const row *r) {
  dc_pool *pool = &s->graph->pool;
  dc_ex z, x = r->term.wcr == DC_WCR_SUM ? exponent(pool, r->term.value, &z) : 0;
  if (!x || dc_ex_uses_param(pool, z, r->param)) return 0;
  const dc_cid maximum = maximum_of(s, z);
  const row *of = &s->maxima[maximum];
  if (!maximum || of->outer.n_params != r->outer.n_params || !dc_param_same_range(pool, of->param, r->param)) return 0;
  for (uint32_t k = 0; k < r->outer.n_params; k++)
    if (!dc_param_same_range(pool, of->outer.params[k], r->outer.params[k])) return 0;
  return as_in(s, of, r, of->term.value) == x ? maximum : 0;
}

/* ---- taking them by parts ---- */

/* The loops of the map over parts: the parts, then those of the outer map. */
typedef struct {
  dc_param params[DC_MAX_RANK + 1];
  dc_ex at[DC_MAX_RANK + 1], extents[DC_MAX_RANK + 1];
  uint32_t n;
} part_loops;

static part_loops loops_of_parts(dc_pool *pool, const row *r) {
  part_loops l = {.n = r->outer.n_params + 1};
  for (uint32_t k = 0; k < l.n; k++) {
    l.extents[k] = k ? pool->params.v[r->outer.params[k - 1]].end : dc_ex_int(pool, r->parts);
    const char *name = k ? dc_name_text(pool->names, pool->params.v[r->outer.params[k - 1]].name) : "p";
    l.params[k] = dc_param_new(pool, name, dc_ex_int(pool, 0), l.extents[k], 0);
    l.at[k] = dc_ex_par(pool, l.params[k]);
  }
  return l;
}

/* A term at the element of a part that the loops and `within` choose. */
static dc_ex in_part(dc_pool *pool, const row *r, const part_loops *l, dc_param within, dc_ex e) {
  dc_param params[DC_MAX_RANK + 1];
  dc_ex values[DC_MAX_RANK + 1];
  params[0] = r->param, values[0] = dc_ix_add(pool, dc_ix_mul(pool, l->at[0], dc_ex_int(pool, r->size)), dc_ex_par(pool, within));
  for (uint32_t k = 1; k < l->n; k++) params[k] = r->outer.params[k - 1], values[k] = l->at[k];
  return dc_ex_subst(pool, e, params, values, l->n);
}

static dc_nid sum_of(dc_graph *graph, dc_param loop, dc_nid term, dc_nid origin) {
  dc_node_take_origin(graph, term, origin);
  return dc_node_wrap(graph, DC_MAP_REDUCE, &loop, 1, term);
}

/* Pushes the map over the parts of a row, and makes what they come to the row's reduction.  maximum: a sum's, else 0. */
static dc_cid take_parts(const search *s, dc_nid id, const row *r, dc_cid maximum, dc_scope *out) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  const dc_dtype type = (dc_dtype)dc_cont(graph, r->term.out)->dtype;
  part_loops l = loops_of_parts(pool, r);
  dc_ex zero = dc_ex_int(pool, 0);
  const char *name = dc_name_text(&graph->names, pool->params.v[r->param].name);
  dc_param within = dc_param_new(pool, name, zero, dc_ex_int(pool, r->size), 0);
  dc_param part = dc_param_new(pool, "p", zero, dc_ex_int(pool, r->parts), 0);
  dc_cid sums = dc_container_after(graph, r->term.out, "parts", type, l.n, l.extents);
  dc_ex at[DC_MAX_RANK + 1], term = r->term.value, whole_of = 0;
  for (uint32_t k = 0; k < l.n; k++) at[k] = dc_ex_par(pool, k ? r->outer.params[k - 1] : part);
  dc_ex comes_to = dc_ex_read(pool, type, sums, at, l.n);
  if (maximum) {
    dc_ex mine = dc_ex_read(pool, type, s->parts[maximum], l.at, l.n);
    dc_ex from = dc_ex_select(pool, dc_ex_prim1(pool, DC_ISINF, mine), dc_ex_const(pool, type, 0), mine);
    dc_ex x = in_part(pool, r, &l, within, exponent(pool, term, &whole_of));
    term = dc_ex_prim1(pool, DC_EXP, dc_ex_prim2(pool, DC_SUB, x, from));
    dc_ex gap = dc_ex_prim2(pool, DC_SUB, dc_ex_read(pool, type, s->parts[maximum], at, l.n), whole_of);
    comes_to = dc_ex_prim2(pool, DC_MUL, comes_to, dc_ex_prim1(pool, DC_EXP, gap));
  } else {
    term = in_part(pool, r, &l, within, term);
  }
  dc_nid first = sum_of(graph, within, dc_node_tasklet(graph, sums, (dc_wcr)r->term.wcr, l.at, l.n, 0, term), r->reduce);
  dc_nid map = dc_node_wrap(graph, DC_MAP_PARALLEL, l.params, l.n, first);
  dc_node_take_origin(graph, map, id);
  dc_scope_push(graph, out, map);
  dc_nid whole = dc_node_tasklet(graph, r->term.out, (dc_wcr)r->term.wcr, r->term.index, r->term.rank, 0, comes_to);
  dc_node_at(graph, id)->map.body.v[0] = sum_of(graph, part, whole, r->reduce);
  return sums;
}

/* ---- the pass ---- */

static void note_write(void *context, dc_cid c, dc_use how, dc_nid by) {
  (void)by;
  if (how & DC_USE_WRITE) ((search *)context)->writes[c]++;
}

static void note_makers(search *s, dc_nid id) {
  const dc_node *node = dc_node_at(s->graph, id);
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++) note_makers(s, node->map.body.v[k]);
  if (node->kind == DC_NODE_TASKLET && !node->tasklet.wcr)
    s->from[node->tasklet.out] = first_read(&s->graph->pool, node->tasklet.value);
}

static void look_at(search *s, dc_nid id) {
  row r;
  dc_node_uses(s->graph, id, note_write, s);
  note_makers(s, id);
  if (!read_row(s, id, &r)) return;
  if (r.term.wcr == DC_WCR_MAX) s->maxima[r.term.out] = r;
  dc_cid maximum = about_maximum(s, &r);
  if (maximum) s->wanted[maximum] = true;
}

static dc_status replace(void *context, dc_graph *graph, dc_nid id, dc_scope *out) {
  search *s = context;
  row r;
  if (read_row(s, id, &r)) {
    dc_cid maximum = about_maximum(s, &r);
    if (maximum && s->parts[maximum]) (void)take_parts(s, id, &r, maximum, out);
    else if (r.term.wcr == DC_WCR_MAX && s->wanted[r.term.out] && s->writes[r.term.out] == 1)
      s->parts[r.term.out] = take_parts(s, id, &r, 0, out);
  }
  dc_scope_push(graph, out, id);
  return DC_OK;
}

dc_status dc_pass_exponents(dc_graph *graph) {
  if (!graph->machine.teams) return DC_OK;
  dc_arena arena = {0};
  const uint32_t n = graph->containers.n;
  search s = {.graph = graph,
              .maxima = DC_NEW_ARRAY(&arena, row, n),
              .writes = DC_NEW_ARRAY(&arena, uint32_t, n),
              .from = DC_NEW_ARRAY(&arena, dc_cid, n),
              .wanted = DC_NEW_ARRAY(&arena, bool, n),
              .parts = DC_NEW_ARRAY(&arena, dc_cid, n)};
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) look_at(&s, graph->states.v[state].scope.v[k]);
  dc_status status = dc_graph_each_map(graph, replace, &s);
  dc_arena_free(&arena);
  return status;
}
