/* Expressions as C.
 *
 * Each distinct expression becomes one `const` local, printed where it is first needed or, by
 * dc_cpu_hoist, before the loop that it does not depend on.  A local lives until its C scope
 * ends or something that it read is written.  A side of a select that may not be evaluated
 * freely (an access that the condition guards) is printed inside an `if`. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/emit.h"
#include "ir/work.h"

static const type_row types[DC_DTYPE_COUNT] = {
    [DC_F32] = {"float", "float", "$", "$", "f32"},
    [DC_F64] = {"double", "double", "$", "$", "f64"},
    [DC_F16] = {"u16", "float", "f16_to_f32($)", "f32_to_f16($)", "f32"},
    [DC_BF16] = {"u16", "float", "bf16_to_f32($)", "f32_to_bf16($)", "f32"},
    [DC_BOOL] = {"u8", "_Bool", "($ != 0)", "$", "i32"},
    [DC_I8] = {"i8", "i8", "$", "$", "i32"},
    [DC_U8] = {"u8", "u8", "$", "$", "i32"},
    [DC_I16] = {"i16", "i16", "$", "$", "i32"},
    [DC_U16] = {"u16", "u16", "$", "$", "i32"},
    [DC_I32] = {"i32", "i32", "$", "$", "i32"},
    [DC_U32] = {"u32", "u32", "$", "$", "i64"},
    [DC_I64] = {"i64", "i64", "$", "$", "i64"},
    [DC_U64] = {"u64", "u64", "$", "$", "u64"},
    [DC_I4] = {"i8", "i32", "cast_i4($)", "$", "i32"},
    [DC_U4] = {"u8", "i32", "($ & 15)", "$", "i32"},
    [DC_I2] = {"i8", "i32", "cast_i2($)", "$", "i32"},
    [DC_U2] = {"u8", "i32", "($ & 3)", "$", "i32"},
};

const type_row *dc_cpu_type(dc_dtype type) { return types[type].storage ? &types[type] : NULL; }

const char *dc_cpu_accumulator_type(dc_dtype type) { return type == DC_BOOL ? "u8" : types[type].compute; }

/* How a primitive is spelled for floats and for integers: $a $b arguments, $k kind suffix,
 * $t C type. */
typedef struct {
  const char *real, *integer;
} prim_row;

