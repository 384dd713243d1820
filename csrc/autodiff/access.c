/* Where a contribution goes: straight back, gathered, or scattered.
 *
 * A read R[r(v)] inside loops over v contributes to dR[r(v)].  If r is injective the same loops
 * write dR without conflict.  Else r is inverted: loops over the elements x of R, the loop
 * variables that r determines become expressions of x, the others are reduced.  What cannot be
 * inverted is scattered with accumulating writes. */
#include <string.h>

#include "autodiff/reverse.h"

enum { MAX_RESIDUES = 64 };

void dc_reverse_tag(dc_reverse *r, dc_nid node) {
  dc_node *n = dc_node_at(r->graph, node);
  n->tag_op = r->tag_op, n->tag_wrt = r->tag_wrt;
}

dc_cid dc_gradient_part(dc_reverse *r, dc_cid c) {
  dc_container k = *dc_cont(r->graph, c);
  char *name = dc_arena_printf(&r->arena, "d_%s", dc_cont_name(r->graph, c));
  return dc_container_add(r->graph, name, (dc_dtype)k.dtype, k.rank, k.shape, DC_ROLE_TEMP);
}

dc_cid dc_gradient_new(dc_reverse *r, dc_cid c) { return c == r->wanted ? r->target : dc_gradient_part(r, c); }

dc_nid dc_reverse_wrap(dc_reverse *r, dc_schedule schedule, const dc_param *params, uint32_t n, dc_nid inner) {
  dc_reverse_tag(r, inner);
  return dc_node_wrap(r->graph, schedule, params, n, inner);
}

/* One fresh parameter for each dimension of a container. */
static void element_loops(dc_reverse *r, dc_cid c, dc_param *params, dc_ex *index) {
  dc_pool *pool = &r->graph->pool;
  for (uint32_t d = 0; d < dc_cont(r->graph, c)->rank; d++) {
    params[d] = dc_param_new(pool, "x", dc_ex_int(pool, 0), dc_cont(r->graph, c)->shape[d], 0);
    index[d] = dc_ex_par(pool, params[d]);
  }
}

void dc_emit_fill(dc_reverse *r, dc_scope *scope, dc_cid target, dc_cid source, dc_wcr wcr) {
  dc_pool *pool = &r->graph->pool;
  dc_param params[DC_MAX_RANK];
  dc_ex index[DC_MAX_RANK];
  uint32_t rank = dc_cont(r->graph, target)->rank;
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(r->graph, target)->dtype);
  element_loops(r, target, params, index);
  dc_ex value = dc_ex_const(pool, type, 0);
  if (source) value = dc_ex_cast(pool, type, dc_ex_read(pool, (dc_dtype)dc_cont(r->graph, source)->dtype, source, index, rank));
  dc_nid tasklet = dc_node_tasklet(r->graph, target, wcr, index, rank, 0, value);
  dc_scope_push(r->graph, scope, dc_reverse_wrap(r, DC_MAP_PARALLEL, params, rank, tasklet));
}

/* A gradient that was handed in or is a view of another is never written: a copy takes its place. */
dc_cid dc_gradient_owned(dc_reverse *r, dc_cid c) {
  dc_cid given = r->grad[c];
  const dc_container *k = dc_cont(r->graph, given);
  bool ours = given >= r->fresh || given == r->target;
  if (ours && k->role == DC_ROLE_TEMP && !k->alias_of) return given;
  r->grad[c] = dc_gradient_new(r, c);
  dc_emit_fill(r, r->prologue ? r->prologue : r->out, r->grad[c], given, DC_WCR_NONE);
  return r->grad[c];
}

void dc_gradient_add(dc_reverse *r, dc_cid c, dc_cid part) {
  if (r->grad[c]) dc_emit_fill(r, r->out, dc_gradient_owned(r, c), part, DC_WCR_SUM);
  else r->grad[c] = part;
}

dc_cid dc_gradient_zeroed(dc_reverse *r, dc_cid c) {
  if (r->grad[c]) return dc_gradient_owned(r, c);
  r->grad[c] = dc_gradient_new(r, c);
  dc_emit_fill(r, r->prologue ? r->prologue : r->out, r->grad[c], 0, DC_WCR_NONE);
  return r->grad[c];
}

/* ---- injective reads ---- */

typedef struct {
  dc_reverse *r;
  const dc_partial *partial;
  dc_cid source;
  uint32_t rank;
  dc_ex index[DC_MAX_RANK];      /* of the read */
  dc_param loops[DC_MAX_LOOPS];
  uint32_t n_loops;
} access;

