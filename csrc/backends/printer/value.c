/* Expressions.
 *
 * Each distinct expression becomes one constant local, printed where it is first needed or, by
 * dc_print_hoist, before the loop that it does not depend on.  A local lives until its scope
 * ends or something that it read is written.  A side of a select that may not be evaluated
 * freely (an access that the condition guards) is printed inside an `if`. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/printer/printer.h"

/* ---- literals and patterns ---- */

/* Fills a pattern's $a $b $k $t, or a lone $ (= $a), into the arena. */
static const char *fill(dc_printer *p, const char *pattern, const char *a, const char *b, const dc_type_spelling *type) {
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
  const char *out = dc_arena_strdup(p->arena, t.s);
  dc_text_free(&t);
  return out;
}

const char *dc_print_around(dc_printer *p, const char *pattern, const char *atom) { return fill(p, pattern, atom, "", NULL); }

static const char *float_literal(dc_printer *p, dc_dtype type, double v) {
  const char *f = type == DC_F64 ? "" : "f";
  if (isnan(v)) return type == DC_F64 ? p->dialect->nan_f64 : p->dialect->nan_f32;
  if (isinf(v)) return dc_arena_printf(p->arena, v < 0 ? "(-%s)" : "%s", type == DC_F64 ? p->dialect->inf_f64 : p->dialect->inf_f32);
  bool plain = fabs(v) < 1e6 && v == (double)(int64_t)v;
  if (plain && (v != 0 || !signbit(v))) return dc_arena_printf(p->arena, v < 0 ? "(%.1f%s)" : "%.1f%s", v, f);
  return dc_arena_printf(p->arena, signbit(v) ? "(%a%s)" : "%a%s", v, f);
}

static const char *integer_literal(dc_printer *p, dc_dtype type, int64_t v) {
  if (type == DC_U64) return dc_arena_printf(p->arena, "%" PRIu64 "ull", (uint64_t)v);
  if (type == DC_I64 && v == INT64_MIN) return "(-9223372036854775807ll - 1)";
  const char *suffix = type == DC_I64 && (v > INT32_MAX || v < INT32_MIN) ? "ll" : type == DC_U32 ? "u" : "";
  return dc_arena_printf(p->arena, v < 0 ? "(%" PRId64 "%s)" : "%" PRId64 "%s", v, suffix);
}

const char *dc_print_constant(dc_printer *p, dc_dtype type, double value) {
  if (dc_dtype_is_float(type)) return float_literal(p, type, value);
  dc_exnode node = *dc_ex_node(p->pool, dc_ex_const(p->pool, type, value));
  return integer_literal(p, type, node.i);
}

/* Of a condition vectors have a mask, which chooses between two numbers but is none. */
static const char *of_condition(dc_printer *p, dc_dtype to, const char *atom) {
  return dc_arena_printf(p->arena, "(%s ? %s : %s)", atom, float_literal(p, to, 1), float_literal(p, to, 0));
}

const char *dc_print_cast(dc_printer *p, dc_dtype to, dc_dtype from, const char *atom) {
  bool real = dc_dtype_is_float(from);
  if (to == from) return atom;
  if (from == DC_BOOL && (to == DC_F32 || to == DC_F64)) return of_condition(p, to, atom);
  switch (to) {
    case DC_BOOL: return fill(p, "($ != 0)", atom, "", NULL);
    case DC_F32: return real && from != DC_F64 ? atom : fill(p, "(float)$", atom, "", NULL);
    case DC_F16: case DC_BF16: case DC_F8E4M3FN: case DC_F8E4M3FNUZ: case DC_F8E5M2: case DC_F8E5M2FNUZ: case DC_F4E2M1: case DC_F8E8M0:
      return dc_arena_printf(p->arena, "round_%s((float)%s)", dc_dtype_name(to), dc_print_cast(p, DC_F32, from, atom));
    case DC_I4: return fill(p, "cast_i4((i64)$)", atom, "", NULL);
    case DC_U4: return fill(p, "(i32)((i64)$ & 15)", atom, "", NULL);
    case DC_I2: return fill(p, "cast_i2((i64)$)", atom, "", NULL);
    case DC_U2: return fill(p, "(i32)((i64)$ & 3)", atom, "", NULL);
    default: break;
  }
  const char *pattern = "($t)$";
  if (real && to == DC_U64) pattern = "($ < 0 ? (u64)(i64)$ : (u64)$)";
  else if (real && dc_dtype_bytes(to) < 4) pattern = from == DC_F64 ? "($t)(i64)$a" : "($t)(i32)$a";
  else if (real && to == DC_U32) pattern = "($t)(i64)$a";
  return fill(p, pattern, atom, "", &p->dialect->types[to]);
}

