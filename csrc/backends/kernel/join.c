/* Joining: iterations of a parallel loop over blocks of elements may run as one larger block, where the loops inside
 * differ only in where they begin and end.  Then as many of a task's elements as it has share a fetch of what all of
 * them read. */
#include "backends/kernel/kernel.h"

static bool uses(const dc_kernel *k, dc_ex x, dc_param p) { return x && dc_ex_uses_param(k->pool, x, p); }

static bool uses_inside(const dc_kernel *k, const dc_loop *l, dc_param p) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    const dc_write *w = l->body.v[j].write;
    if (w && (uses(k, w->element, p) || uses(k, w->value, p) || uses(k, w->guard, p))) return true;
    if (inner && (uses(k, inner->begin, p) || uses(k, inner->end, p) || uses_inside(k, inner, p))) return true;
  }
  return false;
}

/* Inside l, p stands only where loops begin and, as `stop`, where they end; what one element leaves in a register stays
 * in such a loop. */
static bool only_bounds(const dc_kernel *k, const dc_loop *l, dc_param p, dc_ex stop) {
  for (dc_cid c = 1; c < k->homes.n; c++)
    if (dc_kernel_is_register(k, c) && k->homes.v[c] == l) return false;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_loop *inner = l->body.v[j].loop;
    if (!inner) return false; /* outside of all such loops */
    bool block = inner->begin == dc_ex_par(k->pool, p) && inner->end == stop && inner->step == 1 && !inner->usual;
    if (!block && (uses(k, inner->begin, p) || uses(k, inner->end, p) || !only_bounds(k, inner, p, stop))) return false;
    if (block && uses_inside(k, inner, p)) return false;
  }
  return true;
}

static void join(dc_kernel *k, dc_loop *l) {
  if (l->step == 1 || l->schedule != DC_MAP_PARALLEL || l->product || l->lanes) return;
  dc_ex stop = dc_ix_add(k->pool, dc_ex_par(k->pool, l->param), dc_ex_int(k->pool, l->step)), least = dc_ix_min(k->pool, stop, l->end);
  l->joined = only_bounds(k, l, l->param, stop) ? stop : only_bounds(k, l, l->param, least) ? least : 0;
}

void dc_kernel_join(dc_kernel *k) { dc_kernel_each_loop(k, k->root, join); }
