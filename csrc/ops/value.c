/* Arithmetic on values: numbers fold, lists map, expressions are brought to one type.
 *
 * Types meet as in NumPy with one twist: an operand that reads no data (a literal, an extent,
 * an index) adopts the other's type, so that `2*X` stays float16's compute type or int32. */
#include <math.h>
#include <string.h>

#include "ops/inst.h"

dc_value dc_val_ex(dc_ex e) { return (dc_value){.kind = VAL_EX, .ex = e}; }
dc_value dc_val_int(dc_inst *in, int64_t i) { return dc_val_ex(dc_ex_int(&in->graph->pool, i)); }
dc_value dc_val_bool(dc_inst *in, bool b) { return dc_val_ex(dc_ex_bool(&in->graph->pool, b)); }
dc_value dc_val_num(double d) { return (dc_value){.kind = VAL_NUM, .num = d}; }
dc_value dc_val_str(const char *s) { return (dc_value){.kind = VAL_STR, .str = s}; }

dc_value dc_val_list(dc_inst *in, uint32_t n) {
  return (dc_value){.kind = VAL_LIST, .n = n, .items = DC_NEW_ARRAY(in->arena, dc_value, n)};
}

bool dc_val_is_int(const dc_inst *in, const dc_value *v, int64_t *out) {
  if (v->kind == VAL_NUM && v->num == floor(v->num) && fabs(v->num) < 0x1p53) return *out = (int64_t)v->num, true;
  return v->kind == VAL_EX && dc_ex_is_int(&in->graph->pool, v->ex, out);
}

bool dc_val_is_number(const dc_inst *in, const dc_value *v, double *out) {
  if (v->kind == VAL_NUM) return *out = v->num, true;
  return v->kind == VAL_EX && dc_ex_is_const(&in->graph->pool, v->ex, out);
}

static dc_dtype type_of(const dc_inst *in, const dc_value *v) { return dc_ex_dtype(&in->graph->pool, v->ex); }

static const char *kind_name(const dc_value *v) {
  static const char *const names[] = {"nothing", "a value", "a number", "a string", "a list"};
  return names[v->kind];
}

dc_status dc_val_to_ex(dc_inst *in, const dc_value *v, dc_dtype type, dc_ex *out) {
  if (v->kind == VAL_NUM) return *out = dc_ex_const(&in->graph->pool, type, v->num), DC_OK;
  if (v->kind == VAL_EX) return *out = dc_ex_cast(&in->graph->pool, type, v->ex), DC_OK;
  return dc_inst_fail(in, DC_ERR_MODEL, "expected a number, got %s", kind_name(v));
}

dc_status dc_val_to_index(dc_inst *in, const dc_value *v, dc_ex *out) {
  int64_t i;
  if (dc_val_is_int(in, v, &i)) return *out = dc_ex_int(&in->graph->pool, i), DC_OK;
  if (v->kind == VAL_EX && !dc_dtype_is_float(type_of(in, v))) return dc_val_to_ex(in, v, DC_I64, out);
  if (v->kind == VAL_EX) return dc_val_to_ex(in, v, DC_I64, out);
  return dc_inst_fail(in, DC_ERR_MODEL, "expected an integer, got %s", kind_name(v));
}

dc_status dc_val_to_bool(dc_inst *in, const dc_value *v, dc_ex *out) {
  double d;
  if (dc_val_is_number(in, v, &d)) return *out = dc_ex_bool(&in->graph->pool, d != 0), DC_OK;
  if (v->kind != VAL_EX) return dc_inst_fail(in, DC_ERR_MODEL, "expected a condition, got %s", kind_name(v));
  return *out = dc_ex_cast(&in->graph->pool, DC_BOOL, v->ex), DC_OK;
}

static bool reads(const dc_inst *in, const dc_value *v) { return dc_ex_uses_op(&in->graph->pool, v->ex, DC_EX_READ); }

/* The type in which two different types meet. */
static dc_dtype common_type(const dc_inst *in, const dc_value *a, const dc_value *b) {
  dc_dtype x = type_of(in, a), y = type_of(in, b);
  bool fx = dc_dtype_is_float(x), fy = dc_dtype_is_float(y);
  if (fx != fy) return fx ? x : y;
  if (x == DC_BOOL || y == DC_BOOL) return x == DC_BOOL ? y : x;
  if (!reads(in, a)) return y;
  if (!reads(in, b)) return x;
  if (fx) return DC_F64;
  return DC_I64;
}