/* A number of the kernel's: under a name of its own in a loose text. */
static const char *number(dc_printer *p, dc_dtype type, int64_t value) {
  const char *literal = integer_literal(p, type, value);
  return dc_print_is_loose(p, type, value) ? dc_print_loose(p, type, value, literal) : literal;
}

static const char *real_number(dc_printer *p, dc_dtype type, double value) {
  const char *literal = float_literal(p, type, value);
  float narrow = (float)value;
  int64_t bits = 0;
  if (type == DC_F64) memcpy(&bits, &value, sizeof value);
  else memcpy(&bits, &narrow, sizeof narrow);
  return isfinite(value) && isfinite(narrow) && dc_print_is_loose(p, type, bits) ? dc_print_loose(p, type, bits, literal) : literal;
}

/* An operand that the compiler should know, as what divides. */
static const char *known_value(dc_printer *p, dc_ex x) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  if (node.op == DC_EX_INT) return integer_literal(p, (dc_dtype)node.dtype, node.i);
  return node.op == DC_EX_FLOAT ? float_literal(p, (dc_dtype)node.dtype, node.f) : dc_print_value(p, x);
}

/* The element as it lies in memory, read as another type of the same width. */
static const char *bits_of(dc_printer *p, dc_dtype to, dc_dtype from, const char *atom) {
  const dc_dialect *d = p->dialect;
  const char *taken = from == DC_F32 ? d->bits_f32 : from == DC_F64 ? d->bits_f64 : d->types[from].store;
  const char *stored = fill(p, taken, atom, "", NULL);
  if (to == DC_F32 || to == DC_F64) return fill(p, to == DC_F32 ? d->from_f32 : d->from_f64, stored, "", NULL);
  const char *same = dc_arena_printf(p->arena, "((%s)%s)", d->types[to].storage, stored);
  return fill(p, d->types[to].load, same, "", NULL);
}

const char *dc_print_combine(dc_printer *p, dc_wcr wcr, dc_dtype type, const char *a, const char *b) {
  if (type == DC_BOOL) return fill(p, wcr == DC_WCR_SUM || wcr == DC_WCR_MAX ? "$a | $b" : "$a & $b", a, b, NULL);
  const dc_prim_spelling *row = &p->dialect->prims[dc_wcr_prim(wcr)];
  return fill(p, dc_dtype_is_float(type) ? row->real : row->integer, a, b, &p->dialect->types[type]);
}

/* ---- scopes and locals ---- */

uint32_t dc_print_scope(dc_printer *p) { return p->live.n; }

void dc_print_scope_end(dc_printer *p, uint32_t mark) {
  while (p->live.n > mark) p->locals.v[p->live.v[--p->live.n]] = 0;
}

uint32_t dc_print_bound(const dc_printer *p, dc_ex x) { return x < p->locals.n ? p->locals.v[x] : 0; }

void dc_print_bind(dc_printer *p, dc_ex x, uint32_t local) {
  while (p->locals.n <= x) DC_PUSH(p->arena, &p->locals, 0);
  p->locals.v[x] = local;
  DC_PUSH(p->arena, &p->live, x);
}

