/* Matrix products inside kernels: loops m and n around reductions k over A[m, k] * B[k, n], whatever operator they
 * came from, run in blocks whose sums stay in registers; so do sums of squares and sizes of A[m, k] - B[k, n].
 *
 * B and the sums run along n in memory.  What the map does with the sums afterwards runs on blocks of them that
 * are still in cache. */
#include "backends/kernel/kernel.h"

enum { FEW_COLUMNS = 16, FEW_TERMS = 4, MAX_OUTER = 8 };

static bool is_simple(const dc_loop *l, uint8_t schedule) { return l->parent && l->schedule == schedule && l->step == 1 && !l->lanes; }

static bool is_long(dc_kernel *k, const dc_loop *l, int64_t least) {
  int64_t extent = dc_loop_extent(k, l);
  return extent < 0 || extent >= least;
}

/* What an address grows by in each of the three loops; none of them may change it. */
typedef struct {
  dc_ex m, n, k;
} steps;

static bool steps_of(dc_kernel *k, const dc_product *x, const dc_product_sum *s, dc_ex read, steps *out) {
  const dc_param loops[] = {x->m->param, x->n->param, s->k->param};
  dc_ex *by[] = {&out->m, &out->n, &out->k}, rest;
  if (dc_read_check(k, read)) return false;
  for (int j = 0; j < 3; j++) {
    if (!dc_ix_split(k->pool, dc_read_address(k, read), loops[j], by[j], &rest)) return false;
    for (int i = 0; i < 3; i++)
      if (dc_ex_uses_param(k->pool, *by[j], loops[i])) return false;
  }
  return true;
}

static bool fits(dc_kernel *k, const dc_product *x, dc_product_sum *s) {
  steps a, b, c;
  if (!steps_of(k, x, s, s->a, &a) || !steps_of(k, x, s, s->b, &b) || !steps_of(k, x, s, s->sum->element, &c)) return false;
  s->a_m = a.m, s->a_k = a.k, s->b_k = b.k, s->c_m = c.m;
  const struct {
    dc_ex step;
    int64_t number;
    bool equal;
  } wanted[] = {{c.k, 0, true}, {a.n, 0, true}, {b.m, 0, true}, {b.n, 1, true}, {a.m, 0, false}, {b.k, 0, false},
                {c.n, s->buffered ? 0 : 1, true}, {c.m, 0, s->buffered}};
  for (size_t j = 0; j < sizeof wanted / sizeof *wanted; j++)
    if (dc_kernel_is_number(k, wanted[j].step, wanted[j].number) != wanted[j].equal) return false;
  return true;
}

static bool is_operand(dc_kernel *k, dc_ex x, dc_dtype type) {
  const dc_exnode *node = dc_ex_node(k->pool, x);
  return node->op == DC_EX_READ && node->dtype == type && !dc_kernel_is_register(k, node->ref);
}

static bool add_sum(dc_kernel *kernel, dc_product *x, dc_loop *k, dc_write *w) {
  dc_pool *pool = kernel->pool;
  dc_dtype type = (dc_dtype)dc_cont(kernel->graph, w->out)->dtype;
  if (x->n_sums == DC_MAX_SUMS || w->wcr != DC_WCR_SUM || w->guard || (type != DC_F32 && type != DC_F64)) return false;
  dc_ex a, b;
  const dc_term term = dc_ex_term(pool, w->value, &a, &b);
  if (!term || !is_operand(kernel, a, type) || !is_operand(kernel, b, type)) return false;
  bool swapped = dc_ex_uses_param(pool, dc_read_address(kernel, a), x->n->param);
  dc_product_sum *s = &x->sums[x->n_sums++];
  *s = (dc_product_sum){.k = k, .sum = w, .term = term, .buffered = dc_kernel_is_register(kernel, w->out)};
  s->a = swapped ? b : a, s->b = swapped ? a : b;
  return fits(kernel, x, s);
}

