/* The expression pool: hash-consing, leaves, and scalar constructors with folding.
 * Index arithmetic is in index.c, walking and rewriting in rewrite.c. */
#include "expr/expr.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "expr/pool.h"

const dc_prim_info dc_prims[DC_PRIM_COUNT] = {
#define PRIM(id, name, arity, kind, cost, da, db) [DC_##id] = {name, arity, DC_PRIM_##kind, cost, {da, db}},
#include "expr/prims.def"
#undef PRIM
};

const char *const dc_prim_parts[DC_PRIM_COUNT][2] = {
#define PARTS(id, re, im) [DC_##id] = {re, im},
#include "expr/complex.def"
#undef PARTS
};

void dc_pool_init(dc_pool *pool, dc_arena *arena, dc_names *names) {
  *pool = (dc_pool){.arena = arena, .names = names};
  DC_PUSH(arena, &pool->nodes, (dc_exnode){0});
  DC_PUSH(arena, &pool->symbols, (dc_symbol){0});
  DC_PUSH(arena, &pool->params, (dc_parameter){0});
}

dc_sym dc_symbol_get(dc_pool *pool, const char *name, int64_t min) {
  dc_name id = dc_name_intern(pool->names, name);
  while (pool->named.n <= id) DC_PUSH(pool->arena, &pool->named, 0);
  if (pool->named.v[id]) return pool->named.v[id];
  DC_PUSH(pool->arena, &pool->symbols, ((dc_symbol){id, min}));
  return pool->named.v[id] = pool->symbols.n - 1;
}

dc_sym dc_symbol_find(const dc_pool *pool, const char *name) {
  dc_name id = dc_name_find(pool->names, name);
  return id < pool->named.n ? pool->named.v[id] : 0;
}

void dc_symbol_rename(dc_pool *pool, dc_sym symbol, const char *name) {
  dc_name id = dc_name_intern(pool->names, name), *own = &pool->symbols.v[symbol].name;
  while (pool->named.n <= id) DC_PUSH(pool->arena, &pool->named, 0);
  pool->named.v[*own] = 0, pool->named.v[id] = symbol, *own = id;
}

dc_param dc_param_new(dc_pool *pool, const char *name, dc_ex begin, dc_ex end, dc_ex step) {
  dc_parameter p = {dc_name_intern(pool->names, name), begin, end, step ? step : dc_ex_int(pool, 1)};
  DC_PUSH(pool->arena, &pool->params, p);
  return pool->params.n - 1;
}

/* ---- hash-consing ---- */

static bool same_node(const dc_pool *pool, const dc_exnode *a, const dc_exnode *b, const dc_ex *b_args) {
  return a->hash == b->hash && a->op == b->op && a->dtype == b->dtype && a->nargs == b->nargs && a->ref == b->ref &&
         a->i == b->i && (a->nargs == 0 || memcmp(pool->args.v + a->args, b_args, a->nargs * sizeof *b_args) == 0);
}

static void rehash(dc_pool *pool) {
  pool->slot_count = pool->slot_count ? pool->slot_count * 2 : 256;
  pool->slots = DC_NEW_ARRAY(pool->arena, uint32_t, pool->slot_count);
  for (dc_ex e = 1; e < pool->nodes.n; e++) {
    uint32_t slot = pool->nodes.v[e].hash & (pool->slot_count - 1);
    while (pool->slots[slot]) slot = (slot + 1) & (pool->slot_count - 1);
    pool->slots[slot] = e;
  }
}

static uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

dc_ex dc_pool_cons(dc_pool *pool, dc_exnode node, const dc_ex *args) {
  uint64_t head = node.op | (uint64_t)node.dtype << 8 | (uint64_t)node.nargs << 16 | (uint64_t)node.ref << 32;
  uint64_t hash = mixed(head, (uint64_t)node.i);
  for (uint32_t k = 0; k < node.nargs; k++) hash = mixed(hash, args[k]);
  node.hash = (uint32_t)(hash >> 32);
  if (pool->nodes.n * 2 >= pool->slot_count) rehash(pool);
  uint32_t slot = node.hash & (pool->slot_count - 1);
  for (; pool->slots[slot]; slot = (slot + 1) & (pool->slot_count - 1))
    if (same_node(pool, &pool->nodes.v[pool->slots[slot]], &node, args)) return pool->slots[slot];
  node.args = pool->args.n;
  for (uint32_t k = 0; k < node.nargs; k++) {
    dc_ex argument = args[k]; /* args may point into the pool's own array, which moves */
    const dc_ex *before = pool->args.v, *end = before + pool->args.n; /* a caller's array may begin right there */
    DC_PUSH(pool->arena, &pool->args, argument);
    if (args >= before && args < end) args = pool->args.v + (args - before);
  }
  DC_PUSH(pool->arena, &pool->nodes, node);
  return pool->slots[slot] = pool->nodes.n - 1;
}

