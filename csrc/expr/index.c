/* Index arithmetic in polynomial normal form, and proofs over it.
 *
 * A LINEAR node is  c0 + sum ci * ti  with terms sorted by id, coefficients not zero; a term
 * is an atom (symbol, parameter, read, cast, //, %, min, max, select) or a PRODUCT of sorted
 * atoms.  A sum that is one term with coefficient 1 and no constant is the term itself. */
#include <assert.h>
#include <math.h>

#include "expr/expr.h"
#include "expr/pool.h"

enum { MAX_TERMS = 64, MAX_FACTORS = 16 };

typedef struct {
  int64_t constant;
  uint32_t n;
  struct {
    dc_ex term;
    int64_t coefficient;
  } term[MAX_TERMS];
} sum;

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap_mul(a, -1);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

static int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

/* Adds scale * e to the sum; false when it grows past MAX_TERMS. */
static bool sum_add_term(sum *s, dc_ex term, int64_t coefficient) {
  uint32_t k = 0;
  while (k < s->n && s->term[k].term < term) k++;
  if (k < s->n && s->term[k].term == term) {
    s->term[k].coefficient = wrap_add(s->term[k].coefficient, coefficient);
    if (s->term[k].coefficient) return true;
    for (s->n--; k < s->n; k++) s->term[k] = s->term[k + 1];
    return true;
  }
  if (!coefficient) return true;
  if (s->n == MAX_TERMS) return false;
  for (uint32_t j = s->n++; j > k; j--) s->term[j] = s->term[j - 1];
  s->term[k].term = term, s->term[k].coefficient = coefficient;
  return true;
}

static bool sum_add(const dc_pool *pool, sum *s, dc_ex e, int64_t scale) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_INT) return s->constant = wrap_add(s->constant, wrap_mul(scale, node->i)), true;
  if (node->op != DC_EX_LINEAR) return sum_add_term(s, e, scale);
  s->constant = wrap_add(s->constant, wrap_mul(scale, node->i));
  for (uint32_t k = 0; k < node->nargs; k += 2) {
    int64_t c = dc_ex_node(pool, dc_ex_arg(pool, e, k + 1))->i;
    if (!sum_add_term(s, dc_ex_arg(pool, e, k), wrap_mul(scale, c))) return false;
  }
  return true;
}

static dc_ex sum_build(dc_pool *pool, const sum *s) {
  if (s->n == 0) return dc_ex_int(pool, s->constant);
  if (s->n == 1 && s->constant == 0 && s->term[0].coefficient == 1) return s->term[0].term;
  dc_ex args[2 * MAX_TERMS];
  for (uint32_t k = 0; k < s->n; k++) {
    args[2 * k] = s->term[k].term;
    args[2 * k + 1] = dc_ex_int(pool, s->term[k].coefficient);
  }
  dc_exnode node = {.op = DC_EX_LINEAR, .dtype = DC_I64, .nargs = (uint16_t)(2 * s->n), .i = s->constant};
  return dc_pool_cons(pool, node, args);
}

static int64_t coefficient_of(const sum *s, dc_ex term) {
  for (uint32_t k = 0; k < s->n; k++)
    if (s->term[k].term == term) return s->term[k].coefficient;
  return 0;
}

/* c * (x % b) + c * b * (x // b)  is  c * x: what a reshape takes apart is put together by the address. */
static bool join_digits(dc_pool *pool, sum *s) {
  for (uint32_t k = 0; k < s->n; k++) {
    dc_ex low = s->term[k].term;
    int64_t c = s->term[k].coefficient;
    if (dc_ex_node(pool, low)->op != DC_EX_IMOD) continue;
    dc_ex x = dc_ex_arg(pool, low, 0), b = dc_ex_arg(pool, low, 1);
    sum high = {0};
    if (!sum_add(pool, &high, dc_ix_mul(pool, b, dc_ix_div(pool, x, b)), 1) || high.n != 1 || high.constant) continue;
    int64_t wanted = wrap_mul(c, high.term[0].coefficient);
    if (coefficient_of(s, high.term[0].term) != wanted) continue;
    bool fits = sum_add_term(s, high.term[0].term, wrap_mul(wanted, -1)) && sum_add_term(s, low, wrap_mul(c, -1));
    return fits && sum_add(pool, s, x, c);
  }
  return false;
}