/* The range of inner does not follow outer's parameter, nor data. */
static bool is_box(const dc_kernel *k, const dc_loop *inner, const dc_loop *outer) {
  dc_ex range[] = {inner->begin, inner->end};
  for (int j = 0; j < 2; j++)
    if (dc_ex_uses_param(k->pool, range[j], outer->param) || dc_ex_uses_op(k->pool, range[j], DC_EX_READ)) return false;
  return true;
}

/* Of a reduction's loops, which form a box, the last one is the product's. */
static bool add_reduction(dc_kernel *kernel, dc_product *x, dc_loop *k) {
  bool good = k->is_entry;
  for (int outer = 0;; k = k->body.v[0].loop) {
    good = good && outer++ <= MAX_OUTER && is_simple(k, DC_MAP_REDUCE) && is_box(kernel, k, x->n) && is_box(kernel, k, x->m);
    for (const dc_loop *l = k->parent; l != x->n && good; l = l->parent) good = is_box(kernel, k, l);
    if (!good || k->body.n != 1 || !k->body.v[0].loop || k->body.v[0].loop->is_entry) break;
  }
  if (!good || !is_long(kernel, k, FEW_TERMS)) return false;
  for (uint32_t j = 0; j < k->body.n; j++)
    if (!k->body.v[j].write || !add_sum(kernel, x, k, k->body.v[j].write)) return false;
  return true;
}

/* The sums of a block come before all else in it: nothing that it writes is an operand. */
static bool is_in_order(const dc_kernel *k, const dc_product *x) {
  uint64_t operands = 0, written = 0;
  for (uint32_t j = 0; j < x->n_sums; j++) {
    operands |= k->bits[dc_ex_node(k->pool, x->sums[j].a)->ref] | k->bits[dc_ex_node(k->pool, x->sums[j].b)->ref];
    written |= k->bits[x->sums[j].sum->out];
  }
  for (uint32_t j = 0; j < x->n->body.n; j++)
    if (x->n->body.v[j].write) written |= k->bits[x->n->body.v[j].write->out];
  return !(operands & written);
}

/* Of a block: its sums together fit into the second cache, and onto the stack. */
static int64_t rows_of(const dc_kernel *k, const dc_product *x) {
  uint32_t buffers = 0;
  for (uint32_t j = 0; j < x->n_sums; j++) buffers += x->sums[j].buffered;
  const int64_t rows = k->graph->machine.product_rows;
  return buffers > 2 ? rows / 4 : buffers == 2 ? rows / 2 : rows;
}

dc_product *dc_kernel_product_at(dc_kernel *k, dc_loop *n) {
  dc_loop *m = n->parent;
  if (m == k->root || !is_simple(n, DC_MAP_PARALLEL) || !is_simple(m, DC_MAP_PARALLEL) || m->body.n != 1) return NULL;
  if (!is_long(k, n, FEW_COLUMNS) || !is_long(k, m, 2) || !is_box(k, n, m)) return NULL;
  dc_product *x = DC_NEW(k->arena, dc_product);
  *x = (dc_product){.m = m, .n = n};
  for (uint32_t j = 0; j < n->body.n; j++)
    if (n->body.v[j].loop && !add_reduction(k, x, n->body.v[j].loop)) return NULL;
  const int64_t columns = dc_loop_extent(k, n), most = k->graph->machine.product_columns;
  x->rows = rows_of(k, x), x->columns = columns >= 0 && columns < most ? columns : most;
  return x->n_sums && is_in_order(k, x) ? x : NULL;
}

static void find_product(dc_kernel *k, dc_loop *n) {
  dc_product *x = dc_kernel_product_at(k, n);
  if (!x) return;
  n->parent->product = x;
  for (uint32_t j = 0; j < x->n_sums; j++) x->sums[j].sum->in_product = true;
}

void dc_kernel_products(dc_kernel *k) { dc_kernel_each_loop(k, k->root, find_product); }