/* The index is the loop itself, or takes strided steps of it: gathering would find most elements untouched. */
static bool determines(dc_pool *pool, dc_ex index, dc_param p) {
  dc_ex coefficient, rest;
  int64_t step;
  if (index == dc_ex_par(pool, p)) return true;
  if (!dc_ix_split(pool, index, p, &coefficient, &rest) || !dc_ex_is_int(pool, coefficient, &step)) return false;
  return (step > 1 || step < -1) && !dc_ex_uses_op(pool, rest, DC_EX_PARAM) && !dc_ex_uses_op(pool, rest, DC_EX_READ);
}

static bool is_injective(const access *a) {
  dc_pool *pool = &a->r->graph->pool;
  for (uint32_t k = 0; k < a->n_loops; k++) {
    bool found = false;
    for (uint32_t d = 0; d < a->rank; d++) found |= determines(pool, a->index[d], a->loops[k]);
    int64_t begin, end;
    dc_parameter range = pool->params.v[a->loops[k]];
    /* a loop that never runs would leave what it is said to write unwritten */
    bool once = dc_ex_is_int(pool, range.begin, &begin) && dc_ex_is_int(pool, range.end, &end) && end - begin == 1;
    if (!found && !once) return false;
  }
  return true;
}

/* Every element of the container is reached. */
static bool covers(const access *a) {
  dc_pool *pool = &a->r->graph->pool;
  for (uint32_t d = 0; d < a->rank; d++) {
    dc_ex extent = dc_cont(a->r->graph, a->source)->shape[d];
    const dc_exnode *e = dc_ex_node(pool, a->index[d]);
    int64_t one;
    if (e->op == DC_EX_INT && e->i == 0 && dc_ex_is_int(pool, extent, &one) && one == 1) continue;
    if (e->op != DC_EX_PARAM) return false;
    dc_parameter range = pool->params.v[e->ref];
    int64_t begin;
    if (!dc_ex_is_int(pool, range.begin, &begin) || begin != 0 || range.end != extent) return false;
    for (uint32_t j = 0; j < d; j++)
      if (a->index[j] == a->index[d]) return false;
  }
  return true;
}

/* Fresh copies of the loops; `from`/`to` rename expressions over the old ones. */
static void copy_loops(const access *a, dc_param *fresh, dc_ex *to) {
  dc_pool *pool = &a->r->graph->pool;
  for (uint32_t k = 0; k < a->n_loops; k++) {
    dc_parameter p = pool->params.v[a->loops[k]];
    dc_ex begin = dc_ex_subst(pool, p.begin, a->loops, to, k), end = dc_ex_subst(pool, p.end, a->loops, to, k);
    fresh[k] = dc_param_new(pool, dc_name_text(&a->r->graph->names, p.name), begin, end, p.step);
    to[k] = dc_ex_par(pool, fresh[k]);
  }
}

/* Many small steps vanish in a small float: they meet in a container of the compute type first. */
static dc_cid wide_target(dc_reverse *r, dc_cid c) {
  dc_container k = *dc_cont(r->graph, c);
  dc_dtype compute = dc_dtype_compute((dc_dtype)k.dtype);
  if (compute == k.dtype) return 0;
  dc_cid wide = dc_container_add(r->graph, "w", compute, k.rank, k.shape, DC_ROLE_TEMP);
  dc_emit_fill(r, r->out, wide, 0, DC_WCR_NONE);
  return wide;
}

