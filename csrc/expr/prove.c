/* Proofs about index expressions: interval arithmetic over parameters' ranges.
 *
 * A lower bound of  c0 + sum ci * ti  replaces each parameter by its first or last value,
 * whichever is smaller in that term; what is left is a polynomial over symbols, bounded by
 * the symbols' minima, which are 0 unless the graph says more; nothing bounds a symbol from above or relates two of
 * them.  Ranges are taken to have an iteration.  Everything is conservative: "no" means "not proven". */
#include "expr/expr.h"

enum { MAX_DEPTH = 8 };

typedef struct {
  bool low_known, high_known;
  int64_t low, high;
} interval;

static const interval unknown = {0};

static interval exactly(int64_t v) { return (interval){true, true, v, v}; }

static interval scale(interval a, int64_t c) {
  interval out = unknown;
  bool flip = c < 0;
  out.low_known = (flip ? a.high_known : a.low_known) && !__builtin_mul_overflow(flip ? a.high : a.low, c, &out.low);
  out.high_known = (flip ? a.low_known : a.high_known) && !__builtin_mul_overflow(flip ? a.low : a.high, c, &out.high);
  return out;
}

static interval plus(interval a, interval b) {
  interval out = unknown;
  out.low_known = a.low_known && b.low_known && !__builtin_add_overflow(a.low, b.low, &out.low);
  out.high_known = a.high_known && b.high_known && !__builtin_add_overflow(a.high, b.high, &out.high);
  return out;
}

/* Products are bounded only where both sides are known not to be negative. */
static interval times(interval a, interval b) {
  interval out = unknown;
  if (!a.low_known || !b.low_known || a.low < 0 || b.low < 0) return out;
  out.low_known = !__builtin_mul_overflow(a.low, b.low, &out.low);
  out.high_known = a.high_known && b.high_known && !__builtin_mul_overflow(a.high, b.high, &out.high);
  return out;
}

static interval bounds(dc_pool *pool, dc_ex e, int depth);

static interval param_bounds(dc_pool *pool, dc_param p, int depth) {
  dc_parameter range = pool->params.v[p];
  interval begin = bounds(pool, range.begin, depth), end = bounds(pool, range.end, depth);
  return (interval){begin.low_known, end.high_known && end.high != INT64_MIN, begin.low, end.high - (end.high != INT64_MIN)};
}

static interval division_bounds(interval a, interval b) {
  if (!b.low_known || b.low < 1) return unknown;
  interval out = unknown;
  if (a.low_known) {
    out.low_known = a.low >= 0 || b.high_known;
    out.low = a.low >= 0 ? (b.high_known ? a.low / b.high : 0) : -((-(a.low + 1)) / b.low) - 1;
  }
  if (a.high_known && a.high >= 0) out.high_known = true, out.high = a.high / b.low;
  return out;
}

/* Of a narrower whole number, or a truth value, that became an index. */
static interval type_bounds(const dc_pool *pool, dc_ex cast) {
  const dc_dtype from = dc_ex_dtype(pool, dc_ex_arg(pool, cast, 0));
  const bool narrow = dc_dtype_bytes(from) < 8 && (from == DC_BOOL || dc_dtype_is_integer(from));
  if (!narrow || dc_ex_dtype(pool, cast) != DC_I64) return unknown;
  return (interval){true, true, (int64_t)dc_dtype_min(from), (int64_t)dc_dtype_max(from)};
}

static interval pair_bounds(dc_op op, interval a, interval b) {
  interval out = unknown;
  if (op == DC_EX_IDIV) return division_bounds(a, b);
  if (op == DC_EX_IMOD) {
    if (!b.low_known || b.low < 1) return out;
    return (interval){true, b.high_known, 0, b.high - b.high_known};
  }
  bool least = op == DC_EX_IMIN;
  if (!least && op != DC_EX_IMAX) return out;
  if (least) {
    out.low_known = a.low_known && b.low_known, out.low = a.low < b.low ? a.low : b.low;
    out.high_known = a.high_known || b.high_known;
    out.high = !a.high_known || (b.high_known && b.high < a.high) ? b.high : a.high;
  } else {
    out.high_known = a.high_known && b.high_known, out.high = a.high > b.high ? a.high : b.high;
    out.low_known = a.low_known || b.low_known;
    out.low = !a.low_known || (b.low_known && b.low > a.low) ? b.low : a.low;
  }
  return out;
}

