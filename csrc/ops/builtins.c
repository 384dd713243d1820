/* Functions of the language on lists and shapes: one table, one row each. */
#include <math.h>
#include <string.h>

#include "ops/inst.h"

typedef dc_status (*builtin_fn)(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out);
enum { MAX_LIST = 1 << 20 };

/* ---- arguments ---- */

static dc_status as_list(dc_inst *in, const dc_value *v, dc_value *out) {
  if (v->kind == VAL_LIST) return *out = *v, DC_OK;
  *out = dc_val_list(in, 1);
  out->items[0] = *v;
  return v->kind == VAL_NONE ? dc_inst_fail(in, DC_ERR_MODEL, "expected a list") : DC_OK;
}

static dc_status as_int(dc_inst *in, const dc_value *v, int64_t *out) {
  if (v->kind == VAL_LIST && v->n == 1) return as_int(in, &v->items[0], out);
  return dc_val_is_int(in, v, out) ? DC_OK : dc_inst_fail(in, DC_ERR_MODEL, "expected an integer that is known when shapes are computed");
}

static dc_status as_count(dc_inst *in, const dc_value *v, uint32_t *out) {
  int64_t i;
  DC_TRY(as_int(in, v, &i));
  if (i < 0 || i > MAX_LIST) return dc_inst_fail(in, DC_ERR_MODEL, "expected a count of at most %d, got %lld", MAX_LIST, (long long)i);
  return *out = (uint32_t)i, DC_OK;
}

static bool in_ints(dc_inst *in, const dc_value *list, int64_t wanted) {
  int64_t i;
  for (uint32_t k = 0; k < list->n; k++)
    if (dc_val_is_int(in, &list->items[k], &i) && i == wanted) return true;
  return false;
}

/* ---- lists ---- */

static dc_status f_len(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  return *out = dc_val_int(in, a[0].kind == VAL_LIST ? a[0].n : a[0].kind != VAL_NONE), DC_OK;
}

static dc_status f_known(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  double number;
  return *out = dc_val_int(in, dc_val_is_number(in, &a[0], &number)), DC_OK;
}

static dc_status f_cat(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t total = 0, at = 0;
  for (uint32_t k = 0; k < n; k++) total += a[k].kind == VAL_LIST ? a[k].n : 1;
  *out = dc_val_list(in, total);
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t j = 0; j < (a[k].kind == VAL_LIST ? a[k].n : 1); j++) out->items[at++] = a[k].kind == VAL_LIST ? a[k].items[j] : a[k];
  return DC_OK;
}

static dc_status f_sub(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t from, to;
  dc_value list;
  DC_TRY(as_list(in, &a[0], &list));
  DC_TRY(as_count(in, &a[1], &from));
  to = list.n;
  if (n > 2) DC_TRY(as_count(in, &a[2], &to));
  if (to > list.n || from > to) return dc_inst_fail(in, DC_ERR_MODEL, "expected a list of at least %u elements, got %u", to, list.n);
  *out = dc_val_list(in, to - from);
  for (uint32_t k = from; k < to; k++) out->items[k - from] = list.items[k];
  return DC_OK;
}

static dc_status f_at(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  uint32_t k;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  DC_TRY(as_count(in, &a[1], &k));
  if (k >= list.n) return dc_inst_fail(in, DC_ERR_MODEL, "expected at least %u elements, got %u", k + 1, list.n);
  return *out = list.items[k], DC_OK;
}

static dc_status f_pick(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list, axes;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  DC_TRY(as_list(in, &a[1], &axes));
  *out = dc_val_list(in, axes.n);
  for (uint32_t k = 0; k < axes.n; k++) {
    uint32_t axis;
    DC_TRY(as_count(in, &axes.items[k], &axis));
    if (axis >= list.n) return dc_inst_fail(in, DC_ERR_SHAPE, "axis %u is out of range for %u dimensions", axis, list.n);
    out->items[k] = list.items[axis];
  }
  return DC_OK;
}

static dc_status f_drop(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list, axes;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  DC_TRY(as_list(in, &a[1], &axes));
  *out = dc_val_list(in, list.n);
  out->n = 0;
  for (uint32_t k = 0; k < list.n; k++)
    if (!in_ints(in, &axes, k)) out->items[out->n++] = list.items[k];
  return DC_OK;
}