/* Sums past MAX_TERMS stay correct as an opaque prim. */
static dc_ex combine(dc_pool *pool, dc_ex a, dc_ex b, int64_t sign) {
  sum s = {0};
  if (sum_add(pool, &s, a, 1) && sum_add(pool, &s, b, sign)) {
    while (join_digits(pool, &s)) continue;
    return sum_build(pool, &s);
  }
  dc_ex args[2] = {a, b};
  return dc_pool_op(pool, sign > 0 ? DC_ADD : DC_SUB, DC_I64, 2, args);
}

dc_ex dc_ix_add(dc_pool *pool, dc_ex a, dc_ex b) { return combine(pool, a, b, 1); }
dc_ex dc_ix_sub(dc_pool *pool, dc_ex a, dc_ex b) { return combine(pool, a, b, -1); }

/* The product of two terms (atoms or products), as one term; 0 when it has too many factors. */
static dc_ex multiply_terms(dc_pool *pool, dc_ex a, dc_ex b) {
  dc_ex factors[2 * MAX_FACTORS];
  uint32_t n = 0;
  dc_ex pair[2] = {a, b};
  for (int side = 0; side < 2; side++) {
    const dc_exnode *node = dc_ex_node(pool, pair[side]);
    bool product = node->op == DC_EX_PRODUCT;
    for (uint32_t k = 0; k < (product ? node->nargs : 1u); k++)
      factors[n++] = product ? dc_ex_arg(pool, pair[side], k) : pair[side];
  }
  if (n > MAX_FACTORS) return 0;
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t j = i; j > 0 && factors[j - 1] > factors[j]; j--) {
      dc_ex swap = factors[j];
      factors[j] = factors[j - 1], factors[j - 1] = swap;
    }
  return dc_pool_op(pool, DC_EX_PRODUCT, DC_I64, n, factors);
}

static bool expand_product(dc_pool *pool, const sum *a, const sum *b, sum *out) {
  out->constant = wrap_mul(a->constant, b->constant);
  for (uint32_t i = 0; i < a->n; i++)
    if (!sum_add_term(out, a->term[i].term, wrap_mul(a->term[i].coefficient, b->constant))) return false;
  for (uint32_t j = 0; j < b->n; j++)
    if (!sum_add_term(out, b->term[j].term, wrap_mul(b->term[j].coefficient, a->constant))) return false;
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++) {
      dc_ex term = multiply_terms(pool, a->term[i].term, b->term[j].term);
      if (!term || !sum_add_term(out, term, wrap_mul(a->term[i].coefficient, b->term[j].coefficient))) return false;
    }
  return true;
}

dc_ex dc_ix_mul(dc_pool *pool, dc_ex a, dc_ex b) {
  sum x = {0}, y = {0}, out = {0};
  if (sum_add(pool, &x, a, 1) && sum_add(pool, &y, b, 1) && expand_product(pool, &x, &y, &out)) return sum_build(pool, &out);
  dc_ex args[2] = {a, b};
  return dc_pool_op(pool, DC_MUL, DC_I64, 2, args);
}

/* Splits a = c * quotient + rest, where the rest's terms have coefficients not divisible by c
 * and its constant lies in [0, c). */
static bool split_by(dc_pool *pool, dc_ex a, int64_t c, sum *quotient, sum *rest) {
  sum all = {0};
  if (!sum_add(pool, &all, a, 1)) return false;
  *quotient = *rest = (sum){0};
  for (uint32_t k = 0; k < all.n; k++) {
    int64_t coefficient = all.term[k].coefficient;
    bool divides = floor_mod(coefficient, c) == 0;
    sum_add_term(divides ? quotient : rest, all.term[k].term, divides ? coefficient / c : coefficient);
  }
  quotient->constant = floor_div(all.constant, c);
  rest->constant = floor_mod(all.constant, c);
  return true;
}