static void emit_straight(const access *a, bool in_sequence, bool injective) {
  dc_reverse *r = a->r;
  dc_pool *pool = &r->graph->pool;
  dc_param fresh[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS], index[DC_MAX_RANK];
  bool first = !in_sequence && injective && !r->grad[a->source] && covers(a);
  if (first) r->grad[a->source] = dc_gradient_new(r, a->source);
  dc_cid wide = in_sequence || injective ? 0 : wide_target(r, a->source), target = wide ? wide : dc_gradient_zeroed(r, a->source);
  copy_loops(a, fresh, to);
  for (uint32_t d = 0; d < a->rank; d++) index[d] = dc_ex_subst(pool, a->index[d], a->loops, to, a->n_loops);
  bool apart = injective || dc_ix_apart(pool, index, a->rank, fresh, a->n_loops);
  dc_ex value = dc_ex_subst(pool, a->partial->coefficient, a->loops, to, a->n_loops);
  dc_ex guard = a->partial->guard ? dc_ex_subst(pool, a->partial->guard, a->loops, to, a->n_loops) : 0;
  if (first && guard) value = dc_ex_select(pool, guard, value, dc_ex_const(pool, dc_ex_dtype(pool, value), 0)), guard = 0;
  dc_nid tasklet = dc_node_tasklet(r->graph, target, first ? DC_WCR_NONE : DC_WCR_SUM, index, a->rank, guard, value);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, apart ? DC_MAP_PARALLEL : DC_MAP_SCATTER, fresh, a->n_loops, tasklet));
  if (!wide) return;
  bool alone = !r->grad[a->source];
  if (alone) r->grad[a->source] = dc_gradient_new(r, a->source);
  else dc_gradient_owned(r, a->source);
  dc_emit_fill(r, r->out, r->grad[a->source], wide, alone ? DC_WCR_NONE : DC_WCR_SUM);
}

/* ---- inversion ---- */

typedef struct {
  const access *a;
  dc_param x[DC_MAX_RANK];          /* loops over the elements of R */
  dc_ex x_value[DC_MAX_RANK];       /* x, or s*q + residue after a split */
  dc_ex solution[DC_MAX_LOOPS];     /* of each old loop in terms of x and fresh loops; 0: not solved */
  dc_param reduced[DC_MAX_LOOPS];   /* fresh loops of the reduction */
  uint32_t n_reduced;
  dc_ex guard;
} inversion;

static bool linear_terms(const access *a, dc_ex e, dc_ex *coefficients, dc_ex *rest) {
  dc_pool *pool = &a->r->graph->pool;
  *rest = e;
  for (uint32_t k = 0; k < a->n_loops; k++)
    if (!dc_ix_split(pool, *rest, a->loops[k], &coefficients[k], rest)) return false;
  return !dc_ex_uses_op(pool, *rest, DC_EX_READ);
}

static dc_ex extent_of(dc_pool *pool, dc_param p) { return pool->params.v[p].end; }

/* x = sum of digits: the terms sorted so that each coefficient is the product of the extents below. */
static bool solve_digits(inversion *v, dc_ex x, const dc_ex *coefficients, const uint32_t *open, uint32_t n) {
  dc_pool *pool = &v->a->r->graph->pool;
  uint32_t order[DC_MAX_LOOPS], used = 0;
  dc_ex radix = dc_ex_int(pool, 1);
  bool taken[DC_MAX_LOOPS] = {0};
  for (; used < n; used++) {
    uint32_t pick = UINT32_MAX;
    for (uint32_t j = 0; j < n; j++)
      if (!taken[j] && coefficients[open[j]] == radix && pick == UINT32_MAX) pick = j;
    if (pick == UINT32_MAX) return false;
    taken[pick] = true;
    order[used] = open[pick];
    radix = dc_ix_mul(pool, radix, extent_of(pool, v->a->loops[open[pick]]));
  }
  for (uint32_t k = 0; k < n; k++) {
    dc_ex extent = extent_of(pool, v->a->loops[order[k]]);
    v->solution[order[k]] = k + 1 < n ? dc_ix_mod(pool, x, extent) : x;
    x = dc_ix_div(pool, x, extent);
  }
  v->guard = dc_ex_and(pool, v->guard, dc_ex_in_range(pool, v->solution[order[n - 1]], extent_of(pool, v->a->loops[order[n - 1]])));
  return true;
}

static dc_ex fresh_loop(inversion *v, uint32_t loop, dc_ex extent) {
  dc_pool *pool = &v->a->r->graph->pool;
  dc_parameter p = pool->params.v[v->a->loops[loop]];
  dc_param fresh = dc_param_new(pool, dc_name_text(&v->a->r->graph->names, p.name), dc_ex_int(pool, 0), extent, 0);
  v->reduced[v->n_reduced++] = fresh;
  return dc_ex_par(pool, fresh);
}

static int64_t modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

/* The open loop to solve for: the largest; a symbolic extent counts as large. */
static uint32_t pivot_of(const inversion *v, const uint32_t *open, uint32_t n) {
  dc_pool *pool = &v->a->r->graph->pool;
  int64_t best = -1, extent;
  uint32_t pick = 0;
  for (uint32_t j = 0; j < n; j++) {
    if (!dc_ex_is_int(pool, extent_of(pool, v->a->loops[open[j]]), &extent)) extent = INT64_MAX;
    if (extent > best) best = extent, pick = j;
  }
  return pick;
}