/* weave(axes, at, rest): `at` at the positions in axes, the rest in between. */
static dc_status f_weave(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value axes, rest;
  (void)n;
  DC_TRY(as_list(in, &a[0], &axes));
  DC_TRY(as_list(in, &a[2], &rest));
  if (a[1].kind == VAL_LIST && a[1].n != axes.n)
    return dc_inst_fail(in, DC_ERR_MODEL, "expected %u values for the axes, got %u", axes.n, a[1].n);
  *out = dc_val_list(in, axes.n + rest.n);
  bool *set = DC_NEW_ARRAY(in->arena, bool, out->n);
  for (uint32_t k = 0; k < axes.n; k++) {
    uint32_t axis;
    DC_TRY(as_count(in, &axes.items[k], &axis));
    if (axis >= out->n || set[axis]) return dc_inst_fail(in, DC_ERR_SHAPE, "axis %u is out of range or given twice", axis);
    set[axis] = true;
    out->items[axis] = a[1].kind == VAL_LIST ? a[1].items[k] : a[1];
  }
  for (uint32_t k = 0, j = 0; k < out->n; k++)
    if (!set[k]) out->items[k] = rest.items[j++];
  return DC_OK;
}

static dc_status permutation(dc_inst *in, const dc_value *a, uint32_t **out, uint32_t *n) {
  if (a[0].kind != VAL_LIST || a[1].kind != VAL_LIST || a[0].n != a[1].n)
    return dc_inst_fail(in, DC_ERR_SHAPE, "expected a permutation of all dimensions");
  *n = a[0].n;
  *out = DC_NEW_ARRAY(in->arena, uint32_t, *n);
  bool *seen = DC_NEW_ARRAY(in->arena, bool, *n);
  for (uint32_t k = 0; k < *n; k++) {
    DC_TRY(as_count(in, &a[1].items[k], &(*out)[k]));
    if ((*out)[k] >= *n || seen[(*out)[k]]) return dc_inst_fail(in, DC_ERR_SHAPE, "expected a permutation of %u dimensions", *n);
    seen[(*out)[k]] = true;
  }
  return DC_OK;
}

static dc_status f_perm(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t *order, count;
  (void)n;
  DC_TRY(permutation(in, a, &order, &count));
  *out = dc_val_list(in, count);
  for (uint32_t k = 0; k < count; k++) out->items[k] = a[0].items[order[k]];
  return DC_OK;
}

static dc_status f_iperm(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t *order, count;
  (void)n;
  DC_TRY(permutation(in, a, &order, &count));
  *out = dc_val_list(in, count);
  for (uint32_t k = 0; k < count; k++) out->items[order[k]] = a[0].items[k];
  return DC_OK;
}

static dc_status f_rev(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  *out = dc_val_list(in, list.n);
  for (uint32_t k = 0; k < list.n; k++) out->items[k] = list.items[list.n - 1 - k];
  return DC_OK;
}

static dc_status f_iota(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t count;
  (void)n;
  DC_TRY(as_count(in, &a[0], &count));
  *out = dc_val_list(in, count);
  for (uint32_t k = 0; k < count; k++) out->items[k] = dc_val_int(in, k);
  return DC_OK;
}

static dc_status f_rep(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t count;
  (void)n;
  DC_TRY(as_count(in, &a[1], &count));
  *out = dc_val_list(in, count);
  for (uint32_t k = 0; k < count; k++) out->items[k] = a[0];
  return DC_OK;
}

/* psum(list, t): sum of the first t elements; all without t. */
static dc_status f_psum(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  uint32_t count;
  DC_TRY(as_list(in, &a[0], &list));
  count = list.n;
  if (n > 1) DC_TRY(as_count(in, &a[1], &count));
  *out = dc_val_int(in, 0);
  for (uint32_t k = 0; k < count && k < list.n; k++) DC_TRY(dc_val_binary(in, DC_ADD, *out, list.items[k], out));
  return DC_OK;
}

static dc_status f_total(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  return dc_val_product(in, &list, out);
}

/* positions(list): where a list of conditions is not known to be false. */
static dc_status f_positions(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  double known;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  *out = dc_val_list(in, list.n);
  out->n = 0;
  for (uint32_t k = 0; k < list.n; k++)
    if (!dc_val_is_number(in, &list.items[k], &known) || known != 0) out->items[out->n++] = dc_val_int(in, k);
  return DC_OK;
}