void dc_print_forget(dc_printer *p, uint64_t writes) {
  for (uint32_t k = 0; k < p->live.n; k++)
    if (dc_kernel_dependence(p->k, p->live.v[k]).reads & writes) p->locals.v[p->live.v[k]] = 0;
}

static const char *local_name(dc_printer *p, uint32_t local) { return dc_arena_printf(p->arena, "t%u", local - 1); }

void dc_print_remember(dc_printer *p, dc_ex x, const char *atom) {
  if (atom[0] == 't') dc_print_bind(p, x, (uint32_t)strtoul(atom + 1, NULL, 10) + 1);
}

const char *dc_print_local(dc_printer *p, dc_dtype type, const char *text) {
  uint32_t local = ++p->next_local;
  dc_print_line(p, "const %s t%u = %s;", p->dialect->types[type].compute, local - 1, text);
  return local_name(p, local);
}

static const char *define(dc_printer *p, dc_ex x, const char *text) {
  const char *type = dc_print_is_narrow(p, x) ? p->dialect->narrow_index : p->dialect->types[dc_ex_dtype(p->pool, x)].compute;
  uint32_t local = ++p->next_local;
  dc_print_line(p, "const %s t%u = %s;", type, local - 1, text);
  dc_print_bind(p, x, local);
  return local_name(p, local);
}

/* ---- indices of 32 bits ---- */

enum { NARROW = 1 << 30 }; /* a step more still fits */

static int64_t size_of(int64_t lo, int64_t hi) { return lo < -NARROW || hi > NARROW ? NARROW : -lo > hi ? -lo : hi; }

/* No part of the sum leaves the range, in whatever order it is added. */
static bool is_narrow_sum(dc_printer *p, dc_ex x) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  int64_t all = size_of(node.i, node.i), lo, hi;
  for (uint32_t k = 0; k < node.nargs && all < NARROW; k += 2) {
    dc_ex term = dc_ex_arg(p->pool, x, k);
    int64_t factor = dc_ex_node(p->pool, dc_ex_arg(p->pool, x, k + 1))->i;
    if (!dc_print_is_narrow(p, term) || !dc_ix_bounds(p->pool, term, &lo, &hi)) return false;
    all += size_of(factor, factor) * size_of(lo, hi); /* at most 2^60 */
  }
  return all < NARROW;
}

bool dc_print_is_narrow(dc_printer *p, dc_ex x) {
  const dc_exnode node = *dc_ex_node(p->pool, x);
  int64_t lo, hi, all = 1;
  if (!p->dialect->narrow_index || node.dtype != DC_I64) return false;
  if (node.op == DC_EX_INT) return node.i > -NARROW && node.i < NARROW;
  if (node.op == DC_EX_LINEAR) return is_narrow_sum(p, x);
  bool index = node.op == DC_EX_PARAM || node.op == DC_EX_PRODUCT || node.op == DC_EX_IDIV || node.op == DC_EX_IMOD ||
               node.op == DC_EX_IMIN || node.op == DC_EX_IMAX;
  if (!index || !dc_ix_bounds(p->pool, x, &lo, &hi) || lo <= -NARROW || hi >= NARROW) return false;
  for (uint32_t k = 0; k < node.nargs; k++) {
    dc_ex part = dc_ex_arg(p->pool, x, k);
    if (!dc_print_is_narrow(p, part) || !dc_ix_bounds(p->pool, part, &lo, &hi)) return false;
    if (node.op == DC_EX_PRODUCT && (all *= size_of(lo, hi)) >= NARROW) return false;
  }
  return true;
}

const char *dc_print_index_type(dc_printer *p, dc_ex x) {
  return dc_print_is_narrow(p, x) ? p->dialect->narrow_index : p->dialect->types[DC_I64].compute;
}

