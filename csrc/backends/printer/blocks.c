/* Products as calls of the library's product_f32 and product_f64, or of what sums other terms so, which keep tiles of sums in
 * registers; what the map does with the sums runs on blocks of them that are still in cache. */
#include "backends/printer/printer.h"

/* &buffer[address], where the product's loops stand at their names. */
static const char *place(dc_printer *p, dc_ex read) {
  return dc_arena_printf(p->arena, "b%u + %s", dc_ex_node(p->pool, read)->ref, dc_print_value(p, dc_read_address(p->k, read)));
}

static const char *function_of(const dc_printer *p, const dc_product_sum *s) {
  static const char *const names[] = {[DC_TERM_PRODUCT] = "product", [DC_TERM_SQUARE] = "squares", [DC_TERM_GAP] = "gaps"};
  return dc_arena_printf(p->arena, "%s_%s", names[s->term], p->dialect->types[dc_cont(p->k->graph, s->sum->out)->dtype].kind);
}

static const char *sums_of(dc_printer *p, const dc_product_sum *s) {
  return s->buffered ? dc_arena_printf(p->arena, "r%u", s->sum->out) : place(p, s->sum->element);
}

static const char *row_step(dc_printer *p, const dc_product *x, const dc_product_sum *s) {
  return s->buffered ? dc_arena_printf(p->arena, "%lld", (long long)x->columns) : dc_print_value(p, s->c_m);
}

static void put_call(dc_printer *p, const dc_product *x, const dc_product_sum *s, const char *terms, bool more) {
  const char *c = sums_of(p, s), *c_m = row_step(p, x, s), *a = place(p, s->a), *b = place(p, s->b);
  const char *a_m = dc_print_value(p, s->a_m), *a_k = dc_print_value(p, s->a_k), *b_k = dc_print_value(p, s->b_k);
  dc_print_line(p, "%s(%s, %s, %s, m1 - m0, n1 - n0, %s, %s, %s, %s, %s, %d);", function_of(p, s), c, a, b, terms, c_m, a_m, a_k, b_k,
                more);
}

/* A product of nothing; its operands are not looked at. */
static void put_zero(dc_printer *p, const dc_product *x, const dc_product_sum *s) {
  const char *c = sums_of(p, s);
  dc_print_line(p, "%s(%s, 0, 0, m1 - m0, n1 - n0, 0, %s, 0, 1, 0, 0);", function_of(p, s), c, row_step(p, x, s));
}

/* The loops of the sum outside of k: they add to what a product of nothing has set to zero. */
static uint32_t open_outer(dc_printer *p, const dc_loop *l, const dc_loop *n) {
  if (l == n) return 0;
  uint32_t outer = open_outer(p, l->parent, n);
  const char *begin = dc_print_value(p, l->begin), *end = dc_print_value(p, l->end);
  dc_print_open(p, dc_arena_printf(p->arena, "for (i64 j%u = %s; j%u < %s; j%u++)", l->param, begin, l->param, end, l->param));
  return outer + 1;
}

static void put_sum(dc_printer *p, const dc_product *x, const dc_product_sum *s) {
  const char *begin = dc_print_value(p, s->k->begin), *end = dc_print_value(p, s->k->end);
  bool nested = s->k->parent != x->n;
  uint32_t mark = dc_print_scope(p), outer;
  dc_print_open(p, "");
  dc_print_line(p, "const i64 j%u = m0, j%u = n0, j%u = %s;", x->m->param, x->n->param, s->k->param, begin);
  if (nested) put_zero(p, x, s);
  outer = open_outer(p, s->k->parent, x->n);
  put_call(p, x, s, dc_arena_printf(p->arena, "%s - %s", end, begin), nested);
  dc_print_scope_end(p, mark);
  while (outer--) dc_print_close(p);
  dc_print_close(p);
}

static void put_sums(dc_printer *p, const dc_product *x) {
  for (uint32_t k = 0; k < x->n_sums; k++) {
    dc_cid c = x->sums[k].sum->out;
    const char *type = p->dialect->types[dc_cont(p->k->graph, c)->dtype].compute;
    if (x->sums[k].buffered) dc_print_line(p, "%s r%u[%lld] __attribute__((aligned(64)));", type, c, (long long)(x->rows * x->columns));
    put_sum(p, x, &x->sums[k]);
    dc_print_forget(p, p->k->bits[c]);
  }
}

uint32_t dc_print_blocks_begin(dc_printer *p, const dc_product *x, const char *begin, const char *end) {
  const char *from = dc_print_value(p, x->n->begin), *to = dc_print_value(p, x->n->end);
  const long long rows = x->rows, columns = x->columns;
  bool only_sums = true;
  for (uint32_t k = 0; k < x->n->body.n; k++) only_sums &= x->n->body.v[k].loop != NULL;
  for (uint32_t k = 0; k < x->n_sums; k++) only_sums &= !x->sums[k].buffered;
  if (only_sums) {
    dc_print_open(p, dc_arena_printf(p->arena, "if (%s < %s && %s < %s)", begin, end, from, to));
    dc_print_line(p, "const i64 m0 = %s, m1 = %s, n0 = %s, n1 = %s;", begin, end, from, to);
  } else {
    dc_print_line(p, "for (i64 m0 = %s; m0 < %s; m0 += %lld)", begin, end, rows);
    dc_print_open(p, dc_arena_printf(p->arena, "for (i64 n0 = %s; n0 < %s; n0 += %lld)", from, to, columns));
    dc_print_line(p, "const i64 m1 = m0 + %lld < %s ? m0 + %lld : %s;", rows, end, rows, end);
    dc_print_line(p, "const i64 n1 = n0 + %lld < %s ? n0 + %lld : %s;", columns, to, columns, to);
  }
  uint32_t mark = dc_print_scope(p);
  put_sums(p, x);
  p->block = x;
  return mark;
}

void dc_print_blocks_end(dc_printer *p, uint32_t mark) {
  p->block = NULL;
  dc_print_scope_end(p, mark);
  dc_print_close(p);
}