static dc_status extreme(dc_inst *in, dc_op prim, const dc_value *a, dc_value *out) {
  dc_value list;
  DC_TRY(as_list(in, &a[0], &list));
  if (!list.n) return dc_inst_fail(in, DC_ERR_MODEL, "expected a list that is not empty");
  *out = list.items[0];
  for (uint32_t k = 1; k < list.n; k++) DC_TRY(dc_val_binary(in, prim, *out, list.items[k], out));
  return DC_OK;
}

static dc_status f_least(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) { return (void)n, extreme(in, DC_MIN, a, out); }
static dc_status f_greatest(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) { return (void)n, extreme(in, DC_MAX, a, out); }

/* ---- indices ---- */

static dc_status f_lin(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value index, dims;
  (void)n;
  DC_TRY(as_list(in, &a[0], &index));
  DC_TRY(as_list(in, &a[1], &dims));
  if (index.n != dims.n) return dc_inst_fail(in, DC_ERR_VALUE, "lin() of lists of different lengths");
  *out = dc_val_int(in, 0);
  for (uint32_t k = 0; k < dims.n; k++) {
    DC_TRY(dc_val_binary(in, DC_MUL, *out, dims.items[k], out));
    DC_TRY(dc_val_binary(in, DC_ADD, *out, index.items[k], out));
  }
  return DC_OK;
}

static dc_status f_unlin(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value dims, flat = a[0];
  (void)n;
  DC_TRY(as_list(in, &a[1], &dims));
  *out = dc_val_list(in, dims.n);
  for (uint32_t k = dims.n; k-- > 0;) {
    out->items[k] = flat;
    if (k) DC_TRY(dc_val_binary(in, DC_MOD, flat, dims.items[k], &out->items[k]));
    DC_TRY(dc_val_binary(in, DC_FLOORDIV, flat, dims.items[k], &flat));
  }
  return DC_OK;
}

/* factors(n): numbers of at most 16, or primes, whose product is n; none where n is a symbol. */
static dc_status f_factors(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  enum { MOST = 64, LARGEST = 16, TRIED = 1 << 16 };
  int64_t primes[MOST], groups[MOST], left;
  uint32_t n_primes = 0, n_groups = 0;
  (void)n;
  if (!dc_val_is_int(in, &a[0], &left)) left = 1;
  for (int64_t p = 2; left > 1; p++) {
    if (p * p > left || p > TRIED) p = left;
    for (; left % p == 0; left /= p) primes[n_primes++] = p;
  }
  for (uint32_t k = n_primes; k-- > 0;) { /* the greatest first, each into the first group that has room */
    uint32_t at = 0;
    while (at < n_groups && groups[at] > LARGEST / primes[k]) at++;
    if (at == n_groups) groups[n_groups++] = 1;
    groups[at] *= primes[k];
  }
  *out = dc_val_list(in, n_groups);
  for (uint32_t k = 0; k < n_groups; k++) out->items[k] = dc_val_int(in, groups[k]);
  return DC_OK;
}

static dc_status f_within(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value index, dims;
  dc_pool *pool = &in->graph->pool;
  (void)n;
  DC_TRY(as_list(in, &a[0], &index));
  DC_TRY(as_list(in, &a[1], &dims));
  if (index.n != dims.n) return dc_inst_fail(in, DC_ERR_VALUE, "within() of lists of different lengths");
  dc_ex all = dc_ex_bool(pool, true), i, d;
  for (uint32_t k = 0; k < dims.n; k++) {
    DC_TRY(dc_val_to_index(in, &index.items[k], &i));
    DC_TRY(dc_val_to_index(in, &dims.items[k], &d));
    all = dc_ex_and(pool, all, dc_ex_in_range(pool, i, d));
  }
  return *out = dc_val_ex(all), DC_OK;
}

static dc_status f_alltrue(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  *out = dc_val_bool(in, true);
  for (uint32_t k = 0; k < list.n; k++) DC_TRY(dc_val_binary(in, DC_AND, *out, list.items[k], out));
  return DC_OK;
}

static dc_status f_mul(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) { return f_total(in, a, n, out); }