/* An operand of arithmetic on 64 bits. */
static const char *wide(dc_printer *p, dc_ex x, const char *atom) {
  return dc_print_is_narrow(p, x) && dc_ex_node(p->pool, x)->op != DC_EX_INT
             ? dc_arena_printf(p->arena, "(%s)%s", p->dialect->types[DC_I64].compute, atom)
             : atom;
}

/* ---- index sums ---- */

/* The part of a sum that does not change in loops of `level` and deeper. */
static dc_ex outer_part(dc_printer *p, dc_ex x, uint32_t level) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  dc_ex sum = dc_ex_int(p->pool, node.i);
  for (uint32_t k = 0; k < node.nargs; k += 2) {
    dc_ex term = dc_ex_arg(p->pool, x, k), factor = dc_ex_arg(p->pool, x, k + 1);
    if (dc_kernel_dependence(p->k, term).level < level) sum = dc_ix_add(p->pool, sum, dc_ix_mul(p->pool, term, factor));
  }
  return sum;
}

static bool is_constant(dc_printer *p, dc_ex x) {
  uint8_t op = dc_ex_node(p->pool, x)->op;
  return op == DC_EX_INT || op == DC_EX_FLOAT;
}

static bool is_leaf(dc_printer *p, dc_ex x) {
  uint8_t op = dc_ex_node(p->pool, x)->op;
  return is_constant(p, x) || op == DC_EX_SYM || op == DC_EX_PARAM;
}

static const char *linear(dc_printer *p, dc_ex x) {
  uint32_t level = dc_kernel_dependence(p->k, x).level;
  dc_ex outer = outer_part(p, x, level);
  bool split = !is_constant(p, outer), narrow = dc_print_is_narrow(p, x);
  dc_text t = {0};
  dc_text_puts(&t, !split ? "" : narrow ? dc_print_value(p, outer) : wide(p, outer, dc_print_value(p, outer)));
  dc_exnode node = *dc_ex_node(p->pool, x);
  for (uint32_t k = 0; k < node.nargs; k += 2) {
    dc_ex term = dc_ex_arg(p->pool, x, k), factor = dc_ex_arg(p->pool, x, k + 1);
    if (split && dc_kernel_dependence(p->k, term).level < level) continue;
    int64_t c = dc_ex_node(p->pool, factor)->i;
    const char *value = dc_print_value(p, term);
    if (!narrow) value = wide(p, term, value);
    if (t.n) dc_text_puts(&t, " + ");
    if (c == 1) dc_text_puts(&t, value);
    else dc_text_printf(&t, "%s * %s", value, number(p, DC_I64, c));
  }
  if (!split && node.i) dc_text_printf(&t, " + %s", number(p, DC_I64, node.i));
  const char *out = dc_arena_strdup(p->arena, t.s);
  dc_text_free(&t);
  return out;
}

static const char *product(dc_printer *p, dc_ex x) {
  dc_text t = {0};
  bool narrow = dc_print_is_narrow(p, x);
  for (uint32_t k = 0; k < dc_ex_node(p->pool, x)->nargs; k++) {
    dc_ex part = dc_ex_arg(p->pool, x, k);
    const char *value = dc_print_value(p, part);
    dc_text_printf(&t, "%s%s", k ? " * " : "", narrow ? value : wide(p, part, value));
  }
  const char *out = dc_arena_strdup(p->arena, t.s);
  dc_text_free(&t);
  return out;
}