/* Exact quotient when every term of a holds the factor b (a symbol or other atom). */
static bool divide_by_atom(dc_pool *pool, dc_ex a, dc_ex b, dc_ex *out) {
  sum all = {0}, quotient = {0};
  if (!dc_ix_proves_ge(pool, b, 1) || !sum_add(pool, &all, a, 1) || all.constant != 0) return false;
  for (uint32_t k = 0; k < all.n; k++) {
    dc_ex term = all.term[k].term, factors[MAX_FACTORS];
    const dc_exnode *node = dc_ex_node(pool, term);
    uint32_t n = 0, held = 0, count = node->op == DC_EX_PRODUCT ? node->nargs : 1;
    for (uint32_t j = 0; j < count; j++) {
      dc_ex factor = node->op == DC_EX_PRODUCT ? dc_ex_arg(pool, term, j) : term;
      if (factor == b && !held) held = 1;
      else factors[n++] = factor;
    }
    if (!held) return false;
    if (n == 0) quotient.constant = wrap_add(quotient.constant, all.term[k].coefficient);
    else if (!sum_add_term(&quotient, n == 1 ? factors[0] : dc_pool_op(pool, DC_EX_PRODUCT, DC_I64, n, factors), all.term[k].coefficient))
      return false;
  }
  return *out = sum_build(pool, &quotient), true;
}

static dc_ex negated(dc_pool *pool, dc_ex a) { return dc_ix_mul(pool, a, dc_ex_int(pool, -1)); }

/* A negative divisor is a positive one of the opposite: what a reversed index is divided by, such as -1, falls away. */
dc_ex dc_ix_div(dc_pool *pool, dc_ex a, dc_ex b) {
  int64_t x, c;
  if (dc_ex_is_int(pool, b, &c)) {
    if (c == 0) return dc_ex_int(pool, 0);
    if (c == 1) return a;
    if (dc_ex_is_int(pool, a, &x)) return dc_ex_int(pool, floor_div(x, c));
    if (c < 0 && c != INT64_MIN) return dc_ix_div(pool, negated(pool, a), dc_ex_int(pool, -c));
    sum quotient, rest;
    if (c > 1 && split_by(pool, a, c, &quotient, &rest)) {
      dc_ex remainder = sum_build(pool, &rest), whole = sum_build(pool, &quotient);
      if (dc_ix_proves_ge(pool, remainder, 0) && dc_ix_proves_ge(pool, dc_ix_sub(pool, dc_ex_int(pool, c - 1), remainder), 0))
        return whole;
      if (quotient.n || quotient.constant) {
        dc_ex args[2] = {remainder, b};
        return dc_ix_add(pool, whole, dc_pool_op(pool, DC_EX_IDIV, DC_I64, 2, args));
      }
    }
  } else {
    dc_ex exact;
    if (divide_by_atom(pool, a, b, &exact)) return exact;
    if (dc_ix_proves_ge(pool, a, 0) && dc_ix_proves_ge(pool, dc_ix_sub(pool, b, a), 1)) return dc_ex_int(pool, 0);
  }
  dc_ex args[2] = {a, b};
  return dc_pool_op(pool, DC_EX_IDIV, DC_I64, 2, args);
}

dc_ex dc_ix_mod(dc_pool *pool, dc_ex a, dc_ex b) {
  int64_t x, c;
  if (dc_ex_is_int(pool, b, &c)) {
    if (c == 0 || c == 1) return dc_ex_int(pool, 0);
    if (dc_ex_is_int(pool, a, &x)) return dc_ex_int(pool, floor_mod(x, c));
    if (c < 0 && c != INT64_MIN) return negated(pool, dc_ix_mod(pool, negated(pool, a), dc_ex_int(pool, -c)));
    sum quotient, rest;
    if (c > 1 && split_by(pool, a, c, &quotient, &rest)) {
      a = sum_build(pool, &rest);
      if (dc_ix_proves_ge(pool, a, 0) && dc_ix_proves_ge(pool, dc_ix_sub(pool, dc_ex_int(pool, c - 1), a), 0)) return a;
    }
  } else {
    dc_ex exact;
    if (divide_by_atom(pool, a, b, &exact)) return dc_ex_int(pool, 0);
    if (dc_ix_proves_ge(pool, a, 0) && dc_ix_proves_ge(pool, dc_ix_sub(pool, b, a), 1)) return a;
  }
  dc_ex args[2] = {a, b};
  return dc_pool_op(pool, DC_EX_IMOD, DC_I64, 2, args);
}

