/* Loops that vectors may run. */
#include "backends/kernel/kernel.h"

/* Vectors may run the iterations of an innermost loop unless they collide. */
static bool may_vectorise(const dc_kernel *k, const dc_loop *l) {
  if (dc_loop_has_loops(l) || l->schedule == DC_MAP_SEQUENTIAL || l->collides || dc_loop_strip(l) || dc_loop_is_sum(l)) return false;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    if (w && !w->accumulator && dc_kernel_is_register(k, w->out) && k->homes.v[w->out] != l) return false;
  }
  return true;
}

static void find_vectors(dc_kernel *k, dc_loop *l) {
  l->is_vector = may_vectorise(k, l);
  for (uint32_t a = 0; a < k->accumulators.n && l->is_vector && !l->is_ordered; a++)
    l->is_ordered = dc_dtype_is_float(k->accumulators.v[a].type) && dc_loop_accumulates(l, a, false);
}

void dc_kernel_vectors(dc_kernel *k) { dc_kernel_each_loop(k, k->root, find_vectors); }