static interval bounds(dc_pool *pool, dc_ex e, int depth) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_INT) return exactly(node->i);
  if (node->op == DC_EX_SYM) return (interval){true, false, pool->symbols.v[node->ref].min, 0};
  if (depth >= MAX_DEPTH) return unknown;
  interval out, a, b;
  switch (node->op) {
    case DC_EX_PARAM: return param_bounds(pool, node->ref, depth + 1);
    case DC_EX_CAST: return type_bounds(pool, e);
    case DC_EX_LINEAR:
      out = exactly(node->i);
      for (uint32_t k = 0; k < node->nargs; k += 2)
        out = plus(out, scale(bounds(pool, dc_ex_arg(pool, e, k), depth + 1), dc_ex_node(pool, dc_ex_arg(pool, e, k + 1))->i));
      return out;
    case DC_EX_PRODUCT:
      out = exactly(1);
      for (uint32_t k = 0; k < node->nargs; k++) out = times(out, bounds(pool, dc_ex_arg(pool, e, k), depth + 1));
      return out;
    case DC_EX_IDIV: case DC_EX_IMOD: case DC_EX_IMIN: case DC_EX_IMAX:
      a = bounds(pool, dc_ex_arg(pool, e, 0), depth + 1), b = bounds(pool, dc_ex_arg(pool, e, 1), depth + 1);
      return pair_bounds((dc_op)node->op, a, b);
    case DC_EX_SELECT:
      a = bounds(pool, dc_ex_arg(pool, e, 1), depth + 1), b = bounds(pool, dc_ex_arg(pool, e, 2), depth + 1);
      return (interval){a.low_known && b.low_known, a.high_known && b.high_known, a.low < b.low ? a.low : b.low,
                        a.high > b.high ? a.high : b.high};
    default: return unknown;
  }
}

bool dc_ix_bounds(dc_pool *pool, dc_ex a, int64_t *lo, int64_t *hi) {
  interval i = bounds(pool, a, 0);
  *lo = i.low, *hi = i.high;
  return i.low_known && i.high_known;
}

/* Replaces the newest parameter that e is linear in by the end of its range that makes e
 * smaller; 0 when none can be replaced. */
static dc_ex lower_once(dc_pool *pool, dc_ex e) {
  const dc_exnode *node = dc_ex_node(pool, e);
  dc_param newest = 0;
  if (node->op == DC_EX_PARAM) newest = node->ref;
  if (node->op == DC_EX_LINEAR)
    for (uint32_t k = 0; k < node->nargs; k += 2) {
      dc_ex term = dc_ex_arg(pool, e, k);
      bool product = dc_ex_node(pool, term)->op == DC_EX_PRODUCT;
      for (uint32_t j = 0; j < (product ? dc_ex_node(pool, term)->nargs : 1u); j++) {
        const dc_exnode *factor = dc_ex_node(pool, product ? dc_ex_arg(pool, term, j) : term);
        if (factor->op == DC_EX_PARAM && factor->ref > newest) newest = factor->ref;
      }
    }
  dc_ex coefficient, rest;
  if (!newest || !dc_ix_split(pool, e, newest, &coefficient, &rest)) return 0;
  dc_parameter range = pool->params.v[newest];
  interval sign = bounds(pool, coefficient, 0);
  if (sign.low_known && sign.low >= 0) return dc_ix_add(pool, rest, dc_ix_mul(pool, coefficient, range.begin));
  if (!sign.high_known || sign.high > 0) return 0;
  dc_ex last = dc_ix_sub(pool, range.end, dc_ex_int(pool, 1));
  return dc_ix_add(pool, rest, dc_ix_mul(pool, coefficient, last));
}

bool dc_ix_proves_ge(dc_pool *pool, dc_ex a, int64_t bound) {
  for (int step = 0; a && step < 16; step++) {
    interval i = bounds(pool, a, 0);
    if (i.low_known && i.low >= bound) return true;
    a = lower_once(pool, a);
  }
  return false;
}

bool dc_ix_separates(dc_pool *pool, const dc_ex *index, uint32_t rank, dc_param p) {
  for (uint32_t d = 0; d < rank; d++) {
    dc_ex factor, rest;
    int64_t constant;
    bool linear = dc_ex_uses_param(pool, index[d], p) && dc_ix_split(pool, index[d], p, &factor, &rest);
    if (linear && dc_ex_is_int(pool, factor, &constant) && constant && dc_ex_is_int(pool, rest, &constant)) return true;
  }
  return false;
}

bool dc_ix_apart(dc_pool *pool, const dc_ex *index, uint32_t rank, const dc_param *loops, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) {
    bool found = false;
    for (uint32_t d = 0; d < rank && !found; d++) {
      dc_ex coefficient, rest;
      int64_t step;
      found = dc_ix_split(pool, index[d], loops[k], &coefficient, &rest) && dc_ex_is_int(pool, coefficient, &step) && step != 0;
      found = found && !dc_ex_uses_op(pool, rest, DC_EX_READ);
      for (uint32_t j = 0; j < n && found; j++) found = j == k || !dc_ex_uses_param(pool, rest, loops[j]);
    }
    if (!found) return false;
  }
  return true;
}