static const char *index_pair(dc_printer *p, dc_ex x, uint8_t op) {
  dc_ex left = dc_ex_arg(p->pool, x, 0), right = dc_ex_arg(p->pool, x, 1);
  const char *a = dc_print_value(p, left), *b = op == DC_EX_IMIN || op == DC_EX_IMAX ? dc_print_value(p, right) : known_value(p, right);
  if (op == DC_EX_IMIN) return fill(p, "$a < $b ? $a : $b", a, b, NULL);
  if (op == DC_EX_IMAX) return fill(p, "$a > $b ? $a : $b", a, b, NULL);
  bool plain = dc_ix_proves_ge(p->pool, left, 0) && dc_ix_proves_ge(p->pool, right, 1);
  if (plain && dc_print_is_narrow(p, x))
    return fill(p, op == DC_EX_IDIV ? "(i32)((u32)$a / (u32)$b)" : "(i32)((u32)$a % (u32)$b)", a, b, NULL);
  if (op == DC_EX_IDIV) return fill(p, plain ? "(i64)((u64)$a / (u64)$b)" : "floordiv_i64($a, $b)", a, b, NULL);
  return fill(p, plain ? "(i64)((u64)$a % (u64)$b)" : "mod_i64($a, $b)", a, b, NULL);
}

/* ---- reads and branches ---- */

/* Is the memory of c sure to hold something? */
static bool may_be_empty(dc_printer *p, dc_cid c) {
  dc_container container = *dc_cont(p->k->graph, c);
  for (uint32_t d = 0; d < container.rank; d++)
    if (!dc_ix_proves_ge(p->pool, container.shape[d], 1)) return true;
  return false;
}

const char *dc_print_block_element(dc_printer *p, dc_cid c) {
  const dc_product *x = p->block;
  for (uint32_t k = 0; x && k < x->n_sums; k++)
    if (x->sums[k].buffered && x->sums[k].sum->out == c)
      return dc_arena_printf(p->arena, "r%u[(j%u - m0) * %lld + j%u - n0]", c, x->m->param, (long long)x->columns, x->n->param);
  return NULL;
}

const dc_loop *dc_print_turning(const dc_loop *l) {
  while (l && !l->turns && (l->pack || l->on_grid)) l = l->parent;
  return l && l->turns ? l : NULL;
}

/* Does it hold other elements in each turn? */
bool dc_print_moves(const dc_printer *p, const dc_loop *l, uint32_t pack) {
  const dc_loop *turning = dc_print_turning(l);
  return turning && (turning == l || dc_ex_uses_param(p->pool, p->packs[pack].address, turning->param));
}

const char *dc_print_lane(dc_printer *p, const dc_loop *l, uint32_t pack, const char *lane) {
  const uint32_t x = p->next_pack + pack;
  if (!dc_print_moves(p, l, pack)) return dc_arena_printf(p->arena, "x%u[%s]", x, lane);
  return dc_arena_printf(p->arena, "x%u[turn%u * %u + %s]", x, dc_print_turning(l)->param, l->pack, lane);
}

/* Of what a pack holds, in the lane that is printed; NULL: it is in memory. */
static const char *pack_element(dc_printer *p, dc_cid c, dc_ex address) {
  const dc_loop *l = p->packed;
  for (uint32_t k = 0; k < p->n_packs; k++)
    if (p->packs[k].c == c && p->packs[k].address == address)
      return dc_print_lane(p, l, k, "l");
  return NULL;
}

/* The address is the parameter of a loop that takes turns. */
static const char *own_element(dc_printer *p, dc_cid c, dc_ex address) {
  const dc_loop *l = p->k->loop_of.v[dc_ex_node(p->pool, address)->ref];
  return dc_arena_printf(p->arena, l->pack ? "r%u[turn%u * %u + l]" : "r%u[turn%u]", c, l->param, l->pack);
}

const char *dc_print_element(dc_printer *p, dc_cid c, dc_ex address) {
  const char *in_pack = pack_element(p, c, address);
  if (in_pack) return in_pack;
  if (dc_kernel_is_own(p->k, c)) return own_element(p, c, address);
  const char *at = dc_print_value(p, address);
  if (!dc_kernel_is_register(p->k, c)) return dc_arena_printf(p->arena, "b%u[%s]", c, at);
  const char *in_block = dc_print_block_element(p, c);
  if (in_block) return in_block;
  bool lanes = p->lane && dc_loop_is_inside(p->k->homes.v[c], p->lane);
  if (dc_cont(p->k->graph, c)->rank == 0) return dc_arena_printf(p->arena, lanes ? "r%u[l]" : "r%u", c);
  return dc_arena_printf(p->arena, lanes ? "r%u[%s * %u + l]" : "r%u[%s]", c, at, p->lane ? p->lane->lanes : 0);
}