/* One dimension: x_d = rest + sum of coefficient * loop over the loops not solved yet. */
static bool solve_dimension(inversion *v, uint32_t d, int64_t residue) {
  const access *a = v->a;
  dc_pool *pool = &a->r->graph->pool;
  dc_ex coefficients[DC_MAX_LOOPS], rest;
  uint32_t open[DC_MAX_LOOPS], n = 0;
  int64_t zero, c;
  if (!linear_terms(a, a->index[d], coefficients, &rest)) return false;
  dc_ex x = dc_ix_sub(pool, v->x_value[d], rest);
  for (uint32_t k = 0; k < a->n_loops; k++) {
    if (dc_ex_is_int(pool, coefficients[k], &zero) && zero == 0) continue;
    if (v->solution[k]) x = dc_ix_sub(pool, x, dc_ix_mul(pool, coefficients[k], v->solution[k]));
    else open[n++] = k;
  }
  if (n == 0) {
    v->guard = dc_ex_and(pool, v->guard, dc_ex_prim2(pool, DC_EQ, x, dc_ex_int(pool, 0)));
    return true;
  }
  if (dc_ex_is_int(pool, rest, &zero) && zero == 0 && solve_digits(v, x, coefficients, open, n)) return true;
  uint32_t pivot = open[pivot_of(v, open, n)];
  if (!dc_ex_is_int(pool, coefficients[pivot], &c) || c == 0 || c == INT64_MIN) return false;
  bool split = residue >= 0;
  for (uint32_t j = 0; j < n; j++) {
    uint32_t k = open[j];
    int64_t other, base;
    if (k == pivot) continue;
    dc_ex extent = extent_of(pool, a->loops[k]), loop;
    if (!split) loop = fresh_loop(v, k, extent);
    else { /* only the loop values of this residue class: k = k0 + s*k' */
      if (!dc_ex_is_int(pool, coefficients[k], &other) || !dc_ex_is_int(pool, rest, &base)) return false;
      int64_t k0 = 0;
      while (k0 < c && modulo(residue - modulo(base, c) - modulo(other, c) * k0, c)) k0++;
      if (k0 == c) return false; /* no common class: gcd > 1 */
      dc_ex step = dc_ex_int(pool, c), first = dc_ex_int(pool, k0);
      dc_ex count = dc_ix_extent(pool, first, extent, step);
      loop = dc_ix_add(pool, first, dc_ix_mul(pool, step, fresh_loop(v, k, count)));
    }
    v->solution[k] = loop;
    x = dc_ix_sub(pool, x, dc_ix_mul(pool, coefficients[k], loop));
  }
  if (c < 0) x = dc_ix_sub(pool, dc_ex_int(pool, 0), x), c = -c;
  if (c > 1 && !split && n == 1) return false;
  dc_ex quotient = dc_ix_div(pool, x, dc_ex_int(pool, c));
  if (c > 1 && dc_ix_mod(pool, x, dc_ex_int(pool, c)) != dc_ex_int(pool, 0)) return false;
  v->solution[pivot] = quotient;
  v->guard = dc_ex_and(pool, v->guard, dc_ex_in_range(pool, quotient, extent_of(pool, a->loops[pivot])));
  return true;
}

/* The constant stride of a dimension's pivot, 1 if there is none. */
static int64_t stride_of(const access *a, uint32_t d) {
  dc_pool *pool = &a->r->graph->pool;
  dc_ex coefficients[DC_MAX_LOOPS], rest;
  int64_t c, extent, best = -1, stride = 1, open = 0;
  if (!linear_terms(a, a->index[d], coefficients, &rest)) return 1;
  for (uint32_t k = 0; k < a->n_loops; k++) {
    if (!dc_ex_is_int(pool, coefficients[k], &c)) return 1;
    if (c == 0) continue;
    open++;
    if (!dc_ex_is_int(pool, extent_of(pool, a->loops[k]), &extent)) extent = INT64_MAX;
    if (extent > best) best = extent, stride = c;
  }
  if (open < 2 || stride < 2) return 1;
  /* digits need no split: the dimension is a mixed radix of its loops */
  inversion probe = {.a = a};
  uint32_t list[DC_MAX_LOOPS], n = 0;
  int64_t zero;
  for (uint32_t k = 0; k < a->n_loops; k++)
    if (!dc_ex_is_int(pool, coefficients[k], &c) || c) list[n++] = k;
  bool plain = dc_ex_is_int(pool, rest, &zero) && zero == 0;
  return plain && solve_digits(&probe, dc_ex_int(pool, 0), coefficients, list, n) ? 1 : stride;
}

