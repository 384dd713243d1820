/* Accumulators, and the order in which they take their terms.
 *
 * A vectorised reduction keeps an accumulator for each lane and folds them in halves; a long sum is one of the sums of
 * blocks. */
#include "backends/printer/printer.h"

enum { FOLDED = 4 }; /* down to so many lanes, vectors fold them: compares of scalars would branch */

static dc_accumulator *accumulator(dc_printer *p, uint32_t a) { return &p->k->accumulators.v[a]; }

const char *dc_print_accumulator_type(const dc_printer *p, uint32_t a) {
  dc_dtype type = p->k->accumulators.v[a].type;
  return type == DC_BOOL ? p->dialect->boolean_accumulator : p->dialect->types[type].compute;
}

const char *dc_print_term(dc_printer *p, uint32_t a) {
  if (!p->sums[a].width) return p->sums[a].name;
  const char *index = dc_kernel_is_laned(p->k, a) ? "l" : p->lane_index ? p->lane_index : "0";
  return dc_arena_printf(p->arena, "%s[%s]", p->sums[a].name, index);
}

/* ---- statements for all lanes ---- */

/* What stands before a loop over a strip's lanes that add up. */
static const char *columns(const dc_printer *p) { return p->lane->lanes > DC_FEW_LANES ? p->dialect->columns : p->dialect->sums; }

/* `statement` for each of `n` lanes, of which the last strip of a loop in lanes uses only some. */
static void put_for_each(dc_printer *p, uint32_t a, uint32_t n, const char *statement) {
  if (!n) {
    dc_print_line(p, "%s", statement);
    return;
  }
  dc_text_printf(p->out, "%s\n", dc_kernel_is_laned(p->k, a) ? columns(p) : p->dialect->sums);
  if (dc_kernel_is_laned(p->k, a)) dc_print_line(p, "for (i64 l = 0; l < lanes; l++) %s", statement);
  else dc_print_line(p, "for (i64 l = 0; l < %u; l++) %s", n, statement);
}

static const char *lane_of(dc_printer *p, const char *name, uint32_t width) {
  return width ? dc_arena_printf(p->arena, "%s[l]", name) : name;
}

static const char *combined(dc_printer *p, uint32_t a, const char *x, const char *y) {
  const dc_accumulator *acc = accumulator(p, a);
  return dc_arena_printf(p->arena, "(%s)", dc_print_combine(p, (dc_wcr)acc->first->wcr, acc->type, x, y));
}

static const char *addition(dc_printer *p, uint32_t a, const char *to, const char *from) {
  return dc_arena_printf(p->arena, "%s = %s;", to, combined(p, a, to, from));
}

/* Declares an accumulator at its identity and lets terms go to it. */
static void declare(dc_printer *p, uint32_t a, const char *name, uint32_t width) {
  const dc_accumulator *acc = accumulator(p, a);
  const char *type = dc_print_accumulator_type(p, a);
  const char *identity = dc_print_constant(p, acc->type, dc_wcr_identity((dc_wcr)acc->first->wcr, acc->type));
  if (width) dc_print_line(p, "%s %s[%u];", type, name, width);
  else dc_print_line(p, "%s %s;", type, name);
  put_for_each(p, a, width, dc_arena_printf(p->arena, "%s = %s;", lane_of(p, name, width), identity));
  p->sums[a].name = name, p->sums[a].width = width;
}

/* Folds lanes in halves, and then into the single value `to`. */
static void fold(dc_printer *p, uint32_t a, const char *array, uint32_t lanes, const char *to) {
  for (; lanes % 2 == 0 && lanes / 2 >= FOLDED; lanes /= 2) {
    const char *high = dc_arena_printf(p->arena, "%s[l + %u]", array, lanes / 2);
    put_for_each(p, a, lanes / 2, addition(p, a, lane_of(p, array, lanes), high));
  }
  for (uint32_t k = 0; k < lanes && lanes != FOLDED; k++)
    dc_print_line(p, "%s", addition(p, a, to, dc_arena_printf(p->arena, "%s[%u]", array, k)));
  if (lanes != FOLDED) return;
  const char *lane[FOLDED];
  for (int k = 0; k < FOLDED; k++) lane[k] = dc_arena_printf(p->arena, "%s[%d]", array, k);
  const char *even = combined(p, a, lane[0], lane[2]), *odd = combined(p, a, lane[1], lane[3]);
  dc_print_line(p, "%s", addition(p, a, to, combined(p, a, even, odd)));
}

