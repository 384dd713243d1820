/* Which iterations the threads of a device share.
 *
 * The loops from the outermost one on, as far as their extents are known before the kernel starts, are flattened: the
 * threads of a grid take their iterations in turn. */
#include "backends/kernel/kernel.h"

enum { BLOCK = 256 };

static bool is_shared(dc_kernel *k, const dc_loop *l) {
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  bool known = !begin.level && !end.level && !begin.reads && !end.reads;
  return known && (l->schedule == DC_MAP_PARALLEL || l->schedule == DC_MAP_SCATTER);
}

void dc_kernel_grid(dc_kernel *k) {
  dc_loop *l = dc_loop_only(k->root);
  k->grid = (dc_grid){.block = 1, .team = 1};
  for (; l && is_shared(k, l); l = dc_loop_only(l)) l->on_grid = true, k->grid.block = BLOCK;
}