static const prim_row prims[DC_PRIM_COUNT] = {
    [DC_ADD] = {"$a + $b", "($t)($a + $b)"},
    [DC_SUB] = {"$a - $b", "($t)($a - $b)"},
    [DC_MUL] = {"$a * $b", "($t)($a * $b)"},
    [DC_DIV] = {"$a / $b", "($t)div_$k($a, $b)"},
    [DC_NEG] = {"-$a", "($t)(-$a)"},
    [DC_FLOORDIV] = {"floor_$k($a / $b)", "($t)floordiv_$k($a, $b)"},
    [DC_MOD] = {"mod_$k($a, $b)", "($t)mod_$k($a, $b)"},
    [DC_FMOD] = {"fmod_$k($a, $b)", "($t)rem_$k($a, $b)"},
    [DC_MIN] = {"min_$k($a, $b)", "$a < $b ? $a : $b"},
    [DC_MAX] = {"max_$k($a, $b)", "$a > $b ? $a : $b"},
    [DC_POW] = {"pow_$k($a, $b)", "($t)pow_$k($a, $b)"},
    [DC_ABS] = {"abs_$k($a)", "($t)($a < 0 ? -$a : $a)"},
    [DC_SIGN] = {"sign_$k($a)", "($t)(($a > 0) - ($a < 0))"},
    [DC_STOP] = {"$a", "$a"},
    [DC_FLOOR] = {"floor_$k($a)", NULL},
    [DC_CEIL] = {"ceil_$k($a)", NULL},
    [DC_ROUND] = {"round_$k($a)", NULL},
    [DC_TRUNC] = {"trunc_$k($a)", NULL},
    [DC_EXP] = {"exp_$k($a)", NULL},
    [DC_EXPM1] = {"expm1_$k($a)", NULL},
    [DC_LOG] = {"log_$k($a)", NULL},
    [DC_LOG1P] = {"log1p_$k($a)", NULL},
    [DC_SQRT] = {"sqrt_$k($a)", NULL},
    [DC_RSQRT] = {"rsqrt_$k($a)", NULL},
    [DC_SIN] = {"sin_$k($a)", NULL},
    [DC_COS] = {"cos_$k($a)", NULL},
    [DC_TAN] = {"tan_$k($a)", NULL},
    [DC_ASIN] = {"asin_$k($a)", NULL},
    [DC_ACOS] = {"acos_$k($a)", NULL},
    [DC_ATAN] = {"atan_$k($a)", NULL},
    [DC_SINH] = {"sinh_$k($a)", NULL},
    [DC_COSH] = {"cosh_$k($a)", NULL},
    [DC_TANH] = {"tanh_$k($a)", NULL},
    [DC_ASINH] = {"asinh_$k($a)", NULL},
    [DC_ACOSH] = {"acosh_$k($a)", NULL},
    [DC_ATANH] = {"atanh_$k($a)", NULL},
    [DC_ERF] = {"erf_$k($a)", NULL},
    [DC_SIGMOID] = {"sigmoid_$k($a)", NULL},
    [DC_SOFTPLUS] = {"softplus_$k($a)", NULL},
    [DC_LT] = {"$a < $b", "$a < $b"},
    [DC_LE] = {"$a <= $b", "$a <= $b"},
    [DC_GT] = {"$a > $b", "$a > $b"},
    [DC_GE] = {"$a >= $b", "$a >= $b"},
    [DC_EQ] = {"$a == $b", "$a == $b"},
    [DC_NE] = {"$a != $b", "$a != $b"},
    [DC_ISNAN] = {"$a != $a", "0"},
    [DC_ISINF] = {"abs_$k($a) == __builtin_inf()", "0"},
    [DC_AND] = {NULL, "$a && $b"},
    [DC_OR] = {NULL, "$a || $b"},
    [DC_NOT] = {NULL, "!$a"},
    [DC_BAND] = {NULL, "($t)($a & $b)"},
    [DC_BOR] = {NULL, "($t)($a | $b)"},
    [DC_BXOR] = {NULL, "($t)($a ^ $b)"},
    [DC_BNOT] = {NULL, "($t)~$a"},
    [DC_SHL] = {NULL, "(u64)$b < 8 * sizeof($t) ? ($t)((u64)$a << $b) : 0"},
    [DC_SHR] = {NULL, "(u64)$b < 8 * sizeof($t) ? ($t)($a >> $b) : ($t)-($a < 0)"},
    [DC_RAND] = {"rand_f32($a, $b)", "rand_f32($a, $b)"},
};

/* ---- printing ---- */

void dc_cpu_line(emitter *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char small[512], *line = small;
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  if (n >= (int)sizeof small) {
    line = dc_arena_alloc(e->arena, (size_t)n + 1);
    vsnprintf(line, (size_t)n + 1, format, again);
  }
  va_end(again);
  va_end(args);
  dc_text_indent(e->out, e->indent);
  dc_text_puts(e->out, line);
  dc_text_puts(e->out, "\n");
}

/* Fills a pattern's $a $b $k $t, or a lone $ (= $a), into the arena. */
static const char *fill(emitter *e, const char *pattern, const char *a, const char *b, const type_row *type) {
  dc_text t = {0};
  dc_text_puts(&t, "");
  for (const char *c = pattern; *c; c++) {
    if (*c != '$') {
      char one[2] = {*c, 0};
      dc_text_puts(&t, one);
      continue;
    }
    bool named = c[1] && strchr("abkt", c[1]);
    char which = named ? *++c : 'a';
    dc_text_puts(&t, which == 'a' ? a : which == 'b' ? b : which == 'k' ? type->kind : type->compute);
  }
  const char *out = dc_arena_strdup(e->arena, t.s);
  dc_text_free(&t);
  return out;
}

static const char *float_literal(emitter *e, dc_dtype type, double v) {
  const char *f = type == DC_F64 ? "" : "f";
  if (isnan(v)) return dc_arena_printf(e->arena, "__builtin_nan%s(\"\")", f);
  if (isinf(v)) return dc_arena_printf(e->arena, v < 0 ? "(-__builtin_inf%s())" : "__builtin_inf%s()", f);
  bool plain = fabs(v) < 1e6 && v == (double)(int64_t)v;
  if (plain && (v != 0 || !signbit(v))) return dc_arena_printf(e->arena, v < 0 ? "(%.1f%s)" : "%.1f%s", v, f);
  return dc_arena_printf(e->arena, signbit(v) ? "(%a%s)" : "%a%s", v, f);
}