/* ---- of a reduction ---- */

void dc_print_accumulators(dc_printer *p, const dc_loop *home, bool whole) {
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (accumulator(p, a)->home != home) continue;
    uint32_t width = dc_kernel_is_laned(p->k, a) ? p->lane->lanes : whole ? 0 : accumulator(p, a)->lanes;
    bool folds = width && !dc_kernel_is_laned(p->k, a);
    declare(p, a, dc_arena_printf(p->arena, folds ? "v%u" : "a%u", a), width);
  }
}

void dc_print_fold(dc_printer *p, const dc_loop *home) {
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (accumulator(p, a)->home != home || dc_kernel_is_laned(p->k, a) || !p->sums[a].width) continue;
    const char *array = p->sums[a].name;
    uint32_t lanes = p->sums[a].width;
    declare(p, a, dc_arena_printf(p->arena, "a%u", a), 0);
    fold(p, a, array, lanes, p->sums[a].name);
  }
}

/* ---- vectors ---- */

/* The OpenMP reduction of an accumulator, in whatever order the compiler likes; NULL if the order shows in the result. */
static const char *reduction_of(const dc_accumulator *a) {
  static const char *const integers[] = {[DC_WCR_SUM] = "+", [DC_WCR_PROD] = "*", [DC_WCR_MIN] = "min", [DC_WCR_MAX] = "max"};
  uint8_t wcr = a->first->wcr;
  if (dc_dtype_is_float(a->type)) return NULL;
  if (a->type == DC_BOOL) return wcr == DC_WCR_SUM || wcr == DC_WCR_MAX ? "|" : "&";
  return integers[wcr];
}

typedef struct {
  const dc_kernel *k;
  const dc_loop *l;
  bool found;
} truth_search;

static void visit_number(void *context, const dc_pool *pool, dc_ex x) {
  truth_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, x);
  if (node->op == DC_EX_CAST && dc_ex_dtype(pool, dc_ex_arg(pool, x, 0)) == DC_BOOL) s->found = true;
  if (node->op != DC_EX_SELECT) return;
  s->found |= dc_ex_node(pool, dc_ex_arg(pool, x, 1))->op == DC_EX_INT && dc_ex_node(pool, dc_ex_arg(pool, x, 2))->op == DC_EX_INT;
}

/* Part of an index, or of what the loop has put into a register that is part of one. */
static void visit_index(void *context, const dc_pool *pool, dc_ex x) {
  truth_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, x);
  visit_number(s, pool, x);
  if (node->op != DC_EX_READ || !dc_kernel_is_register(s->k, node->ref)) return;
  for (uint32_t j = 0; j < s->l->body.n; j++) {
    const dc_write *w = s->l->body.v[j].write;
    if (w && w->out == node->ref) dc_ex_walk(pool, w->value, visit_number, s);
  }
}

static void visit_gather(void *context, const dc_pool *pool, dc_ex x) {
  truth_search *s = context;
  dc_ex_walk(pool, dc_read_address(s->k, x), visit_index, s);
}

/* Is an index of what the loop reads made of a truth value?  GCC 12 adds a vector's mask, where true is -1, to the address. */
static bool has_truth_for_index(const dc_kernel *k, const dc_loop *l) {
  truth_search s = {k, l, false};
  for (uint32_t j = 0; j < l->body.n; j++)
    if (l->body.v[j].write) dc_kernel_each_read(k, l->body.v[j].write->value, visit_gather, &s);
  return s.found;
}

