/* The adjoint of a reduction: sums distribute; max and min go to the first winner; products
 * get the product of the others. */
#include <string.h>

#include "autodiff/reverse.h"

typedef struct {
  dc_reverse *r;
  const dc_param *domain;
  uint32_t n_domain;
  dc_map reduce;
  dc_tasklet t;
  dc_param loops[DC_MAX_LOOPS]; /* domain, then reduction */
  uint32_t n_loops;
} reduction;

static dc_ex linear_index(const reduction *x, const dc_param *params) {
  dc_pool *pool = &x->r->graph->pool;
  dc_ex at = dc_ex_int(pool, 0);
  for (uint32_t k = 0; k < x->reduce.n_params; k++)
    at = dc_ix_add(pool, dc_ix_mul(pool, at, pool->params.v[params[k]].end), dc_ex_par(pool, params[k]));
  return at;
}

/* Fresh loops for loops[from..n_loops); to[k] replaces loops[k], also in the ranges of later ones. */
static void fresh_loops(const reduction *x, uint32_t from, dc_param *fresh, dc_ex *to) {
  dc_pool *pool = &x->r->graph->pool;
  for (uint32_t k = from; k < x->n_loops; k++) {
    dc_parameter p = pool->params.v[x->loops[k]];
    dc_ex begin = dc_ex_subst(pool, p.begin, x->loops, to, k), end = dc_ex_subst(pool, p.end, x->loops, to, k);
    fresh[k] = dc_param_new(pool, dc_name_text(&x->r->graph->names, p.name), begin, end, p.step);
    to[k] = dc_ex_par(pool, fresh[k]);
  }
}

/* A new container: its element [domain] is the reduction of `value` by `wcr` over fresh copies of the loops. */
static dc_cid reduce_again(const reduction *x, dc_wcr wcr, dc_ex guard, dc_ex value) {
  dc_reverse *r = x->r;
  dc_pool *pool = &r->graph->pool;
  dc_param fresh[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS], *dims = DC_NEW_ARRAY(&r->arena, dc_ex, x->n_domain);
  fresh_loops(x, 0, fresh, to);
  for (uint32_t k = 0; k < x->n_domain; k++) dims[k] = pool->params.v[x->domain[k]].end;
  dc_cid temp = dc_container_add(r->graph, "j", dc_ex_dtype(pool, value), x->n_domain, dims, DC_ROLE_TEMP);
  guard = guard ? dc_ex_subst(pool, guard, x->loops, to, x->n_loops) : 0;
  value = dc_ex_subst(pool, value, x->loops, to, x->n_loops);
  dc_nid tasklet = dc_node_tasklet(r->graph, temp, wcr, to, x->n_domain, guard, value);
  dc_nid inner = dc_reverse_wrap(r, DC_MAP_REDUCE, fresh + x->n_domain, x->reduce.n_params, tasklet);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, fresh, x->n_domain, inner));
  return temp;
}

static dc_ex read_at_domain(const reduction *x, dc_cid c) {
  dc_pool *pool = &x->r->graph->pool;
  dc_ex *at = DC_NEW_ARRAY(&x->r->arena, dc_ex, x->n_domain);
  for (uint32_t k = 0; k < x->n_domain; k++) at[k] = dc_ex_par(pool, x->domain[k]);
  return dc_ex_read(pool, (dc_dtype)dc_cont(x->r->graph, c)->dtype, c, at, x->n_domain);
}

/* ---- max and min ---- */

/* This iteration's number, in the type that costs least to compare. */
static dc_ex number(const reduction *x) {
  dc_pool *pool = &x->r->graph->pool;
  dc_ex at = linear_index(x, x->loops + x->n_domain);
  int64_t low, high;
  return dc_ix_bounds(pool, at, &low, &high) && high <= INT32_MAX ? dc_ex_cast(pool, DC_I32, at) : at;
}

/* A new container with the number of the first iteration that wins. */
static dc_cid first_winner(const reduction *x) {
  dc_pool *pool = &x->r->graph->pool;
  dc_dtype stored = (dc_dtype)dc_cont(x->r->graph, x->t.out)->dtype, type = dc_ex_dtype(pool, x->t.value);
  dc_ex best = dc_ex_cast(pool, type, dc_ex_read(pool, stored, x->t.out, x->t.index, x->t.rank));
  return reduce_again(x, DC_WCR_MIN, dc_ex_and(pool, x->t.guard, dc_ex_is_extreme(pool, x->t.value, best)), number(x));
}