/* poly(list, x): the polynomial with these coefficients, the constant one first, by Horner's rule. */
static dc_status f_poly(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  if (list.n == 0) return dc_inst_fail(in, DC_ERR_MODEL, "expected a list that is not empty");
  *out = list.items[list.n - 1];
  for (uint32_t k = list.n - 1; k-- > 0;) {
    DC_TRY(dc_val_binary(in, DC_MUL, *out, a[1], out));
    DC_TRY(dc_val_binary(in, DC_ADD, list.items[k], *out, out));
  }
  return DC_OK;
}

/* choose(list, k): the k-th of a short list by a run-time number. */
static dc_status f_choose(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  if (a[0].kind != VAL_LIST || a[0].n == 0) return dc_inst_fail(in, DC_ERR_MODEL, "expected a list that is not empty");
  *out = a[0].items[a[0].n - 1];
  for (uint32_t k = a[0].n - 1; k-- > 0;) {
    dc_value test, item = a[0].items[k];
    dc_ex condition;
    DC_TRY(dc_val_binary(in, DC_EQ, a[1], dc_val_int(in, k), &test));
    DC_TRY(dc_val_to_bool(in, &test, &condition));
    DC_TRY(dc_val_unify(in, &item, out));
    if (item.kind == VAL_NUM) {
      DC_TRY(dc_val_to_ex(in, &item, in->float_type, &item.ex));
      DC_TRY(dc_val_to_ex(in, out, in->float_type, &out->ex));
    }
    *out = dc_val_ex(dc_ex_select(&in->graph->pool, condition, item.ex, out->ex));
  }
  return DC_OK;
}

/* ---- shapes ---- */

static dc_status normal_axis(dc_inst *in, const dc_value *v, int64_t rank, dc_value *out) {
  int64_t axis;
  DC_TRY(as_int(in, v, &axis));
  if (axis < -rank || (axis >= rank && !(rank == 0 && axis == 0)))
    return dc_inst_fail(in, DC_ERR_SHAPE, "axis %lld is out of range for %lld dimensions", (long long)axis, (long long)rank);
  return *out = dc_val_int(in, axis < 0 ? axis + rank : axis), DC_OK;
}

static dc_status f_nax(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  int64_t rank;
  (void)n;
  DC_TRY(as_int(in, &a[1], &rank));
  if (a[0].kind != VAL_LIST) return normal_axis(in, &a[0], rank, out);
  *out = dc_val_list(in, a[0].n);
  for (uint32_t k = 0; k < a[0].n; k++) DC_TRY(normal_axis(in, &a[0].items[k], rank, &out->items[k]));
  return DC_OK;
}

/* redax(axes, noop, rank): the axes of a reduction; none means all, unless noop. */
static dc_status f_redax(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  int64_t noop;
  (void)n;
  DC_TRY(as_int(in, &a[1], &noop));
  bool none = a[0].kind == VAL_NONE || (a[0].kind == VAL_LIST && a[0].n == 0);
  if (none && noop) return *out = dc_val_list(in, 0), DC_OK;
  if (none) return f_iota(in, &a[2], 1, out);
  dc_value args[2] = {a[0], a[2]};
  DC_TRY(as_list(in, &a[0], &args[0]));
  return f_nax(in, args, 2, out);
}

static dc_status broadcast_dim(dc_inst *in, dc_ex x, dc_ex y, dc_ex *out) {
  int64_t i, j;
  bool known_x = dc_ex_is_int(&in->graph->pool, x, &i), known_y = dc_ex_is_int(&in->graph->pool, y, &j);
  if (x == y || (known_y && j == 1)) return *out = x, DC_OK;
  if (known_x && i == 1) return *out = y, DC_OK;
  if (known_x && known_y) return dc_inst_fail(in, DC_ERR_SHAPE, "cannot broadcast extents %lld and %lld", (long long)i, (long long)j);
  dc_graph_take_broadcast(in->graph, x, y);
  return *out = known_x ? x : y, DC_OK;
}

/* ---- checks: an extent that is not known yet is believed, or noted for the time when it is ---- */

static dc_status check_extents(dc_inst *in, const dc_value *a, dc_value *out, dc_status (*check)(dc_inst *in, dc_ex x, dc_ex y)) {
  dc_value x, y;
  dc_ex e, f;
  DC_TRY(as_list(in, &a[0], &x));
  DC_TRY(as_list(in, &a[1], &y));
  if (x.n != y.n) return dc_inst_fail(in, DC_ERR_SHAPE, "expected %u dimensions, got %u", y.n, x.n);
  for (uint32_t k = 0; k < x.n; k++) {
    DC_TRY(dc_val_to_index(in, &x.items[k], &e));
    DC_TRY(dc_val_to_index(in, &y.items[k], &f));
    DC_TRY(check(in, e, f));
  }
  return *out = a[0], DC_OK;
}