static bool ranges_are_plain(const access *a) {
  dc_pool *pool = &a->r->graph->pool;
  int64_t begin;
  for (uint32_t k = 0; k < a->n_loops; k++) {
    dc_parameter p = pool->params.v[a->loops[k]];
    if (!dc_ex_is_int(pool, p.begin, &begin) || begin != 0 || dc_ex_uses_op(pool, p.end, DC_EX_PARAM)) return false;
  }
  return true;
}

/* The index of the dimension is the same for all loops, and inside: only that slice gets anything. */
static bool is_fixed(const access *a, uint32_t d) {
  dc_pool *pool = &a->r->graph->pool;
  dc_ex extent = dc_cont(a->r->graph, a->source)->shape[d];
  int64_t truth;
  if (dc_ex_uses_op(pool, a->index[d], DC_EX_PARAM) || dc_ex_uses_op(pool, a->index[d], DC_EX_READ) || extent == dc_ex_int(pool, 1))
    return false;
  return dc_ex_is_int(pool, dc_ex_in_range(pool, a->index[d], extent), &truth) && truth;
}

/* Builds one gather: all elements x, or those of one residue class in each strided dimension. */
static bool invert(inversion *v, const int64_t *strides, const int64_t *residues) {
  const access *a = v->a;
  dc_pool *pool = &a->r->graph->pool;
  bool done[DC_MAX_RANK] = {0};
  for (uint32_t d = 0; d < a->rank; d++) {
    dc_ex extent = dc_cont(a->r->graph, a->source)->shape[d], s = dc_ex_int(pool, strides[d]), first = dc_ex_int(pool, residues[d]);
    if (strides[d] > 1) extent = dc_ix_extent(pool, first, extent, s);
    if (is_fixed(a, d)) extent = dc_ex_int(pool, 1), first = a->index[d];
    v->x[d] = dc_param_new(pool, "x", dc_ex_int(pool, 0), extent, 0);
    v->x_value[d] = dc_ix_add(pool, dc_ix_mul(pool, s, dc_ex_par(pool, v->x[d])), first);
  }
  for (uint32_t round = 0; round < a->rank; round++) { /* dimensions with fewer open loops first */
    uint32_t best = UINT32_MAX, pick = 0;
    for (uint32_t d = 0; d < a->rank; d++) {
      dc_ex coefficients[DC_MAX_LOOPS], rest;
      uint32_t open = 0;
      int64_t zero;
      if (done[d]) continue;
      if (!linear_terms(a, a->index[d], coefficients, &rest)) return false;
      for (uint32_t k = 0; k < a->n_loops; k++) open += !v->solution[k] && !(dc_ex_is_int(pool, coefficients[k], &zero) && zero == 0);
      if (open < best) best = open, pick = d;
    }
    done[pick] = true;
    if (!solve_dimension(v, pick, strides[pick] > 1 ? residues[pick] : -1)) return false;
  }
  for (uint32_t k = 0; k < a->n_loops; k++)
    if (!v->solution[k]) v->solution[k] = fresh_loop(v, k, extent_of(pool, a->loops[k]));
  return true;
}

