/* Matrix products inside kernels: loops m and n around reductions k over A[m, k] * B[k, n], whatever operator they
 * came from, become calls of the library's product_f32 or product_f64, which keeps tiles of sums in registers.
 *
 * B and the sums run along n in memory.  What the map does with the sums afterwards runs on blocks of them that
 * are still in cache. */
#include "backends/cpu/print.h"

enum { ROWS = 128, COLUMNS = 96, FEW_COLUMNS = 16, FEW_TERMS = 4, MAX_OUTER = 8 };

/* ---- which loops ---- */

static bool is_plain(const loop *l, uint8_t schedule) { return l->parent && l->schedule == schedule && l->step == 1 && !l->lanes; }

static bool is_long(emitter *e, const loop *l, int64_t least) {
  int64_t extent = dc_cpu_extent(e, l);
  return extent < 0 || extent >= least;
}

static bool is_register(emitter *e, dc_cid c) { return dc_cont(e->graph, c)->storage == DC_STORE_REGISTER; }

static bool is_number(emitter *e, dc_ex x, int64_t number) {
  int64_t value;
  return dc_ex_is_int(e->pool, x, &value) && value == number;
}

/* What an address grows by in each of the three loops; none of them may change it. */
typedef struct {
  dc_ex m, n, k;
} steps;

static bool steps_of(emitter *e, const gemm *x, const gemm_sum *s, dc_ex read, steps *out) {
  const dc_param loops[] = {x->m->param, x->n->param, s->k->param};
  dc_ex *by[] = {&out->m, &out->n, &out->k}, rest;
  if (e->facts.v[read].check) return false;
  for (int j = 0; j < 3; j++) {
    if (!dc_ix_split(e->pool, e->facts.v[read].address, loops[j], by[j], &rest)) return false;
    for (int i = 0; i < 3; i++)
      if (dc_ex_uses_param(e->pool, *by[j], loops[i])) return false;
  }
  return true;
}

static bool fits(emitter *e, const gemm *x, gemm_sum *s) {
  steps a, b, c;
  if (!steps_of(e, x, s, s->a, &a) || !steps_of(e, x, s, s->b, &b) || !steps_of(e, x, s, s->sum->element, &c)) return false;
  s->a_m = a.m, s->a_k = a.k, s->b_k = b.k, s->c_m = c.m;
  bool sums = s->buffered ? is_number(e, c.n, 0) && is_number(e, c.m, 0) : is_number(e, c.n, 1) && !is_number(e, c.m, 0);
  return sums && is_number(e, c.k, 0) && is_number(e, a.n, 0) && is_number(e, b.m, 0) && is_number(e, b.n, 1) && !is_number(e, a.m, 0) && !is_number(e, b.k, 0);
}

static bool is_operand(emitter *e, dc_ex x, dc_dtype type) {
  const dc_exnode *node = dc_ex_node(e->pool, x);
  return node->op == DC_EX_READ && node->dtype == type && !is_register(e, node->ref);
}

static bool add_sum(emitter *e, gemm *x, loop *k, write_item *w) {
  dc_dtype type = (dc_dtype)dc_cont(e->graph, w->out)->dtype;
  if (x->n_sums == DC_MAX_SUMS || w->wcr != DC_WCR_SUM || w->guard || (type != DC_F32 && type != DC_F64)) return false;
  if (dc_ex_node(e->pool, w->value)->op != DC_MUL) return false;
  dc_ex a = dc_ex_arg(e->pool, w->value, 0), b = dc_ex_arg(e->pool, w->value, 1);
  if (!is_operand(e, a, type) || !is_operand(e, b, type)) return false;
  bool swapped = dc_ex_uses_param(e->pool, e->facts.v[a].address, x->n->param); /* levels are not known yet: addresses are */
  gemm_sum *s = &x->sums[x->n_sums++];
  *s = (gemm_sum){.k = k, .sum = w, .a = swapped ? b : a, .b = swapped ? a : b, .buffered = is_register(e, w->out)};
  return fits(e, x, s);
}

/* The range of inner does not follow outer's parameter, nor data. */
static bool is_box(emitter *e, const loop *inner, const loop *outer) {
  dc_ex range[] = {inner->begin, inner->end};
  for (int k = 0; k < 2; k++)
    if (dc_ex_uses_param(e->pool, range[k], outer->param) || dc_ex_uses_op(e->pool, range[k], DC_EX_READ)) return false;
  return true;
}