static dc_status equal_extents(dc_inst *in, dc_ex x, dc_ex y) {
  int64_t i, j;
  if (x == y) return DC_OK;
  if (!dc_ex_is_int(&in->graph->pool, x, &i) || !dc_ex_is_int(&in->graph->pool, y, &j)) return dc_graph_take_equal(in->graph, x, y), DC_OK;
  return i == j ? DC_OK : dc_inst_fail(in, DC_ERR_SHAPE, "expected an extent of %lld, got %lld", (long long)j, (long long)i);
}

static dc_status ordered_extents(dc_inst *in, dc_ex x, dc_ex y) {
  int64_t i, j;
  dc_pool *pool = &in->graph->pool;
  if (!dc_ex_is_int(pool, x, &i) || !dc_ex_is_int(pool, y, &j)) return equal_extents(in, dc_ex_prim2(pool, DC_MAX, x, y), y);
  return i <= j ? DC_OK : dc_inst_fail(in, DC_ERR_SHAPE, "expected an extent of at most %lld, got %lld", (long long)j, (long long)i);
}

/* same(a, b), at_most(a, b): the extents a, which must be b or not exceed them. */
static dc_status f_same(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  return (void)n, check_extents(in, a, out, equal_extents);
}
static dc_status f_at_most(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  return (void)n, check_extents(in, a, out, ordered_extents);
}

static dc_status f_bcast(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  if (n == 1 && a[0].kind == VAL_LIST && a[0].n && a[0].items[0].kind == VAL_LIST) n = a[0].n, a = a[0].items;
  uint32_t rank = 0;
  for (uint32_t k = 0; k < n; k++) {
    if (a[k].kind != VAL_LIST) return dc_inst_fail(in, DC_ERR_MODEL, "expected shapes to broadcast");
    if (a[k].n > rank) rank = a[k].n;
  }
  *out = dc_val_list(in, rank);
  for (uint32_t d = 0; d < rank; d++) {
    dc_ex all = dc_ex_int(&in->graph->pool, 1), one;
    for (uint32_t k = 0; k < n; k++) {
      if (d + a[k].n < rank) continue;
      DC_TRY(dc_val_to_index(in, &a[k].items[d + a[k].n - rank], &one));
      DC_TRY(broadcast_dim(in, all, one, &all));
    }
    out->items[d] = dc_val_ex(all);
  }
  return DC_OK;
}

/* Takes from the list one extent that is the same expression; false if there is none. */
static bool cancel(dc_value *list, const dc_value *extent) {
  for (uint32_t k = 0; k < list->n; k++) {
    if (list->items[k].kind != VAL_EX || extent->kind != VAL_EX || list->items[k].ex != extent->ex) continue;
    list->items[k] = list->items[--list->n];
    return true;
  }
  return false;
}

/* What -1 stands for: N*64 // N is 64, also where N is 0. */
static dc_status fill_hole(dc_inst *in, const dc_value *shape, const dc_value *dims, int hole, dc_value *out) {
  dc_value left = dc_val_list(in, shape->n), known = dc_val_int(in, 1), total;
  memcpy(left.items, shape->items, shape->n * sizeof *shape->items);
  for (uint32_t k = 0; k < dims->n; k++)
    if ((int)k != hole && !cancel(&left, &dims->items[k])) DC_TRY(dc_val_binary(in, DC_MUL, known, dims->items[k], &known));
  DC_TRY(dc_val_product(in, &left, &total));
  return dc_val_binary(in, DC_FLOORDIV, total, known, out);
}

/* Notes that both shapes have as many elements, unless that is so for all extents. */
static dc_status same_size(dc_inst *in, const dc_value *shape, const dc_value *dims) {
  dc_value left = dc_val_list(in, shape->n), more = dc_val_list(in, dims->n), total, known;
  memcpy(left.items, shape->items, shape->n * sizeof *shape->items);
  more.n = 0;
  for (uint32_t k = 0; k < dims->n; k++)
    if (!cancel(&left, &dims->items[k])) more.items[more.n++] = dims->items[k];
  DC_TRY(dc_val_product(in, &left, &total));
  DC_TRY(dc_val_product(in, &more, &known));
  return check_extents(in, (dc_value[]){total, known}, &total, equal_extents);
}