bool dc_print_is_checked(const dc_printer *p, dc_ex check) {
  bool found = false;
  for (uint32_t k = 0; k < p->checked.n && !found; k++) found = p->checked.v[k] == check;
  return found;
}

static const char *read_of(dc_printer *p, dc_ex x) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  dc_ex condition = dc_read_check(p->k, x);
  const dc_type_spelling *type = &p->dialect->types[dc_cont(p->k->graph, node.ref)->dtype];
  const char *check = condition ? dc_print_value(p, condition) : NULL;
  const char *element = dc_print_element(p, node.ref, dc_read_address(p->k, x));
  const char *load = dc_kernel_is_register(p->k, node.ref) ? element : fill(p, type->load, element, "", type);
  if (!check || dc_print_is_checked(p, condition)) return load;
  p->flagged = true;
  dc_print_line(p, "bad = %s ? bad : %u;", check, p->ordinal + 1);
  return may_be_empty(p, node.ref) ? dc_arena_printf(p->arena, "%s ? %s : 0", check, load) : load;
}

static void branch(dc_printer *p, const char *head, const char *target, dc_ex value) {
  dc_print_line(p, "%s {", head);
  p->indent++;
  uint32_t mark = dc_print_scope(p);
  dc_print_line(p, "%s = %s;", target, dc_print_value(p, value));
  dc_print_scope_end(p, mark);
  p->indent--;
  dc_print_line(p, "}");
}

/* A side that must not run freely: a local that an `if` fills. */
static const char *branches(dc_printer *p, dc_ex x, dc_ex condition, dc_ex yes, dc_ex no) {
  const char *test = dc_print_value(p, condition);
  uint32_t local = ++p->next_local;
  const char *target = local_name(p, local);
  dc_print_line(p, "%s %s;", p->dialect->types[dc_ex_dtype(p->pool, x)].compute, target);
  branch(p, dc_arena_printf(p->arena, "if (%s)", test), target, yes);
  branch(p, "else", target, no);
  dc_print_bind(p, x, local);
  return target;
}

/* It reads nothing that a branch keeps from being read: seen through a few operators. */
static bool is_free_to(dc_printer *p, dc_ex x, uint32_t depth) {
  const dc_exnode node = *dc_ex_node(p->pool, x);
  if (dc_kernel_dependence(p->k, x).safe || dc_print_bound(p, x)) return true;
  bool all = depth > 0 && node.op < DC_PRIM_COUNT && node.op != DC_AND && node.op != DC_OR;
  for (uint32_t k = 0; k < node.nargs && all; k++) all = is_free_to(p, dc_ex_arg(p->pool, x, k), depth - 1);
  return all;
}

static bool is_free(dc_printer *p, dc_ex x) { return is_free_to(p, x, 2); }

/* Where the text of a branch would keep vectors away, as in lanes, where what decides does not change in the loop, and among
 * loads; NULL elsewhere. */
static const char *picked(dc_printer *p, dc_ex x, bool fixed, const char *test, const char *yes, const char *no) {
  bool wanted = (p->lane || fixed) && p->dialect->pick_f32 && dc_ex_dtype(p->pool, x) == DC_F32;
  return wanted ? dc_arena_printf(p->arena, p->dialect->pick_f32, test, yes, no) : NULL;
}

