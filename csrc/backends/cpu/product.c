/* Matrix products inside kernels: loops m, n and a reduction k over A[m, k] * B[k, n], whatever operator they came
 * from, become calls of the library's product_f32 or product_f64, which keeps tiles of sums in registers.
 *
 * B and the sums run along n in memory.  What the map does with a sum afterwards runs on blocks of sums that
 * are still in cache. */
#include "backends/cpu/print.h"

enum { ROWS = 32, COLUMNS = 192, FEW_COLUMNS = 16, FEW_TERMS = 4 };

/* ---- which loops ---- */

static bool is_plain(const loop *l, uint8_t schedule) { return l && l->parent && l->schedule == schedule && l->step == 1 && !l->lanes; }

static bool is_long(emitter *e, const loop *l, int64_t least) {
  int64_t extent = dc_cpu_extent(e, l);
  return extent < 0 || extent >= least;
}

/* address = *by * p + rest, where none of the product's loops moves the step. */
static bool step_of(emitter *e, const gemm *x, dc_ex address, const loop *l, dc_ex *by) {
  dc_ex rest;
  if (!dc_ix_split(e->pool, address, l->param, by, &rest)) return false;
  return !dc_ex_uses_param(e->pool, *by, x->m->param) && !dc_ex_uses_param(e->pool, *by, x->n->param) &&
         !dc_ex_uses_param(e->pool, *by, x->k->param);
}

static bool is_number(emitter *e, dc_ex x, int64_t number) {
  int64_t value;
  return dc_ex_is_int(e->pool, x, &value) && value == number;
}

/* Levels are not known yet: of the facts, only where things lie. */
static bool is_apart(emitter *e, const gemm *x, dc_ex operand) {
  return !e->facts.v[operand].check && !(dc_cpu_container_bits(e, dc_ex_node(e->pool, operand)->ref) & dc_cpu_container_bits(e, x->sum->out));
}

static bool fits(emitter *e, gemm *x) {
  dc_ex at_a = e->facts.v[x->a].address, at_b = e->facts.v[x->b].address, at_c = e->facts.v[x->sum->element].address, a_n, b_m, b_n, c_n, c_k;
  if (!is_apart(e, x, x->a) || !is_apart(e, x, x->b) || e->facts.v[x->sum->element].check) return false;
  if (!step_of(e, x, at_a, x->m, &x->a_m) || !step_of(e, x, at_a, x->n, &a_n) || !step_of(e, x, at_a, x->k, &x->a_k)) return false;
  if (!step_of(e, x, at_b, x->m, &b_m) || !step_of(e, x, at_b, x->n, &b_n) || !step_of(e, x, at_b, x->k, &x->b_k)) return false;
  if (!step_of(e, x, at_c, x->m, &x->c_m) || !step_of(e, x, at_c, x->n, &c_n) || !step_of(e, x, at_c, x->k, &c_k)) return false;
  bool sums = is_number(e, c_k, 0) && (x->buffered ? is_number(e, c_n, 0) && is_number(e, x->c_m, 0) : is_number(e, c_n, 1) && !is_number(e, x->c_m, 0));
  return sums && is_number(e, a_n, 0) && is_number(e, b_m, 0) && is_number(e, b_n, 1) && !is_number(e, x->a_m, 0) && !is_number(e, x->b_k, 0);
}

static bool is_operand(emitter *e, dc_ex x, dc_dtype type) {
  const dc_exnode *node = dc_ex_node(e->pool, x);
  return node->op == DC_EX_READ && node->dtype == type && dc_cont(e->graph, node->ref)->storage == DC_STORE_HEAP;
}

/* The ranges of n and k do not move with the loops around them in the product. */
static bool is_box(emitter *e, const gemm *x) {
  const loop *n = x->n, *k = x->k;
  dc_param m = x->m->param;
  return !dc_ex_uses_param(e->pool, n->begin, m) && !dc_ex_uses_param(e->pool, n->end, m) && !dc_ex_uses_param(e->pool, k->begin, m) &&
         !dc_ex_uses_param(e->pool, k->end, m) && !dc_ex_uses_param(e->pool, k->begin, n->param) && !dc_ex_uses_param(e->pool, k->end, n->param) &&
         !dc_ex_uses_op(e->pool, k->begin, DC_EX_READ) && !dc_ex_uses_op(e->pool, k->end, DC_EX_READ);
}

static void find_at(emitter *e, loop *k) {
  loop *n = k->parent, *m = n ? n->parent : NULL;
  if (!is_plain(k, DC_MAP_REDUCE) || !k->is_entry || k->body.n != 1 || !k->body.v[0].write) return;
  if (!is_plain(n, DC_MAP_PARALLEL) || !is_plain(m, DC_MAP_PARALLEL) || m->body.n != 1 || n->body.v[0].loop != k) return;
  for (uint32_t j = 1; j < n->body.n; j++)
    if (n->body.v[j].loop) return;
  write_item *w = k->body.v[0].write;
  dc_dtype type = (dc_dtype)dc_cont(e->graph, w->out)->dtype;
  if (w->wcr != DC_WCR_SUM || w->guard || (type != DC_F32 && type != DC_F64) || dc_ex_node(e->pool, w->value)->op != DC_MUL) return;
  dc_ex a = dc_ex_arg(e->pool, w->value, 0), b = dc_ex_arg(e->pool, w->value, 1);
  if (!is_operand(e, a, type) || !is_operand(e, b, type)) return;
  if (!is_long(e, n, FEW_COLUMNS) || !is_long(e, k, FEW_TERMS) || !is_long(e, m, 2)) return;
  bool swapped = dc_ex_uses_param(e->pool, e->facts.v[a].address, n->param), buffered = dc_cont(e->graph, w->out)->storage == DC_STORE_REGISTER;
  gemm *x = DC_NEW(e->arena, gemm);
  *x = (gemm){.m = m, .n = n, .k = k, .sum = w, .a = swapped ? b : a, .b = swapped ? a : b, .buffered = buffered};
  if (is_box(e, x) && fits(e, x)) m->product = x, w->in_product = true;
}