bool dc_print_vectors(dc_printer *p, const dc_loop *body, dc_text *out) {
  if (has_truth_for_index(p->k, body)) return false;
  dc_text reductions = {0};
  bool ordered = false, laned = p->in_lane && p->lane->lanes < DC_FEW_LANES; /* fewer than vectors have: they stay in registers alone */
  dc_text_puts(&reductions, "");
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (!dc_loop_accumulates(body, a, false)) continue;
    laned |= dc_kernel_is_laned(p->k, a);
    if (dc_kernel_is_laned(p->k, a) || body->spread) continue;
    const char *reduction = reduction_of(accumulator(p, a));
    if (reduction) dc_text_printf(&reductions, " reduction(%s : %s)", reduction, p->sums[a].name);
    ordered |= !reduction;
  }
  if (p->flagged) dc_text_puts(&reductions, " reduction(max : bad)");
  if (!ordered) dc_text_printf(out, "%s%s\n", laned && !*reductions.s ? columns(p) : p->dialect->vectors, reductions.s);
  dc_text_free(&reductions);
  return !ordered;
}

/* ---- lanes ---- */

static dc_outer_sums no_sums(dc_printer *p) {
  uint32_t n = p->k->accumulators.n;
  return (dc_outer_sums){.names = DC_NEW_ARRAY(p->arena, const char *, n), .widths = DC_NEW_ARRAY(p->arena, uint32_t, n)};
}

static void replace(dc_printer *p, dc_outer_sums *outer, uint32_t a, const char *name, uint32_t width) {
  outer->names[a] = p->sums[a].name, outer->widths[a] = p->sums[a].width;
  declare(p, a, name, width);
}

dc_outer_sums dc_print_lanes_begin(dc_printer *p, const dc_loop *l, uint32_t lanes) {
  dc_outer_sums outer = no_sums(p);
  for (uint32_t a = 0; a < p->k->accumulators.n; a++)
    if (dc_loop_accumulates(l, a, false)) replace(p, &outer, a, dc_arena_printf(p->arena, "w%u_a%u", l->param, a), lanes);
  return outer;
}

void dc_print_lanes_end(dc_printer *p, const dc_outer_sums *outer) {
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    const char *to = outer->names[a], *array = p->sums[a].name;
    if (!to) continue;
    uint32_t lanes = p->sums[a].width;
    if (outer->widths[a]) put_for_each(p, a, lanes, addition(p, a, lane_of(p, to, lanes), lane_of(p, array, lanes)));
    else fold(p, a, array, lanes, to);
    p->sums[a].name = to, p->sums[a].width = outer->widths[a];
  }
}

/* ---- blocks ---- */

dc_outer_sums dc_print_block_begin(dc_printer *p, const dc_loop *l, uint32_t lanes, uint32_t level, const char *begin, const char *end) {
  dc_outer_sums outer = no_sums(p);
  outer.from = dc_arena_printf(p->arena, "from%u_%u", l->param, level);
  outer.to = dc_arena_printf(p->arena, "to%u_%u", l->param, level);
  long long size = l->step * (lanes ? lanes : 1);
  for (uint32_t k = 0; k < level; k++) size *= DC_SUM_BLOCK;
  dc_print_line(p, "for (i64 %s = %s; %s < %s; %s += %lld) {", outer.from, begin, outer.from, end, outer.from, size);
  p->indent++;
  dc_print_line(p, "const i64 %s = %s - %s < %lld ? %s : %s + %lld;", outer.to, end, outer.from, size, end, outer.from, size);
  for (uint32_t a = 0; a < p->k->accumulators.n; a++)
    if (dc_kernel_is_sum_through(p->k, l, a))
      replace(p, &outer, a, dc_arena_printf(p->arena, "p%u_%u_a%u", l->param, level, a), p->sums[a].width);
  return outer;
}

void dc_print_block_end(dc_printer *p, const dc_outer_sums *outer) {
  for (uint32_t a = 0; a < p->k->accumulators.n; a++) {
    if (!outer->names[a]) continue;
    uint32_t width = outer->widths[a];
    put_for_each(p, a, width, addition(p, a, lane_of(p, outer->names[a], width), lane_of(p, p->sums[a].name, width)));
    p->sums[a].name = outer->names[a];
  }
  dc_print_close(p);
}