static const char *picked_extreme(dc_printer *p, dc_ex x, const char *a, const char *b) {
  uint8_t op = dc_ex_node(p->pool, x)->op;
  if (op != DC_MIN && op != DC_MAX) return NULL;
  uint8_t first = dc_ex_node(p->pool, dc_ex_arg(p->pool, x, 0))->op, second = dc_ex_node(p->pool, dc_ex_arg(p->pool, x, 1))->op;
  bool loads = (first == DC_EX_READ || first == op) && second == DC_EX_READ;
  const char *pattern = op == DC_MIN ? "(%s < %s) | (%s != %s)" : "(%s > %s) | (%s != %s)";
  return picked(p, x, loads, dc_arena_printf(p->arena, pattern, a, b, a, a), a, b);
}

static const char *ranged(dc_printer *p, dc_ex x, dc_ex a) {
  const dc_ranged_spelling *row = p->dialect->ranged;
  const dc_op op = (dc_op)dc_ex_node(p->pool, x)->op;
  if (!row || dc_dtype_compute(dc_ex_dtype(p->pool, a)) != DC_F32) return NULL;
  for (; row->spelling; row++) {
    if (row->prim != op) continue;
    const dc_range of = dc_ex_range(p->pool, a);
    if (of.lo >= row->range.lo && of.hi <= row->range.hi) return row->spelling;
  }
  return NULL;
}

/* A product and a constant that is added, or that it is taken from, are one operation: polynomials are chains of these.  Of two products
 * it would round only one, and their difference would not be 0 where they are equal. */
static const char *fused(dc_printer *p, dc_ex x) {
  const dc_exnode node = *dc_ex_node(p->pool, x);
  const char *pattern = node.dtype == DC_F32 ? p->dialect->fused_f32 : node.dtype == DC_F64 ? p->dialect->fused_f64 : NULL;
  double number;
  if (!pattern || (node.op != DC_ADD && node.op != DC_SUB)) return NULL;
  const dc_ex a = dc_ex_arg(p->pool, x, 0), b = dc_ex_arg(p->pool, x, 1);
  const bool is_behind = dc_ex_is_const(p->pool, b, &number);
  const dc_ex product = is_behind ? a : b, added = is_behind ? b : a;
  if (!dc_ex_is_const(p->pool, added, &number) || dc_ex_node(p->pool, product)->op != DC_MUL || dc_print_bound(p, product)) return NULL;
  const char *left = dc_print_value(p, dc_ex_arg(p->pool, product, 0)), *right = dc_print_value(p, dc_ex_arg(p->pool, product, 1));
  const char *rest = dc_print_value(p, added);
  if (node.op == DC_SUB && is_behind) rest = dc_arena_printf(p->arena, "-(%s)", rest);
  if (node.op == DC_SUB && !is_behind) left = dc_arena_printf(p->arena, "-%s", left);
  return dc_arena_printf(p->arena, pattern, left, right, rest);
}

/* It is no slower where the compiler does not know the right operand. */
static bool takes_any(uint8_t op) {
  bool compares = op == DC_LT || op == DC_LE || op == DC_GT || op == DC_GE;
  return compares || op == DC_ADD || op == DC_SUB || op == DC_MUL || op == DC_MIN || op == DC_MAX;
}