dc_ex dc_pool_op(dc_pool *pool, dc_op op, dc_dtype type, uint32_t nargs, const dc_ex *args) {
  return dc_pool_cons(pool, (dc_exnode){.op = op, .dtype = type, .nargs = (uint16_t)nargs}, args);
}

/* ---- leaves ---- */

static dc_ex int_of(dc_pool *pool, dc_dtype type, int64_t value) {
  return dc_pool_cons(pool, (dc_exnode){.op = DC_EX_INT, .dtype = type, .i = value}, NULL);
}

dc_ex dc_ex_int(dc_pool *pool, int64_t value) { return int_of(pool, DC_I64, value); }
dc_ex dc_ex_bool(dc_pool *pool, bool value) { return int_of(pool, DC_BOOL, value); }

static int64_t integer_from_double(dc_dtype type, double value) {
  if (isnan(value)) return 0;
  if (type == DC_U64 && value >= 0x1p63) return value >= 0x1p64 ? -1 : (int64_t)(uint64_t)value;
  if (value >= 0x1p63) return INT64_MAX;
  if (value <= -0x1p63) return INT64_MIN;
  return dc_dtype_wrap(type, (int64_t)value);
}

static double round_to_type(dc_dtype type, double value) {
  return type == DC_F64 ? value : type == DC_F16  ? dc_f16_to_f32(dc_f32_to_f16((float)value))
                              : type == DC_BF16 ? dc_bf16_to_f32(dc_f32_to_bf16((float)value))
                                                : (double)(float)value;
}

dc_ex dc_ex_const(dc_pool *pool, dc_dtype type, double value) {
  if (dc_dtype_is_complex(type))
    return dc_ex_prim2(pool, DC_COMPLEX, dc_ex_const(pool, dc_dtype_part(type), value), dc_ex_const(pool, dc_dtype_part(type), 0));
  if (type == DC_BOOL) return dc_ex_bool(pool, value != 0);
  if (!dc_dtype_is_float(type)) return int_of(pool, type, integer_from_double(type, value));
  return dc_pool_cons(pool, (dc_exnode){.op = DC_EX_FLOAT, .dtype = type, .f = round_to_type(type, value)}, NULL);
}

dc_ex dc_ex_sym(dc_pool *pool, dc_sym symbol) {
  return dc_pool_cons(pool, (dc_exnode){.op = DC_EX_SYM, .dtype = DC_I64, .ref = symbol}, NULL);
}

dc_ex dc_ex_par(dc_pool *pool, dc_param param) {
  return dc_pool_cons(pool, (dc_exnode){.op = DC_EX_PARAM, .dtype = DC_I64, .ref = param}, NULL);
}

dc_ex dc_ex_read(dc_pool *pool, dc_dtype type, uint32_t container, const dc_ex *index, uint32_t rank) {
  dc_exnode node = {.op = DC_EX_READ, .dtype = type, .nargs = (uint16_t)rank, .ref = container};
  return dc_pool_cons(pool, node, index);
}

bool dc_ex_is_int(const dc_pool *pool, dc_ex e, int64_t *value) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_INT) return false;
  *value = node->i;
  return true;
}

bool dc_ex_is_const(const dc_pool *pool, dc_ex e, double *value) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_FLOAT) return *value = node->f, true;
  if (node->op != DC_EX_INT) return false;
  *value = node->dtype == DC_U64 ? (double)(uint64_t)node->i : (double)node->i;
  return true;
}

static bool is_value(const dc_pool *pool, dc_ex e, double value) {
  double v;
  if (dc_ex_node(pool, e)->op == DC_COMPLEX)
    return is_value(pool, dc_ex_arg(pool, e, 0), value) && is_value(pool, dc_ex_arg(pool, e, 1), 0);
  return dc_ex_is_const(pool, e, &v) && v == value && (value != 0 || !signbit(v));
}