/* reshape(target, shape, allowzero) */
static dc_status f_reshape(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value target, shape, total, known;
  int64_t allow_zero, extent;
  int hole = -1;
  (void)n;
  DC_TRY(as_list(in, &a[0], &target));
  DC_TRY(as_list(in, &a[1], &shape));
  DC_TRY(as_int(in, &a[2], &allow_zero));
  *out = dc_val_list(in, target.n);
  known = dc_val_int(in, 1);
  for (uint32_t k = 0; k < target.n; k++) {
    out->items[k] = target.items[k];
    bool number = dc_val_is_int(in, &target.items[k], &extent);
    if (number && extent == 0 && !allow_zero) {
      if (k >= shape.n) return dc_inst_fail(in, DC_ERR_SHAPE, "0 at position %u copies a dimension that the input lacks", k);
      out->items[k] = shape.items[k];
    } else if (number && extent == -1) {
      if (hole >= 0) return dc_inst_fail(in, DC_ERR_SHAPE, "-1 is given twice");
      hole = (int)k;
      continue;
    } else if (number && extent < 0) {
      return dc_inst_fail(in, DC_ERR_SHAPE, "expected an extent, got %lld", (long long)extent);
    }
    DC_TRY(dc_val_binary(in, DC_MUL, known, out->items[k], &known));
  }
  DC_TRY(dc_val_product(in, &shape, &total));
  int64_t size, want;
  bool sizes_known = dc_val_is_int(in, &total, &size) && dc_val_is_int(in, &known, &want);
  if (hole >= 0) {
    if (sizes_known && (want ? size % want != 0 : size != 0))
      return dc_inst_fail(in, DC_ERR_SHAPE, "%lld elements do not divide by %lld", (long long)size, (long long)want);
    DC_TRY(fill_hole(in, &shape, out, hole, &out->items[hole]));
  } else if (sizes_known && size != want) {
    return dc_inst_fail(in, DC_ERR_SHAPE, "%lld elements do not fit a shape of %lld", (long long)size, (long long)want);
  }
  return sizes_known ? DC_OK : same_size(in, &shape, out);
}

/* An extent that is not known stays: the graph notes that it is no 1, so that a call where it is one has a plan of its own. */
static dc_status keep_unknown(dc_inst *in, const dc_value *extent) {
  dc_pool *pool = &in->graph->pool;
  dc_ex e, two = dc_ex_int(pool, 2);
  DC_TRY(dc_val_to_index(in, extent, &e));
  return dc_graph_take_equal(in->graph, dc_ix_min(pool, e, two), two), DC_OK;
}

static dc_status f_sqz(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_value list;
  int64_t extent;
  (void)n;
  DC_TRY(as_list(in, &a[0], &list));
  *out = dc_val_list(in, list.n);
  out->n = 0;
  for (uint32_t k = 0; k < list.n; k++) {
    bool known = dc_val_is_int(in, &list.items[k], &extent);
    if (!known) DC_TRY(keep_unknown(in, &list.items[k]));
    if (!known || extent != 1) out->items[out->n++] = list.items[k];
  }
  return DC_OK;
}

/* splits(N, k): k parts, all ceil(N/k) but the last. */
static dc_status f_splits(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  uint32_t count;
  dc_ex extent;
  dc_pool *pool = &in->graph->pool;
  (void)n;
  DC_TRY(dc_val_to_index(in, &a[0], &extent));
  DC_TRY(as_count(in, &a[1], &count));
  if (!count) return dc_inst_fail(in, DC_ERR_MODEL, "expected at least one output");
  dc_ex k = dc_ex_int(pool, count), one = dc_ex_int(pool, 1);
  dc_ex chunk = dc_ix_div(pool, dc_ix_sub(pool, dc_ix_add(pool, extent, k), one), k);
  *out = dc_val_list(in, count);
  for (uint32_t i = 0; i < count; i++) {
    dc_ex left = dc_ix_sub(pool, extent, dc_ix_mul(pool, chunk, dc_ex_int(pool, i)));
    out->items[i] = dc_val_ex(i + 1 < count ? dc_ix_min(pool, chunk, dc_ix_max(pool, left, dc_ex_int(pool, 0)))
                                            : dc_ix_max(pool, left, dc_ex_int(pool, 0)));
  }
  return DC_OK;
}

