/* Where the values of a scalar expression lie, from what its functions may give: tanh is in [-1, 1], abs is not negative.
 *
 * What rounds may leave the bounds of the exact result by as much as its type rounds.  NaN is in no range and always possible.
 * Everything is conservative. */
#include <math.h>

#include "expr/expr.h"

enum { MAX_DEPTH = 6 };

static const dc_range anything = {-INFINITY, INFINITY};

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

/* Of results of the type, whose exact values are in r; what is too large for it is infinite there. */
static dc_range rounded(dc_dtype type, dc_range r) {
  const double max = dc_dtype_max(type), step = dc_dtype_bytes(type) >= 8 ? 0x1p-52 : dc_dtype_bytes(type) == 4 ? 0x1p-23 : 0x1p-2;
  r.lo -= fabs(r.lo) * step, r.hi += fabs(r.hi) * step;
  return (dc_range){r.lo < -max ? -INFINITY : r.lo > max ? max : r.lo, r.hi > max ? INFINITY : r.hi < -max ? -max : r.hi};
}

static dc_range product(dc_range a, dc_range b, bool square) {
  const double p[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  dc_range out = {p[0], p[0]};
  for (int k = 0; k < 4; k++) {
    if (isnan(p[k])) return square ? (dc_range){0, INFINITY} : anything; /* 0 times an infinity */
    out = (dc_range){least(out.lo, p[k]), most(out.hi, p[k])};
  }
  return square ? (dc_range){most(out.lo, 0), out.hi} : out;
}

static dc_range sum(dc_range a, dc_range b) {
  const dc_range out = {a.lo + b.lo, a.hi + b.hi};
  return isnan(out.lo) || isnan(out.hi) ? anything : out;
}

static dc_range of(const dc_pool *pool, dc_ex x, int depth);

static dc_range of_real(const dc_pool *pool, dc_ex x, int depth) {
  const dc_exnode node = *dc_ex_node(pool, x);
  const dc_ex left = dc_ex_arg(pool, x, 0), right = node.nargs > 1 ? dc_ex_arg(pool, x, 1) : 0;
  const dc_range a = of(pool, left, depth), b = right ? of(pool, right, depth) : anything;
  const dc_dtype type = (dc_dtype)node.dtype;
  switch (node.op) {
    case DC_TANH: case DC_ERF: case DC_SIN: case DC_COS: case DC_SIGN: return (dc_range){-1, 1};
    case DC_SIGMOID: case DC_RAND: return (dc_range){0, 1};
    case DC_EXP: case DC_EXP2: case DC_SOFTPLUS: case DC_SQRT: case DC_COSH: return (dc_range){0, INFINITY};
    case DC_ABS: return (dc_range){most(most(a.lo, -a.hi), 0), most(-a.lo, a.hi)};
    case DC_NEG: return (dc_range){-a.hi, -a.lo};
    case DC_ADD: return rounded(type, sum(a, b));
    case DC_SUB: return rounded(type, sum(a, (dc_range){-b.hi, -b.lo}));
    case DC_MUL: return rounded(type, product(a, b, left == right));
    case DC_MIN: return (dc_range){least(a.lo, b.lo), least(a.hi, b.hi)};
    case DC_MAX: return (dc_range){most(a.lo, b.lo), most(a.hi, b.hi)};
    case DC_EX_CAST: return rounded(type, a);
    case DC_STOP: return a;
    default: return anything;
  }
}

static dc_range of(const dc_pool *pool, dc_ex x, int depth) {
  const dc_exnode node = *dc_ex_node(pool, x);
  const dc_dtype type = (dc_dtype)node.dtype;
  double value;
  if (dc_ex_is_const(pool, x, &value)) return isnan(value) ? anything : (dc_range){value, value};
  if (dc_dtype_is_integer(type) || type == DC_BOOL) return (dc_range){dc_dtype_min(type), dc_dtype_max(type)}; /* arithmetic wraps */
  const bool computed = node.op < DC_PRIM_COUNT || node.op == DC_EX_SELECT || node.op == DC_EX_CAST;
  if (!dc_dtype_is_float(type) || !computed || depth == MAX_DEPTH) return anything;
  if (node.op != DC_EX_SELECT) return of_real(pool, x, depth + 1);
  const dc_range yes = of(pool, dc_ex_arg(pool, x, 1), depth + 1), no = of(pool, dc_ex_arg(pool, x, 2), depth + 1);
  return (dc_range){least(yes.lo, no.lo), most(yes.hi, no.hi)};
}

dc_range dc_ex_range(const dc_pool *pool, dc_ex x) { return of(pool, x, 0); }