void dc_cpu_find_products(emitter *e, loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) dc_cpu_find_products(e, l->body.v[k].loop);
  if (l != &e->root) find_at(e, l);
}

bool dc_cpu_has_product(const loop *l) {
  bool found = l->product != NULL;
  for (uint32_t k = 0; k < l->body.n && !found; k++) found = l->body.v[k].loop && dc_cpu_has_product(l->body.v[k].loop);
  return found;
}

/* ---- emission ---- */

/* &buffer[address], where the product's loops stand at the given C names. */
static const char *place(emitter *e, dc_ex read) {
  return dc_arena_printf(e->arena, "b%u + %s", dc_ex_node(e->pool, read)->ref, dc_cpu_value(e, dc_cpu_fact(e, read)->address));
}

static void put_call(emitter *e, const gemm *x, const char *rows, const char *columns) {
  const char *kind = dc_cpu_type((dc_dtype)dc_cont(e->graph, x->sum->out)->dtype)->kind;
  const char *begin = dc_cpu_value(e, x->k->begin), *end = dc_cpu_value(e, x->k->end);
  uint32_t mark = dc_cpu_scope_open(e);
  dc_cpu_line(e, "{");
  e->indent++;
  dc_cpu_line(e, "const i64 i%u = m0, i%u = n0, i%u = %s;", x->m->param, x->n->param, x->k->param, begin);
  const char *c = x->buffered ? dc_arena_printf(e->arena, "r%u", x->sum->out) : place(e, x->sum->element);
  const char *c_m = x->buffered ? dc_arena_printf(e->arena, "%d", COLUMNS) : dc_cpu_value(e, x->c_m);
  const char *a = place(e, x->a), *b = place(e, x->b), *a_m = dc_cpu_value(e, x->a_m), *a_k = dc_cpu_value(e, x->a_k), *b_k = dc_cpu_value(e, x->b_k);
  dc_cpu_line(e, "product_%s(%s, %s, %s, %s, %s, %s - %s, %s, %s, %s, %s);", kind, c, a, b, rows, columns, end, begin, c_m, a_m, a_k, b_k);
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_cpu_line(e, "}");
}

/* What follows the sums in the body of n, for one block. */
static void put_rest(emitter *e, const gemm *x) {
  loop *m = x->m, *n = x->n;
  item *all = n->body.v;
  n->body.v++, n->body.n--;
  m->product = NULL, n->low = "n0", n->high = "n1", e->block = x;
  dc_cpu_emit_range(e, m, "m0", "m1");
  m->product = (gemm *)x, n->low = n->high = NULL, e->block = NULL;
  n->body.v = all, n->body.n++;
}

void dc_cpu_emit_product(emitter *e, const gemm *x, const char *begin, const char *end) {
  const char *from = dc_cpu_value(e, x->n->begin), *to = dc_cpu_value(e, x->n->end);
  if (x->n->body.n == 1) {
    dc_cpu_line(e, "if (%s < %s && %s < %s) {", begin, end, from, to);
    dc_cpu_line(e, "  const i64 m0 = %s, n0 = %s;", begin, from);
    e->indent++;
    put_call(e, x, dc_arena_printf(e->arena, "%s - m0", end), dc_arena_printf(e->arena, "%s - n0", to));
    e->indent--;
    dc_cpu_line(e, "}");
    return;
  }
  dc_cpu_line(e, "for (i64 m0 = %s; m0 < %s; m0 += %d)", begin, end, ROWS);
  dc_cpu_line(e, "for (i64 n0 = %s; n0 < %s; n0 += %d) {", from, to, COLUMNS);
  e->indent++;
  uint32_t mark = dc_cpu_scope_open(e);
  dc_cpu_line(e, "const i64 m1 = m0 + %d < %s ? m0 + %d : %s;", ROWS, end, ROWS, end);
  dc_cpu_line(e, "const i64 n1 = n0 + %d < %s ? n0 + %d : %s;", COLUMNS, to, COLUMNS, to);
  const char *type = dc_cpu_type((dc_dtype)dc_cont(e->graph, x->sum->out)->dtype)->compute;
  if (x->buffered) dc_cpu_line(e, "%s r%u[%d] __attribute__((aligned(64)));", type, x->sum->out, ROWS * COLUMNS);
  put_call(e, x, "m1 - m0", "n1 - n0");
  dc_cpu_forget(e, dc_cpu_container_bits(e, x->sum->out));
  put_rest(e, x);
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_cpu_line(e, "}");
}

const char *dc_cpu_block_element(emitter *e, dc_cid c) {
  const gemm *x = e->block;
  if (!x || !x->buffered || x->sum->out != c) return NULL;
  return dc_arena_printf(e->arena, "r%u[(i%u - m0) * %d + i%u - n0]", c, x->m->param, COLUMNS, x->n->param);
}