/* Of a reduction's loops, which form a box, the last one is the product's. */
static bool add_reduction(emitter *e, gemm *x, loop *k) {
  bool good = k->is_entry;
  for (int outer = 0;; k = k->body.v[0].loop) {
    good = good && outer++ <= MAX_OUTER && is_plain(k, DC_MAP_REDUCE) && is_box(e, k, x->n) && is_box(e, k, x->m);
    for (const loop *l = k->parent; l != x->n && good; l = l->parent) good = is_box(e, k, l);
    if (!good || k->body.n != 1 || !k->body.v[0].loop || k->body.v[0].loop->is_entry) break;
  }
  if (!good || !is_long(e, k, FEW_TERMS)) return false;
  for (uint32_t j = 0; j < k->body.n; j++)
    if (!k->body.v[j].write || !add_sum(e, x, k, k->body.v[j].write)) return false;
  return true;
}

/* The sums of a block come before all else in it: nothing that it writes is an operand. */
static bool is_in_order(emitter *e, const gemm *x) {
  uint64_t operands = 0, written = 0;
  for (uint32_t k = 0; k < x->n_sums; k++) {
    operands |= dc_cpu_container_bits(e, dc_ex_node(e->pool, x->sums[k].a)->ref) | dc_cpu_container_bits(e, dc_ex_node(e->pool, x->sums[k].b)->ref);
    written |= dc_cpu_container_bits(e, x->sums[k].sum->out);
  }
  for (uint32_t k = 0; k < x->n->body.n; k++)
    if (x->n->body.v[k].write) written |= dc_cpu_container_bits(e, x->n->body.v[k].write->out);
  return !(operands & written);
}

static void find_at(emitter *e, loop *n) {
  loop *m = n->parent;
  if (!is_plain(n, DC_MAP_PARALLEL) || !is_plain(m, DC_MAP_PARALLEL) || m->body.n != 1 || !is_long(e, n, FEW_COLUMNS) || !is_long(e, m, 2)) return;
  gemm *x = DC_NEW(e->arena, gemm);
  *x = (gemm){.m = m, .n = n};
  for (uint32_t k = 0; k < n->body.n; k++)
    if (n->body.v[k].loop && !add_reduction(e, x, n->body.v[k].loop)) return;
  if (!x->n_sums || !is_box(e, n, m) || !is_in_order(e, x)) return;
  m->product = x;
  for (uint32_t k = 0; k < x->n_sums; k++) x->sums[k].sum->in_product = true;
}

void dc_cpu_find_products(emitter *e, loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) dc_cpu_find_products(e, l->body.v[k].loop);
  if (l != &e->root && l->parent != &e->root) find_at(e, l);
}

bool dc_cpu_has_product(const loop *l) {
  bool found = l->product != NULL;
  for (uint32_t k = 0; k < l->body.n && !found; k++) found = l->body.v[k].loop && dc_cpu_has_product(l->body.v[k].loop);
  return found;
}

/* ---- emission ---- */

/* &buffer[address], where the product's loops stand at their C names. */
static const char *place(emitter *e, dc_ex read) {
  return dc_arena_printf(e->arena, "b%u + %s", dc_ex_node(e->pool, read)->ref, dc_cpu_value(e, dc_cpu_fact(e, read)->address));
}

static void put_call(emitter *e, const gemm_sum *s, const char *terms, bool more) {
  const char *kind = dc_cpu_type((dc_dtype)dc_cont(e->graph, s->sum->out)->dtype)->kind;
  const char *c = s->buffered ? dc_arena_printf(e->arena, "r%u", s->sum->out) : place(e, s->sum->element);
  const char *c_m = s->buffered ? dc_arena_printf(e->arena, "%d", COLUMNS) : dc_cpu_value(e, s->c_m);
  const char *a = place(e, s->a), *b = place(e, s->b), *a_m = dc_cpu_value(e, s->a_m), *a_k = dc_cpu_value(e, s->a_k), *b_k = dc_cpu_value(e, s->b_k);
  dc_cpu_line(e, "product_%s(%s, %s, %s, m1 - m0, n1 - n0, %s, %s, %s, %s, %s, %d);", kind, c, a, b, terms, c_m, a_m, a_k, b_k, more);
}

/* A product of nothing; its operands are not looked at. */
static void put_zero(emitter *e, const gemm_sum *s) {
  const char *kind = dc_cpu_type((dc_dtype)dc_cont(e->graph, s->sum->out)->dtype)->kind;
  const char *c = s->buffered ? dc_arena_printf(e->arena, "r%u", s->sum->out) : place(e, s->sum->element);
  dc_cpu_line(e, "product_%s(%s, 0, 0, m1 - m0, n1 - n0, 0, %s, 0, 1, 0, 0);", kind, c, s->buffered ? dc_arena_printf(e->arena, "%d", COLUMNS) : dc_cpu_value(e, s->c_m));
}

/* The loops of the sum outside of k: they add to what a product of nothing has set to zero. */
static uint32_t open_outer(emitter *e, const gemm *x, const gemm_sum *s) {
  loop *chain[MAX_OUTER];
  uint32_t n = 0;
  for (loop *l = s->k->parent; l != x->n; l = l->parent) chain[n++] = l;
  for (uint32_t j = n; j-- > 0;) {
    const char *begin = dc_cpu_value(e, chain[j]->begin), *end = dc_cpu_value(e, chain[j]->end);
    dc_cpu_line(e, "for (i64 j%u = %s; j%u < %s; j%u++) {", chain[j]->param, begin, chain[j]->param, end, chain[j]->param);
    e->indent++;
  }
  return n;
}