static dc_ex extreme(dc_pool *pool, dc_op op, dc_ex a, dc_ex b) {
  dc_ex difference = dc_ix_sub(pool, a, b);
  if (dc_ix_proves_ge(pool, difference, 0)) return op == DC_EX_IMAX ? a : b;
  if (dc_ix_proves_ge(pool, dc_ix_sub(pool, b, a), 0)) return op == DC_EX_IMAX ? b : a;
  dc_ex args[2] = {a < b ? a : b, a < b ? b : a};
  return dc_pool_op(pool, op, DC_I64, 2, args);
}

dc_ex dc_ix_min(dc_pool *pool, dc_ex a, dc_ex b) { return extreme(pool, DC_EX_IMIN, a, b); }
dc_ex dc_ix_max(dc_pool *pool, dc_ex a, dc_ex b) { return extreme(pool, DC_EX_IMAX, a, b); }

dc_ex dc_ix_extent(dc_pool *pool, dc_ex begin, dc_ex end, dc_ex step) {
  dc_ex length = dc_ix_sub(pool, dc_ix_add(pool, dc_ix_sub(pool, end, begin), step), dc_ex_int(pool, 1));
  return dc_ix_max(pool, dc_ix_div(pool, length, step), dc_ex_int(pool, 0));
}

bool dc_ix_split(dc_pool *pool, dc_ex a, dc_param p, dc_ex *coefficient, dc_ex *rest) {
  dc_ex atom = dc_ex_par(pool, p);
  sum all = {0}, others = {0}, factor = {0};
  if (!sum_add(pool, &all, a, 1)) return false;
  others.constant = all.constant;
  for (uint32_t k = 0; k < all.n; k++) {
    dc_ex term = all.term[k].term;
    int64_t c = all.term[k].coefficient;
    if (term == atom) {
      factor.constant = wrap_add(factor.constant, c);
    } else if (!dc_ex_uses_param(pool, term, p)) {
      sum_add_term(&others, term, c);
    } else {
      dc_ex quotient, single = dc_ex_node(pool, term)->op == DC_EX_PRODUCT ? term : 0;
      if (!single) return false;
      dc_ex factors[MAX_FACTORS];
      uint32_t n = 0, held = 0;
      for (uint32_t j = 0; j < dc_ex_node(pool, single)->nargs; j++) {
        dc_ex f = dc_ex_arg(pool, single, j);
        if (f == atom && !held) held = 1;
        else factors[n++] = f;
      }
      quotient = n == 1 ? factors[0] : dc_pool_op(pool, DC_EX_PRODUCT, DC_I64, n, factors);
      if (!held || dc_ex_uses_param(pool, quotient, p)) return false;
      sum_add_term(&factor, quotient, c);
    }
  }
  *coefficient = sum_build(pool, &factor);
  *rest = sum_build(pool, &others);
  return true;
}

/* Extents may be floor(scale * n): what is real on the way to an integer. */
static double eval_real(const dc_pool *pool, dc_ex e, const int64_t *symbol_values, const int64_t *param_values) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (!dc_dtype_is_float((dc_dtype)node->dtype)) return (double)dc_ix_eval(pool, e, symbol_values, param_values);
  if (node->op == DC_EX_FLOAT) return node->f;
  if (node->op == DC_EX_SELECT) {
    int64_t yes = dc_ix_eval(pool, dc_ex_arg(pool, e, 0), symbol_values, param_values);
    return eval_real(pool, dc_ex_arg(pool, e, yes ? 1 : 2), symbol_values, param_values);
  }
  assert(node->nargs >= 1 && node->op != DC_EX_READ);
  double a = eval_real(pool, dc_ex_arg(pool, e, 0), symbol_values, param_values);
  double b = node->nargs > 1 ? eval_real(pool, dc_ex_arg(pool, e, 1), symbol_values, param_values) : 0;
  switch (node->op) {
    case DC_ADD: return a + b;
    case DC_SUB: return a - b;
    case DC_MUL: return a * b;
    case DC_DIV: return a / b;
    case DC_FLOORDIV: return floor(a / b);
    case DC_MIN: return a < b ? a : b;
    case DC_MAX: return a > b ? a : b;
    case DC_NEG: return -a;
    case DC_ABS: return fabs(a);
    case DC_FLOOR: return floor(a);
    case DC_CEIL: return ceil(a);
    case DC_ROUND: return nearbyint(a);
    case DC_TRUNC: return trunc(a);
    case DC_SQRT: return sqrt(a);
    case DC_POW: return pow(a, b);
    case DC_EX_CAST: return node->dtype == DC_F32 ? (float)a : a;
    default: return NAN;
  }
}