static const char *integer_literal(emitter *e, dc_dtype type, int64_t v) {
  if (type == DC_U64) return dc_arena_printf(e->arena, "%" PRIu64 "ull", (uint64_t)v);
  if (type == DC_I64 && v == INT64_MIN) return "(-9223372036854775807ll - 1)";
  const char *suffix = type == DC_I64 && (v > INT32_MAX || v < INT32_MIN) ? "ll" : type == DC_U32 ? "u" : "";
  return dc_arena_printf(e->arena, v < 0 ? "(%" PRId64 "%s)" : "%" PRId64 "%s", v, suffix);
}

const char *dc_cpu_constant(emitter *e, dc_dtype type, double value) {
  if (dc_dtype_is_float(type)) return float_literal(e, type, value);
  dc_exnode node = *dc_ex_node(e->pool, dc_ex_const(e->pool, type, value));
  return integer_literal(e, type, node.i);
}

const char *dc_cpu_cast(emitter *e, dc_dtype to, dc_dtype from, const char *atom) {
  bool real = dc_dtype_is_float(from);
  if (to == from) return atom;
  switch (to) {
    case DC_BOOL: return fill(e, "($ != 0)", atom, "", NULL);
    case DC_F32: return from == DC_F16 || from == DC_BF16 ? atom : fill(e, "(float)$", atom, "", NULL);
    case DC_F16: return fill(e, "round_f16((float)$)", atom, "", NULL);
    case DC_BF16: return fill(e, "round_bf16((float)$)", atom, "", NULL);
    case DC_I4: return fill(e, "cast_i4((i64)$)", atom, "", NULL);
    case DC_U4: return fill(e, "(i32)((i64)$ & 15)", atom, "", NULL);
    case DC_I2: return fill(e, "cast_i2((i64)$)", atom, "", NULL);
    case DC_U2: return fill(e, "(i32)((i64)$ & 3)", atom, "", NULL);
    default: break;
  }
  const char *pattern = "($t)$";
  if (real && to == DC_U64) pattern = "($ < 0 ? (u64)(i64)$ : (u64)$)";
  else if (real && dc_dtype_bytes(to) < 4) pattern = from == DC_F64 ? "($t)(i64)$a" : "($t)(i32)$a";
  else if (real && to == DC_U32) pattern = "($t)(i64)$a";
  return fill(e, pattern, atom, "", &types[to]);
}

/* The element as it lies in memory, read as another type of the same width. */
static const char *bits_of(emitter *e, dc_dtype to, dc_dtype from, const char *atom) {
  const char *stored = from == DC_F32 ? fill(e, "bits_f32($)", atom, "", NULL) : from == DC_F64 ? fill(e, "bits_f64($)", atom, "", NULL) : fill(e, types[from].store, atom, "", NULL);
  if (to == DC_F32 || to == DC_F64) return fill(e, to == DC_F32 ? "from_f32((u32)$)" : "from_f64((u64)$)", stored, "", NULL);
  const char *same = dc_arena_printf(e->arena, "((%s)%s)", types[to].storage, stored);
  return fill(e, types[to].load, same, "", NULL);
}

const char *dc_cpu_combine(emitter *e, dc_wcr wcr, dc_dtype type, const char *a, const char *b) {
  if (type == DC_BOOL) return fill(e, wcr == DC_WCR_SUM || wcr == DC_WCR_MAX ? "$a | $b" : "$a & $b", a, b, NULL);
  const prim_row *row = &prims[dc_wcr_prim(wcr)];
  return fill(e, dc_dtype_is_float(type) ? row->real : row->integer, a, b, &types[type]);
}

/* ---- scopes and locals ---- */

uint32_t dc_cpu_scope_open(emitter *e) { return e->live.n; }

void dc_cpu_scope_close(emitter *e, uint32_t mark) {
  while (e->live.n > mark) e->facts.v[e->live.v[--e->live.n]].local = 0;
}

void dc_cpu_forget(emitter *e, uint64_t writes) {
  for (uint32_t k = 0; k < e->live.n; k++) {
    fact *f = dc_cpu_fact(e, e->live.v[k]);
    if (f->reads & writes) f->local = 0;
  }
}

