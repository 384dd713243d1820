/* Loops that vectors may run. */
#include "backends/kernel/kernel.h"

/* Does each iteration write an element of its own, next to its neighbour's? */
static bool has_own_element(const dc_kernel *k, const dc_loop *l, const dc_write *w) {
  dc_ex step, rest;
  return dc_ix_split(k->pool, dc_read_address(k, w->element), l->param, &step, &rest) && dc_kernel_is_number(k, step, 1);
}

/* Vectors may run the iterations of an innermost loop unless they collide. */
static bool may_vectorise(const dc_kernel *k, const dc_loop *l) {
  if (dc_loop_has_loops(l) || l->schedule == DC_MAP_SEQUENTIAL || l->collides || dc_loop_strip(l) || dc_loop_is_sum(l)) return false;
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