static int64_t whole(double x) { return isnan(x) ? 0 : x >= 0x1p62 ? (int64_t)1 << 62 : x <= -0x1p62 ? -((int64_t)1 << 62) : (int64_t)x; }

/* A comparison or a conversion of reals. */
static int64_t eval_of_reals(const dc_pool *pool, dc_ex e, const int64_t *symbol_values, const int64_t *param_values) {
  const dc_exnode *node = dc_ex_node(pool, e);
  double a = eval_real(pool, dc_ex_arg(pool, e, 0), symbol_values, param_values);
  double b = node->nargs > 1 ? eval_real(pool, dc_ex_arg(pool, e, 1), symbol_values, param_values) : 0;
  switch (node->op) {
    case DC_LT: return a < b;
    case DC_LE: return a <= b;
    case DC_GT: return a > b;
    case DC_GE: return a >= b;
    case DC_EQ: return a == b;
    case DC_NE: return a != b;
    case DC_ISNAN: return isnan(a);
    case DC_ISINF: return isinf(a);
    case DC_SIGNBIT: return signbit(a);
    default: return node->dtype == DC_BOOL ? a != 0 : whole(a);
  }
}

int64_t dc_ix_eval(const dc_pool *pool, dc_ex e, const int64_t *symbol_values, const int64_t *param_values) {
  const dc_exnode *node = dc_ex_node(pool, e);
  int64_t a = 0, b = 0;
  switch (node->op) {
    case DC_EX_INT: return node->i;
    case DC_EX_SYM: return symbol_values[node->ref];
    case DC_EX_PARAM: return param_values[node->ref];
    case DC_EX_LINEAR:
      a = node->i;
      for (uint32_t k = 0; k < node->nargs; k += 2)
        a = wrap_add(a, wrap_mul(dc_ix_eval(pool, dc_ex_arg(pool, e, k), symbol_values, param_values),
                                 dc_ex_node(pool, dc_ex_arg(pool, e, k + 1))->i));
      return a;
    case DC_EX_PRODUCT:
      a = 1;
      for (uint32_t k = 0; k < node->nargs; k++) a = wrap_mul(a, dc_ix_eval(pool, dc_ex_arg(pool, e, k), symbol_values, param_values));
      return a;
    case DC_EX_SELECT:
      a = dc_ix_eval(pool, dc_ex_arg(pool, e, 0), symbol_values, param_values);
      return dc_ix_eval(pool, dc_ex_arg(pool, e, a ? 1 : 2), symbol_values, param_values);
    default: break;
  }
  assert(node->nargs >= 1 && node->op != DC_EX_READ);
  if (dc_dtype_is_float(dc_ex_dtype(pool, dc_ex_arg(pool, e, 0)))) return eval_of_reals(pool, e, symbol_values, param_values);
  a = dc_ix_eval(pool, dc_ex_arg(pool, e, 0), symbol_values, param_values);
  if (node->nargs > 1) b = dc_ix_eval(pool, dc_ex_arg(pool, e, 1), symbol_values, param_values);
  switch (node->op) {
    case DC_EX_IDIV: return floor_div(a, b);
    case DC_EX_IMOD: return floor_mod(a, b);
    case DC_DIV: return b == 0 ? 0 : b == -1 ? wrap_mul(a, -1) : a / b;
    case DC_EX_IMIN: case DC_MIN: return a < b ? a : b;
    case DC_EX_IMAX: case DC_MAX: return a > b ? a : b;
    case DC_ADD: return wrap_add(a, b);
    case DC_SUB: return wrap_add(a, wrap_mul(b, -1));
    case DC_MUL: return wrap_mul(a, b);
    case DC_LT: return a < b;
    case DC_LE: return a <= b;
    case DC_GT: return a > b;
    case DC_GE: return a >= b;
    case DC_EQ: return a == b;
    case DC_NE: return a != b;
    case DC_AND: return a && b;
    case DC_OR: return a || b;
    case DC_NOT: return !a;
    case DC_ABS: return a < 0 ? wrap_mul(a, -1) : a;
    default: return a; /* casts and stop of integers */
  }
}