static const char *local_name(emitter *e, uint32_t local) { return dc_arena_printf(e->arena, "t%u", local - 1); }

static void bind(emitter *e, dc_ex x, uint32_t local) {
  dc_cpu_fact(e, x)->local = local;
  DC_PUSH(e->arena, &e->live, x);
}

void dc_cpu_remember(emitter *e, dc_ex x, const char *atom) {
  if (atom[0] == 't') bind(e, x, (uint32_t)strtoul(atom + 1, NULL, 10) + 1);
}

static const char *define(emitter *e, dc_ex x, const char *text) {
  uint32_t local = ++e->next_local;
  dc_cpu_line(e, "const %s t%u = %s;", types[dc_ex_dtype(e->pool, x)].compute, local - 1, text);
  bind(e, x, local);
  return local_name(e, local);
}

/* ---- index sums ---- */

/* The part of a sum that does not change in loops of `level` and deeper. */
static dc_ex outer_part(emitter *e, dc_ex x, uint32_t level) {
  dc_exnode node = *dc_ex_node(e->pool, x);
  dc_ex sum = dc_ex_int(e->pool, node.i);
  for (uint32_t k = 0; k < node.nargs; k += 2) {
    dc_ex term = dc_ex_arg(e->pool, x, k), factor = dc_ex_arg(e->pool, x, k + 1);
    if (dc_cpu_fact(e, term)->level < level) sum = dc_ix_add(e->pool, sum, dc_ix_mul(e->pool, term, factor));
  }
  return sum;
}

static bool is_constant(emitter *e, dc_ex x) {
  uint8_t op = dc_ex_node(e->pool, x)->op;
  return op == DC_EX_INT || op == DC_EX_FLOAT;
}

static bool is_leaf(emitter *e, dc_ex x) {
  uint8_t op = dc_ex_node(e->pool, x)->op;
  return is_constant(e, x) || op == DC_EX_SYM || op == DC_EX_PARAM;
}

static const char *linear(emitter *e, dc_ex x) {
  uint32_t level = dc_cpu_fact(e, x)->level;
  dc_ex outer = outer_part(e, x, level);
  bool split = !is_constant(e, outer);
  dc_text t = {0};
  dc_text_puts(&t, split ? dc_cpu_value(e, outer) : "");
  dc_exnode node = *dc_ex_node(e->pool, x);
  for (uint32_t k = 0; k < node.nargs; k += 2) {
    dc_ex term = dc_ex_arg(e->pool, x, k), factor = dc_ex_arg(e->pool, x, k + 1);
    if (split && dc_cpu_fact(e, term)->level < level) continue;
    int64_t c = dc_ex_node(e->pool, factor)->i;
    const char *value = dc_cpu_value(e, term);
    if (t.n) dc_text_puts(&t, " + ");
    if (c == 1) dc_text_puts(&t, value);
    else dc_text_printf(&t, "%s * %s", value, integer_literal(e, DC_I64, c));
  }
  if (!split && node.i) dc_text_printf(&t, " + %s", integer_literal(e, DC_I64, node.i));
  const char *out = dc_arena_strdup(e->arena, t.s);
  dc_text_free(&t);
  return out;
}

static const char *product(emitter *e, dc_ex x) {
  dc_text t = {0};
  for (uint32_t k = 0; k < dc_ex_node(e->pool, x)->nargs; k++) dc_text_printf(&t, "%s%s", k ? " * " : "", dc_cpu_value(e, dc_ex_arg(e->pool, x, k)));
  const char *out = dc_arena_strdup(e->arena, t.s);
  dc_text_free(&t);
  return out;
}

static const char *index_pair(emitter *e, dc_ex x, uint8_t op) {
  dc_ex left = dc_ex_arg(e->pool, x, 0), right = dc_ex_arg(e->pool, x, 1);
  const char *a = dc_cpu_value(e, left), *b = dc_cpu_value(e, right);
  if (op == DC_EX_IMIN) return fill(e, "$a < $b ? $a : $b", a, b, NULL);
  if (op == DC_EX_IMAX) return fill(e, "$a > $b ? $a : $b", a, b, NULL);
  bool plain = dc_ix_proves_ge(e->pool, left, 0) && dc_ix_proves_ge(e->pool, right, 1);
  if (op == DC_EX_IDIV) return fill(e, plain ? "(i64)((u64)$a / (u64)$b)" : "floordiv_i64($a, $b)", a, b, NULL);
  return fill(e, plain ? "(i64)((u64)$a % (u64)$b)" : "mod_i64($a, $b)", a, b, NULL);
}