static const char *scalar(dc_printer *p, dc_ex x) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  dc_ex a = dc_ex_arg(p->pool, x, 0), b = node.nargs > 1 ? dc_ex_arg(p->pool, x, 1) : 0;
  dc_dtype type = dc_ex_dtype(p->pool, a);
  if (node.op == DC_STOP) return dc_print_value(p, a);
  if (node.op == DC_AND && !is_free(p, b)) return branches(p, x, a, b, dc_ex_bool(p->pool, false));
  if (node.op == DC_OR && !is_free(p, b)) return branches(p, x, a, dc_ex_bool(p->pool, true), b);
  const char *one = fused(p, x);
  if (one) return define(p, x, one);
  const char *left = dc_print_value(p, a), *right = !b ? "" : takes_any(node.op) ? dc_print_value(p, b) : known_value(p, b);
  const dc_prim_spelling *row = &p->dialect->prims[node.op];
  const char *text = picked_extreme(p, x, left, right);
  const char *spelling = ranged(p, x, a);
  if (!spelling) spelling = dc_dtype_is_float(type) ? row->real : row->integer;
  if (!text) text = fill(p, spelling, left, right, &p->dialect->types[type]);
  bool narrow = node.dtype == type && !dc_dtype_is_float(type) && dc_dtype_compute(type) != type; /* fewer than 8 bits */
  return define(p, x, narrow ? dc_print_cast(p, type, DC_I32, dc_arena_printf(p->arena, "(%s)", text)) : text);
}

const char *dc_print_value(dc_printer *p, dc_ex x) {
  dc_exnode node = *dc_ex_node(p->pool, x);
  uint32_t local = dc_print_bound(p, x);
  if (local) return local_name(p, local);
  if (node.op < DC_PRIM_COUNT) return scalar(p, x);
  dc_ex a = node.nargs ? dc_ex_arg(p->pool, x, 0) : 0;
  switch (node.op) {
    case DC_EX_INT: return number(p, (dc_dtype)node.dtype, node.i);
    case DC_EX_FLOAT: return real_number(p, (dc_dtype)node.dtype, node.f);
    case DC_EX_SYM:
      if (p->used_symbols) p->used_symbols[node.ref] = true;
      return dc_arena_printf(p->arena, "s%u", node.ref);
    case DC_EX_PARAM: return dc_arena_printf(p->arena, "j%u", node.ref);
    case DC_EX_READ: return define(p, x, read_of(p, x));
    case DC_EX_LINEAR: return define(p, x, linear(p, x));
    case DC_EX_PRODUCT: return define(p, x, product(p, x));
    case DC_EX_CAST: {
      const char *value = dc_print_cast(p, (dc_dtype)node.dtype, dc_ex_dtype(p->pool, a), dc_print_value(p, a));
      return define(p, x, value);
    }
    case DC_EX_BITS: return define(p, x, bits_of(p, (dc_dtype)node.dtype, dc_ex_dtype(p->pool, a), dc_print_value(p, a)));
    case DC_EX_SELECT: break;
    default: return define(p, x, index_pair(p, x, node.op));
  }
  dc_ex yes = dc_ex_arg(p->pool, x, 1), no = dc_ex_arg(p->pool, x, 2);
  if (!is_free(p, yes) || !is_free(p, no)) return branches(p, x, a, yes, no);
  const char *test = dc_print_value(p, a), *left = dc_print_value(p, yes), *right = dc_print_value(p, no);
  bool fixed = dc_kernel_dependence(p->k, a).level < dc_kernel_dependence(p->k, x).level;
  const char *text = picked(p, x, fixed, test, left, right);
  return define(p, x, text ? text : dc_arena_printf(p->arena, "%s ? %s : %s", test, left, right));
}

/* ---- hoisting ---- */

void dc_print_hoist(dc_printer *p, dc_ex x, uint32_t level, uint64_t writes) {
  if (is_leaf(p, x) || dc_print_bound(p, x) || !dc_kernel_first(p->k, x)) return;
  dc_dependence d = dc_kernel_dependence(p->k, x);
  if (d.level < level && !(d.reads & writes) && d.safe) {
    (void)dc_print_value(p, x);
    return;
  }
  dc_exnode node = *dc_ex_node(p->pool, x);
  if (node.op == DC_EX_LINEAR) {
    dc_ex outer = outer_part(p, x, level);
    if (!is_leaf(p, outer)) dc_print_hoist(p, outer, level, writes);
  }
  for (uint32_t k = 0; k < node.nargs; k++) dc_print_hoist(p, dc_ex_arg(p->pool, x, k), level, writes);
}