/* slice_b(bounds, dims, steps): bounds clamped as in Python; starts and ends alike. */
static dc_status f_slice_b(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_pool *pool = &in->graph->pool;
  (void)n;
  if (a[0].kind != VAL_LIST || a[1].kind != VAL_LIST || a[2].kind != VAL_LIST || a[0].n != a[1].n || a[0].n != a[2].n)
    return dc_inst_fail(in, DC_ERR_SHAPE, "expected starts, ends, axes and steps of one length");
  *out = dc_val_list(in, a[0].n);
  for (uint32_t k = 0; k < a[0].n; k++) {
    int64_t step, known;
    dc_ex bound, extent;
    DC_TRY(as_int(in, &a[2].items[k], &step));
    DC_TRY(dc_val_to_index(in, &a[0].items[k], &bound));
    DC_TRY(dc_val_to_index(in, &a[1].items[k], &extent));
    if (step == 0) return dc_inst_fail(in, DC_ERR_MODEL, "expected a step other than 0");
    dc_ex zero = dc_ex_int(pool, 0), one = dc_ex_int(pool, 1);
    dc_ex low = step > 0 ? zero : dc_ex_int(pool, -1), high = step > 0 ? extent : dc_ix_sub(pool, extent, one);
    bool number = dc_ex_is_int(pool, bound, &known);
    if (number && known > INT32_MAX) bound = high; /* "to the end", without a symbolic minimum */
    else if (number && known < -INT32_MAX) bound = low;
    else if (number ? known < 0 : false) bound = dc_ix_max(pool, low, dc_ix_add(pool, bound, extent));
    else if (number || dc_ix_proves_ge(pool, bound, 0)) bound = dc_ix_min(pool, bound, high);
    else {
      dc_ex negative = dc_ex_prim2(pool, DC_LT, bound, zero);
      bound = dc_ex_select(pool, negative, dc_ix_add(pool, bound, extent), bound);
      bound = dc_ix_max(pool, low, dc_ix_min(pool, bound, high));
    }
    out->items[k] = dc_val_ex(bound);
  }
  return DC_OK;
}

/* ---- conversions ---- */

static dc_status f_int(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  if (a[0].kind == VAL_LIST) {
    *out = dc_val_list(in, a[0].n);
    for (uint32_t k = 0; k < a[0].n; k++) DC_TRY(f_int(in, &a[0].items[k], 1, &out->items[k]));
    return DC_OK;
  }
  if (a[0].kind == VAL_NUM) return *out = dc_val_int(in, (int64_t)fmax(fmin(a[0].num, 0x1p62), -0x1p62)), DC_OK;
  dc_ex e;
  DC_TRY(dc_val_to_ex(in, &a[0], DC_I64, &e));
  return *out = dc_val_ex(e), DC_OK;
}

static dc_status f_real(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_ex e;
  (void)n;
  DC_TRY(dc_val_to_ex(in, &a[0], in->float_type, &e));
  return *out = dc_val_ex(e), DC_OK;
}

static dc_status as_type(dc_inst *in, const dc_value *v, dc_dtype *out) {
  int64_t type;
  DC_TRY(as_int(in, v, &type));
  if (type <= 0 || type >= DC_DTYPE_COUNT || !dc_dtype_bytes((dc_dtype)type))
    return dc_inst_fail(in, DC_ERR_DTYPE, "%lld is not a data type", (long long)type);
  return *out = (dc_dtype)type, DC_OK;
}

/* cast(x, dtype number): rounded as that type stores it */
static dc_status f_cast(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_dtype type;
  dc_ex e;
  (void)n;
  DC_TRY(as_type(in, &a[1], &type));
  DC_TRY(dc_val_to_ex(in, &a[0], type, &e));
  return *out = dc_val_ex(dc_ex_cast(&in->graph->pool, dc_dtype_compute(type), e)), DC_OK;
}