/* ---- reads and branches ---- */

/* Is the memory of c sure to hold something? */
static bool may_be_empty(emitter *e, dc_cid c) {
  dc_container container = *dc_cont(e->graph, c);
  for (uint32_t d = 0; d < container.rank; d++)
    if (!dc_ix_proves_ge(e->pool, container.shape[d], 1)) return true;
  return false;
}

const char *dc_cpu_element(emitter *e, dc_cid c, dc_ex address) {
  dc_container container = *dc_cont(e->graph, c);
  const char *at = dc_cpu_value(e, address);
  if (container.storage != DC_STORE_REGISTER) return dc_arena_printf(e->arena, "b%u[%s]", c, at);
  const char *in_block = dc_cpu_block_element(e, c);
  if (in_block) return in_block;
  bool lanes = e->lane && dc_cpu_is_inside(e->homes.v[c], e->lane);
  if (container.rank == 0) return dc_arena_printf(e->arena, lanes ? "r%u[l]" : "r%u", c);
  return dc_arena_printf(e->arena, lanes ? "r%u[%s * %u + l]" : "r%u[%s]", c, at, e->lane ? e->lane->lanes : 0);
}

static const char *read_of(emitter *e, dc_ex x) {
  dc_exnode node = *dc_ex_node(e->pool, x);
  fact f = *dc_cpu_fact(e, x);
  dc_container container = *dc_cont(e->graph, node.ref);
  const type_row *type = &types[container.dtype];
  const char *check = f.check ? dc_cpu_value(e, f.check) : NULL;
  const char *element = dc_cpu_element(e, node.ref, f.address);
  const char *load = container.storage == DC_STORE_REGISTER ? element : fill(e, type->load, element, "", type);
  if (!check) return load;
  e->flagged = true;
  dc_cpu_line(e, "bad = %s ? bad : %u;", check, e->ordinal + 1);
  return may_be_empty(e, node.ref) ? dc_arena_printf(e->arena, "%s ? %s : 0", check, load) : load;
}

static void branch(emitter *e, const char *head, const char *target, dc_ex value) {
  dc_cpu_line(e, "%s {", head);
  e->indent++;
  uint32_t mark = dc_cpu_scope_open(e);
  dc_cpu_line(e, "%s = %s;", target, dc_cpu_value(e, value));
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_cpu_line(e, "}");
}

/* A side that must not run freely: a local that an `if` fills. */
static const char *branches(emitter *e, dc_ex x, dc_ex condition, dc_ex yes, dc_ex no) {
  const char *test = dc_cpu_value(e, condition);
  uint32_t local = ++e->next_local;
  const char *target = local_name(e, local);
  dc_cpu_line(e, "%s %s;", types[dc_ex_dtype(e->pool, x)].compute, target);
  branch(e, dc_arena_printf(e->arena, "if (%s)", test), target, yes);
  branch(e, "else", target, no);
  bind(e, x, local);
  return target;
}

static bool is_free(emitter *e, dc_ex x) {
  fact *f = dc_cpu_fact(e, x);
  return f->safe || f->local;
}

static const char *scalar(emitter *e, dc_ex x) {
  dc_exnode node = *dc_ex_node(e->pool, x);
  dc_ex a = dc_ex_arg(e->pool, x, 0), b = node.nargs > 1 ? dc_ex_arg(e->pool, x, 1) : 0;
  dc_dtype type = dc_ex_dtype(e->pool, a);
  if (node.op == DC_STOP) return dc_cpu_value(e, a);
  if (node.op == DC_AND && !is_free(e, b)) return branches(e, x, a, b, dc_ex_bool(e->pool, false));
  if (node.op == DC_OR && !is_free(e, b)) return branches(e, x, a, dc_ex_bool(e->pool, true), b);
  const char *left = dc_cpu_value(e, a), *right = b ? dc_cpu_value(e, b) : "";
  const prim_row *row = &prims[node.op];
  const char *text = fill(e, dc_dtype_is_float(type) ? row->real : row->integer, left, right, &types[type]);
  bool narrow = node.dtype == type && !dc_dtype_is_float(type) && dc_dtype_compute(type) != type; /* fewer than 8 bits */
  return define(e, x, narrow ? dc_cpu_cast(e, type, DC_I32, dc_arena_printf(e->arena, "(%s)", text)) : text);
}