static void emit_gather(const inversion *v, bool first) {
  const access *a = v->a;
  dc_reverse *r = a->r;
  dc_pool *pool = &r->graph->pool;
  dc_ex value = dc_ex_subst(pool, a->partial->coefficient, a->loops, v->solution, a->n_loops);
  dc_ex guard = v->guard;
  if (a->partial->guard) guard = dc_ex_and(pool, guard, dc_ex_subst(pool, a->partial->guard, a->loops, v->solution, a->n_loops));
  int64_t truth;
  if (guard && dc_ex_is_int(pool, guard, &truth) && truth) guard = 0;
  dc_cid target = r->grad[a->source], sum = target;
  dc_dtype type = dc_ex_dtype(pool, value);
  bool direct = first && v->n_reduced && dc_cont(r->graph, target)->dtype == type;
  dc_ex x[DC_MAX_RANK];
  for (uint32_t d = 0; d < a->rank; d++) x[d] = dc_ex_par(pool, v->x[d]);
  if (!v->n_reduced) {
    if (first && guard) value = dc_ex_select(pool, guard, value, dc_ex_const(pool, type, 0)), guard = 0;
    dc_nid tasklet = dc_node_tasklet(r->graph, target, first ? DC_WCR_NONE : DC_WCR_SUM, v->x_value, a->rank, guard, value);
    dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, v->x, a->rank, tasklet));
    return;
  }
  dc_ex dims[DC_MAX_RANK];
  for (uint32_t d = 0; d < a->rank; d++) dims[d] = pool->params.v[v->x[d]].end;
  if (!direct) sum = dc_container_add(r->graph, "s", type, a->rank, dims, DC_ROLE_TEMP);
  dc_nid inner = dc_node_tasklet(r->graph, sum, DC_WCR_SUM, direct ? v->x_value : x, a->rank, guard, value);
  dc_nid reduce = dc_reverse_wrap(r, DC_MAP_REDUCE, v->reduced, v->n_reduced, inner);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, v->x, a->rank, reduce));
  if (direct) return;
  dc_param fresh[DC_MAX_RANK];
  dc_ex to[DC_MAX_RANK], index[DC_MAX_RANK];
  for (uint32_t d = 0; d < a->rank; d++) {
    fresh[d] = dc_param_new(pool, "x", dc_ex_int(pool, 0), dims[d], 0);
    to[d] = dc_ex_par(pool, fresh[d]);
  }
  for (uint32_t d = 0; d < a->rank; d++) index[d] = dc_ex_subst(pool, v->x_value[d], v->x, to, a->rank);
  dc_ex total = dc_ex_read(pool, type, sum, to, a->rank);
  dc_nid add = dc_node_tasklet(r->graph, target, first ? DC_WCR_NONE : DC_WCR_SUM, index, a->rank, 0, total);
  dc_scope_push(r->graph, r->out, dc_reverse_wrap(r, DC_MAP_PARALLEL, fresh, a->rank, add));
}

/* Tries every residue class; emits nothing unless all invert, or where the nest could be too deep for a graph. */
static bool try_gather(const access *a) {
  int64_t strides[DC_MAX_RANK], residues[DC_MAX_RANK] = {0}, classes = 1;
  if (!ranges_are_plain(a) || a->rank + a->n_loops > DC_MAX_LOOPS) return false;
  for (uint32_t d = 0; d < a->rank; d++) {
    strides[d] = stride_of(a, d);
    if (strides[d] > MAX_RESIDUES / classes) return false;
    classes *= strides[d];
  }
  inversion *all = DC_NEW_ARRAY(&a->r->arena, inversion, classes);
  for (int64_t k = 0; k < classes; k++) {
    int64_t rest = k;
    for (uint32_t d = 0; d < a->rank; d++) residues[d] = rest % strides[d], rest /= strides[d];
    all[k].a = a;
    if (!invert(&all[k], strides, residues)) return false;
  }
  bool first = !a->r->grad[a->source], whole = true;
  for (uint32_t d = 0; d < a->rank; d++) whole = whole && !is_fixed(a, d);
  if (first && whole) a->r->grad[a->source] = dc_gradient_new(a->r, a->source);
  else dc_gradient_zeroed(a->r, a->source);
  first = first && whole;
  for (int64_t k = 0; k < classes; k++) emit_gather(&all[k], first);
  return true;
}

/* Is it read beyond its extents, but for a guard, as a padded array is?  One statement over its elements then makes the gradient, where
 * zeros and a sum over all that was written would be two. */
static bool goes_beyond(const access *a) { return a->partial->guard && !a->r->grad[a->source] && !covers(a); }

dc_status dc_emit_contribution(dc_reverse *r, const dc_nest *nest, const dc_partial *partial) {
  const dc_exnode *node = dc_ex_node(&r->graph->pool, partial->read);
  access a = {.r = r, .partial = partial, .source = node->ref, .rank = node->nargs, .n_loops = nest->n_loops};
  for (uint32_t d = 0; d < a.rank; d++) a.index[d] = dc_ex_arg(&r->graph->pool, partial->read, d);
  if (nest->n_loops) memcpy(a.loops, nest->loops, nest->n_loops * sizeof *nest->loops);
  bool injective = is_injective(&a);
  bool straight = nest->in_sequence || (injective && !goes_beyond(&a));
  if (straight || !try_gather(&a)) emit_straight(&a, nest->in_sequence, injective);
  return DC_OK;
}
