/* Tiles: where an element-wise map reads along one dimension and writes along another, a line of cache serves all its
 * elements only if both loops run inside a tile: outer .. inner becomes tiles of outer .. tiles of inner, outer, inner. */
#include "backends/kernel/kernel.h"
#include "backends/kernel/strides.h"

enum { FEW = 4 }; /* iterations that do not pay for a loop over tiles */

typedef struct {
  dc_kernel *k;
  dc_loop *inner;
  dc_loop *found; /* the nearest loop around in which an access that jumps in `inner` is contiguous */
} tile_search;

static void find_crossing(void *context, const dc_pool *pool, dc_ex read) {
  tile_search *t = context;
  dc_ex address = dc_ex_arg(pool, read, 0), factor, rest;
  int64_t step;
  if (t->found || dc_stride_cost(t->k, address, t->inner->param) < DC_STRIDE_JUMPS) return;
  for (dc_loop *l = t->inner; !l->is_entry && !t->found;) {
    l = l->parent;
    bool unit = dc_ix_split(t->k->pool, address, l->param, &factor, &rest) && dc_ex_is_int(t->k->pool, factor, &step) && step == 1;
    if (unit && l->step == 1) t->found = l;
  }
}

static bool is_longer(dc_kernel *k, const dc_loop *l, int64_t n) {
  int64_t extent = dc_loop_extent(k, l);
  return extent < 0 || extent > n;
}

/* A loop over tiles of l; l itself then runs inside one. */
static dc_loop *tile_loop(dc_kernel *k, dc_loop *l, int64_t size) {
  const char *name = dc_name_text(&k->graph->names, k->pool->params.v[l->param].name);
  dc_loop *outer = dc_loop_new(k, dc_arena_printf(k->arena, "%s_tile", name), l->begin, l->end, size);
  dc_ex extent = dc_ex_int(k->pool, size);
  outer->schedule = l->schedule, outer->is_entry = l->is_entry;
  l->begin = dc_ex_par(k->pool, outer->param);
  int64_t whole;
  bool fits = dc_ex_is_int(k->pool, dc_ix_sub(k->pool, l->end, outer->begin), &whole) && whole % size == 0;
  dc_ex end = dc_ix_add(k->pool, l->begin, extent);
  l->end = fits ? end : dc_ix_min(k->pool, end, l->end);
  l->is_entry = false, l->usual = size;
  return outer;
}

static void adopt(dc_kernel *k, dc_loop *parent, dc_loop *child) {
  parent->body.n = 0;
  DC_PUSH(k->arena, &parent->body, ((dc_item){.loop = child}));
  child->parent = parent;
}

static void tile(dc_kernel *k, dc_loop *inner, dc_loop *outer) {
  dc_loop *above = outer->parent, *below = outer->body.v[0].loop;
  dc_loop *outer_tiles = tile_loop(k, outer, k->graph->machine.tile_rows),
          *inner_tiles = tile_loop(k, inner, k->graph->machine.tile_columns);
  for (uint32_t j = 0; j < above->body.n; j++)
    if (above->body.v[j].loop == outer) above->body.v[j].loop = outer_tiles;
  outer_tiles->parent = above;
  dc_loop *last = below == inner ? outer_tiles : inner->parent;
  if (below != inner) adopt(k, outer_tiles, below);
  adopt(k, last, inner_tiles);
  adopt(k, inner_tiles, outer);
  adopt(k, outer, inner);
}

static void find_tiles(dc_kernel *k, dc_loop *l) {
  if (!l->body.n || dc_loop_has_loops(l) || l->schedule != DC_MAP_PARALLEL || l->step != 1 || l->is_entry || l->parent->product) return;
  tile_search t = {.k = k, .inner = l};
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_kernel_each_read(k, l->body.v[j].write->value, find_crossing, &t);
    find_crossing(&t, k->pool, l->body.v[j].write->element);
  }
  if (!t.found || !is_longer(k, t.found, FEW) || !is_longer(k, l, 2 * (int64_t)k->graph->machine.tile_columns)) return;
  for (const dc_loop *at = t.found; at != l; at = at->body.v[0].loop)
    if (at->body.n != 1 || !at->body.v[0].loop || at->body.v[0].loop->is_entry) return;
  tile(k, l, t.found);
}

void dc_kernel_tiles(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_tiles);
  dc_kernel_settle(k);
}