/* The condition that this iteration is the first winner. */
static dc_ex winner_guard(const reduction *x, dc_nid tasklet) {
  dc_pool *pool = &x->r->graph->pool;
  dc_cid noted = x->r->winner ? x->r->winner[tasklet] : 0;
  dc_ex here = number(x), winner = read_at_domain(x, noted ? noted : first_winner(x));
  return dc_ex_prim2(pool, DC_EQ, here, dc_ex_cast(pool, dc_ex_dtype(pool, here), winner));
}

/* ---- products ---- */

/* The product of the other factors: O(n^2), and right with any number of zeros. */
static dc_ex other_factors(const reduction *x) {
  dc_reverse *r = x->r;
  dc_pool *pool = &r->graph->pool;
  dc_param fresh[DC_MAX_LOOPS], inner[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS], both[DC_MAX_LOOPS], dims[DC_MAX_RANK], reads[DC_MAX_RANK];
  fresh_loops(x, 0, fresh, to);
  memcpy(both, to, x->n_domain * sizeof *both);
  fresh_loops(x, x->n_domain, inner, both);
  for (uint32_t k = 0; k < x->n_loops; k++) {
    dims[k] = pool->params.v[x->loops[k]].end;
    reads[k] = dc_ex_par(pool, x->loops[k]);
  }
  dc_ex value = dc_ex_subst(pool, x->t.value, x->loops, both, x->n_loops);
  dc_ex guard = dc_ex_prim2(pool, DC_NE, linear_index(x, fresh + x->n_domain), linear_index(x, inner + x->n_domain));
  if (x->t.guard) guard = dc_ex_and(pool, guard, dc_ex_subst(pool, x->t.guard, x->loops, both, x->n_loops));
  dc_dtype type = dc_ex_dtype(pool, x->t.value);
  dc_cid temp = dc_container_add(r->graph, "q", type, x->n_loops, dims, DC_ROLE_TEMP);
  dc_nid tasklet = dc_node_tasklet(r->graph, temp, DC_WCR_PROD, to, x->n_loops, guard, value);
  dc_nid reduce = dc_reverse_wrap(r, DC_MAP_REDUCE, inner + x->n_domain, x->reduce.n_params, tasklet);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, fresh, x->n_loops, reduce));
  return dc_ex_read(pool, type, temp, reads, x->n_loops);
}

/* ---- the adjoint ---- */

/* What the helpers above keep has a dimension for each loop. */
static dc_status check_rank(const reduction *x) {
  uint32_t rank = x->t.wcr == DC_WCR_PROD ? x->n_loops : x->t.wcr == DC_WCR_SUM ? 0 : x->n_domain;
  if (rank <= DC_MAX_RANK) return DC_OK;
  return dc_error(DC_ERR_UNSUPPORTED, "its gradient takes an array of %u dimensions, more than %d", rank, DC_MAX_RANK);
}

static dc_status reverse_one(reduction *x, dc_nid tasklet, bool in_sequence) {
  dc_reverse *r = x->r;
  dc_pool *pool = &r->graph->pool;
  if (x->t.out >= r->n || !r->grad[x->t.out] || !r->active[x->t.out]) return DC_OK;
  DC_TRY(check_rank(x));
  dc_dtype type = (dc_dtype)dc_cont(r->graph, r->grad[x->t.out])->dtype, compute = dc_dtype_compute(type);
  dc_ex seed = dc_ex_cast(pool, compute, dc_ex_read(pool, type, r->grad[x->t.out], x->t.index, x->t.rank));
  dc_ex guard = x->t.guard;
  if (x->t.wcr == DC_WCR_MAX || x->t.wcr == DC_WCR_MIN) guard = dc_ex_and(pool, guard, winner_guard(x, tasklet));
  if (x->t.wcr == DC_WCR_PROD) seed = dc_ex_prim2(pool, DC_MUL, seed, dc_ex_cast(pool, compute, other_factors(x)));
  dc_partials partials = {0};
  DC_TRY(dc_scalar_partials(r, x->t.value, 0, seed, &partials));
  dc_nest nest = {x->loops, x->n_loops, in_sequence};
  for (uint32_t k = 0; k < partials.n; k++) {
    partials.v[k].guard = dc_ex_and(pool, guard, partials.v[k].guard);
    DC_TRY(dc_emit_contribution(r, &nest, &partials.v[k]));
  }
  if (!r->rewritten[x->t.out]) return DC_OK;
  dc_gradient_owned(r, x->t.out);
  dc_tasklet set = x->t; /* the elements are set whatever the guard is */
  set.guard = 0;
  dc_clear_overwritten(r, &(dc_nest){x->domain, x->n_domain, in_sequence}, &set);
  return DC_OK;
}

