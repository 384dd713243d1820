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

/* temp[domain] = the reduction of `value` by `wcr` over fresh copies of the loops. */
static dc_ex reduce_again(const reduction *x, dc_wcr wcr, dc_ex guard, dc_ex value) {
  dc_reverse *r = x->r;
  dc_pool *pool = &r->graph->pool;
  dc_param fresh[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS], *dims = DC_NEW_ARRAY(&r->arena, dc_ex, x->n_domain), *reads = DC_NEW_ARRAY(&r->arena, dc_ex, x->n_domain);
  fresh_loops(x, 0, fresh, to);
  for (uint32_t k = 0; k < x->n_domain; k++) {
    dims[k] = pool->params.v[x->domain[k]].end;
    reads[k] = dc_ex_par(pool, x->domain[k]);
  }
  dc_dtype type = dc_ex_dtype(pool, value);
  dc_cid temp = dc_container_add(r->graph, "j", type, x->n_domain, dims, DC_ROLE_TEMP);
  guard = guard ? dc_ex_subst(pool, guard, x->loops, to, x->n_loops) : 0;
  value = dc_ex_subst(pool, value, x->loops, to, x->n_loops);
  dc_nid tasklet = dc_node_tasklet(r->graph, temp, wcr, to, x->n_domain, guard, value);
  dc_nid inner = dc_reverse_wrap(r, DC_MAP_REDUCE, fresh + x->n_domain, x->reduce.n_params, tasklet);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, fresh, x->n_domain, inner));
  return dc_ex_read(pool, type, temp, reads, x->n_domain);
}

/* The condition that this iteration is the first winner. */
static dc_ex winner_guard(const reduction *x) {
  dc_pool *pool = &x->r->graph->pool;
  dc_dtype stored = (dc_dtype)dc_cont(x->r->graph, x->t.out)->dtype, type = dc_ex_dtype(pool, x->t.value);
  dc_ex best = dc_ex_cast(pool, type, dc_ex_read(pool, stored, x->t.out, x->t.index, x->t.rank));
  dc_ex both_nan = dc_ex_and(pool, dc_ex_prim1(pool, DC_ISNAN, x->t.value), dc_ex_prim1(pool, DC_ISNAN, best));
  dc_ex wins = dc_ex_prim2(pool, DC_OR, dc_ex_prim2(pool, DC_EQ, x->t.value, best), both_nan);
  dc_ex at = linear_index(x, x->loops + x->n_domain);
  int64_t low, high;
  if (dc_ix_bounds(pool, at, &low, &high) && high <= INT32_MAX) at = dc_ex_cast(pool, DC_I32, at); /* half the traffic */
  return dc_ex_prim2(pool, DC_EQ, at, reduce_again(x, DC_WCR_MIN, dc_ex_and(pool, x->t.guard, wins), at));
}

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

/* What the helpers above keep has a dimension for each loop. */
static dc_status check_rank(const reduction *x) {
  uint32_t rank = x->t.wcr == DC_WCR_PROD ? x->n_loops : x->t.wcr == DC_WCR_SUM ? 0 : x->n_domain;
  if (rank <= DC_MAX_RANK) return DC_OK;
  return dc_error(DC_ERR_UNSUPPORTED, "its gradient takes an array of %u dimensions, more than %d", rank, DC_MAX_RANK);
}

static dc_status reverse_one(reduction *x, bool in_sequence) {
  dc_reverse *r = x->r;
  dc_pool *pool = &r->graph->pool;
  if (x->t.out >= r->n || !r->grad[x->t.out] || !r->active[x->t.out]) return DC_OK;
  DC_TRY(check_rank(x));
  dc_dtype type = (dc_dtype)dc_cont(r->graph, r->grad[x->t.out])->dtype, compute = dc_dtype_compute(type);
  dc_ex seed = dc_ex_cast(pool, compute, dc_ex_read(pool, type, r->grad[x->t.out], x->t.index, x->t.rank));
  dc_ex guard = x->t.guard;
  if (x->t.wcr == DC_WCR_MAX || x->t.wcr == DC_WCR_MIN) guard = dc_ex_and(pool, guard, winner_guard(x));
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

dc_status dc_reverse_reduction(dc_reverse *r, const dc_param *domain, uint32_t n_domain, dc_nid id, bool in_sequence) {
  dc_map map = dc_node_at(r->graph, id)->map;
  if (n_domain + map.n_params > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d nested loops", DC_MAX_LOOPS);
  for (uint32_t k = map.body.n; k-- > 0;) {
    const dc_node *child = dc_node_at(r->graph, map.body.v[k]);
    if (child->kind != DC_NODE_TASKLET || !child->tasklet.wcr)
      return dc_error(DC_ERR_UNSUPPORTED, "gradient of a fused reduction: differentiate before fusing");
    reduction x = {.r = r, .domain = domain, .n_domain = n_domain, .reduce = map, .t = child->tasklet, .n_loops = n_domain + map.n_params};
    if (n_domain) memcpy(x.loops, domain, n_domain * sizeof *domain);
    memcpy(x.loops + n_domain, map.params, map.n_params * sizeof *domain);
    DC_TRY(reverse_one(&x, in_sequence));
  }
  return DC_OK;
}