/* bits(x, from, to): the pattern of x, stored as `from`, read as `to` */
static dc_status f_bits(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_dtype from, to;
  dc_ex e;
  (void)n;
  DC_TRY(as_type(in, &a[1], &from));
  DC_TRY(as_type(in, &a[2], &to));
  if (dc_dtype_bytes(from) != dc_dtype_bytes(to))
    return dc_inst_fail(in, DC_ERR_DTYPE, "expected a type as wide as %s, got %s", dc_dtype_name(from), dc_dtype_name(to));
  DC_TRY(dc_val_to_ex(in, &a[0], from, &e));
  return *out = dc_val_ex(dc_ex_cast(&in->graph->pool, dc_dtype_compute(to), dc_ex_bits(&in->graph->pool, to, e))), DC_OK;
}

/* largest(dtype number): its largest finite value */
static dc_status f_largest(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  dc_dtype type;
  (void)n;
  DC_TRY(as_type(in, &a[0], &type));
  return *out = dc_val_num(dc_dtype_max(type)), DC_OK;
}

static dc_status f_unsupported(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)out;
  return dc_inst_fail(in, DC_ERR_UNSUPPORTED, "%s is not supported",
                      n && a[0].kind == VAL_STR ? a[0].str : "this combination of attributes");
}

static dc_status f_invalid(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n, (void)out;
  return dc_inst_fail(in, DC_ERR_VALUE, "%s", a[0].kind == VAL_STR ? a[0].str : "attributes that do not go together");
}

static dc_status f_einsum(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  if (a[0].kind != VAL_STR) return dc_inst_fail(in, DC_ERR_MODEL, "expected an equation");
  return dc_einsum(in, a[0].str, out);
}

static dc_status f_einidx(dc_inst *in, const dc_value *a, uint32_t n, dc_value *out) {
  (void)n;
  return dc_einsum_index(in, a, out);
}

static const struct {
  const char *name;
  uint8_t least, most;
  builtin_fn call;
} table[] = {
    {"len", 1, 1, f_len},
    {"known", 1, 1, f_known},
    {"cat", 0, 16, f_cat},
    {"sub", 2, 3, f_sub},
    {"at", 2, 2, f_at},
    {"pick", 2, 2, f_pick},
    {"drop", 2, 2, f_drop},
    {"weave", 3, 3, f_weave},
    {"perm", 2, 2, f_perm},
    {"iperm", 2, 2, f_iperm},
    {"rev", 1, 1, f_rev},
    {"iota", 1, 1, f_iota},
    {"rep", 2, 2, f_rep},
    {"psum", 1, 2, f_psum},
    {"total", 1, 1, f_total},
    {"lin", 2, 2, f_lin},
    {"unlin", 2, 2, f_unlin},
    {"factors", 1, 1, f_factors},
    {"within", 2, 2, f_within},
    {"alltrue", 1, 1, f_alltrue},
    {"mul", 1, 1, f_mul},
    {"choose", 2, 2, f_choose},
    {"poly", 2, 2, f_poly},
    {"nax", 2, 2, f_nax},
    {"redax", 3, 3, f_redax},
    {"bcast", 1, 16, f_bcast},
    {"reshape", 3, 3, f_reshape},
    {"sqz", 1, 1, f_sqz},
    {"splits", 2, 2, f_splits},
    {"slice_b", 3, 3, f_slice_b},
    {"int", 1, 1, f_int},
    {"real", 1, 1, f_real},
    {"cast", 2, 2, f_cast},
    {"unsupported", 0, 1, f_unsupported},
    {"invalid", 1, 1, f_invalid},
    {"einsum", 1, 1, f_einsum},
    {"einidx", 4, 4, f_einidx},
    {"positions", 1, 1, f_positions},
    {"least", 1, 1, f_least},
    {"greatest", 1, 1, f_greatest},
    {"bits", 3, 3, f_bits},
    {"largest", 1, 1, f_largest},
    {"same", 2, 2, f_same},
    {"at_most", 2, 2, f_at_most},
    {"match", 4, 4, dc_list_match},
    {"firsts", 1, 1, dc_list_firsts},
    {"grouped", 2, 2, dc_list_grouped},
    {"longest", 3, 3, dc_list_longest},
};

dc_status dc_builtin_call(dc_inst *in, const char *name, const dc_value *args, uint32_t n, dc_value *out, bool *found) {
  *found = false;
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    if (strcmp(table[k].name, name)) continue;
    *found = true;
    if (n < table[k].least || n > table[k].most) return dc_inst_fail(in, DC_ERR_VALUE, "'%s' got %u arguments", name, n);
    return table[k].call(in, args, n, out);
  }
  return DC_OK;
}