dc_status dc_val_unify(dc_inst *in, dc_value *a, dc_value *b) {
  if (a->kind == VAL_NUM && b->kind == VAL_NUM) return DC_OK;
  if (a->kind == VAL_NUM || b->kind == VAL_NUM) {
    dc_value *number = a->kind == VAL_NUM ? a : b, *other = number == a ? b : a;
    double d;
    if (other->kind != VAL_EX) return dc_inst_fail(in, DC_ERR_MODEL, "expected a number, got %s", kind_name(other));
    if (dc_ex_is_const(&in->graph->pool, other->ex, &d) && dc_ex_dtype(&in->graph->pool, other->ex) == DC_I64)
      return *other = dc_val_num(d), DC_OK;
    dc_dtype type = type_of(in, other);
    bool whole = number->num == floor(number->num);
    if (!dc_dtype_is_float(type)) type = whole && type != DC_BOOL && reads(in, other) ? type : reads(in, other) ? in->float_type : DC_F64;
    DC_TRY(dc_val_to_ex(in, a, type, &a->ex));
    DC_TRY(dc_val_to_ex(in, b, type, &b->ex));
    a->kind = b->kind = VAL_EX;
    return DC_OK;
  }
  if (a->kind != VAL_EX || b->kind != VAL_EX)
    return dc_inst_fail(in, DC_ERR_MODEL, "expected numbers, got %s and %s", kind_name(a), kind_name(b));
  if (type_of(in, a) == type_of(in, b)) return DC_OK;
  dc_dtype type = common_type(in, a, b);
  a->ex = dc_ex_cast(&in->graph->pool, type, a->ex);
  b->ex = dc_ex_cast(&in->graph->pool, type, b->ex);
  return DC_OK;
}

/* ---- lists ---- */

static bool same_text(const dc_value *a, const dc_value *b) { return strcmp(a->str, b->str) == 0; }

static bool equal(dc_inst *in, const dc_value *a, const dc_value *b) {
  double x, y;
  if (dc_val_is_number(in, a, &x) && dc_val_is_number(in, b, &y)) return x == y;
  if (a->kind != b->kind) return false;
  if (a->kind == VAL_STR) return same_text(a, b);
  if (a->kind == VAL_EX) return a->ex == b->ex;
  if (a->kind != VAL_LIST || a->n != b->n) return a->kind == VAL_NONE;
  for (uint32_t k = 0; k < a->n; k++)
    if (!equal(in, &a->items[k], &b->items[k])) return false;
  return true;
}

static dc_status map_binary(dc_inst *in, dc_op prim, dc_value a, dc_value b, dc_value *out) {
  uint32_t n = a.kind == VAL_LIST ? a.n : b.n;
  if (a.kind == VAL_LIST && b.kind == VAL_LIST && a.n != b.n)
    return dc_inst_fail(in, DC_ERR_SHAPE, "lists of %u and %u elements meet", a.n, b.n);
  *out = dc_val_list(in, n);
  for (uint32_t k = 0; k < n; k++)
    DC_TRY(dc_val_binary(in, prim, a.kind == VAL_LIST ? a.items[k] : a, b.kind == VAL_LIST ? b.items[k] : b, &out->items[k]));
  return DC_OK;
}

/* ---- scalars ---- */

static double floor_mod(double a, double b) { return b == 0 ? 0 : a - b * floor(a / b); }

static dc_status fold_numbers(dc_inst *in, dc_op prim, double a, double b, dc_value *out) {
  switch (prim) {
    case DC_ADD: return *out = dc_val_num(a + b), DC_OK;
    case DC_SUB: return *out = dc_val_num(a - b), DC_OK;
    case DC_MUL: return *out = dc_val_num(a * b), DC_OK;
    case DC_DIV: return *out = dc_val_num(a / b), DC_OK;
    case DC_FLOORDIV: return *out = dc_val_num(floor(a / b)), DC_OK;
    case DC_MOD: return *out = dc_val_num(floor_mod(a, b)), DC_OK;
    case DC_FMOD: return *out = dc_val_num(fmod(a, b)), DC_OK;
    case DC_MIN: return *out = dc_val_num(a < b ? a : b), DC_OK;
    case DC_MAX: return *out = dc_val_num(a > b ? a : b), DC_OK;
    case DC_POW: return *out = dc_val_num(pow(a, b)), DC_OK;
    case DC_LT: return *out = dc_val_bool(in, a < b), DC_OK;
    case DC_LE: return *out = dc_val_bool(in, a <= b), DC_OK;
    case DC_GT: return *out = dc_val_bool(in, a > b), DC_OK;
    case DC_GE: return *out = dc_val_bool(in, a >= b), DC_OK;
    case DC_EQ: return *out = dc_val_bool(in, a == b), DC_OK;
    case DC_NE: return *out = dc_val_bool(in, a != b), DC_OK;
    default: return dc_inst_fail(in, DC_ERR_MODEL, "'%s' does not take two real numbers", dc_prims[prim].name);
  }
}

static dc_status logic(dc_inst *in, dc_op prim, dc_value a, dc_value b, dc_value *out) {
  dc_ex x, y;
  DC_TRY(dc_val_to_bool(in, &a, &x));
  DC_TRY(dc_val_to_bool(in, &b, &y));
  return *out = dc_val_ex(dc_ex_prim2(&in->graph->pool, prim, x, y)), DC_OK;
}

/* Integers divide as reals unless both come from data: then as integer tensors do. */
static dc_status prepare_division(dc_inst *in, dc_value *a, dc_value *b) {
  double x, y;
  if (a->kind != VAL_EX || dc_dtype_is_float(type_of(in, a)) || reads(in, a) || reads(in, b)) return DC_OK;
  if (dc_ex_is_const(&in->graph->pool, a->ex, &x) && dc_ex_is_const(&in->graph->pool, b->ex, &y)) {
    *a = dc_val_num(x), *b = dc_val_num(y);
    return DC_OK;
  }
  a->ex = dc_ex_cast(&in->graph->pool, DC_F64, a->ex);
  b->ex = dc_ex_cast(&in->graph->pool, DC_F64, b->ex);
  return DC_OK;
}