/* ---- constant folding ---- */

static double fold_min(double a, double b) { return isnan(a) || a < b ? a : b; }
static double fold_max(double a, double b) { return isnan(a) || a > b ? a : b; }
static double fold_floor_mod(double a, double b) {
  double m = fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

/* Folds a float prim in double; the constructor rounds to the type.  False: left alone. */
static bool fold_float(dc_op prim, double a, double b, double *out) {
  switch (prim) {
    case DC_ADD: return *out = a + b, true;
    case DC_SUB: return *out = a - b, true;
    case DC_MUL: return *out = a * b, true;
    case DC_DIV: return *out = a / b, true;
    case DC_NEG: return *out = -a, true;
    case DC_FLOORDIV: return *out = floor(a / b), true;
    case DC_MOD: return *out = fold_floor_mod(a, b), true;
    case DC_FMOD: return *out = fmod(a, b), true;
    case DC_MIN: return *out = fold_min(a, b), true;
    case DC_MAX: return *out = fold_max(a, b), true;
    case DC_ABS: return *out = fabs(a), true;
    case DC_SIGN: return *out = a > 0 ? 1 : a < 0 ? -1 : a, true;
    case DC_STOP: return *out = a, true;
    case DC_FLOOR: return *out = floor(a), true;
    case DC_CEIL: return *out = ceil(a), true;
    case DC_ROUND: return *out = nearbyint(a), true;
    case DC_TRUNC: return *out = trunc(a), true;
    case DC_SQRT: return *out = sqrt(a), true;
    case DC_EXP: return *out = exp(a), true;
    case DC_LOG: return *out = log(a), true;
    case DC_POW: return *out = pow(a, b), true;
    case DC_TANH: return *out = tanh(a), true;
    default: return false;
  }
}

static bool fold_test(dc_op prim, double a, double b, bool *out) {
  switch (prim) {
    case DC_LT: return *out = a < b, true;
    case DC_LE: return *out = a <= b, true;
    case DC_GT: return *out = a > b, true;
    case DC_GE: return *out = a >= b, true;
    case DC_EQ: return *out = a == b, true;
    case DC_NE: return *out = a != b, true;
    case DC_ISNAN: return *out = isnan(a), true;
    case DC_ISINF: return *out = isinf(a), true;
    case DC_SIGNBIT: return *out = signbit(a), true;
    case DC_AND: return *out = a != 0 && b != 0, true;
    case DC_OR: return *out = a != 0 || b != 0, true;
    case DC_NOT: return *out = a == 0, true;
    default: return false;
  }
}

/* Integers of at most 32 bits fold exactly through 64; the wider ones are left to run time. */
static bool fold_integer(dc_op prim, int64_t a, int64_t b, int64_t *out) {
  switch (prim) {
    case DC_ADD: return *out = a + b, true;
    case DC_SUB: return *out = a - b, true;
    case DC_MUL: return *out = (int64_t)((uint64_t)a * (uint64_t)b), true;
    case DC_NEG: return *out = -a, true;
    case DC_DIV: return *out = b ? a / b : 0, true;
    case DC_MIN: return *out = a < b ? a : b, true;
    case DC_MAX: return *out = a > b ? a : b, true;
    case DC_STOP: return *out = a, true;
    default: return false;
  }
}

static dc_ex fold(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  double x, y = 0, value;
  bool truth;
  dc_dtype type = dc_ex_dtype(pool, a);
  if (!dc_ex_is_const(pool, a, &x) || (b && !dc_ex_is_const(pool, b, &y))) return 0;
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  if (kind == DC_PRIM_PAIR) return 0;
  bool wide = type == DC_I64 || type == DC_U64;
  if (kind == DC_PRIM_TEST || kind == DC_PRIM_LOGIC) {
    if (wide) { /* compare exactly */
      int64_t i, j = 0;
      if (!dc_ex_is_int(pool, a, &i) || (b && !dc_ex_is_int(pool, b, &j)) || type == DC_U64) return 0;
      x = i < j ? -1 : i > j, y = 0;
    }
    return fold_test(prim, x, y, &truth) ? dc_ex_bool(pool, truth) : 0;
  }
  if (dc_dtype_is_float(type)) return fold_float(prim, x, y, &value) ? dc_ex_const(pool, type, value) : 0;
  int64_t i, j = 0, k;
  if (wide || !dc_ex_is_int(pool, a, &i) || (b && !dc_ex_is_int(pool, b, &j))) return 0;
  return fold_integer(prim, i, j, &k) ? int_of(pool, type, dc_dtype_wrap(type, k)) : 0;
}

/* ---- scalar constructors ---- */

/* The angle of a real number is that of its sign. */
static dc_ex real_angle(dc_pool *pool, dc_ex a) {
  dc_dtype type = dc_ex_dtype(pool, a);
  dc_ex zero = dc_ex_const(pool, type, 0), turn = dc_ex_const(pool, type, 3.141592653589793);
  dc_ex known = dc_ex_select(pool, dc_ex_prim2(pool, DC_LT, a, zero), turn, zero);
  return dc_ex_select(pool, dc_ex_prim1(pool, DC_ISNAN, a), a, known);
}

/* Parts of real numbers and of pairs are known at once. */
static dc_ex part_of(dc_pool *pool, dc_op prim, dc_ex a) {
  dc_dtype type = dc_ex_dtype(pool, a);
  bool is_pair = dc_ex_node(pool, a)->op == DC_COMPLEX;
  if (!dc_dtype_is_complex(type)) return prim == DC_ANGLE ? real_angle(pool, a) : prim == DC_IMAG ? dc_ex_const(pool, type, 0) : a;
  if (is_pair && prim == DC_CONJ)
    return dc_ex_prim2(pool, DC_COMPLEX, dc_ex_arg(pool, a, 0), dc_ex_prim1(pool, DC_NEG, dc_ex_arg(pool, a, 1)));
  if (is_pair && prim != DC_ANGLE) return dc_ex_arg(pool, a, prim == DC_IMAG);
  return dc_pool_op(pool, prim, prim == DC_CONJ ? type : dc_dtype_part(type), 1, &a);
}

dc_ex dc_ex_prim1(dc_pool *pool, dc_op prim, dc_ex a) {
  assert(prim < DC_PRIM_COUNT && dc_prims[prim].arity == 1 && a);
  dc_dtype type = dc_ex_dtype(pool, a);
  if (dc_prims[prim].kind == DC_PRIM_PART) return part_of(pool, prim, a);
  if (type == DC_I64 && prim == DC_NEG) return dc_ix_sub(pool, dc_ex_int(pool, 0), a);
  const dc_exnode *node = dc_ex_node(pool, a);
  if ((prim == DC_NEG || prim == DC_NOT) && node->op == prim) return dc_ex_arg(pool, a, 0);
  dc_ex folded = fold(pool, prim, a, 0);
  if (folded) return folded;
  bool tests = dc_prims[prim].kind == DC_PRIM_TEST || dc_prims[prim].kind == DC_PRIM_LOGIC;
  return dc_pool_op(pool, prim, tests ? DC_BOOL : prim == DC_ABS ? dc_dtype_part(type) : type, 1, &a);
}

static dc_ex index_prim(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  switch (prim) {
    case DC_ADD: return dc_ix_add(pool, a, b);
    case DC_SUB: return dc_ix_sub(pool, a, b);
    case DC_MUL: return dc_ix_mul(pool, a, b);
    case DC_FLOORDIV: return dc_ix_div(pool, a, b);
    case DC_MOD: return dc_ix_mod(pool, a, b);
    case DC_MIN: return dc_ix_min(pool, a, b);
    case DC_MAX: return dc_ix_max(pool, a, b);
    case DC_DIV: /* truncation and floor agree where nothing is negative */
      return dc_ix_proves_ge(pool, a, 0) && dc_ix_proves_ge(pool, b, 0) ? dc_ix_div(pool, a, b) : 0;
    default: return 0;
  }
}

/* Comparisons of indices that a constant difference or the ranges of parameters decide. */
static dc_ex decide_test(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  dc_ex difference = dc_ix_sub(pool, a, b);
  bool not_less = dc_ix_proves_ge(pool, difference, 0), greater = dc_ix_proves_ge(pool, difference, 1);
  dc_ex negated = dc_ix_sub(pool, b, a);
  bool not_greater = dc_ix_proves_ge(pool, negated, 0), less = dc_ix_proves_ge(pool, negated, 1);
  bool yes = (prim == DC_GE && not_less) || (prim == DC_GT && greater) || (prim == DC_LE && not_greater) ||
             (prim == DC_LT && less) || (prim == DC_EQ && not_less && not_greater) || (prim == DC_NE && (less || greater));
  bool no = (prim == DC_LT && not_less) || (prim == DC_LE && greater) || (prim == DC_GT && not_greater) ||
            (prim == DC_GE && less) || (prim == DC_NE && not_less && not_greater) || (prim == DC_EQ && (less || greater));
  return yes || no ? dc_ex_bool(pool, yes) : 0;
}

static dc_ex simplify_logic(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  int64_t truth;
  if (prim != DC_AND && prim != DC_OR) return 0;
  if (dc_ex_is_int(pool, a, &truth)) return (truth != 0) == (prim == DC_AND) ? b : a;
  if (dc_ex_is_int(pool, b, &truth)) return (truth != 0) == (prim == DC_AND) ? a : b;
  return a == b ? a : 0;
}

/* Is it what min or max with changes nothing? */
static bool is_bound(const dc_pool *pool, dc_ex e, dc_op prim) {
  dc_dtype type = dc_ex_dtype(pool, e);
  if (dc_dtype_is_float(type)) return is_value(pool, e, prim == DC_MIN ? INFINITY : -INFINITY);
  return is_value(pool, e, prim == DC_MIN ? dc_dtype_max(type) : dc_dtype_min(type));
}

static dc_ex simplify_arithmetic(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  switch (prim) {
    case DC_ADD: return is_value(pool, b, 0) ? a : is_value(pool, a, 0) ? b : 0;
    case DC_SUB: return is_value(pool, b, 0) ? a : 0;
    case DC_MUL: return is_value(pool, b, 1) ? a : is_value(pool, a, 1) ? b : 0;
    case DC_DIV: return is_value(pool, b, 1) ? a : 0;
    case DC_POW: return is_value(pool, b, 1) ? a : 0;
    case DC_MAX: return is_bound(pool, b, DC_MAX) ? a : is_bound(pool, a, DC_MAX) ? b : 0;
    case DC_MIN: return is_bound(pool, b, DC_MIN) ? a : is_bound(pool, a, DC_MIN) ? b : 0;
    default: return 0;
  }
}

dc_ex dc_ex_prim2(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b) {
  assert(prim < DC_PRIM_COUNT && dc_prims[prim].arity == 2 && a && b);
  assert(prim == DC_RAND || dc_ex_dtype(pool, a) == dc_ex_dtype(pool, b));
  dc_dtype type = dc_ex_dtype(pool, a);
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  dc_ex simpler = fold(pool, prim, a, b);
  if (!simpler && type == DC_I64) simpler = kind == DC_PRIM_TEST ? decide_test(pool, prim, a, b) : index_prim(pool, prim, a, b);
  if (!simpler && kind == DC_PRIM_LOGIC) simpler = simplify_logic(pool, prim, a, b);
  if (!simpler && kind == DC_PRIM_SAME) simpler = simplify_arithmetic(pool, prim, a, b);
  if (simpler) return simpler;
  dc_ex args[2] = {a, b};
  bool tests = kind == DC_PRIM_TEST || kind == DC_PRIM_LOGIC;
  dc_dtype result = prim == DC_RAND ? DC_F32 : tests ? DC_BOOL : kind == DC_PRIM_PAIR ? dc_dtype_of_parts(type) : type;
  return dc_pool_op(pool, prim, result, 2, args);
}

dc_ex dc_ex_select(dc_pool *pool, dc_ex condition, dc_ex yes, dc_ex no) {
  assert(dc_ex_dtype(pool, condition) == DC_BOOL && dc_ex_dtype(pool, yes) == dc_ex_dtype(pool, no));
  int64_t truth;
  if (dc_ex_is_int(pool, condition, &truth)) return truth ? yes : no;
  if (yes == no) return yes;
  if (dc_ex_node(pool, condition)->op == DC_NOT) {
    dc_ex swap = yes;
    condition = dc_ex_arg(pool, condition, 0), yes = no, no = swap;
  }
  dc_ex args[3] = {condition, yes, no};
  return dc_pool_op(pool, DC_EX_SELECT, dc_ex_dtype(pool, yes), 3, args);
}

/* Every value of `from` is a value of `to`. */
static bool widens(dc_dtype from, dc_dtype to) {
  if (to == DC_F64) return from != DC_I64 && from != DC_U64;
  return to == DC_F32 ? from == DC_F16 || from == DC_BF16 : false;
}

static dc_ex cast_pair(dc_pool *pool, dc_dtype type, dc_ex re, dc_ex im) {
  if (type == DC_BOOL) return dc_ex_prim2(pool, DC_OR, dc_ex_cast(pool, type, re), dc_ex_cast(pool, type, im));
  dc_ex a = dc_ex_cast(pool, dc_dtype_part(type), re);
  return dc_dtype_is_complex(type) ? dc_ex_prim2(pool, DC_COMPLEX, a, dc_ex_cast(pool, dc_dtype_part(type), im)) : a;
}

/* A choice among constants, `depth` choices deep at most. */
static bool of_constants(const dc_pool *pool, dc_ex e, int depth) {
  double value;
  if (dc_ex_node(pool, e)->op != DC_EX_SELECT) return dc_ex_is_const(pool, e, &value);
  return depth > 0 && of_constants(pool, dc_ex_arg(pool, e, 1), depth - 1) && of_constants(pool, dc_ex_arg(pool, e, 2), depth - 1);
}

dc_ex dc_ex_cast(dc_pool *pool, dc_dtype type, dc_ex a) {
  const dc_exnode *node = dc_ex_node(pool, a);
  dc_dtype from = (dc_dtype)node->dtype;
  if (from == type) return a;
  if (node->op == DC_COMPLEX) return cast_pair(pool, type, dc_ex_arg(pool, a, 0), dc_ex_arg(pool, a, 1));
  double value;
  bool whole = !dc_dtype_is_float(type) && type != DC_BOOL && !dc_dtype_is_complex(type);
  if (node->op == DC_EX_INT && whole) return int_of(pool, type, dc_dtype_wrap(type, node->i));
  if (dc_ex_is_const(pool, a, &value)) return dc_ex_const(pool, type, value);
  if (node->op == DC_EX_CAST) { /* back to where a widening cast came from */
    dc_ex inner = dc_ex_arg(pool, a, 0);
    if (dc_ex_dtype(pool, inner) == type && widens(type, from)) return inner;
  }
  if (node->op == DC_EX_SELECT && of_constants(pool, a, 4)) { /* a choice of converted ones needs no conversion, which few vectors have */
    dc_ex yes = dc_ex_cast(pool, type, dc_ex_arg(pool, a, 1)), no = dc_ex_cast(pool, type, dc_ex_arg(pool, a, 2));
    return dc_ex_select(pool, dc_ex_arg(pool, a, 0), yes, no);
  }
  return dc_pool_op(pool, DC_EX_CAST, type, 1, &a);
}

dc_ex dc_ex_bits(dc_pool *pool, dc_dtype type, dc_ex a) {
  const dc_exnode *node = dc_ex_node(pool, a);
  assert(dc_dtype_bytes(type) == dc_dtype_bytes((dc_dtype)node->dtype));
  return node->dtype == type ? a : dc_pool_op(pool, DC_EX_BITS, type, 1, &a);
}

dc_ex dc_ex_and(dc_pool *pool, dc_ex a, dc_ex b) {
  return !a ? b : !b ? a : dc_ex_prim2(pool, DC_AND, a, b);
}

dc_ex dc_ex_is_extreme(dc_pool *pool, dc_ex x, dc_ex extreme) {
  dc_ex same = dc_ex_prim2(pool, DC_EQ, x, extreme);
  return dc_dtype_is_float(dc_ex_dtype(pool, x)) ? dc_ex_prim2(pool, DC_OR, same, dc_ex_prim1(pool, DC_ISNAN, x)) : same;
}

dc_ex dc_ex_in_range(dc_pool *pool, dc_ex a, dc_ex extent) {
  dc_ex low = dc_ex_prim2(pool, DC_GE, a, dc_ex_int(pool, 0));
  return dc_ex_prim2(pool, DC_AND, low, dc_ex_prim2(pool, DC_LT, a, extent));
}