static void put_sum(emitter *e, const gemm *x, const gemm_sum *s) {
  const char *begin = dc_cpu_value(e, s->k->begin), *end = dc_cpu_value(e, s->k->end);
  bool nested = s->k->parent != x->n;
  uint32_t mark = dc_cpu_scope_open(e), outer;
  dc_cpu_line(e, "{");
  e->indent++;
  dc_cpu_line(e, "const i64 j%u = m0, j%u = n0, j%u = %s;", x->m->param, x->n->param, s->k->param, begin);
  if (nested) put_zero(e, s);
  outer = open_outer(e, x, s);
  put_call(e, s, dc_arena_printf(e->arena, "%s - %s", end, begin), nested);
  dc_cpu_scope_close(e, mark);
  while (outer--) e->indent--, dc_cpu_line(e, "}");
  e->indent--;
  dc_cpu_line(e, "}");
}

/* Of a block: its sums together fit into the second cache, and onto the stack. */
static int rows_of(const gemm *x) {
  uint32_t buffers = 0;
  for (uint32_t k = 0; k < x->n_sums; k++) buffers += x->sums[k].buffered;
  return buffers > 2 ? ROWS / 4 : buffers == 2 ? ROWS / 2 : ROWS;
}

static void put_sums(emitter *e, const gemm *x) {
  for (uint32_t k = 0; k < x->n_sums; k++) {
    dc_cid c = x->sums[k].sum->out;
    const char *type = dc_cpu_type((dc_dtype)dc_cont(e->graph, c)->dtype)->compute;
    if (x->sums[k].buffered) dc_cpu_line(e, "%s r%u[%d] __attribute__((aligned(64)));", type, c, rows_of(x) * COLUMNS);
    put_sum(e, x, &x->sums[k]);
    dc_cpu_forget(e, dc_cpu_container_bits(e, c));
  }
}

/* What the body of n does beside the sums, for one block. */
static void put_rest(emitter *e, const gemm *x) {
  loop *m = x->m, *n = x->n, whole = *n;
  n->body.v = DC_NEW_ARRAY(e->arena, item, whole.body.n), n->body.n = 0;
  for (uint32_t k = 0; k < whole.body.n; k++)
    if (whole.body.v[k].write) n->body.v[n->body.n++] = whole.body.v[k];
  m->product = NULL, n->low = "n0", n->high = "n1", e->block = x;
  if (n->body.n) dc_cpu_emit_range(e, m, "m0", "m1");
  m->product = (gemm *)x, e->block = NULL;
  *n = whole;
}

void dc_cpu_emit_product(emitter *e, const gemm *x, const char *begin, const char *end) {
  const char *from = dc_cpu_value(e, x->n->begin), *to = dc_cpu_value(e, x->n->end);
  const int rows = rows_of(x);
  bool only_sums = true;
  for (uint32_t k = 0; k < x->n->body.n; k++) only_sums &= x->n->body.v[k].loop != NULL;
  for (uint32_t k = 0; k < x->n_sums; k++) only_sums &= !x->sums[k].buffered;
  if (only_sums) {
    dc_cpu_line(e, "if (%s < %s && %s < %s) {", begin, end, from, to);
    dc_cpu_line(e, "  const i64 m0 = %s, m1 = %s, n0 = %s, n1 = %s;", begin, end, from, to);
  } else {
    dc_cpu_line(e, "for (i64 m0 = %s; m0 < %s; m0 += %d)", begin, end, rows);
    dc_cpu_line(e, "for (i64 n0 = %s; n0 < %s; n0 += %d) {", from, to, COLUMNS);
    dc_cpu_line(e, "  const i64 m1 = m0 + %d < %s ? m0 + %d : %s;", rows, end, rows, end);
    dc_cpu_line(e, "  const i64 n1 = n0 + %d < %s ? n0 + %d : %s;", COLUMNS, to, COLUMNS, to);
  }
  e->indent++;
  uint32_t mark = dc_cpu_scope_open(e);
  put_sums(e, x);
  put_rest(e, x);
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_cpu_line(e, "}");
}

const char *dc_cpu_block_element(emitter *e, dc_cid c) {
  const gemm *x = e->block;
  for (uint32_t k = 0; x && k < x->n_sums; k++)
    if (x->sums[k].buffered && x->sums[k].sum->out == c)
      return dc_arena_printf(e->arena, "r%u[(j%u - m0) * %d + j%u - n0]", c, x->m->param, COLUMNS, x->n->param);
  return NULL;
}