static reduction reduction_of(dc_reverse *r, const dc_param *domain, uint32_t n_domain, const dc_map *reduce, const dc_tasklet *t) {
  reduction x = {.r = r, .domain = domain, .n_domain = n_domain, .reduce = *reduce, .t = *t, .n_loops = n_domain + reduce->n_params};
  if (n_domain) memcpy(x.loops, domain, n_domain * sizeof *domain);
  memcpy(x.loops + n_domain, reduce->params, reduce->n_params * sizeof *domain);
  return x;
}

dc_status dc_reverse_reduction(dc_reverse *r, const dc_param *domain, uint32_t n_domain, dc_nid id, bool in_sequence) {
  dc_map map = dc_node_at(r->graph, id)->map;
  if (n_domain + map.n_params > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d nested loops", DC_MAX_LOOPS);
  for (uint32_t k = map.body.n; k-- > 0;) {
    const dc_node *child = dc_node_at(r->graph, map.body.v[k]);
    if (child->kind != DC_NODE_TASKLET || !child->tasklet.wcr)
      return dc_error(DC_ERR_UNSUPPORTED, "gradient of a fused reduction: differentiate before fusing");
    reduction x = reduction_of(r, domain, n_domain, &map, &child->tasklet);
    DC_TRY(reverse_one(&x, map.body.v[k], in_sequence));
  }
  return DC_OK;
}

/* ---- winners that the forward pass notes ---- */

enum { SHORT_ROW = 32 /* elements, of which vectors of bytes and of floats at once are not many */ };

static bool is_row_short(const dc_graph *g, dc_cid c) {
  const dc_container *k = dc_cont(g, c);
  int64_t extent;
  return k->rank && dc_ex_is_int(&g->pool, k->shape[k->rank - 1], &extent) && extent < SHORT_ROW;
}

/* Of what is unrolled later, so that it is no loop that vectors of several widths run, in one byte: the largest, which the
 * identity of min becomes, says that there is no winner. */
static dc_cid note_winner(const reduction *x) {
  dc_reverse *r = x->r;
  dc_cid wide = first_winner(x);
  int64_t low, high;
  bool few = dc_ix_bounds(&r->graph->pool, linear_index(x, x->loops + x->n_domain), &low, &high) && high < r->graph->machine.unrolled_trips;
  if (!few || is_row_short(r->graph, wide)) return wide;
  dc_container k = *dc_cont(r->graph, wide);
  dc_cid winner = dc_container_add(r->graph, "winner", DC_U8, k.rank, k.shape, DC_ROLE_TEMP);
  dc_emit_fill(r, r->out, winner, wide, DC_WCR_NONE);
  return winner;
}

static bool is_contest(const dc_graph *g, dc_nid id) {
  const dc_node *n = dc_node_at(g, id);
  bool best = n->kind == DC_NODE_TASKLET && (n->tasklet.wcr == DC_WCR_MAX || n->tasklet.wcr == DC_WCR_MIN);
  return best && dc_dtype_is_float((dc_dtype)dc_cont(g, n->tasklet.out)->dtype);
}

/* Loops whose extents no other loop changes, so that an array may have an element for each iteration. */
static bool is_box(const dc_pool *pool, const dc_param *loops, uint32_t n) {
  bool box = true;
  for (uint32_t k = 0; k < n && box; k++)
    for (uint32_t j = 0; j < k && box; j++) box = !dc_ex_uses_param(pool, pool->params.v[loops[k]].end, loops[j]);
  return box;
}

void dc_note_winners(dc_reverse *r, dc_nid id) {
  dc_map none = {0}, outer = dc_node_at(r->graph, id)->kind == DC_NODE_MAP ? dc_node_at(r->graph, id)->map : none;
  bool around = outer.schedule == DC_MAP_PARALLEL && outer.body.n == 1;
  dc_nid inner = around ? outer.body.v[0] : id;
  if (dc_node_at(r->graph, inner)->kind != DC_NODE_MAP || dc_node_at(r->graph, inner)->map.schedule != DC_MAP_REDUCE) return;
  dc_map reduce = dc_node_at(r->graph, inner)->map;
  uint32_t n = around ? outer.n_params : 0;
  if (n > DC_MAX_RANK || n + reduce.n_params > DC_MAX_LOOPS || !is_box(&r->graph->pool, outer.params, n)) return;
  for (uint32_t k = 0; k < reduce.body.n; k++) {
    if (!is_contest(r->graph, reduce.body.v[k])) continue;
    const dc_node *child = dc_node_at(r->graph, reduce.body.v[k]);
    r->tag_op = child->tag_op;
    reduction x = reduction_of(r, outer.params, n, &reduce, &child->tasklet);
    r->winner[reduce.body.v[k]] = note_winner(&x);
  }
}
