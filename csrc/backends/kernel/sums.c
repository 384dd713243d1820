/* In what order sums take their terms.
 *
 * The order is in the kernel and never the compiler's choice, so that a kernel gives the same bits whatever the
 * alignment, the width of vectors or the compiler.  A vectorised reduction keeps an accumulator for each lane.  As
 * errors grow with the number of terms, a long sum is one of the sums of blocks. */
#include "backends/kernel/kernel.h"
#include "ir/work.h"

enum {
  MAX_LEVELS = 2,   /* of blocks in blocks */
  TERMS = 4,        /* that a lane takes at once */
  LIKELY = 1 << 20, /* what extents that are symbols are up to */
};

/* Does accumulator a take terms of a sum, whose order shows, in the iterations of l? */
bool dc_kernel_is_sum_through(const dc_kernel *k, const dc_loop *l, uint32_t a) {
  const dc_accumulator *acc = &k->accumulators.v[a];
  bool sums = acc->first->wcr == DC_WCR_SUM && dc_dtype_is_float(acc->type);
  return sums && dc_loop_is_inside(l, acc->home) && dc_loop_accumulates(l, a, true);
}

/* Does accumulator a take all its terms from l, which is inside its home? */
static bool is_fed_by(const dc_kernel *k, uint32_t a, const dc_loop *l) {
  bool alone = l != k->accumulators.v[a].home;
  for (uint32_t j = 0; j < k->writes.n && alone; j++) alone = !dc_write_adds_to(k->writes.v[j], a) || k->writes.v[j]->parent == l;
  return alone;
}

/* Lanes that a reduction runs in; 0: none, or any order does. */
static uint32_t lanes_of(dc_kernel *k, const dc_loop *l) {
  int64_t extent = dc_loop_extent(k, l);
  const dc_machine *m = &k->graph->machine;
  uint32_t bytes = 0, lanes = m->sum_lanes;
  if (!l->is_ordered || (extent >= 0 && extent < DC_FEW_LANES)) return 0;
  for (uint32_t a = 0; a < k->accumulators.n; a++)
    if (dc_loop_accumulates(l, a, false)) bytes += (uint32_t)dc_dtype_bytes(k->accumulators.v[a].type);
  while (lanes > DC_FEW_LANES && (lanes * bytes > m->accumulator_bytes || (extent >= 0 && extent < 2 * (int64_t)lanes))) lanes /= 2;
  return lanes;
}

/* Short loops of known length inside a reduction: an accumulator for each of their iterations, so that none waits for the
 * one before it, and nothing is folded before the reduction ends.  Returns their number, 0 where that does not fit. */
static uint32_t spread_of(dc_kernel *k, const dc_loop *l) {
  const dc_machine *m = &k->graph->machine;
  uint32_t bytes = 0, lanes = 1;
  const dc_loop *home = NULL; /* the innermost */
  if (!l->is_ordered) return 0;
  for (uint32_t a = 0; a < k->accumulators.n; a++) {
    const dc_accumulator *acc = &k->accumulators.v[a];
    if (!dc_loop_accumulates(l, a, false)) continue;
    if (!is_fed_by(k, a, l)) return 0;
    bytes += (uint32_t)dc_dtype_bytes(acc->type);
    if (!home || dc_loop_is_inside(acc->home, home)) home = acc->home;
  }
  for (const dc_loop *at = l; at != home; at = at->parent) {
    int64_t extent = dc_loop_extent(k, at);
    bool fits = extent > 0 && extent * lanes <= m->sum_lanes && extent * lanes * bytes <= m->accumulator_bytes;
    if (!fits || at->step != 1 || !dc_kernel_is_number(k, at->begin, 0)) break;
    lanes *= (uint32_t)extent;
  }
  return lanes > 1 ? lanes : 0;
}

/* Levels of blocks for the sums that l, which is inside their loops, goes through in steps of so many lanes. */
static uint32_t levels_of(dc_kernel *k, const dc_loop *l, uint32_t lanes) {
  int64_t extent = dc_loop_extent(k, l), most = extent < 0 ? LIKELY : extent;
  bool sums = false;
  for (uint32_t a = 0; a < k->accumulators.n && !sums; a++) sums = dc_kernel_is_sum_through(k, l, a);
  if (!sums) return 0;
  uint32_t levels = 0;
  for (int64_t reach = 2 * DC_SUM_BLOCK * (lanes ? lanes : 1); levels < MAX_LEVELS && most > reach; reach *= DC_SUM_BLOCK) levels++;
  return levels;
}

static void find_check(void *context, const dc_pool *pool, dc_ex read) {
  if (dc_ex_node(pool, read)->nargs > 1) *(bool *)context = true;
}

bool dc_loop_takes_terms(const dc_kernel *k, const dc_loop *l) {
  bool other = l->lanes || !dc_loop_strip(l) || l->schedule != DC_MAP_REDUCE;
  for (uint32_t j = 0; j < l->body.n && !other; j++) {
    const dc_write *w = l->body.v[j].write;
    other = !w || w->guard || !w->accumulator || !dc_kernel_is_laned(k, w->accumulator - 1);
    if (!other) dc_kernel_each_read(k, w->value, find_check, &other);
    for (uint32_t i = 0; i < j && !other; i++) other = dc_write_adds_to(l->body.v[i].write, w->accumulator - 1);
  }
  return !other && l->body.n;
}

/* Where terms cost less than to fetch and store what they go to. */
static uint32_t terms_of(dc_kernel *k, const dc_loop *l) {
  const int64_t extent = dc_loop_extent(k, l);
  bool cheap = l->step == 1 && !l->spread && !l->sum_lanes && (extent < 0 || extent >= 2 * TERMS) && dc_loop_takes_terms(k, l);
  for (uint32_t j = 0; j < l->body.n && cheap; j++) {
    const dc_write *w = l->body.v[j].write;
    cheap = dc_ex_work(k->pool, w->value).cost <= k->graph->machine.cached_ns;
  }
  return cheap ? TERMS : 0;
}

static void find_sums(dc_kernel *k, dc_loop *l) {
  if (l->product || l->lanes || l->joined) return;
  l->spread = spread_of(k, l);
  l->sum_lanes = l->spread ? 0 : lanes_of(k, l);
  l->sum_levels = levels_of(k, l, l->sum_lanes);
  l->terms = terms_of(k, l);
}

/* Lanes are folded once, at the end of the reduction, and not once for each run of the loop that feeds them. */
void dc_kernel_widen(dc_kernel *k) {
  for (uint32_t a = 0; a < k->accumulators.n; a++) {
    dc_accumulator *acc = &k->accumulators.v[a];
    const dc_loop *l = acc->first->parent;
    acc->lanes = !is_fed_by(k, a, l) ? 0 : l->spread ? l->spread : l->sum_lanes;
  }
}

void dc_kernel_sums(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_sums);
  dc_kernel_widen(k);
}