dc_status dc_val_binary(dc_inst *in, dc_op prim, dc_value a, dc_value b, dc_value *out) {
  if ((prim == DC_EQ || prim == DC_NE) && (a.kind == VAL_STR || b.kind == VAL_STR || a.kind == VAL_NONE || b.kind == VAL_NONE ||
                                           (a.kind == VAL_LIST && b.kind == VAL_LIST)))
    return *out = dc_val_bool(in, equal(in, &a, &b) == (prim == DC_EQ)), DC_OK;
  if (a.kind == VAL_LIST || b.kind == VAL_LIST) return map_binary(in, prim, a, b, out);
  if (prim == DC_AND || prim == DC_OR) return logic(in, prim, a, b, out);
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  if (prim == DC_RAND) {
    dc_ex seed, counter;
    DC_TRY(dc_val_to_index(in, &a, &seed));
    DC_TRY(dc_val_to_index(in, &b, &counter));
    return *out = dc_val_ex(dc_ex_prim2(&in->graph->pool, prim, seed, counter)), DC_OK;
  }
  DC_TRY(dc_val_unify(in, &a, &b));
  if (prim == DC_DIV) DC_TRY(prepare_division(in, &a, &b));
  if (a.kind == VAL_NUM) return fold_numbers(in, prim, a.num, b.num, out);
  dc_dtype type = type_of(in, &a);
  if (type == DC_BOOL && kind == DC_PRIM_SAME) { /* arithmetic on truth values counts */
    a.ex = dc_ex_cast(&in->graph->pool, prim == DC_MIN || prim == DC_MAX ? DC_U8 : DC_I64, a.ex);
    b.ex = dc_ex_cast(&in->graph->pool, prim == DC_MIN || prim == DC_MAX ? DC_U8 : DC_I64, b.ex);
  }
  if (kind == DC_PRIM_BITS && dc_dtype_is_float(type)) return dc_inst_fail(in, DC_ERR_DTYPE, "'%s' needs integers", dc_prims[prim].name);
  return *out = dc_val_ex(dc_ex_prim2(&in->graph->pool, prim, a.ex, b.ex)), DC_OK;
}

dc_status dc_val_unary(dc_inst *in, dc_op prim, dc_value a, dc_value *out) {
  if (a.kind == VAL_LIST) {
    *out = dc_val_list(in, a.n);
    for (uint32_t k = 0; k < a.n; k++) DC_TRY(dc_val_unary(in, prim, a.items[k], &out->items[k]));
    return DC_OK;
  }
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  dc_ex e;
  if (kind == DC_PRIM_LOGIC) {
    DC_TRY(dc_val_to_bool(in, &a, &e));
    return *out = dc_val_ex(dc_ex_prim1(&in->graph->pool, prim, e)), DC_OK;
  }
  if (a.kind == VAL_NUM) {
    double folded;
    e = dc_ex_prim1(&in->graph->pool, prim, dc_ex_const(&in->graph->pool, DC_F64, a.num));
    *out = dc_ex_is_const(&in->graph->pool, e, &folded) && kind != DC_PRIM_TEST ? dc_val_num(folded) : dc_val_ex(e);
    return DC_OK;
  }
  if (a.kind != VAL_EX) return dc_inst_fail(in, DC_ERR_MODEL, "'%s' needs a number, got %s", dc_prims[prim].name, kind_name(&a));
  dc_dtype type = type_of(in, &a);
  bool real = dc_dtype_is_float(type);
  if (kind == DC_PRIM_FLOAT && !real) {
    bool rounds = prim == DC_FLOOR || prim == DC_CEIL || prim == DC_ROUND || prim == DC_TRUNC;
    if (rounds) return *out = a, DC_OK; /* integers are round already */
    a.ex = dc_ex_cast(&in->graph->pool, reads(in, &a) ? in->float_type : DC_F64, a.ex);
  }
  if (kind == DC_PRIM_SAME && type == DC_BOOL) a.ex = dc_ex_cast(&in->graph->pool, DC_I64, a.ex);
  if (kind == DC_PRIM_TEST && prim != DC_SIGNBIT && !real) return *out = dc_val_bool(in, false), DC_OK; /* isnan, isinf */
  if (kind == DC_PRIM_BITS && real) return dc_inst_fail(in, DC_ERR_DTYPE, "'%s' needs integers", dc_prims[prim].name);
  return *out = dc_val_ex(dc_ex_prim1(&in->graph->pool, prim, a.ex)), DC_OK;
}

dc_status dc_val_product(dc_inst *in, const dc_value *list, dc_value *out) {
  *out = dc_val_int(in, 1);
  for (uint32_t k = 0; k < list->n; k++) DC_TRY(dc_val_binary(in, DC_MUL, *out, list->items[k], out));
  return DC_OK;
}
