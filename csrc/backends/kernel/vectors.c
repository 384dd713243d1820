/* Loops that vectors may run. */
#include "backends/kernel/kernel.h"

/* Does each iteration write an element of its own, next to its neighbour's? */
static bool has_own_element(const dc_kernel *k, const dc_loop *l, const dc_write *w) {
  dc_ex step, rest;
  return dc_ix_split(k->pool, dc_read_address(k, w->element), l->param, &step, &rest) && dc_kernel_is_number(k, step, 1);
}

typedef struct {
  const dc_kernel *k;
  const dc_loop *l;
  bool found;
} name_search;

static dc_cid memory_of(const dc_kernel *k, dc_cid c) { return dc_cont(k->graph, c)->alias_of ? dc_cont(k->graph, c)->alias_of : c; }

/* Is it a read of what the loop writes under another name? */
static void visit_name(void *context, const dc_pool *pool, dc_ex x) {
  name_search *s = context;
  dc_cid c = dc_ex_node(pool, x)->ref;
  for (uint32_t j = 0; j < s->l->body.n; j++) {
    const dc_write *w = s->l->body.v[j].write;
    if (w && w->out != c && memory_of(s->k, w->out) == memory_of(s->k, c)) s->found = true;
  }
}

/* A compiler that is told that iterations are independent believes that of two pointers too, within an iteration as well. */
static bool has_two_names(const dc_kernel *k, const dc_loop *l) {
  name_search s = {k, l, false};
  for (uint32_t j = 0; j < l->body.n; j++)
    if (l->body.v[j].write) dc_kernel_each_read(k, l->body.v[j].write->value, visit_name, &s);
  return s.found;
}

/* What those of other loops write does not matter here: windows that overlap are added one after the other, each by vectors. */
bool dc_loop_is_apart(dc_kernel *k, const dc_loop *l) {
  const dc_write *w = dc_loop_single_write(l);
  if (!w || w->guard || w->accumulator || dc_read_check(k, w->element)) return false;
  if (dc_kernel_dependence(k, w->value).reads & k->bits[w->out]) return false;
  return has_own_element(k, l, w) && !dc_ex_uses_op(k->pool, dc_read_address(k, w->element), DC_EX_READ);
}

/* Vectors may run the iterations of an innermost loop unless they collide. */
static bool may_vectorise(dc_kernel *k, const dc_loop *l) {
  if (dc_loop_has_loops(l) || l->schedule == DC_MAP_SEQUENTIAL || dc_loop_strip(l) || dc_loop_is_sum(l)) return false;
  if (l->collides && !dc_loop_is_apart(k, l)) return false;
  if (has_two_names(k, l)) return false;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    if (w && !w->accumulator && dc_kernel_is_register(k, w->out) && k->homes.v[w->out] != l && !has_own_element(k, l, w)) return false;
  }
  return true;
}

static void find_vectors(dc_kernel *k, dc_loop *l) {
  l->is_vector = may_vectorise(k, l);
  for (uint32_t a = 0; a < k->accumulators.n && l->is_vector && !l->is_ordered; a++)
    l->is_ordered = dc_dtype_is_float(k->accumulators.v[a].type) && dc_loop_accumulates(l, a, false);
}

void dc_kernel_vectors(dc_kernel *k) { dc_kernel_each_loop(k, k->root, find_vectors); }