const char *dc_cpu_value(emitter *e, dc_ex x) {
  dc_exnode node = *dc_ex_node(e->pool, x);
  uint32_t local = dc_cpu_fact(e, x)->local;
  if (local) return local_name(e, local);
  if (node.op < DC_PRIM_COUNT) return scalar(e, x);
  dc_ex a = node.nargs ? dc_ex_arg(e->pool, x, 0) : 0;
  switch (node.op) {
    case DC_EX_INT: return integer_literal(e, (dc_dtype)node.dtype, node.i);
    case DC_EX_FLOAT: return float_literal(e, (dc_dtype)node.dtype, node.f);
    case DC_EX_SYM: return dc_arena_printf(e->arena, "s%u", node.ref);
    case DC_EX_PARAM: return dc_arena_printf(e->arena, "j%u", node.ref);
    case DC_EX_READ: return define(e, x, read_of(e, x));
    case DC_EX_LINEAR: return define(e, x, linear(e, x));
    case DC_EX_PRODUCT: return define(e, x, product(e, x));
    case DC_EX_CAST: {
      const char *value = dc_cpu_cast(e, (dc_dtype)node.dtype, dc_ex_dtype(e->pool, a), dc_cpu_value(e, a));
      return define(e, x, value);
    }
    case DC_EX_BITS: return define(e, x, bits_of(e, (dc_dtype)node.dtype, dc_ex_dtype(e->pool, a), dc_cpu_value(e, a)));
    case DC_EX_SELECT: break;
    default: return define(e, x, index_pair(e, x, node.op));
  }
  dc_ex yes = dc_ex_arg(e->pool, x, 1), no = dc_ex_arg(e->pool, x, 2);
  if (!is_free(e, yes) || !is_free(e, no)) return branches(e, x, a, yes, no);
  const char *test = dc_cpu_value(e, a), *left = dc_cpu_value(e, yes), *right = dc_cpu_value(e, no);
  return define(e, x, dc_arena_printf(e->arena, "%s ? %s : %s", test, left, right));
}

/* ---- hoisting ---- */

void dc_cpu_hoist(emitter *e, dc_ex x, uint32_t level, uint64_t writes) {
  fact f = *dc_cpu_fact(e, x);
  if (is_leaf(e, x) || f.local || f.mark == e->stamp) return;
  dc_cpu_fact(e, x)->mark = e->stamp;
  if (f.level < level && !(f.reads & writes) && f.safe) {
    (void)dc_cpu_value(e, x);
    return;
  }
  dc_exnode node = *dc_ex_node(e->pool, x);
  if (node.op == DC_EX_LINEAR) {
    dc_ex outer = outer_part(e, x, level);
    if (!is_leaf(e, outer)) dc_cpu_hoist(e, outer, level, writes);
  }
  if (node.op == DC_EX_READ) {
    dc_cpu_hoist(e, f.address, level, writes);
    if (f.check) dc_cpu_hoist(e, f.check, level, writes);
    return;
  }
  for (uint32_t k = 0; k < node.nargs; k++) dc_cpu_hoist(e, dc_ex_arg(e->pool, x, k), level, writes);
}

bool dc_cpu_uses_symbol(emitter *e, dc_sym s) {
  for (dc_ex x = 1; x < e->pool->nodes.n; x++)
    if (dc_ex_node(e->pool, x)->op == DC_EX_SYM && dc_ex_node(e->pool, x)->ref == s) return true;
  return false;
}

static double cost_of(emitter *e, dc_ex x) {
  fact f = *dc_cpu_fact(e, x);
  if (is_leaf(e, x) || f.mark == e->stamp) return 0;
  dc_cpu_fact(e, x)->mark = e->stamp;
  dc_exnode node = *dc_ex_node(e->pool, x);
  double cost = dc_ex_cost(e->pool, x);
  if (node.op == DC_EX_READ) return cost + (f.check ? cost_of(e, f.check) : 0);
  for (uint32_t k = 0; k < node.nargs; k++) cost += cost_of(e, dc_ex_arg(e->pool, x, k));
  return cost;
}

double dc_cpu_cost(emitter *e, dc_ex x) {
  e->stamp++;
  return cost_of(e, x);
}
